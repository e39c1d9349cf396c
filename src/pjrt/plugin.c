// SPDX-License-Identifier: Apache-2.0
// plugin.c - makes libvtpu.so one library: the stages are linked in, GetPjrtApi (api.c) is what a
// framework looks up.
#include "pjrt/abi.h"

extern const PJRT_Api *GetPjrtApi(void);
// Kept by reference so that the linker takes api.c, and through its table everything else.
extern const PJRT_Api *(*const vt_plugin_entry)(void);
const PJRT_Api *(*const vt_plugin_entry)(void) = GetPjrtApi;
