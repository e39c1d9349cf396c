// SPDX-License-Identifier: Apache-2.0
// mosaic_code.c - ops that generated code leaves to their own functions.
#include "mosaic/mosaic_code.h"

#include <string.h>

#include "base/coroutine.h"

// The view that a reference is, through the ops that make it.
static vt_status find_view(vt_mmachine *m, const vt_mvalue *ref) {
  const vt_mop *op = ref->op;
  if (!op) {
    uint32_t number = (uint32_t)(ref - ref->block->args) - m->kernel->grid_rank;
    vt_mview_whole(&m->arrays[number], &m->views[ref->ref]);
    m->slots[ref->slot].view = &m->views[ref->ref];
    return VT_OK;
  }
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->type.kind == VT_MREF) VT_TRY(find_view(m, op->operands[i]));
  return vt_mosaic_runs[op->code](m, op);
}

static vt_status call(vt_mmachine *m, const vt_mop *op) {
  uint32_t passed = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_mvalue *value = op->operands[i];
    if (value->type.kind == VT_MREF) VT_TRY(find_view(m, value));
    if (value->type.kind != VT_MVECTOR) continue;
    m->lent[passed] = (vt_eval_buffer){.data = m->passed[passed],
                                       .bytes = vt_mtype_bytes(value->type),
                                       .refs = 2,
                                       .borrowed = true};
    m->slots[value->slot].buffer = &m->lent[passed++];
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    if (op->results[i].type.kind == VT_MVECTOR) m->slots[op->results[i].slot].buffer = NULL;
  vt_status st = vt_mosaic_runs[op->code](m, op);
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_mvalue *value = &op->results[i];
    if (value->type.kind != VT_MVECTOR) continue;
    vt_eval_buffer *buffer = m->slots[value->slot].buffer;
    if (!st && buffer) memcpy(m->passed[passed], buffer->data, (size_t)vt_mtype_bytes(value->type));
    passed++;
    if (buffer) vt_eval_buffer_release(m->state, buffer);
    m->slots[value->slot].buffer = NULL;
  }
  return st;
}

int32_t vt_mosaic_call(vt_mmachine *m, uint32_t number) {
  for (;;) {
    m->failed = call(m, m->kernel->ops[number]);
    if (m->failed || !m->waiting) break;
    if (!m->coroutine) return 1;
    vt_coroutine_yield(m->coroutine); // the op runs again
  }
  m->steps++;
  return m->failed ? 1 : 0;
}
