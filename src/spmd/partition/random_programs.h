// SPDX-License-Identifier: Apache-2.0
// random_programs.h - programs with random dimensions, for partition_test.c.
#ifndef VT_SPMD_RANDOM_PROGRAMS_H
#define VT_SPMD_RANDOM_PROGRAMS_H

#include <stdint.h>

#include "base/text.h"

// Writes main of a program of one gather or scatter; random(n) gives numbers below n.
typedef uint32_t vt_random_fn(uint32_t limit);
void vt_write_random_gather(vt_text *out, vt_random_fn *random);
void vt_write_random_scatter(vt_text *out, vt_random_fn *random);
// Of one op with windows, or one that moves elements along dimensions (window_programs.c).
void vt_write_random_windows(vt_text *out, vt_random_fn *random);

#endif
