// SPDX-License-Identifier: Apache-2.0
// published.h - the programs of published measurements, as StableHLO.
#ifndef VT_RUNTIME_PUBLISHED_H
#define VT_RUNTIME_PUBLISHED_H

#include <stdint.h>

#include "base/text.h"

// As chip/time/published.def describes them.
typedef enum vt_published_kind {
  VT_PUBLISHED_PRODUCT,
  VT_PUBLISHED_PRODUCT_F16,
  VT_PUBLISHED_ADD,
  VT_PUBLISHED_RELU,
  VT_PUBLISHED_SIGMOID,
  VT_PUBLISHED_TANH,
  VT_PUBLISHED_ELU,
  VT_PUBLISHED_NORM,
  VT_PUBLISHED_GATED,
  VT_PUBLISHED_GELU,
  VT_PUBLISHED_ATTENTION,
  VT_PUBLISHED_STREAM,
  VT_PUBLISHED_TAKE,
  VT_PUBLISHED_GATHER,
  VT_PUBLISHED_SCATTER,
  VT_PUBLISHED_REDUCE,
} vt_published_kind;

void vt_published_program(vt_text *text, vt_published_kind kind, const int64_t sizes[4]);

#endif
