// SPDX-License-Identifier: Apache-2.0
// npz_test.c - written files read back; damaged files are errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/npz.h"

static void arrays_round_trip(void **state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6};
  int64_t b = -7;
  vt_npz_array arrays[2] = {{"a", 'f', 4, 2, {2, 3}, a}, {"scalar", 'i', 8, 0, {0}, &b}};
  char path[] = "/tmp/vtpu_npz_test_XXXXXX";
  close(mkstemp(path));
  assert_null(vt_npz_write(path, arrays, 2));
  vt_arena arena = {0};
  vt_npz npz;
  assert_null(vt_npz_read(path, &arena, &npz));
  assert_int_equal(npz.count, 2);
  const vt_npz_array *read = vt_npz_find(&npz, "a");
  assert_non_null(read);
  assert_int_equal(read->rank, 2);
  assert_int_equal(read->dims[1], 3);
  assert_memory_equal(read->data, a, sizeof a);
  assert_memory_equal(vt_npz_find(&npz, "scalar")->data, &b, sizeof b);
  assert_null(vt_npz_find(&npz, "other"));

  // Every prefix and every flipped byte is an error or a sound result.
  vt_bytes whole;
  assert_null(vt_file_map(path, &whole));
  uint8_t *copy = malloc(whole.size);
  for (size_t i = 0; i < whole.size; i++) {
    memcpy(copy, whole.data, whole.size);
    vt_status_free(vt_npz_parse((vt_bytes){copy, i}, &arena, &npz));
    copy[i] ^= 0x5A;
    vt_status_free(vt_npz_parse((vt_bytes){copy, whole.size}, &arena, &npz));
    vt_arena_reset(&arena);
  }
  free(copy);
  vt_file_unmap(&whole);
  vt_arena_free(&arena);
  unlink(path);
}

static void fortran_order_is_turned(void **state) {
  (void)state;
  char bytes[256] =
      "\x93NUMPY\x01\x00\x76\x00{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }";
  for (size_t i = strlen(bytes + 10) + 10; i < 128; i++) bytes[i] = i == 127 ? '\n' : ' ';
  bytes[7] = 0, bytes[9] = 0;
  memcpy(bytes + 10, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", 57);
  int16_t data[6] = {0, 10, 1, 11, 2, 12}, want[6] = {0, 1, 2, 10, 11, 12};
  memcpy(bytes + 128, data, sizeof data);
  vt_arena arena = {0};
  vt_npz npz;
  assert_null(vt_npz_parse((vt_bytes){(const uint8_t *)bytes, 128 + sizeof data}, &arena, &npz));
  assert_memory_equal(npz.arrays[0].data, want, sizeof want);
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arrays_round_trip),
      cmocka_unit_test(fortran_order_is_turned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
