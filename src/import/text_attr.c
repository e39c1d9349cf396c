// SPDX-License-Identifier: Apache-2.0
// text_attr.c - attributes in MLIR text: builtin ones and those of StableHLO.
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "import/text_parser.h"

// ---- construction -------------------------------------------------------------------------------

vt_raw_attr *vt_parse_new_attr(vt_parser *p, vt_raw_attr_kind kind) {
  vt_raw_attr *attr = VT_NEW(p->arena, vt_raw_attr);
  attr->kind = kind;
  attr->height = attr->weight = 1;
  return attr;
}

vt_raw_attr *vt_parse_int_attr(vt_parser *p, int64_t value) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_INT);
  attr->i64 = value;
  return attr;
}

vt_raw_attr *vt_parse_ints_attr(vt_parser *p, const vt_int_list *ints) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_INTS);
  attr->count = (uint32_t)ints->size;
  attr->ints = ints->data;
  return attr;
}

vt_raw_attr *vt_parse_string_attr(vt_parser *p, vt_string string) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_STRING);
  attr->string = string;
  return attr;
}

vt_raw_attr *vt_parse_array_attr(vt_parser *p, vt_attr_items items) {
  static const vt_raw_attr *const none[1] = {NULL};
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_ARRAY);
  attr->count = (uint32_t)items.size;
  attr->items = items.size ? items.data : none;
  if (!vt_raw_attr_measure(attr))
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "attributes are nested too deeply");
  return attr;
}

static vt_raw_attr *dict_attr(vt_parser *p, const vt_named_list *list) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_DICT);
  const vt_raw_attr **items = VT_NEW_ARRAY(p->arena, const vt_raw_attr *, list->size + 1);
  vt_string *names = VT_NEW_ARRAY(p->arena, vt_string, list->size);
  for (size_t i = 0; i < list->size; i++) {
    names[i] = list->data[i].name;
    items[i] = list->data[i].value;
  }
  attr->count = (uint32_t)list->size;
  attr->items = items;
  attr->names = names;
  if (!vt_raw_attr_measure(attr))
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "attributes are nested too deeply");
  return attr;
}

void vt_parse_push_attr(vt_parser *p, vt_named_list *out, const char *name,
                        const vt_raw_attr *value) {
  vt_raw_named named = {{name, strlen(name)}, value};
  vt_array_push_in(p->arena, out, named);
}

// ---- enumerations and structures of StableHLO ---------------------------------------------------

static const struct {
  const char *kind, *word;
  int64_t value;
} words[] = {{"precision", "DEFAULT", 0},
             {"precision", "HIGH", 1},
             {"precision", "HIGHEST", 2},
             {"comparison_direction", "EQ", VT_CMP_EQ},
             {"comparison_direction", "NE", VT_CMP_NE},
             {"comparison_direction", "GE", VT_CMP_GE},
             {"comparison_direction", "GT", VT_CMP_GT},
             {"comparison_direction", "LE", VT_CMP_LE},
             {"comparison_direction", "LT", VT_CMP_LT},
             {"comparison_type", "NOTYPE", VT_CMPTYPE_NOTYPE},
             {"comparison_type", "FLOAT", VT_CMPTYPE_FLOAT},
             {"comparison_type", "TOTALORDER", VT_CMPTYPE_TOTALORDER},
             {"comparison_type", "SIGNED", VT_CMPTYPE_SIGNED},
             {"comparison_type", "UNSIGNED", VT_CMPTYPE_UNSIGNED},
             {"fft_type", "FFT", VT_FFT_FFT},
             {"fft_type", "IFFT", VT_FFT_IFFT},
             {"fft_type", "RFFT", VT_FFT_RFFT},
             {"fft_type", "IRFFT", VT_FFT_IRFFT},
             {"rng_algorithm", "DEFAULT", VT_RNG_DEFAULT},
             {"rng_algorithm", "THREE_FRY", VT_RNG_THREE_FRY},
             {"rng_algorithm", "PHILOX", VT_RNG_PHILOX},
             {"rng_distribution", "UNIFORM", VT_DIST_UNIFORM},
             {"rng_distribution", "NORMAL", VT_DIST_NORMAL},
             {"transpose", "TRANSPOSE_INVALID", VT_TRANSPOSE_INVALID},
             {"transpose", "NO_TRANSPOSE", VT_NO_TRANSPOSE},
             {"transpose", "TRANSPOSE", VT_TRANSPOSE},
             {"transpose", "ADJOINT", VT_ADJOINT},
             {"result_accuracy_mode", "DEFAULT", 0},
             {"result_accuracy_mode", "HIGHEST", 1},
             {"result_accuracy_mode", "TOLERANCE", 2}};

const vt_raw_attr *vt_parse_enum(vt_parser *p, const char *kind) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_ENUM);
  vt_string word = vt_parse_word(p);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(words[i].kind, kind) || !vt_string_is(word, words[i].word)) continue;
    attr->i64 = words[i].value;
    return attr;
  }
  vt_parse_fail(p, VT_INVALID_ARGUMENT, "'%.*s' is not a %s", (int)word.size, word.data, kind);
  return attr;
}

const vt_raw_attr *vt_parse_struct(vt_parser *p) {
  vt_named_list fields = {0};
  vt_parse_expect(p, "<");
  if (!vt_parse_take(p, ">")) {
    do {
      vt_raw_named field = {.name = vt_parse_word(p)};
      vt_parse_expect(p, "=");
      field.value = vt_parse_attr(p);
      vt_array_push_in(p->arena, &fields, field);
    } while (vt_parse_ok(p) && vt_parse_take(p, ","));
    vt_parse_expect(p, ">");
  }
  return dict_attr(p, &fields);
}

// One group of convolution dimensions: two letters for batch and feature, numbers for the spatial
// ones.
static void parse_conv_group(vt_parser *p, const char *letters, const char *const *names,
                             vt_named_list *out) {
  vt_int_list spatial = {0};
  int64_t at = 0, place[VT_MAX_RANK];
  memset(place, -1, sizeof place);
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    char text[2] = {0};
    bool known = false;
    for (int i = 0; i < 2 && !known; i++) {
      text[0] = letters[i];
      known = vt_parse_take(p, text);
      if (known) vt_parse_push_attr(p, out, names[i], vt_parse_int_attr(p, at));
    }
    if (!known) {
      int64_t which = vt_parse_int(p);
      if (which < 0 || which >= VT_MAX_RANK)
        vt_parse_fail(p, VT_INVALID_ARGUMENT, "spatial dimension");
      else
        place[which] = at;
    }
    at++;
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  for (int i = 0; i < VT_MAX_RANK && place[i] >= 0; i++)
    vt_array_push_in(p->arena, &spatial, place[i]);
  vt_parse_push_attr(p, out, names[2], vt_parse_ints_attr(p, &spatial));
}

const vt_raw_attr *vt_parse_conv_dims(vt_parser *p) {
  static const char *const input[] = {"input_batch_dimension", "input_feature_dimension",
                                      "input_spatial_dimensions"};
  static const char *const kernel[] = {"kernel_input_feature_dimension",
                                       "kernel_output_feature_dimension",
                                       "kernel_spatial_dimensions"};
  static const char *const output[] = {"output_batch_dimension", "output_feature_dimension",
                                       "output_spatial_dimensions"};
  vt_named_list list = {0};
  parse_conv_group(p, "bf", input, &list);
  if (vt_parse_peek_char(p, 'x')) p->at++;
  parse_conv_group(p, "io", kernel, &list);
  vt_parse_expect(p, "->");
  parse_conv_group(p, "bf", output, &list);
  return dict_attr(p, &list);
}

static const vt_raw_attr *field(const vt_raw_attr *dict, const char *name) {
  return vt_raw_dict_find(dict, name);
}

static const vt_raw_attr *alias_of(vt_parser *p, const vt_raw_attr *dict) {
  const vt_raw_attr *operand = field(dict, "operand_index");
  uint32_t count[2] = {0, 0};
  const int64_t *ints[2] = {NULL, NULL};
  static const char *const names[] = {"output_tuple_indices", "operand_tuple_indices"};
  bool good = operand && operand->kind == VT_RAW_INT;
  for (int i = 0; i < 2 && good; i++) {
    const vt_raw_attr *list = field(dict, names[i]);
    good = !list || vt_raw_ints(p->arena, list, &count[i], &ints[i]);
  }
  if (!good) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "alias of an output");
    return dict;
  }
  vt_int_list all = {0};
  vt_array_push_in(p->arena, &all, operand->i64);
  vt_array_push_in(p->arena, &all, (int64_t)count[0]);
  for (int i = 0; i < 2; i++)
    for (uint32_t k = 0; k < count[i]; k++) vt_array_push_in(p->arena, &all, ints[i][k]);
  vt_raw_attr *attr = vt_parse_ints_attr(p, &all);
  attr->kind = VT_RAW_ALIAS;
  return attr;
}

static double number_of(const vt_raw_attr *attr) {
  return !attr                        ? 0
         : attr->kind == VT_RAW_FLOAT ? attr->f64
         : attr->kind == VT_RAW_INT   ? (double)attr->i64
                                      : 0;
}

static const vt_raw_attr *accuracy_of(vt_parser *p, const vt_raw_attr *dict) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_ACCURACY);
  const vt_raw_attr *mode = field(dict, "mode"), *ulps = field(dict, "ulps");
  int64_t *ints = VT_NEW_ARRAY(p->arena, int64_t, 2);
  ints[0] = ulps && ulps->kind == VT_RAW_INT ? ulps->i64 : 0;
  ints[1] = mode && mode->kind == VT_RAW_ENUM ? mode->i64 : 0;
  attr->ints = ints;
  attr->count = 2;
  attr->floats[0] = number_of(field(dict, "atol"));
  attr->floats[1] = number_of(field(dict, "rtol"));
  return attr;
}

// "#stablehlo<precision HIGH>", "#stablehlo.precision<HIGH>", "#stablehlo.gather<...>", and CHLO's.
static const vt_raw_attr *parse_stablehlo(vt_parser *p, vt_string name) {
  static const char *const enums[] = {"precision", "comparison_direction", "comparison_type",
                                      "fft_type",  "rng_algorithm",        "rng_distribution",
                                      "transpose", "result_accuracy_mode"};
  bool bare = !name.size;
  if (bare) {
    vt_parse_expect(p, "<");
    name = vt_parse_word(p);
  }
  for (size_t i = 0; i < sizeof enums / sizeof *enums; i++) {
    if (!vt_string_is(name, enums[i])) continue;
    if (!bare) vt_parse_expect(p, "<");
    const vt_raw_attr *value = vt_parse_enum(p, enums[i]);
    vt_parse_expect(p, ">");
    return value;
  }
  if (bare) vt_parse_fail(p, VT_INVALID_ARGUMENT, "unknown StableHLO enumeration");
  if (vt_string_is(name, "conv")) {
    vt_parse_expect(p, "<");
    if (!vt_parse_peek_char(p, '[')) {
      p->at--;
      return vt_parse_struct(p);
    }
    const vt_raw_attr *dims = vt_parse_conv_dims(p);
    vt_parse_expect(p, ">");
    return dims;
  }
  if (vt_string_is(name, "type_extensions") || vt_string_is(name, "bounds")) {
    vt_parse_skip_balanced(p);
    return vt_parse_new_attr(p, VT_RAW_OTHER);
  }
  if (vt_string_is(name, "replica_group_mesh_axes")) return vt_parse_group_axes(p);
  const vt_raw_attr *dict = vt_parse_struct(p);
  if (vt_string_is(name, "output_operand_alias")) return alias_of(p, dict);
  if (vt_string_is(name, "result_accuracy")) return accuracy_of(p, dict);
  return dict;
}

// ---- sdy and the rest ---------------------------------------------------------------------------

static const vt_raw_attr *parse_sdy(vt_parser *p, vt_string name) {
  const vt_raw_attr *attr = NULL;
  if (vt_string_is(name, "sharding")) return vt_parse_sdy_sharding(p);
  if (vt_string_is(name, "mesh")) return vt_parse_sdy_mesh(p);
  if (vt_string_is(name, "sharding_per_value")) {
    vt_parse_expect(p, "<");
    attr = vt_parse_sdy_shardings(p);
    vt_parse_expect(p, ">");
    return attr;
  }
  const char *open = p->at;
  if (!name.size && vt_parse_take(p, "<") &&
      vt_parse_take(p, "manual_axes")) { // #sdy<manual_axes{"a"}>
    attr = vt_parse_sdy_names(p);
    vt_parse_expect(p, ">");
    return attr;
  }
  if (vt_parse_ok(p)) p->at = open; // lists of axes and the like: unused here
  vt_parse_skip_balanced(p);
  return vt_parse_new_attr(p, VT_RAW_OTHER);
}

static const vt_raw_attr *parse_hash(vt_parser *p) {
  vt_parse_expect(p, "#");
  vt_string name = vt_parse_suffix_id(p);
  char key[64] = "#";
  if (name.size >= 9 && !memcmp(name.data, "stablehlo", 9) &&
      (name.size == 9 || name.data[9] == '.'))
    return parse_stablehlo(p, name.size > 10 ? (vt_string){name.data + 10, name.size - 10}
                                             : (vt_string){"", 0});
  if (name.size >= 4 && !memcmp(name.data, "chlo", 4) && (name.size == 4 || name.data[4] == '.'))
    return parse_stablehlo(p, name.size > 5 ? (vt_string){name.data + 5, name.size - 5}
                                            : (vt_string){"", 0});
  if (name.size >= 3 && !memcmp(name.data, "sdy", 3) && (name.size == 3 || name.data[3] == '.'))
    return parse_sdy(p, name.size > 4 ? (vt_string){name.data + 4, name.size - 4}
                                      : (vt_string){"", 0});
  if (name.size < sizeof key - 1) memcpy(key + 1, name.data, name.size);
  const vt_raw_attr *alias = vt_map_find(&p->aliases, key, strlen(key));
  if (alias) return alias;
  if (vt_parse_peek_char(p, '<')) vt_parse_skip_balanced(p);
  return vt_parse_new_attr(p, VT_RAW_OTHER);
}

double vt_parse_double(vt_string text) {
  char buffer[128];
  size_t size = text.size < sizeof buffer - 1 ? text.size : sizeof buffer - 1;
  memcpy(buffer, text.data, size);
  buffer[size] = 0;
  return strtod(buffer, NULL);
}

static const vt_raw_attr *parse_number_attr(vt_parser *p) {
  vt_string text;
  const char *start = p->at;
  if (!vt_parse_number(p, &text)) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "an attribute was expected");
    return vt_parse_new_attr(p, VT_RAW_OTHER);
  }
  bool hex = memchr(text.data, 'x', text.size) != NULL;
  bool floating = !hex && (memchr(text.data, '.', text.size) || memchr(text.data, 'e', text.size));
  vt_raw_attr *attr = vt_parse_new_attr(p, floating ? VT_RAW_FLOAT : VT_RAW_INT);
  if (floating) {
    attr->f64 = vt_parse_double(text);
  } else if (hex) {
    char buffer[32] = {0};
    memcpy(buffer, text.data, text.size < 31 ? text.size : 31);
    attr->i64 = (int64_t)strtoull(buffer, NULL, 16);
  } else {
    p->at = start;
    attr->i64 = vt_parse_int(p);
  }
  if (!vt_parse_take(p, ":")) return attr;
  attr->type = vt_parse_type(p);
  if (vt_dtype_is_float(attr->type->dtype) &&
      attr->kind == VT_RAW_INT) { // 1 : f32, or bits of a NaN
    attr->kind = VT_RAW_FLOAT;
    attr->f64 = (double)attr->i64;
  }
  if (attr->type->dtype == VT_F32) attr->f64 = (float)attr->f64;
  return attr;
}

static const vt_raw_attr *parse_array(vt_parser *p) {
  vt_attr_items items = {0};
  vt_parse_expect(p, "[");
  if (!vt_parse_take(p, "]")) {
    do {
      const vt_raw_attr *item = vt_parse_attr(p);
      vt_array_push_in(p->arena, &items, item);
    } while (vt_parse_ok(p) && vt_parse_take(p, ","));
    vt_parse_expect(p, "]");
  }
  return vt_parse_array_attr(p, items);
}

// "array<i64: 1, 2>"
static const vt_raw_attr *parse_dense_array(vt_parser *p) {
  vt_int_list ints = {0};
  vt_parse_expect(p, "<");
  const vt_raw_type *type = vt_parse_type(p);
  if (vt_dtype_is_float(type->dtype)) {
    vt_parse_fail(p, VT_UNIMPLEMENTED, "an array of floats");
    return vt_parse_new_attr(p, VT_RAW_OTHER);
  }
  if (vt_parse_peek(p, ":"))
    vt_parse_ints(p, ":", ">", &ints);
  else
    vt_parse_expect(p, ">");
  return vt_parse_ints_attr(p, &ints);
}

static const vt_raw_attr *parse_resource(vt_parser *p) {
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_RESOURCE);
  vt_parse_expect(p, "<");
  attr->string = vt_parse_peek_char(p, '"') ? vt_parse_quoted(p) : vt_parse_suffix_id(p);
  vt_parse_expect(p, ">");
  vt_parse_expect(p, ":");
  attr->type = vt_parse_type(p);
  vt_array_push_in(p->arena, &p->resources, attr);
  return attr;
}

static const vt_raw_attr *parse_symbol_or_string(vt_parser *p) {
  bool symbol = vt_parse_peek_char(p, '@');
  vt_raw_attr *attr = vt_parse_string_attr(p, symbol ? vt_parse_symbol(p) : vt_parse_quoted(p));
  while (symbol && vt_parse_take(p, "::")) (void)vt_parse_symbol(p);
  if (!symbol && vt_parse_take(p, ":")) attr->type = vt_parse_type(p);
  return attr;
}

static const vt_raw_attr *parse_attr(vt_parser *p) {
  if (vt_parse_peek_char(p, '"') || vt_parse_peek_char(p, '@')) return parse_symbol_or_string(p);
  if (vt_parse_peek_char(p, '#')) return parse_hash(p);
  if (vt_parse_peek_char(p, '[')) return parse_array(p);
  if (vt_parse_peek_char(p, '{')) {
    vt_named_list list = {0};
    vt_parse_attr_dict(p, &list);
    return dict_attr(p, &list);
  }
  bool yes = vt_parse_take(p, "true");
  if (yes || vt_parse_take(p, "false")) {
    vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_BOOL);
    attr->i64 = yes;
    return attr;
  }
  if (vt_parse_take(p, "unit")) return vt_parse_new_attr(p, VT_RAW_UNIT);
  if (vt_parse_take(p, "dense_resource")) return parse_resource(p);
  if (vt_parse_take(p, "dense")) return vt_parse_dense(p);
  if (vt_parse_take(p, "array")) return parse_dense_array(p);
  if (vt_parse_peek(p, "loc")) {
    (void)vt_parse_loc(p);
    return vt_parse_new_attr(p, VT_RAW_OTHER);
  }
  vt_parse_space(p);
  if (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '-' || *p->at == '+'))
    return parse_number_attr(p);
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_TYPE);
  attr->type = vt_parse_type(p);
  return attr;
}

const vt_raw_attr *vt_parse_attr(vt_parser *p) {
  const vt_raw_attr *attr = vt_parse_enter(p) ? parse_attr(p) : vt_parse_new_attr(p, VT_RAW_OTHER);
  p->depth--;
  return attr;
}

// ---- dictionaries -------------------------------------------------------------------------------

void vt_parse_spread(vt_parser *p, vt_named_list *out, const vt_raw_attr *dict) {
  for (uint32_t i = 0; dict->kind == VT_RAW_DICT && i < dict->count; i++) {
    vt_raw_named named = {dict->names[i], dict->items[i]};
    vt_array_push_in(p->arena, out, named);
  }
}

static void push_spread(vt_parser *p, vt_named_list *out, vt_raw_named named) {
  static const char *const structures[] = {"dot_dimension_numbers", "dimension_numbers",
                                           "scatter_dimension_numbers", "algorithm"};
  for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
    if (vt_string_is(named.name, structures[i]) && named.value->kind == VT_RAW_DICT) {
      vt_parse_spread(p, out, named.value);
      return;
    }
  if (vt_string_is(named.name, "channel_handle") && named.value->kind == VT_RAW_DICT) {
    const vt_raw_attr *id = field(named.value, "handle"), *type = field(named.value, "type");
    if (id) vt_parse_push_attr(p, out, "channel_id", id);
    if (type) vt_parse_push_attr(p, out, "channel_type", type);
    return;
  }
  vt_array_push_in(p->arena, out, named);
}

void vt_parse_attr_dict(vt_parser *p, vt_named_list *out) {
  vt_parse_expect(p, "{");
  if (vt_parse_take(p, "}")) return;
  do {
    vt_raw_named named = {.name =
                              vt_parse_peek_char(p, '"') ? vt_parse_quoted(p) : vt_parse_word(p)};
    if (!named.name.size)
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "the name of an attribute was expected");
    named.value = vt_parse_take(p, "=") ? vt_parse_attr(p) : vt_parse_new_attr(p, VT_RAW_UNIT);
    push_spread(p, out, named);
  } while (vt_parse_ok(p) && vt_parse_take(p, ","));
  vt_parse_expect(p, "}");
}
