// SPDX-License-Identifier: Apache-2.0
// manual.c - manual computations: operands are cut into one tile per device, the region runs on all
// devices in lockstep, and the results' tiles are assembled. Axes that are not manual stay whole.
// Where several devices hold one tile, the value of the first in mesh order counts. Inside another
// computation each device has its own arrays; devices that differ only in the inner computation's
// axes assemble their results together.
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
      if (list->shardings[i] && list->shardings[i]->mesh && list->shardings[i]->mesh->axis_count)
        return list->shardings[i]->mesh;
  }
  return NULL;
}

// The running computation. `in` and `out` have one row of tensors per set of arrays: one set at the
// top, one per device inside another computation (`rows`).
typedef struct manual {
  const vt_op *op;
  const vt_func *func;
  const vt_mesh *mesh; // NULL: nothing is sharded
  int32_t devices, rows;
  const vt_tensor *const *in;
  vt_tensor *const *out;
  vt_tensor *tensors; // [device][params, then returns]
  const vt_tensor **args;
  vt_tensor **results;
} manual;

static void manual_free(manual *m) {
  uint32_t own = vt_op_own_operands(m->op), params = m->func->param_count;
  size_t width = (size_t)params + m->func->return_count;
  for (int32_t d = 0; d < m->devices && m->tensors; d++)
    for (size_t i = 0; i < width; i++)
      if (i < own || i >= params) free(m->tensors[(size_t)d * width + i].data);
  free(m->tensors);
  free(m->args);
  free(m->results);
}

static vt_status make_tiles(manual *m) {
  const vt_op *op = m->op;
  const vt_func *f = m->func;
  uint32_t own = vt_op_own_operands(op);
  size_t width = (size_t)f->param_count + f->return_count;
  m->tensors = calloc((size_t)m->devices * width + 1, sizeof *m->tensors);
  m->args = calloc((size_t)m->devices, sizeof *m->args);
  m->results = calloc((size_t)m->devices, sizeof *m->results);
  if (!m->tensors || !m->args || !m->results) return vt_error_no_memory();
  for (int32_t d = 0; d < m->devices; d++) {
    const vt_tensor *whole = m->in[m->rows == 1 ? 0 : d];
    vt_tensor *row = m->tensors + (size_t)d * width;
    m->args[d] = row;
    m->results[d] = row + f->param_count;
    for (uint32_t i = 0; i < f->param_count; i++) {
      int64_t offset;
      row[i].type = f->params[i]->type;
      if (i >= own) { // captures arrive whole
        row[i].data = whole[i].data;
        continue;
      }
      VT_TRY(vt_eval_scratch(vt_type_bytes(row[i].type), &row[i].data));
      VT_TRY(tile_offset(op, sharding_of(op, VT_ATTR_IN_SHARDINGS, i), whole[i].type, row[i].type,
                         d, &offset));
      copy_tile(whole[i].type, row[i].type, whole[i].data, offset, row[i].data, false);
    }
    for (uint32_t i = 0; i < f->return_count; i++) {
      vt_tensor *out = &m->results[d][i];
      out->type = f->returns[i]->type;
      VT_TRY(vt_eval_scratch(vt_type_bytes(out->type), &out->data));
    }
  }
  return VT_OK;
}

// True when the two devices assemble one array together: at the top all do, inside another
// computation those that agree in all axes that are not manual here.
static bool same_array(const manual *m, int64_t a, int64_t b) {
  if (m->rows == 1 || !m->mesh) return m->rows == 1 || a == b;
  int64_t x = vt_mesh_place(m->mesh, a), y = vt_mesh_place(m->mesh, b);
  for (uint32_t i = 0; i < m->mesh->axis_count; i++) {
    vt_axis_ref axis = {i, 1, m->mesh->axes[i].size};
    if (!is_manual(m->op, m->mesh, i) &&
        vt_mesh_coordinate(m->mesh, x, axis, NULL) != vt_mesh_coordinate(m->mesh, y, axis, NULL))
      return false;
  }
  return true;
}

// Copies result `i` of the devices into the whole arrays. Devices go from last to first in mesh
// order, so that the first holder of a tile wins.
static vt_status join_tiles(const manual *m, uint32_t i) {
  const vt_sharding *s = sharding_of(m->op, VT_ATTR_OUT_SHARDINGS, i);
  for (int32_t place = m->devices; place-- > 0;) {
    bool listed = m->mesh && m->mesh->device_count;
    int32_t d = listed ? (int32_t)m->mesh->device_ids[place] : place;
    vt_tensor tile = m->results[d][i];
    for (int32_t row = 0; row < m->rows; row++) {
      vt_tensor whole = m->out[row][i];
      int64_t offset;
      if (!same_array(m, d, m->rows == 1 ? d : row)) continue;
      VT_TRY(tile_offset(m->op, s, whole.type, tile.type, d, &offset));
      copy_tile(whole.type, tile.type, whole.data, offset, tile.data, true);
    }
  }
  return VT_OK;
}

vt_status vt_eval_manual_run(vt_eval_state *state, const vt_eval_env *env, const vt_op *op,
                             int32_t rows, const vt_tensor *const *in, vt_tensor *const *out) {
  manual m = {
      .op = op, .func = op->regions[0], .mesh = mesh_of(op), .rows = rows, .in = in, .out = out};
  vt_eval_env inner = *env;
  int64_t devices = (int64_t)env->partition_count * env->replica_count;
  if (m.mesh) devices = vt_mesh_size(m.mesh);
  if (devices < 1) devices = 1;
  if (devices > 1 << 16 || (rows != 1 && devices != rows))
    return vt_eval_refuse(op, "a mesh of this size");
  m.devices = (int32_t)devices;
  if ((int64_t)env->partition_count * env->replica_count != devices) {
    inner.partition_count = m.devices;
    inner.replica_count = 1;
  }
  vt_status st = VT_OK;
  VT_TRY_OUT(make_tiles(&m));
  VT_TRY_OUT(vt_eval_lockstep_run(state, m.func, &inner, m.devices, m.args, m.results));
  for (uint32_t i = 0; i < m.func->return_count; i++) VT_TRY_OUT(join_tiles(&m, i));
out:
  manual_free(&m);
  return st;
}

vt_status vt_eval_manual_computation(const vt_eval_call *call) {
  return vt_eval_manual_run(call->state, call->env, call->op, 1, &call->in, &call->out);
}
