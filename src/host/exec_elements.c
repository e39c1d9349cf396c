// SPDX-License-Identifier: Apache-2.0
// exec_elements.c - steps of elementwise ops that have no generated code (complex numbers) and of
// constants of one number, by the evaluator: the team's threads take pieces of the elements.
#include "host/plan.h"

enum { PIECE = 8 << 10, LEAST = 32 << 10, MOST_TENSORS = 4 };

// Elements [at, at + n); an operand of one element goes with all.
static vt_status run_piece(const vt_step *step, const vt_exec *exec, char *const *slots, int64_t at,
                           int64_t n) {
  vt_tensor piece[MOST_TENSORS];
  for (uint32_t i = 0; i < step->input_count + step->output_count; i++) {
    bool in = i < step->input_count;
    piece[i].type = step->tensors[i].type;
    piece[i].data = slots[in ? step->input_slots[i] : step->output_slots[i - step->input_count]];
    if (vt_type_elements(piece[i].type) == 1) continue;
    piece[i].data = (char *)piece[i].data + at * (int64_t)vt_dtype_bytes(piece[i].type.dtype);
    piece[i].type.rank = 1;
    piece[i].type.dims = &n;
  }
  return vt_eval_op(step->op, &exec->env, piece, piece + step->input_count);
}

static vt_status run_elements(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                              uint32_t count) {
  int64_t elements = vt_type_elements(step->op->results[0].type);
  vt_status first = VT_OK;
  for (uint32_t f = 0; f < count && !first; f++) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < elements; at += PIECE) {
      int64_t n = elements - at < PIECE ? elements - at : PIECE;
      vt_status st = run_piece(step, exec, frames[f]->slots, at, n);
      if (st) vt_status_free(__atomic_exchange_n(&first, st, __ATOMIC_RELAXED));
    }
  }
  return first;
}

static bool is_splat(const vt_op *op) {
  return op->code == VT_OP_CONSTANT && vt_attr_literal(op, VT_ATTR_VALUE)->splat;
}

bool vt_step_elements(vt_step *step) {
  bool fits = (vt_op_info_get(step->op->code)->class == VT_CLASS_ELTWISE || is_splat(step->op)) &&
              step->output_count == 1 && step->input_count < MOST_TENSORS &&
              vt_type_elements(step->op->results[0].type) >= LEAST;
  if (fits) step->run = run_elements;
  return fits;
}
