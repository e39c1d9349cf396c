// SPDX-License-Identifier: Apache-2.0
// cli.c - the command line of TPU v1: assembler, simulator, counters, pipeline view, benchmark.
// In: argv. Out: files, text, an exit code. Owns nothing.
#include "tpu1/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tpu1/bench.h"
#include "tpu1/compile_cli.h"
#include "tpu1/exec.h"

typedef struct command {
  const char *name, *usage, *summary;
  int (*run)(int argc, char **argv);
} command;

// What a subcommand gets from its options; unused members stay zero.
typedef struct options {
  vt_tpu1_chip chip;
  const char *file, *output, *input, *weights, *html, *mode;
  int64_t output_bytes, from, to, width, batch;
} options;

static vt_status parse_number(const char *name, const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 0);
  if (*end || end == text || errno || *out < 0)
    return vt_error(VT_INVALID_ARGUMENT, "%s: '%s' is not a number", name, text);
  return VT_OK;
}

static vt_status parse_param(vt_tpu1_chip *chip, char *text) {
  char *equals = strchr(text, '=');
  if (!equals) return vt_error(VT_INVALID_ARGUMENT, "--param wants NAME=FACTOR, not '%s'", text);
  char *end, name[32];
  snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
  double factor = strtod(equals + 1, &end);
  if (*end || end == equals + 1)
    return vt_error(VT_INVALID_ARGUMENT, "--param %s: '%s' is not a number", name, equals + 1);
  return vt_tpu1_chip_scale(chip, name, factor);
}

static vt_status parse(int argc, char **argv, options *o) {
  const struct {
    const char *name;
    const char **text;
    int64_t *number;
  } rows[] = {{"-o", &o->output, NULL},
              {"--output", &o->output, NULL},
              {"--input", &o->input, NULL},
              {"--weights", &o->weights, NULL},
              {"--html", &o->html, NULL},
              {"--mode", &o->mode, NULL},
              {"--output-bytes", NULL, &o->output_bytes},
              {"--from", NULL, &o->from},
              {"--to", NULL, &o->to},
              {"--width", NULL, &o->width},
              {"--batch", NULL, &o->batch}};
  *o = (options){.chip = vt_tpu1_chip_default(), .mode = "functional", .width = 100};
  for (int i = 1; i < argc; i++) {
    bool found = false, param = strcmp(argv[i], "--param") == 0;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
      if (strcmp(argv[i], rows[k].name)) continue;
      found = true;
      if (i + 1 == argc) return vt_error(VT_INVALID_ARGUMENT, "%s wants a value", argv[i]);
      if (rows[k].text)
        *rows[k].text = argv[++i];
      else
        VT_TRY(parse_number(rows[k].name, argv[i + 1], rows[k].number));
      i += rows[k].number != NULL;
      break;
    }
    if (found) continue;
    if (param && i + 1 < argc) {
      VT_TRY(parse_param(&o->chip, argv[++i]));
      continue;
    }
    if (argv[i][0] == '-' && argv[i][1])
      return vt_error(VT_INVALID_ARGUMENT, "unknown option '%s'", argv[i]);
    if (o->file) return vt_error(VT_INVALID_ARGUMENT, "one file at a time, not '%s' too", argv[i]);
    o->file = argv[i];
  }
  return VT_OK;
}

static int report(const char *what, vt_status st) {
  if (st) fprintf(stderr, "vtpu v1 %s: %s\n", what, vt_status_message(st));
  int rc = st ? 1 : 0;
  vt_status_free(st);
  return rc;
}

static vt_status need_file(const options *o) {
  return o->file ? VT_OK : vt_error(VT_INVALID_ARGUMENT, "which file?");
}

// Machine code (12-byte instructions, opcodes below 0x10) or assembler text, told apart by the
// first byte.
static vt_status load_code(const char *path, vt_tpu1_code *code) {
  vt_bytes file = {0};
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_file_map(path, &file));
  bool binary = file.size && file.data[0] < 0x10 && file.data[0] != '\n' && file.data[0] != '\t';
  if (file.size % VT_TPU1_INSN_BYTES == 0 && file.size && file.data[0] < 0x10) binary = true;
  VT_TRY_OUT(binary ? vt_tpu1_code_decode(file, code) : vt_tpu1_assemble(file, code));
out:
  vt_file_unmap(&file);
  return vt_status_wrap(st, "%s", path);
}

static vt_status put_output(const options *o, const vt_text *text) {
  if (o->output) return vt_file_write(o->output, text->data ? text->data : "", text->size);
  fwrite(text->data, 1, text->size, stdout);
  return VT_OK;
}

static vt_status do_asm(const options *o) {
  vt_tpu1_code code = {0};
  vt_text bytes = {0};
  vt_status st = VT_OK;
  VT_TRY_OUT(need_file(o));
  VT_TRY_OUT(load_code(o->file, &code));
  VT_TRY_OUT(vt_tpu1_code_encode(&code, &bytes));
  VT_TRY_OUT(put_output(o, &bytes));
out:
  vt_text_free(&bytes);
  vt_array_free(&code);
  return st;
}

static vt_status do_disasm(const options *o) {
  vt_tpu1_code code = {0};
  vt_text text = {0};
  vt_status st = VT_OK;
  VT_TRY_OUT(need_file(o));
  VT_TRY_OUT(load_code(o->file, &code));
  for (size_t i = 0; i < code.size; i++) {
    vt_tpu1_print(&code.data[i], &text);
    vt_text_printf(&text, "  ; %zu at 0x%zx\n", i, i * VT_TPU1_INSN_BYTES);
  }
  VT_TRY_OUT(put_output(o, &text));
out:
  vt_text_free(&text);
  vt_array_free(&code);
  return st;
}

static void print_counters(const vt_tpu1_counters *counters, const vt_tpu1_chip *chip) {
  const vt_tpu1_counter_info *info;
  for (int i = 0; (info = vt_tpu1_counter_get(i)); i++) {
    int64_t value = vt_tpu1_counter_value(counters, info);
    printf("%-16s %14lld %-6s", info->name, (long long)value, info->unit);
    if (info->kind <= VT_TPU1_COUNTER_UNIT)
      printf(" %5.1f %%", 100 * (double)value / (double)counters->cycles);
    printf("\n");
  }
  printf("%-16s %14.6f ms\n%-16s %14.4f TOPS\n", "time",
         (double)counters->cycles / chip->clock_hz * 1e3, "speed", vt_tpu1_tops(counters, chip));
}

// A program with its files: code, weights, host memory.
typedef struct job {
  vt_tpu1_code code;
  vt_tpu1_build build; // instead of code: a generated workload
  bool generated;
  vt_bytes weights, input;
  vt_tpu1_program program;
  vt_tpu1_plan plan;
  vt_tpu1_timing timing;
} job;

static void job_free(job *j) {
  vt_tpu1_timing_free(&j->timing);
  vt_tpu1_plan_free(&j->plan);
  if (j->generated) vt_tpu1_build_free(&j->build);
  vt_array_free(&j->code);
  vt_file_unmap(&j->weights);
  vt_file_unmap(&j->input);
}

// From a workload name or a program file, up to a timed plan.
static vt_status job_load(const options *o, bool trace, job *j) {
  memset(j, 0, sizeof *j);
  VT_TRY(need_file(o));
  int w = 0;
  while (w < VT_TPU1_WORKLOADS && strcmp(o->file, vt_tpu1_workload_get((vt_tpu1_workload)w)->name))
    w++;
  if (w < VT_TPU1_WORKLOADS) {
    vt_tpu1_workload_built built;
    j->generated = true;
    VT_TRY(vt_tpu1_workload_build((vt_tpu1_workload)w, o->batch, &o->chip, &j->build, &built));
    j->program = vt_tpu1_build_program(&j->build);
  } else {
    VT_TRY(load_code(o->file, &j->code));
    if (o->weights) VT_TRY(vt_file_map(o->weights, &j->weights));
    if (o->input) VT_TRY(vt_file_map(o->input, &j->input));
    int64_t tile_bytes = vt_tpu1_chip_tile_bytes(&o->chip);
    bool timing = strcmp(o->mode, "timing") == 0; // then addresses need not be backed by files
    j->program = (vt_tpu1_program){
        .code = j->code.data,
        .code_size = j->code.size,
        .weights = j->weights.data,
        .tile_count = timing ? INT64_C(1) << 24 : (int64_t)j->weights.size / tile_bytes,
        .host_in_bytes = timing ? INT64_C(1) << 40 : (int64_t)j->input.size,
        .host_out_bytes = timing ? INT64_C(1) << 40 : o->output_bytes};
  }
  VT_TRY(vt_tpu1_plan_make(&j->program, &o->chip, &j->plan));
  vt_tpu1_time(&j->plan, &o->chip, trace, &j->timing);
  return VT_OK;
}

static vt_status execute(const options *o, const job *j) {
  vt_tpu1_machine *machine = NULL;
  vt_status st = VT_OK;
  vt_text out = {0};
  uint8_t *host_out = calloc((size_t)o->output_bytes + 1, 1);
  if (!host_out) return vt_error_no_memory();
  vt_tpu1_host host = {j->input.data, host_out};
  VT_TRY_OUT(vt_tpu1_machine_create(&o->chip, &machine));
  if (strcmp(o->mode, "serial") == 0)
    VT_TRY_OUT(vt_tpu1_run_serial(machine, &j->plan, host));
  else
    VT_TRY_OUT(vt_tpu1_run_pipelined(machine, &j->plan, &j->timing, host));
  vt_text_put_n(&out, host_out, (size_t)o->output_bytes);
  if (o->output) VT_TRY_OUT(put_output(o, &out));
out:
  vt_tpu1_machine_destroy(machine);
  vt_text_free(&out);
  free(host_out);
  return st;
}

static vt_status write_view(const options *o, const job *j, bool text) {
  vt_tpu1_view view = {o->file, &j->plan, &j->timing, &o->chip};
  vt_text out = {0};
  vt_status st = VT_OK;
  if (text) {
    vt_tpu1_view_text(&view, o->from, o->to, (int)(o->width > 1000 ? 1000 : o->width), &out);
    fwrite(out.data, 1, out.size, stdout);
    vt_text_free(&out);
  }
  if (o->html) {
    vt_tpu1_view_html(&view, &out);
    st = vt_file_write(o->html, out.data, out.size);
    vt_text_free(&out);
  }
  return st;
}

static vt_status do_sim(const options *o) {
  job j;
  vt_status st = VT_OK;
  if (strcmp(o->mode, "functional") && strcmp(o->mode, "serial") && strcmp(o->mode, "timing"))
    return vt_error(VT_INVALID_ARGUMENT, "--mode %s: functional, serial or timing", o->mode);
  VT_TRY_OUT(job_load(o, o->html != NULL, &j));
  if (strcmp(o->mode, "timing") && !j.generated) VT_TRY_OUT(execute(o, &j));
  print_counters(&j.timing.counters, &o->chip);
  VT_TRY_OUT(write_view(o, &j, false));
out:
  job_free(&j);
  return st;
}

static vt_status do_counters(const options *o) {
  job j;
  const vt_tpu1_counter_info *info;
  if (!o->file) {
    for (int i = 0; (info = vt_tpu1_counter_get(i)); i++)
      printf("%-16s %-7s %s\n", info->name, info->unit, info->meaning);
    return VT_OK;
  }
  options timing = *o;
  timing.mode = "timing";
  vt_status st = job_load(&timing, false, &j);
  if (!st) print_counters(&j.timing.counters, &o->chip);
  job_free(&j);
  return st;
}

static vt_status do_view(const options *o) {
  job j;
  options timing = *o;
  timing.mode = "timing";
  vt_status st = job_load(&timing, true, &j);
  if (!st) st = write_view(o, &j, true);
  job_free(&j);
  return st;
}

static vt_status do_isa(const options *o) {
  vt_text text = {0};
  vt_tpu1_isa_document(&text);
  vt_status st = put_output(o, &text);
  vt_text_free(&text);
  return st;
}

static vt_status do_chip(const options *o) {
  vt_text text = {0};
  vt_tpu1_chip_print(&o->chip, &text);
  vt_status st = put_output(o, &text);
  vt_text_free(&text);
  return st;
}

#define COMMAND(name)                                                                              \
  static int run_##name(int argc, char **argv) {                                                   \
    options o;                                                                                     \
    vt_status st = parse(argc, argv, &o);                                                          \
    if (!st) st = do_##name(&o);                                                                   \
    return report(#name, st);                                                                      \
  }
COMMAND(asm)
COMMAND(disasm)
COMMAND(sim)
COMMAND(counters)
COMMAND(view)
COMMAND(isa)
COMMAND(chip)

static const command commands[] = {
    {"asm", "FILE.s -o FILE.v1", "assemble to machine code", run_asm},
    {"disasm", "FILE.v1 [-o FILE.s]", "machine code to assembler text", run_disasm},
    {"compile",
     "MODEL.mlirbc --calibrate DATA.npz [-o MODEL.v1] [--bits 8|16] [--asm F.s] [--html F]",
     "quantise and compile an inference program", vt_tpu1_compile_main},
    {"run", "MODEL.v1 --input DATA.npz [--output F.npz] [--labels F.npz] [--check]",
     "run a compiled model on the simulated chip; --check compares every result with the int8 "
     "evaluator",
     vt_tpu1_run_main},
    {"sim",
     "FILE [--mode functional|serial|timing] [--weights F] [--input F] [--output F --output-bytes "
     "N] [--html F]",
     "run a program on the simulated chip, print its counters", run_sim},
    {"counters", "[FILE|WORKLOAD]", "counters of a program, or what each counter means",
     run_counters},
    {"view", "FILE|WORKLOAD [--from N --to N --width N] [--html F]",
     "the pipeline: which unit does or waits for what", run_view},
    {"bench",
     "[--json F] [--param NAME=FACTOR ...] [--batch N] [--roofline F.svg] [--sensitivity F.svg] "
     "[WORKLOAD ...]",
     "the six published workloads", vt_tpu1_bench_main},
    {"isa", "[-o F]", "the instruction set as Markdown", run_isa},
    {"chip", "", "the constants of the model and their sources", run_chip},
};

int vt_tpu1_cli(int argc, char **argv) {
  enum { COUNT = sizeof commands / sizeof commands[0] };
  for (int i = 0; argc > 1 && i < COUNT; i++)
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  bool help = argc > 1 && (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0);
  FILE *to = help ? stdout : stderr;
  if (argc > 1 && !help) fprintf(to, "vtpu v1: unknown command '%s'\n", argv[1]);
  fprintf(to, "TPU v1, the inference chip of the ISCA 2017 paper\n");
  for (int i = 0; i < COUNT; i++)
    fprintf(to, "  vtpu v1 %s %s\n      %s\n", commands[i].name, commands[i].usage,
            commands[i].summary);
  fprintf(to, "Parameters for --param: clock, memory, matrix, accumulators, fifo (factors).\n");
  return help ? 0 : 2;
}
