// SPDX-License-Identifier: Apache-2.0
// sparse_test.c - products with matrices that have few entries, or enough to be treated as dense,
// against src/eval.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/plan.h"
#include "ir/module.h"

static uint32_t random_state = 1;
static uint32_t next_random(void) {
  return (random_state = random_state * 1664525 + 1013904223) >> 8;
}
static float random_value(void) {
  return (float)next_random() / (1 << 23) - 1;
}

// The matrix has a contracted dimension `matrix_k` of two; the other side is the left operand
// unless `first`. The result is transposed by `order` when that is not empty.
typedef struct row {
  const char *name;
  bool first;
  int64_t matrix[2], matrix_k;
  int32_t rank;
  int64_t other[4], other_k, order[4];
  bool dense; // the result's lines are not contiguous
} row;

// clang-format off
static const row rows[] = {
    {"filter bank", false, {64, 24}, 0, 2, {33, 64}, 1, {0}, false},
    {"filter bank, its rows", false, {24, 64}, 1, 2, {33, 64}, 1, {0}, false},
    {"columns of the other side", false, {64, 24}, 0, 2, {64, 37}, 0, {0}, false},
    {"in front", true, {24, 64}, 1, 2, {64, 100}, 0, {0}, false},
    {"in front, a tail of a line", true, {24, 64}, 1, 2, {64, 17}, 0, {0}, false},
    {"in front, of short lines", true, {24, 64}, 1, 2, {64, 3}, 0, {1, 0}, false},
    {"rows of images", true, {64, 40}, 0, 4, {3, 64, 5, 30}, 1, {0}, false},
    {"rows of images, put back", true, {64, 40}, 0, 4, {3, 64, 5, 30}, 1, {1, 0, 2, 3}, false},
    {"columns of images", false, {64, 40}, 0, 4, {3, 5, 64, 3}, 2, {0, 1, 3, 2}, false},
    {"columns of images, last", false, {64, 41}, 0, 4, {3, 5, 64, 3}, 2, {0, 1, 2, 3}, false},
    {"columns of images, first", false, {64, 41}, 0, 4, {3, 5, 64, 3}, 2, {3, 0, 1, 2}, true},
    {"one entry at most", false, {8, 50}, 0, 2, {9, 8}, 1, {0}, false},
};
// clang-format on

static vt_value *build(vt_func *func, vt_opcode code, vt_type type, vt_value *a, vt_value *b) {
  return vt_build(func, NULL, code, NULL, type, b ? 2 : 1, (vt_value *[]){a, b});
}

static vt_value *splat(vt_func *func, vt_type type, float x) {
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  float *data = VT_NEW(&func->module->arena, float);
  *data = x;
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(func, NULL, NULL, literal);
}

// max(matrix, tiny values that grow with the index): equals the matrix, but computed from an iota.
static vt_value *drawn(vt_func *func, vt_value *matrix) {
  vt_type type = matrix->type;
  vt_value *place = vt_build(func, NULL, VT_OP_IOTA, NULL, type, 0, NULL);
  vt_op_set_i64(place->op, VT_ATTR_IOTA_DIMENSION, 0);
  place = build(func, VT_OP_ADD, type, place, splat(func, type, 1));
  place = build(func, VT_OP_MULTIPLY, type, place, splat(func, type, -1e30f));
  return build(func, VT_OP_MAXIMUM, type, matrix, place);
}

static vt_program *make(const row *r, bool evaluator) {
  vt_module *module = vt_module_create();
  vt_arena *arena = &module->arena;
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  vt_value *matrix = vt_func_add_param(func, vt_type_make(arena, VT_F32, 2, r->matrix));
  vt_value *other = vt_func_add_param(func, vt_type_make(arena, VT_F32, r->rank, r->other));
  int64_t dims[4], count = 0, line = r->matrix[1 - r->matrix_k];
  if (r->first) dims[count++] = line;
  for (int32_t d = 0; d < r->rank; d++)
    if (d != r->other_k) dims[count++] = r->other[d];
  if (!r->first) dims[count++] = line;
  matrix = drawn(func, matrix);
  vt_value *dot = build(func, VT_OP_DOT_GENERAL, vt_type_make(arena, VT_F32, r->rank, dims),
                        r->first ? matrix : other, r->first ? other : matrix);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1,
                 r->first ? &r->matrix_k : &r->other_k);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1,
                 r->first ? &r->other_k : &r->matrix_k);
  if (r->order[0] || r->order[1]) {
    int64_t turned[4];
    for (int32_t d = 0; d < r->rank; d++) turned[d] = dims[r->order[d]];
    dot = build(func, VT_OP_TRANSPOSE, vt_type_make(arena, VT_F32, r->rank, turned), dot, NULL);
    vt_op_set_ints(dot->op, VT_ATTR_PERMUTATION, (uint32_t)r->rank, r->order);
  }
  vt_func_set_returns(func, 1, &dot);
  vt_status st = vt_module_verify(module);
  if (st) fail_msg("%s: %s", r->name, vt_status_message(st));
  vt_host_options options = {.device_count = 1,
                             .exact_dots = true,
                             .evaluator_only = evaluator,
                             .compile_all = !evaluator};
  vt_program *program;
  st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s: %s", r->name, vt_status_message(st));
  return program;
}

static bool has_sparse(const vt_program *program) {
  bool found = false;
  for (uint32_t s = 0; s < program->plan->step_count; s++)
    found |= !strcmp(program->plan->steps[s].runner, "sparse");
  return found;
}

enum { BAND, NOTHING, ONE_DENSE_LINE, DENSE, ODD_WEIGHTS, ODD_NUMBERS, FILLS };

static void fill(const row *r, int how, float *matrix, float *other, int64_t other_count) {
  int64_t k_size = r->matrix[r->matrix_k], n_size = r->matrix[1 - r->matrix_k];
  for (int64_t n = 0; n < n_size; n++)
    for (int64_t k = 0; k < k_size; k++) {
      int64_t most = n % (k_size / 8 + 1), start = n * k_size / n_size;
      bool inside = k >= start && k < start + most;
      if (how == NOTHING) inside = false;
      if (how == DENSE || (how == ONE_DENSE_LINE && n == n_size - 1)) inside = true;
      matrix[r->matrix_k ? n * k_size + k : k * n_size + n] = inside ? random_value() : 0;
    }
  for (int64_t i = 0; i < other_count; i++) other[i] = random_value();
  if (how == ODD_WEIGHTS) matrix[5] = INFINITY, matrix[k_size * n_size - 1] = NAN;
  if (how == ODD_NUMBERS) other[other_count / 2] = INFINITY, other[other_count - 1] = NAN;
}

static void run(vt_program *program, float *matrix, float *other, float *out) {
  vt_run run = {.params = (void *[]){matrix, other}, .results = (void *[]){out}};
  vt_status st = vt_program_run(program, &run);
  if (st) fail_msg("%s", vt_status_message(st));
}

static void products_match(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const row *r = &rows[i];
    vt_program *fast = make(r, false), *plain = make(r, true);
    if (has_sparse(fast) == r->dense) fail_msg("%s: taken for what it is not", r->name);
    const vt_func *func = vt_program_module(plain)->main;
    vt_type result = func->returns[0]->type, other = func->params[1]->type;
    float *data[4] = {vt_host_alloc(vt_type_bytes(func->params[0]->type)),
                      vt_host_alloc(vt_type_bytes(other)), vt_host_alloc(vt_type_bytes(result)),
                      vt_host_alloc(vt_type_bytes(result))};
    for (int how = 0; how < FILLS; how++) {
      fill(r, how, data[0], data[1], vt_type_elements(other));
      memset(data[2], 0xff, (size_t)vt_type_bytes(result));
      run(fast, data[0], data[1], data[2]);
      run(plain, data[0], data[1], data[3]);
      for (int64_t e = 0; e < vt_type_elements(result); e++) {
        float got = data[2][e], want = data[3][e];
        bool same = isnan(want) ? isnan(got) : got == want || fabsf(got - want) <= 1e-4f;
        if (!same) fail_msg("%s, fill %d: %g for %g", r->name, how, (double)got, (double)want);
      }
    }
    for (int k = 0; k < 4; k++) vt_host_free(data[k]);
    vt_program_destroy(fast);
    vt_program_destroy(plain);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_match)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
