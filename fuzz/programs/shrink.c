// SPDX-License-Identifier: Apache-2.0
// shrink.c - see shrink.h. Each candidate is a fresh copy of the program (its text read back) with
// one edit; edits are numbered, and a successful one starts the count again from the same place.
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

#include "ir/number.h"

static bool copy_program(const program *p, program *out) {
  vt_text text = {0};
  program_print(p, &text);
  vt_status st = program_parse(text.data, text.size, out);
  vt_text_free(&text);
  if (!st) return true;
  vt_status_free(st);
  return false;
}

static bool has_uses(const vt_func *func, const vt_value *value) {
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i] == value) return true;
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == value) return true;
  return false;
}

static void drop_sharding(vt_op *op, vt_attr_key key, uint32_t at) {
  const vt_attr *attr = vt_op_attr(op, key);
  const vt_sharding **list =
      VT_NEW_ARRAY(&op->func->module->arena, const vt_sharding *, attr->count + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < attr->count; i++)
    if (i != at) list[count++] = attr->shardings[i];
  vt_op_set_attr(op, (vt_attr){.key = key, .count = count, .shardings = list});
}

// Removes a result or, after those, an operand of a manual computation that is unused. This is a
// separate edit because a memory bug may need an unused result.
static bool trim_manual(vt_op *op, uint32_t at) {
  vt_func *region = op->regions[0];
  if (at < op->result_count) {
    if (has_uses(op->func, &op->results[at])) return false;
    drop_sharding(op, VT_ATTR_OUT_SHARDINGS, at);
    op->result_count--;
    region->return_count--;
    for (uint32_t i = at; i < op->result_count; i++) {
      region->returns[i] = region->returns[i + 1];
      op->results[i].type = op->results[i + 1].type;
      vt_value_replace(&op->results[i + 1], &op->results[i]);
    }
    return true;
  }
  at -= op->result_count;
  if (at >= vt_op_own_operands(op) || has_uses(region, region->params[at])) return false;
  drop_sharding(op, VT_ATTR_IN_SHARDINGS, at);
  region->param_count--;
  op->operand_count--;
  for (uint32_t i = at; i < op->operand_count; i++) {
    op->operands[i] = op->operands[i + 1];
    region->params[i] = region->params[i + 1];
    region->params[i]->index = (int32_t)i;
  }
  return true;
}

static void remove_dead(vt_func *func) {
  for (vt_op *op = func->last, *prev; op; op = prev) {
    bool used = false;
    prev = op->prev;
    for (uint32_t i = 0; i < op->result_count; i++) used = used || has_uses(func, &op->results[i]);
    if (!used)
      vt_op_remove(op);
    else
      for (uint32_t r = 0; r < op->region_count; r++) remove_dead(op->regions[r]);
  }
}

static bool calls(const vt_func *func, const vt_func *callee) {
  for (const vt_op *op = func->first; op; op = op->next) {
    const vt_attr *attr = vt_op_attr(op, VT_ATTR_CALLEE);
    if (!attr) attr = vt_op_attr(op, VT_ATTR_DECOMPOSITION);
    if (attr && attr->funcs[0] == callee) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (calls(op->regions[r], callee)) return true;
  }
  return false;
}

static void remove_uncalled(vt_module *m) {
  for (uint32_t i = 0; i < m->func_count; i++) {
    bool called = m->funcs[i] == m->main;
    for (uint32_t j = 0; j < m->func_count; j++) called = called || calls(m->funcs[j], m->funcs[i]);
    if (called) continue;
    m->func_count--;
    memmove(&m->funcs[i], &m->funcs[i + 1], sizeof *m->funcs * (m->func_count - i));
    i = UINT32_MAX; // its callee may be unused now
  }
}

static void clean(program *p) {
  vt_func *main = p->module->main;
  remove_dead(main);
  remove_uncalled(p->module);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < main->param_count; i++) {
    if (!has_uses(main, main->params[i])) continue;
    p->inputs[kept] = p->inputs[i];
    main->params[kept] = main->params[i];
    main->params[kept]->index = (int32_t)kept;
    if (main->param_info) main->param_info[kept] = main->param_info[i];
    kept++;
  }
  main->param_count = kept;
}

// True when no operand and no result of a manual computation is sharded.
static bool all_whole(const vt_op *op) {
  const vt_func *region = op->regions[0];
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_type_equal(op->operands[i]->type, region->params[i]->type)) return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!vt_type_equal(op->results[i].type, region->returns[i]->type)) return false;
  return true;
}

// Adds an empty info entry for one more parameter.
static void add_info(vt_func *func) {
  uint32_t count = func->param_count;
  if (!func->param_info) return;
  vt_io_info *infos = VT_NEW_ARRAY(&func->module->arena, vt_io_info, count + 1);
  memcpy(infos, func->param_info, sizeof *infos * count);
  infos[count] = (vt_io_info){.alias_output = -1, .memory_kind = "", .layout_mode = "", .name = ""};
  func->param_info = infos;
}

// Edits of one op, by number. Returns false when the number is past the last; *out_done says
// whether the edit applied.
static bool edit_op(program *p, vt_op *op, int64_t edit, bool *out_done) {
  vt_func *func = op->func;
  uint32_t own = vt_op_own_operands(op);
  *out_done = false;
  if (edit == 0) {
    vt_func *inner = NULL;
    vt_value **args = op->operands;
    if (op->code == VT_OP_CALL) inner = vt_attr_func(op, VT_ATTR_CALLEE);
    if (op->code == VT_OP_COMPOSITE) inner = vt_attr_func(op, VT_ATTR_DECOMPOSITION);
    if (op->code == VT_OP_WHILE) inner = op->regions[1];
    if (op->code == VT_OP_IF || op->code == VT_OP_CASE) inner = op->regions[0], args += own;
    if (op->code == VT_OP_MANUAL_COMPUTATION && all_whole(op)) inner = op->regions[0];
    if (!inner) return true;
    vt_value *results[8];
    vt_func_inline(inner, op->func, op, args, results);
    for (uint32_t i = 0; i < op->result_count; i++) vt_value_replace(&op->results[i], results[i]);
    return *out_done = true;
  }
  edit--;
  if (op->code == VT_OP_MANUAL_COMPUTATION) {
    if (edit < op->result_count + op->operand_count) {
      *out_done = trim_manual(op, (uint32_t)edit);
      return true;
    }
    edit -= op->result_count + op->operand_count;
  }
  for (uint32_t r = 0; r < op->result_count; r++) {
    vt_value *result = &op->results[r];
    for (uint32_t i = 0; i < op->operand_count; i++, edit--)
      if (edit == 0) {
        if (!has_uses(func, result) || !vt_type_equal(op->operands[i]->type, result->type))
          return true;
        vt_value_replace(result, op->operands[i]);
        return *out_done = true;
      }
    for (int style = VALUE_HARD; style <= VALUE_GRID; style++, edit--)
      if (edit == 0) {
        if (!has_uses(func, result) || result->type.dtype == VT_TOKEN || func != p->module->main ||
            func->param_count == PROGRAM_MAX_INPUTS || op->code == VT_OP_CONSTANT)
          return true;
        p->inputs[func->param_count] = (program_input){style, func->param_count + 1u, 0, 0};
        add_info(func);
        vt_value_replace(result, vt_func_add_param(func, result->type));
        return *out_done = true;
      }
  }
  return false;
}

static vt_op *op_at(vt_func *func, int64_t *at) {
  for (vt_op *op = func->last; op; op = op->prev) {
    if (!(*at)--) return op;
    for (uint32_t r = 0; r < op->region_count; r++) {
      vt_op *inner = op_at(op->regions[r], at);
      if (inner) return inner;
    }
  }
  return NULL;
}

static bool still_fails(program *candidate, shrink_test fails, void *context) {
  clean(candidate);
  vt_status st = vt_module_verify(candidate->module);
  bool ok = !st && fails(context, candidate);
  vt_status_free(st);
  return ok;
}

static bool accept(program *p, program *candidate, bool better) {
  program_destroy(better ? p : candidate);
  if (better) *p = *candidate;
  return better;
}

static bool try_returns(program *p, shrink_test fails, void *context) {
  uint32_t count = p->module->main->return_count;
  for (uint32_t i = 0; i < count && count > 1; i++) {
    program c;
    if (!copy_program(p, &c)) return false;
    vt_func *main = c.module->main;
    vt_value *only = main->returns[i];
    if (main->return_info) main->return_info[0] = main->return_info[i];
    vt_func_set_returns(main, 1, &only);
    if (accept(p, &c, still_fails(&c, fails, context))) return true;
  }
  return false;
}

static bool try_ops(program *p, shrink_test fails, void *context) {
  bool any = false;
  for (int64_t at = 0;; at++) {
    for (int64_t edit = 0;; edit++) {
      program c;
      int64_t place = at;
      bool done;
      if (!copy_program(p, &c)) return any;
      vt_op *op = op_at(c.module->main, &place);
      if (!op) {
        program_destroy(&c);
        return any;
      }
      bool exists = edit_op(&c, op, edit, &done);
      bool better = done && still_fails(&c, fails, context);
      any = accept(p, &c, better) || any;
      if (better) edit = -1; // another op is here now
      if (!exists) break;
    }
  }
}

void shrink(program *p, shrink_test fails, void *context) {
  try_returns(p, fails, context);
  while (try_ops(p, fails, context)) continue;
}
