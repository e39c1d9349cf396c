// SPDX-License-Identifier: Apache-2.0
// fft_test.c - the fft kernel against the evaluator, which computes in f64: every kind, lengths
// with small and large factors and primes, several dimensions, few and many lines, any number of
// threads.
#include "host/native_bench.h"

static void make(op_bench *b, int64_t kind, bool wide, int rank, const int64_t *full, int count) {
  int64_t in[4], out[4];
  memcpy(in, full, sizeof *in * (size_t)rank);
  memcpy(out, full, sizeof *out * (size_t)rank);
  if (kind == VT_FFT_IRFFT) in[rank - 1] = full[rank - 1] / 2 + 1;
  if (kind == VT_FFT_RFFT) out[rank - 1] = full[rank - 1] / 2 + 1;
  vt_dtype real = wide ? VT_F64 : VT_F32, complex = wide ? VT_C128 : VT_C64;
  void *data = bench_param(b, kind == VT_FFT_RFFT ? real : complex, rank, in);
  int64_t n = vt_type_elements(b->func->params[0]->type) * (kind == VT_FFT_RFFT ? 1 : 2);
  for (int64_t i = 0; i < n; i++) {
    double x = (double)random_below(20001) / 10000 - 1;
    if (wide)
      ((double *)data)[i] = x;
    else
      ((float *)data)[i] = (float)x;
  }
  vt_type result = bench_type(b, kind == VT_FFT_IRFFT ? real : complex, rank, out);
  bench_op(b, VT_OP_FFT, 1, &result, 0);
  vt_op_set_i64(b->op, VT_ATTR_FFT_TYPE, kind);
  vt_op_set_ints(b->op, VT_ATTR_FFT_LENGTH, (uint32_t)count, full + rank - count);
}

static double number(bool wide, const void *data, int64_t i) {
  return wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

// Errors are relative to the largest number of the result.
static void check(int64_t kind, bool wide, int rank, const int64_t *full, int count) {
  op_bench b = bench_begin();
  make(&b, kind, wide, rank, full, count);
  bench_evaluate(&b);
  int64_t n = vt_type_elements(b.op->results[0].type) * (kind == VT_FFT_IRFFT ? 1 : 2);
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(number(wide, b.want[0], i)));
  void *first = NULL;
  for (int threads = 1; threads <= 3; threads += 2) {
    bench_kernel(&b, threads, false);
    for (int64_t i = 0; i < n; i++)
      worst = fmax(worst, fabs(number(wide, b.want[0], i) - number(wide, b.got[0], i)));
    size_t bytes = (size_t)vt_type_bytes(b.op->results[0].type);
    if (first) assert_memory_equal(first, b.got[0], bytes);
    first = first ? first : memcpy(malloc(bytes), b.got[0], bytes);
  }
  free(first);
  if (!(worst <= largest * (wide ? 3e-15 : 1e-6)))
    fail_msg("kind %d, f%d, %lld points, %lld numbers: off by %g of %g", (int)kind, wide ? 64 : 32,
             (long long)full[rank - 1], (long long)n, worst, largest);
  bench_end(&b);
}

static void every_length(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 130; n++)
    for (int kind = 0; kind < 4; kind++) {
      check(kind, n % 2, 2, (int64_t[]){n % 5 ? 3 : 37, n}, 1);
      check(kind, n % 2 == 0, 1, &n, 1);
    }
}

static void long_lines(void **state) {
  (void)state;
  static const int64_t lengths[] = {512,  1000,  1009,  1024,  1087,  2018, 4096,
                                    7919, 10000, 12289, 16384, 30030, 65536};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int kind = 0; kind < 4; kind++) {
      check(kind, i % 2, 1, &lengths[i], 1);
      check(kind, i % 2 == 0, 2, (int64_t[]){i < 6 ? 19 : 2, lengths[i]}, 1);
    }
}

static void dimensions(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{2, 8, 16, 20}, {3, 5, 7, 9},   {1, 1, 1, 6},
                                      {2, 30, 1, 64}, {1, 3, 600, 4}, {2, 2, 37, 33}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int kind = 0; kind < 4; kind++)
      for (int count = 1; count <= 3; count++)
        check(kind, (i + (size_t)count) % 2, 4, shapes[i], count);
}

// A line with a NaN or with huge numbers does not affect its neighbours.
static void lines_are_apart(void **state) {
  (void)state;
  static const int64_t lengths[] = {16, 27, 1009};
  for (int i = 0; i < 3; i++)
    for (int kind = 0; kind < 4; kind++) {
      op_bench b = bench_begin();
      make(&b, kind, false, 2, (int64_t[]){40, lengths[i]}, 1);
      bench_kernel(&b, 1, false);
      vt_type in = b.op->operands[0]->type, out = b.op->results[0].type;
      size_t in_line = (size_t)vt_type_bytes(in) / 40, line = (size_t)vt_type_bytes(out) / 40;
      void *before = memcpy(malloc(40 * line), b.got[0], 40 * line);
      memset((char *)b.in[0] + 7 * in_line, 0xff, in_line);
      float *huge = (float *)((char *)b.in[0] + 20 * in_line);
      for (size_t k = 0; k < in_line / 4; k++) huge[k] = 1e30f;
      bench_kernel(&b, 2, false);
      for (size_t l = 0; l < 40; l++)
        if (l != 7 && l != 20)
          assert_memory_equal((char *)before + l * line, (char *)b.got[0] + l * line, line);
      assert_true(isnan(((float *)b.got[0])[7 * line / 4]));
      free(before);
      bench_end(&b);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_length),
      cmocka_unit_test(long_lines),
      cmocka_unit_test(dimensions),
      cmocka_unit_test(lines_are_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
