// SPDX-License-Identifier: Apache-2.0
// compare.c - see compare.h.
#include "compare.h"

#include <assert.h>
#include <string.h>

#include "host/host.h"
#include "import/import.h"
#include "import/through_hlo.h"
#include "ir/sharding.h"
#include "passes/collectives.h"
#include "runtime/predict.h"
#include "spmd/spmd.h"
#include "unroll.h"

const char *verdict_name(verdict v) {
  static const char *const names[] = {"same",
                                      "the importer",
                                      "the evaluator",
                                      "what is read back from HLO",
                                      "the evaluator on all devices",
                                      "the program of one device",
                                      "the program cut over processes",
                                      "the prediction",
                                      "the host back end on evaluator steps",
                                      "the host back end",
                                      "XLA:CPU",
                                      "XLA:CPU on several devices"};
  return names[v];
}

// Takes `st`.
static verdict refused(vt_status st, verdict v, vt_text *out_why) {
  vt_text_printf(out_why, "%s", vt_status_message(st));
  vt_status_free(st);
  return v;
}

verdict trial_open(program p, trial *t, vt_text *out_why) {
  *t = (trial){.program = p};
  const vt_func *main = p.module->main;
  t->args = VT_NEW_ARRAY(&t->arena, vt_tensor, main->param_count + 1);
  t->got = VT_NEW_ARRAY(&t->arena, vt_tensor, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    vt_type type = main->params[i]->type;
    t->args[i] =
        (vt_tensor){type, vt_arena_push_aligned(&t->arena, (size_t)vt_type_bytes(type) + 192, 64)};
    program_fill(p.inputs[i], type, t->args[i].data);
  }
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_type type = main->returns[i]->type;
    t->got[i] =
        (vt_tensor){type, vt_arena_push_aligned(&t->arena, (size_t)vt_type_bytes(type) + 192, 64)};
  }
  t->plain = p.module;
  vt_status st = vt_module_verify(p.module);
  if (!st && p.module->num_partitions > 1) st = program_unroll(p.module, &t->plain);
  if (!st) st = judge_run(t->plain, t->plain != p.module, t->args, &t->arena, &t->want, &t->values);
  if (st) return refused(st, VERDICT_EVALUATOR, out_why);
  program_print(&t->program, &t->text);
  return VERDICT_SAME;
}

void trial_close(trial *t) {
  vt_text_free(&t->text);
  vt_arena_free(&t->arena);
  if (t->plain != t->program.module) vt_module_destroy(t->plain);
  program_destroy(&t->program);
}

verdict trial_check(trial *t, const vt_tensor *got, verdict otherwise, vt_text *out_why) {
  for (uint32_t i = 0; i < t->program.module->main->return_count; i++) {
    vt_text why = {0};
    bool same = judge_accepts(&t->want[i], got[i].data, &why);
    if (!same) vt_text_printf(out_why, "result %u: %s", i, vt_text_string(&why));
    vt_text_free(&why);
    if (!same) return otherwise;
  }
  return VERDICT_SAME;
}

// A run of the compiled program; with `donated`, results use the memory of parameters where they
// may.
static verdict run_compiled(trial *t, vt_program *compiled, bool donated, verdict otherwise,
                            vt_text *out_why) {
  uint32_t params = t->program.module->main->param_count,
           returns = t->program.module->main->return_count;
  void **in = VT_NEW_ARRAY(&t->arena, void *, params + 1);
  void **out = VT_NEW_ARRAY(&t->arena, void *, returns + 1);
  bool *shared = VT_NEW_ARRAY(&t->arena, bool, params + returns + 1);
  for (uint32_t i = 0; i < params; i++) {
    in[i] = vt_host_alloc(vt_type_bytes(t->args[i].type));
    memcpy(in[i], t->args[i].data, (size_t)vt_type_bytes(t->args[i].type));
  }
  for (uint32_t r = 0; r < returns; r++) {
    for (uint32_t i = 0; i < params && donated && !out[r]; i++)
      if (vt_program_may_alias(compiled, i, r)) {
        out[r] = in[i];
        shared[i] = shared[params + r] = true;
      }
    if (out[r]) continue;
    out[r] = vt_host_alloc(vt_type_bytes(t->got[r].type));
    memset(out[r], 0xA5, (size_t)vt_type_bytes(t->got[r].type));
  }
  vt_status st = vt_program_run(compiled, &(vt_run){.params = in, .results = out});
  verdict v = VERDICT_SAME;
  if (st) {
    v = refused(st, otherwise, out_why);
  } else {
    for (uint32_t i = 0; i < returns; i++)
      memcpy(t->got[i].data, out[i], (size_t)vt_type_bytes(t->got[i].type));
    v = trial_check(t, t->got, otherwise, out_why);
  }
  for (uint32_t i = 0; i < params; i++) {
    if (!v && !shared[i] &&
        memcmp(in[i], t->args[i].data, (size_t)vt_type_bytes(t->args[i].type))) {
      vt_text_printf(out_why, "input %u was written", i);
      v = otherwise;
    }
    vt_host_free(in[i]);
  }
  for (uint32_t i = 0; i < returns; i++)
    if (!shared[params + i]) vt_host_free(out[i]);
  return v;
}

// Takes `module`.
static verdict run_host(trial *t, vt_module *module, vt_host_options options, verdict otherwise,
                        vt_text *out_why) {
  vt_program *compiled = NULL;
  options.device_count = t->program.module->num_partitions;
  uint32_t params = module->main->param_count, returns = module->main->return_count;
  vt_pass_options passes = vt_host_passes(options.exact_dots);
  passes.as_written = true;
  vt_status st = options.evaluator_only ? VT_OK : vt_passes_run(module, &passes);
  if (st)
    vt_module_destroy(module);
  else
    st = vt_host_compile(module, &options, &compiled);
  if (st) return refused(st, otherwise, out_why);
  verdict v = run_compiled(t, compiled, false, otherwise, out_why);
  bool donates = false;
  for (uint32_t i = 0; i < params * returns; i++)
    donates = donates || vt_program_may_alias(compiled, i / returns, i % returns);
  if (!v && donates) {
    v = run_compiled(t, compiled, true, otherwise, out_why);
    if (v) vt_text_put(out_why, " (donated)");
  }
  vt_program_destroy(compiled);
  return v;
}

static verdict run_text(trial *t, vt_host_options options, verdict otherwise, vt_text *out_why) {
  vt_module *module = NULL;
  vt_status st = vt_import((vt_bytes){(const void *)t->text.data, t->text.size}, &module);
  if (st) return refused(st, VERDICT_IMPORT, out_why);
  return run_host(t, module, options, otherwise, out_why);
}

// The program unchanged, all devices in lockstep, on the kernels alone.
static verdict run_lockstep(trial *t, vt_text *out_why) {
  vt_eval_env env = {
      .partition_count = t->program.module->num_partitions, .replica_count = 1, .exact_dots = true};
  vt_status st = vt_eval_func(t->program.module->main, &env, t->args, t->got);
  return st ? refused(st, VERDICT_LOCKSTEP, out_why)
            : trial_check(t, t->got, VERDICT_LOCKSTEP, out_why);
}

static vt_status partition(vt_module *module, bool poison) {
  const vt_func *whole = module->main;
  int32_t devices = module->num_partitions;
  vt_spmd_inline(module, true);
  VT_TRY(vt_spmd_annotate(module, devices));
  VT_TRY(
      vt_spmd_partition(module, devices, &(vt_partition_options){.poison = poison, .exact = true}));
  vt_collective_options passes = vt_collectives_default();
  if (!poison) VT_TRY(vt_collectives_run(module, &passes));
  return vt_spmd_lockstep(module, whole, devices);
}

// The program of one device, on all devices in lockstep: on the kernels, with NaN in its padding,
// and on the host back end, after the passes over its collectives. A result that may differ between
// its holders is nobody's to judge.
static verdict run_partitioned(trial *t, vt_text *out_why) {
  vt_module *module = NULL;
  vt_host_options code = {.exact_dots = true, .compile_all = true, .turn_images = true};
  vt_eval_env env = {
      .partition_count = t->program.module->num_partitions, .replica_count = 1, .exact_dots = true};
  if (program_is_open(t->program.module)) return VERDICT_SAME;
  for (int poison = 1; poison >= 0; poison--) {
    vt_status st = vt_import((vt_bytes){(const void *)t->text.data, t->text.size}, &module);
    if (st) return refused(st, VERDICT_IMPORT, out_why);
    st = partition(module, poison);
    if (!st && poison) st = vt_eval_func(module->main, &env, t->args, t->got);
    verdict v = VERDICT_SAME;
    if (st) v = refused(st, VERDICT_PARTITIONED, out_why);
    if (!v && poison) v = trial_check(t, t->got, VERDICT_PARTITIONED, out_why);
    if (!v && !poison) return run_host(t, module, code, VERDICT_PARTITIONED, out_why);
    vt_module_destroy(module);
    if (v) return v;
  }
  return VERDICT_SAME;
}

// What a slice would need: an answer, and the same each time.
static verdict run_prediction(trial *t, vt_text *out_why) {
  vt_slice slice;
  double first = 0;
  if (program_is_open(t->program.module)) return VERDICT_SAME;
  vt_status st = vt_slice_from_name("v5litepod-16", &slice);
  for (int again = 0; again < 2 && !st; again++) {
    vt_prediction prediction;
    vt_arena arena = {0};
    st = vt_predict((vt_bytes){(const void *)t->text.data, t->text.size}, &slice, &arena,
                    &prediction);
    if (!st) {
      double now = prediction.timing.seconds;
      if (!(now > 0 && now < 1) || (again && now != first))
        st = vt_error(VT_INTERNAL, "%g s, %g s", first, now);
      first = now;
      vt_prediction_free(&prediction);
    }
    vt_arena_free(&arena);
  }
  return st ? refused(st, VERDICT_PREDICTION, out_why) : VERDICT_SAME;
}

verdict trial_host(trial *t, vt_text *out_why) {
  vt_host_options plan = {.exact_dots = true, .evaluator_only = true};
  vt_host_options code = {.exact_dots = true, .compile_all = true, .turn_images = true};
  verdict v = t->plain == t->program.module ? VERDICT_SAME : run_lockstep(t, out_why);
  if (!v && t->plain != t->program.module) v = run_partitioned(t, out_why);
  for (int parts = 2; parts <= 4 && !v && t->plain != t->program.module; parts += 2) {
    bool cut;
    v = trial_parts(t, parts, &cut, out_why);
    t->cut += cut;
  }
  if (!v) v = run_prediction(t, out_why);
  if (!v) v = run_text(t, plan, VERDICT_PLAN, out_why);
  return v ? v : run_text(t, code, VERDICT_HOST, out_why);
}

verdict trial_hlo(trial *t, vt_text *out_why) {
  vt_eval_env env = {.exact_dots = true};
  verdict v = VERDICT_SAME;
  for (int text = 0; text < 2 && !v; text++) {
    vt_module *again = NULL;
    vt_status st = vt_through_hlo(t->plain, text, &again);
    if (!st && !again) return VERDICT_SAME;
    if (!st) st = vt_eval_func(again->main, &env, t->args, t->got);
    bool unsaid =
        st && vt_status_code(st) == VT_UNIMPLEMENTED; // a custom call for want of an opcode
    if (unsaid) vt_status_free(st);
    if (!unsaid)
      v = st ? refused(st, VERDICT_HLO, out_why) : trial_check(t, t->got, VERDICT_HLO, out_why);
    if (v) vt_text_put(out_why, text ? " (text)" : " (message)");
    vt_module_destroy(again);
  }
  return v;
}

static void hide_constants(vt_func *func) {
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    if (vt_op_info_get(op->code)->flags & VT_OPF_CONTROL)
      for (uint32_t r = 0; r < op->region_count; r++) hide_constants(op->regions[r]);
    if (op->code != VT_OP_CONSTANT && op->code != VT_OP_IOTA) continue;
    vt_value *value = &op->results[0];
    vt_op *barrier = vt_op_create(func, VT_OP_OPTIMIZATION_BARRIER, &vt_loc_unknown, 1, &value, 1,
                                  &value->type, 0);
    vt_value_replace(value, &barrier->results[0]); // the barrier is not inserted yet
    if (next)
      vt_op_insert(next, barrier);
    else
      vt_op_append(func, barrier);
  }
}

void xla_hide_constants(vt_module *module) {
  for (uint32_t i = 0; i < module->func_count; i++) hide_constants(module->funcs[i]);
}

static bool is_given(const vt_op *op) {
  return op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA;
}

uint32_t trial_cut(trial *t, vt_func *func, vt_tensor **out_fed) {
  const vt_func *main = t->plain->main;
  uint32_t results = 0, count = 0;
  for (const vt_op *op = main->first; op; op = op->next) results += op->result_count;
  *out_fed = VT_NEW_ARRAY(&t->arena, vt_tensor, results + 1);
  const judged *value = t->values;
  vt_op *copy = func->first;
  func->param_info = NULL; // its length was the old parameter count
  for (const vt_op *op = main->first; op; op = op->next) {
    vt_op *next = copy->next;
    assert(copy->code == op->code);
    if (is_given(op) || (!t->ask_all && xla_known(op))) {
      for (uint32_t i = 0; i < op->result_count; i++) {
        vt_value_replace(&copy->results[i], vt_func_add_param(func, op->results[i].type));
        (*out_fed)[count++] = value[i].center;
      }
      vt_op_remove(copy);
    }
    value += op->result_count;
    copy = next;
  }
  return count;
}

verdict trial_xla(trial *t, xla *x, bool *out_refused, vt_text *out_why) {
  *out_refused = false;
  vt_module *module = NULL;
  vt_text text = {0};
  vt_module_print(t->plain, -1, &text);
  vt_status st = vt_import((vt_bytes){(const void *)text.data, text.size}, &module);
  vt_text_free(&text);
  if (st) return refused(st, VERDICT_IMPORT, out_why);
  vt_func *main = module->main;
  uint32_t params = main->param_count;
  vt_tensor *fed;
  uint32_t cut = trial_cut(t, main, &fed);
  vt_tensor *args = VT_NEW_ARRAY(&t->arena, vt_tensor, params + cut + 1);
  memcpy(args, t->args, sizeof *args * params);
  memcpy(args + params, fed, sizeof *args * cut);
  xla_hide_constants(module);
  vt_module_print(module, -1, &text);
  *out_refused =
      !xla_run(x, text.data, text.size, 1, params + cut, args, main->return_count, t->got, out_why);
  vt_text_free(&text);
  vt_module_destroy(module);
  return *out_refused ? VERDICT_SAME : trial_check(t, t->got, VERDICT_XLA, out_why);
}

static bool any_packed(uint32_t count, vt_value *const *values) {
  for (uint32_t i = 0; i < count; i++) {
    vt_dtype dtype = values[i]->type.dtype;
    if (dtype != VT_PRED && vt_dtype_get(dtype)->bits < 8) return true;
  }
  return false;
}

// XLA:CPU moves arrays of types of fewer than 8 bits between devices as if they were bytes.
static bool has_known(const vt_func *main) {
  for (const vt_op *op = main->first; op; op = op->next)
    if (xla_known(op)) return true;
  return any_packed(main->param_count, main->params) ||
         any_packed(main->return_count, main->returns);
}

// Placement of arrays on the devices: as the program says, otherwise whole on each.
static vt_io_info *places(vt_module *m, uint32_t count, vt_value *const *values,
                          const vt_io_info *given) {
  vt_io_info *infos = VT_NEW_ARRAY(&m->arena, vt_io_info, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    int32_t rank = values[i]->type.rank;
    vt_sharding *s = VT_NEW(&m->arena, vt_sharding);
    vt_dim_sharding *dims = VT_NEW_ARRAY(&m->arena, vt_dim_sharding, rank + 1);
    for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){.closed = true, .priority = -1};
    *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = m->meshes[0], .rank = rank, .dims = dims};
    infos[i] = (vt_io_info){.sharding = given && given[i].sharding ? given[i].sharding : s,
                            .alias_output = -1,
                            .memory_kind = "",
                            .layout_mode = "",
                            .name = ""};
  }
  return infos;
}

// The tile of an array with this sharding on `device`, allocated in the trial's arena.
static vt_tensor tile_for(trial *t, const vt_sharding *s, vt_type whole, int device) {
  int64_t index[VT_MAX_RANK], counts[VT_MAX_RANK], dims[VT_MAX_RANK];
  program_tile(s, device, index, counts);
  for (int32_t d = 0; d < whole.rank; d++) dims[d] = whole.dims[d] / counts[d];
  vt_type type = vt_type_make(&t->arena, whole.dtype, whole.rank, dims);
  return (vt_tensor){type, vt_arena_push_aligned(&t->arena, (size_t)vt_type_bytes(type) + 192, 64)};
}

// Copies between the whole array and the tile of `device`, element by element.
static void copy_tile(const vt_sharding *s, int device, vt_tensor whole, vt_tensor tile, bool in) {
  int64_t index[VT_MAX_RANK], counts[VT_MAX_RANK];
  size_t bytes = vt_dtype_bytes(whole.type.dtype);
  program_tile(s, device, index, counts);
  for (int64_t i = 0; i < vt_type_elements(tile.type); i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (int32_t d = whole.type.rank; d-- > 0; stride *= whole.type.dims[d]) {
      at += (rest % tile.type.dims[d] + index[d] * tile.type.dims[d]) * stride;
      rest /= tile.type.dims[d];
    }
    char *a = (char *)whole.data + (size_t)at * bytes, *b = (char *)tile.data + (size_t)i * bytes;
    memcpy(in ? a : b, in ? b : a, bytes);
  }
}

// Checks each device's tiles, placed in the whole array after those of the others.
static verdict check_tiles(trial *t, const vt_io_info *infos, int devices, uint32_t count,
                           const vt_tensor *got, vt_text *out_why) {
  for (int d = 0; d < devices; d++) {
    for (uint32_t r = 0; r < count; r++)
      for (int e = devices; e >= 0; e--) {
        int from = e ? e - 1 : d; // its own last
        copy_tile(infos[r].sharding, from, t->got[r], got[(uint32_t)from * count + r], true);
      }
    verdict v = trial_check(t, t->got, VERDICT_XLA_MESH, out_why);
    if (v) {
      vt_text_printf(out_why, " (device %d)", d);
      return v;
    }
  }
  return VERDICT_SAME;
}

// Removes the sharding annotations.
static void unmark(vt_func *func) {
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t r = 0; r < op->region_count; r++) unmark(op->regions[r]);
    if (op->code != VT_OP_RESHARD && op->code != VT_OP_SHARDING_CONSTRAINT) continue;
    vt_value_replace(&op->results[0], op->operands[0]);
    vt_op_remove(op);
  }
}

verdict trial_xla_mesh(trial *t, xla *x, bool *out_asked, bool *out_refused, vt_text *out_why) {
  const vt_module *meshed = t->program.module;
  int devices = meshed->num_partitions;
  vt_module *module = NULL;
  vt_text text = {0};
  *out_refused = false;
  *out_asked = t->plain != meshed && devices <= xla_devices(x) &&
               (t->ask_all || !has_known(meshed->main)) && !program_is_open(meshed);
  if (!*out_asked) return VERDICT_SAME;
  vt_status st = vt_import((vt_bytes){(const void *)t->text.data, t->text.size}, &module);
  if (st) return refused(st, VERDICT_IMPORT, out_why);
  vt_func *main = module->main;
  uint32_t params = main->param_count, count = main->return_count;
  // XLA's partitioner has bugs of its own where it shards what the program leaves open.
  main->param_info = places(module, params, main->params, t->ask_all ? main->param_info : NULL);
  main->return_info = places(module, count, main->returns, t->ask_all ? main->return_info : NULL);
  vt_tensor *args = VT_NEW_ARRAY(&t->arena, vt_tensor, (size_t)devices * params + 1);
  vt_tensor *got = VT_NEW_ARRAY(&t->arena, vt_tensor, (size_t)devices * count + 1);
  for (uint32_t i = 0; i < (uint32_t)devices * params; i++) {
    const vt_sharding *s = main->param_info[i % params].sharding;
    args[i] = tile_for(t, s, t->args[i % params].type, (int)(i / params));
    copy_tile(s, (int)(i / params), t->args[i % params], args[i], false);
  }
  for (uint32_t i = 0; i < (uint32_t)devices * count; i++)
    got[i] = tile_for(t, main->return_info[i % count].sharding, t->got[i % count].type,
                      (int)(i / count));
  xla_hide_constants(module);
  for (uint32_t i = 0; i < module->func_count && !t->ask_all; i++) unmark(module->funcs[i]);
  vt_module_print(module, -1, &text);
  *out_refused = !xla_run(x, text.data, text.size, devices, params, args, count, got, out_why);
  verdict v =
      *out_refused ? VERDICT_SAME : check_tiles(t, main->return_info, devices, count, got, out_why);
  vt_text_free(&text);
  vt_module_destroy(module);
  return v;
}
