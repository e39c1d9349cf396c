// SPDX-License-Identifier: Apache-2.0
// lower.h - the raw tree becomes a module. Shared by the files lower*.c; others need
// vt_lower_module only.
#ifndef VT_IMPORT_LOWER_H
#define VT_IMPORT_LOWER_H

#include "base/array.h"
#include "base/map.h"
#include "import/raw.h"
#include "ir/sharding.h"

typedef struct vt_lower_undo {
  vt_raw_value *value;
  uint32_t count;
  vt_value **values;
} vt_lower_undo;

typedef VT_ARRAY(vt_value *) vt_value_list;
typedef VT_ARRAY(vt_type) vt_type_list;

typedef struct vt_lower {
  vt_module *module;
  vt_arena *arena;              // scratch
  vt_func *func;                // being built
  vt_map funcs;                 // name -> vt_func
  vt_map meshes;                // name -> vt_mesh
  vt_map strings;               // address of a string's bytes -> its copy in the module
  vt_map captured;              // {op, value}: known captures
  vt_map tiles;                 // {rank, text} of a GSPMD sharding -> vt_sharding
  vt_map groups;                // {mesh, axes} -> vt_literal
  VT_ARRAY(vt_func *) ragged;   // what ragged_dot is decomposed into
  VT_ARRAY(vt_lower_undo) undo; // mappings to restore when the region ends; in scratch
  const vt_mesh *tile_mesh;     // the mesh for GSPMD's tile assignments; NULL until the first
  bool crossings;               // some have been lowered
  int64_t budget;               // values that may still be created: nested tuples must not explode
} vt_lower;

// Fills the empty `module`. errors INVALID_ARGUMENT, UNIMPLEMENTED
vt_status vt_lower_module(const vt_raw_module *raw, vt_arena *scratch,
                          vt_module *module) VT_CHECKED;

// "op at scope (file:line): message".
vt_status vt_lower_error(vt_lower *lo, const vt_raw_op *op, vt_code code, const char *format,
                         ...) VT_CHECKED VT_PRINTF(4, 5);
const char *vt_lower_text(vt_lower *lo,
                          vt_string string); // NUL-terminated copy in the module, kept once
const vt_loc *vt_lower_loc(vt_lower *lo, const vt_raw_attr *loc);
// A tensor or token; appends the flattened form of any type to `types` (scratch).
vt_status vt_lower_type(vt_lower *lo, const vt_raw_op *op, const vt_raw_type *type,
                        vt_type *out_type) VT_CHECKED;
vt_status vt_lower_types(vt_lower *lo, const vt_raw_op *op, const vt_raw_type *type,
                         vt_type_list *types) VT_CHECKED;
// Dense data as a literal, shared by all users of the attribute.
vt_status vt_lower_literal(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                           const vt_literal **out_literal) VT_CHECKED;
vt_status vt_lower_dict(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                        const vt_dict_value **out_dict) VT_CHECKED;
// Gives `op` the attributes of its row and those that any op may have (lower_attrs.c).
vt_status vt_lower_attrs(vt_lower *lo, const vt_raw_op *raw, vt_op *op) VT_CHECKED;

// einsum and unary_einsum of these operands, built at the end of the function (lower_einsum.c).
vt_status vt_lower_einsum(vt_lower *lo, const vt_raw_op *raw, uint32_t count,
                          vt_value *const *operands, vt_value **out_result) VT_CHECKED;

// A CHLO op (in raw->row) on these operands, built from StableHLO ops at the end of the function;
// `types` are those of its results (lower_chlo.c).
vt_status vt_lower_chlo(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                        const vt_type_list *types, vt_value_list *results) VT_CHECKED;
// The composite of that name; NULL: not defined for these operands and attributes (lower_chlo.c).
vt_value *vt_lower_ragged_dot(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                              const vt_type_list *types);
// Marks the operators of what such a composite is decomposed into: a product for each group.
void vt_lower_mark_ragged(vt_func *func);

// A dynamic op with a static result as its static form, built at the end of the function
// (lower_dynamic.c). errors UNIMPLEMENTED: unknown shapes
vt_status vt_lower_dynamic(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                           const vt_type_list *types, vt_value **out_result) VT_CHECKED;

// Custom calls and calls with which clients express in StableHLO what Shardy has ops for
// (lower_custom.c): out_done is true when `raw` was lowered to something else.
vt_status vt_lower_custom(vt_lower *lo, vt_raw_op *raw, bool *out_done) VT_CHECKED;
// GSPMD's conversion of a whole array to that of one device, or back (lower_crossings.c): a custom
// call until all functions are lowered; vt_lower_crossings then makes computations of what lies
// between, in `func` and its regions.
typedef struct vt_crossing vt_crossing;
vt_status vt_lower_crossing(vt_lower *lo, vt_raw_op *raw, bool to_local) VT_CHECKED;
vt_status vt_lower_crossings(vt_lower *lo, vt_func *func) VT_CHECKED;
// Images made larger or smaller, and the gradient of that (lower_resize.c).
vt_status vt_lower_resize(vt_lower *lo, vt_raw_op *raw) VT_CHECKED;
// The Shardy sharding that the frontend attributes of a dictionary hold as text under this name;
// NULL when none.
vt_status vt_lower_frontend_sharding(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *dict,
                                     const char *name, const vt_sharding **out_sharding) VT_CHECKED;
// The sharding that xla.sdy.FuncResultSharding gives to a value returned from main; NULL when none.
vt_status vt_lower_result_sharding(vt_lower *lo, const vt_raw_value *value,
                                   const vt_sharding **out_sharding) VT_CHECKED;
// Meshes that frontend attributes of the module hold as text.
vt_status vt_lower_text_meshes(vt_lower *lo, const vt_raw_op *module) VT_CHECKED;

// lower.c
vt_status vt_lower_operands(vt_lower *lo, const vt_raw_op *op, vt_value_list *list) VT_CHECKED;
void vt_lower_set_values(vt_lower *lo, vt_raw_value *value, uint32_t count,
                         vt_value *const *values);
vt_status vt_lower_add_mesh(vt_lower *lo, const vt_raw_op *op, vt_string name,
                            const vt_raw_attr *attr) VT_CHECKED;

// lower_sharding.c
vt_status vt_lower_mesh(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                        const char *name, const vt_mesh **out_mesh) VT_CHECKED;
vt_status vt_lower_sharding(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                            const vt_sharding **out_sharding) VT_CHECKED;
// A list of shardings (or one), as an attribute value.
vt_status vt_lower_shardings(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                             vt_attr *out_attr) VT_CHECKED;
// Replica groups along axes of a mesh, as rows of device ids.
vt_status vt_lower_mesh_groups(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                               vt_attr *out_attr) VT_CHECKED;

// GSPMD's text as a sharding over a mesh that fits all of them; NULL when it specifies nothing
// (lower_gspmd.c).
vt_status vt_lower_tiles(vt_lower *lo, const vt_raw_op *op, vt_string text, int32_t rank,
                         const vt_sharding **out_sharding) VT_CHECKED;
// The sharding group that a text names.
vt_status vt_lower_tile_group(vt_lower *lo, vt_string text, int32_t rank, bool *out_grouped,
                              int64_t *out_group) VT_CHECKED;
// The axes of the module's mesh, as bits, along which a text says that its op is inside a manual
// computation; all axes for "{manual}".
vt_status vt_lower_manual_tiles(vt_lower *lo, const vt_raw_op *op, vt_string text, int32_t rank,
                                uint64_t *out_axes) VT_CHECKED;
// A mesh of all partitions on one axis, for computations whose arrays are all replicated.
const vt_mesh *vt_lower_tile_mesh(vt_lower *lo);

#endif
