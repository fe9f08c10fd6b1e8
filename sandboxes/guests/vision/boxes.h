/* Boxes of found objects: from a graph's numbers to pixels of the picture. */
#ifndef VISION_BOXES_H
#define VISION_BOXES_H

#include "json.h"
#include "picture.h"

/* Corners, in pixels of the picture. */
struct box {
  float x0, y0, x1, y1;
};

/* How a graph writes boxes, and which part of the picture its input shows. */
struct box_space {
  enum { XYXY, YXYX, XYWH, CXCYWH } order;
  double scale_x, scale_y, shift_x, shift_y; /* picture = graph · scale + shift */
  int32_t width, height;
};

/* `box_format` (xyxy, yxyx, xywh, cxcywh) and `normalized` (true: 0 to 1 over the graph's input; false: its
 * pixels) from the task's section; the rest follows from image_preprocess's arguments. */
int32_t box_space_of(const struct fields *own, const struct fields *preprocess, const struct picture *picture,
                     struct box_space *space);

/* Four numbers as the graph gave them. The result lies within the picture. */
struct box box_in_picture(const struct box_space *space, const float *numbers);

/* Intersection over union, 0 to 1. */
float overlap(struct box a, struct box b);

#endif
