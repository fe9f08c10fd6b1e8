/* What is done with a picture. */
#ifndef VISION_TASKS_H
#define VISION_TASKS_H

#include "json.h"
#include "picture.h"

/* Each takes the unit's configuration, the request's options and a decoded picture, and replies. */
typedef int32_t task(const struct fields *config, const struct fields *params, const struct picture *picture);

task classify, embed, detect;

/* Runs the named task's graph on the picture: preprocessing as `[preprocess]` says (or `preprocess` within
 * the task's own section), then the graph that `graph` names there or at the top. Gives a new tensor for
 * each named output; NULL stands for the first. */
int32_t run_task_graph(const struct fields *config, const struct fields *own, const struct picture *picture,
                       size_t count, const char *const *names, int32_t *outputs);

/* The arguments of image_preprocess for a task. */
int32_t preprocess_of(const struct fields *config, const struct fields *own, struct fields *preprocess);

/* What makes scores of a graph's raw outputs. */
enum activation { NONE, SOFTMAX, SIGMOID };
int32_t activation_of(const struct fields *own, enum activation *activation);

/* Applies it to a row of values, in place. */
void activate(enum activation activation, float *values, size_t count);

/* The label of a class, or its number where there are no more labels. */
yyjson_mut_val *label_of(yyjson_mut_doc *doc, yyjson_val *labels, size_t index);

/* Without a picture: the tensor parts are the inputs of the graph that `infer.graph` (or `graph`) names. */
int32_t infer(const struct fields *config, const struct fields *params);

#endif
