// SPDX-License-Identifier: Apache-2.0
// random.h - random programs for tests and fuzzing: is the pipelined state the serial one?
#ifndef VT_TPU1_RANDOM_H
#define VT_TPU1_RANDOM_H

#include "tpu1/exec.h"

typedef struct vt_tpu1_random_stats {
  int64_t legal, illegal, steps,
      overlapped; // overlapped: steps that finish before an earlier one does
} vt_tpu1_random_stats;

// A legal program from `seed` on a small chip, after which `damage` instructions are removed or
// changed at random. INTERNAL when an undamaged program is rejected, when both execution orders
// differ, or when decoding the encoding gives another program; otherwise VT_OK, even when a damaged
// program is rejected.
vt_status vt_tpu1_random_check(uint64_t seed, int damage, vt_tpu1_random_stats *stats) VT_CHECKED;
// The same for given, arbitrary instructions (12 bytes each).
vt_status vt_tpu1_bytes_check(const uint8_t *bytes, size_t size,
                              vt_tpu1_random_stats *stats) VT_CHECKED;

#endif
