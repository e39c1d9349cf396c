// SPDX-License-Identifier: Apache-2.0
// slurm.c - see slurm.h. Uses the tools, since Slurm keeps them stable from release to release,
// unlike its libraries.
#include "cloud/control/slurm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TOOL_SECONDS = 30 };

extern char **environ;

// --- tools ---------------------------------------------------------------------------------------

// Standard input is an in-memory file; output and errors come back through one pipe.
static vt_status spawn(const char *const *argv, const char *input, int output, pid_t *out_pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, usual;
  int text = memfd_create("input", MFD_CLOEXEC);
  if (text < 0 || write(text, input, strlen(input)) != (ssize_t)strlen(input)) {
    if (text >= 0) close(text);
    return vt_error(VT_RESOURCE_EXHAUSTED, "%s: no memory for its input", argv[0]);
  }
  lseek(text, 0, SEEK_SET);
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  sigaddset(&usual, SIGXFSZ);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, text, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  int rc = posix_spawnp(out_pid, argv[0], &actions, &attributes, (char *const *)argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(text);
  if (rc) return vt_error(VT_UNIMPLEMENTED, "%s: %s (Debian: slurm-client)", argv[0], strerror(rc));
  return VT_OK;
}

static bool read_all(const atomic_bool *stop, int fd, vt_text *out_text) {
  char buffer[4096];
  for (int i = 0; i < TOOL_SECONDS * 10 && !atomic_load(stop); i++) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 100) > 0) {
      ssize_t n = read(fd, buffer, sizeof buffer);
      if (n <= 0) return true;
      vt_text_put_n(out_text, buffer, (size_t)n);
    }
  }
  return false;
}

vt_status vt_slurm_run(const atomic_bool *stop, const char *const *argv, const char *input,
                       vt_text *out_text) {
  int output[2], status = 0;
  pid_t pid;
  if (pipe2(output, O_CLOEXEC) != 0)
    return vt_error(VT_RESOURCE_EXHAUSTED, "pipe: %s", strerror(errno));
  vt_status st = spawn(argv, input, output[1], &pid);
  close(output[1]);
  if (st) {
    close(output[0]);
    return st;
  }
  bool done = read_all(stop, output[0], out_text);
  close(output[0]);
  if (!done) kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!done) return vt_error(VT_UNAVAILABLE, "%s does not answer", argv[0]);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return VT_OK;
  const char *said = vt_text_string(out_text);
  return vt_error(VT_UNAVAILABLE, "%s: %.*s", argv[0], (int)strcspn(said, "\n"), said);
}

// --- jobs ----------------------------------------------------------------------------------------

void vt_slurm_job_name(const char *tag, int64_t uid, int64_t worker, bool clean, char out[96]) {
  snprintf(out, 96, "vtpu-%s-%lld-%lld%s", tag, (long long)uid, (long long)worker,
           clean ? "-clean" : "");
}

static vt_slurm_state state_of(const char *name) {
  static const struct {
    const char *name;
    vt_slurm_state state;
  } states[] = {{"PENDING", VT_SLURM_WAITING},   {"CONFIGURING", VT_SLURM_WAITING},
                {"REQUEUED", VT_SLURM_WAITING},  {"REQUEUE_HOLD", VT_SLURM_WAITING},
                {"RUNNING", VT_SLURM_RUNNING},   {"SUSPENDED", VT_SLURM_RUNNING},
                {"SIGNALING", VT_SLURM_RUNNING}, {"STOPPED", VT_SLURM_RUNNING},
                {"RESIZING", VT_SLURM_RUNNING},  {"STAGE_OUT", VT_SLURM_LEAVING},
                {"NODE_FAIL", VT_SLURM_LOST},    {"BOOT_FAIL", VT_SLURM_LOST},
                {"FAILED", VT_SLURM_FAILED},     {"COMPLETING", VT_SLURM_LEAVING},
                {"PREEMPTED", VT_SLURM_TAKEN}};
  for (size_t i = 0; i < sizeof states / sizeof *states; i++)
    if (strcmp(states[i].name, name) == 0) return states[i].state;
  return VT_SLURM_ENDED; // COMPLETED, CANCELLED, TIMEOUT, DEADLINE, OUT_OF_MEMORY, REVOKED
}

// The next field of a line, up to '|' or its end; advances *at past it.
static void field(const char **at, char *out, size_t size) {
  size_t n = strcspn(*at, "|\n");
  snprintf(out, size, "%.*s", (int)n, *at);
  *at += n + ((*at)[n] == '|');
}

bool vt_slurm_parse_job(const char *line, const char *tag, vt_slurm_job *out_job) {
  char id[32], state[32], name[128], want[32], tail[16] = "";
  long long uid, worker;
  const char *at = line;
  *out_job = (vt_slurm_job){0};
  field(&at, id, sizeof id);
  field(&at, state, sizeof state);
  field(&at, out_job->host, sizeof out_job->host);
  field(&at, out_job->reason, sizeof out_job->reason);
  field(&at, name, sizeof name);
  snprintf(out_job->comment, sizeof out_job->comment, "%.*s", (int)strcspn(at, "\n"), at);
  snprintf(want, sizeof want, "vtpu-%.16s-", tag);
  size_t n = strlen(want);
  if (strncmp(name, want, n) != 0 || sscanf(name + n, "%lld-%lld%15s", &uid, &worker, tail) < 2 ||
      (*tail && strcmp(tail, "-clean") != 0))
    return false;
  out_job->id = strtoll(id, NULL, 10);
  out_job->uid = uid;
  out_job->worker = worker;
  out_job->clean = *tail;
  out_job->state = state_of(state);
  return out_job->id > 0;
}

vt_status vt_slurm_list_jobs(const atomic_bool *stop, const char *tag, vt_slurm_jobs *out_jobs) {
  static const char *const argv[] = {
      "squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%N|%r|%j|%k", NULL};
  vt_text text = {0};
  vt_status st = vt_slurm_run(stop, argv, "", &text);
  for (const char *line = vt_text_string(&text); !st && *line;) {
    vt_slurm_job job;
    if (vt_slurm_parse_job(line, tag, &job)) vt_array_push(out_jobs, job);
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  vt_text_free(&text);
  return st;
}

vt_status vt_slurm_cancel(const atomic_bool *stop, int64_t job) {
  char id[32];
  vt_text text = {0};
  snprintf(id, sizeof id, "%lld", (long long)job);
  vt_status st =
      vt_slurm_run(stop, (const char *const[]){"scancel", "--quiet", id, NULL}, "", &text);
  vt_text_free(&text);
  return st;
}

// --- hosts ---------------------------------------------------------------------------------------

// The address of a host's name in slurm.conf.
static void resolve(const char *name, char out[64]) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
  *out = 0;
  if (getaddrinfo(name, NULL, &hints, &found) != 0 || !found) return;
  inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr, out, 64);
  freeaddrinfo(found);
}

vt_status vt_slurm_list_hosts(const atomic_bool *stop, vt_slurm_hosts *out_hosts) {
  static const char *const argv[] = {"sinfo", "--Node", "--noheader", "--format=%N|%T|%o", NULL};
  vt_text text = {0};
  vt_status st = vt_slurm_run(stop, argv, "", &text);
  for (const char *line = vt_text_string(&text); !st && *line;) {
    vt_slurm_host host = {0};
    char state[64], address[256];
    const char *at = line;
    field(&at, host.name, sizeof host.name);
    field(&at, state, sizeof state);
    field(&at, address, sizeof address);
    // "down*", "mixed*": the star marks a host that does not respond.
    host.up = !strchr(state, '*') &&
              (strncmp(state, "idle", 4) == 0 || strncmp(state, "mix", 3) == 0 ||
               strncmp(state, "alloc", 5) == 0 || strncmp(state, "completing", 10) == 0);
    bool known = false; // a host in two partitions has two lines
    for (size_t i = 0; i < out_hosts->size; i++)
      if (strcmp(out_hosts->data[i].name, host.name) == 0) known = true;
    if (!known) {
      resolve(address, host.address);
      vt_array_push(out_hosts, host);
    }
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  vt_text_free(&text);
  return st;
}
