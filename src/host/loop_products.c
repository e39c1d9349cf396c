// SPDX-License-Identifier: Apache-2.0
// loop_products.c - see loop_products.h.
//
// A recurrent layer multiplies the few rows of one step on each trip of a loop. Of these products
// only those of the state need the trip before: the others are one product over all steps, whose
// rows are many. Adding up the gradient of weights, each trip would also read and write all of it.
//
//   before  dot(stack[i], w)               ->  dot(stack, w)[i]
//   after   stack' = stack, at i dot(y, w) ->  dot(ys, w), where ys is the stack of all y
//           sum' = sum + dot(x, y)         ->  sum + dot(xs, ys), contracted over the trips too
//
// Before a loop nothing is known of i: a slice of a product is the product of the slice, wherever
// it is taken. It is done where the loop has as many trips as the stack has elements. After it, i
// must have each place of the stack once: a number that the trips count up or down. Nothing but
// the next trip may read the sum or the stack, nor anything else the product. A stack of x or y is
// one that the loop reads or writes anyway, up to conversions, or a new one.
#include "host/loop_products.h"

#include <string.h>

#include "base/array.h"
#include "host/loop_stack.h"
#include "ir/loop.h"
#include "ir/precision.h"
#include "passes/rewrite.h"

enum { MOST_ROWS = 256 };                           // of a product, up to which one trip's are few
enum { LEAST_WORK = 4096 };                         // products of numbers, of one trip
enum { MOST_GROWTH = 8 };                           // of the stack that is multiplied
enum { MOST_ADDED = 16 };                           // stacks of one loop
static const int64_t most_bytes = INT64_C(1) << 28; // of a new stack

typedef struct spreading {
  vt_op *loop;
  vt_func *body;
  vt_arena *scratch;
  int64_t trips;
  const uint32_t *uses, *condition_uses;
  struct {
    vt_value *value, *at;
  } added[MOST_ADDED]; // stacks that the loop is to carry, too
  uint32_t added_count;
} spreading;

// All that a value of the body is on the trips.
typedef struct stack {
  enum { NO_STACK, CAPTURED, CARRIED, ADDED } kind;
  vt_value *outside;    // captured
  uint32_t index;       // of the result, or in added
  const vt_value *part; // the value that is in it, of which the other is a conversion or reshape
} stack;

// A product to be done after the loop.
typedef struct late {
  vt_op *product;
  uint32_t result;       // of the loop: the sum, or the stack of products
  const vt_value *value; // the element of that stack; NULL: a sum
  stack sides[2];        // of a stack of products the first only
} late;

static int64_t rows_of(vt_type type) {
  return type.rank ? vt_type_elements(type) / type.dims[type.rank - 1] : 1;
}

// Plain products of two arrays without batches.
static bool is_product(const vt_op *op) {
  if (!op || op->code != VT_OP_DOT_GENERAL || vt_op_attr(op, VT_ATTR_RAGGED)) return false;
  uint32_t batches, sums;
  vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *k = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &sums);
  vt_type lhs = op->operands[0]->type, to = op->results[0].type;
  if (batches || !sums || !vt_type_elements(lhs) || !vt_type_elements(op->operands[1]->type) ||
      to.rank + 1 > VT_MAX_RANK || lhs.rank + 1 > VT_MAX_RANK)
    return false;
  int64_t depth = 1;
  for (uint32_t i = 0; i < sums; i++) depth *= lhs.dims[k[i]];
  return depth * vt_type_elements(to) >= LEAST_WORK;
}

static vt_value *without_reshapes(vt_value *value) {
  while (value->op && value->op->code == VT_OP_RESHAPE) value = value->op->operands[0];
  return value;
}

// The operand of the loop that the value of its body is; NULL: none, or it changes.
static vt_value *captured(const vt_op *loop, const vt_value *value) {
  bool is = !value->op && value->index >= (int32_t)loop->result_count;
  return is ? loop->operands[value->index] : NULL;
}

// The slice of one element of a stack outside that the value is up to reshapes; NULL: it is none.
static vt_op *element_read(const vt_op *loop, vt_value *value) {
  vt_op *op = without_reshapes(value)->op;
  if (!op || op->code != VT_OP_DYNAMIC_SLICE || !captured(loop, op->operands[0]) ||
      !vt_is_element_of(op->operands[0]->type, op->results[0].type, op->operands + 1))
    return NULL;
  return op;
}

// The type with a first dimension of this size.
static vt_type stacked(vt_func *func, vt_type type, int64_t count) {
  int64_t dims[VT_MAX_RANK + 1] = {count};
  for (int32_t d = 0; d < type.rank; d++) dims[d + 1] = type.dims[d];
  return vt_type_make(&func->module->arena, type.dtype, type.rank + 1, dims);
}

static vt_value *reshaped(vt_op *before, vt_func *func, vt_value *value, vt_type type) {
  if (vt_type_equal(value->type, type)) return value;
  return vt_build(func, before, VT_OP_RESHAPE, &vt_loc_unknown, type, 1, &value);
}

static vt_value *zeros(vt_func *func, vt_op *before, vt_type type) {
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  *literal = (vt_literal){type, vt_arena_push(&func->module->arena, 16), true};
  return vt_build_constant(func, before, &vt_loc_unknown, literal);
}

// Dimensions of what has one more in front, which is the first of the result if `front`.
static void move_dims(vt_op *op, const vt_op *like, vt_attr_key key, bool front) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(like, key, &count);
  int64_t moved[VT_MAX_RANK + 1] = {0};
  for (uint32_t i = 0; i < count; i++) moved[i + front] = dims[i] + 1;
  vt_op_set_ints(op, key, count + front, moved);
}

// The product over all trips: of a stack with what they have in common, or of two stacks, which is
// a sum over trips. It rounds what that of a trip does.
static vt_value *product_of_all(vt_func *func, vt_op *before, const vt_op *like, vt_value *sides[2],
                                bool sum, int64_t count) {
  static const int64_t highest[2] = {VT_PRECISION_HIGHEST, VT_PRECISION_HIGHEST};
  vt_type one = like->results[0].type;
  vt_type type = sum ? one : stacked(func, one, count);
  vt_op *op = vt_build(func, before, VT_OP_DOT_GENERAL, like->loc, type, 2, sides)->op;
  for (uint32_t i = 0; i < like->attr_count; i++) vt_op_set_attr(op, like->attrs[i]);
  move_dims(op, like, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, sum);
  if (sum) move_dims(op, like, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, sum);
  if (like->operands[0]->type.dtype == VT_F32 && !vt_op_rounds_operands(like))
    vt_op_set_ints(op, VT_ATTR_PRECISION_CONFIG, 2, highest);
  return &op->results[0];
}

// dot(stack[i], w): whether it was done before the loop.
static bool do_before(const spreading *s, vt_op *product) {
  if (!is_product(product) || rows_of(product->results[0].type) > MOST_ROWS) return false;
  vt_value *lhs = product->operands[0], *w = captured(s->loop, product->operands[1]);
  vt_op *slice = element_read(s->loop, lhs);
  if (!slice || !w) return false;
  vt_func *func = s->loop->func;
  vt_value *all = captured(s->loop, slice->operands[0]);
  int64_t count = all->type.dims[0];
  vt_type one = product->results[0].type, type = stacked(func, one, count);
  if (count > s->trips || vt_type_bytes(type) > most_bytes ||
      vt_type_elements(one) > MOST_GROWTH * vt_type_elements(lhs->type))
    return false;
  vt_value *sides[2] = {reshaped(s->loop, func, all, stacked(func, lhs->type, count)), w};
  vt_value *products = product_of_all(func, s->loop, product, sides, false, count);
  vt_value *operands[VT_MAX_RANK + 1] = {vt_loop_add_capture(s->loop, products),
                                         slice->operands[1]};
  int64_t sizes[VT_MAX_RANK + 1] = {1};
  vt_value *zero = zeros(s->body, product, slice->operands[1]->type);
  for (int32_t d = 0; d < one.rank; d++) {
    operands[d + 2] = zero;
    sizes[d + 1] = one.dims[d];
  }
  vt_value *part = vt_build(s->body, product, VT_OP_DYNAMIC_SLICE, product->loc,
                            stacked(func, one, 1), (uint32_t)one.rank + 2, operands);
  vt_op_set_ints(part->op, VT_ATTR_SLICE_SIZES, (uint32_t)one.rank + 1, sizes);
  vt_rewrite_value(&product->results[0], reshaped(product, s->body, part, one));
  return true;
}

static bool has_each_place(const spreading *s, const vt_value *at, int64_t count) {
  return vt_loop_has_each_place(s->loop, s->trips, at, count);
}

static int32_t stack_written(const spreading *s, const vt_op *update) {
  return vt_loop_stack_written(s->loop, s->trips, update);
}

static bool is_view(const vt_op *op) {
  return op && (op->code == VT_OP_RESHAPE || op->code == VT_OP_CONVERT);
}

// `all`, the stack of `part`, as the stack of `value`, which is `part` up to views.
static vt_value *viewed(vt_func *func, vt_op *before, vt_value *all, const vt_value *part,
                        const vt_value *value) {
  int64_t count = all->type.dims[0];
  if (value == part) return reshaped(before, func, all, stacked(func, part->type, count));
  vt_value *from = viewed(func, before, all, part, value->op->operands[0]);
  return vt_build(func, before, value->op->code, value->op->loc, stacked(func, value->type, count),
                  1, &from);
}

// A stack that is there, in the order of the index.
static stack find_stack(const spreading *s, vt_value *value, const vt_value *at) {
  for (;; value = value->op->operands[0]) {
    const vt_op *read = element_read(s->loop, value);
    if (read && read->operands[1] == at && has_each_place(s, at, read->operands[0]->type.dims[0]))
      return (stack){CAPTURED, captured(s->loop, read->operands[0]), 0, value};
    for (const vt_op *op = s->body->first; op; op = op->next) {
      if (op->code != VT_OP_DYNAMIC_UPDATE_SLICE || op->operands[2] != at ||
          without_reshapes(op->operands[1]) != without_reshapes(value))
        continue;
      int32_t k = stack_written(s, op);
      if (k >= 0) return (stack){CARRIED, NULL, (uint32_t)k, value};
    }
    if (!is_view(value->op)) return (stack){NO_STACK, NULL, 0, NULL};
  }
}

// One that is there, or will be. Values are as large as `most` bytes.
static bool need_stack(spreading *s, vt_value *value, vt_value *at, int64_t most, stack *out) {
  *out = find_stack(s, value, at);
  if (out->kind != NO_STACK) return true;
  uint32_t i = 0;
  while (i < s->added_count && (s->added[i].value != value || s->added[i].at != at)) i++;
  *out = (stack){ADDED, NULL, i, value};
  if (i < s->added_count) return true;
  if (i == MOST_ADDED || !value->op || value->op->code == VT_OP_CONSTANT ||
      value->type.rank + 1 > VT_MAX_RANK || vt_type_bytes(value->type) > most ||
      vt_type_bytes(value->type) > most_bytes / s->trips)
    return false;
  s->added[i].value = value;
  s->added[i].at = at;
  s->added_count++;
  return true;
}

// Whether only the next trip reads the carried value, in one place; and only it the next one.
static bool is_private(const spreading *s, uint32_t k) {
  return s->uses[s->body->params[k]->id] == 1 && s->uses[s->body->returns[k]->id] == 1 &&
         !s->condition_uses[s->loop->regions[0]->params[k]->id];
}

// stack' = stack, at i dot(y, w)
static bool is_late_stack(spreading *s, uint32_t k, late *out) {
  const vt_op *update = s->body->returns[k]->op;
  if (stack_written(s, update) != (int32_t)k || !is_private(s, k)) return false;
  vt_value *value = update->operands[1];
  for (;; value = value->op->operands[0]) {
    if (s->uses[value->id] != 1) return false;
    if (!is_view(value->op)) break;
  }
  *out = (late){.product = value->op, .result = k, .value = update->operands[1]};
  return is_product(value->op) && captured(s->loop, value->op->operands[1]) &&
         rows_of(value->type) <= MOST_ROWS &&
         vt_type_bytes(stacked(s->body, value->type, s->trips)) <= most_bytes &&
         need_stack(s, value->op->operands[0], update->operands[2],
                    MOST_GROWTH * vt_type_bytes(value->type), &out->sides[0]);
}

// The index at which the value, or what it is a view of, is read or written.
static vt_value *index_of(const spreading *s, vt_value *value) {
  while (is_view(value->op)) value = value->op->operands[0];
  vt_op *read = element_read(s->loop, value);
  return read && has_each_place(s, read->operands[1], s->trips) ? read->operands[1] : NULL;
}

static vt_value *any_index(const spreading *s) {
  for (const vt_op *op = s->body->first; op; op = op->next)
    if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE && stack_written(s, op) >= 0) return op->operands[2];
  for (uint32_t k = 0; k < s->body->return_count; k++) {
    vt_value *counter = s->body->params[k];
    if (vt_dtype_is_integer(counter->type.dtype) && !counter->type.rank &&
        has_each_place(s, counter, s->trips))
      return counter;
  }
  return NULL;
}

// sum' = sum + dot(x, y)
static bool is_late_sum(spreading *s, uint32_t k, late *out) {
  const vt_op *add = s->body->returns[k]->op;
  const vt_value *sum = s->body->params[k];
  vt_dtype dtype = sum->type.dtype;
  bool rounds = vt_dtype_kind_of(dtype) == VT_KIND_FLOAT && vt_dtype_get(dtype)->bits < 32;
  if (add->code != VT_OP_ADD || rounds || !is_private(s, k)) return false;
  int side = add->operands[0] == sum;
  const vt_value *product = add->operands[side];
  if (add->operands[1 - side] != sum || s->uses[product->id] != 1 || !is_product(product->op))
    return false;
  vt_op *dot = product->op;
  uint32_t sums;
  const int64_t *k_dims = vt_attr_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &sums);
  int64_t depth = 1;
  for (uint32_t i = 0; i < sums; i++) depth *= dot->operands[0]->type.dims[k_dims[i]];
  if (depth > MOST_ROWS || sums + 1 > VT_MAX_RANK) return false;
  vt_value *at = index_of(s, dot->operands[0]);
  if (!at) at = index_of(s, dot->operands[1]);
  if (!at) at = any_index(s);
  *out = (late){.product = dot, .result = k};
  uint32_t added = s->added_count;
  for (int i = 0; at && i < 2; i++)
    if (!need_stack(s, dot->operands[i], at, vt_type_bytes(sum->type), &out->sides[i])) at = NULL;
  if (!at) s->added_count = added;
  return at;
}

static void insert_params(vt_func *region, uint32_t at, const spreading *s) {
  uint32_t old = region->param_count, added = s->added_count;
  for (uint32_t i = 0; i < added; i++)
    vt_func_add_param(region, stacked(region, s->added[i].value->type, s->trips));
  vt_value **params = VT_NEW_ARRAY(s->scratch, vt_value *, old + added);
  memcpy(params, region->params, sizeof *params * (old + added));
  memcpy(region->params + at, params + old, sizeof *params * added);
  memcpy(region->params + at + added, params + at, sizeof *params * (old - at));
  for (uint32_t i = 0; i < old + added; i++) region->params[i]->index = (int32_t)i;
  region->numbered = false;
}

// The loop with the added stacks behind what it carries, empty at first.
static vt_op *carry_more(const spreading *s) {
  vt_op *op = s->loop;
  vt_func *body = s->body;
  uint32_t state = op->result_count, added = s->added_count, carried = state + added;
  vt_value **operands = VT_NEW_ARRAY(s->scratch, vt_value *, op->operand_count + added);
  vt_value **returns = VT_NEW_ARRAY(s->scratch, vt_value *, carried);
  vt_type *types = VT_NEW_ARRAY(s->scratch, vt_type, carried);
  for (uint32_t k = 0; k < state; k++) types[k] = op->results[k].type;
  memcpy(returns, body->returns, sizeof *returns * state);
  memcpy(operands, op->operands, sizeof *operands * state);
  memcpy(operands + carried, op->operands + state, sizeof *operands * op->capture_count);
  insert_params(op->regions[0], state, s);
  insert_params(body, state, s);
  for (uint32_t i = 0; i < added; i++) {
    vt_value *value = s->added[i].value, *at = s->added[i].at;
    vt_value *update[VT_MAX_RANK + 2] = {
        body->params[state + i], reshaped(NULL, body, value, stacked(body, value->type, 1)), at};
    vt_type type = types[state + i] = update[0]->type;
    operands[state + i] = zeros(op->func, op, type);
    vt_value *zero = zeros(body, NULL, at->type);
    for (int32_t d = 1; d < type.rank; d++) update[2 + d] = zero;
    returns[state + i] = vt_build(body, NULL, VT_OP_DYNAMIC_UPDATE_SLICE, value->op->loc, type,
                                  (uint32_t)type.rank + 2, update);
  }
  vt_func_set_returns(body, carried, returns);
  vt_op *loop = vt_op_create(op->func, VT_OP_WHILE, op->loc, op->operand_count + added, operands,
                             carried, types, 2);
  loop->capture_count = op->capture_count;
  loop->attrs = op->attrs;
  loop->attr_count = op->attr_count;
  memcpy(loop->regions, op->regions, sizeof *op->regions * 2);
  vt_op_insert(op, loop);
  for (uint32_t k = 0; k < state; k++) vt_rewrite_value(&op->results[k], &loop->results[k]);
  vt_op_remove(op);
  return loop;
}

static vt_value *stack_after(const spreading *s, vt_op *after, const stack *at,
                             const vt_value *value, uint32_t first_added) {
  vt_value *all = at->kind == CAPTURED  ? at->outside
                  : at->kind == CARRIED ? &s->loop->results[at->index]
                                        : &s->loop->results[first_added + at->index];
  return viewed(s->loop->func, after, all, at->part, value);
}

// Makes the product behind the loop, which then hands on what it added to or wrote to.
static void do_after(const spreading *s, vt_op *after, const late *l, uint32_t first_added) {
  vt_op *loop = s->loop, *product = l->product;
  vt_func *func = loop->func;
  vt_value *sides[2], *carried = &loop->results[l->result];
  sides[0] = stack_after(s, after, &l->sides[0], product->operands[0], first_added);
  sides[1] = l->value ? captured(loop, product->operands[1])
                      : stack_after(s, after, &l->sides[1], product->operands[1], first_added);
  vt_value *value = product_of_all(func, after, product, sides, !l->value, s->trips);
  vt_value *start = loop->operands[l->result];
  if (l->value) {
    value = viewed(func, after, value, &product->results[0], l->value);
    value = reshaped(after, func, without_reshapes(value), carried->type);
  } else if (!start->op || start->op->code != VT_OP_CONSTANT || !vt_is_splat_of(start, 0)) {
    value = vt_build(func, after, VT_OP_ADD, product->loc, carried->type, 2,
                     (vt_value *[]){start, value});
  }
  vt_rewrite_value(carried, value);
  s->body->returns[l->result] = s->body->params[l->result];
}

static bool move_late(spreading *s) {
  VT_ARRAY(late) products = {0};
  for (uint32_t k = 0; k < s->body->return_count; k++) {
    late l;
    if (!s->body->returns[k]->op) continue;
    if (is_late_stack(s, k, &l) || is_late_sum(s, k, &l))
      vt_array_push_in(s->scratch, &products, l);
  }
  if (!products.size) return false;
  vt_op *after = s->loop->next;
  uint32_t state = s->loop->result_count;
  if (s->added_count) s->loop = carry_more(s);
  for (size_t i = 0; i < products.size; i++) do_after(s, after, &products.data[i], state);
  return true;
}

// The loop, or the one that takes its place.
static void spread_loop(vt_op *loop, bool *changed) {
  vt_arena scratch = {.brief = true};
  spreading s = {.loop = loop, .body = loop->regions[1], .scratch = &scratch};
  if (vt_loop_trips(NULL, loop, &s.trips) && s.trips > 1) {
    bool moved = false;
    for (vt_op *op = s.body->first; op; op = op->next) {
      vt_rewrite_operands(op);
      moved |= do_before(&s, op);
    }
    vt_rewrite_returns(s.body);
    s.uses = vt_func_use_counts(s.body, &scratch);
    s.condition_uses = vt_func_use_counts(loop->regions[0], &scratch);
    moved |= move_late(&s);
    *changed |= moved;
  }
  vt_arena_free(&scratch);
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user;
  for (vt_op *op = func->first, *next; op; op = next) {
    vt_rewrite_operands(op);
    next = op->next;
    if (op->code == VT_OP_WHILE) spread_loop(op, changed);
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_loop_products(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_WHILE] || !module->made[VT_OP_DOT_GENERAL]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
