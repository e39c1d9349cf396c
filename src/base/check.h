// SPDX-License-Identifier: Apache-2.0
// check.h - what must hold in our own code; whatever comes from outside gets an error instead.
// Checked where NDEBUG is not set: everywhere but in release builds.
#ifndef VT_BASE_CHECK_H
#define VT_BASE_CHECK_H

#include <stddef.h>

#ifdef NDEBUG
// Not computed; what a condition names counts as used.
#define vt_assert(condition) ((void)sizeof((condition) ? 1 : 0))
// The same for each i below n.
#define vt_assert_each(i, n, condition)                                                            \
  ((void)sizeof(n), (void)sizeof(__extension__({                                                   \
     size_t i = 0;                                                                                 \
     (void)i;                                                                                      \
     (condition) ? 1 : 0;                                                                          \
   })))
#else
#include <assert.h>
#define vt_assert(condition) assert(condition)
#define vt_assert_each(i, n, condition)                                                            \
  do                                                                                               \
    for (size_t i = 0; i < (size_t)(n); i++) assert(condition);                                    \
  while (0)
#endif

#endif
