// SPDX-License-Identifier: Apache-2.0
// plan_test.c - control flow, in-place updates, donated memory and manual regions of small
// programs.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "host/plan.h"
#include "ir/module.h"
#include "ir/sharding.h"

// Building ----------------------------------------------------------------------------------------
static vt_module *new_module(void) {
  vt_module *module = vt_module_create();
  module->main = vt_func_create(module, "main");
  vt_module_add_func(module, module->main);
  return module;
}

static vt_type vector(vt_module *module, vt_dtype dtype, int64_t size) {
  return vt_type_make(&module->arena, dtype, 1, &size);
}
static vt_type scalar(vt_dtype dtype) {
  return (vt_type){.dtype = dtype};
}

static vt_value *build(vt_func *func, vt_opcode code, vt_type type, vt_value *a, vt_value *b) {
  return vt_build(func, NULL, code, NULL, type, b ? 2 : 1, (vt_value *[]){a, b});
}
static vt_value *add(vt_func *func, vt_value *a, vt_value *b) {
  return build(func, VT_OP_ADD, a->type, a, b);
}

static vt_value *constant(vt_func *func, vt_type type, int32_t value) {
  vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
  int32_t *data = VT_NEW(&func->module->arena, int32_t);
  *data = value;
  if (type.dtype == VT_F32) {
    float number = (float)value;
    memcpy(data, &number, 4);
  }
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(func, NULL, NULL, literal);
}

static vt_value *less(vt_func *func, vt_value *a, vt_value *b) {
  vt_value *value = build(func, VT_OP_COMPARE, scalar(VT_PRED), a, b);
  vt_op_set_i64(value->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_LT);
  vt_op_set_i64(value->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  return value;
}

// `captures` values follow the op's own operands, in the op and as parameters of each region (made
// here).
static vt_op *control(vt_func *func, vt_opcode code, uint32_t own, uint32_t captures,
                      vt_value **operands, uint32_t result_count, const vt_type *types,
                      uint32_t regions, bool own_params) {
  vt_op *op =
      vt_op_create(func, code, NULL, own + captures, operands, result_count, types, regions);
  op->capture_count = captures;
  for (uint32_t r = 0; r < regions; r++) {
    op->regions[r] = vt_func_create(func->module, "");
    for (uint32_t i = own_params ? 0 : own; i < own + captures; i++)
      vt_func_add_param(op->regions[r], operands[i]->type);
  }
  vt_op_append(func, op);
  return op;
}

static void returns1(vt_func *func, vt_value *value) {
  vt_func_set_returns(func, 1, &value);
}

static void set_io(vt_module *module) {
  vt_func *func = module->main;
  func->param_info = VT_NEW_ARRAY(&module->arena, vt_io_info, func->param_count);
  func->return_info = VT_NEW_ARRAY(&module->arena, vt_io_info, func->return_count);
  for (uint32_t i = 0; i < func->param_count; i++) func->param_info[i].alias_output = -1;
}

static vt_program *compile_on(vt_module *module, int32_t devices) {
  vt_host_options options = {.device_count = devices, .evaluator_only = true};
  vt_program *program = NULL;
  vt_status st = vt_module_verify(module);
  if (st) fail_msg("%s", vt_status_message(st));
  st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s", vt_status_message(st));
  return program;
}

static void run_ok(vt_program *program, void *const *params, void *const *results) {
  vt_run run = {.params = params, .results = results};
  vt_status st = vt_program_run(program, &run);
  if (st) fail_msg("%s", vt_status_message(st));
}

// Tests -------------------------------------------------------------------------------------------
static void chain_runs_in_place(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_value *x = vt_func_add_param(func, vector(module, VT_F32, 100));
  vt_value *y = add(func, x, x);
  for (int i = 0; i < 5; i++) y = add(func, y, x);
  returns1(func, y);
  vt_program *program = compile_on(module, 1);
  assert_int_equal(vt_program_temp_bytes(program), 0);
  float *in = vt_host_alloc(400), *out = vt_host_alloc(400);
  for (int i = 0; i < 100; i++) in[i] = (float)i;
  run_ok(program, (void *[]){in}, (void *[]){out});
  for (int i = 0; i < 100; i++) assert_true(out[i] == 7 * (float)i);
  vt_host_free(in);
  vt_host_free(out);
  vt_program_destroy(program);
}

static vt_program *donating(bool read_late, bool donor) {
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_value *x = vt_func_add_param(func, vector(module, VT_F32, 100));
  vt_value *y = add(func, x, x);
  vt_value *z = read_late ? add(func, y, x) : add(func, y, y);
  vt_func_set_returns(func, 2, (vt_value *[]){y, z});
  set_io(module);
  func->param_info[0].alias_output = donor ? -1 : 0;
  func->param_info[0].donor = donor;
  return compile_on(module, 1);
}

static void donated_parameters_share_memory(void **state) {
  (void)state;
  vt_program *program = donating(false, false);
  assert_true(vt_program_may_alias(program, 0, 0));
  assert_false(vt_program_may_alias(program, 0, 1));
  float *x = vt_host_alloc(400), *z = vt_host_alloc(400);
  for (int i = 0; i < 100; i++) x[i] = (float)i;
  run_ok(program, (void *[]){x}, (void *[]){x, z});
  for (int i = 0; i < 100; i++) assert_true(x[i] == 2 * (float)i && z[i] == 4 * (float)i);
  vt_host_free(x);
  vt_host_free(z);
  vt_program_destroy(program);
  program = donating(true, false); // x is read after y is written
  assert_false(vt_program_may_alias(program, 0, 0));
  vt_program_destroy(program);
  program = donating(true, true); // but z may take its memory
  assert_false(vt_program_may_alias(program, 0, 0));
  assert_true(vt_program_may_alias(program, 0, 1));
  vt_program_destroy(program);
}

// p = p + g where g is a temporary that dies there: its memory must not keep p out of the donated
// one.
static void temporaries_leave_donations_alone(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_value *p = vt_func_add_param(func, vector(module, VT_F32, 100)),
           *x = vt_func_add_param(func, p->type);
  vt_value *g = add(func, add(func, x, p), x);
  returns1(func, add(func, g, p));
  set_io(module);
  func->param_info[0].alias_output = 0;
  vt_program *program = compile_on(module, 1);
  assert_true(vt_program_may_alias(program, 0, 0));
  float *memory = vt_host_alloc(400), *in = vt_host_alloc(400);
  for (int i = 0; i < 100; i++) memory[i] = (float)i, in[i] = 1;
  run_ok(program, (void *[]){memory, in}, (void *[]){memory});
  for (int i = 0; i < 100; i++) assert_true(memory[i] == (float)(2 * i + 2));
  vt_host_free(memory);
  vt_host_free(in);
  vt_program_destroy(program);
}

static void returned_parameters_and_constants_are_copied(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_value *x = vt_func_add_param(func, vector(module, VT_F32, 4));
  vt_value *c = constant(func, scalar(VT_S32), 42);
  vt_value *y = add(func, x, x);
  vt_func_set_returns(func, 5, (vt_value *[]){x, c, y, y, x});
  vt_program *program = compile_on(module, 1);
  float in[80] = {1, 2, 3, 4};
  float out[5][80] __attribute__((aligned(64)));
  run_ok(program, (void *[]){in}, (void *[]){out[0], out[1], out[2], out[3], out[4]});
  assert_memory_equal(out[0], in, 16);
  assert_memory_equal(out[4], in, 16);
  int32_t number;
  memcpy(&number, out[1], sizeof number);
  assert_int_equal(number, 42);
  assert_true(out[2][3] == 8 && out[3][3] == 8);
  vt_program_destroy(program);
}

// while (i < n) { i += 1; a, b = b, a + b; ys[i] = a; } with n captured and an invariant carried
static void loops_keep_state(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_type s32 = scalar(VT_S32), ys_type = vector(module, VT_S32, 16),
          one = vector(module, VT_S32, 1);
  vt_value *n = vt_func_add_param(func, s32);
  vt_value *zero = constant(func, s32, 0), *first = constant(func, s32, 1),
           *ys = constant(func, ys_type, 7);
  vt_value *operands[] = {zero, zero, first, ys, n, n};
  vt_type types[] = {s32, s32, s32, ys_type, s32};
  vt_op *loop = control(func, VT_OP_WHILE, 5, 1, operands, 5, types, 2, true);
  vt_func *cond = loop->regions[0], *body = loop->regions[1];
  returns1(cond, less(cond, cond->params[0], cond->params[5]));
  vt_value *i = body->params[0], *a = body->params[1], *b = body->params[2];
  vt_value *row = build(body, VT_OP_RESHAPE, one, a, NULL);
  vt_value *updated = vt_build(body, NULL, VT_OP_DYNAMIC_UPDATE_SLICE, NULL, ys_type, 3,
                               (vt_value *[]){body->params[3], row, i});
  vt_value *next = add(body, i, constant(body, s32, 1));
  vt_func_set_returns(body, 5, (vt_value *[]){next, b, add(body, a, b), updated, body->params[4]});
  vt_func_set_returns(func, 5,
                      (vt_value *[]){&loop->results[0], &loop->results[1], &loop->results[2],
                                     &loop->results[3], &loop->results[4]});
  vt_program *program = compile_on(module, 1);
  int32_t results[5][80] __attribute__((aligned(64)));
  for (int32_t count = 0; count <= 11; count++) {
    int32_t in[64] __attribute__((aligned(64))) = {count};
    run_ok(program, (void *[]){in},
           (void *[]){results[0], results[1], results[2], results[3], results[4]});
    int32_t fa = 0, fb = 1;
    for (int32_t k = 0; k < 16; k++) {
      assert_int_equal(results[3][k], k < count ? fa : 7);
      if (k >= count) continue;
      int32_t sum = fa + fb;
      fa = fb;
      fb = sum;
    }
    assert_int_equal(results[0][0], count);
    assert_int_equal(results[1][0], fa);
    assert_int_equal(results[2][0], fb);
    assert_int_equal(results[4][0], count);
  }
  const vt_plan *body_plan = program->plan_order.data[1];
  assert_ptr_equal(body_plan->func, body);
  assert_true(body_plan->in_place_result[3]);  // the stacked rows are updated in place
  assert_true(body_plan->in_place_result[1]);  // b is copied over a when a is no longer read
  assert_false(body_plan->in_place_result[2]); // but the sum is written first
  assert_true(body_plan->invariant[4]);
  vt_program_destroy(program);
}

static void branches_run(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_type s32 = scalar(VT_S32);
  vt_value *which = vt_func_add_param(func, s32), *x = vt_func_add_param(func, s32);
  vt_op *pick = control(func, VT_OP_CASE, 1, 1, (vt_value *[]){which, x}, 1, &s32, 3, false);
  for (int32_t b = 0; b < 3; b++) {
    vt_func *branch = pick->regions[b];
    returns1(branch, b == 2 ? branch->params[0]
                            : add(branch, branch->params[0], constant(branch, s32, 10 * b)));
  }
  vt_value *small = less(func, which, constant(func, s32, 1));
  vt_op *either =
      control(func, VT_OP_IF, 1, 1, (vt_value *[]){small, &pick->results[0]}, 1, &s32, 2, false);
  returns1(either->regions[0],
           add(either->regions[0], either->regions[0]->params[0], either->regions[0]->params[0]));
  returns1(either->regions[1], either->regions[1]->params[0]);
  returns1(func, &either->results[0]);
  vt_program *program = compile_on(module, 1);
  const int32_t rows[][2] = {{0, 10}, {1, 15}, {2, 5}, {3, 5}, {-1, 10}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int32_t index[64] = {rows[i][0]}, value[64] = {5}, out[64];
    run_ok(program, (void *[]){index, value}, (void *[]){out});
    assert_int_equal(out[0], rows[i][1]);
  }
  vt_program_destroy(program);
}

// A loop over cond(i < 2, update row i of ys, leave ys): no iteration copies ys.
static void branches_hand_through(void **state) {
  (void)state;
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_type s32 = scalar(VT_S32), type = vector(module, VT_S32, 64), one = vector(module, VT_S32, 1);
  vt_value *n = vt_func_add_param(func, s32);
  vt_value *operands[] = {constant(func, s32, 0), constant(func, type, 7), n};
  vt_op *loop = control(func, VT_OP_WHILE, 2, 1, operands, 2, (vt_type[]){s32, type}, 2, true);
  vt_func *cond = loop->regions[0], *body = loop->regions[1];
  returns1(cond, less(cond, cond->params[0], cond->params[2]));
  vt_value *i = body->params[0];
  vt_value *early = less(body, i, constant(body, s32, 2));
  vt_op *either =
      control(body, VT_OP_IF, 1, 2, (vt_value *[]){early, i, body->params[1]}, 1, &type, 2, false);
  vt_func *update = either->regions[0];
  vt_value *row = build(update, VT_OP_RESHAPE, one, update->params[0], NULL);
  returns1(update, vt_build(update, NULL, VT_OP_DYNAMIC_UPDATE_SLICE, NULL, type, 3,
                            (vt_value *[]){update->params[1], row, update->params[0]}));
  returns1(either->regions[1], either->regions[1]->params[1]);
  vt_func_set_returns(body, 2,
                      (vt_value *[]){add(body, i, constant(body, s32, 1)), &either->results[0]});
  vt_func_set_returns(func, 2, (vt_value *[]){&loop->results[0], &loop->results[1]});
  vt_program *program = compile_on(module, 1);
  int32_t in[64] __attribute__((aligned(64))) = {5}, out[2][96] __attribute__((aligned(64)));
  run_ok(program, (void *[]){in}, (void *[]){out[0], out[1]});
  assert_int_equal(out[0][0], 5);
  for (int32_t k = 0; k < 64; k++) assert_int_equal(out[1][k], k < 2 ? k : 7);
  const vt_plan *body_plan = NULL;
  for (size_t p = 0; p < program->plan_order.size; p++)
    if (program->plan_order.data[p]->func == body) body_plan = program->plan_order.data[p];
  assert_true(body_plan->in_place_result[1]);
  vt_program_destroy(program);
}

enum { VALUES = 4, ITEMS = 3 };

// Branches that return their operands unchanged, reordered, twice or changed, followed by ops that
// may still read the operands; checked against plain C.
static void random_branches(void **state) {
  (void)state;
  uint32_t random = 1;
  for (int round = 0; round < 400; round++) {
    vt_module *module = new_module();
    vt_func *func = module->main;
    vt_type type = vector(module, VT_S32, ITEMS);
    vt_value *operands[1 + VALUES] = {vt_func_add_param(func, scalar(VT_PRED))};
    int32_t x[VALUES], want[2][2 * VALUES] = {{0}}, picks[2][VALUES][2];
    vt_type types[VALUES];
    for (int32_t v = 0; v < VALUES; v++) { // computed by the program, so that they may die
      operands[1 + v] = add(func, constant(func, type, v + 1), constant(func, type, round));
      x[v] = v + 1 + round;
      types[v] = type;
    }
    vt_op *op = control(func, VT_OP_IF, 1, VALUES, operands, VALUES, types, 2, false);
    for (int b = 0; b < 2; b++) {
      vt_value *returned[VALUES];
      for (int r = 0; r < VALUES; r++) {
        for (int k = 0; k < 2; k++)
          picks[b][r][k] = (int32_t)((random = random * 1664525 + 1013904223) >> 20) % (2 * VALUES);
        vt_value *const *params = op->regions[b]->params;
        int32_t i = picks[b][r][0], j = picks[b][r][1];
        if (i >= VALUES) i = r; // mostly unchanged
        returned[r] = j >= VALUES ? params[i] : add(op->regions[b], params[i], params[j]);
        want[b][r] = j >= VALUES ? x[i] : x[i] + x[j];
      }
      vt_func_set_returns(op->regions[b], VALUES, returned);
    }
    vt_value *results[2 * VALUES];
    for (int r = 0; r < VALUES; r++) {
      bool later = (random = random * 1664525 + 1013904223) >> 31;
      vt_value *other = later ? operands[1 + r] : &op->results[0];
      results[r] = &op->results[r];
      results[VALUES + r] = add(func, &op->results[r], other);
      for (int b = 0; b < 2; b++) want[b][VALUES + r] = want[b][r] + (later ? x[r] : want[b][0]);
    }
    vt_func_set_returns(func, 2 * VALUES, results);
    vt_program *program = compile_on(module, 1);
    for (int b = 0; b < 2; b++) {
      char pred[256] = {b == 0};
      int32_t out[2 * VALUES][64] __attribute__((aligned(64)));
      void *places[2 * VALUES];
      for (int r = 0; r < 2 * VALUES; r++) places[r] = out[r];
      run_ok(program, (void *[]){pred}, places);
      for (int r = 0; r < 2 * VALUES; r++)
        for (int i = 0; i < ITEMS; i++) assert_int_equal(out[r][i], want[b][r]);
    }
    vt_program_destroy(program);
  }
}

static const vt_sharding *on_x(vt_module *module, const vt_mesh *mesh, bool sharded) {
  vt_arena *arena = &module->arena;
  vt_axis_ref *axis = VT_NEW(arena, vt_axis_ref);
  vt_dim_sharding *dim = VT_NEW(arena, vt_dim_sharding);
  vt_sharding *sharding = VT_NEW(arena, vt_sharding);
  *axis = (vt_axis_ref){.pre_size = 1, .size = mesh->axes[0].size};
  *dim = (vt_dim_sharding){.axis_count = sharded, .axes = axis, .closed = true};
  *sharding = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = 1, .dims = dim};
  return sharding;
}

static vt_op *all_reduce(vt_func *func, vt_value *value, int64_t devices) {
  vt_arena *arena = &func->module->arena;
  vt_op *op = vt_op_create(func, VT_OP_ALL_REDUCE, NULL, 1, &value, 1, &value->type, 1);
  vt_func *sum = op->regions[0] = vt_func_create(func->module, "");
  vt_value *a = vt_func_add_param(sum, scalar(value->type.dtype)),
           *b = vt_func_add_param(sum, a->type);
  returns1(sum, add(sum, a, b));
  int64_t *ids = VT_NEW_ARRAY(arena, int64_t, devices), dims[2] = {1, devices};
  for (int64_t d = 0; d < devices; d++) ids[d] = d;
  vt_literal *groups = VT_NEW(arena, vt_literal);
  *groups = (vt_literal){vt_type_make(arena, VT_S64, 2, dims), ids, false};
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_REPLICA_GROUPS, .literal = groups});
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_append(func, op);
  return op;
}

// y = x * 2 per device, s = sum over devices, with x sharded over 4 devices; `diverging`: the sum
// is inside a branch that device 0 does not take.
static vt_program *manual_program(int64_t per_device, bool diverging) {
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_arena *arena = &module->arena;
  module->num_partitions = 4;
  vt_mesh *mesh = VT_NEW(arena, vt_mesh);
  vt_mesh_axis *axis = VT_NEW(arena, vt_mesh_axis);
  *axis = (vt_mesh_axis){"x", 4};
  *mesh = (vt_mesh){.name = "mesh", .axis_count = 1, .axes = axis};
  vt_value *x = vt_func_add_param(func, vector(module, VT_F32, 4 * per_device));
  vt_type types[] = {x->type, vector(module, VT_F32, per_device)};
  vt_op *op = vt_op_create(func, VT_OP_MANUAL_COMPUTATION, NULL, 1, &x, 2, types, 1);
  vt_func *body = op->regions[0] = vt_func_create(module, "");
  vt_value *local = vt_func_add_param(body, types[1]);
  vt_value *twice = add(body, local, local), *sum;
  if (diverging) {
    vt_value *id = vt_build(body, NULL, VT_OP_PARTITION_ID, NULL, scalar(VT_U32), 0, NULL);
    vt_value *number = build(body, VT_OP_CONVERT, scalar(VT_S32), id, NULL);
    vt_value *first = less(body, number, constant(body, scalar(VT_S32), 1));
    vt_op *branch =
        control(body, VT_OP_IF, 1, 1, (vt_value *[]){first, local}, 1, &types[1], 2, false);
    returns1(branch->regions[0], branch->regions[0]->params[0]);
    returns1(branch->regions[1],
             &all_reduce(branch->regions[1], branch->regions[1]->params[0], 4)->results[0]);
    sum = &branch->results[0];
  } else {
    sum = &all_reduce(body, local, 4)->results[0];
  }
  vt_func_set_returns(body, 2, (vt_value *[]){twice, sum});
  const vt_sharding **in = VT_NEW_ARRAY(arena, const vt_sharding *, 1);
  const vt_sharding **out = VT_NEW_ARRAY(arena, const vt_sharding *, 2);
  in[0] = out[0] = on_x(module, mesh, true);
  out[1] = on_x(module, mesh, false);
  vt_string *axes = VT_NEW(arena, vt_string);
  *axes = (vt_string){"x", 1};
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = 1, .shardings = in});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = 2, .shardings = out});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = 1, .strings = axes});
  vt_op_append(func, op);
  vt_func_set_returns(func, 2, (vt_value *[]){&op->results[0], &op->results[1]});
  return compile_on(module, 4);
}

static void manual_regions_run_in_lockstep(void **state) {
  (void)state;
  for (int64_t n = 3; n <= 64; n += 61) { // copied tiles, and tiles in place
    vt_program *program = manual_program(n, false);
    float *x = vt_host_alloc(16 * n), *y = vt_host_alloc(16 * n), *sum = vt_host_alloc(4 * n);
    for (int64_t i = 0; i < 4 * n; i++) x[i] = (float)i;
    run_ok(program, (void *[]){x}, (void *[]){y, sum});
    for (int64_t i = 0; i < 4 * n; i++) assert_true(y[i] == 2 * (float)i);
    for (int64_t i = 0; i < n; i++) assert_true(sum[i] == (float)(4 * i + 6 * n));
    vt_host_free(x);
    vt_host_free(y);
    vt_host_free(sum);
    vt_program_destroy(program);
  }
}

static void diverging_collectives_are_an_error(void **state) {
  (void)state;
  vt_program *program = manual_program(8, true);
  float *x = vt_host_alloc(128), *y = vt_host_alloc(128), *sum = vt_host_alloc(32);
  memset(x, 0, 128);
  vt_run run = {.params = (void *[]){x}, .results = (void *[]){y, sum}};
  vt_status st = vt_program_run(program, &run);
  assert_int_equal(vt_status_code(st), VT_FAILED_PRECONDITION);
  assert_non_null(strstr(vt_status_message(st), "if"));
  vt_status_free(st);
  vt_host_free(x);
  vt_host_free(y);
  vt_host_free(sum);
  vt_program_destroy(program);
}

// Gives each its own block back.
typedef struct mirror {
  uint8_t block[1 << 12];
} mirror;

static vt_status meet_mirror(void *user, const vt_meet *meet) {
  mirror *m = user;
  size_t at = 0;
  for (uint32_t s = 0; s < meet->spans; at += meet->give[s++].size)
    memcpy(m->block + at, meet->give[s].data, meet->give[s].size);
  assert_int_equal(at, meet->take[0]);
  meet->taken[0] = m->block;
  return VT_OK;
}

// s = sum of x over two processes, p = s + x, q = (y + y) + y: what does not need the sum is done
// between its start and its end, though it comes later in the program.
static void collectives_go_on_beside_other_steps(void **state) {
  (void)state;
  enum { N = 100 };
  vt_module *module = new_module();
  vt_func *func = module->main;
  vt_program *program;
  module->num_partitions = 2;
  vt_value *x = vt_func_add_param(func, vector(module, VT_F32, N));
  vt_value *y = vt_func_add_param(func, vector(module, VT_F32, N));
  vt_value *twice = add(func, x, x);
  vt_value *p = add(func, &all_reduce(func, twice, 2)->results[0], twice);
  vt_value *q = add(func, add(func, y, y), y);
  vt_func_set_returns(func, 2, (vt_value *[]){p, q});
  set_io(module);
  vt_host_options options = {.device_count = 2, .only = 1, .compile_all = true};
  assert_null(vt_host_compile(module, &options, &program));
  const vt_plan *plan = program->plan;
  const vt_opcode codes[] = {VT_OP_ADD, VT_OP_ALL_REDUCE, VT_OP_ADD, VT_OP_ALL_REDUCE, VT_OP_ADD};
  assert_int_equal(plan->step_count, 5);
  for (uint32_t s = 0; s < 5; s++) assert_int_equal(plan->steps[s].op->code, codes[s]);
  assert_ptr_equal(plan->steps[2].op, q->op);
  mirror m;
  vt_queue queue;
  vt_queue_init(&queue);
  vt_meetings meetings = {.user = &m, .meet = meet_mirror, .queue = &queue, .far = true};
  float *in[2], *out[2];
  for (int i = 0; i < 2; i++) in[i] = vt_host_alloc(4 * N), out[i] = vt_host_alloc(4 * N);
  for (int i = 0; i < N; i++) in[0][i] = (float)i, in[1][i] = (float)(i * i);
  for (int times = 0; times < 100; times++) {
    vt_run run = {.params = (void *[]){in[0], in[1]},
                  .results = (void *[]){out[0], out[1]},
                  .meetings = &meetings};
    assert_null(vt_program_run(program, &run));
    for (int i = 0; i < N; i++) {
      assert_true(out[0][i] == 6 * in[0][i]);
      assert_true(out[1][i] == 3 * in[1][i]);
    }
  }
  vt_queue_fini(&queue);
  for (int i = 0; i < 2; i++) vt_host_free(in[i]), vt_host_free(out[i]);
  vt_program_destroy(program);
}

// The team's threads take pieces of complex numbers, of which the last is short; a predicate of one
// element goes with all of them.
static void complex_elements_are_shared(void **state) {
  (void)state;
  enum { COUNT = 40001 };
  float *in[2], *out[2];
  for (int i = 0; i < 2; i++) in[i] = vt_host_alloc(8 * COUNT), out[i] = vt_host_alloc(4 * COUNT);
  for (int i = 0; i < 2 * COUNT; i++) in[0][i] = (float)(i % 97), in[1][i] = (float)(i % 89) - 44;
  for (int alone = 0; alone < 2; alone++) {
    vt_module *module = new_module();
    vt_func *func = module->main;
    vt_value *which = vt_func_add_param(func, scalar(VT_PRED));
    vt_value *x = vt_func_add_param(func, vector(module, VT_C64, COUNT));
    vt_value *y = vt_func_add_param(func, vector(module, VT_C64, COUNT));
    vt_value *choice[] = {which, build(func, VT_OP_MULTIPLY, x->type, x, y), x};
    vt_value *chosen = vt_build(func, NULL, VT_OP_SELECT, NULL, x->type, 3, choice);
    returns1(func, build(func, VT_OP_ABS, vector(module, VT_F32, COUNT), chosen, NULL));
    vt_host_options options = {.device_count = 1, .evaluator_only = alone, .compile_all = !alone};
    vt_program *program = NULL;
    vt_status st = vt_host_compile(module, &options, &program);
    if (st) fail_msg("%s", vt_status_message(st));
    run_ok(program, (void *[]){&(uint8_t){1}, in[0], in[1]}, (void *[]){out[alone]});
    vt_program_destroy(program);
  }
  assert_memory_equal(out[0], out[1], 4 * COUNT);
  for (int i = 0; i < 2; i++) vt_host_free(in[i]), vt_host_free(out[i]);
}

static void pool_reuses_blocks(void **state) {
  (void)state;
  for (int64_t bytes = 0; bytes < (int64_t)10 << 20; bytes = bytes * 3 + 1) {
    char *p = vt_host_alloc(bytes);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    memset(p, 1, (size_t)bytes + 128);
    vt_host_free(p);
  }
  vt_host_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chain_runs_in_place),
      cmocka_unit_test(donated_parameters_share_memory),
      cmocka_unit_test(temporaries_leave_donations_alone),
      cmocka_unit_test(returned_parameters_and_constants_are_copied),
      cmocka_unit_test(loops_keep_state),
      cmocka_unit_test(branches_run),
      cmocka_unit_test(branches_hand_through),
      cmocka_unit_test(random_branches),
      cmocka_unit_test(manual_regions_run_in_lockstep),
      cmocka_unit_test(diverging_collectives_are_an_error),
      cmocka_unit_test(collectives_go_on_beside_other_steps),
      cmocka_unit_test(complex_elements_are_shared),
      cmocka_unit_test(pool_reuses_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
