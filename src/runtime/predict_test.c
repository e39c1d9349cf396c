// SPDX-License-Identifier: Apache-2.0
// predict_test.c - a program is predicted alike with calls of elementwise functions and with their
// bodies in their place.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/predict.h"
#include "runtime/runtime_internal.h"

enum { STEPS = 60 };
#define WORDS "tensor<512x1024xui32>"

// The steps from %<name>_a0 and %<name>_b0, which mix the two as random bits are made.
static void put_steps(vt_text *text, const char *name) {
  static const char *const ops[] = {"add", "xor", "shift_left", "or"};
  for (int i = 0; i < STEPS; i++) {
    const char *op = ops[i % 4];
    vt_text_printf(text, "%%%s_a%d = stablehlo.%s %%%s_a%d, %%%s_b%d : " WORDS "\n", name, i + 1,
                   op, name, i, name, i);
    vt_text_printf(text, "%%%s_b%d = stablehlo.xor %%%s_b%d, %%%s_a%d : " WORDS "\n", name, i + 1,
                   name, i, name, i + 1);
  }
}

// Binds %<name>_a0 and %<name>_b0 to the values.
static void put_mix(vt_text *text, bool calls, const char *name, const char *a, const char *b) {
  const char *pattern = "%%%s_%s = stablehlo.or %s, %s : " WORDS "\n";
  if (calls) {
    vt_text_printf(
        text, "%%%s:2 = call @mix(%s, %s) : (" WORDS ", " WORDS ") -> (" WORDS ", " WORDS ")\n",
        name, a, b);
    vt_text_printf(text, "%%%s_x = stablehlo.xor %%%s#0, %%%s#1 : " WORDS "\n", name, name, name);
    return;
  }
  vt_text_printf(text, pattern, name, "a0", a, a);
  vt_text_printf(text, pattern, name, "b0", b, b);
  put_steps(text, name);
  vt_text_printf(text, "%%%s_x = stablehlo.xor %%%s_a%d, %%%s_b%d : " WORDS "\n", name, name, STEPS,
                 name, STEPS);
}

// Random words that are compared with a bound, kept for later, and in a loop; of arrays that are
// cut by rows, by columns, and not at all.
static vt_prediction predict(bool calls, int devices, const char *slice_name, vt_arena *arena) {
  vt_text text = {0};
  vt_slice slice;
  vt_prediction p;
  const char *cut = devices > 1 ? " {mhlo.sharding = \"{devices=[4,1]<=[4]}\"}" : "";
  const char *across = devices > 1 ? " {mhlo.sharding = \"{devices=[1,4]<=[4]}\"}" : "";
  const char *whole = devices > 1 ? " {mhlo.sharding = \"{replicated}\"}" : "";
  vt_text_printf(&text,
                 "module attributes {mhlo.num_partitions = %d : i32} {\n"
                 "func.func @main(%%x: " WORDS "%s, %%y: " WORDS "%s, %%z: " WORDS "%s, %%w: " WORDS
                 "%s) -> (" WORDS ", " WORDS ", " WORDS ", " WORDS ") {\n",
                 devices, cut, cut, across, whole);
  put_mix(&text, calls, "p", "%x", "%y");
  put_mix(&text, calls, "q", "%p_x", "%y");
  put_mix(&text, calls, "s", "%z", "%z");
  put_mix(&text, calls, "t", "%w", "%w");
  vt_text_put(&text,
              "%zero = stablehlo.constant dense<0> : tensor<i32>\n"
              "%one = stablehlo.constant dense<1> : tensor<i32>\n"
              "%limit = stablehlo.constant dense<8> : tensor<i32>\n"
              "%loop:2 = stablehlo.while(%i = %zero, %v = %q_x) : tensor<i32>, " WORDS "\ncond {\n"
              "%go = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
              "stablehlo.return %go : tensor<i1>\n} do {\n"
              "%next = stablehlo.add %i, %one : tensor<i32>\n");
  put_mix(&text, calls, "r", "%v", "%p_x");
  vt_text_put(&text,
              "stablehlo.return %next, %r_x : tensor<i32>, " WORDS "\n}\n"
              "%less = stablehlo.compare LT, %q_x, %loop#1 : (" WORDS ", " WORDS
              ") -> tensor<512x1024xi1>\n"
              "%kept = stablehlo.select %less, %x, %y : tensor<512x1024xi1>, " WORDS "\n"
              "return %kept, %p_x, %s_x, %t_x : " WORDS ", " WORDS ", " WORDS ", " WORDS "\n}\n");
  if (calls) {
    vt_text_put(&text, "func.func private @mix(%m_a0: " WORDS ", %m_b0: " WORDS ") -> (" WORDS
                       ", " WORDS ") {\n");
    put_steps(&text, "m");
    vt_text_printf(&text, "return %%m_a%d, %%m_b%d : " WORDS ", " WORDS "\n}\n", STEPS, STEPS);
  }
  vt_text_put(&text, "}\n");
  assert_null(vt_slice_from_name(slice_name, &slice));
  vt_status st = vt_predict((vt_bytes){(const uint8_t *)text.data, text.size}, &slice, arena, &p);
  if (st) fail_msg("%s\n%.*s", vt_status_message(st), 1000, vt_text_string(&text));
  vt_text_free(&text);
  return p;
}

static void calls_are_predicted_as_their_bodies(void **state) {
  (void)state;
  static const char *const slices[] = {"v5litepod-4", "v4-8", "v6e-4", "v2-8"};
  for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
    for (int devices = 1; devices <= 4; devices += 3) {
      vt_arena arena = {0};
      vt_prediction with = predict(true, devices, slices[i], &arena);
      vt_prediction without = predict(false, devices, slices[i], &arena);
      assert_true(with.module->func_count > 1); // calls stay
      assert_true(with.flops == without.flops);
      assert_int_equal(with.hbm_peak_bytes, without.hbm_peak_bytes);
      double off = with.timing.seconds / without.timing.seconds - 1;
      if (fabs(off) > 0.02)
        fail_msg("%s, %d devices: %g s with calls, %g s without", slices[i], devices,
                 with.timing.seconds, without.timing.seconds);
      vt_prediction_free(&with);
      vt_prediction_free(&without);
      vt_arena_free(&arena);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_are_predicted_as_their_bodies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
