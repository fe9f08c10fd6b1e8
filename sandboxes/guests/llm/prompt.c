#include "prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mesh_v1.h"
#include "refuse.h"

/* The host encodes at most 1 MiB in one call. What is longer is cut at white space, where a tokenizer cuts,
 * too. */
#define LONGEST_PIECE (512 << 10)

void prompt_free(struct prompt *prompt) {
  free(prompt->ids);
  free(prompt->pending);
}

static int32_t grow(void **block, size_t *room, size_t wanted, size_t size) {
  if (wanted <= *room) return 0;
  size_t larger = wanted > 2 * *room ? wanted : 2 * *room;
  void *moved = realloc(*block, larger * size);
  if (moved == NULL) return refuse(E2BIG, "the sandbox has no room for a prompt that long");
  *block = moved;
  *room = larger;
  return 0;
}

int32_t prompt_text(struct prompt *prompt, const char *text, size_t length) {
  TRY(grow((void **)&prompt->pending, &prompt->pending_room, prompt->pending_size + length, 1));
  memcpy(prompt->pending + prompt->pending_size, text, length);
  prompt->pending_size += length;
  return 0;
}

static int32_t encode(struct prompt *prompt, const char *text, size_t length) {
  for (;;) {
    size_t free_room = prompt->room - prompt->count;
    int32_t count = mesh_text_encode(prompt->graph, text, (int32_t)length, prompt->ids + prompt->count,
                                     (int32_t)free_room);
    if (count < 0) return host_failure(count, "encoding the prompt");
    if ((size_t)count <= free_room) {
      prompt->count += (size_t)count;
      return 0;
    }
    TRY(grow((void **)&prompt->ids, &prompt->room, prompt->count + (size_t)count, sizeof *prompt->ids));
  }
}

/* Where a piece of at most LONGEST_PIECE bytes ends: before its last white space, else at a character's start. */
static size_t piece_end(const char *text, size_t length) {
  if (length <= LONGEST_PIECE) return length;
  for (size_t end = LONGEST_PIECE; end > LONGEST_PIECE / 2; end--) {
    if (text[end] == ' ' || text[end] == '\n') return end;
  }
  size_t end = LONGEST_PIECE;
  while (((unsigned char)text[end] & 0xc0) == 0x80) end--;
  return end;
}

int32_t prompt_end(struct prompt *prompt) {
  const char *text = prompt->pending;
  size_t left = prompt->pending_size;
  prompt->pending_size = 0;
  /* Byte-level tokenizers give at most a token a byte, and usually one for four. */
  if (left > 0) {
    size_t guess = prompt->count + (left < 64 ? left : left / 2);
    TRY(grow((void **)&prompt->ids, &prompt->room, guess, sizeof *prompt->ids));
  }
  while (left > 0) {
    prompt->cut = prompt->cut || prompt->count >= prompt->too_many;
    if (prompt->cut) return 0;
    size_t length = piece_end(text, left);
    TRY(encode(prompt, text, length));
    text += length;
    left -= length;
  }
  return 0;
}

int32_t prompt_token(struct prompt *prompt, int32_t id) {
  TRY(prompt_end(prompt));
  TRY(grow((void **)&prompt->ids, &prompt->room, prompt->count + 1, sizeof *prompt->ids));
  prompt->ids[prompt->count++] = id;
  return 0;
}
