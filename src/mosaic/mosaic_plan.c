// SPDX-License-Identifier: Apache-2.0
// mosaic_plan.c - what is found out about a kernel before it runs: where each vector is used last,
// and whether the devices that run it meet.
#include "mosaic/mosaic_ir.h"

typedef struct finder {
  vt_arena *arena;
  vt_mop **last; // by slot: the op of the value's own block that uses it last
} finder;

// The op of `block` that holds `op` or is it; NULL when the block does not hold it.
static vt_mop *holder(vt_mop *op, const vt_mblock *block) {
  while (op && op->block != block) op = op->block->owner;
  return op;
}

static void find_uses(finder *f, vt_mblock *block) {
  for (vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++) {
      vt_mvalue *value = op->operands[i];
      if (value->type.kind == VT_MVECTOR) f->last[value->slot] = holder(op, value->block);
    }
    for (uint32_t i = 0; i < op->result_count; i++)
      if (op->results[i].type.kind == VT_MVECTOR) f->last[op->results[i].slot] = op;
    for (uint32_t b = 0; b < op->block_count; b++) find_uses(f, op->blocks[b]);
  }
}

static void count_or_list(finder *f, vt_mvalue *value, bool list) {
  vt_mop *op = value->type.kind == VT_MVECTOR ? f->last[value->slot] : NULL;
  if (!op) return;
  if (list) op->dead[op->dead_count] = value;
  op->dead_count++;
}

static void visit_values(finder *f, vt_mblock *block, bool list) {
  for (uint32_t i = 0; i < block->arg_count; i++) count_or_list(f, &block->args[i], list);
  for (vt_mop *op = block->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++) count_or_list(f, &op->results[i], list);
  for (vt_mop *op = block->first; op; op = op->next)
    for (uint32_t b = 0; b < op->block_count; b++) visit_values(f, op->blocks[b], list);
}

static void make_lists(finder *f, vt_mblock *block) {
  for (vt_mop *op = block->first; op; op = op->next) {
    op->dead = VT_NEW_ARRAY(f->arena, vt_mvalue *, op->dead_count + 1);
    op->dead_count = 0;
    for (uint32_t b = 0; b < op->block_count; b++) make_lists(f, op->blocks[b]);
  }
}

static bool meets(const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->code == VT_MOP_SEM_BARRIER ||
        (op->code == VT_MOP_ENQUEUE_DMA && vt_mop_optional(op, 4)) ||
        (op->code == VT_MOP_SEM_SIGNAL && vt_mop_optional(op, 2)))
      return true;
    for (uint32_t b = 0; b < op->block_count; b++)
      if (meets(op->blocks[b])) return true;
  }
  return false;
}

static void number_ops(vt_mosaic *kernel, vt_mblock *block) {
  for (vt_mop *op = block->first; op; op = op->next) {
    if (kernel->ops) kernel->ops[kernel->op_count] = op;
    op->number = kernel->op_count++;
    for (uint32_t b = 0; b < op->block_count; b++) number_ops(kernel, op->blocks[b]);
    op->end = kernel->op_count;
  }
}

void vt_mosaic_number(vt_mosaic *kernel, vt_arena *arena) {
  for (uint32_t pass = 0; pass < 2; pass++) {
    if (pass) kernel->ops = VT_NEW_ARRAY(arena, vt_mop *, kernel->op_count + 1);
    kernel->op_count = 0;
    for (uint32_t i = 0; i < kernel->func_count; i++) number_ops(kernel, kernel->funcs[i].block);
  }
}

void vt_mosaic_find_deaths(vt_mosaic *kernel, vt_arena *arena) {
  finder f = {arena, VT_NEW_ARRAY(arena, vt_mop *, kernel->slot_count + 1)};
  for (uint32_t i = 0; i < kernel->func_count; i++) find_uses(&f, kernel->funcs[i].block);
  for (uint32_t i = 0; i < kernel->func_count; i++) visit_values(&f, kernel->funcs[i].block, false);
  for (uint32_t i = 0; i < kernel->func_count; i++) make_lists(&f, kernel->funcs[i].block);
  for (uint32_t i = 0; i < kernel->func_count; i++) visit_values(&f, kernel->funcs[i].block, true);
  kernel->meets_devices = kernel->config.has_communication || meets(kernel->body->block);
}

// Each core has memory of its own: a program may count on its first point on each to find that as
// it was at the start. Communicating kernels name their cores.
void vt_mosaic_split(vt_mosaic *k, int32_t cores) {
  if (cores < 2 || k->core_dim >= 0 || k->meets_devices) return;
  for (uint32_t d = 0; d < k->parallel_dims; d++)
    if (k->grid[d] > 0 && k->grid[d] % cores == 0) {
      k->core_dim = (int32_t)d;
      k->core_count = cores;
      return;
    }
}
