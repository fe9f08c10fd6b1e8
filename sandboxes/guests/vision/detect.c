#include <stdlib.h>

#include "boxes.h"
#include "refuse.h"
#include "tasks.h"
#include "tensor.h"

/* Of so many at most, the likeliest, overlaps are compared. */
#define MOST_CANDIDATES 2048

struct found {
  struct box box;
  float score;
  uint32_t label, anchor;
};

struct options {
  double score, iou;
  int64_t most, background;
  enum activation activation;
};

static int32_t read_options(const struct fields *own, const struct fields *params, struct options *options) {
  *options = (struct options){.score = 0.5, .iou = 0.5, .most = 100, .background = -1};
  TRY(field_number(own, "score_threshold", 0, 1, &options->score));
  TRY(field_number(own, "iou_threshold", 0, 1, &options->iou));
  TRY(field_integer(own, "max_objects", 1, MOST_CANDIDATES, &options->most));
  TRY(field_integer(own, "background", 0, INT32_MAX, &options->background));
  TRY(field_number(params, "score_threshold", 0, 1, &options->score));
  TRY(field_number(params, "iou_threshold", 0, 1, &options->iou));
  TRY(field_integer(params, "max_objects", 1, MOST_CANDIDATES, &options->most));
  return activation_of(own, &options->activation);
}

/* Higher scores first; of equals the earlier anchor, then the lower label. */
static int by_score(const void *left, const void *right) {
  const struct found *a = left, *b = right;
  if (a->score != b->score) return a->score < b->score ? 1 : -1;
  if (a->anchor != b->anchor) return a->anchor < b->anchor ? -1 : 1;
  return a->label < b->label ? -1 : a->label > b->label;
}

/* Adds a candidate. When the room is used up, the worse half goes. */
static size_t keep(struct found *found, size_t count, struct found candidate) {
  if (count == 2 * MOST_CANDIDATES) {
    qsort(found, count, sizeof *found, by_score);
    count = MOST_CANDIDATES;
  }
  found[count] = candidate;
  return count + 1;
}

static size_t candidates(const struct values *boxes, const struct values *scores, const struct options *options,
                         const struct box_space *space, float *row, struct found *found) {
  size_t anchors = boxes->count / 4, classes = scores->count / anchors, count = 0;
  for (size_t anchor = 0; anchor < anchors; anchor++) {
    for (size_t i = 0; i < classes; i++) row[i] = scores->data[anchor * classes + i];
    activate(options->activation, row, classes);
    for (size_t label = 0; label < classes; label++) {
      if ((int64_t)label == options->background || !(row[label] >= options->score)) continue;
      struct box box = box_in_picture(space, boxes->data + 4 * anchor);
      count = keep(found, count, (struct found){box, row[label], (uint32_t)label, (uint32_t)anchor});
    }
  }
  qsort(found, count, sizeof *found, by_score);
  return count < MOST_CANDIDATES ? count : MOST_CANDIDATES;
}

/* Non-maximum suppression: of boxes with the same label that overlap by more than `iou`, the likeliest. */
static size_t suppress(struct found *found, size_t count, double iou, size_t most) {
  size_t kept = 0;
  for (size_t i = 0; i < count && kept < most; i++) {
    bool hidden = false;
    for (size_t j = 0; j < kept && !hidden; j++) {
      hidden = found[j].label == found[i].label && overlap(found[j].box, found[i].box) > iou;
    }
    if (!hidden) found[kept++] = found[i];
  }
  return kept;
}

static int32_t reply_objects(const struct found *found, size_t count, yyjson_val *labels,
                             const struct box_space *space) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "objects", list);
  for (size_t i = 0; i < count; i++) {
    yyjson_mut_val *entry = yyjson_mut_arr_add_obj(doc, list), *box = yyjson_mut_arr(doc);
    const float corners[] = {found[i].box.x0, found[i].box.y0, found[i].box.x1, found[i].box.y1};
    for (int c = 0; c < 4; c++) yyjson_mut_arr_append(box, short_real(doc, corners[c]));
    yyjson_mut_obj_add_val(doc, entry, "label", label_of(doc, labels, found[i].label));
    yyjson_mut_obj_add_val(doc, entry, "score", short_real(doc, found[i].score));
    yyjson_mut_obj_add_val(doc, entry, "box", box);
    yyjson_mut_obj_add_uint(doc, entry, "index", found[i].label);
  }
  yyjson_mut_obj_add_int(doc, root, "width", space->width);
  yyjson_mut_obj_add_int(doc, root, "height", space->height);
  return reply_json(doc);
}

static int32_t search(const struct values *boxes, const struct values *scores, const struct options *options,
                      const struct box_space *space, yyjson_val *labels) {
  size_t anchors = boxes->count / 4, count = 0;
  if (boxes->count % 4 != 0 || (anchors > 0 && scores->count % anchors != 0)) {
    return fault("detect: %zu numbers of boxes and %zu scores don't go together", boxes->count, scores->count);
  }
  struct found *found = malloc(2 * MOST_CANDIDATES * sizeof *found);
  float *row = malloc(anchors > 0 ? scores->count / anchors * sizeof *row + 1 : 1);
  if (found == NULL || row == NULL) return -ENOMEM;
  if (anchors > 0) count = candidates(boxes, scores, options, space, row, found);
  count = suppress(found, count, options->iou, (size_t)options->most);
  int32_t result = reply_objects(found, count, labels, space);
  free(found);
  free(row);
  return result;
}

int32_t detect(const struct fields *config, const struct fields *params, const struct picture *picture) {
  struct fields own, preprocess;
  struct options options;
  struct box_space space;
  struct values boxes, scores;
  yyjson_val *labels = NULL;
  const char *names[] = {"boxes", "scores"};
  int32_t tensors[2];
  TRY(fields_within(config, "detect", &own));
  TRY(field_text(&own, "boxes", &names[0]));
  TRY(field_text(&own, "scores", &names[1]));
  TRY(field_list(config, "labels", &labels));
  TRY(field_list(&own, "labels", &labels));
  TRY(read_options(&own, params, &options));
  TRY(preprocess_of(config, &own, &preprocess));
  TRY(box_space_of(&own, &preprocess, picture, &space));
  TRY(run_task_graph(config, &own, picture, 2, names, tensors));
  TRY(read_values(tensors[0], names[0], &boxes));
  TRY(read_values(tensors[1], names[1], &scores));
  return search(&boxes, &scores, &options, &space, labels);
}
