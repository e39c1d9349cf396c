// SPDX-License-Identifier: Apache-2.0
// meeting.c - one run of a program whose replicas are started one by one, each on its device by a
// thread of its own, as PyTorch/XLA does (`torch_xla.launch`). A replica that comes gets its
// results at once, as buffers that are filled later; the last one starts the run for all.
//
// The n-th run of a program on one device belongs to the n-th on every other. Programs are the same
// if their bytes are: each thread may have compiled its own. Where each replica waits in a program
// that another one does not come to, they differ between their collectives only, and run as one
// (united.c).
#include "base/check.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALONE_S = 30 };
static const char parted_text[] =
    "the replicas run different programs, and each waits for the others";

typedef struct seat {        // what one replica brought
  vt_executable *executable; // NULL: it has not come
  uint64_t order;            // among the arrivals at all meetings
  vt_buffer **arguments;     // of our own
  vt_fill **fills;           // its results
  vt_event *done;
} seat;

struct vt_meeting {
  vt_meeting *next;
  uint64_t number;           // never reused by another meeting
  vt_executable *executable; // of the replica that came first
  vt_event *run;
  vt_waiter waiter;
  int32_t here; // replicas that came
  bool apart;   // each with a program of its own
  seat seats[]; // [device position]
};

// Replicas of other processes run the same program there.
static bool is_here(const vt_client *client, const vt_executable_info *info, int32_t position) {
  return client->devices[info->device_ids[position]].process == client->process;
}

static int32_t seats_here(const vt_client *client, const vt_executable_info *info) {
  int32_t count = 0;
  for (int32_t d = 0; d < info->partitions; d++) count += is_here(client, info, d);
  return count;
}

static void seat_free(seat *s) {
  vt_executable_release(s->executable);
  vt_event_release(s->done);
  free(s->arguments);
  free(s->fills);
  *s = (seat){0};
}

static void meeting_free(vt_meeting *m) {
  for (int32_t d = 0; d < m->executable->info.partitions; d++) seat_free(&m->seats[d]);
  vt_event_release(m->run);
  vt_executable_release(m->executable);
  free(m);
}

static vt_meeting *meeting_create(vt_executable *executable) {
  size_t devices = (size_t)executable->info.partitions;
  vt_meeting *m = calloc(1, sizeof *m + devices * sizeof *m->seats);
  if (m) m->executable = vt_executable_retain(executable);
  return m;
}

// Takes the error.
static void run_over(vt_status error, void *user) {
  vt_meeting *m = user;
  for (int32_t d = 0; d < m->executable->info.partitions; d++)
    if (m->seats[d].done) vt_event_complete(m->seats[d].done, vt_status_copy(error));
  vt_status_free(error);
  meeting_free(m);
}

static void destroy_arguments(vt_meeting *m) {
  for (int32_t d = 0; d < m->executable->info.partitions; d++)
    for (uint32_t i = 0; m->seats[d].executable && i < m->seats[d].executable->info.param_count;
         i++)
      vt_buffer_destroy(m->seats[d].arguments[i]);
}

// Takes the error.
static void meeting_fail(vt_meeting *m, vt_status error) {
  for (int32_t d = 0; d < m->executable->info.partitions; d++) {
    const seat *s = &m->seats[d];
    for (uint32_t i = 0; s->executable && i < s->executable->info.result_count; i++)
      vt_fill_finish(s->fills[i], vt_status_copy(error));
  }
  destroy_arguments(m);
  run_over(error, m);
}

// `out`: the results of one device, of which each is one of the replica's at most.
static void fill_results(const vt_executable *executable, int32_t device, const seat *s,
                         vt_buffer **out) {
  const vt_union *all = executable->options.all;
  const uint32_t *result_of = all ? all->result_of[all->program_of[device]] : NULL;
  for (uint32_t i = 0; i < s->executable->info.result_count; i++) {
    vt_status filled = vt_fill_from(s->fills[i], out[result_of ? result_of[i] : i]);
    if (filled) vt_fill_finish(s->fills[i], filled);
  }
  for (uint32_t i = 0; i < executable->info.result_count; i++) vt_buffer_destroy(out[i]);
}

// For a parameter that this replica's own program does not have.
static vt_status make_spare(vt_client *client, const vt_executable_info *info, uint32_t param,
                            int32_t device, vt_buffer **out) {
  const vt_io *io = &info->params[param];
  vt_memory *memory = &client->devices[info->device_ids[device]].memories[io->memory];
  vt_fill *fill;
  VT_TRY(vt_fill_create(memory, io->shard, io->custom_layout ? io->layout : NULL, &fill, out));
  static const char zeros[4096];
  vt_status st = VT_OK;
  for (int64_t at = 0, size = vt_fill_bytes(fill); at < size && !st; at += sizeof zeros) {
    int64_t rest = size - at;
    st =
        vt_fill_write(fill, at, zeros, rest < (int64_t)sizeof zeros ? rest : (int64_t)sizeof zeros);
  }
  vt_fill_finish(fill, st);
  return VT_OK;
}

// `row`: the arguments of one device. `spares` gets those that the replica did not bring.
static vt_status seat_arguments(vt_client *client, const vt_executable *executable, int32_t device,
                                const seat *s, vt_buffer **row, vt_buffer **spares) {
  const vt_union *all = executable->options.all;
  const uint32_t *param_of = all ? all->param_of[all->program_of[device]] : NULL;
  for (uint32_t i = 0; i < s->executable->info.param_count; i++)
    row[param_of ? param_of[i] : i] = s->arguments[i];
  for (uint32_t i = 0; i < executable->info.param_count; i++) {
    if (row[i]) continue;
    VT_TRY(make_spare(client, &executable->info, i, device, &spares[i]));
    row[i] = spares[i];
  }
  return VT_OK;
}

typedef struct rows { // [seat of this process]
  vt_buffer **arguments, **spares, **results;
  vt_buffer *const **argument_rows;
  vt_buffer ***result_rows;
} rows;

static vt_status rows_fill(rows *r, vt_client *client, const vt_executable *executable,
                           const vt_meeting *m) {
  const vt_executable_info *info = &executable->info;
  size_t devices = (size_t)info->partitions, params = info->param_count;
  r->arguments = calloc(devices * params + 1, sizeof(vt_buffer *));
  r->spares = calloc(devices * params + 1, sizeof(vt_buffer *));
  r->results = calloc(devices * info->result_count + 1, sizeof(vt_buffer *));
  r->argument_rows = calloc(devices, sizeof *r->argument_rows);
  r->result_rows = calloc(devices, sizeof *r->result_rows);
  if (!r->arguments || !r->spares || !r->results || !r->argument_rows || !r->result_rows)
    return vt_error_no_memory();
  size_t row = 0;
  for (int32_t d = 0; d < info->partitions; d++) {
    if (!is_here(client, info, d)) continue;
    r->argument_rows[row] = r->arguments + row * params;
    r->result_rows[row] = r->results + row * info->result_count;
    VT_TRY(seat_arguments(client, executable, d, &m->seats[d], r->arguments + row * params,
                          r->spares + row * params));
    row++;
  }
  return VT_OK;
}

static void rows_free(rows *r, const vt_executable_info *info) {
  for (size_t i = 0; r->spares && i < (size_t)info->partitions * info->param_count; i++)
    if (r->spares[i]) vt_buffer_destroy(r->spares[i]);
  free(r->arguments);
  free(r->spares);
  free(r->results);
  free(r->argument_rows);
  free(r->result_rows);
}

// All are here. `executable`: what they run.
static void meeting_run(vt_client *client, vt_meeting *m, vt_executable *executable) {
  const vt_executable_info *info = &executable->info;
  rows r = {0};
  vt_status st = rows_fill(&r, client, executable, m);
  vt_execution execution = {
      .arguments = r.argument_rows, .results = r.result_rows, .argument_count = info->param_count};
  if (!st) st = vt_executable_execute(client, executable, &execution, &m->run);
  if (st) {
    meeting_fail(m, st);
  } else {
    for (int32_t d = 0, row = 0; d < info->partitions; d++)
      if (is_here(client, info, d)) fill_results(executable, d, &m->seats[d], r.result_rows[row++]);
    destroy_arguments(m);
    vt_event_on_complete(m->run, &m->waiter, run_over, m);
  }
  rows_free(&r, info);
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
    if (same_program(&(*at)->executable->info, r->info) && !(*at)->seats[r->position].executable)
      return *at;
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

// The meeting that this device came to first, of those it waits in; NULL = none.
static vt_meeting *first_of(const vt_client *client, int32_t device, int32_t *out_position) {
  vt_meeting *found = NULL;
  for (vt_meeting *m = client->meetings; m; m = m->next) {
    const vt_executable_info *info = &m->executable->info;
    for (int32_t k = 0; k < info->partitions; k++) {
      if (!m->seats[k].executable || info->device_ids[k] != device) continue;
      if (found && found->seats[*out_position].order < m->seats[k].order) continue;
      found = m;
      *out_position = k;
    }
  }
  return found;
}

// All devices of a program wait in meetings. Replicas that run the same programs in the same order
// never do: the meeting of the one that is furthest behind would be complete.
static bool all_wait(const vt_client *client, const vt_executable_info *info) {
  int32_t position;
  for (int32_t i = 0; i < info->partitions; i++)
    if (is_here(client, info, i) && !first_of(client, info->device_ids[i], &position)) return false;
  return true;
}

// The replica in this seat is gone; its later runs of the same program move up.
static void vacate(vt_client *client, vt_meeting *m, int32_t position) {
  for (vt_meeting *later = m->next; later; later = later->next) {
    if (!later->seats[position].executable ||
        !same_program(&later->executable->info, &m->executable->info))
      continue;
    m->seats[position] = later->seats[position];
    m = later;
  }
  m->seats[position] = (seat){0};
  if (--m->here) return;
  leave(client, m);
  meeting_free(m);
}

// Replicas of which each waits in another program than some other: what each waits in first, as one
// meeting. NULL: these are not programs for the same devices, or memory is short.
static vt_meeting *take_firsts(vt_client *client, vt_executable *executable) {
  const vt_executable_info *info = &executable->info;
  int32_t position;
  for (int32_t i = 0; i < info->partitions; i++) {
    if (!is_here(client, info, i)) continue;
    const vt_executable_info *other =
        &first_of(client, info->device_ids[i], &position)->executable->info;
    if (other->partitions != info->partitions || other->replicas != info->replicas ||
        memcmp(other->device_ids, info->device_ids, sizeof(int32_t) * (size_t)info->partitions))
      return NULL;
  }
  vt_meeting *together = meeting_create(executable);
  for (int32_t i = 0; together && i < info->partitions; i++) {
    if (!is_here(client, info, i)) continue;
    vt_meeting *m = first_of(client, info->device_ids[i], &position);
    together->seats[i] = m->seats[position];
    together->here++;
    vacate(client, m, position);
  }
  if (together) together->apart = true;
  return together;
}

static vt_meeting *take_complete(vt_client *client) {
  vt_meeting *m = client->meetings;
  while (m && m->here < seats_here(client, &m->executable->info)) m = m->next;
  if (m) leave(client, m);
  return m;
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

// What can run now that the last replica has come, in order. With the client's lock held.
static vt_meeting *take_ready(vt_client *client, vt_executable *executable) {
  vt_meeting *ready = NULL, **end = &ready;
  for (;;) {
    vt_meeting *m = take_complete(client);
    if (!m && all_wait(client, &executable->info)) m = take_firsts(client, executable);
    if (!m) return ready;
    m->next = NULL;
    *end = m;
    end = &m->next;
  }
}

static vt_status run_apart(vt_client *client, vt_meeting *m) {
  size_t devices = (size_t)m->executable->info.partitions;
  vt_executable **each = calloc(devices, sizeof *each), *united = NULL;
  if (!each) return vt_error_no_memory();
  size_t first = 0;
  while (!m->seats[first].executable) first++;
  for (size_t d = 0; d < devices; d++) // of other processes any
    each[d] = m->seats[m->seats[d].executable ? d : first].executable;
  vt_status st = vt_executable_unite(each, &united);
  free(each);
  if (!st) meeting_run(client, m, united);
  return st;
}

// Replicas that once were not at the same collective never are again.
static void part(vt_client *client, vt_meeting *m, vt_status why) {
  vt_meeting *rest = NULL;
  if (vt_status_code(why) == VT_FAILED_PRECONDITION) {
    vt_lock(&client->lock);
    client->parted = true;
    rest = take_all(client);
    vt_unlock(&client->lock);
  }
  meeting_fail(m, why);
  fail_all(rest, VT_FAILED_PRECONDITION, parted_text);
}

static void run_ready(vt_client *client, vt_meeting *ready) {
  for (vt_meeting *m = ready, *next; m; m = next) {
    next = m->next;
    vt_status st = VT_OK;
    if (m->apart)
      st = run_apart(client, m);
    else
      meeting_run(client, m, m->executable);
    if (st) part(client, m, st);
  }
}

// Takes the replica's arguments and results.
static vt_status sit_down(vt_client *client, vt_executable *executable, replica *r,
                          vt_event **out_done) {
  vt_meeting *fresh = meeting_create(executable);
  vt_event *done = vt_event_create();
  if (!fresh || !done) {
    if (fresh) meeting_free(fresh);
    vt_event_release(done);
    return vt_error_no_memory();
  }
  *out_done = vt_event_retain(done);
  vt_lock(&client->lock);
  bool parted = client->parted;
  vt_meeting *m = find(client, r, &fresh);
  m->seats[r->position] =
      (seat){vt_executable_retain(executable), ++client->stamp, r->arguments, r->fills, done};
  m->here++;
  bool first = m->here == 1 && only_one_is_used(client);
  uint64_t number = m->number;
  vt_meeting *ready = parted ? NULL : take_ready(client, executable);
  vt_meeting *failed = parted ? take_all(client) : NULL;
  if (!ready && !failed && all_wait(client, r->info)) { // for other devices each
    client->parted = true;
    failed = take_all(client);
  }
  vt_unlock(&client->lock);
  if (fresh) meeting_free(fresh);
  fail_all(failed, VT_FAILED_PRECONDITION, parted_text);
  run_ready(client, ready);
  if (first && !ready && !failed) watch(client, number);
  return VT_OK;
}

static void destroy_results(const replica *r) {
  for (uint32_t i = 0; i < r->info->result_count; i++) {
    vt_fill_destroy(r->fills[i]);
    vt_buffer_destroy(r->execution->results[0][i]);
  }
}

static vt_status come(vt_client *client, vt_executable *executable, replica *r,
                      vt_event **out_done) {
  VT_TRY(make_results(r));
  vt_status st = hold_arguments(r, client);
  if (st) {
    destroy_results(r);
    return st;
  }
  st = sit_down(client, executable, r, out_done);
  if (!st) return VT_OK;
  destroy_results(r);
  for (uint32_t i = 0; i < r->info->param_count; i++) vt_buffer_destroy(r->arguments[i]);
  return st;
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
  if (!st) return VT_OK; // the meeting has both
  free(r.arguments);
  free(r.fills);
  return st;
}
