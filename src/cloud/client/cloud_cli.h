// SPDX-License-Identifier: Apache-2.0
// cloud_cli.h - the cloud part of the `vtpu` command: gcloud's words, flags and formats.
#ifndef VT_CLOUD_CLI_H
#define VT_CLOUD_CLI_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/command.h"
#include "base/status.h"
#include "base/text.h"

// argv[0] is a group of commands.def, or a word that gcloud has before it ("compute", "alpha").
// Returns the exit status: 0, 1 for errors, 2 for usage errors.
int vt_cloud_cli(int argc, char **argv);
extern const vt_command_table vt_cloud_commands;

// A parsed command line combined with the configuration.
typedef struct vt_cli {
  vt_arena arena;
  const char *group, *command;
  vt_args args;
  const char *endpoint, *token, *project, *zone, *ca_file, *googleapis;
} vt_cli;

const char *vt_cli_flag_value(const vt_cli *cli,
                              const char *name);          // the last one, NULL when absent
bool vt_cli_flag_on(const vt_cli *cli, const char *name); // --name or --name=true, not --no-name
// Makes a call; an HTTP error becomes a status with the server's message. *out_json is a new
// reference.
vt_status vt_cli_call(vt_cli *cli, const char *method, const char *path, json_t *body,
                      json_t **out_json) VT_CHECKED;
// Polls a long-running operation until it is done; returns its error.
vt_status vt_cli_wait(vt_cli *cli, json_t *operation) VT_CHECKED;
// A name for use in a path: other than plain characters are percent-encoded.
const char *vt_cli_encode(vt_cli *cli, const char *name);
const char *vt_cli_parent(vt_cli *cli); // "/v2alpha1/projects/p/locations/z"
vt_status vt_cli_node(vt_cli *cli, const char *name, json_t **out_node) VT_CHECKED;

// A new reference to a vtpud's extra information on a node; NULL when it has none.
json_t *vt_cli_use(vt_cli *cli, const char *name);
// Prints one object or a list in --format: json, yaml, value(...), csv(...), table(...); NULL is
// `standard`.
vt_status vt_cli_print(const char *format, const char *standard, const json_t *value) VT_CHECKED;

const char *vt_cli_user(void);                           // the account on VMs
vt_status vt_cli_ssh(vt_cli *cli, bool copy) VT_CHECKED; // cli_ssh.c; copy: scp
vt_status vt_cli_googleapis(vt_cli *cli) VT_CHECKED;     // cli_googleapis.c; returns on errors only
vt_status vt_cli_quota_info_list(vt_cli *cli) VT_CHECKED; // cli_quota.c
vt_status vt_cli_quota_info_describe(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_list(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_create(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_update(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_describe(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_reviews(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_approve(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_quota_reject(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_list(vt_cli *cli) VT_CHECKED; // cli_account.c
vt_status vt_cli_accounts_describe(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_create(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_update(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_set_password(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_tokens(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_new_token(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_accounts_revoke(vt_cli *cli) VT_CHECKED;
vt_status vt_cli_tunnel(vt_cli *cli) VT_CHECKED;  // cli_tunnel.c: INSTANCE PORT
vt_status vt_config_read(vt_cli *cli) VT_CHECKED; // cli_config.c
vt_status vt_config_list(vt_cli *cli) VT_CHECKED;
vt_status vt_config_get(vt_cli *cli) VT_CHECKED;
vt_status vt_config_set(vt_cli *cli) VT_CHECKED;
vt_status vt_config_unset(vt_cli *cli) VT_CHECKED;

#endif
