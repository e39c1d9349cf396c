// SPDX-License-Identifier: Apache-2.0
// roofline_test.c - counts of a small module against counting by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "chip/chip.h"

static vt_op *add_op(vt_func *func, vt_opcode code, vt_type type, uint32_t count,
                     vt_value *const *operands) {
  vt_op *op = vt_op_create(func, code, &vt_loc_unknown, count, operands, 1, &type, 0);
  vt_op_append(func, op);
  return op;
}

// tanh(a . b): [64,32] x [32,16]
static void test_dot(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *main = vt_func_create(module, "main");
  vt_module_add_func(module, main);
  module->main = main;
  vt_type lhs = vt_type_make(&module->arena, VT_F32, 2, (int64_t[]){64, 32});
  vt_type rhs = vt_type_make(&module->arena, VT_F32, 2, (int64_t[]){32, 16});
  vt_type out = vt_type_make(&module->arena, VT_F32, 2, (int64_t[]){64, 16});
  vt_value *params[2] = {vt_func_add_param(main, lhs), vt_func_add_param(main, rhs)};
  vt_op *dot = add_op(main, VT_OP_DOT_GENERAL, out, 2, params);
  vt_op_set_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, (int64_t[]){1});
  vt_op_set_ints(dot, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, (int64_t[]){0});
  vt_value *product = &dot->results[0];
  vt_value *result = &add_op(main, VT_OP_TANH, out, 1, &product)->results[0];
  vt_func_set_returns(main, 1, &result);
  vt_slice slice;
  assert_null(vt_slice_from_type("v3-8", &slice));
  vt_roofline r = vt_chip_roofline(&slice, 1, module);
  double arrays = 4 * (64 * 32 + 32 * 16 + 64 * 16);
  assert_true(r.flops == 2.0 * 64 * 32 * 16 + 64 * 16);
  assert_true(r.transcendentals == 64 * 16);
  assert_true(r.bytes == 2 * arrays); // arguments and result, and again what the dot touches
  assert_true(r.exact_trips);
  double seconds = r.bytes / (900e9 / 2); // one of two cores of a chip; memory bound
  assert_true(r.seconds > 0.999 * seconds && r.seconds < 1.001 * seconds);
  assert_true(r.usd > 0);
  vt_roofline all = vt_chip_roofline(&slice, 8, module);
  assert_true(all.seconds * 7.99 < r.seconds && all.seconds * 8.01 > r.seconds);
  vt_module_destroy(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dot)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
