// SPDX-License-Identifier: Apache-2.0
// opt_algebra.c - algebra over real numbers with visible effects: different digits, or a number
// instead of an infinity or a NaN. XLA applies these rewrites under its default flags on every back
// end, so log(exp(100)) is 100 on a TPU. docs/algebra.md says which of XLA's are here, which are
// not, and how that was determined.
//
// In:  functions without calls. Out: the same for real numbers. An inner operation with other
// readers, including the caller, stays for those. Element types f16, bf16, f32, f64.
// Evaluator-only programs and reference comparisons (vt_pass_options.as_written) skip the pass.
#include <string.h>

#include "base/check.h"
#include "ir/number.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MAX_ROUNDS = 8 };

typedef struct algebra {
  vt_func *func;
  const uint32_t *uses; // by value id; values created in this round have none
  int32_t count;
} algebra;

// The value that a rule replaces an op with; NULL = no match.
typedef vt_value *rule(const algebra *a, vt_op *op);

static bool is_real(vt_type type) {
  return type.dtype == VT_F16 || type.dtype == VT_BF16 || type.dtype == VT_F32 ||
         type.dtype == VT_F64;
}

// Values created by a rule get an id that no value of the round has.
static bool is_new(const algebra *a, const vt_value *value) {
  return value->id >= a->count;
}

static vt_value *make(const algebra *a, vt_op *before, vt_opcode code, vt_type type, vt_value *x,
                      vt_value *y) {
  vt_assert(x->func == before->func && (!y || y->func == before->func));
  vt_value *operands[2] = {x, y};
  vt_value *value = vt_build(before->func, before, code, before->loc, type, y ? 2 : 1, operands);
  value->id = a->count;
  return value;
}
static vt_value *make1(const algebra *a, vt_op *before, vt_opcode code, vt_value *x) {
  return make(a, before, code, before->results[0].type, x, NULL);
}
static vt_value *make2(const algebra *a, vt_op *before, vt_opcode code, vt_value *x, vt_value *y) {
  return make(a, before, code, before->results[0].type, x, y);
}

static vt_value *spread(const algebra *a, vt_op *before, vt_value *scalar, vt_type type) {
  if (type.rank == 0) return scalar;
  vt_value *value = make(a, before, VT_OP_BROADCAST_IN_DIM, type, scalar, NULL);
  vt_op_set_ints(value->op, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
  return value;
}

// A splat of the number, rounded to the element type of `type`.
static vt_value *number(const algebra *a, vt_op *before, vt_type type, double value) {
  vt_value *scalar = vt_build_number(before, (vt_type){.dtype = type.dtype}, value);
  scalar->id = a->count;
  return spread(a, before, scalar, type);
}

static bool is_number(const vt_value *value, double *out) {
  return is_real(value->type) && vt_is_number(value, out);
}
static bool is_the_number(const vt_value *value, double wanted) {
  double found;
  return is_number(value, &found) && found == wanted;
}

// The value's defining op; NULL when it has another opcode.
static vt_op *inner(const vt_value *value, vt_opcode code) {
  return value->op && value->op->code == code ? value->op : NULL;
}
static bool used_once(const algebra *a, const vt_value *value) {
  vt_assert(is_new(a, value) || value->id >= 0);
  return is_new(a, value) || a->uses[value->id] == 1;
}

// Rules -------------------------------------------------------------------------------------------

static vt_value *log_of_exp(const algebra *a, vt_op *op) {
  (void)a; // rules have one signature
  vt_op *exp = inner(op->operands[0], VT_OP_EXPONENTIAL);
  return exp ? exp->operands[0] : NULL;
}

// log(x^y) = y log|x|, 0 where y is 0
static vt_value *log_of_power(const algebra *a, vt_op *op) {
  vt_op *power = inner(op->operands[0], VT_OP_POWER);
  if (!power) return NULL;
  vt_value *y = power->operands[1];
  double known;
  vt_value *size = make1(a, op, VT_OP_ABS, power->operands[0]);
  vt_value *product = make2(a, op, VT_OP_MULTIPLY, make1(a, op, VT_OP_LOG, size), y);
  if (is_number(y, &known)) return known == 0 ? number(a, op, y->type, 0) : product;
  vt_type truth = {VT_PRED, y->type.rank, y->type.dims};
  vt_value *zero = number(a, op, y->type, 0);
  vt_value *none = make(a, op, VT_OP_COMPARE, truth, y, zero);
  vt_op_set_i64(none->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ);
  vt_op_set_i64(none->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_FLOAT);
  vt_value *result = vt_build(op->func, op, VT_OP_SELECT, op->loc, y->type, 3,
                              (vt_value *[]){none, zero, product});
  result->id = a->count;
  return result;
}

static vt_value *log_of_root(const algebra *a, vt_op *op) {
  vt_op *root = inner(op->operands[0], VT_OP_SQRT);
  vt_op *inverse = inner(op->operands[0], VT_OP_RSQRT);
  if (!root && !inverse) return NULL;
  vt_value *log = make1(a, op, VT_OP_LOG, (root ? root : inverse)->operands[0]);
  return make2(a, op, VT_OP_MULTIPLY, log, number(a, op, log->type, root ? 0.5 : -0.5));
}

static vt_value *power_of_number(const algebra *a, vt_op *op) {
  vt_value *x = op->operands[0];
  double y;
  if (!is_number(op->operands[1], &y)) return NULL;
  if (y == 0) return number(a, op, x->type, 1);
  if (y == 1) return x;
  if (y == 2) return make2(a, op, VT_OP_MULTIPLY, x, x);
  if (y == 3) return make2(a, op, VT_OP_MULTIPLY, x, make2(a, op, VT_OP_MULTIPLY, x, x));
  if (y == -1) return make2(a, op, VT_OP_DIVIDE, number(a, op, x->type, 1), x);
  return NULL;
}

static vt_value *power_of_exp(const algebra *a, vt_op *op) {
  vt_op *exp = inner(op->operands[0], VT_OP_EXPONENTIAL);
  if (!exp) return NULL;
  vt_value *product = make2(a, op, VT_OP_MULTIPLY, exp->operands[0], op->operands[1]);
  return make1(a, op, VT_OP_EXPONENTIAL, product);
}

static vt_value *product_of_exps(const algebra *a, vt_op *op) {
  vt_op *x = inner(op->operands[0], VT_OP_EXPONENTIAL);
  vt_op *y = inner(op->operands[1], VT_OP_EXPONENTIAL);
  if (!x || !y) return NULL;
  vt_value *sum = make2(a, op, VT_OP_ADD, x->operands[0], y->operands[0]);
  return make1(a, op, VT_OP_EXPONENTIAL, sum);
}

static vt_value *quotient_by_exp(const algebra *a, vt_op *op) {
  vt_op *y = inner(op->operands[1], VT_OP_EXPONENTIAL);
  vt_op *x = inner(op->operands[0], VT_OP_EXPONENTIAL);
  if (!y) return NULL;
  if (x) {
    vt_value *difference = make2(a, op, VT_OP_SUBTRACT, x->operands[0], y->operands[0]);
    return make1(a, op, VT_OP_EXPONENTIAL, difference);
  }
  vt_value *exp = make1(a, op, VT_OP_EXPONENTIAL, make1(a, op, VT_OP_NEGATE, y->operands[0]));
  return make2(a, op, VT_OP_MULTIPLY, op->operands[0], exp);
}

static vt_value *quotient_by_power(const algebra *a, vt_op *op) {
  vt_op *y = inner(op->operands[1], VT_OP_POWER);
  if (!y) return NULL;
  double known;
  vt_value *negated = is_number(y->operands[1], &known)
                          ? number(a, op, op->results[0].type, -known)
                          : make1(a, op, VT_OP_NEGATE, y->operands[1]);
  vt_value *power = make2(a, op, VT_OP_POWER, y->operands[0], negated);
  return make2(a, op, VT_OP_MULTIPLY, op->operands[0], power);
}

static vt_value *quotient_by_root(const algebra *a, vt_op *op) {
  vt_op *root = inner(op->operands[1], VT_OP_SQRT);
  vt_op *inverse = inner(op->operands[1], VT_OP_RSQRT);
  if ((!root && !inverse) || !used_once(a, op->operands[1])) return NULL;
  vt_value *factor = root ? make1(a, op, VT_OP_RSQRT, root->operands[0])
                          : make1(a, op, VT_OP_SQRT, inverse->operands[0]);
  return make2(a, op, VT_OP_MULTIPLY, op->operands[0], factor);
}

// (x / y) / z, x / (y / z), and both at once
static vt_value *quotient_of_quotients(const algebra *a, vt_op *op) {
  vt_op *over = inner(op->operands[0], VT_OP_DIVIDE);
  vt_op *under = inner(op->operands[1], VT_OP_DIVIDE);
  vt_value *x = op->operands[0], *y = op->operands[1];
  if (over && under) {
    vt_value *top = make2(a, op, VT_OP_MULTIPLY, over->operands[0], under->operands[1]);
    vt_value *bottom = make2(a, op, VT_OP_MULTIPLY, over->operands[1], under->operands[0]);
    return make2(a, op, VT_OP_DIVIDE, top, bottom);
  }
  if (over) {
    vt_value *bottom = make2(a, op, VT_OP_MULTIPLY, over->operands[1], y);
    return make2(a, op, VT_OP_DIVIDE, over->operands[0], bottom);
  }
  if (!under) return NULL;
  vt_value *top = make2(a, op, VT_OP_MULTIPLY, x, under->operands[1]);
  return make2(a, op, VT_OP_DIVIDE, top, under->operands[0]);
}

static vt_value *quotient_by_number(const algebra *a, vt_op *op) {
  vt_value *y = op->operands[1];
  double known;
  if (is_number(y, &known)) {
    if (known == 1) return op->operands[0];
    return make2(a, op, VT_OP_MULTIPLY, op->operands[0], number(a, op, y->type, 1 / known));
  }
  if (!y->op || y->op->code != VT_OP_CONSTANT) return NULL;
  vt_arena *arena = &op->func->module->arena;
  const vt_literal *from = vt_attr_literal(y->op, VT_ATTR_VALUE);
  vt_literal *literal = VT_NEW(arena, vt_literal);
  void *data = vt_arena_push_aligned(arena, (size_t)vt_type_bytes(y->type) + 128, 64);
  for (int64_t i = 0; i < vt_type_elements(y->type); i++)
    vt_number_store(y->type.dtype, data, i, 1 / vt_number_load(y->type.dtype, from->data, i));
  *literal = (vt_literal){y->type, data, false};
  vt_value *inverse = vt_build_constant(op->func, op, op->loc, literal);
  inverse->id = a->count;
  return make2(a, op, VT_OP_MULTIPLY, op->operands[0], inverse);
}

// A broadcast divisor is inverted once: a row divided by its sum.
static vt_value *quotient_by_row(const algebra *a, vt_op *op) {
  vt_op *wide = inner(op->operands[1], VT_OP_BROADCAST_IN_DIM);
  vt_op *left = op->operands[0]->op;
  if (!wide || (left && left->code == VT_OP_BROADCAST_IN_DIM)) return NULL;
  vt_value *y = wide->operands[0];
  if (vt_type_elements(y->type) >= vt_type_elements(op->results[0].type)) return NULL;
  // A row's square root with no other reader becomes its inverse square root.
  vt_op *root = used_once(a, op->operands[1]) ? inner(y, VT_OP_SQRT) : NULL;
  if (root && !used_once(a, y)) root = NULL;
  vt_value *inverse = root ? make(a, op, VT_OP_RSQRT, y->type, root->operands[0], NULL)
                           : make(a, op, VT_OP_DIVIDE, y->type, number(a, op, y->type, 1), y);
  vt_value *factor = make1(a, op, VT_OP_BROADCAST_IN_DIM, inverse);
  vt_op_set_attr(factor->op, *vt_op_attr(wide, VT_ATTR_BROADCAST_DIMENSIONS));
  return make2(a, op, VT_OP_MULTIPLY, op->operands[0], factor);
}

// The other operand of a sum or product with a constant.
static vt_value *beside_number(const vt_op *op, double *out) {
  if (is_number(op->operands[1], out)) return op->operands[0];
  if (is_number(op->operands[0], out)) return op->operands[1];
  return NULL;
}

static double rounded(vt_dtype dtype, double value) {
  unsigned char data[16];
  vt_number_store(dtype, data, 0, value);
  return vt_number_load(dtype, data, 0);
}

// (x + 3) + 5, (x - 3) + 5, (3 - x) + 5; a subtracted constant is added negated.
static vt_value *sum_of_numbers(const algebra *a, vt_op *op) {
  bool minus = op->code == VT_OP_SUBTRACT;
  double outer, held;
  vt_value *x = minus && !is_number(op->operands[1], &outer) ? NULL : beside_number(op, &outer);
  if (!x || (minus && x == op->operands[1])) return NULL;
  if (minus) outer = -outer;
  vt_dtype dtype = x->type.dtype;
  vt_op *sum = inner(x, VT_OP_ADD), *difference = inner(x, VT_OP_SUBTRACT);
  vt_value *rest = sum ? beside_number(sum, &held) : NULL;
  if (rest && !is_number(rest, &(double){0}))
    return make2(a, op, VT_OP_ADD, rest, number(a, op, x->type, rounded(dtype, held + outer)));
  if (!difference) return NULL;
  if (is_number(difference->operands[1], &held))
    return make2(a, op, VT_OP_ADD, difference->operands[0],
                 number(a, op, x->type, rounded(dtype, outer - held)));
  if (is_number(difference->operands[0], &held))
    return make2(a, op, VT_OP_SUBTRACT, number(a, op, x->type, rounded(dtype, held + outer)),
                 difference->operands[1]);
  return NULL;
}

static vt_value *sum_with_zero(const algebra *a, vt_op *op) {
  (void)a; // rules have one signature
  if (is_the_number(op->operands[1], 0)) return op->operands[0];
  return op->code == VT_OP_ADD && is_the_number(op->operands[0], 0) ? op->operands[1] : NULL;
}

static vt_value *product_of_numbers(const algebra *a, vt_op *op) {
  double outer, held;
  vt_value *x = beside_number(op, &outer);
  vt_op *product = x ? inner(x, VT_OP_MULTIPLY) : NULL;
  vt_value *rest = product ? beside_number(product, &held) : NULL;
  if (!rest || is_number(rest, &(double){0})) return NULL;
  double both = rounded(x->type.dtype, held * outer);
  return both == 1 ? rest : make2(a, op, VT_OP_MULTIPLY, rest, number(a, op, x->type, both));
}

static vt_value *root_of_square(const algebra *a, vt_op *op) {
  vt_op *square = inner(op->operands[0], VT_OP_MULTIPLY);
  if (!square || square->operands[0] != square->operands[1]) return NULL;
  return make1(a, op, VT_OP_ABS, square->operands[0]);
}

// |x| >= 0, also for a NaN
static vt_value *size_not_negative(const algebra *a, vt_op *op) {
  vt_op *size = inner(op->operands[0], VT_OP_ABS);
  bool asked = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_GE &&
               is_the_number(op->operands[1], 0);
  return size && asked ? number(a, op, op->results[0].type, 1) : NULL;
}

static bool is_sum(const vt_func *body) {
  const vt_op *op = body->first;
  if (body->param_count != 2 || body->return_count != 1 || !op || op->next) return false;
  return op->code == VT_OP_ADD && body->returns[0] == &op->results[0] &&
         ((op->operands[0] == body->params[0] && op->operands[1] == body->params[1]) ||
          (op->operands[0] == body->params[1] && op->operands[1] == body->params[0]));
}

// A sum over broadcast dimensions is a product.
static vt_value *sum_of_repeats(const algebra *a, vt_op *op) {
  vt_op *wide = op->operand_count == 2 ? inner(op->operands[0], VT_OP_BROADCAST_IN_DIM) : NULL;
  if (!wide || !is_the_number(op->operands[1], 0) || !is_sum(op->regions[0])) return NULL;
  if (wide->results[0].type.dtype != op->results[0].type.dtype) return NULL;
  uint32_t kept, reduced;
  const int64_t *from = vt_attr_ints(wide, VT_ATTR_BROADCAST_DIMENSIONS, &kept);
  const int64_t *over = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &reduced);
  vt_value *x = wide->operands[0];
  vt_type out = op->results[0].type;
  double count = 1;
  for (uint32_t i = 0; i < reduced; i++) count *= (double)wide->results[0].type.dims[over[i]];
  for (uint32_t k = 0; k < kept; k++) {
    bool gone = false;
    for (uint32_t i = 0; i < reduced; i++) gone = gone || from[k] == over[i];
    int64_t size = gone ? 1 : wide->results[0].type.dims[from[k]];
    if (x->type.dims[k] != size || (k && from[k] < from[k - 1])) return NULL;
  }
  if (vt_type_elements(x->type) != vt_type_elements(out)) return NULL;
  if (!vt_type_same_dims(x->type, out)) x = make1(a, op, VT_OP_RESHAPE, x);
  return make2(a, op, VT_OP_MULTIPLY, x, number(a, op, out, count));
}

// Tried in this order; the first match is used.
enum { MOST_RULES = 6 };
static rule *const rules[VT_OP_COUNT][MOST_RULES + 1] = {
    [VT_OP_LOG] = {log_of_exp, log_of_power, log_of_root},
    [VT_OP_POWER] = {power_of_number, power_of_exp},
    [VT_OP_MULTIPLY] = {product_of_exps, product_of_numbers},
    [VT_OP_DIVIDE] = {quotient_by_exp, quotient_by_power, quotient_by_root, quotient_by_number,
                      quotient_of_quotients, quotient_by_row},
    [VT_OP_ADD] = {sum_with_zero, sum_of_numbers},
    [VT_OP_SUBTRACT] = {sum_with_zero, sum_of_numbers},
    [VT_OP_SQRT] = {root_of_square},
    [VT_OP_COMPARE] = {size_not_negative},
    [VT_OP_REDUCE] = {sum_of_repeats},
};

// An op on real numbers, all of one type.
static bool fits(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!is_real(op->operands[i]->type) ||
        op->operands[i]->type.dtype != op->operands[0]->type.dtype)
      return false;
  return op->operand_count && op->operand_count <= 2 && op->result_count == 1 &&
         !vt_op_attr(op, VT_ATTR_RESULT_ACCURACY);
}

static vt_opcode code_of(const vt_value *value) {
  return value->op ? value->op->code : VT_OP_INVALID;
}

static bool is_constant(const vt_value *value) {
  while (code_of(value) == VT_OP_BROADCAST_IN_DIM) value = value->op->operands[0];
  return code_of(value) == VT_OP_CONSTANT;
}

// Whether the value is a sum (or difference), or a product, with a constant.
static bool holds_constant(const vt_value *value, vt_opcode code, vt_opcode other) {
  bool is = code_of(value) == code || code_of(value) == other;
  return is && (is_constant(value->op->operands[0]) || is_constant(value->op->operands[1]));
}

// Whether a quotient has an operand of which a rule makes something else.
static bool is_quotient(const vt_value *x, const vt_value *y) {
  if (code_of(x) == VT_OP_DIVIDE) return true;
  switch (code_of(y)) {
  case VT_OP_EXPONENTIAL:
  case VT_OP_POWER:
  case VT_OP_SQRT:
  case VT_OP_RSQRT:
  case VT_OP_DIVIDE:
  case VT_OP_CONSTANT:
    return true;
  case VT_OP_BROADCAST_IN_DIM:
    return code_of(x) != VT_OP_BROADCAST_IN_DIM || is_constant(y);
  default:
    return false;
  }
}

// Whether a rule may match, by what makes the operands: no rule does for most ops. A new rule has
// its condition here.
static bool may_match(const vt_op *op) {
  if (!op->operand_count || !is_real(op->operands[0]->type)) return false;
  const vt_value *x = op->operands[0], *y = op->operands[op->operand_count - 1];
  switch (op->code) {
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
    if (is_the_number(x, 0) || is_the_number(y, 0)) return true;
    return (is_constant(y) && holds_constant(x, VT_OP_ADD, VT_OP_SUBTRACT)) ||
           (is_constant(x) && holds_constant(y, VT_OP_ADD, VT_OP_SUBTRACT));
  case VT_OP_MULTIPLY:
    if (code_of(x) == VT_OP_EXPONENTIAL) return code_of(y) == VT_OP_EXPONENTIAL;
    return (is_constant(y) && holds_constant(x, VT_OP_MULTIPLY, VT_OP_MULTIPLY)) ||
           (is_constant(x) && holds_constant(y, VT_OP_MULTIPLY, VT_OP_MULTIPLY));
  case VT_OP_DIVIDE:
    return is_quotient(x, y);
  case VT_OP_SQRT:
    return code_of(x) == VT_OP_MULTIPLY && x->op->operands[0] == x->op->operands[1];
  case VT_OP_COMPARE:
    return code_of(x) == VT_OP_ABS;
  case VT_OP_REDUCE:
    return code_of(x) == VT_OP_BROADCAST_IN_DIM;
  case VT_OP_LOG:
    return x->op;
  case VT_OP_POWER:
    return code_of(x) == VT_OP_EXPONENTIAL || is_constant(y);
  default:
    return false;
  }
}

static bool is_dead(const algebra *a, const vt_op *op) {
  return op->result_count == 1 && !is_new(a, &op->results[0]) && !a->uses[op->results[0].id];
}

static vt_value *apply_rules(const algebra *a, vt_op *op) {
  if (!fits(op)) return NULL;
  for (rule *const *next = rules[op->code]; *next; next++) {
    vt_value *value = (*next)(a, op);
    if (value) return value;
  }
  return NULL;
}

static bool round_of(vt_func *func, vt_arena *scratch) {
  algebra a = {.func = func};
  bool changed = false, all = vt_verify_wanted(); // all: to see that may_match leaves out no rule
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    if (changed) vt_rewrite_operands(op);
    bool may = may_match(op);
    bool tried = may || (all && rules[op->code][0]);
    if (tried && !a.uses) { // before any op is new
      a.uses = vt_func_use_counts(func, scratch);
      a.count = func->value_count;
    }
    vt_value *value = tried && !is_dead(&a, op) ? apply_rules(&a, op) : NULL;
    vt_assert(!value || may);
    if (value) vt_rewrite_value(&op->results[0], value);
    changed = changed || value;
    if (op->result_count == 1 && op->results[0].replaced_by)
      vt_op_remove(op); // or by others before
  }
  vt_rewrite_returns(func);
  return changed;
}

static vt_status visit(vt_func *func, void *user) {
  const vt_rewriting *pass = user;
  if (func->first == func->last) return VT_OK; // each rule looks at what makes an operand
  for (int i = 0; i < MAX_ROUNDS && round_of(func, pass->scratch); i++) *pass->changed = true;
  return VT_OK;
}

vt_status vt_opt_algebra(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                         bool *out_changed) {
  vt_rewriting pass = {scratch, out_changed};
  return options->as_written ? VT_OK : vt_rewrite_each_func(module, visit, &pass);
}
