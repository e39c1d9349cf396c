// SPDX-License-Identifier: Apache-2.0
// gen.h - shared by the generators of ops: random choices and the values made so far.
//
// A generator makes one op of its row in gen_ops.def. It picks operands among the values of
// the scope or makes leaves (inputs of main, constants), builds the op with all its attributes, and
// reports the results; it may also do nothing if the op does not fit at this point.
//
// Each value has two flags. `inexact`: it depends on something that implementations round
// differently, so an op with discontinuous results (a comparison, a conversion to integers, a sort)
// must not read it. `raw`: its bits are those of an input, so a NaN has its original bits.
#ifndef VT_FUZZ_GEN_H
#define VT_FUZZ_GEN_H

#include "program.h"

enum { GEN_POOL = 200 };
typedef struct gen_scope {
  struct gen_scope *outer;
  vt_func *func;
  struct {
    vt_value *value;
    bool inexact, raw;
  } pool[GEN_POOL];
  uint32_t count;
} gen_scope;

typedef struct gen {
  vt_module *module;
  const char *name; // of the program's first function
  uint64_t random;
  gen_scope *scope;
  program_input *inputs;
  int depth;            // of regions and called functions
  int budget;           // remaining ops
  uint32_t callees;     // functions created
  const vt_mesh *mesh;  // NULL: a program of one device
  uint32_t open_axes;   // mesh axes that may still become manual, as bits
  uint32_t manual_axes; // axes that are manual here; 0 outside manual computations
  bool alike;           // all devices get here: collectives are allowed
  bool sharded;         // automatically: sizes that meshes divide, and constraints
} gen;

// A row of gen_ops.def.
typedef struct gen_row {
  vt_opcode code;
  bool (*make)(gen *g, const struct gen_row *row); // false: nothing was made; NULL: never generated
  int weight;
  uint64_t dtypes; // element types that the op takes here, as bits
  bool steady;     // takes inexact operands: its result changes little when they do
  bool loose;      // its result is inexact
  bool meshed;     // only in programs with a mesh
} gen_row;
const gen_row *gen_row_of(vt_opcode code);
void gen_ops(gen *g, int count); // that many ops, of any row, in the scope

// Sets of element types, one bit per vt_dtype.
#define T(name) ((uint64_t)1 << VT_##name)
#define T_F8                                                                                       \
  (T(F8E5M2) | T(F8E4M3FN) | T(F8E4M3B11FNUZ) | T(F8E5M2FNUZ) | T(F8E4M3FNUZ) | T(F8E4M3) |        \
   T(F8E3M4))
#define T_TINY            (T_F8 | T(F4E2M1FN))
#define T_WIDE            (T(F32) | T(F64) | T(F16) | T(BF16))
#define T_FLOAT           (T_WIDE | T_TINY)
#define T_COMPLEX         (T(C64) | T(C128))
#define T_SIGNED          (T(S8) | T(S16) | T(S32) | T(S64) | T(S4) | T(S2))
#define T_UNSIGN          (T(U8) | T(U16) | T(U32) | T(U64) | T(U4) | T(U2))
#define T_INT             (T_SIGNED | T_UNSIGN)
#define T_BOOL            T(PRED)
#define T_NUMBER          (T_INT | T_FLOAT | T_COMPLEX)
#define T_ANY             (T_NUMBER | T_BOOL)
#define T_HAS(set, dtype) ((set) >> (dtype) & 1)

// Requirements on a picked operand.
enum { PICK_EXACT = 1, PICK_RAW = 2, PICK_NUMBER = 4 };

int64_t gen_below(gen *g, int64_t limit);
int64_t gen_between(gen *g, int64_t low, int64_t high); // inclusive
bool gen_chance(gen *g, int percent);
void gen_shuffle(gen *g, int64_t *list, int64_t count);
vt_dtype gen_dtype(gen *g, uint64_t dtypes);
vt_dtype gen_index_dtype(gen *g); // of indices: rarely a narrow one
vt_type gen_type(gen *g, vt_dtype dtype, int32_t rank, const int64_t *dims); // copies dims
vt_type gen_retyped(gen *g, vt_type type, vt_dtype dtype);
vt_type gen_shape(gen *g, vt_dtype dtype); // random dimensions
int64_t gen_size(gen *g);                  // a random size of a dimension, rarely 0

// A new input of main or a constant; the style is ignored where only a constant can be made.
vt_value *gen_leaf(gen *g, vt_type type, int style);
vt_value *gen_leaf_range(gen *g, vt_type type, int64_t low, int64_t high);
vt_value *gen_scalar(gen *g, vt_dtype dtype, double x); // a constant
vt_value *gen_splat(gen *g, vt_type type, double x);
// A value of these element types and any shape, or of one type; existing or new.
vt_value *gen_any(gen *g, uint64_t dtypes, int flags);
vt_value *gen_of(gen *g, vt_type type, int flags);
bool gen_is_inexact(const gen *g, const vt_value *value);
bool gen_is_raw(const gen *g, const vt_value *value);

// An op at the end of the scope. gen_done reports its results: inexact when an operand is or when
// `loose`; `raw` when they only move bits of raw operands.
vt_op *gen_op(gen *g, vt_opcode code, uint32_t operand_count, vt_value *const *operands,
              uint32_t result_count, const vt_type *types, uint32_t region_count);
void gen_done(gen *g, const vt_op *op, bool loose, bool raw);
// The short form: one result, no attributes left to set.
vt_value *gen_emit(gen *g, vt_opcode code, vt_type type, uint32_t count, vt_value *const *operands,
                   bool loose);

const vt_mesh *gen_make_mesh(gen *g); // of 2 to 16 devices
// One that divides the array evenly, or any.
const vt_sharding *gen_sharding(gen *g, vt_type type, bool even);
// Makes `count` ops, in manual computations often collectives and steps that may work in place.
void gen_body(gen *g, int count);
// 0, 1 or 2, differing between devices; NULL where devices have no numbers.
vt_value *gen_device_scalar(gen *g, vt_dtype dtype);

// Nested functions: gen_enter opens a scope for a function (region or callee), gen_leave closes it.
void gen_enter(gen *g, gen_scope *scope, vt_func *func);
void gen_leave(gen *g);
vt_value *gen_param(gen *g, vt_type type, bool inexact);
// A region (a, b) -> op(a, b) on scalars.
vt_func *gen_pair_region(gen *g, vt_opcode code, vt_dtype dtype);

#endif
