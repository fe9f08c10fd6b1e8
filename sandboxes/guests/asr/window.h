/* A recording in windows that the model takes, each as a tensor of samples. */
#ifndef ASR_WINDOW_H
#define ASR_WINDOW_H

#include "sound.h"

struct windows {
  struct sound *sound;
  int32_t longest; /* samples of a window at most */
  float *carried;  /* what was read, but belongs to the next window */
  int32_t carried_count;
  int64_t begin;   /* of the current window, in samples of the recording */
};

struct window {
  int32_t tensor; /* f32 [room]; what lies after `count` is silence */
  int32_t room;
  int32_t count;
  int64_t begin;
  bool silent; /* nothing in it could be speech */
};

void windows_free(struct windows *windows);

/* The next window: all that is left, or, where more follows, up to a quiet moment near the longest window's
 * end, so that no word is cut. Its `count` is 0 when the recording has ended. */
int32_t next_window(struct windows *windows, struct window *window);

#endif
