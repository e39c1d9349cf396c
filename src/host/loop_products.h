// SPDX-License-Identifier: Apache-2.0
// loop_products.h - products that a loop makes on each trip become one product of many rows.
#ifndef VT_HOST_LOOP_PRODUCTS_H
#define VT_HOST_LOOP_PRODUCTS_H

#include "ir/module.h"

vt_status vt_loop_products(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
