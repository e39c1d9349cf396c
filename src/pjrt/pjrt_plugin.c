// SPDX-License-Identifier: Apache-2.0
// pjrt_plugin.c - what the plugin says about itself.
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pjrt/objects.h"

vt_status vt_pjrt_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return VT_OK;
}

// Frameworks serialise programs for the announced version; newer ones convert down to it.
static const int64_t stablehlo_version[] = {1, 20, 0};
static const int64_t sdy_version[] = {0, 0, 1};

#define LIST(text, list)                                                                           \
  {.struct_size = sizeof(PJRT_NamedValue),                                                         \
   .name = text,                                                                                   \
   .name_size = sizeof text - 1,                                                                   \
   .type = PJRT_VALUE_INT64_LIST,                                                                  \
   .int64_list = list,                                                                             \
   .value_size = sizeof list / sizeof list[0]}
static const int64_t stablehlo_minimum[] = {1, 0, 0};
static const PJRT_NamedValue attributes[] = {
    LIST("stablehlo_current_version", stablehlo_version),
    LIST("stablehlo_minimum_version", stablehlo_minimum),
    LIST("sdy_current_version", sdy_version),
    {.struct_size = sizeof(PJRT_NamedValue),
     .name = "xla_version",
     .name_size = sizeof "xla_version" - 1,
     .type = PJRT_VALUE_INT64,
     .int64 = 2, // frameworks compare with this level to enable features
     .value_size = 1},
};

vt_status vt_pjrt_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args) {
  args->attributes = attributes;
  args->num_attributes = sizeof attributes / sizeof attributes[0];
  return VT_OK;
}

static char version_text[128], platform_text[192];
// JAX before 0.8 reads in the last line, in parentheses, the second at which a TPU's runtime was
// built, and writes kernels that one of that day can read.
static const char as_new_as[] = "Built on Oct 1 2026 00:00:00 (1790812800)";
static pthread_once_t once = PTHREAD_ONCE_INIT;

// The linker's build id of this library: caches of compiled programs must not outlive the code that
// made them.
static int find_build_id(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  (void)user;
  uintptr_t here = (uintptr_t)version_text;
  const char *note = NULL, *end = NULL;
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && here >= start && here < start + segment->p_memsz) ours = true;
    if (segment->p_type == PT_NOTE && !note)
      note = (const char *)start, end = note + segment->p_memsz;
  }
  if (!ours) return 0;
  while (note && note + sizeof(ElfW(Nhdr)) <= end) {
    const ElfW(Nhdr) *head = (const ElfW(Nhdr) *)(const void *)note;
    const char *name = note + sizeof *head;
    const unsigned char *id = (const unsigned char *)name + ((head->n_namesz + 3u) & ~3u);
    if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
      size_t at = strlen(version_text);
      at += (size_t)snprintf(version_text + at, sizeof version_text - at, " (build ");
      for (unsigned i = 0; i < head->n_descsz && i < 20 && at + 4 < sizeof version_text; i++)
        at += (size_t)snprintf(version_text + at, sizeof version_text - at, "%02x", id[i]);
      snprintf(version_text + at, sizeof version_text - at, ")");
      return 1;
    }
    note = (const char *)id + ((head->n_descsz + 3u) & ~3u);
  }
  return 1;
}

static void make_version(void) {
  snprintf(version_text, sizeof version_text, "vtpu %s", VTPU_VERSION);
  dl_iterate_phdr(find_build_id, NULL);
  snprintf(platform_text, sizeof platform_text, "%s\n%s", version_text, as_new_as);
}

const char *vt_plugin_version(void) {
  pthread_once(&once, make_version);
  return version_text;
}

const char *vt_plugin_platform_version(void) {
  pthread_once(&once, make_version);
  return platform_text;
}
