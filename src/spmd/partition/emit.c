// SPDX-License-Identifier: Apache-2.0
// emit.c - local ops of the partitioned program: plain ones, where this device is, masks, and
// collectives that run in all groups at once.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/partition.h"

// ---- numbering ----------------------------------------------------------------------------------

static void put(vt_parter *p, uint64_t word) {
  vt_array_push(&p->key, word);
}
static void put_ptr(vt_parter *p, const void *pointer) {
  put(p, (uintptr_t)pointer);
}

static void put_type(vt_parter *p, vt_type type) {
  put(p, (uint64_t)type.dtype << 32 | (uint32_t)type.rank);
  for (int32_t d = 0; d < type.rank; d++) put(p, (uint64_t)type.dims[d]);
}

// Small literals by what they hold, others by where they are.
static void put_literal(vt_parter *p, const vt_literal *literal) {
  int64_t elements = literal->splat ? 1 : vt_type_elements(literal->type);
  size_t bytes = (size_t)elements * vt_dtype_bytes(literal->type.dtype);
  put_type(p, literal->type);
  put(p, literal->splat);
  if (bytes > 64) {
    put_ptr(p, literal->data);
    return;
  }
  uint64_t words[8] = {0};
  if (bytes) memcpy(words, literal->data, bytes);
  for (size_t i = 0; i * 8 < bytes; i++) put(p, words[i]);
}

static void put_attr(vt_parter *p, const vt_attr *attr) {
  put(p, (uint64_t)attr->key << 32 | attr->count);
  switch (vt_attr_kind_of(attr->key)) {
  case VT_ATTR_KIND_INTS:
    for (uint32_t i = 0; i < attr->count; i++) put(p, (uint64_t)attr->ints[i]);
    break;
  case VT_ATTR_KIND_LITERAL:
    put_literal(p, attr->literal);
    break;
  case VT_ATTR_KIND_STRING:
    put(p, vt_hash_bytes(attr->string.data, attr->string.size, 1));
    put(p, vt_hash_bytes(attr->string.data, attr->string.size, 2));
    break;
  default:
    put(p, (uint64_t)attr->i64); // numbers, and pointers to what copies share
  }
}

// Numbers and masks that depend on nothing but the device are emitted once. Other equal ops are not
// merged: what they have been resharded to is remembered for each apart, as in XLA, and collectives
// that XLA repeats shall be repeated. Such ops are marked by their note.
static bool is_plumbing(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!op->operands[i]->op || !op->operands[i]->op->note) return false;
  if (op->region_count || vt_op_has_effect(op)) return false;
  if (vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE) return false;
  return op->code != VT_OP_OPTIMIZATION_BARRIER;
}

static bool has_own_regions(const vt_op *op) {
  return op->code == VT_OP_WHILE || op->code == VT_OP_IF || op->code == VT_OP_CASE;
}

vt_op *vt_emit_finished(vt_parter *p, vt_op *op) {
  vt_assert(op->func == p->func);
  if (is_plumbing(op)) {
    p->key.size = 0;
    put_ptr(p, p->func);
    put(p, (uint64_t)op->code << 32 | op->operand_count);
    for (uint32_t i = 0; i < op->operand_count; i++) put_ptr(p, op->operands[i]);
    for (uint32_t i = 0; i < op->result_count; i++) put_type(p, op->results[i].type);
    for (uint32_t i = 0; i < op->attr_count; i++) put_attr(p, &op->attrs[i]);
    void **place = vt_map_at(&p->numbers, p->key.data, p->key.size * sizeof *p->key.data);
    if (*place) return *place;
    *place = op->note = op;
  }
  for (uint32_t i = 0; i < op->region_count && !has_own_regions(op); i++)
    op->regions[i] = vt_func_clone(p->module, op->regions[i]);
  vt_op_append(p->func, op);
  return op;
}

static vt_op *create(vt_parter *p, vt_opcode code, vt_type type, uint32_t count,
                     vt_value *const *operands, uint32_t regions) {
  return vt_op_create(p->func, code, p->loc, count, operands, 1, &type, regions);
}

static vt_value *finish(vt_parter *p, vt_op *op) {
  return &vt_emit_finished(p, op)->results[0];
}

// A literal of these contents, made once.
static const vt_literal *intern(vt_parter *p, vt_type type, const void *data) {
  size_t bytes = (size_t)vt_type_bytes(type);
  void **place = vt_map_at(&p->literals, data, bytes);
  if (!*place || !vt_type_equal(((const vt_literal *)*place)->type, type)) {
    vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
    *literal = (vt_literal){type, vt_arena_copy(&p->module->arena, data, bytes), false};
    *place = literal;
  }
  return *place;
}

// ---- plain ops ----------------------------------------------------------------------------------

vt_type vt_type_of_dims(vt_parter *p, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_type_make(&p->module->arena, dtype, rank, dims);
}

vt_type vt_type_with(vt_parter *p, vt_type type, int32_t dim, int64_t size) {
  int64_t dims[VT_MAX_RANK];
  memcpy(dims, type.dims, sizeof *dims * (size_t)type.rank);
  dims[dim] = size;
  return vt_type_of_dims(p, type.dtype, type.rank, dims);
}

static vt_type with_dtype(vt_type type, vt_dtype dtype) {
  type.dtype = dtype;
  return type;
}

static vt_type scalar_of(vt_dtype dtype) {
  return (vt_type){dtype, 0, NULL};
}

vt_value *vt_emit(vt_parter *p, vt_opcode code, vt_type type, uint32_t count,
                  vt_value *const *operands) {
  return finish(p, create(p, code, type, count, operands, 0));
}

vt_value *vt_emit1(vt_parter *p, vt_opcode code, vt_type type, vt_value *a) {
  return vt_emit(p, code, type, 1, &a);
}

vt_value *vt_emit2(vt_parter *p, vt_opcode code, vt_type type, vt_value *a, vt_value *b) {
  return vt_emit(p, code, type, 2, (vt_value *[]){a, b});
}

// All but what the partitioner itself read.
static bool is_copied(const vt_attr *attr) {
  return attr->key != VT_ATTR_SHARDING && attr->key != VT_ATTR_MHLO_SHARDING;
}

vt_op *vt_copy_op(vt_parter *p, const vt_op *op, const vt_type *types, uint32_t count,
                  vt_value *const *operands) {
  vt_op *copy = vt_op_create(p->func, op->code, op->loc, count, operands, op->result_count, types,
                             op->region_count);
  for (uint32_t i = 0; i < op->region_count; i++) copy->regions[i] = op->regions[i];
  copy->capture_count = op->capture_count;
  uint32_t attrs = 0; // most have none
  for (uint32_t i = 0; i < op->attr_count; i++) attrs += is_copied(&op->attrs[i]);
  if (attrs) copy->attrs = VT_NEW_ARRAY(&p->module->arena, vt_attr, attrs);
  for (uint32_t i = 0; i < op->attr_count && attrs; i++)
    if (is_copied(&op->attrs[i])) copy->attrs[copy->attr_count++] = op->attrs[i];
  return copy;
}

vt_op *vt_emit_copies(vt_parter *p, const vt_op *op, const vt_type *types, uint32_t count,
                      vt_value *const *operands) {
  return vt_emit_finished(p, vt_copy_op(p, op, types, count, operands));
}

vt_value *vt_emit_copy(vt_parter *p, const vt_op *op, vt_type type, uint32_t count,
                       vt_value *const *operands) {
  vt_assert(op->result_count == 1);
  return &vt_emit_copies(p, op, &type, count, operands)->results[0];
}

vt_value *vt_emit_literal(vt_parter *p, const vt_literal *literal) {
  vt_op *op = create(p, VT_OP_CONSTANT, literal->type, 0, NULL, 0);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_VALUE, .count = 1, .literal = literal});
  return finish(p, op);
}

static vt_value *emit_scalar(vt_parter *p, vt_dtype dtype, const void *bytes, size_t size) {
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  char *data = vt_arena_push(&p->module->arena, 16);
  if (size) memcpy(data, bytes, size);
  *literal = (vt_literal){scalar_of(dtype), data, true};
  return vt_emit_literal(p, literal);
}

vt_value *vt_emit_zero(vt_parter *p, vt_dtype dtype) {
  return emit_scalar(p, dtype, NULL, 0);
}

// The dtypes whose only zero is positive.
static bool one_zero(vt_dtype dtype) {
  return dtype == VT_F8E4M3B11FNUZ || dtype == VT_F8E5M2FNUZ || dtype == VT_F8E4M3FNUZ ||
         dtype == VT_F8E8M0FNU;
}

vt_value *vt_emit_nothing(vt_parter *p, vt_dtype dtype) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  bool complex = vt_dtype_is_complex(dtype);
  if ((!complex && info->kind != VT_KIND_FLOAT) || one_zero(dtype)) return vt_emit_zero(p, dtype);
  uint8_t bytes[16] = {0};
  size_t size = vt_dtype_bytes(dtype);
  uint8_t sign = (uint8_t)(1 << (info->bits - 1) % 8);
  bytes[size - 1] = sign;
  if (complex) bytes[size / 2 - 1] = sign;
  return emit_scalar(p, dtype, bytes, size);
}

vt_value *vt_emit_s32(vt_parter *p, int64_t number) {
  int32_t value = (int32_t)number;
  return emit_scalar(p, VT_S32, &value, sizeof value);
}

vt_value *vt_emit_padding(vt_parter *p, vt_dtype dtype) {
  if (!p->poison) return vt_emit_zero(p, dtype);
  uint8_t bytes[16];
  size_t size = vt_dtype_bytes(dtype), part = vt_dtype_is_complex(dtype) ? size / 2 : size;
  memset(bytes, 0xff, sizeof bytes); // NaN in the wide floats
  if (vt_dtype_kind_of(dtype) == VT_KIND_BOOL) bytes[0] = 1;
  if (vt_dtype_is_integer(dtype) && vt_dtype_get(dtype)->bits >= 8) {
    memset(bytes, 0, sizeof bytes);
    bytes[part - 1] = 0x80; // the smallest signed number
  }
  if (vt_dtype_get(dtype)->bits < 8) memset(bytes, 0, sizeof bytes);
  return emit_scalar(p, dtype, bytes, size);
}

vt_value *vt_emit_broadcast(vt_parter *p, vt_value *a, vt_type type, const int64_t *dims) {
  vt_op *op = create(p, VT_OP_BROADCAST_IN_DIM, type, 1, &a, 0);
  vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)a->type.rank, dims);
  return finish(p, op);
}

vt_value *vt_emit_splat(vt_parter *p, vt_type type, vt_value *scalar) {
  return type.rank ? vt_emit_broadcast(p, scalar, type, NULL) : scalar;
}

vt_value *vt_emit_iota(vt_parter *p, vt_dtype dtype, vt_type like, int32_t dim) {
  vt_op *op = create(p, VT_OP_IOTA, with_dtype(like, dtype), 0, NULL, 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, dim);
  return finish(p, op);
}

vt_value *vt_emit_compare(vt_parter *p, int64_t direction, vt_value *a, vt_value *b) {
  vt_op *op = create(p, VT_OP_COMPARE, with_dtype(a->type, VT_PRED), 2, (vt_value *[]){a, b}, 0);
  vt_dtype_kind kind = vt_dtype_kind_of(a->type.dtype);
  vt_op_set_i64(op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(op, VT_ATTR_COMPARE_TYPE,
                kind == VT_KIND_SIGNED                             ? VT_CMPTYPE_SIGNED
                : kind == VT_KIND_UNSIGNED || kind == VT_KIND_BOOL ? VT_CMPTYPE_UNSIGNED
                                                                   : VT_CMPTYPE_FLOAT);
  return finish(p, op);
}

vt_value *vt_emit_select(vt_parter *p, vt_value *which, vt_value *a, vt_value *b) {
  return vt_emit(p, VT_OP_SELECT, a->type, 3, (vt_value *[]){which, a, b});
}

vt_value *vt_emit_reshape(vt_parter *p, vt_value *a, int32_t rank, const int64_t *dims) {
  vt_type type = vt_type_of_dims(p, a->type.dtype, rank, dims);
  return vt_type_equal(type, a->type) ? a : vt_emit1(p, VT_OP_RESHAPE, type, a);
}

vt_value *vt_emit_transpose(vt_parter *p, vt_value *a, const int32_t *permutation) {
  int64_t dims[VT_MAX_RANK], order[VT_MAX_RANK];
  bool same = true;
  for (int32_t d = 0; d < a->type.rank; d++) {
    dims[d] = a->type.dims[permutation[d]];
    order[d] = permutation[d];
    same = same && permutation[d] == d;
  }
  if (same) return a;
  vt_op *op =
      create(p, VT_OP_TRANSPOSE, vt_type_of_dims(p, a->type.dtype, a->type.rank, dims), 1, &a, 0);
  vt_op_set_ints(op, VT_ATTR_PERMUTATION, (uint32_t)a->type.rank, order);
  return finish(p, op);
}

vt_value *vt_emit_slice(vt_parter *p, vt_value *a, int32_t dim, int64_t low, int64_t high) {
  if (low == 0 && high == a->type.dims[dim]) return a;
  int64_t starts[VT_MAX_RANK] = {0}, limits[VT_MAX_RANK], strides[VT_MAX_RANK];
  uint32_t rank = (uint32_t)a->type.rank;
  for (uint32_t d = 0; d < rank; d++) {
    limits[d] = a->type.dims[d];
    strides[d] = 1;
  }
  starts[dim] = low;
  limits[dim] = high;
  vt_op *op = create(p, VT_OP_SLICE, vt_type_with(p, a->type, dim, high - low), 1, &a, 0);
  vt_op_set_ints(op, VT_ATTR_START_INDICES, rank, starts);
  vt_op_set_ints(op, VT_ATTR_LIMIT_INDICES, rank, limits);
  vt_op_set_ints(op, VT_ATTR_STRIDES, rank, strides);
  return finish(p, op);
}

vt_value *vt_emit_pad(vt_parter *p, vt_value *a, vt_value *with, int32_t dim, int64_t low,
                      int64_t high) {
  if (!low && !high) return a;
  int64_t lows[VT_MAX_RANK] = {0}, highs[VT_MAX_RANK] = {0}, inside[VT_MAX_RANK] = {0};
  uint32_t rank = (uint32_t)a->type.rank;
  lows[dim] = low;
  highs[dim] = high;
  vt_op *op = create(p, VT_OP_PAD, vt_type_with(p, a->type, dim, a->type.dims[dim] + low + high), 2,
                     (vt_value *[]){a, with}, 0);
  vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_LOW, rank, lows);
  vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_HIGH, rank, highs);
  vt_op_set_ints(op, VT_ATTR_INTERIOR_PADDING, rank, inside);
  return finish(p, op);
}

vt_value *vt_emit_concat(vt_parter *p, uint32_t count, vt_value *const *parts, int32_t dim) {
  int64_t size = 0;
  if (count == 1) return parts[0];
  for (uint32_t i = 0; i < count; i++) size += parts[i]->type.dims[dim];
  vt_op *op =
      create(p, VT_OP_CONCATENATE, vt_type_with(p, parts[0]->type, dim, size), count, parts, 0);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, dim);
  return finish(p, op);
}

vt_value *vt_emit_dynamic_slice(vt_parter *p, vt_value *a, vt_value *const *offsets, vt_type type) {
  vt_value *operands[VT_MAX_RANK + 1] = {a};
  if (vt_type_equal(a->type, type)) return a;
  for (int32_t d = 0; d < type.rank; d++)
    operands[d + 1] = offsets[d] ? offsets[d] : vt_emit_s32(p, 0);
  vt_op *op = create(p, VT_OP_DYNAMIC_SLICE, type, (uint32_t)type.rank + 1, operands, 0);
  vt_op_set_ints(op, VT_ATTR_SLICE_SIZES, (uint32_t)type.rank, type.dims);
  return finish(p, op);
}

vt_value *vt_emit_dynamic_update(vt_parter *p, vt_value *a, vt_value *update,
                                 vt_value *const *offsets) {
  vt_value *operands[VT_MAX_RANK + 2] = {a, update};
  for (int32_t d = 0; d < a->type.rank; d++)
    operands[d + 2] = offsets[d] ? offsets[d] : vt_emit_s32(p, 0);
  return vt_emit(p, VT_OP_DYNAMIC_UPDATE_SLICE, a->type, (uint32_t)a->type.rank + 2, operands);
}

// ---- where this device is -----------------------------------------------------------------------

static vt_value *emit_device(vt_parter *p) {
  vt_value *id = vt_emit(p, VT_OP_PARTITION_ID, scalar_of(VT_U32), 0, NULL);
  return vt_emit1(p, VT_OP_CONVERT, scalar_of(VT_S32), id);
}

// A number for each device, by its place in its group.
typedef struct lookup_table {
  const vt_literal *numbers;
  bool constant, identity;
} lookup_table;

// numbers[place], for all devices.
static const lookup_table *make_table(vt_parter *p, const int64_t *numbers) {
  const vt_groups *g = p->groups;
  const int32_t *place_of = vt_groups_listed(&p->assigns, g).place_of;
  int32_t total = g->count * g->size;
  vt_arena scratch = {0};
  lookup_table *out = VT_NEW(&p->module->arena, lookup_table);
  int32_t *data = VT_NEW_ARRAY(&scratch, int32_t, total);
  out->constant = out->identity = true;
  for (int32_t d = 0; d < total; d++) {
    data[d] = (int32_t)numbers[place_of[d]];
    out->constant = out->constant && data[d] == numbers[0];
    out->identity = out->identity && data[d] == d;
  }
  out->numbers = intern(p, vt_type_of_dims(p, VT_S32, 1, (int64_t[]){total}), data);
  vt_arena_free(&scratch);
  return out;
}

static vt_value *emit_lookup(vt_parter *p, const lookup_table *table) {
  if (table->constant) return vt_emit_s32(p, *(const int32_t *)table->numbers->data);
  vt_value *device = emit_device(p);
  if (table->identity) return device;
  vt_value *numbers = vt_emit_literal(p, table->numbers);
  vt_value *found =
      vt_emit_dynamic_slice(p, numbers, &device, vt_type_of_dims(p, VT_S32, 1, (int64_t[]){1}));
  return vt_emit_reshape(p, found, 0, NULL);
}

// The questions about where a device is, and their answer for each place in the group.
typedef enum lookup_kind { LOOKUP_OFFSET, LOOKUP_BY_TILE, LOOKUP_FIRST } lookup_kind;
typedef struct lookup {
  lookup_kind kind;
  const vt_assign *assign;
  int32_t dim;
  int32_t count;
  const int64_t *numbers; // of an offset: parts and size; by tile: the table; first: the mask
} lookup;

static void answer(vt_parter *p, const lookup *l, int64_t *out) {
  const vt_assign *a = l->assign;
  const int32_t *places = l->kind == LOOKUP_FIRST ? NULL : vt_assign_places(&p->assigns, a, l->dim);
  for (int32_t i = 0; i < p->device_count; i++)
    out[i] = l->kind == LOOKUP_OFFSET    ? places[i] % l->numbers[0] * l->numbers[1]
             : l->kind == LOOKUP_BY_TILE ? l->numbers[places[i]]
                                         : a->only < 0 || i == a->only;
  for (int32_t d = 0; d < a->rank && l->kind == LOOKUP_FIRST; d++) {
    if (!(l->numbers[0] >> d & 1)) continue;
    places = vt_assign_places(&p->assigns, a, d);
    for (int32_t i = 0; i < p->device_count; i++) out[i] &= !places[i];
  }
}

static void put_lookup(vt_parter *p, const vt_func *func, const lookup *l) {
  p->key.size = 0;
  put_ptr(p, func);
  put_ptr(p, p->groups);
  put_ptr(p, l->assign);
  put(p, (uint64_t)l->kind << 32 | (uint32_t)l->dim);
  for (int32_t i = 0; i < l->count; i++) put(p, (uint64_t)l->numbers[i]);
}

static const lookup_table *table_of(vt_parter *p, const lookup *l) {
  put_lookup(p, NULL, l);
  const lookup_table *known = *vt_map_at(&p->offsets, p->key.data, p->key.size * sizeof(uint64_t));
  if (known) return known;
  vt_arena scratch = {0};
  int64_t *numbers = VT_NEW_ARRAY(&scratch, int64_t, p->device_count);
  answer(p, l, numbers);
  known = make_table(p, numbers);
  vt_arena_free(&scratch);
  put_lookup(p, NULL, l);
  *vt_map_at(&p->offsets, p->key.data, p->key.size * sizeof(uint64_t)) = (void *)(uintptr_t)known;
  return known;
}

// Asked once per function; the table is made once per program.
static vt_value *look_up(vt_parter *p, const lookup *l) {
  put_lookup(p, p->func, l);
  vt_value *value = *vt_map_at(&p->offsets, p->key.data, p->key.size * sizeof(uint64_t));
  if (value) return value;
  value = emit_lookup(p, table_of(p, l));
  put_lookup(p, p->func, l);
  *vt_map_at(&p->offsets, p->key.data, p->key.size * sizeof(uint64_t)) = value;
  return value;
}

vt_value *vt_emit_offset(vt_parter *p, const vt_assign *assign, int32_t dim, int64_t size) {
  return vt_emit_offset_within(p, assign, dim, assign->dims[dim], size);
}

vt_value *vt_emit_offset_within(vt_parter *p, const vt_assign *assign, int32_t dim, int32_t parts,
                                int64_t size) {
  const int64_t numbers[2] = {parts, size};
  return look_up(p, &(lookup){LOOKUP_OFFSET, assign, dim, 2, numbers});
}

vt_value *vt_emit_by_tile(vt_parter *p, const vt_assign *assign, int32_t dim,
                          const int64_t *table) {
  return look_up(p, &(lookup){LOOKUP_BY_TILE, assign, dim, assign->dims[dim], table});
}

vt_value *vt_emit_is_first(vt_parter *p, const vt_assign *assign, uint32_t mask) {
  const int64_t number = mask;
  vt_value *first = look_up(p, &(lookup){LOOKUP_FIRST, assign, 0, 1, &number});
  return vt_emit_compare(p, VT_CMP_NE, first, vt_emit_s32(p, 0));
}

vt_value *vt_emit_positions(vt_parter *p, vt_part part, int32_t dim) {
  vt_type type = with_dtype(part.local->type, VT_S32);
  vt_value *iota = vt_emit_iota(p, VT_S32, type, dim);
  if (part.assign->dims[dim] == 1) return iota;
  vt_value *offset = vt_emit_offset(p, part.assign, dim, type.dims[dim]);
  return vt_emit2(p, VT_OP_ADD, type, iota, vt_emit_splat(p, type, offset));
}

vt_value *vt_mask(vt_parter *p, vt_part part, uint32_t mask, vt_value *with) {
  vt_value *valid = NULL;
  for (int32_t d = 0; d < part.global.rank; d++) {
    if (!(mask >> d & 1) || vt_is_even(part.global, part.assign, d)) continue;
    vt_value *at = vt_emit_positions(p, part, d);
    vt_value *limit = vt_emit_splat(p, at->type, vt_emit_s32(p, part.global.dims[d]));
    vt_value *inside = vt_emit_compare(p, VT_CMP_LT, at, limit);
    valid = valid ? vt_emit2(p, VT_OP_AND, inside->type, valid, inside) : inside;
  }
  if (!valid) return part.local;
  return vt_emit_select(p, valid, part.local, vt_emit_splat(p, part.local->type, with));
}

// ---- collectives --------------------------------------------------------------------------------
// Every collective has channel 1 until the program is finished: vt_spmd_partition numbers them.

// Rows of devices as ops read them that count the partitions of each replica: those of the first.
static const vt_literal *of_partitions(vt_parter *p, const vt_literal *rows) {
  int64_t width = rows->type.dims[1], kept = 0;
  int32_t partitions = p->groups->count * p->groups->size / p->module->num_replicas;
  const int64_t *ids = rows->data;
  if (p->module->num_replicas == 1) return rows;
  int64_t *first = VT_NEW_ARRAY(&p->module->arena, int64_t, vt_type_elements(rows->type) + 1);
  for (int64_t r = 0; r < rows->type.dims[0]; r++)
    if (ids[r * width] < partitions)
      memcpy(first + kept++ * width, ids + r * width, sizeof *ids * (size_t)width);
  vt_literal *out = VT_NEW(&p->module->arena, vt_literal);
  *out = (vt_literal){vt_type_of_dims(p, VT_S64, 2, (int64_t[]){kept, width}), first, false};
  return out;
}

static void set_groups(vt_parter *p, vt_op *op, const vt_groups *groups) {
  const vt_groups *all = vt_groups_within(&p->assigns, p->groups, groups);
  const vt_literal *rows = vt_groups_rows(&p->assigns, all);
  if (op->code == VT_OP_ALL_TO_ALL) rows = of_partitions(p, rows);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_REPLICA_GROUPS, .count = 1, .literal = rows});
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
}

vt_value *vt_emit_all_gather(vt_parter *p, vt_value *a, int32_t dim, const vt_groups *groups) {
  if (groups->size == 1) return a;
  vt_op *op = create(p, VT_OP_ALL_GATHER,
                     vt_type_with(p, a->type, dim, a->type.dims[dim] * groups->size), 1, &a, 0);
  vt_op_set_i64(op, VT_ATTR_ALL_GATHER_DIM, dim);
  set_groups(p, op, groups);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  return finish(p, op);
}

vt_value *vt_emit_all_to_all(vt_parter *p, vt_value *a, int32_t split, int32_t concat,
                             const vt_groups *groups) {
  if (groups->size == 1) return a;
  vt_assert(a->type.dims[split] % groups->size == 0);
  vt_type type = vt_type_with(p, a->type, split, a->type.dims[split] / groups->size);
  type = vt_type_with(p, type, concat, type.dims[concat] * groups->size);
  vt_op *op = create(p, VT_OP_ALL_TO_ALL, type, 1, &a, 0);
  vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, split);
  vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, concat);
  vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, groups->size);
  set_groups(p, op, groups);
  return finish(p, op);
}

// Pairs of source and target, in all groups.
static const vt_literal *make_pairs(vt_parter *p, int32_t count, const int32_t *sources,
                                    const int32_t *targets) {
  const vt_groups *g = p->groups;
  const int32_t *ids = vt_groups_listed(&p->assigns, g).ids;
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  int64_t *pairs = VT_NEW_ARRAY(&p->module->arena, int64_t, 2 * (size_t)(g->count * count) + 2);
  size_t n = 0;
  for (int32_t group = 0; group < g->count; group++)
    for (int32_t i = 0; i < count; i++) {
      pairs[n++] = ids[group * g->size + sources[i]];
      pairs[n++] = ids[group * g->size + targets[i]];
    }
  literal->type = vt_type_of_dims(p, VT_S64, 2, (int64_t[]){g->count * count, 2});
  literal->data = pairs;
  return of_partitions(p, literal);
}

static vt_value *emit_permute(vt_parter *p, vt_value *a, const vt_literal *pairs) {
  vt_op *op = create(p, VT_OP_COLLECTIVE_PERMUTE, a->type, 1, &a, 0);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_SOURCE_TARGET_PAIRS, .count = 1, .literal = pairs});
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  return finish(p, op);
}

vt_value *vt_emit_permute(vt_parter *p, vt_value *a, const vt_assign *from, const vt_assign *to) {
  const void *key[3] = {p->groups, from, to};
  const vt_literal *pairs = vt_map_find(&p->pairs, key, sizeof key);
  if (!pairs) {
    pairs = make_pairs(p, from->device_count, vt_assign_devices(&p->assigns, from),
                       vt_assign_devices(&p->assigns, to));
    *vt_map_at(&p->pairs, key, sizeof key) = (void *)(uintptr_t)pairs;
  }
  return emit_permute(p, a, pairs);
}

static const vt_literal *pairs_of_tiles(vt_parter *p, const vt_assign *assign, int32_t dim,
                                        const int32_t *source) {
  const int32_t *devices = vt_assign_devices(&p->assigns, assign);
  int32_t stride = assign->copies, count = 0;
  for (int32_t d = assign->rank; d-- > dim + 1;) stride *= assign->dims[d];
  vt_arena scratch = {0};
  int32_t *sources = VT_NEW_ARRAY(&scratch, int32_t, p->device_count);
  int32_t *targets = VT_NEW_ARRAY(&scratch, int32_t, p->device_count);
  for (int32_t n = 0; n < p->device_count; n++) {
    int32_t tile = n / stride % assign->dims[dim];
    if (source[tile] < 0) continue;
    sources[count] = devices[n + (source[tile] - tile) * stride];
    targets[count++] = devices[n];
  }
  const vt_literal *pairs = make_pairs(p, count, sources, targets);
  vt_arena_free(&scratch);
  return pairs;
}

vt_value *vt_emit_permute_tiles(vt_parter *p, vt_value *a, const vt_assign *assign, int32_t dim,
                                const int32_t *source) {
  p->key.size = 0;
  put_ptr(p, p->groups);
  put_ptr(p, assign);
  put(p, (uint64_t)dim);
  for (int32_t t = 0; t < assign->dims[dim]; t++) put(p, (uint64_t)(int64_t)source[t]);
  void **pairs = vt_map_at(&p->pairs, p->key.data, p->key.size * sizeof *p->key.data);
  if (!*pairs) *pairs = (void *)(uintptr_t)pairs_of_tiles(p, assign, dim, source);
  return emit_permute(p, a, *pairs);
}

vt_func *vt_make_reducer(vt_parter *p, vt_opcode code, vt_dtype dtype) {
  vt_func *func = vt_func_create(p->module, "");
  vt_value *operands[2] = {vt_func_add_param(func, scalar_of(dtype)),
                           vt_func_add_param(func, scalar_of(dtype))};
  vt_value *sum = vt_build(func, NULL, code, p->loc, scalar_of(dtype), 2, operands);
  vt_func_set_returns(func, 1, &sum);
  return func;
}

vt_value *vt_emit_all_reduce(vt_parter *p, vt_value *a, const vt_func *reducer,
                             const vt_groups *groups) {
  if (groups->size == 1) return a;
  vt_op *op = create(p, VT_OP_ALL_REDUCE, a->type, 1, &a, 1);
  op->regions[0] =
      reducer ? (vt_func *)(uintptr_t)reducer
              : vt_make_reducer(p, a->type.dtype == VT_PRED ? VT_OP_OR : VT_OP_ADD, a->type.dtype);
  set_groups(p, op, groups);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  return finish(p, op);
}

vt_value *vt_emit_reduce_along(vt_parter *p, vt_value *a, const vt_func *reducer,
                               const vt_assign *assign, uint32_t mask) {
  for (int32_t d = assign->rank; d-- > 0;) {
    if (!(mask >> d & 1) || assign->dims[d] == 1) continue;
    a = vt_emit_reduction(p, a, reducer, vt_groups_along(&p->assigns, assign, 1, &d));
  }
  return a;
}
