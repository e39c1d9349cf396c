// SPDX-License-Identifier: Apache-2.0
// exec.c - `vtpu exec` and `vtpu compile`: a program in StableHLO or HLO, run with arrays from
// files, or compiled for its report. Arrays are used in order: each --input adds .npy
// files, or the arrays of a .npz, sorted by the number at the end of their names when all have one
// (in_0, in_1, ... in_10). Outputs are written as out_0, out_1, ...
// Element types that NumPy lacks are stored as raw bytes or integers of the same width.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/npz.h"
#include "cli/cli.h"
#include "import/import.h"
#include "ir/type.h"
#include "mosaic/mosaic.h"
#include "runtime/runtime.h"

enum { MAX_FILES = 256, MAX_ARRAYS = 65536 };

typedef struct arguments {
  const char *program, *slice, *output, *passes;
  const char *inputs[MAX_FILES];
  int input_count;
  bool text, hlo, json, report, partitioned, kernels;
} arguments;

static vt_status read_arguments(const vt_args *args, arguments *out) {
  *out = (arguments){.program = args->words.data[0],
                     .slice = vt_args_text(args, "slice"),
                     .output = vt_args_text(args, "output"),
                     .passes = vt_args_text(args, "passes"),
                     .text = vt_args_on(args, "text"),
                     .hlo = vt_args_on(args, "hlo"),
                     .json = vt_args_on(args, "json"),
                     .report = vt_args_on(args, "report"),
                     .partitioned = vt_args_on(args, "partitioned"),
                     .kernels = vt_args_on(args, "dump-mosaic")};
  for (size_t i = 0; i < args->flags.size; i++) {
    if (strcmp(args->flags.data[i].flag->name, "input") != 0) continue;
    if (out->input_count == MAX_FILES)
      return vt_error(VT_INVALID_ARGUMENT, "more than %d files of inputs", MAX_FILES);
    out->inputs[out->input_count++] = args->flags.data[i].value;
  }
  return VT_OK;
}

static long trailing_number(const char *name) {
  size_t size = strlen(name), at = size;
  while (at && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
  return at == size ? -1 : atol(name + at);
}

static int by_number(const void *a, const void *b) {
  long x = trailing_number(((const vt_npz_array *)a)->name),
       y = trailing_number(((const vt_npz_array *)b)->name);
  return (x > y) - (x < y);
}

static vt_status read_inputs(const arguments *given, vt_arena *arena, vt_npz *out) {
  VT_ARRAY(vt_npz_array) all = {0};
  for (int i = 0; i < given->input_count; i++) {
    vt_npz npz;
    VT_TRY(vt_npz_read(given->inputs[i], arena, &npz));
    bool numbered = npz.count > 1;
    for (uint32_t k = 0; k < npz.count; k++)
      numbered = numbered && trailing_number(npz.arrays[k].name) >= 0;
    if (numbered) qsort(npz.arrays, npz.count, sizeof *npz.arrays, by_number);
    for (uint32_t k = 0; k < npz.count; k++) {
      // A file may contain the expected results too (out_0, ...).
      if (!strncmp(npz.arrays[k].name, "out_", 4)) continue;
      if (all.size == MAX_ARRAYS)
        return vt_error(VT_INVALID_ARGUMENT, "more than %d input arrays", MAX_ARRAYS);
      vt_array_push_in(arena, &all, npz.arrays[k]);
    }
  }
  *out = (vt_npz){all.data, (uint32_t)all.size};
  return VT_OK;
}

static vt_dtype dtype_of(vtpu_tensor tensor) {
  return vt_dtype_from_text(tensor.element_type, strlen(tensor.element_type));
}

static char numpy_kind(vt_dtype dtype) {
  switch (vt_dtype_kind_of(dtype)) {
  case VT_KIND_BOOL:
    return 'b';
  case VT_KIND_SIGNED:
    return 'i';
  case VT_KIND_UNSIGNED:
    return 'u';
  case VT_KIND_COMPLEX:
    return 'c';
  default:
    return dtype == VT_F16 || dtype == VT_F32 || dtype == VT_F64 ? 'f' : 'V';
  }
}

// Uses the array as the program's input `want`: same dimensions and element size, and the same kind
// unless NumPy lacks it.
static vt_status bind(const vt_npz_array *array, vtpu_tensor want, size_t index, vtpu_tensor *out) {
  char kind = numpy_kind(dtype_of(want));
  bool fits = array->rank == want.rank &&
              (size_t)array->item_bytes == vt_dtype_bytes(dtype_of(want)) &&
              (kind == 'V' || array->kind == kind || array->kind == 'V');
  for (int32_t d = 0; d < want.rank && fits; d++) fits = array->dims[d] == want.dims[d];
  if (!fits) {
    vt_text text = {0};
    for (int32_t d = 0; d < array->rank; d++)
      vt_text_printf(&text, "%lldx", (long long)array->dims[d]);
    vt_text_printf(&text, "%c%d, the program takes ", array->kind, array->item_bytes);
    for (int32_t d = 0; d < want.rank; d++) vt_text_printf(&text, "%lldx", (long long)want.dims[d]);
    vt_status st = vt_error(VT_INVALID_ARGUMENT, "input %zu (%s) is %s%s", index, array->name,
                            vt_text_string(&text), want.element_type);
    vt_text_free(&text);
    return st;
  }
  *out = want;
  out->data = array->data;
  return VT_OK;
}

// Output `index` of the program with its own memory, and the same memory as an array to write.
static vt_status make_output(const vtpu_program *program, size_t index, vt_arena *arena,
                             vtpu_tensor *output, vt_npz_array *array) {
  *output = vtpu_program_output(program, index);
  output->data = vt_arena_try_push(arena, vtpu_tensor_bytes(*output) + 128, 64);
  if (!output->data)
    return vt_error(VT_RESOURCE_EXHAUSTED, "out of host memory: %zu bytes for output %zu",
                    vtpu_tensor_bytes(*output), index);
  vt_dtype dtype = dtype_of(*output);
  *array = (vt_npz_array){.name = vt_arena_printf(arena, "out_%zu", index),
                          .kind = numpy_kind(dtype),
                          .item_bytes = (int32_t)vt_dtype_bytes(dtype),
                          .rank = output->rank,
                          .data = output->data};
  for (int32_t d = 0; d < output->rank; d++) array->dims[d] = output->dims[d];
  return VT_OK;
}

static void print_shape(size_t index, vtpu_tensor tensor) {
  printf("out_%zu: tensor<", index);
  for (int32_t d = 0; d < tensor.rank; d++) printf("%lldx", (long long)tensor.dims[d]);
  printf("%s>\n", tensor.element_type);
}

static vt_status run(vtpu_program *program, const arguments *given, vt_arena *arena) {
  size_t input_count = vtpu_program_input_count(program),
         output_count = vtpu_program_output_count(program);
  vt_npz npz;
  VT_TRY(read_inputs(given, arena, &npz));
  if (npz.count != input_count)
    return vt_error(VT_INVALID_ARGUMENT, "%u input arrays given, the program takes %zu", npz.count,
                    input_count);
  vtpu_tensor *inputs = VT_NEW_ARRAY(arena, vtpu_tensor, input_count);
  vtpu_tensor *outputs = VT_NEW_ARRAY(arena, vtpu_tensor, output_count);
  vt_npz_array *results = VT_NEW_ARRAY(arena, vt_npz_array, output_count);
  for (size_t i = 0; i < input_count; i++)
    VT_TRY(bind(&npz.arrays[i], vtpu_program_input(program, i), i, &inputs[i]));
  for (size_t i = 0; i < output_count; i++)
    VT_TRY(make_output(program, i, arena, &outputs[i], &results[i]));
  VT_TRY(vtpu_run(program, inputs, input_count, outputs, output_count));
  if (given->output) return vt_npz_write(given->output, results, (uint32_t)output_count);
  for (size_t i = 0; i < output_count; i++) print_shape(i, outputs[i]);
  return VT_OK;
}

static vt_status print_report(const vtpu_program *program, const vtpu_slice *slice, bool json) {
  vtpu_report report = {.struct_size = sizeof report};
  vtpu_slice_info info = {.struct_size = sizeof info};
  VT_TRY(vtpu_program_report(program, &report));
  VT_TRY(vtpu_slice_describe(slice, &info));
  if (json) {
    printf("{\"accelerator_type\": \"%s\", \"devices\": %d, \"flops\": %.17g, \"bytes\": %.17g, "
           "\"seconds\": %.9g, "
           "\"usd\": %.9g, \"argument_bytes\": %lld, \"output_bytes\": %lld, \"temp_bytes\": %lld, "
           "\"peak_bytes\": %lld}\n",
           info.accelerator_type, report.devices, report.flops, report.bytes, report.seconds,
           report.usd, (long long)report.argument_bytes, (long long)report.output_bytes,
           (long long)report.temp_bytes, (long long)report.peak_bytes);
    return VT_OK;
  }
  printf("slice             %s, %d of %d devices\n", info.accelerator_type, report.devices,
         info.devices);
  printf("work              %s, %s of HBM traffic\n", vt_cli_count(report.flops, "FLOP"),
         vt_cli_bytes(report.bytes));
  bool simulated = info.peak_bf16_flops_per_s <= 0; // v1: its cycles are simulated, not bounded
  printf("time on the slice %s %s\n", vt_cli_seconds(report.seconds),
         simulated ? "(simulated cycles)" : "or more (roofline of published peaks)");
  if (report.usd > 0) printf("cost              %.3g USD a run, on demand\n", report.usd);
  printf("HBM per device    about %s of %s: %s arguments, %s results, %s temporaries\n",
         vt_cli_bytes((double)report.peak_bytes), vt_cli_bytes((double)info.hbm_bytes_per_device),
         vt_cli_bytes((double)report.argument_bytes), vt_cli_bytes((double)report.output_bytes),
         vt_cli_bytes((double)report.temp_bytes));
  return VT_OK;
}

static vt_status print_partitioned(const arguments *given) {
  vt_bytes bytes;
  vt_text text = {0};
  vt_slice described;
  VT_TRY(vt_cli_slice(given->slice, &described));
  VT_TRY(vt_file_map(given->program, &bytes));
  vt_status st = vt_partitioned_text(bytes, &described, given->json, given->passes, &text);
  if (!st) fputs(vt_text_string(&text), stdout);
  vt_text_free(&text);
  vt_file_unmap(&bytes);
  return vt_status_wrap(st, "%s", given->program);
}

static vt_status print_kernels(const char *program) {
  vt_bytes bytes;
  vt_text text = {0};
  vt_module *module = NULL;
  VT_TRY(vt_file_map(program, &bytes));
  vt_status st = vt_import(bytes, &module);
  if (!st) st = vt_mosaic_dump(module, &text);
  if (!st) fputs(vt_text_string(&text), stdout);
  vt_module_destroy(module);
  vt_text_free(&text);
  vt_file_unmap(&bytes);
  return vt_status_wrap(st, "%s", program);
}

static int with_program(const vt_args *args, bool exec) {
  arguments given;
  vtpu_slice *slice = NULL;
  vtpu_program *program = NULL;
  vt_arena arena = {0};
  vt_status st = VT_OK;
  VT_TRY_OUT(read_arguments(args, &given));
  if (given.passes && !given.partitioned) {
    st = vt_error(VT_INVALID_ARGUMENT, "--passes is for the program of one device: add "
                                       "--partitioned");
    goto out;
  }
  if (given.kernels) {
    st = print_kernels(given.program);
    goto out;
  }
  VT_TRY_OUT(vtpu_open(given.slice, &slice));
  if (given.partitioned) {
    st = print_partitioned(&given);
    goto out;
  }
  VT_TRY_OUT(vtpu_load_file(slice, given.program, &program));
  if (exec) VT_TRY_OUT(run(program, &given, &arena));
  if (given.text) fputs(vtpu_program_text(program), stdout);
  const char *hlo = "";
  if (given.hlo) VT_TRY_OUT(vtpu_program_hlo(program, &hlo));
  fputs(hlo, stdout);
  if (given.report || (!exec && !given.text && !given.hlo))
    VT_TRY_OUT(print_report(program, slice, given.json));
out:
  vtpu_unload(program);
  vtpu_close(slice);
  vt_arena_free(&arena);
  return st ? vt_cli_fail(args->command->name, st) : 0;
}

int vt_cli_exec(const vt_args *args) {
  return with_program(args, true);
}
int vt_cli_compile(const vt_args *args) {
  return with_program(args, false);
}
