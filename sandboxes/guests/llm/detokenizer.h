/* Tokens become text, one by one. */
#ifndef LLM_DETOKENIZER_H
#define LLM_DETOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#define WINDOW_TOKENS 16
#define TOKEN_BYTES 4096

/* A tokenizer may let what a token reads like depend on its neighbours, so a window of the last tokens is
 * decoded, and what it has beyond the last time is new. */
struct detokenizer {
  int32_t graph;
  int32_t ids[WINDOW_TOKENS];
  int32_t count;
  size_t shown; /* bytes of the window's text that were given before */
  char text[TOKEN_BYTES];
};

/* The bytes that a further token adds, valid until the next call. They may end inside a character. */
int32_t detokenize(struct detokenizer *of, int32_t id, const char **added, size_t *size);

#endif
