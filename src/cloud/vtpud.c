// SPDX-License-Identifier: Apache-2.0
// vtpud.c - the daemon: start and stop.
//   vtpud --config=/etc/vtpud.conf        serves until SIGTERM
//   vtpud --ephemeral [-- command ...]    a throw-away cloud: free port, temporary folder, one
//   project and account ready.
//                                         Prints `export` lines; with a command, runs it with them
//                                         set and ends with it.
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "cloud/api/metrics.h"
#include "cloud/api/record.h"
#include "cloud/confine.h"
#include "cloud/control/clean.h"
#include "cloud/control/guest.h"
#include "cloud/control/reconcile.h"
#include "cloud/door/authority.h"
#include "cloud/door/door.h"
#include "cloud/door/watchdog.h"
#include "cloud/ephemeral.h"
#include "cloud/open.h"
#include "cloud/runner.h"
#include "cloud/settings.h"
#include "cloud/state/address.h"
#include "cloud/worker/helper_client.h"

// --- running -------------------------------------------------------------------------------------

static mode_t umask_of_caller;

typedef struct parts {
  vt_cloud *cloud;
  vt_watchdog *watchdog;
  vt_reconciler *reconciler;
  vt_door *door, *googleapis;
  vt_authority authority;
  char *token;
  vt_helper *helper; // NULL = this cloud needs no privileges on the host
  vt_recorder *recorder;
  vt_runner runner;
} parts;

// The library next to this program (build tree) or in ../lib (installed); "" when there is none.
static const char *find_library(vt_arena *arena) {
  static const char *const places[] = {"libvtpu.so", "../lib/libvtpu.so", "../pjrt/libvtpu.so"};
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return "";
  self[n] = 0;
  *strrchr(self, '/') = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *path = vt_arena_printf(arena, "%s/%s", self, places[i]);
    if (access(path, R_OK) == 0) return path;
  }
  return "";
}

static vt_status read_options(const vt_settings *s, vt_arena *arena, vt_cloud_options *o) {
  vt_cloud_options_default(o);
  o->state_dir = s->state;
  o->store = s->store;
  o->universe = s->universe;
  o->durable = !s->ephemeral;
  o->virtual_time = s->virtual_time;
  o->notice_ns = s->notice * VT_SECOND;
  o->kind_reap_ns = s->kind_after * VT_SECOND;
  o->requests_per_minute = s->requests_per_minute;
  o->quota_auto_grant = s->quota_auto_grant;
  o->request_timeout_ns = s->request_timeout * VT_SECOND;
  o->library_path = *s->library ? s->library : find_library(arena);
  o->python_path = s->python;
  o->keep_operations = s->keep_operations;
  o->keep_events = s->keep_events;
  o->keep_logs = s->keep_logs;
  o->keep_reports = s->keep_reports;
  o->guest_memory_mib = s->guest_memory;
  o->guest_cpus = (int)s->guest_cpus;
  o->guest_limits = s->guest_limits;
  o->backend = s->backend;
  o->slurm_partition = s->slurm_partition;
  o->slurm_spot_partition = s->slurm_spot_partition;
  o->slurm_account = s->slurm_account;
  o->slurm_options = s->slurm_options;
  o->slurm_folder = s->slurm_folder;
  o->slurm_wait_ns = s->slurm_wait * VT_SECOND;
  return VT_OK;
}

// From here on there are two processes: the helper, which keeps the privileges vtpud was started
// with, and this one, which serves clients without them.
static vt_status divide(parts *out, const vt_settings *s, const vt_cloud_options *o,
                        vt_door_options *door, vt_arena *arena) {
  bool slurm = strcmp(s->backend, "slurm") == 0;
  vt_confine confine;
  vt_helper_options helper = {
      .cloud = o,
      .throw_away = s->temporary,
      .doors = {{s->address, (uint16_t)s->port}, {*s->googleapis ? s->googleapis : NULL, 443}}};
  VT_TRY(vt_confine_choose(s->user, &confine));
  if (slurm && confine.drops) {
    confine.drops = false; // the workers' jobs run as root
    vt_log(VT_LOG_WARNING, "with a Slurm cluster behind it vtpud answers calls as root");
  }
  VT_TRY(vt_confine_state(&confine, s->state));
  VT_TRY(vt_confine_file(&confine, arena, s->certificate, &door->certificate));
  VT_TRY(vt_confine_file(&confine, arena, s->key, &door->key));
  if (*s->record) VT_TRY(vt_recorder_create(s->record, &out->recorder));
  if (s->command && *s->command) VT_TRY(vt_runner_start(s->command, umask_of_caller, &out->runner));
  if (confine.drops || (s->guests != 0 && !slurm)) VT_TRY(vt_helper_start(&helper, &out->helper));
  VT_TRY(vt_confine_enter(&confine, s->state));
  return out->helper ? vt_helper_watch(out->helper) : VT_OK;
}

static vt_status start(parts *out, const vt_settings *s, vt_arena *arena) {
  vt_cloud_options o;
  vt_door_options door = {.address = s->address, .port = (uint16_t)s->port};
  VT_TRY(read_options(s, arena, &o));
  VT_TRY(divide(out, s, &o, &door, arena));
  VT_TRY(vt_cloud_open(&o, &out->cloud));
  out->cloud->helper = out->helper;
  out->cloud->recorder = out->recorder;
  VT_TRY(vt_watchdog_start(out->cloud, s->watchdog, &out->watchdog));
  VT_TRY(vt_guest_create(out->cloud, (int)s->guests, &out->cloud->guests));
  VT_TRY(vt_addresses_hold(out->cloud));
  VT_TRY(out->cloud->guests->sweep(out->cloud->guests));
  if (*s->project)
    VT_TRY(vt_cloud_seed(out->cloud, s->project, s->admin,
                         s->ephemeral   ? VT_TOKEN_ALWAYS
                         : s->new_token ? VT_TOKEN_NEW
                                        : VT_TOKEN_FIRST,
                         &out->token));
  VT_TRY(vt_reconciler_start(out->cloud, &out->reconciler));
  VT_TRY(vt_door_open(out->cloud, &door, &out->door));
  if (!*s->googleapis) return VT_OK;
  VT_TRY(vt_authority_make(s->state, s->universe, s->googleapis, arena, &out->authority));
  door = (vt_door_options){s->googleapis, 443, out->authority.certificate, out->authority.key};
  return vt_door_open(out->cloud, &door, &out->googleapis);
}

// Guests outlive a stopped daemon; those of a throw-away cloud do not. Bounded: each is killed
// after its grace period.
static void end_guests(vt_guest_driver *guests) {
  struct timespec step = {.tv_nsec = 20000000};
  for (int i = 0; i < 500 && !guests->end_all(guests); i++) nanosleep(&step, NULL);
}

// Shuts down in bounded time, even when a part of the daemon hangs.
enum { END_WITHIN_S = 60, COMMAND_ENDS_WITHIN_S = 10 };

static void stop(parts *server, bool ephemeral) {
  vt_watchdog_end_within(server->watchdog, END_WITHIN_S);
  vt_door_close(server->googleapis);
  vt_door_close(server->door);
  vt_reconciler_stop(server->reconciler);
  if (ephemeral && server->cloud && server->cloud->guests) end_guests(server->cloud->guests);
  if (server->cloud && server->cloud->guests) server->cloud->guests->destroy(server->cloud->guests);
  vt_watchdog_forget_cloud(server->watchdog);
  vt_cloud_close(server->cloud);
  vt_helper_end(server->helper);
  vt_watchdog_stop(server->watchdog);
  vt_memory_free(server->token);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place) {
  (void)info, (void)type, (void)place;
  return remove(path);
}

// What a client needs to find this cloud.
static vt_status each_variable(const parts *server, const vt_settings *s, vt_arena *arena,
                               vt_variable_use use) {
  vt_ephemeral e = {.address = s->address,
                    .project = s->project,
                    .account = s->admin,
                    .token = server->token,
                    .googleapis = s->googleapis,
                    .ca = server->authority.ca,
                    .port = vt_door_port(server->door),
                    .secure = *s->certificate != 0};
  pthread_mutex_lock(&server->cloud->lock);
  vt_status st = vt_ephemeral_variables(server->cloud, &e, arena, use);
  pthread_mutex_unlock(&server->cloud->lock);
  return st;
}

static void print_variable(const char *name, const char *value) {
  printf("export %s='%s'\n", name, value);
}
static const vt_runner *the_runner;
static void pass_variable(const char *name, const char *value) {
  vt_runner_variable(the_runner, name, value);
}

// Passes signals on to the command; kills it some time after a SIGTERM that it ignores.
static int wait_for_end(const sigset_t *signals, const vt_runner *runner) {
  const struct timespec second = {.tv_sec = 1};
  int64_t told_ns = 0;
  pid_t child = runner->pid;
  for (;;) {
    int status,
        number = told_ns ? sigtimedwait(signals, NULL, &second) : sigwaitinfo(signals, NULL);
    if (told_ns && vt_metrics_clock() - told_ns > COMMAND_ENDS_WITHIN_S * VT_SECOND)
      vt_runner_signal(runner, SIGKILL);
    // In this mode only the command's result counts.
    if (number == SIGCHLD && child > 0 && waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (number < 0 || number == SIGCHLD) continue;
    if (child <= 0) return 0;
    vt_runner_signal(runner, number);
    if (number == SIGTERM && !told_ns) told_ns = vt_metrics_clock();
  }
}

// Fills the empty store of these settings from a backup.
static vt_status restore(const vt_settings *s, vt_arena *arena) {
  const char *place = s->store;
  if (mkdir(s->state, 0711) != 0 && errno != EEXIST)
    return vt_error(VT_UNAVAILABLE, "%s: %s", s->state, strerror(errno));
  if (!*place) place = vt_arena_printf(arena, "%s/cloud.db", s->state);
  vt_store *store = NULL;
  int lock;
  umask(077);
  VT_TRY(vt_cloud_lock_state(s->state, &lock));
  vt_status st = vt_store_open(place, true, &store);
  if (!st) st = vt_store_restore(store, s->restore);
  vt_store_close(store);
  close(lock);
  if (!st) printf("vtpud: restored %s\n", s->restore);
  return st;
}

static vt_status serve(parts *server, const vt_settings *s, vt_arena *arena,
                       const sigset_t *signals, int *out_code) {
  VT_TRY(start(server, s, arena));
  fprintf(stderr, "vtpud: TPU VMs are %s\n", server->cloud->machines);
  if (s->ephemeral) {
    if (server->runner.pid) {
      the_runner = &server->runner;
      VT_TRY(each_variable(server, s, arena, pass_variable));
      vt_runner_go(&server->runner);
    } else {
      VT_TRY(each_variable(server, s, arena, print_variable));
      printf("export VTPUD_PID=%d\n", (int)getpid());
      fflush(stdout);
    }
  } else {
    printf("vtpud: listening on %s port %d\n", s->address, (int)vt_door_port(server->door));
    if (server->token)
      printf("vtpud: token of %s: %s\nvtpud: it ends in %d days; --new-token makes another\n",
             s->admin, server->token, (int)(VT_FIRST_TOKEN_NS / VT_DAY));
    fflush(stdout);
  }
  *out_code = wait_for_end(signals, &server->runner);
  if (vt_helper_lost(server->helper)) *out_code = 1;
  return VT_OK;
}

// Each connection needs a descriptor, and the usual soft limit is far below what the ports accept.
static void raise_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t want = 65536;
  limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
  vt_arena arena = {0};
  parts server = {0};
  char folder[] = "/tmp/vtpud-XXXXXX", *state = NULL;
  int code = 1;
  vt_settings s;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);
  // Only the daemon may read the state; level 1 also lets users reach their homes.
  umask_of_caller = umask(077);
  signal(SIGXFSZ, SIG_IGN); // exceeding a file size limit is an error of write(2)
  raise_descriptors();
  bool done;
  vt_status st = vt_settings_read(&s, &arena, argc, argv, &done);
  if (st || done) {
    code = st ? 2 : 0;
    goto out;
  }
  if (s.clean) {
    st = vt_clean(s.state);
    code = st != VT_OK;
    goto out;
  }
  if (s.ephemeral && !*s.state) {
    if (!mkdtemp(folder)) {
      st = vt_error(VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
      goto out;
    }
    s.state = folder;
    s.temporary = true;
  }
  if (!s.ephemeral && !*s.state) {
    st = vt_error(VT_INVALID_ARGUMENT, "--state is needed (or --ephemeral)");
    goto out;
  }
  // From here on it has one canonical name.
  (void)mkdir(s.state, 0711);
  state = realpath(s.state, NULL);
  if (!state) {
    st = vt_error(VT_UNAVAILABLE, "cannot make the state folder %s: %s", s.state, strerror(errno));
    goto out;
  }
  s.state = state;
  if (s.ephemeral && !*s.project) s.project = "demo-project";
  if (*s.restore) {
    st = restore(&s, &arena);
    code = st != VT_OK;
    goto out;
  }
  st = serve(&server, &s, &arena, &signals, &code);
out:
  if (st) fprintf(stderr, "vtpud: %s\n", vt_status_message(st));
  vt_status_free(st);
  stop(&server, s.ephemeral);
  if (s.temporary) nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  vt_arena_free(&arena);
  free(state);
  return code;
}
