// SPDX-License-Identifier: Apache-2.0
// bill_calls.c - the billing calls: the bill of a month as JSON and CSV, budgets, credit, prices.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cloud/api/handlers.h"
#include "cloud/state/billing.h"
#include "cloud/store/row.h"

// "2026-01" to the month's first instant and the first one after it.
static bool month_bounds(const char *month, int64_t *out_from, int64_t *out_to) {
  int year, number;
  char tail;
  if (strlen(month) != 7 || sscanf(month, "%4d-%2d%c", &year, &number, &tail) != 2 || number < 1 ||
      number > 12 || year < 1970 || year > 2200) // 64-bit nanoseconds end in 2262
    return false;
  struct tm from = {.tm_year = year - 1900, .tm_mon = number - 1, .tm_mday = 1};
  struct tm to = {.tm_year = year - 1900, .tm_mon = number, .tm_mday = 1};
  *out_from = (int64_t)timegm(&from) * VT_SECOND;
  *out_to = (int64_t)timegm(&to) * VT_SECOND;
  return true;
}

static void money(int64_t nanos, char out_text[40]) {
  snprintf(out_text, 40, "%s%lld.%09lld", nanos < 0 ? "-" : "", llabs(nanos) / 1000000000,
           llabs(nanos) % 1000000000);
}

// One line of the bill: an interval, cut to the month. Each gets the whole nano-USD left after
// `before`, the sum of the lines before it, so that the lines add up to the total.
static json_t *line(const vt_rows *rows, int64_t from, int64_t to, int64_t now, vt_int128 *before) {
  char start[40], end[40], cost[40], price[40];
  int64_t start_ns = vt_rows_int(rows, 8), end_ns = vt_rows_int(rows, 9),
          until = end_ns ? end_ns : now;
  vt_int128 sum =
      vt_rows_int(rows, 10)
          ? 0
          : vt_bill_interval(vt_rows_int(rows, 6), vt_rows_int(rows, 7), start_ns, until, from, to);
  int64_t a = start_ns > from ? start_ns : from, b = until < to ? until : to;
  vt_time_format(a, start);
  vt_time_format(b, end);
  money(vt_bill_round(*before + sum) - vt_bill_round(*before), cost);
  *before += sum;
  money(vt_rows_int(rows, 7), price);
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:s, s:b, s:b, s:f}", "kind",
      vt_rows_text(rows, 0), "node", vt_rows_text(rows, 2), "zone", vt_rows_text(rows, 3),
      "acceleratorType", vt_rows_text(rows, 4), "class", vt_rows_text(rows, 5), "units",
      (json_int_t)vt_rows_int(rows, 6), "usdPerUnitHour", price, "start", start, "end", end,
      "seconds", (json_int_t)(b / VT_SECOND - a / VT_SECOND), "usd", cost, "running", end_ns == 0,
      "waived", (int)vt_rows_int(rows, 10), "deviceSeconds", (double)vt_rows_int(rows, 11) / 1e9);
}

static void to_csv(vt_call *call, const json_t *lines) {
  static const char *const columns[] = {
      "kind",  "node", "zone",    "acceleratorType", "class", "units", "usdPerUnitHour",
      "start", "end",  "seconds", "deviceSeconds",   "usd",   "waived"};
  enum { count = sizeof columns / sizeof *columns };
  call->content_type = "text/csv; charset=UTF-8";
  for (int c = 0; c < count; c++)
    vt_text_printf(&call->raw, "%s%s", columns[c], c + 1 < count ? "," : "\r\n");
  for (size_t i = 0; i < json_array_size(lines); i++)
    for (int c = 0; c < count; c++) {
      const json_t *value = json_object_get(json_array_get(lines, i), columns[c]);
      // Ids can begin with '+' or '-', which spreadsheets read as a formula; a leading quote makes
      // them text.
      const char *text = json_string_value(value);
      if (text)
        vt_text_printf(&call->raw, "\"%s%s\"", strchr("+-=@", *text) && *text ? "'" : "", text);
      else if (json_is_real(value))
        vt_text_printf(&call->raw, "%.6f", json_real_value(value));
      else if (json_is_integer(value))
        vt_text_printf(&call->raw, "%lld", (long long)json_integer_value(value));
      else
        vt_text_put(&call->raw, json_is_true(value) ? "true" : "false");
      vt_text_put(&call->raw, c + 1 < count ? "," : "\r\n");
    }
}

vt_status vt_bill_get(vt_call *call) {
  const char *month = vt_call_query(call, "month"), *alt = vt_call_query(call, "alt");
  char this_month[32], text[40];
  int64_t now = vt_cloud_now(call->cloud), from, to, total, credit;
  vt_rows *rows;
  vt_bill_month(now, this_month);
  if (!month || !*month) month = this_month;
  if (!month_bounds(month, &from, &to))
    return vt_error(VT_INVALID_ARGUMENT, "month has the form 2026-01");
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT kind, node, node_id, zone, type, class, units, price_nanos, start_ns, end_ns, "
      "waived, device_ns "
      "FROM usage WHERE "
      "project = ? AND start_ns < ? AND (end_ns = 0 OR end_ns > ?) ORDER BY start_ns, id",
      "sii", call->project, to, from));
  json_t *lines = json_array();
  vt_int128 sum = 0;
  while (vt_rows_next(rows)) json_array_append_new(lines, line(rows, from, to, now, &sum));
  vt_status st = vt_rows_end(rows);
  if (!st) st = vt_bill_total(call->cloud, call->project, from, to, &total);
  if (!st) st = vt_bill_credit(call->cloud, call->project, from, to, &credit);
  if (st) {
    json_decref(lines);
    return st;
  }
  if (alt && strcmp(alt, "csv") == 0) {
    to_csv(call, lines);
    json_decref(lines);
    return VT_OK;
  }
  money(total, text);
  call->reply = json_pack("{s:s, s:s, s:s, s:o}", "project", call->project, "month", month, "usd",
                          text, "lines", lines);
  money(credit, text);
  json_object_set_new(call->reply, "creditUsd", json_string(text));
  money(total - credit, text);
  json_object_set_new(call->reply, "dueUsd", json_string(text));
  return VT_OK;
}

static vt_status read_usd(const vt_call *call, int64_t *out_nanos) {
  const json_t *usd = json_object_get(call->body, "usd");
  double value = json_number_value(usd);
  if (!json_is_number(usd) || !(value >= 1e-9) || value > 9e8)
    return vt_error(VT_INVALID_ARGUMENT, "usd has to be a positive number, at most 9e8");
  *out_nanos = (int64_t)(value * 1e9 + 0.5);
  return VT_OK;
}

vt_status vt_bill_set_budget(vt_call *call) {
  int64_t nanos;
  VT_TRY(read_usd(call, &nanos));
  call->reply = json_object();
  const vt_budgets_row row = {.project = call->project,
                              .amount_nanos = nanos,
                              .stops = json_is_true(json_object_get(call->body, "stops"))};
  return vt_row_put(call->cloud->store, budgets, &row);
}

vt_status vt_bill_add_credit(vt_call *call) {
  int64_t nanos, id, days, now = vt_cloud_now(call->cloud);
  const char *note = json_string_value(json_object_get(call->body, "note"));
  VT_TRY(read_usd(call, &nanos));
  VT_TRY(vt_call_integer(call, "days", 0, 36500, 0, &days));
  int64_t exists;
  VT_TRY(vt_store_int(call->cloud->store, &exists, 0, "SELECT 1 FROM projects WHERE id = ?", "s",
                      vt_call_param(call, "project")));
  if (!exists) return vt_call_not_found(call, vt_call_param(call, "project"));
  VT_TRY(vt_cloud_next(call->cloud, "credits", &id));
  call->reply = json_object();
  const vt_credits_row row = {.id = id,
                              .project = vt_call_param(call, "project"),
                              .amount_nanos = nanos,
                              .note = note,
                              .from_ns = now,
                              .to_ns = days > 0 ? now + days * VT_DAY : 0};
  return vt_row_insert(call->cloud->store, credits, &row);
}

vt_status vt_prices(vt_call *call) {
  const char *zone = vt_call_query(call, "zone");
  json_t *items = json_array();
  call->reply = json_pack("{s:o}", "prices", items);
  for (int i = 0; vt_accelerator_at(i); i++) {
    const vt_accelerator *a = vt_accelerator_at(i);
    if (zone && !vt_zone_offers(zone, a)) continue;
    const char *where = zone ? zone : "us-central1-a";
    json_array_append_new(
        items, json_pack("{s:s, s:s, s:I, s:i, s:s, s:f, s:f}", "acceleratorType", a->name,
                         "family", a->family->name, "chips", (json_int_t)a->chips, "workers",
                         a->vms, "topology", a->topology, "usdPerHour",
                         (double)a->chips * (double)vt_price_nanos(a, where, false) / 1e9,
                         "spotUsdPerHour",
                         (double)a->chips * (double)vt_price_nanos(a, where, true) / 1e9));
  }
  return VT_OK;
}
