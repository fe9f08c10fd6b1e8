/* What a WAV file says it holds, against what it does hold. */
#ifndef ASR_WAV_H
#define ASR_WAV_H

#include "parts.h"

/* Refuses (EINVAL) a WAV whose header promises more samples than follow, or none at all. Writers to a pipe
 * can't know the length and put a placeholder there: such a file is taken for as long as it is. Decoders fill
 * in or cut without a word, and half a recording would look like a whole one. */
int32_t check_wav(struct bytes file);

#endif
