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

// The matrix units that a kernel finds.
typedef struct vt_matrix_units {
  double edge; // rows and columns
  double load; // rows of the left operand that they take while they load weights
  // Products of 8-bit integers in the time of one of bf16 (of 4-bit ones, its square); of floats.
  int32_t narrow_integers, narrow_floats;
} vt_matrix_units;

// How many products of two element types the units make in the time of one of bf16. An integer
// beside a float is widened to one of 16 bits.
static inline double vt_products_at_once(const vt_matrix_units *units, vt_dtype a, vt_dtype b) {
  int32_t bits_a = vt_dtype_get(a)->bits, bits_b = vt_dtype_get(b)->bits;
  int32_t bits = bits_a > bits_b ? bits_a : bits_b;
  if (vt_dtype_is_float(a) != vt_dtype_is_float(b) || bits > 8) return 1;
  if (vt_dtype_is_float(a)) return units->narrow_floats;
  return units->narrow_integers * (bits > 4 ? 1.0 : units->narrow_integers);
}

// Of a custom call in a function of `scope`. false: it holds no kernel.
typedef bool vt_kernel_cost_of(const vt_op *call, const vt_scope *scope,
                               const vt_matrix_units *units, vt_kernel_cost *out);

// What the program itself says that one run of a kernel costs. false: nothing.
typedef struct vt_kernel_said {
  double flops, transcendentals, bytes;
} vt_kernel_said;
typedef bool vt_kernel_said_of(const vt_op *call, vt_kernel_said *out);

#endif
