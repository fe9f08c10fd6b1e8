#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "mesh_v1.h"
#include "refuse.h"

int32_t config_fields(struct fields *config) {
  static yyjson_doc *parsed;
  if (parsed == NULL) {
    int32_t size = mesh_config(NULL, 0);
    if (size < 0) return host_failure(size, "reading the configuration");
    char *text = malloc((size_t)size + 1);
    if (text == NULL) return -ENOMEM;
    mesh_config(text, size);
    yyjson_read_err error;
    parsed = yyjson_read_opts(text, (size_t)size, 0, NULL, &error);
    free(text);
    if (parsed == NULL) return fault("config: %s at byte %zu", error.msg, error.pos);
  }
  *config = (struct fields){yyjson_doc_get_root(parsed), "config", false};
  if (!yyjson_is_obj(config->object)) return fault("config: expected a JSON object");
  return 0;
}

int32_t field_error(const struct fields *of, const char *name, const char *expected) {
  char found[64];
  yyjson_val *value = yyjson_obj_get(of->object, name);
  size_t length;
  char *written = yyjson_val_write(value, 0, &length);
  if (written == NULL) return -ENOMEM;
  if (length < sizeof found) {
    memcpy(found, written, length + 1);
  } else {
    memcpy(found, yyjson_get_type_desc(value), strlen(yyjson_get_type_desc(value)) + 1);
  }
  free(written);
  if (of->of_client) return refuse(EINVAL, "%s.%s: expected %s, found %s", of->where, name, expected, found);
  return fault("%s.%s: expected %s, found %s", of->where, name, expected, found);
}

/* The value, or NULL if it is absent or null. */
static yyjson_val *present(const struct fields *of, const char *name) {
  yyjson_val *value = yyjson_obj_get(of->object, name);
  return yyjson_is_null(value) ? NULL : value;
}

int32_t fields_within(const struct fields *of, const char *name, struct fields *within) {
  yyjson_val *value = present(of, name);
  *within = (struct fields){value, name, of->of_client};
  if (value != NULL && !yyjson_is_obj(value)) return field_error(of, name, "an object");
  return 0;
}

int32_t field_integer(const struct fields *of, const char *name, int64_t least, int64_t most, int64_t *value) {
  yyjson_val *found = present(of, name);
  if (found == NULL) return 0;
  bool fits = yyjson_is_int(found) && !(yyjson_is_uint(found) && yyjson_get_uint(found) > INT64_MAX);
  if (!fits || yyjson_get_sint(found) < least || yyjson_get_sint(found) > most) {
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", least, most);
    return field_error(of, name, expected);
  }
  *value = yyjson_get_sint(found);
  return 0;
}

int32_t field_number(const struct fields *of, const char *name, double least, double most, double *value) {
  yyjson_val *found = present(of, name);
  if (found == NULL) return 0;
  double number = yyjson_get_num(found);
  if (!yyjson_is_num(found) || !(number >= least && number <= most)) {
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    return field_error(of, name, expected);
  }
  *value = number;
  return 0;
}

int32_t field_bool(const struct fields *of, const char *name, bool *value) {
  yyjson_val *found = present(of, name);
  if (found == NULL) return 0;
  if (!yyjson_is_bool(found)) return field_error(of, name, "true or false");
  *value = yyjson_get_bool(found);
  return 0;
}

int32_t field_text(const struct fields *of, const char *name, const char **value) {
  yyjson_val *found = present(of, name);
  if (found == NULL) return 0;
  if (!yyjson_is_str(found) || strlen(yyjson_get_str(found)) != yyjson_get_len(found)) {
    return field_error(of, name, "a string");
  }
  *value = yyjson_get_str(found);
  return 0;
}

int32_t field_list(const struct fields *of, const char *name, yyjson_val **value) {
  yyjson_val *found = present(of, name);
  if (found == NULL) return 0;
  if (!yyjson_is_arr(found)) return field_error(of, name, "a list");
  *value = found;
  return 0;
}

yyjson_mut_val *short_real(yyjson_mut_doc *doc, double value) {
  yyjson_mut_val *number = yyjson_mut_real(doc, value);
  if (number != NULL) yyjson_mut_set_fp_to_float(number, true);
  return number;
}

typedef int32_t say(const void *json, int32_t length);

static int32_t give(yyjson_mut_doc *doc, say *say) {
  size_t length = 0;
  char *text = yyjson_mut_write(doc, YYJSON_WRITE_INF_AND_NAN_AS_NULL, &length);
  yyjson_mut_doc_free(doc);
  if (text == NULL) return -ENOMEM;
  int32_t result = say(text, (int32_t)length);
  free(text);
  return result < 0 ? host_failure(result, "answering") : 0;
}

int32_t reply_json(yyjson_mut_doc *doc) { return give(doc, mesh_reply); }
int32_t emit_json(yyjson_mut_doc *doc) { return give(doc, mesh_emit); }
