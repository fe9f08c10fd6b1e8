#include "resample.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CROSSINGS 24    /* of zero, on each side, at the lower rate */
#define EDGE 0.93       /* where the pass band ends, of the lower rate's half */
#define KAISER 6.0      /* about 60 dB */
#define MOST_PHASES 1024 /* finer moments take the nearest before: noise 60 dB below */
#define REFILL 4096

static uint32_t common_divisor(uint32_t a, uint32_t b) {
  while (b != 0) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The modified Bessel function of the first kind, of order 0. */
static double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > 1e-12 * sum; k++) {
    term *= (x / 2 / k) * (x / 2 / k);
    sum += term;
  }
  return sum;
}

static void tabulate(struct resampler *of, double cutoff) {
  double scale = 1 / bessel(KAISER);
  for (int32_t phase = 0; phase < of->phases; phase++) {
    float *row = of->taps + (size_t)phase * 2 * (size_t)of->half;
    double sum = 0;
    for (int32_t i = 0; i < 2 * of->half; i++) {
      double time = i - (of->half - 1) - (double)phase / of->phases;
      double x = time * cutoff, place = time / of->half;
      double sinc = fabs(x) < 1e-9 ? 1 : sin(M_PI * x) / (M_PI * x);
      double window = place * place < 1 ? bessel(KAISER * sqrt(1 - place * place)) * scale : 0;
      sum += row[i] = (float)(sinc * window);
    }
    for (int32_t i = 0; i < 2 * of->half; i++) row[i] /= (float)sum; /* each phase passes a constant unchanged */
  }
}

int32_t resampler_open(struct source *source, struct resampler *of) {
  *of = (struct resampler){.source = source};
  if (source->rate == RATE) return 0;
  uint32_t divisor = common_divisor(source->rate, RATE);
  of->in = source->rate / divisor;
  of->out = RATE / divisor;
  double cutoff = fmin(1, (double)of->out / of->in) * EDGE;
  of->half = ((int32_t)ceil(CROSSINGS / cutoff) + 3) / 4 * 4; /* so that taps come in eights */
  of->phases = of->out < MOST_PHASES ? (int32_t)of->out : MOST_PHASES;
  of->room = 2 * of->half + REFILL;
  of->taps = malloc((size_t)of->phases * 2 * (size_t)of->half * sizeof(float));
  of->input = calloc((size_t)of->room, sizeof(float));
  if (of->taps == NULL || of->input == NULL) return -ENOMEM;
  tabulate(of, cutoff);
  of->at = of->held = of->half - 1; /* silence before the first sample */
  return 0;
}

void resampler_close(struct resampler *of) {
  free(of->taps);
  free(of->input);
}

int64_t resampled_count(const struct resampler *of, uint64_t frames) {
  if (of->taps == NULL || frames > INT64_MAX / RATE) return (int64_t)frames;
  return (int64_t)((frames * of->out + of->in - 1) / of->in);
}

/* Drops what lies behind, and reads on; silence follows the last sample. */
static void refill(struct resampler *of) {
  int32_t passed = of->at - (of->half - 1);
  if (passed > of->held) passed = of->held;
  memmove(of->input, of->input + passed, (size_t)(of->held - passed) * sizeof(float));
  of->at -= passed;
  of->held -= passed;
  int32_t got = source_read(of->source, of->input + of->held, of->room - of->half - of->held);
  of->held += got;
  if (got > 0) return;
  of->ended = true;
  of->end = of->held;
  memset(of->input + of->held, 0, (size_t)of->half * sizeof(float));
  of->held += of->half;
}

/* Four floats, wherever they begin. */
typedef float quad __attribute__((vector_size(16), aligned(4)));

static float at_moment(const struct resampler *of) {
  uint32_t phase = of->phases < (int32_t)of->out
                       ? (uint32_t)((uint64_t)of->fraction * (uint32_t)of->phases / of->out)
                       : of->fraction;
  const float *taps = of->taps + (size_t)phase * 2 * (size_t)of->half;
  const float *input = of->input + of->at - (of->half - 1);
  quad sum = {0}, other = {0};
  for (int32_t i = 0; i < 2 * of->half; i += 8) {
    sum += *(const quad *)(taps + i) * *(const quad *)(input + i);
    other += *(const quad *)(taps + i + 4) * *(const quad *)(input + i + 4);
  }
  sum += other;
  return sum[0] + sum[1] + sum[2] + sum[3];
}

int32_t resampler_read(struct resampler *of, float *samples, int32_t count) {
  if (of->taps == NULL) return source_read(of->source, samples, count);
  for (int32_t i = 0; i < count; i++) {
    while (of->at + of->half >= of->held && !of->ended) refill(of);
    if (of->ended && of->at >= of->end) return i;
    samples[i] = at_moment(of);
    of->fraction += of->in % of->out;
    of->at += (int32_t)(of->in / of->out) + (of->fraction >= of->out);
    if (of->fraction >= of->out) of->fraction -= of->out;
  }
  return count;
}
