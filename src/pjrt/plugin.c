// SPDX-License-Identifier: Apache-2.0
// plugin.c - makes libvtpu.so one library: the stages are linked in, and GetPjrtApi (api.c) is what
// a framework looks up.
#include "pjrt/abi.h"

extern const PJRT_Api *GetPjrtApi(void);
// This reference makes the linker take api.c, and through its table everything else.
extern const PJRT_Api *(*const vt_plugin_entry)(void);
const PJRT_Api *(*const vt_plugin_entry)(void) = GetPjrtApi;
