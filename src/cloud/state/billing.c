// SPDX-License-Identifier: Apache-2.0
// billing.c - the ledger of billing.h over the `usage` table, budgets, and the calls that show
// bills.
#include "base/check.h"
#include "cloud/state/billing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cloud/store/row.h"

static vt_status open_interval(vt_cloud *cloud, const vt_node *node, const char *kind,
                               int64_t units, int64_t price) {
  vt_assert(units >= 0 && price >= 0 && vt_store_in_transaction(cloud->store));
  int64_t id, open;
  VT_TRY(vt_store_int(cloud->store, &open, 0,
                      "SELECT 1 FROM usage WHERE end_ns = 0 AND node = ? AND kind = ?", "is",
                      node->uid, kind));
  if (open) return vt_error(VT_INTERNAL, "node %s would be billed twice", node->id);
  VT_TRY(vt_cloud_next(cloud, "usage", &id));
  const vt_usage_row row = {.id = id,
                            .kind = kind,
                            .node = node->uid,
                            .project = node->project,
                            .zone = node->zone,
                            .node_id = node->id,
                            .type = node->type->name,
                            .klass = node->klass,
                            .units = units,
                            .price_nanos = price,
                            .start_ns = vt_cloud_now(cloud)};
  return vt_row_insert(cloud->store, usage, &row);
}

vt_status vt_bill_open(vt_cloud *cloud, const vt_node *node) {
  return open_interval(cloud, node, "tpu", node->type->chips,
                       vt_price_nanos(node->type, node->zone, vt_node_is_spot(node)));
}

vt_status vt_bill_open_disk(vt_cloud *cloud, const vt_node *node) {
  return open_interval(cloud, node, "disk", vt_node_boot_disk_gb(node) * node->workers,
                       VT_DISK_NANOS_HOUR);
}

vt_status vt_bill_close(vt_cloud *cloud, const vt_node *node, bool preempted) {
  vt_assert(vt_store_in_transaction(cloud->store));
  int64_t now = vt_cloud_now(cloud);
  return vt_store_run(cloud->store, NULL,
                      "UPDATE usage SET end_ns = ?, waived = CASE WHEN ? = 1 AND ? - start_ns < "
                      "60000000000 THEN 1 ELSE 0 "
                      "END WHERE end_ns = 0 AND node = ? AND kind = 'tpu'",
                      "iiii", now, (int64_t)preempted, now, node->uid);
}

vt_status vt_bill_close_disk(vt_cloud *cloud, const vt_node *node) {
  return vt_store_run(cloud->store, NULL,
                      "UPDATE usage SET end_ns = ? WHERE end_ns = 0 AND node = ? AND kind = 'disk'",
                      "ii", vt_cloud_now(cloud), node->uid);
}

vt_int128 vt_bill_interval(int64_t units, int64_t price_nanos, int64_t start_ns, int64_t end_ns,
                           int64_t from_ns, int64_t to_ns) {
  vt_assert(units >= 0 && price_nanos >= 0 && from_ns <= to_ns);
  if (start_ns < from_ns) start_ns = from_ns;
  if (end_ns > to_ns) end_ns = to_ns;
  int64_t seconds = end_ns / VT_SECOND - start_ns / VT_SECOND;
  if (seconds <= 0) return 0;
  return (vt_int128)units * price_nanos * seconds;
}

vt_status vt_bill_total(vt_cloud *cloud, const char *project, int64_t from_ns, int64_t to_ns,
                        int64_t *out_nanos) {
  vt_rows *rows;
  int64_t now = vt_cloud_now(cloud);
  vt_int128 sum = 0;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT units, price_nanos, start_ns, end_ns FROM usage WHERE project = ? AND waived = 0 AND "
      "start_ns < ? AND (end_ns = 0 OR end_ns > ?)",
      "sii", project, to_ns, from_ns));
  while (vt_rows_next(rows)) {
    int64_t end = vt_rows_int(rows, 3);
    sum += vt_bill_interval(vt_rows_int(rows, 0), vt_rows_int(rows, 1), vt_rows_int(rows, 2),
                            end ? end : now, from_ns, to_ns);
  }
  *out_nanos = vt_bill_round(sum);
  vt_assert(*out_nanos >= 0);
  return vt_rows_end(rows);
}

int64_t vt_bill_round(vt_int128 sum) {
  vt_assert(sum >= 0);
  return vt_clamp((sum + 1800) / 3600);
}

int64_t vt_bill_month(int64_t now_ns, char out_name[32]) {
  time_t seconds = (time_t)(now_ns / VT_SECOND);
  struct tm tm;
  gmtime_r(&seconds, &tm);
  snprintf(out_name, 32, "%04d-%02d", (tm.tm_year + 1900) % 10000, tm.tm_mon + 1);
  tm.tm_mday = 1;
  tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
  return (int64_t)timegm(&tm) * VT_SECOND;
}

static vt_status stop_project(vt_cloud *cloud, const char *project) {
  vt_arena arena = {0};
  VT_ARRAY(int64_t) uids = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT uid FROM nodes WHERE project = ? AND placed = 1 AND notice_ns = 0", "s", project);
  if (!st) {
    while (vt_rows_next(rows)) vt_array_push_in(&arena, &uids, vt_rows_int(rows, 0));
    st = vt_rows_end(rows);
  }
  for (size_t i = 0; !st && i < uids.size; i++) {
    vt_node node;
    bool found;
    st = vt_node_load_uid(cloud, &arena, uids.data[i], &node, &found);
    if (!st && found)
      st = vt_node_give_notice(cloud, &node, "TERMINATED", "budget of the month is spent");
    vt_node_fini(&node);
  }
  vt_arena_free(&arena);
  return st;
}

static vt_status spent_of_month(vt_cloud *cloud, const char *project, char out_month[32],
                                int64_t *out_spent) {
  int64_t now = vt_cloud_now(cloud), from = vt_bill_month(now, out_month);
  return vt_bill_total(cloud, project, from, now, out_spent);
}

vt_status vt_bill_may_begin(vt_cloud *cloud, const char *project) {
  char month[32];
  int64_t amount, spent;
  VT_TRY(vt_store_int(cloud->store, &amount, -1,
                      "SELECT amount_nanos FROM budgets WHERE project = ? AND stops = 1", "s",
                      project));
  if (amount < 0) return VT_OK;
  VT_TRY(spent_of_month(cloud, project, month, &spent));
  if (spent < amount) return VT_OK;
  return vt_error(VT_FAILED_PRECONDITION,
                  "The budget of project '%s' for %s is spent (%.2f of %.2f USD) and stops its "
                  "TPUs. Raise the budget, or wait for the next month.",
                  project, month, (double)spent / 1e9, (double)amount / 1e9);
}

static vt_status tell_budget(vt_cloud *cloud, const char *project, int64_t reached, int64_t spent,
                             int64_t amount, const char *month) {
  vt_assert(reached > 0 && reached <= 100 && spent >= 0);
  char detail[128];
  snprintf(detail, sizeof detail, "%d%% of the budget of %s is spent: %.2f of %.2f USD",
           (int)reached, month, (double)spent / 1e9, (double)amount / 1e9);
  return vt_cloud_event(cloud, "budget", project, "vtpud", project, detail);
}

static vt_status check_budget(vt_cloud *cloud, const char *project, int64_t amount, bool stops,
                              int64_t alerted, const char *month_seen) {
  static const int64_t levels[] = {50, 90, 100};
  char month[32];
  int64_t spent, reached = 0;
  VT_TRY(spent_of_month(cloud, project, month, &spent));
  bool new_month = strcmp(month, month_seen) != 0;
  if (new_month) alerted = 0;
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
    if ((vt_int128)spent * 100 >= (vt_int128)amount * levels[i]) reached = levels[i];
  if (reached > alerted || new_month)
    VT_TRY(vt_store_run(cloud->store, NULL,
                        "UPDATE budgets SET alerted_percent = ?, month = ? WHERE project = ?",
                        "iss", reached > alerted ? reached : alerted, month, project));
  if (reached > alerted) VT_TRY(tell_budget(cloud, project, reached, spent, amount, month));
  // Includes what was used since.
  return reached == 100 && stops ? stop_project(cloud, project) : VT_OK;
}

typedef struct budget {
  const char *project, *month;
  int64_t amount, stops, alerted;
} budget;

vt_status vt_bill_check_budgets(vt_cloud *cloud) {
  vt_arena arena = {0};
  VT_ARRAY(budget) budgets = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT project, month, amount_nanos, stops, alerted_percent FROM budgets", "");
  if (!st) {
    while (vt_rows_next(rows)) {
      budget b = {vt_arena_copy(&arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0))),
                  vt_arena_copy(&arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1))),
                  vt_rows_int(rows, 2), vt_rows_int(rows, 3), vt_rows_int(rows, 4)};
      vt_array_push_in(&arena, &budgets, b);
    }
    st = vt_rows_end(rows);
  }
  for (size_t i = 0; !st && i < budgets.size; i++) {
    const budget *b = &budgets.data[i];
    st = check_budget(cloud, b->project, b->amount, b->stops, b->alerted, b->month);
  }
  vt_arena_free(&arena);
  return st;
}

vt_status vt_bill_check_idle(vt_cloud *cloud) {
  vt_arena arena = {0};
  VT_ARRAY(int64_t) uids = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT uid FROM nodes WHERE state = 'READY' AND idle_alert = 0 AND busy_ns <= ?", "i",
      vt_cloud_now(cloud) - cloud->options.idle_alert_ns);
  if (!st) {
    while (vt_rows_next(rows)) vt_array_push_in(&arena, &uids, vt_rows_int(rows, 0));
    st = vt_rows_end(rows);
  }
  for (size_t i = 0; !st && i < uids.size; i++) {
    vt_node node;
    bool found;
    char detail[128];
    st = vt_node_load_uid(cloud, &arena, uids.data[i], &node, &found);
    if (st) break;
    node.idle_alert = true;
    st = vt_node_save(cloud, &node);
    snprintf(detail, sizeof detail, "READY for %.1f h, chip idle",
             (double)(vt_cloud_now(cloud) - node.busy_ns) / 3600e9);
    if (!st)
      st =
          vt_cloud_event(cloud, "idle", node.project, "vtpud", vt_node_name(&arena, &node), detail);
    vt_node_fini(&node);
  }
  vt_arena_free(&arena);
  return st;
}
