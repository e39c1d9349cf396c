// SPDX-License-Identifier: Apache-2.0
// run_module.c - runs a program with the evaluator on arrays of a file, and compares.
//
//   eval_run [--tpu-dots] [--tolerance X] PROGRAM.mlirbc ARRAYS.npz [OUT.npz]
//
// ARRAYS has in_0, in_1, ... and may have out_0, ...: results are then compared (integers and bools
// exactly, floats by |difference| <= X * (1 + |expected|), default 1e-5), one line per result that
// differs and one for the program.
// --tpu-dots rounds operands of DEFAULT dots to bf16. OUT gets the results. Exit status 1 when
// something differs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/npz.h"
#include "eval/eval.h"
#include "import/import.h"

typedef struct options {
  bool exact;
  double tolerance;
  const char *program, *arrays, *out;
} options;

static vt_status load_args(const vt_func *func, const vt_npz *npz, vt_arena *arena,
                           vt_tensor *args) {
  for (uint32_t i = 0; i < func->param_count; i++) {
    vt_type t = func->params[i]->type;
    const vt_npz_array *a = vt_npz_find(npz, vt_arena_printf(arena, "in_%u", i));
    args[i] = (vt_tensor){t, NULL};
    if (t.dtype == VT_TOKEN) continue;
    if (!a) return vt_error(VT_INVALID_ARGUMENT, "no array in_%u", i);
    if (vt_npz_bytes(a) != vt_type_bytes(t))
      return vt_error(VT_INVALID_ARGUMENT, "in_%u has another size", i);
    args[i].data = a->data;
  }
  return VT_OK;
}

static double part(vt_dtype dtype, const void *data, int64_t i) {
  switch ((int)dtype) {
  case VT_F32:
  case VT_C64:
    return (double)((const float *)data)[i];
  case VT_F64:
  case VT_C128:
    return ((const double *)data)[i];
  default:
    return 0;
  }
}

// The largest error in units of (1 + |expected|); infinity for a NaN or infinity on one side only.
static double worst_error(vt_tensor got, const void *want) {
  int64_t n = vt_type_elements(got.type) * (vt_dtype_is_complex(got.type.dtype) ? 2 : 1);
  double worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double g = part(got.type.dtype, got.data, i), w = part(got.type.dtype, want, i);
    double e = g == w || (isnan(g) && isnan(w)) ? 0 : fabs(g - w) / (1 + fabs(w));
    if (isnan(e)) e = (double)INFINITY;
    if (e > worst) worst = e;
  }
  return worst;
}

// Returns the number of results that differ, and the worst float error.
static int compare(const vt_npz *npz, uint32_t count, const vt_tensor *results, double tolerance,
                   double *out_worst, int *out_compared) {
  int wrong = 0;
  for (uint32_t i = 0; i < count; i++) {
    char name[32];
    vt_tensor r = results[i];
    snprintf(name, sizeof name, "out_%u", i);
    const vt_npz_array *want = vt_npz_find(npz, name);
    if (!want) continue;
    ++*out_compared;
    if (vt_npz_bytes(want) != vt_type_bytes(r.type)) {
      printf("  %s: another size\n", name);
      wrong++;
      continue;
    }
    bool wide =
        r.type.dtype == VT_F32 || r.type.dtype == VT_F64 || vt_dtype_is_complex(r.type.dtype);
    double e = wide ? worst_error(r, want->data)
               : memcmp(r.data, want->data, (size_t)vt_type_bytes(r.type)) ? (double)INFINITY
                                                                           : 0;
    if (e > *out_worst) *out_worst = e;
    if (e > tolerance) {
      printf("  %s: %s differs by %g\n", name, vt_dtype_get(r.type.dtype)->text, e);
      wrong++;
    }
  }
  return wrong;
}

static char kind_letter(vt_dtype d) {
  switch (vt_dtype_kind_of(d)) {
  case VT_KIND_BOOL:
    return 'b';
  case VT_KIND_SIGNED:
    return 'i';
  case VT_KIND_UNSIGNED:
    return 'u';
  case VT_KIND_COMPLEX:
    return 'c';
  default:
    return d == VT_F16 || d == VT_F32 || d == VT_F64 ? 'f' : 'V';
  }
}

static vt_status write_results(const char *path, uint32_t count, const vt_tensor *results,
                               vt_arena *arena) {
  vt_npz_array *arrays = VT_NEW_ARRAY(arena, vt_npz_array, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    vt_type t = results[i].type;
    arrays[i] = (vt_npz_array){.name = vt_arena_printf(arena, "out_%u", i),
                               .kind = kind_letter(t.dtype),
                               .item_bytes = (int32_t)vt_dtype_bytes(t.dtype),
                               .rank = t.rank,
                               .data = results[i].data};
    memcpy(arrays[i].dims, t.dims, sizeof *t.dims * (size_t)t.rank);
  }
  return vt_npz_write(path, arrays, count);
}

static vt_status run(const options *o, vt_arena *arena, int *out_wrong) {
  vt_bytes file = {0};
  vt_module *module = NULL;
  vt_npz npz;
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_file_map(o->program, &file));
  VT_TRY_OUT(vt_import(file, &module));
  VT_TRY_OUT(vt_npz_read(o->arrays, arena, &npz));
  const vt_func *func = module->main;
  vt_tensor *args = VT_NEW_ARRAY(arena, vt_tensor, func->param_count + 1);
  vt_tensor *results = VT_NEW_ARRAY(arena, vt_tensor, func->return_count + 1);
  VT_TRY_OUT(load_args(func, &npz, arena, args));
  for (uint32_t i = 0; i < func->return_count; i++) {
    vt_type t = func->returns[i]->type;
    results[i] = (vt_tensor){t, vt_arena_push_aligned(arena, (size_t)vt_type_bytes(t) + 64, 64)};
  }
  vt_eval_env env = {.exact_dots = o->exact};
  VT_TRY_OUT(vt_eval_func(func, &env, args, results));
  double worst = 0;
  int compared = 0;
  *out_wrong = compare(&npz, func->return_count, results, o->tolerance, &worst, &compared);
  printf("%-50s %3d results compared, %d differ, worst %.3g\n", o->program, compared, *out_wrong,
         worst);
  if (o->out) VT_TRY_OUT(write_results(o->out, func->return_count, results, arena));
out:
  vt_module_destroy(module);
  vt_file_unmap(&file);
  return st;
}

int main(int argc, char **argv) {
  options o = {.exact = true, .tolerance = 1e-5};
  int at = 1;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (!strcmp(argv[at], "--tpu-dots"))
      o.exact = false;
    else if (!strcmp(argv[at], "--tolerance") && at + 1 < argc)
      o.tolerance = strtod(argv[++at], NULL);
    else
      at = argc;
  }
  if (argc - at < 2 || argc - at > 3) {
    fprintf(stderr,
            "usage: eval_run [--tpu-dots] [--tolerance X] PROGRAM.mlirbc ARRAYS.npz [OUT.npz]\n");
    return 2;
  }
  o.program = argv[at];
  o.arrays = argv[at + 1];
  o.out = argc - at > 2 ? argv[at + 2] : NULL;
  vt_arena arena = {0};
  int wrong = 0;
  vt_status st = run(&o, &arena, &wrong);
  if (st)
    printf("%-50s %s: %s\n", o.program, vt_code_name(vt_status_code(st)), vt_status_message(st));
  int code = st ? 2 : wrong > 0;
  vt_status_free(st);
  vt_arena_free(&arena);
  return code;
}
