// SPDX-License-Identifier: Apache-2.0
// mosaic_run.h - running a kernel op by op: one machine for each device, with its memory, the
// values of the body, and a stack of blocks instead of the C stack: it can wait for another one.
//
// Vectors are dense arrays in reference-counted buffers; a reference is a view of an array. A copy
// (DMA) happens when it starts. Machines run one after the other until they wait; the order depends
// on the kernel alone, so equal inputs give equal bits.
#ifndef VT_MOSAIC_MOSAIC_RUN_H
#define VT_MOSAIC_MOSAIC_RUN_H

#include "eval/kernel.h"
#include "ir/number.h"
#include "mosaic/mosaic_ir.h"

// Memory of one device that references point into.
typedef struct vt_marray {
  char *data;
  vt_mtype type;
  void (*release)(void *data); // NULL: someone else's
  bool read_only;              // an operand of the call: copied before the first write
} vt_marray;

// Elements of an array: element (i, j, ...) lies at offset + i * strides[0] + ... bytes.
// Dimensions may reach over the end of the array, by less than a tile: `limits` is what exists.
typedef struct vt_mview {
  vt_marray *array;
  vt_dtype dtype; // as seen; the array's own, unless bits are reinterpreted
  int32_t rank;
  int64_t offset;
  int64_t dims[VT_MOSAIC_RANK], limits[VT_MOSAIC_RANK], strides[VT_MOSAIC_RANK];
  // Wider elements than the array's: `pack` of its elements, pack_stride bytes apart, are one.
  int32_t pack;
  int64_t pack_stride;
  // Narrower ones: each of its elements is `split`; along split_dim element i is number
  // split_first + i * split_step (-1: no dimension, the first alone).
  int32_t split, split_dim;
  int64_t split_first, split_step;
} vt_mview;

typedef union vt_mslot {
  uint64_t bits;          // of a scalar, in its own width at the front
  vt_eval_buffer *buffer; // of a vector
  vt_mview *view;         // of a reference
} vt_mslot;

typedef struct vt_mframe {
  const vt_mblock *block;
  const vt_mop *next;
  int64_t at, end, step; // of a loop
} vt_mframe;

typedef struct vt_mwindow_state {
  vt_marray outside; // the operand or result of the call
  bool is_output;
  bool valid;         // holds a block
  char *block_memory; // of its own; the block may also be in place (mosaic_grid.c)
  int64_t block[VT_MOSAIC_RANK];
  int64_t strides[VT_MOSAIC_RANK]; // of an operand's block, in bytes
  uint8_t *written;                // of a result that is not cleared: by block of it, or NULL
} vt_mwindow_state;

typedef struct vt_mcode vt_mcode;
typedef struct vt_mmachine vt_mmachine;
// Generated code of a function: 0 when it is done; else m->failed says why not, or m->waiting, of a
// machine without a coroutine.
typedef int32_t vt_mcode_fn(vt_mmachine *m);

struct vt_mmachine {
  const vt_mosaic *kernel;
  vt_mmachine *all; // machines of the run, one for each core of each device in turn
  int32_t device, device_count, core;
  bool exact_dots;
  bool later; // another machine has the same results and sets them up
  vt_eval_state *state;
  vt_arena *arena;
  vt_mslot *slots;
  vt_mview *views; // by number of the reference
  // Of the body's arguments from the first reference on, then of the allocations, then the barrier.
  uint32_t array_count;
  vt_marray *arrays;
  vt_mwindow_state *windows;
  vt_mframe *frames;
  uint32_t depth, frame_capacity;
  int64_t bounds[VT_MOSAIC_RANK], index[VT_MOSAIC_RANK];
  bool started, done;
  int64_t returned[VT_MOSAIC_RANK]; // by the last transform
  const vt_mop *waiting;            // why it does not go on
  int64_t wanted, found;
  struct vt_mcheck *check; // mosaic_check.h; NULL: none
  uint64_t seed, draws;
  int64_t steps;
  // Of a kernel with code (mosaic_code.h).
  const vt_mcode *code;
  int32_t (*call)(vt_mmachine *m, uint32_t op);
  int32_t (*product)(vt_mmachine *m, uint32_t product, const void *a, const void *b, void *out);
  int32_t (*product_lay)(vt_mmachine *m, uint32_t product, const void *b);
  int32_t (*product_rows)(vt_mmachine *m, uint32_t product, const void *a, int64_t row,
                          int64_t rows, void *out);
  char *memory;
  void **passed;
  vt_eval_buffer *lent;
  void *products;
  bool lent_products; // someone else closes them
  vt_status failed;
  // Of machines that meet: what runs the code, which yields in the middle to wait for another.
  struct vt_coroutine *coroutine;
  int64_t outer, outer_end; // points of the code's free dimensions that are this machine's
  bool last;                // the last of them are
};

// log2 is the product of log and this.
static const float vt_mosaic_log2_e = 1.4426950408889634f;
// An attribute of a kernel's op as that of the op of ir/ops.def with the same meaning.
static inline vt_attr vt_mosaic_bits_attr(const vt_mop *op, vt_mattr_key key, vt_attr_key as) {
  return (vt_attr){.key = as, .count = 1, .i64 = vt_mop_i64(op, key, 0)};
}

typedef vt_status (*vt_mrun)(vt_mmachine *m, const vt_mop *op);
#define MOP(code, text, least, most, results, regions, kinds, rule, run, ...)                      \
  vt_status vt_mosaic_run_##run(vt_mmachine *m, const vt_mop *op) VT_CHECKED;
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED

extern const vt_mrun vt_mosaic_runs[VT_MOP_COUNT];

// mosaic_machine.c
// What a machine's coroutine runs.
void vt_mmachine_run_inside(void *machine);
// Runs until the kernel is done or waits.
vt_status vt_mmachine_run(vt_mmachine *m) VT_CHECKED;
// Runs a transform at the current point of the grid; its results are in m->returned.
vt_status vt_mmachine_call(vt_mmachine *m, const vt_mfunc *func) VT_CHECKED;
// Runs the generated code of a function; it may be left waiting.
vt_status vt_mmachine_run_code(vt_mmachine *m, const vt_mfunc *func) VT_CHECKED;
vt_status vt_mmachine_push(vt_mmachine *m, const vt_mblock *block) VT_CHECKED;
void vt_mmachine_set_args(vt_mmachine *m, const vt_mblock *block);

// mosaic_grid.c: to the next point of the grid, or to the end.
vt_status vt_mgrid_advance(vt_mmachine *m) VT_CHECKED;
// To the first point of those that have this one of the code's free dimensions.
void vt_mgrid_place(vt_mmachine *m, int64_t point);

// Values. The data of a scalar is its slot.
static inline int64_t vt_mscalar(const vt_mmachine *m, const vt_mvalue *value) {
  return vt_int_load(value->type.dtype, &m->slots[value->slot].bits, 0);
}
static inline void *vt_mdata(const vt_mmachine *m, const vt_mvalue *value) {
  const vt_mslot *slot = &m->slots[value->slot];
  return value->type.kind == VT_MVECTOR ? slot->buffer->data : (void *)(uintptr_t)&slot->bits;
}
static inline vt_mview *vt_mview_at(const vt_mmachine *m, const vt_mvalue *value) {
  return m->slots[value->slot].view;
}
static inline int64_t vt_mcount(vt_mtype type) {
  return type.kind == VT_MSCALAR ? 1 : vt_mtype_elements(type);
}
static inline vt_type vt_mtensor_type(vt_mtype type, vt_dtype dtype) {
  return (vt_type){dtype, type.kind == VT_MSCALAR ? 0 : type.rank, type.dims};
}
// Memory for a result, a scalar's is its slot; `out_data` is the address of a pointer.
vt_status vt_mresult_new(vt_mmachine *m, const vt_mvalue *value, void *out_data) VT_CHECKED;
void vt_mset_int(vt_mmachine *m, const vt_mvalue *value, int64_t x);

// mosaic_view.c
void vt_mview_whole(vt_marray *array, vt_mview *out);
// The part [start, start + size * step) of a dimension. errors OUT_OF_RANGE naming op
vt_status vt_mview_cut(const vt_mmachine *m, const vt_mop *op, vt_mview *view, int32_t d,
                       int64_t start, int64_t size, int64_t step) VT_CHECKED;
vt_status vt_mview_reshape(const vt_mop *op, vt_mview *view, vt_mtype to) VT_CHECKED;
vt_status vt_mview_bitcast(const vt_mop *op, vt_mview *view, vt_mtype to) VT_CHECKED;
void vt_mview_squeeze(vt_mview *view, vt_mtype from, vt_mtype to);
// To and from dense arrays of the view's dimensions: what does not exist reads as 0 and is not
// written.
vt_status vt_mview_read(const vt_mview *view, void *out) VT_CHECKED;
vt_status vt_mview_write(vt_mmachine *m, const vt_mview *view, const void *data) VT_CHECKED;
vt_status vt_mview_copy(vt_mmachine *m, const vt_mview *from, const vt_mview *to) VT_CHECKED;
int64_t vt_mview_elements(const vt_mview *view);
// Each element of the array that exists in the view.
void vt_mview_each(const vt_mview *view, void (*see)(void *user, int64_t element), void *user);
// Makes the memory of an array one's own.
vt_status vt_marray_own(vt_mmachine *m, vt_marray *array) VT_CHECKED;
// One element of any width, in the low bits; and back, sign-extended where host memory is wider.
uint64_t vt_mbits_load(vt_dtype dtype, const void *at);
void vt_mbits_store(vt_dtype dtype, void *at, uint64_t bits);

#endif
