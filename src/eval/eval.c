// SPDX-License-Identifier: Apache-2.0
// eval.c - the public entry points: dispatch by op, supported cases, in-place cases.
#include "base/check.h"
#include "base/memory.h"
#include "eval/eval.h"

#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"
#include "eval/plan.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
// Arithmetic flushes subnormals, as on XLA's threads. Writing the register takes as long as a small
// op does: who runs many has set it.
enum { FLUSH = 0x8040 };
static unsigned flush_on(void) {
  unsigned saved = _mm_getcsr();
  if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved | FLUSH);
  return saved;
}
static void flush_restore(unsigned saved) {
  if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved);
}
#elif defined(__aarch64__)
static unsigned flush_on(void) {
  uint64_t saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
  __asm__ volatile("msr fpcr, %0" : : "r"(saved | (uint64_t)1 << 24));
  return (unsigned)saved;
}
static void flush_restore(unsigned saved) {
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)saved));
}
#else
static unsigned flush_on(void) {
  return 0;
}
static void flush_restore(unsigned saved) {
  (void)saved;
}
#endif

static const vt_eval_kernel kernels[VT_OP_COUNT] = {
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, ...)       \
  [VT_OP_##name] = vt_eval_##kernel,
#include "ir/ops.def"
#undef OP
};

vt_eval_kernel vt_eval_kernel_of(vt_opcode code) {
  return (unsigned)code < VT_OP_COUNT ? kernels[code] : NULL;
}

typedef struct complaint {
  vt_code code;
  const vt_op *op;
  const char *before, *what, *after;
} complaint;

static vt_status complain(void *user) {
  const complaint *c = user;
  const vt_op *op = c->op;
  vt_arena arena = {0};
  vt_text type = {0};
  const vt_value *shown = op->operand_count  ? op->operands[0]
                          : op->result_count ? op->results
                                             : NULL;
  if (shown) vt_type_print(&type, shown->type);
  vt_status st = vt_error(c->code, "%s%s%s: %s of %s", c->before, c->what, c->after,
                          vt_op_describe(op, &arena), vt_text_string(&type));
  vt_text_free(&type);
  vt_arena_free(&arena);
  return st;
}

static vt_status op_error(vt_code code, const vt_op *op, const char *before, const char *what,
                          const char *after) {
  complaint c = {code, op, before, what, after};
  vt_attempt attempt; // kernels hold memory from malloc
  vt_status st = vt_attempt_run(&attempt, complain, &c);
  vt_attempt_end(&attempt);
  return st;
}
vt_status vt_eval_refuse(const vt_op *op, const char *what) {
  return op_error(VT_UNIMPLEMENTED, op, "", what, " is not supported");
}
vt_status vt_eval_invalid(const vt_op *op, const char *what) {
  return op_error(VT_INVALID_ARGUMENT, op, "bad ", what, "");
}

vt_status vt_eval_scratch(int64_t bytes, void *out_memory) {
  void *memory = bytes < 0 || bytes > (int64_t)1 << 46
                     ? NULL
                     : aligned_alloc(64, ((size_t)bytes + 128 + 63) & ~(size_t)63);
  memcpy(out_memory, &memory, sizeof memory);
  if (memory) return VT_OK;
  return vt_error(VT_RESOURCE_EXHAUSTED, "out of host memory: %lld bytes of scratch",
                  (long long)bytes);
}

bool vt_eval_is_identity(const vt_op *op) {
  return kernels[op->code] == vt_eval_identity && op->result_count <= op->operand_count;
}

vt_status vt_eval_op(const vt_op *op, const vt_eval_env *env, const vt_tensor *operands,
                     vt_tensor *results) {
  vt_assert(op->operand_count == 0 || operands);
  vt_eval_kernel kernel = vt_eval_kernel_of(op->code);
  if (!kernel) return vt_eval_refuse(op, "this op");
  vt_eval_state state = {0};
  vt_eval_call call = {op, env, &state, operands, results};
  unsigned saved = flush_on();
  vt_status st = kernel(&call);
  flush_restore(saved);
  vt_eval_state_fini(&state);
  return st;
}

static vt_status run_func(vt_eval_state *state, const vt_func *func, const vt_eval_env *env,
                          const vt_tensor *args, vt_tensor *results) {
  vt_assert_each(i, func->param_count, vt_type_equal(args[i].type, func->params[i]->type));
  vt_status st = VT_OK;
  vt_eval_buffer **in = calloc((size_t)func->param_count + func->return_count + 1, sizeof *in);
  if (!in) return vt_error_no_memory();
  vt_eval_buffer **out = in + func->param_count;
  bool taken = false;
  for (uint32_t i = 0; i < func->param_count; i++)
    VT_TRY_OUT(vt_eval_buffer_borrow(state, args[i].data, vt_type_bytes(args[i].type), &in[i]));
  taken = true;
  VT_TRY_OUT(vt_eval_run(state, env, func, in, out));
  for (uint32_t i = 0; i < func->return_count; i++) {
    size_t bytes = (size_t)vt_type_bytes(results[i].type);
    if (bytes && results[i].data != out[i]->data) memmove(results[i].data, out[i]->data, bytes);
  }
out:
  for (uint32_t i = 0; i < func->param_count && !taken; i++) vt_eval_buffer_release(state, in[i]);
  for (uint32_t i = 0; i < func->return_count; i++) vt_eval_buffer_release(state, out[i]);
  free(in);
  return st;
}

vt_status vt_eval_func(const vt_func *func, const vt_eval_env *env, const vt_tensor *args,
                       vt_tensor *results) {
  vt_eval_state state = {0};
  unsigned saved = flush_on();
  vt_status st = run_func(&state, func, env, args, results);
  flush_restore(saved);
  vt_eval_state_fini(&state);
  return st;
}

vt_status vt_eval_collective(const vt_op *op, int32_t device_count,
                             const vt_tensor *const *operands, vt_tensor *const *results) {
  vt_assert(device_count >= 1);
  vt_eval_state state = {0};
  vt_eval_env env = {0};
  unsigned saved = flush_on();
  vt_status st = vt_eval_collective_run(&state, &env, op, device_count, operands, results);
  flush_restore(saved);
  vt_eval_state_fini(&state);
  return st;
}

vt_status vt_eval_lockstep(const vt_func *func, const vt_eval_env *env, int32_t device_count,
                           const vt_tensor *const *args, vt_tensor *const *results) {
  vt_assert(device_count >= 1);
  vt_eval_state state = {0};
  unsigned saved = flush_on();
  vt_status st = vt_eval_lockstep_run(&state, func, env, device_count, args, results);
  flush_restore(saved);
  vt_eval_state_fini(&state);
  return st;
}

bool vt_eval_meets_devices(const vt_op *op) {
  const vt_attr *kernel = op->code == VT_OP_CUSTOM_CALL ? vt_op_attr(op, VT_ATTR_KERNEL) : NULL;
  return vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE ||
         (kernel && kernel->kernel->meets_devices);
}

static bool func_supported(const vt_func *func, int32_t depth);

static bool op_supported(const vt_op *op, int32_t depth) {
  if (!vt_eval_kernel_of(op->code) || depth > 300) return false;
  for (uint32_t i = 0; i < op->region_count; i++)
    if (!func_supported(op->regions[i], depth + 1)) return false;
  if (vt_op_callee(op)) return func_supported(vt_op_callee(op), depth + 1);
  if (kernels[op->code] == vt_eval_eltwise) {
    vt_dtype in[3] = {VT_DTYPE_INVALID};
    for (uint32_t i = 0; i < op->operand_count && i < 3; i++) in[i] = op->operands[i]->type.dtype;
    return vt_eval_eltwise_supports(op, in, op->results[0].type.dtype);
  }
  if (op->code == VT_OP_CUSTOM_CALL) return vt_eval_custom_call_supports(op);
  return kernels[op->code] != vt_eval_quantized;
}

static bool func_supported(const vt_func *func, int32_t depth) {
  for (const vt_op *op = func->first; op; op = op->next)
    if (!op_supported(op, depth)) return false;
  return true;
}

bool vt_eval_supports(const vt_op *op) {
  return op_supported(op, 0);
}

bool vt_eval_find_loop(const vt_op *op, vt_eval_loop *out) {
  return kernels[op->code] == vt_eval_eltwise && vt_eval_eltwise_loop(op, out);
}

bool vt_eval_in_place_ok(const vt_op *op, uint32_t operand, uint32_t result) {
  if (operand >= vt_op_own_operands(op) || result >= op->result_count) return false;
  vt_type in = op->operands[operand]->type, out = op->results[result].type;
  if (vt_type_bytes(in) != vt_type_bytes(out)) return false;
  if (kernels[op->code] == vt_eval_eltwise) {
    // Same element width, and not a broadcast operand: its only element would be overwritten.
    if (vt_dtype_bytes(in.dtype) != vt_dtype_bytes(out.dtype)) return false;
    return op->code != VT_OP_COMPLEX && vt_type_same_dims(in, out);
  }
  switch ((int)op->code) {
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    return operand == 0;
  case VT_OP_SCATTER:
    return operand == result;
  case VT_OP_BITCAST_CONVERT:
    return vt_dtype_get(in.dtype)->bits >= 8 && vt_dtype_get(out.dtype)->bits >= 8;
  default:
    return vt_eval_is_identity(op) && operand == result;
  }
}
