// SPDX-License-Identifier: Apache-2.0
// gemm_peak.c - the rate of oneDNN's matrix product on this machine, and of reading memory: the
// references for bench.py and peers.py. Out: one line of JSON, GFLOP/s of a square product of 2048
// in bf16 (f32 result) and in f32, and GB/s, best of several runs.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <oneapi/dnnl/dnnl.h>

enum { SIZE = 2048, RUNS = 8 };
static const size_t READ_BYTES = 512 << 20;

static void check(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return;
  fprintf(stderr, "gemm_peak: %s: status %d\n", what, (int)status);
  exit(1);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dnnl_memory_t operand(const_dnnl_primitive_desc_t primitive, dnnl_query_t which,
                             dnnl_engine_t engine) {
  const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(primitive, which, 0);
  dnnl_memory_t memory;
  check(dnnl_memory_create(&memory, layout, engine, DNNL_MEMORY_ALLOCATE), "memory");
  return memory;
}

// Returns GFLOP/s, or 0 if the library has no such product for this CPU.
static double measure(dnnl_data_type_t type, dnnl_engine_t engine, dnnl_stream_t stream) {
  dnnl_dims_t dims = {SIZE, SIZE};
  dnnl_memory_desc_t in, out;
  check(dnnl_memory_desc_init_by_tag(&in, 2, dims, type, dnnl_format_tag_any), "layout");
  check(dnnl_memory_desc_init_by_tag(&out, 2, dims, dnnl_f32, dnnl_ab), "layout");
  dnnl_matmul_desc_t matmul;
  check(dnnl_matmul_desc_init(&matmul, &in, &in, NULL, &out), "matmul");
  dnnl_primitive_desc_t description;
  if (dnnl_primitive_desc_create(&description, &matmul, NULL, engine, NULL)) return 0;
  dnnl_primitive_t primitive;
  check(dnnl_primitive_create(&primitive, description), "primitive");
  dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, operand(description, dnnl_query_src_md, engine)},
                            {DNNL_ARG_WEIGHTS, operand(description, dnnl_query_weights_md, engine)},
                            {DNNL_ARG_DST, operand(description, dnnl_query_dst_md, engine)}};
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    double start = now_s();
    check(dnnl_primitive_execute(primitive, stream, 3, args), "execute");
    check(dnnl_stream_wait(stream), "wait");
    double rate = 2.0 * SIZE * SIZE * SIZE / (now_s() - start) * 1e-9;
    if (run > 0 && rate > best) best = rate;
  }
  for (int i = 0; i < 3; i++) dnnl_memory_destroy(args[i].memory);
  dnnl_primitive_destroy(primitive);
  dnnl_primitive_desc_destroy(description);
  return best;
}

// GB/s of all threads that add up one block, larger than the caches.
static double measure_reads(void) {
  int64_t count = (int64_t)(READ_BYTES / sizeof(float));
  float *block = malloc(READ_BYTES), sum = 0;
  if (!block) return 0;
  memset(block, 0, READ_BYTES);
  double best = 0;
  for (int run = 0; run < RUNS; run++) {
    double start = now_s();
#pragma omp parallel for simd reduction(+ : sum) schedule(static)
    for (int64_t i = 0; i < count; i++) sum += block[i];
    double rate = (double)READ_BYTES / (now_s() - start) * 1e-9;
    if (run > 0 && rate > best && sum == 0) best = rate;
  }
  free(block);
  return best;
}

int main(void) {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
  check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
  double bf16 = measure(dnnl_bf16, engine, stream), f32 = measure(dnnl_f32, engine, stream);
  printf("{\"bf16\": %.1f, \"f32\": %.1f, \"read_gb_s\": %.1f}\n", bf16, f32, measure_reads());
  dnnl_stream_destroy(stream);
  dnnl_engine_destroy(engine);
  return 0;
}
