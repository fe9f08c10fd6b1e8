#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mesh_v1.h"
#include "refuse.h"
#include "tensor.h"

static int32_t read_info(struct graph *graph) {
  int32_t size = mesh_graph_info(graph->handle, NULL, 0);
  if (size < 0) return host_failure(size, graph->name);
  char *text = malloc((size_t)size);
  if (text == NULL) return -ENOMEM;
  mesh_graph_info(graph->handle, text, size);
  graph->info = yyjson_read(text, (size_t)size, 0);
  free(text);
  graph->fields = (struct fields){yyjson_doc_get_root(graph->info), graph->name, false};
  return graph->info == NULL ? fault("graph '%s': its description isn't JSON", graph->name) : 0;
}

int32_t graph_open(const char *name, struct graph *graph) {
  *graph = (struct graph){mesh_graph(name, (int32_t)strlen(name)), name, NULL, {0}};
  if (graph->handle == -ENOENT) return fault("the unit's image has no graph '%s', which its config names", name);
  if (graph->handle < 0) return host_failure(graph->handle, name);
  return read_info(graph);
}

void graph_close(struct graph *graph) {
  yyjson_doc_free(graph->info);
  graph->info = NULL;
}

int32_t graph_tensors(const struct graph *graph, const char *which, yyjson_val **list) {
  *list = NULL;
  TRY(field_list(&graph->fields, which, list));
  if (*list == NULL) return fault("graph '%s' has no list of %s: is it a sequence?", graph->name, which);
  if (yyjson_arr_size(*list) > MOST_TENSORS) {
    return fault("graph '%s': at most %d %s are taken, found %zu", graph->name, MOST_TENSORS, which,
                 yyjson_arr_size(*list));
  }
  return 0;
}

int32_t tensor_index(yyjson_val *list, const char *name) {
  size_t index, count;
  yyjson_val *entry;
  yyjson_arr_foreach(list, index, count, entry) {
    if (yyjson_equals_str(yyjson_obj_get(entry, "name"), name)) return (int32_t)index;
  }
  return -1;
}

int32_t graph_run_one(const struct graph *graph, int32_t input, size_t count, const char *const *names,
                      int32_t *outputs) {
  yyjson_val *list;
  int32_t handles[MOST_TENSORS], places[MOST_TENSORS];
  TRY(graph_tensors(graph, "outputs", &list));
  size_t all = yyjson_arr_size(list);
  for (size_t i = 0; i < all; i++) handles[i] = -1;
  for (size_t i = 0; i < count; i++) {
    places[i] = names[i] == NULL ? 0 : tensor_index(list, names[i]);
    if (places[i] < 0) return fault("graph '%s' has no output '%s', which its config names", graph->name, names[i]);
    handles[places[i]] = 0;
  }
  int32_t result = mesh_graph_run(graph->handle, &input, 1, handles, (int32_t)all);
  if (result < 0) return host_failure(result, graph->name);
  for (size_t i = 0; i < all; i++) {
    if (handles[i] > 0) own_tensor(handles[i]);
  }
  for (size_t i = 0; i < count; i++) outputs[i] = handles[places[i]];
  return 0;
}

int32_t kernel_run_one(const char *name, const char *args, size_t size, int32_t input, int32_t *output) {
  *output = 0;
  int32_t result =
      mesh_kernel_run(name, (int32_t)strlen(name), args, (int32_t)size, &input, 1, output, 1);
  if (result < 0) return host_failure(result, name);
  own_tensor(*output);
  return 0;
}
