// SPDX-License-Identifier: Apache-2.0
// alike.c - when two ops are the same computation. Regions are compared by structure.
#include <string.h>

#include "base/check.h"
#include "ir/module.h"

static bool same_func(const vt_func *a, const vt_func *b);

// A channel only names a collective; whether it has one says who takes part.
static bool same_attr(const vt_attr *a, const vt_attr *b) {
  return a->key == VT_ATTR_CHANNEL_ID ? (a->i64 > 0) == (b->i64 > 0) : vt_attr_equal(a, b);
}

bool vt_op_alike(const vt_op *a, const vt_op *b) {
  if (a->code != b->code || a->region_count != b->region_count || a->attr_count != b->attr_count)
    return false;
  for (uint32_t i = 0; i < a->attr_count; i++) {
    const vt_attr *other = vt_op_attr(b, a->attrs[i].key);
    if (!other || !same_attr(&a->attrs[i], other)) return false;
  }
  for (uint32_t i = 0; i < a->region_count; i++)
    if (!same_func(a->regions[i], b->regions[i])) return false;
  return true;
}

// Equal except for the operands.
static bool same_shape(const vt_op *a, const vt_op *b) {
  if (a->operand_count != b->operand_count || a->capture_count != b->capture_count ||
      a->result_count != b->result_count)
    return false;
  for (uint32_t i = 0; i < a->result_count; i++)
    if (!vt_type_equal(a->results[i].type, b->results[i].type)) return false;
  return vt_op_alike(a, b);
}

static bool same_func(const vt_func *a, const vt_func *b) {
  if (a == b) return true;
  if (a->param_count != b->param_count || a->return_count != b->return_count) return false;
  vt_func_number((vt_func *)(uintptr_t)a);
  vt_func_number((vt_func *)(uintptr_t)b);
  if (a->value_count != b->value_count) return false;
  for (uint32_t i = 0; i < a->param_count; i++)
    if (!vt_type_equal(a->params[i]->type, b->params[i]->type)) return false;
  const vt_op *x = a->first, *y = b->first;
  for (; x && y; x = x->next, y = y->next) {
    if (!same_shape(x, y)) return false;
    for (uint32_t i = 0; i < x->operand_count; i++)
      if (x->operands[i]->id != y->operands[i]->id) return false;
  }
  if (x || y) return false;
  for (uint32_t i = 0; i < a->return_count; i++)
    if (a->returns[i]->id != b->returns[i]->id) return false;
  return true;
}

bool vt_op_equal(const vt_op *a, const vt_op *b, vt_value *const *operands) {
  return a->operand_count == b->operand_count &&
         !memcmp(a->operands, operands, sizeof *operands * a->operand_count) && same_shape(a, b);
}

// Of what it holds; of a large one, of its ends.
static uint64_t literal_hash(const vt_literal *literal, uint64_t seed) {
  enum { END = 256 };
  size_t bytes =
      literal->splat ? vt_dtype_bytes(literal->type.dtype) : (size_t)vt_type_bytes(literal->type);
  const char *data = literal->data;
  if (bytes <= 2 * END) return vt_hash_bytes(data, bytes, seed);
  return vt_hash_bytes(data + bytes - END, END, vt_hash_bytes(data, END, seed));
}

// One step of a sum whose uppermost bits depend on all that went in.
static inline uint64_t add_to(uint64_t h, uint64_t word) {
  return (h ^ word) * 0x9E3779B97F4A7C15u + (h >> 32);
}

uint64_t vt_op_hash(const vt_op *op, vt_value *const *operands) {
  uint64_t h = add_to(op->code, op->attr_count);
  for (uint32_t i = 0; i < op->operand_count; i++) h = add_to(h, (uint64_t)(uintptr_t)operands[i]);
  // An elementwise op has one result, with the dimensions of an operand.
  bool mapped = op->operand_count && vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
  if (mapped) h = add_to(h, (uint64_t)op->results[0].type.dtype);
  for (uint32_t i = 0; !mapped && i < op->result_count; i++) {
    vt_type type = op->results[i].type;
    h = add_to(h, (uint64_t)type.dtype);
    for (int32_t d = 0; d < type.rank; d++) h = add_to(h, (uint64_t)type.dims[d]);
  }
  for (uint32_t i = 0; i < op->attr_count; i++) {
    // The order of attributes may differ between equal ops: combine them without order.
    const vt_attr *attr = &op->attrs[i];
    vt_attr_kind kind = vt_attr_kind_of(attr->key);
    uint64_t one = add_to(attr->key, attr->count);
    if (kind == VT_ATTR_KIND_I64 && attr->key != VT_ATTR_CHANNEL_ID)
      one = add_to(one, (uint64_t)attr->i64);
    for (uint32_t k = 0; kind == VT_ATTR_KIND_INTS && k < attr->count; k++)
      one = add_to(one, (uint64_t)attr->ints[k]);
    if (kind == VT_ATTR_KIND_LITERAL) one = literal_hash(attr->literal, one);
    h += one;
  }
  return vt_hash_u64(h, 0);
}
