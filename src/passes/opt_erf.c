// SPDX-License-Identifier: Apache-2.0
// opt_erf.c - the formula as which jaxlib sends erf becomes the op. It is a quotient of polynomials
// in x^2, known by its coefficients:
//
//   c = clamp(x, -4, 4);  erf(x) = clamp(c p(c^2) / q(c^2), -1, 1)
#include "passes/passes.h"
#include "passes/rewrite.h"

// From the highest power down.
static const float above[] = {-2.72614237e-10f, 2.77068146e-08f, -2.10102394e-06f, -5.69250624e-05f,
                              -7.34990637e-04f, -2.9546000e-03f, -1.60960332e-02f};
static const float below[] = {-1.45660715e-05f, -2.13374049e-04f, -1.68282702e-03f,
                              -7.37332925e-03f, -1.42647391e-02f};
enum { ABOVE = sizeof above / sizeof *above, BELOW = sizeof below / sizeof *below };

static const vt_op *made_by(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}

static bool is_square_of(const vt_value *value, const vt_value *x) {
  const vt_op *op = made_by(value, VT_OP_MULTIPLY);
  return op && op->operands[0] == x && op->operands[1] == x;
}

// c[0] y^(count-1) + ... + c[count-1] with y = x^2, by Horner.
static bool is_polynomial(const vt_value *value, const vt_value *x, const float *c, int count) {
  for (int k = count - 1; k > 0; k--) {
    const vt_op *sum = made_by(value, VT_OP_ADD);
    if (!sum) return false;
    bool first = vt_is_splat_of(sum->operands[0], (double)c[k]);
    if (!first && !vt_is_splat_of(sum->operands[1], (double)c[k])) return false;
    const vt_op *product = made_by(sum->operands[first], VT_OP_MULTIPLY);
    if (!product) return false;
    bool square = is_square_of(product->operands[0], x);
    if (!square && !is_square_of(product->operands[1], x)) return false;
    value = product->operands[square];
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
    if (x && is_polynomial(product->operands[!i], c, above, ABOVE) &&
        is_polynomial(quotient->operands[1], c, below, BELOW))
      return x;
  }
  return NULL;
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user;
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    if (op->code != VT_OP_CLAMP) continue;
    vt_value *x = erf_operand(&op->results[0]);
    if (!x) continue;
    vt_value *erf = vt_build(func, op, VT_OP_ERF, op->loc, op->results[0].type, 1, &x);
    vt_rewrite_value(&op->results[0], erf);
    *changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_erf(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                     bool *out_changed) {
  (void)scratch;
  if (options->as_written || !module->made[VT_OP_CLAMP]) return VT_OK;
  return vt_rewrite_each_func(module, visit, out_changed);
}
