// SPDX-License-Identifier: Apache-2.0
// fft_plan.c - plans of Fourier transforms: radices, roots, and the tables of Bluestein's
// algorithm.
#include <complex.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "host/cpu.h"
#include "host/fft.h"

typedef double complex zdouble;

// Radices with specialized code are 2, 3, 4, 5, 8; larger primes up to this use a general pass,
// whose work is quadratic. Lengths with larger primes use Bluestein's algorithm.
enum { MOST_RADIX = 31, MIN_SPLIT = 64 };

static zdouble root(int64_t k, int64_t n) {
  double angle = -2.0 * M_PI * (double)k / (double)n;
  return cos(angle) + sin(angle) * I;
}

static void *table(vt_arena *arena, int64_t count, bool wide) {
  return vt_arena_push_aligned(arena, (size_t)(count + 16) * (wide ? 16 : 8), 64);
}

static void put(void *numbers, int64_t at, bool wide, zdouble x) {
  if (wide)
    memcpy((double *)numbers + 2 * at, &(double[]){creal(x), cimag(x)}, 16);
  else
    memcpy((float *)numbers + 2 * at, &(float[]){(float)creal(x), (float)cimag(x)}, 8);
}

const void *vt_fft_roots(vt_arena *arena, int64_t n, int64_t count, bool wide) {
  void *roots = table(arena, count, wide);
  for (int64_t k = 0; k < count; k++) put(roots, k, wide, root(k, n));
  return roots;
}

int64_t vt_fft_short(bool wide) {
  return wide ? 4096 : 8192;
}

// The radices of n into `radix`; 0 when a prime factor is too large.
static int32_t factor(int64_t n, int32_t *radix) {
  int32_t count = 0;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) twos++;
  // An odd power of two uses one pass of radix 8 rather than one of radix 2 besides those of 4.
  if (twos % 2 && twos >= 3) radix[count++] = 8, twos -= 3;
  for (; twos >= 2; twos -= 2) radix[count++] = 4;
  if (twos) radix[count++] = 2;
  for (int32_t p = 3; p <= MOST_RADIX; p += 2)
    for (; n % p == 0; n /= p) radix[count++] = p;
  return n == 1 ? count : 0;
}

// Approximate element-ops of a transform.
static double cost_of(int64_t n) {
  int32_t radix[VT_FFT_PASSES], count = factor(n, radix);
  if (n > 1 && !count) return INFINITY;
  double cost = 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t r = radix[i];
    cost += r > 5 && r != 8 ? 2.0 * r : r == 4 || r == 8 ? 6 : 5 + r;
  }
  return cost * (double)n;
}

static void add_passes(vt_arena *arena, vt_fft *p) {
  vt_assert(cost_of(p->n) < INFINITY);
  p->passes = factor(p->n, p->radix);
  int64_t done = 1;
  for (int32_t i = 0; i < p->passes; i++) {
    int32_t r = p->radix[i];
    int64_t left = p->n / (done * r);
    void *twiddles = table(arena, left * (r - 1), p->wide);
    for (int64_t k = 0; k < left; k++)
      for (int32_t j = 1; j < r; j++)
        put(twiddles, k * (r - 1) + j - 1, p->wide, root(j * done * k, p->n));
    p->twiddles[i] = twiddles;
    p->roots[i] = vt_fft_roots(arena, r, r, p->wide);
    done *= r;
  }
  vt_assert(done == p->n);
}

// The forward transform of n points `step` apart, for tables only; roots of the whole length n *
// step.
static void transform(int64_t n, int64_t step, const zdouble *roots, const zdouble *in,
                      zdouble *out, zdouble *spare) {
  vt_assert(n >= 1 && step >= 1);
  if (n == 1) {
    *out = *in;
    return;
  }
  int64_t r = 2;
  while (n % r) r++;
  int64_t m = n / r;
  for (int64_t j = 0; j < r; j++)
    transform(m, step * r, roots, in + j * step, spare + j * m, out + j * m);
  for (int64_t k = 0; k < n; k++) {
    zdouble sum = 0;
    for (int64_t j = 0; j < r; j++) sum += spare[j * m + k % m] * roots[j * k % n * step];
    out[k] = sum;
  }
}

// The cheapest length for a convolution of at least `least` points.
static int64_t convolution_length(int64_t least) {
  int64_t best = 1;
  while (best < least) best *= 2;
  for (int64_t fives = 1; fives < best; fives *= 5)
    for (int64_t threes = fives; threes < best; threes *= 3) {
      int64_t n = threes;
      while (n < least) n *= 2;
      if (cost_of(n) < cost_of(best)) best = n;
    }
  return best;
}

static void add_bluestein(vt_arena *arena, vt_fft *p, bool split) {
  int64_t n = p->n, m = convolution_length(2 * n - 1);
  vt_assert(m >= 2 * n - 1 && cost_of(m) < INFINITY);
  p->inner = vt_fft_make(arena, m, p->wide, split);
  vt_arena scratch = {0};
  zdouble *kernel = VT_NEW_ARRAY(&scratch, zdouble, m), *out = VT_NEW_ARRAY(&scratch, zdouble, m),
          *spare = VT_NEW_ARRAY(&scratch, zdouble, m), *roots = VT_NEW_ARRAY(&scratch, zdouble, m);
  void *chirp = table(arena, n, p->wide), *spectrum = table(arena, m, p->wide);
  for (int64_t k = 0; k < n; k++) {
    // k^2 mod 2n keeps the angle small and exact.
    zdouble c = root((int64_t)((__uint128_t)k * (uint64_t)k % (uint64_t)(2 * n)), 2 * n);
    put(chirp, k, p->wide, c);
    kernel[k] = conj(c);
    if (k) kernel[m - k] = kernel[k];
  }
  for (int64_t k = 0; k < m; k++) roots[k] = root(k, m);
  transform(m, 1, roots, kernel, out, spare);
  for (int64_t k = 0; k < m; k++) put(spectrum, k, p->wide, out[k] / (double)m);
  p->chirp = chirp;
  p->kernel = spectrum;
  vt_arena_free(&scratch);
}

// The factor of n nearest to its square root, 1 for a prime.
static int64_t middle_factor(int64_t n) {
  int64_t best = 1;
  for (int64_t f = 2; f * f <= n; f++)
    if (n % f == 0) best = f;
  return best;
}

static bool add_matrix(vt_arena *arena, vt_fft *p) {
  int64_t rows = middle_factor(p->n), columns = p->n / rows;
  if (p->n < MIN_SPLIT || rows < 8 || cost_of(p->n) == INFINITY) return false;
  p->columns = vt_fft_make(arena, columns, p->wide, false);
  p->rows = vt_fft_make(arena, rows, p->wide, false);
  void *turns = table(arena, p->n, p->wide);
  for (int64_t k = 0; k < columns; k++)
    for (int64_t j = 0; j < rows; j++) put(turns, k * rows + j, p->wide, root(k * j, p->n));
  p->turns = turns;
  return true;
}

const vt_fft *vt_fft_make(vt_arena *arena, int64_t n, bool wide, bool split) {
  vt_assert(n >= 1);
  vt_fft *p = VT_NEW(arena, vt_fft);
  *p = (vt_fft){.n = n, .wide = wide};
  if (split && add_matrix(arena, p)) return p;
  if (n > 1 && cost_of(n) == INFINITY)
    add_bluestein(arena, p, split);
  else
    add_passes(arena, p);
  return p;
}

int64_t vt_fft_scratch(const vt_fft *plan) {
  int64_t n = plan->inner ? plan->inner->n : plan->n;
  return 2 * (n + 1) * 2 * 64; // two lines of vectors of the largest size, a spectrum with its end
}

const vt_fft_code *vt_fft_code_v2(bool wide);
const vt_fft_code *vt_fft_code_v3(bool wide);
const vt_fft_code *vt_fft_code_v4(bool wide);

const vt_fft_code *vt_fft_code_of(bool wide) {
  return VT_OF_LEVEL(vt_fft_code)(wide);
}
