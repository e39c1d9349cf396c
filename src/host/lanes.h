// SPDX-License-Identifier: Apache-2.0
// lanes.h - arrays of lines in the lanes of vectors. No include guard: included once for each
// precision, with REAL, LANES of them per vector, and NAME to make names.
//
// Number i of line l is lane l of vector i, so code for one line processes as many lines as there
// are lanes.
#include <stdint.h>

#ifndef LANES_PASTE
#define LANES_PASTE2(a, b) a##_##b
#define LANES_PASTE(a, b)  LANES_PASTE2(a, b)

// Where element i of a shuffle of two vectors comes from.
#define LOW(s, i)    ((i) & (s) ? (i) - (s) + LANES : (i))
#define HIGH(s, i)   ((i) & (s) ? (i) + LANES : (i) + (s))
#define EVEN(s, i)   (2 * (i))
#define ODD(s, i)    (2 * (i) + 1)
#define FIRST(s, i)  ((i) / 2 + ((i) & 1 ? LANES : 0))
#define SECOND(s, i) ((i) / 2 + LANES / 2 + ((i) & 1 ? LANES : 0))
#define EACH2(f, s)  f(s, 0), f(s, 1)
#define EACH4(f, s)  EACH2(f, s), f(s, 2), f(s, 3)
#define EACH8(f, s)  EACH4(f, s), f(s, 4), f(s, 5), f(s, 6), f(s, 7)
#define EACH16(f, s)                                                                               \
  EACH8(f, s), f(s, 8), f(s, 9), f(s, 10), f(s, 11), f(s, 12), f(s, 13), f(s, 14), f(s, 15)
#endif

#if LANES == 16
#define EACH EACH16
#elif LANES == 8
#define EACH EACH8
#elif LANES == 4
#define EACH EACH4
#else
#define EACH EACH2
#endif

typedef REAL NAME(vec) __attribute__((vector_size(sizeof(REAL) * LANES)));
typedef NAME(vec) NAME(loose) __attribute__((aligned(sizeof(REAL)), may_alias));

// Transposes LANES vectors in place: stage by stage, rows and columns swap one bit of their index.
static inline void NAME(transpose)(NAME(vec) * x) {
#define SWAP(s)                                                                                    \
  for (int r = 0; r < LANES; r++) {                                                                \
    if (r & s) continue;                                                                           \
    NAME(vec) a = x[r], b = x[r + s];                                                              \
    x[r] = __builtin_shufflevector(a, b, EACH(LOW, s));                                            \
    x[r + s] = __builtin_shufflevector(a, b, EACH(HIGH, s));                                       \
  }
  SWAP(1)
#if LANES > 2
  SWAP(2)
#endif
#if LANES > 4
  SWAP(4)
#endif
#if LANES > 8
  SWAP(8)
#endif
#undef SWAP
}

// to[i] = number i of each line, for i < n. Line l begins at in + at[l]; lanes without a line get
// the first one.
static void NAME(turn_in)(int32_t count, const REAL *in, const int64_t *at, int64_t n,
                          NAME(vec) * to) {
  const REAL *lines[LANES];
  for (int l = 0; l < LANES; l++) lines[l] = in + at[l < count ? l : 0];
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int l = 0; l < LANES; l++) to[i + l] = *(const NAME(loose) *)(lines[l] + i);
    NAME(transpose)(to + i);
    if (i + LANES < n && i + 2 * LANES > n) i = n - 2 * LANES; // the rest with some of these
  }
  for (; i < n; i++)
    for (int l = 0; l < LANES; l++) to[i][l] = lines[l][i];
}

// The reverse, times `scale`.
static void NAME(turn_out)(int32_t count, REAL *out, const int64_t *at, int64_t n,
                           const NAME(vec) * from, REAL scale) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    NAME(vec) x[LANES];
    for (int l = 0; l < LANES; l++) x[l] = from[i + l] * scale;
    NAME(transpose)(x);
    for (int l = 0; l < count; l++) *(NAME(loose) *)(out + at[l] + i) = x[l];
    if (i + LANES < n && i + 2 * LANES > n) i = n - 2 * LANES; // likewise
  }
  for (; i < n; i++)
    for (int l = 0; l < count; l++) out[at[l] + i] = from[i][l] * scale;
}
