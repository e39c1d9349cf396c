// SPDX-License-Identifier: Apache-2.0
// bytecode.c - the IR section: ops, regions and value numbers.
//
// Values are numbered per scope, an array that grows on entering a region and shrinks on leaving
// it. An op whose regions are marked isolated starts a new scope for them. Operands are indices
// into the whole array of the scope. A number may be used before its definition only in graph
// regions, which StableHLO does not have.
// Layouts: "IR Section" of MLIR's BytecodeFormat document.
#include "import/bytecode.h"

#include <inttypes.h>
#include <string.h>

#include "import/container.h"

typedef struct scope {
  vt_raw_value **values; // NULL until defined
  size_t size, capacity;
} scope;

typedef struct reader {
  vt_container box;
  vt_arena *arena;
  vt_status failure;
  uint64_t value_count; // over all regions: each takes at least a byte of the file
} reader;

enum {
  HAS_ATTRS = 0x01,
  HAS_RESULTS = 0x02,
  HAS_OPERANDS = 0x04,
  HAS_SUCCESSORS = 0x08,
  HAS_REGIONS = 0x10,
  HAS_USES = 0x20,
  HAS_PROPERTIES = 0x40,
  MASK_ALL = 0x7F,
};
enum { MAX_REGION_DEPTH = 96 };

static void read_region(reader *r, vt_cursor *c, scope *s, vt_raw_region *region);

// The recorded order of use lists is ignored.
static void skip_uses(vt_cursor *c, bool several) {
  uint32_t n = several ? vt_cursor_count(c, 2) : 1;
  for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
    bool pairs;
    if (several) (void)vt_cursor_varint(c);
    uint64_t count = vt_cursor_flagged(c, &pairs);
    if (count > c->end - c->at) vt_cursor_fail(c, "use list of %" PRIu64, count);
    for (uint64_t k = 0; k < count && !vt_cursor_failed(c); k++) (void)vt_cursor_varint(c);
  }
}

static void define(vt_cursor *c, scope *s, size_t *next, size_t end, vt_raw_value *value) {
  if (*next >= end) {
    vt_cursor_fail(c, "more values than the region announced");
    return;
  }
  s->values[(*next)++] = value;
}

static void add_attr(reader *r, vt_raw_op *op, size_t *capacity, vt_string name,
                     const vt_raw_attr *value) {
  size_t size = op->attr_count;
  if (size == *capacity)
    op->attrs = vt_array_grow(r->arena, op->attrs, size, capacity, sizeof *op->attrs);
  op->attrs[op->attr_count++] = (vt_raw_named){name, value};
}

static void add_dict(reader *r, vt_cursor *c, vt_raw_op *op, size_t *capacity,
                     const vt_raw_attr *dict) {
  if (dict->kind != VT_RAW_DICT) vt_cursor_fail(c, "dictionary of attributes expected");
  for (uint32_t i = 0; i < dict->count && dict->kind == VT_RAW_DICT; i++)
    add_attr(r, op, capacity, dict->names[i], dict->items[i]);
}

// Properties hold the attributes of the row in its order, without names.
static void read_properties(reader *r, vt_cursor *c, vt_raw_op *op, size_t *capacity) {
  uint32_t index = vt_cursor_index(c, r->box.property_count, "properties");
  if (vt_cursor_failed(c)) return;
  vt_bytes bytes = r->box.properties[index];
  size_t at = (size_t)(bytes.data - r->box.file.data);
  vt_cursor p = vt_container_range(&r->box, at, at + bytes.size);
  for (const char *const *name = op->row->attrs; *name; name++) {
    size_t size = strlen(*name);
    bool optional = (*name)[size - 1] == '?';
    const vt_raw_attr *value =
        optional ? vt_container_opt_attr(&r->box, &p) : vt_container_attr(&r->box, &p);
    if (value) add_attr(r, op, capacity, (vt_string){*name, size - optional}, value);
  }
  if (p.at != p.end && op->row->attrs[0])
    vt_cursor_fail(&p, "%s: bytes left over in its properties", op->row->name);
}

static void read_attrs(reader *r, vt_cursor *c, uint8_t mask, const vt_op_name *name,
                       vt_raw_op *op) {
  size_t capacity = 0;
  vt_raw_attr *discardable = mask & HAS_ATTRS ? vt_container_attr(&r->box, c) : NULL;
  if (mask & HAS_PROPERTIES) {
    if (name->registered)
      read_properties(r, c, op, &capacity);
    else
      add_dict(r, c, op, &capacity, vt_container_attr(&r->box, c));
  }
  if (discardable) add_dict(r, c, op, &capacity, discardable);
}

static void read_results(reader *r, vt_cursor *c, vt_raw_op *op) {
  op->result_count = vt_cursor_count(c, 1);
  op->results = VT_NEW_ARRAY(r->arena, vt_raw_value, op->result_count);
  for (uint32_t i = 0; i < op->result_count; i++)
    op->results[i] =
        (vt_raw_value){.type = vt_container_type(&r->box, c), .region = op->region, .op = op};
}

static void read_operands(reader *r, vt_cursor *c, const scope *s, vt_raw_op *op) {
  op->operand_count = vt_cursor_count(c, 1);
  op->operands = VT_NEW_ARRAY(r->arena, vt_raw_value *, op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    uint64_t index = vt_cursor_varint(c);
    if (vt_cursor_failed(c)) return;
    if (index >= s->size || !s->values[index]) {
      vt_cursor_fail(c, "%s uses value %" PRIu64 " before its definition", op->row->name, index);
      return;
    }
    op->operands[i] = s->values[index];
  }
}

static void read_regions(reader *r, vt_cursor *c, scope *s, vt_raw_op *op) {
  bool isolated;
  uint64_t n = vt_cursor_flagged(c, &isolated);
  if (n > c->end - c->at) {
    vt_cursor_fail(c, "%" PRIu64 " regions", n);
    return;
  }
  op->region_count = (uint32_t)n;
  op->regions = VT_NEW_ARRAY(r->arena, vt_raw_region *, n);
  scope own = {0};
  vt_cursor inner = *c;
  if (isolated && r->box.version >= 2) { // wrapped in its own section
    uint8_t id = vt_cursor_byte(c);
    uint64_t length = vt_cursor_varint(c);
    if (id & 0x80) vt_cursor_align(c, vt_cursor_varint(c));
    if ((id & 0x7F) != 4) vt_cursor_fail(c, "IR section expected for isolated regions");
    inner.at = c->at;
    (void)vt_cursor_bytes(c, length);
    inner.end = c->at;
  }
  for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
    vt_raw_region *region = op->regions[i] = VT_NEW(r->arena, vt_raw_region);
    region->owner = op;
    region->depth = op->region ? op->region->depth + 1 : 0;
    if (region->depth > MAX_REGION_DEPTH)
      vt_cursor_fail(c, "regions are nested too deeply");
    else
      read_region(r, &inner, isolated ? &own : s, region);
  }
  if (isolated && r->box.version >= 2) {
    if (inner.at != inner.end) vt_cursor_fail(&inner, "bytes left over after isolated regions");
  } else {
    c->at = inner.at;
  }
}

static vt_raw_op *read_op(reader *r, vt_cursor *c, scope *s, vt_raw_region *region, size_t *next,
                          size_t end) {
  uint32_t number = vt_cursor_index(c, r->box.op_count, "op name");
  vt_raw_op *op = VT_NEW(r->arena, vt_raw_op);
  if (vt_cursor_failed(c)) return op;
  const vt_op_name *name = &r->box.ops[number];
  if (!name->row) {
    if (!r->failure)
      r->failure =
          vt_error(VT_UNIMPLEMENTED, "bytecode offset %zu: unknown op %.*s (program written by %s)",
                   c->at, (int)name->name.size, name->name.data, r->box.producer);
    return op;
  }
  op->row = name->row;
  op->region = region;
  uint8_t mask = vt_cursor_byte(c);
  if (mask & ~MASK_ALL || mask & HAS_SUCCESSORS)
    vt_cursor_fail(c, "%s has successors or unknown parts", op->row->name);
  op->loc = vt_container_attr(&r->box, c);
  read_attrs(r, c, mask, name, op);
  if (mask & HAS_RESULTS) read_results(r, c, op);
  for (uint32_t i = 0; i < op->result_count && !vt_cursor_failed(c); i++)
    define(c, s, next, end, &op->results[i]);
  if (mask & HAS_OPERANDS) read_operands(r, c, s, op);
  if (mask & HAS_USES) skip_uses(c, op->result_count > 1);
  if (mask & HAS_REGIONS) read_regions(r, c, s, op);
  return op;
}

static void read_args(reader *r, vt_cursor *c, scope *s, vt_raw_region *region, size_t *next,
                      size_t end) {
  uint32_t n = vt_cursor_count(c, 1);
  region->arg_count = n;
  region->args = VT_NEW_ARRAY(r->arena, vt_raw_value, n);
  for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
    bool has_loc = true;
    uint64_t index = r->box.version >= 4 ? vt_cursor_flagged(c, &has_loc) : vt_cursor_varint(c);
    if (index >= r->box.type_count) {
      vt_cursor_fail(c, "type number %" PRIu64 " of %" PRIu32, index, r->box.type_count);
      return;
    }
    region->args[i] =
        (vt_raw_value){.type = vt_container_type_at(&r->box, c, (uint32_t)index), .region = region};
    if (has_loc) region->args[i].loc = vt_container_attr(&r->box, c);
    define(c, s, next, end, &region->args[i]);
  }
  if (r->box.version >= 3 && vt_cursor_byte(c)) skip_uses(c, n > 1);
}

static void read_block(reader *r, vt_cursor *c, scope *s, vt_raw_region *region, size_t *next,
                       size_t end) {
  bool has_args;
  uint64_t ops = vt_cursor_flagged(c, &has_args);
  if (has_args) read_args(r, c, s, region, next, end);
  for (uint64_t i = 0; i < ops && !vt_cursor_failed(c); i++) {
    vt_raw_op *op = read_op(r, c, s, region, next, end);
    if (region->last)
      region->last->next = op;
    else
      region->first = op;
    region->last = op;
  }
}

static void grow_scope(reader *r, scope *s, size_t size) {
  while (s->capacity < size)
    s->values = vt_array_grow(r->arena, s->values, s->size, &s->capacity, sizeof *s->values);
  for (size_t i = s->size; i < size; i++) s->values[i] = NULL;
  s->size = size;
}

static void read_region(reader *r, vt_cursor *c, scope *s, vt_raw_region *region) {
  uint64_t blocks = vt_cursor_varint(c);
  region->empty = !blocks;
  if (!blocks) return;
  if (blocks > 1) {
    vt_cursor_fail(c, "region of %" PRIu64 " blocks: one is supported", blocks);
    return;
  }
  uint64_t values = vt_cursor_varint(c);
  // Each value takes at least a byte of type; the region's byte count is unknown, so the bytes left
  // are the bound.
  r->value_count += values;
  if (values > c->end - c->at || r->value_count > r->box.file.size) {
    vt_cursor_fail(c, "region of %" PRIu64 " values", values);
    return;
  }
  size_t base = s->size, next = base;
  grow_scope(r, s, base + (size_t)values);
  read_block(r, c, s, region, &next, s->size);
  if (next != s->size) vt_cursor_fail(c, "region defines fewer values than announced");
  s->size = base;
}

bool vt_bytecode_is(vt_bytes program) {
  return program.size >= 4 && !memcmp(program.data, "ML\xEFR", 4);
}

vt_status vt_bytecode_read(vt_bytes program, vt_op_find find, vt_arena *arena,
                           vt_raw_module *out_module) {
  reader r = {.arena = arena};
  vt_container_read(&r.box, arena, program, find, &r.failure);
  if (r.failure) return r.failure;
  vt_cursor c = vt_container_section(&r.box, 4);
  bool has_args;
  uint64_t ops = vt_cursor_flagged(&c, &has_args);
  if (ops != 1 || has_args) vt_cursor_fail(&c, "the file does not hold exactly one module");
  scope top = {0};
  size_t next = 0;
  *out_module = (vt_raw_module){.producer = r.box.producer, .program_bytes = program.size};
  if (!r.failure) out_module->op = read_op(&r, &c, &top, NULL, &next, 0);
  if (c.at != c.end) vt_cursor_fail(&c, "bytes left over after the module");
  return r.failure;
}
