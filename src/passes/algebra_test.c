// SPDX-License-Identifier: Apache-2.0
// algebra_test.c - rules of opt_algebra.c as text: an expression in, the expression that is left.
//
// Prefix notation over float arrays of four elements: "divide x exponential y". x, y, z are
// parameters, s is a scalar spread out, numbers are themselves, "@" before an operation makes its
// value a result too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "eval/number.h"
#include "passes/passes.h"

typedef struct reader {
  vt_module *module;
  vt_func *main;
  vt_type type;
  const char *at;
  vt_value *params[4], *also[4];
  uint32_t also_count;
} reader;

static vt_value *constant(reader *r, double value) {
  vt_literal *literal = VT_NEW(&r->module->arena, vt_literal);
  void *data = vt_arena_push_aligned(&r->module->arena, 64, 64);
  vt_number_store(r->type.dtype, data, 0, value);
  *literal = (vt_literal){{r->type.dtype, 0, NULL}, data, true};
  return vt_build_constant(r->main, NULL, &vt_loc_unknown, literal);
}

static vt_value *spread(reader *r, vt_value *scalar) {
  vt_value *value =
      vt_build(r->main, NULL, VT_OP_BROADCAST_IN_DIM, &vt_loc_unknown, r->type, 1, &scalar);
  vt_op_set_ints(value->op, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
  return value;
}

static vt_value *read_value(reader *r) {
  char word[64];
  int size = 0;
  assert_int_equal(sscanf(r->at, " %63s%n", word, &size), 1);
  r->at += size;
  char *end = NULL;
  double value = strtod(word, &end);
  if (!*end) return spread(r, constant(r, value));
  if (!strcmp(word, "s")) return spread(r, r->params[3]);
  for (int i = 0; i < 3; i++)
    if (word[0] == "xyz"[i] && !word[1]) return r->params[i];
  bool also = word[0] == '@';
  char name[80];
  snprintf(name, sizeof name, "stablehlo.%s", word + also);
  vt_opcode code = vt_opcode_from_text(name, strlen(name));
  if (code == VT_OP_INVALID) fail_msg("no operation %s", name);
  vt_value *operands[2] = {NULL};
  uint32_t count = (uint32_t)vt_op_info_get(code)->operands;
  for (uint32_t i = 0; i < count; i++) operands[i] = read_value(r);
  vt_value *result = vt_build(r->main, NULL, code, &vt_loc_unknown, r->type, count, operands);
  if (also) r->also[r->also_count++] = result;
  return result;
}

static void print_value(const reader *r, const vt_value *value, vt_text *text) {
  for (int i = 0; i < 4; i++)
    if (value == r->params[i]) {
      vt_text_printf(text, "%c ", "xyzs"[i]);
      return;
    }
  const vt_op *op = value->op;
  if (op->code == VT_OP_CONSTANT) {
    const void *data = vt_attr_literal(op, VT_ATTR_VALUE)->data;
    vt_text_printf(text, "%g ", vt_number_load(value->type.dtype, data, 0));
    return;
  }
  if (op->code != VT_OP_BROADCAST_IN_DIM) vt_text_printf(text, "%s ", vt_op_short_name(op->code));
  for (uint32_t i = 0; i < op->operand_count; i++) print_value(r, op->operands[i], text);
}

static reader read_program(const char *text, vt_dtype dtype) {
  static const int64_t four = 4;
  reader r = {.module = vt_module_create(), .at = text, .type = {dtype, 1, &four}};
  r.main = r.module->main = vt_func_create(r.module, "main");
  for (int i = 0; i < 4; i++)
    r.params[i] = vt_func_add_param(r.main, i < 3 ? r.type : (vt_type){dtype, 0, NULL});
  vt_value *returns[5] = {read_value(&r)};
  for (uint32_t i = 0; i < r.also_count; i++) returns[i + 1] = r.also[i];
  vt_func_set_returns(r.main, 1 + r.also_count, returns);
  vt_module_add_func(r.module, r.main);
  return r;
}

static void check(const char *in, const char *want, vt_dtype dtype, bool as_written) {
  static const char *const skip = "simplify,fold,hoist,sink,pool,cse";
  reader r = read_program(in, dtype);
  vt_pass_options options = {.as_written = as_written, .skip = skip};
  vt_status st = vt_passes_run(r.module, &options);
  if (!st) st = vt_module_verify(r.module);
  if (st) fail_msg("%s: %s", in, vt_status_message(st));
  vt_text text = {0};
  print_value(&r, r.main->returns[0], &text);
  if (text.size) text.data[text.size - 1] = 0;
  if (strcmp(text.data, want)) fail_msg("%s became %s, not %s", in, text.data, want);
  vt_text_free(&text);
  vt_module_destroy(r.module);
}

static const struct {
  const char *in, *want;
} rows[] = {
    {"log exponential x", "x"},
    {"log @exponential x", "x"},
    {"log log exponential exponential x", "x"},
    {"log power x 2.5", "multiply log abs x 2.5"},
    {"log @power x 2.5", "multiply log abs x 2.5"},
    {"log power x y", "select compare y 0 0 multiply log abs x y"},
    {"log sqrt x", "multiply log x 0.5"},
    {"log rsqrt x", "multiply log x -0.5"},
    {"log @sqrt x", "multiply log x 0.5"},
    {"power x 0", "1"},
    {"power x 1", "x"},
    {"power x 2", "multiply x x"},
    {"power x 3", "multiply x multiply x x"},
    {"power x -1", "divide 1 x"},
    {"power x 0.5", "power x 0.5"},
    {"power x 4", "power x 4"},
    {"power exponential x y", "exponential multiply x y"},
    {"power @exponential x y", "exponential multiply x y"},
    {"multiply exponential x exponential y", "exponential add x y"},
    {"multiply exponential x @exponential y", "exponential add x y"},
    {"multiply exponential x log y", "multiply exponential x log y"},
    {"divide x exponential y", "multiply x exponential negate y"},
    {"divide exponential x exponential y", "exponential subtract x y"},
    {"divide x @exponential y", "multiply x exponential negate y"},
    {"divide x power y z", "multiply x power y negate z"},
    {"divide x power y 2.5", "multiply x power y -2.5"},
    {"divide x sqrt y", "multiply x rsqrt y"},
    {"divide x rsqrt y", "multiply x sqrt y"},
    {"divide x @sqrt y", "divide x sqrt y"},
    {"divide x cbrt y", "divide x cbrt y"},
    {"divide divide x y z", "divide x multiply y z"},
    {"divide x divide y z", "divide multiply x z y"},
    {"divide divide x y divide z x", "divide multiply x x multiply y z"},
    {"divide @divide x y z", "divide x multiply y z"},
    {"divide x 4", "multiply x 0.25"},
    {"divide x 3", "multiply x 0.333333"},
    {"divide x 0", "multiply x inf"},
    {"divide x 1", "x"},
    {"divide 3 x", "divide 3 x"},
    {"divide divide x 2 4", "multiply x 0.125"},
    {"divide x s", "multiply x divide 1 s"},
    {"divide 2 s", "divide 2 s"},
    {"add x 0", "x"},
    {"add 0 x", "x"},
    {"subtract x 0", "x"},
    {"subtract 0 x", "subtract 0 x"},
    {"add add x 3 5", "add x 8"},
    {"add 5 add 3 x", "add x 8"},
    {"subtract add x 3 5", "add x -2"},
    {"add subtract x 3 5", "add x 2"},
    {"add subtract 3 x 5", "subtract 8 x"},
    {"subtract add x 100000000 100000000", "x"},
    {"add @add x 3 5", "add x 8"},
    {"multiply multiply x 3 5", "multiply x 15"},
    {"multiply multiply x 4 0.25", "x"},
    {"multiply @multiply x 3 5", "multiply x 15"},
    {"sqrt multiply x x", "abs x"},
    {"sqrt power x 2", "abs x"},
    {"sqrt multiply x y", "sqrt multiply x y"},
    {"sqrt @multiply x x", "abs x"},
    // What XLA leaves alone too.
    {"exponential log x", "exponential log x"},
    {"multiply sqrt x sqrt x", "multiply sqrt x sqrt x"},
    {"multiply x 0", "multiply x 0"},
    {"subtract x x", "subtract x x"},
    {"divide x x", "divide x x"},
    {"multiply divide x y y", "multiply divide x y y"},
};

static void every_rule(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    check(rows[i].in, rows[i].want, VT_F32, false);
}

static void other_types(void **state) {
  (void)state;
  check("log exponential x", "x", VT_BF16, false);
  check("log exponential x", "x", VT_F16, false);
  check("divide x 3", "multiply x 0.333984", VT_BF16, false);
  check("add add x 3 5", "add x 8", VT_F64, false);
  check("log exponential x", "log exponential x", VT_C64, false);
}

static void as_written(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    reader r = read_program(rows[i].in, VT_F32);
    vt_text text = {0};
    print_value(&r, r.main->returns[0], &text);
    text.data[text.size - 1] = 0;
    check(rows[i].in, text.data, VT_F32, true);
    vt_text_free(&text);
    vt_module_destroy(r.module);
  }
}

// The root of a row is inverted before it is spread, unless something else reads it.
static void rows_of_roots(void **state) {
  (void)state;
  for (int twice = 0; twice < 2; twice++) {
    reader r = read_program("x", VT_F32);
    vt_value *root =
        vt_build(r.main, NULL, VT_OP_SQRT, &vt_loc_unknown, r.params[3]->type, 1, &r.params[3]);
    vt_value *wide = spread(&r, root);
    vt_value *operands[2] = {r.params[0], wide};
    vt_value *returns[2] = {
        vt_build(r.main, NULL, VT_OP_DIVIDE, &vt_loc_unknown, r.type, 2, operands), root};
    vt_func_set_returns(r.main, 1 + (uint32_t)twice, returns);
    vt_pass_options options = {.skip = "simplify,fold"};
    vt_status st = vt_passes_run(r.module, &options);
    assert_string_equal(vt_status_message(st), "");
    vt_text text = {0};
    print_value(&r, r.main->returns[0], &text);
    assert_string_equal(vt_text_string(&text),
                        twice ? "multiply x divide 1 sqrt s " : "multiply x rsqrt s ");
    vt_text_free(&text);
    vt_module_destroy(r.module);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_rule), cmocka_unit_test(other_types),
                                     cmocka_unit_test(as_written), cmocka_unit_test(rows_of_roots)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
