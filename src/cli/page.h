// SPDX-License-Identifier: Apache-2.0
// page.h - the parts of the pages of HTML that commands write.
#ifndef VT_CLI_PAGE_H
#define VT_CLI_PAGE_H

#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "runtime/predict.h"

// The name of an operator, as the user's tree has it, and its line. (predict_page.c)
void vt_cli_put_place(vt_text *out, const vt_op *op, const char *otherwise);
// HBM over time, and what lies in it at the peak and why. (predict_memory.c)
void vt_cli_put_memory(vt_text *out, const vt_prediction *prediction, const vt_slice *slice);

// A page of HTML that refers to nothing outside: its head, and its end and the file. (page.c)
void vt_cli_begin_page(vt_text *out, const char *title, const char *heading);
vt_status vt_cli_end_page(vt_text *out, const char *path) VT_CHECKED;
const char *vt_cli_bound_color(vt_bound bound);

#endif
