// SPDX-License-Identifier: Apache-2.0
// pjrt_executable.c - slots of PJRT_Executable: what a compiled program says about itself.
//
// The lists that getters return are built once, when the program is compiled; the optimised text on
// first demand.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/memory.h"
#include "pjrt/objects.h"
#include "pjrt/proto.h"
#include "runtime/predict.h"

static void fill_lists(PJRT_Executable *executable, const vt_io *ios, size_t count,
                       vt_io_lists *lists) {
  vt_arena *arena = &executable->arena;
  size_t room = count ? count : 1;
  lists->count = count;
  lists->kinds = VT_NEW_ARRAY(arena, const char *, room);
  lists->kind_sizes = VT_NEW_ARRAY(arena, size_t, room);
  lists->layouts = VT_NEW_ARRAY(arena, PJRT_Layouts_MemoryLayout *, room);
  if (executable->info->partitions > 1 && count) { // nothing to report without results
    lists->shardings = VT_NEW_ARRAY(arena, const char *, room);
    lists->sharding_sizes = VT_NEW_ARRAY(arena, size_t, room);
  }
  for (size_t i = 0; i < count; i++) {
    lists->kinds[i] = vt_memory_kind_name(ios[i].memory);
    lists->kind_sizes[i] = strlen(lists->kinds[i]);
    lists->layouts[i] = vt_layout_create(arena, ios[i].layout, strlen(ios[i].layout));
    if (!lists->shardings) continue;
    lists->shardings[i] = ios[i].sharding.size ? (const char *)ios[i].sharding.data : "";
    lists->sharding_sizes[i] = ios[i].sharding.size;
  }
}

static void put_cost(PJRT_Executable *executable, const char *name, double value) {
  vt_assert(executable->cost_count < VT_COST_PROPERTIES);
  executable->costs[executable->cost_count++] =
      (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                        .name = name,
                        .name_size = strlen(name),
                        .type = PJRT_VALUE_FLOAT,
                        .f32 = (float)value,
                        .value_size = 1};
}

static void fill_results(PJRT_Executable *executable) {
  const vt_executable_info *info = executable->info;
  size_t dims = 0;
  for (uint32_t i = 0; i < info->result_count; i++) dims += (size_t)info->results[i].shard.rank;
  executable->result_types = VT_NEW_ARRAY(&executable->arena, int, info->result_count + 1);
  executable->result_dim_sizes = VT_NEW_ARRAY(&executable->arena, size_t, info->result_count + 1);
  executable->result_dims = VT_NEW_ARRAY(&executable->arena, int64_t, dims + 1);
  size_t at = 0;
  for (uint32_t i = 0; i < info->result_count; i++) {
    vt_type shard = info->results[i].shard;
    executable->result_types[i] = (int)shard.dtype;
    executable->result_dim_sizes[i] = (size_t)shard.rank;
    for (int32_t d = 0; d < shard.rank; d++) executable->result_dims[at++] = shard.dims[d];
  }
}

static vt_status fill_executable(void *user) {
  PJRT_Executable *executable = user;
  const vt_executable_info *info = executable->info;
  fill_lists(executable, info->params, info->param_count, &executable->params);
  fill_lists(executable, info->results, info->result_count, &executable->results);
  fill_results(executable);
  snprintf(executable->fingerprint, sizeof executable->fingerprint, "%016llx",
           (unsigned long long)info->fingerprint);
  put_cost(executable, "flops", info->roofline.flops);
  put_cost(executable, "bytes accessed", info->roofline.bytes);
  put_cost(executable, "transcendentals", info->roofline.transcendentals);
  put_cost(executable, "optimal_seconds", info->roofline.seconds);
  put_cost(executable, "optimal_usd", info->roofline.usd);
  return VT_OK;
}

vt_status vt_executable_wrap(vt_executable *runtime, PJRT_Executable **out_executable) {
  PJRT_Executable *executable = calloc(1, sizeof *executable);
  if (!executable) {
    vt_executable_release(runtime);
    return vt_error_no_memory();
  }
  atomic_init(&executable->refs, 1);
  pthread_mutex_init(&executable->text_lock, NULL);
  executable->executable = runtime;
  executable->info = vt_executable_get(runtime);
  vt_attempt attempt;
  vt_status st = vt_attempt_run(&attempt, fill_executable, executable);
  if (st)
    vt_executable_unwrap(executable);
  else
    *out_executable = executable;
  vt_attempt_end(&attempt);
  return st;
}

void vt_executable_unwrap(PJRT_Executable *executable) {
  vt_assert(!executable || atomic_load(&executable->refs) > 0);
  if (!executable || atomic_fetch_sub(&executable->refs, 1) != 1) return;
  vt_executable_release(executable->executable);
  vt_text_free(&executable->text);
  pthread_mutex_destroy(&executable->text_lock);
  vt_arena_free(&executable->arena);
  free(executable);
}

typedef struct compilation {
  const vt_slice *slice;
  const vt_split *split;
  vt_bytes code, options;
  vt_executable *executable;
} compilation;

static vt_status compile_read(void *user) {
  compilation *c = user;
  vt_arena scratch = {0};
  vt_compile_options read;
  vt_status st = vt_compile_options_read(c->options, &scratch, &read);
  int32_t partitions = read.partitions > 0 ? read.partitions : 1;
  int32_t replicas = read.replicas > 0 ? read.replicas : 1;
  if (!st && read.device_count && read.device_count != (uint32_t)partitions * (uint32_t)replicas)
    st = vt_error(VT_INVALID_ARGUMENT,
                  "device assignment of %u devices for %d replicas of %d partitions",
                  read.device_count, replicas, partitions);
  if (!st) {
    vt_array_push_in(&scratch, &read.xla_flags, '\0');
    vt_executable_options options = {.replicas = replicas,
                                     .partitions = partitions,
                                     .own_arrays = !read.partitioned,
                                     .device_ids = read.device_count ? read.device_ids : NULL,
                                     .xla_flags = read.xla_flags.data,
                                     .split = c->split,
                                     .bytes = c->options};
    vt_trace_span compile = {.line = VT_TRACE_COMPILES, .device = -1, .start_ns = vt_trace_now()};
    st = vt_executable_compile(c->slice, c->code, &options, &c->executable);
    compile.name = st ? "(refused)" : vt_executable_get(c->executable)->name;
    compile.end_ns = vt_trace_now();
    vt_trace_add(&compile);
  }
  vt_arena_free(&scratch);
  return st;
}

static vt_status compile_bytes(const vt_slice *slice, const vt_split *split, vt_bytes code,
                               vt_bytes options, PJRT_Executable **out_executable) {
  compilation c = {.slice = slice, .split = split, .code = code, .options = options};
  vt_attempt attempt;
  vt_status st = vt_attempt_run(&attempt, compile_read, &c);
  if (st) vt_executable_release(c.executable);
  vt_attempt_end(&attempt);
  return st ? st : vt_executable_wrap(c.executable, out_executable);
}

// The importer sees which of them it is.
static bool is_known_format(const PJRT_Program *program) {
  static const char *const known[] = {"mlir", "hlo", "hlo_with_config"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i]) == program->format_size &&
        !memcmp(known[i], program->format, program->format_size))
      return true;
  return false;
}

vt_status vt_program_compile(const vt_slice *slice, const vt_split *split,
                             const PJRT_Program *program, vt_bytes options,
                             PJRT_Executable **out_executable) {
  if (!program || !program->code) return vt_error(VT_INVALID_ARGUMENT, "no program to compile");
  if (!is_known_format(program))
    return vt_error(VT_UNIMPLEMENTED,
                    "program format \"%.*s\"; vtpu takes \"mlir\", \"hlo\" and \"hlo_with_config\"",
                    (int)program->format_size, program->format);
  vt_bytes code = {(const uint8_t *)program->code, program->code_size};
  return compile_bytes(slice, split, code, options, out_executable);
}

vt_status vt_pjrt_Compile(PJRT_Compile_Args *args) {
  vt_bytes options = {(const uint8_t *)args->compile_options, args->compile_options_size};
  return vt_program_compile(&args->topology->slice, NULL, args->program, options,
                            &args->executable);
}

// Serialised form: "vtpuexe1", then as 64-bit little-endian numbers the hash of the rest and of the
// build, the sizes of options and program; then both. Loading compiles again from them: that takes
// milliseconds, and no byte from a file is ever run as code.
static const char container_magic[8] = "vtpuexe1";
enum { CONTAINER_HEAD = 32 };

static void put_u64(uint8_t *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_u64(const uint8_t *at) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static uint64_t container_hash(const uint8_t *bytes, size_t size) {
  vt_assert(size >= CONTAINER_HEAD);
  const char *version = vt_plugin_version();
  return vt_hash_bytes(bytes + 16, size - 16, vt_hash_bytes(version, strlen(version), 1));
}

static void free_serialized(PJRT_SerializedExecutable *owner) {
  free(owner);
}

vt_status vt_pjrt_Executable_Serialize(PJRT_Executable_Serialize_Args *args) {
  const vt_executable_info *info = args->executable->info;
  size_t size = CONTAINER_HEAD + info->options.size + info->program.size;
  uint8_t *bytes = malloc(size);
  if (!bytes) return vt_error_no_memory();
  memcpy(bytes, container_magic, 8);
  put_u64(bytes + 16, info->options.size);
  put_u64(bytes + 24, info->program.size);
  if (info->options.size) memcpy(bytes + CONTAINER_HEAD, info->options.data, info->options.size);
  memcpy(bytes + CONTAINER_HEAD + info->options.size, info->program.data, info->program.size);
  put_u64(bytes + 8, container_hash(bytes, size));
  args->serialized_bytes = (const char *)bytes;
  args->serialized_bytes_size = size;
  args->serialized_executable = (PJRT_SerializedExecutable *)bytes;
  args->serialized_executable_deleter = free_serialized;
  return VT_OK;
}

vt_status vt_program_deserialize(const vt_slice *slice, const vt_split *split, vt_bytes bytes,
                                 vt_bytes options, PJRT_Executable **out_executable) {
  if (bytes.size < CONTAINER_HEAD || memcmp(bytes.data, container_magic, 8))
    return vt_error(VT_INVALID_ARGUMENT, "not an executable that vtpu serialised");
  if (get_u64(bytes.data + 8) != container_hash(bytes.data, bytes.size))
    return vt_error(VT_FAILED_PRECONDITION,
                    "serialised executable is damaged or from another build than %s; compile again",
                    vt_plugin_version());
  uint64_t option_size = get_u64(bytes.data + 16), program_size = get_u64(bytes.data + 24);
  uint64_t rest = bytes.size - CONTAINER_HEAD;
  if (option_size > rest || program_size != rest - option_size)
    return vt_error(VT_INVALID_ARGUMENT, "serialised executable: sizes do not add up");
  vt_bytes own = {bytes.data + CONTAINER_HEAD, (size_t)option_size};
  vt_bytes program = {bytes.data + CONTAINER_HEAD + option_size, (size_t)program_size};
  return compile_bytes(slice, split, program, options.size ? options : own, out_executable);
}

vt_status vt_pjrt_Executable_Destroy(PJRT_Executable_Destroy_Args *args) {
  vt_executable_unwrap(args->executable);
  return VT_OK;
}

vt_status vt_pjrt_Executable_Name(PJRT_Executable_Name_Args *args) {
  args->executable_name = args->executable->info->name;
  args->executable_name_size = strlen(args->executable_name);
  return VT_OK;
}

vt_status vt_pjrt_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args) {
  args->num_replicas = (size_t)args->executable->info->replicas;
  return VT_OK;
}

vt_status vt_pjrt_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args) {
  const vt_executable_info *info = args->executable->info;
  args->num_partitions = (size_t)(info->partitions / info->replicas);
  return VT_OK;
}

vt_status vt_pjrt_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args) {
  args->num_outputs = args->executable->info->result_count;
  return VT_OK;
}

vt_status vt_pjrt_Executable_SizeOfGeneratedCodeInBytes(
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args) {
  args->size_in_bytes = args->executable->info->code_bytes;
  return VT_OK;
}

// What the time model says, at the first call; a program that it refuses is without it.
static void add_prediction(PJRT_Executable *executable) {
  const vt_prediction *p;
  vt_status st = vt_executable_predict(executable->executable, &p);
  vt_lock(&executable->text_lock);
  if (!st && !executable->predicted) {
    put_cost(executable, "predicted_seconds", p->timing.seconds);
    put_cost(executable, "predicted_usd", p->usd);
    put_cost(executable, "predicted_mfu", p->mfu);
  }
  executable->predicted = true;
  vt_unlock(&executable->text_lock);
  vt_status_free(st);
}

vt_status vt_pjrt_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args) {
  add_prediction(args->executable);
  args->properties = args->executable->costs;
  args->num_properties = args->executable->cost_count;
  return VT_OK;
}

vt_status vt_pjrt_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args) {
  args->num_outputs = args->executable->results.count;
  args->memory_kinds = args->executable->results.kinds;
  args->memory_kind_sizes = args->executable->results.kind_sizes;
  return VT_OK;
}

vt_status vt_pjrt_Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args *args) {
  args->num_parameters = args->executable->params.count;
  args->memory_kinds = args->executable->params.kinds;
  args->memory_kind_sizes = args->executable->params.kind_sizes;
  return VT_OK;
}

vt_status vt_pjrt_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args) {
  args->output_types = args->executable->result_types;
  args->num_output_types = args->executable->results.count;
  return VT_OK;
}

vt_status vt_pjrt_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args) {
  args->num_outputs = args->executable->results.count;
  args->dims = args->executable->result_dims;
  args->dim_sizes = args->executable->result_dim_sizes;
  return VT_OK;
}

vt_status vt_pjrt_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args) {
  args->executable_fingerprint = args->executable->fingerprint;
  args->executable_fingerprint_size = sizeof args->executable->fingerprint - 1;
  return VT_OK;
}

static void free_options(PJRT_SerializedCompileOptions *owner) {
  (void)owner;
}

vt_status vt_pjrt_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args) {
  vt_bytes options = args->executable->info->options;
  args->serialized_bytes = (const char *)options.data;
  args->serialized_bytes_size = options.size;
  args->serialized_compile_options = (PJRT_SerializedCompileOptions *)args->executable;
  args->serialized_compile_options_deleter = free_options;
  return VT_OK;
}

// The client does not clear the structure: every field is written.
vt_status
vt_pjrt_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args) {
  const vt_executable_info *info = args->executable->info;
  const vt_hbm_use *use = NULL;
  VT_TRY(vt_executable_memory(args->executable->executable, &use));
  args->generated_code_size_in_bytes = info->code_bytes;
  args->argument_size_in_bytes = info->argument_bytes;
  args->output_size_in_bytes = info->output_bytes;
  args->alias_size_in_bytes = info->alias_bytes;
  args->temp_size_in_bytes = use->temp_bytes;
  args->host_generated_code_size_in_bytes = 0;
  args->host_argument_size_in_bytes = info->host_argument_bytes;
  args->host_output_size_in_bytes = info->host_output_bytes;
  args->host_alias_size_in_bytes = 0;
  args->host_temp_size_in_bytes = info->host_temp_bytes;
  args->peak_memory_in_bytes = use->peak_bytes;
  args->total_size_in_bytes = use->peak_bytes;
  args->total_allocation_bytes = use->peak_bytes;
  args->indefinite_allocations = 0;
  args->peak_unpadded_heap_bytes = use->unpadded_bytes;
  return VT_OK;
}

// Always called twice: without a buffer for the code (code_size is not set then), and with one.
vt_status vt_pjrt_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args) {
  PJRT_Executable *executable = args->executable;
  vt_lock(&executable->text_lock);
  vt_status st = VT_OK;
  if (!executable->text.size)
    st = vt_executable_hlo(executable->executable, true, &executable->text);
  vt_unlock(&executable->text_lock);
  if (st) return st;
  PJRT_Program *program = args->program;
  program->format = "hlo_with_config"; // xla.HloModuleProtoWithConfig
  program->format_size = strlen(program->format);
  if (!program->code) {
    program->code_size = executable->text.size;
    return VT_OK;
  }
  if (program->code_size < executable->text.size)
    return vt_error(VT_INVALID_ARGUMENT, "space for %zu bytes of code, %zu needed",
                    program->code_size, executable->text.size);
  memcpy(program->code, executable->text.data, executable->text.size);
  return VT_OK;
}
