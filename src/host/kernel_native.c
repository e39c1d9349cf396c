// SPDX-License-Identifier: Apache-2.0
// kernel_native.c - which ops have a precompiled kernel, and where. See kernel_native.h.
#include "host/kernel_native.h"

#include "host/kernel_move.h"

bool vt_native_supports(const vt_op *op) {
  if (op->operand_count > VT_NATIVE_OPERANDS) return false;
  return vt_move_supports(op) || vt_gather_supports(op) || vt_scatter_supports(op) ||
         vt_window_supports(op) || vt_fft_supports(op) || vt_linalg_supports(op) ||
         vt_topk_supports(op);
}

const vt_native *vt_native_create(vt_arena *arena, const vt_op *op) {
  if (vt_gather_supports(op)) return vt_gather_create(arena, op);
  if (vt_scatter_supports(op)) return vt_scatter_create(arena, op);
  if (vt_fft_supports(op)) return vt_fft_create(arena, op);
  if (vt_linalg_supports(op)) return vt_linalg_create(arena, op);
  if (vt_topk_supports(op)) return vt_topk_create(arena, op);
  if (vt_window_supports(op)) return vt_window_create(arena, op);
  return vt_move_create(arena, op);
}
