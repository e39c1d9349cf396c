// SPDX-License-Identifier: Apache-2.0
// view_test.c - rows of stacks that loops read and write without copies: which ones, and the
// results against the evaluator's, bit for bit.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "host/plan.h"
#include "import/import.h"

// while (i < n) { s, t, h = s1, t1, h1; i++ } over stacks S of ROWS rows R; x is one that stays.
// WIDE and RAGGED rows are whole cache lines, ODD ones are not; loops write RAGGED ones in vectors
// that go past their ends. All are too long for a loop that is one function.
enum { ROWS = 6, WIDE = 320, RAGGED = 336, ODD = 300, MOST = ROWS * RAGGED };

// P is a percent sign, two in a format.
#define READ_(P, to, from, at)                                                                     \
  P to " = stablehlo.dynamic_slice " P from ", " P at ", " P                                       \
       "c0, sizes = [1, C] : (S, tensor<i32>, tensor<i32>) -> R\n"
#define UPDATE_(P, to, from, what, at)                                                             \
  P to " = stablehlo.dynamic_update_slice " P from ", " P what ", " P at ", " P                    \
       "c0 : (S, R, tensor<i32>, tensor<i32>) -> S\n"
#define OP_(P, to, op, a, b)       P to " = stablehlo." op " " P a ", " P b " : R\n"
#define SAME_(P, to, from)         P to " = stablehlo.reshape " P from " : (S) -> S\n"
#define READ(to, from, at)         READ_("%", to, from, at)
#define UPDATE(to, from, what, at) UPDATE_("%", to, from, what, at)
#define OP(to, op, a, b)           OP_("%", to, op, a, b)
#define SAME(to, from)             SAME_("%", to, from)

typedef struct row {
  const char *name, *body;
  int columns;
  uint32_t views;
} row;

static const row rows[] = {
    {"a row read, one written",
     READ("a", "x", "i") OP("b", "add", "a", "h") UPDATE("s1", "s", "b", "i") SAME("t1", "t")
         OP("h1", "xor", "a", "h"),
     WIDE, 2},
    {"no whole lines",
     READ("a", "x", "i") OP("b", "add", "a", "h") UPDATE("s1", "s", "b", "i") SAME("t1", "t")
         OP("h1", "xor", "a", "h"),
     ODD, 0},
    {"read, but not written, without whole vectors",
     READ("a", "x", "i") OP("b", "add", "a", "h") UPDATE("s1", "s", "b", "i") SAME("t1", "t")
         OP("h1", "xor", "a", "h"),
     RAGGED, 1},
    {"carried on as well", OP("h1", "add", "h", "one") UPDATE("s1", "s", "h1", "i") SAME("t1", "t"),
     WIDE, 0},
    {"put into two stacks",
     OP("b", "add", "h", "one") UPDATE("s1", "s", "b", "i") UPDATE("t1", "t", "b", "next")
         OP("h1", "xor", "b", "h"),
     WIDE, 1},
    {"the array changes in between",
     OP("a", "xor", "h", "one") OP("b", "add", "h", "a") UPDATE("z", "s", "a", "i")
         UPDATE("s1", "z", "b", "i") SAME("t1", "t") OP("h1", "maximum", "h", "one"),
     WIDE, 1},
    {"out of bounds",
     READ("a", "x", "far") OP("b", "add", "a", "h") UPDATE("s1", "s", "b", "below")
         OP("d", "xor", "a", "h") UPDATE("t1", "t", "d", "far") OP("h1", "maximum", "a", "h"),
     WIDE, 3},
    {"the place depends on the row",
     OP("b", "add", "h",
        "one") "%q = stablehlo.slice %b [0:1, 0:1] : (R) -> tensor<1x1xi32>\n"
               "%k = stablehlo.reshape %q : (tensor<1x1xi32>) -> tensor<i32>\n" UPDATE(
                   "s1", "s", "b", "k") SAME("t1", "t") OP("h1", "xor", "h", "one"),
     WIDE, 0},
    {"stacks change places",
     OP("b", "add", "h", "one") UPDATE("s1", "t", "b", "i") SAME("t1", "s")
         OP("h1", "maximum", "h", "one"),
     WIDE, 1},
};

static void put_program(const char *body, int columns, vt_text *out) {
  vt_text all = {0};
  vt_text_printf(
      &all,
      "module @m {\nfunc.func @main(%%n: tensor<i32>, %%x: S, %%s0: S, %%t0: S, %%h0: R) -> (S, S, "
      "R) {\n%%c0 = stablehlo.constant dense<0> : tensor<i32>\n"
      "%%w:4 = stablehlo.while(%%i = %%c0, %%s = %%s0, %%t = %%t0, %%h = %%h0) : tensor<i32>, S, "
      "S, R\ncond {\n"
      "%%p = stablehlo.compare LT, %%i, %%n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
      "stablehlo.return %%p : tensor<i1>\n} do {\n"
      "%%c1 = stablehlo.constant dense<1> : tensor<i32>\n"
      "%%far = stablehlo.constant dense<1000> : tensor<i32>\n"
      "%%below = stablehlo.constant dense<-3> : tensor<i32>\n"
      "%%one = stablehlo.constant dense<7> : R\n"
      "%%next = stablehlo.add %%i, %%c1 : tensor<i32>\n%s"
      "stablehlo.return %%next, %%s1, %%t1, %%h1 : tensor<i32>, S, S, R\n}\n"
      "return %%w#1, %%w#2, %%w#3 : S, S, R\n}\n}\n",
      body);
  for (const char *at = vt_text_string(&all); *at; at++) { // types and sizes by themselves
    bool word = at[-1] == ' ' || at[-1] == '(';
    if (word && *at == 'S' && strchr(",) \n", at[1]))
      vt_text_printf(out, "tensor<%dx%dxi32>", ROWS, columns);
    else if (word && *at == 'R' && strchr(",) \n", at[1]))
      vt_text_printf(out, "tensor<1x%dxi32>", columns);
    else if (word && *at == 'C' && at[1] == ']')
      vt_text_printf(out, "%d", columns);
    else
      vt_text_printf(out, "%c", *at);
  }
  vt_text_free(&all);
}

static uint32_t views_of(const vt_program *program) {
  uint32_t count = 0;
  for (size_t p = 0; p < program->plan_order.size; p++)
    for (uint32_t s = 0; s < program->plan_order.data[p]->step_count; s++)
      count += !strcmp(program->plan_order.data[p]->steps[s].runner, "view");
  return count;
}

// Runs for `n` turns. Returns the number of views.
static uint32_t run(const char *name, const char *text, int columns, bool evaluator, int32_t n,
                    int32_t *out) {
  vt_module *module = NULL;
  vt_program *program = NULL;
  vt_host_options options = {
      .device_count = 1, .evaluator_only = evaluator, .compile_all = !evaluator};
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (!st) st = vt_host_compile(module, &options, &program);
  if (st) fail_msg("%s: %s\n%s", name, vt_status_message(st), text);
  int64_t sizes[] = {ROWS * columns, ROWS * columns, ROWS * columns, columns};
  int32_t *in[4], *result[3], *count = vt_host_alloc(4);
  *count = n;
  for (int k = 0; k < 4; k++) {
    in[k] = vt_host_alloc(4 * sizes[k]);
    for (int32_t i = 0; i < sizes[k]; i++) in[k][i] = 1000 * k + 3 * i;
  }
  for (int k = 0; k < 3; k++) result[k] = vt_host_alloc(4 * sizes[k + 1]);
  st = vt_program_run(program, &(vt_run){.params = (void *[]){count, in[0], in[1], in[2], in[3]},
                                         .results = (void *[]){result[0], result[1], result[2]}});
  if (st) fail_msg("%s: %s", name, vt_status_message(st));
  for (int k = 0; k < 3; k++) {
    memcpy(out, result[k], 4 * (size_t)sizes[k + 1]);
    out += sizes[k + 1];
    vt_host_free(result[k]);
  }
  for (int k = 0; k < 4; k++) {
    for (int32_t i = 0; i < sizes[k]; i++) assert_int_equal(in[k][i], 1000 * k + 3 * i);
    vt_host_free(in[k]);
  }
  uint32_t views = views_of(program);
  vt_host_free(count);
  vt_program_destroy(program);
  return views;
}

static uint32_t check(const char *name, const char *body, int columns) {
  static int32_t want[3 * MOST], got[3 * MOST];
  vt_text text = {0};
  put_program(body, columns, &text);
  uint32_t views = 0;
  for (int32_t n = 0; n < ROWS + 3; n += 2) {
    run(name, vt_text_string(&text), columns, true, n, want);
    views = run(name, vt_text_string(&text), columns, false, n, got);
    if (memcmp(want, got, 4 * (size_t)((2 * ROWS + 1) * columns)))
      fail_msg("%s: other results after %d\n%s", name, n, vt_text_string(&text));
  }
  vt_text_free(&text);
  return views;
}

static void rows_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t views = check(rows[i].name, rows[i].body, rows[i].columns);
    if (views != rows[i].views) fail_msg("%s: %u views", rows[i].name, views);
  }
}

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (random_state >> 8) % n;
}

// Reads and updates of stacks old and new, and sums of rows, in any order.
static void random_body(vt_text *out) {
  static const char *const places[] = {"i", "i", "i", "next", "far", "below"};
  static const char *const ops[] = {"add", "xor", "maximum"};
  char values[32][16] = {"h", "one"}, stacks[32][16] = {"x", "s", "t"}, newest[2][16] = {"s", "t"};
  uint32_t value_count = 2, stack_count = 3, steps = 4 + random_below(9);
  for (uint32_t i = 0; i < steps; i++) {
    const char *at = places[random_below(6)];
    const char *late = values[random_below(2) ? value_count - 1 : random_below(value_count)];
    switch (random_below(3)) {
    case 0:
      snprintf(values[value_count], sizeof *values, "v%u", i);
      vt_text_printf(out, READ_("%%", "v%u", "%s", "%s"), i, stacks[random_below(stack_count)], at);
      value_count++;
      break;
    case 1:
      snprintf(values[value_count], sizeof *values, "v%u", i);
      vt_text_printf(out, OP_("%%", "v%u", "%s", "%s", "%s"), i, ops[random_below(3)], late,
                     values[random_below(value_count)]);
      value_count++;
      break;
    default: {
      uint32_t which = random_below(2);
      vt_text_printf(out, UPDATE_("%%", "z%u", "%s", "%s", "%s"), i, newest[which], late, at);
      snprintf(stacks[stack_count++], sizeof *stacks, "z%u", i);
      snprintf(newest[which], sizeof *newest, "z%u", i);
    }
    }
  }
  uint32_t swapped = random_below(4) == 0;
  vt_text_printf(out, SAME_("%%", "s1", "%s") SAME_("%%", "t1", "%s"), newest[swapped],
                 newest[!swapped]);
  vt_text_printf(out, OP_("%%", "h1", "xor", "%s", "%s"), values[value_count - 1],
                 values[random_below(value_count)]);
}

static void random_loops_are_right(void **state) {
  (void)state;
  enum { LOOPS = 300 };
  uint32_t views = 0;
  for (int i = 0; i < LOOPS; i++) {
    char name[40];
    snprintf(name, sizeof name, "loop %d", i);
    vt_text body = {0};
    random_body(&body);
    static const int columns[] = {WIDE, RAGGED, RAGGED, ODD};
    views += check(name, vt_text_string(&body), columns[random_below(4)]);
    vt_text_free(&body);
  }
  assert_true(views > LOOPS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_right),
                                     cmocka_unit_test(random_loops_are_right)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
