// SPDX-License-Identifier: Apache-2.0
// custom_test.c - descriptions of chips: what they change, their units, their mistakes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "chip/custom.h"
#include "chip/time/kernels.h"

static vt_arena arena;

static const vt_chip *chip_of(const char *text) {
  const vt_chip *chip = NULL;
  vt_status st = vt_chip_customise(vt_chip_get(VT_CHIP_V5E), text, strlen(text), &arena, &chip);
  if (st) fail_msg("%s: %s", text, vt_status_message(st));
  return chip;
}

static void refuses(const char *text, const char *why) {
  const vt_chip *chip = NULL;
  vt_status st = vt_chip_customise(vt_chip_get(VT_CHIP_V5E), text, strlen(text), &arena, &chip);
  if (!st) fail_msg("accepted: %s", text);
  if (!strstr(vt_status_message(st), why)) fail_msg("%s: %s", text, vt_status_message(st));
  vt_status_free(st);
}

static void properties_change(void **state) {
  (void)state;
  const vt_chip *v5e = vt_chip_get(VT_CHIP_V5E);
  const vt_chip *same = chip_of("# nothing\n\n as v5e ,");
  assert_true(same->bf16_flops_per_s == v5e->bf16_flops_per_s);
  assert_true(same->hbm_limit_bytes == v5e->hbm_limit_bytes);
  const vt_chip *c =
      chip_of("as v5e, but hbm = 2 TB/s, hbm = 32 GiB\nlaunch = 2.5 us # slow, very\n"
              "dcn_bandwidth = 1e9 B/s; power=300 W");
  assert_true(c->hbm_bytes_per_s == 2e12 && c->hbm_bytes == INT64_C(32) << 30);
  assert_true(c->hbm_limit_bytes == v5e->hbm_limit_bytes + (INT64_C(16) << 30));
  const vt_rates *rates = vt_rates_of(c);
  assert_true(rates->launch_s > 2.49e-6 && rates->launch_s < 2.51e-6);
  assert_true(rates->dcn_bytes_per_s == 1e9 && rates->busiest_w == 300);
  assert_true(vt_rates_of(v5e)->busiest_w != 300);
}

static void the_peak_follows_from_the_units(void **state) {
  (void)state;
  const vt_chip *v5e = vt_chip_get(VT_CHIP_V5E);
  double four = chip_of("mxu_edge = 256")->bf16_flops_per_s / v5e->bf16_flops_per_s;
  assert_true(four > 3.99 && four < 4.01);
  assert_true(chip_of("mxu_edge = 256, bf16 = 1 PFLOP/s")->bf16_flops_per_s == 1e15);
  assert_true(chip_of("bf16 = 500 TFLOPS")->bf16_flops_per_s == 500e12);
  double faster = chip_of("clock = 3 GHz")->bf16_flops_per_s / v5e->bf16_flops_per_s;
  assert_true(faster > 1.99 && faster < 2.01);
}

static void mistakes_are_named(void **state) {
  (void)state;
  refuses("\n\nhbn = 3 GiB", "line 3");
  refuses("hbn = 3 GiB", "do you mean hbm?");
  refuses("hbm_bandwidth = 3 GiB", "B/s");
  refuses("hbm", "name = value");
  refuses("hbm = many GiB", "number");
  refuses("hbm = 3 parsecs", "number");
  refuses("clock = 0 Hz", "no chip");
  refuses("clock = -1 Hz", "no chip");
  refuses("mxus = 1e30", "no chip");
  refuses("mxus = 1.5", "no chip");
  refuses("clock = nan Hz", "number");
  refuses("as v6e", "v5e");
  refuses("as x9", "v5p");
  refuses("", "describes no chip");
  refuses("# nothing\n", "describes no chip");
  refuses("as v5e but hbn = 3 GiB", "do you mean hbm?");
  refuses("idle_power = 100 W, power = 50 W", "less than idle_power");
  refuses("hbm = 2", "such as 32 GiB");
}

// Any bytes end in a chip or in an error.
static void any_text_is_read(void **state) {
  (void)state;
  static const char *const pieces[] = {"hbm",      "=",      " ",    "2 TB/s",       ",", "\n",
                                       "#",        "as v5e", "but ", "1e400",        "-", "\0",
                                       "mxu_edge", "GiB",    ";",    "clock = 1 GHz"};
  uint64_t seed = 7;
  for (int i = 0; i < 20000; i++) {
    char text[128];
    size_t size = 0;
    for (int k = 0; k < 8; k++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const char *piece = pieces[(seed >> 40) % (sizeof pieces / sizeof *pieces)];
      size_t more = *piece ? strlen(piece) : 1;
      memcpy(text + size, piece, more);
      size += more;
    }
    const vt_chip *chip = NULL;
    vt_status st = vt_chip_customise(vt_chip_get(VT_CHIP_V5E), text, size, &arena, &chip);
    assert_true(st || (chip && chip->clock_hz > 0 && chip->hbm_bytes > 0));
    vt_status_free(st);
    vt_arena_reset(&arena);
  }
}

static void values_are_scaled_and_printed(void **state) {
  (void)state;
  const vt_chip *chip;
  double value;
  char text[32];
  assert_null(vt_chip_scale(vt_chip_get(VT_CHIP_V6E), "mxu_edge", 0.5, &arena, &chip, &value));
  assert_true(value == 128 && chip->mxu_edge == 128);
  vt_chip_put_custom("hbm_bandwidth", 1.638e12, text, sizeof text);
  assert_string_equal(text, "1.638 TB/s");
  vt_chip_put_custom("hbm", 34359738368.0, text, sizeof text);
  assert_string_equal(text, "32 GiB");
  vt_chip_put_custom("launch", 1.45e-6, text, sizeof text);
  assert_string_equal(text, "1.45 us");
  vt_status st = vt_chip_scale(vt_chip_get(VT_CHIP_V6E), "size", 2, &arena, &chip, &value);
  assert_non_null(st);
  vt_status_free(st);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(properties_change),
      cmocka_unit_test(the_peak_follows_from_the_units),
      cmocka_unit_test(mistakes_are_named),
      cmocka_unit_test(any_text_is_read),
      cmocka_unit_test(values_are_scaled_and_printed),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  vt_arena_free(&arena);
  return failed;
}
