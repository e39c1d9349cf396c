// SPDX-License-Identifier: Apache-2.0
// kernel_maker.h - builds the small functions of kernel_test.c.
#ifndef VT_HOST_KERNEL_MAKER_H
#define VT_HOST_KERNEL_MAKER_H

#include <math.h>
#include <string.h>

#include "ir/module.h"

typedef struct maker {
  vt_module *module;
  vt_func *func;
} maker;

#define DIMS(...)                                                                                  \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                         \
    __VA_ARGS__                                                                                    \
  }

static maker new_maker(void) {
  maker m = {.module = vt_module_create()};
  m.func = vt_func_create(m.module, "main");
  m.module->main = m.func;
  vt_module_add_func(m.module, m.func);
  return m;
}

static vt_type make_type(maker m, vt_dtype dtype, int rank, const int64_t *dims) {
  return vt_type_make(&m.module->arena, dtype, rank, dims);
}

static vt_value *param(maker m, vt_dtype dtype, int rank, const int64_t *dims) {
  return vt_func_add_param(m.func, make_type(m, dtype, rank, dims));
}

static vt_type with_dtype(vt_type type, vt_dtype dtype) {
  type.dtype = dtype;
  return type;
}

static vt_value *unary(maker m, vt_opcode code, vt_value *x) {
  return vt_build(m.func, NULL, code, NULL, x->type, 1, &x);
}
static vt_value *binary(maker m, vt_opcode code, vt_value *x, vt_value *y) {
  return vt_build(m.func, NULL, code, NULL, x->type, 2, (vt_value *[]){x, y});
}
static vt_value *convert(maker m, vt_dtype to, vt_value *x) {
  return vt_build(m.func, NULL, VT_OP_CONVERT, NULL, with_dtype(x->type, to), 1, &x);
}
static vt_value *compare(maker m, int direction, vt_value *x, vt_value *y) {
  vt_value *v = vt_build(m.func, NULL, VT_OP_COMPARE, NULL, with_dtype(x->type, VT_PRED), 2,
                         (vt_value *[]){x, y});
  vt_op_set_i64(v->op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(v->op, VT_ATTR_COMPARE_TYPE,
                vt_dtype_is_float(x->type.dtype) ? VT_CMPTYPE_FLOAT : VT_CMPTYPE_NOTYPE);
  return v;
}
static vt_value *compare_totally(maker m, int direction, vt_value *x, vt_value *y) {
  vt_value *v = compare(m, direction, x, y);
  vt_op_set_i64(v->op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_TOTALORDER);
  return v;
}
static vt_value *choose(maker m, vt_value *p, vt_value *x, vt_value *y) {
  return vt_build(m.func, NULL, VT_OP_SELECT, NULL, x->type, 3, (vt_value *[]){p, x, y});
}
static vt_value *reshape(maker m, vt_value *x, int rank, const int64_t *dims) {
  return vt_build(m.func, NULL, VT_OP_RESHAPE, NULL, make_type(m, x->type.dtype, rank, dims), 1,
                  &x);
}
static vt_value *broadcast(maker m, vt_value *x, vt_type like, int count, const int64_t *dims) {
  vt_value *v =
      vt_build(m.func, NULL, VT_OP_BROADCAST_IN_DIM, NULL, with_dtype(like, x->type.dtype), 1, &x);
  vt_op_set_ints(v->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)count, dims);
  return v;
}
static vt_value *iota(maker m, int64_t dim, vt_dtype dtype, int rank, const int64_t *dims) {
  vt_value *v = vt_build(m.func, NULL, VT_OP_IOTA, NULL, make_type(m, dtype, rank, dims), 0, NULL);
  vt_op_set_i64(v->op, VT_ATTR_IOTA_DIMENSION, dim);
  return v;
}

static void put_number(vt_dtype dtype, void *at, double x) {
  switch (dtype) {
  case VT_F32:
    *(float *)at = (float)x;
    break;
  case VT_F64:
    *(double *)at = x;
    break;
  case VT_BF16: {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    *(uint16_t *)at = (uint16_t)(bits >> 16);
    break;
  }
  default:
    memcpy(at, &(int64_t){(int64_t)x}, vt_dtype_bytes(dtype));
  }
}

static vt_value *scalar(maker m, vt_dtype dtype, double x) {
  vt_literal *literal = VT_NEW(&m.module->arena, vt_literal);
  void *data = vt_arena_push(&m.module->arena, 8);
  put_number(dtype, data, x);
  *literal = (vt_literal){.type = make_type(m, dtype, 0, NULL), .data = data, .splat = true};
  return vt_build_constant(m.func, NULL, NULL, literal);
}
static vt_value *splat(maker m, double x, vt_type like) {
  return broadcast(m, scalar(m, like.dtype, x), like, 0, NULL);
}

static vt_value *reduce(maker m, vt_opcode code, double start, vt_value *x, int count,
                        const int64_t *dims) {
  int64_t kept[VT_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < x->type.rank; i++) {
    bool dropped = false;
    for (int k = 0; k < count; k++) dropped |= dims[k] == i;
    if (!dropped) kept[rank++] = x->type.dims[i];
  }
  vt_type type = make_type(m, x->type.dtype, rank, kept),
          one = make_type(m, x->type.dtype, 0, NULL);
  vt_op *op = vt_op_create(m.func, VT_OP_REDUCE, NULL, 2,
                           (vt_value *[]){x, scalar(m, x->type.dtype, start)}, 1, &type, 1);
  vt_func *body = vt_func_create(m.module, "");
  vt_value *a = vt_func_add_param(body, one), *b = vt_func_add_param(body, one);
  vt_value *result = vt_build(body, NULL, code, NULL, one, 2, (vt_value *[]){a, b});
  vt_func_set_returns(body, 1, &result);
  op->regions[0] = body;
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, (uint32_t)count, dims);
  vt_op_append(m.func, op);
  return &op->results[0];
}

#endif
