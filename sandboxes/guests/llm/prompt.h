/* A prompt as tokens. */
#ifndef LLM_PROMPT_H
#define LLM_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens of a prompt in the making. Text that follows text is encoded together with it, since tokens may
 * span both; a special token ends it. */
struct prompt {
  int32_t graph;     /* whose tokenizer is used */
  size_t too_many;   /* with so many tokens the prompt is refused anyway, so no more text is encoded */
  bool cut;          /* that happened: there would be more */
  int32_t *ids;
  size_t count, room;
  char *pending;     /* text that isn't encoded yet */
  size_t pending_size, pending_room;
};

void prompt_free(struct prompt *prompt);
int32_t prompt_text(struct prompt *prompt, const char *text, size_t length);
int32_t prompt_token(struct prompt *prompt, int32_t id);

/* Encodes what is pending. */
int32_t prompt_end(struct prompt *prompt);

#endif
