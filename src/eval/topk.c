// SPDX-License-Identifier: Apache-2.0
// topk.c - the custom calls ApproxTopK, and PartialReduce, which XLA's own passes turn it into: a
// stable sort by the called comparator and its first elements, which is exact.
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"

static int64_t dict_i64(const vt_dict_value *dict, const char *name, int64_t otherwise) {
  for (size_t i = 0; dict && i < dict->count; i++)
    if (!strcmp(dict->entries[i].name.data, name)) return dict->entries[i].value->i64;
  return otherwise;
}

// ApproxTopK has a dictionary, PartialReduce one as text; -1 when neither has it.
static int64_t reduction_dim(const vt_op *op) {
  static const char name[] = "\"reduction_dim\":";
  const vt_attr *config = vt_op_attr(op, VT_ATTR_BACKEND_DICT);
  if (config) return dict_i64(config->dict, "reduction_dim", -1);
  vt_string text = vt_attr_string(op, VT_ATTR_BACKEND_CONFIG);
  const char *at = text.size ? memmem(text.data, text.size, name, sizeof name - 1) : NULL;
  char number[8] = "";
  if (!at) return -1;
  at += sizeof name - 1;
  size_t left = text.size - (size_t)(at - text.data);
  memcpy(number, at, left < sizeof number - 1 ? left : sizeof number - 1);
  return strtoll(number, NULL, 10);
}

// Operands: arrays, then their init values. Results: the same arrays cut along reduction_dim.
vt_status vt_eval_approx_top_k(const vt_eval_call *call) {
  const vt_op *op = call->op;
  const vt_attr *called = vt_op_attr(op, VT_ATTR_CALLED_COMPUTATIONS);
  uint32_t n = op->result_count;
  int64_t d = reduction_dim(op);
  if (!called || called->count != 1 || !n || op->operand_count != 2 * n || d < 0 ||
      d >= call->in[0].type.rank)
    return vt_eval_invalid(op, "ApproxTopK");
  for (uint32_t i = 0; i < n; i++) {
    vt_type a = call->in[i].type, b = call->out[i].type;
    if (!vt_type_same_dims(a, call->in[0].type) || b.rank != a.rank || a.dtype != b.dtype ||
        b.dims[d] > a.dims[d])
      return vt_eval_refuse(op, "this shape of a partial sort");
  }
  vt_status st = VT_OK;
  vt_tensor *sorted = calloc(n, sizeof *sorted);
  if (!sorted) return vt_error_no_memory();
  // A sort op that is not in any function.
  vt_func *regions[1] = {called->funcs[0]};
  vt_attr attrs[1] = {{.key = VT_ATTR_DIMENSION, .i64 = d}};
  vt_op sort = *op;
  sort.code = VT_OP_SORT;
  sort.operand_count = n;
  sort.capture_count = 0;
  sort.region_count = 1;
  sort.regions = regions;
  sort.attr_count = 1;
  sort.attrs = attrs;
  for (uint32_t i = 0; i < n; i++) {
    sorted[i].type = call->in[i].type;
    VT_TRY_OUT(vt_eval_scratch(vt_type_bytes(sorted[i].type), &sorted[i].data));
  }
  vt_eval_call inner = {&sort, call->env, call->state, call->in, sorted};
  VT_TRY_OUT(vt_eval_sort(&inner));
  int64_t start[VT_MAX_RANK] = {0};
  for (uint32_t i = 0; i < n; i++)
    VT_TRY_OUT(vt_eval_cut(op, start, NULL, sorted[i], &call->out[i]));
out:
  for (uint32_t i = 0; i < n; i++) free(sorted[i].data);
  free(sorted);
  return st;
}
