// SPDX-License-Identifier: Apache-2.0
// terminal.c - :terminal, a login shell of a worker over a WebSocket: binary messages carry bytes
// of the terminal, a text message {"columns": n, "rows": n} its size. OpenSSH's client runs on a
// pseudo-terminal of the daemon's host and logs in to the worker normally, with a key that the
// worker accepts while the terminal is open. Whoever may change a node's keys may open one; with OS
// Login, whoever that allows, under that name. It ends with the session or token that opened it, or
// with its opener's role.
#include "cloud/door/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/login_name.h"
#include "cloud/api/metrics.h"
#include "cloud/door/metadata.h"
#include "cloud/door/relay.h"
#include "cloud/door/stream.h"
#include "cloud/state/os_login.h"
#include "cloud/state/service_account.h"
#include "cloud/worker/network.h"

#define PROTOCOL "terminal.vtpu"
#define SSH      "/usr/bin/ssh"
#define ALLOWED  "tpu.nodes.update" // as the row of routes.def has it
enum {
  MAX_MESSAGE = 64 << 10,
  MAX_PENDING = 128 << 10,
  READY_MS = 20000,
  STEP_MS = 50,
  CHECK_MS = 1000
};
enum { MAX_SIDE = 1000 }; // columns, rows

typedef struct terminal {
  struct terminal *next;
  vt_cloud *cloud;
  int64_t uid, worker;
  vt_terminal_user user;
  bool own_address; // as vt_relay_listens
  char credential[128], caller[256], project[64];
  char name[40], ip[64], host_key[1024], key[256], known[700];
  vt_text in; // bytes for the shell, from in_at on
  size_t in_at;
} terminal;

const vt_terminal_user *vt_terminal_users(const vt_cloud *cloud, int64_t uid, const void **at) {
  const terminal *t = *at ? ((const terminal *)*at)->next : cloud->terminals;
  while (t && t->uid != uid) t = t->next;
  *at = t;
  return t ? &t->user : NULL;
}

// --- who -----------------------------------------------------------------------------------------

// ada.lovelace@example.org becomes ada_lovelace, as gcloud derives it from a machine's user. A
// system name gets a letter in front.
static void name_of(const char *email, char out_name[40]) {
  size_t n = 0;
  char name[31];
  for (const char *p = email; *p && *p != '@' && n < 30; p++)
    name[n++] = isalnum((unsigned char)*p) || *p == '-' ? (char)tolower((unsigned char)*p) : '_';
  name[n] = 0;
  bool good = vt_login_name_valid(name, n);
  snprintf(out_name, 40, "%s%s", good ? "" : "u_", name);
}

static vt_status choose_user(vt_call *call, const vt_node *node, terminal *t) {
  const char *user = vt_call_query(call, "user");
  bool os_login;
  VT_TRY(vt_metadata_os_login(call->cloud, node, &os_login));
  if (os_login) {
    bool in;
    VT_TRY(vt_account_has(call, "compute.instances.osAdminLogin", &t->user.admin));
    VT_TRY(vt_account_has(call, "compute.instances.osLogin", &in));
    if (!in && !t->user.admin)
      return vt_call_denied(call, "compute.instances.osLogin", vt_node_name(&call->arena, node));
    VT_TRY(vt_os_login_user(call->cloud, &call->arena, call->caller, &user));
  } else {
    t->user.admin = true;
    if (user && !vt_login_name_valid(user, strlen(user)))
      return vt_error(VT_INVALID_ARGUMENT, "'%s' is no name of an account.", user);
    if (!user) name_of(call->caller, t->name);
  }
  if (user) snprintf(t->name, sizeof t->name, "%s", user);
  t->user.user = t->name;
  return VT_OK;
}

static vt_status find_host_key(vt_call *call, terminal *t) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT value FROM guest_attributes WHERE node = ? AND worker = ? AND "
                        "namespace = 'hostkeys' AND key = 'ssh-ed25519'",
                        "ii", t->uid, t->worker));
  if (vt_rows_next(rows)) snprintf(t->host_key, sizeof t->host_key, "%s", vt_rows_text(rows, 0));
  t->host_key[strspn(t->host_key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "+/=")] = 0;
  VT_TRY(vt_rows_end(rows));
  if (*t->host_key) return VT_OK;
  return vt_error(VT_FAILED_PRECONDITION, "Worker %lld has not said its host key yet.",
                  (long long)t->worker);
}

// --- the shell -----------------------------------------------------------------------------------

// The daemon's key, created once; its public half goes into t->key.
static bool load_key(terminal *t, char out_path[600]) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  char public[700];
  snprintf(out_path, 600, "%s/terminal_key", t->cloud->options.state_dir);
  snprintf(public, sizeof public, "%s.pub", out_path);
  pthread_mutex_lock(&once);
  if (access(public, R_OK) != 0) {
    unlink(out_path);
    (void)vt_net_run((const char *const[]){"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C",
                                           "vtpud", "-f", out_path, NULL});
  }
  pthread_mutex_unlock(&once);
  FILE *file = fopen(public, "re");
  bool good = file && fgets(t->key, sizeof t->key, file);
  if (file) fclose(file);
  t->key[strcspn(t->key, "\n")] = 0;
  t->user.key = t->key;
  return good;
}

static bool write_known_host(terminal *t) {
  snprintf(t->known, sizeof t->known, "%s/terminal-XXXXXX", t->cloud->options.state_dir);
  int fd = mkostemp(t->known, O_CLOEXEC);
  if (fd < 0) {
    *t->known = 0;
    return false;
  }
  return dprintf(fd, "worker ssh-ed25519 %s\n", t->host_key) > 0 && close(fd) == 0;
}

static bool stopping(const vt_stream *s) {
  struct pollfd fds[2] = {{.fd = s->stop, .events = POLLIN}, {.fd = s->fd, .events = POLLRDHUP}};
  return poll(fds, 2, 0) != 0;
}

// Waits until the worker's agent has created the account and accepts the key.
static bool let_in(terminal *t, const vt_stream *s) {
  struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
  vt_cloud *cloud = t->cloud;
  pthread_mutex_lock(&cloud->lock);
  t->next = cloud->terminals;
  cloud->terminals = t;
  vt_cloud_poke(cloud);
  bool synced = false;
  for (int i = 0; i < READY_MS / STEP_MS && !synced && !stopping(s); i++) {
    vt_arena arena = {0};
    vt_node node = {0};
    bool found = false;
    vt_status st = vt_node_load_uid(cloud, &arena, t->uid, &node, &found);
    if (!st && found) st = vt_metadata_synced(cloud, &node, &synced);
    vt_status_free(st);
    vt_node_fini(&node);
    vt_arena_free(&arena);
    pthread_mutex_unlock(&cloud->lock);
    if (!synced) nanosleep(&step, NULL);
    pthread_mutex_lock(&cloud->lock);
  }
  pthread_mutex_unlock(&cloud->lock);
  return synced;
}

static void let_go(terminal *t) {
  pthread_mutex_lock(&t->cloud->lock);
  for (terminal **at = &t->cloud->terminals; *at; at = &(*at)->next)
    if (*at == t) {
      *at = t->next;
      vt_cloud_poke(t->cloud);
      break;
    }
  pthread_mutex_unlock(&t->cloud->lock);
}

// Starts ssh on its own terminal; returns the other end, -1 without one.
static int start_shell(const terminal *t, const char *key, pid_t *out_pid) {
  char login[128], identity[640], known[740];
  const char *const argv[] = {"ssh", "-tt",
                              "-F",  "/dev/null",
                              "-e",  "none",
                              "-o",  identity,
                              "-o",  known,
                              "-o",  "HostKeyAlias=worker",
                              "-o",  "StrictHostKeyChecking=yes",
                              "-o",  "IdentitiesOnly=yes",
                              "-o",  "BatchMode=yes",
                              "-o",  "ClearAllForwardings=yes",
                              "-o",  "ConnectTimeout=10",
                              "-o",  "LogLevel=ERROR",
                              "-o",  "SendEnv=LANG",
                              login, NULL};
  const char *const environment[] = {"TERM=xterm-256color", "LANG=C.UTF-8", "PATH=/usr/bin:/bin",
                                     "HOME=/nonexistent", NULL};
  struct winsize size = {.ws_col = 80, .ws_row = 24};
  int master, slave;
  snprintf(login, sizeof login, "%s@%s", t->name, t->ip);
  snprintf(identity, sizeof identity, "IdentityFile=%s", key);
  snprintf(known, sizeof known, "UserKnownHostsFile=%s", t->known);
  if (openpty(&master, &slave, NULL, NULL, &size) != 0) return -1;
  fcntl(master, F_SETFD, FD_CLOEXEC);
  fcntl(slave, F_SETFD, FD_CLOEXEC);
  fcntl(master, F_SETFL, O_NONBLOCK);
  *out_pid = fork();
  if (*out_pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; fd++) dup2(slave, fd);
    close_range(3, ~0u, 0);
    execve(SSH, (char *const *)argv, (char *const *)environment);
    _exit(127);
  }
  close(slave);
  if (*out_pid > 0) return master;
  close(master);
  return -1;
}

static int end_shell(pid_t pid) {
  struct timespec step = {.tv_nsec = 20000000};
  int status = 0;
  for (int i = 0; i < 100; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    nanosleep(&step, NULL);
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return 255;
}

// --- between the two -----------------------------------------------------------------------------

static void resize(int master, const vt_text *message) {
  json_t *asked = json_loadb(vt_text_string(message), message->size, 0, NULL);
  json_int_t columns = json_integer_value(json_object_get(asked, "columns")),
             rows = json_integer_value(json_object_get(asked, "rows"));
  json_decref(asked);
  if (columns < 1 || rows < 1 || columns > MAX_SIDE || rows > MAX_SIDE) return;
  struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
  ioctl(master, TIOCSWINSZ, &size);
}

static void deliver(terminal *t, int master) {
  while (t->in_at < t->in.size) {
    ssize_t n = write(master, t->in.data + t->in_at, t->in.size - t->in_at);
    if (n <= 0) return;
    t->in_at += (size_t)n;
  }
  t->in.size = t->in_at = 0;
}

// False at the end of the shell.
static bool collect(vt_stream *s, int master) {
  char bytes[8192];
  ssize_t n = read(master, bytes, sizeof bytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) vt_websocket_send(&s->ws, VT_WS_BINARY, bytes, (size_t)n);
  return n > 0;
}

// Whether its opener may still have it; a store error changes nothing.
static bool still_allowed(terminal *t) {
  bool still = true;
  pthread_mutex_lock(&t->cloud->lock);
  vt_status st = vt_account_still(t->cloud, t->credential, t->caller, t->project, ALLOWED, &still);
  if (!st && still)
    st = vt_account_still(t->cloud, t->credential, t->caller, t->project, VT_ACT_AS, &still);
  pthread_mutex_unlock(&t->cloud->lock);
  if (st) still = true;
  vt_status_free(st);
  return still;
}

typedef enum ending { SHELL_ENDED, BROWSER_LEFT, SIGNED_OUT } ending;

static ending pump(terminal *t, vt_stream *s, int master) {
  int64_t checked_ns = vt_metrics_clock();
  s->wake_ms = CHECK_MS;
  for (;;) {
    if (vt_metrics_clock() - checked_ns >= CHECK_MS * (VT_SECOND / 1000)) {
      if (!still_allowed(t)) return SIGNED_OUT;
      checked_ns = vt_metrics_clock();
    }
    size_t kept = t->in.size - t->in_at;
    bool room = vt_websocket_pending(&s->ws) < MAX_PENDING;
    struct pollfd shell = {.fd = room || kept ? master : -1,
                           .events = (short)((room ? POLLIN : 0) | (kept ? POLLOUT : 0))};
    if (!vt_stream_wait(s, kept < MAX_PENDING, &shell, 1)) return BROWSER_LEFT;
    for (vt_ws_opcode event; (event = vt_stream_next(s)) != VT_WS_NONE;) {
      if (event == VT_WS_CLOSE) return BROWSER_LEFT;
      if (event == VT_WS_TEXT)
        resize(master, &s->ws.message);
      else
        vt_text_put_n(&t->in, s->ws.message.data, s->ws.message.size);
    }
    deliver(t, master);
    if (room && shell.revents & ~POLLOUT && !collect(s, master)) return SHELL_ENDED;
  }
}

static void drop(void *context) {
  terminal *t = context;
  if (*t->known) unlink(t->known);
  vt_text_free(&t->in);
  free(t);
}

static void run(void *context, vt_stream *s) {
  terminal *t = context;
  char key[600], reason[64] = "";
  pid_t pid = -1;
  int master = -1;
  s->ws.max_message = MAX_MESSAGE;
  if (!load_key(t, key) || !write_known_host(t)) {
    vt_stream_close(s, VT_WS_INTERNAL, "the daemon could not make its key (is ssh-keygen there?)");
    drop(t);
    return;
  }
  if (!let_in(t, s))
    vt_stream_close(s, VT_WS_INTERNAL, "the TPU VM did not take the key in time");
  else if ((t->own_address && !vt_relay_listens(t->ip, 22)) ||
           (master = start_shell(t, key, &pid)) < 0)
    vt_stream_close(s, VT_WS_INTERNAL, "no ssh on the TPU VM, or none on the daemon's host");
  if (master >= 0) {
    ending how = pump(t, s, master);
    if (how == SIGNED_OUT)
      vt_stream_close(s, VT_WS_NOT_ALLOWED, "signed out, or not allowed here any more");
    close(master); // hangs up
    int status = end_shell(pid);
    snprintf(reason, sizeof reason,
             status == 255 ? "ssh could not connect, or was cut off" : "exit %d", status);
    vt_stream_close(s, how == SHELL_ENDED ? VT_WS_NORMAL : VT_WS_GOING_AWAY, reason);
  }
  let_go(t);
  drop(t);
}

// --- the call ------------------------------------------------------------------------------------

typedef struct opening {
  const vt_call *call;
  const vt_node *node;
  const terminal *terminal;
} opening;

static vt_status write_down(vt_cloud *cloud, void *context) {
  const opening *o = context;
  char detail[80];
  snprintf(detail, sizeof detail, "worker %lld as %s", (long long)o->terminal->worker,
           o->terminal->name);
  return vt_cloud_event(cloud, "terminal", o->call->project, o->call->caller, o->node->id, detail);
}

static vt_status prepare(vt_call *call, const vt_node *node, terminal *t) {
  const char *worker = vt_call_query(call, "worker"), *ip;
  char *tail = "";
  if (call->cloud->options.guest_level == 0)
    return vt_error(VT_FAILED_PRECONDITION,
                    "This cloud has no machines behind its nodes (guests = 0).");
  if (node->state != VT_NODE_READY && node->state != VT_NODE_REPAIRING)
    return vt_error(VT_FAILED_PRECONDITION, "The TPU VM is %s.", vt_node_state_name(node->state));
  t->worker = worker ? strtoll(worker, &tail, 10) : 0;
  if (*tail || t->worker < 0 || t->worker >= node->workers)
    return vt_error(VT_INVALID_ARGUMENT, "%s has workers 0 to %lld.", node->id,
                    (long long)node->workers - 1);
  VT_TRY(vt_node_worker_ip(call->cloud, &call->arena, node->uid, t->worker, &ip));
  t->cloud = call->cloud;
  t->uid = node->uid;
  t->own_address = call->cloud->options.guest_level == 1;
  snprintf(t->ip, sizeof t->ip, "%s", ip);
  snprintf(t->credential, sizeof t->credential, "%s", call->credential);
  snprintf(t->caller, sizeof t->caller, "%s", call->caller);
  snprintf(t->project, sizeof t->project, "%s", call->project);
  VT_TRY(vt_sa_may_act(call, node->body));
  VT_TRY(choose_user(call, node, t));
  VT_TRY(find_host_key(call, t));
  VT_TRY(vt_stream_accept(call, PROTOCOL));
  opening o = {call, node, t};
  return vt_cloud_transact(call->cloud, write_down, &o);
}

vt_status vt_node_terminal(vt_call *call) {
  vt_node node;
  VT_TRY(vt_node_find(call, &node));
  terminal *t = calloc(1, sizeof *t);
  if (t) call->upgrade = (vt_upgrade){NULL, drop, t};
  vt_status st = t ? prepare(call, &node, t) : vt_error_no_memory();
  if (!st) call->upgrade.run = run;
  vt_node_fini(&node);
  return st;
}
