// SPDX-License-Identifier: Apache-2.0
// mosaic_fuzz.h - what the fuzz targets of kernels do with an input: the bytecode of a kernel, or a
// whole backend_config when it begins with a brace. It gives a verified kernel or an error, and a
// kernel that is small runs on zeros or fails.
#ifndef VT_MOSAIC_MOSAIC_FUZZ_H
#define VT_MOSAIC_MOSAIC_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"
#include "ir/number.h"
#include "mosaic/mosaic_fixture.h"
#include "mosaic/mosaic_ir.h"

// What happens between reading and running.
typedef struct fuzz_way {
  uint64_t check_seed;
  vt_status (*compile)(const vt_module *module, void **out_code); // NULL: it is interpreted
  void (*release)(void *code);
} fuzz_way;

enum { MAX_BYTES = 1 << 16, MAX_TRIPS = 8, MAX_POINTS = 16, MAX_WORK = 4000 };

// ---- what may run -------------------------------------------------------------------------------

static bool small_type(vt_mtype type) {
  int64_t n = 1;
  for (int32_t d = 0; d < type.rank; d++) {
    n *= type.dims[d] < 0 ? 1 : type.dims[d];
    if (n > MAX_BYTES / 8) return false;
  }
  return true;
}

static bool constant(const vt_mvalue *value, int64_t *out) {
  if (!value->op || value->op->code != VT_MOP_CONSTANT) return false;
  const vt_literal *literal = vt_mop_attr(value->op, VT_MATTR_VALUE)->literal;
  *out = vt_int_load(literal->type.dtype, literal->data, 0);
  return true;
}

// The ops that run when the block does; -1 when too many, or when that depends on data.
static int64_t work_of(const vt_mblock *block) {
  int64_t work = 0;
  for (uint32_t i = 0; i < block->arg_count; i++)
    if (!small_type(block->args[i].type)) return -1;
  for (const vt_mop *op = block->first; op; op = op->next) {
    int64_t low, high, step, trips = 1;
    for (uint32_t i = 0; i < op->result_count; i++)
      if (!small_type(op->results[i].type)) return -1;
    if (op->code == VT_MOP_WHILE || op->code == VT_MOP_LOG_VALUES || op->code == VT_MOP_LOG_BUFFER)
      return -1;
    if (op->code == VT_MOP_FOR) {
      if (!constant(op->operands[0], &low) || !constant(op->operands[1], &high) ||
          !constant(op->operands[2], &step) || low < 0 || high > MAX_TRIPS || step < 1)
        return -1;
      trips = high;
    }
    work++;
    for (uint32_t b = 0; b < op->block_count; b++) {
      int64_t inner = work_of(op->blocks[b]);
      if (inner < 0) return -1;
      work += inner * trips;
    }
    if (work > MAX_WORK) return -1;
  }
  return work;
}

static bool may_run(const vt_mosaic *k) {
  int64_t points = 1;
  for (uint32_t d = 0; d < k->grid_rank; d++) {
    if (k->grid[d] != INT64_MIN) points *= k->grid[d];
    if (points > MAX_POINTS) return false;
  }
  for (uint32_t i = 0; i < k->func_count; i++)
    if (work_of(k->funcs[i].block) < 0) return false;
  return true;
}

// ---- running ------------------------------------------------------------------------------------

// A call with an array of the block's own shape for each window, the last of which is the result.
static vt_op *make_call(vt_module *module, const vt_mosaic *k, vt_string config) {
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  for (uint32_t i = 0; i < k->dynamic_count; i++)
    (void)vt_func_add_param(func, (vt_type){VT_S32, 0, NULL});
  const vt_mvalue *args = k->body->block->args + k->grid_rank;
  uint32_t arrays = k->prefetch_count + k->window_count;
  vt_type result = {VT_F32, 0, NULL};
  for (uint32_t i = 0; i < arrays; i++) {
    vt_type type =
        vt_type_make(&module->arena, args[i].type.dtype, args[i].type.rank, args[i].type.dims);
    if (i + 1 == arrays)
      result = type;
    else
      (void)vt_func_add_param(func, type);
  }
  vt_op *op = vt_op_create(func, VT_OP_CUSTOM_CALL, &vt_loc_unknown, func->param_count,
                           func->params, arrays > 0, &result, 0);
  vt_op_append(func, op);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, "tpu_custom_call");
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_BACKEND_CONFIG, .count = 1, .string = config});
  return op;
}

static void run(const vt_mosaic *k, vt_string config, const fuzz_way *way) {
  vt_module *module = vt_module_create();
  vt_op *op = make_call(module, k, config);
  vt_tensor *tensors = VT_NEW_ARRAY(&module->arena, vt_tensor, op->operand_count + 1);
  void *code = NULL;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    tensors[i].type = op->operands[i]->type;
    tensors[i].data =
        vt_arena_push_aligned(&module->arena, (size_t)vt_type_bytes(tensors[i].type) + 8, 64);
  }
  vt_tensor out = {0};
  if (op->result_count) {
    out.type = op->results[0].type;
    out.data = vt_arena_push_aligned(&module->arena, (size_t)vt_type_bytes(out.type) + 8, 64);
  }
  vt_eval_env env = {0};
  vt_mosaic_options options = {.chip = "v5e", .check_seed = way->check_seed};
  vt_status st = vt_mosaic_attach(module, &options);
  if (!st && way->compile) st = way->compile(module, &code);
  if (!st) st = vt_eval_op(op, &env, tensors, &out);
  vt_status_free(st);
  if (way->release) way->release(code);
  vt_module_destroy(module);
}

static inline int fuzz_kernel(const uint8_t *data, size_t size, const fuzz_way *way) {
  vt_arena arena = {0};
  vt_text config = {0}, printed = {0};
  vt_mosaic *kernel;
  if (size && data[0] == '{') {
    vt_text_put_n(&config, data, size);
  } else {
    fixture_config((vt_bytes){data, size}, "", &config);
  }
  vt_string text = {vt_text_string(&config), config.size};
  vt_status st = vt_mosaic_read(text, &arena, &kernel);
  if ((st == VT_OK) != (kernel != NULL)) abort();
  if (kernel) vt_mosaic_print(kernel, &printed);
  if (kernel && may_run(kernel)) run(kernel, text, way);
  vt_status_free(st);
  vt_text_free(&config);
  vt_text_free(&printed);
  vt_arena_free(&arena);
  return 0;
}

#endif
