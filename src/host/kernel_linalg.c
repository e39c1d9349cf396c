// SPDX-License-Identifier: Apache-2.0
// kernel_linalg.c - factorisations and triangular systems: many small matrices in vector lanes,
// groups of them in parallel; others one by one with LAPACK, several of them in parallel.
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_move.h"
#include "host/linalg.h"

// Jacobi's and Householder's methods are faster in lanes up to FEW_ELEMENTS even for one matrix;
// everything else is when there are enough matrices to fill the lanes. Rows are exchanged lane by
// lane, so LU in lanes is for small matrices only.
enum { FEW_ELEMENTS = 256, ENOUGH = 4, MOST_LU = 32, MOST_DENSE = 16 << 10 };
enum { PART = 128 }; // right sides of a triangular system that are solved together
static const int64_t PARALLEL_WORK = 64 << 10;

typedef struct linalg_plan {
  vt_linalg_kind kind;
  vt_dtype dtype;
  const vt_linalg_code *code; // NULL: by LAPACK
  vt_linalg_group group;
  int64_t count; // of matrices
  int64_t parts; // of a matrix: 1 but for many right sides by LAPACK
  // Bytes from a matrix to the next.
  int64_t in_bytes, in_more_bytes, out_bytes, out_more_bytes, out_last_bytes;
  int64_t thread_bytes;
  int32_t threads;
} linalg_plan;

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void *output(const vt_native_call *call, int which, int64_t offset) {
  return (char *)call->outputs[which] + offset;
}

// Some of the right sides of each system: columns of b for a x = b, else rows.
static void take_part(const linalg_plan *plan, int64_t part, vt_linalg_group *g) {
  int64_t *sides = g->left ? &g->cols : &g->rows, first = part * PART;
  int64_t offset = (g->left ? first : first * g->cols) * (int64_t)vt_dtype_bytes(plan->dtype);
  *sides = min64(PART, *sides - first);
  g->in_more = (const char *)g->in_more + offset;
  g->out = (char *)g->out + offset;
}

// Group `i` of all parts of the matrices.
static void run_group(const linalg_plan *plan, const vt_native_call *call, int64_t i, bool alone) {
  vt_linalg_group g = plan->group;
  int64_t lanes = plan->code ? plan->code->lanes : 1, first = i / plan->parts * lanes;
  g.count = (int32_t)min64(lanes, plan->count - first);
  g.alone = alone;
  g.in = (const char *)call->operands[0] + first * plan->in_bytes;
  if (plan->in_more_bytes)
    g.in_more = (const char *)call->operands[1] + first * plan->in_more_bytes;
  g.out = output(call, 0, first * plan->out_bytes);
  if (plan->out_more_bytes) g.out_more = output(call, 1, first * plan->out_more_bytes);
  if (plan->out_last_bytes) g.out_last = output(call, 2, first * plan->out_last_bytes);
  if (plan->parts > 1) take_part(plan, i % plan->parts, &g);
  void *scratch = (char *)call->scratch + omp_get_thread_num() * plan->thread_bytes;
  if (plan->code)
    plan->code->run[plan->kind](&g, scratch);
  else
    vt_dense_run(plan->dtype, plan->kind, &g, scratch);
}

static void run_linalg(const vt_native_call *call) {
  const linalg_plan *plan = call->native->plan;
  int64_t lanes = plan->code ? plan->code->lanes : 1;
  int64_t groups = (plan->count + lanes - 1) / lanes * plan->parts;
  int64_t work = plan->group.rows * plan->group.cols * min64(plan->group.rows, plan->group.cols);
  bool shared = plan->threads > 1 && work * plan->count >= PARALLEL_WORK;
#pragma omp parallel for schedule(dynamic, vt_host_share(groups))                                  \
    num_threads(plan->threads) if (shared)
  for (int64_t i = 0; i < groups; i++) run_group(plan, call, i, groups == 1);
}

// ---- Supported ops.

static vt_linalg_kind kind_of(const vt_op *op) {
  static const struct {
    const char *target;
    vt_linalg_kind kind;
    uint32_t operands, results;
  } targets[] = {{"Eigh", VT_LINALG_EIGH, 1, 2},
                 {"Qr", VT_LINALG_QR, 1, 2},
                 {"ProductOfElementaryHouseholderReflectors", VT_LINALG_Q, 2, 1},
                 {"LuDecomposition", VT_LINALG_LU, 1, 3},
                 {"Svd", VT_LINALG_SVD, 1, 3},
                 {"Svd", VT_LINALG_SVD, 1, 1}};
  if (op->code == VT_OP_CHOLESKY) return VT_LINALG_CHOLESKY;
  if (op->code == VT_OP_TRIANGULAR_SOLVE) return VT_LINALG_TRIANGULAR;
  if (op->code != VT_OP_CUSTOM_CALL) return VT_LINALG_NONE;
  const char *name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (!strcmp(name, targets[i].target) && op->operand_count == targets[i].operands &&
        op->result_count == targets[i].results)
      return targets[i].kind;
  return VT_LINALG_NONE;
}

// Arrays of `count` * `each` numbers, and the bytes of each.
static bool measure(vt_type type, vt_dtype dtype, int64_t count, int64_t each, int64_t *out_bytes) {
  *out_bytes = each * (int64_t)vt_dtype_bytes(dtype);
  return type.dtype == dtype && vt_type_elements(type) == count * each;
}

static bool plan_triangular(const vt_op *op, linalg_plan *plan) {
  vt_linalg_group *g = &plan->group;
  vt_type b = op->operands[1]->type;
  int64_t form = vt_attr_i64(op, VT_ATTR_TRANSPOSE_A);
  g->left = vt_attr_i64(op, VT_ATTR_LEFT_SIDE);
  g->lower = vt_attr_i64(op, VT_ATTR_LOWER);
  g->unit = vt_attr_i64(op, VT_ATTR_UNIT_DIAGONAL);
  g->turned = form != VT_NO_TRANSPOSE;
  g->conjugated = form == VT_ADJOINT;
  if (b.rank < 2 || !vt_type_elements(b) || g->rows != g->cols) return false;
  g->side = g->rows;
  g->rows = b.dims[b.rank - 2];
  g->cols = g->stride = b.dims[b.rank - 1];
  return g->side == (g->left ? g->rows : g->cols) && vt_type_equal(b, op->results[0].type) &&
         measure(b, plan->dtype, plan->count, g->rows * g->cols, &plan->in_more_bytes) &&
         measure(b, plan->dtype, plan->count, g->rows * g->cols, &plan->out_bytes);
}

static bool plan_svd(const vt_op *op, linalg_plan *plan, vt_dtype real) {
  int64_t m = plan->group.rows, n = plan->group.cols, few = min64(m, n), count = plan->count;
  if (op->result_count == 1) // the values
    return measure(op->results[0].type, real, count, few, &plan->out_bytes);
  return measure(op->results[0].type, plan->dtype, count, m * few, &plan->out_bytes) &&
         measure(op->results[1].type, real, count, few, &plan->out_more_bytes) &&
         measure(op->results[2].type, plan->dtype, count, n * few, &plan->out_last_bytes);
}

static bool plan_custom_call(const vt_op *op, linalg_plan *plan) {
  vt_linalg_group *g = &plan->group;
  int64_t few = min64(g->rows, g->cols);
  vt_dtype real = plan->dtype == VT_C64 ? VT_F32 : plan->dtype == VT_C128 ? VT_F64 : plan->dtype;
  vt_string config = vt_attr_string(op, VT_ATTR_BACKEND_CONFIG);
  if (plan->kind == VT_LINALG_SVD) return plan_svd(op, plan, real);
  vt_type more = plan->kind == VT_LINALG_Q ? op->operands[1]->type : op->results[1].type;
  g->side = few;
  switch ((int)plan->kind) {
  case VT_LINALG_EIGH:
    g->lower = !config.size || config.data[0] != '0';
    g->sort = config.size < 3 || config.data[2] != '0';
    return g->rows == g->cols && measure(more, real, plan->count, g->rows, &plan->out_more_bytes);
  case VT_LINALG_QR:
    return measure(more, plan->dtype, plan->count, few, &plan->out_more_bytes);
  case VT_LINALG_Q:
    g->side = more.rank ? more.dims[more.rank - 1] : 0;
    return g->side >= 1 && g->side <= g->cols && g->cols <= g->rows &&
           measure(more, plan->dtype, plan->count, g->side, &plan->in_more_bytes);
  default: // LU
    return measure(more, VT_S32, plan->count, few, &plan->out_more_bytes) &&
           measure(op->results[2].type, VT_S32, plan->count, g->rows, &plan->out_last_bytes);
  }
}

static bool in_lanes(const linalg_plan *plan) {
  int64_t m = plan->group.rows, n = plan->group.cols;
  if (vt_dtype_is_complex(plan->dtype) || plan->kind == VT_LINALG_SVD) return false;
  switch ((int)plan->kind) {
  case VT_LINALG_TRIANGULAR:
    return plan->count >= ENOUGH && m <= VT_LINALG_MOST && n <= VT_LINALG_MOST;
  case VT_LINALG_CHOLESKY:
    return plan->count >= ENOUGH && n <= VT_LINALG_MOST;
  case VT_LINALG_LU:
    return plan->count >= ENOUGH && m <= MOST_LU && n <= MOST_LU;
  default:
    return n <= VT_LINALG_MOST && m * n <= VT_LINALG_MOST * VT_LINALG_MOST &&
           (plan->count >= ENOUGH || m * n <= FEW_ELEMENTS);
  }
}

static bool make_plan(const vt_op *op, linalg_plan *plan) {
  *plan = (linalg_plan){.kind = kind_of(op)};
  if (!plan->kind) return false;
  vt_type a = op->operands[0]->type;
  vt_linalg_group *g = &plan->group;
  if ((a.dtype != VT_F32 && a.dtype != VT_F64 && !vt_dtype_is_complex(a.dtype)) || a.rank < 2 ||
      !vt_type_elements(a))
    return false;
  plan->dtype = a.dtype;
  g->rows = a.dims[a.rank - 2];
  g->cols = a.dims[a.rank - 1];
  if (g->rows > MOST_DENSE || g->cols > MOST_DENSE) return false;
  plan->count = vt_type_elements(a) / (g->rows * g->cols);
  plan->in_bytes = plan->out_bytes = g->rows * g->cols * (int64_t)vt_dtype_bytes(a.dtype);
  if (plan->kind == VT_LINALG_TRIANGULAR) {
    if (!plan_triangular(op, plan)) return false;
  } else if (plan->kind != VT_LINALG_SVD && !vt_type_equal(a, op->results[0].type)) {
    return false;
  } else if (plan->kind == VT_LINALG_CHOLESKY) {
    g->lower = vt_attr_i64(op, VT_ATTR_LOWER);
    if (g->rows != g->cols) return false;
  } else if (!plan_custom_call(op, plan)) {
    return false;
  }
  plan->parts = 1;
  if (in_lanes(plan))
    plan->code = vt_linalg_code_of(a.dtype == VT_F64);
  else if (plan->kind == VT_LINALG_TRIANGULAR)
    plan->parts = ((g->left ? g->cols : g->rows) + PART - 1) / PART;
  // Puts values where their blocks belong, as the evaluator does.
  return plan->code || plan->kind != VT_LINALG_EIGH || g->sort;
}

bool vt_linalg_supports(const vt_op *op) {
  linalg_plan plan;
  return make_plan(op, &plan);
}

// Two matrices and their other numbers, in all lanes.
static int64_t lanes_scratch(const vt_linalg_group *g) {
  return (2 * g->rows * g->cols + g->side * g->side + g->cols) * 64 + 64;
}

const vt_native *vt_linalg_create(vt_arena *arena, const vt_op *op) {
  linalg_plan *plan = VT_NEW(arena, linalg_plan);
  make_plan(op, plan); // checked by vt_linalg_supports
  plan->threads = plan->count * plan->parts > 1 ? vt_host_threads() : 1;
  plan->thread_bytes = plan->code ? lanes_scratch(&plan->group)
                                  : vt_dense_scratch(plan->dtype, plan->kind, &plan->group);
  plan->thread_bytes = (plan->thread_bytes + 63) / 64 * 64;
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_linalg, .plan = plan};
  native->scratch_bytes = plan->threads * plan->thread_bytes;
  return native;
}

const vt_linalg_code *vt_linalg_code_v2(bool wide);
const vt_linalg_code *vt_linalg_code_v3(bool wide);
const vt_linalg_code *vt_linalg_code_v4(bool wide);

const vt_linalg_code *vt_linalg_code_of(bool wide) {
  return VT_OF_LEVEL(vt_linalg_code)(wide);
}
