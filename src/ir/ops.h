// SPDX-License-Identifier: Apache-2.0
// ops.h - opcodes, attribute keys and the contents of ops.def and attrs.def.
#ifndef VT_IR_OPS_H
#define VT_IR_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vt_opcode {
  VT_OP_INVALID = 0,
#define OP(name, ...) VT_OP_##name,
#include "ir/ops.def"
#undef OP
  VT_OP_COUNT
} vt_opcode;

typedef enum vt_attr_key {
  VT_ATTR_NONE = 0,
#define ATTR(name, text, kind) VT_ATTR_##name,
#include "ir/attrs.def"
#undef ATTR
  VT_ATTR_COUNT
} vt_attr_key;

typedef enum vt_attr_kind {
  VT_ATTR_KIND_NONE,
  VT_ATTR_KIND_I64, // integers and enumerations
  VT_ATTR_KIND_BOOL,
  VT_ATTR_KIND_F64,
  VT_ATTR_KIND_STRING, // bytes with a size
  VT_ATTR_KIND_INTS,   // list of int64 (bools as 0 and 1; k x 2 paddings as 2k numbers)
  VT_ATTR_KIND_STRINGS,
  VT_ATTR_KIND_DTYPE,     // vt_dtype
  VT_ATTR_KIND_LITERAL,   // vt_literal
  VT_ATTR_KIND_FUNCS,     // functions of the module
  VT_ATTR_KIND_DICT,      // nested names and values
  VT_ATTR_KIND_SHARDINGS, // list of vt_sharding
  VT_ATTR_KIND_KERNEL,    // vt_program_call, attached by a later stage and never printed
} vt_attr_kind;

// What kind of work an op is.
typedef enum vt_op_class {
  VT_CLASS_ELTWISE,    // result elements depend on the operand elements at the same index
  VT_CLASS_VALUE,      // has no operands
  VT_CLASS_VIEW,       // the same elements under other strides
  VT_CLASS_CAST,       // the same bytes
  VT_CLASS_MOVE,       // elements change places
  VT_CLASS_REDUCE,     // many elements become one
  VT_CLASS_CONTRACT,   // what the matrix unit does
  VT_CLASS_LIBRARY,    // an algorithm of its own
  VT_CLASS_CONTROL,    // runs other functions
  VT_CLASS_COLLECTIVE, // needs all devices of a group
  VT_CLASS_DEVICE,     // which device this is
  VT_CLASS_TOKEN,      // ordering and transfers
  VT_CLASS_NAME,       // its operand under another name, as far as values go
  VT_CLASS_DYNAMIC,    // shapes are values; import folds or rejects them
} vt_op_class;

// The element type of an elementwise op's result.
typedef enum vt_element_rule {
  VT_ELEMENT_SAME,
  VT_ELEMENT_PRED,
  VT_ELEMENT_PART,
  VT_ELEMENT_PAIR,
  VT_ELEMENT_GIVEN,
  VT_ELEMENT_OWN
} vt_element_rule;

// How f(a + b) relates to f(a) + f(b).
typedef enum vt_linearity {
  VT_LINEAR_NO,
  VT_LINEAR_ALL,      // in all operands together
  VT_LINEAR_ONE,      // in each operand, the others kept as they are
  VT_LINEAR_FIRST,    // in the first operand
  VT_LINEAR_BRANCHES, // in all but the first operand
  VT_LINEAR_MOVES,    // elements only move: it commutes with a maximum too
} vt_linearity;

enum {
  VT_OPF_ELTWISE = 1,     // class ELTWISE
  VT_OPF_COMM = 2,        // commutative
  VT_OPF_ASSOC = 4,       // associative, for integers exactly
  VT_OPF_REDUCES = 8,     // combines elements by a computation
  VT_OPF_CONTROL = 16,    // class CONTROL
  VT_OPF_COLLECTIVE = 32, // class COLLECTIVE
  VT_OPF_EFFECT =
      64, // may not be dropped, duplicated or reordered (custom_call has an attribute for it)
  VT_OPF_PER_DEVICE = 128, // its value depends on the device
  VT_OPF_DYNAMIC = 256,    // class DYNAMIC
  VT_OPF_SHARDY = 512,     // only carries a sharding: the identity at run time
  VT_OPF_EXACT = 1024,     // never rounds a float of its result's type
};

typedef enum vt_cost_class {
  VT_COST_FREE,
  VT_COST_CHEAP,
  VT_COST_MEDIUM,
  VT_COST_EXPENSIVE,
  VT_COST_MOVE,
  VT_COST_REDUCE,
  VT_COST_MATRIX,
  VT_COST_LIBRARY
} vt_cost_class;

typedef struct vt_op_info {
  const char *text;                  // "stablehlo.add"
  int8_t operands, results, regions; // -1 = variable
  uint8_t kinds;                     // a bit for each vt_kind of operands
  uint8_t element;                   // vt_element_rule
  uint8_t class;                     // vt_op_class
  uint8_t linear;                    // vt_linearity
  uint8_t cost;                      // vt_cost_class
  uint16_t flags;                    // VT_OPF_*
  uint8_t attrs[21];                 // vt_attr_key, terminated by 0
} vt_op_info;

extern const vt_op_info vt_op_infos[VT_OP_COUNT];
static inline const vt_op_info *vt_op_info_get(vt_opcode code) {
  return &vt_op_infos[(unsigned)code < VT_OP_COUNT ? code : VT_OP_INVALID];
}
const char *vt_op_short_name(vt_opcode code); // "add"; the text after the first dot
vt_opcode vt_opcode_from_text(const char *text,
                              size_t size); // full name; VT_OP_INVALID when unknown

const char *vt_attr_text(vt_attr_key key);
vt_attr_kind vt_attr_kind_of(vt_attr_key key);

// The dimension numbers of a convolution: of the input, the kernel and the result; batch (of the
// kernel: input feature), feature (output feature), and the list of spatial dimensions.
extern const vt_attr_key vt_conv_dim_keys[3][3];

#endif
