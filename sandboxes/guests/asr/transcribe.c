#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"
#include "speech.h"
#include "tensor.h"
#include "transcript.h"

static int32_t log_mel(int32_t samples, int32_t context, int32_t *mel) {
  char args[48];
  int size = snprintf(args, sizeof args, "{\"context_samples\":%d}", context);
  return kernel_run_one("logmel", args, (size_t)size, samples, mel);
}

/* Encodes the samples with silence up to `context` samples, and decodes that. */
static int32_t attempt(const struct speech *speech, int32_t samples, int32_t context, struct transcript *transcript) {
  const char *names[MOST_TENSORS];
  int32_t mel, bound[MOST_TENSORS];
  size_t index, count;
  yyjson_val *name;
  yyjson_arr_foreach(speech->bound, index, count, name) names[index] = yyjson_get_str(name);
  TRY(log_mel(samples, context, &mel));
  TRY(graph_run_one(&speech->encoder, mel, count, names, bound));
  drop_tensor(mel);
  int32_t result = decode_speech(speech, bound, transcript);
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
  struct transcript transcript = {0};
  int32_t context = context_of(speech, window), result = 0;
  if (!window->silent) {
    result = attempt(speech, window->tensor, context, &transcript);
    if (result == 0 && !transcript.whole && context < speech->window) {
      result = attempt(speech, window->tensor, speech->window, &transcript);
    }
  }
  if (transcript.nobody) transcript.count = 0;
  if (result == 0) result = text_of(speech, &transcript, text);
  free(transcript.tokens);
  return result;
}
