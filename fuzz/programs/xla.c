// SPDX-License-Identifier: Apache-2.0
// xla.c - see xla.h.
#include "xla.h"

#include <stdlib.h>
#include <string.h>

#include "../../tests/pjrt/plugin_support.h"

struct xla {
  plugin plugin;
  PJRT_Client *client;
  PJRT_Device *device;
};

// What keeps each op to its own meaning: no excess precision between narrow ops, no fused multiply
// and add (that is the instruction set), no algebraic rewriting, nothing folded by another
// evaluator. And what compiles fast.
static const char flags[] =
    "--xla_allow_excess_precision=false --xla_cpu_max_isa=AVX --xla_cpu_enable_fast_math=false "
    "--xla_cpu_enable_fast_min_max=false --xla_disable_hlo_passes=algsimp,constant_folding "
    "--xla_backend_optimization_level=0";

bool xla_find(const char *pattern) {
  return plugin_use(pattern, 0, NULL);
}

xla *xla_open(void) {
  setenv("XLA_FLAGS", flags, 0);
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
  xla *x = calloc(1, sizeof *x);
  if (!x) abort();
  x->plugin = plugin_load(plugin_path());
  x->client = plugin_client(&x->plugin);
  ARGS(Client_AddressableDevices, devices);
  devices.client = x->client;
  plugin_ok(&x->plugin, SLOT_Client_AddressableDevices, &devices);
  x->device = devices.addressable_devices[0];
  return x;
}

// Takes `error`.
static bool failed(const xla *x, PJRT_Error *error, vt_text *out_why) {
  if (!error) return false;
  ARGS(Error_Message, a);
  a.error = error;
  ((void (*)(PJRT_Error_Message_Args *))x->plugin.api->slots[SLOT_Error_Message])(&a);
  vt_text_put_n(out_why, a.message, a.message_size);
  ARGS(Error_Destroy, d);
  d.error = error;
  ((void (*)(PJRT_Error_Destroy_Args *))x->plugin.api->slots[SLOT_Error_Destroy])(&d);
  return true;
}

static PJRT_LoadedExecutable *compile(const xla *x, const char *text, size_t size,
                                      vt_text *out_why) {
  vt_text options = {0};
  plugin_options(1, 1, false, &options);
  PJRT_Program code = {.struct_size = sizeof code,
                       .code = (char *)(uintptr_t)text,
                       .code_size = size,
                       .format = "mlir",
                       .format_size = 4};
  ARGS(Client_Compile, a);
  a.client = x->client;
  a.program = &code;
  a.compile_options = options.data;
  a.compile_options_size = options.size;
  PJRT_Error *error = plugin_call(&x->plugin, SLOT_Client_Compile, &a);
  vt_text_free(&options);
  return failed(x, error, out_why) ? NULL : a.executable;
}

static PJRT_Buffer *to_device(const xla *x, vt_tensor t) {
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = x->client;
  a.data = t.data;
  a.type = (int)t.type.dtype;
  a.dims = t.type.dims;
  a.num_dims = (size_t)t.type.rank;
  a.host_buffer_semantics = PJRT_HOST_IMMUTABLE_DURING_CALL;
  a.device = x->device;
  plugin_ok(&x->plugin, SLOT_Client_BufferFromHostBuffer, &a);
  vt_text why = {0};
  failed(x, plugin_await(&x->plugin, a.done_with_host_buffer), &why);
  vt_text_free(&why);
  return a.buffer;
}

// Types of fewer than 8 bits come back with whatever is in the upper bits of their byte.
static void extend_small(vt_tensor t) {
  const vt_dtype_info *info = vt_dtype_get(t.type.dtype);
  bool is_signed = info->kind == VT_KIND_SIGNED;
  if (info->bits >= 8 || (info->kind != VT_KIND_UNSIGNED && !is_signed)) return;
  unsigned char *data = t.data;
  for (int64_t i = 0; i < vt_type_elements(t.type); i++) {
    unsigned low = data[i] & ((1u << info->bits) - 1), top = 1u << (info->bits - 1);
    data[i] = (unsigned char)(is_signed && low & top ? low - 2 * top : low);
  }
}

bool xla_run(xla *x, const char *text, size_t size, uint32_t arg_count, const vt_tensor *args,
             uint32_t result_count, const vt_tensor *results, vt_text *out_why) {
  PJRT_LoadedExecutable *executable = compile(x, text, size, out_why);
  if (!executable) return false;
  PJRT_Buffer **buffers = calloc(arg_count + result_count + 1, sizeof(PJRT_Buffer *));
  if (!buffers) abort();
  PJRT_Buffer **out = buffers + arg_count;
  for (uint32_t i = 0; i < arg_count; i++) buffers[i] = to_device(x, args[i]);
  PJRT_Buffer *const *arguments[1] = {buffers};
  PJRT_Buffer **const outputs[1] = {out};
  PJRT_Error *error = plugin_execute(&x->plugin, executable, 1, arg_count, arguments, outputs);
  bool ok = !failed(x, error, out_why);
  for (uint32_t i = 0; i < result_count && ok; i++) {
    if (vt_type_bytes(results[i].type))
      plugin_fetch(&x->plugin, out[i], results[i].data, (size_t)vt_type_bytes(results[i].type));
    extend_small(results[i]);
  }
  for (uint32_t i = 0; i < arg_count + result_count; i++)
    if (buffers[i]) plugin_buffer_destroy(&x->plugin, buffers[i]);
  free(buffers);
  plugin_executable_destroy(&x->plugin, executable);
  return ok;
}
