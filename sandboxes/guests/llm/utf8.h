/* UTF-8 (RFC 3629), character by character. */
#ifndef LLM_UTF8_H
#define LLM_UTF8_H

#include <stddef.h>

/* The length of the character at the start of `text`, 1 to 4; 0 if the text ends inside it; -1 if no character
 * begins like that. */
int utf8_length(const char *text, size_t size);

/* Where the text stops being UTF-8; its size if nowhere. */
size_t utf8_valid(const char *text, size_t size);

#endif
