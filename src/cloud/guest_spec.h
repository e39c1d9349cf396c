// SPDX-License-Identifier: Apache-2.0
// guest_spec.h - what every back end with real workers shares: the description that the launcher
// gets, and whether a worker answers.
#ifndef VT_CLOUD_GUEST_SPEC_H
#define VT_CLOUD_GUEST_SPEC_H

#include "cloud/node.h"

typedef struct vt_guest_site {
  const char *tag;   // four characters of this cloud, in the names of its interfaces
  const char *hub;   // where workers of other hosts are reached, "" = there are none
  const char *disks; // "name:rw:/folder of the host,..."
} vt_guest_site;

// The lines `key=value` that vtpu-guest reads. Values are ours or checked; none has a newline.
vt_status vt_guest_spec(vt_cloud *cloud, const vt_guest_site *site, const vt_node *node,
                        int64_t worker, const char *ip, vt_text *out_spec) VT_CHECKED;
// The folder with the Python of a runtime version, from a list "VERSION=FOLDER,...,FOLDER": that of
// the version, else the one without a version, else "".
void vt_guest_python(const char *list, const char *version, char out_folder[4096]);
// A range of 65536 host uids of its own: no file and no process of one worker belongs to another,
// or to the host.
unsigned vt_guest_uid_base(int level, const char *ip);
enum { VT_GUEST_RANGES = 60000 };          // of them
bool vt_guest_answers_ssh(const char *ip); // waits 5 ms at most
// The program vtpu-guest beside this one. errors UNIMPLEMENTED: it is not there.
vt_status vt_guest_launcher(char out_path[4096]) VT_CHECKED;

#endif
