// SPDX-License-Identifier: Apache-2.0
// exec.c - the functional simulator: state of the chip and the effect of each step (exec.h defines
// the arithmetic). In: a plan, host bytes. Out: changed state, host bytes. Owns: the machine. Not
// here: time (timing.c), checks (program.c).
#include "base/check.h"
#include "tpu1/exec.h"

#include <stdlib.h>
#include <string.h>

#include "tpu1/activate.h"

struct vt_tpu1_machine {
  int64_t dim, ub_rows, acc_rows;
  uint8_t *ub;
  int32_t *acc;
  float *weights; // the active tile, widened: dim x dim
  float *in;      // inputs of a block of rows, widened
  int32_t *lanes[3];
  int32_t *image; // pooling: results of one image before pooling
  int64_t image_size;
};
// inputs widened at once: 384 x 256 floats fit in L2
enum { BLOCK_ROWS = 384 };

vt_status vt_tpu1_machine_create(const vt_tpu1_chip *chip, vt_tpu1_machine **out_machine) {
  *out_machine = NULL;
  vt_tpu1_machine *m = calloc(1, sizeof *m);
  if (!m) return vt_error_no_memory();
  m->dim = vt_tpu1_chip_dim(chip);
  m->ub_rows = vt_tpu1_chip_ub_rows(chip);
  m->acc_rows = (int64_t)chip->acc_rows;
  m->ub = calloc((size_t)(m->ub_rows * m->dim), 1);
  m->acc = calloc((size_t)(m->acc_rows * m->dim), sizeof *m->acc);
  m->weights = calloc((size_t)(m->dim * m->dim), sizeof *m->weights);
  m->in = calloc((size_t)(BLOCK_ROWS * m->dim), sizeof *m->in);
  bool ok = m->ub && m->acc && m->weights && m->in;
  for (int i = 0; i < 3; i++) {
    m->lanes[i] = calloc((size_t)m->dim, sizeof *m->lanes[i]);
    ok = ok && m->lanes[i];
  }
  if (!ok) {
    vt_tpu1_machine_destroy(m);
    return vt_error_no_memory();
  }
  *out_machine = m;
  return VT_OK;
}

void vt_tpu1_machine_destroy(vt_tpu1_machine *m) {
  if (!m) return;
  for (int i = 0; i < 3; i++) free(m->lanes[i]);
  free(m->image);
  free(m->in);
  free(m->weights);
  free(m->acc);
  free(m->ub);
  free(m);
}

const uint8_t *vt_tpu1_machine_ub(const vt_tpu1_machine *machine) {
  return machine->ub;
}
const int32_t *vt_tpu1_machine_acc(const vt_tpu1_machine *machine) {
  return machine->acc;
}

static uint8_t *ub_row(vt_tpu1_machine *m, int64_t row) {
  vt_assert(row >= 0 && row < m->ub_rows);
  return m->ub + row * m->dim;
}

static void exec_host(vt_tpu1_machine *m, const vt_tpu1_step *step, vt_tpu1_host host) {
  vt_assert(step->host_row >= 0 && step->host_row <= m->dim);
  bool reads = step->unit == VT_TPU1_UNIT_READ;
  for (int64_t r = 0; r < step->insn->rows; r++) {
    uint8_t *row = ub_row(m, step->insn->ub + r);
    int64_t at = step->insn->host + r * step->host_stride;
    if (reads) {
      memcpy(row, host.in + at, (size_t)step->host_row);
      memset(row + step->host_row, 0, (size_t)(m->dim - step->host_row));
    } else {
      memcpy(host.out + at, row, (size_t)step->host_row);
    }
  }
}

// Widens the used corner of a tile; columns are padded to whole vectors with zeros. Returns its
// stride.
static int64_t tile_widen(vt_tpu1_machine *m, const uint8_t *tile, vt_tpu1_tile used,
                          bool is_signed) {
  vt_assert(used.k <= m->dim && used.n <= m->dim);
  int64_t stride = (used.n + 31) / 32 * 32;
  for (int64_t i = 0; i < used.k; i++) {
    const uint8_t *from = tile + i * m->dim;
    float *to = m->weights + i * stride;
    if (is_signed)
      for (int64_t j = 0; j < used.n; j++) to[j] = (float)(int8_t)from[j];
    else
      for (int64_t j = 0; j < used.n; j++) to[j] = (float)from[j];
    for (int64_t j = used.n; j < stride; j++) to[j] = 0;
  }
  return stride;
}

// The unified-buffer row that output row `r` of a pass reads, or -1 for zeros outside an image.
static int64_t input_row(const vt_tpu1_step *step, int64_t r) {
  const vt_tpu1_insn *insn = step->insn;
  if (insn->op == VT_TPU1_MATMUL) return r;
  const int64_t *regs = step->regs;
  int64_t ow = regs[VT_TPU1_REG_CONV_OUT_W], oh = regs[VT_TPU1_REG_CONV_OUT_H];
  int64_t iw = regs[VT_TPU1_REG_CONV_IN_W], ih = regs[VT_TPU1_REG_CONV_IN_H];
  int64_t x = r % ow * regs[VT_TPU1_REG_CONV_SX] + insn->dx;
  int64_t y = r / ow % oh * regs[VT_TPU1_REG_CONV_SY] + insn->dy;
  if (x < 0 || y < 0 || x >= iw || y >= ih) return -1;
  return (r / (ow * oh) * ih + y) * iw + x;
}

typedef struct plane {
  int64_t base;   // unified-buffer row of input row 0
  int64_t stride; // unified-buffer rows per input row
  bool is_signed;
} plane;

static void inputs_widen(vt_tpu1_machine *m, const vt_tpu1_step *step, plane p, int64_t row,
                         int64_t rows, int64_t k) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t in = input_row(step, row + r);
    float *to = m->in + r * k;
    if (in < 0) {
      memset(to, 0, sizeof(float) * (size_t)k);
      continue;
    }
    const uint8_t *from = ub_row(m, p.base + in * p.stride);
    if (p.is_signed)
      for (int64_t i = 0; i < k; i++) to[i] = (float)(int8_t)from[i];
    else
      for (int64_t i = 0; i < k; i++) to[i] = (float)from[i];
  }
}

static void exec_plane(vt_tpu1_machine *m, const vt_tpu1_step *step, plane p, vt_tpu1_tile used,
                       int64_t w_stride, int shift, bool accumulate) {
  vt_assert(step->insn->acc >= 0 && step->insn->acc + step->pass_rows <= m->acc_rows);
  for (int64_t row = 0; row < step->pass_rows; row += BLOCK_ROWS) {
    int64_t rows = step->pass_rows - row < BLOCK_ROWS ? step->pass_rows - row : BLOCK_ROWS;
    inputs_widen(m, step, p, row, rows, used.k);
    vt_tpu1_mac(&(vt_tpu1_pass){.in = m->in,
                                .weights = m->weights,
                                .acc = m->acc + (step->insn->acc + row) * m->dim,
                                .rows = rows,
                                .k = used.k,
                                .k_stride = used.k,
                                .n = used.n,
                                .n_stride = w_stride,
                                .dim = m->dim,
                                .shift = shift,
                                .accumulate = accumulate});
  }
}

static void exec_matrix(vt_tpu1_machine *m, const vt_tpu1_plan *plan, const vt_tpu1_step *step) {
  const vt_tpu1_insn *insn = step->insn;
  const vt_tpu1_program *program = plan->program;
  int in_planes = insn->wide_in ? 2 : 1, w_planes = insn->wide_weights ? 2 : 1;
  int64_t in_rows = step->ub_read[0].count / step->passes;
  bool accumulate = insn->accumulate;
  for (int64_t pass = 0; pass < step->passes; pass++)
    for (int wp = 0; wp < w_planes; wp++) {
      int64_t order = step->first_tile + (insn->switch_tile ? pass * w_planes + wp : 0);
      vt_assert(order >= 0 && order < (int64_t)plan->tile_order.size);
      int64_t tile = plan->tile_order.data[order];
      vt_tpu1_tile used = {(uint16_t)m->dim, (uint16_t)m->dim};
      if (program->tiles) used = program->tiles[tile];
      int64_t stride =
          tile_widen(m, program->weights + tile * m->dim * m->dim, used, wp == w_planes - 1);
      for (int ip = 0; ip < in_planes; ip++) {
        plane p = {insn->ub + pass * in_rows + ip, in_planes,
                   ip == in_planes - 1 && !insn->unsigned_in};
        exec_plane(m, step, p, used, stride, 8 * (wp + ip), accumulate);
        accumulate = true;
      }
    }
}

static vt_tpu1_scaling scaling_of(const vt_tpu1_step *step) {
  const vt_tpu1_insn *insn = step->insn;
  const int64_t *regs = step->regs;
  return (vt_tpu1_scaling){.fn = (vt_tpu1_fn)insn->fn,
                           .wide_out = insn->wide_out,
                           .unsigned_out = insn->unsigned_out,
                           .scale = (int32_t)regs[VT_TPU1_REG_SCALE],
                           .scale_b = (int32_t)regs[VT_TPU1_REG_SCALE_B],
                           .offset = (int32_t)regs[VT_TPU1_REG_OFFSET],
                           .shift = (int)regs[VT_TPU1_REG_SHIFT]};
}

static void row_store(vt_tpu1_machine *m, const vt_tpu1_insn *insn, int64_t row,
                      const int32_t *values) {
  vt_assert(!insn->wide_out || insn->ub + row * 2 + 1 < m->ub_rows);
  uint8_t *low = ub_row(m, insn->ub + row * (insn->wide_out ? 2 : 1));
  for (int64_t i = 0; i < m->dim; i++) low[i] = (uint8_t)values[i];
  if (!insn->wide_out) return;
  uint8_t *high = low + m->dim;
  for (int64_t i = 0; i < m->dim; i++) high[i] = (uint8_t)((uint32_t)values[i] >> 8);
}

static void row_load(vt_tpu1_machine *m, int64_t at, int64_t row, bool wide, bool is_unsigned,
                     int32_t *out) {
  vt_assert(!wide || at + row * 2 + 1 < m->ub_rows);
  const uint8_t *low = ub_row(m, at + row * (wide ? 2 : 1)), *high = low + m->dim;
  for (int64_t i = 0; i < m->dim; i++)
    out[i] = wide ? (int16_t)(low[i] | high[i] << 8) : is_unsigned ? low[i] : (int8_t)low[i];
}

// The results of logical row `row`, before pooling.
static void activate_row(vt_tpu1_machine *m, const vt_tpu1_step *step, const vt_tpu1_scaling *s,
                         int64_t row, int32_t *out) {
  const vt_tpu1_insn *insn = step->insn;
  int32_t *a = m->lanes[0], *b = m->lanes[1];
  if (insn->op == VT_TPU1_ACTIVATE) {
    const int32_t *acc = m->acc + (insn->acc + row) * m->dim;
    vt_assert(insn->acc >= 0 && insn->acc + row < m->acc_rows);
    if (insn->bias) {
      int64_t block = step->regs[VT_TPU1_REG_BLOCK] ? row / step->regs[VT_TPU1_REG_BLOCK] : 0;
      const uint8_t *bias = ub_row(m, step->regs[VT_TPU1_REG_BIAS] + block * 4);
      memcpy(b, bias, sizeof(int32_t) * (size_t)m->dim);
      for (int64_t i = 0; i < m->dim; i++) a[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)b[i]);
      acc = a;
    }
    vt_tpu1_activate_lanes(acc, m->dim, s, out);
    return;
  }
  row_load(m, insn->a, row, insn->wide_in, insn->unsigned_in, a);
  if (insn->vop != VT_TPU1_VOP_COPY) row_load(m, insn->b, row, insn->wide_b, insn->unsigned_in, b);
  if (insn->vop == VT_TPU1_VOP_ADD) {
    vt_tpu1_add_lanes(a, b, m->dim, s, out);
    return;
  }
  if (insn->vop == VT_TPU1_VOP_MUL)
    for (int64_t i = 0; i < m->dim; i++) a[i] *= b[i];
  if (insn->vop == VT_TPU1_VOP_MAX)
    for (int64_t i = 0; i < m->dim; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
  vt_tpu1_activate_lanes(a, m->dim, s, out);
}

// One pooled position of the image in m->image.
static void pool_position(vt_tpu1_machine *m, const vt_tpu1_step *step, int64_t oy, int64_t ox,
                          int32_t *out) {
  vt_assert(step->regs[VT_TPU1_REG_POOL_IN_H] * step->regs[VT_TPU1_REG_POOL_IN_W] <= m->image_size);
  const int64_t *r = step->regs;
  const vt_tpu1_insn *insn = step->insn;
  bool max = insn->pool == VT_TPU1_POOL_MAX;
  int64_t h = r[VT_TPU1_REG_POOL_IN_H], w = r[VT_TPU1_REG_POOL_IN_W], seen = 0;
  for (int64_t i = 0; i < m->dim; i++) out[i] = 0;
  for (int64_t ky = 0; ky < r[VT_TPU1_REG_POOL_KH]; ky++)
    for (int64_t kx = 0; kx < r[VT_TPU1_REG_POOL_KW]; kx++) {
      int64_t y = oy * r[VT_TPU1_REG_POOL_SY] + ky - r[VT_TPU1_REG_POOL_PY];
      int64_t x = ox * r[VT_TPU1_REG_POOL_SX] + kx - r[VT_TPU1_REG_POOL_PX];
      if (y < 0 || x < 0 || y >= h || x >= w) continue;
      const int32_t *v = m->image + (y * w + x) * m->dim;
      if (max && seen)
        for (int64_t i = 0; i < m->dim; i++) out[i] = out[i] > v[i] ? out[i] : v[i];
      else if (max)
        memcpy(out, v, sizeof(int32_t) * (size_t)m->dim);
      else
        for (int64_t i = 0; i < m->dim; i++) out[i] += v[i];
      seen++;
    }
  if (max) return;
  int32_t low = insn->wide_out ? INT16_MIN : insn->unsigned_out ? 0 : INT8_MIN;
  int32_t high = insn->wide_out ? INT16_MAX : insn->unsigned_out ? UINT8_MAX : INT8_MAX;
  for (int64_t i = 0; i < m->dim; i++) {
    int64_t v =
        vt_tpu1_scaled(out[i], (int32_t)r[VT_TPU1_REG_POOL_SCALE], (int)r[VT_TPU1_REG_POOL_SHIFT]);
    out[i] = (int32_t)(v < low ? low : v > high ? high : v);
  }
}

static vt_status exec_pool(vt_tpu1_machine *m, const vt_tpu1_step *step, const vt_tpu1_scaling *s) {
  const int64_t *r = step->regs;
  int64_t image = r[VT_TPU1_REG_POOL_IN_H] * r[VT_TPU1_REG_POOL_IN_W];
  int64_t oh = r[VT_TPU1_REG_POOL_OUT_H], ow = r[VT_TPU1_REG_POOL_OUT_W];
  vt_assert(image > 0 && step->pass_rows % image == 0);
  if (image > m->image_size) {
    free(m->image);
    m->image_size = 0;
    m->image = malloc(sizeof(int32_t) * (size_t)(image * m->dim));
    if (!m->image) return vt_error_no_memory();
    m->image_size = image;
  }
  for (int64_t n = 0; n < step->pass_rows / image; n++) {
    for (int64_t i = 0; i < image; i++)
      activate_row(m, step, s, n * image + i, m->image + i * m->dim);
    for (int64_t o = 0; o < oh * ow; o++) {
      pool_position(m, step, o / ow, o % ow, m->lanes[2]);
      row_store(m, step->insn, n * oh * ow + o, m->lanes[2]);
    }
  }
  return VT_OK;
}

static vt_status exec_activate(vt_tpu1_machine *m, const vt_tpu1_step *step) {
  vt_tpu1_scaling s = scaling_of(step);
  if (step->insn->pool) return exec_pool(m, step, &s);
  for (int64_t row = 0; row < step->pass_rows; row++) {
    activate_row(m, step, &s, row, m->lanes[2]);
    row_store(m, step->insn, row, m->lanes[2]);
  }
  return VT_OK;
}

static vt_status exec_step(vt_tpu1_machine *m, const vt_tpu1_plan *plan, const vt_tpu1_step *step,
                           vt_tpu1_host host) {
  switch (step->unit) {
  case VT_TPU1_UNIT_READ:
    exec_host(m, step, host);
    return VT_OK;
  case VT_TPU1_UNIT_WRITE:
    if (step->insn->op != VT_TPU1_INTERRUPT) exec_host(m, step, host);
    return VT_OK;
  case VT_TPU1_UNIT_MATRIX:
    exec_matrix(m, plan, step);
    return VT_OK;
  case VT_TPU1_UNIT_ACTIVATE:
    return exec_activate(m, step);
  case VT_TPU1_UNIT_WEIGHTS:
  case VT_TPU1_UNIT_NONE:
    break;
  }
  return VT_OK;
}

vt_status vt_tpu1_run_serial(vt_tpu1_machine *machine, const vt_tpu1_plan *plan,
                             vt_tpu1_host host) {
  if (!plan->program->weights && plan->tile_order.size)
    return vt_error(VT_FAILED_PRECONDITION, "the program has no weight image: timing only");
  for (size_t i = 0; i < plan->steps.size; i++)
    VT_TRY(exec_step(machine, plan, &plan->steps.data[i], host));
  return VT_OK;
}

typedef struct order {
  int64_t finish, start;
  size_t step;
} order;

static int order_compare(const void *a, const void *b) {
  const order *x = a, *y = b;
  if (x->finish != y->finish) return x->finish < y->finish ? -1 : 1;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return x->step < y->step ? -1 : 1;
}

vt_status vt_tpu1_run_pipelined(vt_tpu1_machine *machine, const vt_tpu1_plan *plan,
                                const vt_tpu1_timing *timing, vt_tpu1_host host) {
  vt_status st = VT_OK;
  size_t n = plan->steps.size;
  vt_assert(timing->finish.size == n);
  if (!plan->program->weights && plan->tile_order.size)
    return vt_error(VT_FAILED_PRECONDITION, "the program has no weight image: timing only");
  order *orders = malloc(sizeof *orders * (n + 1));
  if (!orders) return vt_error_no_memory();
  for (size_t i = 0; i < n; i++)
    orders[i] = (order){timing->finish.data[i], timing->start.data[i], i};
  qsort(orders, n, sizeof *orders, order_compare);
  for (size_t i = 0; i < n && !st; i++)
    st = exec_step(machine, plan, &plan->steps.data[orders[i].step], host);
  free(orders);
  return st;
}
