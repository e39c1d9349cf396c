// SPDX-License-Identifier: Apache-2.0
// program_text.c - the compiled program as HLO.
//
// Of one device it is the optimised module. Of several it is the program that each of them would
// run on a real slice. This machine runs such a program once, on whole arrays, so it is partitioned
// only when somebody asks.
#include "base/memory.h"
#include "hlo/hlo.h"
#include "runtime/runtime_internal.h"

static const vt_hlo_io *ios_of(vt_arena *arena, const vt_io *ios, uint32_t count,
                               bool partitioned) {
  vt_hlo_io *out = VT_NEW_ARRAY(arena, vt_hlo_io, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    out[i] = (vt_hlo_io){.host = ios[i].memory != VT_MEMORY_DEVICE,
                         .alias_output = ios[i].alias,
                         .donated = ios[i].donated};
    // Partials have a dimension more, which neither layouts nor shardings know.
    if (ios[i].partials <= 1) out[i].layout = ios[i].layout;
    if (partitioned && ios[i].partials <= 1)
      out[i].sharding = (vt_string){(const char *)ios[i].sharding.data, ios[i].sharding.size};
  }
  return out;
}

// `module` has the parameters and results of the executable.
static vt_status put_hlo(const vt_executable *executable, const vt_module *module, bool message,
                         vt_text *out) {
  const vt_executable_info *info = &executable->info;
  vt_arena scratch = {0};
  vt_hlo *hlo = NULL;
  int32_t partitions = info->partitions / info->replicas;
  vt_hlo_options options = {
      .partitions = partitions,
      .replicas = info->replicas,
      .params = ios_of(&scratch, info->params, info->param_count, partitions > 1),
      .results = ios_of(&scratch, info->results, info->result_count, partitions > 1)};
  vt_status st = vt_hlo_build(module, &options, &hlo);
  if (!st && message) vt_hlo_write(hlo, out);
  if (!st && !message) vt_hlo_print(hlo, out);
  vt_hlo_destroy(hlo);
  vt_arena_free(&scratch);
  return st;
}

typedef struct asked {
  vt_executable *executable;
  bool message;
  vt_text *out;
} asked;

static vt_status make_local(void *user) {
  return vt_executable_local(user);
}

static vt_status print(void *user) {
  const asked *a = user;
  const vt_executable_info *info = &a->executable->info;
  const vt_module *module = a->executable->local;
  if (info->partitions == info->replicas && !a->executable->manual)
    module = vt_program_module(a->executable->program);
  return put_hlo(a->executable, module, a->message, a->out);
}

vt_status vt_executable_hlo(vt_executable *executable, bool message, vt_text *out) {
  const vt_executable_info *info = &executable->info;
  asked a = {executable, message, out};
  vt_attempt attempt; // others_lock is held
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  if (info->partitions != info->replicas || executable->manual) {
    st = vt_attempt_run(&attempt, make_local, executable);
    vt_attempt_end(&attempt);
  }
  if (!st) {
    st = vt_attempt_run(&attempt, print, &a);
    if (st) vt_text_free(out);
    vt_attempt_end(&attempt);
  }
  vt_unlock(&executable->others_lock);
  return st;
}
