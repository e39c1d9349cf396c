// SPDX-License-Identifier: Apache-2.0
// lower_crossings.c - GSPMD's manual computations: what lies between SPMDFullToShardShape and
// SPMDShardToFullShape becomes sdy.manual_computation.
//
// A value's level is how often a computation on the way to it crossed from whole arrays to those of
// one device or back: whole at even levels, of one device at odd ones. All ops of an odd level are
// one computation. Ops are put in the order of their levels, which keeps what they depend on before
// them. Whole values that a computation uses without a crossing (scalars, constants) are
// replicated. What an earlier computation has made of one device's arrays goes to a later one as it
// is: an array with one more dimension, of the devices.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"

struct vt_crossing {
  const vt_raw_op *raw;
  const vt_sharding *sharding; // of the whole array
  uint64_t axes;               // manual inside and not outside; to_local only
  bool to_local;
};

static vt_status refuse(vt_lower *lo, const vt_raw_op *raw, const char *why) {
  return vt_lower_error(lo, raw, VT_UNIMPLEMENTED,
                        "this form of a manual computation is not supported: %s", why);
}

// ---- while ops are lowered ----------------------------------------------------------------------

// The sharding that a custom call @Sharding, or a parameter of the function, gives to a value.
static const vt_sharding *stated(const vt_value *value) {
  const vt_attr *attr = value->op ? vt_op_attr(value->op, VT_ATTR_SHARDING) : NULL;
  if (attr && value->op->code == VT_OP_SHARDING_CONSTRAINT) return attr->shardings[0];
  bool known = !value->op && value->func->param_info;
  return known ? value->func->param_info[value->index].sharding : NULL;
}

static vt_status text_tiles(vt_lower *lo, const vt_raw_op *op, int32_t rank,
                            const vt_sharding **out_sharding, uint64_t *out_manual) {
  const vt_raw_attr *text = op ? vt_raw_find(op, "mhlo.sharding") : NULL;
  if (!text || text->kind != VT_RAW_STRING) return VT_OK;
  VT_TRY(vt_lower_manual_tiles(lo, op, text->string, rank, out_manual));
  return out_sharding ? vt_lower_tiles(lo, op, text->string, rank, out_sharding) : VT_OK;
}

vt_status vt_lower_crossing(vt_lower *lo, vt_raw_op *raw, bool to_local) {
  vt_value_list operands = {0};
  vt_type_list types = {0};
  if (raw->operand_count != 1 || raw->result_count != 1)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT, "one operand and one result were expected");
  VT_TRY(vt_lower_operands(lo, raw, &operands));
  VT_TRY(vt_lower_types(lo, raw, raw->results[0].type, &types));
  if (operands.size != 1 || types.size != 1) return refuse(lo, raw, "several values in one");
  vt_crossing *crossing = VT_NEW(lo->arena, vt_crossing);
  *crossing = (vt_crossing){.raw = raw, .to_local = to_local};
  uint64_t inside = 0, outside = 0;
  int32_t rank = types.data[0].rank;
  if (to_local) {
    VT_TRY(text_tiles(lo, raw, rank, NULL, &inside));
    VT_TRY(text_tiles(lo, raw->operands[0]->op, rank, &crossing->sharding, &outside));
    if (!crossing->sharding) crossing->sharding = stated(operands.data[0]);
    crossing->axes = inside ? inside & ~outside : UINT64_MAX;
    if (!crossing->axes) return refuse(lo, raw, "no axis becomes manual");
  } else {
    VT_TRY(text_tiles(lo, raw, rank, &crossing->sharding, &outside));
  }
  if (!crossing->sharding) return refuse(lo, raw, "the whole array has no sharding");
  vt_value *value = vt_build(lo->func, NULL, VT_OP_CUSTOM_CALL, vt_lower_loc(lo, raw->loc),
                             types.data[0], 1, operands.data);
  value->op->note = crossing;
  lo->crossings = true;
  vt_lower_set_values(lo, &raw->results[0], 1, &value);
  return VT_OK;
}

// ---- afterwards ---------------------------------------------------------------------------------

typedef struct side { // an operand or result of a computation
  vt_value *whole, *local;
  const vt_sharding *sharding;
} side;
typedef VT_ARRAY(side) side_list;

typedef struct outline {
  vt_lower *lo;
  vt_func *func;
  const vt_mesh *mesh;
  uint32_t *levels; // by the ids of values
  vt_value **now;   // what a crossing's result has become
  side *carried;    // of a computation's value that a later one uses; `whole` once it is returned
  uint32_t top;     // the highest level
  const vt_raw_op *last; // crossing that was met, for errors
} outline;

static const vt_crossing *crossing_of(const vt_op *op) {
  return op->code == VT_OP_CUSTOM_CALL ? op->note : NULL;
}

static bool is_local_of_whole(const vt_value *value) {
  const vt_crossing *crossing = value->op ? crossing_of(value->op) : NULL;
  return crossing && crossing->to_local;
}

static uint32_t operand_level(const outline *o, const vt_op *op) {
  uint32_t level = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    uint32_t own = o->levels[op->operands[i]->id];
    if (own > level) level = own;
  }
  return level;
}

// The level at which an op runs: that of its operands, also for a crossing.
static vt_status find_levels(outline *o) {
  for (const vt_op *op = o->func->first; op; op = op->next) {
    const vt_crossing *crossing = crossing_of(op);
    uint32_t level = operand_level(o, op);
    if (crossing) o->last = crossing->raw;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      uint32_t own = o->levels[op->operands[i]->id];
      if (own % 2 == 0 || own == level) continue;
      if (level % 2 == 0)
        return refuse(o->lo, o->last, "an array of one device is used outside of it");
      o->carried[op->operands[i]->id].local = op->operands[i];
    }
    if (crossing && crossing->to_local == (level % 2 == 1))
      return refuse(o->lo, crossing->raw, "its operand is not on the side that it comes from");
    for (uint32_t i = 0; i < op->result_count; i++)
      o->levels[op->results[i].id] = level + (crossing != NULL);
    if (level > o->top) o->top = level;
  }
  for (uint32_t i = 0; i < o->func->return_count; i++)
    if (o->levels[o->func->returns[i]->id] % 2)
      return refuse(o->lo, o->last, "the function returns an array of one device");
  return VT_OK;
}

// Over the mesh of all computations; what is replicated may have been written before there was one.
static vt_status over_mesh(const outline *o, const vt_crossing *crossing,
                           const vt_sharding **sharding) {
  if ((*sharding)->mesh == o->mesh) return VT_OK;
  if ((*sharding)->mesh->axis_count || (*sharding)->mesh->device_count)
    return refuse(o->lo, crossing->raw, "its devices are not in the order of the others'");
  vt_sharding *copy = VT_NEW(&o->lo->module->arena, vt_sharding);
  *copy = **sharding;
  copy->mesh = o->mesh;
  *sharding = copy;
  return VT_OK;
}

static const vt_sharding *replicated(const outline *o, int32_t rank) {
  vt_arena *arena = &o->lo->module->arena;
  vt_sharding *sharding = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, (size_t)rank + 1);
  for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){.closed = true, .priority = -1};
  *sharding = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = o->mesh, .rank = rank, .dims = dims};
  return sharding;
}

// An array of one device as one of all that the axes tell apart, along a new first dimension.
static vt_type carried_type(const outline *o, vt_type local, int64_t devices) {
  int64_t dims[VT_MAX_RANK + 1] = {devices};
  memcpy(dims + 1, local.dims, (size_t)local.rank * sizeof *dims);
  return vt_type_make(&o->lo->module->arena, local.dtype, local.rank + 1, dims);
}

static bool is_manual(uint64_t axes, uint32_t axis) {
  return axis >= 64 || axes >> axis & 1;
}

// Returns from the computation that makes it what a later one uses.
static vt_status carry_out(const outline *o, vt_func *region, vt_value *local, uint64_t axes,
                           vt_type *out_whole) {
  side *carried = &o->carried[local->id];
  int64_t devices = 1;
  if (!axes || local->type.rank == VT_MAX_RANK || local->type.dtype == VT_TOKEN)
    return refuse(o->lo, o->last, "a later computation uses a value that has no place between");
  vt_sharding *sharding = VT_NEW(&o->lo->module->arena, vt_sharding);
  *sharding = *replicated(o, local->type.rank + 1);
  vt_axis_ref *refs = VT_NEW_ARRAY(&o->lo->module->arena, vt_axis_ref, o->mesh->axis_count + 1);
  vt_dim_sharding *dims =
      VT_NEW_ARRAY(&o->lo->module->arena, vt_dim_sharding, (size_t)sharding->rank);
  memcpy(dims, sharding->dims, (size_t)sharding->rank * sizeof *dims);
  for (uint32_t i = 0; i < o->mesh->axis_count; i++) {
    if (!is_manual(axes, i)) continue;
    refs[dims->axis_count++] = (vt_axis_ref){i, 1, o->mesh->axes[i].size};
    devices *= o->mesh->axes[i].size;
  }
  dims->axes = refs;
  sharding->dims = dims;
  *out_whole = carried_type(o, local->type, devices);
  carried->sharding = sharding;
  carried->local = vt_build(region, NULL, VT_OP_RESHAPE, region->last->loc,
                            carried_type(o, local->type, 1), 1, &local);
  return VT_OK;
}

// What the ops of a computation use from outside becomes its parameters.
static vt_status take_operands(const outline *o, const vt_op *ops, vt_func *region,
                               side_list *sides, uint64_t *out_axes) {
  vt_map params = {0};
  vt_status st = VT_OK;
  for (const vt_op *op = ops; op && !st; op = op->next)
    for (uint32_t i = 0; i < op->operand_count && !st; i++) {
      vt_value *value = op->operands[i];
      const vt_crossing *crossing = is_local_of_whole(value) ? crossing_of(value->op) : NULL;
      const side *carried = crossing ? NULL : &o->carried[value->id];
      bool comes = carried && carried->whole;
      if (o->levels[value->id] % 2 && !crossing && !comes) continue;
      void **place = vt_map_at_ptr(&params, value);
      if (!*place) {
        vt_type type = comes ? carried->local->type : value->type;
        side in = {value, *place = vt_func_add_param(region, type), NULL};
        if (comes) {
          in.whole = carried->whole;
          in.sharding = carried->sharding;
          *place = vt_build(region, NULL, VT_OP_RESHAPE, op->loc, value->type, 1, &in.local);
        } else if (crossing) {
          in.whole = value->op->operands[0]; // of a lower level, so it is what it has become
          in.sharding = crossing->sharding;
          st = over_mesh(o, crossing, &in.sharding);
          if (!st && *out_axes && *out_axes != crossing->axes)
            st = refuse(o->lo, crossing->raw, "other axes than those of the arrays it meets");
          *out_axes = crossing->axes;
        } else {
          in.whole = o->now[value->id];
          in.sharding = replicated(o, value->type.rank);
        }
        vt_array_push_in(o->lo->arena, sides, in);
      }
      op->operands[i] = *place;
    }
  vt_map_free(&params);
  return st;
}

// Moves the ops of a list, without the crossings back at its end, to the region.
static void move_ops(vt_op *ops, vt_func *region, vt_func *func) {
  for (vt_op *op = ops, *next; op; op = next) {
    next = op->next;
    bool back = crossing_of(op) != NULL;
    op->prev = op->next = NULL;
    op->func = back ? func : region;
    if (back) continue;
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].func = region;
    vt_op_append(region, op);
  }
}

static vt_attr sharding_list(const outline *o, vt_attr_key key, const side_list *sides) {
  const vt_sharding **list =
      VT_NEW_ARRAY(&o->lo->module->arena, const vt_sharding *, sides->size + 1);
  for (size_t i = 0; i < sides->size; i++) list[i] = sides->data[i].sharding;
  return (vt_attr){.key = key, .count = (uint32_t)sides->size, .shardings = list};
}

static vt_attr axis_names(const outline *o, uint64_t axes) {
  vt_attr attr = {.key = VT_ATTR_MANUAL_AXES};
  vt_string *names = VT_NEW_ARRAY(&o->lo->module->arena, vt_string, o->mesh->axis_count + 1);
  for (uint32_t i = 0; i < o->mesh->axis_count; i++)
    if (is_manual(axes, i))
      names[attr.count++] = (vt_string){o->mesh->axes[i].name, strlen(o->mesh->axes[i].name)};
  attr.strings = names;
  return attr;
}

// Makes the ops of one odd level, a list of its own, a computation at the end of the function.
static vt_status build(outline *o, vt_op *ops) {
  vt_func *region = vt_func_create(o->lo->module, "");
  side_list in = {0}, out = {0};
  vt_value_list operands = {0}, returns = {0};
  vt_type_list types = {0};
  uint64_t axes = 0;
  for (const vt_op *op = ops; op; op = op->next) {
    const vt_crossing *back = crossing_of(op);
    if (!back) continue;
    side result = {&op->results[0], NULL, back->sharding};
    VT_TRY(over_mesh(o, back, &result.sharding));
    vt_array_push_in(o->lo->arena, &out, result);
    vt_array_push_in(o->lo->arena, &types, op->results[0].type);
  }
  VT_TRY(take_operands(o, ops, region, &in, &axes));
  for (size_t i = 0; i < in.size; i++) vt_array_push_in(o->lo->arena, &operands, in.data[i].whole);
  for (size_t i = 0; i < out.size; i++)
    vt_array_push_in(o->lo->arena, &returns, out.data[i].whole->op->operands[0]);
  const vt_loc *loc = ops->loc;
  vt_value_list kept = {0};
  for (const vt_op *op = ops; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count && !crossing_of(op); i++)
      if (o->carried[op->results[i].id].local)
        vt_array_push_in(o->lo->arena, &kept, (vt_value *)&op->results[i]);
  move_ops(ops, region, o->func);
  size_t crossed = out.size;
  for (size_t i = 0; i < kept.size; i++) {
    vt_type whole;
    side *carried = &o->carried[kept.data[i]->id];
    VT_TRY(carry_out(o, region, kept.data[i], axes, &whole));
    vt_array_push_in(o->lo->arena, &out, *carried);
    vt_array_push_in(o->lo->arena, &types, whole);
    vt_array_push_in(o->lo->arena, &returns, carried->local);
  }
  vt_func_set_returns(region, (uint32_t)returns.size, returns.data);
  vt_op *manual = vt_op_create(o->func, VT_OP_MANUAL_COMPUTATION, loc, (uint32_t)operands.size,
                               operands.data, (uint32_t)types.size, types.data, 1);
  manual->regions[0] = region;
  vt_op_set_attr(manual, sharding_list(o, VT_ATTR_IN_SHARDINGS, &in));
  vt_op_set_attr(manual, sharding_list(o, VT_ATTR_OUT_SHARDINGS, &out));
  vt_op_set_attr(manual, axis_names(o, axes));
  vt_op_append(o->func, manual);
  for (size_t i = 0; i < out.size; i++)
    if (i < crossed)
      o->now[out.data[i].whole->id] = &manual->results[i];
    else
      o->carried[kept.data[i - crossed]->id].whole = &manual->results[i];
  return VT_OK;
}

// Appends the ops of an even level, without the crossings.
static void keep(outline *o, vt_op *ops) {
  for (vt_op *op = ops, *next; op; op = next) {
    next = op->next;
    op->prev = op->next = NULL;
    for (uint32_t i = 0; i < op->operand_count; i++) op->operands[i] = o->now[op->operands[i]->id];
    if (!crossing_of(op)) vt_op_append(o->func, op);
  }
}

static vt_status outline_ops(outline *o) {
  vt_func *func = o->func;
  vt_arena *arena = o->lo->arena;
  vt_op **first = VT_NEW_ARRAY(arena, vt_op *, (size_t)o->top + 1);
  vt_op **last = VT_NEW_ARRAY(arena, vt_op *, (size_t)o->top + 1);
  for (vt_op *op = func->first, *next; op; op = next) {
    uint32_t level = operand_level(o, op);
    next = op->next;
    op->next = NULL;
    op->prev = last[level];
    *(last[level] ? &last[level]->next : &first[level]) = op;
    last[level] = op;
  }
  func->first = func->last = NULL;
  func->numbered = false;
  for (uint32_t level = 0; level <= o->top; level++) {
    if (level % 2 && first[level])
      VT_TRY(build(o, first[level]));
    else
      keep(o, first[level]);
  }
  vt_value **returns = VT_NEW_ARRAY(arena, vt_value *, func->return_count + 1);
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = o->now[func->returns[i]->id];
  vt_func_set_returns(func, func->return_count, returns);
  return VT_OK;
}

vt_status vt_lower_crossings(vt_lower *lo, vt_func *func) {
  bool any = false;
  for (const vt_op *op = func->first; op; op = op->next) {
    any = any || crossing_of(op);
    for (uint32_t i = 0; i < op->region_count; i++) VT_TRY(vt_lower_crossings(lo, op->regions[i]));
  }
  if (!any) return VT_OK;
  vt_func_number(func);
  size_t count = (size_t)func->value_count + 1;
  outline o = {.lo = lo,
               .func = func,
               .mesh = lo->tile_mesh ? lo->tile_mesh : vt_lower_tile_mesh(lo),
               .levels = VT_NEW_ARRAY(lo->arena, uint32_t, count),
               .now = VT_NEW_ARRAY(lo->arena, vt_value *, count),
               .carried = VT_NEW_ARRAY(lo->arena, side, count)};
  for (uint32_t i = 0; i < func->param_count; i++) o.now[func->params[i]->id] = func->params[i];
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++) o.now[op->results[i].id] = &op->results[i];
  VT_TRY(find_levels(&o));
  return outline_ops(&o);
}
