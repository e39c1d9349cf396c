// SPDX-License-Identifier: Apache-2.0
// v1.c - the slice "v1": public API calls to the driver of TPU v1 (src/tpu1/driver.h).
// In: saved models, arrays. Out: results, the simulated chip's time. Owns: the model.
#include "api/v1.h"

#include <stdlib.h>
#include <string.h>

struct vt_v1 {
  vt_tpu1_model *model;
  vt_tpu1_chip chip;
};

bool vt_v1_asked(const char *accelerator_type) {
  if (!accelerator_type) accelerator_type = getenv("VTPU_ACCELERATOR_TYPE");
  if (!accelerator_type) accelerator_type = getenv("TPU_ACCELERATOR_TYPE");
  return accelerator_type && strcmp(accelerator_type, "v1") == 0;
}

vtpu_slice_info vt_v1_describe(void) {
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  return (vtpu_slice_info){.accelerator_type = "v1",
                           .device_kind = "TPU v1",
                           .devices = 1,
                           .chips = 1,
                           .hosts = 1,
                           .slices = 1,
                           .topology = {1, 1, 1},
                           .hbm_bytes_per_device = (int64_t)chip.weight_memory_bytes};
}

vt_status vt_v1_load(vt_bytes bytes, vt_v1 **out_v1) {
  vt_status st = VT_OK;
  *out_v1 = NULL;
  vt_v1 *v1 = calloc(1, sizeof *v1);
  if (!v1) return vt_error_no_memory();
  v1->chip = vt_tpu1_chip_default();
  VT_TRY_OUT(vt_tpu1_model_parse(bytes, &v1->model));
  VT_TRY_OUT(vt_tpu1_model_compile(v1->model, &v1->chip));
out:
  if (st) {
    vt_v1_unload(v1);
    return vt_status_wrap(st, "a v1 program is a model written by `vtpu v1 compile`");
  }
  *out_v1 = v1;
  return VT_OK;
}

void vt_v1_unload(vt_v1 *v1) {
  if (!v1) return;
  vt_tpu1_model_destroy(v1->model);
  free(v1);
}

const vt_func *vt_v1_main(const vt_v1 *v1) {
  return vt_tpu1_model_network(v1->model)->module->main;
}

vt_status vt_v1_run(vt_v1 *v1, const vtpu_tensor *inputs, vtpu_tensor *outputs) {
  const vt_func *main = vt_v1_main(v1);
  vt_arena scratch = {0};
  vt_tensor *args = VT_NEW_ARRAY(&scratch, vt_tensor, main->param_count + 1);
  vt_tensor *results = VT_NEW_ARRAY(&scratch, vt_tensor, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    args[i] = (vt_tensor){main->params[i]->type, inputs[i].data};
  for (uint32_t i = 0; i < main->return_count; i++)
    results[i] = (vt_tensor){main->returns[i]->type, outputs[i].data};
  vt_status st = vt_tpu1_model_evaluate(v1->model, &v1->chip, args, results, false);
  vt_arena_free(&scratch);
  return st;
}

vtpu_report vt_v1_report(const vt_v1 *v1) {
  const vt_tpu1_counters *n = &vt_tpu1_model_timing(v1->model)->counters;
  const vt_tpu1_program *program = vt_tpu1_model_plan(v1->model)->program;
  return (vtpu_report){.devices = 1,
                       .flops = 2 * (double)n->macs,
                       .bytes = (double)(n->weight_bytes + n->host_in_bytes + n->host_out_bytes),
                       .seconds = (double)n->cycles / v1->chip.clock_hz,
                       .argument_bytes = n->host_in_bytes,
                       .output_bytes = n->host_out_bytes,
                       .peak_bytes = program->tile_count * vt_tpu1_chip_tile_bytes(&v1->chip)};
}

void vt_v1_print(const vt_v1 *v1, vt_text *text) {
  const vt_tpu1_program *program = vt_tpu1_model_plan(v1->model)->program;
  for (size_t i = 0; i < program->code_size; i++) {
    vt_tpu1_print(&program->code[i], text);
    vt_text_put(text, "\n");
  }
}
