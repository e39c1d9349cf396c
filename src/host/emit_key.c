// SPDX-License-Identifier: Apache-2.0
// emit_key.c - what the code of a nest depends on: its key, and the numbers that it is given.
#include <string.h>

#include "eval/kernel.h"
#include "host/cpu.h"
#include "host/emit.h"

static const int64_t MAX_KEPT_BYTES = 512 << 10;
static const int64_t MAX_COLUMN_BYTES = 24 << 10; // beside what else the first cache holds

static void mark_live(const vt_nest *nest, uint32_t node, bool *live) {
  if (live[node]) return;
  live[node] = true;
  for (uint32_t i = 0; i < nest->nodes[node].operand_count; i++)
    mark_live(nest, nest->nodes[node].operands[i], live);
}

void vt_nest_live(const vt_nest *nest, bool *live) {
  memset(live, 0, nest->node_count);
  for (uint32_t i = 0; i < nest->node_count; i++)
    if (nest->nodes[i].output >= 0) mark_live(nest, i, live);
}

// About how many simple vector instructions.
static int node_cost(const vt_nest_node *n) {
  enum { CALL = 12 };
  if (n->kind == VT_NODE_GATHER) return CALL;
  if (n->kind != VT_NODE_OP) return 0;
  uint8_t cost = vt_op_info_get(n->op->code)->cost;
  return cost == VT_COST_FREE ? 0 : cost == VT_COST_CHEAP ? 1 : CALL;
}

// About how many simple vector instructions of f32 an op takes, for how long it takes: measured on
// Zen 3.
static int64_t op_time(const vt_op *op) {
  enum { WIDE_ROOT = 12, ROOT = 6, FUNCTION = 16, ANGLE = 24, POWER = 72, LANES = 100 };
  vt_dtype dtype = op->operands[0]->type.dtype;
  uint8_t cost = vt_op_info_get(op->code)->cost;
  if (cost == VT_COST_FREE || cost == VT_COST_CHEAP) return cost == VT_COST_CHEAP;
  if (vt_emit_calls_evaluator(op)) return LANES;
  switch (op->code) {
  case VT_OP_DIVIDE:
  case VT_OP_SQRT:
  case VT_OP_RSQRT:
    return dtype == VT_F64 ? WIDE_ROOT : vt_dtype_is_float(dtype) ? ROOT : FUNCTION;
  case VT_OP_POWER:
    return POWER;
  default:
    return cost == VT_COST_EXPENSIVE ? ANGLE : FUNCTION;
  }
}

// Measured on Zen 3; vectors of AVX-512 have twice the elements (on a Xeon with AMX functions take
// 0.25 to 0.5 of what is assumed for half the vectors).
int64_t vt_nest_picoseconds(const vt_nest *nest, const vt_target *target) {
  enum { SIMPLE = 40, ACCESS = 80, GATHER = 1000 };
  int64_t simple = target->avx512 ? SIMPLE / 2 : SIMPLE;
  bool live[VT_NEST_NODES];
  int64_t time = 0;
  vt_nest_live(nest, live);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    int64_t bits = vt_dtype_get(n->value->type.dtype)->bits, width = bits > 32 ? 2 : 1;
    if (!live[i] || (!vt_nest_is_full(nest, n) && n->kind != VT_NODE_REDUCE)) continue;
    if (n->kind == VT_NODE_LOAD || n->output >= 0) time += ACCESS * width;
    if (n->kind == VT_NODE_OP) time += simple * width * op_time(n->op);
    if (n->kind == VT_NODE_REDUCE) time += simple * width;
    if (n->kind == VT_NODE_GATHER || n->kind == VT_NODE_SCATTER) time += GATHER;
  }
  return time > 0 ? time : 1;
}

int vt_nest_only_for(const vt_nest *nest, const bool *movable, uint32_t user, uint32_t operand,
                     bool *out_only) {
  uint32_t from_outside[VT_NEST_NODES]; // uses that are not found to be for this operand
  bool live[VT_NEST_NODES];
  int cost = 0;
  uint8_t kind = nest->nodes[nest->nodes[user].operands[operand]].kind;
  if (kind == VT_NODE_CONST || kind == VT_NODE_LOAD || kind == VT_NODE_IOTA) return 0;
  vt_nest_live(nest, live);
  memset(from_outside, 0, sizeof from_outside);
  memset(out_only, 0, nest->node_count);
  for (uint32_t i = 0; i < nest->node_count; i++)
    for (uint32_t k = 0; live[i] && k < nest->nodes[i].operand_count; k++)
      from_outside[nest->nodes[i].operands[k]]++;
  from_outside[nest->nodes[user].operands[operand]]--;
  for (uint32_t i = nest->nodes[user].operands[operand] + 1; i-- > 0;) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i] || !movable[i] || from_outside[i]) continue;
    out_only[i] = true;
    cost += node_cost(n);
    for (uint32_t k = 0; k < n->operand_count; k++) from_outside[n->operands[k]]--;
  }
  return cost;
}

int32_t vt_nest_scatter(const vt_nest *nest) {
  for (uint32_t i = 0; i < nest->node_count; i++)
    if (nest->nodes[i].kind == VT_NODE_SCATTER && nest->nodes[i].output >= 0) return (int32_t)i;
  return -1;
}

// Much arithmetic is one long chain for each vector, and a CPU sees few of them ahead: two are
// computed side by side. Without FMA, 8 lanes are two registers already.
int vt_nest_lanes(const vt_nest *nest, const vt_target *target) {
  enum { PAIR_COST = 12, WORTH = 16 };
  int64_t columns = nest->atoms[nest->atom_count - 1], lanes = target->lanes;
  bool live[VT_NEST_NODES];
  int cost = 0;
  if (!target->fma || nest->fold || (columns % (2 * lanes) && columns < WORTH * lanes))
    return target->lanes;
  vt_nest_live(nest, live);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i]) continue;
    if (n->kind == VT_NODE_REDUCE || n->kind == VT_NODE_GATHER || n->kind == VT_NODE_SCATTER ||
        vt_dtype_get(n->value->type.dtype)->bits > 32)
      return target->lanes;
    if (n->level == VT_LEVEL_FULL) cost += node_cost(n);
  }
  return cost < PAIR_COST ? target->lanes : 2 * target->lanes;
}

// Rows that are reduced to a value wait for it: others are computed meanwhile. Together they fit
// the first cache. Without AVX-512 registers do not suffice for two. Of many nodes it would take
// long to compile: a training step of two layers of a transformer takes 86 ms with one row each, 99
// with two for up to 28 nodes, 107 for up to 48.
int32_t vt_nest_abreast(const vt_nest *nest, const vt_target *target) {
  enum { MOST_COLUMNS = 1024, MOST_NODES = 28 };
  int64_t rows = 1, columns = nest->atoms[nest->atom_count - 1];
  for (int32_t a = 0; a < nest->atom_count - 1; a++) rows *= nest->atoms[a];
  if (!target->avx512 || rows == 1 || columns > MOST_COLUMNS) return 1;
  bool live[VT_NEST_NODES], reduces = false;
  int32_t nodes = 0;
  vt_nest_live(nest, live);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i]) continue;
    if (n->accumulated || n->kind == VT_NODE_SCATTER) return 1;
    reduces |= n->kind == VT_NODE_REDUCE;
    nodes++;
  }
  return reduces && nodes <= MOST_NODES ? VT_NEST_ABREAST : 1;
}

bool vt_nest_is_ragged(const vt_nest *nest, const vt_target *target) {
  return nest->atom_count > 1 &&
         nest->atoms[nest->atom_count - 1] % vt_nest_lanes(nest, target) != 0;
}

static int64_t accumulator_bytes(const vt_nest_node *n) {
  return (int64_t)vt_dtype_bytes(vt_emit_compute_dtype(n->value->type.dtype));
}

uint32_t vt_nest_dims(const vt_nest *nest, const int64_t *accumulator_offsets, int64_t *out) {
  bool live[VT_NEST_NODES];
  uint32_t at = 0;
  vt_nest_live(nest, live);
  for (int32_t a = 0; a < nest->atom_count; a++, at++)
    if (out) out[at] = nest->atoms[a];
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i] || !vt_node_has_slot(n)) continue;
    int64_t bytes = (int64_t)vt_dtype_bytes(n->value->type.dtype);
    for (int32_t a = -1; a < nest->atom_count - 1; a++, at++) {
      if (!out) continue;
      out[at] = a < 0 ? n->access.offset : n->access.strides[a];
      if (!n->accumulated) continue;
      out[at] = a < 0 ? accumulator_offsets[n->output] : out[at] / bytes * accumulator_bytes(n);
    }
    for (int k = 0; k < 2 && n->folded; k++, at++)
      if (out) out[at] = n->folds[k];
    if (!vt_node_has_parts(n)) continue;
    if (out) out[at] = n->access.strides[nest->atom_count - 1];
    for (uint32_t k = 0; k < vt_nest_parts(n) && out; k++) {
      out[at + 1 + 2 * k] = n->parts[k].limit;
      out[at + 2 + 2 * k] = n->parts[k].stride;
    }
    at += 1 + 2 * vt_nest_parts(n);
  }
  return at;
}

static void key_attrs(const vt_op *op, vt_text *key) {
  switch (op->code) {
  case VT_OP_COMPARE:
    vt_text_printf(key, "?%d", (int)vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION));
    if (vt_attr_i64_or(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE) == VT_CMPTYPE_TOTALORDER)
      vt_text_put(key, "t");
    break;
  case VT_OP_REDUCE_PRECISION:
    vt_text_printf(key, "e%dm%d", (int)vt_attr_i64(op, VT_ATTR_EXPONENT_BITS),
                   (int)vt_attr_i64(op, VT_ATTR_MANTISSA_BITS));
    break;
  case VT_OP_CONSTANT: {
    const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
    uint64_t bits = 0;
    memcpy(&bits, literal->data, vt_dtype_bytes(literal->type.dtype));
    vt_text_printf(key, "=%llx", (unsigned long long)bits);
    break;
  }
  default:
    break;
  }
}

bool vt_nest_keeps_buffers(const vt_nest *nest) {
  return nest->stage_count > 1 &&
         nest->atoms[nest->atom_count - 1] * 4 * VT_NEST_BUFFERS <= MAX_KEPT_BYTES;
}

// Whether the value depends on the column, but not on the row.
static bool is_of_columns(const vt_nest *nest, const bool *of_columns, const vt_nest_node *n) {
  if (n->level != VT_LEVEL_FULL) return false;
  if (n->kind == VT_NODE_LOAD || n->kind == VT_NODE_IOTA) {
    for (int32_t a = 0; a < nest->atom_count - 1; a++)
      if (n->access.strides[a]) return false;
    return true;
  }
  if (n->kind != VT_NODE_OP && n->kind != VT_NODE_ALIAS) return false;
  for (uint32_t k = 0; k < n->operand_count; k++) {
    uint32_t from = n->operands[k];
    bool fixed = nest->nodes[from].level == VT_LEVEL_SCALAR;
    if (!fixed && !of_columns[from]) return false;
  }
  return true;
}

// Whether it takes more than a load.
static bool is_made(const vt_nest_node *n) {
  vt_dtype dtype = n->value->type.dtype;
  return n->kind == VT_NODE_OP || vt_emit_compute_dtype(dtype) != dtype;
}

// Parameters of a normalisation, a bias: those of bf16 are converted once, not in each row. A value
// that only others of this kind read is not kept.
void vt_nest_columns(const vt_nest *nest, bool *out_once) {
  enum { LEAST_ROWS = 16 };
  bool live[VT_NEST_NODES], of_columns[VT_NEST_NODES] = {false}, read[VT_NEST_NODES] = {false};
  int64_t rows = 1, bytes = 4 * nest->atoms[nest->atom_count - 1], left = MAX_COLUMN_BYTES;
  memset(out_once, 0, nest->node_count);
  for (int32_t a = 0; a < nest->atom_count - 1; a++) rows *= nest->atoms[a];
  if (nest->fold || rows < LEAST_ROWS || bytes > left || vt_nest_scatter(nest) >= 0) return;
  vt_nest_live(nest, live);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i]) continue;
    of_columns[i] = is_of_columns(nest, of_columns, n);
    for (uint32_t k = 0; k < n->operand_count; k++) read[n->operands[k]] |= !of_columns[i];
  }
  for (uint32_t i = 0; i < nest->node_count && left >= bytes; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    bool narrow = vt_dtype_get(n->value->type.dtype)->bits <= 32;
    out_once[i] = of_columns[i] && read[i] && n->output < 0 && narrow && is_made(n);
    if (out_once[i]) left -= bytes;
  }
}

bool vt_nest_fetches(const vt_nest *nest, const vt_nest_node *n) {
  return n->output >= 0 && vt_nest_is_full(nest, n) &&
         vt_host_fetches_results(vt_type_bytes(n->value->type));
}

void vt_nest_key(const vt_nest *nest, const vt_target *target, vt_text *key) {
  bool live[VT_NEST_NODES], once[VT_NEST_NODES];
  vt_nest_live(nest, live);
  vt_nest_columns(nest, once);
  vt_text_printf(key, "nest2 l%d%d%d a%d i%u r%d%d s%d k%d f%d", vt_nest_lanes(nest, target),
                 target->avx512, target->bf16, nest->atom_count, nest->input_count,
                 vt_nest_is_ragged(nest, target), vt_nest_abreast(nest, target), nest->stage_count,
                 vt_nest_keeps_buffers(nest), nest->fold);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!live[i]) continue;
    vt_text_printf(key, "\n%u k%d t%d s%d l%d", i, n->kind, n->value->type.dtype, n->stage,
                   nest->nodes[i].level);
    if (n->kind == VT_NODE_LOAD) vt_text_printf(key, " i%d", n->input);
    if (once[i]) vt_text_put(key, " b");
    if (n->folded) vt_text_printf(key, " f%d", vt_node_fold(nest, n));
    if (n->kind == VT_NODE_GATHER)
      vt_text_printf(key, " g%d%c%c%c", n->input, n->narrow ? 'n' : 'w', n->far ? 'f' : 'n',
                     vt_node_follows_columns(nest, n) ? 'c' : 'r');
    if (n->kind == VT_NODE_SCATTER)
      vt_text_printf(key, " s%d t%d r%d u%d%c%c%c%c", vt_region_binary(n->op->regions[0], 0, 1),
                     n->op->results[0].type.dtype, n->run, n->updates, n->narrow ? 'n' : 'w',
                     n->far ? 'f' : 'n', n->settles ? 's' : 'a',
                     vt_node_follows_columns(nest, n) ? 'c' : 'r');
    if (n->output >= 0)
      vt_text_printf(key, " o%d%c%s", n->output, vt_nest_is_full(nest, n) ? 'f' : 'r',
                     vt_nest_fetches(nest, n) ? "p" : "");
    if (n->kind == VT_NODE_REDUCE)
      vt_text_printf(key, " r%d%c", n->reducer, n->accumulated ? 'a' : 'r');
    if (n->kind == VT_NODE_REDUCE) vt_text_printf(key, "#%d", n->value->index);
    if (n->kind == VT_NODE_OP || n->kind == VT_NODE_CONST) {
      vt_text_printf(key, " c%d", n->op->code);
      key_attrs(n->op, key);
    }
    for (uint32_t k = 0; k < n->operand_count; k++) vt_text_printf(key, " %u", n->operands[k]);
  }
}
