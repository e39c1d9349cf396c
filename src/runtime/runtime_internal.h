// SPDX-License-Identifier: Apache-2.0
// runtime_internal.h - structures shared by the files of this folder.
#ifndef VT_RUNTIME_INTERNAL_H
#define VT_RUNTIME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "chip/memory.h"
#include "runtime/runtime.h"
#include "spmd/spmd.h"

// One host allocation with one whole array, or with several consecutive partials of it where
// devices hold different values under one sharding (docs/decisions/005). The data is immutable once
// `ready` is complete, except when a run takes it over for a donated argument's result, which
// requires that the run holds the only reference.
typedef struct vt_storage {
  atomic_int refs;
  uint64_t id;     // never reused by another storage
  atomic_bool out; // its address was exposed, so others may have written to it
  vt_event *ready; // complete with an error = poisoned
  void *data;      // NULL until created
  bool outside;    // becomes ready when the client or another process acts, not by a queued run
  uint64_t agreed; // equal numbers in several processes: equal arrays, whole in each; 0 = only here
  int64_t partials;
  vt_type type; // of one partial; dims follow the structure
  int64_t dims[];
} vt_storage;

// Retains the event; no data yet.
vt_storage *vt_storage_create(vt_type type, int64_t partials, vt_event *ready);
vt_storage *vt_storage_retain(vt_storage *storage);
void vt_storage_release(vt_storage *storage); // accepts NULL
vt_status vt_storage_allocate(vt_storage *storage,
                              bool zeroed) VT_CHECKED; // no-op when already allocated

// The rectangle [offset, offset + dims) of a partial of a storage, on a device.
struct vt_buffer {
  vt_client *client;
  vt_memory *memory;
  vt_storage *storage; // NULL = deleted; guarded by the client's lock
  vt_storage *pinned;  // held for external references
  int32_t pins;
  int64_t hbm_bytes;      // accounted while not deleted
  vt_buffer *prev, *next; // of the device's live buffers
  uint64_t stamp;         // of the last execution that donated it
  vt_dtype dtype;
  int32_t rank;
  int64_t partial;        // changes with the storage
  int64_t *dims, *offset; // after the structure
  char *layout;           // NULL = the default; owned
};

typedef struct vt_account {
  int64_t in_use, peak, allocs, largest;
  vt_buffer *live;
} vt_account;

typedef struct vt_meeting vt_meeting;
typedef struct vt_crossing vt_crossing;
typedef struct vt_launch vt_launch;
typedef struct vt_run_job vt_run_job;
typedef struct vt_job vt_job;
struct vt_job {
  vt_job *next;
  void (*run)(vt_job *job); // frees the job
};

typedef struct vt_executor {
  pthread_mutex_t mutex;
  pthread_cond_t work, idle, room;
  pthread_t thread;
  vt_job *first, *last;
  int32_t queued;
  bool started, busy, stopping;
} vt_executor;

struct vt_client {
  atomic_int refs;
  vt_slice slice;
  int32_t device_count;
  vt_device *devices;
  vt_account *accounts; // [device_count]; guarded by lock
  uint64_t stamp;       // number of executions; guarded by lock
  vt_meeting *meetings; // not complete; guarded by lock
  bool parted;          // its replicas no longer run programs that meet; guarded by lock
  atomic_bool closed;   // no more runs
  int32_t process, process_count, here_count; // devices of this process
  vt_split split;
  vt_crossing *crossing; // to other processes; NULL = there are none
  pthread_mutex_t lock;
  vt_executor executor;
};

void vt_client_retain(vt_client *client);
vt_status vt_client_set_split(vt_client *client) VT_CHECKED; // VTPU_SPLIT (cut.c)
void vt_client_release(vt_client *client);

void vt_executor_init(vt_executor *executor);
void vt_executor_fini(vt_executor *executor);
typedef enum vt_submit {
  VT_SUBMIT_INLINE, // runs it on the calling thread when nothing is queued or running
  VT_SUBMIT_WAIT,   // waits while the queue is full, as INLINE does
  VT_SUBMIT_QUEUE,  // never waits
} vt_submit;
vt_status vt_executor_submit(vt_executor *executor, vt_job *job, vt_submit how) VT_CHECKED;
void vt_executor_wait_for_room(vt_executor *executor); // of a full queue
void vt_executor_drain(vt_executor *executor);

// This process's page of base/activity.h; no-ops when no page is enabled.
void vt_activity_open(const vt_client *client);
uint64_t vt_activity_begin(void);                              // of a run; the time, 0 = no page
void vt_activity_end(uint64_t begun, double device_seconds);   // virtual time of the slice
uint64_t vt_activity_busy_ns(uint64_t now, bool *out_running); // up to now (CLOCK_MONOTONIC)
void vt_activity_hbm(int64_t bytes);                           // bytes taken; negative: returned
void vt_activity_hbm_refused(int64_t bytes);

// HBM account; the client's lock is held. Only device memory counts.
vt_status vt_hbm_fits(vt_client *client, vt_device *device,
                      int64_t bytes) VT_CHECKED; // counts for the peak
vt_status vt_hbm_take(vt_client *client, vt_device *device, int64_t bytes) VT_CHECKED;
void vt_hbm_put_size(vt_text *text, int64_t bytes); // "530.00M", as XLA's messages round
// One array in the list of such a message.
void vt_hbm_put_entry(vt_text *text, const vt_chip *chip, int number, const vt_hbm_entry *entry);
void vt_hbm_give(vt_client *client, vt_device *device, int64_t bytes);

// Byte offset of a rectangle of a partial from the start of the data.
int64_t vt_storage_at(const vt_storage *storage, int64_t partial, const int64_t *offset);

// A buffer over a rectangle of a storage (retained), with the text of a layout that is not the
// default. Neither accounted nor linked: vt_buffer_link links it, with the client's lock held and
// the bytes already taken. NULL: out of memory.
vt_buffer *vt_buffer_create(vt_memory *memory, vt_storage *storage, vt_type shard, int64_t partial,
                            const int64_t *offset, const char *layout, int64_t hbm_bytes);
void vt_buffer_link(vt_buffer *buffer);
void vt_buffer_free(vt_buffer *buffer); // for unlinked buffers; accepts NULL
// Accounts for and links a new buffer over all of `storage`; takes the storage reference.
vt_status vt_buffer_enter(vt_memory *memory, vt_storage *storage, const char *layout,
                          vt_buffer **out_buffer) VT_CHECKED;
// Marks deleted with the client's lock held; returns the storage reference the buffer held, for the
// caller to keep or release after unlocking.
vt_storage *vt_buffer_detach(vt_buffer *buffer);

struct vt_executable {
  atomic_int refs;
  vt_arena arena;
  vt_executable_info info;
  vt_slice slice;
  vt_tiling *param_tilings, *result_tilings; // NULL with one partition
  vt_program *program;
  struct vt_mkernels *kernels; // the code of its TPU kernels; may be NULL
  bool tiny;                   // worth running on the calling thread
  bool transfers;              // talks to host callbacks
  bool zeros;                  // every result is zero everywhere: nothing to run
  bool unexecuted;             // so it is here, as nobody wants its results
  bool manual;                 // has manual computations: devices may read their own values
  vt_executable_options options;
  vt_split split;
  int32_t parts; // that the program is cut into; 1 = it is whole
  int32_t part;  // the one that runs here, plus one; 0 = all do
  // By device, of a program cut into parts of which each runs the program of one device on its own;
  // NULL: on what they hold together.
  const int32_t *part_of;
  uint64_t compared; // by the processes of a run: the same in all
  uint64_t kind;     // of a program of replicas, which may be another one in each; else 0
  // Variants of the program for arguments that differ between devices where it takes one value:
  // compiled at first use, for each set of such parameters.
  const bool *own;             // of this one; NULL = none
  pthread_mutex_t others_lock; // also guards the rest
  vt_executable *others, *next_other;
  vt_executable *alone;  // for one of its replicas, once somebody has run one
  bool known_to_meet;    // its replicas cannot run alone
  vt_executable *unions; // with other programs, this one on the first replica; by next_other
  struct vt_predicted_program *predicted; // NULL: nobody asked (predicted.c)
  const char *described;                  // for vt_compiled_add
  vt_module *local; // what one device of a real slice would run, once somebody has asked
  vt_arena use_arena;
  vt_hbm_use *use; // of local
  vt_arena prediction_arena;
  struct vt_prediction *prediction; // NULL: nobody has asked yet
};

// compile.c, signature.c. `own`: see vt_executable_for_own; kept. Fills params and results of info.
vt_status vt_executable_compile_own(const vt_slice *slice, vt_bytes program,
                                    const vt_executable_options *options, const bool *own,
                                    vt_executable **out_executable) VT_CHECKED;
vt_status vt_executable_signature(vt_executable *executable, const vt_module *module) VT_CHECKED;
// `hash`: of the program. The devices and options that change results are added.
uint64_t vt_executable_fingerprint(const vt_executable *executable, uint64_t hash);
// The program for arguments of which `own` (by parameter) differ from device to device; borrowed,
// lives as long as `executable`.
vt_status vt_executable_for_own(vt_executable *executable, const bool *own,
                                vt_executable **out_other) VT_CHECKED;

// The program for one device, of several replicas that have nothing to do with each other; borrowed
// likewise. NULL: they have. errors INVALID_ARGUMENT: of several partitions, too
vt_status vt_executable_alone(vt_executable *executable, vt_executable **out_alone) VT_CHECKED;

// Different programs that replicas run at once. (united.c)
typedef struct vt_union {
  uint32_t count;
  int32_t replicas;
  const vt_bytes *programs;
  const uint32_t *program_of; // [replica]
  // [program][its parameter], [program][its result]: which one of the executable; known after
  // import.
  uint32_t **param_of, **result_of;
} vt_union;

// The executable for replica r with the program of each[r]; all are for the same devices. Borrowed,
// lives as long as each[0]. errors FAILED_PRECONDITION: they do not meet in the same collectives
vt_status vt_executable_unite(vt_executable *const *each, vt_executable **out_united) VT_CHECKED;
vt_status vt_union_import(const vt_union *all, vt_arena *arena, vt_module **out_module) VT_CHECKED;

// The row of this program in base/predictions.h, made now; NULL when nobody asks for predictions.
struct vt_predicted_program *vt_predicted_add(const vt_executable *executable);
// This process's clock in the same file; NULL likewise, and before the first such row.
struct vt_virtual_clock *vt_predicted_clock(void);

// The virtual clock (clock.c). A launch is a call that starts a program: when it came, and that it
// returned.
typedef struct vt_clock_time {
  uint64_t wall_ns, thread_ns, busy_ns; // busy: of programs that run here
  bool running;                         // one of them does now
} vt_clock_time;
vt_clock_time vt_clock_now(void);
void vt_clock_launch(const vt_executable *executable, const vt_clock_time *came);
void vt_clock_compiled(void); // what lies between two launches was setting up

// One line for each compilation in the folder that VTPU_COMPILED names, for those who want to know
// what was compiled again and why (compiled.c).
const char *vt_compiled_describe(const vt_module *module, vt_arena *arena); // NULL: nobody asks
void vt_compiled_add(const vt_executable *executable, uint64_t ns);

// One replica of such a program comes, on the device of the execution. (meeting.c)
vt_status vt_meeting_come(vt_client *client, vt_executable *executable,
                          const vt_execution *execution, vt_event **out_done) VT_CHECKED;
void vt_meetings_cancel(vt_client *client); // of a client that is being closed

// Runs over several processes (crossing.c). Takes the peers.
struct vt_peers;
vt_status vt_crossing_open(vt_client *client, struct vt_peers *peers) VT_CHECKED;
void vt_crossing_finish(vt_client *client); // waits until the runs that have begun are over
void vt_crossing_close(vt_client *client);
// Whether the devices' parts of this parameter are different ones: then a process needs others'.
bool vt_io_crosses(const vt_io *io);
// With the client's lock held: the next run of these processes. `job` is borrowed until the launch
// hands it on with vt_run_job_go. errors UNAVAILABLE: one of the processes is gone
vt_status vt_launch_create(vt_client *client, vt_run_job *job, vt_launch **out_launch) VT_CHECKED;
void vt_launch_abandon(vt_launch *launch); // not started; its number is as if it had never been
uint64_t vt_launch_agreed(const vt_launch *launch, uint64_t slot); // for vt_storage
void vt_launch_start(vt_launch *launch);
void vt_launch_release(vt_launch *launch); // of the job; accepts NULL
// The host callbacks of a run: those of our devices are called here, the answers go to the others.
// `inner` NULL = this process was given none.
typedef struct vt_crossing_calls {
  vt_launch *launch;
  const vt_host_transfer *inner;
} vt_crossing_calls;
vt_host_transfer vt_launch_calls(vt_crossing_calls *calls);
// The collectives of a program that is cut over processes. `calls` lives in `out`.
typedef struct vt_crossing_meetings {
  vt_meetings calls;
  vt_launch *launch;
  uint64_t *met;                  // [process] how often in this run
  struct vt_block *held;          // of the last meeting
  const struct vt_lanes **pinned; // [process] whose oldest piece is of the last meeting
  int32_t pinned_count;
  struct vt_exchange *with; // [process] room for a meeting
  int32_t *from;
  uint64_t *numbers;
} vt_crossing_meetings;
vt_status vt_launch_meetings(vt_launch *launch, vt_crossing_meetings *out) VT_CHECKED;
void vt_launch_meetings_end(vt_crossing_meetings *meetings);
// The run is over; with an error, others that wait for an answer or a block learn it.
void vt_launch_over(vt_launch *launch, vt_status error);

// Reads "{0,1}" or "{0,1:T(8,128)}" as a permutation of the dimensions, minor to major.
bool vt_layout_read(const char *text, int32_t rank, int32_t *out_order);
bool vt_layout_is_default(const vt_chip *chip, vt_memory_kind kind, vt_type type,
                          const char *layout);
// The bytes an array counts in HBM; NULL layout = the default; 0 in other memories.
int64_t vt_layout_bytes(const vt_chip *chip, vt_memory_kind kind, vt_type type, const char *layout);

// Fills shard, offsets, replicated and sharding of a program over several devices.
vt_status vt_io_partition(vt_executable *executable, const vt_module *module, vt_io *params,
                          vt_io *results) VT_CHECKED;
// Represents values that differ between devices in the module, and fills partials.
vt_status vt_io_expand_partials(vt_executable *executable, vt_module *module) VT_CHECKED;
// Replaces the module by its part for this process, where that can be. (cut.c) errors
// RESOURCE_EXHAUSTED
vt_status vt_executable_cut(vt_executable *executable, vt_module **module) VT_CHECKED;
void vt_split_copy(const vt_split *split, int32_t device_count, vt_arena *arena, vt_split *out);
// Fills the memory figures. errors RESOURCE_EXHAUSTED with the largest arrays
vt_status vt_executable_account(vt_executable *executable, vt_module *module) VT_CHECKED;
// The same for the program of one device, and the estimate with it, in `arena`.
vt_status vt_executable_account_local(vt_executable *executable, vt_func *main, vt_arena *arena,
                                      vt_hbm_use *out_use) VT_CHECKED;
// The devices among which the work of its module is divided.
static inline int32_t vt_executable_share(const vt_executable *executable) {
  int32_t parts = executable->part && !executable->part_of ? executable->parts : 1;
  return executable->info.partitions / parts;
}
void vt_executable_sums(vt_executable_info *info); // of arguments, results and what they share
// The estimate for the program of one device, in `arena`; NULL = that is not known, only the least.
void vt_hbm_use_of(const vt_executable *executable, vt_func *main, vt_arena *arena,
                   vt_hbm_use *out_use);
// The error of a program that needs more than the core has. (hbm_report.c)
vt_status vt_hbm_refuse(const vt_executable *executable, const vt_least *least,
                        const vt_hbm_use *use) VT_CHECKED;
void vt_hbm_log(const vt_executable *executable, const vt_hbm_use *use); // with VTPU_LOG=debug
void vt_hbm_put_json(vt_text *text, const vt_chip *chip, const vt_hbm_use *use);

// Makes `local` of the executable, once: the program of one device, as imported, partitioned, and
// after the passes over its collectives. The caller holds others_lock, or is its compilation.
// errors of the partitioner
vt_status vt_executable_local(vt_executable *executable) VT_CHECKED;
// Turns a module as imported, for all its partitions and replicas, into the program of one device.
vt_status vt_partition_module(vt_module *module, const vt_partition_options *options) VT_CHECKED;
// The same for a module that vt_spmd_from_replicas has been through.
vt_status vt_partition_for(vt_module *module, int32_t devices,
                           const vt_partition_options *options) VT_CHECKED;
// The passes over its collectives that XLA runs, but those that flags switch off.
vt_status vt_executable_collectives(const vt_executable *executable, vt_module *module) VT_CHECKED;

#endif
