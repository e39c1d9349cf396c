// SPDX-License-Identifier: Apache-2.0
// mosaic_machine.c - the loop over the ops of a kernel, and its control flow, on a stack of blocks.
//
// An op that has to wait sets m->waiting; it is run again when the machine goes on.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/coroutine.h"
#include "base/memory.h"
#include "mosaic/mosaic_code.h"

enum { MOST_MOVED = 512 };

const vt_mrun vt_mosaic_runs[VT_MOP_COUNT] = {
#define MOP(code, text, least, most, results, regions, kinds, rule, run, ...)                      \
  [VT_MOP_##code] = vt_mosaic_run_##run,
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
};

// ---- values -------------------------------------------------------------------------------------

static void drop(vt_mmachine *m, const vt_mvalue *value) {
  vt_mslot *slot = &m->slots[value->slot];
  if (value->type.kind != VT_MVECTOR || !slot->buffer) return;
  vt_eval_buffer_release(m->state, slot->buffer);
  slot->buffer = NULL;
}

static void bury(vt_mmachine *m, const vt_mop *op) {
  for (uint32_t i = 0; i < op->dead_count; i++) drop(m, op->dead[i]);
}

vt_status vt_mresult_new(vt_mmachine *m, const vt_mvalue *value, void *out_data) {
  vt_mslot *slot = &m->slots[value->slot];
  void *data = &slot->bits;
  if (value->type.kind == VT_MSCALAR) {
    slot->bits = 0;
  } else {
    drop(m, value);
    VT_TRY(vt_eval_buffer_new(m->state, vt_mtype_bytes(value->type), &slot->buffer));
    data = slot->buffer->data;
  }
  memcpy(out_data, &data, sizeof data);
  return VT_OK;
}

void vt_mset_int(vt_mmachine *m, const vt_mvalue *value, int64_t x) {
  m->slots[value->slot].bits = 0;
  vt_mbits_store(value->type.dtype, &m->slots[value->slot].bits, (uint64_t)x);
}

// Gives `to` the values of `from`, all at once: they may be the same in another order.
static vt_status move_values(vt_mmachine *m, uint32_t count, vt_mvalue *const *from,
                             const vt_mvalue *to) {
  vt_mslot few[16], *held = few;
  if (count > MOST_MOVED)
    return vt_error(VT_UNIMPLEMENTED, "a loop with %" PRIu32 " values", count);
  if (count > 16 && !(held = malloc(count * sizeof *held))) return vt_error_no_memory();
  for (uint32_t i = 0; i < count; i++) {
    held[i] = m->slots[from[i]->slot];
    if (from[i]->type.kind == VT_MVECTOR) vt_eval_buffer_retain(held[i].buffer);
  }
  for (uint32_t i = 0; i < count; i++) {
    drop(m, &to[i]);
    m->slots[to[i].slot] = held[i];
  }
  if (held != few) free(held);
  return VT_OK;
}

// ---- the stack ----------------------------------------------------------------------------------

vt_status vt_mmachine_push(vt_mmachine *m, const vt_mblock *block) {
  if (m->depth == m->frame_capacity) {
    uint32_t capacity = m->frame_capacity ? 2 * m->frame_capacity : 16;
    vt_mframe *grown = realloc(m->frames, capacity * sizeof *grown);
    if (!grown) return vt_error_no_memory();
    m->frames = grown;
    m->frame_capacity = capacity;
  }
  m->frames[m->depth++] = (vt_mframe){.block = block, .next = block->first};
  return VT_OK;
}

static vt_mframe *top(vt_mmachine *m) {
  return &m->frames[m->depth - 1];
}

// The op that owns the block on top is over; these are its results.
static vt_status finish(vt_mmachine *m, const vt_mop *end, uint32_t first) {
  const vt_mop *owner = top(m)->block->owner;
  if (end) VT_TRY(move_values(m, owner->result_count, end->operands + first, owner->results));
  if (end) bury(m, end);
  m->depth--;
  bury(m, owner);
  return VT_OK;
}

vt_status vt_mosaic_run_for(vt_mmachine *m, const vt_mop *op) {
  int64_t at = vt_mscalar(m, op->operands[0]), end = vt_mscalar(m, op->operands[1]),
          step = vt_mscalar(m, op->operands[2]);
  if (step <= 0)
    return vt_mop_error(op, VT_INVALID_ARGUMENT, "a loop with a step of %" PRId64, step);
  if (at >= end) {
    VT_TRY(move_values(m, op->result_count, op->operands + 3, op->results));
    bury(m, op);
    return VT_OK;
  }
  VT_TRY(move_values(m, op->result_count, op->operands + 3, op->blocks[0]->args + 1));
  vt_mset_int(m, &op->blocks[0]->args[0], at);
  VT_TRY(vt_mmachine_push(m, op->blocks[0]));
  top(m)->at = at;
  top(m)->end = end;
  top(m)->step = step;
  return VT_OK;
}

vt_status vt_mosaic_run_while(vt_mmachine *m, const vt_mop *op) {
  VT_TRY(move_values(m, op->operand_count, op->operands, op->blocks[0]->args));
  return vt_mmachine_push(m, op->blocks[0]);
}

vt_status vt_mosaic_run_if(vt_mmachine *m, const vt_mop *op) {
  const vt_mblock *block = op->blocks[vt_mscalar(m, op->operands[0]) ? 0 : 1];
  if (block->first) return vt_mmachine_push(m, block);
  bury(m, op);
  return VT_OK;
}

vt_status vt_mosaic_run_region(vt_mmachine *m, const vt_mop *op) {
  return vt_mmachine_push(m, op->blocks[0]);
}

static vt_status end_of_for(vt_mmachine *m, const vt_mop *end) {
  vt_mframe *f = top(m);
  const vt_mblock *block = f->block;
  if (__builtin_add_overflow(f->at, f->step, &f->at) || f->at >= f->end) return finish(m, end, 0);
  if (end) VT_TRY(move_values(m, block->owner->result_count, end->operands, block->args + 1));
  if (end) bury(m, end);
  vt_mset_int(m, &block->args[0], f->at);
  f->next = block->first;
  return VT_OK;
}

static vt_status end_of_while(vt_mmachine *m, const vt_mop *end) {
  const vt_mop *owner = top(m)->block->owner;
  if (end->code == VT_MOP_CONDITION && !vt_mscalar(m, end->operands[0])) return finish(m, end, 1);
  uint32_t from = end->code == VT_MOP_CONDITION, to = from ? 1 : 0;
  const vt_mblock *next = owner->blocks[to];
  VT_TRY(move_values(m, next->arg_count, end->operands + from, next->args));
  bury(m, end);
  top(m)->block = next;
  top(m)->next = next->first;
  return VT_OK;
}

static vt_status end_of_func(vt_mmachine *m, const vt_mop *end) {
  for (uint32_t i = 0; i < end->operand_count && i < VT_MOSAIC_RANK; i++)
    if (end->operands[i]->type.kind == VT_MSCALAR) m->returned[i] = vt_mscalar(m, end->operands[i]);
  bury(m, end);
  m->depth--;
  return VT_OK;
}

vt_status vt_mosaic_run_end(vt_mmachine *m, const vt_mop *op) {
  const vt_mop *owner = op->block->owner;
  if (!owner) return end_of_func(m, op);
  if (owner->code == VT_MOP_FOR) return end_of_for(m, op);
  if (owner->code == VT_MOP_WHILE) return end_of_while(m, op);
  return finish(m, op, 0);
}

vt_status vt_mosaic_run_nothing(vt_mmachine *m, const vt_mop *op) {
  (void)m, (void)op;
  return VT_OK;
}

vt_status vt_mosaic_run_assert(vt_mmachine *m, const vt_mop *op) {
  if (vt_mscalar(m, op->operands[0])) return VT_OK;
  const vt_mattr *text = vt_mop_attr(op, VT_MATTR_MSG);
  return vt_mop_error(op, VT_FAILED_PRECONDITION, "%.*s", text ? (int)text->string.size : 0,
                      text ? text->string.data : "");
}

// ---- running ------------------------------------------------------------------------------------

static bool is_end(const vt_mop *op) {
  return op->code == VT_MOP_YIELD || op->code == VT_MOP_CONDITION || op->code == VT_MOP_RETURN ||
         op->code == VT_MOP_TPU_YIELD;
}

static vt_status step(vt_mmachine *m) {
  const vt_mop *op = top(m)->next;
  if (!op) return end_of_for(m, NULL); // an empty block of a loop
  top(m)->next = op->next;
  m->waiting = NULL;
  VT_TRY(vt_mosaic_runs[op->code](m, op));
  m->steps++;
  if (m->waiting) {
    top(m)->next = op;
    m->steps--;
  } else if (!op->block_count && !is_end(op)) {
    bury(m, op);
  }
  return VT_OK;
}

void vt_mmachine_run_inside(void *machine) {
  vt_mmachine *m = machine;
  while (!m->done && !m->failed) m->failed = vt_mgrid_advance(m);
}

vt_status vt_mmachine_run(vt_mmachine *m) {
  m->waiting = NULL;
  if (m->coroutine) {
    vt_coroutine_resume(m->coroutine);
    vt_status st = m->failed;
    m->failed = NULL;
    return st;
  }
  while (!m->done && !m->waiting) VT_TRY(m->depth ? step(m) : vt_mgrid_advance(m));
  return VT_OK;
}

void vt_mmachine_set_args(vt_mmachine *m, const vt_mblock *block) {
  uint32_t rank = m->kernel->grid_rank;
  for (uint32_t i = 0; i < block->arg_count; i++) {
    const vt_mvalue *arg = &block->args[i];
    if (i < rank) {
      vt_mset_int(m, arg, m->index[i]);
      continue;
    }
    vt_mview_whole(&m->arrays[i - rank], &m->views[arg->ref]);
    m->slots[arg->slot].view = &m->views[arg->ref];
  }
}

vt_status vt_mmachine_run_code(vt_mmachine *m, const vt_mfunc *func) {
  m->steps++;
  if (!m->code->funcs[func - m->kernel->funcs](m)) return VT_OK;
  vt_status st = m->failed;
  m->failed = NULL;
  return st;
}

vt_status vt_mmachine_call(vt_mmachine *m, const vt_mfunc *func) {
  uint32_t depth = m->depth;
  if (m->code) {
    struct vt_coroutine *coroutine = m->coroutine;
    m->coroutine = NULL; // here it may not wait
    vt_status st = vt_mmachine_run_code(m, func);
    m->coroutine = coroutine;
    VT_TRY(st);
  }
  if (m->waiting)
    return vt_mop_error(m->waiting, VT_INVALID_ARGUMENT, "a wait inside of a transform");
  if (m->code) return VT_OK;
  vt_mmachine_set_args(m, func->block);
  VT_TRY(vt_mmachine_push(m, func->block));
  while (m->depth > depth) {
    VT_TRY(step(m));
    if (m->waiting)
      return vt_mop_error(m->waiting, VT_INVALID_ARGUMENT, "a wait inside of a transform");
  }
  return VT_OK;
}
