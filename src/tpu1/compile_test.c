// SPDX-License-Identifier: Apache-2.0
// compile_test.c - exported programs, quantised and run on the simulated chip: close to f32,
// bit-exact with the int8 evaluator, in both execution orders; and programs that must be rejected
// with op and source line.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tpu1/driver.h"

static const char *fixture(char *path, size_t size, const char *name, const char *suffix) {
  snprintf(path, size, VTPU_SOURCE_DIR "/src/tpu1/fixtures/%s%s", name, suffix);
  return path;
}

static void must(vt_status st, const char *name) {
  if (st) fail_msg("%s: %s", name, vt_status_message(st));
}

static vt_status calibrate(const char *name, int bits, vt_arena *arena, vt_npz *inputs,
                           vt_tpu1_model **out_model) {
  char path[512];
  vt_bytes program;
  must(vt_file_map(fixture(path, sizeof path, name, ".mlirbc"), &program), name);
  must(vt_npz_read(fixture(path, sizeof path, name, ".npz"), arena, inputs), name);
  vt_status st = vt_tpu1_model_calibrate(program, inputs, bits, out_model);
  vt_file_unmap(&program);
  return st;
}

// Root mean square error over the largest magnitude, of all results.
static double error_of(const vt_npz *want, const vt_tensor *got) {
  double worst = 0;
  for (uint32_t i = 0; i < want->count; i++) {
    const float *w = want->arrays[i].data, *g = got[i].data;
    int64_t n = vt_npz_bytes(&want->arrays[i]) / 4;
    double sum = 0, most = 0;
    for (int64_t k = 0; k < n; k++) {
      sum += (double)(w[k] - g[k]) * (w[k] - g[k]);
      most = fmax(most, fabs((double)w[k]));
    }
    worst = fmax(worst, sqrt(sum / (double)n) / most);
  }
  return worst;
}

static void run_program(const char *name, int bits, double tolerance) {
  vt_arena arena = {0};
  vt_npz inputs, want;
  vt_tpu1_model *model;
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  char path[512];
  must(calibrate(name, bits, &arena, &inputs, &model), name);
  must(vt_npz_read(fixture(path, sizeof path, name, ".expected.npz"), &arena, &want), name);
  must(vt_tpu1_model_compile(model, &chip), name);
  const vt_func *main = vt_tpu1_model_network(model)->module->main;
  vt_tensor args[4], results[4];
  for (uint32_t i = 0; i < main->param_count; i++)
    args[i] = (vt_tensor){main->params[i]->type, inputs.arrays[i].data};
  for (uint32_t i = 0; i < main->return_count; i++)
    results[i] = (vt_tensor){main->returns[i]->type,
                             vt_arena_push(&arena, (size_t)vt_type_bytes(main->returns[i]->type))};
  must(vt_tpu1_model_evaluate(model, &chip, args, results, true), name);
  double error = error_of(&want, results);
  if (!(error < tolerance)) fail_msg("%s with %d bits: error %g of the range", name, bits, error);
  const vt_tpu1_counters *n = &vt_tpu1_model_timing(model)->counters;
  assert_int_equal(n->array_active + n->weight_stall + n->weight_shift + n->non_matrix, n->cycles);
  vt_tpu1_model_destroy(model);
  vt_arena_free(&arena);
}

static void compiled_programs_are_close_and_exact(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double tolerance8, tolerance16; // root mean square, relative to the range
  } rows[] = {{"mlp", 0.01, 0.008},  {"cnn", 0.03, 0.015},        {"global_pool", 0.01, 0.008},
              {"lstm", 0.01, 0.004}, {"lstm_fused", 0.01, 0.004}, {"gru", 0.015, 0.006}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    run_program(rows[i].name, 8, rows[i].tolerance8);
    run_program(rows[i].name, 16, rows[i].tolerance16);
  }
}

static void refusals_name_the_op_and_the_line(void **state) {
  (void)state;
  static const struct {
    const char *name, *message, *place;
  } rows[] = {{"refused_softmax", "a reduction over channels", "make_fixtures.py:"},
              {"refused_loop", "while", "make_fixtures.py:"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    vt_arena arena = {0};
    vt_npz inputs;
    vt_tpu1_model *model;
    vt_status st = calibrate(rows[i].name, 8, &arena, &inputs, &model);
    assert_non_null(st);
    assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
    assert_non_null(strstr(vt_status_message(st), rows[i].message));
    assert_non_null(strstr(vt_status_message(st), rows[i].place));
    vt_status_free(st);
    vt_arena_free(&arena);
  }
}

// The first evaluation compiles, later ones do not; a saved model gives the same result.
static void the_first_evaluation_compiles(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_npz inputs;
  vt_tpu1_model *model;
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  vt_bytes saved;
  bool compiled;
  const char *path = "compile_test_model.v1";
  must(calibrate("mlp", 8, &arena, &inputs, &model), "mlp");
  must(vt_tpu1_model_save(model, path), "save");
  must(vt_file_map(path, &saved), "map");
  vt_tpu1_driver *driver = vt_tpu1_driver_create(&chip);
  must(vt_tpu1_model_compile(model, &chip), "mlp");
  const vt_func *main = vt_tpu1_model_network(model)->module->main;
  vt_tensor arg = {main->params[0]->type, inputs.arrays[0].data};
  float results[3][60];
  for (int i = 0; i < 3; i++) {
    vt_tensor result = {main->returns[0]->type, results[i]};
    if (i == 2) {
      must(vt_tpu1_model_evaluate(model, &chip, &arg, &result, false), "mlp");
      continue;
    }
    must(vt_tpu1_driver_evaluate(driver, saved, &arg, &result, &compiled), "driver");
    assert_int_equal(compiled, i == 0);
  }
  assert_memory_equal(results[0], results[1], sizeof results[0]);
  assert_memory_equal(results[0], results[2], sizeof results[0]);
  vt_status st =
      vt_tpu1_driver_evaluate(driver, (vt_bytes){(const uint8_t *)"nonsense", 8}, &arg, NULL, NULL);
  assert_non_null(st);
  vt_status_free(st);
  vt_tpu1_driver_destroy(driver);
  vt_tpu1_model_destroy(model);
  vt_file_unmap(&saved);
  remove(path);
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_programs_are_close_and_exact),
                                     cmocka_unit_test(refusals_name_the_op_and_the_line),
                                     cmocka_unit_test(the_first_evaluation_compiles)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
