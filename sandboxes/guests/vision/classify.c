#include <stdlib.h>
#include <string.h>

#include "tasks.h"
#include "refuse.h"
#include "tensor.h"

#define MOST_LABELS 1000

/* The `count` highest scores' indices, highest first; of equals the lower index first. */
static void highest(const float *scores, size_t classes, size_t *best, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < classes; i++) {
    size_t place = found;
    while (place > 0 && scores[i] > scores[best[place - 1]]) place--;
    if (place == count) continue;
    size_t moved = (found < count ? found : count - 1) - place;
    memmove(best + place + 1, best + place, moved * sizeof *best);
    best[place] = i;
    if (found < count) found++;
  }
}

static int32_t reply_labels(const float *scores, size_t classes, size_t count, yyjson_val *labels) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  size_t best[MOST_LABELS];
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "labels", list);
  highest(scores, classes, best, count);
  for (size_t i = 0; i < count; i++) {
    yyjson_mut_val *entry = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_val(doc, entry, "label", label_of(doc, labels, best[i]));
    yyjson_mut_obj_add_val(doc, entry, "score", short_real(doc, scores[best[i]]));
    yyjson_mut_obj_add_uint(doc, entry, "index", best[i]);
  }
  return reply_json(doc);
}

int32_t classify(const struct fields *config, const struct fields *params, const struct picture *picture) {
  struct fields own;
  struct values values;
  enum activation activation;
  yyjson_val *labels = NULL;
  const char *output = NULL;
  int32_t tensor;
  int64_t top_k = 5;
  TRY(fields_within(config, "classify", &own));
  TRY(field_text(&own, "output", &output));
  TRY(activation_of(&own, &activation));
  TRY(field_integer(&own, "top_k", 1, MOST_LABELS, &top_k));
  TRY(field_integer(params, "top_k", 1, MOST_LABELS, &top_k));
  TRY(field_list(config, "labels", &labels));
  TRY(run_task_graph(config, &own, picture, 1, &output, &tensor));
  TRY(read_values(tensor, output == NULL ? "scores" : output, &values));
  float *scores = malloc(values.count * sizeof(float) + 1);
  if (scores == NULL) return -ENOMEM;
  memcpy(scores, values.data, values.count * sizeof(float));
  activate(activation, scores, values.count);
  size_t count = (size_t)top_k < values.count ? (size_t)top_k : values.count;
  int32_t result = reply_labels(scores, values.count, count, labels);
  free(scores);
  return result;
}
