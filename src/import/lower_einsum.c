// SPDX-License-Identifier: Apache-2.0
// lower_einsum.c - einsum and unary_einsum become dot_general, reduce and transpose.
//
// "ab,bc->ac": labels in both operands are batching when the result has them, contracting
// otherwise. Labels of one operand that the result lacks, and labels twice in one operand, are
// refused: nobody's compiler emits them.
#include <string.h>

#include "import/lower.h"

typedef struct spec {
  const char *labels[3]; // lhs, rhs, result
  uint32_t count[3];
} spec;

static bool is_label(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static const char *find(const spec *s, int which, char label) {
  return s->count[which] ? memchr(s->labels[which], label, s->count[which]) : NULL;
}

static bool parse(vt_string text, bool binary, spec *s) {
  const char *p = text.data, *end = text.data + text.size;
  for (int part = 0; part < 3; part++) {
    s->labels[part] = p;
    if (part == 1 && !binary) continue;
    while (p < end && is_label(*p)) {
      if (memchr(s->labels[part], *p, (size_t)(p - s->labels[part]))) return false;
      p++;
    }
    s->count[part] = (uint32_t)(p - s->labels[part]);
    if (part == 0 && binary) {
      if (p == end || *p++ != ',') return false;
    } else if (part < 2) {
      if (end - p < 2 || p[0] != '-' || p[1] != '>') return false;
      p += 2;
    }
    if (part == 0 && !binary) continue;
  }
  return p == end;
}

// Transposes `value`, whose dimensions have the labels `from`, to the order of the result.
static vt_value *to_result_order(vt_lower *lo, const vt_raw_op *raw, const spec *s,
                                 const char *from, vt_value *value) {
  int64_t permutation[VT_MAX_RANK], dims[VT_MAX_RANK];
  bool identity = true;
  for (int32_t i = 0; i < value->type.rank; i++) {
    permutation[i] = (const char *)memchr(from, s->labels[2][i], (size_t)value->type.rank) - from;
    dims[i] = value->type.dims[permutation[i]];
    identity = identity && permutation[i] == i;
  }
  if (identity) return value;
  vt_type type = vt_type_make(&lo->module->arena, value->type.dtype, value->type.rank, dims);
  vt_value *turned =
      vt_build(lo->func, NULL, VT_OP_TRANSPOSE, vt_lower_loc(lo, raw->loc), type, 1, &value);
  vt_op_set_ints(turned->op, VT_ATTR_PERMUTATION, (uint32_t)type.rank, permutation);
  return turned;
}

static vt_value *build_dot(vt_lower *lo, const vt_raw_op *raw, const spec *s,
                           vt_value *const *operands, vt_dtype dtype, char *order) {
  int64_t lists[4][VT_MAX_RANK], dims[2 * VT_MAX_RANK];
  uint32_t batch = 0, contract = 0;
  int32_t rank = 0;
  for (uint32_t i = 0; i < s->count[0]; i++) {
    char label = s->labels[0][i];
    const char *other = find(s, 1, label);
    if (!other) continue;
    bool kept = find(s, 2, label) != NULL;
    uint32_t *n = kept ? &batch : &contract;
    lists[kept ? 0 : 2][*n] = i;
    lists[kept ? 1 : 3][(*n)++] = other - s->labels[1];
    if (!kept) continue;
    order[rank] = label;
    dims[rank++] = operands[0]->type.dims[i];
  }
  for (int o = 0; o < 2; o++)
    for (uint32_t i = 0; i < s->count[o]; i++) {
      if (find(s, 1 - o, s->labels[o][i])) continue;
      order[rank] = s->labels[o][i];
      dims[rank++] = operands[o]->type.dims[i];
    }
  vt_type type = vt_type_make(&lo->module->arena, dtype, rank, dims);
  vt_value *dot =
      vt_build(lo->func, NULL, VT_OP_DOT_GENERAL, vt_lower_loc(lo, raw->loc), type, 2, operands);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_BATCHING_DIMENSIONS, batch, lists[0]);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_BATCHING_DIMENSIONS, batch, lists[1]);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, contract, lists[2]);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, contract, lists[3]);
  vt_op_set_ints(dot->op, VT_ATTR_PRECISION_CONFIG, 2,
                 (int64_t[]){VT_PRECISION_DEFAULT, VT_PRECISION_DEFAULT});
  return dot;
}

vt_status vt_lower_einsum(vt_lower *lo, const vt_raw_op *raw, uint32_t count,
                          vt_value *const *operands, vt_value **out_result) {
  const vt_raw_attr *config = vt_raw_find(raw, "einsum_config");
  bool binary = raw->row->code == VT_OP_EINSUM;
  spec s = {0};
  bool good = config && config->kind == VT_RAW_STRING && count == (binary ? 2 : 1) &&
              raw->result_count == 1 && parse(config->string, binary, &s);
  for (uint32_t o = 0; good && o < count; o++) good = operands[o]->type.rank == (int32_t)s.count[o];
  for (uint32_t i = 0; good && i < s.count[2]; i++)
    good = find(&s, 0, s.labels[2][i]) || find(&s, 1, s.labels[2][i]);
  // Every label is kept, or contracted because both operands have it.
  for (int o = 0; good && o < 2; o++)
    for (uint32_t i = 0; good && i < s.count[o]; i++)
      good = find(&s, 2, s.labels[o][i]) || find(&s, 1 - o, s.labels[o][i]);
  if (!good || s.count[2] > VT_MAX_RANK)
    return vt_lower_error(lo, raw, VT_UNIMPLEMENTED, "this einsum_config is not supported");
  vt_type type;
  char order[2 * VT_MAX_RANK];
  VT_TRY(vt_lower_type(lo, raw, raw->results[0].type, &type));
  vt_value *value = operands[0];
  if (binary) value = build_dot(lo, raw, &s, operands, type.dtype, order);
  *out_result = to_result_order(lo, raw, &s, binary ? order : s.labels[0], value);
  return VT_OK;
}
