// SPDX-License-Identifier: Apache-2.0
// propagate.h - shardings for values that the program leaves open.
#ifndef VT_SPMD_PROPAGATE_H
#define VT_SPMD_PROPAGATE_H

#include "base/array.h"
#include "spmd/propagate/graph.h"
#include "spmd/spmd.h"

// out_params and out_results (entries of main) get the program's shardings, and for open results
// the propagated ones; NULL = replicated. Shardings are in `arena` or the module's.
void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena,
                       const vt_sharding **out_params, const vt_sharding **out_results);

// The custom calls @InspectSharding of the program and their propagated shardings.
typedef struct vt_look {
  const vt_op *op;
  uint32_t node;
  bool manual;
  const vt_sharding *sharding; // NULL = replicated
} vt_look;
typedef VT_ARRAY(vt_look) vt_looks;
// The list is on the heap, its shardings in `arena`.
void vt_spmd_look(const vt_module *module, int32_t device_count, vt_arena *arena,
                  vt_looks *out_looks);

// The outcome of propagation for every value of a module without calls.
typedef struct vt_copy_use {
  vt_value **where; // this use of a constant, in `func`, has its own copy,
  vt_func *func;
  uint32_t value; // a value of the graph
} vt_copy_use;
typedef struct vt_record {
  vt_graph graph;
  bool loops; // there are any
  // The node + 1 of each value of the module by its id (no two values have the same); 0 = none.
  VT_ARRAY(uint32_t) nodes;
  vt_numbers uses; // how often each is used, as long as it has that number
  // The same of slots: operands of manual computations (inner sharding), returns of main.
  vt_map slots;
  vt_map shardings; // what one says -> vt_sharding: equal ones of values are the same
  VT_ARRAY(vt_copy_use) copies;
  VT_ARRAY(vt_op *) unused; // constants, elementwise ops and the like
} vt_record;
// False: no mesh covers all devices (or the program is too large); nothing is cut.
bool vt_spmd_record(vt_module *module, int32_t device_count, vt_arena *scratch,
                    vt_record *out_record);
void vt_record_free(vt_record *record);
// The node + 1 of a value; 0 for one that the walk did not reach, or that was made since.
static inline uint32_t vt_record_node(const vt_record *record, const vt_value *value) {
  return value->id < 0 ? 0 : record->nodes.data[value->id];
}
// The sharding of a node inside of the program, as vt_graph_sharding.
const vt_sharding *vt_record_sharding(vt_record *record, uint32_t node, vt_arena *arena);
// Constants, and ops that make constants of constants.
bool vt_spmd_copies_op(const vt_op *op);
// Makes the module what propagation took it for: what a loop does not change passes around it,
// constraints are where import puts them, constants have copies per sharding (materialize.c).
void vt_record_materialize(vt_record *record, vt_module *module);

// Once the module is annotated: reshards that Shardy writes down before a partitioner sees the
// program (explicit_reshards.c).
void vt_record_reshard(vt_record *record, vt_module *module);

#endif
