#include "picture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "intact.h"
#include "orientation.h"
#include "refuse.h"
#include "tensor.h"

/* stb_image allocates its result itself. So that it decodes straight into the tensor's window, the first
 * request for exactly the result's size gets that window. Should a working buffer have the same size by
 * chance, it lies there harmlessly, and the result is copied over it. */
static struct {
  uint8_t *window;
  size_t pixels, room;
} lent;

static void *lend_or_allocate(size_t size) {
  /* The JPEG decoder asks for one byte more, since it writes four for its last pixel. */
  if (lent.window == NULL || size < lent.pixels || size > lent.pixels + 1 || size > lent.room) return malloc(size);
  void *window = lent.window;
  lent.window = NULL;
  return window;
}

static uint8_t *tensor_window;

static void release(void *block) {
  if (block != tensor_window) free(block);
}

static void *resize(void *block, size_t old, size_t size) {
  if (block != tensor_window || block == NULL) return realloc(block, size);
  void *copy = malloc(size);
  if (copy != NULL) memcpy(copy, block, old < size ? old : size);
  return copy;
}

/* Takes the SSE2 paths; emmintrin.h beside this file says what they are here. */
#define STBI__X64_TARGET
#define STBI_MALLOC(size) lend_or_allocate(size)
#define STBI_FREE(block) release(block)
#define STBI_REALLOC_SIZED(block, old, size) resize(block, old, size)
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_NO_THREAD_LOCALS
#define STBI_ASSERT(condition) ((void)(condition))
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Wsign-compare"
#include "stb_image.h"
#pragma clang diagnostic pop

#define GRANULE 65536
#define SUPPORTED "a picture (JPEG, PNG or BMP)"

static int32_t refuse_for_memory(const char *format) {
  return refuse(E2BIG, "the %s needs more memory to decode than the sandbox has", format);
}

static int32_t refuse_damaged(const char *format, const char *reason) {
  if (reason == NULL) reason = "unknown error";
  if (strcmp(reason, "outofmem") == 0 || strcmp(reason, "too large") == 0) {
    return refuse_for_memory(format);
  }
  /* What stb_image calls a valid file that it doesn't decode: 12-bit or lossless JPEG, BMP with run lengths. */
  static const char *const unsupported[] = {"only 8-bit", "bad component count", "no progressive", "BMP RLE",
                                            "unknown BMP", "1/2/4/8/16-bit only"};
  for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
    if (strcmp(reason, unsupported[i]) == 0) {
      return refuse(ENOTSUP, "this kind of %s isn't decoded here: %s", format, reason);
    }
  }
  return refuse(EINVAL, "the %s is damaged: %s", format, reason);
}

/* Room for a result of height × width × 3 in a tensor, mapped at `window`. */
static int32_t make_tensor(const char *format, int32_t height, int32_t width, int32_t *tensor, void **window) {
  int32_t dims[] = {height, width, 3};
  TRY(new_tensor(MESH_U8, 3, dims, "room for the picture", tensor));
  int32_t result = map_to_write(*tensor, window);
  return result == -ENOMEM ? refuse_for_memory(format) : result;
}

/* Decodes into the tensor. The result, if it lies elsewhere, is copied. */
static int32_t decode_into(struct bytes bytes, const char *format, size_t pixels, uint8_t *window) {
  int width, height, channels;
  tensor_window = window;
  lent.window = window;
  lent.pixels = pixels;
  lent.room = (pixels + GRANULE - 1) / GRANULE * GRANULE; /* a window is mapped in whole granules */
  uint8_t *result = stbi_load_from_memory(bytes.data, (int)bytes.size, &width, &height, &channels, STBI_rgb);
  if (result != NULL && result != window) {
    memcpy(window, result, pixels);
    free(result);
  }
  lent.window = tensor_window = NULL;
  return result == NULL ? refuse_damaged(format, stbi_failure_reason()) : 0;
}

static int32_t decode_turned(struct bytes bytes, const char *format, int orientation, struct picture *picture) {
  int width, height, channels;
  void *window;
  uint8_t *pixels = stbi_load_from_memory(bytes.data, (int)bytes.size, &width, &height, &channels, STBI_rgb);
  if (pixels == NULL) return refuse_damaged(format, stbi_failure_reason());
  picture->width = orientation_turns(orientation) ? height : width;
  picture->height = orientation_turns(orientation) ? width : height;
  TRY(make_tensor(format, picture->height, picture->width, &picture->tensor, &window));
  turn_upright(orientation, pixels, width, height, window);
  free(pixels);
  return unmap(picture->tensor);
}

/* Width and height, before anything is decoded. A BMP whose first row comes first has a negative height. */
static bool read_size(struct bytes bytes, int64_t *width, int64_t *height) {
  int x = 0, y = 0, channels;
  if (!stbi_info_from_memory(bytes.data, (int)bytes.size, &x, &y, &channels)) return false;
  *width = x;
  *height = y < 0 ? -(int64_t)y : y;
  return true;
}

int32_t decode_picture(struct bytes bytes, int64_t max_pixels, struct picture *picture) {
  int64_t width = 0, height = 0;
  void *window;
  const char *format = bytes.size == 0 ? NULL : format_of(bytes);
  if (format == NULL || (strcmp(format, "JPEG") != 0 && strcmp(format, "PNG") != 0 && strcmp(format, "BMP") != 0)) {
    return refuse_format(bytes, SUPPORTED);
  }
  bool readable = read_size(bytes, &width, &height);
  if (readable && width * height > max_pixels) {
    return refuse(E2BIG, "the picture has %lld pixels (%lld × %lld), at most %lld are taken", width * height, width,
                  height, max_pixels);
  }
  if (!is_whole(format, bytes)) {
    return refuse(EINVAL, "the %s is cut short: it ends after %zu bytes", format, bytes.size);
  }
  if (!readable) return refuse_damaged(format, stbi_failure_reason());
  if (width <= 0 || height == 0) return refuse(EINVAL, "the %s has no pixels (%lld × %lld)", format, width, height);
  int orientation = strcmp(format, "JPEG") == 0 ? jpeg_orientation(bytes) : 1;
  if (orientation != 1) return decode_turned(bytes, format, orientation, picture);
  picture->width = (int32_t)width;
  picture->height = (int32_t)height;
  TRY(make_tensor(format, picture->height, picture->width, &picture->tensor, &window));
  TRY(decode_into(bytes, format, (size_t)(width * height * 3), window));
  return unmap(picture->tensor);
}
