// SPDX-License-Identifier: Apache-2.0
// guest_testing.h - shared by the tests with real guests: their own namespace, shell commands and
// their output.
#ifndef VT_CLOUD_GUEST_TESTING_H
#define VT_CLOUD_GUEST_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text.h"

extern vt_text guest_output; // of the last command

// Runs a shell command with the programs of this build on the path; its exit status.
int guest_sh(const char *format, ...) VT_PRINTF(1, 2);
// As guest_sh, failing the test unless the status is 0.
void guest_must(const char *format, ...) VT_PRINTF(1, 2);
// Checks that the last output contains the text.
void guest_says(const char *text);
// Moves this process into its own network and mount namespace, with its own HOME and the programs
// of this build first on the PATH. 0, or 77 after saying why this machine cannot; `needed` are
// further files, NULL-terminated.
int guest_namespace(const char *const *needed);
// Removes the HOME that guest_namespace made, in this process or its parent; nothing if it made
// none.
void guest_end(void);

#endif
