// SPDX-License-Identifier: Apache-2.0
// raw.h - the program as written, before it becomes a module: a tree of ops with named attributes.
//
// The readers of the encodings build it, lower.c consumes it. Everything is in the scratch arena of
// one import; strings and dense data may be borrowed from the program's bytes. Only its form has
// been checked.
#ifndef VT_IMPORT_RAW_H
#define VT_IMPORT_RAW_H

#include "base/file.h"
#include "import/vhlo.h"
#include "ir/module.h"

typedef struct vt_raw_type vt_raw_type;
typedef struct vt_raw_attr vt_raw_attr;
typedef struct vt_raw_op vt_raw_op;
typedef struct vt_raw_region vt_raw_region;

typedef enum vt_raw_type_kind {
  VT_RAW_TENSOR,
  VT_RAW_ELEMENT,
  VT_RAW_TOKEN,
  VT_RAW_TUPLE,    // items
  VT_RAW_FUTURE,   // items
  VT_RAW_FUNCTION, // items: inputs, then results
  VT_RAW_NONE,
  VT_RAW_VECTOR,  // of kernels (src/mosaic)
  VT_RAW_MEMREF,  // the same; `element` and `space`
  VT_RAW_ASM,     // `text`: of a dialect that has no encoding
  VT_RAW_REFUSED, // known but unsupported: `what` names it
} vt_raw_type_kind;

enum { VT_RAW_MAX_HEIGHT = 512, VT_RAW_MAX_LEAVES = 1 << 16 };
enum { VT_RAW_DYNAMIC = -1 }; // an unknown dimension

struct vt_raw_type {
  vt_raw_type_kind kind;
  vt_dtype dtype;             // TENSOR, ELEMENT, VECTOR, MEMREF; INVALID when it has none of ours
  uint32_t bits;              // of an element; 64 for index, 19 for tf32
  bool index;                 // the type index, or elements of it
  const char *what;           // why no module can contain the type; NULL when one can
  const vt_raw_type *element; // of a VECTOR or MEMREF
  const vt_raw_attr *space;   // of a MEMREF; NULL = none given
  vt_string text;             // of ASM
  int32_t rank;
  const int64_t *dims;
  uint32_t count, input_count;
  const vt_raw_type *const *items;
  const int64_t *kept_dims; // the dimensions in the module's arena, once needed
  uint32_t height;          // of the tree below: bounds recursion
  uint32_t leaves;          // tensors and tokens once flattened, at most VT_RAW_MAX_LEAVES
};

typedef enum vt_raw_attr_kind {
  VT_RAW_UNIT,
  VT_RAW_BOOL,      // i64
  VT_RAW_INT,       // i64, type
  VT_RAW_ENUM,      // i64
  VT_RAW_FLOAT,     // f64, type
  VT_RAW_STRING,    // string; also symbols
  VT_RAW_ARRAY,     // items
  VT_RAW_INTS,      // ints (dense arrays)
  VT_RAW_DICT,      // items with names
  VT_RAW_TYPE,      // type
  VT_RAW_DENSE,     // type, data: one element or all (bools also as bits), each in whole bytes
  VT_RAW_RESOURCE,  // type, i64 = resource number, data
  VT_RAW_ACCURACY,  // floats: atol, rtol; ints: ulps, mode
  VT_RAW_ALIAS,     // ints: operand, count of output indices, those, operand indices
  VT_RAW_LOC_NAME,  // string, items: child
  VT_RAW_LOC_CALL,  // items: callee, caller
  VT_RAW_LOC_FILE,  // string, ints: line, column
  VT_RAW_LOC_FUSED, // items
  VT_RAW_LOC_UNKNOWN,
  VT_RAW_AXIS,         // string = name; i64 = size of a mesh axis
  VT_RAW_AXIS_REF,     // string = name; ints: pre_size, size, or none for a whole axis
  VT_RAW_SUB_AXIS,     // ints: pre_size, size
  VT_RAW_MESH,         // items: axes; ints: device ids, i64 of them
  VT_RAW_MESH_AXES,    // items: mesh (string or mesh), array of axis refs
  VT_RAW_DIM_SHARDING, // items: axis refs; ints: closed, priority
  // items: mesh (string or mesh), dims, replicated axes, unreduced axes (arrays); i64 reduction
  VT_RAW_SHARDING,
  VT_RAW_TEXT,   // string: the text of an attribute whose dialect has no encoding
  VT_RAW_LAYOUT, // an affine map or strides; i64: a map whose results are all the constant 0
  VT_RAW_OTHER,  // known, but unused here
} vt_raw_attr_kind;

struct vt_raw_attr {
  vt_raw_attr_kind kind;
  const vt_raw_type *type;
  int64_t i64;
  double f64;
  vt_string string;
  uint32_t count; // of items, ints
  const vt_raw_attr *const *items;
  const vt_string *names; // of a DICT
  const int64_t *ints;
  double floats[2];
  vt_bytes data;
  // Cached conversions: any number of ops may share an attribute.
  const vt_loc *loc;           // of a location
  const vt_literal *literal;   // of dense data
  const vt_sharding *sharding; // of a sharding
  const int64_t *dense;        // of dense data: the numbers, dense_count of them
  uint32_t dense_count;
  uint32_t height; // of the tree below, at most VT_RAW_MAX_HEIGHT
  uint32_t weight; // nodes of the tree, shared ones counted each time; saturates
};

typedef struct vt_raw_named {
  vt_string name;
  const vt_raw_attr *value;
} vt_raw_named;

typedef struct vt_raw_value {
  const vt_raw_type *type;
  vt_raw_region *region; // where it is defined
  vt_raw_op *op;         // NULL for an argument
  vt_raw_attr *loc;      // of an argument; NULL = unknown
  uint32_t count;        // lower.c: the values it became in the function being built
  vt_value **values;
  void *in_kernel; // src/mosaic: the value it became
} vt_raw_value;

struct vt_raw_op {
  const vt_vhlo_row *row;
  vt_raw_region *region;
  vt_raw_op *next;
  vt_raw_attr *loc; // NULL = unknown
  uint32_t attr_count, operand_count, result_count, region_count, capture_count;
  vt_raw_named *attrs;
  vt_raw_value **operands;
  vt_raw_value *results;
  vt_raw_region **regions;
  vt_raw_value **captures; // filled by lower.c
};

struct vt_raw_region {
  vt_raw_op *owner;
  uint32_t depth;
  bool empty; // no blocks
  uint32_t arg_count;
  vt_raw_value *args;
  vt_raw_op *first, *last;
};

typedef struct vt_raw_module {
  vt_raw_op *op; // the builtin.module
  const char *producer;
  size_t program_bytes; // bounds the size of the lowered module
} vt_raw_module;

// Sets height and weight from the items. False when the tree is too high.
bool vt_raw_attr_measure(vt_raw_attr *attr);
// Sets height and leaves. False when too high or too many.
bool vt_raw_type_measure(vt_raw_type *type);
// The numbers of an integer, enumeration, bool, dense tensor of integers or bools, dense array, or
// array of those. False for anything else. out_ints in `arena`.
bool vt_raw_ints(vt_arena *arena, const vt_raw_attr *attr, uint32_t *out_count,
                 const int64_t **out_ints);
// Elements of a static tensor type; -1 when dynamic or beyond int64.
int64_t vt_raw_elements(const vt_raw_type *type);
// Decodes dense data of `count` elements of `dtype` to host form (sub-byte types sign-extended,
// bools one byte). A splat gives one element. out_data is borrowed from `data` where nothing
// changes, otherwise it is in `arena`.
// errors INVALID_ARGUMENT: the size fits neither
vt_status vt_raw_dense(vt_arena *arena, vt_bytes data, vt_dtype dtype, int64_t count,
                       const void **out_data, bool *out_splat) VT_CHECKED;
// The attribute of that name, NULL when absent.
const vt_raw_attr *vt_raw_find(const vt_raw_op *op, const char *name);
const vt_raw_attr *vt_raw_dict_find(const vt_raw_attr *dict, const char *name);
bool vt_string_is(vt_string string, const char *text);

#endif
