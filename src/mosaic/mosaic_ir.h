// SPDX-License-Identifier: Apache-2.0
// mosaic_ir.h - a kernel as read: typed ops in blocks of SSA values, one row of mosaic.def per op.
//
// Invariants of a verified kernel: every operand is defined before its use, in its block or one
// around it; shapes are static but for dimensions of references; types and attributes fit the rules
// of the rows, so that running it checks only what depends on data: bounds, counts, waits.
// Everything is in one arena.
#ifndef VT_MOSAIC_MOSAIC_IR_H
#define VT_MOSAIC_MOSAIC_IR_H

#include "ir/module.h"
#include "mosaic/mosaic.h"

enum { VT_MOSAIC_VERSION = 17, VT_MOSAIC_RANK = 12, VT_MOSAIC_DYNAMIC = -1 };

typedef enum vt_mopcode {
#define MOP(code, ...) VT_MOP_##code,
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
  VT_MOP_COUNT
} vt_mopcode;

typedef enum vt_mattr_kind {
  VT_MATTR_KIND_I64, // also bool
  VT_MATTR_KIND_INTS,
  VT_MATTR_KIND_LISTS, // ints: the size of each list in front of its items
  VT_MATTR_KIND_STRING,
  VT_MATTR_KIND_WORD,  // i64: a vt_mword
  VT_MATTR_KIND_TYPE,  // i64: a vt_dtype
  VT_MATTR_KIND_VALUE, // literal
  VT_MATTR_KIND_SKIP
} vt_mattr_kind;

typedef enum vt_mattr_key {
  VT_MATTR_NONE,
#define MATTR(key, ...) VT_MATTR_##key,
#define MWORD(word, text)
#include "mosaic/mosaic_attrs.def"
#undef MWORD
#undef MATTR
  VT_MATTR_COUNT
} vt_mattr_key;

// Enumerations are words of the dialects' texts.
typedef enum vt_mword {
  VT_MWORD_NONE,
#define MATTR(...)
#define MWORD(word, text) VT_MWORD_##word,
#include "mosaic/mosaic_attrs.def"
#undef MWORD
#undef MATTR
  VT_MWORD_COUNT
} vt_mword;

typedef enum vt_mspace {
  VT_MSPACE_ANY,
  VT_MSPACE_VMEM,
  VT_MSPACE_SMEM,
  VT_MSPACE_HBM,
  VT_MSPACE_CMEM,
  VT_MSPACE_SEMAPHORE,
  VT_MSPACE_VMEM_SHARED,
  VT_MSPACE_HOST,
  VT_MSPACE_COUNT
} vt_mspace;

typedef enum vt_mkind { VT_MSCALAR, VT_MVECTOR, VT_MREF } vt_mkind;
typedef enum vt_msemaphore { VT_MSEM_NONE, VT_MSEM_REGULAR, VT_MSEM_DMA } vt_msemaphore;

typedef struct vt_mtype {
  vt_mkind kind;
  vt_dtype dtype; // index is S64; of semaphores S32, as counters
  vt_mspace space;
  vt_msemaphore semaphore;
  int32_t rank;
  const int64_t *dims; // of a reference also VT_MOSAIC_DYNAMIC
} vt_mtype;

typedef struct vt_mop vt_mop;
typedef struct vt_mblock vt_mblock;

typedef struct vt_mvalue {
  vt_mtype type;
  int32_t slot; // number in the kernel
  int32_t ref;  // number among the references; -1
  vt_mop *op;   // NULL for an argument
  vt_mblock *block;
} vt_mvalue;

typedef struct vt_mattr {
  vt_mattr_key key;
  uint32_t count; // of ints
  int64_t i64;
  const int64_t *ints;
  vt_string string;
  const vt_literal *literal; // rank 0 for scalars
} vt_mattr;

struct vt_mop {
  vt_mopcode code;
  uint32_t operand_count, result_count, block_count, attr_count, dead_count;
  vt_mvalue **operands;
  vt_mvalue *results;
  vt_mblock **blocks; // one for each region; empty regions have one without ops
  vt_mattr *attrs;
  int32_t place;        // of allocations: its number
  uint32_t number, end; // in the order of the text, and the number after those in its blocks
  vt_mvalue **dead;     // vectors of the op's block that are used here last
  const vt_loc *loc;    // never NULL
  vt_mblock *block;
  vt_mop *next;
};

struct vt_mblock {
  vt_mop *owner; // NULL for a function's
  uint32_t arg_count;
  vt_mvalue *args;
  vt_mop *first, *last;
};

typedef struct vt_mfunc {
  vt_string name;
  vt_mblock *block;
  uint32_t result_count;
} vt_mfunc;

// How an operand or a result of the call reaches the body.
typedef struct vt_mwindow {
  bool whole;          // no blocks: the array itself
  bool element;        // indices are offsets of elements
  bool revisits;       // a block may be left and come back
  bool synchronous;    // one buffer
  vt_mfunc *transform; // of blocks
  int64_t pad_low[VT_MOSAIC_RANK], pad_high[VT_MOSAIC_RANK];
} vt_mwindow;

typedef struct vt_mconfig {
  bool has_communication, disable_bounds_checks, disable_semaphore_checks;
  int64_t collective_id; // -1: none
  int64_t vmem_limit;    // bytes; 0: none set
  int64_t scratch;       // bytes of VMEM that the compiler may use for itself
  bool says;             // its cost:
  double flops, transcendentals, bytes;
} vt_mconfig;

struct vt_mosaic {
  const char *name;
  vt_mconfig config;
  int64_t version;
  vt_mfunc *body;
  uint32_t func_count;
  vt_mfunc *funcs;
  uint32_t grid_rank;
  int64_t *grid; // INT64_MIN: an operand of the call
  // The dimension of the grid whose points are divided among cores; -1: none. Whether the program
  // says so, with one point each, and they may wait for one another.
  int32_t core_dim, core_count;
  bool cores_meet;
  uint32_t parallel_dims; // leading ones whose points are said to be independent
  uint32_t dynamic_count, prefetch_count, scratch_count;
  uint32_t window_count; // inputs and outputs
  uint32_t input_count;  // of them, as the calls say
  vt_mwindow *windows;
  int32_t slot_count, ref_count, place_count;
  vt_mvalue **places; // results of the allocations
  bool meets_devices; // remote copies or signals, or a barrier
  bool attached;      // to a call
  uint32_t op_count;
  vt_mop **ops;          // by number
  uint64_t hash[2];      // of the text it was read from
  struct vt_mcode *code; // NULL: it is interpreted
};

// A machine of the kernel may wait for what another one does.
static inline bool vt_mosaic_meets(const vt_mosaic *kernel) {
  return kernel->meets_devices || kernel->cores_meet;
}

typedef struct vt_mop_info {
  const char *text;
  int32_t least, most, results, regions;
  uint32_t kinds;
  vt_opcode loop;
  bool is_unsigned;
  vt_status (*verify)(const vt_mop *op);
  const vt_mattr_key *attrs; // ends with NONE
} vt_mop_info;

// The kernel that is attached to a call; NULL when there is none.
const vt_mosaic *vt_mosaic_of(const vt_op *op);

const vt_mop_info *vt_mop_info_get(vt_mopcode code);
const char *vt_mattr_name(vt_mattr_key key);
vt_mattr_kind vt_mattr_kind_of(vt_mattr_key key);
bool vt_mattr_required(vt_mattr_key key);
vt_mword vt_mword_find(vt_string text); // NONE when unknown
const char *vt_mword_text(vt_mword word);
const char *vt_mspace_text(vt_mspace space);

const vt_mattr *vt_mop_attr(const vt_mop *op, vt_mattr_key key); // NULL when absent
int64_t vt_mop_i64(const vt_mop *op, vt_mattr_key key, int64_t otherwise);
// List `index` of an attribute of kind LISTS.
const int64_t *vt_mattr_list(const vt_mattr *attr, uint32_t index, uint32_t *out_count);
// The operands of group `group` of an op with segments; *out_count 0 when it has none.
vt_mvalue **vt_mop_group(const vt_mop *op, uint32_t group, uint32_t *out_count);
vt_mvalue *vt_mop_optional(const vt_mop *op, uint32_t group); // NULL when absent

// Whether a product rounds its operands to bf16: more than one pass counts as exact.
static inline bool vt_mop_rounds(const vt_mop *op) {
  int64_t precision = vt_mop_i64(op, VT_MATTR_PRECISION, VT_MWORD_BF16);
  return precision == VT_MWORD_BF16;
}

// The type without a sign, as kernels write it; INVALID for those that kernels do not have.
vt_dtype vt_mosaic_signless(vt_dtype dtype);
int64_t vt_mtype_elements(vt_mtype type); // -1 with unknown dimensions
static inline int64_t vt_mtype_bytes(vt_mtype type) {
  return vt_mtype_elements(type) * (int64_t)vt_dtype_bytes(type.dtype);
}
bool vt_mtype_same_dims(vt_mtype a, vt_mtype b);
bool vt_mtype_equal(vt_mtype a, vt_mtype b); // in which memory a reference lies does not count
void vt_mtype_print(vt_text *text, vt_mtype type);

// "add/pallas_call (train.py:12): tpu.matmul: message".
vt_status vt_mop_error(const vt_mop *op, vt_code code, const char *format, ...) VT_CHECKED
    VT_PRINTF(3, 4);

// Reading, in order (mosaic_config.c, mosaic_read.c, mosaic_verify.c, mosaic_plan.c).
vt_status vt_mosaic_config(vt_string text, vt_arena *arena, vt_mconfig *out_config,
                           vt_bytes *out_body) VT_CHECKED;
vt_status vt_mosaic_lower(vt_bytes body, vt_arena *scratch, vt_arena *arena,
                          vt_mosaic *kernel) VT_CHECKED;
vt_status vt_mosaic_verify(const vt_mosaic *kernel) VT_CHECKED;
void vt_mosaic_find_deaths(vt_mosaic *kernel, vt_arena *arena);
void vt_mosaic_number(vt_mosaic *kernel, vt_arena *arena);
// Divides the first dimension that can be between the device's cores, if the program does not.
void vt_mosaic_split(vt_mosaic *kernel, int32_t cores);
// errors INTERNAL, RESOURCE_EXHAUSTED: the chip's compiler would refuse the kernel
// `chip` is a topology name (mosaic_chips.def); NULL or unknown: memory has no limits but the
// program's own. Needs the kernel's input_count.
vt_status vt_mosaic_limits(const vt_mosaic *kernel, const vt_op *call, const char *chip) VT_CHECKED;

#endif
