// SPDX-License-Identifier: Apache-2.0
// refused_memory.h - tests in which the n-th request for memory finds none. vtpu_refuses_memory in
// cmake/vtpu.cmake links refused_memory.c into a test and replaces malloc and its like for our code
// alone: what libraries ask for is not refused.
#ifndef VT_TESTS_REFUSED_MEMORY_H
#define VT_TESTS_REFUSED_MEMORY_H

#include <stdbool.h>

// From now on the n-th request is refused, and with `behind` all behind it; n = 0: none.
void refuse_memory(long n, bool behind);
void refuse_no_memory(void);
// Whether requests count at present.
bool refusing_memory(void);
// How many were refused since refuse_memory.
long refused_requests(void);
// Counts a request of an allocator that is not replaced; true: refuse it.
bool refuses_request(void);

#endif
