// SPDX-License-Identifier: Apache-2.0
// xplane.h - private to the writers of profiles: the messages of xplane.proto, one field at a time.
#ifndef VT_RUNTIME_XPLANE_H
#define VT_RUNTIME_XPLANE_H

#include <stdint.h>

#include "base/text.h"
#include "base/wire.h"

// Fields of the messages of xplane.proto.
enum { SPACE_PLANES = 1, SPACE_HOSTNAMES = 4 };
enum {
  PLANE_ID = 1,
  PLANE_NAME,
  PLANE_LINES,
  PLANE_EVENT_METADATA,
  PLANE_STAT_METADATA,
  PLANE_STATS
};
enum { LINE_ID = 1, LINE_NAME, LINE_TIMESTAMP_NS, LINE_EVENTS, LINE_DURATION_PS = 9 };
enum { EVENT_METADATA_ID = 1, EVENT_OFFSET_PS, EVENT_DURATION_PS, EVENT_STATS };
enum { STAT_METADATA_ID = 1, STAT_DOUBLE, STAT_UINT64, STAT_INT64, STAT_STRING, STAT_BYTES_VALUE };
enum { METADATA_ID = 1, METADATA_NAME, METADATA_DISPLAY_NAME = 4, METADATA_STATS };
enum { MAP_KEY = 1, MAP_VALUE };

// Statistics, by the names that XProf looks for.
typedef enum vt_xplane_stat {
  STAT_CATEGORY = 1,
  STAT_FLOPS,
  STAT_BYTES,
  STAT_BREAKDOWN,
  STAT_OP_NAME,
  STAT_SOURCE,
  STAT_PROGRAM,
  STAT_SYMBOL,
  STAT_TIMES,
  STAT_BOUND,
  STAT_PEAK_FLOPS,
  STAT_PEAK_HBM,
  STAT_DEVICE,
  STAT_STEP,
  STAT_MXU_SHARE,
  STAT_HBM_SHARE,
  STAT_HLO,
  STAT_ALLOCATOR,
  STAT_RESERVED,
  STAT_ALLOCATED,
  STAT_AVAILABLE,
  STAT_MOST,
  STAT_REQUESTED,
  STAT_ALLOCATION,
  STAT_ADDRESS,
  STAT_REGION,
  STAT_SHAPES,
  STAT_END
} vt_xplane_stat;

extern const char *const vt_xplane_stat_names[STAT_END];

// A message within a message: appends it behind its length, frees it.
void vt_xplane_put_message(vt_text *out, uint32_t number, vt_text *message);
void vt_xplane_put_string(vt_text *out, uint32_t number, const char *text);
void vt_xplane_put_text(vt_text *out, uint32_t field, vt_xplane_stat which, const char *text);
void vt_xplane_put_integer(vt_text *out, uint32_t field, vt_xplane_stat which, uint32_t kind,
                           uint64_t value);
void vt_xplane_put_count(vt_text *out, uint32_t field, vt_xplane_stat which, double count);
void vt_xplane_put_double(vt_text *out, uint32_t field, vt_xplane_stat which, double value);
void vt_xplane_put_hbm(vt_text *out, uint32_t field, double bytes);
uint64_t vt_xplane_picoseconds(double seconds);
void vt_xplane_put_entry(vt_text *plane, uint32_t field, uint64_t key, vt_text *value);
void vt_xplane_put_event(vt_text *line, uint64_t id, double start, double seconds, vt_text *stats);
// The names of all statistics.
void vt_xplane_put_stat_names(vt_text *plane);

#endif
