// SPDX-License-Identifier: Apache-2.0
// kernel_cost.h - what a TPU kernel of its own language asks of the chip: src/mosaic counts it,
// src/chip/time turns it into time.
#ifndef VT_IR_KERNEL_COST_H
#define VT_IR_KERNEL_COST_H

#include "ir/loop.h"

// Over all points of the grid. Registers are of 8 x 128 words.
typedef struct vt_kernel_cost {
  double steps;                   // points of the grid
  double rows;                    // past tiles of weights, on one matrix unit, in times of bf16
  double flops;                   // of matrix products
  double floats[VT_OP_COUNT];     // registers that operators of floats make, by operator
  double integers[VT_OP_COUNT];   // of others
  double lanes;                   // blocks of 8 rows that are summed or spread over lanes
  double loads, stores;           // registers from and to VMEM
  double bytes;                   // between HBM and VMEM
  double first_bytes, last_bytes; // before the first step, and after the last
  bool parallel;                  // its steps may be divided among cores
} vt_kernel_cost;

// Of a custom call in a function of `scope`, for matrix units of `edge` rows and columns that take
// `load` rows while they load weights. false: it holds no kernel.
typedef bool vt_kernel_cost_of(const vt_op *call, const vt_scope *scope, double edge, double load,
                               vt_kernel_cost *out);

// What the program itself says that one run of a kernel costs. false: nothing.
typedef struct vt_kernel_said {
  double flops, transcendentals, bytes;
} vt_kernel_said;
typedef bool vt_kernel_said_of(const vt_op *call, vt_kernel_said *out);

#endif
