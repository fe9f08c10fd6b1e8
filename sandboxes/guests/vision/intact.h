/* Whether a picture's file is all there. The decoder fills in what is missing and says nothing. */
#ifndef VISION_INTACT_H
#define VISION_INTACT_H

#include <stdbool.h>

#include "parts.h"

/* Whether the file reaches the end that its format prescribes. `format` as format_of names it. */
bool is_whole(const char *format, struct bytes bytes);

#endif
