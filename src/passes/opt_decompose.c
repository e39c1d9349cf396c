// SPDX-License-Identifier: Apache-2.0
// opt_decompose.c - eigen- and singular value decompositions that JAX expands for a TPU become one
// op each.
//
// For TPUs JAX lowers eigh of more than 256 rows, and svd, to polar iterations (QDWH): loops of
// matrix products, QR and Cholesky, designed for a matrix unit. On a CPU that is five to fifteen
// times the work of reduction to a tridiagonal matrix, which gives the same decomposition more
// accurately.
//
// A function is recognised by its fingerprint alone: a hash over every op, attribute, constant and
// use in it and its callees. Sizes are excluded, as they follow from the shape of the matrix: the
// dimensions of types, integers above SMALL_INTEGER, and sizes times epsilon. Branches of a case
// that differ in nothing else count once: there is one per subproblem size. So a function that
// differs from JAX's in one op or constant stays as written, and so does another release's until
// decompositions.def has it.
//
// The op keeps the function as its called computation, so that the chip's estimate counts what a
// TPU would run (vt_decompose_forget).
#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/map.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { SMALL_INTEGER = 16, SOME_SIZE = 1 << 16 };

typedef struct finder {
  vt_map known; // function -> its fingerprint
  vt_map done;  // functions already walked
  bool any, *changed;
} finder;

// ---- The fingerprint.

// FNV-1a, of its own: decompositions.def holds what came of it.
static uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed) {
  const unsigned char *p = bytes;
  uint64_t h = 0xCBF29CE484222325u ^ seed;
  for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001B3u;
  return vt_hash_u64(h, size);
}

static uint64_t hash_integer(int64_t x, uint64_t seed) {
  bool size = x > SMALL_INTEGER && x < INT32_MAX;
  return vt_hash_u64(size ? SOME_SIZE : (uint64_t)x, seed);
}

static uint64_t hash_real(double x, double epsilon, uint64_t seed) {
  double size = x / epsilon;
  if (size > SMALL_INTEGER && size < SOME_SIZE && size == (double)(int64_t)size)
    return vt_hash_u64(SOME_SIZE, seed);
  return hash_bytes(&x, sizeof x, seed);
}

static uint64_t hash_literal(const vt_literal *literal, uint64_t seed) {
  const void *data = literal->data;
  vt_dtype dtype = literal->type.dtype;
  int64_t count = literal->splat ? 1 : vt_type_elements(literal->type);
  seed = vt_hash_u64(literal->splat, vt_hash_u64(dtype, seed));
  for (int64_t i = 0; i < count; i++) {
    if (dtype == VT_F32)
      seed = hash_real((double)((const float *)data)[i], FLT_EPSILON, seed);
    else if (dtype == VT_F64)
      seed = hash_real(((const double *)data)[i], DBL_EPSILON, seed);
    else if (dtype == VT_S32 && literal->splat)
      seed = hash_integer(((const int32_t *)data)[i], seed);
    else if (dtype != VT_S32) // a list of integers: the sizes of subproblems
      seed = hash_bytes((const char *)data + (size_t)i * vt_dtype_bytes(dtype),
                        vt_dtype_bytes(dtype), seed);
  }
  return seed;
}

static uint64_t fingerprint(finder *f, vt_func *func);

static uint64_t hash_attr(finder *f, const vt_attr *attr) {
  const char *name = vt_attr_text(attr->key);
  uint64_t hash = hash_bytes(name, strlen(name), 0);
  switch (vt_attr_kind_of(attr->key)) {
  case VT_ATTR_KIND_I64:
  case VT_ATTR_KIND_BOOL:
  case VT_ATTR_KIND_DTYPE:
    return hash_integer(attr->i64, hash);
  case VT_ATTR_KIND_F64:
    return hash_bytes(&attr->f64, sizeof attr->f64, hash);
  case VT_ATTR_KIND_STRING:
    return hash_bytes(attr->string.data, attr->string.size, hash);
  case VT_ATTR_KIND_INTS:
    for (uint32_t i = 0; i < attr->count; i++) hash = hash_integer(attr->ints[i], hash);
    return hash;
  case VT_ATTR_KIND_LITERAL:
    return hash_literal(attr->literal, hash);
  case VT_ATTR_KIND_FUNCS:
    for (uint32_t i = 0; i < attr->count; i++)
      hash = vt_hash_u64(fingerprint(f, attr->funcs[i]), hash);
    return hash;
  default:
    return hash;
  }
}

static uint64_t hash_type(vt_type type, uint64_t seed) {
  return vt_hash_u64((uint64_t)type.rank, vt_hash_u64(type.dtype, seed));
}

static uint64_t hash_op(finder *f, const vt_op *op, uint64_t seed) {
  const char *name = vt_op_info_get(op->code)->text;
  uint64_t attrs = 0, last = 0; // attributes have no order
  seed = hash_bytes(name, strlen(name), seed);
  for (uint32_t i = 0; i < op->operand_count; i++)
    seed = vt_hash_u64((uint64_t)op->operands[i]->id, seed);
  for (uint32_t i = 0; i < op->result_count; i++) seed = hash_type(op->results[i].type, seed);
  for (uint32_t i = 0; i < op->attr_count; i++) attrs += hash_attr(f, &op->attrs[i]);
  seed = vt_hash_u64(attrs, seed);
  for (uint32_t i = 0; i < op->region_count; i++) {
    uint64_t region = fingerprint(f, op->regions[i]);
    if (op->code != VT_OP_CASE || region != last) seed = vt_hash_u64(region, seed);
    last = region;
  }
  return seed;
}

static uint64_t fingerprint(finder *f, vt_func *func) {
  uint64_t *known = vt_map_find(&f->known, &func, sizeof func);
  if (known) return *known;
  vt_func_number(func);
  uint64_t hash = vt_hash_u64(func->param_count, 0);
  for (uint32_t i = 0; i < func->param_count; i++) hash = hash_type(func->params[i]->type, hash);
  for (const vt_op *op = func->first; op; op = op->next) hash = hash_op(f, op, hash);
  for (uint32_t i = 0; i < func->return_count; i++)
    hash = vt_hash_u64((uint64_t)func->returns[i]->id, hash);
  known = VT_NEW(&func->module->arena, uint64_t);
  *known = hash;
  *vt_map_at(&f->known, &func, sizeof func) = known;
  return hash;
}

// ---- The functions.

typedef enum decomposition { NONE, EIGH, SVD, SINGULAR_VALUES } decomposition;

static decomposition decomposition_of(finder *f, vt_func *func) {
  static const struct {
    uint64_t fingerprint;
    decomposition what;
  } table[] = {
#define DECOMPOSITION(number, what, where) {number, what},
#include "passes/decompositions.def"
#undef DECOMPOSITION
  };
  if (strncmp(func->name, "_eigh_work", 10) &&
      strncmp(func->name, "_svd_tall_and_square_input", 26))
    return NONE;
  uint64_t number = fingerprint(f, func);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].fingerprint == number) return table[i].what;
  vt_log(VT_LOG_DEBUG, "function %s stays as written: its fingerprint is 0x%016" PRIx64, func->name,
         number);
  return NONE;
}

static vt_op *custom_call(vt_op *call, const char *target, uint32_t count, const vt_type *types) {
  vt_assert(call->code == VT_OP_CALL);
  vt_op *op =
      vt_op_create(call->func, VT_OP_CUSTOM_CALL, call->loc, 1, call->operands, count, types, 0);
  vt_op_set_string(op, VT_ATTR_CALL_TARGET_NAME, target);
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_CALLED_COMPUTATIONS,
                               .count = 1,
                               .funcs = vt_op_attr(call, VT_ATTR_CALLEE)->funcs});
  vt_op_insert(call, op);
  return op;
}

// (matrix, its number of rows) -> values in the matrix's type, vectors in columns
static bool make_eigh(vt_op *call) {
  if (call->operand_count != 2 || call->result_count != 2) return false;
  vt_type a = call->operands[0]->type, values = call->results[0].type;
  if (a.rank != 2 || a.dims[0] != a.dims[1] || !vt_type_equal(a, call->results[1].type) ||
      values.rank != 1 || values.dims[0] != a.dims[0] || values.dtype != a.dtype ||
      !vt_is_splat_of(call->operands[1], (double)a.dims[0]))
    return false;
  vt_type types[] = {a, values};
  if (vt_dtype_is_complex(a.dtype)) types[1].dtype = a.dtype == VT_C64 ? VT_F32 : VT_F64;
  vt_op *op = custom_call(call, "Eigh", 2, types);
  vt_op_set_string(op, VT_ATTR_BACKEND_CONFIG, "1,1,100,1e-6");
  vt_value *found = &op->results[1];
  if (vt_dtype_is_complex(a.dtype))
    found = vt_build(call->func, call, VT_OP_CONVERT, call->loc, values, 1, &found);
  vt_rewrite_value(&call->results[0], found);
  vt_rewrite_value(&call->results[1], &op->results[0]);
  return true;
}

// matrix -> left vectors in columns, values, right vectors in columns; or the values alone
static bool make_svd(vt_op *call, bool vectors) {
  if (call->operand_count != 1 || call->result_count != (vectors ? 3 : 1)) return false;
  vt_type types[3];
  for (uint32_t i = 0; i < call->result_count; i++) types[i] = call->results[i].type;
  if (call->operands[0]->type.rank != 2) return false;
  vt_op *op = custom_call(call, "Svd", call->result_count, types);
  for (uint32_t i = 0; i < call->result_count; i++)
    vt_rewrite_value(&call->results[i], &op->results[i]);
  return true;
}

static bool replace(finder *f, vt_op *call) {
  switch (decomposition_of(f, vt_attr_func(call, VT_ATTR_CALLEE))) {
  case EIGH:
    return make_eigh(call);
  case SVD:
    return make_svd(call, true);
  case SINGULAR_VALUES:
    return make_svd(call, false);
  default:
    return false;
  }
}

static void decompose_in(finder *f, vt_func *func) {
  vt_op *next;
  if (vt_map_has(&f->done, &func, sizeof func)) return;
  *vt_map_at(&f->done, &func, sizeof func) = func;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    vt_rewrite_operands(op);
    for (uint32_t i = 0; i < op->region_count; i++) decompose_in(f, op->regions[i]);
    if (op->code != VT_OP_CALL) continue;
    if (replace(f, op)) {
      vt_op_remove(op);
      *f->changed = true;
    } else {
      decompose_in(f, vt_attr_func(op, VT_ATTR_CALLEE));
    }
  }
  vt_rewrite_returns(func);
}

vt_status vt_opt_decompose(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                           bool *out_changed) {
  (void)scratch;
  finder f = {.changed = out_changed};
  if (options->as_written) return VT_OK;
  for (uint32_t i = 0; i < module->func_count; i++) // before any of them changes
    f.any |= decomposition_of(&f, module->funcs[i]) != NONE;
  if (f.any) decompose_in(&f, module->main);
  vt_map_free(&f.known);
  vt_map_free(&f.done);
  return VT_OK;
}

static vt_status forget_in(vt_func *func, void *user) {
  (void)user;
  for (vt_op *op = func->first; op; op = op->next) {
    if (!vt_op_written_out(op)) continue;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < op->attr_count; i++)
      if (op->attrs[i].key != VT_ATTR_CALLED_COMPUTATIONS) op->attrs[kept++] = op->attrs[i];
    op->attr_count = kept;
  }
  return VT_OK;
}

vt_status vt_decompose_forget(vt_module *module) {
  return vt_rewrite_each_func(module, forget_in, NULL);
}
