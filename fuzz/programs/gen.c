// SPDX-License-Identifier: Apache-2.0
// gen.c - random programs: choices, the pool of values, the table of ops.
#include "gen.h"

#include <string.h>

#include "base/text.h"
#include "ir/number.h"
#include "gen_makers.h"
#include "host/wide_chains.h"
#include "ir/sharding.h"

static const gen_row rows[VT_OP_COUNT] = {
#define GEN(op, make_, weight_, dtypes_, steady_, loose_)                                          \
  [VT_OP_##op] = {VT_OP_##op, gen_##make_, weight_, dtypes_, steady_, loose_, false},
#define MESH(op, place, make_, weight_, dtypes_, steady_, loose_)                                  \
  [VT_OP_##op] = {VT_OP_##op, gen_##make_, weight_, dtypes_, steady_, loose_, true},
#define LEFT_OUT(op, ...) [VT_OP_##op] = {.code = VT_OP_##op},
#include "gen_ops.def"
#undef GEN
#undef MESH
#undef LEFT_OUT
};
// A row for each op of ir/ops.def, and none twice.
enum {
#define GEN(op, ...)      GEN_ROW_##op,
#define MESH(op, ...)     GEN_ROW_##op,
#define LEFT_OUT(op, ...) GEN_ROW_##op,
#include "gen_ops.def"
#undef GEN
#undef MESH
#undef LEFT_OUT
  GEN_ROWS
};
_Static_assert(GEN_ROWS + 1 == VT_OP_COUNT, "an op of ir/ops.def has no row in gen_ops.def");

const gen_row *gen_row_of(vt_opcode code) {
  return &rows[code];
}

int64_t gen_below(gen *g, int64_t limit) {
  return random_below(&g->random, limit);
}
int64_t gen_between(gen *g, int64_t low, int64_t high) {
  return low + gen_below(g, high - low + 1);
}
bool gen_chance(gen *g, int percent) {
  return gen_below(g, 100) < percent;
}
void gen_shuffle(gen *g, int64_t *list, int64_t count) {
  for (int64_t i = count - 1; i > 0; i--) {
    int64_t j = gen_below(g, i + 1), kept = list[i];
    list[i] = list[j];
    list[j] = kept;
  }
}

vt_dtype gen_dtype(gen *g, uint64_t dtypes) {
  static const uint64_t often[] = {T(F32), T(F32), T(F32), T(S32), T(BF16), T(F32) | T(S32)};
  uint64_t liked = dtypes & often[gen_below(g, 6)];
  if (liked && gen_chance(g, 45)) dtypes = liked;
  int64_t pick = gen_below(g, __builtin_popcountll(dtypes));
  for (int i = 0; i < VT_DTYPE_LIMIT; i++)
    if (T_HAS(dtypes, i) && !pick--) return (vt_dtype)i;
  return VT_F32;
}

vt_dtype gen_index_dtype(gen *g) {
  return gen_dtype(g, gen_chance(g, 95) ? T(S32) | T(S64) | T(U32) | T(U64)
                                        : T(U8) | T(S8) | T(S16) | T(U16));
}

vt_type gen_type(gen *g, vt_dtype dtype, int32_t rank, const int64_t *dims) {
  return vt_type_make(&g->module->arena, dtype, rank, dims);
}
vt_type gen_retyped(gen *g, vt_type type, vt_dtype dtype) {
  (void)g;
  type.dtype = dtype;
  return type;
}

// A multiple of the size of an axis, or of two.
static int64_t divided_size(gen *g) {
  int64_t size = gen_between(g, 1, 3);
  for (int64_t n = gen_between(g, 1, 2); n > 0; n--)
    size *= g->mesh->axes[gen_below(g, g->mesh->axis_count)].size;
  return size;
}

int64_t gen_size(gen *g) {
  static const int64_t sizes[] = {1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33};
  if (g->sharded && gen_chance(g, 50)) return divided_size(g);
  return gen_chance(g, 1) ? 0 : sizes[gen_below(g, 16)];
}

vt_type gen_shape(gen *g, vt_dtype dtype) {
  static const int32_t ranks[] = {0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5};
  int64_t dims[8], room = gen_chance(g, 4) ? 6000 : gen_chance(g, 25) ? 700 : 150;
  int32_t rank = ranks[gen_below(g, 15)];
  if (g->sharded) room *= 4;
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = room > 700 && gen_chance(g, 40) ? gen_between(g, 40, 1300) : gen_size(g);
    if (dims[d] > room) dims[d] = room > 1 ? gen_between(g, 1, room) : 1;
    if (dims[d]) room /= dims[d];
  }
  gen_shuffle(g, dims, rank);
  return gen_type(g, dtype, rank, dims);
}

static void add_to_pool(gen *g, vt_value *value, bool inexact, bool raw) {
  gen_scope *s = g->scope;
  if (s->count == GEN_POOL) return;
  s->pool[s->count].value = value;
  s->pool[s->count].inexact = inexact;
  s->pool[s->count++].raw = raw;
}

static int32_t find(const gen_scope *s, const vt_value *value) {
  for (uint32_t i = s->count; i-- > 0;)
    if (s->pool[i].value == value) return (int32_t)i;
  return -1;
}
bool gen_is_inexact(const gen *g, const vt_value *value) {
  int32_t at = find(g->scope, value);
  return at >= 0 && g->scope->pool[at].inexact;
}
bool gen_is_raw(const gen *g, const vt_value *value) {
  int32_t at = find(g->scope, value);
  return at >= 0 && g->scope->pool[at].raw;
}

static vt_value *constant_of(gen *g, vt_type type, program_input input, bool splat) {
  vt_type stored = splat ? (vt_type){type.dtype, 0, NULL} : type;
  vt_literal *literal = VT_NEW(&g->module->arena, vt_literal);
  void *data = vt_arena_push_aligned(&g->module->arena, (size_t)vt_type_bytes(stored) + 64, 64);
  program_fill(input, stored, data);
  *literal = (vt_literal){type, data, splat};
  vt_value *value = vt_build_constant(g->scope->func, NULL, &vt_loc_unknown, literal);
  add_to_pool(g, value, false, true);
  return value;
}

static vt_value *leaf(gen *g, vt_type type, program_input input) {
  bool main = !g->scope->outer;
  if (main && g->scope->func->param_count < PROGRAM_MAX_INPUTS && gen_chance(g, 88)) {
    g->inputs[g->scope->func->param_count] = input;
    vt_value *value = vt_func_add_param(g->scope->func, type);
    add_to_pool(g, value, false, true);
    return value;
  }
  return constant_of(g, type, input,
                     input.style != VALUE_DEFINITE && vt_type_elements(type) > 0 &&
                         gen_chance(g, 30));
}

vt_value *gen_leaf(gen *g, vt_type type, int style) {
  return leaf(g, type, (program_input){style, random_next(&g->random) >> 32, 0, 0});
}
vt_value *gen_leaf_range(gen *g, vt_type type, int64_t low, int64_t high) {
  return leaf(g, type, (program_input){VALUE_RANGE, random_next(&g->random) >> 32, low, high});
}

vt_value *gen_splat(gen *g, vt_type type, double x) {
  vt_literal *literal = VT_NEW(&g->module->arena, vt_literal);
  void *data = vt_arena_push(&g->module->arena, 16);
  vt_number_store(type.dtype, data, 0, x);
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(g->scope->func, NULL, &vt_loc_unknown, literal);
}
vt_value *gen_scalar(gen *g, vt_dtype dtype, double x) {
  return gen_splat(g, (vt_type){dtype, 0, NULL}, x);
}

static bool suits(const gen_scope *s, uint32_t i, int flags) {
  if (s->pool[i].inexact && flags & PICK_EXACT) return false;
  return s->pool[i].raw || !(flags & PICK_RAW);
}

static int style_for(gen *g, int flags) {
  if (flags & PICK_NUMBER) return gen_chance(g, 50) ? VALUE_NUMBER : VALUE_GRID;
  return gen_chance(g, 60) ? VALUE_HARD : gen_chance(g, 70) ? VALUE_GRID : VALUE_SMOOTH;
}

vt_value *gen_any(gen *g, uint64_t dtypes, int flags) {
  gen_scope *s = g->scope;
  if (gen_chance(g, 75) && !(flags & PICK_NUMBER)) {
    uint32_t found = 0, pick[GEN_POOL];
    for (uint32_t i = 0; i < s->count; i++)
      if (T_HAS(dtypes, s->pool[i].value->type.dtype) && suits(s, i, flags)) pick[found++] = i;
    // Prefers the newest values: programs become deep.
    if (found && gen_chance(g, 50)) return s->pool[pick[found - 1]].value;
    if (found) return s->pool[pick[gen_below(g, found)]].value;
  }
  return gen_leaf(g, gen_shape(g, gen_dtype(g, dtypes)), style_for(g, flags));
}

vt_value *gen_of(gen *g, vt_type type, int flags) {
  gen_scope *s = g->scope;
  if (gen_chance(g, 75) && !(flags & PICK_NUMBER)) {
    uint32_t found = 0, pick[GEN_POOL];
    for (uint32_t i = 0; i < s->count; i++)
      if (vt_type_equal(s->pool[i].value->type, type) && suits(s, i, flags)) pick[found++] = i;
    if (found) return s->pool[pick[gen_below(g, found)]].value;
  }
  // A scalar broadcast to the shape: the most common case in programs.
  if (type.rank && gen_chance(g, 15)) {
    vt_value *scalar = gen_of(g, (vt_type){type.dtype, 0, NULL}, flags);
    vt_op *op = gen_op(g, VT_OP_BROADCAST_IN_DIM, 1, &scalar, 1, &type, 0);
    vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, 0, NULL);
    gen_done(g, op, false, true);
    return &op->results[0];
  }
  return gen_leaf(g, type, style_for(g, flags));
}

vt_op *gen_op(gen *g, vt_opcode code, uint32_t operand_count, vt_value *const *operands,
              uint32_t result_count, const vt_type *types, uint32_t region_count) {
  vt_op *op = vt_op_create(g->scope->func, code, &vt_loc_unknown, operand_count, operands,
                           result_count, types, region_count);
  vt_op_append(g->scope->func, op);
  g->budget--;
  return op;
}

void gen_done(gen *g, const vt_op *op, bool loose, bool raw) {
  bool inexact = loose || vt_wide_chains_keep(op);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    inexact = inexact || gen_is_inexact(g, op->operands[i]);
    raw = raw && gen_is_raw(g, op->operands[i]);
  }
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_dtype dtype = op->results[i].type.dtype;
    bool rounds = vt_dtype_is_float(dtype) || vt_dtype_is_complex(dtype);
    if (dtype != VT_TOKEN) add_to_pool(g, &op->results[i], inexact && rounds, raw);
  }
}

vt_value *gen_emit(gen *g, vt_opcode code, vt_type type, uint32_t count, vt_value *const *operands,
                   bool loose) {
  vt_op *op = gen_op(g, code, count, operands, 1, &type, 0);
  gen_done(g, op, loose, false);
  return &op->results[0];
}

void gen_enter(gen *g, gen_scope *scope, vt_func *func) {
  scope->outer = g->scope;
  scope->func = func;
  scope->count = 0;
  g->scope = scope;
  g->depth++;
}
void gen_leave(gen *g) {
  g->scope = g->scope->outer;
  g->depth--;
}
vt_value *gen_param(gen *g, vt_type type, bool inexact) {
  vt_value *value = vt_func_add_param(g->scope->func, type);
  add_to_pool(g, value, inexact, false);
  return value;
}

vt_func *gen_pair_region(gen *g, vt_opcode code, vt_dtype dtype) {
  vt_func *body = vt_func_create(g->module, "");
  vt_value *pair[2];
  for (int i = 0; i < 2; i++) pair[i] = vt_func_add_param(body, (vt_type){dtype, 0, NULL});
  vt_value *result =
      vt_build(body, NULL, code, &vt_loc_unknown, (vt_type){dtype, 0, NULL}, 2, pair);
  vt_func_set_returns(body, 1, &result);
  return body;
}

static int weight_of(const gen *g, const gen_row *row) {
  if (!row->make || (row->meshed && !g->mesh)) return 0;
  return row->meshed && g->sharded ? (row->weight + 3) / 4 : row->weight;
}

void gen_ops(gen *g, int count) {
  int total = 0;
  for (int i = 0; i < VT_OP_COUNT; i++) total += weight_of(g, &rows[i]);
  int tries = 4 * count, stop = g->budget - count;
  while (tries-- > 0 && g->budget > stop && g->budget > 0) {
    int64_t at = gen_below(g, total);
    int i = 0;
    while (at >= weight_of(g, &rows[i])) at -= weight_of(g, &rows[i]), i++;
    rows[i].make(g, &rows[i]);
  }
}

// Some results: always the last, others at random, never tokens.
static void choose_returns(gen *g) {
  vt_value *chosen[8];
  uint32_t count = 0;
  gen_scope *s = g->scope;
  for (uint32_t i = s->count; i-- > 0 && count < 8;)
    if (s->pool[i].value->op && (!count || gen_chance(g, 30))) chosen[count++] = s->pool[i].value;
  for (uint32_t i = s->count; i-- > 0 && !count;) chosen[count++] = s->pool[i].value;
  if (!count) chosen[count++] = gen_leaf(g, (vt_type){VT_F32, 0, NULL}, VALUE_HARD);
  vt_func_set_returns(s->func, count, chosen);
}

vt_func *program_generate_into(vt_module *module, const char *name, uint64_t seed, int ops,
                               program_input *inputs) {
  gen g = {.module = module, .name = name, .random = seed, .inputs = inputs};
  gen_scope scope = {.func = vt_func_create(module, name)};
  g.budget = (int)gen_between(&g, 1, ops);
  g.scope = &scope;
  gen_ops(&g, g.budget);
  choose_returns(&g);
  vt_module_add_func(module, scope.func);
  return scope.func;
}

bool program_of_op(vt_opcode code, vt_dtype dtype, uint64_t seed, program *out_program) {
  *out_program = (program){.module = vt_module_create(), .seed = seed};
  vt_module *m = out_program->module;
  gen g = {.module = m, .name = "main", .random = seed, .budget = 8, .inputs = out_program->inputs};
  gen_scope scope = {.func = vt_func_create(m, "main")};
  gen_row row = rows[code];
  row.dtypes = (uint64_t)1 << dtype | (code == VT_OP_CONVERT ? T(S8) | T(F32) : 0);
  g.scope = &scope;
  m->name = "op";
  m->producer = "";
  m->num_partitions = m->num_replicas = 1;
  if (!row.make || !row.make(&g, &row)) return false;
  choose_returns(&g);
  vt_module_add_func(m, scope.func);
  m->main = scope.func;
  return true;
}

// Placement of parameters and results, and which parameters are donated.
static vt_io_info *place(gen *g, uint32_t count, vt_value *const *values, int donated) {
  vt_io_info *infos = VT_NEW_ARRAY(&g->module->arena, vt_io_info, count + 1);
  for (uint32_t i = 0; i < count; i++)
    infos[i] =
        (vt_io_info){.sharding = gen_chance(g, 70) ? gen_sharding(g, values[i]->type, true) : NULL,
                     .alias_output = -1,
                     .donor = gen_chance(g, donated),
                     .memory_kind = "",
                     .layout_mode = "",
                     .name = ""};
  return infos;
}

// The start of a program with a mesh.
static void begin_meshed(gen *g, gen_scope *scope, uint64_t seed, program *out_program) {
  *out_program = (program){.module = vt_module_create(), .seed = seed};
  vt_module *m = out_program->module;
  *g = (gen){
      .module = m, .name = "main", .random = seed, .inputs = out_program->inputs, .alike = true};
  *scope = (gen_scope){.func = vt_func_create(m, "main")};
  const vt_mesh **meshes = VT_NEW(&m->arena, const vt_mesh *);
  m->name = "fuzz";
  m->producer = "";
  *meshes = g->mesh = gen_make_mesh(g);
  m->meshes = meshes;
  m->mesh_count = 1;
  m->num_partitions = (int32_t)vt_mesh_size(g->mesh);
  m->num_replicas = 1;
  g->open_axes = (1u << g->mesh->axis_count) - 1;
  g->scope = scope;
}

static void finish_meshed(gen *g) {
  vt_func *main = g->scope->func;
  choose_returns(g);
  vt_module_add_func(g->module, main);
  g->module->main = main;
  main->param_info = place(g, main->param_count, main->params, 25);
  main->return_info = place(g, main->return_count, main->returns, 0);
}

void program_generate_mesh(uint64_t seed, int ops, program *out_program) {
  gen g;
  gen_scope scope;
  begin_meshed(&g, &scope, seed, out_program);
  g.budget = 3 * ops; // a manual computation contains further ops
  gen_ops(&g, (int)gen_below(&g, 3));
  for (int64_t n = gen_between(&g, 1, 2); n > 0; n--)
    if (gen_chance(&g, 90))
      gen_manual(&g, &rows[VT_OP_MANUAL_COMPUTATION]);
    else
      gen_while(&g, &rows[VT_OP_WHILE]);
  for (int64_t n = gen_below(&g, 3); n > 0; n--)
    gen_mark(&g, &rows[gen_chance(&g, 50) ? VT_OP_SHARDING_CONSTRAINT : VT_OP_RESHARD]);
  gen_ops(&g, (int)gen_below(&g, 1 + ops / 4));
  finish_meshed(&g);
}

// Every second op has its result, or another value, constrained.
void program_generate_sharded(uint64_t seed, int ops, program *out_program) {
  gen g;
  gen_scope scope;
  begin_meshed(&g, &scope, seed, out_program);
  g.sharded = true;
  g.budget = 2 * ops;
  for (int64_t n = gen_between(&g, 1, ops); n > 0; n--) {
    gen_ops(&g, 1);
    if (gen_chance(&g, 50))
      gen_mark(&g, &rows[gen_chance(&g, 80) ? VT_OP_SHARDING_CONSTRAINT : VT_OP_RESHARD]);
  }
  finish_meshed(&g);
}

void program_generate(uint64_t seed, int ops, program *out_program) {
  *out_program = (program){.module = vt_module_create(), .seed = seed};
  vt_module *m = out_program->module;
  m->name = "fuzz";
  m->producer = "";
  m->num_partitions = m->num_replicas = 1;
  m->main = program_generate_into(m, "main", seed, ops, out_program->inputs);
}

void program_destroy(program *p) {
  vt_module_destroy(p->module);
  p->module = NULL;
}
