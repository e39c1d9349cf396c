// SPDX-License-Identifier: Apache-2.0
// location.c - the calls that read the catalogue: locations, accelerator types, runtime versions,
// reservations.
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/catalogue.h"

// Pages through a constant list: `at` returns the index-th item's id and object, false past the
// last.
typedef bool (*item_at)(vt_call *call, int index, const char **out_id, json_t **out_json);

// `id=x` or `type=x` or `name:x`: the few filters that clients send on catalogues, matched against
// the id.
static bool filtered_out(const char *filter, const char *id) {
  if (!filter || !*filter) return false;
  const char *value = strpbrk(filter, "=:");
  if (!value) return false;
  value += strspn(value, "=: \"");
  size_t n = strcspn(value, "\"");
  const char *last = memchr(value, '/', n) ? strrchr(value, '/') + 1 : value;
  n -= (size_t)(last - value);
  return strlen(id) != n || memcmp(last, id, n) != 0;
}

static vt_status list(vt_call *call, const char *key, item_at at) {
  vt_page page;
  VT_TRY(vt_call_page(call, 500, 2000, &page));
  json_t *items = json_array();
  call->reply = json_pack("{s:o}", key, items);
  bool started = !*page.after;
  const char *id, *last = "", *filter = vt_call_query(call, "filter");
  json_t *item;
  for (int i = 0; at(call, i, &id, &item); i++) {
    if (!item) continue;
    if (started && !filtered_out(filter, id)) {
      if ((int64_t)json_array_size(items) == page.limit) {
        json_object_set_new(call->reply, "nextPageToken",
                            json_string(vt_call_page_token(call, "", last)));
        json_decref(item);
        return VT_OK;
      }
      json_array_append_new(items, item);
      last = id;
    } else {
      json_decref(item);
    }
    if (!started && strcmp(id, page.after) == 0) started = true;
  }
  return VT_OK;
}

static vt_status check_zone(vt_call *call) {
  const char *zone = vt_call_param(call, "zone");
  if (vt_zone_exists(zone) || vt_call_all_zones(call)) return VT_OK;
  return vt_error(VT_PERMISSION_DENIED, "Location %s is not found or access is unauthorized.",
                  zone);
}

static vt_status get(vt_call *call, const char *collection, const char *id, item_at at) {
  const char *each;
  json_t *item;
  VT_TRY(check_zone(call));
  for (int i = 0; at(call, i, &each, &item); i++) {
    if (item && strcmp(each, id) == 0) {
      call->reply = item;
      return VT_OK;
    }
    json_decref(item);
  }
  return vt_call_not_found(call, vt_call_name(call, collection, id));
}

static json_t *location(vt_call *call, const char *zone) {
  return json_pack("{s:s, s:s, s:s, s:{s:s}}", "name",
                   vt_arena_printf(&call->arena, "projects/%s/locations/%s", call->project, zone),
                   "locationId", zone, "displayName", zone, "labels", "cloud.googleapis.com/region",
                   vt_arena_printf(&call->arena, "%.*s", (int)(strrchr(zone, '-') - zone), zone));
}

static bool location_at(vt_call *call, int index, const char **out_id, json_t **out_json) {
  *out_id = vt_zone_at(index);
  if (!*out_id) return false;
  *out_json = location(call, *out_id);
  return true;
}

vt_status vt_locations_list(vt_call *call) {
  return list(call, "locations", location_at);
}

vt_status vt_locations_get(vt_call *call) {
  const char *zone = vt_call_param(call, "zone");
  if (!vt_zone_exists(zone)) return vt_call_not_found(call, vt_call_name(call, "", NULL));
  call->reply = location(call, zone);
  return VT_OK;
}

vt_status vt_locations_identity(vt_call *call) {
  const char *email =
      vt_arena_printf(&call->arena, "service-%lld@cloud-tpu.%s", (long long)call->project_number,
                      call->cloud->options.universe);
  call->reply = json_pack("{s:{s:s}}", "identity", "email", email);
  return VT_OK;
}

static bool accelerator_at(vt_call *call, int index, const char **out_id, json_t **out_json) {
  const vt_accelerator *a = vt_accelerator_at(index);
  *out_json = NULL;
  if (!a) return false;
  *out_id = a->name;
  if (!vt_call_all_zones(call) && !vt_zone_offers(vt_call_param(call, "zone"), a)) return true;
  *out_json = json_pack(
      "{s:s, s:s, s:[{s:s, s:s}]}", "name", vt_call_name(call, "acceleratorTypes", a->name), "type",
      a->name, "acceleratorConfigs", "type", a->family->type_enum, "topology", a->topology);
  return true;
}

vt_status vt_accelerator_types_list(vt_call *call) {
  VT_TRY(check_zone(call));
  return list(call, "acceleratorTypes", accelerator_at);
}

vt_status vt_accelerator_types_get(vt_call *call) {
  return get(call, "acceleratorTypes", vt_call_param(call, "type"), accelerator_at);
}

static bool runtime_at(vt_call *call, int index, const char **out_id, json_t **out_json) {
  const char *families;
  *out_id = vt_image_at(index, &families);
  if (!*out_id) return false;
  bool old = (call->api & (VT_API_V1 | VT_API_V1A)) != 0;
  *out_json = json_pack("{s:s, s:s}", "name",
                        vt_call_name(call, old ? "tensorflowVersions" : "runtimeVersions", *out_id),
                        "version", *out_id);
  return true;
}

vt_status vt_runtime_versions_list(vt_call *call) {
  VT_TRY(check_zone(call));
  bool old = (call->api & (VT_API_V1 | VT_API_V1A)) != 0;
  return list(call, old ? "tensorflowVersions" : "runtimeVersions", runtime_at);
}

vt_status vt_runtime_versions_get(vt_call *call) {
  return get(call, "runtimeVersions", vt_call_param(call, "version"), runtime_at);
}

vt_status vt_reservations_list(vt_call *call) {
  vt_rows *rows;
  const char *zone = vt_call_param(call, "zone");
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, family, chips, state, start_ns, end_ns, zone FROM reservations "
                        "WHERE project = ? AND (? = "
                        "'-' OR zone = ?) ORDER BY zone, id",
                        "sss", call->project, zone, zone));
  json_t *items = json_array();
  while (vt_rows_next(rows)) {
    char start[40], end[40];
    vt_time_format(vt_rows_int(rows, 4), start);
    vt_time_format(vt_rows_int(rows, 5), end);
    const char *name = vt_arena_printf(&call->arena, "projects/%s/locations/%s/reservations/%s",
                                       call->project, vt_rows_text(rows, 6), vt_rows_text(rows, 0));
    json_array_append_new(items, json_pack("{s:s, s:s, s:{s:I, s:s, s:s, s:{s:s, s:s}}}", "name",
                                           name, "state", vt_rows_text(rows, 3), "standard", "size",
                                           (json_int_t)vt_rows_int(rows, 2), "capacityUnits",
                                           "CHIPS", "resourceType", vt_rows_text(rows, 1),
                                           "interval", "startTime", start, "endTime", end));
  }
  call->reply = json_pack("{s:o}", "reservations", items);
  return vt_rows_end(rows);
}
