// SPDX-License-Identifier: Apache-2.0
// text.c - see text.h.
#include "base/check.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static void reserve(vt_text *text, size_t more) {
  vt_assert(text->size < text->capacity || !text->capacity);
  if (text->capacity - text->size > more) return;
  size_t capacity = text->capacity ? text->capacity * 2 : 256;
  while (capacity - text->size <= more) capacity *= 2;
  text->data = vt_memory_resize(text->data, capacity);
  text->capacity = capacity;
}

void vt_text_put_n(vt_text *text, const void *bytes, size_t size) {
  vt_assert(text->size <= text->capacity && (bytes || !size));
  reserve(text, size);
  if (size) memcpy(text->data + text->size, bytes, size);
  text->size += size;
  text->data[text->size] = 0;
}

typedef struct piece {
  vt_text *text;
  const void *bytes;
  size_t size;
} piece;

static vt_status put_piece(void *user) {
  const piece *p = user;
  vt_text_put_n(p->text, p->bytes, p->size);
  return VT_OK;
}

bool vt_text_try_put_n(vt_text *text, const void *bytes, size_t size) {
  piece p = {text, bytes, size};
  return vt_attempt_keep(put_piece, &p) == VT_OK;
}

void vt_text_put(vt_text *text, const char *string) {
  vt_assert(string);
  vt_text_put_n(text, string, strlen(string));
}

void vt_text_printf(vt_text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (n > 0) {
    reserve(text, (size_t)n);
    vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
    text->size += (size_t)n;
  }
  va_end(again);
}

const char *vt_text_string(const vt_text *text) {
  return text->data ? text->data : "";
}

void vt_text_free(vt_text *text) {
  vt_memory_free(text->data);
  *text = (vt_text){0};
}

int vt_text_distance(const char *typed, const char *known) {
  int row[64];
  size_t n = strlen(known), m = strlen(typed);
  if (n > 63) n = 63;
  if (m >= 2 && m < n && !strncmp(typed, known, m)) return 1;
  for (size_t j = 0; j <= n; j++) row[j] = (int)j;
  for (size_t i = 1; i <= m; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= n; j++) {
      int best = diagonal + (typed[i - 1] != known[j - 1]);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return 2 * row[n];
}
