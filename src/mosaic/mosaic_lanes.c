// SPDX-License-Identifier: Apache-2.0
// mosaic_lanes.c - elementwise ops of kernels: the loops of src/eval, and what it has no loop for.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

#include "mosaic/mosaic_run.h"

// What the arithmetic of i1 is.
static vt_opcode bool_loop(vt_opcode code) {
  switch ((int)code) {
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
    return VT_OP_XOR;
  case VT_OP_MULTIPLY:
  case VT_OP_MINIMUM:
    return VT_OP_AND;
  case VT_OP_MAXIMUM:
    return VT_OP_OR;
  default:
    return code;
  }
}

// Narrow integers are kept sign-extended: unsigned ops see them zero-extended.
static void zero_extend(vt_dtype dtype, int64_t n, void *data) {
  uint8_t mask = (uint8_t)((1u << vt_dtype_get(dtype)->bits) - 1);
  for (int64_t i = 0; i < n; i++) ((uint8_t *)data)[i] &= mask;
}
static void sign_extend(vt_dtype dtype, int64_t n, void *data) {
  for (int64_t i = 0; i < n; i++) vt_mbits_store(dtype, (uint8_t *)data + i, ((uint8_t *)data)[i]);
}

static bool is_sub_byte(vt_dtype dtype) {
  return dtype == VT_S2 || dtype == VT_S4;
}

// Runs one loop on operands as `in_type` says, for a result of `out_type`.
static vt_status run_loop(const vt_mop *op, vt_opcode code, int64_t direction, uint32_t count,
                          void *const *in, const vt_dtype *in_types, int64_t n, vt_type shape,
                          vt_dtype out_type, void *out) {
  vt_attr attr = {.key = VT_ATTR_COMPARISON_DIRECTION, .count = 1, .i64 = direction};
  vt_op like = {.code = code,
                .operand_count = count,
                .attr_count = code == VT_OP_COMPARE,
                .attrs = &attr,
                .loc = op->loc};
  vt_tensor tensors[3], result = {{out_type, shape.rank, shape.dims}, out};
  for (uint32_t i = 0; i < count; i++)
    tensors[i] = (vt_tensor){{in_types[i], shape.rank, shape.dims}, in[i]};
  return vt_eval_lanes(&like, n, tensors, &result);
}

// The data of an operand; narrow unsigned ones as a copy, to be freed.
static vt_status operand_data(vt_mmachine *m, const vt_mvalue *value, bool as_unsigned, void **out,
                              void **out_copy) {
  int64_t n = vt_mcount(value->type);
  *out = vt_mdata(m, value);
  *out_copy = NULL;
  if (!as_unsigned || !is_sub_byte(value->type.dtype)) return VT_OK;
  VT_TRY(vt_eval_scratch(n, out_copy));
  memcpy(*out_copy, *out, (size_t)n);
  zero_extend(value->type.dtype, n, *out_copy);
  *out = *out_copy;
  return VT_OK;
}

vt_status vt_mosaic_run_lanes(vt_mmachine *m, const vt_mop *op) {
  const vt_mop_info *info = vt_mop_info_get(op->code);
  vt_mtype type = op->results[0].type;
  vt_dtype dtype = info->is_unsigned ? vt_dtype_unsigned(type.dtype) : type.dtype, types[3];
  int64_t n = vt_mcount(type);
  void *in[3], *copies[3] = {NULL}, *out;
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    types[i] = dtype;
    VT_TRY_OUT(operand_data(m, op->operands[i], info->is_unsigned, &in[i], &copies[i]));
  }
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  VT_TRY_OUT(run_loop(op, dtype == VT_PRED ? bool_loop(info->loop) : info->loop, 0,
                      op->operand_count, in, types, n, vt_mtensor_type(type, dtype), dtype, out));
  if (info->is_unsigned && is_sub_byte(type.dtype)) sign_extend(type.dtype, n, out);
out:
  for (uint32_t i = 0; i < op->operand_count; i++) free(copies[i]);
  return st;
}

vt_status vt_mosaic_run_reduce_precision(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  int64_t n = vt_mcount(type);
  vt_attr attrs[] = {vt_mosaic_bits_attr(op, VT_MATTR_EXPONENT_BITS, VT_ATTR_EXPONENT_BITS),
                     vt_mosaic_bits_attr(op, VT_MATTR_MANTISSA_BITS, VT_ATTR_MANTISSA_BITS)};
  vt_op like = {.code = VT_OP_REDUCE_PRECISION,
                .operand_count = 1,
                .attr_count = 2,
                .attrs = attrs,
                .loc = op->loc};
  vt_tensor in = {vt_mtensor_type(type, type.dtype), vt_mdata(m, op->operands[0])}, out = in;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out.data));
  in.data = vt_mdata(m, op->operands[0]);
  return vt_eval_lanes(&like, n, &in, &out);
}

vt_status vt_mosaic_run_constant(vt_mmachine *m, const vt_mop *op) {
  const vt_literal *value = vt_mop_attr(op, VT_MATTR_VALUE)->literal;
  vt_mtype type = op->results[0].type;
  size_t bytes = vt_dtype_bytes(type.dtype);
  void *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  if (value->splat)
    vt_eval_fill(bytes, vt_mcount(type), value->data, out);
  else
    memcpy(out, value->data, bytes * (size_t)vt_mcount(type));
  return VT_OK;
}

vt_status vt_mosaic_run_same(vt_mmachine *m, const vt_mop *op) {
  void *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  vt_mtype type = op->results[0].type;
  memcpy(out, vt_mdata(m, op->operands[0]), vt_dtype_bytes(type.dtype) * (size_t)vt_mcount(type));
  return VT_OK;
}

// ---- comparisons --------------------------------------------------------------------------------

vt_status vt_mosaic_run_compare_int(vt_mmachine *m, const vt_mop *op) {
  static const int64_t directions[] = {VT_CMP_EQ, VT_CMP_NE, VT_CMP_LT, VT_CMP_LE, VT_CMP_GT,
                                       VT_CMP_GE, VT_CMP_LT, VT_CMP_LE, VT_CMP_GT, VT_CMP_GE};
  int64_t predicate = vt_mop_i64(op, VT_MATTR_PREDICATE, 0);
  vt_mtype type = op->operands[0]->type;
  bool is_unsigned = predicate >= 6,
       swapped = type.dtype == VT_PRED && predicate > 1 && !is_unsigned;
  vt_dtype dtype = is_unsigned ? vt_dtype_unsigned(type.dtype) : type.dtype;
  int64_t n = vt_mcount(type);
  void *in[2], *copies[2] = {NULL}, *out;
  vt_status st = VT_OK;
  // As signed numbers true is -1.
  for (uint32_t i = 0; i < 2; i++)
    VT_TRY_OUT(operand_data(m, op->operands[swapped ? 1 - i : i], is_unsigned, &in[i], &copies[i]));
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  st = run_loop(op, VT_OP_COMPARE, directions[predicate], 2, in, (vt_dtype[]){dtype, dtype}, n,
                vt_mtensor_type(type, dtype), VT_PRED, out);
out:
  free(copies[0]);
  free(copies[1]);
  return st;
}

// The predicates that a loop computes are false where an operand is NaN (NE: true). JAX writes
// x != y as `one`, and expects that a NaN differs from everything: it is NE here, as une.
static const struct {
  int8_t direction; // VT_CMP_*; -1: see below
  bool inverted;
} float_predicates[16] = {
    [1] = {VT_CMP_EQ, false},  [2] = {VT_CMP_GT, false}, [3] = {VT_CMP_GE, false},
    [4] = {VT_CMP_LT, false},  [5] = {VT_CMP_LE, false}, [6] = {VT_CMP_NE, false},
    [7] = {-1, false},         [8] = {VT_CMP_NE, true},  [9] = {VT_CMP_LE, true},
    [10] = {VT_CMP_LT, true},  [11] = {VT_CMP_GE, true}, [12] = {VT_CMP_GT, true},
    [13] = {VT_CMP_NE, false}, [14] = {-1, true},
};

// Both equal to themselves: `ord`. `uno` is the opposite.
static vt_status compare_order(const vt_mop *op, int64_t n, vt_type shape, vt_dtype dtype,
                               void *const *in, uint8_t *out) {
  vt_dtype types[2] = {dtype, dtype};
  uint8_t *more = NULL;
  void *same[2][2] = {{in[0], in[0]}, {in[1], in[1]}};
  VT_TRY(vt_eval_scratch(n + 1, &more));
  vt_status st = run_loop(op, VT_OP_COMPARE, VT_CMP_EQ, 2, same[0], types, n, shape, VT_PRED, out);
  if (!st) st = run_loop(op, VT_OP_COMPARE, VT_CMP_EQ, 2, same[1], types, n, shape, VT_PRED, more);
  for (int64_t i = 0; i < n && !st; i++) out[i] &= more[i];
  free(more);
  return st;
}

vt_status vt_mosaic_run_compare_float(vt_mmachine *m, const vt_mop *op) {
  int64_t predicate = vt_mop_i64(op, VT_MATTR_PREDICATE, 0);
  vt_mtype type = op->operands[0]->type;
  int64_t n = vt_mcount(type);
  uint8_t *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  if (predicate == 0 || predicate == 15) {
    memset(out, predicate != 0, (size_t)n);
    return VT_OK;
  }
  void *in[2] = {vt_mdata(m, op->operands[0]), vt_mdata(m, op->operands[1])};
  vt_dtype types[2] = {type.dtype, type.dtype};
  vt_type shape = vt_mtensor_type(type, type.dtype);
  int64_t direction = float_predicates[predicate].direction;
  if (direction < 0)
    VT_TRY(compare_order(op, n, shape, type.dtype, in, out));
  else
    VT_TRY(run_loop(op, VT_OP_COMPARE, direction, 2, in, types, n, shape, VT_PRED, out));
  for (int64_t i = 0; i < n && float_predicates[predicate].inverted; i++) out[i] = !out[i];
  return VT_OK;
}

vt_status vt_mosaic_run_weird(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->operands[0]->type;
  int64_t n = vt_mcount(type);
  uint8_t *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  VT_TRY(run_loop(op, VT_OP_IS_FINITE, 0, 1, (void *[]){vt_mdata(m, op->operands[0])},
                  (vt_dtype[]){type.dtype}, n, vt_mtensor_type(type, type.dtype), VT_PRED, out));
  for (int64_t i = 0; i < n; i++) out[i] = !out[i];
  return VT_OK;
}

vt_status vt_mosaic_run_select(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type, condition = op->operands[0]->type;
  size_t bytes = vt_dtype_bytes(type.dtype);
  int64_t n = vt_mcount(type);
  void *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  if (condition.kind == VT_MSCALAR) {
    const vt_mvalue *chosen = op->operands[vt_mscalar(m, op->operands[0]) ? 1 : 2];
    memcpy(out, vt_mdata(m, chosen), bytes * (size_t)n);
    return VT_OK;
  }
  int log2 = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
  vt_vec()->select[log2](n, vt_mdata(m, op->operands[0]), vt_mdata(m, op->operands[1]),
                         vt_mdata(m, op->operands[2]), out, 0);
  return VT_OK;
}

// ---- conversions --------------------------------------------------------------------------------

vt_status vt_mosaic_run_cast(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  bool is_unsigned = vt_mop_info_get(op->code)->is_unsigned;
  vt_dtype source = is_unsigned ? vt_dtype_unsigned(from.dtype) : from.dtype;
  int64_t n = vt_mcount(from);
  void *in, *copy, *out;
  VT_TRY(operand_data(m, op->operands[0], is_unsigned, &in, &copy));
  vt_status st = VT_OK;
  if (from.dtype == VT_PRED && !is_unsigned) { // true is -1
    VT_TRY(vt_eval_scratch(n, &copy));
    for (int64_t i = 0; i < n; i++) ((int8_t *)copy)[i] = ((const uint8_t *)in)[i] ? -1 : 0;
    in = copy;
    source = VT_S8;
  }
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  st = vt_eval_convert_array(source, to.dtype, n, in, out);
out:
  free(copy);
  return st;
}

vt_status vt_mosaic_run_truncate(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  if (to.dtype != VT_PRED) return vt_mosaic_run_cast(m, op);
  int64_t n = vt_mcount(from);
  size_t bytes = vt_dtype_bytes(from.dtype);
  const uint8_t *in = vt_mdata(m, op->operands[0]);
  uint8_t *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  in = vt_mdata(m, op->operands[0]);
  for (int64_t i = 0; i < n; i++) out[i] = in[(size_t)i * bytes] & 1;
  return VT_OK;
}

vt_status vt_mosaic_run_cast_unsigned(vt_mmachine *m, const vt_mop *op) {
  vt_mtype from = op->operands[0]->type, to = op->results[0].type;
  int64_t n = vt_mcount(from);
  void *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  VT_TRY(vt_eval_convert_array(from.dtype, vt_dtype_unsigned(to.dtype), n,
                               vt_mdata(m, op->operands[0]), out));
  if (is_sub_byte(to.dtype)) sign_extend(to.dtype, n, out);
  return VT_OK;
}

// An array as f32, to be freed.
static vt_status widened(vt_mmachine *m, const vt_mvalue *value, float **out) {
  int64_t n = vt_mcount(value->type);
  VT_TRY(vt_eval_scratch(n * 4 + 4, out));
  return vt_eval_convert_array(value->type.dtype, VT_F32, n, vt_mdata(m, value), *out);
}

vt_status vt_mosaic_run_round_cast(vt_mmachine *m, const vt_mop *op) {
  vt_mtype to = op->results[0].type;
  bool is_unsigned = vt_mop_info_get(op->code)->is_unsigned;
  bool nearest = vt_mop_i64(op, VT_MATTR_ROUNDING_MODE, 0) == VT_MWORD_TO_NEAREST_EVEN;
  int64_t n = vt_mcount(to);
  float *wide = NULL;
  void *out;
  vt_status st = VT_OK;
  VT_TRY_OUT(widened(m, op->operands[0], &wide));
  for (int64_t i = 0; i < n && nearest; i++) wide[i] = rintf(wide[i]);
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  VT_TRY_OUT(vt_eval_convert_array(VT_F32, is_unsigned ? vt_dtype_unsigned(to.dtype) : to.dtype, n,
                                   wide, out));
  if (is_unsigned && is_sub_byte(to.dtype)) sign_extend(to.dtype, n, out);
out:
  free(wide);
  return st;
}

vt_status vt_mosaic_run_bitcast(vt_mmachine *m, const vt_mop *op) {
  return vt_mosaic_run_same(m, op);
}

// ---- formulas without a loop --------------------------------------------------------------------

vt_status vt_mosaic_run_formula(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  int64_t n = vt_mcount(type);
  float *x = NULL;
  void *out;
  vt_status st = VT_OK;
  VT_TRY_OUT(widened(m, op->operands[0], &x));
  for (int64_t i = 0; i < n; i++)
    x[i] = op->code == VT_MOP_EXP2   ? exp2f(x[i])
           : op->code == VT_MOP_LOG2 ? logf(x[i]) * vt_mosaic_log2_e
                                     : 1 / x[i];
  VT_TRY_OUT(vt_mresult_new(m, &op->results[0], &out));
  st = vt_eval_convert_array(VT_F32, type.dtype, n, x, out);
out:
  free(x);
  return st;
}

// ---- packed words -------------------------------------------------------------------------------

vt_status vt_mosaic_run_pack(vt_mmachine *m, const vt_mop *op) {
  vt_dtype target = (vt_dtype)vt_mop_i64(op, VT_MATTR_TARGET_TYPE, 0);
  vt_mtype type = op->results[0].type;
  size_t bytes = vt_dtype_bytes(type.dtype);
  uint32_t width = vt_dtype_get(target)->bits;
  bool is_float = vt_dtype_is_float(target);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  for (int64_t i = 0; i < vt_mcount(type); i++) {
    uint64_t word = 0;
    for (uint32_t k = 0; k < op->operand_count; k++) {
      const char *in = (const char *)vt_mdata(m, op->operands[k]) + (size_t)i * bytes;
      uint64_t code = is_float ? vt_float_encode(target, vt_number_load(VT_F32, in, 0))
                               : vt_mbits_load(type.dtype, in);
      word |= (code & (((uint64_t)1 << width) - 1)) << (k * width);
    }
    vt_mbits_store(type.dtype, out + (size_t)i * bytes, word);
  }
  return VT_OK;
}

vt_status vt_mosaic_run_unpack(vt_mmachine *m, const vt_mop *op) {
  vt_dtype source = (vt_dtype)vt_mop_i64(op, VT_MATTR_SOURCE_TYPE, 0);
  vt_dtype word = op->operands[0]->type.dtype;
  int64_t index = vt_mop_i64(op, VT_MATTR_INDEX, 0), n = vt_mcount(op->results[0].type);
  uint32_t width = vt_dtype_get(source)->bits;
  size_t bytes = vt_dtype_bytes(word);
  bool is_float = vt_dtype_is_float(source);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  const char *in = vt_mdata(m, op->operands[0]);
  for (int64_t i = 0; i < n; i++) {
    uint64_t code = vt_mbits_load(word, in + (size_t)i * bytes) >> ((uint32_t)index * width);
    code &= ((uint64_t)1 << width) - 1;
    if (is_float)
      vt_number_store(VT_F32, out, i, vt_number_load(source, &code, 0));
    else
      vt_mbits_store(word, out + (size_t)i * bytes,
                     (uint64_t)((int64_t)(code << (64 - width)) >> (64 - width)));
  }
  return VT_OK;
}

// ---- random numbers -----------------------------------------------------------------------------

vt_status vt_mosaic_run_seed(vt_mmachine *m, const vt_mop *op) {
  m->seed = 0x243F6A8885A308D3u;
  m->draws = 0;
  for (uint32_t i = 0; i < op->operand_count; i++)
    m->seed = vt_hash_u64((uint64_t)vt_mscalar(m, op->operands[i]) + i, m->seed);
  return VT_OK;
}

// A counter through a mixing function: equal seeds and numbers of draws give equal bits.
vt_status vt_mosaic_run_random(vt_mmachine *m, const vt_mop *op) {
  int64_t n = vt_mcount(op->results[0].type);
  uint32_t *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  for (int64_t i = 0; i < n; i++) {
    uint64_t x = vt_hash_u64(m->draws++, m->seed);
    out[i] = (uint32_t)(x ^ x >> 32);
  }
  return VT_OK;
}

// Random bits below the target's last place are added, the sum is cut off there.
static float round_randomly(uint32_t bits, uint32_t random, int32_t mantissa) {
  uint32_t low = ((uint32_t)1 << (23 - mantissa)) - 1;
  if ((bits & 0x7f800000u) == 0x7f800000u) return vt_f32_from_bits(bits);
  return vt_f32_from_bits((bits + (random & low)) & ~low);
}

static vt_status convert_randomly(vt_mmachine *m, const vt_mop *op, vt_dtype target, bool wide) {
  int64_t n = vt_mcount(op->results[0].type);
  int32_t mantissa = vt_dtype_get(target)->mantissa;
  size_t bytes = vt_dtype_bytes(target);
  char *out;
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  const uint32_t *in = vt_mdata(m, op->operands[0]), *random = vt_mdata(m, op->operands[1]);
  for (int64_t i = 0; i < n; i++) {
    double x = (double)round_randomly(in[i], random[i], mantissa);
    uint32_t code = vt_float_encode(target, x);
    memcpy(out + (size_t)i * (wide ? 4 : bytes), &code, wide ? 4 : bytes);
  }
  return VT_OK;
}

vt_status vt_mosaic_run_stochastic(vt_mmachine *m, const vt_mop *op) {
  return convert_randomly(m, op, op->results[0].type.dtype, false);
}
vt_status vt_mosaic_run_stochastic_each(vt_mmachine *m, const vt_mop *op) {
  return convert_randomly(m, op, (vt_dtype)vt_mop_i64(op, VT_MATTR_DST_TYPE, 0), true);
}
