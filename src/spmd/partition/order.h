// SPDX-License-Identifier: Apache-2.0
// order.h - orders of devices: which device stands at which place.
//
// Nearly every order that occurs counts the places of a grid, along its dimensions in some order,
// so it is held as the digits of that count: few numbers, however many devices there are. An order
// that is no such count is held as a list. Equal orders have equal digits, or none.
#ifndef VT_SPMD_ORDER_H
#define VT_SPMD_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { VT_MAX_DIGITS = 24 };

// The device at a place is the sum of the place's digits, each times its stride.
typedef struct vt_digit {
  int32_t size, stride;
} vt_digit;

typedef struct vt_order {
  int32_t total;
  int32_t count;       // of digits, the slowest first; -1 = a list
  const int32_t *list; // of `total` devices
  vt_digit digits[VT_MAX_DIGITS];
} vt_order;

vt_order vt_order_counting(int32_t total);
// Of all devices below `total`. The list is borrowed where it is no count.
vt_order vt_order_of_list(int32_t total, const int32_t *list);
void vt_order_expand(const vt_order *order, int32_t *out);
static inline bool vt_order_is_list(const vt_order *order) {
  return order->count < 0;
}

// Cuts digits so that `place` places are those of some last ones; their number, -1 = that is not
// possible.
int32_t vt_order_cut(vt_order *order, int32_t place);
// The same for devices: no digit goes from below `device` to above it. false: that is not possible
bool vt_order_part(vt_order *order, int32_t device);
// Digits that count on become one again; those of size 1 go.
void vt_order_merge(vt_order *order);

// What is made as a list is in the arena.
// The same devices where the dimensions of `shape` are permuted.
vt_order vt_order_permute(const vt_order *order, int32_t count, const int32_t *shape,
                          const int32_t *permutation, vt_arena *arena);
// The device of `outer` at each place that `inner` has.
vt_order vt_order_compose(const vt_order *outer, const vt_order *inner, vt_arena *arena);
// The same by digits only. false: that takes a list
bool vt_order_composed(const vt_order *outer, const vt_order *inner, vt_order *out);
// So many times, of each time other devices.
vt_order vt_order_repeat(const vt_order *order, int32_t times, vt_arena *arena);
// The order that the last digits are, of so many devices.
vt_order vt_order_last(const vt_order *order, int32_t digits, int32_t total);
// The place of each device.
vt_order vt_order_inverse(const vt_order *order, vt_arena *arena);
// Each run of `copies` devices in ascending order.
vt_order vt_order_ascending(const vt_order *order, int32_t copies, vt_arena *arena);

#endif
