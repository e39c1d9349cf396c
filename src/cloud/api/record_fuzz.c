// SPDX-License-Identifier: Apache-2.0
// record_fuzz.c - any bytes as text, as parameters and as JSON of a recorded call. A secret
// appended to them is never written, and valid text stays valid.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/record.h"
#include "cloud/store/json.h"

#define PLANTED "Hunter2Hunter2"

typedef void (*redactor)(const char *text, size_t size, vt_text *out);

static void check(redactor redact, const uint8_t *data, size_t size, const char *end) {
  vt_text in = {0}, out = {0};
  vt_text_put_n(&in, data, size);
  vt_text_put(&in, end);
  char *exact = malloc(in.size); // to detect overreads
  if (!exact) abort();
  memcpy(exact, in.data, in.size);
  redact(exact, in.size, &out);
  if (memmem(vt_text_string(&out), out.size, PLANTED, strlen(PLANTED))) abort();
  json_t *before = json_stringn(in.data, in.size), *after = json_stringn(out.data, out.size);
  if (before && !after) abort();
  json_decref(before);
  json_decref(after);
  free(exact);
  vt_text_free(&in);
  vt_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (memmem(data, size, "unter2", 6)) return 0; // recognized by its format
  check(vt_record_redact_text, data, size, "\npassword=" PLANTED);
  check(vt_record_redact_text, data, size, "\n{\"api_key\": \"" PLANTED "\"}");
  check(vt_record_redact_pairs, data, size, "&client_secret=" PLANTED);
  json_t *value = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
  if (!value) return 0;
  json_t *whole = json_pack("{s:O, s:[s, s], s:{s:s, s:s}}", "any", value, "tokens", PLANTED,
                            PLANTED, "x", "key", "HF_TOKEN", "value", PLANTED);
  json_t *clean = vt_record_redact_json(whole);
  char *text = vt_json_text(clean, JSON_COMPACT);
  if (!text || strstr(text, PLANTED)) abort();
  vt_memory_free(text);
  json_decref(clean);
  json_decref(whole);
  json_decref(value);
  return 0;
}
