#include "parts.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "refuse.h"

/* Copies text up to the first of `ends`, in lower case if asked. */
static void take(char *into, size_t room, const char *text, const char *ends, bool lower) {
  size_t length = strcspn(text, ends);
  if (length >= room) length = room - 1;
  for (size_t i = 0; i < length; i++) into[i] = lower ? (char)tolower((unsigned char)text[i]) : text[i];
  into[length] = '\0';
}

static int32_t describe(const struct fields *info, struct part *part) {
  const char *name = "", *type = "";
  int64_t dtype = -1;
  yyjson_val *shape = NULL;
  TRY(field_text(info, "name", &name));
  TRY(field_text(info, "type", &type));
  TRY(field_bool(info, "streamed", &part->streamed));
  TRY(field_integer(info, "dtype", 0, MESH_BOOL, &dtype));
  TRY(field_list(info, "shape", &shape));
  take(part->name, sizeof part->name, name, "", false);
  take(part->type, sizeof part->type, type, "; ", true);
  part->is_tensor = dtype >= 0 && shape != NULL;
  if (!part->is_tensor) return 0;
  part->dtype = (int32_t)dtype;
  size_t rank = yyjson_arr_size(shape);
  if (rank > MESH_MAX_RANK) {
    return refuse(EINVAL, "input '%s': at most %d dimensions are taken, found %zu", part->name, MESH_MAX_RANK,
                  rank);
  }
  part->rank = (int32_t)rank;
  for (size_t i = 0; i < rank; i++) part->dims[i] = yyjson_get_sint(yyjson_arr_get(shape, i));
  return 0;
}

int32_t read_part(int32_t index, struct part *part) {
  char text[2048];
  memset(part, 0, sizeof *part);
  part->index = index;
  int32_t size = mesh_part_info(index, text, sizeof text);
  if (size < 0) return host_failure(size, "reading the request");
  if ((size_t)size > sizeof text) return refuse(EINVAL, "input %d: its name and type are too long", index);
  yyjson_doc *doc = yyjson_read(text, (size_t)size, 0);
  struct fields info = {yyjson_doc_get_root(doc), "part", true};
  int32_t result = doc == NULL ? fault("part %d: its description isn't JSON", index) : describe(&info, part);
  yyjson_doc_free(doc);
  return result;
}

bool is_params(const struct part *part) {
  return strcmp(part->name, "params") == 0 && strcmp(part->type, "application/json") == 0;
}

int32_t request_params(struct fields *params) {
  static yyjson_doc *parsed; /* lives until the instance's next request */
  yyjson_doc_free(parsed);
  parsed = NULL;
  *params = (struct fields){NULL, "params", true};
  for (int32_t index = 0; index < mesh_part_count(); index++) {
    struct part part;
    struct bytes bytes;
    TRY(read_part(index, &part));
    if (!is_params(&part)) continue;
    TRY(part_bytes(&part, &bytes));
    yyjson_read_err error;
    parsed = yyjson_read_opts((char *)(uintptr_t)bytes.data, bytes.size, 0, NULL, &error);
    if (parsed == NULL) return refuse(EINVAL, "params: %s at byte %zu", error.msg, error.pos);
    params->object = yyjson_doc_get_root(parsed);
    if (!yyjson_is_obj(params->object)) return refuse(EINVAL, "params: expected a JSON object");
    return 0;
  }
  return 0;
}

static bool says_nothing(const char *type) {
  return *type == '\0' || strcmp(type, "application/octet-stream") == 0;
}

int32_t only_part(const char *family, const char *wanted, struct part *part) {
  int found = 0;
  for (int32_t index = 0; index < mesh_part_count(); index++) {
    struct part other;
    TRY(read_part(index, &other));
    if (is_params(&other) || other.is_tensor) continue;
    *part = other;
    found++;
  }
  if (found != 1) return refuse(EINVAL, "expected one input, %s, found %d", wanted, found);
  if (strncmp(part->type, family, strlen(family)) != 0 && !says_nothing(part->type)) {
    return refuse(ENOTSUP, "expected %s, found %s", wanted, part->type);
  }
  return 0;
}

int32_t part_bytes(const struct part *part, struct bytes *bytes) {
  *bytes = (struct bytes){NULL, 0};
  for (;;) {
    int32_t more = mesh_part_wait(part->index, (int32_t)bytes->size);
    if (more < 0) return host_failure(more, "reading the request");
    bytes->size += (size_t)more;
    if (more == 0 || !part->streamed) break;
  }
  if (bytes->size == 0) return 0;
  int32_t data = mesh_part_map(part->index);
  if (data == -ENOMEM) {
    return refuse(E2BIG, "input '%s' has %zu bytes, the sandbox has no room for them", part->name, bytes->size);
  }
  if (data < 0) return host_failure(data, "reading the request");
  bytes->data = (const uint8_t *)(uintptr_t)(uint32_t)data;
  return 0;
}
