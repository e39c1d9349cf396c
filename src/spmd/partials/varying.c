// SPDX-License-Identifier: Apache-2.0
// varying.c - one forward walk over the body of a manual computation. Each value gets the set of
// axes along which it may differ: a device number, an operand's tile or a partial sum adds axes; a
// collective over an axis removes it. Loops are walked to a fixed point.
#include "spmd/partials/varying.h"

#include <string.h>

#include "base/arena.h"

enum { MAX_DEPTH = 100, MAX_STEPS = 1 << 20 };

typedef struct walk {
  const vt_mesh *mesh;
  int64_t devices;
  vt_axis_set all;
  // [axis][device]: the first device that differs only in this axis
  int32_t *lines[VT_MAX_MESH_AXES];
  vt_arena *arena;
  int depth, steps;
} walk;

bool vt_is_manual_axis(const vt_op *manual, const vt_mesh *mesh, uint32_t axis) {
  const vt_attr *names = vt_op_attr(manual, VT_ATTR_MANUAL_AXES);
  for (uint32_t i = 0; names && i < names->count; i++)
    if (!strcmp(names->strings[i].data, mesh->axes[axis].name)) return true;
  return false;
}

static vt_axis_set manual_axes(const vt_op *manual, const vt_mesh *mesh) {
  vt_axis_set set = 0;
  for (uint32_t a = 0; a < mesh->axis_count; a++)
    if (mesh->axes[a].size > 1 && vt_is_manual_axis(manual, mesh, a)) set |= 1u << a;
  return set;
}

static void find_lines(walk *w) {
  for (uint32_t a = 0; a < w->mesh->axis_count; a++) {
    vt_axis_ref axis = {a, 1, w->mesh->axes[a].size};
    w->lines[a] = VT_NEW_ARRAY(w->arena, int32_t, (size_t)w->devices);
    for (int64_t place = 0; place < w->devices; place++) {
      int64_t stride, at = vt_mesh_coordinate(w->mesh, place, axis, &stride);
      int64_t first = place - at * stride;
      bool listed = w->mesh->device_count != 0;
      int64_t device = listed ? w->mesh->device_ids[place] : place;
      w->lines[a][device] = (int32_t)(listed ? w->mesh->device_ids[first] : first);
    }
  }
}

// ---- collectives --------------------------------------------------------------------------------

// Rows of devices whose operands form a result (-1 pads); for each device its row (-1 = none) and
// its position in it.
typedef struct rows {
  int64_t width;
  const int64_t *members;
  int32_t *row, *place;
} rows;

static bool by_partition(const vt_op *op) {
  if (vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) <= 0) return false;
  switch ((int)op->code) {
  case VT_OP_ALL_TO_ALL:
  case VT_OP_COLLECTIVE_PERMUTE:
  case VT_OP_COLLECTIVE_BROADCAST:
  case VT_OP_RAGGED_ALL_TO_ALL:
    return true;
  default:
    return vt_attr_i64_or(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 0) != 0;
  }
}

// False when the rows are not plain device numbers.
static bool read_rows(const walk *w, const vt_op *op, rows *out) {
  bool pairs = op->code == VT_OP_COLLECTIVE_PERMUTE;
  const vt_literal *l =
      vt_attr_literal(op, pairs ? VT_ATTR_SOURCE_TARGET_PAIRS : VT_ATTR_REPLICA_GROUPS);
  if (!l || l->type.rank != 2 || l->type.dtype != VT_S64 || l->splat || !by_partition(op))
    return false;
  int64_t count = l->type.dims[0], width = l->type.dims[1];
  const int64_t *ids = l->data;
  if (pairs && width != 2) return false;
  *out = (rows){width, ids, VT_NEW_ARRAY(w->arena, int32_t, (size_t)w->devices),
                VT_NEW_ARRAY(w->arena, int32_t, (size_t)w->devices)};
  for (int64_t d = 0; d < w->devices; d++) out->row[d] = -1;
  for (int64_t i = 0; i < count * width; i++) {
    if (ids[i] < -1 || ids[i] >= w->devices) return false;
    if (ids[i] < 0 || (pairs && i % 2 == 0)) continue; // a pair forms its target's row
    out->row[ids[i]] = (int32_t)(i / width);
    out->place[ids[i]] = (int32_t)(i % width);
  }
  return true;
}

// All devices along the axis are in one row: a collective that gives all members of a row the same
// value gives it to all of them.
static bool covers(const walk *w, const rows *r, uint32_t axis) {
  const int32_t *line = w->lines[axis];
  for (int64_t d = 0; d < w->devices; d++)
    if (r->row[d] < 0 || r->row[d] != r->row[line[d]]) return false;
  return true;
}

// The rows of devices along the axis differ at most along the axis: operands that are equal along
// it give equal results.
static bool keeps(const walk *w, const rows *r, uint32_t axis) {
  const int32_t *line = w->lines[axis];
  for (int64_t d = 0; d < w->devices; d++) {
    int64_t e = line[d];
    if ((r->row[d] < 0) != (r->row[e] < 0) || r->place[d] != r->place[e]) return false;
    for (int64_t i = 0; i < r->width && r->row[d] >= 0; i++) {
      int64_t a = r->members[r->row[d] * r->width + i], b = r->members[r->row[e] * r->width + i];
      if ((a < 0) != (b < 0) || (a >= 0 && line[a] != line[b])) return false;
    }
  }
  return true;
}

static vt_axis_set after_collective(const walk *w, const vt_op *op, vt_axis_set before) {
  bool alike = op->code == VT_OP_ALL_REDUCE || op->code == VT_OP_ALL_GATHER;
  rows r;
  vt_axis_set set = 0;
  if (!read_rows(w, op, &r)) return w->all;
  for (uint32_t a = 0; a < w->mesh->axis_count; a++) {
    if (!(w->all >> a & 1) || (alike && covers(w, &r, a))) continue;
    if (before >> a & 1 || !keeps(w, &r, a)) set |= 1u << a;
  }
  return set;
}

// ---- the walk -----------------------------------------------------------------------------------

static void walk_func(walk *w, vt_func *func, const vt_axis_set *params, vt_axis_set *returns);

static void walk_while(walk *w, const vt_op *op, const vt_axis_set *in, vt_axis_set *out) {
  uint32_t own = vt_op_own_operands(op);
  vt_axis_set *args = VT_NEW_ARRAY(w->arena, vt_axis_set, op->operand_count);
  vt_axis_set *next = VT_NEW_ARRAY(w->arena, vt_axis_set, own);
  memcpy(args, in, sizeof *args * op->operand_count);
  for (bool changed = true; changed;) {
    vt_axis_set go_on = 0;
    changed = false;
    walk_func(w, op->regions[0], args, &go_on);
    walk_func(w, op->regions[1], args, next);
    for (uint32_t i = 0; i < own; i++) {
      vt_axis_set set = args[i] | next[i] | go_on;
      changed |= set != args[i];
      args[i] = set;
    }
  }
  memcpy(out, args, sizeof *out * own);
}

static void walk_branches(walk *w, const vt_op *op, const vt_axis_set *in, vt_axis_set *out) {
  vt_axis_set *returns = VT_NEW_ARRAY(w->arena, vt_axis_set, op->result_count);
  for (uint32_t r = 0; r < op->region_count; r++) {
    walk_func(w, op->regions[r], in + 1, returns);
    for (uint32_t i = 0; i < op->result_count; i++) out[i] |= returns[i] | in[0];
  }
}

static void walk_op(walk *w, const vt_op *op, const vt_axis_set *in, vt_axis_set *out) {
  vt_axis_set before = 0, after;
  for (uint32_t i = 0; i < op->operand_count; i++) before |= in[i];
  if (vt_op_callee(op)) {
    walk_func(w, vt_op_callee(op), in, out);
    return;
  }
  switch ((int)op->code) {
  case VT_OP_MANUAL_COMPUTATION: // over other axes
    walk_func(w, op->regions[0], in, out);
    return;
  case VT_OP_WHILE:
    walk_while(w, op, in, out);
    return;
  case VT_OP_IF:
  case VT_OP_CASE:
    walk_branches(w, op, in, out);
    return;
  case VT_OP_OPTIMIZATION_BARRIER:
    memcpy(out, in, sizeof *out * op->result_count);
    return;
  case VT_OP_CUSTOM_CALL:
    after = vt_attr_i64_or(op, VT_ATTR_HAS_SIDE_EFFECT, 0) ? w->all : before;
    break;
  default: {
    uint16_t flags = vt_op_info_get(op->code)->flags;
    bool own = flags & (VT_OPF_EFFECT | VT_OPF_PER_DEVICE);
    after = flags & VT_OPF_COLLECTIVE ? after_collective(w, op, before) : own ? w->all : before;
  }
  }
  for (uint32_t i = 0; i < op->result_count; i++) out[i] = after;
}

static void walk_func(walk *w, vt_func *func, const vt_axis_set *params, vt_axis_set *returns) {
  if (w->depth > MAX_DEPTH || w->steps > MAX_STEPS) { // call trees can be exponential
    for (uint32_t i = 0; i < func->return_count; i++) returns[i] = w->all;
    return;
  }
  w->depth++;
  vt_func_number(func);
  vt_axis_set *sets = VT_NEW_ARRAY(w->arena, vt_axis_set, (size_t)func->value_count + 1);
  for (uint32_t i = 0; i < func->param_count; i++) sets[func->params[i]->id] = params[i];
  for (vt_op *op = func->first; op; op = op->next, w->steps++) {
    vt_axis_set *in = VT_NEW_ARRAY(w->arena, vt_axis_set, op->operand_count);
    vt_axis_set *out = VT_NEW_ARRAY(w->arena, vt_axis_set, op->result_count);
    for (uint32_t i = 0; i < op->operand_count; i++) in[i] = sets[op->operands[i]->id];
    walk_op(w, op, in, out);
    for (uint32_t i = 0; i < op->result_count; i++) sets[op->results[i].id] = out[i];
  }
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = sets[func->returns[i]->id];
  w->depth--;
}

static vt_axis_set used_axes(const vt_sharding *s) {
  vt_axis_set set = 0;
  for (int32_t d = 0; s && d < s->rank; d++)
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++) set |= 1u << s->dims[d].axes[i].axis;
  for (uint32_t i = 0; s && i < s->unreduced_count; i++) set |= 1u << s->unreduced[i].axis;
  return set;
}

void vt_varying_axes(const vt_op *manual, vt_axis_set *out) {
  const vt_mesh *mesh = vt_manual_mesh(manual);
  vt_func *body = manual->regions[0];
  memset(out, 0, sizeof *out * manual->result_count);
  if (!mesh || !manual->result_count) return;
  vt_arena arena = {0};
  walk w = {.mesh = mesh,
            .devices = vt_mesh_size(mesh),
            .all = manual_axes(manual, mesh),
            .arena = &arena};
  find_lines(&w);
  vt_axis_set *params = VT_NEW_ARRAY(&arena, vt_axis_set, body->param_count);
  const vt_attr *in = vt_op_attr(manual, VT_ATTR_IN_SHARDINGS);
  for (uint32_t i = 0; i < in->count && i < body->param_count; i++)
    params[i] = used_axes(in->shardings[i]) & w.all;
  walk_func(&w, body, params, out);
  vt_arena_free(&arena);
}
