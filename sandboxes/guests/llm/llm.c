/* The generic language unit: a chat template, or a raw prompt, then tokens one by one until a stop token, a stop
 * string or a limit. See docs/guests.md. */
#include <errno.h>
#include <string.h>

#include "generate.h"
#include "graph.h"
#include "mesh_v1.h"
#include "options.h"
#include "parts.h"
#include "refuse.h"
#include "template.h"
#include "tensor.h"
#include "utf8.h"

MESH_UNIT

/* The request's text: of the part, if there is one. */
static int32_t read_text(struct bytes *text) {
  struct part part;
  int found = 0;
  *text = (struct bytes){NULL, 0};
  for (int32_t index = 0; index < mesh_part_count(); index++) {
    TRY(read_part(index, &part));
    if (is_params(&part)) continue;
    if (part.is_tensor) return refuse(ENOTSUP, "'%s': expected text, found a tensor", part.name);
    found++;
  }
  if (found == 0) return 0;
  TRY(only_part("text/", "text", &part));
  TRY(part_bytes(&part, text));
  size_t valid = utf8_valid((const char *)text->data, text->size);
  if (valid < text->size) return refuse(EINVAL, "the text isn't UTF-8 at byte %zu", valid);
  return 0;
}

static int32_t make_prompt(const struct fields *config, const struct options *options, struct bytes text,
                           struct prompt *prompt) {
  bool chat = text.size > 0 || yyjson_arr_size(options->messages) > 0;
  if (options->prompt == NULL) {
    if (!chat) return refuse(EINVAL, "there is no prompt: send text, or params.messages, or params.prompt");
    TRY(prompt_chat(config, options, text, prompt));
  } else {
    if (chat) return refuse(EINVAL, "params.prompt is the whole prompt; send no text or messages beside it");
    TRY(prompt_text(prompt, options->prompt, strlen(options->prompt)));
  }
  return prompt_end(prompt);
}

static int32_t context_of(const struct graph *graph, int64_t *context) {
  *context = 0;
  TRY(field_integer(&graph->fields, "context", 2, INT32_MAX, context));
  return *context == 0 ? fault("graph '%s' is no sequence", graph->name) : 0;
}

/* How many tokens may be generated: what was asked for, cut to what fits after the prompt. */
static int32_t limit_of(int64_t context, const struct options *options, const struct prompt *prompt, int64_t *limit) {
  if (prompt->count == 0) return refuse(EINVAL, "the prompt is empty");
  if ((int64_t)prompt->count >= context) {
    return refuse(E2BIG, "the prompt has %s%zu tokens, at most %lld fit (of %lld, one is for the answer)",
                  prompt->cut ? "over " : "", prompt->count, context - 1, context);
  }
  *limit = context - (int64_t)prompt->count;
  if (options->max_tokens > 0 && options->max_tokens < *limit) *limit = options->max_tokens;
  return 0;
}

static int32_t answer(const struct fields *config, const struct options *options, const struct graph *graph,
                      struct prompt *prompt) {
  struct bytes text;
  yyjson_val *stop_tokens = NULL;
  int64_t context, limit;
  TRY(field_list(config, "stop_tokens", &stop_tokens));
  TRY(context_of(graph, &context));
  prompt->too_many = (size_t)context;
  TRY(read_text(&text));
  TRY(make_prompt(config, options, text, prompt));
  TRY(limit_of(context, options, prompt, &limit));
  return generate(graph, prompt, limit, stop_tokens, options);
}

static int32_t handle(void) {
  struct fields config, params;
  struct options options;
  struct graph graph;
  const char *name = NULL;
  TRY(config_fields(&config));
  TRY(request_params(&params));
  TRY(read_options(&config, &params, &options));
  TRY(field_text(&config, "graph", &name));
  if (name == NULL) return fault("config.graph is missing: the name of a sequence graph of this image");
  TRY(graph_open(name, &graph));
  struct prompt prompt = {.graph = graph.handle};
  int32_t result = answer(&config, &options, &graph, &prompt);
  prompt_free(&prompt);
  graph_close(&graph);
  return result;
}

int32_t mesh_handle(void) {
  int32_t result = handle();
  end_request();
  return result;
}
