// SPDX-License-Identifier: Apache-2.0
// hlo_control.c - functions, regions, and the ops that run them.
//
// HLO's loops and branches take one value, so several become a tuple. What a region captures is
// passed in: a loop carries it unchanged, a branch gets it as its operand.
#include <string.h>

#include "hlo/hlo_builder.h"

// Starts a computation with one parameter that stands for `count` values; one value is itself.
static vt_hlo_computation *begin_packed(vt_hlo_builder *b, const char *name, uint32_t count,
                                        vt_value *const *values, vt_hlo_computation **out_outer) {
  vt_hlo_computation *computation = vt_hlo_begin(b, name, out_outer);
  const vt_hlo_shape **shapes = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  for (uint32_t i = 0; i < count; i++) shapes[i] = vt_hlo_value_shape(b, values[i]);
  const vt_hlo_shape *shape = count == 1 ? shapes[0] : vt_hlo_tuple_shape(b, count, shapes);
  vt_hlo_instruction *param = vt_hlo_param(b, shape, count == 1 ? "arg" : "arg_tuple");
  for (uint32_t i = 0; i < count; i++)
    vt_hlo_define(b, values[i], count == 1 ? param : vt_hlo_part(b, param, i));
  return computation;
}

static vt_hlo_instruction *pack(vt_hlo_builder *b, uint32_t count, vt_hlo_instruction **parts) {
  return count == 1 ? parts[0] : vt_hlo_tuple(b, count, parts);
}

static vt_hlo_instruction **room(vt_hlo_builder *b, uint32_t count) {
  return VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, count + 1);
}

vt_status vt_hlo_write_while(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  const vt_func *test = op->regions[0], *body = op->regions[1];
  uint32_t count = op->operand_count;
  vt_hlo_instruction **parts = room(b, count);
  for (uint32_t i = 0; i < count; i++)
    parts[i] = vt_hlo_of_in(b, op->operands[i], vt_hlo_in_host(b, body->params[i]));
  vt_hlo_instruction *start = pack(b, count, parts);

  vt_hlo_computation *outer, *called[2];
  called[0] = begin_packed(b, "body", count, body->params, &outer);
  VT_TRY(vt_hlo_fill(b, body));
  vt_hlo_instruction **next = room(b, count);
  for (uint32_t i = 0; i < count; i++)
    next[i] = vt_hlo_of_in(b, i < op->result_count ? body->returns[i] : body->params[i],
                           vt_hlo_in_host(b, body->params[i]));
  vt_hlo_end(b, pack(b, count, next), outer);

  called[1] = begin_packed(b, "condition", count, test->params, &outer);
  VT_TRY(vt_hlo_fill(b, test));
  vt_hlo_end(b, vt_hlo_of(b, test->returns[0]), outer);

  vt_hlo_instruction *loop = vt_hlo_main(b, opcode, start->shape, 1, &start);
  vt_hlo_call(b, loop, 2, called);
  vt_hlo_copy_common(b, loop);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_hlo_define(b, &op->results[i], count == 1 ? loop : vt_hlo_part(b, loop, i));
  return VT_OK;
}

vt_status vt_hlo_write_branches(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  uint32_t count = op->capture_count, own = vt_op_own_operands(op);
  vt_hlo_instruction **parts = room(b, count), **operands = room(b, op->region_count + 1);
  vt_hlo_computation **called = VT_NEW_ARRAY(b->arena, vt_hlo_computation *, op->region_count);
  for (uint32_t i = 0; i < count; i++)
    parts[i] = vt_hlo_of_in(b, op->operands[own + i], vt_hlo_in_host(b, op->regions[0]->params[i]));
  operands[0] = vt_hlo_of(b, op->operands[0]);
  vt_hlo_instruction *given = pack(b, count, parts);
  for (uint32_t r = 0; r < op->region_count; r++) {
    const vt_func *branch = op->regions[r];
    vt_hlo_computation *outer;
    operands[r + 1] = given;
    called[r] = begin_packed(b, "branch", count, branch->params, &outer);
    VT_TRY(vt_hlo_fill(b, branch));
    vt_hlo_instruction **returns = room(b, branch->return_count);
    for (uint32_t i = 0; i < branch->return_count; i++)
      returns[i] = vt_hlo_of_in(b, branch->returns[i], vt_hlo_in_host(b, &op->results[i]));
    vt_hlo_end(b, pack(b, branch->return_count, returns), outer);
  }
  vt_hlo_instruction *choice =
      vt_hlo_main(b, opcode, vt_hlo_result_shape(b, op), op->region_count + 1, operands);
  vt_hlo_call(b, choice, op->region_count, called);
  vt_hlo_copy_common(b, choice);
  vt_hlo_results(b, op, choice);
  return VT_OK;
}

vt_status vt_hlo_function(vt_hlo_builder *b, const vt_func *func,
                          vt_hlo_computation **out_computation) {
  vt_hlo_computation *outer, *made = vt_map_find_ptr(&b->funcs, func);
  if (!made) {
    made = vt_hlo_begin(b, func->name[0] ? func->name : "computation", &outer);
    for (uint32_t i = 0; i < func->param_count; i++)
      vt_hlo_define(b, func->params[i],
                    vt_hlo_param(b, vt_hlo_value_shape(b, func->params[i]),
                                 vt_arena_printf(b->arena, "Arg_%u", i)));
    VT_TRY(vt_hlo_fill(b, func));
    vt_hlo_instruction **returns = room(b, func->return_count);
    for (uint32_t i = 0; i < func->return_count; i++) returns[i] = vt_hlo_of(b, func->returns[i]);
    vt_hlo_end(b, pack(b, func->return_count, returns), outer);
    *vt_map_at_ptr(&b->funcs, func) = made;
  }
  *out_computation = made;
  return VT_OK;
}

static vt_dict_entry entry(vt_hlo_builder *b, const char *name, const char *text) {
  vt_dict_value *value = VT_NEW(b->arena, vt_dict_value);
  value->kind = VT_DICT_STRING;
  value->string = (vt_string){text, strlen(text)};
  return (vt_dict_entry){{name, strlen(name)}, value};
}

// A composite is a call that says what it stands for.
static void name_composite(vt_hlo_builder *b, const vt_op *op, vt_hlo_instruction *call) {
  vt_dict_value *dict = VT_NEW(b->arena, vt_dict_value);
  dict->kind = VT_DICT_DICT;
  dict->count = 3;
  dict->entries = VT_NEW_ARRAY(b->arena, vt_dict_entry, 3);
  vt_text text = {0};
  const vt_attr *attributes = vt_op_attr(op, VT_ATTR_COMPOSITE_ATTRIBUTES);
  vt_hlo_put_dict(&text, attributes ? attributes->dict : NULL);
  dict->entries[0] =
      entry(b, "composite.attributes", vt_arena_copy(b->arena, text.data, text.size));
  dict->entries[1] = entry(b, "composite.name", vt_attr_string(op, VT_ATTR_NAME).data);
  dict->entries[2] =
      entry(b, "composite.version",
            vt_arena_printf(b->arena, "%lld", (long long)vt_attr_i64_or(op, VT_ATTR_VERSION, 0)));
  vt_text_free(&text);
  vt_hlo_set(b, call, VT_HLO_FIELD_FRONTEND_ATTRIBUTES)->dict = dict;
  vt_hlo_set_i64(b, call, VT_HLO_FIELD_IS_COMPOSITE, 1);
}

vt_status vt_hlo_write_call(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  const vt_func *callee = vt_op_callee(op);
  vt_hlo_computation *called;
  VT_TRY(vt_hlo_function(b, callee, &called));
  vt_hlo_instruction **operands = room(b, op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] = vt_hlo_of_in(b, op->operands[i], vt_hlo_in_host(b, callee->params[i]));
  vt_hlo_instruction *call =
      vt_hlo_main(b, opcode, called->root->shape, op->operand_count, operands);
  vt_hlo_call(b, call, 1, &called);
  if (op->code == VT_OP_COMPOSITE)
    name_composite(b, op, call);
  else
    vt_hlo_copy_common(b, call);
  vt_hlo_results(b, op, call);
  return VT_OK;
}

vt_status vt_hlo_scalar_region(vt_hlo_builder *b, const vt_op *op, uint32_t region,
                               vt_hlo_computation **out_computation) {
  const vt_func *func = op->regions[region];
  uint32_t own = func->param_count - op->capture_count;
  vt_hlo_computation *outer;
  *out_computation = vt_hlo_begin(b, "region", &outer);
  for (uint32_t i = 0; i < own; i++)
    vt_hlo_define(b, func->params[i],
                  vt_hlo_param(b, vt_hlo_value_shape(b, func->params[i]),
                               vt_arena_printf(b->arena, "Arg_%u", i)));
  for (uint32_t i = own; i < func->param_count; i++) {
    const vt_op *source = op->operands[vt_op_own_operands(op) + i - own]->op;
    if (!source || source->code != VT_OP_CONSTANT)
      return vt_error(VT_UNIMPLEMENTED,
                      "%s: HLO has no form for a computation that uses a value from outside",
                      vt_op_describe(op, b->arena));
    vt_hlo_instruction *copy =
        vt_hlo_add(b, "constant", vt_hlo_value_shape(b, func->params[i]), 0, NULL);
    vt_hlo_set(b, copy, VT_HLO_FIELD_LITERAL)->literal = vt_attr_literal(source, VT_ATTR_VALUE);
    vt_hlo_define(b, func->params[i], copy);
  }
  VT_TRY(vt_hlo_fill(b, func));
  vt_hlo_instruction **returns = room(b, func->return_count);
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = vt_hlo_of(b, func->returns[i]);
  vt_hlo_end(b, pack(b, func->return_count, returns), outer);
  return VT_OK;
}

vt_status vt_hlo_write_manual(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  (void)opcode;
  return vt_error(VT_UNIMPLEMENTED, "%s: write manual computations out before making HLO",
                  vt_op_describe(op, b->arena));
}
