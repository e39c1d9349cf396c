// SPDX-License-Identifier: Apache-2.0
// helper_client.h - the daemon's end of helper.h.
#ifndef VT_CLOUD_HELPER_CLIENT_H
#define VT_CLOUD_HELPER_CLIENT_H

#include "base/status.h"
#include "cloud/store/cloud.h"
#include "cloud/worker/helper.h"

typedef struct vt_helper vt_helper;

enum { VT_HELPER_DOORS = 2 };
typedef struct vt_helper_options {
  const vt_cloud_options *cloud;
  bool throw_away; // the helper removes the state folder at its end
  struct {
    const char *address; // NULL = none
    uint16_t port;
  } doors[VT_HELPER_DOORS]; // that it may be asked to open
} vt_helper_options;

// The program vtpu-guest beside this one. errors UNIMPLEMENTED: it does not exist.
vt_status vt_helper_program(char out_path[4096]) VT_CHECKED;
// The tag in the names of a cloud's network interfaces.
void vt_helper_tag(const char *state_dir, char out_tag[8]);
// Starts the helper with this process's current privileges. errors UNIMPLEMENTED: vtpu-guest is not
// beside this program.
vt_status vt_helper_start(const vt_helper_options *options, vt_helper **out_helper) VT_CHECKED;
// From now on the helper's end sends this process a SIGTERM.
vt_status vt_helper_watch(vt_helper *helper) VT_CHECKED;
bool vt_helper_lost(const vt_helper *helper);
// Shuts the helper down and waits for it; accepts NULL.
void vt_helper_end(vt_helper *helper);

// Sends a request and waits for the reply; errors are the reply's, or UNAVAILABLE: the helper is
// gone. *out_fd (NULL: not wanted) is -1 if none came. Any thread.
vt_status vt_helper_call(vt_helper *helper, const vt_helper_request *request,
                         vt_helper_reply *out_reply, int *out_fd) VT_CHECKED;
// Requests without a worker.
vt_status vt_helper_ask(vt_helper *helper, vt_helper_op op, int64_t uid, int64_t index,
                        vt_helper_reply *out_reply) VT_CHECKED;

// A listening socket; opened by the helper if this process may not bind the port.
vt_status vt_listen(vt_cloud *cloud, const char *address, uint16_t port, int *out_fd) VT_CHECKED;

#endif
