// SPDX-License-Identifier: Apache-2.0
// refused_memory.c - see refused_memory.h.
#include "refused_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_long countdown;  // of requests until one is refused
static atomic_bool armed, all; // all: that one and those behind it
static atomic_long refused;

void refuse_memory(long n, bool behind) {
  atomic_store(&refused, 0);
  atomic_store(&countdown, n);
  atomic_store(&all, behind);
  atomic_store(&armed, n > 0);
}

void refuse_no_memory(void) {
  atomic_store(&armed, false);
}

bool refusing_memory(void) {
  return atomic_load(&armed);
}

long refused_requests(void) {
  return atomic_load(&refused);
}

bool refuses_request(void) {
  if (!atomic_load(&armed)) return false;
  long left = atomic_fetch_sub(&countdown, 1);
  bool now = left == 1 || (left < 1 && atomic_load(&all));
  if (now) atomic_fetch_add(&refused, 1);
  return now;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *data, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *data, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size) {
  return refuses_request() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
  return refuses_request() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *data, size_t size) {
  return refuses_request() ? NULL : __real_realloc(data, size);
}
void *__wrap_aligned_alloc(size_t align, size_t size) {
  return refuses_request() ? NULL : __real_aligned_alloc(align, size);
}
char *__wrap_strdup(const char *text) {
  return refuses_request() ? NULL : __real_strdup(text);
}
