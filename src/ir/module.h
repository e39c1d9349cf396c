// SPDX-License-Identifier: Apache-2.0
// module.h - the program: functions of operations over values, all in one arena.
//
// Invariants (checked by vt_module_verify):
//  1. SSA: a value is a parameter of a function or a result of one op, and is used only in that
//     function, after its definition in list order. Ops are in execution order.
//  2. Closed functions: a region is a vt_func whose inputs are all parameters. Values that a region
//     captures from outside are the last `capture_count` operands of the op, and the last
//     `capture_count` parameters of each of its regions (the same list for all regions of one op).
//  3. Types are static and fully known; tuples are flattened.
//  4. A function ends in its returns list; there is no return op.
//  5. Op and attribute shapes follow ops.def: every attribute of the row is present unless marked
//     optional in verify.c.
// Ownership: everything belongs to the module's arena; nothing is freed one by one.
// Threads: a module belongs to one thread while it is being changed; reading is safe from any.
#ifndef VT_IR_MODULE_H
#define VT_IR_MODULE_H

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "ir/ops.h"
#include "ir/type.h"

typedef struct vt_value vt_value;
typedef struct vt_op vt_op;
typedef struct vt_func vt_func;
typedef struct vt_module vt_module;
typedef struct vt_sharding vt_sharding; // ir/sharding.h

// Where an op came from. `name` is the scope ("jit(step)/dense/dot_general"), file and line the
// user's Python.
typedef struct vt_loc {
  const char *name; // "" when unknown
  const char *file; // "" when unknown
  int32_t line, column;
  const struct vt_loc *caller;
} vt_loc;

// Dense data in host form (row-major, sub-byte types one byte each). A splat holds one element.
typedef struct vt_literal {
  vt_type type;
  const void *data;
  bool splat;
} vt_literal;

typedef struct vt_string {
  const char *data; // also NUL-terminated; contents may hold any byte
  size_t size;
} vt_string;

typedef struct vt_dict_entry {
  vt_string name;
  struct vt_dict_value *value;
} vt_dict_entry;
typedef struct vt_dict_value {
  enum {
    VT_DICT_UNIT,
    VT_DICT_BOOL,
    VT_DICT_I64,
    VT_DICT_F64,
    VT_DICT_STRING,
    VT_DICT_ARRAY,
    VT_DICT_DICT
  } kind;
  int64_t i64;
  double f64;
  vt_string string;
  size_t count; // of items or entries
  struct vt_dict_value *items;
  vt_dict_entry *entries;
} vt_dict_value;

// A program of its own that a custom call holds (src/mosaic), as src/eval runs it (eval/eval.h).
typedef struct vt_program_call vt_program_call;

typedef struct vt_attr {
  vt_attr_key key;
  uint32_t count; // of ints, strings, funcs, shardings
  union {
    int64_t i64; // also BOOL and DTYPE
    double f64;
    vt_string string;
    const int64_t *ints;
    const vt_string *strings;
    const vt_literal *literal;
    vt_func **funcs;
    const vt_dict_value *dict; // kind VT_DICT_DICT
    const vt_sharding *const *shardings;
    const vt_program_call *kernel;
  };
} vt_attr;

struct vt_value {
  vt_type type;
  vt_op *op;     // the defining op; NULL for a parameter
  vt_func *func; // the function it is in
  int32_t index; // result or parameter number
  int32_t id;    // numbered by vt_func_number: parameters first, then results in order
  // for passes that walk forward once: see passes/rewrite.h. NULL outside of them
  vt_value *replaced_by;
};

struct vt_op { // first what every walk over a function looks at: it waits for memory
  vt_op *next;
  vt_opcode code;
  uint32_t operand_count; // captures included
  uint32_t result_count;
  uint32_t region_count;
  vt_value **operands;
  vt_value *results;
  void *note; // free for the pass or stage that owns the module right now
  vt_attr *attrs;
  uint32_t attr_count;
  uint32_t capture_count;
  vt_func *func;
  vt_func **regions;
  const vt_loc *loc; // never NULL
  vt_op *prev;
};

// What the framework says about a parameter or result of the entry function.
typedef struct vt_io_info {
  const vt_sharding *sharding; // NULL = not given
  int32_t alias_output;        // parameter: result it may share memory with, -1 = none
  bool donor;                  // parameter: donated, no result named
  const char *memory_kind;     // "" = default
  const char *layout_mode;     // "" = default
  const char *name;            // in the user's tree: "params['w']"; "" = not given
} vt_io_info;

struct vt_func {
  vt_module *module;
  const char *name; // "" for regions
  bool elementwise; // computes element by element: see vt_op_is_elementwise_call
  uint32_t param_count, return_count;
  vt_value **params;
  vt_value **returns;
  vt_op *first, *last;
  vt_io_info *param_info; // param_count entries; NULL except in functions of the module
  vt_io_info *return_info;
  int32_t value_count; // after vt_func_number
  int32_t op_count;    // likewise
  bool numbered;       // ids are still as that left them; who sets ids by itself clears it
  uint32_t value_room; // at least the number of values
  vt_op **holders;     // see vt_func_holders
  uint32_t holder_count, holder_room;
  bool holders_known; // but for those that were removed since
  bool holders_removed;
};

typedef struct vt_mesh_axis {
  const char *name;
  int64_t size;
} vt_mesh_axis;
typedef struct vt_mesh {
  const char *name; // "" for inlined meshes
  uint32_t axis_count;
  const vt_mesh_axis *axes;
  uint32_t device_count; // of device_ids; 0 = identity order
  const int64_t *device_ids;
} vt_mesh;

struct vt_module {
  vt_arena arena;
  const char *name; // "jit_step"
  vt_func *main;
  uint32_t func_count; // functions of the module, not regions
  vt_func **funcs;
  uint32_t mesh_count;
  const vt_mesh **meshes;
  int32_t num_partitions, num_replicas;
  const char *producer; // "StableHLO_v1.17.0"
  bool outline;         // CHLO's functions are single operators: to be measured, not to be run
  // Of which kinds operators were made in it, which may be gone: any that may have an effect,
  // collectives, by their codes.
  bool effects, collectives, made[VT_OP_COUNT + 1];
};

vt_module *vt_module_create(void);
void vt_module_destroy(vt_module *module); // accepts NULL

// Building. Parameter arrays grow at powers of two. vt_op_insert places an op before `before`, or
// appends it to `func`.
vt_func *vt_func_create(vt_module *module, const char *name); // not registered
void vt_module_add_func(vt_module *module, vt_func *func);    // registers; its name must be new
vt_func *vt_module_find_func(const vt_module *module, const char *name); // NULL when absent
vt_value *vt_func_add_param(vt_func *func, vt_type type);
void vt_func_set_returns(vt_func *func, uint32_t count, vt_value *const *values);
// A new op with room for the given counts; results get `types`. Fill in regions and attributes
// afterwards, and operands too when `operands` is NULL.
vt_op *vt_op_create(vt_func *func, vt_opcode code, const vt_loc *loc, uint32_t operand_count,
                    vt_value *const *operands, uint32_t result_count, const vt_type *types,
                    uint32_t region_count);
// Makes another op without attributes of one without regions: where it stood, with its results.
void vt_op_become(vt_op *op, vt_opcode code);
void vt_op_append(vt_func *func, vt_op *op);
void vt_op_insert(vt_op *before, vt_op *op);
void vt_op_remove(vt_op *op); // from its list; results must be unused
void vt_func_reorder(vt_func *func, uint32_t count, vt_op *const *ops); // all that it has
// Short form for rewrites: one result, placed before `before` (or appended when NULL).
vt_value *vt_build(vt_func *func, vt_op *before, vt_opcode code, const vt_loc *loc, vt_type type,
                   uint32_t operand_count, vt_value *const *operands);
vt_value *vt_build_constant(vt_func *func, vt_op *before, const vt_loc *loc,
                            const vt_literal *literal);
// Replaces each use of `from` in its function (operands and returns).
void vt_value_replace(vt_value *from, vt_value *to);
// A deep copy of `func` (regions copied too) into `module`, not registered.
vt_func *vt_func_clone(vt_module *module, const vt_func *func);
// Copies the ops of `callee` into `func` before `before` (or to its end when NULL), its parameters
// replaced by `args`; out_returns gets its returns.
void vt_func_inline(vt_func *callee, vt_func *func, vt_op *before, vt_value *const *args,
                    vt_value **out_returns);
// Whether an operator of the module, in regions too, is one that `is` says.
bool vt_module_any(const vt_module *module, bool (*is)(const vt_op *op));

// The ops that have regions, in order. Valid until one is added or removed.
vt_op *const *vt_func_holders(vt_func *func, uint32_t *out_count);
void vt_func_number(vt_func *func);            // sets ids and value_count
bool vt_func_is_numbered(const vt_func *func); // so, and nothing has changed since
// Numbers the values of the function and of all regions in it in one sequence; `next` is the first
// id, and then the one after the last.
void vt_func_number_all(vt_func *func, int32_t *next);
// Use counts by value id (operands and returns); the array is in `arena`. Numbers the function.
uint32_t *vt_func_use_counts(vt_func *func, vt_arena *arena);

// Attributes. Getters assert that the attribute is present, except vt_op_attr and the _or forms.
const vt_attr *vt_op_attr(const vt_op *op, vt_attr_key key); // NULL when absent
int64_t vt_attr_i64(const vt_op *op, vt_attr_key key);
int64_t vt_attr_i64_or(const vt_op *op, vt_attr_key key, int64_t otherwise);
double vt_attr_f64(const vt_op *op, vt_attr_key key);
const int64_t *vt_attr_ints(const vt_op *op, vt_attr_key key,
                            uint32_t *out_count);                    // out_count may be NULL
vt_string vt_attr_string(const vt_op *op, vt_attr_key key);          // empty when absent
const vt_literal *vt_attr_literal(const vt_op *op, vt_attr_key key); // NULL when absent
vt_func *vt_attr_func(const vt_op *op, vt_attr_key key);             // the only one of the list
void vt_op_set_attr(vt_op *op, vt_attr attr); // adds or replaces; value borrowed from the arena
void vt_op_set_i64(vt_op *op, vt_attr_key key, int64_t value);
void vt_op_set_f64(vt_op *op, vt_attr_key key, double value);
void vt_op_set_ints(vt_op *op, vt_attr_key key, uint32_t count, const int64_t *values); // copies
void vt_op_set_string(vt_op *op, vt_attr_key key, const char *string);                  // copies
bool vt_attr_equal(const vt_attr *a, const vt_attr *b);

// The number of the op's own operands, without captures.
static inline uint32_t vt_op_own_operands(const vt_op *op) {
  return op->operand_count - op->capture_count;
}

// A custom call that only annotates its one operand and returns it: its placement, its layout, who
// inspects it.
bool vt_op_is_marker(const vt_op *op);
// Whether it is one that says in which memory its operand is to be, and in which.
bool vt_op_places(const vt_op *op, bool *out_host);

// The function that a call or a composite runs; NULL for other ops.
vt_func *vt_op_callee(const vt_op *op);
// A call that is as good as one elementwise op, however long its function is: the calls that
// vt_spmd_inline keeps.
bool vt_op_is_elementwise_call(const vt_op *op);
// Of an op that runs others, or a custom call: whether there is an effect in it.
bool vt_op_runs_effect(const vt_op *op);
// Whether the op, or one that it runs, must stay where it is even if its results are unused.
static inline bool vt_op_has_effect(const vt_op *op) {
  if (vt_op_info_get(op->code)->flags & VT_OPF_EFFECT) return true;
  if (!op->func->module->effects) return false;
  bool plain = !op->region_count && op->code != VT_OP_CUSTOM_CALL && op->code != VT_OP_CALL &&
               op->code != VT_OP_COMPOSITE;
  return !plain && vt_op_runs_effect(op);
}
// The original form of a decomposition op that a pass made: a function with the same results; NULL
// for all other ops.
const vt_func *vt_op_written_out(const vt_op *op);

// Whether two ops do the same to operands of other types and number: attributes and regions are
// equal, channels of collectives apart. (alike.c)
bool vt_op_alike(const vt_op *a, const vt_op *b);
// Whether `a` is what `b` would be on these operands, and a hash that is then the same.
bool vt_op_equal(const vt_op *a, const vt_op *b, vt_value *const *operands);
uint64_t vt_op_hash(const vt_op *op, vt_value *const *operands);

// "add at jit(step)/relu (train.py:12)" for messages; text in `arena`.
const char *vt_op_describe(const vt_op *op, vt_arena *arena);
extern const vt_loc vt_loc_unknown;

// Enumerations of attributes (values as in VHLO).
enum { VT_CMP_EQ, VT_CMP_NE, VT_CMP_GE, VT_CMP_GT, VT_CMP_LE, VT_CMP_LT };
enum {
  VT_CMPTYPE_NOTYPE,
  VT_CMPTYPE_FLOAT,
  VT_CMPTYPE_TOTALORDER,
  VT_CMPTYPE_SIGNED,
  VT_CMPTYPE_UNSIGNED
};
// A product of rows in groups: {how many groups, one of these}. Other operators that serve it have
// the attribute without values.
enum {
  VT_RAGGED_ROWS, // all rows times all groups, the last contracted dimension
  VT_RAGGED_EACH, // a product for each group, the left operand's first own dimension
  VT_RAGGED_ONE   // all rows times the matrix of one group, or the like
};
enum { VT_PRECISION_DEFAULT, VT_PRECISION_HIGH, VT_PRECISION_HIGHEST };
enum { VT_FFT_FFT, VT_FFT_IFFT, VT_FFT_RFFT, VT_FFT_IRFFT };
enum { VT_RNG_DEFAULT, VT_RNG_THREE_FRY, VT_RNG_PHILOX };
enum { VT_DIST_UNIFORM = 1, VT_DIST_NORMAL = 2 };
enum { VT_TRANSPOSE_INVALID, VT_NO_TRANSPOSE, VT_TRANSPOSE, VT_ADJOINT };

// Checks the invariants and every op's types against its meaning. errors INVALID_ARGUMENT naming
// the op and its location
vt_status vt_module_verify(const vt_module *module) VT_CHECKED;
// Whether what the project's own rewrites made is verified too: in debug builds, and with
// VTPU_VERIFY_PASSES.
bool vt_verify_wanted(void);

// StableHLO text in MLIR's generic form. `locations`: each op carries its scope and its location in
// the user's source.
void vt_module_print(const vt_module *module, bool locations, vt_text *out_text);
// Of the same text without locations: equal for modules that compute the same in the same way.
uint64_t vt_module_hash(const vt_module *module);
// Large constants are elided past `max_literal` elements (-1 = all).
void vt_func_print(const vt_func *func, int64_t max_literal, vt_text *out_text);

#endif
