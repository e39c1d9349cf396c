// SPDX-License-Identifier: Apache-2.0
// lower.c - functions, regions and values of the raw tree become closed functions of a module.
//
// 1. Captures: for each op with regions, the values that its regions use from outside, found by
//    climbing from each use to the definition. Constants of one element are not captured but
//    repeated where they are used.
// 2. Functions are declared, so that calls find them in any order.
// 3. Bodies. A raw value knows the values it became in the function being built; while a region is
//    built, its captures map to the region's parameters, and the undo list restores the outer
//    mapping afterwards.
#include "import/lower.h"

#include <inttypes.h>
#include <string.h>

static vt_status lower_ops(vt_lower *lo, const vt_raw_region *region, vt_value_list *returns);

// ---- captures -----------------------------------------------------------------------------------

// A constant of one element: cheaper to repeat than to pass.
static bool is_small_constant(const vt_raw_value *value) {
  if (!value->op || value->op->row->code != VT_OP_CONSTANT) return false;
  const vt_raw_attr *data = vt_raw_find(value->op, "value");
  if (!data || data->kind != VT_RAW_DENSE || !data->type->dtype) return false;
  return data->data.size <= vt_dtype_bytes(data->type->dtype);
}

static void add_capture(vt_lower *lo, vt_raw_op *op, vt_raw_value *value) {
  const void *key[2] = {op, value};
  void **known = vt_map_at(&lo->captured, key, sizeof key);
  if (*known) return;
  *known = value;
  uint32_t n = op->capture_count;
  if ((n & (n - 1)) == 0) {
    vt_raw_value **grown = VT_NEW_ARRAY(lo->arena, vt_raw_value *, n ? 2 * n : 1);
    if (n) memcpy(grown, op->captures, n * sizeof *grown);
    op->captures = grown;
  }
  op->captures[op->capture_count++] = value;
}

static vt_status find_captures(vt_lower *lo, vt_raw_region *region) {
  for (vt_raw_op *op = region->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++) {
      vt_raw_value *value = op->operands[i];
      if (value->region == region || is_small_constant(value)) continue;
      for (vt_raw_region *r = region; r && r != value->region; r = r->owner->region) {
        vt_handler handler = r->owner->row->handler;
        if (handler == VT_HANDLE_FUNC || handler == VT_HANDLE_MODULE)
          return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                                "operand %" PRIu32 " belongs to another function", i);
        if (handler != VT_HANDLE_INLINE) add_capture(lo, r->owner, value);
      }
    }
    if (op->row->handler == VT_HANDLE_COMPOSITE) continue;
    for (uint32_t i = 0; i < op->region_count; i++) VT_TRY(find_captures(lo, op->regions[i]));
  }
  return VT_OK;
}

// ---- values -------------------------------------------------------------------------------------

void vt_lower_set_values(vt_lower *lo, vt_raw_value *value, uint32_t count,
                         vt_value *const *values) {
  value->count = count;
  value->values = VT_NEW_ARRAY(lo->arena, vt_value *, count ? count : 1);
  if (count) memcpy(value->values, values, count * sizeof *values);
}

static void set_values_for_now(vt_lower *lo, vt_raw_value *value, uint32_t count,
                               vt_value *const *values) {
  vt_lower_undo undo = {value, value->count, value->values};
  vt_array_push_in(lo->arena, &lo->undo, undo);
  vt_lower_set_values(lo, value, count, values);
}

static void undo_to(vt_lower *lo, size_t mark) {
  while (lo->undo.size > mark) {
    vt_lower_undo undo = lo->undo.data[--lo->undo.size];
    undo.value->count = undo.count;
    undo.value->values = undo.values;
  }
}

// What the operand is in the function being built, appended to `list`.
static vt_status push_operand(vt_lower *lo, const vt_raw_op *op, vt_raw_value *value,
                              vt_value_list *list) {
  bool known = value->values && (!value->count || value->values[0]->func == lo->func);
  if (!known && is_small_constant(value)) {
    const vt_literal *literal;
    VT_TRY(vt_lower_literal(lo, value->op, vt_raw_find(value->op, "value"), &literal));
    vt_value *copy = vt_build_constant(lo->func, NULL, vt_lower_loc(lo, value->op->loc), literal);
    set_values_for_now(lo, value, 1, &copy);
    known = true;
  }
  if (!known)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                          "an operand is not defined where it is used");
  lo->budget -= value->count;
  if (lo->budget < 0)
    return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "too many values in the program");
  for (uint32_t i = 0; i < value->count; i++) vt_array_push_in(lo->arena, list, value->values[i]);
  return VT_OK;
}

vt_status vt_lower_operands(vt_lower *lo, const vt_raw_op *op, vt_value_list *list) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    VT_TRY(push_operand(lo, op, op->operands[i], list));
  return VT_OK;
}

// Splits `values` over the raw results by their flattened types. errors: they do not fit
static vt_status set_results(vt_lower *lo, vt_raw_op *op, uint32_t count, vt_value *const *values) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type_list types = {0};
    VT_TRY(vt_lower_types(lo, op, op->results[i].type, &types));
    bool fits = types.size <= count - at;
    for (size_t k = 0; fits && k < types.size; k++)
      fits = vt_type_equal(types.data[k], values[at + k]->type);
    if (!fits)
      return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                            "result %" PRIu32 " has an unexpected type", i);
    vt_lower_set_values(lo, &op->results[i], (uint32_t)types.size, values ? values + at : NULL);
    at += (uint32_t)types.size;
  }
  if (at != count) return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "too few results");
  return VT_OK;
}

// Adds parameters to `func` for the flattened type of `value`, which from now on maps to them.
static vt_status add_params(vt_lower *lo, const vt_raw_op *op, vt_func *func, vt_raw_value *value) {
  vt_type_list types = {0};
  vt_value_list params = {0};
  VT_TRY(vt_lower_types(lo, op, value->type, &types));
  for (size_t i = 0; i < types.size; i++) {
    vt_value *param = vt_func_add_param(func, types.data[i]);
    vt_array_push_in(lo->arena, &params, param);
  }
  vt_lower_set_values(lo, value, (uint32_t)params.size, params.data);
  return VT_OK;
}

// ---- regions ------------------------------------------------------------------------------------

static vt_status lower_region(vt_lower *lo, vt_raw_op *op, vt_raw_region *region,
                              vt_func **out_func) {
  vt_func *outer = lo->func, *func = vt_func_create(lo->module, "");
  size_t mark = lo->undo.size;
  *out_func = func;
  if (region->empty) return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a region is empty");
  for (uint32_t i = 0; i < region->arg_count; i++)
    VT_TRY(add_params(lo, op, func, &region->args[i]));
  for (uint32_t i = 0; i < op->capture_count; i++) {
    vt_raw_value *value = op->captures[i];
    vt_value_list params = {0};
    lo->budget -= value->count;
    if (lo->budget < 0)
      return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "too many values in the program");
    for (uint32_t k = 0; k < value->count; k++) {
      vt_value *param = vt_func_add_param(func, value->values[k]->type);
      vt_array_push_in(lo->arena, &params, param);
    }
    set_values_for_now(lo, value, value->count, params.data);
  }
  lo->func = func;
  vt_value_list returns = {0};
  VT_TRY(lower_ops(lo, region, &returns));
  vt_func_set_returns(func, (uint32_t)returns.size, returns.data);
  undo_to(lo, mark);
  lo->func = outer;
  return VT_OK;
}

// ---- ops ----------------------------------------------------------------------------------------

static vt_status lower_plain(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0};
  vt_type_list types = {0};
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  size_t own = operands.size;
  bool composite = raw->row->handler == VT_HANDLE_COMPOSITE;
  for (uint32_t i = 0; i < raw->capture_count && !composite; i++)
    VT_TRY(push_operand(lo, raw, raw->captures[i], &operands));
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  vt_op *op = vt_op_create(lo->func, raw->row->code, vt_lower_loc(lo, raw->loc),
                           (uint32_t)operands.size, operands.data, (uint32_t)types.size, types.data,
                           composite ? 0 : raw->region_count);
  op->capture_count = (uint32_t)(operands.size - own);
  VT_TRY(vt_lower_attrs(lo, raw, op));
  for (uint32_t i = 0; i < op->region_count; i++)
    VT_TRY(lower_region(lo, raw, raw->regions[i], &op->regions[i]));
  vt_op_append(lo->func, op);
  vt_value_list results = {0};
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_value *result = &op->results[i];
    vt_array_push_in(lo->arena, &results, result);
  }
  return set_results(lo, raw, (uint32_t)results.size, results.data);
}

// Casts, tuples, async_done: the results are the flattened operands.
static vt_status lower_alias(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0};
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  return set_results(lo, raw, (uint32_t)operands.size, operands.data);
}

static vt_status lower_get_tuple_element(vt_lower *lo, vt_raw_op *raw) {
  const vt_raw_attr *index = vt_raw_find(raw, "index");
  const vt_raw_type *tuple = raw->operand_count == 1 ? raw->operands[0]->type : NULL;
  if (!index || index->kind != VT_RAW_INT || !tuple || tuple->kind != VT_RAW_TUPLE ||
      index->i64 < 0 || index->i64 >= tuple->count)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "the tuple has no such element");
  // Not through vt_lower_operands: programs take wide tuples apart one by one.
  const vt_raw_value *value = raw->operands[0];
  bool known = value->values && (!value->count || value->values[0]->func == lo->func);
  uint32_t at = 0;
  for (int64_t i = 0; i < index->i64; i++) at += tuple->items[i]->leaves;
  uint32_t count = tuple->items[index->i64]->leaves;
  lo->budget -= 1 + at / 64;
  if (!known || at + count > value->count)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                          "an operand is not defined where it is used");
  return set_results(lo, raw, count, value->values + at);
}

// async_start, named_computation: the ops of the region replace the op.
static vt_status lower_inline(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0}, returns = {0};
  if (raw->region_count != 1 || raw->regions[0]->empty)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "exactly one region was expected");
  const vt_raw_region *region = raw->regions[0];
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  if (region->arg_count) {
    if (region->arg_count != raw->operand_count)
      return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                            "the region takes %" PRIu32 " values, not %" PRIu32, region->arg_count,
                            raw->operand_count);
    for (uint32_t i = 0; i < region->arg_count; i++) {
      const vt_raw_value *operand = raw->operands[i];
      vt_type_list types = {0};
      VT_TRY(vt_lower_types(lo, raw, region->args[i].type, &types));
      bool fits = types.size == operand->count;
      for (size_t k = 0; fits && k < types.size; k++)
        fits = vt_type_equal(types.data[k], operand->values[k]->type);
      if (!fits)
        return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                              "argument %" PRIu32 " has a different type", i);
      vt_lower_set_values(lo, &region->args[i], operand->count, operand->values);
    }
  }
  VT_TRY(lower_ops(lo, region, &returns));
  return set_results(lo, raw, (uint32_t)returns.size, returns.data);
}

static vt_status lower_fold(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0};
  vt_type_list types = {0};
  vt_value *result;
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  VT_TRY(vt_lower_dynamic(lo, raw, &operands, &types, &result));
  return set_results(lo, raw, 1, &result);
}

static vt_status lower_einsum(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0};
  vt_value *result;
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  VT_TRY(vt_lower_einsum(lo, raw, (uint32_t)operands.size, operands.data, &result));
  return set_results(lo, raw, 1, &result);
}

static vt_status lower_chlo(vt_lower *lo, vt_raw_op *raw) {
  vt_value_list operands = {0}, results = {0};
  vt_type_list types = {0};
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  VT_TRY(vt_lower_chlo(lo, raw, &operands, &types, &results));
  return set_results(lo, raw, (uint32_t)results.size, results.data);
}

// JAX writes some operations as composites of their names, which XLA makes operations again. They
// run here as what they are decomposed into: of ragged_dot that takes less memory.
static vt_status lower_composite(vt_lower *lo, vt_raw_op *raw) {
  const vt_raw_attr *name = vt_raw_find(raw, "name");
  vt_value_list operands = {0};
  vt_type_list types = {0};
  if (!name || name->kind != VT_RAW_STRING || !vt_string_is(name->string, "chlo.ragged_dot"))
    return lower_plain(lo, raw);
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  for (uint32_t i = 0; i < raw->result_count; i++)
    VT_TRY(vt_lower_types(lo, raw, raw->results[i].type, &types));
  vt_value *result = lo->module->outline ? vt_lower_ragged_dot(lo, raw, &operands, &types) : NULL;
  if (result) return set_results(lo, raw, 1, &result);
  VT_TRY(lower_plain(lo, raw));
  vt_func *callee = lo->func->last ? vt_op_callee(lo->func->last) : NULL;
  if (callee) vt_array_push_in(lo->arena, &lo->ragged, callee);
  return VT_OK;
}

static vt_status lower_op(vt_lower *lo, vt_raw_op *raw) {
  if (raw->row->code == VT_OP_CUSTOM_CALL || raw->row->code == VT_OP_CALL) {
    bool done;
    VT_TRY(vt_lower_custom(lo, raw, &done));
    if (done) return VT_OK;
  }
  switch (raw->row->handler) {
  case VT_HANDLE_OP:
    return lower_plain(lo, raw);
  case VT_HANDLE_COMPOSITE:
    return lower_composite(lo, raw);
  case VT_HANDLE_EINSUM:
    return lower_einsum(lo, raw);
  case VT_HANDLE_CHLO:
    return lower_chlo(lo, raw);
  case VT_HANDLE_TUPLE:
  case VT_HANDLE_ALIAS:
    return lower_alias(lo, raw);
  case VT_HANDLE_GET_TUPLE_ELEMENT:
    return lower_get_tuple_element(lo, raw);
  case VT_HANDLE_INLINE:
    return lower_inline(lo, raw);
  case VT_HANDLE_FOLD:
    return lower_fold(lo, raw);
  case VT_HANDLE_MODULE:
  case VT_HANDLE_FUNC:
  case VT_HANDLE_MESH:
  case VT_HANDLE_RETURN:
    break;
  }
  return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "not allowed here");
}

static vt_status lower_ops(vt_lower *lo, const vt_raw_region *region, vt_value_list *returns) {
  for (vt_raw_op *op = region->first; op; op = op->next) {
    if (op->row->handler == VT_HANDLE_RETURN) {
      if (op->next) return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "ops follow the return");
      return vt_lower_operands(lo, op, returns);
    }
    VT_TRY(lower_op(lo, op));
  }
  return vt_lower_error(lo, region->owner, VT_INVALID_ARGUMENT, "a region has no return");
}

// ---- functions and the module -------------------------------------------------------------------

static vt_status lower_io_info(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *dict,
                               const vt_raw_type *type, vt_io_info *info) {
  *info = (vt_io_info){.alias_output = -1, .memory_kind = "", .layout_mode = "", .name = ""};
  if (!dict) return VT_OK;
  if (dict->kind != VT_RAW_DICT)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a dictionary was expected");
  const struct {
    const char *name;
    const char **out;
  } texts[] = {{"mhlo.memory_kind", &info->memory_kind},
               {"mhlo.layout_mode", &info->layout_mode},
               {"jax.result_info", &info->name}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const vt_raw_attr *value = vt_raw_dict_find(dict, texts[i].name);
    if (value && value->kind == VT_RAW_STRING) *texts[i].out = vt_lower_text(lo, value->string);
  }
  const vt_raw_attr *alias = vt_raw_dict_find(dict, "tf.aliasing_output");
  if (alias && alias->kind == VT_RAW_INT && alias->i64 >= 0 && alias->i64 < INT32_MAX)
    info->alias_output = (int32_t)alias->i64;
  const vt_raw_attr *donor = vt_raw_dict_find(dict, "jax.buffer_donor");
  info->donor = donor && (donor->kind == VT_RAW_UNIT || (donor->kind == VT_RAW_BOOL && donor->i64));
  const vt_raw_attr *sharding = vt_raw_dict_find(dict, "sdy.sharding");
  if (sharding) return vt_lower_sharding(lo, op, sharding, &info->sharding);
  VT_TRY(vt_lower_frontend_sharding(lo, op, dict, "xla.sdy.sharding", &info->sharding));
  sharding = vt_raw_dict_find(dict, "mhlo.sharding");
  if (!info->sharding && sharding && sharding->kind == VT_RAW_STRING && type->kind == VT_RAW_TENSOR)
    return vt_lower_tiles(lo, op, sharding->string, type->rank, &info->sharding);
  return VT_OK;
}

// One entry per flattened value; `kinds` are the raw types that the `count` dictionaries (or none)
// belong to.
static vt_status lower_io_infos(vt_lower *lo, const vt_raw_op *op, const char *attr_name,
                                uint32_t count, const vt_raw_type *const *kinds,
                                uint32_t flat_count, vt_io_info **out_infos) {
  const vt_raw_attr *dicts = vt_raw_find(op, attr_name);
  if (dicts && (dicts->kind != VT_RAW_ARRAY || (dicts->count && dicts->count != count)))
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "%s does not fit the function", attr_name);
  vt_io_info *infos = *out_infos = VT_NEW_ARRAY(&lo->module->arena, vt_io_info, flat_count);
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; i++) {
    vt_io_info info;
    VT_TRY(lower_io_info(lo, op, dicts && dicts->count ? dicts->items[i] : NULL, kinds[i], &info));
    for (uint32_t k = 0; k < kinds[i]->leaves && at < flat_count; k++) infos[at++] = info;
  }
  return VT_OK;
}

// A parameter's location is its name in the user's tree.
static void name_params(vt_lower *lo, const vt_raw_region *body, vt_func *func) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < body->arg_count; i++)
    for (uint32_t k = 0; k < body->args[i].count; k++)
      func->param_info[at++].name = vt_lower_loc(lo, body->args[i].loc)->name;
}

static vt_status declare_func(vt_lower *lo, vt_raw_op *op) {
  const vt_raw_attr *name = vt_raw_find(op, "sym_name"), *type = vt_raw_find(op, "function_type");
  if (!name || name->kind != VT_RAW_STRING || !name->string.size || !type ||
      type->kind != VT_RAW_TYPE || type->type->kind != VT_RAW_FUNCTION || op->region_count != 1)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a function lacks its name, type or body");
  vt_raw_region *body = op->regions[0];
  const char *text = vt_lower_text(lo, name->string);
  if (body->empty) return vt_lower_error(lo, op, VT_UNIMPLEMENTED, "function %s has no body", text);
  if (vt_map_has(&lo->funcs, name->string.data, name->string.size))
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "there are two functions %s", text);
  if (body->arg_count != type->type->input_count)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                          "function %s has %" PRIu32 " arguments, its type %" PRIu32, text,
                          body->arg_count, type->type->input_count);
  vt_func *func = vt_func_create(lo->module, text);
  *vt_map_at(&lo->funcs, name->string.data, name->string.size) = func;
  for (uint32_t i = 0; i < body->arg_count; i++) VT_TRY(add_params(lo, op, func, &body->args[i]));
  VT_TRY(lower_io_infos(lo, op, "arg_attrs", type->type->input_count, type->type->items,
                        func->param_count, &func->param_info));
  name_params(lo, body, func);
  vt_module_add_func(lo->module, func);
  if (!strcmp(text, "main")) lo->module->main = func;
  return VT_OK;
}

static vt_status lower_func(vt_lower *lo, vt_raw_op *op) {
  vt_string name = vt_raw_find(op, "sym_name")->string;
  const vt_raw_type *type = vt_raw_find(op, "function_type")->type;
  vt_func *func = vt_map_find(&lo->funcs, name.data, name.size);
  vt_value_list returns = {0};
  vt_type_list types = {0};
  lo->func = func;
  VT_TRY(lower_ops(lo, op->regions[0], &returns));
  for (uint32_t i = type->input_count; i < type->count; i++)
    VT_TRY(vt_lower_types(lo, op, type->items[i], &types));
  bool fits = types.size == returns.size;
  for (size_t i = 0; fits && i < types.size; i++)
    fits = vt_type_equal(types.data[i], returns.data[i]->type);
  if (!fits)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                          "function %s does not return what its type says", func->name);
  vt_func_set_returns(func, (uint32_t)returns.size, returns.data);
  VT_TRY(lower_io_infos(lo, op, "res_attrs", type->count - type->input_count,
                        type->items + type->input_count, func->return_count, &func->return_info));
  const vt_raw_op *last = op->regions[0]->last;
  for (uint32_t i = 0; i < last->operand_count && last->operand_count == func->return_count; i++)
    if (!func->return_info[i].sharding)
      VT_TRY(vt_lower_result_sharding(lo, last->operands[i], &func->return_info[i].sharding));
  return VT_OK;
}

vt_status vt_lower_add_mesh(vt_lower *lo, const vt_raw_op *op, vt_string name,
                            const vt_raw_attr *attr) {
  const vt_mesh *mesh;
  vt_module *module = lo->module;
  VT_TRY(vt_lower_mesh(lo, op, attr, vt_lower_text(lo, name), &mesh));
  void **place = vt_map_at(&lo->meshes, name.data, name.size);
  if (*place)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "there are two meshes %s", mesh->name);
  *place = (void *)(uintptr_t)mesh;
  if ((module->mesh_count & (module->mesh_count - 1)) == 0) { // capacity doubles at powers of two
    const vt_mesh **grown = VT_NEW_ARRAY(&module->arena, const vt_mesh *,
                                         module->mesh_count ? 2 * module->mesh_count : 1);
    if (module->mesh_count) memcpy(grown, module->meshes, module->mesh_count * sizeof *grown);
    module->meshes = grown;
  }
  module->meshes[module->mesh_count++] = mesh;
  return VT_OK;
}

static vt_status declare_mesh(vt_lower *lo, const vt_raw_op *op) {
  const vt_raw_attr *name = vt_raw_find(op, "sym_name"), *attr = vt_raw_find(op, "mesh");
  if (!name || name->kind != VT_RAW_STRING || !attr)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a mesh lacks its name or axes");
  return vt_lower_add_mesh(lo, op, name->string, attr);
}

static vt_status lower_grid(vt_lower *lo, const vt_raw_op *op, const char *name, int32_t *out) {
  const vt_raw_attr *attr = vt_raw_find(op, name);
  if (!attr) return VT_OK;
  if (attr->kind != VT_RAW_INT || attr->i64 < 1 || attr->i64 > 1 << 20)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "%s is not a number of devices", name);
  *out = (int32_t)attr->i64;
  return VT_OK;
}

static vt_status lower_all(vt_lower *lo, const vt_raw_module *raw) {
  vt_raw_op *top = raw->op;
  if (top->row->handler != VT_HANDLE_MODULE || top->region_count != 1)
    return vt_error(VT_INVALID_ARGUMENT, "the program is not a module");
  const vt_raw_attr *name = vt_raw_find(top, "sym_name");
  if (name && name->kind == VT_RAW_STRING) lo->module->name = vt_lower_text(lo, name->string);
  lo->module->producer = vt_lower_text(lo, (vt_string){raw->producer, strlen(raw->producer)});
  VT_TRY(lower_grid(lo, top, "mhlo.num_partitions", &lo->module->num_partitions));
  VT_TRY(lower_grid(lo, top, "mhlo.num_replicas", &lo->module->num_replicas));
  vt_raw_region *body = top->regions[0];
  VT_TRY(find_captures(lo, body));
  VT_TRY(vt_lower_text_meshes(lo, top));
  for (vt_raw_op *op = body->first; op; op = op->next)
    if (op->row->handler == VT_HANDLE_MESH) VT_TRY(declare_mesh(lo, op));
  for (vt_raw_op *op = body->first; op; op = op->next) {
    if (op->row->handler == VT_HANDLE_FUNC)
      VT_TRY(declare_func(lo, op));
    else if (op->row->handler != VT_HANDLE_MESH)
      return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "not allowed outside of a function");
  }
  for (vt_raw_op *op = body->first; op; op = op->next)
    if (op->row->handler == VT_HANDLE_FUNC) VT_TRY(lower_func(lo, op));
  for (uint32_t i = 0; lo->crossings && i < lo->module->func_count; i++)
    VT_TRY(vt_lower_crossings(lo, lo->module->funcs[i]));
  for (size_t i = 0; i < lo->ragged.size; i++) vt_lower_mark_ragged(lo->ragged.data[i]);
  if (!lo->module->main) return vt_error(VT_INVALID_ARGUMENT, "the program has no function main");
  return VT_OK;
}

vt_status vt_lower_module(const vt_raw_module *raw, vt_arena *scratch, vt_module *module) {
  vt_lower lo = {.module = module, .arena = scratch};
  lo.budget = (1 << 20) + 16 * (int64_t)raw->program_bytes;
  vt_status st = lower_all(&lo, raw);
  vt_map_free(&lo.funcs);
  vt_map_free(&lo.meshes);
  vt_map_free(&lo.strings);
  vt_map_free(&lo.captured);
  vt_map_free(&lo.tiles);
  vt_map_free(&lo.groups);
  return st;
}
