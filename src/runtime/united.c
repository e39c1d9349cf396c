// SPDX-License-Identifier: Apache-2.0
// united.c - the executable for replicas that run different programs at once (vt_spmd_unite): made
// when such replicas meet, kept with the first replica's.
#include "base/check.h"
#include "base/memory.h"
#include "import/import.h"
#include "runtime/runtime_internal.h"

#include <string.h>

// The first import fills param_of and result_of, which live in `arena`.
vt_status vt_union_import(const vt_union *all, vt_arena *arena, vt_module **out_module) {
  vt_arena scratch = {0};
  vt_module **modules = VT_NEW_ARRAY(&scratch, vt_module *, all->count);
  uint32_t **param_of = VT_NEW_ARRAY(&scratch, uint32_t *, all->count);
  uint32_t **result_of = VT_NEW_ARRAY(&scratch, uint32_t *, all->count);
  vt_status st = VT_OK;
  uint32_t read = 0;
  while (read < all->count && !st) {
    st = vt_import(all->programs[read], &modules[read]);
    if (!st) read++;
  }
  if (!st) {
    st = vt_spmd_unite(modules, all->count, all->replicas, all->program_of, arena, param_of,
                       result_of);
    read = 1; // has the others
  }
  for (uint32_t k = st ? 0 : 1; k < read; k++) vt_module_destroy(modules[k]);
  for (uint32_t k = 0; k < all->count && !st && !all->param_of[k]; k++) {
    all->param_of[k] = param_of[k];
    all->result_of[k] = result_of[k];
  }
  *out_module = st ? NULL : modules[0];
  vt_arena_free(&scratch);
  return st;
}

static bool same_bytes(vt_bytes a, vt_bytes b) {
  return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

typedef struct making {
  vt_arena *arena;
  vt_executable *const *each;
  uint32_t replicas;
  vt_union *made;
} making;

static vt_status make_union(void *user) {
  making *m = user;
  vt_union *all = VT_NEW(m->arena, vt_union);
  vt_bytes *programs = VT_NEW_ARRAY(m->arena, vt_bytes, m->replicas);
  uint32_t *program_of = VT_NEW_ARRAY(m->arena, uint32_t, m->replicas);
  for (uint32_t r = 0; r < m->replicas; r++) {
    vt_bytes program = m->each[r]->info.program;
    uint32_t k = 0;
    while (k < all->count && !same_bytes(programs[k], program)) k++;
    if (k == all->count) {
      programs[all->count++] = (vt_bytes){
          (const uint8_t *)vt_arena_copy(m->arena, program.data, program.size), program.size};
    }
    program_of[r] = k;
  }
  all->replicas = (int32_t)m->replicas;
  all->programs = programs;
  all->program_of = program_of;
  all->param_of = VT_NEW_ARRAY(m->arena, uint32_t *, all->count);
  all->result_of = VT_NEW_ARRAY(m->arena, uint32_t *, all->count);
  m->made = all;
  return VT_OK;
}

static bool is_union_of(const vt_union *all, vt_executable *const *each, uint32_t replicas) {
  for (uint32_t r = 0; r < replicas; r++)
    if (!same_bytes(all->programs[all->program_of[r]], each[r]->info.program)) return false;
  return true;
}

static vt_status compile_union(vt_executable *const *each, vt_executable **out) {
  const vt_executable_info *info = &each[0]->info;
  making m = {&each[0]->arena, each, (uint32_t)info->partitions, NULL};
  VT_TRY(vt_attempt_keep(make_union, &m));
  vt_executable_options options = each[0]->options;
  options.bytes = info->options;
  options.device_ids = info->device_ids;
  options.all = m.made;
  VT_TRY(vt_executable_compile_own(&each[0]->slice, info->program, &options, NULL, out));
  (*out)->predicted = each[0]->predicted;
  return VT_OK;
}

vt_status vt_executable_unite(vt_executable *const *each, vt_executable **out_united) {
  vt_executable *first = each[0];
  uint32_t replicas = (uint32_t)first->info.partitions;
  vt_status st = VT_OK;
  vt_lock(&first->others_lock);
  vt_executable *found = first->unions;
  while (found && !is_union_of(found->options.all, each, replicas)) found = found->next_other;
  if (!found) {
    st = compile_union(each, &found);
    if (!st) {
      found->next_other = first->unions;
      first->unions = found;
    }
  }
  vt_unlock(&first->others_lock);
  *out_united = found;
  return st;
}
