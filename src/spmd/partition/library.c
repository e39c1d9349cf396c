// SPDX-License-Identifier: Apache-2.0
// library.c - ops on matrices, random numbers, custom calls, talk with the host.
#include "base/check.h"
#include "spmd/partition/partition.h"

// Every matrix is whole on a device: tiles of the last two dimensions move to batch dimensions,
// which all operands share.
vt_status vt_partition_matrices(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *at = vt_part_wanted(p, op, 0);
  vt_value *operands[2];
  if (at->only >= 0) return vt_partition_whole(p, op);
  at = vt_assign_clear(p, type, at, 3u << (type.rank - 2));
  vt_assert(op->operand_count <= 2);
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] = vt_reshard(p, vt_part_of(p, op->operands[i]), at).local;
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, at), op->operand_count, operands);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}

// Elements change their size: the last dimension of the wider side comes or goes, and is whole.
vt_status vt_partition_bitcast(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type, in = op->operands[0]->type;
  const vt_assign *at = vt_part_wanted(p, op, 0);
  int32_t shared = type.rank < in.rank ? type.rank : in.rank, from[VT_MAX_RANK];
  if (at->only >= 0) return vt_partition_whole(p, op);
  for (int32_t d = 0; d < VT_MAX_RANK; d++) from[d] = d < shared ? d : -1;
  at = vt_assign_project(&p->assigns, at, type.rank, from);
  const vt_assign *in_at = vt_assign_project(&p->assigns, at, in.rank, from);
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), in_at);
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, at), 1, &part.local);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}

// Numbers from the device's own generator: one device makes them for all.
vt_status vt_partition_random(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  vt_value *operands[3];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_part part = vt_part_of(p, op->operands[i]);
    const vt_assign *whole = vt_assign_whole(&p->assigns, part.global.rank, p->device_count);
    operands[i] = vt_reshard(p, part, whole).local;
  }
  vt_value *local = vt_emit_copy(p, op, type, op->operand_count, operands);
  const vt_assign *one = vt_assign_only(&p->assigns, type.rank, p->device_count, 0);
  vt_part_set(p, &op->results[0], (vt_part){type, local, one});
  return VT_OK;
}

// Calls that say something of their operand concern every tile of it; of others nothing is known.
vt_status vt_partition_custom_call(vt_parter *p, const vt_op *op) {
  if (!vt_op_is_marker(op)) return vt_partition_whole(p, op);
  vt_type type = op->results[0].type;
  const vt_assign *at = vt_part_wanted(p, op, 0);
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), at);
  vt_value *local = vt_emit_copy(p, op, vt_local_type(p, type, at), 1, &part.local);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}

// The op as it is: what the device does that talks to the host.
static vt_func *talk(vt_parter *p, const vt_op *op, const vt_type *types, vt_value **values) {
  vt_func *before = p->func, *func = p->func = vt_func_create(p->module, "");
  for (uint32_t i = 0; i < op->operand_count; i++)
    values[i] = vt_func_add_param(func, op->operands[i]->type);
  vt_op *copy = vt_emit_copies(p, op, types, op->operand_count, values);
  for (uint32_t i = 0; i < op->result_count; i++) values[i] = &copy->results[i];
  vt_func_set_returns(func, op->result_count, values);
  p->func = before;
  return func;
}

// Zeros, and the token that came: what the others do.
static vt_func *be_silent(vt_parter *p, const vt_op *op, vt_value **values) {
  vt_func *before = p->func, *func = p->func = vt_func_create(p->module, "");
  vt_value *token = NULL;
  for (uint32_t i = 0; i < op->operand_count; i++)
    token = vt_func_add_param(func, op->operands[i]->type); // the last one is
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type type = op->results[i].type;
    bool is_token = type.dtype == VT_TOKEN;
    values[i] = is_token ? token : vt_emit_splat(p, type, vt_emit_zero(p, type.dtype));
  }
  vt_func_set_returns(func, op->result_count, values);
  p->func = before;
  return func;
}

// The device that the program names, or the first, talks to the host; others get its results.
vt_status vt_partition_host(vt_parter *p, const vt_op *op) {
  if (p->device_count == 1) return vt_partition_whole(p, op);
  vt_arena scratch = {0};
  uint32_t count = op->operand_count;
  size_t most = (count > op->result_count ? count : op->result_count) + 1;
  const vt_sharding *stated = op->result_count ? vt_annotation(op, 0) : NULL;
  int32_t speaker = stated ? vt_assign_of(p, stated, 0)->only : -1;
  if (speaker < 0) speaker = 0;
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, count + 1);
  vt_value **values = VT_NEW_ARRAY(&scratch, vt_value *, most);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, op->result_count + 1);
  operands[0] = vt_emit_is_first(p, vt_assign_only(&p->assigns, 0, p->device_count, speaker), 0);
  for (uint32_t i = 0; i < count; i++) {
    vt_part part = vt_part_of(p, op->operands[i]);
    const vt_assign *whole = vt_assign_whole(&p->assigns, part.global.rank, p->device_count);
    operands[1 + i] = vt_reshard(p, part, whole).local;
  }
  for (uint32_t i = 0; i < op->result_count; i++) types[i] = op->results[i].type;
  vt_op *branch =
      vt_op_create(p->func, VT_OP_IF, op->loc, count + 1, operands, op->result_count, types, 2);
  branch->capture_count = count;
  branch->regions[0] = talk(p, op, types, values);
  branch->regions[1] = be_silent(p, op, values);
  vt_emit_finished(p, branch);
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_assign *at = vt_assign_only(&p->assigns, types[i].rank, p->device_count, speaker);
    vt_part_set(p, &op->results[i], (vt_part){types[i], &branch->results[i], at});
  }
  vt_arena_free(&scratch);
  return VT_OK;
}
