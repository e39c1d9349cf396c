// SPDX-License-Identifier: Apache-2.0
// exec_test.c - the functional simulator compared with a plain reference, and random programs:
// legal ones give the same state serially and in the order the pipeline finishes them, damaged ones
// give an error or still agree.
#include <stdlib.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tpu1/exec.h"
#include "tpu1/random.h"

static vt_tpu1_code assemble(const char *text) {
  vt_tpu1_code code = {0};
  vt_status st = vt_tpu1_assemble((vt_bytes){(const uint8_t *)text, strlen(text)}, &code);
  if (st) fail_msg("%s", vt_status_message(st));
  return code;
}

static uint64_t next(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

enum { DIM = 256 };

static int64_t value_of(const uint8_t *bytes, int64_t low, int64_t high, bool wide,
                        bool is_signed) {
  if (wide) return (int16_t)(bytes[low] | bytes[high] << 8);
  return is_signed ? (int8_t)bytes[low] : bytes[low];
}

// All operand widths and signs, two passes, against 64-bit arithmetic.
static void products_are_exact_in_every_width(void **state) {
  (void)state;
  enum { ROWS = 13 };
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  uint8_t *in = malloc(4 * ROWS * DIM), *weights = malloc((size_t)4 * DIM * DIM);
  uint64_t seed = 1;
  for (int i = 0; i < 4 * ROWS * DIM; i++) in[i] = next(&seed) % 9 ? (uint8_t)next(&seed) : 0x80;
  for (int i = 0; i < 4 * DIM * DIM; i++)
    weights[i] = next(&seed) % 9 ? (uint8_t)next(&seed) : 0x80;
  for (int mode = 0; mode < 6; mode++) {
    bool wide_in = mode & 1, wide_w = mode & 2, is_signed = mode < 4;
    if (mode == 5) continue; // unsigned and wide is not an instruction
    char text[400];
    snprintf(text, sizeof text,
             "read_host rows=%d\nread_weights count=%d\nsync unit=matrix on=read\n"
             "matmul rows=%d repeat=1 acc=5 switch_tile%s%s%s\nhalt",
             (wide_in ? 4 : 2) * ROWS, wide_w ? 4 : 2, ROWS, wide_in ? " wide_in" : "",
             wide_w ? " wide_weights" : "", is_signed ? "" : " unsigned_in");
    vt_tpu1_code code = assemble(text);
    vt_tpu1_program program = {.code = code.data,
                               .code_size = code.size,
                               .tile_count = 4,
                               .weights = weights,
                               .host_in_bytes = 4 * ROWS * DIM};
    vt_tpu1_plan plan;
    vt_tpu1_machine *machine;
    assert_null(vt_tpu1_plan_make(&program, &chip, &plan));
    assert_null(vt_tpu1_machine_create(&chip, &machine));
    assert_null(vt_tpu1_run_serial(machine, &plan, (vt_tpu1_host){.in = in}));
    const int32_t *acc = vt_tpu1_machine_acc(machine) + 5 * DIM;
    for (int r = 0; r < ROWS; r++)
      for (int j = 0; j < DIM; j++) {
        int64_t sum = 0;
        for (int pass = 0; pass < 2; pass++)
          for (int k = 0; k < DIM; k++) {
            int64_t row = (pass * ROWS + r) * (wide_in ? 2 : 1), tile = pass * (wide_w ? 2 : 1);
            int64_t a = value_of(in, row * DIM + k, (row + 1) * DIM + k, wide_in, is_signed);
            int64_t w = value_of(weights, (tile * DIM + k) * DIM + j,
                                 ((tile + 1) * DIM + k) * DIM + j, wide_w, true);
            sum += a * w;
          }
        assert_int_equal(acc[r * DIM + j], (int32_t)(uint32_t)(uint64_t)sum);
      }
    vt_tpu1_machine_destroy(machine);
    vt_tpu1_plan_free(&plan);
    vt_array_free(&code);
  }
  free(in);
  free(weights);
}

// A 3 x 3 convolution with stride 2 and padding, bias, scale, ReLU and 2 x 2 pooling, compared with
// nested loops.
static void a_convolution_is_right(void **state) {
  (void)state;
  enum { H = 9, W = 7, OH = 4, OW = 4, C = 5, N = 6 };
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  static int8_t in[H * W * C];
  static int8_t out[2 * 2 * N];
  static uint8_t weights[9 * DIM * DIM], host_in[H * W * C + 4 * DIM];
  static vt_tpu1_tile tiles[9];
  int32_t bias[DIM] = {0};
  uint64_t seed = 7;
  for (int i = 0; i < H * W * C; i++) in[i] = (int8_t)next(&seed);
  for (int i = 0; i < 9 * DIM * DIM; i++) weights[i] = (uint8_t)next(&seed);
  for (int i = 0; i < 9; i++) tiles[i] = (vt_tpu1_tile){C, N};
  for (int i = 0; i < N; i++) bias[i] = (int32_t)(next(&seed) % 20000) - 10000;
  memcpy(host_in, in, sizeof in);
  memcpy(host_in + sizeof in, bias, sizeof bias);
  char text[3000];
  int at = snprintf(text, sizeof text,
                    "set reg=host_row value=%d\nread_host rows=%d\nset reg=host_row value=0\n"
                    "read_host ub=100 host=%d rows=4\nread_weights count=9\nset reg=conv_in_h "
                    "value=%d\nset reg=conv_in_w value=%d\n"
                    "set reg=conv_out_h value=%d\nset reg=conv_out_w value=%d\nset reg=conv_sy "
                    "value=2\nset reg=conv_sx value=2\n"
                    "sync unit=matrix+activate on=read\n",
                    C, H * W, (int)sizeof in, H, W, OH, OW);
  for (int tap = 0; tap < 9; tap++)
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "convolve images=1 dy=%d dx=%d switch_tile%s\n", tap / 3 - 1, tap % 3 - 1,
                   tap ? " accumulate" : "");
  snprintf(text + at, sizeof text - (size_t)at,
           "sync unit=activate on=matrix\nset reg=scale value=77\nset reg=shift value=15\nset "
           "reg=bias value=100\n"
           "set reg=pool_in_h value=%d\nset reg=pool_in_w value=%d\nset reg=pool_out_h "
           "value=2\nset reg=pool_out_w value=2\n"
           "set reg=pool_kh value=2\nset reg=pool_kw value=2\nset reg=pool_sy value=2\nset "
           "reg=pool_sx value=2\n"
           "activate rows=%d ub=200 fn=relu pool=max bias\nsync unit=write on=activate\nset "
           "reg=host_row value=%d\n"
           "write_host ub=200 rows=4\nhalt",
           OH, OW, OH * OW, N);
  vt_tpu1_code code = assemble(text);
  vt_tpu1_program program = {.code = code.data,
                             .code_size = code.size,
                             .tile_count = 9,
                             .weights = weights,
                             .tiles = tiles,
                             .host_in_bytes = sizeof host_in,
                             .host_out_bytes = sizeof out};
  vt_tpu1_plan plan;
  vt_tpu1_machine *machine;
  vt_status st = vt_tpu1_plan_make(&program, &chip, &plan);
  if (st) fail_msg("%s", vt_status_message(st));
  assert_null(vt_tpu1_machine_create(&chip, &machine));
  assert_null(vt_tpu1_run_serial(machine, &plan, (vt_tpu1_host){host_in, (uint8_t *)out}));
  for (int py = 0; py < 2; py++)
    for (int px = 0; px < 2; px++)
      for (int n = 0; n < N; n++) {
        int64_t best = 0;
        for (int q = 0; q < 4; q++) {
          int oy = py * 2 + q / 2, ox = px * 2 + q % 2;
          int64_t sum = bias[n];
          for (int tap = 0; tap < 9; tap++) {
            int y = oy * 2 + tap / 3 - 1, x = ox * 2 + tap % 3 - 1;
            if (y < 0 || x < 0 || y >= H || x >= W) continue;
            for (int c = 0; c < C; c++)
              sum += in[(y * W + x) * C + c] * (int8_t)weights[(tap * DIM + c) * DIM + n];
          }
          int64_t r = (sum * 77 + (1 << 14)) >> 15;
          r = r < 0 ? 0 : r > 127 ? 127 : r;
          best = r > best ? r : best;
        }
        assert_int_equal(out[(py * 2 + px) * N + n], best);
      }
  vt_tpu1_machine_destroy(machine);
  vt_tpu1_plan_free(&plan);
  vt_array_free(&code);
}

// sigmoid and tanh at a few points, in both result widths, and vector arithmetic through 16 bits.
static void functions_and_vector_arithmetic_are_right(void **state) {
  (void)state;
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  static int16_t in[DIM];
  static uint8_t host_in[2 * DIM], host_out[6 * DIM];
  for (int i = 0; i < DIM; i++) in[i] = (int16_t)((i - 128) * 250);
  for (int i = 0; i < DIM; i++) {
    host_in[i] = (uint8_t)in[i];
    host_in[DIM + i] = (uint8_t)((uint16_t)in[i] >> 8);
  }
  vt_tpu1_code code = assemble(
      "read_host rows=2\nsync unit=activate on=read\nvector ub=10 fn=tanh wide_in wide_out\nvector "
      "ub=12 fn=sigmoid wide_in\n"
      "set reg=shift value=12\nvector vop=mul ub=14 a=10 b=10 wide_in wide_b wide_out\nset "
      "reg=shift value=1\nset reg=scale_b value=-1\n"
      "vector vop=add ub=16 a=0 b=10 wide_in wide_b wide_out\nsync unit=write on=activate\n"
      "write_host ub=10 rows=3\nwrite_host ub=14 rows=2 host=768\nwrite_host ub=16 rows=1 "
      "host=1280\nhalt");
  vt_tpu1_program program = {.code = code.data,
                             .code_size = code.size,
                             .host_in_bytes = 2 * DIM,
                             .host_out_bytes = 6 * DIM};
  vt_tpu1_plan plan;
  vt_tpu1_machine *machine;
  assert_null(vt_tpu1_plan_make(&program, &chip, &plan));
  assert_null(vt_tpu1_machine_create(&chip, &machine));
  assert_null(vt_tpu1_run_serial(machine, &plan, (vt_tpu1_host){host_in, host_out}));
  for (int i = 0; i < DIM; i++) {
    double x = in[i] / 4096.0;
    int16_t t = (int16_t)(host_out[i] | host_out[DIM + i] << 8);
    double want = floor(tanh(x) * 32768 + 0.5);
    assert_int_equal(t, want > 32767 ? 32767 : (int)want);
    assert_true(fabs((int8_t)host_out[2 * DIM + i] / 128.0 - 1 / (1 + exp(-x))) <
                0.5 / 128 + 1.0 / 128);
    int64_t square = ((int64_t)t * t + 2048) >> 12;
    assert_int_equal((int16_t)(host_out[3 * DIM + i] | host_out[4 * DIM + i] << 8),
                     square > 32767 ? 32767 : square);
    int64_t difference = (in[i] - t + 1) >> 1;
    assert_int_equal((int8_t)host_out[5 * DIM + i], (int8_t)difference);
  }
  vt_tpu1_machine_destroy(machine);
  vt_tpu1_plan_free(&plan);
  vt_array_free(&code);
}

static void hazards_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {
      {"read_host rows=8\nread_weights count=1\nmatmul rows=8 switch_tile\nhalt",
       "instruction 2 (address 0x18): matmul: unified-buffer row 0: matrix reads it while an "
       "earlier instruction of read may still write it; needs sync unit=matrix on=read"},
      {"read_weights count=1\nmatmul rows=8 switch_tile\nactivate rows=8 ub=100\nhalt",
       "accumulator row 0: activate reads it"},
      {"read_weights count=1\nmatmul rows=8 switch_tile\nread_host rows=1 ub=7\nhalt",
       "unified-buffer row 7: read writes it while an earlier instruction of matrix may still read "
       "it"},
      // The knowledge of a unit passes on only with a step that had it.
      {"read_host rows=1\nsync unit=activate on=read\nsync unit=write on=activate\nwrite_host "
       "rows=1\nhalt",
       "needs sync unit=write on=read"},
      {"matmul rows=1\nhalt", "no weight tile was switched in before"},
      {"matmul rows=1 switch_tile\nhalt",
       "needs weight tile 1 of the FIFO, but only 0 were requested"},
      {"read_weights count=2\nmatmul rows=1 switch_tile\nhalt",
       "1 weight tiles were requested and never used"},
      {"read_weights tile=3 count=2\nhalt", "tiles 3..4 are outside the 4 tiles of weight memory"},
      {"read_host rows=2 ub=98303\nhalt",
       "rows 98303..98304 are outside the unified buffer of 98304 rows"},
      {"read_weights count=1\nmatmul rows=4097 switch_tile\nhalt",
       "rows 0..4096 are outside the accumulators of 4096 rows"},
      {"read_host rows=65535 host=1\nhalt", "are outside the 65536 bytes of host input"},
      {"nop", "address 0xc: the program ends without halt"},
      {"halt\nnop", "instruction 1 (address 0xc): nop: instruction after halt"},
      {"vector ub=1 a=0\nset reg=vector_rows value=5\nvector ub=3 a=0\nhalt",
       "result rows 3..7 overlap operand rows 0..4"},
      {"set reg=pool_in_h value=3\nvector ub=9 pool=max\nhalt",
       "1 rows are not whole pooling images of 3"},
      {"set reg=host_row value=300\nread_host rows=1\nhalt", "host_row 300 exceeds the 256 bytes"},
  };
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_tpu1_code code = assemble(rows[i].text);
    vt_tpu1_program program = {.code = code.data,
                               .code_size = code.size,
                               .tile_count = 4,
                               .host_in_bytes = 65536,
                               .host_out_bytes = 65536};
    vt_tpu1_plan plan;
    vt_status st = vt_tpu1_plan_make(&program, &chip, &plan);
    if (!st) fail_msg("accepted: %s", rows[i].text);
    if (!strstr(vt_status_message(st), rows[i].message))
      fail_msg("%s: %s", rows[i].text, vt_status_message(st));
    vt_status_free(st);
    vt_tpu1_plan_free(&plan);
    vt_array_free(&code);
  }
}

static void random_programs_agree_in_any_order(void **state) {
  (void)state;
  vt_tpu1_random_stats stats = {0};
  for (uint64_t seed = 1; seed <= 300; seed++) {
    vt_status st = vt_tpu1_random_check(seed, 0, &stats);
    if (st) fail_msg("seed %llu: %s", (unsigned long long)seed, vt_status_message(st));
  }
  for (uint64_t seed = 1; seed <= 300; seed++) {
    vt_status st = vt_tpu1_random_check(seed, 3, &stats);
    if (st) fail_msg("damaged, seed %llu: %s", (unsigned long long)seed, vt_status_message(st));
  }
  assert_true(stats.legal >= 300);
  assert_true(stats.illegal > 100);
  assert_true(stats.overlapped * 20 > stats.steps); // the pipeline does reorder
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_exact_in_every_width), cmocka_unit_test(a_convolution_is_right),
      cmocka_unit_test(functions_and_vector_arithmetic_are_right),
      cmocka_unit_test(hazards_are_named), cmocka_unit_test(random_programs_agree_in_any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
