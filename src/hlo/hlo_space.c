// SPDX-License-Identifier: Apache-2.0
// hlo_space.c - which values of a program lie in the host's memory.
//
// The program says so of parameters and, by the custom call annotate_device_placement, of values;
// from there it follows them through whatever carries them: reshapes, loops, branches, calls,
// slices that are written into an array. A slice that is read out of an array in host memory is
// already on the device. Values only ever join the set, so repeating the walk until nothing is
// added ends after about as many rounds as loops are nested.
#include <string.h>

#include "hlo/hlo_builder.h"

static bool join(vt_map *set, const vt_value *value) {
  if (vt_map_has(set, &value, sizeof value)) return false;
  *vt_map_at_ptr(set, value) = (void *)1;
  return true;
}

static bool join_if(vt_hlo_builder *b, bool host, const vt_value *value) {
  return host && value->type.dtype != VT_TOKEN && join(&b->host, value);
}

static bool has_host_marker(const vt_func *func) {
  bool host = false;
  for (const vt_op *op = func->first; op; op = op->next) {
    if (vt_op_places(op, &host) && host) return true;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (has_host_marker(op->regions[i])) return true;
  }
  return false;
}

// Values put into host memory that nothing reads but updates of slices: those take them there.
// Walks backwards; `read` has the values with another reader.
static void find_staged(vt_hlo_builder *b, const vt_func *func, vt_map *read) {
  for (uint32_t i = 0; i < func->return_count; i++) join(read, func->returns[i]);
  for (const vt_op *op = func->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->region_count; i++) find_staged(b, op->regions[i], read);
    const vt_value *result = op->result_count ? &op->results[0] : NULL;
    bool host, passes = op->code == VT_OP_RESHAPE;
    if (passes && !vt_map_has(read, &result, sizeof result)) continue;
    if (vt_op_places(op, &host) && host && !vt_map_has(read, &result, sizeof result))
      join(&b->staged, result);
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->code != VT_OP_DYNAMIC_UPDATE_SLICE || i != 1) join(read, op->operands[i]);
  }
}

// Joins pairs of values that are one location: if one lies in host memory, so does the other.
static bool unite(vt_hlo_builder *b, const vt_value *x, const vt_value *y) {
  bool more = join_if(b, vt_hlo_in_host(b, x), y);
  return join_if(b, vt_hlo_in_host(b, y), x) || more;
}

static bool place_func(vt_hlo_builder *b, const vt_func *func);

static bool place_while(vt_hlo_builder *b, const vt_op *op) {
  const vt_func *test = op->regions[0], *body = op->regions[1];
  bool more = false;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    more = join_if(b, vt_hlo_in_host(b, op->operands[i]), body->params[i]) || more;
    if (i < op->result_count) {
      more = join_if(b, vt_hlo_in_host(b, body->returns[i]), body->params[i]) || more;
      more = join_if(b, vt_hlo_in_host(b, body->params[i]), &op->results[i]) || more;
    }
    more = join_if(b, vt_hlo_in_host(b, body->params[i]), test->params[i]) || more;
  }
  return more;
}

static bool place_branches(vt_hlo_builder *b, const vt_op *op) {
  bool more = false;
  uint32_t own = vt_op_own_operands(op);
  for (uint32_t r = 0; r < op->region_count; r++) {
    const vt_func *branch = op->regions[r];
    for (uint32_t i = 0; i < op->capture_count; i++)
      more = join_if(b, vt_hlo_in_host(b, op->operands[own + i]), branch->params[i]) || more;
    for (uint32_t i = 0; i < op->result_count; i++)
      more = join_if(b, vt_hlo_in_host(b, branch->returns[i]), &op->results[i]) || more;
  }
  return more;
}

static bool place_call(vt_hlo_builder *b, const vt_op *op, const vt_func *callee) {
  bool more = false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    more = join_if(b, vt_hlo_in_host(b, op->operands[i]), callee->params[i]) || more;
  for (uint32_t i = 0; i < op->result_count; i++)
    more = join_if(b, vt_hlo_in_host(b, callee->returns[i]), &op->results[i]) || more;
  return more;
}

static bool is_staged(const vt_hlo_builder *b, const vt_value *value) {
  while (value->op && value->op->code == VT_OP_RESHAPE) value = value->op->operands[0];
  return vt_map_has(&b->staged, &value, sizeof value);
}

static bool place_op(vt_hlo_builder *b, const vt_op *op) {
  bool host = false, more = false;
  const vt_func *callee = vt_op_callee(op);
  if (callee) return place_call(b, op, callee);
  if (vt_op_places(op, &host))
    return join_if(b, host && !is_staged(b, &op->results[0]), &op->results[0]);
  switch (op->code) {
  case VT_OP_WHILE:
    return place_while(b, op);
  case VT_OP_IF:
  case VT_OP_CASE:
    return place_branches(b, op);
  case VT_OP_OPTIMIZATION_BARRIER:
    for (uint32_t i = 0; i < op->result_count; i++)
      more = unite(b, op->operands[i], &op->results[i]) || more;
    return more;
  case VT_OP_DYNAMIC_SLICE:
    return false;
  case VT_OP_DYNAMIC_UPDATE_SLICE:
    host = vt_hlo_in_host(b, op->operands[0]) || vt_hlo_in_host(b, op->operands[1]) ||
           is_staged(b, op->operands[1]);
    return join_if(b, host, &op->results[0]);
  case VT_OP_CUSTOM_CALL:
    if (!vt_op_is_marker(op)) return false;
    break;
  default:
    break;
  }
  for (uint32_t i = 0; i < op->operand_count; i++) host |= vt_hlo_in_host(b, op->operands[i]);
  for (uint32_t i = 0; i < op->result_count; i++) more = join_if(b, host, &op->results[i]) || more;
  return more;
}

static bool place_func(vt_hlo_builder *b, const vt_func *func) {
  bool more = false;
  for (const vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->region_count; i++) more = place_func(b, op->regions[i]) || more;
    more = place_op(b, op) || more;
  }
  return more;
}

void vt_hlo_place(vt_hlo_builder *b) {
  const vt_module *module = b->module;
  bool any = false;
  for (uint32_t i = 0; i < module->main->param_count; i++)
    any = join_if(b, b->hlo->param_info[i].host, module->main->params[i]) || any;
  for (uint32_t i = 0; i < module->func_count; i++) any = any || has_host_marker(module->funcs[i]);
  if (!any) return;
  vt_map read = {0};
  for (uint32_t i = 0; i < module->func_count; i++) find_staged(b, module->funcs[i], &read);
  vt_map_free(&read);
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = 0; i < module->func_count; i++)
      more = place_func(b, module->funcs[i]) || more;
  }
}
