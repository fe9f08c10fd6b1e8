#include "orientation.h"

#include <string.h>

static uint32_t number(const uint8_t *bytes, int count, int big) {
  uint32_t value = 0;
  for (int i = 0; i < count; i++) value = value << 8 | bytes[big ? i : count - 1 - i];
  return value;
}

/* TIFF 6.0: byte order, 42, the offset of a directory: a count, then entries of 12 bytes (tag, type, count,
 * value). Tag 0x0112 is the orientation. */
static int tiff_orientation(const uint8_t *tiff, size_t size) {
  if (size < 8) return 1;
  int big = tiff[0] == 'M';
  uint32_t directory = number(tiff + 4, 4, big);
  if (directory > size || size - directory < 2) return 1;
  uint32_t entries = number(tiff + directory, 2, big);
  const uint8_t *entry = tiff + directory + 2;
  for (uint32_t i = 0; i < entries && (size_t)(tiff + size - entry) >= 12; i++, entry += 12) {
    if (number(entry, 2, big) != 0x0112) continue;
    uint32_t value = number(entry + 8, 2, big);
    return value >= 1 && value <= 8 ? (int)value : 1;
  }
  return 1;
}

int jpeg_orientation(struct bytes jpeg) {
  size_t at = 2;
  while (jpeg.size - at >= 4 && jpeg.data[at] == 0xff && jpeg.data[at + 1] != 0xda) {
    size_t length = number(jpeg.data + at + 2, 2, 1);
    if (length < 2 || length > jpeg.size - at - 2) return 1;
    if (jpeg.data[at + 1] == 0xe1 && length >= 8 && memcmp(jpeg.data + at + 4, "Exif\0\0", 6) == 0) {
      return tiff_orientation(jpeg.data + at + 10, length - 8);
    }
    at += 2 + length;
  }
  return 1;
}

void turn_upright(int orientation, const uint8_t *pixels, int32_t width, int32_t height, uint8_t *upright) {
  int32_t columns = orientation_turns(orientation) ? height : width;
  int32_t rows = orientation_turns(orientation) ? width : height;
  for (int32_t row = 0; row < rows; row++) {
    for (int32_t column = 0; column < columns; column++) {
      int32_t x = orientation_turns(orientation) ? row : column;
      int32_t y = orientation_turns(orientation) ? column : row;
      /* 2, 3, 7 and 8 mirror x; 3, 4, 6 and 7 mirror y. */
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) x = width - 1 - x;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) y = height - 1 - y;
      memcpy(upright + 3 * ((size_t)row * columns + column), pixels + 3 * ((size_t)y * width + x), 3);
    }
  }
}
