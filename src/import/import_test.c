// SPDX-License-Identifier: Apache-2.0
// import_test.c - artifacts to modules, compared with goldens; malformed bytes to errors.
// VTPU_BLESS=1 rewrites the goldens (fixtures/NAME.mlir).
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "import/import.h"
#include "import/vhlo.h"
#include "ir/sharding.h"

#define FIXTURES VTPU_SOURCE_DIR "/src/import/fixtures/"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SWEEP_STEP = 5 };
#else
enum { SWEEP_STEP = 1 };
#endif

static const char *const fixtures[] = {
    "regression",  "regression.v1_0_0", "control",      "windows", "sharded",     "sharded_gspmd",
    "manual",      "manual_gspmd",      "shardy_forms", "odd_ops", "data",        "sharded_strings",
    "short_forms", "rare_ops",          "versions",     "traps",   "mesh_groups", "dynamic",
    "quantized"};
// the last ones are rejected
enum { FIXTURE_COUNT = sizeof fixtures / sizeof *fixtures, REFUSED = 2 };

static vt_bytes open_fixture(const char *name, const char *suffix) {
  char path[512];
  vt_bytes bytes = {0};
  snprintf(path, sizeof path, FIXTURES "%s%s", name, suffix);
  vt_status st = vt_file_map(path, &bytes);
  if (st) fail_msg("%s", vt_status_message(st));
  return bytes;
}

static void check_golden(const char *name, const vt_module *module) {
  char path[512];
  vt_text text = {0};
  vt_module_print(module, false, &text);
  if (getenv("VTPU_BLESS")) {
    snprintf(path, sizeof path, FIXTURES "%s.mlir", name);
    assert_null(vt_file_write(path, text.data, text.size));
  }
  vt_bytes golden = open_fixture(name, ".mlir");
  bool same = golden.size == text.size && !memcmp(golden.data, text.data, text.size);
  if (!same)
    fail_msg("%s: the module differs from fixtures/%s.mlir (VTPU_BLESS=1 writes it anew)", name,
             name);
  vt_file_unmap(&golden);
  vt_text_free(&text);
}

static void fixtures_print_as_their_golden_text(void **state) {
  (void)state;
  for (int i = 0; i < FIXTURE_COUNT - REFUSED; i++) {
    vt_bytes bytes = open_fixture(fixtures[i], ".mlirbc");
    vt_module *module;
    vt_status st = vt_import(bytes, &module);
    if (st) fail_msg("%s: %s", fixtures[i], vt_status_message(st));
    check_golden(fixtures[i], module);
    vt_module_destroy(module);
    vt_file_unmap(&bytes);
  }
}

// Versions 0, 1, 3, 4 and 6 of the encoding, and the text.
static void every_version_of_the_encoding_is_read(void **state) {
  (void)state;
  static const char *const suffixes[] = {".v0_9_0.mlirbc", ".v0_10_0.mlirbc", ".v0_12_0.mlirbc",
                                         ".v0_14_0.mlirbc", ".in.mlir"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    vt_bytes bytes = open_fixture("versions", suffixes[i]);
    vt_module *module;
    vt_status st = vt_import(bytes, &module);
    if (st) fail_msg("versions%s: %s", suffixes[i], vt_status_message(st));
    check_golden("versions", module);
    vt_module_destroy(module);
    vt_file_unmap(&bytes);
  }
}

// Printed text reads back as the same module.
static void printed_text_reads_back_as_the_same_module(void **state) {
  (void)state;
  for (int i = 0; i < FIXTURE_COUNT - REFUSED; i++) {
    vt_bytes bytes = open_fixture(fixtures[i], ".mlir");
    vt_module *module;
    vt_status st = vt_import(bytes, &module);
    if (st) fail_msg("%s.mlir: %s", fixtures[i], vt_status_message(st));
    check_golden(fixtures[i], module);
    vt_module_destroy(module);
    vt_file_unmap(&bytes);
  }
}

// Alignment counts from the start of the file, wherever it is in memory.
static void bytecode_may_lie_at_any_address(void **state) {
  (void)state;
  for (int i = 0; i < FIXTURE_COUNT - REFUSED; i++) {
    vt_bytes bytes = open_fixture(fixtures[i], ".mlirbc");
    uint8_t *block = malloc(bytes.size + 8);
    assert_non_null(block);
    for (size_t offset = 1; offset < 8; offset += 3) {
      memcpy(block + offset, bytes.data, bytes.size);
      vt_module *module;
      vt_status st = vt_import((vt_bytes){block + offset, bytes.size}, &module);
      if (st) fail_msg("%s at %zu: %s", fixtures[i], offset, vt_status_message(st));
      check_golden(fixtures[i], module);
      vt_module_destroy(module);
    }
    free(block);
    vt_file_unmap(&bytes);
  }
}

// The sources of hand-written fixtures use the short forms; the artifacts made from them must say
// the same.
static void short_forms_equal_the_generic_form(void **state) {
  (void)state;
  static const char *const sources[] = {"shardy_forms", "data",  "sharded_strings",
                                        "short_forms",  "traps", "mesh_groups"};
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    vt_bytes bytes = open_fixture(sources[i], ".in.mlir");
    vt_module *module;
    vt_status st = vt_import(bytes, &module);
    if (st) fail_msg("%s.in.mlir: %s", sources[i], vt_status_message(st));
    check_golden(sources[i], module);
    vt_module_destroy(module);
    vt_file_unmap(&bytes);
  }
}

// CHLO ops, and functions without an enclosing module.
static void chlo_and_bare_functions_are_read(void **state) {
  (void)state;
  vt_bytes bytes = open_fixture("chlo", ".in.mlir");
  vt_module *module;
  vt_status st = vt_import(bytes, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  vt_module_destroy(module);
  vt_file_unmap(&bytes);
  static const char text[] = "func.func @half(%a: tensor<f32>) -> tensor<f32> {return %a : "
                             "tensor<f32>}\nfunc.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                             "%0 = call @half(%a) : (tensor<f32>) -> tensor<f32>\nreturn %0 : "
                             "tensor<f32> }";
  st = vt_import((vt_bytes){(const uint8_t *)text, sizeof text - 1}, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  assert_int_equal(module->func_count, 2);
  vt_module_destroy(module);
}

static const struct {
  const char *text, *message;
} malformed_text[] = {
    {"module {", "line 1 column"},
    {"hello", "unknown op 'hello'"},
    {"module { func.func @main() { return } } module { }", "text follows the module"},
    {"module {\n func.func @main() {\n  return %x : tensor<f32> } }",
     "line 3 column 12: %x is not defined"},
    {"module { func.func @main(%a: tensor<?xf32>) { return } }",
     "tensor<?xf32> has a dynamic dimension"},
    {"func.func @main(%a: tensor<2xi32>) { %0 = chlo.erfc %a : tensor<2xi32> -> tensor<2xi32> "
     "return }",
     "erfc at -:1: not defined for element type i32"},
    {"func.func @main(%a: tensor<2xf32>) { %0, %1 = chlo.top_k(%a, k = 3) : tensor<2xf32> -> "
     "(tensor<3xf32>, tensor<3xi32>) return }",
     "not defined for these operands"},
    {"func.func @main(%a: tensor<4xf32>, %n: tensor<1xi64>) { %0 = stablehlo.real_dynamic_slice "
     "%a, "
     "%n, %n, %n : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xf32> "
     "return }",
     "start_indices must be a constant"},
    {"func.func @main() { return } module { }", "text follows the module"},
    {"module { func.func @main(%a: tensor<2xf32>) { %0 = stablehlo.foo %a : tensor<2xf32> return } "
     "}",
     "unknown op 'stablehlo.foo'"},
    {"module { func.func @main() { %0 = stablehlo.iota dim = 0 : tensor<99999999999999999999xf32> "
     "return } }",
     "number is too large"},
    {"module { func.func @f() { return } }", "no function main"},
    {"module { func.func @main() { call @main() : () -> () return } }", "calls itself"},
    {"module { func.func @main() -> tensor<3xf32> { %c = stablehlo.constant dense<[1.0, 2.0]> : "
     "tensor<3xf32>\n"
     "  return %c : tensor<3xf32> } }",
     "2 elements for a tensor of 3"},
};

static void expect_error(vt_bytes bytes, vt_code code, const char *message) {
  vt_module *module = (vt_module *)1;
  vt_status st = vt_import(bytes, &module);
  assert_non_null(st);
  assert_null(module);
  assert_int_equal(vt_status_code(st), code);
  if (!strstr(vt_status_message(st), message))
    fail_msg("'%s' lacks '%s'", vt_status_message(st), message);
  vt_status_free(st);
}

static void unsupported_programs_are_refused_by_name(void **state) {
  (void)state;
  vt_bytes bytes = open_fixture("dynamic", ".mlirbc");
  expect_error(bytes, VT_UNIMPLEMENTED, "func.func: -:3: tensor<?x4xf32> has a dynamic dimension");
  vt_file_unmap(&bytes);
  bytes = open_fixture("quantized", ".mlirbc");
  expect_error(bytes, VT_UNIMPLEMENTED,
               "stablehlo.uniform_quantize: -:4: a quantised type is not supported");
  vt_file_unmap(&bytes);
}

// One byte of a good file changed (or the file truncated), and the error.
static const struct {
  const char *fixture;
  long at; // from the end when negative
  uint8_t value;
  const char *message;
} malformed[] = {
    {"sharded", 0, 'X', "neither MLIR bytecode nor text"},
    {"sharded", 4, 0x11, "bytecode version 8: 0 to 6 are known"},
    {"sharded", 5, 0x00, "section"},
    {"sharded", 24, 0x01, "section"},
};

// An op of unknown name in bytecode: the error has its name and location.
static void an_unknown_op_is_named_with_its_place(void **state) {
  (void)state;
  vt_bytes bytes = open_fixture("traps", ".mlirbc");
  uint8_t *copy = malloc(bytes.size);
  assert_non_null(copy);
  memcpy(copy, bytes.data, bytes.size);
  uint8_t *name = memmem(copy, bytes.size, "tan_v2", 6);
  assert_non_null(name);
  memcpy(name, "tax_v2", 6);
  expect_error((vt_bytes){copy, bytes.size}, VT_UNIMPLEMENTED, "vhlo.tax_v2");
  free(copy);
  vt_file_unmap(&bytes);
}

static void malformed_files_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    vt_bytes bytes = open_fixture(malformed[i].fixture, ".mlirbc");
    uint8_t *copy = malloc(bytes.size);
    assert_non_null(copy);
    memcpy(copy, bytes.data, bytes.size);
    copy[malformed[i].at < 0 ? (long)bytes.size + malformed[i].at : malformed[i].at] =
        malformed[i].value;
    expect_error((vt_bytes){copy, bytes.size}, VT_INVALID_ARGUMENT, malformed[i].message);
    free(copy);
    vt_file_unmap(&bytes);
  }
  expect_error((vt_bytes){(const uint8_t *)"", 0}, VT_INVALID_ARGUMENT, "");
  for (size_t i = 0; i < sizeof malformed_text / sizeof *malformed_text; i++) {
    const char *text = malformed_text[i].text;
    vt_module *module;
    vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
    if (!st) fail_msg("'%s' was accepted", text);
    if (!strstr(vt_status_message(st), malformed_text[i].message))
      fail_msg("'%s' lacks '%s'", vt_status_message(st), malformed_text[i].message);
    vt_status_free(st);
  }
}

// Any bytes give a module or an error, never both, never anything else.
static void import_any(const uint8_t *data, size_t size) {
  vt_module *module;
  vt_status st = vt_import((vt_bytes){data, size}, &module);
  assert_true((st == VT_OK) == (module != NULL));
  vt_status_free(st);
  vt_module_destroy(module);
}

typedef struct sweep_file {
  const char *name, *suffix;
} sweep_file;

static const sweep_file sweep_files[] = {{"regression", ".mlirbc"},
                                         {"regression.v1_0_0", ".mlirbc"},
                                         {"control", ".mlirbc"},
                                         {"windows", ".mlirbc"},
                                         {"sharded", ".mlirbc"},
                                         {"sharded_gspmd", ".mlirbc"},
                                         {"manual", ".mlirbc"},
                                         {"manual_gspmd", ".mlirbc"},
                                         {"shardy_forms", ".mlirbc"},
                                         {"odd_ops", ".mlirbc"},
                                         {"data", ".mlirbc"},
                                         {"sharded_strings", ".mlirbc"},
                                         {"dynamic", ".mlirbc"},
                                         {"quantized", ".mlirbc"},
                                         {"rare_ops", ".mlirbc"},
                                         {"traps", ".mlirbc"},
                                         {"mesh_groups", ".mlirbc"},
                                         {"versions.v0_9_0", ".mlirbc"},
                                         {"versions.v0_12_0", ".mlirbc"},
                                         {"shardy_forms", ".in.mlir"},
                                         {"odd_ops", ".in.mlir"},
                                         {"data", ".in.mlir"},
                                         {"sharded_strings", ".in.mlir"},
                                         {"short_forms", ".in.mlir"},
                                         {"traps", ".in.mlir"},
                                         {"mesh_groups", ".in.mlir"},
                                         {"manual", ".mlir"}};
enum { SWEEP_COUNT = sizeof sweep_files / sizeof *sweep_files };

// Every byte of artifacts, about five hundred positions of texts.
static size_t sweep_step(const sweep_file *file, size_t size) {
  size_t step = strcmp(file->suffix, ".mlirbc") ? size / 500 + 1 : 1;
  return step * SWEEP_STEP;
}

static void every_truncated_file_is_refused(void **state) {
  (void)state;
  for (int i = 0; i < SWEEP_COUNT; i++) {
    vt_bytes bytes = open_fixture(sweep_files[i].name, sweep_files[i].suffix);
    for (size_t size = 0; size < bytes.size; size += sweep_step(&sweep_files[i], bytes.size)) {
      uint8_t *copy = malloc(size ? size : 1); // exact size: overreads are caught
      assert_non_null(copy);
      memcpy(copy, bytes.data, size);
      import_any(copy, size);
      free(copy);
    }
    vt_file_unmap(&bytes);
  }
}

static void no_flipped_byte_crashes(void **state) {
  (void)state;
  static const uint8_t flips[] = {0x01, 0x10, 0x80, 0xFF};
  for (int i = 0; i < SWEEP_COUNT; i++) {
    vt_bytes bytes = open_fixture(sweep_files[i].name, sweep_files[i].suffix);
    uint8_t *copy = malloc(bytes.size);
    assert_non_null(copy);
    memcpy(copy, bytes.data, bytes.size);
    for (size_t at = 0; at < bytes.size; at += sweep_step(&sweep_files[i], bytes.size)) {
      for (size_t f = 0; f < sizeof flips; f++) {
        copy[at] ^= flips[f];
        import_any(copy, bytes.size);
        copy[at] = bytes.data[at];
      }
    }
    free(copy);
    vt_file_unmap(&bytes);
  }
}

// Properties are read in the order of the rows.
static void rows_of_properties_are_in_their_order(void **state) {
  (void)state;
  for (size_t i = 0; vt_vhlo_at(i); i++) {
    const vt_vhlo_row *row = vt_vhlo_at(i);
    assert_ptr_equal(vt_vhlo_find(row->name, strlen(row->name)), row);
    for (int k = 1; row->attrs[0] && row->attrs[k]; k++)
      if (strcmp(row->attrs[k - 1], row->attrs[k]) >= 0)
        fail_msg("%s: attributes out of order", row->name);
  }
}

// Conversions between whole and local arrays that are all replicated: only the module gives the
// number of devices.
static void replicated_conversions_take_the_devices_of_the_module(void **state) {
  (void)state;
  static const char text[] =
      "module @m attributes {mhlo.num_partitions = 8 : i32} {\n"
      "func.func public @main(%a: tensor<5xf32>) -> tensor<5xf32> {\n"
      "%0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = \"{replicated}\"} : "
      "(tensor<5xf32>) -> tensor<5xf32>\n"
      "%1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = \"{manual}\"} : "
      "(tensor<5xf32>) -> tensor<5xf32>\n"
      "%2 = call @body(%1) : (tensor<5xf32>) -> tensor<5xf32>\n"
      "%3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = \"{manual}\"} : (tensor<5xf32>) "
      "-> tensor<5xf32>\n"
      "%4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding = \"{replicated}\"} : "
      "(tensor<5xf32>) -> tensor<5xf32>\n"
      "return %4 : tensor<5xf32> }\n"
      "func.func private @body(%a: tensor<5xf32>) -> tensor<5xf32> {return %a : tensor<5xf32>}}";
  vt_module *module;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, sizeof text - 1}, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  const vt_op *op = module->main->first;
  while (op && op->code != VT_OP_MANUAL_COMPUTATION) op = op->next;
  assert_non_null(op);
  assert_int_equal(vt_op_attr(op, VT_ATTR_MANUAL_AXES)->count, 1);
  assert_int_equal(vt_mesh_size(vt_op_attr(op, VT_ATTR_IN_SHARDINGS)->shardings[0]->mesh), 8);
  vt_module_destroy(module);
}

// A computation over one axis inside another over one axis, in GSPMD's strings: the manual
// subgroups inside name both, those around the inner one only the outer axis.
static void nested_manual_computations_know_their_axes(void **state) {
  (void)state;
  static const char text[] =
      "module @m attributes {mhlo.num_partitions = 8 : i32} {\n"
      "func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
      "%0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = \"{devices=[2,4]<=[8] "
      "last_tile_dim_replicate}\"} : (tensor<8xf32>) -> tensor<8xf32>\n"
      "%1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "
      "\"{devices=[1,2,4]<=[8] last_tile_dims={manual, replicated}}\"} : (tensor<8xf32>) -> "
      "tensor<4xf32>\n"
      "%2 = call @outer(%1) : (tensor<4xf32>) -> tensor<4xf32>\n"
      "%3 = stablehlo.custom_call @SPMDShardToFullShape(%2) {mhlo.sharding = "
      "\"{devices=[2,4]<=[8] last_tile_dim_replicate}\"} : (tensor<4xf32>) -> tensor<8xf32>\n"
      "return %3 : tensor<8xf32> }\n"
      "func.func private @outer(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
      "%0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "
      "\"{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={manual, replicated}}\"} : "
      "(tensor<4xf32>) -> tensor<4xf32>\n"
      "%1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "
      "\"{devices=[1,4,2]<=[8] last_tile_dims={manual, replicated}}\"} : (tensor<4xf32>) -> "
      "tensor<2xf32>\n"
      "%2 = call @inner(%1) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "%3 = stablehlo.custom_call @SPMDShardToFullShape(%2) {mhlo.sharding = "
      "\"{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={manual, replicated}}\"} : "
      "(tensor<2xf32>) -> tensor<4xf32>\n"
      "return %3 : tensor<4xf32> }\n"
      "func.func private @inner(%a: tensor<2xf32>) -> tensor<2xf32> {return %a : tensor<2xf32>}}";
  vt_module *module;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, sizeof text - 1}, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  static const struct {
    const char *func, *axis;
  } rows[] = {{"main", "_0"}, {"outer", "_1"}};
  for (int i = 0; i < 2; i++) {
    const vt_op *op = vt_module_find_func(module, rows[i].func)->first;
    while (op && op->code != VT_OP_MANUAL_COMPUTATION) op = op->next;
    assert_non_null(op);
    const vt_attr *axes = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
    assert_int_equal(axes->count, 1);
    assert_string_equal(axes->strings[0].data, rows[i].axis);
  }
  vt_module_destroy(module);
}

static uint64_t hash_of(const char *text) {
  vt_module *module;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  uint64_t hash = vt_module_hash(module);
  vt_module_destroy(module);
  return hash;
}

// XLA writes StableHLO with ops of its own where it has no such op: TensorFlow's text has them.
static void xlas_own_ops_are_read(void **state) {
  (void)state;
  assert_int_equal(hash_of("module @m {\n"
                           "func.func @main(%a: tensor<5xf32>) -> tensor<5xf32> {\n"
                           "%0 = mhlo.erf %a : tensor<5xf32>\n"
                           "%1 = mhlo.copy %0 : tensor<5xf32>\n"
                           "return %1 : tensor<5xf32> }}"),
                   hash_of("module @m {\n"
                           "func.func @main(%a: tensor<5xf32>) -> tensor<5xf32> {\n"
                           "%0 = chlo.erf %a : tensor<5xf32> -> tensor<5xf32>\n"
                           "return %0 : tensor<5xf32> }}"));
}

// PyTorch/XLA's calls: a product along each side, with the transposed matrix for the gradient.
static void images_are_resized_by_products(void **state) {
  (void)state;
  static const struct {
    const char *call, *want; // NULL: taken
  } rows[] = {
      {"@ResizeNearest(%a) {backend_config = \"\\2200\\22\"} : (tensor<2x3x4x5xf32>) -> "
       "tensor<2x6x8x5xf32>",
       NULL},
      {"@ResizeBilinearGrad(%a) {backend_config = \"\\2210\\22\"} : (tensor<2x3x4x5xf32>) -> "
       "tensor<2x2x2x5xf32>",
       NULL},
      {"@ResizeNearest(%a) {backend_config = \"\\220\\22\"} : (tensor<2x3x4x5xf32>) -> "
       "tensor<2x6x8x5xf32>",
       "two flags were expected"},
      {"@ResizeNearest(%a) {backend_config = \"\\2200\\22\"} : (tensor<2x3x4x5xf32>) -> "
       "tensor<2x6x8x7xf32>",
       "two flags were expected"},
      {"@ResizeNearest(%a) {backend_config = \"\\2200\\22\"} : (tensor<2x3x4x5xf32>) -> "
       "tensor<2x6x2000000000x5xf32>",
       "images of this size are not resized"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[1024];
    int size = snprintf(text, sizeof text,
                        "module @m {\nfunc.func @main(%%a: tensor<2x3x4x5xf32>) {\n"
                        "%%0 = stablehlo.custom_call %s\nreturn }}",
                        rows[i].call);
    vt_module *module = NULL;
    vt_status st = vt_import((vt_bytes){(const uint8_t *)text, (size_t)size}, &module);
    if (!st == !!rows[i].want || (st && !strstr(vt_status_message(st), rows[i].want)))
      fail_msg("%s: %s", rows[i].call, st ? vt_status_message(st) : "taken");
    int products = 0;
    for (const vt_op *op = st ? NULL : module->main->first; op; op = op->next)
      products += op->code == VT_OP_DOT_GENERAL;
    assert_int_equal(products, st ? 0 : 2);
    if (!st) vt_module_destroy(module);
    vt_status_free(st);
  }
}

#define SHARDED "{mhlo.sharding = \"{devices=[4]<=[4]}\"}"
#define TO_LOCAL(x)                                                                                \
  "stablehlo.custom_call @SPMDFullToShardShape(" x ") {mhlo.sharding = \"{manual}\"} "
#define BACK(x) "stablehlo.custom_call @SPMDShardToFullShape(" x ") " SHARDED " "

static vt_status import_main(const char *body, vt_module **out_module) {
  char text[2048];
  int size = snprintf(text, sizeof text,
                      "module @m attributes {mhlo.num_partitions = 4 : i32} {\n"
                      "func.func public @main(%%a: tensor<8xf32> " SHARDED ", %%s: tensor<f32>)"
                      " -> tensor<8xf32> {\n%s }}",
                      body);
  return vt_import((vt_bytes){(const uint8_t *)text, (size_t)size}, out_module);
}

// As PyTorch/XLA writes it: ops between the conversions, a scalar from outside, two computations of
// which the second follows on the first.
static void ops_between_conversions_are_manual(void **state) {
  (void)state;
  vt_module *module;
  vt_status st = import_main(
      "%0 = " TO_LOCAL(
          "%a") ": (tensor<8xf32>) -> tensor<2xf32>\n"
                "%1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2xf32>\n"
                "%2 = stablehlo.add %0, %1 : tensor<2xf32>\n"
                "%3 = " BACK("%2") ": (tensor<2xf32>) -> tensor<8xf32>\n"
                                   "%4 = stablehlo.custom_call @Sharding(%3) " SHARDED
                                   ": (tensor<8xf32>) -> tensor<8xf32>\n"
                                   "%5 = " TO_LOCAL(
                                       "%4") ": (tensor<8xf32>) -> tensor<2xf32>\n"
                                             "%6 = stablehlo.negate %5 : tensor<2xf32>\n"
                                             "%10 = stablehlo.add %6, %0 : tensor<2xf32>\n"
                                             "%9 = stablehlo.multiply %10, %2 : tensor<2xf32>\n"
                                             "%7 = " BACK(
                                                 "%9") ": (tensor<2xf32>) -> tensor<8xf32>\n"
                                                       "%8 = stablehlo.add %3, %7 : tensor<8xf32>\n"
                                                       "return %8 : tensor<8xf32>",
      &module);
  if (st) fail_msg("%s", vt_status_message(st));
  vt_text text = {0};
  for (const vt_op *op = module->main->first; op; op = op->next) {
    vt_text_printf(&text, "%s(", vt_op_short_name(op->code));
    for (const vt_op *in = op->region_count ? op->regions[0]->first : NULL; in; in = in->next)
      vt_text_printf(&text, "%s ", vt_op_short_name(in->code));
    vt_text_printf(&text, ") ");
  }
  assert_string_equal(vt_text_string(&text),
                      "broadcast_in_dim() manual_computation(add reshape ) sharding_constraint() "
                      "manual_computation(reshape negate add multiply ) add() ");
  vt_text_free(&text);
  vt_module_destroy(module);
}

static void other_forms_of_manual_computations_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *want, *body;
  } rows[] = {
      {"the function returns an array of one device",
       "%0 = " TO_LOCAL("%a") ": (tensor<8xf32>) -> tensor<8xf32>\nreturn %0 : tensor<8xf32>"},
      {"its operand is not on the side that it comes from",
       "%0 = " BACK("%a") ": (tensor<8xf32>) -> tensor<8xf32>\nreturn %0 : tensor<8xf32>"},
      {"no axis becomes manual",
       "%0 = " TO_LOCAL("%a") ": (tensor<8xf32>) -> tensor<2xf32>\n"
                              "%1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding "
                              "= \"{manual}\"} : "
                              "(tensor<2xf32>) -> tensor<2xf32>\n"
                              "return %a : tensor<8xf32>"},
      {"the whole array has no sharding",
       "%0 = stablehlo.negate %a : tensor<8xf32>\n"
       "%1 = " TO_LOCAL("%0") ": (tensor<8xf32>) -> tensor<2xf32>\nreturn %a : tensor<8xf32>"},
      {"an array of one device is used outside of it",
       "%0 = " TO_LOCAL("%a") ": (tensor<8xf32>) -> tensor<2xf32>\n"
                              "%1 = " BACK("%0") ": (tensor<2xf32>) -> tensor<8xf32>\n"
                                                 "%2 = stablehlo.concatenate %0, %1, dim = 0 : "
                                                 "(tensor<2xf32>, tensor<8xf32>) -> "
                                                 "tensor<10xf32>\nreturn %a : tensor<8xf32>"},
      {"one operand and one result",
       "%0 = stablehlo.custom_call @SPMDFullToShardShape(%a, %s) : (tensor<8xf32>, tensor<f32>) "
       "-> tensor<2xf32>\nreturn %a : tensor<8xf32>"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_module *module = NULL;
    vt_status st = import_main(rows[i].body, &module);
    if (!st || !strstr(vt_status_message(st), rows[i].want))
      fail_msg("\"%s\": %s", rows[i].want, st ? vt_status_message(st) : "taken");
    vt_status_free(st);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(xlas_own_ops_are_read),
      cmocka_unit_test(images_are_resized_by_products),
      cmocka_unit_test(ops_between_conversions_are_manual),
      cmocka_unit_test(other_forms_of_manual_computations_are_refused),
      cmocka_unit_test(fixtures_print_as_their_golden_text),
      cmocka_unit_test(printed_text_reads_back_as_the_same_module),
      cmocka_unit_test(short_forms_equal_the_generic_form),
      cmocka_unit_test(chlo_and_bare_functions_are_read),
      cmocka_unit_test(every_version_of_the_encoding_is_read),
      cmocka_unit_test(unsupported_programs_are_refused_by_name),
      cmocka_unit_test(malformed_files_are_refused),
      cmocka_unit_test(every_truncated_file_is_refused),
      cmocka_unit_test(no_flipped_byte_crashes),
      cmocka_unit_test(rows_of_properties_are_in_their_order),
      cmocka_unit_test(bytecode_may_lie_at_any_address),
      cmocka_unit_test(an_unknown_op_is_named_with_its_place),
      cmocka_unit_test(replicated_conversions_take_the_devices_of_the_module),
      cmocka_unit_test(nested_manual_computations_know_their_axes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
