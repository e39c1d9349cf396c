// SPDX-License-Identifier: Apache-2.0
// loop_check.c - which ops have code in a loop, and what it costs (loop.h).
// Depends only on shapes, types and attributes, so the decision is always the same.
#include "eval/indexed.h"
#include "host/emit.h"
#include "host/loop.h"
#include "host/plan.h"

enum {
  MOST_TERMS = 4096,     // vectors added up by one op
  MOST_SCATTERED = 1024, // elements moved one by one
  MOST_PLACES = 64,      // windows of a gather or scatter
  MOST_FOLDED = 512,     // ops of the region of a reduction, all terms together
  CALL_COST = 30,        // of a call of the evaluator, in instructions around it
  CALL_WORK = 1 << 14    // most work of the evaluator: beyond it a step costs little beside
};

// The elements of each vector are contiguous or all the same, so one load gets them.
static int64_t scattered(const vt_op *op, uint32_t operand, int64_t terms) {
  int64_t elements = vt_type_elements(op->results[0].type), bad = 0;
  for (int64_t k = 0; k < terms; k++)
    for (int64_t at = 0; at + 1 < elements; at++) {
      int64_t step = vt_loop_term(op, operand, at + 1, k) - vt_loop_term(op, operand, at, k);
      bad += at % 8 != 7 && step != 0 && step != 1;
    }
  return bad;
}

static bool all_in_registers(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_loop_in_registers(op->operands[i]->type)) return false;
  return true;
}

static bool contraction_ok(const vt_op *op, int64_t *cost) {
  uint32_t operands = op->code == VT_OP_REDUCE ? 1 : 2;
  int64_t terms = vt_loop_terms(op), elements = vt_type_elements(op->results[0].type);
  int64_t vectors = elements == 1 ? (terms + 7) / 8 : terms * (elements + 7) / 8, bad = 0;
  if (vectors > MOST_TERMS) return false;
  for (uint32_t i = 0; i < operands; i++) bad += scattered(op, i, terms);
  *cost += vectors + bad;
  return bad <= MOST_SCATTERED;
}

static bool dot_ok(const vt_op *op, int64_t *cost) {
  vt_dtype lhs = op->operands[0]->type.dtype, rhs = op->operands[1]->type.dtype,
           out = op->results[0].type.dtype;
  bool small = (lhs == VT_F32 || lhs == VT_BF16) && (rhs == VT_F32 || rhs == VT_BF16) &&
               (out == VT_F32 || out == VT_BF16);
  bool alike = lhs == out && rhs == out && out != VT_F16 && out != VT_PRED;
  return (small || (alike && vt_emit_has_types(op))) && contraction_ok(op, cost);
}

bool vt_loop_folds(const vt_op *op) {
  uint32_t inputs = vt_op_own_operands(op) / 2, count;
  vt_reducer reducer = vt_reducer_of(op);
  if (inputs == 1 && reducer != VT_REDUCE_NONE && reducer < VT_REDUCE_ARGMAX) return false;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  for (uint32_t i = 1; i < count; i++)
    if (dims[i] < dims[i - 1]) return false;
  for (uint32_t i = 0; i < inputs; i++) {
    vt_dtype dtype = op->operands[i]->type.dtype;
    if (vt_emit_compute_dtype(dtype) != dtype || op->results[i].type.dtype != dtype) return false;
  }
  int64_t ops = 1;
  for (const vt_op *o = op->regions[0]->first; o; o = o->next) ops += o->code != VT_OP_CONSTANT;
  return op->result_count == inputs && vt_loop_terms(op) > 0 && vt_emit_has_types(op) &&
         vt_loop_terms(op) * vt_type_elements(op->results[0].type) * ops <= MOST_FOLDED;
}

static bool reduce_ok(const vt_op *op, int64_t *cost) {
  if (!all_in_registers(op) || !vt_emit_has_types(op)) return false;
  if (vt_loop_folds(op)) return true;
  vt_reducer reducer = vt_reducer_of(op);
  return op->result_count == 1 && reducer != VT_REDUCE_NONE && reducer < VT_REDUCE_ARGMAX &&
         contraction_ok(op, cost);
}

// Windows that a few instructions each find.
static bool windows_ok(const vt_op *op, const vt_indexed_keys *keys, vt_type other,
                       const int64_t *sizes, int64_t *cost) {
  vt_type indices = op->operands[1]->type;
  vt_dtype_kind kind = vt_dtype_kind_of(indices.dtype);
  if (!vt_loop_in_registers(indices) || !vt_loop_in_registers(other) || !vt_emit_has_types(op) ||
      (kind != VT_KIND_SIGNED && kind != VT_KIND_UNSIGNED) || vt_type_elements(other) < 1)
    return false;
  vt_indexed windows;
  vt_status st = vt_indexed_plan(op, keys, op->operands[0]->type, indices, other, sizes, &windows);
  if (st) {
    vt_status_free(st);
    return false;
  }
  int64_t count = 1;
  for (int32_t d = 0; d < windows.batch_rank; d++) count *= windows.batch_dims[d];
  *cost += 2 * vt_type_elements(other) + 4 * count * windows.components;
  return count <= MOST_PLACES;
}

// exp, sin and similar: many instructions.
static bool is_function(const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  bool has_integers = info->kinds & (1 << VT_KIND_SIGNED | 1 << VT_KIND_UNSIGNED);
  return info->cost >= VT_COST_MEDIUM && !has_integers;
}

static bool has_code(const vt_op *op, int64_t *cost) {
  vt_type type = op->results[0].type;
  int64_t elements = vt_type_elements(type);
  if (op->code != VT_OP_REDUCE && op->result_count != 1) return false;
  uint32_t count;
  switch (op->code) {
  case VT_OP_CONSTANT:
  case VT_OP_IOTA:
    return vt_emit_has_types(op);
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_TRANSPOSE:
  case VT_OP_CONCATENATE:
  case VT_OP_REVERSE:
  case VT_OP_PAD:
  case VT_OP_SLICE:
    *cost += elements / 4;
    return vt_emit_has_types(op) && (op->code == VT_OP_SLICE || all_in_registers(op));
  case VT_OP_DYNAMIC_SLICE:
    return vt_emit_has_types(op);
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    *cost += vt_type_elements(op->operands[1]->type) / 4;
    return vt_emit_has_types(op) && vt_loop_in_registers(op->operands[1]->type);
  case VT_OP_GATHER:
    return windows_ok(op, &vt_gather_keys, type, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, &count),
                      cost);
  case VT_OP_SCATTER:
    return op->operand_count == 3 && op->regions[0]->return_count == 1 &&
           windows_ok(op, &vt_scatter_keys, op->operands[2]->type, NULL, cost);
  case VT_OP_REDUCE:
    return reduce_ok(op, cost);
  case VT_OP_DOT_GENERAL:
    return dot_ok(op, cost);
  default:
    if (op->region_count || !op->operand_count || !vt_emit_supports(op) || !all_in_registers(op))
      return false;
    *cost += (elements + 7) / 8 * (is_function(op) ? 30 : 1);
    return true;
  }
}

// Types with code, and tokens.
static bool types_ok(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count + op->result_count; i++) {
    bool in = i < op->operand_count;
    vt_type type = in ? op->operands[i]->type : op->results[i - op->operand_count].type;
    if (type.dtype != VT_TOKEN && !vt_emit_has_type(type.dtype)) return false;
  }
  return true;
}

static bool can_call(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!vt_loop_in_registers(op->results[i].type)) return false;
  bool kernel = op->code == VT_OP_CUSTOM_CALL && vt_op_attr(op, VT_ATTR_KERNEL);
  bool control = vt_op_info_get(op->code)->flags & VT_OPF_CONTROL;
  return all_in_registers(op) && types_ok(op) && !kernel && !control && vt_eval_supports(op) &&
         vt_host_work(op) <= CALL_WORK;
}

bool vt_loop_is_empty(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (vt_loop_elements(op->results[i].type)) return false;
  return op->code == VT_OP_CREATE_TOKEN || op->code == VT_OP_AFTER_ALL || !vt_op_has_effect(op);
}

vt_loop_way vt_loop_way_of(const vt_op *op, int64_t *cost) {
  if (vt_eval_meets_devices(op)) return VT_LOOP_REFUSED;
  if (vt_loop_is_empty(op)) return VT_LOOP_CODE;
  if (vt_op_has_effect(op)) return can_call(op) ? VT_LOOP_CALL : VT_LOOP_REFUSED;
  bool updates = op->code == VT_OP_DYNAMIC_UPDATE_SLICE || op->code == VT_OP_SCATTER;
  if (!updates && !vt_loop_in_registers(op->results[0].type)) return VT_LOOP_REFUSED;
  int64_t before = *cost;
  *cost += updates ? 1 : (vt_type_elements(op->results[0].type) + 7) / 8;
  if (has_code(op, cost)) return VT_LOOP_CODE;
  *cost = before + CALL_COST;
  return can_call(op) ? VT_LOOP_CALL : VT_LOOP_REFUSED;
}
