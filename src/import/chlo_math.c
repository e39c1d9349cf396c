// SPDX-License-Identifier: Apache-2.0
// chlo_math.c - CHLO's functions in StableHLO's arithmetic.
//
// The Chebyshev sums were fitted with 40 digits to the function named with each; f32 takes the
// terms that are distinguishable from zero. Complex functions follow W. Kahan, "Branch cuts for
// complex elementary functions" (1987).
#include <math.h>
#include <string.h>

#include "import/chlo.h"

#define PI 3.14159265358979323846

static vt_value *num(vt_chlo *c, double v) {
  return vt_chlo_number(c, v);
}
static vt_value *add(vt_chlo *c, vt_value *x, vt_value *y) {
  return vt_chlo_op(c, VT_OP_ADD, x, y);
}
static vt_value *sub(vt_chlo *c, vt_value *x, vt_value *y) {
  return vt_chlo_op(c, VT_OP_SUBTRACT, x, y);
}
static vt_value *mul(vt_chlo *c, vt_value *x, vt_value *y) {
  return vt_chlo_op(c, VT_OP_MULTIPLY, x, y);
}
static vt_value *quot(vt_chlo *c, vt_value *x, vt_value *y) {
  return vt_chlo_op(c, VT_OP_DIVIDE, x, y);
}
static vt_value *neg(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_NEGATE, x, NULL);
}
static vt_value *absolute(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_ABS, x, NULL);
}
static vt_value *root(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_SQRT, x, NULL);
}
static vt_value *exponential(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_EXPONENTIAL, x, NULL);
}
static vt_value *logarithm(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_LOG, x, NULL);
}
static vt_value *log_plus_one(vt_chlo *c, vt_value *x) {
  return vt_chlo_op(c, VT_OP_LOG_PLUS_ONE, x, NULL);
}
static vt_value *plus(vt_chlo *c, vt_value *x, double v) {
  return add(c, x, num(c, v));
}
static vt_value *times(vt_chlo *c, vt_value *x, double v) {
  return mul(c, x, num(c, v));
}
static vt_value *square(vt_chlo *c, vt_value *x) {
  return mul(c, x, x);
}
static vt_value *less(vt_chlo *c, vt_value *x, double v) {
  return vt_chlo_compare(c, VT_CMP_LT, x, num(c, v));
}
// The sign of `sign` on the magnitude x.
static vt_value *with_sign(vt_chlo *c, vt_value *x, vt_value *sign) {
  return vt_chlo_select(c, less(c, sign, 0), neg(c, x), x);
}
static bool is_wide(const vt_chlo *c) {
  return c->type.dtype == VT_F64;
}

// a[0] / 2 + a[1] T1(t) + a[2] T2(t) + ... (Clenshaw)
static vt_value *chebyshev(vt_chlo *c, vt_value *t, const double *a, int count) {
  vt_value *twice = add(c, t, t), *b1 = num(c, a[count - 1]), *b2 = num(c, 0);
  for (int k = count - 2; k > 0; k--) {
    vt_value *b = plus(c, sub(c, mul(c, twice, b1), b2), a[k]);
    b2 = b1;
    b1 = b;
  }
  return plus(c, sub(c, mul(c, t, b1), b2), a[0] / 2);
}

// a[0] x^(count-1) + ... + a[count-1] (Horner)
static vt_value *polynomial(vt_chlo *c, vt_value *x, const double *a, int count) {
  vt_value *sum = num(c, a[0]);
  for (int k = 1; k < count; k++) sum = plus(c, mul(c, sum, x), a[k]);
  return sum;
}

// ---- inverse circular and hyperbolic ------------------------------------------------------------

static vt_value *arc_tangent(vt_chlo *c, vt_value *y, vt_value *x) {
  return vt_chlo_op(c, VT_OP_ATAN2, y, x);
}
// sqrt(1 - x^2)
static vt_value *opposite(vt_chlo *c, vt_value *x) {
  return root(c, mul(c, sub(c, num(c, 1), x), plus(c, x, 1)));
}
static vt_value *acos_of(vt_chlo *c, vt_value *x, vt_value *y) {
  (void)y;
  return arc_tangent(c, opposite(c, x), x);
}
static vt_value *asin_of(vt_chlo *c, vt_value *x, vt_value *y) {
  (void)y;
  return arc_tangent(c, x, opposite(c, x));
}
static vt_value *atan_of(vt_chlo *c, vt_value *x, vt_value *y) {
  (void)y;
  return arc_tangent(c, x, num(c, 1));
}

// e = exp(|x|) - 1: (e + e / (e + 1)) / 2, and where e overflows exp(|x| / 2)^2 / 2.
static vt_value *sinh_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_value *size = absolute(c, x);
  vt_value *e = vt_chlo_op(c, VT_OP_EXPONENTIAL_MINUS_ONE, size, NULL);
  vt_value *near = times(c, add(c, e, quot(c, e, plus(c, e, 1))), 0.5);
  vt_value *half = exponential(c, times(c, size, 0.5));
  vt_value *far = mul(c, times(c, half, 0.5), half);
  (void)y;
  return with_sign(c, vt_chlo_select(c, less(c, size, is_wide(c) ? 20 : 10), near, far), x);
}

// e = exp(|x|): (e + 1 / e) / 2, and where e overflows exp(|x| / 2)^2 / 2.
static vt_value *cosh_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_value *size = absolute(c, x), *is_near = less(c, size, is_wide(c) ? 20 : 10);
  vt_value *e = exponential(c, vt_chlo_select(c, is_near, size, times(c, size, 0.5)));
  vt_value *near = times(c, add(c, e, quot(c, num(c, 1), e)), 0.5);
  vt_value *far = mul(c, times(c, e, 0.5), e);
  (void)y;
  return vt_chlo_select(c, is_near, near, far);
}

// log1p(a + a^2 / (1 + sqrt(a^2 + 1))), and log(a) + log(2) where a^2 would overflow.
static vt_value *asinh_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_value *a = absolute(c, x), *aa = square(c, a);
  vt_value *near = log_plus_one(c, add(c, a, quot(c, aa, plus(c, root(c, plus(c, aa, 1)), 1))));
  vt_value *far = plus(c, logarithm(c, a), M_LN2);
  (void)y;
  return with_sign(c, vt_chlo_select(c, less(c, a, is_wide(c) ? 1e10 : 1e5), near, far), x);
}

// d = x - 1: log1p(d + sqrt(d) sqrt(d + 2)), which is NaN below 1
static vt_value *acosh_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_value *d = plus(c, x, -1);
  vt_value *near = log_plus_one(c, add(c, d, mul(c, root(c, d), root(c, plus(c, d, 2)))));
  vt_value *far = plus(c, logarithm(c, x), M_LN2);
  (void)y;
  return vt_chlo_select(c, less(c, x, is_wide(c) ? 1e10 : 1e5), near, far);
}

static vt_value *atanh_of(vt_chlo *c, vt_value *x, vt_value *y) {
  (void)y;
  return times(c, sub(c, log_plus_one(c, x), log_plus_one(c, neg(c, x))), 0.5);
}

// ---- error functions ----------------------------------------------------------------------------

// M. Giles, "Approximating the erfinv function" (2010), single precision; f64 adds two steps of
// Halley's method on the smaller of erf and erfc.
static vt_value *erf_inv_of(vt_chlo *c, vt_value *x, vt_value *y) {
  static const double middle[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                  -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                  -0.00417768164,  0.246640727,    1.50140941};
  static const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                -0.00367342844,  0.00573950773,  -0.0076224613,
                                0.00943887047,   1.00167406,     2.83297682};
  vt_value *a = absolute(c, x), *rest = sub(c, num(c, 1), a);
  vt_value *w = neg(c, add(c, log_plus_one(c, neg(c, a)), log_plus_one(c, a)));
  vt_value *r = vt_chlo_select(c, less(c, w, 5), polynomial(c, plus(c, w, -2.5), middle, 9),
                               polynomial(c, plus(c, root(c, w), -3), tail, 9));
  r = mul(c, r, a);
  for (int step = 0; step < (is_wide(c) ? 2 : 0); step++) {
    vt_value *near = sub(c, vt_chlo_op(c, VT_OP_ERF, r, NULL), a);
    vt_value *far = sub(c, rest, vt_chlo_op(c, VT_OP_ERFC, r, NULL));
    vt_value *gap = vt_chlo_select(c, less(c, a, 0.5), near, far);
    vt_value *e = mul(c, times(c, gap, sqrt(PI) / 2), exponential(c, square(c, r)));
    r = sub(c, r, quot(c, e, plus(c, mul(c, r, e), 1)));
  }
  vt_value *one = vt_chlo_compare(c, VT_CMP_EQ, a, num(c, 1));
  (void)y;
  return with_sign(c, vt_chlo_select(c, one, num(c, INFINITY), r), x);
}

// ---- gamma functions ----------------------------------------------------------------------------

// x - round(x), which is zero at the integers and exact elsewhere.
static vt_value *off_integer(vt_chlo *c, vt_value *x) {
  return sub(c, x, vt_chlo_op(c, VT_OP_ROUND_NEAREST_EVEN, x, NULL));
}

// Lanczos, g = 7 and nine terms (P. Godfrey), for z + 1 with z >= -0.5.
static vt_value *lgamma_right(vt_chlo *c, vt_value *z) {
  static const double terms[] = {676.5203681218851,     -1259.1392167224028,  771.32342877765313,
                                 -176.61502916214059,   12.507343278686905,   -0.13857109526572012,
                                 9.9843695780195716e-6, 1.5056327351493116e-7};
  vt_value *sum = num(c, 0.99999999999980993);
  for (int k = 0; k < 8; k++) sum = add(c, sum, quot(c, num(c, terms[k]), plus(c, z, k + 1)));
  // (z + 0.5) log(t) - t with t = z + 7.5, rearranged to avoid cancellation
  vt_value *log_t = plus(c, log_plus_one(c, times(c, z, 1 / 7.5)), log(7.5));
  vt_value *t = plus(c, z, 7.5);
  vt_value *main = mul(c, sub(c, plus(c, z, 0.5), quot(c, t, log_t)), log_t);
  return add(c, plus(c, main, log(2 * PI) / 2), logarithm(c, sum));
}

static vt_value *lgamma_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_value *left = less(c, x, 0.5);
  vt_value *z = vt_chlo_select(c, left, neg(c, x), plus(c, x, -1));
  vt_value *right = lgamma_right(c, z);
  vt_value *sine = vt_chlo_op(c, VT_OP_SINE, times(c, absolute(c, off_integer(c, x)), PI), NULL);
  vt_value *mirror = sub(c, sub(c, num(c, log(PI)), logarithm(c, sine)), right);
  vt_value *infinite = vt_chlo_compare(c, VT_CMP_EQ, absolute(c, x), num(c, INFINITY));
  (void)y;
  return vt_chlo_select(c, infinite, num(c, INFINITY), vt_chlo_select(c, left, mirror, right));
}

// Eight steps up, then the asymptotic series; reflection on the left.
static vt_value *digamma_of(vt_chlo *c, vt_value *x, vt_value *y) {
  static const double series[] = {1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                                  1.0 / 252, -1.0 / 120,     1.0 / 12};
  vt_value *left = less(c, x, 0.5);
  vt_value *z = vt_chlo_select(c, left, sub(c, num(c, 1), x), x), *steps = quot(c, num(c, 1), z);
  for (int k = 1; k < 8; k++) steps = add(c, steps, quot(c, num(c, 1), plus(c, z, k)));
  vt_value *w = plus(c, z, 8), *v = quot(c, num(c, 1), w), *vv = square(c, v);
  vt_value *tail = add(c, times(c, v, 0.5), mul(c, vv, polynomial(c, vv, series, 7)));
  vt_value *right = sub(c, sub(c, logarithm(c, w), tail), steps);
  vt_value *angle = times(c, off_integer(c, x), PI);
  vt_value *cotangent = quot(c, num(c, PI), vt_chlo_op(c, VT_OP_TAN, angle, NULL));
  vt_value *mirror = sub(c, right, cotangent);
  vt_value *pole = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, x), num(c, 0));
  (void)y;
  return vt_chlo_select(c, left, vt_chlo_select(c, pole, num(c, NAN), mirror), right);
}

// Hurwitz's zeta by Euler-Maclaurin: nine terms, the integral, twelve corrections. Below zero only
// where the powers are real: even x, q not an integer.
static vt_value *zeta_of(vt_chlo *c, vt_value *x, vt_value *q) {
  // B(2k) / (2k)!
  static const double corrections[] = {1.0 / 12,
                                       -1.0 / 720,
                                       1.0 / 30240,
                                       -1.0 / 1209600,
                                       1.0 / 47900160,
                                       -5.2841901386874931848e-10,
                                       1.3382536530684678833e-11,
                                       -3.3896802963225828668e-13,
                                       8.5860620562778445641e-15,
                                       -2.1748686985580618730e-16,
                                       5.5090028283602295153e-18,
                                       -1.3954464685812523341e-19};
  vt_value *down = neg(c, x), *sum = vt_chlo_op(c, VT_OP_POWER, q, down);
  for (int k = 1; k < 9; k++) sum = add(c, sum, vt_chlo_op(c, VT_OP_POWER, plus(c, q, k), down));
  vt_value *a = plus(c, q, 9), *power = vt_chlo_op(c, VT_OP_POWER, a, down);
  sum = add(c, sum, quot(c, mul(c, power, a), plus(c, x, -1)));
  sum = add(c, sum, times(c, power, 0.5));
  vt_value *factor = quot(c, mul(c, x, power), a), *aa = square(c, a);
  for (int k = 0; k < 12; k++) {
    sum = add(c, sum, times(c, factor, corrections[k]));
    factor = quot(c, mul(c, factor, mul(c, plus(c, x, 2 * k + 1), plus(c, x, 2 * k + 2))), aa);
  }
  vt_value *whole_q = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, q), num(c, 0));
  vt_value *even_x = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, times(c, x, 0.5)), num(c, 0));
  vt_value *whole_x = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, x), num(c, 0));
  vt_value *nan = num(c, NAN), *infinity = num(c, INFINITY);
  sum = vt_chlo_select(c, less(c, x, 1), nan, sum);
  vt_value *pole = vt_chlo_select(c, even_x, infinity, nan);
  vt_value *left = vt_chlo_select(c, whole_q, pole, vt_chlo_select(c, whole_x, sum, nan));
  sum = vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_LE, q, num(c, 0)), left, sum);
  return vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_EQ, x, num(c, 1)), infinity, sum);
}

// (-1)^(n+1) n! zeta(n + 1, x)
static vt_value *polygamma_of(vt_chlo *c, vt_value *n, vt_value *x) {
  vt_value *up = plus(c, n, 1), *zeta = zeta_of(c, up, x);
  vt_value *size = mul(c, exponential(c, lgamma_of(c, up, NULL)), zeta);
  vt_value *even = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, times(c, n, 0.5)), num(c, 0));
  vt_value *some = vt_chlo_select(c, even, neg(c, size), size);
  vt_value *whole = vt_chlo_compare(c, VT_CMP_EQ, off_integer(c, n), num(c, 0));
  vt_value *valid =
      vt_chlo_select(c, less(c, n, 0), num(c, NAN), vt_chlo_select(c, whole, some, num(c, NAN)));
  return vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_EQ, n, num(c, 0)), digamma_of(c, x, NULL),
                        valid);
}

// ---- Bessel -------------------------------------------------------------------------------------

// exp(-|x|) I1(x): over x / 4 - 1 up to 8 (divided by x), over 16 / x - 1 beyond (times sqrt(x)).
static vt_value *bessel_i1e_of(vt_chlo *c, vt_value *x, vt_value *y) {
  static const double near_terms[] = {
      2.52587186443633655e-1,   -1.76416518357834055e-1,  1.02643658689847095e-1,
      -5.29459812080949914e-2,  2.47264490306265168e-2,   -1.05640848946261982e-2,
      4.15642294431288816e-3,   -1.51357245063125315e-3,  5.12285956168575773e-4,
      -1.61760815825896746e-4,  4.78156510755005423e-5,   -1.32731636560394358e-5,
      3.47025130813767848e-6,   -8.56872026469545474e-7,  2.00329475355213526e-7,
      -4.44505912879632808e-8,  9.38153738649577178e-9,   -1.88724975172282929e-9,
      3.62559028155211704e-10,  -6.66348972350202774e-11, 1.17361862988909016e-11,
      -1.98397439776494372e-12, 3.22379336594557471e-13,  -5.04218550472791169e-14,
      7.60068429473540693e-15,  -1.10559694773538631e-15, 1.55363195773620047e-16,
      -2.11142121435816608e-17};
  static const double far_terms[] = {
      7.7857623501828012e-1,    -9.76109749136146841e-3,  -1.10588938762623716e-4,
      -3.88256480887769039e-6,  -2.51223623787020893e-7,  -2.63146884688951951e-8,
      -3.83538038596423702e-9,  -5.58974346219658381e-10, -1.89749581235054123e-11,
      3.25260358301548824e-11,  1.41258074366137813e-11,  2.03562854414708951e-12,
      -7.19855177624590851e-13, -4.08355111109219732e-13, -2.10154184277266431e-14,
      4.27244001671195135e-14,  1.04202769841288028e-14,  -3.8144030724370078e-15,
      -1.88035477551078245e-15, 3.30820231092092828e-16,  2.96262899764595014e-16,
      -3.20952592199342396e-17, -4.65030536848935833e-17, 4.41434832307170795e-18,
      7.51729631084210481e-18};
  vt_value *a = absolute(c, x);
  vt_value *near =
      mul(c, a, chebyshev(c, plus(c, times(c, a, 0.25), -1), near_terms, is_wide(c) ? 28 : 18));
  vt_value *far =
      quot(c, chebyshev(c, plus(c, quot(c, num(c, 16), a), -1), far_terms, is_wide(c) ? 25 : 8),
           root(c, a));
  (void)y;
  return with_sign(c, vt_chlo_select(c, less(c, a, 8), near, far), x);
}

// ---- complex numbers ----------------------------------------------------------------------------

// The principal root.
static vt_chlo_pair complex_root(vt_chlo *c, vt_value *re, vt_value *im) {
  vt_type type = c->type;
  type.dtype = is_wide(c) ? VT_C128 : VT_C64;
  vt_value *z = vt_build(c->func, NULL, VT_OP_COMPLEX, c->loc, type, 2, (vt_value *[]){re, im});
  z = vt_build(c->func, NULL, VT_OP_SQRT, c->loc, type, 1, &z);
  return (vt_chlo_pair){vt_chlo_to(c, VT_OP_REAL, c->type.dtype, z),
                        vt_chlo_to(c, VT_OP_IMAG, c->type.dtype, z)};
}

// sqrt(1 - z) and sqrt(1 + z)
static void roots_around(vt_chlo *c, vt_chlo_pair z, vt_chlo_pair *less_root,
                         vt_chlo_pair *more_root) {
  *less_root = complex_root(c, sub(c, num(c, 1), z.re), neg(c, z.im));
  *more_root = complex_root(c, plus(c, z.re, 1), z.im);
}

static vt_chlo_pair complex_acos(vt_chlo *c, vt_chlo_pair z) {
  vt_chlo_pair s, t;
  roots_around(c, z, &s, &t);
  vt_value *re = times(c, arc_tangent(c, s.re, t.re), 2);
  vt_value *im = sub(c, mul(c, t.re, s.im), mul(c, t.im, s.re));
  return (vt_chlo_pair){re, asinh_of(c, im, NULL)};
}

static vt_chlo_pair complex_asin(vt_chlo *c, vt_chlo_pair z) {
  vt_chlo_pair s, t;
  roots_around(c, z, &s, &t);
  vt_value *product = sub(c, mul(c, s.re, t.re), mul(c, s.im, t.im));
  vt_value *im = sub(c, mul(c, s.re, t.im), mul(c, s.im, t.re));
  return (vt_chlo_pair){arc_tangent(c, z.re, product), asinh_of(c, im, NULL)};
}

static vt_chlo_pair complex_acosh(vt_chlo *c, vt_chlo_pair z) {
  vt_chlo_pair s = complex_root(c, plus(c, z.re, -1), z.im);
  vt_chlo_pair t = complex_root(c, plus(c, z.re, 1), z.im);
  vt_value *re = add(c, mul(c, s.re, t.re), mul(c, s.im, t.im));
  return (vt_chlo_pair){asinh_of(c, re, NULL), times(c, arc_tangent(c, s.im, t.re), 2)};
}

// asinh(z) = i asin(-i z)
static vt_chlo_pair complex_asinh(vt_chlo *c, vt_chlo_pair z) {
  vt_chlo_pair w = complex_asin(c, (vt_chlo_pair){z.im, neg(c, z.re)});
  return (vt_chlo_pair){neg(c, w.im), w.re};
}

static vt_chlo_pair complex_atanh(vt_chlo *c, vt_chlo_pair z) {
  vt_value *a = sub(c, num(c, 1), z.re), *yy = square(c, z.im);
  vt_value *ratio = quot(c, times(c, z.re, 4), add(c, square(c, a), yy));
  vt_value *down = sub(c, mul(c, a, plus(c, z.re, 1)), yy);
  vt_value *angle = arc_tangent(c, times(c, z.im, 2), down);
  return (vt_chlo_pair){times(c, log_plus_one(c, ratio), 0.25), times(c, angle, 0.5)};
}

// atan(z) = -i atanh(i z)
static vt_chlo_pair complex_atan(vt_chlo *c, vt_chlo_pair z) {
  vt_chlo_pair w = complex_atanh(c, (vt_chlo_pair){neg(c, z.im), z.re});
  return (vt_chlo_pair){w.im, neg(c, w.re)};
}

static vt_chlo_pair complex_sinh(vt_chlo *c, vt_chlo_pair z) {
  vt_value *cosine = vt_chlo_op(c, VT_OP_COSINE, z.im, NULL);
  vt_value *sine = vt_chlo_op(c, VT_OP_SINE, z.im, NULL);
  return (vt_chlo_pair){mul(c, sinh_of(c, z.re, NULL), cosine),
                        mul(c, cosh_of(c, z.re, NULL), sine)};
}

static vt_chlo_pair complex_cosh(vt_chlo *c, vt_chlo_pair z) {
  vt_value *cosine = vt_chlo_op(c, VT_OP_COSINE, z.im, NULL);
  vt_value *sine = vt_chlo_op(c, VT_OP_SINE, z.im, NULL);
  return (vt_chlo_pair){mul(c, cosh_of(c, z.re, NULL), cosine),
                        mul(c, sinh_of(c, z.re, NULL), sine)};
}

static const vt_chlo_function functions[] = {
    {"acos", 1, acos_of, complex_acos, VT_OP_SINE},
    {"acosh", 1, acosh_of, complex_acosh, VT_OP_SINE},
    {"asin", 1, asin_of, complex_asin, VT_OP_SINE},
    {"asinh", 1, asinh_of, complex_asinh, VT_OP_SINE},
    {"atan", 1, atan_of, complex_atan, VT_OP_SINE},
    {"atanh", 1, atanh_of, complex_atanh, VT_OP_LOG_PLUS_ONE},
    {"bessel_i1e", 1, bessel_i1e_of, NULL, VT_OP_SINE},
    {"cosh", 1, cosh_of, complex_cosh, VT_OP_LOGISTIC},
    {"digamma", 1, digamma_of, NULL, VT_OP_SINE},
    {"erf_inv", 1, erf_inv_of, NULL, VT_OP_SINE},
    {"lgamma", 1, lgamma_of, NULL, VT_OP_SINE},
    {"polygamma", 2, polygamma_of, NULL, VT_OP_ATAN2},
    {"sinh", 1, sinh_of, complex_sinh, VT_OP_LOGISTIC},
    {"zeta", 2, zeta_of, NULL, VT_OP_ATAN2}};

const vt_chlo_function *vt_chlo_find_function(vt_string name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (name.size == strlen(functions[i].name) && !memcmp(name.data, functions[i].name, name.size))
      return &functions[i];
  return NULL;
}
