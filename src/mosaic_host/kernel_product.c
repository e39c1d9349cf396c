// SPDX-License-Identifier: Apache-2.0
// kernel_product.c - matrix products of kernels: those that are not kernel_tiles.c's or
// kernel_dot.c's by src/host/panels.c, of f32 on AVX2, and by oneDNN. Where the threads run other
// points of the grid a product has one thread, else those of panels.c share it. The order of sums
// depends on the sizes alone.
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "host/dnnl_util.h"
#include "host/panels.h"
#include "mosaic_host/kernel_product.h"

typedef struct primitive {
  bool paneled;
  vt_panels panels;
  dnnl_primitive_t call; // else
  dnnl_memory_desc_t sides[3], pad;
  int64_t pad_bytes;
  int64_t batch, steps[3]; // bytes from one product of the batch to the next
} primitive;

static int64_t align(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static bool make_desc(int64_t rows, int64_t columns, int64_t row, int64_t column, vt_dtype dtype,
                      dnnl_memory_desc_t *out) {
  dnnl_dims_t dims = {rows, columns}, strides = {row, column};
  return dnnl_memory_desc_init_by_strides(out, 2, dims, vt_dnnl_dtype(dtype), strides) ==
         dnnl_success;
}

// The product is added to what its place holds.
static bool add_sum(dnnl_primitive_attr_t attr) {
  dnnl_post_ops_t ops = NULL;
  bool good = dnnl_post_ops_create(&ops) == dnnl_success &&
              dnnl_post_ops_append_sum(ops, 1) == dnnl_success &&
              dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
  if (ops) dnnl_post_ops_destroy(ops);
  return good;
}

static bool make_primitive(const dnnl_matmul_desc_t *desc, bool adds, primitive *out) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t pd = NULL;
  const char *info = NULL;
  if (!vt_dnnl_engine() || dnnl_primitive_attr_create(&attr) != dnnl_success) return false;
  dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  bool made = (!adds || add_sum(attr)) &&
              dnnl_primitive_desc_create(&pd, desc, attr, vt_dnnl_engine(), NULL) == dnnl_success &&
              dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info) == dnnl_success &&
              !strstr(info, "ref") && dnnl_primitive_create(&out->call, pd) == dnnl_success;
  omp_set_num_threads(threads);
  if (made) {
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    out->pad_bytes = pad ? (int64_t)dnnl_memory_desc_get_size(pad) : 0;
    if (out->pad_bytes) out->pad = *pad;
  }
  if (pd) dnnl_primitive_desc_destroy(pd);
  dnnl_primitive_attr_destroy(attr);
  return made;
}

static bool make_panels(const vt_kproduct *q, primitive *p) {
  const vt_kside *a = &q->sides[0], *b = &q->sides[1];
  if (!q->paneled) return false;
  p->panels = (vt_panels){.m = q->m,
                          .n = q->n,
                          .k = q->k,
                          .lhs_row = a->rows,
                          .lhs_column = a->columns,
                          .rhs_row = b->rows,
                          .rhs_column = b->columns,
                          .out_row = q->row,
                          .adds = q->adds,
                          .from = {a->dtype, b->dtype}};
  p->paneled = vt_panels_prepare(&p->panels, false);
  p->pad_bytes = align(p->panels.rhs_bytes) + p->panels.lhs_bytes;
  return p->paneled;
}

static bool make_call(const vt_kproduct *q, primitive *p) {
  const vt_kside *a = &q->sides[0], *b = &q->sides[1];
  dnnl_matmul_desc_t desc;
  return make_desc(q->m, q->k, a->rows, a->columns, a->dtype, &p->sides[0]) &&
         make_desc(q->k, q->n, b->rows, b->columns, b->dtype, &p->sides[1]) &&
         make_desc(q->m, q->n, q->row, 1, VT_F32, &p->sides[2]) &&
         dnnl_matmul_desc_init(&desc, &p->sides[0], &p->sides[1], NULL, &p->sides[2]) ==
             dnnl_success &&
         make_primitive(&desc, q->adds, p);
}

bool vt_kproduct_make(vt_kproduct *q) {
  const vt_kside *a = &q->sides[0], *b = &q->sides[1];
  primitive *p = calloc(1, sizeof *p);
  if (!p) return false;
  if (!make_panels(q, p) && !make_call(q, p)) {
    free(p);
    return false;
  }
  p->batch = q->batch;
  p->steps[0] = a->batch * (int64_t)vt_dtype_bytes(a->dtype);
  p->steps[1] = b->batch * (int64_t)vt_dtype_bytes(b->dtype);
  p->steps[2] = q->m * q->row * 4;
  q->primitive = p;
  return true;
}

void vt_kproduct_free(vt_kproduct *q) {
  primitive *p = q->primitive;
  if (p && p->call) dnnl_primitive_destroy(p->call);
  free(p);
  q->primitive = NULL;
}

// ---- running ------------------------------------------------------------------------------------

enum { LHS, RHS, OUT, PAD, ARGS };

typedef struct call {
  const vt_kproduct *product;
  void *pad;        // of a tiled product its own: right sides of several are laid out at a time
  const void *laid; // the block of an operand that the right side in it is, and its strides
  int64_t laid_rows, laid_columns;
  const primitive *p;
  dnnl_exec_arg_t args[ARGS];
} call;

// The memory objects of one machine: an address is set before each product.
typedef struct state {
  uint32_t count;
  dnnl_stream_t stream;
  void *pad;
  call calls[];
} state;

void vt_kproducts_close(void *opened) {
  state *s = opened;
  for (uint32_t i = 0; i < s->count; i++)
    for (int a = 0; a < ARGS; a++)
      if (s->calls[i].args[a].memory) dnnl_memory_destroy(s->calls[i].args[a].memory);
  if (s->stream) dnnl_stream_destroy(s->stream);
  vt_host_free(s->pad);
  free(s);
}

static bool open_call(const vt_kproduct *q, void *pad, call *c) {
  static const int ids[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
  const primitive *p = c->p = q->primitive;
  c->product = q;
  if (!p || p->paneled) return true;
  for (int a = 0; a < ARGS; a++) {
    c->args[a].arg = ids[a];
    if (a == PAD && !p->pad_bytes) continue;
    if (dnnl_memory_create(&c->args[a].memory, a == PAD ? &p->pad : &p->sides[a], vt_dnnl_engine(),
                           a == PAD ? pad : DNNL_MEMORY_NONE) != dnnl_success)
      return false;
  }
  return true;
}

vt_status vt_kproducts_open(const vt_kproduct *products, uint32_t count, void **out_state) {
  state *s = calloc(1, sizeof *s + count * sizeof(call));
  int64_t pad = 0, own = 0;
  if (!s) return vt_error_no_memory();
  *out_state = s;
  s->count = count;
  for (uint32_t i = 0; i < count; i++) {
    const primitive *p = products[i].primitive;
    int64_t bytes = p ? p->pad_bytes : products[i].own ? vt_kdot_pad_bytes(&products[i]) : 0;
    if (bytes > pad) pad = bytes;
    if (products[i].tiled) own += align(vt_ktiles_pad_bytes(&products[i]));
  }
  pad = align(pad);
  if (pad + own && !(s->pad = vt_host_alloc(pad + own))) return vt_error_no_memory();
  char *next = own ? (char *)s->pad + pad : NULL;
  for (uint32_t i = 0; i < count; i++) {
    if (!products[i].tiled) continue;
    s->calls[i].pad = next;
    next += align(vt_ktiles_pad_bytes(&products[i]));
  }
  bool calls = false;
  for (uint32_t i = 0; i < count; i++)
    calls = calls || (products[i].primitive && !((primitive *)products[i].primitive)->paneled);
  if (calls && dnnl_stream_create(&s->stream, vt_dnnl_engine(), dnnl_stream_default_flags))
    return vt_error_no_memory();
  for (uint32_t i = 0; i < count; i++)
    if (!open_call(&products[i], s->pad, &s->calls[i])) return vt_error_no_memory();
  return VT_OK;
}

static void run_panels(const primitive *p, char *const *data, char *pad) {
  char *scratch = pad + align(p->panels.rhs_bytes);
  for (int64_t i = 0; i < p->batch; i++) {
    vt_panels_lay(&p->panels, data[1] + i * p->steps[1], pad);
    vt_panels_run(&p->panels, data[0] + i * p->steps[0], pad, NULL,
                  (float *)(void *)(data[2] + i * p->steps[2]), scratch);
  }
}

int32_t vt_kproduct_run(vt_mmachine *m, uint32_t number, const void *a, const void *b, void *out) {
  state *s = m->products;
  call *c = &s->calls[number];
  const primitive *p = c->p;
  if (c->product->tiled) {
    vt_kproduct here = vt_ktiles_at(m, c->product);
    vt_ktiles_run(&here, a, b, out, c->pad);
    return 0;
  }
  if (c->product->own) {
    vt_kdot_run(c->product, a, b, out, s->pad);
    return 0;
  }
  char *data[3] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b, out};
  if (p->paneled) {
    run_panels(p, data, s->pad);
    return 0;
  }
  dnnl_status_t result = dnnl_success;
  for (int64_t i = 0; i < p->batch && result == dnnl_success; i++) {
    for (int side = 0; side < 3; side++)
      dnnl_memory_set_data_handle(c->args[side].memory, data[side] + i * p->steps[side]);
    result = dnnl_primitive_execute(p->call, s->stream, p->pad_bytes ? ARGS : PAD, c->args);
  }
  if (result == dnnl_success) return 0;
  m->failed =
      vt_error(VT_INTERNAL, "kernel %s: oneDNN reports status %d", m->kernel->name, (int)result);
  return 1;
}

// Blocks of operands stay what they are during the call.
int32_t vt_kproduct_lay(vt_mmachine *m, uint32_t number, const void *b) {
  call *c = &((state *)m->products)->calls[number];
  vt_kproduct here = vt_ktiles_at(m, c->product);
  const vt_kside *s = &here.sides[1];
  const vt_mwindow_state *w = s->window >= 0 ? &m->windows[s->window] : NULL;
  bool in_place = w && w->outside.read_only && w->block_memory != b;
  if (in_place && c->laid == b && c->laid_rows == s->rows && c->laid_columns == s->columns)
    return 0;
  vt_ktiles_lay(&here, b, c->pad);
  c->laid = in_place ? b : NULL;
  c->laid_rows = s->rows;
  c->laid_columns = s->columns;
  return 0;
}

int32_t vt_kproduct_rows(vt_mmachine *m, uint32_t number, const void *a, int64_t row, int64_t rows,
                         void *out) {
  const call *c = &((state *)m->products)->calls[number];
  vt_kproduct here = vt_ktiles_at(m, c->product);
  vt_ktiles_rows(&here, a, row, rows, out, c->pad);
  return 0;
}
