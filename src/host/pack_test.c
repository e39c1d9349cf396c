// SPDX-License-Identifier: Apache-2.0
// Packed arrays against a loop over their elements: every pair of types, sizes around whole tiles.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "host/pack.h"

typedef struct pair {
  vt_dtype from, to;
  bool round;
} pair;
static const pair pairs[] = {{VT_S8, VT_S8, false},    {VT_BF16, VT_BF16, false},
                             {VT_F32, VT_F32, false},  {VT_F32, VT_F32, true},
                             {VT_F32, VT_BF16, false}, {VT_BF16, VT_F32, false},
                             {VT_F64, VT_F64, false}};

static uint32_t to_bf16(uint32_t bits) {
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static void expect_element(const pair *types, const char *from, const char *to) {
  size_t from_bytes = vt_dtype_bytes(types->from), to_bytes = vt_dtype_bytes(types->to);
  uint64_t wanted = 0, got = 0;
  memcpy(&wanted, from, from_bytes);
  memcpy(&got, to, to_bytes);
  if (types->round) wanted = (uint64_t)to_bf16((uint32_t)wanted) << 16;
  if (from_bytes > to_bytes) wanted = to_bf16((uint32_t)wanted);
  if (from_bytes < to_bytes) wanted <<= 16;
  assert_true(wanted == got);
}

// outer x rows x columns, in which two dimensions change places.
static void check(const pair *types, int64_t outer, int64_t rows, int64_t columns) {
  int64_t count = outer * rows * columns;
  size_t from_bytes = vt_dtype_bytes(types->from), to_bytes = vt_dtype_bytes(types->to);
  char *from = malloc((size_t)count * from_bytes), *to = malloc((size_t)count * to_bytes);
  assert_non_null(from);
  assert_non_null(to);
  uint32_t seed = 1;
  for (size_t i = 0; i < (size_t)count * from_bytes; i++) {
    seed = seed * 1664525 + 1013904223;
    from[i] = (char)(seed >> 24 & 0x3f); // no NaNs
  }
  vt_pack pack = {.from = types->from, .to = types->to, .round = types->round};
  vt_pack_add(&pack, outer, rows * columns, rows * columns);
  vt_pack_add(&pack, columns, 1, rows);
  vt_pack_add(&pack, rows, columns, 1);
  vt_pack_finish(&pack);
  vt_pack_run(&pack, from, to);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++)
        expect_element(types, from + ((o * rows + r) * columns + c) * (int64_t)from_bytes,
                       to + ((o * columns + c) * rows + r) * (int64_t)to_bytes);
  free(from);
  free(to);
}

static void test_tiles(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 3, 4, 7, 8, 31, 32, 33, 49, 64, 75};
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
    for (size_t r = 0; r < sizeof sizes / sizeof *sizes; r++)
      for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
        check(&pairs[p], 2, sizes[r], sizes[c]);
}

static void test_shared_by_threads(void **state) {
  (void)state;
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) check(&pairs[p], 3, 320, 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles),
                                     cmocka_unit_test(test_shared_by_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
