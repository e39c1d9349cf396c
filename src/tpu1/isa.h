// SPDX-License-Identifier: Apache-2.0
// isa.h - instructions of TPU v1: their decoded form, the 12-byte encoding, and the tables made
// from isa.def.
//
// Threads: any; all tables are constant. Errors name instruction, field, value and legal range.
#ifndef VT_TPU1_ISA_H
#define VT_TPU1_ISA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

#define VT_TPU1_INSN_BYTES 12

typedef enum vt_tpu1_op {
#define INSN(NAME, code, mnemonic, unit, summary) VT_TPU1_##NAME = code,
#define FIELD(NAME, member, bit, bits, kind, summary)
#include "tpu1/isa.def"
  VT_TPU1_OPS
} vt_tpu1_op;

// The units that run instructions on their own, each in program order. NONE: done while issuing.
typedef enum vt_tpu1_unit {
  VT_TPU1_UNIT_READ,
  VT_TPU1_UNIT_WEIGHTS,
  VT_TPU1_UNIT_MATRIX,
  VT_TPU1_UNIT_ACTIVATE,
  VT_TPU1_UNIT_WRITE,
  VT_TPU1_UNIT_NONE,
} vt_tpu1_unit;
#define VT_TPU1_UNITS 5

typedef enum vt_tpu1_reg {
#define REG(NAME, name, low, high, reset, summary) VT_TPU1_REG_##NAME,
#include "tpu1/regs.def"
  VT_TPU1_REGS
} vt_tpu1_reg;

typedef enum vt_tpu1_fn {
  VT_TPU1_FN_NONE,
  VT_TPU1_FN_RELU,
  VT_TPU1_FN_SIGMOID,
  VT_TPU1_FN_TANH,
  VT_TPU1_FNS
} vt_tpu1_fn;
typedef enum vt_tpu1_pool {
  VT_TPU1_POOL_NONE,
  VT_TPU1_POOL_MAX,
  VT_TPU1_POOL_AVG,
  VT_TPU1_POOLS
} vt_tpu1_pool;
typedef enum vt_tpu1_vop {
  VT_TPU1_VOP_COPY,
  VT_TPU1_VOP_ADD,
  VT_TPU1_VOP_MUL,
  VT_TPU1_VOP_MAX,
  VT_TPU1_VOPS
} vt_tpu1_vop;

// One decoded instruction: `op` and the members named in its isa.def rows; the others are zero.
typedef struct vt_tpu1_insn {
  vt_tpu1_op op;
  int32_t accumulate, switch_tile, wide_in, wide_weights, unsigned_in, wide_out, unsigned_out,
      wide_b;
  int32_t fn, pool, vop, bias;
  int32_t repeat, dy, dx, images, reg, unit, on;
  int64_t ub, acc, rows, host, tile, count, a, b, value, tag;
} vt_tpu1_insn;

typedef VT_ARRAY(vt_tpu1_insn) vt_tpu1_code;

typedef enum vt_tpu1_kind {
  VT_TPU1_KIND_UINT,
  VT_TPU1_KIND_SINT,
  VT_TPU1_KIND_FLAG,
  VT_TPU1_KIND_FN,
  VT_TPU1_KIND_POOL,
  VT_TPU1_KIND_VOP,
  VT_TPU1_KIND_REG,
  VT_TPU1_KIND_UNITS,
} vt_tpu1_kind;

typedef struct vt_tpu1_field {
  vt_tpu1_op op;
  const char *name, *summary;
  int bit, bits;
  vt_tpu1_kind kind;
  size_t offset; // of the member in vt_tpu1_insn
  size_t size;   // of the member
} vt_tpu1_field;

typedef struct vt_tpu1_op_info {
  const char *mnemonic, *summary;
  vt_tpu1_unit unit;
  const vt_tpu1_field *fields; // VT_TPU1_EACH_FIELD walks them
} vt_tpu1_op_info;

typedef struct vt_tpu1_reg_info {
  const char *name, *summary;
  int64_t low, high, reset;
} vt_tpu1_reg_info;

const vt_tpu1_op_info *vt_tpu1_op_get(vt_tpu1_op op); // op < VT_TPU1_OPS
const vt_tpu1_reg_info *vt_tpu1_reg_get(int reg);     // reg < VT_TPU1_REGS
#define VT_TPU1_EACH_FIELD(op_, field)                                                             \
  for (const vt_tpu1_field *field = vt_tpu1_op_get(op_)->fields; field->op == (op_); field++)
const char *vt_tpu1_unit_name(vt_tpu1_unit unit);
int64_t vt_tpu1_field_value(const vt_tpu1_insn *insn, const vt_tpu1_field *field);
void vt_tpu1_field_assign(vt_tpu1_insn *insn, const vt_tpu1_field *field, int64_t value);
// The names of an enumerated kind, NULL at the end; NULL for kinds that are plain numbers.
const char *const *vt_tpu1_kind_names(vt_tpu1_kind kind);

// INVALID_ARGUMENT when a field does not fit or an enumerated value is unknown.
vt_status vt_tpu1_encode(const vt_tpu1_insn *insn,
                         uint8_t out_bytes[VT_TPU1_INSN_BYTES]) VT_CHECKED;
// INVALID_ARGUMENT on unknown opcodes, unknown enumerated values and nonzero bits without a field.
vt_status vt_tpu1_decode(const uint8_t bytes[VT_TPU1_INSN_BYTES],
                         vt_tpu1_insn *out_insn) VT_CHECKED;
// A whole program; errors have the address. `code` is on the heap, the caller frees it (even on
// error).
vt_status vt_tpu1_code_decode(vt_bytes bytes, vt_tpu1_code *code) VT_CHECKED;
vt_status vt_tpu1_code_encode(const vt_tpu1_code *code, vt_text *out_bytes) VT_CHECKED;

// Assembler text: one instruction per line, `mnemonic name=value ... flag`, comments after ';'.
// `.equ NAME value` names a number. Errors have line and column. `code` as for vt_tpu1_code_decode.
vt_status vt_tpu1_assemble(vt_bytes text, vt_tpu1_code *code) VT_CHECKED;
// The inverse: text that assembles to the same instruction.
void vt_tpu1_print(const vt_tpu1_insn *insn, vt_text *text);
// The instruction set as Markdown (docs/tpu1-isa.md).
void vt_tpu1_isa_document(vt_text *text);

#endif
