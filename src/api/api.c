// SPDX-License-Identifier: Apache-2.0
// api.c - the functions of include/vtpu/vtpu.h over src/runtime.
// A program takes whole arrays; each device gets its part according to the program's shardings, and
// the parts of the results are put together again.
#include "vtpu/vtpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/v1.h"
#include "base/fork.h"
#include "runtime/runtime.h"

struct vtpu_slice {
  vt_slice slice;
  vt_client *client; // NULL: a TPU v1
};

struct vtpu_program {
  vtpu_slice *slice;
  vt_executable *executable; // NULL: `v1` instead
  vt_v1 *v1;
  pthread_mutex_t lock;
  vt_text text, hlo;
};

const char *vtpu_version(void) {
  return VTPU_VERSION;
}
const char *vtpu_error_message(const vtpu_error *error) {
  return vt_status_message((vt_status)(uintptr_t)error);
}
int vtpu_error_code(const vtpu_error *error) {
  return (int)vt_status_code((vt_status)(uintptr_t)error);
}
void vtpu_error_free(vtpu_error *error) {
  vt_status_free(error);
}

vtpu_error *vtpu_open(const char *accelerator_type, vtpu_slice **out_slice) {
  *out_slice = NULL;
  vtpu_slice *slice = calloc(1, sizeof *slice);
  if (!slice) return vt_error_no_memory();
  if (vt_v1_asked(accelerator_type)) {
    *out_slice = slice;
    return VT_OK;
  }
  vt_status st = accelerator_type ? vt_slice_from_name(accelerator_type, &slice->slice)
                                  : vt_slice_from_environment(&slice->slice);
  if (!st) st = vt_client_create(&slice->slice, &slice->client);
  if (st) {
    free(slice);
    return st;
  }
  *out_slice = slice;
  return VT_OK;
}

void vtpu_close(vtpu_slice *slice) {
  if (!slice) return;
  if (slice->client) vt_client_destroy(slice->client);
  free(slice);
}

// Fills a caller's struct of an older or newer version: copies the bytes that both know.
static vt_status fill(void *out, size_t out_size, const void *whole, size_t whole_size) {
  if (out_size < sizeof(size_t)) return vt_error(VT_INVALID_ARGUMENT, "struct_size is not set");
  size_t size = out_size < whole_size ? out_size : whole_size;
  memcpy((char *)out + sizeof(size_t), (const char *)whole + sizeof(size_t), size - sizeof(size_t));
  return VT_OK;
}

vtpu_error *vtpu_slice_describe(const vtpu_slice *slice, vtpu_slice_info *out_info) {
  const vt_slice *s = &slice->slice;
  if (!slice->client) {
    vtpu_slice_info v1 = vt_v1_describe();
    return fill(out_info, out_info->struct_size, &v1, sizeof v1);
  }
  vtpu_slice_info info = {
      .accelerator_type = s->name,
      .device_kind = s->chip->kind,
      .devices = vt_slice_devices(s),
      .chips = s->chips * s->slices,
      .hosts = s->vms * s->slices,
      .topology = {s->dims[0], s->dims[1], s->dims[2]},
      .hbm_bytes_per_device = s->chip->hbm_limit_bytes,
      .peak_bf16_flops_per_s = s->chip->bf16_flops_per_s * s->chips * s->slices,
      .usd_per_hour = vt_slice_usd_per_hour(s),
      .slices = s->slices,
  };
  return fill(out_info, out_info->struct_size, &info, sizeof info);
}

// A caller passes and gets one array per input and output; values that differ per device cannot be
// passed here.
static vt_status check_whole(const char *what, uint32_t count, const vt_io *ios) {
  for (uint32_t i = 0; i < count; i++)
    if (ios[i].unreduced)
      return vt_error(VT_UNIMPLEMENTED, "%s %u is unreduced; reduce it inside of the program", what,
                      i);
  return VT_OK;
}

static vt_status load_executable(vtpu_slice *slice, vt_bytes bytes, vt_executable **out) {
  vt_executable_options options = {0}; // partitions: as the program says
  VT_TRY(vt_executable_compile(&slice->slice, bytes, &options, out));
  const vt_executable_info *info = vt_executable_get(*out);
  vt_status st = check_whole("input", info->param_count, info->params);
  if (!st) st = check_whole("output", info->result_count, info->results);
  if (st) vt_executable_release(*out);
  return st;
}

vtpu_error *vtpu_load(vtpu_slice *slice, const void *bytes, size_t size,
                      vtpu_program **out_program) {
  *out_program = NULL;
  vtpu_program *program = calloc(1, sizeof *program);
  if (!program) return vt_error_no_memory();
  vt_bytes given = {bytes, size};
  vt_status st = slice->client ? load_executable(slice, given, &program->executable)
                               : vt_v1_load(given, &program->v1);
  if (st) {
    free(program);
    return st;
  }
  program->slice = slice;
  pthread_mutex_init(&program->lock, NULL);
  *out_program = program;
  return VT_OK;
}

vtpu_error *vtpu_load_file(vtpu_slice *slice, const char *path, vtpu_program **out_program) {
  vt_bytes bytes;
  *out_program = NULL;
  VT_TRY(vt_file_map(path, &bytes));
  vt_status st = vtpu_load(slice, bytes.data, bytes.size, out_program);
  vt_file_unmap(&bytes);
  return vt_status_wrap(st, "%s", path);
}

void vtpu_unload(vtpu_program *program) {
  if (!program) return;
  if (program->executable) vt_executable_release(program->executable);
  vt_v1_unload(program->v1);
  vt_text_free(&program->text);
  vt_text_free(&program->hlo);
  pthread_mutex_destroy(&program->lock);
  free(program);
}

static const vt_executable_info *info_of(const vtpu_program *program) {
  return vt_executable_get(program->executable);
}

static vtpu_tensor tensor_of(vt_type type) {
  return (vtpu_tensor){vt_dtype_get(type.dtype)->text, type.rank, type.dims, NULL};
}

size_t vtpu_program_input_count(const vtpu_program *program) {
  return program->v1 ? vt_v1_main(program->v1)->param_count : info_of(program)->param_count;
}
size_t vtpu_program_output_count(const vtpu_program *program) {
  return program->v1 ? vt_v1_main(program->v1)->return_count : info_of(program)->result_count;
}
vtpu_tensor vtpu_program_input(const vtpu_program *program, size_t index) {
  return tensor_of(program->v1 ? vt_v1_main(program->v1)->params[index]->type
                               : info_of(program)->params[index].type);
}
vtpu_tensor vtpu_program_output(const vtpu_program *program, size_t index) {
  return tensor_of(program->v1 ? vt_v1_main(program->v1)->returns[index]->type
                               : info_of(program)->results[index].type);
}

static vt_type type_of(vtpu_tensor tensor) {
  return (vt_type){vt_dtype_from_text(tensor.element_type, strlen(tensor.element_type)),
                   tensor.rank, tensor.dims};
}

size_t vtpu_tensor_bytes(vtpu_tensor tensor) {
  return (size_t)vt_type_bytes(type_of(tensor));
}

typedef vtpu_tensor tensor_getter(const vtpu_program *program, size_t index);

static vt_status check_tensors(const char *what, const vtpu_program *program, tensor_getter *get,
                               size_t wanted, const vtpu_tensor *given, size_t count) {
  if (count != wanted)
    return vt_error(VT_INVALID_ARGUMENT, "%zu %ss given, the program has %zu", count, what, wanted);
  for (size_t i = 0; i < count; i++) {
    vt_type type = type_of(get(program, i));
    if (vt_type_equal(type_of(given[i]), type)) {
      if (given[i].data || !vt_type_bytes(type)) continue;
      return vt_error(VT_INVALID_ARGUMENT, "%s %zu has no data", what, i);
    }
    vt_text text = {0};
    vt_type_print(&text, type_of(given[i]));
    vt_text_put(&text, ", the program takes ");
    vt_type_print(&text, type);
    vt_status st = vt_error(VT_INVALID_ARGUMENT, "%s %zu is %s", what, i, vt_text_string(&text));
    vt_text_free(&text);
    return st;
  }
  return VT_OK;
}

// The first byte of device `position`'s part of a whole array with the given strides.
static char *part_of(const vt_io *io, int32_t position, void *data, const int64_t *strides) {
  char *at = data;
  for (int32_t d = 0; !io->replicated && d < io->type.rank; d++)
    at += io->offsets[(int64_t)position * io->type.rank + d] * strides[d];
  return at;
}

static void byte_strides(vt_type type, int64_t *strides) {
  vt_type_strides(type, strides);
  for (int32_t d = 0; d < type.rank; d++) strides[d] *= (int64_t)vt_dtype_bytes(type.dtype);
}

// Device buffers of one run: [device][parameter] and [device][result].
typedef struct run_state {
  vt_buffer **arguments, **results;
  vt_buffer *const **argument_rows;
  vt_buffer ***result_rows;
} run_state;

static vt_status put_inputs(vtpu_program *program, const vtpu_tensor *inputs, run_state *run) {
  const vt_executable_info *info = info_of(program);
  for (int32_t p = 0; p < info->partitions; p++) {
    vt_device *device = vt_client_device(program->slice->client, info->device_ids[p]);
    for (uint32_t i = 0; i < info->param_count; i++) {
      const vt_io *io = &info->params[i];
      int64_t strides[VT_MAX_RANK];
      byte_strides(io->type, strides);
      VT_TRY(vt_buffer_from_host(&device->memories[io->memory], io->shard,
                                 part_of(io, p, inputs[i].data, strides), strides, NULL,
                                 &run->arguments[(uint32_t)p * info->param_count + i]));
    }
  }
  return VT_OK;
}

static vt_status fetch_outputs(vtpu_program *program, vtpu_tensor *outputs, const run_state *run) {
  const vt_executable_info *info = info_of(program);
  for (uint32_t i = 0; i < info->result_count; i++) {
    const vt_io *io = &info->results[i];
    if (io->type.dtype == VT_TOKEN) continue;
    int64_t strides[VT_MAX_RANK];
    byte_strides(io->type, strides);
    for (int32_t p = 0; p < (io->replicated ? 1 : info->partitions); p++) {
      if (io->partial_of && io->partial_of[p]) continue; // the first of what devices differ in
      vt_event *event = NULL;
      VT_TRY(vt_buffer_to_host(run->results[(uint32_t)p * info->result_count + i],
                               part_of(io, p, outputs[i].data, strides), strides, &event));
      vt_status st = vt_event_await(event);
      vt_event_release(event);
      VT_TRY(st);
    }
  }
  return VT_OK;
}

vtpu_error *vtpu_run(vtpu_program *program, const vtpu_tensor *inputs, size_t input_count,
                     vtpu_tensor *outputs, size_t output_count) {
  VT_TRY(check_tensors("input", program, vtpu_program_input, vtpu_program_input_count(program),
                       inputs, input_count));
  VT_TRY(check_tensors("output", program, vtpu_program_output, vtpu_program_output_count(program),
                       outputs, output_count));
  if (program->v1) {
    vt_lock(&program->lock);
    vt_status ran = vt_v1_run(program->v1, inputs, outputs);
    vt_unlock(&program->lock);
    return ran;
  }
  const vt_executable_info *info = info_of(program);
  vt_arena scratch = {0};
  vt_event *done = NULL;
  vt_status st = VT_OK;
  uint32_t devices = (uint32_t)info->partitions;
  run_state run = {
      .arguments = VT_NEW_ARRAY(&scratch, vt_buffer *, devices * info->param_count),
      .results = VT_NEW_ARRAY(&scratch, vt_buffer *, devices * info->result_count),
      .argument_rows = VT_NEW_ARRAY(&scratch, vt_buffer *const *, devices),
      .result_rows = VT_NEW_ARRAY(&scratch, vt_buffer **, devices),
  };
  for (uint32_t p = 0; p < devices; p++) {
    run.argument_rows[p] = run.arguments + p * info->param_count;
    run.result_rows[p] = run.results + p * info->result_count;
  }
  vt_lock(&program->lock);
  VT_TRY_OUT(put_inputs(program, inputs, &run));
  vt_execution execution = {.arguments = run.argument_rows,
                            .results = run.result_rows,
                            .argument_count = info->param_count};
  VT_TRY_OUT(vt_executable_execute(program->slice->client, program->executable, &execution, &done));
  VT_TRY_OUT(fetch_outputs(program, outputs, &run));
  st = vt_event_await(done);
out:
  vt_unlock(&program->lock);
  vt_event_release(done);
  for (uint32_t i = 0; i < devices * info->param_count; i++) vt_buffer_destroy(run.arguments[i]);
  for (uint32_t i = 0; i < devices * info->result_count; i++) vt_buffer_destroy(run.results[i]);
  vt_arena_free(&scratch);
  return st;
}

vtpu_error *vtpu_program_report(const vtpu_program *program, vtpu_report *out_report) {
  if (program->v1) {
    vtpu_report v1 = vt_v1_report(program->v1);
    return fill(out_report, out_report->struct_size, &v1, sizeof v1);
  }
  const vt_executable_info *info = info_of(program);
  const vt_hbm_use *use = NULL;
  VT_TRY(vt_executable_memory(program->executable, &use));
  vtpu_report report = {
      .devices = info->partitions,
      .flops = info->roofline.flops,
      .bytes = info->roofline.bytes,
      .seconds = info->roofline.seconds,
      .usd = info->roofline.usd,
      .argument_bytes = info->argument_bytes,
      .output_bytes = info->output_bytes,
      .temp_bytes = use->temp_bytes,
      .peak_bytes = use->peak_bytes,
  };
  return fill(out_report, out_report->struct_size, &report, sizeof report);
}

const char *vtpu_program_text(vtpu_program *program) {
  vt_lock(&program->lock);
  if (!program->text.size && program->v1)
    vt_v1_print(program->v1, &program->text);
  else if (!program->text.size)
    vt_module_print(vt_executable_module(program->executable), false, &program->text);
  vt_unlock(&program->lock);
  return vt_text_string(&program->text);
}

vtpu_error *vtpu_program_hlo(vtpu_program *program, const char **out_text) {
  if (program->v1) return vt_error(VT_UNIMPLEMENTED, "a TPU v1 program has no HLO");
  vt_lock(&program->lock);
  vt_status st = VT_OK;
  if (!program->hlo.size) st = vt_executable_hlo(program->executable, false, &program->hlo);
  vt_unlock(&program->lock);
  *out_text = vt_text_string(&program->hlo);
  return st;
}
