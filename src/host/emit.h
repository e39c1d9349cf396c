// SPDX-License-Identifier: Apache-2.0
// emit.h - LLVM code for nests; internal to the code generator (emit_*.c, jit.c).
//
// Values in registers are vectors of `lanes` elements whatever the type, scalars are splats. pred
// is <n x i1>, integers have their width, f32 and f64 keep their type, bf16 and f16 are f32 holding
// a representable value, c64 is 64 bits. No fast-math flag is ever set and nothing is contracted,
// so each op rounds as the evaluator's does; exp, log and similar functions (emit_math.c) use fused
// multiply-add internally.
#ifndef VT_HOST_EMIT_H
#define VT_HOST_EMIT_H

#include <llvm-c/Core.h>

#include "base/text.h"
#include "host/nest.h"

typedef struct vt_target {
  int lanes;   // 16 with AVX-512, else 8; a nest's vectors may have twice as many
  bool avx512; // F, BW, DQ, VL
  bool bf16;   // vcvtneps2bf16
  bool f16c, fma;
  bool gathers; // vt_host_gathers
} vt_target;

// The function of a nest processes rows [row_lo, row_hi) and columns [col_lo, col_hi) of each.
// col_lo is a multiple of 64. A range is never empty. `accumulators` is the block for this call
// (kernel.h of the nest).
typedef void vt_nest_fn(void *const *args, const int64_t *dims, int64_t row_lo, int64_t row_hi,
                        int64_t col_lo, int64_t col_hi, void *accumulators);

typedef struct vt_emitter {
  vt_target target;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMValueRef function;
} vt_emitter;

// What the code of a nest depends on, as text: equal keys have equal code. Sizes are not part of
// it.
void vt_nest_key(const vt_nest *nest, const vt_target *target, vt_text *out_key);
// The run-time numbers behind `dims`; returns their count (out may be NULL to count). Offsets and
// strides of accumulators come from `accumulator_offsets` (by output).
uint32_t vt_nest_dims(const vt_nest *nest, const int64_t *accumulator_offsets, int64_t *out);
// How many elements its vectors have: as many as the target's, or twice that.
int vt_nest_lanes(const vt_nest *nest, const vt_target *target);
// True when rows end inside a vector and need masked stores.
bool vt_nest_is_ragged(const vt_nest *nest, const vt_target *target);
// How many rows are computed side by side.
int32_t vt_nest_abreast(const vt_nest *nest, const vt_target *target);
// Adds the function `name` to the module.
void vt_emit_nest(vt_emitter *e, const vt_nest *nest, const char *name);

// A function that another stage writes: equal keys have equal code.
struct vt_code_source {
  void (*key)(const void *user, const vt_target *target, vt_text *out_key);
  // adds the function to the module
  void (*emit)(vt_emitter *e, const void *user, const char *name);
  const void *user;
};

// emit_key.c: nodes that some output needs; those of the movable ones that nothing needs but this
// operand of this node, and what they cost; the node of a scatter that is the output, or -1;
// whether rows are short enough for buffers; the maximum number of buffers in a nest; which nodes
// are the same in all rows and worth computing once.
enum { VT_NEST_BUFFERS = 4, VT_NEST_ABREAST = 2 };
void vt_nest_live(const vt_nest *nest, bool *live);
// About how long the elements of one place of its space take one thread.
int64_t vt_nest_picoseconds(const vt_nest *nest, const vt_target *target);
int vt_nest_only_for(const vt_nest *nest, const bool *movable, uint32_t user, uint32_t operand,
                     bool *out_only);
int32_t vt_nest_scatter(const vt_nest *nest);
bool vt_nest_keeps_buffers(const vt_nest *nest);
// Whether lines of the node's result are fetched before they are written.
bool vt_nest_fetches(const vt_nest *nest, const vt_nest_node *n);
void vt_nest_columns(const vt_nest *nest, bool *out_once);
static inline bool vt_node_has_parts(const vt_nest_node *n) {
  return n->kind == VT_NODE_GATHER || n->kind == VT_NODE_SCATTER;
}
// Nodes that have numbers in `dims`.
static inline bool vt_node_has_slot(const vt_nest_node *n) {
  return n->kind == VT_NODE_LOAD || n->kind == VT_NODE_IOTA || vt_node_has_parts(n) ||
         n->output >= 0;
}
// The numbers are its offset and the strides of all atoms but the columns; a gather or scatter adds
// the columns' stride and its parts; a folded access adds its two strides.
static inline uint32_t vt_nest_slot_size(const vt_nest *nest, const vt_nest_node *n) {
  uint32_t size = (uint32_t)nest->atom_count;
  return vt_node_has_parts(n) ? size + 1 + 2 * vt_nest_parts(n) : n->folded ? size + 2 : size;
}
static inline bool vt_node_follows_columns(const vt_nest *nest, const vt_nest_node *n) {
  return n->access.strides[nest->atom_count - 1] != 0;
}

// emit_value.c
// Adds a function with vectors of the target's width, and positions the builder in its entry.
void vt_emit_function(vt_emitter *e, const char *name, LLVMTypeRef type);
// Branches to `then` nearly always.
void vt_emit_branch(vt_emitter *e, LLVMValueRef usual, LLVMBasicBlockRef then,
                    LLVMBasicBlockRef rare);
LLVMTypeRef vt_emit_type(vt_emitter *e, vt_dtype dtype);        // vector in registers
LLVMTypeRef vt_emit_memory_type(vt_emitter *e, vt_dtype dtype); // element in memory
vt_dtype vt_emit_compute_dtype(vt_dtype dtype);                 // f32 for bf16 and f16
LLVMValueRef vt_emit_from_memory(vt_emitter *e, vt_dtype dtype, LLVMValueRef vector);
LLVMValueRef vt_emit_to_memory(vt_emitter *e, vt_dtype dtype, LLVMValueRef vector);
LLVMValueRef vt_emit_round(vt_emitter *e, vt_dtype dtype,
                           LLVMValueRef vector); // f32 to the grid of bf16, f16
LLVMValueRef vt_emit_constant(vt_emitter *e, const vt_literal *literal);
LLVMValueRef vt_emit_combine(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef a,
                             LLVMValueRef b);
// All lanes of x combined, by a fixed tree, in each lane.
LLVMValueRef vt_emit_across(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x);
// Whether x goes before y in an ARGMAX (ARGMIN): the larger (smaller) one, NaN first; of equals
// that with the smaller index, if there are indices.
LLVMValueRef vt_emit_goes_before(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x,
                                 LLVMValueRef y, LLVMValueRef at_x, LLVMValueRef at_y);
LLVMValueRef vt_emit_neutral(vt_emitter *e, vt_reducer reducer, vt_dtype dtype);
LLVMValueRef vt_emit_splat_f(vt_emitter *e, vt_dtype dtype, double value);
LLVMValueRef vt_emit_spread(vt_emitter *e, LLVMValueRef scalar);
// Lane i + by of x in lane i; the last ones stay.
LLVMValueRef vt_emit_lanes_down(vt_emitter *e, LLVMValueRef x, int by);
LLVMValueRef vt_emit_splat_i(vt_emitter *e, vt_dtype dtype, int64_t value);
LLVMValueRef vt_emit_intrinsic(vt_emitter *e, const char *name, uint32_t type_count,
                               LLVMTypeRef *types, uint32_t count, LLVMValueRef *args);

// emit_op.c
LLVMValueRef vt_emit_op(vt_emitter *e, const vt_op *op, const LLVMValueRef *operands);

// The emitters that ir/ops.def names: `in` are the operands in registers. A small-float result may
// still need rounding.
typedef struct vt_emit_call {
  vt_emitter *e;
  const vt_op *op;
  const LLVMValueRef *in;
} vt_emit_call;
typedef LLVMValueRef vt_emit_fn(const vt_emit_call *call);
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           ...)                                                                                    \
  vt_emit_fn vt_emit_op_##emitter;
#include "ir/ops.def"
#undef OP

// emit_complex.c: an op with c64 among its types.
LLVMValueRef vt_emit_complex(vt_emitter *e, const vt_op *op, const LLVMValueRef *operands);

// emit_math.c
vt_emit_fn vt_emit_float_remainder;
bool vt_emit_has_lanes(const vt_op *op);       // the evaluator has a loop for these types
bool vt_emit_calls_evaluator(const vt_op *op); // generated code calls it
// What generated code calls, for the linker; returns how many there are (out may be NULL).
typedef struct vt_runtime_symbol {
  char name[48];
  void *address;
} vt_runtime_symbol;
uint32_t vt_runtime_symbols(vt_runtime_symbol *out);

#endif
