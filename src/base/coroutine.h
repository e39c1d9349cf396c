// SPDX-License-Identifier: Apache-2.0
// coroutine.h - a function with a stack of its own, which may stop anywhere inside, give control
// back to whoever resumed it, and be resumed there.
//
// Threads: a coroutine stays on the thread that resumed it first.
#ifndef VT_BASE_COROUTINE_H
#define VT_BASE_COROUTINE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct vt_coroutine vt_coroutine;

// run(user) begins with the first resume. errors RESOURCE_EXHAUSTED
vt_status vt_coroutine_create(void (*run)(void *user), void *user,
                              vt_coroutine **out_coroutine) VT_CHECKED;
// Until it yields or is over, after which it may not be resumed.
void vt_coroutine_resume(vt_coroutine *coroutine);
// Called inside: goes back to where it was resumed.
void vt_coroutine_yield(vt_coroutine *coroutine);
// One that is not over loses its stack as it stands: it must hold nothing there. NULL is allowed.
void vt_coroutine_destroy(vt_coroutine *coroutine);

#endif
