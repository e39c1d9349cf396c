// SPDX-License-Identifier: Apache-2.0
// elementwise.h - functions that compute element by element, as random bits are made. A call of
// one is an elementwise op to propagation and to the partitioner, which write its hundreds of
// operations no more than once for each way to cut it.
#ifndef VT_SPMD_ELEMENTWISE_H
#define VT_SPMD_ELEMENTWISE_H

#include "ir/module.h"

// Whether it pays to treat calls of the function so, and none of its values could be cut otherwise
// than the others: it is long; all its arrays have one shape and depend on each other; its scalars
// are combined with each other or spread over that shape. Numbers the function.
bool vt_spmd_is_elementwise(vt_func *func);
// Makes it one on arrays of the dimensions of `like`.
void vt_spmd_elementwise_on(vt_func *func, vt_type like);
// Equal operations become one, so that no copy of the body has them twice.
void vt_spmd_merge_equal(vt_func *func);

#endif
