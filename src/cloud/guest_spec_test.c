// SPDX-License-Identifier: Apache-2.0
// guest_spec_test.c - the Python of a runtime version.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cloud/guest_spec.h"

static void python_by_version(void **state) {
  (void)state;
  static const struct {
    const char *list, *version, *want;
  } rows[] = {{"", "v2-alpha", ""},
              {"/jax/bin", "v2-alpha", "/jax/bin"},
              {"pt-2.0=/pt/bin,/jax/bin", "pt-2.0", "/pt/bin"},
              {"pt-2.0=/pt/bin,/jax/bin", "pt-2.1", "/jax/bin"},
              {"/jax/bin,pt-2.0=/pt/bin", "pt-2.0", "/pt/bin"},
              {"pt-2.0=/pt/bin", "pt-2", ""},
              {"pt-2=/a,pt-2.0=/b", "pt-2.0", "/b"},
              {"pt-2.0=,/jax/bin", "pt-2.0", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char folder[4096];
    vt_guest_python(rows[i].list, rows[i].version, folder);
    assert_string_equal(folder, rows[i].want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(python_by_version)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
