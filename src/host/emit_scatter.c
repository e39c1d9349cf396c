// SPDX-License-Identifier: Apache-2.0
// emit_scatter.c - the loops of a nest that scatters (emit_nest.c). Of a block of columns first the
// places are found, as vectors, then the updates are combined into them one by one.
#include "host/emit_nest.h"

enum { SCATTER_BLOCK = 512, FETCH_AHEAD = 24, UNROLLED = 8 }; // elements

static vt_dtype scattered_dtype(const vt_nest_node *n) {
  return n->op->results[0].type.dtype;
}

void vt_nest_rooms(loops *l, node_state *s, const vt_nest_node *n) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef count = i64_constant(l, SCATTER_BLOCK + FETCH_AHEAD);
  s->places = LLVMBuildArrayAlloca(b, i64_type(l), count, "");
  s->updates = LLVMBuildArrayAlloca(b, vt_emit_memory_type(l->e, scattered_dtype(n)), count, "");
  LLVMTypeRef spare = LLVMVectorType(i64_type(l), 8); // as large as a run
  s->spare = LLVMBuildAlloca(b, spare, "");
  LLVMSetAlignment(s->places, 64);
  LLVMSetAlignment(s->updates, 64);
  LLVMBuildStore(b, LLVMConstNull(spare), s->spare);
}

static uint32_t updates_of(const vt_nest_node *n) {
  return n->operands[n->operand_count - 1];
}

// Updates that lie in memory side by side are read from there.
static bool updates_lie(const loops *l, const vt_nest_node *n) {
  if (n->run > 1) return true;
  return l->nest->nodes[updates_of(n)].kind == VT_NODE_LOAD &&
         l->state[updates_of(n)].level == VT_LEVEL_FULL;
}

// The addresses of a vector of columns; what is left out goes to an element that nobody sees.
static void place_vector(loops *l, uint32_t node, LLVMValueRef block) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  LLVMBuilderRef b = l->e->builder;
  vt_nest_mask(l, true);
  LLVMValueRef inside, offset = vt_nest_offsets(l, s, n, &inside);
  LLVMValueRef base = vt_emit_spread(l->e, LLVMBuildPtrToInt(b, s->row_pointer, i64_type(l), ""));
  if (n->narrow) offset = LLVMBuildZExt(b, offset, LLVMTypeOf(base), "");
  LLVMValueRef spare = vt_emit_spread(l->e, LLVMBuildPtrToInt(b, s->spare, i64_type(l), ""));
  LLVMValueRef place = LLVMBuildSelect(b, inside, LLVMBuildAdd(b, base, offset, ""), spare, "");
  LLVMValueRef column = l->column, x = updates_lie(l, n) ? NULL : vt_nest_value(l, updates_of(n));
  l->column = LLVMBuildSub(b, column, block, "");
  vt_nest_store(l, VT_S64, s->places, place, false);
  if (x) vt_nest_store(l, scattered_dtype(n), s->updates, x, false);
  l->column = column;
}

static LLVMValueRef place_at(loops *l, const node_state *s, LLVMValueRef at) {
  LLVMValueRef p = LLVMBuildGEP2(l->e->builder, pointer_type(l), s->places, &at, 1, "");
  return LLVMBuildLoad2(l->e->builder, pointer_type(l), p, "");
}

static LLVMValueRef updates_at(loops *l, const vt_nest_node *n, LLVMValueRef column) {
  int64_t bytes = n->run * (int64_t)vt_dtype_bytes(scattered_dtype(n));
  LLVMValueRef offset = LLVMBuildMul(l->e->builder, column, i64_constant(l, bytes), "");
  LLVMValueRef first = n->run > 1 ? argument(l, n->updates) : l->state[updates_of(n)].row_pointer;
  return byte_offset(l, first, offset);
}

// What comes from memory is on its way while the other places of the block are found.
static void fetch_updates(loops *l, const vt_nest_node *n) {
  enum { LINE = 64 };
  int64_t bytes = l->e->target.lanes * n->run * (int64_t)vt_dtype_bytes(scattered_dtype(n));
  LLVMValueRef first = updates_at(l, n, l->column);
  for (int64_t at = 0; at < bytes; at += LINE)
    vt_nest_fetch(l, byte_offset(l, first, i64_constant(l, at)), 0);
}

// Goes on in a block for updates that change `old`, or may: nothing has to wait for the others.
// Returns the block behind that.
static LLVMBasicBlockRef skip_if_settled(loops *l, const vt_op *body, LLVMValueRef old,
                                         LLVMValueRef x) {
  LLVMBuilderRef b = l->e->builder;
  vt_dtype dtype = body->results[0].type.dtype;
  bool is_max = body->code == VT_OP_MAXIMUM, is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  LLVMValueRef settled;
  if (vt_dtype_is_float(dtype))
    settled = LLVMBuildFCmp(b, is_max ? LLVMRealOGT : LLVMRealOLT, old, x, "");
  else if (is_max)
    settled = LLVMBuildICmp(b, is_signed ? LLVMIntSGE : LLVMIntUGE, old, x, "");
  else
    settled = LLVMBuildICmp(b, is_signed ? LLVMIntSLE : LLVMIntULE, old, x, "");
  LLVMBasicBlockRef change = new_block(l, ""), done = new_block(l, "");
  vt_emit_branch(l->e, first_lane(l, settled), done, change);
  LLVMPositionBuilderAtEnd(b, change);
  return done;
}

// Combines update `at` of the block, a vector of its run.
static void combine_update(loops *l, const vt_nest_node *n, const node_state *s, LLVMValueRef at,
                           LLVMValueRef updates) {
  vt_emitter one = *l->e;
  one.target = (vt_target){.lanes = n->run, .f16c = one.target.f16c, .fma = one.target.fma};
  vt_dtype dtype = scattered_dtype(n);
  LLVMTypeRef element = vt_emit_memory_type(&one, dtype),
              type = LLVMVectorType(element, (unsigned)n->run);
  LLVMValueRef to = place_at(l, s, at);
  at = LLVMBuildMul(one.builder, at, i64_constant(l, n->run), "");
  LLVMValueRef x = LLVMBuildLoad2(one.builder, type,
                                  LLVMBuildGEP2(one.builder, element, updates, &at, 1, ""), "");
  LLVMSetAlignment(x, (unsigned)vt_dtype_bytes(dtype));
  const vt_op *body = n->op->regions[0]->first;
  LLVMBasicBlockRef done = NULL;
  if (body) {
    LLVMValueRef old = LLVMBuildLoad2(one.builder, type, to, "");
    LLVMSetAlignment(old, (unsigned)vt_dtype_bytes(dtype));
    LLVMValueRef both[2] = {vt_emit_from_memory(&one, dtype, old),
                            vt_emit_from_memory(&one, dtype, x)};
    if (n->settles) done = skip_if_settled(l, body, both[0], both[1]);
    x = vt_emit_to_memory(&one, dtype, vt_emit_op(&one, body, both));
  }
  LLVMSetAlignment(LLVMBuildStore(one.builder, x, to), (unsigned)vt_dtype_bytes(dtype));
  if (!done) return;
  LLVMBuildBr(one.builder, done);
  LLVMPositionBuilderAtEnd(one.builder, done);
}

// A loop `for (x = from; x < to; x += step)` around what is emitted before close_loop.
typedef struct counted {
  LLVMValueRef x, to;
  LLVMBasicBlockRef body;
  int64_t step;
} counted;

static counted open_counted(loops *l, LLVMValueRef from, LLVMValueRef to, int64_t step) {
  LLVMBuilderRef b = l->e->builder;
  counted c = {.to = to, .step = step, .body = new_block(l, "")};
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, c.body);
  LLVMPositionBuilderAtEnd(b, c.body);
  c.x = LLVMBuildPhi(b, i64_type(l), "");
  LLVMAddIncoming(c.x, &from, &before, 1);
  return c;
}

static void close_counted(loops *l, const counted *c) {
  LLVMBuilderRef b = l->e->builder;
  LLVMValueRef next = LLVMBuildAdd(b, c->x, i64_constant(l, c->step), "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b), after = new_block(l, "");
  LLVMAddIncoming(c->x, &next, &latch, 1);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, c->to, ""), c->body, after);
  LLVMPositionBuilderAtEnd(b, after);
}

void vt_nest_emit_scatter(loops *l, uint32_t node) {
  const vt_nest_node *n = &l->nest->nodes[node];
  node_state *s = &l->state[node];
  LLVMBuilderRef b = l->e->builder;
  vt_nest_prepare(l, VT_LEVEL_ROW, l->pass);
  counted block = open_counted(l, l->col_lo, l->col_hi, SCATTER_BLOCK);
  LLVMValueRef end = LLVMBuildAdd(b, block.x, i64_constant(l, SCATTER_BLOCK), "");
  end = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, end, l->col_hi, ""), end, l->col_hi, "");
  counted columns = open_counted(l, block.x, end, l->e->target.lanes);
  l->column = columns.x;
  place_vector(l, node, block.x);
  if (updates_lie(l, n)) fetch_updates(l, n);
  close_counted(l, &columns);
  LLVMValueRef updates = updates_lie(l, n) ? updates_at(l, n, block.x) : s->updates;
  // All places of the last vector are there, also those behind the end.
  counted one = open_counted(l, i64_constant(l, 0), LLVMBuildSub(b, end, block.x, ""), UNROLLED);
  for (int i = 0; i < UNROLLED; i++) {
    LLVMValueRef at = LLVMBuildAdd(b, one.x, i64_constant(l, i), "");
    if (n->far)
      vt_nest_fetch(l, place_at(l, s, LLVMBuildAdd(b, at, i64_constant(l, FETCH_AHEAD), "")), 1);
    combine_update(l, n, s, at, updates);
  }
  close_counted(l, &one);
  close_counted(l, &block);
}
