// SPDX-License-Identifier: Apache-2.0
// retention.c - see retention.h. Rows that money depends on (usage, credits, grants) are kept for
// ever.
#include "cloud/state/retention.h"

#include <stddef.h>

#include "base/checked.h"

#define STEP "200"

// The only argument is the time. A step uses an index and touches no more than it removes.
static const struct kept {
  size_t days; // in vt_cloud_options
  const char *sql;
} kept[] = {
    {offsetof(vt_cloud_options, keep_operations),
     "DELETE FROM operations WHERE name IN (SELECT name FROM operations WHERE done = 1 AND "
     "ended_ns < ? ORDER BY ended_ns LIMIT " STEP ")"},
    // The daemon's secret is an event, and the clock never goes behind the last event.
    {offsetof(vt_cloud_options, keep_events),
     "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at_ns < ? AND kind <> 'secret' "
     "AND id < (SELECT MAX(id) FROM events) ORDER BY at_ns LIMIT " STEP ")"},
    {offsetof(vt_cloud_options, keep_logs),
     "DELETE FROM log_entries WHERE id IN (SELECT id FROM log_entries WHERE at_ns < ? ORDER BY "
     "at_ns LIMIT " STEP ")"},
    {offsetof(vt_cloud_options, keep_reports),
     "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE end_ns > 0 AND end_ns < ? ORDER BY "
     "end_ns LIMIT " STEP ")"}};

typedef struct step {
  const char *sql;
  int64_t before_ns, gone;
} step;

static vt_status remove_some(vt_cloud *cloud, void *context) {
  step *s = context;
  return vt_store_run(cloud->store, &s->gone, s->sql, "i", s->before_ns);
}

vt_status vt_retention_step(vt_cloud *cloud, bool *out_more) {
  *out_more = false;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    int64_t days = *(const int64_t *)((const char *)&cloud->options + kept[i].days), ns;
    if (days <= 0 || !vt_mul(days, VT_DAY, &ns)) continue;
    step s = {kept[i].sql, vt_cloud_now(cloud) - ns, 0};
    if (s.before_ns <= 0) continue;
    VT_TRY(vt_cloud_transact(cloud, remove_some, &s));
    if (s.gone) *out_more = true;
  }
  return VT_OK;
}
