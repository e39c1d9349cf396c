// SPDX-License-Identifier: Apache-2.0
// reduce_scatter.c - an all-reduce of which every device keeps only its part, that of its place in
// its group, becomes a reduce-scatter. A reshape between may change other dimensions. Parts along
// several dimensions at once stay: XLA's pass for this asks for one.
//
// Which part a device keeps is read off the offsets of a dynamic_slice: numbers of the device, from
// its id by way of tables. The all-reduce must have no other use.
#include "passes/collectives.h"
#include "passes/rewrite.h"

enum {
  MAX_STEPS = 16, // from a device's id to its offset
  KNOWN_ORDERS = 8
};

typedef struct found {
  vt_op *sum;     // the all-reduce
  vt_op *reshape; // NULL: none
  int32_t dim;    // of the sum
  int32_t offset; // of the slice: the operand that says where it begins
  int64_t size;   // of each device's part along it
} found;

// ---- offsets ------------------------------------------------------------------------------------

static bool number_at(const vt_literal *literal, int64_t i, int64_t *out) {
  if (literal->splat) i = 0;
  switch ((int)literal->type.dtype) {
  case VT_S32:
    *out = ((const int32_t *)literal->data)[i];
    return true;
  case VT_U32:
    *out = ((const uint32_t *)literal->data)[i];
    return true;
  case VT_S64:
    *out = ((const int64_t *)literal->data)[i];
    return true;
  default:
    return false;
  }
}

// An integer that depends on nothing but the device.
static bool number_on(const vt_value *value, int64_t device, int steps, int64_t *out) {
  const vt_op *op = value->op;
  int64_t a, b;
  if (!op || !steps-- || vt_type_elements(value->type) != 1) return false;
  switch ((int)op->code) {
  case VT_OP_CONSTANT:
    return number_at(vt_attr_literal(op, VT_ATTR_VALUE), 0, out);
  case VT_OP_PARTITION_ID:
    *out = device;
    return true;
  case VT_OP_RESHAPE:
  case VT_OP_CONVERT:
    return vt_dtype_is_integer(op->operands[0]->type.dtype) &&
           number_on(op->operands[0], device, steps, out);
  case VT_OP_MULTIPLY:
    if (!number_on(op->operands[0], device, steps, &a) ||
        !number_on(op->operands[1], device, steps, &b))
      return false;
    return !__builtin_mul_overflow(a, b, out);
  case VT_OP_DYNAMIC_SLICE: {
    const vt_op *table = op->operands[0]->op;
    if (!table || table->code != VT_OP_CONSTANT || table->results[0].type.rank != 1 ||
        !number_on(op->operands[1], device, steps, &a))
      return false;
    int64_t last = table->results[0].type.dims[0] - 1;
    return number_at(vt_attr_literal(table, VT_ATTR_VALUE), a < 0 ? 0 : a > last ? last : a, out);
  }
  default:
    return false;
  }
}

// Whether the member at place j of each group has offset j * size.
static bool find_order(const vt_literal *groups, const vt_value *offset, int64_t size) {
  int64_t width = groups->type.dims[1];
  for (int64_t i = 0; i < groups->type.dims[0] * width; i++) {
    int64_t id, at;
    if (!number_at(groups, i, &id) || id < 0 || !number_on(offset, id, MAX_STEPS, &at) ||
        at != i % width * size)
      return false;
  }
  return true;
}

// What was found last: most collectives of a program share groups and offsets, of all devices.
typedef struct known_order {
  const vt_literal *groups;
  const vt_value *offset;
  int64_t size;
  bool is;
} known_order;
typedef struct known_orders {
  known_order last[KNOWN_ORDERS];
  uint32_t next;
} known_orders;

static bool in_order_of_groups(known_orders *known, const vt_literal *groups,
                               const vt_value *offset, int64_t size) {
  for (uint32_t i = 0; i < KNOWN_ORDERS; i++) {
    const known_order *k = &known->last[i];
    if (k->groups == groups && k->offset == offset && k->size == size) return k->is;
  }
  bool is = find_order(groups, offset, size);
  known->last[known->next++ % KNOWN_ORDERS] = (known_order){groups, offset, size, is};
  return is;
}

// ---- the pattern --------------------------------------------------------------------------------

// The only dimension that the slice cuts, or -1.
static int32_t cut_dim(const vt_op *slice) {
  vt_type from = slice->operands[0]->type, to = slice->results[0].type;
  int32_t cut = -1;
  for (int32_t d = 0; d < from.rank; d++) {
    if (from.dims[d] == to.dims[d]) continue;
    if (cut >= 0) return -1;
    cut = d;
  }
  return cut;
}

// The dimension that a reshape leaves where it is, before the reshape; -1: it does not.
static int32_t dim_before(vt_type from, vt_type to, int32_t dim) {
  int64_t wanted = 1, before = 1;
  for (int32_t d = 0; d < dim; d++) wanted *= to.dims[d];
  for (int32_t d = 0; d < from.rank; before *= from.dims[d++])
    if (before == wanted && from.dims[d] == to.dims[dim]) return d;
  return -1;
}

// Whether the slice is of what such a sum gives, as far as the op itself says it.
static bool slices_sum(const vt_op *slice, found *out) {
  if (slice->code != VT_OP_DYNAMIC_SLICE) return false;
  const vt_value *source = slice->operands[0];
  int32_t dim = cut_dim(slice);
  if (dim < 0 || !source->op) return false;
  *out = (found){.dim = dim, .size = slice->results[0].type.dims[dim], .offset = dim + 1};
  if (source->op->code == VT_OP_RESHAPE) {
    out->reshape = source->op;
    source = source->op->operands[0];
    out->dim = dim_before(source->type, out->reshape->results[0].type, dim);
  }
  vt_op *sum = out->sum = source->op;
  return sum && sum->code == VT_OP_ALL_REDUCE && sum->operand_count == 1 && out->dim >= 0;
}

static bool matches(const vt_op *slice, const found *f, const uint32_t *uses, known_orders *known) {
  const vt_op *sum = f->sum;
  if ((f->reshape && uses[f->reshape->results[0].id] != 1) || uses[sum->results[0].id] != 1 ||
      vt_attr_i64_or(sum, VT_ATTR_CHANNEL_ID, 0) <= 0 ||
      !vt_attr_i64_or(sum, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0) || sum->func->module->num_replicas > 1)
    return false;
  const vt_literal *groups = vt_attr_literal(sum, VT_ATTR_REPLICA_GROUPS);
  return groups && groups->type.rank == 2 && groups->type.dims[1] > 1 && f->size > 0 &&
         sum->results[0].type.dims[f->dim] == f->size * groups->type.dims[1] &&
         in_order_of_groups(known, groups, slice->operands[f->offset], f->size);
}

static void rewrite(vt_op *slice, const found *f) {
  vt_module *module = slice->func->module;
  vt_type whole = f->sum->results[0].type;
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < whole.rank; d++) dims[d] = d == f->dim ? f->size : whole.dims[d];
  vt_type part = vt_type_make(&module->arena, whole.dtype, whole.rank, dims);
  vt_op *op = vt_op_create(slice->func, VT_OP_REDUCE_SCATTER, f->sum->loc, 1, f->sum->operands, 1,
                           &part, 1);
  op->regions[0] = f->sum->regions[0];
  for (uint32_t i = 0; i < f->sum->attr_count; i++) vt_op_set_attr(op, f->sum->attrs[i]);
  vt_op_set_i64(op, VT_ATTR_SCATTER_DIMENSION, f->dim);
  vt_op_insert(slice, op);
  vt_value *value = &op->results[0];
  if (f->reshape)
    value = vt_build(slice->func, slice, VT_OP_RESHAPE, f->reshape->loc, slice->results[0].type, 1,
                     &value);
  vt_rewrite_value(&slice->results[0], value);
  vt_op_remove(slice);
  if (f->reshape) vt_op_remove(f->reshape);
  vt_op_remove(f->sum);
}

typedef struct creation {
  vt_arena *scratch;
  bool *changed;
} creation;

static vt_status create(vt_func *func, void *user) {
  const creation *ctx = user;
  const uint32_t *uses = NULL;
  known_orders known = {0};
  bool changed = false;
  vt_op *next;
  if (!vt_func_holds(func, VT_OP_ALL_REDUCE)) return VT_OK;
  for (vt_op *op = func->first; op; op = next) {
    found f;
    next = op->next;
    if (!slices_sum(op, &f)) continue;
    if (!uses) uses = vt_func_use_counts(func, ctx->scratch);
    if (!matches(op, &f, uses, &known)) continue;
    rewrite(op, &f);
    changed = true;
  }
  if (!changed) return VT_OK;
  *ctx->changed = true;
  for (vt_op *op = func->first; op; op = op->next) vt_rewrite_operands(op);
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_reduce_scatter_creator(vt_module *module, const vt_collective_options *options,
                                        vt_arena *scratch, bool *out_changed) {
  (void)options;
  if (!module->made[VT_OP_ALL_REDUCE] || !module->made[VT_OP_DYNAMIC_SLICE]) return VT_OK;
  creation ctx = {scratch, out_changed};
  return vt_rewrite_each_func(module, create, &ctx);
}
