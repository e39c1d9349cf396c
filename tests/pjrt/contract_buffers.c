// SPDX-License-Identifier: Apache-2.0
// contract_buffers.c - host arrays to buffers and back: types, strides, layouts, semantics, copies,
// deletion.
#include "contract.h"

#include <string.h>

#include "ir/type.h"

static PJRT_Client_BufferFromHostBuffer_Args from_host(int type, size_t rank, const int64_t *dims,
                                                       const void *data) {
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = CLIENT;
  a.data = data;
  a.type = type;
  a.dims = dims;
  a.num_dims = rank;
  a.host_buffer_semantics = PJRT_HOST_IMMUTABLE_DURING_CALL;
  a.device = plugin_device(P, CLIENT, 0);
  return a;
}

static void expect(PJRT_Buffer *buffer, const void *want, size_t size) {
  char back[4096];
  assert_true(size <= sizeof back);
  plugin_fetch(P, buffer, back, size);
  if (size) assert_memory_equal(back, want, size);
}

// Every element type whose elements are whole bytes survives the round trip, at any rank.
static void every_byte_sized_type_comes_back_as_it_went(void **state) {
  (void)state;
  static const int types[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
  char data[24 * 16];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7 % 2);
  const int64_t dims[6] = {2, 3, 1, 2, 1, 2};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t rank = 0; rank <= 6; rank++) {
      size_t bytes = vt_dtype_bytes((vt_dtype)types[t]);
      int64_t count = 1;
      for (size_t d = 0; d < rank; d++) count *= dims[d];
      PJRT_Buffer *b =
          plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), types[t], rank, dims, data);
      ARGS(Buffer_ElementType, type);
      type.buffer = b;
      plugin_ok(P, SLOT_Buffer_ElementType, &type);
      assert_int_equal(type.type, types[t]);
      ARGS(Buffer_Dimensions, shape);
      shape.buffer = b;
      plugin_ok(P, SLOT_Buffer_Dimensions, &shape);
      assert_int_equal(shape.num_dims, rank);
      if (rank) assert_memory_equal(shape.dims, dims, rank * sizeof *dims);
      ARGS(Buffer_UnpaddedDimensions, unpadded);
      unpadded.buffer = b;
      plugin_ok(P, SLOT_Buffer_UnpaddedDimensions, &unpadded);
      assert_int_equal(unpadded.num_dims, rank);
      ARGS(Buffer_DynamicDimensionIndices, dynamic);
      dynamic.buffer = b;
      plugin_ok(P, SLOT_Buffer_DynamicDimensionIndices, &dynamic);
      assert_int_equal(dynamic.num_dynamic_dims, 0);
      ARGS(Buffer_OnDeviceSizeInBytes, size);
      size.buffer = b;
      plugin_ok(P, SLOT_Buffer_OnDeviceSizeInBytes, &size);
      assert_int_equal(size.on_device_size_in_bytes, (size_t)count * bytes);
      expect(b, data, (size_t)count * bytes);
      plugin_buffer_destroy(P, b);
    }
}

// Sub-byte types take one byte per element on the host.
static void narrow_types_take_a_byte_each_on_the_host(void **state) {
  (void)state;
  const int8_t data[5] = {-8, -1, 0, 3, 7};
  const uint8_t unsigned_data[5] = {15, 1, 0, 3, 7};
  const int64_t five[1] = {5};
  int8_t back[5];
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 21, 1, five, data);
  plugin_fetch(P, b, back, sizeof back);
  for (int i = 0; i < 5; i++) assert_int_equal((back[i] & 15), (data[i] & 15));
  plugin_buffer_destroy(P, b);
  b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 22, 1, five, unsigned_data);
  plugin_fetch(P, b, back, sizeof back);
  for (int i = 0; i < 5; i++) assert_int_equal((back[i] & 15), unsigned_data[i]);
  plugin_buffer_destroy(P, b);
}

static void empty_arrays_are_buffers(void **state) {
  (void)state;
  const int64_t dims[3] = {2, 0, 3};
  float nothing;
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 11, 3, dims, &nothing);
  ARGS(Buffer_ToHostBuffer, host);
  host.src = b;
  plugin_ok(P, SLOT_Buffer_ToHostBuffer, &host);
  assert_int_equal(host.dst_size, 0);
  expect(b, NULL, 0);
  plugin_buffer_destroy(P, b);
}

static void strided(const int32_t *data, const int64_t *dims, const int64_t *strides,
                    const int32_t *want) {
  PJRT_Client_BufferFromHostBuffer_Args a = from_host(4, 2, dims, data);
  a.byte_strides = strides;
  a.num_byte_strides = 2;
  plugin_ok(P, SLOT_Client_BufferFromHostBuffer, &a);
  assert_null(plugin_await(P, a.done_with_host_buffer));
  expect(a.buffer, want, (size_t)(dims[0] * dims[1]) * 4);
  plugin_buffer_destroy(P, a.buffer);
}

static void host_strides_are_followed(void **state) {
  (void)state;
  const int32_t data[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const int64_t dims[2] = {2, 3};
  strided(data, dims, (int64_t[]){12, 4}, (int32_t[]){1, 2, 3, 4, 5, 6});       // row-major
  strided(data, dims, (int64_t[]){4, 8}, (int32_t[]){1, 3, 5, 2, 4, 6});        // column-major
  strided(data, dims, (int64_t[]){24, 8}, (int32_t[]){1, 3, 5, 7, 9, 11});      // every other one
  strided(data, dims, (int64_t[]){0, 4}, (int32_t[]){1, 2, 3, 1, 2, 3});        // a row repeated
  strided(data + 5, dims, (int64_t[]){-12, -4}, (int32_t[]){6, 5, 4, 3, 2, 1}); // backwards
}

// What the caller may do with its array, for each of the promises it can give.
static void host_buffer_promises_are_kept(void **state) {
  (void)state;
  const int64_t dims[1] = {1024};
  _Alignas(64) static int32_t data[1024];
  static int32_t back[1024];
  for (int semantics = PJRT_HOST_IMMUTABLE_DURING_CALL; semantics <= PJRT_HOST_IMMUTABLE_ZERO_COPY;
       semantics++) {
    for (int i = 0; i < 1024; i++) data[i] = i;
    PJRT_Client_BufferFromHostBuffer_Args a = from_host(4, 1, dims, data);
    a.host_buffer_semantics = semantics;
    plugin_ok(P, SLOT_Client_BufferFromHostBuffer, &a);
    if (semantics == PJRT_HOST_IMMUTABLE_DURING_CALL) data[5] = -1; // at once
    if (semantics == PJRT_HOST_IMMUTABLE_UNTIL_TRANSFER) {
      assert_null(plugin_await(P, a.done_with_host_buffer));
      data[5] = -1;
    }
    plugin_fetch(P, a.buffer, back, sizeof back);
    for (int i = 0; i < 1024; i++) assert_int_equal(back[i], i);
    plugin_buffer_destroy(P, a.buffer); // a plugin without a copy releases the array only now
    if (semantics != PJRT_HOST_IMMUTABLE_UNTIL_TRANSFER)
      assert_null(plugin_await(P, a.done_with_host_buffer));
  }
}

static void impossible_host_arrays_are_refused(void **state) {
  (void)state;
  const int64_t negative[1] = {-1};
  float x = 0;
  PJRT_Client_BufferFromHostBuffer_Args a = from_host(11, 1, negative, &x);
  plugin_fails(P, SLOT_Client_BufferFromHostBuffer, &a, 3, NULL);
}

static void buffers_are_made_in_the_memory_asked_for(void **state) {
  (void)state;
  const int64_t dims[1] = {3};
  const int32_t data[3] = {1, 2, 3};
  ARGS(Device_DefaultMemory, home);
  home.device = plugin_device(P, CLIENT, 5);
  plugin_ok(P, SLOT_Device_DefaultMemory, &home);
  PJRT_Client_BufferFromHostBuffer_Args a = from_host(4, 1, dims, data);
  a.device = NULL;
  a.memory = home.memory;
  plugin_ok(P, SLOT_Client_BufferFromHostBuffer, &a);
  assert_null(plugin_await(P, a.done_with_host_buffer));
  ARGS(Buffer_Device, device);
  device.buffer = a.buffer;
  plugin_ok(P, SLOT_Buffer_Device, &device);
  assert_ptr_equal(device.device, home.device);
  ARGS(Buffer_Memory, memory);
  memory.buffer = a.buffer;
  plugin_ok(P, SLOT_Buffer_Memory, &memory);
  assert_ptr_equal(memory.memory, home.memory);
  plugin_buffer_destroy(P, a.buffer);
}

static void buffers_come_to_the_host_whole(void **state) {
  (void)state;
  const int64_t dims[2] = {2, 3};
  const int32_t data[6] = {1, 2, 3, 4, 5, 6};
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 4, 2, dims, data);
  int32_t back[8] = {0, 0, 0, 0, 0, 0, -7, -7};
  ARGS(Buffer_ToHostBuffer, host);
  host.src = b;
  plugin_ok(P, SLOT_Buffer_ToHostBuffer, &host); // asks for the required size
  assert_int_equal(host.dst_size, 24);
  host.dst = back;
  host.dst_size = 23;
  plugin_fails(P, SLOT_Buffer_ToHostBuffer, &host, 3, NULL);
  host.dst_size = sizeof back; // excess space is left alone
  plugin_ok(P, SLOT_Buffer_ToHostBuffer, &host);
  assert_null(plugin_await(P, host.event));
  assert_memory_equal(back, data, sizeof data);
  assert_int_equal(back[6], -7);
  ARGS(Buffer_GetMemoryLayout, own);
  own.buffer = b;
  plugin_ok(P, SLOT_Buffer_GetMemoryLayout, &own);
  assert_int_equal(own.layout.type, PJRT_LAYOUT_TILED);
  assert_int_equal(own.layout.tiled.minor_to_major_size, 2);
  assert_int_equal(own.layout.tiled.minor_to_major[0], 1);
  plugin_buffer_destroy(P, b);
}

static void raw_bytes_are_read_by_offset(void **state) {
  (void)state;
  const int64_t dims[1] = {6};
  const int32_t data[6] = {1, 2, 3, 4, 5, 6};
  int32_t back[6] = {0};
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 4, 1, dims, data);
  ARGS(Buffer_ReadyEvent, ready);
  ready.buffer = b;
  plugin_ok(P, SLOT_Buffer_ReadyEvent, &ready);
  assert_null(plugin_await(P, ready.event));
  ARGS(Buffer_CopyRawToHost, raw);
  raw.buffer = b;
  raw.dst = back;
  raw.offset = 8;
  raw.transfer_size = 12;
  plugin_ok(P, SLOT_Buffer_CopyRawToHost, &raw);
  assert_null(plugin_await(P, raw.event));
  assert_memory_equal(back, data + 2, 12);
  ARGS(Buffer_UnsafePointer, pointer);
  pointer.buffer = b;
  plugin_ok(P, SLOT_Buffer_UnsafePointer, &pointer);
  assert_true(pointer.buffer_pointer != 0);
  ARGS(Buffer_OpaqueDeviceMemoryDataPointer, opaque);
  opaque.buffer = b;
  plugin_ok(P, SLOT_Buffer_OpaqueDeviceMemoryDataPointer, &opaque);
  assert_ptr_equal(opaque.device_memory_ptr, (void *)pointer.buffer_pointer);
  ARGS(Buffer_IncreaseExternalReferenceCount, more);
  more.buffer = b;
  plugin_ok(P, SLOT_Buffer_IncreaseExternalReferenceCount, &more);
  ARGS(Buffer_DecreaseExternalReferenceCount, less);
  less.buffer = b;
  plugin_ok(P, SLOT_Buffer_DecreaseExternalReferenceCount, &less);
  PJRT_Error *error = plugin_call(P, SLOT_Buffer_DecreaseExternalReferenceCount, &less);
  assert_non_null(error); // one too many
  ARGS(Error_Destroy, destroy);
  destroy.error = error;
  ((void (*)(PJRT_Error_Destroy_Args *))P->api->slots[SLOT_Error_Destroy])(&destroy);
  plugin_buffer_destroy(P, b);
}

static void copies_go_to_other_devices_and_memories(void **state) {
  (void)state;
  const int64_t dims[1] = {6};
  const int32_t data[6] = {1, 2, 3, 4, 5, 6};
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 4, 1, dims, data);
  ARGS(Buffer_CopyToDevice, copy);
  copy.buffer = b;
  copy.dst_device = plugin_device(P, CLIENT, 6);
  plugin_ok(P, SLOT_Buffer_CopyToDevice, &copy);
  ARGS(Device_DefaultMemory, home);
  home.device = plugin_device(P, CLIENT, 3);
  plugin_ok(P, SLOT_Device_DefaultMemory, &home);
  ARGS(Buffer_CopyToMemory, move);
  move.buffer = b;
  move.dst_memory = home.memory;
  plugin_ok(P, SLOT_Buffer_CopyToMemory, &move);
  plugin_buffer_destroy(P, b); // copies do not need their source
  ARGS(Buffer_Device, where);
  where.buffer = copy.dst_buffer;
  plugin_ok(P, SLOT_Buffer_Device, &where);
  assert_ptr_equal(where.device, copy.dst_device);
  where.buffer = move.dst_buffer;
  plugin_ok(P, SLOT_Buffer_Device, &where);
  assert_ptr_equal(where.device, home.device);
  expect(copy.dst_buffer, data, sizeof data);
  expect(move.dst_buffer, data, sizeof data);
  plugin_buffer_destroy(P, copy.dst_buffer);
  plugin_buffer_destroy(P, move.dst_buffer);
}

// Delete frees the data but keeps its description; deleting again is harmless.
static void deleted_buffers_keep_their_description(void **state) {
  (void)state;
  const int64_t dims[1] = {6};
  const int32_t data[6] = {1, 2, 3, 4, 5, 6};
  PJRT_Buffer *b = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 4, 1, dims, data);
  ARGS(Buffer_IsDeleted, gone);
  gone.buffer = b;
  plugin_ok(P, SLOT_Buffer_IsDeleted, &gone);
  assert_false(gone.is_deleted);
  ARGS(Buffer_Delete, delete);
  delete.buffer = b;
  plugin_ok(P, SLOT_Buffer_Delete, &delete);
  plugin_ok(P, SLOT_Buffer_Delete, &delete);
  plugin_ok(P, SLOT_Buffer_IsDeleted, &gone);
  assert_true(gone.is_deleted);
  ARGS(Buffer_ElementType, type);
  type.buffer = b;
  plugin_ok(P, SLOT_Buffer_ElementType, &type);
  assert_int_equal(type.type, 4);
  ARGS(Buffer_Dimensions, shape);
  shape.buffer = b;
  plugin_ok(P, SLOT_Buffer_Dimensions, &shape);
  assert_int_equal(shape.num_dims, 1);
  ARGS(Buffer_CopyToDevice, copy);
  copy.buffer = b;
  copy.dst_device = plugin_device(P, CLIENT, 1);
  plugin_fails(P, SLOT_Buffer_CopyToDevice, &copy, 3, NULL);
  int32_t back[6];
  ARGS(Buffer_ToHostBuffer, host); // at once or through the event
  host.src = b;
  host.dst = back;
  host.dst_size = sizeof back;
  PJRT_Error *error = plugin_call(P, SLOT_Buffer_ToHostBuffer, &host);
  if (!error) error = plugin_await(P, host.event);
  plugin_error_is(P, error, 3, NULL);
  plugin_buffer_destroy(P, b);
}

static void uninitialized_buffers_have_their_shape(void **state) {
  (void)state;
  const int64_t dims[2] = {3, 5};
  ARGS(Client_CreateUninitializedBuffer, a);
  a.client = CLIENT;
  a.shape_dims = dims;
  a.shape_num_dims = 2;
  a.shape_element_type = 11;
  a.device = plugin_device(P, CLIENT, 2);
  plugin_ok(P, SLOT_Client_CreateUninitializedBuffer, &a);
  ARGS(Buffer_Dimensions, shape);
  shape.buffer = a.buffer;
  plugin_ok(P, SLOT_Buffer_Dimensions, &shape);
  assert_int_equal(shape.num_dims, 2);
  assert_memory_equal(shape.dims, dims, sizeof dims);
  char back[60];
  plugin_fetch(P, a.buffer, back, sizeof back);
  plugin_buffer_destroy(P, a.buffer);
}

int contract_buffers(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_sized_type_comes_back_as_it_went),
      cmocka_unit_test(narrow_types_take_a_byte_each_on_the_host),
      cmocka_unit_test(empty_arrays_are_buffers),
      cmocka_unit_test(host_strides_are_followed),
      cmocka_unit_test(host_buffer_promises_are_kept),
      cmocka_unit_test(impossible_host_arrays_are_refused),
      cmocka_unit_test(buffers_are_made_in_the_memory_asked_for),
      cmocka_unit_test(buffers_come_to_the_host_whole),
      cmocka_unit_test(raw_bytes_are_read_by_offset),
      cmocka_unit_test(copies_go_to_other_devices_and_memories),
      cmocka_unit_test(deleted_buffers_keep_their_description),
      cmocka_unit_test(uninitialized_buffers_have_their_shape),
  };
  return cmocka_run_group_tests_name("buffers", tests, contract_setup, contract_teardown);
}
