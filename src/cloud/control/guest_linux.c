// SPDX-License-Identifier: Apache-2.0
// guest_linux.c - levels 1 and 2 on this host, as the reconciler drives them: rows become requests
// to the helper (helper.h), which has the privileges; the workers' own reports are handled here.
// In: nodes to boot or end. Out: guests, found after a restart through the helper's files.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/log.h"
#include "cloud/control/guest.h"
#include "cloud/control/guest_spec.h"
#include "cloud/door/metadata.h"
#include "cloud/state/disk.h"
#include "cloud/worker/helper_client.h"
#include "cloud/worker/network.h"

// Level 1: the metadata server of one worker. It is stopped in its own thread, since a client in it
// may be waiting for the lock that we hold.
typedef struct door {
  int64_t uid, worker;
  vt_metadata_server *server;
  pthread_t thread;
  bool ending;
  atomic_bool ended;
} door;

typedef struct linux_driver {
  vt_guest_driver base;
  vt_cloud *cloud;
  int level;
  VT_ARRAY(door *) doors;
  vt_metadata_server *metadata;
  vt_helper_request request; // of the current request, and its reply
  vt_helper_reply reply;
} linux_driver;

static vt_status ask(linux_driver *d, vt_helper_op op, int64_t uid, int64_t worker) {
  return vt_helper_ask(d->cloud->helper, op, uid, worker, &d->reply);
}

static void log_and_free(const char *what, int64_t uid, int64_t worker, vt_status st) {
  if (st)
    vt_log(VT_LOG_WARNING, "guest %lld-%lld: %s: %s", (long long)uid, (long long)worker, what,
           vt_status_message(st));
  vt_status_free(st);
}

// --- level 1: doors ------------------------------------------------------------------------------

static void *end_door(void *argument) {
  door *the_door = argument;
  vt_metadata_end(the_door->server);
  atomic_store(&the_door->ended, true);
  return NULL;
}

static void forget_doors(linux_driver *d, int64_t uid, int64_t worker) {
  for (size_t i = 0; i < d->doors.size; i++) {
    door *the_door = d->doors.data[i];
    if (!the_door->ending && the_door->uid == uid && the_door->worker == worker)
      the_door->ending = pthread_create(&the_door->thread, NULL, end_door, the_door) == 0;
    if (!the_door->ending || !atomic_load(&the_door->ended)) continue;
    pthread_join(the_door->thread, NULL);
    free(the_door);
    d->doors.data[i--] = d->doors.data[--d->doors.size];
  }
}

static vt_status open_door(linux_driver *d, int64_t uid, int64_t worker, const char *ip) {
  for (size_t i = 0; i < d->doors.size; i++)
    if (d->doors.data[i]->uid == uid && d->doors.data[i]->worker == worker &&
        !d->doors.data[i]->ending)
      return VT_OK;
  door *the_door = calloc(1, sizeof *the_door);
  if (!the_door) return vt_error_no_memory();
  the_door->uid = uid;
  the_door->worker = worker;
  vt_status st = vt_metadata_start_worker(d->cloud, ip, vt_guest_uid_base(d->level, ip), 65536,
                                          &the_door->server);
  if (st)
    free(the_door);
  else
    vt_array_push(&d->doors, the_door);
  return st;
}

// --- the driver ----------------------------------------------------------------------------------

static vt_status ask_for_worker(linux_driver *d, vt_helper_op op, const vt_node *node,
                                int64_t worker, const char *ip) {
  memset(&d->request, 0, sizeof d->request);
  d->request.op = op;
  VT_TRY(vt_guest_describe(d->cloud, node, worker, ip, &d->request.worker));
  VT_TRY(vt_disks_of_node(d->cloud, node->uid, &d->request.worker));
  return vt_helper_call(d->cloud->helper, &d->request, &d->reply, NULL);
}

static bool linux_disks(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                        const char *ip) {
  vt_status st = ask_for_worker((linux_driver *)driver, VT_HELPER_DISKS, node, worker, ip);
  bool good = !st;
  log_and_free("disks", node->uid, worker, st);
  return good;
}

static vt_status linux_start(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                             const char *ip) {
  linux_driver *d = (linux_driver *)driver;
  if (strncmp(ip, d->level == 1 ? "127." : "10.", d->level == 1 ? 4 : 3) != 0)
    return vt_error(VT_FAILED_PRECONDITION, "%s is no address of level %d", ip, d->level);
  if (d->level == 1) VT_TRY(open_door(d, node->uid, worker, ip));
  return ask_for_worker(d, VT_HELPER_START, node, worker, ip);
}

// Ready means: ssh answers, the agent knows the users, and the disks are mounted. The helper
// records it, so that later polls are cheap.
static vt_guest_state look_at(linux_driver *d, const vt_node *node, int64_t worker,
                              const char *ip) {
  bool synced = false;
  if (d->level == 1) // also after a restart of the daemon
    log_and_free("metadata", node->uid, worker, open_door(d, node->uid, worker, ip));
  if (d->reply.flags & VT_HELPER_WAS_UP) return VT_GUEST_RUNNING;
  if (!vt_guest_answers_ssh(ip)) return VT_GUEST_STARTING;
  vt_status_free(vt_metadata_synced(d->cloud, node, &synced));
  if (!synced && node->workers == 1) return VT_GUEST_STARTING;
  if (!linux_disks(&d->base, node, worker, ip)) return VT_GUEST_STARTING;
  log_and_free("up", node->uid, worker, ask(d, VT_HELPER_UP, node->uid, worker));
  return VT_GUEST_RUNNING;
}

static vt_guest_state linux_poll(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                                 const char *ip) {
  linux_driver *d = (linux_driver *)driver;
  vt_status st = ask(d, VT_HELPER_POLL, node->uid, worker);
  if (st) {
    log_and_free("poll", node->uid, worker, st);
    return VT_GUEST_UNKNOWN;
  }
  uint32_t flags = d->reply.flags;
  if (flags & VT_HELPER_RUNS) return look_at(d, node, worker, ip);
  if (flags & VT_HELPER_LAUNCHES) return VT_GUEST_STARTING;
  if (flags & VT_HELPER_FAILED) {
    vt_log(VT_LOG_WARNING, "guest %lld-%lld: %s", (long long)node->uid, (long long)worker,
           d->reply.text);
    return VT_GUEST_FAILED;
  }
  if (flags & VT_HELPER_WAS_UP) return VT_GUEST_ABSENT; // it was ready, and is gone
  // Just launched: no status from the launcher yet.
  return flags & VT_HELPER_FRESH ? VT_GUEST_STARTING : VT_GUEST_ABSENT;
}

static bool linux_stop(vt_guest_driver *driver, int64_t uid, int64_t worker, bool erase) {
  linux_driver *d = (linux_driver *)driver;
  memset(&d->request, 0, offsetof(vt_helper_request, worker));
  d->request.op = VT_HELPER_STOP;
  d->request.uid = uid;
  d->request.index = (uint32_t)worker;
  d->request.erase = erase;
  vt_status st = vt_helper_call(d->cloud->helper, &d->request, &d->reply, NULL);
  bool gone = !st && d->reply.flags & VT_HELPER_GONE;
  log_and_free("stop", uid, worker, st);
  if (gone && erase) forget_doors(d, uid, worker);
  return gone;
}

// The guests that have a folder now: a copy, since replies share one buffer. NULL: none.
static vt_helper_id *list(linux_driver *d, uint32_t *out_count) {
  vt_status st = ask(d, VT_HELPER_LIST, 0, 0);
  vt_helper_id *ids = NULL;
  *out_count = st ? 0 : d->reply.count;
  if (*out_count) ids = malloc(*out_count * sizeof *ids);
  if (ids)
    memcpy(ids, d->reply.ids, *out_count * sizeof *ids);
  else
    *out_count = 0;
  log_and_free("list", 0, 0, st);
  return ids;
}

static bool linux_end_all(vt_guest_driver *driver) {
  uint32_t count;
  vt_helper_id *ids = list((linux_driver *)driver, &count);
  for (uint32_t i = 0; i < count; i++) (void)linux_stop(driver, ids[i].uid, ids[i].index, true);
  free(ids);
  return count == 0;
}

static void linux_notify(vt_guest_driver *driver, int64_t uid, int64_t worker) {
  log_and_free("notice", uid, worker, ask((linux_driver *)driver, VT_HELPER_NOTIFY, uid, worker));
}

static vt_status linux_sweep(vt_guest_driver *driver) {
  linux_driver *d = (linux_driver *)driver;
  vt_status st = VT_OK;
  uint32_t count;
  vt_helper_id *ids = list(d, &count);
  for (uint32_t i = 0; !st && i < count; i++) {
    int64_t owned;
    st = vt_store_int(d->cloud->store, &owned, 0,
                      "SELECT 1 FROM workers WHERE node = ? AND worker = ?", "ii", ids[i].uid,
                      ids[i].index);
    if (!st && !owned) (void)linux_stop(driver, ids[i].uid, ids[i].index, true);
  }
  free(ids);
  return st;
}

static void linux_destroy(vt_guest_driver *driver) {
  linux_driver *d = (linux_driver *)driver;
  vt_metadata_stop(d->metadata);
  pthread_mutex_lock(&d->cloud->lock); // so that no agent's long poll delays us
  d->cloud->closing = true;
  pthread_mutex_unlock(&d->cloud->lock);
  for (size_t i = 0; i < d->doors.size; i++) {
    if (d->doors.data[i]->ending)
      pthread_join(d->doors.data[i]->thread, NULL);
    else
      vt_metadata_stop(d->doors.data[i]->server);
    free(d->doors.data[i]);
  }
  vt_array_free(&d->doors);
  free(d);
}

static int64_t linux_output(vt_guest_driver *driver, int64_t uid, int64_t worker, int64_t *start,
                            int64_t limit, vt_text *out_text) {
  linux_driver *d = (linux_driver *)driver;
  char buffer[4096];
  int fd = -1;
  memset(&d->request, 0, offsetof(vt_helper_request, worker));
  d->request.op = VT_HELPER_OUTPUT;
  d->request.uid = uid;
  d->request.index = (uint32_t)worker;
  vt_status_free(vt_helper_call(d->cloud->helper, &d->request, &d->reply, &fd)); // no log yet
  int64_t end = fd < 0 ? 0 : (int64_t)lseek(fd, 0, SEEK_END);
  if (*start > end) *start = end;
  if (end - *start > limit) *start = end - limit;
  int64_t at = *start;
  for (ssize_t n; at < end && (n = pread(fd, buffer, sizeof buffer, (off_t)at)) > 0; at += n)
    vt_text_put_n(out_text, buffer, (size_t)n);
  if (fd >= 0) close(fd);
  return at;
}

vt_status vt_guest_linux_create(vt_cloud *cloud, vt_guest_driver **out_driver) {
  vt_status st = VT_OK;
  *out_driver = NULL;
  linux_driver *d = calloc(1, sizeof *d);
  if (!d) return vt_error_no_memory();
  d->base = (vt_guest_driver){linux_start, linux_poll,    linux_stop,    linux_disks, linux_notify,
                              linux_sweep, linux_end_all, linux_destroy, true,        linux_output};
  d->cloud = cloud;
  d->level = cloud->options.guest_level;
  d->request.op = VT_HELPER_OPEN;
  d->request.level = (uint32_t)d->level;
  VT_TRY_OUT(vt_helper_call(cloud->helper, &d->request, &d->reply, NULL));
  if (*d->reply.text) vt_log(VT_LOG_WARNING, "%s", d->reply.text);
  if (d->level == 2) VT_TRY_OUT(vt_metadata_start(cloud, VT_NET_METADATA, 80, &d->metadata));
  *out_driver = &d->base;
  d = NULL;
out:
  if (d) linux_destroy(&d->base);
  return st;
}
