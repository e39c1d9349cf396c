// SPDX-License-Identifier: Apache-2.0
// mosaic_check.h - what no chip checks, for VTPU_PALLAS_CHECK: copies run as late as they may and
// in an order that a seed chooses, memory starts as NaN, and what could go wrong on a chip by the
// order of things is an error that names both lines. The kernel runs a second time with other
// values in the memory that nothing has written: what then differs depends on it, whatever its
// type.
#ifndef VT_MOSAIC_MOSAIC_CHECK_H
#define VT_MOSAIC_MOSAIC_CHECK_H

#include "base/array.h"
#include "mosaic/mosaic_run.h"

typedef struct vt_mcheck vt_mcheck; // of one run over all its machines; NULL: nothing is checked

// What the first of two runs stores, in order; starts as zeros.
typedef struct vt_mstore {
  const vt_mop *op; // NULL: a part of a result
  uint64_t hash;
} vt_mstore;
typedef struct vt_mtrace {
  VT_ARRAY(vt_mstore) stores;
  size_t at; // in the second run
  bool second;
} vt_mtrace;

vt_mcheck *vt_mcheck_new(vt_arena *arena, uint64_t seed, vt_mmachine *machines, int32_t count,
                         vt_mtrace *trace);

// Memory that nothing has written: NaN, the least integer. `own`: a NaN that is recognized later,
// and in a second run 1.
void vt_mcheck_fill(const vt_mcheck *check, vt_marray *array, bool own);
// True in a second run, which prints nothing.
bool vt_mcheck_again(const vt_mcheck *check);

// All calls below do nothing without checks.

// An access by the machine's own op (NULL: by the grid), to what exists of the view.
// errors FAILED_PRECONDITION: a copy that uses it has not been waited for
vt_status vt_mcheck_access(vt_mmachine *m, const vt_mop *op, const vt_mview *view,
                           bool writes) VT_CHECKED;
// The op has written the view.
// errors FAILED_PRECONDITION: a second run does something else than the first
vt_status vt_mcheck_stored(vt_mmachine *m, const vt_mop *op, const vt_mview *view) VT_CHECKED;
// A copy starts: it is put off until somebody waits. `sent` may be NULL; amounts are credits.
vt_status vt_mcheck_start(vt_mmachine *m, const vt_mop *op, const vt_mview *source,
                          vt_mmachine *target, const vt_mview *to, const vt_mview *at,
                          int64_t at_amount, const vt_mview *sent, int64_t sent_amount) VT_CHECKED;
// Before a wait or a look at the semaphore: copies that count on it run, until it holds `amount`.
vt_status vt_mcheck_arrive(vt_mmachine *m, const vt_mview *semaphore, int64_t amount) VT_CHECKED;
// A signal is given, a wait is over: what came before is known to whoever waits.
void vt_mcheck_signal(vt_mmachine *m, const vt_mop *op, vt_mmachine *target,
                      const vt_mview *semaphore);
void vt_mcheck_waited(vt_mmachine *m, const vt_mview *semaphore);
// The part of a result that is final. errors FAILED_PRECONDITION: it holds marked memory, or what
// the first run did not put there
vt_status vt_mcheck_result(vt_mmachine *m, const vt_mview *view, uint32_t result) VT_CHECKED;
// The kernel has ended: copies that a later kernel waits for run.
// errors FAILED_PRECONDITION: a copy was never waited for
vt_status vt_mcheck_end(vt_mmachine *m) VT_CHECKED;
// The op that last gave the semaphore something; NULL when unknown.
const vt_mop *vt_mcheck_giver(const vt_mmachine *m, const vt_marray *array, int64_t number);
// The error with the kernel, device and point of the grid.
vt_status vt_mcheck_place(const vt_mmachine *m, vt_status st) VT_CHECKED;

#endif
