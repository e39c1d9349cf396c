// SPDX-License-Identifier: Apache-2.0
// open.c - see open.h. Only this file knows every part of a cloud.
#include "cloud/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/metrics.h"
#include "cloud/api/password.h"
#include "cloud/api/record.h"
#include "cloud/door/relay.h"
#include "cloud/state/address.h"
#include "cloud/state/allowance.h"
#include "cloud/state/catalogue.h"
#include "cloud/state/health.h"
#include "cloud/state/node.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

void vt_cloud_options_default(vt_cloud_options *out_options) {
  *out_options = (vt_cloud_options){.state_dir = "",
                                    .store = "",
                                    .universe = "vtpu.localhost",
                                    .notice_ns = 30 * VT_SECOND,
                                    .preemptible_limit_ns = 24 * VT_HOUR,
                                    .idle_alert_ns = 3 * VT_HOUR,
                                    .kind_reap_ns = 10 * 60 * VT_SECOND,
                                    .request_timeout_ns = 60 * VT_SECOND,
                                    .guest_limits = "auto",
                                    .backend = "local",
                                    .slurm_partition = "",
                                    .slurm_spot_partition = "",
                                    .slurm_account = "",
                                    .slurm_options = "",
                                    .slurm_folder = "/var/lib/vtpu-guests",
                                    .slurm_wait_ns = 60 * VT_SECOND,
                                    .keep_operations = 30,
                                    .keep_events = 400,
                                    .keep_logs = 30,
                                    .keep_reports = 400,
                                    .library_path = "",
                                    .python_path = "",
                                    .record = ""};
}

static int64_t system_clock(int clock_id) {
  struct timespec now;
  clock_gettime(clock_id, &now);
  return (int64_t)now.tv_sec * VT_SECOND + now.tv_nsec;
}

// Starts from the system's time, but never before the latest time in the rows.
static vt_status start_clock(vt_cloud *cloud) {
  int64_t last, wall;
  VT_TRY(vt_store_int(cloud->store, &last, 0, "SELECT MAX(at_ns) FROM events", ""));
  if (cloud->options.virtual_time) {
    if (last > cloud->virtual_ns) cloud->virtual_ns = last;
    return VT_OK;
  }
  wall = cloud->options.read_clock(CLOCK_REALTIME);
  if (last > wall)
    vt_log(VT_LOG_WARNING,
           "the clock of this machine is %lld s behind the last event of the cloud, which goes on "
           "from there",
           (long long)((last - wall) / VT_SECOND));
  cloud->anchor_ns = last > wall ? last : wall;
  cloud->anchor_boot_ns = cloud->options.read_clock(CLOCK_BOOTTIME);
  return VT_OK;
}

static vt_status load_secret(vt_cloud *cloud) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT detail FROM events WHERE kind = 'secret' ORDER BY id LIMIT 1", ""));
  if (vt_rows_next(rows))
    snprintf(cloud->secret, sizeof cloud->secret, "%s", vt_rows_text(rows, 0));
  VT_TRY(vt_rows_end(rows));
  if (*cloud->secret) return VT_OK;
  vt_cloud_random_hex(cloud->secret, 64);
  return vt_cloud_event(cloud, "secret", "", "", "", cloud->secret);
}

static vt_status first_rows(vt_cloud *cloud, void *context) {
  (void)context;
  VT_TRY(load_secret(cloud));
  for (int z = 0; vt_zone_at(z); z++)
    for (int f = 0; vt_family_at(f); f++) {
      const vt_family *family = vt_family_at(f);
      bool offered = false;
      for (int a = 0; vt_accelerator_at(a) && !offered; a++)
        offered = vt_accelerator_at(a)->family == family &&
                  vt_zone_offers(vt_zone_at(z), vt_accelerator_at(a));
      const vt_capacity_row row = {
          .zone = vt_zone_at(z), .family = family->name, .chips = family->capacity_chips};
      if (offered) VT_TRY(vt_row_add(cloud->store, capacity, &row));
    }
  return VT_OK;
}

vt_status vt_cloud_open(const vt_cloud_options *options, vt_cloud **out_cloud) {
  vt_status st = VT_OK;
  *out_cloud = NULL;
  vt_cloud *cloud = calloc(1, sizeof *cloud);
  if (!cloud) return vt_error_no_memory();
  vt_json_start();
  cloud->options = *options;
  cloud->state_lock = -1;
  if (!cloud->options.read_clock) cloud->options.read_clock = system_clock;
  cloud->virtual_ns = INT64_C(1767225600) * VT_SECOND; // virtual time begins 2026-01-01
  pthread_mutex_init(&cloud->lock, NULL);
  pthread_mutex_init(&cloud->hearing, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&cloud->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  VT_TRY_OUT(vt_metrics_create(&cloud->metrics));
  VT_TRY_OUT(vt_relays_create(&cloud->relays));
  if (*options->record) VT_TRY_OUT(vt_recorder_create(options->record, &cloud->recorder));
  char path[512] = "";
  if (*options->state_dir) {
    if (mkdir(options->state_dir, 0711) != 0 && access(options->state_dir, W_OK) != 0) {
      st = vt_error(VT_UNAVAILABLE, "cannot write to the state folder %s", options->state_dir);
      goto out;
    }
    VT_TRY_OUT(vt_cloud_lock_state(options->state_dir, &cloud->state_lock));
    snprintf(path, sizeof path, "%s/cloud.db", options->state_dir);
  }
  mode_t mask = umask(077);
  st = vt_store_open(*options->store ? options->store : path, options->durable, &cloud->store);
  umask(mask);
  if (st) goto out;
  VT_TRY_OUT(start_clock(cloud));
  VT_TRY_OUT(vt_cloud_transact(cloud, first_rows, NULL));
  *out_cloud = cloud;
  cloud = NULL;
out:
  vt_cloud_close(cloud);
  return st;
}

void vt_cloud_close(vt_cloud *cloud) {
  if (!cloud) return;
  vt_addresses_release(cloud);
  vt_store_close(cloud->store);
  if (cloud->state_lock >= 0) close(cloud->state_lock);
  vt_metrics_destroy(cloud->metrics);
  vt_pulses_free(cloud->pulses);
  vt_relays_destroy(cloud->relays);
  vt_recorder_destroy(cloud->recorder);
  free(cloud->rates);
  vt_allowances_free(cloud->allowances);
  vt_guard_free(cloud->guard);
  vt_node_texts_free(cloud->node_texts);
  pthread_mutex_destroy(&cloud->lock);
  pthread_mutex_destroy(&cloud->hearing);
  pthread_cond_destroy(&cloud->wake);
  free(cloud);
}

typedef struct seed {
  const char *project, *account;
  vt_first_token token;
  char **out_token;
} seed;

static vt_status seed_rows(vt_cloud *cloud, void *context) {
  static const char *const enabled[] = {"tpu.googleapis.com", "compute.googleapis.com"};
  const seed *s = context;
  int64_t exists, number;
  VT_TRY(vt_store_int(cloud->store, &exists, 0, "SELECT 1 FROM projects WHERE id = ?", "s",
                      s->project));
  if (!exists) {
    VT_TRY(vt_cloud_next(cloud, "projects", &number));
    const vt_projects_row row = {.id = s->project,
                                 .number = 100000000000 + number,
                                 .display_name = s->project,
                                 .policy_etag = 1,
                                 .billing_account = "",
                                 .personality = "faithful",
                                 .metadata = "{}",
                                 .metadata_version = 1,
                                 .created_ns = vt_cloud_now(cloud)};
    VT_TRY(vt_row_insert(cloud->store, projects, &row));
    for (size_t i = 0; i < sizeof enabled / sizeof *enabled; i++) {
      const vt_services_row service = {.project = s->project, .service = enabled[i]};
      VT_TRY(vt_row_insert(cloud->store, services, &service));
    }
    const vt_quotas_row quota = {.project = s->project, .quota = "*", .place = "*", .units = -1};
    VT_TRY(vt_row_insert(cloud->store, quotas, &quota));
  }
  VT_TRY(vt_store_int(cloud->store, &exists, 0, "SELECT 1 FROM accounts WHERE email = ?", "s",
                      s->account));
  if (!exists) VT_TRY(vt_account_create(cloud, s->account, "user", "admin", "", "Administrator"));
  char member[320];
  snprintf(member, sizeof member, "user:%s", s->account);
  const vt_members_row owner = {.project = s->project, .role = "roles/owner", .member = member};
  VT_TRY(vt_row_add(cloud->store, members, &owner));
  vt_memory_free(*s->out_token); // left by a failed attempt
  *s->out_token = NULL;
  if (s->token == VT_TOKEN_FIRST && exists) return VT_OK;
  VT_TRY(vt_token_revoke_from(cloud, "start"));
  const vt_token_start start = {s->account, "access",
                                "https://www.googleapis.com/auth/cloud-platform", "start",
                                s->token == VT_TOKEN_ALWAYS ? 0 : VT_FIRST_TOKEN_NS};
  return vt_token_create(cloud, &start, s->out_token);
}

vt_status vt_cloud_seed(vt_cloud *cloud, const char *project, const char *account,
                        vt_first_token token, char **out_token) {
  seed s = {project, account, token, out_token};
  *out_token = NULL;
  return vt_cloud_transact(cloud, seed_rows, &s);
}
