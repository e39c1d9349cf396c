// SPDX-License-Identifier: Apache-2.0
// ephemeral.c - see ephemeral.h.
#include "cloud/ephemeral.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

typedef struct key_file {
  const char *email, *project, *url;
  char *text; // JSON
} key_file;

static vt_status make_key(vt_cloud *cloud, void *context) {
  key_file *file = context;
  char id[41], member[320], *pem;
  snprintf(member, sizeof member, "serviceAccount:%s", file->email);
  VT_TRY(vt_account_create(cloud, file->email, "service", "user", file->project, "Clients"));
  const vt_members_row owner = {.project = file->project, .role = "roles/owner", .member = member};
  VT_TRY(vt_row_insert(cloud->store, members, &owner));
  VT_TRY(vt_sa_key_create(cloud, file->email, &pem, id));
  // Clients that reach us through an endpoint variable or a host name assume Google's universe and
  // refuse keys of another one.
  json_t *key = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "type", "service_account",
                          "project_id", file->project, "private_key_id", id, "private_key", pem,
                          "client_email", file->email, "client_id", id, "token_uri", file->url,
                          "universe_domain", "googleapis.com");
  file->text = vt_json_text(key, JSON_INDENT(2));
  json_decref(key);
  free(pem);
  return file->text ? VT_OK : vt_error_no_memory();
}

static vt_status write_secret(const char *path, const char *text) {
  vt_status st = vt_file_write(path, text, strlen(text)); // world-readable
  if (!st && chmod(path, 0600) != 0) st = vt_error(VT_INTERNAL, "%s: %s", path, strerror(errno));
  return st;
}

vt_status vt_ephemeral_variables(vt_cloud *cloud, const vt_ephemeral *e, vt_arena *arena,
                                 vt_variable_use use) {
  const char *state = cloud->options.state_dir;
  const char *host = vt_arena_printf(arena, "%s:%d", e->address, (int)e->port);
  const char *url = vt_arena_printf(arena, "http%s://%s", e->secure ? "s" : "", host);
  const char *token_path = vt_arena_printf(arena, "%s/token", state);
  const char *key_path = vt_arena_printf(arena, "%s/key.json", state);
  key_file key = {.email = vt_arena_printf(arena, "clients@%s.iam.gserviceaccount.com", e->project),
                  .project = e->project,
                  .url = vt_arena_printf(arena, "%s/token", url)};
  VT_TRY(write_secret(token_path, e->token));
  VT_TRY(vt_cloud_transact(cloud, make_key, &key));
  vt_status st = write_secret(key_path, key.text);
  vt_memory_free(key.text);
  if (st) return st;
  const char *const variables[][2] = {
      {"VTPU_ENDPOINT", url},
      {"VTPU_GRPC", host},
      {"VTPU_TOKEN", e->token},
      {"VTPU_PROJECT", e->project},
      {"VTPU_ZONE", "us-central2-b"},
      {"GOOGLE_APPLICATION_CREDENTIALS", key_path},
      {"GOOGLE_CLOUD_PROJECT", e->project},
      {"CLOUDSDK_CORE_PROJECT", e->project},
      {"CLOUDSDK_CORE_ACCOUNT", e->account},
      {"CLOUDSDK_COMPUTE_ZONE", "us-central2-b"},
      {"CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", token_path},
      {"TPU_API_DISCOVERY_URL", vt_arena_printf(arena, "%s/$discovery/rest?version=v1", url)},
      {"VTPU_GOOGLEAPIS", *e->googleapis ? e->googleapis : NULL},
      {"VTPU_CA", *e->googleapis ? e->ca : NULL}};
  // gcloud's services; the endpoint of compute includes its version.
  static const char *const services[] = {"TPU",     "SERVICEUSAGE", "CLOUDRESOURCEMANAGER",
                                         "IAM",     "CLOUDBILLING", "LOGGING",
                                         "OSLOGIN", "CLOUDQUOTAS"};
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (variables[i][1]) use(variables[i][0], variables[i][1]);
  for (size_t i = 0; i < sizeof services / sizeof *services; i++)
    use(vt_arena_printf(arena, "CLOUDSDK_API_ENDPOINT_OVERRIDES_%s", services[i]),
        vt_arena_printf(arena, "%s/", url));
  use("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", vt_arena_printf(arena, "%s/compute/v1/", url));
  return VT_OK;
}
