// SPDX-License-Identifier: Apache-2.0
// crossing_calls.c - host callbacks of a run over several processes.
//
// Every process runs the whole program, and the callbacks of a device are called in the process
// that has it, once. What a callback returns goes from there to all others, whose runs wait for it.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "runtime/crossing.h"

// With the lock held: what another process said of the end of a run.
static vt_status failure_of(const vt_crossing *crossing, uint64_t group, uint64_t number) {
  for (const vt_answer *a = crossing->answers; a; a = a->next)
    if (a->error && a->group == group && a->number == number) return a->error;
  return VT_OK;
}

vt_status vt_answer_failure(const vt_crossing *crossing, const vt_launch *launch) {
  return failure_of(crossing, launch->group, launch->number);
}

// With the lock held.
void vt_answer_take(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes body) {
  if (word->kind == VT_WORD_FAILURE && failure_of(crossing, word->group, word->number)) return;
  vt_answer *answer = malloc(sizeof *answer + body.size);
  if (!answer) return; // the wait ends at its limit
  *answer = (vt_answer){.group = word->group,
                        .number = word->number,
                        .channel = word->index,
                        .position = word->position,
                        .size = body.size};
  if (word->kind == VT_WORD_FAILURE)
    answer->error = vt_error((vt_code)word->code, "%s: %.*s", vt_peers_name(crossing->peers, from),
                             (int)word->text.size, (const char *)word->text.data);
  if (body.size) memcpy(answer->bytes, body.data, body.size);
  *crossing->last_answer = answer;
  crossing->last_answer = &answer->next;
  vt_crossing_changed(crossing);
}

// Takes the answer at `at` off the list.
static void take_off(vt_crossing *crossing, vt_answer **at) {
  vt_answer *answer = *at;
  *at = answer->next;
  if (!answer->next) crossing->last_answer = at;
  vt_status_free(answer->error);
  free(answer);
}

void vt_answers_free(vt_crossing *crossing) {
  while (crossing->answers) take_off(crossing, &crossing->answers);
}

static vt_answer **find(vt_crossing *crossing, const vt_launch *launch, int32_t device,
                        int64_t channel) {
  vt_answer **at = &crossing->answers;
  for (; *at; at = &(*at)->next) {
    const vt_answer *answer = *at;
    if (answer->group != launch->group || answer->number != launch->number) continue;
    if (answer->error ||
        (answer->position == (uint32_t)device && answer->channel == (uint64_t)channel))
      return at;
  }
  return NULL;
}

// With the lock held.
static vt_status use_answer(const vt_answer *answer, vt_type type, void *data) {
  size_t size = (size_t)vt_type_bytes(type);
  if (answer->error) return vt_status_copy(answer->error);
  if (answer->size != size)
    return vt_error(VT_INTERNAL, "a host callback of another process answered %zu bytes, not %zu",
                    answer->size, size);
  if (size) memcpy(data, answer->bytes, size);
  return VT_OK;
}

static vt_status wait_for_answer(const vt_launch *launch, int32_t device, int64_t channel,
                                 vt_type type, void *data) {
  vt_crossing *crossing = launch->crossing;
  int32_t owner = vt_crossing_process(launch, device);
  double until = vt_crossing_now() + crossing->limit_s;
  vt_status st = VT_OK;
  pthread_mutex_lock(&crossing->lock);
  for (;;) {
    vt_answer **at = find(crossing, launch, device, channel);
    if (at) {
      st = use_answer(*at, type, data);
      take_off(crossing, at);
      break;
    }
    if (crossing->lost[owner]) {
      st = vt_status_wrap(vt_status_copy(crossing->lost[owner]), "a host callback");
      break;
    }
    if (vt_crossing_now() > until) {
      st = vt_error(VT_DEADLINE_EXCEEDED, "a host callback of %s did not answer in %.0f s",
                    vt_peers_name(crossing->peers, owner), crossing->limit_s);
      break;
    }
    struct timespec soon;
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_sec++;
    pthread_cond_timedwait(&crossing->changed, &crossing->lock, &soon);
  }
  pthread_mutex_unlock(&crossing->lock);
  return st;
}

// The row of a device of this process in the lists of the execution.
static int32_t row_of(const vt_launch *launch, int32_t device) {
  int32_t row = 0;
  for (int32_t d = 0; d < device; d++)
    row += vt_crossing_process(launch, d) == launch->crossing->process;
  return row;
}

static bool is_here(const vt_launch *launch, int32_t device) {
  return vt_crossing_process(launch, device) == launch->crossing->process;
}

static vt_status call_send(void *user, int32_t device, int64_t channel, vt_type type,
                           const void *data) {
  const vt_crossing_calls *calls = user;
  if (!is_here(calls->launch, device)) return VT_OK;
  if (!calls->inner)
    return vt_error(VT_FAILED_PRECONDITION, "no host callback listens on channel %lld of device %d",
                    (long long)channel, device);
  return calls->inner->send(calls->inner->user, row_of(calls->launch, device), channel, type, data);
}

static vt_status call_recv(void *user, int32_t device, int64_t channel, vt_type type, void *data) {
  const vt_crossing_calls *calls = user;
  const vt_launch *launch = calls->launch;
  if (!is_here(launch, device)) return wait_for_answer(launch, device, channel, type, data);
  if (!calls->inner)
    return vt_error(VT_FAILED_PRECONDITION, "no host callback feeds channel %lld of device %d",
                    (long long)channel, device);
  VT_TRY(calls->inner->recv(calls->inner->user, row_of(launch, device), channel, type, data));
  vt_word word = {.kind = VT_WORD_ANSWER,
                  .group = launch->group,
                  .number = launch->number,
                  .index = (uint64_t)channel,
                  .position = (uint32_t)device};
  vt_text head = {0};
  vt_word_write(&word, &head);
  vt_bytes bytes = {(const uint8_t *)head.data, head.size},
           body = {data, (size_t)vt_type_bytes(type)};
  for (int32_t i = 0; i < launch->count; i++)
    if (launch->members[i] != launch->crossing->process)
      vt_peers_send(launch->crossing->peers, launch->members[i], bytes, body, NULL, NULL);
  vt_text_free(&head);
  return VT_OK;
}

vt_host_transfer vt_launch_calls(vt_crossing_calls *calls) {
  return (vt_host_transfer){.user = calls, .send = call_send, .recv = call_recv};
}

void vt_launch_failed(const vt_launch *launch, vt_status error) {
  vt_word word = {
      .kind = VT_WORD_FAILURE,
      .group = launch->group,
      .number = launch->number,
      .code = vt_status_code(error),
      .text = {(const uint8_t *)vt_status_message(error), vt_status_message_size(error)}};
  for (int32_t i = 0; i < launch->count; i++)
    if (launch->members[i] != launch->crossing->process)
      vt_launch_send(launch, launch->members[i], &word);
}

void vt_launch_over(vt_launch *launch, vt_status error) {
  vt_crossing *crossing = launch->crossing;
  if (error) vt_launch_failed(launch, error);
  pthread_mutex_lock(&crossing->lock);
  for (vt_answer **at = &crossing->answers; *at;)
    if ((*at)->group == launch->group && (*at)->number == launch->number)
      take_off(crossing, at);
    else
      at = &(*at)->next;
  for (size_t i = 0; i < crossing->group_count; i++)
    if (crossing->groups[i].key == launch->group) crossing->groups[i].over = launch->number;
  vt_blocks_drop(crossing, launch);
  pthread_mutex_unlock(&crossing->lock);
}
