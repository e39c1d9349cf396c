// SPDX-License-Identifier: Apache-2.0
// validate.h - predictions beside published measurements.
#ifndef VT_RUNTIME_VALIDATE_H
#define VT_RUNTIME_VALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

typedef struct vt_validation {
  const char *group, *slice, *program, *source;
  bool fitted;                 // constants were fitted on it
  double published, predicted; // seconds; both with the host's call where that was measured
} vt_validation;

// All rows of chip/time/published.def, in their order; in `arena`.
vt_status vt_validate(vt_arena *arena, vt_validation **out_rows, uint32_t *out_count) VT_CHECKED;
// Seconds that a program takes on a slice, by the model. errors of vt_predict
vt_status vt_validate_program(vt_bytes program, const char *slice, double *out_seconds) VT_CHECKED;

#endif
