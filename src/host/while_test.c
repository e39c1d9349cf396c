// SPDX-License-Identifier: Apache-2.0
// while_test.c - whiles as one function: where their values live, which stay steps, and the results
// against the evaluator's, bit for bit.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "host/loop.h"
#include "host/plan.h"
#include "import/import.h"

// while (i < n) { x, y = x1, y1; i++ } over arrays T of `size` elements. Homes are letters, of the
// counter, x and y: Registers, Memory, Fixed. NULL: steps.
typedef struct row {
  const char *name, *homes;
  int size;
  const char *body;
} row;

#define UPDATE(to, from, what)                                                                     \
  "%" to " = stablehlo.dynamic_update_slice %" from ", %" what                                     \
  ", %i : (T, tensor<1xi32>, tensor<i32>) -> T\n"
#define READ(to, from)                                                                             \
  "%" to " = stablehlo.dynamic_slice %" from ", %i, sizes = [1] : (T, tensor<i32>) -> "            \
  "tensor<1xi32>\n"
#define ADD(to, a, b)  "%" to " = stablehlo.add %" a ", %" b " : T\n"
#define SAME(to, from) "%" to " = stablehlo.reshape %" from " : (T) -> T\n"
#define BRANCHES(to)                                                                               \
  "%" to " = \"stablehlo.if\"(%odd) ({\n" UPDATE(                                                  \
      "u", "x", "one") "stablehlo.return %u : T\n"                                                 \
                       "}, {\nstablehlo.return %x : T\n}) : (tensor<i1>) -> T\n"
#define INNER(to)                                                                                  \
  "%inner:2 = stablehlo.while(%k = %c0, %t = %y) : tensor<i32>, T\ncond {\n"                       \
  "%q = stablehlo.compare LT, %k, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"                 \
  "stablehlo.return %q : tensor<i1>\n} do {\n"                                                     \
  "%v = stablehlo.dynamic_update_slice %t, %one, %k : (T, tensor<1xi32>, tensor<i32>) -> T\n"      \
  "%k1 = stablehlo.add %k, %c1 : tensor<i32>\nstablehlo.return %k1, %v : tensor<i32>, "            \
  "T\n}\n" SAME(to, "inner#1")

static const row rows[] = {
    {"elementwise", "RRR", 5, ADD("x1", "x", "y") SAME("y1", "x")},
    {"unchanged", "RRF", 5, ADD("x1", "x", "y") SAME("y1", "y")},
    {"updated", "RMR", 5, UPDATE("x1", "x", "one") ADD("y1", "y", "x1")},
    {"updated, large", "RMF", 500, UPDATE("x1", "x", "one") SAME("y1", "y")},
    {"from each other", "RMM", 500,
     READ("a", "y") READ("b", "x") UPDATE("x1", "x", "a") UPDATE("y1", "y", "b")},
    {"twice, read between", "RMF", 500,
     READ("a", "y") UPDATE("z", "x", "a") READ("b", "z") UPDATE("x1", "z", "b") SAME("y1", "y")},
    {"old one read after", "RRR", 5, UPDATE("x1", "x", "one") ADD("y1", "x", "x1")},
    {"old one read after, large", NULL, 500,
     UPDATE("x1", "x", "one") READ("a", "x") UPDATE("y1", "y", "a")},
    {"places change", "RRR", 5, UPDATE("x1", "y", "one") SAME("y1", "x")},
    {"places change, large", NULL, 500, UPDATE("x1", "y", "one") SAME("y1", "x")},
    {"branches", "RMF", 5, BRANCHES("x1") SAME("y1", "y")},
    {"branches, large", "RMF", 500, BRANCHES("x1") SAME("y1", "y")},
    {"inner loop", "RRF", 5, INNER("z") ADD("x1", "x", "z") SAME("y1", "y")},
    {"inner loop, large", "RFM", 500, INNER("y1") SAME("x1", "x")},
};

static void put_program(const row *r, vt_text *out) {
  char type[32];
  snprintf(type, sizeof type, "tensor<%dxi32>", r->size);
  vt_text all = {0};
  vt_text_printf(
      &all,
      "module @m {\nfunc.func @main(%%n: tensor<i32>, %%a0: T, %%b0: T) -> (T, T) {\n"
      "%%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
      "%%w:3 = stablehlo.while(%%i = %%c0, %%x = %%a0, %%y = %%b0) : tensor<i32>, T, T\ncond {\n"
      "%%p = stablehlo.compare LT, %%i, %%n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
      "stablehlo.return %%p : tensor<i1>\n} do {\n"
      "%%c1 = stablehlo.constant dense<1> : tensor<i32>\n"
      "%%one = stablehlo.constant dense<7> : tensor<1xi32>\n"
      "%%low = stablehlo.and %%i, %%c1 : tensor<i32>\n"
      "%%odd = stablehlo.compare EQ, %%low, %%c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n%s"
      "%%i1 = stablehlo.add %%i, %%c1 : tensor<i32>\n"
      "stablehlo.return %%i1, %%x1, %%y1 : tensor<i32>, T, T\n}\n"
      "return %%w#1, %%w#2 : T, T\n}\n}\n",
      r->body);
  for (const char *at = vt_text_string(&all); *at; at++) // the type's name by itself
    if (*at == 'T' && (at[-1] == ' ' || at[-1] == '('))
      vt_text_printf(out, "%s", type);
    else
      vt_text_printf(out, "%c", *at);
  vt_text_free(&all);
}

static vt_module *import(const char *text) {
  vt_module *module = NULL;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), text);
  return module;
}

static void homes_are(const row *r, const char *text) {
  vt_arena arena = {0};
  vt_module *module = import(text);
  const vt_op *op = module->main->first;
  while (op->code != VT_OP_WHILE) op = op->next;
  const vt_loop *loop = vt_loop_find(&arena, op);
  if (!loop != !r->homes) fail_msg("%s: %s", r->name, loop ? "is a function" : "stays steps");
  const uint8_t *homes = loop ? vt_loop_homes_of(loop, op->regions[1]) : NULL;
  for (int i = 0; loop && r->homes[i]; i++)
    if ("RFM"[homes[i]] != r->homes[i])
      fail_msg("%s: parameter %d: %c", r->name, i, "RFM"[homes[i]]);
  vt_module_destroy(module);
  vt_arena_free(&arena);
}

enum { MOST = 500, TURNS = 9 };

static void run(const row *r, const char *text, bool evaluator, int32_t n, int32_t *out) {
  vt_program *program = NULL;
  vt_host_options options = {.device_count = 1, .evaluator_only = evaluator};
  vt_status st = vt_host_compile(import(text), &options, &program);
  if (st) fail_msg("%s: %s", r->name, vt_status_message(st));
  int64_t bytes = 4 * (int64_t)r->size;
  int32_t *count = vt_host_alloc(4), *in[2], *result[2];
  *count = n;
  for (int k = 0; k < 2; k++) {
    in[k] = vt_host_alloc(bytes);
    result[k] = vt_host_alloc(bytes);
    for (int32_t i = 0; i < r->size; i++) in[k][i] = 100 * k + i;
  }
  st = vt_program_run(program, &(vt_run){.params = (void *[]){count, in[0], in[1]},
                                         .results = (void *[]){result[0], result[1]}});
  if (st) fail_msg("%s: %s", r->name, vt_status_message(st));
  for (int k = 0; k < 2; k++) {
    memcpy(out + k * r->size, result[k], (size_t)bytes);
    for (int32_t i = 0; i < r->size; i++) assert_int_equal(in[k][i], 100 * k + i);
    vt_host_free(in[k]);
    vt_host_free(result[k]);
  }
  vt_host_free(count);
  vt_program_destroy(program);
}

static void rows_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const row *r = &rows[i];
    vt_text text = {0};
    put_program(r, &text);
    homes_are(r, vt_text_string(&text));
    for (int32_t n = -1; n < TURNS; n += 2) {
      int32_t want[2 * MOST], got[2 * MOST];
      run(r, vt_text_string(&text), true, n, want);
      run(r, vt_text_string(&text), false, n, got);
      if (memcmp(want, got, 8 * (size_t)r->size))
        fail_msg("%s: other results after %d", r->name, n);
    }
    vt_text_free(&text);
  }
}

// Scans: while (i < 4) { s = s, at `at` row; i++ } with s all 7 at first. Whether what s was need
// not be there, and the first elements of the first and last row after it.
typedef struct scan {
  const char *name, *at, *row;
  bool fills;
  int32_t first, last;
} scan;

#define STACK "tensor<4x20000xi32>"
#define COUNT                                                                                      \
  "%row = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<1x20000xi32>\n"
#define BEFORE                                                                                     \
  "%row = stablehlo.dynamic_slice %s, %three, %c0, sizes = [1, 20000] : (" STACK                   \
  ", tensor<i32>, tensor<i32>) -> tensor<1x20000xi32>\n"

static const scan scans[] = {
    {"each row", "i", COUNT, true, 0, 3},
    {"backwards", "back", COUNT, true, 3, 0},
    {"all but the first", "i1", COUNT, false, 7, 3},
    {"one row", "c1", COUNT, false, 7, 7},
    {"read before it is written", "i", BEFORE, false, 7, 7},
};

static void stacks_that_a_loop_fills_begin_empty(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof scans / sizeof *scans; k++) {
    const scan *c = &scans[k];
    vt_text text = {0};
    vt_text_printf(
        &text,
        "module @m {\nfunc.func @main() -> " STACK " {\n"
        "%%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "%%start = stablehlo.constant dense<7> : " STACK "\n"
        "%%w:2 = stablehlo.while(%%i = %%c0, %%s = %%start) : tensor<i32>, " STACK "\ncond {\n"
        "%%n = stablehlo.constant dense<4> : tensor<i32>\n"
        "%%p = stablehlo.compare LT, %%i, %%n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "stablehlo.return %%p : tensor<i1>\n} do {\n"
        "%%c1 = stablehlo.constant dense<1> : tensor<i32>\n"
        "%%three = stablehlo.constant dense<3> : tensor<i32>\n"
        "%%i1 = stablehlo.add %%i, %%c1 : tensor<i32>\n"
        "%%back = stablehlo.subtract %%three, %%i : tensor<i32>\n%s"
        "%%u = stablehlo.dynamic_update_slice %%s, %%row, %%%s, %%c0 : (" STACK
        ", tensor<1x20000xi32>, tensor<i32>, tensor<i32>) -> " STACK "\n"
        "stablehlo.return %%i1, %%u : tensor<i32>, " STACK "\n}\nreturn %%w#1 : " STACK "\n}\n}\n",
        c->row, c->at);
    vt_program *program = NULL;
    vt_host_options options = {.device_count = 1, .compile_all = true};
    vt_status st = vt_host_compile(import(vt_text_string(&text)), &options, &program);
    if (st) fail_msg("%s: %s", c->name, vt_status_message(st));
    bool fills = false;
    for (uint32_t i = 0; i < program->plan->step_count; i++)
      fills |= !strcmp(program->plan->steps[i].runner, "room");
    if (fills != c->fills) fail_msg("%s: %s", c->name, fills ? "is filled" : "is not");
    int32_t *out = vt_host_alloc(4 * 20000 * 4);
    memset(out, 0x55, 4 * 20000 * 4);
    st = vt_program_run(program, &(vt_run){.results = (void *[]){out}});
    if (st) fail_msg("%s: %s", c->name, vt_status_message(st));
    if (out[0] != c->first || out[3 * 20000] != c->last)
      fail_msg("%s: %d %d", c->name, out[0], out[3 * 20000]);
    vt_host_free(out);
    vt_program_destroy(program);
    vt_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_right),
                                     cmocka_unit_test(stacks_that_a_loop_fills_begin_empty)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
