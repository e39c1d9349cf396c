// SPDX-License-Identifier: Apache-2.0
// guest_spec_test.c - the Python of a runtime version.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "cloud/control/guest_spec.h"

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
    vt_worker_python(rows[i].list, rows[i].version, folder);
    assert_string_equal(folder, rows[i].want);
  }
}

// Two addresses of level 1 share no id with each other or with the host.
static void every_address_has_ids_of_its_own(void **state) {
  static bool taken[VT_WORKER_RANGES + 16];
  char ip[32];
  (void)state;
  for (int n = 0; n < VT_WORKER_RANGES; n++) {
    snprintf(ip, sizeof ip, "127.64.%d.%d", n / 254, 1 + n % 254);
    unsigned base = vt_guest_uid_base(1, ip);
    assert_true(base % 65536 == 0 && base / 65536 >= 16);
    assert_true(base / 65536 < VT_WORKER_RANGES + 16 && !taken[base / 65536]);
    taken[base / 65536] = true;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(python_by_version),
                                     cmocka_unit_test(every_address_has_ids_of_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
