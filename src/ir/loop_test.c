// SPDX-License-Identifier: Apache-2.0
// loop_test.c - trips of counted loops, by row: start, step, comparison, limit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ir/loop.h"

enum { UNKNOWN = -1 };

static vt_value *constant(vt_func *func, vt_dtype dtype, int64_t value) {
  vt_arena *arena = &func->module->arena;
  int64_t *data = VT_NEW(arena, int64_t);
  memcpy(data, &value, vt_dtype_bytes(dtype)); // little-endian
  vt_literal *literal = VT_NEW(arena, vt_literal);
  *literal = (vt_literal){{dtype, 0, NULL}, data, true};
  return vt_build_constant(func, NULL, NULL, literal);
}

typedef struct row {
  vt_dtype dtype;
  int64_t start, step, direction, limit, want;
  bool limit_first; // limit CMP counter
} row;

// while (counter CMP limit) counter += step; the limit is carried along unchanged.
static vt_op *make_loop(vt_func *main, const row *r) {
  vt_type type = {r->dtype, 0, NULL}, types[2] = {type, type};
  vt_value *start[2] = {constant(main, r->dtype, r->start), constant(main, r->dtype, r->limit)};
  vt_op *loop = vt_op_create(main, VT_OP_WHILE, &vt_loc_unknown, 2, start, 2, types, 2);
  vt_func *cond = loop->regions[0] = vt_func_create(main->module, "");
  vt_func *body = loop->regions[1] = vt_func_create(main->module, "");
  vt_value *in_cond[2] = {vt_func_add_param(cond, type), vt_func_add_param(cond, type)};
  vt_value *in_body[2] = {vt_func_add_param(body, type), vt_func_add_param(body, type)};
  if (r->limit_first) {
    vt_value *counter = in_cond[0];
    in_cond[0] = in_cond[1], in_cond[1] = counter;
  }
  vt_value *test =
      vt_build(cond, NULL, VT_OP_COMPARE, &vt_loc_unknown, (vt_type){VT_PRED, 0, NULL}, 2, in_cond);
  vt_op_set_i64(test->op, VT_ATTR_COMPARISON_DIRECTION, r->direction);
  vt_func_set_returns(cond, 1, &test);
  if (r->step) {
    vt_value *both[2] = {constant(body, r->dtype, r->step), in_body[0]};
    in_body[0] = vt_build(body, NULL, VT_OP_ADD, &vt_loc_unknown, type, 2, both);
  }
  vt_func_set_returns(body, 2, in_body);
  vt_op_append(main, loop);
  return loop;
}

static void counted_loops(void **state) {
  (void)state;
  static const row rows[] = {
      {VT_S32, 0, 1, VT_CMP_LT, 10, 10, false},
      {VT_S32, 0, 3, VT_CMP_LT, 10, 4, false}, // 0, 3, 6, 9
      {VT_S32, 0, 2, VT_CMP_LE, 10, 6, false},
      {VT_S32, 10, -1, VT_CMP_GT, 0, 10, false},
      {VT_S32, 9, -3, VT_CMP_GE, 0, 4, false},
      {VT_S32, 0, 5, VT_CMP_NE, 20, 4, false},
      {VT_S32, 0, 3, VT_CMP_NE, 20, UNKNOWN, false}, // steps over it
      {VT_S32, 7, 1, VT_CMP_EQ, 7, 1, false},
      {VT_S32, 7, 1, VT_CMP_EQ, 8, 0, false},
      {VT_S32, 5, 1, VT_CMP_LT, 5, 0, false}, // never runs
      {VT_S32, 5, 0, VT_CMP_LT, 5, 0, false},
      {VT_S32, 0, 0, VT_CMP_LT, 5, UNKNOWN, false},
      {VT_S32, 0, -1, VT_CMP_LT, 5, UNKNOWN, false},   // wraps
      {VT_S8, 0, 100, VT_CMP_LT, 127, UNKNOWN, false}, // 200 is not an s8
      {VT_U8, 0, 100, VT_CMP_LT, 127, 2, false},
      {VT_U32, 0, 1, VT_CMP_LT, 4000000000, 4000000000, false},
      {VT_S64, 0, 1, VT_CMP_LT, INT64_MAX, UNKNOWN, false}, // beyond our counting limit
      {VT_S64, 1, 2, VT_CMP_GT, 8, 4, true},                // 8 > counter
      {VT_S32, 0, 1, VT_CMP_LE, 3, 0, true},                // 3 <= 0 does not hold
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_module *module = vt_module_create();
    vt_func *main = vt_func_create(module, "main");
    int64_t trips = UNKNOWN, want = rows[i].want;
    if (!vt_loop_trips(NULL, make_loop(main, &rows[i]), &trips)) trips = UNKNOWN;
    if (trips != want)
      fail_msg("row %zu: %lld trips, not %lld", i, (long long)trips, (long long)want);
    vt_module_destroy(module);
  }
}

// The limit comes from outside the enclosing loop.
static void limits_from_outside(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *main = vt_func_create(module, "main");
  row r = {VT_S32, 0, 1, VT_CMP_LT, 6, 6, false};
  vt_op *outer = make_loop(main, &r);
  vt_func *body = outer->regions[1];
  vt_op *inner = make_loop(body, &r);
  inner->operands[1] = body->params[1]; // invariant: 6
  vt_scope scope = {NULL, outer, body};
  int64_t trips = 0;
  assert_true(vt_loop_trips(&scope, inner, &trips));
  assert_int_equal(trips, 6);
  inner->operands[1] = body->params[0]; // changes on every trip
  assert_false(vt_loop_trips(&scope, inner, &trips));
  vt_module_destroy(module);
}

// first + step * t of a sum or difference of the counter 5 + 2 t, a constant, and others.
static void integers_of_a_trip(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *main = vt_func_create(module, "main");
  row r = {VT_S32, 5, 2, VT_CMP_LT, 60, 28, false};
  vt_op *loop = make_loop(main, &r);
  vt_func *body = loop->regions[1];
  vt_value *i = body->params[0], *limit = body->params[1], *three = constant(body, VT_S32, 3);
  vt_value *back =
      vt_build(body, NULL, VT_OP_SUBTRACT, &vt_loc_unknown, i->type, 2, (vt_value *[]){limit, i});
  vt_value *shifted =
      vt_build(body, NULL, VT_OP_ADD, &vt_loc_unknown, i->type, 2, (vt_value *[]){back, three});
  vt_value *squared =
      vt_build(body, NULL, VT_OP_MULTIPLY, &vt_loc_unknown, i->type, 2, (vt_value *[]){i, i});
  const struct {
    vt_value *value;
    int64_t first, step;
  } rows[] = {{i, 5, 2}, {three, 3, 0}, {limit, 60, 0}, {back, 55, -2}, {shifted, 58, -2}};
  int64_t first, step;
  for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
    assert_true(vt_loop_steps(loop, rows[k].value, &first, &step));
    assert_int_equal(first, rows[k].first);
    assert_int_equal(step, rows[k].step);
  }
  assert_false(vt_loop_steps(loop, squared, &first, &step));
  vt_value *doubled = i; // 2^60 i, looked into no further than a few sums
  for (int k = 0; k < 60; k++)
    doubled = vt_build(body, NULL, VT_OP_ADD, &vt_loc_unknown, i->type, 2,
                       (vt_value *[]){doubled, doubled});
  assert_false(vt_loop_steps(loop, doubled, &first, &step));
  vt_module_destroy(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counted_loops),
                                     cmocka_unit_test(limits_from_outside),
                                     cmocka_unit_test(integers_of_a_trip)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
