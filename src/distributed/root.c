// SPDX-License-Identifier: Apache-2.0
// root.c - see root.h. One value: a secret, and the addresses of process 0.
#include "distributed/root.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

// All processes make their clients in the same order, so the n-th of each belong together.
static void put_key(char *out, size_t size) {
  static atomic_int clients;
  snprintf(out, size, "vtpu/%d/process0", atomic_fetch_add(&clients, 1));
}

// Those of its interfaces; the loopback device if there is no other.
static void own_addresses(int32_t port, vt_root *out) {
  struct ifaddrs *list = NULL;
  if (getifaddrs(&list)) list = NULL;
  for (const struct ifaddrs *at = list; at && out->count < VT_ROOT_ADDRESSES; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP) ||
        at->ifa_flags & IFF_LOOPBACK)
      continue;
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;
    vt_address *address = &out->addresses[out->count];
    if (!inet_ntop(AF_INET, &in->sin_addr, address->host, sizeof address->host)) continue;
    address->port = port;
    out->count++;
  }
  if (list) freeifaddrs(list);
  if (out->count) return;
  out->addresses[out->count++] = (vt_address){"127.0.0.1", port};
}

static vt_status make_secret(char *out) {
  uint8_t bytes[(VT_SECRET - 1) / 2];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return vt_error(VT_UNAVAILABLE, "this machine has no random numbers");
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
  return VT_OK;
}

vt_status vt_root_publish(const vt_store *store, int32_t port, vt_root *out) {
  char key[64], value[VT_ROOT_VALUE];
  *out = (vt_root){.count = 0};
  VT_TRY(make_secret(out->secret));
  own_addresses(port, out);
  int n = snprintf(value, sizeof value, "%s", out->secret);
  for (int32_t i = 0; i < out->count; i++)
    n += snprintf(value + n, sizeof value - (size_t)n, "%c%s:%d", i ? ',' : ' ',
                  out->addresses[i].host, out->addresses[i].port);
  put_key(key, sizeof key);
  return vt_status_wrap(store->put(store->user, key, value), "process 0: the key-value store");
}

vt_status vt_root_read(const char *text, vt_root *out) {
  *out = (vt_root){.count = 0};
  size_t size = strcspn(text, " ");
  bool good = size == VT_SECRET - 1 && text[size] && text[size + 1];
  if (good) memcpy(out->secret, text, size);
  for (const char *at = text + size; good && *at;) {
    vt_address *address = &out->addresses[out->count];
    char host[VT_HOST_NAME] = "";
    int port = 0, end = 0;
    good = out->count < VT_ROOT_ADDRESSES &&
           sscanf(at + 1, "%255[0-9.]:%5d%n", host, &port, &end) == 2 && port > 0 && port < 65536 &&
           (!at[1 + end] || (at[1 + end] == ',' && at[2 + end]));
    if (!good) break;
    snprintf(address->host, sizeof address->host, "%s", host);
    address->port = port;
    out->count++;
    at += 1 + end;
  }
  if (good) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "the key-value store has \"%.64s\" for process 0", text);
}

vt_status vt_root_find(const vt_store *store, double timeout_s, vt_root *out) {
  char key[64], value[VT_ROOT_VALUE];
  put_key(key, sizeof key);
  vt_status st = store->get(store->user, key, timeout_s, value, sizeof value);
  if (st) return vt_status_wrap(st, "process 0 did not say where it is");
  return vt_root_read(value, out);
}
