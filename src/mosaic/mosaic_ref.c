// SPDX-License-Identifier: Apache-2.0
// mosaic_ref.c - ops of kernels on references: loads and stores, views, copies, semaphores, prints.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mosaic/mosaic_check.h"

enum { MOST_PADDING = 1024 }; // of a dimension, to the end of its last tile

// ---- loads and stores ---------------------------------------------------------------------------

// The block of `block` dimensions at the indices.
static vt_status block_at(vt_mmachine *m, const vt_mop *op, const vt_mvalue *ref,
                          vt_mvalue *const *indices, vt_mtype block, vt_mview *out) {
  const vt_mattr *strides = vt_mop_attr(op, VT_MATTR_STRIDES);
  *out = *vt_mview_at(m, ref);
  for (int32_t d = 0; d < out->rank; d++)
    VT_TRY(vt_mview_cut(m, op, out, d, vt_mscalar(m, indices[d]),
                        block.kind == VT_MSCALAR ? 1 : block.dims[d],
                        strides && strides->count ? strides->ints[d] : 1));
  return VT_OK;
}

vt_status vt_mosaic_run_vector_load(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->results[0].type;
  vt_mview view;
  char *out;
  VT_TRY(block_at(m, op, op->operands[0], op->operands + 1, type, &view));
  VT_TRY(vt_mcheck_access(m, op, &view, false));
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  VT_TRY(vt_mview_read(&view, out));
  const vt_mvalue *mask = op->code == VT_MOP_LOAD_VECTOR ? vt_mop_optional(op, 2) : NULL;
  const uint8_t *keep = mask ? vt_mdata(m, mask) : NULL;
  size_t bytes = vt_dtype_bytes(type.dtype);
  for (int64_t i = 0; keep && i < vt_mcount(type); i++)
    if (!keep[i]) memset(out + (size_t)i * bytes, 0, bytes);
  return VT_OK;
}

// What the store leaves in the block: the old elements where the mask is false; with `add`, sums.
static vt_status merge(vt_mmachine *m, const vt_mop *op, const vt_mview *view, const uint8_t *mask,
                       const void *value, char *old) {
  vt_mtype type = op->operands[0]->type;
  size_t bytes = vt_dtype_bytes(type.dtype);
  (void)m;
  VT_TRY(vt_mview_read(view, old));
  bool add = vt_mop_i64(op, VT_MATTR_ADD, 0);
  for (int64_t i = 0; i < vt_mcount(type); i++) {
    if (mask && !mask[i]) continue;
    if (!add)
      memcpy(old + (size_t)i * bytes, (const char *)value + (size_t)i * bytes, bytes);
    else if (vt_dtype_is_float(type.dtype))
      vt_number_store(type.dtype, old, i,
                      vt_number_load(type.dtype, old, i) + vt_number_load(type.dtype, value, i));
    else
      vt_mbits_store(
          type.dtype, old + (size_t)i * bytes,
          (uint64_t)(vt_int_load(type.dtype, old, i) + vt_int_load(type.dtype, value, i)));
  }
  return VT_OK;
}

vt_status vt_mosaic_run_vector_store(vt_mmachine *m, const vt_mop *op) {
  vt_mtype type = op->operands[0]->type;
  const vt_mvalue *mask = op->code == VT_MOP_STORE_VECTOR ? vt_mop_optional(op, 3) : NULL;
  vt_mview view;
  VT_TRY(block_at(m, op, op->operands[1], op->operands + 2, type, &view));
  VT_TRY(vt_mcheck_access(m, op, &view, true));
  const void *value = vt_mdata(m, op->operands[0]);
  if (!mask && !vt_mop_i64(op, VT_MATTR_ADD, 0)) {
    VT_TRY(vt_mview_write(m, &view, value));
    return vt_mcheck_stored(m, op, &view);
  }
  char *old = NULL;
  VT_TRY(vt_eval_scratch(vt_mtype_bytes(type) + 1, &old));
  vt_status st = merge(m, op, &view, mask ? vt_mdata(m, mask) : NULL, value, old);
  if (!st) st = vt_mview_write(m, &view, old);
  free(old);
  VT_TRY(st);
  return vt_mcheck_stored(m, op, &view);
}

vt_status vt_mosaic_run_load(vt_mmachine *m, const vt_mop *op) {
  vt_mview view;
  void *out;
  VT_TRY(block_at(m, op, op->operands[0], op->operands + 1, op->results[0].type, &view));
  VT_TRY(vt_mcheck_access(m, op, &view, false));
  VT_TRY(vt_mresult_new(m, &op->results[0], &out));
  return vt_mview_read(&view, out);
}

vt_status vt_mosaic_run_store(vt_mmachine *m, const vt_mop *op) {
  vt_mview view;
  VT_TRY(block_at(m, op, op->operands[1], op->operands + 2, op->operands[0]->type, &view));
  VT_TRY(vt_mcheck_access(m, op, &view, true));
  VT_TRY(vt_mview_write(m, &view, vt_mdata(m, op->operands[0])));
  return vt_mcheck_stored(m, op, &view);
}

// ---- views --------------------------------------------------------------------------------------

// The result's view, as a copy of the operand's.
static vt_mview *derived(vt_mmachine *m, const vt_mop *op) {
  vt_mview *view = &m->views[op->results[0].ref];
  *view = *vt_mview_at(m, op->operands[0]);
  m->slots[op->results[0].slot].view = view;
  return view;
}

vt_status vt_mosaic_run_allocation(vt_mmachine *m, const vt_mop *op) {
  uint32_t first = m->kernel->body->block->arg_count - m->kernel->grid_rank;
  vt_mview *view = &m->views[op->results[0].ref];
  vt_mview_whole(&m->arrays[first + (uint32_t)op->place], view);
  m->slots[op->results[0].slot].view = view;
  return VT_OK;
}

vt_status vt_mosaic_run_sem_barrier(vt_mmachine *m, const vt_mop *op) {
  vt_mview *view = &m->views[op->results[0].ref];
  vt_mview_whole(&m->arrays[m->array_count - 1], view);
  m->slots[op->results[0].slot].view = view;
  return VT_OK;
}

vt_status vt_mosaic_run_slice_ref(vt_mmachine *m, const vt_mop *op) {
  uint32_t count, dynamic_count, at = 0;
  vt_mvalue **base = vt_mop_group(op, 1, &count), **dynamic = vt_mop_group(op, 2, &dynamic_count);
  vt_mtype to = op->results[0].type;
  vt_mview *view = derived(m, op);
  for (int32_t d = 0; d < to.rank; d++) {
    int64_t size = to.dims[d] >= 0 ? to.dims[d] : vt_mscalar(m, dynamic[at++]);
    if (to.dims[d] < 0 && size > view->dims[d] + MOST_PADDING)
      return vt_mop_error(op, VT_OUT_OF_RANGE,
                          "%" PRId64 " elements of a dimension of size %" PRId64, size,
                          view->dims[d]);
    VT_TRY(vt_mview_cut(m, op, view, d, vt_mscalar(m, base[d]), size, 1));
  }
  return VT_OK;
}

vt_status vt_mosaic_run_squeeze_ref(vt_mmachine *m, const vt_mop *op) {
  vt_mview_squeeze(derived(m, op), op->operands[0]->type, op->results[0].type);
  return VT_OK;
}

vt_status vt_mosaic_run_reshape_ref(vt_mmachine *m, const vt_mop *op) {
  return vt_mview_reshape(op, derived(m, op), op->results[0].type);
}

vt_status vt_mosaic_run_bitcast_ref(vt_mmachine *m, const vt_mop *op) {
  return vt_mview_bitcast(op, derived(m, op), op->results[0].type);
}

vt_status vt_mosaic_run_same_ref(vt_mmachine *m, const vt_mop *op) {
  (void)derived(m, op);
  return VT_OK;
}

// ---- devices ------------------------------------------------------------------------------------

vt_status vt_mosaic_run_device_id(vt_mmachine *m, const vt_mop *op) {
  vt_mset_int(m, &op->results[0], m->device);
  return VT_OK;
}

vt_status vt_mosaic_run_core_id(vt_mmachine *m, const vt_mop *op) {
  vt_mset_int(m, &op->results[0], m->core);
  return VT_OK;
}

// The device and core that an op names; its own when it names none.
static vt_status target_of(vt_mmachine *m, const vt_mop *op, const vt_mvalue *device,
                           const vt_mvalue *core, vt_mmachine **out) {
  int64_t id = device ? vt_mscalar(m, device) : m->device;
  int64_t number = core ? vt_mscalar(m, core) : m->core;
  *out = m;
  if (id == m->device && number == m->core) return VT_OK;
  if (number < 0 || number >= m->kernel->core_count)
    return vt_mop_error(op, VT_INVALID_ARGUMENT, "core %" PRId64 " of %d", number,
                        m->kernel->core_count);
  if (id != m->device && (id < 0 || id >= m->device_count || m->device_count == 1))
    return vt_mop_error(op, VT_INVALID_ARGUMENT, "device %" PRId64 " of %d", id, m->device_count);
  int64_t first = m->device_count == 1 ? 0 : id;
  *out = &m->all[first * m->kernel->core_count + number];
  return VT_OK;
}

// The same view on another device.
static vt_mview view_on(const vt_mmachine *m, const vt_mview *view, vt_mmachine *target) {
  vt_mview other = *view;
  other.array = &target->arrays[view->array - m->arrays];
  return other;
}

// Counts are of 32 bits, as on the chip.
static uint32_t *counter(const vt_mview *view) {
  return (uint32_t *)(void *)(view->array->data + view->offset);
}

static void add(const vt_mview *view, int64_t amount) {
  *counter(view) += (uint32_t)amount;
}

static int64_t bytes_moved(const vt_mview *view) {
  return (vt_mview_elements(view) * vt_dtype_get(view->dtype)->bits + 7) / 8;
}

// What a copy of the view adds to a semaphore: its bytes, or one.
static int64_t credit(const vt_mview *view, const vt_mvalue *semaphore) {
  return semaphore->type.semaphore == VT_MSEM_DMA ? bytes_moved(view) : 1;
}

// A copy happens when it starts; when it is checked, as late as it may.
vt_status vt_mosaic_run_enqueue_dma(vt_mmachine *m, const vt_mop *op) {
  const vt_mvalue *source_semaphore = vt_mop_optional(op, 1), *semaphore = vt_mop_optional(op, 3);
  const vt_mview *source = vt_mview_at(m, vt_mop_optional(op, 0));
  vt_mmachine *target;
  VT_TRY(target_of(m, op, vt_mop_optional(op, 4), vt_mop_optional(op, 5), &target));
  vt_mview to = view_on(m, vt_mview_at(m, vt_mop_optional(op, 2)), target),
           at = view_on(m, vt_mview_at(m, semaphore), target);
  for (int32_t d = 0; d < to.rank; d++)
    if (to.dims[d] != source->dims[d])
      return vt_mop_error(op, VT_INVALID_ARGUMENT,
                          "%" PRId64 " elements are copied to %" PRId64 " in dimension %d",
                          source->dims[d], to.dims[d], d);
  VT_TRY(vt_marray_own(target, at.array));
  if (m->check) {
    const vt_mview *sent = source_semaphore ? vt_mview_at(m, source_semaphore) : NULL;
    if (sent) VT_TRY(vt_marray_own(m, sent->array));
    VT_TRY(vt_marray_own(target, to.array));
    return vt_mcheck_start(m, op, source, target, &to, &at, credit(&to, semaphore), sent,
                           sent ? credit(source, source_semaphore) : 0);
  }
  VT_TRY(vt_mview_copy(target, source, &to));
  add(&at, credit(&to, semaphore));
  if (!source_semaphore) return VT_OK;
  const vt_mview *sent = vt_mview_at(m, source_semaphore);
  VT_TRY(vt_marray_own(m, sent->array));
  add(sent, credit(source, source_semaphore));
  return VT_OK;
}

// Takes `amount` from the semaphore, or waits.
static vt_status take(vt_mmachine *m, const vt_mop *op, const vt_mview *semaphore, int64_t amount) {
  VT_TRY(vt_marray_own(m, semaphore->array));
  VT_TRY(vt_mcheck_arrive(m, semaphore, amount));
  int64_t count = *counter(semaphore);
  if (count >= amount) {
    *counter(semaphore) -= (uint32_t)amount;
    vt_mcheck_waited(m, semaphore);
    return VT_OK;
  }
  m->waiting = op;
  m->wanted = amount;
  m->found = count;
  return VT_OK;
}

vt_status vt_mosaic_run_wait_dma2(vt_mmachine *m, const vt_mop *op) {
  const vt_mview *target = vt_mview_at(m, op->operands[2]);
  return take(m, op, vt_mview_at(m, op->operands[0]), credit(target, op->operands[0]));
}

vt_status vt_mosaic_run_sem_signal(vt_mmachine *m, const vt_mop *op) {
  vt_mmachine *target;
  VT_TRY(target_of(m, op, vt_mop_optional(op, 2), vt_mop_optional(op, 3), &target));
  vt_mview at = view_on(m, vt_mview_at(m, op->operands[0]), target);
  VT_TRY(vt_marray_own(target, at.array));
  add(&at, vt_mscalar(m, op->operands[1]));
  vt_mcheck_signal(m, op, target, &at);
  return VT_OK;
}

vt_status vt_mosaic_run_sem_wait(vt_mmachine *m, const vt_mop *op) {
  return take(m, op, vt_mview_at(m, op->operands[0]), vt_mscalar(m, op->operands[1]));
}

vt_status vt_mosaic_run_sem_read(vt_mmachine *m, const vt_mop *op) {
  const vt_mview *semaphore = vt_mview_at(m, op->operands[0]);
  VT_TRY(vt_mcheck_arrive(m, semaphore, INT32_MAX));
  vt_mset_int(m, &op->results[0], (int32_t)*counter(semaphore));
  vt_mcheck_waited(m, semaphore);
  return VT_OK;
}

// ---- prints -------------------------------------------------------------------------------------

static void put_values(vt_text *text, vt_dtype dtype, int64_t n, const void *data) {
  for (int64_t i = 0; i < n; i++) {
    if (i) vt_text_put(text, " ");
    if (vt_dtype_is_float(dtype))
      vt_text_printf(text, "%.9g", vt_number_load(dtype, data, i));
    else
      vt_text_printf(text, "%" PRId64, vt_int_load(dtype, data, i));
  }
}

static void put_operand(vt_mmachine *m, vt_text *text, const vt_mvalue *value) {
  if (value->type.kind != VT_MREF)
    put_values(text, value->type.dtype, vt_mcount(value->type), vt_mdata(m, value));
}

// "$0" stands for the first operand, "$x1" for the second in hexadecimal; "$u1", "$s1" and "$f1"
// say that it is an unsigned, a signed number or a float.
static void put_formatted(vt_mmachine *m, const vt_mop *op, vt_text *text, vt_string tag) {
  for (size_t i = 0; i < tag.size; i++) {
    size_t at = i + 1;
    char as = '$';
    if (tag.data[i] == '$' && at < tag.size && memchr("xusf", tag.data[at], 4)) as = tag.data[at++];
    uint32_t number = 0;
    bool digits = false;
    for (; tag.data[i] == '$' && at < tag.size && tag.data[at] >= '0' && tag.data[at] <= '9' &&
           number < 1000;
         at++, digits = true)
      number = number * 10 + (uint32_t)(tag.data[at] - '0');
    if (!digits || number >= op->operand_count) {
      vt_text_put_n(text, &tag.data[i], 1);
      continue;
    }
    const vt_mvalue *value = op->operands[number];
    vt_dtype dtype = value->type.dtype;
    if (value->type.kind == VT_MSCALAR && as == 'x')
      vt_text_printf(text, "%" PRIx64, m->slots[value->slot].bits);
    else if (value->type.kind == VT_MSCALAR && as == 'u' && vt_dtype_is_integer(dtype))
      put_values(text, vt_dtype_unsigned(dtype), 1, vt_mdata(m, value));
    else
      put_operand(m, text, value);
    i = at - 1;
  }
}

vt_status vt_mosaic_run_log(vt_mmachine *m, const vt_mop *op) {
  const vt_mattr *tag = vt_mop_attr(op, VT_MATTR_TAG);
  vt_string format = tag ? tag->string : (vt_string){"", 0};
  vt_text text = {0};
  if (vt_mop_i64(op, VT_MATTR_FORMATTED, 0)) {
    put_formatted(m, op, &text, format);
  } else {
    vt_text_put_n(&text, format.data, format.size);
    for (uint32_t i = 0; i < op->operand_count; i++) {
      vt_text_put(&text, " ");
      put_operand(m, &text, op->operands[i]);
    }
  }
  if (!vt_mcheck_again(m->check)) fprintf(stderr, "%s\n", vt_text_string(&text));
  vt_text_free(&text);
  return VT_OK;
}

vt_status vt_mosaic_run_log_buffer(vt_mmachine *m, const vt_mop *op) {
  const vt_mview *view = vt_mview_at(m, op->operands[0]);
  const vt_mattr *tag = vt_mop_attr(op, VT_MATTR_TAG);
  int64_t n = vt_mview_elements(view);
  char *data = NULL;
  VT_TRY(vt_eval_scratch(n * (int64_t)vt_dtype_bytes(view->dtype) + 1, &data));
  vt_status st = vt_mview_read(view, data);
  vt_text text = {0};
  if (tag) vt_text_put_n(&text, tag->string.data, tag->string.size);
  vt_text_put(&text, " ");
  put_values(&text, view->dtype, n, data);
  if (!st && !vt_mcheck_again(m->check)) fprintf(stderr, "%s\n", vt_text_string(&text));
  vt_text_free(&text);
  free(data);
  return st;
}
