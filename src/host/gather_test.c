// SPDX-License-Identifier: Apache-2.0
// gather_test.c - gathers and scatters of single elements inside loops: random programs that
// compute indices, gather and use the result, compute updates and scatter them, against the
// evaluator, bit for bit but for signs of zeros: as generated code, and as small programs, which
// have kernels for these.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "ir/number.h"
#include "host/kernel_move.h"
#include "host/plan.h"
#include "import/import.h"

enum { PROGRAMS = 400, PARAMS = 6, MOST_PARTS = 4 };

static uint64_t next_random(void) {
  static uint64_t state = 7;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
static int64_t below(int64_t n) {
  return (int64_t)(next_random() % (uint64_t)n);
}

typedef struct spelled {
  vt_dtype dtype;
  const char *text;
} spelled;

static const spelled elements[] = {
    {VT_F32, "f32"},  {VT_BF16, "bf16"}, {VT_F64, "f64"}, {VT_F16, "f16"}, {VT_S8, "i8"},
    {VT_U16, "ui16"}, {VT_S32, "i32"},   {VT_S64, "i64"}, {VT_PRED, "i1"}, {VT_F32, "f32"}};
static const spelled starts[] = {{VT_S32, "i32"}, {VT_S64, "i64"}, {VT_U32, "ui32"},
                                 {VT_S8, "i8"},   {VT_U8, "ui8"},  {VT_S16, "i16"}};

typedef struct program {
  vt_text text;
  spelled element, start;
  int rank, parts, batch_rank, batching; // batching: leading dims of operand and batch
  int64_t dims[4], batch[2];
  int indexed[MOST_PARTS];
  int params;
} program;

static void put_type(vt_text *t, int rank, const int64_t *dims, const char *element) {
  vt_text_put(t, "tensor<");
  for (int i = 0; i < rank; i++) vt_text_printf(t, "%lldx", (long long)dims[i]);
  vt_text_printf(t, "%s>", element);
}

static void put_batch(program *p, const char *element) {
  put_type(&p->text, p->batch_rank, p->batch, element);
}

// [batch, columns], or [batch] alone.
static void put_column(program *p, int64_t columns) {
  int64_t dims[3] = {p->batch[0], p->batch[1]};
  dims[p->batch_rank] = columns;
  put_type(&p->text, p->batch_rank + 1, dims, p->start.text);
}

static void choose_shapes(program *p) {
  static const int64_t sizes[] = {1, 2, 5, 16, 33}, batches[] = {1, 3, 16, 40, 1500};
  p->element = elements[below(10)];
  p->start = starts[below(6)];
  p->batch_rank = 1 + (int)below(2);
  for (int i = 0; i < p->batch_rank; i++) p->batch[i] = batches[below(p->batch_rank > 1 ? 4 : 5)];
  p->rank = 1 + (int)below(4);
  p->batching = p->rank > 1 ? (int)below(p->batch_rank + 1) : 0;
  if (p->batching >= p->rank) p->batching = p->rank - 1;
  for (int i = 0; i < p->rank; i++) {
    p->dims[i] = i < p->batching ? p->batch[i] : sizes[below(5)];
    if (i >= p->batching && p->parts < MOST_PARTS && (below(4) || (!p->parts && i == p->rank - 1)))
      p->indexed[p->parts++] = i;
  }
  if (p->rank == 1 && !below(3)) p->dims[0] = 150000; // past the near caches
  if (p->parts > 1 && below(2)) {
    int first = p->indexed[0];
    p->indexed[0] = p->indexed[p->parts - 1];
    p->indexed[p->parts - 1] = first;
  }
}

// The operand %x: a parameter, a view of one, or something computed.
static void put_operand(program *p, int how) {
  vt_text *t = &p->text;
  vt_text_put(t, how == 1   ? "  %x = stablehlo.transpose %p0, dims = ["
                 : how == 2 ? "  %x = stablehlo.slice %p0 ["
                            : "");
  for (int i = 0; i < p->rank && how; i++) {
    if (how == 1) vt_text_printf(t, "%s%d", i ? ", " : "", p->rank - 1 - i);
    if (how == 2) vt_text_printf(t, "%s1:%lld", i ? ", " : "", (long long)(p->dims[i] + 1));
  }
  int64_t dims[4];
  for (int i = 0; i < p->rank; i++)
    dims[i] = how == 1 ? p->dims[p->rank - 1 - i] : p->dims[i] + (how == 2);
  if (how == 1 || how == 2) {
    vt_text_put(t, "] : (");
    put_type(t, p->rank, dims, p->element.text);
    vt_text_put(t, ") -> ");
  } else {
    vt_text_put(t, how ? "  %x = stablehlo.add %p0, %p0 : " : "  %x = stablehlo.reshape %p0 : (");
    if (!how) {
      put_type(t, p->rank, p->dims, p->element.text);
      vt_text_put(t, ") -> ");
    }
  }
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, "\n");
}

// One part of the indices, %c0 and so on; negative ones may count from the end.
static void put_part(program *p, int k) {
  vt_text *t = &p->text;
  int64_t size = p->dims[p->indexed[k]];
  if (below(2)) {
    vt_text_printf(t, "  %%n%d = stablehlo.constant dense<%lld> : ", k, (long long)size);
    put_batch(p, p->start.text);
    vt_text_printf(t, "\n  %%z%d = stablehlo.constant dense<0> : ", k);
    put_batch(p, p->start.text);
    vt_text_printf(t, "\n  %%l%d = stablehlo.compare LT, %%p%d, %%z%d : (", k, k + 1, k);
    put_batch(p, p->start.text);
    vt_text_put(t, ", ");
    put_batch(p, p->start.text);
    vt_text_put(t, ") -> ");
    put_batch(p, "i1");
    vt_text_printf(t, "\n  %%a%d = stablehlo.add %%p%d, %%n%d : ", k, k + 1, k);
    put_batch(p, p->start.text);
    vt_text_printf(t, "\n  %%i%d = stablehlo.select %%l%d, %%a%d, %%p%d : ", k, k, k, k + 1);
    put_batch(p, "i1");
    vt_text_put(t, ", ");
    put_batch(p, p->start.text);
  } else {
    vt_text_printf(t, "  %%i%d = stablehlo.or %%p%d, %%p%d : ", k, k + 1, k + 1);
    put_batch(p, p->start.text);
  }
  vt_text_printf(t, "\n  %%c%d = stablehlo.reshape %%i%d : (", k, k);
  put_batch(p, p->start.text);
  vt_text_put(t, ") -> ");
  put_column(p, 1);
  vt_text_put(t, "\n");
}

static void put_indices(program *p) {
  vt_text *t = &p->text;
  for (int k = 0; k < p->parts; k++) put_part(p, k);
  if (p->parts == 1) return;
  vt_text_put(t, "  %c = stablehlo.concatenate ");
  for (int k = 0; k < p->parts; k++) vt_text_printf(t, "%s%%c%d", k ? ", " : "", k);
  vt_text_printf(t, ", dim = %d : (", p->batch_rank);
  for (int k = 0; k < p->parts; k++) {
    if (k) vt_text_put(t, ", ");
    put_column(p, 1);
  }
  vt_text_put(t, ") -> ");
  put_column(p, p->parts);
  vt_text_put(t, "\n");
}

static void put_list(vt_text *t, const char *name, int count, const int *list) {
  vt_text_printf(t, "%s = [", name);
  for (int i = 0; i < count; i++) vt_text_printf(t, "%s%d", i ? ", " : "", list ? list[i] : i);
  vt_text_put(t, "]");
}

static void put_gather(program *p) {
  vt_text *t = &p->text;
  int dropped[4], count = 0;
  for (int i = p->batching; i < p->rank; i++) dropped[count++] = i;
  vt_text_printf(t,
                 "  %%g = \"stablehlo.gather\"(%%x, %%c%s) <{dimension_numbers = "
                 "#stablehlo.gather<",
                 p->parts == 1 ? "0" : "");
  put_list(t, "collapsed_slice_dims", count, dropped);
  put_list(t, ", operand_batching_dims", p->batching, NULL);
  put_list(t, ", start_indices_batching_dims", p->batching, NULL);
  put_list(t, ", start_index_map", p->parts, p->indexed);
  vt_text_printf(t, ", index_vector_dim = %d>, slice_sizes = array<i64: ", p->batch_rank);
  for (int i = 0; i < p->rank; i++) vt_text_put(t, i ? ", 1" : "1");
  vt_text_put(t, ">, indices_are_sorted = false}> : (");
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, ", ");
  put_column(p, p->parts);
  vt_text_put(t, ") -> ");
  put_batch(p, p->element.text);
  vt_text_put(t, "\n");
}

// What reads the gathered elements: nothing, an operand again, or another gather's index.
static void write_program(program *p) {
  vt_text *t = &p->text;
  int how = (int)below(4), use = (int)below(3);
  int64_t dims[4];
  for (int i = 0; i < p->rank; i++)
    dims[i] = how == 1 ? p->dims[p->rank - 1 - i] : p->dims[i] + (how == 2);
  vt_text_put(t, "func.func @main(%p0: ");
  put_type(t, p->rank, dims, p->element.text);
  for (int k = 0; k < p->parts; k++) {
    vt_text_printf(t, ", %%p%d: ", k + 1);
    put_batch(p, p->start.text);
  }
  p->params = p->parts + 2;
  vt_text_printf(t, ", %%y: ");
  put_batch(p, p->element.text);
  vt_text_put(t, ") -> (");
  put_batch(p, p->element.text);
  if (use == 2) vt_text_put(t, ", "), put_batch(p, p->element.text);
  vt_text_put(t, ") {\n");
  put_operand(p, how);
  put_indices(p);
  put_gather(p);
  vt_text_put(t, use ? "  %r = stablehlo.add %g, %y : " : "  %r = stablehlo.reshape %g : (");
  put_batch(p, p->element.text);
  if (!use) vt_text_put(t, ") -> "), put_batch(p, p->element.text);
  vt_text_printf(t, "\n  return %s : ", use == 2 ? "%r, %g" : "%r");
  put_batch(p, p->element.text);
  if (use == 2) vt_text_put(t, ", "), put_batch(p, p->element.text);
  vt_text_put(t, "\n}\n");
}

static void put_body(program *p) {
  static const char *const numbers[] = {NULL, "add", "subtract", "multiply", "maximum", "minimum"};
  static const char *const bits[] = {NULL, "and", "or", "xor"};
  bool logical = !vt_dtype_is_float(p->element.dtype) && below(2);
  const char *op = logical || p->element.dtype == VT_PRED ? bits[below(4)] : numbers[below(6)];
  const char *type = p->element.text;
  vt_text_printf(&p->text, " ({\n  ^bb0(%%old: tensor<%s>, %%new: tensor<%s>):\n", type, type);
  if (op) {
    bool turned = below(2) && strcmp(op, "subtract") != 0;
    vt_text_printf(&p->text, "    %%both = stablehlo.%s %s : tensor<%s>\n", op,
                   turned ? "%new, %old" : "%old, %new", type);
  }
  vt_text_printf(&p->text, "    stablehlo.return %s : tensor<%s>\n  }) : (", op ? "%both" : "%new",
                 type);
}

// The updates %u: a parameter, something computed, elements of the operand, or a constant.
static void put_updates(program *p) {
  vt_text *t = &p->text;
  int how = (int)below(4);
  const char *constant = p->element.dtype == VT_PRED           ? "true"
                         : vt_dtype_is_float(p->element.dtype) ? "3.0"
                                                               : "3";
  if (how == 2) put_gather(p);
  if (how == 3)
    vt_text_printf(t, "  %%u = stablehlo.constant dense<%s> : ", constant);
  else
    vt_text_put(t, how == 0   ? "  %u = stablehlo.optimization_barrier %y : "
                   : how == 1 ? "  %u = stablehlo.add %y, %y : "
                              : "  %u = stablehlo.add %g, %y : ");
  put_batch(p, p->element.text);
  vt_text_put(t, "\n");
}

static void write_scatter(program *p) {
  vt_text *t = &p->text;
  int how = (int)below(5), all[4], count = 0;
  p->params = p->parts + 2;
  vt_text_put(t, "func.func @main(%p0: ");
  int64_t dims[4];
  for (int i = 0; i < p->rank; i++)
    dims[i] = how == 1 ? p->dims[p->rank - 1 - i] : p->dims[i] + (how == 2);
  put_type(t, p->rank, dims, p->element.text);
  for (int k = 0; k < p->parts; k++) {
    vt_text_printf(t, ", %%p%d: ", k + 1);
    put_batch(p, p->start.text);
  }
  vt_text_put(t, ", %y: ");
  put_batch(p, p->element.text);
  vt_text_put(t, ") -> ");
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, " {\n");
  if (how == 4) {
    vt_text_put(t, vt_dtype_is_float(p->element.dtype) ? "  %x = stablehlo.constant dense<-0.0> : "
                   : p->element.dtype == VT_PRED       ? "  %x = stablehlo.constant dense<true> : "
                                                       : "  %x = stablehlo.constant dense<7> : ");
    put_type(t, p->rank, p->dims, p->element.text);
    vt_text_put(t, "\n");
  } else {
    put_operand(p, how);
  }
  put_indices(p);
  put_updates(p);
  for (int i = p->batching; i < p->rank; i++) all[count++] = i;
  vt_text_printf(t,
                 "  %%r = \"stablehlo.scatter\"(%%x, %%c%s, %%u) <{scatter_dimension_numbers = "
                 "#stablehlo.scatter<",
                 p->parts == 1 ? "0" : "");
  put_list(t, "inserted_window_dims", count, all);
  put_list(t, ", input_batching_dims", p->batching, NULL);
  put_list(t, ", scatter_indices_batching_dims", p->batching, NULL);
  put_list(t, ", scatter_dims_to_operand_dims", p->parts, p->indexed);
  vt_text_printf(t, ", index_vector_dim = %d>}>", p->batch_rank);
  put_body(p);
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, ", ");
  put_column(p, p->parts);
  vt_text_put(t, ", ");
  put_batch(p, p->element.text);
  vt_text_put(t, ") -> ");
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, "\n  return %r : ");
  put_type(t, p->rank, p->dims, p->element.text);
  vt_text_put(t, "\n}\n");
}

static void fill(vt_type type, bool index, int64_t limit, char *data) {
  static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
  int64_t n = vt_type_elements(type), bytes = (int64_t)vt_dtype_bytes(type.dtype);
  for (int64_t i = 0; i < n; i++) {
    if (index) { // near the bounds, on either side, sometimes anywhere
      int64_t x = below(20) ? below(2 * limit + 6) - limit - 3 : (int64_t)next_random();
      memcpy(data + i * bytes, &x, (size_t)bytes);
    } else if (vt_dtype_is_float(type.dtype)) {
      double x = below(9) ? (double)below(2001) / 500 - 2 : specials[below(5)];
      vt_number_store(type.dtype, data, i, x);
    } else if (type.dtype == VT_PRED) {
      data[i] = (char)below(2);
    } else {
      uint64_t x = next_random();
      memcpy(data + i * bytes, &x, (size_t)bytes);
    }
  }
}

// The ways to run a program: as the evaluator does, as code, and as its size has it.
enum { EVALUATOR, CODE, BY_SIZE, WAYS };

static vt_program *compile(const program *p, int way) {
  vt_module *module;
  vt_program *made;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)p->text.data, p->text.size}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), p->text.data);
  vt_host_options options = {
      .device_count = 1, .evaluator_only = way == EVALUATOR, .compile_all = way == CODE};
  st = vt_host_compile(module, &options, &made);
  if (st) fail_msg("%s\n%s", vt_status_message(st), p->text.data);
  return made;
}

// A small program has kernels for what it gathers and scatters, and no code.
static void small_has_kernels(const program *p, const vt_program *made) {
  if (!made->small) return;
  assert_int_equal(vt_program_code_bytes(made), 0);
  for (uint32_t s = 0; s < made->plan->step_count; s++) {
    const vt_step *step = &made->plan->steps[s];
    vt_opcode code = step->op ? step->op->code : VT_OP_INVALID;
    if ((code == VT_OP_GATHER && vt_gather_supports(step->op)) ||
        (code == VT_OP_SCATTER && vt_scatter_supports(step->op)))
      if (strcmp(step->runner, "kernel"))
        fail_msg("%s by the %s:\n%s", vt_op_short_name(code), step->runner, p->text.data);
  }
}

// A maximum or minimum of +0 and -0 is either of them in code.
static bool same_element(vt_dtype dtype, const char *a, const char *b, int64_t i, bool code) {
  size_t bytes = vt_dtype_bytes(dtype);
  if (!memcmp(a + (size_t)i * bytes, b + (size_t)i * bytes, bytes)) return true;
  if (!vt_dtype_is_float(dtype)) return false;
  double x = vt_number_load(dtype, a, i), y = vt_number_load(dtype, b, i);
  return (isnan(x) && isnan(y)) || (code && x == 0 && y == 0);
}

static void check(const program *p) {
  void *params[PARAMS], *results[WAYS][2] = {{0}};
  vt_program *programs[WAYS];
  for (int way = 0; way < WAYS; way++) programs[way] = compile(p, way);
  small_has_kernels(p, programs[BY_SIZE]);
  const vt_func *main = vt_program_module(programs[0])->main;
  for (int i = 0; i < p->params; i++) {
    vt_type type = main->params[i]->type;
    bool index = i > 0 && i <= p->parts;
    params[i] = vt_host_alloc(vt_type_bytes(type));
    fill(type, index, index ? p->dims[p->indexed[i - 1]] : 0, params[i]);
  }
  for (int way = 0; way < WAYS; way++) {
    for (uint32_t r = 0; r < main->return_count; r++)
      results[way][r] = vt_host_alloc(vt_type_bytes(main->returns[r]->type));
    vt_status st =
        vt_program_run(programs[way], &(vt_run){.params = params, .results = results[way]});
    if (st) fail_msg("%s", vt_status_message(st));
  }
  for (uint32_t r = 0; r < main->return_count; r++) {
    vt_type type = main->returns[r]->type;
    for (int64_t i = 0; i < vt_type_elements(type); i++)
      for (int way = CODE; way < WAYS; way++)
        if (!same_element(type.dtype, results[EVALUATOR][r], results[way][r], i, way == CODE))
          fail_msg("result %u, element %lld differs (%d):\n%s", r, (long long)i, way, p->text.data);
  }
  for (int i = 0; i < p->params; i++) vt_host_free(params[i]);
  for (int way = 0; way < WAYS; way++) {
    for (uint32_t r = 0; r < main->return_count; r++) vt_host_free(results[way][r]);
  }
  for (int way = 0; way < WAYS; way++) vt_program_destroy(programs[way]);
}

static void gathers_in_loops(void **state) {
  (void)state;
  for (int i = 0; i < PROGRAMS; i++) {
    program p = {0};
    choose_shapes(&p);
    write_program(&p);
    check(&p);
    vt_text_free(&p.text);
  }
}

static void scatters_in_loops(void **state) {
  (void)state;
  for (int i = 0; i < PROGRAMS; i++) {
    program p = {0};
    choose_shapes(&p);
    write_scatter(&p);
    check(&p);
    vt_text_free(&p.text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gathers_in_loops),
                                     cmocka_unit_test(scatters_in_loops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
