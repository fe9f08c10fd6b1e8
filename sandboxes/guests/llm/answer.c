#include "answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

void answer_free(struct answer *answer) { free(answer->text); }

static int32_t append(struct answer *answer, const char *text, size_t size) {
  if (answer->size + size > answer->room) {
    size_t room = 2 * (answer->size + size) + 64;
    char *moved = realloc(answer->text, room);
    if (moved == NULL) return -ENOMEM;
    answer->text = moved;
    answer->room = room;
  }
  memcpy(answer->text + answer->size, text, size);
  answer->size += size;
  return 0;
}

/* Appends one byte's worth of the stream; bytes of a character gather until it is whole. */
static int32_t append_byte(struct answer *answer, char byte) {
  answer->unfinished[answer->unfinished_size++] = byte;
  int length = utf8_length(answer->unfinished, answer->unfinished_size);
  if (length == 0) return 0;
  size_t gathered = answer->unfinished_size;
  answer->unfinished_size = 0;
  if (length > 0) return append(answer, answer->unfinished, gathered);
  int32_t result = append(answer, REPLACEMENT, 3);
  /* The byte that broke a character off may itself begin one. */
  return result == 0 && gathered > 1 ? append_byte(answer, byte) : result;
}

/* Ends the text before the first stop string that lies in it, from `from` on. */
static void look_for_stops(struct answer *answer, size_t from) {
  for (size_t i = 0; i < answer->stop_count; i++) {
    size_t length = strlen(answer->stops[i]);
    for (size_t at = from > length ? from - length : 0; at + length <= answer->size; at++) {
      if (memcmp(answer->text + at, answer->stops[i], length) != 0) continue;
      answer->size = at;
      answer->stopped = true;
      break;
    }
  }
}

int32_t answer_add(struct answer *answer, const char *bytes, size_t size) {
  size_t before = answer->size;
  for (size_t i = 0; i < size; i++) {
    int32_t result = append_byte(answer, bytes[i]);
    if (result < 0) return result;
  }
  look_for_stops(answer, before);
  return 0;
}

int32_t answer_end(struct answer *answer) {
  if (answer->unfinished_size == 0 || answer->stopped) return 0;
  answer->unfinished_size = 0;
  return append(answer, REPLACEMENT, 3);
}

/* The longest end of the text that begins a stop string. */
static size_t possible_stop(const struct answer *answer) {
  size_t longest = 0;
  for (size_t i = 0; i < answer->stop_count; i++) {
    size_t length = strlen(answer->stops[i]) - 1;
    if (length > answer->size) length = answer->size;
    while (length > longest && memcmp(answer->text + answer->size - length, answer->stops[i], length) != 0) length--;
    if (length > longest) longest = length;
  }
  return longest;
}

size_t answer_ready(struct answer *answer, bool ended, const char **text) {
  size_t end = answer->size - (ended ? 0 : possible_stop(answer));
  size_t from = answer->shown;
  if (end <= from) return 0;
  *text = answer->text + from;
  answer->shown = end;
  return end - from;
}
