// SPDX-License-Identifier: Apache-2.0
// partition_test.c - the program of one device, run on all devices in lockstep, gives what the
// whole program gives: for every op, under random shardings of every value.
//
// A case is a program without shardings. Each round gives every parameter, result and value a
// random sharding over a random mesh - sizes need not divide inside - partitions the program, and
// runs both with the evaluator, the program of one device in lockstep on all. Padding holds NaN, so
// that any read of it shows. Then the same with the passes over collectives in between.
//
//   partition_test [CASE [ROUND]]     one case; one round, printing both programs
//   partition_test CASE FROM TO       rounds FROM to TO - 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/eval.h"
#include "import/import.h"
#include "passes/collectives.h"
#include "spmd/partition/random_programs.h"
#include "spmd/spmd.h"

enum { ROUNDS = 60, RANDOM_ROUNDS = 300 };

typedef struct program {
  const char *name, *text;
} program;
static const program programs[] = {
#include "spmd/partition/programs.def"
};
// Another program in each round.
static const struct {
  const char *name;
  void (*write)(vt_text *out, vt_random_fn *random);
} writers[] = {{"random gather", vt_write_random_gather},
               {"random scatter", vt_write_random_scatter},
               {"random windows", vt_write_random_windows}};
enum { WRITERS = sizeof writers / sizeof *writers };
enum { PROGRAMS = sizeof programs / sizeof *programs };

// ---- random numbers -----------------------------------------------------------------------------

static uint64_t random_state;
static uint32_t next_random(uint32_t limit) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % limit;
}

static void shuffle(uint32_t count, uint32_t *out) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t j = next_random(i + 1);
    out[i] = out[j];
    out[j] = i;
  }
}

// ---- random shardings ---------------------------------------------------------------------------

static const int64_t meshes[][4] = {{8}, {4, 2}, {2, 4}, {2, 2, 2}, {3, 2}, {5}, {2, 3, 2}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static const vt_mesh *make_mesh(vt_module *module, const int64_t *sizes) {
  static const char *const names[] = {"x", "y", "z", "w"};
  vt_mesh *mesh = VT_NEW(&module->arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(&module->arena, vt_mesh_axis, 4);
  *mesh = (vt_mesh){.name = "m", .axes = axes};
  for (; mesh->axis_count < 4 && sizes[mesh->axis_count]; mesh->axis_count++)
    axes[mesh->axis_count] = (vt_mesh_axis){names[mesh->axis_count], sizes[mesh->axis_count]};
  if (next_random(4) == 0) { // devices in another order
    uint32_t count = (uint32_t)vt_mesh_size(mesh), order[64];
    int64_t *ids = VT_NEW_ARRAY(&module->arena, int64_t, count);
    shuffle(count, order);
    for (uint32_t i = 0; i < count; i++) ids[i] = order[i];
    mesh->device_ids = ids;
    mesh->device_count = count;
  }
  return mesh;
}

// One device holds the array.
static const vt_sharding *make_maximal(vt_module *module, const vt_mesh *mesh) {
  vt_sharding *s = VT_NEW(&module->arena, vt_sharding);
  vt_mesh *one = VT_NEW(&module->arena, vt_mesh);
  int64_t *device = VT_NEW(&module->arena, int64_t);
  *device = next_random((uint32_t)vt_mesh_size(mesh));
  *one = (vt_mesh){.name = "", .axes = NULL, .device_count = 1, .device_ids = device};
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = one};
  return s;
}

// A whole axis, or the major or the minor part of it.
static vt_axis_ref take_axis(const vt_mesh *mesh, uint32_t axis) {
  int64_t size = mesh->axes[axis].size;
  if (size % 2 || size == 2 || next_random(3)) return (vt_axis_ref){axis, 1, size};
  return next_random(2) ? (vt_axis_ref){axis, 1, 2} : (vt_axis_ref){axis, 2, size / 2};
}

// Axes are dealt to dimensions at random, some to none. `even`: only where sizes divide.
static const vt_sharding *make_sharding(vt_module *module, const vt_mesh *mesh, vt_type type,
                                        bool even) {
  if (next_random(6) == 0 || type.dtype == VT_TOKEN) return NULL;
  if (next_random(16) == 0) return make_maximal(module, mesh);
  vt_sharding *s = VT_NEW(&module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&module->arena, vt_dim_sharding, type.rank + 1);
  uint32_t order[4] = {0};
  shuffle(mesh->axis_count, order);
  for (int32_t d = 0; d < type.rank; d++)
    dims[d] = (vt_dim_sharding){0, VT_NEW_ARRAY(&module->arena, vt_axis_ref, 4), true, -1};
  for (uint32_t i = 0; i < mesh->axis_count && type.rank; i++) {
    uint32_t d = next_random((uint32_t)type.rank + 1);
    if (d == (uint32_t)type.rank) continue;
    vt_axis_ref axis = take_axis(mesh, order[i]);
    int64_t tiles = axis.size;
    for (uint32_t a = 0; a < dims[d].axis_count; a++) tiles *= dims[d].axes[a].size;
    if (even && type.dims[d] % tiles) continue;
    vt_axis_ref *axes = (vt_axis_ref *)(uintptr_t)dims[d].axes;
    axes[dims[d].axis_count++] = axis;
  }
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = type.rank, .dims = dims};
  return s;
}

static bool uses_axis(const vt_sharding *s, uint32_t axis) {
  for (int32_t d = 0; d < s->rank; d++)
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++)
      if (s->dims[d].axes[i].axis == axis) return true;
  return false;
}

// The sharding with axes unreduced that it does not use, or parts of them, as a sum or another
// reduction: whatever the op would leave apart.
static const vt_sharding *make_unreduced(vt_module *module, const vt_sharding *s, vt_type type) {
  if (!s || !s->mesh->axis_count || type.dtype == VT_TOKEN) return s;
  vt_sharding *copy = VT_NEW(&module->arena, vt_sharding);
  vt_axis_ref *refs = VT_NEW_ARRAY(&module->arena, vt_axis_ref, s->mesh->axis_count);
  *copy = *s;
  for (uint32_t axis = 0; axis < s->mesh->axis_count; axis++)
    if (!uses_axis(s, axis) && next_random(3))
      refs[copy->unreduced_count++] = take_axis(s->mesh, axis);
  copy->unreduced = refs;
  if (type.dtype != VT_PRED && next_random(4) == 0) copy->reduction = 1 + (int32_t)next_random(2);
  return copy;
}

static void annotate_func(vt_module *module, const vt_mesh *mesh, vt_func *func) {
  for (vt_op *op = func->first; op; op = op->next) {
    if (!op->result_count) continue;
    const vt_sharding **list = VT_NEW_ARRAY(&module->arena, const vt_sharding *, op->result_count);
    for (uint32_t i = 0; i < op->result_count; i++)
      list[i] = make_sharding(module, mesh, op->results[i].type, false);
    for (uint32_t i = 0; i < op->result_count; i++)
      if (next_random(4) == 0) list[i] = make_unreduced(module, list[i], op->results[i].type);
    vt_op_set_attr(
        op, (vt_attr){.key = VT_ATTR_SHARDING, .count = op->result_count, .shardings = list});
    bool control = op->code == VT_OP_WHILE || op->code == VT_OP_IF || op->code == VT_OP_CASE;
    for (uint32_t i = 0; control && i < op->region_count; i++)
      annotate_func(module, mesh, op->regions[i]);
  }
}

// Another mesh of as many devices.
static const vt_mesh *make_other_mesh(vt_module *module, const vt_mesh *mesh) {
  for (;;) {
    const int64_t *sizes = meshes[next_random(MESHES)];
    int64_t devices = 1;
    for (int i = 0; i < 4 && sizes[i]; i++) devices *= sizes[i];
    if (devices != vt_mesh_size(mesh)) continue;
    vt_mesh *other = (vt_mesh *)(uintptr_t)make_mesh(module, sizes);
    other->name = "n";
    return other;
  }
}

// ---- manual computations ------------------------------------------------------------------------

// The manual axes cut dimensions major to all others, and divide what they cut.
static const vt_sharding *make_manual_sharding(vt_module *module, const vt_mesh *mesh,
                                               uint32_t manual, vt_type type, int64_t *out_local) {
  vt_sharding *s = VT_NEW(&module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&module->arena, vt_dim_sharding, type.rank + 1);
  for (int32_t d = 0; d < type.rank; d++) {
    dims[d] = (vt_dim_sharding){0, VT_NEW_ARRAY(&module->arena, vt_axis_ref, 4), true, -1};
    out_local[d] = type.dims[d];
  }
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t axis = 0; axis < mesh->axis_count; axis++) {
      uint32_t d = next_random((uint32_t)type.rank + 1);
      int64_t size = mesh->axes[axis].size;
      if ((manual >> axis & 1) == pass || d == (uint32_t)type.rank) continue;
      if (!pass && out_local[d] % size) continue;
      if (!pass) out_local[d] /= size;
      vt_axis_ref *axes = (vt_axis_ref *)(uintptr_t)dims[d].axes;
      axes[dims[d].axis_count++] = (vt_axis_ref){axis, 1, size};
    }
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = type.rank, .dims = dims};
  return s;
}

// The tiles of a value, negated twice.
static vt_func *make_manual_body(vt_module *module, const vt_mesh *mesh, vt_type local) {
  vt_func *body = vt_func_create(module, "");
  vt_value *v = vt_func_add_param(body, local);
  for (int i = 0; i < 2; i++) v = vt_build(body, NULL, VT_OP_NEGATE, &vt_loc_unknown, local, 1, &v);
  vt_func_set_returns(body, 1, &v);
  for (vt_op *op = body->first; op; op = op->next) {
    const vt_sharding **list = VT_NEW(&module->arena, const vt_sharding *);
    *list = make_sharding(module, mesh, local, false);
    if (*list && vt_sharding_is_maximal(*list)) *list = NULL;
    vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
  }
  return body;
}

// A value passes through a manual computation over some of the axes that leaves it as it is.
static void add_manual(vt_module *module, const vt_mesh *mesh) {
  vt_op *chosen = NULL;
  uint32_t seen = 0, manual = 1 + next_random((1u << mesh->axis_count) - 1);
  for (vt_op *op = module->main->first; op; op = op->next)
    if (op->result_count == 1 && op->results[0].type.dtype == VT_F32 && !next_random(++seen))
      chosen = op;
  if (!chosen) return;
  vt_arena *arena = &module->arena;
  vt_value *value = &chosen->results[0];
  int64_t dims[VT_MAX_RANK];
  const vt_sharding **list = VT_NEW(arena, const vt_sharding *);
  *list = make_manual_sharding(module, mesh, manual, value->type, dims);
  vt_type local = vt_type_make(arena, value->type.dtype, value->type.rank, dims);
  vt_op *op = vt_op_create(module->main, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, 1, &value, 1,
                           &value->type, 1);
  op->regions[0] = make_manual_body(module, mesh, local);
  vt_string *names = VT_NEW_ARRAY(arena, vt_string, mesh->axis_count);
  uint32_t count = 0;
  for (uint32_t a = 0; a < mesh->axis_count; a++)
    if (manual >> a & 1)
      names[count++] = (vt_string){mesh->axes[a].name, strlen(mesh->axes[a].name)};
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = 1, .shardings = list});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = 1, .shardings = list});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = count, .strings = names});
  vt_value_replace(value, &op->results[0]);
  if (chosen->next)
    vt_op_insert(chosen->next, op);
  else
    vt_op_append(module->main, op);
}

static void annotate(vt_module *module, const vt_mesh *mesh) {
  vt_func *main = module->main;
  vt_arena *arena = &module->arena;
  main->param_info = VT_NEW_ARRAY(arena, vt_io_info, main->param_count + 1);
  main->return_info = VT_NEW_ARRAY(arena, vt_io_info, main->return_count + 1);
  const vt_mesh *other = next_random(4) ? mesh : make_other_mesh(module, mesh);
  for (uint32_t i = 0; i < main->param_count + main->return_count; i++) {
    bool param = i < main->param_count;
    uint32_t k = param ? i : i - main->param_count;
    vt_io_info *info = param ? &main->param_info[k] : &main->return_info[k];
    *info = (vt_io_info){.alias_output = -1, .memory_kind = "", .layout_mode = "", .name = ""};
    vt_type type = param ? main->params[k]->type : main->returns[k]->type;
    info->sharding = make_sharding(module, next_random(2) ? mesh : other, type, true);
  }
  annotate_func(module, mesh, main);
  if (next_random(3) == 0) add_manual(module, mesh);
  const vt_mesh **list = VT_NEW_ARRAY(arena, const vt_mesh *, 2);
  list[0] = mesh;
  list[1] = other;
  module->meshes = list;
  module->mesh_count = mesh == other ? 1 : 2;
}

// ---- running ------------------------------------------------------------------------------------

static vt_module *read_program(const char *text) {
  vt_text out = {0};
  vt_module *module = NULL;
  vt_text_printf(&out, "module @test {\nfunc.func public @main%s\n}\n", text);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)out.data, out.size}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), vt_text_string(&out));
  vt_text_free(&out);
  return module;
}

static vt_tensor new_tensor(vt_arena *arena, vt_type type) {
  return (vt_tensor){type, vt_arena_push(arena, (size_t)vt_type_bytes(type) + 16)};
}

static void fill(vt_tensor t) {
  for (int64_t i = 0; i < vt_type_elements(t.type); i++) {
    int value = (int)next_random(9) - 4;
    if (t.type.dtype == VT_F32)
      ((float *)t.data)[i] = (float)value;
    else if (t.type.dtype == VT_S32)
      ((int32_t *)t.data)[i] = value;
    else
      ((uint8_t *)t.data)[i] = (uint8_t)(value & 1);
  }
}

static bool close_enough(vt_tensor got, vt_tensor want) {
  if (want.type.dtype != VT_F32)
    return !memcmp(got.data, want.data, (size_t)vt_type_bytes(want.type));
  for (int64_t i = 0; i < vt_type_elements(want.type); i++) {
    float a = ((float *)got.data)[i], b = ((float *)want.data)[i];
    float off = a > b ? a - b : b - a, size = b < 0 ? -b : b;
    if (a != b && !(a != a && b != b) && !(off <= 1e-4f * (1 + size))) return false;
  }
  return true;
}

static void run(const vt_module *module, int32_t devices, const vt_tensor *args,
                vt_tensor *results) {
  vt_eval_env env = {.partition_count = devices, .replica_count = 1, .exact_dots = true};
  vt_status st = vt_eval_func(module->main, &env, args, results);
  if (st) {
    vt_text text = {0};
    vt_module_print(module, false, &text);
    fail_msg("%s\n%s", vt_status_message(st), vt_text_string(&text));
  }
}

static void show(const vt_module *module) {
  vt_text text = {0};
  vt_module_print(module, false, &text);
  printf("%s\n", vt_text_string(&text));
  vt_text_free(&text);
}

static void seed(int round) {
  random_state = (uint64_t)round * 7919 + 17;
}

// In some rounds what is combined is small, so that there are several sets.
static vt_status run_passes(vt_module *module, int round) {
  vt_collective_options options = vt_collectives_default();
  if (round % 3 == 0) options.all_reduce.bytes = options.others.bytes = 256;
  return vt_collectives_run(module, &options);
}

static void check_round(const program *prog, int round, bool passes, bool print) {
  vt_arena arena = {0};
  vt_module *plain = read_program(prog->text), *module = read_program(prog->text);
  const vt_mesh *mesh = make_mesh(module, meshes[next_random(MESHES)]);
  int32_t devices = (int32_t)vt_mesh_size(mesh);
  annotate(module, mesh);
  const vt_func *whole = module->main;
  if (print) show(module);
  vt_status st = vt_spmd_partition(module, devices, &(vt_partition_options){.poison = true});
  if (!st && passes) st = run_passes(module, round);
  if (!st) st = vt_module_verify(module);
  if (print) show(module);
  if (st) fail_msg("%s, round %d: %s", prog->name, round, vt_status_message(st));
  st = vt_spmd_lockstep(module, whole, devices);
  if (st) fail_msg("%s, round %d: %s", prog->name, round, vt_status_message(st));
  vt_tensor args[8], want[8], got[8];
  for (uint32_t i = 0; i < whole->param_count; i++) {
    args[i] = new_tensor(&arena, whole->params[i]->type);
    fill(args[i]);
  }
  for (uint32_t i = 0; i < whole->return_count; i++) {
    want[i] = new_tensor(&arena, whole->returns[i]->type);
    got[i] = new_tensor(&arena, whole->returns[i]->type);
  }
  run(plain, devices, args, want);
  run(module, devices, args, got);
  for (uint32_t i = 0; i < whole->return_count; i++)
    if (!close_enough(got[i], want[i]))
      fail_msg("%s, round %d%s: result %u differs", prog->name, round, passes ? ", passes" : "", i);
  vt_arena_free(&arena);
  vt_module_destroy(plain);
  vt_module_destroy(module);
}

static void check_both(const program *prog, int round, bool print) {
  uint64_t state = random_state;
  check_round(prog, round, false, print);
  random_state = state;
  check_round(prog, round, true, print);
}

static const char *only;
static int from = -1, to = -1;

// Rounds of a case: none of those that are not asked for.
static void rounds_of(const char *name, int rounds, int *first, int *end) {
  *first = from < 0 ? 0 : from;
  *end = from < 0 ? rounds : to < 0 ? from + 1 : to;
  if (only && strcmp(only, name)) *end = *first;
}

static void partitioned_is_whole(void **state) {
  (void)state;
  int round, end;
  bool print = from >= 0 && to < 0;
  for (int i = 0; i < PROGRAMS; i++)
    for (rounds_of(programs[i].name, ROUNDS, &round, &end); round < end; round++) {
      seed(round);
      check_both(&programs[i], round, print);
    }
  for (int i = 0; i < WRITERS; i++)
    for (rounds_of(writers[i].name, RANDOM_ROUNDS, &round, &end); round < end; round++) {
      vt_text text = {0};
      seed(round);
      writers[i].write(&text, next_random);
      check_both(&(program){writers[i].name, vt_text_string(&text)}, round, print);
      vt_text_free(&text);
    }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(partitioned_is_whole)};
  if (argc > 1) only = argv[1];
  if (argc > 2) from = atoi(argv[2]);
  if (argc > 3) to = atoi(argv[3]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
