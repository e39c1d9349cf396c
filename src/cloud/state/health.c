// SPDX-License-Identifier: Apache-2.0
// health.c - heartbeats, symptoms and health of health.h.
#include "cloud/state/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/state/doctor.h"
#include "cloud/store/row.h"

enum { MAX_PULSES = 1 << 16, MAX_DETAILS = 200 };
// A daemon that did not check for this long missed heartbeats too: all workers count as heard.
#define PAUSE_NS  (5 * VT_SECOND)
#define REPEAT_NS (60 * VT_SECOND) // until a repeated symptom is reported

typedef struct pulse {
  int64_t uid, heard_ns, longest_ns;
  bool heartbeats; // heard since the daemon started
  bool swept;      // its node was settled after it went silent
} pulse;

typedef struct pulse_key {
  int64_t uid, worker;
} pulse_key;

struct vt_pulses {
  vt_map map; // pulse_key to pulse
  int64_t looked_ns;
};

void vt_pulses_free(struct vt_pulses *pulses) {
  if (!pulses) return;
  for (size_t i = 0; i < pulses->map.size; i++) free(pulses->map.entries[i].value);
  vt_map_free(&pulses->map);
  free(pulses);
}

// Real workers run in real time, whatever the cloud's clock.
static int64_t clock_of(const vt_cloud *cloud) {
  struct timespec now;
  if (!cloud->options.virtual_time || cloud->options.guest_level == 0) return vt_cloud_now(cloud);
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * VT_SECOND + now.tv_nsec;
}

static pulse *find(const vt_cloud *cloud, int64_t uid, int64_t worker) {
  pulse_key key = {uid, worker};
  return cloud->pulses ? vt_map_find(&cloud->pulses->map, &key, sizeof key) : NULL;
}

typedef struct place {
  vt_map *map;
  pulse_key key;
  void **slot;
} place;

static vt_status find_place(void *user) {
  place *p = user;
  p->slot = vt_map_at(p->map, &p->key, sizeof p->key);
  return VT_OK;
}

// NULL when out of memory: then no worker counts as missing.
static pulse *make(vt_cloud *cloud, int64_t uid, int64_t worker) {
  // Entries of deleted nodes stay; a full table is cleared.
  if (cloud->pulses && cloud->pulses->map.size >= MAX_PULSES) {
    vt_pulses_free(cloud->pulses);
    cloud->pulses = NULL;
  }
  if (!cloud->pulses) cloud->pulses = calloc(1, sizeof *cloud->pulses);
  if (!cloud->pulses) return NULL;
  place at = {&cloud->pulses->map, {uid, worker}, NULL};
  if (vt_attempt_keep(find_place, &at)) return NULL;
  if (!*at.slot) {
    pulse *p = calloc(1, sizeof *p);
    if (p) *p = (pulse){.uid = uid, .heard_ns = clock_of(cloud)};
    *at.slot = p;
  }
  return *at.slot;
}

static void hear(vt_cloud *cloud, pulse *p) {
  p->heard_ns = clock_of(cloud);
  p->swept = false;
}

void vt_health_heard(vt_cloud *cloud, int64_t uid, int64_t worker) {
  pulse *p = make(cloud, uid, worker);
  if (!p) return;
  hear(cloud, p);
  p->heartbeats = true;
}

void vt_health_expect(vt_cloud *cloud, const vt_node *node, bool anew) {
  for (int64_t w = 0; w < node->workers; w++) {
    pulse *p = find(cloud, node->uid, w);
    if (p && anew) hear(cloud, p);
    if (!p && cloud->options.guest_level > 0) (void)make(cloud, node->uid, w);
  }
}

void vt_health_longest(vt_cloud *cloud, int64_t uid, int64_t worker, int64_t longest_ns) {
  pulse *p = find(cloud, uid, worker);
  if (p) p->longest_ns = longest_ns;
}

bool vt_health_silent(const vt_cloud *cloud, int64_t uid, int64_t worker) {
  const pulse *p = find(cloud, uid, worker);
  return p && clock_of(cloud) - p->heard_ns >= VT_SILENCE_NS;
}

// --- symptoms ------------------------------------------------------------------------------------

static vt_status put_symptom(vt_cloud *cloud, vt_node *node, int64_t worker, const char *type,
                             const char *details) {
  int64_t last, now = vt_cloud_now(cloud);
  char text[MAX_DETAILS + 96], name[512];
  VT_TRY(vt_store_int(cloud->store, &last, 0,
                      "SELECT created_ns FROM symptoms WHERE node = ? AND worker = ? AND type = ?",
                      "iis", node->uid, worker, type));
  if (last && now - last < REPEAT_NS) return VT_OK;
  const vt_symptoms_row row = {
      .node = node->uid, .worker = worker, .type = type, .created_ns = now, .details = details};
  VT_TRY(vt_row_put(cloud->store, symptoms, &row));
  VT_TRY(vt_node_save(cloud, node)); // the client-visible state changes
  snprintf(text, sizeof text, "%s of worker %lld: %s", type, (long long)worker, details);
  snprintf(name, sizeof name, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
           node->id);
  return vt_cloud_event(cloud, "symptom", node->project, "vtpud", name, text);
}

vt_status vt_health_symptoms(vt_cloud *cloud, vt_node *node, int64_t worker, const char *text) {
  static const char *const types[] = {"LOW_MEMORY", "OUT_OF_MEMORY", "HBM_OUT_OF_MEMORY"};
  for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    if (strncmp(p, "symptom ", 8) != 0) continue;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
      size_t n = strlen(types[i]), used = 0;
      char details[MAX_DETAILS + 1];
      if (strncmp(p + 8, types[i], n) != 0 || p[8 + n] != ' ') continue;
      for (const char *q = p + 9 + n; *q && *q != '\n' && used < MAX_DETAILS; q++)
        details[used++] = *q >= ' ' && *q < 127 ? *q : '?';
      details[used] = 0;
      VT_TRY(put_symptom(cloud, node, worker, types[i], details));
    }
  }
  return VT_OK;
}

vt_status vt_health_view(vt_cloud *cloud, int64_t uid, json_t **out_list) {
  vt_rows *rows;
  *out_list = json_array();
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT created_ns, type, details, worker FROM symptoms WHERE node = ? "
                        "ORDER BY created_ns, worker, type",
                        "i", uid));
  while (vt_rows_next(rows)) {
    char time[40], worker[24];
    vt_time_format(vt_rows_int(rows, 0), time);
    snprintf(worker, sizeof worker, "%lld", (long long)vt_rows_int(rows, 3));
    json_array_append_new(*out_list, json_pack("{s:s, s:s, s:s, s:s}", "createTime", time,
                                               "symptomType", vt_rows_text(rows, 1), "details",
                                               vt_rows_text(rows, 2), "workerId", worker));
  }
  return vt_rows_end(rows);
}

vt_status vt_health_forget(vt_cloud *cloud, int64_t uid) {
  return vt_store_run(cloud->store, NULL, "DELETE FROM symptoms WHERE node = ?", "i", uid);
}

// --- health --------------------------------------------------------------------------------------

typedef struct judgement {
  const char *health, *text;
  const char *symptom, *details; // "" = no symptom belongs to it
  int64_t worker;
} judgement;

// Ordered from best to worst.
static vt_status judge(vt_cloud *cloud, vt_arena *arena, const vt_node *node, judgement *out) {
  vt_verdict verdict;
  *out = (judgement){"HEALTHY", "", "", "", 0};
  if (node->workers > 1) {
    VT_TRY(vt_doctor_verdict(cloud, arena, node->uid, node->workers, &verdict));
    // A host that is running something is not waiting.
    int64_t since_ns = vt_cloud_now(cloud) - verdict.waiting_ns;
    if (verdict.waiting_ns >= VT_WAITING_NS && node->busy_ns <= since_ns)
      *out = (judgement){"UNHEALTHY_TENSORFLOW", "Hosts of the slice wait for others.",
                         "MESH_BUILD_FAIL", verdict.text, verdict.waiting};
  }
  for (int64_t w = 0; w < node->workers; w++) {
    const pulse *p = find(cloud, node->uid, w);
    if (p && p->longest_ns >= VT_STUCK_NS)
      *out = (judgement){
          "UNHEALTHY_TENSORFLOW",
          vt_arena_printf(arena, "A program on worker %lld does not end.", (long long)w),
          "EXECUTE_TIMED_OUT", "one run of a program has been going on for an hour", w};
  }
  for (int64_t w = 0; w < node->workers; w++)
    if (vt_health_silent(cloud, node->uid, w))
      *out = (judgement){"TIMEOUT",
                         vt_arena_printf(arena, "Worker %lld is not heard of.", (long long)w), "",
                         "", w};
  // A daemon that has just started has heard from nobody yet, and clears nothing.
  for (int64_t w = 0; w < node->workers && strcmp(node->health, "TIMEOUT") == 0; w++) {
    const pulse *p = find(cloud, node->uid, w);
    if (p && !p->heartbeats && strcmp(out->health, "TIMEOUT") != 0)
      *out = (judgement){node->health, node->health_text, "", "", w};
  }
  return VT_OK;
}

static bool differs(const vt_node *node, const judgement *j) {
  return strcmp(j->health, node->health) != 0 || strcmp(j->text, node->health_text) != 0;
}

vt_status vt_health_differs(vt_cloud *cloud, vt_arena *arena, const vt_node *node,
                            bool *out_differs) {
  judgement j;
  *out_differs = false;
  if (node->state != VT_NODE_READY) return VT_OK;
  VT_TRY(judge(cloud, arena, node, &j));
  *out_differs = differs(node, &j);
  return VT_OK;
}

vt_status vt_health_settle(vt_cloud *cloud, vt_arena *arena, vt_node *node, bool *out_changed) {
  judgement j;
  *out_changed = false;
  if (node->state != VT_NODE_READY) return VT_OK;
  VT_TRY(judge(cloud, arena, node, &j));
  if (!differs(node, &j)) return VT_OK;
  *out_changed = true;
  node->health = j.health;
  node->health_text = j.text;
  VT_TRY(vt_node_save(cloud, node));
  if (*j.symptom) VT_TRY(put_symptom(cloud, node, j.worker, j.symptom, j.details));
  return vt_cloud_event(cloud, "health", node->project, "vtpud", vt_node_name(arena, node),
                        vt_arena_printf(arena, "%s%s%s", j.health, *j.text ? ": " : "", j.text));
}

typedef struct settling {
  int64_t uid;
  vt_arena arena;
} settling;

static vt_status settle(vt_cloud *cloud, void *context) {
  settling *s = context;
  vt_node node;
  bool found, changed;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  vt_status st = found ? vt_health_settle(cloud, &s->arena, &node, &changed) : VT_OK;
  vt_node_fini(&node);
  return st;
}

vt_status vt_health_sweep(vt_cloud *cloud) {
  struct vt_pulses *pulses = cloud->pulses;
  int64_t now = clock_of(cloud);
  if (!pulses) return VT_OK;
  bool paused = cloud->options.guest_level > 0 && now - pulses->looked_ns > PAUSE_NS;
  pulses->looked_ns = now;
  for (size_t i = 0; i < pulses->map.size; i++) {
    pulse *p = pulses->map.entries[i].value;
    if (!p) continue;
    if (paused) hear(cloud, p);
    if (p->swept || now - p->heard_ns < VT_SILENCE_NS) continue;
    settling s = {.uid = p->uid};
    vt_status st = vt_cloud_transact(cloud, settle, &s);
    vt_arena_free(&s.arena);
    if (st) return st;
    p->swept = true; // also when the node is not READY, or gone
  }
  return VT_OK;
}
