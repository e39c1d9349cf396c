// SPDX-License-Identifier: Apache-2.0
// row_orders.h - products whose rows are in one order on one side and in another on the other.
#ifndef VT_HOST_ROW_ORDERS_H
#define VT_HOST_ROW_ORDERS_H

#include "ir/module.h"

vt_status vt_row_orders(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
