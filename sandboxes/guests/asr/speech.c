#include "speech.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"

#define WINDOW_SECONDS 30
#define TAIL_SECONDS 2
#define MOST_TOKENS 224 /* half of whisper's context, as its own decoder has it */

static int32_t read_prompt(const struct fields *config, struct speech *speech) {
  yyjson_val *prompt = NULL, *token;
  size_t index, count;
  TRY(field_list(config, "prompt", &prompt));
  yyjson_arr_foreach(prompt, index, count, token) {
    if (!yyjson_is_uint(token) || index == MOST_PROMPT) return field_error(config, "prompt", "a list of token ids");
    speech->prompt[speech->prompt_count++] = (int32_t)yyjson_get_uint(token);
  }
  return speech->prompt_count == 0 ? fault("config.prompt is missing: the tokens that begin a transcript") : 0;
}

/* Greedy, without the tokens of the named lists, and without those above max_id. */
static int32_t sampling_of(const struct fields *config, const char *also, bool judged, struct sampling *sampling) {
  yyjson_val *suppress = NULL, *more = NULL, *token;
  int64_t max_id = -1;
  size_t index, count;
  TRY(field_list(config, "suppress", &suppress));
  if (also != NULL) TRY(field_list(config, also, &more));
  TRY(field_integer(config, "max_id", 0, INT32_MAX, &max_id));
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc), *list = yyjson_mut_arr(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_val(doc, root, "suppress", list);
  yyjson_arr_foreach(suppress, index, count, token) yyjson_mut_arr_append(list, yyjson_val_mut_copy(doc, token));
  yyjson_arr_foreach(more, index, count, token) yyjson_mut_arr_append(list, yyjson_val_mut_copy(doc, token));
  if (max_id >= 0) yyjson_mut_obj_add_int(doc, root, "max_id", max_id);
  if (judged) yyjson_mut_obj_add_int(doc, root, "logprobs", 1);
  sampling->json = yyjson_mut_write(doc, 0, &sampling->size);
  yyjson_mut_doc_free(doc);
  return sampling->json == NULL ? -ENOMEM : 0;
}

static int32_t open_graphs(const struct fields *config, struct speech *speech) {
  const char *encoder = "encoder", *decoder = "decoder";
  TRY(field_text(config, "encoder", &encoder));
  TRY(field_text(config, "decoder", &decoder));
  TRY(graph_open(encoder, &speech->encoder));
  TRY(graph_open(decoder, &speech->decoder));
  TRY(field_integer(&speech->decoder.fields, "context", 1, INT32_MAX, &speech->context));
  TRY(field_integer(&speech->decoder.fields, "vocabulary", 1, INT32_MAX, &speech->vocabulary));
  TRY(field_list(&speech->decoder.fields, "bound", &speech->bound));
  if (yyjson_arr_size(speech->bound) > MOST_TENSORS) {
    return fault("graph '%s' has over %d bound inputs", decoder, MOST_TENSORS);
  }
  if (speech->context <= (int64_t)speech->prompt_count) {
    return fault("graph '%s' has no room for a transcript", decoder);
  }
  if (speech->no_speech >= speech->vocabulary) return fault("config.no_speech is no token of graph '%s'", decoder);
  return 0;
}

static int32_t read_config(const struct fields *config, struct speech *speech) {
  int64_t seconds = WINDOW_SECONDS;
  TRY(field_integer(config, "window_seconds", 1, 600, &seconds));
  TRY(field_number(config, "tail_seconds", 0, 600, &speech->tail_seconds));
  TRY(field_integer(config, "max_tokens", 1, INT32_MAX, &speech->most_tokens));
  TRY(field_integer(config, "end", 0, INT32_MAX, &speech->end));
  TRY(field_integer(config, "no_speech", 0, INT32_MAX, &speech->no_speech));
  if (speech->end < 0) return fault("config.end is missing: the token that ends a transcript");
  speech->window = (int32_t)seconds * RATE;
  TRY(read_prompt(config, speech));
  for (int judged = 0; judged < 2; judged++) {
    TRY(sampling_of(config, "suppress_begin", judged, &speech->first[judged]));
    TRY(sampling_of(config, NULL, judged, &speech->next[judged]));
  }
  return open_graphs(config, speech);
}

int32_t speech_open(const struct fields *config, struct speech *speech) {
  *speech = (struct speech){.end = -1, .no_speech = -1, .most_tokens = MOST_TOKENS, .tail_seconds = TAIL_SECONDS};
  int32_t result = read_config(config, speech);
  if (result < 0) speech_close(speech);
  return result;
}

void speech_close(struct speech *speech) {
  graph_close(&speech->encoder);
  graph_close(&speech->decoder);
  for (int judged = 0; judged < 2; judged++) {
    free(speech->first[judged].json);
    free(speech->next[judged].json);
  }
}
