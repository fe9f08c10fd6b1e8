/* A picture's bytes become a tensor u8 [height, width, 3], RGB. */
#ifndef VISION_PICTURE_H
#define VISION_PICTURE_H

#include "parts.h"

struct picture {
  int32_t tensor;
  int32_t width, height; /* as it is to be seen: after the turn that its EXIF data ask for */
};

/* JPEG, PNG or BMP. E2BIG above max_pixels, found out before anything is decoded; ENOTSUP for other formats
 * and for kinds of these that the decoder doesn't know; EINVAL for what is empty, cut short or damaged. */
int32_t decode_picture(struct bytes bytes, int64_t max_pixels, struct picture *picture);

#endif
