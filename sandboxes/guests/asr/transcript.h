/* The decoder's part: tokens, one by one, from what the encoder made of a window. */
#ifndef ASR_TRANSCRIPT_H
#define ASR_TRANSCRIPT_H

#include "speech.h"

struct transcript {
  int32_t *tokens;
  size_t count;
  bool whole;  /* it came to an end by itself, and says something */
  bool nobody; /* the model heard no speech, and didn't believe in what it wrote */
};

/* Decodes greedily, from one tensor for each of the decoder's bound inputs. */
int32_t decode_speech(const struct speech *speech, const int32_t *bound, struct transcript *transcript);

#endif
