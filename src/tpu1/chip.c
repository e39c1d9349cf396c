// SPDX-License-Identifier: Apache-2.0
// chip.c - chip.def and counters.def as data. In: names and factors. Out: parameter sets, tables.
// Owns nothing.
#include "tpu1/chip.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const vt_tpu1_counter_info counters[] = {
#define COUNTER(member, unit, kind, meaning)                                                       \
  {#member, unit, meaning, VT_TPU1_COUNTER_##kind, offsetof(vt_tpu1_counters, member)},
#include "tpu1/counters.def"
};

vt_tpu1_chip vt_tpu1_chip_default(void) {
  return (vt_tpu1_chip){
#define PARAM(member, value, unit, source) .member = value,
#include "tpu1/chip.def"
  };
}

vt_status vt_tpu1_chip_scale(vt_tpu1_chip *chip, const char *name, double factor) {
  if (!(factor > 0 && factor <= 64))
    return vt_error(VT_INVALID_ARGUMENT, "parameter %s: factor %g is outside 0..64", name, factor);
  if (strcmp(name, "clock") == 0) {
    chip->clock_hz *= factor;
  } else if (strcmp(name, "memory") == 0) {
    chip->weight_bytes_per_s *= factor;
  } else if (strcmp(name, "matrix") == 0) {
    chip->dim *= factor;
    chip->drain_cycles *= factor;
    if (factor > 1) chip->ub_bytes *= factor; // the same rows, each wider: layers still fit
    if (chip->dim < 32 || chip->dim > 1024 || fmod(chip->dim, 32) != 0)
      return vt_error(VT_INVALID_ARGUMENT,
                      "parameter matrix: side %g is not a multiple of 32 in 32..1024", chip->dim);
  } else if (strcmp(name, "accumulators") == 0) {
    chip->acc_rows = floor(chip->acc_rows * factor);
    if (chip->acc_rows < 1 || chip->acc_rows > 65536)
      return vt_error(VT_INVALID_ARGUMENT, "parameter accumulators: %g rows are outside 1..65536",
                      chip->acc_rows);
  } else if (strcmp(name, "fifo") == 0) {
    chip->fifo_tiles = floor(chip->fifo_tiles * factor);
    if (chip->fifo_tiles < 1)
      return vt_error(VT_INVALID_ARGUMENT, "parameter fifo: factor %g leaves no tile", factor);
  } else {
    return vt_error(VT_INVALID_ARGUMENT,
                    "unknown parameter '%s': clock, memory, matrix, accumulators, fifo", name);
  }
  return VT_OK;
}

void vt_tpu1_chip_print(const vt_tpu1_chip *chip, vt_text *text) {
#define PARAM(member, value, unit, source)                                                         \
  vt_text_printf(text, "%-20s %14.10g %-7s %s\n", #member, chip->member, unit, source);
#include "tpu1/chip.def"
}

const vt_tpu1_counter_info *vt_tpu1_counter_get(int index) {
  return index >= 0 && index < (int)(sizeof counters / sizeof counters[0]) ? &counters[index]
                                                                           : NULL;
}

int64_t vt_tpu1_counter_value(const vt_tpu1_counters *values, const vt_tpu1_counter_info *info) {
  return *(const int64_t *)(const void *)((const char *)values + info->offset);
}

int64_t vt_tpu1_chip_cycles(const vt_tpu1_chip *chip, double seconds) {
  return (int64_t)ceil(seconds * chip->clock_hz - 1e-6);
}
