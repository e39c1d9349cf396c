// SPDX-License-Identifier: Apache-2.0
// gen_makers.h - the generators named in gen_ops.def. Contract: gen.h.
#ifndef VT_FUZZ_GEN_MAKERS_H
#define VT_FUZZ_GEN_MAKERS_H

#include "gen.h"

#define GEN(op, make, ...)         bool gen_##make(gen *g, const gen_row *row);
#define MESH(op, place, make, ...) bool gen_##make(gen *g, const gen_row *row);
#define LEFT_OUT(op, ...)
#include "gen_ops.def"
#undef GEN
#undef MESH
#undef LEFT_OUT
// A loop over the elements of stacks; gen_while makes some so.
bool gen_scan(gen *g, const gen_row *row);

#endif
