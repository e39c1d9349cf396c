// SPDX-License-Identifier: Apache-2.0
// kernel_test.c - fused kernels against the evaluator: same function, same inputs, distance in ulp.
// Each row builds a function; it runs whole in vt_eval_func, and group by group with kernels for
// fused groups. Inputs are random, with NaN, infinities, zeros of both signs, subnormals and range
// limits mixed in. One file of over 1,000 lines: all rows share what builds and compares them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include "eval/eval.h"
#include "host/fuse.h"
#include "host/host.h"
#include "host/kernel.h"
#include "host/kernel_maker.h"

// ---- Numbers.

static uint64_t seed = 1;
static uint64_t next_random(void) {
  seed += 0x9E3779B97F4A7C15u;
  uint64_t z = seed;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
static double uniform(void) {
  return (double)(next_random() >> 11) * 0x1p-53;
}

enum { PLAIN, SPECIAL };

static void fill(vt_type type, void *data, int style) {
  static const double specials[] = {NAN,   INFINITY, -INFINITY, 0.0, -0.0, 1e-40, 1e38,
                                    -1e38, 1,        -1,        0.5, 88.7, -103};
  int64_t n = vt_type_elements(type);
  size_t bytes = vt_dtype_bytes(type.dtype);
  for (int64_t i = 0; i < n; i++) {
    char *at = (char *)data + (size_t)i * bytes;
    if (vt_dtype_is_float(type.dtype)) {
      double x = uniform() * 8 - 4;
      if (style == SPECIAL && next_random() % 7 == 0) x = specials[next_random() % 13];
      if (type.dtype == VT_F16)
        *(uint16_t *)at = (uint16_t)next_random() & 0xbfff;
      else
        put_number(type.dtype, at, x);
    } else if (type.dtype == VT_PRED) {
      *at = (char)(next_random() & 1);
    } else {
      uint64_t x = next_random() >> (next_random() % 64);
      if (next_random() % 5 == 0) x = 0 - x;
      memcpy(at, &x, bytes);
    }
  }
}

static double half_value(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                : ldexp(mantissa, -24);
  return bits & 0x8000 ? -value : value;
}

// Distance in units in the last place of the type; 0 for equal numbers and for two NaNs.
static double distance(vt_dtype dtype, const void *a, const void *b) {
  double x, y, step;
  size_t bytes = vt_dtype_bytes(dtype);
  if (!memcmp(a, b, bytes)) return 0;
  if (!vt_dtype_is_float(dtype)) return INFINITY;
  int mantissa = vt_dtype_get(dtype)->mantissa,
      least = 1 - ((1 << (vt_dtype_get(dtype)->exponent - 1)) - 1);
  switch (dtype) {
  case VT_F32:
    x = *(const float *)a, y = *(const float *)b;
    break;
  case VT_F64:
    x = *(const double *)a, y = *(const double *)b;
    break;
  case VT_BF16: {
    uint32_t p = (uint32_t)*(const uint16_t *)a << 16, q = (uint32_t)*(const uint16_t *)b << 16;
    float f, g;
    memcpy(&f, &p, 4), memcpy(&g, &q, 4);
    x = f, y = g;
    break;
  }
  default: {
    x = half_value(*(const uint16_t *)a), y = half_value(*(const uint16_t *)b);
  }
  }
  if ((x != x && y != y) || x == y) return 0;
  if (x != x || y != y || isinf(x) || isinf(y)) return INFINITY;
  step = ldexp(1, (x == 0 ? least : ilogb(x) < least ? least : ilogb(x)) - mantissa);
  return fabs(x - y) / step;
}

// ---- Running.

enum { MAX_VALUES = 512 };

static void *allocate(vt_type type) {
  size_t bytes = (size_t)vt_type_bytes(type) + 128;
  void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
  memset(data, 0xAA, bytes);
  return data;
}

typedef struct outcome {
  double worst; // ulp
  uint32_t fused, single;
  uint32_t kernel_ops; // in fused groups
} outcome;

static void *value_data(vt_value *value, void **data) {
  if (!data[value->id]) data[value->id] = allocate(value->type);
  return data[value->id];
}

static void run_single(const vt_group *g, void **data) {
  vt_tensor in[16], out[16];
  vt_op *op = g->ops[0];
  for (uint32_t i = 0; i < op->operand_count; i++)
    in[i] = (vt_tensor){.type = op->operands[i]->type, .data = value_data(op->operands[i], data)};
  for (uint32_t i = 0; i < op->result_count; i++)
    out[i] = (vt_tensor){.type = op->results[i].type, .data = value_data(&op->results[i], data)};
  assert_null(vt_eval_op(op, &(vt_eval_env){0}, in, out));
}

static void run_kernel(const vt_group *g, const vt_kernel *kernel, void **data, bool in_place) {
  void *in[128], *out[128];
  for (uint32_t i = 0; i < g->input_count; i++) in[i] = value_data(g->inputs[i], data);
  for (uint32_t i = 0; i < g->output_count; i++) {
    for (uint32_t k = 0; k < g->input_count && in_place && !data[g->outputs[i]->id]; k++) {
      bool taken = false; // parameters are copies of this run: any may be overwritten once
      for (uint32_t o = 0; o < i; o++) taken |= out[o] == in[k];
      if (!taken && !g->inputs[k]->op && vt_kernel_in_place_ok(kernel, i, k))
        data[g->outputs[i]->id] = in[k];
    }
    out[i] = value_data(g->outputs[i], data);
  }
  int64_t scratch_bytes = vt_kernel_scratch_bytes(kernel);
  void *scratch = aligned_alloc(64, (size_t)(scratch_bytes + 127) / 64 * 64);
  assert_null(vt_kernel_run(kernel, in, out, scratch));
  free(scratch);
}

static vt_status reported(vt_status st) {
  if (st) fprintf(stderr, "%s\n", vt_status_message(st));
  return st;
}

static outcome run_both(maker m, int style, bool in_place) {
  outcome result = {0};
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  vt_func *func = m.func;
  assert_null(
      reported(vt_host_fuse(func, &(vt_fuse_options){.min_work = -1}, &arena, &groups, &count)));
  vt_jit *jit;
  assert_null(reported(vt_jit_create(&jit)));
  const vt_group **fused = VT_NEW_ARRAY(&arena, const vt_group *, count);
  vt_kernel **kernels = VT_NEW_ARRAY(&arena, vt_kernel *, count);
  for (uint32_t i = 0; i < count; i++)
    if (groups[i].fused)
      fused[result.fused++] = &groups[i], result.kernel_ops += groups[i].op_count;
  result.single = count - result.fused;
  assert_null(reported(vt_jit_compile(jit, fused, result.fused, kernels)));
  assert_true(func->value_count < MAX_VALUES);
  void *data[MAX_VALUES] = {0};
  vt_tensor args[32], wanted[32];
  for (uint32_t i = 0; i < func->param_count; i++) {
    vt_type type = func->params[i]->type;
    args[i] = (vt_tensor){.type = type, .data = allocate(type)};
    fill(type, args[i].data, style);
    memcpy(value_data(func->params[i], data), args[i].data, (size_t)vt_type_bytes(type));
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    wanted[i] =
        (vt_tensor){.type = func->returns[i]->type, .data = allocate(func->returns[i]->type)};
  assert_null(reported(vt_eval_func(func, &(vt_eval_env){0}, args, wanted)));
  for (uint32_t i = 0, k = 0; i < count; i++) {
    if (groups[i].fused)
      run_kernel(&groups[i], kernels[k++], data, in_place && count == 1);
    else
      run_single(&groups[i], data);
  }
  for (uint32_t i = 0; i < func->return_count; i++) {
    size_t bytes = vt_dtype_bytes(wanted[i].type.dtype);
    const char *got = value_data(func->returns[i], data);
    int64_t n = vt_type_elements(wanted[i].type);
    for (int64_t e = 0; e < n; e++) {
      double d = distance(wanted[i].type.dtype, (char *)wanted[i].data + (size_t)e * bytes,
                          got + (size_t)e * bytes);
      if (d > result.worst) result.worst = d;
      if (d == INFINITY && getenv("VTPU_TEST_VERBOSE")) {
        uint64_t p = 0, q = 0;
        memcpy(&p, (char *)wanted[i].data + (size_t)e * bytes, bytes);
        memcpy(&q, got + (size_t)e * bytes, bytes);
        printf("result %u element %lld: want %llx got %llx\n", i, (long long)e,
               (unsigned long long)p, (unsigned long long)q);
      }
    }
    free(wanted[i].data);
  }
  for (int32_t i = 0; i < func->value_count; i++) {
    for (int32_t j = i + 1; j < func->value_count; j++)
      if (data[j] == data[i]) data[j] = NULL;
    free(data[i]);
  }
  for (uint32_t i = 0; i < func->param_count; i++) free(args[i].data);
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
  return result;
}

static void set_returns(maker m, int count, vt_value **values) {
  vt_func_set_returns(m.func, (uint32_t)count, values);
}
#define RETURNS(m, ...)                                                                            \
  set_returns(m, (int)(sizeof((vt_value *[]){__VA_ARGS__}) / sizeof(vt_value *)),                  \
              (vt_value *[]){__VA_ARGS__})

// Expects the given numbers of groups with and without kernels, and at most `ulp`.
static void check(maker m, int style, uint32_t fused, uint32_t single, double ulp) {
  for (int in_place = 0; in_place < 2; in_place++) {
    outcome o = run_both(m, style, in_place);
    if (o.fused != fused || o.single != single || !(o.worst <= ulp))
      fprintf(stderr, "fused %u (want %u), single %u (want %u), worst %g ulp (allowed %g)\n",
              o.fused, fused, o.single, single, o.worst, ulp);
    assert_int_equal(o.fused, fused);
    assert_int_equal(o.single, single);
    assert_true(o.worst <= ulp);
  }
  vt_module_destroy(m.module);
}

// ---- Elementwise.

static const int64_t sizes[] = {2, 15, 16, 17, 64, 1000, 40001};

static void float_ops(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_F64, VT_F16};
  static const vt_opcode unaries[] = {VT_OP_ABS,    VT_OP_CEIL, VT_OP_FLOOR,
                                      VT_OP_NEGATE, VT_OP_SIGN, VT_OP_ROUND_NEAREST_EVEN,
                                      VT_OP_SQRT};
  static const vt_opcode binaries[] = {VT_OP_ADD,    VT_OP_MULTIPLY, VT_OP_SUBTRACT,
                                       VT_OP_DIVIDE, VT_OP_MAXIMUM,  VT_OP_MINIMUM};
  for (int t = 0; t < 4; t++)
    for (int s = 0; s < 7; s++) {
      maker m = new_maker();
      vt_value *x = param(m, types[t], DIMS(sizes[s])), *y = param(m, types[t], DIMS(sizes[s])),
               *out[24];
      int n = 0;
      for (int i = 0; i < 7; i++) out[n++] = unary(m, unaries[i], x);
      for (int i = 0; i < 6; i++) out[n++] = binary(m, binaries[i], x, y);
      out[n++] = choose(m, compare(m, VT_CMP_LT, x, y), x, y);
      out[n++] = compare(m, VT_CMP_NE, x, y);
      if (vt_dtype_bytes(types[t]) > 2)
        for (int d = 0; d < 6; d++) out[n++] = compare_totally(m, d, x, y);
      set_returns(m, n, out);
      check(m, SPECIAL, 1, 0, 0);
    }
}

static void integer_ops(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_S8, VT_S16, VT_S32, VT_S64, VT_U8, VT_U16, VT_U32, VT_U64};
  static const vt_opcode binaries[] = {VT_OP_ADD,
                                       VT_OP_MULTIPLY,
                                       VT_OP_SUBTRACT,
                                       VT_OP_DIVIDE,
                                       VT_OP_REMAINDER,
                                       VT_OP_MAXIMUM,
                                       VT_OP_MINIMUM,
                                       VT_OP_AND,
                                       VT_OP_OR,
                                       VT_OP_XOR,
                                       VT_OP_SHIFT_LEFT,
                                       VT_OP_SHIFT_RIGHT_ARITHMETIC,
                                       VT_OP_SHIFT_RIGHT_LOGICAL};
  for (int t = 0; t < 8; t++)
    for (int s = 3; s < 6; s++) {
      maker m = new_maker();
      vt_value *x = param(m, types[t], DIMS(sizes[s])), *y = param(m, types[t], DIMS(sizes[s])),
               *out[20];
      int n = 0;
      for (int i = 0; i < 13; i++) out[n++] = binary(m, binaries[i], x, y);
      out[n++] = unary(m, VT_OP_POPCNT, x);
      out[n++] = unary(m, VT_OP_COUNT_LEADING_ZEROS, x);
      out[n++] = unary(m, VT_OP_NOT, x);
      out[n++] = choose(m, compare(m, VT_CMP_GE, x, y), x, y);
      set_returns(m, n, out);
      check(m, PLAIN, 1, 0, 0);
    }
}

static void conversions(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_PRED, VT_S8,  VT_S16, VT_S32,  VT_S64, VT_U8, VT_U16,
                                   VT_U32,  VT_U64, VT_F16, VT_BF16, VT_F32, VT_F64};
  for (int from = 0; from < 13; from++) {
    maker m = new_maker();
    vt_value *x = param(m, types[from], DIMS(1003)), *out[13];
    int n = 0;
    for (int to = 0; to < 13; to++)
      if (to != from) out[n++] = convert(m, types[to], x);
    set_returns(m, n, out);
    check(m, PLAIN, 1, 0, 0);
  }
}

static void transcendentals(void **state) {
  (void)state;
  static const struct {
    vt_opcode code;
    double ulp;
  } rows[] = {{VT_OP_EXPONENTIAL, 2}, {VT_OP_EXPONENTIAL_MINUS_ONE, 3},
              {VT_OP_LOG, 2},         {VT_OP_LOG_PLUS_ONE, 3},
              {VT_OP_LOGISTIC, 4},    {VT_OP_TANH, 4},
              {VT_OP_SINE, 64},       {VT_OP_COSINE, 64},
              {VT_OP_RSQRT, 2},       {VT_OP_CBRT, 2},
              {VT_OP_TAN, 4}};
  for (int t = 0; t < 2; t++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
      maker m = new_maker();
      vt_value *x = param(m, t ? VT_BF16 : VT_F32, DIMS(20011));
      RETURNS(m, unary(m, rows[r].code, x));
      check(m, SPECIAL, 1, 0, rows[r].ulp);
    }
}

// ---- Broadcasts, iota, reshapes.

static void broadcasts(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{3, 5, 16}, {4, 7, 33}, {2, 1, 100}, {64, 9, 10}};
  for (int s = 0; s < 4; s++) {
    maker m = new_maker();
    const int64_t *d = shapes[s];
    vt_value *x = param(m, VT_F32, 3, d), *last = param(m, VT_F32, DIMS(d[2])),
             *mid = param(m, VT_F32, DIMS(d[1]));
    vt_value *first = param(m, VT_F32, DIMS(d[0])), *outer = param(m, VT_BF16, DIMS(d[0], d[2]));
    vt_value *y = binary(m, VT_OP_ADD, x, broadcast(m, last, x->type, DIMS(2)));
    y = binary(m, VT_OP_MULTIPLY, y, broadcast(m, mid, x->type, DIMS(1)));
    y = binary(m, VT_OP_SUBTRACT, y, broadcast(m, first, x->type, DIMS(0)));
    y = binary(m, VT_OP_MAXIMUM, y, convert(m, VT_F32, broadcast(m, outer, x->type, DIMS(0, 2))));
    y = binary(m, VT_OP_ADD, y, splat(m, 1.5, x->type));
    y = reshape(m, y, DIMS(d[0] * d[1], d[2]));
    RETURNS(m, unary(m, VT_OP_NEGATE, y));
    check(m, SPECIAL, 1, 0, 0);
  }
}

// Rows shorter than a vector: several rows per vector.
static void narrow_rows(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_F64, VT_F16, VT_S8, VT_U16, VT_S32, VT_U64};
  static const int64_t counts[] = {33, 64, 20001};
  for (int i = 0; i < 72; i++) {
    vt_dtype type = types[i % 8];
    int64_t n = counts[i % 3], c = 2 + i % 7, outer = 1 + i % 2 * 2;
    const int64_t d[] = {outer, n, c};
    maker m = new_maker();
    vt_value *x = param(m, type, 3, d), *by_row = param(m, type, DIMS(outer, n)),
             *by_column = param(m, type, DIMS(c)), *column = param(m, type, DIMS(n)),
             *wide = param(m, type, DIMS(outer, n, 2 * c));
    vt_value *part = vt_build(m.func, NULL, VT_OP_SLICE, NULL, make_type(m, type, 3, d), 1, &wide);
    vt_op_set_ints(part->op, VT_ATTR_START_INDICES, DIMS(0, 0, c - 1));
    vt_op_set_ints(part->op, VT_ATTR_LIMIT_INDICES, DIMS(outer, n, 2 * c - 1));
    vt_op_set_ints(part->op, VT_ATTR_STRIDES, DIMS(1, 1, 1));
    vt_value *y = binary(m, VT_OP_ADD, x, broadcast(m, by_row, x->type, DIMS(0, 1)));
    y = binary(m, VT_OP_MULTIPLY, y, broadcast(m, by_column, x->type, DIMS(2)));
    y = binary(m, VT_OP_SUBTRACT, y, broadcast(m, column, x->type, DIMS(1)));
    y = binary(m, VT_OP_MAXIMUM, y, part);
    vt_value *small = compare(m, VT_CMP_LT, broadcast(m, by_row, x->type, DIMS(0, 1)), y);
    for (int a = 0; a < 3; a++) y = binary(m, VT_OP_ADD, y, iota(m, a, type, 3, d));
    RETURNS(m, choose(m, small, x, y), small);
    check(m, vt_dtype_is_float(type) ? SPECIAL : PLAIN, 1, 0, 0);
  }
  // Expensive per-row values get a group of their own.
  maker m = new_maker();
  vt_value *x = param(m, VT_F32, DIMS(1000, 3)), *y = param(m, VT_F32, DIMS(1000)), *z = y;
  for (int i = 0; i < 4; i++) z = unary(m, VT_OP_TANH, z);
  RETURNS(m, binary(m, VT_OP_MULTIPLY, x, broadcast(m, z, x->type, DIMS(0))));
  check(m, PLAIN, 2, 0, 32);
}

static void iotas(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *x = param(m, VT_S32, DIMS(5, 6, 19));
  vt_value *y = x;
  for (int d = 0; d < 3; d++) y = binary(m, VT_OP_ADD, y, iota(m, d, VT_S32, DIMS(5, 6, 19)));
  vt_value *z = convert(m, VT_S32, iota(m, 2, VT_F32, DIMS(5, 6, 19)));
  RETURNS(m, binary(m, VT_OP_XOR, y, z),
          compare(m, VT_CMP_GE, iota(m, 1, VT_S32, DIMS(5, 6, 19)), z));
  check(m, PLAIN, 1, 0, 0);
  static const vt_dtype alone[] = {VT_S32, VT_U8, VT_BF16, VT_S64};
  for (int i = 0; i < 4; i++) {
    maker one = new_maker();
    RETURNS(one, iota(one, i % 3, alone[i], DIMS(5, 300, 19)));
    check(one, PLAIN, 1, 0, 0);
  }
}

// a x^k + ... by Horner's rule: enough to be worth a branch.
static vt_value *long_sum(maker m, vt_value *x, double a) {
  vt_value *y = splat(m, a, x->type);
  for (int i = 0; i < 12; i++)
    y = binary(m, VT_OP_ADD, binary(m, VT_OP_MULTIPLY, y, x), splat(m, a + i, x->type));
  return y;
}

// Costly operands of a select: chosen by all, some and no lanes of a vector, nested, needed
// elsewhere too, results themselves, after a row's sum, and both sides of one value.
static void costly_choices(void **state) {
  (void)state;
  static const double limits[] = {-INFINITY, -1, 0, 3.9, INFINITY};
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < 5; i++)
      for (int s = 2; s < 7; s++) {
        static const vt_dtype types[] = {VT_F32, VT_F64, VT_BF16};
        maker m = new_maker();
        vt_value *x = param(m, types[t], DIMS(sizes[s])), *limit = splat(m, limits[i], x->type);
        vt_value *below = compare(m, VT_CMP_LT, x, limit), *left = long_sum(m, x, 0.25);
        vt_value *shared = long_sum(m, x, 0.5), *right = binary(m, VT_OP_DIVIDE, shared, x);
        vt_value *inner = choose(m, compare(m, VT_CMP_GT, x, splat(m, -2, x->type)), left, x);
        vt_value *outer = choose(m, below, long_sum(m, inner, 0.125), right);
        vt_value *seen = long_sum(m, x, 0.75);
        RETURNS(m, outer, choose(m, below, shared, long_sum(m, outer, 0.0625)), seen,
                choose(m, below, seen, x), choose(m, below, right, right));
        check(m, SPECIAL, 1, 0, 0);
      }
  for (int s = 0; s < 3; s++) {
    static const int64_t columns[] = {16, 33, 256};
    maker m = new_maker();
    vt_value *x = param(m, VT_F32, DIMS(20, columns[s]));
    vt_value *below = compare(m, VT_CMP_LT, x, splat(m, 1, x->type));
    vt_value *y = choose(m, below, long_sum(m, x, 0.25), long_sum(m, x, 0.5));
    vt_value *sum = broadcast(m, reduce(m, VT_OP_ADD, 0, y, DIMS(1)), x->type, DIMS(0));
    RETURNS(m, choose(m, below, binary(m, VT_OP_DIVIDE, y, sum), y));
    check(m, PLAIN, 1, 0, 16);
  }
}

static void bits_and_scalars(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *x = param(m, VT_U32, DIMS(1000));
  vt_value *one = binary(m, VT_OP_OR, binary(m, VT_OP_SHIFT_RIGHT_LOGICAL, x, splat(m, 9, x->type)),
                         splat(m, 0x3f800000, x->type));
  vt_value *f =
      vt_build(m.func, NULL, VT_OP_BITCAST_CONVERT, NULL, with_dtype(x->type, VT_F32), 1, &one);
  RETURNS(m, binary(m, VT_OP_SUBTRACT, f, splat(m, 1, f->type)));
  check(m, PLAIN, 1, 0, 0);
  m = new_maker();
  vt_value *a = param(m, VT_F32, 0, NULL), *b = param(m, VT_F32, 0, NULL),
           *c = reshape(m, binary(m, VT_OP_ADD, a, b), DIMS(1, 1));
  RETURNS(m, binary(m, VT_OP_MULTIPLY, c, splat(m, 3, c->type)), unary(m, VT_OP_NEGATE, a));
  check(m, PLAIN, 1, 0, 0);
}

static void adam(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *p = param(m, VT_F32, DIMS(37, 111)), *g = param(m, VT_F32, DIMS(37, 111));
  vt_value *mu = param(m, VT_F32, DIMS(37, 111)), *nu = param(m, VT_F32, DIMS(37, 111)),
           *rate = param(m, VT_F32, 0, NULL);
  vt_value *mu2 = binary(m, VT_OP_ADD, binary(m, VT_OP_MULTIPLY, mu, splat(m, 0.9, p->type)),
                         binary(m, VT_OP_MULTIPLY, g, splat(m, 0.1, p->type)));
  vt_value *g2 = binary(m, VT_OP_MULTIPLY, g, g);
  vt_value *nu2 = binary(m, VT_OP_ADD, binary(m, VT_OP_MULTIPLY, nu, splat(m, 0.999, p->type)),
                         binary(m, VT_OP_MULTIPLY, g2, splat(m, 0.001, p->type)));
  vt_value *down =
      binary(m, VT_OP_ADD, unary(m, VT_OP_SQRT, unary(m, VT_OP_ABS, nu2)), splat(m, 1e-8, p->type));
  vt_value *step = binary(m, VT_OP_MULTIPLY, binary(m, VT_OP_DIVIDE, mu2, down),
                          broadcast(m, rate, p->type, 0, NULL));
  RETURNS(m, binary(m, VT_OP_SUBTRACT, p, step), mu2, nu2);
  check(m, PLAIN, 1, 0, 0);
}

// ---- Reductions.

static void row_and_column_sums(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{7, 5},     {33, 64},   {100, 1000},
                                      {513, 130}, {3, 20000}, {2000, 3}};
  for (int s = 0; s < 6; s++)
    for (int axis = 0; axis < 3; axis++) {
      maker m = new_maker();
      vt_value *x = param(m, VT_F32, 2, shapes[s]);
      vt_value *y = unary(m, VT_OP_ABS, x); // positive: no cancellation, so ulp means something
      vt_value *sum = axis == 2 ? reduce(m, VT_OP_ADD, 0, y, DIMS(0, 1))
                                : reduce(m, VT_OP_ADD, 0, y, DIMS(axis));
      vt_value *max = axis == 2 ? reduce(m, VT_OP_MAXIMUM, -INFINITY, x, DIMS(0, 1))
                                : reduce(m, VT_OP_MAXIMUM, -INFINITY, x, DIMS(axis));
      RETURNS(m, sum, max, y);
      check(m, PLAIN, 1, 0, 64);
    }
}

static void softmax(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{7, 10}, {33, 64}, {100, 1000}, {40, 513}};
  for (int s = 0; s < 4; s++) {
    maker m = new_maker();
    vt_value *x = param(m, VT_F32, 2, shapes[s]);
    vt_value *scaled = binary(m, VT_OP_MULTIPLY, x, splat(m, 0.125, x->type));
    vt_value *max = reduce(m, VT_OP_MAXIMUM, -INFINITY, scaled, DIMS(1));
    vt_value *e = unary(m, VT_OP_EXPONENTIAL,
                        binary(m, VT_OP_SUBTRACT, scaled, broadcast(m, max, x->type, DIMS(0))));
    vt_value *sum = reduce(m, VT_OP_ADD, 0, e, DIMS(1));
    vt_value *y = binary(m, VT_OP_DIVIDE, e, broadcast(m, sum, x->type, DIMS(0)));
    RETURNS(m, y, binary(m, VT_OP_ADD, unary(m, VT_OP_LOG, sum), max));
    check(m, PLAIN, 1, 0, 16);
  }
}

// Where several rows are computed side by side, none is left out and none reads what another wrote;
// what is not a number in one stays there. Row lengths are around those of the loops.
static void rows_side_by_side(void **state) {
  (void)state;
  static const int64_t columns[] = {10, 48, 64, 80, 130, 1024};
  for (int i = 0; i < 6 * 5 * 2; i++) {
    maker m = new_maker();
    vt_value *x = param(m, VT_F32, DIMS(1 + i / 6 % 5, columns[i % 6]));
    vt_value *max = reduce(m, VT_OP_MAXIMUM, -INFINITY, x, DIMS(1)),
             *min = reduce(m, VT_OP_MINIMUM, INFINITY, x, DIMS(1));
    vt_value *y = binary(m, VT_OP_SUBTRACT, x, broadcast(m, max, x->type, DIMS(0)));
    y = binary(m, VT_OP_MAXIMUM, y, broadcast(m, min, x->type, DIMS(0)));
    RETURNS(m, y, max, min);
    check(m, i / 30 ? SPECIAL : PLAIN, 1, 0, 0);
  }
}

static void layer_norm(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{2, 7, 16}, {3, 5, 130}, {3, 9, 130}, {1, 33, 768}};
  for (int s = 0; s < 8; s++) {
    maker m = new_maker();
    vt_dtype type = s % 2 ? VT_BF16 : VT_F32; // of what is the same in all rows
    vt_value *x = param(m, VT_F32, 3, shapes[s / 2]);
    vt_value *gamma = convert(m, VT_F32, param(m, type, DIMS(shapes[s / 2][2])));
    vt_type rows = make_type(m, VT_F32, 2, shapes[s / 2]);
    vt_value *mean = binary(m, VT_OP_DIVIDE, reduce(m, VT_OP_ADD, 0, x, DIMS(2)),
                            splat(m, (double)shapes[s / 2][2], rows));
    vt_value *d = binary(m, VT_OP_SUBTRACT, x, broadcast(m, mean, x->type, DIMS(0, 1)));
    vt_value *var = reduce(m, VT_OP_ADD, 0, binary(m, VT_OP_MULTIPLY, d, d), DIMS(2));
    var = binary(m, VT_OP_DIVIDE, var, splat(m, (double)shapes[s / 2][2], rows));
    vt_value *scale = unary(m, VT_OP_RSQRT, binary(m, VT_OP_ADD, var, splat(m, 1e-6, rows)));
    vt_value *y = binary(m, VT_OP_MULTIPLY, d, broadcast(m, scale, x->type, DIMS(0, 1)));
    y = binary(m, VT_OP_MULTIPLY, y, broadcast(m, unary(m, VT_OP_ABS, gamma), x->type, DIMS(2)));
    y = binary(m, VT_OP_ADD, y,
               splat(m, 8, y->type)); // where x - mean cancels, only the absolute error is small
    RETURNS(m, y, scale);
    check(m, PLAIN, 1, 0, 16);
  }
}

// The body that jnp.argmax and argmin lower to: NaN first, then the extreme, then the smaller
// index.
static vt_func *pair_body(maker m, vt_dtype dtype, int direction) {
  vt_type one = make_type(m, dtype, 0, NULL), index = make_type(m, VT_S32, 0, NULL);
  vt_func *body = vt_func_create(m.module, "");
  maker b = {.module = m.module, .func = body};
  vt_value *x = vt_func_add_param(body, one), *i = vt_func_add_param(body, index);
  vt_value *y = vt_func_add_param(body, one), *j = vt_func_add_param(body, index);
  vt_value *better = binary(b, VT_OP_OR, compare(b, direction, x, y), compare(b, VT_CMP_NE, x, x));
  vt_value *tie = binary(b, VT_OP_AND, compare(b, VT_CMP_EQ, x, y), compare(b, VT_CMP_LT, i, j));
  vt_value *first = binary(b, VT_OP_OR, better, tie);
  RETURNS(b, choose(b, better, x, y), choose(b, first, i, j));
  return body;
}

static void argmax(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{5, 10}, {33, 64}, {100, 1000}, {4, 3}, {0, 50000}};
  static const struct {
    vt_dtype dtype;
    double ends[2];
  } values[] = {{VT_F32, {-INFINITY, INFINITY}},
                {VT_S32, {INT32_MIN, INT32_MAX}},
                {VT_BF16, {-INFINITY, INFINITY}},
                {VT_U8, {0, 255}},
                {VT_PRED, {0, 1}}};
  for (int s = 0; s < 100; s++) {
    maker m = new_maker();
    bool least = s & 1, any_index = s & 2; // an iota, or indices in any order
    const int64_t *dims = shapes[s / 4 % 5];
    int32_t rank = dims[0] ? 2 : 1;
    int64_t axis = rank - 1;
    vt_dtype dtype = values[s / 20].dtype;
    dims += 2 - rank;
    vt_value *x = param(m, dtype, rank, dims);
    vt_value *i = any_index ? param(m, VT_S32, rank, dims) : iota(m, (int)axis, VT_S32, rank, dims);
    if (any_index) i = binary(m, VT_OP_AND, i, splat(m, 1023, i->type));
    vt_type types[2] = {make_type(m, dtype, rank - 1, dims), make_type(m, VT_S32, rank - 1, dims)};
    vt_value *operands[4] = {x, i, scalar(m, dtype, values[s / 20].ends[least]),
                             scalar(m, VT_S32, 0)};
    vt_op *op = vt_op_create(m.func, VT_OP_REDUCE, NULL, 4, operands, 2, types, 1);
    op->regions[0] = pair_body(m, dtype, least ? VT_CMP_LT : VT_CMP_GT);
    vt_op_set_ints(op, VT_ATTR_DIMENSIONS, 1, &axis);
    vt_op_append(m.func, op);
    RETURNS(m, &op->results[0], &op->results[1]);
    check(m, PLAIN, 1, 0, 0);
  }
}

static void other_reducers(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++) {
    maker m = new_maker();
    vt_value *x = param(m, VT_S32, DIMS(6, 50, 37)), *f = param(m, VT_BF16, DIMS(6, 50, 37));
    vt_value *p = compare(m, VT_CMP_GT, x, splat(m, 3, x->type));
    RETURNS(m, reduce(m, VT_OP_ADD, 0, x, DIMS(axis)),
            reduce(m, VT_OP_MAXIMUM, INT32_MIN, x, DIMS(axis)),
            reduce(m, VT_OP_MINIMUM, INT32_MAX, x, DIMS(axis)),
            reduce(m, VT_OP_AND, 1, p, DIMS(axis)), reduce(m, VT_OP_OR, 0, p, DIMS(axis)),
            reduce(m, VT_OP_MAXIMUM, -INFINITY, f, DIMS(axis)));
    check(m, PLAIN, 2, 0, 0); // f never meets x
  }
}

// Results are bit-identical for any number of threads.
static void threads_do_not_matter(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *x = param(m, VT_F32, DIMS(3000, 70));
  RETURNS(m, reduce(m, VT_OP_ADD, 0, x, DIMS(0)), reduce(m, VT_OP_ADD, 0, x, DIMS(0, 1)),
          reduce(m, VT_OP_ADD, 0, x, DIMS(1)));
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  vt_jit *jit;
  vt_kernel *kernel;
  assert_null(vt_host_fuse(m.func, NULL, &arena, &groups, &count));
  assert_int_equal(count, 1);
  assert_null(vt_jit_create(&jit));
  assert_null(vt_jit_compile(jit, (const vt_group *[]){&groups[0]}, 1, &kernel));
  void *in = allocate(x->type),
       *scratch = aligned_alloc(64, (size_t)(vt_kernel_scratch_bytes(kernel) + 127) / 64 * 64);
  void *first[3], *again[3];
  fill(x->type, in, PLAIN);
  for (int o = 0; o < 3; o++)
    first[o] = allocate(groups[0].outputs[o]->type),
    again[o] = allocate(groups[0].outputs[o]->type);
  for (int threads = 1; threads <= 7; threads++) {
    omp_set_num_threads(threads);
    assert_null(vt_kernel_run(kernel, &in, threads == 1 ? first : again, scratch));
    for (int o = 0; o < 3 && threads > 1; o++)
      assert_memory_equal(first[o], again[o], (size_t)vt_type_bytes(groups[0].outputs[o]->type));
  }
  for (int o = 0; o < 3; o++) free(first[o]), free(again[o]);
  free(in), free(scratch);
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
  vt_module_destroy(m.module);
}

// ---- Values that a later group recomputes (fuse_recompute.c). A reverse, which no group takes,
// separates the groups as a dot does in a training step.

static vt_value *turned(maker m, vt_value *x) {
  vt_value *v = vt_build(m.func, NULL, VT_OP_REVERSE, NULL, x->type, 1, &x);
  vt_op_set_ints(v->op, VT_ATTR_DIMENSIONS, 1, (int64_t[]){0});
  return v;
}

static void first_writes(maker m, uint32_t outputs) { // of several loops
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count, loops = 0;
  assert_null(vt_host_fuse(m.func, NULL, &arena, &groups, &count));
  for (uint32_t i = 0; i < count; i++)
    if (groups[i].nest && !loops++) assert_int_equal(groups[i].output_count, outputs);
  assert_true(loops > 1);
  vt_arena_free(&arena);
}

static void forward_and_backward(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *given = param(m, VT_F32, DIMS(600, 1024)), *mean = param(m, VT_F32, DIMS(1024));
  vt_value *x = turned(m, given); // what a dot would leave
  vt_value *centred = binary(m, VT_OP_SUBTRACT, x, broadcast(m, mean, x->type, DIMS(1)));
  vt_value *positive = compare(m, VT_CMP_GT, centred, splat(m, 0, x->type));
  vt_value *t = unary(m, VT_OP_TANH, centred);
  vt_value *y = turned(m, binary(m, VT_OP_MULTIPLY, t, centred));
  vt_value *slope = binary(m, VT_OP_MULTIPLY, t, t);
  vt_value *g = choose(m, positive, binary(m, VT_OP_MULTIPLY, y, slope), centred);
  RETURNS(m, g, reduce(m, VT_OP_MAXIMUM, -INFINITY, g, DIMS(0)));
  first_writes(m, 1); // the product; not t, not the mask
  check(m, PLAIN, 4, 0, 16);
}

// As in the gradient of a normalisation: what a factor of each column scales is written anyway.
static void written_anyway(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *factor = param(m, VT_F32, DIMS(1024)),
           *x = turned(m, param(m, VT_F32, DIMS(600, 1024)));
  vt_value *g = binary(m, VT_OP_ADD, x, turned(m, param(m, VT_F32, DIMS(600, 1024))));
  vt_value *most = broadcast(m, reduce(m, VT_OP_MAXIMUM, -INFINITY, g, DIMS(0)), g->type, DIMS(1));
  vt_value *scaled = binary(m, VT_OP_MULTIPLY, g, broadcast(m, factor, g->type, DIMS(1)));
  RETURNS(m, g, binary(m, VT_OP_SUBTRACT, scaled, most));
  first_writes(m, 2);
  check(m, PLAIN, 4, 0, 0);
}

static void one_source(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *u = param(m, VT_F32, DIMS(1024)), *x = turned(m, param(m, VT_F32, DIMS(600, 1024)));
  vt_value *g = binary(m, VT_OP_ADD, x, turned(m, param(m, VT_F32, DIMS(600, 1024))));
  vt_value *most = broadcast(m, reduce(m, VT_OP_MAXIMUM, -INFINITY, g, DIMS(0)), g->type, DIMS(1));
  vt_value *a = binary(m, VT_OP_MULTIPLY, g, broadcast(m, u, g->type, DIMS(1)));
  vt_value *b = binary(m, VT_OP_SUBTRACT, g, broadcast(m, u, g->type, DIMS(1)));
  vt_value *c = turned(m, binary(m, VT_OP_SUBTRACT, a, most));
  RETURNS(m, turned(m, binary(m, VT_OP_ADD, binary(m, VT_OP_MULTIPLY, c, most), b)), c);
  first_writes(m, 2); // the sum and its maxima, not a and b
  check(m, PLAIN, 7, 0, 0);
}

static vt_value *random_op(maker m, vt_value **made, int count) {
  static const vt_opcode binaries[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_SUBTRACT, VT_OP_MAXIMUM};
  vt_value *x = made[next_random() % (uint64_t)count], *y = made[next_random() % (uint64_t)count];
  switch (next_random() % 5) {
  case 0:
    return unary(m, VT_OP_NEGATE, x);
  case 1:
    return choose(m, compare(m, VT_CMP_LT, x, y), y, x);
  case 2:
    return convert(m, VT_F32, convert(m, VT_BF16, x));
  default:
    return binary(m, binaries[next_random() % 4], x, y);
  }
}

static void random_halves(void **state) {
  (void)state;
  for (int trial = 0; trial < 24; trial++) {
    maker m = new_maker();
    vt_type like = make_type(m, VT_F32, DIMS(520, 256));
    vt_value *made[64], *results[3];
    int count = 0;
    made[count++] = turned(m, param(m, VT_F32, DIMS(520, 256)));
    made[count++] = broadcast(m, param(m, VT_F32, DIMS(256)), like, DIMS(1));
    made[count++] = broadcast(m, param(m, VT_F32, DIMS(520)), like, DIMS(0));
    for (int part = 0; part < 3; part++) {
      for (int i = 0; i < 8; i++, count++) made[count] = random_op(m, made, count);
      results[part] = reduce(m, VT_OP_MAXIMUM, -INFINITY, made[count - 1], DIMS(part % 2));
      made[count] = turned(m, made[count - 1 - (int)(next_random() % 4)]);
      count++;
    }
    RETURNS(m, results[0], results[1], results[2], made[count - 1]);
    outcome o = run_both(m, SPECIAL, false);
    assert_true(o.worst == 0);
    vt_module_destroy(m.module);
  }
}

// ---- Single ops with precompiled kernels.

static vt_value *op_with_ints(maker m, vt_opcode code, vt_type type, int operands,
                              vt_value **list) {
  return vt_build(m.func, NULL, code, NULL, type, (uint32_t)operands, list);
}

static void transposes(void **state) {
  (void)state;
  static const int64_t rows[][8] = {
      {37, 90, 1, 1, 1, 0, 2, 3},  {5, 33, 70, 1, 2, 1, 0, 3},
      {3, 20, 7, 18, 0, 2, 1, 3},  {4, 6, 8, 130, 3, 0, 2, 1},
      {64, 1, 64, 16, 2, 1, 0, 3}, {3, 3, 70, 90, 3, 2, 0, 1}, // gradients of weights
      {5, 6, 150, 37, 3, 1, 2, 0}, {31, 40, 9, 66, 3, 2, 1, 0}};
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_U8, VT_F64};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int t = 0; t < 4; t++) {
      maker m = new_maker();
      vt_value *x = param(m, types[t], 4, rows[r]);
      int64_t dims[4];
      for (int i = 0; i < 4; i++) dims[i] = rows[r][rows[r][4 + i]];
      vt_value *y =
          vt_build(m.func, NULL, VT_OP_TRANSPOSE, NULL, make_type(m, types[t], 4, dims), 1, &x);
      vt_op_set_ints(y->op, VT_ATTR_PERMUTATION, 4, rows[r] + 4);
      RETURNS(m, y);
      check(m, PLAIN, 1, 0, 0);
    }
}

static void slices_and_pads(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *x = param(m, VT_F32, DIMS(9, 40, 33)), *zero = scalar(m, VT_F32, -1);
  vt_value *a =
      vt_build(m.func, NULL, VT_OP_SLICE, NULL, make_type(m, VT_F32, DIMS(4, 20, 30)), 1, &x);
  vt_op_set_ints(a->op, VT_ATTR_START_INDICES, DIMS(1, 0, 2));
  vt_op_set_ints(a->op, VT_ATTR_LIMIT_INDICES, DIMS(9, 40, 32));
  vt_op_set_ints(a->op, VT_ATTR_STRIDES, DIMS(2, 2, 1));
  vt_value *b =
      vt_build(m.func, NULL, VT_OP_SLICE, NULL, make_type(m, VT_F32, DIMS(9, 40, 11)), 1, &x);
  vt_op_set_ints(b->op, VT_ATTR_START_INDICES, DIMS(0, 0, 0));
  vt_op_set_ints(b->op, VT_ATTR_LIMIT_INDICES, DIMS(9, 40, 33));
  vt_op_set_ints(b->op, VT_ATTR_STRIDES, DIMS(1, 1, 3));
  vt_value *c = op_with_ints(m, VT_OP_PAD, make_type(m, VT_F32, DIMS(12, 37, 70)), 2,
                             (vt_value *[]){x, zero});
  vt_op_set_ints(c->op, VT_ATTR_EDGE_PADDING_LOW, DIMS(1, -2, 3));
  vt_op_set_ints(c->op, VT_ATTR_EDGE_PADDING_HIGH, DIMS(2, -1, 2));
  vt_op_set_ints(c->op, VT_ATTR_INTERIOR_PADDING, DIMS(0, 0, 1));
  vt_value *d = op_with_ints(m, VT_OP_CONCATENATE, make_type(m, VT_F32, DIMS(9, 40, 44)), 2,
                             (vt_value *[]){x, b});
  vt_op_set_i64(d->op, VT_ATTR_DIMENSION, 2);
  vt_value *e = vt_build(m.func, NULL, VT_OP_REVERSE, NULL, x->type, 1, &x);
  vt_op_set_ints(e->op, VT_ATTR_DIMENSIONS, DIMS(0, 2));
  RETURNS(m, a, b, c, d, e);
  check(m, PLAIN, 5, 1, 0);
  // An elementwise op looks through it.
  m = new_maker();
  x = param(m, VT_F32, DIMS(9, 40, 33));
  a = vt_build(m.func, NULL, VT_OP_SLICE, NULL, make_type(m, VT_F32, DIMS(4, 20, 30)), 1, &x);
  vt_op_set_ints(a->op, VT_ATTR_START_INDICES, DIMS(1, 0, 2));
  vt_op_set_ints(a->op, VT_ATTR_LIMIT_INDICES, DIMS(9, 40, 32));
  vt_op_set_ints(a->op, VT_ATTR_STRIDES, DIMS(2, 2, 1));
  b = vt_build(m.func, NULL, VT_OP_TRANSPOSE, NULL, make_type(m, VT_F32, DIMS(20, 4, 30)), 1, &a);
  vt_op_set_ints(b->op, VT_ATTR_PERMUTATION, DIMS(1, 0, 2));
  RETURNS(m, binary(m, VT_OP_ADD, b, param(m, VT_F32, DIMS(20, 4, 30))));
  check(m, PLAIN, 1, 0, 0);
  // So it does where the view before has more elements than it reads: a gate of a row of a stack.
  m = new_maker();
  x = param(m, VT_F32, DIMS(1, 32, 2048));
  a = vt_build(m.func, NULL, VT_OP_RESHAPE, NULL, make_type(m, VT_F32, DIMS(32, 2048)), 1, &x);
  b = vt_build(m.func, NULL, VT_OP_SLICE, NULL, make_type(m, VT_F32, DIMS(32, 512)), 1, &a);
  vt_op_set_ints(b->op, VT_ATTR_START_INDICES, DIMS(0, 512));
  vt_op_set_ints(b->op, VT_ATTR_LIMIT_INDICES, DIMS(32, 1024));
  vt_op_set_ints(b->op, VT_ATTR_STRIDES, DIMS(1, 1));
  RETURNS(m, binary(m, VT_OP_ADD, b, param(m, VT_F32, DIMS(32, 512))));
  check(m, PLAIN, 1, 0, 0);
}

// Runs of two elements at any place, in lines long enough to be split.
static void short_runs(void **state) {
  (void)state;
  static const vt_dtype dtypes[] = {VT_PRED, VT_BF16, VT_F32, VT_F64};
  for (int i = 0; i < 4; i++) {
    maker m = new_maker();
    vt_value *x = param(m, dtypes[i], DIMS(40000, 5)), *y = param(m, dtypes[i], DIMS(40000, 2));
    vt_value *a = vt_build(m.func, NULL, VT_OP_SLICE, NULL, y->type, 1, &x);
    vt_op_set_ints(a->op, VT_ATTR_START_INDICES, DIMS(0, 1));
    vt_op_set_ints(a->op, VT_ATTR_LIMIT_INDICES, DIMS(40000, 3));
    vt_op_set_ints(a->op, VT_ATTR_STRIDES, DIMS(1, 1));
    vt_value *b = op_with_ints(m, VT_OP_CONCATENATE, make_type(m, dtypes[i], DIMS(40000, 7)), 2,
                               (vt_value *[]){x, y});
    vt_op_set_i64(b->op, VT_ATTR_DIMENSION, 1);
    RETURNS(m, a, b);
    check(m, PLAIN, 2, 0, 0);
  }
}

static void dynamic_slices(void **state) {
  (void)state;
  for (int update = 0; update < 2; update++) {
    maker m = new_maker();
    vt_value *x = param(m, VT_F32, DIMS(9, 40, 33)), *part = param(m, VT_F32, DIMS(3, 5, 33));
    vt_value *i = param(m, VT_S32, 0, NULL), *j = param(m, VT_S32, 0, NULL),
             *k = param(m, VT_S32, 0, NULL), *y;
    if (update) {
      y = op_with_ints(m, VT_OP_DYNAMIC_UPDATE_SLICE, x->type, 5, (vt_value *[]){x, part, i, j, k});
    } else {
      y = op_with_ints(m, VT_OP_DYNAMIC_SLICE, part->type, 4, (vt_value *[]){x, i, j, k});
      vt_op_set_ints(y->op, VT_ATTR_SLICE_SIZES, DIMS(3, 5, 33));
    }
    RETURNS(m, y);
    for (int run = 0; run < 5; run++) assert_true(run_both(m, PLAIN, run & 1).worst == 0);
    check(m, PLAIN, 1, 0, 0);
  }
}

static void gathers(void **state) {
  (void)state;
  maker m = new_maker();
  vt_value *table = param(m, VT_F32, DIMS(50, 24)), *index = param(m, VT_S32, DIMS(4, 7, 1));
  vt_value *y = op_with_ints(m, VT_OP_GATHER, make_type(m, VT_F32, DIMS(4, 7, 24)), 2,
                             (vt_value *[]){table, index});
  vt_op_set_ints(y->op, VT_ATTR_OFFSET_DIMS, DIMS(2));
  vt_op_set_ints(y->op, VT_ATTR_COLLAPSED_SLICE_DIMS, DIMS(0));
  vt_op_set_ints(y->op, VT_ATTR_OPERAND_BATCHING_DIMS, 0, NULL);
  vt_op_set_ints(y->op, VT_ATTR_START_INDICES_BATCHING_DIMS, 0, NULL);
  vt_op_set_ints(y->op, VT_ATTR_START_INDEX_MAP, DIMS(0));
  vt_op_set_i64(y->op, VT_ATTR_INDEX_VECTOR_DIM, 2);
  vt_op_set_ints(y->op, VT_ATTR_SLICE_SIZES, DIMS(1, 24));
  vt_op_set_i64(y->op, VT_ATTR_INDICES_ARE_SORTED, 0);
  RETURNS(m, y);
  check(m, PLAIN, 1, 0, 0);
}

static vt_func *typed_body(maker m, vt_opcode code, vt_dtype dtype, bool compares) {
  vt_type one = make_type(m, dtype, 0, NULL);
  vt_func *body = vt_func_create(m.module, "");
  vt_value *a = vt_func_add_param(body, one), *b = vt_func_add_param(body, one);
  vt_value *r = vt_build(body, NULL, code, NULL, compares ? with_dtype(one, VT_PRED) : one, 2,
                         (vt_value *[]){a, b});
  if (compares) {
    vt_op_set_i64(r->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_GE);
    vt_op_set_i64(r->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_FLOAT);
  }
  vt_func_set_returns(body, 1, &r);
  return body;
}

// Windows over a four-dimensional array; the dimensions beside them are of size 1 in them.
typedef struct windows {
  int64_t in[4], size[4], stride[4], padding[8];
} windows;

static vt_op *over_windows(maker m, const windows *w, vt_opcode code, uint32_t operand_count,
                           vt_value **operands, vt_type result) {
  bool back = code == VT_OP_SELECT_AND_SCATTER;
  vt_op *op = vt_op_create(m.func, code, NULL, operand_count, operands, 1, &result, back ? 2 : 1);
  vt_op_set_ints(op, VT_ATTR_WINDOW_DIMENSIONS, 4, w->size);
  vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, 4, w->stride);
  vt_op_set_ints(op, VT_ATTR_PADDING, 8, w->padding);
  vt_op_append(m.func, op);
  if (back) return op;
  vt_op_set_ints(op, VT_ATTR_BASE_DILATIONS, DIMS(1, 1, 1, 1));
  vt_op_set_ints(op, VT_ATTR_WINDOW_DILATIONS, DIMS(1, 1, 1, 1));
  return op;
}

// Maxima, sums and the gradient of maxima.
static void check_pooling(const windows *w, vt_dtype type, int style) {
  maker m = new_maker();
  int64_t out[4];
  for (int i = 0; i < 4; i++)
    out[i] = (w->in[i] + w->padding[2 * i] + w->padding[2 * i + 1] - w->size[i]) / w->stride[i] + 1;
  vt_value *x = param(m, type, 4, w->in), *g = param(m, type, 4, out);
  vt_value *start = scalar(m, type, -INFINITY), *zero = scalar(m, type, 0);
  vt_op *max = over_windows(m, w, VT_OP_REDUCE_WINDOW, 2, (vt_value *[]){x, start}, g->type);
  max->regions[0] = typed_body(m, VT_OP_MAXIMUM, type, false);
  vt_op *sum = over_windows(m, w, VT_OP_REDUCE_WINDOW, 2, (vt_value *[]){x, zero}, g->type);
  sum->regions[0] = typed_body(m, VT_OP_ADD, type, false);
  vt_op *back =
      over_windows(m, w, VT_OP_SELECT_AND_SCATTER, 3, (vt_value *[]){x, g, zero}, x->type);
  back->regions[0] = typed_body(m, VT_OP_COMPARE, type, true);
  back->regions[1] = typed_body(m, VT_OP_ADD, type, false);
  RETURNS(m, &max->results[0], &sum->results[0], &back->results[0]);
  check(m, style, 3, 2, 0);
}

// Channels last: runs of them. Channels first, and windows along one dimension: planes, some with
// elements that are in no window, windows with gaps between them, and windows in padding alone.
static void pooling(void **state) {
  (void)state;
  static const windows rows[] = {
      {{3, 16, 16, 20}, {1, 2, 2, 1}, {1, 2, 2, 1}, {0}},
      {{3, 16, 16, 20}, {1, 3, 3, 1}, {1, 2, 2, 1}, {0, 0, 0, 1, 0, 1}},
      {{3, 16, 16, 32}, {1, 3, 3, 1}, {1, 1, 1, 1}, {0, 0, 1, 1, 1, 1}},
      {{3, 16, 16, 32}, {1, 2, 2, 1}, {1, 2, 2, 1}, {0}},
      {{5, 7, 28, 28}, {1, 1, 2, 2}, {1, 1, 2, 2}, {0}},
      {{2, 3, 112, 112}, {1, 1, 3, 3}, {1, 1, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1}},
      {{40, 9, 7, 7}, {1, 1, 2, 2}, {1, 1, 2, 2}, {0}},
      {{3, 2, 9, 16}, {1, 1, 3, 3}, {1, 1, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}},
      {{3, 2, 9, 16}, {1, 1, 2, 5}, {1, 1, 3, 2}, {0, 0, 0, 0, 1, 0, 3, 2}},
      {{2, 2, 12, 9}, {1, 1, 2, 2}, {1, 1, 5, 4}, {0, 0, 0, 0, -1, 3, 2, -2}},
      {{2, 3, 10, 10}, {1, 1, 3, 3}, {1, 1, 3, 3}, {0, 0, 0, 0, 4, 5, 3, 8}},
      {{300, 2, 7, 7}, {1, 1, 7, 7}, {1, 1, 7, 7}, {0}},
      {{1, 70, 1, 50}, {1, 1, 1, 4}, {1, 1, 1, 2}, {0, 0, 0, 0, 0, 0, 1, 1}},
      {{2, 9, 8, 8}, {1, 2, 3, 3}, {1, 2, 2, 2}, {0, 0, 1, 1, 1, 1, 0, 0}},
  };
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    for (int i = 0; i < 4; i++)
      check_pooling(&rows[r], i % 2 ? VT_BF16 : VT_F32, i / 2 ? SPECIAL : PLAIN);
  }
}

// Cumulative sums, products and extremes of one long line, of rows and of columns, from both ends.
static void running_windows(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  static const vt_dtype dtypes[] = {VT_F32, VT_S32, VT_U32};
  static const struct {
    int64_t dims[3];
    int dim;
  } rows[] = {{{1, 40000, 1}, 1}, {{120, 300, 1}, 1}, {{5, 50, 7}, 1}, {{1, 70, 600}, 1}};
  for (int i = 0; i < 4 * 3 * 4 * 2; i++) {
    maker m = new_maker();
    int r = i / 24, d = rows[r].dim;
    vt_opcode code = codes[i % 4];
    vt_dtype dtype = dtypes[i / 4 % 3];
    int64_t window[3] = {1, 1, 1}, ones[3] = {1, 1, 1}, padding[6] = {0};
    window[d] = rows[r].dims[d];
    padding[2 * d + i / 12 % 2] = window[d] - 1;
    vt_value *x = param(m, dtype, 3, rows[r].dims);
    vt_value *start = scalar(m, dtype, code == VT_OP_MULTIPLY ? 1 : 0);
    vt_op *op = vt_op_create(m.func, VT_OP_REDUCE_WINDOW, NULL, 2, (vt_value *[]){x, start}, 1,
                             &x->type, 1);
    op->regions[0] = typed_body(m, code, dtype, false);
    vt_op_set_ints(op, VT_ATTR_WINDOW_DIMENSIONS, 3, window);
    vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, 3, ones);
    vt_op_set_ints(op, VT_ATTR_PADDING, 6, padding);
    vt_op_set_ints(op, VT_ATTR_BASE_DILATIONS, 3, ones);
    vt_op_set_ints(op, VT_ATTR_WINDOW_DILATIONS, 3, ones);
    vt_op_append(m.func, op);
    RETURNS(m, &op->results[0]);
    check(m, i % 2 ? PLAIN : SPECIAL, 1, 1, 0);
  }
}

int main(void) {
  _mm_setcsr(_mm_getcsr() | 0x8040); // FTZ and DAZ, as in a running program
  setenv("VTPU_CACHE_DIR", "", 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float_ops),
      cmocka_unit_test(integer_ops),
      cmocka_unit_test(conversions),
      cmocka_unit_test(transcendentals),
      cmocka_unit_test(broadcasts),
      cmocka_unit_test(narrow_rows),
      cmocka_unit_test(iotas),
      cmocka_unit_test(adam),
      cmocka_unit_test(costly_choices),
      cmocka_unit_test(bits_and_scalars),
      cmocka_unit_test(row_and_column_sums),
      cmocka_unit_test(softmax),
      cmocka_unit_test(rows_side_by_side),
      cmocka_unit_test(layer_norm),
      cmocka_unit_test(argmax),
      cmocka_unit_test(other_reducers),
      cmocka_unit_test(threads_do_not_matter),
      cmocka_unit_test(forward_and_backward),
      cmocka_unit_test(written_anyway),
      cmocka_unit_test(one_source),
      cmocka_unit_test(random_halves),
      cmocka_unit_test(transposes),
      cmocka_unit_test(slices_and_pads),
      cmocka_unit_test(short_runs),
      cmocka_unit_test(dynamic_slices),
      cmocka_unit_test(gathers),
      cmocka_unit_test(pooling),
      cmocka_unit_test(running_windows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
