// SPDX-License-Identifier: Apache-2.0
// price.c - what an hour of a slice costs: by region, on demand, spot, committed, or one's own
// figure.
#include <string.h>

#include "chip/chip.h"

// SINGLE, POD and ANY as bits.
enum { SINGLE = 1, POD = 2, ANY = SINGLE | POD };
static const struct price {
  vt_chip_id chip;
  int scope;
  const char *region;
  int64_t on_demand, spot; // nano-USD per chip and hour
} prices[] = {
#define PRICE(chip, scope, region, on_demand, spot)                                                \
  {VT_CHIP_##chip, scope, region, on_demand, spot},
#define COMMITMENT(chip, one_year, three_years)
#include "chip/prices.def"
#undef PRICE
#undef COMMITMENT
};
enum { PRICES = sizeof prices / sizeof *prices };

static const struct commitment {
  int64_t one_year, three_years;
} commitments[VT_CHIP_COUNT] = {
#define PRICE(chip, scope, region, on_demand, spot)
#define COMMITMENT(chip, one_year, three_years) [VT_CHIP_##chip] = {one_year, three_years},
#include "chip/prices.def"
#undef PRICE
#undef COMMITMENT
};

// The row of the slice's size in that region, or the first; NULL: there is none.
static const struct price *row_of(const vt_slice *slice, const char *region) {
  int scope = slice->vms > 1 ? POD : SINGLE;
  for (int i = 0; i < PRICES; i++)
    if (prices[i].chip == slice->chip->id && (prices[i].scope & scope) &&
        (!region || !strcmp(prices[i].region, region)))
      return &prices[i];
  return NULL;
}

double vt_slice_usd_per_hour(const vt_slice *slice) {
  const struct price *row = row_of(slice, NULL);
  double chip_hour = slice->usd_per_chip_hour > 0 ? slice->usd_per_chip_hour
                     : row                        ? (double)row->on_demand / 1e9
                                                  : 0;
  return chip_hour * slice->chips * slice->slices;
}

static vt_status no_region(const vt_slice *slice, const char *region) {
  vt_text known = {0};
  for (int i = 0; i < PRICES; i++)
    if (prices[i].chip == slice->chip->id && row_of(slice, prices[i].region) == &prices[i])
      vt_text_printf(&known, "%s%s", known.size ? ", " : "", prices[i].region);
  vt_status st =
      known.size ? vt_error(VT_NOT_FOUND, "no price of %s in '%.64s': there are prices in %s",
                            slice->name, region, vt_text_string(&known))
                 : vt_error(VT_NOT_FOUND, "there is no public price of %s: give one of your own",
                            slice->name);
  vt_text_free(&known);
  return st;
}

vt_status vt_slice_set_price(vt_slice *slice, vt_pricing pricing, const char *region) {
  const struct price *row = row_of(slice, region);
  if (!row) return no_region(slice, region ? region : "");
  const struct commitment *committed = &commitments[slice->chip->id];
  int64_t nano = pricing == VT_PRICE_ON_DEMAND  ? row->on_demand
                 : pricing == VT_PRICE_SPOT     ? row->spot
                 : pricing == VT_PRICE_ONE_YEAR ? committed->one_year
                                                : committed->three_years;
  if (!nano)
    return vt_error(VT_NOT_FOUND, "no public price of that kind for %s in %s: give one of your own",
                    slice->name, row->region);
  slice->usd_per_chip_hour = (double)nano / 1e9;
  return VT_OK;
}
