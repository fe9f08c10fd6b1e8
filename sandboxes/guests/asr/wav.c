#include "wav.h"

#include <errno.h>
#include <string.h>

#include "refuse.h"

/* ffmpeg and others write 0xffffffff, sox 0x7ffff000 and up. */
#define PLACEHOLDER 0x7ffff000u

static uint32_t number(const uint8_t *bytes, int count) {
  uint32_t value = 0;
  for (int i = count; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/* RIFF: 12 bytes, then chunks of id, length, content, padded to even lengths. */
int32_t check_wav(struct bytes file) {
  size_t at = 12;
  uint32_t frame = 0;
  while (file.size - at >= 8) {
    const uint8_t *chunk = file.data + at;
    uint32_t length = number(chunk + 4, 4);
    size_t there = file.size - at - 8;
    if (memcmp(chunk, "data", 4) == 0) {
      if (frame == 0) return refuse(EINVAL, "the WAV has no format before its samples");
      size_t held = there < length ? there : length;
      if (held < frame) return refuse(EINVAL, "the WAV has no samples");
      if (length <= there || length >= PLACEHOLDER) return 0;
      return refuse(EINVAL, "the WAV claims %u samples, but holds %zu", length / frame, there / frame);
    }
    if (length > there) break;
    if (memcmp(chunk, "fmt ", 4) == 0 && length >= 16) frame = number(chunk + 8 + 12, 2);
    at += 8 + (size_t)length + (length & 1);
    if (at > file.size) break;
  }
  return refuse(EINVAL, "the WAV is cut short: it ends after %zu bytes, before its samples", file.size);
}
