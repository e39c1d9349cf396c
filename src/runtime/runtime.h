// SPDX-License-Identifier: Apache-2.0
// runtime.h - a slice of virtual devices in this process: buffers, events, executables.
//
// One host allocation (a storage) holds one whole array; the buffers of the devices are rectangles
// of it. Programs run once on whole arrays, in order, on one executor thread; tiny ones run on the
// calling thread while nothing is queued. HBM is an account per device: each live buffer counts
// with its padded layout.
// Threads: every function may be called from any thread. After fork() the child gets
// FAILED_PRECONDITION.
#ifndef VT_RUNTIME_RUNTIME_H
#define VT_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/store.h"
#include "base/text.h"
#include "chip/chip.h"
#include "host/host.h"
#include "ir/type.h"

typedef struct vt_client vt_client;
typedef struct vt_device vt_device;
typedef struct vt_memory vt_memory;
typedef struct vt_event vt_event;
typedef struct vt_buffer vt_buffer;
typedef struct vt_executable vt_executable;

// Events ------------------------------------------------------------------------------------------
// Complete once, with or without an error. Callbacks run on the completing thread, or at once if
// already complete; each takes its own copy of the error.
typedef void (*vt_event_callback)(vt_status error, void *user);
vt_event *vt_event_create(void);            // NULL: out of memory
vt_event *vt_event_failed(vt_status error); // takes the error; complete with it, never NULL
vt_event *vt_event_done(void);              // complete without error; retain and release do nothing
vt_event *vt_event_retain(vt_event *event);
void vt_event_release(vt_event *event); // accepts NULL
void vt_event_complete(vt_event *event,
                       vt_status error); // takes the error; only the first call counts
bool vt_event_is_complete(const vt_event *event);
vt_status vt_event_error(vt_event *event) VT_CHECKED; // a copy; VT_OK while pending
vt_status vt_event_await(vt_event *event) VT_CHECKED;
// The event owns the waiter until the callback; `user` may contain it and be freed then.
typedef struct vt_waiter {
  struct vt_waiter *next;
  vt_event_callback callback;
  void *user;
  bool own; // of the event
} vt_waiter;
void vt_event_on_complete(vt_event *event, vt_waiter *waiter, vt_event_callback callback,
                          void *user);
// The same with a waiter that the event allocates.
vt_status vt_event_call(vt_event *event, vt_event_callback callback, void *user) VT_CHECKED;

// Client, devices, memories -----------------------------------------------------------------------
typedef enum vt_memory_kind {
  VT_MEMORY_DEVICE,
  VT_MEMORY_PINNED_HOST,
  VT_MEMORY_UNPINNED_HOST,
  VT_MEMORY_KINDS
} vt_memory_kind;
const char *vt_memory_kind_name(vt_memory_kind kind);
// VT_MEMORY_KINDS when the name is unknown; "" is the device's memory.
vt_memory_kind vt_memory_kind_from_name(const char *name, size_t size);

struct vt_memory {
  int32_t id;
  vt_memory_kind kind;
  vt_device *device;
  void *front; // of the interface that shows it; set by it
};
struct vt_device {
  vt_client *client;
  int32_t id;
  int32_t process; // that has it
  vt_place place;
  vt_memory memories[VT_MEMORY_KINDS];
  void *front;
};
typedef struct vt_device_memory_stats {
  int64_t bytes_in_use, peak_bytes_in_use, num_allocs, largest_alloc_bytes, limit_bytes,
      reserved_bytes;
} vt_device_memory_stats;

// The slice of the environment: VTPU_ACCELERATOR_TYPE, else TPU_ACCELERATOR_TYPE, else v3-8. If the
// name gives no number of slices, MEGASCALE_NUM_SLICES does.
vt_status vt_slice_from_environment(vt_slice *out_slice) VT_CHECKED;
// The framework that clients created from now on run under, for the activity page
// (base/activity.h).
void vt_activity_framework(const char *name, size_t name_size, const char *version,
                           size_t version_size);
vt_status vt_client_create(const vt_slice *slice, vt_client **out_client) VT_CHECKED;
// The same with the other processes that the environment names (distributed/join.h): waits until
// all are there. Then this process holds data and runs programs on its own devices only. `version`
// is that of the plugin, the same in all. `store`: for when the environment names none; NULL =
// there is none. errors as vt_join_read, vt_peers_join
vt_status vt_client_join(const vt_slice *slice, const char *version, const vt_store *store,
                         vt_client **out_client) VT_CHECKED;
int32_t vt_client_process(const vt_client *client);
void vt_client_destroy(
    vt_client *client); // waits for queued work; objects created from it may outlive it
const vt_slice *vt_client_slice(const vt_client *client);
int32_t vt_client_device_count(const vt_client *client);
vt_device *vt_client_device(vt_client *client, int32_t index); // index = id
vt_device_memory_stats vt_device_stats(vt_device *device);
void vt_device_clear_stats(vt_device *device); // resets peaks to the current use
void vt_client_drain(vt_client *client);       // waits until everything queued so far has run

// Buffers -----------------------------------------------------------------------------------------
// A dense or strided array in host memory. Strides are bytes and may be negative; NULL = row-major.
// errors RESOURCE_EXHAUSTED: the device's HBM is full, with its largest buffers; INVALID_ARGUMENT
// The data is copied before the function returns. `layout` is what the buffer reports, "{0,1}";
// NULL = the default. It never changes how the data is stored here.
vt_status vt_buffer_from_host(vt_memory *memory, vt_type type, const void *data,
                              const int64_t *byte_strides, const char *layout,
                              vt_buffer **out_buffer) VT_CHECKED;
// Zeroed memory, and a buffer that is an error from the start (takes `error`).
vt_status vt_buffer_zeros(vt_memory *memory, vt_type type, vt_buffer **out_buffer) VT_CHECKED;
vt_status vt_buffer_poisoned(vt_memory *memory, vt_type type, vt_status error,
                             vt_buffer **out_buffer) VT_CHECKED;
void vt_buffer_destroy(vt_buffer *buffer); // accepts NULL; work in flight keeps the data
void vt_buffer_delete(vt_buffer *buffer);  // frees the data, the object stays
bool vt_buffer_is_deleted(const vt_buffer *buffer);
vt_type vt_buffer_type(const vt_buffer *buffer);
vt_memory *vt_buffer_memory(const vt_buffer *buffer);
int64_t vt_buffer_hbm_bytes(const vt_buffer *buffer);  // padded
const char *vt_buffer_layout(const vt_buffer *buffer); // "{0,1}" when asked for, NULL = the default
// The default order of an array's dimensions, minor to major (layout.c).
void vt_layout_default(const vt_chip *chip, vt_memory_kind kind, vt_type type, int32_t *out_order);
void vt_layout_put(const int32_t *order, int32_t rank, vt_text *text); // "{0,1}"
// Retained. Completes with the error of a poisoned buffer. Deleted: an event with INVALID_ARGUMENT.
vt_event *vt_buffer_ready(vt_buffer *buffer);
// Copies into `dst` with the given strides (NULL = row-major) once the buffer is ready. The caller
// owns the event.
vt_status vt_buffer_to_host(vt_buffer *buffer, void *dst, const int64_t *dst_byte_strides,
                            vt_event **out_event) VT_CHECKED;
// A buffer in another memory, of this or another device. Shares the data.
vt_status vt_buffer_copy_to(vt_buffer *buffer, vt_memory *memory,
                            vt_buffer **out_buffer) VT_CHECKED;
// The address of dense row-major data; waits until ready. Valid while the buffer is alive and not
// deleted, or while external references are held: those keep the data alive without the buffer.
vt_status vt_buffer_pointer(vt_buffer *buffer, void **out_data) VT_CHECKED;
vt_status vt_buffer_pin(vt_buffer *buffer) VT_CHECKED;   // one more external reference
vt_status vt_buffer_unpin(vt_buffer *buffer) VT_CHECKED; // errors FAILED_PRECONDITION: none held

// A buffer on a device of another process: one sends, the other receives, with the same key.
// errors INVALID_ARGUMENT: the device is of this process; UNAVAILABLE: its process is gone
vt_status vt_transfer_send(vt_buffer *buffer, int32_t to_device, int64_t key,
                           vt_event **out_sent) VT_CHECKED;
vt_status vt_transfer_receive(vt_memory *memory, vt_type type, const char *layout,
                              int32_t from_device, int64_t key, vt_buffer **out_buffer) VT_CHECKED;

// A buffer whose data arrives later. The owner of the fill writes the data, dense and row-major,
// and finishes it once; finish and destroy both end the fill. Programs may take the buffer as an
// argument earlier; they start when it is filled.
typedef struct vt_fill vt_fill;
vt_status vt_fill_create(vt_memory *memory, vt_type type, const char *layout, vt_fill **out_fill,
                         vt_buffer **out_buffer) VT_CHECKED;
// The data of `buffer`, which is deleted, as a new buffer that is ready when the fill is finished.
vt_status vt_fill_donated(vt_buffer *buffer, vt_fill **out_fill, vt_buffer **out_buffer) VT_CHECKED;
int64_t vt_fill_bytes(const vt_fill *fill);
// errors INVALID_ARGUMENT: out of range
vt_status vt_fill_write(vt_fill *fill, int64_t offset, const void *bytes, int64_t size) VT_CHECKED;
void vt_fill_finish(vt_fill *fill, vt_status error); // takes the error
void vt_fill_destroy(vt_fill *fill);                 // abandons the fill; accepts NULL
// Fills from a buffer of the same size when that is ready, and finishes. On error the caller keeps
// the fill.
vt_status vt_fill_from(vt_fill *fill, vt_buffer *source) VT_CHECKED;

// Executables -------------------------------------------------------------------------------------
// Into how many parts programs are cut, and which part runs here: the devices of one process make
// one. One part: programs run whole.
typedef struct vt_split {
  int32_t count, process;    // process: the one that runs here; -1 = all do
  const int32_t *process_of; // [device of the slice]
} vt_split;
// Lives as long as the client.
const vt_split *vt_client_split(const vt_client *client);

typedef struct vt_executable_options {
  int32_t replicas;           // 0 = as the program says
  int32_t partitions;         // devices that run one together; 0 = as the program says
  bool alone;                 // one of the program's replicas without the others
  const struct vt_union *all; // what its replicas run instead of one program; NULL = one program
  bool own_arrays;            // in a program without meshes, each partition has its own arrays
  const int32_t *device_ids;  // [replicas * partitions]; NULL = 0, 1, 2 ...
  vt_bytes bytes;             // as the framework sent them; kept
  const char *xla_flags;      // among them, "--name=value" with spaces between; NULL = none
  const vt_split *split;      // copied; NULL = runs whole
  bool exact_dots;            // DEFAULT precision is f32; also if VTPU_MATMUL_PRECISION is float32
} vt_executable_options;

// A parameter or result: the whole array, and each device's part of it.
typedef struct vt_io {
  vt_type type; // whole
  vt_type shard;
  bool replicated;        // every device holds all of it
  int32_t owner;          // position of the one device whose value counts; -1 = each device's
  const int64_t *offsets; // [partitions][rank], NULL when replicated
  // Several when devices hold different values under one sharding: each device has its part of one
  // partial, partial_of[device]; NULL = there is only one.
  int64_t partials;
  const int32_t *partial_of;
  bool unreduced;    // the array is the sum of the partials, or their maximum or minimum
  vt_bytes sharding; // OpSharding message
  vt_memory_kind memory;
  int64_t shard_bytes, shard_hbm_bytes;
  int32_t alias;      // parameter: result that may take its memory, else -1
  bool donated;       // parameter: the caller may not use it again
  const char *layout; // minor-to-major "{1,0}"
  bool custom_layout; // not the default
  // Of a program that is cut over processes: `type` is what the devices of this process hold
  // together, and offsets are within that; `cut`: it is not all of the array.
  bool within, cut;
} vt_io;

typedef struct vt_inspection {
  vt_bytes config;   // as in the program: the callback to notify
  vt_bytes sharding; // OpSharding message
} vt_inspection;

typedef struct vt_executable_info {
  const char *name;
  int32_t partitions; // all devices that run it: replicas times partitions of each
  int32_t replicas;
  const int32_t *device_ids; // [partitions], replica by replica
  uint32_t param_count, result_count;
  const vt_io *params, *results;
  uint64_t fingerprint;      // of program without locations, options and slice
  vt_bytes program, options; // as given
  vt_roofline roofline;
  int64_t argument_bytes, output_bytes, alias_bytes, temp_bytes, peak_bytes,
      code_bytes; // per device, HBM; temp and peak are lower bounds, the estimate is vt_hbm_use
  int64_t host_argument_bytes, host_output_bytes, host_temp_bytes; // per device
  // The values whose shardings the program asks to inspect.
  const struct vt_inspection *inspections;
  size_t inspection_count;
} vt_executable_info;

// An array in the HBM of one device. The op is of a module that the executable keeps.
typedef struct vt_hbm_entry {
  int64_t bytes; // padded
  vt_type type;
  const vt_op *op;    // that makes it; NULL = an argument or output
  const char *kind;   // "argument", "output" or "HLO temp"
  uint32_t index;     // of the argument or output
  const char *layout; // NULL = the default
  const vt_op *last;  // that reads a temporary; NULL = it lives to the end of its function
} vt_hbm_entry;
// An estimate of the HBM that a run takes on one device. Low where a compiler has a choice.
typedef struct vt_hbm_use {
  int64_t temp_bytes, peak_bytes;
  int64_t kept_bytes;     // the peak if nothing were computed twice to make the program fit
  int64_t unpadded_bytes; // of the temporaries
  uint32_t count;
  vt_hbm_entry *entries; // live at the peak, largest first
  int64_t fixed_bytes;   // arguments and results, there from start to end
  const vt_op *peak;     // of main, while which most is live; NULL = nothing but these
  // What else is live while each operator of main runs, if nothing is computed twice.
  uint32_t point_count;
  const struct vt_live_point *points;
} vt_hbm_use;

// errors INVALID_ARGUMENT: malformed program; UNIMPLEMENTED: op and place; RESOURCE_EXHAUSTED: more
// HBM than the core has, with the largest arrays
vt_status vt_executable_compile(const vt_slice *slice, vt_bytes program,
                                const vt_executable_options *options,
                                vt_executable **out_executable) VT_CHECKED;
vt_executable *vt_executable_retain(vt_executable *executable);
void vt_executable_release(vt_executable *executable); // accepts NULL
const vt_executable_info *vt_executable_get(const vt_executable *executable);
const vt_module *vt_executable_module(const vt_executable *executable);
const vt_slice *vt_executable_slice(const vt_executable *executable);
// The program as HLO (hlo/hlo.h): as text, or as `message`. Printed from scratch at each call.
vt_status vt_executable_hlo(vt_executable *executable, bool message, vt_text *out) VT_CHECKED;
// Borrowed. Made at the first call, from the program of one device; where that cannot be made, from
// the lower bound alone. errors RESOURCE_EXHAUSTED: of this machine
vt_status vt_executable_memory(vt_executable *executable, const vt_hbm_use **out_use) VT_CHECKED;
// The program that each device of a real slice of `devices` would run, without compiling it: HLO
// with local shapes and collectives, or as JSON its collectives (how often they run, and their
// bytes), local types, and what is live at the peak of the memory of one device. `passes` names
// those of passes/collectives.def that run on it; NULL = none: what the partitioner makes.
// errors INVALID_ARGUMENT: the program wants more devices; no such pass
vt_status vt_partitioned_text(vt_bytes program, const vt_slice *slice, bool json,
                              const char *passes, vt_text *out_text) VT_CHECKED;

// Host callbacks that serve one execution. `destroy` is called once, when the run is over.
typedef struct vt_transfer_calls {
  vt_host_transfer calls;
  void (*destroy)(void *user);
} vt_transfer_calls;

typedef struct vt_execution {
  vt_buffer *const *const *arguments; // [device position][parameter]
  vt_buffer **const *results;         // [device position][result], filled
  uint32_t argument_count;
  const bool *keep; // [parameter] true = not donated in this run; NULL = all as compiled
  const vt_transfer_calls *transfer; // NULL = none; taken, also on error
  // One-device programs, and one replica of several that have nothing to do with each other, on a
  // device of choice; NULL = as assigned.
  vt_device *device;
} vt_execution;
// Returns when the work is queued. The caller owns out_done; errors of the run complete it and the
// results.
// errors INVALID_ARGUMENT: wrong count, shape, place, deleted or twice donated argument;
// RESOURCE_EXHAUSTED
vt_status vt_executable_execute(vt_client *client, vt_executable *executable,
                                const vt_execution *execution, vt_event **out_done) VT_CHECKED;

// Called after each run on the thread that ran it; NULL = none. Times are CLOCK_REALTIME. `device`
// >= 0: the run was on that device alone, else on those of `info`.
typedef void (*vt_run_observer)(vt_executable *executable, int32_t device, int64_t start_ns,
                                int64_t end_ns);
void vt_run_observe(vt_run_observer observer);

// Copies `dims` elements between two strided arrays. Strides in bytes.
void vt_copy_strided(int32_t rank, const int64_t *dims, size_t element_bytes, void *dst,
                     const int64_t *dst_strides, const void *src, const int64_t *src_strides);

#endif
