#include "formats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "refuse.h"

static const struct {
  const char *name;
  uint8_t offset, length;
  const char *magic;
} known[] = {
    {"JPEG", 0, 3, "\xff\xd8\xff"},
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n"},
    {"WAV", 8, 4, "WAVE"},
    {"FLAC", 0, 4, "fLaC"},
    {"GIF", 0, 4, "GIF8"},
    {"WebP", 8, 4, "WEBP"},
    {"AVI", 8, 4, "AVI "},
    {"TIFF", 0, 4, "II*\0"},
    {"TIFF", 0, 4, "MM\0*"},
    {"HEIC", 4, 8, "ftypheic"},
    {"HEIC", 4, 8, "ftypheix"},
    {"HEIF", 4, 8, "ftypmif1"},
    {"AVIF", 4, 8, "ftypavif"},
    {"MP4", 4, 4, "ftyp"},
    {"JPEG XL", 0, 2, "\xff\x0a"},
    {"JPEG 2000", 4, 4, "jP  "},
    {"ICO", 0, 4, "\0\0\1\0"},
    {"PSD", 0, 4, "8BPS"},
    {"Ogg", 0, 4, "OggS"},
    {"WebM", 0, 4, "\x1a\x45\xdf\xa3"},
    {"AIFF", 8, 3, "AIF"},
    {"AMR", 0, 5, "#!AMR"},
    {"MP3", 0, 3, "ID3"},
    {"PDF", 0, 4, "%PDF"},
    {"ZIP", 0, 4, "PK\3\4"},
    {"gzip", 0, 2, "\x1f\x8b"},
    {"SVG", 0, 4, "<svg"},
    {"XML", 0, 5, "<?xml"},
    /* The short ones last: they match by chance more easily. */
    {"BMP", 0, 2, "BM"},
};

/* An MPEG audio frame: eleven bits of sync, then a layer and a bit rate that exist. AAC has layer 0. */
static const char *mpeg_audio(struct bytes bytes) {
  if (bytes.size < 3 || bytes.data[0] != 0xff || (bytes.data[1] & 0xe0) != 0xe0) return NULL;
  if ((bytes.data[1] & 0xf6) == 0xf0) return "AAC";
  return (bytes.data[1] & 0x06) != 0 && (bytes.data[2] & 0xf0) != 0xf0 ? "MP3" : NULL;
}

const char *format_of(struct bytes bytes) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (bytes.size >= (size_t)known[i].offset + known[i].length &&
        memcmp(bytes.data + known[i].offset, known[i].magic, known[i].length) == 0) {
      return known[i].name;
    }
  }
  return mpeg_audio(bytes);
}

int32_t refuse_format(struct bytes bytes, const char *supported) {
  if (bytes.size == 0) return refuse(EINVAL, "expected %s, found an empty input", supported);
  const char *found = format_of(bytes);
  if (found != NULL) return refuse(ENOTSUP, "expected %s, found %s", supported, found);
  char first[3 * 8 + 1] = "";
  for (size_t i = 0; i < 8 && i < bytes.size; i++) sprintf(first + 3 * i, " %02x", bytes.data[i]);
  return refuse(EINVAL, "expected %s, found %zu bytes of no known format, beginning with%s", supported,
                bytes.size, first);
}
