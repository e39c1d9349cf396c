// SPDX-License-Identifier: Apache-2.0
// predicted.c - this process's programs with their predictions (base/predictions.h), for those who
// set VTPU_PREDICT to a folder. Others pay one test at each compilation.
#include "base/predictions.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/predict.h"
#include "runtime/runtime_internal.h"

static vt_predictions *the_file;
static pid_t owner;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static vt_predictions *map_file(const char *folder) {
  char path[512];
  int n = snprintf(path, sizeof path, "%s/programs-%ld", folder, (long)getpid());
  if (n >= (int)sizeof path) return NULL;
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return NULL;
  void *file = MAP_FAILED;
  if (ftruncate(fd, sizeof(vt_predictions)) == 0)
    file = mmap(NULL, sizeof(vt_predictions), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (file == MAP_FAILED) return NULL;
  ((vt_predictions *)file)->magic = VT_PREDICTIONS_MAGIC;
  return file;
}

static void fill_in(vt_predicted_program *row, const vt_executable *executable) {
  vt_prediction p;
  vt_arena arena = {0};
  snprintf(row->name, sizeof row->name, "%s", executable->info.name);
  vt_status st = vt_predict(executable->info.program, &executable->slice, &arena, &p);
  if (!st) {
    row->seconds = p.timing.seconds;
    row->exposed = p.timing.exposed;
    row->flops = p.flops;
    row->mfu = p.mfu;
    row->joules = p.joules;
    row->hbm_peak_bytes = p.hbm_peak_bytes;
    row->devices = p.devices;
    snprintf(row->bound, sizeof row->bound, "%s", vt_bound_name(p.timing.bound));
    vt_prediction_free(&p);
  }
  vt_status_free(st); // it runs here all the same
  vt_arena_free(&arena);
}

// A forked child has a file of its own.
vt_predicted_program *vt_predicted_add(const vt_executable *executable) {
  const char *folder = getenv("VTPU_PREDICT");
  if (!folder || !*folder) return NULL;
  vt_predicted_program row = {0}, *place = NULL;
  fill_in(&row, executable);
  vt_lock(&adding);
  if (owner != getpid()) {
    the_file = map_file(folder);
    owner = getpid();
  }
  uint64_t count = the_file ? atomic_load(&the_file->count) : VT_PREDICTIONS_MOST;
  if (count < VT_PREDICTIONS_MOST) {
    place = &the_file->programs[count];
    *place = row;
    atomic_store(&the_file->count, count + 1);
  }
  vt_unlock(&adding);
  return place;
}

vt_virtual_clock *vt_predicted_clock(void) {
  vt_lock(&adding);
  vt_virtual_clock *clock = the_file && owner == getpid() ? &the_file->clock : NULL;
  vt_unlock(&adding);
  return clock;
}
