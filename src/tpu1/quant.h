// SPDX-License-Identifier: Apache-2.0
// quant.h - the integer network between a StableHLO program and v1 code: what runs on the chip,
// layer by layer, and what the host does before (quantise inputs) and after (scale results).
//
// Quantisation is post-training, per tensor and symmetric: real = scale * integer, scale from the
// largest magnitude seen while calibrating. Weights and activations have 8 bits (activations 16 on
// request), sums 32. Results of sigmoid and tanh have the fixed scale of the activation unit
// (1/128, or 1/32768 in 16 bits).
#ifndef VT_TPU1_QUANT_H
#define VT_TPU1_QUANT_H

#include "eval/eval.h"
#include "tpu1/build.h"

typedef enum vt_tpu1_qkind {
  VT_TPU1_Q_INPUT,  // from the host
  VT_TPU1_Q_LAYER,  // fn(scale(sum of terms + bias))
  VT_TPU1_Q_VECTOR, // fn(scale(op(a, b)))
  VT_TPU1_Q_POOL,
  VT_TPU1_Q_SLICE,  // channels first .. first + channels of a; a view
  VT_TPU1_Q_CONCAT, // channels of the parts one after another; a view
} vt_tpu1_qkind;

// A node times a constant factor: real = factor * node's scale * integer.
typedef struct vt_tpu1_qref {
  int node;
  double factor;
} vt_tpu1_qref;

typedef struct vt_tpu1_qterm {
  vt_tpu1_qref in;
  vt_tpu1_conv conv;
  int64_t in_channels;
  double *weights; // [kh][kw][in_channels][channels]
  int8_t *q;       // the same, quantised
} vt_tpu1_qterm;

enum { VT_TPU1_MAX_TERMS = 8 };

typedef struct vt_tpu1_qnode {
  vt_tpu1_qkind kind;
  const vt_op *op; // where it came from; NULL for parameters
  int64_t images, h, w, channels;
  bool wide;
  double scale;
  int value_id;        // whose range sets the scale: id of an IR value
  double range;        // largest magnitude allowed (clamps), 0 = none
  double range_factor; // value = range_factor * node
  vt_tpu1_fn fn;
  int32_t mult, mult_b, offset;
  int shift;
  // layer
  vt_tpu1_qterm terms[VT_TPU1_MAX_TERMS];
  int term_count;
  double *bias; // channels; NULL = none
  int32_t *qbias;
  // vector, pool, slice
  vt_tpu1_vop vop;
  vt_tpu1_qref a, b;
  double constant; // vector: added afterwards
  vt_tpu1_pooling pooling;
  int64_t first;
  // concat
  vt_tpu1_qref *parts;
  int part_count;
  // input: the host value, and the window when the host packs positions side by side
  const vt_value *source;
  int8_t role[VT_MAX_RANK];
  bool packed;
  vt_tpu1_conv window;
  int64_t raw_h, raw_w, raw_channels;
} vt_tpu1_qnode;

// The role on the chip of each dimension of an IR value.
typedef enum vt_tpu1_role {
  VT_TPU1_ROLE_ONE,
  VT_TPU1_ROLE_B,
  VT_TPU1_ROLE_Y,
  VT_TPU1_ROLE_X,
  VT_TPU1_ROLE_C
} vt_tpu1_role;

typedef struct vt_tpu1_qoutput {
  const vt_value *value;
  vt_tpu1_qref ref;
  int8_t role[VT_MAX_RANK];
  bool flat, on_host;
  int8_t flat_order[3];
} vt_tpu1_qoutput;

typedef struct vt_tpu1_network {
  vt_module *module; // borrowed
  vt_arena arena;
  VT_ARRAY(vt_tpu1_qnode) nodes;    // in execution order
  VT_ARRAY(const vt_op *) host_ops; // run before the chip, in order
  VT_ARRAY(vt_tpu1_qoutput) outputs;
  vt_tensor *constants; // by value id; data NULL = not a constant
  bool wide;            // 16-bit activations
} vt_tpu1_network;

// Largest magnitude of each value of main (by id) over the calibration inputs. `inputs`: one array
// per parameter, whose first dimension may be a multiple of the parameter's; then the program runs
// once for each part. Constants are kept.
vt_status vt_tpu1_calibrate(const vt_module *module, const vt_tensor *inputs,
                            double *ranges) VT_CHECKED;

// main (calls inlined) as a network; errors UNIMPLEMENTED name op and source line. Free with
// vt_tpu1_network_free.
vt_status vt_tpu1_network_make(vt_module *module, bool wide, vt_tpu1_network *out) VT_CHECKED;
void vt_tpu1_network_free(vt_tpu1_network *network);
// Chooses scales and integers from the ranges.
vt_status vt_tpu1_network_quantise(vt_tpu1_network *network, const double *ranges) VT_CHECKED;

// Host side of one run: evaluates the host ops for the program's arguments and puts each input
// node's integers, [image][y][x][channel], in `inputs` (by node; NULL elsewhere; the caller frees
// each). `values` gets the host's results, by value id, in `arena`.
vt_status vt_tpu1_network_inputs(const vt_tpu1_network *network, const vt_tensor *args,
                                 vt_arena *arena, vt_tensor *values, int32_t **inputs) VT_CHECKED;
// Integers of an output node to the program's result.
vt_status vt_tpu1_network_output(const vt_tpu1_network *network, int output,
                                 const int32_t *integers, const vt_tensor *values,
                                 vt_tensor *out) VT_CHECKED;

// The int8 reference evaluator: every node in plain loops over [image][y][x][channel], no tiles, no
// buffers, no chip. Fills `values` (by node; the entries of input nodes are given); the caller
// frees the others.
vt_status vt_tpu1_network_evaluate(const vt_tpu1_network *network, int32_t **values) VT_CHECKED;

// The program for a chip. `init` reads the constants (bias rows), once; `run` is one batch.
typedef struct vt_tpu1_compiled {
  vt_tpu1_build init, run;
  uint8_t *weights;            // of run; owned
  VT_ARRAY(uint8_t) constants; // host input of init
  vt_tpu1_tensor *tensors;     // by node; owned
} vt_tpu1_compiled;
vt_status vt_tpu1_network_compile(const vt_tpu1_network *network, const vt_tpu1_chip *chip,
                                  vt_tpu1_compiled *out) VT_CHECKED;
void vt_tpu1_compiled_free(vt_tpu1_compiled *compiled);
// Integers [image][y][x][channel] to the host bytes of a tensor and back; returns the bytes used.
int64_t vt_tpu1_tensor_pack(const vt_tpu1_tensor *t, const int32_t *integers, uint8_t *bytes);
int64_t vt_tpu1_tensor_unpack(const vt_tpu1_tensor *t, const uint8_t *bytes, int32_t *integers);

static inline int64_t vt_tpu1_qnode_size(const vt_tpu1_qnode *n) {
  return n->images * n->h * n->w * n->channels;
}

#endif
