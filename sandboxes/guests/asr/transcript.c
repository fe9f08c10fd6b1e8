#include "transcript.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"
#include "repetition.h"
#include "tensor.h"

/* openai/whisper's own thresholds: a window is without speech if the model gives that token this probability,
 * and its transcript's tokens a mean log-probability below that. */
#define NO_SPEECH 0.6
#define UNBELIEVED (-1.0)

static int32_t feed(int32_t sequence, const int32_t *ids, size_t count, int32_t logits) {
  int32_t result = mesh_seq_feed(sequence, ids, (int32_t)count, logits);
  return result < 0 ? host_failure(result, "decoding speech") : 0;
}

static double probability(const struct values *logits, int64_t token) {
  float peak = -INFINITY;
  double sum = 0;
  for (size_t i = 0; i < logits->count; i++) peak = fmaxf(peak, logits->data[i]);
  for (size_t i = 0; i < logits->count; i++) sum += expf(logits->data[i] - peak);
  return expf(logits->data[token] - peak) / sum;
}

/* Feeds the prompt. After its first token the model says whether it hears speech. */
static int32_t begin(const struct speech *speech, int32_t sequence, bool *doubtful) {
  struct values logits;
  int32_t tensor, dims[] = {(int32_t)speech->vocabulary};
  *doubtful = false;
  if (speech->no_speech < 0) return feed(sequence, speech->prompt, speech->prompt_count, 0);
  TRY(new_tensor(MESH_F32, 1, dims, "room for logits", &tensor));
  TRY(feed(sequence, speech->prompt, 1, tensor));
  TRY(read_values(tensor, "logits", &logits));
  *doubtful = probability(&logits, speech->no_speech) > NO_SPEECH;
  drop_tensor(tensor);
  if (speech->prompt_count == 1) return 0;
  return feed(sequence, speech->prompt + 1, speech->prompt_count - 1, 0);
}

/* The next token; with `doubt`, its log-probability is added there. */
static int32_t sample(const struct speech *speech, int32_t sequence, bool first, double *doubt) {
  char report[512] = "";
  const struct sampling *sampling = first ? &speech->first[doubt != NULL] : &speech->next[doubt != NULL];
  int32_t token = mesh_seq_sample(sequence, sampling->json, (int32_t)sampling->size, report, sizeof report);
  if (token < 0) return host_failure(token, "sampling");
  if (doubt == NULL) return token;
  yyjson_doc *parsed = yyjson_read(report, strlen(report), 0);
  *doubt += yyjson_get_num(yyjson_obj_get(yyjson_doc_get_root(parsed), "logprob"));
  yyjson_doc_free(parsed);
  return token;
}

static int32_t run(const struct speech *speech, int32_t sequence, int64_t most, struct transcript *transcript) {
  bool doubtful;
  double logprobs = 0;
  size_t sampled = 0;
  TRY(begin(speech, sequence, &doubtful));
  for (;;) {
    int32_t token = sample(speech, sequence, sampled == 0, doubtful ? &logprobs : NULL);
    if (token < 0) return token;
    sampled++;
    if (token == speech->end) break;
    transcript->tokens[transcript->count++] = token;
    size_t sensible = without_loop(transcript->tokens, transcript->count);
    if (sensible < transcript->count || (int64_t)transcript->count == most) {
      transcript->count = sensible;
      return 0;
    }
    TRY(feed(sequence, &token, 1, 0));
  }
  transcript->nobody = doubtful && logprobs / (double)sampled < UNBELIEVED;
  transcript->whole = transcript->count > 0;
  return 0;
}

int32_t decode_speech(const struct speech *speech, const int32_t *bound, struct transcript *transcript) {
  int64_t most = speech->context - (int64_t)speech->prompt_count;
  if (speech->most_tokens < most) most = speech->most_tokens;
  int32_t *tokens = realloc(transcript->tokens, (size_t)most * sizeof *tokens);
  if (tokens == NULL) return -ENOMEM;
  *transcript = (struct transcript){.tokens = tokens};
  int32_t sequence = mesh_seq_open(speech->decoder.handle, (int32_t)((int64_t)speech->prompt_count + most), bound,
                                   (int32_t)yyjson_arr_size(speech->bound));
  if (sequence < 0) return host_failure(sequence, "opening a sequence");
  int32_t result = run(speech, sequence, most, transcript);
  mesh_seq_close(sequence);
  return result;
}
