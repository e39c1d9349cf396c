// SPDX-License-Identifier: Apache-2.0
// emit_loop.c - the code of a loop: its function, and the control flow in it (emit_loop.h).
//
// Regions are closed functions, so each is written where it runs, with the values that go in as its
// parameters. What a region spills to the stack is forgotten at its end: other paths have not
// stored it.
#include "base/check.h"
#include "host/emit_loop.h"

static LLVMBasicBlockRef new_block(vt_loop_code *m, const char *name) {
  return LLVMAppendBasicBlockInContext(m->e->context, m->e->function, name);
}

static void phi_from(LLVMValueRef phi, LLVMValueRef value, LLVMBasicBlockRef from) {
  LLVMAddIncoming(phi, &value, &from, 1);
}

static vt_held *operands_of(vt_loop_code *m, const vt_op *op) {
  vt_held *operands = VT_NEW_ARRAY(&m->arena, vt_held, op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = *vt_loop_held(m, op->operands[i]);
  return operands;
}

static void load_parts(vt_loop_code *m, vt_type type, vt_held *held) {
  vt_held loaded;
  if (held->parts) return;
  vt_loop_load(m, type, held->pointer, &loaded);
  held->count = loaded.count;
  held->parts = loaded.parts;
}

// ---- While.

// Room on the stack for a small value that the body updates there.
static LLVMValueRef carried_room(vt_loop_code *m, vt_type type, vt_held *held) {
  LLVMValueRef room = vt_loop_room_of(m, type);
  load_parts(m, type, held);
  vt_loop_store(m, type, held, room);
  return room;
}

// From what the operands are to what the parameters are in each iteration: registers that change
// become phis. The builder is at the end of the block before, and then in the loop's head.
static void begin_loop(vt_loop_code *m, const vt_op *op, const uint8_t *homes, vt_held *params) {
  LLVMBuilderRef b = m->e->builder;
  const vt_func *body = op->regions[1];
  for (uint32_t i = 0; i < body->param_count; i++)
    if (homes[i] == VT_LOOP_STATE) load_parts(m, body->params[i]->type, &params[i]);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), head = new_block(m, "iteration");
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, head);
  for (uint32_t i = 0; i < body->param_count; i++) {
    if (homes[i] == VT_LOOP_MEMORY)
      params[i] = (vt_held){.pointer = params[i].pointer, .memory = true};
    if (homes[i] != VT_LOOP_STATE) continue;
    vt_held state = vt_loop_new(m, body->params[i]->type);
    for (uint32_t c = 0; c < state.count; c++) {
      state.parts[c] = LLVMBuildPhi(b, LLVMTypeOf(params[i].parts[c]), "");
      phi_from(state.parts[c], params[i].parts[c], before);
    }
    params[i] = state;
  }
}

// Iterates; the builder is then in the block after the loop, where the parameters are the results.
static void emit_iterations(vt_loop_code *m, const vt_op *op, const uint8_t *homes,
                            vt_held *params) {
  LLVMBuilderRef b = m->e->builder;
  vt_func *cond = op->regions[0], *body = op->regions[1];
  begin_loop(m, op, homes, params);
  LLVMBasicBlockRef head = LLVMGetInsertBlock(b);
  vt_held *pred = vt_loop_func(m, cond, params);
  load_parts(m, cond->returns[0]->type, pred);
  LLVMValueRef go = LLVMBuildExtractElement(b, pred->parts[0], vt_loop_i32(m, 0), "");
  LLVMBasicBlockRef inside = new_block(m, "body"), done = new_block(m, "done");
  LLVMBuildCondBr(b, go, inside, done);
  LLVMPositionBuilderAtEnd(b, inside);
  vt_held *returns = vt_loop_func(m, body, params);
  for (uint32_t i = 0; i < body->return_count; i++)
    if (homes[i] == VT_LOOP_STATE) load_parts(m, body->params[i]->type, &returns[i]);
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  for (uint32_t i = 0; i < body->return_count; i++)
    for (uint32_t c = 0; homes[i] == VT_LOOP_STATE && c < params[i].count; c++)
      phi_from(params[i].parts[c], returns[i].parts[c], latch);
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, done);
}

static void emit_while(vt_loop_code *m, const vt_op *op) {
  const vt_func *body = op->regions[1];
  const uint8_t *homes = vt_loop_homes_of(m->loop, body);
  vt_held *params = operands_of(m, op);
  for (uint32_t i = 0; i < body->return_count; i++) {
    vt_type type = body->params[i]->type;
    if (homes[i] == VT_LOOP_MEMORY && vt_loop_in_registers(type))
      params[i].pointer = carried_room(m, type, &params[i]);
  }
  emit_iterations(m, op, homes, params);
  for (uint32_t i = 0; i < op->result_count; i++) *vt_loop_held(m, &op->results[i]) = params[i];
}

// ---- Branches.

// Where branch `i` of `count` goes.
static void emit_choice(vt_loop_code *m, const vt_op *op, LLVMBasicBlockRef *blocks) {
  LLVMBuilderRef b = m->e->builder;
  uint32_t count = op->region_count;
  LLVMValueRef which = vt_loop_element(m, op->operands[0], 0);
  if (op->code == VT_OP_IF) {
    LLVMBuildCondBr(b, which, blocks[0], blocks[1]);
    return;
  }
  LLVMValueRef choice = LLVMBuildSwitch(b, which, blocks[count - 1], count);
  for (uint32_t i = 0; i + 1 < count; i++) LLVMAddCase(choice, vt_loop_i32(m, i), blocks[i]);
}

// A result of branches that end in `ends`: the same memory, or registers that meet in a phi.
static void join(vt_loop_code *m, const vt_op *op, uint32_t r, vt_held *const *returns,
                 const LLVMBasicBlockRef *ends, bool in_memory) {
  vt_held *out = vt_loop_held(m, &op->results[r]);
  if (in_memory) {
    *out = (vt_held){.pointer = returns[0][r].pointer, .memory = returns[0][r].memory};
    return;
  }
  *out = vt_loop_new(m, op->results[r].type);
  for (uint32_t c = 0; c < out->count; c++) {
    out->parts[c] = LLVMBuildPhi(m->e->builder, LLVMTypeOf(returns[0][r].parts[c]), "");
    for (uint32_t i = 0; i < op->region_count; i++)
      phi_from(out->parts[c], returns[i][r].parts[c], ends[i]);
  }
}

static void emit_branches(vt_loop_code *m, const vt_op *op) {
  LLVMBuilderRef b = m->e->builder;
  uint32_t count = op->region_count;
  LLVMBasicBlockRef *blocks = VT_NEW_ARRAY(&m->arena, LLVMBasicBlockRef, count),
                    *ends = VT_NEW_ARRAY(&m->arena, LLVMBasicBlockRef, count);
  vt_held **returns = VT_NEW_ARRAY(&m->arena, vt_held *, count);
  bool *in_memory = VT_NEW_ARRAY(&m->arena, bool, op->result_count);
  for (uint32_t i = 0; i < count; i++) blocks[i] = new_block(m, "branch");
  emit_choice(m, op, blocks);
  vt_held *operands = operands_of(m, op);
  for (uint32_t i = 0; i < count; i++) {
    LLVMPositionBuilderAtEnd(b, blocks[i]);
    returns[i] = vt_loop_func(m, op->regions[i], operands + 1);
    ends[i] = LLVMGetInsertBlock(b);
  }
  for (uint32_t r = 0; r < op->result_count; r++) {
    vt_held *first = &returns[0][r];
    in_memory[r] = first->memory || !first->parts;
    for (uint32_t i = 1; i < count; i++)
      in_memory[r] &=
          returns[i][r].memory == first->memory && returns[i][r].pointer == first->pointer;
    for (uint32_t i = 0; i < count && !in_memory[r]; i++) {
      LLVMPositionBuilderAtEnd(b, ends[i]);
      load_parts(m, op->results[r].type, &returns[i][r]);
    }
  }
  LLVMBasicBlockRef joined = new_block(m, "joined");
  for (uint32_t i = 0; i < count; i++) {
    LLVMPositionBuilderAtEnd(b, ends[i]);
    LLVMBuildBr(b, joined);
  }
  LLVMPositionBuilderAtEnd(b, joined);
  for (uint32_t r = 0; r < op->result_count; r++) join(m, op, r, returns, ends, in_memory[r]);
}

// ---- Functions.

static void emit_op(vt_loop_code *m, const vt_op *op) {
  switch (op->code) {
  case VT_OP_WHILE:
    emit_while(m, op);
    return;
  case VT_OP_IF:
  case VT_OP_CASE:
    emit_branches(m, op);
    return;
  case VT_OP_CALL:
  case VT_OP_COMPOSITE: {
    vt_held *returns = vt_loop_func(m, vt_op_callee(op), operands_of(m, op));
    for (uint32_t i = 0; i < op->result_count; i++) *vt_loop_held(m, &op->results[i]) = returns[i];
    return;
  }
  default:
    break;
  }
  if (!vt_loop_renames(op)) {
    vt_loop_op(m, op);
    return;
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    *vt_loop_held(m, &op->results[i]) = *vt_loop_held(m, op->operands[i]);
}

vt_held *vt_loop_func(vt_loop_code *m, const vt_func *func, const vt_held *params) {
  vt_held *outer = m->values;
  m->values = VT_NEW_ARRAY(&m->arena, vt_held, func->value_count);
  for (uint32_t i = 0; i < func->param_count; i++) m->values[func->params[i]->id] = params[i];
  for (const vt_op *op = func->first; op; op = op->next) emit_op(m, op);
  vt_held *returns = VT_NEW_ARRAY(&m->arena, vt_held, func->return_count);
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = m->values[func->returns[i]->id];
  m->values = outer;
  return returns;
}

// ---- The loop.

static LLVMValueRef argument(vt_loop_code *m, uint32_t number) {
  LLVMValueRef at = vt_loop_i64(m, number);
  LLVMBuilderRef b = m->e->builder;
  LLVMTypeRef pointer = vt_loop_pointer_type(m);
  LLVMValueRef p = LLVMBuildInBoundsGEP2(b, pointer, LLVMGetParam(m->e->function, 0), &at, 1, "");
  return LLVMBuildLoad2(b, pointer, p, "");
}

// The parameters' values before the first iteration.
static vt_held *emit_entry(vt_loop_code *m, const vt_op *op, const uint8_t *homes) {
  const vt_func *body = op->regions[1];
  vt_held *params = VT_NEW_ARRAY(&m->arena, vt_held, body->param_count);
  for (uint32_t i = 0; i < body->param_count; i++) {
    vt_type type = body->params[i]->type;
    bool memory = homes[i] == VT_LOOP_MEMORY;
    LLVMValueRef pointer = argument(m, memory ? op->operand_count + i : i);
    if (!memory && vt_loop_in_registers(type)) vt_loop_load(m, type, pointer, &params[i]);
    if (memory || homes[i] == VT_LOOP_FIXED) params[i].pointer = pointer;
  }
  return params;
}

static void open_function(vt_loop_code *m, const char *name) {
  vt_emitter *e = m->e;
  LLVMTypeRef params[2] = {vt_loop_pointer_type(m), vt_loop_pointer_type(m)};
  vt_emit_function(e, name, LLVMFunctionType(vt_loop_i32_type(m), params, 2, false));
  m->entry = LLVMGetInsertBlock(e->builder);
  LLVMBuildAlloca(e->builder, vt_loop_i64_type(m), ""); // stack slots are allocated before this
  m->failed = new_block(m, "failed");
  LLVMPositionBuilderAtEnd(e->builder, m->failed);
  LLVMBuildRet(e->builder, vt_loop_i32(m, 1));
  LLVMPositionBuilderAtEnd(e->builder, m->entry);
}

void vt_emit_loop(vt_emitter *e, const vt_loop *loop, const char *name) {
  vt_loop_code m = {.e = e, .loop = loop, .lanes = e->target.lanes};
  const vt_op *op = loop->op;
  const vt_func *body = op->regions[1];
  const uint8_t *homes = vt_loop_homes_of(loop, body);
  open_function(&m, name);
  vt_held *params = emit_entry(&m, op, homes);
  emit_iterations(&m, op, homes, params);
  for (uint32_t i = 0; i < body->return_count; i++)
    if (homes[i] == VT_LOOP_STATE)
      vt_loop_store(&m, body->params[i]->type, &params[i], argument(&m, op->operand_count + i));
  LLVMBuildRet(e->builder, vt_loop_i32(&m, 0));
  e->target.lanes = m.lanes;
  vt_arena_free(&m.arena);
}
