// SPDX-License-Identifier: Apache-2.0
// npz.c - see npz.h. A .npz is a zip archive of .npy files; the central directory at its end is
// authoritative. source: NumPy's format description (numpy.lib.format), PKWARE's APPNOTE (zip)
#include "base/check.h"
#include "base/npz.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"

#define BAD(...) return vt_error(VT_INVALID_ARGUMENT, "npz: " __VA_ARGS__)

static uint32_t get16(const uint8_t *p) {
  return (uint32_t)(p[0] | p[1] << 8);
}
static uint32_t get32(const uint8_t *p) {
  return get16(p) | get16(p + 2) << 16;
}
static uint64_t get64(const uint8_t *p) {
  return get32(p) | (uint64_t)get32(p + 4) << 32;
}

int64_t vt_npz_bytes(const vt_npz_array *array) {
  vt_assert(array->rank >= 0 && array->rank <= VT_NPZ_MAX_RANK && array->item_bytes >= 1);
  int64_t bytes = array->item_bytes;
  for (int32_t i = 0; i < array->rank; i++) bytes *= array->dims[i];
  return bytes;
}

// The value after 'key': in the header, which is a Python dictionary literal. NULL when absent.
static const char *header_value(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ' || *at == ':') at++;
  return at;
}

static vt_status parse_header(const char *header, vt_npz_array *out, bool *out_fortran) {
  const char *descr = header_value(header, "'descr'"),
             *order = header_value(header, "'fortran_order'");
  const char *shape = header_value(header, "'shape'");
  if (!descr || !order || !shape || *descr != '\'' || *shape != '(')
    BAD("header without descr, fortran_order or shape");
  char byte_order = descr[1], kind = descr[2];
  char *end;
  long bytes = strtol(descr + 3, &end, 10);
  if (byte_order == '>' || !strchr("<|=", byte_order) || !strchr("biufcV", kind) || !kind)
    BAD("element type %.8s is not supported", descr);
  if (end == descr + 3 || bytes < 1 || bytes > 64 || (kind != 'V' && (bytes & (bytes - 1))))
    BAD("element size %ld", bytes);
  out->kind = kind;
  out->item_bytes = (int32_t)bytes;
  *out_fortran = !strncmp(order, "True", 4);
  out->rank = 0;
  for (shape++; *shape && *shape != ')';) {
    long long size = strtoll(shape, &end, 10);
    if (end == shape || size < 0 || out->rank == VT_NPZ_MAX_RANK) BAD("bad shape");
    out->dims[out->rank++] = size;
    for (shape = end; *shape == ',' || *shape == ' ' || *shape == 'L';) shape++;
  }
  int64_t total = bytes;
  for (int32_t i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(total, out->dims[i] ? out->dims[i] : 1, &total) ||
        total > INT64_MAX / 4)
      BAD("array too large");
  return VT_OK;
}

// Fortran order to C order.
static void reorder(const vt_npz_array *array, const uint8_t *from) {
  int64_t n = vt_npz_bytes(array) / array->item_bytes, index[VT_NPZ_MAX_RANK] = {0};
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (int32_t d = array->rank; d-- > 0;) at = at * array->dims[d] + index[d];
    memcpy((uint8_t *)array->data + i * array->item_bytes, from + at * array->item_bytes,
           (size_t)array->item_bytes);
    for (int32_t d = array->rank; d-- > 0;) {
      if (++index[d] < array->dims[d]) break;
      index[d] = 0;
    }
  }
}

static vt_status parse_npy(vt_bytes bytes, const char *name, vt_arena *arena, vt_npz_array *out) {
  if (bytes.size < 10 || memcmp(bytes.data, "\x93NUMPY", 6)) BAD("%s is not a .npy file", name);
  size_t length_bytes = bytes.data[6] >= 2 ? 4 : 2, start = 8 + length_bytes;
  if (bytes.size < start) BAD("%s ends in its header", name);
  size_t length = length_bytes == 4 ? get32(bytes.data + 8) : get16(bytes.data + 8);
  if (length > bytes.size - start) BAD("%s ends in its header", name);
  const char *header = vt_arena_copy(arena, bytes.data + start, length);
  bool fortran = false;
  VT_TRY(vt_status_wrap(parse_header(header, out, &fortran), "%s", name));
  out->name = name;
  int64_t size = vt_npz_bytes(out);
  if ((uint64_t)size > bytes.size - start - length) BAD("%s holds too little data", name);
  out->data = vt_arena_try_push(arena, (size_t)size + 128, 64);
  if (!out->data) return vt_error_no_memory();
  const uint8_t *data = bytes.data + start + length;
  if (fortran && out->rank > 1)
    reorder(out, data);
  else if (size)
    memcpy(out->data, data, (size_t)size);
  return VT_OK;
}

static vt_status inflate_member(vt_bytes packed, uint8_t *out, size_t size) {
  z_stream z = {.next_in = (uint8_t *)(uintptr_t)packed.data,
                .avail_in = (uInt)packed.size,
                .next_out = out,
                .avail_out = (uInt)size};
  if (packed.size > UINT32_MAX || size > UINT32_MAX) BAD("a compressed member of more than 4 GiB");
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return vt_error_no_memory();
  int result = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  if (result != Z_STREAM_END || z.total_out != size) BAD("damaged compressed data");
  return VT_OK;
}

// Sizes above 4 GiB and offsets come from the zip64 extra field.
static void read_zip64(const uint8_t *extra, size_t size, uint64_t *unpacked, uint64_t *packed,
                       uint64_t *offset) {
  while (size >= 4) {
    size_t length = get16(extra + 2);
    if (length > size - 4) return;
    if (get16(extra) == 1) {
      const uint8_t *p = extra + 4, *end = p + length;
      uint64_t *fields[3] = {unpacked, packed, offset};
      for (int i = 0; i < 3; i++)
        if (*fields[i] == UINT32_MAX && end - p >= 8) *fields[i] = get64(p), p += 8;
    }
    extra += 4 + length;
    size -= 4 + length;
  }
}

static vt_status read_member(vt_bytes file, const uint8_t *entry, vt_arena *arena,
                             vt_npz_array *out) {
  uint64_t packed = get32(entry + 20), unpacked = get32(entry + 24), offset = get32(entry + 42);
  size_t name_size = get16(entry + 28);
  read_zip64(entry + 46 + name_size, get16(entry + 30), &unpacked, &packed, &offset);
  char *name = vt_arena_copy(arena, entry + 46, name_size);
  if (name_size > 4 && !strcmp(name + name_size - 4, ".npy")) name[name_size - 4] = 0;
  if (file.size < 30 || offset > file.size - 30 || get32(file.data + offset) != 0x04034b50)
    BAD("%s is not where the directory says", name);
  uint64_t start = offset + 30 + get16(file.data + offset + 26) + get16(file.data + offset + 28);
  if (start > file.size || packed > file.size - start)
    BAD("%s reaches past the end of the file", name);
  vt_bytes bytes = {file.data + start, (size_t)packed};
  uint32_t method = get16(entry + 10);
  if (method != 0 && method != 8) BAD("%s is compressed by method %u", name, method);
  if (method == 0) return parse_npy(bytes, name, arena, out);
  // Deflate expands by at most about 1032.
  if (unpacked / 1100 > packed + 1) BAD("%s claims an impossible size", name);
  uint8_t *whole = malloc(unpacked ? (size_t)unpacked : 1);
  if (!whole) return vt_error_no_memory();
  vt_status st = inflate_member(bytes, whole, (size_t)unpacked);
  if (!st) st = parse_npy((vt_bytes){whole, (size_t)unpacked}, name, arena, out);
  free(whole);
  return st;
}

vt_status vt_npz_parse(vt_bytes file, vt_arena *arena, vt_npz *out) {
  *out = (vt_npz){0};
  if (file.size >= 6 && !memcmp(file.data, "\x93NUMPY", 6)) {
    out->arrays = VT_NEW(arena, vt_npz_array);
    out->count = 1;
    return parse_npy(file, "", arena, out->arrays);
  }
  if (file.size < 22) BAD("too short for a .npz file");
  size_t end = file.size - 22, lowest = end > 65535 ? end - 65535 : 0;
  while (get32(file.data + end) != 0x06054b50) {
    if (end == lowest) BAD("not a .npz file: no zip directory");
    end--;
  }
  uint32_t count = get16(file.data + end + 10);
  uint64_t at = get32(file.data + end + 16);
  out->arrays = VT_NEW_ARRAY(arena, vt_npz_array, count);
  for (uint32_t i = 0; i < count; i++) {
    if (at > end || end - at < 46 || get32(file.data + at) != 0x02014b50)
      BAD("damaged zip directory");
    uint64_t size =
        46u + get16(file.data + at + 28) + get16(file.data + at + 30) + get16(file.data + at + 32);
    if (size > end - at) BAD("damaged zip directory");
    VT_TRY(read_member(file, file.data + at, arena, &out->arrays[out->count++]));
    at += size;
  }
  return VT_OK;
}

vt_status vt_npz_read(const char *path, vt_arena *arena, vt_npz *out) {
  vt_bytes bytes;
  VT_TRY(vt_file_map(path, &bytes));
  vt_status st = vt_npz_parse(bytes, arena, out);
  vt_file_unmap(&bytes);
  return vt_status_wrap(st, "%s", path);
}

const vt_npz_array *vt_npz_find(const vt_npz *npz, const char *name) {
  for (uint32_t i = 0; i < npz->count; i++)
    if (!strcmp(npz->arrays[i].name, name)) return &npz->arrays[i];
  return NULL;
}

// Header of a .npy: its size with the 10 bytes before is a multiple of 64.
static void put_header(vt_text *text, const vt_npz_array *array) {
  vt_text header = {0};
  vt_text_printf(&header, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                 array->item_bytes == 1 ? '|' : '<', array->kind, array->item_bytes);
  for (int32_t i = 0; i < array->rank; i++)
    vt_text_printf(&header, "%" PRId64 ",%s", array->dims[i], i + 1 < array->rank ? " " : "");
  vt_text_put(&header, "), }");
  while ((10 + header.size + 1) % 64) vt_text_put(&header, " ");
  vt_text_put(&header, "\n");
  vt_assert((10 + header.size) % 64 == 0 && header.size <= UINT16_MAX);
  uint8_t start[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)header.size, (uint8_t)(header.size >> 8)};
  vt_text_put_n(text, start, 10);
  vt_text_put_n(text, header.data, header.size);
  vt_text_free(&header);
}

static void put_le(vt_text *text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) vt_text_put_n(text, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

// The fields that local header and directory entry share, from "version needed" to the name length.
static void put_zip_fields(vt_text *text, uint32_t crc, uint64_t size, size_t name_size) {
  put_le(text, 20, 2), put_le(text, 0, 2), put_le(text, 0, 2), put_le(text, 0, 2),
      put_le(text, 0x21, 2);
  put_le(text, crc, 4), put_le(text, size, 4), put_le(text, size, 4), put_le(text, name_size, 2),
      put_le(text, 0, 2);
}

vt_status vt_npz_write(const char *path, const vt_npz_array *arrays, uint32_t count) {
  vt_text file = {0}, directory = {0};
  size_t path_size = strlen(path);
  bool single = count == 1 && path_size > 4 && !strcmp(path + path_size - 4, ".npy");
  for (uint32_t i = 0; i < count; i++) {
    vt_text member = {0}, name = {0};
    put_header(&member, &arrays[i]);
    vt_text_put_n(&member, arrays[i].data, (size_t)vt_npz_bytes(&arrays[i]));
    if (single) {
      vt_text_put_n(&file, member.data, member.size);
    } else {
      vt_text_printf(&name, "%s.npy", arrays[i].name);
      uint32_t crc = (uint32_t)crc32_z(0, (const uint8_t *)member.data, member.size);
      put_le(&directory, 0x02014b50, 4), put_le(&directory, 20, 2);
      put_zip_fields(&directory, crc, member.size, name.size);
      put_le(&directory, 0, 2), put_le(&directory, 0, 2), put_le(&directory, 0, 2),
          put_le(&directory, 0, 4);
      put_le(&directory, file.size, 4);
      vt_text_put_n(&directory, name.data, name.size);
      put_le(&file, 0x04034b50, 4);
      put_zip_fields(&file, crc, member.size, name.size);
      vt_text_put_n(&file, name.data, name.size);
      vt_text_put_n(&file, member.data, member.size);
    }
    vt_text_free(&member);
    vt_text_free(&name);
  }
  vt_status st = VT_OK;
  if (!single) {
    size_t start = file.size;
    if (start > UINT32_MAX) st = vt_error(VT_INVALID_ARGUMENT, "npz: %s would exceed 4 GiB", path);
    if (directory.size) vt_text_put_n(&file, directory.data, directory.size);
    put_le(&file, 0x06054b50, 4), put_le(&file, 0, 4), put_le(&file, count, 2),
        put_le(&file, count, 2);
    put_le(&file, directory.size, 4), put_le(&file, start, 4), put_le(&file, 0, 2);
  }
  if (!st) st = vt_file_write(path, file.data, file.size);
  vt_text_free(&file);
  vt_text_free(&directory);
  return st;
}
