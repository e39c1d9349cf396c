// SPDX-License-Identifier: Apache-2.0
// credit.c - how much of a project's use credit pays for. A credit pays for use from the first
// instant of the month it was granted in until it expires, oldest use first, and no more than its
// amount over all months. If several are valid, the one that expires first pays. Sums are exact, in
// nano-USD * seconds like those of vt_bill_interval; a month's figure is rounded down, so that the
// months of a credit never add up to more than the credit.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/array.h"
#include "cloud/state/billing.h"

typedef struct credit {
  vt_int128 left; // nano-USD * 3600
  int64_t from_ns, to_ns;
} credit;

typedef struct interval {
  int64_t units, price_nanos, start_ns, end_ns;
} interval;

typedef struct account {
  vt_arena arena;
  VT_ARRAY(credit) credits; // by expiry
  VT_ARRAY(interval) use;
  VT_ARRAY(int64_t) cuts; // between two cuts the set of valid credits is constant
} account;

static vt_status load_credits(vt_cloud *cloud, account *a, const char *project) {
  vt_rows *rows;
  char month[32];
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT amount_nanos, from_ns, to_ns FROM credits WHERE project = ? ORDER "
                        "BY to_ns = 0, to_ns, id",
                        "s", project));
  while (vt_rows_next(rows)) {
    int64_t to = vt_rows_int(rows, 2);
    credit c = {(vt_int128)vt_rows_int(rows, 0) * 3600, vt_bill_month(vt_rows_int(rows, 1), month),
                to ? to : INT64_MAX};
    vt_array_push_in(&a->arena, &a->credits, c);
    vt_array_push_in(&a->arena, &a->cuts, c.from_ns);
    vt_array_push_in(&a->arena, &a->cuts, c.to_ns);
  }
  return vt_rows_end(rows);
}

static vt_status load_use(vt_cloud *cloud, account *a, const char *project, int64_t to_ns) {
  vt_rows *rows;
  int64_t now = vt_cloud_now(cloud);
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT units, price_nanos, start_ns, end_ns FROM usage WHERE project = ? "
                        "AND waived = 0 AND start_ns < ?",
                        "si", project, to_ns));
  while (vt_rows_next(rows)) {
    int64_t end = vt_rows_int(rows, 3);
    interval i = {vt_rows_int(rows, 0), vt_rows_int(rows, 1), vt_rows_int(rows, 2),
                  end ? end : now};
    vt_array_push_in(&a->arena, &a->use, i);
  }
  return vt_rows_end(rows);
}

static int by_time(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Pays for the use between two cuts; returns what was paid.
static vt_int128 pay(account *a, int64_t from_ns, int64_t to_ns) {
  vt_int128 due = 0, paid = 0;
  for (size_t i = 0; i < a->use.size; i++) {
    const interval *u = &a->use.data[i];
    due += vt_bill_interval(u->units, u->price_nanos, u->start_ns, u->end_ns, from_ns, to_ns);
  }
  for (size_t i = 0; i < a->credits.size && paid < due; i++) {
    credit *c = &a->credits.data[i];
    if (c->from_ns > from_ns || c->to_ns < to_ns) continue;
    vt_int128 part = due - paid < c->left ? due - paid : c->left;
    c->left -= part;
    paid += part;
    vt_assert(part >= 0 && c->left >= 0);
  }
  vt_assert(paid <= due); // credit pays only for use
  return paid;
}

vt_status vt_bill_credit(vt_cloud *cloud, const char *project, int64_t from_ns, int64_t to_ns,
                         int64_t *out_nanos) {
  account a = {0};
  vt_int128 paid = 0;
  *out_nanos = 0;
  vt_status st = load_credits(cloud, &a, project);
  if (st || !a.credits.size) goto out;
  VT_TRY_OUT(load_use(cloud, &a, project, to_ns));
  vt_array_push_in(&a.arena, &a.cuts, from_ns);
  vt_array_push_in(&a.arena, &a.cuts, to_ns);
  qsort(a.cuts.data, a.cuts.size, sizeof *a.cuts.data, by_time);
  for (size_t i = 0; i + 1 < a.cuts.size && a.cuts.data[i] < to_ns; i++) {
    vt_int128 part = pay(&a, a.cuts.data[i], a.cuts.data[i + 1]);
    if (a.cuts.data[i] >= from_ns) paid += part;
  }
  vt_assert(paid >= 0);
  vt_assert_each(i, a.cuts.size ? a.cuts.size - 1 : 0, a.cuts.data[i] <= a.cuts.data[i + 1]);
  *out_nanos = vt_clamp(paid / 3600);
out:
  vt_arena_free(&a.arena);
  return st;
}
