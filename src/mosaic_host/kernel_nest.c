// SPDX-License-Identifier: Apache-2.0
// kernel_nest.c - loops over the elements of a vector: rows, and columns in registers of several
// lanes. Values without a home are computed inside, each element where it is used; what is the same
// for a whole row is computed once, before its columns.
#include <string.h>

#include "base/check.h"
#include "mosaic_host/kernel.h"

enum { MOST_LANES = VT_KLANES_MOST, MOST_KNOWN = 256 };

// An element of a value: along `lane` the first of as many as a register has. -1: one, for all
// lanes.
typedef struct spot {
  int32_t rank, lane;
  bool flat;    // index[0] counts all elements
  bool shifted; // the first is not that of a whole register of the value
  LLVMValueRef index[VT_MOSAIC_RANK];
} spot;

typedef struct known {
  const vt_mvalue *value;
  spot at;
  bool before; // the columns
  LLVMValueRef result;
} known;

typedef struct nest {
  vt_kemit *k;
  LLVMBasicBlockRef before; // where a row starts, left open; NULL: none
  uint32_t known_count;
  known known[MOST_KNOWN];
} nest;

static LLVMValueRef eval(nest *n, const vt_mvalue *v, const spot *at);
static LLVMValueRef eval_home(nest *n, const vt_mvalue *v, const spot *at);

static LLVMBuilderRef builder(const nest *n) {
  return n->k->e->builder;
}
static const vt_kvalue *plan_of(const nest *n, const vt_mvalue *v) {
  return vt_kvalue_of(n->k->plan, v);
}

void vt_kdense(vt_mtype type, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t d = type.rank; d-- > 0;) {
    strides[d] = stride;
    stride *= type.dims[d];
  }
}

// Where row 0 of a value would lie that has memory for the rows of a turn alone.
LLVMValueRef vt_khome_at(vt_kemit *k, vt_mtype type, int64_t at, bool local) {
  LLVMValueRef memory = vt_kat(k, k->memory, vt_ki64(k, at));
  if (!local) return memory;
  int64_t row = vt_mtype_bytes(type) / k->strip->rows;
  LLVMValueRef back = LLVMBuildMul(k->e->builder, k->row, vt_ki64(k, -row), "");
  return LLVMBuildGEP2(k->e->builder, k->i8, memory, &back, 1, "");
}

LLVMValueRef vt_kaddress(vt_kemit *k, const vt_mvalue *v) {
  const vt_kvalue *p = vt_kvalue_of(k->plan, v);
  if (p->home == VT_KHOME_MEMORY) return vt_khome_at(k, v->type, p->at, p->local && !p->laid);
  if (p->home == VT_KHOME_LEAF) return k->values[v->slot].pointer;
  return vt_kaddress(k, v->op->operands[0]);
}

// ---- loops --------------------------------------------------------------------------------------

typedef struct loop {
  int64_t count;
  LLVMValueRef at, carried;
  LLVMBasicBlockRef head;
} loop;

// The elements along dimension `d` of a value that are computed now: `count` from `base` on.
typedef struct stretch {
  int64_t count;
  LLVMValueRef base; // NULL: 0
} stretch;

static stretch part_of(vt_kemit *k, vt_mtype type, int32_t d) {
  if (!k->strip || d != vt_kplan_row_dim(type)) return (stretch){type.dims[d], NULL};
  vt_assert(type.dims[d] == k->strip->rows);
  return (stretch){k->strip->step, k->row};
}

// Of all elements in their order.
static stretch part_of_all(vt_kemit *k, vt_mtype type) {
  int64_t count = vt_mtype_elements(type);
  if (!k->strip) return (stretch){count, NULL};
  int64_t row = count / k->strip->rows;
  return (stretch){row * k->strip->step, LLVMBuildMul(k->e->builder, k->row, vt_ki64(k, row), "")};
}

// `carry`, unless NULL, is the address of a value that each turn replaces.
static void open_loop(vt_kemit *k, loop *l, int64_t count, LLVMValueRef *carry) {
  LLVMBuilderRef b = k->e->builder;
  *l = (loop){.count = count, .at = vt_ki64(k, 0)};
  if (count == 1) return;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMValueRef zero = vt_ki64(k, 0);
  l->head = vt_kblock(k, "loop");
  LLVMBuildBr(b, l->head);
  LLVMPositionBuilderAtEnd(b, l->head);
  l->at = LLVMBuildPhi(b, k->i64, "");
  LLVMAddIncoming(l->at, &zero, &from, 1);
  if (!carry) return;
  l->carried = LLVMBuildPhi(b, LLVMTypeOf(*carry), "");
  LLVMAddIncoming(l->carried, carry, &from, 1);
  *carry = l->carried;
}

// A loop over a dimension; its index is in l->at.
static LLVMValueRef open_dim(vt_kemit *k, loop *l, vt_mtype type, int32_t d, LLVMValueRef *carry) {
  stretch p = part_of(k, type, d);
  open_loop(k, l, p.count, carry);
  return p.base ? LLVMBuildAdd(k->e->builder, p.base, l->at, "") : l->at;
}

static void close_loop(vt_kemit *k, loop *l, LLVMValueRef *carry) {
  LLVMBuilderRef b = k->e->builder;
  if (!l->head) return;
  LLVMValueRef next = LLVMBuildAdd(b, l->at, vt_ki64(k, 1), "");
  LLVMValueRef more = LLVMBuildICmp(b, LLVMIntSLT, next, vt_ki64(k, l->count), "");
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b), done = vt_kblock(k, "end");
  LLVMAddIncoming(l->at, &next, &here, 1);
  if (carry) LLVMAddIncoming(l->carried, carry, &here, 1);
  LLVMBuildCondBr(b, more, l->head, done);
  LLVMPositionBuilderAtEnd(b, done);
}

// What happens to a register of columns: `mask` (or NULL) says which lanes exist. Returns the
// carried value.
typedef LLVMValueRef column_fn(nest *n, void *user, LLVMValueRef column, LLVMValueRef mask,
                               LLVMValueRef carry);

static LLVMValueRef first_lanes(nest *n, int64_t count) {
  LLVMValueRef lanes[MOST_LANES];
  for (int i = 0; i < n->k->lanes; i++) lanes[i] = LLVMConstInt(n->k->i1, i < count, false);
  return LLVMConstVector(lanes, (unsigned)n->k->lanes);
}

static void forget_columns(nest *n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n->known_count; i++)
    if (n->known[i].before) n->known[kept++] = n->known[i];
  n->known_count = kept;
}

static LLVMValueRef column_at(nest *n, stretch p, LLVMValueRef at) {
  return p.base ? LLVMBuildAdd(builder(n), p.base, at, "") : at;
}

// A value that the columns hand on: several at a time, that do not wait for each other, joined in
// the end.
typedef struct carried {
  LLVMValueRef value, neutral;
  LLVMValueRef (*join)(nest *n, void *user, LLVMValueRef x, LLVMValueRef y);
} carried;

enum { MOST_CARRIED = 4 };

static int carried_count(int64_t registers, const carried *c) {
  if (!c) return 1;
  return registers % 4 == 0 && registers > 4 ? 4 : registers % 2 == 0 && registers > 2 ? 2 : 1;
}

static void over_columns(nest *n, stretch p, column_fn *fn, void *user, carried *c) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  int64_t lanes = k->lanes, count = p.count, full = count / lanes * lanes;
  int turns = carried_count(full / lanes, c);
  LLVMBasicBlockRef body = vt_kblock(k, "columns");
  LLVMValueRef at = NULL, phis[MOST_CARRIED] = {NULL}, values[MOST_CARRIED] = {NULL};
  for (int i = 0; c && i < turns; i++) values[i] = i ? c->neutral : c->value;
  n->known_count = 0;
  n->before = LLVMGetInsertBlock(b);
  LLVMPositionBuilderAtEnd(b, body);
  if (full > lanes) {
    at = LLVMBuildPhi(b, k->i64, "");
    for (int i = 0; c && i < turns; i++)
      values[i] = phis[i] = LLVMBuildPhi(b, LLVMTypeOf(c->value), "");
  }
  for (int i = 0; i < turns && full; i++) {
    LLVMValueRef column = at && i ? LLVMBuildAdd(b, at, vt_ki64(k, i * lanes), "") : at;
    values[i] = fn(n, user, column_at(n, p, column ? column : vt_ki64(k, 0)), NULL, values[i]);
  }
  if (at) {
    LLVMValueRef next = LLVMBuildAdd(b, at, vt_ki64(k, turns * lanes), "");
    LLVMValueRef more = LLVMBuildICmp(b, LLVMIntSLT, next, vt_ki64(k, full), "");
    LLVMBasicBlockRef here = LLVMGetInsertBlock(b), done = vt_kblock(k, "end");
    LLVMAddIncoming(at, &next, &here, 1);
    for (int i = 0; c && i < turns; i++) LLVMAddIncoming(phis[i], &values[i], &here, 1);
    LLVMBuildCondBr(b, more, body, done);
    LLVMPositionBuilderAtEnd(b, done);
  }
  forget_columns(n);
  if (full < count)
    values[0] =
        fn(n, user, column_at(n, p, vt_ki64(k, full)), first_lanes(n, count - full), values[0]);
  for (int i = 1; c && i < turns; i++) values[0] = c->join(n, user, values[0], values[i]);
  LLVMBasicBlockRef end = LLVMGetInsertBlock(b);
  LLVMPositionBuilderAtEnd(b, n->before);
  LLVMBuildBr(b, body);
  LLVMValueRef zero = vt_ki64(k, 0);
  if (at) LLVMAddIncoming(at, &zero, &n->before, 1);
  for (int i = 0; c && at && i < turns; i++)
    LLVMAddIncoming(phis[i], i ? &c->neutral : &c->value, &n->before, 1);
  LLVMPositionBuilderAtEnd(b, end);
  n->before = NULL;
  if (c) c->value = values[0];
}

// ---- elements -----------------------------------------------------------------------------------

static LLVMValueRef splat(nest *n, LLVMValueRef scalar) {
  LLVMBuilderRef b = builder(n);
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)n->k->lanes);
  LLVMValueRef one =
      LLVMBuildInsertElement(b, LLVMGetPoison(type), scalar, LLVMConstInt(n->k->i32, 0, false), "");
  LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(n->k->i32, (unsigned)n->k->lanes));
  return LLVMBuildShuffleVector(b, one, LLVMGetPoison(type), zeros, "");
}

static LLVMValueRef offset_of(nest *n, const spot *at, const int64_t *strides, int64_t bytes) {
  LLVMBuilderRef b = builder(n);
  if (at->flat) return LLVMBuildMul(b, at->index[0], vt_ki64(n->k, bytes), "");
  LLVMValueRef offset = vt_ki64(n->k, 0);
  for (int32_t d = 0; d < at->rank; d++)
    offset = LLVMBuildAdd(b, offset,
                          LLVMBuildMul(b, at->index[d], vt_ki64(n->k, strides[d] * bytes), ""), "");
  return offset;
}

// Elements in memory, as they are in registers.
static LLVMValueRef read(nest *n, vt_dtype dtype, LLVMValueRef pointer, const int64_t *strides,
                         const spot *at) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  LLVMTypeRef one = vt_emit_memory_type(k->e, dtype);
  LLVMTypeRef type = LLVMVectorType(one, (unsigned)k->lanes);
  int64_t bytes = (int64_t)vt_dtype_bytes(dtype);
  LLVMValueRef from = vt_kat(k, pointer, offset_of(n, at, strides, bytes)), x;
  if (at->lane < 0) {
    x = splat(n, LLVMBuildLoad2(b, one, from, ""));
  } else if (at->flat || strides[at->lane] == 1) {
    x = LLVMBuildLoad2(b, type, from, "");
    LLVMSetAlignment(x, 1);
  } else {
    x = LLVMGetPoison(type);
    for (int i = 0; i < k->lanes; i++) {
      LLVMValueRef place = vt_kat(k, from, vt_ki64(k, i * strides[at->lane] * bytes));
      x = LLVMBuildInsertElement(b, x, LLVMBuildLoad2(b, one, place, ""),
                                 LLVMConstInt(k->i32, (unsigned)i, false), "");
    }
  }
  return vt_emit_from_memory(k->e, dtype, x);
}

static LLVMValueRef count_along(nest *n, const vt_mop *op, const spot *at) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  vt_dtype dtype = op->results[0].type.dtype;
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS);
  int64_t d = dims ? dims->ints[0] : vt_mop_i64(op, VT_MATTR_DIMENSION, 0);
  LLVMTypeRef narrow = LLVMGetElementType(vt_emit_type(k->e, VT_S32));
  LLVMValueRef x = splat(n, LLVMBuildTrunc(b, at->index[d], narrow, "")), lanes[MOST_LANES];
  for (int i = 0; i < k->lanes; i++) lanes[i] = LLVMConstInt(k->i32, (unsigned)i, false);
  if (at->lane == d) x = LLVMBuildAdd(b, x, LLVMConstVector(lanes, (unsigned)k->lanes), "");
  return vt_klanes_convert(k->e, &k->arena, VT_S32, dtype, x);
}

// ---- values without a home ----------------------------------------------------------------------

static LLVMValueRef eval_broadcast(nest *n, const vt_mop *op, const spot *at) {
  const vt_mvalue *from = op->operands[0];
  vt_mtype type = from->type, to = op->results[0].type;
  if (type.kind != VT_MVECTOR) return eval(n, from, at);
  if (at->flat) return eval(n, from, at); // no more elements than before
  spot inner = {.rank = type.rank, .lane = -1, .shifted = at->shifted};
  for (int32_t d = 0; d < type.rank; d++) {
    int32_t outer = to.rank - type.rank + d;
    bool spread = type.dims[d] == 1;
    inner.index[d] = spread ? vt_ki64(n->k, 0) : at->index[outer];
    if (!spread && at->lane == outer) inner.lane = d;
  }
  return eval(n, from, &inner);
}

static LLVMValueRef eval_cast(nest *n, const vt_mop *op, const spot *at) {
  const vt_mvalue *from = op->operands[0];
  int32_t map[VT_MOSAIC_RANK];
  if (at->flat || !vt_kplan_unit_cast(from->type, op->results[0].type, map))
    return eval(n, from, at);
  spot inner = {.rank = from->type.rank, .lane = -1, .shifted = at->shifted};
  for (int32_t d = 0; d < inner.rank; d++) inner.index[d] = vt_ki64(n->k, 0);
  for (int32_t d = 0; d < at->rank; d++) {
    if (map[d] < 0) continue;
    inner.index[map[d]] = at->index[d];
    if (at->lane == d) inner.lane = map[d];
  }
  return eval(n, from, &inner);
}

static LLVMValueRef eval_slice(nest *n, const vt_mop *op, const spot *at) {
  const vt_mattr *offsets = vt_mop_attr(op, VT_MATTR_OFFSETS);
  spot inner = *at;
  for (uint32_t d = 0; d < offsets->count; d++)
    if (offsets->ints[d] % MOST_LANES) inner.shifted = true;
  for (uint32_t d = 0; d < offsets->count; d++)
    inner.index[d] = LLVMBuildAdd(builder(n), at->index[d], vt_ki64(n->k, offsets->ints[d]), "");
  return eval(n, op->operands[0], &inner);
}

// The same operand several times. Registers do not cross from one to the next, except shifted ones.
static LLVMValueRef eval_tiling(nest *n, const vt_mop *op, const spot *at) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  int64_t d = vt_mop_i64(op, VT_MATTR_DIMENSION, 0);
  spot inner = *at;
  LLVMValueRef size = vt_ki64(k, op->operands[0]->type.dims[d]), x = NULL;
  bool crosses = at->shifted || (k->strip && k->strip->step % k->lanes);
  inner.index[d] = LLVMBuildURem(b, at->index[d], size, "");
  if (at->lane != d || !crosses) return eval(n, op->operands[0], &inner);
  inner.lane = -1;
  for (int i = 0; i < k->lanes; i++) {
    LLVMValueRef index = LLVMBuildAdd(b, at->index[d], vt_ki64(k, i), "");
    LLVMValueRef lane = LLVMConstInt(k->i32, (unsigned)i, false);
    inner.index[d] = LLVMBuildURem(b, index, size, "");
    LLVMValueRef one = eval_home(n, op->operands[0], &inner);
    if (!x) x = LLVMGetPoison(LLVMTypeOf(one));
    x = LLVMBuildInsertElement(b, x, LLVMBuildExtractElement(b, one, lane, ""), lane, "");
  }
  return x;
}

static LLVMValueRef eval_op(nest *n, const vt_mop *op, const spot *at) {
  vt_kemit *k = n->k;
  const vt_mvalue *v = &op->results[0];
  LLVMValueRef in[3] = {NULL};
  if (plan_of(n, v)->loads)
    return read(n, vt_klanes_memory(v->type.dtype), k->values[v->slot].pointer,
                plan_of(n, v)->strides, at);
  switch (op->code) {
  case VT_MOP_CONSTANT: {
    const vt_literal *literal = vt_mop_attr(op, VT_MATTR_VALUE)->literal;
    vt_literal one = {.type = {literal->type.dtype, 0, NULL}, .data = literal->data, .splat = true};
    return vt_emit_constant(k->e, &one);
  }
  case VT_MOP_IOTA:
    return count_along(n, op, at);
  case VT_MOP_BROADCAST:
    return eval_broadcast(n, op, at);
  case VT_MOP_SHAPE_CAST:
  case VT_MOP_RESHAPE:
  case VT_MOP_RELAYOUT:
  case VT_MOP_ASSUME_LAYOUT:
    return eval_cast(n, op, at);
  case VT_MOP_EXTRACT_SLICE:
    return eval_slice(n, op, at);
  case VT_MOP_CONCATENATE:
    return eval_tiling(n, op, at);
  case VT_MOP_ASSUME_MULTIPLE:
    return eval(n, op->operands[0], at);
  default:
    for (uint32_t i = 0; i < op->operand_count; i++) in[i] = eval(n, op->operands[i], at);
    return vt_klanes_emit(k->e, &k->arena, op, in);
  }
}

static LLVMValueRef eval_home(nest *n, const vt_mvalue *v, const spot *at) {
  const vt_kvalue *p = plan_of(n, v);
  int64_t dense[VT_MOSAIC_RANK];
  if (v->type.kind != VT_MVECTOR) {
    LLVMValueRef x = n->k->values[v->slot].value;
    return splat(n, x);
  }
  if (p->home == VT_KHOME_INLINE) return eval_op(n, v->op, at);
  vt_kdense(v->type, dense);
  const int64_t *strides = p->home == VT_KHOME_LEAF ? p->strides : dense;
  return read(n, vt_klanes_memory(v->type.dtype), vt_kaddress(n->k, v), strides, at);
}

static bool same_spot(const spot *a, const spot *b) {
  if (a->rank != b->rank || a->lane != b->lane || a->flat != b->flat) return false;
  for (int32_t d = 0; d < (a->flat ? 1 : a->rank); d++)
    if (a->index[d] != b->index[d]) return false;
  return true;
}

// One element of a row stands for all where all are the same. It is read before the columns, which
// may be written where it lies.
static void level_spot(const nest *n, const vt_mvalue *v, spot *at) {
  if (at->flat || !n->before || at->lane != v->type.rank - 1 || !plan_of(n, v)->level) return;
  at->index[at->lane] = vt_ki64(n->k, 0);
  at->lane = -1;
}

// `made`: by its op, also where it has a home.
static LLVMValueRef eval_once(nest *n, const vt_mvalue *v, const spot *at, bool made) {
  LLVMBuilderRef b = builder(n);
  bool scalar = v->type.kind != VT_MVECTOR;
  spot all = *at;
  if (scalar) all = (spot){.rank = 0, .lane = -1};
  if (!scalar) level_spot(n, v, &all);
  for (uint32_t i = 0; i < n->known_count; i++)
    if (n->known[i].value == v && same_spot(&n->known[i].at, &all)) return n->known[i].result;
  bool before = n->before && all.lane < 0;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
  bool moves = before && here != n->before;
  if (moves) LLVMPositionBuilderAtEnd(b, n->before);
  LLVMValueRef x = made ? eval_op(n, v->op, &all) : eval_home(n, v, &all);
  if (moves) {
    n->before = LLVMGetInsertBlock(b);
    LLVMPositionBuilderAtEnd(b, here);
  }
  if (n->known_count < MOST_KNOWN) n->known[n->known_count++] = (known){v, all, before, x};
  return x;
}

static LLVMValueRef eval(nest *n, const vt_mvalue *v, const spot *at) {
  return eval_once(n, v, at, false);
}

// ---- one result element for each element --------------------------------------------------------

typedef struct map {
  const vt_mvalue *value; // or
  const vt_mop *op;       // its result
  const vt_kplace *place;
  vt_dtype dtype; // in registers
  bool rounds;
  spot at;
  int32_t column; // dimension
} map;

// A register of columns into tiles of 16 rows and 32 columns, as bf16: rows of a strip.
static void write_laid(nest *n, const vt_kplace *place, const spot *at, LLVMValueRef x) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  LLVMValueRef row = LLVMBuildSub(b, at->index[0], k->row, ""), column = at->index[1];
  const struct {
    LLVMValueRef index;
    int64_t size, across, within; // of a tile; bytes to the next tile and inside of one
  } dims[2] = {{row, 16, place->laid / 32 * 1024, 64}, {column, 32, 1024, 2}};
  LLVMValueRef offset = vt_ki64(k, 0);
  for (int d = 0; d < 2; d++) {
    LLVMValueRef size = vt_ki64(k, dims[d].size);
    LLVMValueRef tile = LLVMBuildUDiv(b, dims[d].index, size, "");
    LLVMValueRef inside = LLVMBuildURem(b, dims[d].index, size, "");
    offset = LLVMBuildAdd(b, offset, LLVMBuildMul(b, tile, vt_ki64(k, dims[d].across), ""), "");
    offset = LLVMBuildAdd(b, offset, LLVMBuildMul(b, inside, vt_ki64(k, dims[d].within), ""), "");
  }
  LLVMTypeRef type = LLVMVectorType(LLVMBFloatTypeInContext(k->e->context), (unsigned)k->lanes);
  x = LLVMBuildFPTrunc(b, x, type, "");
  LLVMSetAlignment(LLVMBuildStore(b, x, vt_kat(k, place->pointer, offset)), 32);
}

static void write(nest *n, const map *m, const spot *at, LLVMValueRef x, LLVMValueRef mask) {
  vt_kemit *k = n->k;
  LLVMBuilderRef b = builder(n);
  int64_t bytes = (int64_t)vt_dtype_bytes(m->place->dtype);
  if (m->place->laid) {
    write_laid(n, m->place, at, x);
    return;
  }
  LLVMValueRef to = vt_kat(k, m->place->pointer, offset_of(n, at, m->place->strides, bytes));
  if (m->place->mask) {
    LLVMValueRef kept = eval(n, m->place->mask, at);
    mask = mask ? LLVMBuildAnd(b, mask, kept, "") : kept;
  }
  x = vt_emit_to_memory(k->e, m->place->dtype, x);
  if (!mask) {
    LLVMSetAlignment(LLVMBuildStore(b, x, to), 1);
    return;
  }
  LLVMTypeRef types[2] = {LLVMTypeOf(x), k->pointer};
  LLVMValueRef args[4] = {x, to, LLVMConstInt(k->i32, 1, false), mask};
  vt_emit_intrinsic(k->e, "llvm.masked.store", 2, types, 4, args);
}

static LLVMValueRef map_columns(nest *n, void *user, LLVMValueRef column, LLVMValueRef mask,
                                LLVMValueRef carry) {
  map *m = user;
  vt_kemit *k = n->k;
  spot at = m->at;
  at.index[at.flat ? 0 : m->column] = column;
  at.lane = at.flat ? 0 : m->column;
  LLVMValueRef x = eval_once(n, m->op ? &m->op->results[0] : m->value, &at, m->op != NULL);
  x = vt_klanes_convert(k->e, &k->arena, m->dtype, m->place->dtype, x);
  if (m->rounds) x = vt_emit_round(k->e, VT_BF16, x);
  write(n, m, &at, x, mask);
  return carry;
}

// Whether element i of the value, counted through all dimensions, depends on elements i alone.
static bool is_flat(const nest *n, const vt_mvalue *v, int64_t count) {
  if (v->type.kind != VT_MVECTOR) return true;
  const vt_kvalue *p = plan_of(n, v);
  int64_t dense[VT_MOSAIC_RANK];
  if (p->level && !vt_kplan_is_splat(v)) return false; // once for a row
  bool same = vt_mtype_elements(v->type) == count;
  if (p->home == VT_KHOME_MEMORY || p->home == VT_KHOME_ALIAS) return same;
  if (p->home == VT_KHOME_LEAF) {
    vt_kdense(v->type, dense);
    for (int32_t d = 0; d < v->type.rank; d++)
      if (v->type.dims[d] != 1 && dense[d] != p->strides[d]) return false;
    return same;
  }
  const vt_mop *op = v->op;
  if (op->code == VT_MOP_CONSTANT) return true;
  if (op->code == VT_MOP_IOTA || op->code == VT_MOP_EXTRACT_SLICE || op->code == VT_MOP_CONCATENATE)
    return false;
  if (op->code == VT_MOP_BROADCAST && op->operands[0]->type.kind == VT_MVECTOR && !same)
    return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!is_flat(n, op->operands[i], count)) return false;
  return true;
}

static bool op_is_flat(const nest *n, const vt_mop *op, int64_t count) {
  int64_t dense[VT_MOSAIC_RANK];
  const vt_kvalue *p = plan_of(n, &op->results[0]);
  if (p->level && op->code != VT_MOP_CONSTANT) return false;
  if (p->loads) {
    vt_kdense(op->results[0].type, dense);
    return !memcmp(dense, p->strides, sizeof *dense * (size_t)op->results[0].type.rank);
  }
  if (op->code == VT_MOP_CONSTANT) return true;
  if (op->code == VT_MOP_IOTA || op->code == VT_MOP_EXTRACT_SLICE || op->code == VT_MOP_CONCATENATE)
    return false;
  if (op->code == VT_MOP_BROADCAST && op->operands[0]->type.kind == VT_MVECTOR) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!is_flat(n, op->operands[i], count)) return false;
  return true;
}

static bool place_is_flat(vt_mtype type, const vt_kplace *place) {
  int64_t dense[VT_MOSAIC_RANK];
  vt_kdense(type, dense);
  for (int32_t d = 0; d < type.rank; d++)
    if (type.dims[d] != 1 && dense[d] != place->strides[d]) return false;
  return !place->mask && !place->laid;
}

static void run_map(vt_kemit *k, vt_mtype type, map *m) {
  nest *n = VT_NEW(&k->arena, nest);
  loop loops[VT_MOSAIC_RANK];
  int64_t count = vt_mtype_elements(type);
  n->k = k;
  if (!count) return;
  k->e->target.lanes = k->lanes;
  m->at = (spot){.rank = type.rank};
  m->at.flat = place_is_flat(type, m->place) &&
               (m->op ? op_is_flat(n, m->op, count) : is_flat(n, m->value, count));
  if (m->at.flat) {
    over_columns(n, part_of_all(k, type), map_columns, m, NULL);
  } else {
    m->column = type.rank - 1;
    for (int32_t d = type.rank; d-- > 0 && type.dims[m->column] == 1;) m->column = d;
    if (type.dims[m->column] == 1) m->column = type.rank - 1;
    for (int32_t d = 0; d < type.rank; d++) {
      if (d != m->column) m->at.index[d] = open_dim(k, &loops[d], type, d, NULL);
    }
    over_columns(n, part_of(k, type, m->column), map_columns, m, NULL);
    for (int32_t d = type.rank; d-- > 0;)
      if (d != m->column) close_loop(k, &loops[d], NULL);
  }
  k->e->target.lanes = 1;
}

void vt_knest_store(vt_kemit *k, const vt_mvalue *value, const vt_kplace *place, bool rounds) {
  map m = {.value = value,
           .place = place,
           .dtype = vt_klanes_memory(value->type.dtype),
           .rounds = rounds};
  run_map(k, value->type, &m);
}

static void concatenate(vt_kemit *k, const vt_mop *op, const vt_kplace *place) {
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), at = 0;
  int64_t bytes = (int64_t)vt_dtype_bytes(place->dtype);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_kplace part = *place;
    part.pointer = vt_kat(k, place->pointer, vt_ki64(k, at * place->strides[dim] * bytes));
    vt_knest_store(k, op->operands[i], &part, false);
    at += op->operands[i]->type.dims[dim];
  }
}

void vt_knest_op(vt_kemit *k, const vt_mop *op, const vt_kplace *place) {
  if (op->code == VT_MOP_CONCATENATE) {
    concatenate(k, op, place);
    return;
  }
  map m = {.op = op, .place = place, .dtype = place->dtype};
  run_map(k, op->results[0].type, &m);
}

LLVMValueRef vt_knest_element(vt_kemit *k, const vt_mvalue *value, const int64_t *index) {
  nest *n = VT_NEW(&k->arena, nest);
  spot at = {.rank = value->type.rank, .lane = -1};
  n->k = k;
  k->e->target.lanes = k->lanes;
  for (int32_t d = 0; d < at.rank; d++) at.index[d] = vt_ki64(k, index ? index[d] : 0);
  LLVMValueRef x = eval(n, value, &at);
  x = LLVMBuildExtractElement(builder(n), x, LLVMConstInt(k->i32, 0, false), "");
  k->e->target.lanes = 1;
  return x;
}

// ---- reductions ---------------------------------------------------------------------------------

static vt_reducer reducer_of(const vt_mop *op) {
  switch (vt_mop_attr(op, VT_MATTR_KIND)->i64) {
  case VT_MWORD_ADD:
    return VT_REDUCE_ADD;
  case VT_MWORD_MAXIMUMF:
  case VT_MWORD_MAXSI:
    return VT_REDUCE_MAX;
  case VT_MWORD_MINIMUMF:
  case VT_MWORD_MINSI:
    return VT_REDUCE_MIN;
  default:
    return VT_REDUCE_NONE;
  }
}

bool vt_knest_reduces(const vt_mop *op) {
  vt_dtype dtype = op->operands[0]->type.dtype;
  return (dtype == VT_F32 || dtype == VT_BF16 || dtype == VT_S32) &&
         op->results[0].type.kind == VT_MVECTOR && reducer_of(op) != VT_REDUCE_NONE &&
         vt_mtype_elements(op->operands[0]->type) > 0;
}

typedef struct reduction {
  const vt_mop *op;
  vt_reducer reducer;
  vt_dtype work;
  bool reduced[VT_MOSAIC_RANK];
  int32_t column;
  spot at;
  const vt_kplace *place;
} reduction;

// The operand, which may be made here.
static LLVMValueRef eval_reduced(nest *n, const reduction *r, const spot *at, LLVMValueRef mask) {
  const vt_mvalue *v = r->op->operands[0];
  vt_kplace place = {.dtype = v->type.dtype};
  if (plan_of(n, v)->reduction != r->op) return eval(n, v, at);
  LLVMValueRef x = eval_op(n, v->op, at);
  vt_kdense(v->type, place.strides);
  place.pointer = vt_kaddress(n->k, v);
  if (plan_of(n, v)->laid) place.laid = v->type.dims[1];
  write(n, &(map){.place = &place}, at, x, mask);
  return x;
}

static LLVMValueRef join_sums(nest *n, void *user, LLVMValueRef x, LLVMValueRef y) {
  const reduction *r = user;
  return vt_emit_combine(n->k->e, r->reducer, r->work, x, y);
}

static LLVMValueRef reduce_columns(nest *n, void *user, LLVMValueRef column, LLVMValueRef mask,
                                   LLVMValueRef carry) {
  reduction *r = user;
  vt_emitter *e = n->k->e;
  spot at = r->at;
  at.index[r->column] = column;
  at.lane = r->column;
  LLVMValueRef x = eval_reduced(n, r, &at, mask);
  if (mask) x = LLVMBuildSelect(builder(n), mask, x, vt_emit_neutral(e, r->reducer, r->work), "");
  return vt_emit_combine(e, r->reducer, r->work, carry, x);
}

// All lanes as one, in each.
static LLVMValueRef join_lanes(nest *n, const reduction *r, LLVMValueRef x) {
  int lanes = n->k->lanes;
  for (int by = lanes / 2; by > 0; by /= 2) {
    LLVMValueRef order[MOST_LANES];
    for (int l = 0; l < lanes; l++)
      order[l] = LLVMConstInt(n->k->i32, (unsigned)((l + by) % lanes), false);
    LLVMValueRef y = LLVMBuildShuffleVector(builder(n), x, LLVMGetPoison(LLVMTypeOf(x)),
                                            LLVMConstVector(order, (unsigned)lanes), "");
    x = vt_emit_combine(n->k->e, r->reducer, r->work, x, y);
  }
  return x;
}

// The place of the result that belongs to the element.
static spot kept_spot(const reduction *r, const spot *at) {
  spot kept = {.lane = -1};
  for (int32_t d = 0; d < at->rank; d++) {
    if (r->reduced[d]) continue;
    if (at->lane == d) kept.lane = kept.rank;
    kept.index[kept.rank++] = at->index[d];
  }
  return kept;
}

// Joins the accumulator in and writes: a register of columns, or one element.
static void finish(nest *n, const reduction *r, const spot *at, LLVMValueRef x, LLVMValueRef mask) {
  spot kept = kept_spot(r, at);
  vt_emitter *e = n->k->e;
  x = vt_emit_combine(e, r->reducer, r->work, eval(n, r->op->operands[1], &kept), x);
  x = vt_emit_round(e, r->place->dtype, x);
  map m = {.place = r->place};
  if (kept.lane < 0) mask = first_lanes(n, 1);
  write(n, &m, &kept, x, mask);
}

// Down the rows: the columns stay. Values are not known from one column to the next.
static LLVMValueRef reduce_rows(nest *n, void *user, LLVMValueRef column, LLVMValueRef mask,
                                LLVMValueRef carry) {
  reduction *r = user;
  vt_kemit *k = n->k;
  vt_mtype type = r->op->operands[0]->type;
  loop loops[VT_MOSAIC_RANK];
  LLVMBasicBlockRef before = n->before;
  LLVMValueRef sum = vt_emit_neutral(k->e, r->reducer, r->work);
  spot at = r->at;
  at.index[r->column] = column;
  at.lane = r->column;
  n->before = NULL;
  for (int32_t d = 0; d < type.rank; d++)
    if (r->reduced[d]) at.index[d] = open_dim(k, &loops[d], type, d, &sum);
  n->known_count = 0;
  LLVMValueRef x = eval_reduced(n, r, &at, mask);
  sum = vt_emit_combine(k->e, r->reducer, r->work, sum, x);
  for (int32_t d = type.rank; d-- > 0;)
    if (r->reduced[d]) close_loop(k, &loops[d], &sum);
  n->known_count = 0;
  finish(n, r, &at, sum, mask);
  n->known_count = 0;
  n->before = before;
  return carry;
}

void vt_knest_reduce(vt_kemit *k, const vt_mop *op, const vt_kplace *place) {
  vt_mtype type = op->operands[0]->type;
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_REDUCTION_DIMS);
  nest *n = VT_NEW(&k->arena, nest);
  loop loops[VT_MOSAIC_RANK];
  reduction r = {.op = op,
                 .reducer = reducer_of(op),
                 .work = vt_emit_compute_dtype(type.dtype),
                 .at = {.rank = type.rank},
                 .place = place};
  n->k = k;
  k->e->target.lanes = k->lanes;
  for (uint32_t i = 0; i < dims->count; i++) r.reduced[dims->ints[i]] = true;
  r.column = type.rank - 1;
  for (int32_t d = type.rank; d-- > 0 && type.dims[r.column] == 1;) r.column = d;
  if (type.dims[r.column] == 1) r.column = type.rank - 1;
  bool across = r.reduced[r.column];
  for (int32_t d = 0; d < type.rank; d++)
    if (d != r.column && !r.reduced[d]) r.at.index[d] = open_dim(k, &loops[d], type, d, NULL);
  if (across) {
    LLVMValueRef sum = vt_emit_neutral(k->e, r.reducer, r.work);
    for (int32_t d = 0; d < type.rank; d++)
      if (d != r.column && r.reduced[d]) r.at.index[d] = open_dim(k, &loops[d], type, d, &sum);
    carried c = {sum, vt_emit_neutral(k->e, r.reducer, r.work), join_sums};
    over_columns(n, part_of(k, type, r.column), reduce_columns, &r, &c);
    sum = c.value;
    for (int32_t d = type.rank; d-- > 0;)
      if (d != r.column && r.reduced[d]) close_loop(k, &loops[d], &sum);
    n->known_count = 0;
    r.at.lane = -1;
    r.at.index[r.column] = vt_ki64(k, 0);
    finish(n, &r, &r.at, join_lanes(n, &r, sum), NULL);
  } else {
    for (int32_t d = 0; d < type.rank; d++)
      if (r.reduced[d]) r.at.index[d] = vt_ki64(k, 0);
    over_columns(n, part_of(k, type, r.column), reduce_rows, &r, NULL);
  }
  for (int32_t d = type.rank; d-- > 0;)
    if (d != r.column && !r.reduced[d]) close_loop(k, &loops[d], NULL);
  k->e->target.lanes = 1;
}
