// SPDX-License-Identifier: Apache-2.0
// dnnl_dot.c - dot_general as a oneDNN matmul, or as our own: in bf16 with AMX (amx.c,
// few_rows.c), in f32 with AVX2 (panels.c).
//
// The dimensions of a dot are batch, M (left only), N (right only) and K (summed). Adjacent
// dimensions that are contiguous in both their tensors are merged. M and N keep one dimension each;
// the rest become batch with the other side broadcast. Strides express heads inside a sequence,
// transposed weights and the like without copies. An operand is packed into scratch when its K
// cannot be one dimension, when neither of its inner strides is 1 (oneDNN would run its reference
// code, a thousand times slower), or when its numbers must be converted: bf16 where the CPU has no
// fast bf16, DEFAULT f32 that no pass has rounded.
#include <string.h>

#include "host/amx.h"
#include "host/contraction.h"
#include "host/cpu.h"
#include "host/dnnl_util.h"
#include "host/few_rows.h"
#include "host/pack.h"
#include "host/panels.h"
#include "host/steps.h"
#include "ir/precision.h"

enum { MAX_BATCH = 6, SMALL_DOT = 4096, MAX_ODD_K = 64, NARROW = 8 };
static const int64_t MIN_MOVED = 16 << 10; // elements of a result from which another order pays off

typedef struct operand {
  bool packed;
  vt_pack pack;
  vt_dtype dtype; // that the matmul sees
  int64_t offset; // in scratch, when packed
  int64_t bytes;
  int64_t batch[MAX_BATCH], rows, columns; // strides the matmul sees
} operand;

typedef struct dot_body {
  operand sides[2];
  vt_dnnl_call call;
  bool own; // run by amx.c, not by `call`
  vt_amx_product product;
  bool paneled; // run by panels.c
  vt_panels panels;
  bool few; // run by few_rows.c
  vt_few_rows rows;
  vt_pack result; // out of scratch into the result, when converted or in another order
  bool converts_result, moves_result;
  bool swapped; // side 0 is the right operand: the result is wanted transposed
  bool blocked; // the right side is reordered into the layout that whoever multiplies likes
  vt_dnnl_call reorder;
  int64_t blocked_bytes, blocked_offset, reorder_pad_offset;
  int64_t result_offset, scratchpad_offset; // the scratchpad of oneDNN or amx.c
} dot_body;

static bool joins(const vt_dim *outer, const vt_dim *inner) {
  return outer->lhs == inner->lhs * inner->size && outer->rhs == inner->rhs * inner->size &&
         outer->out == inner->out * inner->size;
}

static void collapse(vt_dims *list) {
  int32_t kept = 0;
  for (int32_t i = 1; i < list->count; i++) {
    if (joins(&list->at[kept], &list->at[i])) {
      int64_t size = list->at[kept].size * list->at[i].size;
      list->at[kept] = list->at[i];
      list->at[kept].size = size;
    } else {
      list->at[++kept] = list->at[i];
    }
  }
  if (list->count) list->count = kept + 1;
}

// K may be summed in any order: the side's memory order lets most dimensions merge.
static void sort_k(vt_dims *list, bool by_lhs) {
  for (int32_t i = 1; i < list->count; i++)
    for (int32_t j = i; j > 0; j--) {
      vt_dim *a = &list->at[j - 1], *b = &list->at[j];
      if (by_lhs ? a->lhs >= b->lhs : a->rhs >= b->rhs) break;
      vt_dim t = *a;
      *a = *b;
      *b = t;
    }
}

static bool listed(const int64_t *list, uint32_t count, int64_t d) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == d) return true;
  return false;
}

// Strides of the dot's result; `transpose` (or NULL) says in which order its dimensions are
// written.
static void result_strides(const vt_op *op, const vt_op *transpose, int64_t *strides) {
  if (!transpose) {
    vt_type_strides(op->results[0].type, strides);
    return;
  }
  int64_t written[VT_MAX_RANK];
  vt_type type = transpose->results[0].type;
  const int64_t *permutation = vt_attr_ints(transpose, VT_ATTR_PERMUTATION, NULL);
  vt_type_strides(type, written);
  for (int32_t d = 0; d < type.rank; d++) strides[permutation[d]] = written[d];
}

static void read_dot(const vt_op *op, const vt_op *transpose, vt_contraction *c) {
  vt_type lhs = op->operands[0]->type, rhs = op->operands[1]->type;
  uint32_t batch_count, k_count;
  const int64_t *lb = vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batch_count);
  const int64_t *rb = vt_attr_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, NULL);
  const int64_t *lk = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &k_count);
  const int64_t *rk = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, NULL);
  int64_t ls[VT_MAX_RANK], rs[VT_MAX_RANK], os[VT_MAX_RANK];
  vt_type_strides(lhs, ls);
  vt_type_strides(rhs, rs);
  result_strides(op, transpose, os);
  *c = (vt_contraction){0};
  int32_t o = 0;
  for (uint32_t i = 0; i < batch_count; i++, o++)
    vt_dims_push(&c->batch, lhs.dims[lb[i]], ls[lb[i]], rs[rb[i]], os[o]);
  for (int32_t d = 0; d < lhs.rank; d++)
    if (!listed(lb, batch_count, d) && !listed(lk, k_count, d)) {
      vt_dims_push(&c->m, lhs.dims[d], ls[d], 0, os[o]);
      o++;
    }
  for (int32_t d = 0; d < rhs.rank; d++)
    if (!listed(rb, batch_count, d) && !listed(rk, k_count, d)) {
      vt_dims_push(&c->n, rhs.dims[d], 0, rs[d], os[o]);
      o++;
    }
  for (uint32_t i = 0; i < k_count; i++)
    vt_dims_push(&c->k, lhs.dims[lk[i]], ls[lk[i]], rs[rk[i]], 0);
}

static int64_t size_of(const vt_dims *list) {
  return list->count ? list->at[0].size : 1;
}

static bool k_is_one(const vt_dims *k, bool of_lhs) {
  for (int32_t i = 1; i < k->count; i++) {
    const vt_dim *a = &k->at[i - 1], *b = &k->at[i];
    if (of_lhs ? a->lhs != b->lhs * b->size : a->rhs != b->rhs * b->size) return false;
  }
  return true;
}

// Lays out one side densely as [batch, rows, columns] in scratch; rows and columns are M and K, or
// K and N.
static void pack_side(vt_contraction *c, bool of_lhs, vt_dtype from, operand *side) {
  int64_t stride = 1;
  vt_dims *order[] = {&c->batch, of_lhs ? &c->m : &c->k, of_lhs ? &c->k : &c->n};
  side->packed = true;
  side->pack = (vt_pack){.from = from, .to = side->dtype};
  for (int32_t l = 2; l >= 0; l--)
    for (int32_t i = order[l]->count; i-- > 0;) {
      vt_dim *d = &order[l]->at[i];
      int64_t *place = of_lhs ? &d->lhs : &d->rhs;
      if (*place == 0) continue; // a broadcast: one copy serves all
      vt_pack_add(&side->pack, d->size, *place, stride);
      *place = stride;
      stride *= d->size;
    }
  side->bytes = stride * (int64_t)vt_dtype_bytes(side->dtype);
  vt_pack_finish(&side->pack);
}

// Moves all but one dimension each of M and N to the batch.
static bool spill(vt_contraction *c) {
  while (c->m.count > 1) {
    int32_t least = 0;
    for (int32_t i = 1; i < c->m.count; i++)
      if (c->m.at[i].size < c->m.at[least].size) least = i;
    vt_dims_push(&c->batch, c->m.at[least].size, c->m.at[least].lhs, 0, c->m.at[least].out);
    memmove(&c->m.at[least], &c->m.at[least + 1],
            sizeof(vt_dim) * (size_t)(c->m.count - least - 1));
    c->m.count--;
  }
  while (c->n.count > 1) { // the dense one stays
    int32_t spilled = c->n.at[0].out == 1;
    vt_dims_push(&c->batch, c->n.at[spilled].size, 0, c->n.at[spilled].rhs, c->n.at[spilled].out);
    memmove(&c->n.at[spilled], &c->n.at[spilled + 1],
            sizeof(vt_dim) * (size_t)(c->n.count - spilled - 1));
    c->n.count--;
  }
  return c->batch.count <= MAX_BATCH;
}

// Strides of size-1 dimensions are arbitrary; oneDNN expects those of a dense matrix.
static void set_strides(operand *side, const vt_dims *rows, const vt_dims *columns, bool of_lhs) {
  int64_t r = rows->count ? of_lhs ? rows->at[0].lhs : rows->at[0].rhs : 0;
  int64_t c = columns->count ? of_lhs ? columns->at[0].lhs : columns->at[0].rhs : 0;
  if (!columns->count) c = r == 1 ? size_of(rows) : 1;
  if (!rows->count) r = c == 1 ? size_of(columns) : 1;
  side->rows = r;
  side->columns = c;
}

static double products_of(const vt_contraction *c) {
  double products = 1;
  const vt_dims *lists[] = {&c->batch, &c->m, &c->n, &c->k};
  for (int l = 0; l < 4; l++)
    for (int32_t i = 0; i < lists[l]->count; i++) products *= (double)lists[l]->at[i].size;
  return products;
}

// Weights that may be kept from run to run (plan_keep.c) are laid out once, in the primitive's
// preferred layout.
static bool wants_blocks(const vt_contraction *c, const dot_body *body, bool kept,
                         bool compile_all) {
  if (!kept || !vt_host_fast_bf16() || body->sides[1].dtype != VT_BF16 || c->batch.count)
    return false;
  return size_of(&c->n) * size_of(&c->k) >= (compile_all ? 1 : 1 << 16);
}

// bf16 products with AMX run in amx.c, unless a kept weight is in oneDNN's preferred layout.
static bool make_own(const vt_contraction *c, dot_body *body, bool bias, vt_dtype out,
                     bool any_size) {
  if (body->sides[0].dtype != VT_BF16 || body->sides[1].dtype != VT_BF16) return false;
  vt_amx_product *p = &body->product;
  *p = (vt_amx_product){.batch_rank = c->batch.count,
                        .m = size_of(&c->m),
                        .n = size_of(&c->n),
                        .k = size_of(&c->k),
                        .lhs_row = body->sides[0].rows,
                        .lhs_column = body->sides[0].columns,
                        .rhs_row = body->sides[1].rows,
                        .rhs_column = body->sides[1].columns,
                        .out_row = c->m.count ? c->m.at[0].out : size_of(&c->n),
                        .out = out,
                        .bias = bias};
  for (int32_t i = 0; i < c->batch.count; i++) {
    const vt_dim *d = &c->batch.at[i];
    p->batch_sizes[i] = d->size;
    p->batch_strides[0][i] = d->lhs, p->batch_strides[1][i] = d->rhs;
    p->batch_strides[2][i] = d->out;
  }
  return vt_amx_prepare(p, any_size);
}

// f32 products with AVX2 run in panels.c.
static bool make_panels(const vt_contraction *c, dot_body *body, const vt_panels *given,
                        bool any_size) {
  if (body->sides[0].dtype != VT_F32 || body->sides[1].dtype != VT_F32 || c->batch.count)
    return false;
  vt_panels *p = &body->panels;
  *p = *given;
  p->m = size_of(&c->m), p->n = size_of(&c->n), p->k = size_of(&c->k);
  p->lhs_row = body->sides[0].rows, p->lhs_column = body->sides[0].columns;
  p->rhs_row = body->sides[1].rows, p->rhs_column = body->sides[1].columns;
  p->out_row = c->m.count ? c->m.at[0].out : p->n;
  if (!vt_panels_prepare(p, any_size)) return false;
  body->blocked = true;
  body->blocked_bytes = p->rhs_bytes;
  return true;
}

// bf16 products of a few rows with kept weights run in few_rows.c.
static bool make_few_rows(const vt_contraction *c, dot_body *body, bool bias, vt_dtype out) {
  if (body->sides[0].dtype != VT_BF16) return false;
  int64_t n = size_of(&c->n);
  body->rows = (vt_few_rows){.m = size_of(&c->m),
                             .n = n,
                             .k = size_of(&c->k),
                             .lhs_row = body->sides[0].rows,
                             .lhs_column = body->sides[0].columns,
                             .rhs_row = body->sides[1].rows,
                             .rhs_column = body->sides[1].columns,
                             .out_row = c->m.count ? c->m.at[0].out : n,
                             .out = out,
                             .bias = bias};
  if (!vt_few_rows_prepare(&body->rows)) return false;
  body->blocked = true;
  body->blocked_bytes = body->rows.rhs_bytes;
  return true;
}

static bool make_matmul(vt_plan *plan, const vt_contraction *c, dot_body *body,
                        const vt_panels *panels, vt_dtype out) {
  bool bias = panels->bias, kept = panels->kept, any = plan->program->options.compile_all;
  body->own = !kept && make_own(c, body, bias, out, any);
  body->blocked = false;
  body->paneled = !body->own && out == VT_F32 && make_panels(c, body, panels, any);
  body->few = wants_blocks(c, body, kept, any) && make_few_rows(c, body, bias, out);
  if (body->own || body->paneled || body->few) return true;
  int32_t rank = c->batch.count + 2;
  dnnl_dims_t dims_[3], strides[3];
  for (int32_t i = 0; i < c->batch.count; i++) {
    const vt_dim *d = &c->batch.at[i];
    dims_[0][i] = d->lhs ? d->size : 1;
    dims_[1][i] = d->rhs ? d->size : 1;
    dims_[2][i] = d->size;
    int64_t given[3] = {d->lhs, d->rhs, d->out};
    for (int t = 0; t < 3; t++) strides[t][i] = given[t];
  }
  int64_t m = size_of(&c->m), n = size_of(&c->n), k = size_of(&c->k);
  int64_t out_row = c->m.count ? c->m.at[0].out : n;
  int64_t inner[3][4] = {{m, k, body->sides[0].rows, body->sides[0].columns},
                         {k, n, body->sides[1].rows, body->sides[1].columns},
                         {m, n, out_row, 1}};
  dnnl_memory_desc_t md[3];
  vt_dtype types[3] = {body->sides[0].dtype, body->sides[1].dtype, out};
  for (int t = 0; t < 3; t++) {
    dims_[t][rank - 2] = inner[t][0];
    dims_[t][rank - 1] = inner[t][1];
    strides[t][rank - 2] = inner[t][2];
    strides[t][rank - 1] = inner[t][3];
    for (int32_t i = 0; i < c->batch.count;
         i++) // a broadcast dimension of size 1 needs a valid stride
      if (strides[t][i] == 0)
        strides[t][i] = inner[t][0] * inner[t][2] > inner[t][1] * inner[t][3]
                            ? inner[t][0] * inner[t][2]
                            : inner[t][1] * inner[t][3];
    if (dnnl_memory_desc_init_by_strides(&md[t], rank, dims_[t], vt_dnnl_dtype(types[t]),
                                         strides[t]))
      return false;
  }
  dnnl_matmul_desc_t desc;
  dnnl_memory_desc_t bias_md;
  dnnl_dims_t bias_dims, bias_strides;
  for (int32_t i = 0; i < rank; i++)
    bias_dims[i] = i == rank - 1 ? n : 1, bias_strides[i] = i == rank - 1 ? 1 : n;
  if (dnnl_memory_desc_init_by_strides(&bias_md, rank, bias_dims, dnnl_f32, bias_strides))
    return false;
  static const int ids[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
  if (dnnl_matmul_desc_init(&desc, &md[0], &md[1], bias ? &bias_md : NULL, &md[2]) != dnnl_success)
    return false;
  body->blocked = wants_blocks(c, body, kept, plan->program->options.compile_all);
  if (body->blocked) desc.weights_desc.format_kind = dnnl_format_kind_any;
  if (!vt_dnnl_make(plan->program, &desc, NULL, NULL, false, products_of(c), bias ? 4 : 3, ids,
                    &body->call))
    return false;
  if (!body->blocked) return true;
  const dnnl_memory_desc_t *wanted = vt_dnnl_arg_desc(&body->call, 1);
  body->blocked = !dnnl_memory_desc_equal(&md[1], wanted);
  body->blocked_bytes = (int64_t)dnnl_memory_desc_get_size(wanted);
  return !body->blocked || vt_dnnl_make_reorder(plan->program, &md[1], wanted, &body->reorder);
}

static bool has_dense(const vt_dims *list) {
  for (int32_t i = 0; i < list->count; i++)
    if (list->at[i].out == 1) return true;
  return false;
}

static void swap_sides(vt_contraction *c) {
  vt_dims m = c->m;
  c->m = c->n;
  c->n = m;
  vt_dims *lists[] = {&c->batch, &c->m, &c->n, &c->k};
  for (int l = 0; l < 4; l++)
    for (int32_t i = 0; i < lists[l]->count; i++) {
      vt_dim *d = &lists[l]->at[i];
      int64_t lhs = d->lhs;
      d->lhs = d->rhs;
      d->rhs = lhs;
    }
}

// oneDNN writes rows: the result must be dense along N. Swaps the sides when it is along M; false
// when along neither.
static bool orient(vt_contraction *c, bool *out_swapped) {
  *out_swapped = c->n.count && !has_dense(&c->n) && has_dense(&c->m);
  if (*out_swapped) swap_sides(c);
  return !c->n.count || has_dense(&c->n);
}

// True when all the numbers of an f32 or bf16 array are numbers of bf16.
static bool holds_bf16(const vt_value *value) {
  while (value->type.dtype == VT_F32 && value->op) {
    const vt_op *op = value->op;
    if (op->code == VT_OP_REDUCE_PRECISION)
      return vt_attr_i64(op, VT_ATTR_EXPONENT_BITS) <= 8 &&
             vt_attr_i64(op, VT_ATTR_MANTISSA_BITS) <= 7;
    bool moves = op->code == VT_OP_CONVERT || op->code == VT_OP_TRANSPOSE ||
                 op->code == VT_OP_RESHAPE || op->code == VT_OP_SLICE;
    if (!moves) return false;
    value = op->operands[0];
  }
  return value->type.dtype == VT_BF16;
}

// Prepares the matmul; with `pack_all`, from packed operands.
static bool prepare_sides(vt_plan *plan, vt_step *step, const vt_contraction *given, dot_body *body,
                          const vt_dtype *seen, bool round, bool pack_all) {
  const vt_op *op = step->op;
  vt_contraction c = *given;
  if (!orient(&c, &body->swapped)) return false;
  vt_value *const operands[2] = {op->operands[body->swapped], op->operands[!body->swapped]};
  collapse(&c.batch);
  collapse(&c.m);
  collapse(&c.n);
  sort_k(&c.k, true);
  if (!k_is_one(&c.k, true) || !k_is_one(&c.k, false)) {
    vt_contraction other = c;
    sort_k(&other.k, false);
    bool small_lhs = vt_type_elements(operands[0]->type) <= vt_type_elements(operands[1]->type);
    if (small_lhs && k_is_one(&other.k, false)) c = other;
  }
  for (int s = 0; s < 2; s++) {
    operand *side = &body->sides[s];
    vt_dtype from = operands[s]->type.dtype;
    *side = (operand){.dtype = seen[s]};
    const vt_dims *free = s ? &c.n : &c.m;
    int64_t k_inner = c.k.count ? s ? c.k.at[c.k.count - 1].rhs : c.k.at[c.k.count - 1].lhs : 1;
    int64_t free_inner = 1;
    if (free->count) free_inner = s ? free->at[free->count - 1].rhs : free->at[free->count - 1].lhs;
    if (pack_all || round || from != seen[s] || !k_is_one(&c.k, s == 0) ||
        (k_inner != 1 && free_inner != 1))
      pack_side(&c, s == 0, from, side);
    side->pack.round = round && seen[s] == VT_F32;
  }
  collapse(&c.m);
  collapse(&c.n);
  collapse(&c.k);
  bool bias = step->input_count == 3;
  if (bias && body->swapped) return false;
  if (bias && (c.n.count > 1 || vt_type_elements(step->inputs[2]->type) != size_of(&c.n)))
    return false;
  if (c.k.count > 1 || !spill(&c)) return false;
  set_strides(&body->sides[0], &c.m, &c.k, true);
  set_strides(&body->sides[1], &c.k, &c.n, false);
  vt_panels panels = {.bias = bias,
                      .kept = vt_keep_likely(plan, operands[1]),
                      .bf16 = body->sides[1].pack.round || holds_bf16(operands[1])};
  return make_matmul(plan, &c, body, &panels,
                     body->converts_result ? VT_F32 : step->outputs[0]->type.dtype);
}

static vt_status run_dot(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                         uint32_t count) {
  (void)exec;
  const dot_body *body = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    char *scratch = step->scratch_bytes ? slots[step->scratch_slot] : NULL;
    void *data[4];
    const vt_kept *kept = step->kept;
    bool ready = kept && kept->ready;
    for (int s = 0; s < 2; s++) {
      const operand *side = &body->sides[s];
      data[s] = slots[step->input_slots[body->swapped ? 1 - s : s]];
      if (!side->packed || (s == 1 && ready)) continue;
      vt_pack_run(&side->pack, data[s], scratch + side->offset);
      data[s] = scratch + side->offset;
    }
    if (body->blocked) {
      void *ways[2] = {data[1],
                       kept && kept->memory ? kept->memory : scratch + body->blocked_offset};
      if (!ready && body->paneled)
        vt_panels_lay(&body->panels, ways[0], ways[1]);
      else if (!ready && body->few)
        vt_few_rows_lay(&body->rows, ways[0], ways[1]);
      else if (!ready)
        VT_TRY(vt_step_wrap(
            step, vt_dnnl_execute(&body->reorder, ways, scratch + body->reorder_pad_offset)));
      data[1] = ways[1];
    }
    char *result = slots[step->output_slots[0]];
    data[2] = body->moves_result ? scratch + body->result_offset : result;
    if (step->input_count == 3) data[3] = slots[step->input_slots[2]];
    if (body->own)
      vt_amx_run(&body->product, data[0], data[1], step->input_count == 3 ? data[3] : NULL, data[2],
                 scratch + body->scratchpad_offset);
    else if (body->paneled)
      vt_panels_run(&body->panels, data[0], data[1], step->input_count == 3 ? data[3] : NULL,
                    data[2], scratch + body->scratchpad_offset);
    else if (body->few)
      vt_few_rows_run(&body->rows, data[0], data[1], step->input_count == 3 ? data[3] : NULL,
                      data[2], scratch + body->scratchpad_offset);
    else
      VT_TRY(
          vt_step_wrap(step, vt_dnnl_execute(&body->call, data,
                                             scratch ? scratch + body->scratchpad_offset : NULL)));
    if (body->moves_result) vt_pack_run(&body->result, data[2], result);
  }
  return VT_OK;
}

// The element types that the matmul works on; false when oneDNN cannot run it. bf16 products take K
// in pairs. For odd K some layouts fill the last pair with a neighbouring element times zero, which
// is NaN if that is an infinity: short odd K is multiplied in f32.
static bool choose_types(const vt_step *step, const vt_contraction *c, vt_dtype *seen,
                         bool *out_converts) {
  vt_dtype lhs = step->inputs[0]->type.dtype, rhs = step->inputs[1]->type.dtype,
           out = step->outputs[0]->type.dtype;
  *out_converts = false;
  if (!vt_dnnl_takes(lhs) || !vt_dnnl_takes(rhs) || !vt_dnnl_takes(out)) return false;
  int64_t k = size_of(&c->k);
  bool pairs = k % 2 == 0 || k > MAX_ODD_K;
  bool both_bf16 = lhs == VT_BF16 && rhs == VT_BF16 && pairs && vt_host_fast_bf16();
  seen[0] = seen[1] = both_bf16 ? VT_BF16 : VT_F32;
  *out_converts = out == VT_BF16 && !both_bf16;
  return true;
}

bool vt_rounds_operands(const vt_plan *plan, const vt_op *op) {
  return !plan->program->options.exact_dots && vt_op_rounds_operands(op);
}

static vt_contraction collapsed(const vt_contraction *given, bool k_by_lhs) {
  vt_contraction c = *given;
  sort_k(&c.k, k_by_lhs);
  collapse(&c.m);
  collapse(&c.n);
  collapse(&c.k);
  return c;
}

static bool step_gemv(vt_plan *plan, vt_step *step, const vt_contraction *given) {
  int64_t m = 1, n = 1;
  for (int32_t i = 0; i < given->m.count; i++) m *= given->m.at[i].size;
  for (int32_t i = 0; i < given->n.count; i++) n *= given->n.at[i].size;
  vt_contraction c = collapsed(given, m >= n); // K in the matrix's order
  return vt_step_gemv(plan, step, &c);
}

// True when the result's innermost dimension is too short for rows along it to be worth a matmul:
// the channels of resized images.
static bool is_narrow(const vt_contraction *c) {
  const vt_dims *lists[] = {&c->m, &c->n};
  int64_t inner = 0, elements = 1;
  for (int l = 0; l < 2; l++)
    for (int32_t i = 0; i < lists[l]->count; i++) {
      elements *= lists[l]->at[i].size;
      if (lists[l]->at[i].out == 1) inner = lists[l]->at[i].size;
    }
  return inner && inner < NARROW && elements >= MIN_MOVED && c->m.count + c->n.count > 2;
}

// Writes the product densely as [batch, m, n]; a copy then puts it into the result's order.
static void write_in_order(vt_contraction *c, vt_pack *result) {
  vt_dims *lists[] = {&c->batch, &c->m, &c->n};
  int64_t stride = 1;
  for (int l = 0; l < 3; l++)
    for (int32_t i = 0; i < lists[l]->count; i++) stride *= lists[l]->at[i].size;
  for (int l = 0; l < 3; l++)
    for (int32_t i = 0; i < lists[l]->count; i++) {
      vt_dim *d = &lists[l]->at[i];
      stride /= d->size;
      vt_pack_add(result, d->size, stride, d->out);
      d->out = stride;
    }
}

bool vt_step_contraction(vt_plan *plan, vt_step *step, const vt_contraction *c) {
  const vt_op *op = step->op;
  vt_dtype seen[2];
  bool converts;
  if (!choose_types(step, c, seen, &converts)) return false;
  if (products_of(c) <= (plan->program->options.compile_all ? 0 : SMALL_DOT)) return false;
  bool round = vt_rounds_operands(plan, op);
  if (!round && step_gemv(plan, step, c)) return true;
  vt_contraction order = *c;
  bool swapped = false;
  if (!round && orient(&order, &swapped)) {
    order = collapsed(&order, true);
    if (vt_step_strip_matmul(plan, step, &order, swapped)) return true;
  }
  dot_body *body = VT_NEW(&plan->program->arena, dot_body);
  vt_dtype out = step->outputs[0]->type.dtype;
  order = *c;
  bool narrow = step->input_count == 2 && is_narrow(c);
  body->converts_result = converts;
  body->moves_result = converts || narrow;
  body->result = (vt_pack){.from = converts ? VT_F32 : out, .to = out};
  if (narrow) write_in_order(&order, &body->result);
  if ((narrow || !prepare_sides(plan, step, &order, body, seen, round, false)) &&
      !prepare_sides(plan, step, &order, body, seen, round, true))
    return false;
  for (int s = 0; s < 2; s++)
    if (body->sides[s].packed) body->sides[s].offset = vt_step_reserve(step, body->sides[s].bytes);
  if (body->moves_result) {
    int64_t elements = vt_type_elements(op->results[0].type);
    if (!narrow) vt_pack_add(&body->result, elements, 1, 1);
    vt_pack_finish(&body->result);
    body->result_offset =
        vt_step_reserve(step, elements * (int64_t)vt_dtype_bytes(body->result.from));
  }
  if (body->blocked) {
    body->blocked_offset = vt_step_reserve(step, body->blocked_bytes);
    step->weights_input = body->swapped ? 0 : 1;
    step->weights_bytes = body->paneled && !body->panels.kept ? 0 : body->blocked_bytes;
  }
  if (body->blocked && !body->paneled && !body->few && body->reorder.scratchpad_bytes)
    body->reorder_pad_offset = vt_step_reserve(step, body->reorder.scratchpad_bytes);
  int64_t scratchpad = body->own       ? body->product.scratch_bytes
                       : body->paneled ? body->panels.lhs_bytes
                       : body->few     ? body->rows.lhs_bytes
                                       : body->call.scratchpad_bytes;
  if (scratchpad) body->scratchpad_offset = vt_step_reserve(step, scratchpad);
  step->body = body;
  step->run = run_dot;
  step->runner = body->own ? "amx" : body->paneled ? "panels" : body->few ? "rows" : "onednn";
  // The numbers of computed weights are gone where only what was laid out of them is kept.
  bool there = !step->weights_bytes || !step->inputs[step->weights_input]->op;
  if (!round && there) {
    order = collapsed(c, true);
    vt_step_sparse(plan, step, &order, plan->program->options.compile_all);
  }
  return true;
}

bool vt_step_dot(vt_plan *plan, vt_step *step, const vt_op *transpose) {
  vt_contraction c;
  read_dot(step->op, transpose, &c);
  return vt_step_contraction(plan, step, &c);
}
