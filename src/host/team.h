// SPDX-License-Identifier: Apache-2.0
// team.h - threads for loops that follow one another closely. Why not OpenMP's, which sleep as soon
// as a loop ends: docs/decisions/003-sleeping-threads.md.
#ifndef VT_HOST_TEAM_H
#define VT_HOST_TEAM_H

#include <stdint.h>

// Runs task(context, i) for each i < count, on up to vt_host_threads() threads, the calling one
// among them. Each takes the next i when it is free, so results must not depend on who runs what.
// Subnormal numbers are zeros in all of them, as they must be in the caller. Threads: any; of two
// callers at a time, one gets OpenMP's threads.
void vt_team_run(int64_t count, void (*task)(void *context, int64_t i), void *context);

#endif
