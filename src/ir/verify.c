// SPDX-License-Identifier: Apache-2.0
// verify.c - vt_module_verify: structure here, the meaning of each op in verify_<family>.c.
// In: any module whose pointers are sound. Out: VT_OK, or the first violation with the op and its
// location.
// The evaluator and every back end may run a module that passes without further checks.
#include "ir/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/map.h"

vt_status vt_verify_error(const vt_op *op, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(VT_INVALID_ARGUMENT, format, args);
  va_end(args);
  vt_arena scratch = {0};
  st = vt_status_wrap(st, "%s", vt_op_describe(op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_verify_ints(const vt_op *op, vt_attr_key key, uint32_t count,
                         const int64_t **out_ints) {
  const vt_attr *attr = vt_op_attr(op, key);
  CHECK(op, attr, "attribute %s is missing", vt_attr_text(key));
  CHECK(op, attr->count == count, "%s has %u entries, expected %u", vt_attr_text(key), attr->count,
        count);
  *out_ints = attr->ints;
  return VT_OK;
}

vt_status vt_verify_dims(const vt_op *op, vt_attr_key key, int32_t rank, bool sorted,
                         const int64_t **out_dims, uint32_t *out_count) {
  const vt_attr *attr = vt_op_attr(op, key);
  CHECK(op, attr, "attribute %s is missing", vt_attr_text(key));
  uint64_t seen = 0;
  for (uint32_t i = 0; i < attr->count; i++) {
    int64_t d = attr->ints[i];
    CHECK(op, d >= 0 && d < rank, "%s holds %" PRId64 ", outside of rank %d", vt_attr_text(key), d,
          rank);
    CHECK(op, !(seen >> d & 1), "%s holds %" PRId64 " twice", vt_attr_text(key), d);
    CHECK(op, !sorted || !i || attr->ints[i - 1] < d, "%s is not ascending", vt_attr_text(key));
    seen |= (uint64_t)1 << d;
  }
  *out_dims = attr->ints;
  *out_count = attr->count;
  return VT_OK;
}

vt_status vt_verify_i64(const vt_op *op, vt_attr_key key, int64_t lowest, int64_t highest,
                        int64_t *out_value) {
  const vt_attr *attr = vt_op_attr(op, key);
  CHECK(op, attr, "attribute %s is missing", vt_attr_text(key));
  CHECK(op, attr->i64 >= lowest && attr->i64 <= highest,
        "%s is %" PRId64 ", outside of %" PRId64 "..%" PRId64, vt_attr_text(key), attr->i64, lowest,
        highest);
  *out_value = attr->i64;
  return VT_OK;
}

static vt_status type_mismatch(const vt_op *op, const char *what, uint32_t i, vt_type got,
                               vt_type want) {
  vt_text text = {0};
  vt_type_print(&text, got);
  vt_text_put(&text, ", expected ");
  vt_type_print(&text, want);
  vt_status st = vt_verify_error(op, "%s %u has type %s", what, i, vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

vt_status vt_verify_result(const vt_op *op, uint32_t i, vt_dtype dtype, int32_t rank,
                           const int64_t *dims) {
  vt_type want = {dtype, rank, dims};
  if (i < op->result_count && vt_type_equal(vt_result_type(op, i), want)) return VT_OK;
  CHECK(op, i < op->result_count, "has %u results, expected more", op->result_count);
  return type_mismatch(op, "result", i, vt_result_type(op, i), want);
}

vt_status vt_verify_region(const vt_op *op, uint32_t i, uint32_t param_count, const vt_type *params,
                           uint32_t return_count, const vt_type *returns) {
  const vt_func *region = op->regions[i];
  CHECK(op, region->param_count == param_count + op->capture_count,
        "region %u takes %u values, expected %u", i, region->param_count,
        param_count + op->capture_count);
  CHECK(op, region->return_count == return_count, "region %u returns %u values, expected %u", i,
        region->return_count, return_count);
  for (uint32_t k = 0; k < param_count; k++)
    if (!vt_type_equal(region->params[k]->type, params[k]))
      return type_mismatch(op, "region parameter", k, region->params[k]->type, params[k]);
  for (uint32_t k = 0; k < op->capture_count; k++) {
    vt_type captured = op->operands[vt_op_own_operands(op) + k]->type;
    if (!vt_type_equal(region->params[param_count + k]->type, captured))
      return type_mismatch(op, "captured value", k, region->params[param_count + k]->type,
                           captured);
  }
  for (uint32_t k = 0; k < return_count; k++)
    if (!vt_type_equal(region->returns[k]->type, returns[k]))
      return type_mismatch(op, "region result", k, region->returns[k]->type, returns[k]);
  return VT_OK;
}

static vt_status verify_arity(const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  CHECK(op, op->code > VT_OP_INVALID && op->code < VT_OP_COUNT, "unknown op %d", (int)op->code);
  CHECK(op, op->capture_count <= op->operand_count, "more captures than operands");
  CHECK(op, info->operands < 0 || vt_op_own_operands(op) == (uint32_t)info->operands,
        "has %u operands, expected %d", vt_op_own_operands(op), info->operands);
  CHECK(op, info->results < 0 || op->result_count == (uint32_t)info->results,
        "has %u results, expected %d", op->result_count, info->results);
  CHECK(op, info->regions < 0 || op->region_count == (uint32_t)info->regions,
        "has %u regions, expected %d", op->region_count, info->regions);
  CHECK(op, !op->capture_count || op->region_count, "captures values but has no region");
  CHECK(op, !(info->flags & VT_OPF_DYNAMIC) || op->code == VT_OP_GET_DIMENSION_SIZE,
        "dynamic shapes are not supported: every dimension must be known when the program is "
        "compiled");
  return VT_OK;
}

vt_status vt_verify_none(const vt_op *op) {
  (void)op;
  return VT_OK;
}

typedef vt_status verify_rule(const vt_op *op);
static verify_rule *const rules[VT_OP_COUNT] = {
#define OP(name, text, operands, results, regions, kinds, rule, ...)                               \
  [VT_OP_##name] = vt_verify_##rule,
#include "ir/ops.def"
#undef OP
};

typedef struct verifier {
  vt_map
      sound; // lists of groups that were read: they grow with the devices, and many ops share one
  VT_ARRAY(const vt_value *) defined; // so far, in the function and those around it, by their ids
} verifier;

static vt_status verify_group_ids(verifier *v, const vt_op *op) {
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE)) return VT_OK;
  const vt_literal *groups = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  if (!groups || vt_map_find_ptr(&v->sound, groups)) return VT_OK;
  VT_TRY(vt_verify_group_ids(op, groups));
  *vt_map_at_ptr(&v->sound, groups) = v;
  return VT_OK;
}

static vt_status verify_op(verifier *v, const vt_op *op) {
  VT_TRY(verify_arity(op));
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_status st = vt_type_check(op->results[i].type);
    if (st) {
      vt_arena scratch = {0};
      st = vt_status_wrap(st, "%s", vt_op_describe(op, &scratch));
      vt_arena_free(&scratch);
      return st;
    }
  }
  VT_TRY(rules[op->code](op));
  return verify_group_ids(v, op);
}

enum { MAX_REGION_DEPTH = 256 };

static void define(verifier *v, vt_value *value) {
  value->id = (int32_t)v->defined.size;
  value->func->numbered = false;
  vt_array_push(&v->defined, value);
}

static bool is_defined(const verifier *v, size_t first, const vt_value *value) {
  return value && value->id >= (int32_t)first && (size_t)value->id < v->defined.size &&
         v->defined.data[value->id] == value;
}

// Values are numbered during the walk, so a use before its definition or from another function is
// found by comparing it with the value that has this number.
static vt_status verify_func(verifier *v, const vt_func *func, int depth) {
  if (depth > MAX_REGION_DEPTH)
    return vt_error(VT_INVALID_ARGUMENT, "regions are nested more than %d deep", MAX_REGION_DEPTH);
  size_t first = v->defined.size;
  for (uint32_t i = 0; i < func->param_count; i++) {
    VT_TRY(vt_type_check(func->params[i]->type));
    define(v, func->params[i]);
  }
  for (const vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (!is_defined(v, first, op->operands[i]))
        return vt_verify_error(op, "operand %u is not defined before its use", i);
    VT_TRY(verify_op(v, op));
    for (uint32_t i = 0; i < op->region_count; i++)
      VT_TRY(verify_func(v, op->regions[i], depth + 1));
    for (uint32_t i = 0; i < op->result_count; i++) define(v, &op->results[i]);
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    if (!is_defined(v, first, func->returns[i]))
      return vt_error(VT_INVALID_ARGUMENT, "result %u of function %s is not defined in it", i,
                      func->name);
  v->defined.size = first;
  return VT_OK;
}

// Calls may nest but not recurse. Later stages inline calls and walk regions recursively, so there
// are limits on the nesting depth of calls and regions, and on the number of ops after inlining.
enum { MAX_DEPTH = 1000, MAX_CALLED_OPS = 1 << 20 };

typedef struct extent {
  bool done; // false: being visited
  int32_t height;
  int64_t ops; // including its regions, and callees once per call
} extent;

typedef struct extents {
  vt_arena arena;
  vt_map of; // function -> extent
} extents;

static vt_status measure_func(extents *e, const vt_func *func, int depth, extent **out_extent);

static vt_status measure_inner(extents *e, const vt_func *inner, int depth, bool called,
                               extent *sum) {
  extent *one;
  VT_TRY(measure_func(e, inner, depth, &one));
  if (one->height >= sum->height) sum->height = one->height + 1;
  sum->ops += one->ops;
  if (called && sum->ops > MAX_CALLED_OPS)
    return vt_error(VT_RESOURCE_EXHAUSTED, "calls of function %s expand to more than %d operations",
                    inner->name, MAX_CALLED_OPS);
  return VT_OK;
}

static vt_status measure_func(extents *e, const vt_func *func, int depth, extent **out_extent) {
  extent *sum = *out_extent = vt_map_find_ptr(&e->of, func);
  if (sum && !sum->done)
    return vt_error(VT_INVALID_ARGUMENT, "function %s calls itself", func->name);
  if (depth + (sum ? sum->height : 0) > MAX_DEPTH)
    return vt_error(VT_RESOURCE_EXHAUSTED, "function %s: calls and regions nest more than %d deep",
                    func->name, MAX_DEPTH);
  if (sum) return VT_OK;
  *vt_map_at_ptr(&e->of, func) = *out_extent = sum = VT_NEW(&e->arena, extent);
  for (const vt_op *op = func->first; op; op = op->next) {
    sum->ops++;
    for (uint32_t i = 0; i < op->region_count; i++)
      VT_TRY(measure_inner(e, op->regions[i], depth + 1, false, sum));
    for (uint32_t a = 0; a < op->attr_count; a++)
      if (vt_attr_kind_of(op->attrs[a].key) == VT_ATTR_KIND_FUNCS)
        for (uint32_t i = 0; i < op->attrs[a].count; i++)
          VT_TRY(measure_inner(e, op->attrs[a].funcs[i], depth + 1, true, sum));
  }
  sum->done = true;
  return VT_OK;
}

vt_status vt_module_verify(const vt_module *module) {
  if (!module->main) return vt_error(VT_INVALID_ARGUMENT, "the module has no function main");
  extents e = {0};
  verifier v = {0};
  extent *all;
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < module->func_count; i++)
    VT_TRY_OUT(measure_func(&e, module->funcs[i], 0, &all));
  for (uint32_t i = 0; i < module->func_count; i++) {
    const vt_func *func = module->funcs[i];
    if ((st = verify_func(&v, func, 0))) {
      st = vt_status_wrap(st, "function %s", func->name);
      goto out;
    }
  }
out:
  vt_map_free(&v.sound);
  vt_array_free(&v.defined);
  vt_map_free(&e.of);
  vt_arena_free(&e.arena);
  return st;
}

bool vt_verify_wanted(void) {
#ifdef NDEBUG
  return getenv("VTPU_VERIFY_PASSES") != NULL;
#else
  return true;
#endif
}
