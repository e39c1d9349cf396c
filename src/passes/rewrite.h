// SPDX-License-Identifier: Apache-2.0
// rewrite.h - how a pass replaces values: one forward walk, in which each op's operands are first
// resolved.
//
// A pass that finds two equal values calls vt_rewrite_value(from, to). Later uses see it when the
// walk reaches them (vt_rewrite_operands), the function's returns at the end (vt_rewrite_returns):
// O(uses) for a whole walk, where vt_value_replace would search the function for each value. The
// old op stays until dce.
#ifndef VT_PASSES_REWRITE_H
#define VT_PASSES_REWRITE_H

#include "base/check.h"
#include "ir/module.h"

// What a pass hands to its visits of functions.
typedef struct vt_rewriting {
  vt_arena *scratch; // until the pass ends
  bool *changed;
} vt_rewriting;

static inline vt_value *vt_rewrite_resolve(vt_value *value) {
  while (value->replaced_by) value = value->replaced_by;
  return value;
}
static inline void vt_rewrite_value(vt_value *from, vt_value *to) {
  to = vt_rewrite_resolve(to);
  vt_assert(from->func == to->func && vt_type_equal(from->type, to->type));
  if (from != to) from->replaced_by = to;
}
static inline void vt_rewrite_operands(vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    op->operands[i] = vt_rewrite_resolve(op->operands[i]);
  vt_assert_each(k, op->operand_count, op->operands[k]->func == op->func);
}
static inline void vt_rewrite_returns(vt_func *func) {
  for (uint32_t i = 0; i < func->return_count; i++)
    func->returns[i] = vt_rewrite_resolve(func->returns[i]);
  vt_assert_each(k, func->return_count, func->returns[k]->func == func);
}

// Calls `visit` for main, the functions that it calls, and every region below them in which there
// may be something to rewrite, regions before the function that holds them.
typedef vt_status vt_func_visitor(vt_func *func, void *user);
vt_status vt_rewrite_each_func(vt_module *module, vt_func_visitor *visit, void *user) VT_CHECKED;
// So with `out_changed` as the user, which a visit sets; then drops what nobody uses any more.
vt_status vt_rewrite_and_drop(vt_module *module, vt_func_visitor *visit,
                              bool *out_changed) VT_CHECKED;

// Whether an op of this kind, which has regions, is in the function; not in its regions.
bool vt_func_holds(vt_func *func, vt_opcode code);

// Whether the function has the value as an operand or returns it; not in its regions.
bool vt_func_reads(const vt_func *func, const vt_value *value);

// Whether a list of names with commas between has the name of a pass; '_' and '-' are the same.
bool vt_pass_listed(const char *list, size_t list_size, const char *name);

// True when the value is a constant with every element equal to `wanted`. Only f32, f64 and
// integers. (opt_simplify.c)
bool vt_is_splat_of(const vt_value *value, double wanted);

// Makes a scatter of one window, as large as the array and at its beginning, its body, elementwise
// before it; false: it is none. (opt_simplify.c)
bool vt_simplify_whole_scatter(vt_op *op);

// True when the value is a constant, or a broadcast of one, with one number for all elements.
bool vt_is_number(const vt_value *value, double *out);

// A constant before the op with one number, rounded to the element type, for all elements.
vt_value *vt_build_number(vt_op *before, vt_type type, double number);

// Whether all numbers of the attribute, if the op has it, are `wanted`.
bool vt_ints_are(const vt_op *op, vt_attr_key key, int64_t wanted);

// Whether a slice of type `part` at these indices is one element of the first dimension of `all`.
bool vt_is_element_of(vt_type all, vt_type part, vt_value *const *indices);
// Whether all that reads the stack in a function are slices of one element each.
bool vt_reads_elements(const vt_func *func, const vt_value *stack);

#endif
