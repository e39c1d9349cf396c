// SPDX-License-Identifier: Apache-2.0
// sort.c - sorting. Each device sorts what is whole on it along the sorted dimension.
#include "base/check.h"
#include "spmd/partition/partition.h"

// ---- the first k of a sorted dimension ----------------------------------------------------------

static bool takes_first(const vt_op *user, int32_t dim, int64_t *k) {
  const vt_type in = user->operands[0]->type, out = user->results[0].type;
  if (user->code != VT_OP_SLICE || vt_attr_ints(user, VT_ATTR_START_INDICES, NULL)[dim] ||
      vt_attr_ints(user, VT_ATTR_STRIDES, NULL)[dim] != 1)
    return false;
  for (int32_t d = 0; d < in.rank; d++)
    if (d != dim && out.dims[d] != in.dims[d]) return false;
  if (out.dims[dim] > *k) *k = out.dims[dim];
  return true;
}

// The largest k such that users of the results read only the first k; -1: some read all. The op
// must not be returned or captured.
static int64_t first_read(const vt_op *op, int32_t dim) {
  int64_t k = -1;
  const vt_func *func = op->func;
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i]->op == op) return -1;
  for (const vt_op *user = op->next; user; user = user->next)
    for (uint32_t i = 0; i < user->operand_count; i++)
      if (user->operands[i]->op == op && !takes_first(user, dim, &k)) return -1;
  return k;
}

// Whether values are sorted with their places.
static bool has_places(const vt_op *op, int32_t dim) {
  const vt_op *places = op->result_count == 2 ? op->operands[1]->op : NULL;
  return places && places->code == VT_OP_IOTA && !op->capture_count &&
         vt_attr_i64(places, VT_ATTR_IOTA_DIMENSION) == dim;
}

// The sort is one op of the program with a slice that reads it (its location is the same one):
// chlo.top_k.
static bool is_top_k(const vt_op *op) {
  for (const vt_op *user = op->next; user; user = user->next)
    if (user->code == VT_OP_SLICE && user->operands[0]->op == op)
      return user->loc == op->loc && op->loc != &vt_loc_unknown;
  return false;
}

// XLA has no rule for its top-k: the whole array is sorted on every device.
static void sort_whole(vt_parter *p, const vt_op *op) {
  vt_value *operands[2];
  vt_type types[2] = {op->results[0].type, op->results[1].type};
  const vt_assign *whole = vt_assign_whole(&p->assigns, types[0].rank, p->device_count);
  int64_t dim = vt_attr_i64(op, VT_ATTR_DIMENSION);
  operands[0] = vt_reshard(p, vt_part_of(p, op->operands[0]), whole).local;
  operands[1] = vt_emit_iota(p, types[1].dtype, types[1], (int32_t)dim);
  vt_op *local = vt_emit_copies(p, op, types, 2, operands);
  for (uint32_t i = 0; i < 2; i++)
    vt_part_record(p, &op->results[i], (vt_part){types[i], &local->results[i], whole});
}

// Only the first few values and places count: every device finds its own, and these are sorted
// again. What follows them in the results is undefined.
static bool sort_first(vt_parter *p, const vt_op *op, int32_t dim) {
  vt_part values = vt_part_of(p, op->operands[0]);
  int64_t k = first_read(op, dim);
  if (values.assign->only >= 0 || values.assign->dims[dim] == 1 || k < 1 ||
      !vt_is_even(values.global, values.assign, dim) || k >= values.local->type.dims[dim])
    return false;
  vt_value *operands[2];
  vt_type types[2];
  for (uint32_t i = 0; i < 2; i++) {
    operands[i] = vt_reshard(p, vt_part_of(p, op->operands[i]), values.assign).local;
    types[i] = operands[i]->type;
  }
  const vt_op *local = vt_emit_copies(p, op, types, 2, operands);
  int64_t all = k * values.assign->dims[dim];
  const vt_assign *whole = vt_assign_replicate(&p->assigns, values.assign, 1u << dim);
  for (uint32_t i = 0; i < 2; i++) {
    vt_value *first = vt_emit_slice(p, &local->results[i], dim, 0, k);
    vt_type global = vt_type_with(p, op->results[i].type, dim, all);
    operands[i] = vt_reshard(p, (vt_part){global, first, values.assign}, whole).local;
    types[i] = operands[i]->type;
  }
  const vt_op *again = vt_emit_copies(p, op, types, 2, operands);
  for (uint32_t i = 0; i < 2; i++) {
    vt_type type = op->results[i].type;
    vt_value *rest = vt_emit_pad(p, &again->results[i], vt_emit_padding(p, type.dtype), dim, 0,
                                 type.dims[dim] - all);
    vt_part_record(p, &op->results[i], (vt_part){type, rest, whole});
  }
  return true;
}

// ---- sorting ------------------------------------------------------------------------------------

vt_status vt_partition_sort(vt_parter *p, const vt_op *op) {
  int32_t dim = (int32_t)vt_attr_i64(op, VT_ATTR_DIMENSION);
  vt_type type = op->results[0].type;
  const vt_assign *at = vt_part_wanted(p, op, 0);
  if (has_places(op, dim)) {
    if (is_top_k(op)) {
      sort_whole(p, op);
      return VT_OK;
    }
    if (sort_first(p, op, dim)) return VT_OK;
  }
  for (uint32_t i = 1; i < op->result_count; i++)
    if (vt_part_wanted(p, op, i) != at) return vt_partition_whole(p, op);
  if (op->capture_count || !vt_assign_is_cut(at)) return vt_partition_whole(p, op);
  at = vt_assign_clear(p, type, at, 1u << dim);
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    operands[i] = vt_reshard(p, vt_part_of(p, op->operands[i]), at).local;
    types[i] = operands[i]->type;
  }
  vt_op *local = vt_emit_copies(p, op, types, op->operand_count, operands);
  vt_arena_free(&scratch);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_part_set(p, &op->results[i], (vt_part){op->results[i].type, &local->results[i], at});
  return VT_OK;
}
