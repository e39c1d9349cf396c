// SPDX-License-Identifier: Apache-2.0
// control_test.c - functions, control flow, effects, collectives over devices, unsupported ops.
#include "eval/eval_support.h"
#include "ir/sharding.h"

static const vt_type f32 = {VT_F32, 0, NULL}, s32 = {VT_S32, 0, NULL};

static vt_value *constant_s32(vt_func *f, const int32_t *value) {
  vt_literal *l = VT_NEW(&f->module->arena, vt_literal);
  *l = (vt_literal){s32, value, false};
  return vt_build_constant(f, NULL, &vt_loc_unknown, l);
}
static vt_value *binary(vt_func *f, vt_opcode code, vt_value *a, vt_value *b) {
  return vt_build(f, NULL, code, &vt_loc_unknown, a->type, 2, (vt_value *[]){a, b});
}

// while (i < limit) { i += step; x += y; } with y carried untouched and step captured.
static void loops(void **state) {
  (void)state;
  static const int32_t limits[] = {0, 1, 1000};
  for (int t = 0; t < 3; t++) {
    bench b = bench_new();
    int64_t four = 4;
    operand(&b, VT_S32, SCALAR, N(0));
    operand(&b, VT_F32, 1, &four, N(0.0, 0.0, 0.0, 0.0));
    operand(&b, VT_F32, 1, &four, N(1, 2, 3, 4));
    operand(&b, VT_S32, SCALAR, N(1));
    vt_type types[3] = {b.in[0].type, b.in[1].type, b.in[2].type};
    vt_op *op = make_op(&b, VT_OP_WHILE, 3, types, 2);
    op->capture_count = 1;
    for (int r = 0; r < 2; r++) {
      vt_func *f = op->regions[r] = vt_func_create(b.module, "");
      for (int i = 0; i < 4; i++) vt_func_add_param(f, b.in[i].type);
    }
    vt_func *cond = op->regions[0], *body = op->regions[1];
    vt_value *go = compare_in(cond, VT_CMP_LT, VT_CMPTYPE_SIGNED, cond->params[0],
                              constant_s32(cond, &limits[t]));
    vt_func_set_returns(cond, 1, &go);
    vt_value *out[3] = {binary(body, VT_OP_ADD, body->params[0], body->params[3]),
                        binary(body, VT_OP_ADD, body->params[1], body->params[2]), body->params[2]};
    vt_func_set_returns(body, 3, out);
    run_op(&b);
    double n = limits[t];
    expect_numbers(b.out[0], N(n), 0, "counter");
    expect_numbers(b.out[1], N(n, 2 * n, 3 * n, 4 * n), 0, "sum");
    expect_numbers(b.out[2], N(1, 2, 3, 4), 0, "carried");
    expect_numbers(b.in[1], N(0.0, 0.0, 0.0, 0.0), 0, "the caller's operand is not written");
    bench_free(&b);
  }
}

static void branches(void **state) {
  (void)state;
  static const int32_t values[3] = {10, 20, 30};
  static const struct {
    double index, want;
  } rows[] = {{0, 10}, {1, 20}, {2, 30}, {3, 30}, {-1, 30}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_S32, SCALAR, (numbers){1, &rows[i].index});
    vt_op *op = make_one(&b, VT_OP_CASE, VT_S32, SCALAR, 3);
    for (int r = 0; r < 3; r++) {
      op->regions[r] = vt_func_create(b.module, "");
      vt_value *c = constant_s32(op->regions[r], &values[r]);
      vt_func_set_returns(op->regions[r], 1, &c);
    }
    run_op(&b);
    expect_numbers(b.out[0], N(rows[i].want), 0, "case");
    bench_free(&b);
  }
}

// A recursive function is rejected instead of overflowing the stack.
static void recursion_is_refused(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_S32, SCALAR, N(1));
  vt_op *op = make_one(&b, VT_OP_CALL, VT_S32, SCALAR, 0);
  vt_func **callee = VT_NEW_ARRAY(&b.module->arena, vt_func *, 1);
  callee[0] = b.func;
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = callee});
  assert_false(vt_eval_supports(op));
  vt_status st = vt_eval_func(b.func, &b.env, b.in, b.out);
  assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
  vt_status_free(st);
  bench_free(&b);
}

// Temporaries may be overwritten in place; arguments and constants may not.
static void values_are_not_overwritten(void **state) {
  (void)state;
  static const float ones[2] = {1, 1};
  static const int64_t two = 2;
  static const vt_literal literal = {{VT_F32, 1, &two}, ones, false};
  bench b = bench_new();
  operand(&b, VT_F32, 1, &two, N(5, 6));
  vt_value *x = b.func->params[0], *c = vt_build_constant(b.func, NULL, &vt_loc_unknown, &literal);
  vt_value *a = binary(b.func, VT_OP_ADD, x, c), *d = binary(b.func, VT_OP_MULTIPLY, a, a);
  vt_value *e = binary(b.func, VT_OP_SUBTRACT, d, c), *returns[3] = {e, x, c};
  vt_func_set_returns(b.func, 3, returns);
  for (int i = 0; i < 3; i++) b.out[i] = (vt_tensor){x->type, tensor_memory(x->type)};
  b.out_count = 3;
  for (int again = 0; again < 2; again++) {
    expect_ok(vt_eval_func(b.func, &b.env, b.in, b.out));
    expect_numbers(b.out[0], N(35, 48), 0, "result");
    expect_numbers(b.out[1], N(5, 6), 0, "argument");
    expect_numbers(b.out[2], N(1, 1), 0, "constant");
  }
  bench_free(&b);
}

static void set_groups(vt_op *op, vt_attr_key key, int64_t rows, int64_t width,
                       const int64_t *ids) {
  vt_arena *arena = &op->func->module->arena;
  vt_literal *l = VT_NEW(arena, vt_literal);
  int64_t dims[2] = {rows, width};
  *l = (vt_literal){vt_type_make(arena, VT_S64, 2, dims), ids, false};
  vt_op_set_attr(op, (vt_attr){.key = key, .literal = l});
}

// Four devices, each with two numbers; want[device][...].
static void collectives(void **state) {
  (void)state;
  static const int64_t rows2[] = {0, 1, 2, 3}, crossed[] = {1, 0, 3, 2};
  static const int64_t pairs[] = {0, 1, 1, 2};
  static const struct {
    vt_opcode code;
    int64_t rows, width, out_size;
    const int64_t *ids;
    double want[4][4];
  } cases[] = {
      {VT_OP_ALL_REDUCE, 2, 2, 2, rows2, {{2, 22}, {2, 22}, {10, 62}, {10, 62}}},
      {VT_OP_ALL_GATHER,
       2,
       2,
       4,
       crossed,
       {{2, 11, 0, 11}, {2, 11, 0, 11}, {6, 31, 4, 31}, {6, 31, 4, 31}}},
      {VT_OP_REDUCE_SCATTER, 2, 2, 1, rows2, {{2}, {22}, {10}, {62}}},
      {VT_OP_ALL_TO_ALL, 2, 2, 2, rows2, {{0, 2}, {11, 11}, {4, 6}, {31, 31}}},
      {VT_OP_COLLECTIVE_PERMUTE, 0, 0, 2, pairs, {{0, 0}, {0, 11}, {2, 11}, {0, 0}}},
      {VT_OP_COLLECTIVE_BROADCAST, 1, 2, 2, crossed, {{2, 11}, {2, 11}, {0, 0}, {0, 0}}},
  };
  static const double data[4][2] = {{0, 11}, {2, 11}, {4, 31}, {6, 31}};
  for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
    bench b = bench_new();
    int64_t two = 2;
    operand(&b, VT_F32, 1, &two, N(0.0, 0.0));
    vt_op *op =
        make_one(&b, cases[t].code, VT_F32, 1, &cases[t].out_size,
                 cases[t].code == VT_OP_ALL_REDUCE || cases[t].code == VT_OP_REDUCE_SCATTER);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
    vt_op_set_i64(op, VT_ATTR_ALL_GATHER_DIM, 0);
    vt_op_set_i64(op, VT_ATTR_SCATTER_DIMENSION, 0);
    vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, 0);
    vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, 0);
    vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, 2);
    if (cases[t].rows)
      set_groups(op, VT_ATTR_REPLICA_GROUPS, cases[t].rows, cases[t].width, cases[t].ids);
    else
      set_groups(op, VT_ATTR_SOURCE_TARGET_PAIRS, 2, 2, cases[t].ids);
    if (op->region_count) op->regions[0] = binary_region(&b, VT_OP_ADD, VT_F32);
    b.module->num_partitions = 4;
    b.module->num_replicas = 1;
    vt_tensor in[4], out[4], *outs[4];
    const vt_tensor *ins[4];
    for (int d = 0; d < 4; d++) {
      in[d] = (vt_tensor){b.in[0].type, tensor_memory(b.in[0].type)};
      fill(in[d], (numbers){2, data[d]});
      out[d] = (vt_tensor){b.out[0].type, tensor_memory(b.out[0].type)};
      ins[d] = &in[d];
      outs[d] = &out[d];
    }
    expect_ok(vt_eval_collective(op, 4, ins, outs));
    for (int d = 0; d < 4; d++)
      expect_numbers(out[d], (numbers){cases[t].out_size, cases[t].want[d]}, 0,
                     vt_op_short_name(cases[t].code));
    // The same function in lockstep.
    expect_ok(vt_eval_lockstep(b.func, &b.env, 4, ins, outs));
    for (int d = 0; d < 4; d++) {
      expect_numbers(out[d], (numbers){cases[t].out_size, cases[t].want[d]}, 0, "lockstep");
      free(in[d].data);
      free(out[d].data);
    }
    bench_free(&b);
  }
}

typedef struct host {
  double sent, given;
  int64_t channel;
} host;
static vt_status host_send(void *user, int32_t device, int64_t channel, vt_type type,
                           const void *data) {
  host *h = user;
  h->sent = vt_number_load(type.dtype, data, 0) + device;
  h->channel = channel;
  return VT_OK;
}
static vt_status host_recv(void *user, int32_t device, int64_t channel, vt_type type, void *data) {
  host *h = user;
  h->channel = channel + device;
  vt_number_store(type.dtype, data, 0, h->given);
  return VT_OK;
}

static void transfers(void **state) {
  (void)state;
  host h = {.given = 9};
  vt_host_transfer transfer = {&h, host_send, host_recv};
  bench b = bench_new();
  operand(&b, VT_F32, SCALAR, N(4));
  vt_op *op = make_one(&b, VT_OP_SEND, VT_TOKEN, SCALAR, 0);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 7);
  vt_status st = vt_eval_op(op, &b.env, b.in, b.out);
  assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
  vt_status_free(st);
  b.env = (vt_eval_env){.partition = 2, .partition_count = 4, .transfer = &transfer};
  expect_ok(vt_eval_op(op, &b.env, b.in, b.out));
  assert_true(h.sent == 6 && h.channel == 7);
  bench_free(&b);
  b = bench_new();
  b.env.transfer = &transfer;
  vt_type types[2] = {f32, {VT_TOKEN, 0, NULL}};
  op = make_op(&b, VT_OP_RECV, 2, types, 0);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 8);
  expect_ok(vt_eval_op(op, &b.env, b.in, b.out));
  assert_true(vt_number_load(VT_F32, b.out[0].data, 0) == 9 && h.channel == 8);
  bench_free(&b);
}

static void refusals_name_the_op(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, SCALAR, N(4));
  vt_op *op = make_one(&b, VT_OP_CUSTOM_CALL, VT_F32, SCALAR, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "nobody_knows");
  assert_false(vt_eval_supports(op));
  vt_status st = vt_eval_op(op, &b.env, b.in, b.out);
  assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
  assert_non_null(strstr(vt_status_message(st), "nobody_knows"));
  vt_status_free(st);
  bench_free(&b);
  b = bench_new();
  operand(&b, VT_S32, SCALAR, N(4));
  op = make_one(&b, VT_OP_CBRT, VT_S32, SCALAR, 0);
  assert_false(vt_eval_supports(op));
  st = vt_eval_op(op, &b.env, b.in, b.out);
  assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
  assert_non_null(strstr(vt_status_message(st), "cbrt"));
  vt_status_free(st);
  bench_free(&b);
}

// Qr and its reflectors multiply back to the matrix; eigenvalues and LU of a known matrix.
static void factorisations(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2, 2), N(3, 1, 4, 2));
  vt_type types[2] = {result_type(&b, VT_F32, DIMS(2, 2)), result_type(&b, VT_F32, DIMS(2))};
  vt_op *op = make_op(&b, VT_OP_CUSTOM_CALL, 2, types, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "Qr");
  run_op(&b);
  // -norm of the first column
  assert_true(fabs(vt_number_load(VT_F32, b.out[0].data, 0) + 5) < 1e-5);
  bench_free(&b);
  b = bench_new();
  operand(&b, VT_F64, DIMS(2, 2), N(2, 1, 1, 2));
  vt_type eigen[2] = {result_type(&b, VT_F64, DIMS(2, 2)), result_type(&b, VT_F64, DIMS(2))};
  op = make_op(&b, VT_OP_CUSTOM_CALL, 2, eigen, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "Eigh");
  vt_op_set_string(op, VT_ATTR_BACKEND_CONFIG, "1,1,100,1e-6");
  run_op(&b);
  expect_numbers(b.out[1], N(1, 3), 8, "eigenvalues");
  bench_free(&b);
  // Unsorted: a block of rows 0 and 2 with zero padding in row 1; the other triangle is not
  // read.
  b = bench_new();
  operand(&b, VT_F64, DIMS(3, 3), N(2, 9, 9, 0, 0, 9, 1, 0, 2));
  vt_type blocks[2] = {result_type(&b, VT_F64, DIMS(3, 3)), result_type(&b, VT_F64, DIMS(3))};
  op = make_op(&b, VT_OP_CUSTOM_CALL, 2, blocks, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "Eigh");
  vt_op_set_string(op, VT_ATTR_BACKEND_CONFIG, "1,0,100,1e-6");
  run_op(&b);
  expect_numbers(b.out[1], N(1, 0, 3), 8, "eigenvalues in their places");
  for (int i = 0; i < 9; i++) {
    double want = i == 4 ? 1 : i % 2 ? 0 : sqrt(0.5);
    assert_true(fabs(fabs(vt_number_load(VT_F64, b.out[0].data, i)) - want) < 1e-12);
  }
  bench_free(&b);
  b = bench_new();
  operand(&b, VT_F64, DIMS(2, 2), N(1, 2, 4, 2));
  vt_type lu[3] = {result_type(&b, VT_F64, DIMS(2, 2)), result_type(&b, VT_S32, DIMS(2)),
                   result_type(&b, VT_S32, DIMS(2))};
  op = make_op(&b, VT_OP_CUSTOM_CALL, 3, lu, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "LuDecomposition");
  run_op(&b);
  expect_numbers(b.out[0], N(4, 2, 0.25, 1.5), 0, "LU");
  expect_numbers(b.out[1], N(1, 1), 0, "pivots");
  expect_numbers(b.out[2], N(1, 0), 0, "permutation");
  bench_free(&b);
  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 3, 0), NONE);
  vt_type empty[3] = {result_type(&b, VT_F32, DIMS(2, 3, 0)), result_type(&b, VT_S32, DIMS(2, 0)),
                      result_type(&b, VT_S32, DIMS(2, 3))};
  op = make_op(&b, VT_OP_CUSTOM_CALL, 3, empty, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "LuDecomposition");
  run_op(&b);
  expect_numbers(b.out[2], N(0, 1, 2, 0, 1, 2), 0, "permutation of rows without columns");
  bench_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops),
      cmocka_unit_test(branches),
      cmocka_unit_test(recursion_is_refused),
      cmocka_unit_test(collectives),
      cmocka_unit_test(transfers),
      cmocka_unit_test(refusals_name_the_op),
      cmocka_unit_test(factorisations),
      cmocka_unit_test(values_are_not_overwritten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
