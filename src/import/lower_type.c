// SPDX-License-Identifier: Apache-2.0
// lower_type.c - types, literals, dictionaries, locations and texts of the raw tree, converted for
// the module.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"

vt_status vt_lower_error(vt_lower *lo, const vt_raw_op *op, vt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(code, format, args);
  va_end(args);
  if (!op) return st;
  const vt_loc *loc = vt_lower_loc(lo, op->loc);
  const char *name = op->row->code ? vt_op_info_get(op->row->code)->text : op->row->name;
  if (op->row->handler == VT_HANDLE_FUNC) name = "func.func";
  if (loc->file[0]) st = vt_status_wrap(st, "%s:%" PRId32, loc->file, loc->line);
  return vt_status_wrap(st, loc->name[0] ? "%s at %s" : "%s%s", name, loc->name);
}

const char *vt_lower_text(vt_lower *lo, vt_string string) {
  if (!string.size) return "";
  void **copy = vt_map_at_ptr(&lo->strings, string.data);
  if (*copy && strlen(*copy) == string.size) return *copy;
  char *text = vt_arena_copy(&lo->module->arena, string.data, string.size);
  for (size_t i = 0; i < string.size; i++)
    if (!text[i]) text[i] = '?'; // keeps its length as a C string
  *copy = text;
  return text;
}

static const vt_loc *convert_loc(vt_lower *lo, const vt_raw_attr *attr) {
  vt_loc *loc = VT_NEW(&lo->module->arena, vt_loc);
  *loc = vt_loc_unknown;
  switch (attr->kind) {
  case VT_RAW_LOC_NAME:
    *loc = *vt_lower_loc(lo, attr->items[0]);
    loc->name = vt_lower_text(lo, attr->string);
    break;
  case VT_RAW_LOC_CALL:
    *loc = *vt_lower_loc(lo, attr->items[0]);
    if (!loc->caller) loc->caller = vt_lower_loc(lo, attr->items[1]);
    break;
  case VT_RAW_LOC_FILE:
    loc->file = vt_lower_text(lo, attr->string);
    loc->line = (int32_t)attr->ints[0];
    loc->column = (int32_t)attr->ints[1];
    break;
  case VT_RAW_LOC_FUSED:
    for (uint32_t i = 0; i < attr->count; i++) {
      const vt_loc *part = vt_lower_loc(lo, attr->items[i]);
      if (part->name[0] || part->file[0]) return part;
    }
    break;
  default:
    return &vt_loc_unknown;
  }
  return loc;
}

const vt_loc *vt_lower_loc(vt_lower *lo, const vt_raw_attr *attr) {
  if (!attr) return &vt_loc_unknown;
  if (!attr->loc) ((vt_raw_attr *)(uintptr_t)attr)->loc = convert_loc(lo, attr);
  return attr->loc;
}

static vt_status refuse_type(vt_lower *lo, const vt_raw_op *op, const vt_raw_type *type) {
  if (type->what)
    return vt_lower_error(lo, op, VT_UNIMPLEMENTED, "%s is not supported", type->what);
  if (type->kind != VT_RAW_TENSOR)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a tensor type was expected");
  vt_text text = {0};
  for (int32_t i = 0; i < type->rank && i < 16; i++) {
    if (type->dims[i] < 0)
      vt_text_put(&text, "?x");
    else
      vt_text_printf(&text, "%" PRId64 "x", type->dims[i]);
  }
  vt_status st = vt_lower_error(
      lo, op, VT_UNIMPLEMENTED,
      "tensor<%s%s> has a dynamic dimension: every size must be known when the program is compiled",
      vt_text_string(&text), vt_dtype_get(type->dtype)->text);
  vt_text_free(&text);
  return st;
}

vt_status vt_lower_type(vt_lower *lo, const vt_raw_op *op, const vt_raw_type *type,
                        vt_type *out_type) {
  *out_type = (vt_type){VT_TOKEN, 0, NULL};
  if (type->kind == VT_RAW_TOKEN) return VT_OK;
  if (type->kind != VT_RAW_TENSOR || type->what) return refuse_type(lo, op, type);
  for (int32_t i = 0; i < type->rank; i++)
    if (type->dims[i] < 0) return refuse_type(lo, op, type);
  *out_type = (vt_type){type->dtype, type->rank, type->kept_dims ? type->kept_dims : type->dims};
  if (type->kept_dims) return VT_OK;
  vt_status st = vt_type_check(*out_type);
  if (st) {
    vt_code code = vt_status_code(st);
    vt_status wrapped = vt_lower_error(lo, op, code, "%s", vt_status_message(st));
    vt_status_free(st);
    return wrapped;
  }
  *out_type = vt_type_make(&lo->module->arena, type->dtype, type->rank, type->dims);
  ((vt_raw_type *)(uintptr_t)type)->kept_dims = out_type->dims;
  return VT_OK;
}

vt_status vt_lower_types(vt_lower *lo, const vt_raw_op *op, const vt_raw_type *type,
                         vt_type_list *types) {
  if (type->kind == VT_RAW_TUPLE || type->kind == VT_RAW_FUTURE) {
    for (uint32_t i = 0; i < type->count; i++)
      VT_TRY(vt_lower_types(lo, op, type->items[i], types));
    return VT_OK;
  }
  vt_type one;
  if (--lo->budget < 0)
    return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "too many values in the program");
  VT_TRY(vt_lower_type(lo, op, type, &one));
  vt_array_push_in(lo->arena, types, one);
  return VT_OK;
}

vt_status vt_lower_literal(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                           const vt_literal **out_literal) {
  *out_literal = attr->literal;
  if (attr->literal) return VT_OK;
  if (attr->kind != VT_RAW_DENSE && attr->kind != VT_RAW_RESOURCE)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "dense data was expected");
  vt_literal *literal = VT_NEW(&lo->module->arena, vt_literal);
  VT_TRY(vt_lower_type(lo, op, attr->type, &literal->type));
  const void *data;
  int64_t count = vt_type_elements(literal->type);
  vt_status st =
      vt_raw_dense(lo->arena, attr->data, literal->type.dtype, count, &data, &literal->splat);
  if (st) {
    vt_status named = vt_lower_error(lo, op, vt_status_code(st), "%s", vt_status_message(st));
    vt_status_free(st);
    return named;
  }
  size_t bytes = (size_t)(literal->splat ? 1 : count) * vt_dtype_bytes(literal->type.dtype);
  void *copy = vt_arena_push_aligned(&lo->module->arena, bytes ? bytes : 1, 64);
  if (bytes) memcpy(copy, data, bytes);
  literal->data = copy;
  ((vt_raw_attr *)(uintptr_t)attr)->literal = *out_literal = literal;
  return VT_OK;
}

enum { MAX_DICT_NODES = 1 << 16 };

static vt_string kept_string(vt_lower *lo, vt_string s) {
  return (vt_string){vt_arena_copy(&lo->module->arena, s.data, s.size), s.size};
}

static void dict_of_ints(vt_arena *arena, uint32_t count, const int64_t *ints, vt_dict_value *out) {
  out->kind = VT_DICT_ARRAY;
  out->count = count;
  out->items = VT_NEW_ARRAY(arena, vt_dict_value, count);
  for (uint32_t i = 0; i < count; i++)
    out->items[i] = (vt_dict_value){.kind = VT_DICT_I64, .i64 = ints[i]};
}

// Depth and size are bounded by the attribute's height and weight.
static void convert_dict(vt_lower *lo, const vt_raw_attr *attr, vt_dict_value *out) {
  vt_arena *arena = &lo->module->arena;
  uint32_t count;
  const int64_t *ints;
  *out = (vt_dict_value){.kind = VT_DICT_UNIT};
  switch (attr->kind) {
  case VT_RAW_BOOL:
    *out = (vt_dict_value){.kind = VT_DICT_BOOL, .i64 = attr->i64};
    break;
  case VT_RAW_INT:
  case VT_RAW_ENUM:
    *out = (vt_dict_value){.kind = VT_DICT_I64, .i64 = attr->i64};
    break;
  case VT_RAW_FLOAT:
    *out = (vt_dict_value){.kind = VT_DICT_F64, .f64 = attr->f64};
    break;
  case VT_RAW_STRING:
    *out = (vt_dict_value){.kind = VT_DICT_STRING, .string = kept_string(lo, attr->string)};
    break;
  case VT_RAW_ARRAY:
    *out = (vt_dict_value){.kind = VT_DICT_ARRAY, .count = attr->count};
    out->items = VT_NEW_ARRAY(arena, vt_dict_value, attr->count);
    for (uint32_t i = 0; i < attr->count; i++) convert_dict(lo, attr->items[i], &out->items[i]);
    break;
  case VT_RAW_DICT:
    *out = (vt_dict_value){.kind = VT_DICT_DICT, .count = attr->count};
    out->entries = VT_NEW_ARRAY(arena, vt_dict_entry, attr->count);
    for (uint32_t i = 0; i < attr->count; i++) {
      out->entries[i] =
          (vt_dict_entry){kept_string(lo, attr->names[i]), VT_NEW(arena, vt_dict_value)};
      convert_dict(lo, attr->items[i], out->entries[i].value);
    }
    break;
  case VT_RAW_DENSE:
  case VT_RAW_INTS:
    if (!vt_raw_ints(lo->arena, attr, &count, &ints) || count > MAX_DICT_NODES) break;
    lo->budget -= count; // the attribute may be a splat, and there may be many
    if (lo->budget > 0) dict_of_ints(arena, count, ints, out);
    break;
  default:
    break; // types, shardings and the like: present, but without a value
  }
}

vt_status vt_lower_dict(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                        const vt_dict_value **out_dict) {
  *out_dict = NULL;
  if (attr->kind != VT_RAW_DICT)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "a dictionary was expected");
  if (attr->weight > MAX_DICT_NODES)
    return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "a dictionary of more than %d values",
                          MAX_DICT_NODES);
  vt_dict_value *dict = VT_NEW(&lo->module->arena, vt_dict_value);
  convert_dict(lo, attr, dict);
  *out_dict = dict;
  return VT_OK;
}
