// SPDX-License-Identifier: Apache-2.0
// billing.h - the ledger: intervals of use, each with its units and its price, summed exactly.
//
// A row of `usage` is one interval of one node: kind tpu (units = chips) or disk (units = GB), with
// the price per unit and hour at its start. An interval covers the whole seconds [floor(start),
// floor(end)), so neighbours neither share a second nor miss one. Sums stay integers of nano-USD *
// seconds / 3600 until they are shown.
#ifndef VT_CLOUD_BILLING_H
#define VT_CLOUD_BILLING_H

#include "base/checked.h"
#include "cloud/state/node.h"

// The price of a worker's boot disk per GB and hour. Source: persistent disk (balanced), 0.10 USD
// per GB and month.
#define VT_DISK_NANOS_HOUR 136986

vt_status vt_bill_open(vt_cloud *cloud, const vt_node *node) VT_CHECKED; // the node became READY
// The node left READY (no-op when no interval is open). A node preempted in its first minute costs
// nothing.
vt_status vt_bill_close(vt_cloud *cloud, const vt_node *node, bool preempted) VT_CHECKED;
vt_status vt_bill_open_disk(vt_cloud *cloud, const vt_node *node) VT_CHECKED; // at disk creation
vt_status vt_bill_close_disk(vt_cloud *cloud, const vt_node *node) VT_CHECKED;

// units * nano-USD/hour * seconds of the part of one interval inside [from, to), in nano-USD *
// seconds (divide by 3600).
vt_int128 vt_bill_interval(int64_t units, int64_t price_nanos, int64_t start_ns, int64_t end_ns,
                           int64_t from_ns, int64_t to_ns);
// Sum of a project in [from, to); open intervals count until now. Rounded half up to nano-USD once,
// at the end.
vt_status vt_bill_total(vt_cloud *cloud, const char *project, int64_t from_ns, int64_t to_ns,
                        int64_t *out_nanos) VT_CHECKED;
// How much of the use in [from, to), a month, credit pays for (credit.c).
vt_status vt_bill_credit(vt_cloud *cloud, const char *project, int64_t from_ns, int64_t to_ns,
                         int64_t *out_nanos) VT_CHECKED;
// Such a sum in nano-USD, rounded half up.
int64_t vt_bill_round(vt_int128 sum);
// errors FAILED_PRECONDITION while the month's budget is spent and stops the project: nothing
// billable may start.
vt_status vt_bill_may_begin(vt_cloud *cloud, const char *project) VT_CHECKED;
// Budgets: alerts at 50, 90 and 100 percent of the month's; a budget that stops ends the project's
// nodes while it is spent.
vt_status vt_bill_check_budgets(vt_cloud *cloud) VT_CHECKED;
// Alerts once for each READY node whose chips have been idle for the time in the options.
vt_status vt_bill_check_idle(vt_cloud *cloud) VT_CHECKED;
// First instant of the month of `now`, and its name "2026-01".
int64_t vt_bill_month(int64_t now_ns, char out_name[32]);

#endif
