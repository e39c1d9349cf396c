// SPDX-License-Identifier: Apache-2.0
// proto_test.c - compile options as frameworks send them, device assignments, and malformed
// messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "pjrt/proto.h"

static vt_status read_bytes(const char *bytes, size_t size, vt_arena *arena,
                            vt_compile_options *options) {
  return vt_compile_options_read((vt_bytes){(const uint8_t *)bytes, size}, arena, options);
}
#define READ(literal) read_bytes(literal, sizeof(literal) - 1, &arena, &options)

static void compile_options_are_read(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_compile_options options;
  assert_null(READ(""));
  assert_int_equal(options.partitions, 0);
  // jit of one device: replicas 1, partitions 1, assignment {0}, a debug message to skip
  assert_null(READ("\x1a\x16\x1a\x03zzz\x20\x01\x28\x01\x30\x01\x4a\x09\x08\x01\x10\x01\x1a\x03\x0a"
                   "\x01\x05\x48\x01"));
  assert_int_equal(options.replicas, 1);
  assert_int_equal(options.partitions, 1);
  assert_true(options.partitioned);
  assert_int_equal(options.device_count, 1);
  assert_int_equal(options.device_ids[0], 5);
  // two partitions on devices 7 and 300, unpacked ids, 64-bit and 32-bit fields to skip
  assert_null(
      READ("\x1a\x12\x28\x02\x4a\x0e\x08\x01\x10\x02\x1a\x02\x08\x07\x1a\x04\x0a\x02\xac\x02"
           "\x09xxxxxxxx\x0dyyyy\x20\x01"));
  assert_int_equal(options.device_count, 2);
  assert_int_equal(options.device_ids[0], 7);
  assert_int_equal(options.device_ids[1], 300);
  assert_false(options.partitioned);
  assert_true(options.portable);
  assert_null(READ("\x3a\x0d\x0a\x07xla_tpu\x12\x02\x10\x01"));
  vt_status st = READ("\x3a\x0d\x0a\x07invalid\x12\x02\x10\x01");
  assert_string_equal(vt_status_message(st), "No such compile option: 'invalid'");
  vt_status_free(st);
  vt_arena_free(&arena);
}

static void a_device_assignment_reads_back_as_written(void **state) {
  (void)state;
  static const int32_t ids[8] = {0, 1, 2, 3, 6, 7, 4, 500};
  vt_text assignment = {0}, build = {0}, whole = {0};
  vt_device_assignment_write(1, 8, ids, &assignment);
  vt_wire_put_uint(&build, 5, 8);
  vt_wire_put_bytes(&build, 9, assignment.data, assignment.size);
  vt_wire_put_bytes(&whole, 3, build.data, build.size);
  vt_arena arena = {0};
  vt_compile_options options;
  assert_null(read_bytes(whole.data, whole.size, &arena, &options));
  assert_int_equal(options.device_count, 8);
  assert_memory_equal(options.device_ids, ids, sizeof ids);
  for (size_t cut = 1; cut < whole.size; cut++) { // every truncation is an error
    vt_status st = read_bytes(whole.data, cut, &arena, &options);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    vt_status_free(st);
  }
  vt_arena_free(&arena);
  vt_text_free(&assignment);
  vt_text_free(&build);
  vt_text_free(&whole);
}

static void option_overrides_are_known_or_refused(void **state) {
  (void)state;
  static const struct {
    const char *name, *value;
    vt_code want;
  } rows[] = {
      {"xla_embed_ir_in_executable", "TRUE", (vt_code)0},
      {"xla_embed_ir_in_executable", "maybe", VT_INVALID_ARGUMENT},
      {"xla_tpu_scoped_vmem_limit_kib", "65536", (vt_code)0},
      {"memory_fitting_level", "2x", VT_INVALID_ARGUMENT},
      {"exec_time_optimization_effort", "0.5", (vt_code)0},
      {"no_such_option", "1", VT_INVALID_ARGUMENT},
      {"", "", VT_INVALID_ARGUMENT},
  };
  vt_arena arena = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text value = {0}, entry = {0}, whole = {0};
    vt_wire_put_bytes(&value, 1, rows[i].value, strlen(rows[i].value));
    vt_wire_put_bytes(&entry, 1, rows[i].name, strlen(rows[i].name));
    vt_wire_put_bytes(&entry, 2, value.data, value.size);
    vt_wire_put_bytes(&whole, 7, entry.data, entry.size);
    vt_compile_options options;
    vt_status st = read_bytes(whole.data, whole.size, &arena, &options);
    assert_int_equal(vt_status_code(st), rows[i].want);
    char flag[80];
    int size = snprintf(flag, sizeof flag, "--%s=%s ", rows[i].name, rows[i].value);
    assert_int_equal(options.xla_flags.size, st ? 0 : size);
    if (!st) assert_memory_equal(options.xla_flags.data, flag, (size_t)size);
    vt_status_free(st);
    vt_text_free(&value);
    vt_text_free(&entry);
    vt_text_free(&whole);
  }
  vt_arena_free(&arena);
}

static void malformed_messages_are_refused(void **state) {
  (void)state;
  static const char *const names[] = {
      "number too long", "wire type 3",         "field 0", "count 0", "huge counts",
      "too many ids",    "too few computations"};
  static const struct {
    const char *bytes;
    size_t size;
  } rows[] = {
      {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13},
      {"\x0b", 1},
      {"\x02\x00", 2},
      {"\x1a\x02\x28\x00", 4},
      {"\x1a\x0a\x4a\x08\x08\x80\x80\x40\x10\x80\x80\x40", 12},
      {"\x1a\x0c\x4a\x0a\x08\x01\x10\x01\x1a\x04\x0a\x02\x01\x02", 14},
      {"\x1a\x0b\x4a\x09\x08\x01\x10\x02\x1a\x03\x0a\x01\x01", 13},
  };
  vt_arena arena = {0};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_compile_options options;
    vt_status st = read_bytes(rows[i].bytes, rows[i].size, &arena, &options);
    if (vt_status_code(st) != VT_INVALID_ARGUMENT) fail_msg("%s accepted", names[i]);
    vt_status_free(st);
  }
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compile_options_are_read),
      cmocka_unit_test(a_device_assignment_reads_back_as_written),
      cmocka_unit_test(option_overrides_are_known_or_refused),
      cmocka_unit_test(malformed_messages_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
