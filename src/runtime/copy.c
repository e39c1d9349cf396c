// SPDX-License-Identifier: Apache-2.0
// copy.c - copies between strided arrays: host arrays of any stride, rectangles of a storage.
//
// Dimensions that are contiguous in both arrays are merged, so a dense copy is one memcpy and a
// rectangle one memcpy per row. A transposed source is walked in blocks of its two strided
// dimensions to keep cache lines in use.
#include "base/check.h"
#include "runtime/runtime.h"

#include <string.h>

typedef struct plan {
  int32_t rank;
  int64_t dims[VT_MAX_RANK], dst[VT_MAX_RANK], src[VT_MAX_RANK];
  size_t element;
} plan;

// One row of n elements. Constant sizes compile to plain loads and stores.
static void copy_row(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n,
                     size_t element) {
#define COPY_AS(bytes)                                                                             \
  for (int64_t i = 0; i < n; i++) memcpy(dst + i * dst_step, src + i * src_step, bytes)
  switch (element) {
  case 1:
    COPY_AS(1);
    break;
  case 2:
    COPY_AS(2);
    break;
  case 4:
    COPY_AS(4);
    break;
  case 8:
    COPY_AS(8);
    break;
  case 16:
    COPY_AS(16);
    break;
  default:
    COPY_AS(element);
  }
#undef COPY_AS
}

static void copy_level(const plan *p, int32_t level, char *dst, const char *src) {
  vt_assert(level >= 0 && level < p->rank);
  int64_t n = p->dims[level];
  if (level == p->rank - 1) {
    if (p->dst[level] == (int64_t)p->element && p->src[level] == (int64_t)p->element)
      memcpy(dst, src, (size_t)n * p->element);
    else
      copy_row(dst, p->dst[level], src, p->src[level], n, p->element);
    return;
  }
  enum { BLOCK = 32 };
  if (level == p->rank - 2 && p->src[level] == (int64_t)p->element && n >= BLOCK &&
      p->dims[level + 1] >= BLOCK) { // a transpose of the last two
    int64_t m = p->dims[level + 1];
    for (int64_t j = 0; j < m; j += BLOCK)
      for (int64_t i = 0; i < n; i++)
        copy_row(dst + i * p->dst[level] + j * p->dst[level + 1], p->dst[level + 1],
                 src + i * p->src[level] + j * p->src[level + 1], p->src[level + 1],
                 m - j < BLOCK ? m - j : BLOCK, p->element);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    copy_level(p, level + 1, dst + i * p->dst[level], src + i * p->src[level]);
}

void vt_copy_strided(int32_t rank, const int64_t *dims, size_t element_bytes, void *dst,
                     const int64_t *dst_strides, const void *src, const int64_t *src_strides) {
  vt_assert_each(i, rank, dims[i] >= 0);
  vt_assert(rank >= 0 && rank <= VT_MAX_RANK);
  plan p = {.element = element_bytes};
  for (int32_t i = 0; i < rank; i++) {
    if (dims[i] == 0) return;
    if (dims[i] == 1) continue;
    int32_t last = p.rank - 1;
    if (last >= 0 && p.dst[last] == dst_strides[i] * dims[i] &&
        p.src[last] == src_strides[i] * dims[i]) {
      p.dims[last] *= dims[i];
      p.dst[last] = dst_strides[i];
      p.src[last] = src_strides[i];
      continue;
    }
    p.dims[p.rank] = dims[i];
    p.dst[p.rank] = dst_strides[i];
    p.src[p.rank] = src_strides[i];
    p.rank++;
  }
  if (p.rank == 0)
    memcpy(dst, src, element_bytes);
  else
    copy_level(&p, 0, dst, src);
}
