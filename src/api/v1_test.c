// SPDX-License-Identifier: Apache-2.0
// v1_test.c - the slice "v1" through the public API alone: open, load a saved model, run, report.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/npz.h"
#include "tpu1/driver.h"
#include "vtpu/vtpu.h"

#define FIXTURE(name) VTPU_SOURCE_DIR "/src/tpu1/fixtures/" name

static void must(vtpu_error *error) {
  if (error) fail_msg("%s", vtpu_error_message(error));
}

static void save_model(const char *path, vt_arena *arena, vt_npz *inputs) {
  vt_bytes program;
  vt_tpu1_model *model;
  must(vt_file_map(FIXTURE("gru.mlirbc"), &program));
  must(vt_npz_read(FIXTURE("gru.npz"), arena, inputs));
  must(vt_tpu1_model_calibrate(program, inputs, 8, &model));
  must(vt_tpu1_model_save(model, path));
  vt_tpu1_model_destroy(model);
  vt_file_unmap(&program);
}

static void a_saved_model_runs_and_reports(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_npz inputs, want;
  vtpu_slice *slice;
  vtpu_program *program;
  const char *path = "v1_test_model.v1";
  save_model(path, &arena, &inputs);
  must(vt_npz_read(FIXTURE("gru.expected.npz"), &arena, &want));
  setenv("VTPU_ACCELERATOR_TYPE", "v1", 1);
  must(vtpu_open(NULL, &slice));
  vtpu_slice_info info = {.struct_size = sizeof info};
  must(vtpu_slice_describe(slice, &info));
  assert_string_equal(info.device_kind, "TPU v1");
  must(vtpu_load_file(slice, path, &program));
  assert_int_equal(vtpu_program_input_count(program), 2);
  vtpu_tensor in[2], out = vtpu_program_output(program, 0);
  for (size_t i = 0; i < 2; i++) {
    in[i] = vtpu_program_input(program, i);
    in[i].data = inputs.arrays[i].data;
  }
  out.data = malloc(vtpu_tensor_bytes(out));
  must(vtpu_run(program, in, 2, &out, 1));
  const float *got = out.data, *expected = want.arrays[0].data;
  for (size_t i = 0; i < vtpu_tensor_bytes(out) / 4; i++)
    assert_true(got[i] - expected[i] < 0.05f && expected[i] - got[i] < 0.05f);
  vtpu_error *error = vtpu_run(program, in, 1, &out, 1);
  assert_int_equal(vtpu_error_code(error), 3);
  vtpu_error_free(error);
  vtpu_report report = {.struct_size = sizeof report};
  must(vtpu_program_report(program, &report));
  assert_true(report.seconds > 1e-6 && report.seconds < 1e-3 && report.flops > 1e5);
  assert_non_null(strstr(vtpu_program_text(program), "matmul"));
  free(out.data);
  vtpu_unload(program);
  error = vtpu_load(slice, "nonsense", 8, &program);
  assert_non_null(error);
  vtpu_error_free(error);
  vtpu_close(slice);
  remove(path);
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_saved_model_runs_and_reports)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
