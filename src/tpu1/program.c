// SPDX-License-Identifier: Apache-2.0
// program.c - checks a program and builds its plan.
// In: decoded instructions. Out: steps with ranges and waits, or an error with address and reason.
//
// Hazards are found with vector clocks, not by timing: known[u][v] counts the steps of unit v that
// are certainly done when unit u starts its next step. A `sync unit=u on=v` sets it to all steps of
// v so far, plus what v itself knew. Each row remembers its last writer and, per unit, its last
// reader; an access that conflicts with one that is not known to be done is the error. Within one
// unit, steps run in program order.
#include "base/check.h"
#include "tpu1/program.h"

#include <stdlib.h>
#include <string.h>

typedef struct shadow {
  int32_t write_step; // 1-based count in its unit; 0 = never
  int32_t write_unit;
  int32_t read_step[VT_TPU1_UNITS];
} shadow;

typedef struct planner {
  const vt_tpu1_program *program;
  const vt_tpu1_chip *chip;
  vt_tpu1_plan *plan;
  int64_t *regs;    // current values
  bool regs_shared; // a step refers to `regs`: copy before the next change
  int64_t known[VT_TPU1_UNITS][VT_TPU1_UNITS];
  int64_t started[VT_TPU1_UNITS][VT_TPU1_UNITS]; // known[u] when u's latest step was planned
  int64_t issued[VT_TPU1_UNITS];
  shadow *ub, *acc;
  int64_t tiles_used;
  bool tile_loaded, tile_wide;
  size_t pc;
} planner;

static vt_status at_pc(const planner *p, vt_status st) {
  const vt_tpu1_insn *insn = &p->program->code[p->pc];
  return vt_status_wrap(st, "instruction %zu (address 0x%zx): %s", p->pc,
                        p->pc * VT_TPU1_INSN_BYTES,
                        insn->op < VT_TPU1_OPS ? vt_tpu1_op_get(insn->op)->mnemonic : "?");
}

static vt_status check_range(vt_tpu1_range r, int64_t size, const char *where) {
  if (r.count < 0 || r.first < 0 || r.first > size || r.count > size - r.first)
    return vt_error(VT_OUT_OF_RANGE, "rows %lld..%lld are outside the %s of %lld rows",
                    (long long)r.first, (long long)(r.first + r.count - 1), where, (long long)size);
  return VT_OK;
}

static vt_status conflict(const char *where, int64_t row, vt_tpu1_unit unit, const char *verb,
                          vt_tpu1_unit other, const char *other_verb) {
  return vt_error(
      VT_FAILED_PRECONDITION,
      "%s row %lld: %s %s it while an earlier instruction of %s %s it; needs sync unit=%s on=%s",
      where, (long long)row, vt_tpu1_unit_name(unit), verb, vt_tpu1_unit_name(other), other_verb,
      vt_tpu1_unit_name(unit), vt_tpu1_unit_name(other));
}

static vt_status touch_read(planner *p, shadow *rows, vt_tpu1_range r, vt_tpu1_unit unit,
                            const char *where) {
  const int64_t *known = p->known[unit];
  int32_t mine = (int32_t)p->issued[unit];
  for (int64_t i = r.first; i < r.first + r.count; i++) {
    shadow *s = &rows[i];
    if (s->write_step > known[s->write_unit] && s->write_unit != (int32_t)unit)
      return conflict(where, i, unit, "reads", (vt_tpu1_unit)s->write_unit, "may still write");
    s->read_step[unit] = mine;
  }
  return VT_OK;
}

static vt_status touch_write(planner *p, shadow *rows, vt_tpu1_range r, vt_tpu1_unit unit,
                             const char *where) {
  const int64_t *known = p->known[unit];
  int32_t mine = (int32_t)p->issued[unit];
  for (int64_t i = r.first; i < r.first + r.count; i++) {
    shadow *s = &rows[i];
    if (s->write_step > known[s->write_unit] && s->write_unit != (int32_t)unit)
      return conflict(where, i, unit, "writes", (vt_tpu1_unit)s->write_unit, "may still write");
    for (int v = 0; v < VT_TPU1_UNITS; v++)
      if (s->read_step[v] > known[v] && v != (int)unit)
        return conflict(where, i, unit, "writes", (vt_tpu1_unit)v, "may still read");
    s->write_step = mine;
    s->write_unit = (int32_t)unit;
  }
  return VT_OK;
}

static void sync_units(planner *p, int64_t waiters, int64_t awaited) {
  for (int u = 0; u < VT_TPU1_UNITS; u++)
    for (int v = 0; v < VT_TPU1_UNITS; v++) {
      if (!(waiters >> u & 1) || !(awaited >> v & 1) || u == v) continue;
      p->known[u][v] = p->issued[v];
      // Steps that v's latest step knew about at its start are done too.
      for (int w = 0; w < VT_TPU1_UNITS; w++)
        if (p->started[v][w] > p->known[u][w]) p->known[u][w] = p->started[v][w];
    }
}

static void set_register(planner *p, const vt_tpu1_insn *insn) {
  vt_assert(insn->reg < VT_TPU1_REGS);
  if (p->regs_shared) {
    int64_t *copy = VT_NEW_ARRAY(&p->plan->arena, int64_t, VT_TPU1_REGS);
    memcpy(copy, p->regs, sizeof(int64_t) * VT_TPU1_REGS);
    p->regs = copy;
    p->regs_shared = false;
  }
  p->regs[insn->reg] = insn->value;
}

static vt_status plan_host(planner *p, vt_tpu1_step *step, bool reads, bool strided) {
  const vt_tpu1_insn *insn = step->insn;
  int64_t dim = vt_tpu1_chip_dim(p->chip),
          limit = reads ? p->program->host_in_bytes : p->program->host_out_bytes;
  step->host_row = p->regs[VT_TPU1_REG_HOST_ROW] ? p->regs[VT_TPU1_REG_HOST_ROW] : dim;
  step->host_stride = strided ? p->regs[VT_TPU1_REG_HOST_STRIDE] : step->host_row;
  if (insn->rows == 0) return vt_error(VT_INVALID_ARGUMENT, "no rows");
  if (step->host_row > dim)
    return vt_error(VT_INVALID_ARGUMENT,
                    "host_row %lld exceeds the %lld bytes of a unified-buffer row",
                    (long long)step->host_row, (long long)dim);
  if (!reads && step->host_stride < step->host_row && insn->rows > 1)
    return vt_error(VT_INVALID_ARGUMENT, "host_stride %lld overlaps host rows of %lld bytes",
                    (long long)step->host_stride, (long long)step->host_row);
  int64_t end = insn->host + (insn->rows - 1) * step->host_stride + step->host_row;
  if (end > limit)
    return vt_error(VT_OUT_OF_RANGE, "host bytes %lld..%lld are outside the %lld bytes of host %s",
                    (long long)insn->host, (long long)(end - 1), (long long)limit,
                    reads ? "input" : "output");
  step->host_bytes = insn->rows * step->host_row;
  step->pass_rows = insn->rows;
  *(reads ? &step->ub_write : &step->ub_read[0]) = (vt_tpu1_range){insn->ub, insn->rows};
  return VT_OK;
}

static vt_status plan_weights(planner *p, const vt_tpu1_insn *insn) {
  int64_t capacity = (int64_t)p->chip->weight_memory_bytes / vt_tpu1_chip_tile_bytes(p->chip);
  int64_t limit = p->program->tile_count < capacity ? p->program->tile_count : capacity;
  if (insn->count == 0) return vt_error(VT_INVALID_ARGUMENT, "no tiles");
  if (insn->tile + insn->count > limit)
    return vt_error(VT_OUT_OF_RANGE, "tiles %lld..%lld are outside the %lld tiles of weight memory",
                    (long long)insn->tile, (long long)(insn->tile + insn->count - 1),
                    (long long)limit);
  for (int64_t i = 0; i < insn->count; i++) {
    vt_array_push(&p->plan->tile_order, insn->tile + i);
    vt_array_push(&p->plan->tile_issue, (int64_t)p->pc);
  }
  return VT_OK;
}

static vt_status plan_matrix(planner *p, vt_tpu1_step *step, bool convolve) {
  const vt_tpu1_insn *insn = step->insn;
  const int64_t *regs = p->regs;
  int64_t image = regs[VT_TPU1_REG_CONV_IN_H] * regs[VT_TPU1_REG_CONV_IN_W];
  int64_t in_rows = insn->rows;
  step->pass_rows = insn->rows;
  step->passes = (int64_t)insn->repeat + 1;
  if (convolve) {
    in_rows = insn->images * image;
    step->pass_rows = insn->images * regs[VT_TPU1_REG_CONV_OUT_H] * regs[VT_TPU1_REG_CONV_OUT_W];
  }
  if (step->pass_rows == 0) return vt_error(VT_INVALID_ARGUMENT, "no rows");
  int64_t per_pass = insn->wide_weights ? 2 : 1;
  int64_t tiles = insn->switch_tile ? step->passes * per_pass : 0;
  if (p->tiles_used + tiles > (int64_t)p->plan->tile_order.size)
    return vt_error(VT_INVALID_ARGUMENT,
                    "needs weight tile %lld of the FIFO, but only %zu were requested",
                    (long long)(p->tiles_used + tiles), p->plan->tile_order.size);
  if (!insn->switch_tile && (!p->tile_loaded || p->tile_wide))
    return vt_error(VT_INVALID_ARGUMENT,
                    p->tile_loaded ? "the previous tile was 16-bit and cannot be used again"
                                   : "no weight tile was switched in before");
  step->first_tile = insn->switch_tile ? p->tiles_used : p->tiles_used - 1;
  p->tiles_used += tiles;
  p->tile_loaded = true;
  p->tile_wide = insn->wide_weights;
  step->ub_read[0] = (vt_tpu1_range){insn->ub, step->passes * in_rows * (insn->wide_in ? 2 : 1)};
  step->acc_write = (vt_tpu1_range){insn->acc, step->pass_rows};
  return VT_OK;
}

// Rows after the pooling stage; INVALID_ARGUMENT when the geometry does not divide the rows or
// leaves the window empty.
static vt_status pooled_rows(const planner *p, int64_t rows, int64_t *out_rows) {
  const int64_t *r = p->regs;
  int64_t image = r[VT_TPU1_REG_POOL_IN_H] * r[VT_TPU1_REG_POOL_IN_W];
  vt_assert(image > 0 && rows >= 0);
  if (rows % image)
    return vt_error(VT_INVALID_ARGUMENT, "%lld rows are not whole pooling images of %lld",
                    (long long)rows, (long long)image);
  for (int axis = 0; axis < 2; axis++) {
    int64_t in = r[VT_TPU1_REG_POOL_IN_H + axis], out = r[VT_TPU1_REG_POOL_OUT_H + axis];
    int64_t kernel = r[VT_TPU1_REG_POOL_KH + axis], stride = r[VT_TPU1_REG_POOL_SY + axis];
    int64_t pad = r[VT_TPU1_REG_POOL_PY + axis];
    if (pad >= kernel || (out - 1) * stride - pad >= in)
      return vt_error(VT_INVALID_ARGUMENT, "a pooling window lies outside the image (%s)",
                      axis ? "columns" : "rows");
  }
  *out_rows = rows / image * r[VT_TPU1_REG_POOL_OUT_H] * r[VT_TPU1_REG_POOL_OUT_W];
  return VT_OK;
}

static vt_status plan_activate(planner *p, vt_tpu1_step *step) {
  const vt_tpu1_insn *insn = step->insn;
  int64_t out_rows = insn->rows;
  if (insn->rows == 0) return vt_error(VT_INVALID_ARGUMENT, "no rows");
  if (insn->pool) VT_TRY(pooled_rows(p, insn->rows, &out_rows));
  step->pass_rows = insn->rows;
  step->acc_read = (vt_tpu1_range){insn->acc, insn->rows};
  step->ub_write = (vt_tpu1_range){insn->ub, out_rows * (insn->wide_out ? 2 : 1)};
  if (insn->bias) {
    int64_t block = p->regs[VT_TPU1_REG_BLOCK] ? p->regs[VT_TPU1_REG_BLOCK] : insn->rows;
    step->ub_read[0] =
        (vt_tpu1_range){p->regs[VT_TPU1_REG_BIAS], (insn->rows + block - 1) / block * 4};
  }
  return VT_OK;
}

static vt_status plan_vector(planner *p, vt_tpu1_step *step) {
  const vt_tpu1_insn *insn = step->insn;
  int64_t rows = p->regs[VT_TPU1_REG_VECTOR_ROWS], out_rows = rows;
  if (insn->pool) VT_TRY(pooled_rows(p, rows, &out_rows));
  if (insn->pool && insn->vop != VT_TPU1_VOP_COPY)
    return vt_error(VT_INVALID_ARGUMENT, "pooling takes one operand");
  step->pass_rows = rows;
  step->ub_read[0] = (vt_tpu1_range){insn->a, rows * (insn->wide_in ? 2 : 1)};
  if (insn->vop != VT_TPU1_VOP_COPY)
    step->ub_read[1] = (vt_tpu1_range){insn->b, rows * (insn->wide_b ? 2 : 1)};
  step->ub_write = (vt_tpu1_range){insn->ub, out_rows * (insn->wide_out ? 2 : 1)};
  // The unit reads ahead of its writes: in place row by row is fine, any other overlap is not.
  for (int i = 0; i < 2; i++) {
    vt_tpu1_range r = step->ub_read[i], w = step->ub_write;
    bool overlap = r.count && r.first < w.first + w.count && w.first < r.first + r.count;
    if (overlap && (r.first != w.first || r.count != w.count || insn->pool))
      return vt_error(VT_INVALID_ARGUMENT, "result rows %lld..%lld overlap operand rows %lld..%lld",
                      (long long)w.first, (long long)(w.first + w.count - 1), (long long)r.first,
                      (long long)(r.first + r.count - 1));
  }
  return VT_OK;
}

static vt_status plan_step(planner *p, vt_tpu1_step *step) {
  switch (step->insn->op) {
  case VT_TPU1_READ_HOST:
    return plan_host(p, step, true, false);
  case VT_TPU1_READ_HOST_ALT:
    return plan_host(p, step, true, true);
  case VT_TPU1_WRITE_HOST:
    return plan_host(p, step, false, false);
  case VT_TPU1_WRITE_HOST_ALT:
    return plan_host(p, step, false, true);
  case VT_TPU1_READ_WEIGHTS:
    return plan_weights(p, step->insn);
  case VT_TPU1_MATMUL:
    return plan_matrix(p, step, false);
  case VT_TPU1_CONVOLVE:
    return plan_matrix(p, step, true);
  case VT_TPU1_ACTIVATE:
    return plan_activate(p, step);
  case VT_TPU1_VECTOR:
    return plan_vector(p, step);
  case VT_TPU1_INTERRUPT:
    return VT_OK;
  case VT_TPU1_NOP:
  case VT_TPU1_SET:
  case VT_TPU1_SYNC:
  case VT_TPU1_SYNC_HOST:
  case VT_TPU1_DEBUG_TAG:
  case VT_TPU1_HALT:
  case VT_TPU1_OPS:
    break;
  }
  vt_assert(false); // instructions without a unit never get here
  return VT_OK;
}

static vt_status touch_step(planner *p, const vt_tpu1_step *step) {
  for (int i = 0; i < 3; i++)
    VT_TRY(check_range(step->ub_read[i], vt_tpu1_chip_ub_rows(p->chip), "unified buffer"));
  VT_TRY(check_range(step->ub_write, vt_tpu1_chip_ub_rows(p->chip), "unified buffer"));
  VT_TRY(check_range(step->acc_read, (int64_t)p->chip->acc_rows, "accumulators"));
  VT_TRY(check_range(step->acc_write, (int64_t)p->chip->acc_rows, "accumulators"));
  for (int i = 0; i < 3; i++)
    VT_TRY(touch_read(p, p->ub, step->ub_read[i], step->unit, "unified-buffer"));
  VT_TRY(touch_write(p, p->ub, step->ub_write, step->unit, "unified-buffer"));
  VT_TRY(touch_read(p, p->acc, step->acc_read, step->unit, "accumulator"));
  return touch_write(p, p->acc, step->acc_write, step->unit, "accumulator");
}

static vt_status plan_insn(planner *p, const vt_tpu1_insn *insn) {
  uint8_t bytes[VT_TPU1_INSN_BYTES];
  VT_TRY(vt_tpu1_encode(insn, bytes)); // an instruction that cannot be encoded is illegal
  switch (insn->op) {
  case VT_TPU1_SET:
    set_register(p, insn);
    return VT_OK;
  case VT_TPU1_SYNC:
    sync_units(p, insn->unit, insn->on);
    return VT_OK;
  case VT_TPU1_SYNC_HOST:
    sync_units(p, insn->unit, 1 << VT_TPU1_UNIT_READ | 1 << VT_TPU1_UNIT_WRITE);
    return VT_OK;
  default:
    break;
  }
  vt_assert(insn->op < VT_TPU1_OPS);
  vt_tpu1_unit unit = vt_tpu1_op_get(insn->op)->unit;
  if (unit == VT_TPU1_UNIT_NONE) return VT_OK;
  vt_tpu1_step step = {.insn = insn, .regs = p->regs, .pc = p->pc, .unit = unit};
  VT_TRY(plan_step(p, &step));
  p->regs_shared = true;
  p->issued[unit]++;
  memcpy(step.wait, p->known[unit], sizeof step.wait);
  memcpy(p->started[unit], p->known[unit], sizeof step.wait);
  VT_TRY(touch_step(p, &step));
  vt_array_push(&p->plan->steps, step);
  return VT_OK;
}

static vt_status plan_code(planner *p) {
  const vt_tpu1_program *program = p->program;
  for (p->pc = 0; p->pc < program->code_size; p->pc++) {
    const vt_tpu1_insn *insn = &program->code[p->pc];
    vt_status st = plan_insn(p, insn);
    if (st) return at_pc(p, st);
    if (insn->op == VT_TPU1_HALT) break;
  }
  if (p->pc == program->code_size)
    return vt_error(VT_INVALID_ARGUMENT, "address 0x%zx: the program ends without halt",
                    program->code_size * VT_TPU1_INSN_BYTES);
  if (p->pc + 1 < program->code_size) {
    p->pc++;
    return at_pc(p, vt_error(VT_INVALID_ARGUMENT, "instruction after halt"));
  }
  if (p->tiles_used < (int64_t)p->plan->tile_order.size)
    return at_pc(p, vt_error(VT_INVALID_ARGUMENT, "%lld weight tiles were requested and never used",
                             (long long)((int64_t)p->plan->tile_order.size - p->tiles_used)));
  return VT_OK;
}

vt_status vt_tpu1_plan_make(const vt_tpu1_program *program, const vt_tpu1_chip *chip,
                            vt_tpu1_plan *out_plan) {
  memset(out_plan, 0, sizeof *out_plan);
  out_plan->program = program;
  planner p = {.program = program, .chip = chip, .plan = out_plan};
  p.regs = VT_NEW_ARRAY(&out_plan->arena, int64_t, VT_TPU1_REGS);
  for (int i = 0; i < VT_TPU1_REGS; i++) p.regs[i] = vt_tpu1_reg_get(i)->reset;
  p.ub = calloc((size_t)vt_tpu1_chip_ub_rows(chip), sizeof *p.ub);
  p.acc = calloc((size_t)chip->acc_rows, sizeof *p.acc);
  vt_status st = p.ub && p.acc ? plan_code(&p) : vt_error_no_memory();
  vt_assert(out_plan->tile_issue.size == out_plan->tile_order.size);
  vt_assert(st || p.tiles_used == (int64_t)out_plan->tile_order.size);
  free(p.ub);
  free(p.acc);
  return st;
}

void vt_tpu1_plan_free(vt_tpu1_plan *plan) {
  vt_array_free(&plan->steps);
  vt_array_free(&plan->tile_order);
  vt_array_free(&plan->tile_issue);
  vt_arena_free(&plan->arena);
}
