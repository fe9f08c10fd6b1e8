#include "boxes.h"

#include <math.h>
#include <string.h>

#include "refuse.h"

struct area {
  double top, left, height, width;
};

/* What of the picture image_preprocess reads, and what of its output that fills; see its spec. */
static void geometry(const char *mode, double crop, double rows, double columns, const struct picture *picture,
                     struct area *source, struct area *target) {
  double height = picture->height, width = picture->width;
  *source = (struct area){0, 0, height, width};
  *target = (struct area){0, 0, rows, columns};
  if (strcmp(mode, "crop") == 0) {
    source->height = fmax(1, floor(fmin(height, width * rows / columns) * crop));
    source->width = fmax(1, floor(fmin(width, height * columns / rows) * crop));
    source->top = floor((height - source->height) / 2);
    source->left = floor((width - source->width) / 2);
  } else if (strcmp(mode, "letterbox") == 0) {
    double scale = fmin(rows / height, columns / width);
    target->height = fmin(rows, fmax(1, nearbyint(height * scale)));
    target->width = fmin(columns, fmax(1, nearbyint(width * scale)));
    target->top = floor((rows - target->height) / 2);
    target->left = floor((columns - target->width) / 2);
  }
}

static int32_t order_of(const struct fields *own, struct box_space *space) {
  static const char *const names[] = {"xyxy", "yxyx", "xywh", "cxcywh"};
  const char *name = names[0];
  TRY(field_text(own, "box_format", &name));
  for (int i = 0; i < 4; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    space->order = i;
    return 0;
  }
  return field_error(own, "box_format", "xyxy, yxyx, xywh or cxcywh");
}

int32_t box_space_of(const struct fields *own, const struct fields *preprocess, const struct picture *picture,
                     struct box_space *space) {
  struct area source, target;
  const char *mode = "crop";
  double crop = 0.875;
  bool normalized = true;
  yyjson_val *size = NULL;
  TRY(order_of(own, space));
  TRY(field_bool(own, "normalized", &normalized));
  TRY(field_text(preprocess, "mode", &mode));
  TRY(field_number(preprocess, "crop", 0.001, 1, &crop));
  TRY(field_list(preprocess, "size", &size));
  double rows = yyjson_get_num(yyjson_arr_get(size, 0)), columns = yyjson_get_num(yyjson_arr_get(size, 1));
  if (!(rows >= 1 && columns >= 1)) return field_error(preprocess, "size", "[height, width]");
  geometry(mode, crop, rows, columns, picture, &source, &target);
  space->scale_x = source.width / target.width * (normalized ? columns : 1);
  space->scale_y = source.height / target.height * (normalized ? rows : 1);
  space->shift_x = source.left - target.left * source.width / target.width;
  space->shift_y = source.top - target.top * source.height / target.height;
  space->width = picture->width;
  space->height = picture->height;
  return 0;
}

static float within(double value, double most) {
  if (!(value >= 0)) return 0; /* what is no number, too */
  return (float)(value > most ? most : value);
}

struct box box_in_picture(const struct box_space *space, const float *n) {
  float x0 = n[0], y0 = n[1], x1 = n[2], y1 = n[3];
  if (space->order == YXYX) {
    x0 = n[1], y0 = n[0], x1 = n[3], y1 = n[2];
  } else if (space->order == XYWH) {
    x1 = x0 + n[2], y1 = y0 + n[3];
  } else if (space->order == CXCYWH) {
    x0 = n[0] - n[2] / 2, x1 = n[0] + n[2] / 2;
    y0 = n[1] - n[3] / 2, y1 = n[1] + n[3] / 2;
  }
  return (struct box){
      within(x0 * space->scale_x + space->shift_x, space->width),
      within(y0 * space->scale_y + space->shift_y, space->height),
      within(x1 * space->scale_x + space->shift_x, space->width),
      within(y1 * space->scale_y + space->shift_y, space->height),
  };
}

static float area(struct box box) { return fmaxf(0, box.x1 - box.x0) * fmaxf(0, box.y1 - box.y0); }

float overlap(struct box a, struct box b) {
  struct box both = {fmaxf(a.x0, b.x0), fmaxf(a.y0, b.y0), fminf(a.x1, b.x1), fminf(a.y1, b.y1)};
  float shared = area(both), joint = area(a) + area(b) - shared;
  return joint > 0 ? shared / joint : 0;
}
