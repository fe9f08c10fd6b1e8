/* What a request asks of the model. */
#ifndef LLM_OPTIONS_H
#define LLM_OPTIONS_H

#include "json.h"

#define MOST_STOPS 16

struct options {
  yyjson_val *messages;
  const char *prompt; /* raw: no template */
  const char *system;
  int64_t max_tokens; /* 0: as many as fit */
  bool stream;
  bool logprobs;
  int64_t top_logprobs;
  size_t stop_count;
  const char *stops[MOST_STOPS];
  /* Sampling. A negative seed: the host draws one. */
  double temperature, top_p;
  int64_t top_k;
  bool seeded;
  uint64_t seed;
};

/* The request's options over the unit's defaults of the same names. EINVAL names what is wrong. */
int32_t read_options(const struct fields *config, const struct fields *params, struct options *options);

/* Sampling parameters as mesh_seq_sample takes them; to be freed. NULL without memory. */
char *sampling_json(const struct options *options, size_t *length);

#endif
