// SPDX-License-Identifier: Apache-2.0
// host.c - compiling a module: tier, steps, kernels, memory. The pipeline is vt_host_compile.
//
// Tiers: a program whose estimated work is below SMALL_WORK runs op by op on the evaluator (gathers
// and scatters on their precompiled kernels) without the code generator or a library, whose
// start-up would cost more than many such runs; but whiles that may be long are code (loop.h). The
// estimate depends on shapes only, so the tier,
// and with it every bit of the results, is the same in each run.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "host/cpu.h"
#include "host/derived_stacks.h"
#include "host/image_layout.h"
#include "host/kernel_move.h"
#include "host/loop_products.h"
#include "host/norm_sums.h"
#include "host/plan.h"
#include "host/row_orders.h"
#include "host/row_picks.h"
#include "host/sliced_products.h"
#include "host/wide_chains.h"
#include "host/wide_sums.h"
#include "passes/rewrite.h"

enum {
  SMALL_WORK = 64 << 10, // element operations
  MOST_WORK = 1 << 30,   // more is not counted
  LOOP_GUESS = 16,       // assumed iterations of a while
  MATRIX_WORK = 1,       // per multiply-add of a dot
  FFT_WORK = 16,         // per point of a Fourier transform
  FUNCTION_WORK = 8,     // per element of exp, log, divisions
};

static double matrix_work(const vt_op *op) {
  // Result elements times the terms of each sum; for a dot, operand elements of one side divided by
  // its share of the result.
  double result = (double)vt_type_elements(op->results[0].type);
  double lhs = (double)vt_type_elements(op->operands[0]->type);
  double rhs = (double)vt_type_elements(op->operands[1]->type);
  if (result <= 0) return 0;
  if (op->code == VT_OP_CONVOLUTION) {
    int64_t features = vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
    return result * rhs / (double)op->operands[1]->type.dims[features] * MATRIX_WORK;
  }
  double depth =
      lhs * rhs / result; // = depth^2 without batch dimensions, an overestimate with them
  double root = 1;
  while (root * root < depth) root *= 2;
  return result * root * MATRIX_WORK;
}

static double func_work(const vt_func *func, double limit);

static double op_work(const vt_op *op, double limit) {
  const vt_op_info *info = vt_op_info_get(op->code);
  double work = 0;
  for (uint32_t i = 0; i < op->result_count; i++)
    work += (double)vt_type_elements(op->results[i].type);
  // That of its body decides, so that a part of a program runs as all parts together do.
  if (info->cost == VT_COST_FREE || op->code == VT_OP_MANUAL_COMPUTATION) work = 0;
  if (op->code == VT_OP_FFT) work *= FFT_WORK;
  if (vt_linalg_supports(op)) { // each element of a matrix meets a row of it
    vt_type matrix = op->operands[0]->type;
    work *= (double)matrix.dims[matrix.rank - 1];
  }
  if (op->code == VT_OP_SCATTER) // many updates into a small array
    for (uint32_t i = op->result_count + 1; i < op->operand_count; i++)
      work += (double)vt_type_elements(op->operands[i]->type);
  if (info->cost == VT_COST_REDUCE && op->operand_count)
    work += (double)vt_type_elements(op->operands[0]->type);
  if (op->code == VT_OP_REDUCE && op->result_count > 1) // each op of its body meets each element
    for (const vt_op *inner = op->regions[0]->first; inner; inner = inner->next)
      work += (double)vt_type_elements(op->operands[0]->type);
  if (info->cost == VT_COST_MEDIUM || info->cost == VT_COST_EXPENSIVE) work *= FUNCTION_WORK;
  if (info->cost == VT_COST_MATRIX && op->operand_count == 2) work = matrix_work(op);
  if (info->flags & VT_OPF_CONTROL) {
    for (uint32_t r = 0; r < op->region_count; r++) work += func_work(op->regions[r], limit);
    if (op->code == VT_OP_WHILE) work *= LOOP_GUESS;
    if (vt_op_callee(op)) work += func_work(vt_op_callee(op), limit);
  }
  return work;
}

static double func_work(const vt_func *func, double limit) {
  double work = 0;
  for (const vt_op *op = func->first; op && work < limit; op = op->next) work += op_work(op, limit);
  return work;
}

double vt_host_work(const vt_op *op) {
  return op_work(op, MOST_WORK);
}

// The code generator failed, which is a bug: the evaluator runs those groups instead. Takes `why`.
static vt_status plan_without_kernels(vt_program *program, vt_status why) {
  vt_log(VT_LOG_WARNING, "program %s runs without generated code: %s", program->module->name,
         vt_status_message(why));
  vt_status_free(why);
  vt_map_free(&program->plans);
  vt_array_free(&program->plan_order);
  vt_array_free(&program->kernels);
  program->without_kernels = true;
  return vt_plan_build(program, program->module->main, VT_PLAN_MAIN, 1, &program->plan);
}

vt_pass_options vt_host_passes(bool exact_dots) {
  return (vt_pass_options){.exact_dots = exact_dots,
                           .bf16_dots = vt_host_fast_bf16(),
                           .min_bf16_depth = vt_host_min_bf16_depth()};
}

// The devices that run here.
static void find_here(vt_program *program) {
  const vt_host_options *options = &program->options;
  program->here = VT_NEW_ARRAY(&program->arena, int32_t, options->device_count);
  for (int32_t d = 0; d < options->device_count; d++)
    if (options->part_of[d] == options->only - 1) program->here[program->here_count++] = d;
}

// Whether waking another thread would take as long as the program.
static bool is_quick(const vt_program *program) {
  static const int64_t MOST_TIME = 16 * 1000000; // picoseconds
  if (program->small) return true;
  if (program->plan_order.size != 1) return false;
  int64_t time = 0;
  for (uint32_t i = 0; i < program->plan->step_count; i++) {
    int64_t step = vt_step_picoseconds(&program->plan->steps[i]);
    if (step < 0 || step > MOST_TIME) return false;
    time += step;
  }
  return time <= MOST_TIME;
}

static bool is_skipped(const char *pass) {
  const char *skip = getenv("VTPU_SKIP_PASSES");
  return vt_pass_listed(skip, skip ? strlen(skip) : 0, pass);
}

// Products out of loops; where they run in strips, what is left in parts. What a loop then keeps,
// and slices of its weights, move before it.
static vt_status cut_products(vt_program *program) {
  bool spread = false, cut = false, changed;
  if (!is_skipped("loop_products")) VT_TRY(vt_loop_products(program->module, &spread));
  if (vt_host_fast_bf16() && !is_skipped("sliced_products"))
    VT_TRY(vt_sliced_products(program->module, &cut));
  bool turned = false, derived = false;
  if (!is_skipped("derived_stacks")) VT_TRY(vt_derived_stacks(program->module, &derived));
  if (!is_skipped("row_orders")) VT_TRY(vt_row_orders(program->module, &turned));
  if (!spread && !cut && !turned && !derived) return VT_OK;
  vt_pass_options options = {0};
  vt_arena scratch = {.brief = true};
  vt_status st = vt_opt_hoist(program->module, &options, &scratch, &changed);
  if (!st) st = vt_opt_cse(program->module, &options, &scratch, &changed);
  if (!st) st = vt_opt_dce(program->module, &options, &scratch, &changed);
  vt_arena_free(&scratch);
  return st;
}

static vt_status save_walks(vt_program *program) {
  bool changed;
  if (!is_skipped("row_picks")) VT_TRY(vt_row_picks(program->module, &changed));
  return is_skipped("norm_sums") ? VT_OK : vt_norm_sums(program->module, &changed);
}

static vt_status keep_wide(vt_program *program) {
  bool changed;
  bool (*sums)(const vt_op *) = NULL; // of products that what follows can join
  if (vt_host_fast_bf16() && !is_skipped("wide_sums"))
    sums = vt_host_has_amx() ? vt_is_narrow_product : vt_is_narrow_pairs;
  if (!is_skipped("wide_chains")) VT_TRY(vt_wide_chains(program->module, sums, &changed));
  return sums ? vt_wide_sums(program->module, sums, &changed) : VT_OK;
}

static vt_status turn_images(vt_program *program) {
  if (is_skipped("image_layout")) return VT_OK;
  vt_image_options options = {.strips = vt_host_has_amx(), .always = program->options.turn_images};
  bool changed;
  return vt_image_layout(program->module, &options, &changed);
}

static vt_status plan_program(void *user) {
  vt_program *program = user;
  const vt_host_options *options = &program->options;
  if (options->part_of) find_here(program);
  program->small =
      !options->compile_all && func_work(program->module->main, SMALL_WORK) < SMALL_WORK;
  if (!program->small && !options->evaluator_only) {
    VT_TRY(save_walks(program));
    VT_TRY(keep_wide(program));
    VT_TRY(turn_images(program));
    VT_TRY(cut_products(program));
  }
  VT_TRY(vt_plan_build(program, program->module->main, VT_PLAN_MAIN, 1, &program->plan));
  if (program->no_memory) return vt_error_no_memory();
  vt_status st = vt_kernels_compile(program);
  if (st && vt_status_code(st) == VT_RESOURCE_EXHAUSTED) return st;
  if (st) VT_TRY(plan_without_kernels(program, st));
  for (size_t i = 0; i < program->plan_order.size; i++) {
    vt_plan *plan = program->plan_order.data[i];
    for (uint32_t s = 0; s < plan->step_count; s++)
      if (plan->steps[s].prepare) VT_TRY(plan->steps[s].prepare(plan, &plan->steps[s]));
    vt_plan_keep(plan);
    vt_plan_views(plan);
    VT_TRY(vt_plan_memory(plan));
  }
  program->quick = is_quick(program);
  return VT_OK;
}

bool vt_host_part_ready(const vt_module *module) {
  const vt_func *main = module->main;
  const vt_op *op = main->first;
  if (!op) return !main->return_count; // nothing to compute
  if (op->next || op->code != VT_OP_MANUAL_COMPUTATION || op->capture_count ||
      op->operand_count != main->param_count || op->result_count != main->return_count)
    return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i] != main->params[i]) return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (main->returns[i] != &op->results[i]) return false;
  return true;
}

vt_status vt_host_compile(vt_module *module, const vt_host_options *options,
                          vt_program **out_program) {
  *out_program = NULL;
  vt_program *program = calloc(1, sizeof *program);
  if (!program) {
    vt_module_destroy(module);
    return vt_error_no_memory();
  }
  program->module = module;
  program->options = *options;
  vt_attempt attempt; // the program holds resources outside arenas
  vt_status st = vt_attempt_run(&attempt, plan_program, program);
  if (st) vt_program_destroy(program);
  vt_attempt_end(&attempt);
  if (st) return st;
  program->timed = vt_log_on(VT_LOG_DEBUG);
  vt_program_log(program);
  *out_program = program;
  return VT_OK;
}

void vt_program_destroy(vt_program *program) {
  if (!program) return;
  vt_program_log_times(program);
  for (size_t i = program->owned.size; i-- > 0;)
    program->owned.data[i].destroy(program->owned.data[i].object);
  for (size_t i = 0; i < program->heap.size; i++) vt_host_free(program->heap.data[i]);
  vt_keep_drop(program);
  vt_array_free(&program->kept);
  vt_array_free(&program->owned);
  vt_array_free(&program->heap);
  vt_array_free(&program->plan_order);
  vt_array_free(&program->kernels);
  vt_map_free(&program->plans);
  vt_jit_destroy(program->jit);
  vt_arena_free(&program->arena);
  vt_module_destroy(program->module);
  free(program);
}

const vt_module *vt_program_module(const vt_program *program) {
  return program->module;
}

int64_t vt_program_code_bytes(const vt_program *program) {
  return vt_jit_code_bytes(program->jit);
}

int64_t vt_program_temp_bytes(const vt_program *program) {
  return program->plan->temp_bytes;
}

bool vt_program_is_quick(const vt_program *program) {
  return program->quick;
}

bool vt_program_may_alias(const vt_program *program, uint32_t param, uint32_t result) {
  vt_assert(param < program->plan->param_count && result < program->plan->result_count);
  return program->plan->alias_result[param] == (int32_t)result;
}
