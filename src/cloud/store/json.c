// SPDX-License-Identifier: Apache-2.0
// json.c - see json.h.
#include "cloud/store/json.h"

#include "base/memory.h"
#include "base/text.h"

static void *take(size_t size) {
  return vt_memory_resize(NULL, size);
}

void vt_json_start(void) {
  json_set_alloc_funcs(take, vt_memory_free);
}

static int put(const char *bytes, size_t size, void *text) {
  vt_text_put_n(text, bytes, size);
  return 0;
}

char *vt_json_text(const json_t *json, size_t flags) {
  vt_text text = {0};
  if (json_dump_callback(json, put, &text, flags) != 0) vt_text_free(&text);
  return text.data;
}
