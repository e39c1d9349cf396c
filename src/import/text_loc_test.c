// SPDX-License-Identifier: Apache-2.0
// text_loc_test.c - locations in text: their forms, those defined after their use, hostile ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "import/import.h"

// The one op of a function, at that location.
static vt_module *module_at(const char *loc, const char *definitions) {
  vt_text text = {0};
  vt_module *module = NULL;
  vt_text_printf(&text,
                 "func.func @main(%%a: tensor<f32> loc(unknown)) -> tensor<f32> {\n"
                 "  %%b = stablehlo.negate %%a : tensor<f32> %s\n"
                 "  return %%b : tensor<f32> loc(\"x\")\n} loc(#end)\n%s\n",
                 loc, definitions);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text.data, text.size}, &module);
  if (st) fail_msg("%s: %s", loc, vt_status_message(st));
  vt_text_free(&text);
  return module;
}

static void expect(const char *loc, const char *definitions, const char *name, const char *file,
                   int line) {
  vt_module *module = module_at(loc, definitions);
  const vt_loc *got = module->main->first->loc;
  if (strcmp(got->name, name) != 0 || strcmp(got->file, file) != 0 || got->line != line)
    fail_msg("%s: '%s' %s:%d", loc, got->name, got->file, got->line);
  vt_module_destroy(module);
}

static void every_form_is_read(void **state) {
  (void)state;
  expect("", "", "", "-", 2);
  expect("loc(unknown)", "", "", "-", 2);
  expect("loc(\"a.py\":12:4)", "", "", "a.py", 12);
  expect("loc(\"a.py\":12:4 to :20)", "", "", "a.py", 12);
  expect("loc(\"a.py\":12:4 to 13:20)", "", "", "a.py", 12);
  expect("loc(\"add\")", "", "add", "", 0);
  expect("loc(\"add\"(\"a.py\":3:1))", "", "add", "a.py", 3);
  expect("loc(callsite(\"f\"(\"a.py\":3:1) at \"b.py\":4:1))", "", "f", "a.py", 3);
  expect("loc(fused[unknown, \"a.py\":3:1])", "", "", "a.py", 3);
  expect("loc(fused<\"why\">[\"a.py\":3:1, \"b.py\":1:1])", "", "", "a.py", 3);
  expect("loc(future<form>)", "", "", "-", 2);
  expect("loc(#l)", "#l = loc(\"add\"(#m))\n#m = loc(\"a.py\":7:1)", "add", "a.py", 7);
  expect("loc(#missing)", "", "", "-", 2);
}

static void callers_are_kept(void **state) {
  (void)state;
  vt_module *module = module_at(
      "loc(#c)", "#c = loc(callsite(\"a.py\":3:1 at callsite(\"b.py\":4:1 at \"c.py\":5:1)))");
  const vt_loc *caller = module->main->first->loc->caller;
  assert_non_null(caller);
  assert_string_equal(caller->file, "b.py");
  assert_string_equal(caller->caller->file, "c.py");
  vt_module_destroy(module);
}

static void what_contains_itself_is_unknown(void **state) {
  (void)state;
  expect("loc(#l)", "#l = loc(#l)", "", "-", 2);
  expect("loc(#l)", "#l = loc(\"a\"(#l))", "", "-", 2);
  expect("loc(#l)", "#l = loc(callsite(#m at #l))\n#m = loc(\"b\"(#l))", "", "-", 2);
}

// Each names the one before; used from the last, and in the order in which they are defined.
static void chains_of_any_length_end(void **state) {
  (void)state;
  enum { LENGTH = 200000 };
  for (int forward = 0; forward < 2; forward++) {
    vt_text text = {0};
    vt_text_put(&text, "#l0 = loc(\"a.py\":1:1)\n");
    for (int i = 1; i < LENGTH; i++)
      vt_text_printf(&text, "#l%d = loc(\"n\"(#l%d))\n", i, forward ? i - 1 : (i + 1) % LENGTH);
    vt_module_destroy(module_at(forward ? "loc(#l199999)" : "loc(#l1)", vt_text_string(&text)));
    vt_text_free(&text);
  }
}

static void broken_ones_are_errors_or_unknown(void **state) {
  (void)state;
  static const char *const broken[] = {"loc(",       "loc(\"a",    "loc(\"a\"(", "loc(callsite(",
                                       "loc(fused[", "loc(\"a\":", "loc(#",      "loc"};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    char text[256];
    vt_module *module = NULL;
    int size = snprintf(text, sizeof text,
                        "func.func @main(%%a: tensor<f32>) -> tensor<f32> { %%b = stablehlo.negate "
                        "%%a : tensor<f32> %s",
                        broken[i]);
    char *exact = malloc((size_t)size); // overreads are caught
    memcpy(exact, text, (size_t)size);
    vt_status st = vt_import((vt_bytes){(const uint8_t *)exact, (size_t)size}, &module);
    assert_non_null(st);
    vt_status_free(st);
    free(exact);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_is_read),
      cmocka_unit_test(callers_are_kept),
      cmocka_unit_test(what_contains_itself_is_unknown),
      cmocka_unit_test(chains_of_any_length_end),
      cmocka_unit_test(broken_ones_are_errors_or_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
