// SPDX-License-Identifier: Apache-2.0
// cli_ssh.c - `vtpu tpu-vm ssh` and `scp`: creates a key, adds it to the node's metadata, trusts
// the published host keys, runs OpenSSH. One process per worker; with several workers all run at
// once and the worst exit status counts.
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cloud/client/cloud_cli.h"

typedef struct target {
  const char *user, *node, *path; // path: of scp
  bool key_is_new;                // in the login profile
} target;

const char *vt_cli_user(void) {
  struct passwd *p = getpwuid(getuid());
  const char *name = getenv("USER");
  if (!name || !*name) name = p ? p->pw_name : "user";
  // root cannot log in; gcloud names the account after the local user.
  return strcmp(name, "root") == 0 ? "vtpu" : name;
}

// "user@node:path"
static target parse_target(vt_cli *cli, const char *text, bool with_path) {
  target t = {.user = "", .node = text, .path = ""};
  const char *at = strchr(text, '@'), *colon = with_path ? strchr(text, ':') : NULL;
  if (at && (!colon || at < colon)) {
    t.user = vt_arena_copy(&cli->arena, text, (size_t)(at - text));
    t.node = at + 1;
  }
  if (colon) {
    t.path = colon + 1;
    t.node = vt_arena_copy(&cli->arena, t.node, (size_t)(colon - t.node));
  }
  if (!*t.user) {
    t.user = vt_cli_user();
    t.user = vt_arena_copy(&cli->arena, t.user, strlen(t.user));
  }
  return t;
}

static int run(const char *const *argv) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    execvp(argv[0], (char *const *)argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  while (waitpid(pid, &status, 0) != pid)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// The public half of the key, which is created first if missing.
static vt_status load_key(vt_cli *cli, const char **out_file, const char **out_public) {
  const char *file = vt_cli_flag_value(cli, "ssh-key-file"), *home = getenv("HOME");
  if (!file) {
    const char *folder = vt_arena_printf(&cli->arena, "%s/.ssh", home ? home : "");
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
      return vt_error(VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    file = vt_arena_printf(&cli->arena, "%s/google_compute_engine", folder);
  }
  if (access(file, R_OK) != 0) {
    const char *const argv[] = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file, NULL};
    if (run(argv) != 0) return vt_error(VT_UNAVAILABLE, "ssh-keygen could not make %s", file);
  }
  vt_bytes bytes;
  VT_TRY(vt_file_map(vt_arena_printf(&cli->arena, "%s.pub", file), &bytes));
  *out_public = vt_arena_copy(&cli->arena, bytes.data, bytes.size);
  ((char *)*out_public)[strcspn(*out_public, "\r\n")] = 0;
  *out_file = file;
  vt_file_unmap(&bytes);
  return VT_OK;
}

// Adds "user:key" to the node's ssh-keys if missing; returns once all workers accept the key.
static vt_status publish_key(vt_cli *cli, const json_t *node, const target *t, const char *key) {
  const json_t *old = json_object_get(node, "metadata");
  const char *keys = json_string_value(json_object_get(old, "ssh-keys"));
  const char *line = vt_arena_printf(&cli->arena, "%s:%s", t->user, key);
  if (keys && strstr(keys, line)) return VT_OK;
  json_t *metadata = old ? json_deep_copy(old) : json_object(), *operation;
  json_object_set_new(metadata, "ssh-keys",
                      json_string(vt_arena_printf(&cli->arena, "%s\n%s", keys ? keys : "", line)));
  fprintf(stderr, "Propagating SSH public key to all TPU workers...");
  VT_TRY(vt_cli_call(cli, "PATCH",
                     vt_arena_printf(&cli->arena, "%s/nodes/%s?updateMask=metadata",
                                     vt_cli_parent(cli), vt_cli_encode(cli, t->node)),
                     json_pack("{s:o}", "metadata", metadata), &operation));
  vt_status st = vt_cli_wait(cli, operation);
  fprintf(stderr, "done.\n");
  json_decref(operation);
  return st;
}

static bool says_os_login(const json_t *value) {
  return json_is_string(value) && strcasecmp(json_string_value(value), "true") == 0;
}

// Whether the metadata of the node, or else of the project, enables OS Login.
static vt_status os_login_on(vt_cli *cli, const json_t *node, bool *out_on) {
  const json_t *own = json_object_get(json_object_get(node, "metadata"), "enable-oslogin"), *item;
  json_t *project;
  size_t i;
  *out_on = says_os_login(own);
  if (own) return VT_OK;
  VT_TRY(vt_cli_call(cli, "GET",
                     vt_arena_printf(&cli->arena, "/compute/v1/projects/%s", cli->project), NULL,
                     &project));
  const json_t *items =
      json_object_get(json_object_get(project, "commonInstanceMetadata"), "items");
  json_array_foreach(items, i, item) {
    const char *key = json_string_value(json_object_get(item, "key"));
    if (key && strcmp(key, "enable-oslogin") == 0)
      *out_on = says_os_login(json_object_get(item, "value"));
  }
  json_decref(project);
  return VT_OK;
}

// Whether the login profile has the key.
static vt_status has_key(vt_cli *cli, const char *email, const char *key, bool *out_has) {
  json_t *profile;
  const char *print;
  const json_t *one;
  VT_TRY(vt_cli_call(cli, "GET",
                     vt_arena_printf(&cli->arena, "/v1/users/%s/loginProfile?projectId=%s",
                                     vt_cli_encode(cli, email), cli->project),
                     NULL, &profile));
  *out_has = false;
  json_object_foreach(json_object_get(profile, "sshPublicKeys"), print, one) {
    const char *text = json_string_value(json_object_get(one, "key"));
    *out_has |= text && strcmp(text, key) == 0;
  }
  json_decref(profile);
  return VT_OK;
}

// Adds the key to the caller's login profile; the profile gives the account name on the workers.
static vt_status import_key(vt_cli *cli, target *t, const char *key) {
  json_t *me, *reply;
  bool known;
  VT_TRY(vt_cli_call(cli, "GET", "/vtpu/v1/me", NULL, &me));
  const char *email = json_string_value(json_object_get(me, "email"));
  email = vt_arena_copy(&cli->arena, email, strlen(email));
  json_decref(me);
  VT_TRY(has_key(cli, email, key, &known));
  t->key_is_new = !known;
  const char *path = vt_arena_printf(&cli->arena, "/v1/users/%s:importSshPublicKey?projectId=%s",
                                     vt_cli_encode(cli, email), cli->project);
  VT_TRY(vt_cli_call(cli, "POST", path, json_pack("{s:s}", "key", key), &reply));
  const json_t *accounts = json_object_get(json_object_get(reply, "loginProfile"), "posixAccounts");
  const char *name = json_string_value(json_object_get(json_array_get(accounts, 0), "username"));
  t->user = vt_arena_copy(&cli->arena, name ? name : "", name ? strlen(name) : 0);
  json_decref(reply);
  if (!*t->user) return vt_error(VT_INTERNAL, "the login profile has no account");
  fprintf(stderr, "Using OS Login user [%s].\n", t->user);
  return VT_OK;
}

// A known_hosts file with the keys that the workers published, under their HostKeyAlias names, and
// the names of the workers.
static vt_status known_hosts(vt_cli *cli, const json_t *node, const target *t,
                             const char **out_file, json_t **out_names) {
  json_t *reply;
  vt_text text = {0};
  const char *id = json_string_value(json_object_get(node, "id")), *home = getenv("HOME");
  *out_names = json_object();
  VT_TRY(vt_cli_call(cli, "POST",
                     vt_arena_printf(&cli->arena, "%s/nodes/%s:getGuestAttributes",
                                     vt_cli_parent(cli), vt_cli_encode(cli, t->node)),
                     json_pack("{s:[s]}", "workerIds", ""), &reply));
  const json_t *workers = json_object_get(reply, "guestAttributes");
  for (size_t w = 0; w < json_array_size(workers); w++) {
    const json_t *items =
        json_object_get(json_object_get(json_array_get(workers, w), "queryValue"), "items");
    for (size_t i = 0; i < json_array_size(items); i++) {
      const json_t *item = json_array_get(items, i);
      if (strcmp(json_string_value(json_object_get(item, "namespace")), "guest") == 0)
        json_object_set(*out_names, vt_arena_printf(&cli->arena, "%zu", w),
                        json_object_get(item, "value"));
      if (strcmp(json_string_value(json_object_get(item, "namespace")), "hostkeys") == 0)
        vt_text_printf(&text, "tpu.%s-%zu %s %s\n", id, w,
                       json_string_value(json_object_get(item, "key")),
                       json_string_value(json_object_get(item, "value")));
    }
  }
  json_decref(reply);
  *out_file = vt_arena_printf(&cli->arena, "%s/.ssh/vtpu_known_hosts_%s", home ? home : "", id);
  vt_status st = vt_file_write(*out_file, vt_text_string(&text), text.size);
  vt_text_free(&text);
  return st;
}

// "all", "2", "0,3", "1-4".
static vt_status check_workers(const char *list) {
  bool good = !list || strcmp(list, "all") == 0;
  for (const char *p = list; !good && p;) {
    size_t n = strspn(p, "0123456789"), m = p[n] == '-' ? strspn(p + n + 1, "0123456789") : 0;
    if (n < 1 || n > 6 || m > 6 || (p[n] == '-' && !m)) break;
    p += n + (p[n] == '-') + m;
    if (*p && *p != ',') break;
    good = !*p;
    p += *p == ',';
  }
  if (good) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "--worker=%s: it is all, or numbers as in 0, 0,3 or 1-4",
                  list);
}

// Whether worker w is selected.
static bool wants(const char *list, size_t w) {
  if (!list) return w == 0;
  if (strcmp(list, "all") == 0) return true;
  while (*list) {
    char *end;
    unsigned long from = strtoul(list, &end, 10), to = from;
    if (*end == '-') to = strtoul(end + 1, &end, 10);
    if (w >= from && w <= to) return true;
    list = end + strcspn(end, ",");
    list += *list == ',';
  }
  return false;
}

typedef VT_ARRAY(const char *) words;

static void push_options(vt_cli *cli, words *argv, const char *key, const char *hosts,
                         const char *alias) {
  const char *const fixed[] = {
      "-i", key,
      "-o", "CheckHostIP=no",
      "-o", "HashKnownHosts=no",
      "-o", "IdentitiesOnly=yes",
      "-o", *hosts ? "StrictHostKeyChecking=yes" : "StrictHostKeyChecking=no",
      "-o", "LogLevel=ERROR"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    vt_array_push_in(&cli->arena, argv, fixed[i]);
  vt_array_push_in(&cli->arena, argv, "-o");
  vt_array_push_in(&cli->arena, argv, vt_arena_printf(&cli->arena, "HostKeyAlias=%s", alias));
  vt_array_push_in(&cli->arena, argv, "-o");
  vt_array_push_in(
      &cli->arena, argv,
      vt_arena_printf(&cli->arena, "UserKnownHostsFile=%s", *hosts ? hosts : "/dev/null"));
  for (size_t i = 0; i < cli->args.flags.size; i++)
    if (strcmp(cli->args.flags.data[i].flag->name, "ssh-flag") == 0 ||
        strcmp(cli->args.flags.data[i].flag->name, "scp-flag") == 0)
      vt_array_push_in(&cli->arena, argv, cli->args.flags.data[i].value);
}

// ssh reaches the worker through this program, which goes through the daemon.
static vt_status push_tunnel(vt_cli *cli, words *argv, const json_t *names, size_t worker) {
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  const char *name =
      json_string_value(json_object_get(names, vt_arena_printf(&cli->arena, "%zu", worker)));
  if (!name)
    return vt_error(VT_FAILED_PRECONDITION, "worker %zu has not said its name: is it a machine?",
                    worker);
  // It comes from the worker and is put into a command line.
  if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")])
    return vt_error(VT_DATA_LOSS, "worker %zu says that it has a name that is none", worker);
  self[n > 0 ? n : 0] = 0;
  vt_array_push_in(&cli->arena, argv, "-o");
  vt_array_push_in(&cli->arena, argv,
                   vt_arena_printf(&cli->arena,
                                   "ProxyCommand='%s' compute start-iap-tunnel '%s' %%p "
                                   "--listen-on-stdin --project='%s' --zone='%s'",
                                   self, name, cli->project, cli->zone));
  return VT_OK;
}

// Workers learn of a key in a login profile with a delay. Waits until the worker of these options
// accepts it; the following ssh reports any other error.
static void wait_until_let_in(vt_cli *cli, const words *options, const char *login) {
  enum { TRIES = 150 };
  words argv = {0};
  vt_array_push_in(&cli->arena, &argv, "ssh");
  for (size_t i = 0; i < options->size; i++) vt_array_push_in(&cli->arena, &argv, options->data[i]);
  const char *const probe[] = {"-o", "BatchMode=yes", "-nq", login, "true", NULL};
  for (size_t i = 0; i < sizeof probe / sizeof *probe; i++)
    vt_array_push_in(&cli->arena, &argv, probe[i]);
  fprintf(stderr, "Waiting for SSH key to propagate...");
  for (int i = 0; i < TRIES && run(argv.data) != 0; i++)
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  fprintf(stderr, "done.\n");
}

static void ssh_words(vt_cli *cli, words *argv, const char *login) {
  const char *command = vt_cli_flag_value(cli, "command");
  vt_array_push_in(&cli->arena, argv, login);
  for (int i = 0; i < cli->args.rest_count; i++)
    vt_array_push_in(&cli->arena, argv, (const char *)cli->args.rest[i]);
  if (command) {
    vt_array_push_in(&cli->arena, argv, "--");
    vt_array_push_in(&cli->arena, argv, command);
  }
}

// Replaces every "node:path" of the one node by "user@ip:path".
static void scp_words(vt_cli *cli, words *argv, const char *login) {
  if (vt_cli_flag_on(cli, "recurse")) vt_array_push_in(&cli->arena, argv, "-r");
  for (size_t i = 0; i < cli->args.words.size; i++) {
    const char *colon = strchr(cli->args.words.data[i], ':');
    vt_array_push_in(&cli->arena, argv,
                     colon ? vt_arena_printf(&cli->arena, "%s%s", login, colon)
                           : cli->args.words.data[i]);
  }
}

static vt_status run_workers(vt_cli *cli, bool copy, const json_t *node, const target *t,
                             const char *key, const char *hosts, const json_t *names) {
  const json_t *endpoints = json_object_get(node, "networkEndpoints");
  const char *id = json_string_value(json_object_get(node, "id")),
             *workers = vt_cli_flag_value(cli, "worker");
  VT_ARRAY(pid_t) children = {0};
  int worst = 0;
  for (size_t w = 0; w < json_array_size(endpoints); w++) {
    if (!wants(workers, w)) continue;
    const json_t *endpoint = json_array_get(endpoints, w);
    const char *ip =
        json_string_value(json_object_get(json_object_get(endpoint, "accessConfig"), "externalIp"));
    if (!ip) ip = json_string_value(json_object_get(endpoint, "ipAddress"));
    words argv = {0}, options = {0};
    vt_array_push_in(&cli->arena, &argv, copy ? "scp" : "ssh");
    if (!copy && !vt_cli_flag_value(cli, "command") && isatty(0))
      vt_array_push_in(&cli->arena, &argv, "-t");
    push_options(cli, &options, key, hosts, vt_arena_printf(&cli->arena, "tpu.%s-%zu", id, w));
    if (vt_cli_flag_on(cli, "tunnel-through-iap")) VT_TRY(push_tunnel(cli, &options, names, w));
    const char *login = vt_arena_printf(&cli->arena, "%s@%s", t->user, ip);
    if (t->key_is_new && !vt_cli_flag_on(cli, "dry-run")) wait_until_let_in(cli, &options, login);
    for (size_t i = 0; i < options.size; i++) vt_array_push_in(&cli->arena, &argv, options.data[i]);
    if (copy)
      scp_words(cli, &argv, login);
    else
      ssh_words(cli, &argv, login);
    vt_array_push_in(&cli->arena, &argv, (const char *)NULL);
    if (vt_cli_flag_on(cli, "dry-run")) {
      for (size_t i = 0; argv.data[i]; i++) printf("%s%s", i ? " " : "", argv.data[i]);
      putchar('\n');
      continue;
    }
    pid_t pid = fork();
    if (pid == 0) {
      execvp(argv.data[0], (char *const *)argv.data);
      fprintf(stderr, "%s: %s\n", argv.data[0], strerror(errno));
      _exit(127);
    }
    vt_array_push_in(&cli->arena, &children, pid);
  }
  for (size_t i = 0; i < children.size; i++) {
    int status = 0;
    if (waitpid(children.data[i], &status, 0) > 0 && status != 0)
      worst = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  }
  if (worst)
    return vt_error(VT_UNKNOWN, "[%s] exited with return code [%d].",
                    copy ? "/usr/bin/scp" : "/usr/bin/ssh", worst);
  return VT_OK;
}

// Nobody can log in to a worker without a machine: fails at once, with the reason and what to do.
static vt_status check_machine(vt_cli *cli, const char *name) {
  json_t *use = vt_cli_use(cli, name);
  const json_t *level = json_object_get(use, "guestLevel");
  const char *why = json_string_value(json_object_get(use, "guest"));
  vt_status st = VT_OK;
  if (json_is_integer(level) && json_integer_value(level) == 0)
    st =
        vt_error(VT_FAILED_PRECONDITION,
                 "TPU VMs of this vtpud are %s. Start it with --guests=auto as root on a host that "
                 "can have machines (docs/cloud/operator.md).",
                 why && *why ? why : "rows without a machine behind them");
  json_decref(use);
  return st;
}

vt_status vt_cli_ssh(vt_cli *cli, bool copy) {
  const char *key, *public_key, *hosts, *word = cli->args.words.data[0];
  json_t *node, *names = NULL;
  for (size_t i = 0; copy && i < cli->args.words.size; i++)
    if (strchr(cli->args.words.data[i], ':')) word = cli->args.words.data[i];
  if (copy && !strchr(word, ':'))
    return vt_error(VT_INVALID_ARGUMENT, "one of source and destination is NAME:PATH");
  target t = parse_target(cli, word, copy);
  VT_TRY(check_workers(vt_cli_flag_value(cli, "worker")));
  VT_TRY(vt_cli_node(cli, t.node, &node));
  vt_status st = check_machine(cli, t.node);
  if (!st) st = load_key(cli, &key, &public_key);
  const char *state = json_string_value(json_object_get(node, "state"));
  if (!st && strcmp(state, "READY") != 0 && strcmp(state, "REPAIRING") != 0)
    st = vt_error(VT_FAILED_PRECONDITION, "TPU VM is not READY, it is %s.", state);
  bool profile = false;
  if (!st) st = os_login_on(cli, node, &profile);
  if (!st) st = profile ? import_key(cli, &t, public_key) : publish_key(cli, node, &t, public_key);
  if (!st) st = known_hosts(cli, node, &t, &hosts, &names);
  if (!st) st = run_workers(cli, copy, node, &t, key, hosts, names);
  json_decref(names);
  json_decref(node);
  return st;
}
