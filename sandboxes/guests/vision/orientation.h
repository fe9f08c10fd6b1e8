/* How a camera was held, as EXIF records it. */
#ifndef VISION_ORIENTATION_H
#define VISION_ORIENTATION_H

#include "parts.h"

/* EXIF's orientation, 1 to 8, of a JPEG; 1 (upright) if the file says none or nonsense. */
int jpeg_orientation(struct bytes jpeg);

/* Whether width and height change places. */
static inline int orientation_turns(int orientation) { return orientation >= 5; }

/* Copies RGB pixels [height, width] so that they stand upright. */
void turn_upright(int orientation, const uint8_t *pixels, int32_t width, int32_t height, uint8_t *upright);

#endif
