// SPDX-License-Identifier: Apache-2.0
// v1_cli_test.c - the subcommands of `vtpu v1` end to end, on files in the working directory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "tpu1/cli.h"
#include "tpu1/isa.h"

#define FIXTURE(name) VTPU_SOURCE_DIR "/src/tpu1/fixtures/" name

// Runs `v1 ARGUMENTS` with standard output in a file; returns the exit code and the output.
static int run(const char *arguments, vt_text *out) {
  char line[1024], *argv[32] = {"v1"};
  int argc = 1;
  snprintf(line, sizeof line, "%s", arguments);
  for (char *save = NULL, *word = strtok_r(line, " ", &save); word;
       word = strtok_r(NULL, " ", &save))
    argv[argc++] = word;
  vt_text_free(out);
  fflush(stdout);
  FILE *file = tmpfile();
  FILE *kept = stdout;
  stdout = file;
  int rc = vt_tpu1_cli(argc, argv);
  fflush(file);
  stdout = kept;
  rewind(file);
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) vt_text_put_n(out, buffer, n);
  fclose(file);
  return rc;
}

static void put_file(const char *path, const void *bytes, size_t size) {
  vt_status st = vt_file_write(path, bytes, size);
  if (st) fail_msg("%s", vt_status_message(st));
}

static void expect_file(const char *path, const char *part) {
  vt_bytes file;
  vt_status st = vt_file_map(path, &file);
  if (st) fail_msg("%s", vt_status_message(st));
  if (!memmem(file.data, file.size, part, strlen(part))) fail_msg("%s has no '%s'", path, part);
  vt_file_unmap(&file);
  remove(path);
}

static void a_program_is_assembled_and_simulated(void **state) {
  (void)state;
  static const char program[] =
      "read_weights count=1\nread_host rows=2\nsync unit=matrix on=read\nmatmul rows=2 "
      "switch_tile\n"
      "sync unit=activate on=matrix\nactivate rows=2 ub=8\nsync unit=write on=activate\n"
      "write_host ub=8 rows=2\ninterrupt tag=7\nhalt\n";
  static uint8_t weights[65536], input[512];
  vt_text out = {0};
  for (int i = 0; i < 256; i++) weights[i * 256 + i] = 1; // the identity
  for (int i = 0; i < 512; i++) input[i] = (uint8_t)(i * 7);
  put_file("cli_test.s", program, sizeof program - 1);
  put_file("cli_test.w", weights, sizeof weights);
  put_file("cli_test.in", input, sizeof input);
  assert_int_equal(run("asm cli_test.s -o cli_test.bin", &out), 0);
  assert_int_equal(run("disasm cli_test.bin", &out), 0);
  assert_non_null(strstr(vt_text_string(&out), "matmul switch_tile rows=2  ; 3 at 0x24"));
  assert_int_equal(run("sim cli_test.bin --weights cli_test.w --input cli_test.in --output "
                       "cli_test.out --output-bytes 512",
                       &out),
                   0);
  assert_non_null(strstr(vt_text_string(&out), "array_active"));
  vt_bytes result;
  assert_null(vt_file_map("cli_test.out", &result));
  assert_int_equal(result.size, 512);
  assert_memory_equal(result.data, input, 512);
  vt_file_unmap(&result);
  assert_int_equal(run("counters cli_test.bin", &out), 0);
  assert_int_equal(run("sim cli_test.bin", &out), 1); // no weights given
  assert_int_equal(run("nonsense", &out), 2);
  static const char *const files[] = {"cli_test.s", "cli_test.w", "cli_test.in", "cli_test.bin",
                                      "cli_test.out"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) remove(files[i]);
  vt_text_free(&out);
}

static void the_workloads_are_timed(void **state) {
  (void)state;
  vt_text out = {0};
  assert_int_equal(run("bench --json - --param memory=4 --param fifo=2 MLP0 CNN0", &out), 0);
  const char *text = vt_text_string(&out);
  assert_non_null(strstr(text, "\"parameters\": {\"memory\": 4, \"fifo\": 2}"));
  assert_non_null(strstr(text, "\"name\": \"MLP0\""));
  assert_non_null(strstr(text, "\"name\": \"CNN0\""));
  assert_null(strstr(text, "LSTM0"));
  assert_non_null(strstr(text, "\"weight_stall\": "));
  assert_int_equal(run("bench --roofline cli_test.svg CNN0", &out), 0);
  expect_file("cli_test.svg", "</svg>");
  assert_int_equal(run("bench --param memory=x", &out), 1);
  assert_int_equal(run("bench --param speed=2", &out), 1);
  assert_int_equal(run("bench MLP9", &out), 1);
  assert_int_equal(run("view LSTM0 --from 0 --to 400000 --width 80 --html cli_test.html", &out), 0);
  assert_non_null(strstr(vt_text_string(&out), "2 matrix   matrix     |i"));
  expect_file("cli_test.html", "</script>");
  vt_text_free(&out);
}

static void a_model_is_compiled_and_run(void **state) {
  (void)state;
  vt_text out = {0};
  assert_int_equal(run("compile " FIXTURE("cnn.mlirbc") " --calibrate " FIXTURE(
                           "cnn.npz") " -o cli_test.v1 --asm cli_test.s",
                       &out),
                   0);
  assert_non_null(strstr(vt_text_string(&out), "weight tiles"));
  expect_file("cli_test.s", "convolve ");
  assert_int_equal(
      run("run cli_test.v1 --input " FIXTURE("cnn.npz") " --check --output cli_test.npz", &out), 0);
  assert_non_null(strstr(vt_text_string(&out), "bit-exact with the int8 evaluator"));
  expect_file("cli_test.npz", "result0");
  assert_int_equal(run("run cli_test.v1", &out), 1);
  assert_int_equal(run("compile " FIXTURE("cnn.mlirbc"), &out), 1);
  remove("cli_test.v1");
  vt_text_free(&out);
}

// docs/tpu1-isa.md is what `vtpu v1 isa` prints.
static void the_page_of_the_isa_is_new(void **state) {
  (void)state;
  vt_text text = {0};
  vt_bytes file;
  vt_tpu1_isa_document(&text);
  assert_null(vt_file_map(VTPU_SOURCE_DIR "/docs/tpu1-isa.md", &file));
  if (file.size != text.size || memcmp(file.data, text.data, text.size))
    fail_msg("docs/tpu1-isa.md is old: vtpu v1 isa -o docs/tpu1-isa.md");
  vt_file_unmap(&file);
  vt_text_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_program_is_assembled_and_simulated),
                                     cmocka_unit_test(the_workloads_are_timed),
                                     cmocka_unit_test(a_model_is_compiled_and_run),
                                     cmocka_unit_test(the_page_of_the_isa_is_new)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
