// SPDX-License-Identifier: Apache-2.0
// hlo_test.c - programs and their HLO, as text: hlo.txt.
//
//   // case: what it shows
//   // before
//   StableHLO
//   // after
//   HLO
//
// `hlo_test --update` rewrites the after parts. Whether XLA reads the messages, agrees with the
// text and computes the same is tested with jaxlib: tests/python/test_hlo.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "hlo/hlo.h"
#include "import/import.h"

static bool update;

static void print(vt_bytes program, vt_text *out) {
  vt_module *module = NULL;
  vt_hlo *hlo = NULL;
  vt_hlo_options options = {0};
  vt_status st = vt_import(program, &module);
  if (!st) st = vt_hlo_build(module, &options, &hlo);
  if (st)
    vt_text_printf(out, "error: %s\n\n", vt_status_message(st));
  else
    vt_hlo_print(hlo, VT_HLO_SHORT, out);
  vt_status_free(st);
  vt_hlo_destroy(hlo);
  vt_module_destroy(module);
}

// The line that starts at `at` or later and begins with `mark`; the end of the text without one.
static const char *find(const char *at, const char *end, const char *mark) {
  while (at < end) {
    if (!strncmp(at, mark, strlen(mark))) return at;
    const char *next = memchr(at, '\n', (size_t)(end - at));
    at = next ? next + 1 : end;
  }
  return end;
}

static void hlo_of_programs(void **state) {
  (void)state;
  static const char before[] = "// before\n", after[] = "// after\n";
  const char *path = VTPU_SOURCE_DIR "/src/hlo/hlo.txt";
  vt_bytes file = {0};
  vt_text whole = {0}, written = {0};
  int cases = 0;
  assert_null(vt_file_map(path, &file));
  vt_text_put_n(&whole, file.data, file.size); // ends in a NUL
  vt_file_unmap(&file);
  const char *at = vt_text_string(&whole), *end = at + whole.size;
  while (at < end) {
    const char *program = find(at, end, before), *hlo = find(program, end, after);
    if (program == end) break;
    const char *next = find(hlo, end, "// case");
    vt_text_put_n(&written, at, (size_t)(hlo + strlen(after) - at));
    program += strlen(before);
    hlo += strlen(after);
    vt_text made = {0};
    print((vt_bytes){(const uint8_t *)program, (size_t)(hlo - strlen(after) - program)}, &made);
    if (!update && (made.size != (size_t)(next - hlo) || memcmp(made.data, hlo, made.size)))
      fail_msg("%.*s\ngives:\n%s", (int)(program - at), at, vt_text_string(&made));
    vt_text_put_n(&written, made.data, made.size);
    vt_text_free(&made);
    at = next;
    cases++;
  }
  assert_true(cases >= 6);
  if (update) assert_null(vt_file_write(path, written.data, written.size));
  vt_text_free(&whole);
  vt_text_free(&written);
}

int main(int argc, char **argv) {
  update = argc > 1 && !strcmp(argv[1], "--update");
  const struct CMUnitTest tests[] = {cmocka_unit_test(hlo_of_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
