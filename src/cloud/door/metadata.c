// SPDX-License-Identifier: Apache-2.0
// metadata.c - the value tree of one worker and its paths: text leaves, directories,
// ?recursive=true, ?wait_for_change. Every request must carry "Metadata-Flavor: Google" and must
// not come through a proxy; the worker is identified by its source address, which a guest cannot
// change.
#include "cloud/door/metadata.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/check.h"
#include "cloud/api/login_name.h"
#include "cloud/api/metrics.h"
#include "cloud/door/http.h"
#include "cloud/door/terminal.h"
#include "cloud/state/allowance.h"
#include "cloud/state/chip_use.h"
#include "cloud/state/doctor.h"
#include "cloud/state/os_login.h"
#include "cloud/state/service_account.h"
#include "cloud/store/json.h"
#include "cloud/worker/worker.h"

#define ATTRIBUTES "instance/guest-attributes/"
// A worker has MAX_OF_WORKER connections; a new one beyond that closes the oldest, so that its
// agent always gets through.
enum { MAX_WAIT_S = 300, MAX_OF_WORKER = 64 };

void vt_metadata_hostname(int64_t uid, int64_t worker, char out_name[64]) {
  vt_worker_hostname(uid, worker, out_name);
}

static vt_status project_metadata(vt_cloud *cloud, const char *project, json_t **out_json,
                                  int64_t *out_number) {
  vt_rows *rows;
  *out_json = NULL;
  *out_number = 0;
  VT_TRY(vt_store_query(cloud->store, &rows, "SELECT metadata, number FROM projects WHERE id = ?",
                        "s", project));
  vt_status st = VT_OK;
  if (vt_rows_next(rows)) {
    st = vt_check_stored(vt_rows_text(rows, 0), "metadata of project", project, out_json);
    *out_number = vt_rows_int(rows, 1);
  } else {
    *out_json = json_object();
  }
  return vt_rows_stop(rows, st);
}

// Calls `use` for each line "user:key" of an ssh-keys value.
typedef void (*key_use)(void *context, const char *user, size_t user_size, const char *key,
                        size_t key_size);

static void each_key(const char *keys, key_use use, void *context) {
  while (keys && *keys) {
    size_t n = strcspn(keys, "\n"), name = strcspn(keys, ":\n");
    if (name < n && vt_login_name_valid(keys, name))
      use(context, keys, name, keys + name + 1, n - name - 1);
    keys += n + (keys[n] == '\n');
  }
}

static const char *ssh_keys(const json_t *metadata) {
  return json_string_value(json_object_get(metadata, "ssh-keys"));
}

static void each_key_of(const vt_node *node, const json_t *project, key_use use, void *context) {
  const json_t *own = json_object_get(node->body, "metadata");
  const char *block = json_string_value(json_object_get(own, "block-project-ssh-keys"));
  each_key(ssh_keys(own), use, context);
  if (!block || strcasecmp(block, "true") != 0) each_key(ssh_keys(project), use, context);
}

typedef struct user_lines {
  vt_cloud *cloud;
  const char *project;
  vt_text *lines;
  uint64_t keys;
  vt_status st;
} user_lines;

// The line of an account; one that cannot become root is marked after its id.
static void put_line(user_lines *all, const char *name, bool admin) {
  char line[64];
  int64_t id;
  if (all->st) return;
  vt_status st = vt_login_id(all->cloud, all->project, name, &id);
  if (vt_status_code(st) == VT_RESOURCE_EXHAUSTED) { // this account is refused
    vt_log(VT_LOG_WARNING, "%s", vt_status_message(st));
    vt_status_free(st);
    return;
  }
  all->st = st;
  if (st) return;
  snprintf(line, sizeof line, "\n%s %lld", name, (long long)id);
  const char *text = vt_text_string(all->lines);
  if (strncmp(text, line + 1, strlen(line + 1)) == 0 || strstr(text, line)) return;
  vt_text_printf(all->lines, "%s%s\n", line + 1, admin ? "" : " login");
}

static void put_user(void *context, const char *user, size_t size, const char *key,
                     size_t key_size) {
  user_lines *all = context;
  char name[40];
  all->keys = vt_hash_bytes(key, key_size, all->keys);
  snprintf(name, sizeof name, "%.*s", (int)size, user);
  put_line(all, name, true);
}

// Who may log in by OS Login.
static vt_status put_profiles(vt_cloud *cloud, const char *project, user_lines *all) {
  vt_arena arena = {0};
  vt_login_keys keys = {0};
  vt_status st = vt_os_login_keys(cloud, &arena, project, &keys);
  for (size_t i = 0; !st && i < keys.size; i++) {
    const vt_login_key *k = &keys.data[i];
    all->keys = vt_hash_bytes(k->key, strlen(k->key), all->keys);
    if (i && strcmp(keys.data[i - 1].user, k->user) == 0) continue;
    put_line(all, k->user, k->admin);
  }
  vt_arena_free(&arena);
  return st;
}

vt_status vt_metadata_os_login(vt_cloud *cloud, const vt_node *node, bool *out_on) {
  json_t *project;
  int64_t number;
  VT_TRY(project_metadata(cloud, node->project, &project, &number));
  *out_on = vt_os_login_on(node, project);
  json_decref(project);
  return VT_OK;
}

// Accounts with a terminal in the console, unless they also have a key.
static void put_terminals(vt_cloud *cloud, const vt_node *node, user_lines *all) {
  const void *at = NULL;
  for (const vt_terminal_user *t; (t = vt_terminal_users(cloud, node->uid, &at));) {
    size_t size = strlen(t->user);
    all->keys = vt_hash_bytes(t->key, strlen(t->key), all->keys + size);
    all->keys = vt_hash_bytes(t->user, size, all->keys);
    put_line(all, t->user, t->admin);
  }
}

vt_status vt_metadata_users(vt_cloud *cloud, const vt_node *node, vt_text *out_lines) {
  json_t *project;
  int64_t number;
  VT_TRY(project_metadata(cloud, node->project, &project, &number));
  user_lines all = {.cloud = cloud, .project = node->project, .lines = out_lines};
  vt_status st = VT_OK;
  if (vt_os_login_on(node, project))
    st = put_profiles(cloud, node->project, &all);
  else
    each_key_of(node, project, put_user, &all);
  put_terminals(cloud, node, &all);
  json_decref(project);
  if (st) vt_status_free(all.st);
  VT_TRY(st ? st : all.st);
  // A key's change must change the text too: level 1 keeps the keys in files.
  vt_text_printf(out_lines, "# %016" PRIx64 "\n", all.keys);
  return VT_OK;
}

static void etag_of(const vt_text *text, char out_tag[24]) {
  snprintf(out_tag, 24, "%016" PRIx64, vt_hash_bytes(vt_text_string(text), text->size, 2));
}

vt_status vt_metadata_synced(vt_cloud *cloud, const vt_node *node, bool *out_synced) {
  vt_text users = {0};
  char tag[24];
  int64_t count;
  VT_TRY(vt_metadata_users(cloud, node, &users));
  etag_of(&users, tag);
  vt_text_free(&users);
  VT_TRY(vt_store_int(cloud->store, &count, 0,
                      "SELECT COUNT(*) FROM guest_attributes WHERE node = ? AND namespace = 'vtpu' "
                      "AND key = 'synced' AND value = ?",
                      "is", node->uid, tag));
  *out_synced = count == node->workers;
  return VT_OK;
}

// --- the tree ------------------------------------------------------------------------------------

static void put_env(vt_text *out, const char *key, const char *value) {
  vt_text_printf(out, "%s: '%s'\n", key, value);
}

// Bounds of the slice in hosts, and of one host in chips, from the topology "2x2x2" or "4x8".
static void bounds(const vt_accelerator *a, char hosts[32], char chips[32]) {
  int side[3] = {1, 1, 1}, chip[3] = {1, 1, 1},
      n = sscanf(a->topology, "%dx%dx%d", &side[0], &side[1], &side[2]);
  for (int left = a->chips_per_vm, d = 0; left > 1 && d < n; left /= 2, d = (d + 1) % n) {
    while (d < n && side[d] == chip[d]) d = d + 1 < n ? d + 1 : n;
    if (d == n) break;
    chip[d] *= 2;
  }
  snprintf(chips, 32, "%d,%d,%d", chip[0], chip[1], chip[2]);
  snprintf(hosts, 32, "%d,%d,%d", side[0] / chip[0], side[1] / chip[1], side[2] / chip[2]);
}

static vt_status peers(vt_cloud *cloud, const vt_node *node, vt_text *out, const char *separator,
                       bool triple) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT worker, ip FROM workers WHERE node = ? ORDER BY worker", "i",
                        node->uid));
  while (vt_rows_next(rows)) {
    char name[64];
    vt_metadata_hostname(node->uid, vt_rows_int(rows, 0), name);
    if (out->size) vt_text_put(out, separator);
    if (triple)
      vt_text_printf(out, "%s:%lld:%s", name, (long long)node->uid, vt_rows_text(rows, 1));
    else
      vt_text_put(out, vt_rows_text(rows, 1));
  }
  return vt_rows_end(rows);
}

static vt_status add_multislice(vt_cloud *cloud, const vt_node *node, vt_text *env) {
  vt_rows *rows;
  int64_t count = 0, mine = 0;
  char coordinator[64] = "", text[24];
  if (!*node->queued || !json_is_true(json_object_get(node->body, "multisliceNode"))) return VT_OK;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT nodes.uid, workers.ip FROM nodes, workers WHERE nodes.project = ? AND nodes.zone = ? "
      "AND nodes.queued = ? "
      "AND workers.node = nodes.uid AND workers.worker = 0 ORDER BY LENGTH(nodes.id), nodes.id",
      "sss", node->project, node->zone, node->queued));
  for (; vt_rows_next(rows); count++) {
    if (vt_rows_int(rows, 0) == node->uid) mine = count;
    if (count == 0) snprintf(coordinator, sizeof coordinator, "%s", vt_rows_text(rows, 1));
  }
  VT_TRY(vt_rows_end(rows));
  put_env(env, "MEGASCALE_COORDINATOR_ADDRESS", coordinator);
  put_env(env, "MEGASCALE_PORT", "8080");
  snprintf(text, sizeof text, "%lld", (long long)count);
  put_env(env, "MEGASCALE_NUM_SLICES", text);
  snprintf(text, sizeof text, "%lld", (long long)mine);
  put_env(env, "MEGASCALE_SLICE_ID", text);
  return VT_OK;
}

static vt_status tpu_env(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t number,
                         vt_text *env) {
  char hosts[32], chips[32], text[64];
  const vt_accelerator *a = node->type;
  bounds(a, hosts, chips);
  put_env(env, "ACCELERATOR_TYPE", a->name);
  put_env(env, "TPU_ACCELERATOR_TYPE", a->name);
  put_env(env, "TYPE", a->family->type_enum);
  put_env(env, "TOPOLOGY", a->topology);
  put_env(env, "WRAP", "false,false,false");
  put_env(env, "ALT", "false");
  put_env(env, "HOST_BOUNDS", hosts);
  put_env(env, "TPU_PROCESS_BOUNDS", hosts);
  put_env(env, "CHIPS_PER_HOST_BOUNDS", chips);
  put_env(env, "TPU_CHIPS_PER_PROCESS_BOUNDS", chips);
  put_env(env, "TPU_TOPOLOGY_WRAP", "false,false,false");
  put_env(env, "TPU_TOPOLOGY_ALT", "false");
  put_env(env, "TPU_RUNTIME_METRICS_PORTS", "8431,8432,8433,8434");
  snprintf(text, sizeof text, "%lld", (long long)worker);
  put_env(env, "WORKER_ID", text);
  put_env(env, "TPU_WORKER_ID", text);
  put_env(env, "NODE_ID", node->id);
  snprintf(text, sizeof text, "%lld", (long long)node->uid);
  put_env(env, "UID", text);
  put_env(env, "ZONE", node->zone);
  put_env(env, "CONSUMER_PROJECT_ID", node->project);
  snprintf(text, sizeof text, "%lld", (long long)number);
  put_env(env, "CONSUMER_PROJECT_NUMBER", text);
  put_env(env, "PREEMPTIBLE", vt_node_is_spot(node) ? "true" : "false");
  put_env(env, "ENABLE_ICI_RESILIENCY", "false");
  const char *version = json_string_value(json_object_get(node->body, "runtimeVersion"));
  put_env(env, "RUNTIME_VERSION", version ? version : "");
  put_env(env, "SERVICE_NAME", "tpu.googleapis.com");
  put_env(env, "SOURCE", "");
  put_env(env, "INFERENCE_MODE", "false");
  put_env(env, "USE_DIRECT_PATH", "false");
  return add_multislice(cloud, node, env);
}

static vt_status attributes(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t number,
                            json_t **out) {
  vt_text env = {0}, triples = {0};
  char text[24];
  vt_status st = tpu_env(cloud, node, worker, number, &env);
  if (!st) st = peers(cloud, node, &triples, ",", true);
  json_t *own = json_object_get(node->body, "metadata");
  json_t *all = own ? json_copy(own) : json_object();
  snprintf(text, sizeof text, "%lld", (long long)worker);
  json_object_set_new(all, "accelerator-type", json_string(node->type->name));
  json_object_set_new(all, "agent-worker-number", json_string(text));
  json_object_set_new(all, "worker-network-endpoints", json_string(vt_text_string(&triples)));
  json_object_set_new(all, "tpu-env", json_string(vt_text_string(&env)));
  json_object_set_new(all, "instance-id", json_string(node->id));
  vt_text_free(&env);
  vt_text_free(&triples);
  *out = all;
  return st;
}

static vt_status build_tree(vt_call *call, const vt_node *node, int64_t worker, json_t **out_tree,
                            const char **out_email, int64_t *out_number) {
  vt_cloud *cloud = call->cloud;
  json_t *project, *own = NULL;
  int64_t number;
  char name[64], zone[128];
  VT_TRY(project_metadata(cloud, node->project, &project, &number));
  vt_status st = attributes(cloud, node, worker, number, &own);
  vt_metadata_hostname(node->uid, worker, name);
  snprintf(zone, sizeof zone, "projects/%lld/zones/%s", (long long)number, node->zone);
  const char *email = *out_email = vt_sa_of_node(cloud, &call->arena, node->body, number);
  *out_number = number;
  const char *host =
      vt_arena_printf(&call->arena, "%s.%s.c.%s.internal", name, node->zone, node->project);
  json_t *account = json_pack("{s:[s], s:s, s:[s]}", "aliases", "default", "email", email, "scopes",
                              "https://www.googleapis.com/auth/cloud-platform");
  json_t *instance = json_pack(
      "{s:o, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s}, s:s, s:[{s:s, s:s, s:[{s:s, "
      "s:s}]}], s:{s:o, s:O}}",
      "attributes", own, "name", name, "hostname", host, "id", (json_int_t)(node->uid + worker),
      "zone", zone, "machineType",
      vt_arena_printf(&call->arena, "projects/%lld/machineTypes/%s", (long long)number,
                      node->type->name),
      "preempted", node->notice_ns ? "TRUE" : "FALSE", "maintenanceEvent",
      vt_maintenance_near(node) ? "TERMINATE_ON_HOST_MAINTENANCE" : "NONE", "scheduling",
      "preemptible", vt_node_is_spot(node) ? "TRUE" : "FALSE", "automaticRestart", "FALSE",
      "onHostMaintenance", "TERMINATE", "image", "projects/vtpu/global/images/host",
      "networkInterfaces", "ip", call->peer, "network",
      vt_arena_printf(&call->arena, "projects/%lld/networks/default", (long long)number),
      "accessConfigs", "externalIp", call->peer, "type", "ONE_TO_ONE_NAT", "serviceAccounts",
      "default", account, email, account);
  json_t *upcoming = vt_maintenance_view(cloud, node);
  if (upcoming) json_object_set_new(instance, "upcomingMaintenance", upcoming);
  *out_tree =
      json_pack("{s:o, s:{s:s, s:I, s:O}, s:{s:s}}", "instance", instance, "project", "projectId",
                node->project, "numericProjectId", (json_int_t)number, "attributes", project,
                "universe", "universeDomain", cloud->options.universe);
  json_decref(project);
  if (!st && !*out_tree) st = vt_error(VT_INTERNAL, "metadata has text that is not UTF-8");
  return st;
}

// --- paths ---------------------------------------------------------------------------------------

// Paths are kebab-case, the JSON of ?recursive is camelCase; attribute names are unchanged.
static const char *to_camel(vt_arena *arena, const char *name) {
  char *out = vt_arena_copy(arena, name, strlen(name)), *w = out;
  for (const char *p = name; *p; p++) {
    if (*p == '-' && p[1])
      *w++ = (char)toupper((unsigned char)*++p);
    else
      *w++ = *p;
  }
  *w = 0;
  return out;
}

static json_t *child(vt_arena *arena, json_t *at, const char *name) {
  if (json_is_array(at)) return json_array_get(at, (size_t)strtoul(name, NULL, 10));
  json_t *exact = json_object_get(at, name);
  return exact ? exact : json_object_get(at, to_camel(arena, name));
}

static void put_kebab(vt_text *out, const char *name) {
  for (; *name; name++) {
    if (isupper((unsigned char)*name))
      vt_text_printf(out, "-%c", tolower((unsigned char)*name));
    else
      vt_text_put_n(out, name, 1);
  }
}

static void put_value(vt_call *call, const json_t *value, bool is_attributes) {
  const char *key;
  json_t *item;
  size_t i;
  if (json_is_string(value)) {
    vt_text_put(&call->raw, json_string_value(value));
  } else if (json_is_integer(value)) {
    vt_text_printf(&call->raw, "%lld", (long long)json_integer_value(value));
  } else if (json_is_array(value)) {
    json_array_foreach(value, i, item) {
      if (json_is_string(item))
        vt_text_printf(&call->raw, "%s\n", json_string_value(item));
      else
        vt_text_printf(&call->raw, "%zu/\n", i);
    }
  } else {
    json_object_foreach((json_t *)value, key, item) {
      if (is_attributes)
        vt_text_put(&call->raw, key);
      else
        put_kebab(&call->raw, key);
      vt_text_put(&call->raw, json_is_object(item) || (json_is_array(item) &&
                                                       !json_is_string(json_array_get(item, 0)))
                                  ? "/\n"
                                  : "\n");
    }
  }
}

static void not_found(vt_call *call) {
  call->status = 404;
  vt_text_free(&call->raw);
  vt_text_put(&call->raw, "404 page not found\n");
}

static vt_status issue_token(vt_call *call, const vt_node *node, int64_t worker, const char *email,
                             int64_t number) {
  const char *token;
  int64_t seconds;
  VT_TRY(vt_allowance_token(call, node, worker, email, number, &token, &seconds));
  if (!token) return not_found(call), VT_OK;
  vt_text_printf(&call->raw,
                 "{\"access_token\":\"%s\",\"expires_in\":%lld,\"token_type\":\"Bearer\"}", token,
                 (long long)seconds);
  call->content_type = "application/json";
  return VT_OK;
}

typedef struct user_keys {
  vt_text *out;
  const char *user;
} user_keys;

static void put_key(void *context, const char *user, size_t size, const char *key,
                    size_t key_size) {
  user_keys *k = context;
  if (strlen(k->user) == size && memcmp(k->user, user, size) == 0)
    vt_text_printf(k->out, "%.*s\n", (int)key_size, key);
}

static vt_status put_profile_keys(vt_call *call, const char *project, const char *user) {
  vt_login_keys keys = {0};
  VT_TRY(vt_os_login_keys(call->cloud, &call->arena, project, &keys));
  for (size_t i = 0; i < keys.size; i++)
    if (strcmp(keys.data[i].user, user) == 0) vt_text_printf(&call->raw, "%s\n", keys.data[i].key);
  return VT_OK;
}

// Our own leaves for the agent inside the guest. Returns whether the path was one of them.
static vt_status own_leaf(vt_call *call, const vt_node *node, const char *path, bool *out_mine) {
  *out_mine = true;
  if (strcmp(path, "vtpu/users") == 0) return vt_metadata_users(call->cloud, node, &call->raw);
  if (strcmp(path, "vtpu/authorized-keys") == 0) {
    const char *user = vt_call_query(call, "user");
    json_t *project;
    int64_t number;
    user_keys keys = {&call->raw, user ? user : ""};
    VT_TRY(project_metadata(call->cloud, node->project, &project, &number));
    vt_status st = VT_OK;
    if (vt_os_login_on(node, project))
      st = put_profile_keys(call, node->project, keys.user);
    else
      each_key_of(node, project, put_key, &keys);
    const void *at = NULL;
    for (const vt_terminal_user *t; (t = vt_terminal_users(call->cloud, node->uid, &at));)
      if (strcmp(t->user, keys.user) == 0) vt_text_printf(&call->raw, "%s\n", t->key);
    json_decref(project);
    return st;
  }
  *out_mine = false;
  return VT_OK;
}

static vt_status read_leaf(vt_call *call, const vt_node *node, int64_t worker, const char *path) {
  bool mine;
  json_t *tree;
  const char *email;
  int64_t number;
  VT_TRY(own_leaf(call, node, path, &mine));
  if (mine) return VT_OK;
  if (strncmp(path, ATTRIBUTES, strlen(ATTRIBUTES)) == 0) {
    const char *rest = path + strlen(ATTRIBUTES), *slash = strchr(rest, '/');
    vt_rows *rows;
    if (!slash) return not_found(call), VT_OK;
    VT_TRY(vt_store_query(
        call->cloud->store, &rows,
        "SELECT value FROM guest_attributes WHERE node = ? AND worker = ? AND namespace = ? AND "
        "key = ?",
        "iiss", node->uid, worker, vt_arena_copy(&call->arena, rest, (size_t)(slash - rest)),
        slash + 1));
    if (vt_rows_next(rows))
      vt_text_put(&call->raw, vt_rows_text(rows, 0));
    else
      not_found(call);
    return vt_rows_end(rows);
  }
  VT_TRY(build_tree(call, node, worker, &tree, &email, &number));
  json_t *at = tree;
  const char *last = "";
  vt_status st = VT_OK;
  bool token = false;
  for (const char *p = path; at && *p;) {
    size_t n = strcspn(p, "/");
    last = vt_arena_copy(&call->arena, p, n);
    p += n + (p[n] == '/');
    if (strcmp(last, "token") == 0 && json_object_get(at, "scopes")) {
      token = true;
      break;
    }
    at = child(&call->arena, at, last);
  }
  const char *alt = vt_call_query(call, "alt");
  if (token) {
    st = issue_token(call, node, worker, email, number);
  } else if (!at) {
    not_found(call);
  } else if ((vt_call_flag(call, "recursive") && !(alt && strcmp(alt, "text") == 0)) ||
             (alt && strcmp(alt, "json") == 0)) {
    char *text = vt_json_text(at, JSON_COMPACT | JSON_ENCODE_ANY);
    vt_text_put(&call->raw, text);
    vt_memory_free(text);
    call->content_type = "application/json";
  } else {
    put_value(call, at, strcmp(last, "attributes") == 0);
  }
  json_decref(tree);
  return st;
}

static vt_status find_worker(vt_call *call, vt_node *out_node, int64_t *out_worker,
                             bool *out_found) {
  int64_t uid;
  VT_TRY(vt_store_int(call->cloud->store, &uid, 0, "SELECT node FROM workers WHERE ip = ?", "s",
                      call->peer));
  VT_TRY(vt_store_int(call->cloud->store, out_worker, 0, "SELECT worker FROM workers WHERE ip = ?",
                      "s", call->peer));
  return vt_node_load_uid(call->cloud, &call->arena, uid, out_node, out_found);
}

static vt_status change_attribute(vt_call *call, const vt_node *node, int64_t worker,
                                  const char *path) {
  size_t prefix = strlen(ATTRIBUTES);
  if (strncmp(path, ATTRIBUTES, prefix) != 0) return not_found(call), VT_OK;
  vt_status st = strcmp(call->method, "PUT") == 0
                     ? vt_attribute_write(call, node, worker, path + prefix)
                     : vt_attribute_delete(call, node, worker, path + prefix);
  vt_code code = vt_status_code(st);
  if (code != VT_INVALID_ARGUMENT && code != VT_RESOURCE_EXHAUSTED) return st;
  call->status = vt_code_to_http(code);
  vt_text_printf(&call->raw, "%s\n", vt_status_message(st));
  vt_status_free(st);
  return VT_OK;
}

// A resumed long poll was counted when it began.
static bool may_ask(vt_call *call, const vt_node *node, int64_t worker, const char *path) {
  bool writes = strcmp(call->method, "PUT") == 0 || strcmp(call->method, "DELETE") == 0;
  vt_purse purse = !writes                          ? VT_PURSE_ASKS
                   : strncmp(path, "vtpu/", 5) == 0 ? VT_PURSE_REPORTS
                                                    : VT_PURSE_WRITES;
  return call->wait.until_ns || vt_allowance_spend(call->cloud, node->uid, worker, purse);
}

static vt_status answer_once(vt_call *call, const char *path, bool *out_leaf) {
  vt_node node;
  int64_t worker;
  bool found;
  *out_leaf = false;
  vt_text_free(&call->raw);
  call->status = 200;
  call->content_type = "application/text";
  VT_TRY(find_worker(call, &node, &worker, &found));
  if (!found) return not_found(call), VT_OK;
  vt_status st = VT_OK;
  if (!may_ask(call, &node, worker, path)) {
    call->status = 429;
    vt_call_reply_header(call, "Retry-After", "1");
    vt_text_put(&call->raw, "too many requests of this machine\n");
  } else if (strcmp(call->method, "PUT") == 0 && strcmp(path, "vtpu/beat") == 0) {
    const char *epoch = vt_call_query(call, "epoch");
    st = vt_doctor_beat(call->cloud, &call->arena, &node, worker,
                        epoch ? strtoll(epoch, NULL, 10) : 0,
                        call->body_text ? call->body_text : "", &call->raw);
  } else if (strcmp(call->method, "PUT") == 0 && strcmp(path, "vtpu/use") == 0) {
    st = vt_use_report(call->cloud, &node, worker, call->body_text);
    if (vt_status_code(st) == VT_INVALID_ARGUMENT) {
      vt_status_free(st);
      st = VT_OK;
      call->status = 400;
    }
  } else if (strcmp(call->method, "PUT") == 0 || strcmp(call->method, "DELETE") == 0) {
    st = change_attribute(call, &node, worker, path);
  } else {
    st = read_leaf(call, &node, worker, path);
    *out_leaf = call->status == 200;
  }
  vt_node_fini(&node);
  return st;
}

// Whether the call keeps waiting: the leaf still has the value the client knows, or had when it
// asked.
static bool keeps_waiting(vt_call *call) {
  vt_wait *wait = &call->wait;
  const char *text = vt_call_query(call, "timeout_sec"), *last = vt_call_query(call, "last_etag");
  char tag[24];
  etag_of(&call->raw, tag);
  if (!wait->until_ns) {
    long seconds = text ? strtol(text, NULL, 10) : MAX_WAIT_S;
    if (seconds < 0 || seconds > MAX_WAIT_S) seconds = MAX_WAIT_S;
    wait->until_ns = vt_metrics_clock() + seconds * VT_SECOND;
    snprintf(wait->tag, sizeof wait->tag, "%s",
             last && *last && strcmp(last, "0") != 0 ? last : tag);
  }
  wait->seen = call->cloud->change;
  return strcmp(tag, wait->tag) == 0 && !wait->hurry && !call->cloud->closing &&
         vt_metrics_clock() < wait->until_ns;
}

static void answer_locked(void *context) {
  vt_call *call = context;
  bool leaf;
  vt_status st = answer_once(call, call->path + 20, &leaf);
  call->wait.again = !st && leaf && vt_call_flag(call, "wait_for_change") && keeps_waiting(call);
  if (!st) return;
  char why[512];
  snprintf(why, sizeof why, "%s", vt_status_message(st));
  vt_status_free(st);
  call->status = 503;
  vt_text_free(&call->raw);
  vt_text_put(&call->raw, why);
}

void vt_metadata_run(vt_call *call) {
  const char *flavor = vt_call_header(call, "metadata-flavor"), *path = call->path;
  char tag[24];
  vt_call_reply_header(call, "Metadata-Flavor", "Google");
  call->content_type = "application/text";
  if (strcmp(path, "/") == 0) {
    vt_text_put(&call->raw, "0.1/\ncomputeMetadata/\n");
    return;
  }
  if (!flavor || strcasecmp(flavor, "Google") != 0 || vt_call_header(call, "x-forwarded-for")) {
    call->status = 403;
    vt_text_put(&call->raw, "Missing required header: Metadata-Flavor\n");
    return;
  }
  if (strncmp(path, "/computeMetadata/v1/", 20) != 0) {
    not_found(call);
    return;
  }
  vt_cloud_lock_for(call->cloud, answer_locked, call);
  if (call->status == 503) return;
  etag_of(&call->raw, tag);
  vt_call_reply_header(call, "ETag", tag);
}

// --- the server ----------------------------------------------------------------------------------

struct vt_metadata_server {
  vt_cloud *cloud;
  vt_http *http;
  char ip[32]; // of its worker; level 1
  int64_t first_uid, count;
};

// The user of the process at the other end of a connection within this host, from the kernel's
// socket table; -1 when it is not there.
static int64_t socket_owner(int socket) {
  struct sockaddr_in here, there;
  socklen_t size = sizeof here, size2 = sizeof there;
  char line[512], want[64];
  long uid = -1;
  if (getsockname(socket, (struct sockaddr *)&here, &size) != 0 ||
      getpeername(socket, (struct sockaddr *)&there, &size2) != 0)
    return -1;
  // Its local end is our remote one. Addresses are printed as words in memory.
  snprintf(want, sizeof want, "%08X:%04X %08X:%04X", there.sin_addr.s_addr, ntohs(there.sin_port),
           here.sin_addr.s_addr, ntohs(here.sin_port));
  FILE *file = fopen("/proc/self/net/tcp", "re");
  while (file && fgets(line, sizeof line, file)) {
    char *at = strstr(line, want);
    if (at && sscanf(at + strlen(want), " %*x %*x:%*x %*x:%*x %*x %ld", &uid) == 1) break;
  }
  if (file) fclose(file);
  return uid;
}

static bool who_of_worker(void *context, int socket, char out_peer[64]) {
  const vt_metadata_server *server = context;
  int64_t uid = socket_owner(socket);
  snprintf(out_peer, 64, "%s", server->ip);
  return uid == 0 || uid == (int64_t)geteuid() || // the agent
         (uid >= server->first_uid && uid < server->first_uid + server->count);
}

vt_status vt_metadata_start_worker(vt_cloud *cloud, const char *ip, int64_t first_uid,
                                   int64_t count, vt_metadata_server **out_server) {
  vt_metadata_server *server = calloc(1, sizeof *server);
  *out_server = NULL;
  if (!server) return vt_error_no_memory();
  *server = (vt_metadata_server){.cloud = cloud, .first_uid = first_uid, .count = count};
  snprintf(server->ip, sizeof server->ip, "%s", ip);
  vt_http_options options = {.address = server->ip,
                             .port = 80,
                             .run = vt_metadata_run,
                             .threads = 1,
                             .max = MAX_OF_WORKER,
                             .max_of_one = MAX_OF_WORKER,
                             .who = who_of_worker,
                             .who_context = server};
  vt_status st = vt_http_start(cloud, &options, &server->http);
  if (st)
    free(server);
  else
    *out_server = server;
  return st;
}

vt_status vt_metadata_start(vt_cloud *cloud, const char *address, uint16_t port,
                            vt_metadata_server **out_server) {
  vt_http_options options = {.address = address,
                             .port = port,
                             .run = vt_metadata_run,
                             .watched = true,
                             .max_of_one = MAX_OF_WORKER};
  *out_server = calloc(1, sizeof **out_server);
  if (!*out_server) return vt_error_no_memory();
  (*out_server)->cloud = cloud;
  vt_status st = vt_http_start(cloud, &options, &(*out_server)->http);
  if (st) {
    free(*out_server);
    *out_server = NULL;
  }
  return st;
}

void vt_metadata_end(vt_metadata_server *server) {
  vt_http_stop(server->http);
  free(server);
}

void vt_metadata_stop(vt_metadata_server *server) {
  if (!server) return;
  pthread_mutex_lock(&server->cloud->lock);
  server->cloud->closing = true;
  pthread_mutex_unlock(&server->cloud->lock);
  vt_http_stop(server->http);
  free(server);
}
