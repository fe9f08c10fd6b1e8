/* The speech model: from a window's samples to its text. */
#ifndef ASR_SPEECH_H
#define ASR_SPEECH_H

#include "graph.h"
#include "window.h"

#define MOST_PROMPT 16

struct speech {
  struct graph encoder, decoder;
  yyjson_val *bound; /* names of what the encoder gives the decoder */
  int32_t prompt[MOST_PROMPT];
  size_t prompt_count;
  int64_t end, most_tokens, context;
  double tail_seconds;
  int32_t window; /* samples of the model's full window */
  char *first, *next; /* sampling parameters of the first token, and of the others */
  size_t first_size, next_size;
};

/* From the unit's configuration; close it. */
int32_t speech_open(const struct fields *config, struct speech *speech);
void speech_close(struct speech *speech);

/* The window's text, to be freed, without white space around it; "" if nobody speaks. */
int32_t transcribe(const struct speech *speech, const struct window *window, char **text);

#endif
