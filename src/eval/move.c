// SPDX-License-Identifier: Apache-2.0
// move.c - copies between strided arrays: the engine of broadcast, transpose, slice, pad and
// similar ops.
//
// Dimensions are merged where both sides allow it, the last one runs in a tight loop (a memcpy, a
// fill, or a strided copy), and two dimensions that are swapped are copied in tiles that fit L1.
#include <string.h>

#include "base/check.h"
#include "eval/kernel.h"

enum { TILE = 32 };

typedef struct plane {
  int64_t n, from, to; // size and strides in elements
} plane;

#define ROW_LOOPS(T)                                                                               \
  static void row_##T(int64_t n, const T *from, int64_t from_stride, T *to, int64_t to_stride) {   \
    if (to_stride == 1 && from_stride == 0) {                                                      \
      T x = *from;                                                                                 \
      for (int64_t i = 0; i < n; i++) to[i] = x;                                                   \
    } else if (to_stride == 1) {                                                                   \
      for (int64_t i = 0; i < n; i++) to[i] = from[i * from_stride];                               \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++) to[i * to_stride] = from[i * from_stride];                   \
    }                                                                                              \
  }                                                                                                \
  static void tile_##T(plane a, plane b, const T *from, T *to) {                                   \
    for (int64_t i0 = 0; i0 < a.n; i0 += TILE) {                                                   \
      int64_t i1 = a.n - i0 < TILE ? a.n : i0 + TILE;                                              \
      for (int64_t j0 = 0; j0 < b.n; j0 += TILE) {                                                 \
        int64_t j1 = b.n - j0 < TILE ? b.n : j0 + TILE;                                            \
        for (int64_t i = i0; i < i1; i++)                                                          \
          for (int64_t j = j0; j < j1; j++)                                                        \
            to[i * a.to + j * b.to] = from[i * a.from + j * b.from];                               \
      }                                                                                            \
    }                                                                                              \
  }
typedef struct sixteen {
  uint64_t low, high;
} sixteen;
ROW_LOOPS(uint8_t)
ROW_LOOPS(uint16_t)
ROW_LOOPS(uint32_t)
ROW_LOOPS(uint64_t)
ROW_LOOPS(sixteen)

static void copy_row(size_t bytes, plane p, const char *from, char *to) {
  vt_assert(bytes <= 16 && !(bytes & (bytes - 1)) && p.n >= 1);
  if (p.from == 1 && p.to == 1) {
    memmove(to, from, (size_t)p.n * bytes);
    return;
  }
  const void *x = from;
  void *y = to;
  switch (bytes) {
  case 1:
    row_uint8_t(p.n, x, p.from, y, p.to);
    break;
  case 2:
    row_uint16_t(p.n, x, p.from, y, p.to);
    break;
  case 4:
    row_uint32_t(p.n, x, p.from, y, p.to);
    break;
  case 8:
    row_uint64_t(p.n, x, p.from, y, p.to);
    break;
  default:
    row_sixteen(p.n, x, p.from, y, p.to);
    break;
  }
}

static void copy_tile(size_t bytes, plane a, plane b, const char *from, char *to) {
  const void *x = from;
  void *y = to;
  switch (bytes) {
  case 1:
    tile_uint8_t(a, b, x, y);
    break;
  case 2:
    tile_uint16_t(a, b, x, y);
    break;
  case 4:
    tile_uint32_t(a, b, x, y);
    break;
  case 8:
    tile_uint64_t(a, b, x, y);
    break;
  default:
    tile_sixteen(a, b, x, y);
    break;
  }
}

// Drops dimensions of size 1 and merges neighbours. Returns the new rank, -1 when there is nothing
// to copy.
static int32_t simplify(int32_t rank, const int64_t *dims, const int64_t *from, const int64_t *to,
                        plane *out) {
  vt_assert(rank >= 0 && rank <= VT_MAX_RANK);
  int32_t n = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (dims[i] <= 0) return -1;
    if (dims[i] == 1) continue;
    if (n && out[n - 1].from == from[i] * dims[i] && out[n - 1].to == to[i] * dims[i])
      out[n - 1] = (plane){out[n - 1].n * dims[i], from[i], to[i]};
    else
      out[n++] = (plane){dims[i], from[i], to[i]};
  }
  return n;
}

void vt_eval_move(size_t bytes, int32_t rank, const int64_t *dims, const void *from_,
                  const int64_t *from_strides, void *to_, const int64_t *to_strides) {
  plane p[VT_MAX_RANK];
  int64_t at[VT_MAX_RANK] = {0};
  const char *from = from_;
  char *to = to_;
  int32_t n = simplify(rank, dims, from_strides, to_strides, p);
  if (n < 0 || !bytes) return;
  if (n == 0) {
    memmove(to, from, bytes);
    return;
  }
  plane inner = p[n - 1], swapped = {0};
  int32_t outer = n - 1;
  // A dimension that is contiguous in the source where the last one is not: copy both together in
  // tiles.
  if (inner.from != 1 && inner.from != 0 && inner.n > 4) {
    for (int32_t i = 0; i + 1 < n; i++) {
      if (p[i].from != 1 || p[i].n <= 4) continue;
      swapped = p[i];
      for (int32_t j = i; j + 2 < n; j++) p[j] = p[j + 1];
      outer = n - 2;
      break;
    }
  }
  for (;;) {
    if (swapped.n)
      copy_tile(bytes, swapped, inner, from, to);
    else
      copy_row(bytes, inner, from, to);
    int32_t d = outer;
    while (d-- > 0) {
      from += p[d].from * (int64_t)bytes;
      to += p[d].to * (int64_t)bytes;
      if (++at[d] < p[d].n) break;
      from -= p[d].from * p[d].n * (int64_t)bytes;
      to -= p[d].to * p[d].n * (int64_t)bytes;
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

bool vt_eval_next(int32_t rank, const int64_t *dims, int64_t *index) {
  vt_assert_each(i, rank, index[i] >= 0);
  for (int32_t d = rank; d-- > 0;) {
    if (++index[d] < dims[d]) return true;
    index[d] = 0;
  }
  return false;
}
