// SPDX-License-Identifier: Apache-2.0
// derived_stacks.c - see derived_stacks.h.
//
// A scan keeps what its gradient reads in stacks, one element for each trip. Of a sigmoid these are
// y and y * (1 - y), of tanh y and 1 - y. The second ones are not kept where nothing but loops
// reads them, element by element: those read y, and do what the first loop did.
//
//   i: ys' = ys, at i y;  ds' = ds, at i f(y)  ->  i: ys' = ys, at i y
//   i: ds[i]                                   ->  i: f(ys[i])
#include "host/derived_stacks.h"

#include "host/loop_stack.h"
#include "ir/loop.h"
#include "passes/rewrite.h"

enum { MOST_OPS = 3 }; // of f

typedef struct deriving {
  vt_op *loop;
  const bool *fills; // by result
  bool *derived;
} deriving;

static vt_value *without_reshapes(vt_value *value) {
  while (value->op && value->op->code == VT_OP_RESHAPE) value = value->op->operands[0];
  return value;
}

static vt_op *update_of(const deriving *d, uint32_t k) {
  return d->loop->regions[1]->returns[k]->op;
}

static vt_value *element_of(const deriving *d, uint32_t k) {
  return without_reshapes(update_of(d, k)->operands[1]);
}

static bool is_splat(const vt_value *value) {
  return value->op && value->op->code == VT_OP_CONSTANT &&
         vt_attr_literal(value->op, VT_ATTR_VALUE)->splat;
}

static bool is_cheap(vt_opcode code) {
  return code == VT_OP_ADD || code == VT_OP_SUBTRACT || code == VT_OP_MULTIPLY ||
         code == VT_OP_NEGATE;
}

// Operators between the value and `from`; more than MOST_OPS: it is made of something else, too.
static int operators(const vt_value *value, const vt_value *from) {
  if (value == from || is_splat(value)) return 0;
  if (!value->op || !is_cheap(value->op->code)) return MOST_OPS + 1;
  int count = 1;
  for (uint32_t i = 0; i < value->op->operand_count && count <= MOST_OPS; i++)
    count += operators(value->op->operands[i], from);
  return count;
}

// The stack that result k is derived from; -1: none.
static int32_t source_of(const deriving *d, uint32_t k) {
  const vt_value *value = element_of(d, k);
  for (uint32_t j = 0; j < d->loop->result_count; j++) {
    if (!d->fills[j] || d->derived[j] || j == k) continue;
    const vt_value *from = element_of(d, j);
    if (update_of(d, j)->operands[2] != update_of(d, k)->operands[2] || value == from ||
        !vt_type_equal(from->type, value->type))
      continue;
    if (operators(value, from) <= MOST_OPS) return (int32_t)j;
  }
  return -1;
}

// ---- Readers.

static bool is_read_by_element(const vt_op *loop, uint32_t capture) {
  const vt_func *condition = loop->regions[0], *body = loop->regions[1];
  return capture >= loop->result_count && !vt_func_reads(condition, condition->params[capture]) &&
         vt_reads_elements(body, body->params[capture]);
}

// Whether loops alone read the value, and only elements of it.
static bool is_read_by_elements(const vt_func *func, const vt_value *stack) {
  bool read = false;
  for (uint32_t r = 0; r < func->return_count; r++)
    if (func->returns[r] == stack) return false;
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) {
      if (op->operands[i] != stack) continue;
      if (op->code != VT_OP_WHILE || !is_read_by_element(op, i)) return false;
      read = true;
    }
  return read;
}

// What `value` is of `from`, of `to`.
static vt_value *derive(vt_op *before, const vt_value *value, const vt_value *from, vt_value *to) {
  if (value == from) return to;
  vt_func *func = before->func;
  if (is_splat(value)) {
    vt_literal *literal = VT_NEW(&func->module->arena, vt_literal);
    *literal = *vt_attr_literal(value->op, VT_ATTR_VALUE);
    literal->type = to->type;
    return vt_build_constant(func, before, value->op->loc, literal);
  }
  vt_value *operands[2];
  for (uint32_t i = 0; i < value->op->operand_count; i++)
    operands[i] = derive(before, value->op->operands[i], from, to);
  return vt_build(func, before, value->op->code, value->op->loc, to->type, value->op->operand_count,
                  operands);
}

static vt_value *capture_of(vt_op *loop, vt_value *value) {
  for (uint32_t i = loop->result_count; i < loop->operand_count; i++)
    if (loop->operands[i] == value) return loop->regions[1]->params[i];
  return vt_loop_add_capture(loop, value);
}

static void derive_in(vt_op *loop, uint32_t capture, vt_value *stack, const vt_value *value,
                      const vt_value *from) {
  vt_func *body = loop->regions[1];
  const vt_value *old = body->params[capture];
  vt_value *source = capture_of(loop, stack);
  for (vt_op *op = body->first; op; op = op->next) {
    if (op->code != VT_OP_DYNAMIC_SLICE || op->operands[0] != old) continue;
    vt_op *read =
        vt_build(body, op, op->code, op->loc, op->results[0].type, op->operand_count, op->operands)
            ->op;
    read->operands[0] = source;
    for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(read, op->attrs[i]);
    vt_value_replace(&op->results[0], derive(op, value, from, &read->results[0]));
  }
}

// ---- The loop.

static void drop_stack(const deriving *d, uint32_t k, uint32_t source) {
  const vt_value *value = element_of(d, k), *from = element_of(d, source),
                 *stack = &d->loop->results[k];
  for (vt_op *op = d->loop->next; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i] == stack) derive_in(op, i, &d->loop->results[source], value, from);
  d->derived[k] = true;
}

static void visit_loop(vt_op *loop, vt_arena *scratch, bool *changed) {
  vt_func *body = loop->regions[1];
  bool *kept = VT_NEW_ARRAY(scratch, bool, loop->result_count);
  deriving d = {loop, vt_loop_fills(scratch, loop),
                VT_NEW_ARRAY(scratch, bool, loop->result_count)};
  for (uint32_t k = 0; k < loop->result_count; k++) {
    if (!d.fills[k] || kept[k] || !is_read_by_elements(loop->func, &loop->results[k])) continue;
    int32_t source = source_of(&d, k);
    if (source < 0) continue;
    drop_stack(&d, k, (uint32_t)source);
    kept[source] = true;
  }
  for (uint32_t k = 0; k < loop->result_count; k++) {
    if (!d.derived[k]) continue;
    body->returns[k] = body->params[k];
    *changed = true;
  }
}

static vt_status visit(vt_func *func, void *user) {
  vt_arena scratch = {.brief = true};
  for (vt_op *op = func->first; op; op = op->next)
    if (op->code == VT_OP_WHILE) visit_loop(op, &scratch, user);
  vt_arena_free(&scratch);
  return VT_OK;
}

vt_status vt_derived_stacks(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_WHILE] || !module->made[VT_OP_DYNAMIC_UPDATE_SLICE]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
