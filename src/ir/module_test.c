// SPDX-License-Identifier: Apache-2.0
// module_test.c - building, copying, inlining, attributes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "ir/module.h"

static const int64_t dims23[] = {2, 3};

// f(x, y) = (x + y) * x
static vt_func *make_sample(vt_module *module) {
  vt_type type = {VT_F32, 2, dims23};
  vt_func *func = vt_func_create(module, "f");
  vt_value *x = vt_func_add_param(func, type), *y = vt_func_add_param(func, type);
  vt_value *sum = vt_build(func, NULL, VT_OP_ADD, NULL, type, 2, (vt_value *[]){x, y});
  vt_value *product = vt_build(func, NULL, VT_OP_MULTIPLY, NULL, type, 2, (vt_value *[]){sum, x});
  vt_func_set_returns(func, 1, &product);
  vt_module_add_func(module, func);
  return func;
}

static void functions_number_and_count_uses(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *func = make_sample(module);
  uint32_t *uses = vt_func_use_counts(func, &module->arena);
  assert_int_equal(func->value_count, 4);
  assert_int_equal(uses[0], 2);
  assert_int_equal(uses[1], 1);
  assert_int_equal(uses[3], 1);
  assert_ptr_equal(vt_module_find_func(module, "f"), func);
  assert_null(vt_module_find_func(module, "g"));
  vt_module_destroy(module);
}

// Ids are kept until an op comes, goes, or changes its place.
static void functions_number_again_after_changes(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *func = make_sample(module);
  vt_type type = func->params[0]->type;
  assert_true(module->made[VT_OP_ADD] && !module->made[VT_OP_SUBTRACT] && !module->effects);
  vt_func_number(func);
  assert_int_equal(func->op_count, 2);
  vt_value *first =
      vt_build(func, func->first, VT_OP_NEGATE, NULL, type, 1, (vt_value *[]){func->params[0]});
  vt_func_number(func);
  assert_int_equal(first->id, 2);
  assert_int_equal(func->last->results[0].id, 4);
  vt_op *negate = func->first;
  vt_func_reorder(func, 3, (vt_op *[]){negate->next, negate, negate->next->next});
  assert_int_equal(vt_func_use_counts(func, &module->arena)[3], 0);
  assert_int_equal(first->id, 3);
  vt_op_remove(negate);
  vt_func_number(func);
  assert_int_equal(func->value_count, 4);
  assert_int_equal(func->last->results[0].id, 3);
  vt_module_destroy(module);
}

static vt_op *add_holder(vt_func *func, vt_op *before) {
  vt_op *op = vt_op_create(func, VT_OP_OPTIMIZATION_BARRIER, NULL, 0, NULL, 0, NULL, 1);
  if (before)
    vt_op_insert(before, op);
  else
    vt_op_append(func, op);
  return op;
}

static void holders_are(vt_func *func, uint32_t wanted, vt_op *const *ops) {
  uint32_t count;
  vt_op *const *found = vt_func_holders(func, &count);
  assert_int_equal(count, wanted);
  for (uint32_t i = 0; i < count; i++) assert_ptr_equal(found[i], ops[i]);
}

// The list of ops with regions follows what comes, goes and comes back elsewhere.
static void functions_know_their_holders(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *func = make_sample(module), *other = vt_func_create(module, "g");
  holders_are(func, 0, NULL);
  vt_op *a = add_holder(func, NULL), *b = add_holder(func, NULL), *c = add_holder(func, NULL);
  holders_are(func, 3, (vt_op *[]){a, b, c});
  vt_op_remove(b);
  vt_op *d = add_holder(func, NULL);
  holders_are(func, 3, (vt_op *[]){a, c, d});
  vt_op_remove(d);
  vt_op_insert(a, d);
  holders_are(func, 3, (vt_op *[]){d, a, c});
  vt_op_remove(c);
  vt_op_append(func, c);
  vt_op_append(func, b);
  holders_are(func, 4, (vt_op *[]){d, a, c, b});
  vt_op_remove(add_holder(other, NULL));
  holders_are(other, 0, NULL);
  vt_op *only = add_holder(other, NULL);
  holders_are(other, 1, &only);
  vt_module_destroy(module);
}

static void clone_and_inline_copy_structure(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *func = make_sample(module);
  vt_func *copy = vt_func_clone(module, func);
  assert_ptr_not_equal(copy->first, func->first);
  assert_int_equal(copy->first->code, VT_OP_ADD);
  assert_ptr_equal(copy->last->operands[0], &copy->first->results[0]);

  vt_op *before = copy->last;
  vt_value *returned;
  vt_func_inline(func, before->func, before, (vt_value *[]){copy->params[1], copy->params[1]},
                 &returned);
  assert_int_equal(before->prev->code, VT_OP_MULTIPLY);
  assert_ptr_equal(before->prev->operands[1], copy->params[1]);
  vt_value_replace(&copy->first->results[0], returned);
  assert_ptr_equal(before->operands[0], returned);
  vt_op_remove(copy->first);
  assert_int_equal(copy->first->code, VT_OP_ADD);
  assert_ptr_equal(copy->first->operands[0], copy->params[1]);
  vt_module_destroy(module);
}

static void attributes_are_set_and_compared(void **state) {
  (void)state;
  vt_module *module = vt_module_create();
  vt_func *func = make_sample(module);
  vt_op *op = func->first;
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, 2, dims23);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, 5);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, 6);
  vt_op_set_string(op, VT_ATTR_NAME, "n");
  uint32_t count;
  assert_int_equal(vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count)[1], 3);
  assert_int_equal(count, 2);
  assert_int_equal(vt_attr_i64(op, VT_ATTR_DIMENSION), 6);
  assert_int_equal(vt_attr_i64_or(op, VT_ATTR_INDEX, -1), -1);
  assert_string_equal(vt_attr_string(op, VT_ATTR_NAME).data, "n");
  assert_true(vt_attr_equal(vt_op_attr(op, VT_ATTR_NAME), vt_op_attr(op, VT_ATTR_NAME)));
  assert_int_equal(op->attr_count, 3);
  vt_module_destroy(module);
}

static void tables_agree(void **state) {
  (void)state;
  for (int code = 1; code < VT_OP_COUNT; code++) {
    const vt_op_info *info = vt_op_info_get((vt_opcode)code);
    assert_int_equal(vt_opcode_from_text(info->text, strlen(info->text)), code);
    for (int i = 0; info->attrs[i]; i++) assert_in_range(info->attrs[i], 1, VT_ATTR_COUNT - 1);
  }
  assert_string_equal(vt_op_short_name(VT_OP_DOT_GENERAL), "dot_general");
  assert_int_equal(vt_dtype_from_text("bf16", 4), VT_BF16);
  assert_int_equal(vt_dtype_bytes(VT_S4), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_number_and_count_uses),
      cmocka_unit_test(functions_number_again_after_changes),
      cmocka_unit_test(functions_know_their_holders),
      cmocka_unit_test(clone_and_inline_copy_structure),
      cmocka_unit_test(attributes_are_set_and_compared),
      cmocka_unit_test(tables_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
