/* The samples of a WAV or FLAC file, as one channel at the file's own rate. */
#ifndef ASR_SOURCE_H
#define ASR_SOURCE_H

#include <stdbool.h>

#include "parts.h"

struct source {
  bool is_wav;
  void *decoder;
  uint32_t channels, rate;
  uint64_t frames; /* that the file promises; 0: it doesn't say */
  float *block;    /* room for frames of all channels */
};

/* False if the file can't be decoded. Close it if it can. */
bool source_open(struct bytes bytes, bool is_wav, struct source *source);
void source_close(struct source *source);

/* The mean of the channels. Fewer than `count` only at the end. What is no number reads as silence. */
int32_t source_read(struct source *source, float *samples, int32_t count);

#endif
