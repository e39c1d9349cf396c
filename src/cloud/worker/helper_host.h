// SPDX-License-Identifier: Apache-2.0
// helper_host.h - inside the helper: the guests and data disks of one cloud on this host. Every
// function takes a request that vt_helper_check has accepted and fills in the reply.
#ifndef VT_CLOUD_HELPER_HOST_H
#define VT_CLOUD_HELPER_HOST_H

#include "base/status.h"
#include "cloud/worker/helper.h"

typedef struct vt_host {
  char guests[512], disks[512]; // folders of this cloud
  char launcher[4096];
  vt_worker_site site; // level -1 = none opened yet
} vt_host;

void vt_host_fail(vt_helper_reply *out_reply, vt_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void vt_host_open(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_start(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_poll(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_up(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_disks(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_stop(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_notify(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_list(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_disk_list(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);
void vt_host_disk_remove(vt_host *host, const vt_helper_request *request,
                         vt_helper_reply *out_reply);
int vt_host_output(vt_host *host, const vt_helper_request *request, vt_helper_reply *out_reply);

// Ends every guest, whether or not a node owns it; returns whether all are gone.
bool vt_host_end_all(vt_host *host);
// Removes the network of workers, unless some survive.
void vt_host_close(const vt_host *host);

#endif
