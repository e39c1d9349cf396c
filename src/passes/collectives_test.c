// SPDX-License-Identifier: Apache-2.0
// collectives_test.c - which passes over the program of one device are on: lists and XLA's flags.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/collectives.h"

static int passes_on(const vt_collective_options *options) {
  int on = 0;
  for (int i = 0; i < VT_COLLECTIVE_COUNT; i++) on += !options->off[i];
  return on;
}

static void lists_name_passes(void **state) {
  (void)state;
  vt_collective_options options = vt_collectives_default();
  assert_int_equal(passes_on(&options), VT_COLLECTIVE_COUNT);
  assert_null(vt_collectives_only(&options, "all-reduce-combiner,reduce_scatter_creator"));
  assert_int_equal(passes_on(&options), 2);
  assert_false(options.off[VT_COLLECTIVE_all_reduce_combiner]);
  assert_false(options.off[VT_COLLECTIVE_reduce_scatter_creator]);
  assert_null(vt_collectives_only(&options, "all"));
  assert_int_equal(passes_on(&options), VT_COLLECTIVE_COUNT);
  vt_status st = vt_collectives_only(&options, "all-reduce-combiner,combiner");
  assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
  assert_non_null(strstr(vt_status_message(st), "'combiner'; there are all, "));
  vt_status_free(st);
  setenv("VTPU_SKIP_PASSES", "cse,all_gather_combiner", 1);
  options = vt_collectives_default();
  unsetenv("VTPU_SKIP_PASSES");
  assert_true(options.off[VT_COLLECTIVE_all_gather_combiner]);
  assert_int_equal(passes_on(&options), VT_COLLECTIVE_COUNT - 1);
}

static void flags_are_as_in_xla(void **state) {
  (void)state;
  static const struct {
    const char *flags;
    int on;
    int64_t bytes, count;
  } rows[] = {
      {NULL, VT_COLLECTIVE_COUNT, 31457287, 256},
      {"", VT_COLLECTIVE_COUNT, 31457287, 256},
      {" --xla_disable_hlo_passes=algsimp,all-reduce-combiner  --xla_dump_to=/tmp/x\n",
       VT_COLLECTIVE_COUNT - 1, 31457287, 256},
      {"--xla_enable_hlo_passes_only=all-gather-combiner", 1, 31457287, 256},
      {"xla_jf_crs_combiner_threshold_count=10 -- --xla_a", VT_COLLECTIVE_COUNT, 31457287, 10},
      {"--xla_jf_crs_combiner_threshold_in_bytes=0", VT_COLLECTIVE_COUNT, 0, 256},
      {"--xla_jf_crs_combiner_threshold_in_bytes", VT_COLLECTIVE_COUNT, 31457287, 256},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_collective_options options = vt_collectives_default();
    assert_null(vt_collectives_flags(&options, rows[i].flags));
    assert_int_equal(passes_on(&options), rows[i].on);
    assert_int_equal(options.all_reduce.bytes, rows[i].bytes);
    assert_int_equal(options.all_reduce.count, rows[i].count);
  }
  static const char *const bad[] = {"--xla_jf_crs_combiner_threshold_count=",
                                    "--xla_jf_crs_combiner_threshold_count=2x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    vt_collective_options options = vt_collectives_default();
    vt_status st = vt_collectives_flags(&options, bad[i]);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    vt_status_free(st);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lists_name_passes),
                                     cmocka_unit_test(flags_are_as_in_xla)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
