// SPDX-License-Identifier: Apache-2.0
// kernel_emit.c - the code of one function of a kernel: scalars in registers, control flow, loads
// and stores, and calls of the functions of ops that have no code.
#include <stddef.h>
#include <string.h>

#include "mosaic_host/kernel.h"

static void emit_block(vt_kemit *k, const vt_mblock *block);

static const vt_kvalue *plan_of(const vt_kemit *k, const vt_mvalue *v) {
  return vt_kvalue_of(k->plan, v);
}
static vt_kscalar *state_of(vt_kemit *k, const vt_mvalue *v) {
  return &k->values[v->slot];
}
static LLVMBuilderRef builder(const vt_kemit *k) {
  return k->e->builder;
}
static bool is_vector(const vt_mvalue *v) {
  return v->type.kind == VT_MVECTOR;
}

LLVMValueRef vt_kat(vt_kemit *k, LLVMValueRef base, LLVMValueRef bytes) {
  return LLVMBuildInBoundsGEP2(builder(k), k->i8, base, &bytes, 1, "");
}
LLVMBasicBlockRef vt_kblock(vt_kemit *k, const char *name) {
  return LLVMAppendBasicBlockInContext(k->e->context, k->e->function, name);
}
LLVMValueRef vt_kload_pointer(vt_kemit *k, LLVMValueRef base, int64_t at) {
  return LLVMBuildLoad2(builder(k), k->pointer, vt_kat(k, base, vt_ki64(k, at)), "");
}

// Goes on in a new block when the condition holds, else in `otherwise`.
static void branch(vt_kemit *k, LLVMValueRef condition, LLVMBasicBlockRef otherwise) {
  LLVMBasicBlockRef next = vt_kblock(k, "next");
  LLVMBuildCondBr(builder(k), condition, next, otherwise);
  LLVMPositionBuilderAtEnd(builder(k), next);
}

// ---- scalars ------------------------------------------------------------------------------------

static LLVMTypeRef scalar_type(vt_kemit *k, vt_dtype dtype) {
  return LLVMGetElementType(vt_emit_type(k->e, dtype));
}

// The emitters of src/host know vectors: of one lane here.
static LLVMValueRef as_lane(vt_kemit *k, LLVMValueRef x) {
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(x), 1);
  return LLVMBuildInsertElement(builder(k), LLVMGetPoison(type), x, LLVMConstInt(k->i32, 0, false),
                                "");
}
static LLVMValueRef from_lane(vt_kemit *k, LLVMValueRef x) {
  return LLVMBuildExtractElement(builder(k), x, LLVMConstInt(k->i32, 0, false), "");
}

static LLVMValueRef scalar_constant(vt_kemit *k, const vt_mop *op) {
  const vt_literal *literal = vt_mop_attr(op, VT_MATTR_VALUE)->literal;
  vt_literal one = {.type = {literal->type.dtype, 0, NULL}, .data = literal->data, .splat = true};
  return from_lane(k, vt_emit_constant(k->e, &one));
}

static LLVMValueRef scalar(vt_kemit *k, const vt_mvalue *v) {
  return state_of(k, v)->value;
}

// An integer as i64.
static LLVMValueRef wide(vt_kemit *k, const vt_mvalue *v) {
  LLVMValueRef x = scalar(k, v);
  if (LLVMTypeOf(x) == k->i64) return x;
  return v->type.dtype == VT_PRED ? LLVMBuildZExt(builder(k), x, k->i64, "")
                                  : LLVMBuildSExt(builder(k), x, k->i64, "");
}

static LLVMValueRef narrow(vt_kemit *k, LLVMValueRef x, vt_dtype dtype) {
  LLVMTypeRef type = scalar_type(k, dtype);
  return LLVMTypeOf(x) == type ? x : LLVMBuildTrunc(builder(k), x, type, "");
}

// Scalars in memory: of the machine's slots, or of arrays.
static LLVMValueRef load_scalar(vt_kemit *k, vt_dtype dtype, LLVMValueRef pointer) {
  LLVMTypeRef type = LLVMVectorType(vt_emit_memory_type(k->e, dtype), 1);
  LLVMValueRef x = LLVMBuildLoad2(builder(k), type, pointer, "");
  LLVMSetAlignment(x, 1);
  return from_lane(k, vt_emit_from_memory(k->e, dtype, x));
}
static void store_scalar(vt_kemit *k, vt_dtype dtype, LLVMValueRef x, LLVMValueRef pointer) {
  x = vt_emit_to_memory(k->e, dtype, as_lane(k, x));
  LLVMSetAlignment(LLVMBuildStore(builder(k), x, pointer), 1);
}

static LLVMValueRef slot_of(vt_kemit *k, const vt_mvalue *v) {
  return vt_kat(k, k->slots, vt_ki64(k, v->slot * (int64_t)sizeof(vt_mslot)));
}

// ---- calls of an op's own function --------------------------------------------------------------

// The scalars that a value rests on, into their slots: references through the ops that make them.
static void pass_scalars(vt_kemit *k, const vt_mvalue *v) {
  if (v->type.kind == VT_MSCALAR) store_scalar(k, v->type.dtype, scalar(k, v), slot_of(k, v));
  if (v->type.kind != VT_MREF || !v->op) return;
  for (uint32_t i = 0; i < v->op->operand_count; i++) pass_scalars(k, v->op->operands[i]);
}

static void pass_address(vt_kemit *k, uint32_t number, LLVMValueRef address) {
  LLVMBuildStore(builder(k), address,
                 vt_kat(k, k->passed, vt_ki64(k, number * (int64_t)sizeof(void *))));
}

static LLVMValueRef call_machine(vt_kemit *k, size_t field, uint32_t count, LLVMTypeRef *types,
                                 LLVMValueRef *args) {
  LLVMTypeRef type = LLVMFunctionType(k->i32, types, count, false);
  LLVMValueRef function = vt_kload_pointer(k, k->machine, (int64_t)field);
  LLVMValueRef result = LLVMBuildCall2(builder(k), type, function, args, count, "");
  LLVMValueRef good =
      LLVMBuildICmp(builder(k), LLVMIntEQ, result, LLVMConstInt(k->i32, 0, false), "");
  branch(k, good, k->failed);
  return result;
}

static LLVMValueRef home_of(vt_kemit *k, const vt_mvalue *v) {
  return vt_khome_at(k, v->type, plan_of(k, v)->at, plan_of(k, v)->local && !plan_of(k, v)->laid);
}

// `value` is the address of a store's value, which may have no home.
static void call_op(vt_kemit *k, const vt_mop *op, LLVMValueRef value) {
  uint32_t passed = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_mvalue *v = op->operands[i];
    if (is_vector(v))
      pass_address(k, passed++, value && i == 0 ? value : vt_kaddress(k, v));
    else
      pass_scalars(k, v);
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    if (is_vector(&op->results[i])) pass_address(k, passed++, home_of(k, &op->results[i]));
  LLVMTypeRef types[2] = {k->pointer, k->i32};
  LLVMValueRef args[2] = {k->machine, LLVMConstInt(k->i32, op->number, false)};
  call_machine(k, offsetof(vt_mmachine, call), 2, types, args);
}

static void take_scalars(vt_kemit *k, const vt_mop *op) {
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_mvalue *v = &op->results[i];
    if (v->type.kind == VT_MSCALAR)
      state_of(k, v)->value = load_scalar(k, v->type.dtype, slot_of(k, v));
  }
}

// ---- references ---------------------------------------------------------------------------------

static LLVMValueRef both(vt_kemit *k, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildAnd(builder(k), a, b, "");
}

// 0 <= x and x + extent < dim + 1, for an x of any size.
static LLVMValueRef inside(vt_kemit *k, LLVMValueRef x, int64_t extent, int64_t dim) {
  if (extent > dim) return LLVMConstInt(k->i1, 0, false);
  return LLVMBuildICmp(builder(k), LLVMIntULE, x, vt_ki64(k, dim - extent), "");
}

static void emit_ref(vt_kemit *k, const vt_mop *op) {
  const vt_kvalue *plan = plan_of(k, &op->results[0]);
  vt_kscalar *to = state_of(k, &op->results[0]);
  to->offset = vt_ki64(k, 0);
  to->ok = LLVMConstInt(k->i1, 1, false);
  if (!plan->plain || !op->operand_count) return;
  const vt_kscalar *from = state_of(k, op->operands[0]);
  const vt_kvalue *whole = plan_of(k, op->operands[0]);
  to->offset = from->offset;
  to->ok = from->ok;
  if (op->code != VT_MOP_SLICE_REF) return;
  uint32_t count;
  vt_mvalue **base = vt_mop_group(op, 1, &count);
  for (uint32_t d = 0; d < count; d++) {
    LLVMValueRef x = wide(k, base[d]);
    to->ok = both(k, to->ok, inside(k, x, op->results[0].type.dims[d], whole->view.dims[d]));
    to->offset =
        LLVMBuildAdd(builder(k), to->offset,
                     LLVMBuildMul(builder(k), x, vt_ki64(k, whole->view.strides[d]), ""), "");
  }
}

typedef struct block_at {
  LLVMValueRef pointer, ok;
} block_at;

// The block of `block` dimensions at the indices.
static block_at find_block(vt_kemit *k, const vt_mop *op, const vt_mvalue *ref,
                           vt_mvalue *const *indices, vt_mtype block) {
  const vt_kvalue *plan = plan_of(k, ref);
  const vt_kscalar *from = state_of(k, ref);
  const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
  LLVMValueRef offset = from->offset, ok = from->ok;
  for (int32_t d = 0; d < plan->view.rank; d++) {
    int64_t step = steps && steps->count ? steps->ints[d] : 1;
    int64_t size = block.kind == VT_MSCALAR ? 1 : block.dims[d];
    LLVMValueRef x = wide(k, indices[d]);
    ok = both(k, ok, inside(k, x, size ? (size - 1) * step + 1 : 0, plan->view.dims[d]));
    offset = LLVMBuildAdd(builder(k), offset,
                          LLVMBuildMul(builder(k), x, vt_ki64(k, plan->view.strides[d]), ""), "");
  }
  LLVMValueRef data = vt_kload_pointer(
      k, k->arrays, plan->array * (int64_t)sizeof(vt_marray) + (int64_t)offsetof(vt_marray, data));
  return (block_at){vt_kat(k, data, offset), ok};
}

// Operands of the call are not to be written: their first write copies them.
static LLVMValueRef may_write(vt_kemit *k, const vt_mvalue *ref, LLVMValueRef ok) {
  const vt_mosaic *kernel = k->plan->kernel;
  int64_t array = plan_of(k, ref)->array, window = array - kernel->prefetch_count;
  bool whole = window < 0 || (window < kernel->input_count && kernel->windows[window].whole);
  if (!whole) return ok;
  LLVMValueRef at = vt_kat(
      k, k->arrays,
      vt_ki64(k, array * (int64_t)sizeof(vt_marray) + (int64_t)offsetof(vt_marray, read_only)));
  LLVMValueRef read_only = LLVMBuildLoad2(builder(k), k->i8, at, "");
  LLVMValueRef zero = LLVMConstInt(k->i8, 0, false);
  return both(k, ok, LLVMBuildICmp(builder(k), LLVMIntEQ, read_only, zero, ""));
}

static bool is_true(LLVMValueRef ok) {
  return LLVMIsAConstantInt(ok) && LLVMConstIntGetZExtValue(ok);
}

// Runs the op's own function where `ok` does not hold, and returns its address there.
static LLVMValueRef unless_ok(vt_kemit *k, const vt_mop *op, LLVMValueRef ok, LLVMValueRef fast,
                              LLVMValueRef slow) {
  if (is_true(ok)) return fast;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(builder(k)), other = vt_kblock(k, "outside"),
                    done = vt_kblock(k, "done");
  LLVMBuildCondBr(builder(k), ok, done, other);
  LLVMPositionBuilderAtEnd(builder(k), other);
  call_op(k, op, NULL);
  LLVMBasicBlockRef end = LLVMGetInsertBlock(builder(k));
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), done);
  LLVMValueRef phi = LLVMBuildPhi(builder(k), k->pointer, "");
  LLVMAddIncoming(phi, (LLVMValueRef[]){fast, slow}, (LLVMBasicBlockRef[]){from, end}, 2);
  return phi;
}

// ---- products -----------------------------------------------------------------------------------

// An operand where the product reads it; one that is moved is brought there.
static LLVMValueRef emit_side(vt_kemit *k, const vt_kproduct *q, int i) {
  const vt_kside *s = &q->sides[i];
  const vt_mvalue *v = q->operands[i];
  if (!s->moved) return vt_kaddress(k, v);
  vt_mtype type = v->type;
  type.dtype = s->dtype;
  vt_kplace side = {.pointer = vt_khome_at(k, type, s->at, k->strip), .dtype = s->dtype};
  vt_kdense(v->type, side.strides);
  vt_knest_store(k, v, &side, s->rounds);
  return side.pointer;
}

// The product into the place, which begins with `start`, unless it is NULL. In a strip its right
// side has been laid out.
static void emit_product(vt_kemit *k, const vt_kproduct *q, const vt_mvalue *start,
                         const vt_kplace *place) {
  LLVMValueRef number = LLVMConstInt(k->i32, (unsigned)(q - k->plan->products), false);
  LLVMValueRef left = emit_side(k, q, 0);
  LLVMValueRef right = k->strip ? NULL : emit_side(k, q, 1);
  if (start) vt_knest_store(k, start, place, false);
  if (k->strip) {
    LLVMValueRef rows = vt_ki64(k, k->strip->step);
    LLVMValueRef args[6] = {k->machine, number, left, k->row, rows, place->pointer};
    LLVMTypeRef types[6] = {k->pointer, k->i32, k->pointer, k->i64, k->i64, k->pointer};
    call_machine(k, offsetof(vt_mmachine, product_rows), 6, types, args);
    return;
  }
  LLVMValueRef args[5] = {k->machine, number, left, right, place->pointer};
  LLVMTypeRef types[5] = {k->pointer, k->i32, k->pointer, k->pointer, k->pointer};
  call_machine(k, offsetof(vt_mmachine, product), 5, types, args);
}

static void emit_lay(vt_kemit *k, const vt_kproduct *q) {
  LLVMValueRef args[3] = {k->machine,
                          LLVMConstInt(k->i32, (unsigned)(q - k->plan->products), false),
                          emit_side(k, q, 1)};
  LLVMTypeRef types[3] = {k->pointer, k->i32, k->pointer};
  call_machine(k, offsetof(vt_mmachine, product_lay), 3, types, args);
}

// ---- loads and stores ---------------------------------------------------------------------------

static void emit_vector_load(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = &op->results[0];
  const vt_kvalue *plan = plan_of(k, v);
  block_at at = find_block(k, op, op->operands[0], op->operands + 1, v->type);
  if (plan->home == VT_KHOME_LEAF) {
    state_of(k, v)->pointer =
        unless_ok(k, op, at.ok, at.pointer, plan->dynamic ? home_of(k, v) : at.pointer);
    return;
  }
  LLVMBasicBlockRef other = NULL, done = NULL;
  if (!is_true(at.ok)) {
    other = vt_kblock(k, "outside");
    done = vt_kblock(k, "done");
    branch(k, at.ok, other);
  }
  vt_kplace place = {.pointer = home_of(k, v), .dtype = vt_klanes_memory(v->type.dtype)};
  vt_kdense(v->type, place.strides);
  state_of(k, v)->pointer = at.pointer;
  vt_knest_op(k, op, &place);
  if (!other) return;
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), other);
  call_op(k, op, NULL);
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), done);
}

static void emit_vector_store(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = op->operands[0], *ref = op->operands[1];
  const vt_kvalue *plan = plan_of(k, ref);
  const vt_mattr *steps = vt_mop_attr(op, VT_MATTR_STRIDES);
  block_at at = find_block(k, op, ref, op->operands + 2, v->type);
  const vt_kproduct *sum = vt_kplan_product(k->plan, op); // then it lies inside
  LLVMValueRef ok = sum || k->strip ? LLVMConstInt(k->i1, 1, false) : may_write(k, ref, at.ok);
  LLVMBasicBlockRef other = NULL, done = NULL;
  if (!is_true(ok)) {
    other = vt_kblock(k, "outside");
    done = vt_kblock(k, "done");
    branch(k, ok, other);
  }
  vt_kplace place = {.pointer = at.pointer,
                     .dtype = v->type.dtype,
                     .mask = op->code == VT_MOP_STORE_VECTOR ? vt_mop_optional(op, 3) : NULL};
  int64_t bytes = (int64_t)vt_dtype_bytes(v->type.dtype);
  for (int32_t d = 0; d < plan->view.rank; d++)
    place.strides[d] = plan->view.strides[d] / bytes * (steps && steps->count ? steps->ints[d] : 1);
  if (sum)
    emit_product(k, sum, sum->there ? NULL : vt_kplan_addend(v, sum), &place);
  else
    vt_knest_store(k, v, &place, false);
  if (!other) return;
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), other);
  vt_kplace temp = {.pointer = vt_kat(k, k->memory, vt_ki64(k, k->plan->temps[op->number])),
                    .dtype = v->type.dtype};
  vt_kdense(v->type, temp.strides);
  vt_knest_store(k, v, &temp, false);
  call_op(k, op, temp.pointer);
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), done);
}

static void emit_load(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = &op->results[0];
  if (!plan_of(k, op->operands[0])->plain || !vt_klanes_type(v->type.dtype)) {
    call_op(k, op, NULL);
    take_scalars(k, op);
    return;
  }
  block_at at = find_block(k, op, op->operands[0], op->operands + 1, v->type);
  LLVMValueRef from = unless_ok(k, op, at.ok, at.pointer, slot_of(k, v));
  state_of(k, v)->value = load_scalar(k, v->type.dtype, from);
}

static void emit_store(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = op->operands[0], *ref = op->operands[1];
  if (!plan_of(k, ref)->plain || !vt_klanes_type(v->type.dtype)) {
    call_op(k, op, NULL);
    return;
  }
  block_at at = find_block(k, op, ref, op->operands + 2, v->type);
  LLVMValueRef ok = may_write(k, ref, at.ok);
  LLVMBasicBlockRef good = vt_kblock(k, "good"), other = vt_kblock(k, "outside"),
                    done = vt_kblock(k, "done");
  LLVMBuildCondBr(builder(k), ok, good, other);
  LLVMPositionBuilderAtEnd(builder(k), good);
  store_scalar(k, v->type.dtype, scalar(k, v), at.pointer);
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), other);
  call_op(k, op, NULL);
  LLVMBuildBr(builder(k), done);
  LLVMPositionBuilderAtEnd(builder(k), done);
}

// ---- control flow -------------------------------------------------------------------------------

static void copy_to(vt_kemit *k, const vt_mvalue *from, const vt_mvalue *to) {
  vt_kplace place = {.pointer = home_of(k, to), .dtype = to->type.dtype};
  vt_kdense(to->type, place.strides);
  vt_knest_store(k, from, &place, false);
}

static void copy_vectors(vt_kemit *k, uint32_t count, vt_mvalue *const *from, const vt_mvalue *to) {
  for (uint32_t i = 0; i < count; i++)
    if (is_vector(&to[i]) && from[i] != &to[i] && plan_of(k, &to[i])->uses)
      copy_to(k, from[i], &to[i]);
}

// Phis of the scalars among `args`, from the values `from` in the block `before`.
static void open_phis(vt_kemit *k, uint32_t count, vt_mvalue *const *from, const vt_mvalue *args,
                      LLVMBasicBlockRef before) {
  for (uint32_t i = 0; i < count; i++) {
    if (is_vector(&args[i])) continue;
    LLVMValueRef value = scalar(k, from[i]);
    LLVMValueRef phi = LLVMBuildPhi(builder(k), LLVMTypeOf(value), "");
    LLVMAddIncoming(phi, &value, &before, 1);
    state_of(k, &args[i])->value = phi;
  }
}

static void close_phis(vt_kemit *k, uint32_t count, vt_mvalue *const *from, const vt_mvalue *args) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(builder(k));
  for (uint32_t i = 0; i < count; i++) {
    if (is_vector(&args[i])) continue;
    LLVMValueRef value = scalar(k, from[i]);
    LLVMAddIncoming(state_of(k, &args[i])->value, &value, &here, 1);
  }
}

static void emit_for(vt_kemit *k, const vt_mop *op) {
  LLVMBuilderRef b = builder(k);
  const vt_mblock *body = op->blocks[0];
  const vt_mvalue *args = body->args + 1;
  LLVMValueRef low = wide(k, op->operands[0]), high = wide(k, op->operands[1]),
               step = wide(k, op->operands[2]), zero = vt_ki64(k, 0);
  LLVMValueRef forward = LLVMBuildICmp(b, LLVMIntSGT, step, zero, "");
  if (!is_true(forward)) {
    LLVMBasicBlockRef stuck = vt_kblock(k, "stuck");
    branch(k, forward, stuck);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
    LLVMPositionBuilderAtEnd(b, stuck);
    for (uint32_t i = 0; i < 3; i++) pass_scalars(k, op->operands[i]);
    LLVMTypeRef types[2] = {k->pointer, k->i32};
    LLVMValueRef call_args[2] = {k->machine, LLVMConstInt(k->i32, op->number, false)};
    call_machine(k, offsetof(vt_mmachine, call), 2, types, call_args); // an error
    LLVMBuildBr(b, k->failed);
    LLVMPositionBuilderAtEnd(b, here);
  }
  copy_vectors(k, op->result_count, op->operands + 3, args);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), head = vt_kblock(k, "for"),
                    inner = vt_kblock(k, "body"), done = vt_kblock(k, "done");
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, head);
  LLVMValueRef at = LLVMBuildPhi(b, k->i64, "");
  LLVMAddIncoming(at, &low, &before, 1);
  open_phis(k, op->result_count, op->operands + 3, args, before);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, at, high, ""), inner, done);
  LLVMPositionBuilderAtEnd(b, inner);
  state_of(k, &body->args[0])->value = narrow(k, at, body->args[0].type.dtype);
  emit_block(k, body);
  if (body->last && op->result_count) copy_vectors(k, op->result_count, body->last->operands, args);
  if (op->result_count) close_phis(k, op->result_count, body->last->operands, args);
  LLVMValueRef next = LLVMBuildAdd(b, at, step, "");
  LLVMValueRef grew = LLVMBuildICmp(b, LLVMIntSGT, next, at, "");
  next = LLVMBuildSelect(b, grew, next, vt_ki64(k, INT64_MAX), ""); // ends the loop
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(at, &next, &latch, 1);
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, done);
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (!is_vector(&op->results[i]))
      state_of(k, &op->results[i])->value = scalar(k, &args[i]);
    else if (plan_of(k, &op->results[i])->uses)
      copy_to(k, &args[i], &op->results[i]);
  }
}

static void emit_while(vt_kemit *k, const vt_mop *op) {
  LLVMBuilderRef b = builder(k);
  const vt_mblock *test = op->blocks[0], *body = op->blocks[1];
  copy_vectors(k, op->operand_count, op->operands, test->args);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), head = vt_kblock(k, "while"),
                    inner = vt_kblock(k, "body"), done = vt_kblock(k, "done");
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, head);
  open_phis(k, op->operand_count, op->operands, test->args, before);
  emit_block(k, test);
  vt_mvalue *const *passed = test->last->operands + 1;
  LLVMBuildCondBr(b, scalar(k, test->last->operands[0]), inner, done);
  LLVMPositionBuilderAtEnd(b, inner);
  copy_vectors(k, body->arg_count, passed, body->args);
  for (uint32_t i = 0; i < body->arg_count; i++)
    if (!is_vector(&body->args[i])) state_of(k, &body->args[i])->value = scalar(k, passed[i]);
  emit_block(k, body);
  copy_vectors(k, op->operand_count, body->last->operands, test->args);
  close_phis(k, op->operand_count, body->last->operands, test->args);
  LLVMBuildBr(b, head);
  LLVMPositionBuilderAtEnd(b, done);
  copy_vectors(k, op->result_count, passed, op->results);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!is_vector(&op->results[i])) state_of(k, &op->results[i])->value = scalar(k, passed[i]);
}

static void emit_if(vt_kemit *k, const vt_mop *op) {
  LLVMBuilderRef b = builder(k);
  LLVMBasicBlockRef sides[2] = {vt_kblock(k, "then"), vt_kblock(k, "else")}, ends[2],
                    done = vt_kblock(k, "done");
  LLVMBuildCondBr(b, scalar(k, op->operands[0]), sides[0], sides[1]);
  for (int i = 0; i < 2; i++) {
    LLVMPositionBuilderAtEnd(b, sides[i]);
    emit_block(k, op->blocks[i]);
    if (op->result_count)
      copy_vectors(k, op->result_count, op->blocks[i]->last->operands, op->results);
    ends[i] = LLVMGetInsertBlock(b);
    LLVMBuildBr(b, done);
  }
  LLVMPositionBuilderAtEnd(b, done);
  for (uint32_t r = 0; r < op->result_count; r++) {
    if (is_vector(&op->results[r])) continue;
    LLVMValueRef values[2];
    for (int i = 0; i < 2; i++) values[i] = scalar(k, op->blocks[i]->last->operands[r]);
    LLVMValueRef phi = LLVMBuildPhi(b, LLVMTypeOf(values[0]), "");
    LLVMAddIncoming(phi, values, ends, 2);
    state_of(k, &op->results[r])->value = phi;
  }
}

static void emit_region(vt_kemit *k, const vt_mop *op) {
  const vt_mblock *block = op->blocks[0];
  emit_block(k, block);
  if (!op->result_count) return;
  copy_vectors(k, op->result_count, block->last->operands, op->results);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!is_vector(&op->results[i]))
      state_of(k, &op->results[i])->value = scalar(k, block->last->operands[i]);
}

static void emit_assert(vt_kemit *k, const vt_mop *op) {
  LLVMBasicBlockRef wrong = vt_kblock(k, "wrong");
  branch(k, scalar(k, op->operands[0]), wrong);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(builder(k));
  LLVMPositionBuilderAtEnd(builder(k), wrong);
  call_op(k, op, NULL);
  LLVMBuildBr(builder(k), k->failed);
  LLVMPositionBuilderAtEnd(builder(k), here);
}

static void emit_return(vt_kemit *k, const vt_mop *op) {
  for (uint32_t i = 0; i < op->operand_count && i < VT_MOSAIC_RANK; i++)
    if (op->operands[i]->type.kind == VT_MSCALAR &&
        vt_dtype_is_integer(op->operands[i]->type.dtype))
      LLVMBuildStore(
          builder(k), wide(k, op->operands[i]),
          vt_kat(k, k->machine, vt_ki64(k, (int64_t)(offsetof(vt_mmachine, returned) + 8 * i))));
}

// ---- ops ----------------------------------------------------------------------------------------

static LLVMValueRef load_field(vt_kemit *k, LLVMTypeRef type, size_t field) {
  return LLVMBuildLoad2(builder(k), type, vt_kat(k, k->machine, vt_ki64(k, (int64_t)field)), "");
}

static void emit_scalar(vt_kemit *k, const vt_mop *op) {
  vt_kscalar *to = state_of(k, &op->results[0]);
  vt_dtype dtype = op->results[0].type.dtype;
  LLVMValueRef in[3];
  switch (op->code) {
  case VT_MOP_CONSTANT:
    if (!vt_klanes_type(dtype)) break;
    to->value = scalar_constant(k, op);
    return;
  case VT_MOP_ASSUME_MULTIPLE:
    to->value = scalar(k, op->operands[0]);
    return;
  case VT_MOP_DEVICE_ID:
    to->value = load_field(k, k->i32, offsetof(vt_mmachine, device));
    return;
  case VT_MOP_CORE_ID:
    to->value = load_field(k, k->i32, offsetof(vt_mmachine, core));
    return;
  case VT_MOP_EXTRACT: {
    const vt_mattr *at = vt_mop_attr(op, VT_MATTR_STATIC_POSITION);
    if (!vt_klanes_type(dtype)) break;
    to->value = vt_knest_element(k, op->operands[0], at ? at->ints : NULL);
    return;
  }
  default:
    if (!vt_klanes_has(op)) break;
    for (uint32_t i = 0; i < op->operand_count; i++) in[i] = as_lane(k, scalar(k, op->operands[i]));
    to->value = from_lane(k, vt_klanes_emit(k->e, &k->arena, op, in));
    return;
  }
  call_op(k, op, NULL);
  take_scalars(k, op);
}

static void emit_vector(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = &op->results[0];
  const vt_kproduct *q = vt_kplan_product(k->plan, op);
  if (plan_of(k, v)->home != VT_KHOME_MEMORY || plan_of(k, v)->reduction) return;
  vt_kplace place = {.pointer = home_of(k, v), .dtype = v->type.dtype};
  if (plan_of(k, v)->laid) place.laid = v->type.dims[1];
  vt_kdense(v->type, place.strides);
  if (q)
    emit_product(k, q, q->adds ? op->operands[2] : NULL, &place);
  else if (!plan_of(k, v)->native)
    call_op(k, op, NULL);
  else if (op->code == VT_MOP_MULTI_REDUCTION)
    vt_knest_reduce(k, op, &place);
  else
    vt_knest_op(k, op, &place);
}

static void emit_op(vt_kemit *k, const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_FOR:
    emit_for(k, op);
    return;
  case VT_MOP_WHILE:
    emit_while(k, op);
    return;
  case VT_MOP_IF:
    emit_if(k, op);
    return;
  case VT_MOP_REGION:
  case VT_MOP_TRACE:
    emit_region(k, op);
    return;
  case VT_MOP_RETURN:
    emit_return(k, op);
    return;
  case VT_MOP_YIELD:
  case VT_MOP_CONDITION:
  case VT_MOP_TPU_YIELD:
  case VT_MOP_TRACE_START:
  case VT_MOP_TRACE_STOP:
  case VT_MOP_TRACE_VALUE:
  case VT_MOP_DELAY:
    return;
  case VT_MOP_ASSERT:
    emit_assert(k, op);
    return;
  case VT_MOP_LOAD:
    emit_load(k, op);
    return;
  case VT_MOP_STORE:
    emit_store(k, op);
    return;
  default:
    break;
  }
  if (!op->result_count) {
    if (k->plan->native_stores[op->number])
      emit_vector_store(k, op);
    else
      call_op(k, op, NULL);
    return;
  }
  const vt_mvalue *v = &op->results[0];
  if (v->type.kind == VT_MREF)
    emit_ref(k, op);
  else if (v->type.kind == VT_MSCALAR)
    emit_scalar(k, op);
  else if (plan_of(k, v)->loads)
    emit_vector_load(k, op);
  else
    emit_vector(k, op);
}

static bool is_dead(const vt_kemit *k, const vt_mop *op) {
  return op->result_count && !op->block_count && !plan_of(k, &op->results[0])->live;
}

// What a strip needs before its first turn: scalars, addresses, right sides of products.
static void emit_before(vt_kemit *k, const vt_kstrip *strip) {
  for (const vt_mop *op = strip->first;; op = op->next) {
    const vt_mvalue *v = op->result_count ? &op->results[0] : NULL;
    bool dead = is_dead(k, op);
    if (v && !dead && !is_vector(v)) emit_op(k, op);
    if (v && !dead && is_vector(v) && plan_of(k, v)->loads)
      state_of(k, v)->pointer =
          find_block(k, op, op->operands[0], op->operands + 1, v->type).pointer;
    if (op == strip->last) break;
  }
  for (const vt_mop *op = strip->first;; op = op->next) {
    const vt_kproduct *q = vt_kplan_product(k->plan, op);
    bool later = op->result_count && plan_of(k, &op->results[0])->home != VT_KHOME_MEMORY;
    if (q && !later && !is_dead(k, op)) emit_lay(k, q);
    if (op == strip->last) break;
  }
}

static void emit_member(vt_kemit *k, const vt_mop *op) {
  const vt_mvalue *v = op->result_count ? &op->results[0] : NULL;
  if (!v) {
    emit_vector_store(k, op);
    return;
  }
  if (!is_vector(v) || plan_of(k, v)->home != VT_KHOME_MEMORY) return;
  if (!plan_of(k, v)->loads) {
    emit_vector(k, op);
    return;
  }
  vt_kplace place = {.pointer = home_of(k, v), .dtype = vt_klanes_memory(v->type.dtype)};
  vt_kdense(v->type, place.strides);
  vt_knest_op(k, op, &place);
}

static void emit_strip(vt_kemit *k, const vt_kstrip *strip) {
  LLVMBuilderRef b = builder(k);
  emit_before(k, strip);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), turn = vt_kblock(k, "strip"),
                    done = vt_kblock(k, "done");
  LLVMValueRef zero = vt_ki64(k, 0);
  LLVMBuildBr(b, turn);
  LLVMPositionBuilderAtEnd(b, turn);
  k->strip = strip;
  k->row = LLVMBuildPhi(b, k->i64, "");
  LLVMAddIncoming(k->row, &zero, &before, 1);
  for (const vt_mop *op = strip->first;; op = op->next) {
    if (!is_dead(k, op)) emit_member(k, op);
    if (op == strip->last) break;
  }
  LLVMValueRef next = LLVMBuildAdd(b, k->row, vt_ki64(k, strip->step), "");
  LLVMValueRef more = LLVMBuildICmp(b, LLVMIntSLT, next, vt_ki64(k, strip->rows), "");
  LLVMBasicBlockRef end = LLVMGetInsertBlock(b);
  LLVMAddIncoming(k->row, &next, &end, 1);
  LLVMBuildCondBr(b, more, turn, done);
  LLVMPositionBuilderAtEnd(b, done);
  k->strip = NULL;
}

static void emit_block(vt_kemit *k, const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    const vt_kstrip *strip = vt_kplan_strip(k->plan, op->number);
    if (strip) {
      emit_strip(k, strip);
      op = strip->last;
    } else if (!is_dead(k, op)) {
      emit_op(k, op);
    }
  }
}

// ---- the function -------------------------------------------------------------------------------

static void open_function(vt_kemit *k, const char *name) {
  vt_emitter *e = k->e;
  LLVMTypeRef type = LLVMFunctionType(k->i32, &k->pointer, 1, false);
  e->function = LLVMAddFunction(e->module, name, type);
  const char *key = "prefer-vector-width", *width = e->target.avx512 ? "512" : "256";
  LLVMAddAttributeAtIndex(e->function, (unsigned)LLVMAttributeFunctionIndex,
                          LLVMCreateStringAttribute(e->context, key, (unsigned)strlen(key), width,
                                                    (unsigned)strlen(width)));
  LLVMBasicBlockRef entry = vt_kblock(k, "entry");
  k->failed = vt_kblock(k, "failed");
  LLVMPositionBuilderAtEnd(e->builder, k->failed);
  LLVMBuildRet(e->builder, LLVMConstInt(k->i32, 1, false));
  LLVMPositionBuilderAtEnd(e->builder, entry);
  LLVMBuildAlloca(e->builder, k->i64, ""); // stack slots are allocated before this
  k->machine = LLVMGetParam(e->function, 0);
  k->memory = vt_kload_pointer(k, k->machine, offsetof(vt_mmachine, memory));
  k->slots = vt_kload_pointer(k, k->machine, offsetof(vt_mmachine, slots));
  k->arrays = vt_kload_pointer(k, k->machine, offsetof(vt_mmachine, arrays));
  k->passed = vt_kload_pointer(k, k->machine, offsetof(vt_mmachine, passed));
}

void vt_kernel_emit(vt_emitter *e, const vt_kplan *plan, const vt_mfunc *func, const char *name) {
  LLVMContextRef c = e->context;
  vt_kemit k = {.e = e,
                .plan = plan,
                .func = func,
                .lanes = e->target.lanes,
                .i1 = LLVMInt1TypeInContext(c),
                .i8 = LLVMInt8TypeInContext(c),
                .i32 = LLVMInt32TypeInContext(c),
                .i64 = LLVMInt64TypeInContext(c),
                .pointer = LLVMPointerTypeInContext(c, 0)};
  const vt_mosaic *kernel = plan->kernel;
  e->target.lanes = 1;
  k.values = VT_NEW_ARRAY(&k.arena, vt_kscalar, kernel->slot_count + 1);
  open_function(&k, name);
  for (uint32_t i = 0; i < func->block->arg_count; i++) {
    vt_kscalar *s = state_of(&k, &func->block->args[i]);
    s->offset = vt_ki64(&k, 0);
    s->ok = LLVMConstInt(k.i1, 1, false);
    if (i < kernel->grid_rank)
      s->value = narrow(&k, load_field(&k, k.i64, offsetof(vt_mmachine, index) + 8 * i),
                        func->block->args[i].type.dtype);
  }
  emit_block(&k, func->block);
  LLVMBuildRet(e->builder, LLVMConstInt(k.i32, 0, false));
  e->target.lanes = k.lanes;
  vt_arena_free(&k.arena);
}
