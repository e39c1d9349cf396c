// SPDX-License-Identifier: Apache-2.0
// account.c - the HBM that a program takes on one device.
//
// Two answers (chip/memory.h). At compile time the least that any compiler needs, so that no
// program that would fit is refused: arguments and results with their layouts, those that share
// memory once, and what must be live at the same moment. On demand an estimate of what XLA takes.
#include "base/check.h"
#include "base/memory.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>

void vt_executable_sums(vt_executable_info *info) {
  for (uint32_t i = 0; i < info->param_count; i++) {
    const vt_io *io = &info->params[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->argument_bytes += io->shard_hbm_bytes;
    else
      info->host_argument_bytes += io->shard_bytes;
    if (io->alias >= 0) info->alias_bytes += io->shard_hbm_bytes;
  }
  for (uint32_t i = 0; i < info->result_count; i++) {
    const vt_io *io = &info->results[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->output_bytes += io->shard_hbm_bytes;
    else
      info->host_output_bytes += io->shard_bytes;
  }
}

static bool *params_in_host(const vt_executable_info *info, vt_arena *arena) {
  bool *host = VT_NEW_ARRAY(arena, bool, info->param_count + 1);
  for (uint32_t i = 0; i < info->param_count; i++)
    host[i] = info->params[i].memory != VT_MEMORY_DEVICE;
  return host;
}

static vt_least find_least(const vt_executable *executable, vt_func *main, double share,
                           bool padded) {
  vt_arena scratch = {0};
  vt_least least;
  vt_chip_least(padded ? executable->slice.chip : NULL, main, share,
                params_in_host(&executable->info, &scratch), &least);
  vt_arena_free(&scratch);
  return least;
}

// Arguments that are not donated: what is there from start to end.
static int64_t kept_bytes(const vt_executable_info *info) {
  return info->argument_bytes - info->alias_bytes;
}

// Donated arguments do not count while an operator runs, as they may be dead by then. Nor do
// results, as they may not be live yet.
static int64_t peak_with(const vt_executable_info *info, int64_t least) {
  return kept_bytes(info) + (least > info->output_bytes ? least : info->output_bytes);
}

static void set_least(vt_executable_info *info, const vt_least *least) {
  info->peak_bytes = peak_with(info, least->hbm);
  info->temp_bytes = info->peak_bytes - kept_bytes(info) - info->output_bytes;
  info->host_temp_bytes = least->host;
  vt_assert(info->temp_bytes >= 0 && info->alias_bytes <= info->argument_bytes && least->host >= 0);
}

static bool fits(const vt_executable *executable, double more) {
  return (double)executable->info.peak_bytes + more <=
         (double)executable->slice.chip->hbm_limit_bytes;
}

// The least that the program of one device needs; where that is beyond doubt, without padding, or
// without knowing that program.
static vt_least least_of(vt_executable *executable, vt_func *main) {
  vt_executable_info *info = &executable->info;
  const double padding = 64; // hardly an array takes more times its size
  const double held = 2;     // operands whole on every device, and their shards
  vt_least least = find_least(executable, main, vt_executable_share(executable), false);
  set_least(info, &least);
  if (fits(executable, padding * held * (double)least.hbm * info->partitions)) return least;
  vt_least whole = find_least(executable, main, 1, true);
  if (info->partitions == 1) return whole;
  if (fits(executable, held * (double)whole.hbm)) return least;
  vt_status_free(
      vt_executable_local(executable)); // what cannot be partitioned counts as divided evenly
  if (!executable->local) return least;
  vt_least local = find_least(executable, executable->local->main, 1, true);
  return local.hbm > least.hbm ? local : least;
}

vt_status vt_executable_account(vt_executable *executable, vt_module *module) {
  vt_executable_info *info = &executable->info;
  vt_executable_sums(info);
  vt_least least = least_of(executable, module->main);
  set_least(info, &least);
  if (fits(executable, 0)) return VT_OK;
  vt_arena scratch = {0};
  vt_hbm_use use;
  vt_func *main = executable->local ? executable->local->main : module->main;
  vt_hbm_use_of(executable, info->partitions > 1 && !executable->local ? NULL : main, &scratch,
                &use);
  vt_status st = vt_hbm_refuse(executable, &least, &use);
  vt_arena_free(&scratch);
  return st;
}

// ---- the estimate -------------------------------------------------------------------------------

static void add_io(vt_hbm_use *use, const vt_io *io, const char *kind, uint32_t index) {
  if (io->memory == VT_MEMORY_DEVICE)
    use->entries[use->count++] =
        (vt_hbm_entry){io->shard_hbm_bytes, io->shard, NULL, kind, index, io->layout, NULL};
}

static int by_bytes(const void *a, const void *b) {
  const vt_hbm_entry *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

static void list_entries(const vt_executable_info *info, const vt_live *live, vt_arena *arena,
                         vt_hbm_use *use) {
  uint32_t room = info->param_count + info->result_count + live->count + 1;
  bool *shared = VT_NEW_ARRAY(arena, bool, info->result_count + 1);
  use->entries = VT_NEW_ARRAY(arena, vt_hbm_entry, room);
  for (uint32_t i = 0; i < info->param_count; i++) {
    add_io(use, &info->params[i], "argument", i);
    if (info->params[i].alias >= 0) shared[info->params[i].alias] = true;
  }
  for (uint32_t i = 0; i < info->result_count; i++)
    if (!shared[i]) add_io(use, &info->results[i], "output", i);
  for (uint32_t i = 0; i < live->count; i++)
    use->entries[use->count++] = (vt_hbm_entry){live->buffers[i].bytes,
                                                live->buffers[i].type,
                                                live->buffers[i].value->op,
                                                "HLO temp",
                                                i,
                                                NULL,
                                                live->buffers[i].last};
  if (use->count) qsort(use->entries, use->count, sizeof *use->entries, by_bytes);
}

// XLA makes values again, where it can, until the program fits.
static int64_t estimated_peak(const vt_executable *executable, const vt_live *live) {
  int64_t limit = executable->slice.chip->hbm_limit_bytes;
  int64_t peak = kept_bytes(&executable->info) + executable->info.output_bytes + live->bytes;
  return peak < limit ? peak : limit;
}

static void fill_use(const vt_executable *executable, const vt_least *least, const vt_live *live,
                     vt_arena *arena, vt_hbm_use *out_use) {
  const vt_executable_info *info = &executable->info;
  int64_t fixed = kept_bytes(info) + info->output_bytes, bound = peak_with(info, least->hbm);
  *out_use = (vt_hbm_use){.kept_bytes = fixed + live->bytes, .unpadded_bytes = live->unpadded};
  int64_t peak = estimated_peak(executable, live);
  out_use->peak_bytes = peak > bound ? peak : bound;
  out_use->temp_bytes = out_use->peak_bytes - fixed;
  out_use->fixed_bytes = fixed;
  out_use->peak = live->peak;
  out_use->point_count = live->point_count;
  out_use->points = live->points;
  list_entries(info, live, arena, out_use);
}

void vt_hbm_use_of(const vt_executable *executable, vt_func *main, vt_arena *arena,
                   vt_hbm_use *out_use) {
  const vt_executable_info *info = &executable->info;
  vt_least least = {.hbm = info->output_bytes + info->temp_bytes};
  vt_live live = {.bytes = info->temp_bytes, .unpadded = info->temp_bytes};
  if (main) {
    least = find_least(executable, main, 1, true);
    vt_chip_live(executable->slice.chip, main, params_in_host(info, arena), arena, &live);
  }
  fill_use(executable, &least, &live, arena, out_use);
}

vt_status vt_executable_account_local(vt_executable *executable, vt_func *main, vt_arena *arena,
                                      vt_hbm_use *out_use) {
  vt_executable_info *info = &executable->info;
  const vt_chip *chip = executable->slice.chip;
  vt_executable_sums(info);
  vt_live live;
  vt_chip_live(chip, main, params_in_host(info, arena), arena, &live);
  double most = vt_chip_least_most(chip, main);
  vt_least least = {.hbm = most < (double)chip->hbm_limit_bytes ? (int64_t)most : INT64_MAX / 2};
  // The estimate is above it in nearly all programs: then it needs not be known.
  if (peak_with(info, least.hbm) > estimated_peak(executable, &live))
    least = find_least(executable, main, 1, true);
  set_least(info, &least);
  fill_use(executable, &least, &live, arena, out_use);
  return fits(executable, 0) ? VT_OK : vt_hbm_refuse(executable, &least, out_use);
}

typedef struct asked {
  vt_executable *executable;
  bool known; // local
} asked;

static vt_status make_use(void *user) {
  asked *a = user;
  vt_executable *executable = a->executable;
  vt_status_free(vt_executable_local(executable));
  vt_hbm_use *use = VT_NEW(&executable->use_arena, vt_hbm_use);
  vt_func *main = executable->local ? executable->local->main : NULL;
  vt_hbm_use_of(executable, main, &executable->use_arena, use);
  executable->use = use;
  vt_hbm_log(executable, use);
  return VT_OK;
}

vt_status vt_executable_memory(vt_executable *executable, const vt_hbm_use **out_use) {
  vt_status st = VT_OK;
  vt_lock(&executable->others_lock);
  if (!executable->use) {
    asked a = {executable, executable->local != NULL};
    vt_attempt attempt;
    st = vt_attempt_run(&attempt, make_use, &a);
    if (st) vt_arena_free(&executable->use_arena);
    if (st && !a.known) {
      vt_module_destroy(executable->local);
      executable->local = NULL;
    }
    vt_attempt_end(&attempt);
  }
  vt_unlock(&executable->others_lock);
  *out_use = executable->use;
  return st;
}
