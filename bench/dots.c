// SPDX-License-Identifier: Apache-2.0
// dots.c - the rate of dots and convolutions as steps of a program: GFLOP/s and share of the
// matrix-product peak. Each row is a program of one op, compiled and run like a framework's, in
// bf16 (f32 result) and in f32. The peak is the best rate of a square product of 2048 in the same
// element type, measured in the same run.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/host.h"
#include "ir/module.h"

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(vt_status st) {
  if (!st) return;
  fprintf(stderr, "dots: %s\n", vt_status_message(st));
  exit(1);
}

// batch x (m x n x k); lhs given as k x m when `lhs_t`, rhs as n x k when `rhs_t`.
typedef struct dot_row {
  const char *name;
  int64_t batch, m, n, k;
  bool lhs_t, rhs_t;
} dot_row;

static const dot_row dots[] = {
    {"mlp 784-512", 1, 1024, 512, 784, false, false},
    {"mlp 784-512, weights", 1, 784, 512, 1024, true, false},
    {"mlp 512-512, input", 1, 1024, 512, 512, false, true},
    {"mlp 512-10", 1, 1024, 10, 512, false, false},
    {"mlp 512-10, weights", 1, 512, 10, 1024, true, false},
    {"transformer 256-1024", 1, 1024, 1024, 256, false, false},
    {"transformer 256-1024, weights", 1, 256, 1024, 1024, true, false},
    {"transformer 256-1024, input", 1, 1024, 256, 1024, false, true},
    {"vocabulary 256-8192", 1, 1024, 8192, 256, false, true},
    {"attention scores", 64, 128, 128, 32, false, true},
    {"attention values", 64, 128, 32, 128, false, false},
    {"attention, gradient", 64, 128, 32, 128, true, false},
    {"bert 768-3072", 1, 2048, 3072, 768, false, false},
};

// NHWC; kind f forward, i gradient of the input, w gradient of the weights. Padding keeps ceil(size
// / stride).
typedef struct conv_row {
  const char *name;
  int64_t batch, size, in, out, kernel, stride, groups;
} conv_row;

static const conv_row convs[] = {
    {"mnist 1-32 3x3", 256, 28, 1, 32, 3, 1, 1},
    {"mnist 32-64 3x3", 256, 14, 32, 64, 3, 1, 1},
    {"resnet stem 7x7/2", 8, 224, 3, 64, 7, 2, 1},
    {"resnet 64-64 3x3", 8, 56, 64, 64, 3, 1, 1},
    {"resnet 64-256 1x1", 8, 56, 64, 256, 1, 1, 1},
    {"resnet 256-64 1x1", 8, 56, 256, 64, 1, 1, 1},
    {"resnet 128-128 3x3/2", 8, 56, 128, 128, 3, 2, 1},
    {"resnet 128-128 3x3", 8, 28, 128, 128, 3, 1, 1},
    {"resnet 256-512 1x1/2", 8, 56, 256, 512, 1, 2, 1},
    {"resnet 256-256 3x3", 8, 14, 256, 256, 3, 1, 1},
    {"resnet 512-512 3x3", 8, 7, 512, 512, 3, 1, 1},
    {"resnet 2048-512 1x1", 8, 7, 2048, 512, 1, 1, 1},
    {"depthwise 128 3x3", 8, 56, 128, 128, 3, 1, 128},
};

static vt_value *param(vt_func *func, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_func_add_param(func, vt_type_make(&func->module->arena, dtype, rank, dims));
}

static vt_module *start(void) {
  vt_module *module = vt_module_create();
  module->main = vt_func_create(module, "main");
  vt_module_add_func(module, module->main);
  return module;
}

static vt_module *dot_module(const dot_row *row, vt_dtype dtype) {
  vt_module *module = start();
  vt_func *func = module->main;
  int64_t lhs[3] = {row->batch, row->lhs_t ? row->k : row->m, row->lhs_t ? row->m : row->k};
  int64_t rhs[3] = {row->batch, row->rhs_t ? row->n : row->k, row->rhs_t ? row->k : row->n};
  int64_t out[3] = {row->batch, row->m, row->n}, zero = 0, lhs_k = row->lhs_t ? 1 : 2,
          rhs_k = row->rhs_t ? 2 : 1;
  vt_value *operands[] = {param(func, dtype, 3, lhs), param(func, dtype, 3, rhs)};
  vt_type type = vt_type_make(&module->arena, VT_F32, 3, out);
  vt_op *op = vt_op_create(func, VT_OP_DOT_GENERAL, NULL, 2, operands, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, 1, &zero);
  vt_op_set_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, 1, &zero);
  vt_op_set_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, &lhs_k);
  vt_op_set_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, &rhs_k);
  vt_op_append(func, op);
  vt_func_set_returns(func, 1, (vt_value *[]){&op->results[0]});
  return module;
}

static void set_pair(vt_op *op, vt_attr_key key, int64_t value) {
  vt_op_set_ints(op, key, 2, (int64_t[]){value, value});
}

static void set_numbers(vt_op *op, int tensor, int64_t a, int64_t b, int64_t first_spatial) {
  vt_op_set_i64(op, vt_conv_dim_keys[tensor][0], a);
  vt_op_set_i64(op, vt_conv_dim_keys[tensor][1], b);
  vt_op_set_ints(op, vt_conv_dim_keys[tensor][2], 2, (int64_t[]){first_spatial, first_spatial + 1});
}

// A convolution and its two gradients as JAX writes them, for tensors [b, y, x, f] and kernels [y,
// x, i, o].
static vt_module *conv_module(const conv_row *row, char kind, vt_dtype dtype) {
  vt_module *module = start();
  vt_func *func = module->main;
  int64_t s = row->stride, k = row->kernel, small = (row->size + s - 1) / s;
  int64_t pad = (small - 1) * s + k - row->size, low = (pad < 0 ? 0 : pad) / 2, high = pad - low;
  int64_t image[4] = {row->batch, row->size, row->size, row->in},
          result[4] = {row->batch, small, small, row->out};
  int64_t kernel[4] = {k, k, row->in / row->groups, row->out},
          turned[4] = {k, k, row->in, row->out / row->groups};
  const int64_t *lhs = kind == 'i' ? result : image, *out = kind == 'f'   ? result
                                                            : kind == 'i' ? image
                                                                          : kernel;
  const int64_t *rhs = kind == 'f' ? kernel : kind == 'i' ? turned : result;
  vt_value *operands[] = {param(func, dtype, 4, lhs), param(func, dtype, 4, rhs)};
  vt_type type = vt_type_make(&module->arena, VT_F32, 4, out);
  vt_op *op = vt_op_create(func, VT_OP_CONVOLUTION, NULL, 2, operands, 1, &type, 0);
  if (kind == 'i') low = k - 1 - low, high = row->size + k - 1 - ((small - 1) * s + 1) - low;
  vt_op_set_ints(op, VT_ATTR_PADDING, 4, (int64_t[]){low, high, low, high});
  set_pair(op, VT_ATTR_WINDOW_STRIDES, kind == 'f' ? s : 1);
  set_pair(op, VT_ATTR_LHS_DILATION, kind == 'i' ? s : 1);
  set_pair(op, VT_ATTR_RHS_DILATION, kind == 'w' ? s : 1);
  set_pair(op, VT_ATTR_WINDOW_REVERSAL, kind == 'i');
  set_numbers(op, 0, kind == 'w' ? 3 : 0, kind == 'w' ? 0 : 3, 1);
  if (kind == 'w')
    set_numbers(op, 1, 0, 3, 1);
  else
    set_numbers(op, 1, kind == 'i' ? 3 : 2, kind == 'i' ? 2 : 3, 0);
  if (kind == 'w')
    set_numbers(op, 2, 2, 3, 0);
  else
    set_numbers(op, 2, 0, 3, 1);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, kind == 'w' ? 1 : row->groups);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, kind == 'w' ? row->groups : 1);
  vt_op_append(func, op);
  vt_func_set_returns(func, 1, (vt_value *[]){&op->results[0]});
  return module;
}

// GFLOP/s of the module's only op; out_compile_ms gets the compile time.
static double measure(vt_module *module, double flops, double *out_compile_ms) {
  vt_host_options options = {.device_count = 1, .exact_dots = true};
  vt_program *program;
  double begin = now_s();
  vt_pass_options passes = vt_host_passes(options.exact_dots);
  check(vt_module_verify(module));
  check(vt_passes_run(module, &passes));
  check(vt_host_compile(module, &options, &program));
  *out_compile_ms = (now_s() - begin) * 1e3;
  const vt_func *func = vt_program_module(program)->main;
  void *params[2], *result = vt_host_alloc(vt_type_bytes(func->returns[0]->type));
  for (int i = 0; i < 2; i++) {
    params[i] = vt_host_alloc(vt_type_bytes(func->params[i]->type));
    memset(params[i], 0x3c, (size_t)vt_type_bytes(func->params[i]->type));
  }
  vt_run run = {.params = params, .results = &result};
  double best = 1e9;
  begin = now_s();
  for (int i = 0; i < 5 || (i < 200 && now_s() - begin < 0.1); i++) {
    double start_s = now_s();
    check(vt_program_run(program, &run));
    double took = now_s() - start_s;
    if (took < best) best = took;
  }
  vt_host_free(params[0]);
  vt_host_free(params[1]);
  vt_host_free(result);
  vt_program_destroy(program);
  return flops / best * 1e-9;
}

static const vt_dtype types[2] = {VT_BF16, VT_F32};
static double peaks[2];

typedef struct result {
  char name[64];
  double rates[2], compile_ms;
} result;
static result results[sizeof dots / sizeof *dots + 3 * sizeof convs / sizeof *convs];
static size_t result_count;

// Measured before, between and after the rows, so that momentary load does not lower the peak.
static void measure_peaks(void) {
  const dot_row square = {"square", 1, 2048, 2048, 2048, false, false};
  for (int t = 0; t < 2; t++) {
    double ms, rate = measure(dot_module(&square, types[t]), 2 * 2048.0 * 2048 * 2048, &ms);
    if (rate > peaks[t]) peaks[t] = rate;
  }
}

static void measure_dot(const dot_row *row) {
  result *r = &results[result_count++];
  double flops = 2.0 * (double)row->batch * (double)row->m * (double)row->n * (double)row->k;
  snprintf(r->name, sizeof r->name, "%s", row->name);
  for (int t = 0; t < 2; t++)
    r->rates[t] = measure(dot_module(row, types[t]), flops, &r->compile_ms);
}

static void measure_conv(const conv_row *row, char kind) {
  result *r = &results[result_count++];
  int64_t small = (row->size + row->stride - 1) / row->stride;
  double flops = 2.0 * (double)(row->batch * small * small * row->out) *
                 (double)(row->kernel * row->kernel * row->in / row->groups);
  const char *what = kind == 'f' ? "" : kind == 'i' ? ", input" : ", weights";
  snprintf(r->name, sizeof r->name, "%s%s", row->name, what);
  for (int t = 0; t < 2; t++)
    r->rates[t] = measure(conv_module(row, kind, types[t]), flops, &r->compile_ms);
}

int main(void) {
  measure_peaks();
  for (size_t i = 0; i < sizeof dots / sizeof *dots; i++) measure_dot(&dots[i]);
  measure_peaks();
  for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
    for (const char *kind = "fiw"; *kind; kind++) measure_conv(&convs[i], *kind);
  measure_peaks();
  printf("%-32s %8s %7s  %8s %7s  %8s\n", "GFLOP/s", "bf16", "of peak", "f32", "of peak",
         "compile ms");
  printf("%-32s %8.0f %7s  %8.0f\n", "peak", peaks[0], "", peaks[1]);
  for (const result *r = results; r < results + result_count; r++)
    printf("%-32s %8.0f %5.0f %%  %8.0f %5.0f %%  %8.1f\n", r->name, r->rates[0],
           100 * r->rates[0] / peaks[0], r->rates[1], 100 * r->rates[1] / peaks[1], r->compile_ms);
  return 0;
}
