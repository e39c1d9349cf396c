// SPDX-License-Identifier: Apache-2.0
// outside.c - opens and binds the shared libraries that libvtpu.so calls (outside.def). Left to the
// dynamic linker, a call of dnnl_primitive_create goes to the first library in the process that
// exports the name: TensorFlow's copy, of another version, if that was loaded globally. So each
// function is defined here again, as a jump to its address in its own library, and the linker binds
// our calls to these. See docs/decisions/007.
#include "base/outside.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/waiting.h"

#ifndef __x86_64__
#error "the jumps are written for x86-64"
#endif

#define LIBRARY(file, private)
#define FUNCTION(name)                                                                             \
  extern void *vt_to_##name __attribute__((visibility("hidden")));                                 \
  void *vt_to_##name;                                                                              \
  __asm__(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name                  \
          ", @function\n" #name ": jmp *vt_to_" #name "(%rip)\n.size " #name ", .-" #name          \
          "\n.popsection\n");
#include "pjrt/outside.def"
#undef LIBRARY
#undef FUNCTION

typedef struct row {
  const char *file; // of a library; NULL: a function of the library above
  bool private;
  const char *name;
  void **slot;
} row;

static const row rows[] = {
#define LIBRARY(library, alone) {.file = library, .private = alone},
#define FUNCTION(function)      {.name = #function, .slot = &vt_to_##function},
#include "pjrt/outside.def"
};

static char missing[512]; // the dynamic linker's message about the first missing one

vt_status vt_outside_ready(void) {
  if (!missing[0]) return VT_OK;
  return vt_error(VT_FAILED_PRECONDITION, "a library that vtpu needs is missing: %s", missing);
}

static void call_of_missing(void) {
  fprintf(stderr, "vtpu: a library that it needs is missing: %s\n", missing);
  abort();
}

// Sanitizers reject deep binding, and replace functions that it would hide from them.
static int flags_of(const row *library) {
  bool sanitized = dlsym(RTLD_DEFAULT, "__sanitizer_report_error_summary") != NULL;
  return RTLD_NOW | RTLD_LOCAL | (library->private && !sanitized ? RTLD_DEEPBIND : 0);
}

// The Python package brings copies under names of its own (package/wheel.py), which programs with
// other copies never load; elsewhere they are the system's.
static void *open_library(const row *library) {
  char own[64];
  snprintf(own, sizeof own, "libvtpu-%s", library->file + strlen("lib"));
  void *opened = dlopen(own, flags_of(library));
  return opened ? opened : dlopen(library->file, flags_of(library));
}

static void note_missing(void) {
  const char *error = dlerror();
  if (!missing[0]) snprintf(missing, sizeof missing, "%s", error ? error : "unknown");
}

// GNU OpenMP reads its settings when it is loaded: threads that wait spin for 10,000 turns, some
// 100 to 500 us, before they sleep. host/waiting.c decides when they do. The user's own settings
// stay; ours is also found in processes that this one has started.
static void choose_waiting(void) {
  static const char turns[] = "10000";
  const char *set = getenv("GOMP_SPINCOUNT");
  if (getenv("OMP_WAIT_POLICY") || (set && strcmp(set, turns))) return;
  setenv("GOMP_SPINCOUNT", turns, 1);
  vt_waiting_manage();
}

// OpenBLAS, an archive in this library, starts a thread for each processor when it is loaded, and
// each spins for some 30 ms before it sleeps: longer than most commands of `vtpu` take. The first
// product that wants them starts them again. Its own constructor, which may come later, then finds
// everything done.
void gotoblas_init(void);
int blas_thread_shutdown_(void);

static void load_without_threads(void) {
  gotoblas_init();
  blas_thread_shutdown_();
}

__attribute__((constructor)) static void open_libraries(void) {
  void *library = NULL;
  choose_waiting();
  load_without_threads();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const row *r = &rows[i];
    if (r->file) {
      library = open_library(r);
      if (!library) note_missing();
      continue;
    }
    *r->slot = library ? dlsym(library, r->name) : NULL;
    if (library && !*r->slot) note_missing();
    if (!*r->slot) *(void (**)(void))(void *)r->slot = call_of_missing;
  }
}
