// SPDX-License-Identifier: Apache-2.0
// clean.h - what clouds have left that ended without their own end: killed, or with their machine.
#ifndef VT_CLOUD_CLEAN_H
#define VT_CLOUD_CLEAN_H

#include "base/status.h"

// Ends the workers of the cloud with that state folder and removes what they leave on this host; ""
// does so for all throw-away clouds, whose folders go, too. Says on stdout what was removed. A
// cloud that lives is left alone; errors FAILED_PRECONDITION when it was named.
vt_status vt_clean(const char *state_dir) VT_CHECKED;

#endif
