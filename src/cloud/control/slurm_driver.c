// SPDX-License-Identifier: Apache-2.0
// slurm_driver.c - the Slurm back end: each worker is a job, and the job runs the worker on the
// host it was placed on.
//
// A job is found by its name, so a killed daemon finds its workers again; --dependency=singleton
// lets no second job of a worker start before the first has ended, whatever was in flight. The
// job's script contains the worker's description, so hosts share no files with the daemon; the disk
// is in a folder of the host, and a restarted worker is sent back to it. A job removes the disk,
// too, and waits while its host is down. Functions of the driver only record what is wanted and
// return what was last seen: slurm_thread.c does the work.
#include "cloud/control/slurm_driver.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"
#include "cloud/control/guest_spec.h"
#include "cloud/door/metadata.h"
#include "cloud/store/row.h"
#include "cloud/worker/helper_client.h"
#include "cloud/worker/network.h"

int64_t vt_slurm_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * VT_SECOND + now.tv_nsec;
}

bool vt_slurm_live(const vt_slurm_slot *slot) {
  return slot->job && (slot->state == VT_SLURM_WAITING || slot->state == VT_SLURM_RUNNING ||
                       slot->state == VT_SLURM_LEAVING);
}

static void wake(vt_slurm_driver *d) {
  d->poked = true;
  pthread_cond_signal(&d->wake);
}

// --- where workers are ---------------------------------------------------------------------------

static vt_status read_host(vt_cloud *cloud, int64_t uid, int64_t worker, char out[128]) {
  vt_rows *rows;
  *out = 0;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT host FROM placements WHERE node = ? AND worker = ?", "ii", uid,
                        worker));
  if (vt_rows_next(rows)) snprintf(out, 128, "%s", vt_rows_text(rows, 0));
  return vt_rows_end(rows);
}

static vt_status write_host(vt_cloud *cloud, int64_t uid, int64_t worker, const char *host) {
  char before[128];
  VT_TRY(read_host(cloud, uid, worker, before));
  if (strcmp(before, host) == 0) return VT_OK;
  const vt_placements_row row = {.node = uid, .worker = worker, .host = host};
  return vt_row_put(cloud->store, placements, &row);
}

static void log_and_free(const char *what, vt_status st) {
  if (st) vt_log(VT_LOG_WARNING, "slurm: %s: %s", what, vt_status_message(st));
  vt_status_free(st);
}

// The address by which the other hosts reach this one: that of the route to them. "" when all hosts
// of the cluster are this one.
static void find_hub(const vt_slurm_driver *d, char out[64]) {
  *out = 0;
  for (size_t i = 0; i < d->hosts.size && !*out; i++) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t size = sizeof to;
    const char *address = d->hosts.data[i].address;
    if (!*address || vt_net_is_here(address)) continue;
    inet_pton(AF_INET, address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        getsockname(fd, (struct sockaddr *)&to, &size) == 0)
      inet_ntop(AF_INET, &to.sin_addr, out, 64);
    if (fd >= 0) close(fd);
  }
}

// --- scripts -------------------------------------------------------------------------------------

static void put_head(const vt_slurm_driver *d, int64_t uid, int64_t worker, vt_text *t) {
  vt_text_printf(t,
                 "#!/bin/bash\nexport PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:"
                 "/bin\numask 077\nfolder=%s/$SLURMD_NODENAME/%lld-%lld\n",
                 d->cloud->options.slurm_folder, (long long)uid, (long long)worker);
}

void vt_slurm_clean_script(const vt_slurm_driver *d, int64_t uid, int64_t worker, vt_text *out) {
  put_head(d, uid, worker, out);
  // Of a launcher that died with its host, or was killed, and removed nothing.
  if (d->cloud->options.guest_level) vt_text_printf(out, "'%s' sweep\n", d->launcher);
  // A worker that has come back to this host meanwhile has a newer job, and keeps its disk.
  vt_text_put(out, "[ \"$(cat \"$folder/job\" 2>/dev/null || echo 0)\" -lt \"$SLURM_JOB_ID\" ] "
                   "&& rm -rf --one-file-system \"$folder\"\n");
}

// Why a worker did not boot goes into its job's comment, which can be read without access to the
// host's files. Slurm signals all processes of a job at once; the launcher handles the worker.
static vt_status worker_script(const vt_slurm_driver *d, const vt_node *node, int64_t worker,
                               const char *ip, vt_text *t) {
  static const char rest[] =
      "VTPU_END_OF_SPEC\n"
      "rm -f \"$folder/failed\"\n"
      "trap : TERM\n"
      "trap 'kill -USR1 \"$launcher\"' USR1\n"
      "\"$guest\" boot \"$folder\" >>\"$folder/log\" 2>&1 &\n"
      "launcher=$!\n"
      "while wait \"$launcher\"; status=$?; kill -0 \"$launcher\" 2>/dev/null; do :; done\n"
      "[ $status = 0 ] && exit 0\n"
      "why=$(head -c 200 \"$folder/failed\" 2>/dev/null || echo \"$guest ended with $status\")\n"
      "scontrol update JobId=\"$SLURM_JOB_ID\" \\\n"
      "  Comment=\"failed: $(tr -cd '[:alnum:] ,.:;/_-' <<<\"$why\")\"\n"
      "exit 1\n";
  char hub[64];
  if (d->cloud->options.guest_level == 0) {
    vt_text_put(t, "#!/bin/bash\nexec sleep infinity\n");
    return VT_OK;
  }
  find_hub(d, hub);
  put_head(d, node->uid, worker, t);
  vt_text_printf(t,
                 "guest='%s'\nmkdir -p \"$folder\"\necho \"$SLURM_JOB_ID\" >\"$folder/job\"\ncat "
                 ">\"$folder/spec\" <<'VTPU_END_OF_SPEC'\n",
                 d->launcher);
  VT_TRY(vt_guest_spec(d->cloud, d->tag, hub, node, worker, ip, t));
  vt_text_put(t, rest);
  return VT_OK;
}

// --- the driver ----------------------------------------------------------------------------------

static vt_slurm_slot *slot_of_node(vt_slurm_driver *d, const vt_node *node, int64_t worker,
                                   const char *ip) {
  vt_slurm_slot *slot = vt_slurm_slot_of(d, node->uid, worker);
  snprintf(slot->ip, sizeof slot->ip, "%s", ip);
  slot->project = (unsigned)(vt_hash_bytes(node->project, strlen(node->project), 5) | 1);
  slot->spot = vt_node_is_spot(node);
  return slot;
}

static bool host_up(const vt_slurm_driver *d, const char *name) {
  for (size_t i = 0; i < d->hosts.size; i++)
    if (strcmp(d->hosts.data[i].name, name) == 0) return d->hosts.data[i].up;
  return false;
}

static vt_status slurm_start(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                             const char *ip) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  char before[128];
  vt_text script = {0};
  VT_TRY(read_host(d->cloud, node->uid, worker, before));
  pthread_mutex_lock(&d->lock);
  vt_status st = worker_script(d, node, worker, ip, &script);
  vt_slurm_slot *slot = slot_of_node(d, node, worker, ip);
  if (!st && !vt_slurm_live(slot) && !slot->submitting) {
    free(slot->script);
    slot->script = strdup(vt_text_string(&script));
    snprintf(slot->pin, sizeof slot->pin, "%s", host_up(d, before) ? before : "");
    slot->forgotten = slot->job;
    slot->job = slot->waiting_ns = slot->cancelled_ns = 0;
    slot->ending = slot->up = slot->notice = slot->dropped = false;
    slot->disk = VT_DISK_KEEP;
    if (*before && !*slot->pin) {
      vt_log(VT_LOG_WARNING, "%s worker %d: its host %s is down; it gets a new disk elsewhere",
             node->id, (int)worker, before);
      // What is left there is removed when the host is back.
      snprintf(slot->erase_host, sizeof slot->erase_host, "%s", before);
      slot->disk = VT_DISK_ERASE;
    }
    wake(d);
  }
  pthread_mutex_unlock(&d->lock);
  vt_text_free(&script);
  return st;
}

static bool answers(vt_slurm_driver *d, const vt_node *node, const char *ip) {
  bool synced = false;
  if (d->cloud->options.guest_level == 0 || node->state == VT_NODE_READY) return true;
  if (!vt_guest_answers_ssh(ip)) return false;
  vt_status st = vt_metadata_synced(d->cloud, node, &synced);
  vt_status_free(st);
  return synced || node->workers > 1;
}

static vt_guest_state state_of_ended(const vt_slurm_driver *d, const vt_slurm_slot *slot,
                                     const vt_node *node) {
  (void)d;
  if (slot->state == VT_SLURM_TAKEN && vt_node_is_spot(node)) return VT_GUEST_PREEMPTED;
  if (slot->state != VT_SLURM_FAILED || slot->up) return VT_GUEST_ABSENT;
  vt_log(VT_LOG_WARNING, "%s worker %d on %s: job %lld %s", node->id, (int)slot->worker, slot->host,
         (long long)slot->job, *slot->comment ? slot->comment : "failed");
  return VT_GUEST_FAILED;
}

static vt_guest_state slurm_poll(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                                 const char *ip) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  vt_guest_state state = VT_GUEST_STARTING;
  char host[128] = "";
  bool running = false;
  pthread_mutex_lock(&d->lock);
  vt_slurm_slot *slot = slot_of_node(d, node, worker, ip);
  if (!d->known) {
    state = VT_GUEST_UNKNOWN;
  } else if (slot->script || slot->submitting || (slot->ending && vt_slurm_live(slot))) {
    state = VT_GUEST_STARTING;
  } else if (!slot->job) {
    state = VT_GUEST_ABSENT;
  } else if (slot->state == VT_SLURM_WAITING) {
    if (slot->waiting_ns && vt_slurm_clock() - slot->waiting_ns > d->cloud->options.slurm_wait_ns)
      state = VT_GUEST_NO_ROOM;
  } else if (slot->state == VT_SLURM_RUNNING) {
    running = true;
    snprintf(host, sizeof host, "%s", slot->host);
    if (slot->up) state = VT_GUEST_RUNNING;
  } else if (slot->state != VT_SLURM_LEAVING) {
    state = state_of_ended(d, slot, node);
  }
  pthread_mutex_unlock(&d->lock);
  if (!running) return state;
  log_and_free("where a worker is", write_host(d->cloud, node->uid, worker, host));
  if (state == VT_GUEST_RUNNING || !answers(d, node, ip)) return state;
  pthread_mutex_lock(&d->lock);
  vt_slurm_slot_of(d, node->uid, worker)->up = true;
  pthread_mutex_unlock(&d->lock);
  return VT_GUEST_RUNNING;
}

// Whether nothing of the worker is left, under the lock. `host` is its host according to the rows.
static bool end_slot(vt_slurm_driver *d, vt_slurm_slot *slot, bool erase, const char *host) {
  free(slot->script);
  slot->script = NULL;
  if (slot->submitting || vt_slurm_live(slot)) {
    slot->ending = true;
    return false;
  }
  if (slot->job > slot->forgotten) slot->forgotten = slot->job;
  if (*slot->host) host = slot->host;
  slot->job = 0;
  slot->ending = slot->up = false;
  if (erase && *host && d->cloud->options.guest_level > 0 &&
      !(slot->disk == VT_DISK_ERASED && strcmp(slot->erase_host, host) == 0)) {
    snprintf(slot->erase_host, sizeof slot->erase_host, "%s", host);
    slot->disk = VT_DISK_ERASE;
    return false;
  }
  slot->dropped = erase;
  return true;
}

static bool slurm_stop(vt_guest_driver *driver, int64_t uid, int64_t worker, bool erase) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  char host[128];
  vt_status st = read_host(d->cloud, uid, worker, host);
  if (st) {
    vt_status_free(st);
    return false;
  }
  pthread_mutex_lock(&d->lock);
  bool gone = d->known && end_slot(d, vt_slurm_slot_of(d, uid, worker), erase, host);
  wake(d);
  pthread_mutex_unlock(&d->lock);
  if (gone && erase)
    log_and_free("where a worker was",
                 vt_store_run(d->cloud->store, NULL,
                              "DELETE FROM placements WHERE node = ? AND worker = ?", "ii", uid,
                              worker));
  return gone;
}

static bool slurm_disks(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                        const char *ip) {
  (void)driver, (void)node, (void)worker, (void)ip;
  return true; // attaching was refused
}

static void slurm_notify(vt_guest_driver *driver, int64_t uid, int64_t worker) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  pthread_mutex_lock(&d->lock);
  vt_slurm_slot_of(d, uid, worker)->notice = true;
  wake(d);
  pthread_mutex_unlock(&d->lock);
}

// The thread cancels jobs without a node as soon as it sees them, including those from a race.
static vt_status slurm_sweep(vt_guest_driver *driver) {
  (void)driver;
  return VT_OK;
}

static bool slurm_end_all(vt_guest_driver *driver) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  pthread_mutex_lock(&d->lock);
  bool gone = d->known;
  for (size_t i = 0; i < d->jobs.size; i++)
    if (!d->jobs.data[i].clean)
      (void)vt_slurm_slot_of(d, d->jobs.data[i].uid, d->jobs.data[i].worker);
  for (size_t i = 0; i < d->slots.size; i++)
    if (!d->slots.data[i].dropped && !end_slot(d, &d->slots.data[i], true, "")) gone = false;
  wake(d);
  pthread_mutex_unlock(&d->lock);
  return gone;
}

// Asks Slurm once more: the last view may be outdated. Without an answer there may be some.
static bool has_jobs(const vt_slurm_driver *d) {
  atomic_bool stop = false;
  vt_slurm_jobs jobs = {0};
  vt_status st = vt_slurm_list_jobs(&stop, d->tag, &jobs);
  bool any = st != VT_OK;
  for (size_t i = 0; i < jobs.size; i++) {
    vt_slurm_state state = jobs.data[i].state;
    any |= state == VT_SLURM_WAITING || state == VT_SLURM_RUNNING || state == VT_SLURM_LEAVING;
  }
  vt_array_free(&jobs);
  vt_status_free(st);
  return any;
}

// Surviving workers keep their routes.
static void close_hub(const vt_slurm_driver *d) {
  if (!d->known || d->cloud->options.guest_level == 0 || has_jobs(d)) return;
  if (vt_net_sweep(d->tag, false)) vt_net_leave();
}

static void slurm_destroy(vt_guest_driver *driver) {
  vt_slurm_driver *d = (vt_slurm_driver *)driver;
  atomic_store(&d->stop, true);
  pthread_mutex_lock(&d->lock);
  wake(d);
  pthread_mutex_unlock(&d->lock);
  if (d->threaded) pthread_join(d->thread, NULL);
  vt_metadata_stop(d->metadata);
  close_hub(d);
  for (size_t i = 0; i < d->slots.size; i++) free(d->slots.data[i].script);
  vt_array_free(&d->slots);
  vt_array_free(&d->jobs);
  vt_array_free(&d->hosts);
  pthread_cond_destroy(&d->wake);
  pthread_mutex_destroy(&d->lock);
  free(d);
}

// --- the start -----------------------------------------------------------------------------------

static vt_status check_options(const vt_cloud_options *o) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_.-";
  if (o->guest_level != 0 && o->guest_level != 2)
    return vt_error(VT_INVALID_ARGUMENT, "workers of a cluster are of level 2 (or 0, jobs that "
                                         "only hold their place)");
  if (*o->slurm_folder != '/' || strspn(o->slurm_folder, plain) != strlen(o->slurm_folder))
    return vt_error(VT_INVALID_ARGUMENT, "slurm-folder is an absolute path of plain characters");
  if (o->guest_level == 2 && geteuid() != 0)
    return vt_error(VT_UNIMPLEMENTED, "guests of level 2 need root");
  return VT_OK;
}

// This host is the hub of all workers: their metadata server, and the route between hosts.
static vt_status open_hub(vt_slurm_driver *d) {
  VT_TRY(vt_helper_program(d->launcher));
  if (strchr(d->launcher, '\'')) return vt_error(VT_UNIMPLEMENTED, "%s has a quote", d->launcher);
  vt_net_metadata();
  if (!vt_net_guard(true) || !vt_net_hub())
    vt_log(VT_LOG_WARNING, "nft does not work here: projects on different hosts reach each other");
  return vt_metadata_start(d->cloud, VT_NET_METADATA, 80, &d->metadata);
}

vt_status vt_guest_slurm_create(vt_cloud *cloud, vt_guest_driver **out_driver) {
  *out_driver = NULL;
  VT_TRY(check_options(&cloud->options));
  vt_slurm_driver *d = calloc(1, sizeof *d);
  if (!d) return vt_error_no_memory();
  d->base = (vt_guest_driver){slurm_start, slurm_poll,    slurm_stop,    slurm_disks, slurm_notify,
                              slurm_sweep, slurm_end_all, slurm_destroy, true,        NULL};
  d->cloud = cloud;
  pthread_mutex_init(&d->lock, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&d->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  // Clouds that share a cluster do not see each other's jobs.
  snprintf(d->tag, sizeof d->tag, "%08llx",
           (unsigned long long)vt_hash_bytes(cloud->secret, strlen(cloud->secret), 7) & 0xffffffff);
  vt_status st = cloud->options.guest_level > 0 ? open_hub(d) : VT_OK;
  if (!st) {
    int rc = pthread_create(&d->thread, NULL, vt_slurm_thread, d);
    d->threaded = rc == 0;
    if (rc) st = vt_error(VT_INTERNAL, "no thread: %s", strerror(rc));
  }
  if (st)
    slurm_destroy(&d->base);
  else
    *out_driver = &d->base;
  return st;
}
