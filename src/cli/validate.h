// SPDX-License-Identifier: Apache-2.0
// validate.h - the rows of `vtpu validate`.
#ifndef VT_CLI_VALIDATE_H
#define VT_CLI_VALIDATE_H

#include "base/array.h"
#include "cli/cli.h"
#include "runtime/validate.h"

typedef VT_ARRAY(vt_validation) vt_validations;

// Adds the training steps whose group, slice or name has `only` in it, in `arena`.
// errors: FAILED_PRECONDITION: no Python with JAX; those of vt_validate_program
vt_status vt_cli_validate_steps(const char *only, vt_arena *arena, vt_validations *rows) VT_CHECKED;

#endif
