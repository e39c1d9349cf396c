// SPDX-License-Identifier: Apache-2.0
// xla.h - XLA:CPU as a judge: the plugin of the PyPI package xla-cpu-pjrt, loaded through the PJRT
// C API. Optimisations that change numbers are off (xla.c says which and why).
#ifndef VT_FUZZ_XLA_H
#define VT_FUZZ_XLA_H

#include "eval/eval.h"
#include "base/text.h"

typedef struct xla xla;
// Sets the plugin's path: the first file that matches a pattern. false: there is none.
bool xla_find(const char *pattern);
// Exits when the plugin cannot be loaded. One per process, before any thread is created.
xla *xla_open(void);
int xla_devices(const xla *x);
// Compiles StableHLO text for that many devices and runs its main once. Arguments and results have
// one row per device; the caller allocates results. false: XLA rejects it, and out_why has its
// message.
bool xla_run(xla *x, const char *text, size_t size, int devices, uint32_t arg_count,
             const vt_tensor *args, uint32_t result_count, const vt_tensor *results,
             vt_text *out_why);

#endif
