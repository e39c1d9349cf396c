// SPDX-License-Identifier: Apache-2.0
// hlo_read_value.c - shapes, constants and attributes in HLO text.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo_lexer.h"
#include "ir/number.h"

// Shapes ------------------------------------------------------------------------------------------

bool vt_hlo_peek_shape(vt_hlo_lexer *l) {
  vt_hlo_lexer ahead = *l;
  if (vt_hlo_peek(&ahead, '(')) return true;
  if (vt_hlo_peek(&ahead, '%')) return false;
  (void)vt_hlo_name(&ahead);
  return ahead.at < ahead.end && *ahead.at == '[';
}

// "{1,0:T(8,128)S(5)}" after the dimensions: the order, and of the rest whether there are tiles and
// in which memory it lies.
static void read_layout(vt_hlo_lexer *l, vt_hlo_shape *shape) {
  enum { HOST_SPACE = 5 };
  vt_hlo_ints order = {0};
  if (l->at >= l->end || *l->at != '{') return; // no space comes before it
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, '}') && !vt_hlo_peek(l, ':')) {
    vt_array_push_in(l->r->arena, &order, vt_hlo_int(l));
    if (!vt_hlo_take(l, ",")) break;
  }
  if (vt_hlo_take(l, ":")) {
    const char *at = l->at;
    while (l->at < l->end && *l->at != '}') l->at++;
    for (; at < l->at; at++) {
      bool opens = l->at - at > 2 && at[1] == '(';
      if (opens && *at == 'T') shape->tiled = true;
      if (opens && *at == 'S') shape->host = strtol(at + 2, NULL, 10) == HOST_SPACE;
    }
  }
  vt_hlo_expect(l, "}");
  if (vt_hlo_ok(l))
    vt_hlo_fail_with(l, vt_hlo_check_layout(l->r, shape->type, (uint32_t)order.size, order.data,
                                            &shape->layout));
}

static const vt_hlo_shape *read_array(vt_hlo_lexer *l) {
  vt_hlo_shape shape = {0};
  vt_hlo_ints dims = {0};
  vt_string name = vt_hlo_name(l);
  vt_dtype dtype = vt_hlo_dtype_named(name);
  if (vt_hlo_ok(l) && !dtype)
    vt_hlo_fail(l, VT_UNIMPLEMENTED, "element type '%.*s' is not supported",
                (int)(name.size < 80 ? name.size : 80), name.data);
  vt_hlo_expect(l, "[");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, ']')) {
    bool unknown = vt_hlo_take(l, "?");
    shape.dynamic = vt_hlo_take(l, "<=") || unknown || shape.dynamic;
    vt_array_push_in(l->r->arena, &dims, unknown ? 0 : vt_hlo_int(l));
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "]");
  if (!vt_hlo_ok(l)) return NULL;
  vt_hlo_fail_with(l, vt_hlo_check_type(l->r, dtype, (uint32_t)dims.size, dims.data, &shape.type));
  if (vt_hlo_ok(l)) read_layout(l, &shape);
  return vt_hlo_new_shape(l->r, shape);
}

static const vt_hlo_shape *read_nested(vt_hlo_lexer *l, int depth) {
  if (!vt_hlo_take(l, "(")) return read_array(l);
  VT_ARRAY(const vt_hlo_shape *) parts = {0};
  if (depth > VT_HLO_MAX_DEPTH) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "tuples are too deep");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, ')')) {
    const vt_hlo_shape *part = read_nested(l, depth + 1);
    vt_array_push_in(l->r->arena, &parts, part);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, ")");
  return vt_hlo_new_shape(
      l->r, (vt_hlo_shape){.tuple = true, .count = (uint32_t)parts.size, .parts = parts.data});
}

// Never NULL unless failed.
const vt_hlo_shape *vt_hlo_read_shape(vt_hlo_lexer *l) {
  const vt_hlo_shape *shape = read_nested(l, 0);
  return vt_hlo_ok(l) ? shape : NULL;
}

// Constants ---------------------------------------------------------------------------------------

enum { MAX_NUMBER = 80 };

// The characters of one number, copied so that they end.
static bool number_text(vt_hlo_lexer *l, char *out) {
  size_t n = 0;
  vt_hlo_space(l);
  for (; l->at < l->end && n < MAX_NUMBER; l->at++) {
    char c = *l->at;
    bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                c == '.' || c == '+' || c == '-';
    if (!part) break;
    out[n++] = c;
  }
  out[n] = 0;
  if (n == 3 || n == 4) { // nan(0x400001)
    if (!strcmp(out + n - 3, "nan") && l->at < l->end && *l->at == '(') (void)vt_hlo_balanced(l);
  }
  if (n == 0 || n == MAX_NUMBER) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a number was expected");
  return vt_hlo_ok(l);
}

static void store_float(vt_dtype dtype, const char *text, uint8_t *data, char **end) {
  if (dtype == VT_F64) {
    double value = strtod(text, end);
    memcpy(data, &value, sizeof value);
  } else {
    float value = strtof(text, end);
    if (dtype == VT_F32)
      memcpy(data, &value, sizeof value);
    else
      vt_float_narrow(dtype, 1, &value, data);
  }
}

static void read_number(vt_hlo_lexer *l, vt_dtype dtype, uint8_t *data) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  char text[MAX_NUMBER + 1], *end = text;
  if (!number_text(l, text)) return;
  bool fits = true;
  errno = 0;
  if (info->kind == VT_KIND_FLOAT || info->kind == VT_KIND_COMPLEX) {
    store_float(dtype == VT_C64 ? VT_F32 : dtype == VT_C128 ? VT_F64 : dtype, text, data, &end);
  } else if (!strcmp(text, "true") || !strcmp(text, "false")) {
    fits = info->kind == VT_KIND_BOOL;
    data[0] = text[0] == 't';
    end = text + strlen(text);
  } else if (info->kind == VT_KIND_SIGNED) {
    long long value = strtoll(text, &end, 10);
    fits = !errno && (info->bits == 64 ||
                      (value >= -(1LL << (info->bits - 1)) && value < 1LL << (info->bits - 1)));
    memcpy(data, &value, info->bytes);
  } else {
    unsigned long long value = strtoull(text, &end, 10);
    fits = !errno && text[0] != '-' && (info->bits == 64 || value < 1ULL << info->bits);
    memcpy(data, &value, info->bytes);
  }
  if (*end || end == text || !fits)
    vt_hlo_fail(l, VT_INVALID_ARGUMENT, "'%s' is no element of %s", text,
                vt_hlo_dtype_get(dtype)->text);
}

static void read_element(vt_hlo_lexer *l, vt_dtype dtype, uint8_t *data) {
  if (vt_dtype_is_complex(dtype) && vt_hlo_take(l, "(")) {
    read_number(l, dtype, data);
    vt_hlo_expect(l, ",");
    read_number(l, dtype, data + vt_dtype_bytes(dtype) / 2);
    vt_hlo_expect(l, ")");
  } else {
    read_number(l, dtype, data);
  }
}

static void read_elements(vt_hlo_lexer *l, vt_type type, int32_t depth, uint8_t **data) {
  if (depth == type.rank) {
    read_element(l, type.dtype, *data);
    *data += vt_dtype_bytes(type.dtype);
    return;
  }
  vt_hlo_expect(l, "{");
  for (int64_t i = 0; i < type.dims[depth] && vt_hlo_ok(l); i++) {
    if (i) vt_hlo_expect(l, ",");
    read_elements(l, type, depth + 1, data);
  }
  vt_hlo_expect(l, "}");
}

const vt_literal *vt_hlo_read_literal(vt_hlo_lexer *l, vt_type type) {
  int64_t count = vt_type_elements(type);
  vt_literal *literal = VT_NEW(l->r->arena, vt_literal);
  vt_hlo_lexer ahead = *l;
  *literal = (vt_literal){.type = type, .data = ""};
  if (type.dtype == VT_TOKEN) vt_hlo_fail(l, VT_UNIMPLEMENTED, "a constant that is no array");
  if (vt_hlo_take(&ahead, "{") && vt_hlo_take(&ahead, "..."))
    vt_hlo_fail(l, VT_INVALID_ARGUMENT,
                "the text leaves out the elements of the constant: print it with all of them");
  // Each element takes a character, and an empty array a bracket for each row.
  if (count > l->end - l->at)
    vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the constant has too few elements");
  if (!vt_hlo_ok(l)) return literal;
  uint8_t *data =
      vt_arena_push_aligned(l->r->arena, (size_t)count * vt_dtype_bytes(type.dtype) + 16, 64);
  literal->data = data;
  if (count || type.rank == 0)
    read_elements(l, type, 0, &data);
  else
    (void)vt_hlo_balanced(l);
  return literal;
}

// Attributes --------------------------------------------------------------------------------------

// {{0,1},{2,3}}
static void read_rows(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  VT_ARRAY(vt_hlo_row) rows = {0};
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && vt_hlo_peek(l, '{')) {
    vt_hlo_ints ints = {0};
    vt_hlo_read_ints(l, &ints);
    vt_hlo_row row = {(uint32_t)ints.size, ints.data};
    vt_array_push_in(l->r->arena, &rows, row);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
  if (vt_hlo_ok(l))
    vt_hlo_fail_with(l, vt_hlo_set_rows(l->r, attr, (uint32_t)rows.size, rows.data));
}

// "1,2" up to a bracket, after the opening one.
static void read_list(vt_hlo_lexer *l, const char *close, vt_hlo_ints *out) {
  do {
    int64_t value = vt_hlo_int(l);
    vt_array_push_in(l->r->arena, out, value);
  } while (vt_hlo_ok(l) && vt_hlo_take(l, ","));
  vt_hlo_expect(l, close);
}

// "1,0)", or the dimensions of 0 .. n-1 and their order: "[4,2]T(1,0))"
static void read_device_ids(vt_hlo_lexer *l, vt_hlo_mesh_groups *groups) {
  if (!vt_hlo_take(l, "[")) {
    read_list(l, ")", &groups->ids);
    return;
  }
  read_list(l, "]", &groups->dims);
  if (vt_hlo_take(l, "T")) {
    vt_hlo_expect(l, "(");
    read_list(l, ")", &groups->order);
  }
  vt_hlo_expect(l, ")");
}

static uint32_t find_axis(vt_hlo_lexer *l, const vt_hlo_mesh_groups *groups, vt_string name) {
  for (uint32_t i = 0; i < groups->mesh.size; i++)
    if (!strcmp(name.data, groups->mesh.data[i].name)) return i;
  vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the mesh has no axis '%.*s'", (int)name.size, name.data);
  return 0;
}

// ['x'=2,'y'=4], device_ids=(...) {'y','x':(1)2}
static void read_mesh_groups(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_mesh_groups groups = {0};
  vt_hlo_expect(l, "[");
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "]")) {
    vt_mesh_axis axis = {vt_hlo_kept(l->r, vt_hlo_quoted(l)), 0};
    vt_hlo_expect(l, "=");
    axis.size = vt_hlo_int(l);
    vt_array_push_in(l->r->arena, &groups.mesh, axis);
    if (!vt_hlo_peek(l, ']')) vt_hlo_expect(l, ",");
  }
  if (vt_hlo_take(l, ",")) {
    vt_hlo_expect(l, "device_ids");
    vt_hlo_expect(l, "=");
    vt_hlo_expect(l, "(");
    read_device_ids(l, &groups);
  }
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "}")) {
    vt_axis_ref ref = {find_axis(l, &groups, vt_hlo_quoted(l)), 1, 0};
    if (!vt_hlo_ok(l)) return;
    ref.size = groups.mesh.data[ref.axis].size;
    if (vt_hlo_take(l, ":")) {
      vt_hlo_expect(l, "(");
      ref.pre_size = vt_hlo_int(l);
      vt_hlo_expect(l, ")");
      ref.size = vt_hlo_int(l);
    }
    vt_array_push_in(l->r->arena, &groups.axes, ref);
    if (!vt_hlo_peek(l, '}')) vt_hlo_expect(l, ",");
  }
  if (vt_hlo_ok(l)) vt_hlo_fail_with(l, vt_hlo_set_mesh_rows(l->r, attr, &groups));
}

// [2,4]<=[4,2]T(1,0), axes of a mesh, or rows.
static void read_groups(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_ints shape = {0}, dims = {0}, order = {0};
  if (vt_hlo_take(l, "mesh")) {
    read_mesh_groups(l, attr);
    return;
  }
  if (!vt_hlo_take(l, "[")) {
    read_rows(l, attr);
    return;
  }
  read_list(l, "]", &shape);
  vt_hlo_expect(l, "<=");
  vt_hlo_expect(l, "[");
  read_list(l, "]", &dims);
  if (vt_hlo_take(l, "T")) {
    vt_hlo_expect(l, "(");
    read_list(l, ")", &order);
    if (order.size != dims.size) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "dimensions are missing");
  }
  if (shape.size != 2) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "groups are rows of devices");
  if (vt_hlo_ok(l))
    vt_hlo_fail_with(l, vt_hlo_set_iota_rows(l->r, attr, shape.data[0], shape.data[1],
                                             (uint32_t)dims.size, dims.data,
                                             order.size ? order.data : NULL));
}

// {[0:2], [1:9:2]}
static void read_slice(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && vt_hlo_take(l, "[")) {
    int64_t row[3] = {0, 0, 1};
    row[0] = vt_hlo_int(l);
    vt_hlo_expect(l, ":");
    row[1] = vt_hlo_int(l);
    if (vt_hlo_take(l, ":")) row[2] = vt_hlo_int(l);
    vt_hlo_expect(l, "]");
    vt_hlo_push_ints(l->r, attr, 3, row);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
  vt_hlo_push_ints(l->r, attr, 0, NULL);
}

// 0_1x2_3_1: up to `width` numbers for each dimension.
static void read_crossed(vt_hlo_lexer *l, uint32_t width, vt_hlo_ints *out) {
  do {
    int64_t row[3] = {0};
    for (uint32_t i = 0; i < width; i++) {
      if (i && !vt_hlo_take(l, "_")) break;
      row[i] = vt_hlo_int(l);
    }
    for (uint32_t i = 0; i < width; i++) vt_array_push_in(l->r->arena, out, row[i]);
  } while (vt_hlo_ok(l) && vt_hlo_take(l, "x"));
}

static void read_padding(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_ints ints = {0};
  vt_hlo_space(l);
  bool some = l->at < l->end && (*l->at == '-' || (*l->at >= '0' && *l->at <= '9'));
  if (some) read_crossed(l, 3, &ints); // of a scalar: nothing
  vt_hlo_push_ints(l->r, attr, (uint32_t)ints.size, ints.data);
}

// {size=3x3 stride=2x2 pad=1_1x1_1}, as rows of seven numbers.
static void read_window(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  static const struct {
    const char *name;
    uint32_t at, width;
  } parts[] = {{"size", 0, 1},       {"stride", 1, 1},     {"pad", 2, 2},
               {"lhs_dilate", 5, 1}, {"rhs_dilate", 4, 1}, {"rhs_reversal", 6, 1}};
  static const int64_t usual[7] = {1, 1, 0, 0, 1, 1, 0};
  enum { PARTS = sizeof parts / sizeof *parts };
  vt_hlo_ints lists[PARTS] = {{0}};
  size_t rank = 0;
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_take(l, "}")) {
    vt_string name = vt_hlo_name(l);
    uint32_t part = 0;
    while (part < PARTS && (strlen(parts[part].name) != name.size ||
                            memcmp(parts[part].name, name.data, name.size) != 0))
      part++;
    vt_hlo_expect(l, "=");
    if (part == PARTS || lists[part].size)
      vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the window has an unknown part");
    else
      read_crossed(l, parts[part].width, &lists[part]);
    if (part < PARTS) rank = lists[part].size / parts[part].width;
  }
  for (uint32_t p = 0; p < PARTS && vt_hlo_ok(l); p++)
    if (lists[p].size && lists[p].size / parts[p].width != rank)
      vt_hlo_fail(l, VT_INVALID_ARGUMENT, "the window's parts have different lengths");
  for (size_t d = 0; d < rank && vt_hlo_ok(l); d++) {
    int64_t row[7];
    memcpy(row, usual, sizeof row);
    for (uint32_t p = 0; p < PARTS; p++)
      for (uint32_t k = 0; k < parts[p].width && lists[p].size; k++)
        row[parts[p].at + k] = lists[p].data[d * parts[p].width + k];
    vt_hlo_push_ints(l->r, attr, 7, row);
  }
  vt_hlo_push_ints(l->r, attr, 0, NULL);
}

// b01f_01io->b01f: of each side the dimensions of b and f, i and o, then of 0, 1, ...
static void read_labels(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  static const char letters[3][2] = {{'b', 'f'}, {'i', 'o'}, {'b', 'f'}};
  static const char *const before[3] = {"", "_", "->"};
  int64_t rank = -1;
  vt_hlo_space(l);
  for (int s = 0; s < 3 && vt_hlo_ok(l); s++) {
    int64_t side[VT_MAX_RANK + 2], d = 0;
    if (*before[s]) vt_hlo_expect(l, before[s]);
    for (int i = 0; i < VT_MAX_RANK + 2; i++) side[i] = -1;
    for (; vt_hlo_ok(l) && l->at < l->end; l->at++, d++) {
      char c = *l->at;
      int place = c == letters[s][0]     ? 0
                  : c == letters[s][1]   ? 1
                  : c >= '0' && c <= '9' ? c - '0' + 2
                                         : -1;
      if (place < 0) break;
      if (side[place] >= 0) {
        vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a label is there twice");
        break;
      }
      side[place] = d;
    }
    if (s == 0) rank = d;
    for (int64_t i = 0; i < rank && vt_hlo_ok(l); i++)
      if (side[i] < 0 || d != rank) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "a label is missing");
    if (vt_hlo_ok(l) && rank < 2) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "labels are missing");
    if (vt_hlo_ok(l)) vt_hlo_push_ints(l->r, attr, (uint32_t)rank, side);
  }
}

static void read_word(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_string word = vt_hlo_name(l);
  attr->string = word;
  if (vt_hlo_field_get(attr->field)->form != VT_HLO_ENUM) return;
  attr->i64 = vt_hlo_word_value(attr->field, word);
  if (attr->i64 < 0)
    vt_hlo_fail(l, VT_UNIMPLEMENTED, "%s '%.*s' is not known", vt_hlo_field_get(attr->field)->text,
                (int)(word.size < 80 ? word.size : 80), word.data);
}

static void read_words(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, '}')) {
    int64_t value = vt_hlo_word_value(attr->field, vt_hlo_name(l));
    if (value < 0) vt_hlo_fail(l, VT_UNIMPLEMENTED, "this precision is not known");
    vt_hlo_push_ints(l->r, attr, 1, &value);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
}

static void read_flag(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  attr->i64 = vt_hlo_take(l, "true");
  if (!attr->i64) vt_hlo_expect(l, "false");
}

// { {0}: (1, {}) }: rows of the output, -1 = the only one, and the operand. It is a hint.
static void read_aliases(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && vt_hlo_peek(l, '{')) {
    vt_hlo_ints output = {0}, operand = {0};
    int64_t row[2] = {-1, 0};
    vt_hlo_read_ints(l, &output);
    vt_hlo_expect(l, ":");
    vt_hlo_expect(l, "(");
    row[1] = vt_hlo_int(l);
    if (vt_hlo_take(l, ",")) vt_hlo_read_ints(l, &operand);
    while (vt_hlo_take(l, ",")) (void)vt_hlo_name(l); // must-alias
    vt_hlo_expect(l, ")");
    if (output.size) row[0] = output.data[0];
    if (output.size < 2 && !operand.size) vt_hlo_push_ints(l->r, attr, 2, row);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
}

static vt_string read_text(vt_hlo_lexer *l) {
  return vt_hlo_peek(l, '{') ? vt_hlo_balanced(l) : vt_hlo_quoted(l);
}

const vt_dict_value *vt_hlo_read_dict(vt_hlo_lexer *l) {
  vt_dict_value *dict = vt_hlo_new_dict(l->r);
  vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !vt_hlo_peek(l, '}')) {
    vt_string name = vt_hlo_peek(l, '"') ? vt_hlo_quoted(l) : vt_hlo_name(l);
    vt_hlo_expect(l, "=");
    vt_string value = vt_hlo_ok(l) ? read_text(l) : name;
    if (vt_hlo_ok(l)) vt_hlo_push_entry(l->r, dict, name, value);
    if (!vt_hlo_take(l, ",")) break;
  }
  vt_hlo_expect(l, "}");
  return dict;
}

static void read_shapes(vt_hlo_lexer *l, bool list, vt_hlo_attr *attr) {
  VT_ARRAY(const vt_hlo_shape *) shapes = {0};
  if (list) vt_hlo_expect(l, "{");
  while (vt_hlo_ok(l) && !(list && vt_hlo_peek(l, '}'))) {
    const vt_hlo_shape *shape = vt_hlo_read_shape(l);
    vt_array_push_in(l->r->arena, &shapes, shape);
    if (!list || !vt_hlo_take(l, ",")) break;
  }
  if (list) vt_hlo_expect(l, "}");
  attr->count = vt_hlo_ok(l) ? (uint32_t)shapes.size : 0;
  attr->shapes = shapes.data;
}

static void read_f32(vt_hlo_lexer *l, vt_hlo_attr *attr) {
  char text[MAX_NUMBER + 1], *end;
  if (!number_text(l, text)) return;
  attr->f64 = (double)strtof(text, &end);
  if (*end) vt_hlo_fail(l, VT_INVALID_ARGUMENT, "'%s' is no number", text);
}

void vt_hlo_read_value(vt_hlo_lexer *l, vt_hlo_instruction *to, vt_hlo_field field) {
  vt_hlo_attr *attr = vt_hlo_attr_at(l->r, to, field);
  vt_hlo_ints ints = {0};
  switch (vt_hlo_field_get(field)->form) {
  case VT_HLO_INTS:
  case VT_HLO_INTS_SOME:
    vt_hlo_read_ints(l, &ints);
    vt_hlo_push_ints(l->r, attr, (uint32_t)ints.size, ints.data);
    break;
  case VT_HLO_I64:
    attr->i64 = vt_hlo_int(l);
    break;
  case VT_HLO_FLAG:
  case VT_HLO_BOOL:
    read_flag(l, attr);
    break;
  case VT_HLO_WORD:
  case VT_HLO_ENUM:
    read_word(l, attr);
    break;
  case VT_HLO_QUOTED:
    attr->string = vt_hlo_quoted(l);
    break;
  case VT_HLO_F32:
    read_f32(l, attr);
    break;
  case VT_HLO_SLICE:
    read_slice(l, attr);
    break;
  case VT_HLO_PADDING:
    read_padding(l, attr);
    break;
  case VT_HLO_WINDOW:
    read_window(l, attr);
    break;
  case VT_HLO_LABELS:
    read_labels(l, attr);
    break;
  case VT_HLO_PRECISION:
    read_words(l, attr);
    break;
  case VT_HLO_GROUPS:
    read_groups(l, attr);
    break;
  case VT_HLO_PAIRS:
    read_rows(l, attr);
    break;
  case VT_HLO_SHAPE:
  case VT_HLO_LAYOUTS:
    read_shapes(l, vt_hlo_field_get(field)->form == VT_HLO_LAYOUTS, attr);
    break;
  case VT_HLO_ALIASES:
    read_aliases(l, attr);
    break;
  case VT_HLO_SHARDING:
    attr->string = vt_hlo_balanced(l);
    break;
  case VT_HLO_DICT:
    attr->dict = vt_hlo_read_dict(l);
    break;
  case VT_HLO_CONFIG:
    attr->string = read_text(l);
    break;
  case VT_HLO_LITERAL:
  case VT_HLO_HIDDEN:
    vt_hlo_skip_value(l);
    break;
  }
}
