// SPDX-License-Identifier: Apache-2.0
// passes_test.c - each row builds a small program, runs the whole pipeline and counts what is left.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "passes/passes.h"

typedef struct world {
  vt_module *module;
  vt_func *main;
} world;

static world begin(void) {
  world w = {.module = vt_module_create()};
  w.main = vt_func_create(w.module, "main");
  return w;
}

static vt_type tensor(world w, vt_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c) {
  return vt_type_make(&w.module->arena, dtype, rank, (int64_t[]){a, b, c});
}

static vt_value *op1(world w, vt_opcode code, vt_type type, vt_value *a) {
  return vt_build(w.main, NULL, code, NULL, type, 1, &a);
}
static vt_value *op2(world w, vt_opcode code, vt_type type, vt_value *a, vt_value *b) {
  return vt_build(w.main, NULL, code, NULL, type, 2, (vt_value *[]){a, b});
}

static vt_value *splat(world w, vt_type type, float value) {
  float *data = VT_NEW(&w.module->arena, float);
  vt_literal *literal = VT_NEW(&w.module->arena, vt_literal);
  *data = value;
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(w.main, NULL, NULL, literal);
}

static vt_value *transpose(world w, vt_value *value) {
  vt_value *result =
      op1(w, VT_OP_TRANSPOSE,
          tensor(w, value->type.dtype, 2, value->type.dims[1], value->type.dims[0], 0), value);
  vt_op_set_ints(result->op, VT_ATTR_PERMUTATION, 2, (int64_t[]){1, 0});
  return result;
}

static vt_value *dot(world w, vt_value *a, vt_value *b) {
  vt_value *result =
      op2(w, VT_OP_DOT, tensor(w, VT_F32, 2, a->type.dims[0], b->type.dims[1], 0), a, b);
  vt_op_set_ints(result->op, VT_ATTR_PRECISION_CONFIG, 2, (int64_t[]){0, 0});
  return result;
}

static void finish(world w, uint32_t count, vt_value **returns, const vt_pass_options *options) {
  static const vt_pass_options exact = {.as_written = true, .exact_dots = true};
  vt_func_set_returns(w.main, count, returns);
  vt_module_add_func(w.module, w.main);
  w.module->main = w.main;
  vt_status st = vt_module_verify(w.module);
  assert_string_equal(vt_status_message(st), "");
  st = vt_passes_run(w.module, options ? options : &exact);
  assert_string_equal(vt_status_message(st), "");
  st = vt_module_verify(w.module);
  assert_string_equal(vt_status_message(st), "");
}

static int count_ops(const vt_func *func, vt_opcode code) {
  int n = 0;
  for (const vt_op *op = func->first; op; op = op->next)
    n += code == VT_OP_INVALID || op->code == code;
  return n;
}

static void transposes_go_into_dots(void **state) {
  (void)state;
  world w = begin();
  vt_value *x = vt_func_add_param(w.main, tensor(w, VT_F32, 2, 8, 16, 0));
  vt_value *y = vt_func_add_param(w.main, tensor(w, VT_F32, 2, 8, 4, 0));
  vt_value *result = transpose(w, dot(w, transpose(w, x), y)); // (x^T y)^T = y^T x
  finish(w, 1, &result, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_INVALID), 1);
  vt_op *op = w.main->first;
  assert_int_equal(op->code, VT_OP_DOT_GENERAL);
  assert_ptr_equal(op->operands[0], y);
  assert_int_equal(vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, NULL)[0], 0);
  vt_module_destroy(w.module);
}

static void chains_collapse(void **state) {
  (void)state;
  world w = begin();
  vt_type f32 = tensor(w, VT_F32, 2, 4, 6, 0), bf16 = tensor(w, VT_BF16, 2, 4, 6, 0);
  vt_value *x = vt_func_add_param(w.main, bf16);
  vt_value *wide = op1(w, VT_OP_CONVERT, f32, x);
  vt_value *back = op1(w, VT_OP_CONVERT, bf16, wide); // exact: x
  vt_value *twice = transpose(w, transpose(w, back)); // x
  vt_value *flat = op1(w, VT_OP_RESHAPE, tensor(w, VT_BF16, 1, 24, 0, 0), twice);
  vt_value *square = op1(w, VT_OP_RESHAPE, bf16, flat); // x
  finish(w, 1, &square, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_INVALID), 0);
  assert_ptr_equal(w.main->returns[0], x);
  vt_module_destroy(w.module);
}

static void rounding_conversions_stay(void **state) {
  (void)state;
  world w = begin();
  vt_type f32 = tensor(w, VT_F32, 1, 4, 0, 0), bf16 = tensor(w, VT_BF16, 1, 4, 0, 0);
  vt_value *x = vt_func_add_param(w.main, f32);
  vt_value *result = op1(w, VT_OP_CONVERT, f32, op1(w, VT_OP_CONVERT, bf16, x));
  finish(w, 1, &result, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_CONVERT), 2);
  vt_module_destroy(w.module);
}

static void constants_fold_and_equal_ops_merge(void **state) {
  (void)state;
  world w = begin();
  vt_type type = tensor(w, VT_F32, 1, 5000, 0, 0);
  vt_value *x = vt_func_add_param(w.main, type);
  vt_value *three = op2(w, VT_OP_ADD, type, splat(w, type, 1), splat(w, type, 2));
  vt_value *a = op2(w, VT_OP_MULTIPLY, type, x, three);
  vt_value *b = op2(w, VT_OP_MULTIPLY, type, x, splat(w, type, 3));
  vt_value *results[2] = {a, b};
  finish(w, 2, results, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_MULTIPLY), 1);
  assert_int_equal(count_ops(w.main, VT_OP_CONSTANT), 1);
  const vt_literal *literal = vt_attr_literal(w.main->first, VT_ATTR_VALUE);
  assert_true(literal->splat);
  assert_true(*(const float *)literal->data == 3);
  assert_ptr_equal(w.main->returns[0], w.main->returns[1]);
  vt_module_destroy(w.module);
}

static void adding_zero_stays(void **state) {
  (void)state;
  world w = begin();
  vt_type type = tensor(w, VT_F32, 1, 4, 0, 0);
  vt_value *x = vt_func_add_param(w.main, type);
  vt_value *result = op2(w, VT_OP_ADD, type, x, splat(w, type, 0)); // -0 + 0 is 0
  finish(w, 1, &result, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_ADD), 1);
  vt_module_destroy(w.module);
}

static void default_dots_round_their_operands_once(void **state) {
  (void)state;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    world w = begin();
    vt_value *x = vt_func_add_param(w.main, tensor(w, VT_F32, 2, 64, 64, 0));
    vt_value *y = vt_func_add_param(w.main, tensor(w, VT_F32, 2, 64, 64, 0));
    vt_value *results[2] = {dot(w, x, y), dot(w, y, x)};
    vt_pass_options options = {.bf16_dots = bf16, .min_bf16_depth = 24};
    finish(w, 2, results, &options);
    assert_int_equal(count_ops(w.main, bf16 ? VT_OP_CONVERT : VT_OP_REDUCE_PRECISION), 2);
    assert_int_equal(count_ops(w.main, VT_OP_DOT_GENERAL), 2);
    assert_int_equal(w.main->returns[0]->op->operands[0]->type.dtype, bf16 ? VT_BF16 : VT_F32);
    assert_int_equal(vt_attr_ints(w.main->returns[0]->op, VT_ATTR_PRECISION_CONFIG, NULL)[0],
                     VT_PRECISION_HIGHEST);
    vt_module_destroy(w.module);
  }
}

// while (i < n) { i += f(w); } with w and n carried unchanged, f = convert(transpose(w)) summed up
// by a dot.
static void loops_lose_what_does_not_change(void **state) {
  (void)state;
  world w = begin();
  vt_type s32 = {VT_S32, 0, NULL}, matrix = tensor(w, VT_F32, 2, 4, 4, 0),
          predicate = {VT_PRED, 0, NULL};
  vt_type types[3] = {s32, matrix, matrix};
  vt_value *inputs[3];
  for (int i = 0; i < 3; i++) inputs[i] = vt_func_add_param(w.main, types[i]);
  vt_op *loop = vt_op_create(w.main, VT_OP_WHILE, NULL, 3, inputs, 3, types, 2);
  vt_func *condition = vt_func_create(w.module, ""), *body = vt_func_create(w.module, "");
  vt_value *c[3], *b[3];
  for (int i = 0; i < 3; i++)
    c[i] = vt_func_add_param(condition, types[i]), b[i] = vt_func_add_param(body, types[i]);
  vt_value *less =
      vt_build(condition, NULL, VT_OP_COMPARE, NULL, predicate, 2, (vt_value *[]){c[0], c[0]});
  vt_op_set_i64(less->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_LT);
  vt_op_set_i64(less->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_func_set_returns(condition, 1, &less);
  vt_value *negated = vt_build(body, NULL, VT_OP_NEGATE, NULL, matrix, 1, &b[1]); // invariant
  vt_value *sum = vt_build(body, NULL, VT_OP_ADD, NULL, matrix, 2, (vt_value *[]){b[2], negated});
  vt_value *next = vt_build(body, NULL, VT_OP_ADD, NULL, s32, 2, (vt_value *[]){b[0], b[0]});
  vt_func_set_returns(body, 3, (vt_value *[]){next, b[1], sum});
  loop->regions[0] = condition, loop->regions[1] = body;
  vt_op_append(w.main, loop);
  vt_value *results[3] = {&loop->results[0], &loop->results[1], &loop->results[2]};
  finish(w, 3, results, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_NEGATE), 1);
  assert_int_equal(count_ops(w.main, VT_OP_WHILE), 1);
  assert_ptr_equal(w.main->returns[1], inputs[1]);
  const vt_op *left = w.main->last;
  assert_int_equal(left->result_count, 2);
  assert_int_equal(count_ops(left->regions[1], VT_OP_NEGATE), 0);
  vt_module_destroy(w.module);
}

static void loops_make_what_costs_nothing(void **state) {
  (void)state;
  world w = begin();
  vt_type s32 = tensor(w, VT_S32, 0, 0, 0, 0), wide = tensor(w, VT_F32, 2, 256, 128, 0);
  vt_value *n = vt_func_add_param(w.main, s32);
  vt_value *x = vt_func_add_param(w.main, wide);
  vt_value *row = vt_func_add_param(w.main, tensor(w, VT_F32, 1, 128, 0, 0));
  vt_value *rows = op1(w, VT_OP_BROADCAST_IN_DIM, wide, row);
  vt_op_set_ints(rows->op, VT_ATTR_BROADCAST_DIMENSIONS, 1, (int64_t[]){1});
  vt_value *inputs[] = {n, x, splat(w, wide, 3), rows};
  vt_type types[] = {s32, wide, wide, wide};
  vt_op *loop = vt_op_create(w.main, VT_OP_WHILE, NULL, 4, inputs, 4, types, 2);
  vt_func *condition = vt_func_create(w.module, ""), *body = vt_func_create(w.module, "");
  vt_value *c[4], *b[4];
  for (int i = 0; i < 4; i++) c[i] = vt_func_add_param(condition, types[i]);
  for (int i = 0; i < 4; i++) b[i] = vt_func_add_param(body, types[i]);
  vt_value *less = vt_build(condition, NULL, VT_OP_COMPARE, NULL, tensor(w, VT_PRED, 0, 0, 0, 0), 2,
                            (vt_value *[]){c[0], c[0]});
  vt_op_set_i64(less->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_NE);
  vt_op_set_i64(less->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_func_set_returns(condition, 1, &less);
  vt_value *sum = vt_build(body, NULL, VT_OP_ADD, NULL, wide, 2, (vt_value *[]){b[1], b[2]});
  vt_value *product =
      vt_build(body, NULL, VT_OP_MULTIPLY, NULL, wide, 2, (vt_value *[]){sum, b[3]});
  vt_func_set_returns(body, 4, (vt_value *[]){b[0], product, b[2], b[3]});
  loop->regions[0] = condition, loop->regions[1] = body;
  vt_op_append(w.main, loop);
  vt_value *result = &loop->results[1];
  finish(w, 1, &result, NULL);
  assert_int_equal(count_ops(w.main, VT_OP_BROADCAST_IN_DIM), 0);
  assert_int_equal(count_ops(w.main, VT_OP_CONSTANT), 0);
  const vt_op *left = w.main->last;
  assert_int_equal(left->capture_count, 2); // n, and the row
  assert_int_equal(count_ops(left->regions[1], VT_OP_BROADCAST_IN_DIM), 1);
  assert_int_equal(count_ops(left->regions[1], VT_OP_CONSTANT), 1);
  vt_module_destroy(w.module);
}

// x = x . w[i] over the layers of a stack, as a scan writes it.
static void stacks_are_rounded_before_the_loop(void **state) {
  (void)state;
  world w = begin();
  vt_type s32 = tensor(w, VT_S32, 0, 0, 0, 0), matrix = tensor(w, VT_F32, 2, 8, 8, 0);
  vt_type stack = tensor(w, VT_F32, 3, 4, 8, 8), layer = tensor(w, VT_F32, 3, 1, 8, 8);
  vt_value *inputs[] = {vt_func_add_param(w.main, s32), vt_func_add_param(w.main, matrix),
                        vt_func_add_param(w.main, stack)};
  vt_type types[] = {s32, matrix, stack};
  vt_op *loop = vt_op_create(w.main, VT_OP_WHILE, NULL, 3, inputs, 3, types, 2);
  vt_func *condition = vt_func_create(w.module, ""), *body = vt_func_create(w.module, "");
  vt_value *c[3], *b[3];
  for (int i = 0; i < 3; i++) c[i] = vt_func_add_param(condition, types[i]);
  for (int i = 0; i < 3; i++) b[i] = vt_func_add_param(body, types[i]);
  vt_value *less = vt_build(condition, NULL, VT_OP_COMPARE, NULL, tensor(w, VT_PRED, 0, 0, 0, 0), 2,
                            (vt_value *[]){c[0], c[0]});
  vt_op_set_i64(less->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_NE);
  vt_op_set_i64(less->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_func_set_returns(condition, 1, &less);
  vt_value *one = vt_build(body, NULL, VT_OP_DYNAMIC_SLICE, NULL, layer, 4,
                           (vt_value *[]){b[2], b[0], b[0], b[0]});
  vt_op_set_ints(one->op, VT_ATTR_SLICE_SIZES, 3, (int64_t[]){1, 8, 8});
  vt_value *weights = vt_build(body, NULL, VT_OP_RESHAPE, NULL, matrix, 1, &one);
  vt_value *product =
      vt_build(body, NULL, VT_OP_DOT, NULL, matrix, 2, (vt_value *[]){b[1], weights});
  vt_op_set_ints(product->op, VT_ATTR_PRECISION_CONFIG, 2, (int64_t[]){0, 0});
  vt_value *next = vt_build(body, NULL, VT_OP_ADD, NULL, s32, 2, (vt_value *[]){b[0], b[0]});
  vt_func_set_returns(body, 3, (vt_value *[]){next, product, b[2]});
  loop->regions[0] = condition, loop->regions[1] = body;
  vt_op_append(w.main, loop);
  vt_value *result = &loop->results[1];
  finish(w, 1, &result, &(vt_pass_options){.bf16_dots = true, .min_bf16_depth = 1});
  assert_int_equal(count_ops(w.main, VT_OP_CONVERT), 1); // of the stack
  const vt_func *left = w.main->last->regions[1];
  assert_int_equal(count_ops(left, VT_OP_CONVERT), 1); // of x
  assert_int_equal(count_ops(left, VT_OP_DYNAMIC_SLICE), 1);
  vt_module_destroy(w.module);
}

static void calls_become_bodies_and_dead_code_goes(void **state) {
  (void)state;
  world w = begin();
  vt_type type = tensor(w, VT_F32, 1, 4, 0, 0);
  vt_func *inner = vt_func_create(w.module, "inner"), *outer = vt_func_create(w.module, "outer");
  vt_value *a = vt_func_add_param(inner, type), *b = vt_func_add_param(outer, type);
  vt_value *squared = vt_build(inner, NULL, VT_OP_MULTIPLY, NULL, type, 2, (vt_value *[]){a, a});
  vt_func_set_returns(inner, 1, &squared);
  vt_value *called = vt_build(outer, NULL, VT_OP_CALL, NULL, type, 1, &b);
  vt_func **callee = VT_NEW(&w.module->arena, vt_func *);
  *callee = inner;
  vt_op_set_attr(called->op, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = callee});
  vt_func_set_returns(outer, 1, &called);
  vt_module_add_func(w.module, inner);
  vt_module_add_func(w.module, outer);
  vt_value *x = vt_func_add_param(w.main, type);
  vt_func **second = VT_NEW(&w.module->arena, vt_func *);
  *second = outer;
  vt_value *result = op1(w, VT_OP_CALL, type, x);
  vt_op_set_attr(result->op, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = second});
  op1(w, VT_OP_EXPONENTIAL, type, result); // unused
  finish(w, 1, &result, NULL);
  assert_int_equal(w.module->func_count, 1);
  assert_int_equal(count_ops(w.main, VT_OP_INVALID), 1);
  assert_int_equal(w.main->first->code, VT_OP_MULTIPLY);
  vt_module_destroy(w.module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transposes_go_into_dots),
      cmocka_unit_test(chains_collapse),
      cmocka_unit_test(rounding_conversions_stay),
      cmocka_unit_test(constants_fold_and_equal_ops_merge),
      cmocka_unit_test(adding_zero_stays),
      cmocka_unit_test(default_dots_round_their_operands_once),
      cmocka_unit_test(loops_lose_what_does_not_change),
      cmocka_unit_test(loops_make_what_costs_nothing),
      cmocka_unit_test(stacks_are_rounded_before_the_loop),
      cmocka_unit_test(calls_become_bodies_and_dead_code_goes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
