// SPDX-License-Identifier: Apache-2.0
// dot.c - contractions, by the rules of XLA's partitioner.
//
// Dimensions are batch, contracted, or free on one side. First the plain cases, in which all
// devices are cut along one kind of dimension alike. Otherwise devices are grouped along dimensions
// of one kind that two of the three arrays share - batch, then free, then contracted - and the rest
// is a smaller contraction within each group. First no device may change its group, then they may.
#include "spmd/partition/dot.h"

#include <string.h>

#include "base/check.h"

typedef struct counts {
  int32_t batch[VT_SIDES], contracted[VT_SIDES], lhs_free[VT_SIDES], rhs_free[VT_SIDES];
} counts;

// One contraction in the current group.
typedef struct dot {
  vt_parter *p;
  const vt_contraction *c;
  vt_part lhs, rhs;
  vt_type type;
  const vt_assign *out;
  counts n;
  bool keep_groups; // devices may not change their groups
} dot;

static int32_t tiles_along(const vt_assign *a, const vt_dot_dims *dims, int side) {
  int32_t tiles = 1;
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dims[i].at[side] >= 0) tiles *= a->dims[dims->dims[i].at[side]];
  return tiles;
}

static const vt_assign *assign_at(const dot *d, int side) {
  return side == VT_SIDE_LHS ? d->lhs.assign : side == VT_SIDE_RHS ? d->rhs.assign : d->out;
}

static void count_tiles(dot *d) {
  for (int side = 0; side < VT_SIDES; side++) {
    const vt_assign *a = assign_at(d, side);
    d->n.batch[side] = tiles_along(a, &d->c->batch, side);
    d->n.contracted[side] = tiles_along(a, &d->c->contracted, side);
    d->n.lhs_free[side] = tiles_along(a, &d->c->lhs_free, side);
    d->n.rhs_free[side] = tiles_along(a, &d->c->rhs_free, side);
  }
}

// Indices of the dimensions in one array.
static int32_t dims_at(const vt_dot_dims *dims, int side, int32_t *out) {
  int32_t count = 0;
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dims[i].at[side] >= 0) out[count++] = dims->dims[i].at[side];
  return count;
}

static uint32_t mask_at(const vt_dot_dims *dims, int side) {
  uint32_t mask = 0;
  for (int32_t i = 0; i < dims->count; i++)
    if (dims->dims[i].at[side] >= 0) mask |= 1u << dims->dims[i].at[side];
  return mask;
}

// An assignment of one array as one of another: shared dimensions cut alike, the others copied.
static const vt_assign *as_side(const dot *d, const vt_assign *a, int from, int to) {
  const vt_dot_dims *all[] = {&d->c->batch, &d->c->contracted, &d->c->lhs_free, &d->c->rhs_free};
  int32_t map[VT_MAX_RANK];
  for (int32_t i = 0; i < d->c->ranks[to]; i++) map[i] = -1;
  for (size_t k = 0; k < 4; k++)
    for (int32_t i = 0; i < all[k]->count; i++) {
      const int32_t *at = all[k]->dims[i].at;
      if (at[from] >= 0 && at[to] >= 0) map[at[to]] = at[from];
    }
  return vt_assign_project(&d->p->assigns, a, d->c->ranks[to], map);
}

static vt_part whole_of(const dot *d, vt_part part) {
  return vt_reshard(d->p, part,
                    vt_assign_whole(&d->p->assigns, part.global.rank, d->p->device_count));
}

// ---- the local op, and what follows it ----------------------------------------------------------

static vt_value *add_up(vt_parter *p, const vt_dot_sum *sum, vt_value *v) {
  if (sum->outer) v = add_up(p, sum->outer, v);
  const vt_groups *before = p->groups;
  vt_leave(p, sum->groups);
  if (sum->slice_mask) {
    v = vt_emit_reduce_along(p, v, NULL, sum->out, sum->slice_mask);
    const vt_assign *kept = vt_assign_keep(&p->assigns, sum->out, sum->slice_mask);
    vt_part whole = {v->type, v, vt_assign_whole(&p->assigns, v->type.rank, p->device_count)};
    v = vt_reshard(p, whole, kept).local;
    int32_t copies = sum->out->rank;
    if (sum->sum_copies)
      v = vt_emit_reduction(p, v, NULL, vt_groups_along(&p->assigns, sum->out, 1, &copies));
  } else {
    v = vt_emit_reduce_along(p, v, NULL, sum->operand, sum->operand_mask);
  }
  vt_leave(p, before);
  return v;
}

vt_value *vt_contract_sum(vt_parter *p, const vt_contraction *c, vt_value *local) {
  return c->sums ? add_up(p, c->sums, local) : local;
}

static vt_value *emit(const dot *d, vt_part lhs, vt_part rhs) {
  return vt_contract_sum(d->p, d->c, d->c->emit(d->p, d->c, lhs, rhs));
}

static vt_value *to_out(const dot *d, vt_value *local, const vt_assign *assign) {
  return vt_reshard(d->p, (vt_part){d->type, local, assign}, d->out).local;
}

// ---- plain cases --------------------------------------------------------------------------------

// The result and one operand are cut along batch dimensions alike: the other operand comes there.
static vt_value *batch_with_reshard(dot *d, bool anyhow) {
  int32_t n = d->p->device_count;
  if (d->n.batch[VT_SIDE_OUT] != n) return NULL;
  for (int side = VT_SIDE_LHS; side <= VT_SIDE_RHS; side++) {
    vt_part here = side == VT_SIDE_LHS ? d->lhs : d->rhs;
    vt_part other = side == VT_SIDE_LHS ? d->rhs : d->lhs;
    if (d->n.batch[side] != n || as_side(d, here.assign, side, VT_SIDE_OUT) != d->out) continue;
    const vt_assign *target = as_side(d, here.assign, side, 1 - side);
    if (!anyhow && !vt_is_permute(other.assign, target) && !vt_is_exchange(other.assign, target))
      return NULL;
    other = vt_reshard(d->p, other, target);
    return side == VT_SIDE_LHS ? emit(d, here, other) : emit(d, other, here);
  }
  return NULL;
}

// Both operands zero where a contracted dimension is padded: NaN times zero is NaN.
static vt_value *sum_contracted(const dot *d, vt_part lhs, vt_part rhs) {
  vt_parter *p = d->p;
  vt_value *zero = vt_emit_zero(p, lhs.global.dtype);
  lhs.local = vt_mask(p, lhs, mask_at(&d->c->contracted, VT_SIDE_LHS), zero);
  zero = vt_emit_zero(p, rhs.global.dtype);
  rhs.local = vt_mask(p, rhs, mask_at(&d->c->contracted, VT_SIDE_RHS), zero);
  vt_value *v = emit(d, lhs, rhs);
  return vt_emit_reduce_along(p, v, NULL, lhs.assign, mask_at(&d->c->contracted, VT_SIDE_LHS));
}

// Both operands are cut along contracted dimensions only: the smaller one follows the larger.
static vt_value *both_contracted(dot *d) {
  vt_part lhs = d->lhs, rhs = d->rhs;
  if (vt_type_bytes(lhs.global) < vt_type_bytes(rhs.global))
    lhs = vt_reshard(d->p, lhs, as_side(d, rhs.assign, VT_SIDE_RHS, VT_SIDE_LHS));
  else
    rhs = vt_reshard(d->p, rhs, as_side(d, lhs.assign, VT_SIDE_LHS, VT_SIDE_RHS));
  vt_value *sum = sum_contracted(d, lhs, rhs);
  return to_out(d, sum, vt_assign_whole(&d->p->assigns, d->type.rank, d->p->device_count));
}

// The result is cut along one kind of dimension: operands come there.
static vt_value *operands_to_out(dot *d) {
  int32_t n = d->p->device_count;
  vt_part lhs = d->lhs, rhs = d->rhs;
  bool batch = d->n.batch[VT_SIDE_OUT] == n;
  if (batch || d->n.lhs_free[VT_SIDE_OUT] == n) {
    lhs = vt_reshard(d->p, lhs, as_side(d, d->out, VT_SIDE_OUT, VT_SIDE_LHS));
    rhs = batch ? vt_reshard(d->p, rhs, as_side(d, d->out, VT_SIDE_OUT, VT_SIDE_RHS))
                : whole_of(d, rhs);
    return emit(d, lhs, rhs);
  }
  if (d->n.rhs_free[VT_SIDE_OUT] != n) return NULL;
  rhs = vt_reshard(d->p, rhs, as_side(d, d->out, VT_SIDE_OUT, VT_SIDE_RHS));
  return emit(d, whole_of(d, lhs), rhs);
}

// One operand is cut along contracted dimensions, the other one and the result are whole: cutting
// the other costs nothing, and the sum of the results less than gathering the operand.
static vt_value *one_contracted(dot *d) {
  int32_t n = d->p->device_count;
  int64_t size = vt_type_elements(d->type);
  if (!vt_assign_is_whole(d->out)) return NULL;
  if (d->n.contracted[VT_SIDE_RHS] == n && vt_assign_is_whole(d->lhs.assign) &&
      vt_type_elements(d->rhs.global) > size) {
    const vt_assign *target = as_side(d, d->rhs.assign, VT_SIDE_RHS, VT_SIDE_LHS);
    return sum_contracted(d, vt_reshard(d->p, d->lhs, target), d->rhs);
  }
  if (d->n.contracted[VT_SIDE_LHS] == n && vt_assign_is_whole(d->rhs.assign) &&
      vt_type_elements(d->lhs.global) > size) {
    const vt_assign *target = as_side(d, d->lhs.assign, VT_SIDE_LHS, VT_SIDE_RHS);
    return sum_contracted(d, d->lhs, vt_reshard(d->p, d->rhs, target));
  }
  return NULL;
}

static vt_value *plain_case(dot *d, bool may_mismatch) {
  int32_t n = d->p->device_count;
  if (vt_assign_is_cut(d->out) && d->out->copies > 1) return NULL;
  if (d->n.batch[VT_SIDE_LHS] == n && d->n.batch[VT_SIDE_RHS] == n &&
      as_side(d, d->lhs.assign, VT_SIDE_LHS, VT_SIDE_RHS) == d->rhs.assign)
    return to_out(d, emit(d, d->lhs, d->rhs), as_side(d, d->lhs.assign, VT_SIDE_LHS, VT_SIDE_OUT));
  vt_value *v = batch_with_reshard(d, false);
  if (!v) v = batch_with_reshard(d, true);
  if (v) return v;
  if (d->n.contracted[VT_SIDE_LHS] == n && d->n.contracted[VT_SIDE_RHS] == n) {
    // What is cut along fewer devices is better summed in groups.
    if (!may_mismatch && !vt_assign_is_whole(d->out) && d->out->tiles != n) return NULL;
    return both_contracted(d);
  }
  if (d->n.lhs_free[VT_SIDE_LHS] == n && d->n.lhs_free[VT_SIDE_OUT] == n &&
      as_side(d, d->lhs.assign, VT_SIDE_LHS, VT_SIDE_OUT) == d->out)
    return emit(d, d->lhs, whole_of(d, d->rhs));
  if (d->n.rhs_free[VT_SIDE_RHS] == n && d->n.rhs_free[VT_SIDE_OUT] == n &&
      as_side(d, d->rhs.assign, VT_SIDE_RHS, VT_SIDE_OUT) == d->out)
    return emit(d, whole_of(d, d->lhs), d->rhs);
  if (may_mismatch && (v = operands_to_out(d))) return v;
  return one_contracted(d);
}

// ---- groups along batch dimensions --------------------------------------------------------------

static int64_t local_bytes(vt_part part) {
  return vt_type_bytes(part.local->type);
}

static vt_type group_type(const dot *d, vt_type type, const vt_grouping *g) {
  vt_part part = vt_part_in(d->p, (vt_part){type, NULL, d->out}, g);
  return part.global;
}

// The contraction within the groups; parts are as the groups see them.
static vt_value *contract_in(const dot *d, const vt_contraction *c, const vt_groups *groups,
                             vt_part lhs, vt_part rhs, vt_type type, const vt_assign *out) {
  const vt_groups *before = vt_enter(d->p, groups);
  vt_value *v = vt_contract(d->p, c, lhs, rhs, type, out);
  vt_leave(d->p, before);
  return v;
}

static vt_grouping group_dims(const dot *d, const vt_assign *a, const vt_dot_dims *dims, int side) {
  int32_t list[VT_MAX_RANK];
  int32_t count = dims_at(dims, side, list);
  return vt_group_on(&d->p->assigns, a, count, list, NULL);
}

// Operands that are cut along batch dimensions alike: groups are theirs.
static vt_value *batch_of_operands(dot *d) {
  vt_assigns *t = &d->p->assigns;
  vt_part lhs = d->lhs, rhs = d->rhs;
  vt_grouping gl = group_dims(d, lhs.assign, &d->c->batch, VT_SIDE_LHS);
  vt_grouping gr = group_dims(d, rhs.assign, &d->c->batch, VT_SIDE_RHS);
  if (local_bytes(lhs) > local_bytes(rhs)) {
    gr = vt_align(t, gr, gl.groups, false);
    rhs = vt_reshard(d->p, rhs, vt_ungroup(t, &gr));
  } else {
    gl = vt_align(t, gl, gr.groups, false);
    lhs = vt_reshard(d->p, lhs, vt_ungroup(t, &gl));
  }
  int32_t dims[VT_MAX_RANK];
  memcpy(dims, d->out->dims, sizeof *dims * (size_t)d->out->rank);
  for (int32_t i = 0; i < d->c->batch.count; i++)
    dims[d->c->batch.dims[i].at[VT_SIDE_OUT]] =
        d->lhs.assign->dims[d->c->batch.dims[i].at[VT_SIDE_LHS]];
  const vt_assign *out = vt_assign_reshape(t, d->out, d->out->rank, dims, d->out->copies);
  vt_grouping go = group_dims(d, out, &d->c->batch, VT_SIDE_OUT);
  go = vt_align(t, go, gl.groups, false);
  vt_value *v = contract_in(d, d->c, gl.groups, vt_part_in(d->p, lhs, &gl),
                            vt_part_in(d->p, rhs, &gr), group_type(d, d->type, &go), go.inner);
  return to_out(d, v, vt_ungroup(t, &go));
}

// Brings an operand into the groups of the result. false: its tiles do not fit
static bool operand_to_batch(dot *d, int side, const vt_grouping *go, vt_part *out) {
  vt_assigns *t = &d->p->assigns;
  vt_part part = side == VT_SIDE_LHS ? d->lhs : d->rhs;
  const vt_dot_dims *free = side == VT_SIDE_LHS ? &d->c->lhs_free : &d->c->rhs_free;
  int32_t n = d->p->device_count, dims[VT_MAX_RANK], copies = part.assign->copies, product = 1;
  int32_t batch[VT_MAX_RANK];
  int32_t batch_count = dims_at(&d->c->batch, side, batch);
  if (vt_assign_is_whole(part.assign)) {
    vt_grouping g = {.groups = go->groups, .count = batch_count};
    g.inner = vt_assign_whole(t, part.global.rank, go->groups->size);
    memcpy(g.dims, batch, sizeof *batch * (size_t)batch_count);
    memcpy(g.sizes, go->sizes, sizeof *g.sizes * (size_t)batch_count);
    *out = vt_part_in(d->p, vt_reshard(d->p, part, vt_ungroup(t, &g)), &g);
    return true;
  }
  memcpy(dims, part.assign->dims, sizeof *dims * (size_t)part.global.rank);
  for (int32_t i = 0; i < d->c->batch.count; i++)
    dims[d->c->batch.dims[i].at[side]] = d->out->dims[d->c->batch.dims[i].at[VT_SIDE_OUT]];
  for (int32_t i = 0; i < part.global.rank; i++) product *= dims[i];
  product *= copies;
  if (product > n) {
    int32_t ratio = product / n,
            of_free = side == VT_SIDE_LHS ? d->n.lhs_free[side] : d->n.rhs_free[side];
    int32_t contracted = d->n.contracted[side];
    uint32_t cleared = 0;
    if (product % n) return false;
    if (copies > 1 && copies % ratio == 0)
      copies /= ratio;
    else if (ratio == of_free && (ratio != contracted || contracted == d->n.contracted[1 - side]))
      cleared = mask_at(free, side);
    else if (ratio == contracted)
      cleared = mask_at(&d->c->contracted, side);
    else
      return false;
    for (int32_t i = 0; i < part.global.rank; i++)
      if (cleared >> i & 1) dims[i] = 1;
  }
  product = copies;
  for (int32_t i = 0; i < part.global.rank; i++) product *= dims[i];
  if (product != n) return false;
  const vt_assign *seen = vt_assign_reshape(t, part.assign, part.global.rank, dims, copies);
  vt_grouping g = vt_group_on(t, seen, batch_count, batch, NULL);
  g = vt_align(t, g, go->groups, false);
  const vt_assign *target = vt_ungroup(t, &g);
  if (d->keep_groups && part.assign != target) return false;
  *out = vt_part_in(d->p, vt_reshard(d->p, part, target), &g);
  return true;
}

static vt_value *by_batch(dot *d) {
  int32_t n = d->n.batch[VT_SIDE_OUT];
  if (n == 1 || (d->n.batch[VT_SIDE_LHS] != n && d->n.batch[VT_SIDE_RHS] != n)) return NULL;
  bool alike = true;
  for (int32_t i = 0; i < d->c->batch.count; i++)
    alike = alike && d->lhs.assign->dims[d->c->batch.dims[i].at[VT_SIDE_LHS]] ==
                         d->rhs.assign->dims[d->c->batch.dims[i].at[VT_SIDE_RHS]];
  if (alike && d->keep_groups) {
    vt_grouping gl = group_dims(d, d->lhs.assign, &d->c->batch, VT_SIDE_LHS);
    vt_grouping gr = group_dims(d, d->rhs.assign, &d->c->batch, VT_SIDE_RHS);
    gr = vt_align(&d->p->assigns, gr, gl.groups, false);
    alike = vt_ungroup(&d->p->assigns, &gr) == d->rhs.assign;
  }
  if (alike) return batch_of_operands(d);
  vt_part lhs, rhs;
  vt_grouping go = group_dims(d, d->out, &d->c->batch, VT_SIDE_OUT);
  if (!operand_to_batch(d, VT_SIDE_LHS, &go, &lhs) || !operand_to_batch(d, VT_SIDE_RHS, &go, &rhs))
    return NULL;
  return contract_in(d, d->c, go.groups, lhs, rhs, group_type(d, d->type, &go), go.inner);
}

// ---- groups along free dimensions ---------------------------------------------------------------

// How the other operand falls into the groups of the result. false: no way without making it whole
static bool group_other(dot *d, int side, vt_part other, const vt_grouping *go, vt_grouping *out) {
  vt_assigns *t = &d->p->assigns;
  const vt_assign *a = other.assign;
  int32_t groups = go->groups->count, rank = a->rank, dims[VT_MAX_RANK + 1], count = 0;
  bool copied = vt_assign_is_cut(a) && a->copies > 1 && a->copies % groups == 0;
  for (int32_t i = rank; copied && i >= 0; i--) {
    int32_t tiles = i == rank ? a->copies : a->dims[i];
    if (tiles % groups) continue;
    const vt_assign *match = i == rank ? a : vt_assign_swap_copies(t, a, i);
    if (vt_group_copies(t, match, go->groups, out)) return true;
  }
  int o = 1 - side;
  bool rhs = o == VT_SIDE_RHS;
  const vt_dot_dims *free = rhs ? &d->c->rhs_free : &d->c->lhs_free;
  int32_t of_free = rhs ? d->n.rhs_free[o] : d->n.lhs_free[o];
  int32_t of_out = rhs ? d->n.rhs_free[VT_SIDE_OUT] : d->n.lhs_free[VT_SIDE_OUT];
  if (copied) {
    dims[count++] = rank;
  } else {
    bool by_contracted = d->n.contracted[o] == groups && of_free == of_out;
    bool by_free = groups == of_free && d->n.contracted[side] == d->n.contracted[o];
    int64_t wanted = vt_type_bytes(vt_local_type(d->p, d->type, d->out));
    if (vt_group_dims(t, a, go->groups, &count, dims)) {
    } else if (by_contracted && (!by_free || local_bytes(other) <= wanted)) {
      count = dims_at(&d->c->contracted, o, dims);
    } else if (by_free) {
      count = dims_at(free, o, dims);
    } else {
      return false;
    }
  }
  if (vt_assign_is_whole(a) || a->only >= 0) return false;
  if (count == 1 && dims[0] == rank) {
    int32_t shards = a->copies / groups;
    if (a->copies % groups) return false;
    *out = vt_align(t, vt_group_on(t, a, 1, dims, &shards), go->groups, true);
    return true;
  }
  vt_grouping g = vt_group_on(t, a, count, dims, NULL);
  if (g.groups->count != groups) return false;
  *out = vt_align(t, g, go->groups, true);
  return true;
}

// Copies of the other operand in every group.
static vt_part copies_in_groups(dot *d, vt_part other, const vt_grouping *g) {
  vt_assigns *t = &d->p->assigns;
  int32_t rank = other.global.rank;
  const vt_assign *target = vt_ungroup(t, g);
  if (g->count == 1 && g->dims[0] == rank) {
    other = vt_reshard(d->p, other, target);
  } else {
    uint32_t mask = 0;
    for (int32_t i = 0; i < g->count; i++)
      if (g->dims[i] < rank) mask |= 1u << g->dims[i];
    const vt_assign *wanted = vt_assign_replicate(t, target, mask);
    bool same = vt_assign_replicate(t, other.assign, mask) == wanted;
    if (other.assign->copies == 1 || !same) other = vt_reshard(d->p, other, target);
    other = vt_reshard(d->p, other, wanted);
  }
  return (vt_part){other.global, other.local, g->inner};
}

// What the result and the first operand ask of the other one.
static const vt_assign *expected_other(dot *d, int side) {
  int o = 1 - side;
  const vt_assign *by_out = as_side(d, d->out, VT_SIDE_OUT, o);
  if (!vt_assign_is_whole(by_out)) return by_out;
  const vt_assign *here = side == VT_SIDE_LHS ? d->lhs.assign : d->rhs.assign;
  return as_side(d, here, side, o);
}

static vt_value *by_free_dims(dot *d, int side, const vt_dot_dims *shared) {
  vt_assigns *t = &d->p->assigns;
  vt_part here = side == VT_SIDE_LHS ? d->lhs : d->rhs;
  vt_part other = side == VT_SIDE_LHS ? d->rhs : d->lhs;
  vt_grouping go = group_dims(d, d->out, shared, VT_SIDE_OUT), g;
  int32_t dims[VT_MAX_RANK];
  memcpy(dims, here.assign->dims, sizeof *dims * (size_t)here.global.rank);
  for (int32_t i = 0; i < shared->count; i++)
    dims[shared->dims[i].at[side]] = d->out->dims[shared->dims[i].at[VT_SIDE_OUT]];
  const vt_assign *seen =
      vt_assign_reshape(t, here.assign, here.global.rank, dims, here.assign->copies);
  vt_grouping gh = vt_align(t, group_dims(d, seen, shared, side), go.groups, false);
  const vt_assign *target = vt_ungroup(t, &gh);
  if (d->keep_groups && here.assign != target) return NULL;
  bool grouped = group_other(d, side, other, &go, &g);
  if (!grouped && !vt_assign_is_whole(other.assign)) {
    vt_part moved = vt_reshard(d->p, other, expected_other(d, side));
    grouped = group_other(d, side, moved, &go, &g);
    if (grouped) other = moved;
  }
  here = vt_reshard(d->p, here, target);
  vt_part inner = vt_part_in(d->p, here, &gh), copied;
  if (grouped) {
    copied = copies_in_groups(d, other, &g);
  } else {
    copied = whole_of(d, other);
    copied.assign = vt_assign_whole(t, other.global.rank, go.groups->size);
  }
  vt_type type = group_type(d, d->type, &go);
  return side == VT_SIDE_LHS ? contract_in(d, d->c, go.groups, inner, copied, type, go.inner)
                             : contract_in(d, d->c, go.groups, copied, inner, type, go.inner);
}

// The dimensions along which operand and result have as many tiles.
static void equal_dims(const dot *d, const vt_dot_dims *dims, int a, int b, vt_dot_dims *out) {
  out->count = 0;
  for (int32_t i = 0; i < dims->count; i++) {
    int32_t x = assign_at(d, a)->dims[dims->dims[i].at[a]];
    if (x > 1 && x == assign_at(d, b)->dims[dims->dims[i].at[b]])
      out->dims[out->count++] = dims->dims[i];
  }
}

static vt_value *by_free(dot *d) {
  const int32_t *l = d->n.lhs_free, *r = d->n.rhs_free;
  bool lhs = l[VT_SIDE_LHS] == l[VT_SIDE_OUT] && l[VT_SIDE_LHS] > 1;
  bool rhs = r[VT_SIDE_RHS] == r[VT_SIDE_OUT] && r[VT_SIDE_RHS] > 1;
  vt_dot_dims some;
  if (lhs || rhs) {
    // The side that makes the other operand's copies smaller.
    bool first = lhs && (!rhs || l[VT_SIDE_LHS] * local_bytes(d->rhs) <
                                     r[VT_SIDE_RHS] * local_bytes(d->lhs));
    return first ? by_free_dims(d, VT_SIDE_LHS, &d->c->lhs_free)
                 : by_free_dims(d, VT_SIDE_RHS, &d->c->rhs_free);
  }
  if (l[VT_SIDE_LHS] > 1 && l[VT_SIDE_OUT] > 1) {
    equal_dims(d, &d->c->lhs_free, VT_SIDE_LHS, VT_SIDE_OUT, &some);
    return some.count ? by_free_dims(d, VT_SIDE_LHS, &some) : NULL;
  }
  if (r[VT_SIDE_RHS] > 1 && r[VT_SIDE_OUT] > 1) {
    equal_dims(d, &d->c->rhs_free, VT_SIDE_RHS, VT_SIDE_OUT, &some);
    return some.count ? by_free_dims(d, VT_SIDE_RHS, &some) : NULL;
  }
  return NULL;
}

// ---- groups along contracted dimensions ---------------------------------------------------------

// A result that is a finer cut of what the groups would compute is cut afterwards.
static const vt_assign *coarser_out(dot *d, const vt_grouping *gl, const vt_grouping *gr) {
  int32_t groups = gl->groups->count;
  if (!vt_assign_is_cut(d->out) || (d->out->copies > 1 && d->out->copies % groups == 0))
    return d->out;
  bool lhs = vt_assign_is_whole(gl->inner), rhs = vt_assign_is_whole(gr->inner);
  if (lhs == rhs) return d->out;
  int side = lhs ? VT_SIDE_RHS : VT_SIDE_LHS;
  const vt_assign *a = vt_ungroup(&d->p->assigns, lhs ? gr : gl);
  const vt_assign *coarse = as_side(d, a, side, VT_SIDE_OUT);
  for (int32_t i = 0; i < d->type.rank; i++)
    if (!vt_is_even(d->type, d->out, i)) return d->out;
  return vt_assign_refines(&d->p->assigns, d->out, coarse) ? coarse : d->out;
}

// How the groups compute the result, and along which of its dimensions they keep a part only.
typedef struct sum_plan {
  const vt_assign *inner, *outer;
  uint32_t slice_mask;
  bool copies;
} sum_plan;

static sum_plan plan_sum(dot *d, const vt_assign *out, const vt_groups *groups) {
  vt_assigns *t = &d->p->assigns;
  int32_t rank = out->rank, dims[VT_MAX_RANK + 1], count = 0;
  sum_plan plan = {vt_assign_whole(t, rank, groups->size),
                   vt_assign_whole(t, rank, d->p->device_count), 0, false};
  if (vt_assign_is_cut(out) && out->copies > 1 && out->copies % groups->count == 0) {
    int32_t shards = out->copies / groups->count;
    vt_grouping g = vt_align(t, vt_group_on(t, out, 1, &rank, &shards), groups, true);
    plan.inner = g.inner;
    plan.outer = vt_ungroup(t, &g);
    return plan;
  }
  if (vt_group_dims(t, out, groups, &count, dims)) {
    if (count) {
      vt_grouping g = vt_group_on(t, out, count, dims, NULL);
      bool same = vt_align_if_same(t, &g, groups, true);
      if (!same) g = vt_align(t, g, groups, true);
      plan.inner = g.inner;
      plan.outer = same ? out : vt_ungroup(t, &g);
    }
  } else if (!vt_assign_is_whole(out)) {
    const vt_dot_dims *by = d->n.lhs_free[VT_SIDE_OUT] == groups->count   ? &d->c->lhs_free
                            : d->n.rhs_free[VT_SIDE_OUT] == groups->count ? &d->c->rhs_free
                            : d->n.batch[VT_SIDE_OUT] == groups->count    ? &d->c->batch
                                                                          : NULL;
    count = by ? dims_at(by, VT_SIDE_OUT, dims) : 0;
    vt_grouping g;
    if (count && (g = vt_group_on(t, out, count, dims, NULL)).groups->count == groups->count) {
      g = vt_align(t, g, groups, false);
      plan.inner = g.inner;
      plan.outer = vt_ungroup(t, &g);
    } else {
      count = 0;
    }
  }
  for (int32_t i = 0; i < count; i++) {
    if (dims[i] == rank)
      plan.copies = true;
    else
      plan.slice_mask |= 1u << dims[i];
  }
  return plan;
}

// Dimensions of the result that are cut within the groups: what groups keep of these would be tiles
// of tiles.
static uint32_t cut_within(const dot *d, const vt_grouping *gl, const vt_grouping *gr) {
  const vt_dot_dims *all[] = {&d->c->batch, &d->c->lhs_free, &d->c->rhs_free};
  uint32_t mask = 0;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    for (int32_t i = 0; i < all[k]->count; i++) {
      const int32_t *at = all[k]->dims[i].at;
      bool lhs = at[VT_SIDE_LHS] >= 0 && gl->inner->dims[at[VT_SIDE_LHS]] > 1;
      bool rhs = at[VT_SIDE_RHS] >= 0 && gr->inner->dims[at[VT_SIDE_RHS]] > 1;
      if (at[VT_SIDE_OUT] >= 0 && (lhs || rhs)) mask |= 1u << at[VT_SIDE_OUT];
    }
  return mask;
}

static vt_value *by_contracted_dims(dot *d, const vt_dot_dims *shared) {
  vt_assigns *t = &d->p->assigns;
  vt_parter *p = d->p;
  vt_part lhs = d->lhs, rhs = d->rhs;
  bool larger = local_bytes(lhs) > local_bytes(rhs);
  int from = larger ? VT_SIDE_LHS : VT_SIDE_RHS;
  vt_part *follower = larger ? &rhs : &lhs;
  const vt_assign *leader = larger ? lhs.assign : rhs.assign;
  int32_t dims[VT_MAX_RANK];
  memcpy(dims, follower->assign->dims, sizeof *dims * (size_t)follower->global.rank);
  for (int32_t i = 0; i < shared->count; i++)
    dims[shared->dims[i].at[1 - from]] = leader->dims[shared->dims[i].at[from]];
  const vt_assign *seen =
      vt_assign_reshape(t, follower->assign, follower->global.rank, dims, follower->assign->copies);
  vt_grouping lead = group_dims(d, leader, shared, from);
  vt_grouping follow = vt_align(t, group_dims(d, seen, shared, 1 - from), lead.groups, false);
  const vt_assign *target = vt_ungroup(t, &follow);
  if (d->keep_groups && follower->assign != target) return NULL;
  *follower = vt_reshard(p, *follower, target);
  vt_grouping gl = larger ? lead : follow, gr = larger ? follow : lead;
  vt_value *zero = vt_emit_zero(p, lhs.global.dtype);
  lhs.local = vt_mask(p, lhs, mask_at(shared, VT_SIDE_LHS), zero);
  zero = vt_emit_zero(p, rhs.global.dtype);
  rhs.local = vt_mask(p, rhs, mask_at(shared, VT_SIDE_RHS), zero);
  const vt_assign *out = coarser_out(d, &gl, &gr);
  sum_plan plan = plan_sum(d, out, gl.groups);
  if (plan.slice_mask & cut_within(d, &gl, &gr))
    plan = plan_sum(d, vt_assign_whole(t, d->type.rank, p->device_count), gl.groups);
  vt_dot_sum sum = {.outer = d->c->sums,
                    .groups = p->groups,
                    .operand = leader, // whose groups these are: places in them agree
                    .operand_mask = mask_at(shared, from),
                    .out = plan.outer,
                    .slice_mask = plan.slice_mask,
                    .sum_copies = plan.copies};
  vt_contraction inner = *d->c;
  inner.sums = &sum;
  vt_type type = d->type;
  if (plan.slice_mask) type = vt_local_type(p, type, vt_assign_keep(t, out, plan.slice_mask));
  vt_value *v = contract_in(d, &inner, gl.groups, vt_part_in(p, lhs, &gl), vt_part_in(p, rhs, &gr),
                            type, plan.inner);
  return to_out(d, v, plan.outer);
}

static vt_value *by_contracted(dot *d) {
  int32_t l = d->n.contracted[VT_SIDE_LHS], r = d->n.contracted[VT_SIDE_RHS];
  if (l == 1 || r == 1) return NULL;
  vt_value *v = l == r ? by_contracted_dims(d, &d->c->contracted) : NULL;
  if (v) return v;
  vt_dot_dims some;
  equal_dims(d, &d->c->contracted, VT_SIDE_LHS, VT_SIDE_RHS, &some);
  return some.count ? by_contracted_dims(d, &some) : NULL;
}

// ---- all of it ----------------------------------------------------------------------------------

// Whole operands and a result with copies: the copies may be forgotten.
static vt_value *without_copies(dot *d) {
  if (!vt_assign_is_whole(d->lhs.assign) || !vt_assign_is_whole(d->rhs.assign) ||
      !vt_assign_is_cut(d->out) || d->out->copies == 1)
    return NULL;
  vt_assigns *t = &d->p->assigns;
  int32_t rank = d->out->rank;
  vt_grouping g = vt_group_on(t, d->out, 1, &rank, NULL);
  vt_part lhs = d->lhs, rhs = d->rhs;
  lhs.assign = vt_assign_whole(t, lhs.global.rank, g.groups->size);
  rhs.assign = vt_assign_whole(t, rhs.global.rank, g.groups->size);
  return contract_in(d, d->c, g.groups, lhs, rhs, d->type, g.inner);
}

vt_value *vt_contract(vt_parter *p, const vt_contraction *c, vt_part lhs, vt_part rhs, vt_type type,
                      const vt_assign *out) {
  dot d = {.p = p, .c = c, .lhs = lhs, .rhs = rhs, .type = type, .out = out};
  count_tiles(&d);
  if (p->device_count == 1) return emit(&d, lhs, rhs);
  for (int pass = 0; pass < 2; pass++) {
    d.keep_groups = pass == 0;
    vt_value *v = c->special ? c->special(p, c, lhs, rhs, type, out) : NULL;
    if (!v) v = plain_case(&d, false);
    if (!v) v = by_batch(&d);
    if (!v) v = by_free(&d);
    if (!v) v = by_contracted(&d);
    if (!v) v = without_copies(&d);
    if (!v) v = plain_case(&d, true);
    if (v) return v;
  }
  // Dimensions that are of no kind are whole: those of windows.
  uint32_t known = mask_at(&c->batch, VT_SIDE_OUT) | mask_at(&c->lhs_free, VT_SIDE_OUT) |
                   mask_at(&c->rhs_free, VT_SIDE_OUT);
  const vt_assign *kept = vt_assign_keep(&p->assigns, out, known);
  lhs = vt_reshard(p, lhs, as_side(&d, kept, VT_SIDE_OUT, VT_SIDE_LHS));
  rhs = vt_reshard(p, rhs, as_side(&d, kept, VT_SIDE_OUT, VT_SIDE_RHS));
  return to_out(&d, emit(&d, lhs, rhs), kept);
}

// ---- dot_general --------------------------------------------------------------------------------

static void add_dim(vt_dot_dims *dims, int32_t lhs, int32_t rhs, int32_t out) {
  dims->dims[dims->count++] = (vt_dot_dim){{lhs, rhs, out}};
}

static vt_value *emit_dot(vt_parter *p, const vt_contraction *c, vt_part lhs, vt_part rhs) {
  int64_t dims[VT_MAX_RANK];
  const vt_dot_dims *all[] = {&c->batch, &c->lhs_free, &c->rhs_free};
  for (size_t k = 0; k < 3; k++)
    for (int32_t i = 0; i < all[k]->count; i++) {
      const int32_t *at = all[k]->dims[i].at;
      dims[at[VT_SIDE_OUT]] = at[VT_SIDE_LHS] >= 0 ? lhs.local->type.dims[at[VT_SIDE_LHS]]
                                                   : rhs.local->type.dims[at[VT_SIDE_RHS]];
    }
  vt_type type = vt_type_of_dims(p, c->op->results[0].type.dtype, c->ranks[VT_SIDE_OUT], dims);
  return vt_emit_copy(p, c->op, type, 2, (vt_value *[]){lhs.local, rhs.local});
}

static void add_free(vt_dot_dims *dims, int side, int32_t rank, uint32_t used, int32_t *next) {
  for (int32_t d = 0; d < rank; d++)
    if (!(used >> d & 1))
      add_dim(dims, side == VT_SIDE_LHS ? d : -1, side == VT_SIDE_RHS ? d : -1, (*next)++);
}

vt_status vt_partition_dot(vt_parter *p, const vt_op *op) {
  vt_contraction c = {.op = op, .emit = emit_dot};
  uint32_t batch, contracted, used[2] = {0};
  int32_t next = 0;
  const int64_t *lb = vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batch);
  const int64_t *rb = vt_attr_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, NULL);
  const int64_t *lc = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &contracted);
  const int64_t *rc = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, NULL);
  vt_part lhs = vt_part_of(p, op->operands[0]), rhs = vt_part_of(p, op->operands[1]);
  const vt_assign *out = vt_part_wanted(p, op, 0);
  if (out->only >= 0 || lhs.assign->only >= 0 || rhs.assign->only >= 0)
    return vt_partition_whole(p, op);
  for (uint32_t i = 0; i < batch; i++) {
    add_dim(&c.batch, (int32_t)lb[i], (int32_t)rb[i], next++);
    used[0] |= 1u << lb[i];
    used[1] |= 1u << rb[i];
  }
  for (uint32_t i = 0; i < contracted; i++) {
    add_dim(&c.contracted, (int32_t)lc[i], (int32_t)rc[i], -1);
    used[0] |= 1u << lc[i];
    used[1] |= 1u << rc[i];
  }
  c.ranks[VT_SIDE_LHS] = lhs.global.rank;
  c.ranks[VT_SIDE_RHS] = rhs.global.rank;
  c.ranks[VT_SIDE_OUT] = op->results[0].type.rank;
  add_free(&c.lhs_free, VT_SIDE_LHS, lhs.global.rank, used[0], &next);
  add_free(&c.rhs_free, VT_SIDE_RHS, rhs.global.rank, used[1], &next);
  vt_type type = op->results[0].type;
  vt_part_set(p, &op->results[0], (vt_part){type, vt_contract(p, &c, lhs, rhs, type, out), out});
  return VT_OK;
}
