/* From a prompt's tokens to an answer. */
#ifndef LLM_GENERATE_H
#define LLM_GENERATE_H

#include "graph.h"
#include "options.h"
#include "prompt.h"

/* Generates at most `limit` tokens, streams them if the options say so, and replies. `stop_tokens` are names,
 * or NULL. */
int32_t generate(const struct graph *graph, const struct prompt *prompt, int64_t limit, yyjson_val *stop_tokens,
                 const struct options *options);

#endif
