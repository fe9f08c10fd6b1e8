#include "generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "detokenizer.h"
#include "logprobs.h"
#include "mesh_v1.h"
#include "refuse.h"

#define MOST_STOP_TOKENS 16
#define LOGPROB_BYTES 8192

struct generation {
  const struct options *options;
  int32_t graph, sequence;
  char *sampling;
  size_t sampling_size;
  int32_t stop_tokens[MOST_STOP_TOKENS];
  size_t stop_token_count;
  struct detokenizer detokenizer;
  struct answer answer;
  yyjson_mut_doc *logprobs;   /* all entries, for the reply */
  size_t logprobs_emitted;
  int64_t tokens;
  bool stopped; /* by a token or a stop string, not by the limit */
};

static int32_t resolve_stop_tokens(struct generation *of, yyjson_val *names) {
  size_t index, count;
  yyjson_val *name;
  yyjson_arr_foreach(names, index, count, name) {
    if (!yyjson_is_str(name) || index == MOST_STOP_TOKENS) {
      return fault("config.stop_tokens: expected at most %d names of tokens", MOST_STOP_TOKENS);
    }
    int32_t id = mesh_text_token(of->graph, yyjson_get_str(name), (int32_t)yyjson_get_len(name));
    if (id == -ENOENT) return fault("config.stop_tokens: the tokenizer has no '%s'", yyjson_get_str(name));
    if (id < 0) return host_failure(id, "resolving stop tokens");
    of->stop_tokens[of->stop_token_count++] = id;
  }
  return 0;
}

static bool is_stop(const struct generation *of, int32_t token) {
  for (size_t i = 0; i < of->stop_token_count; i++) {
    if (of->stop_tokens[i] == token) return true;
  }
  return false;
}

/* The entries from `from` on, copied into `doc`. */
static yyjson_mut_val *logprobs_from(const struct generation *of, size_t from, yyjson_mut_doc *doc) {
  yyjson_mut_val *copies = yyjson_mut_arr(doc), *entry;
  size_t index, count;
  yyjson_mut_arr_foreach(yyjson_mut_doc_get_root(of->logprobs), index, count, entry) {
    if (index >= from) yyjson_mut_arr_append(copies, yyjson_mut_val_mut_copy(doc, entry));
  }
  return copies;
}

/* Streams what has become ready; nothing if that is nothing. */
static int32_t show(struct generation *of, bool ended) {
  const char *delta = "";
  if (!of->options->stream) return 0;
  size_t size = answer_ready(&of->answer, ended, &delta);
  size_t entries = of->logprobs ? yyjson_mut_arr_size(yyjson_mut_doc_get_root(of->logprobs)) : 0;
  if (size == 0 && !(ended && entries > of->logprobs_emitted)) return 0;
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_strn(doc, root, "delta", delta, size);
  if (of->logprobs) yyjson_mut_obj_add_val(doc, root, "logprobs", logprobs_from(of, of->logprobs_emitted, doc));
  of->logprobs_emitted = entries;
  return emit_json(doc);
}

static int32_t sample(struct generation *of) {
  char out[LOGPROB_BYTES];
  bool wanted = of->options->logprobs;
  out[0] = '\0';
  if (wanted) memset(out, 0, sizeof out);
  int32_t token = mesh_seq_sample(of->sequence, of->sampling, (int32_t)of->sampling_size, out,
                                  wanted ? (int32_t)sizeof out - 1 : 0);
  if (token < 0) return host_failure(token, "sampling");
  if (wanted && !is_stop(of, token)) {
    yyjson_mut_val *entry;
    TRY(logprob_entry(of->graph, token, out, strlen(out), of->options->top_logprobs, of->logprobs, &entry));
    yyjson_mut_arr_append(yyjson_mut_doc_get_root(of->logprobs), entry);
  }
  return token;
}

static int32_t feed(struct generation *of, const int32_t *ids, size_t count) {
  int32_t result = mesh_seq_feed(of->sequence, ids, (int32_t)count, 0);
  return result < 0 ? host_failure(result, "generating") : 0;
}

static int32_t run(struct generation *of, const struct prompt *prompt, int64_t limit) {
  TRY(feed(of, prompt->ids, prompt->count));
  for (;;) {
    const char *bytes;
    size_t size;
    int32_t token = sample(of);
    if (token < 0) return token;
    of->stopped = is_stop(of, token);
    if (of->stopped) return 0;
    of->tokens++;
    TRY(detokenize(&of->detokenizer, token, &bytes, &size));
    TRY(answer_add(&of->answer, bytes, size));
    of->stopped = of->answer.stopped;
    if (of->stopped || of->tokens == limit) return 0;
    TRY(show(of, false));
    TRY(feed(of, &token, 1));
  }
}

static int32_t reply(struct generation *of, size_t prompt_tokens) {
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_strn(doc, root, "text", of->answer.text ? of->answer.text : "", of->answer.size);
  yyjson_mut_obj_add_str(doc, root, "finish_reason", of->stopped ? "stop" : "length");
  yyjson_mut_val *usage = yyjson_mut_obj_add_obj(doc, root, "usage");
  yyjson_mut_obj_add_uint(doc, usage, "prompt_tokens", prompt_tokens);
  yyjson_mut_obj_add_int(doc, usage, "completion_tokens", of->tokens);
  if (of->logprobs) yyjson_mut_obj_add_val(doc, root, "logprobs", logprobs_from(of, 0, doc));
  return reply_json(doc);
}

static int32_t open_and_run(struct generation *of, const struct prompt *prompt, int64_t limit,
                            yyjson_val *stop_tokens) {
  TRY(resolve_stop_tokens(of, stop_tokens));
  int32_t sequence = mesh_seq_open(of->graph, (int32_t)(prompt->count + (size_t)limit), NULL, 0);
  if (sequence < 0) return host_failure(sequence, "opening a sequence");
  of->sequence = sequence;
  int32_t result = run(of, prompt, limit);
  mesh_seq_close(sequence);
  TRY(result);
  TRY(answer_end(&of->answer));
  TRY(show(of, true));
  return reply(of, prompt->count);
}

int32_t generate(const struct graph *graph, const struct prompt *prompt, int64_t limit, yyjson_val *stop_tokens,
                 const struct options *options) {
  struct generation *of = calloc(1, sizeof *of);
  if (of == NULL) return -ENOMEM;
  of->options = options;
  of->graph = of->detokenizer.graph = graph->handle;
  of->answer.stops = options->stops;
  of->answer.stop_count = options->stop_count;
  of->sampling = sampling_json(options, &of->sampling_size);
  if (options->logprobs) {
    of->logprobs = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(of->logprobs, yyjson_mut_arr(of->logprobs));
  }
  int32_t result = of->sampling == NULL ? -ENOMEM : open_and_run(of, prompt, limit, stop_tokens);
  yyjson_mut_doc_free(of->logprobs);
  answer_free(&of->answer);
  free(of->sampling);
  free(of);
  return result;
}
