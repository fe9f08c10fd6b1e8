/* The generic vision unit: a picture is decoded here, in the sandbox, and classified, embedded or searched for
 * objects, as the unit's configuration and the request's options say. See docs/guests.md. */
#include <string.h>

#include "mesh_v1.h"
#include "parts.h"
#include "picture.h"
#include "refuse.h"
#include "tasks.h"
#include "tensor.h"

MESH_UNIT

#define MAX_PIXELS 40000000

static const struct {
  const char *name;
  task *run;
} tasks[] = {{"classify", classify}, {"embed", embed}, {"detect", detect}};

static task *task_named(const char *name) {
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
    if (strcmp(tasks[i].name, name) == 0) return tasks[i].run;
  }
  return NULL;
}

/* The task that the request asks for, among those the unit offers, or the unit's own. */
static int32_t choose_task(const struct fields *config, const struct fields *params, task **chosen) {
  const char *own = "classify", *asked = NULL;
  yyjson_val *offered = NULL, *entry;
  size_t index, count;
  TRY(field_text(config, "task", &own));
  TRY(field_list(config, "tasks", &offered));
  TRY(field_text(params, "task", &asked));
  if (asked == NULL) asked = own;
  bool allowed = strcmp(asked, own) == 0;
  yyjson_arr_foreach(offered, index, count, entry) allowed = allowed || yyjson_equals_str(entry, asked);
  if (!allowed) return refuse(EINVAL, "this unit has no task '%s'", asked);
  *chosen = task_named(asked);
  return *chosen == NULL ? fault("config: there is no task '%s'", asked) : 0;
}

static int32_t has_tensors(bool *found) {
  *found = false;
  for (int32_t index = 0; index < mesh_part_count(); index++) {
    struct part part;
    TRY(read_part(index, &part));
    *found = *found || part.is_tensor;
  }
  return 0;
}

static int32_t handle(void) {
  struct fields config, params;
  struct part part;
  struct bytes bytes;
  struct picture picture;
  task *run;
  bool tensors;
  int64_t max_pixels = MAX_PIXELS;
  TRY(config_fields(&config));
  TRY(request_params(&params));
  TRY(has_tensors(&tensors));
  if (tensors) return infer(&config, &params);
  TRY(choose_task(&config, &params, &run));
  TRY(field_integer(&config, "max_pixels", 1, INT32_MAX, &max_pixels));
  TRY(only_part("image/", "a picture (JPEG, PNG or BMP)", &part));
  TRY(part_bytes(&part, &bytes));
  TRY(decode_picture(bytes, max_pixels, &picture));
  return run(&config, &params, &picture);
}

int32_t mesh_handle(void) {
  int32_t result = handle();
  end_request();
  return result;
}
