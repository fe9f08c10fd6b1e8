/* Speech models that lose the thread say the same again and again. */
#ifndef ASR_REPETITION_H
#define ASR_REPETITION_H

#include <stddef.h>
#include <stdint.h>

/* If the tokens end in a loop, how many of them there are without its repetitions; else `count`. People
 * repeat words, too, so a loop is at least 24 tokens long and goes round four times. */
size_t without_loop(const int32_t *tokens, size_t count);

#endif
