// SPDX-License-Identifier: Apache-2.0
// hlo.h - a module as HLO: computations of instructions, as XLA's own tools read and print it.
//
// One form in memory, with two writers and two readers: text, and the message
// xla.HloModuleProtoWithConfig. It is made from a verified module without manual computations
// (vt_hlo_build), or read; src/import makes a module of what was read. Both writers give
// instructions the same names.
// Where a value lies in the host's memory, its shape says so (S(5)), and what moves data between
// the two memories is asynchronous: copies, and slices out of and into arrays in host memory.
// Ownership: everything belongs to the vt_hlo, and borrows from the module.
#ifndef VT_HLO_HLO_H
#define VT_HLO_HLO_H

#include "base/file.h"
#include "ir/module.h"

// How HLO's fields print (hlo_text.c) and travel (hlo_proto.c); hlo_fields.def.
typedef enum vt_hlo_form {
  VT_HLO_INTS,      // {1,2}
  VT_HLO_INTS_SOME, // the same, nothing when empty
  VT_HLO_I64,
  VT_HLO_FLAG,   // nothing when false
  VT_HLO_BOOL,   // true, false
  VT_HLO_WORD,   // a name, as it is
  VT_HLO_QUOTED, // a string in quotes
  VT_HLO_ENUM,   // a number that prints as a name
  VT_HLO_F32,
  VT_HLO_SLICE,   // start, limit and stride for each dimension
  VT_HLO_PADDING, // low, high and interior for each dimension
  VT_HLO_WINDOW,  // seven numbers for each dimension, as xla.WindowDimension has them
  VT_HLO_LABELS,  // dimension numbers of a convolution
  VT_HLO_PRECISION,
  VT_HLO_GROUPS, // rows of device numbers; -1 fills up
  VT_HLO_PAIRS,
  VT_HLO_LITERAL,
  VT_HLO_SHAPE,
  VT_HLO_LAYOUTS, // shapes of the operands
  VT_HLO_ALIASES,
  VT_HLO_SHARDING,
  VT_HLO_DICT,
  VT_HLO_CONFIG,
  VT_HLO_HIDDEN, // a number that is no attribute in text
} vt_hlo_form;

typedef enum vt_hlo_field {
#define FIELD(key, parent, number, text, form) VT_HLO_FIELD_##key,
#include "hlo/hlo_fields.def"
#undef FIELD
  VT_HLO_FIELD_COUNT
} vt_hlo_field;

typedef struct vt_hlo_field_info {
  uint8_t parent, number; // of xla.HloInstructionProto: `number`, or `number` in message `parent`
  const char *text;
  vt_hlo_form form;
} vt_hlo_field_info;
const vt_hlo_field_info *vt_hlo_field_get(vt_hlo_field field);
// What an ENUM prints as.
const char *vt_hlo_word(vt_hlo_field field, int64_t value);

// An array or a token, or a tuple of shapes.
typedef struct vt_hlo_shape {
  bool tuple;
  bool host;          // the array lies in the host's memory
  bool dynamic;       // a dimension of the array is known only when it runs
  bool tiled;         // it is laid out in tiles
  vt_type type;       // not of tuples
  const char *layout; // minor to major "{0,1}"; NULL = row-major
  uint32_t count;     // of a tuple's parts
  const struct vt_hlo_shape *const *parts;
} vt_hlo_shape;

typedef struct vt_hlo_attr {
  struct vt_hlo_attr *next; // in the order of hlo_fields.def
  vt_hlo_field field;
  int64_t i64;
  uint32_t count, rows; // of ints; rows of GROUPS and PAIRS
  uint32_t room;        // for ints, while they are being read
  int64_t *ints;
  double f64;
  vt_string string;
  const vt_literal *literal;
  const vt_hlo_shape *const *shapes;
  const vt_dict_value *dict;
} vt_hlo_attr;

typedef struct vt_hlo_computation vt_hlo_computation;
typedef struct vt_hlo_instruction {
  struct vt_hlo_instruction *next;
  const char *opcode, *name;
  int64_t id;
  const vt_hlo_shape *shape;
  uint32_t operand_count, called_count;
  struct vt_hlo_instruction **operands;
  vt_hlo_computation **called;
  vt_hlo_attr *attrs;
  const vt_loc *loc;
} vt_hlo_instruction;

struct vt_hlo_computation {
  vt_hlo_computation *next; // callees come before their callers
  const char *name;
  int64_t id;
  vt_hlo_instruction *first, *last, *root;
  uint32_t param_count;
  vt_hlo_instruction **params;
  bool wrapper; // of the one operation of an asynchronous pair; text shows the pair alone
};

// What the compiler decided about a parameter or result of the entry computation; of what was
// read, about each array of a parameter or result.
typedef struct vt_hlo_io {
  bool host;            // lies in the host's memory
  const char *layout;   // NULL = row-major
  vt_string sharding;   // xla.OpSharding, or its text; empty = none
  int32_t alias_output; // parameter: the result that takes its memory, -1 = none
  bool donated;         // parameter: its memory may be used, no result named
} vt_hlo_io;

typedef struct vt_hlo_options {
  int32_t partitions, replicas; // 0 = as the module says
  const vt_hlo_io *params;      // of main; NULL = as the module says
  const vt_hlo_io *results;
} vt_hlo_options;

typedef struct vt_hlo {
  vt_arena arena;
  const char *name;
  vt_hlo_computation *first, *entry;
  int32_t partitions, replicas;
  bool scheduled; // one that was read: its shardings say how it has been partitioned
  uint32_t param_count, result_count;
  const vt_hlo_shape **params; // with the layouts of the entry computation
  const vt_hlo_shape *result;
  vt_hlo_io *param_info, *result_info;
  const vt_dict_value *frontend; // attributes of a module that was read; NULL = none
} vt_hlo;

const vt_hlo_attr *vt_hlo_find(const vt_hlo_instruction *instruction,
                               vt_hlo_field field); // NULL when absent

// errors UNIMPLEMENTED: a manual computation, or a reduction's computation that uses an outer value
// other than a constant
vt_status vt_hlo_build(const vt_module *module, const vt_hlo_options *options,
                       vt_hlo **out_hlo) VT_CHECKED;
void vt_hlo_destroy(vt_hlo *hlo); // accepts NULL

// "f32[2,3]".
void vt_hlo_put_type(vt_text *out, vt_type type);
// As XLA prints modules: constants of more than `largest` elements are elided.
enum { VT_HLO_SHORT = 10 };
void vt_hlo_print(const vt_hlo *hlo, int64_t largest, vt_text *out_text);
// The message xla.HloModuleProtoWithConfig; constants are whole.
void vt_hlo_write(const vt_hlo *hlo, vt_text *out_bytes);
// An array's type as field `number` of a message: an xla.ShapeProto, row-major.
void vt_hlo_write_type(vt_text *out, uint32_t number, vt_type type);

// Whether a program is HLO's text, or one of the messages xla.HloModuleProto, HloProto and
// HloModuleProtoWithConfig; a damaged message is one too if it cannot be text.
bool vt_hlo_is_text(vt_bytes program);
bool vt_hlo_is_message(vt_bytes program);
// Reads either. Trusts nothing: computations refer to computations and instructions that exist,
// operands are defined before their users; opcodes and what they need are not looked at. Ids count
// computations, and instructions in their order through all of them. The result borrows strings and
// constants from `program`.
// errors INVALID_ARGUMENT, UNIMPLEMENTED naming the instruction, or the line of the text
vt_status vt_hlo_read(vt_bytes program, vt_hlo **out_hlo) VT_CHECKED;
// The instruction in front of a message about it, with its line in the user's source.
vt_status vt_hlo_blame(vt_status st, const vt_hlo_instruction *instruction) VT_CHECKED;
// The number of arrays and tokens in a shape.
uint32_t vt_hlo_leaves(const vt_hlo_shape *shape);

#endif
