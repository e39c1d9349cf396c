// SPDX-License-Identifier: Apache-2.0
// v1.h - the slice "v1" behind the public API: quantised models on the simulated first TPU.
// Internal to src/api.
#ifndef VT_API_V1_H
#define VT_API_V1_H

#include "tpu1/driver.h"
#include "vtpu/vtpu.h"

typedef struct vt_v1 vt_v1;

// Whether this accelerator type, or with NULL the environment's, is "v1".
bool vt_v1_asked(const char *accelerator_type);
vtpu_slice_info vt_v1_describe(void);
// A saved model, compiled, with its weights loaded.
vt_status vt_v1_load(vt_bytes bytes, vt_v1 **out_v1) VT_CHECKED;
void vt_v1_unload(vt_v1 *v1); // accepts NULL
const vt_func *vt_v1_main(const vt_v1 *v1);
// One batch; types were checked. One call at a time.
vt_status vt_v1_run(vt_v1 *v1, const vtpu_tensor *inputs, vtpu_tensor *outputs) VT_CHECKED;
vtpu_report vt_v1_report(const vt_v1 *v1);
void vt_v1_print(const vt_v1 *v1, vt_text *text); // assembler text

#endif
