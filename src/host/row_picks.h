// SPDX-License-Identifier: Apache-2.0
// row_picks.h - one element of each row, as the loss of a classifier takes, and its gradient.
#ifndef VT_HOST_ROW_PICKS_H
#define VT_HOST_ROW_PICKS_H

#include "ir/module.h"

vt_status vt_row_picks(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
