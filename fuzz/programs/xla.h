// SPDX-License-Identifier: Apache-2.0
// xla.h - XLA:CPU as a judge: the plugin of the PyPI package xla-cpu-pjrt, loaded through the PJRT
// C API. Optimisations that change numbers are off (xla.c says which and why).
#ifndef VT_FUZZ_XLA_H
#define VT_FUZZ_XLA_H

#include "eval/eval.h"
#include "base/text.h"

typedef struct xla xla;
// Says where the plugin is: the first file that a pattern names. false: there is none.
bool xla_find(const char *pattern);
// Ends the process when the plugin cannot be loaded: one per process, before any thread is made.
xla *xla_open(void);
int xla_devices(const xla *x);
// Compiles StableHLO text for that many devices and runs its main once. Arguments and results are
// one row for each device, results allocated by the caller. false: XLA refuses, and out_why says
// what it says.
bool xla_run(xla *x, const char *text, size_t size, int devices, uint32_t arg_count,
             const vt_tensor *args, uint32_t result_count, const vt_tensor *results,
             vt_text *out_why);

#endif
