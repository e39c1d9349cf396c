// SPDX-License-Identifier: Apache-2.0
// indexed_test.c - gather and scatter kernels against the evaluator, bit for bit: random shapes,
// indices of all types with duplicates and out-of-bounds values, any number of threads.
#include "host/native_bench.h"

#include "ir/number.h"

static const vt_dtype index_types[] = {VT_S8,  VT_U8,  VT_S16, VT_U16,
                                       VT_S32, VT_U32, VT_S64, VT_U64};

static void fill_values(vt_dtype dtype, int64_t n, char *data) {
  static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, -1e-40};
  size_t bytes = vt_dtype_bytes(dtype);
  if (vt_dtype_is_complex(dtype)) n *= 2, bytes /= 2, dtype = dtype == VT_C64 ? VT_F32 : VT_F64;
  for (int64_t i = 0; i < n; i++) {
    if (vt_dtype_is_float(dtype)) {
      double x = (double)random_below(2001) / 500 - 2;
      if (random_below(9) == 0) x = specials[random_below(7)];
      vt_number_store(dtype, data, i, x);
    } else if (dtype == VT_PRED) {
      data[i] = (char)random_below(2);
    } else {
      uint64_t x = next_random();
      memcpy(data + (size_t)i * bytes, &x, bytes);
    }
  }
}

// Mostly near [0, limit], sometimes far away.
static void fill_indices(vt_dtype dtype, int64_t n, int64_t limit, bool sorted, char *data) {
  size_t bytes = vt_dtype_bytes(dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t x = random_below(limit + 5) - 2;
    if (random_below(20) == 0) x = (int64_t)next_random();
    if (sorted) x = i * (limit + 1) / n;
    memcpy(data + (size_t)i * bytes, &x, bytes);
  }
}

// How an array is indexed: operand dims; which are indexed; which of those the window lacks; dims
// of the batch; whether the window's dims come first or last in the other array.
typedef struct indexing {
  int rank, indexed_count, batch_rank, batching; // batching: leading dims of operand and batch
  int64_t dims[4], sizes[4], indexed[4], batch[3];
  bool collapsed[4], window_first;
} indexing;

static indexing random_indexing(void) {
  indexing x = {.rank = 1 + (int)random_below(3), .window_first = random_below(4) == 0};
  x.batch_rank = (int)random_below(3);
  x.batching = x.batch_rank && x.rank > 1 && random_below(4) == 0;
  for (int d = 0; d < x.batch_rank; d++) {
    static const int64_t sizes[] = {1, 3, 17, 40, 1100};
    x.batch[d] = sizes[random_below(x.batch_rank > 1 ? 4 : 5)];
  }
  for (int d = 0; d < x.rank; d++) {
    static const int64_t sizes[] = {1, 2, 4, 7, 13, 40};
    x.dims[d] = x.sizes[d] = sizes[random_below(6)];
    if (d < x.batching) {
      x.dims[d] = x.batch[d];
      x.sizes[d] = 1;
    } else if (random_below(3)) {
      x.indexed[x.indexed_count++] = d;
      x.collapsed[d] = random_below(3) > 0;
      x.sizes[d] = x.collapsed[d] ? 1 : 1 + random_below(x.dims[d]);
    }
  }
  if (x.indexed_count == 2 && random_below(2)) {
    int64_t first = x.indexed[0];
    x.indexed[0] = x.indexed[1];
    x.indexed[1] = first;
  }
  return x;
}

// The other array's dims and which of them are the window's; dims of the operand the window lacks.
typedef struct layout {
  int rank, window_rank, dropped_count;
  int64_t dims[8], window[4], dropped[4];
} layout;

static layout lay_out(const indexing *x) {
  layout l = {0};
  for (int pass = 0; pass < 2; pass++) {
    if (pass == (x->window_first ? 1 : 0))
      for (int d = 0; d < x->batch_rank; d++) l.dims[l.rank++] = x->batch[d];
    else
      for (int d = x->batching; d < x->rank; d++) {
        if (x->collapsed[d]) {
          l.dropped[l.dropped_count++] = d;
          continue;
        }
        l.window[l.window_rank++] = l.rank;
        l.dims[l.rank++] = x->sizes[d];
      }
  }
  return l;
}

// The indices as the next parameter: [batch..., component], or [batch...] for a single one.
static int64_t add_indices(op_bench *b, const indexing *x, bool sorted) {
  int64_t dims[4], n = 1, limit = 0;
  bool vector = x->indexed_count != 1 || random_below(2);
  vt_dtype type = index_types[random_below(8)];
  for (int d = 0; d < x->batch_rank; d++) n *= dims[d] = x->batch[d];
  dims[x->batch_rank] = x->indexed_count;
  n *= x->indexed_count;
  for (int i = 0; i < x->indexed_count; i++) {
    int64_t most = x->dims[x->indexed[i]] - x->sizes[x->indexed[i]];
    if (most > limit) limit = most;
  }
  void *data = bench_param(b, type, x->batch_rank + vector, dims);
  fill_indices(type, n, limit, sorted, data);
  return x->batch_rank;
}

static const int64_t zero_to_three[] = {0, 1, 2, 3};

static void check(op_bench *b, const char *what) {
  static const int threads[] = {1, 2, 5};
  bench_evaluate(b);
  for (int t = 0; t < 3; t++) {
    bench_kernel(b, threads[t], t == 1);
    bench_expect_same(b, 0, what);
  }
}

static void gathers(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_U8, VT_F64, VT_C128, VT_S32};
  for (int trial = 0; trial < 150; trial++) {
    indexing x = random_indexing();
    layout l = lay_out(&x);
    vt_dtype type = types[trial % 6];
    op_bench b = bench_begin();
    void *operand = bench_param(&b, type, x.rank, x.dims);
    int64_t n = 1;
    for (int d = 0; d < x.rank; d++) n *= x.dims[d];
    fill_values(type, n, operand);
    int64_t vector_dim = add_indices(&b, &x, false);
    vt_type result = bench_type(&b, type, l.rank, l.dims);
    bench_op(&b, VT_OP_GATHER, 1, &result, 0);
    vt_op_set_ints(b.op, VT_ATTR_OFFSET_DIMS, (uint32_t)l.window_rank, l.window);
    vt_op_set_ints(b.op, VT_ATTR_COLLAPSED_SLICE_DIMS, (uint32_t)l.dropped_count, l.dropped);
    vt_op_set_ints(b.op, VT_ATTR_OPERAND_BATCHING_DIMS, (uint32_t)x.batching, zero_to_three);
    vt_op_set_ints(b.op, VT_ATTR_START_INDICES_BATCHING_DIMS, (uint32_t)x.batching, zero_to_three);
    vt_op_set_ints(b.op, VT_ATTR_START_INDEX_MAP, (uint32_t)x.indexed_count, x.indexed);
    vt_op_set_i64(b.op, VT_ATTR_INDEX_VECTOR_DIM, vector_dim);
    vt_op_set_ints(b.op, VT_ATTR_SLICE_SIZES, (uint32_t)x.rank, x.sizes);
    vt_op_set_i64(b.op, VT_ATTR_INDICES_ARE_SORTED, random_below(2));
    check(&b, "gather");
    bench_end(&b);
  }
}

static vt_func *body_of(op_bench *b, vt_opcode code, vt_dtype dtype) {
  vt_func *f = vt_func_create(b->module, "");
  vt_type one = {dtype, 0, NULL};
  vt_value *old = vt_func_add_param(f, one), *update = vt_func_add_param(f, one), *result = update;
  if (code != VT_OP_INVALID) {
    bool turned = random_below(2) && vt_op_info_get(code)->flags & VT_OPF_COMM;
    result = vt_build(f, NULL, code, NULL, one, 2,
                      (vt_value *[]){turned ? update : old, turned ? old : update});
  }
  vt_func_set_returns(f, 1, &result);
  return f;
}

static void scatter_once(vt_opcode code, vt_dtype type) {
  indexing x = random_indexing();
  layout l = lay_out(&x);
  op_bench b = bench_begin();
  int64_t n = 1, updates = 1;
  for (int d = 0; d < x.rank; d++) n *= x.dims[d];
  for (int d = 0; d < l.rank; d++) updates *= l.dims[d];
  fill_values(type, n, bench_param(&b, type, x.rank, x.dims));
  int64_t vector_dim = add_indices(&b, &x, random_below(4) == 0);
  fill_values(type, updates, bench_param(&b, type, l.rank, l.dims));
  vt_type result = bench_type(&b, type, x.rank, x.dims);
  bench_op(&b, VT_OP_SCATTER, 1, &result, 1);
  b.op->regions[0] = body_of(&b, code, type);
  vt_op_set_ints(b.op, VT_ATTR_UPDATE_WINDOW_DIMS, (uint32_t)l.window_rank, l.window);
  vt_op_set_ints(b.op, VT_ATTR_INSERTED_WINDOW_DIMS, (uint32_t)l.dropped_count, l.dropped);
  vt_op_set_ints(b.op, VT_ATTR_INPUT_BATCHING_DIMS, (uint32_t)x.batching, zero_to_three);
  vt_op_set_ints(b.op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, (uint32_t)x.batching, zero_to_three);
  vt_op_set_ints(b.op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, (uint32_t)x.indexed_count, x.indexed);
  vt_op_set_i64(b.op, VT_ATTR_INDEX_VECTOR_DIM, vector_dim);
  vt_op_set_i64(b.op, VT_ATTR_INDICES_ARE_SORTED, random_below(2)); // sometimes false
  vt_op_set_i64(b.op, VT_ATTR_UNIQUE_INDICES, random_below(2));
  check(&b, vt_op_info_get(code == VT_OP_INVALID ? VT_OP_SCATTER : code)->text);
  bench_end(&b);
}

static void scatters(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_BF16, VT_F16, VT_F64, VT_S32, VT_U8, VT_S64, VT_U16};
  static const vt_opcode codes[] = {VT_OP_INVALID,  VT_OP_ADD,     VT_OP_SUBTRACT,
                                    VT_OP_MULTIPLY, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  static const vt_opcode of_bits[] = {VT_OP_INVALID, VT_OP_AND, VT_OP_OR, VT_OP_XOR};
  static const vt_dtype bits[] = {VT_PRED, VT_S8, VT_U32, VT_U64};
  for (int trial = 0; trial < 6; trial++) {
    for (int t = 0; t < 8; t++)
      for (int c = 0; c < 6; c++) scatter_once(codes[c], types[t]);
    for (int t = 0; t < 4; t++)
      for (int c = 0; c < 4; c++) scatter_once(of_bits[c], bits[t]);
    for (int c = 0; c < 3; c++) scatter_once(codes[c], c & 1 ? VT_C64 : VT_C128);
  }
}

// Windows numerous or large enough for several threads: one row each, or several that are parts of
// the operand's.
static void large_scatters(void **state) {
  (void)state;
  static const struct {
    vt_dtype type;
    vt_opcode code;
    int64_t operand[3], count, window[2];
  } cases[] = {
      {VT_F32, VT_OP_ADD, {50, 1, 400}, 1000, {1, 400}},
      {VT_BF16, VT_OP_INVALID, {50, 1, 700}, 1000, {1, 700}},
      {VT_F32, VT_OP_SUBTRACT, {50, 9, 80}, 1000, {7, 60}},
      {VT_F32, VT_OP_ADD, {50, 40, 11}, 1000, {40, 8}},
      {VT_F32, VT_OP_ADD, {50, 1, 64}, 1 << 18, {1, 64}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    op_bench b = bench_begin();
    vt_dtype type = cases[i].type;
    const int64_t *dims = cases[i].operand, n = cases[i].count;
    int64_t updates[] = {n, cases[i].window[0], cases[i].window[1]};
    fill_values(type, dims[0] * dims[1] * dims[2], bench_param(&b, type, 3, dims));
    fill_indices(VT_S32, n, dims[0] - 1, false, bench_param(&b, VT_S32, 1, &n));
    fill_values(type, n * updates[1] * updates[2], bench_param(&b, type, 3, updates));
    vt_type result = bench_type(&b, type, 3, dims);
    bench_op(&b, VT_OP_SCATTER, 1, &result, 1);
    b.op->regions[0] = body_of(&b, cases[i].code, type);
    vt_op_set_ints(b.op, VT_ATTR_UPDATE_WINDOW_DIMS, 2, zero_to_three + 1);
    vt_op_set_ints(b.op, VT_ATTR_INSERTED_WINDOW_DIMS, 1, zero_to_three);
    vt_op_set_ints(b.op, VT_ATTR_INPUT_BATCHING_DIMS, 0, NULL);
    vt_op_set_ints(b.op, VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, 0, NULL);
    vt_op_set_ints(b.op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, 1, zero_to_three);
    vt_op_set_i64(b.op, VT_ATTR_INDEX_VECTOR_DIM, 1);
    vt_op_set_i64(b.op, VT_ATTR_INDICES_ARE_SORTED, 0);
    vt_op_set_i64(b.op, VT_ATTR_UNIQUE_INDICES, 0);
    check(&b, "scatter of rows");
    bench_end(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers),
      cmocka_unit_test(scatters),
      cmocka_unit_test(large_scatters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
