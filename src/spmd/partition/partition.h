// SPDX-License-Identifier: Apache-2.0
// partition.h - what the handlers of the partitioner work with.
//
// The partitioner walks an annotated function in order and writes the program of one device. A
// handler gets one op of the whole program. It takes its operands as vt_part (vt_part_of), brings
// them to assignments that suit it (vt_reshard), emits local ops (vt_emit_...), and leaves a part
// for each result (vt_part_set), in any assignment: vt_part_set reshards to the one that is wanted.
//
//   vt_part operand = vt_part_of(p, op->operands[0]);
//   const vt_assign *wanted = vt_part_wanted(p, op, 0);
//   operand = vt_reshard(p, operand, ...);
//   vt_value *local = vt_emit_copy(p, op, vt_local_type(p, op->results[0].type, wanted), 1,
//                                &operand.local);
//   vt_part_set(p, &op->results[0], (vt_part){op->results[0].type, local, wanted});
//
// Only handlers see both sides: `global` is the type of the array, `local->type` what each device
// holds of it, which is vt_local_type(global, assign). Sizes round up: the last devices hold less,
// or nothing, and what lies past the end of the array is *undefined*. Who reads it must mask it
// first (vt_mask): reductions and sorts along a cut dimension, contractions, halos. Elementwise ops
// need not care.
//
// Recursion. Many rules cut the devices into groups along some dimensions and then treat each group
// as a machine of its own: vt_enter makes p->device_count smaller, and from then on assignments
// are over the places in a group, collectives run in all groups at once, and offsets are those
// within the group; vt_leave undoes it. vt_part_in gives a part as a group sees it. All handlers
// and helpers work inside groups without knowing.
//
// A handler is named in the column `partition` of ir/ops.def: vt_partition_NAME. Ops whose handler
// is `whole` run as they are on whole arrays, on every device, and the result is cut afterwards:
// always right. A handler that finds no better way calls vt_partition_whole itself.
//
// Nothing here is freed one by one: ops and attributes live in the module's arena.
#ifndef VT_SPMD_PARTITION_H
#define VT_SPMD_PARTITION_H

#include "base/array.h"
#include "spmd/partition/assign.h"

// A value of the program, as the devices hold it.
typedef struct vt_part {
  vt_type global;  // of the array: of the whole one, or of the part that the current group holds
  vt_value *local; // NULL: there is none (an attempt that did not succeed)
  const vt_assign *assign;
} vt_part;

// The unreduced axes of a value, in factors of prime size, and which local values have terms along
// them (unreduced.c).
enum { VT_MAX_TERM_FACTORS = 30 };
typedef struct vt_terms {
  const vt_sharding *of; // NULL: nothing is unreduced
  uint32_t count;
  vt_axis_ref refs[VT_MAX_TERM_FACTORS];
  vt_map known; // local value -> mask of refs + 1
} vt_terms;

// A reshard that has been done, of one local value.
typedef struct vt_known_reshard {
  const vt_groups *groups;
  vt_type global;
  const vt_assign *from, *to;
  vt_part out;
  const struct vt_known_reshard *before;
} vt_known_reshard;
typedef struct vt_reshards_of {
  const vt_value *value;
  const vt_known_reshard *last;
} vt_reshards_of;

// The last annotations that vt_part_wanted was asked for, and where.
enum { VT_ASKED = 16 };
typedef struct vt_asked {
  const vt_sharding *annotation;
  const vt_groups *groups;
  const vt_string *manual;
  int32_t rank;
  const vt_assign *assign;
} vt_asked;

// A constant number that was spread over an array: its local part.
enum { VT_SPREADS = 128 };
typedef struct vt_spread {
  const vt_value *number;
  const int64_t *dims; // of the whole array
  const vt_assign *assign;
  vt_value *local; // NULL: not yet
} vt_spread;

typedef struct vt_parter {
  vt_module *module;
  vt_func *func; // that is being written; ops go to its end
  const vt_loc *loc;
  const vt_groups *groups; // of all devices; one group of all at the top
  int32_t device_count;    // groups->size
  bool keep_partial;       // the result stays unreduced: reductions over devices are left out
  vt_terms terms;          // of the op at hand
  bool poison;             // padding holds NaN and the smallest integers: tests
  bool exact;              // as vt_partition_options
  bool keep_elementwise;   // likewise
  uint32_t manual_count;   // axes of the manual computations around
  const vt_string *manual;
  vt_assigns assigns;
  vt_asked asked[VT_ASKED]; // by where the annotation is
  vt_part *parts;  // by the ids of the annotated program's values, unique in main and its regions
  vt_map partials; // value of the annotated program -> vt_sharding *, if devices hold partials
  vt_map sums;     // value of the annotated program with partials -> vt_part *, combined
  VT_ARRAY(vt_reshards_of) reshards; // of a local value: the entry at its id, if that is of it
  vt_map offsets;      // (function, groups, assignment, what) -> where this device is, a value
  vt_map pairs;        // (groups, assignments or tiles) -> pairs of devices that trade
  vt_map manuals;      // (groups, axes around, mesh, axes) -> the state in a manual computation
  vt_map repeats;      // local value -> dimensions along which it repeats
  vt_map windowed;     // (part, target, windows, pad, groups) -> vt_windowed *
  vt_map factors;      // (mesh, part of an axis) -> where each device is along it
  vt_map shardings;    // axes, mesh, groups -> assignment
  const vt_mesh *mesh; // that was asked for last, and its devices
  vt_order mesh_order;
  vt_map literals; // tables of one number per device, by contents
  vt_map bodies;   // elementwise function, assignment -> the function on a device's tiles; without
                   // assignment: it has such
  VT_ARRAY(vt_func *) kept; // of these, if calls of them stay
  vt_spread spreads[VT_SPREADS];
  vt_map numbers;         // op -> the first equal one; equal ops are emitted once
  VT_ARRAY(uint64_t) key; // scratch of the numbering
} vt_parter;

// ---- values of the program ----------------------------------------------------------------------

vt_part vt_part_of(vt_parter *p, const vt_value *value);
// The assignment that the program asks of a result: its annotation, or whole.
const vt_assign *vt_part_wanted(vt_parter *p, const vt_op *op, uint32_t result);
const vt_assign *vt_assign_of(vt_parter *p, const vt_sharding *sharding, int32_t rank);
// The result is resharded to its annotation and recorded; the annotation of a result.
void vt_part_set(vt_parter *p, const vt_value *result, vt_part part);
const vt_sharding *vt_annotation(const vt_op *op, uint32_t result);

// ---- values that stay unreduced (unreduced.c) ---------------------------------------------------

// Devices may hold terms along the unreduced axes of a sharding: the value is their sum (maximum,
// or minimum). vt_part_set notes this from the annotation, vt_part_note for other values.
void vt_part_note(vt_parter *p, const vt_value *value, const vt_sharding *sharding);
// The value under `sharding`: combined along axes that it does not keep unreduced, as terms along
// those that it does. NULL: combined along all, where it is.
vt_part vt_part_reduced(vt_parter *p, const vt_value *value, const vt_sharding *sharding);
// The factors of p->terms along which the local value has terms, as a mask; moving such a value.
uint32_t vt_terms_of(vt_parter *p, const vt_value *local);
vt_part vt_reshard_terms(vt_parter *p, vt_part part, const vt_assign *target, uint32_t mask);
// The part of a handler that combines what devices have: an all-reduce, or, where the result stays
// unreduced along these axes, nothing.
vt_value *vt_emit_reduction(vt_parter *p, vt_value *v, const vt_func *reducer,
                            const vt_groups *groups);

// ---- types --------------------------------------------------------------------------------------

// Whether the axis is one of the manual computations around.
bool vt_axis_is_manual(const vt_parter *p, const vt_mesh *mesh, uint32_t axis);
// What each device holds: sizes rounded up.
vt_type vt_local_type(vt_parter *p, vt_type global, const vt_assign *assign);
static inline int64_t vt_ceil(int64_t size, int64_t parts) {
  return (size + parts - 1) / parts;
}
// Devices may hold different values where the value itself repeats: what it is made of says nothing
// of the others' tiles.
void vt_part_distrust(vt_parter *p, const vt_value *local);
// Whether every tile along the dimension is full.
bool vt_is_even(vt_type global, const vt_assign *assign, int32_t dim);

// ---- resharding (reshard.c) ----------------------------------------------------------------

// The same array under another assignment. Results are remembered, both ways, so that asking again
// costs nothing.
vt_part vt_reshard(vt_parter *p, vt_part part, const vt_assign *target);
// Devices would only trade tiles; tiles would only move between dimensions.
bool vt_is_permute(const vt_assign *from, const vt_assign *to);
bool vt_is_exchange(const vt_assign *from, const vt_assign *to);
// An assignment that does not cut the dimensions of `mask`: their tiles move to the first other
// dimension of an array of type `type` that they divide, or become copies.
const vt_assign *vt_assign_clear(vt_parter *p, vt_type type, const vt_assign *assign,
                                 uint32_t mask);
// Makes the dimensions of `mask` whole (within the current group): all-gathers, last dimension
// first. part.assign must cut at least one of them.
vt_part vt_gather_dims(vt_parter *p, vt_part part, uint32_t mask);
// The array as a sum: each device has its tile along these dimensions, and nothing elsewhere.
vt_part vt_spread_tiles(vt_parter *p, vt_part part, uint32_t mask);
// Along one dimension, from shards of the present size to shards of `size` (the same number of
// tiles): padding, or halos. false: not possible
bool vt_resize_shards(vt_parter *p, vt_part part, int32_t dim, int64_t size, vt_value **out);

// ---- groups -------------------------------------------------------------------------------------

// Enters the groups (of the current group's devices); returns what vt_leave needs.
const vt_groups *vt_enter(vt_parter *p, const vt_groups *inner);
void vt_leave(vt_parter *p, const vt_groups *before);
// The part as each group of the grouping holds it (g: vt_group_on of its assignment).
vt_part vt_part_in(vt_parter *p, vt_part part, const vt_grouping *g);
// And back: a part of group arrays as one of the array of type `global`.
vt_part vt_part_out(vt_parter *p, vt_part inner, vt_grouping g, vt_type global);

// ---- emitting local ops (emit.c) -----------------------------------------------------------
// Ops that depend on nothing but the device - constants, offsets, masks - are emitted once.

vt_type vt_type_of_dims(vt_parter *p, vt_dtype dtype, int32_t rank, const int64_t *dims);
// `type` with one size changed.
vt_type vt_type_with(vt_parter *p, vt_type type, int32_t dim, int64_t size);

vt_value *vt_emit(vt_parter *p, vt_opcode code, vt_type type, uint32_t count,
                  vt_value *const *operands);
vt_value *vt_emit1(vt_parter *p, vt_opcode code, vt_type type, vt_value *a);
vt_value *vt_emit2(vt_parter *p, vt_opcode code, vt_type type, vt_value *a, vt_value *b);
// A copy of an op of the program: its attributes but for shardings, its regions; one result of
// `type`, or several.
vt_value *vt_emit_copy(vt_parter *p, const vt_op *op, vt_type type, uint32_t count,
                       vt_value *const *operands);
vt_op *vt_emit_copies(vt_parter *p, const vt_op *op, const vt_type *types, uint32_t count,
                      vt_value *const *operands);
// The copy alone, to change its attributes before vt_emit_finished.
vt_op *vt_copy_op(vt_parter *p, const vt_op *op, const vt_type *types, uint32_t count,
                  vt_value *const *operands);

vt_value *vt_emit_literal(vt_parter *p, const vt_literal *literal);
vt_value *vt_emit_zero(vt_parter *p, vt_dtype dtype); // a scalar
// What changes no number that it is added to (-0: 0 would turn -0 into 0), or no bit; a scalar.
vt_value *vt_emit_nothing(vt_parter *p, vt_dtype dtype);
vt_value *vt_emit_s32(vt_parter *p, int64_t number); // a scalar
vt_value *vt_emit_splat(vt_parter *p, vt_type type, vt_value *scalar);
vt_value *vt_emit_iota(vt_parter *p, vt_dtype dtype, vt_type like, int32_t dim);
vt_value *vt_emit_compare(vt_parter *p, int64_t direction, vt_value *a, vt_value *b);
vt_value *vt_emit_select(vt_parter *p, vt_value *which, vt_value *a, vt_value *b);
vt_value *vt_emit_reshape(vt_parter *p, vt_value *a, int32_t rank, const int64_t *dims);
vt_value *vt_emit_transpose(vt_parter *p, vt_value *a, const int32_t *permutation);
vt_value *vt_emit_broadcast(vt_parter *p, vt_value *a, vt_type type, const int64_t *dims);
// [low, high) along one dimension; the value itself when that is all of it.
vt_value *vt_emit_slice(vt_parter *p, vt_value *a, int32_t dim, int64_t low, int64_t high);
// Padding of one dimension; `with` is a scalar.
vt_value *vt_emit_pad(vt_parter *p, vt_value *a, vt_value *with, int32_t dim, int64_t low,
                      int64_t high);
vt_value *vt_emit_concat(vt_parter *p, uint32_t count, vt_value *const *parts, int32_t dim);
// Offsets: s32 scalars, one per dimension; NULL = 0.
vt_value *vt_emit_dynamic_slice(vt_parter *p, vt_value *a, vt_value *const *offsets, vt_type type);
vt_value *vt_emit_dynamic_update(vt_parter *p, vt_value *a, vt_value *update,
                                 vt_value *const *offsets);
// Appends an op made by vt_op_create with all its attributes, or finds its equal.
vt_op *vt_emit_finished(vt_parter *p, vt_op *op);
// What fills padding that must not be read: zero, or poison in tests.
vt_value *vt_emit_padding(vt_parter *p, vt_dtype dtype);

// ---- where this device is -----------------------------------------------------------------------

// The offset of this device's tile along the dimension, for tiles of `size` elements.
vt_value *vt_emit_offset(vt_parter *p, const vt_assign *assign, int32_t dim, int64_t size);
// The same within each run of `parts` tiles.
vt_value *vt_emit_offset_within(vt_parter *p, const vt_assign *assign, int32_t dim, int32_t parts,
                                int64_t size);
// table[this device's tile along the dimension], an s32 scalar.
vt_value *vt_emit_by_tile(vt_parter *p, const vt_assign *assign, int32_t dim, const int64_t *table);
// Whether this device holds the first tile along each dimension of `mask`; the one device that
// holds the array. A boolean.
vt_value *vt_emit_is_first(vt_parter *p, const vt_assign *assign, uint32_t mask);
// Positions of the local elements along the dimension in the array, s32 of the local shape.
vt_value *vt_emit_positions(vt_parter *p, vt_part part, int32_t dim);
// The part with elements past the end of the array set to `with` (a scalar), along the cut
// dimensions of `mask`. The local value itself when nothing is uneven.
vt_value *vt_mask(vt_parter *p, vt_part part, uint32_t mask, vt_value *with);

// ---- collectives, in all groups at once (emit.c) -------------------------------------------

// `groups` are of the current group's devices.
vt_value *vt_emit_all_gather(vt_parter *p, vt_value *a, int32_t dim, const vt_groups *groups);
vt_value *vt_emit_all_to_all(vt_parter *p, vt_value *a, int32_t split, int32_t concat,
                             const vt_groups *groups);
// Devices trade tiles: from where one assignment has them to where the other has them.
vt_value *vt_emit_permute(vt_parter *p, vt_value *a, const vt_assign *from, const vt_assign *to);
// Tiles along a dimension trade places: tile i gets what tile source[i] has, zeros for -1.
vt_value *vt_emit_permute_tiles(vt_parter *p, vt_value *a, const vt_assign *assign, int32_t dim,
                                const int32_t *source);
// `reducer` is a function of two scalars; NULL adds (ors booleans).
vt_func *vt_make_reducer(vt_parter *p, vt_opcode code, vt_dtype dtype);
vt_value *vt_emit_all_reduce(vt_parter *p, vt_value *a, const vt_func *reducer,
                             const vt_groups *groups);
// One vt_emit_reduction for each cut dimension of `mask`, last first.
vt_value *vt_emit_reduce_along(vt_parter *p, vt_value *a, const vt_func *reducer,
                               const vt_assign *assign, uint32_t mask);

// ---- shared by handlers ------------------------------------------------------------------------

// The op of a plain reducer (x, y) -> op(x, y); VT_OP_INVALID for any other.
vt_opcode vt_plain_reducer(const vt_func *func);
// A constant scalar whose bytes are all zero.
bool vt_is_zero_scalar(const vt_value *value);
// What changes nothing in a reduction: `initial` itself where it may count many times. NULL: not
// known (reduce.c).
vt_value *vt_neutral_of(vt_parter *p, const vt_func *reducer, vt_value *initial);

// ---- handlers -----------------------------------------------------------------------------------

typedef vt_status vt_partition_fn(vt_parter *p, const vt_op *op);
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           linear, sharding, partition, ...)                                                       \
  vt_partition_fn vt_partition_##partition;
#include "ir/ops.def"
#undef OP

// One op: its handler, with operands and results that have terms where their shardings say so.
vt_status vt_partition_op(vt_parter *p, const vt_op *op, vt_partition_fn *handler);
// Walks a function of the annotated program into p->func; its parameters have parts already
// (vt_part_record).
vt_status vt_partition_func(vt_parter *p, const vt_func *func);
void vt_part_record(vt_parter *p, const vt_value *value, vt_part part);

#endif
