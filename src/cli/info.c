// SPDX-License-Identifier: Apache-2.0
// info.c - `vtpu info`: the environment that a program would find.
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

vt_status vt_cli_library(char out_path[PATH_MAX]) {
  Dl_info info;
  if (!dladdr(vtpu_version(), &info) || !realpath(info.dli_fname, out_path))
    return vt_error(VT_NOT_FOUND, "libvtpu.so: %s", strerror(errno));
  return VT_OK;
}

// The line of /proc/cpuinfo that begins with `key`, its value in `out`; "" when there is none.
static void cpuinfo_value(const char *key, char *out, size_t size) {
  FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
  char line[8192];
  out[0] = 0;
  while (cpuinfo && fgets(line, sizeof line, cpuinfo)) {
    char *value = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) || !value) continue;
    value[strcspn(value, "\n")] = 0;
    snprintf(out, size, "%s ", value + 2);
    break;
  }
  if (cpuinfo) fclose(cpuinfo);
}

// The CPU features that decide how fast programs run here.
static void print_features(const char *separator) {
  static const char *const names[] = {" avx2 ",     " fma ",         " avx512f ",
                                      " avx512vl ", " avx512_bf16 ", " amx_bf16 "};
  char flags[8192];
  bool first = true;
  cpuinfo_value("flags", flags, sizeof flags);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!strstr(flags, names[i])) continue;
    printf("%s%.*s", first ? "" : separator, (int)strlen(names[i]) - 2, names[i] + 1);
    first = false;
  }
}

static void print_json(const vtpu_slice_info *info, const char *library, const char *cpu,
                       long cores, double memory) {
  printf(
      "{\"version\": \"%s\", \"library\": \"%s\", \"accelerator_type\": \"%s\", \"device_kind\": "
      "\"%s\", "
      "\"devices\": %d, \"chips\": %d, "
      "\"hosts\": %d, \"slices\": %d, \"topology\": [%d, %d, %d], \"hbm_bytes_per_device\": %lld, "
      "\"peak_bf16_flops_per_s\": %.6g, "
      "\"usd_per_hour\": %.6g, \"host\": {\"cpu\": \"%s\", \"cores\": %ld, \"memory_bytes\": "
      "%.0f, \"features\": [\"",
      vtpu_version(), library, info->accelerator_type, info->device_kind, info->devices,
      info->chips, info->hosts, info->slices, info->topology[0], info->topology[1],
      info->topology[2], (long long)info->hbm_bytes_per_device, info->peak_bf16_flops_per_s,
      info->usd_per_hour, cpu, cores, memory);
  print_features("\", \"");
  printf("\"]}}\n");
}

static void print_text(const vtpu_slice_info *info, const char *library, const char *cpu,
                       long cores, double memory) {
  printf("slice       %s: %d x %s on %d chips (%dx%dx%d), %d host%s\n", info->accelerator_type,
         info->devices, info->device_kind, info->chips, info->topology[0], info->topology[1],
         info->topology[2], info->hosts, info->hosts == 1 ? "" : "s");
  if (info->slices > 1)
    printf("links       %d slices, joined by the data-center network\n", info->slices);
  printf("HBM         %s for programs and arrays, per device\n",
         vt_cli_bytes((double)info->hbm_bytes_per_device));
  if (info->peak_bf16_flops_per_s > 0)
    printf("peak        %s (bf16, published)\n",
           vt_cli_count(info->peak_bf16_flops_per_s, "FLOP/s"));
  if (info->usd_per_hour > 0) printf("price       %.2f USD/h on demand\n", info->usd_per_hour);
  printf("this host   %s, %ld cores, %s, ", cpu, cores, vt_cli_bytes(memory));
  print_features(" ");
  printf("\nvtpu        %s, %s\n", vtpu_version(), library);
}

int vt_cli_info(const vt_args *args) {
  const char *type = vt_args_text(args, "slice");
  bool json = vt_args_on(args, "json");
  vtpu_slice *slice;
  char library[PATH_MAX];
  vtpu_slice_info info = {.struct_size = sizeof info};
  vtpu_error *error = vtpu_open(type, &slice);
  if (!error) error = vtpu_slice_describe(slice, &info);
  if (!error) error = vt_cli_library(library);
  if (error) {
    vtpu_close(slice);
    return vt_cli_fail("info", error);
  }
  char cpu[256];
  cpuinfo_value("model name", cpu, sizeof cpu);
  size_t size = strlen(cpu);
  if (size) cpu[size - 1] = 0;
  double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  (json ? print_json : print_text)(&info, library, cpu, sysconf(_SC_NPROCESSORS_ONLN), memory);
  vtpu_close(slice);
  return 0;
}
