// SPDX-License-Identifier: Apache-2.0
// pack.c - strided copies with conversion. See pack.h.
// Two inner loops: rows, when the innermost target dimension is dense in the source too, and 32 x
// 32 tiles, when another dimension is. Work is split over the outer dimensions in blocks of about
// 16 Ki elements.
#include "base/check.h"
#include "host/pack.h"

#include <string.h>

#include "host/cpu.h"
#include "host/turn.h"

enum { TILE = 32, BLOCK = 16 << 10, TEAM_FROM = 256 << 10 };

static inline uint16_t to_bf16(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}
static inline uint32_t keep32(uint32_t bits) {
  return bits;
}
static inline uint32_t round32(uint32_t bits) {
  return (uint32_t)to_bf16(bits) << 16;
}
static inline uint16_t keep16(uint16_t bits) {
  return bits;
}
static inline uint32_t widen(uint16_t bits) {
  return (uint32_t)bits << 16;
}
static inline uint8_t keep8(uint8_t bits) {
  return bits;
}
static inline uint64_t keep64(uint64_t bits) {
  return bits;
}

// to[c][r] = from[r][c] in whole squares, which may reach beyond `rows` and `columns` in the tile.
#define TURN(bits, lanes)                                                                          \
  static inline void turn##bits(const uint##bits##_t *from, int64_t from_stride,                   \
                                uint##bits##_t(*to)[TILE], int64_t rows, int64_t columns) {        \
    for (int64_t c = 0; c < columns; c += lanes)                                                   \
      for (int64_t r = 0; r < rows; r += lanes)                                                    \
        vt_turn##lanes(from + r * from_stride + c, from_stride * (int64_t)sizeof *from, &to[c][r], \
                       sizeof to[c]);                                                              \
  }
TURN(8, 16)
TURN(16, 8)
TURN(32, 4)
TURN(64, 2)

// A row of `count` elements, and a tile: `count` target rows of `width`, target rows being source
// columns. Whole cache lines of either side are accessed at once: large power-of-two strides would
// otherwise evict them half used. `kept`: `convert` changes nothing.
#define KERNELS(name, source, bits, kept, convert)                                                 \
  VT_ANY_CPU static void name##_row(const void *from, int64_t from_stride, void *to,               \
                                    int64_t count) {                                               \
    const source *f = from;                                                                        \
    uint##bits##_t *t = to;                                                                        \
    if (from_stride == 1)                                                                          \
      for (int64_t i = 0; i < count; i++) t[i] = convert(f[i]);                                    \
    else                                                                                           \
      for (int64_t i = 0; i < count; i++) t[i] = convert(f[i * from_stride]);                      \
  }                                                                                                \
  VT_ANY_CPU static void name##_tile(const void *from, int64_t from_stride, void *to,              \
                                     int64_t to_stride, int64_t count, int64_t width) {            \
    const source *f = from;                                                                        \
    uint##bits##_t *t = to, lines[TILE][TILE], turned[TILE][TILE];                                 \
    if (kept && count == TILE && width == TILE) {                                                  \
      turn##bits(from, from_stride, turned, TILE, TILE);                                           \
    } else {                                                                                       \
      for (int64_t i = 0; i < width; i++)                                                          \
        for (int64_t j = 0; j < count; j++) lines[i][j] = convert(f[i * from_stride + j]);         \
      turn##bits(lines[0], TILE, turned, width, count);                                            \
    }                                                                                              \
    for (int64_t j = 0; j < count; j++)                                                            \
      if (width == TILE)                                                                           \
        memcpy(t + j * to_stride, turned[j], sizeof turned[j]);                                    \
      else                                                                                         \
        memcpy(t + j * to_stride, turned[j], (size_t)width * sizeof *t);                           \
  }
KERNELS(f32_f32, uint32_t, 32, true, keep32)
KERNELS(f32_round, uint32_t, 32, false, round32)
KERNELS(f32_bf16, uint32_t, 16, false, to_bf16)
KERNELS(bf16_f32, uint16_t, 32, false, widen)
KERNELS(bits16, uint16_t, 16, true, keep16)
KERNELS(bits8, uint8_t, 8, true, keep8)
KERNELS(bits64, uint64_t, 64, true, keep64)

typedef struct kernels {
  void (*row)(const void *from, int64_t from_stride, void *to, int64_t count);
  void (*tile)(const void *from, int64_t from_stride, void *to, int64_t to_stride, int64_t count,
               int64_t width);
} kernels;

static kernels kernels_of(const vt_pack *pack) {
  if (pack->from == VT_F32 && pack->to == VT_BF16) return (kernels){f32_bf16_row, f32_bf16_tile};
  if (pack->from == VT_BF16 && pack->to == VT_F32) return (kernels){bf16_f32_row, bf16_f32_tile};
  if (pack->from == VT_F32 && pack->round) return (kernels){f32_round_row, f32_round_tile};
  vt_assert(vt_dtype_bytes(pack->from) == vt_dtype_bytes(pack->to));
  switch (vt_dtype_bytes(pack->from)) {
  case 1:
    return (kernels){bits8_row, bits8_tile};
  case 2:
    return (kernels){bits16_row, bits16_tile};
  case 4:
    return (kernels){f32_f32_row, f32_f32_tile};
  default:
    return (kernels){bits64_row, bits64_tile};
  }
}

void vt_pack_add(vt_pack *pack, int64_t size, int64_t from_stride, int64_t to_stride) {
  if (size == 1) return;
  vt_assert(size >= 0);
  vt_assert(pack->rank < VT_PACK_RANK);
  pack->sizes[pack->rank] = size;
  pack->from_strides[pack->rank] = from_stride;
  pack->to_strides[pack->rank++] = to_stride;
}

static void swap_dims(vt_pack *pack, int32_t a, int32_t b) {
  vt_assert(a >= 0 && b >= 0 && a < pack->rank && b < pack->rank);
  int64_t *lists[] = {pack->sizes, pack->from_strides, pack->to_strides};
  for (int i = 0; i < 3; i++) {
    int64_t t = lists[i][a];
    lists[i][a] = lists[i][b];
    lists[i][b] = t;
  }
}

void vt_pack_finish(vt_pack *pack) {
  for (int32_t i = 1; i < pack->rank; i++)
    for (int32_t j = i; j > 0 && pack->to_strides[j - 1] < pack->to_strides[j]; j--)
      swap_dims(pack, j - 1, j);
  int32_t kept = 0;
  for (int32_t i = 1; i < pack->rank; i++) {
    bool joins = pack->from_strides[kept] == pack->from_strides[i] * pack->sizes[i] &&
                 pack->to_strides[kept] == pack->to_strides[i] * pack->sizes[i];
    int64_t size = joins ? pack->sizes[kept] * pack->sizes[i] : pack->sizes[i];
    if (!joins) kept++;
    pack->sizes[kept] = size;
    pack->from_strides[kept] = pack->from_strides[i];
    pack->to_strides[kept] = pack->to_strides[i];
  }
  if (pack->rank > 0) pack->rank = kept + 1;
  if (pack->rank == 0)
    vt_pack_add(pack, 1, 1, 1), pack->rank = 1, pack->sizes[0] = 1,
                                pack->from_strides[0] = pack->to_strides[0] = 1;
}

// Offsets of outer index `at` over the dimensions below `rank`, except the tiled one, if any.
static void offsets_of(const vt_pack *pack, int32_t rank, int32_t skip, int64_t at, int64_t *from,
                       int64_t *to) {
  *from = *to = 0;
  for (int32_t d = rank; d-- > 0;) {
    if (d == skip) continue;
    int64_t index = at % pack->sizes[d];
    at /= pack->sizes[d];
    *from += index * pack->from_strides[d];
    *to += index * pack->to_strides[d];
  }
}

static void run_rows(const vt_pack *pack, const char *from, char *to, kernels k, int64_t total) {
  int32_t last = pack->rank - 1;
  int64_t rows = 1, from_size = (int64_t)vt_dtype_bytes(pack->from),
          to_size = (int64_t)vt_dtype_bytes(pack->to);
  for (int32_t d = 0; d < last; d++) rows *= pack->sizes[d];
  // Long rows are split so that one row can occupy the team.
  int64_t cut = pack->sizes[last] > BLOCK ? BLOCK : pack->sizes[last];
  int64_t pieces = (pack->sizes[last] + cut - 1) / cut;
#pragma omp parallel for schedule(dynamic, vt_host_share(rows *pieces)) if (total >= TEAM_FROM)
  for (int64_t i = 0; i < rows * pieces; i++) {
    int64_t f, t, start = i % pieces * cut;
    int64_t count = pack->sizes[last] - start < cut ? pack->sizes[last] - start : cut;
    offsets_of(pack, last, -1, i / pieces, &f, &t);
    k.row(from + (f + start * pack->from_strides[last]) * from_size, pack->from_strides[last],
          to + (t + start * pack->to_strides[last]) * to_size, count);
  }
}

static void run_tiles(const vt_pack *pack, const char *from, char *to, kernels k, int32_t dense,
                      int64_t total) {
  int32_t last = pack->rank - 1;
  int64_t outer = 1, from_size = (int64_t)vt_dtype_bytes(pack->from),
          to_size = (int64_t)vt_dtype_bytes(pack->to);
  for (int32_t d = 0; d < last; d++)
    if (d != dense) outer *= pack->sizes[d];
  int64_t bands = (pack->sizes[dense] + TILE - 1) / TILE;
#pragma omp parallel for schedule(dynamic, vt_host_share(outer *bands)) if (total >= TEAM_FROM)
  for (int64_t i = 0; i < outer * bands; i++) {
    int64_t f, t, row = i % bands * TILE;
    int64_t count = pack->sizes[dense] - row < TILE ? pack->sizes[dense] - row : TILE;
    offsets_of(pack, last, dense, i / bands, &f, &t);
    f += row;
    t += row * pack->to_strides[dense];
    for (int64_t j = 0; j < pack->sizes[last]; j += TILE) {
      int64_t width = pack->sizes[last] - j < TILE ? pack->sizes[last] - j : TILE;
      k.tile(from + (f + j * pack->from_strides[last]) * from_size, pack->from_strides[last],
             to + (t + j) * to_size, pack->to_strides[dense], count, width);
    }
  }
}

void vt_pack_run(const vt_pack *pack, const void *from, void *to) {
  vt_assert(pack->rank >= 1 && pack->rank <= VT_PACK_RANK);
  vt_assert_each(d, pack->rank, pack->sizes[d] >= 0);
  int32_t last = pack->rank - 1, dense = -1;
  int64_t total = 1;
  for (int32_t d = 0; d < pack->rank; d++) total *= pack->sizes[d];
  if (total == 0) return;
  vt_assert(pack->to_strides[last] == 1 || pack->sizes[last] == 1);
  for (int32_t d = 0; d < last; d++)
    if (pack->from_strides[d] == 1) dense = d;
  kernels k = kernels_of(pack);
  from = (const char *)from + pack->from_offset * (int64_t)vt_dtype_bytes(pack->from);
  if (pack->from_strides[last] == 1 || dense < 0 || pack->sizes[last] < 4)
    run_rows(pack, from, to, k, total);
  else
    run_tiles(pack, from, to, k, dense, total);
}
