// SPDX-License-Identifier: Apache-2.0
// predict.c - what a real slice would do with a program, which is neither compiled for this machine
// nor run: the program of one device, its memory, its time. To all of this a call of an elementwise
// function, as of hundreds of steps that make random bits, is one elementwise operator.
#include <math.h>

#include "import/import.h"
#include "mosaic/mosaic.h"
#include "passes/collectives.h"
#include "passes/passes.h"
#include "runtime/predict.h"
#include "runtime/runtime_internal.h"
#include "spmd/spmd.h"

#include "base/memory.h"

// The passes that serve only this machine are left out.
static const char host_only[] = "decompose,sink,pool,lower_precision";

static vt_status optimise(vt_module *module) {
  vt_collective_options collectives = vt_collectives_default();
  vt_pass_options options = {.exact_dots = true, .keep_elementwise = true, .skip = host_only};
  if (module->collectives) VT_TRY(vt_collectives_run(module, &collectives));
  return vt_passes_run(module, &options);
}

static vt_status measure(vt_prediction *p, const vt_slice *slice, vt_arena *arena) {
  vt_executable executable = {.slice = *slice, .info = {.partitions = 1, .replicas = 1}};
  vt_status st = vt_executable_signature(&executable, p->module);
  if (!st) st = vt_executable_account_local(&executable, p->module->main, arena, &p->hbm);
  p->hbm_peak_bytes = p->hbm.peak_bytes;
  p->io = executable.arena;
  return st;
}

static void add_up(vt_prediction *p, const vt_slice *slice) {
  const vt_chip *chip = slice->chip;
  double peak = chip->bf16_flops_per_s / chip->devices;
  p->flops = fmin(vt_chip_flops(chip, p->module, vt_mosaic_said), 1e300) * p->devices;
  p->mfu = p->timing.flops / (p->timing.seconds * peak);
  p->joules = p->timing.joules * p->devices;
  p->usd = vt_slice_usd_per_hour(slice) * p->timing.seconds / 3600;
}

vt_status vt_predict_module(const vt_slice *slice, vt_arena *arena, vt_prediction *p) {
  p->devices = p->module->num_partitions * p->module->num_replicas;
  if (p->devices > vt_slice_devices(slice))
    return vt_error(VT_INVALID_ARGUMENT,
                    "the program runs on %d devices, %s has %d: name a larger slice", p->devices,
                    slice->name, vt_slice_devices(slice));
  if (p->devices > 1)
    VT_TRY(vt_partition_module(p->module, &(vt_partition_options){.keep_elementwise = true}));
  else
    vt_spmd_inline(p->module, true);
  VT_TRY(optimise(p->module));
  VT_TRY(measure(p, slice, arena));
  if (p->module->made[VT_OP_CUSTOM_CALL]) // a kernel that is refused is timed by its bytes
    vt_status_free(vt_mosaic_attach(p->module, NULL));
  vt_chip_time(slice, p->devices, p->module, vt_mosaic_cost, arena, &p->timing);
  add_up(p, slice);
  return VT_OK;
}

vt_status vt_predict(vt_bytes program, const vt_slice *slice, vt_arena *arena,
                     vt_prediction *out_prediction) {
  *out_prediction = (vt_prediction){0};
  vt_status st = vt_import_outline(program, &out_prediction->module);
  if (!st) vt_arena_hurry(&out_prediction->module->arena);
  if (!st) st = vt_predict_module(slice, arena, out_prediction);
  if (st) vt_prediction_free(out_prediction);
  return st;
}

static vt_status predict_executable(void *user) {
  vt_executable *executable = user;
  vt_prediction *p = VT_NEW(&executable->prediction_arena, vt_prediction);
  VT_TRY(
      vt_predict(executable->info.program, &executable->slice, &executable->prediction_arena, p));
  executable->prediction = p;
  return VT_OK;
}

vt_status vt_executable_predict(vt_executable *executable, const vt_prediction **out_prediction) {
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  if (!executable->prediction) {
    vt_attempt attempt;
    st = vt_attempt_run(&attempt, predict_executable, executable);
    if (st) vt_arena_free(&executable->prediction_arena);
    vt_attempt_end(&attempt);
  }
  *out_prediction = executable->prediction;
  vt_unlock(&executable->others_lock);
  return st;
}

void vt_prediction_free(vt_prediction *prediction) {
  vt_module_destroy(prediction->module);
  vt_arena_free(&prediction->io);
  prediction->module = NULL;
}
