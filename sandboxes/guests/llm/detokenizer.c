#include "detokenizer.h"

#include <string.h>

#include "mesh_v1.h"
#include "refuse.h"

static int32_t decode(struct detokenizer *of) {
  int32_t size = mesh_text_decode(of->graph, of->ids, of->count, of->text, sizeof of->text);
  if (size < 0) return host_failure(size, "decoding the answer");
  if ((size_t)size > sizeof of->text) return fault("%d tokens read as %d bytes", of->count, size);
  return size;
}

/* Forgets all but the last token, from which the window grows anew. */
static int32_t shift(struct detokenizer *of) {
  of->ids[0] = of->ids[of->count - 1];
  of->count = 1;
  int32_t size = decode(of);
  if (size >= 0) of->shown = (size_t)size;
  return size;
}

/* How much of the text is settled: a replacement character at its end may be one that lacks bytes. */
static size_t settled(const char *text, size_t size) {
  while (size >= 3 && memcmp(text + size - 3, "\xef\xbf\xbd", 3) == 0) size -= 3;
  return size;
}

int32_t detokenize(struct detokenizer *of, int32_t id, const char **added, size_t *size) {
  if (of->count == WINDOW_TOKENS) TRY(shift(of));
  of->ids[of->count++] = id;
  int32_t whole = decode(of);
  if (whole < 0) return whole;
  size_t end = settled(of->text, (size_t)whole);
  if (end < of->shown) end = of->shown;
  *added = of->text + of->shown;
  *size = end - of->shown;
  of->shown = end;
  return 0;
}
