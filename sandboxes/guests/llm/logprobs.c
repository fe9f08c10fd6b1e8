#include "logprobs.h"

#include <errno.h>

#include "mesh_v1.h"
#include "refuse.h"
#include "utf8.h"

/* A token, its bytes, and as much of them as text can show. */
static int32_t describe(int32_t graph, int32_t token, double logprob, yyjson_mut_doc *doc, yyjson_mut_val *into) {
  char bytes[1024], text[3 * sizeof bytes];
  int32_t size = mesh_text_decode(graph, &token, 1, bytes, sizeof bytes);
  if (size < 0) return host_failure(size, "decoding a token");
  if ((size_t)size > sizeof bytes) size = sizeof bytes;
  size_t length = 0;
  for (int32_t at = 0; at < size;) {
    int step = utf8_length(bytes + at, (size_t)(size - at));
    for (int i = 0; i < (step > 0 ? step : 3); i++) text[length++] = step > 0 ? bytes[at + i] : "\xef\xbf\xbd"[i];
    at += step > 0 ? step : 1;
  }
  yyjson_mut_val *list = yyjson_mut_arr(doc);
  for (int32_t i = 0; i < size; i++) yyjson_mut_arr_add_uint(doc, list, (unsigned char)bytes[i]);
  yyjson_mut_obj_add_strncpy(doc, into, "token", text, length);
  yyjson_mut_obj_add_int(doc, into, "id", token);
  yyjson_mut_obj_add_val(doc, into, "logprob", short_real(doc, logprob));
  yyjson_mut_obj_add_val(doc, into, "bytes", list);
  return 0;
}

static int32_t fill(int32_t graph, int32_t token, yyjson_val *sampled, int64_t top, yyjson_mut_doc *doc,
                    yyjson_mut_val *entry) {
  yyjson_mut_val *list = yyjson_mut_arr(doc);
  yyjson_val *pair;
  size_t index, count;
  TRY(describe(graph, token, yyjson_get_num(yyjson_obj_get(sampled, "logprob")), doc, entry));
  yyjson_arr_foreach(yyjson_obj_get(sampled, "top"), index, count, pair) {
    if ((int64_t)index >= top) break;
    yyjson_mut_val *other = yyjson_mut_arr_add_obj(doc, list);
    int32_t id = (int32_t)yyjson_get_int(yyjson_arr_get(pair, 0));
    TRY(describe(graph, id, yyjson_get_num(yyjson_arr_get(pair, 1)), doc, other));
  }
  yyjson_mut_obj_add_val(doc, entry, "top_logprobs", list);
  return 0;
}

int32_t logprob_entry(int32_t graph, int32_t token, const char *sampled, size_t size, int64_t top,
                      yyjson_mut_doc *doc, yyjson_mut_val **entry) {
  yyjson_doc *parsed = yyjson_read(sampled, size, 0);
  if (parsed == NULL) return fault("seq_sample gave log-probabilities that aren't JSON");
  *entry = yyjson_mut_obj(doc);
  int32_t result = *entry == NULL ? -ENOMEM : fill(graph, token, yyjson_doc_get_root(parsed), top, doc, *entry);
  yyjson_doc_free(parsed);
  return result;
}
