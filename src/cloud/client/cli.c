// SPDX-License-Identifier: Apache-2.0
// cli.c - the commands of commands.def, each a few API calls, and the lookup of a line's command.
#include "cloud/client/cloud_cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cloud/api/check.h"
#include "cloud/client/http_client.h"

#define NODE_TABLE                                                                                 \
  "table(name.basename():label=NAME,zone:label=ZONE,acceleratorType:label=ACCELERATOR_TYPE,"       \
  "acceleratorConfig.type:label="                                                                  \
  "TYPE,acceleratorConfig.topology:label=TOPOLOGY,networkConfig.network.basename():label=NETWORK," \
  "state:label=STATUS)"
#define QUEUED_TABLE                                                                               \
  "table(name.basename():label=NAME,zone:label=ZONE,tpu.nodeSpec[0].node.acceleratorType:label="   \
  "ACCELERATOR_TYPE,"                                                                              \
  "state.state:label=STATE)"

// --- the command line ----------------------------------------------------------------------------

const char *vt_cli_flag_value(const vt_cli *cli, const char *name) {
  return vt_args_text(&cli->args, name);
}

bool vt_cli_flag_on(const vt_cli *cli, const char *name) {
  return vt_args_on(&cli->args, name);
}

// --- calls ---------------------------------------------------------------------------------------

vt_status vt_cli_call(vt_cli *cli, const char *method, const char *path, json_t *body,
                      json_t **out_json) {
  vt_text reply = {0};
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  int http;
  *out_json = NULL;
  vt_http_request r = {method, vt_arena_printf(&cli->arena, "%s%s", cli->endpoint, path),
                       cli->token, text, cli->ca_file};
  vt_status st = vt_http_fetch(&r, &http, &reply);
  json_decref(body);
  free(text);
  if (!st) *out_json = json_loadb(vt_text_string(&reply), reply.size, 0, NULL);
  if (!st && http >= 400) {
    const json_t *error = json_object_get(*out_json, "error");
    const char *message = json_string_value(json_object_get(error, "message")),
               *name = json_string_value(json_object_get(error, "status"));
    st = vt_error(http == 404   ? VT_NOT_FOUND
                  : http == 409 ? VT_ALREADY_EXISTS
                  : http == 429 ? VT_RESOURCE_EXHAUSTED
                                : VT_UNKNOWN,
                  "%s: %s", name ? name : "HTTP error", message ? message : vt_text_string(&reply));
    json_decref(*out_json);
    *out_json = NULL;
  }
  vt_text_free(&reply);
  return st;
}

vt_status vt_cli_wait(vt_cli *cli, json_t *operation) {
  struct timespec pause = {.tv_nsec = 50000000};
  const char *name = json_string_value(json_object_get(operation, "name"));
  if (!name) return vt_error(VT_INTERNAL, "the reply is not an operation");
  const char *path = vt_arena_printf(&cli->arena, "/v2alpha1/%s", name);
  for (json_t *now = json_incref(operation);;) {
    if (json_is_true(json_object_get(now, "done"))) {
      const json_t *error = json_object_get(now, "error");
      vt_status st = error ? vt_error((vt_code)json_integer_value(json_object_get(error, "code")),
                                      "%s", json_string_value(json_object_get(error, "message")))
                           : VT_OK;
      json_decref(now);
      return st;
    }
    json_decref(now);
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 900000000) pause.tv_nsec += pause.tv_nsec / 4;
    VT_TRY(vt_cli_call(cli, "GET", path, NULL, &now));
  }
}

const char *vt_cli_parent(vt_cli *cli) {
  return vt_arena_printf(&cli->arena, "/v2alpha1/projects/%s/locations/%s", cli->project,
                         cli->zone);
}

const char *vt_cli_encode(vt_cli *cli, const char *name) {
  vt_text out = {0};
  for (; *name; name++) {
    if (strchr("-_.~", *name) || (*name >= '0' && *name <= '9') ||
        ((*name | 32) >= 'a' && (*name | 32) <= 'z'))
      vt_text_put_n(&out, name, 1);
    else
      vt_text_printf(&out, "%%%02X", (unsigned char)*name);
  }
  const char *copy = vt_arena_copy(&cli->arena, vt_text_string(&out), out.size);
  vt_text_free(&out);
  return copy;
}

vt_status vt_cli_node(vt_cli *cli, const char *name, json_t **out_node) {
  return vt_cli_call(
      cli, "GET",
      vt_arena_printf(&cli->arena, "%s/nodes/%s", vt_cli_parent(cli), vt_cli_encode(cli, name)),
      NULL, out_node);
}

static const char *item_path(vt_cli *cli, const char *verb) {
  const char *collection = strcmp(cli->group, "tpu-vm") == 0 ? "nodes" : "queuedResources";
  return vt_arena_printf(&cli->arena, "%s/%s/%s%s", vt_cli_parent(cli), collection,
                         vt_cli_encode(cli, cli->args.words.data[0]), verb);
}

// Waits unless --async; prints gcloud's messages.
static vt_status finish(vt_cli *cli, json_t *operation, const char *done) {
  vt_status st = VT_OK;
  if (vt_cli_flag_on(cli, "async"))
    fprintf(stderr, "%s in progress: %s\n", cli->command,
            json_string_value(json_object_get(operation, "name")));
  else if (!(st = vt_cli_wait(cli, operation)))
    fprintf(stderr, "%s [%s].\n", done, cli->args.words.data[0]);
  json_decref(operation);
  return st;
}

// "a=1,b=2" into an object.
static vt_status parse_pairs(vt_cli *cli, const char *text, bool from_file, json_t *out) {
  while (*text) {
    size_t n = strcspn(text, ","), key = strcspn(text, "=,");
    if (key == n || key == 0)
      return vt_error(VT_INVALID_ARGUMENT, "'%.*s' is not KEY=VALUE", (int)n, text);
    const char *name = vt_arena_copy(&cli->arena, text, key),
               *value = vt_arena_copy(&cli->arena, text + key + 1, n - key - 1);
    if (from_file) {
      vt_bytes file;
      VT_TRY(vt_file_map(value, &file));
      json_object_set_new(out, name, json_stringn((const char *)file.data, file.size));
      vt_file_unmap(&file);
    } else {
      json_object_set_new(out, name, json_string(value));
    }
    text += n + (text[n] == ',');
  }
  return VT_OK;
}

// The Node described by the flags of create.
static vt_status node_of_flags(vt_cli *cli, const char *version_flag, json_t **out_node) {
  const char *type = vt_cli_flag_value(cli, "accelerator-type"),
             *family = vt_cli_flag_value(cli, "type");
  const char *topology = vt_cli_flag_value(cli, "topology"),
             *version = vt_cli_flag_value(cli, version_flag), *text;
  json_t *node = *out_node = json_object(), *metadata = json_object(), *network = json_object(),
         *labels = json_object();
  if (!version) return vt_error(VT_INVALID_ARGUMENT, "--%s is required", version_flag);
  if (type) json_object_set_new(node, "acceleratorType", json_string(type));
  if (family && topology) {
    char *upper = vt_arena_copy(&cli->arena, family, strlen(family));
    for (char *p = upper; *p; p++)
      *p = (char)(*p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
    const char *name = strcmp(upper, "V5LITEPOD") == 0 ? "V5LITE_POD" : upper;
    json_object_set_new(node, "acceleratorConfig",
                        json_pack("{s:s, s:s}", "type", name, "topology", topology));
  }
  json_object_set_new(node, "runtimeVersion", json_string(version));
  json_object_set_new(node, "metadata", metadata);
  json_object_set_new(node, "networkConfig", network);
  json_object_set_new(node, "labels", labels);
  if ((text = vt_cli_flag_value(cli, "metadata"))) VT_TRY(parse_pairs(cli, text, false, metadata));
  if ((text = vt_cli_flag_value(cli, "metadata-from-file")))
    VT_TRY(parse_pairs(cli, text, true, metadata));
  if ((text = vt_cli_flag_value(cli, "labels"))) VT_TRY(parse_pairs(cli, text, false, labels));
  if ((text = vt_cli_flag_value(cli, "description")))
    json_object_set_new(node, "description", json_string(text));
  if ((text = vt_cli_flag_value(cli, "network")))
    json_object_set_new(network, "network", json_string(text));
  if ((text = vt_cli_flag_value(cli, "subnetwork")))
    json_object_set_new(network, "subnetwork", json_string(text));
  json_object_set_new(network, "enableExternalIps",
                      json_boolean(!vt_cli_flag_on(cli, "internal-ips")));
  if ((text = vt_cli_flag_value(cli, "service-account")))
    json_object_set_new(node, "serviceAccount", json_pack("{s:s}", "email", text));
  if (vt_cli_flag_on(cli, "shielded-secure-boot"))
    json_object_set_new(node, "shieldedInstanceConfig", json_pack("{s:b}", "enableSecureBoot", 1));
  if ((text = vt_cli_flag_value(cli, "tags"))) {
    json_t *tags = json_array();
    for (; *text; text += strcspn(text, ","), text += *text == ',')
      json_array_append_new(tags, json_stringn(text, strcspn(text, ",")));
    json_object_set_new(node, "tags", tags);
  }
  return VT_OK;
}

// Disks of --data-disk (repeatable) and of attach-disk: "source=NAME,mode=read-write".
static vt_status disk_of_text(vt_cli *cli, const char *text, json_t **out_disk) {
  json_t *pairs = json_object();
  vt_status st = strchr(text, '=') ? parse_pairs(cli, text, false, pairs) : VT_OK;
  const char *source = json_string_value(json_object_get(pairs, "source")),
             *mode = json_string_value(json_object_get(pairs, "mode"));
  if (!strchr(text, '=')) source = text;
  if (!st && !source)
    st = vt_error(VT_INVALID_ARGUMENT, "--data-disk is source=DISK[,mode=read-write|read-only]");
  if (source && !strchr(source, '/'))
    source = vt_arena_printf(&cli->arena, "projects/%s/zones/%s/disks/%s", cli->project, cli->zone,
                             source);
  *out_disk = st ? NULL
                 : json_pack("{s:s, s:s}", "sourceDisk", source, "mode",
                             mode && strcmp(mode, "read-only") == 0 ? "READ_ONLY" : "READ_WRITE");
  json_decref(pairs);
  return st;
}

static vt_status disks_of_flags(vt_cli *cli, json_t *node) {
  json_t *list = json_array();
  vt_status st = VT_OK;
  for (size_t i = 0; !st && i < cli->args.flags.size; i++) {
    json_t *disk;
    if (strcmp(cli->args.flags.data[i].flag->name, "data-disk") != 0) continue;
    st = disk_of_text(cli, cli->args.flags.data[i].value, &disk);
    if (disk) json_array_append_new(list, disk);
  }
  if (json_array_size(list)) json_object_set(node, "dataDisks", list);
  json_decref(list);
  return st;
}

// --- commands ------------------------------------------------------------------------------------

static vt_status create_node(vt_cli *cli) {
  json_t *node, *operation;
  vt_status st = node_of_flags(cli, "version", &node);
  if (!st) st = disks_of_flags(cli, node);
  if (st) {
    json_decref(node);
    return st;
  }
  if (vt_cli_flag_on(cli, "autocheckpoint-enabled"))
    json_object_set_new(node, "autocheckpointEnabled", json_true());
  json_object_set_new(node, "schedulingConfig",
                      json_pack("{s:b, s:b, s:b}", "preemptible",
                                (int)vt_cli_flag_on(cli, "preemptible"), "spot",
                                (int)vt_cli_flag_on(cli, "spot"), "reserved",
                                (int)vt_cli_flag_on(cli, "reserved")));
  VT_TRY(vt_cli_call(cli, "POST",
                     vt_arena_printf(&cli->arena, "%s/nodes?nodeId=%s", vt_cli_parent(cli),
                                     vt_cli_encode(cli, cli->args.words.data[0])),
                     node, &operation));
  return finish(cli, operation, "Created tpu");
}

static vt_status create_queued(vt_cli *cli) {
  json_t *node, *operation, *spec = json_object(), *body;
  const char *id = vt_cli_flag_value(cli, "node-id"),
             *prefix = vt_cli_flag_value(cli, "node-prefix"), *text;
  int64_t count = vt_args_number(&cli->args, "node-count", 0);
  vt_status st =
      node_of_flags(cli, vt_cli_flag_value(cli, "version") ? "version" : "runtime-version", &node);
  json_object_set_new(spec, "node", node);
  json_object_set_new(spec, "parent",
                      json_string(vt_arena_printf(&cli->arena, "projects/%s/locations/%s",
                                                  cli->project, cli->zone)));
  if (!st && !id && !count)
    st =
        vt_error(VT_INVALID_ARGUMENT, "--node-id, or --node-count with --node-prefix, is required");
  if (st) {
    json_decref(spec);
    return st;
  }
  if (count) {
    json_t *many = json_pack("{s:I}", "nodeCount", (json_int_t)count);
    if (prefix) json_object_set_new(many, "nodeIdPrefix", json_string(prefix));
    json_object_set_new(spec, "multiNodeParams", many);
  } else {
    json_object_set_new(spec, "nodeId", json_string(id));
  }
  body = json_pack("{s:{s:[o]}}", "tpu", "nodeSpec", spec);
  if (vt_cli_flag_on(cli, "spot")) json_object_set_new(body, "spot", json_object());
  if (vt_cli_flag_on(cli, "best-effort")) json_object_set_new(body, "bestEffort", json_object());
  if (vt_cli_flag_on(cli, "guaranteed") || vt_cli_flag_on(cli, "reserved"))
    json_object_set_new(body, "guaranteed",
                        json_pack("{s:b}", "reserved", (int)vt_cli_flag_on(cli, "reserved")));
  static const char *const policies[][2] = {{"valid-until-duration", "validUntilDuration"},
                                            {"valid-until-time", "validUntilTime"},
                                            {"valid-after-duration", "validAfterDuration"},
                                            {"valid-after-time", "validAfterTime"}};
  for (size_t i = 0; i < 4; i++) {
    if (!(text = vt_cli_flag_value(cli, policies[i][0]))) continue;
    if (strstr(policies[i][0], "duration")) // "6h" is gcloud's way, "21600s" the API's
      text = vt_arena_printf(&cli->arena, "%llds",
                             (long long)vt_args_number(&cli->args, policies[i][0], 0));
    if (json_object_get(body, "queueingPolicy"))
      st = vt_error(VT_INVALID_ARGUMENT, "one of the --valid flags is enough");
    json_object_set_new(body, "queueingPolicy", json_pack("{s:s}", policies[i][1], text));
  }
  if (st) {
    json_decref(body);
    return st;
  }
  if ((text = vt_cli_flag_value(cli, "reservation")))
    json_object_set_new(body, "reservationName", json_string(text));
  VT_TRY(
      vt_cli_call(cli, "POST",
                  vt_arena_printf(&cli->arena, "%s/queuedResources?queuedResourceId=%s",
                                  vt_cli_parent(cli), vt_cli_encode(cli, cli->args.words.data[0])),
                  body, &operation));
  return finish(cli, operation, "Created queued resource");
}

// The ZONE column of the tables: the zone inside a resource name.
static void add_zones(json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *item = json_array_get(list, i);
    const char *name = json_string_value(json_object_get(item, "name")),
               *zone = name ? strstr(name, "/locations/") : NULL;
    if (zone) json_object_set_new(item, "zone", json_stringn(zone + 11, strcspn(zone + 11, "/")));
  }
}

static vt_status list(vt_cli *cli) {
  bool nodes = strcmp(cli->group, "tpu-vm") == 0;
  const char *key = nodes ? "nodes" : "queuedResources", *token = "",
             *format = vt_cli_flag_value(cli, "format");
  json_t *all = json_array();
  vt_status st = VT_OK;
  do {
    json_t *page;
    st = vt_cli_call(
        cli, "GET",
        vt_arena_printf(&cli->arena, "%s/%s?pageToken=%s", vt_cli_parent(cli), key, token), NULL,
        &page);
    if (st) break;
    json_array_extend(all, json_object_get(page, key));
    token = json_string_value(json_object_get(page, "nextPageToken"));
    token = token ? vt_arena_copy(&cli->arena, token, strlen(token)) : "";
    json_decref(page);
  } while (*token);
  if (!st && json_array_size(all) == 0 && !format) {
    fputs("Listed 0 items.\n", stderr);
  } else if (!st) {
    bool table = !format || strncmp(format, "table", 5) == 0;
    if (table) add_zones(all);
    st = vt_cli_print(format, nodes ? NODE_TABLE : QUEUED_TABLE, all);
  }
  json_decref(all);
  return st;
}

// This cloud's extra information on a node: how the workers run, and how busy the chips are. A new
// reference; NULL: a cloud without this call.
json_t *vt_cli_use(vt_cli *cli, const char *name) {
  json_t *reply;
  vt_status st =
      vt_cli_call(cli, "GET",
                  vt_arena_printf(&cli->arena, "/vtpu/v1/projects/%s/use?zone=%s&node=%s",
                                  cli->project, cli->zone, vt_cli_encode(cli, name)),
                  NULL, &reply);
  if (st) {
    vt_status_free(st);
    return NULL;
  }
  json_t *use = json_incref(json_array_get(json_object_get(reply, "nodes"), 0));
  json_decref(reply);
  return use;
}

static void add_use(vt_cli *cli, json_t *node) {
  static const char *const known[] = {"node", "zone", "state"};
  json_t *use = vt_cli_use(cli, cli->args.words.data[0]);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) json_object_del(use, known[i]);
  if (use) json_object_set_new(node, "vtpu", use);
}

static vt_status describe(vt_cli *cli) {
  const char *format = vt_cli_flag_value(cli, "format");
  json_t *item;
  VT_TRY(vt_cli_call(cli, "GET", item_path(cli, ""), NULL, &item));
  if (strcmp(cli->group, "tpu-vm") == 0 && (!format || strncmp(format, "value", 5) != 0))
    add_use(cli, item);
  vt_status st = vt_cli_print(format, "yaml", item);
  json_decref(item);
  return st;
}

#define DOCTOR_TABLE                                                                               \
  "table(worker:label=WORKER,pid:label=PID,user:label=USER,since:label=SINCE,versions:label="      \
  "VERSIONS,program:label=PROGRAM)"

// A line for each process that has the chips, and one for each worker without any.
static json_t *doctor_rows(const json_t *reply) {
  json_t *rows = json_array(), *worker, *holder, *version;
  const char *name;
  size_t i, k;
  json_array_foreach(json_object_get(reply, "workers"), i, worker) {
    const json_t *holders = json_object_get(worker, "holders");
    if (!json_array_size(holders))
      json_array_append_new(rows, json_pack("{s:O}", "worker", json_object_get(worker, "worker")));
    json_array_foreach(holders, k, holder) {
      json_t *row = json_copy(holder);
      vt_text text = {0};
      json_object_foreach(json_object_get(holder, "versions"), name, version)
          vt_text_printf(&text, "%s%s %s", text.size ? ", " : "", name, json_string_value(version));
      json_object_set_new(row, "versions", json_string(vt_text_string(&text)));
      json_object_set(row, "worker", json_object_get(worker, "worker"));
      json_array_append_new(rows, row);
      vt_text_free(&text);
    }
  }
  return rows;
}

static vt_status doctor(vt_cli *cli) {
  const char *format = vt_cli_flag_value(cli, "format");
  json_t *reply;
  VT_TRY(vt_cli_call(cli, "GET",
                     vt_arena_printf(&cli->arena, "/vtpu/v1/projects/%s/nodes/%s/%s:doctor",
                                     cli->project, cli->zone,
                                     vt_cli_encode(cli, cli->args.words.data[0])),
                     NULL, &reply));
  json_t *rows = doctor_rows(reply);
  const char *verdict = json_string_value(json_object_get(reply, "verdict")),
             *state = json_string_value(json_object_get(reply, "state"));
  if (!format && verdict && *verdict) printf("%s\n", verdict);
  if (!format && verdict && !*verdict) printf("The node is %s.\n", state);
  vt_status st = vt_cli_print(format, DOCTOR_TABLE, format ? reply : rows);
  json_decref(rows);
  json_decref(reply);
  return st;
}

// Ends the processes that have the chips of a worker, or the one of --pid.
static vt_status release(vt_cli *cli) {
  int64_t pid = vt_args_number(&cli->args, "pid", 0);
  json_t *reply, *one,
      *body = json_pack("{s:I}", "worker", (json_int_t)vt_args_number(&cli->args, "worker", 0));
  size_t i;
  if (pid) json_object_set_new(body, "pid", json_integer((json_int_t)pid));
  VT_TRY(vt_cli_call(cli, "POST",
                     vt_arena_printf(&cli->arena, "/vtpu/v1/projects/%s/nodes/%s/%s:release",
                                     cli->project, cli->zone,
                                     vt_cli_encode(cli, cli->args.words.data[0])),
                     body, &reply));
  json_array_foreach(json_object_get(reply, "released"), i, one)
      fprintf(stderr, "Process %lld of %s (%s) is asked to end.\n",
              (long long)json_integer_value(json_object_get(one, "pid")),
              json_string_value(json_object_get(one, "user")),
              json_string_value(json_object_get(one, "program")));
  json_decref(reply);
  return VT_OK;
}

static bool confirmed(vt_cli *cli) {
  if (vt_cli_flag_on(cli, "quiet") || !isatty(0)) return true;
  fprintf(stderr, "You are about to delete [%s]\n\nDo you want to continue (Y/n)?  ",
          cli->args.words.data[0]);
  int c = getchar();
  return c == 'y' || c == 'Y' || c == '\n';
}

static vt_status delete(vt_cli *cli) {
  json_t *operation;
  if (!confirmed(cli)) return vt_error(VT_CANCELLED, "Aborted by user.");
  VT_TRY(vt_cli_call(cli, "DELETE",
                     item_path(cli, vt_cli_flag_on(cli, "force") ? "?force=True" : ""), NULL,
                     &operation));
  return finish(cli, operation, "Deleted");
}

static vt_status verb(vt_cli *cli, const char *suffix, json_t *body, const char *done) {
  json_t *operation;
  VT_TRY(vt_cli_call(cli, "POST", item_path(cli, suffix), body, &operation));
  return finish(cli, operation, done);
}

static vt_status start(vt_cli *cli) {
  return verb(cli, ":start", json_object(), "Started");
}
static vt_status stop(vt_cli *cli) {
  return verb(cli, ":stop", json_object(), "Stopped");
}
static vt_status reset(vt_cli *cli) {
  return verb(cli, ":reset", json_object(), "Reset");
}
static vt_status maintenance(vt_cli *cli) {
  return verb(cli, ":simulateMaintenanceEvent", json_pack("{s:[]}", "workerIds"),
              "Simulated event on");
}

static vt_status perform(vt_cli *cli) {
  bool nodes = strcmp(cli->group, "tpu-vm") == 0;
  const char *names = vt_cli_flag_value(cli, "node-names");
  json_t *body = json_object(), *list = json_array();
  for (; names && *names; names += strcspn(names, ","), names += *names == ',')
    json_array_append_new(list, json_stringn(names, strcspn(names, ",")));
  if (!nodes) json_object_set(body, "nodeNames", list);
  json_decref(list);
  return verb(cli, nodes ? ":performMaintenance" : ":performMaintenanceQueuedResource", body,
              "Performed maintenance on");
}

// For administrators: --in=90s, 30m, 2h or 3d, or --cancel.
static vt_status announce(vt_cli *cli) {
  int64_t seconds = vt_args_number(&cli->args, "in", -1);
  bool cancel = vt_cli_flag_on(cli, "cancel");
  json_t *reply;
  if (!cancel && seconds < 0)
    return vt_error(VT_INVALID_ARGUMENT, "--in=TIME or --cancel is required");
  VT_TRY(vt_cli_call(
      cli, "POST",
      vt_arena_printf(&cli->arena, "/vtpu/v1/projects/%s/nodes/%s/%s:announceMaintenance",
                      cli->project, cli->zone, vt_cli_encode(cli, cli->args.words.data[0])),
      cancel ? json_pack("{s:b}", "cancel", 1) : json_pack("{s:I}", "seconds", (json_int_t)seconds),
      &reply));
  vt_status st = vt_cli_print(vt_cli_flag_value(cli, "format"), "yaml", reply);
  json_decref(reply);
  return st;
}

// Removes the disk from the node's list, or adds it, and sends the list.
static vt_status change_disks(vt_cli *cli, bool attach) {
  const char *name = vt_cli_flag_value(cli, "disk"), *mode = vt_cli_flag_value(cli, "mode");
  json_t *node, *disk, *operation, *list = json_array(), *item;
  size_t i;
  if (!name) return vt_error(VT_INVALID_ARGUMENT, "--disk is required");
  vt_status st = disk_of_text(
      cli, vt_arena_printf(&cli->arena, "source=%s,mode=%s", name, mode ? mode : "read-write"),
      &disk);
  if (!st) st = vt_cli_node(cli, cli->args.words.data[0], &node);
  if (st) return st;
  const char *source = json_string_value(json_object_get(disk, "sourceDisk"));
  json_array_foreach(json_object_get(node, "dataDisks"), i, item) {
    const char *other = json_string_value(json_object_get(item, "sourceDisk"));
    if (!other || strcmp(other, source) != 0) json_array_append(list, item);
  }
  if (!attach && json_array_size(list) == json_array_size(json_object_get(node, "dataDisks")))
    st = vt_error(VT_NOT_FOUND, "Specified disk [%s] is not attached to [%s].", name,
                  cli->args.words.data[0]);
  if (attach) json_array_append(list, disk);
  json_decref(disk);
  json_decref(node);
  json_t *body = json_pack("{s:o}", "dataDisks", list);
  if (st) {
    json_decref(body);
    return st;
  }
  VT_TRY(vt_cli_call(cli, "PATCH", item_path(cli, "?updateMask=data_disks"), body, &operation));
  return finish(cli, operation, attach ? "Attached disk to tpu" : "Detached disk from tpu");
}

static vt_status attach_disk(vt_cli *cli) {
  return change_disks(cli, true);
}
static vt_status detach_disk(vt_cli *cli) {
  return change_disks(cli, false);
}

static const char *disks_path(vt_cli *cli, const char *name) {
  return vt_arena_printf(&cli->arena, "/compute/v1/projects/%s/zones/%s/disks%s%s", cli->project,
                         cli->zone, *name ? "/" : "", vt_cli_encode(cli, name));
}

static vt_status create_disk(vt_cli *cli) {
  const char *size = vt_cli_flag_value(cli, "size"), *type = vt_cli_flag_value(cli, "type");
  json_t *reply;
  char *end = "";
  long gb = size ? strtol(size, &end, 10) : 500;
  bool tb = strcmp(end, "TB") == 0;
  if (gb < 1 || gb > 65536 || (*end && !tb && strcmp(end, "GB") != 0))
    return vt_error(VT_INVALID_ARGUMENT, "--size=%s: it is 1GB to 64TB", size);
  if (tb) gb *= 1024;
  VT_TRY(vt_cli_call(cli, "POST", disks_path(cli, ""),
                     json_pack("{s:s, s:I, s:s}", "name", cli->args.words.data[0], "sizeGb",
                               (json_int_t)gb, "type", type ? type : "pd-standard"),
                     &reply));
  json_decref(reply);
  fprintf(stderr, "Created [%s].\n", cli->args.words.data[0]);
  return VT_OK;
}

static vt_status delete_disk(vt_cli *cli) {
  json_t *reply;
  if (!confirmed(cli)) return vt_error(VT_CANCELLED, "Aborted by user.");
  VT_TRY(vt_cli_call(cli, "DELETE", disks_path(cli, cli->args.words.data[0]), NULL, &reply));
  json_decref(reply);
  fprintf(stderr, "Deleted [%s].\n", cli->args.words.data[0]);
  return VT_OK;
}

static vt_status list_catalogue(vt_cli *cli, const char *path, const char *key, const char *table);
static vt_status list_disks(vt_cli *cli) {
  return list_catalogue(cli, disks_path(cli, ""), "items",
                        "table(name:label=NAME,sizeGb:label=SIZE_GB,type.basename():label=TYPE,"
                        "users[0].basename():label=USED_BY)");
}

static vt_status guest_attributes(vt_cli *cli) {
  json_t *reply;
  VT_TRY(vt_cli_call(cli, "POST", item_path(cli, ":getGuestAttributes"), json_object(), &reply));
  vt_status st = vt_cli_print(vt_cli_flag_value(cli, "format"), "yaml", reply);
  json_decref(reply);
  return st;
}

static vt_status list_catalogue(vt_cli *cli, const char *path, const char *key, const char *table) {
  json_t *reply;
  VT_TRY(vt_cli_call(cli, "GET", path, NULL, &reply));
  vt_status st = vt_cli_print(vt_cli_flag_value(cli, "format"), table, json_object_get(reply, key));
  json_decref(reply);
  return st;
}

static vt_status accelerator_types(vt_cli *cli) {
  return list_catalogue(
      cli, vt_arena_printf(&cli->arena, "%s/acceleratorTypes", vt_cli_parent(cli)),
      "acceleratorTypes",
      "table(type:label=ACCELERATOR_TYPE,acceleratorConfigs[0].topology:label=TOPOLOGY)");
}

static vt_status versions(vt_cli *cli) {
  return list_catalogue(cli, vt_arena_printf(&cli->arena, "%s/runtimeVersions", vt_cli_parent(cli)),
                        "runtimeVersions", "table(version:label=RUNTIME_VERSION)");
}

static vt_status locations(vt_cli *cli) {
  return list_catalogue(
      cli, vt_arena_printf(&cli->arena, "/v2alpha1/projects/%s/locations", cli->project),
      "locations", "table(locationId:label=ID)");
}

static vt_status ssh(vt_cli *cli) {
  return vt_cli_ssh(cli, false);
}
static vt_status scp(vt_cli *cli) {
  return vt_cli_ssh(cli, true);
}

static vt_status ssh_config(vt_cli *cli) {
  vt_text body = {0};
  int http;
  vt_http_request r = {"GET",
                       vt_arena_printf(&cli->arena, "%s/vtpu/v1/projects/%s/sshConfig?user=%s",
                                       cli->endpoint, cli->project, vt_cli_user()),
                       cli->token, NULL, cli->ca_file};
  VT_TRY(vt_http_fetch(&r, &http, &body));
  vt_status st = http == 200 ? VT_OK : vt_error(VT_UNKNOWN, "HTTP %d", http);
  if (!st) fputs(vt_text_string(&body), stdout);
  vt_text_free(&body);
  return st;
}

// --- which command -------------------------------------------------------------------------------

static const vt_command_row rows[] = {
#include "base/command_rows.h"
#include "cloud/client/commands.def"
#include "base/command_rows_end.h"
};
const vt_command_table vt_cloud_commands = {"vtpu", rows, sizeof rows / sizeof *rows};

static const struct {
  const char *name;
  vt_status (*run)(vt_cli *cli);
} runs[] = {
#include "base/command_functions.h"
#include "cloud/client/commands.def"
#include "base/command_rows_end.h"
};

// They are put into paths and command lines unescaped.
static vt_status check_name(const char *what, const char *name) {
  if (name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")])
    return vt_error(VT_INVALID_ARGUMENT, "'%s' is no name of a %s", name, what);
  return VT_OK;
}

static vt_status check_place(const vt_cli *cli) {
  if (!*cli->endpoint)
    return vt_error(VT_FAILED_PRECONDITION,
                    "no endpoint: set VTPU_ENDPOINT or `vtpu config set endpoint URL`");
  // Accounts belong to no project or zone.
  if (strcmp(cli->group, "accounts") == 0) return VT_OK;
  if (!*cli->project)
    return vt_error(VT_FAILED_PRECONDITION,
                    "no project: --project=ID or `vtpu config set project ID`");
  if (!*cli->zone)
    return vt_error(VT_FAILED_PRECONDITION, "no zone: --zone=ZONE or `vtpu config set zone ZONE`");
  VT_TRY(check_name("project", cli->project));
  return check_name("zone", cli->zone);
}

// Requests are JSON and headers: an argument with invalid text would be dropped from them silently.
static vt_status check_texts(const vt_args *args) {
  for (size_t i = 0; i < args->words.size; i++)
    if (!vt_text_is_good(args->words.data[i], strlen(args->words.data[i])))
      return vt_error(VT_INVALID_ARGUMENT, "an argument is not UTF-8");
  for (size_t i = 0; i < args->flags.size; i++)
    if (!vt_text_is_good(args->flags.data[i].value, strlen(args->flags.data[i].value)))
      return vt_error(VT_INVALID_ARGUMENT, "the value of --%s is not UTF-8",
                      args->flags.data[i].flag->name);
  return VT_OK;
}

static vt_status run(vt_cli *cli) {
  VT_TRY(check_texts(&cli->args));
  if (strcmp(cli->group, "config") != 0) {
    VT_TRY(vt_config_read(cli));
    if (strcmp(cli->group, "googleapis") != 0) VT_TRY(check_place(cli));
  }
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    if (strcmp(runs[i].name, cli->args.command->name) == 0) return runs[i].run(cli);
  return vt_error(VT_INTERNAL, "no function for '%s'", cli->args.command->name);
}

static vt_status read_line(int argc, char **argv, vt_cli *cli) {
  const vt_command_row *command;
  VT_TRY(vt_command_find(&vt_cloud_commands, argc, argv, &command));
  const char *blank = strchr(command->name, ' ');
  cli->command = blank ? blank + 1 : "";
  return vt_command_read(&vt_cloud_commands, command, argc, argv, &cli->arena, &cli->args);
}

// "alpha compute tpus tpu-vm" is "tpu-vm"; "compute start-iap-tunnel" stays.
static void skip_before(int *argc, char ***argv) {
  static const char *const before[] = {"alpha", "beta", "compute", "tpus"};
  for (size_t i = 0; i < sizeof before / sizeof *before && *argc > 1; i++) {
    bool tunnel = strcmp((*argv)[0], "compute") == 0 && strncmp((*argv)[1], "start-", 6) == 0;
    if (strcmp((*argv)[0], before[i]) != 0 || tunnel) continue;
    --*argc;
    ++*argv;
  }
}

int vt_cloud_cli(int argc, char **argv) {
  vt_cli cli = {.command = ""};
  skip_before(&argc, &argv);
  cli.group = argv[0];
  bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
  if ((argc < 2 || help) && strcmp(argv[0], "googleapis") != 0) {
    vt_command_list(&vt_cloud_commands, argv[0], help ? stdout : stderr);
    return help ? 0 : 2;
  }
  vt_status st = read_line(argc, argv, &cli);
  int code = st ? 2 : 0;
  if (!st && cli.args.help) {
    vt_command_help(&vt_cloud_commands, cli.args.command, stdout);
  } else if (!st) {
    st = run(&cli);
    code = st ? 1 : 0;
  }
  if (st)
    fprintf(stderr, "ERROR: (vtpu %s%s%s) %s\n", cli.group, *cli.command ? " " : "", cli.command,
            vt_status_message(st));
  vt_status_free(st);
  vt_arena_free(&cli.arena);
  return code;
}
