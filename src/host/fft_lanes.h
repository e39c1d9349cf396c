// SPDX-License-Identifier: Apache-2.0
// fft_lanes.h - the body of fft_lanes.c for one precision; same macros as lanes.h. No include
// guard.
//
// One pass of radix r over l groups: point i of row j of group k, in[(k * r + j) * left + i],
// becomes out[(j * l + k) * left + i], times its twiddle factor.

#include "host/lanes.h"

typedef struct NAME(point) {
  NAME(vec) re, im;
} NAME(point);
#define VEC   NAME(vec)
#define POINT NAME(point)

static inline POINT NAME(plus)(POINT a, POINT b) {
  return (POINT){a.re + b.re, a.im + b.im};
}
static inline POINT NAME(minus)(POINT a, POINT b) {
  return (POINT){a.re - b.re, a.im - b.im};
}
static inline POINT NAME(turned)(POINT a) { // times -i
  return (POINT){a.im, -a.re};
}
static inline POINT NAME(times)(POINT a, const REAL *w) {
  return (POINT){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]};
}
static inline POINT NAME(scaled)(POINT a, REAL x) {
  return (POINT){a.re * x, a.im * x};
}
#define PLUS(a, b)  NAME(plus)(a, b)
#define MINUS(a, b) NAME(minus)(a, b)

// ---- Passes. Each butterfly turns the points x[0..r) into their transform.

static inline void NAME(fly2)(POINT *x) {
  POINT a = x[0];
  x[0] = PLUS(a, x[1]);
  x[1] = MINUS(a, x[1]);
}

static inline void NAME(fly3)(POINT *x) {
  const REAL sine = (REAL)0.86602540378443864676; // of 2 pi / 3
  POINT sum = PLUS(x[1], x[2]), turn = NAME(scaled)(NAME(turned)(MINUS(x[1], x[2])), sine);
  POINT half = MINUS(x[0], NAME(scaled)(sum, (REAL)0.5));
  x[0] = PLUS(x[0], sum);
  x[1] = PLUS(half, turn);
  x[2] = MINUS(half, turn);
}

static inline void NAME(fly4)(POINT *x) {
  POINT a = PLUS(x[0], x[2]), b = MINUS(x[0], x[2]), c = PLUS(x[1], x[3]),
        d = NAME(turned)(MINUS(x[1], x[3]));
  x[0] = PLUS(a, c);
  x[1] = PLUS(b, d);
  x[2] = MINUS(a, c);
  x[3] = MINUS(b, d);
}

static inline void NAME(fly5)(POINT *x) {
  // Cosine and sine of 2 pi / 5 and of 4 pi / 5.
  const REAL c1 = (REAL)0.30901699437494742410, c2 = (REAL)-0.80901699437494742410;
  const REAL s1 = (REAL)0.95105651629515357212, s2 = (REAL)0.58778525229247312917;
  POINT p = PLUS(x[1], x[4]), q = PLUS(x[2], x[3]);
  POINT m = NAME(turned)(MINUS(x[1], x[4])), o = NAME(turned)(MINUS(x[2], x[3]));
  POINT a = PLUS(x[0], PLUS(NAME(scaled)(p, c1), NAME(scaled)(q, c2)));
  POINT b = PLUS(x[0], PLUS(NAME(scaled)(p, c2), NAME(scaled)(q, c1)));
  POINT u = PLUS(NAME(scaled)(m, s1), NAME(scaled)(o, s2));
  POINT v = MINUS(NAME(scaled)(m, s2), NAME(scaled)(o, s1));
  x[0] = PLUS(x[0], PLUS(p, q));
  x[1] = PLUS(a, u);
  x[2] = PLUS(b, v);
  x[3] = MINUS(b, v);
  x[4] = MINUS(a, u);
}

static inline void NAME(fly8)(POINT *x) {
  const REAL h = (REAL)0.70710678118654752440;
  POINT even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
  NAME(fly4)(even);
  NAME(fly4)(odd);
  POINT a = odd[1], b = odd[3];
  odd[1] = NAME(scaled)((POINT){a.re + a.im, a.im - a.re}, h);
  odd[2] = NAME(turned)(odd[2]);
  odd[3] = NAME(scaled)((POINT){b.im - b.re, -b.im - b.re}, h);
  for (int j = 0; j < 4; j++) {
    x[j] = PLUS(even[j], odd[j]);
    x[j + 4] = MINUS(even[j], odd[j]);
  }
}

#define PASS(r)                                                                                    \
  static void NAME(pass##r)(int64_t groups, int64_t left, const POINT *restrict in,                \
                            POINT *restrict out, const REAL *w) {                                  \
    for (int64_t k = 0; k < groups; k++)                                                           \
      for (int64_t i = 0; i < left; i++) {                                                         \
        POINT x[r];                                                                                \
        for (int j = 0; j < r; j++) x[j] = in[(k * r + j) * left + i];                             \
        NAME(fly##r)(x);                                                                           \
        out[k * left + i] = x[0];                                                                  \
        for (int j = 1; j < r; j++)                                                                \
          out[(j * groups + k) * left + i] =                                                       \
              left == 1 ? x[j] : NAME(times)(x[j], w + 2 * (i * (r - 1) + j - 1));                 \
      }                                                                                            \
  }
PASS(2)
PASS(3)
PASS(4)
PASS(5)
PASS(8)
#undef PASS

// Any odd radix: pairs of points from both ends share their products.
static void NAME(pass)(int32_t r, int64_t groups, int64_t left, const POINT *restrict in,
                       POINT *restrict out, const REAL *w, const REAL *roots) {
  for (int64_t k = 0; k < groups; k++)
    for (int64_t i = 0; i < left; i++) {
      POINT sums[16], turns[16], first = in[k * r * left + i], total = first;
      for (int32_t j = 1; j <= r / 2; j++) {
        POINT a = in[(k * r + j) * left + i], b = in[(k * r + r - j) * left + i];
        sums[j] = PLUS(a, b);
        turns[j] = NAME(turned)(MINUS(a, b));
        total = PLUS(total, sums[j]);
      }
      out[k * left + i] = total;
      for (int32_t f = 1; f <= r / 2; f++) {
        POINT even = first, odd = {0};
        for (int32_t j = 1, at = f; j <= r / 2; j++, at += at + f >= r ? f - r : f) {
          even = PLUS(even, NAME(scaled)(sums[j], roots[2 * at]));
          odd = PLUS(odd, NAME(scaled)(turns[j], -roots[2 * at + 1]));
        }
        const REAL *turn = w + 2 * (i * (r - 1) + f - 1), *back = w + 2 * (i * (r - 1) + r - f - 1);
        POINT up = PLUS(even, odd), down = MINUS(even, odd);
        out[(f * groups + k) * left + i] = left == 1 ? up : NAME(times)(up, turn);
        out[((r - f) * groups + k) * left + i] = left == 1 ? down : NAME(times)(down, back);
      }
    }
}

// Runs all passes, alternating between two lines; returns the one that holds the result.
static POINT *NAME(passes)(const vt_fft *p, POINT *from, POINT *to) {
  int64_t groups = 1;
  for (int32_t i = 0; i < p->passes; i++) {
    int32_t r = p->radix[i];
    int64_t left = p->n / (groups * r);
    const REAL *w = p->twiddles[i];
    switch (r) {
    case 2:
      NAME(pass2)(groups, left, from, to, w);
      break;
    case 3:
      NAME(pass3)(groups, left, from, to, w);
      break;
    case 4:
      NAME(pass4)(groups, left, from, to, w);
      break;
    case 5:
      NAME(pass5)(groups, left, from, to, w);
      break;
    case 8:
      NAME(pass8)(groups, left, from, to, w);
      break;
    default:
      NAME(pass)(r, groups, left, from, to, w, p->roots[i]);
    }
    POINT *swap = from;
    from = to;
    to = swap;
    groups *= r;
  }
  return from;
}

// Bluestein: the transform of n points as a convolution with a chirp by transforms of length m. The
// inverse one is a forward one of conjugates.
static POINT *NAME(bluestein)(const vt_fft *p, POINT *from, POINT *to) {
  const REAL *chirp = p->chirp, *kernel = p->kernel;
  int64_t n = p->n, m = p->inner->n;
  for (int64_t k = 0; k < n; k++) from[k] = NAME(times)(from[k], chirp + 2 * k);
  memset((void *)(from + n), 0, sizeof *from * (size_t)(m - n));
  POINT *x = NAME(passes)(p->inner, from, to);
  for (int64_t k = 0; k < m; k++) {
    POINT y = NAME(times)(x[k], kernel + 2 * k);
    x[k] = (POINT){y.re, -y.im};
  }
  x = NAME(passes)(p->inner, x, x == from ? to : from);
  for (int64_t k = 0; k < n; k++) x[k] = NAME(times)((POINT){x[k].re, -x[k].im}, chirp + 2 * k);
  return x;
}

// ---- Reading and writing lines.

static bool NAME(side_by_side)(const int64_t *at, int32_t lines) {
  for (int32_t l = 1; l < lines; l++)
    if (at[l] != at[0] + 2 * l) return false;
  return lines == LANES;
}

// Complex lines of n points.
static void NAME(read)(const vt_fft_group *g, int64_t n, POINT *to) {
  if (g->in_step == 2) {
    NAME(turn_in)(g->lines, g->in, g->in_at, 2 * n, (VEC *)to);
    return;
  }
  const REAL *in = g->in;
  bool together = NAME(side_by_side)(g->in_at, g->lines);
  for (int64_t i = 0; i < n; i++) {
    if (together) {
      const REAL *at = in + g->in_at[0] + i * g->in_step;
      VEC a = *(const NAME(loose) *)at, b = *(const NAME(loose) *)(at + LANES);
      to[i].re = __builtin_shufflevector(a, b, EACH(EVEN, 0));
      to[i].im = __builtin_shufflevector(a, b, EACH(ODD, 0));
      continue;
    }
    for (int l = 0; l < LANES; l++) {
      const REAL *at = in + g->in_at[l < g->lines ? l : 0] + i * g->in_step;
      to[i].re[l] = at[0];
      to[i].im[l] = at[1];
    }
  }
}

static void NAME(write)(const vt_fft_group *g, int64_t n, const POINT *from) {
  if (g->out_step == 2) {
    NAME(turn_out)(g->lines, g->out, g->out_at, 2 * n, (const VEC *)from, (REAL)g->scale);
    return;
  }
  REAL *out = g->out, scale = (REAL)g->scale;
  bool together = NAME(side_by_side)(g->out_at, g->lines);
  for (int64_t i = 0; i < n; i++) {
    POINT x = NAME(scaled)(from[i], scale);
    if (together) {
      REAL *at = out + g->out_at[0] + i * g->out_step;
      *(NAME(loose) *)at = __builtin_shufflevector(x.re, x.im, EACH(FIRST, 0));
      *(NAME(loose) *)(at + LANES) = __builtin_shufflevector(x.re, x.im, EACH(SECOND, 0));
      continue;
    }
    for (int l = 0; l < g->lines; l++) {
      REAL *at = out + g->out_at[l] + i * g->out_step;
      at[0] = x.re[l];
      at[1] = x.im[l];
    }
  }
}

// Swaps real and imaginary parts, which turns a forward transform into an inverse one.
static void NAME(exchange)(int64_t n, POINT *x) {
  for (int64_t i = 0; i < n; i++) x[i] = (POINT){x[i].im, x[i].re};
}

static void NAME(turn)(const vt_fft_group *g, int64_t n, POINT *x) {
  const REAL *turns = g->turns;
  for (int64_t i = 0; i < n; i++) {
    const REAL *w = turns + 2 * i * g->turns_step;
    VEC a = *(const NAME(loose) *)w, b = *(const NAME(loose) *)(w + LANES);
    VEC re = __builtin_shufflevector(a, b, EACH(EVEN, 0)),
        im = __builtin_shufflevector(a, b, EACH(ODD, 0));
    x[i] = (POINT){x[i].re * re - x[i].im * im, x[i].re * im + x[i].im * re};
  }
}

// ---- Real lines.

// Of n complex points made of 2n real ones, the spectrum of the real ones: n + 1 points.
static void NAME(halve)(int64_t n, const REAL *roots, const POINT *z, POINT *out) {
  for (int64_t k = 0; k <= n; k++) {
    POINT a = z[k == n ? 0 : k], b = z[k ? n - k : 0];
    b.im = -b.im;
    POINT even = PLUS(a, b), odd = NAME(times)(NAME(turned)(MINUS(a, b)), roots + 2 * k);
    out[k] = NAME(scaled)(PLUS(even, odd), (REAL)0.5);
  }
}

// The inverse of that, without the transform. The ends of a spectrum are taken as real.
static void NAME(join)(int64_t n, const REAL *roots, POINT *x, POINT *z) {
  x[0].im = x[n].im = (VEC){0};
  for (int64_t k = 0; k < n; k++) {
    POINT a = x[k], b = x[n - k];
    b.im = -b.im;
    REAL back[2] = {roots[2 * k], -roots[2 * k + 1]};
    POINT even = PLUS(a, b), odd = NAME(times)(MINUS(a, b), back);
    z[k] = (POINT){even.re - odd.im, even.im + odd.re};
  }
}

static POINT *NAME(load)(const vt_fft_group *g, POINT *a, POINT *b) {
  int64_t n = g->plan->n;
  switch (g->kind) {
  case VT_FFT_REAL: // backwards, as each number expands to two
    NAME(turn_in)(g->lines, g->in, g->in_at, n, (VEC *)b);
    for (int64_t i = 0; i < n; i++) a[i] = (POINT){((VEC *)b)[i], {0}};
    return a;
  case VT_FFT_JOIN:
    NAME(read)(g, n + 1, b);
    NAME(join)(n, g->half_roots, b, a);
    return a;
  case VT_FFT_ODD:
    NAME(read)(g, n / 2 + 1, a);
    a[0].im = (VEC){0};
    for (int64_t i = 1; i <= n / 2; i++) a[n - i] = (POINT){a[i].re, -a[i].im};
    return a;
  default:
    NAME(read)(g, n, a);
    return a;
  }
}

static void NAME(store)(const vt_fft_group *g, POINT *x, POINT *spare) {
  int64_t n = g->plan->n;
  switch (g->kind) {
  case VT_FFT_HALVE:
    NAME(halve)(n, g->half_roots, x, spare);
    NAME(write)(g, n + 1, spare);
    break;
  case VT_FFT_REAL:
    NAME(write)(g, n / 2 + 1, x);
    break;
  case VT_FFT_ODD:
    for (int64_t i = 0; i < n; i++) ((VEC *)spare)[i] = x[i].re;
    NAME(turn_out)(g->lines, g->out, g->out_at, n, (VEC *)spare, (REAL)g->scale);
    break;
  default:
    NAME(write)(g, n, x);
  }
}

static void NAME(run)(const vt_fft_group *g, void *scratch) {
  const vt_fft *p = g->plan;
  int64_t room = (p->inner ? p->inner->n : p->n) + 1;
  POINT *a = scratch, *b = a + room, *x = NAME(load)(g, a, b);
  if (g->inverse) NAME(exchange)(p->n, x);
  x = p->inner ? NAME(bluestein)(p, x, b) : NAME(passes)(p, x, b);
  if (g->turns) NAME(turn)(g, p->n, x);
  if (g->inverse) NAME(exchange)(p->n, x);
  NAME(store)(g, x, x == a ? b : a);
}

// ---- Split lines: one at a time, as pairs of numbers.

static void NAME(load_line)(const vt_fft_group *g, int64_t n, void *line) {
  const REAL *in = (const REAL *)g->in + g->in_at[0], *roots = g->half_roots;
  REAL(*x)[2] = line;
  int64_t step = g->in_step;
  for (int64_t k = 0; k < n; k++) {
    const REAL *a = in + k * step, *b = in + (n - k) * step;
    switch (g->kind) {
    case VT_FFT_REAL:
      x[k][0] = in[k], x[k][1] = 0;
      break;
    case VT_FFT_JOIN: {
      REAL a_im = k ? a[1] : 0, b_im = k ? b[1] : 0, c = roots[2 * k], s = -roots[2 * k + 1];
      REAL re = a[0] - b[0], im = a_im + b_im, odd_re = re * c - im * s, odd_im = re * s + im * c;
      x[k][0] = a[0] + b[0] - odd_im;
      x[k][1] = a_im - b_im + odd_re;
      break;
    }
    case VT_FFT_ODD:
      x[k][0] = 2 * k < n ? a[0] : b[0];
      x[k][1] = !k ? 0 : 2 * k < n ? a[1] : -b[1];
      break;
    default:
      x[k][0] = a[0], x[k][1] = a[1];
    }
  }
}

static void NAME(store_line)(const vt_fft_group *g, int64_t n, void *line) {
  REAL *out = (REAL *)g->out + g->out_at[0], scale = (REAL)g->scale;
  const REAL *roots = g->half_roots, *z = line;
  int64_t step = g->out_step;
  bool half = g->kind == VT_FFT_HALVE;
  int64_t count = half ? n + 1 : g->kind == VT_FFT_REAL ? n / 2 + 1 : n;
  for (int64_t k = 0; k < count; k++) {
    if (g->kind == VT_FFT_ODD) {
      out[k] = z[2 * k] * scale;
      continue;
    }
    REAL re, im;
    if (half) {
      const REAL *a = z + 2 * (k == n ? 0 : k), *b = z + 2 * (k ? n - k : 0), *w = roots + 2 * k;
      REAL turned_re = a[1] + b[1], turned_im = b[0] - a[0];
      re = (REAL)0.5 * (a[0] + b[0] + (turned_re * w[0] - turned_im * w[1]));
      im = (REAL)0.5 * (a[1] - b[1] + (turned_re * w[1] + turned_im * w[0]));
    } else {
      re = z[2 * k], im = z[2 * k + 1];
    }
    out[k * step] = re * scale;
    out[k * step + 1] = im * scale;
  }
}

static void NAME(multiply_line)(int64_t n, void *line, const void *factors, bool conjugate_first,
                                bool conjugate_last) {
  REAL(*x)[2] = line, first = conjugate_first ? -1 : 1, last = conjugate_last ? -1 : 1;
  const REAL *f = factors;
  for (int64_t k = 0; k < n; k++) {
    REAL re = x[k][0], im = x[k][1] * first;
    x[k][0] = re * f[2 * k] - im * f[2 * k + 1];
    x[k][1] = (re * f[2 * k + 1] + im * f[2 * k]) * last;
  }
}

#undef VEC
#undef POINT
#undef PLUS
#undef MINUS
