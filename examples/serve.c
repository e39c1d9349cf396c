/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.c - serves a function that jax.export made, from C, without Python: each request on
 * standard input is the bytes of the function's arguments, one after the other; its answer on
 * standard output is those of the results. With socat or inetd before it, a server on a socket.
 *
 *   exported = jax.export.export(jax.jit(model), platforms=["tpu"])(images)
 *   pathlib.Path("model.mlirbc").write_bytes(exported.mlir_module_serialized)
 *
 *   cc serve.c -I include -L build/release/lib -lvtpu -o serve
 *   ./serve model.mlirbc v5litepod-1 < requests > answers
 */
#include <stdio.h>
#include <stdlib.h>

#include "vtpu/vtpu.h"

typedef struct tensors {
  size_t count;
  vtpu_tensor *all;
} tensors;

static _Noreturn void fail(const char *doing, const char *why) {
  fprintf(stderr, "serve: %s: %s\n", doing, why);
  exit(1);
}

static void check(vtpu_error *error, const char *doing) {
  if (error) fail(doing, vtpu_error_message(error));
}

/* The program's arguments or results, with memory. */
static tensors make(const vtpu_program *program, size_t count,
                    vtpu_tensor (*type)(const vtpu_program *, size_t)) {
  tensors made = {count, calloc(count + 1, sizeof *made.all)};
  if (!made.all) fail("memory", "there is too little");
  for (size_t i = 0; i < count; i++) {
    made.all[i] = type(program, i);
    made.all[i].data = malloc(vtpu_tensor_bytes(made.all[i]) + 1);
    if (!made.all[i].data) fail("memory", "there is too little");
  }
  return made;
}

static void drop(tensors made) {
  for (size_t i = 0; i < made.count; i++) free(made.all[i].data);
  free(made.all);
}

/* Whether there was a request. One that ends early is an error. */
static int read_request(tensors arguments) {
  for (size_t i = 0; i < arguments.count; i++) {
    size_t bytes = vtpu_tensor_bytes(arguments.all[i]);
    size_t got = fread(arguments.all[i].data, 1, bytes, stdin);
    if (ferror(stdin)) fail("reading a request", "standard input cannot be read");
    if (got == bytes) continue;
    if (i || got) fail("reading a request", "it ends before its last argument does");
    return 0;
  }
  return 1;
}

static void write_answer(tensors results) {
  for (size_t i = 0; i < results.count; i++) {
    size_t bytes = vtpu_tensor_bytes(results.all[i]);
    if (fwrite(results.all[i].data, 1, bytes, stdout) != bytes)
      fail("writing an answer", "standard output cannot be written");
  }
  if (fflush(stdout) != 0) fail("writing an answer", "standard output cannot be written");
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: serve PROGRAM.mlirbc [SLICE] < requests > answers\n");
    return 2;
  }
  vtpu_slice *slice;
  vtpu_program *program;
  check(vtpu_open(argc > 2 ? argv[2] : NULL, &slice), "opening the slice");
  check(vtpu_load_file(slice, argv[1], &program), "loading the program");
  if (vtpu_program_input_count(program) == 0) fail(argv[1], "it takes no arguments to serve");
  tensors arguments = make(program, vtpu_program_input_count(program), vtpu_program_input);
  tensors results = make(program, vtpu_program_output_count(program), vtpu_program_output);
  while (read_request(arguments)) {
    check(vtpu_run(program, arguments.all, arguments.count, results.all, results.count), "running");
    write_answer(results);
  }
  drop(arguments);
  drop(results);
  vtpu_unload(program);
  vtpu_close(slice);
  return 0;
}
