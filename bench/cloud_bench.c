// SPDX-License-Identifier: Apache-2.0
// cloud_bench.c - vtpud under load on loopback: 10,000 nodes and 100,000 operations in the store,
// time to list 500 nodes (median, p99, user time of the server), and requests per second over
// keep-alive connections.
//   cloud_bench [seconds] [connections]
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cloud/api/call.h"
#include "cloud/control/guest.h"
#include "cloud/door/http.h"
#include "cloud/api/metrics.h"
#include "cloud/state/node.h"
#include "cloud/state/operation.h"
#include "cloud/open.h"

enum { NODES = 10000, OPERATIONS = 100000, PAGE = 500, LISTS = 1000, CHANGES = 5 };

static void must(vt_status st) {
  if (!st) return;
  fprintf(stderr, "cloud_bench: %s\n", vt_status_message(st));
  exit(1);
}

static vt_status fill(vt_cloud *cloud, void *context) {
  vt_arena arena = {0};
  (void)context;
  for (int i = 0; i < NODES; i++) {
    vt_node node;
    VT_TRY(vt_node_prepare(cloud, &arena, "demo-project", "us-central2-b",
                           vt_arena_printf(&arena, "node-%05d", i),
                           json_pack("{s:s, s:s, s:{s:s}}", "acceleratorType", "v4-8",
                                     "runtimeVersion", "v2-alpha", "labels", "team", "bench"),
                           &node));
    node.state = VT_NODE_READY;
    VT_TRY(vt_node_insert(cloud, &node));
    vt_node_fini(&node);
    if (i % 256 == 0) vt_arena_reset(&arena);
  }
  for (int i = 0; i < OPERATIONS; i++) {
    const char *name;
    vt_operation_start start = {"demo-project", "us-central2-b",         "v2", "bench", NULL,
                                "create",       "projects/demo-project", 0};
    VT_TRY(vt_operation_create(cloud, &arena, &start, &name));
    VT_TRY(vt_operation_finish(cloud, name, NULL, NULL));
    if (i % 1024 == 0) vt_arena_reset(&arena);
  }
  vt_arena_free(&arena);
  return VT_OK;
}

typedef struct client {
  pthread_t thread;
  uint16_t port;
  const char *token, *path;
  int64_t until_ns, answered;
} client;

static int dial(uint16_t port) {
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) exit(1);
  return fd;
}

// One request on an open connection; reads the whole response. Returns its body.
static const char *ask(int fd, const char *token, const char *path) {
  static _Thread_local char buffer[4 << 20];
  int n = snprintf(buffer, sizeof buffer,
                   "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path,
                   token);
  if (write(fd, buffer, (size_t)n) != n) exit(1);
  size_t used = 0, want = 0;
  const char *body = NULL;
  for (ssize_t got; (got = read(fd, buffer + used, sizeof buffer - 1 - used)) > 0;) {
    used += (size_t)got;
    buffer[used] = 0;
    if (!body && (body = strstr(buffer, "\r\n\r\n"))) {
      const char *length = strstr(buffer, "Content-Length: ");
      body += 4;
      want = (size_t)(body - buffer) + strtoul(length ? length + 16 : "0", NULL, 10);
    }
    if (body && used >= want) break;
  }
  if (!body || strncmp(buffer, "HTTP/1.1 200", 12) != 0) {
    fprintf(stderr, "cloud_bench: %.200s\n", buffer);
    exit(1);
  }
  return body;
}

static void *run(void *argument) {
  client *c = argument;
  int fd = dial(c->port);
  for (; vt_metrics_clock() < c->until_ns; c->answered++) ask(fd, c->token, c->path);
  close(fd);
  return NULL;
}

static int by_time(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// User time of the process's other threads, which are the server's.
static int64_t server_cpu_ns(void) {
  struct rusage all, own;
  getrusage(RUSAGE_SELF, &all);
  getrusage(RUSAGE_THREAD, &own);
  return ((int64_t)all.ru_utime.tv_sec - own.ru_utime.tv_sec) * VT_SECOND +
         ((int64_t)all.ru_utime.tv_usec - own.ru_utime.tv_usec) * 1000;
}

static vt_status touch(vt_cloud *cloud, void *context) {
  vt_arena arena = {0};
  int first = *(int *)context;
  for (int i = 0; i < CHANGES; i++) {
    char id[32];
    vt_node node;
    bool found;
    snprintf(id, sizeof id, "node-%05d", (first + i * PAGE / CHANGES) % NODES);
    VT_TRY(vt_node_load(cloud, &arena, "demo-project", "us-central2-b", id, &node, &found));
    VT_TRY(vt_node_save(cloud, &node));
    vt_node_fini(&node);
  }
  vt_arena_free(&arena);
  return VT_OK;
}

// Walks the pages of the list, `count` of them; `change` says whether nodes on a page change before
// it is read, as in a busy cloud.
static void time_lists(vt_cloud *cloud, uint16_t port, const char *token, const char *title,
                       int count, bool change) {
  static int64_t times[LISTS];
  char path[512], page[128] = "";
  int fd = dial(port);
  int64_t cpu = 0;
  for (int i = 0; i < count; i++) {
    int first = i * PAGE % NODES;
    if (change) {
      pthread_mutex_lock(&cloud->lock);
      must(vt_cloud_transact(cloud, touch, &first));
      pthread_mutex_unlock(&cloud->lock);
    }
    snprintf(path, sizeof path,
             "/v2/projects/demo-project/locations/us-central2-b/nodes?pageSize=%d&"
             "prettyPrint=false&pageToken=%s",
             PAGE, page);
    int64_t start = vt_metrics_clock(), start_cpu = server_cpu_ns();
    const char *body = ask(fd, token, path), *next = strstr(body, "\"nextPageToken\":\"");
    times[i] = vt_metrics_clock() - start;
    cpu += server_cpu_ns() - start_cpu;
    *page = 0;
    if (next) snprintf(page, sizeof page, "%.*s", (int)strcspn(next + 17, "\""), next + 17);
  }
  close(fd);
  qsort(times, (size_t)count, sizeof *times, by_time);
  printf(
      "list of %d of %d nodes, %s: median %.1f ms, p99 %.1f ms, user time of the server %.2f ms\n",
      PAGE, NODES, title, (double)times[count / 2] / 1e6, (double)times[count * 99 / 100] / 1e6,
      (double)cpu / 1e6 / count);
}

int main(int argc, char **argv) {
  int seconds = argc > 1 ? atoi(argv[1]) : 5, connections = argc > 2 ? atoi(argv[2]) : 16;
  vt_cloud_options options;
  vt_cloud *cloud;
  vt_http *http;
  char *token;
  vt_cloud_options_default(&options);
  must(vt_cloud_open(&options, &cloud));
  must(vt_guest_none_create(&cloud->guests));
  must(vt_cloud_seed(cloud, "demo-project", "admin@vtpu.localhost", VT_TOKEN_ALWAYS, &token));
  must(vt_cloud_transact(cloud, fill, NULL));
  vt_http_options at = {.address = "127.0.0.1"};
  must(vt_http_start(cloud, &at, &http));
  uint16_t list_port = vt_http_port(http);
  time_lists(cloud, list_port, token, "first time", NODES / PAGE, false);
  time_lists(cloud, list_port, token, "nodes changing", LISTS, true);
  client *clients = calloc((size_t)connections, sizeof *clients);
  int64_t total = 0, until = vt_metrics_clock() + seconds * VT_SECOND;
  for (int i = 0; i < connections; i++) {
    clients[i] =
        (client){.port = vt_http_port(http),
                 .token = token,
                 .until_ns = until,
                 .path = "/v2/projects/demo-project/locations/us-central2-b/nodes/node-05000"};
    pthread_create(&clients[i].thread, NULL, run, &clients[i]);
  }
  for (int i = 0; i < connections; i++) {
    pthread_join(clients[i].thread, NULL);
    total += clients[i].answered;
  }
  printf("get of one node, %d connections: %.0f requests/s (clients on the same cores)\n",
         connections, (double)total / seconds);
  vt_http_stop(http);
  free(clients);
  free(token);
  cloud->guests->destroy(cloud->guests);
  vt_cloud_close(cloud);
  return 0;
}
