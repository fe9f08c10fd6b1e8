#include "options.h"

#include <errno.h>
#include <string.h>

#include "refuse.h"

#define HOTTEST 100
#define COOLEST 0.001 /* what is cooler is greedy */
#define NARROWEST 1e-6
#define MOST_TOP_LOGPROBS 20

static int32_t read_sampling(const struct fields *of, struct options *options) {
  TRY(field_number(of, "temperature", 0, HOTTEST, &options->temperature));
  TRY(field_number(of, "top_p", 0, 1, &options->top_p));
  TRY(field_integer(of, "top_k", 0, INT32_MAX, &options->top_k));
  TRY(field_integer(of, "max_tokens", 1, INT32_MAX, &options->max_tokens));
  return field_integer(of, "max_completion_tokens", 1, INT32_MAX, &options->max_tokens);
}

static int32_t read_seed(const struct fields *params, struct options *options) {
  yyjson_val *seed = yyjson_obj_get(params->object, "seed");
  if (seed == NULL || yyjson_is_null(seed)) return 0;
  if (!yyjson_is_int(seed)) return field_error(params, "seed", "a whole number");
  options->seeded = true;
  options->seed = yyjson_get_uint(seed); /* a negative one in two's complement */
  return 0;
}

/* `logprobs`: true, or how many of the likeliest tokens; the latter also as `top_logprobs`. */
static int32_t read_logprobs(const struct fields *params, struct options *options) {
  yyjson_val *asked = yyjson_obj_get(params->object, "logprobs");
  if (yyjson_is_bool(asked)) {
    options->logprobs = yyjson_get_bool(asked);
  } else {
    TRY(field_integer(params, "logprobs", 0, MOST_TOP_LOGPROBS, &options->top_logprobs));
    options->logprobs = yyjson_is_int(asked);
  }
  return field_integer(params, "top_logprobs", 0, MOST_TOP_LOGPROBS, &options->top_logprobs);
}

static int32_t add_stop(const struct fields *params, yyjson_val *stop, struct options *options) {
  const char *text = yyjson_get_str(stop);
  if (text == NULL || strlen(text) != yyjson_get_len(stop) || options->stop_count == MOST_STOPS) {
    return field_error(params, "stop", "a string, or a list of at most 16 strings");
  }
  if (*text != '\0') options->stops[options->stop_count++] = text;
  return 0;
}

static int32_t read_stops(const struct fields *params, struct options *options) {
  yyjson_val *stop = yyjson_obj_get(params->object, "stop"), *entry;
  size_t index, count;
  if (stop == NULL || yyjson_is_null(stop)) return 0;
  if (!yyjson_is_arr(stop)) return add_stop(params, stop, options);
  yyjson_arr_foreach(stop, index, count, entry) TRY(add_stop(params, entry, options));
  return 0;
}

int32_t read_options(const struct fields *config, const struct fields *params, struct options *options) {
  *options = (struct options){.top_p = 1};
  TRY(field_text(config, "system", &options->system));
  TRY(field_text(params, "system", &options->system));
  TRY(read_sampling(config, options));
  TRY(read_sampling(params, options));
  TRY(read_seed(params, options));
  TRY(read_logprobs(params, options));
  TRY(read_stops(params, options));
  TRY(field_bool(params, "stream", &options->stream));
  TRY(field_text(params, "prompt", &options->prompt));
  return field_list(params, "messages", &options->messages);
}

char *sampling_json(const struct options *options, size_t *length) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc);
  yyjson_mut_doc_set_root(doc, root);
  double temperature = options->temperature < COOLEST ? 0 : options->temperature;
  yyjson_mut_obj_add_real(doc, root, "temperature", temperature);
  yyjson_mut_obj_add_real(doc, root, "top_p", options->top_p < NARROWEST ? NARROWEST : options->top_p);
  yyjson_mut_obj_add_int(doc, root, "top_k", options->top_k);
  if (options->seeded) yyjson_mut_obj_add_uint(doc, root, "seed", options->seed);
  if (options->logprobs) {
    /* The token's own comes only with some of the likeliest. */
    int64_t count = options->top_logprobs > 0 ? options->top_logprobs : 1;
    yyjson_mut_obj_add_int(doc, root, "logprobs", count);
  }
  char *text = yyjson_mut_write(doc, 0, length);
  yyjson_mut_doc_free(doc);
  return text;
}
