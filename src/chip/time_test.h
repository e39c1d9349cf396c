// SPDX-License-Identifier: Apache-2.0
// time_test.h - what tests of the time model share: a program's time on a slice.
#ifndef VT_CHIP_TIME_TEST_H
#define VT_CHIP_TIME_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "chip/time/time.h"
#include "import/import.h"

static const char *const slices[] = {"v2-8",  "v3-8",  "v4-8",   "v5litepod-1",
                                     "v5p-8", "v6e-1", "tpu7x-8"};
enum { SLICES = sizeof slices / sizeof *slices };

static inline vt_slice slice_of(const char *name) {
  vt_slice slice;
  vt_status st = vt_slice_from_name(name, &slice);
  if (st) fail_msg("%s", vt_status_message(st));
  return slice;
}

// Without its spans.
static inline vt_timing time_on(const vt_slice *slice, int32_t devices, const char *text) {
  vt_module *module;
  vt_arena arena = {0};
  vt_timing timing;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), text);
  vt_chip_time(slice, devices, module, NULL, &arena, &timing);
  assert_true(isfinite(timing.seconds) && timing.seconds > 0);
  assert_true(timing.joules > 0 && timing.exposed >= 0);
  double sum = timing.exposed;
  for (uint32_t i = 0; i < timing.count; i++) {
    assert_non_null(timing.spans[i].op);
    assert_true(timing.spans[i].seconds >= 0 && timing.spans[i].start >= 0);
    if (!timing.spans[i].depth) sum += timing.spans[i].seconds;
  }
  assert_true(sum >= 0.3 * timing.seconds); // the rest: results that are written at the end
  timing.spans = NULL;
  vt_module_destroy(module);
  vt_arena_free(&arena);
  return timing;
}

static inline double seconds_on(const char *slice_name, const char *text) {
  vt_slice slice = slice_of(slice_name);
  return time_on(&slice, 1, text).seconds;
}

static inline int32_t cores_of(const char *slice_name, const char *text) {
  vt_module *module;
  vt_arena arena = {0};
  vt_timing timing;
  vt_slice slice = slice_of(slice_name);
  assert_null(vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module));
  vt_chip_time(&slice, 1, module, NULL, &arena, &timing);
  int32_t cores = timing.spans[0].cores;
  vt_module_destroy(module);
  vt_arena_free(&arena);
  return cores;
}

#endif
