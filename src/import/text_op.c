// SPDX-License-Identifier: Apache-2.0
// text_op.c - modules, functions, regions, and ops in generic form.
#include <stdio.h>
#include <string.h>

#include "import/text.h"
#include "import/text_parser.h"

// ---- names of values ----------------------------------------------------------------------------

static void bind(vt_parser *p, vt_string name, uint32_t count, vt_raw_value *values) {
  void **place = vt_map_at(&p->values, name.data, name.size);
  if (!*place) *place = VT_NEW(p->arena, vt_binding);
  vt_binding *binding = *place;
  vt_unbind undo = {binding, *binding};
  vt_array_push_in(p->arena, &p->bound, undo);
  *binding = (vt_binding){values, count};
}

void vt_parse_unbind_to(vt_parser *p, size_t mark) {
  while (p->bound.size > mark) {
    vt_unbind undo = p->bound.data[--p->bound.size];
    *undo.binding = undo.before;
  }
}

vt_raw_value *vt_parse_value(vt_parser *p) {
  static vt_raw_value nothing;
  vt_parse_expect(p, "%");
  if (!vt_parse_ok(p)) return &nothing;
  vt_string name = vt_parse_suffix_id(p);
  const vt_binding *binding = vt_map_find(&p->values, name.data, name.size);
  int64_t index = p->at < p->end && *p->at == '#' ? (p->at++, vt_parse_int(p)) : 0;
  if (!vt_parse_ok(p)) return &nothing;
  if (!binding || !binding->values || index < 0 || index >= binding->count) {
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "%%%.*s is not defined", (int)name.size, name.data);
    return &nothing;
  }
  return &binding->values[index];
}

void vt_parse_operands(vt_parser *p, vt_operand_list *out) {
  if (!vt_parse_peek_char(p, '%')) return;
  do {
    vt_raw_value *value = vt_parse_value(p);
    vt_array_push_in(p->arena, out, value);
    const char *comma = p->at;
    if (!vt_parse_take(p, ",")) return;
    if (!vt_parse_peek_char(p, '%')) { // the comma belongs to what follows
      p->at = comma;
      return;
    }
  } while (vt_parse_ok(p));
}

// ---- regions ------------------------------------------------------------------------------------

vt_raw_region *vt_parse_new_region(vt_parser *p, vt_op_parse *o) {
  vt_raw_region *region = VT_NEW(p->arena, vt_raw_region);
  region->owner = o->op;
  region->depth = o->op->region ? o->op->region->depth + 1 : 0;
  vt_array_push_in(p->arena, &o->regions, region);
  return region;
}

void vt_parse_add_args(vt_parser *p, vt_raw_region *region, uint32_t count, const vt_string *names,
                       const vt_raw_type *const *types) {
  region->arg_count = count;
  region->args = VT_NEW_ARRAY(p->arena, vt_raw_value, count);
  for (uint32_t i = 0; i < count; i++) {
    region->args[i] = (vt_raw_value){.type = types[i], .region = region};
    if (names) bind(p, names[i], 1, &region->args[i]);
  }
}

static vt_raw_op *parse_op(vt_parser *p, vt_raw_region *region);

static void append(vt_raw_region *region, vt_raw_op *op) {
  if (region->last)
    region->last->next = op;
  else
    region->first = op;
  region->last = op;
}

static void parse_ops(vt_parser *p, vt_raw_region *region) {
  while (vt_parse_ok(p) && !vt_parse_take(p, "}")) {
    if (vt_parse_peek_char(p, '^'))
      vt_parse_fail(p, VT_UNIMPLEMENTED, "a region of several blocks");
    vt_raw_op *op = vt_parse_ok(p) ? parse_op(p, region) : NULL;
    if (op) append(region, op);
  }
}

void vt_parse_region_body(vt_parser *p, vt_raw_region *region) {
  if (vt_parse_enter(p)) {
    vt_parse_expect(p, "{");
    parse_ops(p, region);
  }
  p->depth--;
}

// "(%a: type loc(...), ...)" after an opening parenthesis.
static void parse_block_args(vt_parser *p, vt_raw_region *region) {
  VT_ARRAY(vt_string) names = {0};
  vt_type_items types = {0};
  while (vt_parse_ok(p) && !vt_parse_take(p, ")")) {
    vt_parse_expect(p, "%");
    vt_string name = vt_parse_suffix_id(p);
    vt_parse_expect(p, ":");
    const vt_raw_type *type = vt_parse_type(p);
    (void)vt_parse_loc(p);
    vt_array_push_in(p->arena, &names, name);
    vt_array_push_in(p->arena, &types, type);
    if (!vt_parse_peek(p, ")")) vt_parse_expect(p, ",");
  }
  if (vt_parse_ok(p)) vt_parse_add_args(p, region, (uint32_t)types.size, names.data, types.data);
}

void vt_parse_region(vt_parser *p, vt_op_parse *o) {
  size_t mark = p->bound.size;
  vt_raw_region *region = vt_parse_new_region(p, o);
  if (vt_parse_enter(p)) {
    vt_parse_expect(p, "{");
    if (vt_parse_take(p, "^")) {
      (void)vt_parse_suffix_id(p);
      if (vt_parse_take(p, "(")) parse_block_args(p, region);
      vt_parse_expect(p, ":");
    }
    parse_ops(p, region);
    region->empty = !region->first && !region->arg_count;
  }
  p->depth--;
  vt_parse_unbind_to(p, mark);
}

// ---- ops ----------------------------------------------------------------------------------------

const vt_vhlo_row *vt_parse_row(vt_string name) {
  static const struct {
    const char *text, *row;
  } others[] = {{"func.func", "vhlo.func_v1"},       {"func.call", "vhlo.call_v1"},
                {"func.return", "vhlo.return_v1"},   {"call", "vhlo.call_v1"},
                {"return", "vhlo.return_v1"},        {"module", "builtin.module"},
                {"builtin.module", "builtin.module"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (vt_string_is(name, others[i].text))
      return vt_vhlo_find(others[i].row, strlen(others[i].row));
  char versioned[80];
  const vt_vhlo_row *row = NULL;
  if (name.size > 5 && name.size < 64 && !memcmp(name.data, "mhlo.", 5)) { // XLA's names
    int size =
        snprintf(versioned, sizeof versioned, "chlo.%.*s", (int)name.size - 5, name.data + 5);
    row = vt_vhlo_find(versioned, (size_t)size);
    if (row) return row;
  }
  if (name.size <= 11 || memcmp(name.data, "stablehlo.", 10))
    return vt_vhlo_find(name.data, name.size);
  for (int version = 2; version >= 1 && !row && name.size < 64; version--) {
    int size = snprintf(versioned, sizeof versioned, "vhlo.%.*s_v%d", (int)name.size - 10,
                        name.data + 10, version);
    row = vt_vhlo_find(versioned, (size_t)size);
  }
  return row;
}

vt_raw_op *vt_parse_new_op(vt_parser *p, vt_raw_region *region, const vt_vhlo_row *row) {
  vt_raw_op *op = VT_NEW(p->arena, vt_raw_op);
  vt_raw_attr *loc = vt_parse_new_attr(p, VT_RAW_LOC_FILE);
  int64_t *place = VT_NEW_ARRAY(p->arena, int64_t, 2);
  place[0] = p->line;
  loc->string = (vt_string){"-", 1};
  loc->ints = place;
  loc->count = 2;
  op->row = row;
  op->region = region;
  op->loc = loc;
  return op;
}

void vt_parse_finish_op(vt_parser *p, vt_op_parse *o) {
  vt_raw_op *op = o->op;
  op->attr_count = (uint32_t)o->attrs.size;
  op->attrs = o->attrs.data;
  op->operand_count = (uint32_t)o->operands.size;
  op->operands = o->operands.data;
  op->region_count = (uint32_t)o->regions.size;
  op->regions = o->regions.data;
  op->result_count = (uint32_t)o->results.size;
  op->results = VT_NEW_ARRAY(p->arena, vt_raw_value, op->result_count);
  for (uint32_t i = 0; i < op->result_count; i++)
    op->results[i] = (vt_raw_value){.type = o->results.data[i], .region = op->region, .op = op};
}

static void parse_generic(vt_parser *p, vt_op_parse *o) {
  vt_parse_expect(p, "(");
  vt_parse_operands(p, &o->operands);
  vt_parse_expect(p, ")");
  if (vt_parse_take(p, "<{")) {
    p->at--;
    vt_parse_attr_dict(p, &o->attrs);
    vt_parse_expect(p, ">");
  }
  if (vt_parse_take(p, "(")) {
    do vt_parse_region(p, o);
    while (vt_parse_ok(p) && vt_parse_take(p, ","));
    vt_parse_expect(p, ")");
  }
  if (vt_parse_peek_char(p, '{')) vt_parse_attr_dict(p, &o->attrs);
  vt_parse_expect(p, ":");
  const vt_raw_type *type = vt_parse_function_type(p);
  if (!vt_parse_ok(p)) return;
  if (type->input_count != o->operands.size)
    vt_parse_fail(p, VT_INVALID_ARGUMENT, "%u operand types for %zu operands", type->input_count,
                  o->operands.size);
  for (uint32_t i = type->input_count; i < type->count; i++)
    vt_array_push_in(p->arena, &o->results, type->items[i]);
}

typedef struct result_name {
  vt_string name;
  uint32_t count;
} result_name;

// Lines are counted op by op, so that counting takes one pass over the text.
static void count_lines(vt_parser *p) {
  vt_parse_space(p);
  for (; p->counted < p->at; p->counted++) p->line += *p->counted == '\n';
}

static vt_raw_op *parse_op(vt_parser *p, vt_raw_region *region) {
  VT_ARRAY(result_name) names = {0};
  vt_op_parse o = {0};
  count_lines(p);
  while (vt_parse_take(p, "%")) {
    result_name one = {vt_parse_suffix_id(p), 1};
    if (vt_parse_take(p, ":")) one.count = (uint32_t)vt_parse_int(p);
    vt_array_push_in(p->arena, &names, one);
    if (!vt_parse_take(p, ",")) vt_parse_expect(p, "=");
  }
  bool generic = vt_parse_peek_char(p, '"');
  vt_string name = generic ? vt_parse_quoted(p) : vt_parse_word(p);
  const vt_vhlo_row *row = vt_parse_row(name);
  if (!vt_parse_ok(p)) return NULL;
  if (!row) {
    vt_parse_fail(p, VT_UNIMPLEMENTED, "unknown op '%.*s'", (int)name.size, name.data);
    return NULL;
  }
  o.op = vt_parse_new_op(p, region, row);
  if (generic)
    parse_generic(p, &o);
  else if (!vt_parse_pretty(p, name, &o))
    vt_parse_fail(p, VT_UNIMPLEMENTED, "%.*s has no short form", (int)name.size, name.data);
  vt_parse_op_loc(p, o.op);
  if (!vt_parse_ok(p)) return NULL;
  vt_parse_finish_op(p, &o);
  uint32_t at = 0;
  for (size_t i = 0; i < names.size; i++) {
    if (names.data[i].count > o.op->result_count - at) {
      vt_parse_fail(p, VT_INVALID_ARGUMENT, "more names than results");
      return NULL;
    }
    bind(p, names.data[i].name, names.data[i].count, o.op->results + at);
    at += names.data[i].count;
  }
  return o.op;
}

// ---- the file -----------------------------------------------------------------------------------

// {-# dialect_resources: { builtin: { name: "0x..." } } #-} : the first four bytes are the
// alignment.
static void parse_resources(vt_parser *p) {
  while (vt_parse_ok(p) && !vt_parse_take(p, "#-}")) {
    vt_string name = vt_parse_peek_char(p, '"') ? vt_parse_quoted(p) : vt_parse_word(p);
    if (!name.size) {
      if (p->at < p->end)
        p->at++;
      else
        vt_parse_fail(p, VT_INVALID_ARGUMENT, "unterminated resources");
      continue;
    }
    if (!vt_parse_take(p, ":") || !vt_parse_peek_char(p, '"')) continue;
    vt_string hex = vt_parse_quoted(p);
    for (size_t i = 0; i < p->resources.size; i++) {
      vt_raw_attr *attr = p->resources.data[i];
      if (attr->string.size != name.size || memcmp(attr->string.data, name.data, name.size))
        continue;
      attr->data = vt_parse_hex(p, hex);
      if (attr->data.size < 4)
        vt_parse_fail(p, VT_INVALID_ARGUMENT, "resource without data");
      else
        attr->data = (vt_bytes){attr->data.data + 4, attr->data.size - 4};
    }
  }
}

// "#name = attribute" and "!name = type".
static void parse_alias(vt_parser *p, char mark) {
  char key[64] = {mark};
  p->at++;
  vt_string name = vt_parse_suffix_id(p);
  vt_parse_expect(p, "=");
  if (vt_parse_peek(p, "loc")) {
    vt_parse_define_loc(p, name);
    return;
  }
  const void *value = mark == '#' ? (const void *)vt_parse_attr(p) : (const void *)vt_parse_type(p);
  if (!vt_parse_ok(p) || name.size >= sizeof key - 1) return;
  memcpy(key + 1, name.data, name.size);
  *vt_map_at(&p->aliases, key, strlen(key)) = (void *)(uintptr_t)value;
}

// Functions without an enclosing module go into an unnamed one.
static vt_raw_op *new_module(vt_parser *p) {
  vt_op_parse o = {.op = vt_parse_new_op(p, NULL, vt_parse_row((vt_string){"module", 6}))};
  (void)vt_parse_new_region(p, &o);
  vt_parse_finish_op(p, &o);
  return o.op;
}

static void parse_file(vt_parser *p, vt_raw_module *out_module) {
  vt_raw_op *top = NULL, *added = NULL;
  for (vt_parse_space(p); vt_parse_ok(p) && p->at < p->end; vt_parse_space(p)) {
    if (*p->at == '#' || *p->at == '!') {
      parse_alias(p, *p->at);
    } else if (vt_parse_take(p, "{-#")) {
      parse_resources(p);
    } else if (vt_parse_peek(p, "func.func") || vt_parse_peek(p, "\"func.func\"")) {
      if (!top) top = added = new_module(p);
      if (!added) vt_parse_fail(p, VT_INVALID_ARGUMENT, "text follows the module");
      vt_raw_op *op = vt_parse_ok(p) ? parse_op(p, added->regions[0]) : NULL;
      if (op) append(added->regions[0], op);
    } else {
      if (top) vt_parse_fail(p, VT_INVALID_ARGUMENT, "text follows the module");
      top = vt_parse_ok(p) ? parse_op(p, NULL) : NULL;
    }
  }
  if (!top) vt_parse_fail(p, VT_INVALID_ARGUMENT, "there is no module");
  out_module->op = top;
}

static vt_status finish(vt_parser *p) {
  vt_map_free(&p->values);
  vt_map_free(&p->aliases);
  vt_map_free(&p->locations);
  return p->failure;
}

vt_status vt_mlir_text_read(vt_bytes program, vt_arena *arena, vt_raw_module *out_module) {
  const char *text = (const char *)program.data;
  vt_parser p = {.arena = arena,
                 .start = text,
                 .at = text,
                 .end = text + program.size,
                 .counted = text,
                 .line = 1};
  *out_module = (vt_raw_module){.producer = "text", .program_bytes = program.size};
  if (!program.size || memchr(text, 0, program.size))
    return vt_error(VT_INVALID_ARGUMENT, "neither MLIR bytecode nor text");
  parse_file(&p, out_module);
  vt_parse_settle_locs(&p);
  return finish(&p);
}

vt_status vt_mlir_text_attr(vt_string text, vt_arena *arena, const vt_raw_attr **out_attr) {
  vt_parser p = {.arena = arena, .start = text.data, .at = text.data, .end = text.data + text.size};
  *out_attr = vt_parse_attr(&p);
  vt_parse_space(&p);
  if (p.at != p.end) vt_parse_fail(&p, VT_INVALID_ARGUMENT, "text follows the attribute");
  return finish(&p);
}
