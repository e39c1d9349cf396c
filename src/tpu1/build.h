// SPDX-License-Identifier: Apache-2.0
// build.h - writes TPU v1 programs: instructions, weight tiles, unified-buffer space. Used by the
// workload generator and by the compiler, so both get the same code for the same layer.
//
// A layer runs as in the published program: its weights are requested, its passes go through the
// matrix unit column block by column block, then its results through the activation unit; the next
// layer starts when they are in the unified buffer. Rows that fit into the accumulators are never
// split; a layer whose column blocks together need more than half of them, or whose rows exceed
// them all, runs in groups that alternate between the two halves.
#ifndef VT_TPU1_BUILD_H
#define VT_TPU1_BUILD_H

#include "tpu1/program.h"

#define VT_TPU1_MAX_BLOCKS 256

// An activation tensor in the unified buffer: blocks of up to `dim` channels; a block has a row
// (two, low and high bytes, when wide) for each position of each image: row = (image * h + y) * w +
// x.
typedef struct vt_tpu1_tensor {
  int64_t images, h, w;
  bool wide, is_unsigned;
  int block_count;
  struct {
    int64_t ub;
    int64_t lanes;
  } blocks[VT_TPU1_MAX_BLOCKS];
} vt_tpu1_tensor;

// Contents of a tile: input block `block` of `term` at window position `tap`, for output block
// `column`.
typedef struct vt_tpu1_tile_source {
  int term, tap, block, column;
} vt_tpu1_tile_source;

typedef struct vt_tpu1_build {
  const vt_tpu1_chip *chip; // borrowed
  vt_tpu1_code code;
  VT_ARRAY(vt_tpu1_tile) tiles;
  VT_ARRAY(vt_tpu1_tile_source) sources; // of each tile, within its layer
  int64_t regs[VT_TPU1_REGS];            // as the program leaves them
  VT_ARRAY(vt_tpu1_range) free_rows;     // of the unified buffer, by address
  int64_t host_in_bytes, host_out_bytes;
  int64_t half; // accumulator half the next group uses
  vt_status st; // first failure: out of unified buffer or accumulators
} vt_tpu1_build;

typedef struct vt_tpu1_pooling {
  vt_tpu1_pool kind;
  int64_t kh, kw, sy, sx, py, px;
  int32_t scale; // average: multiplier and shift of the sum
  int shift;
} vt_tpu1_pooling;

// How a layer's results leave the accumulators.
typedef struct vt_tpu1_epilogue {
  vt_tpu1_fn fn;
  bool wide_out, unsigned_out;
  int32_t scale;
  int shift;
  bool bias;
  int64_t bias_ub; // four rows per column block
  // NULL: none; else images of h x w before it, which fit the accumulators
  const vt_tpu1_pooling *pooling;
  int64_t h, w;
} vt_tpu1_epilogue;

// A window over an image; 1 x 1 over 1 x 1 images is a dense layer.
typedef struct vt_tpu1_conv {
  int64_t kh, kw, sy, sx, py, px; // window, stride, padding above and left
  int64_t dilation_y, dilation_x; // 0 = 1
} vt_tpu1_conv;

// One term of a layer; all terms are summed in the same accumulators.
typedef struct vt_tpu1_term {
  const vt_tpu1_tensor *in;
  vt_tpu1_conv conv;
} vt_tpu1_term;

void vt_tpu1_build_init(vt_tpu1_build *b, const vt_tpu1_chip *chip);
void vt_tpu1_build_free(vt_tpu1_build *b);

void vt_tpu1_build_emit(vt_tpu1_build *b, const vt_tpu1_insn *insn);
void vt_tpu1_build_set(vt_tpu1_build *b, vt_tpu1_reg reg, int64_t value); // only when it changes
void vt_tpu1_build_sync(vt_tpu1_build *b, vt_tpu1_unit unit, int units_on);

// Unified-buffer rows, first fit. Running out sets b->st (RESOURCE_EXHAUSTED) and gives row 0.
int64_t vt_tpu1_build_rows(vt_tpu1_build *b, int64_t rows);
void vt_tpu1_build_release(vt_tpu1_build *b, int64_t first, int64_t rows);

// A tensor with `channels` in blocks of `dim`, blocks adjacent. The tensor's rows are the builder's
// until released.
vt_tpu1_tensor vt_tpu1_build_tensor(vt_tpu1_build *b, int64_t images, int64_t h, int64_t w,
                                    int64_t channels, bool wide);
void vt_tpu1_build_drop(vt_tpu1_build *b, const vt_tpu1_tensor *t);
int64_t vt_tpu1_tensor_rows(const vt_tpu1_tensor *t); // of one block, in unified-buffer rows

// Reads a tensor from the host (`bytes_per_row` bytes of each row, dense) and makes `users` wait
// for it.
void vt_tpu1_build_read(vt_tpu1_build *b, const vt_tpu1_tensor *t, int64_t bytes_per_row,
                        int users);
void vt_tpu1_build_write(vt_tpu1_build *b, const vt_tpu1_tensor *t);
void vt_tpu1_build_finish(vt_tpu1_build *b); // interrupt, halt

// out = epilogue(sum of terms). Appends the tiles it uses: columns outermost, then terms, window
// positions, input blocks. Parts of a batch that run one after another read the same tiles again.
void vt_tpu1_build_layer(vt_tpu1_build *b, const vt_tpu1_term *terms, int term_count,
                         const vt_tpu1_epilogue *epilogue, const vt_tpu1_tensor *out);

// out = fn(op(a, b)) block by block; `second` is NULL for copies. Scales come from the registers
// set before.
void vt_tpu1_build_vector(vt_tpu1_build *b, vt_tpu1_vop op, vt_tpu1_fn fn, const vt_tpu1_tensor *a,
                          const vt_tpu1_tensor *second, const vt_tpu1_tensor *out);

void vt_tpu1_build_pool(vt_tpu1_build *b, const vt_tpu1_tensor *in, const vt_tpu1_pooling *pooling,
                        const vt_tpu1_tensor *out);

// The program so far; borrows the builder's arrays. `weights` stays NULL.
vt_tpu1_program vt_tpu1_build_program(const vt_tpu1_build *b);

#endif
