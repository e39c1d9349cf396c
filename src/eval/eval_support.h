// SPDX-License-Identifier: Apache-2.0
// eval_support.h - shared by the tests of src/eval: one-op programs from numbers, results as
// numbers.
#ifndef VT_EVAL_EVAL_SUPPORT_H
#define VT_EVAL_EVAL_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"
#include "ir/number.h"

// A module with one function, one op being built in it, and its operands' data.
typedef struct bench {
  vt_module *module;
  vt_func *func;
  vt_op *op;
  vt_tensor in[8], out[4];
  uint32_t in_count, out_count;
  vt_eval_env env;
} bench;

typedef struct numbers {
  int64_t count;
  const double *data;
} numbers;
#define N(...)                                                                                     \
  ((numbers){sizeof((double[]){__VA_ARGS__}) / sizeof(double), (const double[]){__VA_ARGS__}})
#define NONE ((numbers){0, NULL})
#define DIMS(...)                                                                                  \
  (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {               \
    __VA_ARGS__                                                                                    \
  }
#define SCALAR 0, NULL
#define INTS(op, key, ...)                                                                         \
  vt_op_set_ints(op, VT_ATTR_##key,                                                                \
                 (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
                 (const int64_t[]){__VA_ARGS__})
#define NO_INTS(op, key) vt_op_set_ints(op, VT_ATTR_##key, 0, (const int64_t[]){0})

static inline bench bench_new(void) {
  bench b = {.module = vt_module_create(), .env = {.exact_dots = true}};
  b.func = vt_func_create(b.module, "main");
  return b;
}
static inline void bench_free(bench *b) {
  for (uint32_t i = 0; i < b->in_count; i++) free(b->in[i].data);
  for (uint32_t i = 0; i < b->out_count; i++) free(b->out[i].data);
  vt_module_destroy(b->module);
}

static inline void *tensor_memory(vt_type t) {
  void *memory = NULL;
  assert_int_equal(posix_memalign(&memory, 64, (size_t)vt_type_bytes(t) + 1), 0);
  memset(memory, 0xa5, (size_t)vt_type_bytes(t));
  return memory;
}

// Complex tensors take (real, imaginary) pairs.
static inline void fill(vt_tensor t, numbers n) {
  vt_dtype d = t.type.dtype, part = d == VT_C64 ? VT_F32 : d == VT_C128 ? VT_F64 : d;
  for (int64_t i = 0; i < n.count; i++) vt_number_store(part, t.data, i, n.data[i]);
}

// A parameter with values; counts must match.
static inline void operand(bench *b, vt_dtype dtype, int32_t rank, const int64_t *dims, numbers n) {
  vt_type t = vt_type_make(&b->module->arena, dtype, rank, dims);
  int64_t parts = vt_type_elements(t) * (vt_dtype_is_complex(dtype) ? 2 : 1);
  assert_int_equal(parts, n.count);
  vt_func_add_param(b->func, t);
  b->in[b->in_count] = (vt_tensor){t, tensor_memory(t)};
  fill(b->in[b->in_count++], n);
}

static inline vt_type result_type(bench *b, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_type_make(&b->module->arena, dtype, rank, dims);
}

// The op over all operands so far; add attributes and regions afterwards.
static inline vt_op *make_op(bench *b, vt_opcode code, uint32_t results, const vt_type *types,
                             uint32_t regions) {
  b->op = vt_op_create(b->func, code, &vt_loc_unknown, b->in_count, b->func->params, results, types,
                       regions);
  vt_op_append(b->func, b->op);
  for (uint32_t i = 0; i < results; i++) b->out[i] = (vt_tensor){types[i], tensor_memory(types[i])};
  b->out_count = results;
  vt_value *values[4];
  for (uint32_t i = 0; i < results; i++)
    values[i] = b->op->results[i].type.rank >= 0 ? &b->op->results[i] : NULL;
  vt_func_set_returns(b->func, results, values);
  return b->op;
}
static inline vt_op *make_one(bench *b, vt_opcode code, vt_dtype dtype, int32_t rank,
                              const int64_t *dims, uint32_t regions) {
  vt_type t = result_type(b, dtype, rank, dims);
  return make_op(b, code, 1, &t, regions);
}

static inline void expect_ok(vt_status st) {
  if (st) fail_msg("%s: %s", vt_code_name(vt_status_code(st)), vt_status_message(st));
}

// `ulp` counts steps of the result's format (f32's for wider sums); 0 means the same value,
// including the sign of zeros.
static inline void expect_numbers(vt_tensor got, numbers want, double ulp, const char *what) {
  vt_dtype d = got.type.dtype, part = d == VT_C64 ? VT_F32 : d == VT_C128 ? VT_F64 : d;
  int64_t n = vt_type_elements(got.type) * (vt_dtype_is_complex(d) ? 2 : 1);
  assert_int_equal(n, want.count);
  double step = ldexp(1, -(int)(vt_dtype_is_float(part) ? vt_dtype_get(part)->mantissa : 0));
  for (int64_t i = 0; i < n; i++) {
    double g = vt_number_load(part, got.data, i), w = want.data[i];
    bool same = (isnan(g) && isnan(w)) || (g == w && signbit(g) == signbit(w));
    if (!same && ulp > 0)
      same = fabs(g - w) <= ulp * step * fabs(w) || (w == 0 && fabs(g) <= ulp * step);
    if (!same) fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, g, w);
  }
}

static inline void run_op(bench *b) {
  assert_true(vt_eval_supports(b->op));
  expect_ok(vt_eval_op(b->op, &b->env, b->in, b->out));
}

// A region of one binary op over scalars.
static inline vt_func *binary_region(bench *b, vt_opcode code, vt_dtype dtype) {
  vt_func *f = vt_func_create(b->module, "");
  vt_type t = {dtype, 0, NULL};
  vt_func_add_param(f, t);
  vt_func_add_param(f, t);
  vt_value *r = vt_build(f, NULL, code, &vt_loc_unknown, t, 2, f->params);
  vt_func_set_returns(f, 1, &r);
  return f;
}
static inline vt_value *compare_in(vt_func *f, int64_t direction, int64_t type, vt_value *a,
                                   vt_value *b) {
  vt_value *pair[2] = {a, b};
  vt_value *r =
      vt_build(f, NULL, VT_OP_COMPARE, &vt_loc_unknown, (vt_type){VT_PRED, 0, NULL}, 2, pair);
  vt_op_set_i64(r->op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(r->op, VT_ATTR_COMPARE_TYPE, type);
  return r;
}
static inline vt_func *compare_region(bench *b, int64_t direction, int64_t type, vt_dtype dtype) {
  vt_func *f = vt_func_create(b->module, "");
  vt_type t = {dtype, 0, NULL};
  vt_func_add_param(f, t);
  vt_func_add_param(f, t);
  vt_value *r = compare_in(f, direction, type, f->params[0], f->params[1]);
  vt_func_set_returns(f, 1, &r);
  return f;
}

// Runs the op, compares its first result, frees the bench.
static inline void finish(bench *b, numbers want, double ulp, const char *what) {
  run_op(b);
  expect_numbers(b->out[0], want, ulp, what);
  bench_free(b);
}

#endif
