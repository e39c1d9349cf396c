// SPDX-License-Identifier: Apache-2.0
// image_layout.c - see image_layout.h.
//
// Fast convolutions want the features of a pixel next to each other. PyTorch's programs have images
// as N,C,H,W, and each convolution alone would reorder what it reads and writes. Here the arrays
// around convolutions are stored in the wanted order from the first to the last operator.
//
// An order says for a value which of its dimensions each dimension of the stored array is. It
// spreads from the images of a convolution to all values whose operators can work in it as well
// (elementwise ones, sums, windows, ...), and through convolutions to the next ones: a cluster.
// Values that cannot be made in another order (parameters, what a library makes) are transposed
// where a reader wants them so. A cluster is kept when what its convolutions no longer reorder is
// more than these transposes move.
//
// Of weights and their gradients only the convolution's own operand or result is transposed.
//
// Requirement: an operator that depends on the order of elements (sums of floats may not,
// docs/algebra.md) sees them in the order of the program: `accepts`.
#include "host/image_layout.h"

#include <string.h>

#include "base/array.h"
#include "base/check.h"
#include "passes/rewrite.h"

enum { LEAST_RANK = 3, MOST_RANK = 6, LHS = 0, RHS = 1, OUT = 2 };

// Dimension i of the stored array is dimension at[i] of the value. NULL: as written.
typedef struct order {
  int32_t rank;
  int64_t at[MOST_RANK];
} order;

// A convolution, in its op's note.
typedef struct conv {
  uint32_t cluster;       // 0: none
  bool gradient;          // of weights: both operands are images
  bool swaps;             // its sides change places
  const order *wanted[3]; // of LHS, RHS and OUT
} conv;

typedef struct turned {
  struct turned *next;
  const order *in;
  vt_value *value;
} turned;

typedef struct balance {
  int64_t saved, moved; // bytes
  bool kept;
} balance;

typedef struct layout {
  vt_func *func;
  vt_arena *arena; // for this pass
  const vt_image_options *options;
  // By value id: its type as written, the order that it is to have, its cluster, where it is stored
  // and in which order, copies in others, and its readers, ended by NULL.
  vt_type *types;
  const order **wanted;
  uint32_t *cluster_of;
  vt_value **stored;
  const order **made;
  turned **copies;
  vt_op ***users;
  VT_ARRAY(vt_value *) queue;
  VT_ARRAY(balance) clusters; // [0] is not used
  bool counting;              // what would be moved; nothing is changed
} layout;

// ---- Orders.

static const order *new_order(layout *l, int32_t rank, const int64_t *at) {
  bool plain = true;
  for (int32_t i = 0; i < rank; i++) plain &= at[i] == i;
  if (plain) return NULL;
  order *o = VT_NEW(l->arena, order);
  o->rank = rank;
  memcpy(o->at, at, sizeof *at * (size_t)rank);
  return o;
}

static bool same_order(const order *a, const order *b) {
  return a == b || (a && b && !memcmp(a->at, b->at, sizeof *a->at * (size_t)a->rank));
}

static int64_t at(const order *o, int64_t i) {
  return o ? o->at[i] : i;
}

// Where dimension d of the value is in the stored array.
static int64_t place(const order *o, int64_t d) {
  int64_t i = 0;
  while (o && o->at[i] != d) i++;
  return o ? i : d;
}

// Whether only dimensions of size 1 lie differently.
static bool lies_alike(vt_type type, const order *a, const order *b) {
  int32_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < type.rank && type.dims[at(a, i)] == 1) i++;
    while (j < type.rank && type.dims[at(b, j)] == 1) j++;
    if (i == type.rank || j == type.rank) return i == j;
    if (at(a, i) != at(b, j)) return false;
  }
}

static vt_type stored_type(layout *l, vt_type type, const order *o) {
  int64_t dims[VT_MAX_RANK];
  for (int32_t i = 0; i < type.rank; i++) dims[i] = type.dims[at(o, i)];
  return vt_type_make(&l->func->module->arena, type.dtype, type.rank, dims);
}

// ---- Which operators can work in another order, and what that says of their other values.

static bool is_leaf(const vt_op *op) {
  return op && (op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA ||
                op->code == VT_OP_BROADCAST_IN_DIM);
}

// Operands [0, count) have the dimensions of the first result, or of the first operand of a reduce.
// Elementwise: those that are no scalars.
static uint32_t tied_operands(const vt_op *op) {
  switch (op->code) {
  case VT_OP_PAD:
  case VT_OP_SLICE:
  case VT_OP_REVERSE:
  case VT_OP_DYNAMIC_SLICE:
    return 1;
  case VT_OP_DYNAMIC_UPDATE_SLICE:
  case VT_OP_SELECT_AND_SCATTER:
    return 2;
  case VT_OP_CONCATENATE:
    return op->operand_count;
  case VT_OP_REDUCE:
  case VT_OP_REDUCE_WINDOW:
    return op->result_count;
  default:
    return vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE ? op->operand_count : 0;
  }
}

static bool is_tied(const vt_op *op, uint32_t operand) {
  return operand < tied_operands(op) && op->operands[operand]->type.rank > 0;
}

// The computation of one operator that takes its operands in any order.
static bool is_commutative(const vt_func *body) {
  const vt_op *op = body->first;
  return body->param_count == 2 && op && !op->next && op->operand_count == 2 &&
         op->operands[0] != op->operands[1] && (vt_op_info_get(op->code)->flags & VT_OPF_COMM);
}

// Whether the dimensions that `many` marks keep their order.
static bool keeps(const order *o, const bool *many) {
  int64_t last = -1;
  for (int32_t i = 0; i < o->rank; i++) {
    if (!many[o->at[i]]) continue;
    if (o->at[i] < last) return false;
    last = o->at[i];
  }
  return true;
}

// Whether `op` does the same with its tied values in this order.
static bool accepts(const vt_op *op, const order *o) {
  bool many[MOST_RANK] = {false};
  uint32_t count;
  switch (op->code) {
  case VT_OP_REDUCE: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) many[dims[i]] = true;
    break;
  }
  case VT_OP_REDUCE_WINDOW:
  case VT_OP_SELECT_AND_SCATTER: {
    const int64_t *window = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) many[i] = window[i] != 1;
    break;
  }
  case VT_OP_CONSTANT:
  case VT_OP_IOTA:
  case VT_OP_BROADCAST_IN_DIM:
    return true;
  default:
    return tied_operands(op) > 0 && op->result_count == 1;
  }
  return keeps(o, many) || (op->code != VT_OP_SELECT_AND_SCATTER && op->result_count == 1 &&
                            is_commutative(op->regions[0]));
}

// Groups of dimensions of `from` and `to` with equal products, dimensions of size 1 aside: the
// number of each dimension's group. False when a size is 0.
static bool group_dims(vt_type from, vt_type to, int32_t *from_group, int32_t *to_group) {
  int32_t i = 0, j = 0, group = 0;
  for (;; group++) {
    while (i < from.rank && from.dims[i] == 1) from_group[i++] = -1;
    while (j < to.rank && to.dims[j] == 1) to_group[j++] = -1;
    if (i == from.rank || j == to.rank) return i == from.rank && j == to.rank;
    int64_t a = from.dims[i], b = to.dims[j];
    if (!a || !b) return false;
    from_group[i++] = to_group[j++] = group;
    while (a != b) {
      bool longer = a < b;
      if (longer ? i == from.rank : j == to.rank) return false;
      if (longer) {
        a *= from.dims[i];
        from_group[i++] = group;
      } else {
        b *= to.dims[j];
        to_group[j++] = group;
      }
    }
  }
}

// The order of a value of type `to` whose stored array is, reshaped, that of a value of type `from`
// in order `o`. False when there is none.
static bool through_reshape(layout *l, vt_type from, const order *o, vt_type to,
                            const order **out) {
  int32_t from_group[VT_MAX_RANK], to_group[VT_MAX_RANK], count = 0;
  int64_t list[VT_MAX_RANK], last[VT_MAX_RANK];
  if (to.rank > MOST_RANK || from.rank > MOST_RANK || !group_dims(from, to, from_group, to_group))
    return false;
  for (int32_t g = 0; g < from.rank; g++) last[g] = -1;
  for (int32_t i = 0, before = -1; i < from.rank; i++) {
    int64_t d = at(o, i);
    int32_t g = from_group[d];
    if (g < 0) continue;
    if (d < last[g] || (last[g] >= 0 && g != before)) return false; // torn, or in another order
    if (last[g] < 0)
      for (int32_t j = 0; j < to.rank; j++) {
        if (to_group[j] != g) continue;
        list[count++] = j;
        while (j + 1 < to.rank && to_group[j + 1] < 0) list[count++] = ++j; // size 1
      }
    last[g] = d, before = g;
  }
  int64_t whole[VT_MAX_RANK];
  int32_t lead = 0; // leading ones
  while (lead < to.rank && to_group[lead] < 0) whole[lead] = lead, lead++;
  for (int32_t i = 0; i < count; i++) whole[lead + i] = list[i];
  if (lead + count != to.rank) return false;
  *out = new_order(l, to.rank, whole);
  return true;
}

static bool is_identity_broadcast(const vt_op *op) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  if ((int32_t)count != op->results[0].type.rank) return false;
  for (uint32_t i = 0; i < count; i++)
    if (dims[i] != i) return false;
  return true;
}

// ---- Convolutions.

static const order *order_of(layout *l, int64_t first, const int64_t *spatial, int32_t count,
                             int64_t last, bool spatial_first) {
  int64_t list[MOST_RANK];
  int32_t n = 0;
  if (!spatial_first) list[n++] = first;
  for (int32_t i = 0; i < count; i++) list[n++] = spatial[i];
  if (spatial_first) list[n++] = first;
  list[n++] = last;
  return new_order(l, n, list);
}

static int64_t product(vt_type type, const int64_t *dims, uint32_t count) {
  int64_t size = 1;
  for (uint32_t i = 0; i < count; i++) size *= type.dims[dims[i]];
  return size;
}

static bool all(const int64_t *numbers, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (numbers[i] != value) return false;
  return true;
}

// Of images N is the first dimension: where it is what the convolution sums over, both operands are
// images.
static bool is_weight_gradient(const vt_op *op) {
  uint32_t count;
  const int64_t *kernel = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &count);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  int64_t taps = product(op->operands[RHS]->type, kernel, count);
  int64_t pixels = product(op->results[0].type, out, count);
  return vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) > 1 ||
         (taps >= pixels && vt_attr_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION) >
                                vt_attr_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION));
}

// Weights that strips can lay out as they lie have one of their features innermost.
static const order *weight_order(layout *l, const vt_op *op) {
  uint32_t count;
  const vt_type type = op->operands[RHS]->type;
  int64_t in = vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION);
  int64_t out = vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
  const int64_t *spatial = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &count);
  int64_t last = type.rank - 1;
  while (last > 0 && type.dims[last] == 1) last--;
  bool strips = l->options->strips && type.dtype == VT_BF16 && count <= 2 &&
                op->operands[LHS]->type.dtype == VT_BF16 &&
                vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT) == 1 &&
                vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) == 1 &&
                all(vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL), count, 1);
  if (!strips || last == in || last == out) return NULL;
  bool odd = in > out && type.dims[in] % 2; // a pixel of an odd number of features is padded
  if (odd) return order_of(l, in, spatial, (int32_t)count, out, true);
  return order_of(l, in < out ? in : out, spatial, (int32_t)count, in < out ? out : in, false);
}

// Convolutions of few features read lines (conv_lines.h).
static bool reads_lines(const vt_op *op) {
  enum { FEW = 16 };
  int64_t in = vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION);
  int64_t out = vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
  const int64_t *dims = op->operands[RHS]->type.dims;
  return vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT) == 1 && dims[in] * dims[out] <= FEW;
}

// The gradient of weights of one pixel that are stored by output feature: both sides change places.
static bool swaps_sides(const vt_op *op, const conv *c) {
  uint32_t count;
  const int64_t *in = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &count);
  const int64_t *kernel = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  const vt_attr *precision = vt_op_attr(op, VT_ATTR_PRECISION_CONFIG);
  vt_type image = op->operands[LHS]->type, other = op->operands[RHS]->type;
  if (!c->gradient || product(op->results[0].type, out, count) != 1 ||
      !all(vt_attr_ints(op, VT_ATTR_PADDING, NULL), 2 * count, 0) ||
      !all(vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL), count, 1) ||
      !all(vt_attr_ints(op, VT_ATTR_RHS_DILATION, NULL), count, 1) ||
      !all(vt_attr_ints(op, VT_ATTR_WINDOW_REVERSAL, NULL), count, 0) ||
      vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT) != 1 ||
      vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT) != 1 || image.dtype != other.dtype ||
      (precision && precision->count == 2 && precision->ints[0] != precision->ints[1]))
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (image.dims[in[i]] != other.dims[kernel[i]]) return false;
  return vt_attr_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION) >
         vt_attr_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION);
}

static conv *read_conv(layout *l, const vt_op *op) {
  uint32_t count;
  int32_t rank = op->results[0].type.rank;
  if (rank < LEAST_RANK || rank > MOST_RANK) return NULL;
  conv *c = VT_NEW(l->arena, conv);
  c->gradient = is_weight_gradient(op);
  if (!c->gradient && reads_lines(op)) return NULL;
  for (int t = LHS; t <= OUT; t++) {
    int64_t a = vt_attr_i64(op, vt_conv_dim_keys[t][0]);
    int64_t b = vt_attr_i64(op, vt_conv_dim_keys[t][1]);
    const int64_t *spatial = vt_attr_ints(op, vt_conv_dim_keys[t][2], &count);
    bool swapped = c->gradient && t == LHS;
    c->wanted[t] = order_of(l, swapped ? b : a, spatial, (int32_t)count, swapped ? a : b,
                            c->gradient && t == OUT);
  }
  c->swaps = swaps_sides(op, c);
  if (!c->gradient) c->wanted[RHS] = weight_order(l, op);
  if (c->swaps) c->wanted[OUT] = NULL;
  return c;
}

// The value that is image `i` of two.
static const vt_value *image_of(const vt_op *op, const conv *c, int i, int *out_tensor) {
  *out_tensor = !i ? LHS : c->gradient ? RHS : OUT;
  return *out_tensor == OUT ? &op->results[0] : op->operands[*out_tensor];
}

// ---- Spreading.

// Whether the op that makes `value` can make it in this order.
static bool can_make(layout *l, const vt_value *value, const order *o) {
  const vt_op *op = value->op;
  const order *before;
  switch (op->code) {
  case VT_OP_CONVOLUTION: {
    const conv *c = op->note;
    return c && !c->gradient;
  }
  case VT_OP_TRANSPOSE:
  case VT_OP_OPTIMIZATION_BARRIER:
    return true;
  case VT_OP_RESHAPE:
    return through_reshape(l, value->type, o, op->operands[0]->type, &before);
  case VT_OP_REDUCE:
    return false;
  default:
    return accepts(op, o);
  }
}

static void put(layout *l, vt_value *value, const order *o, uint32_t cluster) {
  if (!o || !value->op || value->type.rank != o->rank || l->wanted[value->id] ||
      !can_make(l, value, o))
    return;
  l->wanted[value->id] = o;
  l->cluster_of[value->id] = cluster;
  vt_array_push_in(l->arena, &l->queue, value);
}

static void enter_conv(layout *l, vt_op *op, uint32_t cluster) {
  conv *c = op->note;
  if (!c || c->cluster) return;
  c->cluster = cluster;
  for (int i = 0; i < 2; i++) {
    int t;
    const vt_value *image = image_of(op, c, i, &t);
    put(l, (vt_value *)(uintptr_t)image, c->wanted[t], cluster);
  }
}

// The order of transpose's result that makes it the identity, or of its operand.
static const order *through_transpose(layout *l, const vt_op *op, const order *o, bool forward) {
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  int64_t list[MOST_RANK];
  for (int32_t i = 0; i < o->rank; i++) {
    list[i] = permutation[o->at[i]];
    for (int32_t d = 0; forward && d < o->rank; d++)
      if (permutation[d] == o->at[i]) list[i] = d;
  }
  return new_order(l, o->rank, list);
}

// Goes on from `value` through an op that reads or makes it.
static void spread_through(layout *l, vt_op *op, const vt_value *value, uint32_t cluster) {
  const order *o = l->wanted[value->id], *other;
  bool made = value->op == op;
  switch (op->code) {
  case VT_OP_CONVOLUTION: {
    const conv *c = op->note;
    int t;
    for (int i = 0; c && i < 2; i++)
      if (image_of(op, c, i, &t) == value) enter_conv(l, op, cluster);
    return;
  }
  case VT_OP_TRANSPOSE:
    put(l, made ? op->operands[0] : &op->results[0], through_transpose(l, op, o, !made), cluster);
    return;
  case VT_OP_RESHAPE: {
    vt_value *to = made ? op->operands[0] : &op->results[0];
    if (through_reshape(l, value->type, o, to->type, &other) && to->type.rank >= LEAST_RANK)
      put(l, to, other, cluster);
    return;
  }
  case VT_OP_BROADCAST_IN_DIM:
    if (is_identity_broadcast(op)) put(l, made ? op->operands[0] : &op->results[0], o, cluster);
    return;
  case VT_OP_OPTIMIZATION_BARRIER:
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (made ? value == &op->results[i] : value == op->operands[i])
        put(l, made ? op->operands[i] : &op->results[i], o, cluster);
    return;
  default:
    break;
  }
  bool tied = made;
  for (uint32_t i = 0; i < op->operand_count; i++)
    tied |= op->operands[i] == value && is_tied(op, i);
  if (!tied || !accepts(op, o)) return;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (is_tied(op, i)) put(l, op->operands[i], o, cluster);
  if (op->code != VT_OP_REDUCE)
    for (uint32_t i = 0; i < op->result_count; i++) put(l, &op->results[i], o, cluster);
}

static void spread(layout *l, vt_op *root) {
  uint32_t cluster = (uint32_t)l->clusters.size;
  vt_array_push_in(l->arena, &l->clusters, (balance){0});
  enter_conv(l, root, cluster);
  for (size_t i = 0; i < l->queue.size; i++) {
    vt_value *value = l->queue.data[i];
    spread_through(l, value->op, value, cluster);
    for (vt_op **user = l->users[value->id]; *user; user++)
      spread_through(l, *user, value, cluster);
  }
  l->queue.size = 0;
}

// Elementwise ops at the border that read more than they write (roundings, masks) work before the
// transpose.
static void narrow_border(layout *l) {
  for (vt_op *op = l->func->first; op; op = op->next) {
    if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) || !l->wanted[op->results[0].id])
      continue;
    int64_t bytes = 0;
    bool inside = false;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      const vt_value *value = op->operands[i];
      if (!is_tied(op, i)) continue;
      inside |= l->wanted[value->id] && !is_leaf(value->op);
      if (!l->wanted[value->id]) bytes += vt_type_bytes(value->type);
    }
    if (!inside && bytes >= vt_type_bytes(op->results[0].type) && bytes)
      l->wanted[op->results[0].id] = NULL;
  }
}

// ---- What each op reads and makes.

typedef struct needs {
  const order **in, **out; // of operands and results
} needs;

static void need_conv(const layout *l, const vt_op *op, needs *n) {
  const conv *c = op->note;
  if (!c || !c->cluster) return;
  for (int t = LHS; t <= RHS; t++) {
    bool image = t == LHS || c->gradient;
    const order *made = l->made[op->operands[t]->id];
    n->in[t] = image && made ? made : c->wanted[t];
  }
  n->out[0] = c->gradient ? c->wanted[OUT] : l->wanted[op->results[0].id];
}

static void need_dot(const layout *l, const vt_op *op, needs *n) {
  static const vt_attr_key keys[2][2] = {
      {VT_ATTR_LHS_BATCHING_DIMENSIONS, VT_ATTR_LHS_CONTRACTING_DIMENSIONS},
      {VT_ATTR_RHS_BATCHING_DIMENSIONS, VT_ATTR_RHS_CONTRACTING_DIMENSIONS}};
  for (uint32_t side = 0; side < 2; side++) {
    const order *made = l->made[op->operands[side]->id];
    bool free[MOST_RANK];
    if (!made) continue;
    for (int32_t d = 0; d < made->rank; d++) free[d] = true;
    for (int k = 0; k < 2; k++) {
      uint32_t count;
      const int64_t *dims = vt_attr_ints(op, keys[side][k], &count);
      for (uint32_t i = 0; i < count; i++) free[dims[i]] = false;
    }
    if (keeps(made, free)) n->in[side] = made;
  }
}

// Results lie as the dimensions that are left do.
static void need_reduce(layout *l, const vt_op *op, needs *n) {
  const order *o = l->made[op->operands[0]->id];
  if (!o || !accepts(op, o)) return;
  bool gone[MOST_RANK] = {false};
  int64_t result_of[MOST_RANK], list[MOST_RANK], left = 0, count = 0;
  uint32_t dims;
  const int64_t *reduced = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &dims);
  for (uint32_t i = 0; i < dims; i++) gone[reduced[i]] = true;
  for (int32_t d = 0; d < o->rank; d++) result_of[d] = gone[d] ? -1 : left++;
  for (int32_t i = 0; i < o->rank; i++)
    if (!gone[o->at[i]]) list[count++] = result_of[o->at[i]];
  const order *out = new_order(l, (int32_t)count, list);
  for (uint32_t i = 0; i < op->result_count; i++) n->in[i] = o, n->out[i] = out;
}

static void need_reshape(layout *l, const vt_op *op, needs *n) {
  const vt_value *from = op->operands[0], *to = &op->results[0];
  const order *o = l->wanted[to->id], *made = l->made[from->id];
  if (o && through_reshape(l, to->type, o, l->types[from->id], &n->in[0])) {
    n->out[0] = o;
  } else if (made && through_reshape(l, l->types[from->id], made, to->type, &n->out[0])) {
    n->in[0] = made;
  } else {
    n->in[0] = n->out[0] = NULL;
  }
}

static needs needs_of(layout *l, const vt_op *op) {
  needs n = {VT_NEW_ARRAY(l->arena, const order *, op->operand_count + 1),
             VT_NEW_ARRAY(l->arena, const order *, op->result_count + 1)};
  switch (op->code) {
  case VT_OP_CONVOLUTION:
    need_conv(l, op, &n);
    break;
  case VT_OP_DOT_GENERAL:
    need_dot(l, op, &n);
    break;
  case VT_OP_REDUCE:
    need_reduce(l, op, &n);
    break;
  case VT_OP_RESHAPE:
    need_reshape(l, op, &n);
    break;
  case VT_OP_TRANSPOSE:
  case VT_OP_BROADCAST_IN_DIM:
    n.in[0] = l->made[op->operands[0]->id];
    n.out[0] = l->wanted[op->results[0].id];
    break;
  default:
    for (uint32_t i = 0; i < op->result_count; i++)
      n.out[i] = l->wanted[op->results[op->code == VT_OP_OPTIMIZATION_BARRIER ? i : 0].id];
    for (uint32_t i = 0; i < op->operand_count && op->result_count; i++)
      if (op->code == VT_OP_OPTIMIZATION_BARRIER)
        n.in[i] = n.out[i];
      else if (is_tied(op, i))
        n.in[i] = n.out[0];
  }
  return n;
}

// ---- Rewriting.

// Takes the permutation's dimension `d` of an attribute to where it is now.
static void map_dims(vt_op *op, vt_attr_key key, const order *o, bool sorted) {
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, key, &count);
  int64_t list[VT_MAX_RANK];
  for (uint32_t i = 0; i < count; i++) {
    uint32_t k = i;
    int64_t d = place(o, dims[i]);
    for (; sorted && k > 0 && list[k - 1] > d; k--) list[k] = list[k - 1];
    list[k] = d;
  }
  vt_op_set_ints(op, key, count, list);
}

// A list with `each` numbers a dimension.
static void turn_list(vt_op *op, vt_attr_key key, const order *o, int32_t each) {
  if (!vt_op_attr(op, key)) return;
  uint32_t count;
  const int64_t *old = vt_attr_ints(op, key, &count);
  int64_t list[2 * MOST_RANK];
  vt_assert((int32_t)count == each * o->rank);
  for (int32_t i = 0; i < o->rank; i++)
    for (int32_t k = 0; k < each; k++) list[i * each + k] = old[o->at[i] * each + k];
  vt_op_set_ints(op, key, count, list);
}

static void turn_operands(vt_op *op, uint32_t first, const order *o) {
  vt_value *old[MOST_RANK];
  for (int32_t i = 0; i < o->rank; i++) old[i] = op->operands[first + (uint32_t)i];
  for (int32_t i = 0; i < o->rank; i++) op->operands[first + (uint32_t)i] = old[o->at[i]];
}

static void turn_literal(layout *l, vt_op *op, const order *o) {
  vt_arena *arena = &l->func->module->arena;
  const vt_literal *from = vt_attr_literal(op, VT_ATTR_VALUE);
  vt_literal *to = VT_NEW(arena, vt_literal);
  *to = (vt_literal){stored_type(l, from->type, o), from->data, from->splat};
  if (!from->splat) {
    size_t bytes = vt_dtype_bytes(from->type.dtype);
    int64_t strides[VT_MAX_RANK], count = vt_type_elements(from->type);
    char *data = vt_arena_push_aligned(arena, bytes * (size_t)count + 128, 64);
    vt_type_strides(from->type, strides);
    for (int64_t i = 0; i < count; i++) {
      int64_t rest = i, source = 0;
      for (int32_t d = o->rank; d-- > 0; rest /= to->type.dims[d])
        source += rest % to->type.dims[d] * strides[o->at[d]];
      memcpy(data + (size_t)i * bytes, (const char *)from->data + (size_t)source * bytes, bytes);
    }
    to->data = data;
  }
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_VALUE, .count = 1, .literal = to});
}

static void own_attrs(vt_op *op) {
  vt_attr *attrs = VT_NEW_ARRAY(&op->func->module->arena, vt_attr, op->attr_count + 1);
  if (op->attr_count) memcpy(attrs, op->attrs, sizeof *attrs * op->attr_count);
  op->attrs = attrs;
}

// Makes the array of a leaf in order `o` of what it is now. All but the type.
static void turn_leaf(layout *l, vt_op *op, const order *o) {
  if (op->code == VT_OP_CONSTANT)
    turn_literal(l, op, o);
  else if (op->code == VT_OP_IOTA)
    vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, place(o, vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION)));
  else
    map_dims(op, VT_ATTR_BROADCAST_DIMENSIONS, o, false);
}

static vt_value *make_copy(layout *l, const vt_value *value, const order *o) {
  int64_t list[MOST_RANK];
  vt_value *from = l->stored[value->id];
  vt_type type = l->types[value->id];
  for (int32_t i = 0; i < type.rank; i++) list[i] = place(l->made[value->id], at(o, i));
  vt_op *before = from->op ? from->op->next : l->func->first;
  const vt_loc *loc = from->op ? from->op->loc : before ? before->loc : &vt_loc_unknown;
  type = stored_type(l, type, o);
  if (!is_leaf(from->op)) {
    vt_value *copy = vt_build(l->func, before, VT_OP_TRANSPOSE, loc, type, 1, &from);
    vt_op_set_ints(copy->op, VT_ATTR_PERMUTATION, (uint32_t)type.rank, list);
    return copy;
  }
  const vt_op *leaf = from->op;
  vt_value *copy =
      vt_build(l->func, before, leaf->code, loc, type, leaf->operand_count, leaf->operands);
  copy->op->attrs = leaf->attrs, copy->op->attr_count = leaf->attr_count;
  own_attrs(copy->op);
  turn_leaf(l, copy->op, new_order(l, type.rank, list));
  return copy;
}

static uint32_t cluster_of_op(const layout *l, const vt_op *op) {
  if (!op) return 0;
  if (op->code == VT_OP_CONVOLUTION && op->note) return ((const conv *)op->note)->cluster;
  return op->result_count ? l->cluster_of[op->results[0].id] : 0;
}

// `value` in order `o`, for `reader` (NULL: the caller of the function).
static vt_value *read_in(layout *l, const vt_op *reader, vt_value *value, const order *o,
                         bool weights) {
  if (same_order(l->made[value->id], o)) return l->stored[value->id];
  for (turned *c = l->copies[value->id]; c; c = c->next)
    if (same_order(c->in, o)) return c->value;
  turned *c = VT_NEW(l->arena, turned);
  *c = (turned){.next = l->copies[value->id], .in = o};
  l->copies[value->id] = c;
  if (!l->counting) return c->value = make_copy(l, value, o);
  uint32_t cluster = l->cluster_of[value->id];
  if (!cluster) cluster = cluster_of_op(l, reader);
  vt_type type = l->types[value->id];
  if (!weights && !is_leaf(value->op) && !lies_alike(type, l->made[value->id], o))
    l->clusters.data[cluster].moved += vt_type_bytes(type);
  return value;
}

static void apply_conv(vt_op *op, const needs *n) {
  const conv *c = op->note;
  const order *orders[3] = {n->in[LHS], n->in[RHS], n->out[0]};
  int64_t ends[3][2], spatial[3][MOST_RANK];
  uint32_t count = 0;
  for (int t = LHS; t <= OUT; t++) {
    const int64_t *dims = vt_attr_ints(op, vt_conv_dim_keys[t][2], &count);
    for (int i = 0; i < 2; i++)
      ends[t][i] = place(orders[t], vt_attr_i64(op, vt_conv_dim_keys[t][i]));
    for (uint32_t i = 0; i < count; i++) spatial[t][i] = place(orders[t], dims[i]);
  }
  bool swaps = c && c->cluster && c->swaps;
  if (swaps) {
    vt_value *side = op->operands[LHS];
    op->operands[LHS] = op->operands[RHS], op->operands[RHS] = side;
  }
  // With its sides swapped, what was summed over still is, and the free features change places.
  static const int other[3] = {RHS, LHS, OUT};
  for (int t = LHS; t <= OUT; t++) {
    int from = swaps ? other[t] : t;
    for (int i = 0; i < 2; i++)
      vt_op_set_i64(op, vt_conv_dim_keys[t][i], ends[from][swaps ? 1 - i : i]);
    vt_op_set_ints(op, vt_conv_dim_keys[t][2], count, spatial[from]);
  }
}

static void apply_windows(vt_op *op, const order *o) {
  static const vt_attr_key lists[] = {VT_ATTR_WINDOW_DIMENSIONS, VT_ATTR_WINDOW_STRIDES,
                                      VT_ATTR_BASE_DILATIONS, VT_ATTR_WINDOW_DILATIONS};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) turn_list(op, lists[i], o, 1);
  turn_list(op, VT_ATTR_PADDING, o, 2);
}

static void apply_dot(vt_op *op, const needs *n) {
  map_dims(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, n->in[LHS], false);
  map_dims(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, n->in[LHS], false);
  map_dims(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, n->in[RHS], false);
  map_dims(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, n->in[RHS], false);
}

// The attributes of an op whose tied values are in order `o`.
static void apply_order(layout *l, vt_op *op, const order *o) {
  switch (op->code) {
  case VT_OP_CONSTANT:
  case VT_OP_IOTA:
    turn_leaf(l, op, o);
    break;
  case VT_OP_PAD:
    turn_list(op, VT_ATTR_EDGE_PADDING_LOW, o, 1);
    turn_list(op, VT_ATTR_EDGE_PADDING_HIGH, o, 1);
    turn_list(op, VT_ATTR_INTERIOR_PADDING, o, 1);
    break;
  case VT_OP_SLICE:
    turn_list(op, VT_ATTR_START_INDICES, o, 1);
    turn_list(op, VT_ATTR_LIMIT_INDICES, o, 1);
    turn_list(op, VT_ATTR_STRIDES, o, 1);
    break;
  case VT_OP_REVERSE:
  case VT_OP_REDUCE:
    map_dims(op, VT_ATTR_DIMENSIONS, o, true);
    break;
  case VT_OP_CONCATENATE:
    vt_op_set_i64(op, VT_ATTR_DIMENSION, place(o, vt_attr_i64(op, VT_ATTR_DIMENSION)));
    break;
  case VT_OP_DYNAMIC_SLICE:
    turn_operands(op, 1, o);
    turn_list(op, VT_ATTR_SLICE_SIZES, o, 1);
    break;
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    turn_operands(op, 2, o);
    break;
  case VT_OP_REDUCE_WINDOW:
  case VT_OP_SELECT_AND_SCATTER:
    apply_windows(op, o);
    break;
  default:
    break;
  }
}

// The operands are in place; whether the op is still wanted.
static bool apply(layout *l, vt_op *op, const needs *n) {
  int64_t list[MOST_RANK];
  bool any = false;
  for (uint32_t i = 0; i < op->operand_count; i++) any |= n->in[i] != NULL;
  for (uint32_t i = 0; i < op->result_count; i++) any |= n->out[i] != NULL;
  if (!any) return true;
  own_attrs(op);
  for (uint32_t i = 0; i < op->result_count; i++)
    op->results[i].type = stored_type(l, op->results[i].type, n->out[i]);
  if (op->code == VT_OP_CONVOLUTION) {
    apply_conv(op, n);
  } else if (op->code == VT_OP_DOT_GENERAL) {
    apply_dot(op, n);
  } else if (op->code == VT_OP_BROADCAST_IN_DIM) {
    uint32_t count;
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++) list[i] = place(n->out[0], dims[at(n->in[0], i)]);
    vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, count, list);
  } else if (op->code == VT_OP_TRANSPOSE) {
    uint32_t count;
    const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
    for (uint32_t i = 0; i < count; i++) list[i] = place(n->in[0], permutation[at(n->out[0], i)]);
    vt_op_set_ints(op, VT_ATTR_PERMUTATION, count, list);
    if (new_order(l, (int32_t)count, list)) return true;
    l->stored[op->results[0].id] = op->operands[0];
    return false;
  } else {
    const order *o = op->code == VT_OP_REDUCE ? n->in[0] : n->out[0];
    if (o) apply_order(l, op, o);
  }
  return true;
}

// ---- Counting, and what is kept.

static void count_transpose(layout *l, const vt_op *op, const needs *n) {
  const vt_value *from = op->operands[0];
  uint32_t cluster = l->cluster_of[op->results[0].id];
  if (!cluster) cluster = l->cluster_of[from->id];
  int64_t now[MOST_RANK], count = from->type.rank;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  if (!cluster || count > MOST_RANK) return;
  for (int32_t i = 0; i < count; i++) now[i] = permutation[at(n->out[0], i)];
  bool moved = !lies_alike(from->type, NULL, new_order(l, (int32_t)count, permutation));
  bool moves = !lies_alike(from->type, n->in[0], new_order(l, (int32_t)count, now));
  l->clusters.data[cluster].moved += (moves - moved) * vt_type_bytes(from->type);
}

static void count_conv(layout *l, const vt_op *op, const needs *n) {
  const conv *c = op->note;
  if (!c || !c->cluster) return;
  for (int i = 0; i < 2; i++) {
    int t;
    const vt_value *image = image_of(op, c, i, &t);
    vt_type type = l->types[image->id];
    const order *now = t == OUT ? n->out[0] : n->in[t];
    int gain = lies_alike(type, now, c->wanted[t]) - lies_alike(type, NULL, c->wanted[t]);
    // oneDNN's threads wait for each other in a gradient of weights, which on busy processors
    // takes a hundred times as long; those of amx.c do not.
    int worth = c->gradient && l->options->strips ? 2 : 1;
    l->clusters.data[c->cluster].saved += worth * gain * vt_type_bytes(type);
  }
}

// Once to count, and once to rewrite.
static void walk(layout *l) {
  memset(l->copies, 0, sizeof(void *) * (size_t)l->func->value_count);
  vt_op *next;
  for (vt_op *op = l->func->first; op; op = next) {
    next = op->next;
    needs n = needs_of(l, op);
    if (l->counting && op->code == VT_OP_TRANSPOSE) count_transpose(l, op, &n);
    if (l->counting && op->code == VT_OP_CONVOLUTION) count_conv(l, op, &n);
    const conv *c = op->code == VT_OP_CONVOLUTION ? op->note : NULL;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      vt_value *value = read_in(l, op, op->operands[i], n.in[i], c && !c->gradient && i == RHS);
      if (!l->counting) op->operands[i] = value;
    }
    for (uint32_t i = 0; i < op->result_count; i++) l->made[op->results[i].id] = n.out[i];
    if (!l->counting && !apply(l, op, &n)) vt_op_remove(op);
  }
  for (uint32_t i = 0; i < l->func->return_count; i++) {
    vt_value *value = read_in(l, NULL, l->func->returns[i], NULL, false);
    if (!l->counting) l->func->returns[i] = value;
  }
}

// Gives up clusters that do not pay; whether one is left.
static bool choose(layout *l) {
  bool any = false;
  for (size_t k = 1; k < l->clusters.size; k++) {
    balance *c = &l->clusters.data[k];
    // A transpose is a pass of its own; reordering within a convolution finds some in the caches.
    c->kept = c->saved > c->moved + c->moved / 4 || l->options->always;
    any |= c->kept;
  }
  for (int32_t id = 0; id < l->func->value_count; id++) {
    if (!l->clusters.data[l->cluster_of[id]].kept) l->wanted[id] = NULL;
    l->made[id] = NULL;
  }
  for (vt_op *op = l->func->first; op; op = op->next) {
    conv *c = op->note;
    if (c && !l->clusters.data[c->cluster].kept) c->cluster = 0;
  }
  return any;
}

static void find_users(layout *l) {
  vt_func *func = l->func;
  size_t values = (size_t)func->value_count;
  uint32_t *counts = VT_NEW_ARRAY(l->arena, uint32_t, values);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) counts[op->operands[i]->id]++;
  l->users = VT_NEW_ARRAY(l->arena, vt_op **, values);
  for (size_t v = 0; v < values; v++) l->users[v] = VT_NEW_ARRAY(l->arena, vt_op *, counts[v] + 1);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      l->users[id][--counts[id]] = op;
    }
}

static void start(layout *l) {
  vt_func *func = l->func;
  vt_func_number(func);
  size_t values = (size_t)func->value_count;
  l->types = VT_NEW_ARRAY(l->arena, vt_type, values);
  l->wanted = VT_NEW_ARRAY(l->arena, const order *, values);
  l->made = VT_NEW_ARRAY(l->arena, const order *, values);
  l->cluster_of = VT_NEW_ARRAY(l->arena, uint32_t, values);
  l->stored = VT_NEW_ARRAY(l->arena, vt_value *, values);
  l->copies = VT_NEW_ARRAY(l->arena, turned *, values);
  for (uint32_t i = 0; i < func->param_count; i++) {
    l->types[func->params[i]->id] = func->params[i]->type;
    l->stored[func->params[i]->id] = func->params[i];
  }
  for (vt_op *op = func->first; op; op = op->next) {
    op->note = op->code == VT_OP_CONVOLUTION ? read_conv(l, op) : NULL;
    for (uint32_t i = 0; i < op->result_count; i++) {
      l->types[op->results[i].id] = op->results[i].type;
      l->stored[op->results[i].id] = &op->results[i];
    }
  }
  find_users(l);
  vt_array_push_in(l->arena, &l->clusters, (balance){0});
}

typedef struct pass {
  const vt_image_options *options;
  bool *changed;
} pass;

static vt_status layout_func(vt_func *func, void *user) {
  const pass *p = user;
  bool any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next)
    any = op->code == VT_OP_CONVOLUTION;
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  layout l = {.func = func, .arena = &arena, .options = p->options, .counting = true};
  start(&l);
  for (vt_op *op = func->first; op; op = op->next) {
    const conv *c = op->note;
    if (c && !c->cluster) spread(&l, op);
  }
  narrow_border(&l);
  walk(&l);
  if (choose(&l)) {
    l.counting = false;
    walk(&l);
    *p->changed = true;
  }
  for (vt_op *op = func->first; op; op = op->next) op->note = NULL;
  vt_arena_free(&arena);
  return VT_OK;
}

vt_status vt_image_layout(vt_module *module, const vt_image_options *options, bool *out_changed) {
  pass p = {options, out_changed};
  *out_changed = false;
  if (!module->made[VT_OP_CONVOLUTION]) return VT_OK;
  VT_TRY(vt_rewrite_each_func(module, layout_func, &p));
  return *out_changed && vt_verify_wanted() ? vt_module_verify(module) : VT_OK;
}
