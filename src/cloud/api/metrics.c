// SPDX-License-Identifier: Apache-2.0
// metrics.c - request counters by status class, a latency histogram, and gauges read from the store
// when asked.
#include "cloud/api/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double bounds_s[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1};
enum { bound_count = sizeof bounds_s / sizeof *bounds_s };

struct vt_metrics {
  uint64_t by_class[6]; // index: status / 100
  uint64_t buckets[bound_count + 1];
  double sum_s;
  int64_t start_ns;
};

vt_status vt_metrics_create(struct vt_metrics **out_metrics) {
  *out_metrics = calloc(1, sizeof **out_metrics);
  if (!*out_metrics) return vt_error_no_memory();
  (*out_metrics)->start_ns = vt_metrics_clock();
  return VT_OK;
}

void vt_metrics_destroy(struct vt_metrics *metrics) {
  free(metrics);
}

void vt_metrics_call(vt_cloud *cloud, const vt_call *call, int64_t took_ns) {
  struct vt_metrics *m = cloud->metrics;
  int status_class = call->status / 100;
  m->by_class[status_class >= 0 && status_class < 6 ? status_class : 0]++;
  double seconds = (double)took_ns / 1e9;
  m->sum_s += seconds;
  int bucket = 0;
  while (bucket < bound_count && seconds > bounds_s[bucket]) bucket++;
  m->buckets[bucket]++;
}

static vt_status write_groups(vt_cloud *cloud, vt_text *out, const char *name, const char *help,
                              const char *label, const char *sql) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows, sql, ""));
  vt_text_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
  while (vt_rows_next(rows))
    vt_text_printf(out, "%s{%s=\"%s\"} %" PRId64 "\n", name, label, vt_rows_text(rows, 0),
                   vt_rows_int(rows, 1));
  return vt_rows_end(rows);
}

vt_status vt_metrics_write(vt_cloud *cloud, vt_text *out_text) {
  const struct vt_metrics *m = cloud->metrics;
  vt_text *out = out_text;
  vt_text_put(out, "# HELP vtpud_requests_total Answered API calls by status class.\n# TYPE "
                   "vtpud_requests_total counter\n");
  for (int i = 1; i < 6; i++)
    vt_text_printf(out, "vtpud_requests_total{class=\"%dxx\"} %" PRIu64 "\n", i, m->by_class[i]);
  vt_text_put(out, "# HELP vtpud_request_seconds Time of a call from its lock to its reply.\n"
                   "# TYPE vtpud_request_seconds histogram\n");
  uint64_t total = 0;
  for (int i = 0; i < bound_count; i++) {
    total += m->buckets[i];
    vt_text_printf(out, "vtpud_request_seconds_bucket{le=\"%g\"} %" PRIu64 "\n", bounds_s[i],
                   total);
  }
  total += m->buckets[bound_count];
  vt_text_printf(out,
                 "vtpud_request_seconds_bucket{le=\"+Inf\"} %" PRIu64
                 "\nvtpud_request_seconds_sum %.6f\n"
                 "vtpud_request_seconds_count %" PRIu64 "\n",
                 total, m->sum_s, total);
  vt_text_printf(
      out,
      "# HELP vtpud_up_seconds Time since the daemon started.\n# TYPE vtpud_up_seconds gauge\n"
      "vtpud_up_seconds %.3f\n",
      (double)(vt_metrics_clock() - m->start_ns) / 1e9);
  VT_TRY(write_groups(cloud, out, "vtpud_nodes", "Nodes by state.", "state",
                      "SELECT state, COUNT(*) FROM nodes GROUP BY state ORDER BY state"));
  VT_TRY(write_groups(
      cloud, out, "vtpud_chips", "Chips in use by family.", "family",
      "SELECT family, SUM(chips) FROM nodes WHERE placed = 1 GROUP BY family ORDER BY family"));
  VT_TRY(write_groups(cloud, out, "vtpud_queued_resources", "Queued resources by state.", "state",
                      "SELECT state, COUNT(*) FROM queued GROUP BY state ORDER BY state"));
  return write_groups(cloud, out, "vtpud_operations", "Long-running operations, done or not.",
                      "done", "SELECT done, COUNT(*) FROM operations GROUP BY done ORDER BY done");
}
