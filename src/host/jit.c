// SPDX-License-Identifier: Apache-2.0
// jit.c - compiles nests through LLVM: target, modules, objects, and the code of the process.
// In:  fused groups. Out: kernels. Two threads at most generate code, each with its own context,
// module and target machine; the objects are linked into one LLJIT. Code is found by the text key
// of its nest (emit_nest.c) while a program uses its object or did so recently, and on disk
// (code_cache.c) by the hash of all keys of an object, the build of this library, the LLVM version,
// the CPU and its features.
#include "host/kernel.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "base/array.h"
#include "base/fork.h"
#include "base/memory.h"
#include "host/code_cache.h"
#include "host/cpu.h"
#include "host/kernel_impl.h"
#include "host/kernel_native.h"
#include "host/loop.h"

enum { KERNELS_PER_MODULE = 50, COMPILE_THREADS = 2, MOST_IDLE = 128 };

// Linked code, used by kernels of programs or idle, in a list with the oldest first.
typedef struct object {
  LLVMOrcResourceTrackerRef tracker; // NULL: dropped
  size_t bytes;
  uint32_t users;
  struct object *before, *after; // in the list
} object;

typedef struct code {
  void *function;
  object *object;
} code;

// The process's code, shared by all programs; freed with the last of them.
typedef struct code_store {
  int users;
  LLVMOrcLLJITRef jit;
  vt_map code; // key text -> code
  object *oldest, *newest;
  uint32_t idle;
  char *triple, *cpu, *features;
  vt_target target;
  uint64_t version; // hash of all that code depends on besides its key
} code_store;

static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;
static code_store *the_store;

struct vt_jit {
  vt_arena arena;
  code_store *store;
  VT_ARRAY(object *) objects; // one for each kernel with code
};

// One module: its nests and the outcome of compiling it.
typedef struct unit {
  code_store *store;
  uint32_t count;
  const vt_group **groups;
  char **names;
  vt_code_path path;
  LLVMMemoryBufferRef object;
  bool from_disk;
  object *linked;
  char *error;
  bool no_memory;
} unit;

static vt_status from_llvm(LLVMErrorRef error, const char *what) {
  char *text = LLVMGetErrorMessage(error);
  vt_status st = vt_error(VT_INTERNAL, "code generator: %s: %s", what, text);
  LLVMDisposeErrorMessage(text);
  return st;
}

// ---- The store.

static bool has_feature(const char *features, const char *name) {
  return strstr(features, name) != NULL;
}

// AMD's processors gather more slowly than they load elements one by one: searchsorted of 100,000
// in 1,000,000 takes 3.0 ms with AVX-512's gathers and 1.3 without. No memory of ours is asked for:
// the code store is locked here.
static char *tuned(const char *cpu, char *features) {
  static const char no_gather[] = ",+prefer-no-gather";
  char text[1 << 13];
  if (strncmp(cpu, "znver", 5) || strlen(features) + sizeof no_gather > sizeof text)
    return features;
  snprintf(text, sizeof text, "%s%s", features, no_gather);
  LLVMDisposeMessage(features);
  return LLVMCreateMessage(text);
}

static void find_target(code_store *s) {
  const char *narrowed = vt_host_narrowed();
  bool gathers = vt_host_gathers();
  if (narrowed) {
    int level = vt_host_level();
    s->cpu = LLVMCreateMessage(narrowed);
    s->features = LLVMCreateMessage("");
    s->target = (vt_target){.lanes = level >= 4 ? 16 : 8, .avx512 = level >= 4, .gathers = gathers};
    s->target.f16c = s->target.fma = level >= 3;
    return;
  }
  s->cpu = LLVMGetHostCPUName();
  s->features = tuned(s->cpu, LLVMGetHostCPUFeatures());
  const char *f = s->features;
  s->target.avx512 = has_feature(f, "+avx512f,") && has_feature(f, "+avx512bw,") &&
                     has_feature(f, "+avx512dq,") && has_feature(f, "+avx512vl,");
  s->target.bf16 = has_feature(f, "+avx512bf16,");
  s->target.f16c = has_feature(f, "+f16c,");
  s->target.fma = has_feature(f, "+fma,");
  s->target.gathers = gathers;
  s->target.lanes = s->target.avx512 ? 16 : 8;
}

static vt_status define_symbols(code_store *s) {
  uint32_t count = vt_runtime_symbols(NULL);
  vt_runtime_symbol *symbols_of = calloc(count, sizeof *symbols_of);
  LLVMOrcCSymbolMapPair *pairs = calloc(count, sizeof *pairs);
  if (!pairs || !symbols_of) {
    free(symbols_of);
    free(pairs);
    return vt_error_no_memory();
  }
  vt_runtime_symbols(symbols_of);
  for (uint32_t i = 0; i < count; i++) {
    pairs[i].Name = LLVMOrcLLJITMangleAndIntern(s->jit, symbols_of[i].name);
    pairs[i].Sym.Address = (LLVMOrcExecutorAddress)(uintptr_t)symbols_of[i].address;
    pairs[i].Sym.Flags.GenericFlags =
        LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable;
  }
  free(symbols_of);
  LLVMOrcMaterializationUnitRef symbols = LLVMOrcAbsoluteSymbols(pairs, count);
  free(pairs);
  LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(s->jit);
  LLVMErrorRef error = LLVMOrcJITDylibDefine(lib, symbols);
  if (error) return from_llvm(error, "runtime symbols");
  LLVMOrcDefinitionGeneratorRef process;
  error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
      &process, LLVMOrcLLJITGetGlobalPrefix(s->jit), NULL, NULL);
  if (error) return from_llvm(error, "process symbols");
  LLVMOrcJITDylibAddGenerator(lib, process);
  return VT_OK;
}

// ---- Objects.

static void enter_idle(code_store *s, object *o) {
  o->before = s->newest;
  *(s->newest ? &s->newest->after : &s->oldest) = o;
  s->newest = o;
  s->idle++;
}

static void leave_idle(code_store *s, object *o) {
  *(o->before ? &o->before->after : &s->oldest) = o->after;
  *(o->after ? &o->after->before : &s->newest) = o->before;
  o->before = o->after = NULL;
  s->idle--;
}

static void use_object(vt_jit *jit, object *o) {
  vt_array_push(&jit->objects, o); // first: it may find no memory
  if (o->users++ == 0) leave_idle(jit->store, o);
}

int64_t vt_jit_code_bytes(const vt_jit *jit) {
  int64_t bytes = 0;
  for (size_t i = 0; jit && i < jit->objects.size; i++) {
    size_t first = 0; // an object holds several kernels
    while (jit->objects.data[first] != jit->objects.data[i]) first++;
    if (first == i) bytes += (int64_t)jit->objects.data[i]->bytes;
  }
  return bytes;
}

static void leave_objects(vt_jit *jit) {
  for (size_t i = 0; i < jit->objects.size; i++)
    if (--jit->objects.data[i]->users == 0) enter_idle(jit->store, jit->objects.data[i]);
  vt_array_free(&jit->objects);
}

static void drop_code(object *o) {
  LLVMErrorRef error = LLVMOrcResourceTrackerRemove(o->tracker);
  if (error) LLVMConsumeError(error);
  LLVMOrcReleaseResourceTracker(o->tracker);
  o->tracker = NULL;
}

// When twice the allowed number of objects are idle, the oldest are dropped: in batches, as the map
// has no removal and must be rebuilt.
static void trim_idle(code_store *s) {
  if (s->idle <= 2 * MOST_IDLE) return;
  object *dropped = NULL;
  while (s->idle > MOST_IDLE) {
    object *o = s->oldest;
    leave_idle(s, o);
    drop_code(o);
    o->after = dropped;
    dropped = o;
  }
  vt_map all = s->code;
  s->code = (vt_map){0};
  for (size_t i = 0; i < all.size; i++) {
    code *c = all.entries[i].value;
    if (c && c->object->tracker)
      *vt_map_at(&s->code, vt_map_key(&all.entries[i]), all.entries[i].key_size) = c;
    else
      free(c);
  }
  vt_map_free(&all);
  while (dropped) {
    object *next = dropped->after;
    free(dropped);
    dropped = next;
  }
}

static void destroy_store(code_store *s) {
  for (size_t i = 0; i < s->code.size; i++) free(s->code.entries[i].value);
  while (s->oldest) {
    object *o = s->oldest;
    leave_idle(s, o);
    LLVMOrcReleaseResourceTracker(o->tracker);
    free(o);
  }
  if (s->jit) {
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(s->jit);
    if (error) LLVMConsumeError(error);
  }
  LLVMDisposeMessage(s->triple);
  LLVMDisposeMessage(s->cpu);
  LLVMDisposeMessage(s->features);
  vt_map_free(&s->code);
  free(s);
}

extern const char __ehdr_start[] __attribute__((visibility("hidden"))); // by the linker

// Hashes this library's ELF notes, including its build-id: code from another build may call
// functions that differ or are missing here.
static uint64_t hash_build(void) {
  const char *start = __ehdr_start;
  const ElfW(Ehdr) *head = (const void *)start;
  const ElfW(Phdr) *segments = (const void *)(start + head->e_phoff);
  uint64_t hash = 0, base = 0;
  for (int i = head->e_phnum - 1; i >= 0; i--)
    if (segments[i].p_type == PT_LOAD) base = (uintptr_t)start - segments[i].p_vaddr; // the first
  for (int i = 0; i < head->e_phnum; i++)
    if (segments[i].p_type == PT_NOTE)
      hash = vt_hash_bytes((const void *)(uintptr_t)(base + segments[i].p_vaddr),
                           segments[i].p_memsz, hash);
  return hash;
}

static uint64_t hash_version(const code_store *s) {
  char text[64];
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  snprintf(text, sizeof text, "%u.%u.%u", major, minor, patch);
  uint64_t hash = vt_hash_bytes(text, strlen(text), hash_build());
  hash = vt_hash_bytes(s->features, strlen(s->features), hash);
  hash = vt_hash_u64(s->target.gathers, hash);
  return vt_hash_bytes(s->cpu, strlen(s->cpu), hash);
}

static vt_status create_store(code_store **out_store) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  code_store *s = calloc(1, sizeof *s);
  if (!s) return vt_error_no_memory();
  s->triple = LLVMGetDefaultTargetTriple();
  find_target(s);
  s->version = hash_version(s);
  LLVMErrorRef error = LLVMOrcCreateLLJIT(&s->jit, NULL);
  vt_status st = error ? from_llvm(error, "LLJIT") : define_symbols(s);
  if (st) {
    destroy_store(s);
    return st;
  }
  *out_store = s;
  return VT_OK;
}

vt_status vt_jit_create(vt_jit **out_jit) {
  vt_status st = VT_OK;
  vt_arena arena = {0};
  vt_jit *jit = VT_NEW(&arena, vt_jit);
  vt_lock(&store_lock);
  if (!the_store) st = create_store(&the_store);
  if (!st) the_store->users++;
  jit->store = the_store;
  vt_unlock(&store_lock);
  jit->arena = arena;
  if (st)
    vt_arena_free(&arena);
  else
    *out_jit = jit;
  return st;
}

void vt_jit_destroy(vt_jit *jit) {
  if (!jit) return;
  vt_lock(&store_lock);
  leave_objects(jit);
  if (--jit->store->users == 0) {
    destroy_store(jit->store);
    the_store = NULL;
  } else {
    trim_idle(jit->store);
  }
  vt_unlock(&store_lock);
  vt_arena arena = jit->arena; // the jit is allocated in its own arena
  vt_arena_free(&arena);
}

static bool load_object(unit *u) {
  vt_bytes bytes;
  u->path = vt_code_cache_find(u->store->version, u->count, u->names);
  if (!vt_code_cache_load(&u->path, &bytes)) return false;
  u->object =
      LLVMCreateMemoryBufferWithMemoryRangeCopy((const char *)bytes.data, bytes.size, "cached");
  vt_file_unmap(&bytes);
  u->from_disk = true;
  return true;
}

// ---- Code generation.

static LLVMTargetMachineRef create_machine(const code_store *s) {
  LLVMTargetRef target;
  char *error = NULL;
  if (LLVMGetTargetFromTriple(s->triple, &target, &error)) {
    LLVMDisposeMessage(error);
    return NULL;
  }
  return LLVMCreateTargetMachine(target, s->triple, s->cpu, s->features, LLVMCodeGenLevelLess,
                                 LLVMRelocPIC, LLVMCodeModelSmall);
}

typedef struct emission {
  const unit *unit;
  vt_emitter emitter;
} emission;

static vt_status emit(void *user) {
  emission *e = user;
  const unit *u = e->unit;
  for (uint32_t i = 0; i < u->count; i++)
    if (u->groups[i]->source)
      u->groups[i]->source->emit(&e->emitter, u->groups[i]->source->user, u->names[i]);
    else if (u->groups[i]->nest)
      vt_emit_nest(&e->emitter, u->groups[i]->nest, u->names[i]);
    else
      vt_emit_loop(&e->emitter, u->groups[i]->loop, u->names[i]);
  return VT_OK;
}

// LLVM's own allocations cannot fail: LLVM aborts the process.
static void generate(unit *u) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("vtpu", context);
  LLVMTargetMachineRef machine = create_machine(u->store);
  emission e = {.unit = u,
                .emitter = {.target = u->store->target,
                            .context = context,
                            .module = module,
                            .builder = LLVMCreateBuilderInContext(context)}};
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMSetTarget(module, u->store->triple);
  vt_attempt attempt; // for LLVM's objects; and a helper thread has no other
  vt_status st = vt_attempt_run(&attempt, emit, &e);
  vt_attempt_end(&attempt);
  u->no_memory = st != VT_OK;
  vt_status_free(st);
  const char *dump = getenv("VTPU_DUMP_LLVM"); // a directory for the IR of each module
  if (dump && *dump) {
    char path[1100], *failed = NULL;
    snprintf(path, sizeof path, "%s/%s.ll", dump, u->names[0]);
    if (LLVMPrintModuleToFile(module, path, &failed)) LLVMDisposeMessage(failed);
  }
#ifndef NDEBUG
  bool verify = true;
#else
  bool verify = dump != NULL;
#endif
  if (!u->no_memory && (!verify || !LLVMVerifyModule(module, LLVMReturnStatusAction, &u->error))) {
    LLVMDisposeMessage(u->error);
    u->error = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &u->error, &u->object))
      u->object = NULL;
  }
  LLVMDisposeTargetData(layout);
  LLVMDisposeBuilder(e.emitter.builder);
  LLVMDisposeModule(module);
  LLVMDisposeTargetMachine(machine);
  LLVMContextDispose(context);
}

typedef struct unit_queue {
  unit *units;
  uint32_t count;
  uint32_t next;
} unit_queue;

static void *compile_units(void *arg) {
  unit_queue *q = arg;
  for (;;) {
    uint32_t i = __atomic_fetch_add(&q->next, 1, __ATOMIC_RELAXED);
    if (i >= q->count) return NULL;
    if (!load_object(&q->units[i])) generate(&q->units[i]);
  }
}

static void compile_all(unit *units, uint32_t count) {
  unit_queue queue = {.units = units, .count = count};
  pthread_t helpers[COMPILE_THREADS - 1];
  int started = 0;
  for (int i = 0; i < COMPILE_THREADS - 1 && (uint32_t)i + 1 < count; i++)
    if (!pthread_create(&helpers[started], NULL, compile_units, &queue)) started++;
  compile_units(&queue);
  for (int i = 0; i < started; i++) pthread_join(helpers[i], NULL);
}

// ---- From groups to code.

typedef struct request {
  const vt_group *group;
  char *key;
  char *name;
  size_t key_size;
} request;

// Gives the unit's object to the linker.
static LLVMErrorRef link_object(code_store *s, unit *u) {
  LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(s->jit);
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(lib);
  size_t bytes = LLVMGetBufferSize(u->object);
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFileWithRT(s->jit, tracker, u->object);
  u->object = NULL;
  object *o = error ? NULL : calloc(1, sizeof *o);
  if (!o) {
    LLVMOrcReleaseResourceTracker(tracker);
    return error;
  }
  o->tracker = tracker;
  o->bytes = bytes;
  enter_idle(s, o);
  u->linked = o;
  return NULL;
}

static vt_status add_object(code_store *s, unit *u) {
  if (u->from_disk) {
    LLVMErrorRef refused = link_object(s, u);
    if (!refused) return u->linked ? VT_OK : vt_error_no_memory();
    LLVMConsumeError(refused); // a damaged file: compiled again and replaced
    u->from_disk = false;
    generate(u);
  }
  if (u->no_memory) return vt_error_no_memory();
  if (!u->object) {
    vt_status st = vt_error(VT_INTERNAL, "code generator: %s", u->error ? u->error : "no object");
    LLVMDisposeMessage(u->error);
    u->error = NULL;
    return st;
  }
  vt_code_cache_save(&u->path, LLVMGetBufferStart(u->object), LLVMGetBufferSize(u->object));
  LLVMErrorRef error = link_object(s, u);
  if (error) return from_llvm(error, "object");
  return u->linked ? VT_OK : vt_error_no_memory();
}

// Cuts the wanted nests into units: even shares for the threads, at most KERNELS_PER_MODULE each.
static uint32_t make_units(vt_arena *arena, code_store *s, const request *wanted, uint32_t count,
                           unit **out_units) {
  uint32_t parts = (count + KERNELS_PER_MODULE - 1) / KERNELS_PER_MODULE;
  if (parts < COMPILE_THREADS) parts = count < COMPILE_THREADS ? count : COMPILE_THREADS;
  unit *units = VT_NEW_ARRAY(arena, unit, parts);
  for (uint32_t p = 0; p < parts; p++) {
    uint32_t lo = count * p / parts, hi = count * (p + 1) / parts;
    units[p] = (unit){.store = s,
                      .count = hi - lo,
                      .groups = VT_NEW_ARRAY(arena, const vt_group *, hi - lo),
                      .names = VT_NEW_ARRAY(arena, char *, hi - lo)};
    for (uint32_t i = lo; i < hi; i++) {
      units[p].groups[i - lo] = wanted[i].group;
      units[p].names[i - lo] = wanted[i].name;
    }
  }
  *out_units = units;
  return parts;
}

static vt_status find_code(code_store *s, const request *wanted, object *linked, code **out_code) {
  LLVMOrcExecutorAddress address;
  LLVMErrorRef error = LLVMOrcLLJITLookup(s->jit, &address, wanted->name);
  if (error) return from_llvm(error, "lookup");
  *out_code = calloc(1, sizeof **out_code);
  if (!*out_code) return vt_error_no_memory();
  **out_code = (code){(void *)(uintptr_t)address, linked};
  return VT_OK;
}

typedef struct entries {
  code_store *store;
  const request *wanted;
  uint32_t count;
} entries;

static vt_status make_entries(void *user) {
  const entries *e = user;
  for (uint32_t i = 0; i < e->count; i++)
    vt_map_at(&e->store->code, e->wanted[i].key, e->wanted[i].key_size);
  return VT_OK;
}

static vt_status compile_wanted(vt_arena *arena, code_store *s, const request *wanted,
                                uint32_t count) {
  unit *units;
  vt_status st = VT_OK;
  uint32_t parts = make_units(arena, s, wanted, count, &units);
  compile_all(units, parts);
  for (uint32_t p = 0; p < parts; p++) {
    vt_status added = add_object(s, &units[p]);
    if (st)
      vt_status_free(added);
    else
      st = added;
  }
  code **made = VT_NEW_ARRAY(arena, code *, count);
  for (uint32_t p = 0, i = 0; p < parts && !st; p++)
    for (uint32_t k = 0; k < units[p].count && !st; k++, i++)
      st = find_code(s, &wanted[i], units[p].linked, &made[i]);
  entries all = {s, wanted, count};
  if (!st) st = vt_attempt_keep(make_entries, &all);
  for (uint32_t i = 0; i < count; i++)
    if (st)
      free(made[i]);
    else
      *vt_map_at(&s->code, wanted[i].key, wanted[i].key_size) = made[i]; // there is an entry
  for (uint32_t p = 0; p < parts && st; p++) { // or their names could not be linked again
    if (!units[p].linked) continue;
    leave_idle(s, units[p].linked);
    drop_code(units[p].linked);
    free(units[p].linked);
  }
  return st;
}

static request make_request(vt_arena *arena, const code_store *s, const vt_group *group) {
  vt_text text = {0};
  if (group->source)
    group->source->key(group->source->user, &s->target, &text);
  else if (group->nest)
    vt_nest_key(group->nest, &s->target, &text);
  else
    vt_loop_key(group->loop, &s->target, &text);
  request r = {
      .group = group, .key = vt_arena_copy(arena, text.data, text.size), .key_size = text.size};
  r.name = vt_arena_printf(arena, "vt_%016llx%016llx",
                           (unsigned long long)vt_hash_bytes(text.data, text.size, 1),
                           (unsigned long long)vt_hash_bytes(text.data, text.size, 2));
  vt_text_free(&text);
  return r;
}

typedef struct compilation {
  vt_jit *jit;
  const vt_group *const *groups;
  uint32_t count;
  vt_kernel **kernels;
  const request *requests; // of each group
} compilation;

static vt_status make_kernels(void *user) {
  const compilation *c = user;
  code_store *s = c->jit->store;
  for (uint32_t i = 0; i < c->count; i++) {
    const request *r = &c->requests[i];
    const code *found = r->key ? vt_map_find(&s->code, r->key, r->key_size) : NULL;
    if (found) use_object(c->jit, found->object);
    vt_nest_fn *function = found ? (vt_nest_fn *)(uintptr_t)found->function : NULL;
    c->kernels[i] = vt_kernel_create(&c->jit->arena, c->groups[i], &s->target, function);
  }
  return VT_OK;
}

static vt_status compile_groups(void *user) {
  compilation *c = user;
  vt_arena scratch = {0};
  code_store *s = c->jit->store;
  request *requests = VT_NEW_ARRAY(&scratch, request, c->count),
          *wanted = VT_NEW_ARRAY(&scratch, request, c->count);
  uint32_t wanted_count = 0;
  vt_map asked = {0};
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < c->count; i++) {
    if (!c->groups[i]->nest && !c->groups[i]->loop && !c->groups[i]->source) continue;
    requests[i] = make_request(&scratch, s, c->groups[i]);
    void **seen = vt_map_at(&asked, requests[i].key, requests[i].key_size);
    const code *known = vt_map_find(&s->code, requests[i].key, requests[i].key_size);
    if (*seen || known) continue;
    *seen = &requests[i];
    wanted[wanted_count++] = requests[i];
  }
  if (wanted_count) st = compile_wanted(&scratch, s, wanted, wanted_count);
  c->requests = requests;
  if (!st) st = vt_attempt_keep(make_kernels, c);
  vt_map_free(&asked);
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_jit_compile(vt_jit *jit, const vt_group *const *groups, uint32_t count,
                         vt_kernel **out_kernels) {
  compilation c = {.jit = jit, .groups = groups, .count = count, .kernels = out_kernels};
  vt_attempt attempt; // the store is locked
  vt_lock(&store_lock);
  vt_status st = vt_attempt_run(&attempt, compile_groups, &c);
  vt_attempt_end(&attempt);
  vt_unlock(&store_lock);
  return st;
}
