// SPDX-License-Identifier: Apache-2.0
// spmd.h - which part of an array each device of a slice holds.
//
// A device here is a position in the program's device assignment (0 .. device_count - 1), not a
// hardware id.
// In: shardings as specified by the program (ir/sharding.h). Out: tilings, by which the runtime
// splits arrays into buffers.
// Threads: a module belongs to one thread at a time: values get ids.
#ifndef VT_SPMD_SPMD_H
#define VT_SPMD_SPMD_H

#include "ir/module.h"
#include "ir/sharding.h"

typedef struct vt_tiling {
  vt_type global;        // the whole array
  vt_type shard;         // what each device holds: ceil(global / counts) per dimension
  const int64_t *counts; // tiles along each dimension; all 1 = every holder has all of it
  int32_t device_count;
  // The row-major number of the tile that each device holds, -1 = none (only if one device holds
  // the array alone).
  const int32_t *tile_of_device;
  const uint8_t *proto; // as an xla.OpSharding message; empty = replicated
  size_t proto_size;
  // Values that differ between devices (unreduced axes): how many partials of the array there are,
  // and which of them each device holds a tile of. One partial: all devices agree, NULL.
  int64_t partials;
  const int32_t *partial_of_device;
} vt_tiling;

// What `device` holds, clipped to the array: `offsets` and `sizes` get rank numbers. Sizes are
// smaller than the shard, or 0, where the array does not divide evenly. The device must hold a
// tile.
void vt_tiling_range(const vt_tiling *tiling, int32_t device, int64_t *offsets, int64_t *sizes);
static inline bool vt_tiling_is_replicated(const vt_tiling *t) {
  return !t->proto_size;
}

// The tiling of a sharding; NULL sharding = replicated. `manual_axes` (count names) restricts a
// Shardy sharding to these axes, as for operands of a manual computation; NULL = all axes.
// errors INVALID_ARGUMENT: rank, or devices that do not exist
vt_status vt_tiling_make(const vt_sharding *sharding, const vt_string *manual_axes,
                         uint32_t manual_count, vt_type global, int32_t device_count,
                         vt_arena *arena, vt_tiling *out_tiling) VT_CHECKED;
// Only how many tiles there are along each dimension: where the sharding is sound, without a look
// at what each device holds.
// errors as above
vt_status vt_tiling_counts(const vt_sharding *sharding, vt_type global, int32_t device_count,
                           vt_arena *arena, const int64_t **out_counts) VT_CHECKED;

// A value inspected by the custom call @InspectSharding. A function called twice is inspected
// twice.
typedef struct vt_sighting {
  const vt_op *op;
  vt_tiling tiling;
  bool manual; // inside a manual computation: each device has its own array
} vt_sighting;
typedef struct vt_sightings {
  vt_sighting *data;
  size_t size;
} vt_sightings;
// In `arena`, in the order of the program.
vt_status vt_spmd_inspect(const vt_module *module, int32_t device_count, vt_arena *arena,
                          vt_sightings *out_sightings) VT_CHECKED;

// Makes a program of R replicas one over all devices; call it first. Every parameter and result of
// main gets R partials, one per replica, sharded over its partitions as the program says; with
// `own_arrays` nothing is sharded, and each partition has a partial too. A program of one replica
// (and one partition) is unchanged. errors UNIMPLEMENTED: collectives between the partitions of
// whole arrays
vt_status vt_spmd_from_replicas(vt_module *module, bool own_arrays) VT_CHECKED;

// Makes one program of several that replicas run at once, where each replica has its own: they
// differ in what a replica computes between the collectives that all take part in. Call it first;
// programs[0] becomes that program and takes the memory of the others, also if it fails.
// `program_of`: by replica. Its parameter out_param_of[k][i] and its result out_result_of[k][i]
// (arrays in `arena`) are number i of program k; what it reads of parameters that a replica's own
// program does not have makes no difference. errors FAILED_PRECONDITION: other collectives, naming
// the first that differ
vt_status vt_spmd_unite(vt_module *const *programs, uint32_t count, int32_t replicas,
                        const uint32_t *program_of, vt_arena *arena, uint32_t **out_param_of,
                        uint32_t **out_result_of) VT_CHECKED;

// A number for what replicas do together: the collectives of the program, in order, and the loops
// and branches around them. Equal in programs that replicas may run at once.
uint64_t vt_spmd_meetings(const vt_module *module);
// A number for what kind of program it is, never 0: its ops and types in order, without constants
// and attributes. Programs that differ by a replica's number are of one kind.
uint64_t vt_spmd_kind(const vt_module *module);

// Parameters and results of main whose sharding does not divide them become arrays of whole tiles,
// as devices hold them: padding of parameters is not read, that of results is zero. Call it once,
// after vt_spmd_from_replicas and before all else. errors as vt_tiling_make
vt_status vt_spmd_whole_tiles(vt_module *module) VT_CHECKED;

// Tilings of the parameters and results of main (arrays of param_count and return_count in
// `arena`). If the program leaves a result open, its sharding is propagated from parameters and
// constraints. Tokens count as replicated. The module must not have been through passes that inline
// its manual regions; call it right after import.
vt_status vt_spmd_plan(const vt_module *module, int32_t device_count, vt_arena *arena,
                       vt_tiling **out_params, vt_tiling **out_results) VT_CHECKED;

// Calls and composites of main become the bodies of their functions. Nothing else changes.
// `keep_elementwise`: but for calls of functions that propagation and the partitioner take for an
// elementwise op (elementwise.h).
void vt_spmd_inline(vt_module *module, bool keep_elementwise);

// Propagates shardings as XLA does (Shardy's rules and order) and writes the outcome into a module
// that vt_spmd_inline has been through: what a partitioner reads. Afterwards
//  - each op with results has VT_ATTR_SHARDING, one entry per result, never NULL; all are closed
//    and over meshes with all devices, or on one device (maximal). Meshes over the same devices in
//    the same order have become one. Unreduced axes are kept where the program states them, and
//    where a constraint states them also said of the op that adds the value up, and of the loop
//    that carries it.
//  - a manual computation has them in VT_ATTR_IN_SHARDINGS and VT_ATTR_OUT_SHARDINGS instead: of
//    the edges, so that operands may have to be resharded. Within, shardings have no manual axes.
//  - parameters of a loop's regions have the shardings of its results, those of branches the
//    operands', those of a manual body the edge's without the manual axes, captures the captured
//    value's.
//  - a constraint means: reshard to this. Axes need not divide a dimension inside of the program.
//  - param_info and return_info of main have shardings that divide; a return may have to be
//    resharded to its own.
//  - ops in regions that describe an element's computation (reduce, sort) have none.
// The program is changed where XLA's is: constants have a copy for each sharding that a user needs,
// users of what a loop does not change take it from before the loop, constraints move to what they
// constrain if its other users get them, and reshards are added around dots and concatenations.
// Without a mesh over all devices, nothing is cut and nothing is written.
// errors INVALID_ARGUMENT: a stated sharding is over other devices, or of another rank
vt_status vt_spmd_annotate(vt_module *module, int32_t device_count) VT_CHECKED;

// For a parameter of main that the program takes as one value although its devices may hold
// different ones: partials along all axes that its sharding does not use. Call it before
// vt_spmd_expand_partials, with the same tiling. false: there are no such axes.
bool vt_spmd_own_partials(const vt_module *module, uint32_t param, int32_t device_count,
                          vt_arena *arena, vt_tiling *tiling);

// Represents values that differ between devices in the program: each parameter and result of main
// with several partials (vt_tiling) gets a first dimension that counts them. Results of manual
// computations that differ along an axis their sharding does not name get partials in `results`
// (arrays in `arena`). The rest of the program, and a module without such values, is unchanged.
// errors UNIMPLEMENTED: more dimensions than fit
vt_status vt_spmd_expand_partials(vt_module *module, int32_t device_count, vt_arena *arena,
                                  vt_tiling *params, vt_tiling *results) VT_CHECKED;

// How the program of one device is written.
typedef struct vt_partition_options {
  bool poison; // padding holds NaN and the smallest integers: a test that reads it shows
  // For programs that run: the bits of whole arrays, also where XLA's partitioner, which otherwise
  // is followed, gives others.
  bool exact;
  bool keep_elementwise; // calls of elementwise functions stay calls, of functions on tiles
} vt_partition_options;

// Turns an annotated program (vt_spmd_annotate; a value without sharding is replicated) into the
// program that each of the devices runs on its tiles: local shapes, collectives, partition_id.
// Parameters and results of main must divide evenly (vt_spmd_whole_tiles). `options` may be NULL.
vt_status vt_spmd_partition(vt_module *module, int32_t device_count,
                            const vt_partition_options *options) VT_CHECKED;

// Turns an annotated program over devices into one over the processes that have them, annotated
// too: what the devices of a process hold together is one part. process_of: by device; each process
// has as many. errors UNIMPLEMENTED: meshes or values for which that is not so; the module is then
// of no use
vt_status vt_spmd_by_processes(vt_module *module, int32_t device_count, const int32_t *process_of,
                               int32_t process_count) VT_CHECKED;

// Makes a partitioned program one on whole arrays again: main is one manual computation over all
// devices, which runs in lockstep. `whole` is the main that vt_spmd_partition took; parameters and
// results are as it has them.
vt_status vt_spmd_lockstep(vt_module *module, const vt_func *whole,
                           int32_t device_count) VT_CHECKED;

#endif
