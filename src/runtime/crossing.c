// SPDX-License-Identifier: Apache-2.0
// crossing.c - runs of programs whose devices are in several processes: gathered execution.
//
// Every process runs the whole program on whole arrays and keeps the parts of its own devices, so
// the results are those of one process, bit for bit. Before a run the processes swap the parts of
// the arguments that they lack; results are whole everywhere, and need no swap in the next run.
//
// 1. The n-th run of a set of processes is the same program in each. Each announces it to the
//    others with a word (launch_words.h): fingerprint, and which arguments it holds whole, by
//    numbers on which all agree. The words are compared before anything is computed.
// 2. Parts travel when all words are there (crossing_parts.c), as soon as each is computed.
// 3. Then the run goes to the executor like any other. It never waits for another process there,
//    except in a host callback (crossing_calls.c).
// 4. A process that is gone, or does not come, ends the runs that need it with its name.
// Locks: the client's before the crossing's.
#include "runtime/crossing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"
#include "base/map.h"

enum { SAY_AFTER_S = 60, LIMIT_S = 600, FINISH_S = 30, EARLY_MOST = 1 << 16 };

double vt_crossing_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void vt_crossing_changed(vt_crossing *crossing) {
  pthread_cond_broadcast(&crossing->changed);
  vt_bell_ring(vt_peers_bell(crossing->peers));
}

int32_t vt_crossing_process(const vt_launch *launch, int32_t position) {
  return launch->crossing->devices[launch->job->executable->info.device_ids[position]].process;
}

void vt_launch_send(const vt_launch *launch, int32_t to, const vt_word *word) {
  vt_text text = {0};
  vt_word_write(word, &text);
  vt_peers_send(launch->crossing->peers, to, (vt_bytes){(const uint8_t *)text.data, text.size},
                (vt_bytes){0}, NULL, NULL);
  vt_text_free(&text);
}

uint64_t vt_launch_agreed(const vt_launch *launch, uint64_t slot) {
  uint64_t number = vt_hash_u64(slot, vt_hash_u64(launch->number, launch->group));
  return number ? number : 1;
}

// ---- the list -----------------------------------------------------------------------------------

static const vt_executable *executable_of(const vt_launch *launch) {
  return launch->job->executable;
}

static const char *name_of(const vt_launch *launch) {
  return executable_of(launch)->info.name;
}

static vt_launch *find(vt_crossing *crossing, uint64_t group, uint64_t number) {
  vt_launch *launch = crossing->launches;
  while (launch && (launch->group != group || launch->number != number)) launch = launch->next;
  return launch;
}

static vt_launch *add(vt_crossing *crossing, uint64_t group, uint64_t number) {
  vt_launch *launch = calloc(1, sizeof *launch), **at = &crossing->launches;
  if (!launch) return NULL;
  launch->crossing = crossing;
  launch->group = group;
  launch->number = number;
  atomic_init(&launch->refs, 1);
  atomic_fetch_add(&crossing->refs, 1);
  while (*at) at = &(*at)->next;
  *at = launch;
  return launch;
}

static void release(vt_crossing *crossing) {
  if (atomic_fetch_sub(&crossing->refs, 1) != 1) return;
  for (int32_t i = 0; i < crossing->process_count; i++) vt_status_free(crossing->lost[i]);
  vt_answers_free(crossing);
  vt_blocks_drop(crossing, NULL);
  vt_queue_fini(&crossing->collectives);
  pthread_cond_destroy(&crossing->changed);
  pthread_mutex_destroy(&crossing->lock);
  vt_map_free(&crossing->launched);
  free(crossing->groups);
  free(crossing->lost);
  free(crossing);
}

void vt_launch_release(vt_launch *launch) {
  if (!launch || atomic_fetch_sub(&launch->refs, 1) != 1) return;
  vt_crossing *crossing = launch->crossing;
  for (vt_said *next; launch->said; launch->said = next) {
    next = launch->said->next;
    free(launch->said);
  }
  vt_status_free(launch->error);
  free(launch->came);
  free(launch->members);
  free(launch);
  release(crossing);
}

// With the lock held.
static struct vt_group *group_of(vt_crossing *crossing, uint64_t key) {
  for (size_t i = 0; i < crossing->group_count; i++)
    if (crossing->groups[i].key == key) return &crossing->groups[i];
  void *grown = realloc(crossing->groups, (crossing->group_count + 1) * sizeof *crossing->groups);
  if (!grown) return NULL;
  crossing->groups = grown;
  crossing->groups[crossing->group_count] = (struct vt_group){.key = key};
  return &crossing->groups[crossing->group_count++];
}

// ---- begin --------------------------------------------------------------------------------------

static vt_status find_members(vt_launch *launch, const vt_client *client,
                              const vt_executable_info *info) {
  bool *has = calloc((size_t)client->process_count, sizeof *has);
  launch->members = calloc((size_t)client->process_count, sizeof *launch->members);
  if (has && launch->members) {
    for (int32_t d = 0; d < info->partitions; d++)
      has[client->devices[info->device_ids[d]].process] = true;
    for (int32_t i = 0; i < client->process_count; i++)
      if (has[i]) launch->members[launch->count++] = i;
  }
  free(has);
  return launch->count ? VT_OK : vt_error_no_memory();
}

bool vt_launch_is_over(const vt_crossing *crossing, const vt_word *word) {
  for (size_t i = 0; i < crossing->group_count; i++)
    if (crossing->groups[i].key == word->group) return word->number <= crossing->groups[i].over;
  return false;
}

static vt_status gone(const vt_crossing *crossing, int32_t process, const vt_executable_info *info,
                      uint64_t number) {
  return vt_error(vt_status_code(crossing->lost[process]),
                  "%s (%s, launch %" PRIu64 "). The other processes cannot continue; restart the "
                  "job from its last checkpoint",
                  vt_status_message(crossing->lost[process]), info->name, number);
}

vt_status vt_launch_gone(const vt_launch *launch, int32_t process, const char *name) {
  vt_executable_info info = {.name = name};
  return gone(launch->crossing, process, &info, launch->number);
}

static uint64_t variant_of(const vt_executable *executable) {
  if (!executable->own) return 0;
  return vt_hash_bytes(executable->own, executable->info.param_count, 1);
}

// With the lock held: the number that the run of these members would have.
static vt_status find_number(vt_launch *found) {
  found->group = vt_hash_bytes(found->members, (size_t)found->count * sizeof(int32_t), 7);
  const struct vt_group *group = group_of(found->crossing, found->group);
  if (!group) return vt_error_no_memory();
  found->number = group->number + 1;
  return VT_OK;
}

static vt_status check_members(const vt_launch *found, const vt_executable_info *info) {
  for (int32_t i = 0; i < found->count; i++)
    if (found->crossing->lost[found->members[i]])
      return gone(found->crossing, found->members[i], info, found->number);
  return VT_OK;
}

// With the lock held.
static vt_status enter(vt_launch *found, vt_run_job *job, vt_launch **out_launch) {
  vt_crossing *crossing = found->crossing;
  const vt_executable_info *info = &job->executable->info;
  vt_launch *launch = find(crossing, found->group, found->number);
  if (!launch) launch = add(crossing, found->group, found->number);
  if (!launch) return vt_error_no_memory();
  group_of(crossing, found->group)->number++;
  atomic_fetch_add(&launch->refs, 1); // of the job
  launch->members = found->members;
  launch->count = found->count;
  found->members = NULL;
  launch->job = job;
  launch->name = info->name; // of the job's executable, which outlives its run
  launch->variant = variant_of(job->executable);
  launch->words_missing = launch->count; // ours is the last to count
  for (const vt_said *said = launch->said; said; said = said->next) launch->words_missing--;
  const vt_status failed = vt_answer_failure(crossing, launch); // elsewhere
  if (failed && !launch->error) launch->error = vt_status_copy(failed);
  *out_launch = launch;
  return VT_OK;
}

vt_status vt_launch_create(vt_client *client, vt_run_job *job, vt_launch **out_launch) {
  vt_crossing *crossing = client->crossing;
  vt_launch found = {.crossing = crossing};
  VT_TRY(find_members(&found, client, &job->executable->info));
  pthread_mutex_lock(&crossing->lock);
  vt_status st = find_number(&found);
  vt_status lost = st ? VT_OK : check_members(&found, &job->executable->info);
  if (!st && !lost) st = enter(&found, job, out_launch);
  pthread_mutex_unlock(&crossing->lock);
  // The others may have heard the word of the one that is gone, and would wait for ours.
  if (lost) vt_launch_failed(&found, lost);
  if (lost) st = lost;
  free(found.members);
  return st;
}

static void unlist(vt_launch *launch) {
  vt_launch **at = &launch->crossing->launches;
  while (*at != launch) at = &(*at)->next;
  *at = launch->next;
  launch->next = NULL;
}

// What others said stays for the run that gets the number next.
void vt_launch_abandon(vt_launch *launch) {
  vt_crossing *crossing = launch->crossing;
  pthread_mutex_lock(&crossing->lock);
  group_of(crossing, launch->group)->number--;
  launch->job = NULL;
  free(launch->members);
  launch->members = NULL;
  launch->count = 0;
  if (!launch->said) {
    unlist(launch);
    vt_launch_release(launch);
  }
  pthread_mutex_unlock(&crossing->lock);
  vt_launch_release(launch);
}

// ---- words --------------------------------------------------------------------------------------

// Those that others may ask for: none, of a program that is cut.
static uint32_t told_params(const vt_executable *executable) {
  return executable->parts > 1 ? 0 : executable->info.param_count;
}

static vt_status put_word(const vt_launch *launch, vt_text *out) {
  const vt_executable *executable = launch->job->executable;
  const vt_executable_info *info = &executable->info;
  uint32_t count = told_params(executable);
  uint8_t *list = calloc((size_t)count + 1, 8);
  if (!list) return vt_error_no_memory();
  for (uint32_t p = 0; p < count; p++) {
    const vt_argument *arg = &launch->job->arguments[p];
    uint64_t agreed = arg->gathered ? 0 : arg->storage->agreed;
    for (int i = 0; i < 8; i++) list[p * 8 + (uint32_t)i] = (uint8_t)(agreed >> (8 * i));
  }
  vt_word word = {.kind = VT_WORD_LAUNCH,
                  .group = launch->group,
                  .number = launch->number,
                  .fingerprint = executable->compared,
                  .variant = launch->variant,
                  .index = executable->kind,
                  .param_count = count,
                  .agreed = list,
                  .text = {(const uint8_t *)info->name, strlen(info->name)}};
  vt_word_write(&word, out);
  free(list);
  return VT_OK;
}

// All words are there: whether they are about the same program.
static vt_status compare(const vt_launch *launch) {
  const vt_executable *executable = launch->job->executable;
  uint64_t compared = executable->compared;
  const vt_crossing *crossing = launch->crossing;
  for (const vt_said *said = launch->said; said; said = said->next) {
    const vt_word *word = &said->word;
    if (word->fingerprint == compared && word->param_count == told_params(executable) &&
        word->variant == launch->variant)
      continue;
    bool same = word->fingerprint == compared;
    return vt_error(
        VT_FAILED_PRECONDITION,
        "processes run different programs: %s launches %s (fingerprint %016" PRIx64 ", launch "
        "%" PRIu64 "), %s launches %.*s (fingerprint %016" PRIx64 ")%s. All processes must run "
        "the same computations in the same order",
        vt_peers_name(crossing->peers, crossing->process), name_of(launch), compared,
        launch->number, vt_peers_name(crossing->peers, said->from), (int)word->text.size,
        (const char *)word->text.data, word->fingerprint,
        same ? ", with arguments that differ between devices in another way" : "");
  }
  return VT_OK;
}

// ---- programs of replicas ----------------------------------------------------------------------
// Each process may launch a program of its own, if the collectives are the same. But when two
// processes each launch what the other has launched before, their order is not the same.

typedef struct launched {
  uint64_t group, process, kind;
} launched;

static launched launched_by(const vt_launch *launch, const vt_said *said) {
  const vt_crossing *crossing = launch->crossing;
  if (!said)
    return (launched){launch->group, (uint64_t)crossing->process, executable_of(launch)->kind};
  return (launched){launch->group, (uint64_t)said->from, said->word.index};
}

static bool has_launched(const vt_crossing *crossing, launched by, uint64_t kind) {
  by.kind = kind;
  return vt_map_has(&crossing->launched, &by, sizeof by);
}

static vt_status swapped(const vt_launch *launch, const vt_said *a, const vt_said *b) {
  const vt_crossing *crossing = launch->crossing;
  vt_bytes own = {(const uint8_t *)name_of(launch), strlen(name_of(launch))};
  vt_bytes first = a ? a->word.text : own, second = b->word.text;
  return vt_error(VT_FAILED_PRECONDITION,
                  "processes run the same programs in another order: in launch %" PRIu64
                  " %s runs %.*s (%016" PRIx64 "), %s runs %.*s (%016" PRIx64
                  "), and each has run the other's before. All processes must run the same "
                  "computations in the same order",
                  launch->number, vt_peers_name(crossing->peers, a ? a->from : crossing->process),
                  (int)first.size, (const char *)first.data, launched_by(launch, a).kind,
                  vt_peers_name(crossing->peers, b->from), (int)second.size,
                  (const char *)second.data, launched_by(launch, b).kind);
}

static vt_status compare_with_others(const vt_launch *launch, const vt_said *a) {
  const vt_crossing *crossing = launch->crossing;
  launched first = launched_by(launch, a);
  for (const vt_said *b = a ? a->next : launch->said; b; b = b->next) {
    launched second = launched_by(launch, b);
    if (first.kind && second.kind && second.kind != first.kind &&
        has_launched(crossing, first, second.kind) && has_launched(crossing, second, first.kind))
      return swapped(launch, a, b);
  }
  return VT_OK;
}

// All words are there, and all are about programs with the same collectives.
static vt_status compare_order(const vt_launch *launch) {
  vt_map *map = &launch->crossing->launched;
  if (!executable_of(launch)->kind) return VT_OK;
  VT_TRY(compare_with_others(launch, NULL));
  for (const vt_said *said = launch->said; said; said = said->next)
    VT_TRY(compare_with_others(launch, said));
  launched by = launched_by(launch, NULL);
  *vt_map_at(map, &by, sizeof by) = map;
  for (const vt_said *said = launch->said; said; said = said->next) {
    by = launched_by(launch, said);
    *vt_map_at(map, &by, sizeof by) = map;
  }
  return VT_OK;
}

static bool has_said(const vt_launch *launch, int32_t process) {
  for (const vt_said *said = launch->said; said; said = said->next)
    if (said->from == process) return true;
  return false;
}

// With the lock held. A process is gone: whether the run still waits for something of it. What it
// sent before its end is here.
static vt_status miss(const vt_launch *launch, int32_t process) {
  bool misses = !has_said(launch, process) ||
                (launch->decided && !launch->error && vt_parts_come_from(launch, process));
  return misses ? gone(launch->crossing, process, &launch->job->executable->info, launch->number)
                : VT_OK;
}

// With the lock held, when all words are there.
static void decide(vt_launch *launch, vt_parcel **out_parcels) {
  vt_assert(!launch->decided && launch->words_missing == 0);
  launch->decided = true;
  if (launch->error) return;
  launch->error = compare(launch);
  if (!launch->error) launch->error = compare_order(launch);
  if (!launch->error) launch->error = vt_parts_decide(launch, out_parcels);
  for (int32_t i = 0; i < launch->count && !launch->error; i++)
    if (launch->crossing->lost[launch->members[i]])
      launch->error = miss(launch, launch->members[i]);
}

// Takes one word off those missing. Without the lock.
static void hear(vt_launch *launch) {
  vt_crossing *crossing = launch->crossing;
  vt_parcel *parcels = NULL;
  pthread_mutex_lock(&crossing->lock);
  atomic_fetch_add(&launch->refs, 1);
  if (--launch->words_missing == 0 && !launch->over) decide(launch, &parcels);
  bool ends = vt_launch_ends(launch);
  pthread_mutex_unlock(&crossing->lock);
  vt_parts_send(parcels);
  if (ends) vt_launch_hand_on(launch);
  vt_launch_release(launch);
}

void vt_launch_start(vt_launch *launch) {
  vt_crossing *crossing = launch->crossing;
  vt_text word = {0};
  // The others need our word even if the run is lost here.
  vt_status st = put_word(launch, &word);
  for (int32_t i = 0; i < launch->count && !st; i++)
    if (launch->members[i] != crossing->process)
      vt_peers_send(crossing->peers, launch->members[i],
                    (vt_bytes){(const uint8_t *)word.data, word.size}, (vt_bytes){0}, NULL, NULL);
  vt_text_free(&word);
  pthread_mutex_lock(&crossing->lock);
  launch->started = true;
  if (!launch->error)
    launch->error = st;
  else
    vt_status_free(st);
  pthread_mutex_unlock(&crossing->lock);
  hear(launch);
}

// ---- end ----------------------------------------------------------------------------------------

bool vt_launch_ends(vt_launch *launch) {
  if (launch->over || !launch->started) return false;
  bool complete = launch->decided && launch->parts_missing == 0 && launch->sends_missing == 0;
  if (!complete && !launch->error) return false;
  launch->over = true;
  unlist(launch); // its reference goes with vt_launch_hand_on
  launch->crossing->progress = vt_crossing_now();
  return true;
}

void vt_launch_hand_on(vt_launch *launch) {
  vt_crossing *crossing = launch->crossing;
  vt_run_job *job = launch->job;
  if (launch->error) {
    vt_status_free(job->refused);
    job->refused = vt_status_copy(launch->error);
  }
  vt_run_job_go(job);
  pthread_mutex_lock(&crossing->lock);
  pthread_cond_broadcast(&crossing->changed);
  pthread_mutex_unlock(&crossing->lock);
  vt_launch_release(launch);
}

// Takes `error`. With the lock held; the launch stays in the list, with its error.
static void spoil(vt_launch *launch, vt_status error) {
  if (launch->error)
    vt_status_free(error);
  else
    launch->error = error;
}

// Hands on what has ended, one by one: each may call back into the client.
static void hand_on_ended(vt_crossing *crossing) {
  for (;;) {
    pthread_mutex_lock(&crossing->lock);
    vt_launch *launch = crossing->launches;
    while (launch && !(launch->job && vt_launch_ends(launch))) launch = launch->next;
    pthread_mutex_unlock(&crossing->lock);
    if (!launch) return;
    vt_launch_hand_on(launch);
  }
}

// ---- messages -----------------------------------------------------------------------------------

// A run that is over here: what still comes for it is read and forgotten.
static bool is_past(vt_crossing *crossing, const vt_word *word) {
  for (size_t i = 0; i < crossing->group_count; i++)
    if (crossing->groups[i].key == word->group) return word->number <= crossing->groups[i].number;
  return false;
}

static bool expects(void *user, int32_t from, vt_bytes head, uint64_t size) {
  vt_crossing *crossing = user;
  vt_word word;
  vt_status st = vt_word_read(head, &word);
  bool expected = false;
  if (st) {
    vt_status_free(st);
    return false;
  }
  pthread_mutex_lock(&crossing->lock);
  const vt_launch *launch = find(crossing, word.group, word.number);
  if (word.kind == VT_WORD_PART)
    expected =
        launch ? launch->job && vt_part_fits(launch, from, &word, size) : is_past(crossing, &word);
  else if (word.kind == VT_WORD_ARRAY)
    expected = vt_array_fits(crossing, from, &word, size);
  else if (word.kind == VT_WORD_ANSWER)
    expected = launch ? launch->job != NULL : is_past(crossing, &word);
  else if (word.kind == VT_WORD_BLOCK || word.kind == VT_WORD_READY)
    expected = vt_block_fits(crossing, from, &word, size);
  pthread_mutex_unlock(&crossing->lock);
  return expected;
}

// With the lock held. false: it is nonsense
static bool keep_word(vt_crossing *crossing, int32_t from, const vt_word *word, vt_bytes head,
                      vt_launch **out_heard) {
  vt_launch *launch = find(crossing, word->group, word->number);
  if (!launch && is_past(crossing, word)) return true;
  if (!launch) launch = add(crossing, word->group, word->number);
  vt_said *said = launch ? malloc(sizeof *said + head.size) : NULL;
  if (!said) return false;
  for (const vt_said *other = launch->said; other; other = other->next)
    if (other->from == from) {
      free(said);
      return false;
    }
  said->from = from;
  memcpy(said->bytes, head.data, head.size);
  vt_status st = vt_word_read((vt_bytes){said->bytes, head.size}, &said->word);
  vt_assert(!st); // read before
  vt_status_free(st);
  said->next = launch->said;
  launch->said = said;
  if (!launch->job) return true;
  atomic_fetch_add(&launch->refs, 1);
  *out_heard = launch;
  return true;
}

static bool message(void *user, int32_t from, vt_bytes head, vt_bytes body) {
  vt_crossing *crossing = user;
  vt_launch *heard = NULL;
  bool kept = false;
  vt_word word;
  vt_status st = vt_word_read(head, &word);
  if (st) {
    vt_log(VT_LOG_WARNING, "%s: %s", vt_peers_name(crossing->peers, from), vt_status_message(st));
    vt_status_free(st);
    return false;
  }
  if (word.kind >= VT_WORD_WANT) {
    vt_transfer_message(crossing, from, &word, body);
    return false;
  }
  pthread_mutex_lock(&crossing->lock);
  crossing->progress = vt_crossing_now();
  vt_launch *launch = find(crossing, word.group, word.number);
  bool known = launch && launch->job && !launch->over;
  if (word.kind == VT_WORD_LAUNCH && !keep_word(crossing, from, &word, head, &heard))
    vt_log(VT_LOG_WARNING, "%s announced a run twice", vt_peers_name(crossing->peers, from));
  if (word.kind == VT_WORD_PART && known && vt_part_fits(launch, from, &word, body.size)) {
    st = vt_part_take(launch, &word, body);
    if (st) spoil(launch, st);
  }
  if (word.kind == VT_WORD_FAILURE && known)
    spoil(launch, vt_error((vt_code)word.code, "%s: %.*s", vt_peers_name(crossing->peers, from),
                           (int)word.text.size, (const char *)word.text.data));
  bool failed = word.kind == VT_WORD_FAILURE && !known && !vt_launch_is_over(crossing, &word);
  if (word.kind == VT_WORD_ANSWER || failed) vt_answer_take(crossing, from, &word, body);
  if (word.kind == VT_WORD_BLOCK || word.kind == VT_WORD_READY)
    kept = vt_block_take(crossing, from, &word, body);
  pthread_mutex_unlock(&crossing->lock);
  if (heard) {
    hear(heard);
    vt_launch_release(heard);
  } else {
    hand_on_ended(crossing);
  }
  return kept;
}

// ---- who is gone, and who does not come ---------------------------------------------------------

static bool is_member(const vt_launch *launch, int32_t process) {
  for (int32_t i = 0; i < launch->count; i++)
    if (launch->members[i] == process) return true;
  return false;
}

static void lost(void *user, int32_t peer, vt_status why) {
  vt_crossing *crossing = user;
  pthread_mutex_lock(&crossing->lock);
  crossing->lost[peer] = why;
  for (vt_launch *launch = crossing->launches; launch; launch = launch->next) {
    if (!launch->job || !is_member(launch, peer)) continue;
    vt_status missed = miss(launch, peer);
    if (missed) spoil(launch, missed);
  }
  vt_crossing_changed(crossing);
  pthread_mutex_unlock(&crossing->lock);
  vt_transfers_fail(crossing, peer, why);
  hand_on_ended(crossing);
}

static void put_missing(const vt_launch *launch, vt_text *text) {
  const vt_crossing *crossing = launch->crossing;
  for (int32_t i = 0; i < launch->count; i++) {
    int32_t process = launch->members[i];
    if (process == crossing->process || has_said(launch, process)) continue;
    vt_text_printf(text, "%s%s", text->size ? ", " : "", vt_peers_name(crossing->peers, process));
  }
  if (!text->size) vt_text_put(text, "other processes, which compute its arguments");
}

// Only the oldest run can keep others waiting.
static void tick(void *user) {
  vt_crossing *crossing = user;
  vt_text text = {0};
  pthread_mutex_lock(&crossing->lock);
  vt_launch *launch = crossing->launches;
  while (launch && !(launch->job && launch->started)) launch = launch->next;
  double waited = vt_crossing_now() - crossing->progress;
  if (!launch) crossing->progress = vt_crossing_now();
  if (launch && waited > SAY_AFTER_S && !launch->late) {
    launch->late = true;
    put_missing(launch, &text);
    vt_log(VT_LOG_WARNING, "launch %" PRIu64 " of %s waits for %s since %.0f s", launch->number,
           name_of(launch), vt_text_string(&text), waited);
  }
  if (launch && waited > crossing->limit_s) {
    vt_text_free(&text);
    put_missing(launch, &text);
    spoil(launch,
          vt_error(VT_DEADLINE_EXCEEDED,
                   "launch %" PRIu64 " of %s: %s did not come in %.0f s. All processes must "
                   "run the same computations in the same order; VTPU_COLLECTIVE_TIMEOUT "
                   "changes the limit",
                   launch->number, name_of(launch), vt_text_string(&text), waited));
  }
  pthread_mutex_unlock(&crossing->lock);
  vt_text_free(&text);
  hand_on_ended(crossing);
}

// ---- the client's -------------------------------------------------------------------------------

static double limit_of_environment(void) {
  const char *text = getenv("VTPU_COLLECTIVE_TIMEOUT");
  double seconds = text ? strtod(text, NULL) : 0;
  return seconds >= 1 ? seconds : LIMIT_S;
}

vt_status vt_crossing_open(vt_client *client, vt_peers *peers) {
  vt_crossing *crossing = calloc(1, sizeof *crossing);
  if (crossing) crossing->lost = calloc((size_t)client->process_count, sizeof(vt_status));
  if (!crossing || !crossing->lost) {
    free(crossing);
    vt_peers_leave(peers);
    return vt_error_no_memory();
  }
  atomic_init(&crossing->refs, 1);
  crossing->process = client->process;
  crossing->process_count = client->process_count;
  crossing->devices = client->devices;
  crossing->peers = peers;
  crossing->limit_s = limit_of_environment();
  crossing->progress = vt_crossing_now();
  crossing->last_answer = &crossing->answers;
  vt_queue_init(&crossing->collectives);
  pthread_mutex_init(&crossing->lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&crossing->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  client->crossing = crossing;
  vt_peers_handler handler = {crossing, expects, message, lost, tick};
  vt_status st = vt_peers_start(peers, &handler);
  if (st) vt_crossing_close(client);
  return st;
}

static bool any_begun(const vt_crossing *crossing) {
  for (const vt_launch *launch = crossing->launches; launch; launch = launch->next)
    if (launch->job) return true;
  return false;
}

void vt_crossing_finish(vt_client *client) {
  vt_crossing *crossing = client->crossing;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += FINISH_S;
  pthread_mutex_lock(&crossing->lock);
  while (any_begun(crossing) &&
         pthread_cond_timedwait(&crossing->changed, &crossing->lock, &until) == 0) {
  }
  for (vt_launch *launch = crossing->launches; launch; launch = launch->next)
    if (launch->job)
      spoil(launch, vt_error(VT_CANCELLED,
                             "%s: the client was closed before its run began on all "
                             "processes",
                             name_of(launch)));
  pthread_mutex_unlock(&crossing->lock);
  hand_on_ended(crossing);
}

void vt_crossing_close(vt_client *client) {
  vt_crossing *crossing = client->crossing;
  client->crossing = NULL;
  atomic_store(&crossing->closed, true);
  vt_peers_leave(crossing->peers); // its thread calls us no more
  vt_status closed = vt_error(VT_CANCELLED, "the client was closed");
  vt_transfers_fail(crossing, -1, closed);
  vt_status_free(closed);
  while (crossing->launches) {
    vt_launch *launch = crossing->launches;
    unlist(launch);
    vt_launch_release(launch);
  }
  release(crossing);
}
