#include <math.h>
#include <string.h>

#include "refuse.h"
#include "tasks.h"
#include "tensor.h"

/* The factor that makes the vector's length 1. */
static float unit_scale(const struct values *values) {
  double squares = 0;
  for (size_t i = 0; i < values->count; i++) squares += (double)values->data[i] * values->data[i];
  return squares > 0 ? (float)(1 / sqrt(squares)) : 1;
}

static int32_t reply_numbers(const struct values *values, float scale) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "embedding", list);
  for (size_t i = 0; i < values->count; i++) {
    yyjson_mut_arr_append(list, short_real(doc, values->data[i] * scale));
  }
  return reply_json(doc);
}

/* The vector as a tensor beside the reply: the graph's own, unless it has to be scaled. */
static int32_t reply_vector(int32_t tensor, const struct values *values, float scale) {
  static const char name[] = "embedding";
  if (scale != 1) {
    int32_t scaled;
    void *data;
    TRY(new_tensor(MESH_F32, values->info.rank, values->info.dims, "room for the embedding", &scaled));
    TRY(map_to_write(scaled, &data));
    for (size_t i = 0; i < values->count; i++) ((float *)data)[i] = values->data[i] * scale;
    TRY(unmap(scaled));
    tensor = scaled;
  }
  int32_t result = mesh_reply_tensor(name, sizeof name - 1, tensor);
  if (result < 0) return host_failure(result, "answering");
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "outputs", list);
  yyjson_mut_arr_add_str(doc, list, name);
  return reply_json(doc);
}

int32_t embed(const struct fields *config, const struct fields *params, const struct picture *picture) {
  struct fields own;
  struct values values;
  const char *output = "embedding", *format = "json";
  bool normalize = false;
  int32_t tensor;
  TRY(fields_within(config, "embed", &own));
  TRY(field_text(&own, "output", &output));
  TRY(field_bool(&own, "normalize", &normalize));
  TRY(field_bool(params, "normalize", &normalize));
  TRY(field_text(params, "format", &format));
  bool as_tensor = strcmp(format, "tensor") == 0;
  if (!as_tensor && strcmp(format, "json") != 0) return field_error(params, "format", "json or tensor");
  TRY(run_task_graph(config, &own, picture, 1, &output, &tensor));
  TRY(read_values(tensor, output, &values));
  float scale = normalize ? unit_scale(&values) : 1;
  return as_tensor ? reply_vector(tensor, &values, scale) : reply_numbers(&values, scale);
}
