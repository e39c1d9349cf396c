// SPDX-License-Identifier: Apache-2.0
// image.h - disks with an end: a file with a file system in it, as large as it may become, on a
// loop device. What is written into it takes space of the host when it is written. Plain libc.
#ifndef VT_CLOUD_IMAGE_H
#define VT_CLOUD_IMAGE_H

#include <stdbool.h>
#include <sys/types.h>

// Mounts the image `path` at `at`, a folder, without device nodes; makes it first where it is not
// there: of `want_gb`, or less where the file system it lies on has no room for that, its root
// owned by `owner`. `images` are folders with images whose growth has been promised already, NULL
// at the end. NULL, or why this host can not; then nothing is there.
const char *vt_image_mount(const char *path, const char *at, long long want_gb, uid_t owner,
                           const char *const *images);

#endif
