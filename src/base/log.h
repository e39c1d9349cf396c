// SPDX-License-Identifier: Apache-2.0
// log.h - messages to standard error, at or above the level in VTPU_LOG (error, warning, info,
// debug; default warning). Threads: any.
#ifndef VT_BASE_LOG_H
#define VT_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

typedef enum vt_log_level { VT_LOG_ERROR, VT_LOG_WARNING, VT_LOG_INFO, VT_LOG_DEBUG } vt_log_level;

bool vt_log_on(vt_log_level level);
void vt_log(vt_log_level level, const char *format, ...) VT_PRINTF(2, 3);

#endif
