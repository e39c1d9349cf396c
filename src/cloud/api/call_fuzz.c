// SPDX-License-Identifier: Apache-2.0
// call_fuzz.c - any request to any route: "METHOD URL\n" followed by the body, as an administrator,
// on a cloud in memory. Nothing may crash, and every reply has a status of the API.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/call.h"
#include "cloud/control/guest.h"
#include "cloud/control/reconcile.h"
#include "cloud/open.h"

static vt_cloud *cloud;
static char *token;

static void open_cloud(void) {
  vt_cloud_options options;
  vt_cloud_options_default(&options);
  options.virtual_time = true;
  if (vt_cloud_open(&options, &cloud) || vt_guest_none_create(&cloud->guests) ||
      vt_cloud_seed(cloud, "demo-project", "admin@vtpu.localhost", VT_TOKEN_ALWAYS, &token))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char line[1024], *url, *query;
  const uint8_t *end = memchr(data, '\n', size);
  size_t n = end ? (size_t)(end - data) : size;
  if (!cloud) open_cloud();
  if (n >= sizeof line || memchr(data, 0, n)) return 0;
  memcpy(line, data, n);
  line[n] = 0;
  if (!(url = strchr(line, ' '))) return 0;
  *url++ = 0;
  if ((query = strchr(url, '?'))) *query++ = 0;
  vt_call call;
  char bearer[256] = "Bearer ";
  bool busy;
  strncat(bearer, token, sizeof bearer - 16);
  vt_call_init(&call, cloud, line, url);
  if (query) vt_call_add_query(&call, query);
  vt_call_add_header(&call, "Authorization", bearer);
  char *body = end && n + 1 < size ? malloc(size - n) : NULL;
  if (body) {
    memcpy(body, end + 1, size - n - 1);
    body[size - n - 1] = 0;
    call.body_text = body;
    call.body_size = size - n - 1;
  }
  vt_call_run(&call);
  vt_call_render(&call);
  if (call.status < 200 || call.status > 599) abort();
  vt_call_fini(&call);
  free(body);
  pthread_mutex_lock(&cloud->lock);
  vt_status_free(vt_reconcile(cloud, &busy));
  pthread_mutex_unlock(&cloud->lock);
  return 0;
}
