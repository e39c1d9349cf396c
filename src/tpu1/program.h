// SPDX-License-Identifier: Apache-2.0
// program.h - a program with its weights, and its plan: every instruction checked, with the
// registers it sees, the storage it touches and the instructions it waits for. Timing (timing.h)
// and execution (exec.h) run plans.
//
// A plan exists only for legal programs: addresses in range, operands consistent with the mode
// registers, weight tiles requested before use, and no two units touching the same row, one of them
// writing, without a `sync` between them. That makes the result independent of timing. Every error
// starts with the instruction number and byte address.
#ifndef VT_TPU1_PROGRAM_H
#define VT_TPU1_PROGRAM_H

#include "tpu1/chip.h"
#include "tpu1/isa.h"

// The corner of a tile that holds weights of the program: rows (input lanes) and columns (output
// lanes). The rest of the tile reads as zero whatever the image holds.
typedef struct vt_tpu1_tile {
  uint16_t k, n;
} vt_tpu1_tile;

typedef struct vt_tpu1_program {
  const vt_tpu1_insn *code; // borrowed
  size_t code_size;
  const vt_tpu1_tile *tiles; // borrowed, tile_count; NULL: every tile is full
  int64_t tile_count;        // tiles in weight memory
  // borrowed, tile_count * dim * dim bytes, [input][output]; NULL: timing only
  const uint8_t *weights;
  int64_t host_in_bytes, host_out_bytes;
} vt_tpu1_program;

typedef struct vt_tpu1_range {
  int64_t first, count;
} vt_tpu1_range;

typedef struct vt_tpu1_step {
  const vt_tpu1_insn *insn;
  const int64_t *regs; // VT_TPU1_REGS values
  size_t pc;           // index in the program
  vt_tpu1_unit unit;
  int64_t wait[VT_TPU1_UNITS]; // steps of each unit that must be done before this one starts
  vt_tpu1_range ub_read[3], ub_write, acc_read, acc_write;
  // matrix: place of the first tile used in tile_order; the current one if not switched
  int64_t first_tile;
  int64_t passes,
      pass_rows; // matrix: passes and rows in each; vector units: pass_rows = rows through the unit
  int64_t host_bytes, host_row, host_stride;
} vt_tpu1_step;

typedef struct vt_tpu1_plan {
  const vt_tpu1_program *program; // borrowed
  VT_ARRAY(vt_tpu1_step) steps;   // program order, without the instructions done while issuing
  VT_ARRAY(int64_t) tile_order;   // tile numbers in the order the FIFO delivers them
  VT_ARRAY(int64_t) tile_issue;   // per tile_order: pc of its read_weights
  vt_arena arena;
} vt_tpu1_plan;

// errors INVALID_ARGUMENT (malformed), FAILED_PRECONDITION (a missing sync: names both instructions
// and the row), OUT_OF_RANGE (addresses). The plan borrows `program` and `chip` only during the
// call; free with vt_tpu1_plan_free, even after errors.
vt_status vt_tpu1_plan_make(const vt_tpu1_program *program, const vt_tpu1_chip *chip,
                            vt_tpu1_plan *out_plan) VT_CHECKED;
void vt_tpu1_plan_free(vt_tpu1_plan *plan);

#endif
