// SPDX-License-Identifier: Apache-2.0
// mosaic_test.c - kernels of fixtures/ as text, and what is refused. VTPU_BLESS=1 writes the texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "mosaic/mosaic.h"
#include "mosaic/mosaic_fixture.h"

#define FIXTURES VTPU_SOURCE_DIR "/src/mosaic/fixtures/"

// The text of a kernel, or the error.
static void read_kernel(vt_bytes body, const char *before, vt_text *out) {
  vt_arena arena = {0};
  vt_text config = {0};
  vt_mosaic *kernel;
  fixture_config(body, before, &config);
  vt_status st = vt_mosaic_read((vt_string){vt_text_string(&config), config.size}, &arena, &kernel);
  if (st)
    vt_text_printf(out, "%s\n", vt_status_message(st));
  else
    vt_mosaic_print(kernel, out);
  vt_status_free(st);
  vt_text_free(&config);
  vt_arena_free(&arena);
}

static vt_bytes map(const char *name) {
  char path[512];
  vt_bytes bytes;
  snprintf(path, sizeof path, FIXTURES "%s.mlirbc", name);
  assert_null(vt_file_map(path, &bytes));
  return bytes;
}

static void kernels_print_as_before(void **state) {
  (void)state;
  static const char *const names[] = {"add",       "matmul",  "prefetch", "copies",
                                      "arrays",    "control", "ring",     "exchange",
                                      "attention", "moves",   "newest",   "whole"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    vt_text text = {0};
    vt_bytes body = map(names[i]), want;
    read_kernel(body, "", &text);
    snprintf(path, sizeof path, FIXTURES "%s.txt", names[i]);
    if (getenv("VTPU_BLESS")) {
      FILE *file = fopen(path, "w");
      assert_non_null(file);
      fputs(vt_text_string(&text), file);
      fclose(file);
    }
    assert_null(vt_file_map(path, &want));
    if (want.size != text.size || memcmp(want.data, vt_text_string(&text), want.size) != 0)
      fail_msg("%s prints as\n%s", names[i], vt_text_string(&text));
    vt_file_unmap(&want);
    vt_file_unmap(&body);
    vt_text_free(&text);
  }
}

static void expect(const char *got, const char *want) {
  if (!strstr(got, want)) fail_msg("'%s' does not hold '%s'", got, want);
}

// The bytes with the first occurrence of `from` replaced; both have the same size.
static void replaced(const char *from, const char *to, const char *want) {
  vt_bytes body = map("add");
  vt_text text = {0};
  uint8_t *copy = malloc(body.size);
  assert_non_null(copy);
  memcpy(copy, body.data, body.size);
  uint8_t *at = memmem(copy, body.size, from, strlen(from));
  assert_non_null(at);
  memcpy(at, to, strlen(to));
  read_kernel((vt_bytes){copy, body.size}, "", &text);
  expect(vt_text_string(&text), want);
  vt_text_free(&text);
  free(copy);
  vt_file_unmap(&body);
}

static void what_is_not_here_is_refused_by_name(void **state) {
  (void)state;
  replaced("arith.addf", "arith.addq", "unknown op stable_mosaic.arith.addq");
  replaced("core_type<tc>", "core_type<sc>", "a SparseCore kernel is not supported");
  replaced("<vmem>", "<rmem>", "an unknown memory space");
}

static void configs_are_checked(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"", "'{' was expected"},
      {"{", "a string was expected"},
      {"{}", "no body"},
      {"{\"custom_call_config\": {\"body\": \"!\"}}", "not base64"},
      {"{\"custom_call_config\": {\"body\": \"\"}} x", "something follows"},
      {"{\"custom_call_config\": {\"body\": \"\"}}", "not MLIR bytecode"},
      {"{\"device_type\": \"DEVICE_TYPE_SPARSECORE\"}", "a SparseCore kernel"},
      {"{\"custom_call_config\": {\"serialization_format\": 2}}", "serialization format 2"},
      {"{\"custom_call_config\": {\"needs_hlo_passes\": true}}", "holds StableHLO ops"},
      {"{\"custom_call_config\": {\"cost_estimate\": {\"flops\": }}}", "a value was expected"},
      {"{\"custom_call_config\": {\"cost_estimate\": {\"flops\": \"x\", \"bytes_accessed\": "
       "-1e99}}}",
       "no body"},
      {"{\"a\": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", "nested too deeply"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_arena arena = {0};
    vt_mosaic *kernel;
    vt_status st = vt_mosaic_read((vt_string){rows[i][0], strlen(rows[i][0])}, &arena, &kernel);
    assert_non_null(st);
    assert_null(kernel);
    expect(vt_status_message(st), rows[i][1]);
    vt_status_free(st);
    vt_arena_free(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_print_as_before),
      cmocka_unit_test(what_is_not_here_is_refused_by_name),
      cmocka_unit_test(configs_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
