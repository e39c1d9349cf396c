// SPDX-License-Identifier: Apache-2.0
// dnnl_util.c - see dnnl_util.h.
#include "host/dnnl_util.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "host/cpu.h"

enum { TEAM_PRODUCTS = 4 << 20 }; // 8 us of one thread; waking a sleeping team takes 4 to 6

static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static pthread_key_t stream_key;

static void destroy_stream(void *stream) {
  dnnl_stream_destroy(stream);
}

static void make_engine(void) {
  static const dnnl_cpu_isa_t isas[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                        dnnl_cpu_isa_avx512_core};
  if (vt_host_narrowed()) dnnl_set_max_cpu_isa(isas[vt_host_level() - 2]);
  pthread_key_create(&stream_key, destroy_stream);
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

dnnl_engine_t vt_dnnl_engine(void) {
  pthread_once(&engine_once, make_engine);
  return engine;
}

// One stream per executing thread: streams must not be shared, and making one costs 50 us.
static dnnl_stream_t thread_stream(void) {
  dnnl_stream_t stream = pthread_getspecific(stream_key);
  if (!stream && dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success)
    pthread_setspecific(stream_key, stream);
  return stream;
}

dnnl_data_type_t vt_dnnl_dtype(vt_dtype dtype) {
  switch (dtype) {
  case VT_F32:
    return dnnl_f32;
  case VT_BF16:
    return dnnl_bf16;
  case VT_S32:
    return dnnl_s32;
  case VT_S8:
    return dnnl_s8;
  case VT_U8:
    return dnnl_u8;
  default:
    return dnnl_data_type_undef;
  }
}

static void destroy_primitive(void *object) {
  dnnl_primitive_destroy(object);
}
static void destroy_memory(void *object) {
  dnnl_memory_destroy(object);
}

const dnnl_memory_desc_t *vt_dnnl_arg_desc(const vt_dnnl_call *call, int32_t arg) {
  const dnnl_memory_desc_t *desc = NULL;
  dnnl_memory_get_memory_desc(call->args[arg].memory, &desc);
  return desc;
}

static bool add_memory(vt_program *program, vt_dnnl_call *call, int arg_id,
                       const dnnl_memory_desc_t *desc) {
  dnnl_memory_t memory = NULL;
  if (dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
  if (!vt_program_own(program, destroy_memory, memory)) return false;
  call->args[call->arg_count++] = (dnnl_exec_arg_t){arg_id, memory};
  return true;
}

// Memories for the arguments, and the primitive itself.
static bool finish_call(vt_program *program, const_dnnl_primitive_desc_t pd, int32_t arg_count,
                        const int *arg_ids, const dnnl_memory_desc_t *const *descs,
                        vt_dnnl_call *call) {
  *call = (vt_dnnl_call){0};
  if (dnnl_primitive_create(&call->primitive, pd) != dnnl_success) return false;
  if (!vt_program_own(program, destroy_primitive, call->primitive)) return false;
  for (int32_t i = 0; i < arg_count; i++) {
    const dnnl_memory_desc_t *desc =
        descs ? descs[i] : dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg_ids[i]);
    if (!desc || !add_memory(program, call, arg_ids[i], desc)) return false;
  }
  const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  size_t bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
  if (bytes && !add_memory(program, call, DNNL_ARG_SCRATCHPAD, pad)) return false;
  call->scratchpad_bytes = (int64_t)bytes;
  return true;
}

static bool acceptable(const_dnnl_primitive_desc_t pd, bool reject_gemm) {
  const char *info = NULL;
  if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info) != dnnl_success || !info)
    return false;
  return !strstr(info, "ref") && !(reject_gemm && strstr(info, "gemm"));
}

bool vt_dnnl_make(vt_program *program, const_dnnl_op_desc_t desc, dnnl_primitive_attr_t attr,
                  const_dnnl_primitive_desc_t forward, bool reject_gemm, double products,
                  int32_t arg_count, const int *arg_ids, vt_dnnl_call *out_call) {
  dnnl_primitive_desc_t pd = NULL;
  bool made = false;
  int threads = omp_get_max_threads();
  if (!vt_dnnl_engine()) return false;
  if (!attr && dnnl_primitive_attr_create(&attr) != dnnl_success) return false;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  bool alone = products < TEAM_PRODUCTS;
  if (alone) omp_set_num_threads(1);
  if (dnnl_primitive_desc_create(&pd, desc, attr, engine, forward) == dnnl_success) {
    made =
        acceptable(pd, reject_gemm) && finish_call(program, pd, arg_count, arg_ids, NULL, out_call);
    dnnl_primitive_desc_destroy(pd);
  }
  omp_set_num_threads(threads);
  out_call->alone = alone;
  dnnl_primitive_attr_destroy(attr);
  return made;
}

bool vt_dnnl_make_reorder(vt_program *program, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, vt_dnnl_call *out_call) {
  dnnl_primitive_desc_t pd = NULL;
  dnnl_primitive_attr_t attr = NULL;
  const dnnl_memory_desc_t *descs[] = {from, to};
  static const int ids[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
  if (!vt_dnnl_engine() || dnnl_primitive_attr_create(&attr) != dnnl_success) return false;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  bool made = false;
  if (dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr) == dnnl_success) {
    made = finish_call(program, pd, 2, ids, descs, out_call);
    dnnl_primitive_desc_destroy(pd);
  }
  dnnl_primitive_attr_destroy(attr);
  return made;
}

vt_status vt_dnnl_execute(const vt_dnnl_call *call, void *const *data, void *scratchpad) {
  dnnl_stream_t stream = thread_stream();
  if (!stream) return vt_error_no_memory();
  int32_t count = call->arg_count - (call->scratchpad_bytes > 0);
  for (int32_t i = 0; i < count; i++) dnnl_memory_set_data_handle(call->args[i].memory, data[i]);
  if (call->scratchpad_bytes) dnnl_memory_set_data_handle(call->args[count].memory, scratchpad);
  int threads = omp_get_max_threads();
  if (call->alone) omp_set_num_threads(1);
  dnnl_status_t result =
      dnnl_primitive_execute(call->primitive, stream, call->arg_count, call->args);
  omp_set_num_threads(threads);
  if (result == dnnl_success) result = dnnl_stream_wait(stream);
  if (result != dnnl_success) return vt_error(VT_INTERNAL, "oneDNN reports status %d", (int)result);
  return VT_OK;
}
