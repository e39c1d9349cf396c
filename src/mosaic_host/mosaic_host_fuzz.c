// SPDX-License-Identifier: Apache-2.0
// mosaic_host_fuzz.c - reads kernels, compiles them, however small, and runs the code.
#include "mosaic/mosaic_fuzz.h"
#include "mosaic_host/mosaic_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static vt_status compile(const vt_module *module, void **out_code) {
  vt_mkernels *kernels = NULL;
  vt_status st = vt_mkernels_compile(module, false, true, &kernels);
  *out_code = kernels;
  return st;
}

static void release(void *code) {
  vt_mkernels_destroy(code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return fuzz_kernel(data, size, &(fuzz_way){.compile = compile, .release = release});
}
