// SPDX-License-Identifier: Apache-2.0
// executable.c - the lifetime of a compiled program, of its variants for arguments that differ
// between devices, and of the program of one device.
#include "base/check.h"
#include "base/memory.h"
#include "import/import.h"
#include "mosaic_host/mosaic_host.h"
#include "runtime/predict.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct own_copy {
  vt_arena *arena;
  const bool *own;
  uint32_t count;
  const bool *copy;
} own_copy;

static vt_status copy_own(void *user) {
  own_copy *c = user;
  c->copy = (const bool *)vt_arena_copy(c->arena, c->own, c->count);
  return VT_OK;
}

vt_status vt_executable_for_own(vt_executable *executable, const bool *own,
                                vt_executable **out_other) {
  const vt_executable_info *info = &executable->info;
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  vt_executable *other = executable->others;
  while (other && memcmp(other->own, own, info->param_count)) other = other->next_other;
  if (!other) {
    vt_executable_options options = executable->options;
    options.bytes = info->options;
    options.device_ids = info->device_ids;
    own_copy c = {&executable->arena, own, info->param_count, NULL};
    st = vt_attempt_keep(copy_own, &c);
    if (!st)
      st = vt_executable_compile_own(&executable->slice, info->program, &options, c.copy, &other);
    if (!st) {
      other->predicted = executable->predicted;
      other->next_other = executable->others;
      executable->others = other;
    }
  }
  vt_unlock(&executable->others_lock);
  *out_other = other;
  return st;
}

// An op that another replica takes part in, or that is told which one runs it.
static bool meets_others(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    uint32_t flags = vt_op_info_get(op->code)->flags;
    if (flags & (VT_OPF_COLLECTIVE | VT_OPF_PER_DEVICE)) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (meets_others(op->regions[r])) return true;
  }
  return false;
}

static vt_status compile_alone(vt_executable *executable, vt_executable **out_alone) {
  const vt_executable_info *info = &executable->info;
  vt_executable_options options = executable->options;
  vt_module *module = NULL;
  VT_TRY(vt_import(info->program, &module));
  bool meets = false;
  for (uint32_t i = 0; i < module->func_count; i++) meets = meets || meets_others(module->funcs[i]);
  vt_module_destroy(module);
  executable->known_to_meet = meets;
  if (info->replicas != info->partitions)
    return vt_error(VT_INVALID_ARGUMENT,
                    "%s runs on %d devices at once: each takes part in what the others compute",
                    info->name, info->partitions);
  if (meets) return VT_OK;
  options.replicas = options.partitions = 1;
  options.alone = true;
  options.device_ids = NULL;
  options.bytes = info->options;
  return vt_executable_compile_own(&executable->slice, info->program, &options, NULL, out_alone);
}

vt_status vt_executable_alone(vt_executable *executable, vt_executable **out_alone) {
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  if (!executable->alone && !executable->known_to_meet)
    st = compile_alone(executable, &executable->alone);
  if (executable->alone) executable->alone->predicted = executable->predicted;
  *out_alone = executable->alone;
  vt_unlock(&executable->others_lock);
  return st;
}

vt_status vt_executable_local(vt_executable *executable) {
  const vt_executable_info *info = &executable->info;
  if (executable->local) return VT_OK;
  vt_module *module = NULL;
  VT_TRY(vt_import_for(info->program, info->partitions / info->replicas, &module));
  module->num_replicas = info->replicas;
  module->num_partitions = info->partitions / info->replicas;
  vt_status st = VT_OK;
  if (info->partitions == 1 && !executable->manual)
    vt_spmd_inline(module, false);
  else
    st = vt_partition_module(module, NULL);
  if (!st) st = vt_executable_collectives(executable, module);
  if (!st && module->main->param_count != info->param_count)
    st = vt_error(VT_INTERNAL, "%u parameters on one device, %u in all", module->main->param_count,
                  info->param_count);
  if (st)
    vt_module_destroy(module);
  else
    executable->local = module;
  return st;
}

vt_executable *vt_executable_retain(vt_executable *executable) {
  vt_assert(atomic_load(&executable->refs) > 0);
  atomic_fetch_add_explicit(&executable->refs, 1, memory_order_relaxed);
  return executable;
}

void vt_executable_release(vt_executable *executable) {
  if (!executable) return;
  if (atomic_fetch_sub_explicit(&executable->refs, 1, memory_order_acq_rel) != 1) return;
  if (vt_forked()) return; // oneDNN and the code generator have their own locks
  for (vt_executable *other = executable->others, *next; other; other = next) {
    next = other->next_other;
    vt_executable_release(other);
  }
  for (vt_executable *other = executable->unions, *next; other; other = next) {
    next = other->next_other;
    vt_executable_release(other);
  }
  vt_executable_release(executable->alone);
  pthread_mutex_destroy(&executable->others_lock);
  vt_program_destroy(executable->program);
  vt_mkernels_destroy(executable->kernels);
  vt_module_destroy(executable->local);
  vt_arena_free(&executable->use_arena);
  if (executable->prediction) vt_prediction_free(executable->prediction);
  vt_arena_free(&executable->prediction_arena);
  vt_arena_free(&executable->arena);
  free(executable);
}

const vt_executable_info *vt_executable_get(const vt_executable *executable) {
  return &executable->info;
}
const vt_slice *vt_executable_slice(const vt_executable *executable) {
  return &executable->slice;
}

const vt_module *vt_executable_module(const vt_executable *executable) {
  return vt_program_module(executable->program);
}
