// SPDX-License-Identifier: Apache-2.0
// predict_view.h - the parts of a prediction's page.
#ifndef VT_CLI_PREDICT_VIEW_H
#define VT_CLI_PREDICT_VIEW_H

#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "runtime/predict.h"

// The name of an operator, as the user's tree has it, and its line. (predict_page.c)
void vt_cli_put_place(vt_text *out, const vt_op *op, const char *otherwise);
// HBM over time, and what lies in it at the peak and why. (predict_memory.c)
void vt_cli_put_memory(vt_text *out, const vt_prediction *prediction, const vt_slice *slice);

#endif
