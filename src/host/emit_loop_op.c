// SPDX-License-Identifier: Apache-2.0
// emit_loop_op.c - one op of a loop (emit_loop.h).
//
// Each element is computed as in emit_nest.c; sums follow the order of the terms, except sums to
// one element: these add whole vectors first, then the lanes as a tree.
#include "base/check.h"
#include "host/emit_loop.h"
#include "ir/precision.h"

static LLVMValueRef constant_lane(vt_loop_code *m, vt_type type, const void *data) {
  vt_literal one = {.type = {type.dtype, 0, NULL}, .data = data, .splat = true};
  return LLVMGetAggregateElement(vt_emit_constant(m->e, &one), 0);
}

static void emit_constant(vt_loop_code *m, const vt_op *op, vt_held *out) {
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  int64_t elements = vt_type_elements(literal->type), lanes = m->e->target.lanes;
  int64_t bytes = (int64_t)vt_dtype_bytes(literal->type.dtype);
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef parts[VT_MOST_LANES];
    for (int64_t l = 0; l < lanes; l++) {
      int64_t at = i * lanes + l;
      if (at >= elements) at = elements - 1;
      parts[l] = constant_lane(m, literal->type,
                               (const char *)literal->data + (literal->splat ? 0 : at * bytes));
    }
    out->parts[i] = LLVMConstVector(parts, (unsigned)lanes);
  }
}

static void emit_iota(vt_loop_code *m, const vt_op *op, vt_held *out) {
  vt_type type = op->results[0].type;
  int64_t inner = 1, elements = vt_type_elements(type), lanes = m->e->target.lanes;
  int64_t d = vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION);
  for (int32_t i = (int32_t)d + 1; i < type.rank; i++) inner *= type.dims[i];
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef parts[VT_MOST_LANES];
    for (int64_t l = 0; l < lanes; l++) {
      int64_t at = i * lanes + l < elements ? (i * lanes + l) / inner % type.dims[d] : 0;
      LLVMValueRef x = vt_dtype_is_float(type.dtype) ? vt_emit_splat_f(m->e, type.dtype, (double)at)
                                                     : vt_emit_splat_i(m->e, type.dtype, at);
      parts[l] = LLVMGetAggregateElement(x, 0);
    }
    out->parts[i] = vt_emit_round(m->e, type.dtype, LLVMConstVector(parts, (unsigned)lanes));
  }
}

// The vector whose lane l is element from[l].element of operand from[l].operand.
static LLVMValueRef from_several(vt_loop_code *m, const vt_op *op, const vt_loop_place *from,
                                 int64_t count) {
  LLVMBuilderRef b = m->e->builder;
  LLVMValueRef x = LLVMGetPoison(vt_emit_type(m->e, op->results[0].type.dtype));
  for (int64_t l = 0; l < count; l++) {
    const vt_value *value = op->operands[from[l].operand];
    x = LLVMBuildInsertElement(b, x, vt_loop_element(m, value, from[l].element), vt_loop_i32(m, l),
                               "");
  }
  return x;
}

static void emit_move(vt_loop_code *m, const vt_op *op, vt_held *out) {
  int64_t elements = vt_type_elements(op->results[0].type), lanes = m->e->target.lanes;
  for (uint32_t i = 0; i < out->count; i++) {
    vt_loop_place from[VT_MOST_LANES] = {{0}};
    int64_t at[VT_MOST_LANES], left = elements - i * lanes;
    bool one = true;
    for (int64_t l = 0; l < lanes; l++) {
      if (l < left) {
        from[l] = vt_loop_source(op, i * lanes + l);
      } else { // keep position: a row stays a row
        from[l] = from[l - 1];
        if (l > 1 && from[l - 1].element == from[l - 2].element + 1) from[l].element++;
      }
      at[l] = from[l].element;
      one &= from[l].operand == from[0].operand;
    }
    out->parts[i] = one ? vt_loop_load_lanes(m, op->operands[from[0].operand], at)
                        : from_several(m, op, from, left < lanes ? left : lanes);
  }
}

// ---- Sums.

// Lanes l of the k-th terms of elements `first` + l.
static LLVMValueRef term(vt_loop_code *m, const vt_op *op, uint32_t operand, int64_t first,
                         int64_t k) {
  int64_t elements = vt_type_elements(op->results[0].type), lanes = m->e->target.lanes;
  int64_t at[VT_MOST_LANES];
  for (int64_t l = 0; l < lanes; l++) {
    if (first + l < elements)
      at[l] = vt_loop_term(op, operand, first + l, k);
    else
      at[l] = l > 1 && at[l - 1] != at[l - 2] + 1 ? at[l - 1] : at[l - 1] + (l > 1);
  }
  return vt_loop_load_lanes(m, op->operands[operand], at);
}

// Lanes l of the terms `first` + l of the one element.
static LLVMValueRef terms_of_one(vt_loop_code *m, const vt_op *op, uint32_t operand,
                                 int64_t first) {
  int64_t terms = vt_loop_terms(op), lanes = m->e->target.lanes, at[VT_MOST_LANES];
  for (int64_t l = 0; l < lanes; l++)
    at[l] = first + l < terms ? vt_loop_term(op, operand, 0, first + l) : at[l - 1] + (l > 1);
  return vt_loop_load_lanes(m, op->operands[operand], at);
}

// x where the lane is one of the first `count`, else y.
static LLVMValueRef first_lanes(vt_loop_code *m, int64_t count, LLVMValueRef x, LLVMValueRef y) {
  int64_t lanes = m->e->target.lanes;
  LLVMValueRef mask[VT_MOST_LANES];
  if (count >= lanes) return x;
  for (int64_t l = 0; l < lanes; l++)
    mask[l] = LLVMConstInt(LLVMInt1TypeInContext(m->e->context), l < count, false);
  return LLVMBuildSelect(m->e->builder, LLVMConstVector(mask, (unsigned)lanes), x, y, "");
}

// All lanes of x as one, and the emitter at one lane.
static LLVMValueRef tree(vt_loop_code *m, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x) {
  for (int by = m->e->target.lanes / 2; by > 0; by /= 2)
    x = vt_emit_combine(m->e, reducer, dtype, x, vt_emit_lanes_down(m->e, x, by));
  m->e->target.lanes = 1;
  return vt_emit_spread(m->e, LLVMBuildExtractElement(m->e->builder, x, vt_loop_i32(m, 0), ""));
}

static LLVMValueRef reduce_to_one(vt_loop_code *m, const vt_op *op, vt_reducer reducer) {
  const vt_value *operand = op->operands[0];
  vt_dtype dtype = vt_emit_compute_dtype(operand->type.dtype);
  const vt_held *s = vt_loop_parts(m, operand);
  vt_loop_use_lanes(m, operand->type);
  int64_t lanes = m->e->target.lanes, elements = vt_type_elements(operand->type);
  LLVMValueRef sum = NULL, neutral = vt_emit_neutral(m->e, reducer, dtype);
  for (uint32_t c = 0; c < s->count; c++) {
    LLVMValueRef x = first_lanes(m, elements - c * lanes, s->parts[c], neutral);
    sum = vt_emit_combine(m->e, reducer, dtype, sum ? sum : neutral, x);
  }
  if (!elements) return neutral;
  return elements == 1 ? s->parts[0] : tree(m, reducer, dtype, sum);
}

static void emit_reduce(vt_loop_code *m, const vt_op *op, vt_held *out) {
  vt_reducer reducer = vt_reducer_of(op);
  vt_dtype dtype = vt_emit_compute_dtype(op->operands[0]->type.dtype);
  int64_t terms = vt_loop_terms(op);
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef sum;
    if (vt_type_elements(op->results[0].type) == 1) {
      sum = reduce_to_one(m, op, reducer);
    } else {
      sum = vt_emit_neutral(m->e, reducer, dtype);
      for (int64_t k = 0; k < terms; k++)
        sum = vt_emit_combine(m->e, reducer, dtype, sum,
                              term(m, op, 0, (int64_t)i * m->e->target.lanes, k));
    }
    out->parts[i] = vt_emit_round(m->e, op->results[0].type.dtype, sum);
  }
}

// Any other reduction: its region once for each term of each element, in order.
static void emit_fold(vt_loop_code *m, const vt_op *op) {
  LLVMBuilderRef b = m->e->builder;
  uint32_t inputs = op->result_count, params = op->regions[0]->param_count;
  vt_held *args = VT_NEW_ARRAY(&m->arena, vt_held, params);
  vt_type type = op->results[0].type;
  int64_t lanes = vt_loop_lanes(m, type), terms = vt_loop_terms(op);
  vt_held *out = VT_NEW_ARRAY(&m->arena, vt_held, inputs);
  for (uint32_t i = 0; i < inputs; i++) out[i] = vt_loop_new(m, type);
  for (uint32_t i = 2 * inputs; i < params; i++) args[i] = *vt_loop_held(m, op->operands[i]);
  for (int64_t at = 0; at < vt_type_elements(type); at++) {
    const vt_held *sum = NULL;
    for (int64_t k = 0; k < terms; k++) {
      for (uint32_t i = 0; i < inputs; i++) {
        m->e->target.lanes = 1;
        LLVMValueRef *x = VT_NEW(&m->arena, LLVMValueRef);
        *x = vt_emit_spread(m->e, vt_loop_element(m, op->operands[i], vt_loop_term(op, 0, at, k)));
        args[i] = sum ? sum[i] : *vt_loop_parts(m, op->operands[inputs + i]);
        args[inputs + i] = (vt_held){.count = 1, .parts = x};
      }
      sum = vt_loop_func(m, op->regions[0], args);
    }
    for (uint32_t i = 0; i < inputs; i++) {
      m->e->target.lanes = (int)lanes;
      LLVMValueRef *part = &out[i].parts[at / lanes];
      if (!*part) *part = LLVMGetPoison(vt_emit_type(m->e, op->results[i].type.dtype));
      LLVMValueRef x = LLVMBuildExtractElement(b, sum[i].parts[0], vt_loop_i32(m, 0), "");
      *part = LLVMBuildInsertElement(b, *part, x, vt_loop_i32(m, at % lanes), "");
    }
  }
  for (uint32_t i = 0; i < inputs; i++) *vt_loop_held(m, &op->results[i]) = out[i];
}

// The code generator would add up one vector of sums after the other, each waiting for itself.
// Volatile loads stay in order: as many sums as there are registers stay side by side.
static LLVMValueRef in_order(const vt_held *out, LLVMValueRef x) {
  enum { SUMS = 12 };
  if (out->count > 1 && out->count <= SUMS && LLVMIsALoadInst(x)) LLVMSetVolatile(x, true);
  return x;
}

// sum + x y. Operands that the matrix unit rounds were rounded by passes/opt_lower_precision.c, or
// are rounded here.
static LLVMValueRef add_product(vt_loop_code *m, const vt_op *op, LLVMValueRef x, LLVMValueRef y,
                                LLVMValueRef sum) {
  LLVMBuilderRef b = m->e->builder;
  vt_dtype dtype = vt_emit_compute_dtype(op->results[0].type.dtype);
  LLVMValueRef args[3] = {x, y, sum};
  if (!vt_dtype_is_float(dtype)) return LLVMBuildAdd(b, sum, LLVMBuildMul(b, x, y, ""), "");
  bool rounds = dtype == VT_F32 && vt_op_rounds_operands(op);
  for (int o = 0; o < 2 && rounds; o++) args[o] = vt_emit_round(m->e, VT_BF16, args[o]);
  LLVMTypeRef type = vt_emit_type(m->e, dtype);
  if (m->e->target.fma) return vt_emit_intrinsic(m->e, "llvm.fma", 1, &type, 3, args);
  return LLVMBuildFAdd(b, sum, LLVMBuildFMul(b, args[0], args[1], ""), "");
}

static LLVMValueRef zero_of(vt_loop_code *m, vt_dtype dtype) {
  return vt_dtype_is_float(dtype) ? vt_emit_splat_f(m->e, dtype, 0)
                                  : vt_emit_splat_i(m->e, dtype, 0);
}

static LLVMValueRef dot_to_one(vt_loop_code *m, const vt_op *op) {
  vt_dtype dtype = vt_emit_compute_dtype(op->results[0].type.dtype);
  int64_t terms = vt_loop_terms(op);
  vt_loop_use_lanes(m, (vt_type){dtype, 1, &terms});
  int64_t lanes = m->e->target.lanes;
  LLVMValueRef sum = zero_of(m, dtype), zero = sum;
  for (int64_t k = 0; k < terms; k += lanes) {
    LLVMValueRef next =
        add_product(m, op, terms_of_one(m, op, 0, k), terms_of_one(m, op, 1, k), sum);
    sum = first_lanes(m, terms - k, next, sum);
  }
  if (terms < lanes) sum = first_lanes(m, terms, sum, zero);
  return tree(m, VT_REDUCE_ADD, dtype, sum);
}

static void emit_dot(vt_loop_code *m, const vt_op *op, vt_held *out) {
  vt_dtype dtype = vt_emit_compute_dtype(op->results[0].type.dtype);
  int64_t terms = vt_loop_terms(op), lanes = m->e->target.lanes;
  LLVMValueRef sums[VT_LOOP_VECTORS];
  if (vt_type_elements(op->results[0].type) == 1) {
    out->parts[0] = vt_emit_round(m->e, op->results[0].type.dtype, dot_to_one(m, op));
    return;
  }
  for (uint32_t i = 0; i < out->count; i++) sums[i] = zero_of(m, dtype);
  for (int64_t k = 0; k < terms; k++)
    for (uint32_t i = 0; i < out->count; i++)
      sums[i] = add_product(m, op, in_order(out, term(m, op, 0, i * lanes, k)),
                            in_order(out, term(m, op, 1, i * lanes, k)), sums[i]);
  for (uint32_t i = 0; i < out->count; i++)
    out->parts[i] = vt_emit_round(m->e, op->results[0].type.dtype, sums[i]);
}

// ---- Others.

static void emit_elementwise(vt_loop_code *m, const vt_op *op, vt_held *out) {
  bool spread = vt_type_elements(op->results[0].type) > 1;
  for (uint32_t i = 0; i < out->count; i++) {
    LLVMValueRef operands[3];
    for (uint32_t k = 0; k < op->operand_count; k++) {
      const vt_value *x = op->operands[k];
      operands[k] = spread && vt_type_elements(x->type) == 1
                        ? vt_emit_spread(m->e, vt_loop_element(m, x, 0))
                        : vt_loop_parts(m, x)->parts[i];
    }
    out->parts[i] = vt_emit_op(m->e, op, operands);
  }
}

// The evaluator does it, with operands and results in memory.
static void emit_call(vt_loop_code *m, const vt_op *op) {
  LLVMBuilderRef b = m->e->builder;
  uint32_t operands = op->operand_count, all = operands + op->result_count;
  LLVMTypeRef pointer = vt_loop_pointer_type(m);
  LLVMValueRef *memory = VT_NEW_ARRAY(&m->arena, LLVMValueRef, all);
  LLVMValueRef list = vt_loop_room(m, (int64_t)(all * sizeof(void *)));
  for (uint32_t i = 0; i < all; i++) {
    memory[i] = i < operands ? vt_loop_memory(m, op->operands[i])
                             : vt_loop_room_of(m, op->results[i - operands].type);
    LLVMValueRef at = vt_loop_i64(m, (int64_t)(i * sizeof(void *)));
    LLVMBuildStore(b, memory[i], vt_loop_at_byte(m, list, at));
  }
  LLVMTypeRef params[3] = {pointer, vt_loop_i32_type(m), pointer};
  LLVMTypeRef type = LLVMFunctionType(vt_loop_i32_type(m), params, 3, false);
  LLVMValueRef function = LLVMGetNamedFunction(m->e->module, "vt_loop_call");
  if (!function) function = LLVMAddFunction(m->e->module, "vt_loop_call", type);
  LLVMValueRef args[3] = {LLVMGetParam(m->e->function, 1),
                          vt_loop_i32(m, vt_loop_called(m->loop, op)), list};
  LLVMValueRef failed = LLVMBuildCall2(b, type, function, args, 3, "");
  LLVMBasicBlockRef next = LLVMAppendBasicBlockInContext(m->e->context, m->e->function, "called");
  LLVMValueRef ok = LLVMBuildICmp(b, LLVMIntEQ, failed, vt_loop_i32(m, 0), "");
  vt_emit_branch(m->e, ok, next, m->failed);
  LLVMPositionBuilderAtEnd(b, next);
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_held *out = vt_loop_held(m, &op->results[i]);
    vt_loop_load(m, op->results[i].type, memory[operands + i], out);
    out->pointer = memory[operands + i];
  }
}

static void emit_code(vt_loop_code *m, const vt_op *op) {
  vt_held out = vt_loop_new(m, op->results[0].type);
  switch (op->code) {
  case VT_OP_CONSTANT:
    emit_constant(m, op, &out);
    break;
  case VT_OP_IOTA:
    emit_iota(m, op, &out);
    break;
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_TRANSPOSE:
  case VT_OP_SLICE:
  case VT_OP_CONCATENATE:
  case VT_OP_REVERSE:
  case VT_OP_PAD:
    emit_move(m, op, &out);
    break;
  case VT_OP_REDUCE:
    emit_reduce(m, op, &out);
    break;
  case VT_OP_DOT_GENERAL:
    emit_dot(m, op, &out);
    break;
  default:
    emit_elementwise(m, op, &out);
  }
  *vt_loop_held(m, &op->results[0]) = out;
}

void vt_loop_op(vt_loop_code *m, const vt_op *op) {
  if (vt_loop_is_empty(op)) {
    for (uint32_t i = 0; i < op->result_count; i++)
      *vt_loop_held(m, &op->results[i]) = vt_loop_new(m, op->results[i].type);
    return;
  }
  int64_t cost = 0;
  vt_loop_way way = vt_loop_way_of(op, &cost);
  vt_assert(way != VT_LOOP_REFUSED);
  if (way == VT_LOOP_CALL) {
    emit_call(m, op);
    return;
  }
  int before = vt_loop_use_lanes(m, op->results[0].type);
  if (op->code == VT_OP_REDUCE && vt_loop_folds(op))
    emit_fold(m, op);
  else if (op->code == VT_OP_DYNAMIC_SLICE)
    vt_loop_dynamic_slice(m, op);
  else if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE)
    vt_loop_dynamic_update(m, op);
  else if (op->code == VT_OP_GATHER)
    vt_loop_gather(m, op);
  else if (op->code == VT_OP_SCATTER)
    vt_loop_scatter(m, op);
  else
    emit_code(m, op);
  m->e->target.lanes = before;
}
