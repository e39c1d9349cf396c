// SPDX-License-Identifier: Apache-2.0
// partition.c - what the program of one device costs, and of a file the whole prediction, next to
// the import of the same program, in processor time: the first time in a process, as for a single
// compilation, where part of it is waiting for pages of memory; and again, as in a process that has
// compiled before (the least of several). The first prediction has a process of its own, as that of
// `vtpu predict` has. Prints a JSON object. The program is a file, or made of as many operations,
// for as many devices.
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
  double import, partition, predict;
} cost;

// Import included.
static double measure_prediction(vt_bytes program) {
  vt_slice slice;
  check(vt_slice_from_name("v5litepod-256", &slice));
  double start = processor_s();
  vt_arena arena = {0};
  vt_prediction prediction;
  check(vt_predict(program, &slice, &arena, &prediction));
  vt_prediction_free(&prediction);
  vt_arena_free(&arena);
  return processor_s() - start;
}

static double first_prediction(vt_bytes program) {
  int ends[2], status;
  double seconds;
  if (pipe(ends)) exit(1);
  pid_t child = fork();
  if (!child) {
    seconds = measure_prediction(program);
    _exit(write(ends[1], &seconds, sizeof seconds) != sizeof seconds);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status ||
      read(ends[0], &seconds, sizeof seconds) != sizeof seconds)
    exit(1);
  close(ends[0]);
  close(ends[1]);
  return seconds;
}

static cost measure_once(vt_bytes program, bool predicts) {
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
  if (predicts) c.predict = measure_prediction(program);
  return c;
}

static void print(const char *name, cost c, bool predicts, const char *end) {
  printf("\"%s\": {\"import\": %.6f, \"partition\": %.6f", name, c.import, c.partition);
  if (predicts) printf(", \"predict\": %.6f", c.predict);
  printf("}%s", end);
}

static void measure(vt_bytes program, bool predicts) {
  double prediction = predicts ? first_prediction(program) : 0; // before anything is warm
  cost first = measure_once(program, false), again = measure_once(program, predicts);
  first.predict = prediction;
  for (int i = 1; i < AGAIN; i++) {
    cost c = measure_once(program, predicts);
    if (c.import < again.import) again.import = c.import;
    if (c.partition < again.partition) again.partition = c.partition;
    if (c.predict < again.predict) again.predict = c.predict;
  }
  printf("{\"ops\": %" PRId64 ", ", first.ops);
  print("first", first, predicts, ", ");
  print("again", again, predicts, "}\n");
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
