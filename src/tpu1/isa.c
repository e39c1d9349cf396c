// SPDX-License-Identifier: Apache-2.0
// isa.c - the tables of isa.def and regs.def, and the 12-byte encoding they describe.
// In: decoded instructions or bytes. Out: the other, or an error that names the field. Owns
// nothing.
#include "base/check.h"
#include "tpu1/isa.h"

#include <string.h>

static const vt_tpu1_field fields[] = {
#define INSN(NAME, code, mnemonic, unit, summary)
#define FIELD(NAME, member, bit, bits, kind, summary)                                              \
  {VT_TPU1_##NAME,                                                                                 \
   #member,                                                                                        \
   summary,                                                                                        \
   bit,                                                                                            \
   bits,                                                                                           \
   VT_TPU1_KIND_##kind,                                                                            \
   offsetof(vt_tpu1_insn, member),                                                                 \
   sizeof(((vt_tpu1_insn *)0)->member)},
#include "tpu1/isa.def"
    {VT_TPU1_OPS, NULL, NULL, 0, 0, VT_TPU1_KIND_UINT, 0, 0},
};

// First row of each instruction's fields: enumerators count the rows of isa.def in order.
enum {
#define INSN(NAME, code, mnemonic, unit, summary)     FIRST_##NAME, BACK_##NAME = FIRST_##NAME - 1,
#define FIELD(NAME, member, bit, bits, kind, summary) ROW_##NAME##_##member,
#include "tpu1/isa.def"
};
static const vt_tpu1_op_info ops[VT_TPU1_OPS] = {
#define INSN(NAME, code, mnemonic, unit, summary)                                                  \
  [code] = {mnemonic, summary, VT_TPU1_UNIT_##unit, fields + FIRST_##NAME},
#define FIELD(NAME, member, bit, bits, kind, summary)
#include "tpu1/isa.def"
};

static const vt_tpu1_reg_info regs[VT_TPU1_REGS] = {
#define REG(NAME, name, low, high, reset, summary) {name, summary, low, high, reset},
#include "tpu1/regs.def"
};

static const char *const unit_names[] = {"read", "weights", "matrix", "activate", "write", NULL};
static const char *const fn_names[] = {"none", "relu", "sigmoid", "tanh", NULL};
static const char *const pool_names[] = {"none", "max", "avg", NULL};
static const char *const vop_names[] = {"copy", "add", "mul", "max", NULL};
static const char *const reg_names[] = {
#define REG(NAME, name, low, high, reset, summary) name,
#include "tpu1/regs.def"
    NULL};

const vt_tpu1_op_info *vt_tpu1_op_get(vt_tpu1_op op) {
  vt_assert(op < VT_TPU1_OPS);
  return &ops[op];
}

const vt_tpu1_reg_info *vt_tpu1_reg_get(int reg) {
  vt_assert(reg >= 0 && reg < VT_TPU1_REGS);
  return &regs[reg];
}

const char *vt_tpu1_unit_name(vt_tpu1_unit unit) {
  return unit == VT_TPU1_UNIT_NONE ? "issue" : unit_names[unit];
}

const char *const *vt_tpu1_kind_names(vt_tpu1_kind kind) {
  switch (kind) {
  case VT_TPU1_KIND_FN:
    return fn_names;
  case VT_TPU1_KIND_POOL:
    return pool_names;
  case VT_TPU1_KIND_VOP:
    return vop_names;
  case VT_TPU1_KIND_REG:
    return reg_names;
  case VT_TPU1_KIND_UNITS:
    return unit_names;
  case VT_TPU1_KIND_UINT:
  case VT_TPU1_KIND_SINT:
  case VT_TPU1_KIND_FLAG:
    break;
  }
  return NULL;
}

int64_t vt_tpu1_field_value(const vt_tpu1_insn *insn, const vt_tpu1_field *field) {
  const char *at = (const char *)insn + field->offset;
  if (field->size == sizeof(int64_t)) return *(const int64_t *)(const void *)at;
  return *(const int32_t *)(const void *)at;
}

void vt_tpu1_field_assign(vt_tpu1_insn *insn, const vt_tpu1_field *field, int64_t value) {
  char *at = (char *)insn + field->offset;
  if (field->size == sizeof(int64_t))
    *(int64_t *)(void *)at = value;
  else
    *(int32_t *)(void *)at = (int32_t)value;
}

static int name_count(const char *const *names) {
  int n = 0;
  while (names[n]) n++;
  return n;
}

static void field_range(const vt_tpu1_field *field, int64_t *out_low, int64_t *out_high) {
  *out_low = 0;
  *out_high = ((int64_t)1 << field->bits) - 1;
  if (field->kind == VT_TPU1_KIND_SINT) {
    *out_low = -((int64_t)1 << (field->bits - 1));
    *out_high = ((int64_t)1 << (field->bits - 1)) - 1;
  }
  const char *const *names = vt_tpu1_kind_names(field->kind);
  if (!names) return;
  *out_high = field->kind == VT_TPU1_KIND_UNITS ? ((int64_t)1 << name_count(names)) - 1
                                                : name_count(names) - 1;
}

static vt_status check_field(const vt_tpu1_insn *insn, const vt_tpu1_field *field) {
  int64_t low, high, value = vt_tpu1_field_value(insn, field);
  field_range(field, &low, &high);
  if (value < low || value > high)
    return vt_error(VT_INVALID_ARGUMENT, "%s: %s=%lld is outside %lld..%lld",
                    ops[insn->op].mnemonic, field->name, (long long)value, (long long)low,
                    (long long)high);
  return VT_OK;
}

// Rules that tie two fields together.
static vt_status check_insn(const vt_tpu1_insn *insn) {
  if (insn->op == VT_TPU1_SET) {
    const vt_tpu1_reg_info *reg = &regs[insn->reg];
    if (insn->value < reg->low || insn->value > reg->high)
      return vt_error(VT_INVALID_ARGUMENT, "set: %s=%lld is outside %lld..%lld", reg->name,
                      (long long)insn->value, (long long)reg->low, (long long)reg->high);
  }
  if (insn->wide_weights && !insn->switch_tile)
    return vt_error(VT_INVALID_ARGUMENT,
                    "%s: wide_weights needs switch_tile, the low bytes are gone after a pass",
                    ops[insn->op].mnemonic);
  if ((insn->op == VT_TPU1_MATMUL || insn->op == VT_TPU1_CONVOLVE) && insn->unsigned_in &&
      insn->wide_in)
    return vt_error(VT_INVALID_ARGUMENT, "%s: unsigned_in is for 8-bit inputs",
                    ops[insn->op].mnemonic);
  if (insn->wide_out && insn->unsigned_out)
    return vt_error(VT_INVALID_ARGUMENT, "%s: unsigned_out is for 8-bit results",
                    ops[insn->op].mnemonic);
  return VT_OK;
}

vt_status vt_tpu1_encode(const vt_tpu1_insn *insn, uint8_t out_bytes[VT_TPU1_INSN_BYTES]) {
  if (insn->op >= VT_TPU1_OPS)
    return vt_error(VT_INVALID_ARGUMENT, "unknown opcode 0x%02x", (unsigned)insn->op);
  memset(out_bytes, 0, VT_TPU1_INSN_BYTES);
  out_bytes[0] = (uint8_t)insn->op;
  VT_TPU1_EACH_FIELD(insn->op, field) {
    VT_TRY(check_field(insn, field));
    uint64_t value = (uint64_t)vt_tpu1_field_value(insn, field);
    for (int i = 0; i < field->bits; i++)
      if (value >> i & 1) {
        uint8_t *byte = &out_bytes[(field->bit + i) / 8];
        *byte = (uint8_t)(*byte | 1u << ((field->bit + i) % 8));
      }
  }
  return check_insn(insn);
}

vt_status vt_tpu1_decode(const uint8_t bytes[VT_TPU1_INSN_BYTES], vt_tpu1_insn *out_insn) {
  uint8_t owned[VT_TPU1_INSN_BYTES] = {0xFF};
  memset(out_insn, 0, sizeof *out_insn);
  if (bytes[0] >= VT_TPU1_OPS || !ops[bytes[0]].mnemonic)
    return vt_error(VT_INVALID_ARGUMENT, "unknown opcode 0x%02x", bytes[0]);
  out_insn->op = (vt_tpu1_op)bytes[0];
  const vt_tpu1_op_info *info = &ops[out_insn->op];
  VT_TPU1_EACH_FIELD(out_insn->op, field) {
    uint64_t value = 0;
    for (int i = 0; i < field->bits; i++) {
      int at = field->bit + i;
      value |= (uint64_t)(bytes[at / 8] >> (at % 8) & 1) << i;
      owned[at / 8] = (uint8_t)(owned[at / 8] | 1u << (at % 8));
    }
    int64_t number = (int64_t)value;
    if (field->kind == VT_TPU1_KIND_SINT && value >> (field->bits - 1))
      number -= (int64_t)1 << field->bits;
    vt_tpu1_field_assign(out_insn, field, number);
    VT_TRY(check_field(out_insn, field));
  }
  for (int i = 0; i < VT_TPU1_INSN_BYTES; i++)
    if (bytes[i] & ~owned[i])
      return vt_error(VT_INVALID_ARGUMENT, "%s: byte %d has bits 0x%02x outside of all fields",
                      info->mnemonic, i, bytes[i] & ~owned[i]);
  return check_insn(out_insn);
}

vt_status vt_tpu1_code_decode(vt_bytes bytes, vt_tpu1_code *code) {
  if (bytes.size % VT_TPU1_INSN_BYTES)
    return vt_error(VT_INVALID_ARGUMENT, "program has %zu bytes, not a multiple of %d", bytes.size,
                    VT_TPU1_INSN_BYTES);
  for (size_t at = 0; at < bytes.size; at += VT_TPU1_INSN_BYTES) {
    vt_tpu1_insn insn;
    vt_status st = vt_tpu1_decode(bytes.data + at, &insn);
    if (st) return vt_status_wrap(st, "address 0x%zx", at);
    vt_array_push(code, insn);
  }
  return VT_OK;
}

vt_status vt_tpu1_code_encode(const vt_tpu1_code *code, vt_text *out_bytes) {
  for (size_t i = 0; i < code->size; i++) {
    uint8_t bytes[VT_TPU1_INSN_BYTES];
    vt_status st = vt_tpu1_encode(&code->data[i], bytes);
    if (st) return vt_status_wrap(st, "instruction %zu (address 0x%zx)", i, i * VT_TPU1_INSN_BYTES);
    vt_text_put_n(out_bytes, bytes, sizeof bytes);
  }
  return VT_OK;
}
