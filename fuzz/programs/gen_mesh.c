// SPDX-License-Identifier: Apache-2.0
// gen_mesh.c - meshes, manual computations and the collectives in them, sharding annotations.
//
// Results of a manual computation must not differ between devices that hold the same tile, or the
// answer would depend on the device that is read: results are sharded along the axes along which
// they may differ. Rarely they are not; then the first device in mesh order counts.
#include <string.h>

#include "gen_makers.h"
#include "ir/sharding.h"
#include "spmd/partials/varying.h"

enum {
  MOST_DEVICES = 16,
  MOST_OPERANDS = 4,
  MOST_RESULTS = 3,
  MOST_ELEMENTS = 16384,
  MOST_DEEP = 4
};

static uint32_t all_axes(const vt_mesh *mesh) {
  return (1u << mesh->axis_count) - 1;
}

const vt_mesh *gen_make_mesh(gen *g) {
  static const int64_t sizes[][3] = {
      {2, 1, 1}, {4, 1, 1}, {8, 1, 1}, {3, 1, 1},  {16, 1, 1}, {5, 1, 1}, {2, 2, 1},  {2, 4, 1},
      {4, 2, 1}, {3, 2, 1}, {2, 3, 1}, {2, 2, 2},  {2, 8, 1},  {4, 4, 1}, {2, 2, 4},  {2, 3, 2},
      {7, 2, 1}, {5, 3, 1}, {2, 5, 1}, {13, 1, 1}, {2, 2, 3},  {1, 4, 1}, {2, 1, 2},  {4, 2, 2},
      {2, 2, 1}, {2, 4, 1}, {4, 2, 1}, {2, 2, 2},  {3, 3, 1},  {2, 2, 1}, {11, 1, 1}, {2, 7, 1}};
  vt_arena *arena = &g->module->arena;
  const int64_t *size = sizes[gen_below(g, sizeof sizes / sizeof *sizes)];
  vt_mesh *mesh = VT_NEW(arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(arena, vt_mesh_axis, 3);
  static const char *const names[] = {"a", "b", "c"};
  *mesh = (vt_mesh){.name = "mesh", .axes = axes};
  for (int i = 0; i < 3; i++)
    if (i == 0 || size[i] > 1 || (i == 1 && size[2] > 1))
      axes[mesh->axis_count++] = (vt_mesh_axis){names[i], size[i]};
  int64_t devices = vt_mesh_size(mesh);
  if (gen_chance(g, 15)) {
    int64_t *ids = VT_NEW_ARRAY(arena, int64_t, devices);
    bool moved = false;
    for (int64_t i = 0; i < devices; i++) ids[i] = i;
    gen_shuffle(g, ids, devices);
    for (int64_t i = 0; i < devices; i++) moved = moved || ids[i] != i;
    mesh->device_ids = ids;
    mesh->device_count = moved ? (uint32_t)devices : 0;
  }
  return mesh;
}

static int64_t device_at(const vt_mesh *mesh, int64_t place) {
  return mesh->device_count ? mesh->device_ids[place] : place;
}

// A sharding of each dimension d over the axes lists[d][0 .. counts[d]).
typedef struct cut {
  int32_t rank;
  uint32_t counts[VT_MAX_RANK], lists[VT_MAX_RANK][4];
  uint32_t used;
} cut;

static void cut_by(gen *g, cut *c, uint32_t axis, int32_t d) {
  uint32_t at = (uint32_t)gen_below(g, c->counts[d] + 1);
  memmove(&c->lists[d][at + 1], &c->lists[d][at], sizeof(uint32_t) * (c->counts[d] - at));
  c->lists[d][at] = axis;
  c->counts[d]++;
  c->used |= 1u << axis;
}

static int64_t parts(const gen *g, const cut *c, int32_t d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < c->counts[d]; i++) n *= g->mesh->axes[c->lists[d][i]].size;
  return n;
}

static vt_type scaled(gen *g, vt_type local, const cut *c) {
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < local.rank; d++) dims[d] = local.dims[d] * parts(g, c, d);
  return gen_type(g, local.dtype, local.rank, dims);
}

static const vt_sharding *sharding_of(gen *g, const cut *c) {
  vt_arena *arena = &g->module->arena;
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, c->rank + 1);
  for (int32_t d = 0; d < c->rank; d++) {
    vt_axis_ref *axes = VT_NEW_ARRAY(arena, vt_axis_ref, c->counts[d] + 1);
    for (uint32_t i = 0; i < c->counts[d]; i++)
      axes[i] = (vt_axis_ref){c->lists[d][i], 1, g->mesh->axes[c->lists[d][i]].size};
    dims[d] = (vt_dim_sharding){c->counts[d], axes, true, -1};
  }
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = g->mesh, .rank = c->rank, .dims = dims};
  return s;
}

// Tiles of whole cache lines are parts of the array in place; others are copied.
static vt_type tile_shape(gen *g, vt_dtype dtype) {
  static const int64_t shapes[][3] = {{64, 0, 0}, {128, 0, 0}, {8, 8, 0},  {4, 16, 0},
                                      {16, 4, 0}, {1, 64, 0},  {2, 32, 0}, {64, 1, 0},
                                      {2, 4, 8},  {3, 64, 0},  {256, 0, 0}};
  if (gen_chance(g, 45)) return gen_shape(g, dtype);
  const int64_t *dims = shapes[gen_below(g, 11)];
  return gen_type(g, dtype, dims[2] ? 3 : dims[1] ? 2 : 1, dims);
}

// An operand: a tile of the wanted type on each device, or of any.
static vt_value *pick_operand(gen *g, uint32_t manual, const vt_type *wanted, uint64_t dtypes,
                              cut *out_cut, vt_type *out_local) {
  uint64_t liked = gen_chance(g, 60) ? T(F32) | T(S32) | T(BF16) : dtypes;
  vt_type local = wanted ? *wanted : tile_shape(g, gen_dtype(g, liked));
  *out_cut = (cut){.rank = local.rank};
  for (uint32_t a = 0; a < g->mesh->axis_count && local.rank; a++)
    if (manual >> a & 1 && gen_chance(g, 55) &&
        vt_type_elements(scaled(g, local, out_cut)) * g->mesh->axes[a].size <= MOST_ELEMENTS)
      cut_by(g, out_cut, a, gen_chance(g, 60) ? 0 : (int32_t)gen_below(g, local.rank));
  *out_local = local;
  return gen_of(g, scaled(g, local, out_cut), 0);
}

// Some steps over arrays of one type: where the last use of a value meets its successor, steps work
// in place.
static void chain(gen *g) {
  static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_MULTIPLY, VT_OP_SUBTRACT, VT_OP_MAXIMUM,
                                    VT_OP_MINIMUM};
  gen_scope *s = g->scope;
  uint64_t dtypes = T_INT | T_WIDE;
  vt_value *x = s->count ? s->pool[gen_below(g, s->count)].value : NULL;
  if (!x || !T_HAS(dtypes, x->type.dtype)) x = gen_any(g, dtypes, 0);
  for (int64_t n = gen_between(g, 1, 4); n > 0; n--) {
    vt_value *pair[2] = {x, gen_of(g, x->type, 0)};
    if (gen_chance(g, 30)) pair[0] = pair[1], pair[1] = x;
    x = gen_emit(g, codes[gen_below(g, 5)], x->type, 2, pair, false);
  }
}

vt_value *gen_device_scalar(gen *g, vt_dtype dtype) {
  if (!g->mesh || g->manual_axes != all_axes(g->mesh)) return NULL;
  vt_type number = {VT_U32, 0, NULL}, type = {dtype, 0, NULL};
  vt_value *pair[2] = {gen_emit(g, VT_OP_PARTITION_ID, number, 0, NULL, false),
                       gen_scalar(g, VT_U32, 3)};
  vt_value *rest = gen_emit(g, VT_OP_REMAINDER, number, 2, pair, false);
  return gen_emit(g, VT_OP_CONVERT, type, 1, &rest, false);
}

void gen_body(gen *g, int count) {
  if (!g->manual_axes) {
    gen_ops(g, count);
    return;
  }
  static const vt_opcode codes[] = {VT_OP_ALL_REDUCE,
                                    VT_OP_ALL_REDUCE,
                                    VT_OP_REDUCE_SCATTER,
                                    VT_OP_ALL_GATHER,
                                    VT_OP_COLLECTIVE_PERMUTE,
                                    VT_OP_ALL_TO_ALL,
                                    VT_OP_WHILE,
                                    VT_OP_PARTITION_ID,
                                    VT_OP_COLLECTIVE_BROADCAST,
                                    VT_OP_WHILE,
                                    VT_OP_CASE,
                                    VT_OP_IF,
                                    VT_OP_CALL,
                                    VT_OP_COMPOSITE,
                                    VT_OP_MANUAL_COMPUTATION,
                                    VT_OP_MANUAL_COMPUTATION};
  while (count-- > 0 && g->budget > 0) {
    const gen_row *row = gen_row_of(codes[gen_below(g, sizeof codes / sizeof *codes)]);
    if (gen_chance(g, 35))
      chain(g);
    else if (gen_chance(g, 45))
      row->make(g, row);
    else
      gen_ops(g, 1);
  }
}

static uint32_t choose_results(gen *g, vt_value **out) {
  uint32_t count = 0;
  gen_scope *s = g->scope;
  for (uint32_t i = s->count; i-- > 0 && count < MOST_RESULTS;)
    if (s->pool[i].value->op && vt_type_elements(s->pool[i].value->type) <= MOST_ELEMENTS &&
        (!count || gen_chance(g, 35)))
      out[count++] = s->pool[i].value;
  if (!count) out[count++] = s->func->param_count ? s->func->params[0] : gen_scalar(g, VT_F32, 1);
  return count;
}

// The axes that shard a result: those along which it may differ, and others at random.
static cut cut_result(gen *g, uint32_t manual, uint32_t varying, vt_type local) {
  cut c = {.rank = local.rank};
  bool open = gen_chance(g, 6);
  for (uint32_t a = 0; a < g->mesh->axis_count && local.rank; a++) {
    if (!(manual >> a & 1) || !(varying >> a & 1 ? !open : gen_chance(g, 15))) continue;
    if (vt_type_elements(scaled(g, local, &c)) * g->mesh->axes[a].size > 4 * MOST_ELEMENTS)
      continue;
    cut_by(g, &c, a, gen_chance(g, 70) ? 0 : (int32_t)gen_below(g, local.rank));
  }
  return c;
}

static void set_manual_attrs(gen *g, vt_op *op, uint32_t manual, const vt_sharding **in,
                             const vt_sharding **out) {
  vt_arena *arena = &g->module->arena;
  vt_string *names = VT_NEW_ARRAY(arena, vt_string, g->mesh->axis_count);
  uint32_t count = 0;
  for (uint32_t a = 0; a < g->mesh->axis_count; a++)
    if (manual >> a & 1)
      names[count++] = (vt_string){g->mesh->axes[a].name, strlen(g->mesh->axes[a].name)};
  vt_op_set_attr(
      op, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = vt_op_own_operands(op), .shardings = in});
  vt_op_set_attr(
      op, (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = op->result_count, .shardings = out});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = count, .strings = names});
}

static vt_op *make_manual(gen *g, uint32_t manual, uint32_t count, vt_value **operands,
                          const vt_sharding **in, vt_func *region, const vt_type *types,
                          const vt_sharding **out) {
  vt_op *op = vt_op_create(g->scope->func, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, count,
                           operands, region->return_count, types, 1);
  op->regions[0] = region;
  set_manual_attrs(g, op, manual, in, out);
  return op;
}

bool gen_manual(gen *g, const gen_row *row) {
  if (!g->mesh || !g->open_axes || g->depth >= MOST_DEEP || !g->alike) return false;
  vt_arena *arena = &g->module->arena;
  uint32_t manual = g->open_axes, picked = (uint32_t)gen_below(g, all_axes(g->mesh)) + 1;
  if (gen_chance(g, 35) && picked & manual) manual &= picked;
  uint32_t count = (uint32_t)gen_between(g, 1, MOST_OPERANDS);
  vt_value *operands[MOST_OPERANDS], *returns[MOST_RESULTS];
  vt_type locals[MOST_OPERANDS], types[MOST_RESULTS];
  const vt_sharding **in = VT_NEW_ARRAY(arena, const vt_sharding *, MOST_OPERANDS);
  const vt_sharding **out = VT_NEW_ARRAY(arena, const vt_sharding *, MOST_RESULTS);
  bool inexact[MOST_OPERANDS], loose = false;
  for (uint32_t i = 0; i < count; i++) {
    cut c;
    operands[i] = pick_operand(g, manual, i && gen_chance(g, 60) ? &locals[gen_below(g, i)] : NULL,
                               row->dtypes, &c, &locals[i]);
    in[i] = sharding_of(g, &c);
  }
  for (uint32_t i = 0; i < count; i++) inexact[i] = gen_is_inexact(g, operands[i]);
  vt_func *region = vt_func_create(g->module, "");
  gen_scope inner;
  uint32_t open = g->open_axes, before = g->manual_axes;
  gen_enter(g, &inner, region);
  g->open_axes &= ~manual;
  g->manual_axes |= manual;
  for (uint32_t i = 0; i < count; i++) gen_param(g, locals[i], inexact[i]);
  gen_body(g, (int)gen_between(g, 1, 6));
  uint32_t results = choose_results(g, returns);
  vt_func_set_returns(region, results, returns);
  for (uint32_t i = 0; i < results; i++) loose = loose || gen_is_inexact(g, returns[i]);
  g->open_axes = open;
  g->manual_axes = before;
  gen_leave(g);

  vt_axis_set varying[MOST_RESULTS];
  for (uint32_t i = 0; i < results; i++) {
    cut none = {.rank = returns[i]->type.rank};
    types[i] = returns[i]->type;
    out[i] = sharding_of(g, &none);
  }
  vt_varying_axes(make_manual(g, manual, count, operands, in, region, types, out), varying);
  for (uint32_t i = 0; i < results; i++) {
    cut c = cut_result(g, manual, varying[i], types[i]);
    out[i] = sharding_of(g, &c);
    types[i] = scaled(g, types[i], &c);
  }
  vt_op *op = make_manual(g, manual, count, operands, in, region, types, out);
  vt_op_append(g->scope->func, op);
  g->budget--;
  gen_done(g, op, loose, false);
  return true;
}

// ---- collectives

// Rows of devices: along some of the manual axes, or any of equal size where all are manual.
static int64_t choose_rows(gen *g, int64_t *ids) {
  const vt_mesh *mesh = g->mesh;
  int64_t devices = vt_mesh_size(mesh), width = 1, at = 0;
  if (g->manual_axes == all_axes(mesh) && gen_chance(g, 15)) {
    int64_t divisors[MOST_DEVICES], n = 0;
    for (int64_t w = 1; w <= devices; w++)
      if (devices % w == 0) divisors[n++] = w;
    for (int64_t i = 0; i < devices; i++) ids[i] = i;
    gen_shuffle(g, ids, devices);
    return divisors[gen_below(g, n)];
  }
  uint32_t along = g->manual_axes;
  if (gen_chance(g, 65)) along &= (uint32_t)gen_below(g, all_axes(mesh)) + 1;
  for (uint32_t a = 0; a < mesh->axis_count; a++)
    if (along >> a & 1) width *= mesh->axes[a].size;
  for (int64_t first = 0; first < devices; first++) {
    int64_t row[MOST_DEVICES], n = 0;
    for (int64_t place = 0; place < devices; place++) {
      bool same = true;
      for (uint32_t a = 0; a < mesh->axis_count; a++) {
        vt_axis_ref axis = {a, 1, mesh->axes[a].size};
        same = same && (along >> a & 1 || vt_mesh_coordinate(mesh, place, axis, NULL) ==
                                              vt_mesh_coordinate(mesh, first, axis, NULL));
      }
      if (same) row[n++] = place;
    }
    if (row[0] != first) continue;
    for (int64_t i = 0; i < n; i++) ids[at++] = device_at(mesh, row[i]);
  }
  return width;
}

static void set_literal(gen *g, vt_op *op, vt_attr_key key, int64_t rows, int64_t width,
                        const int64_t *ids) {
  vt_arena *arena = &g->module->arena;
  vt_literal *literal = VT_NEW(arena, vt_literal);
  int64_t dims[2] = {rows, width};
  *literal = (vt_literal){gen_type(g, VT_S64, 2, dims),
                          vt_arena_copy(arena, ids, (size_t)(rows * width) * sizeof *ids), false};
  vt_op_set_attr(op, (vt_attr){.key = key, .literal = literal});
}

static void set_rows(gen *g, vt_op *op, int64_t width, const int64_t *ids) {
  set_literal(g, op, VT_ATTR_REPLICA_GROUPS, vt_mesh_size(g->mesh) / width, width, ids);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_TYPE, 1);
  bool global = op->code == VT_OP_ALL_REDUCE || op->code == VT_OP_ALL_GATHER ||
                op->code == VT_OP_REDUCE_SCATTER;
  if (global) vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
}

static vt_opcode combiner(gen *g, vt_dtype dtype) {
  static const vt_opcode ints[] = {VT_OP_ADD,     VT_OP_MULTIPLY, VT_OP_MAXIMUM,
                                   VT_OP_MINIMUM, VT_OP_AND,      VT_OP_OR};
  static const vt_opcode floats[] = {VT_OP_ADD, VT_OP_ADD, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  if (dtype == VT_PRED) return gen_chance(g, 50) ? VT_OP_AND : VT_OP_OR;
  if (vt_dtype_is_complex(dtype)) return VT_OP_ADD;
  return vt_dtype_is_float(dtype) ? floats[gen_below(g, 4)] : ints[gen_below(g, 6)];
}

static bool ready(const gen *g) {
  return g->mesh && g->manual_axes && g->alike;
}

static bool rounds(vt_opcode code, vt_dtype dtype) {
  return code == VT_OP_ADD && (vt_dtype_is_float(dtype) || vt_dtype_is_complex(dtype));
}

bool gen_all_reduce(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids);
  vt_value *x[2] = {gen_any(g, row->dtypes, 0)};
  vt_type types[2] = {x[0]->type};
  uint32_t count = 1;
  if (gen_chance(g, 15)) {
    x[1] = gen_any(g, T(PRED) << (types[0].dtype - VT_PRED), 0);
    types[1] = x[1]->type;
    count = 2;
  }
  vt_opcode code = combiner(g, types[0].dtype);
  vt_op *op = gen_op(g, row->code, count, x, count, types, 1);
  op->regions[0] = gen_pair_region(g, code, types[0].dtype);
  set_rows(g, op, width, ids);
  gen_done(g, op, rounds(code, types[0].dtype), false);
  return true;
}

// An operand with a dimension that divides by `width`.
static vt_value *divisible(gen *g, const gen_row *row, int64_t width, int32_t *out_dim) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  vt_type type = x->type;
  int64_t dims[VT_MAX_RANK];
  if (!type.rank || vt_type_elements(type) > MOST_ELEMENTS) return NULL;
  int32_t d = *out_dim = (int32_t)gen_below(g, type.rank);
  if (type.dims[d] % width == 0) return x;
  if (vt_type_elements(type) * width > MOST_ELEMENTS) return NULL;
  memcpy(dims, type.dims, sizeof *dims * (size_t)type.rank);
  dims[d] *= width;
  return gen_of(g, gen_type(g, type.dtype, type.rank, dims), 0);
}

static vt_type resized(gen *g, vt_type type, int32_t d, int64_t size) {
  int64_t dims[VT_MAX_RANK];
  memcpy(dims, type.dims, sizeof *dims * (size_t)type.rank);
  dims[d] = size;
  return gen_type(g, type.dtype, type.rank, dims);
}

bool gen_reduce_scatter(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids);
  int32_t d;
  vt_value *x = divisible(g, row, width, &d);
  if (!x) return false;
  vt_opcode code = combiner(g, x->type.dtype);
  vt_type type = resized(g, x->type, d, x->type.dims[d] / width);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 1);
  op->regions[0] = gen_pair_region(g, code, type.dtype);
  vt_op_set_i64(op, VT_ATTR_SCATTER_DIMENSION, d);
  set_rows(g, op, width, ids);
  gen_done(g, op, rounds(code, type.dtype), false);
  return true;
}

bool gen_all_gather(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids);
  vt_value *x = gen_any(g, row->dtypes, 0);
  if (!x->type.rank || vt_type_elements(x->type) * width > MOST_ELEMENTS) return false;
  int32_t d = (int32_t)gen_below(g, x->type.rank);
  vt_type type = resized(g, x->type, d, x->type.dims[d] * width);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_ALL_GATHER_DIM, d);
  set_rows(g, op, width, ids);
  gen_done(g, op, false, true);
  return true;
}

bool gen_all_to_all(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids);
  int32_t split;
  vt_value *x = divisible(g, row, width, &split);
  if (!x) return false;
  int32_t join = (int32_t)gen_below(g, x->type.rank);
  vt_type type = resized(g, x->type, split, x->type.dims[split] / width);
  type = resized(g, type, join, type.dims[join] * width);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, split);
  vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, join);
  vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, width);
  set_rows(g, op, width, ids);
  gen_done(g, op, false, true);
  return true;
}

// Within rows each device sends to at most one and receives from at most one.
bool gen_permute(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids), pairs[2 * MOST_DEVICES], count = 0;
  int64_t devices = vt_mesh_size(g->mesh), shift = gen_below(g, width);
  int64_t order[MOST_DEVICES];
  bool ring = gen_chance(g, 60);
  for (int64_t i = 0; i < width; i++) order[i] = (i + shift) % width;
  if (!ring) gen_shuffle(g, order, width);
  bool sends[MOST_DEVICES];
  for (int64_t i = 0; i < width; i++) sends[i] = gen_chance(g, 85);
  for (int64_t first = 0; first < devices; first += width)
    for (int64_t i = 0; i < width; i++) {
      if (!sends[i]) continue;
      pairs[2 * count] = ids[first + i];
      pairs[2 * count++ + 1] = ids[first + order[i]];
    }
  if (!count) return false;
  vt_value *x = gen_any(g, row->dtypes, 0);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &x->type, 0);
  set_literal(g, op, VT_ATTR_SOURCE_TARGET_PAIRS, count, 2, pairs);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_TYPE, 1);
  gen_done(g, op, false, true);
  return true;
}

bool gen_collective_broadcast(gen *g, const gen_row *row) {
  if (!ready(g)) return false;
  int64_t ids[MOST_DEVICES], width = choose_rows(g, ids);
  vt_value *x = gen_any(g, row->dtypes, 0);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &x->type, 0);
  set_rows(g, op, width, ids);
  gen_done(g, op, false, true);
  return true;
}

// The number of a device means something where all axes are manual.
bool gen_device_number(gen *g, const gen_row *row) {
  if (!g->mesh || g->manual_axes != all_axes(g->mesh)) return false;
  vt_type type = {VT_U32, 0, NULL};
  gen_done(g, gen_op(g, row->code, 0, NULL, 1, &type, 0), false, false);
  return true;
}

// Of a whole axis, its major or its minor part; the other part may cut another dimension.
static void split_axis(gen *g, vt_sharding *s, vt_type type, bool even, int32_t d) {
  vt_dim_sharding *dims = (vt_dim_sharding *)(uintptr_t)s->dims;
  vt_axis_ref *axes = (vt_axis_ref *)(uintptr_t)dims[d].axes;
  vt_axis_ref *axis = &axes[dims[d].axis_count - 1];
  int64_t factor = 2;
  while (axis->size % factor && factor < axis->size) factor++;
  if (factor >= axis->size || axis->size < g->mesh->axes[axis->axis].size) return;
  vt_axis_ref major = {axis->axis, 1, factor}, minor = {axis->axis, factor, axis->size / factor};
  bool first = gen_chance(g, 50);
  *axis = first ? major : minor;
  int32_t other = (int32_t)gen_below(g, s->rank);
  vt_axis_ref rest = first ? minor : major;
  if (other == d || dims[other].axis_count || (even && type.dims[other] % rest.size)) return;
  vt_axis_ref *list = VT_NEW(&g->module->arena, vt_axis_ref);
  *list = rest;
  dims[other].axes = list;
  dims[other].axis_count = 1;
}

const vt_sharding *gen_sharding(gen *g, vt_type type, bool even) {
  cut c = {.rank = type.rank};
  for (uint32_t a = 0; a < g->mesh->axis_count && c.rank; a++) {
    int32_t d = (int32_t)gen_below(g, c.rank);
    bool divides = type.dims[d] % (parts(g, &c, d) * g->mesh->axes[a].size) == 0;
    if (gen_chance(g, g->sharded ? 70 : 50) && (divides || !even)) cut_by(g, &c, a, d);
  }
  vt_sharding *s = (vt_sharding *)(uintptr_t)sharding_of(g, &c);
  vt_dim_sharding *dims = (vt_dim_sharding *)(uintptr_t)s->dims;
  for (int32_t d = 0; d < s->rank && g->sharded; d++) {
    if (dims[d].axis_count && gen_chance(g, 15)) split_axis(g, s, type, even, d);
    if (gen_chance(g, 10)) dims[d].closed = false;
  }
  return s;
}

// Whether sums of terms are exact, or the bound of the sum that they are left out of covers them.
static bool may_stay_unreduced(const vt_value *x) {
  bool sums = x->op && (x->op->code == VT_OP_DOT_GENERAL || x->op->code == VT_OP_REDUCE);
  return vt_dtype_is_integer(x->type.dtype) || (sums && vt_dtype_is_float(x->type.dtype));
}

static bool uses_axis(const vt_sharding *s, uint32_t axis) {
  for (int32_t d = 0; d < s->rank; d++)
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++)
      if (s->dims[d].axes[i].axis == axis) return true;
  return false;
}

// Terms along axes that cut nothing, whatever the value is a sum over.
static const vt_sharding *leave_unreduced(gen *g, const vt_sharding *s) {
  vt_sharding *out = VT_NEW(&g->module->arena, vt_sharding);
  vt_axis_ref *refs = VT_NEW_ARRAY(&g->module->arena, vt_axis_ref, g->mesh->axis_count);
  vt_dim_sharding *dims = (vt_dim_sharding *)(uintptr_t)s->dims;
  *out = *s;
  for (uint32_t a = 0; a < g->mesh->axis_count; a++)
    if (!uses_axis(s, a) && g->mesh->axes[a].size > 1 && gen_chance(g, 70))
      refs[out->unreduced_count++] = (vt_axis_ref){a, 1, g->mesh->axes[a].size};
  for (int32_t d = 0; d < s->rank && out->unreduced_count; d++) dims[d].closed = true;
  out->unreduced = refs;
  return out;
}

// The placement of an array is not part of its value.
bool gen_mark(gen *g, const gen_row *row) {
  if (!g->mesh || g->manual_axes) return false;
  vt_value *x = gen_any(g, row->dtypes, 0);
  const vt_sharding **list = VT_NEW(&g->module->arena, const vt_sharding *);
  *list = gen_sharding(g, x->type, !g->sharded);
  if (g->sharded && may_stay_unreduced(x) && gen_chance(g, 25)) *list = leave_unreduced(g, *list);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &x->type, 0);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
  gen_done(g, op, false, true);
  return true;
}
