// SPDX-License-Identifier: Apache-2.0
// xla.c - see xla.h.
#include "xla.h"

#include <stdlib.h>
#include <string.h>

#include "../../tests/pjrt/plugin_support.h"

struct xla {
  plugin plugin;
  PJRT_Client *client;
  PJRT_Device *const *devices;
  int device_count;
};

enum { MOST_DEVICES = 64 };

// Flags that keep each op to its own meaning: no excess precision between narrow ops, no fused
// multiply-add (which depends on the instruction set), no algebraic rewriting, no folding by
// another evaluator. And flags for fast compilation.
static const char flags[] =
    "--xla_allow_excess_precision=false --xla_cpu_max_isa=AVX --xla_cpu_enable_fast_math=false "
    "--xla_cpu_enable_fast_min_max=false --xla_disable_hlo_passes=algsimp,constant_folding "
    "--xla_backend_optimization_level=0";

bool xla_find(const char *pattern) {
  static char count[] = "cpu_device_count=16"; // as many as random meshes have
  return plugin_use(pattern, 1, (char *[]){count});
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
  x->devices = devices.addressable_devices;
  x->device_count = (int)devices.num_addressable_devices;
  if (x->device_count > MOST_DEVICES) x->device_count = MOST_DEVICES;
  return x;
}

int xla_devices(const xla *x) {
  return x->device_count;
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

static PJRT_LoadedExecutable *compile(const xla *x, const char *text, size_t size, int devices,
                                      vt_text *out_why) {
  vt_text options = {0};
  plugin_options(1, devices, devices > 1, &options);
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

static PJRT_Buffer *to_device(const xla *x, int device, vt_tensor t) {
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = x->client;
  a.data = t.data;
  a.type = (int)t.type.dtype;
  a.dims = t.type.dims;
  a.num_dims = (size_t)t.type.rank;
  a.host_buffer_semantics = PJRT_HOST_IMMUTABLE_DURING_CALL;
  a.device = x->devices[device];
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

bool xla_run(xla *x, const char *text, size_t size, int devices, uint32_t arg_count,
             const vt_tensor *args, uint32_t result_count, const vt_tensor *results,
             vt_text *out_why) {
  PJRT_LoadedExecutable *executable = compile(x, text, size, devices, out_why);
  if (!executable) return false;
  size_t width = arg_count + result_count + 1;
  PJRT_Buffer **buffers = calloc(width * (size_t)devices, sizeof(PJRT_Buffer *));
  if (!buffers) abort();
  PJRT_Buffer *const *arguments[MOST_DEVICES];
  PJRT_Buffer **outputs[MOST_DEVICES];
  for (int d = 0; d < devices; d++) {
    PJRT_Buffer **row = buffers + width * (size_t)d;
    for (uint32_t i = 0; i < arg_count; i++)
      row[i] = to_device(x, d, args[(uint32_t)d * arg_count + i]);
    arguments[d] = row;
    outputs[d] = row + arg_count;
  }
  PJRT_Error *error = plugin_execute(&x->plugin, executable, (size_t)devices, arg_count, arguments,
                                     (PJRT_Buffer * *const *)outputs);
  bool ok = !failed(x, error, out_why);
  for (int d = 0; d < devices; d++)
    for (uint32_t i = 0; i < result_count && ok; i++) {
      vt_tensor t = results[(uint32_t)d * result_count + i];
      if (vt_type_bytes(t.type))
        plugin_fetch(&x->plugin, outputs[d][i], t.data, (size_t)vt_type_bytes(t.type));
      extend_small(t);
    }
  for (size_t i = 0; i < width * (size_t)devices; i++)
    if (buffers[i]) plugin_buffer_destroy(&x->plugin, buffers[i]);
  free(buffers);
  plugin_executable_destroy(&x->plugin, executable);
  return ok;
}
