// SPDX-License-Identifier: Apache-2.0
// gen_scan.c - loops as recurrent layers and their gradients have them: on each trip an element of
// a stack is multiplied, products are stacked and added up. Of integers, whose products are exact.
#include "gen_makers.h"

#include <string.h>

enum { ROWS_LEAST = 3, ROWS_MOST = 8, DEPTH_LEAST = 16, DEPTH_MOST = 20 };
enum { COLUMNS_LEAST = 64, COLUMNS_MOST = 70, CARRIED = 5, CAPTURED = 3 };

typedef struct scan {
  int64_t trips, count, rows, depth, columns; // count: of the elements of stacks
  vt_type counter;
  vt_dtype dtype, narrow; // of sums, of what is multiplied
} scan;

static vt_type matrix(gen *g, vt_dtype dtype, int64_t rows, int64_t columns) {
  return gen_type(g, dtype, 2, (int64_t[]){rows, columns});
}

static vt_type stack_of(gen *g, const scan *s, vt_type one) {
  return gen_type(g, one.dtype, 3, (int64_t[]){s->count, one.dims[0], one.dims[1]});
}

static vt_type element(gen *g, vt_type one) {
  return gen_type(g, one.dtype, 3, (int64_t[]){1, one.dims[0], one.dims[1]});
}

static vt_value *product(gen *g, vt_value *x, int64_t of_x, vt_value *y, int64_t of_y,
                         vt_dtype dtype) {
  vt_type type = matrix(g, dtype, x->type.dims[1 - of_x], y->type.dims[1 - of_y]);
  vt_op *op = gen_op(g, VT_OP_DOT_GENERAL, 2, (vt_value *[]){x, y}, 1, &type, 0);
  static const int64_t highest[2] = {VT_PRECISION_HIGHEST, VT_PRECISION_HIGHEST};
  vt_op_set_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, 0, NULL);
  vt_op_set_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, 1, &of_x);
  vt_op_set_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, 1, &of_y);
  vt_op_set_ints(op, VT_ATTR_PRECISION_CONFIG, 2, highest);
  gen_done(g, op, false, false);
  return op->results;
}

// Where a trip reads or writes: mostly each place once, forwards or backwards.
static vt_value *place(gen *g, const scan *s, vt_value *i) {
  if (gen_chance(g, 50)) return i;
  int64_t from = gen_chance(g, 70) ? s->count - 1 : gen_between(g, -1, s->count);
  vt_value *pair[2] = {gen_scalar(g, s->counter.dtype, (double)from), i};
  vt_opcode code = gen_chance(g, 80) ? VT_OP_SUBTRACT : VT_OP_ADD;
  return gen_emit(g, code, s->counter, 2, pair, false);
}

static vt_value *read(gen *g, const scan *s, vt_value *stack, vt_value *at) {
  vt_type one = matrix(g, stack->type.dtype, stack->type.dims[1], stack->type.dims[2]);
  vt_value *zero = gen_scalar(g, s->counter.dtype, 0), *operands[4] = {stack, at, zero, zero};
  vt_type part = element(g, one);
  vt_op *op = gen_op(g, VT_OP_DYNAMIC_SLICE, 4, operands, 1, &part, 0);
  vt_op_set_ints(op, VT_ATTR_SLICE_SIZES, 3, part.dims);
  gen_done(g, op, false, false);
  return gen_emit(g, VT_OP_RESHAPE, one, 1, (vt_value *[]){op->results}, false);
}

static vt_value *write(gen *g, const scan *s, vt_value *stack, vt_value *one, vt_value *at) {
  vt_value *part = gen_emit(g, VT_OP_RESHAPE, element(g, one->type), 1, &one, false);
  vt_value *zero = gen_scalar(g, s->counter.dtype, 0), *operands[5] = {stack, part, at, zero, zero};
  return gen_emit(g, VT_OP_DYNAMIC_UPDATE_SLICE, stack->type, 5, operands, false);
}

static vt_value *sum(gen *g, vt_value *a, vt_value *b) {
  vt_value *pair[2] = {gen_chance(g, 50) ? a : b, NULL};
  pair[1] = pair[0] == a ? b : a;
  return gen_emit(g, VT_OP_ADD, a->type, 2, pair, false);
}

// counter, state [rows, columns], sum [depth, columns], stacks of [rows, columns], [rows, depth];
// then a stack of [rows, depth], matrices [depth, columns], [columns, depth].
static void gen_scan_body(gen *g, const scan *s, vt_func *body) {
  vt_value **p = body->params, *returns[CARRIED];
  vt_value *at = place(g, s, p[0]), *x = read(g, s, p[CARRIED], at);
  vt_value *y = sum(g, product(g, x, 1, p[CARRIED + 1], 0, s->dtype), p[1]);
  vt_value *small =
      s->narrow == s->dtype
          ? y
          : gen_emit(g, VT_OP_CONVERT, gen_retyped(g, y->type, s->narrow), 1, &y, false);
  if (gen_chance(g, 30)) at = place(g, s, p[0]);
  returns[1] = y;
  returns[2] = sum(g, p[2], product(g, x, 0, small, 0, s->dtype));
  returns[3] = gen_chance(g, 70) ? write(g, s, p[3], y, at) : p[3];
  vt_value *back = product(g, small, 1, p[CARRIED + 2], 0, s->dtype);
  returns[4] = write(g, s, p[4], back, gen_chance(g, 80) ? at : place(g, s, p[0]));
  if (gen_chance(g, 10)) returns[2] = sum(g, returns[2], p[2]);
  if (gen_chance(g, 10)) returns[1] = sum(g, y, read(g, s, p[3], at));
  if (gen_chance(g, 10)) returns[2] = sum(g, returns[2], product(g, back, 0, y, 0, s->dtype));
  vt_value *step[2] = {p[0], gen_scalar(g, s->counter.dtype, 1)};
  returns[0] = gen_emit(g, VT_OP_ADD, s->counter, 2, step, false);
  vt_func_set_returns(body, CARRIED, returns);
}

static void add_params(gen *g, vt_value *const *operands) {
  for (int i = 0; i < CARRIED + CAPTURED; i++) gen_param(g, operands[i]->type, false);
}

bool gen_scan(gen *g, const gen_row *row) {
  scan s = {.trips = gen_between(g, 0, 5),
            .rows = gen_between(g, ROWS_LEAST, ROWS_MOST),
            .depth = gen_between(g, DEPTH_LEAST, DEPTH_MOST),
            .columns = gen_between(g, COLUMNS_LEAST, COLUMNS_MOST),
            .counter = {gen_chance(g, 70) ? VT_S32 : VT_S64, 0, NULL},
            .dtype = gen_dtype(g, T(S32) | T(S16) | T(U32) | T(S64))};
  s.count = gen_chance(g, 80) && s.trips ? s.trips : gen_between(g, 1, 5);
  s.narrow = gen_chance(g, 50) ? s.dtype : VT_S8;
  vt_type state = matrix(g, s.dtype, s.rows, s.columns);
  vt_type back = matrix(g, s.dtype, s.rows, s.depth);
  vt_type x = gen_retyped(g, back, s.narrow);
  vt_type w = matrix(g, s.narrow, s.depth, s.columns), v = matrix(g, s.narrow, s.columns, s.depth);
  vt_type of[CARRIED + CAPTURED] = {s.counter,
                                    state,
                                    gen_retyped(g, w, s.dtype),
                                    stack_of(g, &s, state),
                                    stack_of(g, &s, back),
                                    stack_of(g, &s, x),
                                    w,
                                    v};
  vt_value *operands[CARRIED + CAPTURED];
  operands[0] = gen_scalar(g, s.counter.dtype, gen_chance(g, 90) ? 0 : 1);
  for (int i = 1; i < CARRIED + CAPTURED; i++)
    operands[i] = gen_chance(g, 30) ? gen_splat(g, of[i], 0) : gen_of(g, of[i], PICK_EXACT);
  vt_func *regions[2] = {vt_func_create(g->module, ""), vt_func_create(g->module, "")};
  gen_scope inner;
  gen_enter(g, &inner, regions[0]);
  add_params(g, operands);
  vt_type predicate = {VT_PRED, 0, NULL};
  vt_value *pair[2] = {regions[0]->params[0], gen_scalar(g, s.counter.dtype, (double)s.trips)};
  vt_op *test = gen_op(g, VT_OP_COMPARE, 2, pair, 1, &predicate, 0);
  vt_op_set_i64(test, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_LT);
  vt_op_set_i64(test, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_func_set_returns(regions[0], 1, (vt_value *[]){test->results});
  gen_leave(g);
  gen_enter(g, &inner, regions[1]);
  add_params(g, operands);
  gen_scan_body(g, &s, regions[1]);
  gen_leave(g);
  vt_op *op = gen_op(g, row->code, CARRIED + CAPTURED, operands, CARRIED, of, 2);
  op->capture_count = CAPTURED;
  memcpy(op->regions, regions, sizeof regions);
  gen_done(g, op, false, false);
  return true;
}
