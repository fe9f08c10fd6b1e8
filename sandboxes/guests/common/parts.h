/* The request's parts. */
#ifndef GUEST_PARTS_H
#define GUEST_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "mesh_v1.h"

struct part {
  int32_t index;
  char name[256], type[256]; /* cut where longer; type in lower case, without its parameters */
  bool streamed;
  bool is_tensor;
  int32_t dtype, rank;
  int64_t dims[MESH_MAX_RANK];
};

struct bytes {
  const uint8_t *data;
  size_t size;
};

int32_t read_part(int32_t index, struct part *part);

/* The request's options: the part `params`; no fields if there is none. */
int32_t request_params(struct fields *params);
bool is_params(const struct part *part);

/* The only part that is neither options nor a tensor. ENOTSUP unless its type begins with `family`, or says
 * nothing (application/octet-stream), in which case the content decides. With none or several, the request
 * is refused; `wanted` says in messages what was expected. */
int32_t only_part(const char *family, const char *wanted, struct part *part);

/* All the bytes of a part; waits for the end of a streamed one. */
int32_t part_bytes(const struct part *part, struct bytes *bytes);

#endif
