/* JSON in and out: the unit's configuration, the request's options, chunks and replies. */
#ifndef GUEST_JSON_H
#define GUEST_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "yyjson.h"

/* A JSON object whose fields are read with checks. A field that is absent or null leaves the value as it
 * was. One of the wrong kind refuses the request where the object came from the client, and is a fault
 * where it came from the image. */
struct fields {
  yyjson_val *object; /* NULL: no field is there */
  const char *where;  /* how messages name it */
  bool of_client;
};

/* The unit's configuration, parsed once in an instance's life. */
int32_t config_fields(struct fields *config);

/* The object in a field of `of`; no fields if it is absent. */
int32_t fields_within(const struct fields *of, const char *name, struct fields *within);

int32_t field_integer(const struct fields *of, const char *name, int64_t least, int64_t most, int64_t *value);
int32_t field_number(const struct fields *of, const char *name, double least, double most, double *value);
int32_t field_bool(const struct fields *of, const char *name, bool *value);
/* The text lives as long as the document; it has no NUL inside. */
int32_t field_text(const struct fields *of, const char *name, const char **value);
int32_t field_list(const struct fields *of, const char *name, yyjson_val **value);

/* The error of a field that isn't `expected`. */
int32_t field_error(const struct fields *of, const char *name, const char *expected);

/* A number that is written with the digits a float has, not a double's. */
yyjson_mut_val *short_real(yyjson_mut_doc *doc, double value);

/* Writes the document, which it frees, as the reply or as a chunk. Numbers that are none become null. */
int32_t reply_json(yyjson_mut_doc *doc);
int32_t emit_json(yyjson_mut_doc *doc);

#endif
