// SPDX-License-Identifier: Apache-2.0
// fuse.c - the kernels of a program, much as XLA:TPU fuses it.
//
// Operators are visited from the last to the first, so that all readers of a result have kernels:
//   - elementwise operators and moves that one kernel reads are made in it;
//   - cheap ones that several kernels read are made in each of them, unless that keeps something
//     larger in memory;
//   - what must be an array is written by the first kernel that reads it, where that one has the
//     same shape, or by one of its own;
//   - a product, or a reduction, becomes part of the elementwise kernel that reads its result;
//   - a kernel with a product makes its operands itself where that is cheap;
//   - reductions over the same array share a kernel, with what else is made of it in step.
#include "chip/time/kernels.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "chip/ragged.h"
#include "chip/time/traits.h"

enum {
  MOST_GROUPS = 32,
  FEW_GROUPS = 4,
  MOST_SEARCH = 64,
  MOST_DEPTH = 16,
  MOST_SIBLINGS = 8,
  MOST_USES = 512, // in one allocation
  FAR = 4,         // steps
  SUBLANES = 8
};
static const double small_bytes = 1 << 16; // arrays up to here never decide anything

// A kernel in the making.
typedef struct group {
  vt_kernel_kind kind;
  const vt_op *root, *hero;
  double elements; // of the loop over its arrays
  int32_t order;   // of its root in the function
  int32_t first;   // of the first operator that it writes
  VT_ARRAY(const vt_op *) members;
  VT_ARRAY(int32_t) later; // groups that read what it writes
  int32_t joined;          // the group that took it in, or NONE
  int32_t waits, mark;
} group;

enum { NONE = -1 };

// What each reader of an operator asks again.
typedef enum answer { UNKNOWN, NO, YES } answer;

// What is known of an operator: its note.
typedef struct place {
  int32_t few[FEW_GROUPS], *groups; // where it is made: `few`, or room for MOST_GROUPS
  uint32_t feeding;                 // of these, bit by bit: whether it feeds their product
  int32_t count, order;
  double held;             // see held_for; negative if not known yet
  answer follows, spreads; // see follows_product, spreads
  bool stored;             // its results are arrays in memory, written by its one group
  uint8_t traits;
  const bool *unread; // of a loop: operands that nothing in it reads; NULL for others
} place;

typedef struct use {
  const vt_op *op;
  struct use *next;
} use;

// What is known of a value, by its id.
typedef struct known {
  const vt_value *source; // see vt_kernel_source
  use *uses;              // of a source
  double elements, bytes; // bytes: see bytes_of; negative if not known yet
  int32_t seen;           // the last search that came there
  uint8_t from_batch;     // see steps_from_batch; FAR: that many or more
  bool returned;
} known;

typedef struct fusing {
  const vt_device_model *model;
  const vt_scope *scope;
  vt_arena *arena;
  vt_func *func;
  known *known;
  const vt_op **ops;
  int32_t op_count;
  VT_ARRAY(group) groups;
  int32_t marks, searches;
  vt_streams reads, writes; // of the kernel that is finished now
  bool careful;             // about cycles of kernels: see reaches
} fusing;

static place *place_of(const vt_op *op) {
  return op->note;
}

double vt_kernel_bytes(const vt_device_model *model, vt_type type) {
  return (double)vt_known_bytes(model->sizes, model->chip, type);
}

// ---- what operators are -------------------------------------------------------------------------

static bool is_soft(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_SOFT;
}

static bool is_elementwise(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_ELEMENTWISE;
}

static bool is_dear(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_DEAR;
}

static bool is_nothing(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_NOTHING;
}

static bool is_product(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_PRODUCT;
}

static bool is_reduction(const vt_op *op) {
  return place_of(op)->traits & VT_TRAIT_REDUCTION;
}

static known *known_of(const fusing *f, const vt_value *value) {
  return &f->known[value->id];
}

static double elements(const fusing *f, const vt_value *value) {
  return known_of(f, value)->elements;
}

// vt_kernel_source of an operand, looked up.
static const vt_value *source(const fusing *f, const vt_op *op, uint32_t operand) {
  return known_of(f, op->operands[operand])->source;
}

// The fewest elementwise steps from a product for each element of a batch to the value.
static uint8_t steps_from_batch(const fusing *f, const vt_value *value) {
  const vt_op *op = value->op;
  uint32_t batches = 0;
  int least = FAR;
  if (op && op->code == VT_OP_DOT_GENERAL) {
    (void)vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
    return batches ? 0 : FAR;
  }
  for (uint32_t i = 0; op && is_elementwise(op) && i < op->operand_count; i++) {
    const known *from = known_of(f, op->operands[i]);
    if (from->elements == elements(f, value) && from->from_batch + 1 < least)
      least = from->from_batch + 1;
  }
  return (uint8_t)least;
}

// Whether the value comes, in a few steps, from a product for each element of a batch, which writes
// matrices one after the other; other arrays, and the program's results, lie as they need the least
// padding.
static bool is_batch_of_matrices(const fusing *f, const vt_value *value) {
  return known_of(f, value)->from_batch < FAR;
}

static double bytes_of(const fusing *f, const vt_value *value) {
  double *bytes = &f->known[value->id].bytes;
  if (*bytes >= 0) return *bytes;
  bool padded = !f->known[value->id].returned && is_batch_of_matrices(f, value);
  *bytes = padded ? vt_matrices_bytes(f->model->chip, value->type)
                  : vt_kernel_bytes(f->model, value->type);
  return *bytes;
}

static double made_bytes(const fusing *f, const vt_op *op) {
  double bytes = 0;
  for (uint32_t i = 0; i < op->result_count; i++) bytes += bytes_of(f, &op->results[i]);
  return bytes;
}

static vt_kernel_kind kind_of(const vt_op *op) {
  if (is_soft(op)) return VT_KERNEL_LOOP;
  switch ((vt_op_class)vt_op_info_get(op->code)->class) {
  case VT_CLASS_CONTRACT:
    return VT_KERNEL_PRODUCT;
  case VT_CLASS_REDUCE:
    return VT_KERNEL_REDUCE;
  case VT_CLASS_CONTROL:
    return VT_KERNEL_CONTROL;
  case VT_CLASS_COLLECTIVE:
    return VT_KERNEL_COLLECTIVE;
  default:
    break;
  }
  if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE || op->code == VT_OP_SCATTER) return VT_KERNEL_UPDATE;
  return op->code == VT_OP_GATHER ? VT_KERNEL_GATHER : VT_KERNEL_LIBRARY;
}

// ---- groups -------------------------------------------------------------------------------------

static int32_t find(const fusing *f, int32_t g) {
  while (f->groups.data[g].joined != NONE) g = f->groups.data[g].joined;
  return g;
}

static group *group_at(const fusing *f, int32_t g) {
  return &f->groups.data[find(f, g)];
}

static int32_t new_group(fusing *f, const vt_op *op) {
  int32_t order = place_of(op)->order;
  group g = {.kind = kind_of(op), .root = op, .joined = NONE, .order = order, .first = order};
  if (!is_soft(op)) g.hero = op;
  const vt_value *extent = is_reduction(op) && op->operand_count ? op->operands[0] : NULL;
  if (!extent && op->result_count) extent = &op->results[0];
  g.elements = extent ? elements(f, extent) : 0;
  vt_array_push_in(f->arena, &f->groups, g);
  return (int32_t)f->groups.size - 1;
}

// The kernels that read a result of the operator, at most MOST_GROUPS + 1 of them.
typedef struct readers {
  int32_t groups[MOST_GROUPS + 1], count;
  bool returned;
} readers;

static void add_reader(readers *r, int32_t g) {
  for (int32_t i = 0; i < r->count; i++)
    if (r->groups[i] == g) return;
  if (r->count <= MOST_GROUPS) r->groups[r->count++] = g;
}

static void find_readers(const fusing *f, const vt_op *op, readers *r) {
  r->count = 0;
  r->returned = false;
  for (uint32_t i = 0; i < op->result_count; i++) {
    int32_t id = op->results[i].id;
    r->returned = r->returned || f->known[id].returned;
    for (const use *u = f->known[id].uses; u; u = u->next) {
      const place *p = place_of(u->op);
      for (int32_t k = 0; k < p->count; k++) add_reader(r, find(f, p->groups[k]));
    }
  }
}

// Whether what `from` writes reaches `to`, but for what a search with this mark has been through;
// also when the search was given up. What is written after the last operator of `to` is not
// followed, unless with care: that is wrong for a kernel which writes something earlier as well,
// and then there may be a cycle.
static bool search(fusing *f, int32_t from, int32_t to, int32_t mark) {
  group *groups = f->groups.data;
  int32_t stack[MOST_SEARCH], size = 0, seen = 0;
  int32_t end = f->careful ? INT32_MAX : groups[to].order;
  if (groups[from].mark == mark) return false;
  groups[from].mark = mark;
  stack[size++] = from;
  while (size) {
    const group *g = &groups[stack[--size]];
    for (size_t i = 0, count = g->later.size; i < count; i++) {
      int32_t next = g->later.data[i];
      while (groups[next].joined != NONE) next = groups[next].joined;
      if (next == to) return true;
      group *reached = &groups[next];
      if (reached->mark == mark || reached->first > end) continue;
      reached->mark = mark;
      if (size == MOST_SEARCH || ++seen > MOST_SEARCH * 4) return true;
      stack[size++] = next;
    }
  }
  return false;
}

static bool reaches(fusing *f, int32_t from, int32_t to) {
  return search(f, from, to, ++f->marks);
}

// Whether any of them does but `to` itself and `but`.
static bool any_reaches(fusing *f, size_t count, const int32_t *from, int32_t but, int32_t to) {
  int32_t mark = ++f->marks;
  for (size_t i = 0; i < count; i++) {
    int32_t g = find(f, from[i]);
    if (g != to && g != but && search(f, g, to, mark)) return true;
  }
  return false;
}

// Whether the operator reads into the product's own operands, not into what follows it.
static bool feeds_hero(const fusing *f, int32_t g, const vt_op *op) {
  if (f->groups.data[g].kind != VT_KERNEL_PRODUCT) return false;
  const vt_op *hero = f->groups.data[g].hero;
  for (uint32_t r = 0; r < op->result_count; r++)
    for (const use *u = f->known[op->results[r].id].uses; u; u = u->next) {
      const place *p = place_of(u->op);
      if (u->op == hero) return true;
      for (uint32_t left = p->feeding, i = 0; left; left >>= 1, i++)
        if (left & 1 && find(f, p->groups[i]) == g) return true;
    }
  return false;
}

static void join(fusing *f, const vt_op *op, int32_t g) {
  place *p = place_of(op);
  vt_assert(p->count < MOST_GROUPS);
  if (feeds_hero(f, g, op)) p->feeding |= 1u << p->count;
  if (p->count == FEW_GROUPS) {
    p->groups = VT_NEW_ARRAY(f->arena, int32_t, MOST_GROUPS);
    memcpy(p->groups, p->few, sizeof p->few);
  }
  p->groups[p->count++] = g;
  vt_array_push_in(f->arena, &f->groups.data[g].members, op);
  if (p->stored && p->order < f->groups.data[g].first) f->groups.data[g].first = p->order;
}

// ---- decisions ----------------------------------------------------------------------------------

static bool read_once(const fusing *f, const vt_value *value) {
  return !f->known[value->id].returned && f->known[value->id].uses &&
         !f->known[value->id].uses->next;
}

// Whether a reduction sums what the operator converts: it reads that itself.
static bool is_summed(const fusing *f, const vt_op *op) {
  const use *u = op->code == VT_OP_CONVERT ? f->known[op->results[0].id].uses : NULL;
  while (u && !is_reduction(u->op)) u = u->next;
  return u;
}

// Whether all that read the value carry on element by element: they share its kernel.
static bool read_in_step(const fusing *f, const vt_value *value) {
  int32_t count = 0;
  if (f->known[value->id].returned) return false;
  for (const use *u = f->known[value->id].uses; u; u = u->next)
    if (++count > MOST_SIBLINGS || !is_elementwise(u->op) ||
        elements(f, &u->op->results[0]) != elements(f, value) || is_summed(f, u->op))
      return false;
  return true;
}

// Whether the operator carries on, element by element, what a product makes for it.
static bool follows_product_in(const fusing *f, const vt_op *op, int *steps) {
  place *p = place_of(op);
  if (p->follows || --*steps < 0) return p->follows == YES;
  for (uint32_t i = 0; i < op->operand_count && p->follows != YES; i++) {
    const vt_value *from = source(f, op, i);
    if (!from->op || elements(f, from) != elements(f, &op->results[0])) continue;
    bool alone = is_soft(from->op) && (read_once(f, from) || read_in_step(f, from));
    if (is_product(from->op) || (alone && follows_product_in(f, from->op, steps))) p->follows = YES;
  }
  if (!p->follows && *steps >= 0) p->follows = NO; // else nobody knows
  return p->follows == YES;
}

static bool follows_product(const fusing *f, const vt_op *op) {
  int steps = MOST_SEARCH;
  return follows_product_in(f, op, &steps);
}

static double held_within(const fusing *f, const vt_op *op, int depth) {
  double held = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *from = source(f, op, i);
    if (!from->op || is_nothing(from->op) || !read_once(f, from)) continue;
    if (!is_soft(from->op) || is_dear(from->op) || depth > MOST_DEPTH)
      held += bytes_of(f, from);
    else
      held +=
          fmin(bytes_of(f, from), held_within(f, from->op, depth + 1)); // it, or what it is made of
  }
  return held;
}

// Bytes that must be arrays in memory only because the operator is made in several kernels.
static double held_for(const fusing *f, const vt_op *op) {
  place *p = place_of(op);
  if (p->held < 0) p->held = held_within(f, op, 0);
  return p->held;
}

// Whether the value, under whatever shape, is handed to more elements than it has.
static bool is_spread(const fusing *f, const vt_value *value, int depth) {
  for (const use *u = f->known[value->id].uses; u && depth < MOST_DEPTH; u = u->next) {
    if (u->op->code == VT_OP_BROADCAST_IN_DIM &&
        elements(f, &u->op->results[0]) > elements(f, value))
      return true;
    if (u->op->code == VT_OP_RESHAPE && is_spread(f, &u->op->results[0], depth + 1)) return true;
  }
  return false;
}

// A row's or a column's value that is dear to make, or the end of a reduction, is not made again
// for each element that it goes to.
static bool spreads(const fusing *f, const vt_op *op) {
  place *p = place_of(op);
  if (!p->spreads) {
    bool one = elements(f, &op->results[0]) <= 1 || !is_elementwise(op);
    bool is = false;
    for (uint32_t i = 0; i < op->result_count && !one; i++)
      is = is || is_spread(f, &op->results[i], 0);
    p->spreads = is && (is_dear(op) || held_for(f, op) > 0) ? YES : NO;
  }
  return p->spreads == YES;
}

static bool takes_producers(const group *g) {
  return g->kind == VT_KERNEL_LOOP || g->kind == VT_KERNEL_REDUCE || g->kind == VT_KERNEL_PRODUCT ||
         g->kind == VT_KERNEL_UPDATE;
}

// Whether a search that has begun comes to the value for the first time.
static bool is_new(const fusing *f, const vt_value *value) {
  bool is = f->known[value->id].seen != f->searches;
  f->known[value->id].seen = f->searches;
  return is;
}

// An array is stored as it is, not as the wider one that its readers make of it.
static bool widens(const fusing *f, const vt_op *op) {
  return op->code == VT_OP_CONVERT && bytes_of(f, &op->results[0]) > bytes_of(f, source(f, op, 0));
}

// Whether the group changes the operator's result in place: that is an array before.
static bool updates(const fusing *f, int32_t g, const vt_op *op) {
  const vt_op *hero = f->groups.data[g].hero;
  uint32_t count = f->groups.data[g].kind == VT_KERNEL_UPDATE ? vt_updated_by(hero) : 0;
  for (uint32_t i = 0; i < count; i++)
    if (source(f, hero, i) == &op->results[0]) return true;
  return false;
}

// out_feeds: whether it then feeds a product.
static bool can_make(fusing *f, int32_t g, const vt_op *op, bool *out_feeds) {
  if (!takes_producers(&f->groups.data[g]) || updates(f, g, op) || spreads(f, op)) return false;
  if (op->code == VT_OP_CONCATENATE && f->groups.data[g].kind != VT_KERNEL_LOOP) return false;
  *out_feeds = feeds_hero(f, g, op);
  return !*out_feeds || (!is_dear(op) && (widens(f, op) || !follows_product(f, op)));
}

// The array that a reduction sums, or sums powers or products of.
static const vt_value *summed(const fusing *f, const vt_op *op) {
  const vt_value *value = source(f, op, 0);
  for (int steps = 0; steps < MOST_DEPTH && value->op && is_elementwise(value->op); steps++) {
    const vt_value *from = source(f, value->op, 0);
    if (elements(f, from) != elements(f, value)) break;
    value = from;
  }
  return value;
}

// Whether the group reads another reduction over the same array: the two share a kernel, and what
// follows both of them is one of its own.
static bool has_sibling(const fusing *f, const group *g, const vt_op *op) {
  for (size_t i = 0; i < g->members.size; i++)
    for (uint32_t k = 0; k < g->members.data[i]->operand_count; k++) {
      const vt_op *other = source(f, g->members.data[i], k)->op;
      if (other && other != op && is_reduction(other) && summed(f, other) == summed(f, op))
        return true;
    }
  return false;
}

// Whether the group can begin with this product or reduction.
static bool can_begin(const fusing *f, const group *g, const vt_op *op) {
  double made = elements(f, &op->results[0]);
  if (is_product(op))
    return (g->kind == VT_KERNEL_LOOP || (g->kind == VT_KERNEL_REDUCE && is_reduction(g->hero))) &&
           g->elements == made;
  return is_reduction(op) && op->result_count == 1 && g->kind == VT_KERNEL_LOOP && !g->hero &&
         g->elements == made && !has_sibling(f, g, op);
}

static void begin(fusing *f, const vt_op *op, int32_t at) {
  group *g = &f->groups.data[at];
  g->hero = op;
  g->kind = is_product(op) ? VT_KERNEL_PRODUCT : VT_KERNEL_REDUCE;
  if (is_reduction(op)) g->elements = elements(f, op->operands[0]);
  join(f, op, at);
}

// The reader that can write the result for the others, or NONE.
static int32_t writer_among(fusing *f, const vt_op *op, const readers *r) {
  for (int32_t i = 0; i < r->count; i++) {
    int32_t at = r->groups[i];
    const group *g = &f->groups.data[at];
    bool fits = is_soft(op) ? (g->kind == VT_KERNEL_LOOP || g->kind == VT_KERNEL_REDUCE) &&
                                  g->elements == elements(f, &op->results[0]) && !spreads(f, op)
                            : can_begin(f, g, op);
    if (fits && !any_reaches(f, (size_t)r->count, r->groups, at, at)) return at;
  }
  return NONE;
}

static void link_readers(fusing *f, int32_t at, const readers *r) {
  for (int32_t i = 0; i < r->count; i++)
    if (r->groups[i] != at) vt_array_push_in(f->arena, &f->groups.data[at].later, r->groups[i]);
}

// All readers, where there are more than fit in a list.
static void link_all(fusing *f, const vt_op *op, int32_t at) {
  for (uint32_t i = 0; i < op->result_count; i++)
    for (const use *u = f->known[op->results[i].id].uses; u; u = u->next) {
      const place *p = place_of(u->op);
      for (int32_t k = 0; k < p->count; k++)
        if (find(f, p->groups[k]) != at)
          vt_array_push_in(f->arena, &f->groups.data[at].later, find(f, p->groups[k]));
    }
}

static void store(fusing *f, const vt_op *op, const readers *r) {
  int32_t at = r->count <= MOST_GROUPS ? writer_among(f, op, r) : NONE;
  place_of(op)->stored = true;
  if (at != NONE && !is_soft(op)) {
    begin(f, op, at);
  } else {
    if (at == NONE) at = new_group(f, op);
    join(f, op, at);
  }
  if (r->count <= MOST_GROUPS)
    link_readers(f, at, r);
  else
    link_all(f, op, at);
}

// Bytes of the arrays that an operator is made from, as far as they are in memory anyway. Each
// counts once. From `enough` on, it is some number of that size.
static double made_from(const fusing *f, const vt_op *op, double enough, int depth) {
  double bytes = 0;
  for (uint32_t i = 0; i < op->operand_count && bytes < enough; i++) {
    const vt_value *from = source(f, op, i);
    if (!is_new(f, from)) continue;
    bool made = from->op && is_soft(from->op) && !place_of(from->op)->stored;
    bytes += made && depth < MOST_DEPTH ? made_from(f, from->op, enough - bytes, depth + 1)
                                        : bytes_of(f, from);
  }
  return bytes;
}

// A conversion of what is an array anyway is made by each product that wants it, and so is what
// would be a larger array than those it is made from; others are stored as what they convert to.
static bool converts_array(fusing *f, const vt_op *op) {
  f->searches++;
  double bytes = made_bytes(f, op);
  if (op->code != VT_OP_CONVERT) return held_for(f, op) + made_from(f, op, bytes, 0) < bytes;
  const vt_value *from = source(f, op, 0);
  return !from->op || !is_elementwise(from->op);
}

// An exponential is one pass through the transcendental unit: it is made again for each of its
// kernels where what it is made from is an array anyway, and they read less of that than they would
// write and read of the exponentials. So compiled programs have it, as of attention (HLO of v6e).
static bool is_better_again(fusing *f, const vt_op *op, int32_t kernels) {
  if (op->code != VT_OP_EXPONENTIAL) return false;
  f->searches++;
  double bytes = bytes_of(f, &op->results[0]);
  if (bytes <= small_bytes) return false;
  return made_from(f, op, 2 * bytes, 0) * (kernels - 1) < bytes * kernels;
}

// A product of rows in groups picks its rows itself.
static bool picks(const fusing *f, const vt_op *op, const readers *r) {
  bool all = vt_ragged_splits(op) && !r->returned && r->count >= 1 && r->count <= MOST_GROUPS;
  for (int32_t i = 0; i < r->count && all; i++) {
    const group *g = &f->groups.data[r->groups[i]];
    all = g->kind == VT_KERNEL_PRODUCT && vt_op_attr(g->hero, VT_ATTR_RAGGED);
  }
  return all;
}

static void decide_soft(fusing *f, const vt_op *op, const readers *r) {
  bool all = !r->returned && r->count >= 1 && r->count <= MOST_GROUPS, feeds = false;
  for (int32_t i = 0; i < r->count && all; i++) {
    bool this = false;
    all = can_make(f, r->groups[i], op, &this);
    feeds = feeds || this;
  }
  bool once = r->count > 1 && is_elementwise(op) && all && !converts_array(f, op);
  if (once && feeds) all = false;
  if (all && r->count > 1)
    all = (!is_dear(op) || is_better_again(f, op, r->count)) && op->code != VT_OP_CONCATENATE &&
          op->code != VT_OP_PAD &&
          (held_for(f, op) < made_bytes(f, op) || elements(f, &op->results[0]) <= 1);
  if (!all && !picks(f, op, r)) {
    store(f, op, r);
    return;
  }
  for (int32_t i = 0; i < r->count; i++) join(f, op, r->groups[i]);
}

static void decide(fusing *f, const vt_op *op) {
  readers r;
  find_readers(f, op, &r);
  if (!r.count && !r.returned && !vt_op_has_effect(op)) return;
  if (is_soft(op)) {
    decide_soft(f, op, &r);
  } else if (r.count == 1 && !r.returned && can_begin(f, &f->groups.data[r.groups[0]], op)) {
    begin(f, op, r.groups[0]);
  } else {
    store(f, op, &r);
  }
}

// ---- reductions over the same array -------------------------------------------------------------

static bool belongs(const fusing *f, const vt_op *op, int32_t at) {
  const place *p = place_of(op);
  for (int32_t i = 0; i < p->count; i++)
    if (p->groups[i] == at || find(f, p->groups[i]) == at) return true;
  return false;
}

// What both make is made once.
static void merge(fusing *f, int32_t from, int32_t to) {
  group *a = &f->groups.data[to], *b = &f->groups.data[from];
  for (size_t i = 0; i < b->members.size; i++)
    if (!belongs(f, b->members.data[i], to))
      vt_array_push_in(f->arena, &a->members, b->members.data[i]);
  for (size_t i = 0; i < b->later.size; i++)
    vt_array_push_in(f->arena, &a->later, b->later.data[i]);
  if (b->order > a->order) a->order = b->order, a->root = b->root;
  if (b->first < a->first) a->first = b->first;
  if (a->kind == VT_KERNEL_LOOP) a->kind = b->kind, a->hero = b->hero;
  b->joined = to;
}

// Kernels that read the same array in step, one of them to sum it, read it once, as in XLA's
// multi-output fusion.
static void merge_siblings(fusing *f, const vt_value *value) {
  int32_t found[MOST_SIBLINGS], count = 0;
  if (bytes_of(f, value) <= small_bytes) return;
  for (const use *u = f->known[value->id].uses; u && count < MOST_SIBLINGS; u = u->next)
    for (int32_t k = 0; k < place_of(u->op)->count && count < MOST_SIBLINGS; k++) {
      int32_t at = find(f, place_of(u->op)->groups[k]);
      const group *g = &f->groups.data[at];
      bool has = (g->kind != VT_KERNEL_REDUCE && g->kind != VT_KERNEL_LOOP) ||
                 g->elements != elements(f, value);
      for (int32_t i = 0; i < count; i++) has = has || found[i] == at;
      if (!has) found[count++] = at;
    }
  for (int32_t i = 1; i < count; i++)
    for (int32_t j = 0; j < i; j++) {
      int32_t a = find(f, found[i]), b = find(f, found[j]);
      bool sums =
          f->groups.data[a].kind == VT_KERNEL_REDUCE || f->groups.data[b].kind == VT_KERNEL_REDUCE;
      if (a == b || !sums || reaches(f, a, b) || reaches(f, b, a)) continue;
      merge(f, a, b);
      break;
    }
}

// A convolution sums what it makes over positions, as batch normalisation wants it, on the way out.
static void give_sums(fusing *f, int32_t at) {
  if (f->groups.data[at].joined != NONE || f->groups.data[at].kind != VT_KERNEL_PRODUCT ||
      f->groups.data[at].hero->code != VT_OP_CONVOLUTION)
    return;
  double made = elements(f, &f->groups.data[at].hero->results[0]);
  for (size_t i = 0; i < f->groups.data[at].later.size && i < MOST_SIBLINGS; i++) {
    int32_t to = find(f, f->groups.data[at].later.data[i]);
    const group *sums = &f->groups.data[to];
    if (to == at || sums->kind != VT_KERNEL_REDUCE || !is_reduction(sums->hero) ||
        sums->elements != made || elements(f, &sums->hero->results[0]) * SUBLANES > made)
      continue;
    const group *g = &f->groups.data[at];
    bool free = !any_reaches(f, g->later.size, g->later.data, at, to); // no kernel in between
    if (free) merge(f, to, at);
  }
}

static bool has_exponential(const group *g) {
  for (size_t i = 0; i < g->members.size; i++)
    if (g->members.data[i]->code == VT_OP_EXPONENTIAL) return true;
  return false;
}

// A product of rows that a softmax scaled makes their sums itself: the rows stay on the chip
// between the two. What a norm needs comes before.
static void take_in_sums(fusing *f, int32_t at) {
  const group *g = &f->groups.data[at];
  if (g->joined != NONE || g->kind != VT_KERNEL_REDUCE || !g->later.size || !is_reduction(g->hero))
    return;
  int32_t to = find(f, g->later.data[0]);
  for (size_t i = 1; i < g->later.size; i++)
    if (find(f, g->later.data[i]) != to) return;
  const group *product = &f->groups.data[to];
  if (to == at || product->kind != VT_KERNEL_PRODUCT ||
      !(has_exponential(g) || has_exponential(product)))
    return;
  const vt_value *left = product->hero->operands[0], *right = product->hero->operands[1];
  if (g->elements == elements(f, left) || g->elements == elements(f, right)) merge(f, at, to);
}

// ---- the list -----------------------------------------------------------------------------------

static void add_stream(fusing *f, vt_streams *list, const vt_value *value, double bytes) {
  double whole = bytes_of(f, value);
  if (bytes > whole) bytes = whole;
  for (size_t i = 0; i < list->size; i++)
    if (list->data[i].value == value) {
      list->data[i].bytes = fmin(list->data[i].bytes + bytes, whole);
      return;
    }
  vt_stream stream = {value, bytes, whole};
  vt_array_push_in(f->arena, list, stream);
}

// Bytes that move for rows that indices name. Types narrower than a word share it with the rows
// beside theirs, which come along.
static double indexed_bytes(const fusing *f, const vt_value *rows) {
  int32_t bits = (int32_t)vt_dtype_get(rows->type.dtype)->bits;
  return bytes_of(f, rows) * (bits > 0 && bits < 32 ? 32.0 / bits : 1);
}

// What an update writes of an array: the part that it changes, or a copy of all.
static double changed_bytes(const fusing *f, const vt_op *op, uint32_t array) {
  if (vt_update_copies(source(f, op, array))) return bytes_of(f, &op->results[array]);
  if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE) return bytes_of(f, op->operands[1]);
  return indexed_bytes(f, op->operands[array + vt_updated_by(op) + 1]);
}

// What an operator reads of its operand, and what an update writes of its result.
static double read_bytes(const fusing *f, const vt_op *op, uint32_t operand) {
  vt_ragged ragged;
  if (operand < vt_updated_by(op))
    return vt_update_reads(op, source(f, op, operand)) ? changed_bytes(f, op, operand) : 0;
  switch (op->code) {
  case VT_OP_DOT_GENERAL:
    if (operand == 1 && vt_ragged_of(op, &ragged) && !ragged.each)
      return bytes_of(f, op->operands[1]) * ragged.used / ragged.groups;
    return bytes_of(f, op->operands[operand]);
  case VT_OP_SLICE:
  case VT_OP_DYNAMIC_SLICE:
    return bytes_of(f, op->operands[operand]) * (operand ? 1 : vt_slice_share(f->model->chip, op));
  case VT_OP_GATHER:
    return operand ? bytes_of(f, op->operands[operand]) : indexed_bytes(f, &op->results[0]);
  default:
    return bytes_of(f, op->operands[operand]);
  }
}

// How many elements along its dimension are read of a sort's results, if they are the first ones,
// as of top-k; 0: all.
static double kept_of(const fusing *f, const vt_op *op) {
  int64_t kept = 0;
  if (!op || op->code != VT_OP_SORT) return 0;
  int64_t dim = vt_attr_i64(op, VT_ATTR_DIMENSION);
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (f->known[op->results[i].id].returned) return 0;
    for (const use *u = f->known[op->results[i].id].uses; u; u = u->next) {
      if (u->op->code != VT_OP_SLICE || vt_attr_ints(u->op, VT_ATTR_START_INDICES, NULL)[dim])
        return 0;
      int64_t limit = vt_attr_ints(u->op, VT_ATTR_LIMIT_INDICES, NULL)[dim];
      if (limit > kept) kept = limit;
    }
  }
  return (double)kept;
}

static double write_bytes(const fusing *f, const vt_op *op, uint32_t result) {
  double kept = kept_of(f, op);
  if (kept > 0)
    return bytes_of(f, &op->results[result]) * kept /
           (double)op->results[result].type.dims[vt_attr_i64(op, VT_ATTR_DIMENSION)];
  return vt_updated_by(op) ? changed_bytes(f, op, result) : bytes_of(f, &op->results[result]);
}

// Whether the kernel is the only one that reads what it made.
static bool stays_inside(const fusing *f, const vt_value *value, int32_t at) {
  if (f->known[value->id].returned || !f->known[value->id].uses) return false;
  for (const use *u = f->known[value->id].uses; u; u = u->next) {
    const place *p = place_of(u->op);
    for (int32_t i = 0; i < p->count; i++)
      if (find(f, p->groups[i]) != at) return false;
  }
  return true;
}

static void add_streams(fusing *f, vt_kernel *kernel, const vt_op *op, int32_t at) {
  bool runs = kernel->kind == VT_KERNEL_CONTROL;
  const bool *unread = place_of(op)->unread;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *from = source(f, op, i);
    if (from->type.dtype == VT_TOKEN || (unread && unread[i])) continue;
    if (from->op && (is_nothing(from->op) || belongs(f, from->op, at))) {
      const vt_literal *literal =
          from->op->code == VT_OP_CONSTANT ? vt_attr_literal(from->op, VT_ATTR_VALUE) : NULL;
      if (!literal || literal->splat) continue;
    }
    add_stream(f, &f->reads, from, runs ? 0 : read_bytes(f, op, i));
  }
  if (!place_of(op)->stored) return;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (op->results[i].type.dtype != VT_TOKEN && !stays_inside(f, &op->results[i], at) &&
        !(op->code == VT_OP_WHILE && vt_loop_keeps(op, i)))
      add_stream(f, &f->writes, &op->results[i], runs ? 0 : write_bytes(f, op, i));
}

static vt_kernel_list *list_of(const fusing *around, const vt_scope *scope, vt_func *func);

static void run_inside(fusing *f, vt_kernel *kernel) {
  const vt_op *op = kernel->hero;
  vt_func *callee = vt_op_callee(op);
  kernel->inside_count = callee ? 1 : op->region_count;
  kernel->inside = VT_NEW_ARRAY(f->arena, vt_kernel_list *, kernel->inside_count + 1);
  for (uint32_t i = 0; i < kernel->inside_count; i++) {
    vt_func *func = callee ? callee : op->regions[i];
    kernel->inside[i] = list_of(f, &(vt_scope){f->scope, op, func}, func);
  }
}

// A copy of what one kernel reads or writes.
static vt_streams kept(const fusing *f, const vt_streams *from) {
  vt_streams list = {vt_arena_push_raw(f->arena, sizeof *from->data * from->size), from->size,
                     from->size};
  if (from->size) memcpy(list.data, from->data, sizeof *from->data * from->size);
  return list;
}

static void finish(fusing *f, int32_t at, vt_kernel *kernel) {
  const group *g = &f->groups.data[at];
  *kernel = (vt_kernel){.kind = g->kind,
                        .root = g->root,
                        .hero = g->hero,
                        .members = {g->members.data, g->members.size},
                        .kept = kept_of(f, g->hero)};
  f->reads.size = f->writes.size = 0;
  for (size_t i = 0; i < g->members.size; i++) add_streams(f, kernel, g->members.data[i], at);
  kernel->reads = kept(f, &f->reads);
  kernel->writes = kept(f, &f->writes);
  if (g->kind == VT_KERNEL_CONTROL) {
    run_inside(f, kernel);
  } else if (g->kind == VT_KERNEL_COLLECTIVE) {
    kernel->network_s = vt_network_seconds(f->model, g->hero);
    kernel->windows = vt_network_windows(f->model, g->hero);
  } else {
    vt_kernel_work(f->model, f->scope, kernel);
  }
}

static void sift(const fusing *f, int32_t *heap, int32_t count, int32_t at) {
  for (int32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count &&
        f->groups.data[heap[child + 1]].order < f->groups.data[heap[child]].order)
      child++;
    if (f->groups.data[heap[at]].order <= f->groups.data[heap[child]].order) return;
    int32_t t = heap[at];
    heap[at] = heap[child], heap[child] = t;
  }
}

static void raise_up(const fusing *f, int32_t *heap, int32_t at) {
  for (; at; at = (at - 1) / 2) {
    int32_t up = (at - 1) / 2;
    if (f->groups.data[heap[up]].order <= f->groups.data[heap[at]].order) return;
    int32_t t = heap[at];
    heap[at] = heap[up], heap[up] = t;
  }
}

// In the order of their last operators, as far as they do not wait for each other.
static bool list_kernels(fusing *f, vt_kernel_list *list) {
  int32_t total = (int32_t)f->groups.size, ready = 0;
  int32_t *heap = VT_NEW_ARRAY(f->arena, int32_t, total + 1);
  for (int32_t i = 0; i < total; i++) {
    group *g = &f->groups.data[i];
    if (g->joined != NONE) continue;
    list->count++;
    for (size_t k = 0; k < g->later.size; k++)
      if (find(f, g->later.data[k]) != i) group_at(f, g->later.data[k])->waits++;
  }
  list->kernels = VT_NEW_ARRAY(f->arena, vt_kernel, list->count + 1);
  for (int32_t i = 0; i < total; i++)
    if (f->groups.data[i].joined == NONE && !f->groups.data[i].waits) {
      heap[ready] = i;
      raise_up(f, heap, ready++);
    }
  uint32_t done = 0;
  while (ready) {
    int32_t at = heap[0];
    heap[0] = heap[--ready];
    sift(f, heap, ready, 0);
    finish(f, at, &list->kernels[done++]);
    for (size_t k = 0; k < f->groups.data[at].later.size; k++) {
      int32_t next = find(f, f->groups.data[at].later.data[k]);
      if (next == at || --f->groups.data[next].waits) continue;
      heap[ready] = next;
      raise_up(f, heap, ready++);
    }
  }
  return done == list->count;
}

static void learn(const fusing *f, const vt_value *value) {
  known *k = known_of(f, value);
  const vt_op *op = value->op;
  bool handed = op && (place_of(op)->traits & VT_TRAIT_HANDING || vt_kernel_keeps(value));
  *k = (known){.source = handed ? source(f, op, (uint32_t)value->index) : value,
               .elements = (double)vt_type_elements(value->type),
               .bytes = -1};
  k->from_batch = steps_from_batch(f, value); // looks at the elements
}

static void prepare(fusing *f) {
  vt_func *func = f->func;
  use *next = NULL, *end = NULL;
  vt_func_number(func);
  f->op_count = func->op_count;
  size_t values = (size_t)func->value_count + 1, ops = (size_t)f->op_count + 1;
  f->known = vt_arena_push_raw(f->arena, sizeof *f->known * values); // learned one by one
  f->ops = vt_arena_push_raw(f->arena, sizeof *f->ops * ops);
  place *p = vt_arena_push_raw(f->arena, sizeof *p * ops);
  int32_t at = 0;
  for (uint32_t i = 0; i < func->param_count; i++) learn(f, func->params[i]);
  for (vt_op *op = func->first; op; op = op->next, p++) {
    *p = (place){.groups = p->few, .order = at, .held = -1, .traits = vt_kernel_traits(op)};
    if (vt_op_is_elementwise_call(op) && vt_kernel_body(f->model, op)->dear)
      p->traits |= VT_TRAIT_DEAR;
    f->ops[at++] = op;
    op->note = p;
    for (uint32_t i = 0; i < op->result_count; i++) learn(f, &op->results[i]);
    if (p->traits & VT_TRAIT_HANDING) continue;
    if (op->code == VT_OP_WHILE) p->unread = vt_loop_unread(op, f->arena);
    for (uint32_t i = 0; i < op->operand_count; i++) {
      known *from = known_of(f, source(f, op, i));
      if (p->unread && p->unread[i]) continue;
      if (from->uses && from->uses->op == op) continue;
      if (next == end) {
        next = vt_arena_push_raw(f->arena, sizeof(use) * MOST_USES);
        end = next + MOST_USES;
      }
      *next = (use){op, from->uses};
      from->uses = next++;
    }
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    known_of(f, known_of(f, func->returns[i])->source)->returned = true;
}

// errors: false, some kernels wait for each other
static bool make(fusing *f, vt_kernel_list *list) {
  *list = (vt_kernel_list){.func = f->func};
  prepare(f);
  for (int32_t i = f->op_count; i-- > 0;)
    if (!is_nothing(f->ops[i])) decide(f, f->ops[i]);
  for (uint32_t i = 0; i < f->func->param_count; i++) merge_siblings(f, f->func->params[i]);
  for (int32_t i = 0; i < f->op_count; i++)
    if (place_of(f->ops[i])->stored)
      for (uint32_t r = 0; r < f->ops[i]->result_count; r++)
        merge_siblings(f, &f->ops[i]->results[r]);
  for (int32_t i = 0; i < (int32_t)f->groups.size; i++) {
    take_in_sums(f, i);
    give_sums(f, i);
  }
  return list_kernels(f, list);
}

static vt_kernel_list *list_of(const fusing *around, const vt_scope *scope, vt_func *func) {
  vt_kernel_list *list = VT_NEW(around->arena, vt_kernel_list);
  fusing first = {.model = around->model, .scope = scope, .arena = around->arena, .func = func};
  fusing again = first;
  again.careful = true;
  bool listed = make(&first, list) || make(&again, list);
  vt_assert(listed);
  (void)listed; // where asserts are nothing
  return list;
}

vt_kernel_list *vt_kernels_make(const vt_device_model *model, const vt_scope *scope, vt_func *func,
                                vt_arena *arena) {
  return list_of(&(fusing){.model = model, .arena = arena}, scope, func);
}
