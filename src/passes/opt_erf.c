// SPDX-License-Identifier: Apache-2.0
// opt_erf.c - the formulas as which jaxlib sends erf and erfc become the ops. They are known by
// their coefficients:
//
//   erf:   c = clamp(x, -4, 4);  erf(x) = clamp(c p(c^2) / q(c^2), -1, 1)
//   erfc:  |x| < 1 ? 1 - x n(x^2) : x < 0 ? 2 - t : t
//          t = -x^2 < -88.7 ? 0 : exp(-x^2) (1 / |x|) (|x| < 2 ? m(1 / x^2) : f(1 / x^2))
#include "passes/passes.h"
#include "passes/rewrite.h"

// From the highest power down.
static const float above[] = {-2.72614237e-10f, 2.77068146e-08f, -2.10102394e-06f, -5.69250624e-05f,
                              -7.34990637e-04f, -2.9546000e-03f, -1.60960332e-02f};
static const float below[] = {-1.45660715e-05f, -2.13374049e-04f, -1.68282702e-03f,
                              -7.37332925e-03f, -1.42647391e-02f};
static const float near[] = {7.85386146e-05f, -8.0101937e-04f,  5.18832775e-03f, -2.68538129e-02f,
                             1.12835854e-01f, -3.76126260e-01f, 1.12837911f};
static const float middle[] = {2.3268200e-02f,   -1.38703942e-01f, 3.68742466e-01f,
                               -5.82473278e-01f, 6.21000469e-01f,  -4.94451523e-01f,
                               3.40488000e-01f,  -2.74112701e-01f, 5.63825965e-01f};
static const float far[] = {-10.477664f,  12.9772f,       -7.49551868f,     2.92101908f,
                            -1.01526523f, 4.2184633e-01f, -2.82076746e-01f, 5.64189494e-01f};
#define COUNT(c) ((int)(sizeof(c) / sizeof *(c)))

static const vt_op *made_by(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}

static bool is_square_of(const vt_value *value, const vt_value *x) {
  const vt_op *op = made_by(value, VT_OP_MULTIPLY);
  return op && op->operands[0] == x && op->operands[1] == x;
}

static bool is_inverse_square_of(const vt_value *value, const vt_value *x) {
  const vt_op *op = made_by(value, VT_OP_DIVIDE);
  return op && vt_is_splat_of(op->operands[0], 1) && is_square_of(op->operands[1], x);
}

// c[0] y^(count-1) + ... + c[count-1] by Horner; `is` says what is y of x.
static bool is_polynomial(const vt_value *value, const vt_value *x, const float *c, int count,
                          bool (*is)(const vt_value *value, const vt_value *x)) {
  for (int k = count - 1; k > 0; k--) {
    const vt_op *sum = made_by(value, VT_OP_ADD);
    if (!sum) return false;
    bool first = vt_is_splat_of(sum->operands[0], (double)c[k]);
    if (!first && !vt_is_splat_of(sum->operands[1], (double)c[k])) return false;
    const vt_op *product = made_by(sum->operands[first], VT_OP_MULTIPLY);
    if (!product) return false;
    bool second = is(product->operands[0], x);
    if (!second && !is(product->operands[1], x)) return false;
    value = product->operands[second];
  }
  return vt_is_splat_of(value, (double)c[0]);
}

// The x of clamp(x, -limit, limit), or NULL.
static vt_value *clamped(const vt_value *value, double limit) {
  const vt_op *op = made_by(value, VT_OP_CLAMP);
  bool is = op && vt_is_splat_of(op->operands[0], -limit) && vt_is_splat_of(op->operands[2], limit);
  return is ? op->operands[1] : NULL;
}

// The x of erf(x), or NULL.
static vt_value *erf_operand(const vt_value *value) {
  const vt_value *inner = value->type.dtype == VT_F32 ? clamped(value, 1) : NULL;
  const vt_op *quotient = inner ? made_by(inner, VT_OP_DIVIDE) : NULL;
  const vt_op *product = quotient ? made_by(quotient->operands[0], VT_OP_MULTIPLY) : NULL;
  if (!product) return NULL;
  for (int i = 0; i < 2; i++) {
    const vt_value *c = product->operands[i];
    vt_value *x = clamped(c, 4);
    if (x && is_polynomial(product->operands[!i], c, above, COUNT(above), is_square_of) &&
        is_polynomial(quotient->operands[1], c, below, COUNT(below), is_square_of))
      return x;
  }
  return NULL;
}

// The operands of this op, or NULL.
static vt_value *const *parts_of(const vt_value *value, vt_opcode code) {
  const vt_op *op = made_by(value, code);
  return op ? op->operands : NULL;
}

// The a of a < limit, or NULL.
static const vt_value *less_than(const vt_value *value, double limit) {
  const vt_op *op = made_by(value, VT_OP_COMPARE);
  bool is = op && vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_LT &&
            vt_is_splat_of(op->operands[1], limit);
  return is ? op->operands[0] : NULL;
}

static bool is_magnitude(const vt_value *value, const vt_value *x) {
  vt_value *const *of = value ? parts_of(value, VT_OP_ABS) : NULL;
  return of && of[0] == x;
}

static bool is_minus_square(const vt_value *value, const vt_value *x) {
  vt_value *const *of = value ? parts_of(value, VT_OP_NEGATE) : NULL;
  return of && is_square_of(of[0], x);
}

// t of the formula above.
static bool is_tail(const vt_value *value, const vt_value *x) {
  vt_value *const *zero = parts_of(value, VT_OP_SELECT);
  if (!zero || !is_minus_square(less_than(zero[0], -88.7228394f), x) || !vt_is_splat_of(zero[1], 0))
    return false;
  vt_value *const *product = parts_of(zero[2], VT_OP_MULTIPLY);
  vt_value *const *scale = product ? parts_of(product[0], VT_OP_MULTIPLY) : NULL;
  vt_value *const *either = product ? parts_of(product[1], VT_OP_SELECT) : NULL;
  if (!scale || !either) return false;
  vt_value *const *power = parts_of(scale[0], VT_OP_EXPONENTIAL);
  vt_value *const *inverse = parts_of(scale[1], VT_OP_DIVIDE);
  return power && inverse && is_minus_square(power[0], x) && vt_is_splat_of(inverse[0], 1) &&
         is_magnitude(inverse[1], x) && is_magnitude(less_than(either[0], 2), x) &&
         is_polynomial(either[1], x, middle, COUNT(middle), is_inverse_square_of) &&
         is_polynomial(either[2], x, far, COUNT(far), is_inverse_square_of);
}

// The x of erfc(x), or NULL.
static vt_value *erfc_operand(const vt_value *value) {
  vt_value *const *all = value->type.dtype == VT_F32 ? parts_of(value, VT_OP_SELECT) : NULL;
  vt_value *const *inner = all ? parts_of(all[1], VT_OP_SUBTRACT) : NULL;
  vt_value *const *outer = all ? parts_of(all[2], VT_OP_SELECT) : NULL;
  if (!inner || !outer || !vt_is_splat_of(inner[0], 1)) return NULL;
  vt_value *const *product = parts_of(inner[1], VT_OP_MULTIPLY);
  vt_value *const *mirrored = parts_of(outer[1], VT_OP_SUBTRACT);
  if (!product || !mirrored || !vt_is_splat_of(mirrored[0], 2) || mirrored[1] != outer[2])
    return NULL;
  vt_value *x = product[0];
  bool is = is_magnitude(less_than(all[0], 1), x) && less_than(outer[0], 0) == x &&
            is_polynomial(product[1], x, near, COUNT(near), is_square_of) && is_tail(outer[2], x);
  return is ? x : NULL;
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user, any = false;
  for (vt_op *op = func->first; op; op = op->next) {
    if (any) vt_rewrite_operands(op);
    vt_value *x = op->code == VT_OP_CLAMP    ? erf_operand(&op->results[0])
                  : op->code == VT_OP_SELECT ? erfc_operand(&op->results[0])
                                             : NULL;
    if (!x) continue;
    vt_opcode code = op->code == VT_OP_CLAMP ? VT_OP_ERF : VT_OP_ERFC;
    vt_value *made = vt_build(func, op, code, op->loc, op->results[0].type, 1, &x);
    vt_rewrite_value(&op->results[0], made);
    any = *changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_erf(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                     bool *out_changed) {
  (void)scratch;
  bool can_erfc = module->made[VT_OP_SELECT] && module->made[VT_OP_EXPONENTIAL];
  if (options->as_written || !(module->made[VT_OP_CLAMP] || can_erfc)) return VT_OK;
  return vt_rewrite_each_func(module, visit, out_changed);
}
