// SPDX-License-Identifier: Apache-2.0
// cost_test.c - what partitioning costs, without a clock: memory. Lists of devices are made once,
// so that more operations take as much more memory on many devices as on few.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "import/import.h"
#include "spmd/partition/layers.h"
#include "spmd/spmd.h"

// What a stage leaves in the module of the program. Frees the text.
static size_t bytes_of(vt_text *text, vt_status (*stage)(vt_module *module)) {
  vt_module *module = NULL;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text->data, text->size}, &module);
  size_t before = module ? module->arena.total_bytes : 0;
  if (!st) st = stage(module);
  if (st) fail_msg("%s", vt_status_message(st));
  size_t bytes = module->arena.total_bytes - before;
  vt_module_destroy(module);
  vt_text_free(text);
  return bytes;
}

static vt_status partition(vt_module *module) {
  vt_spmd_inline(module, true);
  VT_TRY(vt_spmd_annotate(module, module->num_partitions));
  return vt_spmd_partition(module, module->num_partitions, NULL);
}

static size_t bytes_for(int64_t layers, int devices) {
  vt_text text = {0};
  vt_write_layers(&text, layers * VT_LAYER_OPS, devices);
  return bytes_of(&text, partition);
}

static void more_operations_cost_alike_on_many_devices(void **state) {
  (void)state;
  size_t few = bytes_for(20, 4) - bytes_for(10, 4);
  size_t many = bytes_for(20, 512) - bytes_for(10, 512);
  assert_in_range(many, few / 2, few + few / 4);
}

static void twice_the_operations_cost_twice_as_much(void **state) {
  (void)state;
  size_t first = bytes_for(20, 8) - bytes_for(10, 8), second = bytes_for(30, 8) - bytes_for(20, 8);
  assert_in_range(second, first - first / 8, first + first / 8);
}

// What whole tiles of parameters that are cut alike take.
static size_t edge_bytes(int params, int devices) {
  vt_text text = {0};
  vt_text_printf(&text,
                 "module @m attributes {mhlo.num_partitions = %d : i32} {\n"
                 "sdy.mesh @mesh = <[\"d\"=%d]>\nfunc.func public @main(",
                 devices, devices);
  for (int i = 0; i < params; i++)
    vt_text_printf(&text,
                   "%s%%p%d: tensor<1024x8xf32> {sdy.sharding = #sdy.sharding<@mesh, "
                   "[{\"d\"}, {}]>}",
                   i ? ", " : "", i);
  vt_text_put(&text, ") -> tensor<1024x8xf32> {\nreturn %p0 : tensor<1024x8xf32>\n}\n}\n");
  return bytes_of(&text, vt_spmd_whole_tiles);
}

static void parameters_that_are_cut_alike_cost_one_list(void **state) {
  (void)state;
  assert_int_equal(edge_bytes(200, 512), edge_bytes(10, 512));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(more_operations_cost_alike_on_many_devices),
                                     cmocka_unit_test(twice_the_operations_cost_twice_as_much),
                                     cmocka_unit_test(parameters_that_are_cut_alike_cost_one_list)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
