/* The speech model: from a window's samples to its text. */
#ifndef ASR_SPEECH_H
#define ASR_SPEECH_H

#include "graph.h"
#include "window.h"

#define MOST_PROMPT 16

/* Parameters of seq_sample. */
struct sampling {
  char *json;
  size_t size;
};

struct speech {
  struct graph encoder, decoder;
  yyjson_val *bound; /* names of what the encoder gives the decoder */
  int32_t prompt[MOST_PROMPT];
  size_t prompt_count;
  int64_t end, most_tokens, context, vocabulary;
  int64_t no_speech; /* the token that stands for that, or -1 */
  double tail_seconds;
  int32_t window; /* samples of the model's full window */
  struct sampling first[2], next[2]; /* of the first token and of the others; [1] with log-probabilities */
};

/* From the unit's configuration; close it. */
int32_t speech_open(const struct fields *config, struct speech *speech);
void speech_close(struct speech *speech);

/* The window's text, to be freed, without white space around it; "" if nobody speaks. */
int32_t transcribe(const struct speech *speech, const struct window *window, char **text);

#endif
