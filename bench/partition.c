// SPDX-License-Identifier: Apache-2.0
// partition.c - what the program of one device costs, in processor time: next to the import of the
// same program, per operation of small and large programs, and on few and many devices. Prints one
// JSON object. What is compared takes turns; the least of the rounds counts.
//   partition [ROUNDS [FILE]...]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"
#include "import/import.h"
#include "spmd/partition/layers.h"
#include "spmd/spmd.h"

enum { FEW = 4, MANY = 2048, SMALL = 10000, LARGE = 100000, PROGRAM_ROUNDS = 3 };

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

// A program, and the least time that its import and its partitioning took.
typedef struct subject {
  vt_bytes program;
  int64_t ops;
  double import, partition;
} subject;

static int64_t count_ops(const vt_func *func) {
  int64_t count = 0;
  for (const vt_op *op = func->first; op; op = op->next) {
    count++;
    for (uint32_t i = 0; i < op->region_count; i++) count += count_ops(op->regions[i]);
  }
  return count;
}

static void take_turn(subject *s) {
  vt_module *module = NULL;
  double start = processor_s();
  check(vt_import(s->program, &module));
  double imported = processor_s();
  int32_t devices = module->num_partitions * module->num_replicas;
  vt_spmd_inline(module);
  double inlined = processor_s();
  s->ops = count_ops(module->main);
  double counted = processor_s();
  check(vt_spmd_annotate(module, devices));
  check(vt_spmd_partition(module, devices, NULL));
  double import = imported - start, partition = processor_s() - counted + inlined - imported;
  vt_module_destroy(module);
  if (!s->import || import < s->import) s->import = import;
  if (!s->partition || partition < s->partition) s->partition = partition;
}

static subject make_subject(vt_text *text, int64_t ops, int devices) {
  vt_write_layers(text, ops, devices);
  return (subject){.program = {(const uint8_t *)text->data, text->size}};
}

static double per_op(const subject *s) {
  return s->partition / (double)s->ops;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 3, files = argc > 2 ? argc - 2 : 0;
  vt_text texts[3] = {0};
  subject small = make_subject(&texts[0], SMALL, FEW), large = make_subject(&texts[1], LARGE, FEW);
  subject many = make_subject(&texts[2], SMALL, MANY);
  subject *all = calloc((size_t)files + 1, sizeof *all);
  for (int i = 0; i < files; i++) check(vt_file_map(argv[2 + i], &all[i].program));
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < files; i++) take_turn(&all[i]);
    if (r >= PROGRAM_ROUNDS) continue;
    take_turn(&small);
    take_turn(&large);
    take_turn(&many);
  }
  printf("{\"files\": [");
  for (int i = 0; i < files; i++)
    printf("%s\n  {\"file\": \"%s\", \"ops\": %lld, \"import\": %.6f, \"partition\": %.6f}",
           i ? "," : "", argv[2 + i], (long long)all[i].ops, all[i].import, all[i].partition);
  printf("],\n \"per_op\": {\"small\": %.3e, \"large\": %.3e, \"many_devices\": %.3e}}\n",
         per_op(&small), per_op(&large), per_op(&many));
  for (int i = 0; i < files; i++) vt_file_unmap(&all[i].program);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) vt_text_free(&texts[i]);
  free(all);
  return 0;
}
