// SPDX-License-Identifier: Apache-2.0
// opt_pool.c - max pooling of relu(x) becomes relu of max pooling of x: saves writing and reading
// the full-resolution array once more.
//
// relu is maximum(x, 0). relu of a window's maximum is the maximum of its relus, if every window
// holds an element. The gradient of pooling sends each window's share to its largest element, and
// the gradient of relu then keeps elements where x > 0: there x and relu(x) select alike, since
// relu only changes smaller elements. So with p = pool(relu(x)) and select(x > 0, unpool(relu(x),
// g), 0) all three may read x. Done only where nothing else reads relu(x).
#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct pool_uses {
  uint32_t *all, *good; // by value id: number of reads, and of those that could read x instead
} pool_uses;

// The x of maximum(x, 0), or NULL.
static vt_value *relu_operand(const vt_value *value) {
  const vt_op *op = value->op;
  if (!op || op->code != VT_OP_MAXIMUM || !vt_dtype_is_float(value->type.dtype)) return NULL;
  if (vt_is_splat_of(op->operands[1], 0)) return op->operands[0];
  return vt_is_splat_of(op->operands[0], 0) ? op->operands[1] : NULL;
}

// value is x, or relu(x).
static bool is_or_rectifies(const vt_value *value, const vt_value *x) {
  return value == x || relu_operand(value) == x;
}

static bool is_positive_test(const vt_op *op) {
  return op->code == VT_OP_COMPARE && vt_is_splat_of(op->operands[1], 0) &&
         vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_GT;
}

// The region is one op of its two parameters, in order.
static const vt_op *only_op(const vt_func *region, vt_opcode code) {
  const vt_op *op = region->first;
  bool fits = op && !op->next && op->code == code && region->param_count == 2 &&
              op->operands[0] == region->params[0] && op->operands[1] == region->params[1];
  return fits && region->return_count == 1 && region->returns[0] == &op->results[0] ? op : NULL;
}

// No window is all padding.
static bool windows_hold_elements(const vt_op *op) {
  if (!vt_op_attr(op, VT_ATTR_PADDING)) return true;
  vt_type in = op->operands[0]->type;
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  const int64_t *window = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  for (int32_t d = 0; d < in.rank; d++)
    if (padding[2 * d] >= window[d] || padding[2 * d + 1] >= window[d] || in.dims[d] < window[d])
      return false;
  return true;
}

static bool is_max_pool(const vt_op *op) {
  return op->code == VT_OP_REDUCE_WINDOW && op->operand_count == 2 &&
         only_op(op->regions[0], VT_OP_MAXIMUM) && vt_ints_are(op, VT_ATTR_BASE_DILATIONS, 1) &&
         vt_ints_are(op, VT_ATTR_WINDOW_DILATIONS, 1) && windows_hold_elements(op);
}

// The gradient of max pooling: a window's share goes to its first largest element.
static bool is_unpool(const vt_op *op) {
  if (op->code != VT_OP_SELECT_AND_SCATTER) return false;
  const vt_op *choice = only_op(op->regions[0], VT_OP_COMPARE);
  return choice && vt_attr_i64(choice, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_GE;
}

// Such a gradient that is read only through masks x > 0.
static bool is_masked_unpool(const vt_op *op, const pool_uses *uses) {
  return is_unpool(op) && uses->good[op->results[0].id] == uses->all[op->results[0].id];
}

// Reads of an unpooled gradient that keep it only where its pooled array was positive.
static void count_masks(const vt_op *op, const pool_uses *uses) {
  if (op->code != VT_OP_SELECT) return;
  const vt_op *mask = op->operands[0]->op, *unpool = op->operands[1]->op;
  if (!mask || !is_positive_test(mask) || !unpool || unpool->code != VT_OP_SELECT_AND_SCATTER)
    return;
  const vt_value *x = relu_operand(unpool->operands[0]);
  if (x && is_or_rectifies(mask->operands[0], x)) uses->good[op->operands[1]->id]++;
}

// Whether the op may read x instead of its first operand, relu(x).
static bool reads_alike(const vt_op *op, const pool_uses *uses) {
  return op->operand_count && relu_operand(op->operands[0]) &&
         (is_max_pool(op) || is_masked_unpool(op, uses) || is_positive_test(op));
}

static vt_value *zeros(vt_func *func, vt_op *before, vt_type type) {
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  *literal = (vt_literal){type, vt_arena_push(&func->module->arena, 16), true};
  return vt_build_constant(func, before, before->loc, literal);
}

static void rewrite(vt_func *func, vt_op *op) {
  vt_assert(relu_operand(op->operands[0]));
  const vt_loc *relu = op->operands[0]->op->loc;
  vt_value *x = relu_operand(op->operands[0]);
  if (op->code != VT_OP_REDUCE_WINDOW) {
    op->operands[0] = x;
    return;
  }
  vt_type type = op->results[0].type;
  vt_op *pool =
      vt_op_create(func, op->code, op->loc, 2, (vt_value *[]){x, op->operands[1]}, 1, &type, 1);
  pool->attrs = op->attrs;
  pool->attr_count = op->attr_count;
  pool->regions[0] = op->regions[0];
  vt_op_insert(op, pool);
  vt_rewrite_value(&op->results[0],
                   vt_build(func, op, VT_OP_MAXIMUM, relu, type, 2,
                            (vt_value *[]){&pool->results[0], zeros(func, op, type)}));
  vt_op_remove(op);
}

static bool same_attr(const vt_op *a, const vt_op *b, vt_attr_key key) {
  const vt_attr *x = vt_op_attr(a, key), *y = vt_op_attr(b, key);
  return x && y ? vt_attr_equal(x, y) : !x && !y;
}

// The pooling before `unpool` that it is the gradient of, of x or relu(x).
static vt_op *find_pool(vt_op *unpool, const vt_value *x) {
  for (vt_op *op = unpool->prev; op; op = op->prev)
    if (is_max_pool(op) && is_or_rectifies(op->operands[0], x) &&
        same_attr(op, unpool, VT_ATTR_WINDOW_DIMENSIONS) &&
        same_attr(op, unpool, VT_ATTR_WINDOW_STRIDES) && same_attr(op, unpool, VT_ATTR_PADDING) &&
        op->results[0].type.dtype == unpool->operands[1]->type.dtype)
      return op;
  return NULL;
}

// For a select that is the only reader of an unpooled gradient: the same gradient, masked before
// unpooling. NULL for anything else.
static vt_value *mask_before(vt_func *func, const vt_op *op, const pool_uses *uses) {
  const vt_op *mask = op->code == VT_OP_SELECT ? op->operands[0]->op : NULL;
  vt_op *unpool = mask ? op->operands[1]->op : NULL;
  if (!unpool || !is_positive_test(mask) || !vt_is_splat_of(op->operands[2], 0) ||
      !is_unpool(unpool) || uses->all[unpool->results[0].id] != 1)
    return NULL;
  const vt_value *x =
      relu_operand(mask->operands[0]) ? relu_operand(mask->operands[0]) : mask->operands[0];
  if (!is_or_rectifies(unpool->operands[0], x) || !only_op(unpool->regions[1], VT_OP_ADD) ||
      !vt_is_splat_of(unpool->operands[2], 0))
    return NULL;
  vt_op *pool = find_pool(unpool, x);
  if (!pool) return NULL;
  vt_type type = unpool->operands[1]->type, pred = type;
  pred.dtype = VT_PRED;
  vt_value *zero = zeros(func, unpool, type);
  vt_value *positive = vt_build(func, unpool, VT_OP_COMPARE, mask->loc, pred, 2,
                                (vt_value *[]){&pool->results[0], zero});
  vt_op_set_i64(positive->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_GT);
  vt_op_set_i64(positive->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_FLOAT);
  unpool->operands[1] = vt_build(func, unpool, VT_OP_SELECT, op->loc, type, 3,
                                 (vt_value *[]){positive, unpool->operands[1], zero});
  return &unpool->results[0];
}

static bool move_masks(vt_func *func, vt_arena *scratch) {
  bool moved = false;
  pool_uses uses = {.all = vt_func_use_counts(func, scratch)};
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    vt_value *unpooled = mask_before(func, op, &uses);
    if (!unpooled) continue;
    vt_rewrite_value(&op->results[0], unpooled);
    moved = true;
  }
  vt_rewrite_returns(func);
  return moved;
}

typedef struct pooling {
  vt_arena *scratch;
  bool *changed;
} pooling;

static vt_status pool_func(vt_func *func, void *user) {
  const pooling *ctx = user;
  bool pools = false;
  for (const vt_op *op = func->first; op && !pools; op = op->next) pools = is_max_pool(op);
  if (!pools) return VT_OK;
  pool_uses uses = {.all = vt_func_use_counts(func, ctx->scratch)};
  uses.good = VT_NEW_ARRAY(ctx->scratch, uint32_t, (size_t)func->value_count);
  for (const vt_op *op = func->first; op; op = op->next) count_masks(op, &uses);
  for (const vt_op *op = func->first; op; op = op->next)
    if (reads_alike(op, &uses)) uses.good[op->operands[0]->id]++;
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    vt_rewrite_operands(op);
    // New values have no id; none of them is read by a pool of this function.
    if (!reads_alike(op, &uses) || op->operands[0]->id < 0 ||
        uses.good[op->operands[0]->id] != uses.all[op->operands[0]->id])
      continue;
    rewrite(func, op);
    *ctx->changed = true;
  }
  vt_rewrite_returns(func);
  *ctx->changed |= move_masks(func, ctx->scratch);
  return VT_OK;
}

vt_status vt_opt_pool(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                      bool *out_changed) {
  (void)options;
  pooling ctx = {scratch, out_changed};
  return vt_rewrite_each_func(module, pool_func, &ctx);
}
