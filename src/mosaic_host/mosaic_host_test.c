// SPDX-License-Identifier: Apache-2.0
// mosaic_host_test.c - the code of each kernel of src/mosaic/fixtures against the interpreter, on
// random numbers; and the same bits whatever the number of threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "eval/eval.h"
#include "host/host.h"
#include "ir/number.h"
#include "mosaic/mosaic_code.h"
#include "mosaic/mosaic_fixture.h"
#include "mosaic_host/kernel_product.h"
#include "mosaic_host/mosaic_host.h"

#define FIXTURES VTPU_SOURCE_DIR "/src/mosaic/fixtures/"

// A program that calls the kernel once. Arrays hold `blocks` blocks in each dimension of a window.
typedef struct program {
  vt_module *module;
  vt_op *call;
  vt_text config;
  uint32_t inputs;
  vt_tensor *in, *out;
  vt_mkernels *kernels;
} program;

static vt_type array_type(vt_module *module, const vt_mosaic *k, uint32_t arg, int64_t blocks) {
  vt_mtype type = k->body->block->args[k->grid_rank + arg].type;
  bool windowed = arg >= k->prefetch_count && !k->windows[arg - k->prefetch_count].whole;
  int64_t dims[VT_MOSAIC_RANK];
  for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[d] * (windowed ? blocks : 1);
  return vt_type_make(&module->arena, type.dtype, type.rank, dims);
}

static vt_tensor new_tensor(vt_type type) {
  vt_tensor t = {type, vt_host_alloc_zeroed(vt_type_bytes(type) + 64)};
  assert_non_null(t.data);
  return t;
}

// Small numbers: also indices of blocks, counts and tables.
static void fill(vt_tensor t, uint32_t seed) {
  for (int64_t i = 0; i < vt_type_elements(t.type); i++) {
    seed = seed * 1664525u + 1013904223u;
    if (vt_dtype_is_float(t.type.dtype))
      vt_number_store(t.type.dtype, t.data, i, ((double)(seed >> 8) / (1 << 23) - 1) * 2);
    else
      memset((char *)t.data + i * (int64_t)vt_dtype_bytes(t.type.dtype), seed >> 16 & 1, 1);
  }
}

static program open_program(const char *name, uint32_t outputs, int64_t blocks) {
  program p = {.module = vt_module_create()};
  char path[512];
  vt_bytes body;
  vt_arena arena = {0};
  vt_mosaic *k;
  snprintf(path, sizeof path, FIXTURES "%s.mlirbc", name);
  assert_null(vt_file_map(path, &body));
  fixture_config(body, "", &p.config);
  vt_file_unmap(&body);
  vt_string text = {vt_text_string(&p.config), p.config.size};
  assert_null(vt_mosaic_read(text, &arena, &k));
  vt_func *func = p.module->main = vt_func_create(p.module, "main");
  vt_module_add_func(p.module, func);
  for (uint32_t i = 0; i < k->dynamic_count; i++)
    (void)vt_func_add_param(func, (vt_type){VT_S32, 0, NULL});
  uint32_t arrays = k->prefetch_count + k->window_count, inputs = arrays - outputs;
  vt_type results[8];
  for (uint32_t i = 0; i < arrays; i++) {
    vt_type type = array_type(p.module, k, i, blocks);
    if (i < inputs)
      (void)vt_func_add_param(func, type);
    else
      results[i - inputs] = type;
  }
  p.inputs = func->param_count;
  p.call = vt_op_create(func, VT_OP_CUSTOM_CALL, &vt_loc_unknown, p.inputs, func->params, outputs,
                        results, 0);
  vt_op_append(func, p.call);
  vt_op_set_string(p.call, VT_ATTR_CALL_TARGET_NAME, "tpu_custom_call");
  vt_op_set_attr(p.call, (vt_attr){.key = VT_ATTR_BACKEND_CONFIG, .count = 1, .string = text});
  p.in = calloc(p.inputs + 1, sizeof *p.in);
  p.out = calloc(outputs + 1, sizeof *p.out);
  for (uint32_t i = 0; i < p.inputs; i++) {
    p.in[i] = new_tensor(func->params[i]->type);
    fill(p.in[i], i + 1);
    if (i < k->dynamic_count) *(int32_t *)p.in[i].data = 2;
  }
  for (uint32_t i = 0; i < outputs; i++) p.out[i] = new_tensor(results[i]);
  vt_arena_free(&arena);
  vt_status st = vt_mosaic_attach(p.module, NULL);
  if (st) fail_msg("%s: %s", name, vt_status_message(st));
  return p;
}

static void close_program(program *p) {
  for (uint32_t i = 0; i < p->inputs; i++) vt_host_free(p->in[i].data);
  for (uint32_t i = 0; i < p->call->result_count; i++) vt_host_free(p->out[i].data);
  free(p->in);
  free(p->out);
  vt_mkernels_destroy(p->kernels);
  vt_module_destroy(p->module);
  vt_text_free(&p->config);
}

static void run(program *p) {
  vt_eval_env env = {0};
  vt_status st = vt_eval_op(p->call, &env, p->in, p->out);
  if (st) fail_msg("%s", vt_status_message(st));
}

static void compile(program *p) {
  assert_null(vt_mkernels_compile(p->module, false, true, &p->kernels));
  assert_true(vt_mkernels_code_bytes(p->kernels) > 0);
}

static const struct {
  const char *name;
  uint32_t outputs;
  int64_t blocks;
  double tolerance; // sums in another order
} kernels[] = {
    {"add", 1, 1, 0},          {"matmul", 1, 2, 1e-2},  {"prefetch", 1, 4, 0},
    {"copies", 1, 1, 0},       {"control", 1, 1, 1e-5}, {"moves", 2, 1, 1e-5},
    {"attention", 1, 2, 1e-2}, {"newest", 2, 2, 1e-5},
};

static void code_does_what_the_ops_mean(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    program want = open_program(kernels[i].name, kernels[i].outputs, kernels[i].blocks),
            got = open_program(kernels[i].name, kernels[i].outputs, kernels[i].blocks);
    compile(&got);
    run(&want);
    run(&got);
    for (uint32_t r = 0; r < kernels[i].outputs; r++) {
      vt_tensor a = want.out[r], b = got.out[r];
      double largest = 0;
      for (int64_t e = 0; e < vt_type_elements(a.type); e++)
        largest = fmax(largest, fabs(vt_number_load(a.type.dtype, a.data, e)));
      for (int64_t e = 0; e < vt_type_elements(a.type); e++) {
        double x = vt_number_load(a.type.dtype, a.data, e),
               y = vt_number_load(b.type.dtype, b.data, e);
        if (fabs(x - y) > kernels[i].tolerance * largest || isnan(x) != isnan(y))
          fail_msg("%s: result %u, element %lld: %g was expected, code gives %g", kernels[i].name,
                   r, (long long)e, x, y);
      }
    }
    close_program(&want);
    close_program(&got);
  }
}

static void bits_do_not_depend_on_threads(void **state) {
  (void)state;
  int threads = omp_get_max_threads();
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    program first = open_program(kernels[i].name, kernels[i].outputs, kernels[i].blocks),
            again = open_program(kernels[i].name, kernels[i].outputs, kernels[i].blocks);
    compile(&first);
    compile(&again);
    omp_set_num_threads(1);
    run(&first);
    for (int n = 1; n <= 4; n++) {
      omp_set_num_threads(n);
      run(&again);
      for (uint32_t r = 0; r < kernels[i].outputs; r++)
        assert_memory_equal(first.out[r].data, again.out[r].data,
                            (size_t)vt_type_bytes(first.out[r].type));
    }
    close_program(&first);
    close_program(&again);
  }
  omp_set_num_threads(threads);
}

// ---- devices that meet --------------------------------------------------------------------------

enum { DEVICES = 4 };

typedef struct meeting {
  program programs[DEVICES]; // for their arrays; the first one's call runs for all
  const vt_tensor *in[DEVICES];
  vt_tensor *out[DEVICES];
} meeting;

static void open_meeting(const char *name, meeting *m) {
  for (int d = 0; d < DEVICES; d++) {
    m->programs[d] = open_program(name, 1, 1);
    fill(m->programs[d].in[0], (uint32_t)(d + 1));
    m->in[d] = m->programs[d].in;
    m->out[d] = m->programs[d].out;
  }
}

static vt_status run_meeting(const meeting *m, int32_t devices) {
  const vt_op *op = m->programs[0].call;
  const vt_program_call *kernel = vt_op_attr(op, VT_ATTR_KERNEL)->kernel;
  vt_eval_env env = {0};
  return kernel->run(kernel, op, &env, devices, m->in, m->out);
}

static void close_meeting(meeting *m) {
  for (int d = 0; d < DEVICES; d++) close_program(&m->programs[d]);
}

static void devices_that_meet_have_code(void **state) {
  (void)state;
  static const char *const names[] = {"ring", "exchange"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    meeting want, got;
    open_meeting(names[i], &want);
    open_meeting(names[i], &got);
    compile(&got.programs[0]);
    assert_null(run_meeting(&want, DEVICES));
    for (int times = 0; times < 3; times++) assert_null(run_meeting(&got, DEVICES));
    for (int d = 0; d < DEVICES; d++)
      assert_memory_equal(want.out[d]->data, got.out[d]->data,
                          (size_t)vt_type_bytes(want.out[d]->type));
    close_meeting(&want);
    close_meeting(&got);
  }
}

// Three of the four devices: the others are left in the middle of their code.
static void a_meeting_that_fails_is_an_error(void **state) {
  (void)state;
  meeting m;
  open_meeting("exchange", &m);
  compile(&m.programs[0]);
  vt_status st = run_meeting(&m, 3);
  assert_non_null(strstr(vt_status_message(st), "device 3 of 3"));
  vt_status_free(st);
  st = run_meeting(&m, 1);
  assert_non_null(strstr(vt_status_message(st), "device 3 of 1"));
  vt_status_free(st);
  close_meeting(&m);
}

// ---- kernel_dot.c -------------------------------------------------------------------------------

typedef struct dot_case {
  int64_t m, n, k;
  bool lhs_transposed, rhs_transposed;
} dot_case;

static void put_bf16(uint16_t *to, int64_t count, uint32_t seed) {
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    vt_number_store(VT_BF16, to, i, (double)(seed >> 8) / (1 << 23) - 1);
  }
}

static vt_kproduct dot_of(dot_case c) {
  vt_kproduct p = {.batch = 1, .m = c.m, .n = c.n, .k = c.k, .row = c.n + 3};
  p.sides[0] =
      (vt_kside){.rows = c.lhs_transposed ? 1 : c.k, .columns = c.lhs_transposed ? c.m : 1};
  p.sides[1] =
      (vt_kside){.rows = c.rhs_transposed ? 1 : c.n, .columns = c.rhs_transposed ? c.k : 1};
  return p;
}

static void run_dot(const vt_kproduct *p, const uint16_t *a, const uint16_t *b, float *out) {
  void *pad = malloc((size_t)vt_kdot_pad_bytes(p));
  assert_non_null(pad);
  vt_kdot_run(p, a, b, out, pad);
  free(pad);
}

// Operands lie in memory of their own size, so that a sanitizer sees reads beyond them.
static void check_dot(dot_case c) {
  vt_kproduct p = dot_of(c);
  uint16_t *a = malloc((size_t)(c.m * c.k) * 2), *b = malloc((size_t)(c.k * c.n) * 2);
  float *out = malloc((size_t)(c.m * p.row) * 4), *again = malloc((size_t)(c.m * p.row) * 4);
  put_bf16(a, c.m * c.k, 1);
  put_bf16(b, c.k * c.n, 2);
  for (int64_t i = 0; i < c.m * p.row; i++) out[i] = again[i] = 7;
  run_dot(&p, a, b, out);
  for (int64_t i = 0; i < c.m * p.row; i++) {
    int64_t row = i / p.row, column = i % p.row;
    double sum = 0;
    for (int64_t k = 0; k < c.k && column < c.n; k++)
      sum += vt_number_load(VT_BF16, a, row * p.sides[0].rows + k * p.sides[0].columns) *
             vt_number_load(VT_BF16, b, k * p.sides[1].rows + column * p.sides[1].columns);
    if (fabs(out[i] - (column < c.n ? sum : 7)) > 1e-5 * (double)c.k)
      fail_msg("%lld x %lld x %lld: element %lld", (long long)c.m, (long long)c.n, (long long)c.k,
               (long long)i);
  }
  vt_kproduct part = p; // in two halves, one after the other: the same bits
  part.k = c.k / 2 / 2 * 2;
  if (part.k) run_dot(&part, a, b, again);
  int64_t done = part.k;
  part.adds = done > 0;
  part.k = c.k - done;
  run_dot(&part, a + done * p.sides[0].columns, b + done * p.sides[1].rows, again);
  assert_memory_equal(out, again, (size_t)(c.m * p.row) * 4);
  free(a);
  free(b);
  free(out);
  free(again);
}

static void products_go_on_from_what_is_there(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1},    {2, 16, 2},    {6, 64, 32},   {7, 65, 33},
                                     {13, 17, 31}, {5, 130, 100}, {64, 48, 128}, {3, 63, 257}};
  if (!vt_kdot_here()) skip();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int t = 0; t < 4; t++)
      check_dot((dot_case){sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(code_does_what_the_ops_mean),
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(devices_that_meet_have_code),
      cmocka_unit_test(a_meeting_that_fails_is_an_error),
      cmocka_unit_test(products_go_on_from_what_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
