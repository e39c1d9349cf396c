// SPDX-License-Identifier: Apache-2.0
// compile_cli.c - `vtpu v1 compile` and `vtpu v1 run`.
// In: files. Out: files, summaries, an exit code. Owns nothing.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "tpu1/bench.h"
#include "tpu1/cli.h"
#include "tpu1/compile_cli.h"
#include "tpu1/driver.h"

typedef struct options {
  vt_tpu1_chip chip;
  const char *file, *output, *calibrate, *assembly, *html, *input, *labels;
  int bits;
  bool check;
} options;

static vt_status options_of(const vt_args *args, options *o) {
  const char *bits = vt_args_text(args, "bits");
  *o = (options){.file = args->words.data[0],
                 .output = vt_args_text(args, "output"),
                 .calibrate = vt_args_text(args, "calibrate"),
                 .assembly = vt_args_text(args, "asm"),
                 .html = vt_args_text(args, "html"),
                 .input = vt_args_text(args, "input"),
                 .labels = vt_args_text(args, "labels"),
                 .bits = bits ? atoi(bits) : 8,
                 .check = vt_args_on(args, "check")};
  return vt_tpu1_chip_of_args(args, &o->chip);
}

static void print_nodes(const vt_tpu1_network *net) {
  static const char *const kinds[] = {"input", "layer", "vector", "pool", "slice", "concat"};
  static const char *const fns[] = {"", "relu", "sigmoid", "tanh"};
  vt_arena arena = {0};
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i];
    if (n->kind == VT_TPU1_Q_LAYER && n->term_count == 0) continue;
    printf("%3zu %-6s %4lld x %3lld x %3lld x %4lld  %2d bits  scale %-11.5g %-7s", i,
           kinds[n->kind], (long long)n->images, (long long)n->h, (long long)n->w,
           (long long)n->channels, n->wide ? 16 : 8, n->scale, fns[n->fn]);
    for (int t = 0; t < n->term_count; t++)
      printf(" %lldx%lld of %d", (long long)n->terms[t].conv.kh, (long long)n->terms[t].conv.kw,
             n->terms[t].in.node);
    printf(" %s\n", n->op ? vt_op_describe(n->op, &arena) : "");
  }
  vt_arena_free(&arena);
}

static vt_status write_assembly(const vt_tpu1_plan *plan, const char *path) {
  vt_text text = {0};
  for (size_t i = 0; i < plan->program->code_size; i++) {
    vt_tpu1_print(&plan->program->code[i], &text);
    vt_text_put(&text, "\n");
  }
  vt_status st = vt_file_write(path, text.data, text.size);
  vt_text_free(&text);
  return st;
}

static void print_summary(const vt_tpu1_model *model, const vt_tpu1_chip *chip) {
  const vt_tpu1_counters *n = &vt_tpu1_model_timing(model)->counters;
  const vt_tpu1_program *p = vt_tpu1_model_plan(model)->program;
  printf("%zu instructions, %lld weight tiles, %.2f of %.0f MiB unified buffer\n", p->code_size,
         (long long)p->tile_count, (double)n->ub_peak_rows * chip->dim / 1048576,
         chip->ub_bytes / 1048576);
  printf("one batch: %lld cycles, %.3f ms, %.3f TOPS; matrix unit %.1f %% active (%.1f %% useful), "
         "%.1f %% weight stall, "
         "%.1f %% shift, %.1f %% other\n",
         (long long)n->cycles, (double)n->cycles / chip->clock_hz * 1e3, vt_tpu1_tops(n, chip),
         100.0 * (double)n->array_active / (double)n->cycles,
         100.0 * (double)n->useful_macs / (double)n->cycles,
         100.0 * (double)n->weight_stall / (double)n->cycles,
         100.0 * (double)n->weight_shift / (double)n->cycles,
         100.0 * (double)n->non_matrix / (double)n->cycles);
}

static vt_status write_html(const vt_tpu1_model *model, const options *o) {
  vt_text html = {0};
  vt_tpu1_view view = {o->file, vt_tpu1_model_plan(model), vt_tpu1_model_timing(model), &o->chip};
  vt_tpu1_view_html(&view, &html);
  vt_status st = vt_file_write(o->html, html.data, html.size);
  vt_text_free(&html);
  return st;
}

static vt_status do_compile(const options *o) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_bytes program = {0};
  vt_npz examples;
  vt_tpu1_model *model = NULL;
  if (!o->calibrate)
    return vt_error(VT_INVALID_ARGUMENT,
                    "--calibrate FILE.npz: example inputs, one array for each parameter");
  VT_TRY_OUT(vt_file_map(o->file, &program));
  VT_TRY_OUT(vt_npz_read(o->calibrate, &arena, &examples));
  VT_TRY_OUT(vt_tpu1_model_calibrate(program, &examples, o->bits, &model));
  VT_TRY_OUT(vt_tpu1_model_compile(model, &o->chip));
  print_nodes(vt_tpu1_model_network(model));
  print_summary(model, &o->chip);
  if (o->assembly) VT_TRY_OUT(write_assembly(vt_tpu1_model_plan(model), o->assembly));
  if (o->html) VT_TRY_OUT(write_html(model, o));
  if (o->output) VT_TRY_OUT(vt_tpu1_model_save(model, o->output));
out:
  vt_tpu1_model_destroy(model);
  vt_file_unmap(&program);
  vt_arena_free(&arena);
  return st;
}

// The arrays of a run: whole arrays from the input file, and memory for the results of every batch.
typedef struct batches {
  int64_t count;      // examples in the first array
  int64_t size;       // of a batch
  vt_tensor *args;    // one batch
  vt_tensor *results; // one batch
  char **all;         // every result, of count examples rounded up to batches
} batches;

static vt_status batches_prepare(const vt_func *main, const vt_npz *npz, vt_arena *arena,
                                 batches *b) {
  if (npz->count < main->param_count)
    return vt_error(VT_INVALID_ARGUMENT, "the program has %u parameters, there are %u arrays",
                    (unsigned)main->param_count, (unsigned)npz->count);
  b->args = VT_NEW_ARRAY(arena, vt_tensor, main->param_count + 1);
  b->results = VT_NEW_ARRAY(arena, vt_tensor, main->return_count + 1);
  b->all = VT_NEW_ARRAY(arena, char *, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    vt_type type = main->params[i]->type;
    const vt_npz_array *a = &npz->arrays[i];
    int64_t row = vt_type_bytes(type) / (type.rank && type.dims[0] ? type.dims[0] : 1),
            rows = row ? vt_npz_bytes(a) / row : 0;
    if (row == 0 || a->item_bytes != (int32_t)vt_dtype_bytes(type.dtype) || vt_npz_bytes(a) % row ||
        (i && rows != b->count))
      return vt_error(VT_INVALID_ARGUMENT, "array '%s' does not fit parameter %u of the program",
                      a->name, (unsigned)i);
    b->count = rows;
    b->size = type.rank ? type.dims[0] : 1;
    b->args[i] =
        (vt_tensor){type, vt_arena_push_aligned(arena, (size_t)vt_type_bytes(type) + 64, 64)};
  }
  int64_t parts = b->size ? (b->count + b->size - 1) / b->size : 0;
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_type type = main->returns[i]->type;
    b->all[i] = vt_arena_push(arena, (size_t)(vt_type_bytes(type) * parts) + 1);
    b->results[i].type = type;
  }
  return VT_OK;
}

static vt_status run_batches(vt_tpu1_model *model, const options *o, const vt_npz *npz,
                             batches *b) {
  const vt_func *main = vt_tpu1_model_network(model)->module->main;
  for (int64_t at = 0, part = 0; at < b->count; at += b->size, part++) {
    int64_t have = b->count - at < b->size ? b->count - at : b->size;
    for (uint32_t i = 0; i < main->param_count; i++) {
      int64_t bytes = vt_type_bytes(b->args[i].type), row = bytes / b->size;
      memset(b->args[i].data, 0, (size_t)bytes);
      memcpy(b->args[i].data, (const char *)npz->arrays[i].data + at * row, (size_t)(have * row));
    }
    for (uint32_t i = 0; i < main->return_count; i++)
      b->results[i].data = b->all[i] + part * vt_type_bytes(b->results[i].type);
    VT_TRY(vt_tpu1_model_evaluate(model, &o->chip, b->args, b->results, o->check));
  }
  return VT_OK;
}

static vt_status print_accuracy(const options *o, const batches *b, vt_arena *arena) {
  vt_npz npz;
  VT_TRY(vt_npz_read(o->labels, arena, &npz));
  vt_type type = b->results[0].type;
  int64_t classes = vt_type_elements(type) / b->size, right = 0;
  if (npz.count < 1 || npz.arrays[0].kind != 'i' || npz.arrays[0].item_bytes != 4 ||
      vt_npz_bytes(&npz.arrays[0]) != b->count * 4 || type.dtype != VT_F32)
    return vt_error(VT_INVALID_ARGUMENT, "%s: wants one int32 label for each of %lld examples",
                    o->labels, (long long)b->count);
  for (int64_t i = 0; i < b->count; i++) {
    const float *scores = (const float *)(const void *)b->all[0] + i * classes;
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
      if (scores[c] > scores[best]) best = c;
    right += best == ((const int32_t *)npz.arrays[0].data)[i];
  }
  printf("accuracy %.4f (%lld of %lld)\n", (double)right / (double)b->count, (long long)right,
         (long long)b->count);
  return VT_OK;
}

static vt_status write_results(const options *o, const batches *b, const vt_func *main,
                               vt_arena *arena) {
  vt_npz_array *arrays = VT_NEW_ARRAY(arena, vt_npz_array, main->return_count + 1);
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_type type = b->results[i].type;
    arrays[i] = (vt_npz_array){.name = vt_arena_printf(arena, "result%u", (unsigned)i),
                               .kind = 'f',
                               .item_bytes = (int32_t)vt_dtype_bytes(type.dtype),
                               .rank = type.rank,
                               .data = b->all[i]};
    memcpy(arrays[i].dims, type.dims, sizeof(int64_t) * (size_t)type.rank);
    if (type.rank && type.dims[0] == b->size) arrays[i].dims[0] = b->count;
  }
  return vt_npz_write(o->output, arrays, main->return_count);
}

static vt_status do_run(const options *o) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_bytes bytes = {0};
  vt_npz inputs;
  vt_tpu1_model *model = NULL;
  batches b = {0};
  struct timespec start, end;
  if (!o->input)
    return vt_error(VT_INVALID_ARGUMENT, "--input FILE.npz: one array for each parameter");
  VT_TRY_OUT(vt_file_map(o->file, &bytes));
  VT_TRY_OUT(vt_tpu1_model_parse(bytes, &model));
  VT_TRY_OUT(vt_tpu1_model_compile(model, &o->chip));
  VT_TRY_OUT(vt_npz_read(o->input, &arena, &inputs));
  const vt_func *main = vt_tpu1_model_network(model)->module->main;
  VT_TRY_OUT(batches_prepare(main, &inputs, &arena, &b));
  clock_gettime(CLOCK_MONOTONIC, &start);
  VT_TRY_OUT(run_batches(model, o, &inputs, &b));
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds =
      (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
  double chip_s = (double)vt_tpu1_model_timing(model)->counters.cycles / o->chip.clock_hz *
                  (double)((b.count + b.size - 1) / b.size);
  printf("%lld examples in %.2f s here, %.3f ms on the chip%s\n", (long long)b.count, seconds,
         chip_s * 1e3, o->check ? ", bit-exact with the int8 evaluator" : "");
  if (o->labels) VT_TRY_OUT(print_accuracy(o, &b, &arena));
  if (o->output) VT_TRY_OUT(write_results(o, &b, main, &arena));
out:
  vt_tpu1_model_destroy(model);
  vt_file_unmap(&bytes);
  vt_arena_free(&arena);
  return st;
}

static int report(const char *what, vt_status st) {
  if (st) fprintf(stderr, "vtpu v1 %s: %s\n", what, vt_status_message(st));
  int rc = st ? 1 : 0;
  vt_status_free(st);
  return rc;
}

int vt_tpu1_compile_main(const vt_args *args) {
  options o;
  vt_status st = options_of(args, &o);
  return report("compile", st ? st : do_compile(&o));
}

int vt_tpu1_run_main(const vt_args *args) {
  options o;
  vt_status st = options_of(args, &o);
  return report("run", st ? st : do_run(&o));
}
