// SPDX-License-Identifier: Apache-2.0
// login_name.c - see login_name.h. A key must never open a system account: that would give access
// to what runs as it, at level 1 for example the host's database server. Ids come from the store,
// because two names with one id could read each other's files.
#include "cloud/api/login_name.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/store/row.h"

// --- names ---------------------------------------------------------------------------------------

static bool form_fits(const char *name, size_t size) {
  if (size == 0 || size > 32 || !(*name >= 'a' && *name <= 'z')) return false;
  for (size_t i = 0; i < size; i++)
    if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_-.", name[i]) || !name[i]) return false;
  return true;
}

// The names of the system's accounts or groups in one of the host's files, read again when it
// changes. People's accounts (ids from 1000 on) are excluded: a worker does not have them.
typedef struct name_file {
  const char *path;
  FILE *in;
  vt_map names;
  struct timespec changed;
} name_file;

static vt_status read_lines(void *user) {
  name_file *file = user;
  char line[4096];
  while (fgets(line, sizeof line, file->in)) {
    const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    long id = second ? strtol(second + 1, NULL, 10) : -1;
    if (id >= 0 && (id < 1000 || id >= 60000))
      *vt_map_at(&file->names, line, (size_t)(first - line)) = file;
  }
  return VT_OK;
}

static vt_status read_names(name_file *file) {
  struct stat info;
  if (stat(file->path, &info) != 0) return VT_OK;
  if (info.st_mtim.tv_sec == file->changed.tv_sec && info.st_mtim.tv_nsec == file->changed.tv_nsec)
    return VT_OK;
  file->in = fopen(file->path, "re");
  if (!file->in) return VT_OK;
  vt_map_free(&file->names);
  vt_status st = vt_attempt_keep(read_lines, file);
  fclose(file->in);
  file->changed = st ? (struct timespec){0} : info.st_mtim;
  return st;
}

static bool is_reserved(const char *name, size_t size) {
  static const char *const reserved[] = {
#define NAME(text) text,
#include "cloud/api/reserved_names.def"
#undef NAME
  };
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strlen(reserved[i]) == size && memcmp(reserved[i], name, size) == 0) return true;
  return size >= 8 && memcmp(name, "systemd-", 8) == 0;
}

bool vt_login_name_valid(const char *name, size_t size) {
  static name_file files[] = {{.path = "/etc/passwd"}, {.path = "/etc/group"}};
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (!form_fits(name, size) || is_reserved(name, size)) return false;
  bool found = false;
  vt_status st = VT_OK;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < sizeof files / sizeof *files && !found && !st; i++) {
    st = read_names(&files[i]);
    found = vt_map_find(&files[i].names, name, size) != NULL;
  }
  pthread_mutex_unlock(&lock);
  if (st) vt_memory_out(0, "names");
  return !found;
}

// --- ids -----------------------------------------------------------------------------------------

// Where the search for a free id starts. Before ids were stored this was a name's id, so most names
// keep their homes.
static int64_t preferred(const char *name) {
  return VT_LOGIN_FIRST_ID + (int64_t)(vt_hash_bytes(name, strlen(name), 0) % VT_LOGIN_IDS);
}

vt_status vt_login_id_known(vt_cloud *cloud, const char *project, const char *name,
                            int64_t *out_id) {
  return vt_store_int(cloud->store, out_id, preferred(name),
                      "SELECT id FROM login_ids WHERE project = ? AND name = ?", "ss", project,
                      name);
}

// The first free id in [from, end), 0 when there is none.
static vt_status find_free(vt_cloud *cloud, const char *project, int64_t from, int64_t end,
                           int64_t *out_id) {
  int64_t taken;
  VT_TRY(vt_store_int(cloud->store, &taken, 0,
                      "SELECT 1 FROM login_ids WHERE project = ? AND id = ?", "si", project, from));
  *out_id = from;
  if (!taken) return VT_OK;
  VT_TRY(vt_store_int(
      cloud->store, out_id, 0,
      "SELECT MIN(id) + 1 FROM login_ids a WHERE project = ? AND id >= ? AND NOT EXISTS (SELECT 1 "
      "FROM login_ids b WHERE b.project = a.project AND b.id = a.id + 1)",
      "si", project, from));
  if (*out_id >= end) *out_id = 0;
  return VT_OK;
}

vt_status vt_login_id(vt_cloud *cloud, const char *project, const char *name, int64_t *out_id) {
  const int64_t end = VT_LOGIN_FIRST_ID + VT_LOGIN_IDS;
  VT_TRY(vt_store_int(cloud->store, out_id, 0,
                      "SELECT id FROM login_ids WHERE project = ? AND name = ?", "ss", project,
                      name));
  if (*out_id) return VT_OK;
  VT_TRY(find_free(cloud, project, preferred(name), end, out_id));
  if (!*out_id) VT_TRY(find_free(cloud, project, VT_LOGIN_FIRST_ID, end, out_id));
  if (!*out_id)
    return vt_error(VT_RESOURCE_EXHAUSTED, "project '%s' has no user id left for '%s'", project,
                    name);
  const vt_login_ids_row row = {.project = project, .name = name, .id = *out_id};
  return vt_row_insert(cloud->store, login_ids, &row);
}
