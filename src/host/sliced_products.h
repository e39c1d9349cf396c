// SPDX-License-Identifier: Apache-2.0
// sliced_products.h - products of which only slices of columns are read become products of slices.
#ifndef VT_HOST_SLICED_PRODUCTS_H
#define VT_HOST_SLICED_PRODUCTS_H

#include "ir/module.h"

vt_status vt_sliced_products(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
