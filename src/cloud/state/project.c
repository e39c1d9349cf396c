// SPDX-License-Identifier: Apache-2.0
// project.c - the small parts of other services that TPU clients touch on a project: Resource
// Manager, Service Usage, Compute Engine metadata and lists, IAM service accounts and keys.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/account.h"
#include "cloud/state/catalogue.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/service_account.h"

// --- Resource Manager ----------------------------------------------------------------------------

static json_t *project_row(const vt_rows *rows) {
  char number[24], created[40];
  snprintf(number, sizeof number, "%lld", (long long)vt_rows_int(rows, 1));
  vt_time_format(vt_rows_int(rows, 3), created);
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", "projectId", vt_rows_text(rows, 0), "projectNumber",
                   number, "name", vt_rows_text(rows, 2), "lifecycleState", "ACTIVE", "createTime",
                   created);
}

vt_status vt_projects_get(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, number, display_name, created_ns FROM projects WHERE id = ?",
                        "s", call->project));
  if (vt_rows_next(rows)) call->reply = project_row(rows);
  return vt_rows_end(rows);
}

vt_status vt_projects_list(vt_call *call) {
  vt_rows *rows;
  const char *user = vt_arena_printf(&call->arena, "user:%s", call->caller);
  const char *service = vt_arena_printf(&call->arena, "serviceAccount:%s", call->caller);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, number, display_name, created_ns FROM projects WHERE ? = "
                        "'admin' OR id IN (SELECT project "
                        "FROM members WHERE member = ? OR member = ?) ORDER BY id",
                        "sss", call->caller_role, user, service));
  json_t *list = json_array();
  while (vt_rows_next(rows)) json_array_append_new(list, project_row(rows));
  call->reply = json_pack("{s:o}", "projects", list);
  return vt_rows_end(rows);
}

static bool project_id_valid(const char *id) {
  size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return n >= 4 && n <= 30 && !id[n] && *id >= 'a' && *id <= 'z' && id[n - 1] != '-';
}

vt_status vt_projects_create(vt_call *call) {
  const char *id = json_string_value(json_object_get(call->body, "projectId"));
  const char *name = json_string_value(json_object_get(call->body, "name"));
  int64_t number, taken;
  if (!id || !project_id_valid(id))
    return vt_error(VT_INVALID_ARGUMENT,
                    "projectId has 4 to 30 lower-case letters, digits and hyphens, a letter first");
  VT_TRY(vt_check_text("name", json_object_get(call->body, "name"), VT_MAX_DISPLAY_NAME));
  VT_TRY(
      vt_store_int(call->cloud->store, &taken, 0, "SELECT 1 FROM projects WHERE id = ?", "s", id));
  if (taken) return vt_error(VT_ALREADY_EXISTS, "Requested entity already exists");
  VT_TRY(vt_cloud_next(call->cloud, "projects", &number));
  VT_TRY(
      vt_store_run(call->cloud->store, NULL,
                   "INSERT INTO projects (id, number, display_name, policy_etag, billing_account, "
                   "personality, metadata, "
                   "metadata_version, created_ns) VALUES (?, ?, ?, 1, '', 'faithful', '{}', 1, ?)",
                   "sisi", id, 100000000000 + number, name ? name : id, vt_cloud_now(call->cloud)));
  VT_TRY(vt_store_run(
      call->cloud->store, NULL,
      "INSERT INTO members (project, role, member) VALUES (?, 'roles/owner', ?)", "ss", id,
      vt_arena_printf(&call->arena, "%s:%s",
                      strcmp(call->caller_role, "service") == 0 ? "serviceAccount" : "user",
                      call->caller)));
  call->reply = json_pack(
      "{s:s, s:b, s:{s:s, s:s}}", "name", vt_arena_printf(&call->arena, "operations/cp.%s", id),
      "done", 1, "response", "@type", "type.googleapis.com/google.cloudresourcemanager.v1.Project",
      "projectId", id);
  return VT_OK;
}

static vt_status policy_view(vt_call *call) {
  vt_rows *rows;
  int64_t etag;
  VT_TRY(vt_store_int(call->cloud->store, &etag, 1, "SELECT policy_etag FROM projects WHERE id = ?",
                      "s", call->project));
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT role, member FROM members WHERE project = ? ORDER BY role, member",
                        "s", call->project));
  json_t *bindings = json_array(), *last = NULL;
  while (vt_rows_next(rows)) {
    if (!last ||
        strcmp(json_string_value(json_object_get(last, "role")), vt_rows_text(rows, 0)) != 0) {
      last = json_pack("{s:s, s:[]}", "role", vt_rows_text(rows, 0), "members");
      json_array_append_new(bindings, last);
    }
    json_array_append_new(json_object_get(last, "members"), json_string(vt_rows_text(rows, 1)));
  }
  char text[16];
  snprintf(text, sizeof text, "BwXe%08llx", (long long)etag & 0xffffffff);
  call->reply = json_pack("{s:i, s:s, s:o}", "version", 1, "etag", text, "bindings", bindings);
  return vt_rows_end(rows);
}

vt_status vt_projects_get_policy(vt_call *call) {
  return policy_view(call);
}

static bool member_valid(const char *member) {
  const char *colon = strchr(member, ':');
  return colon && strlen(member) < 300 &&
         (strncmp(member, "user:", 5) == 0 || strncmp(member, "serviceAccount:", 15) == 0 ||
          strncmp(member, "group:", 6) == 0);
}

vt_status vt_projects_set_policy(vt_call *call) {
  json_t *policy = json_object_get(call->body, "policy"),
         *bindings = json_object_get(policy, "bindings"), *binding, *member;
  const char *etag = json_string_value(json_object_get(policy, "etag"));
  size_t i, j;
  bool owned = false;
  VT_TRY(policy_view(call));
  bool stale =
      etag && *etag && strcmp(etag, json_string_value(json_object_get(call->reply, "etag"))) != 0;
  json_decref(call->reply);
  call->reply = NULL;
  if (stale)
    return vt_error(VT_ABORTED, "There were concurrent policy changes. Please retry the whole "
                                "read-modify-write with exponential backoff.");
  if (!json_is_array(bindings)) return vt_error(VT_INVALID_ARGUMENT, "policy.bindings is required");
  VT_TRY(vt_store_run(call->cloud->store, NULL, "DELETE FROM members WHERE project = ?", "s",
                      call->project));
  json_array_foreach(bindings, i, binding) {
    const char *role = json_string_value(json_object_get(binding, "role"));
    if (!role || strncmp(role, "roles/", 6) != 0)
      return vt_error(VT_INVALID_ARGUMENT, "Invalid role in bindings[%zu]", i);
    json_array_foreach(json_object_get(binding, "members"), j, member) {
      const char *text = json_string_value(member);
      if (!text || !member_valid(text))
        return vt_error(VT_INVALID_ARGUMENT, "Invalid member in bindings[%zu]", i);
      if (strcmp(role, "roles/owner") == 0) owned = true;
      VT_TRY(vt_store_run(
          call->cloud->store, NULL,
          "INSERT INTO members (project, role, member) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
          "sss", call->project, role, text));
    }
  }
  if (!owned) return vt_error(VT_INVALID_ARGUMENT, "A project keeps at least one owner.");
  VT_TRY(vt_store_run(call->cloud->store, NULL,
                      "UPDATE projects SET policy_etag = policy_etag + 1 WHERE id = ?", "s",
                      call->project));
  return policy_view(call);
}

vt_status vt_projects_test_permissions(vt_call *call) {
  json_t *list = json_array(), *item;
  size_t i;
  json_array_foreach(json_object_get(call->body, "permissions"), i, item) {
    bool has = false;
    if (json_is_string(item)) VT_TRY(vt_account_has(call, json_string_value(item), &has));
    if (has) json_array_append(list, item);
  }
  call->reply = json_pack("{s:o}", "permissions", list);
  return VT_OK;
}

vt_status vt_done_operation(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:b, s:{}}", "name",
                vt_arena_printf(&call->arena, "operations/%s", vt_call_param(call, "operation")),
                "done", 1, "response");
  return VT_OK;
}

// --- Service Usage -------------------------------------------------------------------------------

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
  return vt_store_run(
      call->cloud->store, NULL,
      "INSERT INTO services (project, service) VALUES (?, ?) ON CONFLICT DO NOTHING", "ss",
      call->project, service);
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

// --- Compute Engine ------------------------------------------------------------------------------

static const char *self_link(vt_call *call, const char *rest) {
  return vt_arena_printf(&call->arena, "https://www.googleapis.com/compute/v1/projects/%s%s",
                         call->project, rest);
}

// Changes with every change of the metadata. Clients decode it as base64 and encode it again: whole
// groups of four, no padding.
static void fingerprint(int64_t version, char out_text[16]) {
  snprintf(out_text, 16, "vtpu%08llx", (long long)version & 0xffffffff);
}

vt_status vt_compute_project(vt_call *call) {
  vt_rows *rows;
  char print[16], number[24];
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT metadata, metadata_version FROM projects WHERE id = ?", "s",
                        call->project));
  json_t *items = json_array(), *metadata = NULL, *value;
  int64_t version = 1;
  const char *key;
  vt_status st = VT_OK;
  if (vt_rows_next(rows)) {
    st = vt_check_stored(vt_rows_text(rows, 0), "metadata of project", call->project, &metadata);
    version = vt_rows_int(rows, 1);
  }
  json_object_foreach(metadata, key, value)
      json_array_append_new(items, json_pack("{s:s, s:O}", "key", key, "value", value));
  json_decref(metadata);
  fingerprint(version, print);
  snprintf(number, sizeof number, "%lld", (long long)call->project_number);
  call->reply = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:o}}", "kind", "compute#project", "id", number,
      "name", call->project, "selfLink", self_link(call, ""), "defaultServiceAccount",
      vt_arena_printf(&call->arena, "%lld-compute@developer.%s", (long long)call->project_number,
                      call->cloud->options.universe),
      "commonInstanceMetadata", "kind", "compute#metadata", "fingerprint", print, "items", items);
  return vt_rows_stop(rows, st);
}

static json_t *compute_done(vt_call *call, const char *name, const char *verb) {
  return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s}", "kind", "compute#operation", "name", name,
                   "operationType", verb, "status", "DONE", "progress", 100, "targetLink",
                   self_link(call, ""), "selfLink",
                   self_link(call, vt_arena_printf(&call->arena, "/global/operations/%s", name)));
}

vt_status vt_compute_set_metadata(vt_call *call) {
  json_t *items = json_object_get(call->body, "items"), *item, *metadata = json_object();
  const char *print = json_string_value(json_object_get(call->body, "fingerprint"));
  char now_print[16], *text;
  int64_t version;
  size_t i;
  vt_status st = vt_sa_may_act(call, NULL); // keys and scripts of every worker of the project
  if (!st)
    st = vt_store_int(call->cloud->store, &version, 1,
                      "SELECT metadata_version FROM projects WHERE id = ?", "s", call->project);
  if (st) goto out;
  fingerprint(version, now_print);
  if (print && *print && strcmp(print, now_print) != 0) {
    call->error_status = 412;
    st = vt_error(VT_FAILED_PRECONDITION,
                  "Supplied fingerprint does not match current metadata fingerprint.");
    goto out;
  }
  json_array_foreach(items, i, item) {
    const char *key = json_string_value(json_object_get(item, "key")),
               *value = json_string_value(json_object_get(item, "value"));
    if (!key || !value) {
      st = vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'metadata.items[%zu]'", i);
      goto out;
    }
    json_object_set_new(metadata, key, json_string(value));
  }
  VT_TRY_OUT(vt_check_metadata(metadata));
  text = json_dumps(metadata, JSON_COMPACT);
  st = vt_store_run(
      call->cloud->store, NULL,
      "UPDATE projects SET metadata = ?, metadata_version = metadata_version + 1 WHERE id = ?",
      "ss", text, call->project);
  free(text);
  char hex[14];
  vt_cloud_random_hex(hex, 13);
  if (!st)
    call->reply =
        compute_done(call, vt_arena_printf(&call->arena, "operation-%s", hex), "setMetadata");
out:
  json_decref(metadata);
  return st;
}

vt_status vt_compute_operation(vt_call *call) {
  call->reply = compute_done(call, vt_call_param(call, "operation"), "setMetadata");
  return VT_OK;
}

static json_t *zone_view(vt_call *call, const char *zone) {
  char region[64];
  vt_zone_region(zone, region);
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", "compute#zone", "name", zone, "status",
                   "UP", "region",
                   self_link(call, vt_arena_printf(&call->arena, "/regions/%s", region)),
                   "selfLink", self_link(call, vt_arena_printf(&call->arena, "/zones/%s", zone)));
}

vt_status vt_compute_zones(vt_call *call) {
  json_t *items = json_array();
  for (int i = 0; vt_zone_at(i); i++) json_array_append_new(items, zone_view(call, vt_zone_at(i)));
  call->reply = json_pack("{s:s, s:o}", "kind", "compute#zoneList", "items", items);
  return VT_OK;
}

vt_status vt_compute_zone(vt_call *call) {
  const char *zone = vt_call_param(call, "zone");
  if (!vt_zone_exists(zone))
    return vt_call_not_found(
        call, vt_arena_printf(&call->arena, "projects/%s/zones/%s", call->project, zone));
  call->reply = zone_view(call, zone);
  return VT_OK;
}

vt_status vt_compute_regions(vt_call *call) {
  json_t *items = json_array(), *seen = json_object();
  for (int i = 0; vt_zone_at(i); i++) {
    char region[64];
    vt_zone_region(vt_zone_at(i), region);
    if (json_object_get(seen, region)) continue;
    json_object_set_new(seen, region, json_true());
    json_array_append_new(items, json_pack("{s:s, s:s, s:s}", "kind", "compute#region", "name",
                                           region, "status", "UP"));
  }
  json_decref(seen);
  call->reply = json_pack("{s:s, s:o}", "kind", "compute#regionList", "items", items);
  return VT_OK;
}

vt_status vt_compute_subnetworks(vt_call *call) {
  const char *region = vt_call_param(call, "region");
  call->reply = json_pack(
      "{s:s, s:[{s:s, s:s, s:s, s:s, s:s}]}", "kind", "compute#subnetworkList", "items", "kind",
      "compute#subnetwork", "name", "default", "ipCidrRange", "10.164.0.0/16", "network",
      self_link(call, "/global/networks/default"), "selfLink",
      self_link(call, vt_arena_printf(&call->arena, "/regions/%s/subnetworks/default", region)));
  return VT_OK;
}

static json_t *network_view(vt_call *call) {
  return json_pack("{s:s, s:s, s:s, s:b}", "kind", "compute#network", "name", "default", "selfLink",
                   self_link(call, "/global/networks/default"), "autoCreateSubnetworks", 1);
}

vt_status vt_compute_networks(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:[o]}", "kind", "compute#networkList", "items", network_view(call));
  return VT_OK;
}

vt_status vt_compute_network(vt_call *call) {
  const char *name = vt_call_param(call, "network");
  if (strcmp(name, "default") != 0)
    return vt_call_not_found(
        call, vt_arena_printf(&call->arena, "projects/%s/global/networks/%s", call->project, name));
  call->reply = network_view(call);
  return VT_OK;
}

// What the default network lets in; provisioners read it before they use the network.
static const struct firewall {
  const char *name, *source, *allowed; // JSON
} firewalls[] = {
    {"default-allow-internal", "10.128.0.0/9",
     "[{\"IPProtocol\":\"tcp\",\"ports\":[\"0-65535\"]},{\"IPProtocol\":\"udp\",\"ports\":[\"0-"
     "65535\"]},"
     "{\"IPProtocol\":\"icmp\"}]"},
    {"default-allow-ssh", "0.0.0.0/0", "[{\"IPProtocol\":\"tcp\",\"ports\":[\"22\"]}]"}};

static json_t *firewalls_view(vt_call *call) {
  json_t *list = json_array();
  for (size_t i = 0; i < sizeof firewalls / sizeof *firewalls; i++) {
    const struct firewall *f = &firewalls[i];
    json_t *allowed = json_loads(f->allowed, 0, NULL);
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:s, s:s, s:i, s:[s], s:o}", "kind", "compute#firewall", "name",
                        f->name, "network",
                        vt_arena_printf(&call->arena,
                                        "https://www.googleapis.com/compute/v1/projects/%s/global/"
                                        "networks/default",
                                        call->project),
                        "direction", "INGRESS", "priority", 65534, "sourceRanges", f->source,
                        "allowed", allowed));
  }
  return list;
}

vt_status vt_compute_firewalls(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:o}", "kind", "compute#firewallList", "items", firewalls_view(call));
  return VT_OK;
}

vt_status vt_compute_effective_firewalls(vt_call *call) {
  VT_TRY(vt_compute_network(call)); // that it exists
  json_decref(call->reply);
  call->reply = json_pack("{s:o}", "firewalls", firewalls_view(call));
  return VT_OK;
}

vt_status vt_compute_empty(vt_call *call) {
  call->reply = json_pack("{s:s, s:[]}", "kind", "compute#list", "items");
  return VT_OK;
}

// --- IAM service accounts ------------------------------------------------------------------------

static json_t *sa_view(vt_call *call, const char *email, const char *name, const char *unique) {
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:s}", "name",
      vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s", call->project, email),
      "projectId", call->project, "uniqueId", unique, "email", email, "displayName", name,
      "oauth2ClientId", unique);
}

static vt_status find_sa(vt_call *call, const char *email) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT display_name, unique_id FROM accounts WHERE email = ? AND kind = "
                        "'service' AND project = ?",
                        "ss", email, call->project));
  bool found = vt_rows_next(rows);
  if (found) call->reply = sa_view(call, email, vt_rows_text(rows, 0), vt_rows_text(rows, 1));
  VT_TRY(vt_rows_end(rows));
  if (found) return VT_OK;
  return vt_call_not_found(
      call, vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s", call->project, email));
}

vt_status vt_sa_get(vt_call *call) {
  return find_sa(call, vt_call_param(call, "email"));
}

vt_status vt_sa_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT email, display_name, unique_id FROM accounts WHERE kind = "
                        "'service' AND project = ? ORDER BY email",
                        "s", call->project));
  json_t *list = json_array();
  while (vt_rows_next(rows))
    json_array_append_new(
        list, sa_view(call, vt_rows_text(rows, 0), vt_rows_text(rows, 1), vt_rows_text(rows, 2)));
  call->reply = json_pack("{s:o}", "accounts", list);
  return vt_rows_end(rows);
}

vt_status vt_sa_create(vt_call *call) {
  const char *id = json_string_value(json_object_get(call->body, "accountId"));
  const char *name = json_string_value(
      json_object_get(json_object_get(call->body, "serviceAccount"), "displayName"));
  int64_t taken;
  if (!id || !project_id_valid(id))
    return vt_error(VT_INVALID_ARGUMENT,
                    "accountId has 4 to 30 lower-case letters, digits and hyphens");
  VT_TRY(
      vt_check_text("serviceAccount.displayName",
                    json_object_get(json_object_get(call->body, "serviceAccount"), "displayName"),
                    VT_MAX_DISPLAY_NAME));
  const char *email =
      vt_arena_printf(&call->arena, "%s@%s.iam.gserviceaccount.com", id, call->project);
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0, "SELECT 1 FROM accounts WHERE email = ?", "s",
                      email));
  if (taken)
    return vt_call_exists(call, vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s",
                                                call->project, email));
  VT_TRY(vt_account_create(call->cloud, email, "service", "user", call->project, name ? name : ""));
  return find_sa(call, email);
}

vt_status vt_sa_delete(vt_call *call) {
  const char *email = vt_call_param(call, "email");
  VT_TRY(find_sa(call, email));
  VT_TRY(vt_sa_remove(call, email));
  json_object_clear(call->reply);
  return VT_OK;
}

static const char *key_name(vt_call *call, const char *id) {
  return vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s/keys/%s", call->project,
                         vt_call_param(call, "email"), id);
}

static void drop_reply(vt_call *call) {
  json_decref(call->reply);
  call->reply = NULL;
}

vt_status vt_sa_keys_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(find_sa(call, vt_call_param(call, "email")));
  drop_reply(call);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, created_ns FROM sa_keys WHERE email = ? ORDER BY id", "s",
                        vt_call_param(call, "email")));
  json_t *list = json_array();
  while (vt_rows_next(rows)) {
    char created[40];
    vt_time_format(vt_rows_int(rows, 1), created);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name",
                                          key_name(call, vt_rows_text(rows, 0)), "validAfterTime",
                                          created, "keyAlgorithm", "KEY_ALG_RSA_2048"));
  }
  call->reply = json_pack("{s:o}", "keys", list);
  return vt_rows_end(rows);
}

// The key file that clients load: what gcloud writes, with our own token endpoint and universe.
vt_status vt_sa_keys_create(vt_call *call) {
  const char *email = vt_call_param(call, "email"), *base = vt_call_base_url(call);
  char id[41], *pem = NULL;
  VT_TRY(find_sa(call, email));
  const char *unique = vt_arena_printf(&call->arena, "%s",
                                       json_string_value(json_object_get(call->reply, "uniqueId")));
  drop_reply(call);
  vt_status st = vt_sa_key_create(call->cloud, email, &pem, id);
  if (st) {
    free(pem);
    return st;
  }
  json_t *file = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "type",
                           "service_account", "project_id", call->project, "private_key_id", id,
                           "private_key", pem, "client_email", email, "client_id", unique,
                           "auth_uri", vt_arena_printf(&call->arena, "%s/o/oauth2/auth", base),
                           "token_uri", vt_arena_printf(&call->arena, "%s/token", base),
                           "universe_domain", call->cloud->options.universe);
  free(pem);
  char *text = json_dumps(file, JSON_INDENT(2));
  json_decref(file);
  const char *encoded =
      vt_call_page_token(call, text, ""); // base64 with the URL alphabet, a newline behind the text
  free(text);
  char *plain = vt_arena_copy(&call->arena, encoded, strlen(encoded));
  for (char *p = plain; *p; p++) *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
  call->reply = json_pack("{s:s, s:s, s:s, s:s}", "name", key_name(call, id), "privateKeyType",
                          "TYPE_GOOGLE_CREDENTIALS_FILE", "privateKeyData", plain, "keyAlgorithm",
                          "KEY_ALG_RSA_2048");
  return VT_OK;
}

vt_status vt_sa_keys_delete(vt_call *call) {
  VT_TRY(find_sa(call, vt_call_param(call, "email")));
  json_object_clear(call->reply);
  int64_t gone;
  VT_TRY(vt_store_run(call->cloud->store, &gone, "DELETE FROM sa_keys WHERE email = ? AND id = ?",
                      "ss", vt_call_param(call, "email"), vt_call_param(call, "key")));
  if (!gone) return vt_call_not_found(call, key_name(call, vt_call_param(call, "key")));
  return vt_token_revoke_from(call->cloud,
                              vt_arena_printf(&call->arena, "key:%s", vt_call_param(call, "key")));
}
