// SPDX-License-Identifier: Apache-2.0
// module.c - creating, linking, copying and numbering functions and ops; attribute access. See
// module.h.
#include "base/array.h"
#include "base/check.h"
#include "ir/module.h"

#include <stdlib.h>
#include <string.h>

#include "ir/sharding.h"

const vt_loc vt_loc_unknown = {.name = "", .file = ""};

vt_module *vt_module_create(void) {
  vt_arena arena = {0};
  vt_module *module = VT_NEW(&arena, vt_module);
  module->arena = arena;
  module->name = module->producer = "";
  module->num_partitions = module->num_replicas = 1;
  return module;
}

void vt_module_destroy(vt_module *module) {
  if (!module) return;
  vt_arena arena = module->arena; // the module is in its own arena
  vt_arena_free(&arena);
}

vt_func *vt_func_create(vt_module *module, const char *name) {
  vt_assert(module && name);
  vt_func *func = VT_NEW(&module->arena, vt_func);
  func->module = module;
  func->name = name;
  func->holders_known = true;
  return func;
}

void vt_module_add_func(vt_module *module, vt_func *func) {
  vt_assert(func->module == module && func->name[0]);
  // Of a module with many, this would take quadratic time.
  vt_assert(module->func_count >= 1024 || !vt_module_find_func(module, func->name));
  if ((module->func_count & (module->func_count - 1)) == 0) { // capacity doubles at powers of two
    uint32_t room = module->func_count ? module->func_count * 2 : 1;
    vt_func **grown = VT_NEW_ARRAY(&module->arena, vt_func *, room);
    if (module->func_count) memcpy(grown, module->funcs, sizeof *grown * module->func_count);
    module->funcs = grown;
  }
  module->funcs[module->func_count++] = func;
}

vt_func *vt_module_find_func(const vt_module *module, const char *name) {
  for (uint32_t i = 0; i < module->func_count; i++)
    if (!strcmp(module->funcs[i]->name, name)) return module->funcs[i];
  return NULL;
}

vt_value *vt_func_add_param(vt_func *func, vt_type type) {
  vt_assert(type.rank >= 0 && type.rank <= VT_MAX_RANK && vt_dtype_get(type.dtype)->kind);
  vt_arena *arena = &func->module->arena;
  if ((func->param_count & (func->param_count - 1)) == 0) {
    uint32_t room = func->param_count ? func->param_count * 2 : 1;
    vt_value **grown = VT_NEW_ARRAY(arena, vt_value *, room);
    if (func->param_count) memcpy(grown, func->params, sizeof *grown * func->param_count);
    func->params = grown;
  }
  vt_value *value = VT_NEW(arena, vt_value);
  func->numbered = false;
  func->value_room++;
  *value = (vt_value){.type = type, .func = func, .index = (int32_t)func->param_count, .id = -1};
  func->params[func->param_count++] = value;
  return value;
}

void vt_func_set_returns(vt_func *func, uint32_t count, vt_value *const *values) {
  func->returns = VT_NEW_ARRAY(&func->module->arena, vt_value *, count);
  func->return_count = count;
  if (count) memcpy(func->returns, values, sizeof *values * count);
}

static inline void note_made(vt_module *module, vt_opcode code) {
  uint16_t flags = vt_op_info_get(code)->flags;
  module->made[code] = true;
  if (code == VT_OP_CUSTOM_CALL || flags & VT_OPF_EFFECT) module->effects = true;
  if (flags & VT_OPF_COLLECTIVE) module->collectives = true;
}

// An op with room for all that belongs to it, in one allocation. Results have no types yet.
static vt_op *new_op(vt_func *func, vt_opcode code, uint32_t operands, uint32_t results,
                     uint32_t regions, uint32_t attrs) {
  size_t size = sizeof(vt_op) + sizeof(vt_value) * results + sizeof(vt_value *) * operands +
                sizeof(vt_func *) * regions + sizeof(vt_attr) * attrs;
  vt_module *module = func->module;
  vt_op *op = vt_arena_push(&module->arena, size);
  note_made(module, code);
  op->code = code;
  op->func = func;
  op->operand_count = operands;
  op->result_count = results;
  op->region_count = regions;
  op->attr_count = attrs;
  op->results = (vt_value *)(op + 1);
  op->attrs = (vt_attr *)(op->results + results);
  op->operands = (vt_value **)(op->attrs + attrs);
  op->regions = (vt_func **)(op->operands + operands);
  for (uint32_t i = 0; i < results; i++)
    op->results[i] = (vt_value){.op = op, .func = func, .index = (int32_t)i, .id = -1};
  return op;
}

vt_op *vt_op_create(vt_func *func, vt_opcode code, const vt_loc *loc, uint32_t operand_count,
                    vt_value *const *operands, uint32_t result_count, const vt_type *types,
                    uint32_t region_count) {
  vt_assert(code > VT_OP_INVALID && code < VT_OP_COUNT);
  vt_assert_each(i, operands ? operand_count : 0, operands[i]->func == func);
  vt_assert_each(i, result_count, types[i].rank >= 0 && types[i].rank <= VT_MAX_RANK);
  vt_op *op = new_op(func, code, operand_count, result_count, region_count, 0);
  op->loc = loc ? loc : &vt_loc_unknown;
  if (operand_count && operands) memcpy(op->operands, operands, sizeof *operands * operand_count);
  for (uint32_t i = 0; i < result_count; i++) op->results[i].type = types[i];
  return op;
}

void vt_op_become(vt_op *op, vt_opcode code) {
  vt_assert(!op->region_count && !op->capture_count);
  note_made(op->func->module, code);
  op->code = code;
  op->attr_count = 0; // others may have the same list
}

static void add_holder(vt_func *func, vt_op *op) {
  VT_ARRAY(vt_op *) list = {func->holders, func->holder_count, func->holder_room};
  vt_array_push_in(&func->module->arena, &list, op);
  func->holders = list.data;
  func->holder_count = (uint32_t)list.size;
  func->holder_room = (uint32_t)list.capacity;
}

void vt_op_append(vt_func *func, vt_op *op) {
  vt_assert(func->first != op && (!func->last || !func->last->next));
  vt_assert(op->func == func && !op->prev && !op->next);
  if (op->region_count && func->holders_removed) func->holders_known = false; // it may be listed
  if (op->region_count && func->holders_known) add_holder(func, op);
  func->numbered = false;
  func->value_room += op->result_count;
  op->prev = func->last;
  if (func->last)
    func->last->next = op;
  else
    func->first = op;
  func->last = op;
}

void vt_op_insert(vt_op *before, vt_op *op) {
  vt_assert(before != op &&
            (before->prev ? before->prev->next == before : before->func->first == before));
  vt_func *func = before->func;
  vt_assert(op->func == func && !op->prev && !op->next);
  if (op->region_count) func->holders_known = false;
  func->numbered = false;
  func->value_room += op->result_count;
  op->next = before;
  op->prev = before->prev;
  if (before->prev)
    before->prev->next = op;
  else
    func->first = op;
  before->prev = op;
}

void vt_op_remove(vt_op *op) {
  vt_assert(op->prev ? op->prev->next == op : op->func->first == op);
  vt_assert(op->next ? op->next->prev == op : op->func->last == op);
  vt_func *func = op->func;
  if (op->region_count) func->holders_removed = true;
  func->numbered = false;
  if (op->prev)
    op->prev->next = op->next;
  else
    func->first = op->next;
  if (op->next)
    op->next->prev = op->prev;
  else
    func->last = op->prev;
  op->prev = op->next = NULL;
}

void vt_func_reorder(vt_func *func, uint32_t count, vt_op *const *ops) {
  for (uint32_t i = 0; i < count; i++) {
    vt_assert(ops[i]->func == func);
    ops[i]->prev = i ? ops[i - 1] : NULL;
    ops[i]->next = i + 1 < count ? ops[i + 1] : NULL;
  }
  func->first = count ? ops[0] : NULL;
  func->last = count ? ops[count - 1] : NULL;
  func->holders_known = func->numbered = false;
}

vt_value *vt_build(vt_func *func, vt_op *before, vt_opcode code, const vt_loc *loc, vt_type type,
                   uint32_t operand_count, vt_value *const *operands) {
  vt_op *op = vt_op_create(func, code, loc, operand_count, operands, 1, &type, 0);
  if (before)
    vt_op_insert(before, op);
  else
    vt_op_append(func, op);
  return &op->results[0];
}

vt_value *vt_build_constant(vt_func *func, vt_op *before, const vt_loc *loc,
                            const vt_literal *literal) {
  vt_assert(literal->data || !vt_type_elements(literal->type));
  vt_value *value = vt_build(func, before, VT_OP_CONSTANT, loc, literal->type, 0, NULL);
  vt_op_set_attr(value->op, (vt_attr){.key = VT_ATTR_VALUE, .count = 1, .literal = literal});
  return value;
}

void vt_value_replace(vt_value *from, vt_value *to) {
  vt_assert(from != to && vt_type_equal(from->type, to->type));
  vt_func *func = from->func;
  vt_assert(to->func == func);
  for (vt_op *op = from->op ? from->op->next : func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == from) op->operands[i] = to;
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i] == from) func->returns[i] = to;
}

// Copies the ops of `from` into `to` (before `before`, or at the end), with values renamed by `map`
// (by id in `from`).
static void copy_ops(vt_func *to, vt_op *before, const vt_func *from, vt_value **map) {
  vt_assert(!before || before->func == to);
  for (const vt_op *op = from->first; op; op = op->next) {
    vt_op *copy =
        new_op(to, op->code, op->operand_count, op->result_count, op->region_count, op->attr_count);
    copy->loc = op->loc;
    for (uint32_t i = 0; i < op->operand_count; i++) copy->operands[i] = map[op->operands[i]->id];
    vt_assert_each(i, op->operand_count, copy->operands[i]); // defined before it is used
    copy->capture_count = op->capture_count;
    for (uint32_t i = 0; i < op->result_count; i++) {
      copy->results[i].type = op->results[i].type;
      map[op->results[i].id] = &copy->results[i];
    }
    for (uint32_t i = 0; i < op->region_count; i++)
      copy->regions[i] = vt_func_clone(to->module, op->regions[i]);
    if (op->attr_count) memcpy(copy->attrs, op->attrs, sizeof *op->attrs * op->attr_count);
    if (before)
      vt_op_insert(before, copy);
    else
      vt_op_append(to, copy);
  }
}

// By the ids of a numbered function: `few`, or room in the arena.
enum { FEW_VALUES = 32 };
static vt_value **map_for(const vt_func *func, vt_value **few, vt_arena *scratch) {
  if (func->value_count > FEW_VALUES) return VT_NEW_ARRAY(scratch, vt_value *, func->value_count);
  memset(few, 0, sizeof *few * FEW_VALUES);
  return few;
}

vt_func *vt_func_clone(vt_module *module, const vt_func *func) {
  vt_func_number((vt_func *)(uintptr_t)func);
  vt_func *copy = vt_func_create(module, func->name);
  vt_arena scratch = {0};
  vt_value *few[FEW_VALUES], **map = map_for(func, few, &scratch);
  for (uint32_t i = 0; i < func->param_count; i++)
    map[func->params[i]->id] = vt_func_add_param(copy, func->params[i]->type);
  copy_ops(copy, NULL, func, map);
  vt_func_set_returns(copy, func->return_count, func->returns);
  for (uint32_t i = 0; i < func->return_count; i++) copy->returns[i] = map[func->returns[i]->id];
  vt_assert_each(i, copy->return_count, copy->returns[i] && copy->returns[i]->func == copy);
  copy->param_info = func->param_info;
  copy->return_info = func->return_info;
  copy->elementwise = func->elementwise;
  vt_arena_free(&scratch);
  return copy;
}

void vt_func_inline(vt_func *callee, vt_func *func, vt_op *before, vt_value *const *args,
                    vt_value **out_returns) {
  vt_assert_each(i, callee->param_count, vt_type_equal(args[i]->type, callee->params[i]->type));
  vt_assert_each(i, callee->param_count, args[i]->func == func);
  vt_func_number(callee);
  vt_arena scratch = {0};
  vt_value *few[FEW_VALUES], **map = map_for(callee, few, &scratch);
  for (uint32_t i = 0; i < callee->param_count; i++) map[callee->params[i]->id] = args[i];
  copy_ops(func, before, callee, map);
  for (uint32_t i = 0; i < callee->return_count; i++) out_returns[i] = map[callee->returns[i]->id];
  vt_assert_each(i, callee->return_count, out_returns[i]->func == func);
  vt_arena_free(&scratch);
}

static bool func_any(const vt_func *func, bool (*is)(const vt_op *op)) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (is(op)) return true;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (func_any(op->regions[i], is)) return true;
  }
  return false;
}

bool vt_module_any(const vt_module *module, bool (*is)(const vt_op *op)) {
  for (uint32_t i = 0; i < module->func_count; i++)
    if (func_any(module->funcs[i], is)) return true;
  return false;
}

static void drop_removed_holders(vt_func *func) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < func->holder_count; i++) {
    vt_op *op = func->holders[i];
    if (op->func == func && (op->prev || func->first == op)) func->holders[count++] = op;
  }
  func->holder_count = count;
}

vt_op *const *vt_func_holders(vt_func *func, uint32_t *out_count) {
  if (!func->holders_known) {
    func->holder_count = 0;
    for (vt_op *op = func->first; op; op = op->next)
      if (op->region_count) add_holder(func, op);
  } else if (func->holders_removed) {
    drop_removed_holders(func);
  }
  func->holders_known = true;
  func->holders_removed = false;
  *out_count = func->holder_count;
  return func->holders;
}

bool vt_func_is_numbered(const vt_func *func) {
  int32_t next = 0;
  for (uint32_t i = 0; i < func->param_count; i++)
    if (func->params[i]->id != next++) return false;
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++)
      if (op->results[i].id != next++) return false;
  return next == func->value_count;
}

void vt_func_number(vt_func *func) {
  vt_assert_each(i, func->param_count,
                 func->params[i]->index == (int32_t)i && !func->params[i]->op);
  vt_assert(!func->numbered || vt_func_is_numbered(func));
  if (func->numbered) return;
  int32_t next = 0, ops = 0;
  for (uint32_t i = 0; i < func->param_count; i++) func->params[i]->id = next++;
  for (vt_op *op = func->first; op; op = op->next, ops++) {
    vt_assert(op->func == func && (op->next ? op->next->prev == op : func->last == op));
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].id = next++;
  }
  func->value_count = next;
  func->op_count = ops;
  func->value_room = (uint32_t)next;
  func->numbered = true;
}

void vt_func_number_all(vt_func *func, int32_t *next) {
  func->numbered = false;
  for (uint32_t i = 0; i < func->param_count; i++) func->params[i]->id = (*next)++;
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].id = (*next)++;
    for (uint32_t i = 0; i < op->region_count; i++) vt_func_number_all(op->regions[i], next);
  }
}

uint32_t *vt_func_use_counts(vt_func *func, vt_arena *arena) {
  bool known = func->numbered;
  uint32_t *uses = VT_NEW_ARRAY(arena, uint32_t, func->value_room);
  int32_t next = 0, ops = 0;
  if (known) vt_func_number(func); // checks
  for (uint32_t i = 0; i < func->param_count && !known; i++) func->params[i]->id = next++;
  for (vt_op *op = func->first; op; op = op->next, ops++) {
    vt_assert_each(i, op->operand_count, op->operands[i]->func == func);
    for (uint32_t i = 0; i < op->operand_count; i++) uses[op->operands[i]->id]++;
    if (known) continue;
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].id = next++;
  }
  for (uint32_t i = 0; i < func->return_count; i++) uses[func->returns[i]->id]++;
  if (!known) func->value_count = next;
  func->value_room = (uint32_t)func->value_count;
  func->op_count = ops;
  func->numbered = true;
  vt_assert(vt_func_is_numbered(func));
  return uses;
}

const vt_attr *vt_op_attr(const vt_op *op, vt_attr_key key) {
  for (uint32_t i = 0; i < op->attr_count; i++)
    if (op->attrs[i].key == key) return &op->attrs[i];
  return NULL;
}

int64_t vt_attr_i64(const vt_op *op, vt_attr_key key) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_I64 || vt_attr_kind_of(key) == VT_ATTR_KIND_BOOL ||
            vt_attr_kind_of(key) == VT_ATTR_KIND_DTYPE);
  const vt_attr *attr = vt_op_attr(op, key);
  vt_assert(attr);
  return attr->i64;
}

int64_t vt_attr_i64_or(const vt_op *op, vt_attr_key key, int64_t otherwise) {
  const vt_attr *attr = vt_op_attr(op, key);
  return attr ? attr->i64 : otherwise;
}

double vt_attr_f64(const vt_op *op, vt_attr_key key) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_F64);
  const vt_attr *attr = vt_op_attr(op, key);
  vt_assert(attr);
  return attr->f64;
}

const int64_t *vt_attr_ints(const vt_op *op, vt_attr_key key, uint32_t *out_count) {
  const vt_attr *attr = vt_op_attr(op, key);
  vt_assert(attr && vt_attr_kind_of(key) == VT_ATTR_KIND_INTS);
  if (out_count) *out_count = attr->count;
  return attr->ints;
}

vt_string vt_attr_string(const vt_op *op, vt_attr_key key) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_STRING);
  const vt_attr *attr = vt_op_attr(op, key);
  return attr ? attr->string : (vt_string){"", 0};
}

const vt_literal *vt_attr_literal(const vt_op *op, vt_attr_key key) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_LITERAL);
  const vt_attr *attr = vt_op_attr(op, key);
  return attr ? attr->literal : NULL;
}

vt_func *vt_attr_func(const vt_op *op, vt_attr_key key) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_FUNCS);
  const vt_attr *attr = vt_op_attr(op, key);
  vt_assert(attr && attr->count == 1);
  return attr->funcs[0];
}

void vt_op_set_attr(vt_op *op, vt_attr attr) {
  vt_assert(vt_attr_kind_of(attr.key) != VT_ATTR_KIND_NONE ||
            attr.key == VT_ATTR_USE_GLOBAL_DEVICE_IDS || !attr.count);
  for (uint32_t i = 0; i < op->attr_count; i++) {
    if (op->attrs[i].key == attr.key) {
      op->attrs[i] = attr;
      return;
    }
  }
  vt_attr *grown = VT_NEW_ARRAY(&op->func->module->arena, vt_attr, op->attr_count + 1);
  if (op->attr_count) memcpy(grown, op->attrs, sizeof *grown * op->attr_count);
  grown[op->attr_count++] = attr;
  op->attrs = grown;
}

void vt_op_set_i64(vt_op *op, vt_attr_key key, int64_t value) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_I64 || vt_attr_kind_of(key) == VT_ATTR_KIND_BOOL ||
            vt_attr_kind_of(key) == VT_ATTR_KIND_DTYPE);
  vt_op_set_attr(op, (vt_attr){.key = key, .count = 1, .i64 = value});
}

void vt_op_set_f64(vt_op *op, vt_attr_key key, double value) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_F64);
  vt_op_set_attr(op, (vt_attr){.key = key, .count = 1, .f64 = value});
}

void vt_op_set_ints(vt_op *op, vt_attr_key key, uint32_t count, const int64_t *values) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_INTS && (values || !count));
  int64_t *copy = VT_NEW_ARRAY(&op->func->module->arena, int64_t, count);
  if (count) memcpy(copy, values, sizeof *values * count);
  vt_op_set_attr(op, (vt_attr){.key = key, .count = count, .ints = copy});
}

void vt_op_set_string(vt_op *op, vt_attr_key key, const char *string) {
  vt_assert(vt_attr_kind_of(key) == VT_ATTR_KIND_STRING);
  size_t size = strlen(string);
  vt_string copy = {vt_arena_copy(&op->func->module->arena, string, size), size};
  vt_op_set_attr(op, (vt_attr){.key = key, .count = 1, .string = copy});
}

static bool string_equal(vt_string a, vt_string b) {
  return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

static bool literal_equal(const vt_literal *a, const vt_literal *b) {
  if (a == b) return true;
  if (!vt_type_equal(a->type, b->type) || a->splat != b->splat) return false;
  size_t bytes = a->splat ? vt_dtype_bytes(a->type.dtype) : (size_t)vt_type_bytes(a->type);
  return !bytes || !memcmp(a->data, b->data, bytes);
}

static bool dict_equal(const vt_dict_value *a, const vt_dict_value *b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->i64 != b->i64 || a->count != b->count ||
      memcmp(&a->f64, &b->f64, sizeof a->f64) || !string_equal(a->string, b->string))
    return false;
  for (size_t i = 0; i < a->count; i++) {
    if (a->kind == VT_DICT_ARRAY && !dict_equal(&a->items[i], &b->items[i])) return false;
    if (a->kind == VT_DICT_DICT && !(string_equal(a->entries[i].name, b->entries[i].name) &&
                                     dict_equal(a->entries[i].value, b->entries[i].value)))
      return false;
  }
  return true;
}

bool vt_attr_equal(const vt_attr *a, const vt_attr *b) {
  if (a->key != b->key || a->count != b->count) return false;
  switch (vt_attr_kind_of(a->key)) {
  case VT_ATTR_KIND_I64:
  case VT_ATTR_KIND_BOOL:
  case VT_ATTR_KIND_DTYPE:
    return a->i64 == b->i64;
  case VT_ATTR_KIND_F64:
    return !memcmp(&a->f64, &b->f64, sizeof a->f64);
  case VT_ATTR_KIND_STRING:
    return string_equal(a->string, b->string);
  case VT_ATTR_KIND_INTS:
    return !a->count || !memcmp(a->ints, b->ints, sizeof *a->ints * a->count);
  case VT_ATTR_KIND_STRINGS:
    for (uint32_t i = 0; i < a->count; i++)
      if (!string_equal(a->strings[i], b->strings[i])) return false;
    return true;
  case VT_ATTR_KIND_LITERAL:
    return literal_equal(a->literal, b->literal);
  case VT_ATTR_KIND_FUNCS:
    return !a->count || !memcmp(a->funcs, b->funcs, sizeof *a->funcs * a->count);
  case VT_ATTR_KIND_DICT:
    return dict_equal(a->dict, b->dict);
  case VT_ATTR_KIND_SHARDINGS:
    return !a->count || !memcmp(a->shardings, b->shardings, sizeof *a->shardings * a->count);
  case VT_ATTR_KIND_KERNEL:
    return a->kernel == b->kernel;
  case VT_ATTR_KIND_NONE:
    return true;
  }
  return false;
}

vt_func *vt_op_callee(const vt_op *op) {
  if (op->code == VT_OP_CALL) return vt_attr_func(op, VT_ATTR_CALLEE);
  return op->code == VT_OP_COMPOSITE ? vt_attr_func(op, VT_ATTR_DECOMPOSITION) : NULL;
}

bool vt_op_is_elementwise_call(const vt_op *op) {
  return op->code == VT_OP_CALL && vt_op_callee(op)->elementwise;
}

static bool func_has_effect(const vt_func *func) {
  if (func->elementwise) return false;
  for (const vt_op *op = func->first; op; op = op->next)
    if (vt_op_has_effect(op)) return true;
  return false;
}

// Calls whose effects only their own results show: not to be merged, but dropped with them.
static bool may_be_dropped(const vt_op *call) {
  const vt_attr *attr = vt_op_attr(call, VT_ATTR_FRONTEND_ATTRIBUTES);
  for (size_t i = 0; attr && i < attr->dict->count; i++) {
    const vt_dict_entry *entry = &attr->dict->entries[i];
    if (!strcmp(entry->name.data, "xla_allow_dce_side_effecting_op"))
      return entry->value->kind == VT_DICT_STRING && !strcmp(entry->value->string.data, "true");
  }
  return false;
}

bool vt_op_runs_effect(const vt_op *op) {
  if (op->code == VT_OP_CUSTOM_CALL)
    return vt_attr_i64_or(op, VT_ATTR_HAS_SIDE_EFFECT, 0) && !may_be_dropped(op);
  for (uint32_t i = 0; i < op->region_count; i++)
    if (func_has_effect(op->regions[i])) return true;
  const vt_func *callee = vt_op_callee(op);
  return callee && func_has_effect(callee);
}

const vt_func *vt_op_written_out(const vt_op *op) {
  if (op->code != VT_OP_CUSTOM_CALL) return NULL;
  const char *target = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
  const vt_attr *called = vt_op_attr(op, VT_ATTR_CALLED_COMPUTATIONS);
  bool made = called && called->count == 1 && (!strcmp(target, "Eigh") || !strcmp(target, "Svd"));
  return made ? called->funcs[0] : NULL;
}

bool vt_op_is_marker(const vt_op *op) {
  static const char *const targets[] = {
      "annotate_device_placement", "LayoutConstraint", "MoveToHost", "MoveToDevice", "PinToDevice",
      "PinToDeviceSram",           "InspectSharding"};
  if (op->code != VT_OP_CUSTOM_CALL || op->operand_count != 1 || op->result_count != 1)
    return false;
  vt_string name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (strlen(targets[i]) == name.size && !memcmp(targets[i], name.data, name.size))
      return vt_type_equal(op->operands[0]->type, op->results[0].type);
  return false;
}

const char *vt_op_describe(const vt_op *op, vt_arena *arena) {
  const vt_loc *loc = op->loc;
  const char *name = vt_op_short_name(op->code);
  vt_string target = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  if (op->code == VT_OP_CUSTOM_CALL && target.size)
    name = vt_arena_printf(arena, "%s @%.*s", name, (int)target.size, target.data);
  if (loc->name[0] && loc->file[0])
    return vt_arena_printf(arena, "%s at %s (%s:%d)", name, loc->name, loc->file, loc->line);
  if (loc->name[0]) return vt_arena_printf(arena, "%s at %s", name, loc->name);
  if (loc->file[0]) return vt_arena_printf(arena, "%s at %s:%d", name, loc->file, loc->line);
  return name;
}

bool vt_op_places(const vt_op *op, bool *out_host) {
  if (!vt_op_is_marker(op)) return false;
  const char *target = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
  *out_host = !strcmp(target, "MoveToHost");
  if (*out_host || !strcmp(target, "MoveToDevice")) return true;
  const vt_attr *attr = vt_op_attr(op, VT_ATTR_FRONTEND_ATTRIBUTES);
  if (!attr || strcmp(target, "annotate_device_placement")) return false;
  for (size_t i = 0; i < attr->dict->count; i++) {
    const vt_dict_entry *entry = &attr->dict->entries[i];
    if (strcmp(entry->name.data, "_xla_buffer_placement")) continue;
    if (entry->value->kind != VT_DICT_STRING) continue;
    *out_host = strcmp(entry->value->string.data, "device") != 0;
    return true;
  }
  return false;
}
