// SPDX-License-Identifier: Apache-2.0
// graph.h - the input of propagation: tensors with axes per dimension, and rules that tie their
// dimensions together.
//
// A rule is an op as Shardy sees it: dimensions of its operands and results consist of factors; a
// factor that occurs in several tensors should have the same sharding in all of them. Mesh axes are
// split into atoms (prime factors, major to minor), so that a sub-axis is just fewer atoms.
#ifndef VT_SPMD_GRAPH_H
#define VT_SPMD_GRAPH_H

#include "base/array.h"
#include "base/map.h"
#include "spmd/spmd.h"

enum { VT_MAX_ATOMS = 32 };

typedef struct vt_atom {
  uint32_t axis;
  int64_t pre_size, size;
} vt_atom;

typedef struct vt_atom_list {
  uint8_t count;
  uint8_t atoms[VT_MAX_ATOMS];
} vt_atom_list;

typedef struct vt_graph_tensor {
  vt_type type;
  vt_atom_list *dims; // rank entries
  uint32_t used;      // atoms of all dimensions, and excluded ones
  uint32_t closed;    // bit per dimension: no axes may be added
} vt_graph_tensor;

// Dimension `dim` of a tensor holds `factor`; entries of one dimension are listed major to minor.
typedef struct vt_dim_factor {
  uint8_t dim, factor;
} vt_dim_factor;

typedef struct vt_rule {
  bool pass_through; // applied first: elementwise ops, moves of whole dimensions, data flow edges
  uint32_t tensor_count;
  const uint32_t *nodes;
  uint8_t factor_count;
  const int64_t *sizes;
  const uint8_t *counts; // entries of each tensor
  const vt_dim_factor *entries;
  uint32_t ignored; // atoms that this rule removes from its first tensor: manual axes
} vt_rule;

typedef struct vt_graph {
  vt_arena *arena;
  const vt_mesh *mesh; // the only one that propagates
  uint8_t atom_count;
  vt_atom atoms[VT_MAX_ATOMS];
  VT_ARRAY(vt_graph_tensor) nodes;
  VT_ARRAY(vt_rule) rules;
  bool too_large; // call trees can be exponential: beyond this, values stay open
} vt_graph;

uint32_t vt_graph_add_node(vt_graph *graph, vt_type type);
// Fixes a node's axes to the sharding's if that is over the graph's mesh.
void vt_graph_seed(vt_graph *graph, uint32_t node, const vt_sharding *sharding);
// The final sharding of a node, in `arena`, without axes that do not divide their dimension (these
// may stay inside the program, but not on arrays that leave it); NULL when no axis is used.
const vt_sharding *vt_graph_sharding(const vt_graph *graph, uint32_t node, vt_arena *arena);
// Ties all dimensions of the tensors (of equal rank).
void vt_graph_tie(vt_graph *graph, uint32_t count, const uint32_t *nodes);
// The rule of an op without relevant regions: `nodes` are its own operands, then its results
// (rules.c).
void vt_graph_add_op(vt_graph *graph, const vt_op *op, const uint32_t *nodes);
// Applies all rules until nothing changes.
void vt_graph_propagate(vt_graph *graph);

#endif
