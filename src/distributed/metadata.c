// SPDX-License-Identifier: Apache-2.0
// metadata.c - see metadata.h.
#include "distributed/metadata.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define SERVER "metadata.google.internal"

enum { LIMIT_MS = 2000 }; // for an answer; the server is on this machine, or its hypervisor

// ---- answers ------------------------------------------------------------------------------------

// Up to the end of a line, without it; *bytes begins after it.
static vt_bytes take_line(vt_bytes *bytes) {
  if (!bytes->size) return *bytes;
  const uint8_t *end = memchr(bytes->data, '\n', bytes->size);
  vt_bytes line = {bytes->data, end ? (size_t)(end - bytes->data) : bytes->size};
  size_t taken = line.size + (end != NULL);
  bytes->data += taken;
  bytes->size -= taken;
  if (line.size && line.data[line.size - 1] == '\r') line.size--;
  return line;
}

static bool begins(vt_bytes bytes, const char *with) {
  size_t size = strlen(with);
  return bytes.size >= size && !strncasecmp((const char *)bytes.data, with, size);
}

bool vt_metadata_body(vt_bytes answer, vt_bytes *out_body) {
  vt_bytes line = take_line(&answer);
  bool google = false;
  if (!begins(line, "HTTP/1.0 200") && !begins(line, "HTTP/1.1 200")) return false;
  while (answer.size) {
    line = take_line(&answer);
    if (!line.size) {
      *out_body = answer;
      return google;
    }
    google = google || begins(line, "Metadata-Flavor: Google");
    if (begins(line, "Transfer-Encoding:")) return false; // nobody asked for pieces
  }
  return false;
}

static vt_bytes trim(vt_bytes bytes, char what) {
  while (bytes.size && (*bytes.data == what || *bytes.data == ' ')) bytes.data++, bytes.size--;
  while (bytes.size && (bytes.data[bytes.size - 1] == what || bytes.data[bytes.size - 1] == ' '))
    bytes.size--;
  return bytes;
}

bool vt_metadata_value(vt_bytes lines, const char *key, vt_bytes *out_value) {
  while (lines.size) {
    vt_bytes line = take_line(&lines);
    const uint8_t *colon = line.size ? memchr(line.data, ':', line.size) : NULL;
    if (!colon) continue;
    vt_bytes name = trim((vt_bytes){line.data, (size_t)(colon - line.data)}, ' ');
    if (name.size != strlen(key) || memcmp(name.data, key, name.size) != 0) continue;
    const uint8_t *end = line.data + line.size;
    *out_value = trim((vt_bytes){colon + 1, (size_t)(end - (colon + 1))}, '\'');
    return true;
  }
  return false;
}

void vt_metadata_addresses(vt_bytes endpoints, vt_text *out) {
  while (endpoints.size) {
    const uint8_t *comma = memchr(endpoints.data, ',', endpoints.size);
    vt_bytes one = {endpoints.data, comma ? (size_t)(comma - endpoints.data) : endpoints.size};
    endpoints.data += one.size + (comma != NULL);
    endpoints.size -= one.size + (comma != NULL);
    for (int i = 0; i < 2; i++) {
      const uint8_t *colon = one.size ? memchr(one.data, ':', one.size) : NULL;
      if (!colon) break;
      one.size -= (size_t)(colon + 1 - one.data);
      one.data = colon + 1;
    }
    one = trim(one, '\n');
    if (out->size) vt_text_put(out, ",");
    if (one.size) vt_text_put_n(out, one.data, one.size);
  }
}

// ---- the server ---------------------------------------------------------------------------------

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool wait_for(int fd, short events, int64_t deadline) {
  int64_t left = deadline - now_ms();
  struct pollfd p = {fd, events, 0};
  return left > 0 && poll(&p, 1, (int)left) > 0;
}

static int open_connection(const char *host, int32_t port, int64_t deadline) {
  char service[16];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  int error = 0;
  socklen_t size = sizeof error;
  snprintf(service, sizeof service, "%d", port);
  if (getaddrinfo(host, service, &hints, &list)) return -1;
  int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) (void)connect(fd, list->ai_addr, list->ai_addrlen);
  freeaddrinfo(list);
  if (fd >= 0 && wait_for(fd, POLLOUT, deadline) &&
      !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool vt_metadata_ask(const char *host, int32_t port, const char *attribute, vt_text *out) {
  char request[512];
  vt_text answer = {0};
  vt_bytes body;
  int64_t deadline = now_ms() + LIMIT_MS;
  int n = snprintf(request, sizeof request,
                   "GET /computeMetadata/v1/instance/attributes/%s HTTP/1.0\r\nHost: " SERVER
                   "\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n",
                   attribute);
  int fd = open_connection(host, port, deadline);
  if (fd < 0) return false;
  bool good = send(fd, request, (size_t)n, MSG_NOSIGNAL) == n;
  while (good && answer.size <= VT_METADATA_MOST) {
    char piece[4096];
    good = wait_for(fd, POLLIN, deadline);
    ssize_t got = good ? recv(fd, piece, sizeof piece, 0) : -1;
    good = got >= 0;
    if (got <= 0) break;
    vt_text_put_n(&answer, piece, (size_t)got);
  }
  close(fd);
  good = good && answer.size <= VT_METADATA_MOST &&
         vt_metadata_body((vt_bytes){(const uint8_t *)answer.data, answer.size}, &body);
  if (good) vt_text_put_n(out, body.data, body.size);
  vt_text_free(&answer);
  return good;
}

// Whether /etc/hosts has the server: TPU VMs do, and no name server has to be asked.
static bool is_known(void) {
  char line[512];
  bool found = false;
  FILE *file = fopen("/etc/hosts", "re");
  while (file && !found && fgets(line, sizeof line, file))
    found = *line != '#' && strstr(line, SERVER) != NULL;
  if (file) fclose(file);
  return found;
}

// ---- this worker --------------------------------------------------------------------------------

// What the server said, once; never freed. `variables`: its tpu-env, "" = nothing.
static struct {
  pthread_once_t once;
  vt_text variables, addresses;
} worker = {.once = PTHREAD_ONCE_INIT};

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

static void ask(void) {
  char host[256];
  int32_t port = 80;
  vt_text endpoints = {0};
  const char *given = getenv("GCE_METADATA_HOST");
  if (!given || !*given) given = getenv("GCE_METADATA_IP");
  if (is_set("TPU_SKIP_MDS_QUERY")) return;
  if (!given || !*given) {
    if (!is_known()) return;
    given = SERVER;
  }
  snprintf(host, sizeof host, "%s", given);
  char *colon = strchr(host, ':');
  if (colon && !strchr(colon + 1, ':')) { // not an IPv6 address
    port = atoi(colon + 1);
    *colon = 0;
  }
  if (!vt_metadata_ask(host, port, "tpu-env", &worker.variables)) {
    vt_log(VT_LOG_INFO, "the metadata server %s says nothing of a TPU VM", given);
    return;
  }
  if (vt_metadata_ask(host, port, "worker-network-endpoints", &endpoints))
    vt_metadata_addresses((vt_bytes){(const uint8_t *)endpoints.data, endpoints.size},
                          &worker.addresses);
  vt_text_free(&endpoints);
}

// A value of tpu-env; NULL = none. What is returned lives for ever.
static const char *find(const char *key) {
  enum { KEPT = 8 };
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct {
    const char *key;
    char value[256];
  } kept[KEPT];
  vt_bytes value;
  const char *found = NULL;
  pthread_once(&worker.once, ask);
  vt_bytes lines = {(const uint8_t *)vt_text_string(&worker.variables), worker.variables.size};
  if (!vt_metadata_value(lines, key, &value) || !value.size || value.size >= sizeof kept[0].value)
    return NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < KEPT && !found; i++) {
    if (kept[i].key && strcmp(kept[i].key, key) != 0) continue;
    if (!kept[i].key) memcpy(kept[i].value, value.data, value.size);
    kept[i].key = key;
    found = kept[i].value;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

// The environment asks for another slice than this worker's.
static bool is_elsewhere(void) {
  static const char *const names[] = {"VTPU_ACCELERATOR_TYPE", "TPU_ACCELERATOR_TYPE"};
  for (size_t i = 0; i < 2; i++) {
    if (!is_set(names[i])) continue;
    const char *type = find("ACCELERATOR_TYPE");
    if (!type || strcmp(type, getenv(names[i])) != 0) return true;
  }
  return false;
}

// Something else says which processes there are.
static bool environment_says(void) {
  static const char *const names[] = {
      "VTPU_HOSTS",           "TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS",     "TPU_PROCESS_ADDRESSES",
      "TPU_WORKER_HOSTNAMES", "SLURM_JOB_ID",       "OMPI_COMM_WORLD_SIZE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (is_set(names[i])) return true;
  return false;
}

const char *vt_worker_variable(void *user, const char *name) {
  static const char *const slices[] = {"MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID",
                                       "MEGASCALE_COORDINATOR_ADDRESS"};
  static const char *const workers[][2] = {{"TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE"},
                                           {"TPU_WORKER_ID", "WORKER_ID"},
                                           {"TPU_WORKER_HOSTNAMES", NULL}};
  const char *value = getenv(name);
  (void)user;
  if (value) return value; // an empty one says that there is none
  for (size_t i = 0; i < 3; i++) {
    if (!strcmp(name, slices[i]))
      return getenv(slices[0]) || is_elsewhere() ? NULL : find(slices[i]);
    if (strcmp(name, workers[i][0]) != 0) continue;
    if (environment_says() || is_elsewhere()) return NULL;
    if (workers[i][1]) return find(workers[i][1]);
    pthread_once(&worker.once, ask);
    return worker.addresses.size ? vt_text_string(&worker.addresses) : NULL;
  }
  return NULL;
}
