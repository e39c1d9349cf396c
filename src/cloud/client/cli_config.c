// SPDX-License-Identifier: Apache-2.0
// cli_config.c - `vtpu config`: project, zone, endpoint and token in ~/.config/vtpu/config, one
// `name = value` per line. Environment variables (VTPU_PROJECT ...) override the file, flags
// override both.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cloud/client/cloud_cli.h"

static const struct property {
  const char *name, *variable;
  size_t offset;
} properties[] = {{"project", "VTPU_PROJECT", offsetof(vt_cli, project)},
                  {"zone", "VTPU_ZONE", offsetof(vt_cli, zone)},
                  {"endpoint", "VTPU_ENDPOINT", offsetof(vt_cli, endpoint)},
                  {"token", "VTPU_TOKEN", offsetof(vt_cli, token)},
                  {"ca-file", "VTPU_CA", offsetof(vt_cli, ca_file)},
                  {"googleapis", "VTPU_GOOGLEAPIS", offsetof(vt_cli, googleapis)}};
enum { property_count = sizeof properties / sizeof *properties };

// "compute/zone" and "core/project" are gcloud's names for the same.
static const struct property *find(const char *name) {
  const char *slash = strchr(name, '/');
  if (slash) name = slash + 1;
  for (int i = 0; i < property_count; i++)
    if (strcmp(properties[i].name, name) == 0) return &properties[i];
  return NULL;
}

static const char *config_path(vt_cli *cli) {
  const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  if (folder && *folder) return vt_arena_printf(&cli->arena, "%s/vtpu/config", folder);
  return vt_arena_printf(&cli->arena, "%s/.config/vtpu/config", home ? home : "");
}

static void read_file(vt_cli *cli, const char *values[property_count]) {
  vt_bytes file;
  vt_status st = vt_file_map(config_path(cli), &file);
  if (st) { // a missing file is an empty one
    vt_status_free(st);
    return;
  }
  char *text = vt_arena_copy(&cli->arena, file.data, file.size), *save = NULL;
  vt_file_unmap(&file);
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char *equals = strstr(line, " = ");
    if (!equals) continue;
    *equals = 0;
    const struct property *p = find(line);
    if (p) values[p - properties] = equals + 3;
  }
}

vt_status vt_config_read(vt_cli *cli) {
  const char *values[property_count] = {0};
  read_file(cli, values);
  for (int i = 0; i < property_count; i++) {
    const char *variable = getenv(properties[i].variable),
               *flag = vt_cli_flag_value(cli, properties[i].name);
    const char *value = flag ? flag : variable && *variable ? variable : values[i];
    // They go into headers and URLs.
    if (value && strpbrk(value, "\r\n"))
      return vt_error(VT_INVALID_ARGUMENT, "%s: a value is one line", properties[i].name);
    *(const char **)((char *)cli + properties[i].offset) = value ? value : "";
  }
  return VT_OK;
}

static vt_status write_file(vt_cli *cli, const char *const values[property_count]) {
  const char *path = config_path(cli);
  char *folder = vt_arena_copy(&cli->arena, path, strlen(path));
  vt_text text = {0};
  for (char *p = folder + 1; (p = strchr(p, '/')); p++) {
    *p = 0;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
      return vt_error(VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    *p = '/';
  }
  for (int i = 0; i < property_count; i++)
    if (values[i]) vt_text_printf(&text, "%s = %s\n", properties[i].name, values[i]);
  mode_t mask = umask(077); // it contains the token
  vt_status st = vt_file_write(path, vt_text_string(&text), text.size);
  umask(mask);
  vt_text_free(&text);
  return st;
}

vt_status vt_config_list(vt_cli *cli) {
  const char *values[property_count] = {0};
  read_file(cli, values);
  for (int i = 0; i < property_count; i++)
    if (values[i])
      printf("%s = %s\n", properties[i].name,
             strcmp(properties[i].name, "token") == 0 ? "(set)" : values[i]);
  return VT_OK;
}

// The file's settings, and the one that the first word names.
static vt_status read_for(vt_cli *cli, const char *values[property_count],
                          const struct property **out_property) {
  read_file(cli, values);
  *out_property = find(cli->args.words.data[0]);
  if (*out_property) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT,
                  "no property '%s': project, zone, endpoint, token, ca-file, googleapis",
                  cli->args.words.data[0]);
}

vt_status vt_config_get(vt_cli *cli) {
  const char *values[property_count] = {0};
  const struct property *p;
  VT_TRY(read_for(cli, values, &p));
  puts(values[p - properties] ? values[p - properties] : "(unset)");
  return VT_OK;
}

vt_status vt_config_set(vt_cli *cli) {
  const char *values[property_count] = {0};
  const struct property *p;
  VT_TRY(read_for(cli, values, &p));
  if (strpbrk(cli->args.words.data[1], "\r\n"))
    return vt_error(VT_INVALID_ARGUMENT, "a value is one line");
  values[p - properties] = cli->args.words.data[1];
  VT_TRY(write_file(cli, values));
  fprintf(stderr, "Updated property [%s].\n", p->name);
  return VT_OK;
}

vt_status vt_config_unset(vt_cli *cli) {
  const char *values[property_count] = {0};
  const struct property *p;
  VT_TRY(read_for(cli, values, &p));
  values[p - properties] = NULL;
  return write_file(cli, values);
}
