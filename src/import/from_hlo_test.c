// SPDX-License-Identifier: Apache-2.0
// from_hlo_test.c - programs in HLO and the modules they become, or why they are refused:
// from_hlo.txt.
//
//   // case: what it shows
//   // before
//   HLO
//   // after
//   StableHLO, or the error
//
// `from_hlo_test --update` rewrites the after parts.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "import/import.h"

static bool update;

// What main's signature does not show.
static void print_infos(const vt_func *main, vt_text *out) {
  for (uint32_t i = 0; i < main->param_count; i++) {
    const vt_io_info *info = &main->param_info[i];
    vt_text_printf(out, "// parameter %u:%s%s%s%s", i, info->layout_mode[0] ? " " : "",
                   info->layout_mode, info->donor ? " donated" : "",
                   info->sharding ? " sharded" : "");
    if (info->alias_output >= 0) vt_text_printf(out, " for result %d", info->alias_output);
    vt_text_put(out, "\n");
  }
  for (uint32_t i = 0; i < main->return_count; i++)
    vt_text_printf(out, "// result %u: %s\n", i, main->return_info[i].memory_kind);
}

static void print(vt_bytes program, vt_text *out) {
  vt_module *module = NULL;
  vt_status st = vt_import(program, &module);
  if (st) {
    vt_text_printf(out, "error: %s\n\n", vt_status_message(st));
  } else {
    print_infos(module->main, out);
    vt_module_print(module, false, out);
    vt_text_put(out, "\n");
  }
  vt_status_free(st);
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

static void modules_of_programs(void **state) {
  (void)state;
  static const char before[] = "// before\n", after[] = "// after\n";
  const char *path = VTPU_SOURCE_DIR "/src/import/from_hlo.txt";
  vt_bytes file = {0};
  vt_text whole = {0}, written = {0};
  int cases = 0;
  assert_null(vt_file_map(path, &file));
  vt_text_put_n(&whole, file.data, file.size); // ends in a NUL
  vt_file_unmap(&file);
  const char *at = vt_text_string(&whole), *end = at + whole.size;
  while (at < end) {
    const char *program = find(at, end, before), *module = find(program, end, after);
    if (program == end) break;
    const char *next = find(module, end, "// case");
    vt_text_put_n(&written, at, (size_t)(module + strlen(after) - at));
    program += strlen(before);
    size_t size = (size_t)(module - program);
    module += strlen(after);
    vt_text made = {0};
    print((vt_bytes){(const uint8_t *)program, size}, &made);
    if (!update && (made.size != (size_t)(next - module) || memcmp(made.data, module, made.size)))
      fail_msg("%.*s\ngives:\n%s", (int)(program - at), at, vt_text_string(&made));
    vt_text_put_n(&written, made.data, made.size);
    vt_text_free(&made);
    at = next;
    cases++;
  }
  assert_true(cases >= 20);
  if (update) assert_null(vt_file_write(path, written.data, written.size));
  vt_text_free(&whole);
  vt_text_free(&written);
}

int main(int argc, char **argv) {
  update = argc > 1 && !strcmp(argv[1], "--update");
  const struct CMUnitTest tests[] = {cmocka_unit_test(modules_of_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
