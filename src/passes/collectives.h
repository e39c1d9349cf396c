// SPDX-License-Identifier: Apache-2.0
// collectives.h - passes over the program of one device (vt_spmd_partition): fewer and larger
// messages between devices, the same values up to the order of sums.
//
// Only collectives.def defines the order. Names, limits and flags are XLA's.
#ifndef VT_PASSES_COLLECTIVES_H
#define VT_PASSES_COLLECTIVES_H

#include "ir/module.h"

typedef enum vt_collective_pass {
#define COLLECTIVE(id, name, what) VT_COLLECTIVE_##id,
#include "passes/collectives.def"
#undef COLLECTIVE
  VT_COLLECTIVE_COUNT
} vt_collective_pass;

// How large a combined collective may become: bytes of its results, and their number.
typedef struct vt_combine_limits {
  int64_t bytes, count;
} vt_combine_limits;

typedef struct vt_collective_options {
  bool off[VT_COLLECTIVE_COUNT];
  vt_combine_limits all_reduce, others;
} vt_collective_options;

// What the command line says of them, with their names.
extern const char vt_collectives_help[];

// XLA's defaults, all passes on but those in VTPU_SKIP_PASSES.
vt_collective_options vt_collectives_default(void);
// Only the passes of a list: names with commas between, or "all". errors INVALID_ARGUMENT: an
// unknown name; lists those there are
vt_status vt_collectives_only(vt_collective_options *options, const char *list) VT_CHECKED;
// Applies flags of XLA, "--name=value" with spaces between; what has no meaning here is skipped.
// NULL: there are none. errors INVALID_ARGUMENT: a threshold that is no number
vt_status vt_collectives_flags(vt_collective_options *options, const char *flags) VT_CHECKED;

// Runs them, and drops what is unused then. The module's main has the same signature afterwards.
vt_status vt_collectives_run(vt_module *module, const vt_collective_options *options) VT_CHECKED;

// Every pass rewrites the module and reports whether it changed anything.
typedef vt_status vt_collective_fn(vt_module *module, const vt_collective_options *options,
                                   vt_arena *scratch, bool *out_changed);
#define COLLECTIVE(id, name, what) vt_collective_fn vt_opt_##id;
#include "passes/collectives.def"
#undef COLLECTIVE

#endif
