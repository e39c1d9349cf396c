// SPDX-License-Identifier: Apache-2.0
// code_cache.h - compiled objects on disk: a folder of files, one for each object.
//
// The folder is VTPU_CACHE_DIR ("" keeps nothing), by default $XDG_CACHE_HOME/vtpu or
// ~/.cache/vtpu. It holds at most VTPU_CACHE_MIB mebibytes (default 1024), looked at once an hour
// and whenever this process has added a sixteenth of that: then files go until three quarters are
// left, first those of other targets that were not used for a week, then the least recently used.
// Any number of processes and threads may use a folder at once; a file that disappears is an object
// to compile again. Other files in the folder are left alone.
#ifndef VT_HOST_CODE_CACHE_H
#define VT_HOST_CODE_CACHE_H

#include <stdbool.h>

#include "base/file.h"

typedef struct vt_code_path {
  char text[1024]; // "" where nothing is kept
} vt_code_path;

// The file of an object with these functions, whose names tell their code. `target` stands for all
// else that the code depends on: the build of this library, the code generator and the CPU.
vt_code_path vt_code_cache_find(uint64_t target, uint32_t count, char *const *names);

// False when there is no such file. The caller unmaps the bytes. Marks the file as used.
bool vt_code_cache_load(const vt_code_path *path, vt_bytes *out_bytes);

// A failure is logged, and costs the next process its time.
void vt_code_cache_save(const vt_code_path *path, const void *bytes, size_t size);

#endif
