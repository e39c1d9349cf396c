// SPDX-License-Identifier: Apache-2.0
// text_loc.c - locations: loc("train.py":12:4), loc("jit(step)/add"(#loc3)), loc(callsite(#loc1 at
// #loc2)), loc(fused[...]), and "#loc3 = ...", which comes after its uses. Locations that this does
// not know, and those that contain themselves, are unknown ones.
#include <ctype.h>
#include <string.h>

#include "import/text_parser.h"

static vt_raw_attr *parse_body(vt_parser *p);

static vt_raw_attr *with_items(vt_parser *p, vt_raw_attr_kind kind, vt_attr_items items) {
  vt_raw_attr *attr = vt_parse_new_attr(p, kind);
  attr->count = (uint32_t)items.size;
  attr->items = items.data;
  return attr;
}

static bool is_number(vt_parser *p) {
  vt_parse_space(p);
  return p->at < p->end && isdigit((unsigned char)*p->at);
}

// ":12:4 to :20" after the name of the file.
static vt_raw_attr *parse_place(vt_parser *p, vt_string file) {
  int64_t *place = VT_NEW_ARRAY(p->arena, int64_t, 2);
  for (int i = 0; i < 2 && vt_parse_take(p, ":") && is_number(p); i++) {
    int64_t number = vt_parse_int(p);
    place[i] = number < INT32_MAX ? number : 0;
  }
  if (vt_parse_take(p, "to")) {
    if (is_number(p)) (void)vt_parse_int(p);
    if (vt_parse_take(p, ":") && is_number(p)) (void)vt_parse_int(p);
  }
  vt_raw_attr *attr = vt_parse_new_attr(p, VT_RAW_LOC_FILE);
  attr->string = file;
  attr->ints = place;
  attr->count = 2;
  return attr;
}

static vt_raw_attr *parse_name(vt_parser *p) {
  vt_string name = vt_parse_quoted(p);
  if (vt_parse_peek_char(p, ':')) return parse_place(p, name);
  vt_attr_items items = {0};
  vt_raw_attr *child = NULL;
  if (vt_parse_take(p, "(")) {
    child = parse_body(p);
    if (!child || !vt_parse_take(p, ")")) return NULL;
  }
  if (!child) child = vt_parse_new_attr(p, VT_RAW_LOC_UNKNOWN);
  vt_array_push_in(p->arena, &items, child);
  vt_raw_attr *attr = with_items(p, VT_RAW_LOC_NAME, items);
  attr->string = name;
  return attr;
}

static vt_raw_attr *parse_call(vt_parser *p) {
  vt_attr_items items = {0};
  if (!vt_parse_take(p, "(")) return NULL;
  vt_raw_attr *callee = parse_body(p);
  if (!callee || !vt_parse_take(p, "at")) return NULL;
  vt_raw_attr *caller = parse_body(p);
  if (!caller || !vt_parse_take(p, ")")) return NULL;
  vt_array_push_in(p->arena, &items, callee);
  vt_array_push_in(p->arena, &items, caller);
  return with_items(p, VT_RAW_LOC_CALL, items);
}

static vt_raw_attr *parse_fused(vt_parser *p) {
  vt_attr_items items = {0};
  if (vt_parse_peek_char(p, '<')) vt_parse_skip_balanced(p);
  if (!vt_parse_take(p, "[")) return NULL;
  do {
    vt_raw_attr *part = parse_body(p);
    if (!part) return NULL;
    vt_array_push_in(p->arena, &items, part);
  } while (vt_parse_take(p, ","));
  return vt_parse_take(p, "]") ? with_items(p, VT_RAW_LOC_FUSED, items) : NULL;
}

// One node for each name, filled in once its definition is read.
static vt_raw_attr *node_of(vt_parser *p, vt_string name) {
  void **node = vt_map_at(&p->locations, name.data, name.size);
  if (!*node) *node = vt_parse_new_attr(p, VT_RAW_LOC_UNKNOWN);
  return *node;
}

// NULL: nothing that this knows; the text may be read up to anywhere.
static vt_raw_attr *parse_body(vt_parser *p) {
  vt_raw_attr *attr = NULL;
  if (!vt_parse_enter(p)) return NULL;
  if (vt_parse_peek_char(p, '"'))
    attr = parse_name(p);
  else if (vt_parse_take(p, "#"))
    attr = node_of(p, vt_parse_suffix_id(p));
  else if (vt_parse_take(p, "callsite"))
    attr = parse_call(p);
  else if (vt_parse_take(p, "fused"))
    attr = parse_fused(p);
  else if (vt_parse_take(p, "unknown"))
    attr = vt_parse_new_attr(p, VT_RAW_LOC_UNKNOWN);
  p->depth--;
  return vt_parse_ok(p) ? attr : NULL;
}

vt_raw_attr *vt_parse_loc(vt_parser *p) {
  if (!vt_parse_take(p, "loc")) return NULL;
  vt_parse_space(p);
  const char *start = p->at;
  vt_raw_attr *attr = vt_parse_take(p, "(") ? parse_body(p) : NULL;
  if (!vt_parse_ok(p) || (attr && vt_parse_take(p, ")"))) return attr;
  p->at = start;
  vt_parse_skip_balanced(p);
  return NULL;
}

void vt_parse_define_loc(vt_parser *p, vt_string name) {
  vt_raw_attr *attr = vt_parse_loc(p);
  if (attr && vt_parse_ok(p)) *node_of(p, name) = *attr;
}

void vt_parse_op_loc(vt_parser *p, vt_raw_op *op) {
  vt_raw_attr *attr = vt_parse_loc(p);
  vt_attr_items items = {0};
  if (!attr) return;
  vt_array_push_in(p->arena, &items, attr);
  vt_array_push_in(p->arena, &items, op->loc); // its line in the text, where that says nothing
  op->loc = with_items(p, VT_RAW_LOC_FUSED, items);
}

// ---- when all is read ---------------------------------------------------------------------------

enum { UNSEEN, OPEN, SETTLED }; // in i64

static void cut(vt_raw_attr *attr) {
  attr->kind = VT_RAW_LOC_UNKNOWN;
  attr->count = 0;
  attr->height = 1;
}

// Cuts what leads back to itself, and what is nested too deeply, out of the tree.
static void settle(vt_raw_attr *attr, int depth) {
  if (attr->i64 == SETTLED) return;
  if (attr->i64 == OPEN || depth > VT_TEXT_DEPTH) {
    cut(attr);
    return;
  }
  attr->i64 = OPEN;
  bool inner = attr->kind == VT_RAW_LOC_NAME || attr->kind == VT_RAW_LOC_CALL ||
               attr->kind == VT_RAW_LOC_FUSED;
  attr->height = 1;
  for (uint32_t i = 0; inner && i < attr->count; i++) {
    settle((vt_raw_attr *)(uintptr_t)attr->items[i], depth + 1);
    uint32_t below = attr->count ? attr->items[i]->height : 0; // it may just have been cut
    if (below + 1 > attr->height) attr->height = below + 1;
  }
  if (attr->height > VT_TEXT_DEPTH) cut(attr);
  attr->i64 = SETTLED;
}

void vt_parse_settle_locs(vt_parser *p) {
  for (size_t i = 0; i < p->locations.size; i++) settle(p->locations.entries[i].value, 0);
}
