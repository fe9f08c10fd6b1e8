/* A graph of this unit's image. */
#ifndef GUEST_GRAPH_H
#define GUEST_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define MOST_TENSORS 64

/* A graph, or a sequence graph, with what graph_info says. Close it. */
struct graph {
  int32_t handle;
  const char *name;
  yyjson_doc *info;
  struct fields fields;
};

int32_t graph_open(const char *name, struct graph *graph);
void graph_close(struct graph *graph);

/* The list `inputs` or `outputs`: objects with name, dtype and shape. A fault if it has over MOST_TENSORS. */
int32_t graph_tensors(const struct graph *graph, const char *which, yyjson_val **list);

/* Where in the list the tensor of that name is; -1 if nowhere. */
int32_t tensor_index(yyjson_val *list, const char *name);

/* Runs a graph of one input, and gives a new tensor for each named output; a name of NULL stands for the
 * first output. */
int32_t graph_run_one(const struct graph *graph, int32_t input, size_t count, const char *const *names,
                      int32_t *outputs);

/* Runs a kernel from one tensor to one new tensor; args are JSON. */
int32_t kernel_run_one(const char *name, const char *args, size_t size, int32_t input, int32_t *output);

#endif
