// SPDX-License-Identifier: Apache-2.0
// kernel.h - shared by the files of src/eval: the kernel signature, running regions, moving data.
#ifndef VT_EVAL_KERNEL_H
#define VT_EVAL_KERNEL_H

#include "eval/eval.h"
#include "eval/vec.h"
#include "ir/sharding.h"

// State of one call of a public function: plans of functions, free buffers. A zeroed state is
// valid.
typedef struct vt_eval_state {
  vt_arena arena;                   // plans
  vt_map plans;                     // vt_func * -> struct vt_eval_plan *
  struct vt_eval_buffer *spare[26]; // freed buffers by power of two
  int64_t spare_bytes;
  int32_t depth; // of nested functions
} vt_eval_state;
void vt_eval_state_fini(vt_eval_state *state);

typedef struct vt_eval_call {
  const vt_op *op;
  const vt_eval_env *env;
  vt_eval_state *state;
  const vt_tensor *in;
  vt_tensor *out;
} vt_eval_call;

typedef vt_status (*vt_eval_kernel)(const vt_eval_call *call);
vt_eval_kernel vt_eval_kernel_of(vt_opcode code);

// UNIMPLEMENTED: "<what> is not supported: <op> of <element type> at <location>".
vt_status vt_eval_refuse(const vt_op *op, const char *what) VT_CHECKED;
// INVALID_ARGUMENT of the same form.
vt_status vt_eval_invalid(const vt_op *op, const char *what) VT_CHECKED;

// Scratch memory for a kernel, to be freed by free(). errors RESOURCE_EXHAUSTED
vt_status vt_eval_scratch(int64_t bytes, void *out_memory) VT_CHECKED;

// Reference-counted buffers, shared between the values of running functions.
typedef struct vt_eval_buffer {
  void *data;
  int64_t bytes;
  int32_t refs;
  bool borrowed;               // someone else's memory: never written in place, never pooled
  struct vt_eval_buffer *next; // in a list of spare ones
} vt_eval_buffer;
vt_status vt_eval_buffer_new(vt_eval_state *state, int64_t bytes, vt_eval_buffer **out) VT_CHECKED;
vt_status vt_eval_buffer_borrow(vt_eval_state *state, void *data, int64_t bytes,
                                vt_eval_buffer **out) VT_CHECKED;
static inline vt_eval_buffer *vt_eval_buffer_retain(vt_eval_buffer *b) {
  return b->refs++, b;
}
void vt_eval_buffer_release(vt_eval_state *state, vt_eval_buffer *b); // accepts NULL

// Runs a function on buffers. Takes the references in `args` (even on error); returns owned
// references. A result may be the buffer of an argument.
vt_status vt_eval_run(vt_eval_state *state, const vt_eval_env *env, const vt_func *func,
                      vt_eval_buffer **args, vt_eval_buffer **results) VT_CHECKED;
// The control flow ops on buffers: takes the references in `in` (even on error); `out` gets owned
// references.
vt_status vt_eval_control(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                          vt_eval_buffer **in, vt_eval_buffer **out) VT_CHECKED;
bool vt_eval_is_control(vt_opcode code);
// True for ops whose results are their operands.
bool vt_eval_is_identity(const vt_op *op);

// A region over scalars, run for many sets of arguments at once ("lanes").
typedef struct vt_region {
  const vt_func *func;
  vt_eval_state *state;
  const vt_eval_env *env;
  uint32_t own_params; // without captures
  uint32_t return_count;
  vt_value *const *returns; // the function's own, or other values of it
  int64_t lanes;            // most lanes of one run
  void **slots;             // lane arrays by value
  int32_t *param_slots, *return_slots;
  void **staged; // by result: staging memory, or NULL
  struct vt_region_step *steps;
  uint32_t step_count;
  bool general;              // not elementwise throughout: run lane by lane with vt_eval_run
  const vt_tensor *captures; // of the op, borrowed
  vt_arena arena;
} vt_region;
// `captures` are the op's last operands. `lanes` is a hint: longer runs are split.
vt_status vt_region_open(const vt_eval_call *call, const vt_func *func, int64_t lanes,
                         vt_region *out) VT_CHECKED;
// The same, returning other values of the region than its results. errors UNIMPLEMENTED when it
// cannot run in lanes
vt_status vt_region_open_values(const vt_eval_call *call, const vt_func *func, uint32_t count,
                                vt_value *const *values, int64_t lanes, vt_region *out) VT_CHECKED;
// args[own_params] and results[return_count] are arrays of n elements of the region's types. A
// result may be the same array as an argument.
vt_status vt_region_run(vt_region *region, int64_t n, const void *const *args,
                        void *const *results) VT_CHECKED;
void vt_region_close(vt_region *region);
// The opcode when the region is `return op(param a, param b)` with both parameters of the returned
// type, in either order for commutative ops; VT_OP_INVALID otherwise.
vt_opcode vt_region_binary(const vt_func *func, int32_t a, int32_t b);

// Elementwise op on n elements (of in's and out's types only element types matter, not shapes;
// operands of one element are broadcast where the op allows it). Covers all elementwise kernels.
vt_status vt_eval_lanes(const vt_op *op, int64_t n, const vt_tensor *in, vt_tensor *out) VT_CHECKED;
// Converts n elements from one type to another.
vt_status vt_eval_convert_array(vt_dtype from, vt_dtype to, int64_t n, const void *source,
                                void *target) VT_CHECKED;

// Applies the op's exponent and mantissa bits to n elements.
vt_status vt_eval_reduce_precision(const vt_op *op, int64_t n, vt_dtype dtype, const void *in,
                                   void *out) VT_CHECKED;
// Whether vt_eval_lanes has a loop for these types.
bool vt_eval_eltwise_supports(const vt_op *op, const vt_dtype *in, vt_dtype out);
bool vt_eval_eltwise_loop(const vt_op *op, vt_eval_loop *out_loop); // vt_eval_find_loop

// vt_eval_lockstep inside a running call.
vt_status vt_eval_lockstep_run(vt_eval_state *state, const vt_func *func, const vt_eval_env *env,
                               int32_t devices, const vt_tensor *const *args,
                               vt_tensor *const *results) VT_CHECKED;
bool vt_eval_custom_call_supports(const vt_op *op);
vt_status vt_eval_approx_top_k(const vt_eval_call *call) VT_CHECKED;

// A manual computation over `rows` sets of arrays: one, or one per device when nested.
vt_status vt_eval_manual_run(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                             int32_t rows, const vt_tensor *const *in,
                             vt_tensor *const *out) VT_CHECKED;
// vt_eval_collective inside a running call.
vt_status vt_eval_collective_run(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                                 int32_t devices, const vt_tensor *const *in,
                                 vt_tensor *const *out) VT_CHECKED;
// Shape ops with explicit attributes: by broadcast dimensions, by starts and steps, by padding, by
// slice sizes, by low and high padding pairs.
vt_status vt_eval_spread(const vt_op *op, uint32_t count, const int64_t *places, vt_tensor in,
                         vt_tensor *out) VT_CHECKED;
vt_status vt_eval_cut(const vt_op *op, const int64_t *start, const int64_t *stride, vt_tensor in,
                      vt_tensor *out) VT_CHECKED;
vt_status vt_eval_pad_with(const vt_op *op, const int64_t *low, const int64_t *interior,
                           vt_tensor in, vt_tensor value, vt_tensor *out) VT_CHECKED;
vt_status vt_eval_gather_sized(const vt_eval_call *call, const int64_t *sizes) VT_CHECKED;
vt_status vt_eval_convolve(const vt_eval_call *call, const int64_t *padding) VT_CHECKED;

// Copies an array of `rank` dimensions between strided locations, strides in elements (0 and
// negative allowed).
void vt_eval_move(size_t element_bytes, int32_t rank, const int64_t *dims, const void *from,
                  const int64_t *from_strides, void *to, const int64_t *to_strides);
// n copies of one element.
void vt_eval_fill(size_t element_bytes, int64_t n, const void *element, void *to);
// Steps `index` through dims in row-major order; false after the last.
bool vt_eval_next(int32_t rank, const int64_t *dims, int64_t *index);

// The kernels named in ir/ops.def, once for each op that has one.
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, ...)       \
  vt_status vt_eval_##kernel(const vt_eval_call *call) VT_CHECKED;
#include "ir/ops.def"
#undef OP

#endif
