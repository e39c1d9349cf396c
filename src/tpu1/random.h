// SPDX-License-Identifier: Apache-2.0
// random.h - random programs for tests and fuzzing: is the pipelined state the serial one?
#ifndef VT_TPU1_RANDOM_H
#define VT_TPU1_RANDOM_H

#include "tpu1/exec.h"

typedef struct vt_tpu1_random_stats {
  int64_t legal, illegal, steps,
      overlapped; // overlapped: steps that finish before an earlier one does
} vt_tpu1_random_stats;

// A legal program from `seed` on a small chip, with `damage` instructions removed or changed at
// random afterwards. INTERNAL when an undamaged program is refused, when both orders of execution
// differ, or when the decoded encoding is another program; VT_OK otherwise, also when a damaged
// program is refused.
vt_status vt_tpu1_random_check(uint64_t seed, int damage, vt_tpu1_random_stats *stats) VT_CHECKED;
// The same for given instructions (12 bytes each); anything may be in them.
vt_status vt_tpu1_bytes_check(const uint8_t *bytes, size_t size,
                              vt_tpu1_random_stats *stats) VT_CHECKED;

#endif
