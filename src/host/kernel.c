// SPDX-License-Identifier: Apache-2.0
// kernel.c - runs a kernel: splits the index space into tasks by shape only, combines partial
// reductions as a tree.
// In:  code from jit.c, or a prepared native op. Owns nothing: kernels are in their vt_jit's arena.
// Determinism: tasks and the order in which their partial results are combined depend on sizes
// alone, so results are bit-identical for any number of threads.
#include "base/check.h"
#include "host/kernel.h"

#include <math.h>
#include <string.h>

#include "eval/kernel.h"
#include "host/cpu.h"
#include "host/kernel_impl.h"
#include "host/kernel_move.h"
#include "host/kernel_native.h"
#include "host/kernel_reduce.h"
#include "host/waiting.h"

enum { TASK_ELEMENTS = 16 << 10, MAX_TASKS = 256, COLUMN_TILE = 2048, MAX_PORTS = 128 };
enum { VECTORS = 64 }; // elements: a multiple of any vector's
enum { PIECE = 256 };  // elements that one thread adds up
// Picoseconds from which waking the team pays off, which costs 10 to 15 us: of two threads, and of
// more. And of a task that is worth fetching, where there are few of them for each thread, too.
static const int64_t PARALLEL_TIME = 64 * 1000000, MANY_TIME = 32 * 1000000;
static const int64_t TASK_TIME = 8 * 1000000, LEAST_TIME = 1000000;
enum { TASKS = 2 }; // at least, for each thread

typedef struct accumulator {
  uint32_t output;
  vt_reducer reducer;
  vt_dtype dtype, out_dtype;
  int64_t count, offset; // elements; bytes within a block
  bool columns;          // its last atom is the columns
} accumulator;

struct vt_kernel {
  vt_nest_fn *code;
  const vt_native *native;
  uint32_t operand_count; // native: operands of the op, as inputs
  uint32_t *operands;
  uint32_t input_count, output_count;
  int64_t *dims;
  int64_t rows, columns, row_tile, column_tile, row_tiles, column_tiles;
  bool parallel;
  int64_t picoseconds; // about; -1: not known
  uint32_t accumulator_count;
  accumulator *accumulators;
  int64_t block_bytes; // partial results of one row tile (of one task in a nest without rows)
  int64_t block_count;
  int64_t scattered_bytes; // of a scatter's output, which is initialized from this input, or
  int32_t start_input;     // elements of this many bytes where that is -1
  uint32_t start_bytes;
  char start[8];
  bool *in_place; // [output][input]
};

static int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}
static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// ---- Making.

// An output may take an input's memory when every element is read before its place is written: both
// are dense over the whole space with elements of the same size, and no later pass reads the input
// again.
static bool nest_in_place(const vt_nest *nest, const vt_nest_node *out, uint32_t input) {
  bool scatter = out->kind == VT_NODE_SCATTER;
  if (scatter && out->input != (int32_t)input) return false;
  if (scatter && out->run > 1 && out->updates == (int32_t)input) return false;
  if (out->accumulated || out->mask != nest->all) return false;
  size_t bytes = vt_dtype_bytes(out->value->type.dtype);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (n->kind == VT_NODE_GATHER && n->input == (int32_t)input) return false;
    if (n->kind != VT_NODE_LOAD || n->input != (int32_t)input || !n->in_group) continue;
    if (scatter || n->folded) return false;
    if (vt_dtype_bytes(n->value->type.dtype) != bytes || n->access.offset) return false;
    for (int32_t a = 0; a < nest->atom_count; a++)
      if (n->access.strides[a] != out->access.strides[a]) return false;
    if (out->stage < nest->stage_count - 1) return false;
  }
  return true;
}

static void add_accumulators(vt_arena *arena, vt_kernel *k, const vt_nest *nest, int64_t *offsets) {
  k->accumulators = VT_NEW_ARRAY(arena, accumulator, k->output_count);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (n->output < 0 || !n->accumulated) continue;
    vt_dtype out = n->value->type.dtype, wide = vt_emit_compute_dtype(out);
    int64_t count = vt_type_elements(n->value->type);
    offsets[n->output] = k->block_bytes;
    k->accumulators[k->accumulator_count++] = (accumulator){.output = (uint32_t)n->output,
                                                            .reducer = (vt_reducer)n->reducer,
                                                            .dtype = wide,
                                                            .out_dtype = out,
                                                            .count = count,
                                                            .offset = k->block_bytes,
                                                            .columns = vt_nest_is_full(nest, n)};
    k->block_bytes = round_up(k->block_bytes + count * (int64_t)vt_dtype_bytes(wide) + 128, 64);
  }
}

// Splits rows x columns into tasks of about TASK_ELEMENTS elements; of fewer where each takes long
// and none is added to another's.
static void cut_tasks(vt_kernel *k, const vt_nest *nest, const vt_target *target) {
  int64_t total = k->rows * k->columns, each = vt_nest_picoseconds(nest, target);
  int64_t threads = vt_host_threads(), share = max64(total / (TASKS * threads), LEAST_TIME / each);
  int64_t most =
      k->accumulator_count ? TASK_ELEMENTS : max64(min64(TASK_TIME / each, share), VECTORS);
  int64_t want = max64(min64(TASK_ELEMENTS, most), total / MAX_TASKS);
  bool whole_rows = false, columns_only = k->accumulator_count > 0;
  for (uint32_t i = 0; i < nest->node_count; i++)
    if (nest->nodes[i].kind == VT_NODE_REDUCE && !nest->nodes[i].accumulated) whole_rows = true;
  for (uint32_t i = 0; i < k->accumulator_count; i++) columns_only &= k->accumulators[i].columns;
  for (uint32_t i = 0; i < nest->node_count;
       i++) // only a task that has a whole row writes row results
    if (nest->nodes[i].output >= 0 && !nest->nodes[i].accumulated &&
        nest->nodes[i].mask != nest->all)
      whole_rows = true;
  bool free_columns =
      !whole_rows && (k->accumulator_count == 0 || columns_only || nest->atom_count == 1);
  k->column_tile = k->columns;
  if (free_columns && nest->atom_count == 1)
    k->column_tile = round_up(want, VECTORS);
  else if (free_columns && columns_only && k->columns > 4 * COLUMN_TILE)
    k->column_tile = COLUMN_TILE;
  else if (free_columns && k->columns > 2 * want)
    k->column_tile = round_up(want, VECTORS);
  if (k->column_tile > k->columns) k->column_tile = k->columns;
  k->row_tile = max64(1, want / k->column_tile);
  if (k->accumulator_count) { // partial results must stay small compared to the data
    int64_t least = k->block_bytes / max64(1, 4 * k->column_tile) * 8;
    k->row_tile = max64(max64(k->row_tile, 16), min64(least, k->rows));
  }
  k->row_tile = min64(k->row_tile, k->rows);
  k->row_tiles = (k->rows + k->row_tile - 1) / k->row_tile;
  k->column_tiles = (k->columns + k->column_tile - 1) / k->column_tile;
  k->block_count = nest->atom_count == 1 ? k->column_tiles : k->row_tiles;
  int64_t least = threads > 2 ? MANY_TIME : PARALLEL_TIME;
  k->parallel = k->row_tiles * k->column_tiles > 1 && total >= least / each;
  k->picoseconds = total < INT64_MAX / each ? total * each : INT64_MAX;
}

// The updates of a scatter are one task, in their order.
static void create_scatter(vt_kernel *k, const vt_nest_node *n) {
  k->row_tile = k->rows;
  k->column_tile = k->columns;
  k->row_tiles = k->column_tiles = 1;
  k->parallel = false;
  k->picoseconds = -1;
  k->scattered_bytes = vt_type_bytes(n->op->results[0].type);
  k->start_input = n->input;
  if (n->input >= 0) return;
  k->start_bytes = (uint32_t)vt_dtype_bytes(n->start->type.dtype);
  memcpy(k->start, n->start->data, k->start_bytes);
}

static void create_nest(vt_arena *arena, vt_kernel *k, const vt_group *group,
                        const vt_target *target) {
  vt_assert(group->nest->atom_count >= 1 && group->nest->atom_count <= VT_NEST_ATOMS);
  const vt_nest *nest = group->nest;
  k->columns = nest->atoms[nest->atom_count - 1];
  k->rows = 1;
  for (int32_t a = 0; a < nest->atom_count - 1; a++) k->rows *= nest->atoms[a];
  int64_t *offsets = VT_NEW_ARRAY(arena, int64_t, k->output_count);
  add_accumulators(arena, k, nest, offsets);
  cut_tasks(k, nest, target);
  k->dims = VT_NEW_ARRAY(arena, int64_t, vt_nest_dims(nest, offsets, NULL));
  vt_nest_dims(nest, offsets, k->dims);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (n->output < 0) continue;
    vt_assert(n->output < (int32_t)k->output_count && n->input < (int32_t)k->input_count);
    if (n->kind == VT_NODE_SCATTER) create_scatter(k, n);
    for (uint32_t j = 0; j < k->input_count; j++)
      k->in_place[(uint32_t)n->output * k->input_count + j] = nest_in_place(nest, n, j);
  }
}

// A dense matrix of f32, an atom of its own for the columns or one for all.
static bool reads_matrix(const vt_nest *nest, const vt_nest_node *n) {
  int64_t bytes = (int64_t)vt_dtype_bytes(n->value->type.dtype);
  if (n->access.offset || n->folded) return false;
  for (int32_t a = nest->atom_count; a-- > 0; bytes *= nest->atoms[a])
    if (n->access.strides[a] != bytes) return false;
  return true;
}

static bool reads_port(const vt_nest_node *n, uint32_t port) {
  return (n->kind == VT_NODE_LOAD || n->kind == VT_NODE_GATHER) && n->input == (int32_t)port;
}

bool vt_group_takes_rows(const vt_group *group, uint32_t port, int64_t rows, int64_t columns,
                         bool *out_whole, bool *out_sums) {
  const vt_nest *nest = group->nest;
  if (!group->fused || !nest || nest->fold) return false;
  uint32_t last = 1u << (nest->atom_count - 1);
  int64_t width = nest->atoms[nest->atom_count - 1], total = 1;
  for (int32_t a = 0; a < nest->atom_count; a++) total *= nest->atoms[a];
  if (total != rows * columns || (width != columns && nest->atom_count > 1)) return false;
  *out_whole = *out_sums = false;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (n->kind == VT_NODE_SCATTER) return false;
    if (reads_port(n, port) && (n->kind == VT_NODE_GATHER || !reads_matrix(nest, n))) return false;
    if (n->accumulated) {
      if (n->mask != last || nest->atom_count == 1) return false; // a number for each column
      *out_sums = true;
      continue;
    }
    if (n->kind == VT_NODE_REDUCE) *out_whole = true;
    if (n->output < 0 || n->mask == nest->all) continue;
    if (n->mask != (nest->all & ~last)) return false; // a number for each row
    *out_whole = true;
  }
  return true;
}

// One atom for all becomes one for rows and one for columns.
static void cut_columns(vt_nest *nest, int64_t columns) {
  nest->atoms[0] /= columns, nest->atoms[1] = columns;
  nest->atom_count = 2, nest->all = 3;
  for (uint32_t i = 0; i < nest->node_count; i++) {
    vt_nest_node *n = &nest->nodes[i];
    if (!n->mask) continue;
    n->mask = nest->all;
    n->access.strides[1] = n->access.strides[0], n->access.strides[0] *= columns;
  }
}

void vt_group_give_rows(vt_group *group, uint32_t port, int64_t columns, int64_t stride) {
  vt_nest *nest = group->nest;
  if (nest->atoms[nest->atom_count - 1] != columns) cut_columns(nest, columns);
  for (uint32_t i = 0; i < nest->node_count; i++) {
    vt_nest_node *n = &nest->nodes[i];
    for (int32_t a = 0; reads_port(n, port) && a < nest->atom_count - 1; a++)
      n->access.strides[a] = n->access.strides[a] / columns * stride;
  }
}

static void create_native(vt_arena *arena, vt_kernel *k, const vt_group *group) {
  const vt_op *op = group->ops[0];
  k->native = vt_native_create(arena, op);
  k->operand_count = op->operand_count;
  k->operands = VT_NEW_ARRAY(arena, uint32_t, op->operand_count);
  vt_assert(op->operand_count <= MAX_PORTS);
  for (uint32_t i = 0; i < op->operand_count; i++)
    for (uint32_t j = 0; j < group->input_count; j++)
      if (group->inputs[j] == op->operands[i]) k->operands[i] = j;
  vt_assert_each(i, op->operand_count, group->inputs[k->operands[i]] == op->operands[i]);
  if (!k->native->in_place) return;
  uint32_t uses = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) uses += k->operands[i] == k->operands[0];
  k->in_place[k->operands[0]] = uses == 1;
}

vt_kernel *vt_kernel_create(vt_arena *arena, const vt_group *group, const vt_target *target,
                            vt_nest_fn *code) {
  vt_kernel *k = VT_NEW(arena, vt_kernel);
  k->code = code;
  k->picoseconds = -1;
  k->input_count = group->input_count;
  k->output_count = group->output_count;
  k->in_place = VT_NEW_ARRAY(arena, bool, group->input_count * group->output_count);
  vt_assert(group->input_count + group->output_count <= MAX_PORTS || !group->nest);
  if (group->loop || group->source) return k;
  if (group->nest)
    create_nest(arena, k, group, target);
  else
    create_native(arena, k, group);
  return k;
}

vt_kernel *vt_kernel_of_op(vt_arena *arena, const vt_group *group) {
  vt_assert(group->fused && !group->nest && !group->loop && !group->source);
  return vt_kernel_create(arena, group, NULL, NULL);
}

void *vt_kernel_code(const vt_kernel *k) {
  return (void *)(uintptr_t)k->code;
}

int64_t vt_kernel_picoseconds(const vt_kernel *k) {
  return k->parallel ? -1 : k->picoseconds;
}

bool vt_kernel_ends_exactly(const vt_kernel *k, int64_t elements) {
  return k->code && !k->scattered_bytes && !k->accumulator_count && k->columns % VECTORS == 0 &&
         k->rows * k->columns == elements;
}

int64_t vt_kernel_scratch_bytes(const vt_kernel *k) {
  return k->native ? k->native->scratch_bytes : k->block_bytes * k->block_count;
}

int64_t vt_kernel_block_bytes(const vt_kernel *k) {
  return k->block_bytes;
}

bool vt_kernel_in_place_ok(const vt_kernel *k, uint32_t output, uint32_t input) {
  vt_assert(output < k->output_count && input < k->input_count);
  return k->in_place[output * k->input_count + input];
}

// ---- Running.

// Sets neutral values in the part of a block that this task adds to.
static void clear_block(const vt_kernel *k, char *block, int64_t column_lo, int64_t column_hi) {
  for (uint32_t i = 0; i < k->accumulator_count; i++) {
    const accumulator *acc = &k->accumulators[i];
    int64_t bytes = (int64_t)vt_dtype_bytes(acc->dtype);
    if (!acc->columns) {
      vt_reduce_fill(acc->reducer, acc->dtype, block + acc->offset, acc->count);
      continue;
    }
    for (int64_t row = 0; row < acc->count; row += k->columns)
      vt_reduce_fill(acc->reducer, acc->dtype, block + acc->offset + (row + column_lo) * bytes,
                     column_hi - column_lo);
  }
}

static void run_task(const vt_kernel *k, void *const *args, char *scratch, int64_t task) {
  int64_t row = task / k->column_tiles, column = task % k->column_tiles;
  int64_t row_lo = row * k->row_tile, row_hi = min64(row_lo + k->row_tile, k->rows);
  int64_t column_lo = column * k->column_tile,
          column_hi = min64(column_lo + k->column_tile, k->columns);
  vt_assert(row_lo < row_hi && column_lo < column_hi);
  char *block = scratch;
  if (k->accumulator_count) {
    block += k->block_bytes * (k->row_tiles == 1 && k->block_count > 1 ? column : row);
    clear_block(k, block, column_lo, column_hi);
  }
  k->code(args, k->dims, row_lo, row_hi, column_lo, column_hi, block);
}

// Adds the blocks up pairwise, elements [lo, hi) of one accumulator, and writes the result.
static void combine(const vt_kernel *k, const accumulator *acc, char *scratch, int64_t count,
                    void *output, int64_t lo, int64_t hi) {
  vt_assert(lo >= 0 && lo <= hi && hi <= acc->count);
  int64_t bytes = (int64_t)vt_dtype_bytes(acc->dtype);
  char *first = scratch + acc->offset + lo * bytes;
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t b = 0; b + step < count; b += 2 * step)
      vt_reduce_combine(acc->reducer, acc->dtype, first + b * k->block_bytes,
                        first + (b + step) * k->block_bytes, hi - lo);
  char *out = (char *)output + lo * (int64_t)vt_dtype_bytes(acc->out_dtype);
  vt_reduce_store(acc->out_dtype, out, first, hi - lo);
}

// Part `piece` of all that is added up.
static void combine_piece(const vt_kernel *k, char *blocks, int64_t count, void *const *outputs,
                          int64_t piece) {
  const accumulator *acc = k->accumulators;
  for (int64_t pieces; piece >= (pieces = (acc->count + PIECE - 1) / PIECE); acc++) piece -= pieces;
  vt_assert(acc < k->accumulators + k->accumulator_count && acc->output < k->output_count);
  combine(k, acc, blocks, count, outputs[acc->output], piece * PIECE,
          min64((piece + 1) * PIECE, acc->count));
}

void vt_kernel_add_blocks(const vt_kernel *k, void *blocks, int64_t count, void *const *outputs) {
  enum { PER_NS = 8 }; // numbers that one thread adds
  int64_t pieces = 0, numbers = 0;
  for (uint32_t i = 0; i < k->accumulator_count; i++) {
    pieces += (k->accumulators[i].count + PIECE - 1) / PIECE;
    numbers += k->accumulators[i].count * count;
  }
  if (pieces < 2 || vt_waiting_team(numbers / PER_NS, vt_host_threads()) == 1) {
    for (int64_t p = 0; p < pieces; p++) combine_piece(k, blocks, count, outputs, p);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < pieces; p++) combine_piece(k, blocks, count, outputs, p);
}

// Initializes the output of a scatter before the updates.
static void start_scatter(const vt_kernel *k, void *const *inputs, char *out) {
  if (k->start_input < 0) {
    vt_eval_fill(k->start_bytes, k->scattered_bytes / k->start_bytes, k->start, out);
    return;
  }
  const char *from = inputs[k->start_input];
  vt_box whole = {.rank = 1, .bytes = 1, .dims = {k->scattered_bytes}, .to = {1}, .from = {1}};
  if (from != out) vt_box_copy(&whole, out, from);
}

vt_status vt_kernel_run(const vt_kernel *k, void *const *inputs, void *const *outputs,
                        void *scratch) {
  vt_assert((uintptr_t)scratch % 64 == 0);
  void *args[MAX_PORTS];
  if (k->native) {
    for (uint32_t i = 0; i < k->operand_count; i++) args[i] = inputs[k->operands[i]];
    k->native->run(&(vt_native_call){k->native, args, outputs, scratch});
    return VT_OK;
  }
  if (k->scattered_bytes) start_scatter(k, inputs, outputs[0]);
  memcpy(args, inputs, sizeof *args * k->input_count);
  memcpy(args + k->input_count, outputs, sizeof *args * k->output_count);
  int64_t tasks = k->row_tiles * k->column_tiles;
  if (!k->parallel || vt_waiting_team(k->picoseconds / 1000, vt_host_threads()) == 1) {
    for (int64_t task = 0; task < tasks; task++) run_task(k, args, scratch, task);
  } else {
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++) run_task(k, args, scratch, task);
  }
  if (k->accumulator_count) vt_kernel_add_blocks(k, scratch, k->block_count, outputs);
  return VT_OK;
}

void vt_kernel_run_rows(const vt_kernel *k, void *const *pointers, const vt_rows *r) {
  vt_assert(!k->native && !k->scattered_bytes && !r->block == !k->accumulator_count);
  void *args[MAX_PORTS];
  memcpy(args, pointers, sizeof *args * (k->input_count + k->output_count));
  args[r->port] = r->instead;
  if (r->output) args[k->input_count] = r->output;
  if (r->block) clear_block(k, r->block, r->column_lo, r->column_hi);
  k->code(args, k->dims, r->row_lo, r->row_hi, r->column_lo, r->column_hi, r->block);
}
