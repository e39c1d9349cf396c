// SPDX-License-Identifier: Apache-2.0
// quota.c - quotas in the form of Cloud Quotas, and preferences: the limits that a project asks
// for.
// In:  limits that the scheduler checks (scheduler.c). Out: the same limits, changed.
// A preference for less, or for no more than `quota-auto-grant`, takes effect at once; one for more
// stays `reconciling` until a reviewer grants all, part or none of it. Also the same limits in
// Service Usage's form: consumerQuotaMetrics.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/node.h"
#include "cloud/state/scheduler.h"
#include "cloud/store/row.h"

#define SERVICE "tpu.googleapis.com"

typedef struct preference {
  VT_ROW_MEMBERS(quota_preferences);
  const vt_quota *of; // the one that `quota` names; NULL: a quota of another version
} preference;

#define MAX_UNITS INT64_C(1000000000000) // per quota; keeps sums far from the int64 limit

static const char *number(vt_arena *arena, int64_t value) {
  return vt_arena_printf(arena, "%lld", (long long)value);
}

// --- quota infos ---------------------------------------------------------------------------------

// Limits that differ by place first, then the limit of all other places.
static vt_status dimensions(vt_call *call, const vt_quota *q, json_t *out_list) {
  vt_rows *rows;
  int64_t limit;
  const char *kind = q->by_zone ? "zone" : "region";
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT place, units FROM quotas WHERE project = ? AND quota = ? ORDER BY "
                        "place",
                        "ss", call->project, q->id));
  while (vt_rows_next(rows))
    json_array_append_new(out_list, json_pack("{s:{s:s}, s:{s:s}, s:[s]}", "dimensions", kind,
                                              vt_rows_text(rows, 0), "details", "value",
                                              number(&call->arena, vt_rows_int(rows, 1)),
                                              "applicableLocations", vt_rows_text(rows, 0)));
  VT_TRY(vt_rows_end(rows));
  VT_TRY(vt_quota_limit(call->cloud, call->project, q, "", &limit));
  json_t *places = json_array(), *seen = json_object();
  for (int i = 0; vt_zone_at(i); i++) {
    char region[64];
    vt_zone_region(vt_zone_at(i), region);
    const char *place = q->by_zone ? vt_zone_at(i) : region;
    if (json_object_get(seen, place)) continue;
    json_object_set_new(seen, place, json_true());
    json_array_append_new(places, json_string(place));
  }
  json_decref(seen);
  json_array_append_new(out_list,
                        json_pack("{s:{s:s}, s:o}", "details", "value", number(&call->arena, limit),
                                  "applicableLocations", places));
  return VT_OK;
}

static const char *metric_of(vt_call *call, const vt_quota *q) {
  const char *end = strstr(q->id, "PerProject");
  return vt_arena_printf(&call->arena, SERVICE "/%.*s", (int)(end - q->id), q->id);
}

static const char *display_name(vt_call *call, const vt_quota *q) {
  const char *end = strstr(q->id, "PerProject");
  return vt_arena_printf(&call->arena, "%.*s per project per %s", (int)(end - q->id), q->id,
                         q->by_zone ? "zone" : "region");
}

static vt_status info_view(vt_call *call, const vt_quota *q, json_t **out_view) {
  json_t *list = json_array();
  *out_view = json_pack(
      "{s:s, s:s, s:s, s:s, s:b, s:s, s:[s], s:s, s:s, s:s, s:{s:b}, s:b, s:b, s:o}", "name",
      vt_arena_printf(&call->arena,
                      "projects/%lld/locations/global/services/" SERVICE "/quotaInfos/%s",
                      (long long)call->project_number, q->id),
      "quotaId", q->id, "metric", metric_of(call, q), "service", SERVICE, "isPrecise", 1,
      "containerType", "PROJECT", "dimensions", q->by_zone ? "zone" : "region", "metricDisplayName",
      metric_of(call, q) + strlen(SERVICE) + 1, "quotaDisplayName", display_name(call, q),
      "metricUnit", "1", "quotaIncreaseEligibility", "isEligible", 1, "isFixed", 0, "isConcurrent",
      1, "dimensionsInfos", list);
  return dimensions(call, q, list);
}

static vt_status check_service(vt_call *call) {
  if (strcmp(vt_call_param(call, "service"), SERVICE) == 0) return VT_OK;
  return vt_error(VT_NOT_FOUND, "Service '%s' has no quotas here; " SERVICE " has.",
                  vt_call_param(call, "service"));
}

vt_status vt_quota_infos_list(vt_call *call) {
  vt_page page;
  const vt_quota *q;
  json_t *list = json_array(), *view;
  call->reply = json_pack("{s:o}", "quotaInfos", list);
  VT_TRY(check_service(call));
  VT_TRY(vt_call_page(call, 500, 1000, &page));
  bool started = !*page.after;
  for (int i = 0; (q = vt_quota_at(i)); i++) {
    if (started && (int64_t)json_array_size(list) == page.limit) {
      json_object_set_new(call->reply, "nextPageToken",
                          json_string(vt_call_page_token(call, "", vt_quota_at(i - 1)->id)));
      return VT_OK;
    }
    if (started) {
      vt_status st = info_view(call, q, &view);
      json_array_append_new(list, view);
      if (st) return st;
    } else if (strcmp(q->id, page.after) == 0) {
      started = true;
    }
  }
  return VT_OK;
}

vt_status vt_quota_infos_get(vt_call *call) {
  const vt_quota *q = vt_quota_find(vt_call_param(call, "quota"));
  VT_TRY(check_service(call));
  if (!q) return vt_error(VT_NOT_FOUND, "There is no quota '%s'.", vt_call_param(call, "quota"));
  return info_view(call, q, &call->reply);
}

// --- the same in Service Usage's shape -----------------------------------------------------------

static vt_status limit_view(vt_call *call, const vt_quota *q, const char *metric_name,
                            json_t *limits) {
  json_t *infos = json_array(), *buckets = json_array(), *info;
  size_t i;
  vt_status st = dimensions(call, q, infos);
  const char *kind = q->by_zone ? "zone" : "region", *usual = number(&call->arena, q->otherwise);
  json_array_foreach(infos, i, info) {
    json_t *bucket = json_pack("{s:O, s:s}", "effectiveLimit",
                               json_object_get(json_object_get(info, "details"), "value"),
                               "defaultLimit", usual);
    json_t *place = json_object_get(info, "dimensions");
    if (place) json_object_set(bucket, "dimensions", place);
    json_array_append_new(buckets, bucket);
  }
  json_decref(infos);
  json_array_append_new(
      limits,
      json_pack("{s:s, s:s, s:s, s:b, s:o}", "name",
                vt_arena_printf(&call->arena, "%s/limits/%%2Fproject%%2F%s", metric_name, kind),
                "metric", metric_of(call, q), "unit",
                vt_arena_printf(&call->arena, "1/{project}/{%s}", kind), "isPrecise", 1,
                "quotaBuckets", buckets));
  return st;
}

// A metric has a limit by zone and one by region, adjacent in the table.
static vt_status metric_view(vt_call *call, int index, json_t **out_view) {
  const vt_quota *q = vt_quota_at(index), *other;
  const char *metric = metric_of(call, q);
  const char *name = vt_arena_printf(
      &call->arena, "projects/%lld/services/" SERVICE "/consumerQuotaMetrics/" SERVICE "%%2F%s",
      (long long)call->project_number, metric + strlen(SERVICE) + 1);
  json_t *limits = json_array();
  vt_status st = VT_OK;
  for (int i = index; !st && (other = vt_quota_at(i)); i++)
    if (strcmp(metric_of(call, other), metric) == 0) st = limit_view(call, other, name, limits);
  *out_view = json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", name, "metric", metric, "displayName",
                        metric + strlen(SERVICE) + 1, "unit", "1", "consumerQuotaLimits", limits);
  return st;
}

vt_status vt_quota_metrics_list(vt_call *call) {
  json_t *list = json_array(), *view;
  const vt_quota *q;
  call->reply = json_pack("{s:o}", "metrics", list);
  VT_TRY(check_service(call));
  for (int i = 0; (q = vt_quota_at(i)); i++) {
    if (!q->by_zone) continue; // shown with that of the zone
    vt_status st = metric_view(call, i, &view);
    json_array_append_new(list, view);
    if (st) return st;
  }
  return VT_OK;
}

vt_status vt_quota_metrics_get(vt_call *call) {
  const char *metric = vt_call_param(call, "metric");
  const vt_quota *q;
  VT_TRY(check_service(call));
  for (int i = 0; (q = vt_quota_at(i)); i++)
    if (q->by_zone && strcmp(metric_of(call, q), metric) == 0)
      return metric_view(call, i, &call->reply);
  return vt_error(VT_NOT_FOUND, "There is no quota metric '%s'.", metric);
}

// --- preferences: rows ---------------------------------------------------------------------------

static vt_status load(vt_call *call, const char *project, const char *id, preference *out,
                      bool *out_found) {
  VT_TRY(vt_row_load(call->cloud->store, &call->arena, &vt_table_quota_preferences, &out->row,
                     out_found, "WHERE project = ? AND id = ?", "ss", project, id));
  out->of = *out_found ? vt_quota_find(out->quota) : NULL;
  if (*out_found && !out->of)
    return vt_error(VT_INTERNAL, "preference %s is for a quota of another version", id);
  return VT_OK;
}

static vt_status save(vt_call *call, const preference *p) {
  return vt_row_put(call->cloud->store, quota_preferences, &p->row);
}

static json_t *view(vt_call *call, const vt_quota_preferences_row *p, int64_t project_number) {
  char created[40], updated[40];
  const vt_quota *q = vt_quota_find(p->quota);
  vt_time_format(p->created_ns, created);
  vt_time_format(p->updated_ns, updated);
  json_t *reply =
      json_pack("{s:s, s:{s:s}, s:{s:s, s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:b}", "name",
                vt_arena_printf(&call->arena, "projects/%lld/locations/global/quotaPreferences/%s",
                                (long long)project_number, p->id),
                "dimensions", !q || q->by_zone ? "zone" : "region", p->place, "quotaConfig",
                "preferredValue", number(&call->arena, p->preferred), "grantedValue",
                number(&call->arena, p->granted), "stateDetail", p->detail, "service", SERVICE,
                "quotaId", p->quota, "createTime", created, "updateTime", updated, "etag",
                number(&call->arena, p->updated_ns), "reconciling", (int)p->reconciling);
  if (*p->justification) json_object_set_new(reply, "justification", json_string(p->justification));
  if (*p->contact) json_object_set_new(reply, "contactEmail", json_string(p->contact));
  return reply;
}

static vt_status reply_with(vt_call *call, const char *id) {
  vt_quota_preferences_row p;
  bool found;
  VT_TRY(vt_row_load(call->cloud->store, &call->arena, &vt_table_quota_preferences, &p, &found,
                     "WHERE project = ? AND id = ?", "ss", call->project, id));
  if (found) {
    call->reply = view(call, &p, call->project_number);
    return VT_OK;
  }
  return vt_call_not_found(
      call, vt_arena_printf(&call->arena, "projects/%lld/locations/global/quotaPreferences/%s",
                            (long long)call->project_number, id));
}

// --- preferences: decisions ----------------------------------------------------------------------

static bool more(int64_t a, int64_t b) { // -1 is no limit
  return b >= 0 && (a < 0 || a > b);
}

static bool has_check_off(const vt_call *call, const char *name) {
  for (size_t i = 0; i < call->query.size; i++)
    if (strcmp(call->query.data[i].name, "ignoreSafetyChecks") == 0 &&
        strcmp(call->query.data[i].value, name) == 0)
      return true;
  return false;
}

// Decreases that need confirmation: below what is in use, or more than a tenth below the old limit.
static vt_status check_decrease(vt_call *call, const preference *p, int64_t limit) {
  int64_t used;
  VT_TRY(vt_quota_used(call->cloud, call->project, p->of, p->place, &used));
  if (more(used, p->preferred) && !has_check_off(call, "QUOTA_DECREASE_BELOW_USAGE"))
    return vt_error(VT_FAILED_PRECONDITION,
                    "The preferred value %lld is below the usage of %lld; "
                    "ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE sets it nevertheless.",
                    (long long)p->preferred, (long long)used);
  if (limit > 0 && p->preferred >= 0 && p->preferred < limit - limit / 10 &&
      !has_check_off(call, "QUOTA_DECREASE_PERCENTAGE_TOO_HIGH"))
    return vt_error(VT_FAILED_PRECONDITION,
                    "The preferred value %lld is more than 10%% below the limit of %lld; "
                    "ignoreSafetyChecks=QUOTA_DECREASE_PERCENTAGE_TOO_HIGH sets it nevertheless.",
                    (long long)p->preferred, (long long)limit);
  return VT_OK;
}

static vt_status decide(vt_call *call, preference *p) {
  int64_t limit, policy = call->cloud->options.quota_auto_grant;
  VT_TRY(vt_quota_limit(call->cloud, call->project, p->of, p->place, &limit));
  p->granted = limit;
  p->reconciling = more(p->preferred, limit) && more(p->preferred, policy);
  p->detail = p->reconciling ? "The request waits for a reviewer." : "";
  if (p->reconciling) return VT_OK;
  if (more(limit, p->preferred)) VT_TRY(check_decrease(call, p, limit));
  p->granted = p->preferred;
  return vt_quota_set(call->cloud, call->project, p->quota, p->place, p->preferred);
}

static vt_status read_place(const json_t *body, preference *p) {
  const char *kind = p->of->by_zone ? "zone" : "region";
  const char *place = json_string_value(json_object_get(json_object_get(body, "dimensions"), kind));
  bool known = false;
  for (int i = 0; place && vt_zone_at(i); i++) {
    char region[64];
    vt_zone_region(vt_zone_at(i), region);
    if (strcmp(p->of->by_zone ? vt_zone_at(i) : region, place) == 0) known = true;
  }
  if (!known)
    return vt_error(VT_INVALID_ARGUMENT, "dimensions.%s has to be a %s of Cloud TPU", kind, kind);
  p->place = place;
  return VT_OK;
}

static vt_status read_wish(const json_t *body, preference *p) {
  const json_t *config = json_object_get(body, "quotaConfig");
  const char *why = json_string_value(json_object_get(body, "justification")),
             *who = json_string_value(json_object_get(body, "contactEmail"));
  if (!vt_json_integer(json_object_get(config, "preferredValue"), &p->preferred) ||
      p->preferred < -1 || p->preferred > MAX_UNITS)
    return vt_error(VT_INVALID_ARGUMENT,
                    "quotaConfig.preferredValue: 0 to 10^12 units, or -1 for no limit");
  if ((why && strlen(why) > 4000) || (who && strlen(who) > 254))
    return vt_error(VT_INVALID_ARGUMENT, "justification or contactEmail is too long");
  if (why) p->justification = why;
  if (who) p->contact = who;
  return VT_OK;
}

static vt_status read_quota(const json_t *body, preference *p) {
  const char *service = json_string_value(json_object_get(body, "service")),
             *id = json_string_value(json_object_get(body, "quotaId"));
  if (!service || strcmp(service, SERVICE) != 0)
    return vt_error(VT_INVALID_ARGUMENT, "service has to be " SERVICE);
  p->of = id ? vt_quota_find(id) : NULL;
  if (!p->of)
    return vt_error(VT_INVALID_ARGUMENT, "There is no quota '%s'; quotaInfos lists them.",
                    id ? id : "");
  p->quota = p->of->id;
  return read_place(body, p);
}

static vt_status create(vt_call *call, const char *id) {
  preference p = {.row = {.project = call->project, .asker = call->caller}};
  int64_t taken;
  VT_TRY(read_quota(call->body, &p));
  VT_TRY(read_wish(call->body, &p));
  if (!id || !*id) {
    char hex[17];
    vt_cloud_random_hex(hex, 16);
    id = vt_arena_printf(&call->arena, "%s", hex);
  }
  if (!vt_node_id_valid(id)) return vt_error(VT_INVALID_ARGUMENT, "invalid quotaPreferenceId");
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0,
                      "SELECT 1 FROM quota_preferences WHERE project = ? AND (id = ? OR (quota = ? "
                      "AND place = ?))",
                      "ssss", call->project, id, p.quota, p.place));
  if (taken)
    return vt_error(VT_ALREADY_EXISTS,
                    "There is a preference '%s' or one for %s in %s already; update it.", id,
                    p.quota, p.place);
  p.id = id;
  p.created_ns = p.updated_ns = vt_cloud_now(call->cloud);
  VT_TRY(decide(call, &p));
  VT_TRY(save(call, &p));
  return reply_with(call, id);
}

// --- preferences: calls --------------------------------------------------------------------------

static vt_status check_location(vt_call *call) {
  if (strcmp(vt_call_param(call, "location"), "global") == 0) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "quotas are in the location global");
}

vt_status vt_quota_preferences_create(vt_call *call) {
  VT_TRY(check_location(call));
  return create(call, vt_call_query(call, "quotaPreferenceId"));
}

vt_status vt_quota_preferences_get(vt_call *call) {
  VT_TRY(check_location(call));
  return reply_with(call, vt_call_param(call, "preference"));
}

vt_status vt_quota_preferences_patch(vt_call *call) {
  const char *id = vt_call_param(call, "preference");
  const json_t *etag = json_object_get(call->body, "etag");
  preference p;
  bool found, only_check = vt_call_flag(call, "validateOnly");
  VT_TRY(check_location(call));
  VT_TRY(load(call, call->project, id, &p, &found));
  if (!found && vt_call_flag(call, "allowMissing") && !only_check) return create(call, id);
  if (!found) return reply_with(call, id); // the error
  if (json_is_string(etag) && *json_string_value(etag) &&
      strcmp(json_string_value(etag), number(&call->arena, p.updated_ns)) != 0)
    return vt_error(VT_ABORTED, "The preference has changed; read it again.");
  VT_TRY(read_wish(call->body, &p));
  if (only_check) return reply_with(call, id);
  p.updated_ns = vt_cloud_now(call->cloud);
  VT_TRY(decide(call, &p));
  VT_TRY(save(call, &p));
  return reply_with(call, id);
}

// `reconciling=true AND quotaId="..."`: terms of the three fields that clients send.
static bool term_holds(const char *term, size_t size, const json_t *view, bool *out_known) {
  static const char *const fields[] = {"reconciling", "quotaId", "service"};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    size_t n = strlen(fields[i]);
    if (size < n || strncasecmp(term, fields[i], n) != 0) continue;
    const char *value = term + n + strspn(term + n, " =:\"");
    size_t left = (size_t)(term + size - value), length = 0;
    while (length < left && !strchr(" \"", value[length])) length++;
    const json_t *item = json_object_get(view, fields[i]);
    const char *text = json_is_string(item) ? json_string_value(item)
                       : json_is_true(item) ? "true"
                                            : "false";
    *out_known = true;
    return strlen(text) == length && strncasecmp(text, value, length) == 0;
  }
  return false;
}

static vt_status filtered(const char *filter, const json_t *view, bool *out_in) {
  *out_in = true;
  while (filter && *filter) {
    const char *and = strcasestr(filter, " AND ");
    size_t n = and ? (size_t)(and-filter) : strlen(filter);
    bool known = false;
    if (!term_holds(filter, n, view, &known)) *out_in = false;
    if (!known)
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid filter '%s': terms of reconciling, quotaId and service with = and "
                      "AND are understood",
                      filter);
    filter += n + (and? 5 : 0);
  }
  return VT_OK;
}

vt_status vt_quota_preferences_list(vt_call *call) {
  vt_page page;
  vt_rows *rows;
  VT_TRY(check_location(call));
  VT_TRY(vt_call_page(call, 500, 1000, &page));
  VT_TRY(vt_row_select(call->cloud->store, &rows, &vt_table_quota_preferences,
                       "WHERE project = ? AND id > ? ORDER BY id LIMIT ?", "ssi", call->project,
                       page.after, page.limit + 1));
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "quotaPreferences", list);
  vt_quota_preferences_row p = {.id = ""};
  const char *filter = vt_call_query(call, "filter");
  vt_status st = VT_OK;
  for (int64_t n = 0; !st && vt_rows_next(rows); n++) {
    bool in;
    if (n == page.limit) {
      json_object_set_new(call->reply, "nextPageToken",
                          json_string(vt_call_page_token(call, "", p.id)));
      break;
    }
    vt_row_read(rows, &vt_table_quota_preferences, &call->arena, &p);
    json_t *item = view(call, &p, call->project_number);
    st = filtered(filter, item, &in);
    if (!st && in) json_array_append(list, item);
    json_decref(item);
  }
  return vt_rows_stop(rows, st);
}

// --- review --------------------------------------------------------------------------------------

// Pending preferences of all projects, oldest first.
vt_status vt_quota_reviews_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_row_select(call->cloud->store, &rows, &vt_table_quota_preferences,
                       "WHERE reconciling = 1 ORDER BY updated_ns, project, id LIMIT 500", ""));
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "quotaPreferences", list);
  vt_status st = VT_OK;
  while (!st && vt_rows_next(rows)) {
    vt_quota_preferences_row p;
    int64_t project;
    vt_row_read(rows, &vt_table_quota_preferences, &call->arena, &p);
    st = vt_store_int(call->cloud->store, &project, 0, "SELECT number FROM projects WHERE id = ?",
                      "s", p.project);
    json_t *item = view(call, &p, project);
    json_object_set_new(item, "id", json_string(p.id));
    json_object_set_new(item, "project", json_string(p.project));
    json_object_set_new(item, "asker", json_string(p.asker));
    json_array_append_new(list, item);
  }
  return vt_rows_stop(rows, st);
}

static vt_status review(vt_call *call, bool grants) {
  const char *id = vt_call_param(call, "preference"), *project = vt_call_param(call, "project");
  preference p;
  bool found;
  VT_TRY(load(call, project, id, &p, &found));
  if (!found)
    return vt_call_not_found(call, vt_arena_printf(&call->arena, "quotaPreferences/%s", id));
  if (!p.reconciling)
    return vt_error(VT_FAILED_PRECONDITION, "preference '%s' does not wait for a review", id);
  int64_t value = p.preferred;
  const json_t *other = json_object_get(call->body, "value"); // a reviewer may grant less, or more
  if (other && (!vt_json_integer(other, &value) || value < -1 || value > MAX_UNITS))
    return vt_error(VT_INVALID_ARGUMENT, "value: 0 to 10^12 units, or -1 for no limit");
  p.reconciling = false;
  p.updated_ns = vt_cloud_now(call->cloud);
  if (grants) {
    p.granted = value;
    VT_TRY(vt_quota_set(call->cloud, project, p.quota, p.place, value));
  }
  p.detail = !grants                ? "A reviewer has rejected the request."
             : value != p.preferred ? "A reviewer has granted another value."
                                    : "";
  VT_TRY(save(call, &p));
  call->reply = json_pack("{s:s, s:s}", "id", id, "grantedValue", number(&call->arena, p.granted));
  return vt_cloud_event(call->cloud, "quota", project, call->caller, id,
                        vt_arena_printf(&call->arena, "%s %s in %s: %s",
                                        grants ? "granted" : "rejected", p.quota, p.place,
                                        number(&call->arena, p.granted)));
}

vt_status vt_quota_reviews_approve(vt_call *call) {
  return review(call, true);
}
vt_status vt_quota_reviews_reject(vt_call *call) {
  return review(call, false);
}
