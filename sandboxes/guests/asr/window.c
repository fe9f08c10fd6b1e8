#include "window.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"
#include "tensor.h"

#define FRAME (RATE / 50)    /* 20 ms */
#define PAUSE 10             /* frames that a pause lasts */
#define SEARCHED (5 * RATE)  /* how far before the longest window's end a pause is looked for */
#define SILENCE 1e-8f        /* mean square of a frame, 80 dB below full scale: no microphone is that quiet */

void windows_free(struct windows *windows) { free(windows->carried); }

static float power(const float *samples) {
  float sum = 0;
  for (int32_t i = 0; i < FRAME; i++) sum += samples[i] * samples[i];
  return sum / FRAME;
}

/* The middle of the quietest pause that begins in the searched part. */
static int32_t quiet_place(const float *samples, int32_t count) {
  float powers[SEARCHED / FRAME], quietest = INFINITY;
  int32_t from = count > 2 * SEARCHED ? count - SEARCHED : count / 2;
  int32_t frames = (count - from) / FRAME, place = count;
  for (int32_t i = 0; i < frames; i++) powers[i] = power(samples + from + i * FRAME);
  for (int32_t i = 0; i + PAUSE <= frames; i++) {
    float pause = 0;
    for (int32_t j = 0; j < PAUSE; j++) pause += powers[i + j];
    if (!(pause < quietest)) continue;
    quietest = pause;
    place = from + (i + PAUSE / 2) * FRAME;
  }
  return place;
}

static bool is_silent(const float *samples, int32_t count) {
  for (int32_t i = 0; i + FRAME <= count; i += FRAME) {
    if (power(samples + i) > SILENCE) return false;
  }
  return true;
}

/* Keeps what comes after `cut` for the next window, and silences it in this one. */
static int32_t carry(struct windows *windows, float *samples, int32_t cut, int32_t count) {
  size_t size = (size_t)(count - cut) * sizeof *samples;
  float *carried = realloc(windows->carried, size);
  if (carried == NULL) return -ENOMEM;
  memcpy(carried, samples + cut, size);
  memset(samples + cut, 0, size);
  windows->carried = carried;
  windows->carried_count = count - cut;
  return 0;
}

/* How many samples the next window can have at most. */
static int32_t room_for(const struct windows *windows) {
  const struct sound *sound = windows->sound;
  int64_t left = windows->longest;
  if (sound->ended) {
    left = windows->carried_count;
  } else if (sound->total > 0) {
    left = sound->total - sound->read + windows->carried_count;
  }
  return left < windows->longest ? (int32_t)left : windows->longest;
}

static int32_t fill(struct windows *windows, struct window *window, float *samples) {
  int32_t count = windows->carried_count;
  if (count > 0) memcpy(samples, windows->carried, (size_t)count * sizeof *samples);
  windows->carried_count = 0;
  int32_t got = sound_read(windows->sound, samples + count, window->room - count);
  if (got < 0) return got;
  count += got;
  bool more = !windows->sound->ended && windows->sound->read != windows->sound->total;
  if (more && count == windows->longest) {
    window->count = quiet_place(samples, count);
    if (window->count < count) TRY(carry(windows, samples, window->count, count));
  } else {
    window->count = count;
  }
  window->silent = is_silent(samples, window->count);
  windows->begin += window->count;
  return 0;
}

int32_t next_window(struct windows *windows, struct window *window) {
  void *samples;
  *window = (struct window){.room = room_for(windows), .begin = windows->begin};
  if (window->room <= 0) return 0;
  TRY(new_tensor(MESH_F32, 1, &window->room, "room for the samples", &window->tensor));
  TRY(map_to_write(window->tensor, &samples));
  TRY(fill(windows, window, samples));
  return unmap(window->tensor);
}
