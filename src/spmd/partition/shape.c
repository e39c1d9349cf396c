// SPDX-License-Identifier: Apache-2.0
// shape.c - ops whose elements stay with their device: elementwise ops, constants, and what
// spreads or turns dimensions.
#include <string.h>

#include "base/check.h"
#include "spmd/elementwise.h"
#include "spmd/partition/partition.h"

// Two or more operands that are all cut alike are combined where they are; otherwise they come to
// the result. Returns where; out_operands are the operands there.
static const vt_assign *meet(vt_parter *p, const vt_op *op, vt_value **out_operands) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0), *at = wanted;
  uint32_t count = op->operand_count;
  if (count > 1) at = vt_part_of(p, op->operands[0]).assign;
  for (uint32_t i = 0; i < count; i++)
    if (vt_part_of(p, op->operands[i]).assign != at || op->operands[i]->type.rank != type.rank)
      at = wanted;
  for (uint32_t i = 0; i < count; i++) {
    vt_part part = vt_part_of(p, op->operands[i]);
    const vt_assign *where = at;
    if (part.global.rank != type.rank) where = vt_assign_whole(&p->assigns, 0, p->device_count);
    out_operands[i] = vt_reshard(p, part, where).local;
  }
  return at;
}

vt_status vt_partition_elementwise(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  vt_value *operands[4];
  vt_assert(op->operand_count <= 3);
  const vt_assign *at = meet(p, op, operands);
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, at), op->operand_count, operands);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}

// Where calls stay, the first body is the function itself: nothing else calls it any more.
static vt_func *new_body(vt_parter *p, vt_func *callee) {
  const void *key[] = {callee, NULL};
  void **used = vt_map_at(&p->bodies, key, sizeof key);
  bool first = !*used;
  *used = callee;
  vt_func *body = p->keep_elementwise && first ? callee : vt_func_clone(p->module, callee);
  if (p->keep_elementwise) vt_array_push(&p->kept, body);
  return body;
}

// An elementwise function, which alone is called, on what a device holds: written once for each way
// to cut it.
static vt_func *body_on_tiles(vt_parter *p, const vt_op *call, const vt_assign *at) {
  const void *key[] = {vt_op_callee(call), at};
  vt_func *body = vt_map_find(&p->bodies, key, sizeof key);
  if (body) return body;
  body = new_body(p, vt_op_callee(call));
  vt_spmd_elementwise_on(body, vt_local_type(p, call->results[0].type, at));
  if (!p->keep_elementwise) vt_spmd_merge_equal(body);
  *vt_map_at(&p->bodies, key, sizeof key) = body;
  return body;
}

static void call_again(vt_parter *p, const vt_op *call, vt_func *body, vt_value *const *operands,
                       vt_value **returns) {
  vt_func **callee = VT_NEW_ARRAY(&p->module->arena, vt_func *, 1);
  vt_arena scratch = {0};
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, call->result_count + 1);
  for (uint32_t i = 0; i < call->result_count; i++) types[i] = body->returns[i]->type;
  vt_op *local = vt_emit_copies(p, call, types, call->operand_count, operands);
  *callee = body;
  vt_op_set_attr(local, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = callee});
  for (uint32_t i = 0; i < call->result_count; i++) returns[i] = &local->results[i];
  vt_arena_free(&scratch);
}

vt_status vt_partition_call(vt_parter *p, const vt_op *op) {
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count + 1);
  vt_value **returns = VT_NEW_ARRAY(&scratch, vt_value *, op->result_count + 1);
  const vt_assign *at = meet(p, op, operands);
  vt_func *body = body_on_tiles(p, op, at);
  if (p->keep_elementwise)
    call_again(p, op, body, operands, returns);
  else
    vt_func_inline(body, p->func, NULL, operands, returns);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_part_set(p, &op->results[i], (vt_part){op->results[i].type, returns[i], at});
  vt_arena_free(&scratch);
  return VT_OK;
}

// A constant of one number is made in pieces; any other one whole.
vt_status vt_partition_constant(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  if (!literal->splat || !type.rank) return vt_partition_whole(p, op);
  vt_literal *piece = VT_NEW(&p->module->arena, vt_literal);
  *piece = (vt_literal){vt_local_type(p, type, wanted), literal->data, true};
  vt_part_set(p, &op->results[0], (vt_part){type, vt_emit_literal(p, piece), wanted});
  return VT_OK;
}

// Whether the type has every whole number below `limit`, or wraps around as sums of its numbers do.
static bool counts_to(vt_dtype dtype, int64_t limit) {
  if (!vt_dtype_is_float(dtype) && !vt_dtype_is_complex(dtype)) return true;
  return limit <= (int64_t)2 << vt_dtype_get(dtype)->mantissa;
}

vt_status vt_partition_iota(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  int32_t dim = (int32_t)vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION);
  vt_type local_type = vt_local_type(p, type, wanted);
  vt_value *local = vt_emit_copy(p, op, local_type, 0, NULL);
  if (wanted->dims[dim] > 1 && !counts_to(type.dtype, type.dims[dim])) {
    local = vt_emit_positions(p, (vt_part){type, local, wanted}, dim);
    local = vt_emit1(p, VT_OP_CONVERT, local_type, local); // rounds once
  } else if (wanted->dims[dim] > 1) {
    vt_type scalar = {type.dtype, 0, NULL};
    vt_value *offset = vt_emit_offset(p, wanted, dim, local->type.dims[dim]);
    if (type.dtype != VT_S32) offset = vt_emit1(p, VT_OP_CONVERT, scalar, offset);
    vt_value *offsets = vt_emit_splat(p, local->type, offset);
    local = vt_emit2(p, VT_OP_ADD, local->type, local, offsets);
  }
  vt_part_set(p, &op->results[0], (vt_part){type, local, wanted});
  return VT_OK;
}

// Whether the op spreads a constant number and says nothing else of it, so that equal ones would
// become one anyway.
static bool spreads_number(const vt_op *op, vt_part part) {
  for (uint32_t i = 0; i < op->attr_count; i++) {
    vt_attr_key key = op->attrs[i].key;
    if (key != VT_ATTR_BROADCAST_DIMENSIONS && key != VT_ATTR_SHARDING &&
        key != VT_ATTR_MHLO_SHARDING)
      return false;
  }
  return !part.global.rank && part.local->op && part.local->op->code == VT_OP_CONSTANT;
}

// Where a number spread over such an array is looked for: programs do that again and again.
static vt_spread *spread_of(vt_parter *p, const vt_value *number, vt_type type,
                            const vt_assign *assign) {
  uintptr_t hash = (uintptr_t)number >> 4 ^ (uintptr_t)type.dims >> 3 ^ (uintptr_t)assign >> 5;
  vt_spread *spread = &p->spreads[hash % VT_SPREADS];
  bool found = spread->local && spread->local->func == p->func && spread->number == number &&
               spread->dims == type.dims && spread->assign == assign;
  if (!found) *spread = (vt_spread){number, type.dims, assign, NULL};
  return spread;
}

vt_status vt_partition_broadcast_in_dim(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, NULL);
  vt_part part = vt_part_of(p, op->operands[0]);
  bool number = spreads_number(op, part);
  vt_spread *spread = number ? spread_of(p, part.local, type, wanted) : NULL;
  if (spread && spread->local) {
    vt_part_set(p, &op->results[0], (vt_part){type, spread->local, wanted});
    return VT_OK;
  }
  int32_t from[VT_MAX_RANK];
  for (int32_t d = 0; d < part.global.rank; d++)
    from[d] = part.global.dims[d] == type.dims[dims[d]] ? (int32_t)dims[d] : -1;
  part = vt_reshard(p, part, vt_assign_project(&p->assigns, wanted, part.global.rank, from));
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, wanted), 1, &part.local);
  if (spread) spread->local = local;
  vt_part_set(p, &op->results[0], (vt_part){type, local, wanted});
  return VT_OK;
}

vt_status vt_partition_transpose(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  int32_t back[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) back[permutation[d]] = d;
  vt_part part = vt_part_of(p, op->operands[0]);
  part = vt_reshard(p, part, vt_assign_transpose(&p->assigns, wanted, back));
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, wanted), 1, &part.local);
  vt_part_set(p, &op->results[0], (vt_part){type, local, wanted});
  return VT_OK;
}

// The operand, in the assignment that the result wants: constraints. To what its operand was
// resharded before is not known of it, as in XLA, where it is a copy: an array that is cut for a
// constraint is gathered for a user that wants it whole.
vt_status vt_partition_name(vt_parter *p, const vt_op *op) {
  vt_part part = vt_part_reduced(p, op->operands[0], vt_annotation(op, 0));
  part = vt_reshard(p, part, vt_part_wanted(p, op, 0));
  part.local = vt_emit_copy(p, op, part.local->type, 1, &part.local);
  vt_part_set(p, &op->results[0], part);
  return VT_OK;
}

// The same for several values that stay one op: barriers.
vt_status vt_partition_each(vt_parter *p, const vt_op *op) {
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count + 1);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, op->operand_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_part part = vt_part_reduced(p, op->operands[i], vt_annotation(op, i));
    operands[i] = vt_reshard(p, part, vt_part_wanted(p, op, i)).local;
    types[i] = operands[i]->type;
  }
  vt_op *copy = vt_emit_copies(p, op, types, op->operand_count, operands);
  vt_arena_free(&scratch);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_part_set(p, &op->results[i],
                (vt_part){op->results[i].type, &copy->results[i], vt_part_wanted(p, op, i)});
  return VT_OK;
}

// Ops that only speak to the propagation.
vt_status vt_partition_nothing(vt_parter *p, const vt_op *op) {
  (void)p, (void)op;
  return VT_OK;
}
