// SPDX-License-Identifier: Apache-2.0
// plugin.c - makes libvtpu.so one library: the stages are linked in, GetPjrtApi (api.c) is what a
// framework looks up.
#include <stdlib.h>

#include "pjrt/abi.h"

extern const PJRT_Api *GetPjrtApi(void);
// Kept by reference so that the linker takes api.c, and through its table everything else.
extern const PJRT_Api *(*const vt_plugin_entry)(void);
const PJRT_Api *(*const vt_plugin_entry)(void) = GetPjrtApi;

// GNU OpenMP reads its settings when it is loaded, which happens with this library; the link option
// -z initfirst puts this function before that. Threads that wait for each other are to sleep at
// once: spinning saves 5 us per parallel loop on an idle machine, and costs a time slice of the
// scheduler on a busy one (a transformer step on two cores shared with sixteen other processes: 189
// ms asleep, 6.9 s spinning). What the user has set stays.
__attribute__((constructor)) static void sleep_when_waiting(void) {
  if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "0", 0);
}
