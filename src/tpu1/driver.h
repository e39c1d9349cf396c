// SPDX-License-Identifier: Apache-2.0
// driver.h - models on a TPU v1: calibrated, saved, compiled at the first evaluation, then run from
// the cache.
//
// A model is a StableHLO program with the ranges of its values: a NumPy archive with the arrays
// `program` (bytecode), `ranges` (by value) and `bits` (of activations). Everything else follows
// from it, so nothing else is saved.
#ifndef VT_TPU1_DRIVER_H
#define VT_TPU1_DRIVER_H

#include "base/npz.h"
#include "tpu1/exec.h"
#include "tpu1/quant.h"

typedef struct vt_tpu1_model vt_tpu1_model;

// Calibrates: runs `program` (MLIR bytecode) in f32 on the arrays of `examples`, one per parameter
// in order, whose first dimension may hold many batches. `bits` of activations: 8 or 16. The caller
// destroys the model. errors INVALID_ARGUMENT, UNIMPLEMENTED: unsupported on the chip, with op and
// source line
vt_status vt_tpu1_model_calibrate(vt_bytes program, const vt_npz *examples, int bits,
                                  vt_tpu1_model **out_model) VT_CHECKED;
// From the bytes of a saved model. Cheap: compiles at the first evaluation.
vt_status vt_tpu1_model_parse(vt_bytes bytes, vt_tpu1_model **out_model) VT_CHECKED;
vt_status vt_tpu1_model_save(const vt_tpu1_model *model, const char *path) VT_CHECKED;
void vt_tpu1_model_destroy(vt_tpu1_model *model); // accepts NULL

// Compiles for a chip and loads weights and constants; a second call with the same chip does
// nothing.
vt_status vt_tpu1_model_compile(vt_tpu1_model *model, const vt_tpu1_chip *chip) VT_CHECKED;
// Borrowed views of a compiled model.
const vt_tpu1_network *vt_tpu1_model_network(const vt_tpu1_model *model);
const vt_tpu1_plan *vt_tpu1_model_plan(const vt_tpu1_model *model);
// of one batch, with segments
const vt_tpu1_timing *vt_tpu1_model_timing(const vt_tpu1_model *model);

// One batch on the simulated chip: args and results have the program's types and the caller's
// memory. Compiles first if necessary. `check`: also run the int8 evaluator; INTERNAL names the
// first integer that differs.
vt_status vt_tpu1_model_evaluate(vt_tpu1_model *model, const vt_tpu1_chip *chip,
                                 const vt_tensor *args, vt_tensor *results, bool check) VT_CHECKED;

// The driver of a process: models by their bytes, compiled once each.
typedef struct vt_tpu1_driver vt_tpu1_driver;
vt_tpu1_driver *vt_tpu1_driver_create(const vt_tpu1_chip *chip);
void vt_tpu1_driver_destroy(vt_tpu1_driver *driver); // accepts NULL
// out_compiled (may be NULL): whether this call had to compile.
vt_status vt_tpu1_driver_evaluate(vt_tpu1_driver *driver, vt_bytes model, const vt_tensor *args,
                                  vt_tensor *results, bool *out_compiled) VT_CHECKED;

#endif
