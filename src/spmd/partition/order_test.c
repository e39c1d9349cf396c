// SPDX-License-Identifier: Apache-2.0
// order_test.c - orders made of others are those that their lists make, as digits or as lists.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/partition/order.h"

enum { ROUNDS = 3000, MOST = 5 };

static vt_arena arena;
static uint64_t state = 1;

static int32_t any(int32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int32_t)((state >> 33) % (uint64_t)below);
}

static const int32_t *list_of(const vt_order *order) {
  int32_t *list = VT_NEW_ARRAY(&arena, int32_t, order->total + 1);
  vt_order_expand(order, list);
  return list;
}

static void shuffle(int32_t count, int32_t *items) {
  for (int32_t i = count; i-- > 1;) {
    int32_t other = any(i + 1), item = items[i];
    items[i] = items[other];
    items[other] = item;
  }
}

// A shape of some dimensions, and their product.
static int32_t make_shape(int32_t *count, int32_t *shape) {
  int32_t total = 1;
  *count = 1 + any(MOST);
  for (int32_t i = 0; i < *count; i++) total *= shape[i] = 1 + any(4);
  return total;
}

static void make_permutation(int32_t count, int32_t *out) {
  for (int32_t i = 0; i < count; i++) out[i] = i;
  shuffle(count, out);
}

// Of `total` devices: a grid along its dimensions in some order, or any at all.
static vt_order make_order(int32_t count, const int32_t *shape, int32_t total) {
  int32_t permutation[MOST], *list = VT_NEW_ARRAY(&arena, int32_t, total);
  vt_order counting = vt_order_counting(total);
  make_permutation(count, permutation);
  if (any(4)) return vt_order_permute(&counting, count, shape, permutation, &arena);
  for (int32_t i = 0; i < total; i++) list[i] = i;
  shuffle(total, list);
  return vt_order_of_list(total, list);
}

// Equal lists have equal digits.
static void check(const vt_order *order, const int32_t *wanted) {
  vt_order same = vt_order_of_list(order->total, wanted);
  assert_memory_equal(list_of(order), wanted, sizeof *wanted * (size_t)order->total);
  assert_int_equal(same.count, order->count);
  for (int32_t i = 0; i < same.count; i++) {
    assert_int_equal(same.digits[i].size, order->digits[i].size);
    assert_int_equal(same.digits[i].stride, order->digits[i].stride);
  }
}

static void check_permute(const vt_order *order, int32_t count, const int32_t *shape) {
  int32_t permutation[MOST], *wanted = VT_NEW_ARRAY(&arena, int32_t, order->total);
  const int32_t *list = list_of(order);
  make_permutation(count, permutation);
  for (int32_t n = 0; n < order->total; n++) {
    int32_t rest = n, at[MOST], place = 0;
    for (int32_t i = count; i-- > 0; rest /= shape[permutation[i]])
      at[permutation[i]] = rest % shape[permutation[i]];
    for (int32_t i = 0; i < count; i++) place = place * shape[i] + at[i];
    wanted[n] = list[place];
  }
  vt_order permuted = vt_order_permute(order, count, shape, permutation, &arena);
  check(&permuted, wanted);
}

static int by_number(const void *a, const void *b) {
  return *(const int32_t *)a - *(const int32_t *)b;
}

static void check_others(const vt_order *order, const vt_order *inner, int32_t part) {
  int32_t total = order->total, *wanted = VT_NEW_ARRAY(&arena, int32_t, 3 * total);
  const int32_t *list = list_of(order), *within = list_of(inner);
  for (int32_t n = 0; n < total; n++) wanted[n] = list[within[n]];
  vt_order made = vt_order_compose(order, inner, &arena);
  check(&made, wanted);
  for (int32_t n = 0; n < total; n++) wanted[list[n]] = n;
  made = vt_order_inverse(order, &arena);
  check(&made, wanted);
  for (int32_t n = 0; n < 3 * total; n++) wanted[n] = list[n % total] + n / total * total;
  made = vt_order_repeat(order, 3, &arena);
  check(&made, wanted);
  memcpy(wanted, list, sizeof *list * (size_t)total);
  for (int32_t n = 0; n < total; n += part)
    qsort(wanted + n, (size_t)part, sizeof *wanted, by_number);
  made = vt_order_ascending(order, part, &arena);
  check(&made, wanted);
}

static void orders_are_what_their_lists_make(void **unused) {
  (void)unused;
  for (int round = 0; round < ROUNDS; round++) {
    int32_t count, shape[MOST], part = 1;
    int32_t total = make_shape(&count, shape);
    vt_order order = make_order(count, shape, total), inner = make_order(count, shape, total);
    for (int32_t i = any(count + 1); i < count; i++) part *= shape[i];
    check_permute(&order, count, shape);
    check_others(&order, &inner, part);
    vt_arena_free(&arena);
  }
}

static void a_grid_of_many_devices_is_few_digits(void **unused) {
  (void)unused;
  vt_order counting = vt_order_counting(12 * 16 * 16);
  const int32_t shape[] = {12, 16, 16}, permutation[] = {2, 0, 1};
  vt_order order = vt_order_permute(&counting, 3, shape, permutation, &arena);
  assert_int_equal(order.count, 2); // the first two dimensions count on
  assert_int_equal(vt_order_cut(&order, 64), 1);
  assert_int_equal(order.count, 3);
  assert_int_equal(vt_order_cut(&order, 5), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(orders_are_what_their_lists_make),
                                     cmocka_unit_test(a_grid_of_many_devices_is_few_digits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
