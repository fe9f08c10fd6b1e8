#include "source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* miniaudio, cut down to its decoders, whose types are known only where it is compiled. */
#define MA_NO_DEVICE_IO
#define MA_NO_THREADING
#define MA_NO_ENCODING
#define MA_NO_GENERATION
#define MA_NO_RESOURCE_MANAGER
#define MA_NO_NODE_GRAPH
#define MA_NO_ENGINE
#define MA_NO_MP3
#define MINIAUDIO_IMPLEMENTATION
#include "miniaudio.h"

#define BLOCK 1024

static bool open_wav(struct bytes bytes, struct source *source) {
  ma_dr_wav *wav = malloc(sizeof *wav);
  if (wav == NULL) return false;
  if (!ma_dr_wav_init_memory(wav, bytes.data, bytes.size, NULL)) {
    free(wav);
    return false;
  }
  source->decoder = wav;
  source->channels = wav->channels;
  source->rate = wav->sampleRate;
  source->frames = wav->totalPCMFrameCount;
  return true;
}

static bool open_flac(struct bytes bytes, struct source *source) {
  ma_dr_flac *flac = ma_dr_flac_open_memory(bytes.data, bytes.size, NULL);
  if (flac == NULL) return false;
  source->decoder = flac;
  source->channels = flac->channels;
  source->rate = flac->sampleRate;
  source->frames = flac->totalPCMFrameCount;
  return true;
}

bool source_open(struct bytes bytes, bool is_wav, struct source *source) {
  memset(source, 0, sizeof *source);
  source->is_wav = is_wav;
  if (!(is_wav ? open_wav(bytes, source) : open_flac(bytes, source))) return false;
  source->block = malloc(BLOCK * source->channels * sizeof(float));
  if (source->block != NULL) return true;
  source_close(source);
  return false;
}

void source_close(struct source *source) {
  if (source->is_wav) {
    ma_dr_wav_uninit(source->decoder);
    free(source->decoder);
  } else {
    ma_dr_flac_close(source->decoder);
  }
  free(source->block);
}

static void mix(const float *block, uint32_t channels, int32_t frames, float *samples) {
  float share = 1 / (float)channels;
  for (int32_t i = 0; i < frames; i++) {
    float sum = 0;
    for (uint32_t channel = 0; channel < channels; channel++) sum += *block++;
    samples[i] = isfinite(sum) ? sum * share : 0;
  }
}

int32_t source_read(struct source *source, float *samples, int32_t count) {
  int32_t read = 0;
  while (read < count) {
    uint64_t wanted = count - read < BLOCK ? (uint64_t)(count - read) : BLOCK;
    uint64_t got = source->is_wav ? ma_dr_wav_read_pcm_frames_f32(source->decoder, wanted, source->block)
                                  : ma_dr_flac_read_pcm_frames_f32(source->decoder, wanted, source->block);
    if (got == 0) break;
    mix(source->block, source->channels, (int32_t)got, samples + read);
    read += (int32_t)got;
  }
  return read;
}
