// SPDX-License-Identifier: Apache-2.0
// lower_einsum.c - einsum and unary_einsum become dot_general, reduce and transpose.
//
// "ab,bc->ac": one label per dimension, and ... for any number of further ones, counted from the
// last. A label twice in one operand means its diagonal; a label of one operand only that the
// result lacks is summed over first. Labels in both operands are batching when the result has them,
// contracting otherwise.
#include <string.h>

#include "import/lower.h"

// One operand, or the result: the label of each dimension. Dimensions under ... have labels from 1
// up, from the last.
typedef struct term {
  uint32_t count;
  char labels[VT_MAX_RANK];
  vt_value *value;
} term;

static bool is_label(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static const char *find(const term *t, char label) {
  return t->count ? memchr(t->labels, label, t->count) : NULL;
}

// Labels up to the next punctuation; `more` dimensions are under the ellipsis.
static bool parse_term(const char **p, const char *end, uint32_t more, term *t) {
  bool ellipsis = false;
  t->count = 0;
  while (*p < end && (is_label(**p) || **p == '.')) {
    uint32_t n = 1;
    char first = **p;
    if (first == '.') {
      if (ellipsis || end - *p < 3 || (*p)[1] != '.' || (*p)[2] != '.') return false;
      ellipsis = true;
      *p += 2;
      n = more;
    }
    for (uint32_t i = 0; i < n; i++) {
      if (t->count == VT_MAX_RANK) return false;
      t->labels[t->count++] = first == '.' ? (char)(n - i) : first;
    }
    ++*p;
  }
  return true;
}

// Dimensions of the operand that have no letter in its text.
static uint32_t under_ellipsis(const char *p, const char *end, uint32_t rank) {
  bool ellipsis = false;
  uint32_t letters = 0;
  for (; p < end && (is_label(*p) || *p == '.'); p++) {
    ellipsis = ellipsis || *p == '.';
    letters += *p != '.';
  }
  return ellipsis && rank > letters ? rank - letters : 0;
}

static bool parse(vt_string text, uint32_t operands, term *terms) {
  const char *p = text.data, *end = text.data + text.size;
  uint32_t most = 0;
  for (uint32_t o = 0; o < operands; o++) {
    uint32_t rank = (uint32_t)terms[o].value->type.rank, more = under_ellipsis(p, end, rank);
    if (!parse_term(&p, end, more, &terms[o]) || terms[o].count != rank) return false;
    if (more > most) most = more;
    if (o + 1 < operands && (p == end || *p++ != ',')) return false;
  }
  if (end - p < 2 || p[0] != '-' || p[1] != '>') return false;
  p += 2;
  term *result = &terms[operands];
  if (!parse_term(&p, end, most, result) || p != end) return false;
  for (uint32_t i = 0; i < result->count; i++) {
    bool known = false;
    for (uint32_t o = 0; o < operands; o++) known = known || find(&terms[o], result->labels[i]);
    if (!known || memchr(result->labels, result->labels[i], i)) return false;
  }
  return true;
}

static vt_value *build(vt_lower *lo, const vt_raw_op *raw, vt_opcode code, vt_type type,
                       uint32_t count, vt_value *const *operands) {
  return vt_build(lo->func, NULL, code, vt_lower_loc(lo, raw->loc), type, count, operands);
}

static vt_value *build_zeros(vt_lower *lo, const vt_raw_op *raw, vt_type type) {
  static const uint64_t zero[2];
  vt_literal *literal = VT_NEW(&lo->module->arena, vt_literal);
  *literal = (vt_literal){type, zero, vt_type_elements(type) != 1};
  return vt_build_constant(lo->func, NULL, vt_lower_loc(lo, raw->loc), literal);
}

// Sums over dimension `d` of the term, removing it.
static void sum_over(vt_lower *lo, const vt_raw_op *raw, uint32_t d, term *t) {
  vt_arena *arena = &lo->module->arena;
  vt_type from = t->value->type, scalar = {from.dtype, 0, NULL};
  int64_t dims[VT_MAX_RANK], dim = d;
  memmove(t->labels + d, t->labels + d + 1, t->count - d - 1);
  t->count--;
  for (uint32_t i = 0; i < t->count; i++) dims[i] = from.dims[i + (i >= d)];
  vt_type type = vt_type_make(arena, from.dtype, (int32_t)t->count, dims);
  vt_value *operands[2] = {t->value, build_zeros(lo, raw, scalar)};
  vt_op *op =
      vt_op_create(lo->func, VT_OP_REDUCE, vt_lower_loc(lo, raw->loc), 2, operands, 1, &type, 1);
  vt_func *body = op->regions[0] = vt_func_create(lo->module, "");
  for (int i = 0; i < 2; i++) vt_func_add_param(body, scalar);
  vt_value *sum = vt_build(body, NULL, VT_OP_ADD, op->loc, scalar, 2, body->params);
  vt_func_set_returns(body, 1, &sum);
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, 1, &dim);
  vt_op_append(lo->func, op);
  t->value = &op->results[0];
}

// Dimensions i and j share a label: zeroes what is off their diagonal and sums over j.
static bool take_diagonal(vt_lower *lo, const vt_raw_op *raw, uint32_t i, uint32_t j, term *t) {
  vt_type type = t->value->type, counts = type, truth = type;
  if (type.dims[i] != type.dims[j]) return false;
  counts.dtype = VT_S32;
  truth.dtype = VT_PRED;
  vt_value *at[2] = {build(lo, raw, VT_OP_IOTA, counts, 0, NULL),
                     build(lo, raw, VT_OP_IOTA, counts, 0, NULL)};
  vt_op_set_i64(at[0]->op, VT_ATTR_IOTA_DIMENSION, i);
  vt_op_set_i64(at[1]->op, VT_ATTR_IOTA_DIMENSION, j);
  vt_value *same = build(lo, raw, VT_OP_COMPARE, truth, 2, at);
  vt_op_set_i64(same->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ);
  vt_op_set_i64(same->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_value *chosen[3] = {same, t->value, build_zeros(lo, raw, type)};
  t->value = build(lo, raw, VT_OP_SELECT, type, 3, chosen);
  sum_over(lo, raw, j, t);
  return true;
}

// Diagonals and sums, until each label occurs once and is also in the result or the other term.
static bool simplify(vt_lower *lo, const vt_raw_op *raw, const term *result, const term *other,
                     term *t) {
  for (uint32_t j = 0; j < t->count;) {
    const char *twin = memchr(t->labels, t->labels[j], j);
    if (twin && !take_diagonal(lo, raw, (uint32_t)(twin - t->labels), j, t)) return false;
    if (!twin) j++;
  }
  for (uint32_t i = 0; i < t->count;) {
    bool wanted = find(result, t->labels[i]) || (other && find(other, t->labels[i]));
    if (wanted)
      i++;
    else
      sum_over(lo, raw, i, t);
  }
  return true;
}

// Transposes the term to the order of the result.
static vt_value *to_result_order(vt_lower *lo, const vt_raw_op *raw, const term *result,
                                 const term *t) {
  int64_t permutation[VT_MAX_RANK], dims[VT_MAX_RANK];
  bool identity = true;
  for (uint32_t i = 0; i < t->count; i++) {
    permutation[i] = find(t, result->labels[i]) - t->labels;
    dims[i] = t->value->type.dims[permutation[i]];
    identity = identity && permutation[i] == i;
  }
  if (identity) return t->value;
  vt_type type = vt_type_make(&lo->module->arena, t->value->type.dtype, (int32_t)t->count, dims);
  vt_value *turned = build(lo, raw, VT_OP_TRANSPOSE, type, 1, &t->value);
  vt_op_set_ints(turned->op, VT_ATTR_PERMUTATION, t->count, permutation);
  return turned;
}

// Batching dimensions first, then those of one term alone, as in dot_general.
static bool build_dot(vt_lower *lo, const vt_raw_op *raw, const term *terms, vt_dtype dtype,
                      term *out) {
  int64_t lists[4][VT_MAX_RANK], dims[VT_MAX_RANK];
  uint32_t batch = 0, contract = 0;
  *out = (term){0};
  for (uint32_t i = 0; i < terms[0].count; i++) {
    char label = terms[0].labels[i];
    const char *other = find(&terms[1], label);
    if (!other) continue;
    bool kept = find(&terms[2], label) != NULL;
    uint32_t *n = kept ? &batch : &contract;
    lists[kept ? 0 : 2][*n] = i;
    lists[kept ? 1 : 3][(*n)++] = other - terms[1].labels;
    if (!kept) continue;
    out->labels[out->count] = label;
    dims[out->count++] = terms[0].value->type.dims[i];
  }
  for (int o = 0; o < 2; o++)
    for (uint32_t i = 0; i < terms[o].count; i++) {
      if (find(&terms[1 - o], terms[o].labels[i])) continue;
      if (out->count == VT_MAX_RANK) return false;
      out->labels[out->count] = terms[o].labels[i];
      dims[out->count++] = terms[o].value->type.dims[i];
    }
  vt_type type = vt_type_make(&lo->module->arena, dtype, (int32_t)out->count, dims);
  vt_value *dot = out->value = build(lo, raw, VT_OP_DOT_GENERAL, type, 2,
                                     (vt_value *const[]){terms[0].value, terms[1].value});
  vt_op_set_ints(dot->op, VT_ATTR_LHS_BATCHING_DIMENSIONS, batch, lists[0]);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_BATCHING_DIMENSIONS, batch, lists[1]);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, contract, lists[2]);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, contract, lists[3]);
  vt_op_set_ints(dot->op, VT_ATTR_PRECISION_CONFIG, 2,
                 (int64_t[]){VT_PRECISION_DEFAULT, VT_PRECISION_DEFAULT});
  return true;
}

vt_status vt_lower_einsum(vt_lower *lo, const vt_raw_op *raw, uint32_t count,
                          vt_value *const *operands, vt_value **out_result) {
  const vt_raw_attr *config = vt_raw_find(raw, "einsum_config");
  bool binary = raw->row->code == VT_OP_EINSUM;
  term terms[3] = {0}, dot = {0};
  vt_type type;
  bool good = config && config->kind == VT_RAW_STRING && count == (binary ? 2 : 1) &&
              raw->result_count == 1;
  VT_TRY(vt_lower_type(lo, raw, raw->results[0].type, &type));
  for (uint32_t o = 0; good && o < count; o++) terms[o].value = operands[o];
  good = good && parse(config->string, count, terms);
  for (uint32_t o = 0; good && o < count; o++)
    good = simplify(lo, raw, &terms[count], binary ? &terms[1 - o] : NULL, &terms[o]);
  if (good && binary) good = build_dot(lo, raw, terms, type.dtype, &dot);
  if (!good)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                          "einsum_config does not fit the operands and the result");
  *out_result = to_result_order(lo, raw, &terms[count], binary ? &dot : &terms[0]);
  return VT_OK;
}
