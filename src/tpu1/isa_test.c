// SPDX-License-Identifier: Apache-2.0
// isa_test.c - encoding, assembler and disassembler compared with each other and with hand-encoded
// bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tpu1/isa.h"

static vt_bytes bytes_of(const char *text) {
  return (vt_bytes){(const uint8_t *)text, strlen(text)};
}

static void matmul_has_the_published_layout(void **state) {
  (void)state;
  // The published layout: 12 bytes, 3 of unified-buffer address, 2 of accumulator address, 4 of
  // length.
  static const uint8_t want[] = {0x04, 0x03, 7, 0x56, 0x34, 0x12, 0x22, 0x01, 0xC8, 0, 0, 0};
  vt_tpu1_code code = {0};
  vt_status st = vt_tpu1_assemble(bytes_of(".equ B 200 ; batch\nmatmul ub=0x123456 acc=0x122 "
                                           "rows=B repeat=7 accumulate switch_tile\n"),
                                  &code);
  assert_null(st);
  assert_int_equal(code.size, 1);
  uint8_t got[VT_TPU1_INSN_BYTES];
  assert_null(vt_tpu1_encode(&code.data[0], got));
  assert_memory_equal(got, want, sizeof want);
  vt_array_free(&code);
}

static uint64_t random_next(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static void accepted_bytes_come_back(void **state) {
  (void)state;
  uint64_t seed = 88172645463325252u;
  int accepted = 0;
  for (int i = 0; i < 200000; i++) {
    uint8_t bytes[VT_TPU1_INSN_BYTES], again[VT_TPU1_INSN_BYTES];
    for (int b = 0; b < VT_TPU1_INSN_BYTES; b++)
      bytes[b] = random_next(&seed) % 3 ? 0 : (uint8_t)random_next(&seed);
    bytes[0] = (uint8_t)(random_next(&seed) % 17);
    vt_tpu1_insn insn;
    vt_status st = vt_tpu1_decode(bytes, &insn);
    if (st) {
      vt_status_free(st);
      continue;
    }
    accepted++;
    assert_null(vt_tpu1_encode(&insn, again));
    assert_memory_equal(bytes, again, sizeof bytes);
    vt_text text = {0};
    vt_tpu1_print(&insn, &text);
    vt_tpu1_code code = {0};
    assert_null(vt_tpu1_assemble((vt_bytes){(const uint8_t *)text.data, text.size}, &code));
    assert_int_equal(code.size, 1);
    assert_memory_equal(&code.data[0], &insn, sizeof insn);
    vt_array_free(&code);
    vt_text_free(&text);
  }
  assert_true(accepted > 10000);
}

static void mistakes_are_named_with_their_place(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {
      {"nop\nfoo ub=1", "line 2, column 1: unknown instruction 'foo'"},
      {"matmul ub=16777216 rows=1", "line 1: matmul: ub=16777216 is outside 0..16777215"},
      {"matmul rowz=1", "line 1, column 8: unknown field 'rowz'"},
      {"matmul rows=1 rows=2", "field given twice 'rows'"},
      {"matmul rows", "field needs a value: 'rows'"},
      {"matmul wide_weights", "wide_weights needs switch_tile"},
      {"set reg=conv_sy value=0", "set: conv_sy=0 is outside 1..255"},
      {"sync unit=matrix on=alu", "not a value for this field: 'alu'"},
      {"activate fn=7", "activate: fn=7 is outside 0..3"},
      {".equ 1 2", "not a name: '1'"},
      {"nop !", "unexpected '!'"},
      {"convolve images=99999999999999999999", "not a value"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_tpu1_code code = {0};
    vt_status st = vt_tpu1_assemble(bytes_of(rows[i].text), &code);
    assert_non_null(st);
    if (!strstr(vt_status_message(st), rows[i].message))
      fail_msg("%s: %s", rows[i].text, vt_status_message(st));
    vt_status_free(st);
    vt_array_free(&code);
  }
  uint8_t bad[24] = {0};
  bad[12] = 0x77;
  vt_tpu1_code code = {0};
  vt_status st = vt_tpu1_code_decode((vt_bytes){bad, sizeof bad}, &code);
  assert_string_equal(vt_status_message(st), "address 0xc: unknown opcode 0x77");
  vt_status_free(st);
  vt_array_free(&code);
}

// No two fields of an instruction share a bit, and none touches the opcode or the 97th bit.
static void fields_share_no_bit(void **state) {
  (void)state;
  for (int op = 0; op < VT_TPU1_OPS; op++) {
    bool used[96] = {0};
    assert_non_null(vt_tpu1_op_get((vt_tpu1_op)op)->mnemonic);
    VT_TPU1_EACH_FIELD((vt_tpu1_op)op, field)
    for (int i = 0; i < field->bits; i++) {
      assert_in_range(field->bit + i, 8, 95);
      assert_false(used[field->bit + i]);
      used[field->bit + i] = true;
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_has_the_published_layout), cmocka_unit_test(accepted_bytes_come_back),
      cmocka_unit_test(mistakes_are_named_with_their_place), cmocka_unit_test(fields_share_no_bit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
