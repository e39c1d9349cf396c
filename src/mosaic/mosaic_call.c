// SPDX-License-Identifier: Apache-2.0
// mosaic_call.c - a call of a kernel: its operands and results checked against the signature when
// it is attached, and the machines of all devices when it runs.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/coroutine.h"
#include "base/map.h"
#include "mosaic/mosaic_check.h"
#include "mosaic/mosaic_code.h"

static const int64_t max_memory = (int64_t)4 << 30; // of one device: blocks, scratch, allocations

typedef struct attached {
  vt_program_call kernel; // what src/eval knows
  vt_mosaic *mosaic;
  uint32_t input_count; // windows that are operands
  uint64_t check_seed;  // 0: nothing is checked
  int32_t *alias_of;    // by input window: the result that shares its memory, or -1
} attached;

// ---- attaching ----------------------------------------------------------------------------------

static vt_status call_error(const vt_op *op, const char *what, uint32_t index) {
  vt_arena arena = {0};
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "%s: %s %" PRIu32 " does not fit the kernel",
                          vt_op_describe(op, &arena), what, index);
  vt_arena_free(&arena);
  return st;
}

// Whether an array of the call fits a reference: the same array, or blocks of it.
static bool fits(vt_type type, vt_mtype ref, bool whole) {
  if (vt_mosaic_signless(type.dtype) != ref.dtype || type.rank != ref.rank) return false;
  for (int32_t d = 0; d < type.rank && whole; d++)
    if (type.dims[d] != ref.dims[d]) return false;
  return true;
}

static vt_status check_call(const vt_op *op, const vt_mosaic *k, uint32_t *out_inputs) {
  const vt_mvalue *args = k->body->block->args + k->grid_rank;
  uint32_t operands = vt_op_own_operands(op), fixed = k->dynamic_count + k->prefetch_count;
  *out_inputs = 0;
  if (operands < fixed || op->result_count + (operands - fixed) != k->window_count)
    return vt_error(VT_INVALID_ARGUMENT,
                    "kernel %s: %" PRIu32 " operands and %" PRIu32 " results, %" PRIu32
                    " arrays and %" PRIu32 " scalars were expected",
                    k->name, operands, op->result_count, k->window_count, fixed);
  for (uint32_t i = 0; i < k->dynamic_count; i++) {
    vt_type type = op->operands[i]->type;
    if (type.dtype != VT_S32 || vt_type_elements(type) != 1) return call_error(op, "operand", i);
  }
  for (uint32_t i = k->dynamic_count; i < operands; i++) {
    uint32_t arg = i - k->dynamic_count;
    bool whole = arg < k->prefetch_count || k->windows[arg - k->prefetch_count].whole;
    if (!fits(op->operands[i]->type, args[arg].type, whole)) return call_error(op, "operand", i);
  }
  *out_inputs = operands - fixed;
  for (uint32_t i = 0; i < op->result_count; i++) {
    uint32_t window = *out_inputs + i;
    if (!fits(op->results[i].type, args[k->prefetch_count + window].type, k->windows[window].whole))
      return call_error(op, "result", i);
  }
  return VT_OK;
}

static const char *parse_number(const char *at, const char *end, int64_t *out) {
  *out = 0;
  while (at < end && *at >= '0' && *at <= '9' && *out < INT32_MAX) *out = *out * 10 + (*at++ - '0');
  return at;
}

// "{0}:(1,{});{1}:(2,{})": result, operand. Of a single result the number may be left out.
static vt_status read_aliases(const vt_op *op, attached *a) {
  vt_string text = vt_attr_string(op, VT_ATTR_OUTPUT_OPERAND_ALIASES);
  const char *at = text.data, *end = text.data + text.size;
  uint32_t fixed = a->mosaic->dynamic_count + a->mosaic->prefetch_count;
  for (uint32_t i = 0; i < a->input_count; i++) a->alias_of[i] = -1;
  while (at < end) {
    int64_t result, operand;
    if (*at != '{') return call_error(op, "alias", 0);
    at = parse_number(at + 1, end, &result);
    if (end - at < 3 || memcmp(at, "}:(", 3) != 0) return call_error(op, "alias", 0);
    at = parse_number(at + 3, end, &operand);
    while (at < end && *at != ';') at++;
    if (at < end) at++;
    if (operand < fixed) continue; // of a scalar: never written back
    if (result >= op->result_count || operand - fixed >= a->input_count ||
        !vt_type_equal(op->results[result].type, op->operands[operand]->type))
      return call_error(op, "alias of result", (uint32_t)result);
    a->alias_of[operand - fixed] = (int32_t)result;
  }
  return VT_OK;
}

static vt_status run(const vt_program_call *kernel, const vt_op *op, const vt_eval_env *env,
                     int32_t devices, const vt_tensor *const *in, vt_tensor *const *out);

typedef struct attacher {
  vt_arena *arena;
  vt_map kernels; // backend_config -> vt_mosaic
  const vt_mosaic_options *options;
} attacher;

static vt_status check_limits(const attacher *t, const vt_op *op, const vt_mosaic *mosaic) {
  vt_arena scratch = {0};
  vt_status st = vt_mosaic_limits(mosaic, op, t->options ? t->options->chip : NULL);
  if (st) st = vt_status_wrap(st, "%s", vt_op_describe(op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

static vt_status attach(attacher *t, vt_op *op) {
  vt_string config = vt_attr_string(op, VT_ATTR_BACKEND_CONFIG);
  vt_mosaic *mosaic = vt_map_find(&t->kernels, config.data, config.size);
  if (!mosaic) {
    vt_arena scratch = {0};
    vt_status st = vt_mosaic_read(config, t->arena, &mosaic);
    if (st) st = vt_status_wrap(st, "%s", vt_op_describe(op, &scratch));
    vt_arena_free(&scratch);
    if (st) return st;
    vt_mosaic_split(mosaic, t->options ? t->options->cores : 1);
    *vt_map_at(&t->kernels, config.data, config.size) = mosaic;
  }
  attached *a = VT_NEW(t->arena, attached);
  a->mosaic = mosaic;
  a->check_seed = t->options ? t->options->check_seed : 0;
  a->kernel = (vt_program_call){.meets_devices = mosaic->meets_devices, .run = run};
  VT_TRY(check_call(op, mosaic, &a->input_count));
  if (mosaic->attached && mosaic->input_count != a->input_count)
    return vt_error(VT_INVALID_ARGUMENT, "calls of kernel %s differ in their operands",
                    mosaic->name);
  mosaic->input_count = a->input_count;
  if (!mosaic->attached) VT_TRY(check_limits(t, op, mosaic));
  mosaic->attached = true;
  a->alias_of = VT_NEW_ARRAY(t->arena, int32_t, a->input_count + 1);
  VT_TRY(read_aliases(op, a));
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_KERNEL, .count = 1, .kernel = &a->kernel});
  return VT_OK;
}

static vt_status attach_all(attacher *t, vt_func *func) {
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->region_count; i++) VT_TRY(attach_all(t, op->regions[i]));
    if (vt_mosaic_is_call(op)) VT_TRY(attach(t, op));
  }
  return VT_OK;
}

vt_status vt_mosaic_attach(vt_module *module, const vt_mosaic_options *options) {
  attacher t = {.arena = &module->arena, .options = options};
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < module->func_count && !st; i++) st = attach_all(&t, module->funcs[i]);
  vt_map_free(&t.kernels);
  return st;
}

const vt_mosaic *vt_mosaic_of(const vt_op *op) {
  const vt_attr *kernel = op->code == VT_OP_CUSTOM_CALL ? vt_op_attr(op, VT_ATTR_KERNEL) : NULL;
  return kernel ? ((const attached *)kernel->kernel)->mosaic : NULL;
}

vt_status vt_mosaic_each(const vt_module *module, vt_mosaic_visit *visit, void *user) {
  VT_ARRAY(const vt_func *) open = {0};
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < module->func_count; i++) vt_array_push(&open, module->funcs[i]);
  while (open.size && !st) {
    const vt_func *func = open.data[--open.size];
    for (const vt_op *op = func->first; op && !st; op = op->next) {
      for (uint32_t i = 0; i < op->region_count; i++) vt_array_push(&open, op->regions[i]);
      const vt_attr *kernel = op->code == VT_OP_CUSTOM_CALL ? vt_op_attr(op, VT_ATTR_KERNEL) : NULL;
      if (kernel) st = visit(user, ((const attached *)kernel->kernel)->mosaic);
    }
  }
  vt_array_free(&open);
  return st;
}

// ---- memory -------------------------------------------------------------------------------------

// `cleared` or not, as its first use allows.
static vt_status own_memory(vt_mmachine *m, vt_marray *array, vt_mtype type, bool cleared,
                            int64_t *used) {
  int64_t bytes = vt_mtype_bytes(type);
  *array = (vt_marray){.type = type};
  *used += bytes;
  if (*used > max_memory)
    return vt_error(VT_RESOURCE_EXHAUSTED, "kernel %s needs more than %" PRId64 " bytes on a core",
                    m->kernel->name, max_memory);
  array->data = m->code ? m->code->alloc(bytes + 64) : calloc(1, (size_t)bytes + 64);
  if (!array->data) return vt_error_no_memory();
  if (m->code && cleared) memset(array->data, 0, (size_t)bytes + 64);
  if (m->check) vt_mcheck_fill(m->check, array, true);
  array->release = m->code ? m->code->release : free;
  return VT_OK;
}

static bool reads_first(const vt_mmachine *m, uint32_t array) {
  return !m->code || !m->code->filled[array];
}

static bool is_narrow_unsigned(vt_type type) {
  return vt_mosaic_signless(type.dtype) != type.dtype && vt_dtype_get(type.dtype)->bits < 8;
}

static void sign_extend(const vt_marray *array) {
  for (int64_t i = 0; i < vt_mtype_elements(array->type); i++)
    vt_mbits_store(array->type.dtype, array->data + i, (uint8_t)array->data[i]);
}

// The array as the kernel sees it: narrow unsigned integers are kept sign-extended there.
static vt_status borrow(vt_marray *array, vt_tensor tensor, bool read_only) {
  vt_dtype dtype = vt_mosaic_signless(tensor.type.dtype);
  *array = (vt_marray){.data = tensor.data,
                       .type = {.kind = VT_MREF,
                                .dtype = dtype,
                                .space = VT_MSPACE_HBM,
                                .rank = tensor.type.rank,
                                .dims = tensor.type.dims},
                       .read_only = read_only};
  if (!is_narrow_unsigned(tensor.type) || !read_only) return VT_OK;
  VT_TRY(vt_marray_own(NULL, array));
  sign_extend(array);
  return VT_OK;
}

// `bytes` may be 0, and then there may be no memory.
static void copy_or_clear(void *to, const void *from, int64_t bytes) {
  if (bytes && from)
    memcpy(to, from, (size_t)bytes);
  else if (bytes)
    memset(to, 0, (size_t)bytes);
}

// Arrays of the windows: results start as zeros, or as the operand that shares their memory.
static vt_status set_windows(vt_mmachine *m, const attached *a, const vt_tensor *in,
                             const vt_tensor *out, uint8_t *const *written, int64_t *used) {
  const vt_mosaic *k = a->mosaic;
  uint32_t fixed = k->dynamic_count + k->prefetch_count;
  for (uint32_t i = k->window_count; i-- > 0;) {
    vt_mwindow_state *w = &m->windows[i];
    vt_mtype type = k->body->block->args[k->grid_rank + k->prefetch_count + i].type;
    w->is_output = i >= a->input_count;
    if (w->is_output) {
      vt_tensor result = out[i - a->input_count];
      w->written = written ? written[i - a->input_count] : NULL;
      if (!m->later && !m->outer_end && !w->written)
        copy_or_clear(result.data, NULL, vt_type_bytes(result.type));
      VT_TRY(borrow(&w->outside, result, false));
      w->outside.type.semaphore = type.semaphore;
      if (m->check && !m->later) vt_mcheck_fill(m->check, &w->outside, false);
    } else if (a->alias_of[i] >= 0) {
      vt_tensor operand = in[fixed + i];
      w->outside = m->windows[a->input_count + (uint32_t)a->alias_of[i]].outside;
      if (!m->later) copy_or_clear(w->outside.data, operand.data, vt_type_bytes(operand.type));
      if (!m->later && is_narrow_unsigned(operand.type)) sign_extend(&w->outside);
    } else {
      VT_TRY(borrow(&w->outside, in[fixed + i], true));
      w->outside.type.semaphore = type.semaphore;
    }
    vt_marray *inside = &m->arrays[k->prefetch_count + i];
    if (k->windows[i].whole) {
      *inside = w->outside;
      w->outside.release = NULL;
    } else {
      bool fetched = m->code && !w->is_output;
      VT_TRY(own_memory(m, inside, type, !fetched && reads_first(m, k->prefetch_count + i), used));
      w->block_memory = inside->data;
    }
  }
  return VT_OK;
}

static vt_status set_up_code(vt_mmachine *m) {
  const vt_mosaic *k = m->kernel;
  uint32_t most = 0;
  for (uint32_t i = 0; i < k->op_count; i++) {
    uint32_t values = k->ops[i]->operand_count + k->ops[i]->result_count;
    if (values > most) most = values;
  }
  m->call = vt_mosaic_call;
  m->product = m->code->product;
  m->product_lay = m->code->product_lay;
  m->product_rows = m->code->product_rows;
  m->passed = VT_NEW_ARRAY(m->arena, void *, most + 1);
  m->lent = VT_NEW_ARRAY(m->arena, vt_eval_buffer, most + 1);
  m->memory = m->code->alloc(m->code->memory_bytes + 64);
  if (!m->memory) return vt_error_no_memory();
  if (vt_mosaic_meets(k)) VT_TRY(vt_coroutine_create(vt_mmachine_run_inside, m, &m->coroutine));
  return m->products ? VT_OK : m->code->open(m->code, &m->products);
}

static vt_status set_up(vt_mmachine *m, const attached *a, const vt_tensor *in,
                        const vt_tensor *out, uint8_t *const *written) {
  static const vt_mtype barrier = {
      .kind = VT_MREF, .dtype = VT_S32, .space = VT_MSPACE_SEMAPHORE, .semaphore = VT_MSEM_REGULAR};
  const vt_mosaic *k = a->mosaic;
  const vt_mvalue *args = k->body->block->args + k->grid_rank;
  uint32_t refs = k->body->block->arg_count - k->grid_rank;
  int64_t used = 0;
  uint32_t dynamic = 0;
  m->kernel = k;
  m->slots = VT_NEW_ARRAY(m->arena, vt_mslot, k->slot_count + 1);
  m->views = VT_NEW_ARRAY(m->arena, vt_mview, k->ref_count + 1);
  m->windows = VT_NEW_ARRAY(m->arena, vt_mwindow_state, k->window_count + 1);
  m->arrays = VT_NEW_ARRAY(m->arena, vt_marray, refs + (uint32_t)k->place_count + 1);
  m->array_count = refs + (uint32_t)k->place_count + 1;
  for (uint32_t d = 0; d < k->grid_rank; d++)
    m->bounds[d] =
        k->grid[d] == INT64_MIN ? vt_int_load(VT_S32, in[dynamic++].data, 0) : k->grid[d];
  for (uint32_t i = 0; i < k->prefetch_count; i++)
    VT_TRY(borrow(&m->arrays[i], in[k->dynamic_count + i], true));
  VT_TRY(set_windows(m, a, in, out, written, &used));
  for (uint32_t i = k->prefetch_count + k->window_count; i < refs; i++)
    VT_TRY(own_memory(m, &m->arrays[i], args[i].type, reads_first(m, i), &used));
  for (uint32_t i = refs; i + 1 < m->array_count; i++)
    VT_TRY(own_memory(m, &m->arrays[i], k->places[i - refs]->type, reads_first(m, i), &used));
  VT_TRY(own_memory(m, &m->arrays[m->array_count - 1], barrier, true, &used));
  return m->code ? set_up_code(m) : VT_OK;
}

static void release(vt_marray *array) {
  if (array->release) array->release(array->data);
}

static void drop_value(vt_mmachine *m, const vt_mvalue *value) {
  if (value->type.kind == VT_MVECTOR)
    vt_eval_buffer_release(m->state, m->slots[value->slot].buffer);
}

// The vectors that a kernel which failed still held.
static void drop_values(vt_mmachine *m, const vt_mblock *block) {
  for (uint32_t i = 0; i < block->arg_count; i++) drop_value(m, &block->args[i]);
  for (const vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->result_count; i++) drop_value(m, &op->results[i]);
    for (uint32_t b = 0; b < op->block_count; b++) drop_values(m, op->blocks[b]);
  }
}

static void tear_down(vt_mmachine *m) {
  if (!m->kernel) return;
  for (uint32_t i = 0; m->slots && !m->code && i < m->kernel->func_count; i++)
    drop_values(m, m->kernel->funcs[i].block);
  for (uint32_t i = 0; m->windows && i < m->kernel->window_count; i++)
    if (m->windows[i].block_memory)
      m->arrays[m->kernel->prefetch_count + i].data = m->windows[i].block_memory;
  for (uint32_t i = 0; m->arrays && i < m->array_count; i++) release(&m->arrays[i]);
  for (uint32_t i = 0; m->windows && i < m->kernel->window_count; i++)
    release(&m->windows[i].outside);
  vt_coroutine_destroy(m->coroutine);
  if (m->memory) m->code->release(m->memory);
  if (m->products && !m->lent_products) m->code->close(m->products);
  free(m->frames);
}

// ---- running ------------------------------------------------------------------------------------

static vt_status deadlock(const vt_mmachine *machines, int32_t count) {
  vt_text text = {0};
  int32_t told = 0;
  for (int32_t d = 0; d < count && told < 8; d++) {
    const vt_mmachine *m = &machines[d];
    if (m->done || !m->waiting) continue;
    const vt_loc *loc = m->waiting->loc;
    vt_text_printf(&text, "%s device %d", told++ ? ";" : "", m->device);
    if (m->kernel->core_count > 1) vt_text_printf(&text, " core %d", m->core);
    vt_text_printf(&text, " waits at %s", vt_mop_info_get(m->waiting->code)->text);
    if (loc->file[0]) vt_text_printf(&text, " (%s:%d)", loc->file, loc->line);
    vt_text_printf(&text, " for %" PRId64 ", the semaphore holds %" PRId64, m->wanted, m->found);
  }
  vt_status st = vt_error(VT_INTERNAL, "kernel %s: deadlock:%s", machines->kernel->name,
                          vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// Each machine runs until it waits; when none gets any further, none ever will.
static vt_status run_machines(vt_mmachine *machines, int32_t count) {
  for (;;) {
    bool moved = false, all_done = true;
    for (int32_t d = 0; d < count; d++) {
      vt_mmachine *m = &machines[d];
      int64_t before = m->steps;
      if (m->done) continue;
      VT_TRY(vt_mcheck_place(m, vt_mmachine_run(m)));
      if (m->code && !m->coroutine && m->waiting) return deadlock(machines, count); // it is alone
      moved = moved || m->steps != before || m->done;
      all_done = all_done && m->done;
    }
    if (all_done) return VT_OK;
    if (!moved) return deadlock(machines, count);
  }
}

static vt_status semaphore_left(const vt_mmachine *m, const vt_marray *array, int64_t number,
                                int64_t left) {
  const vt_mop *giver = vt_mcheck_giver(m, array, number);
  vt_status st = vt_error(VT_INTERNAL,
                          "kernel %s: a semaphore holds %" PRId64
                          " at the end on device %d: what is signalled must be waited for",
                          m->kernel->name, left, m->device);
  if (giver && giver->loc->file[0])
    st = vt_status_wrap(st, "%s (%s:%d)", vt_mop_info_get(giver->code)->text, giver->loc->file,
                        giver->loc->line);
  return st;
}

static vt_status check_semaphores(const vt_mmachine *m) {
  const vt_mosaic *k = m->kernel;
  if (k->config.disable_semaphore_checks) return VT_OK;
  for (uint32_t i = k->prefetch_count + k->window_count; i < m->array_count; i++) {
    const vt_marray *array = &m->arrays[i];
    int64_t n = array->type.semaphore ? vt_mtype_elements(array->type) : 0;
    for (int64_t s = 0; s < n; s++) {
      int64_t left = ((const uint32_t *)(const void *)array->data)[s];
      if (left) return semaphore_left(m, array, s, left);
    }
  }
  return VT_OK;
}

// Results without blocks; those of windows were looked at when they were left.
static vt_status check_results(vt_mmachine *m) {
  const vt_mosaic *k = m->kernel;
  for (uint32_t i = k->input_count; m->check && i < k->window_count; i++) {
    vt_mview view;
    if (!k->windows[i].whole) continue;
    vt_mview_whole(&m->arrays[k->prefetch_count + i], &view);
    VT_TRY(vt_mcheck_result(m, &view, i - k->input_count));
  }
  return VT_OK;
}

// Results of narrow unsigned types are zero-extended again.
static void hand_over(uint32_t count, vt_tensor *out) {
  for (uint32_t i = 0; i < count; i++) {
    if (!is_narrow_unsigned(out[i].type)) continue;
    uint8_t mask = (uint8_t)((1u << vt_dtype_get(out[i].type.dtype)->bits) - 1);
    for (int64_t e = 0; e < vt_type_elements(out[i].type); e++) ((uint8_t *)out[i].data)[e] &= mask;
  }
}

// ---- results that are not cleared ---------------------------------------------------------------

// A result starts as zeros. One that code makes block by block is not cleared: what no block
// covered is, in the end.

enum { MOST_BLOCKS = 1 << 16 };

static int64_t block_count(const attached *a, uint32_t result, vt_tensor out) {
  const vt_mosaic *k = a->mosaic;
  uint32_t window = a->input_count + result;
  vt_mtype block = k->body->block->args[k->grid_rank + k->prefetch_count + window].type;
  int64_t count = 1;
  for (int32_t d = 0; d < block.rank; d++) {
    if (!block.dims[d]) return 0;
    count *= (out.type.dims[d] + block.dims[d] - 1) / block.dims[d];
    if (count > MOST_BLOCKS) return 0;
  }
  return count;
}

// By result: a byte for each block, or NULL where it is cleared.
static uint8_t **new_written(const attached *a, const vt_op *op, vt_arena *arena,
                             const vt_tensor *out) {
  const vt_mosaic *k = a->mosaic;
  uint8_t **written = VT_NEW_ARRAY(arena, uint8_t *, op->result_count + 1);
  for (uint32_t i = 0; i < op->result_count; i++) {
    const vt_mwindow *w = &k->windows[a->input_count + i];
    bool plain = !w->whole && !w->element && !w->revisits;
    for (uint32_t j = 0; j < a->input_count; j++) plain = plain && a->alias_of[j] != (int32_t)i;
    int64_t blocks = plain ? block_count(a, i, out[i]) : 0;
    if (blocks) written[i] = VT_NEW_ARRAY(arena, uint8_t, blocks);
  }
  return written;
}

static void clear_block(vt_tensor out, const int64_t *low, const int64_t *size) {
  int64_t bytes = (int64_t)vt_dtype_bytes(out.type.dtype), index[VT_MOSAIC_RANK] = {0};
  int32_t last = out.type.rank - 1;
  if (last < 0) {
    memset(out.data, 0, (size_t)bytes);
    return;
  }
  do {
    int64_t at = 0;
    for (int32_t d = 0; d <= last; d++)
      at = at * out.type.dims[d] + low[d] + (d < last ? index[d] : 0);
    memset((char *)out.data + at * bytes, 0, (size_t)(size[last] * bytes));
  } while (vt_eval_next(last, size, index));
}

static void clear_rest(const attached *a, uint32_t results, uint8_t *const *written,
                       const vt_tensor *out) {
  const vt_mosaic *k = a->mosaic;
  for (uint32_t i = 0; i < results; i++) {
    vt_mtype block =
        k->body->block->args[k->grid_rank + k->prefetch_count + a->input_count + i].type;
    int64_t counts[VT_MOSAIC_RANK], at[VT_MOSAIC_RANK] = {0}, number = 0;
    if (!written[i] || !vt_type_bytes(out[i].type)) continue;
    for (int32_t d = 0; d < block.rank; d++)
      counts[d] = (out[i].type.dims[d] + block.dims[d] - 1) / block.dims[d];
    do {
      int64_t low[VT_MOSAIC_RANK], size[VT_MOSAIC_RANK];
      if (written[i][number++]) continue;
      for (int32_t d = 0; d < block.rank; d++) {
        low[d] = at[d] * block.dims[d];
        size[d] = out[i].type.dims[d] - low[d];
        if (size[d] > block.dims[d]) size[d] = block.dims[d];
      }
      clear_block(out[i], low, size);
    } while (vt_eval_next(block.rank, counts, at));
  }
}

// ---- machines that share the grid ---------------------------------------------------------------

enum { MOST_SHARES = 16 };

typedef struct shared_run {
  const attached *kernel;
  const vt_eval_env *env;
  int32_t device, shares;
  int64_t starts[MOST_SHARES + 1]; // of the points of the free dimensions
  const vt_tensor *in, *out;
  uint8_t **written;
  void **products; // by thread: what its machines need for products, one after the other
  vt_status errors[MOST_SHARES];
} shared_run;

// One share of the points, on a machine of its own: its scratch starts as zeros. The shares depend
// on the grid alone, so results do not depend on the number of threads.
static void run_share(void *user, int32_t share, int32_t thread) {
  shared_run *r = user;
  vt_arena arena = {0};
  vt_eval_state state = {0};
  vt_status st = VT_OK;
  vt_mmachine m = {.all = &m,
                   .device = r->device,
                   .device_count = 1,
                   .code = r->kernel->mosaic->code,
                   .exact_dots = r->env->exact_dots,
                   .later = share > 0,
                   .outer = r->starts[share],
                   .outer_end = r->starts[share + 1],
                   .last = share + 1 == r->shares,
                   .products = r->products[thread],
                   .lent_products = true,
                   .state = &state,
                   .arena = &arena};
  VT_TRY_OUT(set_up(&m, r->kernel, r->in, r->out, r->written));
  VT_TRY_OUT(run_machines(&m, 1));
out:
  r->errors[share] = st;
  r->products[thread] = m.products;
  tear_down(&m);
  vt_eval_state_fini(&state);
  vt_arena_free(&arena);
}

// The number of points of the free dimensions; 0 when the grid is not shared.
static int64_t free_points(const attached *a, const vt_tensor *in) {
  const vt_mosaic *k = a->mosaic;
  int64_t points = 1;
  uint32_t dynamic = 0;
  for (uint32_t i = 0; i < a->input_count; i++)
    if (a->alias_of[i] >= 0) return 0;
  for (uint32_t d = 0; d < k->grid_rank; d++) {
    int64_t bound =
        k->grid[d] == INT64_MIN ? vt_int_load(VT_S32, in[dynamic++].data, 0) : k->grid[d];
    if (bound <= 0) return 0;
    if (d < k->code->free_dims) points *= bound;
  }
  return k->code->free_dims ? points : 0;
}

// ---- points that make the same block ------------------------------------------------------------

enum { MOST_ASKED = 4096 };

typedef struct made {
  int64_t block[VT_MOSAIC_RANK];
  int32_t share;
} made;

static int by_block(const void *a, const void *b) {
  const made *x = a, *y = b;
  int order = memcmp(x->block, y->block, sizeof x->block);
  return order ? order : (x->share > y->share) - (x->share < y->share);
}

// The blocks that the points make: by result, then by point.
static vt_status ask_blocks(shared_run *r, int64_t points, made *blocks) {
  const attached *a = r->kernel;
  const vt_mosaic *k = a->mosaic;
  vt_arena arena = {0};
  vt_eval_state state = {0};
  vt_status st = VT_OK;
  vt_mmachine m = {.all = &m,
                   .device = r->device,
                   .device_count = 1,
                   .code = k->code,
                   .later = true,
                   .state = &state,
                   .arena = &arena};
  VT_TRY_OUT(set_up(&m, a, r->in, r->out, NULL));
  for (int64_t p = 0; p < points; p++) {
    vt_mgrid_place(&m, p);
    for (uint32_t i = a->input_count; i < k->window_count; i++) {
      VT_TRY_OUT(vt_mmachine_call(&m, k->windows[i].transform));
      int32_t rank = m.arrays[k->prefetch_count + i].type.rank;
      memcpy(blocks[(i - a->input_count) * points + p].block, m.returned,
             (size_t)rank * sizeof *m.returned);
    }
  }
out:
  tear_down(&m);
  vt_eval_state_fini(&state);
  vt_arena_free(&arena);
  return st;
}

static bool all_change(const shared_run *r, const made *blocks, int64_t points, int64_t at) {
  const vt_mosaic *k = r->kernel->mosaic;
  for (uint32_t i = 0; i + r->kernel->input_count < k->window_count; i++) {
    const made *b = blocks + i * points + at;
    bool stays = k->code->last_results[r->kernel->input_count + i];
    if (!stays && !memcmp(b->block, b[-1].block, sizeof b->block)) return false;
  }
  return true;
}

// Deals points so that those of a block are in one share; false when none can be.
static bool deal_by_block(shared_run *r, int64_t points, made *blocks) {
  const vt_mosaic *k = r->kernel->mosaic;
  int32_t shares = 1;
  for (int32_t s = 1; s < r->shares; s++) {
    int64_t at = points * s / r->shares;
    if (at <= r->starts[shares - 1]) continue;
    while (at < points && !all_change(r, blocks, points, at)) at++;
    if (at < points) r->starts[shares++] = at;
  }
  r->shares = shares;
  r->starts[shares] = points;
  for (uint32_t i = 0; i + r->kernel->input_count < k->window_count; i++) {
    made *b = blocks + i * points;
    if (k->code->last_results[r->kernel->input_count + i]) continue;
    for (int32_t s = 0; s < shares; s++)
      for (int64_t p = r->starts[s]; p < r->starts[s + 1]; p++) b[p].share = s;
    qsort(b, (size_t)points, sizeof *b, by_block);
    for (int64_t p = 1; p < points; p++)
      if (b[p].share != b[p - 1].share && !memcmp(b[p].block, b[p - 1].block, sizeof b->block))
        return false;
  }
  return shares > 1;
}

// False: the points are not shared.
static bool deal(shared_run *r, int64_t points) {
  const vt_mosaic *k = r->kernel->mosaic;
  uint32_t results = k->window_count - r->kernel->input_count;
  r->shares = points < MOST_SHARES ? (int32_t)points : MOST_SHARES;
  for (int32_t s = 0; s <= r->shares; s++) r->starts[s] = points * s / r->shares;
  if (!k->code->asks) return true;
  if (points < 2 || points > MOST_ASKED) return false;
  made *blocks = calloc((size_t)points * results + 1, sizeof *blocks);
  vt_status st = blocks ? ask_blocks(r, points, blocks) : vt_error_no_memory();
  bool good = !st && deal_by_block(r, points, blocks);
  vt_status_free(st); // it is told when the points run
  free(blocks);
  return good;
}

static vt_status run_shared(shared_run *r, const vt_op *op, vt_tensor *out) {
  vt_arena arena = {0};
  vt_status st = VT_OK;
  const vt_mcode *code = r->kernel->mosaic->code;
  int32_t threads = code->threads();
  r->written = new_written(r->kernel, op, &arena, out);
  r->products = VT_NEW_ARRAY(&arena, void *, threads);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!r->written[i]) copy_or_clear(out[i].data, NULL, vt_type_bytes(out[i].type));
  code->spread(r->shares, run_share, r);
  for (int32_t i = 0; i < threads; i++)
    if (r->products[i]) code->close(r->products[i]);
  for (int32_t i = 0; i < r->shares; i++) {
    if (st)
      vt_status_free(r->errors[i]);
    else
      st = r->errors[i];
  }
  if (!st) clear_rest(r->kernel, op->result_count, r->written, out);
  if (!st) hand_over(op->result_count, out);
  vt_arena_free(&arena);
  return st;
}

// `trace`: of the two runs of a checked kernel.
static vt_status run_once(const attached *a, const vt_op *op, const vt_eval_env *env,
                          int32_t devices, int32_t alone, vt_mtrace *trace,
                          const vt_tensor *const *in, vt_tensor *const *out) {
  vt_arena arena = {0};
  vt_eval_state state = {0};
  vt_status st = VT_OK;
  uint8_t **written = NULL;
  int32_t cores = a->mosaic->core_count, count = devices * cores;
  vt_mmachine *machines = VT_NEW_ARRAY(&arena, vt_mmachine, count);
  vt_mcheck *check =
      a->check_seed ? vt_mcheck_new(&arena, a->check_seed, machines, count, trace) : NULL;
  if (a->mosaic->code && count == 1 && !check) written = new_written(a, op, &arena, out[0]);
  for (int32_t i = 0; i < count; i++) {
    int32_t d = i / cores;
    machines[i] = (vt_mmachine){.all = machines,
                                .device = d,
                                .device_count = devices,
                                .core = i % cores,
                                .later = i % cores > 0,
                                .check = check,
                                .code = a->mosaic->code,
                                .exact_dots = env->exact_dots,
                                .state = &state,
                                .arena = &arena};
    if (devices == 1) machines[i].device = alone;
    VT_TRY_OUT(set_up(&machines[i], a, in[d], out[d], written));
  }
  VT_TRY_OUT(run_machines(machines, count));
  for (int32_t i = 0; i < count; i++) {
    VT_TRY_OUT(vt_mcheck_end(&machines[i]));
    VT_TRY_OUT(check_semaphores(&machines[i]));
    VT_TRY_OUT(check_results(&machines[i]));
    if (written) clear_rest(a, op->result_count, written, out[0]);
    if (!machines[i].core) hand_over(op->result_count, out[i / cores]);
  }
out:
  for (int32_t i = 0; i < count; i++) tear_down(&machines[i]);
  vt_eval_state_fini(&state);
  vt_arena_free(&arena);
  return st;
}

static vt_status run(const vt_program_call *kernel, const vt_op *op, const vt_eval_env *env,
                     int32_t devices, const vt_tensor *const *in, vt_tensor *const *out) {
  const attached *a = (const attached *)kernel;
  int32_t partitions = env->partition_count > 0 ? env->partition_count : 1;
  int32_t alone = env->replica * partitions + env->partition;
  int64_t points = a->mosaic->code && devices == 1 ? free_points(a, in[0]) : 0;
  vt_mtrace trace = {0};
  shared_run shared = {.kernel = a, .env = env, .device = alone, .in = in[0], .out = out[0]};
  if (points && deal(&shared, points)) return run_shared(&shared, op, out[0]);
  vt_status st = run_once(a, op, env, devices, alone, &trace, in, out);
  if (!st && a->check_seed) {
    trace.second = true;
    st = run_once(a, op, env, devices, alone, &trace, in, out);
    if (st) st = vt_status_wrap(st, "with other values in unwritten memory");
  }
  vt_array_free(&trace.stores);
  return st;
}
