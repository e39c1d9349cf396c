// SPDX-License-Identifier: Apache-2.0
// agent_fuzz.c - any message from a worker's agent, which the worker's owner could send: the first
// byte 'u' makes it a report of chip use, anything else a heartbeat, with the rest as the body.
// Nothing may crash, and the public view of the node stays valid JSON.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/call.h"
#include "cloud/control/guest.h"
#include "cloud/control/reconcile.h"
#include "cloud/door/metadata.h"
#include "cloud/open.h"

#define NODES "/v2/projects/demo-project/locations/us-central2-b/nodes"

static vt_cloud *cloud;
static char *token, ip[64];

static void ask(const char *method, const char *path, const char *query, const char *body) {
  char bearer[256] = "Bearer ";
  vt_call call;
  bool busy;
  strncat(bearer, token, sizeof bearer - 16);
  vt_call_init(&call, cloud, method, path);
  vt_call_add_query(&call, query);
  vt_call_add_header(&call, "Authorization", bearer);
  call.body_text = body;
  call.body_size = strlen(body);
  vt_call_run(&call);
  if (call.status != 200) abort();
  vt_call_render(&call);
  vt_call_fini(&call);
  pthread_mutex_lock(&cloud->lock);
  vt_status_free(vt_reconcile(cloud, &busy));
  pthread_mutex_unlock(&cloud->lock);
}

static void open_cloud(void) {
  vt_cloud_options options;
  vt_rows *rows;
  vt_cloud_options_default(&options);
  options.virtual_time = true;
  if (vt_cloud_open(&options, &cloud) || vt_guest_none_create(&cloud->guests) ||
      vt_cloud_seed(cloud, "demo-project", "admin@vtpu.localhost", VT_TOKEN_ALWAYS, &token))
    abort();
  ask("POST", NODES, "nodeId=pod",
      "{\"acceleratorType\":\"v4-16\",\"runtimeVersion\":\"tpu-ubuntu2204-base\"}");
  if (vt_store_query(cloud->store, &rows, "SELECT ip FROM workers WHERE worker = 1", "") ||
      !vt_rows_next(rows))
    abort();
  strncpy(ip, vt_rows_text(rows, 0), sizeof ip - 1);
  vt_status_free(vt_rows_end(rows));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!cloud) open_cloud();
  if (!size || memchr(data, 0, size)) return 0;
  char *body = malloc(size);
  if (!body) return 0;
  memcpy(body, data + 1, size - 1);
  body[size - 1] = 0;
  vt_call call;
  vt_call_init(&call, cloud, "PUT",
               *data == 'u' ? "/computeMetadata/v1/vtpu/use" : "/computeMetadata/v1/vtpu/beat");
  vt_call_add_query(&call, "epoch=1");
  vt_call_add_header(&call, "Metadata-Flavor", "Google");
  call.peer = ip;
  call.body_text = body;
  call.body_size = size - 1;
  vt_metadata_run(&call);
  if (call.status != 200 && call.status != 400) abort();
  vt_call_fini(&call);
  free(body);
  cloud->virtual_ns += VT_SECOND;
  ask("GET", "/vtpu/v1/projects/demo-project/nodes/us-central2-b/pod:doctor", "", "");
  ask("GET", NODES "/pod", "", "");
  return 0;
}
