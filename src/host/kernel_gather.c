// SPDX-License-Identifier: Apache-2.0
// kernel_gather.c - gather: a window of the operand copied per index, in parallel over the indices.
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_places.h"

enum { FETCH_AHEAD = 64 }; // runs

typedef struct gather_plan {
  vt_places places;
  int64_t run;  // bytes of the last dimension of a window, when that is one run, else of an element
  int64_t rows; // runs of a window
  int32_t row_rank;
  bool far; // runs are prefetched
} gather_plan;

// Elements next to each other in the result are gathered as vectors.
#define COPY_RUNS(T)                                                                               \
  do {                                                                                             \
    if (step == (int64_t)sizeof(T)) {                                                              \
      T *line = (T *)to;                                                                           \
      for (int64_t i = 0; i < ahead; i++) {                                                        \
        __builtin_prefetch(from + place[i + FETCH_AHEAD]);                                         \
        line[i] = *(const T *)(from + place[i]);                                                   \
      }                                                                                            \
      for (int64_t i = ahead; i < n; i++) line[i] = *(const T *)(from + place[i]);                 \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) *(T *)(to + i * step) = *(const T *)(from + place[i]);       \
    }                                                                                              \
  } while (0)

// A run is several elements: it may be at any address and is untyped here.
typedef uint16_t loose16 __attribute__((aligned(1), may_alias));
typedef uint32_t loose32 __attribute__((aligned(1), may_alias));
typedef uint64_t loose64 __attribute__((aligned(1), may_alias));
typedef struct __attribute__((packed, may_alias)) words {
  uint32_t word[3];
} words;
typedef uint64_t two __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t four __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint64_t eight __attribute__((vector_size(64), aligned(1), may_alias));

// Runs of constant length take one load and one store each. The first `ahead` prefetch a later one.
VT_ANY_CPU static void copy_runs(int64_t n, int64_t bytes, char *restrict to, int64_t step,
                                 const char *restrict from, const int64_t *place, int64_t ahead) {
  switch (bytes) {
  case 1:
    COPY_RUNS(uint8_t);
    break;
  case 2:
    COPY_RUNS(loose16);
    break;
  case 4:
    COPY_RUNS(loose32);
    break;
  case 8:
    COPY_RUNS(loose64);
    break;
  default:
    for (int64_t i = 0; i < n; i++) memcpy(to + i * step, from + place[i], (size_t)bytes);
  }
}

// Runs of whole words.
VT_ANY_CPU static void copy_words(int64_t n, int64_t bytes, char *restrict to, int64_t step,
                                  const char *restrict from, const int64_t *place, int64_t ahead) {
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
    copy_runs(n, bytes, to, step, from, place, ahead);
  }
}

// Rows [low, high) of windows [at, end): row by row, as the windows of a row are often adjacent.
static void gather_block(const vt_native_call *call, int64_t at, int64_t end, int64_t low,
                         int64_t high) {
  const gather_plan *plan = call->native->plan;
  const vt_places *p = &plan->places;
  int64_t place[VT_PLACES_BLOCK];
  while (at < end) {
    vt_places_run run = vt_places_find(p, call->operands[1], at, end - at, true, place);
    int64_t ahead = plan->far && run.n > FETCH_AHEAD ? run.n - FETCH_AHEAD : 0;
    for (int64_t row = low; row < high; row++) {
      const char *from = call->operands[0];
      char *to = (char *)call->outputs[0] + run.other;
      int64_t rest = row;
      for (int32_t d = plan->row_rank - 1; d >= 0; d--) {
        int64_t i = rest % p->window.dims[d];
        rest /= p->window.dims[d];
        to += i * p->window.to[d];
        from += i * p->window.from[d];
      }
      if (p->window.bytes >= 4)
        copy_words(run.n, plan->run, to, run.step, from, place, ahead);
      else
        copy_runs(run.n, plan->run, to, run.step, from, place, ahead);
    }
    at += run.n;
  }
}

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void run_gather(const vt_native_call *call) {
  const gather_plan *plan = call->native->plan;
  int64_t count = plan->places.count, rows = plan->rows;
  // Tasks of about this many bytes: many windows, or rows of them.
  int64_t room = (64 << 10) / (plan->run + 16) + 1;
  int64_t windows = min64(min64(room, VT_PLACES_BLOCK), count),
          some = min64(room / windows + 1, rows);
  int64_t across = (rows + some - 1) / some, tasks = (count + windows - 1) / windows * across;
#pragma omp parallel for schedule(dynamic, vt_host_share(tasks)) if (tasks > 1)
  for (int64_t t = 0; t < tasks; t++) {
    int64_t at = t / across * windows, row = t % across * some;
    gather_block(call, at, min64(at + windows, count), row, min64(row + some, rows));
  }
}

// Of sorted indices the processor sees the reads coming. A batching dimension narrows what the next
// indices may name.
bool vt_gather_is_far(const vt_op *op) {
  vt_type type = op->operands[0]->type;
  uint32_t batching;
  int64_t bytes = vt_type_bytes(type);
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &batching);
  for (uint32_t i = 0; i < batching && bytes; i++) bytes /= type.dims[dims[i]];
  return bytes > VT_NEAR_READ_BYTES && !vt_attr_i64_or(op, VT_ATTR_INDICES_ARE_SORTED, 0);
}

const vt_native *vt_gather_create(vt_arena *arena, const vt_op *op) {
  gather_plan *plan = VT_NEW(arena, gather_plan);
  // vt_gather_supports has made the same places before.
  vt_status_free(vt_places_make(op, &vt_gather_keys, op->operands[0]->type, op->operands[1]->type,
                                op->results[0].type, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL),
                                &plan->places));
  const vt_box *box = &plan->places.window;
  int32_t last = box->rank - 1;
  bool runs = box->to[last] == box->bytes && box->from[last] == box->bytes;
  plan->run = runs ? box->dims[last] * box->bytes : box->bytes;
  plan->row_rank = runs ? last : box->rank;
  plan->rows = 1;
  for (int32_t d = 0; d < plan->row_rank; d++) plan->rows *= box->dims[d];
  bool elements = plan->run <= 8; // which loops below gather as vectors
  plan->far = vt_gather_is_far(op) && !(elements && vt_host_gathers());
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
