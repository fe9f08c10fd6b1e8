#include "template.h"

#include <errno.h>
#include <string.h>

#include "mesh_v1.h"
#include "refuse.h"

#define REMEMBERED 64

/* The token that a piece of the template names, or -ENOENT. The configuration lives as long as the instance, so
 * a piece is known by its address, and the host is asked once however many turns there are. */
static int32_t token_of(int32_t graph, yyjson_val *piece) {
  static struct {
    yyjson_val *piece;
    int32_t id;
  } known[REMEMBERED];
  static size_t count;
  for (size_t i = 0; i < count; i++) {
    if (known[i].piece == piece) return known[i].id;
  }
  int32_t id = mesh_text_token(graph, yyjson_get_str(piece), (int32_t)yyjson_get_len(piece));
  if (count < REMEMBERED && (id >= 0 || id == -ENOENT)) {
    known[count].piece = piece;
    known[count++].id = id;
  }
  return id;
}

/* One list of pieces of the template. */
static int32_t add_pieces(const struct fields *of, const char *name, struct prompt *prompt) {
  yyjson_val *pieces = NULL, *piece;
  size_t index, count;
  TRY(field_list(of, name, &pieces));
  yyjson_arr_foreach(pieces, index, count, piece) {
    if (!yyjson_is_str(piece)) return field_error(of, name, "a list of strings");
    int32_t id = token_of(prompt->graph, piece);
    if (id < 0 && id != -ENOENT) return host_failure(id, "reading the template");
    TRY(id >= 0 ? prompt_token(prompt, id) : prompt_text(prompt, yyjson_get_str(piece), yyjson_get_len(piece)));
  }
  return 0;
}

/* A message's content: a string, or a list of {"type":"text","text":…}. */
static int32_t add_content(yyjson_val *content, size_t number, struct prompt *prompt) {
  yyjson_val *entry;
  size_t index, count;
  if (content == NULL || yyjson_is_null(content)) return 0; /* a turn that only called tools has none */
  if (yyjson_is_str(content)) return prompt_text(prompt, yyjson_get_str(content), yyjson_get_len(content));
  if (!yyjson_is_arr(content)) {
    return refuse(EINVAL, "messages[%zu].content: expected a string or a list of parts", number);
  }
  yyjson_arr_foreach(content, index, count, entry) {
    const char *type = yyjson_get_str(yyjson_obj_get(entry, "type"));
    yyjson_val *text = yyjson_obj_get(entry, "text");
    if (type == NULL) return refuse(EINVAL, "messages[%zu].content[%zu]: a part has a type", number, index);
    if (strcmp(type, "text") != 0) {
      return refuse(ENOTSUP, "messages[%zu].content[%zu]: this unit takes text, not %s", number, index, type);
    }
    if (!yyjson_is_str(text)) {
      return refuse(EINVAL, "messages[%zu].content[%zu].text: expected a string", number, index);
    }
    TRY(prompt_text(prompt, yyjson_get_str(text), yyjson_get_len(text)));
  }
  return 0;
}

/* The template's section of a role. `developer` is what newer clients call the system. */
static int32_t open_turn(const struct fields *template, const char *role, size_t number, struct prompt *prompt,
                         struct fields *turn) {
  const char *known = strcmp(role, "developer") == 0 ? "system" : role;
  if (!yyjson_is_obj(yyjson_obj_get(template->object, known))) {
    return refuse(EINVAL, "messages[%zu].role: this model knows no '%s'", number, role);
  }
  TRY(fields_within(template, known, turn));
  return add_pieces(turn, "open", prompt);
}

static int32_t add_text_turn(const struct fields *template, const char *role, const char *text, size_t length,
                             size_t number, struct prompt *prompt) {
  struct fields turn;
  TRY(open_turn(template, role, number, prompt, &turn));
  TRY(prompt_text(prompt, text, length));
  return add_pieces(&turn, "close", prompt);
}

static bool has_system(yyjson_val *messages) {
  yyjson_val *role = yyjson_obj_get(yyjson_arr_get_first(messages), "role");
  return yyjson_equals_str(role, "system") || yyjson_equals_str(role, "developer");
}

int32_t prompt_chat(const struct fields *config, const struct options *options, struct bytes text,
                    struct prompt *prompt) {
  struct fields template, turn;
  yyjson_val *message;
  size_t index, count;
  TRY(fields_within(config, "template", &template));
  if (template.object == NULL) return fault("config.template is missing: this unit can't chat");
  TRY(add_pieces(&template, "begin", prompt));
  if (options->system != NULL && *options->system != '\0' && !has_system(options->messages)) {
    TRY(add_text_turn(&template, "system", options->system, strlen(options->system), 0, prompt));
  }
  yyjson_arr_foreach(options->messages, index, count, message) {
    const char *role = yyjson_get_str(yyjson_obj_get(message, "role"));
    if (role == NULL) return refuse(EINVAL, "messages[%zu]: expected an object with role and content", index);
    TRY(open_turn(&template, role, index, prompt, &turn));
    TRY(add_content(yyjson_obj_get(message, "content"), index, prompt));
    TRY(add_pieces(&turn, "close", prompt));
  }
  if (text.size > 0) TRY(add_text_turn(&template, "user", (const char *)text.data, text.size, count, prompt));
  return add_pieces(&template, "generation", prompt);
}
