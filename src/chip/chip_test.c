// SPDX-License-Identifier: Apache-2.0
// chip_test.c - tables are consistent; positions, tiles and names are what a TPU reports.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "chip/chip.h"

static void every_slice_is_consistent(void **state) {
  (void)state;
  static const char *const names[] = {
#define SLICE(name, ...) name,
#include "chip/slices.def"
#undef SLICE
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    vt_slice slice;
    assert_null(vt_slice_from_name(names[i], &slice));
    assert_int_equal(slice.chips, slice.dims[0] * slice.dims[1] * slice.dims[2]);
    assert_int_equal(slice.chips, slice.vms * slice.chips_per_vm);
    int32_t devices = vt_slice_devices(&slice);
    vt_place last = vt_slice_place(&slice, devices - 1);
    for (int d = 0; d < 3; d++) assert_int_equal(last.coords[d], slice.dims[d] - 1);
    assert_int_equal(last.core, slice.chip->devices - 1);
    assert_int_equal(last.host, slice.vms - 1);
    for (size_t j = 0; j < i; j++) assert_string_not_equal(names[i], names[j]);
  }
}

static void cores_of_a_v3_8_have_their_places(void **state) {
  (void)state;
  vt_slice slice;
  assert_null(vt_slice_from_name("v3-8", &slice));
  assert_int_equal(vt_slice_devices(&slice), 8);
  static const int want[8][4] = {{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1},
                                 {0, 1, 0, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}};
  for (int i = 0; i < 8; i++) {
    vt_place place = vt_slice_place(&slice, i);
    for (int d = 0; d < 3; d++) assert_int_equal(place.coords[d], want[i][d]);
    assert_int_equal(place.core, want[i][3]);
    assert_int_equal(place.host, 0);
  }
}

static void arrays_are_padded_to_tiles(void **state) {
  (void)state;
  const vt_chip *v3 = vt_chip_get(VT_CHIP_V3), *v7 = vt_chip_get(VT_CHIP_V7);
  const struct {
    const vt_chip *chip;
    vt_dtype dtype;
    int32_t rank;
    int64_t dims[3];
    int64_t want;
    const char *shape;
  } rows[] = {
      {v3, VT_F32, 2, {1024, 1024}, 4 << 20, "f32[1024,1024]{1,0:T(8,128)}"},
      {v3, VT_F32, 2, {1024, 1}, 1024 * 128 * 4, "f32[1024,1]{1,0:T(8,128)}"},
      {v3, VT_BF16, 2, {8, 100}, 8 * 128 * 2, "bf16[8,100]{1,0:T(8,128)(2,1)}"},
      {v7, VT_BF16, 2, {8, 100}, 8 * 128 * 2, "bf16[8,100]{1,0:T(8,128)(2,1)}"},
      {v7, VT_BF16, 2, {17, 100}, 32 * 128 * 2, "bf16[17,100]{1,0:T(16,128)(2,1)}"},
      {v3, VT_F32, 1, {10}, 256 * 4, "f32[10]{0:T(256)}"},
      {v7, VT_F32, 1, {10}, 128 * 4, "f32[10]{0:T(128)}"},
      {v3, VT_F32, 3, {5, 3, 7}, 5 * 4 * 128 * 4, "f32[5,3,7]{2,1,0:T(4,128)}"},
      {v3, VT_F32, 2, {0, 128}, 0, "f32[0,128]{1,0:T(2,128)}"},
      {v3, VT_C64, 2, {8, 128}, 8192, "c64[8,128]{1,0:T(8,128)}"},
      {v3, VT_S4, 2, {64, 128}, 4096, "s4[64,128]{1,0:T(64,128)(8,1)}"},
      // Larger than any memory: sums of such sizes do not overflow.
      {v3,
       VT_F32,
       3,
       {1 << 30, 1 << 29, 1},
       INT64_C(1) << 46,
       "f32[1073741824,536870912,1]{2,1,0:T(8,128)}"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_type type = {rows[i].dtype, rows[i].rank, rows[i].dims};
    assert_int_equal(vt_chip_padded_bytes(rows[i].chip, type, NULL), rows[i].want);
    vt_text text = {0};
    vt_chip_print_shape(rows[i].chip, type, NULL, &text);
    assert_string_equal(vt_text_string(&text), rows[i].shape);
    vt_text_free(&text);
  }
}

// Narrow arrays are transposed. {16,8} and {8,4} are layouts that a TPU compiler's own text shows
// for parameters; the others follow from the tiles.
static void narrow_arrays_are_transposed(void **state) {
  (void)state;
  const vt_chip *v3 = vt_chip_get(VT_CHIP_V3), *v5 = vt_chip_get(VT_CHIP_V5E);
  const struct {
    const vt_chip *chip;
    int32_t rank;
    int64_t dims[4];
    int64_t bytes;
    const char *shape;
  } rows[] = {
      {v5, 2, {16, 8}, 8 * 128 * 4, "f32[16,8]{0,1:T(8,128)}"},
      {v5, 2, {8, 4}, 4 * 128 * 4, "f32[8,4]{0,1:T(4,128)}"},
      {v5, 2, {1024, 1}, 1024 * 4, "f32[1024,1]{0,1:T(1,128)}"},
      {v3, 2, {1024, 1}, 2 * 1024 * 4, "f32[1024,1]{0,1:T(2,128)}"},
      {v3, 2, {8, 8}, 8 * 128 * 4, "f32[8,8]{1,0:T(8,128)}"},
      {v3, 2, {8, 128}, 8 * 128 * 4, "f32[8,128]{1,0:T(8,128)}"},
      {v3, 1, {5}, 256 * 4, "f32[5]{0:T(256)}"},
      {v3, 4, {3, 3, 64, 256}, 9 * 64 * 256 * 4, "f32[3,3,64,256]{3,2,1,0:T(8,128)}"},
      {v3, 3, {2, 0, 2}, 0, "f32[2,0,2]{2,1,0:T(2,128)}"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_type type = {VT_F32, rows[i].rank, rows[i].dims};
    int32_t order[4];
    vt_chip_compact_order(rows[i].chip, type, order);
    vt_text text = {0};
    vt_chip_print_shape(rows[i].chip, type, order, &text);
    assert_string_equal(vt_text_string(&text), rows[i].shape);
    assert_int_equal(vt_chip_padded_bytes(rows[i].chip, type, order), rows[i].bytes);
    vt_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_slice_is_consistent),
      cmocka_unit_test(cores_of_a_v3_8_have_their_places),
      cmocka_unit_test(arrays_are_padded_to_tiles),
      cmocka_unit_test(narrow_arrays_are_transposed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
