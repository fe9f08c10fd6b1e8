#include <string.h>

#include "graph.h"
#include "parts.h"
#include "refuse.h"
#include "tasks.h"
#include "tensor.h"

/* "image, mask" */
static void names_of(yyjson_val *list, char *text, size_t room) {
  size_t index, count, used = 0;
  yyjson_val *entry;
  text[0] = '\0';
  yyjson_arr_foreach(list, index, count, entry) {
    const char *name = yyjson_get_str(yyjson_obj_get(entry, "name"));
    if (used < room) {
      used += (size_t)snprintf(text + used, room - used, "%s%s", index > 0 ? ", " : "", name ? name : "?");
    }
  }
}

/* EINVAL unless the part has the dtype and shape that the graph's input wants. */
static int32_t check_input(const struct part *part, yyjson_val *input) {
  int32_t dtype = (int32_t)yyjson_get_int(yyjson_obj_get(input, "dtype"));
  yyjson_val *shape = yyjson_obj_get(input, "shape");
  int32_t rank = (int32_t)yyjson_arr_size(shape);
  int64_t wanted[MESH_MAX_RANK];
  if (rank > MESH_MAX_RANK) return fault("input '%s' has over %d dimensions", part->name, MESH_MAX_RANK);
  bool fits = dtype == part->dtype && rank == part->rank;
  for (int32_t i = 0; i < rank; i++) {
    wanted[i] = yyjson_get_sint(yyjson_arr_get(shape, (size_t)i));
    fits = fits && (wanted[i] < 0 || wanted[i] == part->dims[i]);
  }
  if (fits) return 0;
  char expected[192], found[192];
  tensor_text(dtype, rank, wanted, expected, sizeof expected);
  tensor_text(part->dtype, part->rank, part->dims, found, sizeof found);
  return refuse(EINVAL, "input '%s': expected %s, found %s", part->name, expected, found);
}

/* Puts each tensor part where the graph has an input of its name. */
static int32_t gather(yyjson_val *inputs, int32_t *handles) {
  char names[512];
  memset(handles, 0, MOST_TENSORS * sizeof *handles);
  for (int32_t index = 0; index < mesh_part_count(); index++) {
    struct part part;
    TRY(read_part(index, &part));
    if (is_params(&part)) continue;
    names_of(inputs, names, sizeof names);
    int32_t place = tensor_index(inputs, part.name);
    if (!part.is_tensor) return refuse(EINVAL, "'%s' is no tensor; expected tensors only: %s", part.name, names);
    if (place < 0) return refuse(EINVAL, "there is no input '%s'; expected %s", part.name, names);
    if (handles[place] != 0) return refuse(EINVAL, "input '%s' was given twice", part.name);
    TRY(check_input(&part, yyjson_arr_get(inputs, (size_t)place)));
    int32_t handle = mesh_part_tensor(index);
    if (handle < 0) return host_failure(handle, part.name);
    own_tensor(handle);
    handles[place] = handle;
  }
  for (size_t i = 0; i < yyjson_arr_size(inputs); i++) {
    if (handles[i] == 0) {
      return refuse(EINVAL, "input '%s' is missing",
                    yyjson_get_str(yyjson_obj_get(yyjson_arr_get(inputs, i), "name")));
    }
  }
  return 0;
}

/* Marks the outputs that the request asks for, all if it names none, with 0, the others with -1. */
static int32_t choose(const struct fields *params, yyjson_val *outputs, int32_t *handles) {
  size_t index, count, all = yyjson_arr_size(outputs);
  yyjson_val *wanted = NULL, *entry;
  char names[512];
  TRY(field_list(params, "outputs", &wanted));
  for (size_t i = 0; i < all; i++) handles[i] = yyjson_arr_size(wanted) == 0 ? 0 : -1;
  yyjson_arr_foreach(wanted, index, count, entry) {
    int32_t place = yyjson_is_str(entry) ? tensor_index(outputs, yyjson_get_str(entry)) : -1;
    if (place < 0) {
      names_of(outputs, names, sizeof names);
      return refuse(EINVAL, "there is no output '%s'; expected some of %s",
                    yyjson_is_str(entry) ? yyjson_get_str(entry) : "?", names);
    }
    handles[place] = 0;
  }
  return 0;
}

static int32_t reply_outputs(yyjson_val *outputs, const int32_t *handles) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "outputs", list);
  for (size_t i = 0; i < yyjson_arr_size(outputs); i++) {
    if (handles[i] <= 0) continue;
    yyjson_val *name = yyjson_obj_get(yyjson_arr_get(outputs, i), "name");
    int32_t result = mesh_reply_tensor(yyjson_get_str(name), (int32_t)yyjson_get_len(name), handles[i]);
    if (result < 0) return host_failure(result, yyjson_get_str(name));
    yyjson_mut_arr_add_strn(doc, list, yyjson_get_str(name), yyjson_get_len(name));
  }
  return reply_json(doc);
}

static int32_t run(const struct graph *graph, const struct fields *params) {
  yyjson_val *inputs, *outputs;
  int32_t in[MOST_TENSORS], out[MOST_TENSORS];
  TRY(graph_tensors(graph, "inputs", &inputs));
  TRY(graph_tensors(graph, "outputs", &outputs));
  TRY(gather(inputs, in));
  TRY(choose(params, outputs, out));
  int32_t result = mesh_graph_run(graph->handle, in, (int32_t)yyjson_arr_size(inputs), out,
                                  (int32_t)yyjson_arr_size(outputs));
  /* What the graph itself doesn't like about inputs of the right type is the client's to mend, too. */
  if (result == -EINVAL) return result;
  if (result < 0) return host_failure(result, graph->name);
  for (size_t i = 0; i < yyjson_arr_size(outputs); i++) {
    if (out[i] > 0) own_tensor(out[i]);
  }
  return reply_outputs(outputs, out);
}

int32_t infer(const struct fields *config, const struct fields *params) {
  const char *name = NULL;
  struct fields own;
  struct graph graph;
  TRY(fields_within(config, "infer", &own));
  TRY(field_text(config, "graph", &name));
  TRY(field_text(&own, "graph", &name));
  if (name == NULL) return refuse(ENOTSUP, "this unit takes no tensors, it takes pictures");
  TRY(graph_open(name, &graph));
  int32_t result = run(&graph, params);
  graph_close(&graph);
  return result;
}
