// SPDX-License-Identifier: Apache-2.0
// random_test.c - rng_bit_generator compared with independent implementations of the ciphers and
// layouts: which word goes where, and the new state; rng by its moments.
#include "eval/eval_support.h"

static uint32_t rotate(uint32_t x, int by) {
  return x << by | x >> (32 - by);
}

// Threefry-2x32, 20 rounds.
static void threefry(uint64_t key, uint64_t counter, uint32_t out[2]) {
  static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  uint32_t k[3] = {(uint32_t)key, (uint32_t)(key >> 32), 0};
  k[2] = k[0] ^ k[1] ^ 0x1BD11BDA;
  uint32_t x = (uint32_t)counter + k[0], y = (uint32_t)(counter >> 32) + k[1];
  for (uint32_t r = 0; r < 5; r++) {
    for (int i = 0; i < 4; i++) {
      x += y;
      y = rotate(y, turns[r % 2][i]) ^ x;
    }
    x += k[(r + 1) % 3];
    y += k[(r + 2) % 3] + r + 1;
  }
  out[0] = x;
  out[1] = y;
}

// Philox-4x32, 10 rounds.
static void philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
  for (int r = 0; r < 10; r++) {
    uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
    memcpy(c, next, sizeof c);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  memcpy(out, c, sizeof c);
}

enum { MOST = 512 };
typedef struct shape {
  int32_t rank;
  int64_t dims[3];
} shape;

static int64_t count_of(shape s) {
  int64_t n = 1;
  for (int32_t d = 0; d < s.rank; d++) n *= s.dims[d];
  return n;
}

// The elements' bits, and the state afterwards.
static void expected_threefry(shape s, int bits, uint64_t *words, uint64_t *out) {
  int64_t n = count_of(s);
  uint32_t pair[2];
  if (bits == 64) {
    for (int64_t i = 0; i < n; i++) {
      threefry(words[0], words[1] + (uint64_t)i, pair);
      out[i] = pair[0] | (uint64_t)pair[1] << 32;
    }
    words[1] += (uint64_t)n;
    return;
  }
  int32_t cut = -1; // the first even dimension, otherwise the largest
  for (int32_t d = s.rank; d-- > 0;)
    if (s.dims[d] % 2 == 0) cut = d;
  for (int32_t d = 0; d < s.rank && cut < 0; d++) {
    bool largest = true;
    for (int32_t e = 0; e < s.rank; e++)
      largest = largest && (e < d ? s.dims[e] < s.dims[d] : s.dims[e] <= s.dims[d]);
    if (largest) cut = d;
  }
  int64_t size = cut < 0 ? 1 : s.dims[cut], half = (size + 1) / 2, outer_count = 1, inner = 1,
          blocks = 0;
  for (int32_t d = 0; d < cut; d++) outer_count *= s.dims[d];
  for (int32_t d = cut + 1; cut >= 0 && d < s.rank; d++) inner *= s.dims[d];
  for (int64_t outer = 0; outer < outer_count; outer++)
    for (int64_t h = 0; h < half; h++)
      for (int64_t i = 0; i < inner; i++) {
        threefry(words[0], words[1] + (uint64_t)blocks++, pair);
        for (int64_t k = 0; k < 2 && 2 * h + k < size; k++)
          out[(outer * size + 2 * h + k) * inner + i] = pair[k];
      }
  words[1] += (uint64_t)blocks;
}

static void expected_philox(shape s, int bits, int64_t state_words, uint64_t *words,
                            uint64_t *out) {
  uint64_t low = words[1], high = words[state_words == 3 ? 2 : 0], key = words[0];
  int64_t n = count_of(s), needed = bits == 64 ? 2 * n : n, blocks = (needed + 3) / 4;
  uint32_t list[2 * MOST + 4];
  for (int64_t i = 0; i < blocks; i++) {
    philox(key, low, high, list + 4 * i);
    high += ++low == 0;
  }
  for (int64_t i = 0; i < n; i++)
    out[i] = bits == 64 ? list[2 * i] | (uint64_t)list[2 * i + 1] << 32 : list[i];
  words[1] = low;
  if (state_words == 3) words[2] = high;
}

static void run_bits(int64_t algorithm, vt_dtype dtype, shape s, int64_t state_words) {
  // Counters near a carry, so that it reaches the upper halves.
  uint64_t words[3] = {0x0123456789abcdef, 0xfffffffffffffffe, 0x00000000ffffffff};
  uint64_t want[MOST] = {0};
  bench b = bench_new();
  const double zeros[3] = {0};
  operand(&b, VT_U64, 1, &state_words, (numbers){state_words, zeros});
  memcpy(b.in[0].data, words, sizeof(uint64_t) * (size_t)state_words);
  vt_type types[2] = {b.in[0].type, result_type(&b, dtype, s.rank, s.dims)};
  vt_op *op = make_op(&b, VT_OP_RNG_BIT_GENERATOR, 2, types, 0);
  vt_op_set_i64(op, VT_ATTR_RNG_ALGORITHM, algorithm);
  run_op(&b);
  int bits = vt_dtype_get(dtype)->bits;
  if (algorithm == VT_RNG_THREE_FRY)
    expected_threefry(s, bits, words, want);
  else
    expected_philox(s, bits, state_words, words, want);
  assert_memory_equal(b.out[0].data, words, sizeof(uint64_t) * (size_t)state_words);
  size_t bytes = (size_t)bits / 8;
  for (int64_t i = 0; i < count_of(s); i++)
    if (memcmp((char *)b.out[1].data + (size_t)i * bytes, &want[i], bytes))
      fail_msg("algorithm %d, %s, rank %d: element %d", (int)algorithm, vt_dtype_get(dtype)->text,
               s.rank, (int)i);
  bench_free(&b);
}

static void bits_and_states(void **state) {
  (void)state;
  static const shape shapes[] = {{0, {0}},       {1, {1}},       {1, {7}},       {1, {64}},
                                 {2, {3, 5}},    {2, {5, 3}},    {2, {3, 3}},    {2, {4, 6}},
                                 {3, {3, 4, 5}}, {3, {5, 1, 5}}, {3, {3, 7, 2}}, {2, {0, 3}}};
  static const vt_dtype types[] = {VT_U8, VT_S16, VT_U32, VT_U64, VT_S64, VT_F32, VT_BF16, VT_F64};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
      run_bits(VT_RNG_THREE_FRY, types[t], shapes[i], 2);
      run_bits(VT_RNG_PHILOX, types[t], shapes[i], 2);
      run_bits(VT_RNG_PHILOX, types[t], shapes[i], 3);
      run_bits(VT_RNG_DEFAULT, types[t], shapes[i], 2); // is Philox here
    }
}

static void normal_numbers(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, SCALAR, N(3));
  operand(&b, VT_F32, SCALAR, N(2));
  operand(&b, VT_S64, DIMS(1), N(10000));
  vt_op *op = make_one(&b, VT_OP_RNG, VT_F32, DIMS(10000), 0);
  vt_op_set_i64(op, VT_ATTR_RNG_DISTRIBUTION, VT_DIST_NORMAL);
  run_op(&b);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 10000; i++) {
    double x = vt_number_load(VT_F32, b.out[0].data, i);
    sum += x;
    squares += (x - 3) * (x - 3);
  }
  assert_true(fabs(sum / 10000 - 3) < 0.1); // five standard errors
  assert_true(fabs(squares / 10000 - 4) < 0.3);
  bench_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_and_states),
      cmocka_unit_test(normal_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
