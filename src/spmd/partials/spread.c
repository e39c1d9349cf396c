// SPDX-License-Identifier: Apache-2.0
// spread.c - from a value to its partials on the devices, and back.
//
// Partials are needed where they leave the program or enter a manual computation; from there the
// value's producers are followed backwards as long as partials of their operands give partials of
// their result:
//  - what is linear (sums, moves, products with a plain value) goes partial by partial;
//  - a contraction or a sum over a dimension that is cut along the axes gives each device the part
//    sum of its own tile, and so does a scatter that adds updates which are cut;
//  - anything else is a plain value, of which each device gets its own tile where the value is cut
//    along the axes, else the first device along them gets all of it; the others get zeros.
// In each case the partials together represent the plain value.
#include <string.h>

#include "base/check.h"
#include "spmd/partials/partial.h"

enum { MAX_DEPTH = 500 }; // of one chain of producers

// ---- sets of axes -------------------------------------------------------------------------------

static int compare_axes(vt_axis_ref a, vt_axis_ref b) {
  if (a.axis != b.axis) return a.axis < b.axis ? -1 : 1;
  if (a.pre_size != b.pre_size) return a.pre_size < b.pre_size ? -1 : 1;
  return (a.size > b.size) - (a.size < b.size);
}

void vt_partial_add(vt_partial *partial, const vt_mesh *mesh, vt_axis_ref axis) {
  if (axis.size == 1 || partial->count == VT_MAX_PARTIAL || vt_partial_has(partial, axis)) return;
  uint32_t at = partial->count++;
  for (; at > 0 && compare_axes(partial->axes[at - 1], axis) > 0; at--)
    partial->axes[at] = partial->axes[at - 1];
  partial->axes[at] = axis;
  partial->mesh = mesh;
}

static int place_of(const vt_partial *partial, vt_axis_ref axis) {
  for (uint32_t i = 0; i < partial->count; i++)
    if (!compare_axes(partial->axes[i], axis)) return (int)i;
  return -1;
}

bool vt_partial_has(const vt_partial *partial, vt_axis_ref axis) {
  return place_of(partial, axis) >= 0;
}

bool vt_partial_equal(const vt_partial *a, const vt_partial *b) {
  if (a->count != b->count || a->meaning != b->meaning) return false;
  for (uint32_t i = 0; i < a->count; i++)
    if (compare_axes(a->axes[i], b->axes[i])) return false;
  return !a->count || vt_mesh_same(a->mesh, b->mesh);
}

int64_t vt_partial_size(const vt_partial *partial) {
  int64_t size = 1;
  for (uint32_t i = 0; i < partial->count; i++) size *= partial->axes[i].size;
  return size;
}

vt_partial vt_partial_of(const vt_sharding *s) {
  vt_partial partial = {0};
  for (uint32_t i = 0; s && i < s->unreduced_count; i++)
    vt_partial_add(&partial, s->mesh, s->unreduced[i]);
  if (s) partial.meaning = (vt_meaning)s->reduction;
  return partial;
}

vt_partial vt_value_partial(const vt_spreader *s, const vt_value *value) {
  const vt_partial *found = vt_map_find_ptr(&s->stands_for, value);
  return found ? *found : (vt_partial){0};
}

static void note_value(vt_spreader *s, const vt_value *value, const vt_partial *partial) {
  vt_partial *copy = VT_NEW(s->arena, vt_partial);
  *copy = *partial;
  *vt_map_at_ptr(&s->stands_for, value) = copy;
}

static void note_spread(vt_spreader *s, const vt_value *plain, const vt_partial *partial,
                        vt_value *value, const vt_sharding *sharding) {
  vt_spread *made = VT_NEW(s->arena, vt_spread);
  *made = (vt_spread){*partial, value, sharding};
  *vt_map_at_ptr(&s->spreads, plain) = made;
}

bool vt_is_cut_along(const vt_sharding *sharding, const vt_partial *partial) {
  for (int32_t d = 0; sharding && d < sharding->rank; d++)
    for (uint32_t i = 0; i < sharding->dims[d].axis_count; i++)
      for (uint32_t k = 0; k < partial->count; k++)
        if (sharding->dims[d].axes[i].axis == partial->axes[k].axis) return true;
  return false;
}

static const vt_sharding *sharding_attr(const vt_op *op, vt_attr_key key, int32_t i) {
  const vt_attr *list = vt_op_attr(op, key);
  return list && (uint32_t)i < list->count ? list->shardings[i] : NULL;
}

static bool is_constraint(const vt_op *op) {
  return op->code == VT_OP_SHARDING_CONSTRAINT || op->code == VT_OP_RESHARD ||
         op->code == VT_OP_DATA_FLOW_EDGE;
}

// The sharding of one array, written for the dimensions of another: dimension from_dims[i] of the
// one corresponds to to_dims[i] of the other.
static const vt_sharding *mirror(const vt_spreader *s, const vt_sharding *from, int32_t rank,
                                 const int64_t *from_dims, const int64_t *to_dims, uint32_t count) {
  vt_sharding *sharding = VT_NEW(s->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(s->arena, vt_dim_sharding, (size_t)rank);
  *sharding =
      (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = from->mesh, .rank = rank, .dims = dims};
  for (uint32_t i = 0; i < count && from_dims[i] < from->rank; i++)
    dims[to_dims[i]] = from->dims[from_dims[i]];
  return sharding;
}

static const vt_sharding *sharding_within(const vt_spreader *s, const vt_value *value, int *left);

static const vt_sharding *sharding_of_broadcast(const vt_spreader *s, const vt_op *op, int *left) {
  const vt_type from = op->operands[0]->type;
  const vt_sharding *given = from.rank ? sharding_within(s, op->operands[0], left) : NULL;
  uint32_t count, kept = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  int64_t from_dims[VT_MAX_RANK], to_dims[VT_MAX_RANK];
  if (!given || given->rank != from.rank) return NULL;
  for (uint32_t i = 0; i < count; i++) {
    if (from.dims[i] != op->results[0].type.dims[dims[i]]) continue;
    from_dims[kept] = i;
    to_dims[kept++] = dims[i];
  }
  return mirror(s, given, op->results[0].type.rank, from_dims, to_dims, kept);
}

// `left`: how many more ops may be visited.
static const vt_sharding *sharding_within(const vt_spreader *s, const vt_value *value, int *left) {
  while ((*left)-- > 0) {
    const vt_op *op = value->op;
    const vt_spread *made = vt_map_find_ptr(&s->spreads, value);
    if (made && made->sharding) return made->sharding;
    if (!op) {
      bool main = value->func == s->module->main && value->func->param_info;
      return main ? value->func->param_info[value->index].sharding : NULL;
    }
    if (is_constraint(op)) return sharding_attr(op, VT_ATTR_SHARDING, 0);
    if (op->code == VT_OP_MANUAL_COMPUTATION)
      return sharding_attr(op, VT_ATTR_OUT_SHARDINGS, value->index);
    if (op->code == VT_OP_BROADCAST_IN_DIM) return sharding_of_broadcast(s, op, left);
    if (!op->operand_count || !(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE)) return NULL;
    for (uint32_t i = op->operand_count - 1; i > 0; i--) {
      if (!vt_type_same_dims(op->operands[i]->type, value->type)) continue;
      const vt_sharding *found = sharding_within(s, op->operands[i], left);
      if (found) return found;
    }
    value = op->operands[0];
  }
  return NULL;
}

// The sharding of a plain value, if the program states it nearby.
static const vt_sharding *sharding_of(const vt_spreader *s, const vt_value *value) {
  int left = MAX_DEPTH;
  return sharding_within(s, value, &left);
}

// ---- building -----------------------------------------------------------------------------------

static vt_value *build(vt_spreader *s, const vt_loc *loc, vt_opcode code, vt_type type,
                       uint32_t count, vt_value *const *operands) {
  return vt_build(s->func, s->before, code, loc, type, count, operands);
}

static const vt_loc *loc_of(const vt_value *value) {
  return value->op ? value->op->loc : &vt_loc_unknown;
}

static vt_type make_type(vt_spreader *s, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_type_make(&s->module->arena, dtype, rank, dims);
}

// [sizes of the partial] + dims.
static vt_type partial_type(vt_spreader *s, const vt_partial *partial, vt_type type) {
  int64_t dims[VT_MAX_RANK + VT_MAX_PARTIAL];
  for (uint32_t i = 0; i < partial->count; i++) dims[i] = partial->axes[i].size;
  for (int32_t d = 0; d < type.rank; d++) dims[(int32_t)partial->count + d] = type.dims[d];
  return make_type(s, type.dtype, (int32_t)partial->count + type.rank, dims);
}

vt_value *vt_build_reshape(vt_spreader *s, vt_value *value, vt_type type) {
  vt_assert(vt_type_elements(value->type) == vt_type_elements(type));
  if (vt_type_equal(value->type, type)) return value;
  return build(s, loc_of(value), VT_OP_RESHAPE, type, 1, &value);
}

static vt_value *broadcast(vt_spreader *s, vt_value *value, vt_type type, const int64_t *places) {
  if (vt_type_equal(value->type, type)) return value;
  vt_value *result = build(s, loc_of(value), VT_OP_BROADCAST_IN_DIM, type, 1, &value);
  vt_op_set_ints(result->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)value->type.rank, places);
  return result;
}

// The plain value once for each partial.
static vt_value *repeat(vt_spreader *s, vt_value *value, const vt_partial *partial) {
  int64_t places[VT_MAX_RANK];
  for (int32_t d = 0; d < value->type.rank; d++) places[d] = (int64_t)partial->count + d;
  return broadcast(s, value, partial_type(s, partial, value->type), places);
}

static vt_value *splat(vt_spreader *s, vt_type type, int64_t number) {
  vt_arena *arena = &s->module->arena;
  vt_literal *literal = VT_NEW(arena, vt_literal);
  unsigned char *bytes = vt_arena_push(arena, 16);
  memset(bytes, 0, 16);
  if (type.dtype == VT_S64)
    memcpy(bytes, &number, sizeof number);
  else if (number)
    memcpy(bytes, &(int32_t){(int32_t)number},
           sizeof(int32_t)); // S32: the only other one used
  *literal = (vt_literal){type, bytes, true};
  return vt_build_constant(s->func, s->before, &vt_loc_unknown, literal);
}

static vt_value *iota(vt_spreader *s, vt_type type, int64_t dim) {
  vt_value *value = build(s, &vt_loc_unknown, VT_OP_IOTA, type, 0, NULL);
  vt_op_set_i64(value->op, VT_ATTR_IOTA_DIMENSION, dim);
  return value;
}

static vt_value *binary(vt_spreader *s, vt_opcode code, vt_value *a, vt_value *b) {
  return build(s, loc_of(a), code, a->type, 2, (vt_value *[]){a, b});
}

static vt_opcode joining_op(vt_meaning meaning, vt_dtype dtype) {
  switch (meaning) {
  case VT_MEANS_MAX:
    return VT_OP_MAXIMUM;
  case VT_MEANS_MIN:
    return VT_OP_MINIMUM;
  default:
    return dtype == VT_PRED ? VT_OP_OR : VT_OP_ADD;
  }
}

// Joins the partials along dimension `dim`, which is removed.
static vt_value *join_dim(vt_spreader *s, vt_value *value, int32_t dim, vt_meaning meaning) {
  int64_t start[VT_MAX_RANK] = {0}, limit[VT_MAX_RANK], stride[VT_MAX_RANK], rest[VT_MAX_RANK];
  vt_type type = value->type;
  int64_t count = meaning == VT_MEANS_FIRST ? 1 : type.dims[dim];
  vt_value *joined = NULL;
  for (int32_t d = 0; d < type.rank; d++) {
    limit[d] = rest[d] = type.dims[d];
    stride[d] = 1;
  }
  rest[dim] = 1;
  for (int64_t i = 0; i < count; i++) {
    start[dim] = i;
    limit[dim] = i + 1;
    vt_value *one =
        build(s, loc_of(value), VT_OP_SLICE, make_type(s, type.dtype, type.rank, rest), 1, &value);
    vt_op_set_ints(one->op, VT_ATTR_START_INDICES, (uint32_t)type.rank, start);
    vt_op_set_ints(one->op, VT_ATTR_LIMIT_INDICES, (uint32_t)type.rank, limit);
    vt_op_set_ints(one->op, VT_ATTR_STRIDES, (uint32_t)type.rank, stride);
    joined = joined ? binary(s, joining_op(meaning, type.dtype), joined, one) : one;
  }
  memmove(rest + dim, rest + dim + 1, sizeof *rest * (size_t)(type.rank - dim - 1));
  return vt_build_reshape(s, joined, make_type(s, type.dtype, type.rank - 1, rest));
}

vt_value *vt_join_value(vt_spreader *s, vt_value *partials, const vt_partial *partial,
                        const vt_sharding *sharding) {
  vt_assert(partial->count >= 1 && partial->count <= VT_MAX_PARTIAL);
  vt_assert(partials->type.rank >= (int32_t)partial->count);
  vt_value *plain = partials;
  for (uint32_t i = 0; i < partial->count; i++) plain = join_dim(s, plain, 0, partial->meaning);
  note_value(s, plain, partial);
  note_spread(s, plain, partial, partials, sharding);
  return plain;
}

// ---- plain values -------------------------------------------------------------------------------

// The position along the axis of a dimension's elements: their index over `*out_divisor`, modulo
// the axis size. False when the array is not sharded along the axis.
static bool axis_of_dim(const vt_sharding *sharding, vt_axis_ref axis, vt_type type,
                        int32_t *out_dim, int64_t *out_divisor) {
  for (int32_t d = 0; sharding && sharding->rank == type.rank && d < type.rank; d++) {
    const vt_dim_sharding *dim = &sharding->dims[d];
    int64_t parts = 1, behind = 1;
    for (uint32_t i = 0; i < dim->axis_count; i++) parts *= dim->axes[i].size;
    for (uint32_t i = dim->axis_count; i-- > 0; behind *= dim->axes[i].size) {
      if (compare_axes(dim->axes[i], axis)) continue;
      *out_dim = d;
      *out_divisor = (type.dims[d] + parts - 1) / parts * behind;
      return *out_divisor > 0;
    }
  }
  return false;
}

// For each element the device along an axis that holds it.
static vt_value *owners(vt_spreader *s, vt_type type, int64_t dim, int64_t divisor, int64_t size) {
  vt_value *owner = binary(s, VT_OP_DIVIDE, iota(s, type, dim), splat(s, type, divisor));
  return binary(s, VT_OP_REMAINDER, owner, splat(s, type, size));
}

// Partials along `partial` of a value that already has partials along `have` (some of these axes,
// its leading dimensions): along the other axes each device gets its tile of `sharding`, or the
// first device gets everything.
static vt_value *place(vt_spreader *s, vt_value *value, vt_type plain, const vt_partial *have,
                       const vt_partial *partial, const vt_sharding *sharding) {
  vt_type type = partial_type(s, partial, plain);
  int64_t places[VT_MAX_RANK];
  for (uint32_t i = 0; i < have->count; i++) places[i] = place_of(partial, have->axes[i]);
  for (int32_t d = 0; d < plain.rank; d++)
    places[(int32_t)have->count + d] = (int64_t)partial->count + d;
  vt_value *all = broadcast(s, value, type, places), *mine = NULL;
  if (partial->meaning != VT_MEANS_SUM) return all;
  bool known = sharding && vt_mesh_same(sharding->mesh, partial->mesh);
  bool wide = vt_type_elements(plain) > INT32_MAX;
  vt_type index = make_type(s, wide ? VT_S64 : VT_S32, type.rank, type.dims);
  vt_type yes = make_type(s, VT_PRED, type.rank, type.dims);
  for (uint32_t i = 0; i < partial->count; i++) {
    int32_t dim;
    int64_t divisor;
    if (vt_partial_has(have, partial->axes[i])) continue;
    vt_value *owner = NULL;
    if (known && axis_of_dim(sharding, partial->axes[i], plain, &dim, &divisor))
      owner = owners(s, index, (int64_t)partial->count + dim, divisor, partial->axes[i].size);
    else
      owner = splat(s, index, 0);
    vt_value *same =
        build(s, loc_of(value), VT_OP_COMPARE, yes, 2, (vt_value *[]){owner, iota(s, index, i)});
    vt_op_set_i64(same->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ);
    vt_op_set_i64(same->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
    mine = mine ? binary(s, VT_OP_AND, mine, same) : same;
  }
  if (!mine) return all;
  return build(s, loc_of(value), VT_OP_SELECT, type, 3,
               (vt_value *[]){mine, all, splat(s, type, 0)});
}

// From partials along some axes to partials along others: axes not in the target are joined.
static vt_value *change_partial(vt_spreader *s, vt_value *value, vt_type plain, vt_partial have,
                                const vt_partial *want) {
  for (uint32_t i = have.count; i-- > 0;) {
    if (vt_partial_has(want, have.axes[i])) continue;
    value = join_dim(s, value, (int32_t)i, have.meaning);
    have.count--;
    memmove(have.axes + i, have.axes + i + 1, sizeof *have.axes * (have.count - i));
  }
  return have.count == want->count ? value : place(s, value, plain, &have, want, NULL);
}

// ---- partial sums -------------------------------------------------------------------------------

// The dimensions of a value that has partials along `have`; those sharded along axes of the partial
// are split into one dimension per axis and the rest.
typedef struct cut {
  vt_partial partial; // `have` and the axes found
  int32_t rank;       // of the split tensor
  int64_t dims[VT_MAX_RANK + VT_MAX_PARTIAL * 2];
  int32_t from[VT_MAX_RANK + VT_MAX_PARTIAL * 2];  // dimension of the plain value, -1 = of `have`
  int32_t place[VT_MAX_RANK + VT_MAX_PARTIAL * 2]; // in the partial, -1 = no axis of it
} cut;

static bool cut_dims(vt_type plain, const vt_partial *have, const vt_partial *want,
                     const vt_sharding *sharding, const bool *summed, cut *out) {
  *out = (cut){.partial = *have};
  out->partial.mesh = want->mesh;
  out->partial.meaning = want->meaning;
  bool known = sharding && sharding->rank == plain.rank && vt_mesh_same(sharding->mesh, want->mesh);
  for (uint32_t i = 0; i < have->count; i++) {
    out->dims[out->rank] = have->axes[i].size;
    out->from[out->rank++] = -1;
  }
  for (int pass = 0; pass < 2;
       pass++) { // the partial must be complete before indices into it are taken
    out->rank = (int32_t)have->count;
    for (int32_t d = 0; d < plain.rank; d++) {
      int64_t rest = plain.dims[d];
      const vt_dim_sharding *dim = known && summed[d] ? &sharding->dims[d] : NULL;
      for (uint32_t i = 0; dim && i < dim->axis_count; i++) {
        vt_axis_ref axis = dim->axes[i];
        bool wanted = vt_partial_has(want, axis) && !vt_partial_has(have, axis);
        if (rest % axis.size || out->rank >= VT_MAX_RANK) return false;
        rest /= axis.size;
        if (wanted) vt_partial_add(&out->partial, want->mesh, axis);
        out->dims[out->rank] = axis.size;
        out->from[out->rank] = d;
        out->place[out->rank++] = wanted ? place_of(&out->partial, axis) : -1;
      }
      if (out->rank >= VT_MAX_RANK) return false;
      out->dims[out->rank] = rest;
      out->from[out->rank] = d;
      out->place[out->rank++] = -1;
    }
  }
  for (uint32_t i = 0; i < have->count; i++) out->place[i] = place_of(&out->partial, have->axes[i]);
  return out->partial.count > 0;
}

static bool is_zero(const vt_value *value) {
  const vt_literal *literal = value->op && value->op->code == VT_OP_CONSTANT
                                  ? vt_attr_literal(value->op, VT_ATTR_VALUE)
                                  : NULL;
  const char *bytes = literal ? literal->data : NULL;
  if (!literal || (!literal->splat && literal->type.rank)) return false;
  for (size_t i = 0; i < vt_dtype_bytes(literal->type.dtype); i++)
    if (bytes[i]) return false;
  return true;
}

// The op's region is the sum of its two parameters.
static bool sums_two(const vt_op *op) {
  const vt_func *f = op->regions[0];
  return !op->capture_count && f->param_count == 2 && f->first && !f->first->next &&
         f->first->code == VT_OP_ADD && f->return_count == 1 &&
         f->returns[0] == &f->first->results[0] && f->first->operands[0] != f->first->operands[1];
}

static bool adds_up(const vt_op *op) {
  return op->code == VT_OP_REDUCE && op->operand_count == 2 && sums_two(op) &&
         is_zero(op->operands[1]);
}

static bool is_listed(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

// Moves the dimensions of the partial's axes to the front, in its order. `places` says which of the
// axes each dimension belongs to, or -1.
static vt_value *partial_first(vt_spreader *s, vt_value *value, const int32_t *places,
                               uint32_t partial_count) {
  int64_t order[VT_MAX_RANK], dims[VT_MAX_RANK];
  int32_t rank = value->type.rank, at = (int32_t)partial_count;
  bool same = true;
  for (int32_t d = 0; d < rank; d++) order[places[d] >= 0 ? places[d] : at++] = d;
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = value->type.dims[order[d]];
    same &= order[d] == d;
  }
  if (same) return value;
  vt_value *moved = build(s, loc_of(value), VT_OP_TRANSPOSE,
                          make_type(s, value->type.dtype, rank, dims), 1, &value);
  vt_op_set_ints(moved->op, VT_ATTR_PERMUTATION, (uint32_t)rank, order);
  return moved;
}

static vt_value *spread_at(vt_spreader *s, vt_value *value, const vt_partial *partial, int depth);

// The axes of a partial along which the value has partials.
static vt_partial common_partial(const vt_spreader *s, const vt_value *value,
                                 const vt_partial *want) {
  vt_partial have = vt_value_partial(s, value),
             both = {.mesh = want->mesh, .meaning = want->meaning};
  if (have.count && (have.meaning != want->meaning || !vt_mesh_same(have.mesh, want->mesh)))
    return both;
  for (uint32_t i = 0; i < have.count; i++)
    if (vt_partial_has(want, have.axes[i])) vt_partial_add(&both, want->mesh, have.axes[i]);
  return both;
}

// A sum over dimensions; NULL when no axis of the partial is among them and the operand has no
// partials.
static vt_value *spread_reduce(vt_spreader *s, vt_op *op, const vt_partial *want, int depth) {
  vt_value *operand = op->operands[0];
  vt_partial have = common_partial(s, operand, want);
  uint32_t removed;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &removed);
  bool summed[VT_MAX_RANK];
  cut c;
  for (int32_t d = 0; d < operand->type.rank; d++) summed[d] = is_listed(dims, removed, d);
  if (!cut_dims(operand->type, &have, want, sharding_of(s, operand), summed, &c)) return NULL;
  vt_value *in = have.count ? spread_at(s, operand, &have, depth) : operand;
  in = vt_build_reshape(s, in, make_type(s, operand->type.dtype, c.rank, c.dims));
  int64_t gone[VT_MAX_RANK], kept[VT_MAX_RANK];
  int32_t places[VT_MAX_RANK], kept_count = 0;
  uint32_t gone_count = 0;
  for (int32_t d = 0; d < c.rank; d++) {
    if (c.place[d] < 0 && summed[c.from[d]]) {
      gone[gone_count++] = d;
      continue;
    }
    places[kept_count] = c.place[d];
    kept[kept_count++] = c.dims[d];
  }
  vt_type type = make_type(s, operand->type.dtype, kept_count, kept);
  vt_op *sum = vt_op_create(s->func, VT_OP_REDUCE, op->loc, 2,
                            (vt_value *[]){in, splat(s, op->operands[1]->type, 0)}, 1, &type, 1);
  sum->regions[0] = vt_func_clone(s->module, op->regions[0]);
  vt_op_set_ints(sum, VT_ATTR_DIMENSIONS, gone_count, gone);
  if (s->before)
    vt_op_insert(s->before, sum);
  else
    vt_op_append(s->func, sum);
  vt_value *first = partial_first(s, &sum->results[0], places, c.partial.count);
  first = vt_build_reshape(s, first, partial_type(s, &c.partial, op->results[0].type));
  return change_partial(s, first, op->results[0].type, c.partial, want);
}

// One side of a contraction, split along its contracting dimensions: the operand and its dimension
// numbers. The axes of the partial become leading batch dimensions.
typedef struct side {
  vt_value *value;
  uint32_t batch_count, contract_count;
  int64_t batch[VT_MAX_RANK], contract[VT_MAX_RANK];
} side;

static side cut_side(vt_spreader *s, vt_value *operand, const cut *c, const int64_t *batch,
                     uint32_t batch_count, const int64_t *contract, uint32_t contract_count) {
  side out = {
      .value = vt_build_reshape(s, operand, make_type(s, operand->type.dtype, c->rank, c->dims))};
  for (uint32_t i = 0; i < c->partial.count; i++)
    for (int32_t d = 0; d < c->rank; d++)
      if (c->place[d] == (int32_t)i) out.batch[out.batch_count++] = d;
  for (uint32_t i = 0; i < batch_count; i++)
    for (int32_t d = 0; d < c->rank; d++)
      if (c->from[d] == batch[i]) out.batch[out.batch_count++] = d;
  for (uint32_t i = 0; i < contract_count; i++)
    for (int32_t d = 0; d < c->rank; d++)
      if (c->from[d] == contract[i] && c->place[d] < 0) out.contract[out.contract_count++] = d;
  return out;
}

static vt_value *spread_dot(vt_spreader *s, vt_op *op, const vt_partial *want) {
  static const vt_attr_key batching[2] = {VT_ATTR_LHS_BATCHING_DIMENSIONS,
                                          VT_ATTR_RHS_BATCHING_DIMENSIONS},
                           contracting[2] = {VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                                             VT_ATTR_RHS_CONTRACTING_DIMENSIONS};
  const int64_t *batch[2], *contract[2];
  uint32_t batch_count, contract_count;
  for (int o = 0; o < 2; o++) {
    batch[o] = vt_attr_ints(op, batching[o], &batch_count);
    contract[o] = vt_attr_ints(op, contracting[o], &contract_count);
  }
  int known = sharding_of(s, op->operands[0]) ? 0 : 1;
  const vt_sharding *given = sharding_of(s, op->operands[known]);
  if (!given || given->rank != op->operands[known]->type.rank) return NULL;
  cut cuts[2];
  for (int o = 0; o < 2; o++) {
    vt_type type = op->operands[o]->type;
    bool summed[VT_MAX_RANK];
    for (int32_t d = 0; d < type.rank; d++) summed[d] = is_listed(contract[o], contract_count, d);
    // If the program shards only one side, that side decides which of them are split.
    const vt_sharding *sharding =
        mirror(s, given, type.rank, contract[known], contract[o], contract_count);
    if (!cut_dims(type, &(vt_partial){.mesh = want->mesh}, want, sharding, summed, &cuts[o]))
      return NULL;
  }
  vt_type result = op->results[0].type, type = partial_type(s, &cuts[0].partial, result);
  vt_op *dot = vt_op_create(s->func, op->code, op->loc, 2, NULL, 1, &type, 0);
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(dot, op->attrs[i]);
  for (int o = 0; o < 2; o++) {
    side one =
        cut_side(s, op->operands[o], &cuts[o], batch[o], batch_count, contract[o], contract_count);
    dot->operands[o] = one.value;
    vt_op_set_ints(dot, batching[o], one.batch_count, one.batch);
    vt_op_set_ints(dot, contracting[o], one.contract_count, one.contract);
  }
  if (s->before)
    vt_op_insert(s->before, dot);
  else
    vt_op_append(s->func, dot);
  return change_partial(s, &dot->results[0], result, cuts[0].partial, want);
}

// ---- scatters that add --------------------------------------------------------------------------

// The dimension of the indices that counts the same updates as dimension `dim` of the updates; -1
// for a dimension of a window.
static int32_t index_dim_of(const int64_t *window, uint32_t window_count, int32_t dim,
                            int64_t vector_dim) {
  int32_t at = 0;
  for (int32_t d = 0; d < dim; d++) at += !is_listed(window, window_count, d);
  if (is_listed(window, window_count, dim)) return -1;
  return at >= vector_dim ? at + 1 : at;
}

// Prepends to each index vector the position along the partial of the device that holds the update.
// NULL when neither updates nor indices are known to be sharded along any of its axes.
static vt_value *owned_indices(vt_spreader *s, const vt_op *op, const vt_partial *partial) {
  vt_value *indices = op->operands[1], *updates = op->operands[2];
  const vt_sharding *of_updates = sharding_of(s, updates), *of_indices = sharding_of(s, indices);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM), divisor, dims[VT_MAX_RANK];
  uint32_t window_count;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &window_count);
  int32_t rank = indices->type.rank + (vector_dim == indices->type.rank), dim;
  for (int32_t d = 0; d < indices->type.rank; d++) dims[d] = indices->type.dims[d];
  if (vector_dim == indices->type.rank) dims[vector_dim] = 1;
  vt_type whole = make_type(s, indices->type.dtype, rank, dims);
  dims[vector_dim] = 1;
  vt_type counted = make_type(s, VT_S32, rank, dims);
  vt_value *columns[VT_MAX_PARTIAL + 1];
  bool found = false;
  for (uint32_t i = 0; i < partial->count; i++) {
    vt_axis_ref axis = partial->axes[i];
    int32_t at = -1;
    if (of_updates && vt_mesh_same(of_updates->mesh, partial->mesh) &&
        axis_of_dim(of_updates, axis, updates->type, &dim, &divisor))
      at = index_dim_of(window, window_count, dim, vector_dim);
    if (at < 0 && of_indices && vt_mesh_same(of_indices->mesh, partial->mesh) &&
        axis_of_dim(of_indices, axis, indices->type, &dim, &divisor) && dim != vector_dim)
      at = dim;
    if (axis.size > INT8_MAX || (at >= 0 && divisor > INT32_MAX)) return NULL;
    columns[i] = at >= 0 ? owners(s, counted, at, divisor, axis.size) : splat(s, counted, 0);
    columns[i] = build(s, op->loc, VT_OP_CONVERT, make_type(s, whole.dtype, rank, dims), 1,
                       (vt_value *[]){columns[i]});
    found |= at >= 0;
  }
  if (!found) return NULL;
  columns[partial->count] = vt_build_reshape(s, indices, whole);
  dims[vector_dim] = whole.dims[vector_dim] + partial->count;
  vt_value *joined = build(s, op->loc, VT_OP_CONCATENATE, make_type(s, whole.dtype, rank, dims),
                           partial->count + 1, columns);
  vt_op_set_i64(joined->op, VT_ATTR_DIMENSION, vector_dim);
  return joined;
}

static void shift_ints(vt_op *op, vt_attr_key key, const vt_partial *partial, bool whole,
                       int64_t add);

// Each device adds the updates that it holds to its own partial.
static vt_value *spread_scatter(vt_spreader *s, vt_op *op, const vt_partial *partial, int depth) {
  vt_value *indices = owned_indices(s, op, partial);
  if (!indices) return NULL;
  vt_value *operands[3] = {spread_at(s, op->operands[0], partial, depth), indices, op->operands[2]};
  vt_type type = partial_type(s, partial, op->results[0].type);
  vt_op *scatter = vt_op_create(s->func, op->code, op->loc, 3, operands, 1, &type, 1);
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(scatter, op->attrs[i]);
  scatter->regions[0] = vt_func_clone(s->module, op->regions[0]);
  shift_ints(scatter, VT_ATTR_INSERTED_WINDOW_DIMS, partial, true, partial->count);
  shift_ints(scatter, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, partial, true, partial->count);
  shift_ints(scatter, VT_ATTR_INPUT_BATCHING_DIMS, partial, false, partial->count);
  vt_op_set_i64(scatter, VT_ATTR_INDICES_ARE_SORTED, 0);
  if (s->before)
    vt_op_insert(s->before, scatter);
  else
    vt_op_append(s->func, scatter);
  return &scatter->results[0];
}

// ---- partial by partial -------------------------------------------------------------------------

// A copy of the op with other operands and the result's partials as its result.
static vt_value *same_op(vt_spreader *s, const vt_op *op, vt_type result, vt_value *const *operands,
                         const vt_partial *partial) {
  vt_value *value =
      build(s, op->loc, op->code, partial_type(s, partial, result), op->operand_count, operands);
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(value->op, op->attrs[i]);
  return value;
}

// Dimension numbers shifted past those of the partial; `whole` prepends the partial's own.
static void shift_ints(vt_op *op, vt_attr_key key, const vt_partial *partial, bool whole,
                       int64_t add) {
  uint32_t count, n = 0;
  const int64_t *old = vt_attr_ints(op, key, &count);
  int64_t values[VT_MAX_RANK + VT_MAX_PARTIAL];
  for (uint32_t i = 0; whole && i < partial->count; i++)
    values[n++] = key == VT_ATTR_LIMIT_INDICES ? partial->axes[i].size
                  : key == VT_ATTR_STRIDES     ? 1
                  : add                        ? (int64_t)i
                                               : 0;
  for (uint32_t i = 0; i < count && n < VT_MAX_RANK; i++) values[n++] = old[i] + add;
  vt_op_set_ints(op, key, n, values);
}

// Ops that only move elements; a pad must add zeros, which are correct in every partial.
static bool moves(const vt_op *op) {
  if (op->code == VT_OP_PAD) return is_zero(op->operands[1]);
  return vt_op_info_get(op->code)->linear == VT_LINEAR_MOVES || is_constraint(op);
}

static vt_value *spread_move(vt_spreader *s, vt_op *op, const vt_partial *partial, int depth) {
  if (is_constraint(op) || op->code == VT_OP_PROPAGATION_BARRIER)
    return spread_at(s, op->operands[0], partial, depth);
  uint32_t count = op->code == VT_OP_PAD ? 1 : op->operand_count;
  int64_t n = partial->count;
  vt_value **operands = VT_NEW_ARRAY(s->arena, vt_value *, op->operand_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] = i < count ? spread_at(s, op->operands[i], partial, depth) : op->operands[i];
  vt_value *value = same_op(s, op, op->results[0].type, operands, partial);
  vt_op *made = value->op;
  switch ((int)op->code) {
  case VT_OP_TRANSPOSE:
    shift_ints(made, VT_ATTR_PERMUTATION, partial, true, n);
    break;
  case VT_OP_BROADCAST_IN_DIM:
    shift_ints(made, VT_ATTR_BROADCAST_DIMENSIONS, partial, true, n);
    break;
  case VT_OP_REVERSE:
    shift_ints(made, VT_ATTR_DIMENSIONS, partial, false, n);
    break;
  case VT_OP_CONCATENATE:
    vt_op_set_i64(made, VT_ATTR_DIMENSION, vt_attr_i64(op, VT_ATTR_DIMENSION) + n);
    break;
  case VT_OP_SLICE:
    shift_ints(made, VT_ATTR_START_INDICES, partial, true, 0);
    shift_ints(made, VT_ATTR_LIMIT_INDICES, partial, true, 0);
    shift_ints(made, VT_ATTR_STRIDES, partial, true, 0);
    break;
  case VT_OP_PAD:
    shift_ints(made, VT_ATTR_EDGE_PADDING_LOW, partial, true, 0);
    shift_ints(made, VT_ATTR_EDGE_PADDING_HIGH, partial, true, 0);
    shift_ints(made, VT_ATTR_INTERIOR_PADDING, partial, true, 0);
    break;
  default:
    break;
  }
  return value;
}

static bool has_partial(const vt_spreader *s, const vt_value *value) {
  return vt_map_find_ptr(&s->stands_for, value) != NULL;
}

// Conversions in which a partial sum loses no digit that the sum would keep.
static bool adds_after(const vt_op *convert) {
  vt_dtype from = convert->operands[0]->type.dtype, to = convert->results[0].type.dtype;
  return from != VT_PRED && to != VT_PRED && (vt_dtype_is_integer(from) || vt_dtype_is_float(to));
}

// Whether the op distributes over sums of its operands. `out_plain` gets a bit for each operand
// that stays plain.
static bool is_linear(const vt_spreader *s, const vt_op *op, uint32_t *out_plain) {
  *out_plain = 0;
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE)) return false;
  bool first = has_partial(s, op->operands[0]);
  switch ((vt_linearity)vt_op_info_get(op->code)->linear) {
  case VT_LINEAR_ALL:
    return op->code != VT_OP_CONVERT || adds_after(op);
  case VT_LINEAR_ONE:
    *out_plain = first ? 2 : 1;
    return first != has_partial(s, op->operands[1]);
  case VT_LINEAR_FIRST:
    *out_plain = 2;
    return first && !has_partial(s, op->operands[1]) &&
           !vt_dtype_is_integer(op->results[0].type.dtype);
  case VT_LINEAR_BRANCHES:
    *out_plain = 1;
    return !first;
  default:
    return false;
  }
}

static vt_value *spread_linear(vt_spreader *s, vt_op *op, const vt_partial *partial, uint32_t plain,
                               int depth) {
  vt_value *operands[3];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_value *operand = op->operands[i];
    bool scalar = operand->type.rank == 0 && op->results[0].type.rank > 0; // broadcasts itself
    operands[i] = !(plain >> i & 1) ? spread_at(s, operand, partial, depth)
                  : scalar          ? operand
                                    : repeat(s, operand, partial);
  }
  return same_op(s, op, op->results[0].type, operands, partial);
}

// ---- the cases ---------------------------------------------------------------------------------

void vt_note_op(vt_spreader *s, const vt_op *op) {
  vt_assert(op->func == s->func);
  vt_partial partial = {0};
  uint32_t plain;
  if (op->result_count != 1 || op->operand_count == 0 || op->operand_count > 1000) return;
  const vt_sharding *sharding = is_constraint(op) ? sharding_attr(op, VT_ATTR_SHARDING, 0) : NULL;
  if (sharding) partial = vt_partial_of(sharding);
  for (uint32_t i = 0; !partial.count && i < op->operand_count; i++) {
    vt_partial of = vt_value_partial(s, op->operands[i]);
    bool goes = of.meaning == VT_MEANS_FIRST ? is_constraint(op) && !vt_is_cut_along(sharding, &of)
                : sharding                   ? false // reduced here
                : of.meaning == VT_MEANS_SUM ? moves(op) || is_linear(s, op, &plain) || adds_up(op)
                                             : moves(op);
    if (of.count && goes) partial = of;
  }
  if (partial.count) note_value(s, &op->results[0], &partial);
}

static vt_value *follow(vt_spreader *s, vt_value *value, const vt_partial *partial, int depth) {
  vt_op *op = value->op;
  uint32_t plain;
  if (!op || depth > MAX_DEPTH) return NULL;
  for (uint32_t i = 0; i < op->operand_count; i++) // axes may split dimensions on both sides
    if (op->operands[i]->type.rank + 2 * VT_MAX_PARTIAL > VT_MAX_RANK) return NULL;
  vt_partial noted = vt_value_partial(s, value);
  bool is_partial = noted.count && noted.meaning == partial->meaning; // it represents partials
  if (is_constraint(op))
    return is_partial ? spread_at(s, op->operands[0], partial, depth + 1) : NULL;
  if (is_partial && moves(op)) return spread_move(s, op, partial, depth + 1);
  if (partial->meaning != VT_MEANS_SUM) return NULL;
  if (op->code == VT_OP_DOT_GENERAL) return spread_dot(s, op, partial);
  if (adds_up(op)) return spread_reduce(s, op, partial, depth + 1);
  if (op->code == VT_OP_SCATTER && op->operand_count == 3 && sums_two(op))
    return spread_scatter(s, op, partial, depth + 1);
  return is_partial && is_linear(s, op, &plain) ? spread_linear(s, op, partial, plain, depth + 1)
                                                : NULL;
}

static vt_value *spread_at(vt_spreader *s, vt_value *value, const vt_partial *partial, int depth) {
  const vt_spread *made = vt_map_find_ptr(&s->spreads, value);
  vt_value *partials = NULL;
  if (made && vt_partial_equal(&made->partial, partial)) return made->value;
  if (made && made->partial.meaning == partial->meaning &&
      vt_mesh_same(made->partial.mesh, partial->mesh))
    return change_partial(s, made->value, value->type, made->partial, partial);
  partials = follow(s, value, partial, depth);
  if (!partials)
    partials = place(s, value, value->type, &(vt_partial){0}, partial, sharding_of(s, value));
  if (!made) note_spread(s, value, partial, partials, NULL);
  return partials;
}

vt_value *vt_spread_value(vt_spreader *s, vt_value *value, const vt_partial *partial) {
  vt_assert(partial->count >= 1 && value->func == s->func);
  return spread_at(s, value, partial, 0);
}
