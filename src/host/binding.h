// SPDX-License-Identifier: Apache-2.0
// binding.h - a processor of its own for each of two threads while a program runs, in virtual
// machines (docs/decisions/003-sleeping-threads.md).
#ifndef VT_HOST_BINDING_H
#define VT_HOST_BINDING_H

// Around a run that uses the team, by the thread that runs it. Binds after a pause, and only where
// the team has two threads, one for each processor that the process may use, no other run is under
// way and the user has not bound threads. Threads that a bound thread makes stay bound: whoever
// makes some lifts the binding first, for the rest of the run.
void vt_binding_begin(void);
void vt_binding_lift(void);
void vt_binding_end(void); // also without a beginning

#endif
