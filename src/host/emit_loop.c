// SPDX-License-Identifier: Apache-2.0
// emit_loop.c - the code of a loop (loop.h).
//
// A value of n elements is ceil(n / lanes) vectors; lanes past its end are never read. A value of
// one element is a splat. Ops that move elements go through stack memory, unless they move whole
// vectors. Each element is computed as in emit_nest.c; sums follow the order of the terms, except
// sums to one element: these add whole vectors first, then the lanes as a tree.
#include <string.h>

#include "host/loop.h"
#include "ir/precision.h"

enum { MOST_LANES = 16, MOST_VECTORS = VT_LOOP_ELEMENTS / 8 };

typedef struct state {
  uint32_t count;       // of vectors
  LLVMValueRef *parts;  // NULL if only in memory
  LLVMValueRef pointer; // of its elements in memory form; NULL until needed
} state;

typedef struct emission {
  vt_emitter *e;
  const vt_loop *loop;
  vt_arena arena;
  LLVMBasicBlockRef entry; // holds what is allocated on the stack
  state *values;           // of the function being emitted, by id
} emission;

static LLVMTypeRef i64_type(emission *m) {
  return LLVMInt64TypeInContext(m->e->context);
}
static LLVMTypeRef i32_type(emission *m) {
  return LLVMInt32TypeInContext(m->e->context);
}
static LLVMTypeRef pointer_type(emission *m) {
  return LLVMPointerTypeInContext(m->e->context, 0);
}
static LLVMValueRef i64_constant(emission *m, int64_t x) {
  return LLVMConstInt(i64_type(m), (uint64_t)x, true);
}
static LLVMValueRef i32_constant(emission *m, int64_t x) {
  return LLVMConstInt(i32_type(m), (uint64_t)x, false);
}

static uint32_t vectors_of(emission *m, vt_type type) {
  int64_t lanes = m->e->target.lanes;
  return (uint32_t)((vt_type_elements(type) + lanes - 1) / lanes);
}

static state *state_of(emission *m, const vt_value *value) {
  return &m->values[value->id];
}

static state new_state(emission *m, vt_type type) {
  uint32_t count = vectors_of(m, type);
  return (state){.count = count, .parts = VT_NEW_ARRAY(&m->arena, LLVMValueRef, count)};
}

static LLVMValueRef part_of(const state *s, uint32_t i) {
  return s->parts[s->count == 1 ? 0 : i];
}

// ---- Memory.

static LLVMValueRef at_byte(emission *m, LLVMValueRef pointer, LLVMValueRef offset) {
  return LLVMBuildInBoundsGEP2(m->e->builder, LLVMInt8TypeInContext(m->e->context), pointer,
                               &offset, 1, "");
}

static LLVMTypeRef memory_vector(emission *m, vt_dtype dtype) {
  return LLVMVectorType(vt_emit_memory_type(m->e, dtype), (unsigned)m->e->target.lanes);
}

static LLVMValueRef load_element(emission *m, vt_dtype dtype, LLVMValueRef pointer, int64_t at) {
  int64_t bytes = (int64_t)vt_dtype_bytes(dtype);
  return LLVMBuildLoad2(m->e->builder, vt_emit_memory_type(m->e, dtype),
                        at_byte(m, pointer, i64_constant(m, at * bytes)), "");
}

static LLVMValueRef load_vector(emission *m, vt_dtype dtype, LLVMValueRef pointer, int64_t at) {
  unsigned bytes = (unsigned)vt_dtype_bytes(dtype);
  LLVMValueRef load = LLVMBuildLoad2(m->e->builder, memory_vector(m, dtype),
                                     at_byte(m, pointer, i64_constant(m, at * (int64_t)bytes)), "");
  LLVMSetAlignment(load, bytes);
  return vt_emit_from_memory(m->e, dtype, load);
}

static void load_value(emission *m, vt_type type, LLVMValueRef pointer, state *out) {
  *out = new_state(m, type);
  if (vt_type_elements(type) == 1)
    out->parts[0] = vt_emit_from_memory(
        m->e, type.dtype, vt_emit_spread(m->e, load_element(m, type.dtype, pointer, 0)));
  else
    for (uint32_t i = 0; i < out->count; i++)
      out->parts[i] = load_vector(m, type.dtype, pointer, (int64_t)i * m->e->target.lanes);
}

// Stores exactly the elements of the value.
static void store_value(emission *m, vt_type type, const state *s, LLVMValueRef pointer) {
  LLVMBuilderRef b = m->e->builder;
  int64_t lanes = m->e->target.lanes, elements = vt_type_elements(type);
  unsigned bytes = (unsigned)vt_dtype_bytes(type.dtype);
  for (uint32_t i = 0; i < s->count; i++) {
    LLVMValueRef x = vt_emit_to_memory(m->e, type.dtype, s->parts[i]);
    int64_t left = elements - i * lanes;
    LLVMValueRef to = at_byte(m, pointer, i64_constant(m, i * lanes * (int64_t)bytes));
    if (left >= lanes) {
      LLVMSetAlignment(LLVMBuildStore(b, x, to), bytes);
    } else if (left == 1) {
      LLVMBuildStore(b, LLVMBuildExtractElement(b, x, i32_constant(m, 0), ""), to);
    } else {
      LLVMValueRef mask[MOST_LANES];
      for (int64_t l = 0; l < lanes; l++)
        mask[l] = LLVMConstInt(LLVMInt1TypeInContext(m->e->context), l < left, false);
      LLVMTypeRef types[2] = {LLVMTypeOf(x), pointer_type(m)};
      LLVMValueRef args[4] = {x, to, i32_constant(m, bytes),
                              LLVMConstVector(mask, (unsigned)lanes)};
      vt_emit_intrinsic(m->e, "llvm.masked.store", 2, types, 4, args);
    }
  }
}

// The value's address: where it already is, or on the stack with room for one vector past its end.
static LLVMValueRef memory_of(emission *m, const vt_value *value) {
  state *s = state_of(m, value);
  LLVMBuilderRef b = m->e->builder;
  if (s->pointer) return s->pointer;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(m->entry));
  int64_t bytes = (int64_t)vt_dtype_bytes(value->type.dtype) * m->e->target.lanes;
  LLVMValueRef room = LLVMBuildArrayAlloca(b, LLVMInt8TypeInContext(m->e->context),
                                           i64_constant(m, bytes * (s->count + 1)), "");
  LLVMSetAlignment(room, 64);
  LLVMPositionBuilderAtEnd(b, here);
  for (uint32_t i = 0; i < s->count; i++) {
    LLVMValueRef x = vt_emit_to_memory(m->e, value->type.dtype, s->parts[i]);
    LLVMValueRef to = at_byte(m, room, i64_constant(m, (int64_t)i * bytes));
    LLVMSetAlignment(LLVMBuildStore(b, x, to),
                     64 < bytes ? 64 : (unsigned)vt_dtype_bytes(value->type.dtype));
  }
  return s->pointer = room;
}

// A vector whose lane l is element at[l] of the value.
static LLVMValueRef load_lanes(emission *m, const vt_value *value, const int64_t *at) {
  const state *s = state_of(m, value);
  vt_dtype dtype = value->type.dtype;
  int lanes = m->e->target.lanes;
  bool same = true, row = true;
  for (int l = 1; l < lanes; l++) {
    same &= at[l] == at[0];
    row &= at[l] == at[0] + l;
  }
  if (same && s->parts && vt_type_elements(value->type) == 1) return s->parts[0];
  if (row && s->parts && at[0] % lanes == 0) return s->parts[at[0] / lanes];
  LLVMValueRef pointer = memory_of(m, value);
  if (row) return load_vector(m, dtype, pointer, at[0]);
  if (same)
    return vt_emit_from_memory(m->e, dtype,
                               vt_emit_spread(m->e, load_element(m, dtype, pointer, at[0])));
  LLVMValueRef x = LLVMGetPoison(memory_vector(m, dtype));
  for (int l = 0; l < lanes; l++)
    x = LLVMBuildInsertElement(m->e->builder, x, load_element(m, dtype, pointer, at[l]),
                               i32_constant(m, l), "");
  return vt_emit_from_memory(m->e, dtype, x);
}

// ---- Ops.

static LLVMValueRef constant_lane(emission *m, vt_type type, const void *data) {
  vt_literal one = {.type = {type.dtype, 0, NULL}, .data = data, .splat = true};
  return LLVMGetAggregateElement(vt_emit_constant(m->e, &one), 0);
}

static void emit_constant(emission *m, const vt_op *op, state *out) {
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  int64_t elements = vt_type_elements(literal->type), lanes = m->e->target.lanes;
  int64_t bytes = (int64_t)vt_dtype_bytes(literal->type.dtype);
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef parts[MOST_LANES];
    for (int64_t l = 0; l < lanes; l++) {
      int64_t at = i * lanes + l;
      if (at >= elements) at = elements - 1;
      parts[l] = constant_lane(m, literal->type,
                               (const char *)literal->data + (literal->splat ? 0 : at * bytes));
    }
    out->parts[i] = LLVMConstVector(parts, (unsigned)lanes);
  }
}

static void emit_iota(emission *m, const vt_op *op, state *out) {
  vt_type type = op->results[0].type;
  int64_t inner = 1, elements = vt_type_elements(type), lanes = m->e->target.lanes;
  int64_t d = vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION);
  for (int32_t i = (int32_t)d + 1; i < type.rank; i++) inner *= type.dims[i];
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef parts[MOST_LANES];
    for (int64_t l = 0; l < lanes; l++) {
      int64_t at = i * lanes + l < elements ? (i * lanes + l) / inner % type.dims[d] : 0;
      LLVMValueRef x = vt_dtype_is_float(type.dtype) ? vt_emit_splat_f(m->e, type.dtype, (double)at)
                                                     : vt_emit_splat_i(m->e, type.dtype, at);
      parts[l] = LLVMGetAggregateElement(x, 0);
    }
    out->parts[i] = vt_emit_round(m->e, type.dtype, LLVMConstVector(parts, (unsigned)lanes));
  }
}

static void emit_move(emission *m, const vt_op *op, state *out) {
  int64_t elements = vt_type_elements(op->results[0].type), lanes = m->e->target.lanes;
  for (uint32_t i = 0; i < out->count; i++) {
    vt_loop_place from[MOST_LANES] = {{0}};
    int64_t at[MOST_LANES];
    bool one = true;
    for (int64_t l = 0; l < lanes; l++) {
      int64_t to = i * lanes + l;
      if (to < elements) {
        from[l] = vt_loop_source(op, to);
      } else { // keep position: a row stays a row
        from[l] = from[l - 1];
        if (l > 1 && from[l - 1].element == from[l - 2].element + 1) from[l].element++;
      }
      at[l] = from[l].element;
      one &= from[l].operand == from[0].operand;
    }
    if (elements == 1)
      for (int64_t l = 1; l < lanes; l++) at[l] = at[0];
    if (one) {
      out->parts[i] = load_lanes(m, op->operands[from[0].operand], at);
      continue;
    }
    vt_dtype dtype = op->results[0].type.dtype;
    LLVMValueRef x = LLVMGetPoison(memory_vector(m, dtype));
    for (int64_t l = 0; l < lanes && i * lanes + l < elements; l++) {
      LLVMValueRef pointer = memory_of(m, op->operands[from[l].operand]);
      x = LLVMBuildInsertElement(m->e->builder, x, load_element(m, dtype, pointer, at[l]),
                                 i32_constant(m, l), "");
    }
    out->parts[i] = vt_emit_from_memory(m->e, dtype, x);
  }
}

static LLVMValueRef term(emission *m, const vt_op *op, uint32_t operand, uint32_t part, int64_t k) {
  int64_t elements = vt_type_elements(op->results[0].type), lanes = m->e->target.lanes;
  int64_t at[MOST_LANES];
  for (int64_t l = 0; l < lanes; l++) {
    int64_t to = part * lanes + l;
    if (to < elements)
      at[l] = vt_loop_term(op, operand, to, k);
    else
      at[l] = l > 1 && at[l - 1] != at[l - 2] + 1 ? at[l - 1] : at[l - 1] + (l > 1);
  }
  return load_lanes(m, op->operands[operand], at);
}

static LLVMValueRef tree(emission *m, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x) {
  int lanes = m->e->target.lanes;
  for (int by = lanes / 2; by > 0; by /= 2) {
    x = vt_emit_combine(m->e, reducer, dtype, x, vt_emit_lanes_down(m->e, x, by));
  }
  return vt_emit_spread(m->e, LLVMBuildExtractElement(m->e->builder, x, i32_constant(m, 0), ""));
}

static void emit_reduce(emission *m, const vt_op *op, state *out) {
  vt_reducer reducer = vt_reducer_of(op);
  vt_type type = op->operands[0]->type;
  vt_dtype dtype = vt_emit_compute_dtype(type.dtype);
  int64_t lanes = m->e->target.lanes, terms = vt_loop_terms(op);
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef sum = vt_emit_neutral(m->e, reducer, dtype);
    if (vt_type_elements(op->results[0].type) > 1) {
      for (int64_t k = 0; k < terms; k++)
        sum = vt_emit_combine(m->e, reducer, dtype, sum, term(m, op, 0, i, k));
    } else if (vt_type_elements(type) == 1) {
      sum = part_of(state_of(m, op->operands[0]), 0);
    } else {
      const state *s = state_of(m, op->operands[0]);
      LLVMValueRef neutral = sum;
      for (uint32_t c = 0; c < s->count; c++) {
        LLVMValueRef x = s->parts[c], mask[MOST_LANES];
        for (int64_t l = 0; l < lanes; l++)
          mask[l] = LLVMConstInt(LLVMInt1TypeInContext(m->e->context),
                                 c * lanes + l < vt_type_elements(type), false);
        if ((c + 1) * lanes > vt_type_elements(type))
          x = LLVMBuildSelect(m->e->builder, LLVMConstVector(mask, (unsigned)lanes), x, neutral,
                              "");
        sum = vt_emit_combine(m->e, reducer, dtype, sum, x);
      }
      sum = tree(m, reducer, dtype, sum);
    }
    out->parts[i] = vt_emit_round(m->e, op->results[0].type.dtype, sum);
  }
}

// The code generator would add up one vector of sums after the other, each waiting for itself.
// Volatile loads stay in order: as many sums as there are registers stay side by side.
static LLVMValueRef in_order(const state *out, LLVMValueRef x) {
  enum { SUMS = 12 };
  if (out->count > 1 && out->count <= SUMS && LLVMIsALoadInst(x)) LLVMSetVolatile(x, true);
  return x;
}

// Operands that the matrix unit rounds were rounded by passes/opt_lower_precision.c, or are rounded
// here.
static void emit_dot(emission *m, const vt_op *op, state *out) {
  bool rounds = vt_op_rounds_operands(op);
  LLVMTypeRef type = vt_emit_type(m->e, VT_F32);
  int64_t terms = vt_loop_terms(op);
  LLVMValueRef sums[MOST_VECTORS];
  for (uint32_t i = 0; i < out->count; i++) sums[i] = vt_emit_splat_f(m->e, VT_F32, 0);
  for (int64_t k = 0; k < terms; k++)
    for (uint32_t i = 0; i < out->count; i++) {
      LLVMValueRef args[3] = {in_order(out, term(m, op, 0, i, k)),
                              in_order(out, term(m, op, 1, i, k)), sums[i]};
      for (int o = 0; o < 2 && rounds; o++) args[o] = vt_emit_round(m->e, VT_BF16, args[o]);
      if (m->e->target.fma)
        sums[i] = vt_emit_intrinsic(m->e, "llvm.fma", 1, &type, 3, args);
      else
        sums[i] = LLVMBuildFAdd(m->e->builder, sums[i],
                                LLVMBuildFMul(m->e->builder, args[0], args[1], ""), "");
    }
  for (uint32_t i = 0; i < out->count; i++)
    out->parts[i] = vt_emit_round(m->e, op->results[0].type.dtype, sums[i]);
}

// Byte offset of a slice whose starts are clamped so that it fits.
static LLVMValueRef slice_offset(emission *m, const vt_op *op, uint32_t first, vt_type whole,
                                 const int64_t *sizes) {
  LLVMBuilderRef b = m->e->builder;
  LLVMValueRef offset = i64_constant(m, 0);
  int64_t stride = (int64_t)vt_dtype_bytes(whole.dtype);
  for (int32_t d = whole.rank; d-- > 0; stride *= whole.dims[d]) {
    int64_t most = whole.dims[d] - sizes[d];
    if (most == 0) continue;
    const vt_value *start = op->operands[first + (uint32_t)d];
    bool is_signed = vt_dtype_kind_of(start->type.dtype) == VT_KIND_SIGNED;
    LLVMValueRef x =
        LLVMBuildExtractElement(b, part_of(state_of(m, start), 0), i32_constant(m, 0), "");
    if (vt_dtype_get(start->type.dtype)->bits < 64)
      x = is_signed ? LLVMBuildSExt(b, x, i64_type(m), "") : LLVMBuildZExt(b, x, i64_type(m), "");
    LLVMValueRef top = i64_constant(m, most), zero = i64_constant(m, 0);
    LLVMValueRef over = LLVMBuildICmp(b, is_signed ? LLVMIntSGT : LLVMIntUGT, x, top, "");
    x = LLVMBuildSelect(b, over, top, x, "");
    if (is_signed) x = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, x, zero, ""), zero, x, "");
    offset = LLVMBuildAdd(b, offset, LLVMBuildMul(b, x, i64_constant(m, stride), ""), "");
  }
  return offset;
}

static void emit_elementwise(emission *m, const vt_op *op, state *out) {
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef operands[3];
    for (uint32_t k = 0; k < op->operand_count; k++)
      operands[k] = part_of(state_of(m, op->operands[k]), i);
    out->parts[i] = vt_emit_op(m->e, op, operands);
  }
}

static void emit_op(emission *m, const vt_op *op) {
  vt_type type = op->results[0].type;
  state *out = state_of(m, &op->results[0]);
  uint32_t count;
  if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE) {
    vt_type part = op->operands[1]->type;
    LLVMValueRef pointer = state_of(m, op->operands[0])->pointer;
    store_value(m, part, state_of(m, op->operands[1]),
                at_byte(m, pointer, slice_offset(m, op, 2, type, part.dims)));
    *out = (state){.pointer = pointer};
    return;
  }
  *out = new_state(m, type);
  switch (op->code) {
  case VT_OP_CONSTANT:
    emit_constant(m, op, out);
    return;
  case VT_OP_IOTA:
    emit_iota(m, op, out);
    return;
  case VT_OP_RESHAPE:
    *out = *state_of(m, op->operands[0]);
    return;
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_TRANSPOSE:
  case VT_OP_SLICE:
  case VT_OP_CONCATENATE:
  case VT_OP_REVERSE:
    emit_move(m, op, out);
    return;
  case VT_OP_DYNAMIC_SLICE: {
    const int64_t *sizes = vt_attr_ints(op, VT_ATTR_SLICE_SIZES, &count);
    LLVMValueRef offset = slice_offset(m, op, 1, op->operands[0]->type, sizes);
    load_value(m, type, at_byte(m, memory_of(m, op->operands[0]), offset), out);
    return;
  }
  case VT_OP_REDUCE:
    emit_reduce(m, op, out);
    return;
  case VT_OP_DOT_GENERAL:
    emit_dot(m, op, out);
    return;
  default:
    emit_elementwise(m, op, out);
  }
}

// ---- The loop.

static LLVMValueRef argument(emission *m, uint32_t number) {
  LLVMValueRef at = i64_constant(m, number);
  LLVMValueRef args = LLVMGetParam(m->e->function, 0);
  LLVMBuilderRef b = m->e->builder;
  LLVMValueRef p = LLVMBuildInBoundsGEP2(b, pointer_type(m), args, &at, 1, "");
  return LLVMBuildLoad2(b, pointer_type(m), p, "");
}

// The parameters' values before the first iteration.
static state *emit_entry(emission *m) {
  const vt_loop *loop = m->loop;
  state *params = VT_NEW_ARRAY(&m->arena, state, loop->body->param_count);
  for (uint32_t i = 0; i < loop->body->param_count; i++) {
    vt_type type = loop->body->params[i]->type;
    bool growing = loop->homes[i] == VT_LOOP_GROWING;
    LLVMValueRef pointer = argument(m, growing ? loop->op->operand_count + i : i);
    if (!growing && vt_loop_in_registers(type)) load_value(m, type, pointer, &params[i]);
    if (growing || loop->homes[i] == VT_LOOP_FIXED) params[i].pointer = pointer;
  }
  return params;
}

static void emit_func(emission *m, const vt_func *func, const state *params) {
  m->values = VT_NEW_ARRAY(&m->arena, state, func->value_count);
  for (uint32_t i = 0; i < func->param_count; i++) m->values[func->params[i]->id] = params[i];
  for (const vt_op *op = func->first; op; op = op->next) emit_op(m, op);
}

static void open_function(emission *m, const char *name) {
  vt_emitter *e = m->e;
  LLVMTypeRef p = pointer_type(m);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), &p, 1, false);
  vt_emit_function(e, name, type);
  m->entry = LLVMGetInsertBlock(e->builder);
  LLVMBuildAlloca(e->builder, i64_type(m), ""); // stack slots are allocated before this
}

static void phi_from(LLVMValueRef phi, LLVMValueRef value, LLVMBasicBlockRef from) {
  LLVMAddIncoming(phi, &value, &from, 1);
}

void vt_emit_loop(vt_emitter *e, const vt_loop *loop, const char *name) {
  emission m = {.e = e, .loop = loop};
  LLVMBuilderRef b = e->builder;
  open_function(&m, name);
  state *params = emit_entry(&m);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef head = LLVMAppendBasicBlockInContext(e->context, e->function, "iteration");
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, head);
  for (uint32_t i = 0; i < loop->carried; i++)
    for (uint32_t c = 0; loop->homes[i] == VT_LOOP_STATE && c < params[i].count; c++) {
      LLVMValueRef phi = LLVMBuildPhi(b, LLVMTypeOf(params[i].parts[c]), "");
      phi_from(phi, params[i].parts[c], before);
      params[i].parts[c] = phi;
    }
  emit_func(&m, loop->cond, params);
  LLVMValueRef go = LLVMBuildExtractElement(b, state_of(&m, loop->cond->returns[0])->parts[0],
                                            i32_constant(&m, 0), "");
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->context, e->function, "body");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, e->function, "done");
  LLVMBuildCondBr(b, go, body, done);
  LLVMPositionBuilderAtEnd(b, body);
  emit_func(&m, loop->body, params);
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  for (uint32_t i = 0; i < loop->carried; i++)
    for (uint32_t c = 0; loop->homes[i] == VT_LOOP_STATE && c < params[i].count; c++)
      phi_from(params[i].parts[c], state_of(&m, loop->body->returns[i])->parts[c], latch);
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, done);
  for (uint32_t i = 0; i < loop->carried; i++)
    if (loop->homes[i] == VT_LOOP_STATE)
      store_value(&m, loop->body->params[i]->type, &params[i],
                  argument(&m, loop->op->operand_count + i));
  LLVMBuildRetVoid(b);
  vt_arena_free(&m.arena);
}
