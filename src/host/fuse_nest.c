// SPDX-License-Identifier: Apache-2.0
// fuse_nest.c - finds the index space of a set of ops, if it has one. See nest.h for the model.
// In:  ops in order with the group's inputs and outputs. Out: a vt_nest, everything in the caller's
// arena.
// How: one node per value; masks propagate from the largest value along the ops to a fixed point,
// and atoms are split where a broadcast, a reduction or a view requires it; then strides are
// computed and equal neighbours merged.
#include "base/check.h"
#include "host/nest.h"

#include <string.h>

#include "eval/indexed.h"
#include "host/kernel_move.h"

enum {
  CUT_ATOMS = 24,
  MAX_REDUNDANT_OPS = 8,
  MAX_STAGES = 4,
  MAX_PARTS = 3,
  LEAST_SCATTERED = 16,
  UPDATES_TO_SETTLE = 64, // of each place: by then one in ten or so changes it
  NARROW = 8,
  MAX_NARROW_OPS = 12,
  LEAST_FOLDED = 64,
  MAX_RUN_BYTES = 63
};
// Arrays up to this size need no prefetch before a scatter that only writes.
static const int64_t NEAR_BYTES = 32 << 10;
static const int64_t WHOLE_MAX = 32 << 10; // elements that one task may add up alone

// A leaf seen through views: element strides by dimension of the node's own type.
typedef struct view {
  int64_t offset;
  int64_t strides[VT_MAX_RANK];
} view;

typedef struct builder {
  vt_arena *arena;
  int32_t atom_count;
  int64_t atoms[CUT_ATOMS];
  int64_t elements; // of the space
  uint32_t node_count, node_room;
  vt_nest_node *nodes;
  bool *known;     // by node: mask is set
  uint32_t *space; // by node, reductions: mask of the operand
  bool *space_known;
  const view **views;         // by node, leaves and gathers
  bool *gathered;             // by node, leaves: what a gather reads
  int64_t (*wide)[CUT_ATOMS]; // by node: access strides before merging
  vt_map by_value;
  uint32_t input_count;
  vt_value *const *inputs;
} builder;

static int64_t elements_of(const builder *b, uint32_t node) {
  return vt_type_elements(b->nodes[node].value->type);
}
static bool is_leaf(const vt_nest_node *node) {
  return node->kind == VT_NODE_LOAD || node->kind == VT_NODE_IOTA;
}
static bool has_view(const vt_nest_node *node) {
  return is_leaf(node) || node->kind == VT_NODE_GATHER || node->kind == VT_NODE_SCATTER;
}
static bool has_mask(const vt_nest_node *node) {
  return !is_leaf(node) && node->kind != VT_NODE_CONST;
}

static uint32_t add_node(builder *b, vt_nest_node node) {
  if (b->node_count == b->node_room) return UINT32_MAX;
  node.output = -1;
  b->nodes[b->node_count] = node;
  return b->node_count++;
}

static uint32_t find_node(builder *b, const vt_value *value) {
  uintptr_t found = (uintptr_t)vt_map_find_ptr(&b->by_value, value);
  return found ? (uint32_t)found - 1 : UINT32_MAX;
}

// ---- Leaves and their views.

static view *dense_view(builder *b, vt_type type) {
  view *v = VT_NEW(b->arena, view);
  vt_type_strides(type, v->strides);
  return v;
}

// The view of a reshape, when the old view's strides can express the new shape.
static bool view_reshape(const view *from, vt_type old, vt_type now, view *to) {
  int32_t i = old.rank - 1, j = now.rank - 1;
  to->offset = from->offset;
  if (vt_type_elements(old) == 1) return true;
  while (i >= 0 || j >= 0) {
    while (i >= 0 && old.dims[i] == 1) i--;
    while (j >= 0 && now.dims[j] == 1) j--;
    if (i < 0 || j < 0) return i < 0 && j < 0;
    // A run of old dimensions that chain, matched with a run of new ones of the same product.
    int64_t stride = from->strides[i], have = old.dims[i], want = now.dims[j];
    int64_t next = stride;
    to->strides[j] = next;
    while (have != want) {
      if (have < want) {
        do i--;
        while (i >= 0 && old.dims[i] == 1);
        if (i < 0 || from->strides[i] != stride * have) return false;
        have *= old.dims[i];
      } else {
        next = stride * want;
        do j--;
        while (j >= 0 && now.dims[j] == 1);
        if (j < 0) return false;
        to->strides[j] = next;
        want *= now.dims[j];
      }
    }
    i--, j--;
  }
  return true;
}

// The view of `op` over a leaf operand; NULL when strides cannot express it.
static const view *view_of(builder *b, const vt_op *op, const view *from) {
  vt_type old = op->operands[0]->type, now = op->results[0].type;
  view *to = VT_NEW(b->arena, view);
  to->offset = from->offset;
  uint32_t count;
  switch (op->code) {
  case VT_OP_RESHAPE:
    return view_reshape(from, old, now, to) ? to : NULL;
  case VT_OP_BROADCAST_IN_DIM: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    for (uint32_t i = 0; i < count; i++)
      if (old.dims[i] != 1) to->strides[dims[i]] = from->strides[i];
    return to;
  }
  case VT_OP_TRANSPOSE: {
    const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
    for (uint32_t i = 0; i < count; i++) to->strides[i] = from->strides[order[i]];
    return to;
  }
  case VT_OP_SLICE: {
    const int64_t *start = vt_attr_ints(op, VT_ATTR_START_INDICES, &count);
    const int64_t *step = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
    for (uint32_t i = 0; i < count; i++) {
      to->offset += start[i] * from->strides[i];
      to->strides[i] = step[i] * from->strides[i];
    }
    return to;
  }
  default:
    return NULL;
  }
}

// The node of an operand: inside the group, or a new load of an input.
static uint32_t operand_node(builder *b, vt_value *value) {
  uint32_t node = find_node(b, value);
  if (node != UINT32_MAX) return b->nodes[node].kind == VT_NODE_SCATTER ? UINT32_MAX : node;
  int32_t input = -1;
  for (uint32_t i = 0; i < b->input_count; i++)
    if (b->inputs[i] == value) input = (int32_t)i;
  if (input < 0) return UINT32_MAX;
  node = add_node(b, (vt_nest_node){.kind = VT_NODE_LOAD, .value = value, .input = input});
  if (node == UINT32_MAX) return node;
  b->views[node] = dense_view(b, value->type);
  *vt_map_at_ptr(&b->by_value, value) = (void *)(uintptr_t)(node + 1);
  return node;
}

// ---- Gathers and scatters.

bool vt_nest_is_index(const vt_op *op) {
  vt_type type = op->results[0].type;
  if (op->code != VT_OP_CONCATENATE || !vt_dtype_is_integer(type.dtype)) return false;
  return op->operand_count <= MAX_PARTS &&
         type.dims[vt_attr_i64(op, VT_ATTR_DIMENSION)] == (int64_t)op->operand_count;
}

// Small floats other than bf16 may change bits when they go through registers.
static bool gathers_dtype(vt_dtype dtype) {
  return dtype == VT_PRED || dtype == VT_BF16 || dtype == VT_F32 || dtype == VT_F64 ||
         dtype == VT_C64 || (vt_dtype_is_integer(dtype) && vt_dtype_get(dtype)->bits >= 8);
}

bool vt_nest_gathers(const vt_op *op) {
  if (op->code != VT_OP_GATHER) return false;
  vt_type operand = op->operands[0]->type, indices = op->operands[1]->type;
  uint32_t count, sizes;
  vt_attr_ints(op, VT_ATTR_START_INDEX_MAP, &count);
  const int64_t *size = vt_attr_ints(op, VT_ATTR_SLICE_SIZES, &sizes);
  for (uint32_t i = 0; i < sizes; i++)
    if (size[i] != 1) return false;
  return count >= 1 && count <= MAX_PARTS && vt_type_elements(operand) > 0 &&
         gathers_dtype(operand.dtype) && vt_dtype_is_integer(indices.dtype) &&
         vt_dtype_get(indices.dtype)->bits >= 8;
}

// The op that a scatter combines an element and its update with: VT_OP_INVALID if it replaces it.
static bool scatter_code(const vt_op *op, vt_opcode *code) {
  *code = VT_OP_INVALID;
  if (vt_scatter_assigns(op->regions[0], 1)) return true;
  *code = vt_region_binary(op->regions[0], 0, 1);
  switch (*code) {
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
  case VT_OP_MULTIPLY:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
  case VT_OP_AND:
  case VT_OP_OR:
  case VT_OP_XOR:
    return vt_emit_supports(op->regions[0]->first);
  default:
    return false;
  }
}

// The contiguous elements of a scatter's update: one, or a short row of the operand; 0 when they
// are not contiguous in both arrays.
static int64_t update_run(const vt_op *op) {
  vt_type operand = op->operands[0]->type, updates = op->operands[2]->type;
  uint32_t windows, batching, dropped, parts;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_UPDATE_WINDOW_DIMS, &windows);
  const int64_t *without = vt_attr_ints(op, VT_ATTR_INSERTED_WINDOW_DIMS, &dropped);
  const int64_t *map = vt_attr_ints(op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, &parts);
  vt_attr_ints(op, VT_ATTR_INPUT_BATCHING_DIMS, &batching);
  int64_t run = 1;
  for (uint32_t i = 0; i < windows; i++) run *= updates.dims[window[i]];
  if (run == 1) return 1;
  if (batching || run * (int64_t)vt_dtype_bytes(operand.dtype) > MAX_RUN_BYTES) return 0;
  for (uint32_t i = 0; i < windows; i++) {
    int32_t from_end = (int32_t)(windows - i);
    if (window[i] != updates.rank - from_end || operand.rank < from_end ||
        updates.dims[window[i]] != operand.dims[operand.rank - from_end])
      return 0;
  }
  for (uint32_t i = 0; i < dropped; i++)
    if (without[i] != i) return 0;
  for (uint32_t i = 0; i < parts; i++)
    if (map[i] >= dropped) return 0;
  return dropped + windows == (uint32_t)operand.rank ? run : 0;
}

bool vt_nest_scatters(const vt_op *op) {
  vt_opcode code;
  if (op->code != VT_OP_SCATTER || op->operand_count != 3 || op->result_count != 1) return false;
  vt_type operand = op->operands[0]->type, indices = op->operands[1]->type,
          updates = op->operands[2]->type;
  uint32_t count;
  vt_attr_ints(op, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, &count);
  int64_t run = update_run(op);
  return run && count >= 1 && count <= MAX_PARTS && vt_type_elements(operand) > 0 &&
         gathers_dtype(operand.dtype) && vt_type_elements(updates) / run >= LEAST_SCATTERED &&
         vt_dtype_is_integer(indices.dtype) && vt_dtype_get(indices.dtype)->bits >= 8 &&
         scatter_code(op, &code);
}

static const vt_indexed_keys *keys_of(const vt_op *op) {
  return op->code == VT_OP_SCATTER ? &vt_scatter_keys : &vt_gather_keys;
}

// The dimension of the result (of a scatter: of the updates) that corresponds to dimension `d` of
// the indices.
static int32_t batch_dim(const vt_op *op, int64_t d) {
  uint32_t count, at;
  const int64_t *offset = vt_attr_ints(op, keys_of(op)->window_dims, &count);
  int64_t left = d - (d > vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM));
  for (int32_t to = 0;; to++) {
    for (at = 0; at < count && offset[at] != to; at++);
    if (at == count && left-- == 0) return to;
  }
}

// The index array, or the arrays it is concatenated from.
static bool index_nodes(builder *b, const vt_op *op, vt_nest_node *node) {
  vt_value *indices = op->operands[1];
  uint32_t count;
  vt_attr_ints(op, keys_of(op)->index_map, &count);
  node->operand_count = count;
  if (count == 1) return (node->operands[0] = operand_node(b, indices)) != UINT32_MAX;
  for (uint32_t i = 0; i < b->input_count; i++)
    if (b->inputs[i] == indices) return false;
  const vt_op *from = indices->op;
  if (!from || !vt_nest_is_index(from) || from->operand_count != count ||
      vt_attr_i64(from, VT_ATTR_DIMENSION) != vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM))
    return false;
  for (uint32_t i = 0; i < count; i++)
    if ((node->operands[i] = operand_node(b, from->operands[i])) == UINT32_MAX) return false;
  return true;
}

// Arrays accessed only through indices do not lie over the space.
static void leave_out(builder *b, const vt_value *value) {
  for (; value; value = value->op && value->op->operand_count ? value->op->operands[0] : NULL) {
    uint32_t seen = find_node(b, value);
    if (seen == UINT32_MAX) break;
    b->gathered[seen] = true;
    if (b->nodes[seen].kind != VT_NODE_LOAD || !b->nodes[seen].op) break;
  }
}

// The parts and the batching dimensions of a gather or scatter of an array with layout `base`.
static bool add_indexed(builder *b, vt_nest_node *node, const view *base) {
  vt_op *op = node->op;
  const vt_indexed_keys *keys = keys_of(op);
  vt_type type = op->operands[0]->type;
  int64_t bytes = (int64_t)vt_dtype_bytes(type.dtype);
  uint32_t count, batching;
  view *v = VT_NEW(b->arena, view);
  v->offset = base->offset;
  const int64_t *dims = vt_attr_ints(op, keys->operand_batching_dims, &batching);
  const int64_t *at = vt_attr_ints(op, keys->indices_batching_dims, NULL);
  for (uint32_t i = 0; i < batching; i++) v->strides[batch_dim(op, at[i])] = base->strides[dims[i]];
  const int64_t *map = vt_attr_ints(op, keys->index_map, &count);
  vt_place_part *parts = VT_NEW_ARRAY(b->arena, vt_place_part, count);
  for (uint32_t i = 0; i < count; i++)
    parts[i] = (vt_place_part){type.dims[map[i]] - 1, base->strides[map[i]] * bytes};
  node->parts = parts;
  uint32_t made = add_node(b, *node);
  if (made == UINT32_MAX) return false;
  b->views[made] = v;
  *vt_map_at_ptr(&b->by_value, &op->results[0]) = (void *)(uintptr_t)(made + 1);
  return true;
}

static bool add_gather(builder *b, vt_op *op) {
  vt_nest_node node = {.kind = VT_NODE_GATHER, .op = op, .value = &op->results[0]};
  uint32_t from = operand_node(b, op->operands[0]);
  if (from == UINT32_MAX || b->nodes[from].kind != VT_NODE_LOAD || !index_nodes(b, op, &node))
    return false;
  leave_out(b, op->operands[0]);
  node.input = b->nodes[from].input;
  node.narrow = vt_type_bytes(b->inputs[node.input]->type) <= INT32_MAX;
  node.far = vt_gather_is_far(op);
  return add_indexed(b, &node, b->views[from]);
}

static bool is_dense(const view *v, vt_type type) {
  int64_t strides[VT_MAX_RANK] = {0};
  vt_type_strides(type, strides);
  if (v->offset) return false;
  for (int32_t d = 0; d < type.rank; d++)
    if (type.dims[d] != 1 && strides[d] != v->strides[d]) return false;
  return true;
}

// Of n updates of one place, in any order, about log n are larger than all before them.
static bool settles(const vt_op *op, int32_t run) {
  vt_opcode code = VT_OP_INVALID;
  int64_t places = vt_type_elements(op->operands[0]->type);
  if (run > 1 || !scatter_code(op, &code)) return false;
  return (code == VT_OP_MAXIMUM || code == VT_OP_MINIMUM) &&
         vt_type_elements(op->operands[2]->type) / UPDATES_TO_SETTLE >= places;
}

// Its node has the size of the updates, which it iterates over.
static bool add_scatter(builder *b, vt_op *op) {
  vt_nest_node node = {.kind = VT_NODE_SCATTER, .op = op, .value = op->operands[2]};
  vt_type type = op->operands[0]->type;
  uint32_t from = operand_node(b, op->operands[0]);
  if (!vt_nest_scatters(op) || from == UINT32_MAX || !index_nodes(b, op, &node)) return false;
  uint32_t updates = operand_node(b, op->operands[2]);
  if (updates == UINT32_MAX) return false;
  node.run = (int32_t)update_run(op);
  if (node.run == 1) {
    node.operands[node.operand_count++] = updates;
  } else {
    if (b->nodes[updates].kind != VT_NODE_LOAD ||
        !is_dense(b->views[updates], b->nodes[updates].value->type))
      return false;
    node.updates = b->nodes[updates].input;
    node.value = b->nodes[node.operands[0]].value;
    leave_out(b, op->operands[2]);
  }
  const vt_nest_node *operand = &b->nodes[from];
  node.input = operand->input;
  if (operand->kind == VT_NODE_CONST) {
    node.input = -1;
    node.start = vt_attr_literal(operand->op, VT_ATTR_VALUE);
  } else if (operand->kind != VT_NODE_LOAD || !is_dense(b->views[from], type)) {
    return false;
  }
  leave_out(b, op->operands[0]);
  node.narrow = vt_type_bytes(type) <= INT32_MAX;
  bool sorted = vt_attr_i64_or(op, VT_ATTR_INDICES_ARE_SORTED, 0); // the processor sees them coming
  int64_t near = op->regions[0]->first ? VT_NEAR_READ_BYTES : NEAR_BYTES;
  node.far = !sorted && vt_type_bytes(type) > near;
  node.settles = settles(op, node.run);
  return add_indexed(b, &node, dense_view(b, type));
}

static bool add_op(builder *b, vt_op *op) {
  if (op->code == VT_OP_GATHER) return add_gather(b, op);
  if (op->code == VT_OP_SCATTER) return add_scatter(b, op);
  if (op->code == VT_OP_CONCATENATE) return true; // gathers look at its operands
  for (uint32_t r = 0; r < op->result_count; r++) {
    vt_nest_node node = {.kind = VT_NODE_OP, .op = op, .value = &op->results[r], .input = -1};
    const view *v = NULL;
    if (op->code == VT_OP_CONSTANT) {
      node.kind = VT_NODE_CONST;
    } else if (op->code == VT_OP_IOTA) {
      node.kind = VT_NODE_IOTA;
      view *iota = VT_NEW(b->arena, view);
      iota->strides[vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION)] = 1;
      v = iota;
    } else if (vt_op_info_get(op->code)->class == VT_CLASS_VIEW) {
      uint32_t from = operand_node(b, op->operands[0]);
      if (from == UINT32_MAX) return false;
      node.kind = VT_NODE_ALIAS;
      node.operand_count = 1;
      node.operands[0] = from;
      if (is_leaf(&b->nodes[from])) {
        v = view_of(b, op, b->views[from]);
        if (!v) return false;
        node.kind = b->nodes[from].kind;
        node.input = b->nodes[from].input;
        node.operand_count = 0;
      } else if (b->nodes[from].kind == VT_NODE_CONST) {
        node.kind = VT_NODE_CONST;
        node.op = b->nodes[from].op;
        node.operand_count = 0;
      } else if (op->code == VT_OP_TRANSPOSE || op->code == VT_OP_SLICE) {
        return false;
      }
    } else {
      bool reduce = op->code == VT_OP_REDUCE;
      if (reduce) {
        node.kind = VT_NODE_REDUCE;
        node.reducer = (uint8_t)vt_reducer_of(op);
        if (node.reducer == VT_REDUCE_NONE) return false;
      }
      node.operand_count = reduce ? op->operand_count / 2 : op->operand_count;
      if (node.operand_count > 3) return false;
      for (uint32_t i = 0; i < node.operand_count; i++)
        if ((node.operands[i] = operand_node(b, op->operands[i])) == UINT32_MAX) return false;
    }
    uint32_t at = add_node(b, node);
    if (at == UINT32_MAX) return false;
    b->views[at] = v;
    *vt_map_at_ptr(&b->by_value, &op->results[r]) = (void *)(uintptr_t)(at + 1);
  }
  return true;
}

// ---- Atoms.

static uint32_t insert_bit(uint32_t mask, int32_t at) {
  uint32_t low = mask & ((2u << at) - 1), high = mask >> (at + 1);
  uint32_t split = (mask >> at) & 1;
  return low | (split << (at + 1)) | (high << (at + 2));
}

// Makes `suffix` a boundary of the atoms in *mask (counted from the minor end). *mask is updated.
static bool cut(builder *b, uint32_t *mask, int64_t suffix) {
  int64_t passed = 1;
  for (int32_t a = b->atom_count - 1; a >= 0 && passed < suffix; a--) {
    if (!((*mask >> a) & 1)) continue;
    int64_t size = b->atoms[a];
    if (passed * size <= suffix) {
      passed *= size;
      continue;
    }
    if (suffix % passed || size % (suffix / passed) || b->atom_count == CUT_ATOMS) return false;
    int64_t minor = suffix / passed;
    memmove(&b->atoms[a + 2], &b->atoms[a + 1],
            sizeof b->atoms[0] * (size_t)(b->atom_count - a - 1));
    b->atoms[a] = size / minor;
    b->atoms[a + 1] = minor;
    b->atom_count++;
    *mask = insert_bit(*mask, a);
    for (uint32_t i = 0; i < b->node_count; i++) {
      b->nodes[i].mask = insert_bit(b->nodes[i].mask, a);
      b->space[i] = insert_bit(b->space[i], a);
    }
    return true;
  }
  return passed == suffix;
}

// Walks the atoms of `mask` from the minor end over `count` runs of dimensions (minor first): the
// mask of each run.
static void masks_of_runs(const builder *b, uint32_t mask, int32_t count, const int64_t *sizes,
                          uint32_t *masks) {
  int32_t a = b->atom_count - 1;
  for (int32_t r = 0; r < count; r++) {
    masks[r] = 0;
    for (int64_t passed = 1; passed < sizes[r]; a--) {
      vt_assert(a >= 0);
      if (!((mask >> a) & 1)) continue;
      passed *= b->atoms[a];
      masks[r] |= 1u << a;
    }
  }
}

// The atoms of *mask under the dimensions that `kept` marks, splitting between kept and other runs.
static bool mask_of_dims(builder *b, uint32_t *mask, vt_type type, const bool *kept,
                         uint32_t *out_mask) {
  int64_t sizes[VT_MAX_RANK] = {0}, suffix = 1;
  bool keeps[VT_MAX_RANK];
  uint32_t masks[VT_MAX_RANK];
  int32_t count = 0;
  for (int32_t i = type.rank - 1; i >= 0; i--) {
    if (type.dims[i] == 1) continue;
    if (count && keeps[count - 1] == kept[i]) {
      sizes[count - 1] *= type.dims[i];
    } else {
      if (count && !cut(b, mask, suffix)) return false;
      keeps[count] = kept[i];
      sizes[count++] = type.dims[i];
    }
    suffix *= type.dims[i];
  }
  masks_of_runs(b, *mask, count, sizes, masks);
  *out_mask = 0;
  for (int32_t r = 0; r < count; r++)
    if (keeps[r]) *out_mask |= masks[r];
  return true;
}

// ---- Propagating masks.

static bool set_mask(builder *b, uint32_t node, uint32_t mask, bool *changed) {
  if (!has_mask(&b->nodes[node])) return true;
  if (b->known[node]) return b->nodes[node].mask == mask;
  b->known[node] = true;
  b->nodes[node].mask = mask;
  *changed = true;
  return true;
}

static bool set_space(builder *b, uint32_t node, uint32_t mask, bool *changed) {
  if (b->space_known[node]) return b->space[node] == mask;
  b->space_known[node] = true;
  b->space[node] = mask;
  *changed = true;
  return true;
}

static bool spread_same(builder *b, uint32_t node, bool *changed) {
  const vt_nest_node *n = &b->nodes[node];
  for (uint32_t i = 0; i < n->operand_count; i++) {
    uint32_t o = n->operands[i];
    if (!has_mask(&b->nodes[o]) || (elements_of(b, o) == 1 && elements_of(b, node) != 1)) continue;
    if (b->known[node] && !set_mask(b, o, n->mask, changed)) return false;
    if (b->known[o] && !set_mask(b, node, b->nodes[o].mask, changed)) return false;
  }
  return true;
}

static bool spread_broadcast(builder *b, uint32_t node, bool *changed) {
  const vt_op *op = b->nodes[node].op;
  uint32_t o = b->nodes[node].operands[0];
  if (!b->known[node] || elements_of(b, o) == 1) return true;
  bool kept[VT_MAX_RANK] = {0};
  uint32_t count;
  int64_t last = -1;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  for (uint32_t i = 0; i < count; i++) {
    if (op->operands[0]->type.dims[i] == 1) continue;
    // A mask says which atoms a computed value lies along, not in which order: no transposes.
    if (dims[i] < last && has_mask(&b->nodes[o])) return false;
    kept[last = dims[i]] = true;
  }
  uint32_t mask = b->nodes[node].mask, inner;
  return mask_of_dims(b, &mask, op->results[0].type, kept, &inner) &&
         set_mask(b, o, inner, changed);
}

static bool spread_reduce(builder *b, uint32_t node, bool *changed) {
  const vt_nest_node *n = &b->nodes[node];
  for (uint32_t i = 0; i < n->operand_count; i++) {
    uint32_t o = n->operands[i];
    if (!has_mask(&b->nodes[o])) continue;
    if (b->known[o] && !set_space(b, node, b->nodes[o].mask, changed)) return false;
    if (b->space_known[node] && !set_mask(b, o, b->space[node], changed)) return false;
  }
  if (!b->space_known[node]) return true;
  bool kept[VT_MAX_RANK];
  memset(kept, true, sizeof kept);
  uint32_t count;
  const int64_t *dims = vt_attr_ints(n->op, VT_ATTR_DIMENSIONS, &count);
  for (uint32_t i = 0; i < count; i++) kept[dims[i]] = false;
  uint32_t mask = b->space[node], outer;
  return mask_of_dims(b, &mask, n->op->operands[0]->type, kept, &outer) &&
         set_mask(b, node, outer, changed);
}

static bool spread_node(builder *b, uint32_t node, bool *changed) {
  switch (b->nodes[node].kind) {
  case VT_NODE_OP:
  case VT_NODE_GATHER:
  case VT_NODE_SCATTER:
    return spread_same(b, node, changed);
  case VT_NODE_REDUCE:
    return spread_reduce(b, node, changed);
  case VT_NODE_ALIAS:
    if (b->nodes[node].op && b->nodes[node].op->code == VT_OP_BROADCAST_IN_DIM)
      return spread_broadcast(b, node, changed);
    return spread_same(b, node, changed);
  default:
    return true;
  }
}

// Finds a mask for every computed node. A node that no op ties to the rest but that has the size of
// the space lies over all of it.
static bool spread(builder *b) {
  for (uint32_t i = 0; i < b->node_count; i++)
    if (elements_of(b, i) ==
        1) { // a scalar: under no atom, or under the only one of a space of scalars
      b->known[i] = true;
      b->nodes[i].mask = b->elements == 1;
    }
  for (;;) {
    bool changed = false;
    for (uint32_t i = 0; i < b->node_count; i++)
      if (!spread_node(b, i, &changed)) return false;
    if (changed) continue;
    bool open = false;
    for (uint32_t i = 0; i < b->node_count && !changed; i++) {
      const vt_nest_node *n = &b->nodes[i];
      uint32_t all = (1u << b->atom_count) - 1;
      if (n->kind == VT_NODE_REDUCE && !b->space_known[i]) {
        open = true;
        if (vt_type_elements(n->op->operands[0]->type) == b->elements)
          set_space(b, i, all, &changed);
      } else if (has_mask(n) && !b->known[i]) {
        open = true;
        if (elements_of(b, i) == b->elements) set_mask(b, i, all, &changed);
      }
    }
    if (!changed) return !open;
  }
}

// ---- Leaves get a mask from each user; a leaf used over two masks becomes two nodes.

static bool place_leaf(builder *b, uint32_t *leaf, uint32_t mask) {
  uint32_t at = *leaf;
  if (!is_leaf(&b->nodes[at])) return true;
  if (elements_of(b, at) == 1) mask = b->elements == 1;
  if (!b->known[at]) {
    b->known[at] = true;
    b->nodes[at].mask = mask;
    return true;
  }
  if (b->nodes[at].mask == mask) return true;
  for (uint32_t i = 0; i < b->node_count; i++)
    if (is_leaf(&b->nodes[i]) && b->nodes[i].value == b->nodes[at].value && b->known[i] &&
        b->nodes[i].mask == mask) {
      *leaf = i;
      return true;
    }
  vt_nest_node copy = b->nodes[at];
  copy.mask = mask;
  const view *v = b->views[at];
  if ((at = add_node(b, copy)) == UINT32_MAX) return false;
  b->views[at] = v;
  b->known[at] = true;
  *leaf = at;
  return true;
}

static bool place_leaves(builder *b) {
  for (uint32_t i = 0; i < b->node_count; i++) {
    vt_nest_node *n = &b->nodes[i];
    if (is_leaf(n)) continue;
    for (uint32_t k = 0; k < n->operand_count; k++)
      if (!place_leaf(b, &n->operands[k], n->kind == VT_NODE_REDUCE ? b->space[i] : n->mask))
        return false;
  }
  return true;
}

// Dimensions of a leaf whose strides chain, as runs (minor first).
static int32_t runs_of(const builder *b, uint32_t node, int64_t *sizes, int64_t *strides) {
  const view *v = b->views[node];
  vt_type type = b->nodes[node].value->type;
  int32_t count = 0;
  for (int32_t i = type.rank - 1; i >= 0; i--) {
    if (type.dims[i] == 1) continue;
    if (count && v->strides[i] == strides[count - 1] * sizes[count - 1]) {
      sizes[count - 1] *= type.dims[i];
    } else {
      sizes[count] = type.dims[i];
      strides[count++] = v->strides[i];
    }
  }
  return count;
}

static bool cut_view(builder *b, uint32_t node) {
  int64_t sizes[VT_MAX_RANK], strides[VT_MAX_RANK], suffix = 1;
  uint32_t mask = b->nodes[node].mask;
  int32_t count = runs_of(b, node, sizes, strides);
  for (int32_t r = 0; r + 1 < count; r++) {
    suffix *= sizes[r];
    if (!cut(b, &mask, suffix)) return false;
  }
  return true;
}

static void read_view(builder *b, uint32_t node) {
  int64_t sizes[VT_MAX_RANK] = {0}, strides[VT_MAX_RANK];
  uint32_t masks[VT_MAX_RANK];
  vt_nest_node *n = &b->nodes[node];
  int64_t unit = n->kind == VT_NODE_IOTA ? 1 : (int64_t)vt_dtype_bytes(n->value->type.dtype);
  int32_t count = runs_of(b, node, sizes, strides);
  masks_of_runs(b, n->mask, count, sizes, masks);
  n->access.offset = b->views[node]->offset * unit;
  for (int32_t r = 0; r < count; r++) {
    int64_t stride = strides[r] * unit;
    for (int32_t a = b->atom_count - 1; a >= 0; a--) {
      if (!((masks[r] >> a) & 1)) continue;
      b->wide[node][a] = stride;
      stride *= b->atoms[a];
    }
  }
}

static void read_dense(builder *b, uint32_t node) {
  vt_nest_node *n = &b->nodes[node];
  int64_t stride = (int64_t)vt_dtype_bytes(n->value->type.dtype);
  for (int32_t a = b->atom_count - 1; a >= 0; a--) {
    if (!((n->mask >> a) & 1)) continue;
    b->wide[node][a] = stride;
    stride *= b->atoms[a];
  }
}

// ---- Merging and checking.

static bool may_join(const builder *b, int32_t a) {
  for (uint32_t i = 0; i < b->node_count; i++) {
    uint32_t two = (b->nodes[i].mask >> a) & 3, space = (b->space[i] >> a) & 3;
    if (two == 1 || two == 2 || (b->nodes[i].kind == VT_NODE_REDUCE && (space == 1 || space == 2)))
      return false;
    if (b->wide[i][a] != b->wide[i][a + 1] * b->atoms[a + 1]) return false;
  }
  return true;
}

static uint32_t drop_bit(uint32_t mask, int32_t at) {
  return (mask & ((1u << at) - 1)) | ((mask >> (at + 1)) << at);
}

static void join(builder *b, int32_t a) {
  b->atoms[a] *= b->atoms[a + 1];
  size_t rest = (size_t)(b->atom_count - a - 2);
  memmove(&b->atoms[a + 1], &b->atoms[a + 2], sizeof b->atoms[0] * rest);
  for (uint32_t i = 0; i < b->node_count; i++) {
    b->nodes[i].mask = drop_bit(b->nodes[i].mask, a);
    b->space[i] = drop_bit(b->space[i], a);
    memmove(&b->wide[i][a], &b->wide[i][a + 1], sizeof b->wide[i][0] * (rest + 1));
  }
  b->atom_count--;
}

static int32_t stage_of(vt_nest_node *nodes, uint32_t node) {
  vt_nest_node *n = &nodes[node];
  if (n->stage >= 0) return n->stage;
  int32_t stage = 0;
  for (uint32_t i = 0; i < n->operand_count; i++) {
    int32_t s = stage_of(nodes, n->operands[i]);
    if (s > stage) stage = s;
  }
  return n->stage = stage + (n->kind == VT_NODE_REDUCE && !n->accumulated);
}

static uint8_t level_of(const vt_nest *nest, uint32_t node) {
  vt_nest_node *n = &nest->nodes[node];
  if (n->level != VT_LEVEL_OPEN) return n->level;
  uint8_t level = n->kind == VT_NODE_REDUCE ? VT_LEVEL_ROW : VT_LEVEL_SCALAR;
  if (has_view(n)) {
    for (int32_t a = 0; a < nest->atom_count - 1; a++)
      if (n->access.strides[a]) level = VT_LEVEL_ROW;
    if (n->folded ? vt_node_fold(nest, n) != VT_FOLD_SAME
                  : n->access.strides[nest->atom_count - 1] != 0)
      level = VT_LEVEL_FULL;
  }
  for (uint32_t i = 0; i < n->operand_count; i++) {
    uint8_t other = level_of(nest, n->operands[i]);
    if (other > level && n->kind != VT_NODE_REDUCE) level = other;
  }
  return n->level = level;
}

static bool check_reduce(builder *b, vt_nest *nest, uint32_t node) {
  vt_nest_node *n = &nest->nodes[node];
  uint32_t column = 1u << (nest->atom_count - 1);
  if (b->space[node] != nest->all ||
      !vt_nest_is_full(nest, &(vt_nest_node){.mask = b->space[node]}))
    return false;
  bool columns_only = (nest->all & ~n->mask) == column;
  bool pair = n->reducer >= VT_REDUCE_ARGMAX;
  n->accumulated = !columns_only || (nest->atom_count == 1 && !n->in_group && !pair);
  if (!n->accumulated && nest->atom_count == 1 && b->elements > WHOLE_MAX && !pair) return false;
  return !n->accumulated || (!n->in_group && !pair && n->output >= 0);
}

// It must be its nest's only output: one thread writes it in the order of the updates.
static bool check_scatter(const vt_nest *nest, const vt_nest_node *n, uint32_t outputs) {
  return outputs == 1 && n->output == 0 && n->mask == nest->all &&
         (nest->atom_count == 1 ||
          (n->run == 1 && nest->atoms[nest->atom_count - 1] >= LEAST_SCATTERED));
}

// Whether a computed node that lies under fewer atoms is cheap enough to repeat, and may be
// written.
static bool check_computed(const vt_nest *nest, const vt_nest_node *n, bool one_row,
                           int *redundant) {
  bool full = vt_nest_is_full(nest, n);
  if (full && n->mask != nest->all && n->kind == VT_NODE_GATHER) return false;
  if (full && n->mask != nest->all && n->kind == VT_NODE_OP) {
    if (vt_op_info_get(n->op->code)->cost > VT_COST_CHEAP || ++*redundant > MAX_REDUNDANT_OPS)
      return false;
  }
  if (n->output < 0 || n->accumulated) return true;
  uint32_t rows = nest->all & ~(1u << (nest->atom_count - 1));
  return n->mask == nest->all || (n->mask == rows && (rows || one_row));
}

// A value computed once per row uses a whole vector: if rows are narrow it is better off in a nest
// of its own, whose columns are these rows.
static bool check_narrow(const vt_nest *nest) {
  int ops = 0;
  if (nest->atom_count == 1 || nest->atoms[nest->atom_count - 1] >= NARROW) return true;
  bool reduces = false, by_row = false;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    reduces |= n->kind == VT_NODE_REDUCE;
    by_row |= n->output >= 0 && n->mask != nest->all;
    if (n->level != VT_LEVEL_ROW || (n->kind != VT_NODE_OP && n->kind != VT_NODE_GATHER)) continue;
    bool cheap = n->kind == VT_NODE_OP && vt_op_info_get(n->op->code)->cost <= VT_COST_CHEAP;
    ops += cheap ? 1 : 4;
  }
  return ops <= MAX_NARROW_OPS && (reduces || !by_row);
}

static bool may_fold(const vt_nest *nest) {
  int64_t elements = 1;
  for (int32_t a = 0; a < nest->atom_count; a++) elements *= nest->atoms[a];
  if (nest->atom_count == 1 || nest->atoms[nest->atom_count - 1] >= NARROW ||
      elements < LEAST_FOLDED || elements > INT32_MAX)
    return false;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    bool indexed = n->kind == VT_NODE_GATHER || n->kind == VT_NODE_SCATTER;
    if (indexed || n->kind == VT_NODE_REDUCE || (n->output >= 0 && n->mask != nest->all))
      return false;
    if (is_leaf(n) && vt_type_bytes(n->value->type) > INT32_MAX) return false;
  }
  return true;
}

// Folds a narrow last atom into the one before.
static void fold(vt_nest *nest) {
  int32_t last = nest->atom_count - 1;
  nest->fold = (int32_t)nest->atoms[last];
  nest->atoms[last - 1] *= nest->fold;
  nest->atom_count--;
  nest->all >>= 1;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    vt_nest_node *n = &nest->nodes[i];
    int64_t *strides = n->access.strides;
    n->mask = (n->mask & nest->all) | (n->mask >> last) << (last - 1);
    n->level = VT_LEVEL_OPEN;
    n->folded = is_leaf(n) && strides[last - 1] != strides[last] * nest->fold;
    n->folds[0] = strides[last - 1];
    n->folds[1] = strides[last];
    strides[last - 1] = strides[last];
    strides[last] = 0;
  }
  for (uint32_t i = 0; i < nest->node_count; i++) level_of(nest, i);
}

static bool finish(builder *b, vt_nest *nest, uint32_t output_count) {
  if (b->atom_count > VT_NEST_ATOMS) return false;
  nest->atom_count = b->atom_count;
  nest->all = (1u << b->atom_count) - 1;
  memcpy(nest->atoms, b->atoms, sizeof b->atoms[0] * (size_t)b->atom_count);
  nest->node_count = b->node_count;
  nest->nodes = b->nodes;
  int32_t column = nest->atom_count - 1;
  int redundant = 0;
  bool one_row = false;
  for (uint32_t i = 0; i < b->node_count; i++) {
    vt_nest_node *n = &nest->nodes[i];
    n->stage = -1;
    n->level = VT_LEVEL_OPEN;
    for (uint32_t k = 0; k < n->operand_count; k++) nest->nodes[n->operands[k]].in_group = true;
  }
  for (uint32_t i = 0; i < b->node_count; i++) {
    vt_nest_node *n = &nest->nodes[i];
    memcpy(n->access.strides, b->wide[i], sizeof n->access.strides);
    if (n->kind == VT_NODE_REDUCE && !check_reduce(b, nest, i)) return false;
    if (n->kind == VT_NODE_REDUCE && !n->accumulated && nest->atom_count == 1) one_row = true;
    int64_t unit = n->kind == VT_NODE_IOTA ? 1 : (int64_t)vt_dtype_bytes(n->value->type.dtype);
    if (is_leaf(n) && n->access.strides[column] != 0 && n->access.strides[column] != unit)
      return false;
  }
  nest->stage_count = 1;
  for (uint32_t i = 0; i < b->node_count; i++) {
    if (!check_computed(nest, &nest->nodes[i], one_row, &redundant)) return false;
    int32_t stage = stage_of(nest->nodes, i);
    level_of(nest, i);
    const vt_nest_node *n = &nest->nodes[i];
    if (stage >= nest->stage_count && (n->in_group || n->output >= 0) && vt_nest_is_full(nest, n))
      nest->stage_count = stage + 1;
  }
  if (!check_narrow(nest)) return false;
  if (may_fold(nest)) fold(nest);
  for (uint32_t i = 0; i < b->node_count; i++)
    if (nest->nodes[i].kind == VT_NODE_SCATTER &&
        !check_scatter(nest, &nest->nodes[i], output_count))
      return false;
  return nest->stage_count <= MAX_STAGES;
}

static bool build(builder *b, vt_nest *nest, uint32_t output_count, vt_value *const *outputs) {
  vt_value *largest = NULL;
  bool *used = VT_NEW_ARRAY(b->arena, bool, b->node_room);
  for (uint32_t i = 0; i < b->node_count; i++)
    for (uint32_t k = 0; k < b->nodes[i].operand_count; k++) used[b->nodes[i].operands[k]] = true;
  for (uint32_t i = 0; i < output_count; i++) {
    uint32_t node = find_node(b, outputs[i]);
    if (node != UINT32_MAX) used[node] = true;
  }
  for (uint32_t i = 0; i < b->node_count; i++) {
    const vt_nest_node *n = &b->nodes[i];
    vt_value *value = n->kind == VT_NODE_REDUCE ? n->op->operands[0] : n->value;
    if (n->kind == VT_NODE_LOAD && !n->op) continue; // a plain input counts by its user
    if ((b->gathered[i] || n->kind == VT_NODE_LOAD) && !used[i]) continue; // only views of it are
    if (n->kind != VT_NODE_CONST &&
        (!largest || vt_type_elements(value->type) > vt_type_elements(largest->type)))
      largest = value;
  }
  if (!largest) return false;
  b->elements = vt_type_elements(largest->type);
  b->atom_count = 1;
  b->atoms[0] = b->elements;
  for (uint32_t i = 0; i < output_count; i++) {
    uint32_t node = find_node(b, outputs[i]);
    if (node == UINT32_MAX || b->nodes[node].kind == VT_NODE_CONST) return false;
    // A leaf that is also an output: the copy is a node of its own.
    if (has_view(&b->nodes[node]) && b->nodes[node].kind != VT_NODE_SCATTER) {
      vt_nest_node copy = {.kind = VT_NODE_ALIAS,
                           .value = outputs[i],
                           .operand_count = 1,
                           .operands = {node},
                           .input = -1};
      if ((node = add_node(b, copy)) == UINT32_MAX) return false;
    }
    b->nodes[node].output = (int32_t)i;
  }
  if (!spread(b) || !place_leaves(b)) return false;
  for (uint32_t i = 0; i < b->node_count; i++)
    if (has_view(&b->nodes[i]) && b->nodes[i].mask && !cut_view(b, i)) return false;
  for (uint32_t i = 0; i < b->node_count; i++) {
    if (has_view(&b->nodes[i])) {
      if (b->known[i]) read_view(b, i);
    } else if (b->nodes[i].output >= 0) {
      read_dense(b, i);
    }
  }
  for (int32_t a = b->atom_count - 2; a >= 0; a--)
    if (may_join(b, a)) join(b, a);
  return finish(b, nest, output_count);
}

vt_nest *vt_nest_build(vt_arena *arena, uint32_t op_count, vt_op *const *ops, uint32_t input_count,
                       vt_value *const *inputs, uint32_t output_count, vt_value *const *outputs) {
  uint32_t room = input_count * 2 + op_count * 3 + 16; // leaves may double, outputs may be copies
  if (room > VT_NEST_NODES) room = VT_NEST_NODES;
  builder b = {.arena = arena, .node_room = room, .input_count = input_count, .inputs = inputs};
  b.nodes = VT_NEW_ARRAY(arena, vt_nest_node, room);
  b.known = VT_NEW_ARRAY(arena, bool, room);
  b.space = VT_NEW_ARRAY(arena, uint32_t, room);
  b.space_known = VT_NEW_ARRAY(arena, bool, room);
  b.views = VT_NEW_ARRAY(arena, const view *, room);
  b.gathered = VT_NEW_ARRAY(arena, bool, room);
  b.wide = vt_arena_push(arena, sizeof *b.wide * room);
  vt_nest *nest = VT_NEW(arena, vt_nest);
  nest->input_count = input_count;
  bool good = true;
  for (uint32_t i = 0; i < op_count && good; i++) good = add_op(&b, ops[i]);
  good = good && build(&b, nest, output_count, outputs);
  vt_map_free(&b.by_value);
  return good ? nest : NULL;
}
