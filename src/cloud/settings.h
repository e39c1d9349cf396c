// SPDX-License-Identifier: Apache-2.0
// settings.h - the settings of vtpud: the rows of vtpud.def, read from the command line and from
// files.
#ifndef VT_CLOUD_SETTINGS_H
#define VT_CLOUD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct vt_settings {
  const char *address, *certificate, *key, *state, *store, *restore, *universe, *library, *python,
      *project, *admin, *guest_limits, *googleapis, *backend, *slurm_partition,
      *slurm_spot_partition, *slurm_account, *slurm_options, *slurm_folder, *record, *user;
  const char *guests_word; // as given, "" = not given
  int64_t guests;          // a level, -1 = the best available
  int64_t port, guest_memory, guest_cpus, notice, requests_per_minute, request_timeout,
      quota_auto_grant;
  int64_t slurm_wait, kind_after, watchdog;
  int64_t keep_operations, keep_events, keep_logs, keep_reports;
  bool virtual_time, new_token, clean;
  bool ephemeral, temporary; // temporary: the state folder was made for this run
  char **command;
} vt_settings;

// Parses a command line; texts are argv's or in `arena`. *out_done: it asked for a page (--help,
// --man, --completion bash), which has been printed, and there is nothing else to do.
vt_status vt_settings_read(vt_settings *out_settings, vt_arena *arena, int argc, char **argv,
                           bool *out_done) VT_CHECKED;

#endif
