// SPDX-License-Identifier: Apache-2.0
// graph.h - what propagation works on: values, the shardings they have so far, and steps that tie
// the dimensions of several values together.
//
// A step is an op as Shardy sees it: dimensions of its operands and results consist of factors; a
// factor that occurs in several tensors should have the same sharding in all of them. A data flow
// edge (loop, branch, barrier, border of a manual computation) is a step whose results are one
// node, the targets of the edge.
#ifndef VT_SPMD_GRAPH_H
#define VT_SPMD_GRAPH_H

#include "base/array.h"
#include "base/map.h"
#include "spmd/axes.h"
#include "spmd/spmd.h"

#define VT_NONE UINT32_MAX // no step, no value

// One sharding: of a value, or of all targets of a data flow edge.
typedef struct vt_node {
  vt_type type;
  const vt_mesh *mesh; // NULL = no sharding so far
  vt_axes *dims;       // rank entries
  uint32_t closed;     // bit per dimension: no axes may be added
  bool is_edge;
  vt_axes replicated, unreduced;
  int32_t reduction;
  uint32_t group; // number of its sharding group + 1
  uint32_t step;  // that defines it
  uint32_t first_value;
} vt_node;

// Operand `slot` of a step. `where`: the place in the module that names the value, in the function
// that the value is in: a value that a region captures is named by the op with the region. Uses of
// one value are a list in the order of their making.
typedef struct vt_use {
  uint32_t step, slot;
  uint32_t before, after; // in the list
  vt_value **where;
} vt_use;

typedef struct vt_graph_value {
  uint32_t node, next_of_node;
  uint32_t step;    // that defines it; VT_NONE = a parameter, or a copy
  uint32_t copy_of; // VT_NONE = none
  uint32_t block;   // the function or region that it is in
  vt_value *home;   // in the module; NULL = a copy, or a constraint that import adds
  bool constant;    // computed from constants only: each use has its own copy
  bool expansion;   // a broadcast scalar: likewise
  uint32_t first_use, last_use, use_count;
} vt_graph_value;

// What sharding a factor means for the op.
typedef enum vt_factor_kind {
  VT_FACTOR_PASS,      // each device works on its part
  VT_FACTOR_REDUCE,    // partial results
  VT_FACTOR_PERMUTE,   // neighbours exchange elements
  VT_FACTOR_REPLICATE, // every device needs all of it
} vt_factor_kind;

typedef struct vt_factor {
  int64_t size;
  uint8_t kind; // vt_factor_kind
  bool blocked; // nothing propagates along it
} vt_factor;

// Dimension `dim` of a tensor holds `factor`; entries of one dimension are listed major to minor.
typedef struct vt_dim_factor {
  uint8_t dim, factor;
} vt_dim_factor;

// Tensors are operands, then results. Every dimension has at least one factor.
enum { VT_SIMPLE_FACTORS = 64 };
typedef struct vt_rule {
  uint32_t factor_count;
  const vt_factor *factors;
  const uint32_t *starts; // tensor t has the entries [starts[t], starts[t + 1])
  const vt_dim_factor *entries;
  bool plain;  // every dimension has one factor
  bool simple; // plain, few factors, none of them blocked or twice in one tensor
} vt_rule;

typedef enum vt_step_kind {
  VT_STEP_OP,
  VT_STEP_CONSTRAINT,
  VT_STEP_EDGE,
  VT_STEP_RETURN, // of main: from a value to what leaves the program
} vt_step_kind;

typedef enum vt_direction {
  VT_TOWARDS_NONE,
  VT_TOWARDS_RESULTS,
  VT_TOWARDS_OPERANDS,
  VT_TOWARDS_BOTH
} vt_direction;

enum { VT_MAX_LEFT_OUT = 8 };
typedef struct vt_step {
  uint8_t kind;    // vt_step_kind
  uint8_t allowed; // vt_direction: a barrier lets one through
  bool any_round;  // not subject to the order of rounds
  bool elementwise, dead;
  bool inward;      // the border of a manual computation: the inner side is the result
  uint8_t left_out; // operands of `op` that are none of the step, bit by bit
  const vt_op *op;  // that it comes from; NULL for a return of main
  uint64_t place;   // steps run in this order
  uint32_t block;
  uint32_t operand_count, result_count;
  uint32_t first_use;           // of operand 0; the others' follow
  uint32_t *operands, *results; // values
  const vt_rule *rule;          // NULL = nothing propagates
  // The border of a manual computation: outer axes of each dimension that one side does not see.
  const vt_axes *manual;
  const vt_sharding *sharding; // a constraint's; of an operand of a manual computation
} vt_step;

// What import's rules for constraints change in the module.
typedef struct vt_rewrite {
  enum {
    VT_REWRITE_USE,       // *where becomes `value`
    VT_REWRITE_CONSTRAIN, // a new constraint of *where, before op, takes its place there
    VT_REWRITE_MOVE,      // the constraint `op` moves up to what it constrains
    VT_REWRITE_INSERT,    // a new constraint after the value of *where
  } kind;
  vt_value **where;
  uint32_t value;
  vt_op *op;
} vt_rewrite;

// A dimension's sharding that starts to propagate at a later priority.
typedef struct vt_later {
  int64_t priority;
  uint32_t node;
  int32_t dim;
  vt_axes axes;
  bool closed;
} vt_later;

// A rule of elementwise tensors: the dimensions of the last, how many there are, their ranks.
typedef struct vt_seen_rule {
  const int64_t *dims;
  uint64_t count, ranks;
  const vt_rule *rule;
} vt_seen_rule;
enum { VT_SEEN_RULES = 64 };

typedef struct vt_graph {
  vt_arena *arena;
  vt_arena building; // of the rule that is being made
  const vt_module *module;
  int32_t device_count;
  VT_ARRAY(vt_node) nodes;
  VT_ARRAY(vt_graph_value) values;
  VT_ARRAY(vt_step) steps;
  VT_ARRAY(vt_use) uses;
  VT_ARRAY(uint32_t) returns;   // steps VT_STEP_RETURN, in order
  uint32_t *order, order_count; // all other live steps
  VT_ARRAY(vt_rewrite) rewrites;
  vt_seen_rule seen[VT_SEEN_RULES]; // the last of those in `rules`, by where their dimensions are
  vt_map rules;       // of tensors with equal leading dimensions: their ranks and sizes -> vt_rule
  vt_map main_meshes; // mesh -> the mesh that shardings over it are expressed in
  VT_ARRAY(vt_later) later;
  bool too_large; // call trees can be exponential: beyond this, values stay open
} vt_graph;

// An empty graph; vt_graph_free frees what is not in the arena.
void vt_graph_init(vt_graph *graph, const vt_module *module, int32_t device_count, vt_arena *arena);
void vt_graph_free(vt_graph *graph);

uint32_t vt_graph_add_node(vt_graph *graph, vt_type type);
uint32_t vt_graph_add_value(vt_graph *graph, uint32_t node, uint32_t block, vt_value *home);
// A copy of a constant or of a scalar that is broadcast: a value of which propagation sees nothing
// but its uses. What it is computed from follows from its sharding (materialize.c).
bool vt_graph_is_copied(const vt_graph *graph, uint32_t value);
uint32_t vt_graph_add_copy(vt_graph *graph, uint32_t value);
// Adds the step and its uses of values; `where` has one entry per operand.
uint32_t vt_graph_add_step(vt_graph *graph, const vt_step *step, vt_value **const *where);
// Takes a use out of its value's list; appends it to the list of another.
void vt_graph_unlink_use(vt_graph *graph, uint32_t use);
void vt_graph_link_use(vt_graph *graph, uint32_t use, uint32_t value);
static inline vt_node *vt_node_of(const vt_graph *graph, uint32_t value) {
  return &graph->nodes.data[graph->values.data[value].node];
}

// Gives a node the program's sharding, over the main mesh of its devices.
void vt_graph_seed(vt_graph *graph, uint32_t node, const vt_sharding *sharding);
// The axes of a list over another mesh as axes of the main mesh of the same devices.
vt_axes vt_graph_axes(vt_graph *graph, const vt_mesh *mesh, uint32_t count,
                      const vt_axis_ref *refs);

// Where a sharding is used: inside of the program axes need not divide a dimension, at the border
// of a manual computation they must; arrays of main have no parts of axes unless the program says
// so.
typedef enum vt_place { VT_INSIDE, VT_AT_REGION, VT_AT_MAIN } vt_place;
// The sharding of a node, closed, in `arena`; NULL when there is none or no axis is used.
const vt_sharding *vt_graph_sharding(const vt_graph *graph, uint32_t node, vt_place place,
                                     vt_arena *arena);
// The same of the inner side of an edge into a manual computation, with the manual axes; `type` is
// the outer type.
const vt_sharding *vt_graph_outer_sharding(const vt_graph *graph, uint32_t node, vt_type type,
                                           vt_arena *arena);

// The rule of an op without relevant regions, NULL = none (rules.c), a call being an elementwise
// one, and without the operands that are left out, of an elementwise one; of values of one shape.
const vt_rule *vt_rule_of_op(vt_graph *graph, const vt_op *op, uint8_t left_out);
// A transpose or a reshape, also one that is written as a broadcast.
bool vt_spmd_is_view(const vt_op *op);
const vt_rule *vt_rule_of_equals(vt_graph *graph, uint32_t count, vt_type type);

// One step: tensors take as many axes as they can in the allowed directions (step.c): all, or only
// one operand, by its number, or the results. `changed` gets the values that did. `directions` has
// one entry per factor. True: as its values are, the step changes nothing in any direction.
enum { VT_ALL_TENSORS = -1, VT_RESULTS = -2 };
typedef VT_ARRAY(uint32_t) vt_numbers;
bool vt_step_apply(vt_graph *graph, const vt_step *step, const uint8_t *directions, int32_t which,
                   vt_arena *scratch, vt_numbers *changed);

// Import's part in constraints: copied onto the values they constrain (constraints.c).
void vt_graph_apply_constraints(vt_graph *graph);
// Applies all steps until nothing changes, by priorities (schedule.c).
void vt_graph_propagate(vt_graph *graph);
// The same for a program with GSPMD's shardings instead of Shardy's (gspmd.c).
bool vt_graph_is_gspmd(const vt_graph *graph);
void vt_graph_propagate_gspmd(vt_graph *graph);

#endif
