// SPDX-License-Identifier: Apache-2.0
// custom.h - chips that do not exist, for predictions of what another chip would do.
#ifndef VT_CHIP_CUSTOM_H
#define VT_CHIP_CUSTOM_H

#include "base/arena.h"
#include "chip/chip.h"

// A chip like `base`, changed as the text says: lines, or parts between commas, "hbm_bandwidth = 2
// TB/s"; "#" begins a comment; "as v5e" may come first and must name the base. "hbm = 2 TB/s" means
// the bandwidth. The names are those of custom.def. errors INVALID_ARGUMENT: with the line, and the
// nearest name
vt_status vt_chip_customise(const vt_chip *base, const char *text, size_t size, vt_arena *arena,
                            const vt_chip **out_chip) VT_CHECKED;

// The same with one of these multiplied by a factor. errors INVALID_ARGUMENT: no such name
vt_status vt_chip_scale(const vt_chip *base, const char *name, double factor, vt_arena *arena,
                        const vt_chip **out_chip, double *out_value) VT_CHECKED;
// "1.64 TB/s": a value of that name.
void vt_chip_put_custom(const char *name, double value, char *out, size_t size);

#endif
