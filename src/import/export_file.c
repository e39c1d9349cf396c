// SPDX-License-Identifier: Apache-2.0
// export_file.c - see export_file.h.
#include "import/export_file.h"

#include "import/bytecode.h"

// A number of `size` bytes, the low one first; 0 beyond the end.
static uint64_t number_at(vt_bytes bytes, uint64_t at, uint32_t size) {
  uint64_t number = 0;
  if (at > bytes.size || size > bytes.size - at) return 0;
  for (uint32_t i = size; i-- > 0;) number = number << 8 | bytes.data[at + i];
  return number;
}

// The first bytes name the root table, which begins with how far before it the offsets of its
// fields lie; a field holds how far behind it its bytes lie, after their count.
vt_bytes vt_export_program(vt_bytes file) {
  enum { PROGRAM = 13, HEAD = 4 };
  uint64_t table = number_at(file, 0, 4);
  uint64_t fields = table - (uint64_t)(int64_t)(int32_t)number_at(file, table, 4);
  uint64_t slot = HEAD + 2 * PROGRAM, field = number_at(file, fields + slot, 2);
  if (number_at(file, fields, 2) < slot + 2 || !field) return file;
  uint64_t list = table + field + number_at(file, table + field, 4);
  uint64_t size = number_at(file, list, 4), start = list + 4;
  if (start > file.size || size > file.size - start) return file;
  vt_bytes program = {file.data + start, (size_t)size};
  return vt_bytecode_is(program) ? program : file;
}
