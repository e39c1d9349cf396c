// SPDX-License-Identifier: Apache-2.0
// nest.h - a loop group as an index space, between fusion (fuse_nest.c) and code generation
// (emit_nest.c).
//
// The space is a list of atoms (sizes whose product is the element count of the largest value,
// major to minor). Every value of the group lies over a subset of the atoms, in their order: a full
// value over all, the sum of each row over all but the last, a scalar over none. So reshapes cost
// nothing, and a broadcast or a reduction is a step between subsets. Dimensions are split only
// where a broadcast, a reduction or a view needs it; equal neighbours are merged again. The last
// atom is processed by vectors ("columns"), the others together are "rows".
//
// Passes: each stage makes one pass over a row. A row reduction of a stage-s value is available in
// stage s+1. Reductions over anything but exactly the columns go to accumulators in memory and are
// available only after the kernel.
#ifndef VT_HOST_NEST_H
#define VT_HOST_NEST_H

#include "host/fuse.h"

enum { VT_NEST_ATOMS = 8, VT_NEST_NODES = 1024 };

typedef enum vt_node_kind {
  VT_NODE_CONST,  // a splat constant
  VT_NODE_LOAD,   // elements of an input through a view
  VT_NODE_IOTA,   // the index along a dimension, as a view of no memory
  VT_NODE_OP,     // an elementwise op
  VT_NODE_ALIAS,  // reshape or broadcast of a computed value: the same elements
  VT_NODE_REDUCE, // one result of a reduction
  VT_NODE_GATHER, // elements of an input at places given by other nodes
  // elements of the output changed at such places; it starts as an input or a constant
  VT_NODE_SCATTER,
} vt_node_kind;

typedef enum vt_reducer {
  VT_REDUCE_NONE,
  VT_REDUCE_ADD,
  VT_REDUCE_MUL,
  VT_REDUCE_MAX,
  VT_REDUCE_MIN,
  VT_REDUCE_AND,
  VT_REDUCE_OR,
  VT_REDUCE_ARGMAX,
  VT_REDUCE_ARGMIN,
} vt_reducer;

// How often a value changes: never, from row to row, from column to column. Derived from its
// operands, so a broadcast scalar stays a scalar even over all atoms.
typedef enum vt_level { VT_LEVEL_SCALAR, VT_LEVEL_ROW, VT_LEVEL_FULL, VT_LEVEL_OPEN } vt_level;

// Where elements are: byte offset and byte strides by atom (for iota: elements). 0 = the same for
// all.
typedef struct vt_access {
  int64_t offset;
  int64_t strides[VT_NEST_ATOMS];
} vt_access;

// One part of the place of an element: the index times the stride. A gather moves the index into
// [0, limit], a scatter skips indices out of range.
typedef struct vt_place_part {
  int64_t limit, stride; // bytes
} vt_place_part;

typedef struct vt_nest_node {
  uint8_t kind;     // vt_node_kind
  uint8_t reducer;  // vt_reducer
  bool accumulated; // reduction through memory
  bool in_group;    // some node uses it
  uint8_t level;    // vt_level
  uint32_t mask;    // of atoms
  int32_t stage;
  vt_op *op;       // NULL for loads of plain inputs
  vt_value *value; // type and identity
  uint32_t operand_count;
  // nodes; a reduction: operand (argmax: value, index); GATHER: indices; SCATTER: indices, updates
  uint32_t operands[4];
  int32_t input;    // LOAD, GATHER, SCATTER: index of the group's input; -1: SCATTER with `start`
  int32_t output;   // index of the group's output, -1
  vt_access access; // LOAD, IOTA; with output >= 0 or accumulated: where the result goes
  // GATHER, SCATTER, whose access is that of its batching dimensions: by part
  const vt_place_part *parts;
  bool narrow;             // 32 bits hold every byte offset
  bool folded;             // LOAD, IOTA: column c lies at c / fold * folds[0] + c % fold * folds[1]
  int64_t folds[2];        // bytes; of an iota elements
  bool far;                // GATHER, SCATTER: the lines that are read or changed are prefetched
  bool settles;            // SCATTER: a maximum or minimum that few updates change
  const vt_literal *start; // SCATTER: initial value of every element
  int32_t run;             // SCATTER: contiguous elements of an update; more than one
  int32_t updates;         // are read from this input, which is then not an operand
} vt_nest_node;

struct vt_nest {
  int32_t atom_count;
  // A narrow last atom is folded into the one before: each of its rows is `fold` columns, so that
  // vectors hold several rows. 0 = not folded.
  int32_t fold;
  int64_t atoms[VT_NEST_ATOMS];
  uint32_t all;         // mask of all atoms
  int32_t stage_count;  // passes over a row
  uint32_t input_count; // of the group
  uint32_t node_count;
  vt_nest_node *nodes; // operands before users
};

// The space of `ops` (in order) with these inputs and outputs; NULL when they cannot form one nest.
vt_nest *vt_nest_build(vt_arena *arena, uint32_t op_count, vt_op *const *ops, uint32_t input_count,
                       vt_value *const *inputs, uint32_t output_count, vt_value *const *outputs);
// What the reduction's body computes; NONE when it is not recognised.
vt_reducer vt_reducer_of(const vt_op *reduce);
// The same for a body alone, whatever the start value: ADD to OR, or NONE.
vt_reducer vt_reducer_of_body(const vt_func *body);
// A gather of single elements that a nest may compute. Its indices are one array of starts, or a
// concatenation of up to three such.
bool vt_nest_gathers(const vt_op *op);
// A concatenation that gathers may look through: of arrays that hold one part of each index.
bool vt_nest_is_index(const vt_op *op);
// An op that emit_op.c has code for with these types.
bool vt_emit_supports(const vt_op *op);
bool vt_emit_supports_complex(const vt_op *op); // the same for complex numbers, in nests only
bool vt_emit_has_type(vt_dtype dtype);
bool vt_emit_has_types(const vt_op *op); // its operands and results can be held in registers

// A scatter of single elements or short runs that a nest of its own may compute; indices as for a
// gather.
bool vt_nest_scatters(const vt_op *op);
// Pattern of a folded access: the same for every vector, consecutive elements that repeat, or any.
typedef enum vt_fold { VT_FOLD_SAME, VT_FOLD_REPEATED, VT_FOLD_ANY } vt_fold;
static inline vt_fold vt_node_fold(const vt_nest *nest, const vt_nest_node *node) {
  bool even = nest->fold == 2 || nest->fold == 4; // divides the lanes of vectors
  if (even && node->folds[0] == 0) return VT_FOLD_SAME;
  bool next = node->kind == VT_NODE_LOAD &&
              node->folds[0] == (int64_t)vt_dtype_bytes(node->value->type.dtype);
  return even && next && node->folds[1] == 0 ? VT_FOLD_REPEATED : VT_FOLD_ANY;
}
// Of the indices of a GATHER or SCATTER.
static inline uint32_t vt_nest_parts(const vt_nest_node *node) {
  return node->operand_count - (node->kind == VT_NODE_SCATTER && node->run == 1);
}

static inline bool vt_nest_is_full(const vt_nest *nest, const vt_nest_node *node) {
  return (node->mask >> (nest->atom_count - 1)) & 1;
}

#endif
