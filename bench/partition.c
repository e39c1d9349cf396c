// SPDX-License-Identifier: Apache-2.0
// partition.c - what the program of one device costs next to the import of the same program, in
// processor time: the first time in a process, as for a single compilation, where part of it is
// waiting for pages of memory; and again, as in a process that has compiled before (the least of
// several). Of a file the whole prediction as well, next to the import that it begins with, in a
// process of its own as `vtpu predict` has it. Prints a JSON object. The program is a file, or made
// of as many operations, for as many devices.
//   partition FILE | OPERATIONS DEVICES
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "chip/chip.h"
#include "import/import.h"
#include "runtime/predict.h"
#include "spmd/partition/layers.h"
#include "spmd/spmd.h"

enum { AGAIN = 4 };

static void check(vt_status st) {
  if (!st) return;
  fprintf(stderr, "partition: %s\n", vt_status_message(st));
  exit(1);
}

static double processor_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t count_ops(const vt_func *func) {
  int64_t count = 0;
  for (const vt_op *op = func->first; op; op = op->next) {
    count++;
    for (uint32_t i = 0; i < op->region_count; i++) count += count_ops(op->regions[i]);
  }
  return count;
}

typedef struct cost {
  int64_t ops;
  double import, partition;
} cost;

typedef struct prediction_cost {
  double import, predict; // predict: with the import
} prediction_cost;

// As vt_predict does it.
static prediction_cost measure_prediction(vt_bytes program) {
  vt_slice slice;
  vt_arena arena = {0};
  vt_prediction prediction = {0};
  double start = processor_s();
  check(vt_slice_from_name("v5litepod-256", &slice));
  check(vt_import_outline(program, &prediction.module));
  double imported = processor_s();
  vt_arena_hurry(&prediction.module->arena);
  check(vt_predict_module(&slice, &arena, &prediction));
  vt_prediction_free(&prediction);
  vt_arena_free(&arena);
  return (prediction_cost){imported - start, processor_s() - start};
}

static prediction_cost first_prediction(vt_bytes program) {
  int ends[2], status;
  prediction_cost c;
  if (pipe(ends)) exit(1);
  pid_t child = fork();
  if (!child) {
    c = measure_prediction(program);
    _exit(write(ends[1], &c, sizeof c) != sizeof c);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status ||
      read(ends[0], &c, sizeof c) != sizeof c)
    exit(1);
  close(ends[0]);
  close(ends[1]);
  return c;
}

static cost measure_once(vt_bytes program) {
  vt_module *module = NULL;
  double start = processor_s();
  check(vt_import(program, &module));
  double imported = processor_s();
  int32_t devices = module->num_partitions * module->num_replicas;
  vt_spmd_inline(module, true);
  double inlined = processor_s();
  cost c = {.ops = count_ops(module->main), .import = imported - start};
  double counted = processor_s();
  check(vt_spmd_annotate(module, devices));
  check(vt_spmd_partition(module, devices, NULL));
  c.partition = processor_s() - counted + inlined - imported;
  vt_module_destroy(module);
  return c;
}

static void print(const char *name, cost c) {
  printf(", \"%s\": {\"import\": %.6f, \"partition\": %.6f}", name, c.import, c.partition);
}

static void measure(vt_bytes program, bool predicts) {
  prediction_cost whole = {0};
  if (predicts) whole = first_prediction(program); // before anything is warm
  cost first = measure_once(program), again = measure_once(program);
  for (int i = 1; i < AGAIN; i++) {
    cost c = measure_once(program);
    if (c.import < again.import) again.import = c.import;
    if (c.partition < again.partition) again.partition = c.partition;
  }
  printf("{\"ops\": %" PRId64, first.ops);
  print("first", first);
  print("again", again);
  if (predicts)
    printf(", \"whole\": {\"import\": %.6f, \"predict\": %.6f}", whole.import, whole.predict);
  printf("}\n");
}

int main(int argc, char **argv) {
  vt_text layers = {0};
  vt_bytes program;
  if (argc == 2) {
    check(vt_file_map(argv[1], &program));
    measure(program, true);
    vt_file_unmap(&program);
  } else if (argc == 3) {
    vt_write_layers(&layers, atoll(argv[1]), atoi(argv[2]));
    measure((vt_bytes){(const uint8_t *)layers.data, layers.size}, false);
    vt_text_free(&layers);
  } else {
    fprintf(stderr, "usage: partition FILE | OPERATIONS DEVICES\n");
    return 2;
  }
  return 0;
}
