// SPDX-License-Identifier: Apache-2.0
// hlo_builder.h - private to the files that make HLO from a module (hlo_build.c, hlo_ops.c,
// hlo_control.c, hlo_space.c).
#ifndef VT_HLO_HLO_BUILDER_H
#define VT_HLO_HLO_BUILDER_H

#include "base/map.h"
#include "hlo/hlo_writers.h"

typedef struct vt_hlo_builder {
  vt_hlo *hlo;
  vt_arena *arena; // of the hlo
  const vt_module *module;
  vt_map host;   // values that lie in the host's memory
  vt_map staged; // values the program puts there that a slice update takes there at once
  vt_map values; // vt_value -> vt_hlo_instruction
  vt_map moved;  // instruction -> its copy in the other memory
  vt_map funcs;  // functions of the module -> vt_hlo_computation
  int64_t next_instruction, next_computation, next_channel;
  vt_hlo_computation *at; // being filled
  vt_hlo_computation *last;
  const vt_op *op; // being written; NULL between ops
} vt_hlo_builder;

// hlo_space.c: fills `host` and `staged`, and answers by them.
void vt_hlo_place(vt_hlo_builder *b);
static inline bool vt_hlo_in_host(const vt_hlo_builder *b, const vt_value *value) {
  return b->host.size && vt_map_has(&b->host, &value, sizeof value);
}

// Shapes.
const vt_hlo_shape *vt_hlo_array(vt_hlo_builder *b, vt_type type, bool host);
const vt_hlo_shape *vt_hlo_tuple_shape(vt_hlo_builder *b, uint32_t count,
                                       const vt_hlo_shape *const *parts);
const vt_hlo_shape *vt_hlo_value_shape(vt_hlo_builder *b, const vt_value *value);
// Of all results of the op: one shape as it is, others as a tuple.
const vt_hlo_shape *vt_hlo_result_shape(vt_hlo_builder *b, const vt_op *op);

// Computations. Between begin and end, instructions go to the new one.
vt_hlo_computation *vt_hlo_begin(vt_hlo_builder *b, const char *name,
                                 vt_hlo_computation **out_outer);
void vt_hlo_end(vt_hlo_builder *b, vt_hlo_instruction *root, vt_hlo_computation *outer);
vt_hlo_instruction *vt_hlo_param(vt_hlo_builder *b, const vt_hlo_shape *shape, const char *name);
// The ops of a function, whose parameters have values already.
vt_status vt_hlo_fill(vt_hlo_builder *b, const vt_func *func) VT_CHECKED;

// Instructions.
vt_hlo_instruction *vt_hlo_add(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                               uint32_t operand_count, vt_hlo_instruction *const *operands);
// The instruction that gives the op its name, over the op's own operands when `operands` is NULL.
vt_hlo_instruction *vt_hlo_main(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                                uint32_t operand_count, vt_hlo_instruction *const *operands);
vt_hlo_instruction *vt_hlo_tuple(vt_hlo_builder *b, uint32_t count,
                                 vt_hlo_instruction *const *parts);
vt_hlo_instruction *vt_hlo_part(vt_hlo_builder *b, vt_hlo_instruction *tuple, uint32_t index);
vt_hlo_instruction *vt_hlo_of(vt_hlo_builder *b, const vt_value *value);
// The value in that memory, copied if it lies in the other.
vt_hlo_instruction *vt_hlo_of_in(vt_hlo_builder *b, const vt_value *value, bool host);
void vt_hlo_define(vt_hlo_builder *b, const vt_value *value, vt_hlo_instruction *instruction);
// The instruction's value, or the parts of its tuple, as the results of the op.
void vt_hlo_results(vt_hlo_builder *b, const vt_op *op, vt_hlo_instruction *instruction);
void vt_hlo_call(vt_hlo_builder *b, vt_hlo_instruction *instruction, uint32_t count,
                 vt_hlo_computation *const *called);
// An operation that runs on its own while others go on: OPCODE-start and OPCODE-done.
vt_hlo_instruction *vt_hlo_async(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                                 uint32_t operand_count, vt_hlo_instruction *const *operands,
                                 void (*attributes)(vt_hlo_builder *b,
                                                    vt_hlo_instruction *instruction));

// Attributes.
vt_hlo_attr *vt_hlo_set(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field);
void vt_hlo_set_i64(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                    int64_t value);
void vt_hlo_set_ints(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                     uint32_t count, const int64_t *ints);
void vt_hlo_set_string(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                       vt_string string);
// The same from an attribute of the op; nothing when absent.
void vt_hlo_copy(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                 vt_attr_key key);
// What any op may carry: its sharding and its frontend attributes.
void vt_hlo_copy_common(vt_hlo_builder *b, vt_hlo_instruction *instruction);

// hlo_control.c.
vt_status vt_hlo_function(vt_hlo_builder *b, const vt_func *func,
                          vt_hlo_computation **out_computation) VT_CHECKED;
// The computation of a reduction, sort or map.
vt_status vt_hlo_scalar_region(vt_hlo_builder *b, const vt_op *op, uint32_t region,
                               vt_hlo_computation **out_computation) VT_CHECKED;

// How an op becomes instructions; opcode is the word in its row of hlo_opcodes.def.
typedef vt_status (*vt_hlo_rule)(vt_hlo_builder *b, const vt_op *op, const char *opcode);
#define HLO(name, opcode, rule)                                                                    \
  vt_status vt_hlo_write_##rule(vt_hlo_builder *b, const vt_op *op, const char *opcode_) VT_CHECKED;
#include "hlo/hlo_opcodes.def"
#undef HLO
// Of ops without a row.
vt_status vt_hlo_write_foreign(vt_hlo_builder *b, const vt_op *op) VT_CHECKED;

#endif
