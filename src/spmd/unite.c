// SPDX-License-Identifier: Apache-2.0
// unite.c - different programs of replicas that take part in the same collectives become one
// program for all of them.
//
// The programs are walked at once, from one op in which replicas meet to the next: a collective, an
// op with an effect, or a loop, which might never end on another replica's values. These must be
// the same in all programs, in the same order. What is computed
// in between is computed once where programs agree; where they do not, everywhere, and a replica
// takes its own program's value where it next meets the others, and as its result.
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "ir/sharding.h"
#include "spmd/spmd.h"

typedef struct walk { // of one program
  const vt_func *main;
  const vt_op *at;  // the next op
  vt_value **value; // [id]: what stands for it in the united program
} walk;

typedef struct known {
  const vt_op *op;
  struct known *next; // same hash
} known;

typedef struct uniting {
  vt_module *module; // the first program
  vt_func *main;
  uint32_t count;
  walk *walks;
  int32_t replicas;
  const uint32_t *program_of; // [replica]
  vt_map known;               // ops of the united program, by hash
  vt_map choices;             // by a byte for each replica: whether it is one of those
  vt_value *replica;          // this replica's number
  vt_arena scratch;
} uniting;

// ---- one op -------------------------------------------------------------------------------------

static vt_op *find(uniting *u, const vt_op *op, vt_value *const *operands, known ***out_bucket) {
  uint64_t hash = vt_op_hash(op, operands);
  *out_bucket = (known **)vt_map_at(&u->known, &hash, sizeof hash);
  for (known *k = **out_bucket; k; k = k->next)
    if (vt_op_equal(k->op, op, operands)) return (vt_op *)(uintptr_t)k->op;
  return NULL;
}

static void remember(uniting *u, const vt_op *op, known **bucket) {
  known *k = VT_NEW(&u->scratch, known);
  *k = (known){op, *bucket};
  *bucket = k;
}

static vt_op *append(uniting *u, const vt_op *op, vt_value *const *operands) {
  vt_type *types = VT_NEW_ARRAY(&u->scratch, vt_type, op->result_count + 1);
  for (uint32_t i = 0; i < op->result_count; i++) types[i] = op->results[i].type;
  vt_op *copy = vt_op_create(u->main, op->code, op->loc, op->operand_count, operands,
                             op->result_count, types, op->region_count);
  copy->capture_count = op->capture_count;
  for (uint32_t i = 0; i < op->region_count; i++)
    copy->regions[i] = vt_func_clone(u->module, op->regions[i]);
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(copy, op->attrs[i]);
  vt_op_append(u->main, copy);
  return copy;
}

static vt_op *append_once(uniting *u, const vt_op *op, vt_value *const *operands) {
  known **bucket;
  vt_op *found = find(u, op, operands, &bucket);
  if (found) return found;
  found = append(u, op, operands);
  remember(u, found, bucket);
  return found;
}

// ---- a value by replica -------------------------------------------------------------------------

static vt_value *constant(uniting *u, vt_type type, const void *data) {
  vt_literal *literal = VT_NEW(&u->module->arena, vt_literal);
  *literal = (vt_literal){.type = type, .data = data};
  return vt_build_constant(u->main, NULL, &vt_loc_unknown, literal);
}

// Whether this replica's program is one of those with this value.
static vt_value *has_value(uniting *u, vt_value *const *values, const vt_value *value) {
  vt_arena *arena = &u->module->arena;
  int64_t replicas = u->replicas, one = 1;
  uint8_t *mine = VT_NEW_ARRAY(arena, uint8_t, replicas);
  for (int64_t r = 0; r < replicas; r++) mine[r] = values[u->program_of[r]] == value;
  vt_value *made = vt_map_find(&u->choices, mine, (size_t)replicas);
  if (made) return made;
  if (!u->replica)
    u->replica = vt_build(u->main, NULL, VT_OP_REPLICA_ID, &vt_loc_unknown,
                          vt_type_make(arena, VT_U32, 0, NULL), 0, NULL);
  vt_value *slice[2] = {constant(u, vt_type_make(arena, VT_PRED, 1, &replicas), mine), u->replica};
  vt_value *element = vt_build(u->main, NULL, VT_OP_DYNAMIC_SLICE, &vt_loc_unknown,
                               vt_type_make(arena, VT_PRED, 1, &one), 2, slice);
  vt_op_set_ints(element->op, VT_ATTR_SLICE_SIZES, 1, &one);
  vt_value *scalar = vt_build(u->main, NULL, VT_OP_RESHAPE, &vt_loc_unknown,
                              vt_type_make(arena, VT_PRED, 0, NULL), 1, &element);
  *vt_map_at(&u->choices, mine, (size_t)replicas) = scalar;
  return scalar;
}

// The one of [program] values that is this replica's; NULL: of a program that has none.
static vt_status choose(uniting *u, vt_value *const *values, vt_value **out) {
  vt_value *chosen = NULL;
  for (uint32_t k = 0; k < u->count; k++) {
    bool again = !values[k];
    for (uint32_t i = 0; i < k; i++) again = again || values[i] == values[k];
    if (again) continue;
    if (chosen && values[k]->type.dtype == VT_TOKEN)
      return vt_error(VT_UNIMPLEMENTED, "the replicas run different programs with tokens");
    vt_value *select[3] = {chosen ? has_value(u, values, values[k]) : NULL, values[k], chosen};
    chosen = chosen
                 ? vt_build(u->main, NULL, VT_OP_SELECT, &vt_loc_unknown, chosen->type, 3, select)
                 : values[k];
  }
  *out = chosen;
  return VT_OK;
}

// ---- where replicas meet -----------------------------------------------------------------------

static uint64_t hash_type(vt_type type, uint64_t seed) {
  seed = vt_hash_u64((uint64_t)type.dtype, seed);
  return type.rank ? vt_hash_bytes(type.dims, sizeof *type.dims * (size_t)type.rank, seed) : seed;
}

static uint64_t hash_codes(const vt_func *func, uint64_t seed) {
  for (const vt_op *op = func->first; op; op = op->next) seed = vt_hash_u64(op->code, seed);
  return seed;
}

static uint64_t hash_collective(const vt_op *op, uint64_t seed) {
  vt_arena scratch = {0};
  vt_value **any = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count + 1);
  seed = vt_hash_u64(vt_op_hash(op, any), seed);
  for (uint32_t i = 0; i < op->operand_count; i++) seed = hash_type(op->operands[i]->type, seed);
  for (uint32_t r = 0; r < op->region_count; r++) seed = hash_codes(op->regions[r], seed);
  vt_arena_free(&scratch);
  return seed;
}

// `seed` itself: they do not meet in the function.
static uint64_t meetings_in(const vt_func *func, uint64_t seed) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (vt_op_callee(op)) seed = meetings_in(vt_op_callee(op), seed);
    if (vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE) {
      seed = hash_collective(op, seed);
      continue;
    }
    for (uint32_t r = 0; r < op->region_count; r++) {
      uint64_t inner = meetings_in(op->regions[r], seed);
      if (inner != seed) seed = vt_hash_u64(op->code, vt_hash_u64(r, inner));
    }
  }
  return seed;
}

uint64_t vt_spmd_meetings(const vt_module *module) {
  return meetings_in(module->main, 1);
}

static uint64_t kind_of(const vt_func *func, uint64_t seed) {
  for (const vt_op *op = func->first; op; op = op->next) {
    seed = vt_hash_u64(op->code, seed);
    for (uint32_t i = 0; i < op->operand_count; i++) seed = hash_type(op->operands[i]->type, seed);
    for (uint32_t i = 0; i < op->result_count; i++) seed = hash_type(op->results[i].type, seed);
    for (uint32_t r = 0; r < op->region_count; r++) seed = kind_of(op->regions[r], seed);
    if (vt_op_callee(op)) seed = kind_of(vt_op_callee(op), seed);
  }
  return seed;
}

uint64_t vt_spmd_kind(const vt_module *module) {
  uint64_t kind = kind_of(module->main, 1);
  return kind ? kind : 1;
}

// ---- the walk -----------------------------------------------------------------------------------

static bool replicas_meet(const vt_op *op) {
  if (op->code == VT_OP_WHILE || vt_op_has_effect(op) ||
      vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE)
    return true;
  for (uint32_t r = 0; r < op->region_count; r++)
    for (const vt_op *inner = op->regions[r]->first; inner; inner = inner->next)
      if (replicas_meet(inner)) return true;
  return false;
}

static void set_results(const walk *w, const vt_op *op, vt_op *stands) {
  for (uint32_t i = 0; i < op->result_count; i++) w->value[op->results[i].id] = &stands->results[i];
}

// Up to the next op in which replicas meet, or the end.
static void go_on(uniting *u, walk *w) {
  for (; w->at && !replicas_meet(w->at); w->at = w->at->next) {
    const vt_op *op = w->at;
    vt_value **operands = VT_NEW_ARRAY(&u->scratch, vt_value *, op->operand_count + 1);
    for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = w->value[op->operands[i]->id];
    set_results(w, op, append_once(u, op, operands));
  }
}

static const char *name_of(uniting *u, const vt_op *op) {
  return op ? vt_op_describe(op, &u->scratch) : "its end";
}

static bool same_types(const vt_op *a, const vt_op *b) {
  if (a->operand_count != b->operand_count || a->capture_count != b->capture_count ||
      a->result_count != b->result_count)
    return false;
  for (uint32_t i = 0; i < a->operand_count; i++)
    if (!vt_type_equal(a->operands[i]->type, b->operands[i]->type)) return false;
  for (uint32_t i = 0; i < a->result_count; i++)
    if (!vt_type_equal(a->results[i].type, b->results[i].type)) return false;
  return true;
}

static uint32_t replica_of(const uniting *u, uint32_t program) {
  uint32_t r = 0;
  while (u->program_of[r] != program) r++;
  return r;
}

// All programs are at such an op, or at their end.
static vt_status meet(uniting *u, bool *out_over) {
  const vt_op *first = u->walks[0].at;
  *out_over = !first;
  for (uint32_t k = 1; k < u->count; k++) {
    const vt_op *op = u->walks[k].at;
    if (first && op ? same_types(first, op) && vt_op_alike(first, op) : first == op) continue;
    return vt_error(VT_FAILED_PRECONDITION,
                    "the replicas run different programs: replica %u comes to %s, replica %u to %s",
                    replica_of(u, 0), name_of(u, first), replica_of(u, k), name_of(u, op));
  }
  if (!first) return VT_OK;
  vt_value **operands = VT_NEW_ARRAY(&u->scratch, vt_value *, first->operand_count + 1);
  vt_value **values = VT_NEW_ARRAY(&u->scratch, vt_value *, u->count);
  for (uint32_t i = 0; i < first->operand_count; i++) {
    for (uint32_t k = 0; k < u->count; k++)
      values[k] = u->walks[k].value[u->walks[k].at->operands[i]->id];
    VT_TRY(choose(u, values, &operands[i]));
  }
  vt_op *op = append(u, first, operands);
  for (uint32_t k = 0; k < u->count; k++) {
    set_results(&u->walks[k], u->walks[k].at, op);
    u->walks[k].at = u->walks[k].at->next;
  }
  return VT_OK;
}

// ---- parameters and results ---------------------------------------------------------------------

static bool same_text(const char *a, const char *b) {
  return !strcmp(a ? a : "", b ? b : "");
}

static bool same_place(const vt_io_info *x, const vt_io_info *y) {
  return same_text(x->memory_kind, y->memory_kind) && same_text(x->layout_mode, y->layout_mode);
}

static const vt_io_info no_info = {.alias_output = -1};

static const vt_io_info *info_of(const vt_io_info *all, uint32_t i) {
  return all ? &all[i] : &no_info;
}

static bool donates(const vt_io_info *info) {
  return info->donor || info->alias_output >= 0;
}

// Each parameter becomes the first of its type and place that this program does not use yet: the
// same one in programs with the same parameters. One is donated if all programs that have it do.
static void unite_params(uniting *u, vt_arena *arena, uint32_t **out_param_of) {
  uint32_t most = 0, count = 0;
  for (uint32_t k = 0; k < u->count; k++) most += u->walks[k].main->param_count;
  vt_io_info *infos = VT_NEW_ARRAY(&u->module->arena, vt_io_info, most + 1);
  uint32_t *user = VT_NEW_ARRAY(&u->scratch, uint32_t, most + 1); // the last program + 1
  for (uint32_t k = 0; k < u->count; k++) {
    const vt_func *main = u->walks[k].main;
    out_param_of[k] = VT_NEW_ARRAY(arena, uint32_t, main->param_count + 1);
    for (uint32_t i = 0; i < main->param_count; i++) {
      const vt_io_info *info = info_of(main->param_info, i);
      uint32_t s = 0;
      while (s < count && (user[s] == k + 1 || !same_place(&infos[s], info) ||
                           !vt_type_equal(u->main->params[s]->type, main->params[i]->type)))
        s++;
      if (s == count) {
        vt_func_add_param(u->main, main->params[i]->type);
        infos[count++] = *info;
        infos[s].donor = true;
        infos[s].alias_output = -1;
      }
      if (!donates(info)) infos[s].donor = false;
      user[s] = k + 1;
      out_param_of[k][i] = s;
      u->walks[k].value[main->params[i]->id] = u->main->params[s];
    }
  }
  u->main->param_info = infos;
}

typedef struct slot { // a result of the united program
  vt_value **values;  // [program], NULL = has no such result
  vt_io_info info;
} slot;

// The slot for result `i` of program `k`: one with its value if there is one, else the one of the
// same number, or any that fits.
static uint32_t find_slot(const uniting *u, const slot *slots, uint32_t count, uint32_t k,
                          uint32_t i, const vt_value *value, const vt_io_info *info) {
  uint32_t best = count, best_score = 0;
  for (uint32_t s = 0; s < count; s++) {
    if (slots[s].values[k]) continue;
    uint32_t score = 1 + (s == i);
    bool fits = same_place(&slots[s].info, info);
    for (uint32_t p = 0; p < u->count; p++) {
      const vt_value *other = slots[s].values[p];
      if (other && !vt_type_equal(other->type, value->type)) fits = false;
      if (other == value) score += 2;
    }
    if (fits && score > best_score) best = s, best_score = score;
  }
  return best;
}

static vt_status unite_results(uniting *u, vt_arena *arena, uint32_t **out_result_of) {
  vt_arena *own = &u->module->arena;
  uint32_t most = 0, count = 0;
  for (uint32_t k = 0; k < u->count; k++) most += u->walks[k].main->return_count;
  slot *slots = VT_NEW_ARRAY(&u->scratch, slot, most + 1);
  for (uint32_t k = 0; k < u->count; k++) {
    const walk *w = &u->walks[k];
    out_result_of[k] = VT_NEW_ARRAY(arena, uint32_t, w->main->return_count + 1);
    for (uint32_t i = 0; i < w->main->return_count; i++) {
      vt_value *value = w->value[w->main->returns[i]->id];
      const vt_io_info *info = info_of(w->main->return_info, i);
      uint32_t s = k ? find_slot(u, slots, count, k, i, value, info) : count;
      if (s == count)
        slots[count++] = (slot){VT_NEW_ARRAY(&u->scratch, vt_value *, u->count), *info};
      slots[s].values[k] = value;
      out_result_of[k][i] = s;
    }
  }
  vt_value **returns = VT_NEW_ARRAY(own, vt_value *, count + 1);
  u->main->return_info = VT_NEW_ARRAY(own, vt_io_info, count + 1);
  for (uint32_t s = 0; s < count; s++) {
    VT_TRY(choose(u, slots[s].values, &returns[s]));
    u->main->return_info[s] = slots[s].info;
  }
  vt_func_set_returns(u->main, count, returns);
  return VT_OK;
}

// ---- all ----------------------------------------------------------------------------------------

// The first module takes what the others hold: their attributes and places stay in use.
static void take_modules(uniting *u, vt_module *const *programs) {
  uint32_t meshes = 0;
  for (uint32_t k = 0; k < u->count; k++) meshes += programs[k]->mesh_count;
  const vt_mesh **all = VT_NEW_ARRAY(&u->module->arena, const vt_mesh *, meshes + 1);
  meshes = 0;
  for (uint32_t k = 0; k < u->count; k++)
    for (uint32_t i = 0; i < programs[k]->mesh_count; i++) all[meshes++] = programs[k]->meshes[i];
  u->module->meshes = all;
  u->module->mesh_count = meshes;
  for (uint32_t k = 1; k < u->count; k++) {
    vt_arena arena = programs[k]->arena; // the module is in it
    vt_arena_adopt(&u->module->arena, &arena);
  }
}

static vt_status unite(uniting *u, vt_arena *arena, uint32_t **out_param_of,
                       uint32_t **out_result_of) {
  unite_params(u, arena, out_param_of);
  for (bool over = false; !over;) {
    for (uint32_t k = 0; k < u->count; k++) go_on(u, &u->walks[k]);
    VT_TRY(meet(u, &over));
  }
  return unite_results(u, arena, out_result_of);
}

vt_status vt_spmd_unite(vt_module *const *programs, uint32_t count, int32_t replicas,
                        const uint32_t *program_of, vt_arena *arena, uint32_t **out_param_of,
                        uint32_t **out_result_of) {
  vt_assert(count > 1);
  uniting u = {
      .module = programs[0], .count = count, .replicas = replicas, .program_of = program_of};
  u.walks = VT_NEW_ARRAY(&u.scratch, walk, count);
  for (uint32_t k = 0; k < count; k++) {
    vt_spmd_inline(programs[k], false);
    vt_func *main = programs[k]->main;
    vt_func_number(main);
    u.walks[k] =
        (walk){main, main->first, VT_NEW_ARRAY(&u.scratch, vt_value *, main->value_count + 1)};
  }
  u.main = vt_func_create(u.module, u.walks[0].main->name);
  take_modules(&u, programs);
  vt_status st = unite(&u, arena, out_param_of, out_result_of);
  u.module->main = u.module->funcs[0] = u.main;
  vt_map_free(&u.known);
  vt_map_free(&u.choices);
  vt_arena_free(&u.scratch);
  return st ? st : vt_module_verify(u.module);
}
