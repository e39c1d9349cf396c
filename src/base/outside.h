// SPDX-License-Identifier: Apache-2.0
// outside.h - whether the external libraries are present. Only libvtpu.so defines it: it opens them
// itself (src/pjrt/outside.c); programs are linked with them.
#ifndef VT_BASE_OUTSIDE_H
#define VT_BASE_OUTSIDE_H

#include "base/status.h"

// FAILED_PRECONDITION with the name of the missing library; then nothing may be compiled or run.
__attribute__((weak)) vt_status vt_outside_ready(void) VT_CHECKED;

#endif
