// SPDX-License-Identifier: Apache-2.0
// cpu.c - processor identification. See cpu.h.
#include "host/cpu.h"

#include <omp.h>

#include <cpuid.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

// From the kernel's interface (asm/prctl.h since Linux 5.16) and of the processor's (XSAVE).
enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };

enum { AMD_ZEN5 = 26, AMX_DEPTH = 24, VECTOR_DEPTH = 4 };

typedef struct cpu_level {
  const char *name, *llvm;
  int level;
} cpu_level;
static const cpu_level levels[] = {
    {"sse4", "x86-64-v2", 2}, {"avx2", "x86-64-v3", 3}, {"avx512", "x86-64-v4", 4}};

typedef struct cpu_facts {
  bool virtual, amd, avx512_bf16, amx_bf16;
  uint32_t family;
  int level;
  const char *narrowed;
} cpu_facts;

static int supported_level(void) {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    return 4;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("bmi2")
             ? 3
             : 2;
}

// Leaves of the facts what VTPU_CPU names.
static void narrow(cpu_facts *facts) {
  const char *asked = getenv("VTPU_CPU");
  if (!asked || !*asked) return;
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    if (strcmp(asked, levels[i].name)) continue;
    if (levels[i].level > facts->level) {
      vt_log(VT_LOG_WARNING, "VTPU_CPU=%s is more than this processor has", asked);
      return;
    }
    facts->level = levels[i].level;
    facts->narrowed = levels[i].llvm;
    facts->avx512_bf16 = facts->amx_bf16 = false;
    return;
  }
  vt_log(VT_LOG_WARNING, "VTPU_CPU=%s is none of sse4, avx2, avx512", asked);
}

static cpu_facts ask_cpu(void) {
  cpu_facts facts = {0};
  uint32_t a = 0, b = 0, c = 0, d = 0;
  char vendor[13] = {0};
  if (!__get_cpuid(0, &a, &b, &c, &d)) return facts;
  memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
  facts.amd = !strcmp(vendor, "AuthenticAMD");
  if (!__get_cpuid(1, &a, &b, &c, &d)) return facts;
  facts.virtual = c >> 31;
  facts.family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
  // The builtins also ask whether the operating system saves the registers; AMX needs more: the
  // process must request its tile state.
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
    facts.amx_bf16 = avx512 && (d >> 22 & 1) && (d >> 24 & 1) &&
                     !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) facts.avx512_bf16 = avx512 && (a >> 5 & 1);
  facts.amx_bf16 = facts.amx_bf16 && facts.avx512_bf16; // amx.c uses both
  return facts;
}

static cpu_facts known;
static pthread_once_t asked = PTHREAD_ONCE_INIT;
static void ask_once(void) {
  known = ask_cpu();
  known.level = supported_level();
  narrow(&known);
}

// Queried once: cpuid traps to the hypervisor, which takes tens of microseconds.
static cpu_facts read_cpu(void) {
  pthread_once(&asked, ask_once);
  return known;
}

bool vt_host_fast_bf16(void) {
  cpu_facts facts = read_cpu();
  // vdpbf16ps runs at twice the rate of f32 FMA on Zen 5 and below it on the Intel parts without
  // AMX; unmeasured parts take the f32 path, which is correct everywhere.
  return facts.amx_bf16 || (facts.amd && facts.family >= AMD_ZEN5 && facts.avx512_bf16);
}

int64_t vt_host_min_bf16_depth(void) {
  return read_cpu().amx_bf16 ? AMX_DEPTH : VECTOR_DEPTH;
}

bool vt_host_has_amx(void) {
  return read_cpu().amx_bf16;
}

int vt_host_threads(void) {
  return omp_get_max_threads();
}

int64_t vt_host_share(int64_t iterations) {
  enum { PIECES = 64, OF_EACH = 16 }; // at least
  int64_t pieces = OF_EACH * omp_get_max_threads();
  return 1 + iterations / (pieces > PIECES ? pieces : PIECES);
}

int vt_host_level(void) {
  return read_cpu().level;
}

bool vt_host_gathers(void) {
  cpu_facts facts = read_cpu();
  return facts.level >= 4 && !facts.amd;
}

bool vt_host_fetches_results(int64_t bytes) {
  enum { LEAST = 4 << 20 };
  cpu_facts facts = read_cpu();
  return bytes >= LEAST && facts.level >= 4 && !facts.amd;
}

bool vt_host_virtual(void) {
  return read_cpu().virtual;
}

const char *vt_host_narrowed(void) {
  return read_cpu().narrowed;
}
