// SPDX-License-Identifier: Apache-2.0
// execute.c - one run of a program: shards of the arguments become whole arrays, the results become
// shards.
//
// Requirements:
//  1. No copy when an argument's shards already are the rectangles of one storage, or all devices
//     hold all of it. Otherwise the shards are gathered once, and from then on are rectangles of
//     the gathered array.
//  2. Everything that can fail is checked before anything changes: counts, shapes, places,
//     deleted or twice donated buffers, HBM. After that the call succeeds, and errors of the run go
//     to its event and results. Memory of the host that the call needs is taken before, too.
//  3. Donated buffers are deleted here; their memory is reused when the run, as it starts, holds
//     the only reference. The test is made at that point because earlier runs in the queue still
//     hold theirs.
//  4. If an argument is an error, the results are the same error.
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/predictions.h"
#include "runtime/run_job.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// The run itself ----------------------------------------------------------------------------------

static vt_status gather(vt_argument *arg) {
  vt_storage *whole = arg->storage;
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < arg->piece_count && !st; i++)
    st = vt_event_await(arg->pieces[i].from->ready);
  if (!st) st = vt_storage_allocate(whole, false);
  size_t element = vt_dtype_bytes(whole->type.dtype);
  int64_t dst_strides[VT_MAX_RANK], src_strides[VT_MAX_RANK];
  vt_type_strides(whole->type, dst_strides);
  for (int32_t d = 0; d < whole->type.rank; d++) dst_strides[d] *= (int64_t)element;
  for (uint32_t i = 0; i < arg->piece_count && !st && element; i++) {
    const vt_piece *p = &arg->pieces[i];
    char *dst = (char *)whole->data + vt_storage_at(whole, p->to_partial, p->to);
    const char *src = (const char *)p->from->data + vt_storage_at(p->from, p->partial, p->offset);
    vt_type_strides(p->from->type, src_strides);
    for (int32_t d = 0; d < whole->type.rank; d++) src_strides[d] *= (int64_t)element;
    vt_copy_strided(whole->type.rank, p->dims, element, dst, dst_strides, src, src_strides);
  }
  vt_event_complete(arg->gathered, vt_status_copy(st));
  return st;
}

static vt_status job_params(vt_run_job *job) {
  vt_assert(!job->refused && job->done);
  for (uint32_t p = 0; p < job->param_count; p++) {
    vt_argument *arg = &job->arguments[p];
    if (arg->gathered)
      VT_TRY(gather(arg));
    else
      VT_TRY(vt_event_await(arg->storage->ready));
    bool token = job->executable->info.params[p].type.dtype == VT_TOKEN;
    job->param_data[p] = token ? NULL : arg->storage->data;
    job->versions[p] = atomic_load(&arg->storage->out) ? 0 : arg->storage->id;
  }
  return VT_OK;
}

// Takes over the memory of donated arguments that nobody else references. Returns with all results
// allocated.
static vt_status job_results(vt_run_job *job) {
  for (uint32_t p = 0; p < job->param_count; p++) {
    vt_argument *arg = &job->arguments[p];
    int32_t r = job->executable->info.params[p].alias;
    if (!arg->donated || r < 0 || job->executable->zeros || atomic_load(&arg->storage->refs) != 1)
      continue;
    if (job->result_data[r] || !vt_program_may_alias(job->executable->program, p, (uint32_t)r))
      continue;
    vt_assert(vt_type_bytes(job->results[r]->type) == vt_type_bytes(arg->storage->type));
    vt_assert(!job->results[r]->data && !atomic_load(&arg->storage->out));
    job->result_data[r] = arg->storage->data;
    job->results[r]->data = arg->storage->data;
    arg->storage->data = NULL;
  }
  for (uint32_t r = 0; r < job->result_count; r++) {
    if (job->results[r]->type.dtype == VT_TOKEN) continue;
    VT_TRY(vt_storage_allocate(job->results[r], job->executable->zeros));
    job->result_data[r] = job->results[r]->data;
  }
  return VT_OK;
}

void vt_argument_drop_pieces(vt_argument *arg) {
  for (uint32_t i = 0; i < arg->piece_count; i++) vt_storage_release(arg->pieces[i].from);
  free(arg->pieces);
  arg->pieces = NULL;
  arg->piece_count = 0;
}

static void job_free(vt_run_job *job) {
  for (uint32_t p = 0; p < job->param_count; p++) {
    vt_argument *arg = &job->arguments[p];
    vt_argument_drop_pieces(arg);
    if (arg->gathered) {
      // Arguments after the failed one must not stay pending either.
      vt_event_complete(arg->gathered,
                        vt_error(VT_CANCELLED, "the run that gathers this array was given up"));
      vt_event_release(arg->gathered);
    }
    vt_storage_release(arg->storage);
  }
  for (uint32_t r = 0; r < job->result_count; r++) vt_storage_release(job->results[r]);
  vt_event_release(job->done);
  vt_launch_release(job->launch);
  vt_executable_release(job->executable);
  free(job);
}

static _Atomic(vt_run_observer) run_observer;

void vt_run_observe(vt_run_observer observer) {
  atomic_store(&run_observer, observer);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static vt_status job_program(vt_run_job *job) {
  vt_run run = {.params = job->param_data,
                .results = job->result_data,
                .versions = job->versions,
                .transfer = job->has_transfer ? &job->transfer.calls : NULL};
  vt_crossing_calls calls = {job->launch, run.transfer};
  vt_host_transfer shared;
  if (job->launch && job->executable->transfers) {
    shared = vt_launch_calls(&calls);
    run.transfer = &shared;
  }
  vt_crossing_meetings meetings;
  bool meets = job->launch && job->executable->parts > 1;
  if (meets) {
    VT_TRY(vt_launch_meetings(job->launch, &meetings));
    run.meetings = &meetings.calls;
  }
  vt_run_observer observer = atomic_load_explicit(&run_observer, memory_order_acquire);
  int64_t start = observer ? now_ns() : 0;
  uint64_t begun = vt_activity_begin();
  vt_status st = vt_program_run(job->executable->program, &run);
  if (meets) vt_launch_meetings_end(&meetings);
  vt_activity_end(begun, job->executable->info.roofline.seconds);
  if (observer) observer(job->executable, job->device, start, now_ns());
  return st ? vt_status_wrap(st, "%s", job->executable->info.name) : VT_OK;
}

// A run of a program that is only predicted.
static void job_is_seen(const vt_run_job *job) {
  vt_run_observer observer = atomic_load_explicit(&run_observer, memory_order_acquire);
  vt_activity_end(vt_activity_begin(), job->executable->info.roofline.seconds);
  if (observer) observer(job->executable, job->device, now_ns(), now_ns());
}

static void job_run(vt_job *base) {
  vt_run_job *job = (vt_run_job *)base;
  vt_status st = job->refused;
  if (!st) st = job_params(job);
  if (!st) st = job_results(job);
  if (!st && !job->executable->zeros) st = job_program(job);
  if (job->executable->unexecuted) job_is_seen(job);
  if (!st && job->executable->predicted) atomic_fetch_add(&job->executable->predicted->runs, 1);
  if (job->launch && (job->refused || job->executable->transfers || job->executable->parts > 1))
    vt_launch_over(job->launch, st);
  // Memory that only this run held is freed before anybody is notified: the next run finds it in
  // the pool.
  for (uint32_t p = 0; p < job->param_count; p++) {
    if (job->arguments[p].gathered) continue;
    vt_storage_release(job->arguments[p].storage);
    job->arguments[p].storage = NULL;
  }
  if (job->transfer.destroy) job->transfer.destroy(job->transfer.calls.user);
  vt_event_complete(job->done, st);
  job_free(job);
}

static vt_run_job *job_create(vt_executable *executable) {
  const vt_executable_info *info = &executable->info;
  size_t params = info->param_count, results = info->result_count;
  size_t bytes = sizeof(vt_run_job) + params * sizeof(vt_argument) +
                 results * sizeof(vt_storage *) + (params + results) * sizeof(void *) +
                 params * sizeof(uint64_t);
  vt_run_job *job = calloc(1, bytes);
  if (!job) return NULL;
  job->base.run = job_run;
  job->executable = vt_executable_retain(executable);
  job->done = vt_event_create();
  if (!job->done) {
    vt_executable_release(executable);
    free(job);
    return NULL;
  }
  job->param_count = info->param_count;
  job->result_count = info->result_count;
  job->arguments = (vt_argument *)(job + 1);
  job->results = (vt_storage **)(job->arguments + params);
  job->param_data = (void **)(job->results + results);
  job->result_data = job->param_data + params;
  job->versions = (uint64_t *)(job->result_data + results);
  return job;
}

// Checks ------------------------------------------------------------------------------------------

typedef struct call {
  vt_client *client;
  vt_executable *executable;
  const vt_executable_info *info;
  const vt_execution *execution;
  uint64_t stamp; // marks the buffers that this call donates
  // The devices of this process: how many, and the position of each in the assignment (NULL = all).
  // Lists of the execution have one row for each.
  int32_t here;
  int32_t *positions;
} call;

static int32_t position_of(const call *c, int32_t row) {
  return c->positions ? c->positions[row] : row;
}

static int32_t call_device(const call *c, int32_t row) {
  return c->execution->device ? c->execution->device->id : c->info->device_ids[position_of(c, row)];
}

static bool call_donates(const call *c, uint32_t p) {
  return c->info->params[p].donated && !(c->execution->keep && c->execution->keep[p]);
}

typedef struct mismatch {
  const char *program;
  uint32_t argument;
  vt_type have, want;
} mismatch;

static vt_status say_mismatch(void *user) {
  const mismatch *m = user;
  vt_text text = {0};
  vt_text_printf(&text, "%s: argument %u is ", m->program, m->argument);
  vt_type_print(&text, m->have);
  vt_text_put(&text, ", the program takes ");
  vt_type_print(&text, m->want);
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

static vt_status check_argument(const call *c, uint32_t p, int32_t row) {
  const vt_io *io = &c->info->params[p];
  const vt_buffer *buffer = c->execution->arguments[row][p];
  if (!buffer) return vt_error(VT_INVALID_ARGUMENT, "%s: argument %u is missing", c->info->name, p);
  if (!buffer->storage)
    return vt_error(VT_INVALID_ARGUMENT, "%s: argument %u was deleted or donated before this call",
                    c->info->name, p);
  if (buffer->memory->device->id != call_device(c, row))
    return vt_error(VT_INVALID_ARGUMENT, "%s: argument %u of device %d lies on device %d",
                    c->info->name, p, call_device(c, row), buffer->memory->device->id);
  vt_type have = vt_buffer_type(buffer);
  if (io->type.dtype == VT_TOKEN || vt_type_equal(have, io->shard)) return VT_OK;
  mismatch m = {c->info->name, p, have, io->shard};
  vt_attempt attempt; // the client is locked
  vt_status st = vt_attempt_run(&attempt, say_mismatch, &m);
  vt_attempt_end(&attempt);
  return st;
}

// A buffer passed twice may not be donated.
static vt_status check_donations(call *c, int32_t row) {
  vt_buffer *const *arguments = c->execution->arguments[row];
  for (uint32_t p = 0; p < c->info->param_count; p++) {
    if (!call_donates(c, p)) continue;
    if (arguments[p]->stamp == c->stamp)
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s: Attempt to donate the same buffer twice in Execute() (argument %u)",
                      c->info->name, p);
    arguments[p]->stamp = c->stamp;
  }
  for (uint32_t p = 0; p < c->info->param_count; p++)
    if (!call_donates(c, p) && arguments[p]->stamp == c->stamp)
      return vt_error(VT_INVALID_ARGUMENT,
                      "%s: argument %u is a buffer that the same call donates: f(donate(a), a)",
                      c->info->name, p);
  return VT_OK;
}

static int64_t donated_bytes(const call *c, int32_t row) {
  int64_t bytes = 0;
  for (uint32_t p = 0; p < c->info->param_count; p++)
    if (call_donates(c, p)) bytes += c->execution->arguments[row][p]->hbm_bytes;
  return bytes;
}

static vt_status check_call(call *c) {
  const vt_execution *execution = c->execution;
  if (execution->argument_count != c->info->param_count)
    return vt_error(VT_INVALID_ARGUMENT, "%s takes %u arguments, got %u", c->info->name,
                    c->info->param_count, execution->argument_count);
  for (int32_t d = 0; d < c->here; d++) {
    for (uint32_t p = 0; p < c->info->param_count; p++) VT_TRY(check_argument(c, p, d));
    VT_TRY(check_donations(c, d));
  }
  // The account is exact: with room for all results and temporaries, the run cannot fail later.
  for (int32_t d = 0; d < c->here; d++) {
    int64_t donated = donated_bytes(c, d),
            grow = c->info->output_bytes + c->info->temp_bytes - donated;
    vt_device *device = &c->client->devices[call_device(c, d)];
    if (grow > 0) VT_TRY(vt_hbm_fits(c->client, device, grow));
  }
  return VT_OK;
}

// Arguments and results ---------------------------------------------------------------------------

static bool same_dims(const int64_t *a, const int64_t *b, int32_t rank) {
  return rank == 0 || !memcmp(a, b, sizeof(int64_t) * (size_t)rank);
}

int64_t vt_io_partial(const vt_io *io, int32_t position) {
  return io->partial_of ? io->partial_of[position] : 0;
}

// The device whose value is taken where every device has one of its own. NULL: another process has
// it.
static const vt_buffer *taken_buffer(const call *c, uint32_t p) {
  int32_t owner = c->info->params[p].owner, row = 0;
  while (owner >= 0 && row < c->here && position_of(c, row) != owner) row++;
  return row < c->here ? c->execution->arguments[row][p] : NULL;
}

// Req. 1: the storage that the shards of this parameter already share in the right places, or NULL.
static vt_storage *shared_storage(const call *c, uint32_t p) {
  const vt_io *io = &c->info->params[p];
  const vt_buffer *taken = taken_buffer(c, p);
  if (!taken) return NULL;
  vt_storage *storage = taken->storage;
  if (io->type.dtype == VT_TOKEN) return storage;
  if (!same_dims(storage->dims, io->type.dims, io->type.rank) || storage->partials != io->partials)
    return NULL;
  if (io->replicated) return storage; // the shard is the whole array, so its offset is zero
  for (int32_t row = 0; row < c->here; row++) {
    const vt_buffer *buffer = c->execution->arguments[row][p];
    int32_t d = position_of(c, row);
    if (buffer->storage != storage || buffer->partial != vt_io_partial(io, d) ||
        !same_dims(buffer->offset, io->offsets + (ptrdiff_t)d * io->type.rank, io->type.rank))
      return NULL;
  }
  return storage;
}

vt_status vt_argument_gather(const vt_io *io, vt_argument *arg) {
  vt_assert(!arg->gathered && !arg->storage);
  arg->gathered = vt_event_create();
  if (arg->gathered) arg->storage = vt_storage_create(io->type, io->partials, arg->gathered);
  return arg->storage ? VT_OK : vt_error_no_memory();
}

static vt_status plan_pieces(const call *c, uint32_t p, vt_argument *arg) {
  const vt_io *io = &c->info->params[p];
  const vt_buffer *taken = io->replicated ? taken_buffer(c, p) : NULL;
  uint32_t count = !io->replicated ? (uint32_t)c->here : taken ? 1 : 0;
  size_t rank = (size_t)io->type.rank;
  arg->pieces = calloc((size_t)count + 1, sizeof *arg->pieces + rank * sizeof(int64_t));
  if (!arg->pieces) return vt_error_no_memory();
  for (uint32_t row = 0; row < count; row++) {
    const vt_buffer *buffer = taken ? taken : c->execution->arguments[row][p];
    vt_piece *part = &arg->pieces[arg->piece_count++];
    part->from = vt_storage_retain(buffer->storage);
    part->position = io->replicated && io->owner >= 0 ? io->owner : position_of(c, (int32_t)row);
    part->dims = io->shard.dims;
    part->to = io->replicated ? NULL : io->offsets + (ptrdiff_t)part->position * io->type.rank;
    part->partial = buffer->partial;
    part->to_partial = vt_io_partial(io, part->position);
    part->offset = (int64_t *)(arg->pieces + count + 1) + row * rank;
    if (rank) memcpy(part->offset, buffer->offset, rank * sizeof(int64_t));
  }
  return VT_OK;
}

// Storages whose last reference may be dropped; released after the client is unlocked.
typedef struct storages {
  size_t count;
  vt_storage **list; // with room for one of each argument
} storages;

// The devices hold different values where the program sees one: each keeps its own.
static bool differs(const call *c, uint32_t p) {
  for (int32_t row = 0; row < c->here; row++) {
    const vt_storage *storage = c->execution->arguments[row][p]->storage;
    if (storage && storage->partials != c->info->params[p].partials && storage->partials > 1)
      return true;
  }
  return false;
}

// Makes the shards of an argument rectangles of the array that the run uses, so that the next run
// finds them in place.
static void reseat(const call *c, uint32_t p, const vt_argument *arg, storages *unused) {
  vt_assert(arg->storage && !arg->donated);
  const vt_io *io = &c->info->params[p];
  if (io->type.dtype == VT_TOKEN || differs(c, p)) return;
  for (int32_t row = 0; row < c->here; row++) {
    vt_buffer *buffer = c->execution->arguments[row][p];
    int32_t d = position_of(c, row);
    if (io->owner >= 0 && d != io->owner) continue;
    if (buffer->storage == arg->storage || !buffer->storage || buffer->pins) continue;
    unused->list[unused->count++] = buffer->storage;
    buffer->storage = vt_storage_retain(arg->storage);
    buffer->partial = vt_io_partial(io, d);
    size_t bytes = sizeof(int64_t) * (size_t)io->type.rank;
    if (!bytes) continue;
    if (io->replicated)
      memset(buffer->offset, 0, bytes);
    else
      memcpy(buffer->offset, io->offsets + (ptrdiff_t)d * io->type.rank, bytes);
  }
}

// Allocates the host memory that the call needs. If that fails, the job is unchanged.
static vt_status prepare_arguments(const call *c, vt_run_job *job, storages *unused) {
  size_t room = (size_t)c->here * c->info->param_count;
  unused->list = malloc((room + 1) * sizeof(vt_storage *));
  if (!unused->list) return vt_error_no_memory();
  for (uint32_t p = 0; p < c->info->param_count; p++) {
    vt_argument *arg = &job->arguments[p];
    vt_storage *shared = shared_storage(c, p);
    if (shared && job->launch && vt_io_crosses(&c->info->params[p]) && !shared->agreed)
      shared = NULL; // only this process has it all
    vt_assert(!arg->storage && !arg->pieces);
    if (shared)
      arg->storage = vt_storage_retain(shared);
    else
      VT_TRY(vt_argument_gather(&c->info->params[p], arg));
    if (!shared || job->launch) VT_TRY(plan_pieces(c, p, arg));
    arg->donated = call_donates(c, p);
  }
  return VT_OK;
}

static vt_status prepare_results(const call *c, vt_run_job *job) {
  for (uint32_t r = 0; r < c->info->result_count; r++) {
    const vt_io *io = &c->info->results[r];
    job->results[r] = vt_storage_create(io->type, io->partials, job->done);
    if (!job->results[r]) return vt_error_no_memory();
    if (job->launch && !io->cut)
      job->results[r]->agreed = vt_launch_agreed(job->launch, 2 * (uint64_t)r);
    for (int32_t row = 0; row < c->here; row++) {
      vt_device *device = &c->client->devices[call_device(c, row)];
      int32_t d = position_of(c, row);
      const int64_t *offset = io->replicated ? NULL : io->offsets + (ptrdiff_t)d * io->type.rank;
      vt_buffer *buffer = vt_buffer_create(
          &device->memories[io->memory], job->results[r], io->shard, vt_io_partial(io, d), offset,
          io->custom_layout ? io->layout : NULL, io->shard_hbm_bytes);
      if (!buffer) return vt_error_no_memory();
      c->execution->results[row][r] = buffer;
    }
  }
  return VT_OK;
}

static void drop_results(const call *c) {
  for (uint32_t r = 0; r < c->info->result_count; r++)
    for (int32_t d = 0; d < c->here; d++) {
      vt_buffer_free(c->execution->results[d][r]);
      c->execution->results[d][r] = NULL;
    }
}

static vt_status prepare_call(const call *c, vt_run_job *job, storages *unused) {
  for (int32_t d = 0; d < c->here; d++)
    for (uint32_t r = 0; r < c->info->result_count; r++) c->execution->results[d][r] = NULL;
  vt_status st = prepare_arguments(c, job, unused);
  if (!st) st = prepare_results(c, job);
  if (st) drop_results(c);
  return st;
}

// Nothing fails from here on.
static void take_arguments(const call *c, vt_run_job *job, storages *unused) {
  for (uint32_t p = 0; p < c->info->param_count; p++) {
    vt_argument *arg = &job->arguments[p];
    if (!arg->donated) {
      if (c->info->partitions > 1) reseat(c, p, arg, unused);
      continue;
    }
    for (int32_t d = 0; d < c->here; d++) {
      vt_storage *storage = vt_buffer_detach(c->execution->arguments[d][p]);
      if (storage) unused->list[unused->count++] = storage;
    }
  }
}

static void enter_results(const call *c) {
  vt_assert_each(r, c->info->result_count, c->execution->results[0][r]);
  for (uint32_t r = 0; r < c->info->result_count; r++)
    for (int32_t d = 0; d < c->here; d++) {
      vt_buffer *buffer = c->execution->results[d][r];
      vt_status st = vt_hbm_take(c->client, buffer->memory->device, buffer->hbm_bytes);
      vt_assert(!st); // req. 2
      vt_status_free(st);
      vt_buffer_link(buffer);
    }
}

// Runs that wait for the client -------------------------------------------------------------------
//
// An argument may become ready only when the client acts, such as by filling a buffer: the executor
// must not wait for that, as other runs may be needed first. The run is queued when no such
// argument is left; until then its own results count as such, too.

static vt_event *missing(const vt_storage *storage) {
  bool pending = storage->outside && !vt_event_is_complete(storage->ready);
  return pending ? storage->ready : NULL;
}

static vt_event *job_waits_for(const vt_run_job *job) {
  for (uint32_t p = 0; p < job->param_count; p++) {
    const vt_argument *arg = &job->arguments[p];
    vt_event *event = arg->gathered ? NULL : missing(arg->storage);
    for (uint32_t i = 0; arg->gathered && !event && i < arg->piece_count; i++)
      event = missing(arg->pieces[i].from);
    if (event) return event;
  }
  return NULL;
}

static void job_submit(vt_run_job *job, vt_client *client, vt_submit how) {
  vt_status st = atomic_load(&client->closed)
                     ? vt_error(VT_CANCELLED, "%s: the client was closed before its arguments came",
                                job->executable->info.name)
                     : vt_executor_submit(&client->executor, &job->base, how);
  if (!st) return;
  vt_status_free(job->refused);
  job->refused = st;
  job_run(&job->base);
}

static void job_continue(vt_status error, void *user) {
  vt_run_job *job = user;
  vt_client *client = job->client;
  vt_status_free(error); // the run sees it again when it waits for its arguments
  vt_event *event = job->refused ? NULL : job_waits_for(job);
  if (event) {
    vt_event_on_complete(event, &job->waiter, job_continue, job);
    return;
  }
  job_submit(job, client, VT_SUBMIT_QUEUE);
  vt_client_release(client);
}

void vt_run_job_go(vt_run_job *job) {
  job_continue(VT_OK, job);
}

// With the client's lock held: buffers of others may show the gathered arguments already.
static vt_event *job_mark(vt_run_job *job) {
  vt_event *event = job_waits_for(job);
  if (!event && !job->launch) return NULL;
  for (uint32_t r = 0; r < job->result_count; r++) job->results[r]->outside = true;
  for (uint32_t p = 0; p < job->param_count; p++)
    if (job->arguments[p].gathered) job->arguments[p].storage->outside = true;
  return event;
}

static void job_start(vt_run_job *job, vt_client *client, vt_event *waits_for) {
  if (job->launch) {
    vt_client_retain(client);
    job->client = client;
    vt_executor_wait_for_room(&client->executor);
    vt_launch_start(job->launch);
    return;
  }
  if (!waits_for) {
    job_submit(job, client, job->executable->tiny ? VT_SUBMIT_INLINE : VT_SUBMIT_WAIT);
    return;
  }
  vt_client_retain(client);
  job->client = client;
  vt_event_on_complete(waits_for, &job->waiter, job_continue, job);
}

// Finds the arguments whose devices hold different values where the program takes one value. Only
// manual computations read each device's own value. What devices of other processes hold is not
// known: there, a storage with several values is reason enough.
static bool find_own(const call *c, bool *own) {
  bool any = false;
  if (!c->executable->manual || c->info->replicas > 1) return false;
  for (uint32_t p = 0; p < c->info->param_count; p++) {
    const vt_buffer *first = c->execution->arguments[0][p];
    own[p] = false;
    const vt_io *io = &c->info->params[p];
    if (io->partials > 1 || io->owner >= 0 || io->type.dtype == VT_TOKEN) continue;
    for (int32_t row = 0; row < c->here; row++) {
      const vt_buffer *buffer = c->execution->arguments[row][p];
      bool differs_from_first = buffer->partial != first->partial || c->positions;
      own[p] |= buffer->storage->partials > 1 && differs_from_first;
    }
    any |= own[p];
  }
  return any;
}

// The program for these arguments. If it cannot be compiled, the first device's values are used.
static vt_executable *executable_for(vt_executable *executable, const bool *own) {
  vt_executable *other = NULL;
  vt_status st = vt_executable_for_own(executable, own, &other);
  if (!st) return other;
  vt_log(VT_LOG_WARNING,
         "%s: arguments that differ from device to device are read on the first: %s",
         executable->info.name, vt_status_message(st));
  vt_status_free(st);
  return NULL;
}

// The devices of this process that run the program.
static vt_status find_here(call *c) {
  const vt_client *client = c->client;
  int32_t count = c->info->partitions;
  c->here = count;
  if (!client->crossing || c->execution->device) return VT_OK;
  c->positions = calloc((size_t)count, sizeof *c->positions);
  if (!c->positions) return vt_error_no_memory();
  c->here = 0;
  for (int32_t d = 0; d < count; d++)
    if (client->devices[c->info->device_ids[d]].process == client->process)
      c->positions[c->here++] = d;
  if (c->here < count) return VT_OK;
  free(c->positions); // all of them
  c->positions = NULL;
  return VT_OK;
}

// With the client's lock held, which is released for a while if a variant has to be compiled.
static vt_status check_and_choose(call *c) {
  VT_TRY(check_call(c));
  if (!c->executable->manual || c->info->partitions == 1) return VT_OK;
  bool *own = calloc(c->info->param_count + 1, sizeof *own);
  if (!own) return vt_error_no_memory();
  vt_status st = VT_OK;
  if (find_own(c, own)) {
    vt_unlock(&c->client->lock); // compilation may take long
    vt_executable *other = executable_for(c->executable, own);
    if (other) c->executable = other, c->info = &other->info;
    vt_lock(&c->client->lock);
    c->stamp = ++c->client->stamp;
    st = check_call(c);
  }
  free(own);
  return st;
}

// A program of which each process starts its replica, on its device.
static bool is_only_one_here(const call *c, const vt_device *device) {
  return c->client->crossing && c->here == 1 && c->positions &&
         c->info->device_ids[c->positions[0]] == device->id;
}

// Makes the job, and changes what the call changes.
static vt_status enter_call(call *c, storages *unused, vt_run_job **out_job) {
  vt_run_job *job = job_create(c->executable);
  vt_status st = job ? VT_OK : vt_error_no_memory();
  if (!st && c->positions) st = vt_launch_create(c->client, job, &job->launch);
  if (!st) st = prepare_call(c, job, unused);
  if (st) {
    if (job && job->launch) vt_launch_abandon(job->launch);
    if (job) job->launch = NULL;
    if (job) job_free(job);
    return st;
  }
  take_arguments(c, job, unused);
  enter_results(c);
  job->device = c->execution->device ? c->execution->device->id : -1;
  if (c->execution->transfer) {
    job->transfer = *c->execution->transfer;
    job->has_transfer = true;
  }
  *out_job = job;
  return VT_OK;
}

static vt_status execute(call *c, vt_event **out_done) {
  storages unused = {0};
  vt_run_job *job = NULL;
  vt_lock(&c->client->lock);
  c->stamp = ++c->client->stamp;
  vt_status st = check_and_choose(c);
  if (!st) st = enter_call(c, &unused, &job);
  if (st) {
    vt_unlock(&c->client->lock);
    free(unused.list);
    return st;
  }
  *out_done = vt_event_retain(job->done);
  vt_event *waits_for = job_mark(job);
  vt_unlock(&c->client->lock);
  vt_assert(unused.count <= (size_t)c->here * c->info->param_count);
  for (size_t i = 0; i < unused.count; i++) vt_storage_release(unused.list[i]);
  free(unused.list);
  job_start(job, c->client, waits_for);
  return VT_OK;
}

vt_status vt_executable_execute(vt_client *client, vt_executable *executable,
                                const vt_execution *execution, vt_event **out_done) {
  vt_execution assigned = *execution;
  call c = {.client = client,
            .executable = executable,
            .info = &executable->info,
            .execution = execution};
  bool met = false;
  vt_clock_time came = {0};
  if (executable->predicted) came = vt_clock_now();
  vt_status st = vt_fork_check();
  if (!st && execution->device && c.info->partitions != 1) {
    st = vt_executable_alone(executable, &c.executable); // may compile
    if (!st && c.executable) {
      c.info = &c.executable->info;
      c.here = 1;
    } else if (!st) {
      c.executable = executable;
      assigned.device = NULL;
      c.execution = &assigned;
      st = find_here(&c);
      if (!st && !is_only_one_here(&c, execution->device)) {
        st = vt_meeting_come(client, executable, execution, out_done);
        met = !st;
      }
    }
  } else if (!st) {
    st = find_here(&c);
  }
  if (!st && !met && !c.here) {
    free(c.positions);
    *out_done = vt_event_done(); // others run it
    if (execution->transfer && execution->transfer->destroy)
      execution->transfer->destroy(execution->transfer->calls.user);
    return VT_OK;
  }
  if (!st && !met) st = execute(&c, out_done);
  if (!st && executable->predicted) vt_clock_launch(executable, &came);
  free(c.positions);
  if (st && execution->transfer && execution->transfer->destroy)
    execution->transfer->destroy(execution->transfer->calls.user);
  return st;
}
