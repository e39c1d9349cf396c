// SPDX-License-Identifier: Apache-2.0
// guest_testing.h - what the tests with real guests share: a namespace of their own, shell commands
// and their output.
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
// The last output has the text.
void guest_says(const char *text);
// Moves this process into a network and a mount namespace of its own, with a HOME of its own and
// the programs of this build first on the PATH. 0, or 77 after saying why this machine can not;
// `needed` are more files, NULL at the end.
int guest_namespace(const char *const *needed);
// Removes the HOME that guest_namespace made, here or in the process that started this one, and
// nothing where it made none.
void guest_end(void);

#endif
