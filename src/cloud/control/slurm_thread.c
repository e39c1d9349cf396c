// SPDX-License-Identifier: Apache-2.0
// slurm_thread.c - the thread of the Slurm back end: alternates between polling jobs and hosts and
// acting on what is wanted. Tools are slow, so none runs under a lock.
#include "cloud/control/slurm_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "cloud/worker/network.h"

// Polling interval: while something changes, and otherwise.
static const int64_t soon_ns = VT_SECOND / 4, later_ns = 2 * VT_SECOND;

typedef struct action {
  enum { SUBMIT, CANCEL, NOTICE, CLEAN, PLACE, UNPLACE, PEERS } what;
  int64_t uid, worker, job;
  unsigned project;
  bool spot, good;
  char host[128], ip[32], address[64];
  char *script; // PEERS: "ip=address" each, with a space behind
  uint64_t told;
} action;
typedef VT_ARRAY(action) actions;

// --- looking -------------------------------------------------------------------------------------

// The job that counts: the newest that has not ended, else the newest.
static void see(vt_slurm_driver *d, vt_slurm_slot *slot) {
  const vt_slurm_job *best = NULL;
  bool best_over = true;
  for (size_t i = 0; i < d->jobs.size; i++) {
    const vt_slurm_job *job = &d->jobs.data[i];
    bool over = job->state != VT_SLURM_WAITING && job->state != VT_SLURM_RUNNING &&
                job->state != VT_SLURM_LEAVING;
    if (job->clean || job->uid != slot->uid || job->worker != slot->worker ||
        job->id <= slot->forgotten)
      continue;
    if (best && (best_over == over ? job->id < best->id : over)) continue;
    best = job;
    best_over = over;
  }
  if (best && best->id != slot->job) slot->waiting_ns = 0;
  slot->job = best ? best->id : 0;
  if (!best) return;
  slot->state = best->state;
  snprintf(slot->host, sizeof slot->host, "%s", best->host);
  snprintf(slot->reason, sizeof slot->reason, "%s", best->reason);
  snprintf(slot->comment, sizeof slot->comment, "%s", best->comment);
  // There is nothing to wait for until the previous job has ended.
  bool waits = best->state == VT_SLURM_WAITING && strcmp(best->reason, "Dependency") != 0 &&
               strcmp(best->reason, "None") != 0;
  if (!waits)
    slot->waiting_ns = 0;
  else if (!slot->waiting_ns)
    slot->waiting_ns = vt_slurm_clock();
}

vt_slurm_slot *vt_slurm_slot_of(vt_slurm_driver *d, int64_t uid, int64_t worker) {
  for (size_t i = 0; i < d->slots.size; i++)
    if (d->slots.data[i].uid == uid && d->slots.data[i].worker == worker) {
      d->slots.data[i].dropped = false;
      return &d->slots.data[i];
    }
  vt_slurm_slot slot = {.uid = uid, .worker = worker};
  vt_array_push(&d->slots, slot);
  vt_slurm_slot *made = &d->slots.data[d->slots.size - 1];
  see(d, made);
  return made;
}

static void look(vt_slurm_driver *d) {
  vt_slurm_jobs jobs = {0};
  vt_slurm_hosts hosts = {0};
  vt_status st = vt_slurm_list_jobs(&d->stop, d->tag, &jobs);
  if (!st) st = vt_slurm_list_hosts(&d->stop, &hosts);
  pthread_mutex_lock(&d->lock);
  if (st && !d->lost && !atomic_load(&d->stop))
    vt_log(VT_LOG_WARNING, "slurm: %s; workers stay as they are", vt_status_message(st));
  if (!st && d->lost) vt_log(VT_LOG_WARNING, "slurm: it answers again");
  d->lost = st != VT_OK;
  if (!st) {
    vt_array_free(&d->jobs);
    vt_array_free(&d->hosts);
    d->jobs = jobs;
    d->hosts = hosts;
    for (size_t i = 0; i < d->slots.size; i++) see(d, &d->slots.data[i]);
    d->known = true;
  } else {
    vt_array_free(&jobs);
    vt_array_free(&hosts);
  }
  pthread_mutex_unlock(&d->lock);
  vt_status_free(st);
}

static bool has_slot(const vt_slurm_driver *d, const vt_slurm_job *job) {
  for (size_t i = 0; i < d->slots.size; i++)
    if (d->slots.data[i].uid == job->uid && d->slots.data[i].worker == job->worker) return true;
  return false;
}

// Jobs without a node: from a daemon killed after it submitted one and before it recorded that.
static void end_strays(vt_slurm_driver *d) {
  VT_ARRAY(vt_slurm_job) strays = {0};
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->jobs.size; i++) {
    const vt_slurm_job *job = &d->jobs.data[i];
    if (!job->clean && !has_slot(d, job) &&
        (job->state == VT_SLURM_WAITING || job->state == VT_SLURM_RUNNING))
      vt_array_push(&strays, *job);
  }
  pthread_mutex_unlock(&d->lock);
  for (size_t i = 0; i < strays.size; i++) {
    int64_t owned = 1;
    pthread_mutex_lock(&d->cloud->lock);
    vt_status st = vt_store_int(d->cloud->store, &owned, 0,
                                "SELECT 1 FROM workers, nodes WHERE workers.node = nodes.uid AND "
                                "nodes.uid = ? AND worker = ? AND state NOT IN ('STOPPED', "
                                "'PREEMPTED', 'TERMINATED')",
                                "ii", strays.data[i].uid, strays.data[i].worker);
    pthread_mutex_unlock(&d->cloud->lock);
    if (!st && !owned) {
      vt_log(VT_LOG_WARNING, "slurm: job %lld has no node and ends", (long long)strays.data[i].id);
      pthread_mutex_lock(&d->lock);
      vt_slurm_slot_of(d, strays.data[i].uid, strays.data[i].worker)->ending = true;
      pthread_mutex_unlock(&d->lock);
    }
    vt_status_free(st);
  }
  vt_array_free(&strays);
}

// --- what to do ----------------------------------------------------------------------------------

static const char *address_of(const vt_slurm_driver *d, const char *host) {
  for (size_t i = 0; i < d->hosts.size; i++)
    if (strcmp(d->hosts.data[i].name, host) == 0) return d->hosts.data[i].address;
  return "";
}

static void plan_place(vt_slurm_driver *d, vt_slurm_slot *slot, const action *of, actions *out) {
  action a = *of;
  const char *address = "";
  if (d->cloud->options.guest_level == 0 || !*slot->ip) return;
  if (slot->job && slot->state == VT_SLURM_RUNNING && !slot->dropped)
    address = address_of(d, slot->host);
  if (*address && vt_net_is_here(address)) address = "-";
  if (strcmp(address, slot->placed) == 0) return;
  if (*slot->placed) {
    a.what = UNPLACE;
    snprintf(a.address, sizeof a.address, "%s", slot->placed);
    vt_array_push(out, a);
  }
  if (*address) {
    a.what = PLACE;
    snprintf(a.address, sizeof a.address, "%s", address);
    vt_array_push(out, a);
  }
  snprintf(slot->placed, sizeof slot->placed, "%s", address);
}

// The other workers of its node and where they are; false: one of them is on its way.
static bool list_peers(const vt_slurm_driver *d, const vt_slurm_slot *slot, vt_text *out_list,
                       uint64_t *out_hash) {
  *out_hash = 0;
  for (size_t i = 0; i < d->slots.size; i++) {
    const vt_slurm_slot *other = &d->slots.data[i];
    if (other->uid != slot->uid || other == slot || other->dropped || !vt_slurm_live(other))
      continue;
    if (other->state != VT_SLURM_RUNNING || !other->up) return false;
    const char *address = address_of(d, other->host);
    if (!*address || !*other->ip) return false;
    size_t at = out_list->size;
    vt_text_printf(out_list, "%s=%s ", other->ip, address);
    *out_hash += vt_hash_bytes(out_list->data + at, out_list->size - at, (uint64_t)slot->job);
  }
  return true;
}

// Its host is told when all workers of the node are there, and when one has moved.
static void plan_peers(const vt_slurm_driver *d, vt_slurm_slot *slot, const action *of,
                       actions *out) {
  vt_text list = {0};
  action a = *of;
  int64_t now = vt_slurm_clock();
  if (d->cloud->options.guest_level == 0 || !slot->up || !slot->job || slot->ending ||
      slot->state != VT_SLURM_RUNNING || (slot->told_ns && now - slot->told_ns < 5 * VT_SECOND))
    return;
  if (list_peers(d, slot, &list, &a.told) && a.told != slot->told) {
    slot->told_ns = now;
    a.what = PEERS;
    snprintf(a.host, sizeof a.host, "%s", slot->host);
    a.script = strdup(vt_text_string(&list));
    vt_array_push(out, a);
  }
  vt_text_free(&list);
}

static void plan(vt_slurm_driver *d, vt_slurm_slot *slot, actions *out) {
  action a = {.uid = slot->uid,
              .worker = slot->worker,
              .job = slot->job,
              .project = slot->project,
              .spot = slot->spot};
  int64_t now = vt_slurm_clock();
  snprintf(a.ip, sizeof a.ip, "%s", slot->ip);
  plan_place(d, slot, &a, out);
  plan_peers(d, slot, &a, out);
  if (slot->disk == VT_DISK_ERASE) {
    a.what = CLEAN;
    snprintf(a.host, sizeof a.host, "%s", slot->erase_host);
    vt_array_push(out, a);
  }
  // A job that Slurm cannot end at once is cancelled again.
  if (slot->ending && vt_slurm_live(slot) &&
      (!slot->cancelled_ns || now - slot->cancelled_ns > 5 * VT_SECOND)) {
    slot->cancelled_ns = now;
    a.what = CANCEL;
    vt_array_push(out, a);
  } else if (slot->notice && slot->job && slot->state == VT_SLURM_RUNNING) {
    slot->notice = false;
    a.what = NOTICE;
    vt_array_push(out, a);
  }
  if (slot->script) {
    a.what = SUBMIT;
    snprintf(a.host, sizeof a.host, "%s", slot->pin);
    a.script = slot->script;
    slot->script = NULL;
    slot->submitting = true;
    vt_array_push(out, a);
  }
}

static void plan_all(vt_slurm_driver *d, actions *out) {
  pthread_mutex_lock(&d->lock);
  d->busy = d->poked = false;
  for (size_t i = 0; d->known && i < d->slots.size; i++) {
    vt_slurm_slot *slot = &d->slots.data[i];
    plan(d, slot, out);
    if (slot->ending || slot->submitting || (slot->job && !slot->up)) d->busy = true;
    if (slot->dropped && !*slot->placed && slot->disk != VT_DISK_ERASE)
      d->slots.data[i--] = d->slots.data[--d->slots.size];
  }
  pthread_mutex_unlock(&d->lock);
}

// --- doing it ------------------------------------------------------------------------------------

typedef VT_ARRAY(const char *) arguments;

static void put_option(vt_arena *arena, arguments *list, const char *name, const char *value) {
  if (*value) vt_array_push_in(arena, list, vt_arena_printf(arena, "--%s=%s", name, value));
}

// A job of one process on one host, with the cluster's environment, not the daemon's.
static vt_status submit(vt_slurm_driver *d, const action *a, bool clean, const char *script,
                        int64_t *out_job) {
  const vt_cloud_options *o = &d->cloud->options;
  vt_arena arena = {0};
  vt_text said = {0};
  arguments argv = {0};
  static const char *const always[] = {"sbatch",       "--parsable",         "--no-requeue",
                                       "--export=NIL", "--output=/dev/null", "--chdir=/",
                                       "--ntasks=1",   "--nodes=1"};
  char name[96], number[24];
  for (size_t i = 0; i < sizeof always / sizeof *always; i++)
    vt_array_push_in(&arena, &argv, always[i]);
  vt_slurm_job_name(d->tag, a->uid, a->worker, clean, name);
  put_option(&arena, &argv, "job-name", name);
  snprintf(number, sizeof number, "%lld", (long long)a->job);
  put_option(&arena, &argv, "dependency",
             !clean   ? "singleton"
             : a->job ? vt_arena_printf(&arena, "afterany:%s", number)
                      : "");
  put_option(&arena, &argv, "nodelist", a->host);
  put_option(&arena, &argv, "partition",
             a->spot && *o->slurm_spot_partition ? o->slurm_spot_partition : o->slurm_partition);
  put_option(&arena, &argv, "account", o->slurm_account);
  snprintf(number, sizeof number, "%d", o->guest_cpus && !clean ? o->guest_cpus : 1);
  put_option(&arena, &argv, "cpus-per-task", number);
  if (o->guest_memory_mib && !clean) {
    snprintf(number, sizeof number, "%lldM", (long long)o->guest_memory_mib);
    put_option(&arena, &argv, "mem", number);
  }
  for (const char *p = o->slurm_options + strspn(o->slurm_options, " "); *p; p += strspn(p, " ")) {
    size_t n = strcspn(p, " ");
    vt_array_push_in(&arena, &argv, vt_arena_printf(&arena, "%.*s", (int)n, p));
    p += n;
  }
  vt_array_push_in(&arena, &argv, NULL);
  vt_status st = vt_slurm_run(&d->stop, argv.data, script, &said);
  // "123" or "123;cluster", after any warnings.
  const char *line = strrchr(vt_text_string(&said), '\n');
  while (line && line > said.data && line[-1] != '\n') line--;
  *out_job = st ? 0 : strtoll(line ? line : vt_text_string(&said), NULL, 10);
  vt_text_free(&said);
  vt_arena_free(&arena);
  return st;
}

// A step of the worker's job, which takes none of the job's resources.
static vt_status tell_peers(vt_slurm_driver *d, const action *a) {
  vt_arena arena = {0};
  vt_text said = {0};
  arguments argv = {0};
  static const char *const always[] = {
      "srun",         "--overlap",  "--quiet",
      "--input=none", "--ntasks=1", "--nodes=1",
      "--mem=0",      "--chdir=/",  "--export=PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  for (size_t i = 0; i < sizeof always / sizeof *always; i++)
    vt_array_push_in(&arena, &argv, always[i]);
  vt_array_push_in(&arena, &argv, vt_arena_printf(&arena, "--jobid=%lld", (long long)a->job));
  vt_array_push_in(&arena, &argv, d->launcher);
  vt_array_push_in(&arena, &argv, "peers");
  vt_array_push_in(&arena, &argv,
                   vt_arena_printf(&arena, "%s/%s/%lld-%lld", d->cloud->options.slurm_folder,
                                   a->host, (long long)a->uid, (long long)a->worker));
  for (char *rest = a->script, *peer; (peer = strsep(&rest, " "));)
    if (*peer) vt_array_push_in(&arena, &argv, peer);
  vt_array_push_in(&arena, &argv, NULL);
  vt_status st = vt_slurm_run(&d->stop, argv.data, "", &said);
  vt_text_free(&said);
  vt_arena_free(&arena);
  return st;
}

static vt_status run_action(vt_slurm_driver *d, action *a) {
  char id[32];
  vt_text text = {0};
  vt_status st = VT_OK;
  int64_t job = 0;
  snprintf(id, sizeof id, "%lld", (long long)a->job);
  switch (a->what) {
  case SUBMIT:
    st = submit(d, a, false, a->script, &a->job);
    break;
  case CANCEL:
    st = vt_slurm_cancel(&d->stop, a->job);
    break;
  case NOTICE: // the script passes it on to the launcher
    st = vt_slurm_run(
        &d->stop, (const char *const[]){"scancel", "--quiet", "--batch", "--signal=USR1", id, NULL},
        "", &text);
    break;
  case CLEAN:
    vt_slurm_clean_script(d, a->uid, a->worker, &text);
    st = submit(d, a, true, vt_text_string(&text), &job);
    break;
  case PLACE:
  case UNPLACE:
    if (!vt_net_place(a->ip, a->project, *a->address == '-' ? "" : a->address,
                      a->what == UNPLACE) &&
        a->what == PLACE)
      st = vt_error(VT_UNAVAILABLE, "no way to %s at %s", a->ip, a->address);
    break;
  case PEERS:
    st = tell_peers(d, a);
    break;
  }
  vt_text_free(&text);
  return st;
}

static void finish(vt_slurm_driver *d, const action *a) {
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->slots.size; i++) {
    vt_slurm_slot *slot = &d->slots.data[i];
    if (slot->uid != a->uid || slot->worker != a->worker) continue;
    if (a->what == SUBMIT) {
      slot->submitting = false;
      slot->job = a->good ? a->job : 0;
      slot->state = VT_SLURM_WAITING;
      *slot->host = *slot->reason = *slot->comment = 0;
      slot->cancelled_ns = 0;
    }
    if (a->what == PEERS && a->good) slot->told = a->told;
    // A host that Slurm no longer knows keeps what it has; if Slurm does not answer, retry later.
    if (a->what == CLEAN && (a->good || !d->lost)) slot->disk = VT_DISK_ERASED;
  }
  pthread_mutex_unlock(&d->lock);
}

void *vt_slurm_thread(void *driver) {
  vt_slurm_driver *d = driver;
  while (!atomic_load(&d->stop)) {
    actions todo = {0};
    look(d);
    if (!d->lost) end_strays(d);
    if (!d->lost) plan_all(d, &todo);
    for (size_t i = 0; i < todo.size; i++) {
      vt_status st = run_action(d, &todo.data[i]);
      todo.data[i].good = st == VT_OK;
      if (st && !atomic_load(&d->stop)) vt_log(VT_LOG_WARNING, "slurm: %s", vt_status_message(st));
      vt_status_free(st);
      finish(d, &todo.data[i]);
      free(todo.data[i].script);
    }
    bool did = todo.size > 0;
    vt_array_free(&todo);
    pthread_mutex_lock(&d->lock);
    int64_t until = vt_slurm_clock() + (d->busy || did || !d->known ? soon_ns : later_ns);
    struct timespec at = {(time_t)(until / VT_SECOND), (long)(until % VT_SECOND)};
    if (!d->poked && !atomic_load(&d->stop)) pthread_cond_timedwait(&d->wake, &d->lock, &at);
    pthread_mutex_unlock(&d->lock);
  }
  return NULL;
}
