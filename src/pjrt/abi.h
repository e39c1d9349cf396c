// SPDX-License-Identifier: Apache-2.0
// abi.h - the binary interface between a framework and a PJRT plugin, version 0.112: our own
// declarations of its structure layouts, enumeration values and the order of the function table
// (pjrt_slots.def).
//
// A caller sets struct_size of what it passes, but some callers leave it (and other fields) unset,
// so it is read only where a structure grew at its end. Strings are pointer and size. What a call
// returns lives as long as the object it was called on. All sizes are asserted below for 64-bit
// machines.
#ifndef VT_PJRT_ABI_H
#define VT_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJRT_MAJOR = 0, PJRT_MINOR = 112, PJRT_SLOTS = 138 };

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_CopyToDeviceStream PJRT_CopyToDeviceStream;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_SerializedTopology PJRT_SerializedTopology;
typedef struct PJRT_SerializedCompileOptions PJRT_SerializedCompileOptions;
typedef struct PJRT_DeviceAssignmentSerialized PJRT_DeviceAssignmentSerialized;
typedef struct PJRT_Device_Attributes PJRT_Device_Attributes;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;
typedef struct PJRT_AsyncTrackingEvent PJRT_AsyncTrackingEvent;
typedef struct PJRT_AsyncHostToDeviceTransferManager PJRT_AsyncHostToDeviceTransferManager;
typedef struct PJRT_FulfillAliasBufferCallback PJRT_FulfillAliasBufferCallback;
typedef struct PJRT_MultiSlice_Config PJRT_MultiSlice_Config;

#define ABI_SIZE(type, last, bytes)                                                                \
  _Static_assert(offsetof(type, last) + sizeof(((type *)0)->last) == (bytes), #type)

typedef struct PJRT_Extension_Base {
  size_t struct_size;
  int type;
  struct PJRT_Extension_Base *next;
} PJRT_Extension_Base;
ABI_SIZE(PJRT_Extension_Base, next, 24);

enum {
  PJRT_EXTENSION_PROFILER = 1,
  PJRT_EXTENSION_LAYOUTS = 4,
  PJRT_EXTENSION_MEMORY_DESCRIPTIONS = 6,
  PJRT_EXTENSION_CROSS_HOST_TRANSFERS = 12,
  PJRT_EXTENSION_SHARDINGS = 19
};

typedef struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  struct {
    size_t struct_size;
    PJRT_Extension_Base *extension_start;
    int major, minor;
  } version;
  void (*slots[PJRT_SLOTS])(void);
} PJRT_Api;
ABI_SIZE(PJRT_Api, slots, 1144);
_Static_assert(offsetof(PJRT_Api, version.minor) == 0x24 && offsetof(PJRT_Api, slots) == 0x28,
               "PJRT_Api");

enum {
  PJRT_VALUE_STRING,
  PJRT_VALUE_INT64,
  PJRT_VALUE_INT64_LIST,
  PJRT_VALUE_FLOAT,
  PJRT_VALUE_BOOL
};
typedef struct PJRT_NamedValue {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  const char *name;
  size_t name_size;
  int type;
  union {
    const char *string;
    int64_t int64;
    const int64_t *int64_list;
    float f32;
    bool boolean;
  };
  size_t value_size; // size of a string or list, else 1
} PJRT_NamedValue;
ABI_SIZE(PJRT_NamedValue, value_size, 56);

typedef struct PJRT_Program {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  char *code;
  size_t code_size;
  const char *format;
  size_t format_size;
} PJRT_Program;
ABI_SIZE(PJRT_Program, format_size, 48);

enum { PJRT_LAYOUT_TILED, PJRT_LAYOUT_STRIDES };
typedef struct PJRT_Buffer_MemoryLayout {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  union {
    struct {
      size_t struct_size;
      PJRT_Extension_Base *extension_start;
      const int64_t *minor_to_major;
      size_t minor_to_major_size;
      const int64_t *tile_dims;
      const size_t *tile_dim_sizes;
      size_t num_tiles;
    } tiled;
    struct {
      size_t struct_size;
      PJRT_Extension_Base *extension_start;
      const int64_t *byte_strides;
      size_t num_byte_strides;
    } strides;
  };
  int type;
} PJRT_Buffer_MemoryLayout;
_Static_assert(sizeof(PJRT_Buffer_MemoryLayout) == 80, "PJRT_Buffer_MemoryLayout");

enum {
  PJRT_HOST_IMMUTABLE_DURING_CALL,
  PJRT_HOST_IMMUTABLE_UNTIL_TRANSFER,
  PJRT_HOST_IMMUTABLE_ZERO_COPY,
  PJRT_HOST_MUTABLE_ZERO_COPY
};

typedef PJRT_Error *(*PJRT_CallbackError)(int code, const char *message, size_t message_size);
typedef struct PJRT_Chunk {
  void *data;
  size_t size;
  void (*deleter)(void *data, void *deleter_arg);
  void *deleter_arg;
} PJRT_Chunk;
ABI_SIZE(PJRT_Chunk, deleter_arg, 32);
typedef struct PJRT_SendCallbackInfo {
  int64_t channel_id;
  void *user_arg;
  PJRT_Error *(*send)(PJRT_Chunk *chunk, PJRT_CallbackError *callback_error, size_t total_size,
                      bool done, void *user_arg);
} PJRT_SendCallbackInfo;
ABI_SIZE(PJRT_SendCallbackInfo, send, 24);
typedef struct PJRT_RecvCallbackInfo {
  int64_t channel_id;
  void *user_arg;
  void (*recv)(PJRT_CopyToDeviceStream *stream, void *user_arg);
} PJRT_RecvCallbackInfo;
ABI_SIZE(PJRT_RecvCallbackInfo, recv, 24);

typedef struct PJRT_ExecuteOptions {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  PJRT_SendCallbackInfo **send_callbacks; // [device][num_send_ops]
  PJRT_RecvCallbackInfo **recv_callbacks;
  size_t num_send_ops, num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  PJRT_ExecuteContext *context;
  const char *call_location;
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
  PJRT_MultiSlice_Config *multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void *output_callbacks;
  size_t num_output_callbacks;
} PJRT_ExecuteOptions;
ABI_SIZE(PJRT_ExecuteOptions, num_output_callbacks, 144);

typedef struct PJRT_LogicalDeviceIds {
  int replica, partition;
} PJRT_LogicalDeviceIds;
typedef struct PJRT_LoadOptions {
  size_t struct_size;
  const int32_t *computation_origin;
  size_t computation_origin_size;
  PJRT_MultiSlice_Config *multi_slice_config;
} PJRT_LoadOptions;
ABI_SIZE(PJRT_LoadOptions, multi_slice_config, 32);
typedef struct PJRT_ShapeSpec {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  const int64_t *dims;
  size_t num_dims;
  int element_type;
} PJRT_ShapeSpec;
ABI_SIZE(PJRT_ShapeSpec, element_type, 36);
typedef struct PJRT_ProcessInfo {
  size_t struct_size;
  int task_id;
  uint64_t incarnation_id;
  int state, error_code;
  const char *error_message;
  size_t error_message_size;
} PJRT_ProcessInfo;
ABI_SIZE(PJRT_ProcessInfo, error_message_size, 48);

// How the client announces a raw copy's destination, and a donation's dependency.
typedef struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args {
  size_t struct_size;
  void *callback_data;
  int error_code;
  const char *error_message;
  size_t error_message_size;
  void *dst;
} PJRT_Buffer_CopyRawToHostFuture_Callback_Args;
ABI_SIZE(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, dst, 48);
typedef struct PJRT_Buffer_DonateWithControlDependency_Callback_Args {
  size_t struct_size;
  void *callback_data;
  int error_code;
  const char *error_message;
  size_t error_message_size;
} PJRT_Buffer_DonateWithControlDependency_Callback_Args;
ABI_SIZE(PJRT_Buffer_DonateWithControlDependency_Callback_Args, error_message_size, 40);

// Key-value store of a distributed job; we only call through the caller's opaque struct.
typedef struct PJRT_KeyValueGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  const char *key;
  size_t key_size;
  int timeout_in_ms;
  PJRT_CallbackError *callback_error;
  void *user_arg;
  char *value; // out, as the rest
  size_t value_size;
  void (*value_deleter_callback)(char *value);
} PJRT_KeyValueGetCallback_Args;
ABI_SIZE(PJRT_KeyValueGetCallback_Args, value_deleter_callback, 80);
typedef struct PJRT_KeyValuePutCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  const char *key;
  size_t key_size;
  const char *value;
  size_t value_size;
  PJRT_CallbackError *callback_error;
  void *user_arg;
} PJRT_KeyValuePutCallback_Args;
ABI_SIZE(PJRT_KeyValuePutCallback_Args, user_arg, 64);
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(void *args);
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args *args);
typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg); // takes the error
typedef void (*PJRT_Error_PayloadVisitor)(const char *key, size_t key_size, const char *value,
                                          size_t value_size, void *user_arg);

// The first word of a memory: a table with slots for the client's own data (the functions may be
// NULL).
typedef struct PJRT_Memory_Table {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  size_t instance_size;
  void *(*get_user_data)(PJRT_Memory *memory, const void *key);
  void (*set_user_data)(PJRT_Memory *memory, const void *key, void *data,
                        void (*destroy)(void *data));
} PJRT_Memory_Table;
ABI_SIZE(PJRT_Memory_Table, set_user_data, 40);

// Argument structures: PJRT_NAME_Args for each row of the table.
#define SLOT(state, slot, name, bytes, last, ...)                                                  \
  typedef struct PJRT_##name##_Args {                                                              \
    size_t struct_size;                                                                            \
    PJRT_Extension_Base *extension_start;                                                          \
    __VA_ARGS__                                                                                    \
  } PJRT_##name##_Args;                                                                            \
  ABI_SIZE(PJRT_##name##_Args, last, bytes);
#include "pjrt/pjrt_slots.def"
#undef SLOT

// Extension Layouts. A serialised layout is text: "{1,0:T(8,128)}".
typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
#define EXTENSION_ARGS(name, bytes, last, ...)                                                     \
  typedef struct PJRT_##name##_Args {                                                              \
    size_t struct_size;                                                                            \
    PJRT_Extension_Base *extension_start;                                                          \
    __VA_ARGS__                                                                                    \
  } PJRT_##name##_Args;                                                                            \
  ABI_SIZE(PJRT_##name##_Args, last, bytes)
EXTENSION_ARGS(Layouts_MemoryLayout_Destroy, 24, layout, PJRT_Layouts_MemoryLayout *layout;);
EXTENSION_ARGS(Layouts_MemoryLayout_Serialize, 56, deleter, PJRT_Layouts_MemoryLayout *layout;
               const char *bytes; size_t size; PJRT_Layouts_SerializedLayout * owner;
               void (*deleter)(PJRT_Layouts_SerializedLayout *owner););
EXTENSION_ARGS(Layouts_Client_GetDefaultLayout, 56, layout, PJRT_Client *client; int type;
               const int64_t *dims; size_t num_dims; PJRT_Layouts_MemoryLayout * layout;);
EXTENSION_ARGS(Layouts_Buffer_MemoryLayout, 32, layout, PJRT_Buffer *buffer;
               PJRT_Layouts_MemoryLayout * layout;);
EXTENSION_ARGS(Layouts_Topology_GetDefaultLayout, 56, layout, PJRT_TopologyDescription *topology;
               int type; const int64_t *dims; size_t num_dims; PJRT_Layouts_MemoryLayout * layout;);
EXTENSION_ARGS(Layouts_Executable_Layouts, 40, layouts, PJRT_Executable *executable; size_t count;
               PJRT_Layouts_MemoryLayout * *layouts;);
typedef struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*layout_destroy)(PJRT_Layouts_MemoryLayout_Destroy_Args *args);
  PJRT_Error *(*layout_serialize)(PJRT_Layouts_MemoryLayout_Serialize_Args *args);
  PJRT_Error *(*client_default)(PJRT_Layouts_Client_GetDefaultLayout_Args *args);
  PJRT_Error *(*buffer_layout)(PJRT_Layouts_Buffer_MemoryLayout_Args *args);
  PJRT_Error *(*topology_default)(PJRT_Layouts_Topology_GetDefaultLayout_Args *args);
  PJRT_Error *(*output_layouts)(PJRT_Layouts_Executable_Layouts_Args *args);
  PJRT_Error *(*parameter_layouts)(PJRT_Layouts_Executable_Layouts_Args *args);
} PJRT_Layouts_Extension;

// Extension Shardings: serialised OpSharding messages, NULL = nothing known.
EXTENSION_ARGS(Shardings_Executable, 48, sizes, PJRT_Executable *executable; size_t count;
               const char *const *shardings; const size_t *sizes;);
typedef struct PJRT_Shardings_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*parameter_shardings)(PJRT_Shardings_Executable_Args *args);
  PJRT_Error *(*output_shardings)(PJRT_Shardings_Executable_Args *args);
} PJRT_Shardings_Extension;

// Extension MemoryDescriptions: the memories of a device that exists only as a description.
typedef struct PJRT_MemoryDescription PJRT_MemoryDescription;
EXTENSION_ARGS(DeviceDescription_MemoryDescriptions, 48, default_index,
               PJRT_DeviceDescription *device;
               const PJRT_MemoryDescription *const *memories; size_t count; size_t default_index;);
EXTENSION_ARGS(MemoryDescription_Kind, 44, kind_id, const PJRT_MemoryDescription *memory;
               const char *kind; size_t kind_size; int kind_id;);
typedef struct PJRT_MemoryDescriptions_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*device_memories)(PJRT_DeviceDescription_MemoryDescriptions_Args *args);
  PJRT_Error *(*memory_kind)(PJRT_MemoryDescription_Kind_Args *args);
} PJRT_MemoryDescriptions_Extension;

// Extension CrossHostTransfers. Later versions append fields. The first two functions are of an
// older way to do the same.
EXTENSION_ARGS(CrossHost_Send, 64, sent, PJRT_Client *client; size_t count; PJRT_Buffer * *buffers;
               const int *device_ids; const int64_t *keys; PJRT_Event * *sent;);
EXTENSION_ARGS(CrossHost_Receive, 96, buffers, PJRT_Client *client; size_t count;
               const size_t *num_dims; const int64_t *const *dims; const int *types;
               PJRT_Buffer_MemoryLayout * *layouts; PJRT_Device * device; const int *device_ids;
               const int64_t *keys; PJRT_Buffer * *buffers;);
EXTENSION_ARGS(CrossHost_CopyToRemoteDevice, 64, done, PJRT_Buffer *buffer; PJRT_Event * event;
               char **descriptor; size_t *descriptor_size; void *user;
               void (*done)(PJRT_Error *error, bool enqueued, void *user););
typedef struct PJRT_CrossHostTransfers_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*make_receive_buffers)(void *args);
  void (*copy_to_remote_device)(PJRT_CrossHost_CopyToRemoteDevice_Args *args);
  PJRT_Error *(*receive)(PJRT_CrossHost_Receive_Args *args);
  PJRT_Error *(*send)(PJRT_CrossHost_Send_Args *args);
} PJRT_CrossHostTransfers_Extension;
ABI_SIZE(PJRT_CrossHostTransfers_Extension, send, 56);

// Extension Profiler. Its errors are PJRT_Errors here; the argument structures of the first three
// functions have a pointer where those of the table have their extension.
typedef struct PLUGIN_Profiler PLUGIN_Profiler;
typedef struct PLUGIN_Profiler_Create_Args {
  size_t struct_size;
  const char *options;
  size_t options_size;
  PLUGIN_Profiler *profiler;
} PLUGIN_Profiler_Create_Args;
ABI_SIZE(PLUGIN_Profiler_Create_Args, profiler, 32);
typedef struct PLUGIN_Profiler_Args { // of destroy, start and stop
  size_t struct_size;
  PLUGIN_Profiler *profiler;
} PLUGIN_Profiler_Args;
ABI_SIZE(PLUGIN_Profiler_Args, profiler, 16);
typedef struct PLUGIN_Profiler_CollectData_Args {
  size_t struct_size;
  PLUGIN_Profiler *profiler;
  uint8_t *buffer;
  size_t buffer_size_in_bytes;
} PLUGIN_Profiler_CollectData_Args;
ABI_SIZE(PLUGIN_Profiler_CollectData_Args, buffer_size_in_bytes, 32);
typedef struct PLUGIN_Profiler_Api {
  size_t struct_size;
  void *priv;
  void (*error_destroy)(PJRT_Error_Destroy_Args *args);
  void (*error_message)(PJRT_Error_Message_Args *args);
  PJRT_Error *(*error_get_code)(PJRT_Error_GetCode_Args *args);
  PJRT_Error *(*create)(PLUGIN_Profiler_Create_Args *args);
  PJRT_Error *(*destroy)(PLUGIN_Profiler_Args *args);
  PJRT_Error *(*start)(PLUGIN_Profiler_Args *args);
  PJRT_Error *(*stop)(PLUGIN_Profiler_Args *args);
  PJRT_Error *(*collect_data)(PLUGIN_Profiler_CollectData_Args *args);
} PLUGIN_Profiler_Api;
ABI_SIZE(PLUGIN_Profiler_Api, collect_data, 80);
typedef struct PJRT_Profiler_Extension {
  PJRT_Extension_Base base;
  PLUGIN_Profiler_Api *api;
  int64_t traceme_context_id;
} PJRT_Profiler_Extension;
ABI_SIZE(PJRT_Profiler_Extension, traceme_context_id, 40);

#endif
