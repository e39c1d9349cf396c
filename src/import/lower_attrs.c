// SPDX-License-Identifier: Apache-2.0
// lower_attrs.c - the attributes of one op: by the kind that attrs.def gives the key, and the
// meaning of missing ones.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"

enum { MAX_OP_ATTRS = 40, MAX_INTS = 4 * VT_MAX_RANK };

typedef struct attr_list {
  uint32_t count;
  vt_attr items[MAX_OP_ATTRS];
} attr_list;

// Defaults of missing attributes: ops of older versions lack them, text omits them.
static const struct {
  vt_attr_key key;
  int64_t value;
} number_defaults[] = {{VT_ATTR_CHANNEL_ID, 0},
                       {VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0},
                       {VT_ATTR_INDICES_ARE_SORTED, 0},
                       {VT_ATTR_UNIQUE_INDICES, 0},
                       {VT_ATTR_HAS_SIDE_EFFECT, 0},
                       {VT_ATTR_IS_HOST_TRANSFER, 0},
                       {VT_ATTR_HAS_DYNAMIC_ROOT, 0},
                       {VT_ATTR_IS_STABLE, 0},
                       {VT_ATTR_LOWER, 0},
                       {VT_ATTR_VERSION, 0},
                       {VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE},
                       {VT_ATTR_API_VERSION, 1},
                       {VT_ATTR_DIMENSION, -1},
                       {VT_ATTR_INDEX_VECTOR_DIM, 0},
                       {VT_ATTR_FEATURE_GROUP_COUNT, 1},
                       {VT_ATTR_BATCH_GROUP_COUNT, 1}};

// Lists with one number per windowed dimension (padding: two).
static const struct {
  vt_attr_key key;
  int64_t value;
  uint32_t per_dim;
} window_defaults[] = {{VT_ATTR_WINDOW_STRIDES, 1, 1},   {VT_ATTR_BASE_DILATIONS, 1, 1},
                       {VT_ATTR_WINDOW_DILATIONS, 1, 1}, {VT_ATTR_LHS_DILATION, 1, 1},
                       {VT_ATTR_RHS_DILATION, 1, 1},     {VT_ATTR_WINDOW_REVERSAL, 0, 1},
                       {VT_ATTR_PADDING, 0, 2}};

static const vt_attr_key empty_defaults[] = {VT_ATTR_OPERAND_BATCHING_DIMS,
                                             VT_ATTR_START_INDICES_BATCHING_DIMS,
                                             VT_ATTR_INPUT_BATCHING_DIMS,
                                             VT_ATTR_SCATTER_INDICES_BATCHING_DIMS,
                                             VT_ATTR_LHS_BATCHING_DIMENSIONS,
                                             VT_ATTR_RHS_BATCHING_DIMENSIONS,
                                             VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                                             VT_ATTR_RHS_CONTRACTING_DIMENSIONS,
                                             VT_ATTR_OFFSET_DIMS,
                                             VT_ATTR_COLLAPSED_SLICE_DIMS,
                                             VT_ATTR_START_INDEX_MAP,
                                             VT_ATTR_UPDATE_WINDOW_DIMS,
                                             VT_ATTR_INSERTED_WINDOW_DIMS,
                                             VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS,
                                             VT_ATTR_CALLED_COMPUTATIONS,
                                             VT_ATTR_INPUT_SPATIAL_DIMENSIONS,
                                             VT_ATTR_KERNEL_SPATIAL_DIMENSIONS,
                                             VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS};

// Attributes that may be absent from the module too.
static const vt_attr_key optional_keys[] = {VT_ATTR_RESULT_ACCURACY,
                                            VT_ATTR_BACKEND_DICT,
                                            VT_ATTR_SHARDING,
                                            VT_ATTR_MHLO_SHARDING,
                                            VT_ATTR_FRONTEND_ATTRIBUTES,
                                            VT_ATTR_LHS_PRECISION_TYPE,
                                            VT_ATTR_RHS_PRECISION_TYPE,
                                            VT_ATTR_ACCUMULATION_TYPE,
                                            VT_ATTR_LHS_COMPONENT_COUNT,
                                            VT_ATTR_RHS_COMPONENT_COUNT,
                                            VT_ATTR_NUM_PRIMITIVE_OPERATIONS,
                                            VT_ATTR_ALLOW_IMPRECISE};

static bool is_in(const vt_attr_key *list, size_t count, vt_attr_key key) {
  for (size_t i = 0; i < count; i++)
    if (list[i] == key) return true;
  return false;
}
#define IS_IN(list, key) is_in(list, sizeof(list) / sizeof *(list), key)

static vt_status wrong(vt_lower *lo, const vt_raw_op *raw, vt_attr_key key) {
  return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "attribute %s has an unexpected form",
                        vt_attr_text(key));
}

static void keep_ints(vt_lower *lo, vt_attr *attr, uint32_t count, const int64_t *ints) {
  int64_t *copy = VT_NEW_ARRAY(&lo->module->arena, int64_t, count);
  if (count) memcpy(copy, ints, count * sizeof *ints);
  attr->count = count;
  attr->ints = copy;
}

static vt_string keep_string(vt_lower *lo, vt_string s) {
  return (vt_string){vt_arena_copy(&lo->module->arena, s.data, s.size), s.size};
}

static vt_status lower_funcs(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                             vt_attr *attr) {
  bool one = value->kind == VT_RAW_STRING;
  if (!one && value->kind != VT_RAW_ARRAY) return wrong(lo, raw, attr->key);
  attr->count = one ? 1 : value->count;
  attr->funcs = VT_NEW_ARRAY(&lo->module->arena, vt_func *, attr->count);
  for (uint32_t i = 0; i < attr->count; i++) {
    const vt_raw_attr *name = one ? value : value->items[i];
    if (name->kind != VT_RAW_STRING) return wrong(lo, raw, attr->key);
    attr->funcs[i] = vt_map_find(&lo->funcs, name->string.data, name->string.size);
    if (!attr->funcs[i])
      return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "there is no function '%.*s'",
                            (int)name->string.size, name->string.data);
  }
  return VT_OK;
}

static vt_status lower_strings(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                               vt_attr *attr) {
  if (value->kind != VT_RAW_ARRAY || value->count > MAX_INTS) return wrong(lo, raw, attr->key);
  vt_string *list = VT_NEW_ARRAY(&lo->module->arena, vt_string, value->count);
  for (uint32_t i = 0; i < value->count; i++) {
    if (value->items[i]->kind != VT_RAW_STRING) return wrong(lo, raw, attr->key);
    list[i] = keep_string(lo, value->items[i]->string);
  }
  attr->count = value->count;
  attr->strings = list;
  return VT_OK;
}

// "[1,0];[0]": minor to major, one list per operand or result.
static vt_status layouts_text(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                              vt_attr *attr) {
  if (value->kind != VT_RAW_ARRAY || value->count > 1 << 12) return wrong(lo, raw, attr->key);
  vt_text text = {0};
  bool good = true;
  for (uint32_t i = 0; good && i < value->count; i++) {
    uint32_t count;
    const int64_t *ints;
    good = vt_raw_ints(lo->arena, value->items[i], &count, &ints) && count <= VT_MAX_RANK;
    vt_text_put(&text, i ? ";[" : "[");
    for (uint32_t k = 0; good && k < count; k++)
      vt_text_printf(&text, k ? ",%" PRId64 : "%" PRId64, ints[k]);
    vt_text_put(&text, "]");
  }
  attr->count = 1;
  attr->string = keep_string(lo, (vt_string){vt_text_string(&text), text.size});
  vt_text_free(&text);
  return good ? VT_OK : wrong(lo, raw, attr->key);
}

// "{0}:(0,{});{1}:(2,{0})": output index, operand, index in the operand.
static vt_status aliases_text(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                              vt_attr *attr) {
  if (value->kind != VT_RAW_ARRAY || value->count > 1 << 12) return wrong(lo, raw, attr->key);
  vt_text text = {0};
  bool good = true;
  for (uint32_t i = 0; good && i < value->count; i++) {
    const vt_raw_attr *alias = value->items[i];
    good = alias->kind == VT_RAW_ALIAS && alias->count <= MAX_INTS;
    if (!good) break;
    uint32_t outputs = (uint32_t)alias->ints[1];
    vt_text_put(&text, i ? ";{" : "{");
    for (uint32_t k = 0; k < outputs; k++)
      vt_text_printf(&text, k ? ",%" PRId64 : "%" PRId64, alias->ints[2 + k]);
    vt_text_printf(&text, "}:(%" PRId64 ",{", alias->ints[0]);
    for (uint32_t k = 2 + outputs; k < alias->count; k++)
      vt_text_printf(&text, k > 2 + outputs ? ",%" PRId64 : "%" PRId64, alias->ints[k]);
    vt_text_put(&text, "})");
  }
  attr->count = 1;
  attr->string = keep_string(lo, (vt_string){vt_text_string(&text), text.size});
  vt_text_free(&text);
  return good ? VT_OK : wrong(lo, raw, attr->key);
}

static vt_status accuracy_text(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                               vt_attr *attr) {
  static const char *const modes[] = {"DEFAULT", "HIGHEST", "TOLERANCE"};
  if (value->kind != VT_RAW_ACCURACY || value->ints[1] > 2) return wrong(lo, raw, attr->key);
  attr->count = value->ints[1] != 0; // DEFAULT is omitted
  if (!attr->count) return VT_OK;
  const char *text =
      vt_arena_printf(&lo->module->arena, "%s,%.17g,%.17g,%" PRId64, modes[value->ints[1]],
                      value->floats[0], value->floats[1], value->ints[0]);
  attr->string = (vt_string){text, strlen(text)};
  return VT_OK;
}

static vt_status lower_dtype(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                             vt_attr *attr) {
  if (value->kind != VT_RAW_TYPE) return wrong(lo, raw, attr->key);
  attr->count = value->type->kind != VT_RAW_NONE; // none: no algorithm
  if (!attr->count) return VT_OK;
  if (value->type->kind != VT_RAW_ELEMENT || value->type->what)
    return vt_lower_error(lo, raw, VT_UNIMPLEMENTED, "a dot algorithm over %s is not supported",
                          value->type->what ? value->type->what : "this type");
  attr->i64 = value->type->dtype;
  return VT_OK;
}

// `attr` has its key. On return a count of 0 for single-valued kinds means: omit it.
static vt_status lower_value(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                             vt_attr *attr) {
  uint32_t count;
  const int64_t *ints;
  attr->count = 1;
  switch (vt_attr_kind_of(attr->key)) {
  case VT_ATTR_KIND_I64:
  case VT_ATTR_KIND_BOOL:
    if (value->kind == VT_RAW_TYPE && value->type->kind == VT_RAW_NONE) {
      attr->count = 0;
      return VT_OK;
    }
    attr->i64 = value->kind == VT_RAW_UNIT ? 1 : value->i64;
    if (vt_attr_kind_of(attr->key) == VT_ATTR_KIND_BOOL) attr->i64 = attr->i64 != 0;
    return value->kind == VT_RAW_UNIT || value->kind == VT_RAW_INT || value->kind == VT_RAW_ENUM ||
                   value->kind == VT_RAW_BOOL
               ? VT_OK
               : wrong(lo, raw, attr->key);
  case VT_ATTR_KIND_F64:
    attr->f64 = value->f64;
    return value->kind == VT_RAW_FLOAT ? VT_OK : wrong(lo, raw, attr->key);
  case VT_ATTR_KIND_STRING:
    if (value->kind != VT_RAW_STRING) return wrong(lo, raw, attr->key);
    attr->string = keep_string(lo, value->string);
    return VT_OK;
  case VT_ATTR_KIND_INTS:
    if (!vt_raw_ints(lo->arena, value, &count, &ints) || count > MAX_INTS)
      return wrong(lo, raw, attr->key);
    keep_ints(lo, attr, count, ints);
    return VT_OK;
  case VT_ATTR_KIND_STRINGS:
    return lower_strings(lo, raw, value, attr);
  case VT_ATTR_KIND_DTYPE:
    return lower_dtype(lo, raw, value, attr);
  case VT_ATTR_KIND_LITERAL:
    return vt_lower_literal(lo, raw, value, &attr->literal);
  case VT_ATTR_KIND_FUNCS:
    return lower_funcs(lo, raw, value, attr);
  case VT_ATTR_KIND_DICT:
    return vt_lower_dict(lo, raw, value, &attr->dict);
  case VT_ATTR_KIND_SHARDINGS:
    return vt_lower_shardings(lo, raw, value, attr);
  case VT_ATTR_KIND_KERNEL:
  case VT_ATTR_KIND_NONE:
    break;
  }
  return wrong(lo, raw, attr->key);
}

static vt_status lower_one(vt_lower *lo, const vt_raw_op *raw, const vt_raw_attr *value,
                           vt_attr *attr) {
  switch (attr->key) {
  case VT_ATTR_OPERAND_LAYOUTS:
  case VT_ATTR_RESULT_LAYOUTS:
    return layouts_text(lo, raw, value, attr);
  case VT_ATTR_OUTPUT_OPERAND_ALIASES:
    return aliases_text(lo, raw, value, attr);
  case VT_ATTR_RESULT_ACCURACY:
    return accuracy_text(lo, raw, value, attr);
  case VT_ATTR_BACKEND_CONFIG:
    if (value->kind == VT_RAW_DICT) attr->key = VT_ATTR_BACKEND_DICT;
    return lower_value(lo, raw, value, attr);
  case VT_ATTR_BACKEND_DICT:
    if (value->kind == VT_RAW_STRING) attr->key = VT_ATTR_BACKEND_CONFIG;
    return lower_value(lo, raw, value, attr);
  case VT_ATTR_REPLICA_GROUPS:
    return value->kind == VT_RAW_MESH_AXES ? vt_lower_mesh_groups(lo, raw, value, attr)
                                           : lower_value(lo, raw, value, attr);
  default:
    return lower_value(lo, raw, value, attr);
  }
}

static vt_status lower_default(vt_lower *lo, const vt_raw_op *raw, const vt_op *op, vt_attr *attr) {
  vt_attr_key key = attr->key;
  attr->count = 1;
  for (size_t i = 0; i < sizeof number_defaults / sizeof *number_defaults; i++) {
    if (number_defaults[i].key != key || (key == VT_ATTR_DIMENSION && op->code != VT_OP_SORT))
      continue;
    attr->i64 = number_defaults[i].value;
    return VT_OK;
  }
  for (size_t i = 0; i < sizeof window_defaults / sizeof *window_defaults; i++) {
    if (window_defaults[i].key != key) continue;
    int32_t rank = op->operand_count ? op->operands[0]->type.rank : 0;
    if (op->code == VT_OP_CONVOLUTION) rank = rank > 2 ? rank - 2 : 0;
    attr->count = (uint32_t)rank * window_defaults[i].per_dim;
    int64_t *ints = VT_NEW_ARRAY(&lo->module->arena, int64_t, attr->count);
    for (uint32_t k = 0; k < attr->count; k++) ints[k] = window_defaults[i].value;
    attr->ints = ints;
    return VT_OK;
  }
  if (key == VT_ATTR_PRECISION_CONFIG) {
    keep_ints(lo, attr, 2, (int64_t[]){VT_PRECISION_DEFAULT, VT_PRECISION_DEFAULT});
    return VT_OK;
  }
  if (IS_IN(empty_defaults, key)) {
    keep_ints(lo, attr, 0, NULL);
    return VT_OK;
  }
  if (vt_attr_kind_of(key) == VT_ATTR_KIND_STRING && key != VT_ATTR_CALL_TARGET_NAME &&
      key != VT_ATTR_NAME) {
    attr->string = (vt_string){"", 0};
    return VT_OK;
  }
  if (key == VT_ATTR_SOURCE_TARGET_PAIRS && op->code != VT_OP_COLLECTIVE_PERMUTE) {
    static const int64_t none[1] = {0};
    static const vt_literal no_pairs = {.type = {VT_S64, 1, none}, .data = none};
    attr->literal = &no_pairs;
    return VT_OK;
  }
  if (vt_attr_kind_of(key) == VT_ATTR_KIND_DICT) {
    vt_dict_value *dict = VT_NEW(&lo->module->arena, vt_dict_value);
    dict->kind = VT_DICT_DICT;
    attr->dict = dict;
    return VT_OK;
  }
  return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "attribute %s is missing", vt_attr_text(key));
}

static void push(attr_list *list, vt_attr attr) {
  for (uint32_t i = 0; i < list->count; i++) {
    if (list->items[i].key != attr.key) continue;
    list->items[i] = attr;
    return;
  }
  if (list->count < MAX_OP_ATTRS) list->items[list->count++] = attr;
}

// Single-valued kinds are omitted when lowering said so; lists may be empty.
static bool is_left_out(const vt_attr *attr) {
  vt_attr_kind kind = vt_attr_kind_of(attr->key);
  bool list = kind == VT_ATTR_KIND_INTS || kind == VT_ATTR_KIND_STRINGS ||
              kind == VT_ATTR_KIND_FUNCS || kind == VT_ATTR_KIND_SHARDINGS;
  return !attr->count && !list;
}

static vt_status add(vt_lower *lo, const vt_raw_op *raw, const vt_op *op, vt_attr_key key,
                     const char *name, attr_list *list) {
  vt_attr attr = {.key = key};
  const vt_raw_attr *value = vt_raw_find(raw, name);
  if (value && value->kind != VT_RAW_OTHER && value->kind != VT_RAW_TEXT &&
      value->kind != VT_RAW_LAYOUT)
    VT_TRY(lower_one(lo, raw, value, &attr));
  else if (IS_IN(optional_keys, key))
    return VT_OK;
  else
    VT_TRY(lower_default(lo, raw, op, &attr));
  if (!is_left_out(&attr)) push(list, attr);
  return VT_OK;
}

// GSPMD's sharding of a single result, in Shardy's form alongside the text. An unreadable text only
// loses a hint.
static vt_status add_tiles(vt_lower *lo, const vt_raw_op *raw, const vt_op *op, attr_list *list) {
  const vt_raw_attr *text = vt_raw_find(raw, "mhlo.sharding");
  if (!text || text->kind != VT_RAW_STRING || op->result_count != 1) return VT_OK;
  const vt_sharding **one = VT_NEW(&lo->module->arena, const vt_sharding *);
  vt_status_free(vt_lower_tiles(lo, raw, text->string, op->results[0].type.rank, one));
  if (*one) push(list, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = one});
  return VT_OK;
}

vt_status vt_lower_attrs(vt_lower *lo, const vt_raw_op *raw, vt_op *op) {
  attr_list list = {0};
  const vt_op_info *info = vt_op_info_get(op->code);
  bool has_out_sharding = vt_raw_find(raw, "out_sharding") != NULL, own_sharding = false;
  for (const uint8_t *key = info->attrs; *key; key++) {
    const char *name = vt_attr_text((vt_attr_key)*key);
    if (*key == VT_ATTR_SHARDING && has_out_sharding) name = "out_sharding";
    VT_TRY(add(lo, raw, op, (vt_attr_key)*key, name, &list));
    own_sharding = own_sharding || *key == VT_ATTR_SHARDING;
  }
  const vt_raw_attr *sharding = vt_raw_find(raw, "sdy.sharding");
  if (sharding && !own_sharding) VT_TRY(add(lo, raw, op, VT_ATTR_SHARDING, "sdy.sharding", &list));
  if (!sharding) VT_TRY(add_tiles(lo, raw, op, &list));
  VT_TRY(add(lo, raw, op, VT_ATTR_MHLO_SHARDING, vt_attr_text(VT_ATTR_MHLO_SHARDING), &list));
  VT_TRY(add(lo, raw, op, VT_ATTR_FRONTEND_ATTRIBUTES, vt_attr_text(VT_ATTR_FRONTEND_ATTRIBUTES),
             &list));
  op->attr_count = list.count;
  op->attrs = VT_NEW_ARRAY(&lo->module->arena, vt_attr, list.count);
  if (list.count) memcpy(op->attrs, list.items, list.count * sizeof *op->attrs);
  return VT_OK;
}
