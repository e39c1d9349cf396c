// SPDX-License-Identifier: Apache-2.0
// cut.c - a program over several processes, cut so that each runs its own devices' share.
//
// The partitioner gives the program of one process as it gives that of one device; a process takes
// for its whole array what its devices hold together. Parameters and results are then placed as in
// a program over this process's devices alone, and collectives are where processes meet
// (crossing_blocks.c). One process that is told to cut (VTPU_SPLIT) runs all parts in lockstep: the
// same sums in the same order, so the same bits.
// A program with manual computations says what each device does: it becomes the program of one
// device, and a process runs its own devices in lockstep.
// A program of replicas is one already. Each process may have a program of its own: what must be
// the same is where they meet.
// What cannot be cut runs gathered (crossing.c). All processes decide alike: program, options and
// devices decide, nothing else.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "eval/eval.h"
#include "import/import.h"
#include "mosaic/mosaic.h"
#include "spmd/spmd.h"

typedef struct cutting {
  vt_executable *executable;
  vt_module *module;
  int32_t count, mine; // parts; that of this process, -1 = all
  int32_t *part_of;    // [position]
  vt_arena scratch;
} cutting;

// ---- who takes part -----------------------------------------------------------------------------

// The processes of the program, in order, are its parts.
static void find_parts(cutting *c) {
  const vt_executable_info *info = &c->executable->info;
  const vt_split *split = &c->executable->split;
  int32_t *part = VT_NEW_ARRAY(&c->scratch, int32_t, split->count);
  for (int32_t d = 0; d < info->partitions; d++) part[split->process_of[info->device_ids[d]]] = 1;
  for (int32_t i = 0; i < split->count; i++) part[i] = part[i] ? c->count++ : -1;
  c->part_of = VT_NEW_ARRAY(&c->scratch, int32_t, info->partitions);
  for (int32_t d = 0; d < info->partitions; d++)
    c->part_of[d] = part[split->process_of[info->device_ids[d]]];
  // A process that has none of its devices compiles it too, but never runs it.
  c->mine = split->process < 0 ? -1 : part[split->process] < 0 ? 0 : part[split->process];
}

static bool may_be_cut(const vt_executable *executable) {
  const vt_executable_options *options = &executable->options;
  if (executable->info.replicas > 1 && executable->split.process < 0)
    return false; // in lockstep it has the same bits
  return executable->split.count > 1 && executable->info.partitions > 1 && !options->alone;
}

static vt_status check_kind(const vt_executable *executable) {
  if (executable->info.replicas > 1 && executable->info.replicas != executable->info.partitions)
    return vt_error(VT_UNIMPLEMENTED, "replicas of several partitions");
  if (executable->transfers) return vt_error(VT_UNIMPLEMENTED, "host callbacks");
  if (executable->own) return vt_error(VT_UNIMPLEMENTED, "arguments that differ between devices");
  return VT_OK;
}

// ---- the border ---------------------------------------------------------------------------------

// What a part's devices hold together, if that is one rectangle. False: it is not.
static bool find_rectangle(const cutting *c, const vt_io *io, int32_t part, int64_t *offset,
                           int64_t *dims) {
  int32_t rank = io->type.rank, partitions = c->executable->info.partitions;
  int64_t area = 1, covered = 0, end[VT_MAX_RANK];
  for (int32_t i = 0; i < rank; i++) offset[i] = INT64_MAX, end[i] = 0;
  for (int32_t d = 0; d < partitions; d++) {
    if (c->part_of[d] != part) continue;
    const int64_t *at = io->offsets ? io->offsets + (ptrdiff_t)d * rank : NULL;
    bool again = false;
    for (int32_t e = 0; e < d && !again; e++)
      again = c->part_of[e] == part &&
              (!at || !rank || !memcmp(at, io->offsets + (ptrdiff_t)e * rank, 8 * (size_t)rank));
    if (!again) covered += vt_type_elements(io->shard);
    for (int32_t i = 0; i < rank; i++) {
      int64_t from = at ? at[i] : 0;
      if (from < offset[i]) offset[i] = from;
      if (from + io->shard.dims[i] > end[i]) end[i] = from + io->shard.dims[i];
    }
  }
  for (int32_t i = 0; i < rank; i++) area *= dims[i] = end[i] - offset[i];
  return covered == area;
}

// Whether the rectangle is the tile that the cut program has there.
static bool fits_tile(cutting *c, const vt_io *io, const vt_sharding *sharding, int32_t part) {
  int64_t offset[VT_MAX_RANK], dims[VT_MAX_RANK], at[VT_MAX_RANK], sizes[VT_MAX_RANK];
  size_t bytes = 8 * (size_t)io->type.rank;
  vt_tiling tiling;
  vt_status st = vt_tiling_make(sharding, NULL, 0, io->type, c->count, &c->scratch, &tiling);
  if (st) {
    vt_status_free(st);
    return false;
  }
  vt_tiling_range(&tiling, part, at, sizes);
  return find_rectangle(c, io, part, offset, dims) &&
         (!bytes || (!memcmp(offset, at, bytes) && !memcmp(dims, sizes, bytes)));
}

// The same, where the program is that of one device.
static bool fits_devices(cutting *c, const vt_io *io, const vt_sharding *sharding, int32_t part) {
  int64_t offset[VT_MAX_RANK], dims[VT_MAX_RANK], at[VT_MAX_RANK], sizes[VT_MAX_RANK];
  int32_t devices = c->executable->info.partitions, rank = io->type.rank;
  vt_tiling tiling;
  vt_status st = vt_tiling_make(sharding, NULL, 0, io->type, devices, &c->scratch, &tiling);
  if (st) {
    vt_status_free(st);
    return false;
  }
  for (int32_t d = 0; d < devices; d++) {
    if (c->part_of[d] != part) continue;
    vt_tiling_range(&tiling, d, at, sizes);
    for (int32_t i = 0; i < rank; i++)
      if (sizes[i] != io->shard.dims[i] || at[i] != (io->offsets ? io->offsets[d * rank + i] : 0))
        return false;
  }
  return find_rectangle(c, io, part, offset, dims);
}

static bool fits(cutting *c, const vt_io *io, const vt_sharding *sharding, int32_t part) {
  return c->executable->manual ? fits_devices(c, io, sharding, part)
                               : fits_tile(c, io, sharding, part);
}

static vt_status check_border(cutting *c, const char *what, const vt_io *ios,
                              const vt_io_info *info, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const vt_io *io = &ios[i];
    if (io->owner >= 0 || io->partials > 1 || io->unreduced)
      return vt_error(VT_UNIMPLEMENTED, "%s %u lies on one device, or differs between them", what,
                      i);
    for (int32_t part = 0; part < c->count; part++)
      if (!fits(c, io, info ? info[i].sharding : NULL, part))
        return vt_error(VT_UNIMPLEMENTED, "%s %u: the tiles of a process are not neighbours", what,
                        i);
  }
  return VT_OK;
}

// Of an array that each device has for itself.
static void keep_partials(const cutting *c, vt_io *io) {
  int32_t partitions = c->executable->info.partitions, count = 0;
  int32_t *partial_of = VT_NEW_ARRAY(&c->executable->arena, int32_t, partitions);
  for (int32_t d = 0; d < partitions; d++)
    if (c->part_of[d] == c->mine) partial_of[d] = count++;
  io->cut = true;
  io->partials = count;
  io->partial_of = partial_of;
  io->replicated = count == 1;
  if (io->replicated) io->partial_of = NULL, io->offsets = NULL;
}

// What this process holds is the whole array now.
static void make_local(cutting *c, vt_io *io) {
  vt_arena *arena = &c->executable->arena;
  int32_t rank = io->type.rank, partitions = c->executable->info.partitions;
  int64_t offset[VT_MAX_RANK], dims[VT_MAX_RANK];
  io->within = true;
  if (io->partials > 1) keep_partials(c, io);
  if (io->replicated || io->partials > 1) return;
  (void)find_rectangle(c, io, c->mine, offset, dims);
  int64_t *offsets = VT_NEW_ARRAY(arena, int64_t, (size_t)partitions *(size_t)rank + 1);
  for (int32_t d = 0; d < partitions; d++)
    for (int32_t i = 0; i < rank && c->part_of[d] == c->mine; i++)
      offsets[d * rank + i] = io->offsets[d * rank + i] - offset[i];
  io->cut = memcmp(dims, io->type.dims, 8 * (size_t)rank) != 0;
  io->type = vt_type_make(arena, io->type.dtype, rank, dims);
  io->replicated = vt_type_same_dims(io->type, io->shard);
  io->offsets = io->replicated ? NULL : offsets;
}

// ---- the program --------------------------------------------------------------------------------

static vt_status read_program(const cutting *c, vt_module **out) {
  const vt_executable *executable = c->executable;
  VT_TRY(vt_import(executable->info.program, out));
  const vt_chip *chip = executable->slice.chip;
  vt_mosaic_options kernels = {.chip = chip->topology, .cores = chip->cores / chip->devices};
  VT_TRY(vt_mosaic_attach(*out, &kernels));
  (*out)->num_replicas = 1;
  (*out)->num_partitions = executable->info.partitions;
  return VT_OK;
}

// Results that differ between devices under one sharding are several values.
static vt_status check_partials(cutting *c) {
  const vt_executable *executable = c->executable;
  const vt_executable_info *info = &executable->info;
  vt_tiling *params = VT_NEW_ARRAY(&c->scratch, vt_tiling, info->param_count + 1);
  vt_tiling *results = VT_NEW_ARRAY(&c->scratch, vt_tiling, info->result_count + 1);
  if (info->param_count)
    memcpy(params, executable->param_tilings, sizeof *params * info->param_count);
  if (info->result_count)
    memcpy(results, executable->result_tilings, sizeof *results * info->result_count);
  VT_TRY(read_program(c, &c->module));
  VT_TRY(vt_spmd_whole_tiles(c->module));
  vt_status st = vt_spmd_expand_partials(c->module, info->partitions, &c->scratch, params, results);
  vt_module_destroy(c->module);
  c->module = NULL;
  VT_TRY(st);
  for (uint32_t i = 0; i < info->result_count; i++)
    if (results[i].partials > 1)
      return vt_error(VT_UNIMPLEMENTED, "result %u may differ between devices that hold it", i);
  return VT_OK;
}

static bool meets_devices(const vt_op *op) {
  return op->code == VT_OP_CUSTOM_CALL && vt_eval_meets_devices(op);
}

// What the manual computation that the program has become says of the border.
static vt_status check_wrapper(cutting *c) {
  const vt_executable_info *info = &c->executable->info;
  const vt_op *op = c->module->main->first;
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS),
                *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS);
  vt_io_info *params = VT_NEW_ARRAY(&c->scratch, vt_io_info, info->param_count + 1);
  vt_io_info *results = VT_NEW_ARRAY(&c->scratch, vt_io_info, info->result_count + 1);
  for (uint32_t i = 0; i < info->param_count; i++) params[i].sharding = in->shardings[i];
  for (uint32_t i = 0; i < info->result_count; i++) results[i].sharding = out->shardings[i];
  VT_TRY(check_border(c, "parameter", info->params, params, info->param_count));
  return check_border(c, "result", info->results, results, info->result_count);
}

static vt_status make_program_of_devices(cutting *c) {
  vt_executable *executable = c->executable;
  int32_t devices = executable->info.partitions;
  VT_TRY(check_partials(c));
  VT_TRY(read_program(c, &c->module));
  if (vt_module_any(c->module, meets_devices))
    return vt_error(VT_UNIMPLEMENTED, "a kernel in which devices meet");
  VT_TRY(vt_spmd_whole_tiles(c->module));
  const vt_func *whole = c->module->main;
  VT_TRY(vt_partition_for(c->module, devices, &(vt_partition_options){.exact = true}));
  VT_TRY(vt_executable_collectives(executable, c->module));
  VT_TRY(vt_spmd_lockstep(c->module, whole, devices));
  return check_wrapper(c);
}

static vt_status check_replicas(const cutting *c, const vt_module *module) {
  const vt_executable *executable = c->executable;
  const vt_executable_info *info = &executable->info;
  if (vt_module_any(module, meets_devices))
    return vt_error(VT_UNIMPLEMENTED, "a kernel in which devices meet");
  for (uint32_t i = 0; i < info->param_count + info->result_count; i++) {
    bool result = i >= info->param_count;
    uint32_t k = result ? i - info->param_count : i;
    const vt_io *io = result ? &info->results[k] : &info->params[k];
    const vt_tiling *at = result ? &executable->result_tilings[k] : &executable->param_tilings[k];
    if (io->type.dtype != VT_TOKEN && at->partials != info->partitions)
      return vt_error(VT_UNIMPLEMENTED, "%s %u is of several replicas",
                      result ? "result" : "parameter", k);
  }
  return VT_OK;
}

// Leaves c->module NULL where `as_imported` is the program.
static vt_status make_program(cutting *c, const vt_module *as_imported) {
  vt_executable *executable = c->executable;
  const vt_executable_info *info = &executable->info;
  if (info->replicas > 1) return check_replicas(c, as_imported);
  if (executable->manual) return make_program_of_devices(c);
  VT_TRY(read_program(c, &c->module));
  vt_spmd_inline(c->module, true);
  VT_TRY(vt_spmd_annotate(c->module, info->partitions));
  VT_TRY(vt_spmd_by_processes(c->module, info->partitions, c->part_of, c->count));
  const vt_func *whole = c->module->main;
  VT_TRY(check_border(c, "parameter", info->params, whole->param_info, info->param_count));
  VT_TRY(check_border(c, "result", info->results, whole->return_info, info->result_count));
  VT_TRY(vt_spmd_partition(c->module, c->count, &(vt_partition_options){.exact = true}));
  VT_TRY(vt_executable_collectives(executable, c->module));
  return c->mine < 0 ? vt_spmd_lockstep(c->module, whole, c->count) : VT_OK;
}

static vt_status use_program(cutting *c, vt_module **module) {
  vt_executable *executable = c->executable;
  vt_executable_info *info = &executable->info;
  if (c->module) {
    vt_module_destroy(*module);
    *module = c->module;
    c->module = NULL;
  } else {
    executable->compared = vt_executable_fingerprint(executable, vt_spmd_meetings(*module));
    if (!executable->options.all) executable->kind = vt_spmd_kind(*module);
    VT_TRY(vt_io_expand_partials(executable, *module));
  }
  executable->parts = c->count;
  info->fingerprint = vt_hash_u64((uint64_t)c->count, info->fingerprint);
  executable->compared = vt_hash_u64((uint64_t)c->count, executable->compared);
  if (c->mine < 0) return VT_OK;
  executable->part = c->mine + 1;
  if (executable->manual)
    executable->part_of = (const int32_t *)vt_arena_copy(
        &executable->arena, c->part_of, sizeof *c->part_of * (size_t)info->partitions);
  vt_io *params = (vt_io *)(uintptr_t)info->params, *results = (vt_io *)(uintptr_t)info->results;
  for (uint32_t i = 0; i < info->param_count; i++) make_local(c, &params[i]);
  for (uint32_t i = 0; i < info->result_count; i++) make_local(c, &results[i]);
  return VT_OK;
}

vt_status vt_executable_cut(vt_executable *executable, vt_module **module) {
  cutting c = {.executable = executable};
  executable->parts = 1;
  executable->compared = executable->info.fingerprint;
  if (!may_be_cut(executable)) return VT_OK;
  find_parts(&c);
  vt_status st = check_kind(executable);
  if (!st && c.count > 1) st = make_program(&c, *module);
  if (!st && c.count > 1) {
    st = use_program(&c, module);
  } else if (st && vt_status_code(st) != VT_RESOURCE_EXHAUSTED) {
    vt_log(VT_LOG_INFO, "%s runs whole in each process: %s", executable->info.name,
           vt_status_message(st));
    vt_status_free(st);
    st = VT_OK;
  }
  vt_module_destroy(c.module);
  vt_arena_free(&c.scratch);
  return st;
}

// ---- the client's -------------------------------------------------------------------------------

void vt_split_copy(const vt_split *split, int32_t device_count, vt_arena *arena, vt_split *out) {
  *out = (vt_split){.count = 1};
  if (!split || split->count < 2) return;
  *out = *split;
  out->process_of = (const int32_t *)vt_arena_copy(arena, split->process_of,
                                                   (size_t)device_count * sizeof(int32_t));
}

// One process computes as `count` would: one for each host, or for equal numbers of chips.
static vt_status place_parts(vt_client *client, int32_t count, int32_t *process_of) {
  const vt_slice *slice = &client->slice;
  int32_t chips = client->device_count / slice->chip->devices;
  bool by_hosts = count == slice->vms * slice->slices;
  if (count < 1 || (!by_hosts && chips % count))
    return vt_error(VT_INVALID_ARGUMENT, "VTPU_SPLIT=%d: %s has %d hosts and %d chips", count,
                    slice->name, slice->vms * slice->slices, chips);
  for (int32_t i = 0; i < client->device_count; i++)
    process_of[i] =
        by_hosts ? client->devices[i].place.host : i / slice->chip->devices / (chips / count);
  return VT_OK;
}

vt_status vt_client_set_split(vt_client *client) {
  const char *text = getenv("VTPU_SPLIT");
  char *end = NULL;
  long wanted = text && *text ? strtol(text, &end, 10) : 0;
  bool several = client->process_count > 1;
  if (end && (*end || wanted < 1 || wanted > client->device_count))
    return vt_error(VT_INVALID_ARGUMENT, "VTPU_SPLIT=%s is not a number of parts", text);
  if (several && wanted > 1 && wanted != client->process_count)
    return vt_error(VT_INVALID_ARGUMENT, "VTPU_SPLIT=%ld, but there are %d processes", wanted,
                    client->process_count);
  client->split = (vt_split){.count = 1};
  if (wanted == 1 || (!several && !wanted)) return VT_OK;
  int32_t *process_of = calloc((size_t)client->device_count, sizeof *process_of);
  if (!process_of) return vt_error_no_memory();
  vt_status st = several ? VT_OK : place_parts(client, (int32_t)wanted, process_of);
  for (int32_t i = 0; i < client->device_count && several; i++)
    process_of[i] = client->devices[i].process;
  client->split = (vt_split){.count = several ? client->process_count : (int32_t)wanted,
                             .process = several ? client->process : -1,
                             .process_of = process_of};
  return st;
}

const vt_split *vt_client_split(const vt_client *client) {
  return &client->split;
}
