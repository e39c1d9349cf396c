// SPDX-License-Identifier: Apache-2.0
// kernel_level.c - vectors whose elements along the last dimension are all the same.
//
// A TPU kernel keeps one number for each row in all 128 lanes of a register: attention's maximum
// and sum of a row. Code computes such a value once for a row, and reads one element of it.
// What is loaded from scratch is level if everything that is stored there is: this is assumed of
// all scratch at first, and taken back where a store says otherwise, until nothing changes. Scratch
// starts as zeros, or is filled first. So is the block of a result that is the same at all points
// of the grid: some kernels keep what is scratch to them in results.
#include "mosaic_host/kernel.h"

typedef struct leveler {
  vt_kplan *p;
  bool *arrays; // by number: all that they hold is level
  bool changed;
} leveler;

static bool keeps_levels(const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_EXTRACT_SLICE:
  case VT_MOP_CONCATENATE:
    return true;
  default:
    return vt_klanes_has(op);
  }
}

static bool is_level_operand(const leveler *l, const vt_mvalue *v) {
  return v->type.kind != VT_MVECTOR || vt_kvalue_of(l->p, v)->level || vt_kplan_is_splat(v);
}

static bool cast_is_level(const leveler *l, const vt_mop *op) {
  const vt_mvalue *from = op->operands[0];
  int32_t map[VT_MOSAIC_RANK], last = op->results[0].type.rank - 1;
  return from->type.kind == VT_MVECTOR && vt_kvalue_of(l->p, from)->level &&
         vt_kplan_unit_cast(from->type, op->results[0].type, map) &&
         map[last] == from->type.rank - 1;
}

static bool broadcast_is_level(const leveler *l, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type;
  return from.kind != VT_MVECTOR || !from.rank || from.dims[from.rank - 1] == 1 ||
         vt_kvalue_of(l->p, op->operands[0])->level;
}

static bool is_level(const leveler *l, const vt_mop *op) {
  const vt_mvalue *v = &op->results[0];
  const vt_kvalue *s = vt_kvalue_of(l->p, v);
  if (v->type.kind != VT_MVECTOR || v->type.rank < 1 || v->type.dims[v->type.rank - 1] < 2 ||
      !s->native || op->block_count)
    return false;
  if (vt_kplan_is_load(op)) return l->arrays[vt_kvalue_of(l->p, op->operands[0])->array];
  if (vt_kplan_is_cast(op)) return cast_is_level(l, op);
  if (op->code == VT_MOP_CONSTANT) return vt_kplan_is_splat(v);
  if (op->code == VT_MOP_BROADCAST) return broadcast_is_level(l, op);
  if (!keeps_levels(op)) return false;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (!is_level_operand(l, op->operands[i])) return false;
    if (op->code == VT_MOP_CONCATENATE && op->operands[i] != op->operands[0]) return false;
  }
  return true;
}

// Stores of whole rows keep an array level. What anything else does to it is not known.
static bool keeps_array(const leveler *l, const vt_mop *op, uint32_t operand) {
  const vt_mvalue *ref = op->operands[operand];
  if (ref->op || vt_kplan_has_steps(op)) return false; // a view
  if (vt_kplan_is_load(op)) return operand == 0;
  if (!vt_kplan_is_store(op) || operand != 1 || !l->p->native_stores[op->number]) return false;
  bool masked = op->code == VT_MOP_STORE_VECTOR && vt_mop_optional(op, 3);
  const vt_mvalue *v = op->operands[0];
  int32_t last = v->type.rank - 1;
  return !masked && v->type.rank == ref->type.rank && last >= 0 &&
         v->type.dims[last] == ref->type.dims[last] && is_level_operand(l, v);
}

static void see_block(leveler *l, const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->result_count == 1) vt_kvalue_of(l->p, &op->results[0])->level = is_level(l, op);
    for (uint32_t i = 0; i < op->operand_count; i++) {
      if (op->operands[i]->type.kind != VT_MREF) continue;
      int32_t array = vt_kvalue_of(l->p, op->operands[i])->array;
      if (!l->arrays[array] || keeps_array(l, op, i)) continue;
      l->arrays[array] = false;
      l->changed = true;
    }
    for (uint32_t b = 0; b < op->block_count; b++) see_block(l, op->blocks[b]);
  }
}

static bool may_be_level(const vt_kplan *p, uint32_t array) {
  const vt_mosaic *k = p->kernel;
  if (array >= k->prefetch_count + k->window_count) return true;
  return array >= k->prefetch_count + k->input_count && p->filled[array] &&
         vt_kplan_stays(&k->windows[array - k->prefetch_count], k->grid_rank);
}

void vt_kplan_levels(vt_kplan *p) {
  const vt_mosaic *k = p->kernel;
  uint32_t refs = k->body->block->arg_count - k->grid_rank;
  leveler l = {.p = p, .arrays = VT_NEW_ARRAY(p->arena, bool, refs + (size_t)k->place_count + 2)};
  for (uint32_t i = 0; i < refs; i++) l.arrays[i] = may_be_level(p, i);
  do {
    l.changed = false;
    see_block(&l, k->body->block);
  } while (l.changed);
}
