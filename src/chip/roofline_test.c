// SPDX-License-Identifier: Apache-2.0
// roofline_test.c - counts of small modules compared with counts by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "chip/chip.h"
#include "ir/sharding.h"

typedef struct world {
  vt_module *module;
  vt_func *main;
} world;

static world begin(void) {
  world w = {.module = vt_module_create()};
  w.main = w.module->main = vt_func_create(w.module, "main");
  vt_module_add_func(w.module, w.main);
  return w;
}

static vt_type tensor(world w, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_type_make(&w.module->arena, dtype, rank, dims);
}
#define TENSOR(w, dtype, ...)                                                                      \
  tensor(w, dtype, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static vt_value *op1(vt_func *func, vt_opcode code, vt_type type, vt_value *a) {
  return vt_build(func, NULL, code, &vt_loc_unknown, type, 1, &a);
}
static vt_value *op2(vt_func *func, vt_opcode code, vt_type type, vt_value *a, vt_value *b) {
  return vt_build(func, NULL, code, &vt_loc_unknown, type, 2, (vt_value *[]){a, b});
}

static vt_value *dot(vt_func *func, vt_value *a, vt_value *b) {
  vt_type type =
      vt_type_make(&func->module->arena, VT_F32, 2, (int64_t[]){a->type.dims[0], b->type.dims[1]});
  vt_value *value = op2(func, VT_OP_DOT_GENERAL, type, a, b);
  vt_op_set_ints(value->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, (int64_t[]){1});
  vt_op_set_ints(value->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, (int64_t[]){0});
  return value;
}

static vt_value *integer(vt_func *func, int32_t number) {
  int32_t *data = VT_NEW(&func->module->arena, int32_t);
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  *data = number;
  *literal = (vt_literal){{VT_S32, 0, NULL}, data, true};
  return vt_build_constant(func, NULL, &vt_loc_unknown, literal);
}

static vt_roofline finish(world w, vt_value *result, const char *type, int32_t devices) {
  vt_slice slice;
  if (result) vt_func_set_returns(w.main, 1, &result);
  assert_null(vt_slice_from_name(type, &slice));
  return vt_chip_roofline(&slice, devices, w.module);
}

static void assert_near(double a, double b) {
  if (!(a > 0.999 * b && a < 1.001 * b)) fail_msg("%g is not %g", a, b);
}

// tanh(a . b): [64,32] x [32,16], and a second product of the same a
static void each_array_counts_once(void **state) {
  (void)state;
  world w = begin();
  vt_value *a = vt_func_add_param(w.main, TENSOR(w, VT_F32, 64, 32));
  vt_value *b = vt_func_add_param(w.main, TENSOR(w, VT_F32, 32, 16));
  vt_value *unused = vt_func_add_param(w.main, TENSOR(w, VT_F32, 1000, 1000));
  vt_value *result = op1(w.main, VT_OP_TANH, TENSOR(w, VT_F32, 64, 16), dot(w.main, a, b));
  (void)unused;
  vt_roofline r = finish(w, result, "v3-8", 1);
  assert_true(r.flops == 2.0 * 64 * 32 * 16 + 64 * 16);
  assert_true(r.transcendentals == 64 * 16);
  assert_true(r.bytes == 4 * (64 * 32 + 32 * 16 + 64 * 16));
  assert_true(r.exact_trips);
  assert_near(r.seconds, r.bytes / (900e9 / 2)); // one of two cores of a chip; memory bound
  assert_true(r.usd > 0);
  vt_roofline all = finish(w, NULL, "v3-8", 8);
  assert_near(all.seconds, r.seconds / 8);
  vt_value *again = op2(w.main, VT_OP_ADD, result->type, result, dot(w.main, a, b));
  assert_true(finish(w, again, "v3-8", 1).bytes == r.bytes);
  vt_module_destroy(w.module);
}

// Products of 8-bit numbers take half the time on a v5e, the same on a v4.
static void narrow_products(void **state) {
  (void)state;
  world w = begin();
  vt_value *a = vt_func_add_param(w.main, TENSOR(w, VT_S8, 8192, 8192));
  vt_roofline r = finish(w, dot(w.main, a, a), "v5e-1", 1);
  assert_near(r.seconds, 2.0 * 8192 * 8192 * 8192 / 394e12);
  r = finish(w, NULL, "v4-8", 1);
  assert_near(r.seconds, 2.0 * 8192 * 8192 * 8192 / 275e12);
  vt_module_destroy(w.module);
}

typedef struct conv_row {
  int64_t in, window, out, stride, low, high, in_dilation, window_dilation, groups, pairs;
} conv_row;

// Products with padding and with holes of the dilation do not count.
static void convolutions(void **state) {
  (void)state;
  static const conv_row rows[] = {
      {8, 3, 6, 1, 0, 0, 1, 1, 1, 18}, // no padding: all
      {7, 3, 7, 1, 1, 1, 1, 1, 1, 19}, // the ends hit two
      {8, 3, 4, 2, 0, 1, 1, 1, 1, 11}, // stride, padding on one side
      {4, 3, 9, 1, 2, 2, 2, 1, 1, 12}, // as a transposed convolution: each element hits each weight
      {9, 3, 5, 1, 0, 0, 1, 2, 1, 15}, // dilated window
      {4, 2, 3, 3, 1, 2, 2, 1, 1, 3},  // at 0 and 1, 2 and 3, 5 and 6 less one of padding: 0, 2, 6
      {8, 1, 4, 2, 0, -1, 1, 1, 4, 4},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const conv_row *r = &rows[i];
    world w = begin();
    vt_value *x = vt_func_add_param(w.main, TENSOR(w, VT_F32, 5, r->in, 8));
    vt_value *k = vt_func_add_param(w.main, TENSOR(w, VT_F32, r->window, 8 / r->groups, 16));
    vt_value *y = op2(w.main, VT_OP_CONVOLUTION, TENSOR(w, VT_F32, 5, r->out, 16), x, k);
    vt_op_set_ints(y->op, VT_ATTR_WINDOW_STRIDES, 1, &r->stride);
    vt_op_set_ints(y->op, VT_ATTR_PADDING, 2, (int64_t[]){r->low, r->high});
    vt_op_set_ints(y->op, VT_ATTR_LHS_DILATION, 1, &r->in_dilation);
    vt_op_set_ints(y->op, VT_ATTR_RHS_DILATION, 1, &r->window_dilation);
    vt_op_set_ints(y->op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, 1, (int64_t[]){1});
    vt_op_set_ints(y->op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, 1, (int64_t[]){0});
    vt_op_set_ints(y->op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, 1, (int64_t[]){1});
    vt_op_set_i64(y->op, VT_ATTR_OUTPUT_BATCH_DIMENSION, 0);
    vt_op_set_i64(y->op, VT_ATTR_OUTPUT_FEATURE_DIMENSION, 2);
    vt_op_set_i64(y->op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 1);
    double flops = finish(w, y, "v3-8", 1).flops;
    double want = 2.0 * 5 * 16 * (8.0 / (double)r->groups) * (double)r->pairs;
    if (flops != want) fail_msg("row %zu: %g flops, not %g", i, flops, want);
    vt_module_destroy(w.module);
  }
}

// A reduction reads its operand once; of a sliced argument only the slice is read.
static void reductions_and_slices(void **state) {
  (void)state;
  world w = begin();
  vt_value *x = vt_func_add_param(w.main, TENSOR(w, VT_F32, 1024, 256));
  vt_value *part = op1(w.main, VT_OP_SLICE, TENSOR(w, VT_F32, 16, 256), x);
  vt_value *in[2] = {op1(w.main, VT_OP_EXPONENTIAL, part->type, part), integer(w.main, 0)};
  vt_type out = TENSOR(w, VT_F32, 16);
  vt_op *reduce = vt_op_create(w.main, VT_OP_REDUCE, &vt_loc_unknown, 2, in, 1, &out, 1);
  reduce->regions[0] = vt_func_create(w.module, "");
  vt_op_append(w.main, reduce);
  vt_roofline r = finish(w, &reduce->results[0], "v3-8", 1);
  assert_true(r.flops == 2 * 16 * 256 && r.transcendentals == 16 * 256);
  assert_true(r.bytes == 4 * (16 * 256 + 16));
  vt_module_destroy(w.module);
}

// An argument that is updated in place costs no further read or write.
static void updates_in_place(void **state) {
  (void)state;
  world w = begin();
  vt_value *cache = vt_func_add_param(w.main, TENSOR(w, VT_F32, 4096, 128));
  vt_value *row = vt_func_add_param(w.main, TENSOR(w, VT_F32, 1, 128));
  vt_value *operands[4] = {cache, row, integer(w.main, 3), integer(w.main, 0)};
  vt_value *next =
      vt_build(w.main, NULL, VT_OP_DYNAMIC_UPDATE_SLICE, &vt_loc_unknown, cache->type, 4, operands);
  assert_true(finish(w, next, "v3-8", 1).bytes == 4 * 2 * 128);
  vt_module_destroy(w.module);
}

// for (i = 0; i < 10; i += step) x = x . weights
static vt_op *make_loop(world w, vt_func *func, vt_value *x, vt_value *weights, vt_value *step) {
  vt_type counter = {VT_S32, 0, NULL}, types[3] = {counter, x->type, weights->type};
  vt_value *start[4] = {integer(func, 0), x, weights, step};
  vt_op *loop = vt_op_create(func, VT_OP_WHILE, &vt_loc_unknown, 4, start, 3, types, 2);
  loop->capture_count = 1;
  for (int r = 0; r < 2; r++) {
    vt_func *inner = loop->regions[r] = vt_func_create(w.module, "");
    for (int i = 0; i < 3; i++) vt_func_add_param(inner, types[i]);
    vt_func_add_param(inner, counter);
  }
  vt_func *cond = loop->regions[0], *body = loop->regions[1];
  vt_value *test =
      op2(cond, VT_OP_COMPARE, (vt_type){VT_PRED, 0, NULL}, cond->params[0], integer(cond, 10));
  vt_op_set_i64(test->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_LT);
  vt_func_set_returns(cond, 1, &test);
  vt_value *next[3] = {op2(body, VT_OP_ADD, counter, body->params[0], body->params[3]),
                       dot(body, body->params[1], body->params[2]), body->params[2]};
  vt_func_set_returns(body, 3, next);
  vt_op_append(func, loop);
  return loop;
}

// The step matters: 0, 4, 8. Weights beyond what the chip can keep are read on every trip.
static void loops(void **state) {
  (void)state;
  world w = begin();
  double weights = 4.0 * 4096 * 4096, x = 4.0 * 8 * 4096, product = 2.0 * 8 * 4096 * 4096;
  vt_value *a = vt_func_add_param(w.main, TENSOR(w, VT_F32, 8, 4096));
  vt_value *b = vt_func_add_param(w.main, TENSOR(w, VT_F32, 4096, 4096));
  vt_value *unknown = vt_func_add_param(w.main, (vt_type){VT_S32, 0, NULL});
  vt_op *loop = make_loop(w, w.main, a, b, integer(w.main, 4));
  vt_roofline r = finish(w, &loop->results[1], "v3-8", 1);
  assert_true(r.exact_trips);
  assert_true(r.flops == 3 * (product + 1) + 4); // one addition per trip, one more comparison
  assert_near(r.bytes, 3 * weights + 2 * x - 2 * (16 << 20));
  loop->operands[3] = unknown;
  r = finish(w, &loop->results[1], "v3-8", 1);
  assert_false(r.exact_trips);
  assert_true(r.flops == product + 1 + 2);             // reported once
  assert_true(r.bytes <= x && r.seconds <= x / 450e9); // possibly never
  vt_module_destroy(w.module);
}

// The dearest branch need not be the one that runs.
static void branches(void **state) {
  (void)state;
  world w = begin();
  vt_type type = TENSOR(w, VT_F32, 4096, 4096);
  vt_value *in[2] = {vt_func_add_param(w.main, (vt_type){VT_PRED, 0, NULL}),
                     vt_func_add_param(w.main, type)};
  vt_op *choice = vt_op_create(w.main, VT_OP_IF, &vt_loc_unknown, 2, in, 1, &type, 2);
  choice->capture_count = 1;
  vt_op_append(w.main, choice);
  for (int i = 0; i < 2; i++) {
    vt_func *branch = choice->regions[i] = vt_func_create(w.module, "");
    vt_value *value = vt_func_add_param(branch, type);
    if (i == 0) value = dot(branch, value, value);
    vt_func_set_returns(branch, 1, &value);
  }
  vt_roofline r = finish(w, &choice->results[0], "v3-8", 1);
  assert_true(r.flops == 2.0 * 4096 * 4096 * 4096 && r.exact_trips);
  assert_true(r.seconds < 1e-9 + 2 * 4.0 * 4096 * 4096 / 450e9);
  // A loop of unknown trip count, in the branch that looks cheap.
  vt_func *dear = choice->regions[0], *cheap = choice->regions[1];
  vt_value *changing = vt_func_add_param(cheap, (vt_type){VT_S32, 0, NULL});
  vt_func_add_param(dear, changing->type);
  vt_value *more[3] = {in[0], in[1], vt_func_add_param(w.main, changing->type)};
  choice->operands = more, choice->operand_count = 3, choice->capture_count = 2;
  vt_op *loop = make_loop(w, cheap, cheap->params[0], cheap->params[0], changing);
  vt_value *value = &loop->results[1];
  vt_func_set_returns(cheap, 1, &value);
  assert_false(finish(w, NULL, "v3-8", 1).exact_trips);
  vt_module_destroy(w.module);
}

static const vt_sharding *rows_over(world w, const vt_mesh *mesh, uint32_t axis) {
  vt_arena *arena = &w.module->arena;
  vt_axis_ref *ref = VT_NEW(arena, vt_axis_ref);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, 2);
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  *ref = (vt_axis_ref){axis, 1, mesh->axes[axis].size};
  dims[0] = (vt_dim_sharding){.axis_count = 1, .axes = ref};
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = 2, .dims = dims};
  return s;
}

// A manual region over `axis`: its rows are sharded, the rest is local. Returns the region.
static vt_func *manual_over(world w, vt_func *func, const vt_mesh *mesh, uint32_t axis, vt_value *x,
                            vt_op **out_op) {
  vt_arena *arena = &w.module->arena;
  const vt_sharding **list = VT_NEW_ARRAY(arena, const vt_sharding *, 1);
  vt_string *name = VT_NEW(arena, vt_string);
  list[0] = rows_over(w, mesh, axis);
  *name = (vt_string){mesh->axes[axis].name, strlen(mesh->axes[axis].name)};
  vt_op *op = vt_op_create(func, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, 1, &x, 1, &x->type, 1);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = 1, .shardings = list});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = 1, .shardings = list});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = 1, .strings = name});
  vt_op_append(func, op);
  vt_func *region = op->regions[0] = vt_func_create(w.module, "");
  vt_func_add_param(region, TENSOR(w, VT_F32, x->type.dims[0] / mesh->axes[axis].size, 512));
  *out_op = op;
  return region;
}

// The same product [4096,512] x [512,512] takes an eighth of the time on eight devices however it
// is divided: by the compiler, manually over all axes, manually over one with the rest left to the
// compiler, or manually in two levels.
static void manual_regions(void **state) {
  (void)state;
  static const vt_mesh_axis axes[2] = {{"x", 4}, {"y", 2}}, flat[1] = {{"x", 8}};
  static const vt_mesh grid = {"grid", 2, axes, 0, NULL}, line = {"line", 1, flat, 0, NULL};
  const double want = 2.0 * 4096 * 512 * 512;
  for (int way = 0; way < 4; way++) {
    world w = begin();
    vt_value *x = vt_func_add_param(w.main, TENSOR(w, VT_F32, 4096, 512)), *in = x;
    const vt_mesh *mesh = way == 1 ? &line : &grid;
    vt_op *ops[2];
    vt_func *funcs[3] = {w.main};
    int depth = way == 0 ? 0 : way == 3 ? 2 : 1;
    for (int d = 0; d < depth; d++) {
      funcs[d + 1] = manual_over(w, funcs[d], mesh, (uint32_t)d, in, &ops[d]);
      in = funcs[d + 1]->params[0];
    }
    vt_func *func = funcs[depth];
    vt_type square = TENSOR(w, VT_F32, 512, 512);
    vt_value *k = op1(func, VT_OP_IOTA, square, in);
    k->op->operand_count = 0;
    vt_value *result = dot(func, in, k);
    for (int d = depth; d-- > 0;) {
      vt_func_set_returns(funcs[d + 1], 1, &result);
      result = &ops[d]->results[0];
    }
    double iotas = 512 * 512 * (way == 1 || way == 3 ? 8 : way == 2 ? 4 : 1);
    vt_roofline r = finish(w, result, "v3-8", 8);
    if (r.flops != want + iotas) fail_msg("way %d: %g flops, not %g", way, r.flops, want + iotas);
    assert_true(r.bytes >= 4.0 * 4096 * 512 && r.bytes <= 2 * 4.0 * 4096 * 512);
    double products = want / (4 * 123e12), bytes = r.bytes / (4 * 900e9);
    assert_near(r.seconds, products > bytes ? products : bytes);
    vt_module_destroy(w.module);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_array_counts_once),
      cmocka_unit_test(narrow_products),
      cmocka_unit_test(convolutions),
      cmocka_unit_test(reductions_and_slices),
      cmocka_unit_test(updates_in_place),
      cmocka_unit_test(loops),
      cmocka_unit_test(branches),
      cmocka_unit_test(manual_regions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
