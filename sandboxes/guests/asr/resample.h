/* Samples at the model's rate, from a source at any other. */
#ifndef ASR_RESAMPLE_H
#define ASR_RESAMPLE_H

#include "source.h"

#define RATE 16000

/* Band-limited interpolation: each sample is the source, low-pass filtered below the lower of the two rates'
 * halves, at its very moment. The filter is a sinc under a Kaiser window, tabulated for the moments between two
 * samples of the source that occur (J. O. Smith, Digital Audio Resampling). miniaudio's own resampler
 * interpolates linearly, which leaves images of the upper band only 15 to 20 dB below it. */
struct resampler {
  struct source *source;
  uint32_t in, out;        /* the rates, without their common divisor */
  int32_t half;            /* taps on each side of a moment */
  int32_t phases;
  float *taps;             /* [phases][2 * half] */
  float *input;
  int32_t held, room;      /* samples in `input`, and how many fit */
  int32_t at;              /* the source's sample at or before the next moment */
  uint32_t fraction;       /* how far the moment is behind it, in 1/out */
  bool ended;
  int32_t end;             /* where the source ended, once it has */
};

/* ENOMEM if the sandbox has no room for it. Close it either way. */
int32_t resampler_open(struct source *source, struct resampler *resampler);
void resampler_close(struct resampler *resampler);

/* How many samples come of so many of the source's. */
int64_t resampled_count(const struct resampler *resampler, uint64_t frames);

/* Fewer than `count` only at the end. */
int32_t resampler_read(struct resampler *resampler, float *samples, int32_t count);

#endif
