// SPDX-License-Identifier: Apache-2.0
// fork.c - see fork.h.
#include "base/fork.h"

#include <stdatomic.h>

#include "base/log.h"

static bool forked;
static atomic_flag said = ATOMIC_FLAG_INIT;

static void in_child(void) {
  forked = true;
}

static void watch(void) {
  pthread_atfork(NULL, NULL, in_child);
}

void vt_fork_watch(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
}

bool vt_forked(void) {
  return forked;
}

// Also printed once: a framework may lose the error, or wait for threads that the child lacks too
// (jaxlib compiles on one).
vt_status vt_fork_check(void) {
  if (!forked) return VT_OK;
  vt_status st = vt_error(
      VT_FAILED_PRECONDITION,
      "this process was forked from one that uses the TPU already; start it with \"spawn\" or fork "
      "before the first use of a device");
  if (!atomic_flag_test_and_set(&said)) vt_log(VT_LOG_ERROR, "%s", vt_status_message(st));
  return st;
}
