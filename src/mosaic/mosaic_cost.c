// SPDX-License-Identifier: Apache-2.0
// mosaic_cost.c - what a kernel asks of the chip: its text, walked for points of the grid.
//
// Integers that follow from the point of the grid, and from tables that are constants of the
// program (which blocks of a mask are empty, which block comes next), are computed, so that
// branches and loops count as they run. Of large grids some hundred points stand for all. A branch
// that is not known is taken; a loop whose length is not known runs once.
#include <math.h>
#include <string.h>

#include "ir/number.h"
#include "mosaic/mosaic_ir.h"

enum { MOST_POINTS = 256, MOST_TURNS = 32, MOST_STEPS = 1 << 20, LANES = 128, SUBLANES = 8 };
enum { BF16X3_PASSES = 3, FP32_PASSES = 6 }; // of bf16, as XLA multiplies at HIGH and HIGHEST

typedef struct walk {
  const vt_mosaic *kernel;
  vt_kernel_cost *cost;
  const vt_matrix_units *units;
  int64_t *values; // by slot
  bool *known;
  const vt_literal **tables; // by number of the operand that comes before the grid starts; or NULL
  int64_t steps;             // that may still be taken
} walk;

static double registers_of(vt_mtype type) {
  if (type.kind != VT_MVECTOR || !type.rank) return type.kind == VT_MVECTOR;
  double count = ceil((double)type.dims[type.rank - 1] / LANES);
  if (type.rank > 1) count *= ceil((double)type.dims[type.rank - 2] / SUBLANES);
  for (int32_t i = 0; i + 2 < type.rank; i++) count *= (double)type.dims[i];
  return count;
}

static double row_blocks(vt_mtype type) {
  return registers_of(type) / ceil((double)type.dims[type.rank - 1] / LANES);
}

// Registers as they lie in memory: narrower elements fill fewer.
static double packed(vt_mtype type) {
  return registers_of(type) * fmin(1, (double)vt_dtype_get(type.dtype)->bits / 32);
}

static void know(walk *w, const vt_mvalue *value, int64_t number) {
  w->values[value->slot] = number;
  w->known[value->slot] = true;
}

static bool number(const walk *w, const vt_mvalue *value, int64_t *out) {
  *out = w->values[value->slot];
  return w->known[value->slot];
}

static bool compare(int64_t predicate, int64_t a, int64_t b) {
  uint64_t u = (uint64_t)a, v = (uint64_t)b;
  bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b, u<v, u <= v, u> v, u >= v};
  return predicate >= 0 && predicate < 10 && results[predicate];
}

// The table that a reference in a kernel or in a window's function is: both get them behind the
// point of the grid. NULL: not known.
static const vt_literal *table_of(const walk *w, const vt_mvalue *ref) {
  const vt_mblock *block = ref->block;
  if (ref->op || block->owner) return NULL;
  int64_t at = ref - block->args - (int64_t)w->kernel->grid_rank;
  return at >= 0 && at < w->kernel->prefetch_count ? w->tables[at] : NULL;
}

static void look_up(walk *w, const vt_mop *op) {
  const vt_literal *table = table_of(w, op->operands[0]);
  int64_t at = 0, index;
  if (!table || table->type.rank + 1 != (int32_t)op->operand_count) return;
  for (int32_t d = 0; d < table->type.rank; d++) {
    if (!number(w, op->operands[d + 1], &index) || index < 0 || index >= table->type.dims[d])
      return;
    at = at * table->type.dims[d] + index;
  }
  know(w, &op->results[0], vt_int_load(table->type.dtype, table->data, table->splat ? 0 : at));
}

// Integers of one element; what is not known stays unknown.
static void compute(walk *w, const vt_mop *op) {
  int64_t a = 0, b = 0, c = 0, result;
  bool one = op->operand_count > 0 && number(w, op->operands[0], &a);
  bool two = one && op->operand_count > 1 && number(w, op->operands[1], &b);
  w->known[op->results[0].slot] = false;
  if (op->code == VT_MOP_CONSTANT) {
    const vt_mattr *value = vt_mop_attr(op, VT_MATTR_VALUE);
    if (!value || !value->literal || vt_dtype_is_float(op->results[0].type.dtype)) return;
    size_t size = (size_t)vt_dtype_get(value->literal->type.dtype)->bytes;
    int64_t bits = 0;
    memcpy(&bits, value->literal->data, size < 8 ? size : 8);
    int shift = 64 - 8 * (int)(size < 8 ? size : 8);
    know(w, &op->results[0], (int64_t)((uint64_t)bits << shift) >> shift);
    return;
  }
  switch (op->code) {
  case VT_MOP_LOAD:
    look_up(w, op);
    return;
  case VT_MOP_INDEX_CAST:
  case VT_MOP_INDEX_CASTUI:
  case VT_MOP_EXTSI:
  case VT_MOP_EXTUI:
  case VT_MOP_TRUNCI:
  case VT_MOP_ASSUME_MULTIPLE:
    if (!one) return;
    result = op->code == VT_MOP_EXTUI && op->operands[0]->type.dtype == VT_PRED ? a & 1 : a;
    break;
  case VT_MOP_SELECT:
    if (!one || !number(w, op->operands[a & 1 ? 1 : 2], &c)) return;
    result = c;
    break;
  case VT_MOP_ADDI:
    result = (int64_t)((uint64_t)a + (uint64_t)b);
    break;
  case VT_MOP_SUBI:
    result = (int64_t)((uint64_t)a - (uint64_t)b);
    break;
  case VT_MOP_MULI:
    result = (int64_t)((uint64_t)a * (uint64_t)b);
    break;
  case VT_MOP_DIVSI:
  case VT_MOP_DIVUI:
  case VT_MOP_REMSI:
  case VT_MOP_REMUI:
    if (!two || b <= 0) return;
    result = op->code == VT_MOP_DIVSI || op->code == VT_MOP_DIVUI ? a / b : a % b;
    break;
  case VT_MOP_ANDI:
    result = a & b;
    break;
  case VT_MOP_ORI:
    result = a | b;
    break;
  case VT_MOP_XORI:
    result = a ^ b;
    break;
  case VT_MOP_MAXSI:
    result = a > b ? a : b;
    break;
  case VT_MOP_MINSI:
    result = a < b ? a : b;
    break;
  case VT_MOP_CMPI:
    result = compare(vt_mop_i64(op, VT_MATTR_PREDICATE, -1), a, b);
    break;
  default:
    return;
  }
  bool unary = op->code == VT_MOP_SELECT || op->operand_count == 1;
  if (unary || two) know(w, &op->results[0], result);
}

static void count_product(walk *w, const vt_mop *op, double times) {
  vt_mtype left = op->operands[0]->type, out = op->results[0].type;
  if (!out.rank) return;
  double columns = (double)out.dims[out.rank - 1];
  double rows = (double)vt_mtype_elements(out) / fmax(columns, 1);
  double depth = (double)vt_mtype_elements(left) / fmax(rows, 1);
  vt_dtype right = op->operands[1]->type.dtype;
  double passes = 1 / vt_products_at_once(w->units, left.dtype, right), edge = w->units->edge;
  if (!vt_mop_rounds(op) && left.dtype == VT_F32)
    passes = vt_mop_i64(op, VT_MATTR_PRECISION, 0) == VT_MWORD_FP32 ? FP32_PASSES : BF16X3_PASSES;
  double tiles = ceil(depth / edge) * ceil(columns / edge);
  w->cost->rows += times * passes * tiles * fmax(ceil(rows / SUBLANES) * SUBLANES, w->units->load);
  w->cost->flops += times * 2 * rows * depth * columns;
  w->cost->floats[VT_OP_ADD] += times * registers_of(out); // into the sum
}

static void count_vector(walk *w, const vt_mop *op, double times) {
  vt_mtype type = op->results[0].type;
  double registers = times * registers_of(type);
  vt_opcode like = vt_mop_info_get(op->code)->loop;
  switch (op->code) {
  case VT_MOP_LOAD_VECTOR:
  case VT_MOP_VECTOR_LOAD:
  case VT_MOP_STRIDED_LOAD:
    w->cost->loads += times * packed(type);
    return;
  case VT_MOP_MULTI_REDUCTION: {
    const vt_mtype from = op->operands[0]->type;
    uint32_t count = 0;
    const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_REDUCTION_DIMS);
    for (; dims && count < dims->count; count++)
      if (dims->ints[count] == from.rank - 1) w->cost->lanes += times * row_blocks(from);
    w->cost->floats[VT_OP_ADD] += times * registers_of(from);
    return;
  }
  case VT_MOP_BROADCAST: {
    const vt_mtype from = op->operands[0]->type;
    bool spread = from.kind == VT_MVECTOR && from.rank && type.rank &&
                  from.dims[from.rank - 1] == 1 && type.dims[type.rank - 1] > 1;
    if (spread) w->cost->lanes += times * row_blocks(type);
    return;
  }
  case VT_MOP_TRANSPOSE:
    if (type.rank > 1) w->cost->lanes += registers * SUBLANES / 4;
    return;
  case VT_MOP_EXP2:
    like = VT_OP_EXPONENTIAL;
    break;
  case VT_MOP_LOG2:
    like = VT_OP_LOG;
    break;
  case VT_MOP_RECIPROCAL:
    like = VT_OP_DIVIDE;
    break;
  default:
    break;
  }
  if (op->code == VT_MOP_CONSTANT || (unsigned)like >= VT_OP_COUNT || like == VT_OP_INVALID) return;
  bool whole = !vt_dtype_is_float(type.dtype);
  *(whole ? &w->cost->integers[like] : &w->cost->floats[like]) += registers;
}

static void walk_block(walk *w, const vt_mblock *block, double times);

static void walk_loop(walk *w, const vt_mop *op, double times) {
  int64_t from, to, step;
  const vt_mblock *body = op->blocks[0];
  bool counted = number(w, op->operands[0], &from) & number(w, op->operands[1], &to) &
                 number(w, op->operands[2], &step);
  for (uint32_t i = 1; i < body->arg_count; i++) w->known[body->args[i].slot] = false;
  if (!counted || step <= 0) {
    w->known[body->args[0].slot] = false;
    walk_block(w, body, times);
    return;
  }
  if (to <= from) return;
  uint64_t turns = ((uint64_t)to - (uint64_t)from - 1) / (uint64_t)step + 1;
  uint64_t taken = turns < MOST_TURNS ? turns : MOST_TURNS;
  for (uint64_t i = 0; i < taken; i++) {
    uint64_t turn = turns / taken * i;
    know(w, &body->args[0], (int64_t)((uint64_t)from + turn * (uint64_t)step));
    walk_block(w, body, times * (double)turns / (double)taken);
  }
}

static void walk_op(walk *w, const vt_mop *op, double times) {
  int64_t is = 1;
  switch (op->code) {
  case VT_MOP_FOR:
    walk_loop(w, op, times);
    return;
  case VT_MOP_IF:
    is = number(w, op->operands[0], &is) ? is & 1 : 1;
    if (op->block_count > (is ? 0 : 1)) walk_block(w, op->blocks[is ? 0 : 1], times);
    return;
  case VT_MOP_MATMUL:
    count_product(w, op, times);
    return;
  case VT_MOP_STORE_VECTOR:
  case VT_MOP_VECTOR_STORE:
  case VT_MOP_STRIDED_STORE:
    w->cost->stores += times * packed(op->operands[0]->type);
    return;
  case VT_MOP_ENQUEUE_DMA: {
    int64_t bytes = vt_mtype_elements(op->operands[0]->type);
    if (bytes > 0) w->cost->bytes += times * (double)vt_mtype_bytes(op->operands[0]->type);
    return;
  }
  default:
    break;
  }
  for (uint32_t i = 0; i < op->block_count; i++) walk_block(w, op->blocks[i], times);
  if (op->result_count != 1) {
    for (uint32_t i = 0; i < op->result_count; i++) w->known[op->results[i].slot] = false;
  } else if (op->results[0].type.kind == VT_MVECTOR) {
    count_vector(w, op, times);
  } else if (op->results[0].type.kind == VT_MSCALAR) {
    compute(w, op);
  }
}

static void walk_block(walk *w, const vt_mblock *block, double times) {
  for (const vt_mop *op = block->first; op && w->steps > 0; op = op->next, w->steps--)
    walk_op(w, op, times);
}

// Where the window's block lies at a point of the grid; false: it is not known.
static bool place(walk *w, const vt_mwindow *window, const int64_t *point, int64_t *out) {
  const vt_mblock *block = window->transform->block;
  for (uint32_t i = 0; i < block->arg_count; i++) {
    w->known[block->args[i].slot] = false;
    if (i < w->kernel->grid_rank) know(w, &block->args[i], point[i]);
  }
  const vt_mop *last = NULL;
  for (const vt_mop *op = block->first; op; last = op, op = op->next)
    if (op->result_count == 1 && op->results[0].type.kind == VT_MSCALAR) compute(w, op);
  memset(out, 0, VT_MOSAIC_RANK * sizeof *out);
  for (uint32_t i = 0; last && i < last->operand_count && i < VT_MOSAIC_RANK; i++)
    if (!number(w, last->operands[i], &out[i])) return false;
  return true;
}

static void point_of(const vt_mosaic *k, int64_t at, int64_t *point) {
  for (uint32_t d = k->grid_rank; d-- > 0;) {
    int64_t size = k->grid[d] > 0 ? k->grid[d] : 1;
    point[d] = at % size;
    at /= size;
  }
}

// Blocks that the step before left elsewhere are moved.
static void count_windows(walk *w, int64_t at, double times) {
  const vt_mosaic *k = w->kernel;
  const vt_mvalue *inside = k->body->block->args + k->grid_rank + k->prefetch_count;
  int64_t now[VT_MOSAIC_RANK], before[VT_MOSAIC_RANK], here[VT_MOSAIC_RANK], there[VT_MOSAIC_RANK];
  point_of(k, at, now);
  point_of(k, at ? at - 1 : 0, before);
  for (uint32_t i = 0; i < k->window_count; i++) {
    if (k->windows[i].whole || vt_mtype_elements(inside[i].type) < 0) continue;
    double bytes = (double)vt_mtype_bytes(inside[i].type);
    bool input = i < k->input_count;
    bool sure = place(w, &k->windows[i], now, here) & place(w, &k->windows[i], before, there);
    if (!at) *(input ? &w->cost->first_bytes : &w->cost->last_bytes) += bytes;
    if (at && sure && !memcmp(here, there, sizeof here)) continue;
    w->cost->bytes += bytes * (at ? times : 1);
  }
}

bool vt_mosaic_said(const vt_op *call, vt_kernel_said *out) {
  const vt_mosaic *k = vt_mosaic_of(call);
  if (!k || !k->config.says) return false;
  *out = (vt_kernel_said){k->config.flops, k->config.transcendentals, k->config.bytes};
  return true;
}

// Of the operands that the kernel has before its grid starts, those that the program says.
static const vt_literal **tables_of(const vt_mosaic *k, const vt_op *call, const vt_scope *scope,
                                    vt_arena *arena) {
  const vt_literal **tables = VT_NEW_ARRAY(arena, const vt_literal *, k->prefetch_count + 1);
  for (uint32_t i = 0; i < k->prefetch_count; i++) {
    const vt_value *value = vt_scope_resolve(scope, call->operands[k->dynamic_count + i], NULL);
    if (value->op && value->op->code == VT_OP_CONSTANT && vt_dtype_is_integer(value->type.dtype))
      tables[i] = vt_attr_literal(value->op, VT_ATTR_VALUE);
  }
  return tables;
}

bool vt_mosaic_cost(const vt_op *call, const vt_scope *scope, const vt_matrix_units *units,
                    vt_kernel_cost *out) {
  const vt_mosaic *k = vt_mosaic_of(call);
  *out = (vt_kernel_cost){.steps = 1};
  if (!k) return false;
  for (uint32_t d = 0; d < k->grid_rank; d++) out->steps *= k->grid[d] > 0 ? (double)k->grid[d] : 1;
  if (out->steps > 1e15) return false;
  vt_arena arena = {0};
  walk w = {k,
            out,
            units,
            VT_NEW_ARRAY(&arena, int64_t, k->slot_count + 1),
            VT_NEW_ARRAY(&arena, bool, k->slot_count + 1),
            tables_of(k, call, scope, &arena),
            MOST_STEPS};
  int64_t points = (int64_t)out->steps, taken = points < MOST_POINTS ? points : MOST_POINTS;
  // An odd stride meets all residues of the inner dimensions.
  int64_t stride = points / taken | 1;
  double times = out->steps / (double)taken;
  for (int64_t i = 0; i < taken && w.steps > 0; i++) {
    int64_t point[VT_MOSAIC_RANK], at = points == taken ? i : i * stride % points;
    point_of(k, at, point);
    count_windows(&w, at, times);
    for (uint32_t d = 0; d < k->body->block->arg_count; d++)
      w.known[k->body->block->args[d].slot] = false;
    for (uint32_t d = 0; d < k->grid_rank; d++) know(&w, &k->body->block->args[d], point[d]);
    walk_block(&w, k->body->block, times);
  }
  out->parallel = k->parallel_dims > 0 || k->core_dim >= 0;
  vt_arena_free(&arena);
  return true;
}
