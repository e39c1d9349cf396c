// SPDX-License-Identifier: Apache-2.0
// names_test.c - what slice names mean, and the suggestions for unknown ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "chip/chip.h"

static void good_names(void **state) {
  (void)state;
  static const struct {
    const char *name, *want;
    int32_t devices, slices;
  } rows[] = {
      {"v3-8", "v3-8", 8, 1},
      {"V3-8", "v3-8", 8, 1},
      {"v5e-16", "v5litepod-16", 16, 1},
      {"v5litepod-16", "v5litepod-16", 16, 1},
      {"v5lite-16", "v5litepod-16", 16, 1},
      {" TPU v4-8 ", "v4-8", 4, 1},
      {"tpu-v4-8", "v4-8", 4, 1},
      {"tpu7x-8", "tpu7x-8", 8, 1},
      {"v7x-8", "tpu7x-8", 8, 1},
      {"v7-8", "tpu7x-8", 8, 1},
      {"TPU7x-8", "tpu7x-8", 8, 1},
      {"tpu 7x-8", "tpu7x-8", 8, 1},
      {"v6e-256 x2", "v6e-256 x2", 512, 2},
      {"v6e-256 X 2", "v6e-256 x2", 512, 2},
      {"v5litepod-256  x2", "v5litepod-256 x2", 512, 2},
      {"v3-8 x1", "v3-8", 8, 1},
      {"v5e:4x4", "v5litepod-16", 16, 1},
      {"v5e 4x4", "v5litepod-16", 16, 1},
      {"TPU v5e 4x4 x3", "v5litepod-16 x3", 48, 3},
      {"v4:2x2x1", "v4-8", 4, 1},
      {"v4:2x2x1 x2", "v4-8 x2", 8, 2},
      {"tpu7x:2x2x1", "tpu7x-8", 8, 1},
      {"v3:2x1", "v3:2x1", 4, 1},
      {"v3:2x1 x4", "v3:2x1 x4", 16, 4},
      {"v4i:2x2", "v4i:2x2", 4, 1},
      {"v5:2x2x1", "v5p-8", 4, 1},
      {"v4:4x4x8_twisted", "v4:4x4x8_twisted", 128, 1},
      {"TPU v4 4x8x8_Twisted x2", "v4:4x8x8_twisted x2", 512, 2},
      {"tpu7x:12x12x24_twisted", "tpu7x:12x12x24_twisted", 6912, 1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_slice slice;
    vt_status st = vt_slice_from_name(rows[i].name, &slice);
    if (st) fail_msg("%s: %s", rows[i].name, vt_status_message(st));
    assert_string_equal(slice.name, rows[i].want);
    assert_int_equal(vt_slice_devices(&slice), rows[i].devices);
    assert_int_equal(slice.slices, rows[i].slices);
    vt_slice again; // the name parses back
    assert_null(vt_slice_from_name(slice.name, &again));
    assert_string_equal(again.name, slice.name);
    assert_int_equal(vt_slice_devices(&again), rows[i].devices);
  }
}

static void links_go_round_where_the_torus_is_closed(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool wrap[3], twisted;
  } rows[] = {{"v4:4x4x8", {1, 1, 1}, false},  {"v4:8x4x12", {1, 1, 1}, false},
              {"v4:2x4x16", {0, 0, 0}, false}, {"v5e:16x4", {1, 0, 0}, false},
              {"v6e:8x32", {0, 0, 0}, false},  {"v4:4x4x8_twisted", {1, 1, 1}, true}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_slice slice;
    assert_null(vt_slice_from_name(rows[i].name, &slice));
    for (int d = 0; d < 3; d++)
      if (slice.wrap[d] != rows[i].wrap[d]) fail_msg("%s, axis %d", rows[i].name, d);
    assert_int_equal(slice.twisted, rows[i].twisted);
  }
}

// `near`: substrings of the message, in this order.
static void misspelt_names(void **state) {
  (void)state;
  static const struct {
    const char *name, *near;
  } rows[] = {
      {"v3-9", "nearest: v3-8, v3-32"},
      {"v3-16", "nearest: v3-8, v3-32, v3-64"},
      {"v5p-9", "nearest: v5p-8, v5p-16"},
      {"v5e-7", "nearest: v5litepod-8, v5litepod-4"},
      {"v5-8",
       "nearest: v5litepod-8, v5litepod-4, v5litepod-16, v5p-8, v5p-16"}, // which of the two?
      {"v5lightpod-16", "nearest: v5litepod-16, v5litepod-"},
      {"v5litpod-16", "nearest: v5litepod-16"},
      {"v6-8x", "nearest: v6e-8"},
      {"v6p-8", "v6e-8"},
      {"v7e-8", "tpu7x-8"},
      {"v7x-9", "nearest: tpu7x-8, tpu7x-16"},
      {"tpu7-9", "nearest: tpu7x-8"},
      {"tpuv7x-9", "nearest: tpu7x-8"},
      {"tpu8x-8", "nearest: tpu7x-8"},
      {"v8-8", "v3-8"},
      {"TPU v4", "nearest: v4-8, v4-16"},
      {"v4", "nearest: v4-8"},
      {"gpu-8", "v2-8, v3-8"},
      {"", "v3-8"},
      {"v6e-256x2", "\"v6e:256x2\" for a topology, \"v6e-256 x2\" for several slices"},
      {"v5e-4x4", "\"v5e:4x4\" for a topology"},
      {"v3-99999999999999999999", "nearest: v3-2048"},
      {"v9:2x2", "unknown topology"},
      {"v3:", "dimensions"},
      {"v3:2x", "dimensions"},
      {"v3:0x2", "dimensions"},
      {"v3:2x2x2", "dimensions"},
      {"v3:2x2x", "dimensions"},
      {":", "unknown topology"},
      {"v4:99999999999x1", "dimensions"},
      {"v4:1024x1024x1024", "chips"},
      {"v4:4x4x4_twisted", "n x n x 2n"},
      {"v4:2x2x4_twisted", "n x n x 2n"},
      {"v5e:4x8_twisted", "n x n x 2n"},
      {"v4:4x4x8_turned", "dimensions"},
      {"v3-8 x0", "1 to 1024 slices"},
      {"v3-8 x1025", "1 to 1024 slices"},
      {"v3-8 x", "1 to 1024 slices"},
      {"v3-8 x2x2", "1 to 1024 slices"},
      {"v4:16x16x16 x1024", "more than"},
      {"a name that is much longer than the name of any slice ever was, and goes on", "unknown"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_slice slice;
    vt_status st = vt_slice_from_name(rows[i].name, &slice);
    if (!st) fail_msg("%s is %s", rows[i].name, slice.name);
    if (!strstr(vt_status_message(st), rows[i].near))
      fail_msg("%s: %s, not %s", rows[i].name, vt_status_message(st), rows[i].near);
    vt_status_free(st);
  }
}

static void places_of_several_slices(void **state) {
  (void)state;
  vt_slice slice;
  assert_null(vt_slice_from_name("v5e:4x4", &slice));
  assert_int_equal(vt_slice_place(&slice, 6).host, 1);
  assert_null(vt_slice_from_name("v5e-16 x2", &slice));
  for (int32_t id = 0; id < 32; id++) {
    vt_place one = vt_slice_place(&slice, id % 16), place = vt_slice_place(&slice, id);
    assert_int_equal(place.slice, id / 16);
    assert_memory_equal(place.coords, one.coords, sizeof one.coords);
    assert_int_equal(place.host, one.host + 4 * (id / 16));
  }
  assert_null(vt_slice_join(&slice, 2));
  vt_status st = vt_slice_join(&slice, 3);
  assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
  vt_status_free(st);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_names), cmocka_unit_test(links_go_round_where_the_torus_is_closed),
      cmocka_unit_test(misspelt_names), cmocka_unit_test(places_of_several_slices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
