// SPDX-License-Identifier: Apache-2.0
// slices.c - `vtpu slices`: what is on offer; and how commands find the slice that is meant.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chip/custom.h"
#include "cli/cli.h"

vt_status vt_cli_slice(const char *name, vt_slice *out_slice) {
  vtpu_slice *slice = NULL;
  vtpu_slice_info info = {.struct_size = sizeof info};
  VT_TRY(vtpu_open(name, &slice));
  vt_status st = vtpu_slice_describe(slice, &info);
  if (!st) st = vt_slice_from_name(info.accelerator_type, out_slice);
  vtpu_close(slice);
  return st;
}

vt_status vt_cli_slice_with(const vt_args *args, vt_arena *arena, vt_slice *out_slice) {
  const char *file = vt_args_text(args, "chip");
  vt_bytes text;
  const char *name = vt_args_text(args, "slice");
  if (name && strchr(name, ','))
    return vt_error(VT_INVALID_ARGUMENT, "one slice at a time: `vtpu compare -t %s` takes several",
                    name);
  VT_TRY(vt_cli_slice(name, out_slice));
  if (!file) return VT_OK;
  VT_TRY(vt_file_map(file, &text));
  vt_status st = vt_chip_customise(out_slice->chip, (const char *)text.data, text.size, arena,
                                   &out_slice->chip);
  vt_file_unmap(&text);
  return vt_status_wrap(st, "%s", file);
}

vt_status vt_cli_price(const vt_args *args, vt_slice *slice) {
  static const char *const kinds[] = {[VT_PRICE_ON_DEMAND] = "on-demand",
                                      [VT_PRICE_SPOT] = "spot",
                                      [VT_PRICE_ONE_YEAR] = "1-year",
                                      [VT_PRICE_THREE_YEARS] = "3-years"};
  const char *pricing = vt_args_text(args, "pricing"), *region = vt_args_text(args, "region");
  const char *own = vt_args_text(args, "chip-hour");
  if (own) {
    char *end;
    double usd = strtod(own, &end);
    if (end == own || *end || !(usd > 0 && usd < 1e6))
      return vt_error(VT_INVALID_ARGUMENT, "--chip-hour %s: name USD for a chip and an hour", own);
    slice->usd_per_chip_hour = usd;
    return VT_OK;
  }
  if (!pricing && !region) return VT_OK;
  vt_pricing kind = VT_PRICE_ON_DEMAND;
  while (pricing && strcmp(kinds[kind], pricing) != 0) kind++;
  return vt_slice_set_price(slice, kind, region);
}

static void put_size(const vt_slice *slice, char out[48]) {
  int n = snprintf(out, 48, "%dx%d", slice->dims[0], slice->dims[1]);
  if (slice->chip->network_dims > 2) snprintf(out + n, 48 - (size_t)n, "x%d", slice->dims[2]);
}

static double hbm_bytes(const vt_slice *slice) {
  return (double)slice->chip->hbm_bytes * slice->chips;
}

static double peak(const vt_slice *slice) {
  return slice->chip->bf16_flops_per_s * slice->chips;
}

static void print_slice(const vt_slice *slice) {
  char size[48], price[32] = "-";
  put_size(slice, size);
  double usd = vt_slice_usd_per_hour(slice);
  if (usd > 0) snprintf(price, sizeof price, "%.2f", usd);
  printf("%-18s %6d %8d %-10s %5d %10s %14s %12s\n", slice->name, slice->chips,
         vt_slice_devices(slice), size, slice->vms, vt_cli_bytes(hbm_bytes(slice)),
         vt_cli_count(peak(slice), "FLOP/s"), price);
}

static json_t *as_json(const vt_slice *slice) {
  char size[48];
  put_size(slice, size);
  return json_pack("{s:s, s:s, s:i, s:i, s:s, s:i, s:f, s:f, s:f}", "accelerator_type", slice->name,
                   "device_kind", slice->chip->kind, "chips", slice->chips, "devices",
                   vt_slice_devices(slice), "topology", size, "hosts", slice->vms, "hbm_bytes",
                   hbm_bytes(slice), "peak_bf16_flops_per_s", peak(slice), "usd_per_hour",
                   vt_slice_usd_per_hour(slice));
}

int vt_cli_slices(const vt_args *args) {
  const vt_chip *only = NULL;
  vt_slice slice;
  bool json = vt_args_on(args, "json");
  if (args->words.size) {
    vt_status st = vt_chip_from_name(args->words.data[0], &only);
    if (st) return vt_cli_fail("slices", st);
  }
  json_t *list = json_array();
  if (!json)
    printf("%-18s %6s %8s %-10s %5s %10s %14s %12s\n", "type", "chips", "devices", "topology",
           "hosts", "HBM", "peak, bf16", "USD an hour");
  for (int32_t i = 0; vt_slice_at(i, &slice); i++) {
    if (only && slice.chip != only) continue;
    if (json)
      json_array_append_new(list, as_json(&slice));
    else
      print_slice(&slice);
  }
  if (json) {
    char *text = json_dumps(list, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    printf("%s\n", text);
    free(text);
  }
  json_decref(list);
  return 0;
}
