// SPDX-License-Identifier: Apache-2.0
// print.c - modules as StableHLO text in MLIR's generic form.
// Closed regions are opened again: a captured value is printed by its outer name, so the text is
// what MLIR and the frameworks parse. Names are %0, %1, ... and unique in one function of the
// module.
#include <inttypes.h>
#include <string.h>

#include "ir/print.h"

typedef struct printer {
  vt_text *out;
  int64_t max_literal;
  bool locations;
  bool hash_literals; // instead of their elements
  vt_map names;       // value -> number + 1
  uintptr_t next;
  int indent;
} printer;

static void put_indent(printer *p) {
  for (int i = 0; i < p->indent; i++) vt_text_put(p->out, "  ");
}

static void define(printer *p, const vt_value *value) {
  *vt_map_at_ptr(&p->names, value) = (void *)++p->next;
}
static uintptr_t number_of(const printer *p, const vt_value *value) {
  return (uintptr_t)vt_map_find_ptr(&p->names, value);
}
static void put_literal(printer *p, const vt_literal *literal) {
  if (!p->hash_literals) {
    vt_print_literal(p->out, literal, p->max_literal);
    return;
  }
  int64_t elements = literal->splat ? 1 : vt_type_elements(literal->type);
  size_t bytes = (size_t)elements * vt_dtype_bytes(literal->type.dtype);
  vt_text_printf(p->out, "%016" PRIx64 " : ", vt_hash_bytes(literal->data, bytes, literal->splat));
  vt_type_print(p->out, literal->type);
}
static void put_value(printer *p, const vt_value *value) {
  vt_text_printf(p->out, "%%%" PRIuPTR, number_of(p, value) - 1);
}

static void put_types(vt_text *out, uint32_t count, vt_value *const *values) {
  vt_text_put(out, "(");
  for (uint32_t i = 0; i < count; i++) {
    if (i) vt_text_put(out, ", ");
    vt_type_print(out, values[i]->type);
  }
  vt_text_put(out, ")");
}

void vt_print_string(vt_text *out, const char *data, size_t size) {
  vt_text_put(out, "\"");
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)data[i];
    if (c == '"' || c == '\\')
      vt_text_printf(out, "\\%c", c);
    else if (c >= 32 && c < 127)
      vt_text_printf(out, "%c", c);
    else
      vt_text_printf(out, "\\%02X", c);
  }
  vt_text_put(out, "\"");
}

static void put_symbol(vt_text *out, const char *name) {
  bool plain = name[0] != 0;
  for (const char *c = name; *c; c++)
    plain = plain && ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' ||
                      *c == '.' || *c == '$' || (c > name && *c >= '0' && *c <= '9'));
  vt_text_put(out, "@");
  if (plain)
    vt_text_put(out, name);
  else
    vt_print_string(out, name, strlen(name));
}

static void put_ints(vt_text *out, const char *open, uint32_t count, const int64_t *ints,
                     const char *close) {
  vt_text_put(out, open);
  for (uint32_t i = 0; i < count; i++) vt_text_printf(out, "%s%" PRId64, i ? ", " : "", ints[i]);
  vt_text_put(out, close);
}

// array<i64: 1, 2>, array<i64>
static void put_array(vt_text *out, uint32_t count, const int64_t *ints) {
  put_ints(out, count ? "array<i64: " : "array<i64", count, ints, ">");
}

static void put_dict_value(vt_text *out, const vt_dict_value *value) {
  switch (value->kind) {
  case VT_DICT_UNIT:
    vt_text_put(out, "unit");
    break;
  case VT_DICT_BOOL:
    vt_text_put(out, value->i64 ? "true" : "false");
    break;
  case VT_DICT_I64:
    vt_text_printf(out, "%" PRId64 " : i64", value->i64);
    break;
  case VT_DICT_F64:
    vt_text_printf(out, "%.17e : f64", value->f64);
    break;
  case VT_DICT_STRING:
    vt_print_string(out, value->string.data, value->string.size);
    break;
  case VT_DICT_ARRAY:
    vt_text_put(out, "[");
    for (size_t i = 0; i < value->count; i++) {
      if (i) vt_text_put(out, ", ");
      put_dict_value(out, &value->items[i]);
    }
    vt_text_put(out, "]");
    break;
  case VT_DICT_DICT:
    vt_text_put(out, "{");
    for (size_t i = 0; i < value->count; i++) {
      if (i) vt_text_put(out, ", ");
      vt_print_string(out, value->entries[i].name.data, value->entries[i].name.size);
      vt_text_put(out, " = ");
      put_dict_value(out, value->entries[i].value);
    }
    vt_text_put(out, "}");
    break;
  }
}

// The keywords of enumerations, by key; NULL where the attribute is a plain number.
static const char *enum_text(vt_attr_key key, int64_t value, const char **out_kind) {
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const compares[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  static const char *const ffts[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  static const char *const rngs[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  static const char *const distributions[] = {"?", "UNIFORM", "NORMAL"};
  static const char *const transposes[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE",
                                           "ADJOINT"};
  const char *const *words;
  switch (key) {
  case VT_ATTR_COMPARISON_DIRECTION:
    words = directions, *out_kind = "comparison_direction";
    break;
  case VT_ATTR_COMPARE_TYPE:
    words = compares, *out_kind = "comparison_type";
    break;
  case VT_ATTR_FFT_TYPE:
    words = ffts, *out_kind = "fft_type";
    break;
  case VT_ATTR_RNG_ALGORITHM:
    words = rngs, *out_kind = "rng_algorithm";
    break;
  case VT_ATTR_RNG_DISTRIBUTION:
    words = distributions, *out_kind = "rng_distribution";
    break;
  case VT_ATTR_TRANSPOSE_A:
    words = transposes, *out_kind = "transpose";
    break;
  default:
    return NULL;
  }
  return words[value];
}

static const char *precision_text(int64_t precision) {
  return precision == VT_PRECISION_HIGHEST ? "HIGHEST"
         : precision == VT_PRECISION_HIGH  ? "HIGH"
                                           : "DEFAULT";
}

static void put_strings(vt_text *out, const vt_attr *attr) {
  bool axes = attr->key == VT_ATTR_MANUAL_AXES;
  vt_text_put(out, axes ? "#sdy<manual_axes{" : "[");
  for (uint32_t i = 0; i < attr->count; i++) {
    if (i) vt_text_put(out, ", ");
    vt_print_string(out, attr->strings[i].data, attr->strings[i].size);
  }
  vt_text_put(out, axes ? "}>" : "]");
}

static void put_i64_attr(vt_text *out, const vt_attr *attr) {
  const char *kind, *word = enum_text(attr->key, attr->i64, &kind);
  if (word)
    vt_text_printf(out, "#stablehlo<%s %s>", kind, word);
  else
    vt_text_printf(out, "%" PRId64 " : %s", attr->i64,
                   attr->key == VT_ATTR_EXPONENT_BITS || attr->key == VT_ATTR_MANTISSA_BITS ||
                           attr->key == VT_ATTR_API_VERSION || attr->key == VT_ATTR_VERSION ||
                           attr->key == VT_ATTR_ALLOWED_DIRECTION
                       ? "i32"
                       : "i64");
}

static void put_ints_attr(vt_text *out, const vt_attr *attr) {
  if (attr->key == VT_ATTR_PRECISION_CONFIG) {
    vt_text_put(out, "[");
    for (uint32_t i = 0; i < attr->count; i++)
      vt_text_printf(out, "%s#stablehlo<precision %s>", i ? ", " : "",
                     precision_text(attr->ints[i]));
    vt_text_put(out, "]");
  } else if (attr->key == VT_ATTR_PADDING) {
    vt_text_put(out, "dense<");
    if (attr->count) vt_text_put(out, "[");
    for (uint32_t i = 0; i + 1 < attr->count; i += 2)
      vt_text_printf(out, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", attr->ints[i],
                     attr->ints[i + 1]);
    if (attr->count) vt_text_put(out, "]");
    vt_text_printf(out, "> : tensor<%ux2xi64>", attr->count / 2);
  } else if (attr->key == VT_ATTR_WINDOW_REVERSAL) {
    vt_text_put(out, attr->count ? "array<i1: " : "array<i1");
    for (uint32_t i = 0; i < attr->count; i++)
      vt_text_printf(out, "%s%s", i ? ", " : "", attr->ints[i] ? "true" : "false");
    vt_text_put(out, ">");
  } else {
    put_array(out, attr->count, attr->ints);
  }
}

// `single_sharding`: sdy ops carry one sharding, others one for each result.
static void put_attr_value(printer *p, const vt_attr *attr, bool single_sharding) {
  switch (vt_attr_kind_of(attr->key)) {
  case VT_ATTR_KIND_KERNEL:
  case VT_ATTR_KIND_NONE:
    break;
  case VT_ATTR_KIND_I64:
    put_i64_attr(p->out, attr);
    break;
  case VT_ATTR_KIND_BOOL:
    vt_text_put(p->out, attr->i64 ? "true" : "false");
    break;
  case VT_ATTR_KIND_F64:
    vt_text_printf(p->out, "%.9e : f32", attr->f64);
    break;
  case VT_ATTR_KIND_STRING:
    vt_print_string(p->out, attr->string.data, attr->string.size);
    break;
  case VT_ATTR_KIND_INTS:
    put_ints_attr(p->out, attr);
    break;
  case VT_ATTR_KIND_STRINGS:
    put_strings(p->out, attr);
    break;
  case VT_ATTR_KIND_DTYPE:
    vt_text_put(p->out, vt_dtype_get((vt_dtype)attr->i64)->text);
    break;
  case VT_ATTR_KIND_LITERAL:
    put_literal(p, attr->literal);
    break;
  case VT_ATTR_KIND_FUNCS:
    if (attr->key == VT_ATTR_CALLED_COMPUTATIONS) vt_text_put(p->out, "[");
    for (uint32_t i = 0; i < attr->count; i++) {
      if (i) vt_text_put(p->out, ", ");
      put_symbol(p->out, attr->funcs[i]->name);
    }
    if (attr->key == VT_ATTR_CALLED_COMPUTATIONS) vt_text_put(p->out, "]");
    break;
  case VT_ATTR_KIND_DICT:
    put_dict_value(p->out, attr->dict);
    break;
  case VT_ATTR_KIND_SHARDINGS:
    if (!single_sharding) vt_text_put(p->out, "#sdy.sharding_per_value<[");
    for (uint32_t i = 0; i < attr->count; i++) {
      if (i) vt_text_put(p->out, ", ");
      vt_print_sharding(p->out, attr->shardings[i], single_sharding);
    }
    if (!single_sharding) vt_text_put(p->out, "]>");
    break;
  }
}

// Dimension numbers and other attributes that MLIR keeps as one: print_numbers.c prints them
// together.
static bool is_grouped(const vt_op *op, vt_attr_key key) {
  switch (op->code) {
  case VT_OP_DOT_GENERAL:
    return key != VT_ATTR_PRECISION_CONFIG;
  case VT_OP_GATHER:
    return key != VT_ATTR_SLICE_SIZES && key != VT_ATTR_INDICES_ARE_SORTED;
  case VT_OP_SCATTER:
    return key != VT_ATTR_UNIQUE_INDICES && key != VT_ATTR_INDICES_ARE_SORTED;
  case VT_OP_CONVOLUTION:
    switch (key) {
    case VT_ATTR_WINDOW_STRIDES:
    case VT_ATTR_PADDING:
    case VT_ATTR_LHS_DILATION:
    case VT_ATTR_RHS_DILATION:
    case VT_ATTR_WINDOW_REVERSAL:
    case VT_ATTR_FEATURE_GROUP_COUNT:
    case VT_ATTR_BATCH_GROUP_COUNT:
    case VT_ATTR_PRECISION_CONFIG:
      return false;
    default:
      return true;
    }
  default:
    return key == VT_ATTR_CHANNEL_ID || key == VT_ATTR_CHANNEL_TYPE;
  }
}

static bool is_listed(const vt_op *op, vt_attr_key key) {
  const vt_op_info *info = vt_op_info_get(op->code);
  for (int i = 0; info->attrs[i]; i++)
    if (info->attrs[i] == key) return key != VT_ATTR_BACKEND_DICT;
  return false;
}

static bool is_omitted(const vt_op *op, const vt_attr *attr) {
  // Stored in private forms that a reader does not need back.
  if (attr->key == VT_ATTR_RESULT_ACCURACY || attr->key == VT_ATTR_OUTPUT_OPERAND_ALIASES)
    return true;
  if (attr->key == VT_ATTR_OPERAND_LAYOUTS || attr->key == VT_ATTR_RESULT_LAYOUTS) return true;
  if (attr->key == VT_ATTR_USE_GLOBAL_DEVICE_IDS || attr->key == VT_ATTR_KERNEL) return true;
  if (attr->key == VT_ATTR_RAGGED) return true;
  return op->code == VT_OP_COMPARE && attr->key == VT_ATTR_COMPARE_TYPE &&
         attr->i64 == VT_CMPTYPE_NOTYPE;
}

static void put_channel(printer *p, const vt_op *op, bool *first) {
  const vt_attr *channel = vt_op_attr(op, VT_ATTR_CHANNEL_ID);
  if (!channel) return;
  bool transfer = op->code == VT_OP_SEND || op->code == VT_OP_RECV;
  if (!transfer && channel->i64 <= 0) return;
  vt_text_printf(
      p->out,
      "%schannel_handle = #stablehlo.channel_handle<handle = %" PRId64 ", type = %" PRId64 ">",
      *first ? "" : ", ", channel->i64, vt_attr_i64_or(op, VT_ATTR_CHANNEL_TYPE, transfer ? 1 : 0));
  *first = false;
  if (vt_attr_i64_or(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0))
    vt_text_put(p->out, ", use_global_device_ids");
}

// <{...}>: the attributes that ops.def lists for the op.
static void put_properties(printer *p, const vt_op *op) {
  vt_text *out = p->out, body = {0};
  p->out = &body;
  bool first = !vt_print_numbers(&body, op);
  put_channel(p, op, &first);
  for (uint32_t i = 0; i < op->attr_count; i++) {
    const vt_attr *attr = &op->attrs[i];
    if (!is_listed(op, attr->key) || is_omitted(op, attr) || is_grouped(op, attr->key)) continue;
    vt_text_printf(&body, "%s%s = ", first ? "" : ", ", vt_attr_text(attr->key));
    put_attr_value(p, attr, vt_op_info_get(op->code)->flags & VT_OPF_SHARDY);
    first = false;
  }
  p->out = out;
  if (!first) vt_text_printf(out, " <{%s}>", vt_text_string(&body));
  vt_text_free(&body);
}

// {...}: the rest.
static void put_discardable(printer *p, const vt_op *op) {
  bool first = true;
  for (uint32_t i = 0; i < op->attr_count; i++) {
    const vt_attr *attr = &op->attrs[i];
    if (is_listed(op, attr->key) || is_omitted(op, attr)) continue;
    vt_text_printf(p->out, "%s%s = ", first ? " {" : ", ",
                   attr->key == VT_ATTR_SHARDING ? "sdy.sharding" : vt_attr_text(attr->key));
    put_attr_value(p, attr, vt_op_info_get(op->code)->flags & VT_OPF_SHARDY);
    first = false;
  }
  if (!first) vt_text_put(p->out, "}");
}

static void put_ops(printer *p, const vt_func *func, const char *terminator);

static void put_region(printer *p, const vt_op *op, const vt_func *region, uint32_t captures) {
  uint32_t own = region->param_count - captures;
  for (uint32_t i = 0; i < captures; i++)
    *vt_map_at_ptr(&p->names, region->params[own + i]) =
        (void *)number_of(p, op->operands[vt_op_own_operands(op) + i]);
  vt_text_put(p->out, "{\n");
  if (own) {
    put_indent(p);
    vt_text_put(p->out, "^bb0(");
    for (uint32_t i = 0; i < own; i++) {
      define(p, region->params[i]);
      if (i) vt_text_put(p->out, ", ");
      put_value(p, region->params[i]);
      vt_text_put(p->out, ": ");
      vt_type_print(p->out, region->params[i]->type);
    }
    vt_text_put(p->out, "):\n");
  }
  put_ops(p, region, op->code == VT_OP_MANUAL_COMPUTATION ? "sdy.return" : "stablehlo.return");
  put_indent(p);
  vt_text_put(p->out, "}");
}

static void put_location(printer *p, const vt_loc *loc) {
  bool name = loc->name[0], file = loc->file[0];
  if (!p->locations || !(name || file)) return;
  vt_text_put(p->out, " loc(");
  if (name) vt_print_string(p->out, loc->name, strlen(loc->name));
  if (name && file) vt_text_put(p->out, "(");
  if (file) {
    vt_print_string(p->out, loc->file, strlen(loc->file));
    vt_text_printf(p->out, ":%d:%d", loc->line, loc->column);
  }
  vt_text_put(p->out, name && file ? "))" : ")");
}

static void put_op(printer *p, const vt_op *op) {
  put_indent(p);
  for (uint32_t i = 0; i < op->result_count; i++) {
    define(p, &op->results[i]);
    if (i) vt_text_put(p->out, ", ");
    put_value(p, &op->results[i]);
  }
  if (op->result_count) vt_text_put(p->out, " = ");
  vt_text_printf(p->out, "\"%s\"(", vt_op_info_get(op->code)->text);
  uint32_t own = vt_op_own_operands(op);
  for (uint32_t i = 0; i < own; i++) {
    if (i) vt_text_put(p->out, ", ");
    put_value(p, op->operands[i]);
  }
  vt_text_put(p->out, ")");
  put_properties(p, op);
  if (op->region_count) {
    vt_text_put(p->out, " (");
    for (uint32_t i = 0; i < op->region_count; i++) {
      if (i) vt_text_put(p->out, ", ");
      put_region(p, op, op->regions[i], op->capture_count);
    }
    vt_text_put(p->out, ")");
  }
  put_discardable(p, op);
  vt_text_put(p->out, " : ");
  put_types(p->out, own, op->operands);
  vt_text_put(p->out, " -> ");
  if (op->result_count != 1) vt_text_put(p->out, "(");
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (i) vt_text_put(p->out, ", ");
    vt_type_print(p->out, op->results[i].type);
  }
  if (op->result_count != 1) vt_text_put(p->out, ")");
  put_location(p, op->loc);
  vt_text_put(p->out, "\n");
}

static void put_ops(printer *p, const vt_func *func, const char *terminator) {
  p->indent++;
  for (const vt_op *op = func->first; op; op = op->next) put_op(p, op);
  put_indent(p);
  vt_text_printf(p->out, "\"%s\"(", terminator);
  for (uint32_t i = 0; i < func->return_count; i++) {
    if (i) vt_text_put(p->out, ", ");
    put_value(p, func->returns[i]);
  }
  vt_text_put(p->out, ") : ");
  put_types(p->out, func->return_count, func->returns);
  vt_text_put(p->out, " -> ()\n");
  p->indent--;
}

// `named`: with the names in the user's tree, which only results have as an attribute.
static void put_io(printer *p, const char *name, bool named, uint32_t count,
                   const vt_io_info *infos) {
  bool any = false;
  for (uint32_t i = 0; infos && i < count; i++)
    any = any || infos[i].sharding || infos[i].alias_output >= 0 || infos[i].donor ||
          (named && infos[i].name[0]) || infos[i].memory_kind[0] || infos[i].layout_mode[0];
  if (!any) return;
  vt_text_printf(p->out, ", %s = [", name);
  for (uint32_t i = 0; i < count; i++) {
    const vt_io_info *info = &infos[i];
    const char *separator = "";
    vt_text_put(p->out, i ? ", {" : "{");
    if (info->donor) vt_text_printf(p->out, "jax.buffer_donor = true"), separator = ", ";
    if (named && info->name[0]) {
      vt_text_printf(p->out, "%sjax.result_info = ", separator), separator = ", ";
      vt_print_string(p->out, info->name, strlen(info->name));
    }
    if (info->layout_mode && info->layout_mode[0])
      vt_text_printf(p->out, "%smhlo.layout_mode = \"%s\"", separator, info->layout_mode),
          separator = ", ";
    if (info->memory_kind && info->memory_kind[0])
      vt_text_printf(p->out, "%smhlo.memory_kind = \"%s\"", separator, info->memory_kind),
          separator = ", ";
    if (info->sharding && info->sharding->kind == VT_SHARDING_MESH) {
      vt_text_printf(p->out, "%ssdy.sharding = ", separator), separator = ", ";
      vt_print_sharding(p->out, info->sharding, true);
    }
    if (info->alias_output >= 0)
      vt_text_printf(p->out, "%stf.aliasing_output = %d : i32", separator, info->alias_output);
    vt_text_put(p->out, "}");
  }
  vt_text_put(p->out, "]");
}

static void put_func(printer *p, const vt_func *func, bool public) {
  put_indent(p);
  vt_text_put(p->out, "\"func.func\"() <{function_type = ");
  put_types(p->out, func->param_count, func->params);
  vt_text_put(p->out, " -> ");
  put_types(p->out, func->return_count, func->returns);
  vt_text_put(p->out, ", sym_name = ");
  vt_print_string(p->out, func->name, strlen(func->name));
  vt_text_printf(p->out, ", sym_visibility = \"%s\"", public ? "public" : "private");
  put_io(p, "arg_attrs", false, func->param_count, func->param_info);
  put_io(p, "res_attrs", true, func->return_count, func->return_info);
  vt_text_put(p->out, "}> ({\n");
  if (func->param_count) {
    put_indent(p);
    vt_text_put(p->out, "^bb0(");
    for (uint32_t i = 0; i < func->param_count; i++) {
      define(p, func->params[i]);
      if (i) vt_text_put(p->out, ", ");
      put_value(p, func->params[i]);
      vt_text_put(p->out, ": ");
      vt_type_print(p->out, func->params[i]->type);
    }
    vt_text_put(p->out, "):\n");
  }
  put_ops(p, func, "func.return");
  put_indent(p);
  vt_text_put(p->out, "}) : () -> ()\n");
}

void vt_func_print(const vt_func *func, int64_t max_literal, vt_text *out_text) {
  printer p = {.out = out_text, .max_literal = max_literal};
  put_func(&p, func, func == func->module->main);
  vt_map_free(&p.names);
}

static void print_module(const vt_module *module, printer p) {
  vt_text *out_text = p.out;
  vt_text_put(out_text, "\"builtin.module\"() <{sym_name = ");
  vt_print_string(out_text, module->name, strlen(module->name));
  vt_text_put(out_text, "}> ({\n");
  for (uint32_t i = 0; i < module->mesh_count; i++) {
    if (!module->meshes[i]->name[0]) continue;
    vt_text_put(out_text, "  \"sdy.mesh\"() <{mesh = ");
    vt_print_mesh(out_text, module->meshes[i]);
    vt_text_put(out_text, ", sym_name = ");
    vt_print_string(out_text, module->meshes[i]->name, strlen(module->meshes[i]->name));
    vt_text_put(out_text, "}> : () -> ()\n");
  }
  for (uint32_t i = 0; i < module->func_count; i++) {
    put_func(&p, module->funcs[i], module->funcs[i] == module->main);
    vt_map_free(&p.names);
    p.next = 0;
  }
  vt_text_printf(out_text,
                 "}) {mhlo.num_partitions = %d : i32, mhlo.num_replicas = %d : i32} : () -> ()\n",
                 module->num_partitions, module->num_replicas);
}

void vt_module_print(const vt_module *module, bool locations, vt_text *out_text) {
  print_module(module,
               (printer){.out = out_text, .max_literal = -1, .locations = locations, .indent = 1});
}

uint64_t vt_module_hash(const vt_module *module) {
  vt_text text = {0};
  print_module(module, (printer){.out = &text, .max_literal = -1, .hash_literals = true});
  uint64_t hash = vt_hash_bytes(text.data, text.size, 1);
  vt_text_free(&text);
  return hash;
}
