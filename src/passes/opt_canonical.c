// SPDX-License-Identifier: Apache-2.0
// opt_canonical.c - one form for what can be written in several ways, so that back ends match few
// forms.
//   dot -> dot_general, broadcast -> broadcast_in_dim, get_dimension_size -> constant
//   dot_general(transpose(x)) -> dot_general(x)          when the free dimensions keep their order
//   transpose(dot_general(a, b)) -> dot_general(b, a)    when it swaps the free dimensions
//   convolution(transpose(x)), convolution(reverse(k)), transpose(convolution) -> dimension
//   numbers, reversal
//   convolution of one pixel over a dilated input (the gradient of a strided one) ->
//   pad(convolution)
// The original dot or convolution under a transpose stays for other users; without any, dce drops
// it.
#include <string.h>

#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static vt_op *copy_with_attrs(vt_op *before, const vt_op *op, uint32_t count,
                              vt_value *const *operands, vt_type type) {
  vt_op *copy = vt_op_create(before->func, op->code, op->loc, count, operands, 1, &type, 0);
  copy->attrs = VT_NEW_ARRAY(&before->func->module->arena, vt_attr, op->attr_count);
  copy->attr_count = op->attr_count;
  if (op->attr_count) memcpy(copy->attrs, op->attrs, sizeof *op->attrs * op->attr_count);
  vt_op_insert(before, copy);
  return copy;
}

static vt_value *dot_to_general(vt_op *op) {
  vt_op *dot = vt_op_create(op->func, VT_OP_DOT_GENERAL, op->loc, 2, op->operands, 1,
                            &op->results[0].type, 0);
  static const int64_t zero = 0;
  int64_t last = op->operands[0]->type.rank - 1;
  vt_op_set_ints(dot, VT_ATTR_LHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(dot, VT_ATTR_RHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, &last);
  vt_op_set_ints(dot, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, &zero);
  const vt_attr *precision = vt_op_attr(op, VT_ATTR_PRECISION_CONFIG);
  if (precision) vt_op_set_attr(dot, *precision);
  vt_op_insert(op, dot);
  return &dot->results[0];
}

static vt_value *broadcast_to_in_dim(vt_op *op) {
  vt_value *value =
      vt_build(op->func, op, VT_OP_BROADCAST_IN_DIM, op->loc, op->results[0].type, 1, op->operands);
  int64_t dims[VT_MAX_RANK];
  int32_t rank = op->operands[0]->type.rank;
  for (int32_t d = 0; d < rank; d++) dims[d] = op->results[0].type.rank - rank + d;
  vt_op_set_ints(value->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)rank, dims);
  return value;
}

static vt_value *dimension_size(vt_op *op) {
  vt_arena *arena = &op->func->module->arena;
  int32_t *size = VT_NEW(arena, int32_t);
  *size = (int32_t)op->operands[0]->type.dims[vt_attr_i64(op, VT_ATTR_DIMENSION)];
  vt_literal *literal = VT_NEW(arena, vt_literal);
  *literal = (vt_literal){op->results[0].type, size, true};
  return vt_build_constant(op->func, op, op->loc, literal);
}

static bool in_list(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

// Folds the transpose under operand `side` into the dimension numbers. false: it would reorder free
// dimensions
static bool absorb_dot_transpose(vt_op *op, uint32_t side) {
  vt_assert(op->code == VT_OP_DOT_GENERAL && side < 2);
  vt_op *transpose = op->operands[side]->op;
  if (!transpose || transpose->code != VT_OP_TRANSPOSE) return false;
  vt_attr_key batch_key = side ? VT_ATTR_RHS_BATCHING_DIMENSIONS : VT_ATTR_LHS_BATCHING_DIMENSIONS;
  vt_attr_key contract_key =
      side ? VT_ATTR_RHS_CONTRACTING_DIMENSIONS : VT_ATTR_LHS_CONTRACTING_DIMENSIONS;
  uint32_t batch_count, contract_count;
  const int64_t *batch = vt_attr_ints(op, batch_key, &batch_count);
  const int64_t *contract = vt_attr_ints(op, contract_key, &contract_count);
  const int64_t *permutation = vt_attr_ints(transpose, VT_ATTR_PERMUTATION, NULL);
  int64_t last = -1, new_batch[VT_MAX_RANK], new_contract[VT_MAX_RANK];
  for (int32_t d = 0; d < op->operands[side]->type.rank; d++) {
    if (in_list(batch, batch_count, d) || in_list(contract, contract_count, d)) continue;
    if (permutation[d] < last) return false;
    last = permutation[d];
  }
  for (uint32_t i = 0; i < batch_count; i++) new_batch[i] = permutation[batch[i]];
  for (uint32_t i = 0; i < contract_count; i++) new_contract[i] = permutation[contract[i]];
  vt_op_set_ints(op, batch_key, batch_count, new_batch);
  vt_op_set_ints(op, contract_key, contract_count, new_contract);
  op->operands[side] = transpose->operands[0];
  return true;
}

// transpose(dot(a, b)) that only moves b's free dimensions before a's: dot(b, a).
static vt_value *swap_transposed_dot(vt_op *op) {
  vt_assert(op->code == VT_OP_TRANSPOSE && op->operands[0]->op->code == VT_OP_DOT_GENERAL);
  vt_op *dot = op->operands[0]->op;
  if (vt_op_attr(dot, VT_ATTR_LHS_PRECISION_TYPE) || vt_op_attr(dot, VT_ATTR_RAGGED)) return NULL;
  uint32_t batch, contract;
  vt_attr_ints(dot, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batch);
  vt_attr_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &contract);
  int32_t rank = dot->results[0].type.rank;
  int32_t lhs_free = dot->operands[0]->type.rank - (int32_t)(batch + contract),
          rhs_free = rank - (int32_t)batch - lhs_free;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  for (int32_t d = 0; d < rank; d++) {
    int32_t k = d - (int32_t)batch;
    int64_t want = k < 0          ? d
                   : k < rhs_free ? (int64_t)batch + lhs_free + k
                                  : (int64_t)batch + k - rhs_free;
    if (permutation[d] != want) return NULL;
  }
  vt_value *operands[2] = {dot->operands[1], dot->operands[0]};
  vt_op *swapped = copy_with_attrs(op, dot, 2, operands, op->results[0].type);
  static const vt_attr_key pairs[2][2] = {
      {VT_ATTR_LHS_BATCHING_DIMENSIONS, VT_ATTR_RHS_BATCHING_DIMENSIONS},
      {VT_ATTR_LHS_CONTRACTING_DIMENSIONS, VT_ATTR_RHS_CONTRACTING_DIMENSIONS}};
  for (int i = 0; i < 2; i++) {
    vt_attr lhs = *vt_op_attr(dot, pairs[i][0]), rhs = *vt_op_attr(dot, pairs[i][1]);
    vt_op_set_ints(swapped, pairs[i][0], rhs.count, rhs.ints);
    vt_op_set_ints(swapped, pairs[i][1], lhs.count, lhs.ints);
  }
  const vt_attr *precision = vt_op_attr(dot, VT_ATTR_PRECISION_CONFIG);
  if (precision && precision->count == 2)
    vt_op_set_ints(swapped, VT_ATTR_PRECISION_CONFIG, 2,
                   (int64_t[]){precision->ints[1], precision->ints[0]});
  return &swapped->results[0];
}

static void map_conv_dims(vt_op *conv, int tensor, const int64_t *map) {
  vt_assert(conv->code == VT_OP_CONVOLUTION && tensor >= 0 && tensor < 3);
  for (int i = 0; i < 2; i++) {
    vt_attr_key key = vt_conv_dim_keys[tensor][i];
    vt_op_set_i64(conv, key, map[vt_attr_i64(conv, key)]);
  }
  uint32_t count;
  const int64_t *spatial = vt_attr_ints(conv, vt_conv_dim_keys[tensor][2], &count);
  int64_t mapped[VT_MAX_RANK];
  for (uint32_t i = 0; i < count; i++) mapped[i] = map[spatial[i]];
  vt_op_set_ints(conv, vt_conv_dim_keys[tensor][2], count, mapped);
}

static bool absorb_conv_operand(vt_op *op, uint32_t side) {
  vt_op *under = op->operands[side]->op;
  if (under && under->code == VT_OP_TRANSPOSE) {
    map_conv_dims(op, (int)side, vt_attr_ints(under, VT_ATTR_PERMUTATION, NULL));
    op->operands[side] = under->operands[0];
    return true;
  }
  if (!under || under->code != VT_OP_REVERSE || side != 1) return false;
  uint32_t reversed_count, spatial_count;
  const int64_t *reversed = vt_attr_ints(under, VT_ATTR_DIMENSIONS, &reversed_count);
  const int64_t *spatial = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &spatial_count);
  const int64_t *old = vt_attr_ints(op, VT_ATTR_WINDOW_REVERSAL, NULL);
  int64_t reversal[VT_MAX_RANK];
  for (uint32_t i = 0; i < reversed_count; i++)
    if (!in_list(spatial, spatial_count, reversed[i])) return false;
  for (uint32_t i = 0; i < spatial_count; i++)
    reversal[i] = old[i] ^ in_list(reversed, reversed_count, spatial[i]);
  vt_op_set_ints(op, VT_ATTR_WINDOW_REVERSAL, spatial_count, reversal);
  op->operands[side] = under->operands[0];
  return true;
}

static void absorb_operands(vt_op *op, bool *changed) {
  for (uint32_t side = 0; side < 2; side++)
    while (op->code == VT_OP_CONVOLUTION ? absorb_conv_operand(op, side)
                                         : absorb_dot_transpose(op, side))
      *changed = true;
}

static vt_value *transposed_conv(vt_op *op) {
  vt_op *conv = op->operands[0]->op;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  int64_t inverse[VT_MAX_RANK];
  for (int32_t d = 0; d < op->results[0].type.rank; d++) inverse[permutation[d]] = d;
  vt_op *copy = copy_with_attrs(op, conv, 2, conv->operands, op->results[0].type);
  map_conv_dims(copy, 2, inverse);
  return &copy->results[0];
}

static bool all_equal(const int64_t *numbers, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (numbers[i] != value) return false;
  return true;
}

// With a one-pixel kernel, the zeros between and around the input's pixels stay zeros.
static vt_value *undilated_conv(vt_op *op) {
  uint32_t count;
  const int64_t *dilation = vt_attr_ints(op, VT_ATTR_LHS_DILATION, &count);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  const int64_t *in = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, NULL);
  const int64_t *kernel = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  if (all_equal(dilation, count, 1) ||
      !all_equal(vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL), count, 1))
    return NULL;
  vt_type type = op->results[0].type;
  if (!vt_type_elements(type)) return NULL; // negative padding may exceed the size
  vt_arena *arena = &op->func->module->arena;
  int64_t dims[VT_MAX_RANK], ones[VT_MAX_RANK], zeros[2 * VT_MAX_RANK] = {0};
  int64_t low[VT_MAX_RANK] = {0}, high[VT_MAX_RANK] = {0}, between[VT_MAX_RANK] = {0};
  memcpy(dims, type.dims, sizeof *dims * (size_t)type.rank);
  for (uint32_t i = 0; i < count; i++) {
    if (op->operands[1]->type.dims[kernel[i]] != 1) return NULL;
    ones[i] = 1;
    dims[out[i]] = op->operands[0]->type.dims[in[i]];
    low[out[i]] = padding[2 * i];
    high[out[i]] = padding[2 * i + 1];
    between[out[i]] = dilation[i] - 1;
  }
  vt_op *dense =
      copy_with_attrs(op, op, 2, op->operands, vt_type_make(arena, type.dtype, type.rank, dims));
  vt_op_set_ints(dense, VT_ATTR_LHS_DILATION, count, ones);
  vt_op_set_ints(dense, VT_ATTR_PADDING, 2 * count, zeros);
  vt_literal *zero = VT_NEW(arena, vt_literal);
  *zero = (vt_literal){vt_type_make(arena, type.dtype, 0, NULL), vt_arena_push(arena, 16), true};
  vt_value *padded =
      vt_build(op->func, op, VT_OP_PAD, op->loc, type, 2,
               (vt_value *[]){&dense->results[0], vt_build_constant(op->func, op, op->loc, zero)});
  vt_op_set_ints(padded->op, VT_ATTR_EDGE_PADDING_LOW, (uint32_t)type.rank, low);
  vt_op_set_ints(padded->op, VT_ATTR_EDGE_PADDING_HIGH, (uint32_t)type.rank, high);
  vt_op_set_ints(padded->op, VT_ATTR_INTERIOR_PADDING, (uint32_t)type.rank, between);
  return padded;
}

// Whether a product's result is transposed somewhere: only then do its uses matter.
static bool transposes_product(const vt_func *func) {
  const vt_op *first = func->module->made[VT_OP_TRANSPOSE] ? func->first : NULL;
  for (const vt_op *op = first; op; op = op->next) {
    if (op->code != VT_OP_TRANSPOSE || !op->operands[0]->op) continue;
    vt_opcode code = op->operands[0]->op->code;
    if (code == VT_OP_DOT || code == VT_OP_DOT_GENERAL || code == VT_OP_CONVOLUTION) return true;
  }
  return false;
}

static vt_status canonical_func(vt_func *func, void *user) {
  const vt_rewriting *pass = user;
  const uint32_t *uses = transposes_product(func) ? vt_func_use_counts(func, pass->scratch) : NULL;
  bool any = false;
  for (vt_op *op = func->first; op; op = op->next) {
    if (any) vt_rewrite_operands(op);
    vt_value *replacement = NULL;
    vt_op *under = op->operand_count ? op->operands[0]->op : NULL;
    switch (op->code) {
    case VT_OP_DOT:
      replacement = dot_to_general(op);
      absorb_operands(replacement->op, pass->changed);
      break;
    case VT_OP_BROADCAST:
      replacement = broadcast_to_in_dim(op);
      break;
    case VT_OP_GET_DIMENSION_SIZE:
      replacement = dimension_size(op);
      break;
    case VT_OP_DOT_GENERAL:
      absorb_operands(op, pass->changed);
      break;
    case VT_OP_CONVOLUTION:
      absorb_operands(op, pass->changed);
      replacement = undilated_conv(op);
      break;
    case VT_OP_TRANSPOSE:
      if (!uses || !under || under->results[0].id < 0 || uses[under->results[0].id] != 1) break;
      if (under->code == VT_OP_DOT_GENERAL) replacement = swap_transposed_dot(op);
      if (under->code == VT_OP_CONVOLUTION) replacement = transposed_conv(op);
      break;
    default:
      break;
    }
    if (!replacement) continue;
    replacement->id = op->results[0].id; // it has the same uses
    vt_rewrite_value(&op->results[0], replacement);
    any = *pass->changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_canonical(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                           bool *out_changed) {
  (void)options;
  return vt_rewrite_each_func(module, canonical_func, &(vt_rewriting){scratch, out_changed});
}
