// SPDX-License-Identifier: Apache-2.0
// control.c - while, if, case, call, composite on shared buffers.
#include <stdlib.h>

#include "eval/kernel.h"
#include "ir/number.h"

bool vt_eval_is_control(vt_opcode code) {
  return code == VT_OP_WHILE || code == VT_OP_IF || code == VT_OP_CASE || code == VT_OP_CALL ||
         code == VT_OP_COMPOSITE;
}

static void release_all(vt_eval_state *state, uint32_t count, vt_eval_buffer **buffers) {
  for (uint32_t i = 0; i < count; i++) vt_eval_buffer_release(state, buffers[i]);
}

// State is in `in` (own operands first, then captures). The condition borrows it, the body consumes
// it: a value that the body returns untouched stays in the same buffer.
static vt_status run_while(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                           vt_eval_buffer **in, vt_eval_buffer **out) {
  uint32_t count = op->operand_count, own = vt_op_own_operands(op);
  vt_status st = VT_OK;
  vt_eval_buffer **args = malloc(sizeof *args * (count + 1));
  if (!args) {
    release_all(state, count, in);
    return vt_error_no_memory();
  }
  for (;;) {
    vt_eval_buffer *go_on = NULL;
    for (uint32_t i = 0; i < count; i++) args[i] = vt_eval_buffer_retain(in[i]);
    VT_TRY_OUT(vt_eval_run(state, env, op->regions[0], args, &go_on));
    bool more = *(const uint8_t *)go_on->data;
    vt_eval_buffer_release(state, go_on);
    if (!more) break;
    for (uint32_t i = 0; i < count; i++) {
      args[i] = i < own ? in[i] : vt_eval_buffer_retain(in[i]);
      if (i < own) in[i] = NULL;
    }
    VT_TRY_OUT(vt_eval_run(state, env, op->regions[1], args, in));
  }
  for (uint32_t i = 0; i < op->result_count; i++) {
    out[i] = in[i];
    in[i] = NULL;
  }
out:
  free(args);
  release_all(state, count, in);
  return st;
}

// if and case: operand 0 selects, the captures are the region's arguments.
static vt_status run_branch(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                            vt_eval_buffer **in, vt_eval_buffer **out) {
  uint32_t chosen;
  if (op->code == VT_OP_IF) {
    chosen = *(const uint8_t *)in[0]->data ? 0 : 1;
  } else {
    int64_t index = vt_int_load(op->operands[0]->type.dtype, in[0]->data, 0);
    chosen =
        index < 0 || index >= (int64_t)op->region_count ? op->region_count - 1 : (uint32_t)index;
  }
  vt_eval_buffer_release(state, in[0]);
  return vt_eval_run(state, env, op->regions[chosen], in + 1, out);
}

vt_status vt_eval_control(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                          vt_eval_buffer **in, vt_eval_buffer **out) {
  const vt_func *callee = vt_op_callee(op);
  if (callee) return vt_eval_run(state, env, callee, in, out);
  return op->code == VT_OP_WHILE ? run_while(state, env, op, in, out)
                                 : run_branch(state, env, op, in, out);
}

// The same on a caller's tensors.
vt_status vt_eval_control_flow(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_status st = VT_OK;
  vt_eval_buffer **in = calloc((size_t)op->operand_count + op->result_count + 1, sizeof *in);
  if (!in) return vt_error_no_memory();
  vt_eval_buffer **out = in + op->operand_count;
  bool taken = false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    VT_TRY_OUT(vt_eval_buffer_borrow(call->state, call->in[i].data, vt_type_bytes(call->in[i].type),
                                     &in[i]));
  taken = true;
  VT_TRY_OUT(vt_eval_control(call->state, call->env, op, in, out));
  for (uint32_t i = 0; i < op->result_count; i++) {
    size_t bytes = (size_t)vt_type_bytes(call->out[i].type);
    if (bytes && out[i]->data != call->out[i].data) memcpy(call->out[i].data, out[i]->data, bytes);
  }
out:
  if (!taken) release_all(call->state, op->operand_count, in);
  release_all(call->state, op->result_count, out);
  free(in);
  return st;
}
