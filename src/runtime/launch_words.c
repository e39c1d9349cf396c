// SPDX-License-Identifier: Apache-2.0
// launch_words.c - see launch_words.h. Little-endian numbers: kind, count, group, number, four
// more; then the list, then the text.
#include "runtime/launch_words.h"

#include <string.h>

enum { HEAD = 56 };

static void put(vt_text *out, uint64_t value, int bytes) {
  char at[8];
  for (int i = 0; i < bytes; i++) at[i] = (char)(value >> (8 * i));
  vt_text_put_n(out, at, (size_t)bytes);
}

static uint64_t get(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

void vt_word_write(const vt_word *word, vt_text *out) {
  put(out, word->kind, 4);
  put(out, word->param_count, 4);
  put(out, word->group, 8);
  put(out, word->number, 8);
  put(out, word->fingerprint, 8);
  put(out, word->variant, 8);
  put(out, word->index, 8);
  put(out, word->position, 4);
  put(out, word->code, 4);
  if (word->param_count) vt_text_put_n(out, word->agreed, (size_t)word->param_count * 8);
  size_t text = word->text.size < VT_WORD_TEXT ? word->text.size : VT_WORD_TEXT;
  if (text) vt_text_put_n(out, word->text.data, text);
}

vt_status vt_word_read(vt_bytes bytes, vt_word *out_word) {
  const uint8_t *at = bytes.data;
  if (bytes.size < HEAD) return vt_error(VT_INVALID_ARGUMENT, "a message of %zu bytes", bytes.size);
  uint64_t kind = get(at, 4), list = get(at + 4, 4) * 8;
  if (kind < VT_WORD_LAUNCH || kind > VT_WORD_NO_ARRAY || (list && kind != VT_WORD_LAUNCH) ||
      list > bytes.size - HEAD || bytes.size - HEAD - list > VT_WORD_TEXT)
    return vt_error(VT_INVALID_ARGUMENT, "a message of kind %u with %u numbers in %zu bytes",
                    (unsigned)kind, (unsigned)(list / 8), bytes.size);
  *out_word = (vt_word){.kind = (vt_word_kind)kind,
                        .param_count = (uint32_t)(list / 8),
                        .group = get(at + 8, 8),
                        .number = get(at + 16, 8),
                        .fingerprint = get(at + 24, 8),
                        .variant = get(at + 32, 8),
                        .index = get(at + 40, 8),
                        .position = (uint32_t)get(at + 48, 4),
                        .code = (uint32_t)get(at + 52, 4),
                        .agreed = at + HEAD,
                        .text = {at + HEAD + list, bytes.size - HEAD - list}};
  return VT_OK;
}

uint64_t vt_word_agreed(const vt_word *word, uint32_t param) {
  return get(word->agreed + (size_t)param * 8, 8);
}
