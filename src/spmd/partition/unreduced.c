// SPDX-License-Identifier: Apache-2.0
// unreduced.c - values that stay unreduced: devices hold terms of a sum (or of a maximum, or of a
// minimum) along some axes.
//
// A sharding states along which axes a result stays unreduced; along which axes it is a sum is for
// the op's handler to find. So handlers leave reductions out only along axes for which both holds.
// What is then left of the stated axes has no terms yet: the first device keeps the value, the
// others hold nothing.
//
// Terms must not meet on their way: device groups that agree along the unreduced axes are machines
// of their own, and a value with terms moves within them (vt_reshard asks vt_terms_of). Where an
// assignment does not fall into such groups, the terms are added up first.
//
// Axes are taken apart into factors of prime size, so that those of two shardings can be compared.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/partition.h"

typedef struct vt_factor {
  const int32_t *at;   // by device: its coordinate
  const int32_t *next; // by device: the one with the next coordinate, after the last the first
} vt_factor;

static bool is_partial(const vt_sharding *s) {
  return s && s->unreduced_count;
}

void vt_part_note(vt_parter *p, const vt_value *value, const vt_sharding *sharding) {
  if (is_partial(sharding)) *vt_map_at_ptr(&p->partials, value) = (void *)(uintptr_t)sharding;
}

// ---- axes -------------------------------------------------------------------------------------

static void add_factors(vt_terms *t, vt_axis_ref ref) {
  int64_t left = ref.size, pre = ref.pre_size;
  for (int64_t prime = 2; left > 1; prime++)
    for (; left % prime == 0; left /= prime, pre *= prime)
      if (t->count < VT_MAX_TERM_FACTORS) t->refs[t->count++] = (vt_axis_ref){ref.axis, pre, prime};
}

static vt_terms terms_of_sharding(const vt_parter *p, const vt_sharding *s) {
  vt_terms t = {.of = is_partial(s) ? s : NULL};
  for (uint32_t i = 0; t.of && i < s->unreduced_count; i++)
    if (!vt_axis_is_manual(p, s->mesh, s->unreduced[i].axis)) add_factors(&t, s->unreduced[i]);
  return t;
}

static vt_terms only(const vt_terms *t, uint32_t mask) {
  vt_terms out = {.of = t->of};
  for (uint32_t i = 0; i < t->count; i++)
    if (mask >> i & 1) out.refs[out.count++] = t->refs[i];
  return out;
}

static uint32_t all_of(const vt_terms *t) {
  return t->count < 32 ? (1u << t->count) - 1 : ~0u;
}

// The factors of `a` that `b` has, too.
static uint32_t common(const vt_terms *a, const vt_terms *b) {
  uint32_t mask = 0;
  if (!a->of || !b->of || !vt_mesh_same(a->of->mesh, b->of->mesh) ||
      a->of->reduction != b->of->reduction)
    return 0;
  for (uint32_t i = 0; i < a->count; i++)
    for (uint32_t k = 0; k < b->count; k++)
      if (a->refs[i].axis == b->refs[k].axis && a->refs[i].pre_size == b->refs[k].pre_size &&
          a->refs[i].size == b->refs[k].size)
        mask |= 1u << i;
  return mask;
}

static const vt_factor *make_factor(vt_parter *p, const vt_mesh *mesh, vt_axis_ref ref) {
  int64_t size = vt_mesh_size(mesh), stride;
  vt_factor *f = VT_NEW(&p->module->arena, vt_factor);
  int32_t *at = VT_NEW_ARRAY(&p->module->arena, int32_t, size);
  int32_t *next = VT_NEW_ARRAY(&p->module->arena, int32_t, size);
  for (int64_t place = 0; place < size; place++) {
    int64_t c = vt_mesh_coordinate(mesh, place, ref, &stride);
    int64_t to = c + 1 < ref.size ? place + stride : place - c * stride;
    int64_t device = mesh->device_count ? mesh->device_ids[place] : place;
    at[device] = (int32_t)c;
    next[device] = (int32_t)(mesh->device_count ? mesh->device_ids[to] : to);
  }
  *f = (vt_factor){at, next};
  return f;
}

static const vt_factor *factor_at(vt_parter *p, const vt_terms *t, uint32_t i) {
  uint64_t key[] = {(uintptr_t)t->of->mesh, t->refs[i].axis, (uint64_t)t->refs[i].pre_size,
                    (uint64_t)t->refs[i].size};
  void **place = vt_map_at(&p->factors, key, sizeof key);
  if (!*place) *place = (void *)(uintptr_t)make_factor(p, t->of->mesh, t->refs[i]);
  return *place;
}

static int32_t size_of(const vt_terms *t, uint32_t mask) {
  int32_t size = 1;
  for (uint32_t i = 0; i < t->count; i++)
    if (mask >> i & 1) size *= (int32_t)t->refs[i].size;
  return size;
}

// Where the device is along the factors of `mask`.
static int32_t coordinate(vt_parter *p, const vt_terms *t, uint32_t mask, int32_t device) {
  int32_t at = 0;
  for (uint32_t i = 0; i < t->count; i++)
    if (mask >> i & 1) at = at * (int32_t)t->refs[i].size + factor_at(p, t, i)->at[device];
  return at;
}

// The device `by` further along the factors of `mask`.
static int32_t moved(vt_parter *p, const vt_terms *t, uint32_t mask, int32_t device, int32_t by) {
  for (uint32_t i = t->count; i-- > 0;) {
    if (!(mask >> i & 1)) continue;
    int32_t size = (int32_t)t->refs[i].size;
    for (int32_t k = by % size; k > 0; k--) device = factor_at(p, t, i)->next[device];
    by /= size;
  }
  return device;
}

// An array of one dimension, cut by the factors of `mask`.
static const vt_assign *assign_along(vt_parter *p, const vt_terms *t, uint32_t mask) {
  vt_axis_ref refs[VT_MAX_TERM_FACTORS];
  vt_dim_sharding dim = {.axes = refs, .closed = true, .priority = -1};
  for (uint32_t i = 0; i < t->count; i++)
    if (mask >> i & 1) refs[dim.axis_count++] = t->refs[i];
  const vt_sharding along = {
      .kind = VT_SHARDING_MESH, .mesh = t->of->mesh, .rank = 1, .dims = &dim};
  return vt_assign_of(p, &along, 1);
}

// ---- adding up --------------------------------------------------------------------------------

static vt_value *reduce_over(vt_parter *p, vt_value *v, const vt_func *reducer,
                             const vt_groups *groups_of_all) {
  const vt_groups *before = p->groups;
  vt_leave(p, vt_groups_all(&p->assigns, before->count * before->size));
  v = vt_emit_all_reduce(p, v, reducer, groups_of_all);
  vt_leave(p, before);
  return v;
}

// Groups of devices that differ along the factors of `mask` only.
static const vt_groups *groups_along(vt_parter *p, const vt_terms *t, uint32_t mask) {
  int32_t total = p->groups->count * p->groups->size, size = size_of(t, mask), count = 0;
  vt_arena scratch = {0};
  int32_t *ids = VT_NEW_ARRAY(&scratch, int32_t, total);
  for (int32_t device = 0; device < total; device++)
    for (int32_t i = 0; i < size && !coordinate(p, t, mask, device); i++)
      ids[count++] = moved(p, t, mask, device, i);
  const vt_groups *out = vt_groups_make(&p->assigns, total / size, size, ids);
  vt_arena_free(&scratch);
  return out;
}

static vt_opcode combining(const vt_sharding *s, vt_dtype dtype) {
  static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_MAXIMUM, VT_OP_MINIMUM};
  vt_opcode code = codes[s->reduction];
  return code == VT_OP_ADD && dtype == VT_PRED ? VT_OP_OR : code;
}

static vt_value *sum_terms(vt_parter *p, const vt_terms *t, uint32_t mask, vt_value *v) {
  if (!mask) return v;
  vt_func *reducer = vt_make_reducer(p, combining(t->of, v->type.dtype), v->type.dtype);
  return reduce_over(p, v, reducer, groups_along(p, t, mask));
}

// Terms of which the value is the sum: itself on the first device, nothing on the others. Of a
// maximum, every device may hold it.
static vt_value *make_terms(vt_parter *p, const vt_terms *t, uint32_t mask, vt_value *v) {
  if (!mask || t->of->reduction) return v;
  vt_value *place = vt_emit_offset(p, assign_along(p, t, mask), 0, 1);
  vt_value *first = vt_emit_compare(p, VT_CMP_EQ, place, vt_emit_s32(p, 0));
  vt_type pred = v->type;
  pred.dtype = VT_PRED;
  vt_value *nothing = vt_emit_splat(p, v->type, vt_emit_nothing(p, v->type.dtype));
  return vt_emit_select(p, vt_emit_splat(p, pred, first), v, nothing);
}

// ---- which local values have terms -------------------------------------------------------------

static void know(vt_parter *p, const vt_value *local, uint32_t mask) {
  *vt_map_at_ptr(&p->terms.known, local) = (void *)((uintptr_t)mask + 1);
}

static vt_terms begin(vt_parter *p, const vt_sharding *s) {
  vt_terms before = p->terms;
  p->terms = terms_of_sharding(p, s);
  return before;
}

static void end(vt_parter *p, vt_terms before) {
  vt_map_free(&p->terms.known);
  p->terms = before;
}

typedef struct walk {
  vt_map seen;
  VT_ARRAY(const vt_value *) stack;
} walk;

static void walk_to(walk *w, const vt_value *v) {
  void **place = vt_map_at_ptr(&w->seen, v);
  if (*place) return;
  *place = w;
  vt_array_push(&w->stack, v);
}

// From the values whose terms are known: what is made of terms has them too.
uint32_t vt_terms_of(vt_parter *p, const vt_value *local) {
  uint32_t mask = 0;
  if (!p->terms.of || !p->terms.known.size) return 0;
  walk w = {0};
  walk_to(&w, local);
  while (w.stack.size) {
    const vt_value *v = w.stack.data[--w.stack.size];
    uintptr_t known = (uintptr_t)vt_map_find_ptr(&p->terms.known, v);
    if (known) mask |= (uint32_t)(known - 1);
    for (uint32_t i = 0; !known && v->op && i < v->op->operand_count; i++)
      walk_to(&w, v->op->operands[i]);
  }
  vt_map_free(&w.seen);
  vt_array_free(&w.stack);
  return mask;
}

// ---- leaving reductions out --------------------------------------------------------------------

// The factors along which each group has all devices.
static uint32_t factors_within(vt_parter *p, const vt_terms *t, const vt_groups *groups) {
  const int32_t *group_of = vt_groups_listed(&p->assigns, groups).group_of;
  uint32_t mask = 0;
  for (uint32_t i = 0; i < t->count; i++) {
    const int32_t *next = factor_at(p, t, i)->next;
    bool within = true;
    for (int32_t d = 0; d < groups->count * groups->size && within; d++)
      within = group_of[d] == group_of[next[d]];
    if (within) mask |= 1u << i;
  }
  return mask;
}

// Of each group, those that agree along the factors of `mask`.
static const vt_groups *split_groups(vt_parter *p, const vt_terms *t, const vt_groups *groups,
                                     uint32_t mask) {
  const int32_t *from = vt_groups_listed(&p->assigns, groups).ids;
  int32_t parts = size_of(t, mask), size = groups->size / parts;
  vt_arena scratch = {0};
  int32_t *ids = VT_NEW_ARRAY(&scratch, int32_t, groups->count * groups->size);
  int32_t *filled = VT_NEW_ARRAY(&scratch, int32_t, groups->count *parts);
  for (int32_t i = 0; i < groups->count * groups->size; i++) {
    int32_t to = i / groups->size * parts + coordinate(p, t, mask, from[i]);
    ids[to * size + filled[to]++] = from[i];
  }
  const vt_groups *out = vt_groups_make(&p->assigns, groups->count * parts, size, ids);
  vt_arena_free(&scratch);
  return out;
}

vt_value *vt_emit_reduction(vt_parter *p, vt_value *v, const vt_func *reducer,
                            const vt_groups *groups) {
  const vt_terms *t = &p->terms;
  if (!p->keep_partial) return vt_emit_all_reduce(p, v, reducer, groups);
  vt_opcode wanted = combining(t->of, v->type.dtype);
  vt_opcode code = reducer                    ? vt_plain_reducer(reducer)
                   : v->type.dtype == VT_PRED ? VT_OP_OR
                                              : VT_OP_ADD;
  const vt_groups *all = vt_groups_within(&p->assigns, p->groups, groups);
  uint32_t had = vt_terms_of(p, v), mask = code == wanted ? factors_within(p, t, all) & ~had : 0;
  if (!mask) return vt_emit_all_reduce(p, v, reducer, groups);
  if (size_of(t, mask) < groups->size)
    v = reduce_over(p, v, reducer, split_groups(p, t, all, mask));
  know(p, v, had | mask);
  return v;
}

// ---- moving ------------------------------------------------------------------------------------

// Places of the current group that agree along the factors of `mask`. NULL: in other groups these
// are others.
static const vt_groups *groups_of_terms(vt_parter *p, const vt_terms *t, uint32_t mask) {
  const vt_groups *outer = p->groups;
  vt_group_lists now = vt_groups_listed(&p->assigns, outer);
  int32_t parts = size_of(t, mask), size = outer->size / parts, count = 0;
  if (outer->size % parts) return NULL;
  vt_arena scratch = {0};
  int32_t *ids = VT_NEW_ARRAY(&scratch, int32_t, outer->size + 1);
  bool alike = true;
  for (int32_t i = 0; i < outer->size && alike; i++) {
    if (coordinate(p, t, mask, now.ids[i])) continue;
    alike = count < size;
    for (int32_t part = 0; part < parts && alike; part++) {
      int32_t place = now.place_of[moved(p, t, mask, now.ids[i], part)];
      ids[part * size + count] = place;
      for (int32_t g = 0; g < outer->count && alike; g++) {
        const int32_t *devices = now.ids + g * outer->size;
        alike = moved(p, t, mask, devices[i], part) == devices[place];
      }
    }
    count++;
  }
  alike = alike && count == size;
  const vt_groups *out = alike ? vt_groups_make(&p->assigns, parts, size, ids) : NULL;
  vt_arena_free(&scratch);
  return out;
}

vt_part vt_reshard_terms(vt_parter *p, vt_part part, const vt_assign *target, uint32_t mask) {
  vt_terms terms = p->terms;
  vt_grouping from, to;
  const vt_groups *groups = groups_of_terms(p, &terms, mask);
  bool apart = groups && vt_group_copies(&p->assigns, part.assign, groups, &from) &&
               vt_group_copies(&p->assigns, target, groups, &to);
  p->terms.of = NULL; // what follows is within groups, or of a value without terms
  if (apart) {
    const vt_groups *before = vt_enter(p, groups);
    part.local = vt_reshard(p, vt_part_in(p, part, &from), to.inner).local;
    vt_leave(p, before);
  } else {
    part.local = sum_terms(p, &terms, mask, part.local);
    part.local = vt_reshard(p, part, target).local;
    mask = 0;
  }
  p->terms.of = terms.of;
  know(p, part.local, mask);
  part.assign = target;
  return part;
}

// ---- values of the program ---------------------------------------------------------------------

static bool same_groups(vt_parter *p, const vt_groups *a, const vt_groups *b) {
  if (a->size != b->size || a->count != b->count) return false;
  const int32_t *ids = vt_groups_listed(&p->assigns, a).ids;
  const int32_t *group_of = vt_groups_listed(&p->assigns, b).group_of;
  for (int32_t i = 0; i < a->count * a->size; i++)
    if (group_of[ids[i]] != group_of[ids[i - i % a->size]]) return false;
  return true;
}

// Tiles along axes that are to be unreduced: each device puts its own into an array of nothing.
static bool tiles_as_terms(vt_parter *p, vt_part *part, const vt_terms *t, uint32_t mask) {
  int32_t dims[VT_MAX_RANK], count = 0;
  const vt_assign *a = part->assign;
  if (!mask || t->of->reduction || a->only >= 0 || p->groups->count > 1) return false;
  const vt_groups *groups = groups_along(p, t, mask);
  const int32_t *ids = vt_groups_listed(&p->assigns, groups).ids;
  for (int32_t d = 0; d < a->rank; d++) {
    const int32_t *tile_of = vt_assign_places(&p->assigns, a, d);
    if (tile_of[ids[0]] != tile_of[ids[groups->size - 1]]) dims[count++] = d;
  }
  if (!count || !same_groups(p, groups, vt_groups_along(&p->assigns, a, count, dims))) return false;
  uint32_t cut = 0;
  for (int32_t i = 0; i < count; i++) cut |= 1u << dims[i];
  *part = vt_spread_tiles(p, *part, cut);
  return true;
}

// The value under other unreduced axes, in tiles `target`.
static vt_part as_terms(vt_parter *p, const vt_value *value, const vt_terms *wants,
                        const vt_assign *target) {
  vt_part part = vt_part_of(p, value);
  const vt_sharding *stated = vt_map_find_ptr(&p->partials, value);
  vt_terms has = terms_of_sharding(p, stated);
  uint32_t stays = common(&has, wants);
  if (stated) part.local = sum_terms(p, &has, all_of(&has) & ~stays, part.local);
  uint32_t begun = all_of(wants) & ~(stays ? common(wants, &has) : 0);
  if (!stays && begun == all_of(wants) && tiles_as_terms(p, &part, wants, begun)) {
    has = *wants;
    stays = begun;
  }
  vt_terms before = p->terms;
  p->terms = has;
  if (stays) know(p, part.local, stays);
  part = vt_reshard(p, part, target);
  if (stays) stays = vt_terms_of(p, part.local); // none, if they were added up
  end(p, before);
  begun = all_of(wants) & ~(stays ? common(wants, &has) : 0);
  part.local = make_terms(p, wants, begun, part.local);
  return part;
}

vt_part vt_part_reduced(vt_parter *p, const vt_value *value, const vt_sharding *sharding) {
  vt_part part = vt_part_of(p, value);
  if (!vt_map_find_ptr(&p->partials, value) && !is_partial(sharding)) return part;
  vt_terms wants = terms_of_sharding(p, sharding);
  return as_terms(p, value, &wants,
                  sharding ? vt_assign_of(p, sharding, part.global.rank) : part.assign);
}

// Ops that ask for their operands by vt_part_reduced themselves.
static bool takes_terms(const vt_op *op) {
  return op->code == VT_OP_WHILE || op->code == VT_OP_IF || op->code == VT_OP_CASE ||
         op->code == VT_OP_MANUAL_COMPUTATION || op->code == VT_OP_OPTIMIZATION_BARRIER ||
         vt_op_info_get(op->code)->flags & VT_OPF_SHARDY;
}

// ---- ops on terms ------------------------------------------------------------------------------

// The factors along which an operand has terms that the result may keep.
static uint32_t terms_of_operand(vt_parter *p, const vt_op *op, uint32_t i, const vt_terms *t) {
  vt_terms has = terms_of_sharding(p, vt_map_find_ptr(&p->partials, op->operands[i]));
  return common(t, &has);
}

// The first so many operands of an op that moves elements to or from where the others say.
static uint32_t moved_operands(const vt_op *op) {
  switch (op->code) {
  case VT_OP_DYNAMIC_SLICE:
  case VT_OP_GATHER:
    return 1;
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    return 2;
  default:
    return 0;
  }
}

// Whether terms of the result are the op on terms of operands; `out_plain` gets a bit for each
// operand that is to have none. (Floats that become integers are cut off, and integers wrap
// around.)
static bool is_linear(vt_parter *p, const vt_op *op, const vt_terms *t, uint32_t *out_plain) {
  vt_linearity kind = (vt_linearity)vt_op_info_get(op->code)->linear;
  const vt_value *const *operands = (const vt_value *const *)op->operands;
  *out_plain = 0;
  if (kind == VT_LINEAR_MOVES || vt_op_is_marker(op)) return true;
  if (moved_operands(op)) {
    *out_plain = ~0u << moved_operands(op);
    return true;
  }
  if (op->code == VT_OP_REDUCE && op->operand_count == 2) {
    *out_plain = t->of->reduction || vt_is_zero_scalar(operands[1]) ? 2 : 0; // changes nothing
    return vt_plain_reducer(op->regions[0]) == combining(t->of, operands[0]->type.dtype);
  }
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) || t->of->reduction) return false;
  if (kind == VT_LINEAR_ALL)
    return op->code != VT_OP_CONVERT || (vt_dtype_is_float(operands[0]->type.dtype) &&
                                         vt_dtype_is_float(op->results[0].type.dtype));
  if (kind == VT_LINEAR_BRANCHES) {
    *out_plain = 1;
    return true;
  }
  if (kind != VT_LINEAR_ONE && kind != VT_LINEAR_FIRST) return false;
  bool first = terms_of_operand(p, op, 0, t), second = terms_of_operand(p, op, 1, t);
  *out_plain = first ? 2 : 1;
  return kind == VT_LINEAR_ONE
             ? first != second
             : first && !second && !vt_dtype_is_integer(op->results[0].type.dtype);
}

// The factors along which operands keep terms.
static uint32_t kept_by_operands(vt_parter *p, const vt_op *op, const vt_terms *t,
                                 uint32_t *out_plain) {
  uint32_t mask = 0;
  if (!t->of || op->operand_count > 32 || op->capture_count || !is_linear(p, op, t, out_plain))
    return 0;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!(*out_plain >> i & 1)) mask |= terms_of_operand(p, op, i, t);
  return mask;
}

// An operand for devices that agree along the factors of `t`, each such group on its own.
static vt_part operand_in(vt_parter *p, const vt_op *op, uint32_t i, const vt_groups *groups,
                          const vt_terms *t, bool plain) {
  vt_grouping g;
  const vt_value *value = op->operands[i];
  const vt_assign *at = vt_part_of(p, value).assign;
  if (vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE && value->type.rank)
    at = vt_part_wanted(p, op, 0);
  if (!vt_group_copies(&p->assigns, at, groups, &g)) {
    at = vt_assign_whole(&p->assigns, value->type.rank, p->device_count);
    bool fits = vt_group_copies(&p->assigns, at, groups, &g);
    vt_assert(fits);
    (void)fits;
  }
  vt_part part = as_terms(p, value, plain ? &(vt_terms){0} : t, at);
  return vt_part_in(p, part, &g);
}

// Groups of devices that agree along the factors of `kept` are machines of their own.
static vt_status run_on_terms(vt_parter *p, const vt_op *op, vt_partition_fn *handler,
                              const vt_groups *groups, const vt_terms *kept, uint32_t plain) {
  vt_arena scratch = {0};
  vt_part *before = VT_NEW_ARRAY(&scratch, vt_part, op->operand_count + 1);
  vt_part *inner = VT_NEW_ARRAY(&scratch, vt_part, op->operand_count + 1);
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    before[i] = vt_part_of(p, op->operands[i]);
    inner[i] = operand_in(p, op, i, groups, kept, plain >> i & 1);
  }
  for (uint32_t i = 0; i < op->operand_count; i++) vt_part_record(p, op->operands[i], inner[i]);
  const vt_groups *outside = vt_enter(p, groups);
  vt_terms terms = begin(p, vt_annotation(op, 0));
  p->keep_partial = true;
  for (uint32_t i = 0; i < op->operand_count; i++) know(p, inner[i].local, 0);
  vt_status st = handler(p, op);
  p->keep_partial = false;
  vt_leave(p, outside);
  for (uint32_t i = 0; i < op->operand_count; i++) vt_part_record(p, op->operands[i], before[i]);
  vt_arena_free(&scratch);
  if (!st) {
    vt_part out = vt_part_of(p, &op->results[0]);
    uint32_t rest = all_of(&p->terms) & ~common(&p->terms, kept) & ~vt_terms_of(p, out.local);
    out.local = make_terms(p, &p->terms, rest, out.local);
    vt_part_record(p, &op->results[0], (vt_part){out.global, out.local, wanted});
    vt_part_note(p, &op->results[0], vt_annotation(op, 0));
  }
  end(p, terms);
  return st;
}

// Operands without terms: combined once for all users that want them so. Users that keep terms
// still find these.
static void reduce_operands(vt_parter *p, const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *value = op->operands[i];
    void **partial = vt_map_at_ptr(&p->partials, value);
    if (!*partial) continue;
    void **sum = vt_map_at_ptr(&p->sums, value);
    if (!*sum) {
      vt_part *kept = VT_NEW(&p->module->arena, vt_part);
      *kept = vt_part_reduced(p, value, NULL);
      *sum = kept;
    }
    vt_part_record(p, value, *(vt_part *)*sum);
    *partial = NULL;
  }
}

typedef struct with_terms {
  vt_part part;
  void *sharding;
} with_terms;

static void get_terms(vt_parter *p, const vt_op *op, with_terms *out) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    out[i] = (with_terms){vt_part_of(p, op->operands[i]),
                          vt_map_find_ptr(&p->partials, op->operands[i])};
}

static void put_terms(vt_parter *p, const vt_op *op, const with_terms *terms) {
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (!terms[i].sharding) continue;
    vt_part_record(p, op->operands[i], terms[i].part);
    *vt_map_at_ptr(&p->partials, op->operands[i]) = terms[i].sharding;
  }
}

static void complete_terms(vt_parter *p, const vt_value *result) {
  const vt_sharding *s = vt_annotation(result->op, (uint32_t)result->index);
  if (!is_partial(s)) return;
  vt_terms t = terms_of_sharding(p, s);
  vt_part part = vt_part_of(p, result); // some handlers leave it in tiles that they find better
  part = vt_reshard(p, part, vt_assign_of(p, s, part.global.rank));
  part.local = make_terms(p, &t, all_of(&t) & ~vt_terms_of(p, part.local), part.local);
  vt_part_record(p, result, part);
  vt_part_note(p, result, s);
}

// The op on operands without terms.
static vt_status run_plainly(vt_parter *p, const vt_op *op, vt_partition_fn *handler,
                             const vt_sharding *s) {
  vt_arena scratch = {0};
  with_terms *operands = VT_NEW_ARRAY(&scratch, with_terms, op->operand_count + 1);
  get_terms(p, op, operands);
  reduce_operands(p, op);
  vt_terms before = begin(p, s);
  p->keep_partial = p->terms.of != NULL;
  for (uint32_t i = 0; i < op->operand_count; i++) know(p, vt_part_of(p, op->operands[i]).local, 0);
  vt_status st = handler(p, op);
  for (uint32_t i = 0; i < op->result_count && !st; i++) complete_terms(p, &op->results[i]);
  p->keep_partial = false;
  end(p, before);
  put_terms(p, op, operands);
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_partition_op(vt_parter *p, const vt_op *op, vt_partition_fn *handler) {
  bool any = p->partials.size;
  for (uint32_t i = 0; i < op->result_count && !any; i++) any = is_partial(vt_annotation(op, i));
  if (!any || takes_terms(op)) return handler(p, op);
  const vt_sharding *s = op->result_count == 1 ? vt_annotation(op, 0) : NULL;
  uint32_t plain = 0;
  vt_terms t = terms_of_sharding(p, s);
  vt_terms kept = only(&t, kept_by_operands(p, op, &t, &plain));
  const vt_groups *groups = kept.count ? groups_of_terms(p, &kept, all_of(&kept)) : NULL;
  return groups ? run_on_terms(p, op, handler, groups, &kept, plain)
                : run_plainly(p, op, handler, s);
}
