// SPDX-License-Identifier: Apache-2.0
// from_hlo.c - the frame in which HLO becomes the raw tree: types, locations, regions, functions,
// the module.
//
// Each instruction becomes an op with one value, a tuple if its shape is one: lowering flattens
// tuples. A computation that is called or fused becomes a function, one that a loop, branch or
// reduction runs a region. The entry takes and returns arrays, whatever tuples it is written with.
#include "import/from_hlo.h"

#include <inttypes.h>
#include <string.h>

#include "import/text_parser.h"

vt_status vt_from_hlo_error(vt_from_hlo *c, vt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(code, format, args);
  va_end(args);
  return c->at ? vt_hlo_blame(st, c->at) : st;
}

// Types -------------------------------------------------------------------------------------------

static vt_raw_type *new_type(vt_from_hlo *c, vt_raw_type_kind kind) {
  vt_raw_type *type = VT_NEW(c->arena, vt_raw_type);
  *type = (vt_raw_type){.kind = kind, .height = 1, .leaves = 1};
  return type;
}

const vt_raw_type *vt_from_hlo_array(vt_from_hlo *c, vt_dtype dtype, int32_t rank,
                                     const int64_t *dims) {
  vt_type kept = vt_type_make(c->arena, dtype, rank, dims);
  vt_raw_type *type = new_type(c, VT_RAW_TENSOR);
  type->dtype = dtype;
  type->bits = vt_dtype_get(dtype)->bits;
  type->rank = rank;
  type->dims = kept.dims;
  return type;
}

const vt_raw_type *vt_from_hlo_token(vt_from_hlo *c) {
  return new_type(c, VT_RAW_TOKEN);
}

vt_status vt_from_hlo_type(vt_from_hlo *c, const vt_hlo_shape *shape,
                           const vt_raw_type **out_type) {
  void **known = vt_map_at_ptr(&c->types, shape);
  *out_type = *known;
  if (*known) return VT_OK;
  if (shape->dynamic)
    return vt_from_hlo_error(
        c, VT_UNIMPLEMENTED,
        "it has a dynamic dimension: every size must be known when the program is compiled");
  vt_raw_type *made = NULL;
  if (shape->tuple) {
    made = new_type(c, VT_RAW_TUPLE);
    const vt_raw_type **items = VT_NEW_ARRAY(c->arena, const vt_raw_type *, shape->count + 1);
    for (uint32_t i = 0; i < shape->count; i++)
      VT_TRY(vt_from_hlo_type(c, shape->parts[i], &items[i]));
    made->count = shape->count;
    made->items = items;
    if (!vt_raw_type_measure(made))
      return vt_from_hlo_error(c, VT_INVALID_ARGUMENT, "a tuple of too many arrays");
  } else if (shape->type.dtype == VT_TOKEN) {
    made = new_type(c, VT_RAW_TOKEN);
  } else {
    made = (vt_raw_type *)(uintptr_t)vt_from_hlo_array(c, shape->type.dtype, shape->type.rank,
                                                       shape->type.dims);
  }
  *out_type = made;
  *vt_map_at_ptr(&c->types, shape) = made;
  return VT_OK;
}

// Attributes --------------------------------------------------------------------------------------

vt_raw_attr *vt_from_hlo_attr(vt_from_hlo *c, vt_raw_attr_kind kind) {
  vt_raw_attr *attr = VT_NEW(c->arena, vt_raw_attr);
  *attr = (vt_raw_attr){.kind = kind, .height = 1, .weight = 1};
  return attr;
}

void vt_from_hlo_set(vt_from_hlo *c, vt_raw_op *op, const char *name, const vt_raw_attr *value) {
  uint32_t n = op->attr_count++;
  if (!(n & (n + 1))) { // grows at 0, 1, 3, 7
    vt_raw_named *grown = VT_NEW_ARRAY(c->arena, vt_raw_named, 2 * n + 1);
    if (n) memcpy(grown, op->attrs, n * sizeof *grown);
    op->attrs = grown;
  }
  op->attrs[n] = (vt_raw_named){{name, strlen(name)}, value};
}

void vt_from_hlo_set_i64(vt_from_hlo *c, vt_raw_op *op, const char *name, int64_t value) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_INT);
  attr->i64 = value;
  vt_from_hlo_set(c, op, name, attr);
}

void vt_from_hlo_set_ints(vt_from_hlo *c, vt_raw_op *op, const char *name, uint32_t count,
                          const int64_t *ints) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_INTS);
  int64_t *copy = VT_NEW_ARRAY(c->arena, int64_t, count + 1);
  if (count) memcpy(copy, ints, count * sizeof *ints);
  attr->count = count;
  attr->ints = copy;
  vt_from_hlo_set(c, op, name, attr);
}

static vt_raw_attr *string_attr(vt_from_hlo *c, vt_string string) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_STRING);
  attr->string = string.data ? string : (vt_string){"", 0};
  return attr;
}

void vt_from_hlo_set_string(vt_from_hlo *c, vt_raw_op *op, const char *name, vt_string string) {
  vt_from_hlo_set(c, op, name, string_attr(c, string));
}

void vt_from_hlo_set_literal(vt_from_hlo *c, vt_raw_op *op, const char *name,
                             const vt_literal *literal) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_DENSE);
  vt_type type = literal->type;
  size_t bytes = (size_t)vt_type_elements(type) * vt_dtype_bytes(type.dtype);
  attr->type = vt_from_hlo_array(c, type.dtype, type.rank, type.dims);
  attr->data = (vt_bytes){literal->data, bytes};
  vt_from_hlo_set(c, op, name, attr);
}

void vt_from_hlo_set_rows(vt_from_hlo *c, vt_raw_op *op, const char *name, int64_t rows,
                          int64_t width, const int64_t *ints) {
  int64_t dims[2] = {rows, width};
  vt_literal literal = {vt_type_make(c->arena, VT_S64, 2, dims), ints, false};
  vt_from_hlo_set_literal(c, op, name, &literal);
}

const vt_raw_attr *vt_from_hlo_strings(vt_from_hlo *c, const vt_dict_value *dict) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_DICT);
  vt_string *names = VT_NEW_ARRAY(c->arena, vt_string, dict->count + 1);
  const vt_raw_attr **items = VT_NEW_ARRAY(c->arena, const vt_raw_attr *, dict->count + 1);
  for (size_t i = 0; i < dict->count; i++) {
    names[i] = dict->entries[i].name;
    items[i] = string_attr(c, dict->entries[i].value->string);
  }
  attr->count = (uint32_t)dict->count;
  attr->names = names;
  attr->items = items;
  (void)vt_raw_attr_measure(attr);
  return attr;
}

void vt_from_hlo_set_common(vt_from_hlo *c, vt_raw_op *op) {
  const vt_hlo_attr *sharding = vt_hlo_find(c->at, VT_HLO_FIELD_SHARDING);
  const vt_hlo_attr *frontend = vt_hlo_find(c->at, VT_HLO_FIELD_FRONTEND_ATTRIBUTES);
  if (sharding && sharding->string.size && !c->hlo->scheduled)
    vt_from_hlo_set_string(c, op, "mhlo.sharding", sharding->string);
  if (frontend && frontend->dict)
    vt_from_hlo_set(c, op, "mhlo.frontend_attributes", vt_from_hlo_strings(c, frontend->dict));
}

// Locations ---------------------------------------------------------------------------------------

static const vt_raw_attr *loc_items(vt_from_hlo *c, vt_raw_attr_kind kind, vt_string string,
                                    const vt_raw_attr *a, const vt_raw_attr *b) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, kind);
  const vt_raw_attr **items = VT_NEW_ARRAY(c->arena, const vt_raw_attr *, 2);
  items[0] = a;
  items[1] = b;
  attr->string = string;
  attr->count = b ? 2 : 1;
  attr->items = items;
  (void)vt_raw_attr_measure(attr);
  return attr;
}

// A file and a line, within those that called it; unknown callers are left out, and so are those
// beyond a number that no stack reaches.
enum { MAX_CALLERS = 100 };
static const vt_raw_attr *place_of(vt_from_hlo *c, const vt_loc *loc, int depth) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, loc->file[0] ? VT_RAW_LOC_FILE : VT_RAW_LOC_UNKNOWN);
  if (loc->file[0]) {
    int64_t *at = VT_NEW_ARRAY(c->arena, int64_t, 2);
    at[0] = loc->line;
    at[1] = loc->column;
    attr->string = (vt_string){loc->file, strlen(loc->file)};
    attr->ints = at;
    attr->count = 2;
  }
  if (!loc->caller || depth == MAX_CALLERS) return attr;
  void **known = vt_map_at_ptr(&c->locs, loc->caller);
  const vt_raw_attr *caller = *known;
  if (!caller) {
    caller = place_of(c, loc->caller, depth + 1);
    *vt_map_at_ptr(&c->locs, loc->caller) = (void *)(uintptr_t)caller;
  }
  if (caller->height > MAX_CALLERS) return attr;
  return loc_items(c, VT_RAW_LOC_CALL, (vt_string){"", 0}, attr, caller);
}

// An instruction without a scope is called by its own name.
static const vt_raw_attr *loc_of(vt_from_hlo *c, const vt_hlo_instruction *i) {
  const char *name = i->loc->name[0] ? i->loc->name : i->name;
  return loc_items(c, VT_RAW_LOC_NAME, (vt_string){name, strlen(name)}, place_of(c, i->loc, 0),
                   NULL);
}

// Ops and regions ---------------------------------------------------------------------------------

vt_status vt_from_hlo_operand(vt_from_hlo *c, uint32_t index, vt_raw_value **out_value) {
  if (index >= c->at->operand_count)
    return vt_from_hlo_error(c, VT_INVALID_ARGUMENT, "operand %" PRIu32 " is missing", index);
  *out_value = c->values[c->at->operands[index]->id - c->first_id];
  return VT_OK;
}

vt_raw_op *vt_from_hlo_op(vt_from_hlo *c, const char *name, uint32_t count,
                          vt_raw_value *const *operands, const vt_raw_type *result) {
  vt_raw_op *op = VT_NEW(c->arena, vt_raw_op);
  op->row = vt_parse_row((vt_string){name, strlen(name)});
  op->region = c->region;
  op->loc = (vt_raw_attr *)(uintptr_t)c->loc;
  op->operand_count = count;
  op->operands = VT_NEW_ARRAY(c->arena, vt_raw_value *, count + 1);
  if (count) memcpy(op->operands, operands, count * sizeof(vt_raw_value *));
  op->result_count = result != NULL;
  if (result) {
    op->results = VT_NEW(c->arena, vt_raw_value);
    *op->results = (vt_raw_value){.type = result, .region = c->region, .op = op};
  }
  if (c->region && c->region->last)
    c->region->last->next = op;
  else if (c->region)
    c->region->first = op;
  if (c->region) c->region->last = op;
  c->budget--;
  return op;
}

vt_status vt_from_hlo_main(vt_from_hlo *c, const char *name, vt_raw_op **out_op) {
  const vt_raw_type *type;
  VT_TRY(vt_from_hlo_type(c, c->at->shape, &type));
  vt_raw_value **operands = VT_NEW_ARRAY(c->arena, vt_raw_value *, c->at->operand_count + 1);
  for (uint32_t i = 0; i < c->at->operand_count; i++)
    VT_TRY(vt_from_hlo_operand(c, i, &operands[i]));
  *out_op = vt_from_hlo_op(c, name, c->at->operand_count, operands, type);
  vt_from_hlo_set_common(c, *out_op);
  return VT_OK;
}

static vt_raw_region *add_region(vt_from_hlo *c, vt_raw_op *op) {
  vt_raw_region *region = VT_NEW(c->arena, vt_raw_region);
  vt_raw_region **grown = VT_NEW_ARRAY(c->arena, vt_raw_region *, op->region_count + 1);
  if (op->region_count) memcpy(grown, op->regions, op->region_count * sizeof *grown);
  grown[op->region_count++] = region;
  op->regions = grown;
  region->owner = op;
  region->depth = op->region ? op->region->depth + 1 : 0;
  return region;
}

// The computation's instructions, at the end of the region; out_root is what it returns.
static vt_status fill(vt_from_hlo *c, const vt_hlo_computation *from, vt_raw_value *const *params,
                      vt_raw_value **out_root) {
  int64_t first = from->first->id;
  vt_raw_value **values = VT_NEW_ARRAY(c->arena, vt_raw_value *, from->last->id - first + 1);
  vt_raw_value **outer_values = c->values;
  const vt_hlo_instruction *outer_at = c->at;
  const vt_raw_attr *outer_loc = c->loc;
  int64_t outer_first = c->first_id;
  for (const vt_hlo_instruction *i = from->first; i; i = i->next) {
    vt_opcode code = VT_OP_INVALID;
    vt_raw_value *value = NULL;
    c->values = values; // regions inside use their own
    c->first_id = first;
    c->at = i;
    c->loc = loc_of(c, i);
    if (c->budget < 0)
      return vt_from_hlo_error(c, VT_RESOURCE_EXHAUSTED,
                               "too many instructions once computations "
                               "are copied to where they run");
    const vt_hlo_attr *number = vt_hlo_find(i, VT_HLO_FIELD_PARAMETER_NUMBER);
    if (!strcmp(i->opcode, "parameter")) {
      const vt_raw_type *type; // refuses dynamic dimensions
      VT_TRY(vt_from_hlo_type(c, i->shape, &type));
      value = params[number ? number->i64 : 0];
    } else {
      vt_from_hlo_rule rule = vt_from_hlo_find(i->opcode, &code);
      if (!rule) return vt_from_hlo_error(c, VT_UNIMPLEMENTED, "the opcode is not supported");
      VT_TRY(rule(c, i, code, &value));
    }
    values[i->id - first] = value;
  }
  *out_root = values[from->root->id - first];
  c->values = outer_values;
  c->first_id = outer_first;
  c->at = outer_at;
  c->loc = outer_loc;
  return VT_OK;
}

vt_status vt_from_hlo_region(vt_from_hlo *c, vt_raw_op *op, const vt_hlo_computation *from,
                             vt_raw_value *const *outer) {
  vt_raw_region *around = c->region, *region = add_region(c, op);
  vt_raw_value *root, **params = VT_NEW_ARRAY(c->arena, vt_raw_value *, from->param_count + 1);
  if (!outer) {
    region->arg_count = from->param_count;
    region->args = VT_NEW_ARRAY(c->arena, vt_raw_value, from->param_count + 1);
  }
  for (uint32_t i = 0; i < from->param_count; i++) {
    const vt_raw_type *type;
    VT_TRY(vt_from_hlo_type(c, from->params[i]->shape, &type));
    if (!outer) region->args[i] = (vt_raw_value){.type = type, .region = region};
    params[i] = outer ? outer[i] : &region->args[i];
  }
  c->region = region;
  VT_TRY(fill(c, from, params, &root));
  (void)vt_from_hlo_op(c, "func.return", 1, &root, NULL);
  c->region = around;
  return VT_OK;
}

// Functions ---------------------------------------------------------------------------------------

vt_string vt_from_hlo_func(vt_from_hlo *c, const vt_hlo_computation *computation) {
  void **known = vt_map_at_ptr(&c->funcs, computation);
  if (!*known) {
    const char *name = computation->name;
    while (!*name || vt_map_has(&c->names, name, strlen(name)) || !strcmp(name, "main"))
      name = vt_arena_printf(c->arena, "%s.hlo%" PRId64, name, computation->id);
    *known = (void *)(uintptr_t)name;
    *vt_map_at(&c->names, name, strlen(name)) = (void *)(uintptr_t)computation;
    vt_array_push_in(c->arena, &c->wanted, computation);
  }
  const char *name = *known;
  return (vt_string){name, strlen(name)};
}

static void set_function(vt_from_hlo *c, vt_raw_op *op, const char *name, uint32_t inputs,
                         uint32_t count, const vt_raw_type *const *items) {
  vt_raw_type *type = new_type(c, VT_RAW_FUNCTION);
  type->count = count;
  type->input_count = inputs;
  type->items = items;
  (void)vt_raw_type_measure(type);
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_TYPE);
  attr->type = type;
  vt_from_hlo_set_string(c, op, "sym_name", (vt_string){name, strlen(name)});
  vt_from_hlo_set(c, op, "function_type", attr);
}

static vt_status add_func(vt_from_hlo *c, const vt_hlo_computation *from) {
  vt_raw_op *op = vt_from_hlo_op(c, "func.func", 0, NULL, NULL);
  const vt_raw_type **items = VT_NEW_ARRAY(c->arena, const vt_raw_type *, from->param_count + 1);
  const vt_raw_type *result;
  vt_string name = vt_from_hlo_func(c, from);
  VT_TRY(vt_from_hlo_region(c, op, from, NULL));
  for (uint32_t i = 0; i < from->param_count; i++) items[i] = op->regions[0]->args[i].type;
  VT_TRY(vt_from_hlo_type(c, from->root->shape, &result));
  items[from->param_count] = result;
  set_function(c, op, name.data, from->param_count, from->param_count + 1, items);
  return VT_OK;
}

// The entry ---------------------------------------------------------------------------------------

typedef VT_ARRAY(const vt_raw_type *) type_list;
typedef VT_ARRAY(vt_raw_value *) value_list;

static void add_leaves(vt_from_hlo *c, const vt_raw_type *type, type_list *out) {
  if (type->kind != VT_RAW_TUPLE) vt_array_push_in(c->arena, out, type);
  for (uint32_t i = 0; type->kind == VT_RAW_TUPLE && i < type->count; i++)
    add_leaves(c, type->items[i], out);
}

// The arrays from *at on, as a value of the type.
static vt_raw_value *pack(vt_from_hlo *c, const vt_raw_type *type, vt_raw_value *arrays,
                          uint32_t *at) {
  if (type->kind != VT_RAW_TUPLE) return &arrays[(*at)++];
  vt_raw_value **parts = VT_NEW_ARRAY(c->arena, vt_raw_value *, type->count + 1);
  for (uint32_t i = 0; i < type->count; i++) parts[i] = pack(c, type->items[i], arrays, at);
  return vt_from_hlo_op(c, "vhlo.tuple_v1", type->count, parts, type)->results;
}

static void unpack(vt_from_hlo *c, vt_raw_value *value, value_list *out) {
  if (value->type->kind != VT_RAW_TUPLE) vt_array_push_in(c->arena, out, value);
  for (uint32_t i = 0; value->type->kind == VT_RAW_TUPLE && i < value->type->count; i++) {
    vt_raw_op *part =
        vt_from_hlo_op(c, "vhlo.get_tuple_element_v1", 1, &value, value->type->items[i]);
    vt_from_hlo_set_i64(c, part, "index", i);
    unpack(c, part->results, out);
  }
}

static void push_named(vt_from_hlo *c, vt_raw_attr *dict, const char *name,
                       const vt_raw_attr *value) {
  enum { MAX_NAMED = 8 };
  if (!dict->items) {
    dict->items = VT_NEW_ARRAY(c->arena, const vt_raw_attr *, MAX_NAMED);
    dict->names = VT_NEW_ARRAY(c->arena, vt_string, MAX_NAMED);
  }
  ((const vt_raw_attr **)(uintptr_t)dict->items)[dict->count] = value;
  ((vt_string *)(uintptr_t)dict->names)[dict->count++] = (vt_string){name, strlen(name)};
}

// What is known of an array of the entry's parameters or results.
static const vt_raw_attr *io_attr(vt_from_hlo *c, const vt_hlo_io *io,
                                  const vt_hlo_instruction *of) {
  vt_raw_attr *dict = vt_from_hlo_attr(c, VT_RAW_DICT);
  const vt_hlo_attr *frontend = of ? vt_hlo_find(of, VT_HLO_FIELD_FRONTEND_ATTRIBUTES) : NULL;
  if (io->sharding.size && !c->hlo->scheduled)
    push_named(c, dict, "mhlo.sharding", string_attr(c, io->sharding));
  if (io->host)
    push_named(c, dict, "mhlo.memory_kind", string_attr(c, (vt_string){"pinned_host", 11}));
  if (io->layout)
    push_named(c, dict, "mhlo.layout_mode",
               string_attr(c, (vt_string){io->layout, strlen(io->layout)}));
  if (io->alias_output >= 0) {
    vt_raw_attr *result = vt_from_hlo_attr(c, VT_RAW_INT);
    result->i64 = io->alias_output;
    push_named(c, dict, "tf.aliasing_output", result);
  } else if (io->donated) {
    push_named(c, dict, "jax.buffer_donor", vt_from_hlo_attr(c, VT_RAW_UNIT));
  }
  if (frontend && frontend->dict)
    push_named(c, dict, "mhlo.frontend_attributes", vt_from_hlo_strings(c, frontend->dict));
  (void)vt_raw_attr_measure(dict);
  return dict;
}

void vt_from_hlo_set_items(vt_from_hlo *c, vt_raw_op *op, const char *name, uint32_t count,
                           const vt_raw_attr *const *items) {
  vt_raw_attr *attr = vt_from_hlo_attr(c, VT_RAW_ARRAY);
  attr->count = count;
  attr->items = items;
  (void)vt_raw_attr_measure(attr);
  vt_from_hlo_set(c, op, name, attr);
}

static vt_status add_entry(vt_from_hlo *c) {
  const vt_hlo_computation *entry = c->hlo->entry;
  vt_raw_op *op = vt_from_hlo_op(c, "func.func", 0, NULL, NULL);
  vt_raw_region *around = c->region, *region = add_region(c, op);
  type_list types = {0};
  value_list results = {0};
  VT_ARRAY(const vt_raw_attr *) infos = {0};
  const vt_raw_type *type;
  for (uint32_t i = 0; i < entry->param_count; i++) {
    c->at = entry->params[i];
    VT_TRY(vt_from_hlo_type(c, entry->params[i]->shape, &type));
    add_leaves(c, type, &types);
    while (infos.size < types.size) {
      const vt_raw_attr *info = io_attr(c, &c->hlo->param_info[infos.size], entry->params[i]);
      vt_array_push_in(c->arena, &infos, info);
    }
  }
  c->at = NULL;
  region->arg_count = (uint32_t)types.size;
  region->args = VT_NEW_ARRAY(c->arena, vt_raw_value, types.size + 1);
  for (size_t i = 0; i < types.size; i++)
    region->args[i] = (vt_raw_value){.type = types.data[i], .region = region};
  c->region = region;
  vt_raw_value *root, **params = VT_NEW_ARRAY(c->arena, vt_raw_value *, entry->param_count + 1);
  uint32_t at = 0;
  for (uint32_t i = 0; i < entry->param_count; i++) {
    VT_TRY(vt_from_hlo_type(c, entry->params[i]->shape, &type));
    params[i] = pack(c, type, region->args, &at);
  }
  VT_TRY(fill(c, entry, params, &root));
  unpack(c, root, &results);
  (void)vt_from_hlo_op(c, "func.return", (uint32_t)results.size, results.data, NULL);
  c->region = around;
  const vt_raw_attr **out = VT_NEW_ARRAY(c->arena, const vt_raw_attr *, results.size + 1);
  bool known = results.size == c->hlo->result_count;
  for (size_t i = 0; i < results.size; i++) {
    vt_array_push_in(c->arena, &types, results.data[i]->type);
    out[i] = known ? io_attr(c, &c->hlo->result_info[i], NULL) : vt_from_hlo_attr(c, VT_RAW_DICT);
  }
  set_function(c, op, "main", region->arg_count, (uint32_t)types.size, types.data);
  vt_from_hlo_set_items(c, op, "arg_attrs", region->arg_count, infos.data);
  vt_from_hlo_set_items(c, op, "res_attrs", (uint32_t)results.size, out);
  return VT_OK;
}

// The module --------------------------------------------------------------------------------------

// Each computation's height above those it runs, -1 while that is being found; deep ones are
// refused, since copying and lowering descend.
enum { MAX_HEIGHT = 100 };
static vt_status measure(vt_from_hlo *c, const vt_hlo_computation *of, int32_t *heights,
                         int depth) {
  int32_t *height = &heights[of->id];
  if (*height > 0) return VT_OK;
  if (*height < 0) return vt_error(VT_INVALID_ARGUMENT, "computation %s runs itself", of->name);
  *height = -1;
  int32_t most = 0;
  for (const vt_hlo_instruction *i = of->first; i; i = i->next)
    for (uint32_t k = 0; k < i->called_count; k++) {
      c->at = i;
      if (depth >= MAX_HEIGHT)
        return vt_from_hlo_error(c, VT_INVALID_ARGUMENT, "computations run each other too deep");
      VT_TRY(measure(c, i->called[k], heights, depth + 1));
      if (heights[i->called[k]->id] > most) most = heights[i->called[k]->id];
    }
  c->at = NULL;
  if (most >= MAX_HEIGHT)
    return vt_error(VT_INVALID_ARGUMENT, "computation %s runs others too deep", of->name);
  *height = most + 1;
  return VT_OK;
}

static vt_status convert(vt_from_hlo *c, vt_raw_module *out_module) {
  const vt_hlo *hlo = c->hlo;
  int64_t count = 0;
  for (const vt_hlo_computation *k = hlo->first; k; k = k->next) count++;
  VT_TRY(measure(c, hlo->entry, VT_NEW_ARRAY(c->arena, int32_t, count), 0));
  const vt_raw_attr *unknown = c->loc = vt_from_hlo_attr(c, VT_RAW_LOC_UNKNOWN);
  vt_raw_op *top = vt_from_hlo_op(c, "builtin.module", 0, NULL, NULL);
  vt_from_hlo_set_string(c, top, "sym_name", (vt_string){hlo->name, strlen(hlo->name)});
  if (hlo->partitions) vt_from_hlo_set_i64(c, top, "mhlo.num_partitions", hlo->partitions);
  if (hlo->replicas) vt_from_hlo_set_i64(c, top, "mhlo.num_replicas", hlo->replicas);
  if (hlo->frontend)
    vt_from_hlo_set(c, top, "mhlo.frontend_attributes", vt_from_hlo_strings(c, hlo->frontend));
  c->region = add_region(c, top);
  *out_module = (vt_raw_module){.op = top, .producer = "HLO"};
  VT_TRY(add_entry(c));
  for (size_t i = 0; i < c->wanted.size; i++) {
    c->loc = unknown;
    VT_TRY(add_func(c, c->wanted.data[i]));
  }
  return VT_OK;
}

vt_status vt_raw_from_hlo(const vt_hlo *hlo, size_t program_bytes, vt_arena *arena,
                          vt_raw_module *out_module) {
  vt_from_hlo c = {.hlo = hlo, .arena = arena};
  c.budget = (1 << 18) + 4 * (int64_t)program_bytes;
  vt_status st = convert(&c, out_module);
  out_module->program_bytes = program_bytes;
  vt_map_free(&c.types);
  vt_map_free(&c.locs);
  vt_map_free(&c.funcs);
  vt_map_free(&c.names);
  return st;
}
