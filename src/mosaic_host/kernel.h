// SPDX-License-Identifier: Apache-2.0
// kernel.h - a kernel on its way to code; internal to this folder.
//
// A vector value has a home: memory of the machine, filled where its op stands; the array it was
// loaded from; or none, when it is computed wherever it is used.
#ifndef VT_MOSAIC_HOST_KERNEL_H
#define VT_MOSAIC_HOST_KERNEL_H

#include "host/emit.h"
#include "mosaic/mosaic_code.h"
#include "mosaic_host/kernel_product.h"

enum { VT_KLANES_MOST = 16 }; // elements of a register

typedef enum vt_khome {
  VT_KHOME_NONE,   // a scalar, a reference, or never used
  VT_KHOME_INLINE, // computed where it is used
  VT_KHOME_MEMORY, // dense, at `at` in the machine's memory
  VT_KHOME_LEAF,   // a part of an array, read where it is used
  VT_KHOME_ALIAS,  // the memory of the operand, which is dense, with other dimensions
  VT_KHOME_SUM     // a product that a store adds to what it keeps, computed into the store's place
} vt_khome;

typedef struct vt_kvalue {
  vt_khome home;
  uint32_t uses;
  const vt_mop *user; // one of them
  bool live;
  bool native, loads;             // the op has code; it is a load with code
  bool wants_memory, wants_dense; // what uses need
  bool free;                      // of constants and counts: costs nothing to compute again
  bool level;                     // the same along the last dimension
  bool passes;                    // is a block of a window, or another view of one
  bool sum;                       // a product that a store adds to what it keeps, or their sum
  uint32_t depth;                 // of values without a home, of views
  const vt_mop *reduction;        // MEMORY: that computes it while it reduces it; or NULL
  const vt_mvalue *over;          // MEMORY: this value's, whose elements it takes the place of
  bool laid;                      // MEMORY: in tiles, as the left side of a product
  bool local;                     // MEMORY: of as many rows as a strip has
  bool dynamic;                   // LEAF: whether it lies inside is known at run time only
  int64_t at, bytes;
  uint32_t first, last;            // numbers of ops between which its memory is in use
  int64_t strides[VT_MOSAIC_RANK]; // LEAF: in elements
  // References.
  bool plain;    // elements lie at static strides
  bool inside;   // and surely in the array
  int32_t array; // number in the machine; also of such a block
  vt_mview view; // its static part: dimensions and strides in bytes
} vt_kvalue;

// Ops of one block, one after the other, that are computed for some rows at a time, so that what
// one hands to the next stays in cache (kernel_strips.c).
typedef struct vt_kstrip {
  const vt_mop *first, *last;
  int64_t rows, step; // of each value; at a time
} vt_kstrip;

typedef struct vt_kplan {
  const vt_mosaic *kernel;
  bool exact_dots;
  vt_arena *arena;
  vt_kvalue *values;    // by slot
  int32_t *products_of; // by op, also of the store that adds one; -1
  int64_t *temps;       // by op: memory that it needs for itself
  bool *native_stores;  // by op
  uint32_t product_count;
  vt_kproduct *products;
  int32_t *strip_of; // by op; -1
  uint32_t strip_count;
  vt_kstrip *strips;
  int64_t memory_bytes;
  bool *kept_inputs, *strided_inputs, *last_results, *filled; // mosaic_code.h
  uint32_t free_dims;
  bool asks, shared; // shared: points of the grid have threads of their own
} vt_kplan;

static inline vt_kvalue *vt_kvalue_of(const vt_kplan *p, const vt_mvalue *v) {
  return &p->values[v->slot];
}

// kernel_plan.c. False: this kernel is left to the interpreter.
bool vt_kplan_make(vt_kplan *p);
// The product that the op computes, or adds to what it stores; NULL: none.
static inline const vt_kproduct *vt_kplan_product(const vt_kplan *p, const vt_mop *op) {
  int32_t number = p->products_of[op->number];
  return number < 0 ? NULL : &p->products[number];
}
// What a stored sum has beside the product.
const vt_mvalue *vt_kplan_addend(const vt_mvalue *sum, const vt_kproduct *q);
bool vt_kplan_is_zero(const vt_mvalue *v);
bool vt_kplan_is_splat(const vt_mvalue *v); // a constant
// The value as a constant, when it is one.
bool vt_kplan_constant(const vt_mvalue *v, int64_t *out);
// What a value is when all indices of the grid but the first `unknown` are 0.
bool vt_kplan_fold(const vt_mosaic *k, const vt_mvalue *v, uint32_t unknown, int64_t *out);
// When they are the last ones.
bool vt_kplan_fold_last(const vt_mosaic *k, const vt_mvalue *v, uint32_t unknown, int64_t *out);
// Dimensions that differ by sizes of 1 only: by dimension of `to` that of `from`, or -1.
bool vt_kplan_unit_cast(vt_mtype from, vt_mtype to, int32_t *map);

// kernel_free.c: which dimensions of the grid are free, which blocks are kept, and what is filled.
void vt_kplan_grid(vt_kplan *p);

// kernel_plan.c, for what follows.
bool vt_kplan_is_live(const vt_kplan *p, const vt_mop *op);
bool vt_kplan_is_load(const vt_mop *op);
bool vt_kplan_is_store(const vt_mop *op);
bool vt_kplan_is_cast(const vt_mop *op);
bool vt_kplan_has_steps(const vt_mop *op);                       // a load or store
bool vt_kplan_block_inside(const vt_kplan *p, const vt_mop *op); // a load or store
// Each element of `v` is computed from that of `u` in the same place, or not from `u`.
bool vt_kplan_keeps_places(const vt_kplan *p, const vt_mvalue *v, const vt_mvalue *u);
bool vt_kplan_same_scalar(const vt_mvalue *a, const vt_mvalue *b);
// The free dimension of a product's side.
int32_t vt_kplan_free_dim(const vt_mop *op, int side);

// Its block is the same at all points of the grid that differ in the first `dims` indices only.
bool vt_kplan_stays(const vt_mwindow *w, uint32_t dims);

// kernel_level.c: which values of the body are level, once the grid is known.
void vt_kplan_levels(vt_kplan *p);

// kernel_memory.c: places of what has memory, once homes are known.
void vt_kplan_place(vt_kplan *p, const vt_mfunc *func);

// kernel_strips.c: finds the strips of a function.
void vt_kplan_strips(vt_kplan *p, const vt_mfunc *func);
// The dimension along which a value has rows: the first that is not of size 1.
int32_t vt_kplan_row_dim(vt_mtype type);
static inline const vt_kstrip *vt_kplan_strip(const vt_kplan *p, uint32_t op) {
  int32_t number = p->strip_of[op];
  return number < 0 ? NULL : &p->strips[number];
}

// kernel_lanes.c: elementwise ops on vectors in registers, of e->target.lanes elements.
bool vt_klanes_has(const vt_mop *op);
bool vt_klanes_cheap(const vt_mop *op);
bool vt_klanes_type(vt_dtype dtype);       // values of the type may be in registers
vt_dtype vt_klanes_memory(vt_dtype dtype); // the type that is read instead
LLVMValueRef vt_klanes_emit(vt_emitter *e, vt_arena *arena, const vt_mop *op,
                            const LLVMValueRef *in);
LLVMValueRef vt_klanes_convert(vt_emitter *e, vt_arena *arena, vt_dtype from, vt_dtype to,
                               LLVMValueRef x);

// kernel_emit.c: the code of one function.
void vt_kernel_emit(vt_emitter *e, const vt_kplan *plan, const vt_mfunc *func, const char *name);

// ---- shared by kernel_emit.c and kernel_nest.c --------------------------------------------------

typedef struct vt_kscalar {
  LLVMValueRef value;   // of a scalar
  LLVMValueRef pointer; // LEAF: to its first element
  LLVMValueRef offset;  // of a reference: bytes
  LLVMValueRef ok;      // of a reference: i1, it lies inside
} vt_kscalar;

typedef struct vt_kemit {
  vt_emitter *e;
  const vt_kplan *plan;
  const vt_mfunc *func;
  vt_arena arena;
  int lanes;          // of vectors; e->target.lanes is 1 for scalars
  vt_kscalar *values; // by slot
  LLVMValueRef machine, memory, slots, arrays, passed;
  const vt_kstrip *strip; // whose rows from `row` on are computed; NULL: all rows
  LLVMValueRef row;
  LLVMBasicBlockRef failed; // returns 1
  LLVMTypeRef i1, i8, i32, i64, pointer;
} vt_kemit;

static inline LLVMValueRef vt_ki64(vt_kemit *k, int64_t x) {
  return LLVMConstInt(k->i64, (uint64_t)x, true);
}
LLVMValueRef vt_kat(vt_kemit *k, LLVMValueRef base, LLVMValueRef bytes);
LLVMValueRef vt_kload_pointer(vt_kemit *k, LLVMValueRef base, int64_t at);
LLVMBasicBlockRef vt_kblock(vt_kemit *k, const char *name);

// A place for a vector: its first element, strides in elements.
typedef struct vt_kplace {
  LLVMValueRef pointer;
  vt_dtype dtype;
  int64_t strides[VT_MOSAIC_RANK];
  const vt_mvalue *mask; // or NULL
  int64_t laid;          // columns of a value in tiles; 0: it lies at the strides
} vt_kplace;
void vt_kdense(vt_mtype type, int64_t *strides);
LLVMValueRef vt_kaddress(vt_kemit *k, const vt_mvalue *value); // of a value with a home
LLVMValueRef vt_khome_at(vt_kemit *k, vt_mtype type, int64_t at, bool local);
// Computes the value into the place, as `place.dtype` (rounded to bf16 first with `rounds`).
void vt_knest_store(vt_kemit *k, const vt_mvalue *value, const vt_kplace *place, bool rounds);
void vt_knest_op(vt_kemit *k, const vt_mop *op, const vt_kplace *place); // an op's own result
void vt_knest_reduce(vt_kemit *k, const vt_mop *op, const vt_kplace *place);
LLVMValueRef vt_knest_element(vt_kemit *k, const vt_mvalue *value, const int64_t *index);
bool vt_knest_reduces(const vt_mop *op);

#endif
