// SPDX-License-Identifier: Apache-2.0
// turn.h - transposes tiles in vectors of 16 bytes, which every processor has: one number at a time
// costs two to three times as much.
#ifndef VT_HOST_TURN_H
#define VT_HOST_TURN_H

#include <stdint.h>

// Numbers of two vectors in turn, from number `at` of each on.
#define VT_ZIP2(a, b, at) __builtin_shufflevector(a, b, at, (at) + 2)
#define VT_ZIP4(a, b, at) __builtin_shufflevector(a, b, at, (at) + 4, (at) + 1, (at) + 5)
#define VT_ZIP8(a, b, at)                                                                          \
  __builtin_shufflevector(a, b, at, (at) + 8, (at) + 1, (at) + 9, (at) + 2, (at) + 10, (at) + 3,   \
                          (at) + 11)
#define VT_ZIP16(a, b, at)                                                                         \
  __builtin_shufflevector(a, b, at, (at) + 16, (at) + 1, (at) + 17, (at) + 2, (at) + 18, (at) + 3, \
                          (at) + 19, (at) + 4, (at) + 20, (at) + 5, (at) + 21, (at) + 6,           \
                          (at) + 22, (at) + 7, (at) + 23)

// to[c][r] = from[r][c] of a square of as many numbers as a vector has; steps in bytes. Zipping
// lines r and r + half, for every r, rotates the bits of a number's place by one.
#define VT_TURN(lanes, type)                                                                       \
  typedef type vt_turn_line##lanes __attribute__((vector_size(16)));                               \
  typedef vt_turn_line##lanes vt_turn_loose##lanes __attribute__((aligned(1), may_alias));         \
  static inline void vt_turn##lanes(const void *from, int64_t from_step, void *to,                 \
                                    int64_t to_step) {                                             \
    vt_turn_line##lanes x[lanes], y[lanes];                                                        \
    for (int r = 0; r < lanes; r++)                                                                \
      x[r] = *(const vt_turn_loose##lanes *)((const char *)from + r * from_step);                  \
    for (int stage = 1; stage < lanes; stage *= 2) {                                               \
      for (int r = 0; r < lanes / 2; r++) {                                                        \
        y[2 * r] = VT_ZIP##lanes(x[r], x[r + lanes / 2], 0);                                       \
        y[2 * r + 1] = VT_ZIP##lanes(x[r], x[r + lanes / 2], lanes / 2);                           \
      }                                                                                            \
      for (int r = 0; r < lanes; r++) x[r] = y[r];                                                 \
    }                                                                                              \
    for (int r = 0; r < lanes; r++) *(vt_turn_loose##lanes *)((char *)to + r * to_step) = x[r];    \
  }
VT_TURN(16, uint8_t)
VT_TURN(8, uint16_t)
VT_TURN(4, uint32_t)
VT_TURN(2, uint64_t)

#endif
