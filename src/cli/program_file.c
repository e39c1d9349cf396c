// SPDX-License-Identifier: Apache-2.0
// program_file.c - the file of a program that a command names.
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { MOST_FILES = 10000 };

// The file beside `path` whose name is nearest, if it is near.
static bool find_near(const char *path, char out_near[PATH_MAX]) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  char folder[PATH_MAX], found[NAME_MAX + 1];
  int size = slash ? (int)(slash - path) + 1 : 0;
  if (size >= PATH_MAX) return false;
  snprintf(folder, sizeof folder, "%.*s", size, path);
  DIR *dir = opendir(slash ? folder : ".");
  if (!dir) return false;
  int least = 2 + (int)(strlen(name) / 2), count = 0;
  bool any = false;
  for (struct dirent *entry; (entry = readdir(dir)) && count < MOST_FILES; count++) {
    int distance = vt_text_distance(name, entry->d_name);
    bool hidden = *entry->d_name == '.';
    // Among equals the first by name, in whatever order the folder lists them.
    if (hidden || distance > least ||
        (any && distance == least && strcmp(entry->d_name, found) > 0))
      continue;
    any = true;
    least = distance;
    snprintf(found, sizeof found, "%s", entry->d_name);
  }
  closedir(dir);
  return any && snprintf(out_near, PATH_MAX, "%s%s", folder, found) < PATH_MAX;
}

vt_status vt_cli_map_program(const char *path, vt_bytes *out_bytes) {
  char near[PATH_MAX];
  vt_status st = vt_file_map(path, out_bytes);
  if (st && vt_status_code(st) == VT_NOT_FOUND && find_near(path, near)) {
    vt_status_free(st);
    return vt_error(VT_NOT_FOUND, "there is no %s; do you mean %s?", path, near);
  }
  VT_TRY(st);
  if (out_bytes->size) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "%s is empty", path);
}
