/* The generic speech unit: a recording is decoded here, in the sandbox, cut into windows where nobody speaks,
 * and each window transcribed. See docs/guests.md. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mesh_v1.h"
#include "parts.h"
#include "refuse.h"
#include "sound.h"
#include "speech.h"
#include "tensor.h"
#include "window.h"

MESH_UNIT

#define MAX_SECONDS 600

/* The reply in the making. */
struct report {
  yyjson_mut_doc *doc;
  yyjson_mut_val *segments;
  char *text;
  size_t size;
  bool stream;
};

static yyjson_mut_val *segment(yyjson_mut_doc *doc, const struct window *window, const char *text) {
  yyjson_mut_val *entry = yyjson_mut_obj(doc);
  yyjson_mut_obj_add_val(doc, entry, "start", short_real(doc, (double)window->begin / RATE));
  yyjson_mut_obj_add_val(doc, entry, "end", short_real(doc, (double)(window->begin + window->count) / RATE));
  yyjson_mut_obj_add_strcpy(doc, entry, "text", text);
  return entry;
}

/* A window's text joins the whole, after a space; the chunks of a stream add up to the same. */
static int32_t add(struct report *report, const struct window *window, const char *text) {
  size_t length = strlen(text), before = report->size;
  char *longer = realloc(report->text, before + length + 2);
  if (longer == NULL) return -ENOMEM;
  report->text = longer;
  if (before > 0 && length > 0) longer[report->size++] = ' ';
  memcpy(longer + report->size, text, length + 1);
  report->size += length;
  yyjson_mut_arr_append(report->segments, segment(report->doc, window, text));
  if (!report->stream) return 0;
  yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
  yyjson_mut_val *root = yyjson_mut_obj(doc);
  yyjson_mut_doc_set_root(doc, root);
  yyjson_mut_obj_add_strncpy(doc, root, "delta", longer + before, report->size - before);
  yyjson_mut_obj_add_val(doc, root, "segment", segment(doc, window, text));
  return emit_json(doc);
}

static int32_t transcribe_all(struct speech *speech, struct sound *sound, struct report *report) {
  struct windows windows = {.sound = sound, .longest = speech->window};
  struct window window;
  int32_t result;
  while ((result = next_window(&windows, &window)) == 0 && window.count > 0) {
    char *text = NULL;
    result = transcribe(speech, &window, &text);
    if (result == 0) result = add(report, &window, text);
    free(text);
    drop_tensor(window.tensor);
    if (result < 0) break;
  }
  windows_free(&windows);
  return result;
}

static int32_t answer(const struct fields *config, struct bytes bytes, const char *language, bool stream) {
  struct sound sound;
  struct speech speech;
  double max_seconds = MAX_SECONDS;
  TRY(field_number(config, "max_seconds", 1, 86400, &max_seconds));
  TRY(sound_open(bytes, max_seconds, &sound));
  struct report report = {.doc = yyjson_mut_doc_new(NULL), .stream = stream};
  report.segments = yyjson_mut_arr(report.doc);
  int32_t result = speech_open(config, &speech);
  if (result == 0) {
    result = transcribe_all(&speech, &sound, &report);
    speech_close(&speech);
  }
  sound_close(&sound);
  if (result == 0) {
    yyjson_mut_val *root = yyjson_mut_obj(report.doc);
    yyjson_mut_doc_set_root(report.doc, root);
    yyjson_mut_obj_add_str(report.doc, root, "text", report.text ? report.text : "");
    yyjson_mut_obj_add_str(report.doc, root, "language", language);
    yyjson_mut_obj_add_val(report.doc, root, "duration", short_real(report.doc, (double)sound.read / RATE));
    yyjson_mut_obj_add_val(report.doc, root, "segments", report.segments);
    result = reply_json(report.doc);
  } else {
    yyjson_mut_doc_free(report.doc);
  }
  free(report.text);
  return result;
}

static int32_t handle(void) {
  struct fields config, params;
  struct part part;
  struct bytes bytes;
  const char *language = "en", *asked = NULL;
  bool stream = false;
  TRY(config_fields(&config));
  TRY(request_params(&params));
  TRY(field_text(&config, "language", &language));
  TRY(field_text(&params, "language", &asked));
  TRY(field_bool(&params, "stream", &stream));
  if (asked != NULL && strcmp(asked, language) != 0) {
    return refuse(ENOTSUP, "this unit transcribes the language '%s', not '%s'", language, asked);
  }
  TRY(only_part("audio/", "sound (WAV or FLAC)", &part));
  TRY(part_bytes(&part, &bytes));
  return answer(&config, bytes, language, stream);
}

int32_t mesh_handle(void) {
  int32_t result = handle();
  end_request();
  return result;
}
