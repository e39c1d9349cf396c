// SPDX-License-Identifier: Apache-2.0
// lockstep.c - one function on all devices, step by step, so that collectives see every device's
// operands.
#include <stdlib.h>
#include <string.h>

#include "ir/number.h"
#include "eval/plan.h"

typedef struct lockstep {
  vt_eval_state *state;
  vt_eval_env env; // partition and replica are set device by device
  int32_t devices;
} lockstep;

static vt_eval_env env_of(const lockstep *l, int32_t device) {
  vt_eval_env env = l->env;
  int32_t partitions = env.partition_count > 0 ? env.partition_count : l->devices;
  env.partition = device % partitions;
  env.replica = device / partitions;
  return env;
}

static vt_status run_all(lockstep *l, const vt_func *func, vt_eval_buffer ***args,
                         vt_eval_buffer ***results);

// args[device][i], in one block to be freed.
static vt_eval_buffer ***new_table(int32_t devices, uint32_t width) {
  size_t rows = sizeof(void *) * (size_t)devices;
  vt_eval_buffer ***table = calloc(1, rows + rows * ((size_t)width + 1));
  for (int32_t d = 0; table && d < devices; d++)
    table[d] = (vt_eval_buffer **)(table + devices) + (size_t)d * (width + 1);
  return table;
}

static void free_table(lockstep *l, uint32_t width, vt_eval_buffer ***table) {
  if (!table) return;
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = 0; i < width; i++) vt_eval_buffer_release(l->state, table[d][i]);
  free(table);
}

static void drop_row(lockstep *l, uint32_t width, vt_eval_buffer **row) {
  for (uint32_t i = 0; i < width; i++) {
    vt_eval_buffer_release(l->state, row[i]);
    row[i] = NULL;
  }
}

// The value that all devices must agree on: it controls the flow around collectives.
static vt_status agree(const lockstep *l, const vt_op *op, vt_dtype type,
                       vt_eval_buffer *const *values, int64_t *out) {
  *out = vt_int_load(type, values[0]->data, 0);
  for (int32_t d = 1; d < l->devices; d++)
    if (vt_int_load(type, values[d]->data, 0) != *out)
      return vt_eval_invalid(op, "program: devices branch differently around a collective");
  return VT_OK;
}

static vt_status run_while(lockstep *l, const vt_op *op, vt_eval_buffer ***in,
                           vt_eval_buffer ***out) {
  uint32_t count = op->operand_count, own = vt_op_own_operands(op);
  vt_status st = VT_OK;
  vt_eval_buffer ***args = new_table(l->devices, count), ***go_on = new_table(l->devices, 1);
  vt_eval_buffer **answers = calloc((size_t)l->devices, sizeof *answers);
  if (!args || !go_on || !answers) {
    st = vt_error_no_memory();
    goto out;
  }
  for (;;) {
    int64_t more;
    for (int32_t d = 0; d < l->devices; d++)
      for (uint32_t i = 0; i < count; i++) args[d][i] = vt_eval_buffer_retain(in[d][i]);
    VT_TRY_OUT(run_all(l, op->regions[0], args, go_on));
    for (int32_t d = 0; d < l->devices; d++) answers[d] = go_on[d][0];
    st = agree(l, op, VT_PRED, answers, &more);
    for (int32_t d = 0; d < l->devices; d++) drop_row(l, 1, go_on[d]);
    if (st || !more) break;
    for (int32_t d = 0; d < l->devices; d++)
      for (uint32_t i = 0; i < count; i++) {
        args[d][i] = i < own ? in[d][i] : vt_eval_buffer_retain(in[d][i]);
        if (i < own) in[d][i] = NULL;
      }
    VT_TRY_OUT(run_all(l, op->regions[1], args, in));
  }
  for (int32_t d = 0; d < l->devices && !st; d++)
    for (uint32_t i = 0; i < op->result_count; i++) {
      out[d][i] = in[d][i];
      in[d][i] = NULL;
    }
out:
  free(args); // run_all has taken its contents
  free(go_on);
  free(answers);
  return st;
}

// if, case, call, composite. `in` is emptied.
static vt_status run_branch(lockstep *l, const vt_op *op, vt_eval_buffer ***in,
                            vt_eval_buffer ***out) {
  const vt_func *func = vt_op_callee(op);
  uint32_t first = 0;
  if (!func) {
    int64_t chosen;
    vt_eval_buffer **index = calloc((size_t)l->devices, sizeof *index);
    if (!index) return vt_error_no_memory();
    for (int32_t d = 0; d < l->devices; d++) index[d] = in[d][0];
    vt_status st = agree(l, op, op->operands[0]->type.dtype, index, &chosen);
    free(index);
    VT_TRY(st);
    if (op->code == VT_OP_IF) chosen = !chosen;
    if (chosen < 0 || chosen >= (int64_t)op->region_count) chosen = op->region_count - 1;
    func = op->regions[chosen];
    first = 1;
  }
  vt_eval_buffer ***args = new_table(l->devices, op->operand_count);
  if (!args) return vt_error_no_memory();
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = first; i < op->operand_count; i++) {
      args[d][i - first] = in[d][i];
      in[d][i] = NULL;
    }
  vt_status st = run_all(l, func, args, out);
  free(args);
  return st;
}

static vt_status run_collective_step(lockstep *l, const vt_eval_step *step,
                                     vt_eval_buffer ***slots) {
  const vt_op *op = step->op;
  uint32_t count = op->operand_count + op->result_count;
  size_t rows = sizeof(void *) * (size_t)l->devices;
  vt_status st = VT_OK;
  vt_tensor *tensors = calloc((size_t)l->devices * count + 1, sizeof *tensors);
  const vt_tensor **in = malloc(rows);
  vt_tensor **out = malloc(rows);
  if (!tensors || !in || !out) {
    st = vt_error_no_memory();
    goto out;
  }
  for (int32_t d = 0; d < l->devices; d++) {
    vt_tensor *row = tensors + (size_t)d * count;
    in[d] = row;
    out[d] = row + op->operand_count;
    for (uint32_t i = 0; i < op->operand_count; i++)
      row[i] = (vt_tensor){op->operands[i]->type, slots[d][step->operands[i]]->data};
    for (uint32_t i = 0; i < op->result_count; i++) {
      vt_eval_buffer **place = &slots[d][step->first_result + (int32_t)i];
      VT_TRY_OUT(vt_eval_buffer_new(l->state, vt_type_bytes(op->results[i].type), place));
      out[d][i] = (vt_tensor){op->results[i].type, (*place)->data};
    }
  }
  st = op->code == VT_OP_MANUAL_COMPUTATION
           ? vt_eval_manual_run(l->state, &l->env, op, l->devices, in, out)
           : vt_eval_collective_run(l->state, &l->env, op, l->devices, in, out);
out:
  free(tensors);
  free(in);
  free(out);
  return st;
}

static vt_status run_control_step(lockstep *l, const vt_eval_step *step, vt_eval_buffer ***slots) {
  const vt_op *op = step->op;
  vt_status st = VT_OK;
  vt_eval_buffer ***in = new_table(l->devices, op->operand_count),
                 ***out = new_table(l->devices, op->result_count);
  if (!in || !out) {
    st = vt_error_no_memory();
    goto out;
  }
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = 0; i < op->operand_count; i++)
      in[d][i] = vt_eval_buffer_retain(slots[d][step->operands[i]]);
  st = op->code == VT_OP_WHILE ? run_while(l, op, in, out) : run_branch(l, op, in, out);
  for (int32_t d = 0; d < l->devices && !st; d++)
    for (uint32_t i = 0; i < op->result_count; i++) {
      slots[d][step->first_result + (int32_t)i] = out[d][i];
      out[d][i] = NULL;
    }
out:
  free_table(l, op->operand_count, in);
  free_table(l, op->result_count, out);
  return st;
}

static vt_status run_step(lockstep *l, const vt_eval_step *step, vt_eval_buffer ***slots) {
  if (!step->collective) {
    for (int32_t d = 0; d < l->devices; d++) {
      vt_eval_env env = env_of(l, d);
      VT_TRY(vt_eval_step_run(l->state, &env, step, slots[d]));
    }
    return VT_OK;
  }
  if (vt_eval_is_control(step->op->code))
    VT_TRY(run_control_step(l, step, slots));
  else
    VT_TRY(run_collective_step(l, step, slots));
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = 0; i < step->dead_count; i++) {
      vt_eval_buffer_release(l->state, slots[d][step->dead[i]]);
      slots[d][step->dead[i]] = NULL;
    }
  return VT_OK;
}

// Takes the references in args (even on error), returns owned ones.
static vt_status run_all(lockstep *l, const vt_func *func, vt_eval_buffer ***args,
                         vt_eval_buffer ***results) {
  const vt_eval_plan *plan = NULL;
  vt_status st = VT_OK;
  int32_t ready = 0;
  vt_eval_buffer ***slots = calloc((size_t)l->devices, sizeof *slots);
  if (!slots)
    st = vt_error_no_memory();
  else if (l->state->depth > 200)
    st = vt_error(VT_INVALID_ARGUMENT, "calls nest too deep");
  else
    st = vt_eval_plan_of(l->state, func, &plan);
  for (; !st && ready < l->devices; ready++)
    if (!(slots[ready] = vt_eval_frame_new(plan, args[ready]))) {
      st = vt_error_no_memory();
      break;
    }
  for (int32_t d = ready; d < l->devices; d++)
    for (uint32_t i = 0; i < func->param_count; i++) vt_eval_buffer_release(l->state, args[d][i]);
  for (int32_t d = 0; d < l->devices; d++) memset(args[d], 0, sizeof *args[d] * func->param_count);
  l->state->depth++;
  for (uint32_t s = 0; !st && s < plan->step_count; s++) st = run_step(l, &plan->steps[s], slots);
  l->state->depth--;
  for (int32_t d = 0; d < ready; d++) {
    for (uint32_t i = 0; i < func->return_count && !st; i++)
      results[d][i] = vt_eval_buffer_retain(slots[d][plan->returns[i]]);
    vt_eval_frame_free(l->state, plan, slots[d]);
  }
  free(slots);
  return st;
}

static vt_status lockstep_with(lockstep *l, const vt_func *func, const vt_tensor *const *args,
                               vt_tensor *const *results) {
  vt_status st = VT_OK;
  vt_eval_buffer ***in = new_table(l->devices, func->param_count),
                 ***out = new_table(l->devices, func->return_count);
  if (!in || !out) {
    st = vt_error_no_memory();
    goto out;
  }
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = 0; i < func->param_count; i++)
      VT_TRY_OUT(vt_eval_buffer_borrow(l->state, args[d][i].data, vt_type_bytes(args[d][i].type),
                                       &in[d][i]));
  VT_TRY_OUT(run_all(l, func, in, out));
  for (int32_t d = 0; d < l->devices; d++)
    for (uint32_t i = 0; i < func->return_count; i++) {
      size_t bytes = (size_t)vt_type_bytes(results[d][i].type);
      if (bytes && results[d][i].data != out[d][i]->data)
        memmove(results[d][i].data, out[d][i]->data, bytes);
    }
out:
  free_table(l, func->param_count, in);
  free_table(l, func->return_count, out);
  return st;
}

vt_status vt_eval_lockstep_run(vt_eval_state *state, const vt_func *func, const vt_eval_env *env,
                               int32_t devices, const vt_tensor *const *args,
                               vt_tensor *const *results) {
  if (devices < 1) return vt_error(VT_INVALID_ARGUMENT, "%d devices", (int)devices);
  lockstep l = {state, *env, devices};
  if (l.env.partition_count <= 0) l.env.partition_count = devices;
  return lockstep_with(&l, func, args, results);
}
