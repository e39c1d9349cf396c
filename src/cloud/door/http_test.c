// SPDX-License-Identifier: Apache-2.0
// http_test.c - a metadata server under more connections than it has slots: which are closed, who
// is still answered, and that long polls cost nothing once their clients are gone. All over
// loopback; workers are source addresses of 127.0.0.0/8.
#include "cloud/door/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "cloud/cloud_testing.h"
#include "cloud/door/metadata.h"
#include "cloud/door/room.h"

#define GET(path)                                                                                  \
  "GET /computeMetadata/v1/" path " HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n"
#define COLOUR "instance/attributes/colour"
// Above the descriptors that select(2) handles, and above the slots of one worker.
enum { MANY = 1200, OF_WORKER = 64, HANG_MS = 120000 };

typedef struct server {
  vt_testing t;
  vt_http *http;
} server;

// Two nodes of one worker each, at 127.0.0.2 and 127.0.0.3.
static void open_server(server *s) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max < 16384 ? limit.rlim_max : 16384;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 8192) skip();
  vt_testing_open(&s->t, "");
  s->t.cloud->options.request_timeout_ns = 10 * HANG_MS * (VT_SECOND / 1000);
  vt_http_options options = {
      .address = "127.0.0.1", .run = vt_metadata_run, .max_of_one = OF_WORKER};
  for (int i = 0; i < 2; i++) {
    char id[2] = {(char)('a' + i), 0}, ip[16];
    vt_testing_create(&s->t, id, "v4-8");
    snprintf(ip, sizeof ip, "127.0.0.%d", 2 + i);
    assert_null(vt_store_run(s->t.cloud->store, NULL,
                             "UPDATE workers SET ip = ? WHERE node = (SELECT uid FROM nodes "
                             "WHERE id = ?)",
                             "ss", ip, id));
  }
  assert_null(vt_http_start(s->t.cloud, &options, &s->http));
}

static void close_server(server *s) {
  vt_http_stop(s->http);
  vt_testing_close(&s->t);
}

static int dial(const server *s, int worker) {
  struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002u + worker)};
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons(vt_http_port(s->http)),
                           .sin_addr.s_addr = htonl(0x7f000001)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

static int begin(const server *s, int worker, const char *text) {
  int fd = dial(s, worker);
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
  return fd;
}

// Reads an expected reply up to the end of its head; returns its status, 0 when the connection was
// closed instead.
static int status_of(int fd) {
  char head[4096];
  size_t size = 0;
  while (size < sizeof head - 1) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, HANG_MS), 1);
    ssize_t n = recv(fd, head + size, sizeof head - 1 - size, 0);
    if (n <= 0) return 0;
    size += (size_t)n;
    head[size] = 0;
    if (strstr(head, "\r\n\r\n")) break;
  }
  return atoi(head + strlen("HTTP/1.1 "));
}

static int ask(const server *s, int worker, const char *text) {
  int fd = begin(s, worker, text), status = status_of(fd);
  close(fd);
  return status;
}

static void paint(server *s, const char *colour) {
  char body[80];
  snprintf(body, sizeof body, "{\"metadata\":{\"colour\":\"%s\"}}", colour);
  json_decref(vt_testing_call(&s->t, "PATCH",
                              "/v2/projects/" TESTING_PROJECT
                              "/locations/us-central2-b/nodes/a?updateMask=metadata",
                              body, 200));
  vt_testing_reconcile(&s->t);
}

static size_t count_descriptors(void) {
  size_t count = 0;
  for (int fd = 0; fd < 16384; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

// Waits until the server has also closed the connections whose clients are gone.
static void wait_for_descriptors(size_t count) {
  for (int i = 0; i < HANG_MS / 20; i++, usleep(20000))
    if (count_descriptors() <= count) return;
  fail_msg("%zu descriptors, not %zu", count_descriptors(), count);
}

static void keeps_answering(const char *text) {
  server s;
  int fds[MANY], closed = 0;
  open_server(&s);
  paint(&s, "red");
  assert_int_equal(ask(&s, 0, GET("instance/id")), 200);
  size_t before = count_descriptors();
  for (int i = 0; i < MANY; i++) fds[i] = begin(&s, 0, text);
  assert_int_equal(ask(&s, 1, GET("instance/id")), 200); // another worker
  // As many remain as there are slots.
  for (int n = 0; n < HANG_MS / 20 && closed < MANY - OF_WORKER; n++, usleep(20000))
    for (int i = closed = 0; i < MANY; i++) {
      struct pollfd wait = {.fd = fds[i], .events = POLLIN};
      closed += poll(&wait, 1, 0) == 1;
    }
  assert_int_equal(ask(&s, 0, GET("instance/id")), 200); // and this one's agent
  for (int i = 0; i < MANY; i++) close(fds[i]);
  wait_for_descriptors(before);
  assert_in_range(closed, MANY - OF_WORKER, MANY - 1);
  close_server(&s);
}

static void long_polls(void **state) {
  (void)state;
  keeps_answering(GET(COLOUR "?wait_for_change=true"));
}

static void unfinished_requests(void **state) {
  (void)state;
  keeps_answering("GET /computeMetadata/v1/instance/id HTTP/1.1\r\nHost: a\r\n");
}

static void silent_connections(void **state) {
  (void)state;
  keeps_answering("");
}

// A waiting client's hang-up is noticed without a change and long before its timeout.
static void leaving_a_long_poll(void **state) {
  server s;
  int fds[OF_WORKER];
  (void)state;
  open_server(&s);
  paint(&s, "red");
  assert_int_equal(ask(&s, 0, GET("instance/id")), 200);
  size_t before = count_descriptors();
  for (int i = 0; i < OF_WORKER; i++) {
    fds[i] = begin(&s, 0, GET(COLOUR "?wait_for_change=true"));
    struct pollfd wait = {.fd = fds[i], .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 0);
  }
  for (int i = 0; i < OF_WORKER; i++) close(fds[i]);
  wait_for_descriptors(before);
  close_server(&s);
}

static void a_change_wakes(void **state) {
  static const struct {
    const char *request;
    bool at_once;
  } rows[] = {{GET(COLOUR "?wait_for_change=true"), false},
              {GET(COLOUR "?wait_for_change=true&timeout_sec=0"), true},
              {GET(COLOUR "?wait_for_change=true&last_etag=other"), true},
              {GET(COLOUR "?wait_for_change=true&last_etag=0"), false},
              {GET("instance/attributes/?recursive=true&wait_for_change=true"), false}};
  server s;
  (void)state;
  open_server(&s);
  paint(&s, "red");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int fd = begin(&s, 0, rows[i].request);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    // Later requests are answered; this one is not, even by changes of something else.
    for (int n = 0; n < 3; n++) {
      pthread_mutex_lock(&s.t.cloud->lock);
      vt_cloud_poke(s.t.cloud);
      pthread_mutex_unlock(&s.t.cloud->lock);
      assert_int_equal(ask(&s, 1, GET("instance/id")), 200);
    }
    if (!rows[i].at_once) assert_int_equal(poll(&wait, 1, 0), 0);
    // Another thread may have it: a change that it missed is not one that it waits for.
    for (int n = 0; !rows[i].at_once && n < HANG_MS / 100 && poll(&wait, 1, 100) == 0; n++)
      paint(&s, n % 2 ? "red" : "green");
    assert_int_equal(status_of(fd), 200);
    close(fd);
  }
  // At its timeout a call returns the current value.
  assert_int_equal(ask(&s, 0, GET(COLOUR "?wait_for_change=true&timeout_sec=1")), 200);
  close_server(&s);
}

// Stopping the server ends all waiting calls.
static void stops_with_long_polls(void **state) {
  server s;
  int fds[OF_WORKER];
  (void)state;
  open_server(&s);
  paint(&s, "red");
  for (int i = 0; i < OF_WORKER; i++) fds[i] = begin(&s, 0, GET(COLOUR "?wait_for_change=true"));
  assert_int_equal(ask(&s, 1, GET("instance/id")), 200);
  vt_http_stop(s.http);
  for (int i = 0; i < OF_WORKER; i++) {
    int status = status_of(fds[i]);
    assert_true(status == 200 || status == 0);
    close(fds[i]);
  }
  vt_testing_close(&s.t);
}

// Malformed requests, some of which are handled while the server stops.
static void stops_with_nonsense(void **state) {
  (void)state;
  for (int round = 0; round < 30; round++) {
    server s;
    int fds[OF_WORKER / 2];
    open_server(&s);
    for (int i = 0; i < OF_WORKER / 2; i++) fds[i] = begin(&s, i % 2, "GET / HTTP/9.9\r\n\r\n");
    if (round % 3) usleep((useconds_t)round * 50);
    close_server(&s);
    for (int i = 0; i < OF_WORKER / 2; i++) close(fds[i]);
  }
}

// Without free descriptors connections are refused, not left hanging, and the next one is served.
static void no_descriptors(void **state) {
  server s;
  struct rlimit limit, low;
  int clients[8], fill[64], filled = 0;
  (void)state;
  open_server(&s);
  size_t before = count_descriptors();
  assert_int_equal(ask(&s, 0, GET("instance/id")), 200);
  wait_for_descriptors(before + 1); // the server keeps a spare one
  for (int i = 0; i < 8; i++) clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  low = limit;
  low.rlim_cur = (rlim_t)clients[7] + 1;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  while (filled < 64 && (fill[filled] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) filled++;
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons(vt_http_port(s.http)),
                           .sin_addr.s_addr = htonl(0x7f000001)};
  for (int i = 0; i < 8; i++) {
    assert_int_equal(connect(clients[i], (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(status_of(clients[i]), 0);
  }
  while (filled) close(fill[--filled]);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int i = 0; i < 8; i++) close(clients[i]);
  assert_int_equal(ask(&s, 0, GET("instance/id")), 200);
  close_server(&s);
}

enum { LARGE = 16 << 20, AT_ONCE = 4 }; // limit of pending replies per address
static void reply_large(vt_call *call) {
  char *bytes = calloc(1, LARGE);
  assert_non_null(bytes);
  call->status = 200;
  if (strcmp(call->path, "/large") == 0) vt_text_put_n(&call->raw, bytes, LARGE);
  vt_text_put(&call->raw, "text");
  free(bytes);
}

static int begin_unread(const server *s, int worker) {
  static const char text[] = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
  int fd = dial(s, worker), little = 4096;
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
  assert_int_equal(send(fd, text, sizeof text - 1, MSG_NOSIGNAL), (ssize_t)sizeof text - 1);
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  assert_int_equal(poll(&wait, 1, HANG_MS), 1);
  return fd;
}

// A client that sends requests and does not read uses this much memory and no more; others do not
// notice.
static void replies_that_nobody_reads(void **state) {
  static const char small[] = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
  server s;
  int fds[AT_ONCE];
  vt_http_options options = {.address = "127.0.0.1", .run = reply_large};
  (void)state;
  vt_testing_open(&s.t, "");
  s.t.cloud->options.request_timeout_ns = 10 * HANG_MS * (VT_SECOND / 1000);
  assert_null(vt_http_start(s.t.cloud, &options, &s.http));
  assert_int_equal(ask(&s, 0, small), 200);
  size_t before = count_descriptors();
  for (int i = 0; i < AT_ONCE; i++) fds[i] = begin_unread(&s, 0);
  assert_int_equal(ask(&s, 0, small), 429);
  assert_int_equal(ask(&s, 1, small), 200);
  for (int i = 0; i < AT_ONCE; i++) close(fds[i]);
  wait_for_descriptors(before);
  assert_int_equal(ask(&s, 0, small), 200);
  close_server(&s);
}

// A request that has arrived and waits for us does not make its client slow.
static void late_for_a_request(void **state) {
  vt_room room;
  int ends[2];
  char byte = 'x';
  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  vt_room_init(&room, 8, 8);
  assert_true(vt_room_enter(&room, ends[0], 1, 1));
  assert_int_equal(write(ends[1], &byte, 1), 1);
  vt_room_sweep(&room, 2);
  assert_false(vt_room_find(&room, ends[0])->ended);
  assert_int_equal(read(ends[0], &byte, 1), 1);
  vt_room_sweep(&room, 2);
  assert_true(vt_room_find(&room, ends[0])->ended);
  vt_room_fini(&room);
  close(ends[0]);
  close(ends[1]);
}

#ifndef NDEBUG
static atomic_long countdown; // of requests for memory until one finds none

static bool refuses(void) {
  return atomic_fetch_sub(&countdown, 1) == 1;
}
#endif

// The n-th request for memory fails, for every n: that call is refused, the next one is answered.
static void no_memory(void **state) {
  (void)state;
#ifdef NDEBUG
  skip();
#else
  static const struct row {
    const char *line, *body;
    int status;
  } rows[] = {{"GET /v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes", "", 200},
              {"POST /vtpu/v1/grants", "{\"days\":0}", 400}};
  server s;
  vt_http_options options = {.address = "127.0.0.1"};
  vt_testing_open(&s.t, "");
  vt_memory_refuses = refuses; // while there is one thread
  assert_null(vt_http_start(s.t.cloud, &options, &s.http));
  s.t.cloud->options.requests_per_minute = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[512];
    long left = 0;
    snprintf(text, sizeof text,
             "%s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s",
             rows[i].line, s.t.token, strlen(rows[i].body), rows[i].body);
    assert_int_equal(ask(&s, 0, text), rows[i].status);
    for (long n = 1; left <= 0; n++) {
      atomic_store(&countdown, n);
      int status = ask(&s, 0, text);
      left = atomic_exchange(&countdown, 0);
      if (status != rows[i].status && (status != 429 || left > 0))
        fail_msg("%s: %d without the %ld-th memory", rows[i].line, status, n);
    }
    assert_int_equal(ask(&s, 0, text), rows[i].status);
  }
  close_server(&s);
  vt_memory_refuses = NULL;
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(long_polls),
                                     cmocka_unit_test(unfinished_requests),
                                     cmocka_unit_test(silent_connections),
                                     cmocka_unit_test(leaving_a_long_poll),
                                     cmocka_unit_test(a_change_wakes),
                                     cmocka_unit_test(stops_with_long_polls),
                                     cmocka_unit_test(stops_with_nonsense),
                                     cmocka_unit_test(no_descriptors),
                                     cmocka_unit_test(replies_that_nobody_reads),
                                     cmocka_unit_test(late_for_a_request),
                                     cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
