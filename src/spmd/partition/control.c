// SPDX-License-Identifier: Apache-2.0
// control.c - loops and branches: their functions are partitioned in turn.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/partition.h"

// A region of the partitioned program. Parameters are parts[i]; returns are resharded to
// returns[i], and unreduced only as the results of `op` are (NULL: not at all).
static vt_status write_region(vt_parter *p, const vt_func *region, const vt_part *parts,
                              const vt_assign *const *returns, const vt_op *op, vt_func **out) {
  vt_func *before = p->func;
  vt_func *func = *out = vt_func_create(p->module, "");
  p->func = func;
  for (uint32_t i = 0; i < region->param_count; i++) {
    vt_value *local = vt_func_add_param(func, parts[i].local->type);
    vt_part_record(p, region->params[i], (vt_part){parts[i].global, local, parts[i].assign});
  }
  vt_status st = vt_partition_func(p, region);
  vt_arena scratch = {0};
  vt_value **values = VT_NEW_ARRAY(&scratch, vt_value *, region->return_count + 1);
  for (uint32_t i = 0; i < region->return_count && !st; i++)
    values[i] =
        vt_reshard(p, vt_part_reduced(p, region->returns[i], op ? vt_annotation(op, i) : NULL),
                   returns[i])
            .local;
  if (!st) vt_func_set_returns(func, region->return_count, values);
  vt_arena_free(&scratch);
  p->func = before;
  return st;
}

static void set_results(vt_parter *p, const vt_op *op, vt_op *local) {
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_part_set(p, &op->results[i],
                (vt_part){op->results[i].type, &local->results[i], vt_part_wanted(p, op, i)});
}

static vt_op *create_control(vt_parter *p, const vt_op *op, const vt_part *parts,
                             const vt_assign *const *assigns, vt_arena *scratch) {
  vt_value **operands = VT_NEW_ARRAY(scratch, vt_value *, op->operand_count + 1);
  vt_type *types = VT_NEW_ARRAY(scratch, vt_type, op->result_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = parts[i].local;
  for (uint32_t i = 0; i < op->result_count; i++)
    types[i] = vt_local_type(p, op->results[i].type, assigns[i]);
  vt_op *out = vt_op_create(p->func, op->code, op->loc, op->operand_count, operands,
                            op->result_count, types, op->region_count);
  out->capture_count = op->capture_count;
  return out;
}

// What is carried is cut as the loop's results are, what is captured as it is.
vt_status vt_partition_while(vt_parter *p, const vt_op *op) {
  vt_arena scratch = {0};
  uint32_t own = vt_op_own_operands(op);
  vt_part *parts = VT_NEW_ARRAY(&scratch, vt_part, op->operand_count + 1);
  const vt_assign **assigns = VT_NEW_ARRAY(&scratch, const vt_assign *, op->result_count + 1);
  const vt_assign *scalar = vt_assign_whole(&p->assigns, 0, p->device_count);
  for (uint32_t i = 0; i < op->result_count; i++) assigns[i] = vt_part_wanted(p, op, i);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (i >= own) {
      parts[i] = vt_part_reduced(p, op->operands[i], NULL);
      continue;
    }
    parts[i] = vt_reshard(p, vt_part_reduced(p, op->operands[i], vt_annotation(op, i)), assigns[i]);
    // What a loop carries may stay unreduced.
    vt_part_note(p, op->regions[0]->params[i], vt_annotation(op, i));
    vt_part_note(p, op->regions[1]->params[i], vt_annotation(op, i));
  }
  vt_op *loop = create_control(p, op, parts, assigns, &scratch);
  vt_status st = write_region(p, op->regions[0], parts, &scalar, NULL, &loop->regions[0]);
  if (!st) st = write_region(p, op->regions[1], parts, assigns, op, &loop->regions[1]);
  if (!st) {
    vt_emit_finished(p, loop);
    set_results(p, op, loop);
  }
  vt_arena_free(&scratch);
  return st;
}

// All devices take the same branch; captures are as they are.
vt_status vt_partition_branches(vt_parter *p, const vt_op *op) {
  vt_arena scratch = {0};
  vt_part *parts = VT_NEW_ARRAY(&scratch, vt_part, op->operand_count + 1);
  const vt_assign **assigns = VT_NEW_ARRAY(&scratch, const vt_assign *, op->result_count + 1);
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < op->result_count; i++) assigns[i] = vt_part_wanted(p, op, i);
  for (uint32_t i = 0; i < op->operand_count; i++)
    parts[i] = vt_part_reduced(p, op->operands[i], NULL);
  parts[0] = vt_reshard(p, parts[0], vt_assign_whole(&p->assigns, 0, p->device_count));
  vt_op *local = create_control(p, op, parts, assigns, &scratch);
  for (uint32_t i = 0; i < op->region_count && !st; i++)
    st = write_region(p, op->regions[i], parts + 1, assigns, op, &local->regions[i]);
  if (!st) {
    vt_emit_finished(p, local);
    set_results(p, op, local);
  }
  vt_arena_free(&scratch);
  return st;
}
