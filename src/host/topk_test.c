// SPDX-License-Identifier: Apache-2.0
// topk_test.c - sorts of which only the first elements are read, against the evaluator's whole
// sort: equal keys, NaNs of both signs, one line split into parts and many lines, any number of
// threads.
#include "host/native_bench.h"

static void read_first(op_bench *b, uint32_t result, int64_t k) {
  vt_value *from = &b->op->results[result];
  int64_t start[2] = {0}, limit[2] = {from->type.dims[0], k}, stride[2] = {1, 1};
  vt_value *to = vt_build(b->func, NULL, VT_OP_SLICE, NULL,
                          bench_type(b, from->type.dtype, 2, limit), 1, &from);
  vt_op_set_ints(to->op, VT_ATTR_START_INDICES, 2, start);
  vt_op_set_ints(to->op, VT_ATTR_LIMIT_INDICES, 2, limit);
  vt_op_set_ints(to->op, VT_ATTR_STRIDES, 2, stride);
}

static void check(vt_dtype dtype, int64_t lines, int64_t n, int64_t k, int direction, int style) {
  op_bench b = bench_begin();
  int64_t dims[] = {lines, n};
  char *keys = bench_param(&b, dtype, 2, dims);
  int32_t *places = bench_param(&b, VT_S32, 2, dims);
  size_t bytes = vt_dtype_bytes(dtype);
  for (int64_t i = 0; i < lines * n; i++) {
    // Random bits; few distinct values; ascending, so that every element is among the best so far.
    uint64_t x = style == 0 ? next_random() : style == 1 ? next_random() % 5 : (uint64_t)i;
    if (dtype == VT_PRED) x &= 1;
    memcpy(keys + (size_t)i * bytes, &x, bytes);
    places[i] = (int32_t)(i % n);
  }
  vt_type types[] = {bench_type(&b, dtype, 2, dims), bench_type(&b, VT_S32, 2, dims)};
  bench_op(&b, VT_OP_SORT, 2, types, 1);
  vt_func *body = b.op->regions[0] = vt_func_create(b.module, "");
  for (int i = 0; i < 4; i++) vt_func_add_param(body, (vt_type){i < 2 ? dtype : VT_S32, 0, NULL});
  vt_value *order =
      vt_build(body, NULL, VT_OP_COMPARE, NULL, (vt_type){VT_PRED, 0, NULL}, 2, body->params);
  vt_op_set_i64(order->op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(order->op, VT_ATTR_COMPARE_TYPE,
                vt_dtype_is_float(dtype) ? VT_CMPTYPE_TOTALORDER : VT_CMPTYPE_NOTYPE);
  vt_func_set_returns(body, 1, &order);
  vt_op_set_i64(b.op, VT_ATTR_DIMENSION, 1);
  vt_op_set_i64(b.op, VT_ATTR_IS_STABLE, 1);
  read_first(&b, 0, k);
  read_first(&b, 1, k);
  vt_value *firsts[] = {&b.op->next->results[0], &b.op->next->next->results[0]};
  vt_func_set_returns(b.func, 2, firsts);
  bench_evaluate(&b);
  for (int threads = 1; threads <= 3; threads += 2) {
    bench_kernel(&b, threads, false);
    for (int64_t l = 0; l < lines; l++) {
      size_t at = (size_t)(l * n);
      assert_memory_equal((char *)b.want[0] + at * bytes, (char *)b.got[0] + at * bytes,
                          (size_t)k * bytes);
      assert_memory_equal((int32_t *)b.want[1] + at, (int32_t *)b.got[1] + at, (size_t)k * 4);
    }
  }
  bench_end(&b);
}

static void first_places(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_F16, VT_F64, VT_S8,  VT_S16, VT_S32,
                                   VT_S64, VT_U8,   VT_U16, VT_U32, VT_U64, VT_PRED};
  static const int64_t shapes[][3] = {{1, 8, 1},         {7, 100, 3},   {40, 1000, 10},
                                      {1, 200000, 100},  {3, 70000, 7}, {2, 131073, 1},
                                      {1, 150000, 18000}};
  for (int t = 0; t < 13; t++)
    for (int s = 0; s < 7; s++)
      for (int style = 0; style < 3; style++)
        check(types[t], shapes[s][0], shapes[s][1], shapes[s][2],
              (t + s + style) % 2 ? VT_CMP_GT : VT_CMP_LT, style);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(first_places)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
