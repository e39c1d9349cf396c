// SPDX-License-Identifier: Apache-2.0
// container.h - the sections of an MLIR bytecode file and the tables in them.
//
// In: the file. Out: strings, dialects, op names, and the location of each attribute, type,
// property and resource. Attributes and types are decoded on first use (attributes.c, types.c):
// those that nothing needs may be of unknown dialects.
#ifndef VT_IMPORT_CONTAINER_H
#define VT_IMPORT_CONTAINER_H

#include "base/array.h"
#include "import/bytecode.h"
#include "import/cursor.h"
#include "import/raw.h"

typedef enum vt_dialect {
  VT_DIALECT_OTHER,
  VT_DIALECT_BUILTIN,
  VT_DIALECT_VHLO,
  VT_DIALECT_SDY,
  VT_DIALECT_STABLEHLO
} vt_dialect;

typedef struct vt_entry {
  size_t at, end;
  uint32_t dialect; // index
  bool encoded;     // in the dialect's encoding, otherwise text
  bool busy;        // being decoded: seeing it again is a cycle
  void *value;      // vt_raw_attr or vt_raw_type once decoded
} vt_entry;

typedef struct vt_op_name {
  vt_string name; // with its dialect
  bool registered;
  const vt_vhlo_row *row; // NULL when unknown
} vt_op_name;

typedef struct vt_resource {
  vt_string key;
  uint8_t kind;
  size_t at, end;
} vt_resource;

typedef struct vt_container {
  vt_arena *arena;
  vt_bytes file;
  vt_op_find find;
  vt_status *failure;
  uint64_t version;
  const char *producer;
  size_t section_at[9], section_end[9]; // by id; an absent section has end 0
  uint32_t string_count, dialect_count, op_count, attr_count, type_count, property_count,
      resource_count;
  vt_string *strings, *dialect_names;
  vt_dialect *dialects;
  vt_op_name *ops;
  vt_entry *attrs, *types;
  vt_bytes *properties;
  vt_resource *resources; // of dialects
  int depth;              // of nested decoding
} vt_container;

enum { VT_BYTECODE_DEPTH = 128 }; // nesting of attributes and types, and of regions

// Fills `box` from `file`, its ops named by `find`; errors go to *box->failure.
void vt_container_read(vt_container *box, vt_arena *arena, vt_bytes file, vt_op_find find,
                       vt_status *failure);
vt_cursor vt_container_section(const vt_container *box, int id);
vt_cursor vt_container_range(const vt_container *box, size_t at, size_t end);
vt_string vt_container_string(vt_container *box, vt_cursor *c);

// The attribute or type whose index is at the cursor. Never NULL: a harmless one on error.
vt_raw_attr *vt_container_attr(vt_container *box, vt_cursor *c);
vt_raw_attr *vt_container_opt_attr(vt_container *box, vt_cursor *c); // NULL = absent
const vt_raw_type *vt_container_type(vt_container *box, vt_cursor *c);
const vt_raw_type *vt_container_type_at(vt_container *box, vt_cursor *c, uint32_t index);
vt_raw_attr *vt_container_attr_at(vt_container *box, vt_cursor *c, uint32_t index);

// One entry, its cursor after the dialect's code. Used by the decoders only.
void vt_decode_builtin_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr);
void vt_decode_vhlo_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr);
void vt_decode_sdy_attr(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_attr *attr);
void vt_decode_builtin_type(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_type *type);
// The text of an entry that is not encoded, without its final NUL.
vt_string vt_container_text(const vt_container *box, const vt_entry *entry);
void vt_decode_vhlo_type(vt_container *box, vt_cursor *c, uint64_t code, vt_raw_type *type);

#endif
