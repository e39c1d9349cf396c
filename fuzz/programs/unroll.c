// SPDX-License-Identifier: Apache-2.0
// unroll.c - see unroll.h.
#include "unroll.h"

#include <math.h>
#include <string.h>

#include "ir/number.h"
#include "ir/sharding.h"
#include "spmd/partials/varying.h"

enum { MOST_LANES = 64 };

typedef struct unroller {
  vt_module *module;
  int devices;
  vt_status st; // the first error
} unroller;

// A function of the old module being copied into one of the new: once for each lane. Inside manual
// computations a lane is a device; outside there is one lane.
typedef struct lanes {
  unroller *u;
  vt_func *into;
  int count;
  int devices[MOST_LANES];
  vt_map values[MOST_LANES]; // old value -> new
} lanes;

static void refuse(unroller *u, const char *what) {
  if (!u->st) u->st = vt_error(VT_INVALID_ARGUMENT, "cannot be written out: %s", what);
}

static vt_value *value_of(const lanes *l, int lane, const vt_value *old) {
  return vt_map_find_ptr(&l->values[lane], old);
}
static void set_value(lanes *l, int lane, const vt_value *old, vt_value *value) {
  *vt_map_at_ptr(&l->values[lane], old) = value;
}
static void lanes_free(lanes *l) {
  for (int i = 0; i < l->count; i++) vt_map_free(&l->values[i]);
}
// The same lanes in another function.
static void lanes_in(const lanes *l, vt_func *into, lanes *out) {
  *out = (lanes){.u = l->u, .into = into, .count = l->count};
  memcpy(out->devices, l->devices, sizeof out->devices);
}

// ---- pieces of arrays

static vt_value *cut(vt_func *into, vt_value *whole, const int64_t *starts, const int64_t *sizes) {
  vt_arena *arena = &into->module->arena;
  int32_t rank = whole->type.rank;
  int64_t ends[VT_MAX_RANK], ones[VT_MAX_RANK];
  for (int32_t d = 0; d < rank; d++) ends[d] = starts[d] + sizes[d], ones[d] = 1;
  vt_value *part = vt_build(into, NULL, VT_OP_SLICE, &vt_loc_unknown,
                            vt_type_make(arena, whole->type.dtype, rank, sizes), 1, &whole);
  vt_op_set_ints(part->op, VT_ATTR_START_INDICES, (uint32_t)rank, starts);
  vt_op_set_ints(part->op, VT_ATTR_LIMIT_INDICES, (uint32_t)rank, ends);
  vt_op_set_ints(part->op, VT_ATTR_STRIDES, (uint32_t)rank, ones);
  return part;
}

static vt_value *part_along(vt_func *into, vt_value *whole, int64_t d, int64_t start,
                            int64_t size) {
  int64_t starts[VT_MAX_RANK] = {0}, sizes[VT_MAX_RANK];
  memcpy(sizes, whole->type.dims, sizeof *sizes * (size_t)whole->type.rank);
  starts[d] = start;
  sizes[d] = size;
  return cut(into, whole, starts, sizes);
}

static vt_value *join(vt_func *into, vt_value *const *parts, uint32_t count, int64_t d) {
  int64_t dims[VT_MAX_RANK];
  vt_type type = parts[0]->type;
  memcpy(dims, type.dims, sizeof *dims * (size_t)type.rank);
  for (uint32_t i = 1; i < count; i++) dims[d] += parts[i]->type.dims[d];
  if (count == 1) return parts[0];
  vt_value *whole =
      vt_build(into, NULL, VT_OP_CONCATENATE, &vt_loc_unknown,
               vt_type_make(&into->module->arena, type.dtype, type.rank, dims), count, parts);
  vt_op_set_i64(whole->op, VT_ATTR_DIMENSION, d);
  return whole;
}

static vt_value *splat(vt_func *into, vt_type type, double x) {
  vt_literal *literal = VT_NEW(&into->module->arena, vt_literal);
  void *data = vt_arena_push(&into->module->arena, 16);
  memset(data, 0, 16);
  vt_number_store(type.dtype, data, 0, x);
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(into, NULL, &vt_loc_unknown, literal);
}

// ---- positions of tiles

// The coordinate of a device along an axis or sub-axis.
static int64_t along(const vt_mesh *mesh, int device, vt_axis_ref ref) {
  int64_t place = device, below = 1;
  for (uint32_t i = 0; i < mesh->device_count; i++)
    if (mesh->device_ids[i] == device) place = i;
  for (uint32_t a = mesh->axis_count - 1; a > ref.axis; a--) below *= mesh->axes[a].size;
  int64_t at = place / below % mesh->axes[ref.axis].size;
  return at / (mesh->axes[ref.axis].size / (ref.pre_size * ref.size)) % ref.size;
}

static bool named(const vt_op *op, const vt_mesh *mesh, uint32_t axis) {
  const vt_attr *names = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  for (uint32_t i = 0; i < names->count; i++)
    if (!strcmp(names->strings[i].data, mesh->axes[axis].name)) return true;
  return false;
}

// The device's tile: its number along each dimension, and the count; without an op all axes shard.
static void tile_of(const vt_op *op, const vt_sharding *s, int device, int32_t rank, int64_t *index,
                    int64_t *counts) {
  for (int32_t d = 0; d < rank; d++) {
    index[d] = 0;
    counts[d] = 1;
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++) {
      vt_axis_ref ref = s->dims[d].axes[i];
      if (op && !named(op, s->mesh, ref.axis)) continue;
      index[d] = index[d] * ref.size + along(s->mesh, device, ref);
      counts[d] *= ref.size;
    }
  }
}

void program_tile(const vt_sharding *sharding, int device, int64_t *out_index,
                  int64_t *out_counts) {
  tile_of(NULL, sharding, device, sharding->rank, out_index, out_counts);
}

static vt_value *take_tile(vt_func *into, const vt_op *op, const vt_sharding *s, vt_value *whole,
                           vt_type local, int device) {
  int64_t index[VT_MAX_RANK], counts[VT_MAX_RANK];
  tile_of(op, s, device, local.rank, index, counts);
  for (int32_t d = 0; d < local.rank; d++) index[d] *= local.dims[d];
  return vt_type_same_dims(whole->type, local) ? whole : cut(into, whole, index, local.dims);
}

// Joins tiles along dimension d and later ones; `index` selects those before it.
typedef struct puzzle {
  vt_func *into;
  const vt_op *op;
  const vt_sharding *s;
  int32_t rank;
  int count;
  const int *devices; // the first one that holds a tile provides it
  vt_value *const *tiles;
} puzzle;

static vt_value *put_together(const puzzle *p, int32_t d, int64_t *wanted) {
  int64_t index[VT_MAX_RANK] = {0}, counts[VT_MAX_RANK];
  vt_value *parts[MOST_LANES];
  if (d == p->rank) {
    for (int i = 0; i < p->count; i++) {
      tile_of(p->op, p->s, p->devices[i], p->rank, index, counts);
      if (!p->rank || !memcmp(index, wanted, sizeof *index * (size_t)p->rank)) return p->tiles[i];
    }
    return NULL;
  }
  tile_of(p->op, p->s, p->devices[0], p->rank, index, counts);
  for (wanted[d] = 0; wanted[d] < counts[d]; wanted[d]++)
    if (!(parts[wanted[d]] = put_together(p, d + 1, wanted))) return NULL;
  return join(p->into, parts, (uint32_t)counts[d], d);
}

static const vt_mesh *mesh_of(const vt_op *op) {
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS),
                *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS);
  return in->count ? in->shardings[0]->mesh : out->count ? out->shardings[0]->mesh : NULL;
}

// The devices whose tiles make up the array of `device`, in mesh order: all, or inside another
// computation those that agree with it in all axes that are not manual here.
static int makers_of(const vt_op *op, const vt_mesh *mesh, bool inside, int device, int devices,
                     int *out) {
  int count = 0;
  for (int place = 0; place < devices; place++) {
    int d = mesh->device_count ? (int)mesh->device_ids[place] : place;
    bool same = true;
    for (uint32_t a = 0; a < mesh->axis_count && inside; a++) {
      vt_axis_ref axis = {a, 1, mesh->axes[a].size};
      same = same && (named(op, mesh, a) || along(mesh, d, axis) == along(mesh, device, axis));
    }
    if (same) out[count++] = d;
  }
  return count;
}

// ---- ops

static void walk(lanes *l, const vt_func *func);

static void walk_manual(lanes *l, const vt_op *op) {
  unroller *u = l->u;
  const vt_func *region = op->regions[0];
  const vt_mesh *mesh = mesh_of(op);
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS),
                *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS);
  bool inside = l->count > 1;
  lanes inner = {.u = u, .into = l->into, .count = u->devices};
  if (!mesh || vt_mesh_size(mesh) != u->devices || (inside && l->count != u->devices)) {
    refuse(u, "a mesh of other devices");
    return;
  }
  for (int d = 0; d < u->devices; d++) {
    inner.devices[d] = d;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      vt_value *whole = value_of(l, inside ? d : 0, op->operands[i]);
      bool captured = i >= vt_op_own_operands(op);
      set_value(&inner, d, region->params[i],
                captured
                    ? whole
                    : take_tile(l->into, op, in->shardings[i], whole, region->params[i]->type, d));
    }
  }
  walk(&inner, region);
  for (uint32_t r = 0; r < op->result_count && !u->st; r++)
    for (int lane = 0; lane < l->count; lane++) {
      int devices[MOST_LANES];
      int64_t wanted[VT_MAX_RANK] = {0};
      vt_value *tiles[MOST_LANES];
      int count = makers_of(op, mesh, inside, l->devices[lane], u->devices, devices);
      for (int i = 0; i < count; i++) tiles[i] = value_of(&inner, devices[i], region->returns[r]);
      puzzle p = {l->into, op, out->shardings[r], op->results[r].type.rank, count, devices, tiles};
      vt_value *whole = put_together(&p, 0, wanted);
      if (!whole) refuse(u, "a tile that nobody holds");
      set_value(l, lane, &op->results[r], whole);
    }
  lanes_free(&inner);
}

// The devices in the group of `device`, in order; -1 pads rows.
static int row_of(const vt_op *op, int devices, int device, int *out) {
  const vt_literal *l = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  const int64_t *ids = l->data;
  for (int64_t r = 0; r < l->type.dims[0]; r++) {
    int count = 0;
    bool member = false;
    for (int64_t i = 0; i < l->type.dims[1]; i++) {
      int64_t id = ids[l->splat ? 0 : r * l->type.dims[1] + i];
      if (id < 0 || id >= devices) continue;
      member = member || id == device;
      out[count++] = (int)id;
    }
    if (member) return count;
  }
  return 0;
}

static double neutral(const vt_func *region, vt_dtype dtype) {
  const vt_dtype_info *info = vt_dtype_get(dtype);
  bool is_float = vt_dtype_is_float(dtype), is_signed = info->kind == VT_KIND_SIGNED;
  double top = is_float ? (double)INFINITY : ldexp(is_signed ? 1 : 2, info->bits - 1);
  switch ((int)region->returns[0]->op->code) {
  case VT_OP_ADD:
    return is_float ? -0.0 : 0;
  case VT_OP_MULTIPLY:
    return 1;
  case VT_OP_MAXIMUM:
    return is_float || is_signed ? -top : 0;
  case VT_OP_MINIMUM:
    return top;
  case VT_OP_AND:
    return is_signed ? -1 : top;
  default:
    return 0;
  }
}

static vt_value *neutral_of(vt_func *into, const vt_func *region, vt_dtype dtype) {
  vt_type scalar = {dtype, 0, NULL};
  vt_value *value = splat(into, scalar, neutral(region, dtype));
  int code = (int)region->returns[0]->op->code;
  // The largest integers are not doubles.
  if (vt_dtype_is_integer(dtype) &&
      (code == VT_OP_MINIMUM || code == VT_OP_AND || code == VT_OP_MAXIMUM)) {
    const vt_dtype_info *info = vt_dtype_get(dtype);
    bool is_signed = info->kind == VT_KIND_SIGNED;
    uint64_t ones = info->bits == 64 ? UINT64_MAX : ((uint64_t)1 << info->bits) - 1, bits = 0;
    if (code == VT_OP_AND) bits = is_signed ? UINT64_MAX : ones;
    if (code == VT_OP_MINIMUM) bits = is_signed ? ones >> 1 : ones;
    if (code == VT_OP_MAXIMUM) bits = is_signed ? ~(ones >> 1) : 0;
    memcpy((void *)(uintptr_t)vt_attr_literal(value->op, VT_ATTR_VALUE)->data, &bits, 8);
  }
  if (dtype == VT_PRED && code == VT_OP_AND)
    *(uint8_t *)(uintptr_t)vt_attr_literal(value->op, VT_ATTR_VALUE)->data = 1;
  return value;
}

// The reduction of the row's values of one operand.
static vt_value *reduce_row(lanes *l, const vt_op *op, const vt_value *operand, int count,
                            const int *row) {
  vt_arena *arena = &l->u->module->arena;
  vt_type type = operand->type;
  int64_t dims[VT_MAX_RANK] = {1}, zero = 0;
  vt_value *layers[MOST_LANES];
  if (type.rank == VT_MAX_RANK) {
    refuse(l->u, "an array of this rank");
    return NULL;
  }
  if (type.rank) memcpy(dims + 1, type.dims, sizeof *dims * (size_t)type.rank);
  for (int i = 0; i < count; i++) {
    vt_value *x = value_of(l, row[i], operand);
    layers[i] = vt_build(l->into, NULL, VT_OP_RESHAPE, &vt_loc_unknown,
                         vt_type_make(arena, type.dtype, type.rank + 1, dims), 1, &x);
  }
  vt_value *in[2] = {join(l->into, layers, (uint32_t)count, 0),
                     neutral_of(l->into, op->regions[0], type.dtype)};
  vt_op *reduce = vt_op_create(l->into, VT_OP_REDUCE, &vt_loc_unknown, 2, in, 1, &type, 1);
  reduce->regions[0] = vt_func_clone(l->u->module, op->regions[0]);
  vt_op_set_ints(reduce, VT_ATTR_DIMENSIONS, 1, &zero);
  vt_op_append(l->into, reduce);
  return &reduce->results[0];
}

static vt_value *exchange(lanes *l, const vt_op *op, int device, int count, const int *row) {
  vt_value *parts[MOST_LANES];
  int64_t split = 0, place = 0;
  for (int i = 0; i < count; i++) {
    parts[i] = value_of(l, row[i], op->operands[0]);
    if (row[i] == device) place = i;
  }
  if (op->code == VT_OP_ALL_GATHER)
    return join(l->into, parts, (uint32_t)count, vt_attr_i64(op, VT_ATTR_ALL_GATHER_DIM));
  split = vt_attr_i64(op, VT_ATTR_SPLIT_DIMENSION);
  int64_t size = op->operands[0]->type.dims[split] / count;
  for (int i = 0; i < count; i++)
    parts[i] = part_along(l->into, parts[i], split, place * size, size);
  return join(l->into, parts, (uint32_t)count, vt_attr_i64(op, VT_ATTR_CONCAT_DIMENSION));
}

static vt_value *sent_to(lanes *l, const vt_op *op, int device) {
  const vt_literal *pairs = vt_attr_literal(op, VT_ATTR_SOURCE_TARGET_PAIRS);
  const int64_t *ids = pairs->data;
  for (int64_t i = 0; i < pairs->type.dims[0]; i++)
    if (ids[pairs->splat ? 0 : 2 * i + 1] == device)
      return value_of(l, (int)ids[pairs->splat ? 0 : 2 * i], op->operands[0]);
  return splat(l->into, op->results[0].type, 0);
}

static vt_value *reduced(lanes *l, const vt_op *op, uint32_t index, int device, int count,
                         const int *row) {
  vt_value *sum = NULL;
  // One reduction for the whole row: that of its first member.
  if (row[0] == device) {
    sum = reduce_row(l, op, op->operands[index], count, row);
  } else {
    sum = value_of(l, row[0], &op->results[index]);
    if (op->code == VT_OP_REDUCE_SCATTER && sum) sum = sum->op->operands[0];
  }
  if (op->code != VT_OP_REDUCE_SCATTER || !sum) return sum;
  int64_t d = vt_attr_i64(op, VT_ATTR_SCATTER_DIMENSION), place = 0;
  int64_t size = op->results[0].type.dims[d];
  while (row[place] != device) place++;
  return part_along(l->into, sum, d, place * size, size);
}

static void walk_collective(lanes *l, const vt_op *op) {
  // The first member of a row comes before the others and makes what they share.
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < l->count && !l->u->st; d++) {
      int row[MOST_LANES] = {-1};
      bool permute = op->code == VT_OP_COLLECTIVE_PERMUTE;
      int count = permute ? 1 : row_of(op, l->count, d, row);
      if (!count) refuse(l->u, "a device without a group");
      if (!count || (permute ? pass : (row[0] == d) == pass)) continue;
      for (uint32_t i = 0; i < op->result_count; i++) {
        vt_value *value;
        switch ((int)op->code) {
        case VT_OP_ALL_REDUCE:
        case VT_OP_REDUCE_SCATTER:
          value = reduced(l, op, i, d, count, row);
          break;
        case VT_OP_COLLECTIVE_PERMUTE:
          value = sent_to(l, op, d);
          break;
        case VT_OP_COLLECTIVE_BROADCAST:
          value = value_of(l, row[0], op->operands[i]);
          break;
        default:
          value = exchange(l, op, d, count, row);
        }
        set_value(l, d, &op->results[i], value);
      }
    }
}

static bool has_collective(const vt_func *func);
static const vt_func *callee_of(const vt_op *op) {
  return op->code == VT_OP_CALL        ? vt_attr_func(op, VT_ATTR_CALLEE)
         : op->code == VT_OP_COMPOSITE ? vt_attr_func(op, VT_ATTR_DECOMPOSITION)
                                       : NULL;
}
static bool is_collective(const vt_op *op) {
  return vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE ||
         op->code == VT_OP_MANUAL_COMPUTATION;
}
static bool holds_collective(const vt_op *op) {
  const vt_func *callee = callee_of(op);
  bool found = is_collective(op) || (callee && has_collective(callee));
  for (uint32_t r = 0; r < op->region_count; r++) found = found || has_collective(op->regions[r]);
  return found;
}
static bool has_collective(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next)
    if (holds_collective(op)) return true;
  return false;
}

static void walk_call(lanes *l, const vt_op *op) {
  const vt_func *callee = callee_of(op);
  lanes inner;
  lanes_in(l, l->into, &inner);
  for (int i = 0; i < l->count; i++)
    for (uint32_t p = 0; p < callee->param_count; p++)
      set_value(&inner, i, callee->params[p], value_of(l, i, op->operands[p]));
  walk(&inner, callee);
  for (int i = 0; i < l->count && !l->u->st; i++)
    for (uint32_t r = 0; r < op->result_count; r++)
      set_value(l, i, &op->results[r], value_of(&inner, i, callee->returns[r]));
  lanes_free(&inner);
}

// A region for some lanes: its parameters are the first lane's own operands, then the next one's,
// and the captures in the same order.
static vt_func *join_region(lanes *l, const vt_op *op, const vt_func *region, bool one_answer) {
  vt_func *joined = vt_func_create(l->u->module, "");
  vt_value **returns =
      VT_NEW_ARRAY(&l->u->module->arena, vt_value *, (size_t)l->count * region->return_count + 1);
  uint32_t own = region->param_count - op->capture_count, count = 0;
  lanes inner;
  lanes_in(l, joined, &inner);
  for (int i = 0; i < l->count; i++)
    for (uint32_t p = 0; p < own; p++)
      set_value(&inner, i, region->params[p], vt_func_add_param(joined, region->params[p]->type));
  for (int i = 0; i < l->count; i++)
    for (uint32_t p = own; p < region->param_count; p++)
      set_value(&inner, i, region->params[p], vt_func_add_param(joined, region->params[p]->type));
  walk(&inner, region);
  for (int i = 0; i < (one_answer ? 1 : l->count) && !l->u->st; i++)
    for (uint32_t r = 0; r < region->return_count; r++)
      returns[count++] = value_of(&inner, i, region->returns[r]);
  vt_func_set_returns(joined, count, returns);
  lanes_free(&inner);
  return joined;
}

// Loops and branches for all lanes at once; devices decide alike around collectives.
static void walk_joined(lanes *l, const vt_op *op) {
  vt_arena *arena = &l->u->module->arena;
  uint32_t own = vt_op_own_operands(op), lane_count = (uint32_t)l->count, n = 0;
  vt_value **in = VT_NEW_ARRAY(arena, vt_value *, (size_t)lane_count * op->operand_count + 1);
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, (size_t)lane_count * op->result_count + 1);
  bool loop = op->code == VT_OP_WHILE;
  for (int i = 0; i < (loop ? l->count : 1); i++)
    for (uint32_t p = 0; p < own; p++) in[n++] = value_of(l, i, op->operands[p]);
  for (int i = 0; i < l->count; i++)
    for (uint32_t p = own; p < op->operand_count; p++) in[n++] = value_of(l, i, op->operands[p]);
  for (uint32_t i = 0; i < lane_count * op->result_count; i++)
    types[i] = op->results[i % op->result_count].type;
  vt_op *joined = vt_op_create(l->into, op->code, &vt_loc_unknown, n, in,
                               lane_count * op->result_count, types, op->region_count);
  joined->capture_count = lane_count * op->capture_count;
  for (uint32_t r = 0; r < op->region_count; r++)
    joined->regions[r] = join_region(l, op, op->regions[r], loop && r == 0);
  vt_op_append(l->into, joined);
  for (uint32_t i = 0; i < joined->result_count; i++)
    set_value(l, (int)(i / op->result_count), &op->results[i % op->result_count],
              &joined->results[i]);
}

static void copy_op(lanes *l, int lane, const vt_op *op) {
  vt_arena *arena = &l->u->module->arena;
  vt_value **in = VT_NEW_ARRAY(arena, vt_value *, op->operand_count + 1);
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, op->result_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) in[i] = value_of(l, lane, op->operands[i]);
  for (uint32_t i = 0; i < op->result_count; i++) types[i] = op->results[i].type;
  vt_op *copy = vt_op_create(l->into, op->code, &vt_loc_unknown, op->operand_count, in,
                             op->result_count, types, op->region_count);
  copy->capture_count = op->capture_count;
  for (uint32_t a = 0; a < op->attr_count; a++) vt_op_set_attr(copy, op->attrs[a]);
  lanes one = {.u = l->u, .into = l->into, .count = 1, .devices = {l->devices[lane]}};
  for (uint32_t r = 0; r < op->region_count; r++)
    copy->regions[r] = join_region(&one, op, op->regions[r], true);
  vt_op_append(l->into, copy);
  for (uint32_t i = 0; i < op->result_count; i++)
    set_value(l, lane, &op->results[i], &copy->results[i]);
}

static void walk(lanes *l, const vt_func *func) {
  for (const vt_op *op = func->first; op && !l->u->st; op = op->next) {
    bool mark = vt_op_info_get(op->code)->flags & VT_OPF_SHARDY;
    if (op->code == VT_OP_MANUAL_COMPUTATION) {
      walk_manual(l, op);
    } else if (is_collective(op)) {
      walk_collective(l, op);
    } else if (callee_of(op)) {
      walk_call(l, op);
    } else if (l->count > 1 && holds_collective(op)) {
      walk_joined(l, op);
    } else {
      for (int i = 0; i < l->count; i++) {
        if (mark)
          set_value(l, i, &op->results[0], value_of(l, i, op->operands[0]));
        else if (op->code == VT_OP_PARTITION_ID)
          set_value(l, i, &op->results[0], splat(l->into, op->results[0].type, l->devices[i]));
        else
          copy_op(l, i, op);
      }
    }
  }
}

vt_status program_unroll(const vt_module *module, vt_module **out_module) {
  vt_module *m = vt_module_create();
  unroller u = {.module = m, .devices = module->num_partitions};
  const vt_func *main = module->main;
  vt_func *func = vt_func_create(m, "main");
  lanes l = {.u = &u, .into = func, .count = 1};
  *out_module = NULL;
  m->name = module->name;
  m->producer = "";
  m->num_partitions = m->num_replicas = 1;
  if (u.devices > MOST_LANES) refuse(&u, "so many devices");
  for (uint32_t i = 0; i < main->param_count; i++)
    set_value(&l, 0, main->params[i], vt_func_add_param(func, main->params[i]->type));
  if (!u.st) walk(&l, main);
  vt_value **returns = VT_NEW_ARRAY(&m->arena, vt_value *, main->return_count + 1);
  for (uint32_t i = 0; i < main->return_count; i++) returns[i] = value_of(&l, 0, main->returns[i]);
  lanes_free(&l);
  if (u.st) {
    vt_module_destroy(m);
    return u.st;
  }
  vt_func_set_returns(func, main->return_count, returns);
  vt_module_add_func(m, func);
  m->main = func;
  *out_module = m;
  return vt_module_verify(m);
}

static bool func_is_open(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    const vt_func *callee = callee_of(op);
    if (callee && func_is_open(callee)) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (func_is_open(op->regions[r])) return true;
    if (op->code != VT_OP_MANUAL_COMPUTATION) continue;
    vt_axis_set varying[64];
    if (op->result_count > 64) return true;
    vt_varying_axes(op, varying);
    const vt_attr *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS);
    for (uint32_t i = 0; i < op->result_count; i++) {
      for (int32_t d = 0; d < out->shardings[i]->rank; d++)
        for (uint32_t a = 0; a < out->shardings[i]->dims[d].axis_count; a++)
          varying[i] &= ~(1u << out->shardings[i]->dims[d].axes[a].axis);
      if (varying[i]) return true;
    }
  }
  return false;
}

bool program_is_open(const vt_module *module) {
  return func_is_open(module->main);
}
