// SPDX-License-Identifier: Apache-2.0
// cli.c - the command line of TPU v1: assembler, simulator, counters, pipeline view, benchmark.
// In: argv. Out: files, text, an exit code. Owns nothing.
#include "tpu1/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tpu1/bench.h"
#include "tpu1/compile_cli.h"
#include "tpu1/exec.h"

// A subcommand's options; unused members stay zero.
typedef struct options {
  vt_tpu1_chip chip;
  const char *file, *output, *input, *weights, *html, *mode;
  int64_t output_bytes, from, to, width, batch;
} options;

vt_status vt_tpu1_chip_of_args(const vt_args *args, vt_tpu1_chip *out_chip) {
  *out_chip = vt_tpu1_chip_default();
  for (size_t i = 0; i < args->flags.size; i++) {
    if (strcmp(args->flags.data[i].flag->name, "param") != 0) continue;
    const char *text = args->flags.data[i].value, *equals = strchr(text, '=');
    if (!equals) return vt_error(VT_INVALID_ARGUMENT, "--param is NAME=FACTOR, not '%s'", text);
    char *end, name[32];
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    double factor = strtod(equals + 1, &end);
    if (*end || end == equals + 1)
      return vt_error(VT_INVALID_ARGUMENT, "--param %s: '%s' is not a number", name, equals + 1);
    VT_TRY(vt_tpu1_chip_scale(out_chip, name, factor));
  }
  return VT_OK;
}

static vt_status options_of(const vt_args *args, options *o) {
  const char *mode = vt_args_text(args, "mode");
  *o = (options){.file = args->words.size ? args->words.data[0] : NULL,
                 .output = vt_args_text(args, "output"),
                 .input = vt_args_text(args, "input"),
                 .weights = vt_args_text(args, "weights"),
                 .html = vt_args_text(args, "html"),
                 .mode = mode ? mode : "functional",
                 .output_bytes = vt_args_number(args, "output-bytes", 0),
                 .from = vt_args_number(args, "from", 0),
                 .to = vt_args_number(args, "to", 0),
                 .width = vt_args_number(args, "width", 100),
                 .batch = vt_args_number(args, "batch", 0)};
  return vt_tpu1_chip_of_args(args, &o->chip);
}

static int report(const char *what, vt_status st) {
  if (st) fprintf(stderr, "vtpu v1 %s: %s\n", what, vt_status_message(st));
  int rc = st ? 1 : 0;
  vt_status_free(st);
  return rc;
}

// Machine code (12-byte instructions, opcodes below 0x10) or assembler text, distinguished by the
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
    bool timing = strcmp(o->mode, "timing") == 0; // then addresses need no files behind them
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
    vt_tpu1_view_text(&view, o->from, o->to, (int)o->width, &out);
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

#define RUN(name)                                                                                  \
  static int run_##name(const vt_args *args) {                                                     \
    options o;                                                                                     \
    vt_status st = options_of(args, &o);                                                           \
    if (!st) st = do_##name(&o);                                                                   \
    return report(#name, st);                                                                      \
  }
RUN(asm)
RUN(disasm)
RUN(sim)
RUN(counters)
RUN(view)
RUN(isa)
RUN(chip)

static const vt_command_row rows[] = {
#include "base/command_rows.h"
#include "tpu1/commands.def"
#include "base/command_rows_end.h"
};
const vt_command_table vt_tpu1_commands = {"vtpu", rows, sizeof rows / sizeof *rows};

static const struct {
  const char *name;
  int (*run)(const vt_args *args);
} runs[] = {
#include "base/command_functions.h"
#include "tpu1/commands.def"
#include "base/command_rows_end.h"
};

static vt_status read_line(int argc, char **argv, vt_arena *arena, vt_args *args) {
  const vt_command_row *command;
  VT_TRY(vt_command_find(&vt_tpu1_commands, argc, argv, &command));
  return vt_command_read(&vt_tpu1_commands, command, argc, argv, arena, args);
}

int vt_tpu1_cli(int argc, char **argv) {
  vt_arena arena = {0};
  vt_args args;
  bool help = argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help"));
  if (argc < 2 || help) {
    vt_command_list(&vt_tpu1_commands, "v1", help ? stdout : stderr);
    return help ? 0 : 2;
  }
  int code = 0;
  vt_status st = read_line(argc, argv, &arena, &args);
  if (st) {
    fprintf(stderr, "vtpu v1: %s\n", vt_status_message(st));
    code = 2;
  } else if (args.help) {
    vt_command_help(&vt_tpu1_commands, args.command, stdout);
  } else {
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
      if (strcmp(runs[i].name, args.command->name) == 0) code = runs[i].run(&args);
  }
  vt_status_free(st);
  vt_arena_free(&arena);
  return code;
}
