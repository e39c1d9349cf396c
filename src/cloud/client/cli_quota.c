// SPDX-License-Identifier: Apache-2.0
// cli_quota.c - `vtpu quotas info ...` and `vtpu quotas preferences ...`: a project's limits,
// requests for more, and the reviewers' decision. gcloud's words; `review`, `approve` and `reject`
// are ours.
#include <stdio.h>
#include <string.h>

#include "cloud/client/cloud_cli.h"

#define INFO_TABLE                                                                                 \
  "table(quotaId:label=QUOTA_ID,dimensions[0]:label=BY,dimensionsInfos[0].details.value:label="    \
  "VALUE)"
#define PREFERENCE_TABLE                                                                           \
  "table(name.basename():label=NAME,quotaId:label=QUOTA_ID,place:label=PLACE,quotaConfig."         \
  "preferredValue:label=PREFERRED,quotaConfig.grantedValue:label=GRANTED,reconciling:label="       \
  "RECONCILING)"
#define REVIEW_TABLE                                                                               \
  "table(id:label=NAME,project:label=PROJECT,asker:label=ASKED_BY,quotaId:label=QUOTA_ID,place:"   \
  "label=PLACE,quotaConfig.preferredValue:label=PREFERRED,quotaConfig.grantedValue:label=GRANTED," \
  "justification:label=JUSTIFICATION)"

static const char *global_path(vt_cli *cli, const char *rest) {
  return vt_arena_printf(&cli->arena, "/v1/projects/%s/locations/global/%s", cli->project, rest);
}

// The zone or region of a preference, as its own column.
static void add_places(json_t *list) {
  json_t *item;
  size_t i;
  json_array_foreach(list, i, item) {
    const json_t *dimensions = json_object_get(item, "dimensions");
    json_t *place = json_object_get(dimensions, "zone");
    if (!place) place = json_object_get(dimensions, "region");
    if (place) json_object_set(item, "place", place);
  }
}

static vt_status show(vt_cli *cli, const char *path, const char *key, const char *standard) {
  const char *format = vt_cli_flag_value(cli, "format");
  json_t *reply;
  VT_TRY(vt_cli_call(cli, "GET", path, NULL, &reply));
  json_t *value = key ? json_object_get(reply, key) : reply;
  if (key && (!format || strncmp(format, "table", 5) == 0)) add_places(value);
  vt_status st = VT_OK;
  if (key && json_array_size(value) == 0 && !format)
    fputs("Listed 0 items.\n", stderr);
  else
    st = vt_cli_print(format, standard, value);
  json_decref(reply);
  return st;
}

#define INFOS "services/tpu.googleapis.com/quotaInfos"

vt_status vt_cli_quota_info_list(vt_cli *cli) {
  return show(cli, global_path(cli, INFOS), "quotaInfos", INFO_TABLE);
}

// `folder` of the project, and the resource in it that the first word names.
static const char *named(vt_cli *cli, const char *folder) {
  return global_path(cli, vt_arena_printf(&cli->arena, "%s/%s", folder,
                                          vt_cli_encode(cli, cli->args.words.data[0])));
}

vt_status vt_cli_quota_info_describe(vt_cli *cli) {
  return show(cli, named(cli, INFOS), NULL, "yaml");
}

// --dimensions=zone=Z or region=R; by default the zone of the configuration, or its region.
static vt_status put_dimensions(vt_cli *cli, const char *quota, json_t *body) {
  const char *text = vt_cli_flag_value(cli, "dimensions");
  bool by_region = strstr(quota, "PerRegion") != NULL;
  if (!text) {
    const char *dash = strrchr(cli->zone, '-');
    text = by_region ? vt_arena_printf(&cli->arena, "region=%.*s",
                                       dash ? (int)(dash - cli->zone) : 0, cli->zone)
                     : vt_arena_printf(&cli->arena, "zone=%s", cli->zone);
  }
  const char *equals = strchr(text, '=');
  if (!equals) return vt_error(VT_INVALID_ARGUMENT, "--dimensions is zone=ZONE or region=REGION");
  const char *name = vt_arena_copy(&cli->arena, text, (size_t)(equals - text));
  json_object_set_new(body, "dimensions", json_pack("{s:s}", name, equals + 1));
  return VT_OK;
}

static vt_status wish_of_flags(vt_cli *cli, json_t *body) {
  const char *value = vt_cli_flag_value(cli, "preferred-value"),
             *why = vt_cli_flag_value(cli, "justification"), *who = vt_cli_flag_value(cli, "email");
  if (!value) return vt_error(VT_INVALID_ARGUMENT, "--preferred-value is required");
  json_object_set_new(body, "quotaConfig", json_pack("{s:s}", "preferredValue", value));
  if (why) json_object_set_new(body, "justification", json_string(why));
  if (who) json_object_set_new(body, "contactEmail", json_string(who));
  return VT_OK;
}

static const char *safety(const vt_cli *cli) {
  bool usage = vt_cli_flag_on(cli, "allow-quota-decrease-below-usage"),
       much = vt_cli_flag_on(cli, "allow-high-percentage-quota-decrease");
  if (usage && much)
    return "ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE&ignoreSafetyChecks=QUOTA_DECREASE_"
           "PERCENTAGE_TOO_HIGH";
  return usage  ? "ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE"
         : much ? "ignoreSafetyChecks=QUOTA_DECREASE_PERCENTAGE_TOO_HIGH"
                : "";
}

static vt_status send_wish(vt_cli *cli, const char *method, const char *path, json_t *body,
                           vt_status st) {
  json_t *reply;
  if (st) {
    json_decref(body);
    return st;
  }
  VT_TRY(vt_cli_call(cli, method, path, body, &reply));
  if (json_is_true(json_object_get(reply, "reconciling")))
    fputs("The request waits for a reviewer.\n", stderr);
  st = vt_cli_print(vt_cli_flag_value(cli, "format"), "yaml", reply);
  json_decref(reply);
  return st;
}

vt_status vt_cli_quota_create(vt_cli *cli) {
  const char *quota = vt_cli_flag_value(cli, "quota-id"),
             *id = vt_cli_flag_value(cli, "preference-id"),
             *service = vt_cli_flag_value(cli, "service");
  if (!quota)
    return vt_error(VT_INVALID_ARGUMENT,
                    "--quota-id is required; `vtpu quotas info list` has them");
  json_t *body = json_pack("{s:s, s:s}", "service", service ? service : "tpu.googleapis.com",
                           "quotaId", quota);
  vt_status st = put_dimensions(cli, quota, body);
  if (!st) st = wish_of_flags(cli, body);
  const char *path = vt_arena_printf(&cli->arena, "%s?quotaPreferenceId=%s&%s",
                                     global_path(cli, "quotaPreferences"),
                                     id ? vt_cli_encode(cli, id) : "", safety(cli));
  return send_wish(cli, "POST", path, body, st);
}

static vt_status review(vt_cli *cli, const char *verb) {
  const char *value = vt_cli_flag_value(cli, "value");
  json_t *body = json_object(), *reply;
  if (value) json_object_set_new(body, "value", json_string(value));
  VT_TRY(
      vt_cli_call(cli, "POST",
                  vt_arena_printf(&cli->arena, "/vtpu/v1/projects/%s/quotaPreferences/%s:%s",
                                  cli->project, vt_cli_encode(cli, cli->args.words.data[0]), verb),
                  body, &reply));
  vt_status st = vt_cli_print(vt_cli_flag_value(cli, "format"), "yaml", reply);
  json_decref(reply);
  return st;
}

vt_status vt_cli_quota_approve(vt_cli *cli) {
  return review(cli, "approve");
}
vt_status vt_cli_quota_reject(vt_cli *cli) {
  return review(cli, "reject");
}

vt_status vt_cli_quota_list(vt_cli *cli) {
  const char *waiting = vt_cli_flag_on(cli, "reconciling-only") ? "?filter=reconciling=true" : "";
  return show(cli,
              vt_arena_printf(&cli->arena, "%s%s", global_path(cli, "quotaPreferences"), waiting),
              "quotaPreferences", PREFERENCE_TABLE);
}

vt_status vt_cli_quota_reviews(vt_cli *cli) {
  return show(cli, "/vtpu/v1/quotaPreferences", "quotaPreferences", REVIEW_TABLE);
}

vt_status vt_cli_quota_describe(vt_cli *cli) {
  return show(cli, named(cli, "quotaPreferences"), NULL, "yaml");
}

vt_status vt_cli_quota_update(vt_cli *cli) {
  json_t *body = json_object();
  vt_status st = wish_of_flags(cli, body);
  const char *path =
      vt_arena_printf(&cli->arena, "%s?%s", named(cli, "quotaPreferences"), safety(cli));
  return send_wish(cli, "PATCH", path, body, st);
}
