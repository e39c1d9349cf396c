// SPDX-License-Identifier: Apache-2.0
// text_type.c - types in MLIR text.
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "import/text_parser.h"

static vt_raw_type *new_type(vt_parser *p, vt_raw_type_kind kind) {
  vt_raw_type *type = VT_NEW(p->arena, vt_raw_type);
  type->kind = kind;
  return type;
}

static const vt_raw_type *finish(vt_parser *p, vt_raw_type *type) {
  if (!vt_raw_type_measure(type)) vt_parse_fail(p, VT_INVALID_ARGUMENT, "a type is too large");
  return type;
}

static const vt_raw_type *element(vt_parser *p, vt_dtype dtype) {
  vt_raw_type *type = new_type(p, VT_RAW_ELEMENT);
  type->dtype = dtype;
  type->bits = vt_dtype_get(dtype)->bits;
  return finish(p, type);
}

static const vt_raw_type *refused(vt_parser *p, const char *what) {
  vt_raw_type *type = new_type(p, VT_RAW_REFUSED);
  type->what = what;
  return finish(p, type);
}

// "2x?x3x": dimensions, each with its x. The element type follows.
static int32_t parse_dims(vt_parser *p, int64_t *dims) {
  int32_t rank = 0;
  for (;;) {
    vt_parse_space(p);
    bool unknown = p->at < p->end && *p->at == '?';
    if (!unknown && !(p->at < p->end && isdigit((unsigned char)*p->at))) return rank;
    if (rank == 2 * VT_MAX_RANK) {
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "too many dimensions");
      return 0;
    }
    if (unknown) p->at++;
    int64_t size = unknown ? VT_RAW_DYNAMIC : vt_parse_int(p);
    if (!unknown && size < 0) vt_parse_fail(p, VT_INVALID_ARGUMENT, "dimension is too large");
    dims[rank++] = size;
    if (p->at >= p->end || *p->at != 'x') {
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "'x' expected after a dimension");
      return 0;
    }
    p->at++;
  }
}

static const vt_raw_type *parse_tensor(vt_parser *p) {
  int64_t dims[2 * VT_MAX_RANK];
  vt_parse_expect(p, "<");
  if (vt_parse_take(p, "*")) {
    while (p->at < p->end && *p->at != '>') p->at++;
    vt_parse_expect(p, ">");
    return refused(p, "an unranked tensor");
  }
  vt_raw_type *type = new_type(p, VT_RAW_TENSOR);
  type->rank = parse_dims(p, dims);
  const vt_raw_type *of = vt_parse_type(p);
  if (vt_parse_take(p, ",")) { // an encoding: bounds of dynamic dimensions
    while (p->at < p->end && *p->at != '>') {
      if (*p->at == '<')
        vt_parse_skip_balanced(p);
      else
        p->at++;
    }
  }
  vt_parse_expect(p, ">");
  int64_t *kept = VT_NEW_ARRAY(p->arena, int64_t, type->rank);
  memcpy(kept, dims, sizeof *kept * (size_t)type->rank);
  type->dims = kept;
  type->dtype = of->dtype;
  type->bits = of->bits;
  type->what = of->kind == VT_RAW_ELEMENT || of->what ? of->what : "an unknown element type";
  return finish(p, type);
}

static const vt_raw_type *parse_list(vt_parser *p, vt_raw_type_kind kind, const char *open,
                                     const char *close) {
  vt_type_items items = {0};
  vt_parse_expect(p, open);
  if (!vt_parse_take(p, close)) {
    do {
      const vt_raw_type *item = vt_parse_type(p);
      vt_array_push_in(p->arena, &items, item);
    } while (vt_parse_ok(p) && vt_parse_take(p, ","));
    vt_parse_expect(p, close);
  }
  vt_raw_type *type = new_type(p, kind);
  type->items = items.data;
  type->count = (uint32_t)items.size;
  return finish(p, type);
}

const vt_raw_type *vt_parse_function_type(vt_parser *p) {
  const vt_raw_type *inputs = parse_list(p, VT_RAW_TUPLE, "(", ")");
  vt_type_items items = {0};
  for (uint32_t i = 0; i < inputs->count; i++) vt_array_push_in(p->arena, &items, inputs->items[i]);
  vt_parse_expect(p, "->");
  if (vt_parse_peek_char(p, '(')) {
    const vt_raw_type *results = parse_list(p, VT_RAW_TUPLE, "(", ")");
    for (uint32_t i = 0; i < results->count; i++)
      vt_array_push_in(p->arena, &items, results->items[i]);
  } else {
    const vt_raw_type *result = vt_parse_type(p);
    vt_array_push_in(p->arena, &items, result);
  }
  vt_raw_type *type = new_type(p, VT_RAW_FUNCTION);
  type->items = items.data;
  type->count = (uint32_t)items.size;
  type->input_count = inputs->count;
  return finish(p, type);
}

static const vt_raw_type *parse_dialect_type(vt_parser *p) {
  vt_parse_expect(p, "!");
  vt_string name = vt_parse_suffix_id(p);
  char key[64] = "!";
  if (vt_string_is(name, "stablehlo.token")) return finish(p, new_type(p, VT_RAW_TOKEN));
  if (vt_string_is(name, "stablehlo.future")) return parse_list(p, VT_RAW_FUTURE, "<", ">");
  if (name.size < sizeof key - 1) memcpy(key + 1, name.data, name.size);
  const vt_raw_type *alias = vt_map_find(&p->aliases, key, strlen(key));
  if (alias) return alias;
  if (vt_parse_peek_char(p, '<')) vt_parse_skip_balanced(p);
  return refused(p, name.size >= 5 && !memcmp(name.data, "quant", 5)
                        ? "a quantised type"
                        : "a type of an unknown dialect");
}

static const vt_raw_type *parse_named(vt_parser *p) {
  vt_string word = vt_parse_word(p);
  if (vt_string_is(word, "tensor")) return parse_tensor(p);
  if (vt_string_is(word, "tuple")) return parse_list(p, VT_RAW_TUPLE, "<", ">");
  if (vt_string_is(word, "complex")) {
    vt_parse_expect(p, "<");
    const vt_raw_type *part = vt_parse_type(p);
    vt_parse_expect(p, ">");
    if (part->dtype == VT_F32) return element(p, VT_C64);
    if (part->dtype == VT_F64) return element(p, VT_C128);
    return refused(p, "a complex number of this precision");
  }
  if (vt_string_is(word, "index")) return element(p, VT_S64);
  if (vt_string_is(word, "tf32")) return refused(p, "tf32");
  if (vt_string_is(word, "none")) {
    vt_raw_type *none = new_type(p, VT_RAW_NONE);
    none->what = "the type none";
    return finish(p, none);
  }
  if (word.size > 2 && word.data[0] == 's' && word.data[1] == 'i')
    word = (vt_string){word.data + 1, word.size - 1};
  vt_dtype dtype = vt_dtype_from_text(word.data, word.size);
  if (dtype) return element(p, dtype);
  if (!word.size) vt_parse_fail(p, VT_INVALID_ARGUMENT, "a type was expected");
  if (vt_parse_peek_char(p, '<')) vt_parse_skip_balanced(p);
  return refused(p, "a type of this name");
}

const vt_raw_type *vt_parse_type(vt_parser *p) {
  static const vt_raw_type none = {
      .kind = VT_RAW_REFUSED, .what = "a malformed type", .height = 1, .leaves = 1};
  const vt_raw_type *type = &none;
  if (vt_parse_enter(p)) {
    if (vt_parse_peek_char(p, '('))
      type = vt_parse_function_type(p);
    else if (vt_parse_peek_char(p, '!'))
      type = parse_dialect_type(p);
    else
      type = parse_named(p);
  }
  p->depth--;
  return vt_parse_ok(p) ? type : &none;
}
