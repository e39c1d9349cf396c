// SPDX-License-Identifier: Apache-2.0
// opt_simplify.c - algebra that keeps every bit: identities, and chains of reshapes, transposes,
// broadcasts, conversions and slices. One forward walk; each op sees simplified operands.
// Not here: rules that change rounding, signed zeros or NaNs (x + 0 is not x for x = -0, x * 0 is
// not 0).
#include <string.h>

#include "base/check.h"
#include "eval/kernel.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static vt_op *def_of(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}

bool vt_is_splat_of(const vt_value *value, double wanted) {
  const vt_op *op = def_of(value, VT_OP_CONSTANT);
  while (!op) {
    const vt_op *broadcast = def_of(value, VT_OP_BROADCAST_IN_DIM);
    if (!broadcast) return false;
    value = broadcast->operands[0];
    op = def_of(value, VT_OP_CONSTANT);
  }
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  if (!literal->splat && vt_type_elements(literal->type) != 1) return false;
  switch (literal->type.dtype) {
  case VT_F32:
    return *(const float *)literal->data == (float)wanted;
  case VT_F64:
    return *(const double *)literal->data == wanted;
  case VT_S32:
  case VT_U32:
    return *(const int32_t *)literal->data == (int32_t)wanted;
  case VT_S64:
  case VT_U64:
    return *(const int64_t *)literal->data == (int64_t)wanted;
  case VT_PRED:
    return (*(const uint8_t *)literal->data != 0) == (wanted != 0);
  default:
    return false;
  }
}

// True when converting from `from` to `to` loses nothing, so that converting back gives the same
// value.
static bool is_lossless(vt_dtype from, vt_dtype to) {
  const vt_dtype_info *a = vt_dtype_get(from), *b = vt_dtype_get(to);
  if (a->kind == VT_KIND_FLOAT && b->kind == VT_KIND_FLOAT)
    return (from == VT_F32 && to == VT_F64) ||
           ((from == VT_BF16 || from == VT_F16) && (to == VT_F32 || to == VT_F64));
  if (a->kind == VT_KIND_BOOL) return b->kind == VT_KIND_SIGNED || b->kind == VT_KIND_UNSIGNED;
  return a->kind == b->kind && (a->kind == VT_KIND_SIGNED || a->kind == VT_KIND_UNSIGNED) &&
         a->bits <= b->bits;
}

static vt_value *simplify_convert(vt_op *op) {
  vt_value *in = op->operands[0];
  if (in->type.dtype == op->results[0].type.dtype) return in;
  vt_op *under = def_of(in, VT_OP_CONVERT);
  if (!under) return NULL;
  vt_value *origin = under->operands[0];
  if (!is_lossless(origin->type.dtype, in->type.dtype)) return NULL;
  if (origin->type.dtype == op->results[0].type.dtype) return origin;
  op->operands[0] = origin; // a lossless step in between changes nothing
  return NULL;
}

static vt_value *simplify_reshape(vt_op *op) {
  vt_op *under;
  while ((under = def_of(op->operands[0], VT_OP_RESHAPE))) op->operands[0] = under->operands[0];
  return vt_type_equal(op->operands[0]->type, op->results[0].type) ? op->operands[0] : NULL;
}

static bool is_identity(const int64_t *list, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] != (int64_t)i) return false;
  return true;
}

// The same values spread over the dimensions in their new order.
static vt_value *transposed_broadcast(vt_op *op, vt_op *under) {
  uint32_t count, rank;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, &rank);
  const int64_t *dims = vt_attr_ints(under, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  int64_t moved_to[VT_MAX_RANK], now[VT_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) moved_to[permutation[i]] = i;
  for (uint32_t i = 0; i < count; i++) now[i] = moved_to[dims[i]];
  vt_op_become(op, VT_OP_BROADCAST_IN_DIM);
  op->operands[0] = under->operands[0];
  vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, count, now);
  return &op->results[0];
}

static vt_value *as_reshape(vt_op *op) {
  vt_op_become(op, VT_OP_RESHAPE);
  return &op->results[0];
}

static vt_value *simplify_transpose(vt_op *op) {
  uint32_t count;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
  vt_op *under = def_of(op->operands[0], VT_OP_TRANSPOSE);
  if (under) {
    const int64_t *inner = vt_attr_ints(under, VT_ATTR_PERMUTATION, NULL);
    int64_t both[VT_MAX_RANK];
    for (uint32_t i = 0; i < count; i++) both[i] = inner[permutation[i]];
    vt_op_set_ints(op, VT_ATTR_PERMUTATION, count, both);
    op->operands[0] = under->operands[0];
    permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  }
  if (is_identity(permutation, count)) return op->operands[0];
  vt_op *spread = def_of(op->operands[0], VT_OP_BROADCAST_IN_DIM);
  if (spread) return transposed_broadcast(op, spread);
  // Only dimensions of size 1 move: the bytes stay.
  int64_t last = -1;
  for (uint32_t i = 0; i < count; i++) {
    if (op->results[0].type.dims[i] == 1) continue;
    if (permutation[i] < last) return NULL;
    last = permutation[i];
  }
  return as_reshape(op);
}

static vt_value *simplify_broadcast(vt_op *op) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  vt_op *under = def_of(op->operands[0], VT_OP_BROADCAST_IN_DIM);
  if (under) {
    uint32_t inner_count;
    const int64_t *inner = vt_attr_ints(under, VT_ATTR_BROADCAST_DIMENSIONS, &inner_count);
    int64_t both[VT_MAX_RANK];
    for (uint32_t i = 0; i < inner_count; i++) both[i] = dims[inner[i]];
    vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, inner_count, both);
    op->operands[0] = under->operands[0];
    dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  }
  vt_type in = op->operands[0]->type, out = op->results[0].type;
  if (vt_type_equal(in, out) && is_identity(dims, count)) return op->operands[0];
  // Repeats nothing and keeps the order: a reshape.
  if (vt_type_elements(in) == vt_type_elements(out) && vt_type_elements(in) > 0) {
    int64_t last = -1;
    for (uint32_t i = 0; i < count; i++) {
      if (in.dims[i] == 1) continue;
      if (dims[i] < last) return NULL;
      last = dims[i];
    }
    return as_reshape(op);
  }
  return NULL;
}

static vt_value *simplify_slice(vt_op *op) {
  return vt_type_equal(op->operands[0]->type, op->results[0].type) ? op->operands[0] : NULL;
}

static vt_value *simplify_pad(vt_op *op) {
  uint32_t count;
  const int64_t *low = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_LOW, &count);
  const int64_t *high = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_HIGH, NULL);
  const int64_t *interior = vt_attr_ints(op, VT_ATTR_INTERIOR_PADDING, NULL);
  for (uint32_t i = 0; i < count; i++)
    if (low[i] || high[i] || (interior[i] && op->operands[0]->type.dims[i] > 1)) return NULL;
  return op->operands[0];
}

// Whether combining the value with itself gives the value.
static bool stays_alone(vt_opcode code, const vt_value *value) {
  return code == VT_OP_MAXIMUM || code == VT_OP_MINIMUM || code == VT_OP_AND || code == VT_OP_OR ||
         (code == VT_OP_ADD && vt_is_splat_of(value, 0)) ||
         (code == VT_OP_MULTIPLY && vt_is_splat_of(value, 1));
}

static bool same_constant(const vt_value *a, const vt_value *b) {
  const vt_op *x = def_of(a, VT_OP_CONSTANT), *y = def_of(b, VT_OP_CONSTANT);
  return a == b || (x && y && vt_op_equal(x, y, y->operands));
}

// Windows over an array padded with their initial value pad it themselves.
static vt_value *simplify_windows(vt_op *op) {
  const vt_op *pad = op->operand_count == 2 ? def_of(op->operands[0], VT_OP_PAD) : NULL;
  if (!pad || !same_constant(pad->operands[1], op->operands[1])) return NULL;
  if (!stays_alone(vt_region_binary(op->regions[0], 0, 1), op->operands[1])) return NULL;
  if (!vt_ints_are(pad, VT_ATTR_INTERIOR_PADDING, 0) || !vt_ints_are(op, VT_ATTR_BASE_DILATIONS, 1))
    return NULL;
  uint32_t rank;
  const int64_t *low = vt_attr_ints(pad, VT_ATTR_EDGE_PADDING_LOW, &rank);
  const int64_t *high = vt_attr_ints(pad, VT_ATTR_EDGE_PADDING_HIGH, NULL);
  const int64_t *own =
      vt_op_attr(op, VT_ATTR_PADDING) ? vt_attr_ints(op, VT_ATTR_PADDING, NULL) : NULL;
  int64_t both[2 * VT_MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) {
    if (low[d] < 0 || high[d] < 0) return NULL;
    both[2 * d] = low[d] + (own ? own[2 * d] : 0);
    both[2 * d + 1] = high[d] + (own ? own[2 * d + 1] : 0);
  }
  op->operands[0] = pad->operands[0];
  vt_op_set_ints(op, VT_ATTR_PADDING, 2 * rank, both);
  return &op->results[0];
}

static vt_value *simplify_concatenate(vt_op *op) {
  uint32_t kept = 0;
  int64_t along = vt_attr_i64(op, VT_ATTR_DIMENSION);
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->type.dims[along] || (i + 1 == op->operand_count && !kept))
      op->operands[kept++] = op->operands[i];
  op->operand_count = kept;
  return kept == 1 ? op->operands[0] : NULL;
}

// A dynamic slice or update whose slice has the size of the whole: the start is clamped to 0.
static vt_value *simplify_dynamic(vt_op *op) {
  if (op->code == VT_OP_DYNAMIC_SLICE)
    return vt_type_equal(op->operands[0]->type, op->results[0].type) ? op->operands[0] : NULL;
  return vt_type_equal(op->operands[1]->type, op->results[0].type) ? op->operands[1] : NULL;
}

static vt_value *simplify_binary(vt_op *op) {
  vt_value *a = op->operands[0], *b = op->operands[1];
  switch (op->code) {
  case VT_OP_MULTIPLY:
    if (vt_is_splat_of(b, 1) && b->type.dtype != VT_PRED) return a;
    if (vt_is_splat_of(a, 1) && a->type.dtype != VT_PRED) return b;
    return NULL;
  case VT_OP_DIVIDE:
    return vt_is_splat_of(b, 1) ? a : NULL;
  case VT_OP_SUBTRACT:
    return vt_is_splat_of(b, 0) && vt_dtype_is_integer(a->type.dtype) ? a : NULL;
  case VT_OP_ADD:
    if (!vt_dtype_is_integer(a->type.dtype)) return NULL;
    return vt_is_splat_of(b, 0) ? a : vt_is_splat_of(a, 0) ? b : NULL;
  case VT_OP_AND:
    if (a == b) return a;
    if (a->type.dtype != VT_PRED) return NULL;
    return vt_is_splat_of(b, 1) || vt_is_splat_of(a, 0)   ? a
           : vt_is_splat_of(a, 1) || vt_is_splat_of(b, 0) ? b
                                                          : NULL;
  case VT_OP_OR:
    if (a == b) return a;
    if (a->type.dtype != VT_PRED) return vt_is_splat_of(b, 0) ? a : vt_is_splat_of(a, 0) ? b : NULL;
    return vt_is_splat_of(b, 0) || vt_is_splat_of(a, 1)   ? a
           : vt_is_splat_of(a, 0) || vt_is_splat_of(b, 1) ? b
                                                          : NULL;
  case VT_OP_XOR:
    if (a->type.dtype == VT_PRED) return NULL;
    return vt_is_splat_of(b, 0) ? a : vt_is_splat_of(a, 0) ? b : NULL;
  case VT_OP_SHIFT_LEFT:
  case VT_OP_SHIFT_RIGHT_LOGICAL:
  case VT_OP_SHIFT_RIGHT_ARITHMETIC:
    return vt_is_splat_of(b, 0) ? a : NULL;
  default:
    return NULL;
  }
}

static vt_value *simplify_select(vt_op *op) {
  if (op->operands[1] == op->operands[2]) return op->operands[1];
  if (vt_is_splat_of(op->operands[0], 1)) return op->operands[1];
  if (vt_is_splat_of(op->operands[0], 0)) return op->operands[2];
  vt_op *negated = def_of(op->operands[0], VT_OP_NOT);
  if (negated) {
    vt_value *on_true = op->operands[1];
    op->operands[0] = negated->operands[0];
    op->operands[1] = op->operands[2];
    op->operands[2] = on_true;
  }
  return NULL;
}

static vt_value *simplify_self_inverse(vt_op *op) {
  vt_op *under = def_of(op->operands[0], op->code);
  return under ? under->operands[0] : NULL;
}

// A scalar of the function broadcast to `type`'s dimensions.
static vt_value *spread(vt_op *before, vt_value *scalar, vt_type type) {
  type.dtype = scalar->type.dtype;
  vt_value *value =
      vt_build(before->func, before, VT_OP_BROADCAST_IN_DIM, before->loc, type, 1, &scalar);
  vt_op_set_ints(value->op, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
  return value;
}

static bool is_elementwise_body(const vt_func *body) {
  for (const vt_op *op = body->first; op; op = op->next)
    if (op->code != VT_OP_CONSTANT && !(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE))
      return false;
  return true;
}

// The body's operations on arrays of the op's results instead of scalars. `map` has the values of
// its parameters, by their ids.
static void apply_to_arrays(vt_op *op, const vt_func *body, vt_value **map) {
  vt_type type = op->results[0].type;
  for (const vt_op *step = body->first; step; step = step->next) {
    vt_type whole = {step->results[0].type.dtype, type.rank, type.dims};
    vt_value *operands[3] = {NULL};
    for (uint32_t i = 0; i < step->operand_count; i++) operands[i] = map[step->operands[i]->id];
    if (step->code == VT_OP_CONSTANT) {
      vt_value *scalar =
          vt_build_constant(op->func, op, op->loc, vt_attr_literal(step, VT_ATTR_VALUE));
      map[step->results[0].id] = spread(op, scalar, whole);
      continue;
    }
    vt_value *value =
        vt_build(op->func, op, step->code, op->loc, whole, step->operand_count, operands);
    value->op->attrs = step->attrs;
    value->op->attr_count = step->attr_count;
    map[step->results[0].id] = value;
  }
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_rewrite_value(&op->results[i], map[body->returns[i]->id]);
}

static vt_value **values_of(vt_op *op, vt_func *body) {
  vt_func_number(body);
  return VT_NEW_ARRAY(&op->func->module->arena, vt_value *, body->value_count + 1);
}

// The operand in the shape of the op's results.
static vt_value *reshaped(vt_op *op, uint32_t operand) {
  vt_type type = op->results[0].type;
  type.dtype = op->operands[operand]->type.dtype;
  return vt_build(op->func, op, VT_OP_RESHAPE, op->loc, type, 1, &op->operands[operand]);
}

// A reduction over dimensions of size 1 combines one element with the init value: the body,
// elementwise.
static bool simplify_unit_reduce(vt_op *op) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  vt_func *body = op->regions[0];
  for (uint32_t i = 0; i < count; i++)
    if (op->operands[0]->type.dims[dims[i]] != 1) return false;
  if (op->capture_count || !is_elementwise_body(body)) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->type.dtype != body->params[i]->type.dtype)
      return false; // widens on the way
  vt_value **map = values_of(op, body);
  for (uint32_t i = 0; i < op->result_count; i++) {
    map[body->params[i]->id] = spread(op, op->operands[op->result_count + i], op->results[0].type);
    map[body->params[op->result_count + i]->id] = reshaped(op, i);
  }
  apply_to_arrays(op, body, map);
  return true;
}

// Whether the scatter has one window, as large as the array and at its beginning.
static bool has_whole_window(const vt_op *op) {
  uint32_t inputs = op->result_count, inserted, windows, batching;
  vt_type array = op->operands[0]->type, update = op->operands[inputs + 1]->type;
  const int64_t *skipped = vt_attr_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, &inserted);
  const int64_t *window = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &windows);
  (void)vt_attr_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, &batching);
  if (batching || vt_type_elements(array) != vt_type_elements(update)) return false;
  uint32_t in = 0, at = 0;
  for (int32_t d = 0; d < array.rank; d++) {
    if (in < inserted && skipped[in] == d) {
      if (array.dims[d] != 1) return false;
      in++;
    } else if (at == windows || update.dims[window[at++]] != array.dims[d]) {
      return false;
    }
  }
  const vt_op *shaped = def_of(op->operands[inputs], VT_OP_RESHAPE);
  const vt_value *starts = shaped ? shaped->operands[0] : op->operands[inputs];
  double start;
  return vt_type_elements(array) && vt_is_number(starts, &start) && start == 0;
}

// So the gradient of x[:, 0] of one column.
bool vt_simplify_whole_scatter(vt_op *op) {
  vt_func *body = op->regions[0];
  if (op->capture_count || !has_whole_window(op) || !is_elementwise_body(body)) return false;
  vt_value **map = values_of(op, body);
  for (uint32_t i = 0; i < op->result_count; i++) {
    map[body->params[i]->id] = op->operands[i];
    map[body->params[op->result_count + i]->id] = reshaped(op, op->result_count + 1 + i);
  }
  apply_to_arrays(op, body, map);
  return true;
}

// A conditional with a constant selector becomes the branch.
static bool simplify_branch(vt_op *op) {
  vt_assert(op->region_count >= 1 && op->operand_count >= 1);
  const vt_op *constant = def_of(op->operands[0], VT_OP_CONSTANT);
  if (!constant) return false;
  const vt_literal *literal = vt_attr_literal(constant, VT_ATTR_VALUE);
  uint32_t taken;
  if (op->code == VT_OP_IF) {
    taken = *(const uint8_t *)literal->data ? 0 : 1;
  } else {
    int32_t index = *(const int32_t *)literal->data;
    taken =
        index < 0 || index >= (int32_t)op->region_count ? op->region_count - 1 : (uint32_t)index;
  }
  vt_value **returns = VT_NEW_ARRAY(&op->func->module->arena, vt_value *, op->result_count);
  vt_func_inline(op->regions[taken], op->func, op, op->operands + 1, returns);
  for (uint32_t i = 0; i < op->result_count; i++) vt_rewrite_value(&op->results[i], returns[i]);
  return true;
}

// What takes the place of the op; its own result where it became another op, NULL where it stays.
static vt_value *simplify_op(vt_op *op) {
  switch (op->code) {
  case VT_OP_CONVERT:
    return simplify_convert(op);
  case VT_OP_RESHAPE:
    return simplify_reshape(op);
  case VT_OP_TRANSPOSE:
    return simplify_transpose(op);
  case VT_OP_BROADCAST_IN_DIM:
    return simplify_broadcast(op);
  case VT_OP_SLICE:
    return simplify_slice(op);
  case VT_OP_PAD:
    return simplify_pad(op);
  case VT_OP_REDUCE_WINDOW:
    return simplify_windows(op);
  case VT_OP_CONCATENATE:
    return simplify_concatenate(op);
  case VT_OP_DYNAMIC_SLICE:
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    return simplify_dynamic(op);
  case VT_OP_SELECT:
    return simplify_select(op);
  case VT_OP_NOT:
  case VT_OP_NEGATE:
    return simplify_self_inverse(op);
  default:
    return op->operand_count == 2 ? simplify_binary(op) : NULL;
  }
}

static vt_status simplify_func(vt_func *func, void *user) {
  bool *changed = user;
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    vt_rewrite_operands(op);
    next = op->next;
    if (op->code == VT_OP_IF || op->code == VT_OP_CASE) {
      vt_op *before = op->prev;
      if (!simplify_branch(op)) continue;
      vt_op_remove(op);
      next = before ? before->next : func->first;
      *changed = true;
      continue;
    }
    bool replaced = (op->code == VT_OP_REDUCE && simplify_unit_reduce(op)) ||
                    (op->code == VT_OP_SCATTER && vt_simplify_whole_scatter(op));
    vt_value *replacement = op->code == VT_OP_REDUCE ? NULL : simplify_op(op);
    if (replacement) vt_rewrite_value(&op->results[0], replacement);
    if (replaced || replacement) *changed = true;
    if (op->result_count && op->results[0].replaced_by) vt_op_remove(op);
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_simplify(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                          bool *out_changed) {
  (void)options, (void)scratch;
  return vt_rewrite_each_func(module, simplify_func, out_changed);
}
