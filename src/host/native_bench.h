// SPDX-License-Identifier: Apache-2.0
// native_bench.h - for tests: one op as its precompiled kernel and on the evaluator, on any number
// of threads.
#ifndef VT_HOST_NATIVE_BENCH_H
#define VT_HOST_NATIVE_BENCH_H

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
#include "host/kernel.h"

enum { BENCH_PORTS = 8, FLUSH_SUBNORMALS = 0x8040 };

static inline uint64_t next_random(void) {
  static uint64_t state = 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
static inline int64_t random_below(int64_t n) {
  return (int64_t)(next_random() % (uint64_t)n);
}

// One op over the parameters of a function, and their arrays.
typedef struct op_bench {
  vt_module *module;
  vt_func *func;
  vt_op *op;
  void *in[BENCH_PORTS], *want[BENCH_PORTS], *got[BENCH_PORTS];
} op_bench;

static inline void *bench_memory(vt_type type) {
  size_t bytes = ((size_t)vt_type_bytes(type) + 128 + 63) / 64 * 64;
  void *memory = aligned_alloc(64, bytes);
  memset(memory, 0xAA, bytes);
  return memory;
}

static inline op_bench bench_begin(void) {
  op_bench b = {.module = vt_module_create()};
  b.func = vt_func_create(b.module, "main");
  b.module->main = b.func;
  vt_module_add_func(b.module, b.func);
  return b;
}

static inline vt_type bench_type(op_bench *b, vt_dtype dtype, int rank, const int64_t *dims) {
  return vt_type_make(&b->module->arena, dtype, rank, dims);
}

// A parameter; its array is returned, to be filled.
static inline void *bench_param(op_bench *b, vt_dtype dtype, int rank, const int64_t *dims) {
  vt_value *value = vt_func_add_param(b->func, bench_type(b, dtype, rank, dims));
  return b->in[b->func->param_count - 1] = bench_memory(value->type);
}

// Adds the op over all parameters; the caller sets its attributes and regions.
static inline void bench_op(op_bench *b, vt_opcode code, uint32_t results, const vt_type *types,
                            uint32_t regions) {
  vt_func *f = b->func;
  b->op = vt_op_create(f, code, NULL, f->param_count, f->params, results, types, regions);
  vt_op_append(f, b->op);
}

static inline void bench_expect_ok(vt_status st) {
  if (st) fail_msg("%s", vt_status_message(st));
}

static inline void bench_evaluate(op_bench *b) {
  vt_tensor in[BENCH_PORTS], out[BENCH_PORTS];
  for (uint32_t i = 0; i < b->op->operand_count; i++)
    in[i] = (vt_tensor){b->op->operands[i]->type, b->in[i]};
  for (uint32_t i = 0; i < b->op->result_count; i++) {
    if (!b->want[i]) b->want[i] = bench_memory(b->op->results[i].type);
    out[i] = (vt_tensor){b->op->results[i].type, b->want[i]};
  }
  bench_expect_ok(vt_eval_op(b->op, &(vt_eval_env){0}, in, out));
}

// Runs the op's kernel; the function returns the op's results unless the caller has set others.
// `in_place`: result 0 in the memory of a copy of operand 0, if allowed.
static inline void bench_kernel(op_bench *b, int threads, bool in_place) {
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  vt_kernel *kernel;
  vt_jit *jit;
  vt_value *results[BENCH_PORTS];
  for (uint32_t i = 0; i < b->op->result_count; i++) results[i] = &b->op->results[i];
  if (!b->func->return_count) vt_func_set_returns(b->func, b->op->result_count, results);
  omp_set_num_threads(threads);
  bench_expect_ok(
      vt_host_fuse(b->func, &(vt_fuse_options){.min_work = -1}, &arena, &groups, &count));
  vt_group *group = groups;
  while (group < groups + count && group->ops[0] != b->op) group++;
  assert_true(group < groups + count && group->fused);
  bench_expect_ok(vt_jit_create(&jit));
  bench_expect_ok(vt_jit_compile(jit, &(const vt_group *){group}, 1, &kernel));
  void *in[BENCH_PORTS], *out[BENCH_PORTS], *copy = NULL;
  for (uint32_t i = 0; i < group->input_count; i++)
    for (uint32_t p = 0; p < b->func->param_count; p++)
      if (group->inputs[i] == b->func->params[p]) in[i] = b->in[p];
  for (uint32_t i = 0; i < b->op->result_count; i++) {
    vt_type type = b->op->results[i].type;
    if (!b->got[i]) b->got[i] = bench_memory(type);
    out[i] = b->got[i];
    if (i || !in_place || !vt_kernel_in_place_ok(kernel, 0, 0)) continue;
    copy = memcpy(out[0], b->in[0], (size_t)vt_type_bytes(type));
    in[0] = copy;
  }
  size_t scratch_bytes = ((size_t)vt_kernel_scratch_bytes(kernel) + 127) / 64 * 64;
  void *scratch = aligned_alloc(64, scratch_bytes);
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | FLUSH_SUBNORMALS);
  bench_expect_ok(vt_kernel_run(kernel, in, out, scratch));
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() & ~(unsigned)FLUSH_SUBNORMALS);
  free(scratch);
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
}

static inline void bench_end(op_bench *b) {
  for (int i = 0; i < BENCH_PORTS; i++) {
    free(b->in[i]);
    free(b->want[i]);
    free(b->got[i]);
  }
  vt_module_destroy(b->module);
}

// Equal bits; NaNs of floating types equal each other.
static inline void bench_expect_same(const op_bench *b, uint32_t result, const char *what) {
  vt_type type = b->op->results[result].type;
  int64_t n = vt_type_elements(type);
  size_t bytes = vt_dtype_bytes(type.dtype);
  const char *want = b->want[result], *got = b->got[result];
  if (vt_dtype_is_complex(type.dtype)) n *= 2, bytes /= 2;
  for (int64_t i = 0; i < n; i++, want += bytes, got += bytes) {
    if (!memcmp(want, got, bytes)) continue;
    bool nan = false;
    if (vt_dtype_is_float(type.dtype) || vt_dtype_is_complex(type.dtype)) {
      uint64_t x = 0, y = 0, inf = bytes == 8 ? 0x7ffull << 52 : bytes == 4 ? 0x7f800000u : 0;
      memcpy(&x, want, bytes), memcpy(&y, got, bytes);
      if (bytes == 2) inf = type.dtype == VT_BF16 ? 0x7f80u : 0x7c00u;
      uint64_t magnitude = ~((uint64_t)1 << (8 * bytes - 1));
      nan = (x & magnitude) > inf && (y & magnitude) > inf;
    }
    if (!nan) {
      uint64_t x = 0, y = 0;
      memcpy(&x, want, bytes), memcpy(&y, got, bytes);
      fail_msg("%s: element %lld is %llx, expected %llx", what, (long long)i, (unsigned long long)y,
               (unsigned long long)x);
    }
  }
}

#endif
