// SPDX-License-Identifier: Apache-2.0
// crossing_transfers.c - single buffers from a device of one process to a device of another. Both
// sides call, in any order; a key that they agree on says which send belongs to which receive.
//
// The receiver asks for the array once it has memory for it; the sender answers when the array is
// computed. So nothing comes that nobody waits for.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/crossing.h"

typedef struct vt_transfer {
  struct vt_transfer *next;
  enum { SEND, RECEIVE, WANTED } side; // WANTED: the other side asks for what is not sent yet
  int32_t peer, from, to;              // process; ids of the devices
  uint64_t key;
  bool wanted; // send: the other side has asked
  bool ready;  // send: the data is here, or
  vt_status error;
  vt_event *sent, *fetched;
  void *data;
  size_t size;
  vt_fill *fill;
  vt_crossing *crossing;
  vt_waiter waiter;
} transfer;

static void transfer_free(transfer *t) {
  vt_event_release(t->sent);
  vt_event_release(t->fetched);
  vt_status_free(t->error);
  free(t->data);
  free(t);
}

static transfer **find(vt_crossing *crossing, int side, int32_t peer, int32_t from, int32_t to,
                       uint64_t key) {
  transfer **at = &crossing->transfers;
  while (*at && ((int)(*at)->side != side || (*at)->peer != peer || (*at)->from != from ||
                 (*at)->to != to || (*at)->key != key))
    at = &(*at)->next;
  return *at ? at : NULL;
}

// At the end: equal keys are served in order.
static void append(vt_crossing *crossing, transfer *t) {
  transfer **at = &crossing->transfers;
  while (*at) at = &(*at)->next;
  t->next = NULL;
  *at = t;
}

static transfer *take_off(transfer **at) {
  transfer *t = *at;
  *at = t->next;
  return t;
}

static void sent(void *user, vt_status error) {
  transfer *t = user;
  vt_event_complete(t->sent, error);
  transfer_free(t);
}

// Takes the error. Off the list.
static void fail(transfer *t, vt_status error) {
  if (t->side == SEND) vt_event_complete(t->sent, vt_status_copy(error));
  if (t->side == RECEIVE) vt_fill_finish(t->fill, vt_status_copy(error));
  vt_status_free(error);
  transfer_free(t);
}

// Off the list: its data is here, or an error, and asked for.
static void answer(transfer *t) {
  vt_text head = {0};
  vt_word word = {
      .kind = t->error ? VT_WORD_NO_ARRAY : VT_WORD_ARRAY,
      .index = t->key,
      .position = (uint32_t)t->to,
      .code = (uint32_t)t->from,
      .text = {(const uint8_t *)vt_status_message(t->error), vt_status_message_size(t->error)}};
  vt_word_write(&word, &head);
  vt_bytes bytes = {(const uint8_t *)head.data, head.size}, body = {t->data, t->size};
  vt_peers_send(t->crossing->peers, t->peer, bytes, t->error ? (vt_bytes){0} : body, sent, t);
  vt_text_free(&head);
}

// The buffer to send has been copied, or is an error. Either waits until it is asked for.
static void fetched(vt_status error, void *user) {
  transfer *t = user;
  vt_crossing *crossing = t->crossing;
  if (error) vt_event_complete(t->sent, vt_status_copy(error));
  pthread_mutex_lock(&crossing->lock);
  transfer **at = &crossing->transfers;
  while (*at && *at != t) at = &(*at)->next;
  bool listed = *at == t; // else the peer is gone, and the transfer failed
  t->ready = true;
  t->error = error;
  bool go = listed && t->wanted;
  if (go) take_off(at);
  pthread_mutex_unlock(&crossing->lock);
  if (go) answer(t);
  if (!listed) transfer_free(t);
}

static vt_status other_process(vt_client *client, int32_t device, int32_t *out_process) {
  if (device < 0 || device >= client->device_count)
    return vt_error(VT_INVALID_ARGUMENT, "no device with id %d; %s has %d", device,
                    client->slice.name, client->device_count);
  *out_process = client->devices[device].process;
  if (*out_process == client->process || !client->crossing)
    return vt_error(VT_INVALID_ARGUMENT, "device %d belongs to this process: copy instead", device);
  return VT_OK;
}

// With the lock held.
static vt_status check_peer(const vt_crossing *crossing, int32_t process) {
  if (!crossing->lost[process]) return VT_OK;
  return vt_status_wrap(vt_status_copy(crossing->lost[process]), "a transfer of an array");
}

vt_status vt_transfer_send(vt_buffer *buffer, int32_t to_device, int64_t key, vt_event **out_sent) {
  vt_client *client = buffer->client;
  vt_crossing *crossing = client->crossing;
  int32_t process;
  VT_TRY(vt_fork_check());
  VT_TRY(other_process(client, to_device, &process));
  transfer *t = calloc(1, sizeof *t);
  if (!t) return vt_error_no_memory();
  *t = (transfer){.side = SEND,
                  .peer = process,
                  .from = buffer->memory->device->id,
                  .to = to_device,
                  .key = (uint64_t)key,
                  .crossing = crossing,
                  .size = (size_t)vt_type_bytes(vt_buffer_type(buffer))};
  t->sent = vt_event_create();
  t->data = malloc(t->size + 1);
  vt_status st = t->sent && t->data ? vt_buffer_to_host(buffer, t->data, NULL, &t->fetched)
                                    : vt_error_no_memory();
  pthread_mutex_lock(&crossing->lock);
  if (!st) st = check_peer(crossing, process);
  if (!st) {
    transfer **wanted = find(crossing, WANTED, process, t->from, t->to, t->key);
    t->wanted = wanted != NULL;
    if (wanted) transfer_free(take_off(wanted));
    append(crossing, t);
  }
  pthread_mutex_unlock(&crossing->lock);
  if (st) { // the copy may still be on its way
    if (t->fetched) vt_status_free(vt_event_await(t->fetched));
    transfer_free(t);
    return st;
  }
  *out_sent = vt_event_retain(t->sent);
  vt_event *copied = vt_event_retain(t->fetched);
  vt_event_on_complete(copied, &t->waiter, fetched, t);
  vt_event_release(copied);
  return VT_OK;
}

vt_status vt_transfer_receive(vt_memory *memory, vt_type type, const char *layout,
                              int32_t from_device, int64_t key, vt_buffer **out_buffer) {
  vt_client *client = memory->device->client;
  vt_crossing *crossing = client->crossing;
  int32_t process;
  VT_TRY(vt_fork_check());
  VT_TRY(other_process(client, from_device, &process));
  transfer *t = calloc(1, sizeof *t);
  if (!t) return vt_error_no_memory();
  *t = (transfer){.side = RECEIVE,
                  .peer = process,
                  .from = from_device,
                  .to = memory->device->id,
                  .key = (uint64_t)key,
                  .crossing = crossing,
                  .size = (size_t)vt_type_bytes(type)};
  vt_status st = vt_fill_create(memory, type, layout, &t->fill, out_buffer);
  if (st) {
    transfer_free(t);
    return st;
  }
  vt_text head = {0};
  vt_word word = {.kind = VT_WORD_WANT,
                  .index = t->key,
                  .position = (uint32_t)t->to,
                  .code = (uint32_t)t->from};
  vt_word_write(&word, &head);
  pthread_mutex_lock(&crossing->lock);
  st = check_peer(crossing, process);
  if (!st) append(crossing, t);
  pthread_mutex_unlock(&crossing->lock);
  if (st)
    fail(t, st); // the buffer says it
  else
    vt_peers_send(crossing->peers, process, (vt_bytes){(const uint8_t *)head.data, head.size},
                  (vt_bytes){0}, NULL, NULL);
  vt_text_free(&head);
  return VT_OK;
}

// ---- messages -----------------------------------------------------------------------------------

bool vt_array_fits(vt_crossing *crossing, int32_t from, const vt_word *word, uint64_t size) {
  transfer **at =
      find(crossing, RECEIVE, from, (int32_t)word->code, (int32_t)word->position, word->index);
  return at && (*at)->size == size;
}

static void note_wanted(vt_crossing *crossing, int32_t from, const vt_word *word) {
  transfer *t = calloc(1, sizeof *t);
  if (!t) return;
  *t = (transfer){.side = WANTED,
                  .peer = from,
                  .from = (int32_t)word->code,
                  .to = (int32_t)word->position,
                  .key = word->index,
                  .crossing = crossing};
  append(crossing, t);
}

void vt_transfer_message(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body) {
  int side = word->kind == VT_WORD_WANT ? SEND : RECEIVE;
  pthread_mutex_lock(&crossing->lock);
  transfer **at =
      find(crossing, side, from, (int32_t)word->code, (int32_t)word->position, word->index);
  transfer *t = NULL;
  if (side == SEND && !at) note_wanted(crossing, from, word);
  if (side == SEND && at) (*at)->wanted = true;
  if (at && (side == RECEIVE || (*at)->ready)) t = take_off(at);
  pthread_mutex_unlock(&crossing->lock);
  if (!t) return;
  if (side == SEND) {
    answer(t);
  } else if (word->kind == VT_WORD_NO_ARRAY || body.size != t->size) {
    fail(t, vt_error(VT_INTERNAL, "%s: %.*s", vt_peers_name(crossing->peers, from),
                     (int)word->text.size, (const char *)word->text.data));
  } else {
    vt_status st = vt_fill_write(t->fill, 0, body.data, (int64_t)body.size);
    vt_fill_finish(t->fill, st);
    transfer_free(t);
  }
}

// Of a process, -1 = all.
void vt_transfers_fail(vt_crossing *crossing, int32_t peer, vt_status why) {
  for (;;) {
    pthread_mutex_lock(&crossing->lock);
    transfer **at = &crossing->transfers, *t = NULL;
    while (*at && peer >= 0 && (*at)->peer != peer) at = &(*at)->next;
    if (*at) t = take_off(at);
    bool copying = t && t->side == SEND && !t->ready;
    if (copying) vt_event_complete(t->sent, vt_status_copy(why)); // `fetched` frees it
    pthread_mutex_unlock(&crossing->lock);
    if (!t) return;
    if (!copying) fail(t, vt_status_copy(why));
  }
}
