/* Tensors in the arena. What a request made ends with it: see end_request. */
#ifndef GUEST_TENSOR_H
#define GUEST_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "mesh_v1.h"

/* "f32 [1, 3, 224, 224]"; a free dimension is "any". */
void tensor_text(int32_t dtype, int32_t rank, const int64_t *dims, char *text, size_t room);

/* A new tensor, zeroed; `what` it is for stands in messages. */
int32_t new_tensor(int32_t dtype, int32_t rank, const int32_t *dims, const char *what, int32_t *tensor);

/* A handle that came from elsewhere is dropped with the request, too. */
void own_tensor(int32_t tensor);

/* Drops a tensor before the request ends. */
void drop_tensor(int32_t tensor);

/* The tensor's bytes to fill; unmap it before anything else uses it. */
int32_t map_to_write(int32_t tensor, void **data);
int32_t unmap(int32_t tensor);

/* A graph's output that the guest reads itself, valid until the tensor is dropped. */
struct values {
  mesh_tensor_info_t info;
  const float *data;
  size_t count;
};

/* Maps an output to read; a fault unless it is f32. */
int32_t read_values(int32_t tensor, const char *name, struct values *values);

/* Drops every tensor of the request, so that an instance can serve the next one. */
void end_request(void);

#endif
