// SPDX-License-Identifier: Apache-2.0
// kernel_scatter.c - scatter of one array with one of the usual bodies: places are found in blocks,
// then updates combined into them.
// Order: every element of the result gets its updates in the order of the updates, however many
// threads run: a window belongs to one thread, chosen by its place.
#include <omp.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "eval/kernel.h"
#include "host/cpu.h"
#include "host/kernel_places.h"
#include "host/kernel_scatter.h"

// Smaller windows are not worth finding their places once per thread. Up to a wide one, skipping
// the windows of others costs each thread about as much as they do: two threads gain time only on
// updates that no cache holds.
enum { PARALLEL_WINDOW_BYTES = 64, WIDE_WINDOW_BYTES = 1024 };
static const int64_t PARALLEL_BYTES = 64 << 20, PARALLEL_WIDE_BYTES = 256 << 10;
// Short blocks: the streams of indices and updates are both under way all the time.
enum { SCATTER_BLOCK = 512 };
static const int64_t NEAR_BYTES = 32 << 10;

typedef struct scatter_plan {
  vt_places places;
  vt_combine_fn combine;
  vt_box rows;           // the window but its last dimension
  int64_t width;         // of the last dimension:
  int64_t to, from;      // its byte strides in the operand and in the updates
  int64_t operand_bytes; // copied when not in place
  bool parallel;
  bool far;      // as for vt_combine_fn
  bool is_short; // rows of at most VT_COMBINE_SHORT bytes
} scatter_plan;

// Replaces negative places by another one; false when there are none.
VT_ANY_CPU static bool replace_negative(int64_t n, const int64_t *place, int64_t with,
                                        int64_t *out) {
  int64_t any = 0;
  for (int64_t i = 0; i < n; i++) any |= place[i];
  if (any >= 0) return false;
  for (int64_t i = 0; i < n; i++) out[i] = place[i] < 0 ? with : place[i];
  return true;
}

// Short rows that are left out are written to a spare row, which is cheaper than a test for each
// row. It does not lie behind the end of the array, where another device's tile may begin. Places
// count from `out`; behind the n there are more to look ahead to.
static void combine_short(const scatter_plan *plan, int64_t n, const int64_t *place, char *out,
                          const char *updates, int64_t next) {
  int64_t changed[SCATTER_BLOCK + VT_COMBINE_AHEAD];
  alignas(16) char spare[VT_COMBINE_SHORT] = {0};
  int64_t to_spare = (int64_t)((uintptr_t)spare - (uintptr_t)out);
  if (replace_negative(n + VT_COMBINE_AHEAD, place, to_spare, changed)) place = changed;
  plan->combine(n, place, plan->far, out, plan->to, updates, next, plan->from, plan->width);
}

// The rows of a window one after the other, each for all windows. Only windows that are the same or
// disjoint may be taken together.
static void combine_rows(const scatter_plan *plan, int32_t dim, int64_t n, const int64_t *place,
                         char *out, int64_t at, const char *updates, int64_t next) {
  const vt_box *rows = &plan->rows;
  if (dim < rows->rank) {
    for (int64_t i = 0; i < rows->dims[dim]; i++)
      combine_rows(plan, dim + 1, n, place, out, at + i * rows->from[dim],
                   updates + i * rows->to[dim], next);
  } else if (plan->is_short) {
    combine_short(plan, n, place, out + at, updates, next);
  } else {
    plan->combine(n, place, plan->far, out + at, plan->to, updates, next, plan->from, plan->width);
  }
}

// Leaves the windows of other threads out.
static void keep_own(int64_t n, int64_t *place, uint32_t thread, uint32_t threads) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t mixed = (uint64_t)place[i] * 0x9e3779b97f4a7c15u >> 32;
    if (mixed * threads >> 32 != thread) place[i] = -1;
  }
}

static void scatter_part(const scatter_plan *plan, char *out, const void *indices,
                         const char *updates, uint32_t thread, uint32_t threads) {
  const vt_places *p = &plan->places;
  int64_t place[SCATTER_BLOCK + VT_COMBINE_AHEAD];
  for (int64_t at = 0; at < p->count;) {
    int64_t left = p->count - at < SCATTER_BLOCK ? p->count - at : SCATTER_BLOCK;
    vt_places_run run = vt_places_find(p, indices, at, left, false, place);
    const char *from = updates + run.other;
    if (threads > 1) keep_own(run.n, place, thread, threads);
    for (int64_t i = 0; i < VT_COMBINE_AHEAD; i++) place[run.n + i] = place[run.n - 1];
    if (p->disjoint || !plan->rows.rank)
      combine_rows(plan, 0, run.n, place, out, 0, from, run.step);
    else
      for (int64_t i = 0; i < run.n; i++)
        combine_rows(plan, 0, 1, place + i, out, 0, from + i * run.step, run.step);
    at += run.n;
  }
}

static void run_scatter(const vt_native_call *call) {
  const scatter_plan *plan = call->native->plan;
  char *out = call->outputs[0];
  const char *operand = call->operands[0], *updates = call->operands[2];
  const void *indices = call->operands[1];
  if (out != operand) {
    vt_box whole = {.rank = 1, .bytes = 1, .dims = {plan->operand_bytes}, .to = {1}, .from = {1}};
    vt_box_copy(&whole, out, operand);
  }
  if (!plan->parallel) {
    scatter_part(plan, out, indices, updates, 0, 1);
    return;
  }
#pragma omp parallel
  scatter_part(plan, out, indices, updates, (uint32_t)omp_get_thread_num(),
               (uint32_t)omp_get_num_threads());
}

// The op of the body for elements of *type, which sums of complex numbers turn into their halves.
static bool find_body(const vt_op *op, vt_dtype *type, vt_opcode *code) {
  const vt_func *body = op->regions[0];
  *code = VT_OP_INVALID;
  if (vt_scatter_assigns(body, 1)) return true;
  *code = vt_region_binary(body, 0, 1);
  if (*code == VT_OP_INVALID) return false;
  bool sum = *code == VT_OP_ADD || *code == VT_OP_SUBTRACT;
  if (vt_dtype_is_complex(*type) && sum) *type = *type == VT_C64 ? VT_F32 : VT_F64;
  return true;
}

// Whether threads share windows of so many bytes.
static bool worth_sharing(int64_t count, int64_t bytes) {
  int64_t least = bytes >= WIDE_WINDOW_BYTES ? PARALLEL_WIDE_BYTES : PARALLEL_BYTES;
  return bytes >= PARALLEL_WINDOW_BYTES && count * bytes >= least;
}

static vt_status make_plan(const vt_op *op, scatter_plan *plan) {
  vt_type operand = op->operands[0]->type;
  vt_dtype type = operand.dtype;
  vt_opcode code;
  if (!find_body(op, &type, &code)) return vt_eval_refuse(op, "this body");
  *plan =
      (scatter_plan){.combine = vt_combine_of(code, type), .operand_bytes = vt_type_bytes(operand)};
  if (!plan->combine) return vt_eval_refuse(op, "this body");
  vt_places *p = &plan->places;
  VT_TRY(vt_places_make(op, &vt_scatter_keys, operand, op->operands[1]->type, op->operands[2]->type,
                        NULL, p));
  vt_box *rows = &plan->rows;
  *rows = p->window;
  int64_t bytes = (int64_t)vt_dtype_bytes(type);
  if (bytes != rows->bytes) { // the halves of complex numbers
    rows->dims[rows->rank] = rows->bytes / bytes;
    rows->to[rows->rank] = rows->from[rows->rank] = rows->bytes = bytes;
    rows->rank++;
    vt_box_normalise(rows);
  }
  int64_t elements = 1;
  for (int32_t i = 0; i < rows->rank; i++) elements *= rows->dims[i];
  if (!elements) p->count = 0;
  rows->rank--;
  plan->width = rows->dims[rows->rank];
  plan->to = rows->from[rows->rank];
  plan->from = rows->to[rows->rank];
  plan->parallel = p->disjoint && worth_sharing(p->count, elements * bytes);
  plan->far = plan->operand_bytes > NEAR_BYTES;
  bool run = plan->to == bytes && plan->from == bytes && plan->width * bytes <= VT_COMBINE_SHORT;
  plan->is_short = run || plan->width == 1;
  return VT_OK;
}

bool vt_scatter_supports(const vt_op *op) {
  if (op->code != VT_OP_SCATTER || op->result_count != 1 || op->operand_count != 3) return false;
  vt_dtype index = op->operands[1]->type.dtype;
  if (!vt_dtype_is_integer(index) || vt_dtype_get(index)->bits < 8) return false;
  if (!vt_type_elements(op->results[0].type) || !vt_type_elements(op->operands[2]->type))
    return false;
  scatter_plan plan;
  vt_status st = make_plan(op, &plan);
  vt_status_free(st);
  return !st;
}

const vt_native *vt_scatter_create(vt_arena *arena, const vt_op *op) {
  scatter_plan *plan = VT_NEW(arena, scatter_plan);
  vt_status_free(make_plan(op, plan)); // as vt_scatter_supports has seen
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_scatter, .in_place = true, .plan = plan};
  return native;
}
