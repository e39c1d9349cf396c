// SPDX-License-Identifier: Apache-2.0
// strip_mask_test.c - sums that are said to be unused, against the mask itself.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "eval/eval.h"
#include "host/fuse.h"
#include "host/nest.h"
#include "host/strip.h"
#include "host/strip_mask.h"
#include "import/import.h"

enum { BATCH = 2, HEADS = 3, ROWS = 200, COLUMNS = 328, EACH = 40 };

#define ALL    "tensor<2x3x200x328x"
#define SCORES ALL "f32>"
#define FLAGS  ALL "i1>"
#define MATRIX "tensor<200x328x"
#define WIDE(to, from, dims, type, all)                                                            \
  "%" to " = stablehlo.broadcast_in_dim %" from ", dims = [" dims "] : (" type ") -> " all "\n"
#define INDEX(to, dim, type) "%" to " = stablehlo.iota dim = " dim " : " MATRIX type ">\n"
#define COMPARE(to, how, a, b, type)                                                               \
  "%" to " = stablehlo.compare " how ", %" a ", %" b " : (" MATRIX type ">, " MATRIX type          \
  ">) -> " MATRIX "i1>\n"
#define SPLAT(to, number, type)                                                                    \
  "%" to " = stablehlo.constant dense<" number "> : " MATRIX type ">\n"
#define EVERYWHERE WIDE("p", "m", "2, 3", MATRIX "i1>", FLAGS)

#define FOLLOWS(how, type)                                                                         \
  INDEX("i", "0", type) INDEX("j", "1", type) COMPARE("m", how, "i", "j", type) EVERYWHERE

// `mask` computes %p, where the sums %s are used; `finds`: all parts of which none is, or none.
typedef struct example {
  const char *name, *params, *mask;
  bool finds, swapped; // the sums are what is selected where %p is false
} example;

static const example examples[] = {
    {"causal", "", FOLLOWS("GE", "i32"), true, false},
    {"the future, left out", "", FOLLOWS("LT", "i64"), true, true},
    {"causal, from memory", ", %causal: " MATRIX "i1>",
     WIDE("p", "causal", "2, 3", MATRIX "i1>", FLAGS), true, false},
    {"a window", "",
     INDEX("i", "0", "i32") INDEX("j", "1", "i32") SPLAT("w", "32", "i32") COMPARE(
         "a", "GE", "i", "j", "i32") "%d = stablehlo.subtract %i, %j : " MATRIX
                                     "i32>\n" COMPARE("b", "LT", "d", "w",
                                                      "i32") "%m = stablehlo.and %a, %b : " MATRIX
                                                             "i1>\n" EVERYWHERE,
     true, false},
    {"the same place only", "",
     INDEX("i", "0", "i32") INDEX("j", "1", "i32") COMPARE("a", "GT", "i", "j", "i32")
         COMPARE("b", "GT", "j", "i", "i32") "%c = stablehlo.or %a, %b : " MATRIX "i1>\n"
                                             "%m = stablehlo.not %c : " MATRIX "i1>\n" EVERYWHERE,
     true, false},
    {"sums that may wrap", "",
     INDEX("i", "0", "i32") INDEX("j", "1", "i32")
         SPLAT("w", "2147483600", "i32") "%d = stablehlo.add %j, %w : " MATRIX
                                         "i32>\n" COMPARE("m", "LT", "d", "i", "i32") EVERYWHERE,
     false, false},
    {"indices that wrap", "",
     INDEX("j", "1", "i8") SPLAT("w", "100", "i8") COMPARE("m", "LT", "j", "w", "i8") EVERYWHERE,
     false, false},
    {"lengths", ", %lengths: tensor<2xi32>",
     WIDE("l", "lengths", "0", "tensor<2xi32>",
          ALL "i32>") "%j = stablehlo.iota dim = 3 : " ALL "i32>\n"
                      "%p = stablehlo.compare LT, %j, %l : "
                      "(" ALL "i32>, " ALL "i32>) -> " FLAGS "\n",
     true, false},
    {"keys that are there", ", %there: tensor<2x328xi1>",
     WIDE("p", "there", "0, 3", "tensor<2x328xi1>", FLAGS), true, false},
    {"queries that are there", ", %asked: tensor<2x200xi1>",
     WIDE("p", "asked", "0, 2", "tensor<2x200xi1>", FLAGS), true, false},
    {"segments", ", %rows: tensor<2x200xi32>, %columns: tensor<2x328xi32>",
     WIDE("x", "rows", "0, 2", "tensor<2x200xi32>", ALL "i32>")
         WIDE("y", "columns", "0, 3", "tensor<2x328xi32>",
              ALL "i32>") "%p = stablehlo.compare EQ, %x, %y : (" ALL "i32>, " ALL "i32>) -> " FLAGS
                          "\n",
     true, false},
    {"numbers without ranges", ", %f: " MATRIX "f32>",
     SPLAT("z", "0.0", "f32") COMPARE("m", "GT", "f", "z", "f32") EVERYWHERE, false, false},
};

// Computes `result`: what follows the sums, or the mask.
static vt_module *import(const example *r, const char *result) {
  vt_text text = {0};
  bool mask = result[0] == 'p';
  vt_text_printf(&text, "module @m {\nfunc.func @main(%%s: " SCORES "%s) -> (%s) {\n%s", r->params,
                 mask ? FLAGS : SCORES, r->mask);
  if (!mask)
    vt_text_printf(&text,
                   "%%low = stablehlo.constant dense<-1.0> : " SCORES "\n"
                   "%%t = stablehlo.multiply %%s, %%s : " SCORES "\n"
                   "%%u = stablehlo.select %%p, %%%s : " FLAGS ", " SCORES "\n"
                   "%%least = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
                   "%%h = stablehlo.reduce(%%u init: %%least) applies stablehlo.maximum across "
                   "dimensions = [3] : (" SCORES ", tensor<f32>) -> tensor<2x3x200xf32>\n" WIDE(
                       "%v", "%h", "0, 1, 2", "tensor<2x3x200xf32>",
                       SCORES) "%%r = stablehlo.subtract %%u, %%v : " SCORES "\n",
                   r->swapped ? "low, %t" : "t, %low");
  vt_text_printf(&text, "return %%%s : %s\n}\n}\n", result, mask ? FLAGS : SCORES);
  const char *string = vt_text_string(&text);
  vt_module *module;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)string, strlen(string)}, &module);
  if (st) fail_msg("%s: %s\n%s", r->name, vt_status_message(st), string);
  vt_text_free(&text);
  return module;
}

static void fill(const char *params, uint32_t index, vt_type type, void *data) {
  for (; index; index--) params = strchr(params, '%') + 1;
  for (int64_t i = 0; i < vt_type_elements(type); i++) {
    int64_t row = i / COLUMNS, column = i % COLUMNS;
    if (!strncmp(params, "causal", 6))
      ((uint8_t *)data)[i] = row >= column;
    else if (!strncmp(params, "lengths", 7))
      ((int32_t *)data)[i] = i ? COLUMNS : 70;
    else if (!strncmp(params, "there", 5))
      ((uint8_t *)data)[i] = row ? column >= 300 : column < 100;
    else if (!strncmp(params, "asked", 5))
      ((uint8_t *)data)[i] = i % ROWS < 90;
    else if (!strncmp(params, "rows", 4))
      ((int32_t *)data)[i] = (int32_t)(i % ROWS / 70);
    else if (!strncmp(params, "columns", 7))
      ((int32_t *)data)[i] = (int32_t)(column / 110);
    else
      ((float *)data)[i] = (float)(i % 7) - 3;
  }
}

static bool is_unused(const example *r, const uint8_t *mask, int64_t row, int64_t column) {
  for (int64_t i = row; i < row + EACH; i++)
    for (int64_t j = column; j < column + VT_STRIP_GROUP && j < COLUMNS; j++)
      if (mask[i * COLUMNS + j] != r->swapped) return false;
  return true;
}

static void check(const example *r) {
  vt_module *module = import(r, "r"), *other = import(r, "p");
  const vt_func *func = other->main;
  vt_tensor params[4], mask = {func->returns[0]->type, calloc(1, BATCH * HEADS * ROWS * COLUMNS)};
  void *inputs[4];
  for (uint32_t i = 0; i < func->param_count; i++) {
    vt_type type = func->params[i]->type;
    params[i] = (vt_tensor){type, calloc(1, (size_t)vt_type_bytes(type))};
    if (i) fill(r->params, i, params[i].type, params[i].data);
  }
  assert_null(vt_eval_func(func, &(vt_eval_env){0}, params, &mask));
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  assert_null(
      vt_host_fuse(module->main, &(vt_fuse_options){.min_work = -1}, &arena, &groups, &count));
  const vt_group *group = &groups[count - 1];
  uint32_t port = 0;
  for (uint32_t i = 0; i < group->input_count; i++) {
    assert_true(group->inputs[i]->index >= 0);
    inputs[i] = params[group->inputs[i]->index].data;
    if (!group->inputs[i]->index) port = i;
  }
  const vt_strip_mask *found = vt_strip_find_mask(&arena, group, port, COLUMNS);
  if (!found)
    fail_msg("%s: nothing found in %u atoms of %u groups", r->name,
             group->nest ? group->nest->atom_count : 0, count);
  int finds = 0, there = 0;
  for (int64_t at = 0; at < BATCH * HEADS * ROWS; at += EACH) {
    uint64_t bits[VT_STRIP_WORDS] = {0};
    vt_strip_unused(found, inputs, at, EACH, bits);
    for (int64_t g = 0; g * VT_STRIP_GROUP < COLUMNS; g++) {
      bool said = bits[0] >> g & 1, is = is_unused(r, mask.data, at, g * VT_STRIP_GROUP);
      if (said && !is) fail_msg("%s: row %d, group %d is used", r->name, (int)at, (int)g);
      finds += said, there += is;
    }
  }
  if (r->finds ? finds != there || !there : finds > 0)
    fail_msg("%s: %d parts of %d", r->name, finds, there);
  for (uint32_t i = 0; i < func->param_count; i++) free(params[i].data);
  free(mask.data);
  vt_arena_free(&arena);
  vt_module_destroy(module), vt_module_destroy(other);
}

static void unused_sums_are_found(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) check(&examples[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(unused_sums_are_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
