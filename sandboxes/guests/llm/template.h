/* The chat template: what stands around what each side says. From the unit's configuration:
 *
 *   template.begin                 pieces at the start of every prompt
 *   template.ROLE.open, .close     pieces around a message of that role: system, user, assistant, tool
 *   template.generation            pieces after the last message: the assistant's turn begins
 *
 * A piece that is exactly the name of a token of the tokenizer is that token, any other is text. What people
 * write is always text, so no message can forge a token. */
#ifndef LLM_TEMPLATE_H
#define LLM_TEMPLATE_H

#include "json.h"
#include "options.h"
#include "parts.h"
#include "prompt.h"

/* Fills a prompt with the conversation: `options->system`, `options->messages`, then `text` as the user's last
 * message, each if it is there. EINVAL for what is no message; ENOTSUP for content that isn't text. */
int32_t prompt_chat(const struct fields *config, const struct options *options, struct bytes text,
                    struct prompt *prompt);

#endif
