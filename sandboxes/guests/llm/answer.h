/* The answer's text as it grows: what may be shown, and where it ends. */
#ifndef LLM_ANSWER_H
#define LLM_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text is always valid UTF-8; what the model writes beyond that reads as U+FFFD. */
struct answer {
  const char *const *stops;
  size_t stop_count;
  char *text;
  size_t size, room;
  size_t shown;       /* bytes that answer_ready gave before */
  char unfinished[4]; /* the beginning of a character whose end hasn't come */
  size_t unfinished_size;
  bool stopped; /* a stop string was met; the text ends before it */
};

void answer_free(struct answer *answer);

/* Adds what a token reads like. */
int32_t answer_add(struct answer *answer, const char *bytes, size_t size);

/* No more comes: an unfinished character is shown as U+FFFD. */
int32_t answer_end(struct answer *answer);

/* What has become ready to be shown since the last call: not what may turn out to begin a stop string, unless
 * the answer has `ended`. */
size_t answer_ready(struct answer *answer, bool ended, const char **text);

#endif
