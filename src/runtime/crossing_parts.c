// SPDX-License-Identifier: Apache-2.0
// crossing_parts.c - which parts of a run's arguments which process sends to whom.
//
// All processes have heard the same words, so each finds the same answer: an argument travels
// unless all hold the same whole array. Of devices with equal parts the first in the assignment
// sends, to the processes that have no device with that part.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/crossing.h"

bool vt_io_crosses(const vt_io *io) {
  return io->type.dtype != VT_TOKEN && !io->within && (!io->replicated || io->owner >= 0);
}

// ---- who has what -------------------------------------------------------------------------------

static bool same_part(const vt_io *io, int32_t a, int32_t b) {
  if (io->owner >= 0) return a == b;
  size_t rank = (size_t)io->type.rank;
  return vt_io_partial(io, a) == vt_io_partial(io, b) &&
         (!rank || !memcmp(io->offsets + (size_t)a * rank, io->offsets + (size_t)b * rank,
                           rank * sizeof(int64_t)));
}

// The first device with the part of `position`.
static bool is_first(const vt_io *io, int32_t position) {
  if (io->owner >= 0) return position == io->owner;
  for (int32_t d = 0; d < position; d++)
    if (same_part(io, d, position)) return false;
  return true;
}

static bool has_part(const vt_launch *launch, const vt_io *io, int32_t process, int32_t position) {
  int32_t partitions = launch->job->executable->info.partitions;
  for (int32_t d = 0; d < partitions; d++)
    if (vt_crossing_process(launch, d) == process && same_part(io, d, position)) return true;
  return false;
}

// Whether a part of an argument is still to come from a process. The run is decided.
bool vt_parts_come_from(const vt_launch *launch, int32_t process) {
  const vt_executable_info *info = &launch->job->executable->info;
  for (uint32_t p = 0; p < info->param_count && launch->parts_missing; p++) {
    const vt_io *io = &info->params[p];
    if (!launch->job->arguments[p].gathered || !vt_io_crosses(io)) continue;
    for (int32_t d = 0; d < info->partitions; d++)
      if (vt_crossing_process(launch, d) == process && is_first(io, d) &&
          !has_part(launch, io, launch->crossing->process, d) &&
          !launch->came[p * (size_t)info->partitions + (size_t)d])
        return true;
  }
  return false;
}

// ---- arrival ------------------------------------------------------------------------------------

static vt_status begin_gather(vt_launch *launch, uint32_t p) {
  const vt_executable_info *info = &launch->job->executable->info;
  vt_argument *arg = &launch->job->arguments[p];
  if (!launch->came) launch->came = calloc((size_t)info->param_count * (size_t)info->partitions, 1);
  if (!launch->came) return vt_error_no_memory();
  if (!arg->gathered) { // whole here, but not in all processes
    vt_storage_release(arg->storage);
    arg->storage = NULL;
    VT_TRY(vt_argument_gather(&info->params[p], arg));
    arg->storage->outside = true;
  }
  return vt_storage_allocate(arg->storage, false);
}

bool vt_part_fits(const vt_launch *launch, int32_t from, const vt_word *word, uint64_t size) {
  const vt_executable_info *info = &launch->job->executable->info;
  if (word->index >= info->param_count || word->position >= (uint32_t)info->partitions)
    return false;
  const vt_io *io = &info->params[word->index];
  return vt_io_crosses(io) && vt_crossing_process(launch, (int32_t)word->position) == from &&
         is_first(io, (int32_t)word->position) &&
         !has_part(launch, io, launch->crossing->process, (int32_t)word->position) &&
         size == (uint64_t)vt_type_bytes(io->shard) &&
         !(launch->came && launch->came[word->index * (size_t)info->partitions + word->position]);
}

vt_status vt_part_take(vt_launch *launch, const vt_word *word, vt_bytes body) {
  const vt_executable_info *info = &launch->job->executable->info;
  uint32_t p = (uint32_t)word->index;
  int32_t d = (int32_t)word->position;
  const vt_io *io = &info->params[p];
  VT_TRY(begin_gather(launch, p));
  vt_storage *whole = launch->job->arguments[p].storage;
  int64_t to[VT_MAX_RANK], from[VT_MAX_RANK];
  size_t element = vt_dtype_bytes(io->type.dtype);
  vt_type_strides(io->type, to);
  vt_type_strides(io->shard, from);
  for (int32_t i = 0; i < io->type.rank; i++) {
    to[i] *= (int64_t)element;
    from[i] *= (int64_t)element;
  }
  const int64_t *offset = io->replicated ? NULL : io->offsets + (ptrdiff_t)d * io->type.rank;
  char *at = (char *)whole->data + vt_storage_at(whole, vt_io_partial(io, d), offset);
  if (body.size) vt_copy_strided(io->type.rank, io->shard.dims, element, at, to, body.data, from);
  launch->came[p * (size_t)info->partitions + word->position] = 1;
  launch->parts_missing--;
  return VT_OK;
}

// ---- departure ----------------------------------------------------------------------------------

struct vt_parcel {
  vt_parcel *next;
  vt_launch *launch;         // retained
  vt_executable *executable; // for the shape
  vt_storage *from;
  uint32_t param;
  int32_t position, count;
  atomic_int refs;
  int64_t partial, offset[VT_MAX_RANK];
  void *packed; // NULL: sent as it lies
  int32_t to[]; // [count] processes
};

static void parcel_release(vt_parcel *parcel) {
  if (atomic_fetch_sub(&parcel->refs, 1) != 1) return;
  vt_storage_release(parcel->from);
  vt_executable_release(parcel->executable);
  free(parcel->packed);
  free(parcel);
}

// One of the parcel's sends is over, or will never be.
static void sent(void *user, vt_status error) {
  vt_parcel *parcel = user;
  vt_launch *launch = parcel->launch;
  vt_crossing *crossing = launch->crossing;
  vt_status_free(error); // whoever is lost, is lost to the run by its own way
  pthread_mutex_lock(&crossing->lock);
  launch->sends_missing--;
  bool ends = vt_launch_ends(launch);
  pthread_mutex_unlock(&crossing->lock);
  if (ends) vt_launch_hand_on(launch);
  vt_launch_release(launch);
  parcel_release(parcel);
}

// The part as one run of memory: where it lies if it is one, else a copy.
static vt_status pack(vt_parcel *parcel, vt_bytes *out_bytes) {
  const vt_io *io = &parcel->executable->info.params[parcel->param];
  vt_storage *from = parcel->from;
  int64_t to_strides[VT_MAX_RANK], from_strides[VT_MAX_RANK];
  size_t element = vt_dtype_bytes(io->type.dtype), size = (size_t)vt_type_bytes(io->shard);
  *out_bytes = (vt_bytes){NULL, size};
  if (!size) return VT_OK;
  const char *at = (const char *)from->data + vt_storage_at(from, parcel->partial, parcel->offset);
  bool dense = true, part = false;
  for (int32_t i = io->shard.rank; i-- > 0;) {
    dense = dense && !(part && io->shard.dims[i] > 1);
    part = part || io->shard.dims[i] != from->dims[i];
  }
  out_bytes->data = (const uint8_t *)at;
  if (dense) return VT_OK;
  out_bytes->data = parcel->packed = malloc(size);
  if (!parcel->packed) return vt_error_no_memory();
  vt_type_strides(io->shard, to_strides);
  vt_type_strides(from->type, from_strides);
  for (int32_t i = 0; i < io->shard.rank; i++) {
    to_strides[i] *= (int64_t)element;
    from_strides[i] *= (int64_t)element;
  }
  vt_copy_strided(io->shard.rank, io->shard.dims, element, parcel->packed, to_strides, at,
                  from_strides);
  return VT_OK;
}

static void say_failure(const vt_parcel *parcel, vt_status error) {
  vt_word word = {
      .kind = VT_WORD_FAILURE,
      .group = parcel->launch->group,
      .number = parcel->launch->number,
      .code = vt_status_code(error),
      .text = {(const uint8_t *)vt_status_message(error), vt_status_message_size(error)}};
  for (int32_t i = 0; i < parcel->count; i++) vt_launch_send(parcel->launch, parcel->to[i], &word);
}

static void ready(vt_status error, void *user) {
  vt_parcel *parcel = user;
  int32_t count = parcel->count;
  vt_bytes body = {0};
  if (atomic_load(&parcel->launch->crossing->closed) && !error)
    error = vt_error(VT_CANCELLED, "the client was closed");
  else if (!error && (error = pack(parcel, &body)))
    say_failure(parcel, error);
  else if (error)
    say_failure(parcel, error);
  vt_word word = {.kind = VT_WORD_PART,
                  .group = parcel->launch->group,
                  .number = parcel->launch->number,
                  .index = parcel->param,
                  .position = (uint32_t)parcel->position};
  vt_text head = {0};
  vt_word_write(&word, &head);
  for (int32_t i = 0; i < count; i++) { // the last one may free the parcel
    int32_t to = parcel->to[i];
    vt_peers *peers = parcel->launch->crossing->peers;
    if (error)
      sent(parcel, NULL);
    else
      vt_peers_send(peers, to, (vt_bytes){(const uint8_t *)head.data, head.size}, body, sent,
                    parcel);
  }
  vt_text_free(&head);
  vt_status_free(error);
}

static vt_status make_parcel(vt_launch *launch, uint32_t p, const vt_piece *piece,
                             vt_parcel **parcels) {
  const vt_io *io = &launch->job->executable->info.params[p];
  vt_parcel *parcel = calloc(1, sizeof *parcel + (size_t)launch->count * sizeof(int32_t));
  if (!parcel) return vt_error_no_memory();
  for (int32_t m = 0; m < launch->count; m++)
    if (!has_part(launch, io, launch->members[m], piece->position))
      parcel->to[parcel->count++] = launch->members[m];
  if (parcel->count == 0) {
    free(parcel);
    return VT_OK;
  }
  parcel->launch = launch;
  atomic_fetch_add(&launch->refs, parcel->count);
  launch->sends_missing += parcel->count;
  atomic_init(&parcel->refs, parcel->count);
  parcel->executable = vt_executable_retain(launch->job->executable);
  parcel->from = vt_storage_retain(piece->from);
  parcel->param = p;
  parcel->position = piece->position;
  parcel->partial = piece->partial;
  if (io->type.rank) memcpy(parcel->offset, piece->offset, (size_t)io->type.rank * sizeof(int64_t));
  parcel->next = *parcels;
  *parcels = parcel;
  return VT_OK;
}

void vt_parts_send(vt_parcel *parcels) {
  for (vt_parcel *next; parcels; parcels = next) {
    next = parcels->next;
    vt_status st = vt_event_call(parcels->from->ready, ready, parcels);
    if (st) ready(st, parcels);
  }
}

// ---- the decision -------------------------------------------------------------------------------

static bool is_agreed(const vt_launch *launch, uint32_t p) {
  const vt_argument *arg = &launch->job->arguments[p];
  uint64_t mine = arg->gathered ? 0 : arg->storage->agreed;
  for (const vt_said *said = launch->said; said && mine; said = said->next)
    if (vt_word_agreed(&said->word, p) != mine) mine = 0;
  return mine != 0;
}

vt_status vt_parts_decide(vt_launch *launch, vt_parcel **out_parcels) {
  const vt_executable_info *info = &launch->job->executable->info;
  int32_t here = launch->crossing->process;
  for (uint32_t p = 0; p < info->param_count; p++) {
    const vt_io *io = &info->params[p];
    vt_argument *arg = &launch->job->arguments[p];
    if (!vt_io_crosses(io) || is_agreed(launch, p)) {
      if (!arg->gathered) vt_argument_drop_pieces(arg);
      continue;
    }
    VT_TRY(begin_gather(launch, p));
    for (int32_t d = 0; d < info->partitions; d++)
      if (is_first(io, d) && !has_part(launch, io, here, d)) launch->parts_missing++;
    for (uint32_t i = 0; i < arg->piece_count; i++)
      if (is_first(io, arg->pieces[i].position))
        VT_TRY(make_parcel(launch, p, &arg->pieces[i], out_parcels));
  }
  return VT_OK;
}
