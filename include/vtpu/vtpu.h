/* SPDX-License-Identifier: Apache-2.0
 *
 * vtpu.h - virtual TPUs from C: open a slice, load a StableHLO program, run it, and read what a
 * real slice would need.
 *
 * Ownership: the caller owns slices, programs and errors, and frees each with the function named
 * next to it; everything else that a function returns is borrowed from the object it was called on.
 * Threads: objects may be shared; calls on one program are serialised.
 * Errors: a function that can fail returns NULL on success, or an error to be freed with
 * vtpu_error_free.
 */
#ifndef VTPU_VTPU_H
#define VTPU_VTPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VTPU_API __attribute__((visibility("default")))
#else
#define VTPU_API
#endif

typedef struct PJRT_Error vtpu_error;
typedef struct vtpu_slice vtpu_slice;
typedef struct vtpu_program vtpu_program;

VTPU_API const char *vtpu_version(void); /* "0.1.0" */
VTPU_API const char *vtpu_error_message(const vtpu_error *error);
VTPU_API int vtpu_error_code(
    const vtpu_error *error); /* a PJRT_Error_Code: 3 invalid argument, 8 exhausted, ... */
VTPU_API void vtpu_error_free(vtpu_error *error); /* accepts NULL */

/* A slice by accelerator type ("v3-8", "v5litepod-4") or topology ("v5e:4x4"), or several of them
 * as "v6e-256 x2". NULL: VTPU_ACCELERATOR_TYPE, else TPU_ACCELERATOR_TYPE, else v3-8. "v1" is one
 * inference chip of the first generation: its programs are models written by `vtpu v1 compile`,
 * their report is the simulated chip's time, their text its instructions. errors NOT_FOUND, naming
 * similar types. Free with vtpu_close, after its programs. */
VTPU_API vtpu_error *vtpu_open(const char *accelerator_type, vtpu_slice **out_slice);
VTPU_API void vtpu_close(vtpu_slice *slice); /* accepts NULL */

typedef struct vtpu_slice_info {
  size_t struct_size;            /* set by the caller: sizeof(vtpu_slice_info) */
  const char *accelerator_type;  /* "v3-8" */
  const char *device_kind;       /* "TPU v3" */
  int32_t devices, chips, hosts; /* over all slices */
  int32_t topology[3];           /* chips of one slice along x, y, z */
  int64_t hbm_bytes_per_device;  /* usable by programs and arrays */
  double peak_bf16_flops_per_s;  /* over all slices */
  double usd_per_hour;           /* on demand; 0 = no public price */
  int32_t slices;                /* joined by the data-center network */
} vtpu_slice_info;
VTPU_API vtpu_error *vtpu_slice_describe(const vtpu_slice *slice, vtpu_slice_info *out_info);

/* Loads StableHLO, as a portable artifact or as text, and compiles it. Free with vtpu_unload.
 * errors INVALID_ARGUMENT: malformed, with the location; UNIMPLEMENTED: names the op;
 * RESOURCE_EXHAUSTED: needs more HBM than a device has, with the largest arrays. */
VTPU_API vtpu_error *vtpu_load(vtpu_slice *slice, const void *bytes, size_t size,
                               vtpu_program **out_program);
VTPU_API vtpu_error *vtpu_load_file(vtpu_slice *slice, const char *path,
                                    vtpu_program **out_program);
VTPU_API void vtpu_unload(vtpu_program *program); /* accepts NULL */

/* An array, dense and row-major. Element types by their MLIR names ("f32", "bf16", "i32", "ui8",
 * "i1", ...); types of fewer than 8 bits take one byte per element. */
typedef struct vtpu_tensor {
  const char *element_type;
  int32_t rank;
  const int64_t *dims;
  void *data;
} vtpu_tensor;

/* The program's inputs and outputs; `data` is NULL. */
VTPU_API size_t vtpu_program_input_count(const vtpu_program *program);
VTPU_API size_t vtpu_program_output_count(const vtpu_program *program);
VTPU_API vtpu_tensor vtpu_program_input(const vtpu_program *program, size_t index);
VTPU_API vtpu_tensor vtpu_program_output(const vtpu_program *program, size_t index);
VTPU_API size_t vtpu_tensor_bytes(vtpu_tensor tensor);

/* Runs once with whole arrays, even when the program is sharded over several devices.
 * `outputs[i].data` is memory of the caller, of size vtpu_tensor_bytes. Returns when the outputs
 * have been written. An array that the devices do not divide is as they hold it, in tiles of one
 * size: vtpu_program_input and _output say how large; its padding is not read, and written as zero. */
VTPU_API vtpu_error *vtpu_run(vtpu_program *program, const vtpu_tensor *inputs, size_t input_count,
                              vtpu_tensor *outputs, size_t output_count);

/* What the slice would need for one run. Times are a lower bound from published peaks, not a
 * measurement; on a v1 slice they are simulated cycles. */
typedef struct vtpu_report {
  size_t struct_size;  /* set by the caller */
  int32_t devices;     /* participating */
  double flops, bytes; /* over all devices; a multiply-add counts as two */
  double seconds, usd; /* for one run; usd 0 = no public price */
  int64_t argument_bytes, output_bytes, temp_bytes,
      peak_bytes; /* HBM per device as laid out in tiles; temporaries are an estimate */
} vtpu_report;
VTPU_API vtpu_error *vtpu_program_report(const vtpu_program *program, vtpu_report *out_report);

/* The optimised program as StableHLO text, borrowed from the program. */
VTPU_API const char *vtpu_program_text(vtpu_program *program);
/* The same as HLO text, as XLA prints compiled programs; borrowed from the program. errors
 * UNIMPLEMENTED: on a TPU v1, or HLO has no form for the program */
VTPU_API vtpu_error *vtpu_program_hlo(vtpu_program *program, const char **out_text);

#ifdef __cplusplus
}
#endif
#endif
