// SPDX-License-Identifier: Apache-2.0
// partition.c - walks an annotated program and writes the program of one device.
//
// In: a module that vt_spmd_annotate has been through: calls inlined, a sharding for each value.
// Out: main on local arrays: the tiles of parameters and results, and collectives between.
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "spmd/partition/partition.h"
#include "spmd/spmd.h"

// ---- types and assignments ----------------------------------------------------------------------

vt_type vt_local_type(vt_parter *p, vt_type global, const vt_assign *assign) {
  if (assign->tiles == 1) return global;
  int64_t dims[VT_MAX_RANK];
  vt_assert(global.rank == assign->rank);
  for (int32_t d = 0; d < global.rank; d++) dims[d] = vt_ceil(global.dims[d], assign->dims[d]);
  return vt_type_of_dims(p, global.dtype, global.rank, dims);
}

bool vt_is_even(vt_type global, const vt_assign *assign, int32_t dim) {
  return global.dims[dim] % assign->dims[dim] == 0;
}

bool vt_axis_is_manual(const vt_parter *p, const vt_mesh *mesh, uint32_t axis) {
  for (uint32_t i = 0; i < p->manual_count; i++)
    if (!strcmp(p->manual[i].data, mesh->axes[axis].name)) return true;
  return false;
}

static bool cuts(const vt_sharding *s) {
  for (int32_t d = 0; d < s->rank; d++)
    if (s->dims[d].axis_count) return true;
  return false;
}

// The tile of each place of the current group, and how many there are.
static int32_t tiles_of_places(vt_parter *p, const vt_sharding *s, int32_t *out_dims,
                               int32_t *out_tile) {
  const vt_mesh *mesh = s->mesh;
  vt_group_lists now = vt_groups_listed(&p->assigns, p->groups);
  int32_t tiles = 1;
  for (int32_t d = 0; d < s->rank; d++) {
    out_dims[d] = 1;
    for (uint32_t a = 0; a < s->dims[d].axis_count; a++)
      if (!vt_axis_is_manual(p, mesh, s->dims[d].axes[a].axis))
        out_dims[d] *= (int32_t)s->dims[d].axes[a].size;
    tiles *= out_dims[d];
  }
  int64_t size = vt_mesh_size(mesh);
  for (int64_t place = 0; place < size; place++) {
    int64_t device = mesh->device_count ? mesh->device_ids[place] : place, tile = 0;
    if (now.group_of[device]) continue; // all groups look alike
    for (int32_t d = 0; d < s->rank; d++)
      for (uint32_t a = 0; a < s->dims[d].axis_count; a++) {
        vt_axis_ref ref = s->dims[d].axes[a];
        if (!vt_axis_is_manual(p, mesh, ref.axis))
          tile = tile * ref.size + vt_mesh_coordinate(mesh, place, ref, NULL);
      }
    out_tile[now.place_of[device]] = (int32_t)tile;
  }
  return tiles;
}

// The device at each place of the mesh.
static vt_order order_of_mesh(vt_parter *p, const vt_mesh *mesh) {
  int32_t size = (int32_t)vt_mesh_size(mesh);
  if (p->mesh == mesh) return p->mesh_order;
  p->mesh = mesh;
  if (!mesh->device_count) return p->mesh_order = vt_order_counting(size);
  int32_t *ids = VT_NEW_ARRAY(&p->module->arena, int32_t, size);
  for (int32_t i = 0; i < size; i++) ids[i] = (int32_t)mesh->device_ids[i];
  return p->mesh_order = vt_order_of_list(size, ids);
}

typedef struct cut_mesh {
  vt_order at; // by place of the mesh: group, and place in it
  bool taken[VT_MAX_DIGITS];
  vt_order out; // tiles, then what holds the same
} cut_mesh;

static bool cut_at(vt_order *at, const vt_mesh *mesh, vt_axis_ref ref) {
  int64_t below;
  vt_mesh_coordinate(mesh, 0, ref, &below);
  return vt_order_cut(at, (int32_t)below) >= 0 &&
         vt_order_cut(at, (int32_t)(below * ref.size)) >= 0;
}

// The digits of a part of an axis. false: they count groups, or are taken
static bool take(cut_mesh *c, const vt_mesh *mesh, vt_axis_ref ref, int32_t device_count) {
  int64_t below;
  vt_mesh_coordinate(mesh, 0, ref, &below);
  int32_t last = vt_order_cut(&c->at, (int32_t)below);
  for (int32_t k = vt_order_cut(&c->at, (int32_t)(below * ref.size)); k > last; k--) {
    int32_t i = c->at.count - k;
    if (c->taken[i] || c->at.digits[i].stride >= device_count) return false;
    c->taken[i] = true;
    c->out.digits[c->out.count++] = c->at.digits[i];
  }
  return true;
}

// NULL: that takes a look at each device
static const vt_assign *assign_by_digits(vt_parter *p, const vt_sharding *s) {
  const vt_mesh *mesh = s->mesh;
  cut_mesh c = {.out = {.total = p->device_count}};
  vt_order places = order_of_mesh(p, mesh), groups = p->groups->order;
  int32_t dims[VT_MAX_RANK], tiles = 1, total = 1;
  if (vt_order_is_list(&places) || vt_order_is_list(&groups) || places.total != groups.total)
    return NULL;
  groups = vt_order_inverse(&groups, NULL);
  if (!vt_order_composed(&groups, &places, &c.at) || !vt_order_part(&c.at, p->device_count))
    return NULL;
  for (int32_t d = 0; d < s->rank; d++)
    for (uint32_t a = 0; a < s->dims[d].axis_count; a++)
      if (!cut_at(&c.at, mesh, s->dims[d].axes[a])) return NULL;
  for (int32_t d = 0; d < s->rank; d++) {
    dims[d] = 1;
    for (uint32_t a = 0; a < s->dims[d].axis_count; a++) {
      vt_axis_ref ref = s->dims[d].axes[a];
      if (vt_axis_is_manual(p, mesh, ref.axis)) continue;
      if (!take(&c, mesh, ref, p->device_count)) return NULL;
      dims[d] *= (int32_t)ref.size;
    }
    tiles *= dims[d];
  }
  for (int32_t i = 0; i < c.at.count; i++)
    if (!c.taken[i] && c.at.digits[i].stride < p->device_count)
      c.out.digits[c.out.count++] = c.at.digits[i];
  for (int32_t i = 0; i < c.out.count; i++) total *= c.out.digits[i].size;
  if (total != p->device_count) return NULL;
  vt_order_merge(&c.out);
  return vt_assign_ordered(&p->assigns, s->rank, dims, p->device_count / tiles, &c.out);
}

static const vt_assign *assign_of_mesh(vt_parter *p, const vt_sharding *s) {
  const vt_assign *counted = assign_by_digits(p, s);
  if (counted) return counted;
  vt_arena scratch = {0};
  int32_t dims[VT_MAX_RANK], *tile_of = VT_NEW_ARRAY(&scratch, int32_t, p->device_count);
  int32_t tiles = tiles_of_places(p, s, dims, tile_of);
  int32_t copies = p->device_count / tiles;
  int32_t *devices = VT_NEW_ARRAY(&scratch, int32_t, p->device_count);
  int32_t *filled = VT_NEW_ARRAY(&scratch, int32_t, tiles);
  for (int32_t i = 0; i < p->device_count; i++)
    devices[tile_of[i] * copies + filled[tile_of[i]]++] = i;
  const vt_assign *out = vt_assign_make(&p->assigns, s->rank, dims, copies, devices);
  vt_arena_free(&scratch);
  return out;
}

const vt_assign *vt_assign_of(vt_parter *p, const vt_sharding *sharding, int32_t rank) {
  if (p->device_count == 1) return vt_assign_whole(&p->assigns, rank, 1);
  if (!sharding || (!sharding->mesh->axis_count && !vt_sharding_is_maximal(sharding)))
    return vt_assign_whole(&p->assigns, rank, p->device_count);
  if (vt_sharding_is_maximal(sharding))
    return vt_assign_only(
        &p->assigns, rank, p->device_count,
        vt_groups_listed(&p->assigns, p->groups).place_of[sharding->mesh->device_ids[0]]);
  if (!cuts(sharding)) return vt_assign_whole(&p->assigns, sharding->rank, p->device_count);
  // Equal shardings of different values are the same one here.
  p->key.size = 0;
  vt_array_push(&p->key, (uintptr_t)sharding->mesh);
  vt_array_push(&p->key, (uintptr_t)p->groups);
  vt_array_push(&p->key, (uintptr_t)p->manual);
  for (int32_t d = 0; d < sharding->rank; d++) {
    vt_array_push(&p->key, sharding->dims[d].axis_count);
    for (uint32_t i = 0; i < sharding->dims[d].axis_count; i++) {
      vt_axis_ref ref = sharding->dims[d].axes[i];
      vt_array_push(&p->key, ref.axis);
      vt_array_push(&p->key, (uint64_t)ref.pre_size);
      vt_array_push(&p->key, (uint64_t)ref.size);
    }
  }
  void **place = vt_map_at(&p->shardings, p->key.data, p->key.size * sizeof *p->key.data);
  if (!*place) *place = (void *)(uintptr_t)assign_of_mesh(p, sharding);
  return *place;
}

static const vt_assign *asked(vt_parter *p, const vt_sharding *s, int32_t rank) {
  vt_asked *last = &p->asked[((uintptr_t)s >> 4) % VT_ASKED];
  if (last->assign && last->annotation == s && last->groups == p->groups &&
      last->manual == p->manual && last->rank == rank)
    return last->assign;
  *last = (vt_asked){s, p->groups, p->manual, rank, vt_assign_of(p, s, rank)};
  return last->assign;
}

const vt_assign *vt_part_wanted(vt_parter *p, const vt_op *op, uint32_t result) {
  return asked(p, vt_annotation(op, result), op->results[result].type.rank);
}

// ---- values -------------------------------------------------------------------------------------

vt_part vt_part_of(vt_parter *p, const vt_value *value) {
  vt_assert(value->id >= 0 && p->parts[value->id].local);
  return p->parts[value->id];
}

void vt_part_record(vt_parter *p, const vt_value *value, vt_part part) {
  vt_assert(part.local && part.local->func == p->func);
  vt_assert(vt_type_equal(part.local->type, vt_local_type(p, part.global, part.assign)));
  p->parts[value->id] = part;
}

const vt_sharding *vt_annotation(const vt_op *op, uint32_t result) {
  const vt_attr *list = vt_op_attr(op, VT_ATTR_SHARDING);
  return list && result < list->count ? list->shardings[result] : NULL;
}

void vt_part_set(vt_parter *p, const vt_value *result, vt_part part) {
  const vt_sharding *s = vt_annotation(result->op, (uint32_t)result->index);
  const vt_assign *wanted = asked(p, s, result->type.rank);
  vt_part_record(p, result, part.assign == wanted ? part : vt_reshard(p, part, wanted));
  vt_part_note(p, result, s);
}

const vt_groups *vt_enter(vt_parter *p, const vt_groups *inner) {
  const vt_groups *before = p->groups;
  p->groups = vt_groups_within(&p->assigns, before, inner);
  p->device_count = p->groups->size;
  return before;
}

void vt_leave(vt_parter *p, const vt_groups *before) {
  p->groups = before;
  p->device_count = before->size;
}

vt_part vt_part_in(vt_parter *p, vt_part part, const vt_grouping *g) {
  int64_t dims[VT_MAX_RANK];
  if (part.global.rank) memcpy(dims, part.global.dims, sizeof *dims * (size_t)part.global.rank);
  for (int32_t i = 0; i < g->count; i++)
    if (g->dims[i] < part.global.rank) dims[g->dims[i]] = vt_ceil(dims[g->dims[i]], g->sizes[i]);
  return (vt_part){vt_type_of_dims(p, part.global.dtype, part.global.rank, dims), part.local,
                   g->inner};
}

vt_part vt_part_out(vt_parter *p, vt_part inner, vt_grouping g, vt_type global) {
  g.inner = inner.assign;
  return (vt_part){global, inner.local, vt_ungroup(&p->assigns, &g)};
}

// ---- the walk -----------------------------------------------------------------------------------

static vt_partition_fn *const handlers[VT_OP_COUNT] = {
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           linear, sharding, partition, ...)                                                       \
  [VT_OP_##name] = vt_partition_##partition,
#include "ir/ops.def"
#undef OP
};

// An array without elements costs nothing: XLA makes it a constant before it partitions.
static bool is_empty(const vt_op *op) {
  return op->result_count == 1 && op->results[0].type.dtype != VT_TOKEN &&
         !vt_type_elements(op->results[0].type) && !vt_op_has_effect(op);
}

static void make_empty(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  vt_value *zero = vt_emit_zero(p, type.dtype);
  vt_value *local = vt_emit_splat(p, vt_local_type(p, type, wanted), zero);
  vt_part_record(p, &op->results[0], (vt_part){type, local, wanted});
}

vt_status vt_partition_func(vt_parter *p, const vt_func *func) {
  const vt_loc *before = p->loc;
  vt_status st = VT_OK;
  for (const vt_op *op = func->first; op; op = op->next) {
    p->loc = op->loc;
    if (is_empty(op)) {
      make_empty(p, op);
      continue;
    }
    VT_TRY_OUT(vt_partition_op(p, op, handlers[op->code]));
  }
out:
  p->loc = before;
  return st;
}

vt_status vt_partition_whole(vt_parter *p, const vt_op *op) {
  enum { FEW = 8 };
  vt_arena scratch = {0};
  vt_value *few_operands[FEW], **operands = few_operands;
  vt_type few_types[FEW], *types = few_types;
  if (op->operand_count > FEW) operands = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count);
  if (op->result_count > FEW) types = VT_NEW_ARRAY(&scratch, vt_type, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_part part = vt_part_of(p, op->operands[i]);
    const vt_assign *whole = vt_assign_whole(&p->assigns, part.global.rank, p->device_count);
    operands[i] = vt_reshard(p, part, whole).local;
  }
  for (uint32_t i = 0; i < op->result_count; i++) types[i] = op->results[i].type;
  vt_op *copy = vt_emit_copies(p, op, types, op->operand_count, operands);
  vt_arena_free(&scratch);
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type type = op->results[i].type;
    const vt_assign *whole = vt_assign_whole(&p->assigns, type.rank, p->device_count);
    vt_part_set(p, &op->results[i], (vt_part){type, &copy->results[i], whole});
  }
  return VT_OK;
}

static const vt_sharding *io_sharding(const vt_io_info *info, uint32_t i) {
  return info ? info[i].sharding : NULL;
}

static vt_status partition_main(vt_parter *p, const vt_func *main) {
  for (uint32_t i = 0; i < main->param_count; i++) {
    vt_type type = main->params[i]->type;
    const vt_assign *assign = vt_assign_of(p, io_sharding(main->param_info, i), type.rank);
    vt_value *local = vt_func_add_param(p->func, vt_local_type(p, type, assign));
    vt_part_record(p, main->params[i], (vt_part){type, local, assign});
    vt_part_note(p, main->params[i], io_sharding(main->param_info, i));
  }
  VT_TRY(vt_partition_func(p, main));
  vt_value **returns = VT_NEW_ARRAY(&p->module->arena, vt_value *, main->return_count + 1);
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_part part = vt_part_reduced(p, main->returns[i], io_sharding(main->return_info, i));
    const vt_assign *assign = vt_assign_of(p, io_sharding(main->return_info, i), part.global.rank);
    returns[i] = vt_reshard(p, part, assign).local;
  }
  vt_func_set_returns(p->func, main->return_count, returns);
  return VT_OK;
}

// ---- afterwards ---------------------------------------------------------------------------------

typedef struct finisher {
  vt_arena *scratch;
  VT_ARRAY(uint32_t) uses;       // of each value, by ids that are unique in main and its regions
  VT_ARRAY(vt_op *) collectives; // with channels, from last to first
} finisher;

static void count_value(finisher *f, vt_value *value) {
  value->id = (int32_t)f->uses.size;
  vt_array_push_in(f->scratch, &f->uses, 0);
}

static void count_uses(finisher *f, vt_func *func) {
  func->numbered = false;
  for (uint32_t i = 0; i < func->param_count; i++) count_value(f, func->params[i]);
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++) f->uses.data[op->operands[i]->id]++;
    for (uint32_t i = 0; i < op->result_count; i++) count_value(f, &op->results[i]);
    for (uint32_t i = 0; i < op->region_count; i++) count_uses(f, op->regions[i]);
  }
  for (uint32_t i = 0; i < func->return_count; i++) f->uses.data[func->returns[i]->id]++;
}

static void drop_unused(finisher *f, vt_func *func) {
  vt_op *prev;
  uint32_t *uses = f->uses.data;
  for (vt_op *op = func->last; op; op = prev) {
    prev = op->prev;
    bool used = false;
    for (uint32_t i = 0; i < op->result_count && !used; i++) used = uses[op->results[i].id] != 0;
    op->note = NULL;
    if (used || vt_op_has_effect(op)) {
      for (uint32_t i = op->region_count; i-- > 0;) drop_unused(f, op->regions[i]);
      bool collective = vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE;
      if (collective && vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) > 0)
        vt_array_push_in(f->scratch, &f->collectives, op);
      continue;
    }
    for (uint32_t i = 0; i < op->operand_count; i++) uses[op->operands[i]->id]--;
    vt_op_remove(op);
  }
}

static void number_channels(const finisher *f) {
  int64_t next = 1;
  for (size_t i = f->collectives.size; i-- > 0;)
    vt_op_set_i64(f->collectives.data[i], VT_ATTR_CHANNEL_ID, next++);
}

// What the framework says about parameters and results, without shardings: they are local now.
static vt_io_info *local_info(vt_module *module, const vt_io_info *info, uint32_t count) {
  if (!info) return NULL;
  vt_io_info *out = VT_NEW_ARRAY(&module->arena, vt_io_info, count + 1);
  memcpy(out, info, sizeof *out * count);
  for (uint32_t i = 0; i < count; i++) out[i].sharding = NULL;
  return out;
}

static void replace_main(vt_parter *p, const vt_func *main, vt_arena *scratch) {
  vt_module *module = p->module;
  finisher f = {.scratch = scratch};
  p->func->name = main->name;
  p->func->param_info = local_info(module, main->param_info, main->param_count);
  p->func->return_info = local_info(module, main->return_info, main->return_count);
  count_uses(&f, p->func);
  drop_unused(&f, p->func);
  number_channels(&f);
  module->main = p->func;
  module->funcs = VT_NEW_ARRAY(&module->arena, vt_func *, p->kept.size + 1);
  module->funcs[0] = p->func;
  if (p->kept.size) memcpy(module->funcs + 1, p->kept.data, p->kept.size * sizeof *p->kept.data);
  module->func_count = (uint32_t)p->kept.size + 1;
  module->num_partitions = p->device_count / module->num_replicas;
}

static void parter_free(vt_parter *p) {
  vt_map *maps[] = {&p->partials, &p->offsets, &p->repeats,  &p->shardings,
                    &p->literals, &p->numbers, &p->windowed, &p->pairs,
                    &p->manuals,  &p->factors, &p->sums,     &p->bodies};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) vt_map_free(maps[i]);
  vt_array_free(&p->reshards);
  vt_array_free(&p->kept);
  vt_array_free(&p->key);
  vt_assigns_free(&p->assigns);
}

vt_status vt_spmd_partition(vt_module *module, int32_t device_count,
                            const vt_partition_options *options) {
  vt_func *main = module->main;
  vt_arena scratch = {.brief = true};
  int32_t values = 0;
  vt_parter p = {.module = module,
                 .device_count = device_count,
                 .poison = options && options->poison,
                 .exact = options && options->exact,
                 .keep_elementwise = options && options->keep_elementwise,
                 .loc = &vt_loc_unknown,
                 .assigns = {.arena = &module->arena}};
  p.groups = vt_groups_all(&p.assigns, device_count);
  p.func = vt_func_create(module, "");
  vt_func_number_all(main, &values);
  p.parts = VT_NEW_ARRAY(&scratch, vt_part, values + 1);
  vt_status st = partition_main(&p, main);
  if (!st) {
    replace_main(&p, main, &scratch);
    if (vt_verify_wanted()) st = vt_module_verify(module);
  }
  parter_free(&p);
  vt_arena_free(&scratch);
  return st;
}
