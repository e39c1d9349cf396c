// SPDX-License-Identifier: Apache-2.0
// rng.c - rng_bit_generator (bit-equal to XLA) and rng.
//
// State: ui64 words, word 0 is the key. THREE_FRY: Threefry-2x32 with 20 rounds (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", 2011), counter in word 1. PHILOX (also DEFAULT):
// Philox-4x32 with 10 rounds, 128-bit counter.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"
#include "ir/number.h"

static uint32_t rotate(uint32_t x, int by) {
  return x << by | x >> (32 - by);
}

static void threefry(uint64_t key, uint64_t counter, uint32_t out[2]) {
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  uint32_t k[3] = {(uint32_t)key, (uint32_t)(key >> 32), 0};
  k[2] = k[0] ^ k[1] ^ 0x1BD11BDAu;
  uint32_t x = (uint32_t)counter + k[0], y = (uint32_t)(counter >> 32) + k[1];
  for (int round = 0; round < 20; round++) {
    x += y;
    y = rotate(y, rotations[round / 4 % 2][round % 4]) ^ x;
    if (round % 4 == 3) {
      int injection = round / 4 + 1;
      x += k[injection % 3];
      y += k[(injection + 1) % 3] + (uint32_t)injection;
    }
  }
  out[0] = x;
  out[1] = y;
}

static void philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
    memcpy(c, next, sizeof c);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  memcpy(out, c, sizeof c);
}

static void put(void *data, size_t bytes, int64_t index, uint64_t bits) {
  memcpy((char *)data + (size_t)index * bytes, &bits, bytes);
}

// Blocks are numbered over the shape with one dimension halved; each gives two neighbours along it.
static void threefry_narrow(uint64_t key, uint64_t *counter, vt_type type, size_t bytes,
                            void *data) {
  int64_t half[VT_MAX_RANK], strides[VT_MAX_RANK], at[VT_MAX_RANK] = {0};
  int32_t d = -1;
  for (int32_t i = 0; i < type.rank && d < 0; i++)
    if (type.dims[i] % 2 == 0) d = i;
  for (int32_t i = 0; i < type.rank && (d < 0 || type.dims[d] % 2); i++)
    if (d < 0 || type.dims[i] > type.dims[d]) d = i;
  uint32_t words[2];
  if (d < 0) {
    threefry(key, (*counter)++, words);
    put(data, bytes, 0, words[0]);
    return;
  }
  vt_type_strides(type, strides);
  for (int32_t i = 0; i < type.rank; i++) half[i] = i == d ? (type.dims[i] + 1) / 2 : type.dims[i];
  do {
    int64_t place = 0;
    for (int32_t i = 0; i < type.rank; i++) place += (i == d ? 2 * at[i] : at[i]) * strides[i];
    threefry(key, (*counter)++, words);
    put(data, bytes, place, words[0]);
    if (2 * at[d] + 1 < type.dims[d]) put(data, bytes, place + strides[d], words[1]);
  } while (vt_eval_next(type.rank, half, at));
}

static void run_threefry(uint64_t *state, vt_type type, size_t bytes, void *data) {
  int64_t n = vt_type_elements(type);
  if (!n) return;
  if (bytes < 8) {
    threefry_narrow(state[0], &state[1], type, bytes, data);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    uint32_t words[2];
    threefry(state[0], state[1]++, words);
    put(data, bytes, i, words[0] | (uint64_t)words[1] << 32);
  }
}

static void run_philox(uint64_t *state, int64_t state_words, vt_type type, size_t bytes,
                       void *data) {
  int64_t n = vt_type_elements(type), words = bytes == 8 ? 2 * n : n;
  uint64_t low = state[1], high = state_words == 3 ? state[2] : state[0];
  for (int64_t w = 0; w < words; w += 4) {
    uint32_t block[4];
    philox(state[0], low, high, block);
    if (!++low) high++;
    for (int64_t i = 0; i < 4 && w + i < words; i += bytes == 8 ? 2 : 1) {
      if (bytes == 8)
        put(data, 8, (w + i) / 2, block[i] | (uint64_t)block[i + 1] << 32);
      else
        put(data, bytes, w + i, block[i]);
    }
  }
  state[1] = low;
  if (state_words == 3) state[2] = high;
}

vt_status vt_eval_rng_bit_generator(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_tensor out = call->out[1];
  int64_t state_bytes = vt_type_bytes(call->in[0].type);
  uint64_t state[3] = {0};
  if (state_bytes != 16 && state_bytes != 24) return vt_eval_refuse(op, "a state of this size");
  if (vt_type_bytes(call->out[0].type) != state_bytes) return vt_eval_invalid(op, "state");
  const vt_dtype_info *info = vt_dtype_get(out.type.dtype);
  if (info->bits < 8 || info->kind == VT_KIND_COMPLEX)
    return vt_eval_refuse(op, "bits of this type");
  memcpy(state, call->in[0].data, (size_t)state_bytes);
  if (vt_attr_i64_or(op, VT_ATTR_RNG_ALGORITHM, VT_RNG_DEFAULT) == VT_RNG_THREE_FRY) {
    if (state_bytes != 16) return vt_eval_refuse(op, "a state of this size");
    run_threefry(state, out.type, info->bytes, out.data);
  } else {
    run_philox(state, state_bytes / 8, out.type, info->bytes, out.data);
  }
  memcpy(call->out[0].data, state, (size_t)state_bytes);
  return VT_OK;
}

// rng: the generator is ours. The stream is a Philox sequence keyed by the op's position in the
// program, so that a program gives the same numbers on each run and two ops differ.
static double uniform01(uint64_t key, int64_t i) {
  uint32_t w[4];
  philox(key, (uint64_t)i, 0, w);
  return (double)((w[0] | (uint64_t)w[1] << 32) >> 11) * 0x1p-53;
}
static double normal(uint64_t key, int64_t i) {
  double u = 1.0 - uniform01(key, 2 * i), v = uniform01(key, 2 * i + 1);
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

vt_status vt_eval_rng(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_tensor *out = &call->out[0];
  vt_dtype type = out->type.dtype;
  if (vt_dtype_is_complex(type)) return vt_eval_refuse(op, "random numbers of this type");
  uint64_t key = 0x9E3779B97F4A7C15u;
  for (const vt_op *before = op->prev; before; before = before->prev) key += 0xD1B54A32D192ED03u;
  double a = vt_number_load(type, call->in[0].data, 0),
         b = vt_number_load(type, call->in[1].data, 0);
  int64_t n = vt_type_elements(out->type);
  bool uniform = vt_attr_i64(op, VT_ATTR_RNG_DISTRIBUTION) == VT_DIST_UNIFORM;
  bool whole = !vt_dtype_is_float(type);
  for (int64_t i = 0; i < n; i++) {
    double x = uniform ? a + (b - a) * uniform01(key, i) : a + b * normal(key, i);
    if (whole) x = floor(x);
    vt_number_store(type, out->data, i, x);
    // Rounding may reach b, which the interval excludes.
    if (uniform && b > a && vt_number_load(type, out->data, i) >= b)
      vt_number_store(type, out->data, i, a);
  }
  return VT_OK;
}
