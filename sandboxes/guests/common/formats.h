/* Which file format bytes are of, by how they begin. */
#ifndef GUEST_FORMATS_H
#define GUEST_FORMATS_H

#include "parts.h"

/* The format's name as people say it ("JPEG", "WAV", "MP3", …), or NULL. */
const char *format_of(struct bytes bytes);

/* Why content isn't one of the formats that `supported` names: ENOTSUP with the name of what it is, EINVAL
 * with its first bytes where nobody knows. */
int32_t refuse_format(struct bytes bytes, const char *supported);

#endif
