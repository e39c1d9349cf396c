// SPDX-License-Identifier: Apache-2.0
// objects.h - the objects behind the handles of the PJRT interface, and the functions of its slots.
//
// Events and buffers are the runtime's own; devices, memories and executables add the lists and
// texts that the interface hands out by pointer.
#ifndef VT_PJRT_OBJECTS_H
#define VT_PJRT_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/arena.h"
#include "base/fork.h"
#include "base/text.h"
#include "pjrt/abi.h"
#include "runtime/runtime.h"

// vt_status vt_pjrt_NAME(PJRT_NAME_Args *args), for every row.
#define DECLARE_VOID(name)                        void vt_pjrt_##name(PJRT_##name##_Args *args);
#define DECLARE_HAVE(name)                        vt_status vt_pjrt_##name(PJRT_##name##_Args *args);
#define SLOT(state, slot, name, bytes, last, ...) DECLARE_##state(name)
#include "pjrt/pjrt_slots.def"
#undef SLOT

extern PJRT_Layouts_Extension vt_pjrt_layouts; // head of the list of extensions
extern PJRT_Shardings_Extension vt_pjrt_shardings;
extern PJRT_MemoryDescriptions_Extension vt_pjrt_memory_descriptions;
extern PJRT_CrossHostTransfers_Extension vt_pjrt_cross_host;
extern PJRT_Profiler_Extension vt_pjrt_profiler;

static inline PJRT_Event *vt_event_to_pjrt(vt_event *event) {
  return (PJRT_Event *)event;
}
static inline vt_event *vt_event_of_pjrt(PJRT_Event *event) {
  return (vt_event *)event;
}
static inline PJRT_Buffer *vt_buffer_to_pjrt(vt_buffer *buffer) {
  return (PJRT_Buffer *)buffer;
}
static inline vt_buffer *vt_buffer_of_pjrt(const PJRT_Buffer *buffer) {
  return (vt_buffer *)(uintptr_t)buffer;
}

enum { VT_DEVICE_ATTRIBUTES = 4 };
struct PJRT_DeviceDescription {
  const vt_slice *slice;
  int32_t id;
  int32_t process;
  int64_t coords[3];
  char to_string[96], debug_string[64];
  size_t to_string_size, debug_string_size;
  PJRT_NamedValue attributes[VT_DEVICE_ATTRIBUTES];
  size_t attribute_count;
};
// Fills a description of device `id`; `process` is its process index. Borrows `slice`.
void vt_device_description_fill(PJRT_DeviceDescription *description, const vt_slice *slice,
                                int32_t id, int32_t process);

typedef struct vt_user_data {
  struct vt_user_data *next;
  const void *key;
  void *data;
  void (*destroy)(void *data);
} vt_user_data;
struct PJRT_Memory {
  const PJRT_Memory_Table *table; // first: the client reads it
  PJRT_Device *device;
  vt_memory *memory;
  vt_user_data *user_data;
  char to_string[64];
};
void vt_memory_fill(PJRT_Memory *memory, PJRT_Device *device, vt_memory *runtime_memory);
void vt_memory_clear(PJRT_Memory *memory);

struct PJRT_Device {
  PJRT_Client *client;
  vt_device *device;
  PJRT_DeviceDescription description;
  PJRT_Memory memories[VT_MEMORY_KINDS];
  PJRT_Memory *memory_list[VT_MEMORY_KINDS];
};

struct PJRT_TopologyDescription {
  vt_slice slice;
  size_t count;
  PJRT_DeviceDescription *descriptions;
  PJRT_DeviceDescription **list;
};
// With the processes of the client, or NULL: one on each host.
vt_status vt_topology_make(const vt_slice *slice, vt_client *client,
                           PJRT_TopologyDescription **out_topology) VT_CHECKED;
void vt_topology_free(PJRT_TopologyDescription *topology);

struct PJRT_Client {
  vt_client *client;
  size_t device_count, here_count; // those of this process are addressable
  PJRT_Device *devices;
  PJRT_Device **device_list, **here_list;
  PJRT_Memory **memory_list; // here_count * VT_MEMORY_KINDS
  PJRT_TopologyDescription *topology;
  bool blocking; // Execute returns when the program has ended, with its error
};

// A program with the lists that its getters hand out.
struct PJRT_Layouts_MemoryLayout {
  bool owned; // by its executable, never destroyed by callers
  size_t size;
  char text[];
};
PJRT_Layouts_MemoryLayout *vt_layout_create(vt_arena *arena, const char *text,
                                            size_t size); // NULL arena: heap

typedef struct vt_io_lists {
  size_t count;
  const char **kinds;
  size_t *kind_sizes;
  PJRT_Layouts_MemoryLayout **layouts;
  const char **shardings; // NULL: one device, nothing to report
  size_t *sharding_sizes;
} vt_io_lists;

enum { VT_COST_PROPERTIES = 8 };
struct PJRT_Executable {
  atomic_int refs;
  vt_arena arena;
  vt_executable *executable;
  const vt_executable_info *info;
  vt_io_lists params, results;
  int *result_types;
  int64_t *result_dims;
  size_t *result_dim_sizes;
  char fingerprint[17];
  PJRT_NamedValue costs[VT_COST_PROPERTIES];
  bool predicted; // the costs hold what the time model says, or it has nothing to say
  size_t cost_count;
  pthread_mutex_t text_lock;
  vt_text text; // the optimised program, printed on first demand
};
// Takes `executable`.
vt_status vt_executable_wrap(vt_executable *executable,
                             PJRT_Executable **out_executable) VT_CHECKED;
void vt_executable_unwrap(PJRT_Executable *executable); // gives one reference back
// Compiles what a client sent. errors as vt_executable_compile, and UNIMPLEMENTED for other formats
vt_status vt_program_compile(const vt_slice *slice, const vt_split *split,
                             const PJRT_Program *program, vt_bytes options,
                             PJRT_Executable **out_executable) VT_CHECKED;
// Turns the bytes of vt_pjrt_Executable_Serialize back into an executable. errors INVALID_ARGUMENT,
// FAILED_PRECONDITION
vt_status vt_program_deserialize(const vt_slice *slice, const vt_split *split, vt_bytes bytes,
                                 vt_bytes options, PJRT_Executable **out_executable) VT_CHECKED;

struct PJRT_LoadedExecutable {
  PJRT_Client *client;
  PJRT_Executable *executable;
  atomic_bool deleted;
  size_t device_count;
  PJRT_Device **devices; // of this process, in order of the device assignment
  PJRT_LogicalDeviceIds *logical_ids;
  vt_text assignment; // DeviceAssignment message
};
// Takes `executable`.
vt_status vt_executable_load(PJRT_Client *client, PJRT_Executable *executable,
                             PJRT_LoadedExecutable **out_loaded) VT_CHECKED;

// Host callbacks of one execution, copied out of its options. NULL when there are none.
PJRT_Error *vt_callback_error(int code, const char *message, size_t message_size);
vt_status vt_transfers_create(const PJRT_ExecuteOptions *options, size_t device_count,
                              vt_transfer_calls *out_calls) VT_CHECKED;

static inline PJRT_Device *vt_device_to_pjrt(const vt_device *device) {
  vt_assert(device->front);
  return device->front;
}
static inline PJRT_Memory *vt_memory_to_pjrt(const vt_memory *memory) {
  vt_assert(memory->front);
  return memory->front;
}

// Text such as "vtpu 0.1.0 (build 5f2c...)"; constant. The platform's has a line more: its age.
const char *vt_plugin_version(void);
const char *vt_plugin_platform_version(void);
#define VT_PLATFORM_NAME "tpu"

// An array type from the interface. `dims` is borrowed. errors INVALID_ARGUMENT, UNIMPLEMENTED
// (element type)
vt_status vt_type_from_pjrt(int type, const int64_t *dims, size_t num_dims,
                            vt_type *out_type) VT_CHECKED;

// The text of a layout in `room`; NULL when none is given. errors INVALID_ARGUMENT
enum { VT_LAYOUT_TEXT = 4 * VT_MAX_RANK };
vt_status vt_layout_from_pjrt(const PJRT_Buffer_MemoryLayout *layout, int32_t rank,
                              char room[VT_LAYOUT_TEXT], const char **out_text) VT_CHECKED;
// Byte strides of a host array; *out_given is false when it is plain row-major.
vt_status vt_host_strides(vt_type type, const PJRT_Buffer_MemoryLayout *layout, int64_t *strides,
                          bool *out_given) VT_CHECKED;
// errors INVALID_ARGUMENT: [offset, offset + size) is not within an array of `bytes`
vt_status vt_raw_range(int64_t bytes, int64_t offset, int64_t size) VT_CHECKED;
vt_status vt_error_from_pjrt(int code, const char *message, size_t size) VT_CHECKED;

// Tells the client in this process the shardings that its program inspects. errors
// INVALID_ARGUMENT, INTERNAL
vt_status vt_inspect_shardings(const PJRT_Executable *executable) VT_CHECKED;

// Records an execution until it ends, so that it can be poisoned. `only` NULL = as assigned.
void vt_running_add(PJRT_LoadedExecutable *loaded, PJRT_Device *only, int32_t launch_id,
                    vt_event *done);

// What a profiler shows. Costs almost nothing while none records.
typedef enum vt_trace_line {
  VT_TRACE_PROGRAMS,
  VT_TRACE_TRACKED,
  VT_TRACE_COMPILES,
  VT_TRACE_LINES
} vt_trace_line;
typedef struct vt_trace_span {
  vt_trace_line line;
  int32_t device; // -1 = the host
  const char *name;
  int64_t start_ns, end_ns;
  double flops, bytes, seconds; // of a program, from the chip model; 0 = unknown
} vt_trace_span;
int64_t vt_trace_now(void);
void vt_trace_add(const vt_trace_span *span); // copies

#endif
