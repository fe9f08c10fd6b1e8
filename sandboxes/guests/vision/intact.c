#include "intact.h"

#include <string.h>

static uint32_t big_endian(const uint8_t *bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
  return value;
}

static uint32_t little_endian(const uint8_t *bytes, int count) {
  uint32_t value = 0;
  for (int i = count; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/* The first marker at or after `at` that ends entropy-coded data: no stuffed zero, fill byte or restart. */
static size_t after_scan(struct bytes file, size_t at) {
  while (at + 1 < file.size) {
    const uint8_t *found = memchr(file.data + at, 0xff, file.size - 1 - at);
    if (found == NULL) break;
    at = (size_t)(found - file.data);
    uint8_t code = file.data[at + 1];
    if (code != 0 && code != 0xff && (code < 0xd0 || code > 0xd7)) return at;
    at += code == 0xff ? 1 : 2;
  }
  return file.size;
}

/* ISO/IEC 10918-1, annex B: segments from SOI to EOI, each SOS followed by entropy-coded data. */
static bool jpeg_is_whole(struct bytes file) {
  size_t at = 2;
  while (at + 1 < file.size) {
    if (file.data[at] != 0xff) {
      at = after_scan(file, at); /* stray bytes between segments, as decoders forgive them */
      continue;
    }
    uint8_t code = file.data[at + 1];
    if (code == 0xd9) return true;
    if (code == 0xff) {
      at += 1;
    } else if (code == 0x00 || code == 0x01 || (code >= 0xd0 && code <= 0xd8)) {
      at += 2;
    } else {
      if (file.size - at < 4) return false;
      at += 2 + big_endian(file.data + at + 2, 2);
      if (code == 0xda) at = after_scan(file, at);
    }
  }
  return false;
}

/* ISO/IEC 15948: chunks of length, type, data, CRC, up to IEND. */
static bool png_is_whole(struct bytes file) {
  size_t at = 8;
  while (file.size - at >= 12) {
    uint32_t length = big_endian(file.data + at, 4);
    if (length > file.size - at - 12) return false;
    if (memcmp(file.data + at + 4, "IEND", 4) == 0) return true;
    at += 12 + (size_t)length;
  }
  return false;
}

/* A file header of 14 bytes with the pixels' offset; an info header (12 bytes: OS/2, with 16-bit sizes) with
 * width, height and depth; rows padded to 4 bytes. */
static bool bmp_is_whole(struct bytes file) {
  if (file.size < 26) return false;
  uint32_t offset = little_endian(file.data + 10, 4);
  bool old = little_endian(file.data + 14, 4) == 12;
  if (!old && file.size < 30) return false;
  uint32_t width = little_endian(file.data + 18, old ? 2 : 4);
  uint32_t height = little_endian(file.data + (old ? 20 : 22), old ? 2 : 4);
  uint64_t depth = little_endian(file.data + (old ? 24 : 28), 2);
  uint64_t row = (width * depth + 31) / 32 * 4;
  /* A negative height, in the newer kind, says that the first row comes first. */
  uint64_t rows = !old && height > INT32_MAX ? 0 - height : height;
  return offset <= file.size && (rows == 0 || row <= (file.size - offset) / rows);
}

bool is_whole(const char *format, struct bytes bytes) {
  if (strcmp(format, "JPEG") == 0) return jpeg_is_whole(bytes);
  if (strcmp(format, "PNG") == 0) return png_is_whole(bytes);
  return bmp_is_whole(bytes);
}
