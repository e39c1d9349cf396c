// SPDX-License-Identifier: Apache-2.0
// refused_test.c - the programs of src/ir/refused.txt: the verifier rejects each with the words
// above it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "import/import.h"

static const char before[] =
    "module {\nsdy.mesh @mesh = <[\"x\"=2, \"y\"=2]>\n"
    "func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }\n"
    "func.func public @main(%s: tensor<f32>, %v: tensor<4xf32>, %w: tensor<5xf32>, "
    "%m: tensor<4x4xf32>, %n: tensor<4x6xf32>, %t: tensor<2x3x4xf32>, %h: tensor<4xf64>, "
    "%i: tensor<i32>, %j: tensor<4xi32>, %b: tensor<i1>, %p: tensor<4xi1>, "
    "%c: tensor<4xcomplex<f32>>, %u: tensor<2xui64>, %o: tensor<ui64>, %k: !stablehlo.token) {\n";

static int check(const char *want, size_t size, const char *body) {
  vt_module *module = NULL;
  vt_text text = {0};
  if (!strncmp(body, "  func.func", strlen("  func.func")))
    vt_text_put(&text, body); // a whole program
  else
    vt_text_printf(&text, "%s%s  return\n}\n}\n", before, body);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text.data, text.size}, &module);
  char words[256];
  snprintf(words, sizeof words, "%.*s", (int)size, want);
  int bad = !st || !strstr(vt_status_message(st), words);
  if (bad) print_error("\"%s\": %s\n%s\n", words, st ? vt_status_message(st) : "taken", body);
  if (!st) vt_module_destroy(module);
  vt_status_free(st);
  vt_text_free(&text);
  return bad;
}

// `want` is the line above `body`.
static void finish(const char *want, vt_text *body, int *cases, int *bad) {
  if (!body->size) return;
  ++*cases;
  *bad += check(want, strcspn(want, "\n"), vt_text_string(body));
  vt_text_free(body);
}

static void verifier_refuses(void **state) {
  vt_bytes file;
  vt_text all = {0}, body = {0};
  const char *want = "";
  int cases = 0, bad = 0;
  (void)state;
  assert_null(vt_file_map(VTPU_SOURCE_DIR "/src/ir/refused.txt", &file));
  vt_text_put_n(&all, (const char *)file.data, file.size);
  for (const char *line = vt_text_string(&all); *line;
       line += strcspn(line, "\n"), line += !!*line) {
    if (line[0] == ' ') {
      vt_text_printf(&body, "%.*s\n", (int)strcspn(line, "\n"), line);
      continue;
    }
    finish(want, &body, &cases, &bad);
    want = line;
  }
  finish(want, &body, &cases, &bad);
  vt_text_free(&all);
  vt_file_unmap(&file);
  assert_true(cases > 90);
  assert_int_equal(bad, 0);
}

// Programs that are too long to write down. The reader has a limit below the verifier's.
static void nested_regions(void **state) {
  enum { DEEP = 300 };
  vt_text body = {0};
  (void)state;
  for (int i = 0; i < DEEP; i++) vt_text_put(&body, "  %r = \"stablehlo.if\"(%b) ({\n");
  vt_text_put(&body, "  \"stablehlo.return\"(%v) : (tensor<4xf32>) -> ()\n");
  for (int i = 0; i < DEEP; i++)
    vt_text_printf(&body,
                   "  }, {\n  \"stablehlo.return\"(%%v) : (tensor<4xf32>) -> ()\n"
                   "  }) : (tensor<i1>) -> tensor<4xf32>\n%s",
                   i + 1 < DEEP ? "  \"stablehlo.return\"(%r) : (tensor<4xf32>) -> ()\n" : "");
  assert_int_equal(check("nested too deeply", 17, vt_text_string(&body)), 0);
  vt_text_free(&body);
}

static void put_list(vt_text *text, int count, const char *one) {
  for (int i = 0; i < count; i++) vt_text_printf(text, "%s%s", i ? ", " : "", one);
}

static void many_inputs(void **state) {
  enum { INPUTS = 65 };
  vt_text body = {0};
  (void)state;
  vt_text_printf(&body, "  %%r:%d = \"stablehlo.scatter\"(", INPUTS);
  put_list(&body, INPUTS, "%v");
  vt_text_put(&body, ", %j, ");
  put_list(&body, INPUTS, "%v");
  vt_text_put(&body,
              ") <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
              "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
              "indices_are_sorted = false, unique_indices = false}> ({\n  ^bb0(");
  for (int i = 0; i < 2 * INPUTS; i++)
    vt_text_printf(&body, "%s%%a%d: tensor<f32>", i ? ", " : "", i);
  vt_text_put(&body, "):\n  \"stablehlo.return\"(");
  put_list(&body, INPUTS, "%a0");
  vt_text_put(&body, ") : (");
  put_list(&body, INPUTS, "tensor<f32>");
  vt_text_put(&body, ") -> ()\n  }) : (");
  put_list(&body, INPUTS, "tensor<4xf32>");
  vt_text_put(&body, ", tensor<4xi32>, ");
  put_list(&body, INPUTS, "tensor<4xf32>");
  vt_text_put(&body, ") -> (");
  put_list(&body, INPUTS, "tensor<4xf32>");
  vt_text_put(&body, ")\n");
  assert_int_equal(check("more than 64 inputs", 19, vt_text_string(&body)), 0);
  vt_text_free(&body);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(verifier_refuses),
                                     cmocka_unit_test(nested_regions),
                                     cmocka_unit_test(many_inputs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
