// SPDX-License-Identifier: Apache-2.0
// services.c - Service Usage: the services that a project has enabled.
#include <string.h>

#include "cloud/store/row.h"

#include "cloud/api/handlers.h"

static const char *const known_services[] = {
    "tpu.googleapis.com",          "compute.googleapis.com",
    "iam.googleapis.com",          "cloudresourcemanager.googleapis.com",
    "serviceusage.googleapis.com", "cloudbilling.googleapis.com",
    "logging.googleapis.com",      "storage.googleapis.com",
    "oslogin.googleapis.com",      "cloudquotas.googleapis.com",
    "iap.googleapis.com"};

static json_t *service_view(vt_call *call, const char *service, bool enabled) {
  return json_pack(
      "{s:s, s:s, s:s, s:{s:s, s:s}}", "name",
      vt_arena_printf(&call->arena, "projects/%lld/services/%s", (long long)call->project_number,
                      service),
      "parent", vt_arena_printf(&call->arena, "projects/%lld", (long long)call->project_number),
      "state", enabled ? "ENABLED" : "DISABLED", "config", "name", service, "title", service);
}

static vt_status is_enabled(vt_call *call, const char *service, bool *out_enabled) {
  int64_t value;
  VT_TRY(vt_store_int(call->cloud->store, &value, 0,
                      "SELECT 1 FROM services WHERE project = ? AND service = ?", "ss",
                      call->project, service));
  *out_enabled = value;
  return VT_OK;
}

vt_status vt_services_list(vt_call *call) {
  const char *filter = vt_call_query(call, "filter");
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "services", list);
  for (size_t i = 0; i < sizeof known_services / sizeof *known_services; i++) {
    bool enabled;
    VT_TRY(is_enabled(call, known_services[i], &enabled));
    if (filter && strcmp(filter, "state:ENABLED") == 0 && !enabled) continue;
    if (filter && strcmp(filter, "state:DISABLED") == 0 && enabled) continue;
    json_array_append_new(list, service_view(call, known_services[i], enabled));
  }
  return VT_OK;
}

vt_status vt_services_get(vt_call *call) {
  bool enabled;
  VT_TRY(is_enabled(call, vt_call_param(call, "service"), &enabled));
  call->reply = service_view(call, vt_call_param(call, "service"), enabled);
  return VT_OK;
}

static vt_status set_service(vt_call *call, const char *service, bool enable) {
  size_t i = 0, count = sizeof known_services / sizeof *known_services;
  while (i < count && strcmp(known_services[i], service) != 0) i++;
  if (i == count)
    return vt_error(VT_PERMISSION_DENIED, "Not found or permission denied for service(s): %s.",
                    service);
  if (!enable)
    return vt_store_run(call->cloud->store, NULL,
                        "DELETE FROM services WHERE project = ? AND service = ?", "ss",
                        call->project, service);
  const vt_services_row row = {.project = call->project, .service = service};
  return vt_row_add(call->cloud->store, services, &row);
}

static vt_status one_service(vt_call *call, bool enable) {
  const char *service = vt_call_param(call, "service");
  VT_TRY(set_service(call, service, enable));
  call->reply = json_pack("{s:s, s:b, s:{s:o}}", "name", "operations/acat.p2-done", "done", 1,
                          "response", "service", service_view(call, service, enable));
  return VT_OK;
}

vt_status vt_services_enable(vt_call *call) {
  return one_service(call, true);
}
vt_status vt_services_disable(vt_call *call) {
  return one_service(call, false);
}

vt_status vt_services_batch_enable(vt_call *call) {
  json_t *item, *list = json_array();
  size_t i;
  call->reply = json_pack("{s:s, s:b, s:{s:o}}", "name", "operations/acf.p2-done", "done", 1,
                          "response", "services", list);
  json_array_foreach(json_object_get(call->body, "serviceIds"), i, item) {
    if (!json_is_string(item))
      return vt_error(VT_INVALID_ARGUMENT, "serviceIds[%zu] is not a string", i);
    VT_TRY(set_service(call, json_string_value(item), true));
    json_array_append_new(list, service_view(call, json_string_value(item), true));
  }
  return VT_OK;
}
