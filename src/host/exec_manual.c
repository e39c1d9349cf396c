// SPDX-License-Identifier: Apache-2.0
// exec_manual.c - sdy.manual_computation: the region runs once per device, all devices in lockstep.
//
// Each device has a frame of the region's plan. The device's tile of an operand is the whole array
// when it is replicated, a part of it in place when the tile is one aligned run of bytes, else a
// copy. Results return the same way. Axes that are not manual stay whole: each device then holds
// what all devices of those axes hold. A nested manual region is tiled from the device's own array;
// its results are gathered from the devices that differ in the inner region's axes only.
//
// Several devices may hold one tile. They share an operand's tile, as operands are never written.
// For a result each needs its own memory: steps update results in place, and the next device would
// read what the first has written. The first holder in mesh order owns the tile, and its value goes
// into the array.
//
// In a part of a program that is cut over processes (host.h: part_of), devices are those that run
// here, and an array is the rectangle of their tiles.
#include <string.h>

#include "host/plan.h"
#include "ir/sharding.h"

typedef struct tile {
  bool whole;                  // the array itself
  bool direct;                 // `offset` bytes into the array, nothing copied
  int64_t offset;              // direct
  int64_t number;              // equal for devices that hold the same tile
  int64_t starts[VT_MAX_RANK]; // in elements
} tile;

typedef struct manual_body {
  vt_plan *plan;
  uint32_t device_count;
  int32_t *position; // [device] among all devices, those of other processes too
  int64_t *place;    // [device] of the mesh
  vt_type *arrays;   // the inputs', then the outputs'
  tile **inputs;     // [input][device]
  tile **outputs;
  uint32_t **owners;      // [output][device]: which device of the group writes the device's tile
  int64_t *input_offsets; // scratch of one device per input, -1 when never copied
  int64_t *output_offsets;
  int64_t memory_offset; // temporaries of device 0; the next device's follow
  int64_t memory_bytes;
  int64_t tile_bytes; // scratch of one device
  uint32_t *groups;   // [device]: devices with equal numbers put one array together
  vt_frame **nested;
} manual_body;

static bool is_manual(const vt_op *op, const char *axis) {
  const vt_attr *attr = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  for (uint32_t i = 0; attr && i < attr->count; i++)
    if (!strcmp(attr->strings[i].data, axis)) return true;
  return false;
}

// Where in an array the device's tile is, one of type `local`.
static tile find_tile(const vt_op *op, const vt_sharding *sharding, vt_type global, vt_type local,
                      int64_t device) {
  tile t = {0};
  if (vt_type_same_dims(global, local)) return t;
  int64_t place = vt_mesh_place(sharding->mesh, device);
  for (int32_t d = 0; d < global.rank; d++) {
    int64_t index = 0;
    const vt_dim_sharding *dim = &sharding->dims[d];
    for (uint32_t a = 0; a < dim->axis_count; a++)
      if (is_manual(op, sharding->mesh->axes[dim->axes[a].axis].name))
        index = index * dim->axes[a].size +
                vt_mesh_coordinate(sharding->mesh, place, dim->axes[a], NULL);
    t.starts[d] = index * local.dims[d];
    t.number = t.number * (local.dims[d] ? global.dims[d] / local.dims[d] : 1) + index;
  }
  return t;
}

// How the tile lies in an array of type `global`.
static void lay_tile(tile *out, vt_type global, vt_type local) {
  tile t = *out;
  t.whole = vt_type_same_dims(global, local);
  if (t.whole) {
    *out = (tile){.whole = true};
    return;
  }
  int32_t cut = 0; // the tile's outermost dimension larger than one; inner ones must be whole
  while (cut < local.rank && local.dims[cut] == 1) cut++;
  t.direct = true;
  for (int32_t d = cut + 1; d < local.rank; d++) t.direct &= local.dims[d] == global.dims[d];
  int64_t strides[VT_MAX_RANK];
  vt_type_strides(global, strides);
  for (int32_t d = 0; d < global.rank; d++)
    t.offset += t.starts[d] * strides[d] * (int64_t)vt_dtype_bytes(global.dtype);
  // Kernels may write whole vectors past the end, which must not reach the next device's tile.
  t.direct &= t.offset % 64 == 0 && vt_type_elements(local) % 64 == 0;
  *out = t;
}

// What the devices that run here hold together; tiles then start there.
static vt_type find_array(vt_arena *arena, vt_type local, uint32_t count, tile *tiles) {
  int64_t from[VT_MAX_RANK], dims[VT_MAX_RANK];
  for (int32_t i = 0; i < local.rank; i++) {
    from[i] = INT64_MAX, dims[i] = 0;
    for (uint32_t d = 0; d < count; d++)
      if (tiles[d].starts[i] < from[i]) from[i] = tiles[d].starts[i];
    for (uint32_t d = 0; d < count; d++) {
      tiles[d].starts[i] -= from[i];
      if (tiles[d].starts[i] + local.dims[i] > dims[i])
        dims[i] = tiles[d].starts[i] + local.dims[i];
    }
  }
  return vt_type_make(arena, local.dtype, local.rank, dims);
}

static void copy_tile(char *global, char *local, vt_type whole, vt_type part, const tile *t,
                      bool to_local) {
  int64_t strides[VT_MAX_RANK], index[VT_MAX_RANK] = {0};
  size_t size = vt_dtype_bytes(whole.dtype);
  if (vt_type_elements(part) == 0) return;
  if (t->whole) {
    memcpy(to_local ? local : global, to_local ? global : local, (size_t)vt_type_bytes(whole));
    return;
  }
  vt_type_strides(whole, strides);
  int32_t last = part.rank - 1;
  size_t run = (size_t)part.dims[last] * size;
  for (;;) {
    int64_t at = t->starts[last];
    for (int32_t d = 0; d < last; d++) at += (t->starts[d] + index[d]) * strides[d];
    char *place = global + at * (int64_t)size;
    memcpy(to_local ? local : place, to_local ? place : local, run);
    local += run;
    int32_t d = last - 1;
    for (; d >= 0; d--) {
      if (++index[d] < part.dims[d]) break;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// The frame of the array that device d sees: its own inside another manual region, else the only
// one.
static vt_frame *outer_frame(vt_frame *const *frames, uint32_t count, uint32_t device) {
  return frames[count == 1 ? 0 : device];
}

static char *device_scratch(const vt_step *step, const manual_body *body, vt_frame *const *frames,
                            uint32_t count, uint32_t device) {
  const vt_frame *frame = outer_frame(frames, count, device);
  return frame->slots[step->scratch_slot] + (count == 1 ? device * body->tile_bytes : 0);
}

static void enter_device(const vt_step *step, vt_frame *const *frames, uint32_t count,
                         uint32_t device) {
  const manual_body *body = step->body;
  const vt_plan *plan = body->plan;
  vt_frame *frame = outer_frame(frames, count, device), *nested = &plan->frames[device];
  char *scratch = device_scratch(step, body, frames, count, device);
  for (uint32_t i = 0; i < plan->param_count; i++) {
    char *array = frame->slots[step->input_slots[i]];
    const tile *t = &body->inputs[i][device];
    nested->slots[i] = t->whole    ? array
                       : t->direct ? array + t->offset
                                   : scratch + body->input_offsets[i];
    if (!t->whole && !t->direct)
      copy_tile(array, nested->slots[i], body->arrays[i], plan->func->params[i]->type, t, true);
  }
  for (uint32_t i = 0; i < plan->result_count; i++) {
    char *array = frame->slots[step->output_slots[i]];
    const tile *t = &body->outputs[i][device];
    bool direct = count == 1 && (t->whole || t->direct) && body->owners[i][device] == device;
    nested->slots[vt_result_slot(plan, i)] =
        direct ? array + t->offset : scratch + body->output_offsets[i];
  }
  vt_frame_bind(plan, nested, scratch + body->memory_offset);
}

// Writes the tiles that the device owns into the arrays of `target`, those that are not there yet.
static void leave_device(const vt_step *step, const manual_body *body, const vt_frame *target,
                         uint32_t device) {
  const vt_plan *plan = body->plan;
  for (uint32_t i = 0; i < plan->result_count; i++) {
    if (body->owners[i][device] != device) continue;
    char *array = target->slots[step->output_slots[i]];
    char *local = plan->frames[device].slots[vt_result_slot(plan, i)];
    const tile *t = &body->outputs[i][device];
    if (local != array + t->offset)
      copy_tile(array, local, body->arrays[step->input_count + i], plan->func->returns[i]->type, t,
                false);
  }
}

static vt_status run_manual(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                            uint32_t count) {
  const manual_body *body = step->body;
  uint32_t devices = body->device_count;
  for (uint32_t d = 0; d < devices; d++) {
    enter_device(step, frames, count, d);
    body->nested[d] = &body->plan->frames[d];
  }
  VT_TRY(vt_exec_plan(exec, body->plan, body->nested, devices));
  for (uint32_t f = 0; f < count; f++)
    for (uint32_t d = 0; d < devices; d++)
      if (body->groups[d] == body->groups[f]) leave_device(step, body, frames[f], d);
  return VT_OK;
}

static const vt_mesh *mesh_of(const vt_op *op) {
  const vt_attr_key keys[] = {VT_ATTR_IN_SHARDINGS, VT_ATTR_OUT_SHARDINGS};
  for (int k = 0; k < 2; k++) {
    const vt_attr *attr = vt_op_attr(op, keys[k]);
    for (uint32_t i = 0; attr && i < attr->count; i++)
      if (attr->shardings[i]->mesh->axis_count) return attr->shardings[i]->mesh;
  }
  return NULL;
}

// In a nested region, devices form a group, named by its first, when they agree on all axes that
// are not manual here.
static uint32_t group_of(const vt_op *op, const vt_mesh *mesh, uint32_t device) {
  for (uint32_t other = 0; other < device; other++) {
    bool same = true;
    for (uint32_t a = 0; a < mesh->axis_count; a++) {
      vt_axis_ref axis = {a, 1, mesh->axes[a].size};
      if (!is_manual(op, mesh->axes[a].name))
        same &= vt_mesh_coordinate(mesh, vt_mesh_place(mesh, device), axis, NULL) ==
                vt_mesh_coordinate(mesh, vt_mesh_place(mesh, other), axis, NULL);
    }
    if (same) return other;
  }
  return device;
}

// The first device in the order of the mesh that holds the tile of `device` for its group.
static uint32_t owner_of(const manual_body *body, const tile *tiles, uint32_t device) {
  uint32_t owner = device;
  for (uint32_t d = 0; d < body->device_count; d++)
    if (body->groups[d] == body->groups[device] && tiles[d].number == tiles[device].number &&
        body->place[d] < body->place[owner])
      owner = d;
  return owner;
}

static vt_status find_tiles(vt_plan *plan, const vt_step *step, vt_attr_key key, uint32_t count,
                            bool in, manual_body *body, tile **tiles, int64_t *offsets) {
  const vt_attr *attr = vt_op_attr(step->op, key);
  for (uint32_t i = 0; i < count; i++) {
    vt_type global = in ? step->inputs[i]->type : step->outputs[i]->type;
    vt_type local = in ? body->plan->func->params[i]->type : body->plan->func->returns[i]->type;
    const vt_sharding *sharding = attr && i < attr->count ? attr->shardings[i] : NULL;
    bool whole = vt_type_same_dims(global, local);
    if (!whole &&
        (!sharding || sharding->kind != VT_SHARDING_MESH || sharding->rank != global.rank))
      return vt_step_refuse(step, "a sharding without mesh axes");
    tiles[i] = VT_NEW_ARRAY(&plan->program->arena, tile, body->device_count);
    bool copied = !in;
    for (uint32_t d = 0; d < body->device_count; d++)
      tiles[i][d] = find_tile(step->op, sharding, global, local, body->position[d]);
    vt_type array = plan->program->here
                        ? find_array(&plan->program->arena, local, body->device_count, tiles[i])
                        : global;
    body->arrays[in ? i : step->input_count + i] = array;
    for (uint32_t d = 0; d < body->device_count; d++) {
      lay_tile(&tiles[i][d], array, local);
      copied |= !tiles[i][d].whole && !tiles[i][d].direct;
    }
    offsets[i] = body->tile_bytes;
    if (copied) body->tile_bytes += vt_padded_bytes(vt_type_bytes(local));
  }
  return VT_OK;
}

static vt_status prepare_manual(vt_plan *plan, vt_step *step) {
  vt_arena *arena = &plan->program->arena;
  manual_body *body = step->body;
  body->inputs = VT_NEW_ARRAY(arena, tile *, step->input_count);
  body->outputs = VT_NEW_ARRAY(arena, tile *, step->output_count);
  body->input_offsets = VT_NEW_ARRAY(arena, int64_t, step->input_count);
  body->output_offsets = VT_NEW_ARRAY(arena, int64_t, step->output_count);
  VT_TRY(find_tiles(plan, step, VT_ATTR_IN_SHARDINGS, step->input_count, true, body, body->inputs,
                    body->input_offsets));
  VT_TRY(find_tiles(plan, step, VT_ATTR_OUT_SHARDINGS, step->output_count, false, body,
                    body->outputs, body->output_offsets));
  body->owners = VT_NEW_ARRAY(arena, uint32_t *, step->output_count);
  for (uint32_t i = 0; i < step->output_count; i++) {
    body->owners[i] = VT_NEW_ARRAY(arena, uint32_t, body->device_count);
    for (uint32_t d = 0; d < body->device_count; d++)
      body->owners[i][d] = owner_of(body, body->outputs[i], d);
  }
  body->memory_offset = body->tile_bytes;
  body->tile_bytes += (body->plan->temp_bytes + 63) & ~(int64_t)63;
  step->scratch_bytes = body->tile_bytes * (plan->frame_count == 1 ? body->device_count : 1) + 1;
  return VT_OK;
}

vt_status vt_step_manual(vt_plan *plan, vt_step *step) {
  vt_arena *arena = &plan->program->arena;
  const vt_op *op = step->op;
  const vt_mesh *mesh = mesh_of(op);
  const vt_program *program = plan->program;
  uint32_t all = (uint32_t)program->options.device_count;
  uint32_t devices = program->here ? program->here_count : all;
  manual_body *body = step->body = VT_NEW(arena, manual_body);
  body->device_count = devices;
  body->arrays = VT_NEW_ARRAY(arena, vt_type, step->input_count + step->output_count + 1);
  body->position = VT_NEW_ARRAY(arena, int32_t, devices);
  body->place = VT_NEW_ARRAY(arena, int64_t, devices);
  for (uint32_t d = 0; d < devices; d++) {
    body->position[d] = program->here ? program->here[d] : (int32_t)d;
    body->place[d] = mesh ? vt_mesh_place(mesh, body->position[d]) : body->position[d];
  }
  int64_t mesh_size = 1;
  for (uint32_t a = 0; mesh && a < mesh->axis_count; a++) mesh_size *= mesh->axes[a].size;
  if (mesh && mesh_size != all)
    return vt_step_refuse(step, "a mesh of another size than the program's devices");
  if (program->here && plan->frame_count > 1)
    return vt_step_refuse(step, "inside of another one, over processes");
  VT_TRY(vt_plan_build(plan->program, op->regions[0], VT_PLAN_REGION, devices, &body->plan));
  body->groups = VT_NEW_ARRAY(arena, uint32_t, devices);
  body->nested = VT_NEW_ARRAY(arena, vt_frame *, devices);
  // At the top level there is one array, and all devices hold tiles of it.
  for (uint32_t d = 0; mesh && plan->frame_count > 1 && d < devices; d++)
    body->groups[d] = group_of(op, mesh, d);
  plan->collective |= plan->frame_count > 1;
  step->run = run_manual;
  step->nested = true;
  step->runner = "devices";
  step->prepare = prepare_manual;
  return VT_OK;
}
