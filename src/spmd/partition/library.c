// SPDX-License-Identifier: Apache-2.0
// library.c - ops on matrices, random numbers, custom calls.
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
