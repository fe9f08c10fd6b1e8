/* How likely tokens were, in the shape of OpenAI's `logprobs.content`. */
#ifndef LLM_LOGPROBS_H
#define LLM_LOGPROBS_H

#include "json.h"

/* An entry {"token","id","logprob","bytes","top_logprobs":[…]} for a token that seq_sample drew, from what it
 * wrote: {"logprob":…,"top":[[id,logprob],…]}. `top` says how many of the likeliest are wanted. */
int32_t logprob_entry(int32_t graph, int32_t token, const char *sampled, size_t size, int64_t top,
                      yyjson_mut_doc *doc, yyjson_mut_val **entry);

#endif
