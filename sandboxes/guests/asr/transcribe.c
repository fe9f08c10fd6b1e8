#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"
#include "repetition.h"
#include "speech.h"
#include "tensor.h"

struct transcript {
  int32_t *tokens;
  size_t count;
  bool sound; /* it came to an end by itself, and says something */
};

/* What the encoder makes of the samples with silence up to `context` samples: one tensor for each of the
 * decoder's bound inputs. */
static int32_t encode(const struct speech *speech, int32_t samples, int32_t context, int32_t *bound) {
  const char *names[MOST_TENSORS];
  size_t index, count;
  yyjson_val *name;
  int32_t mel;
  yyjson_arr_foreach(speech->bound, index, count, name) names[index] = yyjson_get_str(name);
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *args = yyjson_mut_obj(doc);
  yyjson_mut_obj_add_int(doc, args, "context_samples", context);
  size_t size;
  char *text = yyjson_mut_val_write(args, 0, &size);
  yyjson_mut_doc_free(doc);
  if (text == NULL) return -ENOMEM;
  int32_t result = kernel_run_one("logmel", text, size, samples, &mel);
  free(text);
  TRY(result);
  TRY(graph_run_one(&speech->encoder, mel, count, names, bound));
  drop_tensor(mel);
  return 0;
}

static int32_t decode(const struct speech *speech, int32_t sequence, int64_t most, struct transcript *transcript) {
  int32_t result = mesh_seq_feed(sequence, speech->prompt, (int32_t)speech->prompt_count, 0);
  while (result >= 0) {
    bool first = transcript->count == 0;
    int32_t token = mesh_seq_sample(sequence, first ? speech->first : speech->next,
                                    (int32_t)(first ? speech->first_size : speech->next_size), NULL, 0);
    if (token < 0) return host_failure(token, "sampling");
    if (token == speech->end) {
      transcript->sound = transcript->count > 0;
      return 0;
    }
    transcript->tokens[transcript->count++] = token;
    size_t sensible = without_loop(transcript->tokens, transcript->count);
    if (sensible < transcript->count || (int64_t)transcript->count == most) {
      transcript->count = sensible;
      return 0;
    }
    result = mesh_seq_feed(sequence, &token, 1, 0);
  }
  return host_failure(result, "decoding speech");
}

static int32_t attempt(const struct speech *speech, int32_t samples, int32_t context, struct transcript *transcript) {
  int32_t bound[MOST_TENSORS];
  size_t count = yyjson_arr_size(speech->bound);
  int64_t most = speech->context - (int64_t)speech->prompt_count;
  if (speech->most_tokens < most) most = speech->most_tokens;
  transcript->count = 0;
  transcript->sound = false;
  TRY(encode(speech, samples, context, bound));
  int32_t *tokens = realloc(transcript->tokens, (size_t)most * sizeof *tokens);
  if (tokens == NULL) return -ENOMEM;
  transcript->tokens = tokens;
  int32_t sequence = mesh_seq_open(speech->decoder.handle, (int32_t)((int64_t)speech->prompt_count + most), bound,
                                   (int32_t)count);
  if (sequence < 0) return host_failure(sequence, "opening a sequence");
  int32_t result = decode(speech, sequence, most, transcript);
  mesh_seq_close(sequence);
  for (size_t i = 0; i < count; i++) drop_tensor(bound[i]);
  return result;
}

/* The samples with the tail of silence that the model wants after them, in whole seconds, at most its window. */
static int32_t context_of(const struct speech *speech, const struct window *window) {
  double seconds = ceil((double)window->count / RATE + speech->tail_seconds);
  double samples = fmax(seconds * RATE, window->room);
  return samples < speech->window ? (int32_t)samples : speech->window;
}

static int32_t text_of(const struct speech *speech, const struct transcript *transcript, char **text) {
  int32_t ids = (int32_t)transcript->count;
  int32_t size = mesh_text_decode(speech->decoder.handle, transcript->tokens, ids, NULL, 0);
  if (size < 0) return host_failure(size, "decoding speech");
  char *raw = malloc((size_t)size + 1);
  if (raw == NULL) return -ENOMEM;
  mesh_text_decode(speech->decoder.handle, transcript->tokens, ids, raw, size);
  size_t begin = 0, end = (size_t)size;
  while (begin < end && strchr(" \t\r\n", raw[begin]) != NULL) begin++;
  while (end > begin && strchr(" \t\r\n", raw[end - 1]) != NULL) end--;
  memmove(raw, raw + begin, end - begin);
  raw[end - begin] = '\0';
  *text = raw;
  return 0;
}

/* A short context saves most of the encoder's time. Where it leads astray (nothing comes, or no end), the
 * full window, which the model was trained on, gets its turn. */
int32_t transcribe(const struct speech *speech, const struct window *window, char **text) {
  struct transcript transcript = {NULL, 0, false};
  int32_t context = context_of(speech, window), result = 0;
  if (!window->silent) {
    result = attempt(speech, window->tensor, context, &transcript);
    if (result == 0 && !transcript.sound && context < speech->window) {
      result = attempt(speech, window->tensor, speech->window, &transcript);
    }
  }
  if (result == 0) result = text_of(speech, &transcript, text);
  free(transcript.tokens);
  return result;
}
