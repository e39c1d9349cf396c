// SPDX-License-Identifier: Apache-2.0
// vhlo.h - the contents of vhlo.def about each op of the encodings.
#ifndef VT_IMPORT_VHLO_H
#define VT_IMPORT_VHLO_H

#include <stddef.h>

#include "ir/ops.h"

// What import does with an op.
typedef enum vt_handler {
  VT_HANDLE_OP, // becomes the op of the row
  VT_HANDLE_MODULE,
  VT_HANDLE_FUNC,
  VT_HANDLE_RETURN,
  VT_HANDLE_TUPLE,
  VT_HANDLE_GET_TUPLE_ELEMENT,
  VT_HANDLE_ALIAS,     // results are the operands: casts, async_done
  VT_HANDLE_INLINE,    // results are those of the region: async_start, named_computation
  VT_HANDLE_COMPOSITE, // regions are dropped
  VT_HANDLE_MESH,
  VT_HANDLE_EINSUM, // becomes dot_general, reduce, transpose
  VT_HANDLE_CHLO,   // becomes several ops
  VT_HANDLE_FOLD,   // dynamic forms: folded when the result is static
} vt_handler;

enum { VT_VHLO_ATTRS = 21 };

typedef struct vt_vhlo_row {
  vt_handler handler;
  vt_opcode code;   // VT_OP_INVALID unless OP, COMPOSITE, FOLD
  const char *name; // with its dialect: "vhlo.add_v1"
  // in the order of the properties; ends with NULL; "x?" = optional attribute
  const char *attrs[VT_VHLO_ATTRS];
} vt_vhlo_row;

const vt_vhlo_row *vt_vhlo_find(const char *name, size_t size); // NULL when unknown
const vt_vhlo_row *vt_vhlo_at(size_t index);                    // NULL after the last row

#endif
