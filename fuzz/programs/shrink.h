// SPDX-License-Identifier: Apache-2.0
// shrink.h - makes a failing program smaller while it keeps failing in the same way.
#ifndef VT_FUZZ_SHRINK_H
#define VT_FUZZ_SHRINK_H

#include "program.h"

// Says whether a candidate still fails as the first program did. Borrows it.
typedef bool (*shrink_test)(void *context, const program *candidate);

// Replaces *p by the smallest program found. Edits: fewer results; an op's result replaced by an
// operand, by an input or, inside a region, by a constant; calls, branches and one trip of loops
// inlined.
void shrink(program *p, shrink_test fails, void *context);

#endif
