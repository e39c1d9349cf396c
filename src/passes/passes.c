// SPDX-License-Identifier: Apache-2.0
// passes.c - the runner: each pass in order, the module verified after each one in debug builds and
// when VTPU_VERIFY_PASSES is set.
#include "base/check.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ir/number.h"
#include "passes/rewrite.h"

// One elementwise op on two parameters, as most reductions have it: there is nothing to rewrite.
static bool is_plain(const vt_func *func) {
  const vt_op *op = func->first;
  return op && op == func->last && op->operand_count == 2 && func->return_count == 1 &&
         func->returns[0]->op == op && !op->operands[0]->op && !op->operands[1]->op &&
         op->operands[0] != op->operands[1] && vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
}

static vt_status visit_all(vt_func *func, vt_func_visitor *visit, void *user) {
  vt_assert(!func->first || (!func->first->prev && !func->last->next));
  uint32_t count;
  vt_op *const *holders = vt_func_holders(func, &count);
  for (uint32_t k = 0; k < count; k++)
    for (uint32_t i = 0; i < holders[k]->region_count; i++)
      if (!is_plain(holders[k]->regions[i])) VT_TRY(visit_all(holders[k]->regions[i], visit, user));
  vt_assert(!func->last || func->last->func == func);
  return visit(func, user);
}

vt_status vt_rewrite_each_func(vt_module *module, vt_func_visitor *visit, void *user) {
  for (uint32_t i = 0; i < module->func_count; i++)
    VT_TRY(visit_all(module->funcs[i], visit, user));
  return VT_OK;
}

vt_status vt_rewrite_and_drop(vt_module *module, vt_func_visitor *visit, bool *out_changed) {
  *out_changed = false;
  VT_TRY(vt_rewrite_each_func(module, visit, out_changed));
  if (!*out_changed) return VT_OK;
  vt_arena scratch = {.brief = true};
  vt_status st = vt_opt_dce(module, NULL, &scratch, out_changed);
  vt_arena_free(&scratch);
  if (st) return st;
  return vt_verify_wanted() ? vt_module_verify(module) : VT_OK;
}

bool vt_func_holds(vt_func *func, vt_opcode code) {
  uint32_t count;
  vt_op *const *holders = vt_func_holders(func, &count);
  while (count && holders[count - 1]->code != code) count--;
  return count;
}

bool vt_func_reads(const vt_func *func, const vt_value *value) {
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == value) return true;
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i] == value) return true;
  return false;
}

vt_value *vt_build_number(vt_op *before, vt_type type, double number) {
  vt_arena *arena = &before->func->module->arena;
  void *data = vt_arena_push_aligned(arena, 64, 64);
  vt_literal *literal = VT_NEW(arena, vt_literal);
  vt_number_store(type.dtype, data, 0, number);
  *literal = (vt_literal){type, data, true};
  return vt_build_constant(before->func, before, before->loc, literal);
}

bool vt_is_number(const vt_value *value, double *out) {
  while (value->op && value->op->code == VT_OP_BROADCAST_IN_DIM) value = value->op->operands[0];
  if (!value->op || value->op->code != VT_OP_CONSTANT) return false;
  const vt_literal *literal = vt_attr_literal(value->op, VT_ATTR_VALUE);
  if (!literal->splat && vt_type_elements(literal->type) != 1) return false;
  *out = vt_number_load(literal->type.dtype, literal->data, 0);
  return true;
}

bool vt_ints_are(const vt_op *op, vt_attr_key key, int64_t wanted) {
  uint32_t count = 0;
  const int64_t *numbers = vt_op_attr(op, key) ? vt_attr_ints(op, key, &count) : NULL;
  for (uint32_t i = 0; i < count; i++)
    if (numbers[i] != wanted) return false;
  return true;
}

bool vt_is_element_of(vt_type all, vt_type part, vt_value *const *indices) {
  if (!all.rank || part.rank != all.rank || part.dims[0] != 1) return false;
  for (int32_t d = 1; d < all.rank; d++)
    if (part.dims[d] != all.dims[d] || !vt_is_splat_of(indices[d], 0)) return false;
  return true;
}

bool vt_reads_elements(const vt_func *func, const vt_value *stack) {
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == stack &&
          (i || op->code != VT_OP_DYNAMIC_SLICE ||
           !vt_is_element_of(stack->type, op->results[0].type, op->operands + 1)))
        return false;
  for (uint32_t r = 0; r < func->return_count; r++)
    if (func->returns[r] == stack) return false;
  return true;
}

static const struct {
  const char *name;
  vt_pass *run;
} pipeline[] = {
#define PASS(name, what)       {#name, vt_opt_##name},
#define PASS_AGAIN(name, what) {#name, vt_opt_##name},
#include "passes/pipeline.def"
#undef PASS
};

static bool same_name(const char *given, const char *name, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((given[i] == '_' ? '-' : given[i]) != (name[i] == '_' ? '-' : name[i])) return false;
  return true;
}

bool vt_pass_listed(const char *list, size_t list_size, const char *name) {
  size_t size = strlen(name);
  for (size_t at = 0, next; at < list_size; at = next + 1) {
    for (next = at; next < list_size && list[next] != ',';) next++;
    if (next - at == size && same_name(list + at, name, size)) return true;
  }
  return false;
}

vt_status vt_passes_run(vt_module *module, const vt_pass_options *options) {
  const char *skip = options->skip ? options->skip : getenv("VTPU_SKIP_PASSES");
  size_t skip_size = skip ? strlen(skip) : 0;
  bool verify = vt_verify_wanted();
  vt_arena scratch = {.brief = true};
  vt_status st = VT_OK;
  // Where nothing has changed since a pass found nothing to change, it is not asked again.
  size_t idle_since[sizeof pipeline / sizeof *pipeline] = {0}, changes = 1;
  for (size_t i = 0; i < sizeof pipeline / sizeof *pipeline; i++) {
    // Without inlining, later stages would see calls, which they do not support.
    if (vt_pass_listed(skip, skip_size, pipeline[i].name) && strcmp(pipeline[i].name, "inline"))
      continue;
    bool changed = false, idle = false;
    for (size_t k = 0; k < i && !idle; k++)
      idle = idle_since[k] == changes && pipeline[k].run == pipeline[i].run;
    if (idle) continue;
    VT_TRY_OUT(pipeline[i].run(module, options, &scratch, &changed));
    vt_arena_reset(&scratch);
    changes += changed;
    idle_since[i] = changed ? 0 : changes;
    if (verify && changed && (st = vt_module_verify(module))) {
      st = vt_status_wrap(st, "after pass %s", pipeline[i].name);
      goto out;
    }
  }
out:
  vt_arena_free(&scratch);
  return st;
}
