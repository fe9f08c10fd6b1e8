#include "refuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mesh_v1.h"

#define LONGEST 512

static void answer(const char *format, va_list arguments) {
  char message[LONGEST];
  int length = vsnprintf(message, sizeof message, format, arguments);
  if (length >= LONGEST) length = LONGEST - 1;
  if (length > 0) mesh_reply(message, length);
}

int32_t refuse(int error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  answer(format, arguments);
  va_end(arguments);
  return -error;
}

int32_t fault(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  answer(format, arguments);
  va_end(arguments);
  return -EIO;
}

int32_t host_failure(int32_t result, const char *what) {
  switch (-result) {
    case EINVAL:
    case E2BIG:
    case ENOTSUP:
    case ENOENT:
    case ENOMSG:
    case EILSEQ:
      return fault("%s: the host answered: %s", what, strerror(-result));
    default:
      return result;
  }
}
