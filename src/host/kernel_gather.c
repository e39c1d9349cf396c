// SPDX-License-Identifier: Apache-2.0
// kernel_gather.c - gather: a window of the operand copied per index, in parallel over the indices.
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_places.h"

typedef struct gather_plan {
  vt_places places;
  int64_t window_bytes;
  int64_t run; // bytes of a window that is one run on both sides; 0 = it is none
} gather_plan;

static void copy_window(const vt_box *box, int32_t dim, char *to, const char *from) {
  if (dim == box->rank - 1 && box->to[dim] == box->bytes && box->from[dim] == box->bytes) {
    memcpy(to, from, (size_t)(box->dims[dim] * box->bytes));
    return;
  }
  for (int64_t i = 0; i < box->dims[dim]; i++, to += box->to[dim], from += box->from[dim]) {
    if (dim < box->rank - 1)
      copy_window(box, dim + 1, to, from);
    else
      memcpy(to, from, (size_t)box->bytes);
  }
}

// Elements next to each other in the result are gathered as vectors.
#define COPY_RUNS(T)                                                                               \
  do {                                                                                             \
    if (step == (int64_t)sizeof(T)) {                                                              \
      T *line = (T *)to;                                                                           \
      for (int64_t i = 0; i < n; i++) line[i] = *(const T *)(from + place[i]);                     \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) *(T *)(to + i * step) = *(const T *)(from + place[i]);       \
    }                                                                                              \
  } while (0)

typedef struct words {
  uint32_t word[3];
} words;
typedef uint64_t two __attribute__((vector_size(16), aligned(4)));
typedef uint64_t four __attribute__((vector_size(32), aligned(4)));
typedef uint64_t eight __attribute__((vector_size(64), aligned(4)));

// Runs of a constant length are a load and a store each.
VT_ANY_CPU static void copy_runs(int64_t n, int64_t bytes, char *restrict to, int64_t step,
                                 const char *restrict from, const int64_t *place) {
  switch (bytes) {
  case 1:
    COPY_RUNS(uint8_t);
    break;
  case 2:
    COPY_RUNS(uint16_t);
    break;
  case 4:
    COPY_RUNS(uint32_t);
    break;
  case 8:
    COPY_RUNS(uint64_t);
    break;
  default:
    for (int64_t i = 0; i < n; i++) memcpy(to + i * step, from + place[i], (size_t)bytes);
  }
}

// Runs of whole words.
VT_ANY_CPU static void copy_words(int64_t n, int64_t bytes, char *restrict to, int64_t step,
                                  const char *restrict from, const int64_t *place) {
  switch (bytes) {
  case 12:
    COPY_RUNS(words);
    break;
  case 16:
    COPY_RUNS(two);
    break;
  case 32:
    COPY_RUNS(four);
    break;
  case 64:
    COPY_RUNS(eight);
    break;
  default:
    copy_runs(n, bytes, to, step, from, place);
  }
}

static void gather_block(const vt_native_call *call, int64_t at, int64_t end) {
  const gather_plan *plan = call->native->plan;
  const vt_places *p = &plan->places;
  const char *from = call->operands[0];
  int64_t place[VT_PLACES_BLOCK];
  while (at < end) {
    vt_places_run run = vt_places_find(p, call->operands[1], at, end - at, true, place);
    char *to = (char *)call->outputs[0] + run.other;
    if (plan->run && p->window.bytes >= 4)
      copy_words(run.n, plan->run, to, run.step, from, place);
    else if (plan->run)
      copy_runs(run.n, plan->run, to, run.step, from, place);
    else
      for (int64_t i = 0; i < run.n; i++)
        copy_window(&p->window, 0, to + i * run.step, from + place[i]);
    at += run.n;
  }
}

static void run_gather(const vt_native_call *call) {
  const gather_plan *plan = call->native->plan;
  int64_t count = plan->places.count;
  // Few windows are large ones: blocks so small that all threads get some.
  int64_t block = (64 << 10) / (plan->window_bytes + 16);
  block = block < 1 ? 1 : block > VT_PLACES_BLOCK ? VT_PLACES_BLOCK : block;
  int64_t blocks = (count + block - 1) / block;
#pragma omp parallel for schedule(dynamic, 1 + blocks / VT_LOOP_SHARES) if (blocks > 1)
  for (int64_t b = 0; b < blocks; b++)
    gather_block(call, b * block, b == blocks - 1 ? count : (b + 1) * block);
}

const vt_native *vt_gather_create(vt_arena *arena, const vt_op *op) {
  gather_plan *plan = VT_NEW(arena, gather_plan);
  // vt_gather_supports has made the same places.
  vt_status_free(vt_places_make(op, &vt_gather_keys, op->operands[0]->type, op->operands[1]->type,
                                op->results[0].type, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL),
                                &plan->places));
  const vt_box *box = &plan->places.window;
  plan->window_bytes = box->bytes;
  for (int32_t i = 0; i < box->rank; i++) plan->window_bytes *= box->dims[i];
  bool one_run = plan->window_bytes == box->bytes ||
                 (box->rank == 1 && box->to[0] == box->bytes && box->from[0] == box->bytes);
  plan->run = one_run ? plan->window_bytes : 0;
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_gather, .plan = plan};
  return native;
}

bool vt_gather_supports(const vt_op *op) {
  if (op->code != VT_OP_GATHER) return false;
  vt_type operand = op->operands[0]->type, indices = op->operands[1]->type,
          result = op->results[0].type;
  if (!vt_type_elements(operand) || !vt_type_elements(result)) return false;
  if (!vt_dtype_is_integer(indices.dtype) || vt_dtype_get(indices.dtype)->bits < 8) return false;
  vt_places places;
  vt_status st = vt_places_make(op, &vt_gather_keys, operand, indices, result,
                                vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL), &places);
  vt_status_free(st);
  return !st;
}
