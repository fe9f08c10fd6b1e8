#include "utf8.h"

int utf8_length(const char *text, size_t size) {
  const unsigned char *bytes = (const unsigned char *)text;
  if (size == 0) return 0;
  if (bytes[0] < 0x80) return 1;
  if (bytes[0] < 0xc2 || bytes[0] > 0xf4) return -1;
  int length = bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
  /* The second byte also rules out overlong forms, surrogates and what lies above U+10FFFF. */
  unsigned char least = bytes[0] == 0xe0 ? 0xa0 : bytes[0] == 0xf0 ? 0x90 : 0x80;
  unsigned char most = bytes[0] == 0xed ? 0x9f : bytes[0] == 0xf4 ? 0x8f : 0xbf;
  for (int i = 1; i < length; i++) {
    if ((size_t)i == size) return 0;
    if (bytes[i] < least || bytes[i] > most) return -1;
    least = 0x80;
    most = 0xbf;
  }
  return length;
}

size_t utf8_valid(const char *text, size_t size) {
  size_t at = 0;
  while (at < size) {
    int length = utf8_length(text + at, size - at);
    if (length <= 0) return at;
    at += (size_t)length;
  }
  return size;
}
