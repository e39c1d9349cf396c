// SPDX-License-Identifier: Apache-2.0
// memory.h - the HBM that a program takes on one device besides its parameters and results: a bound
// below which no compiler gets, and an estimate of what XLA's takes in the order of the program.
//
// Values count with the padding of the chip's tiles, in the order of dimensions that needs least.
#ifndef VT_CHIP_MEMORY_H
#define VT_CHIP_MEMORY_H

#include "chip/chip.h"
#include "ir/module.h"

// A lower bound for any compiler, and what the program keeps in host memory. (least.c)
typedef struct vt_least {
  int64_t hbm, host;
  int32_t count;
  struct {
    const vt_value *value;
    int64_t bytes;
  } items[8]; // what makes up `hbm`; the rest is omitted
} vt_least;
// `share`: devices over which values may still be divided; 1 = they are what one device holds.
// `chip`: whose padding counts where values are those of one device; NULL = none does.
// `param_host`: which parameters of main lie in host memory.
void vt_chip_least(const vt_chip *chip, vt_func *main, double share, const bool *param_host,
                   vt_least *out_least);

// What `hbm` of vt_chip_least is not above where `share` is 1, found in one short walk.
double vt_chip_least_most(const vt_chip *chip, const vt_func *main);

// An array that is live at the peak. `type` is what is stored of the value: the form that its
// readers take, if that is smaller.
typedef struct vt_live_buffer {
  const vt_value *value;
  vt_type type;
  int64_t bytes;     // padded
  const vt_op *last; // that reads it; NULL = it lives to the end of its function
} vt_live_buffer;
// What is live while an operator of main runs.
typedef struct vt_live_point {
  const vt_op *op;
  int64_t bytes;
} vt_live_point;
typedef struct vt_live {
  int64_t bytes, unpadded; // all temporaries at the peak
  uint32_t count;
  vt_live_buffer *buffers; // largest first, in the arena
  const vt_op *peak;       // of main, while which most is live; NULL = there are no temporaries
  uint32_t point_count;
  vt_live_point *points; // all operators of main, in order; in the arena
} vt_live;
// The temporaries of a program whose values are what one device holds. (live.c) Parameters and
// results are not temporaries, nor is what is made where a result will be.
void vt_chip_live(const vt_chip *chip, vt_func *main, const bool *param_host, vt_arena *arena,
                  vt_live *out_live);

// Where a result lies: where the op's operands are, unless the program places it. `host`: by value
// id. `inner`: where what the op runs leaves its results, NULL when it runs nothing. (least.c)
bool vt_lies_in_host(const vt_op *op, uint32_t result, const bool *host, const bool *inner);

#endif
