// SPDX-License-Identifier: Apache-2.0
// strip_mask.c - see strip_mask.h.
//
// Which sums: the group's nodes are walked from the sums on. Each must be an elementwise op, until
// a selection by a mask takes them or something else; what comes before may be any number then.
//
// Where: the nodes that compute the mask are run on ranges, for some rows and columns at a time.
// Indices lie between those of the first and the last row or column, numbers in memory are read;
// of sums, comparisons and logical ops the range follows from those of their operands. What has no
// such rule may be anything. Where the mask's range is a single number, it is that number.
#include "host/strip_mask.h"

#include <limits.h>
#include <string.h>

#include "host/nest.h"
#include "host/strip.h"
#include "ir/number.h"

enum { MOST_NODES = 32 };

typedef struct mask_node {
  bool known;   // else it may be anything
  uint8_t kind; // vt_node_kind: CONST, LOAD, IOTA or OP
  vt_dtype dtype;
  vt_opcode code;
  int64_t direction; // of a comparison
  int64_t number;    // of a constant
  int32_t input;
  uint32_t operands[2];
  vt_access access;
} mask_node;

struct vt_strip_mask {
  bool when; // what it is where sums are used
  int32_t rank;
  int64_t sizes[VT_NEST_ATOMS]; // of rows
  int64_t columns;
  uint32_t count;
  mask_node nodes[MOST_NODES]; // the mask is the last
};

typedef struct range {
  int64_t low, high;
} range;

static range all_of(vt_dtype dtype) {
  switch ((int)dtype) {
  case VT_PRED:
    return (range){0, 1};
  case VT_S8:
    return (range){INT8_MIN, INT8_MAX};
  case VT_U8:
    return (range){0, UINT8_MAX};
  case VT_S16:
    return (range){INT16_MIN, INT16_MAX};
  case VT_U16:
    return (range){0, UINT16_MAX};
  case VT_S32:
    return (range){INT32_MIN, INT32_MAX};
  case VT_U32:
    return (range){0, UINT32_MAX};
  default:
    return (range){INT64_MIN, INT64_MAX};
  }
}

static bool has_ranges(vt_dtype dtype) {
  return dtype == VT_S64 || all_of(dtype).low != INT64_MIN;
}

// ---- Finding it.

typedef struct finder {
  const vt_nest *nest;
  vt_strip_mask *mask;
  int32_t number_of[VT_NEST_NODES]; // of a node of the nest among the mask's; 0: none
} finder;

static bool is_known(const vt_nest_node *n) {
  if (!has_ranges(n->value->type.dtype) || n->folded) return false;
  if (n->kind != VT_NODE_OP)
    return n->kind == VT_NODE_CONST || n->kind == VT_NODE_LOAD || n->kind == VT_NODE_IOTA;
  switch ((int)n->op->code) {
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
    return true;
  case VT_OP_COMPARE:
    return has_ranges(n->op->operands[0]->type.dtype);
  case VT_OP_AND:
  case VT_OP_OR:
  case VT_OP_NOT:
    return n->value->type.dtype == VT_PRED;
  default:
    return false;
  }
}

// Adds the nodes that `at` depends on, and it; the number behind its own, or 0 for too many.
static int32_t add(finder *f, uint32_t at) {
  const vt_nest_node *n = &f->nest->nodes[at];
  vt_strip_mask *mask = f->mask;
  if (n->kind == VT_NODE_ALIAS) return add(f, n->operands[0]);
  if (f->number_of[at]) return f->number_of[at];
  mask_node node = {.known = is_known(n), .kind = n->kind, .dtype = n->value->type.dtype};
  if (node.known && n->kind == VT_NODE_CONST)
    node.number = vt_int_load(node.dtype, vt_attr_literal(n->op, VT_ATTR_VALUE)->data, 0);
  if (node.known && n->kind == VT_NODE_OP) {
    node.code = n->op->code;
    node.direction = vt_attr_i64_or(n->op, VT_ATTR_COMPARISON_DIRECTION, 0);
    for (uint32_t i = 0; i < n->operand_count; i++) {
      int32_t operand = add(f, n->operands[i]);
      if (!operand) return 0;
      node.operands[i] = (uint32_t)operand - 1;
    }
  }
  node.input = n->input;
  node.access = n->access;
  if (mask->count == MOST_NODES) return 0;
  mask->nodes[mask->count] = node;
  return f->number_of[at] = (int32_t)++mask->count;
}

// Follows the sums into a node that has them as an operand; false where they get past a mask.
// `open`: what depends on sums that no mask has replaced.
static bool pass(const vt_nest *nest, uint32_t at, bool *open, int64_t *mask, bool *when) {
  const vt_nest_node *n = &nest->nodes[at];
  if (n->kind == VT_NODE_ALIAS) return true;
  if (n->kind != VT_NODE_OP) return false;
  if (n->op->code != VT_OP_SELECT || open[n->operands[0]]) return true;
  bool first = open[n->operands[1]], second = open[n->operands[2]];
  if (first == second) return true;
  if (*mask >= 0 && (*mask != n->operands[0] || *when != first)) return false;
  *mask = n->operands[0], *when = first;
  open[at] = false;
  return true;
}

const vt_strip_mask *vt_strip_find_mask(vt_arena *arena, const vt_group *group, uint32_t port,
                                        int64_t columns) {
  const vt_nest *nest = group->nest;
  if (nest->atom_count < 2 || nest->atoms[nest->atom_count - 1] != columns) return NULL;
  bool open[VT_NEST_NODES] = {0}, when = false;
  int64_t found = -1;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    bool is_port = n->kind == VT_NODE_LOAD && n->input == (int32_t)port, any = is_port;
    for (uint32_t k = 0; k < n->operand_count; k++) any |= open[n->operands[k]];
    open[i] = any;
    if (any && !is_port && !pass(nest, i, open, &found, &when)) return NULL;
    if (open[i] && n->output >= 0) return NULL;
  }
  if (found < 0) return NULL;
  vt_strip_mask *mask = VT_NEW(arena, vt_strip_mask);
  *mask = (vt_strip_mask){.when = when, .rank = nest->atom_count - 1, .columns = columns};
  memcpy(mask->sizes, nest->atoms, sizeof *mask->sizes * (size_t)mask->rank);
  finder f = {.nest = nest, .mask = mask};
  return add(&f, (uint32_t)found) ? mask : NULL;
}

// ---- Ranges.

// Rows and columns, and what the nodes computed so far are in them.
typedef struct block {
  const vt_strip_mask *mask;
  void *const *inputs;
  int64_t row, rows, column, columns; // rows differ in their last index
  range of[MOST_NODES];
} block;

// From the start to the first row.
static int64_t place_of_row(const block *b, const vt_access *access) {
  int64_t place = access->offset, rest = b->row;
  for (int32_t a = b->mask->rank; a-- > 0; rest /= b->mask->sizes[a])
    place += rest % b->mask->sizes[a] * access->strides[a];
  return place;
}

static void widen(range *r, int64_t low, int64_t high) {
  if (low < r->low) r->low = low;
  if (high > r->high) r->high = high;
}

static range of_index(const block *b, const mask_node *n) {
  const int64_t *strides = n->access.strides;
  int64_t down = (b->rows - 1) * strides[b->mask->rank - 1];
  int64_t across = strides[b->mask->rank], first = place_of_row(b, &n->access);
  first += b->column * across, across *= b->columns - 1;
  range r = {first, first};
  widen(&r, first + down, first + down);
  widen(&r, first + across, first + across);
  widen(&r, first + down + across, first + down + across);
  range all = all_of(n->dtype);
  return r.low < all.low || r.high > all.high ? all : r; // it wraps
}

// Of bytes of 0 and 1.
static range of_flags(const uint8_t *at, int64_t rows, int64_t stride, int64_t columns) {
  range r = {1, 0};
  for (int64_t i = 0; i < rows && r.low >= r.high; i++, at += stride) {
    uint64_t any = 0, every = UINT64_MAX;
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) {
      uint64_t eight;
      memcpy(&eight, at + j, 8);
      any |= eight, every &= eight;
    }
    for (; j < columns; j++) any |= at[j], every &= at[j] * 0x0101010101010101u;
    widen(&r, (every & 0x0101010101010101u) == 0x0101010101010101u, any != 0);
  }
  return r;
}

static range of_memory(const block *b, const mask_node *n) {
  int64_t bytes = (int64_t)vt_dtype_bytes(n->dtype);
  int64_t down = n->access.strides[b->mask->rank - 1], across = n->access.strides[b->mask->rank];
  int64_t rows = down ? b->rows : 1, columns = across ? b->columns : 1;
  const char *at = (const char *)b->inputs[n->input] + place_of_row(b, &n->access);
  at += b->column * across;
  if (n->dtype == VT_PRED && (columns == 1 || across == 1))
    return of_flags((const uint8_t *)at, rows, down, columns);
  if ((rows > 1 && columns > 1) || (columns > 1 && across != bytes)) return all_of(n->dtype);
  range r = {INT64_MAX, INT64_MIN};
  for (int64_t i = 0; i < rows * columns; i++) {
    int64_t number = vt_int_load(n->dtype, at + i * (rows > 1 ? down : across), 0);
    widen(&r, number, number);
  }
  return r;
}

static range of_comparison(int64_t direction, range x, range y) {
  bool below = x.high<y.low, above = x.low> y.high; // always
  bool not_above = x.high <= y.low, not_below = x.low >= y.high;
  bool same = x.low == x.high && y.low == y.high && x.low == y.low;
  switch (direction) {
  case VT_CMP_EQ:
    return (range){same, !below && !above};
  case VT_CMP_NE:
    return (range){below || above, !same};
  case VT_CMP_GE:
    return (range){not_below, !below};
  case VT_CMP_GT:
    return (range){above, !not_above};
  case VT_CMP_LE:
    return (range){not_above, !above};
  default:
    return (range){below, !not_below};
  }
}

static range of_op(const mask_node *n, range x, range y) {
  range r, all = all_of(n->dtype);
  switch ((int)n->code) {
  case VT_OP_COMPARE:
    return of_comparison(n->direction, x, y);
  case VT_OP_NOT:
    return (range){!x.high, !x.low};
  case VT_OP_AND:
    return (range){x.low && y.low, x.high && y.high};
  case VT_OP_OR:
    return (range){x.low || y.low, x.high || y.high};
  case VT_OP_ADD:
    if (n->dtype == VT_PRED || __builtin_add_overflow(x.low, y.low, &r.low) ||
        __builtin_add_overflow(x.high, y.high, &r.high))
      return all;
    break;
  default:
    if (__builtin_sub_overflow(x.low, y.high, &r.low) ||
        __builtin_sub_overflow(x.high, y.low, &r.high))
      return all;
  }
  return r.low < all.low || r.high > all.high ? all : r; // it wraps
}

static range of_node(const block *b, const mask_node *n) {
  if (!n->known) return all_of(n->dtype);
  switch (n->kind) {
  case VT_NODE_CONST:
    return (range){n->number, n->number};
  case VT_NODE_IOTA:
    return of_index(b, n);
  case VT_NODE_LOAD:
    return of_memory(b, n);
  default:
    return of_op(n, b->of[n->operands[0]], b->of[n->operands[1]]);
  }
}

void vt_strip_unused(const vt_strip_mask *mask, void *const *inputs, int64_t row, int64_t rows,
                     uint64_t *bits) {
  if (row % mask->sizes[mask->rank - 1] + rows > mask->sizes[mask->rank - 1]) return;
  block b = {.mask = mask, .inputs = inputs, .row = row, .rows = rows};
  for (int64_t g = 0; g < 64 * VT_STRIP_WORDS && g * VT_STRIP_GROUP < mask->columns; g++) {
    b.column = g * VT_STRIP_GROUP, b.columns = mask->columns - b.column;
    if (b.columns > VT_STRIP_GROUP) b.columns = VT_STRIP_GROUP;
    for (uint32_t i = 0; i < mask->count; i++) b.of[i] = of_node(&b, &mask->nodes[i]);
    range is = b.of[mask->count - 1];
    if (is.low == is.high && is.low != mask->when) bits[g / 64] |= 1ull << g % 64;
  }
}
