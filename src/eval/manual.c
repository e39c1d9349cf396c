// SPDX-License-Identifier: Apache-2.0
// manual.c - manual computations: operands are cut into one tile per device, the region runs on all
// devices in lockstep, and the results' tiles are put together. Axes that are not manual stay
// whole.
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"
#include "ir/sharding.h"

static bool is_manual(const vt_op *op, const vt_mesh *mesh, uint32_t axis) {
  const vt_attr *axes = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  const char *name = mesh->axes[axis].name;
  for (uint32_t i = 0; axes && i < axes->count; i++)
    if (axes->strings[i].size == strlen(name) &&
        !memcmp(axes->strings[i].data, name, axes->strings[i].size))
      return true;
  return false;
}

static const vt_sharding *sharding_of(const vt_op *op, vt_attr_key key, uint32_t index) {
  const vt_attr *list = vt_op_attr(op, key);
  return list && index < list->count ? list->shardings[index] : NULL;
}

// The offset of a device's tile (of type `local`) in the whole array.
static vt_status tile_offset(const vt_op *op, const vt_sharding *s, vt_type whole, vt_type local,
                             int64_t device, int64_t *out) {
  int64_t strides[VT_MAX_RANK];
  *out = 0;
  if (whole.rank != local.rank) return vt_eval_invalid(op, "tile");
  if (vt_type_same_dims(whole, local)) return VT_OK;
  if (!s || s->kind != VT_SHARDING_MESH || !s->mesh || s->rank != whole.rank)
    return vt_eval_refuse(op, "a manual computation sharded like this");
  vt_type_strides(whole, strides);
  int64_t place = vt_mesh_place(s->mesh, device);
  for (int32_t d = 0; d < whole.rank; d++) {
    int64_t index = 0, count = 1;
    for (uint32_t a = 0; a < s->dims[d].axis_count; a++) {
      vt_axis_ref ref = s->dims[d].axes[a];
      if (ref.axis >= s->mesh->axis_count) return vt_eval_invalid(op, "sharding");
      if (!is_manual(op, s->mesh, ref.axis)) continue;
      index = index * ref.size + vt_mesh_coordinate(s->mesh, place, ref, NULL);
      count *= ref.size;
    }
    if (local.dims[d] * count != whole.dims[d]) return vt_eval_invalid(op, "tile");
    *out += index * local.dims[d] * strides[d];
  }
  return VT_OK;
}

// Copies a tile out of the whole array, or into it.
static void copy_tile(vt_type whole, vt_type local, void *whole_data, int64_t offset, void *tile,
                      bool into) {
  int64_t a[VT_MAX_RANK], b[VT_MAX_RANK];
  size_t bytes = vt_dtype_bytes(local.dtype);
  char *at = (char *)whole_data + offset * (int64_t)bytes;
  vt_type_strides(whole, a);
  vt_type_strides(local, b);
  if (into)
    vt_eval_move(bytes, local.rank, local.dims, tile, b, at, a);
  else
    vt_eval_move(bytes, local.rank, local.dims, at, a, tile, b);
}

static const vt_mesh *mesh_of(const vt_op *op) {
  static const vt_attr_key keys[2] = {VT_ATTR_IN_SHARDINGS, VT_ATTR_OUT_SHARDINGS};
  for (int k = 0; k < 2; k++) {
    const vt_attr *list = vt_op_attr(op, keys[k]);
    for (uint32_t i = 0; list && i < list->count; i++)
      if (list->shardings[i] && list->shardings[i]->kind == VT_SHARDING_MESH &&
          list->shardings[i]->mesh)
        return list->shardings[i]->mesh;
  }
  return NULL;
}

typedef struct tiles {
  int64_t devices;
  vt_tensor *tensors; // [device][params, then returns]
  const vt_tensor **args;
  vt_tensor **results;
} tiles;

static void tiles_free(const vt_func *f, uint32_t own, tiles *t) {
  size_t width = (size_t)f->param_count + f->return_count;
  for (int64_t d = 0; d < t->devices && t->tensors; d++)
    for (size_t i = 0; i < width; i++)
      if (i < own || i >= f->param_count) free(t->tensors[(size_t)d * width + i].data);
  free(t->tensors);
  free(t->args);
  free(t->results);
}

static vt_status make_tiles(const vt_eval_call *call, const vt_func *f, tiles *t) {
  const vt_op *op = call->op;
  uint32_t own = vt_op_own_operands(op);
  size_t width = (size_t)f->param_count + f->return_count;
  t->tensors = calloc((size_t)t->devices * width + 1, sizeof *t->tensors);
  t->args = calloc((size_t)t->devices, sizeof *t->args);
  t->results = calloc((size_t)t->devices, sizeof *t->results);
  if (!t->tensors || !t->args || !t->results) return vt_error_no_memory();
  for (int64_t d = 0; d < t->devices; d++) {
    vt_tensor *row = t->tensors + (size_t)d * width;
    t->args[d] = row;
    t->results[d] = row + f->param_count;
    for (uint32_t i = 0; i < f->param_count; i++) {
      int64_t offset;
      row[i].type = f->params[i]->type;
      if (i >= own) { // captures arrive whole
        row[i].data = call->in[i].data;
        continue;
      }
      VT_TRY(vt_eval_scratch(vt_type_bytes(row[i].type), &row[i].data));
      VT_TRY(tile_offset(op, sharding_of(op, VT_ATTR_IN_SHARDINGS, i), call->in[i].type,
                         row[i].type, d, &offset));
      copy_tile(call->in[i].type, row[i].type, call->in[i].data, offset, row[i].data, false);
    }
    for (uint32_t i = 0; i < f->return_count; i++) {
      vt_tensor *out = &t->results[d][i];
      out->type = f->returns[i]->type;
      VT_TRY(vt_eval_scratch(vt_type_bytes(out->type), &out->data));
    }
  }
  return VT_OK;
}

vt_status vt_eval_manual_computation(const vt_eval_call *call) {
  const vt_op *op = call->op;
  const vt_func *f = op->regions[0];
  const vt_mesh *mesh = mesh_of(op);
  tiles t = {.devices = mesh ? vt_mesh_size(mesh) : 1};
  if (t.devices < 1 || t.devices > 1 << 16) return vt_eval_refuse(op, "a mesh of this size");
  if (call->state->lockstep) return vt_eval_refuse(op, "a manual computation inside another");
  vt_status st = VT_OK;
  VT_TRY_OUT(make_tiles(call, f, &t));
  vt_eval_env env = *call->env;
  if ((int64_t)env.partition_count * env.replica_count != t.devices) {
    env.partition_count = (int32_t)t.devices;
    env.replica_count = 1;
  }
  VT_TRY_OUT(vt_eval_lockstep_run(call->state, f, &env, (int32_t)t.devices, t.args, t.results));
  for (uint32_t i = 0; i < f->return_count; i++)
    for (int64_t d = 0; d < t.devices; d++) {
      int64_t offset;
      vt_tensor tile = t.results[d][i];
      VT_TRY_OUT(tile_offset(op, sharding_of(op, VT_ATTR_OUT_SHARDINGS, i), call->out[i].type,
                             tile.type, d, &offset));
      copy_tile(call->out[i].type, tile.type, call->out[i].data, offset, tile.data, true);
    }
out:
  tiles_free(f, vt_op_own_operands(op), &t);
  return st;
}
