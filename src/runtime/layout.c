// SPDX-License-Identifier: Apache-2.0
// layout.c - the order in which the dimensions of an array lie in HBM, minor to major: "{0,1}".
//
// Arrays report it, and it determines their size in the HBM account; host memory is row-major
// regardless. If neither program nor caller specifies one, an array on the device or in pinned
// memory has the order with the least tile padding.
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime_internal.h"

bool vt_layout_read(const char *text, int32_t rank, int32_t *out_order) {
  uint64_t seen = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (*text != (i ? ',' : '{')) return false;
    char *end = NULL;
    long d = strtol(text + 1, &end, 10);
    if (end == text + 1 || d < 0 || d >= rank || (seen >> d & 1)) return false;
    seen |= (uint64_t)1 << d;
    out_order[i] = (int32_t)d;
    text = end;
  }
  return rank ? *text == '}' || *text == ':' : *text == '{';
}

void vt_layout_put(const int32_t *order, int32_t rank, vt_text *text) {
  _Static_assert(VT_MAX_RANK <= 100, "two digits");
  char all[3 * VT_MAX_RANK + 2];
  size_t size = 0;
  for (int32_t i = 0; i < rank; i++) {
    all[size++] = i ? ',' : '{';
    if (order[i] >= 10) all[size++] = (char)('0' + order[i] / 10);
    all[size++] = (char)('0' + order[i] % 10);
  }
  if (!rank) all[size++] = '{';
  all[size++] = '}';
  vt_text_put_n(text, all, size);
}

void vt_layout_default(const vt_chip *chip, vt_memory_kind kind, vt_type type, int32_t *out_order) {
  if (kind != VT_MEMORY_UNPINNED_HOST) {
    vt_chip_compact_order(chip, type, out_order);
    return;
  }
  for (int32_t i = 0; i < type.rank; i++) out_order[i] = type.rank - 1 - i;
}

bool vt_layout_is_default(const vt_chip *chip, vt_memory_kind kind, vt_type type,
                          const char *layout) {
  int32_t order[VT_MAX_RANK];
  vt_text text = {0};
  vt_layout_default(chip, kind, type, order);
  vt_layout_put(order, type.rank, &text);
  bool same = !strcmp(vt_text_string(&text), layout);
  vt_text_free(&text);
  return same;
}

int64_t vt_layout_bytes(const vt_chip *chip, vt_memory_kind kind, vt_type type,
                        const char *layout) {
  int32_t order[VT_MAX_RANK];
  if (kind != VT_MEMORY_DEVICE) return 0;
  if (!layout || !vt_layout_read(layout, type.rank, order))
    return vt_chip_compact_bytes(chip, type);
  return vt_chip_padded_bytes(chip, type, order);
}
