// SPDX-License-Identifier: Apache-2.0
// kernels.c - the rate of fused loops: GB/s of the arrays they must read and write, next to memcpy
// of the same size in the same run, and the cost of generating their code. Outputs reuse inputs
// where the kernel allows it, as in a program.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xmmintrin.h>

#include "host/fuse.h"
#include "host/host.h"
#include "host/kernel.h"

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(vt_status st) {
  if (!st) return;
  fprintf(stderr, "kernels: %s\n", vt_status_message(st));
  exit(1);
}

// ---- Programs.

typedef struct program {
  vt_module *module;
  vt_func *func;
  vt_type type, row; // rows x columns, and one number per row
  int64_t rows, columns;
} program;

static program start(int64_t rows, int64_t columns) {
  program p = {.module = vt_module_create(), .rows = rows, .columns = columns};
  p.func = vt_func_create(p.module, "main");
  p.module->main = p.func;
  vt_module_add_func(p.module, p.func);
  p.type = vt_type_make(&p.module->arena, VT_F32, 2, (int64_t[]){rows, columns});
  p.row = vt_type_make(&p.module->arena, VT_F32, 1, (int64_t[]){rows});
  return p;
}

static vt_value *op1(program p, vt_opcode code, vt_value *x) {
  return vt_build(p.func, NULL, code, NULL, x->type, 1, &x);
}
static vt_value *op2(program p, vt_opcode code, vt_value *x, vt_value *y) {
  return vt_build(p.func, NULL, code, NULL, x->type, 2, (vt_value *[]){x, y});
}
static vt_value *broadcast(program p, vt_value *x, vt_type type, uint32_t count, int64_t dim) {
  vt_value *v = vt_build(p.func, NULL, VT_OP_BROADCAST_IN_DIM, NULL, type, 1, &x);
  vt_op_set_ints(v->op, VT_ATTR_BROADCAST_DIMENSIONS, count, &dim);
  return v;
}
static vt_value *scalar(program p, float x) {
  vt_literal *literal = VT_NEW(&p.module->arena, vt_literal);
  *literal = (vt_literal){.type = vt_type_make(&p.module->arena, VT_F32, 0, NULL),
                          .data = vt_arena_copy(&p.module->arena, &x, sizeof x),
                          .splat = true};
  return vt_build_constant(p.func, NULL, NULL, literal);
}
static vt_value *splat(program p, float x, vt_type type) {
  return broadcast(p, scalar(p, x), type, 0, 0);
}

static vt_value *reduce(program p, vt_opcode code, float from, vt_value *x, int64_t dim) {
  int64_t kept = dim ? p.rows : p.columns;
  vt_type type = vt_type_make(&p.module->arena, VT_F32, 1, &kept),
          one = vt_type_make(&p.module->arena, VT_F32, 0, NULL);
  vt_op *op =
      vt_op_create(p.func, VT_OP_REDUCE, NULL, 2, (vt_value *[]){x, scalar(p, from)}, 1, &type, 1);
  vt_func *body = op->regions[0] = vt_func_create(p.module, "");
  vt_value *args[2] = {vt_func_add_param(body, one), vt_func_add_param(body, one)};
  vt_value *result = vt_build(body, NULL, code, NULL, one, 2, args);
  vt_func_set_returns(body, 1, &result);
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, 1, &dim);
  vt_op_append(p.func, op);
  return &op->results[0];
}

static void adam(program p) {
  vt_value *w = vt_func_add_param(p.func, p.type), *g = vt_func_add_param(p.func, p.type);
  vt_value *m = vt_func_add_param(p.func, p.type), *v = vt_func_add_param(p.func, p.type);
  m = op2(p, VT_OP_ADD, op2(p, VT_OP_MULTIPLY, m, splat(p, 0.9f, p.type)),
          op2(p, VT_OP_MULTIPLY, g, splat(p, 0.1f, p.type)));
  v = op2(p, VT_OP_ADD, op2(p, VT_OP_MULTIPLY, v, splat(p, 0.999f, p.type)),
          op2(p, VT_OP_MULTIPLY, op2(p, VT_OP_MULTIPLY, g, g), splat(p, 0.001f, p.type)));
  vt_value *down =
      op2(p, VT_OP_ADD, op1(p, VT_OP_SQRT, op2(p, VT_OP_DIVIDE, v, splat(p, 0.5f, p.type))),
          splat(p, 1e-8f, p.type));
  vt_value *step = op2(p, VT_OP_DIVIDE, op2(p, VT_OP_DIVIDE, m, splat(p, 0.5f, p.type)), down);
  w = op2(p, VT_OP_SUBTRACT, w, op2(p, VT_OP_MULTIPLY, step, splat(p, 1e-3f, p.type)));
  vt_func_set_returns(p.func, 3, (vt_value *[]){w, m, v});
}

static void gelu(program p) {
  vt_value *x = vt_func_add_param(p.func, p.type);
  vt_value *cube = op2(p, VT_OP_MULTIPLY, op2(p, VT_OP_MULTIPLY, x, x), x);
  vt_value *inner = op2(p, VT_OP_ADD, x, op2(p, VT_OP_MULTIPLY, cube, splat(p, 0.044715f, p.type)));
  vt_value *t = op1(p, VT_OP_TANH, op2(p, VT_OP_MULTIPLY, inner, splat(p, 0.7978845f, p.type)));
  vt_value *y = op2(p, VT_OP_MULTIPLY, op2(p, VT_OP_ADD, t, splat(p, 1, p.type)),
                    op2(p, VT_OP_MULTIPLY, x, splat(p, 0.5f, p.type)));
  vt_func_set_returns(p.func, 1, &y);
}

static void bias_relu(program p) {
  vt_type column = vt_type_make(&p.module->arena, VT_F32, 1, &p.columns);
  vt_value *x = vt_func_add_param(p.func, p.type), *bias = vt_func_add_param(p.func, column);
  vt_value *y = op2(p, VT_OP_MAXIMUM, op2(p, VT_OP_ADD, x, broadcast(p, bias, p.type, 1, 1)),
                    splat(p, 0, p.type));
  vt_func_set_returns(p.func, 1, &y);
}

static void cross_entropy(program p) { // value and gradient, labels as probabilities
  vt_value *x = vt_func_add_param(p.func, p.type), *label = vt_func_add_param(p.func, p.type);
  vt_value *max = reduce(p, VT_OP_MAXIMUM, -INFINITY, x, 1);
  vt_value *shifted = op2(p, VT_OP_SUBTRACT, x, broadcast(p, max, p.type, 1, 0));
  vt_value *e = op1(p, VT_OP_EXPONENTIAL, shifted);
  vt_value *sum = reduce(p, VT_OP_ADD, 0, e, 1);
  vt_value *logs =
      op2(p, VT_OP_SUBTRACT, shifted, broadcast(p, op1(p, VT_OP_LOG, sum), p.type, 1, 0));
  vt_value *loss = reduce(p, VT_OP_ADD, 0, op2(p, VT_OP_MULTIPLY, label, logs), 1);
  vt_value *grad =
      op2(p, VT_OP_SUBTRACT, op2(p, VT_OP_DIVIDE, e, broadcast(p, sum, p.type, 1, 0)), label);
  vt_func_set_returns(p.func, 2, (vt_value *[]){loss, grad});
}

static void layer_norm(program p) {
  vt_type column = vt_type_make(&p.module->arena, VT_F32, 1, &p.columns);
  vt_value *x = vt_func_add_param(p.func, p.type), *gamma = vt_func_add_param(p.func, column);
  vt_value *count = splat(p, (float)p.columns, p.row);
  vt_value *mean = op2(p, VT_OP_DIVIDE, reduce(p, VT_OP_ADD, 0, x, 1), count);
  vt_value *d = op2(p, VT_OP_SUBTRACT, x, broadcast(p, mean, p.type, 1, 0));
  vt_value *var =
      op2(p, VT_OP_DIVIDE, reduce(p, VT_OP_ADD, 0, op2(p, VT_OP_MULTIPLY, d, d), 1), count);
  vt_value *scale = op1(p, VT_OP_RSQRT, op2(p, VT_OP_ADD, var, splat(p, 1e-6f, p.row)));
  vt_value *y = op2(p, VT_OP_MULTIPLY, op2(p, VT_OP_MULTIPLY, d, broadcast(p, scale, p.type, 1, 0)),
                    broadcast(p, gamma, p.type, 1, 1));
  vt_func_set_returns(p.func, 1, &y);
}

static void column_sums(program p) {
  vt_value *x = vt_func_add_param(p.func, p.type);
  vt_value *y = reduce(p, VT_OP_ADD, 0, x, 0);
  vt_func_set_returns(p.func, 1, &y);
}

static void row_sums(program p) {
  vt_value *x = vt_func_add_param(p.func, p.type);
  vt_value *y = reduce(p, VT_OP_ADD, 0, x, 1);
  vt_func_set_returns(p.func, 1, &y);
}

static void transpose(program p) {
  vt_value *x = vt_func_add_param(p.func, p.type);
  vt_type turned = vt_type_make(&p.module->arena, VT_F32, 2, (int64_t[]){p.columns, p.rows});
  vt_value *y = vt_build(p.func, NULL, VT_OP_TRANSPOSE, NULL, turned, 1, &x);
  vt_op_set_ints(y->op, VT_ATTR_PERMUTATION, 2, (int64_t[]){1, 0});
  vt_func_set_returns(p.func, 1, &y);
}

// ---- Measuring.

static double bytes_of(vt_value *const *values, uint32_t count) {
  double bytes = 0;
  for (uint32_t i = 0; i < count; i++) bytes += (double)vt_type_bytes(values[i]->type);
  return bytes;
}

static double time_copy(double bytes) {
  size_t half = (size_t)(bytes / 2);
  char *a = vt_host_alloc((int64_t)half), *b = vt_host_alloc((int64_t)half);
  double best = 1e9;
  memset(a, 1, half), memset(b, 1, half);
  for (double end = now_s() + 0.1; now_s() < end;) {
    double t = now_s();
    memcpy(a, b, half);
    t = now_s() - t;
    if (t < best) best = t;
  }
  vt_host_free(a), vt_host_free(b);
  return best;
}

static void measure(const char *name, void (*make)(program), int64_t rows, int64_t columns) {
  program p = start(rows, columns);
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  vt_jit *jit;
  make(p);
  check(vt_host_fuse(p.func, &(vt_fuse_options){.min_work = -1}, &arena, &groups, &count));
  if (count != 1 || !groups[0].fused) {
    printf("%-14s not one kernel (%u groups)\n", name, count);
    return;
  }
  const vt_group *g = &groups[0];
  vt_kernel *kernel;
  check(vt_jit_create(&jit));
  double made = now_s();
  check(vt_jit_compile(jit, &g, 1, &kernel));
  made = now_s() - made;
  void *in[8], *out[8];
  for (uint32_t i = 0; i < g->input_count; i++) {
    float *x = in[i] = vt_host_alloc(vt_type_bytes(g->inputs[i]->type));
    for (int64_t k = 0; k < vt_type_elements(g->inputs[i]->type); k++)
      x[k] = 0.25f + 0.001f * (float)(k % 997);
  }
  for (uint32_t o = 0; o < g->output_count; o++) {
    out[o] = NULL;
    for (uint32_t i = 0; i < g->input_count && !out[o]; i++) {
      bool taken = false;
      for (uint32_t k = 0; k < o; k++) taken |= out[k] == in[i];
      if (!taken && vt_kernel_in_place_ok(kernel, o, i)) out[o] = in[i];
    }
    if (!out[o])
      memset(out[o] = vt_host_alloc(vt_type_bytes(g->outputs[o]->type)), 0,
             (size_t)vt_type_bytes(g->outputs[o]->type));
  }
  void *scratch = vt_host_alloc(vt_kernel_scratch_bytes(kernel) + 64);
  double best = 1e9,
         bytes = bytes_of(g->inputs, g->input_count) + bytes_of(g->outputs, g->output_count);
  for (double end = now_s() + 0.2; now_s() < end;) {
    double t = now_s();
    check(vt_kernel_run(kernel, in, out, scratch));
    t = now_s() - t;
    if (t < best) best = t;
  }
  double copy = time_copy(bytes);
  printf("%-14s %5lldx%-6lld %9.1f us %7.1f GB/s  memcpy %7.1f GB/s  ratio %5.2f  code %5.1f ms\n",
         name, (long long)rows, (long long)columns, best * 1e6, bytes / best * 1e-9,
         bytes / copy * 1e-9, copy / best, made * 1e3);
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
  vt_module_destroy(p.module);
}

int main(void) {
  static const struct {
    const char *name;
    void (*make)(program);
  } rows[] = {{"adam", adam},
              {"gelu", gelu},
              {"bias+relu", bias_relu},
              {"cross entropy", cross_entropy},
              {"layer norm", layer_norm},
              {"column sums", column_sums},
              {"row sums", row_sums},
              {"transpose", transpose}};
  static const int64_t sizes[][2] = {{256, 256}, {1024, 1024}, {4096, 4096}};
  setenv("VTPU_CACHE_DIR", "", 0);
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);
  vt_jit *keep;
  check(vt_jit_create(&keep));
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int s = 0; s < 3; s++) measure(rows[r].name, rows[r].make, sizes[s][0], sizes[s][1]);
  measure("cross entropy", cross_entropy, 1024, 10);
  vt_jit_destroy(keep);
  return 0;
}
