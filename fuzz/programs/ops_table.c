// SPDX-License-Identifier: Apache-2.0
// ops_table: support for each op, found by trying it: the facts of docs/ops.md.
//
// The op's generator makes programs of one op for every element type. A type counts when the
// evaluator runs such a program; the plan of the host back end says where the op runs. One line per
// op: MLIR name, name, element types, places, why it is not generated. The same on
// every x86-64 CPU.
#include <stdio.h>
#include <string.h>

#include "compare.h"
#include "gen.h"
#include "host/plan.h"
#include "import/import.h"

enum { TRIES = 40, ENOUGH = 4 };

// Where an op runs.
//    place      what docs/ops.md calls it
#define PLACES(PLACE)                                                                              \
  PLACE(CODE, "generated code")                                                                    \
  PLACE(LIBRARY, "matrix library")                                                                 \
  PLACE(PLAN, "plan")                                                                              \
  PLACE(NOTHING, "no step")                                                                        \
  PLACE(REWRITTEN, "rewritten")                                                                    \
  PLACE(EVALUATOR, "evaluator")
enum {
#define PLACE(name, text) PLACE_##name,
  PLACES(PLACE)
#undef PLACE
      PLACE_COUNT
};

// By vt_step.runner.
static int place_of(const char *runner) {
  static const struct {
    const char *runner;
    int place;
  } rows[] = {{"kernel", PLACE_CODE},    {"loop", PLACE_CODE},    {"onednn", PLACE_LIBRARY},
              {"amx", PLACE_LIBRARY},    {"rows", PLACE_LIBRARY}, {"gemv", PLACE_LIBRARY},
              {"narrow", PLACE_LIBRARY}, {"plan", PLACE_PLAN},    {"lockstep", PLACE_PLAN},
              {"devices", PLACE_PLAN}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].runner, runner)) return rows[i].place;
  return PLACE_EVALUATOR;
}

static bool holds(const vt_func *func, vt_opcode code) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == code) return true;
    for (uint32_t r = 0; r < op->region_count; r++)
      if (holds(op->regions[r], code)) return true;
  }
  return false;
}

// The places of the op in the program's plan, as bits.
static unsigned places_in(const vt_program *compiled, vt_opcode code) {
  unsigned found = 0;
  for (size_t p = 0; p < compiled->plan_order.size; p++) {
    const vt_plan *plan = compiled->plan_order.data[p];
    for (uint32_t s = 0; s < plan->step_count; s++)
      if (plan->steps[s].op && plan->steps[s].op->code == code)
        found |= 1u << place_of(plan->steps[s].runner);
  }
  if (found) return found;
  return 1u << (holds(compiled->module->main, code) ? PLACE_NOTHING : PLACE_REWRITTEN);
}

static unsigned places_of(vt_bytes text, vt_opcode code) {
  vt_module *module = NULL;
  vt_program *compiled = NULL;
  vt_host_options options = {.device_count = 1, .exact_dots = true, .compile_all = true};
  vt_pass_options passes = vt_host_passes(options.exact_dots);
  passes.as_written = true;
  unsigned found = 0;
  vt_status st = vt_import(text, &module);
  if (!st && (st = vt_passes_run(module, &passes)))
    vt_module_destroy(module);
  else if (!st)
    st = vt_host_compile(module, &options, &compiled);
  if (!st) found = places_in(compiled, code);
  vt_status_free(st);
  vt_program_destroy(compiled);
  return found;
}

// True when an op of the program reads the type (or produces it, if it always reads another).
static bool concerns(const vt_func *func, vt_opcode code, vt_dtype dtype) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code != code) continue;
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i]->type.dtype == dtype) return true;
    for (uint32_t i = 0; i < op->result_count; i++)
      if (!(vt_op_info_get(code)->flags & VT_OPF_ELTWISE) && op->results[i].type.dtype == dtype)
        return true;
  }
  return false;
}

// True when the evaluator runs programs of the op on this type; adds the places of some of them.
static bool takes(vt_opcode code, vt_dtype dtype, unsigned *places) {
  int runs = 0;
  for (uint64_t seed = 0; seed < TRIES && runs < ENOUGH; seed++) {
    program p;
    trial t;
    vt_text why = {0};
    if (!program_of_op(code, dtype, seed, &p) || !concerns(p.module->main, code, dtype)) {
      program_destroy(&p);
      continue;
    }
    verdict v = trial_open(p, &t, &why);
    if (!v) {
      *places |= places_of((vt_bytes){(const void *)t.text.data, t.text.size}, code);
      runs++;
    }
    trial_close(&t);
    vt_text_free(&why);
    if (v) return false;
  }
  return runs > 0;
}

// Programs of a common size. The generator's arrays have a few elements; what oneDNN takes of those
// differs between CPUs.
static unsigned common_places(vt_opcode code) {
  static const char convolution[] =
      "func.func @main(%x: tensor<8x16x16x32xf32>, %w: tensor<3x3x32x32xf32>)"
      " -> tensor<8x16x16x32xf32> {\n"
      "  %y = stablehlo.convolution(%x, %w)"
      " dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],"
      " window = {pad = [[1, 1], [1, 1]]}"
      " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
      " : (tensor<8x16x16x32xf32>, tensor<3x3x32x32xf32>) -> tensor<8x16x16x32xf32>\n"
      "  return %y : tensor<8x16x16x32xf32>\n"
      "}\n";
  if (code != VT_OP_CONVOLUTION) return 0;
  return places_of((vt_bytes){(const void *)convolution, sizeof convolution - 1}, code);
}

int main(void) {
  static const struct {
    const char *name, *place, *reason;
  } rows[VT_OP_COUNT] = {
#define GEN(op, ...)                [VT_OP_##op] = {#op, "", ""},
#define MESH(op, place, ...)        [VT_OP_##op] = {#op, place, ""},
#define LEFT_OUT(op, place, reason) [VT_OP_##op] = {#op, place, reason},
#include "gen_ops.def"
#undef GEN
#undef MESH
#undef LEFT_OUT
  };
  static const char *const place_names[] = {
#define PLACE(name, text) text,
      PLACES(PLACE)
#undef PLACE
  };
  for (int code = 1; code < VT_OP_COUNT; code++) {
    unsigned places = common_places((vt_opcode)code);
    bool first = true,
         tried = gen_row_of((vt_opcode)code)->make && !gen_row_of((vt_opcode)code)->meshed;
    printf("%s\t%s\t", vt_op_info_get((vt_opcode)code)->text, rows[code].name);
    for (int d = 1; d < VT_DTYPE_LIMIT; d++) {
      const vt_dtype_info *info = vt_dtype_get((vt_dtype)d);
      if (!info->bytes || !tried) continue;
      if (!takes((vt_opcode)code, (vt_dtype)d, &places)) continue;
      printf("%s%s", first ? "" : " ", info->text);
      first = false;
    }
    // An op of tokens only orders steps and is not a step.
    if (first && tried) places = 1u << PLACE_NOTHING;
    printf("\t");
    first = true;
    // A program of constants alone is folded, whatever the op: ignore it when others run.
    bool runs = places & ~(1u << PLACE_REWRITTEN | 1u << PLACE_NOTHING);
    for (int i = 0; i < PLACE_COUNT; i++) {
      if (!(places >> i & 1) || (runs && (i == PLACE_REWRITTEN || i == PLACE_NOTHING))) continue;
      printf("%s%s", first ? "" : ", ", place_names[i]);
      first = false;
    }
    printf("%s\t%s\n", rows[code].place, rows[code].reason);
    fflush(stdout);
  }
  return 0;
}
