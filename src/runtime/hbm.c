// SPDX-License-Identifier: Apache-2.0
// hbm.c - the account of each device's HBM, and the report when it is full.
//
// Nothing is placed: the account only counts padded bytes against what a program may use on the
// chip. The error text follows the real chip's, so that users and their tools recognise it.
#include "base/check.h"
#include "base/memory.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>

void vt_hbm_put_size(vt_text *text, int64_t bytes) {
  static const char units[] = "KMGT";
  int unit = 0;
  if (bytes < 1024) {
    vt_text_printf(text, "%lldB", (long long)bytes);
    return;
  }
  for (; bytes >= 1024 * 1024 && unit < 3; unit++) bytes /= 1024;
  vt_text_printf(text, "%.*f%c", unit ? 2 : 1, (double)bytes / 1024, units[unit]);
}

enum { LARGEST = 10 };

static void put_largest(vt_text *text, const vt_chip *chip, const vt_buffer *live) {
  const vt_buffer *largest[LARGEST];
  int count = 0;
  for (const vt_buffer *b = live; b; b = b->next) {
    int at = count < LARGEST ? count++ : LARGEST;
    while (at > 0 && largest[at - 1]->hbm_bytes < b->hbm_bytes) {
      if (at < LARGEST) largest[at] = largest[at - 1];
      at--;
    }
    if (at < LARGEST) largest[at] = b;
  }
  if (count) vt_text_put(text, "\n\nLargest buffers in hbm:\n");
  for (int i = 0; i < count; i++) {
    vt_type type = {largest[i]->dtype, largest[i]->rank, largest[i]->dims};
    int64_t plain = vt_type_bytes(type);
    vt_text_printf(text, "\n  %d. Size: ", i + 1);
    vt_hbm_put_size(text, largest[i]->hbm_bytes);
    vt_text_put(text, "\n     Shape: ");
    int32_t order[VT_MAX_RANK];
    if (!largest[i]->layout || !vt_layout_read(largest[i]->layout, type.rank, order))
      vt_chip_compact_order(chip, type, order);
    vt_chip_print_shape(chip, type, order, text);
    vt_text_put(text, "\n     Unpadded size: ");
    vt_hbm_put_size(text, plain);
    if (largest[i]->hbm_bytes > plain) {
      vt_text_put(text, "\n     Extra memory due to padding: ");
      vt_hbm_put_size(text, largest[i]->hbm_bytes - plain);
    }
    vt_text_put(text, "\n     ==========================\n");
  }
}

typedef struct refusal {
  vt_client *client;
  vt_device *device;
  int64_t bytes;
} refusal;

static vt_status refuse(void *user) {
  const refusal *r = user;
  const vt_chip *chip = r->client->slice.chip;
  const vt_account *account = &r->client->accounts[r->device->id];
  const vt_place *place = &r->device->place;
  vt_text text = {0};
  vt_text_put(&text, "Error allocating device buffer: Attempting to allocate ");
  vt_hbm_put_size(&text, r->bytes);
  vt_text_put(&text, ". That was not possible. There are ");
  vt_hbm_put_size(&text, chip->hbm_limit_bytes - account->in_use);
  vt_text_printf(&text, " free.; (%dx%dx%d_HBM%d)", place->coords[0], place->coords[1],
                 place->coords[2], place->core);
  put_largest(&text, chip, account->live);
  vt_status st = vt_error(VT_RESOURCE_EXHAUSTED, "%s", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

vt_status vt_hbm_fits(vt_client *client, vt_device *device, int64_t bytes) {
  vt_assert(device->client == client);
  vt_assert(bytes >= 0 && client->accounts[device->id].in_use >= 0);
  vt_account *account = &client->accounts[device->id];
  int64_t limit = client->slice.chip->hbm_limit_bytes;
  if (bytes <= limit - account->in_use) {
    if (account->in_use + bytes > account->peak) account->peak = account->in_use + bytes;
    return VT_OK;
  }
  vt_activity_hbm_refused(bytes);
  refusal r = {client, device, bytes};
  vt_attempt attempt; // the client is locked
  vt_status st = vt_attempt_run(&attempt, refuse, &r);
  vt_attempt_end(&attempt);
  return st;
}

vt_status vt_hbm_take(vt_client *client, vt_device *device, int64_t bytes) {
  vt_assert(device->client == client && bytes >= 0);
  if (bytes == 0) return VT_OK;
  VT_TRY(vt_hbm_fits(client, device, bytes));
  vt_account *account = &client->accounts[device->id];
  account->in_use += bytes;
  vt_assert(account->in_use <= client->slice.chip->hbm_limit_bytes);
  vt_assert(account->in_use <= account->peak);
  account->allocs++;
  vt_activity_hbm(bytes);
  if (bytes > account->largest) account->largest = bytes;
  return VT_OK;
}

void vt_hbm_give(vt_client *client, vt_device *device, int64_t bytes) {
  vt_assert(device->client == client);
  vt_assert(bytes >= 0 && bytes <= client->accounts[device->id].in_use);
  client->accounts[device->id].in_use -= bytes;
  vt_activity_hbm(-bytes);
}
