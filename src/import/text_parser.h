// SPDX-License-Identifier: Apache-2.0
// text_parser.h - shared by the files text*.c: the position in the text, tokens, and the parsing
// functions.
//
// Errors are sticky, as in cursor.h: the first is kept, and afterwards every function returns at
// once with the position at the end of the text.
#ifndef VT_IMPORT_TEXT_PARSER_H
#define VT_IMPORT_TEXT_PARSER_H

#include "base/array.h"
#include "base/map.h"
#include "import/raw.h"

typedef struct vt_binding {
  vt_raw_value *values; // of "%name": `count` of them, "%name#1" is the second
  uint32_t count;
} vt_binding;

typedef struct vt_unbind {
  vt_binding *binding;
  vt_binding before;
} vt_unbind;

typedef VT_ARRAY(vt_raw_named) vt_named_list;
typedef VT_ARRAY(const vt_raw_attr *) vt_attr_items;
typedef VT_ARRAY(const vt_raw_type *) vt_type_items;
typedef VT_ARRAY(int64_t) vt_int_list;
typedef VT_ARRAY(vt_raw_value *) vt_operand_list;

typedef struct vt_parser {
  vt_arena *arena;
  const char *start, *at, *end;
  vt_status failure;
  int depth;                         // of nested types, attributes and regions
  vt_map values;                     // name -> vt_binding
  VT_ARRAY(vt_unbind) bound;         // to undo when a region ends
  vt_map aliases;                    // "#name" -> vt_raw_attr, "!name" -> vt_raw_type
  vt_map locations;                  // name -> vt_raw_attr, of those used or defined so far
  VT_ARRAY(vt_raw_attr *) resources; // dense_resource attributes: their data comes last in the text
  const char *counted;               // lines are counted up to here
  int64_t line;
} vt_parser;

enum { VT_TEXT_DEPTH = 120 };

void vt_parse_fail(vt_parser *p, vt_code code, const char *format, ...) VT_PRINTF(3, 4);
static inline bool vt_parse_ok(const vt_parser *p) {
  return p->failure == VT_OK;
}
bool vt_parse_enter(
    vt_parser *p); // one level deeper; false (and failed) when too deep. Pairs with p->depth--

// Tokens (text_lex.c). Leading white space and comments are skipped.
void vt_parse_space(vt_parser *p);
bool vt_parse_peek(vt_parser *p, const char *token); // words must end there
bool vt_parse_take(vt_parser *p, const char *token);
void vt_parse_expect(vt_parser *p, const char *token);
bool vt_parse_peek_char(vt_parser *p, char c);
vt_string vt_parse_word(vt_parser *p);      // [A-Za-z_][A-Za-z0-9_.$]*; empty when none
vt_string vt_parse_suffix_id(vt_parser *p); // after % @ ^ # !
vt_string vt_parse_quoted(vt_parser *p);    // "..." with escapes resolved; fails when none
vt_string vt_parse_symbol(vt_parser *p);    // @name or @"name"
int64_t vt_parse_int(vt_parser *p);         // with sign; fails when none or too large
bool vt_parse_number(vt_parser *p, vt_string *out_text); // integer, float or hex: its text
void vt_parse_ints(vt_parser *p, const char *open, const char *close,
                   vt_int_list *out);      // "[1, 2]"; bools too
void vt_parse_skip_balanced(vt_parser *p); // from an opening bracket to after its partner

// Locations (text_loc.c)
vt_raw_attr *vt_parse_loc(vt_parser *p); // "loc(...)"; NULL if it is not there, or not understood
void vt_parse_define_loc(vt_parser *p, vt_string name); // "loc(...)" after "#name ="
void vt_parse_op_loc(vt_parser *p, vt_raw_op *op);      // "loc(...)" after an op, if it is there
void vt_parse_settle_locs(vt_parser *p);                // once all definitions are read

// Types (text_type.c)
const vt_raw_type *vt_parse_type(vt_parser *p);
// "(a, b) -> c" or "(a) -> (b, c)".
const vt_raw_type *vt_parse_function_type(vt_parser *p);

// Attributes (text_attr.c, text_dense.c, text_sdy.c)
const vt_raw_attr *vt_parse_attr(vt_parser *p);
void vt_parse_attr_dict(vt_parser *p,
                        vt_named_list *out); // "{a = 1, b}", spread out; the brace is next
void vt_parse_push_attr(vt_parser *p, vt_named_list *out, const char *name,
                        const vt_raw_attr *value);
vt_raw_attr *vt_parse_new_attr(vt_parser *p, vt_raw_attr_kind kind);
vt_raw_attr *vt_parse_int_attr(vt_parser *p, int64_t value);
vt_raw_attr *vt_parse_ints_attr(vt_parser *p, const vt_int_list *ints);
vt_raw_attr *vt_parse_string_attr(vt_parser *p, vt_string string);
vt_raw_attr *vt_parse_array_attr(vt_parser *p, vt_attr_items items);
const vt_raw_attr *vt_parse_enum(vt_parser *p, const char *kind); // a word: "LT"
// "<lhs_batching_dimensions = [0], ...>" after its name: a dictionary.
const vt_raw_attr *vt_parse_struct(vt_parser *p);
const vt_raw_attr *vt_parse_conv_dims(vt_parser *p); // "[b, 0, f]x[0, i, o]->[b, 0, f]"
void vt_parse_spread(vt_parser *p, vt_named_list *out, const vt_raw_attr *dict);
const vt_raw_attr *vt_parse_dense(vt_parser *p);     // after "dense"
vt_bytes vt_parse_hex(vt_parser *p, vt_string text); // "0x0102"
double vt_parse_double(vt_string text);
const vt_raw_attr *vt_parse_sdy_sharding(vt_parser *p);  // "<@mesh, [{"a"}], ...>"
const vt_raw_attr *vt_parse_sdy_shardings(vt_parser *p); // "[<...>, <...>]"
const vt_raw_attr *vt_parse_sdy_mesh(vt_parser *p);      // "<["a"=2], device_ids=[1, 0]>"
const vt_raw_attr *vt_parse_sdy_names(vt_parser *p);     // "{"a", "b"}"
const vt_raw_attr *vt_parse_group_axes(vt_parser *p);    // "<mesh = @mesh, axes = [...]>"

// Ops (text_op.c, text_pretty.c)
typedef struct vt_op_parse {
  vt_raw_op *op;
  vt_named_list attrs;
  vt_operand_list operands;
  vt_type_items results;
  VT_ARRAY(vt_raw_region *) regions;
} vt_op_parse;

vt_raw_value *vt_parse_value(vt_parser *p);                 // "%name" or "%name#2"
void vt_parse_operands(vt_parser *p, vt_operand_list *out); // "%a, %b"; none is fine
vt_raw_region *vt_parse_new_region(vt_parser *p, vt_op_parse *o);
void vt_parse_add_args(vt_parser *p, vt_raw_region *region, uint32_t count, const vt_string *names,
                       const vt_raw_type *const *types);        // names may be NULL
void vt_parse_region_body(vt_parser *p, vt_raw_region *region); // "{ ops }", arguments known
void vt_parse_region(vt_parser *p, vt_op_parse *o);             // "{ ^bb0(...): ops }"
void vt_parse_unbind_to(vt_parser *p, size_t mark);
// The op's pretty form, after its name. False when it has none.
bool vt_parse_pretty(vt_parser *p, vt_string name, vt_op_parse *o);
const vt_vhlo_row *vt_parse_row(vt_string name); // "stablehlo.add", "func.func"
vt_raw_op *vt_parse_new_op(vt_parser *p, vt_raw_region *region, const vt_vhlo_row *row);
void vt_parse_finish_op(vt_parser *p, vt_op_parse *o);

#endif
