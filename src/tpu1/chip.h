// SPDX-License-Identifier: Apache-2.0
// chip.h - parameters and counters of the TPU v1 model (chip.def, counters.def).
#ifndef VT_TPU1_CHIP_H
#define VT_TPU1_CHIP_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

// All values in the units of chip.def. Plain data; copy freely.
typedef struct vt_tpu1_chip {
#define PARAM(member, value, unit, source) double member;
#include "tpu1/chip.def"
} vt_tpu1_chip;

typedef struct vt_tpu1_counters {
#define COUNTER(member, unit, kind, meaning) int64_t member;
#include "tpu1/counters.def"
} vt_tpu1_counters;

typedef enum vt_tpu1_counter_kind {
  VT_TPU1_COUNTER_TOTAL,
  VT_TPU1_COUNTER_SPLIT,
  VT_TPU1_COUNTER_OF_ACTIVE,
  VT_TPU1_COUNTER_CAUSE,
  VT_TPU1_COUNTER_UNIT,
  VT_TPU1_COUNTER_AMOUNT,
  VT_TPU1_COUNTER_PEAK,
} vt_tpu1_counter_kind;

typedef struct vt_tpu1_counter_info {
  const char *name, *unit, *meaning;
  vt_tpu1_counter_kind kind;
  size_t offset;
} vt_tpu1_counter_info;

vt_tpu1_chip vt_tpu1_chip_default(void);
// Scales one of clock, memory, matrix, accumulators, fifo. `matrix` scales the side of the array
// and with it the row width everywhere; accumulator rows stay; unified-buffer rows stay (larger) or
// its bytes do (smaller). errors INVALID_ARGUMENT: unknown name, or a factor that leaves no
// sensible chip.
vt_status vt_tpu1_chip_scale(vt_tpu1_chip *chip, const char *name, double factor) VT_CHECKED;
void vt_tpu1_chip_print(const vt_tpu1_chip *chip, vt_text *text);

// Rows of counters.def in order; NULL after the last.
const vt_tpu1_counter_info *vt_tpu1_counter_get(int index);
int64_t vt_tpu1_counter_value(const vt_tpu1_counters *counters, const vt_tpu1_counter_info *info);

static inline int64_t vt_tpu1_chip_dim(const vt_tpu1_chip *chip) {
  return (int64_t)chip->dim;
}
static inline int64_t vt_tpu1_chip_ub_rows(const vt_tpu1_chip *chip) {
  return (int64_t)(chip->ub_bytes / chip->dim);
}
static inline int64_t vt_tpu1_chip_tile_bytes(const vt_tpu1_chip *chip) {
  return (int64_t)(chip->dim * chip->dim);
}
// Seconds in clock cycles, rounded up.
int64_t vt_tpu1_chip_cycles(const vt_tpu1_chip *chip, double seconds);

#endif
