// SPDX-License-Identifier: Apache-2.0
// fold_test.c - what the pass computes by itself is bit for bit what the evaluator computes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "eval/eval.h"
#include "import/import.h"
#include "passes/passes.h"

static const vt_opcode codes[] = {
    VT_OP_ADD,    VT_OP_SUBTRACT, VT_OP_MULTIPLY, VT_OP_DIVIDE,     VT_OP_NEGATE,
    VT_OP_AND,    VT_OP_OR,       VT_OP_XOR,      VT_OP_SHIFT_LEFT, VT_OP_SHIFT_RIGHT_LOGICAL,
    VT_OP_SELECT, VT_OP_COMPARE,  VT_OP_MAXIMUM};
static const vt_dtype dtypes[] = {VT_F32, VT_S32, VT_U32, VT_PRED};

// Bits of a word; of PRED the lowest.
static const uint32_t words[] = {
    0,          1,          2,          3,          31,         32,         33,         0x7fffffff,
    0x80000000, 0x80000001, 0xffffffff, 0x3f800000, 0xbf800000, 0x40490fdb, 0x00800000, 0x00800001,
    0x807fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000, 0x7f7fffff, 0x00000007, 0x33333333};
enum { WORDS = sizeof words / sizeof *words };

static vt_value *constant(vt_func *func, vt_dtype dtype, uint32_t bits) {
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  uint8_t *data = vt_arena_push(&func->module->arena, 64);
  if (dtype == VT_PRED)
    *data = bits & 1;
  else
    memcpy(data, &bits, sizeof bits);
  *literal = (vt_literal){{dtype, 0, NULL}, data, true};
  return vt_build_constant(func, NULL, &vt_loc_unknown, literal);
}

static bool has(vt_opcode code, vt_dtype dtype) {
  bool bits = code == VT_OP_AND || code == VT_OP_OR || code == VT_OP_XOR;
  bool shift = code == VT_OP_SHIFT_LEFT || code == VT_OP_SHIFT_RIGHT_LOGICAL;
  if (dtype == VT_PRED) return bits || code == VT_OP_SELECT || code == VT_OP_COMPARE;
  return dtype != VT_F32 || !(bits || shift);
}

// The same op of the same operands by the pass and by the evaluator.
static void agrees(vt_opcode code, vt_dtype dtype, uint32_t a, uint32_t b, int64_t direction) {
  vt_module *module = vt_module_create();
  vt_func *func = vt_func_create(module, "main");
  vt_type type = {code == VT_OP_COMPARE ? VT_PRED : dtype, 0, NULL};
  vt_value *operands[3], *pred = constant(func, VT_PRED, a >> 1);
  uint32_t count = 0;
  uint64_t room[8] = {0};
  vt_tensor inputs[3], output = {type, room};
  vt_pass_options options = {.exact_dots = true};
  vt_arena scratch = {0};
  bool changed = false;
  if (code == VT_OP_SELECT) operands[count++] = pred;
  operands[count++] = constant(func, dtype, a);
  if (code != VT_OP_NEGATE) operands[count++] = constant(func, dtype, b);
  vt_value *value = vt_build(func, NULL, code, &vt_loc_unknown, type, count, operands);
  if (code == VT_OP_COMPARE) {
    vt_op_set_i64(value->op, VT_ATTR_COMPARISON_DIRECTION, direction);
    vt_op_set_i64(value->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE);
  }
  vt_func_set_returns(func, 1, &value);
  vt_module_add_func(module, func);
  module->main = func;
  for (uint32_t i = 0; i < count; i++)
    inputs[i] =
        (vt_tensor){operands[i]->type,
                    (void *)(uintptr_t)vt_attr_literal(operands[i]->op, VT_ATTR_VALUE)->data};
  vt_eval_env env = {.exact_dots = true};
  assert_null(vt_eval_op(value->op, &env, inputs, &output));
  assert_null(vt_opt_fold(module, &options, &scratch, &changed));
  const vt_op *folded = func->returns[0]->op;
  assert_int_equal(folded->code, VT_OP_CONSTANT);
  if (memcmp(vt_attr_literal(folded, VT_ATTR_VALUE)->data, room, vt_dtype_bytes(type.dtype)))
    fail_msg("%s of dtype %d on %08x, %08x differs", vt_op_short_name(code), dtype, a, b);
  vt_arena_free(&scratch);
  vt_module_destroy(module);
}

static void words_fold_as_the_evaluator_computes_them(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof codes / sizeof *codes; c++)
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
      for (int i = 0; i < WORDS * WORDS && has(codes[c], dtypes[d]); i++)
        for (int64_t k = VT_CMP_EQ; k <= (codes[c] == VT_OP_COMPARE ? VT_CMP_LT : VT_CMP_EQ); k++)
          agrees(codes[c], dtypes[d], words[i / WORDS], words[i % WORDS], k);
}

// ---- iotas --------------------------------------------------------------------------------------

static const char *const iotas[] = {
    "dim = 0 : tensor<3x4xi32>", "dim = 1 : tensor<2x3x2xui32>", "dim = 2 : tensor<1x2x300xi32>",
    "dim = 0 : tensor<5xbf16>",  "dim = 0 : tensor<7xi64>",
};

static void iotas_fold_as_the_evaluator_computes_them(void **state) {
  (void)state;
  vt_pass_options options = {.exact_dots = true};
  for (size_t i = 0; i < sizeof iotas / sizeof *iotas; i++) {
    vt_arena scratch = {0};
    vt_module *module = NULL;
    vt_text text = {0};
    bool changed = false;
    vt_text_printf(&text,
                   "module { func.func public @main() -> %s {\n%%x = stablehlo.iota %s\n"
                   "return %%x : %s } }",
                   strchr(iotas[i], 't'), iotas[i], strchr(iotas[i], 't'));
    vt_status st = vt_import((vt_bytes){(const uint8_t *)text.data, text.size}, &module);
    if (st) fail_msg("%s: %s", iotas[i], vt_status_message(st));
    const vt_op *op = module->main->returns[0]->op;
    vt_type type = op->results[0].type;
    size_t bytes = (size_t)vt_type_elements(type) * vt_dtype_bytes(type.dtype);
    vt_tensor wanted = {type, vt_arena_push_aligned(&scratch, bytes + 128, 64)};
    assert_null(vt_eval_op(op, &(vt_eval_env){0}, NULL, &wanted));
    assert_null(vt_opt_fold(module, &options, &scratch, &changed));
    const vt_op *folded = module->main->returns[0]->op;
    assert_int_equal(folded->code, VT_OP_CONSTANT);
    const vt_literal *literal = vt_attr_literal(folded, VT_ATTR_VALUE);
    assert_true(!literal->splat && vt_type_equal(literal->type, type));
    if (memcmp(literal->data, wanted.data, bytes)) fail_msg("iota %s differs", iotas[i]);
    vt_module_destroy(module);
    vt_text_free(&text);
    vt_arena_free(&scratch);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(words_fold_as_the_evaluator_computes_them),
                                     cmocka_unit_test(iotas_fold_as_the_evaluator_computes_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
