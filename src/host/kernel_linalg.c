// SPDX-License-Identifier: Apache-2.0
// kernel_linalg.c - the custom calls of factorisations, for many small matrices: one in each lane
// of vectors, groups of them in parallel. Large ones stay with the evaluator, that is with LAPACK.
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_move.h"
#include "host/linalg.h"

// Matrices of up to FEW_ELEMENTS are quicker here even one at a time; larger ones when there are
// enough to fill lanes.
enum { FEW_ELEMENTS = 256, ENOUGH = 4, MOST_ELEMENTS = VT_LINALG_MOST * VT_LINALG_MOST };

typedef enum factorisation { NONE, EIGH, QR, Q } factorisation;

typedef struct linalg_plan {
  factorisation kind;
  const vt_linalg_code *code;
  vt_linalg_group group;
  int64_t count, bytes; // of matrices; of a number
  int64_t thread_bytes;
  int32_t threads;
} linalg_plan;

static void run_linalg(const vt_native_call *call) {
  const linalg_plan *plan = call->native->plan;
  const vt_linalg_code *code = plan->code;
  int64_t lanes = code->lanes, groups = (plan->count + lanes - 1) / lanes;
  int team = omp_get_max_threads() < plan->threads ? omp_get_max_threads() : plan->threads;
  if (groups < 2) team = 1;
#pragma omp parallel for schedule(dynamic, 1 + groups / VT_LOOP_SHARES)                            \
    num_threads(team) if (team > 1)
  for (int64_t i = 0; i < groups; i++) {
    vt_linalg_group g = plan->group;
    int64_t first = i * lanes, n = g.cols * g.rows * plan->bytes, k = g.reflectors * plan->bytes;
    g.count = (int32_t)(plan->count - first < lanes ? plan->count - first : lanes);
    g.in = (const char *)call->operands[0] + first * n;
    g.out = (char *)call->outputs[0] + first * n;
    void *scratch = (char *)call->scratch + omp_get_thread_num() * plan->thread_bytes;
    if (plan->kind == Q) {
      g.in_taus = (const char *)call->operands[1] + first * k;
      code->q(&g, scratch);
      continue;
    }
    g.out_more = (char *)call->outputs[1] + first * k;
    (plan->kind == EIGH ? code->eigh : code->qr)(&g, scratch);
  }
}

static factorisation kind_of(const vt_op *op) {
  static const struct {
    const char *target;
    factorisation kind;
    uint32_t operands, results;
  } targets[] = {{"Eigh", EIGH, 1, 2},
                 {"Qr", QR, 1, 2},
                 {"ProductOfElementaryHouseholderReflectors", Q, 2, 1}};
  if (op->code != VT_OP_CUSTOM_CALL) return NONE;
  const char *name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (!strcmp(name, targets[i].target) && op->operand_count == targets[i].operands &&
        op->result_count == targets[i].results)
      return targets[i].kind;
  return NONE;
}

static bool make_plan(const vt_op *op, linalg_plan *plan) {
  *plan = (linalg_plan){.kind = kind_of(op)};
  if (!plan->kind) return false;
  vt_type a = op->operands[0]->type,
          vector = plan->kind == Q ? op->operands[1]->type : op->results[1].type;
  if ((a.dtype != VT_F32 && a.dtype != VT_F64) || a.rank < 2 || !vt_type_elements(a) ||
      !vt_type_equal(a, op->results[0].type) || vector.dtype != a.dtype || vector.rank < 1)
    return false;
  int64_t m = a.dims[a.rank - 2], n = a.dims[a.rank - 1], k = vector.dims[vector.rank - 1];
  plan->count = vt_type_elements(a) / (m * n);
  plan->bytes = (int64_t)vt_dtype_bytes(a.dtype);
  plan->group = (vt_linalg_group){.rows = m, .cols = n, .reflectors = k};
  if (m * n > MOST_ELEMENTS || n > VT_LINALG_MOST || k < 1 ||
      vt_type_elements(vector) != plan->count * k || (m * n > FEW_ELEMENTS && plan->count < ENOUGH))
    return false;
  if (plan->kind == Q) return k <= n && n <= m;
  if (plan->kind == QR) return k == (m < n ? m : n);
  vt_string config = vt_attr_string(op, VT_ATTR_BACKEND_CONFIG);
  plan->group.lower = !config.size || config.data[0] != '0';
  plan->group.sort = config.size < 3 || config.data[2] != '0';
  return m == n && k == n;
}

bool vt_linalg_supports(const vt_op *op) {
  linalg_plan plan;
  return make_plan(op, &plan);
}

const vt_native *vt_linalg_create(vt_arena *arena, const vt_op *op) {
  linalg_plan *plan = VT_NEW(arena, linalg_plan);
  make_plan(op, plan); // as vt_linalg_supports has seen
  plan->code = vt_linalg_code_of(plan->bytes == 8);
  plan->threads = omp_get_max_threads();
  plan->thread_bytes = vt_linalg_scratch(plan->group.rows, plan->group.cols);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_linalg, .plan = plan};
  native->scratch_bytes = plan->threads * plan->thread_bytes;
  return native;
}

// Two matrices and the numbers beside them.
int64_t vt_linalg_scratch(int64_t rows, int64_t cols) {
  return (2 * rows * cols + cols) * 64 + 64;
}

const vt_linalg_code *vt_linalg_code_v2(bool wide);
const vt_linalg_code *vt_linalg_code_v3(bool wide);
const vt_linalg_code *vt_linalg_code_v4(bool wide);

const vt_linalg_code *vt_linalg_code_of(bool wide) {
  switch (vt_host_level()) {
#if defined(__x86_64__)
  case 4:
    return vt_linalg_code_v4(wide);
  case 3:
    return vt_linalg_code_v3(wide);
#endif
  default:
    return vt_linalg_code_v2(wide);
  }
}
