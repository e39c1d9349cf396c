// SPDX-License-Identifier: Apache-2.0
// emit_nest.c - the loops of a nest: rows, passes over a row's columns, reductions, stores.
// In:  a vt_nest. Out: one LLVM function of type vt_nest_fn, and the text key and numbers that go
// with it.
//
// Form: for each row { addresses; row values; for each stage { for columns by vectors { loads, ops,
// stores, reduction steps }; reduce the lanes; row values of the next stage }; row stores }.
// A scatter instead cuts each row into blocks (emit_scatter.c).
// Nothing is sized at compile time, so one function serves all shapes of the same structure. Loads
// always read whole vectors (memory behind the end is readable); stores are masked only where rows
// end inside a vector.
// A value of an earlier stage is computed again in a later pass unless that costs more than memory:
// then the pass that had it keeps it in a row buffer on the stack. What is the same in all rows and
// takes more than a load is in such a buffer before the first row.
#include <string.h>

#include "base/check.h"
#include "host/emit_nest.h"

enum { KEEP_COST = 6 };     // ops of recomputation that pay for a row buffer
enum { BRANCH_COST = 16 };  // instructions that pay for a branch around them
enum { GATHER_AHEAD = 64 }; // elements
enum { BEFORE_ROWS = -2 };  // a pass

// ---- Small builders.

static LLVMValueRef load_dim(loops *l, uint32_t index) {
  LLVMValueRef at = i64_constant(l, index);
  LLVMValueRef p = LLVMBuildInBoundsGEP2(l->e->builder, i64_type(l), l->dims, &at, 1, "");
  return LLVMBuildLoad2(l->e->builder, i64_type(l), p, "");
}

LLVMValueRef vt_nest_lane_numbers(loops *l, LLVMTypeRef element) {
  LLVMValueRef lanes[64];
  for (int i = 0; i < l->e->target.lanes; i++) lanes[i] = LLVMConstInt(element, (unsigned)i, false);
  return LLVMConstVector(lanes, (unsigned)l->e->target.lanes);
}

static LLVMTypeRef memory_vector(loops *l, vt_dtype dtype) {
  return LLVMVectorType(vt_emit_memory_type(l->e, dtype), (unsigned)l->e->target.lanes);
}

static LLVMValueRef at_column(loops *l, vt_dtype dtype, LLVMValueRef pointer) {
  return LLVMBuildGEP2(l->e->builder, vt_emit_memory_type(l->e, dtype), pointer, &l->column, 1, "");
}

LLVMValueRef vt_nest_load(loops *l, vt_dtype dtype, LLVMValueRef pointer) {
  LLVMValueRef load =
      LLVMBuildLoad2(l->e->builder, memory_vector(l, dtype), at_column(l, dtype, pointer), "");
  LLVMSetAlignment(load, (unsigned)vt_dtype_bytes(dtype));
  return vt_emit_from_memory(l->e, dtype, load);
}

LLVMValueRef vt_nest_load_splat(loops *l, vt_dtype dtype, LLVMValueRef pointer) {
  LLVMValueRef load = LLVMBuildLoad2(l->e->builder, vt_emit_memory_type(l->e, dtype), pointer, "");
  return vt_emit_from_memory(l->e, dtype, vt_emit_spread(l->e, load));
}

void vt_nest_store(loops *l, vt_dtype dtype, LLVMValueRef pointer, LLVMValueRef x, bool masked) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef memory = vt_emit_to_memory(l->e, dtype, x);
  unsigned bytes = (unsigned)vt_dtype_bytes(dtype);
  pointer = at_column(l, dtype, pointer);
  if (!masked) {
    LLVMSetAlignment(LLVMBuildStore(b, memory, pointer), bytes);
    return;
  }
  LLVMTypeRef types[2] = {LLVMTypeOf(memory), pointer_type(l)};
  LLVMValueRef args[4] = {memory, pointer, LLVMConstInt(i32_type(l), bytes, false), l->mask};
  vt_emit_intrinsic(l->e, "llvm.masked.store", 2, types, 4, args);
}

void vt_nest_store_first(loops *l, vt_dtype dtype, LLVMValueRef pointer, LLVMValueRef x) {
  LLVMBuildStore(l->e->builder, first_lane(l, vt_emit_to_memory(l->e, dtype, x)), pointer);
}

// ---- Values.

// Of the columns of this vector the places under a folded access, from the row's first element; the
// last one stands for lanes behind it. 32 bits hold them.
static LLVMValueRef folded_places(loops *l, node_state *s, const vt_nest_node *n) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef column = vt_nest_lane_numbers(l, i32_type(l)), strides[2];
  if (vt_node_fold(l->nest, n) != VT_FOLD_SAME) {
    LLVMValueRef first = LLVMBuildTrunc(b, l->column, i32_type(l), "");
    LLVMValueRef last = LLVMBuildTrunc(b, l->columns, i32_type(l), "");
    last = vt_emit_spread(l->e, LLVMBuildSub(b, last, LLVMConstInt(i32_type(l), 1, false), ""));
    column = LLVMBuildAdd(b, vt_emit_spread(l->e, first), column, "");
    column = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntUGT, column, last, ""), last, column, "");
  }
  for (uint32_t i = 0; i < 2; i++) {
    LLVMValueRef number = load_dim(l, s->slot + (uint32_t)l->nest->atom_count + i);
    strides[i] = vt_emit_spread(l->e, LLVMBuildTrunc(b, number, i32_type(l), ""));
  }
  LLVMValueRef width = vt_emit_splat_i(l->e, VT_S32, l->nest->fold);
  LLVMValueRef row = LLVMBuildUDiv(b, column, width, "");
  column = LLVMBuildSub(b, column, LLVMBuildMul(b, row, width, ""), "");
  return LLVMBuildAdd(b, LLVMBuildMul(b, row, strides[0], ""),
                      LLVMBuildMul(b, column, strides[1], ""), "");
}

// A vector of memory elements at byte offsets from the row's first.
static LLVMValueRef gather_lanes(loops *l, const node_state *s, vt_dtype dtype,
                                 LLVMValueRef offset) {
  vt_emitter *e = l->e;
  LLVMValueRef pointers = byte_offset(l, s->row_pointer, offset);
  LLVMTypeRef types[2] = {memory_vector(l, dtype), LLVMTypeOf(pointers)};
  LLVMValueRef all = LLVMConstAllOnes(
      LLVMVectorType(LLVMInt1TypeInContext(e->context), (unsigned)e->target.lanes));
  LLVMValueRef bytes = LLVMConstInt(i32_type(l), (unsigned)vt_dtype_bytes(dtype), false);
  LLVMValueRef args[4] = {pointers, bytes, all, LLVMGetPoison(types[0])};
  return vt_emit_intrinsic(e, "llvm.masked.gather", 2, types, 4, args);
}

static LLVMValueRef folded_load(loops *l, node_state *s, const vt_nest_node *n) {
  LLVMBuilderRef b = l->e->builder;
  vt_dtype dtype = n->value->type.dtype;
  if (vt_node_fold(l->nest, n) != VT_FOLD_REPEATED)
    return vt_emit_from_memory(l->e, dtype, gather_lanes(l, s, dtype, folded_places(l, s, n)));
  // The vector begins with a whole row, which is one element here.
  LLVMValueRef column = l->column, lanes[64];
  l->column = LLVMBuildUDiv(b, column, i64_constant(l, l->nest->fold), "");
  LLVMValueRef x = vt_nest_load(l, dtype, s->row_pointer);
  l->column = column;
  for (int i = 0; i < l->e->target.lanes; i++)
    lanes[i] = LLVMConstInt(i32_type(l), (unsigned)(i / l->nest->fold), false);
  return LLVMBuildShuffleVector(b, x, LLVMGetPoison(LLVMTypeOf(x)),
                                LLVMConstVector(lanes, (unsigned)l->e->target.lanes), "");
}

static LLVMValueRef folded_iota(loops *l, node_state *s, const vt_nest_node *n) {
  vt_emitter *e = l->e;
  LLVMBuilderRef b = e->builder;
  vt_dtype dtype = n->value->type.dtype;
  bool is_float = vt_dtype_is_float(dtype);
  LLVMTypeRef type = vt_emit_type(e, VT_S64);
  LLVMValueRef x = LLVMBuildZExt(b, folded_places(l, s, n), type, "");
  x = LLVMBuildAdd(b, x, vt_emit_spread(l->e, s->row_index), "");
  if (is_float) return vt_emit_round(e, dtype, LLVMBuildSIToFP(b, x, vt_emit_type(e, dtype), ""));
  return vt_dtype_get(dtype)->bits < 64 ? LLVMBuildTrunc(b, x, vt_emit_type(e, dtype), "") : x;
}

static LLVMValueRef iota_value(loops *l, node_state *s, const vt_nest_node *n) {
  vt_emitter *e = l->e;
  LLVMBuilderRef b = e->builder;
  vt_dtype dtype = n->value->type.dtype;
  bool is_float = vt_dtype_is_float(dtype);
  LLVMTypeRef element = is_float ? i64_type(l) : vt_emit_memory_type(e, dtype);
  LLVMValueRef start = s->row_index;
  if (s->level == VT_LEVEL_FULL) start = LLVMBuildAdd(b, start, l->column, "");
  if (!is_float && vt_dtype_get(dtype)->bits < 64) start = LLVMBuildTrunc(b, start, element, "");
  LLVMValueRef x = vt_emit_spread(l->e, start);
  if (s->level == VT_LEVEL_FULL) x = LLVMBuildAdd(b, x, vt_nest_lane_numbers(l, element), "");
  if (is_float) x = vt_emit_round(e, dtype, LLVMBuildSIToFP(b, x, vt_emit_type(e, dtype), ""));
  return x;
}

LLVMValueRef vt_nest_offsets(loops *l, node_state *s, const vt_nest_node *n, LLVMValueRef *inside) {
  vt_emitter *e = l->e;
  LLVMBuilderRef b = e->builder;
  unsigned bits = n->narrow ? 32 : 64;
  vt_dtype dtype = n->narrow ? VT_S32 : VT_S64;
  LLVMTypeRef type = vt_emit_type(e, dtype);
  LLVMValueRef offset = NULL;
  if (s->column_stride) {
    LLVMValueRef last = LLVMBuildSub(b, l->columns, i64_constant(l, 1), "");
    LLVMValueRef x =
        LLVMBuildAdd(b, vt_emit_spread(l->e, l->column), vt_nest_lane_numbers(l, i64_type(l)), "");
    last = vt_emit_spread(l->e, last);
    x = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, x, last, ""), last, x, "");
    if (n->narrow) x = LLVMBuildTrunc(b, x, type, "");
    offset = LLVMBuildMul(b, x, s->column_stride, "");
  }
  if (inside) *inside = l->mask;
  for (uint32_t i = 0; i < vt_nest_parts(n); i++) {
    vt_dtype from = l->nest->nodes[n->operands[i]].value->type.dtype;
    bool is_signed = vt_dtype_kind_of(from) == VT_KIND_SIGNED;
    LLVMValueRef x = vt_nest_value(l, n->operands[i]), limit = s->limits[i];
    if (vt_dtype_get(from)->bits < bits)
      x = is_signed ? LLVMBuildSExt(b, x, type, "") : LLVMBuildZExt(b, x, type, "");
    else if (vt_dtype_get(from)->bits > bits)
      limit = LLVMBuildZExt(b, limit, LLVMTypeOf(x), "");
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x));
    if (inside) { // what is negative is large
      LLVMValueRef fits = LLVMBuildICmp(b, LLVMIntULE, x, limit, "");
      *inside = *inside ? LLVMBuildAnd(b, *inside, fits, "") : fits;
    } else {
      if (is_signed) x = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, x, zero, ""), zero, x, "");
      LLVMIntPredicate above = is_signed ? LLVMIntSGT : LLVMIntUGT;
      x = LLVMBuildSelect(b, LLVMBuildICmp(b, above, x, limit, ""), limit, x, "");
    }
    if (vt_dtype_get(from)->bits > bits) x = LLVMBuildTrunc(b, x, type, "");
    x = LLVMBuildMul(b, x, s->strides[i], "");
    offset = offset ? LLVMBuildAdd(b, offset, x, "") : x;
  }
  return offset;
}

void vt_nest_fetch(loops *l, LLVMValueRef pointer, unsigned mode) {
  LLVMTypeRef type = pointer_type(l);
  LLVMValueRef args[4] = {pointer};
  unsigned numbers[] = {mode, 3, 1}; // into all caches, data
  for (int k = 0; k < 3; k++) args[k + 1] = LLVMConstInt(i32_type(l), numbers[k], false);
  vt_emit_intrinsic(l->e, "llvm.prefetch", 1, &type, 4, args);
}

void vt_nest_fetch_ahead(loops *l, vt_dtype dtype, LLVMValueRef pointer) {
  enum { AHEAD = 8192 }; // bytes
  vt_nest_fetch(l, byte_offset(l, at_column(l, dtype, pointer), i64_constant(l, AHEAD)), 1);
}

// Prefetches what the vector GATHER_AHEAD columns on will gather.
static void fetch_gathered(loops *l, node_state *s, const vt_nest_node *n) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef column = l->column, lanes = i64_constant(l, l->e->target.lanes);
  vt_arena scratch = {0};
  node_state *states = VT_NEW_ARRAY(&scratch, node_state, l->nest->node_count);
  memcpy(states, l->state, sizeof *states * l->nest->node_count);
  for (uint32_t i = 0; i < l->nest->node_count; i++) l->state[i].pass = -1;
  LLVMValueRef ahead = LLVMBuildAdd(b, column, i64_constant(l, GATHER_AHEAD), "");
  LLVMValueRef last = LLVMBuildSub(b, l->columns, lanes, "");
  ahead = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, ahead, last, ""), ahead, last, "");
  LLVMValueRef inside = LLVMBuildICmp(b, LLVMIntSGT, ahead, column, "");
  l->column = LLVMBuildSelect(b, inside, ahead, column, "");
  l->fetching = true;
  LLVMValueRef offset = vt_nest_offsets(l, s, n, NULL);
  for (int i = 0; i < l->e->target.lanes; i++) {
    LLVMValueRef at = LLVMBuildExtractElement(b, offset, LLVMConstInt(i32_type(l), i, false), "");
    vt_nest_fetch(l, byte_offset(l, s->row_pointer, at), 0);
  }
  l->fetching = false;
  l->column = column;
  memcpy(l->state, states, sizeof *states * l->nest->node_count);
  vt_arena_free(&scratch);
}

static LLVMValueRef gather_value(loops *l, node_state *s, const vt_nest_node *n) {
  vt_dtype dtype = n->value->type.dtype;
  bool fetched = n->far && !l->e->target.gathers;
  if (fetched && s->level == VT_LEVEL_FULL && !l->fetching) fetch_gathered(l, s, n);
  LLVMValueRef offset = vt_nest_offsets(l, s, n, NULL);
  if (s->level != VT_LEVEL_FULL)
    return vt_nest_load_splat(l, dtype, byte_offset(l, s->row_pointer, first_lane(l, offset)));
  return vt_emit_from_memory(l->e, dtype, gather_lanes(l, s, dtype, offset));
}

// An operand of a select: where it costs much it is computed only if some lane chooses it.
static LLVMValueRef value_if(loops *l, uint32_t node, uint32_t operand, LLVMValueRef which) {
  const vt_nest_node *n = &l->nest->nodes[node];
  LLVMBuilderRef b = l->e->builder;
  bool only[VT_NEST_NODES], first = operand == 1;
  if (l->state[node].level != VT_LEVEL_FULL ||
      vt_nest_only_for(l->nest, l->movable, node, operand, only) < BRANCH_COST)
    return vt_nest_value(l, n->operands[operand]);
  for (uint32_t i = 0; i < node; i++) // what others need too comes before the branch
    for (uint32_t k = 0; only[i] && k < l->nest->nodes[i].operand_count; k++)
      if (!only[l->nest->nodes[i].operands[k]]) vt_nest_value(l, l->nest->nodes[i].operands[k]);
  LLVMTypeRef type = LLVMTypeOf(which);
  LLVMValueRef set = vt_emit_intrinsic(
      l->e, first ? "llvm.vector.reduce.or" : "llvm.vector.reduce.and", 1, &type, 1, &which);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b), some = new_block(l, ""), done = new_block(l, "");
  LLVMBuildCondBr(b, set, first ? some : done, first ? done : some);
  LLVMPositionBuilderAtEnd(b, some);
  LLVMValueRef x = vt_nest_value(l, n->operands[operand]), none = LLVMConstNull(LLVMTypeOf(x));
  LLVMBasicBlockRef end = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, done);
  LLVMPositionBuilderAtEnd(b, done);
  LLVMValueRef either = LLVMBuildPhi(b, LLVMTypeOf(x), "");
  LLVMAddIncoming(either, (LLVMValueRef[]){none, x}, (LLVMBasicBlockRef[]){from, end}, 2);
  return either;
}

static LLVMValueRef compute(loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  vt_dtype dtype = n->value->type.dtype;
  switch (n->kind) {
  case VT_NODE_CONST:
    return vt_emit_constant(l->e, vt_attr_literal(n->op, VT_ATTR_VALUE));
  case VT_NODE_LOAD:
    if (n->folded) return folded_load(l, s, n);
    return s->level == VT_LEVEL_FULL ? vt_nest_load(l, dtype, s->row_pointer)
                                     : vt_nest_load_splat(l, dtype, s->row_pointer);
  case VT_NODE_IOTA:
    return n->folded ? folded_iota(l, s, n) : iota_value(l, s, n);
  case VT_NODE_GATHER:
    return gather_value(l, s, n);
  case VT_NODE_ALIAS:
    return vt_nest_value(l, n->operands[0]);
  default:
    break;
  }
  LLVMValueRef operands[4];
  for (uint32_t i = 0; i < n->operand_count; i++)
    operands[i] = n->op->code == VT_OP_SELECT && i > 0 ? value_if(l, node, i, operands[0])
                                                       : vt_nest_value(l, n->operands[i]);
  for (uint32_t i = 0; i < n->operand_count;
       i++) // select and clamp take scalars beside vectors: all are splats
    vt_assert(operands[i]);
  return vt_emit_op(l->e, n->op, operands);
}

// Scalars and row values are computed once, at the builder's position when they are first needed;
// prepare_* make sure that this is early enough.
LLVMValueRef vt_nest_value(loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  if (s->level != VT_LEVEL_FULL) {
    if (!s->once) s->once = compute(l, node);
    return s->once;
  }
  if (s->pass == l->pass) return s->in_pass;
  if ((s->filled && l->pass != BEFORE_ROWS) || (s->kept && l->pass > __builtin_ctz(s->uses)))
    s->in_pass = vt_nest_load(l, vt_emit_compute_dtype(n->value->type.dtype), s->buffer);
  else
    s->in_pass = compute(l, node);
  s->pass = l->pass;
  return s->in_pass;
}

// ---- Row buffers.

int vt_nest_cost(loops *l, uint32_t node, bool *seen) {
  const vt_nest_node *n = &l->nest->nodes[node];
  if (seen[node] || l->state[node].level != VT_LEVEL_FULL || l->state[node].filled) return 0;
  seen[node] = true;
  int cost = 0;
  if (n->kind == VT_NODE_OP)
    cost = vt_op_info_get(n->op->code)->cost > VT_COST_CHEAP ? KEEP_COST : 1;
  if (n->kind == VT_NODE_GATHER) cost = KEEP_COST;
  for (uint32_t i = 0; i < n->operand_count; i++) cost += vt_nest_cost(l, n->operands[i], seen);
  return cost;
}

// Which passes need each value. An output is written by the last pass that computes it anyway.
static void spread_uses(loops *l) {
  const vt_nest *nest = l->nest;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < nest->node_count; i++) {
      const vt_nest_node *n = &nest->nodes[i];
      if (!l->state[i].live) continue;
      uint32_t uses =
          n->kind == VT_NODE_REDUCE ? 1u << (n->stage - !n->accumulated) : l->state[i].uses;
      for (uint32_t k = 0; k < n->operand_count; k++) {
        uint32_t *to = &l->state[n->operands[k]].uses;
        changed |= (*to | uses) != *to;
        *to |= uses;
      }
    }
  }
}

static void find_uses(loops *l) {
  spread_uses(l);
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    const vt_nest_node *n = &l->nest->nodes[i];
    node_state *s = &l->state[i];
    if (n->output < 0 || n->accumulated || !vt_nest_is_full(l->nest, n)) continue;
    s->store_pass = s->uses ? 31 - __builtin_clz(s->uses) : n->stage;
  }
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    const vt_nest_node *n = &l->nest->nodes[i];
    if (n->output >= 0 && !n->accumulated && vt_nest_is_full(l->nest, n))
      l->state[i].uses |= 1u << l->state[i].store_pass;
  }
  spread_uses(l);
}

static void add_buffer(loops *l, uint32_t node) {
  vt_dtype dtype = vt_emit_compute_dtype(l->nest->nodes[node].value->type.dtype);
  LLVMValueRef room = LLVMBuildAdd(l->e->builder, l->columns, i64_constant(l, 64), "");
  LLVMTypeRef type = vt_emit_memory_type(l->e, dtype);
  l->state[node].buffer = LLVMBuildArrayAlloca(l->e->builder, type, room, "");
  LLVMSetAlignment(l->state[node].buffer, 64);
}

// Row buffers for expensive values that several passes need. Later values first: they make earlier
// ones unnecessary.
static void choose_kept(loops *l) {
  const vt_nest *nest = l->nest;
  bool seen[VT_NEST_NODES];
  int count = 0;
  find_uses(l);
  if (!vt_nest_keeps_buffers(nest)) return;
  for (uint32_t i = nest->node_count; i-- > 0 && count < VT_NEST_BUFFERS;) {
    const vt_nest_node *n = &nest->nodes[i];
    node_state *s = &l->state[i];
    bool computed = n->kind == VT_NODE_OP || n->kind == VT_NODE_GATHER;
    if (!s->live || s->level != VT_LEVEL_FULL || !computed || __builtin_popcount(s->uses) < 2)
      continue;
    // Only where a later pass asks for it directly, not through another kept value.
    bool direct = n->output >= 0;
    for (uint32_t k = 0; k < nest->node_count && !direct; k++) {
      const vt_nest_node *user = &nest->nodes[k];
      if (!l->state[k].live || l->state[k].kept) continue;
      uint32_t at = user->kind == VT_NODE_REDUCE ? 1u << (user->stage - !user->accumulated)
                                                 : l->state[k].uses;
      for (uint32_t o = 0; o < user->operand_count; o++)
        if (user->operands[o] == i && (at & ~(s->uses & (0 - s->uses)))) direct = true;
    }
    memset(seen, 0, sizeof seen);
    if (!direct || vt_nest_cost(l, i, seen) < KEEP_COST) continue;
    add_buffer(l, i);
    s->kept = true;
    count++;
  }
}

// ---- Rows.

static void place_parts(loops *l, node_state *s, const vt_nest_node *n) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef numbers[7];
  uint32_t count = 1 + 2 * vt_nest_parts(n);
  for (uint32_t i = 0; i < count; i++) {
    numbers[i] = load_dim(l, s->slot + (uint32_t)l->nest->atom_count + i);
    if (n->narrow) numbers[i] = LLVMBuildTrunc(b, numbers[i], i32_type(l), "");
    numbers[i] = vt_emit_spread(l->e, numbers[i]);
  }
  if (vt_node_follows_columns(l->nest, n)) s->column_stride = numbers[0];
  for (uint32_t i = 0; i < vt_nest_parts(n); i++) {
    s->limits[i] = numbers[1 + 2 * i];
    s->strides[i] = numbers[2 + 2 * i];
  }
}

static void place_pointers(loops *l) {
  const vt_nest *nest = l->nest;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    node_state *s = &l->state[i];
    if (!s->live || !vt_node_has_slot(n)) continue;
    LLVMValueRef offset = load_dim(l, s->slot);
    if (n->kind == VT_NODE_IOTA) {
      s->row_index = offset;
      continue;
    }
    LLVMValueRef base = l->accumulators;
    if (!n->accumulated) {
      base = argument(l, n->output < 0 ? n->input : (int64_t)nest->input_count + n->output);
    }
    s->pointer = s->row_pointer = byte_offset(l, base, offset);
    if (vt_node_has_parts(n)) place_parts(l, s, n);
    if (n->kind == VT_NODE_SCATTER) vt_nest_rooms(l, s, n);
  }
}

// Row offsets of every access that moves with the rows.
static void place_row(loops *l, LLVMValueRef row) {
  const vt_nest *nest = l->nest;
  LLVMBuilderRef b = l->e->builder;
  int32_t rows = nest->atom_count - 1;
  LLVMValueRef index[VT_NEST_ATOMS], rest = row;
  for (int32_t a = rows - 1; a > 0; a--) {
    LLVMValueRef size = l->dim_values[a];
    LLVMValueRef quotient = LLVMBuildUDiv(b, rest, size, "");
    index[a] = LLVMBuildSub(b, rest, LLVMBuildMul(b, quotient, size, ""), "");
    rest = quotient;
  }
  index[0] = rest;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    node_state *s = &l->state[i];
    if (!s->live || !vt_node_has_slot(n) || (s->level == VT_LEVEL_SCALAR && n->output < 0))
      continue;
    LLVMValueRef offset = NULL;
    for (int32_t a = 0; a < rows; a++) {
      LLVMValueRef part = LLVMBuildMul(b, index[a], load_dim(l, s->slot + 1 + (uint32_t)a), "");
      offset = offset ? LLVMBuildAdd(b, offset, part, "") : part;
    }
    if (n->kind == VT_NODE_IOTA)
      s->row_index = LLVMBuildAdd(b, load_dim(l, s->slot), offset, "");
    else
      s->row_pointer = byte_offset(l, s->pointer, offset);
  }
}

void vt_nest_prepare(loops *l, uint8_t level, int32_t stage) {
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    const vt_nest_node *n = &l->nest->nodes[i];
    const node_state *s = &l->state[i];
    if (s->live && s->level <= level && n->stage <= stage && n->kind != VT_NODE_REDUCE &&
        n->kind != VT_NODE_SCATTER)
      vt_nest_value(l, i);
  }
}

// What is the same in all rows.
static void fill_columns(loops *l, const bool *once) {
  LLVMBuilderRef b = l->e->builder;
  bool any = false;
  for (uint32_t i = 0; i < l->nest->node_count; i++) any |= once[i];
  if (!any) return;
  for (uint32_t i = 0; i < l->nest->node_count; i++)
    if (once[i]) add_buffer(l, i);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), body = new_block(l, "fill"),
                    after = new_block(l, "filled");
  LLVMBuildBr(b, body);
  LLVMPositionBuilderAtEnd(b, body);
  l->column = vt_nest_phi(l, l->col_lo, before);
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    if (!once[i]) continue;
    vt_dtype dtype = vt_emit_compute_dtype(l->nest->nodes[i].value->type.dtype);
    vt_nest_store(l, dtype, l->state[i].buffer, vt_nest_value(l, i), false);
  }
  LLVMValueRef next = LLVMBuildAdd(b, l->column, i64_constant(l, l->e->target.lanes), "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(l->column, &next, &latch, 1);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, l->col_hi, ""), body, after);
  LLVMPositionBuilderAtEnd(b, after);
}

static void store_row(loops *l) {
  vt_nest_prepare(l, VT_LEVEL_ROW, INT32_MAX);
  for (uint32_t i = 0; i < l->nest->node_count; i++) {
    const vt_nest_node *n = &l->nest->nodes[i];
    if (n->output < 0 || n->accumulated || vt_nest_is_full(l->nest, n)) continue;
    vt_nest_store_first(l, n->value->type.dtype, l->state[i].row_pointer, vt_nest_value(l, i));
  }
}

static void emit_rows(loops *l) {
  int32_t scatter = vt_nest_scatter(l->nest);
  if (scatter >= 0) {
    l->pass = 0;
    vt_nest_emit_scatter(l, (uint32_t)scatter);
    return;
  }
  vt_nest_emit_passes(l);
  vt_nest_each_row(l, store_row);
}

// A state for each of the rows that are computed side by side, with what is the same in all.
static void spread_states(loops *l, vt_arena *scratch) {
  l->abreast = vt_nest_abreast(l->nest, &l->e->target);
  l->states[0] = l->state;
  for (int32_t r = 1; r < l->abreast; r++) {
    l->state = l->states[r] = VT_NEW_ARRAY(scratch, node_state, l->nest->node_count);
    memcpy(l->state, l->states[0], sizeof *l->state * l->nest->node_count);
    for (uint32_t i = 0; i < l->nest->node_count; i++)
      if (l->state[i].kept) add_buffer(l, i);
  }
  l->state = l->states[0];
}

// The last row several times where they are not a multiple of those side by side.
static void place_rows(loops *l, LLVMValueRef row) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef last = LLVMBuildSub(b, l->row_hi, i64_constant(l, 1), "");
  for (int32_t r = 0; r < l->abreast; r++) {
    l->state = l->states[r];
    LLVMValueRef at = row;
    if (r) {
      at = LLVMBuildAdd(b, row, i64_constant(l, r), "");
      at = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, at, last, ""), at, last, "");
    }
    place_row(l, at);
  }
}

static void open_function(loops *l, const char *name) {
  vt_emitter *e = l->e;
  LLVMTypeRef i64 = i64_type(l), p = pointer_type(l);
  LLVMTypeRef params[7] = {p, p, i64, i64, i64, i64, p};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 7, false);
  vt_emit_function(e, name, type);
  l->args = LLVMGetParam(e->function, 0);
  l->dims = LLVMGetParam(e->function, 1);
  l->row_lo = LLVMGetParam(e->function, 2);
  l->row_hi = LLVMGetParam(e->function, 3);
  l->col_lo = LLVMGetParam(e->function, 4);
  l->col_hi = LLVMGetParam(e->function, 5);
  l->accumulators = LLVMGetParam(e->function, 6);
}

static void find_slots(loops *l) {
  const vt_nest *nest = l->nest;
  bool live[VT_NEST_NODES];
  vt_nest_live(nest, live);
  uint32_t at = (uint32_t)nest->atom_count;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    l->state[i].live = live[i];
    l->state[i].pass = -1;
    if (!live[i]) continue;
    l->state[i].level = nest->nodes[i].level;
    if (!vt_node_has_slot(n)) continue;
    l->state[i].slot = at;
    at += vt_nest_slot_size(nest, n);
  }
}

void vt_emit_nest(vt_emitter *e, const vt_nest *nest, const char *name) {
  vt_arena scratch = {0};
  vt_emitter nest_emitter = *e;
  nest_emitter.target.lanes = vt_nest_lanes(nest, &e->target);
  loops l = {.e = &nest_emitter, .nest = nest, .ragged = vt_nest_is_ragged(nest, &e->target)};
  l.state = l.states[0] = VT_NEW_ARRAY(&scratch, node_state, nest->node_count);
  l.abreast = 1;
  LLVMBuilderRef b = e->builder;
  open_function(&l, name);
  find_slots(&l);
  for (int32_t a = 0; a < nest->atom_count; a++) l.dim_values[a] = load_dim(&l, (uint32_t)a);
  l.columns = l.dim_values[nest->atom_count - 1];
  bool once[VT_NEST_NODES];
  vt_nest_columns(nest, once);
  for (uint32_t i = 0; i < nest->node_count; i++) l.state[i].filled = once[i];
  choose_kept(&l);
  for (uint32_t i = 0; i < nest->node_count; i++)
    l.movable[i] = l.state[i].level == VT_LEVEL_FULL && !l.state[i].kept && !once[i] &&
                   nest->nodes[i].output < 0 && nest->nodes[i].kind != VT_NODE_REDUCE;
  place_pointers(&l);
  l.pass = BEFORE_ROWS;
  vt_nest_prepare(&l, VT_LEVEL_SCALAR, INT32_MAX);
  if (nest->atom_count == 1) {
    emit_rows(&l);
    LLVMBuildRetVoid(b);
    vt_arena_free(&scratch);
    return;
  }
  fill_columns(&l, once);
  spread_states(&l, &scratch);
  LLVMBasicBlockRef entry = LLVMGetInsertBlock(b), body = new_block(&l, "rows"),
                    done = new_block(&l, "done");
  LLVMBuildBr(b, body);
  LLVMPositionBuilderAtEnd(b, body);
  LLVMValueRef row = LLVMBuildPhi(b, i64_type(&l), "r");
  LLVMAddIncoming(row, &l.row_lo, &entry, 1);
  place_rows(&l, row);
  emit_rows(&l);
  LLVMValueRef next = LLVMBuildAdd(b, row, i64_constant(&l, l.abreast), "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(row, &next, &latch, 1);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, l.row_hi, ""), body, done);
  LLVMPositionBuilderAtEnd(b, done);
  LLVMBuildRetVoid(b);
  vt_arena_free(&scratch);
}
