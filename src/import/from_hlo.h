// SPDX-License-Identifier: Apache-2.0
// from_hlo.h - HLO becomes the raw tree. Shared by the files from_hlo*.c; others need
// vt_raw_from_hlo only.
#ifndef VT_IMPORT_FROM_HLO_H
#define VT_IMPORT_FROM_HLO_H

#include "base/array.h"
#include "base/map.h"
#include "hlo/hlo.h"
#include "import/raw.h"

typedef struct vt_from_hlo {
  const vt_hlo *hlo;
  vt_arena *arena;       // scratch
  vt_raw_region *region; // being filled
  vt_raw_value **values; // of the computation being copied there, by id from its first on
  int64_t first_id;
  const vt_hlo_instruction *at;                // being copied
  const vt_raw_attr *loc;                      // of what it becomes
  vt_map types;                                // vt_hlo_shape -> vt_raw_type
  vt_map locs;                                 // vt_loc -> vt_raw_attr
  vt_map funcs;                                // computation -> name of its function
  vt_map names;                                // of functions
  VT_ARRAY(const vt_hlo_computation *) wanted; // functions, in the order of their first use
  int64_t budget;                              // ops that may still be made
} vt_from_hlo;

// In the arena; borrows from the hlo. errors INVALID_ARGUMENT, UNIMPLEMENTED naming the instruction
vt_status vt_raw_from_hlo(const vt_hlo *hlo, size_t program_bytes, vt_arena *arena,
                          vt_raw_module *out_module) VT_CHECKED;

// An instruction becomes ops at the end of the region, and the value that stands for it.
typedef vt_status (*vt_from_hlo_rule)(vt_from_hlo *c, const vt_hlo_instruction *i, vt_opcode code,
                                      vt_raw_value **out_value);
// from_hlo_ops.c. NULL for opcodes that are not known.
vt_from_hlo_rule vt_from_hlo_find(const char *opcode, vt_opcode *out_code);

// from_hlo.c.
vt_status vt_from_hlo_error(vt_from_hlo *c, vt_code code, const char *format, ...) VT_CHECKED
    VT_PRINTF(3, 4);
// errors: a dynamic dimension
vt_status vt_from_hlo_type(vt_from_hlo *c, const vt_hlo_shape *shape,
                           const vt_raw_type **out_type) VT_CHECKED;
const vt_raw_type *vt_from_hlo_array(vt_from_hlo *c, vt_dtype dtype, int32_t rank,
                                     const int64_t *dims);
const vt_raw_type *vt_from_hlo_token(vt_from_hlo *c);
// The value of an operand.
vt_status vt_from_hlo_operand(vt_from_hlo *c, uint32_t index, vt_raw_value **out_value) VT_CHECKED;
// A new op over these operands with one result of this type, or none for NULL.
vt_raw_op *vt_from_hlo_op(vt_from_hlo *c, const char *name, uint32_t count,
                          vt_raw_value *const *operands, const vt_raw_type *result);
// The same over all operands of the instruction, with its shape.
vt_status vt_from_hlo_main(vt_from_hlo *c, const char *name, vt_raw_op **out_op) VT_CHECKED;
// Adds a region that is a copy of the computation, its parameters arguments of the region, or those
// outer values.
vt_status vt_from_hlo_region(vt_from_hlo *c, vt_raw_op *op, const vt_hlo_computation *from,
                             vt_raw_value *const *outer) VT_CHECKED;
// The name of the function that the computation is.
vt_string vt_from_hlo_func(vt_from_hlo *c, const vt_hlo_computation *computation);

// Attributes.
vt_raw_attr *vt_from_hlo_attr(vt_from_hlo *c, vt_raw_attr_kind kind);
void vt_from_hlo_set(vt_from_hlo *c, vt_raw_op *op, const char *name, const vt_raw_attr *value);
void vt_from_hlo_set_i64(vt_from_hlo *c, vt_raw_op *op, const char *name, int64_t value);
void vt_from_hlo_set_items(vt_from_hlo *c, vt_raw_op *op, const char *name, uint32_t count,
                           const vt_raw_attr *const *items);
void vt_from_hlo_set_ints(vt_from_hlo *c, vt_raw_op *op, const char *name, uint32_t count,
                          const int64_t *ints);
void vt_from_hlo_set_string(vt_from_hlo *c, vt_raw_op *op, const char *name, vt_string string);
void vt_from_hlo_set_literal(vt_from_hlo *c, vt_raw_op *op, const char *name,
                             const vt_literal *literal);
// A matrix of numbers.
void vt_from_hlo_set_rows(vt_from_hlo *c, vt_raw_op *op, const char *name, int64_t rows,
                          int64_t width, const int64_t *ints);
const vt_raw_attr *vt_from_hlo_strings(vt_from_hlo *c, const vt_dict_value *dict);
// What any instruction may carry: its sharding and its frontend attributes.
void vt_from_hlo_set_common(vt_from_hlo *c, vt_raw_op *op);

#endif
