// SPDX-License-Identifier: Apache-2.0
// dot_test.c - dots and convolutions through oneDNN against src/eval, over a table of shapes.
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "host/cpu.h"
#include "host/plan.h"
#include "ir/module.h"

static uint32_t random_state;
static float random_value(void) {
  random_state = random_state * 1664525 + 1013904223;
  return (float)(int32_t)random_state / (float)(1u << 31);
}

static void fill(void *data, vt_type type) {
  for (int64_t i = 0; i < vt_type_elements(type); i++) {
    float value = random_value();
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits &= 0xffff0000; // on bf16's grid, so that rounding operands changes nothing
    if (type.dtype == VT_BF16) {
      uint16_t half = (uint16_t)(bits >> 16);
      memcpy((char *)data + i * 2, &half, 2);
    } else {
      memcpy((char *)data + i * 4, &bits, 4);
    }
  }
}

static double value_at(const void *data, vt_dtype dtype, int64_t i) {
  uint32_t bits;
  if (dtype == VT_BF16) {
    uint16_t half;
    memcpy(&half, (const char *)data + i * 2, 2);
    bits = (uint32_t)half << 16;
  } else {
    memcpy(&bits, (const char *)data + i * 4, 4);
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

typedef vt_op *make_op(vt_func *func, const void *row, vt_dtype dtype, vt_dtype out);

static vt_module *make_module(make_op *make, const void *row, vt_dtype dtype, vt_dtype out) {
  vt_module *module = vt_module_create();
  module->main = vt_func_create(module, "main");
  vt_module_add_func(module, module->main);
  vt_op *op = make(module->main, row, dtype, out);
  vt_op_append(module->main, op);
  vt_func_set_returns(module->main, 1, (vt_value *[]){&op->results[0]});
  vt_status st = vt_module_verify(module);
  if (st) fail_msg("%s", vt_status_message(st));
  return module;
}

static vt_program *compile(vt_module *module, bool evaluator) {
  vt_host_options options = {.device_count = 1,
                             .exact_dots = true,
                             .evaluator_only = evaluator,
                             .compile_all = !evaluator};
  vt_pass_options passes = vt_host_passes(options.exact_dots);
  vt_program *program = NULL;
  vt_status st = evaluator ? VT_OK : vt_passes_run(module, &passes);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s", vt_status_message(st));
  return program;
}

static void run_versions(vt_program *program, void *lhs, void *rhs, void *out,
                         const uint64_t *versions) {
  void *params[2] = {lhs, rhs};
  vt_run run = {.params = params, .results = &out, .versions = versions};
  vt_status st = vt_program_run(program, &run);
  if (st) fail_msg("%s", vt_status_message(st));
}

static void run(vt_program *program, void *lhs, void *rhs, void *out) {
  run_versions(program, lhs, rhs, out, NULL);
}

// Keeping values between runs (plan_keep.c) changes no bit, and only unchanged parameters are kept.
static void check_kept(const char *name, vt_program *program, void **data, vt_type rhs,
                       vt_type result) {
  size_t bytes = (size_t)vt_type_bytes(result);
  char *first = malloc(bytes + 1);
  memcpy(first, data[2], bytes);
  for (uint64_t version = 1; version <= 5; version++) { // 2 and 4 change nothing but the number
    for (int again = 0; again < 3; again++) {
      memset(data[2], 0xff, bytes);
      run_versions(program, data[0], data[1], data[2], (uint64_t[]){7, version});
      if (memcmp(first, data[2], bytes)) fail_msg("%s: differs when its weights are kept", name);
    }
    if (version % 2) continue;
    fill(data[1], rhs); // new weights in the same memory
    run(program, data[0], data[1], data[2]);
    memcpy(first, data[2], bytes);
  }
  free(first);
}

// The number of contraction steps that a library runs.
static uint32_t library_steps(const vt_program *program) {
  uint32_t count = 0;
  for (uint32_t s = 0; s < program->plan->step_count; s++) {
    const vt_step *step = &program->plan->steps[s];
    bool contraction =
        step->op && (step->op->code == VT_OP_DOT_GENERAL || step->op->code == VT_OP_CONVOLUTION);
    count += contraction && step->body;
  }
  return count;
}

static void check(const char *name, make_op *make, const void *row, vt_dtype dtype, vt_dtype out,
                  bool library) {
  vt_program *fast = compile(make_module(make, row, dtype, out), false);
  vt_program *plain = compile(make_module(make, row, dtype, out), true);
  const vt_func *main_func = vt_program_module(plain)->main;
  vt_type lhs = main_func->params[0]->type, rhs = main_func->params[1]->type,
          result = main_func->returns[0]->type;
  void *data[4] = {vt_host_alloc(vt_type_bytes(lhs)), vt_host_alloc(vt_type_bytes(rhs)),
                   vt_host_alloc(vt_type_bytes(result)), vt_host_alloc(vt_type_bytes(result))};
  random_state = 12345;
  fill(data[0], lhs);
  fill(data[1], rhs);
  memset(data[2], 0xff, (size_t)vt_type_bytes(result));
  run(fast, data[0], data[1], data[2]);
  run(plain, data[0], data[1], data[3]);
  double scale = 0, error = 0;
  for (int64_t i = 0; i < vt_type_elements(result); i++) {
    double want = value_at(data[3], result.dtype, i), got = value_at(data[2], result.dtype, i);
    if (fabs(want) > scale) scale = fabs(want);
    if (!(fabs(want - got) <= error)) error = fabs(want - got);
  }
  double limit = out == VT_BF16 ? 1e-2 : 1e-5;
  if (!(error <= limit * scale)) fail_msg("%s: error %g, largest value %g", name, error, scale);
  if (library && library_steps(fast) != 1) fail_msg("%s: runs on the evaluator", name);
  check_kept(name, fast, data, rhs, result);
  for (int i = 0; i < 4; i++) vt_host_free(data[i]);
  vt_program_destroy(fast);
  vt_program_destroy(plain);
}

// Dots: sizes and dimension lists, ended by -1.
typedef struct dot_row {
  const char *name;
  int64_t lhs[5], rhs[5];
  int64_t lhs_batch[4], rhs_batch[4], lhs_contract[4], rhs_contract[4];
} dot_row;

static uint32_t length(const int64_t *list) {
  uint32_t n = 0;
  while (list[n] >= 0) n++;
  return n;
}

static bool has(const int64_t *list, int64_t d) {
  for (; *list >= 0; list++)
    if (*list == d) return true;
  return false;
}

static vt_op *make_dot(vt_func *func, const void *table_row, vt_dtype dtype, vt_dtype out) {
  const dot_row *row = table_row;
  vt_arena *arena = &func->module->arena;
  vt_value *operands[2] = {
      vt_func_add_param(func, vt_type_make(arena, dtype, (int32_t)length(row->lhs), row->lhs)),
      vt_func_add_param(func, vt_type_make(arena, dtype, (int32_t)length(row->rhs), row->rhs))};
  int64_t dims[8];
  int32_t rank = 0;
  for (uint32_t i = 0; row->lhs_batch[i] >= 0; i++) dims[rank++] = row->lhs[row->lhs_batch[i]];
  for (uint32_t d = 0; row->lhs[d] >= 0; d++)
    if (!has(row->lhs_batch, d) && !has(row->lhs_contract, d)) dims[rank++] = row->lhs[d];
  for (uint32_t d = 0; row->rhs[d] >= 0; d++)
    if (!has(row->rhs_batch, d) && !has(row->rhs_contract, d)) dims[rank++] = row->rhs[d];
  vt_type type = vt_type_make(arena, out, rank, dims);
  vt_op *op = vt_op_create(func, VT_OP_DOT_GENERAL, NULL, 2, operands, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, length(row->lhs_batch), row->lhs_batch);
  vt_op_set_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, length(row->rhs_batch), row->rhs_batch);
  vt_op_set_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, length(row->lhs_contract),
                 row->lhs_contract);
  vt_op_set_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, length(row->rhs_contract),
                 row->rhs_contract);
  return op;
}

#define END {-1}
// clang-format off
static const dot_row dot_rows[] = {
    {"dense", {64, 96, -1}, {96, 80, -1}, END, END, {1, -1}, {0, -1}},
    {"input gradient of dense", {64, 96, -1}, {80, 96, -1}, END, END, {1, -1}, {1, -1}},
    {"weight gradient of dense", {64, 96, -1}, {64, 80, -1}, END, END, {0, -1}, {0, -1}},
    {"both transposed", {96, 64, -1}, {80, 96, -1}, END, END, {0, -1}, {1, -1}},
    {"classifier", {128, 256, -1}, {256, 10, -1}, END, END, {1, -1}, {0, -1}},
    {"shallow", {128, 10, -1}, {10, 512, -1}, END, END, {1, -1}, {0, -1}},
    {"odd sizes", {101, 53, -1}, {53, 37, -1}, END, END, {1, -1}, {0, -1}},
    {"odd sizes transposed", {53, 101, -1}, {37, 53, -1}, END, END, {0, -1}, {1, -1}},
    {"row", {1, 512, -1}, {512, 300, -1}, END, END, {1, -1}, {0, -1}},
    {"column", {512, 300, -1}, {300, 1, -1}, END, END, {1, -1}, {0, -1}},
    {"matrix times vector", {512, 300, -1}, {300, -1}, END, END, {1, -1}, {0, -1}},
    {"vector times matrix", {300, -1}, {300, 400, -1}, END, END, {0, -1}, {0, -1}},
    {"vector times transposed matrix", {303, -1}, {401, 303, -1}, END, END, {0, -1}, {1, -1}},
    {"transposed matrix times vector", {303, 517, -1}, {303, -1}, END, END, {0, -1}, {0, -1}},
    {"row times matrix", {1, 300, -1}, {300, 401, -1}, END, END, {1, -1}, {0, -1}},
    {"vector times several heads", {8, 40, -1}, {8, 40, 64, -1}, END, END, {0, 1, -1}, {0, 1, -1}},
    {"every second number times matrix", {300, 2, -1}, {300, 2, 256, -1}, END, END, {0, -1}, {0, -1}},
    {"outer product", {512, -1}, {300, -1}, END, END, {-1}, {-1}},
    {"inner product", {100000, -1}, {100000, -1}, END, END, {0, -1}, {0, -1}},
    {"outer product of columns", {512, 1, -1}, {1, 300, -1}, END, END, {1, -1}, {0, -1}},
    {"batch", {8, 32, 48, -1}, {8, 48, 40, -1}, {0, -1}, {0, -1}, {2, -1}, {1, -1}},
    {"three-dimensional input", {8, 32, 48, -1}, {48, 40, -1}, END, END, {2, -1}, {0, -1}},
    {"its weight gradient", {8, 32, 48, -1}, {8, 32, 40, -1}, END, END, {0, 1, -1}, {0, 1, -1}},
    {"weights of several heads", {8, 32, 48, -1}, {48, 4, 16, -1}, END, END, {2, -1}, {0, -1}},
    {"heads to output", {8, 32, 4, 16, -1}, {4, 16, 48, -1}, END, END, {2, 3, -1}, {0, 1, -1}},
    {"attention scores", {4, 33, 2, 24, -1}, {4, 35, 2, 24, -1}, {0, 2, -1}, {0, 2, -1}, {3, -1}, {3, -1}},
    {"attention values", {4, 2, 33, 35, -1}, {4, 35, 2, 24, -1}, {0, 1, -1}, {0, 2, -1}, {3, -1}, {1, -1}},
    {"gradient of scores", {4, 2, 33, 35, -1}, {4, 33, 2, 24, -1}, {0, 1, -1}, {0, 2, -1}, {2, -1}, {1, -1}},
    {"summed dims out of order", {16, 12, 20, -1}, {20, 16, 30, -1}, END, END, {0, 2, -1}, {1, 0, -1}},
    {"summed dims apart", {16, 12, 20, -1}, {16, 20, 30, -1}, END, END, {0, 2, -1}, {0, 1, -1}},
    {"free dims around summed", {16, 24, 20, -1}, {24, 30, -1}, END, END, {1, -1}, {0, -1}},
    {"right free dims around summed", {24, 30, -1}, {16, 24, 20, -1}, END, END, {0, -1}, {1, -1}},
    {"scores of one query", {2, 6, 64, -1}, {2, 130, 6, 64, -1}, {0, 1, -1}, {0, 2, -1}, {2, -1}, {3, -1}},
    {"values of one query", {2, 130, 6, 64, -1}, {2, 6, 130, -1}, {0, 2, -1}, {0, 1, -1}, {1, -1}, {2, -1}},
    {"scores of a group of queries", {2, 3, 4, 40, -1}, {2, 71, 3, 40, -1}, {0, 1, -1}, {0, 2, -1}, {3, -1}, {3, -1}},
    {"values of a group of queries", {2, 3, 4, 71, -1}, {2, 71, 3, 40, -1}, {0, 1, -1}, {0, 2, -1}, {3, -1}, {1, -1}},
    {"scores, heads outside", {2, 5, 1, 33, -1}, {2, 5, 259, 33, -1}, {0, 1, -1}, {0, 1, -1}, {3, -1}, {3, -1}},
    {"values, heads outside", {2, 5, 2, 259, -1}, {2, 5, 259, 33, -1}, {0, 1, -1}, {0, 1, -1}, {3, -1}, {2, -1}},
    {"values by features", {3, 7, 100, -1}, {3, 7, 48, 100, -1}, {0, 1, -1}, {0, 1, -1}, {2, -1}, {3, -1}},
    {"vectors with numbers apart", {90, 4, 3, -1}, {4, 50, 90, -1}, {1, -1}, {0, -1}, {0, -1}, {2, -1}},
    {"many numbers", {2, 2, 3000, -1}, {2, 3000, 2, 100, -1}, {0, 1, -1}, {0, 2, -1}, {2, -1}, {1, -1}},
    {"nine vectors", {2, 9, 64, -1}, {2, 64, 90, -1}, {0, -1}, {0, -1}, {2, -1}, {1, -1}},
    {"few rows", {8, 256, -1}, {256, 1100, -1}, END, END, {1, -1}, {0, -1}},
    {"few rows, transposed weights", {5, 96, -1}, {301, 96, -1}, END, END, {1, -1}, {1, -1}},
    {"few rows, odd sizes", {16, 333, -1}, {333, 77, -1}, END, END, {1, -1}, {0, -1}},
    {"few columns", {200, 129, -1}, {200, 2, -1}, END, END, {0, -1}, {0, -1}},
    {"few rows, numbers apart", {160, 3, -1}, {160, 190, -1}, END, END, {0, -1}, {0, -1}},
    {"seventeen rows", {17, 160, -1}, {160, 190, -1}, END, END, {1, -1}, {0, -1}},
    {"batch inside", {32, 8, 48, -1}, {48, 40, 8, -1}, {1, -1}, {2, -1}, {2, -1}, {0, -1}},
    {"outer product of batches", {8, 64, 1, -1}, {8, 1, 64, -1}, {0, -1}, {0, -1}, {2, -1}, {1, -1}},
};
// clang-format on

static void dots_match(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof dot_rows / sizeof *dot_rows; i++) {
    check(dot_rows[i].name, make_dot, &dot_rows[i], VT_F32, VT_F32, true);
    check(dot_rows[i].name, make_dot, &dot_rows[i], VT_BF16, VT_F32, true);
    check(dot_rows[i].name, make_dot, &dot_rows[i], VT_BF16, VT_BF16, true);
  }
}

static int64_t random_below(int64_t n) {
  (void)random_value();
  return (int64_t)(random_state >> 8) % n;
}

// Keys or values of heads, by head or by position, times a few vectors each.
static dot_row random_few(void) {
  int64_t b = 1 + random_below(3), h = 1 + random_below(5), s = 1 + random_below(200),
          d = 1 + random_below(90), v = 1 + random_below(9);
  bool values = random_below(2), by_head = random_below(2), swapped = random_below(2);
  int64_t k = values ? s : d;
  dot_row row = {"a few vectors", {b, h, v, k, -1}, {b, s, h, d, -1},    {0, 1, -1},
                 {0, 2, -1},      {3, -1},          {values ? 1 : 3, -1}};
  if (by_head) {
    row.rhs[1] = h, row.rhs[2] = s;
    row.rhs_batch[1] = 1;
    row.rhs_contract[0] = values ? 2 : 3;
  }
  if (!swapped) return row;
  dot_row other = {.name = row.name};
  memcpy(other.lhs, row.rhs, sizeof row.rhs), memcpy(other.rhs, row.lhs, sizeof row.lhs);
  memcpy(other.lhs_batch, row.rhs_batch, sizeof row.rhs_batch);
  memcpy(other.rhs_batch, row.lhs_batch, sizeof row.lhs_batch);
  memcpy(other.lhs_contract, row.rhs_contract, sizeof row.rhs_contract);
  memcpy(other.rhs_contract, row.lhs_contract, sizeof row.lhs_contract);
  return other;
}

static void few_vectors_match(void **state) {
  (void)state;
  uint32_t own_state = 5;
  for (int i = 0; i < 200; i++) {
    random_state = own_state;
    dot_row row = random_few();
    own_state = random_state;
    check(row.name, make_dot, &row, i % 3 ? VT_BF16 : VT_F32, i % 3 == 2 ? VT_BF16 : VT_F32, false);
  }
}

// Infinities and what is no number go where the evaluator says, and any number of threads gives the
// same bits.
static void check_odd(const dot_row *row, vt_dtype dtype) {
  vt_program *fast = compile(make_module(make_dot, row, dtype, VT_F32), false);
  vt_program *plain = compile(make_module(make_dot, row, dtype, VT_F32), true);
  const vt_func *func = vt_program_module(plain)->main;
  vt_type types[2] = {func->params[0]->type, func->params[1]->type},
          result = func->returns[0]->type;
  void *in[2], *out[3];
  for (int s = 0; s < 2; s++) {
    in[s] = vt_host_alloc(vt_type_bytes(types[s]));
    fill(in[s], types[s]);
    for (int i = 0; i < 6; i++) { // zeros, infinities and NaN
      uint32_t bits = i < 3 ? 0 : i < 5 ? 0x7f800000 : 0x7fc00000;
      int64_t at = random_below(vt_type_elements(types[s]));
      if (dtype == VT_BF16)
        ((uint16_t *)in[s])[at] = (uint16_t)(bits >> 16);
      else
        ((uint32_t *)in[s])[at] = bits;
    }
  }
  int threads = omp_get_max_threads();
  for (int i = 0; i < 3; i++) {
    out[i] = vt_host_alloc(vt_type_bytes(result));
    omp_set_num_threads(1 + 2 * i);
    run(i == 2 ? plain : fast, in[0], in[1], out[i]);
  }
  omp_set_num_threads(threads);
  assert_memory_equal(out[0], out[1], (size_t)vt_type_bytes(result));
  for (int64_t e = 0; e < vt_type_elements(result); e++) {
    double got = value_at(out[0], VT_F32, e), want = value_at(out[2], VT_F32, e);
    bool same = isfinite(want) ? fabs(got - want) <= 1e-3 : isnan(want) ? isnan(got) : got == want;
    if (!same) fail_msg("%s: %g for %g", row->name, got, want);
  }
  for (int i = 0; i < 3; i++) vt_host_free(out[i]);
  for (int s = 0; s < 2; s++) vt_host_free(in[s]);
  vt_program_destroy(fast);
  vt_program_destroy(plain);
}

static void few_vectors_are_exact(void **state) {
  (void)state;
  static const dot_row rows[] = {
      {"large scores",
       {2, 8, 64, -1},
       {2, 515, 8, 64, -1},
       {0, 1, -1},
       {0, 2, -1},
       {2, -1},
       {3, -1}},
      {"large values",
       {2, 8, 3, 515, -1},
       {2, 515, 8, 64, -1},
       {0, 1, -1},
       {0, 2, -1},
       {3, -1},
       {1, -1}},
      {"large matrix", {777, -1}, {777, 501, -1}, END, END, {0, -1}, {0, -1}},
      {"large matrix transposed", {777, -1}, {501, 777, -1}, END, END, {0, -1}, {1, -1}},
  };
  random_state = 77;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int half = 0; half < 2; half++) check_odd(&rows[i], half ? VT_BF16 : VT_F32);
}

// Convolutions: dims are letters in the order of memory: b f (i o) and digits for spatial
// dimensions.
typedef struct conv_row {
  const char *name, *dims[3];
  int64_t lhs[5], rhs[5]; // in the order of the letters
  int64_t stride, low, high, lhs_dilation, rhs_dilation;
  bool reversed;
  int64_t feature_groups, batch_groups;
  bool library;
} conv_row;

static int64_t size_of(const char *dims, const int64_t *sizes, char letter) {
  return sizes[strchr(dims, letter) - dims];
}

static void set_dims(vt_op *op, const char *dims, const char *letters, const vt_attr_key *keys) {
  int64_t spatial[3];
  uint32_t count = 0;
  for (char c = '0'; strchr(dims, c); c++) spatial[count++] = strchr(dims, c) - dims;
  vt_op_set_i64(op, keys[0], strchr(dims, letters[0]) - dims);
  vt_op_set_i64(op, keys[1], strchr(dims, letters[1]) - dims);
  vt_op_set_ints(op, keys[2], count, spatial);
}

static vt_op *make_conv(vt_func *func, const void *table_row, vt_dtype dtype, vt_dtype out) {
  const conv_row *row = table_row;
  vt_arena *arena = &func->module->arena;
  int32_t rank = (int32_t)strlen(row->dims[0]);
  vt_value *operands[2] = {vt_func_add_param(func, vt_type_make(arena, dtype, rank, row->lhs)),
                           vt_func_add_param(func, vt_type_make(arena, dtype, rank, row->rhs))};
  int64_t dims[5], lists[5][6];
  uint32_t spatial = (uint32_t)rank - 2;
  for (int32_t d = 0; d < rank; d++) {
    char letter = row->dims[2][d];
    if (letter == 'b')
      dims[d] = size_of(row->dims[0], row->lhs, 'b') / row->batch_groups;
    else if (letter == 'f')
      dims[d] = size_of(row->dims[1], row->rhs, 'o');
    else {
      int64_t in = (size_of(row->dims[0], row->lhs, letter) - 1) * row->lhs_dilation + 1 +
                   row->low + row->high;
      int64_t window = (size_of(row->dims[1], row->rhs, letter) - 1) * row->rhs_dilation + 1;
      dims[d] = (in - window) / row->stride + 1;
    }
  }
  vt_type type = vt_type_make(arena, out, rank, dims);
  vt_op *op = vt_op_create(func, VT_OP_CONVOLUTION, NULL, 2, operands, 1, &type, 0);
  for (uint32_t i = 0; i < spatial; i++) {
    lists[0][i] = row->stride, lists[1][i] = row->lhs_dilation, lists[2][i] = row->rhs_dilation;
    lists[3][i] = row->reversed;
    lists[4][2 * i] = row->low, lists[4][2 * i + 1] = row->high;
  }
  vt_op_set_ints(op, VT_ATTR_WINDOW_STRIDES, spatial, lists[0]);
  vt_op_set_ints(op, VT_ATTR_LHS_DILATION, spatial, lists[1]);
  vt_op_set_ints(op, VT_ATTR_RHS_DILATION, spatial, lists[2]);
  vt_op_set_ints(op, VT_ATTR_WINDOW_REVERSAL, spatial, lists[3]);
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * spatial, lists[4]);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, row->feature_groups);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, row->batch_groups);
  set_dims(op, row->dims[0], "bf", vt_conv_dim_keys[0]);
  set_dims(op, row->dims[1], "io", vt_conv_dim_keys[1]);
  set_dims(op, row->dims[2], "bf", vt_conv_dim_keys[2]);
  return op;
}

#define NHWC            {"b01f", "01io", "b01f"}
#define INPUT_GRADIENT  {"b01f", "01oi", "b01f"}
#define WEIGHT_GRADIENT {"f01b", "i01o", "01bf"}
// clang-format off
static const conv_row conv_rows[] = {
    //                                                                     s  lo hi ld rd reversed groups
    {"kernel larger than the image", NHWC, {2, 2, 2, 64}, {3, 3, 64, 48}, 2, 0, 1, 1, 1, false, 1, 1, true},
    {"kernel as large as the image", NHWC, {2, 3, 3, 64}, {3, 3, 64, 48}, 1, 0, 0, 1, 1, false, 1, 1, true},
    {"3x3", NHWC, {2, 14, 14, 32}, {3, 3, 32, 48}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"3x3, one channel", NHWC, {4, 28, 28, 1}, {3, 3, 1, 32}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"stem", NHWC, {1, 32, 32, 3}, {7, 7, 3, 64}, 2, 2, 3, 1, 1, false, 1, 1, true},
    {"3x3 stride 2, padded (0, 1)", NHWC, {2, 14, 14, 32}, {3, 3, 32, 32}, 2, 0, 1, 1, 1, false, 1, 1, true},
    {"1x1", NHWC, {2, 14, 14, 32}, {1, 1, 32, 64}, 1, 0, 0, 1, 1, false, 1, 1, true},
    {"1x1, shifted", NHWC, {2, 14, 14, 32}, {1, 1, 32, 64}, 1, 1, -1, 1, 1, false, 1, 1, false},
    {"windows in the padding", {"b01f", "01oi", "f01b"}, {3, 4, 11, 6}, {3, 2, 1, 6}, 2, 0, 3, 1, 1, false, 1, 1, false},
    {"1x1 stride 2", NHWC, {2, 14, 14, 32}, {1, 1, 32, 64}, 2, 0, 0, 1, 1, false, 1, 1, true},
    {"dilated", NHWC, {2, 14, 14, 16}, {3, 3, 16, 32}, 1, 2, 2, 1, 2, false, 1, 1, true},
    {"depthwise", NHWC, {2, 14, 14, 32}, {3, 3, 1, 32}, 1, 1, 1, 1, 1, false, 32, 1, true},
    {"depthwise, multiplier 2", NHWC, {2, 14, 14, 16}, {3, 3, 1, 32}, 1, 1, 1, 1, 1, false, 16, 1, true},
    {"4 groups", NHWC, {2, 14, 14, 64}, {3, 3, 16, 64}, 1, 1, 1, 1, 1, false, 4, 1, true},
    {"groups of 4 channels", NHWC, {2, 14, 14, 32}, {3, 3, 4, 32}, 1, 1, 1, 1, 1, false, 8, 1, true},
    {"groups of 4 channels, stride 2", NHWC, {2, 14, 14, 32}, {3, 3, 4, 32}, 2, 0, 1, 1, 1, false, 8, 1, true},
    {"groups of odd channels, valid", NHWC, {3, 11, 11, 15}, {3, 3, 5, 21}, 1, 0, 0, 1, 2, false, 3, 1, true},
    {"odd channels", NHWC, {2, 13, 13, 13}, {3, 3, 13, 17}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"valid, odd", NHWC, {3, 15, 15, 8}, {5, 5, 8, 24}, 2, 0, 0, 1, 1, false, 1, 1, true},
    {"flipped kernel", NHWC, {2, 14, 14, 32}, {3, 3, 32, 48}, 2, 1, 1, 1, 1, true, 1, 1, true},
    {"input gradient of 3x3", INPUT_GRADIENT, {2, 14, 14, 48}, {3, 3, 32, 48}, 1, 1, 1, 1, 1, true, 1, 1, true},
    {"input gradient of 3x3 stride 2", INPUT_GRADIENT, {2, 7, 7, 48}, {3, 3, 32, 48}, 1, 2, 1, 2, 1, true, 1, 1, true},
    {"input gradient, rows left out", INPUT_GRADIENT, {2, 7, 7, 48}, {3, 3, 32, 48}, 1, 2, 3, 2, 1, true, 1, 1, true},
    {"input gradient of 1x1 stride 2", INPUT_GRADIENT, {2, 7, 7, 64}, {1, 1, 32, 64}, 1, 0, 1, 2, 1, true, 1, 1, true},
    {"input gradient of dilated", INPUT_GRADIENT, {2, 14, 14, 32}, {3, 3, 16, 32}, 1, 2, 2, 1, 2, true, 1, 1, true},
    {"input gradient, 4 groups", INPUT_GRADIENT, {2, 14, 14, 64}, {3, 3, 64, 16}, 1, 1, 1, 1, 1, true, 4, 1, true},
    {"input gradient, groups of 4 channels", INPUT_GRADIENT, {2, 14, 14, 32}, {3, 3, 32, 4}, 1, 1, 1, 1, 1, true, 8, 1, true},
    {"input gradient of stride 2, groups of 4 channels", INPUT_GRADIENT, {2, 7, 7, 32}, {3, 3, 32, 4}, 1, 2, 1, 2, 1, true, 8, 1, true},
    {"input gradient, depthwise", INPUT_GRADIENT, {2, 14, 14, 32}, {3, 3, 32, 1}, 1, 1, 1, 1, 1, true, 32, 1, true},
    {"transposed convolution", NHWC, {2, 7, 7, 48}, {4, 4, 48, 32}, 1, 2, 2, 2, 1, false, 1, 1, true},
    {"weight gradient of 3x3", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 14, 14, 48}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"weight gradient of 3x3 stride 2", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 7, 7, 48}, 1, 0, 1, 1, 2, false, 1, 1, true},
    {"weight gradient of 3x3, one channel", WEIGHT_GRADIENT, {4, 28, 28, 1}, {4, 28, 28, 32}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"weight gradient of 3x3 stride 2, three channels", WEIGHT_GRADIENT, {3, 33, 33, 3}, {3, 17, 17, 48}, 1, 1, 1, 1, 2, false, 1, 1, true},
    {"weight gradient of dilated, two channels", WEIGHT_GRADIENT, {5, 20, 20, 2}, {5, 16, 16, 16}, 2, 0, 0, 1, 1, false, 1, 1, true},
    {"weight gradient of many images, one channel", WEIGHT_GRADIENT, {40, 9, 9, 1}, {40, 8, 8, 16}, 1, 1, 0, 1, 1, false, 1, 1, true},
    {"weight gradient of stem", WEIGHT_GRADIENT, {2, 32, 32, 3}, {2, 16, 16, 64}, 1, 2, 3, 1, 2, false, 1, 1, true},
    {"weight gradient of 1x1", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 14, 14, 64}, 1, 0, 0, 1, 1, false, 1, 1, true},
    {"weight gradient of 1x1 stride 2", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 7, 7, 64}, 1, 0, -1, 1, 2, false, 1, 1, true},
    {"weight gradient of dilated", WEIGHT_GRADIENT, {2, 14, 14, 16}, {2, 14, 14, 32}, 2, 2, 2, 1, 1, false, 1, 1, true},
    {"weight gradient, 4 groups", WEIGHT_GRADIENT, {2, 14, 14, 64}, {2, 14, 14, 64}, 1, 1, 1, 1, 1, false, 1, 4, true},
    {"weight gradient, groups of 4 channels", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 14, 14, 32}, 1, 1, 1, 1, 1, false, 1, 8, true},
    {"weight gradient, depthwise", WEIGHT_GRADIENT, {2, 14, 14, 32}, {2, 14, 14, 32}, 1, 1, 1, 1, 1, false, 1, 32, true},
    {"NCHW", {"bf01", "oi01", "bf01"}, {2, 32, 14, 14}, {48, 32, 3, 3}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"NCHW input gradient", {"bf01", "io01", "bf01"}, {2, 48, 7, 7}, {48, 32, 3, 3}, 1, 2, 1, 2, 1, true, 1, 1, true},
    {"NCHW weight gradient", {"fb01", "io01", "bf01"}, {2, 32, 14, 14}, {2, 48, 14, 14}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"mixed orders", {"0b1f", "i0o1", "f01b"}, {14, 2, 14, 32}, {32, 3, 48, 3}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"one spatial dimension", {"b0f", "0io", "b0f"}, {4, 64, 32}, {5, 32, 48}, 1, 2, 2, 1, 1, false, 1, 1, true},
    {"its weight gradient", {"f0b", "i0o", "0bf"}, {4, 64, 32}, {4, 64, 48}, 1, 2, 2, 1, 1, false, 1, 1, true},
    {"three spatial dimensions", {"b012f", "012io", "b012f"}, {2, 6, 7, 8, 16}, {3, 3, 3, 16, 32}, 1, 1, 1, 1, 1, false, 1, 1, true},
    {"signal", {"bf0", "oi0", "bf0"}, {1, 1, 1000}, {1, 1, 64}, 1, 63, 63, 1, 1, false, 1, 1, true},
    {"signals, dilated", {"bf0", "oi0", "bf0"}, {3, 2, 333}, {4, 2, 7}, 1, 3, 20, 1, 3, false, 1, 1, true},
    {"signal, cropped", {"b0f", "0io", "b0f"}, {5, 200, 1}, {9, 1, 1}, 1, -3, -7, 1, 1, false, 1, 1, true},
    {"signal without padding", {"bf0", "oi0", "bf0"}, {2, 3, 150}, {2, 3, 15}, 1, 0, 0, 1, 1, true, 1, 1, true},
    {"short signal in its padding", {"bf0", "oi0", "bf0"}, {2, 1, 2}, {1, 1, 5}, 1, 30, 9, 1, 1, false, 1, 1, true},
    {"signals by group", {"b0f", "0io", "fb0"}, {2, 40, 6}, {3, 2, 6}, 1, 1, 1, 1, 1, true, 3, 1, true},
    {"plane", {"bf01", "oi01", "bf01"}, {1, 1, 40, 130}, {1, 1, 5, 7}, 1, 2, 3, 1, 1, true, 1, 1, true},
    {"planes, wide kernel", {"b01f", "01io", "b01f"}, {2, 20, 50, 1}, {9, 33, 1, 1}, 1, 20, 8, 1, 1, false, 1, 1, true},
    {"plane cropped above", {"bf01", "oi01", "bf01"}, {1, 2, 30, 30}, {2, 2, 3, 3}, 1, -2, -1, 1, 2, false, 1, 1, true},
    {"solid", {"bf012", "oi012", "bf012"}, {2, 1, 5, 6, 35}, {3, 1, 2, 3, 3}, 1, 1, 1, 1, 1, true, 1, 1, true},
    {"cropping", NHWC, {2, 14, 14, 32}, {3, 3, 32, 32}, 1, -1, 2, 1, 1, false, 1, 1, false},
    {"whole image", NHWC, {8, 7, 7, 32}, {7, 7, 32, 64}, 1, 0, 0, 1, 1, false, 1, 1, true},
};
// clang-format on

static void convolutions_match(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof conv_rows / sizeof *conv_rows; i++) {
    check(conv_rows[i].name, make_conv, &conv_rows[i], VT_F32, VT_F32, conv_rows[i].library);
    check(conv_rows[i].name, make_conv, &conv_rows[i], VT_BF16, VT_F32, false);
    check(conv_rows[i].name, make_conv, &conv_rows[i], VT_BF16, VT_BF16, false);
  }
}

// Of any sizes: few channels or features, many, or a number that fills no vectors.
static conv_row random_gradient(void) {
  int64_t batch = 1 + random_below(5), size = 12 + random_below(5), kernel = 1 + random_below(3);
  int64_t stride = 1 + random_below(2), dilation = 1 + random_below(2);
  int64_t channels = random_below(2) ? 1 + random_below(50) : 16 * (1 + random_below(20));
  int64_t features = random_below(4) ? 16 * (1 + random_below(9)) : 1 + random_below(80);
  int64_t reach = (kernel - 1) * dilation, low = random_below(reach / 2 + 1);
  int64_t out = (size + 2 * low - reach - 1) / stride + 1;
  return (conv_row){.name = "a random weight gradient",
                    .dims = WEIGHT_GRADIENT,
                    .lhs = {batch, size, size, channels},
                    .rhs = {batch, out, out, features},
                    .stride = dilation,
                    .low = low,
                    .high = (out - 1) * stride + 1 + reach - size - low,
                    .lhs_dilation = 1,
                    .rhs_dilation = stride,
                    .feature_groups = 1,
                    .batch_groups = 1};
}

// Whether pairs of pixels are summed, as they are from 16 channels on where the processor does so,
// but for one image of an odd height under a window.
static bool in_pairs(const conv_row *row) {
  bool single = row->lhs[0] == 1 && row->rhs[1] % 2;
  return vt_host_fast_bf16() && !vt_host_has_amx() && row->lhs[3] >= 16 && row->rhs[3] % 16 == 0 &&
         !single;
}

static void weight_gradients_match(void **state) {
  (void)state;
  random_state = 7;
  for (int i = 0; i < 150; i++) {
    uint32_t seed = random_state;
    conv_row row = random_gradient();
    uint32_t next = random_state;
    char name[120];
    snprintf(name, sizeof name, "weight gradient of %dx%dx%dx%d (seed %u)", (int)row.lhs[0],
             (int)row.lhs[1], (int)row.lhs[2], (int)row.lhs[3], seed);
    check(name, make_conv, &row, VT_BF16, VT_F32, true);
    vt_program *program = compile(make_module(make_conv, &row, VT_BF16, VT_F32), false);
    const char *runner = program->plan->steps[0].runner;
    if (in_pairs(&row) && strcmp(runner, "pairs")) fail_msg("%s: runs in %s", name, runner);
    vt_program_destroy(program);
    random_state = next;
  }
}

// Of an odd number of pixels the last one has no partner: an infinity there stays one.
static void a_pixel_without_a_partner_adds_nothing(void **state) {
  (void)state;
  static const conv_row row = {
      "odd", WEIGHT_GRADIENT, {1, 7, 7, 32}, {1, 7, 7, 32}, 1, 0, 0, 1, 1, false, 1, 1, true};
  vt_program *program = compile(make_module(make_conv, &row, VT_BF16, VT_F32), false);
  uint16_t input[49 * 32], gradient[49 * 32];
  float out[32 * 32];
  for (int i = 0; i < 49 * 32; i++) input[i] = 0x7f80, gradient[i] = 0x3f80;
  run(program, input, gradient, out);
  for (int i = 0; i < 32 * 32; i++) assert_true(isinf(out[i]));
  vt_program_destroy(program);
}

// convert(contraction + bias), all of which one step does.
static vt_module *with_epilogue(make_op *make, const void *row) {
  vt_module *module = vt_module_create();
  vt_arena *arena = &module->arena;
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  vt_op *op = make(func, row, VT_BF16, VT_F32);
  vt_op_append(func, op);
  vt_type type = op->results[0].type, half = type;
  int64_t last = type.rank - 1;
  half.dtype = VT_BF16;
  vt_value *bias = vt_func_add_param(func, vt_type_make(arena, VT_F32, 1, &type.dims[last]));
  vt_value *wide = vt_build(func, NULL, VT_OP_BROADCAST_IN_DIM, NULL, type, 1, &bias);
  vt_op_set_ints(wide->op, VT_ATTR_BROADCAST_DIMENSIONS, 1, &last);
  vt_value *sum =
      vt_build(func, NULL, VT_OP_ADD, NULL, type, 2, (vt_value *[]){&op->results[0], wide});
  vt_value *rounded = vt_build(func, NULL, VT_OP_CONVERT, NULL, half, 1, &sum);
  vt_func_set_returns(func, 1, &rounded);
  return module;
}

static void check_epilogue(make_op *make, const void *row) {
  vt_program *fast = compile(with_epilogue(make, row), false),
             *plain = compile(with_epilogue(make, row), true);
  const vt_func *func = vt_program_module(plain)->main;
  void *params[3], *out[2];
  vt_type result = func->returns[0]->type;
  random_state = 99;
  for (int i = 0; i < 3; i++) {
    params[i] = vt_host_alloc(vt_type_bytes(func->params[i]->type));
    fill(params[i], func->params[i]->type);
  }
  for (int i = 0; i < 2; i++) {
    out[i] = vt_host_alloc(vt_type_bytes(result));
    vt_run run = {.params = params, .results = &out[i]};
    vt_status st = vt_program_run(i ? plain : fast, &run);
    if (st) fail_msg("%s", vt_status_message(st));
  }
  for (int64_t i = 0; i < vt_type_elements(result); i++) {
    double got = value_at(out[0], VT_BF16, i), want = value_at(out[1], VT_BF16, i);
    assert_true(fabs(got - want) <= 1e-2 * fabs(want) + 1e-3);
  }
  if (vt_host_fast_bf16()) assert_int_equal(fast->plan->step_count, 1);
  for (int i = 0; i < 3; i++) vt_host_free(params[i]);
  for (int i = 0; i < 2; i++) vt_host_free(out[i]);
  vt_program_destroy(fast);
  vt_program_destroy(plain);
}

// convert(transpose(dot)): heads merged back, and a plain transpose.
static vt_module *with_transpose(const dot_row *row, const int64_t *permutation) {
  vt_module *module = vt_module_create();
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  vt_op *op = make_dot(func, row, VT_BF16, VT_F32);
  vt_op_append(func, op);
  vt_type type = op->results[0].type;
  int64_t dims[8];
  for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[permutation[d]];
  vt_value *value = &op->results[0];
  type = vt_type_make(&module->arena, VT_F32, type.rank, dims);
  value = vt_build(func, NULL, VT_OP_TRANSPOSE, NULL, type, 1, &value);
  vt_op_set_ints(value->op, VT_ATTR_PERMUTATION, (uint32_t)type.rank, permutation);
  type.dtype = VT_BF16;
  value = vt_build(func, NULL, VT_OP_CONVERT, NULL, type, 1, &value);
  vt_func_set_returns(func, 1, &value);
  return module;
}

static void transposed_results_are_written_so(void **state) {
  (void)state;
  static const dot_row rows[] = {
      {"values times scores",
       {4, 35, 2, 24, -1},
       {4, 2, 33, 35, -1},
       {0, 2, -1},
       {0, 1, -1},
       {1, -1},
       {3, -1}},
      {"matrix", {64, 96, -1}, {96, 80, -1}, END, END, {1, -1}, {0, -1}},
      {"several right dims", {32, 48, -1}, {48, 4, 16, -1}, END, END, {1, -1}, {0, -1}},
      {"channels of images", {16, 8, 33, 3, -1}, {33, 48, -1}, END, END, {2, -1}, {0, -1}},
      {"the same in bf16", {16, 8, 64, 4, -1}, {64, 48, -1}, END, END, {2, -1}, {0, -1}},
  };
  static const int64_t permutations[][4] = {
      {0, 3, 1, 2}, {1, 0}, {1, 0, 2}, {1, 0, 3, 2}, {1, 3, 0, 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_program *fast = compile(with_transpose(&rows[i], permutations[i]), false);
    vt_program *plain = compile(with_transpose(&rows[i], permutations[i]), true);
    const vt_func *func = vt_program_module(plain)->main;
    vt_type result = func->returns[0]->type;
    void *data[4] = {vt_host_alloc(vt_type_bytes(func->params[0]->type)),
                     vt_host_alloc(vt_type_bytes(func->params[1]->type)),
                     vt_host_alloc(vt_type_bytes(result)), vt_host_alloc(vt_type_bytes(result))};
    random_state = 7;
    fill(data[0], func->params[0]->type);
    fill(data[1], func->params[1]->type);
    run(fast, data[0], data[1], data[2]);
    run(plain, data[0], data[1], data[3]);
    for (int64_t e = 0; e < vt_type_elements(result); e++) {
      double got = value_at(data[2], VT_BF16, e), want = value_at(data[3], VT_BF16, e);
      if (!(fabs(got - want) <= 1e-2 * fabs(want) + 1e-3))
        fail_msg("%s: %g for %g", rows[i].name, got, want);
    }
    if (vt_host_fast_bf16()) assert_int_equal(fast->plan->step_count, 1);
    for (int k = 0; k < 4; k++) vt_host_free(data[k]);
    vt_program_destroy(fast);
    vt_program_destroy(plain);
  }
}

static void bias_and_rounding_join_the_contraction(void **state) {
  (void)state;
  check_epilogue(make_dot, &dot_rows[0]);
  check_epilogue(make_conv, &conv_rows[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dots_match),
      cmocka_unit_test(few_vectors_match),
      cmocka_unit_test(few_vectors_are_exact),
      cmocka_unit_test(convolutions_match),
      cmocka_unit_test(weight_gradients_match),
      cmocka_unit_test(a_pixel_without_a_partner_adds_nothing),
      cmocka_unit_test(bias_and_rounding_join_the_contraction),
      cmocka_unit_test(transposed_results_are_written_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
