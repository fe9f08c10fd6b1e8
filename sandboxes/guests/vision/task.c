#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "refuse.h"
#include "tasks.h"
#include "tensor.h"

int32_t preprocess_of(const struct fields *config, const struct fields *own, struct fields *preprocess) {
  TRY(fields_within(own, "preprocess", preprocess));
  if (preprocess->object == NULL) TRY(fields_within(config, "preprocess", preprocess));
  if (preprocess->object == NULL) return fault("config.preprocess is missing: the arguments of image_preprocess");
  return 0;
}

static int32_t preprocess_picture(yyjson_val *args, int32_t picture, int32_t *input) {
  size_t size;
  char *text = yyjson_val_write(args, 0, &size);
  if (text == NULL) return -ENOMEM;
  int32_t result = kernel_run_one("image_preprocess", text, size, picture, input);
  free(text);
  return result;
}

int32_t run_task_graph(const struct fields *config, const struct fields *own, const struct picture *picture,
                       size_t count, const char *const *names, int32_t *outputs) {
  const char *name = NULL;
  struct fields preprocess;
  struct graph graph;
  int32_t input;
  TRY(field_text(config, "graph", &name));
  TRY(field_text(own, "graph", &name));
  if (name == NULL) return fault("config.graph is missing: the name of a graph of this image");
  TRY(preprocess_of(config, own, &preprocess));
  TRY(preprocess_picture(preprocess.object, picture->tensor, &input));
  drop_tensor(picture->tensor);
  TRY(graph_open(name, &graph));
  int32_t result = graph_run_one(&graph, input, count, names, outputs);
  graph_close(&graph);
  drop_tensor(input);
  return result;
}

int32_t activation_of(const struct fields *own, enum activation *activation) {
  const char *name = "none";
  TRY(field_text(own, "activation", &name));
  if (strcmp(name, "none") == 0) {
    *activation = NONE;
  } else if (strcmp(name, "softmax") == 0) {
    *activation = SOFTMAX;
  } else if (strcmp(name, "sigmoid") == 0) {
    *activation = SIGMOID;
  } else {
    return field_error(own, "activation", "none, softmax or sigmoid");
  }
  return 0;
}

void activate(enum activation activation, float *values, size_t count) {
  float peak = -INFINITY, sum = 0;
  if (activation == NONE) return;
  if (activation == SIGMOID) {
    for (size_t i = 0; i < count; i++) values[i] = 1 / (1 + expf(-values[i]));
    return;
  }
  for (size_t i = 0; i < count; i++) peak = fmaxf(peak, values[i]);
  for (size_t i = 0; i < count; i++) sum += values[i] = expf(values[i] - peak);
  for (size_t i = 0; i < count; i++) values[i] /= sum;
}

yyjson_mut_val *label_of(yyjson_mut_doc *doc, yyjson_val *labels, size_t index) {
  yyjson_val *label = yyjson_arr_get(labels, index);
  if (yyjson_is_str(label)) return yyjson_mut_strn(doc, yyjson_get_str(label), yyjson_get_len(label));
  char number[24];
  snprintf(number, sizeof number, "%zu", index);
  return yyjson_mut_strcpy(doc, number);
}
