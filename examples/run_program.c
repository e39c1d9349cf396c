/* SPDX-License-Identifier: Apache-2.0
 *
 * run_program.c - a StableHLO program from C, without Python: load it for a slice, run it on inputs
 * filled with ones, print the first elements of the results and what the real slice would need.
 *
 *   cc run_program.c -I include -L build/release/lib -lvtpu -o run_program
 *   ./run_program program.mlirbc v3-8
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vtpu/vtpu.h"

static void check(vtpu_error *error, const char *doing) {
  if (!error) return;
  fprintf(stderr, "%s: %s\n", doing, vtpu_error_message(error));
  exit(1);
}

static void fill_with_ones(vtpu_tensor tensor) {
  size_t bytes = vtpu_tensor_bytes(tensor);
  if (!strcmp(tensor.element_type, "f32"))
    for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)tensor.data)[i] = 1.0f;
  else
    memset(tensor.data, 0, bytes);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: run_program PROGRAM.mlirbc [SLICE]\n");
    return 2;
  }
  vtpu_slice *slice;
  vtpu_program *program;
  check(vtpu_open(argc > 2 ? argv[2] : NULL, &slice), "opening the slice");
  check(vtpu_load_file(slice, argv[1], &program), "loading the program");

  size_t input_count = vtpu_program_input_count(program),
         output_count = vtpu_program_output_count(program);
  vtpu_tensor *inputs = calloc(input_count + 1, sizeof *inputs),
              *outputs = calloc(output_count + 1, sizeof *outputs);
  for (size_t i = 0; i < input_count; i++) {
    inputs[i] = vtpu_program_input(program, i);
    inputs[i].data = malloc(vtpu_tensor_bytes(inputs[i]) + 1);
    fill_with_ones(inputs[i]);
  }
  for (size_t i = 0; i < output_count; i++) {
    outputs[i] = vtpu_program_output(program, i);
    outputs[i].data = malloc(vtpu_tensor_bytes(outputs[i]) + 1);
  }
  check(vtpu_run(program, inputs, input_count, outputs, output_count), "running");
  for (size_t i = 0; i < output_count; i++) {
    printf("result %zu, %zu bytes of %s", i, vtpu_tensor_bytes(outputs[i]),
           outputs[i].element_type);
    if (!strcmp(outputs[i].element_type, "f32") && vtpu_tensor_bytes(outputs[i]))
      printf(", first element %g", *(float *)outputs[i].data);
    printf("\n");
  }

  vtpu_report report = {.struct_size = sizeof report};
  check(vtpu_program_report(program, &report), "reading the report");
  printf("%d devices: %.3g FLOP, at least %.3g s and %.3g USD on the real slice, %lld bytes of HBM "
         "each\n",
         report.devices, report.flops, report.seconds, report.usd, (long long)report.peak_bytes);

  for (size_t i = 0; i < input_count; i++) free(inputs[i].data);
  for (size_t i = 0; i < output_count; i++) free(outputs[i].data);
  free(inputs);
  free(outputs);
  vtpu_unload(program);
  vtpu_close(slice);
  return 0;
}
