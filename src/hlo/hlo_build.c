// SPDX-License-Identifier: Apache-2.0
// hlo_build.c - makes HLO from a module: the frame, and the parts that all ops share.
//
// Each function and region becomes a computation, written after those that it uses. Instructions
// are named after the operation in the user's program, as XLA names what it imports, and numbered
// through.
#include <string.h>

#include "hlo/hlo_builder.h"

static const struct {
  const char *opcode;
  vt_hlo_rule rule;
} rows[VT_OP_COUNT] = {
#define HLO(name, opcode, rule) [VT_OP_##name] = {opcode, vt_hlo_write_##rule},
#include "hlo/hlo_opcodes.def"
#undef HLO
};

// Shapes ------------------------------------------------------------------------------------------

const vt_hlo_shape *vt_hlo_array(vt_hlo_builder *b, vt_type type, bool host) {
  vt_hlo_shape *shape = VT_NEW(b->arena, vt_hlo_shape);
  shape->type = type;
  shape->host = host;
  return shape;
}

const vt_hlo_shape *vt_hlo_tuple_shape(vt_hlo_builder *b, uint32_t count,
                                       const vt_hlo_shape *const *parts) {
  vt_hlo_shape *shape = VT_NEW(b->arena, vt_hlo_shape);
  const vt_hlo_shape **copy = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  if (count) memcpy(copy, parts, count * sizeof *parts);
  shape->tuple = true;
  shape->count = count;
  shape->parts = copy;
  return shape;
}

const vt_hlo_shape *vt_hlo_value_shape(vt_hlo_builder *b, const vt_value *value) {
  return vt_hlo_array(b, value->type, vt_hlo_in_host(b, value));
}

const vt_hlo_shape *vt_hlo_result_shape(vt_hlo_builder *b, const vt_op *op) {
  if (op->result_count == 1) return vt_hlo_value_shape(b, &op->results[0]);
  const vt_hlo_shape **parts = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, op->result_count + 1);
  for (uint32_t i = 0; i < op->result_count; i++) parts[i] = vt_hlo_value_shape(b, &op->results[i]);
  return vt_hlo_tuple_shape(b, op->result_count, parts);
}

// Instructions ------------------------------------------------------------------------------------

static vt_hlo_instruction *append(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                                  uint32_t operand_count, vt_hlo_instruction *const *operands) {
  vt_hlo_instruction *instruction = VT_NEW(b->arena, vt_hlo_instruction);
  instruction->opcode = opcode;
  instruction->id = ++b->next_instruction;
  instruction->shape = shape;
  instruction->operand_count = operand_count;
  instruction->operands = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, operand_count + 1);
  if (operand_count)
    memcpy(instruction->operands, operands, operand_count * sizeof(vt_hlo_instruction *));
  instruction->loc = b->op ? b->op->loc : &vt_loc_unknown;
  if (b->at->last)
    b->at->last->next = instruction;
  else
    b->at->first = instruction;
  b->at->last = instruction;
  return instruction;
}

vt_hlo_instruction *vt_hlo_add(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                               uint32_t operand_count, vt_hlo_instruction *const *operands) {
  vt_hlo_instruction *instruction = append(b, opcode, shape, operand_count, operands);
  instruction->name = vt_arena_printf(b->arena, "%s.%lld", opcode, (long long)instruction->id);
  return instruction;
}

// XLA's names have letters, digits and _ - . only.
static const char *allowed(vt_hlo_builder *b, const char *name) {
  char *copy = vt_arena_copy(b->arena, name, strlen(name));
  for (char *c = copy; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
          *c == '_' || *c == '-' || *c == '.'))
      *c = '_';
  return copy;
}

// The last word of the op's scope, of characters that names may have; the opcode when there is
// none.
static const char *base_name(vt_hlo_builder *b, const vt_op *op, const char *opcode) {
  const char *name = op->loc->name, *slash = strrchr(name, '/');
  if (slash) name = slash + 1;
  if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || *name == '_'))
    return opcode;
  return allowed(b, name);
}

vt_hlo_instruction *vt_hlo_main(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                                uint32_t operand_count, vt_hlo_instruction *const *operands) {
  const vt_op *op = b->op;
  if (!operands) {
    operand_count = vt_op_own_operands(op);
    vt_hlo_instruction **own = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, operand_count + 1);
    for (uint32_t i = 0; i < operand_count; i++) own[i] = vt_hlo_of(b, op->operands[i]);
    operands = own;
  }
  vt_hlo_instruction *instruction = append(b, opcode, shape, operand_count, operands);
  instruction->name =
      vt_arena_printf(b->arena, "%s.%lld", base_name(b, op, opcode), (long long)instruction->id);
  return instruction;
}

vt_hlo_instruction *vt_hlo_tuple(vt_hlo_builder *b, uint32_t count,
                                 vt_hlo_instruction *const *parts) {
  const vt_hlo_shape **shapes = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  for (uint32_t i = 0; i < count; i++) shapes[i] = parts[i]->shape;
  return vt_hlo_add(b, "tuple", vt_hlo_tuple_shape(b, count, shapes), count, parts);
}

vt_hlo_instruction *vt_hlo_part(vt_hlo_builder *b, vt_hlo_instruction *tuple, uint32_t index) {
  vt_hlo_instruction *part =
      vt_hlo_add(b, "get-tuple-element", tuple->shape->parts[index], 1, &tuple);
  vt_hlo_set_i64(b, part, VT_HLO_FIELD_TUPLE_INDEX, index);
  return part;
}

vt_hlo_instruction *vt_hlo_of(vt_hlo_builder *b, const vt_value *value) {
  return vt_map_find_ptr(&b->values, value);
}

void vt_hlo_define(vt_hlo_builder *b, const vt_value *value, vt_hlo_instruction *instruction) {
  *vt_map_at_ptr(&b->values, value) = instruction;
}

void vt_hlo_results(vt_hlo_builder *b, const vt_op *op, vt_hlo_instruction *instruction) {
  if (op->result_count == 1) vt_hlo_define(b, &op->results[0], instruction);
  if (op->result_count == 1) return;
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_hlo_define(b, &op->results[i], vt_hlo_part(b, instruction, i));
}

void vt_hlo_call(vt_hlo_builder *b, vt_hlo_instruction *instruction, uint32_t count,
                 vt_hlo_computation *const *called) {
  instruction->called_count = count;
  instruction->called = VT_NEW_ARRAY(b->arena, vt_hlo_computation *, count + 1);
  if (count) memcpy(instruction->called, called, count * sizeof *called);
}

// Moving between the memories ---------------------------------------------------------------------

static const vt_hlo_shape *context_shape(vt_hlo_builder *b) {
  return vt_hlo_array(b, (vt_type){.dtype = VT_U32}, false);
}

vt_hlo_instruction *vt_hlo_of_in(vt_hlo_builder *b, const vt_value *value, bool host) {
  vt_hlo_instruction *source = vt_hlo_of(b, value);
  if (source->shape->host == host || value->type.dtype == VT_TOKEN) return source;
  void **moved = vt_map_at_ptr(&b->moved, source);
  if (*moved) return *moved;
  const vt_hlo_shape *there = vt_hlo_array(b, value->type, host);
  const vt_hlo_shape *parts[] = {there, source->shape, context_shape(b)};
  vt_hlo_instruction *start =
      vt_hlo_add(b, "copy-start", vt_hlo_tuple_shape(b, 3, parts), 1, &source);
  vt_hlo_instruction *done = vt_hlo_add(b, "copy-done", there, 1, &start);
  *moved = done;
  return done;
}

vt_hlo_instruction *vt_hlo_async(vt_hlo_builder *b, const char *opcode, const vt_hlo_shape *shape,
                                 uint32_t operand_count, vt_hlo_instruction *const *operands,
                                 void (*attributes)(vt_hlo_builder *b,
                                                    vt_hlo_instruction *instruction)) {
  vt_hlo_computation *outer, *wrapper = vt_hlo_begin(b, "async_computation", &outer);
  vt_hlo_instruction **params = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, operand_count);
  const vt_hlo_shape **shapes = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, operand_count);
  for (uint32_t i = 0; i < operand_count; i++) {
    shapes[i] = operands[i]->shape;
    params[i] = vt_hlo_param(b, shapes[i], "param");
  }
  vt_hlo_instruction *inner = vt_hlo_add(b, opcode, shape, operand_count, params);
  attributes(b, inner);
  wrapper->wrapper = true;
  vt_hlo_end(b, inner, outer);
  const vt_hlo_shape *parts[] = {vt_hlo_tuple_shape(b, operand_count, shapes), shape,
                                 context_shape(b)};
  vt_hlo_instruction *start =
      append(b, "async-start", vt_hlo_tuple_shape(b, 3, parts), operand_count, operands);
  start->name = vt_arena_printf(b->arena, "%s-start.%lld", opcode, (long long)start->id);
  vt_hlo_call(b, start, 1, &wrapper);
  vt_hlo_instruction *done = append(b, "async-done", shape, 1, &start);
  done->name = vt_arena_printf(b->arena, "%s-done.%lld", opcode, (long long)done->id);
  vt_hlo_call(b, done, 1, &wrapper);
  return done;
}

// Attributes --------------------------------------------------------------------------------------

vt_hlo_attr *vt_hlo_set(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field) {
  return vt_hlo_add_attr(b->arena, instruction, field);
}

void vt_hlo_set_i64(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                    int64_t value) {
  vt_hlo_set(b, instruction, field)->i64 = value;
}

void vt_hlo_set_ints(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                     uint32_t count, const int64_t *ints) {
  vt_hlo_attr *attr = vt_hlo_set(b, instruction, field);
  int64_t *copy = VT_NEW_ARRAY(b->arena, int64_t, count + 1);
  if (count) memcpy(copy, ints, count * sizeof *ints);
  attr->ints = copy;
  attr->count = count;
}

void vt_hlo_set_string(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                       vt_string string) {
  vt_hlo_set(b, instruction, field)->string = string;
}

void vt_hlo_copy(vt_hlo_builder *b, vt_hlo_instruction *instruction, vt_hlo_field field,
                 vt_attr_key key) {
  const vt_attr *from = vt_op_attr(b->op, key);
  if (!from) return;
  vt_hlo_attr *attr = vt_hlo_set(b, instruction, field);
  switch (vt_attr_kind_of(key)) {
  case VT_ATTR_KIND_INTS:
    attr->ints = (int64_t *)(uintptr_t)from->ints; // only readers add to them
    attr->count = from->count;
    break;
  case VT_ATTR_KIND_F64:
    attr->f64 = from->f64;
    break;
  case VT_ATTR_KIND_STRING:
    attr->string = from->string;
    break;
  case VT_ATTR_KIND_DICT:
    attr->dict = from->dict;
    break;
  case VT_ATTR_KIND_LITERAL:
    attr->literal = from->literal;
    break;
  default:
    attr->i64 = from->i64;
  }
}

void vt_hlo_copy_common(vt_hlo_builder *b, vt_hlo_instruction *instruction) {
  vt_string sharding = vt_attr_string(b->op, VT_ATTR_MHLO_SHARDING);
  if (sharding.size && sharding.data[0] != '{') // a message, not text
    vt_hlo_set_string(b, instruction, VT_HLO_FIELD_SHARDING, sharding);
  vt_hlo_copy(b, instruction, VT_HLO_FIELD_FRONTEND_ATTRIBUTES, VT_ATTR_FRONTEND_ATTRIBUTES);
}

// Computations ------------------------------------------------------------------------------------

vt_hlo_computation *vt_hlo_begin(vt_hlo_builder *b, const char *name,
                                 vt_hlo_computation **out_outer) {
  vt_hlo_computation *computation = VT_NEW(b->arena, vt_hlo_computation);
  computation->id = ++b->next_computation;
  computation->name =
      vt_arena_printf(b->arena, "%s.%lld", allowed(b, name), (long long)computation->id);
  *out_outer = b->at;
  b->at = computation;
  return computation;
}

void vt_hlo_end(vt_hlo_builder *b, vt_hlo_instruction *root, vt_hlo_computation *outer) {
  b->at->root = root;
  if (b->last)
    b->last->next = b->at;
  else
    b->hlo->first = b->at;
  b->last = b->at;
  b->at = outer;
}

vt_hlo_instruction *vt_hlo_param(vt_hlo_builder *b, const vt_hlo_shape *shape, const char *name) {
  vt_hlo_computation *to = b->at;
  vt_hlo_instruction *param = append(b, "parameter", shape, 0, NULL);
  param->name = vt_arena_printf(b->arena, "%s.%lld", name, (long long)param->id);
  param->loc = &vt_loc_unknown;
  vt_hlo_set_i64(b, param, VT_HLO_FIELD_PARAMETER_NUMBER, to->param_count);
  if (!(to->param_count & (to->param_count + 1))) { // grows at 0, 1, 3, 7
    vt_hlo_instruction **more =
        VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, 2 * to->param_count + 1);
    if (to->param_count) memcpy(more, to->params, to->param_count * sizeof *more);
    to->params = more;
  }
  to->params[to->param_count++] = param;
  return param;
}

vt_status vt_hlo_fill(vt_hlo_builder *b, const vt_func *func) {
  const vt_op *outer = b->op;
  for (const vt_op *op = func->first; op; op = op->next) {
    b->op = op;
    vt_hlo_rule rule = rows[op->code].rule;
    VT_TRY(rule ? rule(b, op, rows[op->code].opcode) : vt_hlo_write_foreign(b, op));
  }
  b->op = outer;
  return VT_OK;
}

// The entry computation ---------------------------------------------------------------------------

static vt_hlo_io io_of(const vt_io_info *info) {
  vt_hlo_io io = {.alias_output = info ? info->alias_output : -1};
  if (!info) return io;
  io.donated = info->donor;
  io.host = info->memory_kind[0] && strcmp(info->memory_kind, "device") != 0;
  if (info->layout_mode[0] == '{') io.layout = info->layout_mode;
  return io;
}

static vt_hlo_io *ios_of(vt_arena *arena, uint32_t count, const vt_hlo_io *given,
                         const vt_io_info *said) {
  vt_hlo_io *ios = VT_NEW_ARRAY(arena, vt_hlo_io, count + 1);
  for (uint32_t i = 0; i < count; i++) ios[i] = given ? given[i] : io_of(said ? &said[i] : NULL);
  return ios;
}

static const vt_hlo_shape *border_shape(vt_hlo_builder *b, vt_type type, const vt_hlo_io *io) {
  vt_hlo_shape *shape = VT_NEW(b->arena, vt_hlo_shape);
  *shape = (vt_hlo_shape){.type = type, .host = io->host, .layout = io->layout};
  return shape;
}

static vt_status build_entry(vt_hlo_builder *b) {
  vt_hlo *hlo = b->hlo;
  const vt_func *main = b->module->main;
  vt_hlo_computation *outer;
  hlo->entry = vt_hlo_begin(b, main->name[0] ? main->name : "main", &outer);
  hlo->params = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, main->param_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    hlo->params[i] = border_shape(b, main->params[i]->type, &hlo->param_info[i]);
    vt_hlo_instruction *param =
        vt_hlo_param(b, hlo->params[i], vt_arena_printf(b->arena, "Arg_%u", i));
    if (hlo->param_info[i].sharding.size)
      vt_hlo_set_string(b, param, VT_HLO_FIELD_SHARDING, hlo->param_info[i].sharding);
    vt_hlo_define(b, main->params[i], param);
  }
  VT_TRY(vt_hlo_fill(b, main));
  uint32_t count = main->return_count;
  vt_hlo_instruction **roots = VT_NEW_ARRAY(b->arena, vt_hlo_instruction *, count + 1);
  const vt_hlo_shape **shapes = VT_NEW_ARRAY(b->arena, const vt_hlo_shape *, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    roots[i] = vt_hlo_of_in(b, main->returns[i], hlo->result_info[i].host);
    shapes[i] = border_shape(b, main->returns[i]->type, &hlo->result_info[i]);
  }
  hlo->result = count == 1 ? shapes[0] : vt_hlo_tuple_shape(b, count, shapes);
  vt_hlo_end(b, count == 1 ? roots[0] : vt_hlo_tuple(b, count, roots), outer);
  return VT_OK;
}

vt_status vt_hlo_build(const vt_module *module, const vt_hlo_options *options, vt_hlo **out_hlo) {
  vt_arena arena = {0};
  vt_hlo *hlo = VT_NEW(&arena, vt_hlo);
  const vt_func *main = module->main;
  hlo->arena = arena;
  hlo->name = module->name && module->name[0] ? module->name : "module";
  hlo->partitions = options->partitions ? options->partitions : module->num_partitions;
  hlo->replicas = options->replicas ? options->replicas : module->num_replicas;
  hlo->param_count = main->param_count;
  hlo->result_count = main->return_count;
  hlo->param_info = ios_of(&hlo->arena, main->param_count, options->params, main->param_info);
  hlo->result_info = ios_of(&hlo->arena, main->return_count, options->results, main->return_info);
  vt_hlo_builder b = {.hlo = hlo, .arena = &hlo->arena, .module = module};
  vt_hlo_place(&b);
  vt_status st = build_entry(&b);
  vt_map_free(&b.host);
  vt_map_free(&b.staged);
  vt_map_free(&b.values);
  vt_map_free(&b.moved);
  vt_map_free(&b.funcs);
  *out_hlo = NULL;
  if (st)
    vt_hlo_destroy(hlo);
  else
    *out_hlo = hlo;
  return st;
}

void vt_hlo_destroy(vt_hlo *hlo) {
  if (!hlo) return;
  vt_arena arena = hlo->arena; // holds the hlo itself
  vt_arena_free(&arena);
}
