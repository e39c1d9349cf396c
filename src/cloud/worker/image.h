// SPDX-License-Identifier: Apache-2.0
// image.h - disks with a size limit: a sparse file with a file system in it, on a loop device. It
// takes space of the host only for what is written. Plain libc.
#ifndef VT_CLOUD_IMAGE_H
#define VT_CLOUD_IMAGE_H

#include <stdbool.h>
#include <sys/types.h>

// Mounts the image `path` at the folder `at`, without device nodes. Creates it first if missing: of
// `want_gb`, or less if its file system has no room for that, its root owned by `owner`. `images`
// are folders with images whose growth is already promised, NULL-terminated. Returns NULL, or why
// this host cannot; then nothing was created.
const char *vt_image_mount(const char *path, const char *at, long long want_gb, uid_t owner,
                           const char *const *images);

#endif
