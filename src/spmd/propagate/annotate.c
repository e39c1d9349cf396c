// SPDX-License-Identifier: Apache-2.0
// annotate.c - writes the sharding of every value into the module.
//
// Propagation knows a sharding for each value, but not where: this is the one place that turns its
// outcome into attributes, so that the partitioner only reads.
#include <inttypes.h>

#include "base/map.h"
#include "spmd/propagate/propagate.h"

typedef struct annotator {
  vt_module *module;
  vt_record record;
  const vt_mesh *mesh;       // of replicated values
  const vt_sharding **whole; // what is replicated, by rank; NULL until one is
  bool partials;             // a value is unreduced
} annotator;

static const vt_sharding *replicated(annotator *a, vt_type type) {
  if (a->whole[type.rank]) return a->whole[type.rank];
  vt_sharding *s = VT_NEW(&a->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&a->module->arena, vt_dim_sharding, type.rank);
  for (int32_t d = 0; d < type.rank; d++) dims[d] = (vt_dim_sharding){0, NULL, true, -1};
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = a->mesh, .rank = type.rank, .dims = dims};
  return a->whole[type.rank] = s;
}

static const vt_sharding *of_node(annotator *a, uint32_t node, vt_place place) {
  vt_type type = a->record.graph.nodes.data[node].type;
  vt_arena *arena = &a->module->arena;
  const vt_sharding *s = place == VT_INSIDE
                             ? vt_record_sharding(&a->record, node, arena)
                             : vt_graph_sharding(&a->record.graph, node, place, arena);
  a->partials = a->partials || (s && s->unreduced_count);
  return s ? s : replicated(a, type);
}

// Values that the walk did not reach (element computations) count as replicated.
static const vt_sharding *of_value(annotator *a, const vt_value *value, vt_place where) {
  uint32_t node = vt_record_node(&a->record, value);
  return node ? of_node(a, node - 1, where) : replicated(a, value->type);
}

static bool on_one_device(const vt_sharding *said) {
  return said && vt_sharding_is_maximal(said);
}

static const vt_sharding **new_list(annotator *a, uint32_t count) {
  return VT_NEW_ARRAY(&a->module->arena, const vt_sharding *, count);
}

static void set_list(annotator *a, vt_op *op, vt_attr_key key, uint32_t count, vt_place where) {
  const vt_attr *said = vt_op_attr(op, key);
  const vt_sharding **list = NULL;
  for (uint32_t i = 0; i < count; i++) {
    const vt_sharding *old = said && i < said->count ? said->shardings[i] : NULL;
    const vt_sharding *one = on_one_device(old) ? old : of_value(a, &op->results[i], where);
    const vt_sharding **whole = &a->whole[op->results[i].type.rank];
    if (!i) list = count == 1 && one == *whole ? whole : new_list(a, count);
    list[i] = one;
  }
  vt_op_set_attr(op, (vt_attr){.key = key, .count = count, .shardings = list});
}

// The edge into a manual computation: its manual axes, then what the inner value uses.
static const vt_sharding *inward(annotator *a, const vt_op *op, uint32_t i,
                                 const vt_sharding *said) {
  void *node = vt_map_find_ptr(&a->record.slots, &op->operands[i]);
  if (!node || !said || said->rank != op->operands[i]->type.rank) return said;
  return vt_graph_outer_sharding(&a->record.graph, (uint32_t)((uintptr_t)node - 1),
                                 op->operands[i]->type, &a->module->arena);
}

static void annotate_manual(annotator *a, vt_op *op) {
  const vt_attr *said = vt_op_attr(op, VT_ATTR_IN_SHARDINGS);
  const vt_sharding **list = VT_NEW_ARRAY(&a->module->arena, const vt_sharding *, said->count);
  for (uint32_t i = 0; i < said->count; i++) list[i] = inward(a, op, i, said->shardings[i]);
  vt_op_set_attr(op,
                 (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = said->count, .shardings = list});
  set_list(a, op, VT_ATTR_OUT_SHARDINGS, op->result_count, VT_AT_REGION);
}

static void annotate_func(annotator *a, const vt_func *func) {
  for (vt_op *op = func->first; op; op = op->next) {
    bool control = vt_op_info_get(op->code)->class == VT_CLASS_CONTROL;
    for (uint32_t r = 0; control && r < op->region_count; r++) annotate_func(a, op->regions[r]);
    if (op->code == VT_OP_MANUAL_COMPUTATION) {
      annotate_manual(a, op);
    } else if (op->result_count) {
      set_list(a, op, VT_ATTR_SHARDING, op->result_count, VT_INSIDE);
    }
  }
}

static vt_io_info *io_info(annotator *a, vt_io_info **infos, uint32_t count) {
  if (!*infos) {
    *infos = VT_NEW_ARRAY(&a->module->arena, vt_io_info, count);
    for (uint32_t i = 0; i < count; i++)
      (*infos)[i] =
          (vt_io_info){.alias_output = -1, .memory_kind = "", .layout_mode = "", .name = ""};
  }
  return *infos;
}

static void annotate_main(annotator *a) {
  vt_func *main = a->module->main;
  vt_io_info *params = io_info(a, &main->param_info, main->param_count);
  vt_io_info *results = io_info(a, &main->return_info, main->return_count);
  for (uint32_t i = 0; i < main->param_count; i++)
    if (!on_one_device(params[i].sharding))
      params[i].sharding = of_value(a, main->params[i], VT_AT_MAIN);
  for (uint32_t i = 0; i < main->return_count; i++) {
    void *node = vt_map_find_ptr(&a->record.slots, &main->returns[i]);
    if (!on_one_device(results[i].sharding))
      results[i].sharding = of_node(a, (uint32_t)((uintptr_t)node - 1), VT_AT_MAIN);
  }
}

// ---- unreduced values ---------------------------------------------------------------------------

static const vt_sharding *stated(const vt_op *op, uint32_t result) {
  const vt_attr *list = vt_op_attr(op, VT_ATTR_SHARDING);
  return list && result < list->count ? list->shardings[result] : NULL;
}

static bool is_partial(const vt_sharding *s) {
  return s && s->unreduced_count;
}

// What comes out of a loop's body unreduced is carried so.
static void adopt_loop(vt_op *op) {
  const vt_attr *list = vt_op_attr(op, VT_ATTR_SHARDING);
  if (op->code != VT_OP_WHILE || !list || list->count != op->result_count) return;
  const vt_sharding **all =
      VT_NEW_ARRAY(&op->func->module->arena, const vt_sharding *, list->count + 1);
  for (uint32_t i = 0; i < list->count; i++) {
    const vt_value *root = op->regions[1]->returns[i];
    const vt_sharding *s = root->op ? stated(root->op, (uint32_t)root->index) : NULL;
    all[i] = is_partial(s) ? s : list->shardings[i];
  }
  vt_op_set_attr(op,
                 (vt_attr){.key = VT_ATTR_SHARDING, .count = op->result_count, .shardings = all});
}

// Ops that may leave out the reduction that a sharding names, or work on its terms.
static bool leaves_out(const vt_op *op, int32_t reduction) {
  static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  const vt_op_info *info = vt_op_info_get(op->code);
  const vt_op *first = op->code == VT_OP_REDUCE ? op->regions[0]->first : NULL;
  if (first) return !first->next && first->code == codes[reduction];
  if (vt_op_is_marker(op)) return true;
  return !reduction &&
         (op->code == VT_OP_DOT || op->code == VT_OP_DOT_GENERAL || op->code == VT_OP_CONVOLUTION ||
          (info->flags & VT_OPF_ELTWISE && info->linear == VT_LINEAR_ALL));
}

// A constraint that leaves a value unreduced says so of the op that makes the value: there the
// reduction is left out.
static void adopt_partials(vt_func *func) {
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->region_count; i++) adopt_partials(op->regions[i]);
    adopt_loop(op);
    const vt_sharding *s = op->code == VT_OP_SHARDING_CONSTRAINT ? stated(op, 0) : NULL;
    vt_op *maker = is_partial(s) ? op->operands[0]->op : NULL;
    if (!maker || maker->result_count != 1 || !leaves_out(maker, s->reduction)) continue;
    vt_op_set_attr(maker, *vt_op_attr(op, VT_ATTR_SHARDING));
  }
}

// ---- what the program says ----------------------------------------------------------------------

typedef struct checker {
  int32_t device_count;
  const vt_mesh *manual; // of the manual computation around
  vt_arena arena;
  vt_map sound; // shardings that fit, by what they say
  VT_ARRAY(uint64_t) key;
} checker;

static void put_axes(checker *c, uint32_t count, const vt_axis_ref *axes) {
  vt_array_push(&c->key, count);
  for (uint32_t i = 0; i < count; i++) {
    vt_array_push(&c->key, axes[i].axis);
    vt_array_push(&c->key, (uint64_t)axes[i].pre_size);
    vt_array_push(&c->key, (uint64_t)axes[i].size);
  }
}

static void make_key(checker *c, const vt_sharding *s, int32_t rank) {
  c->key.size = 0;
  vt_array_push(&c->key, (uintptr_t)s->mesh);
  vt_array_push(&c->key, (uint64_t)rank);
  for (int32_t d = 0; d < s->rank; d++) put_axes(c, s->dims[d].axis_count, s->dims[d].axes);
  put_axes(c, s->unreduced_count, s->unreduced);
}

static vt_status check_sharding(checker *c, const vt_sharding *sharding, vt_type type) {
  if (!sharding) return VT_OK;
  int64_t size = sharding->mesh->axis_count ? vt_mesh_size(sharding->mesh) : c->device_count;
  if (size != c->device_count)
    return vt_error(VT_INVALID_ARGUMENT,
                    "sharding: mesh '%s' has %" PRId64 " devices, the program %" PRId32
                    " (mhlo.num_partitions)",
                    sharding->mesh->name, size, c->device_count);
  if (c->manual && sharding->mesh->axis_count && !vt_mesh_same(sharding->mesh, c->manual))
    return vt_error(VT_UNIMPLEMENTED,
                    "its sharding is over another mesh than the manual computation around it");
  make_key(c, sharding, type.rank);
  void **sound = vt_map_at(&c->sound, c->key.data, c->key.size * sizeof *c->key.data);
  if (*sound) return VT_OK;
  const int64_t *counts;
  VT_TRY(vt_tiling_counts(sharding, type, c->device_count, &c->arena, &counts));
  *sound = c;
  return VT_OK;
}

static vt_status check_op(checker *c, const vt_op *op) {
  for (uint32_t k = 0; k < op->attr_count; k++) {
    const vt_attr *list = &op->attrs[k];
    bool in = list->key == VT_ATTR_IN_SHARDINGS, out = list->key == VT_ATTR_OUT_SHARDINGS;
    if (!in && !out && list->key != VT_ATTR_SHARDING) continue;
    uint32_t count = in ? op->operand_count : op->result_count;
    for (uint32_t i = 0; i < count && i < list->count; i++)
      VT_TRY(
          check_sharding(c, list->shardings[i], in ? op->operands[i]->type : op->results[i].type));
  }
  return VT_OK;
}

static vt_status check_func(checker *c, const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    const vt_mesh *around = c->manual;
    const vt_mesh *inside = op->code == VT_OP_MANUAL_COMPUTATION ? vt_manual_mesh(op) : NULL;
    if (inside) c->manual = inside; // its operands and results too
    vt_status st = check_op(c, op);
    if (!st && around && inside && !vt_mesh_same(around, inside))
      st = vt_error(VT_UNIMPLEMENTED, "its mesh is another than that of the computation around it");
    if (st) return vt_status_wrap(st, "%s", vt_op_info_get(op->code)->text);
    for (uint32_t r = 0; r < op->region_count; r++) VT_TRY(check_func(c, op->regions[r]));
    c->manual = around;
  }
  return VT_OK;
}

static vt_status check_io(checker *c, const char *what, const vt_io_info *info, uint32_t count,
                          vt_value *const *values) {
  for (uint32_t i = 0; info && i < count; i++) {
    vt_status st = check_sharding(c, info[i].sharding, values[i]->type);
    if (st) return vt_status_wrap(st, "%s %u", what, i);
  }
  return VT_OK;
}

// Every sharding that the program states is over its devices, and of the rank of its value.
static vt_status check_shardings(const vt_module *module, int32_t device_count) {
  const vt_func *main = module->main;
  checker c = {.device_count = device_count};
  vt_status st = check_io(&c, "parameter", main->param_info, main->param_count, main->params);
  if (!st) st = check_io(&c, "result", main->return_info, main->return_count, main->returns);
  if (!st) st = check_func(&c, main);
  vt_map_free(&c.sound);
  vt_array_free(&c.key);
  vt_arena_free(&c.arena);
  return st;
}

static const vt_mesh *main_mesh(const vt_module *module, int32_t device_count) {
  for (uint32_t i = 0; i < module->mesh_count; i++)
    if (module->meshes[i]->axis_count && vt_mesh_size(module->meshes[i]) == device_count)
      return module->meshes[i];
  return NULL;
}

vt_status vt_spmd_annotate(vt_module *module, int32_t device_count) {
  annotator a = {.module = module, .mesh = main_mesh(module, device_count)};
  vt_arena scratch = {.brief = true};
  VT_TRY(check_shardings(module, device_count));
  a.whole = VT_NEW_ARRAY(&module->arena, const vt_sharding *, VT_MAX_RANK + 1);
  if (vt_spmd_record(module, device_count, &scratch, &a.record)) {
    vt_record_materialize(&a.record, module);
    annotate_func(&a, module->main);
    annotate_main(&a);
    if (a.partials) adopt_partials(module->main);
    if (!vt_graph_is_gspmd(&a.record.graph)) vt_record_reshard(&a.record, module);
  }
  vt_record_free(&a.record);
  vt_arena_free(&scratch);
  return VT_OK;
}
