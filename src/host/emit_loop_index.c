// SPDX-License-Identifier: Apache-2.0
// emit_loop_index.c - reads and updates at places that the program computes: dynamic_slice,
// dynamic_update_slice, gather, scatter (emit_loop.h).
//
// Places out of bounds are as in the evaluator: slices and gathers are moved inside, a window of a
// scatter that leaves the array is left out.
#include "base/check.h"
#include "eval/indexed.h"
#include "host/emit_loop.h"

enum { BY_LANES = 4 }; // vectors of a value up to which one element is replaced in registers

static bool is_signed(vt_type type) {
  return vt_dtype_kind_of(type.dtype) == VT_KIND_SIGNED;
}

// An index as i64; *out_beyond where it is more than `most`.
static LLVMValueRef index_of(vt_loop_code *m, const vt_value *value, int64_t at, int64_t most,
                             LLVMValueRef *out_beyond) {
  LLVMBuilderRef b = m->e->builder;
  LLVMValueRef x = vt_loop_element(m, value, at);
  bool with_sign = is_signed(value->type);
  if (vt_dtype_get(value->type.dtype)->bits < 64)
    x = with_sign ? LLVMBuildSExt(b, x, vt_loop_i64_type(m), "")
                  : LLVMBuildZExt(b, x, vt_loop_i64_type(m), "");
  *out_beyond = LLVMBuildICmp(b, with_sign ? LLVMIntSGT : LLVMIntUGT, x, vt_loop_i64(m, most), "");
  return x;
}

// An index moved into [0, most].
static LLVMValueRef clamped(vt_loop_code *m, const vt_value *value, int64_t at, int64_t most) {
  LLVMBuilderRef b = m->e->builder;
  LLVMValueRef beyond, zero = vt_loop_i64(m, 0), x = index_of(m, value, at, most, &beyond);
  x = LLVMBuildSelect(b, beyond, vt_loop_i64(m, most), x, "");
  if (is_signed(value->type))
    x = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, x, zero, ""), zero, x, "");
  return x;
}

static LLVMValueRef add_times(vt_loop_code *m, LLVMValueRef sum, LLVMValueRef x, int64_t by) {
  LLVMBuilderRef b = m->e->builder;
  return LLVMBuildAdd(b, sum, LLVMBuildMul(b, x, vt_loop_i64(m, by), ""), "");
}

// Element number of a slice whose starts are clamped so that it fits.
static LLVMValueRef slice_start(vt_loop_code *m, const vt_op *op, uint32_t first, vt_type whole,
                                const int64_t *sizes) {
  LLVMValueRef start = vt_loop_i64(m, 0);
  int64_t stride = 1;
  for (int32_t d = whole.rank; d-- > 0; stride *= whole.dims[d]) {
    int64_t most = whole.dims[d] - sizes[d];
    if (most)
      start = add_times(m, start, clamped(m, op->operands[first + (uint32_t)d], 0, most), stride);
  }
  return start;
}

static LLVMValueRef at_element(vt_loop_code *m, vt_type type, LLVMValueRef pointer,
                               LLVMValueRef element) {
  LLVMValueRef zero = vt_loop_i64(m, 0);
  return vt_loop_at_byte(m, pointer,
                         add_times(m, zero, element, (int64_t)vt_dtype_bytes(type.dtype)));
}

static bool is_row(const int64_t *offsets, int64_t count) {
  for (int64_t l = 1; l < count; l++)
    if (offsets[l] != offsets[0] + l) return false;
  return true;
}

// A value from elements at `offsets` from its element's base.
static void load_places(vt_loop_code *m, vt_type type, const LLVMValueRef *bases,
                        const int64_t *offsets, vt_held *out) {
  LLVMBuilderRef b = m->e->builder;
  int64_t lanes = m->e->target.lanes, elements = vt_type_elements(type);
  for (uint32_t i = 0; i < out->count; i++) {
    int64_t first = i * lanes, count = elements - first < lanes ? elements - first : lanes;
    bool row = is_row(offsets + first, count);
    for (int64_t l = 1; l < count; l++) row &= bases[first + l] == bases[first];
    if (row) {
      out->parts[i] = vt_loop_load_vector(m, type.dtype, bases[first], offsets[first]);
      continue;
    }
    LLVMValueRef x =
        LLVMGetPoison(LLVMVectorType(vt_emit_memory_type(m->e, type.dtype), (unsigned)lanes));
    for (int64_t l = 0; l < count; l++)
      x = LLVMBuildInsertElement(
          b, x, vt_loop_load_element(m, type.dtype, bases[first + l], offsets[first + l]),
          vt_loop_i32(m, l), "");
    out->parts[i] = vt_emit_from_memory(m->e, type.dtype, x);
  }
}

// The first `count` of the emitter's lanes to elements at `offsets`.
static void store_places(vt_loop_code *m, vt_dtype dtype, LLVMValueRef x, int64_t count,
                         LLVMValueRef base, const int64_t *offsets) {
  LLVMBuilderRef b = m->e->builder;
  int64_t bytes = (int64_t)vt_dtype_bytes(dtype);
  if (is_row(offsets, count)) {
    vt_loop_store_row(m, dtype, x, count,
                      vt_loop_at_byte(m, base, vt_loop_i64(m, offsets[0] * bytes)));
    return;
  }
  x = vt_emit_to_memory(m->e, dtype, x);
  for (int64_t l = 0; l < count; l++)
    LLVMBuildStore(b, LLVMBuildExtractElement(b, x, vt_loop_i32(m, l), ""),
                   vt_loop_at_byte(m, base, vt_loop_i64(m, offsets[l] * bytes)));
}

void vt_loop_dynamic_slice(vt_loop_code *m, const vt_op *op) {
  vt_type type = op->results[0].type, whole = op->operands[0]->type;
  const int64_t *sizes = vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL);
  LLVMValueRef start = slice_start(m, op, 1, whole, sizes), bases[VT_LOOP_ELEMENTS];
  int64_t offsets[VT_LOOP_ELEMENTS];
  LLVMValueRef base = at_element(m, whole, vt_loop_memory(m, op->operands[0]), start);
  for (int64_t at = 0; at < vt_type_elements(type); at++) {
    bases[at] = base;
    offsets[at] = vt_loop_in_window(whole, sizes, at);
  }
  vt_held out = vt_loop_new(m, type);
  load_places(m, type, bases, offsets, &out);
  *vt_loop_held(m, &op->results[0]) = out;
}

// ---- Updates.

// Where an update happens: the value's memory, or a copy of a value in registers.
static LLVMValueRef updated_memory(vt_loop_code *m, const vt_value *whole) {
  const vt_held *s = vt_loop_held(m, whole);
  if (s->memory) return s->pointer;
  s = vt_loop_parts(m, whole);
  LLVMValueRef room = vt_loop_room_of(m, whole->type);
  vt_loop_store(m, whole->type, s, room);
  return room;
}

static void set_updated(vt_loop_code *m, const vt_op *op, LLVMValueRef pointer) {
  const vt_value *whole = op->operands[0];
  vt_held out = {.memory = true};
  if (!vt_loop_held(m, whole)->memory) vt_loop_load(m, whole->type, pointer, &out);
  out.pointer = pointer;
  *vt_loop_held(m, &op->results[0]) = out;
}

// One element of a value in registers, in the lane whose number is `start`.
static void replace_lane(vt_loop_code *m, const vt_op *op, LLVMValueRef start) {
  LLVMBuilderRef b = m->e->builder;
  vt_type type = op->results[0].type;
  const vt_held *whole = vt_loop_parts(m, op->operands[0]);
  LLVMValueRef x = vt_emit_spread(m->e, vt_loop_element(m, op->operands[1], 0));
  LLVMValueRef place = vt_emit_spread(m->e, LLVMBuildTrunc(b, start, vt_loop_i32_type(m), ""));
  vt_held out = vt_loop_new(m, type);
  int lanes = m->e->target.lanes;
  for (uint32_t i = 0; i < out.count; i++) {
    LLVMValueRef numbers[VT_MOST_LANES];
    for (int l = 0; l < lanes; l++) numbers[l] = vt_loop_i32(m, (int64_t)i * lanes + l);
    LLVMValueRef here =
        LLVMBuildICmp(b, LLVMIntEQ, place, LLVMConstVector(numbers, (unsigned)lanes), "");
    out.parts[i] = LLVMBuildSelect(b, here, x, whole->parts[i], "");
  }
  *vt_loop_held(m, &op->results[0]) = out;
}

void vt_loop_dynamic_update(vt_loop_code *m, const vt_op *op) {
  const vt_value *whole = op->operands[0], *update = op->operands[1];
  vt_type part = update->type;
  int64_t elements = vt_type_elements(part), offsets[VT_LOOP_ELEMENTS];
  LLVMValueRef start = slice_start(m, op, 2, whole->type, part.dims);
  if (elements == 1 && !vt_loop_held(m, whole)->memory &&
      vt_loop_vectors(m, whole->type) <= BY_LANES) {
    replace_lane(m, op, start);
    return;
  }
  const vt_held *s = vt_loop_parts(m, update);
  LLVMValueRef pointer = updated_memory(m, whole);
  LLVMValueRef base = at_element(m, whole->type, pointer, start);
  for (int64_t at = 0; at < elements; at++)
    offsets[at] = vt_loop_in_window(whole->type, part.dims, at);
  vt_loop_use_lanes(m, part);
  int64_t lanes = m->e->target.lanes;
  for (uint32_t i = 0; i < s->count; i++) {
    int64_t left = elements - i * lanes;
    store_places(m, part.dtype, s->parts[i], left < lanes ? left : lanes, base,
                 offsets + i * lanes);
  }
  set_updated(m, op, pointer);
}

// ---- Windows.

static vt_indexed windows_of(const vt_op *op, const vt_indexed_keys *keys, vt_type other,
                             const int64_t *sizes) {
  vt_indexed windows;
  vt_status st = vt_indexed_plan(op, keys, op->operands[0]->type, op->operands[1]->type, other,
                                 sizes, &windows);
  vt_assert(!st); // loop_check.c asked
  vt_status_free(st);
  return windows;
}

// The first element of the window of batch index `at`; clamped, or *inside tells whether it fits.
static LLVMValueRef window_start(vt_loop_code *m, const vt_op *op, const vt_indexed *w,
                                 const int64_t *at, LLVMValueRef *inside) {
  LLVMBuilderRef b = m->e->builder;
  const vt_value *indices = op->operands[1];
  int64_t from = 0, fixed = 0;
  for (int32_t d = 0; d < w->batch_rank; d++) from += at[d] * w->index_strides[d];
  for (int32_t i = 0; i < w->batching_count; i++)
    fixed += at[w->batching_at[i]] * w->operand_strides[w->batching_dim[i]];
  LLVMValueRef start = vt_loop_i64(m, fixed), beyond;
  for (uint32_t i = 0; i < w->components; i++) {
    int64_t d = w->index_map[i], element = from + i * w->component_stride;
    if (!inside) {
      start =
          add_times(m, start, clamped(m, indices, element, w->limits[d]), w->operand_strides[d]);
      continue;
    }
    LLVMValueRef x = index_of(m, indices, element, w->limits[d], &beyond);
    LLVMValueRef ok = LLVMBuildNot(b, beyond, "");
    if (is_signed(indices->type))
      ok = LLVMBuildAnd(b, ok, LLVMBuildICmp(b, LLVMIntSGE, x, vt_loop_i64(m, 0), ""), "");
    *inside = LLVMBuildAnd(b, *inside, ok, "");
    start = add_times(m, start, x, w->operand_strides[d]);
  }
  return start;
}

void vt_loop_gather(vt_loop_code *m, const vt_op *op) {
  vt_type type = op->results[0].type, whole = op->operands[0]->type;
  vt_indexed w = windows_of(op, &vt_gather_keys, type, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL));
  LLVMValueRef bases[VT_LOOP_ELEMENTS], memory = vt_loop_memory(m, op->operands[0]);
  int64_t offsets[VT_LOOP_ELEMENTS], at[VT_MAX_RANK] = {0};
  do {
    LLVMValueRef base = at_element(m, whole, memory, window_start(m, op, &w, at, NULL));
    int64_t to = 0, in[VT_MAX_RANK] = {0};
    for (int32_t d = 0; d < w.batch_rank; d++) to += at[d] * w.batch_strides[d];
    do {
      int64_t place = to, offset = 0;
      for (int32_t d = 0; d < w.window_rank; d++) {
        place += in[d] * w.window_strides[d];
        offset += in[d] * w.place_strides[d];
      }
      bases[place] = base;
      offsets[place] = offset;
    } while (vt_eval_next(w.window_rank, w.window_dims, in));
  } while (vt_eval_next(w.batch_rank, w.batch_dims, at));
  vt_held out = vt_loop_new(m, type);
  load_places(m, type, bases, offsets, &out);
  *vt_loop_held(m, &op->results[0]) = out;
}

// A window of a scatter: its elements in the updates, and where they go.
typedef struct window {
  int64_t count;
  int64_t from[VT_LOOP_ELEMENTS + VT_MOST_LANES], offsets[VT_LOOP_ELEMENTS];
} window;

static void find_window(const vt_indexed *w, const int64_t *at, window *out) {
  int64_t first = 0, in[VT_MAX_RANK] = {0};
  for (int32_t d = 0; d < w->batch_rank; d++) first += at[d] * w->batch_strides[d];
  out->count = 0;
  do {
    int64_t from = first, offset = 0;
    for (int32_t d = 0; d < w->window_rank; d++) {
      from += in[d] * w->window_strides[d];
      offset += in[d] * w->place_strides[d];
    }
    out->from[out->count] = from;
    out->offsets[out->count++] = offset;
  } while (vt_eval_next(w->window_rank, w->window_dims, in));
  for (int64_t l = 0; l < VT_MOST_LANES; l++) // lanes that are not used
    out->from[out->count + l] = out->from[out->count - 1] + l + 1;
}

// The lanes of x, one after another, combined with what is there.
static void combine_places(vt_loop_code *m, const vt_op *op, LLVMValueRef x, int64_t count,
                           LLVMValueRef base, const int64_t *offsets) {
  vt_dtype dtype = op->results[0].type.dtype;
  int lanes = m->e->target.lanes;
  for (int64_t l = 0; l < count; l++) {
    LLVMValueRef scalar = LLVMBuildExtractElement(m->e->builder, x, vt_loop_i32(m, l), "");
    m->e->target.lanes = 1;
    LLVMValueRef parts[2] = {vt_loop_load_vector(m, dtype, base, offsets[l]),
                             vt_emit_spread(m->e, scalar)};
    vt_held params[2] = {{.count = 1, .parts = &parts[0]}, {.count = 1, .parts = &parts[1]}};
    const vt_held *result = vt_loop_func(m, op->regions[0], params);
    store_places(m, dtype, result->parts[0], 1, base, offsets + l);
    m->e->target.lanes = lanes;
  }
}

static void scatter_window(vt_loop_code *m, const vt_op *op, const vt_indexed *w, const int64_t *at,
                           LLVMValueRef pointer) {
  LLVMBuilderRef b = m->e->builder;
  vt_dtype dtype = op->results[0].type.dtype;
  window win;
  find_window(w, at, &win);
  m->e->target.lanes = 1;
  while (m->e->target.lanes < win.count && m->e->target.lanes < m->lanes) m->e->target.lanes *= 2;
  int64_t lanes = m->e->target.lanes;
  LLVMValueRef x[VT_LOOP_ELEMENTS];
  for (int64_t i = 0; i < win.count; i += lanes) // before the branch: later ops may use them too
    x[i / lanes] = vt_loop_load_lanes(m, op->operands[2], win.from + i);
  LLVMValueRef inside = LLVMConstInt(LLVMInt1TypeInContext(m->e->context), 1, false);
  LLVMValueRef start = window_start(m, op, w, at, &inside);
  LLVMBasicBlockRef write = LLVMAppendBasicBlockInContext(m->e->context, m->e->function, "inside");
  LLVMBasicBlockRef next = LLVMAppendBasicBlockInContext(m->e->context, m->e->function, "next");
  LLVMBuildCondBr(b, inside, write, next);
  LLVMPositionBuilderAtEnd(b, write);
  LLVMValueRef base = at_element(m, op->results[0].type, pointer, start);
  bool assigns = vt_scatter_assigns(op->regions[0], 1);
  for (int64_t i = 0; i < win.count; i += lanes) {
    int64_t count = win.count - i < lanes ? win.count - i : lanes;
    if (assigns)
      store_places(m, dtype, x[i / lanes], count, base, win.offsets + i);
    else
      combine_places(m, op, x[i / lanes], count, base, win.offsets + i);
  }
  LLVMBuildBr(b, next);
  LLVMPositionBuilderAtEnd(b, next);
}

void vt_loop_scatter(vt_loop_code *m, const vt_op *op) {
  vt_indexed w = windows_of(op, &vt_scatter_keys, op->operands[2]->type, NULL);
  int64_t at[VT_MAX_RANK] = {0};
  bool fits = true;
  for (int32_t d = 0; d < op->operands[0]->type.rank; d++) fits &= w.limits[d] >= 0;
  (void)vt_loop_parts(m, op->operands[2]);
  LLVMValueRef pointer = updated_memory(m, op->operands[0]);
  do {
    if (fits) scatter_window(m, op, &w, at, pointer);
  } while (vt_eval_next(w.batch_rank, w.batch_dims, at));
  set_updated(m, op, pointer);
}
