// SPDX-License-Identifier: Apache-2.0
// meeting.c - one run of a program whose replicas are started one by one, each on its device by a
// thread of its own, as PyTorch/XLA does (`torch_xla.launch`). A replica that comes gets its
// results at once, as buffers that are filled later; the last one starts the run for all.
//
// The n-th run of a program on one device belongs to the n-th on every other. Programs are the same
// if their bytes are: each thread may have compiled its own.
#include "base/check.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALONE_S = 30 };

struct vt_meeting {
  vt_meeting *next;
  uint64_t number;           // never reused by another meeting
  vt_executable *executable; // of the replica that came first
  vt_event *done, *run;
  vt_waiter waiter;
  int32_t here; // replicas that came
  bool *came;
  vt_buffer **arguments; // [device position][parameter], of our own
  vt_fill **fills;       // [device position][result]
};

static void meeting_free(vt_meeting *m) {
  vt_event_release(m->done);
  vt_event_release(m->run);
  vt_executable_release(m->executable);
  free(m->came);
  free(m->arguments);
  free(m->fills);
  free(m);
}

static vt_meeting *meeting_create(vt_executable *executable) {
  const vt_executable_info *info = &executable->info;
  size_t devices = (size_t)info->partitions;
  vt_meeting *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->executable = vt_executable_retain(executable);
  m->done = vt_event_create();
  m->came = calloc(devices, sizeof *m->came);
  m->arguments = calloc(devices * info->param_count + 1, sizeof(vt_buffer *));
  m->fills = calloc(devices * info->result_count + 1, sizeof(vt_fill *));
  if (m->done && m->came && m->arguments && m->fills) return m;
  meeting_free(m);
  return NULL;
}

static void run_over(vt_status error, void *user) {
  vt_meeting *m = user;
  vt_event_complete(m->done, error);
  meeting_free(m);
}

static void destroy_arguments(vt_meeting *m) {
  size_t count = (size_t)m->executable->info.partitions * m->executable->info.param_count;
  for (size_t i = 0; i < count; i++) vt_buffer_destroy(m->arguments[i]);
}

// Takes the error.
static void meeting_fail(vt_meeting *m, vt_status error) {
  const vt_executable_info *info = &m->executable->info;
  for (size_t i = 0; i < (size_t)info->partitions * info->result_count; i++)
    if (m->fills[i]) vt_fill_finish(m->fills[i], vt_status_copy(error));
  destroy_arguments(m);
  run_over(error, m);
}

// All are here.
static void meeting_run(vt_client *client, vt_meeting *m) {
  const vt_executable_info *info = &m->executable->info;
  size_t devices = (size_t)info->partitions, params = info->param_count,
         results = info->result_count;
  vt_buffer **out = calloc(devices * results + 1, sizeof *out);
  vt_buffer ***out_rows = calloc(devices, sizeof *out_rows);
  vt_buffer *const **rows = calloc(devices, sizeof *rows);
  vt_status st = out && out_rows && rows ? VT_OK : vt_error_no_memory();
  for (size_t d = 0; d < devices && !st; d++) {
    out_rows[d] = out + d * results;
    rows[d] = m->arguments + d * params;
  }
  vt_execution execution = {
      .arguments = rows, .results = out_rows, .argument_count = info->param_count};
  if (!st) st = vt_executable_execute(client, m->executable, &execution, &m->run);
  if (st) {
    meeting_fail(m, st);
  } else {
    for (size_t i = 0; i < devices * results; i++) {
      vt_status filled = vt_fill_from(m->fills[i], out[i]);
      if (filled) vt_fill_finish(m->fills[i], filled);
      vt_buffer_destroy(out[i]);
    }
    destroy_arguments(m);
    vt_event_on_complete(m->run, &m->waiter, run_over, m);
  }
  free(out);
  free(out_rows);
  free(rows);
}

// ---- one replica --------------------------------------------------------------------------------

typedef struct replica {
  const vt_executable_info *info;
  const vt_execution *execution;
  int32_t position;
  vt_buffer **arguments;
  vt_fill **fills;
} replica;

static bool donates(const replica *r, uint32_t p) {
  return r->info->params[p].donated && !(r->execution->keep && r->execution->keep[p]);
}

// With the client's lock held.
static vt_status check_arguments(const replica *r, vt_client *client) {
  vt_buffer *const *given = r->execution->arguments[0];
  uint64_t stamp = ++client->stamp;
  for (uint32_t p = 0; p < r->info->param_count; p++) {
    if (!given[p] || !given[p]->storage)
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s: argument %u was deleted or donated before this call", r->info->name, p);
    if (!donates(r, p)) continue;
    if (given[p]->stamp == stamp)
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s: Attempt to donate the same buffer twice in Execute() (argument %u)",
                      r->info->name, p);
    given[p]->stamp = stamp;
  }
  for (uint32_t p = 0; p < r->info->param_count; p++)
    if (!donates(r, p) && given[p]->stamp == stamp)
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s: argument %u is a buffer that the same call donates: f(donate(a), a)",
                      r->info->name, p);
  return VT_OK;
}

// The caller may destroy its arguments as soon as this call returns, so the meeting has buffers of
// its own over the same storages. Only those of donated arguments count in HBM.
static vt_status hold_arguments(replica *r, vt_client *client) {
  vt_buffer *const *given = r->execution->arguments[0];
  uint32_t count = r->info->param_count;
  vt_storage **taken = calloc(count + 1, sizeof(vt_storage *));
  if (!taken) return vt_error_no_memory();
  vt_lock(&client->lock);
  vt_status st = check_arguments(r, client);
  for (uint32_t p = 0; p < count && !st; p++) {
    const vt_buffer *b = given[p];
    r->arguments[p] = vt_buffer_create(b->memory, b->storage, vt_buffer_type(b), b->partial,
                                       b->offset, b->layout, donates(r, p) ? b->hbm_bytes : 0);
    if (!r->arguments[p]) st = vt_error_no_memory();
  }
  for (uint32_t p = 0; p < count && !st; p++) {
    if (donates(r, p)) {
      taken[p] = vt_buffer_detach(given[p]);
      vt_status fits = vt_hbm_take(client, given[p]->memory->device, r->arguments[p]->hbm_bytes);
      vt_assert(!fits); // the donated buffer has just given these bytes back
      vt_status_free(fits);
    }
    vt_buffer_link(r->arguments[p]);
  }
  vt_unlock(&client->lock);
  for (uint32_t p = 0; p < count; p++) {
    vt_storage_release(taken[p]);
    if (st) vt_buffer_free(r->arguments[p]);
  }
  free(taken);
  return st;
}

static vt_status make_results(replica *r) {
  vt_device *device = r->execution->device;
  vt_buffer **out = r->execution->results[0];
  vt_status st = VT_OK;
  uint32_t made = 0;
  for (; made < r->info->result_count && !st; made++) {
    const vt_io *io = &r->info->results[made];
    st = vt_fill_create(&device->memories[io->memory], io->shard,
                        io->custom_layout ? io->layout : NULL, &r->fills[made], &out[made]);
  }
  for (uint32_t i = 0; st && i + 1 < made; i++) {
    vt_fill_destroy(r->fills[i]);
    vt_buffer_destroy(out[i]);
  }
  return st;
}

// ---- meeting ------------------------------------------------------------------------------------

static bool same_program(const vt_executable_info *a, const vt_executable_info *b) {
  return a->fingerprint == b->fingerprint && a->partitions == b->partitions &&
         a->program.size == b->program.size &&
         memcmp(a->program.data, b->program.data, a->program.size) == 0;
}

// With the client's lock held: the first meeting that waits for this replica, else `fresh`.
static vt_meeting *find(vt_client *client, const replica *r, vt_meeting **fresh) {
  vt_meeting **at = &client->meetings;
  for (; *at; at = &(*at)->next)
    if (same_program(&(*at)->executable->info, r->info) && !(*at)->came[r->position]) return *at;
  vt_meeting *m = *at = *fresh;
  m->number = ++client->stamp;
  *fresh = NULL;
  return m;
}

static void leave(vt_client *client, const vt_meeting *m) {
  vt_meeting **at = &client->meetings;
  while (*at != m) at = &(*at)->next;
  *at = m->next;
}

// All devices of a program wait in meetings. Replicas that run the same programs in the same order
// never do: the meeting of the one that is furthest behind would be complete.
static bool all_wait(const vt_client *client, const vt_executable_info *info) {
  for (int32_t i = 0; i < info->partitions; i++) {
    bool waits = false;
    for (const vt_meeting *m = client->meetings; m && !waits; m = m->next) {
      const vt_executable_info *other = &m->executable->info;
      for (int32_t k = 0; k < other->partitions; k++)
        waits |= m->came[k] && other->device_ids[k] == info->device_ids[i];
    }
    if (!waits) return false;
  }
  return true;
}

static bool only_one_is_used(const vt_client *client) {
  int used = 0;
  for (int32_t d = 0; d < client->device_count; d++) used += client->accounts[d].allocs > 0;
  return used < 2;
}

typedef struct patience {
  vt_client *client;
  uint64_t number;
} patience;

// A program that uses one device only waits for replicas that nobody starts.
static void *lose_patience(void *user) {
  patience p = *(patience *)user;
  free(user);
  sleep(ALONE_S);
  vt_lock(&p.client->lock);
  vt_meeting *m = p.client->meetings;
  while (m && m->number != p.number) m = m->next;
  if (m && !only_one_is_used(p.client)) m = NULL;
  if (m) leave(p.client, m);
  vt_unlock(&p.client->lock);
  if (m)
    meeting_fail(m, vt_error(VT_FAILED_PRECONDITION,
                             "%s runs on %d devices at once: each takes part in what the others "
                             "compute, and in %d s no other one was started",
                             m->executable->info.name, m->executable->info.partitions, ALONE_S));
  vt_client_release(p.client);
  return NULL;
}

static void watch(vt_client *client, uint64_t number) {
  pthread_t thread;
  patience *p = malloc(sizeof *p);
  if (!p) return;
  *p = (patience){client, number};
  vt_client_retain(client);
  if (pthread_create(&thread, NULL, lose_patience, p) == 0) {
    pthread_detach(thread);
    return;
  }
  vt_client_release(client);
  free(p);
}

static void fail_all(vt_meeting *all, vt_code code, const char *why) {
  for (vt_meeting *next; all; all = next) {
    next = all->next;
    meeting_fail(all, vt_error(code, "%s: %s", all->executable->info.name, why));
  }
}

static vt_meeting *take_all(vt_client *client) {
  vt_meeting *all = client->meetings;
  client->meetings = NULL;
  return all;
}

void vt_meetings_cancel(vt_client *client) {
  vt_lock(&client->lock);
  vt_meeting *all = take_all(client);
  vt_unlock(&client->lock);
  fail_all(all, VT_CANCELLED, "the client was closed before all replicas came");
}

static vt_status come(vt_client *client, vt_executable *executable, replica *r,
                      vt_event **out_done) {
  size_t params = r->info->param_count, results = r->info->result_count, at = (size_t)r->position;
  vt_meeting *fresh = meeting_create(executable);
  if (!fresh) return vt_error_no_memory();
  vt_status st = make_results(r);
  if (st) {
    meeting_free(fresh);
    return st;
  }
  st = hold_arguments(r, client);
  if (st) {
    for (size_t i = 0; i < results; i++) {
      vt_fill_destroy(r->fills[i]);
      vt_buffer_destroy(r->execution->results[0][i]);
    }
    meeting_free(fresh);
    return st;
  }
  vt_lock(&client->lock);
  vt_meeting *m = find(client, r, &fresh);
  memcpy(m->arguments + at * params, r->arguments, params * sizeof(vt_buffer *));
  memcpy(m->fills + at * results, r->fills, results * sizeof(vt_fill *));
  m->came[at] = true;
  bool all = ++m->here == r->info->partitions;
  bool first = m->here == 1 && only_one_is_used(client);
  uint64_t number = m->number;
  if (all) leave(client, m);
  vt_meeting *stuck = !all && all_wait(client, r->info) ? take_all(client) : NULL;
  *out_done = vt_event_retain(m->done);
  vt_unlock(&client->lock);
  if (fresh) meeting_free(fresh);
  if (all)
    meeting_run(client, m);
  else if (stuck)
    fail_all(stuck, VT_FAILED_PRECONDITION,
             "the replicas run different programs, and each waits for the others");
  else if (first)
    watch(client, number);
  return VT_OK;
}

vt_status vt_meeting_come(vt_client *client, vt_executable *executable,
                          const vt_execution *execution, vt_event **out_done) {
  replica r = {.info = &executable->info, .execution = execution, .position = -1};
  for (int32_t d = 0; d < r.info->partitions; d++)
    if (r.info->device_ids[d] == execution->device->id) r.position = d;
  if (r.position < 0)
    return vt_error(VT_INVALID_ARGUMENT, "%s does not run on device %d", r.info->name,
                    execution->device->id);
  if (execution->transfer)
    return vt_error(VT_UNIMPLEMENTED, "%s: replicas that are started one by one talk to the host",
                    r.info->name);
  if (execution->argument_count != r.info->param_count)
    return vt_error(VT_INVALID_ARGUMENT, "%s takes %u arguments, got %u", r.info->name,
                    r.info->param_count, execution->argument_count);
  r.arguments = calloc(r.info->param_count + 1, sizeof *r.arguments);
  r.fills = calloc(r.info->result_count + 1, sizeof *r.fills);
  vt_status st =
      r.arguments && r.fills ? come(client, executable, &r, out_done) : vt_error_no_memory();
  free(r.arguments);
  free(r.fills);
  return st;
}
