/* Sound in a file, as mono samples at the model's rate. */
#ifndef ASR_SOUND_H
#define ASR_SOUND_H

#include "resample.h"

/* Close it. Don't move it: the resampler points into it. */
struct sound {
  struct source source;
  struct resampler resampler;
  const char *format;
  int64_t total; /* samples at RATE that the file promises; 0: it doesn't say */
  int64_t read;
  double max_seconds;
  bool ended;
};

/* WAV or FLAC. E2BIG if it is longer than max_seconds; ENOTSUP for other formats; EINVAL for what is empty,
 * cut short or damaged. */
int32_t sound_open(struct bytes bytes, double max_seconds, struct sound *sound);
void sound_close(struct sound *sound);

/* Reads up to `count` samples; fewer only at the end. EINVAL if the file ends before what it promised, E2BIG
 * as above. Returns how many. */
int32_t sound_read(struct sound *sound, float *samples, int32_t count);

#endif
