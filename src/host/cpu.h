// SPDX-License-Identifier: Apache-2.0
// cpu.h - what the back end needs to know about the processor it runs on. Constant for the life of
// the process.
#ifndef VT_HOST_CPU_H
#define VT_HOST_CPU_H

#include <stdbool.h>
#include <stdint.h>

// True where a bf16 x bf16 -> f32 dot beats the same dot in f32, conversions included. Decided by
// what the CPU is, never by a timing, so that results do not depend on load. Figures:
// docs/decisions/002-bf16-by-cpu.md
bool vt_host_fast_bf16(void);
// Dots that sum fewer products than this are faster in f32 even there.
int64_t vt_host_min_bf16_depth(void);
// AMX tiles for bf16, and AVX512-BF16.
bool vt_host_has_amx(void);

// Threads of a parallel loop. Sums of oneDNN depend on it.
int vt_host_threads(void);

// The x86 level (2, 3 or 4) to use of the files that are built once per level.
int vt_host_level(void);
// Whether reads of elements here and there gain nothing from prefetching: gathers are instructions
// for 16 elements, of which several are under way at once. AMD's read one element after the other.
bool vt_host_gathers(void);
// Whether lines of a result of so many bytes are to be fetched before they are written: of what no
// second cache holds, too few stores are under way at once. Measured on Intel's Xeons only.
bool vt_host_fetches_results(int64_t bytes);
// Whether it is a virtual machine's.
bool vt_host_virtual(void);
// LLVM's name of that level if VTPU_CPU=sse4|avx2|avx512 asks for no more than that; else NULL.
// Only functions under VT_ANY_CPU, which move, compare and combine elements, then still use more.
const char *vt_host_narrowed(void);

// The version of `name` from such a file.
#if defined(__x86_64__)
#define VT_OF_LEVEL(name)                                                                          \
  (vt_host_level() == 4 ? name##_v4 : vt_host_level() == 3 ? name##_v3 : name##_v2)
#else
#define VT_OF_LEVEL(name) name##_v2
#endif

// Compiles a function once for each of these; the loader picks the best one. Not under
// ThreadSanitizer: the resolver runs before the runtime that instrumented code calls is
// initialized.
#if defined(__has_feature)
#define VT_THREAD_SANITIZER __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define VT_THREAD_SANITIZER 1
#else
#define VT_THREAD_SANITIZER 0
#endif
#if VT_THREAD_SANITIZER
#define VT_ANY_CPU
#else
#define VT_ANY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

// How many iterations of a loop a thread should take at a time: loops are cut into many pieces
// rather than one per thread, as one whose core is shared with another virtual machine takes fewer.
int64_t vt_host_share(int64_t iterations);

#endif
