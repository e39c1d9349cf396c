// SPDX-License-Identifier: Apache-2.0
// text_pretty.c - the short forms in which MLIR prints ops.
//
// Most consist of operands, named pieces ("dims = [0, 1]"), an attribute dictionary and types; the
// pieces are rows of a table. The others have a function each. Types of operands are known from
// their definitions, so only result types are read: those after the arrow, or the last type when
// there is none.
#include <stdio.h>
#include <string.h>

#include "import/text_parser.h"

typedef enum piece_kind { INTS, INT, BOOL, STRING, ENUM, PRECISION, PAIR, ALGORITHM } piece_kind;

static const struct {
  const char *op, *word;
  piece_kind kind;
  const char *attr;
} pieces[] = {
    {"stablehlo.broadcast_in_dim", "dims", INTS, "broadcast_dimensions"},
    {"stablehlo.dynamic_broadcast_in_dim", "dims", INTS, "broadcast_dimensions"},
    {"stablehlo.broadcast", "sizes", INTS, "broadcast_sizes"},
    {"stablehlo.transpose", "dims", INTS, "permutation"},
    {"stablehlo.reverse", "dims", INTS, "dimensions"},
    {"stablehlo.iota", "dim", INT, "iota_dimension"},
    {"stablehlo.dynamic_iota", "dim", INT, "iota_dimension"},
    {"stablehlo.concatenate", "dim", INT, "dimension"},
    {"stablehlo.get_dimension_size", "dim", INT, "dimension"},
    {"stablehlo.set_dimension_size", "dim", INT, "dimension"},
    {"stablehlo.dynamic_slice", "sizes", INTS, "slice_sizes"},
    {"stablehlo.pad", "low", INTS, "edge_padding_low"},
    {"stablehlo.pad", "high", INTS, "edge_padding_high"},
    {"stablehlo.pad", "interior", INTS, "interior_padding"},
    {"stablehlo.dot_general", "batching_dims", PAIR, "batching"},
    {"stablehlo.dot_general", "contracting_dims", PAIR, "contracting"},
    {"stablehlo.dot_general", "precision", PRECISION, "precision_config"},
    {"stablehlo.dot_general", "algorithm", ALGORITHM, ""},
    {"stablehlo.dot", "precision", PRECISION, "precision_config"},
    {"stablehlo.rng", "distribution", ENUM, "rng_distribution"},
    {"stablehlo.rng_bit_generator", "algorithm", ENUM, "rng_algorithm"},
    {"stablehlo.cholesky", "lower", BOOL, "lower"},
    {"stablehlo.fft", "type", ENUM, "fft_type"},
    {"stablehlo.fft", "length", INTS, "fft_length"},
    {"stablehlo.einsum", "config", STRING, "einsum_config"},
    {"stablehlo.unary_einsum", "config", STRING, "einsum_config"},
    {"chlo.top_k", "k", INT, "k"},
    {"chlo.top_k", "largest", BOOL, "largest"},
};

static void push_int(vt_parser *p, vt_op_parse *o, const char *name, int64_t value) {
  vt_parse_push_attr(p, &o->attrs, name, vt_parse_int_attr(p, value));
}

static void push_ints(vt_parser *p, vt_op_parse *o, const char *name) {
  vt_int_list ints = {0};
  vt_parse_ints(p, "[", "]", &ints);
  vt_parse_push_attr(p, &o->attrs, name, vt_parse_ints_attr(p, &ints));
}

static void push_precision(vt_parser *p, vt_op_parse *o) {
  vt_attr_items items = {0};
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    const vt_raw_attr *item = vt_parse_enum(p, "precision");
    vt_array_push_in(p->arena, &items, item);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  vt_parse_push_attr(p, &o->attrs, "precision_config", vt_parse_array_attr(p, items));
}

static void parse_piece(vt_parser *p, vt_op_parse *o, piece_kind kind, const char *attr) {
  vt_parse_expect(p, "=");
  switch (kind) {
  case INTS:
    push_ints(p, o, attr);
    break;
  case INT:
    push_int(p, o, attr, vt_parse_int(p));
    break;
  case BOOL:
    push_int(p, o, attr, vt_parse_take(p, "true"));
    (void)vt_parse_take(p, "false");
    break;
  case STRING:
    vt_parse_push_attr(p, &o->attrs, attr, vt_parse_string_attr(p, vt_parse_quoted(p)));
    break;
  case ENUM:
    vt_parse_push_attr(p, &o->attrs, attr, vt_parse_enum(p, attr));
    break;
  case PRECISION:
    push_precision(p, o);
    break;
  case PAIR: {
    bool batching = !strcmp(attr, "batching");
    push_ints(p, o, batching ? "lhs_batching_dimensions" : "lhs_contracting_dimensions");
    vt_parse_expect(p, "x");
    push_ints(p, o, batching ? "rhs_batching_dimensions" : "rhs_contracting_dimensions");
    break;
  }
  case ALGORITHM:
    vt_parse_spread(p, &o->attrs, vt_parse_struct(p));
    break;
  }
}

// Named pieces in any order, each with or without a comma before it.
static void parse_pieces(vt_parser *p, vt_string name, vt_op_parse *o) {
  for (bool found = true; found && vt_parse_ok(p);) {
    (void)vt_parse_take(p, ",");
    found = false;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces && !found; i++) {
      found = vt_string_is(name, pieces[i].op) && vt_parse_take(p, pieces[i].word);
      if (found) parse_piece(p, o, pieces[i].kind, pieces[i].attr);
    }
  }
}

// ": types", ": types -> type", ": types -> (types)", ": (types) -> types"; without an arrow one
// result type, or the whole list when `all`.
static void parse_types(vt_parser *p, vt_op_parse *o, bool all) {
  if (vt_parse_peek_char(p, '{')) vt_parse_attr_dict(p, &o->attrs);
  vt_parse_expect(p, ":");
  if (vt_parse_peek_char(p, '(')) {
    const vt_raw_type *type = vt_parse_function_type(p);
    for (uint32_t i = type->input_count; vt_parse_ok(p) && i < type->count; i++)
      vt_array_push_in(p->arena, &o->results, type->items[i]);
    return;
  }
  do {
    const vt_raw_type *type = vt_parse_type(p);
    if (!all) o->results.size = 0;
    vt_array_push_in(p->arena, &o->results, type);
  } while (vt_parse_ok(p) && vt_parse_take(p, ","));
  if (!vt_parse_take(p, "->")) return;
  o->results.size = 0;
  bool several = vt_parse_take(p, "(");
  do {
    const vt_raw_type *type = vt_parse_type(p);
    vt_array_push_in(p->arena, &o->results, type);
  } while (several && vt_parse_ok(p) && vt_parse_take(p, ","));
  if (several) vt_parse_expect(p, ")");
}

static void parse_plain(vt_parser *p, vt_string name, vt_op_parse *o) {
  vt_parse_operands(p, &o->operands);
  parse_pieces(p, name, o);
  parse_types(p, o, false);
}

// ---- ops with their own form --------------------------------------------------------------------

static void parse_constant(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  if (vt_parse_peek_char(p, '{')) vt_parse_attr_dict(p, &o->attrs);
  const vt_raw_attr *value = vt_parse_attr(p);
  if (value->type)
    vt_array_push_in(p->arena, &o->results, value->type);
  else
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "a constant without a type");
  vt_parse_push_attr(p, &o->attrs, "value", value);
}

static void parse_compare(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_push_attr(p, &o->attrs, "comparison_direction",
                     vt_parse_enum(p, "comparison_direction"));
  vt_parse_expect(p, ",");
  vt_parse_operands(p, &o->operands);
  if (vt_parse_take(p, ","))
    vt_parse_push_attr(p, &o->attrs, "compare_type", vt_parse_enum(p, "comparison_type"));
  parse_types(p, o, false);
}

// [0:4, 2:10:2]
static void parse_slice(vt_parser *p, vt_string name, vt_op_parse *o) {
  static const char *const names[] = {"start_indices", "limit_indices", "strides"};
  vt_int_list lists[3] = {{0}, {0}, {0}};
  (void)name;
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    int64_t start = vt_parse_int(p), limit, stride = 1;
    vt_parse_expect(p, ":");
    limit = vt_parse_int(p);
    if (vt_parse_take(p, ":")) stride = vt_parse_int(p);
    vt_array_push_in(p->arena, &lists[0], start);
    vt_array_push_in(p->arena, &lists[1], limit);
    vt_array_push_in(p->arena, &lists[2], stride);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  for (int i = 0; i < 3; i++)
    vt_parse_push_attr(p, &o->attrs, names[i], vt_parse_ints_attr(p, &lists[i]));
  parse_types(p, o, false);
}

// pad = [[1, 1], [0, 2]]
static void push_padding(vt_parser *p, vt_op_parse *o) {
  vt_int_list flat = {0};
  vt_parse_expect(p, "[");
  while (vt_parse_ok(p) && !vt_parse_take(p, "]")) {
    vt_parse_ints(p, "[", "]", &flat);
    if (!vt_parse_peek(p, "]")) vt_parse_expect(p, ",");
  }
  vt_parse_push_attr(p, &o->attrs, "padding", vt_parse_ints_attr(p, &flat));
}

static void parse_convolution(vt_parser *p, vt_string name, vt_op_parse *o) {
  static const struct {
    const char *word, *attr;
  } window[] = {{"stride", "window_strides"},
                {"lhs_dilate", "lhs_dilation"},
                {"rhs_dilate", "rhs_dilation"},
                {"reverse", "window_reversal"}};
  (void)name;
  vt_parse_expect(p, "(");
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, ")");
  vt_parse_expect(p, "dim_numbers");
  vt_parse_expect(p, "=");
  vt_parse_spread(p, &o->attrs, vt_parse_conv_dims(p));
  vt_parse_expect(p, ",");
  vt_parse_expect(p, "window");
  vt_parse_expect(p, "=");
  vt_parse_expect(p, "{");
  while (vt_parse_ok(p) && !vt_parse_take(p, "}")) {
    bool found = vt_parse_take(p, "pad");
    if (found) {
      vt_parse_expect(p, "=");
      push_padding(p, o);
    }
    for (size_t i = 0; i < sizeof window / sizeof *window && !found; i++) {
      found = vt_parse_take(p, window[i].word);
      if (!found) continue;
      vt_parse_expect(p, "=");
      push_ints(p, o, window[i].attr);
    }
    if (!found) vt_parse_fail(p, VT_INVALID_ARGUMENT, "unknown part of a window");
    if (!vt_parse_peek(p, "}")) vt_parse_expect(p, ",");
  }
  parse_types(p, o, false);
}

// "applies stablehlo.add": a region of that op over scalars.
static void make_reducer(vt_parser *p, vt_op_parse *o, vt_string name) {
  const vt_vhlo_row *row = vt_parse_row(name), *end = vt_vhlo_find("vhlo.return_v1", 14);
  uint32_t n = (uint32_t)o->operands.size / 2;
  if (!row || n != 1 || o->operands.size != 2) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "'%.*s' cannot be applied", (int)name.size, name.data);
    return;
  }
  vt_raw_region *region = vt_parse_new_region(p, o);
  const vt_raw_type *scalar = o->operands.data[1]->type, *pair[2] = {scalar, scalar};
  vt_parse_add_args(p, region, 2, NULL, pair);
  vt_op_parse body = {.op = vt_parse_new_op(p, region, row)},
              last = {.op = vt_parse_new_op(p, region, end)};
  for (int i = 0; i < 2; i++) vt_array_push_in(p->arena, &body.operands, &region->args[i]);
  vt_array_push_in(p->arena, &body.results, scalar);
  vt_parse_finish_op(p, &body);
  vt_array_push_in(p->arena, &last.operands, &body.op->results[0]);
  vt_parse_finish_op(p, &last);
  region->first = body.op;
  region->last = body.op->next = last.op;
}

typedef VT_ARRAY(vt_string) name_list;

// "(%a: type, %b: type) (...)": for reducers, each group holds one value of either side.
static void parse_reducer(vt_parser *p, vt_op_parse *o) {
  name_list names[2] = {{0}, {0}}, all = {0};
  vt_type_items types[2] = {{0}, {0}}, flat = {0};
  size_t mark = p->bound.size;
  while (vt_parse_ok(p) && vt_parse_take(p, "(")) {
    for (int side = 0; side < 2; side++) {
      vt_parse_expect(p, "%");
      vt_string name = vt_parse_suffix_id(p);
      vt_parse_expect(p, ":");
      const vt_raw_type *type = vt_parse_type(p);
      (void)vt_parse_loc(p);
      vt_array_push_in(p->arena, &names[side], name);
      vt_array_push_in(p->arena, &types[side], type);
      if (!side) vt_parse_expect(p, ",");
    }
    vt_parse_expect(p, ")");
  }
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < names[side].size; i++) {
      vt_array_push_in(p->arena, &all, names[side].data[i]);
      vt_array_push_in(p->arena, &flat, types[side].data[i]);
    }
  if (!vt_parse_ok(p)) return;
  vt_raw_region *region = vt_parse_new_region(p, o);
  vt_parse_add_args(p, region, (uint32_t)flat.size, all.data, flat.data);
  vt_parse_region_body(p, region);
  vt_parse_unbind_to(p, mark);
}

// (%x init: %c), (%y init: %d) applies stablehlo.add across dimensions = [0] : types
static void parse_reduce(vt_parser *p, vt_string name, vt_op_parse *o) {
  vt_operand_list inits = {0};
  vt_string applied = {"", 0};
  (void)name;
  do {
    vt_parse_expect(p, "(");
    vt_raw_value *input = vt_parse_value(p);
    vt_parse_expect(p, "init");
    vt_parse_expect(p, ":");
    vt_raw_value *init = vt_parse_value(p);
    vt_parse_expect(p, ")");
    vt_array_push_in(p->arena, &o->operands, input);
    vt_array_push_in(p->arena, &inits, init);
  } while (vt_parse_ok(p) && vt_parse_take(p, ","));
  for (size_t i = 0; i < inits.size; i++) vt_array_push_in(p->arena, &o->operands, inits.data[i]);
  if (vt_parse_take(p, "applies")) applied = vt_parse_word(p);
  vt_parse_expect(p, "across");
  vt_parse_expect(p, "dimensions");
  vt_parse_expect(p, "=");
  push_ints(p, o, "dimensions");
  parse_types(p, o, false);
  vt_parse_op_loc(p, o->op);
  if (!vt_parse_ok(p)) return;
  if (applied.size) {
    make_reducer(p, o, applied);
    return;
  }
  vt_parse_expect(p, "reducer");
  parse_reducer(p, o);
}

// (%iter = %0, %iter_1 = %c) : types cond { ... } do { ... }
static void parse_while(vt_parser *p, vt_string name, vt_op_parse *o) {
  name_list names = {0};
  (void)name;
  vt_parse_expect(p, "(");
  while (vt_parse_ok(p) && !vt_parse_take(p, ")")) {
    vt_parse_expect(p, "%");
    vt_string one = vt_parse_suffix_id(p);
    vt_parse_expect(p, "=");
    vt_raw_value *value = vt_parse_value(p);
    vt_array_push_in(p->arena, &names, one);
    vt_array_push_in(p->arena, &o->operands, value);
    if (!vt_parse_peek(p, ")")) vt_parse_expect(p, ",");
  }
  if (names.size) parse_types(p, o, true);
  if (vt_parse_take(p, "attributes")) vt_parse_attr_dict(p, &o->attrs);
  if (vt_parse_ok(p) && o->results.size != names.size)
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "types of the loop");
  for (int r = 0; r < 2 && vt_parse_ok(p); r++) {
    size_t mark = p->bound.size;
    vt_parse_expect(p, r ? "do" : "cond");
    vt_raw_region *region = vt_parse_new_region(p, o);
    vt_parse_add_args(p, region, (uint32_t)names.size, names.data, o->results.data);
    vt_parse_region_body(p, region);
    vt_parse_unbind_to(p, mark);
  }
}

// @f(%a) {...} : types, for calls and custom calls
static void parse_call(vt_parser *p, vt_string name, vt_op_parse *o) {
  bool custom = vt_string_is(name, "stablehlo.custom_call");
  vt_raw_attr *callee = vt_parse_string_attr(p, vt_parse_symbol(p));
  vt_parse_push_attr(p, &o->attrs, custom ? "call_target_name" : "callee", callee);
  vt_parse_expect(p, "(");
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, ")");
  parse_types(p, o, false);
}

// (%a, k = 2) : type -> (types)
static void parse_top_k(vt_parser *p, vt_string name, vt_op_parse *o) {
  vt_parse_expect(p, "(");
  vt_parse_operands(p, &o->operands);
  parse_pieces(p, name, o);
  vt_parse_expect(p, ")");
  parse_types(p, o, false);
}

static void parse_composite(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_push_attr(p, &o->attrs, "name", vt_parse_string_attr(p, vt_parse_quoted(p)));
  vt_parse_operands(p, &o->operands);
  parse_types(p, o, false);
}

static void parse_get_tuple_element(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, "[");
  push_int(p, o, "index", vt_parse_int(p));
  vt_parse_expect(p, "]");
  parse_types(p, o, false);
}

static void parse_reduce_precision(vt_parser *p, vt_string name, vt_op_parse *o) {
  int exponent = 0, mantissa = 0;
  (void)name;
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, ",");
  vt_parse_expect(p, "format");
  vt_parse_expect(p, "=");
  vt_string format = vt_parse_word(p);
  char text[32] = {0};
  memcpy(text, format.data, format.size < 31 ? format.size : 31);
  if (sscanf(text, "e%3dm%3d", &exponent, &mantissa) != 2)
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "format of a float");
  push_int(p, o, "exponent_bits", exponent);
  push_int(p, o, "mantissa_bits", mantissa);
  parse_types(p, o, false);
}

static void parse_return(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_operands(p, &o->operands);
  if (vt_parse_peek_char(p, '{')) vt_parse_attr_dict(p, &o->attrs);
  if (!o->operands.size) return;
  parse_types(p, o, true);
  o->results.size = 0;
}

static void parse_all_types(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_operands(p, &o->operands);
  if (o->operands.size || vt_parse_peek(p, ":")) parse_types(p, o, true);
}

// ---- functions and modules ----------------------------------------------------------------------

typedef VT_ARRAY(vt_raw_attr *) loc_list;

// "(%a: type {attrs}, ...)" for arguments, "(type {attrs}, ...)" for results.
static void parse_signature(vt_parser *p, name_list *names, vt_type_items *types,
                            vt_attr_items *dicts, loc_list *locs) {
  while (vt_parse_ok(p) && !vt_parse_take(p, ")")) {
    if (names) {
      vt_parse_expect(p, "%");
      vt_string name = vt_parse_suffix_id(p);
      vt_array_push_in(p->arena, names, name);
      vt_parse_expect(p, ":");
    }
    const vt_raw_type *type = vt_parse_type(p);
    static const vt_raw_attr nothing = {.kind = VT_RAW_DICT, .height = 1, .weight = 1};
    const vt_raw_attr *dict = vt_parse_peek_char(p, '{') ? vt_parse_attr(p) : &nothing;
    vt_raw_attr *loc = vt_parse_loc(p);
    if (locs) vt_array_push_in(p->arena, locs, loc);
    vt_array_push_in(p->arena, types, type);
    vt_array_push_in(p->arena, dicts, dict);
    if (!vt_parse_peek(p, ")")) vt_parse_expect(p, ",");
  }
}

static void parse_func(vt_parser *p, vt_string name, vt_op_parse *o) {
  name_list names = {0};
  vt_type_items types = {0};
  vt_attr_items arg_attrs = {0}, res_attrs = {0};
  loc_list locs = {0};
  (void)name;
  if (!vt_parse_take(p, "public")) (void)vt_parse_take(p, "private");
  vt_parse_push_attr(p, &o->attrs, "sym_name", vt_parse_string_attr(p, vt_parse_symbol(p)));
  vt_parse_expect(p, "(");
  parse_signature(p, &names, &types, &arg_attrs, &locs);
  uint32_t inputs = (uint32_t)types.size;
  if (vt_parse_take(p, "->")) {
    if (vt_parse_take(p, "(")) {
      parse_signature(p, NULL, &types, &res_attrs, NULL);
    } else {
      const vt_raw_type *type = vt_parse_type(p);
      vt_array_push_in(p->arena, &types, type);
    }
  }
  if (vt_parse_take(p, "attributes")) vt_parse_attr_dict(p, &o->attrs);
  if (!vt_parse_ok(p)) return;
  vt_raw_type *function = VT_NEW(p->arena, vt_raw_type);
  *function = (vt_raw_type){.kind = VT_RAW_FUNCTION,
                            .items = types.data,
                            .count = (uint32_t)types.size,
                            .input_count = inputs};
  if (!vt_raw_type_measure(function))
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "a function's type is too large");
  vt_raw_attr *type = vt_parse_new_attr(p, VT_RAW_TYPE);
  type->type = function;
  vt_parse_push_attr(p, &o->attrs, "function_type", type);
  vt_parse_push_attr(p, &o->attrs, "arg_attrs", vt_parse_array_attr(p, arg_attrs));
  vt_parse_push_attr(p, &o->attrs, "res_attrs", vt_parse_array_attr(p, res_attrs));
  size_t mark = p->bound.size;
  vt_raw_region *region = vt_parse_new_region(p, o);
  region->empty = !vt_parse_peek_char(p, '{');
  if (region->empty) return;
  vt_parse_add_args(p, region, inputs, names.data, types.data);
  for (uint32_t i = 0; i < inputs; i++) region->args[i].loc = locs.data[i];
  vt_parse_region_body(p, region);
  vt_parse_unbind_to(p, mark);
}

static void parse_module(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  if (vt_parse_peek_char(p, '@'))
    vt_parse_push_attr(p, &o->attrs, "sym_name", vt_parse_string_attr(p, vt_parse_symbol(p)));
  if (vt_parse_take(p, "attributes")) vt_parse_attr_dict(p, &o->attrs);
  vt_parse_region_body(p, vt_parse_new_region(p, o));
}

// ---- Shardy -------------------------------------------------------------------------------------

static void parse_mesh(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_push_attr(p, &o->attrs, "sym_name", vt_parse_string_attr(p, vt_parse_symbol(p)));
  vt_parse_expect(p, "=");
  vt_parse_push_attr(p, &o->attrs, "mesh", vt_parse_sdy_mesh(p));
  if (vt_parse_peek_char(p, '{')) vt_parse_attr_dict(p, &o->attrs);
}

// sharding_constraint, reshard: %x <@mesh, [...]> : type. Collectives: [axes] %x out_sharding=<...>
// : type.
static void parse_reshard(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  if (vt_parse_peek_char(p, '[') || vt_parse_peek_char(p, '{')) vt_parse_skip_balanced(p);
  vt_parse_operands(p, &o->operands);
  bool out = vt_parse_take(p, "out_sharding") || vt_parse_take(p, "sharding");
  if (out) vt_parse_expect(p, "=");
  vt_parse_push_attr(p, &o->attrs, "sharding", vt_parse_sdy_sharding(p));
  parse_types(p, o, false);
}

static void parse_barrier(vt_parser *p, vt_string name, vt_op_parse *o) {
  static const char *const directions[] = {"NONE", "FORWARD", "BACKWARD", "BOTH"};
  int64_t direction = -1;
  (void)name;
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, "allowed_direction");
  vt_parse_expect(p, "=");
  for (int64_t i = 0; i < 4 && direction < 0; i++)
    if (vt_parse_take(p, directions[i])) direction = i;
  if (direction < 0) vt_parse_fail(p, VT_INVALID_ARGUMENT, "a direction was expected");
  push_int(p, o, "allowed_direction", direction);
  parse_types(p, o, false);
}

static void parse_group(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, "group_id");
  vt_parse_expect(p, "=");
  push_int(p, o, "group_id", vt_parse_int(p));
  parse_types(p, o, false);
  o->results.size = 0;
}

// (%a: type, ...) { ops }
static void parse_body(vt_parser *p, vt_op_parse *o) {
  name_list names = {0};
  vt_type_items types = {0};
  vt_attr_items dicts = {0};
  size_t mark = p->bound.size;
  vt_parse_expect(p, "(");
  parse_signature(p, &names, &types, &dicts, NULL);
  if (!vt_parse_ok(p)) return;
  vt_raw_region *region = vt_parse_new_region(p, o);
  vt_parse_add_args(p, region, (uint32_t)types.size, names.data, types.data);
  vt_parse_region_body(p, region);
  vt_parse_unbind_to(p, mark);
}

// manual_computation and named_computation
static void parse_computation(vt_parser *p, vt_string name, vt_op_parse *o) {
  (void)name;
  if (vt_parse_take(p, "<")) {
    vt_parse_push_attr(p, &o->attrs, "name", vt_parse_string_attr(p, vt_parse_quoted(p)));
    vt_parse_expect(p, ">");
  }
  vt_parse_expect(p, "(");
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, ")");
  for (bool found = true; found && vt_parse_ok(p);) {
    found = false;
    for (int out = 0; out < 2; out++) {
      const char *attr = out ? "out_shardings" : "in_shardings";
      if (!vt_parse_take(p, attr)) continue;
      vt_parse_expect(p, "=");
      vt_parse_push_attr(p, &o->attrs, attr, vt_parse_sdy_shardings(p));
      found = true;
    }
    if (vt_parse_take(p, "manual_axes")) {
      vt_parse_expect(p, "=");
      vt_parse_push_attr(p, &o->attrs, "manual_axes", vt_parse_sdy_names(p));
      found = true;
    }
  }
  parse_body(p, o);
  parse_types(p, o, false);
}

static const struct {
  const char *name;
  void (*parse)(vt_parser *, vt_string, vt_op_parse *);
} forms[] = {
    {"module", parse_module},
    {"builtin.module", parse_module},
    {"func.func", parse_func},
    {"call", parse_call},
    {"func.call", parse_call},
    {"stablehlo.custom_call", parse_call},
    {"return", parse_return},
    {"func.return", parse_return},
    {"stablehlo.return", parse_return},
    {"sdy.return", parse_return},
    {"stablehlo.constant", parse_constant},
    {"sdy.constant", parse_constant},
    {"stablehlo.compare", parse_compare},
    {"stablehlo.slice", parse_slice},
    {"stablehlo.convolution", parse_convolution},
    {"stablehlo.reduce", parse_reduce},
    {"stablehlo.while", parse_while},
    {"stablehlo.composite", parse_composite},
    {"chlo.top_k", parse_top_k},
    {"stablehlo.get_tuple_element", parse_get_tuple_element},
    {"stablehlo.reduce_precision", parse_reduce_precision},
    {"stablehlo.optimization_barrier", parse_all_types},
    {"sdy.mesh", parse_mesh},
    {"sdy.sharding_constraint", parse_reshard},
    {"sdy.reshard", parse_reshard},
    {"sdy.all_gather", parse_reshard},
    {"sdy.all_slice", parse_reshard},
    {"sdy.all_to_all", parse_reshard},
    {"sdy.all_reduce", parse_reshard},
    {"sdy.reduce_scatter", parse_reshard},
    {"sdy.collective_permute", parse_reshard},
    {"sdy.data_flow_edge", parse_reshard},
    {"sdy.propagation_barrier", parse_barrier},
    {"sdy.sharding_group", parse_group},
    {"sdy.manual_computation", parse_computation},
    {"sdy.named_computation", parse_computation},
};

bool vt_parse_pretty(vt_parser *p, vt_string name, vt_op_parse *o) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (!vt_string_is(name, forms[i].name)) continue;
    forms[i].parse(p, name, o);
    return true;
  }
  bool stablehlo = name.size >= 10 && !memcmp(name.data, "stablehlo.", 10);
  bool chlo = name.size >= 5 && (!memcmp(name.data, "chlo.", 5) || !memcmp(name.data, "mhlo.", 5));
  if ((!stablehlo && !chlo) || o->op->row->handler == VT_HANDLE_RETURN) return false;
  parse_plain(p, name, o);
  return true;
}
