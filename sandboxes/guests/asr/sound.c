#include "sound.h"

#include <errno.h>
#include <string.h>

#include "formats.h"
#include "refuse.h"
#include "wav.h"

#define SUPPORTED "sound (WAV or FLAC)"
#define LOWEST_RATE 4000
#define HIGHEST_RATE 384000

static int32_t too_long(const struct sound *sound, int64_t samples) {
  return refuse(E2BIG, "the recording has %.1f seconds, at most %.0f are taken", (double)samples / RATE,
                sound->max_seconds);
}

static int32_t check_format(struct bytes bytes, struct sound *sound) {
  const char *format = bytes.size == 0 ? NULL : format_of(bytes);
  bool wav = format != NULL && strcmp(format, "WAV") == 0;
  if (format == NULL || (!wav && strcmp(format, "FLAC") != 0)) return refuse_format(bytes, SUPPORTED);
  if (wav && memcmp(bytes.data, "RIFF", 4) != 0) {
    return refuse(ENOTSUP, "expected " SUPPORTED ", found a WAV of the kind %.4s", (const char *)bytes.data);
  }
  sound->format = format;
  return wav ? check_wav(bytes) : 0;
}

static int32_t check_length(struct sound *sound) {
  uint32_t rate = sound->source.rate;
  if (rate < LOWEST_RATE || rate > HIGHEST_RATE) {
    return refuse(EINVAL, "the %s has %u samples a second, expected %d to %d", sound->format, rate, LOWEST_RATE,
                  HIGHEST_RATE);
  }
  int32_t opened = resampler_open(&sound->source, &sound->resampler);
  if (opened < 0) return opened;
  sound->total = resampled_count(&sound->resampler, sound->source.frames);
  return (double)sound->total > sound->max_seconds * RATE ? too_long(sound, sound->total) : 0;
}

int32_t sound_open(struct bytes bytes, double max_seconds, struct sound *sound) {
  memset(sound, 0, sizeof *sound);
  sound->max_seconds = max_seconds;
  TRY(check_format(bytes, sound));
  if (!source_open(bytes, strcmp(sound->format, "WAV") == 0, &sound->source)) {
    return refuse(EINVAL, "the %s is damaged, or of a kind that isn't decoded here", sound->format);
  }
  int32_t result = check_length(sound);
  if (result < 0) sound_close(sound);
  return result;
}

void sound_close(struct sound *sound) {
  resampler_close(&sound->resampler);
  source_close(&sound->source);
}

static int32_t end(struct sound *sound) {
  sound->ended = true;
  if (sound->read == 0) return refuse(EINVAL, "the %s has no samples", sound->format);
  if (sound->read < sound->total) {
    return refuse(EINVAL, "the %s claims %.2f seconds, but only %.2f could be decoded", sound->format,
                  (double)sound->total / RATE, (double)sound->read / RATE);
  }
  return 0;
}

int32_t sound_read(struct sound *sound, float *samples, int32_t count) {
  int32_t got = resampler_read(&sound->resampler, samples, count);
  sound->read += got;
  if ((double)sound->read > sound->max_seconds * RATE) return too_long(sound, sound->read);
  if (got < count) TRY(end(sound));
  return got;
}
