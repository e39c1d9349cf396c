// SPDX-License-Identifier: Apache-2.0
// emit_loop_value.c - values of loops: vectors in registers, their memory, and the way between
// (emit_loop.h).
#include "base/check.h"
#include "host/emit_loop.h"

LLVMTypeRef vt_loop_i64_type(vt_loop_code *m) {
  return LLVMInt64TypeInContext(m->e->context);
}
LLVMTypeRef vt_loop_i32_type(vt_loop_code *m) {
  return LLVMInt32TypeInContext(m->e->context);
}
LLVMTypeRef vt_loop_pointer_type(vt_loop_code *m) {
  return LLVMPointerTypeInContext(m->e->context, 0);
}
LLVMValueRef vt_loop_i64(vt_loop_code *m, int64_t x) {
  return LLVMConstInt(vt_loop_i64_type(m), (uint64_t)x, true);
}
LLVMValueRef vt_loop_i32(vt_loop_code *m, int64_t x) {
  return LLVMConstInt(vt_loop_i32_type(m), (uint64_t)x, false);
}

int vt_loop_lanes(const vt_loop_code *m, vt_type type) {
  int64_t elements = vt_loop_elements(type);
  int lanes = 1;
  while (lanes < elements && lanes < m->lanes) lanes *= 2;
  return lanes;
}

uint32_t vt_loop_vectors(const vt_loop_code *m, vt_type type) {
  int64_t lanes = vt_loop_lanes(m, type);
  return (uint32_t)((vt_loop_elements(type) + lanes - 1) / lanes);
}

int vt_loop_use_lanes(vt_loop_code *m, vt_type type) {
  int before = m->e->target.lanes;
  m->e->target.lanes = vt_loop_lanes(m, type);
  return before;
}

vt_held vt_loop_new(vt_loop_code *m, vt_type type) {
  vt_assert(vt_loop_in_registers(type));
  uint32_t count = vt_loop_vectors(m, type);
  return (vt_held){.count = count, .parts = VT_NEW_ARRAY(&m->arena, LLVMValueRef, count)};
}

// ---- Memory.

LLVMValueRef vt_loop_at_byte(vt_loop_code *m, LLVMValueRef pointer, LLVMValueRef offset) {
  return LLVMBuildInBoundsGEP2(m->e->builder, LLVMInt8TypeInContext(m->e->context), pointer,
                               &offset, 1, "");
}

static LLVMValueRef at_element(vt_loop_code *m, vt_dtype dtype, LLVMValueRef pointer, int64_t at) {
  return vt_loop_at_byte(m, pointer, vt_loop_i64(m, at * (int64_t)vt_dtype_bytes(dtype)));
}

static LLVMTypeRef memory_vector(vt_loop_code *m, vt_dtype dtype) {
  return LLVMVectorType(vt_emit_memory_type(m->e, dtype), (unsigned)m->e->target.lanes);
}

LLVMValueRef vt_loop_load_element(vt_loop_code *m, vt_dtype dtype, LLVMValueRef pointer,
                                  int64_t at) {
  return LLVMBuildLoad2(m->e->builder, vt_emit_memory_type(m->e, dtype),
                        at_element(m, dtype, pointer, at), "");
}

LLVMValueRef vt_loop_load_vector(vt_loop_code *m, vt_dtype dtype, LLVMValueRef pointer,
                                 int64_t at) {
  if (m->e->target.lanes == 1)
    return vt_emit_from_memory(m->e, dtype,
                               vt_emit_spread(m->e, vt_loop_load_element(m, dtype, pointer, at)));
  LLVMValueRef load =
      LLVMBuildLoad2(m->e->builder, memory_vector(m, dtype), at_element(m, dtype, pointer, at), "");
  LLVMSetAlignment(load, (unsigned)vt_dtype_bytes(dtype));
  return vt_emit_from_memory(m->e, dtype, load);
}

void vt_loop_store_row(vt_loop_code *m, vt_dtype dtype, LLVMValueRef x, int64_t count,
                       LLVMValueRef pointer) {
  LLVMBuilderRef b = m->e->builder;
  int lanes = m->e->target.lanes;
  unsigned bytes = (unsigned)vt_dtype_bytes(dtype);
  x = vt_emit_to_memory(m->e, dtype, x);
  if (count == 1) {
    LLVMBuildStore(b, LLVMBuildExtractElement(b, x, vt_loop_i32(m, 0), ""), pointer);
  } else if (count >= lanes) {
    LLVMSetAlignment(LLVMBuildStore(b, x, pointer), bytes);
  } else {
    LLVMValueRef mask[VT_MOST_LANES];
    for (int l = 0; l < lanes; l++)
      mask[l] = LLVMConstInt(LLVMInt1TypeInContext(m->e->context), l < count, false);
    LLVMTypeRef types[2] = {LLVMTypeOf(x), vt_loop_pointer_type(m)};
    LLVMValueRef args[4] = {x, pointer, vt_loop_i32(m, bytes),
                            LLVMConstVector(mask, (unsigned)lanes)};
    vt_emit_intrinsic(m->e, "llvm.masked.store", 2, types, 4, args);
  }
}

void vt_loop_load(vt_loop_code *m, vt_type type, LLVMValueRef pointer, vt_held *out) {
  int before = vt_loop_use_lanes(m, type);
  *out = vt_loop_new(m, type);
  for (uint32_t i = 0; i < out->count; i++)
    out->parts[i] = vt_loop_load_vector(m, type.dtype, pointer, (int64_t)i * m->e->target.lanes);
  m->e->target.lanes = before;
}

// Stores exactly the elements of the value.
void vt_loop_store(vt_loop_code *m, vt_type type, const vt_held *held, LLVMValueRef pointer) {
  int before = vt_loop_use_lanes(m, type);
  int64_t lanes = m->e->target.lanes, elements = vt_loop_elements(type);
  for (uint32_t i = 0; i < held->count; i++)
    vt_loop_store_row(m, type.dtype, held->parts[i], elements - i * lanes,
                      at_element(m, type.dtype, pointer, i * lanes));
  m->e->target.lanes = before;
}

LLVMValueRef vt_loop_room(vt_loop_code *m, int64_t bytes) {
  LLVMBuilderRef b = m->e->builder;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(m->entry));
  LLVMValueRef room =
      LLVMBuildArrayAlloca(b, LLVMInt8TypeInContext(m->e->context), vt_loop_i64(m, bytes), "");
  LLVMSetAlignment(room, 64);
  LLVMPositionBuilderAtEnd(b, here);
  return room;
}

LLVMValueRef vt_loop_room_of(vt_loop_code *m, vt_type type) {
  int64_t vector = (int64_t)vt_dtype_bytes(type.dtype) * m->lanes;
  return vt_loop_room(m, vector * (vt_loop_elements(type) / m->lanes + 2));
}

vt_held *vt_loop_parts(vt_loop_code *m, const vt_value *value) {
  vt_held *s = vt_loop_held(m, value);
  if (s->parts) return s;
  vt_held loaded;
  vt_loop_load(m, value->type, s->pointer, &loaded);
  s->count = loaded.count;
  s->parts = loaded.parts;
  return s;
}

LLVMValueRef vt_loop_memory(vt_loop_code *m, const vt_value *value) {
  vt_held *s = vt_loop_held(m, value);
  if (s->pointer) return s->pointer;
  s->pointer = vt_loop_room_of(m, value->type);
  int before = vt_loop_use_lanes(m, value->type);
  int64_t lanes = m->e->target.lanes;
  for (uint32_t i = 0; i < s->count; i++) // there is room past its end
    vt_loop_store_row(m, value->type.dtype, s->parts[i], lanes,
                      at_element(m, value->type.dtype, s->pointer, i * lanes));
  m->e->target.lanes = before;
  return s->pointer;
}

// ---- Elements.

LLVMValueRef vt_loop_element(vt_loop_code *m, const vt_value *value, int64_t at) {
  const vt_held *s = vt_loop_parts(m, value);
  int64_t lanes = vt_loop_lanes(m, value->type);
  return LLVMBuildExtractElement(m->e->builder, s->parts[at / lanes], vt_loop_i32(m, at % lanes),
                                 "");
}

// The lanes from one or two vectors of the value; NULL if there are more.
static LLVMValueRef shuffle(vt_loop_code *m, const vt_value *value, const int64_t *at) {
  const vt_held *s = vt_loop_held(m, value);
  int64_t lanes = vt_loop_lanes(m, value->type), from[2] = {at[0] / lanes, -1};
  LLVMValueRef order[VT_MOST_LANES];
  for (int l = 0; l < m->e->target.lanes; l++) {
    int64_t part = at[l] / lanes;
    if (part >= s->count) part = from[0]; // past the end: any lane
    if (part != from[0] && from[1] < 0) from[1] = part;
    if (part != from[0] && part != from[1]) return NULL;
    order[l] = vt_loop_i32(m, at[l] % lanes + (part == from[0] ? 0 : lanes));
  }
  LLVMValueRef first = s->parts[from[0]];
  LLVMValueRef second = from[1] < 0 ? LLVMGetPoison(LLVMTypeOf(first)) : s->parts[from[1]];
  return LLVMBuildShuffleVector(m->e->builder, first, second,
                                LLVMConstVector(order, (unsigned)m->e->target.lanes), "");
}

LLVMValueRef vt_loop_load_lanes(vt_loop_code *m, const vt_value *value, const int64_t *at) {
  const vt_held *s = vt_loop_held(m, value);
  vt_dtype dtype = value->type.dtype;
  int lanes = m->e->target.lanes, own = vt_loop_lanes(m, value->type);
  bool same = true, row = true;
  for (int l = 1; l < lanes; l++) {
    same &= at[l] == at[0];
    row &= at[l] == at[0] + l;
  }
  if (row && s->parts && own == lanes && at[0] % lanes == 0) return s->parts[at[0] / lanes];
  if (s->parts && (!s->pointer || own == 1)) {
    LLVMValueRef x = shuffle(m, value, at);
    if (x) return x;
  }
  LLVMValueRef pointer = vt_loop_memory(m, value);
  if (row) return vt_loop_load_vector(m, dtype, pointer, at[0]);
  if (same)
    return vt_emit_from_memory(
        m->e, dtype, vt_emit_spread(m->e, vt_loop_load_element(m, dtype, pointer, at[0])));
  LLVMValueRef x = LLVMGetPoison(memory_vector(m, dtype));
  for (int l = 0; l < lanes; l++)
    x = LLVMBuildInsertElement(m->e->builder, x, vt_loop_load_element(m, dtype, pointer, at[l]),
                               vt_loop_i32(m, l), "");
  return vt_emit_from_memory(m->e, dtype, x);
}
