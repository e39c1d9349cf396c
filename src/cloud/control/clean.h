// SPDX-License-Identifier: Apache-2.0
// clean.h - cleans up after clouds that did not shut down in order: killed, or stopped with their
// machine.
#ifndef VT_CLOUD_CLEAN_H
#define VT_CLOUD_CLEAN_H

#include "base/status.h"

// Ends the workers of the cloud with that state folder and removes its remains on this host; ""
// does so for all throw-away clouds, including their folders. Prints what was removed. A running
// cloud is skipped; errors FAILED_PRECONDITION when it was named.
vt_status vt_clean(const char *state_dir) VT_CHECKED;

#endif
