// SPDX-License-Identifier: Apache-2.0
// waiting.h - how the threads of the OpenMP team wait for each other and for the next loop: asleep,
// or spinning for a while first (docs/decisions/003-sleeping-threads.md).
#ifndef VT_HOST_WAITING_H
#define VT_HOST_WAITING_H

#include <stdbool.h>
#include <stdint.h>

// Says that GNU OpenMP has been told to spin, and that the two below decide when it does not. Until
// it is called they do nothing, and teams have all threads.
void vt_waiting_manage(void);
void vt_waiting_begin(void); // before a run that uses the team
void vt_waiting_end(void);   // after it

// How many of the threads should do work that takes one of them so long: all that share it, or one
// where it would take them longer. Never some: GNU OpenMP ends the threads of a team that a smaller
// one leaves out, and makes new ones for the next.
int32_t vt_waiting_team(int64_t nanoseconds, int32_t threads);

// What has been seen since waiting was last decided on.
typedef struct vt_waiting_window {
  int64_t preempted, runs, busy_us; // busy: processor time of the process
} vt_waiting_window;

// Whether threads should sleep at once, which they did so far if `asleep`. `quiet` counts windows
// without others, one after the other.
bool vt_waiting_decide(const vt_waiting_window *window, bool asleep, int *quiet);

#endif
