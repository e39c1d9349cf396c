// SPDX-License-Identifier: Apache-2.0
// runner.c - see runner.h. A message is "=NAME=VALUE", "!" (go) or "#NUMBER" (a signal).
#include "cloud/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE = 16384 };

// Allows only variables of clients, none that a loader or a shell acts on.
static void set_variable(char *text) {
  static const char *const prefixes[] = {"VTPU_", "GOOGLE_", "CLOUDSDK_", "TPU_"};
  char *equals = strchr(text, '=');
  if (!equals) return;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0) {
      *equals = 0;
      setenv(text, equals + 1, 1);
      return;
    }
}

static pid_t spawn(char **command, mode_t mask) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  umask(mask);
  close_range(3, ~0u, 0);
  execvp(*command, command);
  fprintf(stderr, "vtpud: %s: %s\n", *command, strerror(errno));
  _exit(127);
}

// False at the end of the input.
static bool serve(int fd, char **command, mode_t mask, pid_t *child) {
  static char text[MESSAGE + 1];
  ssize_t n = recv(fd, text, MESSAGE, 0);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  text[n] = 0;
  if (*text == '=') set_variable(text + 1);
  if (*text == '!' && *child == 0) *child = spawn(command, mask);
  if (*text == '#' && *child > 0) kill(*child, atoi(text + 1));
  return true;
}

static _Noreturn void run(int fd, char **command, mode_t mask) {
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, NULL);
  struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = signalfd(-1, &ended, SFD_CLOEXEC), .events = POLLIN}};
  pid_t child = 0;
  for (;;) {
    struct signalfd_siginfo info;
    int status;
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents && !serve(fd, command, mask, &child)) fds[0].fd = -1;
    if (fds[0].fd < 0 && child <= 0) _exit(0); // it was never started
    if (fds[1].revents && read(fds[1].fd, &info, sizeof info) > 0 && child > 0 &&
        waitpid(child, &status, WNOHANG) == child)
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
}

vt_status vt_runner_start(char **command, mode_t mask, vt_runner *out) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return vt_error(VT_UNAVAILABLE, "no socket: %s", strerror(errno));
  *out = (vt_runner){.pid = fork(), .fd = ends[0]};
  if (out->pid == 0) {
    close(ends[0]);
    run(ends[1], command, mask);
  }
  close(ends[1]);
  return out->pid > 0 ? VT_OK : vt_error(VT_UNAVAILABLE, "fork: %s", strerror(errno));
}

static void tell(const vt_runner *runner, const char *text, size_t size) {
  ssize_t sent = send(runner->fd, text, size, MSG_NOSIGNAL);
  (void)sent; // an exited child is found by its exit code
}

void vt_runner_variable(const vt_runner *runner, const char *name, const char *value) {
  char text[MESSAGE];
  int n = snprintf(text, sizeof text, "=%s=%s", name, value);
  if (n > 0 && n < MESSAGE) tell(runner, text, (size_t)n);
}

void vt_runner_go(const vt_runner *runner) {
  tell(runner, "!", 1);
}

void vt_runner_signal(const vt_runner *runner, int number) {
  char text[16];
  tell(runner, text, (size_t)snprintf(text, sizeof text, "#%d", number));
}
