// SPDX-License-Identifier: Apache-2.0
// sku.c - the price list in the form of the real cloud's billing catalogue, for clients that plan
// by price. Service E000-3F24-B8AA lists v2 to v4 priced by 8 cores (v2, v3) or by chip,
// 6F81-5844-456A v5 and newer by chip. `nextPageToken` is always present: SkyPilot's catalogue
// fetcher indexes it.
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/catalogue.h"

static const struct sku_family {
  const char *family, *label;
  bool newer, by_device; // by_device: eight cores, four chips
} families[] = {{"v2", "Tpu-v2", false, true},  {"v3", "Tpu-v3", false, true},
                {"v4", "Tpu-v4", false, false}, {"v5e", "TpuV5e", true, false},
                {"v5p", "TpuV5p", true, false}, {"v6e", "TpuV6e", true, false}};

static json_t *sku(vt_call *call, const struct sku_family *f, vt_scope scope, const char *region,
                   bool spot, int64_t nanos) {
  bool pod = scope == VT_SCOPE_POD || strcmp(f->family, "v4") == 0;
  if (f->by_device) nanos *= 4;
  const char *description = vt_arena_printf(&call->arena, "%s%s%s running in %s", f->label,
                                            pod ? " Pod" : "", spot ? " Preemptible" : "", region);
  char units[24], id[24];
  vt_error_id(description, id);
  snprintf(units, sizeof units, "%lld", (long long)(nanos / 1000000000));
  const char *service = f->newer ? "6F81-5844-456A" : "E000-3F24-B8AA";
  return json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s}, s:[s], s:[{s:{s:s, s:s, s:[{s:f, "
                   "s:{s:s, s:s, s:I}}]}}], s:s}",
                   "name", vt_arena_printf(&call->arena, "services/%s/skus/%s", service, id + 2),
                   "skuId", id + 2, "description", description, "category", "serviceDisplayName",
                   "Cloud TPU", "resourceFamily", "Compute", "resourceGroup", "TPU", "usageType",
                   spot ? "Preemptible" : "OnDemand", "serviceRegions", region, "pricingInfo",
                   "pricingExpression", "usageUnit", "h", "usageUnitDescription", "hour",
                   "tieredRates", "startUsageAmount", 0.0, "unitPrice", "currencyCode", "USD",
                   "units", units, "nanos", (json_int_t)(nanos % 1000000000), "serviceProviderName",
                   "Google");
}

vt_status vt_billing_skus(vt_call *call) {
  const char *service = vt_call_param(call, "service"), *region;
  bool newer = strcmp(service, "6F81-5844-456A") == 0;
  json_t *list = json_array();
  const vt_family *family;
  vt_scope scope;
  int64_t on_demand, spot;
  call->reply = json_pack("{s:o, s:s}", "skus", list, "nextPageToken", "");
  if (!newer && strcmp(service, "E000-3F24-B8AA") != 0)
    return vt_call_not_found(call, vt_arena_printf(&call->arena, "services/%s", service));
  for (int i = 0; vt_price_at(i, &family, &scope, &region, &on_demand, &spot); i++)
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
      if (strcmp(families[f].family, family->name) != 0 || families[f].newer != newer) continue;
      if (on_demand)
        json_array_append_new(list, sku(call, &families[f], scope, region, false, on_demand));
      if (spot) json_array_append_new(list, sku(call, &families[f], scope, region, true, spot));
    }
  return VT_OK;
}

vt_status vt_billing_info(vt_call *call) {
  vt_rows *rows;
  char account[64] = "";
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT billing_account FROM projects WHERE id = ?", "s", call->project));
  if (vt_rows_next(rows)) snprintf(account, sizeof account, "%s", vt_rows_text(rows, 0));
  VT_TRY(vt_rows_end(rows));
  call->reply = json_pack("{s:s, s:s, s:s, s:b}", "name",
                          vt_arena_printf(&call->arena, "projects/%s/billingInfo", call->project),
                          "projectId", call->project, "billingAccountName", account,
                          "billingEnabled", *account != 0);
  return VT_OK;
}

vt_status vt_billing_set_info(vt_call *call) {
  const char *account = json_string_value(json_object_get(call->body, "billingAccountName"));
  if (!account || strlen(account) > 60)
    return vt_error(VT_INVALID_ARGUMENT, "billingAccountName is required");
  VT_TRY(vt_store_run(call->cloud->store, NULL,
                      "UPDATE projects SET billing_account = ? WHERE id = ?", "ss", account,
                      call->project));
  return vt_billing_info(call);
}

// One billing account for this cloud.
vt_status vt_billing_accounts(vt_call *call) {
  call->reply = json_pack("{s:[{s:s, s:b, s:s}], s:s}", "billingAccounts", "name",
                          "billingAccounts/TRC000-000000-000000", "open", 1, "displayName",
                          "Research cloud", "nextPageToken", "");
  return VT_OK;
}
