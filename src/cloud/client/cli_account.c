// SPDX-License-Identifier: Apache-2.0
// cli_account.c - `vtpu accounts ...`: for administrators, accounts with their roles, passwords and
// tokens; for everybody, their own password and tokens (`me`).
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cloud/client/cloud_cli.h"

#define ACCOUNT_TABLE                                                                              \
  "table(email:label=EMAIL,kind:label=KIND,role:label=ROLE,disabled:label=DISABLED)"
#define TOKEN_TABLE                                                                                \
  "table(id:label=ID,kind:label=KIND,origin:label=ORIGIN,createTime:label=CREATED,expireTime:"     \
  "label=EXPIRES,current:label=CURRENT)"

// The account that a command is about: EMAIL, or `me`.
static const char *path_of(vt_cli *cli, const char *rest) {
  const char *who = cli->args.words.data[0];
  if (strcmp(who, "me") == 0) return vt_arena_printf(&cli->arena, "/vtpu/v1/me%s", rest);
  return vt_arena_printf(&cli->arena, "/vtpu/v1/accounts/%s%s", vt_cli_encode(cli, who), rest);
}

static vt_status show(vt_cli *cli, const char *method, const char *path, json_t *body,
                      const char *key, const char *standard) {
  json_t *reply;
  VT_TRY(vt_cli_call(cli, method, path, body, &reply));
  vt_status st = vt_cli_print(vt_cli_flag_value(cli, "format"), standard,
                              key ? json_object_get(reply, key) : reply);
  json_decref(reply);
  return st;
}

// --days of a token; without it the token does not expire.
static void put_days(vt_cli *cli, json_t *body) {
  int64_t days = vt_args_number(&cli->args, "days", 0);
  if (days) json_object_set_new(body, "days", json_integer((json_int_t)days));
}

// A line of standard input; on a terminal with a prompt and without echo.
static vt_status read_password(vt_cli *cli, const char *what, const char **out_password) {
  char line[1100];
  struct termios shown, hidden;
  bool terminal = isatty(0) && tcgetattr(0, &shown) == 0;
  if (terminal) {
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)ECHO;
    fprintf(stderr, "%s: ", what);
    tcsetattr(0, TCSAFLUSH, &hidden);
  }
  bool got = fgets(line, sizeof line, stdin) != NULL;
  if (terminal) {
    tcsetattr(0, TCSAFLUSH, &shown);
    fputc('\n', stderr);
  }
  if (!got) return vt_error(VT_INVALID_ARGUMENT, "%s is expected on the standard input", what);
  line[strcspn(line, "\n")] = 0;
  *out_password = vt_arena_copy(&cli->arena, line, strlen(line));
  return VT_OK;
}

vt_status vt_cli_accounts_list(vt_cli *cli) {
  return show(cli, "GET", "/vtpu/v1/accounts", NULL, "accounts", ACCOUNT_TABLE);
}

vt_status vt_cli_accounts_describe(vt_cli *cli) {
  return show(cli, "GET", path_of(cli, ""), NULL, NULL, "yaml");
}

vt_status vt_cli_accounts_create(vt_cli *cli) {
  const char *role = vt_cli_flag_value(cli, "role"), *password;
  json_t *body =
      json_pack("{s:s, s:s}", "email", cli->args.words.data[0], "role", role ? role : "user");
  vt_status st = VT_OK;
  put_days(cli, body);
  if (vt_cli_flag_on(cli, "password")) {
    st = read_password(cli, "Password", &password);
    if (!st) json_object_set_new(body, "password", json_string(password));
  }
  if (!st) return show(cli, "POST", "/vtpu/v1/accounts", body, NULL, "yaml");
  json_decref(body);
  return st;
}

vt_status vt_cli_accounts_update(vt_cli *cli) {
  const char *role = vt_cli_flag_value(cli, "role");
  json_t *body = json_object();
  if (vt_cli_flag_on(cli, "disable") && vt_cli_flag_on(cli, "enable")) {
    json_decref(body);
    return vt_error(VT_INVALID_ARGUMENT, "--enable or --disable");
  }
  if (role) json_object_set_new(body, "role", json_string(role));
  if (vt_cli_flag_on(cli, "disable")) json_object_set_new(body, "disabled", json_true());
  if (vt_cli_flag_on(cli, "enable")) json_object_set_new(body, "disabled", json_false());
  return show(cli, "PATCH", path_of(cli, ""), body, NULL, "yaml");
}

vt_status vt_cli_accounts_set_password(vt_cli *cli) {
  const char *old = "", *password;
  bool own = strcmp(cli->args.words.data[0], "me") == 0;
  if (own) VT_TRY(read_password(cli, "Old password (empty if there is none)", &old));
  VT_TRY(read_password(cli, "New password", &password));
  json_t *body = json_pack("{s:s}", "password", password);
  if (*old) json_object_set_new(body, "oldPassword", json_string(old));
  json_t *reply;
  VT_TRY(vt_cli_call(cli, own ? "POST" : "PATCH", path_of(cli, own ? ":setPassword" : ""), body,
                     &reply));
  json_decref(reply);
  fputs("The password is changed; whoever was signed in with the old one is signed out.\n", stderr);
  return VT_OK;
}

vt_status vt_cli_accounts_tokens(vt_cli *cli) {
  return show(cli, "GET", path_of(cli, "/tokens"), NULL, "tokens", TOKEN_TABLE);
}

vt_status vt_cli_accounts_new_token(vt_cli *cli) {
  json_t *body = json_object();
  put_days(cli, body);
  return show(cli, "POST", path_of(cli, "/tokens"), body, NULL, "yaml");
}

vt_status vt_cli_accounts_revoke(vt_cli *cli) {
  const char *id = cli->args.words.size > 1 ? cli->args.words.data[1] : NULL;
  json_t *reply;
  if (!id && !vt_cli_flag_on(cli, "all"))
    return vt_error(VT_INVALID_ARGUMENT, "the ID of a token, or --all");
  VT_TRY(vt_cli_call(
      cli, "DELETE",
      path_of(cli,
              id ? vt_arena_printf(&cli->arena, "/tokens/%s", vt_cli_encode(cli, id)) : "/tokens"),
      NULL, &reply));
  json_decref(reply);
  return VT_OK;
}
