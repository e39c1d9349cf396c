// SPDX-License-Identifier: Apache-2.0
// verify_control.c - control flow, calls, tokens and transfers, collectives, Shardy ops.
#include <inttypes.h>
#include <string.h>

#include "ir/sharding.h"
#include "ir/verify.h"

static const vt_type token = {VT_TOKEN, 0, NULL};

// The types of `count` values from `values`, in `arena`.
static const vt_type *types_of(vt_arena *arena, uint32_t count, vt_value *const *values) {
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, count);
  for (uint32_t i = 0; i < count; i++) types[i] = values[i]->type;
  return types;
}
static const vt_type *result_types(vt_arena *arena, const vt_op *op) {
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, op->result_count);
  for (uint32_t i = 0; i < op->result_count; i++) types[i] = op->results[i].type;
  return types;
}

static vt_status verify_loop(const vt_op *op, vt_arena *scratch) {
  uint32_t count = vt_op_own_operands(op);
  CHECK(op, count == op->result_count, "has %u operands and %u results", count, op->result_count);
  const vt_type *types = types_of(scratch, count, op->operands);
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(vt_verify_result(op, i, types[i].dtype, types[i].rank, types[i].dims));
  vt_type predicate = {VT_PRED, 0, NULL};
  VT_TRY(vt_verify_region(op, 0, count, types, 1, &predicate));
  return vt_verify_region(op, 1, count, types, count, types);
}

static vt_status verify_branches(const vt_op *op, vt_arena *scratch) {
  CHECK(op, vt_op_own_operands(op) == 1 && op->region_count >= 1, "has %u operands and %u branches",
        vt_op_own_operands(op), op->region_count);
  vt_type selector = vt_operand_type(op, 0);
  CHECK(op, !selector.rank && selector.dtype == (op->code == VT_OP_IF ? VT_PRED : VT_S32),
        "the selector is not a scalar %s", op->code == VT_OP_IF ? "i1" : "i32");
  const vt_type *types = result_types(scratch, op);
  for (uint32_t i = 0; i < op->region_count; i++)
    VT_TRY(vt_verify_region(op, i, 0, NULL, op->result_count, types));
  return VT_OK;
}

static vt_status verify_callee(const vt_op *op, vt_attr_key key) {
  const vt_attr *attr = vt_op_attr(op, key);
  CHECK(op, attr && attr->count == 1 && attr->funcs[0], "attribute %s is missing",
        vt_attr_text(key));
  const vt_func *callee = attr->funcs[0];
  CHECK(op, callee->param_count == op->operand_count && callee->return_count == op->result_count,
        "%s takes %u and returns %u values, called with %u and %u", callee->name,
        callee->param_count, callee->return_count, op->operand_count, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    CHECK(op, vt_type_equal(callee->params[i]->type, vt_operand_type(op, i)),
          "operand %u does not fit %s", i, callee->name);
  for (uint32_t i = 0; i < op->result_count; i++)
    CHECK(op, vt_type_equal(callee->returns[i]->type, vt_result_type(op, i)),
          "result %u does not fit %s", i, callee->name);
  return VT_OK;
}

vt_status vt_verify_identity(const vt_op *op) {
  CHECK(op, op->operand_count == op->result_count, "has %u operands and %u results",
        op->operand_count, op->result_count);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_type type = vt_operand_type(op, i);
    VT_TRY(vt_verify_result(op, i, type.dtype, type.rank, type.dims));
  }
  return VT_OK;
}

vt_status vt_verify_tokens(const vt_op *op) {
  bool in_token = op->operand_count && vt_operand_type(op, op->operand_count - 1).dtype == VT_TOKEN;
  bool out_token = op->result_count && vt_result_type(op, op->result_count - 1).dtype == VT_TOKEN;
  CHECK(op, out_token, "the last result is not a token");
  if (op->code == VT_OP_AFTER_ALL) {
    for (uint32_t i = 0; i < op->operand_count; i++)
      CHECK(op, vt_operand_type(op, i).dtype == VT_TOKEN, "operand %u is not a token", i);
    return vt_verify_result(op, 0, token.dtype, 0, NULL);
  }
  CHECK(op, op->code == VT_OP_CREATE_TOKEN || in_token, "the last operand is not a token");
  return VT_OK;
}

// Rows of device ids, padded with -1.
static vt_status verify_groups(const vt_op *op) {
  const vt_literal *groups = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  CHECK(op, groups, "attribute replica_groups is missing");
  CHECK(op, groups->type.dtype == VT_S64 && groups->type.rank == 2,
        "replica_groups is not a matrix of i64");
  return VT_OK;
}

vt_status vt_verify_group_ids(const vt_op *op, const vt_literal *groups) {
  int64_t elements = vt_type_elements(groups->type),
          size = groups->splat && elements ? 1 : elements;
  const int64_t *ids = groups->data;
  for (int64_t i = 0; i < size; i++)
    CHECK(op, ids[i] >= -1 && ids[i] < INT32_MAX, "replica_groups holds %" PRId64, ids[i]);
  return VT_OK;
}

static vt_status verify_combiner(const vt_op *op) {
  vt_type pair[2] = {{vt_result_type(op, 0).dtype, 0, NULL},
                     {vt_result_type(op, 0).dtype, 0, NULL}};
  return vt_verify_region(op, 0, 2, pair, 1, pair);
}

// Member count of the groups; 0 when they are "all devices". Replicas may
// count with all their partitions.
static int64_t group_size(const vt_op *op) {
  const vt_literal *groups = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS);
  bool whole = vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) > 0 &&
               vt_op_attr(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS) &&
               !vt_attr_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS);
  int64_t each = whole ? op->func->module->num_partitions : 1;
  return groups && vt_type_elements(groups->type) ? groups->type.dims[1] * each : 0;
}

static vt_status verify_resized(const vt_op *op, vt_attr_key grown, vt_attr_key shrunk) {
  CHECK(op, vt_op_own_operands(op) == op->result_count && op->result_count,
        "operands and results differ in number");
  int64_t group = group_size(op);
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type in = vt_operand_type(op, i), out = vt_result_type(op, i);
    int64_t grown_dim = -1, shrunk_dim = -1;
    CHECK(op, in.rank == out.rank && in.dtype == out.dtype,
          "operand and result %u differ in rank or type", i);
    if (grown) VT_TRY(vt_verify_i64(op, grown, 0, in.rank - 1, &grown_dim));
    if (shrunk) VT_TRY(vt_verify_i64(op, shrunk, 0, in.rank - 1, &shrunk_dim));
    for (int32_t d = 0; d < in.rank; d++) {
      bool changes = (d == grown_dim) != (d == shrunk_dim);
      if (!changes) {
        CHECK(op, in.dims[d] == out.dims[d], "dimension %d changes size", d);
      } else {
        int64_t large = d == grown_dim ? out.dims[d] : in.dims[d],
                small = d == grown_dim ? in.dims[d] : out.dims[d];
        CHECK(op, small ? large % small == 0 && (!group || large / small == group) : !large,
              "sizes %" PRId64 " and %" PRId64 " of dimension %d do not fit the groups", small,
              large, d);
      }
    }
  }
  return VT_OK;
}

// Offsets and sizes are vectors of one length, a multiple of the group's; the arrays differ only in
// their first dimension.
vt_status vt_verify_ragged(const vt_op *op) {
  VT_TRY(verify_groups(op));
  vt_type from = vt_operand_type(op, 0), to = vt_operand_type(op, 1);
  CHECK(op, from.rank >= 1 && from.rank == to.rank && from.dtype == to.dtype,
        "operand and output differ in rank or type");
  for (int32_t d = 1; d < from.rank; d++)
    CHECK(op, from.dims[d] == to.dims[d], "dimension %d of operand and output differs", d);
  int64_t group = group_size(op);
  for (uint32_t i = 2; i < 6; i++) {
    vt_type list = vt_operand_type(op, i);
    CHECK(op,
          list.rank == 1 && vt_dtype_is_integer(list.dtype) &&
              list.dims[0] == vt_operand_type(op, 2).dims[0],
          "operand %u is not a vector of integers like operand 2", i);
    CHECK(op, list.dims[0] > 0 && (!group || list.dims[0] % group == 0),
          "%" PRId64 " parts for groups of %" PRId64, list.dims[0], group);
  }
  return vt_verify_result(op, 0, to.dtype, to.rank, to.dims);
}

// One operand per result and, with has_dynamic_root, a vector of roots after them.
static vt_status verify_rooted(const vt_op *op) {
  bool rooted = vt_attr_i64_or(op, VT_ATTR_HAS_DYNAMIC_ROOT, 0) != 0;
  CHECK(op, op->result_count && vt_op_own_operands(op) == op->result_count + rooted,
        "operands and results differ in number");
  if (!rooted) return VT_OK;
  vt_type roots = vt_operand_type(op, op->result_count);
  CHECK(op, roots.dtype == VT_S32 && roots.rank == 1 && roots.dims[0] == op->result_count,
        "the last operand is not a root for each result");
  return VT_OK;
}

vt_status vt_verify_all_reduce(const vt_op *op) {
  VT_TRY(verify_groups(op));
  VT_TRY(verify_rooted(op));
  for (uint32_t i = 0; i < op->result_count; i++)
    CHECK(op,
          vt_type_same_dims(vt_operand_type(op, i), vt_result_type(op, i)) &&
              vt_operand_type(op, i).dtype == vt_operand_type(op, 0).dtype &&
              vt_result_type(op, i).dtype == vt_result_type(op, 0).dtype,
          "operand and result %u do not fit", i);
  return verify_combiner(op);
}

vt_status vt_verify_all_gather(const vt_op *op) {
  VT_TRY(verify_groups(op));
  return verify_resized(op, VT_ATTR_ALL_GATHER_DIM, VT_ATTR_NONE);
}

vt_status vt_verify_reduce_scatter(const vt_op *op) {
  VT_TRY(verify_groups(op));
  VT_TRY(verify_resized(op, VT_ATTR_NONE, VT_ATTR_SCATTER_DIMENSION));
  for (uint32_t i = 1; i < op->result_count; i++)
    CHECK(op, vt_result_type(op, i).dtype == vt_result_type(op, 0).dtype,
          "results 0 and %u differ in type", i);
  return verify_combiner(op);
}

vt_status vt_verify_all_to_all(const vt_op *op) {
  int64_t count;
  VT_TRY(verify_groups(op));
  VT_TRY(vt_verify_i64(op, VT_ATTR_SPLIT_COUNT, 1, INT32_MAX, &count));
  return verify_resized(op, VT_ATTR_CONCAT_DIMENSION, VT_ATTR_SPLIT_DIMENSION);
}

vt_status vt_verify_permute(const vt_op *op) {
  const vt_literal *pairs = vt_attr_literal(op, VT_ATTR_SOURCE_TARGET_PAIRS);
  CHECK(op,
        pairs && pairs->type.dtype == VT_S64 &&
            (!vt_type_elements(pairs->type) || (pairs->type.rank == 2 && pairs->type.dims[1] == 2)),
        "source_target_pairs is not a list of pairs");
  return vt_verify_identity(op);
}

vt_status vt_verify_collective_broadcast(const vt_op *op) {
  VT_TRY(verify_groups(op));
  VT_TRY(verify_rooted(op));
  for (uint32_t i = 0; i < op->result_count; i++)
    CHECK(op, vt_type_equal(vt_operand_type(op, i), vt_result_type(op, i)),
          "operand and result %u differ in type", i);
  return VT_OK;
}

vt_status vt_verify_replica_sum(const vt_op *op) {
  VT_TRY(verify_groups(op));
  return vt_verify_identity(op);
}

// Size of the local shape along one dimension: the global size divided by the manual axes that
// shard it.
static vt_status local_size(const vt_op *op, const vt_sharding *sharding, int32_t d, int64_t global,
                            int64_t *out) {
  const vt_attr *manual = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  const vt_dim_sharding *dim = &sharding->dims[d];
  *out = global;
  for (uint32_t i = 0; i < dim->axis_count; i++) {
    CHECK(op, dim->axes[i].axis < sharding->mesh->axis_count && dim->axes[i].size >= 1,
          "axis outside of the mesh");
    const char *name = sharding->mesh->axes[dim->axes[i].axis].name;
    for (uint32_t k = 0; k < manual->count; k++) {
      if (strcmp(manual->strings[k].data, name)) continue;
      CHECK(op, *out % dim->axes[i].size == 0,
            "dimension %d of size %" PRId64 " does not divide by axis %s", d, global, name);
      *out /= dim->axes[i].size;
    }
  }
  return VT_OK;
}

static vt_status verify_local(const vt_op *op, const vt_sharding *sharding, vt_type global,
                              vt_type local, const char *what, uint32_t i) {
  if (global.dtype == VT_TOKEN) {
    CHECK(op, local.dtype == VT_TOKEN, "%s %u is not a token inside", what, i);
    return VT_OK;
  }
  CHECK(op,
        sharding && sharding->kind == VT_SHARDING_MESH && sharding->mesh &&
            sharding->rank == global.rank,
        "%s %u has a sharding of a different rank", what, i);
  CHECK(op, local.dtype == global.dtype && local.rank == global.rank,
        "%s %u has a different rank or type inside", what, i);
  for (int32_t d = 0; d < global.rank; d++) {
    int64_t size;
    VT_TRY(local_size(op, sharding, d, global.dims[d], &size));
    CHECK(op, local.dims[d] == size, "%s %u has size %" PRId64 " inside, expected %" PRId64, what,
          i, local.dims[d], size);
  }
  return VT_OK;
}

vt_status vt_verify_manual(const vt_op *op) {
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS),
                *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS);
  const vt_func *body = op->regions[0];
  uint32_t count = vt_op_own_operands(op);
  CHECK(op, in && out && vt_op_attr(op, VT_ATTR_MANUAL_AXES),
        "shardings or manual axes are missing");
  CHECK(op, in->count == count && out->count == op->result_count,
        "shardings do not fit operands and results");
  CHECK(op, body->param_count == op->operand_count && body->return_count == op->result_count,
        "the body takes %u and returns %u values", body->param_count, body->return_count);
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(verify_local(op, in->shardings[i], vt_operand_type(op, i), body->params[i]->type,
                        "operand", i));
  for (uint32_t i = count; i < op->operand_count; i++)
    CHECK(op, vt_type_equal(vt_operand_type(op, i), body->params[i]->type),
          "captured value %u has a different type", i);
  for (uint32_t i = 0; i < op->result_count; i++)
    VT_TRY(verify_local(op, out->shardings[i], vt_result_type(op, i), body->returns[i]->type,
                        "result", i));
  return VT_OK;
}

vt_status vt_verify_while(const vt_op *op) {
  vt_arena scratch = {0};
  vt_status st = verify_loop(op, &scratch);
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_verify_branches(const vt_op *op) {
  vt_arena scratch = {0};
  vt_status st = verify_branches(op, &scratch);
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_verify_call(const vt_op *op) {
  return verify_callee(op, VT_ATTR_CALLEE);
}

vt_status vt_verify_composite(const vt_op *op) {
  return verify_callee(op, VT_ATTR_DECOMPOSITION);
}

vt_status vt_verify_custom_call(const vt_op *op) {
  CHECK(op, vt_op_attr(op, VT_ATTR_CALL_TARGET_NAME), "has no target name");
  return VT_OK;
}

vt_status vt_verify_device_id(const vt_op *op) {
  return vt_verify_result(op, 0, VT_U32, 0, NULL);
}

vt_status vt_verify_dimension_size(const vt_op *op) {
  int64_t dim;
  VT_TRY(vt_verify_i64(op, VT_ATTR_DIMENSION, 0, vt_operand_type(op, 0).rank - 1, &dim));
  return vt_verify_result(op, 0, VT_S32, 0, NULL);
}
