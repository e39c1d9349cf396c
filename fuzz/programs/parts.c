// SPDX-License-Identifier: Apache-2.0
// parts.c - a program cut over processes: as several parts, which are threads here, and as one
// program that runs all parts in lockstep. Both have the same bits, which are a correct answer.
#include <pthread.h>
#include <string.h>

#include "compare.h"
#include "eval/loopback.h"
#include "host/host.h"
#include "import/import.h"
#include "ir/number.h"
#include "passes/collectives.h"
#include "spmd/spmd.h"
#include "unroll.h"

typedef struct part {
  pthread_t thread;
  bool started;
  vt_program *compiled;
  void **in, **out;
  vt_loopback_part loopback;
  vt_status st;
} part;

typedef struct held { // of an array by one part
  int64_t at[VT_MAX_RANK];
  vt_type type;
} held;

typedef struct cut {
  trial *t;
  int count;
  bool by_device;           // each part runs the program of one device on its own
  held **params, **returns; // [i][part], the same in all compilations
  int32_t part_of[64];
} cut;

static bool is_manual(const vt_op *op) {
  return op->code == VT_OP_MANUAL_COMPUTATION;
}

// What the devices of a part hold together, each a tile of `tiling`, which may be over parts.
static vt_status find_held(cut *c, const vt_tiling *tiling, int place, held *out) {
  int64_t at[VT_MAX_RANK], sizes[VT_MAX_RANK], end[VT_MAX_RANK] = {0}, area = 1, covered = 0;
  int64_t seen[64];
  int32_t rank = tiling->global.rank, count = 0;
  for (int32_t i = 0; i < rank; i++) out->at[i] = INT64_MAX, end[i] = 0;
  for (int32_t d = 0; d < tiling->device_count; d++) {
    if ((c->by_device ? c->part_of[d] : d) != place) continue;
    vt_tiling_range(tiling, d, at, sizes);
    int64_t tile = vt_tiling_is_replicated(tiling) ? 0 : tiling->tile_of_device[d];
    bool again = false;
    for (int32_t k = 0; k < count; k++) again = again || seen[k] == tile;
    seen[count++] = tile;
    if (!again) covered += vt_type_elements(tiling->shard);
    for (int32_t i = 0; i < rank; i++) {
      if (at[i] < out->at[i]) out->at[i] = at[i];
      if (at[i] + sizes[i] > end[i]) end[i] = at[i] + sizes[i];
    }
  }
  for (int32_t i = 0; i < rank; i++) area *= end[i] -= out->at[i];
  out->type = vt_type_make(&c->t->arena, tiling->global.dtype, rank, end);
  return area == covered ? VT_OK : vt_error(VT_UNIMPLEMENTED, "tiles that are no neighbours");
}

static vt_status find_all_held(cut *c, vt_value *const *values, uint32_t count,
                               const vt_sharding *const *shardings, held **out) {
  for (uint32_t i = 0; i < count; i++) {
    vt_tiling tiling;
    int32_t devices = c->by_device ? c->t->program.module->num_partitions : c->count;
    VT_TRY(vt_tiling_make(shardings[i], NULL, 0, values[i]->type, devices, &c->t->arena, &tiling));
    if (tiling.partials > 1) return vt_error(VT_UNIMPLEMENTED, "values that differ");
    out[i] = VT_NEW_ARRAY(&c->t->arena, held, c->count);
    for (int p = 0; p < c->count; p++) VT_TRY(find_held(c, &tiling, p, &out[i][p]));
  }
  return VT_OK;
}

// The shardings of parameters and results: main's, or those of the manual computation that it is.
static vt_status find_border(cut *c, const vt_module *module, const vt_func *whole) {
  uint32_t most = whole->param_count + whole->return_count + 1;
  const vt_sharding **in = VT_NEW_ARRAY(&c->t->arena, const vt_sharding *, most);
  const vt_sharding **out = VT_NEW_ARRAY(&c->t->arena, const vt_sharding *, most);
  const vt_op *op = c->by_device ? module->main->first : NULL;
  for (uint32_t i = 0; i < whole->param_count; i++)
    in[i] = op                  ? vt_op_attr(op, VT_ATTR_IN_SHARDINGS)->shardings[i]
            : whole->param_info ? whole->param_info[i].sharding
                                : NULL;
  for (uint32_t i = 0; i < whole->return_count; i++)
    out[i] = op                   ? vt_op_attr(op, VT_ATTR_OUT_SHARDINGS)->shardings[i]
             : whole->return_info ? whole->return_info[i].sharding
                                  : NULL;
  VT_TRY(find_all_held(c, whole->params, whole->param_count, in, c->params));
  return find_all_held(c, whole->returns, whole->return_count, out, c->returns);
}

static vt_status cut_over_parts(cut *c, vt_module *module, int only) {
  int devices = module->num_partitions;
  const vt_func *whole = module->main;
  vt_collective_options passes = vt_collectives_default();
  vt_spmd_inline(module, true);
  VT_TRY(vt_spmd_annotate(module, devices));
  if (!c->by_device) {
    VT_TRY(vt_spmd_by_processes(module, devices, c->part_of, c->count));
    VT_TRY(find_border(c, module, whole));
  }
  int32_t held_by = c->by_device ? devices : c->count;
  VT_TRY(vt_spmd_partition(module, held_by, &(vt_partition_options){.exact = true}));
  VT_TRY(vt_collectives_run(module, &passes));
  if (!only || c->by_device) VT_TRY(vt_spmd_lockstep(module, whole, held_by));
  if (c->by_device) VT_TRY(find_border(c, module, whole));
  vt_pass_options optimise = vt_host_passes(true);
  optimise.as_written = true;
  VT_TRY(vt_passes_run(module, &optimise));
  if (c->by_device && !vt_host_part_ready(module))
    return vt_error(VT_INTERNAL, "passes leave more than one manual computation");
  return VT_OK;
}

// Takes the module through all stages. only = 0: all parts in lockstep.
static vt_status compile(cut *c, int only, vt_program **out) {
  vt_module *module = NULL;
  VT_TRY(vt_import((vt_bytes){(const void *)c->t->text.data, c->t->text.size}, &module));
  int devices = module->num_partitions;
  vt_status st = cut_over_parts(c, module, only);
  if (st) {
    vt_module_destroy(module);
    return st;
  }
  return vt_host_compile(module,
                         &(vt_host_options){.device_count = c->by_device ? devices : c->count,
                                            .only = only,
                                            .part_of = only && c->by_device ? c->part_of : NULL,
                                            .exact_dots = true,
                                            .compile_all = true},
                         out);
}

// ---- parts of arrays ----------------------------------------------------------------------------

static void copy_part(const held *h, vt_tensor whole, void *data, bool in) {
  int64_t strides[VT_MAX_RANK];
  size_t bytes = vt_dtype_bytes(whole.type.dtype);
  vt_type_strides(whole.type, strides);
  for (int64_t i = 0; i < vt_type_elements(h->type); i++) {
    int64_t rest = i, from = 0;
    for (int32_t d = whole.type.rank; d-- > 0; rest /= h->type.dims[d])
      from += (h->at[d] + rest % h->type.dims[d]) * strides[d];
    char *a = (char *)whole.data + (size_t)from * bytes, *b = (char *)data + (size_t)i * bytes;
    memcpy(in ? b : a, in ? a : b, bytes);
  }
}

static void *run_part(void *user) {
  part *p = user;
  vt_queue queue;
  vt_queue_init(&queue);
  vt_meetings meetings = {
      .user = &p->loopback, .meet = vt_loopback_meet, .queue = &queue, .far = true};
  p->st = vt_program_run(p->compiled,
                         &(vt_run){.params = p->in, .results = p->out, .meetings = &meetings});
  if (p->st) vt_loopback_fail(p->loopback.all);
  vt_queue_fini(&queue);
  vt_loopback_forget(&p->loopback);
  return NULL;
}

static void feed(cut *c, part *p, int place) {
  const vt_func *main = c->t->program.module->main;
  p->in = VT_NEW_ARRAY(&c->t->arena, void *, main->param_count + 1);
  p->out = VT_NEW_ARRAY(&c->t->arena, void *, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    p->in[i] = vt_host_alloc(vt_type_bytes(c->params[i][place].type));
    copy_part(&c->params[i][place], c->t->args[i], p->in[i], true);
  }
  for (uint32_t i = 0; i < main->return_count; i++)
    p->out[i] = vt_host_alloc(vt_type_bytes(c->returns[i][place].type));
}

static vt_status run_parts(cut *c, part *parts, vt_loopback *all) {
  vt_status st = VT_OK;
  for (int p = 0; p < c->count && !st; p++) {
    st = compile(c, p + 1, &parts[p].compiled);
    parts[p].loopback = (vt_loopback_part){.all = all, .place = p};
    feed(c, &parts[p], p);
  }
  for (int p = 0; p < c->count && !st; p++) {
    parts[p].started = !pthread_create(&parts[p].thread, NULL, run_part, &parts[p]);
    if (!parts[p].started) st = vt_error_no_memory();
  }
  if (st) vt_loopback_fail(all);
  for (int p = 0; p < c->count; p++) {
    if (parts[p].started) pthread_join(parts[p].thread, NULL);
    if (parts[p].st && (!st || vt_status_code(st) == VT_CANCELLED)) {
      vt_status_free(st);
      st = parts[p].st;
    } else {
      vt_status_free(parts[p].st);
    }
  }
  return st;
}

// ---- the comparison -----------------------------------------------------------------------------

static double number_at(vt_tensor t, size_t byte) {
  if (vt_dtype_is_complex(t.type.dtype)) return 0;
  return vt_number_load(t.type.dtype, t.data, (int64_t)(byte / vt_dtype_bytes(t.type.dtype)));
}

// Each part's results, placed in the whole array, are bits that lockstep has there.
static verdict compare_parts(cut *c, const part *parts, vt_text *out_why) {
  const vt_func *main = c->t->program.module->main;
  for (int p = 0; p < c->count; p++)
    for (uint32_t i = 0; i < main->return_count; i++) {
      vt_type type = main->returns[i]->type;
      size_t bytes = (size_t)vt_type_bytes(type);
      vt_tensor whole = {type, vt_arena_push(&c->t->arena, bytes + 64)};
      memcpy(whole.data, c->t->got[i].data, bytes);
      copy_part(&c->returns[i][p], whole, parts[p].out[i], false);
      if (!bytes || !memcmp(whole.data, c->t->got[i].data, bytes)) continue;
      size_t at = 0;
      const uint8_t *a = whole.data, *b = c->t->got[i].data;
      while (a[at] == b[at]) at++;
      vt_text_printf(
          out_why, "result %u: part %d of %d has %g where lockstep has %g (byte %zu: %02x, %02x)",
          i, p, c->count, number_at(whole, at), number_at(c->t->got[i], at), at, a[at], b[at]);
      return VERDICT_PARTS;
    }
  return VERDICT_SAME;
}

static vt_status run_lockstep(cut *c) {
  trial *t = c->t;
  const vt_func *main = t->program.module->main;
  vt_program *compiled = NULL;
  VT_TRY(compile(c, 0, &compiled));
  void **in = VT_NEW_ARRAY(&t->arena, void *, main->param_count + 1);
  void **out = VT_NEW_ARRAY(&t->arena, void *, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    in[i] = vt_host_alloc(vt_type_bytes(t->args[i].type));
    memcpy(in[i], t->args[i].data, (size_t)vt_type_bytes(t->args[i].type));
  }
  for (uint32_t i = 0; i < main->return_count; i++)
    out[i] = vt_host_alloc(vt_type_bytes(t->got[i].type));
  vt_status st = vt_program_run(compiled, &(vt_run){.params = in, .results = out});
  for (uint32_t i = 0; i < main->return_count; i++) {
    if (!st) memcpy(t->got[i].data, out[i], (size_t)vt_type_bytes(t->got[i].type));
    vt_host_free(out[i]);
  }
  for (uint32_t i = 0; i < main->param_count; i++) vt_host_free(in[i]);
  vt_program_destroy(compiled);
  return st;
}

static verdict judge_parts(cut *c, vt_status st, const part *parts, vt_text *out_why) {
  if (st) {
    vt_text_printf(out_why, "%d parts: %s", c->count, vt_status_message(st));
    vt_status_free(st);
    return VERDICT_PARTS;
  }
  verdict v = trial_check(c->t, c->t->got, VERDICT_PARTS, out_why);
  return v ? v : compare_parts(c, parts, out_why);
}

verdict trial_parts(trial *t, int count, bool *out_cut, vt_text *out_why) {
  const vt_func *main = t->program.module->main;
  int devices = t->program.module->num_partitions;
  *out_cut = false;
  if (devices % count || devices > 64 || program_is_open(t->program.module)) return VERDICT_SAME;
  cut c = {.t = t, .count = count};
  c.params = VT_NEW_ARRAY(&t->arena, held *, main->param_count + 1);
  c.returns = VT_NEW_ARRAY(&t->arena, held *, main->return_count + 1);
  for (int d = 0; d < devices; d++) c.part_of[d] = d / (devices / count);
  c.by_device = vt_module_any(t->program.module, is_manual);
  vt_status st = run_lockstep(&c);
  if (st && vt_status_code(st) == VT_UNIMPLEMENTED) {
    vt_status_free(st); // it runs whole
    return VERDICT_SAME;
  }
  part parts[VT_LOOPBACK_MOST] = {0};
  vt_loopback all;
  vt_loopback_open(&all);
  *out_cut = true;
  if (!st) st = run_parts(&c, parts, &all);
  verdict v = judge_parts(&c, st, parts, out_why);
  for (int p = 0; p < count; p++) {
    vt_program_destroy(parts[p].compiled);
    for (uint32_t i = 0; parts[p].in && i < main->param_count; i++) vt_host_free(parts[p].in[i]);
    for (uint32_t i = 0; parts[p].in && i < main->return_count; i++) vt_host_free(parts[p].out[i]);
  }
  vt_loopback_close(&all);
  return v;
}
