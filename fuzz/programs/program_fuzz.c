// SPDX-License-Identifier: Apache-2.0
// program_fuzz: random programs on the evaluator, the host back end and XLA:CPU.
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/npz.h"
#include "compare.h"
#include "shrink.h"

static const char usage[] =
    "usage: program_fuzz [--seed N] [--count N] [--seconds N] [--ops N] "
    "[--batch N] [--meshes|--sharded] [--xla PLUGIN.so]\n"
    "       program_fuzz [--meshes|--sharded] --print SEED [--ops N]\n"
    "       program_fuzz [--xla PLUGIN.so] [--ask-all] [--save OUT.npz] "
    "--run FILE...\n"
    "       program_fuzz [--meshes|--sharded] [--xla PLUGIN.so] [--ask-all] [--ops N] "
    "--shrink FILE|SEED\n"
    "--meshes: programs of 2 to 16 devices, --sharded: sharded automatically\n"
    "--ask-all: XLA:CPU is asked even what known.def names\n"
    "--save: inputs (in_0 ...) and answers (evaluator_0 ..., host_0 ..., "
    "xla_0 ...) for a computation of your own\n";

enum { MOST_BATCH = 32, HANG_SECONDS = 20 };

typedef struct options {
  uint64_t seed;
  int64_t count, seconds;
  int ops, batch;
  const char *plugin, *print, *shrink, *save;
  bool ask_all, meshes, sharded; // sharded: meshes too
} options;

// Written by the worker, read by the parent when the worker has died.
typedef struct progress {
  uint64_t at; // seed of the current batch
  int64_t same, different, refused, ops, unasked, partitioned, cut;
} progress;

static void generate(const options *o, uint64_t seed, program *out) {
  (o->sharded  ? program_generate_sharded
   : o->meshes ? program_generate_mesh
               : program_generate)(seed, o->ops, out);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const options *o, uint64_t seed, verdict v, const char *why) {
  printf("seed %" PRIu64 " (%s--ops %d): %s differs: %s\n", seed,
         o->sharded  ? "--sharded "
         : o->meshes ? "--meshes "
                     : "",
         o->ops, verdict_name(v), why);
  fflush(stdout);
}

// All programs of the batch as functions of one module, which main calls one after another.
static bool run_batch(xla *x, const options *o, trial *trials, const bool *open, int count) {
  vt_module *m = vt_module_create();
  m->name = "batch";
  vt_arena arena = {0};
  vt_func *main = vt_func_create(m, "main");
  uint32_t results = 0;
  VT_ARRAY(vt_tensor) in = {0};
  vt_tensor *out = VT_NEW_ARRAY(&arena, vt_tensor, count * 16);
  vt_value **returns = VT_NEW_ARRAY(&arena, vt_value *, count * 16);
  for (int i = 0; i < count; i++) {
    if (!open[i]) continue;
    program_input inputs[PROGRAM_MAX_INPUTS];
    vt_func *callee = program_generate_into(m, vt_arena_printf(&m->arena, "p%d", i),
                                            trials[i].program.seed, o->ops, inputs);
    vt_type types[16];
    vt_tensor *fed;
    uint32_t own = callee->param_count;
    trial_cut(&trials[i], callee, &fed);
    vt_value **operands = VT_NEW_ARRAY(&arena, vt_value *, callee->param_count + 1);
    for (uint32_t p = 0; p < callee->param_count; p++) {
      operands[p] = vt_func_add_param(main, callee->params[p]->type);
      vt_array_push_in(&arena, &in, p < own ? trials[i].args[p] : fed[p - own]);
    }
    for (uint32_t r = 0; r < callee->return_count; r++) types[r] = callee->returns[r]->type;
    vt_op *call = vt_op_create(main, VT_OP_CALL, &vt_loc_unknown, callee->param_count, operands,
                               callee->return_count, types, 0);
    vt_op_append(main, call);
    vt_func **list = VT_NEW(&m->arena, vt_func *);
    *list = callee;
    vt_op_set_attr(call, (vt_attr){.key = VT_ATTR_CALLEE, .count = 1, .funcs = list});
    for (uint32_t r = 0; r < callee->return_count; r++) {
      returns[results] = &call->results[r];
      out[results++] = trials[i].got[r];
    }
  }
  vt_func_set_returns(main, results, returns);
  vt_module_add_func(m, main);
  m->main = main;
  xla_hide_constants(m);
  vt_text text = {0}, why = {0};
  vt_module_print(m, -1, &text);
  bool ok = xla_run(x, text.data, text.size, 1, (uint32_t)in.size, in.data, results, out, &why);
  vt_text_free(&text);
  vt_text_free(&why);
  vt_arena_free(&arena);
  vt_module_destroy(m);
  return ok;
}

static verdict check_one(xla *x, trial *t, const options *o, progress *p) {
  vt_text why = {0};
  bool refused, asked;
  verdict v = trial_xla(t, x, &refused, &why);
  if (refused) {
    p->refused++;
    printf("seed %" PRIu64 ": XLA:CPU refuses: %.300s\n", t->program.seed, vt_text_string(&why));
  } else if (v) {
    report(o, t->program.seed, v, vt_text_string(&why));
  }
  if (!v && !refused && o->meshes) {
    v = trial_xla_mesh(t, x, &asked, &refused, &why);
    p->partitioned += asked && !refused;
    if (v) report(o, t->program.seed, v, vt_text_string(&why));
  }
  vt_text_free(&why);
  return v;
}

static void count_asked(const trial *t, progress *p) {
  for (const vt_op *op = t->plain->main->first; op; op = op->next) {
    if (op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA) continue;
    p->ops++;
    p->unasked += !t->ask_all && xla_known(op);
  }
}

static void run_seeds(const options *o, xla *x, uint64_t first, int count, progress *p) {
  trial trials[MOST_BATCH];
  bool open[MOST_BATCH];
  verdict verdicts[MOST_BATCH];
  for (int i = 0; i < count; i++) {
    vt_text why = {0};
    program made;
    generate(o, first + (uint64_t)i, &made);
    verdicts[i] = trial_open(made, &trials[i], &why);
    if (!verdicts[i]) verdicts[i] = trial_hlo(&trials[i], &why);
    if (!verdicts[i]) verdicts[i] = trial_host(&trials[i], &why);
    trials[i].ask_all = o->ask_all;
    p->cut += trials[i].cut;
    open[i] = !verdicts[i];
    if (verdicts[i]) report(o, first + (uint64_t)i, verdicts[i], vt_text_string(&why));
    vt_text_free(&why);
  }
  if (x) {
    for (int i = 0; i < count; i++)
      if (open[i]) count_asked(&trials[i], p);
    bool together = count > 1 && !o->meshes && run_batch(x, o, trials, open, count);
    for (int i = 0; i < count; i++) {
      vt_text why = {0};
      if (!open[i]) continue;
      if (!together || trial_check(&trials[i], trials[i].got, VERDICT_XLA, &why))
        verdicts[i] = check_one(x, &trials[i], o, p);
      vt_text_free(&why);
    }
  }
  for (int i = 0; i < count; i++) {
    if (verdicts[i])
      p->different++;
    else
      p->same++;
    trial_close(&trials[i]);
  }
}

static void worker(const options *o, uint64_t first, uint64_t end, int batch, double stop,
                   progress *p) {
  xla *x = o->plugin ? xla_open() : NULL;
  for (uint64_t at = first; at < end && now() < stop; at += (uint64_t)batch) {
    p->at = at;
    alarm(HANG_SECONDS);
    uint64_t left = end - at;
    run_seeds(o, x, at, left < (uint64_t)batch ? (int)left : batch, p);
    p->at = at + (left < (uint64_t)batch ? left : (uint64_t)batch);
  }
  fflush(stdout);
  _exit(0);
}

// Runs seeds in a separate process. true: it ran to the end.
static bool run_worker(const options *o, uint64_t first, uint64_t end, int batch, double stop,
                       progress *p, int *out_signal) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid < 0) {
    perror("program_fuzz: fork");
    exit(2);
  }
  if (!pid) worker(o, first, end, batch, stop, p);
  int status = 0;
  waitpid(pid, &status, 0);
  *out_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return WIFEXITED(status) && !WEXITSTATUS(status);
}

static int fuzz(const options *o) {
  progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("program_fuzz: mmap");
    return 2;
  }
  uint64_t at = o->seed, end = o->count ? o->seed + (uint64_t)o->count : UINT64_MAX;
  double stop = o->seconds ? now() + (double)o->seconds : 1e300;
  int64_t crashed = 0;
  while (at < end && now() < stop) {
    int signal = 0;
    uint64_t until = end - at > 20000 ? at + 20000 : end; // XLA keeps memory for each compile
    if (run_worker(o, at, until, o->batch, stop, p, &signal)) {
      at = p->at;
      continue;
    }
    // The batch again, one program at a time, to find the culprit.
    at = p->at;
    uint64_t last = end - at > (uint64_t)o->batch ? at + (uint64_t)o->batch : end;
    while (at < last && !run_worker(o, at, last, 1, stop, p, &signal)) {
      printf("seed %" PRIu64 " (--ops %d): the process died of signal %d\n", p->at, o->ops, signal);
      crashed++;
      at = p->at + 1;
    }
    at = p->at > at ? p->at : at;
  }
  printf("%" PRId64 " programs without difference", p->same);
  if (o->plugin)
    printf(" (XLA:CPU was asked all but %" PRId64 " of %" PRId64
           " ops, see known.def; programs that it refuses: %" PRId64 ")",
           p->unasked, p->ops, p->refused);
  if (o->plugin && o->meshes)
    printf(", %" PRId64 " of them on several devices as well", p->partitioned);
  if (o->meshes) printf(", cut over processes %" PRId64 " times", p->cut);
  printf(", %" PRId64 " different, %" PRId64 " crashed\n", p->different, crashed);
  return p->different || crashed;
}

static int print_program(const options *o) {
  program p;
  vt_text text = {0};
  generate(o, strtoull(o->print, NULL, 0), &p);
  program_print(&p, &text);
  fputs(vt_text_string(&text), stdout);
  vt_text_free(&text);
  program_destroy(&p);
  return 0;
}

// Files for NumPy (--save).
typedef struct saved {
  vt_arena arena;
  VT_ARRAY(vt_npz_array) arrays;
} saved;

static void save(saved *s, const char *name, uint32_t index, vt_tensor t) {
  static const char kinds[] = {[VT_KIND_BOOL] = 'b',
                               [VT_KIND_SIGNED] = 'i',
                               [VT_KIND_UNSIGNED] = 'u',
                               [VT_KIND_COMPLEX] = 'c'};
  vt_dtype dtype = t.type.dtype;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  bool numpy = dtype == VT_F16 || dtype == VT_F32 || dtype == VT_F64;
  vt_npz_array array = {.name = vt_arena_printf(&s->arena, "%s_%u", name, index),
                        .kind = kind == VT_KIND_FLOAT ? (numpy ? 'f' : 'V') : kinds[kind],
                        .item_bytes = (int32_t)vt_dtype_bytes(dtype),
                        .rank = t.type.rank};
  for (int32_t d = 0; d < t.type.rank; d++) array.dims[d] = t.type.dims[d];
  array.data = vt_arena_push_aligned(&s->arena, (size_t)vt_type_bytes(t.type) + 1, 64);
  memcpy(array.data, t.data, (size_t)vt_type_bytes(t.type));
  vt_array_push_in(&s->arena, &s->arrays, array);
}

static void save_answers(saved *s, const char *name, const trial *t) {
  for (uint32_t i = 0; i < t->program.module->main->return_count; i++) save(s, name, i, t->got[i]);
}

static vt_status judge_file(const char *path, xla *x, const options *o, verdict *out_verdict) {
  vt_bytes file = {0};
  program p;
  vt_text why = {0};
  trial t = {0};
  saved s = {0};
  bool refused = false;
  vt_status st = vt_file_map(path, &file);
  if (!st) st = program_parse((const char *)file.data, file.size, &p);
  vt_file_unmap(&file);
  if (st) return st;
  verdict v = trial_open(p, &t, &why);
  t.ask_all = o->ask_all;
  for (uint32_t i = 0; i < p.module->main->param_count; i++) save(&s, "in", i, t.args[i]);
  for (uint32_t i = 0; i < p.module->main->return_count && !v; i++)
    save(&s, "evaluator", i, t.want[i].center);
  if (!v) v = trial_hlo(&t, &why);
  if (!v) {
    v = trial_host(&t, &why);
    save_answers(&s, "host", &t);
  }
  if (!v && x) {
    bool asked;
    v = trial_xla(&t, x, &refused, &why);
    if (!refused) save_answers(&s, "xla", &t);
    if (!v && !refused) v = trial_xla_mesh(&t, x, &asked, &refused, &why);
  }
  if (o->save) st = vt_npz_write(o->save, s.arrays.data, (uint32_t)s.arrays.size);
  if (v) printf("%s: %s differs: %s\n", path, verdict_name(v), vt_text_string(&why));
  if (refused) printf("%s: XLA:CPU refuses: %.600s\n", path, vt_text_string(&why));
  *out_verdict = v;
  trial_close(&t);
  vt_arena_free(&s.arena);
  vt_text_free(&why);
  return st;
}

static bool run_file(const char *path, xla *x, const options *o) {
  verdict v = VERDICT_IMPORT;
  vt_status st = judge_file(path, x, o, &v);
  if (st) printf("%s: %s\n", path, vt_status_message(st));
  bool wrong = st || v != VERDICT_SAME;
  vt_status_free(st);
  return wrong;
}

enum { DIED = 200 }; // an extra verdict: the process was killed

typedef struct failure {
  int verdict;
  const options *options;
  xla *xla; // opened when the failure is not a crash
} failure;

static int verdict_of(const program *candidate, const options *o, xla *x) {
  program copy;
  vt_text text = {0}, why = {0};
  trial t = {0};
  bool refused, asked;
  program_print(candidate, &text);
  vt_status st = program_parse(text.data, text.size, &copy);
  verdict v = VERDICT_IMPORT;
  if (!st) v = trial_open(copy, &t, &why);
  t.ask_all = o->ask_all;
  if (!st && !v) v = trial_hlo(&t, &why);
  if (!st && !v) v = trial_host(&t, &why);
  if (!st && !v && x) v = trial_xla(&t, x, &refused, &why);
  if (!st && !v && x) v = trial_xla_mesh(&t, x, &asked, &refused, &why);
  trial_close(&t);
  vt_status_free(st);
  vt_text_free(&text);
  vt_text_free(&why);
  return (int)v;
}

// In a separate process: it may die.
static int isolated_verdict(const program *candidate, const options *o) {
  pid_t pid = fork();
  if (!pid) {
    alarm(HANG_SECONDS);
    _exit(verdict_of(candidate, o, o->plugin ? xla_open() : NULL));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : DIED;
}

static bool fails_alike(void *context, const program *candidate) {
  const failure *f = context;
  int v =
      f->xla ? verdict_of(candidate, f->options, f->xla) : isolated_verdict(candidate, f->options);
  return v == f->verdict;
}

static int shrink_program(const options *o) {
  program p;
  char *end;
  uint64_t seed = strtoull(o->shrink, &end, 0);
  if (*end) {
    vt_bytes file = {0};
    vt_status st = vt_file_map(o->shrink, &file);
    if (!st) st = program_parse((const char *)file.data, file.size, &p);
    vt_file_unmap(&file);
    if (st) {
      fprintf(stderr, "%s: %s\n", o->shrink, vt_status_message(st));
      vt_status_free(st);
      return 2;
    }
  } else {
    generate(o, seed, &p);
  }
  failure f = {.options = o, .verdict = isolated_verdict(&p, o)};
  if (f.verdict == VERDICT_XLA || f.verdict == VERDICT_XLA_MESH) f.xla = xla_open();
  if (f.verdict) shrink(&p, fails_alike, &f);
  vt_text text = {0};
  program_print(&p, &text);
  printf("// %s\n%s", f.verdict == DIED ? "the process dies" : verdict_name((verdict)f.verdict),
         vt_text_string(&text));
  vt_text_free(&text);
  program_destroy(&p);
  return f.verdict != 0;
}

int main(int argc, char **argv) {
  options o = {.seed = 1, .ops = 12, .batch = 16};
  int files = 0, wrong = 0;
  for (int i = 1; i < argc; i++) {
    bool more = i + 1 < argc;
    if (!strcmp(argv[i], "--seed") && more)
      o.seed = strtoull(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--count") && more)
      o.count = strtoll(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--seconds") && more)
      o.seconds = strtoll(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--ops") && more)
      o.ops = (int)strtol(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--batch") && more)
      o.batch = (int)strtol(argv[++i], NULL, 0);
    else if (!strcmp(argv[i], "--xla") && more)
      o.plugin = argv[++i];
    else if (!strcmp(argv[i], "--print") && more)
      o.print = argv[++i];
    else if (!strcmp(argv[i], "--shrink") && more)
      o.shrink = argv[++i];
    else if (!strcmp(argv[i], "--save") && more)
      o.save = argv[++i];
    else if (!strcmp(argv[i], "--meshes"))
      o.meshes = true;
    else if (!strcmp(argv[i], "--sharded"))
      o.meshes = o.sharded = true;
    else if (!strcmp(argv[i], "--ask-all"))
      o.ask_all = true;
    else if (!strcmp(argv[i], "--run"))
      files = i + 1, i = argc;
    else {
      fputs(usage, stderr);
      return 2;
    }
  }
  if (o.batch < 1 || o.batch > MOST_BATCH || o.ops < 1) {
    fputs(usage, stderr);
    return 2;
  }
  if (o.plugin && !xla_find(o.plugin)) {
    printf("skipped: there is no XLA plugin at %s\n", o.plugin);
    return 77;
  }
  if (!o.plugin) mallopt(M_PERTURB, 0xC8); // exposes reads of uninitialised memory
  if (o.shrink) return shrink_program(&o);
  if (o.print) return print_program(&o);
  if (!files) return fuzz(&o);
  xla *x = o.plugin ? xla_open() : NULL;
  for (int i = files; i < argc; i++) wrong |= run_file(argv[i], x, &o);
  return wrong;
}
