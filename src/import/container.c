// SPDX-License-Identifier: Apache-2.0
// container.c - sections and tables. Layouts: MLIR's BytecodeFormat document, versions 0 to 6.
#include "import/container.h"

#include <inttypes.h>
#include <string.h>

enum {
  STRINGS,
  DIALECTS,
  ENTRIES,
  ENTRY_OFFSETS,
  IR,
  RESOURCES,
  RESOURCE_OFFSETS,
  DIALECT_VERSION,
  PROPERTIES
};

vt_cursor vt_container_range(const vt_container *box, size_t at, size_t end) {
  return (vt_cursor){box->file.data, at, end, box->failure};
}

vt_cursor vt_container_section(const vt_container *box, int id) {
  return vt_container_range(box, box->section_at[id], box->section_end[id]);
}

vt_string vt_container_string(vt_container *box, vt_cursor *c) {
  uint32_t i = vt_cursor_index(c, box->string_count, "string");
  return i < box->string_count ? box->strings[i] : (vt_string){"", 0};
}

static void read_sections(vt_container *box) {
  vt_cursor c = vt_container_range(box, 0, box->file.size);
  vt_bytes magic = vt_cursor_bytes(&c, 4);
  if (!magic.data || memcmp(magic.data, "ML\xEFR", 4)) {
    vt_cursor_fail(&c, "not MLIR bytecode");
    return;
  }
  box->version = vt_cursor_varint(&c);
  if (box->version > 6)
    vt_cursor_fail(&c, "bytecode version %" PRIu64 ": 0 to 6 are known", box->version);
  box->producer = vt_cursor_cstring(&c);
  while (vt_cursor_more(&c)) {
    uint8_t byte = vt_cursor_byte(&c);
    int id = byte & 0x7F;
    uint64_t length = vt_cursor_varint(&c);
    if (byte & 0x80) vt_cursor_align(&c, vt_cursor_varint(&c));
    if (id > PROPERTIES || id == DIALECT_VERSION || box->section_end[id]) {
      vt_cursor_fail(&c, "section %d is unknown or came twice", id);
      return;
    }
    box->section_at[id] = c.at;
    (void)vt_cursor_bytes(&c, length);
    box->section_end[id] = c.at;
  }
  static const char *const names[] = {"string", "dialect", "attribute and type", "offset", "IR"};
  for (int id = STRINGS; id <= IR; id++)
    if (!box->section_end[id]) vt_cursor_fail(&c, "no %s section", names[id]);
  if (!box->section_end[PROPERTIES] && box->version >= 5)
    vt_cursor_fail(&c, "no properties section");
  if (!box->section_end[RESOURCES] != !box->section_end[RESOURCE_OFFSETS])
    vt_cursor_fail(&c, "resources without their offsets");
}

// Sizes come last string first, each including its final NUL; the last string ends where the
// section ends.
static void read_strings(vt_container *box) {
  vt_cursor c = vt_container_section(box, STRINGS);
  uint32_t n = vt_cursor_count(&c, 1);
  box->strings = VT_NEW_ARRAY(box->arena, vt_string, n);
  size_t end = c.end;
  for (uint32_t i = n; i-- > 0;) {
    uint64_t size = vt_cursor_varint(&c);
    if (vt_cursor_failed(&c)) return;
    if (!size || c.at > end || size > end - c.at) {
      vt_cursor_fail(&c, "size %" PRIu64 " of string %" PRIu32, size, i);
      return;
    }
    end -= (size_t)size;
    if (c.file[end + size - 1]) {
      vt_cursor_fail(&c, "string %" PRIu32 " has no final NUL", i);
      return;
    }
    box->strings[i] = (vt_string){(const char *)c.file + end, (size_t)size - 1};
  }
  if (n && c.at > end) vt_cursor_fail(&c, "string sizes overlap the strings");
  box->string_count = n;
}

static vt_dialect dialect_of(vt_string name) {
  if (vt_string_is(name, "builtin")) return VT_DIALECT_BUILTIN;
  if (vt_string_is(name, "vhlo")) return VT_DIALECT_VHLO;
  if (vt_string_is(name, "sdy")) return VT_DIALECT_SDY;
  if (vt_string_is(name, "stablehlo")) return VT_DIALECT_STABLEHLO;
  return VT_DIALECT_OTHER;
}

static vt_string string_at(vt_container *box, vt_cursor *c, uint64_t index) {
  if (index < box->string_count) return box->strings[index];
  vt_cursor_fail(c, "string number %" PRIu64 " of %" PRIu32, index, box->string_count);
  return (vt_string){"", 0};
}

static void read_op_names(vt_container *box, vt_cursor *c) {
  size_t capacity = 0;
  if (box->version >= 4) (void)vt_cursor_varint(c); // their number, an allocation hint
  while (vt_cursor_more(c)) {
    uint32_t dialect = vt_cursor_index(c, box->dialect_count, "dialect");
    uint32_t n = vt_cursor_count(c, 1);
    for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
      bool registered = true;
      uint64_t index = box->version >= 5 ? vt_cursor_flagged(c, &registered) : vt_cursor_varint(c);
      vt_string name = string_at(box, c, index), prefix = box->dialect_names[dialect];
      char *full = vt_arena_push(box->arena, prefix.size + name.size + 2);
      memcpy(full, prefix.data, prefix.size);
      full[prefix.size] = '.';
      memcpy(full + prefix.size + 1, name.data, name.size);
      size_t size = prefix.size + name.size + 1;
      if (box->op_count == capacity)
        box->ops = vt_array_grow(box->arena, box->ops, box->op_count, &capacity, sizeof *box->ops);
      box->ops[box->op_count++] = (vt_op_name){{full, size}, registered, box->find(full, size)};
    }
  }
}

static void read_dialects(vt_container *box) {
  vt_cursor c = vt_container_section(box, DIALECTS);
  uint32_t n = vt_cursor_count(&c, 1);
  box->dialect_names = VT_NEW_ARRAY(box->arena, vt_string, n);
  box->dialects = VT_NEW_ARRAY(box->arena, vt_dialect, n);
  for (uint32_t i = 0; i < n && !vt_cursor_failed(&c); i++) {
    bool versioned = false;
    uint64_t index = box->version >= 1 ? vt_cursor_flagged(&c, &versioned) : vt_cursor_varint(&c);
    box->dialect_names[i] = string_at(box, &c, index);
    box->dialects[i] = dialect_of(box->dialect_names[i]);
    if (versioned) {
      uint8_t id = vt_cursor_byte(&c);
      uint64_t length = vt_cursor_varint(&c);
      if (id & 0x80) vt_cursor_align(&c, vt_cursor_varint(&c));
      if ((id & 0x7F) != DIALECT_VERSION)
        vt_cursor_fail(&c, "dialect version expected, section %u found", id);
      (void)vt_cursor_bytes(&c, length);
    }
  }
  box->dialect_count = vt_cursor_failed(&c) ? 0 : n;
  read_op_names(box, &c);
}

static void read_offsets(vt_container *box) {
  vt_cursor c = vt_container_section(box, ENTRY_OFFSETS), data = vt_container_section(box, ENTRIES);
  uint64_t attrs = vt_cursor_varint(&c), types = vt_cursor_varint(&c);
  size_t left = c.end - c.at;
  if (attrs > left || types > left || attrs + types > UINT32_MAX) {
    vt_cursor_fail(&c, "%" PRIu64 " attributes and %" PRIu64 " types in %zu bytes", attrs, types,
                   left);
    return;
  }
  box->attr_count = (uint32_t)attrs;
  box->type_count = (uint32_t)types;
  uint32_t total = box->attr_count + box->type_count;
  vt_entry *entries = VT_NEW_ARRAY(box->arena, vt_entry, total);
  box->attrs = entries;
  box->types = entries + box->attr_count;
  for (uint32_t i = 0; i < total && !vt_cursor_failed(&c);) {
    uint32_t dialect = vt_cursor_index(&c, box->dialect_count, "dialect");
    uint32_t n = vt_cursor_count(&c, 1), limit = i < box->attr_count ? box->attr_count : total;
    if (n > limit - i) {
      vt_cursor_fail(&c, "more attributes or types than announced");
      return;
    }
    for (uint32_t k = 0; k < n; k++, i++) {
      bool encoded;
      uint64_t size = vt_cursor_flagged(&c, &encoded);
      size_t at = data.at;
      (void)vt_cursor_bytes(&data, size);
      entries[i] = (vt_entry){at, data.at, dialect, encoded, false, NULL};
    }
  }
}

static void read_properties(vt_container *box) {
  if (!box->section_end[PROPERTIES]) return;
  vt_cursor c = vt_container_section(box, PROPERTIES);
  uint32_t n = vt_cursor_count(&c, 1);
  box->properties = VT_NEW_ARRAY(box->arena, vt_bytes, n);
  for (uint32_t i = 0; i < n && !vt_cursor_failed(&c); i++) box->properties[i] = vt_cursor_blob(&c);
  box->property_count = n;
}

// The entries of one group; `keep` makes them addressable by handle.
static void read_resource_group(vt_container *box, vt_cursor *c, vt_cursor *data, size_t *capacity,
                                bool keep) {
  uint32_t n = vt_cursor_count(c, 3);
  for (uint32_t i = 0; i < n && !vt_cursor_failed(c); i++) {
    vt_resource r = {.key = vt_container_string(box, c), .at = data->at};
    uint64_t size = vt_cursor_varint(c);
    r.kind = vt_cursor_byte(c);
    (void)vt_cursor_bytes(data, size);
    r.end = data->at;
    if (!keep) continue;
    if (box->resource_count == *capacity)
      box->resources =
          vt_array_grow(box->arena, box->resources, box->resource_count, capacity, sizeof r);
    box->resources[box->resource_count++] = r;
  }
}

static void read_resources(vt_container *box) {
  if (!box->section_end[RESOURCE_OFFSETS]) return;
  vt_cursor c = vt_container_section(box, RESOURCE_OFFSETS),
            data = vt_container_section(box, RESOURCES);
  size_t capacity = 0;
  uint32_t external = vt_cursor_count(&c, 2);
  for (uint32_t i = 0; i < external && !vt_cursor_failed(&c); i++) {
    (void)vt_container_string(box, &c);
    read_resource_group(box, &c, &data, &capacity, false);
  }
  while (vt_cursor_more(&c)) {
    (void)vt_cursor_index(&c, box->dialect_count, "dialect");
    read_resource_group(box, &c, &data, &capacity, true);
  }
}

vt_string vt_container_text(const vt_container *box, const vt_entry *entry) {
  size_t size = entry->end - entry->at;
  const char *text = (const char *)box->file.data + entry->at;
  while (size && !text[size - 1]) size--;
  return (vt_string){text, size};
}

void vt_container_read(vt_container *box, vt_arena *arena, vt_bytes file, vt_op_find find,
                       vt_status *failure) {
  *box = (vt_container){
      .arena = arena, .file = file, .find = find, .failure = failure, .producer = ""};
  read_sections(box);
  if (*failure) return;
  read_strings(box);
  if (*failure) return;
  read_dialects(box);
  if (*failure) return;
  read_offsets(box);
  read_properties(box);
  read_resources(box);
}
