// SPDX-License-Identifier: Apache-2.0
// driver.c - calibrated models, their compiled form and their runs (driver.h).
// In: bytecode, arrays. Out: results, saved models. Owns: module, network, code, plan, machine of
// each model.
#include "tpu1/driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "import/import.h"
#include "passes/passes.h"

struct vt_tpu1_model {
  uint8_t *program;
  size_t program_size;
  double *ranges;
  int64_t range_count;
  int bits;
  vt_module *module;
  bool compiled;
  vt_tpu1_chip chip;
  vt_tpu1_network network;
  vt_tpu1_compiled code;
  vt_tpu1_program init, run;
  vt_tpu1_plan init_plan, plan;
  vt_tpu1_timing timing;
  vt_tpu1_machine *machine;
  uint8_t *host_in, *host_out;
};

// The module that ids of ranges refer to: imported, with calls inlined, simplified without changing
// any f32 result.
static vt_status module_load(vt_bytes program, vt_module **out_module) {
  vt_status st = VT_OK;
  *out_module = NULL;
  VT_TRY(vt_import(program, out_module));
  vt_pass_options options = {.exact_dots = true};
  st = vt_passes_run(*out_module, &options);
  if (st) {
    vt_module_destroy(*out_module);
    *out_module = NULL;
    return st;
  }
  vt_func_number((*out_module)->main);
  return VT_OK;
}

static vt_status model_create(vt_bytes program, int bits, vt_tpu1_model **out_model) {
  vt_status st = VT_OK;
  if (bits != 8 && bits != 16)
    return vt_error(VT_INVALID_ARGUMENT, "activations of %d bits: 8 or 16", bits);
  vt_tpu1_model *m = calloc(1, sizeof *m);
  if (!m) return vt_error_no_memory();
  m->bits = bits;
  m->program_size = program.size;
  m->program = malloc(program.size + 1);
  if (!m->program) VT_TRY_OUT(vt_error_no_memory());
  memcpy(m->program, program.data, program.size);
  VT_TRY_OUT(module_load(program, &m->module));
  m->range_count = m->module->main->value_count;
  m->ranges = calloc((size_t)m->range_count + 1, sizeof *m->ranges);
  if (!m->ranges) VT_TRY_OUT(vt_error_no_memory());
out:
  if (st) {
    vt_tpu1_model_destroy(m);
    m = NULL;
  }
  *out_model = m;
  return st;
}

static vt_dtype dtype_of(const vt_npz_array *a) {
  switch (a->kind) {
  case 'f':
    return a->item_bytes == 4 ? VT_F32 : a->item_bytes == 8 ? VT_F64 : VT_DTYPE_INVALID;
  case 'u':
    return a->item_bytes == 1 ? VT_U8 : VT_DTYPE_INVALID;
  case 'i':
    return a->item_bytes == 1 ? VT_S8 : a->item_bytes == 4 ? VT_S32 : VT_DTYPE_INVALID;
  default:
    return VT_DTYPE_INVALID;
  }
}

vt_status vt_tpu1_model_calibrate(vt_bytes program, const vt_npz *examples, int bits,
                                  vt_tpu1_model **out_model) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_tpu1_model *m = NULL;
  vt_tpu1_network probe = {0};
  *out_model = NULL;
  VT_TRY(model_create(program, bits, &m));
  const vt_func *main = m->module->main;
  VT_TRY_OUT(
      vt_tpu1_network_make(m->module, bits == 16, &probe)); // reject before the work, not after
  if (examples->count < main->param_count)
    VT_TRY_OUT(vt_error(VT_INVALID_ARGUMENT,
                        "the program has %u parameters, there are %u calibration arrays",
                        (unsigned)main->param_count, (unsigned)examples->count));
  vt_tensor *inputs = VT_NEW_ARRAY(&arena, vt_tensor, main->param_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    const vt_npz_array *a = &examples->arrays[i];
    inputs[i] = (vt_tensor){vt_type_make(&arena, dtype_of(a), a->rank, a->dims), a->data};
  }
  VT_TRY_OUT(vt_tpu1_calibrate(m->module, inputs, m->ranges));
out:
  vt_tpu1_network_free(&probe);
  vt_arena_free(&arena);
  if (st) {
    vt_tpu1_model_destroy(m);
    m = NULL;
  }
  *out_model = m;
  return st;
}

vt_status vt_tpu1_model_parse(vt_bytes bytes, vt_tpu1_model **out_model) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_npz npz;
  vt_tpu1_model *m = NULL;
  *out_model = NULL;
  VT_TRY_OUT(vt_npz_parse(bytes, &arena, &npz));
  const vt_npz_array *program = vt_npz_find(&npz, "program"), *ranges = vt_npz_find(&npz, "ranges"),
                     *bits = vt_npz_find(&npz, "bits");
  if (!program || !ranges || !bits || ranges->kind != 'f' || ranges->item_bytes != 8 ||
      bits->kind != 'i' || bits->item_bytes != 4 || vt_npz_bytes(bits) != 4)
    VT_TRY_OUT(
        vt_error(VT_INVALID_ARGUMENT, "not a TPU v1 model: it has no program, ranges and bits"));
  int32_t bit_count;
  memcpy(&bit_count, bits->data, sizeof bit_count);
  VT_TRY_OUT(model_create((vt_bytes){program->data, (size_t)vt_npz_bytes(program)}, bit_count, &m));
  if (vt_npz_bytes(ranges) != m->range_count * 8)
    VT_TRY_OUT(vt_error(VT_INVALID_ARGUMENT,
                        "the model has ranges for %lld values, its program %lld: calibrate again",
                        (long long)(vt_npz_bytes(ranges) / 8), (long long)m->range_count));
  memcpy(m->ranges, ranges->data, (size_t)m->range_count * 8);
out:
  vt_arena_free(&arena);
  if (st) {
    vt_tpu1_model_destroy(m);
    m = NULL;
  }
  *out_model = m;
  return st;
}

vt_status vt_tpu1_model_save(const vt_tpu1_model *m, const char *path) {
  int32_t bits = m->bits;
  const vt_npz_array arrays[] = {
      {.name = "program",
       .kind = 'u',
       .item_bytes = 1,
       .rank = 1,
       .dims = {(int64_t)m->program_size},
       .data = m->program},
      {.name = "ranges",
       .kind = 'f',
       .item_bytes = 8,
       .rank = 1,
       .dims = {m->range_count},
       .data = m->ranges},
      {.name = "bits", .kind = 'i', .item_bytes = 4, .rank = 1, .dims = {1}, .data = &bits}};
  return vt_npz_write(path, arrays, 3);
}

static void compiled_free(vt_tpu1_model *m) {
  vt_tpu1_machine_destroy(m->machine);
  vt_tpu1_timing_free(&m->timing);
  vt_tpu1_plan_free(&m->plan);
  vt_tpu1_plan_free(&m->init_plan);
  vt_tpu1_compiled_free(&m->code);
  vt_tpu1_network_free(&m->network);
  free(m->host_in);
  free(m->host_out);
  m->machine = NULL;
  m->host_in = m->host_out = NULL;
  memset(&m->timing, 0, sizeof m->timing);
  memset(&m->plan, 0, sizeof m->plan);
  memset(&m->init_plan, 0, sizeof m->init_plan);
  memset(&m->code, 0, sizeof m->code);
  memset(&m->network, 0, sizeof m->network);
  m->compiled = false;
}

void vt_tpu1_model_destroy(vt_tpu1_model *m) {
  if (!m) return;
  compiled_free(m);
  vt_module_destroy(m->module);
  free(m->ranges);
  free(m->program);
  free(m);
}

static vt_status load_constants(vt_tpu1_model *m) {
  VT_TRY(vt_tpu1_plan_make(&m->init, &m->chip, &m->init_plan));
  VT_TRY(vt_tpu1_machine_create(&m->chip, &m->machine));
  return vt_tpu1_run_serial(m->machine, &m->init_plan,
                            (vt_tpu1_host){m->code.constants.data, NULL});
}

vt_status vt_tpu1_model_compile(vt_tpu1_model *m, const vt_tpu1_chip *chip) {
  vt_status st = VT_OK;
  if (m->compiled && memcmp(&m->chip, chip, sizeof *chip) == 0) return VT_OK;
  compiled_free(m);
  m->chip = *chip;
  VT_TRY_OUT(vt_tpu1_network_make(m->module, m->bits == 16, &m->network));
  VT_TRY_OUT(vt_tpu1_network_quantise(&m->network, m->ranges));
  VT_TRY_OUT(vt_tpu1_network_compile(&m->network, &m->chip, &m->code));
  m->init = vt_tpu1_build_program(&m->code.init);
  m->run = vt_tpu1_build_program(&m->code.run);
  m->run.weights = m->code.weights;
  VT_TRY_OUT(vt_tpu1_plan_make(&m->run, &m->chip, &m->plan));
  vt_tpu1_time(&m->plan, &m->chip, true, &m->timing);
  VT_TRY_OUT(load_constants(m));
  m->host_in = malloc((size_t)m->run.host_in_bytes + 1);
  m->host_out = malloc((size_t)m->run.host_out_bytes + 1);
  if (!m->host_in || !m->host_out) VT_TRY_OUT(vt_error_no_memory());
  m->compiled = true;
out:
  if (st) compiled_free(m);
  return st;
}

const vt_tpu1_network *vt_tpu1_model_network(const vt_tpu1_model *model) {
  return &model->network;
}
const vt_tpu1_plan *vt_tpu1_model_plan(const vt_tpu1_model *model) {
  return &model->plan;
}
const vt_tpu1_timing *vt_tpu1_model_timing(const vt_tpu1_model *model) {
  return &model->timing;
}

static vt_status compare(const vt_tpu1_network *net, int node, const int32_t *chip,
                         const int32_t *evaluator) {
  const vt_tpu1_qnode *n = &net->nodes.data[node];
  for (int64_t i = 0, count = vt_tpu1_qnode_size(n); i < count; i++)
    if (chip[i] != evaluator[i])
      return vt_error(VT_INTERNAL, "node %d, element %lld: the chip has %d, the int8 evaluator %d",
                      node, (long long)i, chip[i], evaluator[i]);
  return VT_OK;
}

// Reads the outputs from host memory; in a run with `check`, `values` hold the evaluator's
// integers.
static vt_status collect(vt_tpu1_model *m, const vt_tensor *host_values, int32_t *const *integers,
                         vt_tensor *results) {
  const vt_tpu1_network *net = &m->network;
  const uint8_t *from = m->host_out;
  vt_status st = VT_OK;
  for (size_t i = 0; i < net->outputs.size && !st; i++) {
    const vt_tpu1_qoutput *o = &net->outputs.data[i];
    if (o->on_host) {
      st = vt_tpu1_network_output(net, (int)i, NULL, host_values, &results[i]);
      continue;
    }
    int32_t *got =
        malloc(sizeof *got * (size_t)(vt_tpu1_qnode_size(&net->nodes.data[o->ref.node]) + 1));
    if (!got) return vt_error_no_memory();
    from += vt_tpu1_tensor_unpack(&m->code.tensors[o->ref.node], from, got);
    if (integers) st = compare(net, o->ref.node, got, integers[o->ref.node]);
    if (!st) st = vt_tpu1_network_output(net, (int)i, got, host_values, &results[i]);
    free(got);
  }
  return st;
}

vt_status vt_tpu1_model_evaluate(vt_tpu1_model *m, const vt_tpu1_chip *chip, const vt_tensor *args,
                                 vt_tensor *results, bool check) {
  VT_TRY(vt_tpu1_model_compile(m, chip));
  const vt_tpu1_network *net = &m->network;
  vt_arena arena = {0};
  vt_status st = VT_OK;
  vt_tensor *values = VT_NEW_ARRAY(&arena, vt_tensor, m->module->main->value_count + 1);
  int32_t **integers = VT_NEW_ARRAY(&arena, int32_t *, net->nodes.size + 1);
  VT_TRY_OUT(vt_tpu1_network_inputs(net, args, &arena, values, integers));
  uint8_t *to = m->host_in;
  for (size_t i = 0; i < net->nodes.size; i++)
    if (net->nodes.data[i].kind == VT_TPU1_Q_INPUT)
      to += vt_tpu1_tensor_pack(&m->code.tensors[i], integers[i], to);
  VT_TRY_OUT(vt_tpu1_run_serial(m->machine, &m->plan, (vt_tpu1_host){m->host_in, m->host_out}));
  if (check) VT_TRY_OUT(vt_tpu1_network_evaluate(net, integers));
  VT_TRY_OUT(collect(m, values, check ? integers : NULL, results));
out:
  for (size_t i = 0; i < net->nodes.size; i++) free(integers[i]);
  vt_arena_free(&arena);
  return st;
}

// ---- driver ----

struct vt_tpu1_driver {
  vt_tpu1_chip chip;
  vt_map models; // bytes of a model to vt_tpu1_model
};

vt_tpu1_driver *vt_tpu1_driver_create(const vt_tpu1_chip *chip) {
  vt_tpu1_driver *d = calloc(1, sizeof *d);
  if (d) d->chip = *chip;
  return d;
}

void vt_tpu1_driver_destroy(vt_tpu1_driver *d) {
  if (!d) return;
  for (size_t i = 0; i < d->models.size; i++) vt_tpu1_model_destroy(d->models.entries[i].value);
  vt_map_free(&d->models);
  free(d);
}

vt_status vt_tpu1_driver_evaluate(vt_tpu1_driver *d, vt_bytes model, const vt_tensor *args,
                                  vt_tensor *results, bool *out_compiled) {
  vt_tpu1_model *m = vt_map_find(&d->models, model.data, model.size);
  if (out_compiled) *out_compiled = m == NULL;
  if (!m) {
    VT_TRY(vt_tpu1_model_parse(model, &m));
    *vt_map_at(&d->models, model.data, model.size) = m;
  }
  return vt_tpu1_model_evaluate(m, &d->chip, args, results, false);
}
