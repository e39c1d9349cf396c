// SPDX-License-Identifier: Apache-2.0
// mosaic_host.c - see mosaic_host.h: plans, products and code of each kernel, on the store of code
// that src/host keeps.
#include "mosaic_host/mosaic_host.h"

#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "base/array.h"
#include "host/host.h"
#include "host/kernel.h"
#include "mosaic_host/kernel.h"

typedef struct kernel {
  vt_mcode code; // first
  vt_kplan plan;
  vt_mcode_fn **funcs;
} kernel;

struct vt_mkernels {
  vt_arena arena;
  vt_jit *jit;
  bool exact_dots, all;
  VT_ARRAY(kernel *) made;
};

typedef struct source {
  const kernel *kernel;
  const vt_mfunc *func;
} source;

static void put_key(const void *user, const vt_target *target, vt_text *out) {
  const source *s = user;
  const vt_mosaic *m = s->kernel->plan.kernel;
  vt_text_printf(out,
                 "mosaic %016llx%016llx %d %d lanes %d fma %d:", (unsigned long long)m->hash[0],
                 (unsigned long long)m->hash[1], (int)(s->func - m->funcs),
                 s->kernel->plan.exact_dots, target->lanes, target->fma);
  for (uint32_t i = 0; i < s->kernel->plan.product_count; i++) {
    const vt_kproduct *q = &s->kernel->plan.products[i];
    vt_text_printf(out, " %d%d%d%d", q->tiled, q->own, q->paneled, q->sides[0].dtype == VT_BF16);
  }
}

static void put_code(vt_emitter *e, const void *user, const char *name) {
  const source *s = user;
  vt_kernel_emit(e, &s->kernel->plan, s->func, name);
}

// ---- what code asks for -------------------------------------------------------------------------

static vt_status open_products(const vt_mcode *code, void **out_state) {
  const kernel *k = (const kernel *)code;
  return vt_kproducts_open(k->plan.products, k->plan.product_count, out_state);
}

// Threads take the next shares when they are done with theirs: some at a time, as neighbours often
// read the same operands. A single share is not the work of a team: its products may have one then,
// with threads that stay.
static void spread(int32_t count, void (*task)(void *user, int32_t i, int32_t thread), void *user) {
  if (count == 1) {
    task(user, 0, 0);
    return;
  }
  int chunk = count / (4 * omp_get_max_threads());
  if (chunk < 1) chunk = 1;
#pragma omp parallel for schedule(dynamic, chunk)
  for (int32_t i = 0; i < count; i++) task(user, i, omp_get_thread_num());
}

static int32_t threads(void) {
  return omp_get_max_threads();
}

// ---- is it worth it -----------------------------------------------------------------------------

enum { SMALL_WORK = 64 << 10 }; // elements computed, as in host.c
enum { TURNS = 16 };            // of a loop, or of a dimension of the grid whose size is not known

static double block_work(const vt_mblock *block) {
  double work = 0;
  for (const vt_mop *op = block->first; op; op = op->next) {
    bool loops = op->code == VT_MOP_FOR || op->code == VT_MOP_WHILE;
    double inner = 0, each = op->result_count ? 0 : 1;
    for (uint32_t b = 0; b < op->block_count; b++) inner += block_work(op->blocks[b]);
    work += loops ? TURNS * inner : inner;
    for (uint32_t i = 0; i < op->result_count; i++)
      if (op->results[i].type.kind != VT_MREF) each += (double)vt_mcount(op->results[i].type);
    if (op->code == VT_MOP_MATMUL) each *= (double)op->operands[0]->type.dims[0];
    work += each;
  }
  return work;
}

// About how many elements the kernel computes.
static double work_of(const vt_mosaic *k) {
  double work = block_work(k->body->block);
  for (uint32_t d = 0; d < k->grid_rank; d++)
    work *= k->grid[d] == INT64_MIN ? TURNS : (double)k->grid[d];
  return work;
}

// ---- making -------------------------------------------------------------------------------------

static bool make_products(kernel *k) {
  bool good = true;
  for (uint32_t i = 0; i < k->plan.product_count; i++)
    good = good && (k->plan.products[i].tiled || k->plan.products[i].own ||
                    vt_kproduct_make(&k->plan.products[i]));
  return good;
}

static vt_status compile_kernel(vt_mkernels *kernels, kernel *k) {
  const vt_mosaic *m = k->plan.kernel;
  uint32_t count = m->func_count;
  vt_group *groups = VT_NEW_ARRAY(&kernels->arena, vt_group, count);
  const vt_group **listed = VT_NEW_ARRAY(&kernels->arena, const vt_group *, count);
  vt_kernel **made = VT_NEW_ARRAY(&kernels->arena, vt_kernel *, count);
  for (uint32_t i = 0; i < count; i++) {
    source *s = VT_NEW(&kernels->arena, source);
    vt_code_source *code = VT_NEW(&kernels->arena, vt_code_source);
    *s = (source){k, &m->funcs[i]};
    *code = (vt_code_source){.key = put_key, .emit = put_code, .user = s};
    groups[i].fused = true;
    groups[i].source = code;
    listed[i] = &groups[i];
  }
  VT_TRY(vt_jit_compile(kernels->jit, listed, count, made));
  k->funcs = VT_NEW_ARRAY(&kernels->arena, vt_mcode_fn *, count);
  for (uint32_t i = 0; i < count; i++)
    k->funcs[i] = (vt_mcode_fn *)(uintptr_t)vt_kernel_code(made[i]);
  return VT_OK;
}

static vt_status make_kernel(void *user, vt_mosaic *m) {
  vt_mkernels *kernels = user;
  if (m->code || (!kernels->all && work_of(m) < SMALL_WORK)) return VT_OK;
  kernel *k = VT_NEW(&kernels->arena, kernel);
  k->plan = (vt_kplan){.kernel = m, .exact_dots = kernels->exact_dots, .arena = &kernels->arena};
  if (!vt_kplan_make(&k->plan)) return VT_OK;
  vt_array_push(&kernels->made, k);
  if (!make_products(k)) return VT_OK;
  if (!kernels->jit) VT_TRY(vt_jit_create(&kernels->jit));
  VT_TRY(compile_kernel(kernels, k));
  k->code = (vt_mcode){.funcs = k->funcs,
                       .memory_bytes = k->plan.memory_bytes,
                       .free_dims = k->plan.free_dims,
                       .asks = k->plan.asks,
                       .kept_inputs = k->plan.kept_inputs,
                       .strided_inputs = k->plan.strided_inputs,
                       .filled = k->plan.filled,
                       .last_results = k->plan.last_results,
                       .product = vt_kproduct_run,
                       .product_lay = vt_kproduct_lay,
                       .product_rows = vt_kproduct_rows,
                       .open = open_products,
                       .close = vt_kproducts_close,
                       .spread = spread,
                       .threads = threads,
                       .alloc = vt_host_alloc,
                       .release = vt_host_free};
  m->code = &k->code;
  return VT_OK;
}

vt_status vt_mkernels_compile(const vt_module *module, bool exact_dots, bool all,
                              vt_mkernels **out_kernels) {
  vt_mkernels *kernels = *out_kernels = calloc(1, sizeof *kernels);
  if (!kernels) return vt_error_no_memory();
  kernels->exact_dots = exact_dots;
  kernels->all = all;
  return vt_mosaic_each(module, make_kernel, kernels);
}

void vt_mkernels_destroy(vt_mkernels *kernels) {
  if (!kernels) return;
  for (size_t i = 0; i < kernels->made.size; i++)
    for (uint32_t p = 0; p < kernels->made.data[i]->plan.product_count; p++)
      vt_kproduct_free(&kernels->made.data[i]->plan.products[p]);
  vt_array_free(&kernels->made);
  vt_jit_destroy(kernels->jit);
  vt_arena_free(&kernels->arena);
  free(kernels);
}

int64_t vt_mkernels_code_bytes(const vt_mkernels *kernels) {
  return kernels ? vt_jit_code_bytes(kernels->jit) : 0;
}
