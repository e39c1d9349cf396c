// SPDX-License-Identifier: Apache-2.0
// processes.c - an annotated program over the devices of several processes as one over the
// processes: each holds of an array what its devices hold together.
//
// Axes of a mesh are taken apart into prime factors. Along some of them the process changes, along
// the others the device within a process: only the former stay. A process's part of an array is
// then one rectangle wherever its devices' tiles are neighbours; inside of the program it need not
// be the same rectangle. Whoever cuts a program compares the two for parameters and results.
#include <inttypes.h>
#include <string.h>

#include "base/map.h"
#include "spmd/spmd.h"

typedef struct factor {
  int64_t size, before, stride; // of the axis: the product of the factors before; of a place
  bool crosses;                 // the process changes along it
} factor;

enum { MAX_FACTORS = 64 };

// A mesh over devices, and what becomes of it.
typedef struct process_mesh {
  const vt_mesh *mesh; // over processes
  uint32_t *first;     // [axis + 1]: the axis's factors
  factor factors[MAX_FACTORS];
  int32_t *axis_of; // [axis] of the new mesh, -1 = the process does not change along it
} process_mesh;

typedef struct cutter {
  vt_module *module;
  int32_t device_count, process_count;
  const int32_t *process_of; // [device]
  vt_map meshes;             // vt_mesh * -> process_mesh *
  vt_map shardings;          // vt_sharding * -> vt_sharding *
  const char *why;           // it cannot be cut so
} cutter;

static int32_t process_at(const cutter *c, const vt_mesh *mesh, int64_t place) {
  return c->process_of[mesh->device_count ? mesh->device_ids[place] : place];
}

// Whether the process changes along a factor: everywhere, nowhere, or (an error) only somewhere.
static bool find_crossing(cutter *c, const vt_mesh *mesh, factor *f) {
  bool any = false, all = true;
  for (int64_t place = 0; place < c->device_count; place++) {
    if (place / f->stride % f->size) continue;
    for (int64_t i = 1; i < f->size; i++) {
      bool other = process_at(c, mesh, place) != process_at(c, mesh, place + i * f->stride);
      any = any || other;
      all = all && other;
    }
  }
  f->crosses = any;
  return any == all || !any;
}

static bool take_apart(cutter *c, const vt_mesh *mesh, process_mesh *out) {
  uint32_t count = 0;
  int64_t after = vt_mesh_size(mesh), processes = 1;
  for (uint32_t a = 0; a < mesh->axis_count; a++) {
    out->first[a] = count;
    int64_t left = mesh->axes[a].size, before = 1;
    for (int64_t prime = 2; left > 1; prime++)
      for (; left % prime == 0; left /= prime) {
        if (count == MAX_FACTORS) return false;
        after /= prime;
        factor f = {.size = prime, .before = before, .stride = after};
        if (!find_crossing(c, mesh, &f)) return false;
        if (f.crosses) processes *= prime;
        before *= prime;
        out->factors[count++] = f;
      }
  }
  out->first[mesh->axis_count] = count;
  return processes == c->process_count;
}

static const vt_mesh *make_mesh(cutter *c, const vt_mesh *old, process_mesh *made) {
  vt_arena *arena = &c->module->arena;
  vt_mesh *mesh = VT_NEW(arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(arena, vt_mesh_axis, old->axis_count + 1);
  for (uint32_t a = 0; a < old->axis_count; a++) {
    int64_t size = 1;
    for (uint32_t f = made->first[a]; f < made->first[a + 1]; f++)
      if (made->factors[f].crosses) size *= made->factors[f].size;
    made->axis_of[a] = size > 1 ? (int32_t)mesh->axis_count : -1;
    if (size > 1) axes[mesh->axis_count++] = (vt_mesh_axis){old->axes[a].name, size};
  }
  // The place of a process: its devices' coordinates along the factors that cross.
  int64_t *ids = VT_NEW_ARRAY(arena, int64_t, c->process_count);
  bool counts_up = true;
  for (int64_t place = 0; place < c->device_count; place++) {
    int64_t at = 0;
    for (uint32_t f = 0; f < made->first[old->axis_count]; f++)
      if (made->factors[f].crosses)
        at = at * made->factors[f].size + place / made->factors[f].stride % made->factors[f].size;
    ids[at] = process_at(c, old, place);
    counts_up = counts_up && ids[at] == at;
  }
  mesh->name = old->name;
  mesh->axes = axes;
  if (!counts_up) {
    mesh->device_count = (uint32_t)c->process_count;
    mesh->device_ids = ids;
  }
  return mesh;
}

static process_mesh *mesh_of(cutter *c, const vt_mesh *old) {
  void **known = vt_map_at(&c->meshes, &old, sizeof old);
  if (*known) return *known;
  process_mesh *made = VT_NEW(&c->module->arena, process_mesh);
  made->first = VT_NEW_ARRAY(&c->module->arena, uint32_t, old->axis_count + 1);
  made->axis_of = VT_NEW_ARRAY(&c->module->arena, int32_t, old->axis_count + 1);
  if (vt_mesh_size(old) != c->device_count || !take_apart(c, old, made)) {
    c->why = "a mesh that is no product of processes and their devices";
    return NULL;
  }
  made->mesh = make_mesh(c, old, made);
  return *known = made;
}

// The factors of the axis that the reference covers, and of these the ones that cross. False: the
// reference ends within a factor.
static bool refer(const process_mesh *mesh, vt_axis_ref old, vt_axis_ref *out) {
  int64_t pre = 1, size = 1, covered = 1;
  for (uint32_t f = mesh->first[old.axis]; f < mesh->first[old.axis + 1]; f++) {
    const factor *x = &mesh->factors[f];
    bool before = x->before < old.pre_size, within = !before && covered < old.size;
    if (within) covered *= x->size;
    if (before && old.pre_size % (x->before * x->size)) return false;
    if (x->crosses && before) pre *= x->size;
    if (x->crosses && within) size *= x->size;
  }
  *out = (vt_axis_ref){(uint32_t)mesh->axis_of[old.axis], pre, size};
  return covered == old.size;
}

static const vt_sharding *sharding_of(cutter *c, const vt_sharding *old) {
  if (!old || (!old->mesh->axis_count && !vt_sharding_is_maximal(old))) return old;
  if (vt_sharding_is_maximal(old) || old->unreduced_count) {
    c->why = old->unreduced_count ? "values that stay unreduced" : "values of one device";
    return NULL;
  }
  void **known = vt_map_at(&c->shardings, &old, sizeof old);
  if (*known) return *known;
  process_mesh *mesh = mesh_of(c, old->mesh);
  if (!mesh) return NULL;
  vt_arena *arena = &c->module->arena;
  vt_sharding *out = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, (size_t)old->rank + 1);
  for (int32_t d = 0; d < old->rank; d++) {
    vt_axis_ref *axes = VT_NEW_ARRAY(arena, vt_axis_ref, old->dims[d].axis_count + 1);
    dims[d] = (vt_dim_sharding){0, axes, true, -1};
    for (uint32_t i = 0; i < old->dims[d].axis_count; i++) {
      vt_axis_ref ref;
      if (!refer(mesh, old->dims[d].axes[i], &ref)) {
        c->why = "a part of an axis that does not fall on a border of processes";
        return NULL;
      }
      if (ref.size > 1) axes[dims[d].axis_count++] = ref;
    }
  }
  *out =
      (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh->mesh, .rank = old->rank, .dims = dims};
  return *known = out;
}

// ---- the program --------------------------------------------------------------------------------

static void cut_op(cutter *c, vt_op *op) {
  const vt_attr *said = vt_op_attr(op, VT_ATTR_SHARDING);
  const vt_op_info *info = vt_op_info_get(op->code);
  if (op->code == VT_OP_MANUAL_COMPUTATION || info->flags & VT_OPF_COLLECTIVE)
    c->why = "manual computations";
  if (op->code == VT_OP_PARTITION_ID || op->code == VT_OP_REPLICA_ID)
    c->why = "the number of a device";
  if (!said || c->why) return;
  const vt_sharding **list = VT_NEW_ARRAY(&c->module->arena, const vt_sharding *, said->count + 1);
  for (uint32_t i = 0; i < said->count && !c->why; i++)
    list[i] = sharding_of(c, said->shardings[i]);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_SHARDING, .count = said->count, .shardings = list});
}

static void cut_func(cutter *c, const vt_func *func) {
  for (vt_op *op = func->first; op && !c->why; op = op->next) {
    cut_op(c, op);
    for (uint32_t r = 0; r < op->region_count; r++) cut_func(c, op->regions[r]);
  }
}

static vt_io_info *cut_border(cutter *c, const vt_io_info *info, uint32_t count) {
  if (!info) return NULL;
  vt_io_info *out = VT_NEW_ARRAY(&c->module->arena, vt_io_info, count + 1);
  memcpy(out, info, sizeof *out * count);
  for (uint32_t i = 0; i < count && !c->why; i++)
    out[i].sharding = sharding_of(c, info[i].sharding);
  return out;
}

vt_status vt_spmd_by_processes(vt_module *module, int32_t device_count, const int32_t *process_of,
                               int32_t process_count) {
  cutter c = {.module = module,
              .device_count = device_count,
              .process_count = process_count,
              .process_of = process_of};
  vt_func *main = module->main;
  if (module->num_replicas > 1) c.why = "replicas";
  main->param_info = cut_border(&c, main->param_info, main->param_count);
  main->return_info = cut_border(&c, main->return_info, main->return_count);
  cut_func(&c, main);
  vt_map_free(&c.meshes);
  vt_map_free(&c.shardings);
  return c.why ? vt_error(VT_UNIMPLEMENTED, "cut over processes: %s", c.why) : VT_OK;
}
