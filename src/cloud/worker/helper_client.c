// SPDX-License-Identifier: Apache-2.0
// helper_client.c - see helper_client.h.
#include "cloud/worker/helper_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"

struct vt_helper {
  int fd, stop; // stop: eventfd that ends the thread
  pid_t pid;
  pthread_mutex_t lock; // one request at a time
  pthread_t watchman;
  bool watched;
  atomic_bool lost;
};

// --- start and end -------------------------------------------------------------------------------

enum { MAX_ARGUMENTS = 16 };

static _Noreturn void become_helper(const vt_helper_options *o, const char *launcher, int fd,
                                    char *(*arguments)[MAX_ARGUMENTS]) {
  (void)o;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (dup2(fd, 3) == 3) {
    close_range(4, ~0u, 0);
    execv(launcher, *arguments);
  }
  _exit(127);
}

void vt_helper_tag(const char *state_dir, char out_tag[8]) {
  snprintf(out_tag, 8, "%04llx",
           (unsigned long long)vt_hash_bytes(state_dir, strlen(state_dir), 0) & 0xffff);
}

vt_status vt_helper_program(char out_path[4096]) {
  ssize_t n = readlink("/proc/self/exe", out_path, 4096 - 16);
  if (n <= 0) return vt_error(VT_INTERNAL, "/proc/self/exe: %s", strerror(errno));
  out_path[n] = 0;
  strcpy(strrchr(out_path, '/') + 1, "vtpu-guest");
  if (access(out_path, X_OK) != 0)
    return vt_error(VT_UNIMPLEMENTED, "the launcher %s is not there", out_path);
  return VT_OK;
}

vt_status vt_helper_start(const vt_helper_options *options, vt_helper **out_helper) {
  const vt_cloud_options *o = options->cloud;
  char launcher[4096], *arguments[MAX_ARGUMENTS] = {"vtpu-guest", "host", "3"};
  vt_arena arena = {0};
  int ends[2], count = 3;
  char tag[8];
  vt_helper_tag(o->state_dir, tag);
  *out_helper = NULL;
  VT_TRY(vt_helper_program(launcher));
  vt_helper *helper = calloc(1, sizeof *helper);
  if (!helper) return vt_error_no_memory();
#define ADD(...) arguments[count++] = vt_arena_printf(&arena, __VA_ARGS__)
  ADD("state=%s", o->state_dir);
  ADD("tag=%s", tag);
  ADD("library=%s", o->library_path);
  ADD("python=%s", o->python_path);
  ADD("limits=%s", o->guest_limits);
  ADD("memory_mib=%lld", (long long)o->guest_memory_mib);
  ADD("cpus=%d", o->guest_cpus);
  ADD("throw_away=%d", options->throw_away);
  for (size_t i = 0; i < VT_HELPER_DOORS; i++)
    if (options->doors[i].address)
      ADD("door=%s:%d", options->doors[i].address, (int)options->doors[i].port);
#undef ADD
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
    helper->pid = fork();
    if (helper->pid == 0) become_helper(options, launcher, ends[1], &arguments);
    close(ends[1]);
    helper->fd = ends[0];
  }
  vt_arena_free(&arena);
  if (helper->pid <= 0) {
    free(helper);
    return vt_error(VT_UNAVAILABLE, "no helper: %s", strerror(errno));
  }
  helper->stop = eventfd(0, EFD_CLOEXEC);
  pthread_mutex_init(&helper->lock, NULL);
  *out_helper = helper;
  return VT_OK;
}

static void lose(vt_helper *helper) {
  if (atomic_exchange(&helper->lost, true)) return;
  vt_log(VT_LOG_ERROR, "the helper, which has the host's privileges, is gone: vtpud ends");
  kill(getpid(), SIGTERM);
}

static void *watch(void *argument) {
  vt_helper *helper = argument;
  struct pollfd fds[2] = {{.fd = helper->fd, .events = POLLRDHUP},
                          {.fd = helper->stop, .events = POLLIN}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if (!fds[1].revents) lose(helper);
  return NULL;
}

vt_status vt_helper_watch(vt_helper *helper) {
  helper->watched = pthread_create(&helper->watchman, NULL, watch, helper) == 0;
  return helper->watched ? VT_OK : vt_error(VT_INTERNAL, "no thread to watch the helper");
}

bool vt_helper_lost(const vt_helper *helper) {
  return helper && atomic_load(&helper->lost);
}

void vt_helper_end(vt_helper *helper) {
  static vt_helper_reply reply;
  uint64_t one = 1;
  if (!helper) return;
  if (helper->watched && write(helper->stop, &one, sizeof one) == sizeof one)
    pthread_join(helper->watchman, NULL);
  atomic_store(&helper->lost, true); // an orderly end
  vt_status_free(vt_helper_ask(helper, VT_HELPER_CLOSE, 0, 0, &reply));
  close(helper->fd);
  close(helper->stop);
  while (waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  pthread_mutex_destroy(&helper->lock);
  free(helper);
}

// --- asking --------------------------------------------------------------------------------------

static ssize_t receive(int from, vt_helper_reply *out_reply, int *out_fd) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec bytes = {out_reply, sizeof *out_reply};
  struct msghdr message = {.msg_iov = &bytes,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
  ssize_t n;
  while ((n = recvmsg(from, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
    memcpy(out_fd, CMSG_DATA(head), sizeof(int));
  return n;
}

vt_status vt_helper_call(vt_helper *helper, const vt_helper_request *request,
                         vt_helper_reply *out_reply, int *out_fd) {
  size_t size = vt_helper_request_size(request->op), head = offsetof(vt_helper_reply, ids);
  int passed = -1;
  ssize_t n = -1;
  if (!helper) return vt_error(VT_FAILED_PRECONDITION, "this cloud has no helper");
  pthread_mutex_lock(&helper->lock);
  if (send(helper->fd, request, size, MSG_NOSIGNAL) == (ssize_t)size)
    n = receive(helper->fd, out_reply, &passed);
  pthread_mutex_unlock(&helper->lock);
  bool whole = n >= (ssize_t)head && out_reply->count <= VT_HELPER_IDS &&
               (size_t)n == head + out_reply->count * sizeof *out_reply->ids;
  if (out_fd) *out_fd = passed;
  if (passed >= 0 && (!out_fd || !whole || out_reply->code)) {
    close(passed);
    if (out_fd) *out_fd = -1;
  }
  if (!whole) {
    lose(helper);
    return vt_error(VT_UNAVAILABLE, "the helper is gone");
  }
  out_reply->text[sizeof out_reply->text - 1] = 0;
  if (!out_reply->code) return VT_OK;
  return vt_error((vt_code)out_reply->code, "%s", out_reply->text);
}

vt_status vt_helper_ask(vt_helper *helper, vt_helper_op op, int64_t uid, int64_t index,
                        vt_helper_reply *out_reply) {
  vt_helper_request request;
  memset(&request, 0, offsetof(vt_helper_request, worker));
  request.op = op;
  request.uid = uid;
  request.index = (uint32_t)index;
  return vt_helper_call(helper, &request, out_reply, NULL);
}

// --- ports ---------------------------------------------------------------------------------------

static vt_status ask_for_door(vt_helper *helper, const struct sockaddr_in *at, int *out_fd) {
  vt_helper_request request;
  vt_helper_reply *reply = malloc(sizeof *reply);
  if (!reply) return vt_error_no_memory();
  memset(&request, 0, offsetof(vt_helper_request, worker));
  request.op = VT_HELPER_LISTEN;
  request.ip = ntohl(at->sin_addr.s_addr);
  request.port = ntohs(at->sin_port);
  vt_status st = vt_helper_call(helper, &request, reply, out_fd);
  if (!st && *out_fd < 0) st = vt_error(VT_UNAVAILABLE, "the helper gave no socket");
  free(reply);
  return st;
}

vt_status vt_listen(vt_cloud *cloud, const char *address, uint16_t port, int *out_fd) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  int on = 1;
  *out_fd = -1;
  if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
    return vt_error(VT_INVALID_ARGUMENT, "'%s' is not an IPv4 address", address);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 4096) == 0) {
    *out_fd = fd;
    return VT_OK;
  }
  error = errno;
  if (fd >= 0) close(fd);
  vt_status st = error == EACCES && cloud->helper ? ask_for_door(cloud->helper, &at, out_fd)
                                                  : vt_error(VT_UNAVAILABLE, "%s", strerror(error));
  return vt_status_wrap(st, "can not listen on %s port %d", address, (int)port);
}
