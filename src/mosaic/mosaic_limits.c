// SPDX-License-Identifier: Apache-2.0
// mosaic_limits.c - what the chip's own compiler is known to refuse, in its words and with the
// place in the form that JAX turns into a traceback. Whoever relies on such an op would find out on
// the chip only.
//
// Known from the error messages that JAX's own tests expect.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mosaic/mosaic_ir.h"

static vt_status refuse(const vt_mop *op, const char *what) {
  const vt_loc *loc = op->loc;
  const char *text = vt_mop_info_get(op->code)->text;
  return vt_error(VT_INTERNAL,
                  "Mosaic failed to compile TPU kernel: %s\n\nThe MLIR operation "
                  "involved: %s\n  at location: loc(\"%s\"(\"kernel\"(\"%s\":%d:%d)))",
                  what, text, loc->name, loc->file, loc->line, loc->column);
}

// Scalars are 32 bits wide, or one.
static vt_status check_scalar(const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  if (type.kind != VT_MSCALAR || !vt_dtype_is_integer(type.dtype) || type.dtype == VT_S32 ||
      type.dtype == VT_S64)
    return VT_OK;
  char what[80];
  snprintf(what, sizeof what, "Not implemented: Only i32 %s is supported",
           vt_mop_info_get(op->code)->text);
  return refuse(op, what);
}

static vt_status check_vector(const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  if (type.kind != VT_MVECTOR || type.dtype == VT_PRED || vt_dtype_get(type.dtype)->bits >= 16)
    return VT_OK;
  return refuse(op, "Not implemented: Only vector<i16> and vector<i32> are supported");
}

static vt_status check_strides(const vt_mop *op) {
  const vt_mattr *strides = vt_mop_attr(op, VT_MATTR_STRIDES);
  if (!strides || !strides->count || strides->ints[strides->count - 1] == 1) return VT_OK;
  return refuse(op, "Not Implemented: Stride on last dim is not 1");
}

// By an amount known at run time: whole tiles along the dimension.
static vt_status check_rotate(const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  int64_t dim = vt_mop_i64(op, VT_MATTR_DIMENSION, 0), bits = vt_dtype_get(type.dtype)->bits;
  int64_t unit = dim == type.rank - 1   ? 128
                 : dim == type.rank - 2 ? 8 * 32 / (bits > 32 ? 32 : bits)
                                        : 1;
  const vt_mop *amount = op->operands[1]->op;
  if ((amount && amount->code == VT_MOP_CONSTANT) || type.dims[dim] % unit == 0) return VT_OK;
  return refuse(op, "unsupported unaligned shape");
}

static vt_status check_block(const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->code >= VT_MOP_ADDI && op->code <= VT_MOP_MINUI) VT_TRY(check_scalar(op));
    if (op->code == VT_MOP_ADDI) VT_TRY(check_vector(op));
    if (op->code == VT_MOP_STRIDED_LOAD || op->code == VT_MOP_STRIDED_STORE)
      VT_TRY(check_strides(op));
    if (op->code == VT_MOP_ROTATE) VT_TRY(check_rotate(op));
    for (uint32_t b = 0; b < op->block_count; b++) VT_TRY(check_block(op->blocks[b]));
  }
  return VT_OK;
}

// ---- memory -------------------------------------------------------------------------------------

typedef struct chip_memory {
  const char *name;
  int64_t vmem, smem;
} chip_memory;

static const chip_memory chips[] = {
#define MCHIP(...) {__VA_ARGS__},
#include "mosaic/mosaic_chips.def"
#undef MCHIP
};

// Whether the block is the same at all points of the grid: what the transform returns rests on no
// index that has several values.
static bool stays(const vt_mosaic *k, const vt_mwindow *w) {
  const vt_mblock *block = w->transform->block;
  vt_arena arena = {0};
  bool *moves = VT_NEW_ARRAY(&arena, bool, k->slot_count + 1), same = true;
  for (uint32_t d = 0; d < k->grid_rank && d < block->arg_count; d++)
    moves[block->args[d].slot] = k->grid[d] != 1;
  for (const vt_mop *op = block->first; op; op = op->next) {
    bool any = op->block_count > 0;
    for (uint32_t i = 0; i < op->operand_count; i++) any = any || moves[op->operands[i]->slot];
    for (uint32_t i = 0; i < op->result_count; i++) moves[op->results[i].slot] = any;
    if (op == block->last) same = !any;
  }
  vt_arena_free(&arena);
  return same;
}

// One buffer for a block that is always the same, or that the program wants so; else two.
static int64_t buffers(const vt_mosaic *k, const vt_mwindow *w) {
  return w->whole || w->synchronous || stays(k, w) ? 1 : 2;
}

// With the padding of tiles: rows of 128, and words of 32 bits filled with rows. Rows of whole
// tiles where there are as many.
static int64_t padded_bytes(vt_mtype type) {
  int64_t bits = type.dtype == VT_PRED ? 32 : vt_dtype_get(type.dtype)->bits, n = bits;
  int64_t rows = 32 / (bits < 32 ? bits : 32);
  for (int32_t d = 0; d < type.rank; d++) {
    int64_t size = type.dims[d], unit = 1;
    if (type.space == VT_MSPACE_VMEM && d == type.rank - 1) unit = 128;
    if (type.space == VT_MSPACE_VMEM && d == type.rank - 2)
      unit = size >= 8 * rows ? 8 * rows : rows;
    n *= (size + unit - 1) / unit * unit;
  }
  return n / 8;
}

typedef struct tally {
  vt_mspace space;
  int64_t bytes;
  vt_text list;
  uint32_t count;
} tally;

static void put_bytes(vt_text *text, int64_t bytes) {
  double x = (double)bytes;
  if (bytes < 1 << 10)
    vt_text_printf(text, "%" PRId64 "B", bytes);
  else if (bytes < 1 << 20)
    vt_text_printf(text, "%.2fK", x / (1 << 10));
  else if (bytes < 1 << 30)
    vt_text_printf(text, "%.2fM", x / (1 << 20));
  else
    vt_text_printf(text, "%.2fG", x / (1 << 30));
}

static void put_array(vt_text *text, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  vt_text_printf(text, "%s[", vt_dtype_get(dtype)->text);
  for (int32_t d = 0; d < rank; d++) vt_text_printf(text, "%s%" PRId64, d ? "," : "", dims[d]);
  vt_text_put(text, "]");
}

// A line of the list, begun; false when the array is not in this memory.
static bool add(tally *t, vt_mtype type, int64_t count, const char *what, uint32_t number) {
  if (type.space != t->space || type.semaphore || vt_mtype_elements(type) < 0) return false;
  int64_t bytes = padded_bytes(type) * count;
  t->bytes += bytes;
  vt_text_printf(&t->list, "\n  %" PRIu32 ". ", ++t->count);
  put_bytes(&t->list, bytes);
  vt_text_printf(&t->list, ": %s %" PRIu32 ". ", what, number);
  return true;
}

static void add_window(tally *t, const vt_mosaic *k, uint32_t window, vt_mtype type, vt_type full,
                       const char *what, uint32_t number) {
  int64_t count = buffers(k, &k->windows[window]);
  if (!add(t, type, count, what, number)) return;
  vt_text_put(&t->list, "The window shape is ");
  put_array(&t->list, type.dtype, type.rank, type.dims);
  vt_text_put(&t->list, ", while the full shape is ");
  put_array(&t->list, full.dtype, full.rank, full.dims);
  vt_text_put(&t->list, count == 1 ? ". This allocation is single buffered."
                                   : ". This allocation has 2 buffering levels.");
}

static void add_array(tally *t, vt_mtype type, const vt_loc *loc, const char *what,
                      uint32_t number) {
  if (!add(t, type, 1, what, number)) return;
  vt_text_put(&t->list, "The shape is ");
  put_array(&t->list, type.dtype, type.rank, type.dims);
  vt_text_put(&t->list, ".");
  if (loc && loc->file[0]) vt_text_printf(&t->list, " (%s:%d)", loc->file, loc->line);
}

static void add_args(tally *t, const vt_mosaic *k, const vt_op *call) {
  const vt_mvalue *args = k->body->block->args + k->grid_rank;
  uint32_t count = k->body->block->arg_count - k->grid_rank;
  uint32_t windows = k->prefetch_count, outputs = windows + k->input_count,
           scratch = windows + k->window_count;
  for (uint32_t i = 0; i < count; i++) {
    if (i < windows)
      add_array(t, args[i].type, NULL, "scalar prefetch operand", i);
    else if (i < outputs)
      add_window(t, k, i - windows, args[i].type, call->operands[k->dynamic_count + i]->type,
                 "input window allocation for operator input", i);
    else if (i < scratch)
      add_window(t, k, i - windows, args[i].type, call->results[i - outputs].type,
                 "output window allocation for operator output", i - outputs);
    else
      add_array(t, args[i].type, NULL, "scratch operand", i - scratch);
  }
}

// Allocations live to the end of their block: of the blocks inside, the one with most counts.
static int64_t scoped(tally *t, const vt_mblock *block) {
  int64_t most = 0, own = 0;
  for (const vt_mop *op = block->first; op; op = op->next) {
    if (op->code == VT_MOP_ALLOCA) {
      int64_t before = t->bytes;
      add_array(t, op->results[0].type, op->loc, "allocation", (uint32_t)op->place);
      own += t->bytes - before;
      t->bytes = before;
    }
    for (uint32_t b = 0; b < op->block_count; b++) {
      int64_t inner = scoped(t, op->blocks[b]);
      if (inner > most) most = inner;
    }
  }
  return own + most;
}

static vt_status check_space(const vt_mosaic *k, const vt_op *call, vt_mspace space,
                             int64_t limit) {
  tally t = {.space = space};
  vt_text text = {0};
  vt_status st = VT_OK;
  add_args(&t, k, call);
  t.bytes += scoped(&t, k->body->block);
  if (space == VT_MSPACE_VMEM && k->config.scratch) {
    t.bytes += k->config.scratch;
    vt_text_printf(&t.list, "\n  %" PRIu32 ". ", ++t.count);
    put_bytes(&t.list, k->config.scratch);
    vt_text_put(&t.list, ": internal scratch, as the program asks.");
  }
  if (t.bytes > limit) {
    const char *name = vt_mspace_text(space);
    if (space == VT_MSPACE_VMEM) {
      vt_text_printf(&text, "while allocating on stack for %%%s. Scoped allocation with size ",
                     k->name);
      put_bytes(&text, t.bytes);
      vt_text_put(&text, " and limit ");
      put_bytes(&text, limit);
      vt_text_printf(&text, " exceeded scoped %s limit by ", name);
    } else {
      vt_text_put(&text, "Used ");
      put_bytes(&text, t.bytes);
      vt_text_put(&text, " of ");
      put_bytes(&text, limit);
      vt_text_printf(&text, " %s in kernel %s. Exceeded %s capacity by ", name, k->name, name);
    }
    put_bytes(&text, t.bytes - limit);
    st = vt_error(VT_RESOURCE_EXHAUSTED, "Ran out of memory in memory space %s%s%s.\n%s", name,
                  space == VT_MSPACE_VMEM ? " " : ". ", vt_text_string(&text),
                  vt_text_string(&t.list));
  }
  vt_text_free(&text);
  vt_text_free(&t.list);
  return st;
}

// Spills and copies of the chip's compiler come on top: what is refused here would not fit there.
static vt_status check_memory(const vt_mosaic *k, const vt_op *call, const char *chip) {
  const chip_memory *memory = NULL;
  for (size_t i = 0; i < sizeof chips / sizeof *chips && chip; i++)
    if (!strcmp(chips[i].name, chip)) memory = &chips[i];
  int64_t vmem = k->config.vmem_limit ? k->config.vmem_limit : memory ? memory->vmem : INT64_MAX;
  VT_TRY(check_space(k, call, VT_MSPACE_VMEM, vmem));
  return check_space(k, call, VT_MSPACE_SMEM, memory ? memory->smem : INT64_MAX);
}

vt_status vt_mosaic_limits(const vt_mosaic *kernel, const vt_op *call, const char *chip) {
  for (uint32_t i = 0; i < kernel->func_count; i++) VT_TRY(check_block(kernel->funcs[i].block));
  return check_memory(kernel, call, chip);
}
