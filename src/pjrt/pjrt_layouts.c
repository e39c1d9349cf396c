// SPDX-License-Identifier: Apache-2.0
// pjrt_layouts.c - extension Layouts: the order of dimensions in memory, as text "{1,0}" (minor to
// major).
//
// The chip's tiles count in the HBM account and in the reports; the layout text omits them, so that
// a layout the user asks for without tiles comes back unchanged.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

PJRT_Layouts_MemoryLayout *vt_layout_create(vt_arena *arena, const char *text, size_t size) {
  size_t bytes = sizeof(PJRT_Layouts_MemoryLayout) + size;
  PJRT_Layouts_MemoryLayout *layout = arena ? vt_arena_push(arena, bytes) : malloc(bytes);
  if (!layout) return NULL;
  layout->owned = arena != NULL;
  layout->size = size;
  memcpy(layout->text, text, size);
  return layout;
}

static PJRT_Error *make_default(const vt_chip *chip, vt_memory_kind kind, vt_type type,
                                PJRT_Layouts_MemoryLayout **out_layout) {
  int32_t order[VT_MAX_RANK];
  vt_text text = {0};
  vt_layout_default(chip, kind, type, order);
  vt_layout_put(order, type.rank, &text);
  *out_layout = vt_layout_create(NULL, text.data, text.size);
  vt_text_free(&text);
  return *out_layout ? NULL : vt_error_no_memory();
}

static PJRT_Error *layout_destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args) {
  if (args->layout && !args->layout->owned) free(args->layout);
  return NULL;
}

static void keep_text(PJRT_Layouts_SerializedLayout *owner) {
  (void)owner;
}

static PJRT_Error *layout_serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args) {
  args->bytes = args->layout->text;
  args->size = args->layout->size;
  args->owner = (PJRT_Layouts_SerializedLayout *)args->layout;
  args->deleter = keep_text;
  return NULL;
}

static PJRT_Error *client_default(PJRT_Layouts_Client_GetDefaultLayout_Args *args) {
  vt_type type;
  VT_TRY(vt_type_from_pjrt(args->type, args->dims, args->num_dims, &type));
  const vt_chip *chip = vt_client_slice(args->client->client)->chip;
  return make_default(chip, VT_MEMORY_DEVICE, type, &args->layout);
}

static PJRT_Error *topology_default(PJRT_Layouts_Topology_GetDefaultLayout_Args *args) {
  vt_type type;
  VT_TRY(vt_type_from_pjrt(args->type, args->dims, args->num_dims, &type));
  return make_default(args->topology->slice.chip, VT_MEMORY_DEVICE, type, &args->layout);
}

static PJRT_Error *buffer_layout(PJRT_Layouts_Buffer_MemoryLayout_Args *args) {
  vt_buffer *buffer = vt_buffer_of_pjrt(args->buffer);
  const char *text = vt_buffer_layout(buffer);
  const vt_memory *memory = vt_buffer_memory(buffer);
  if (!text)
    return make_default(vt_client_slice(memory->device->client)->chip, memory->kind,
                        vt_buffer_type(buffer), &args->layout);
  args->layout = vt_layout_create(NULL, text, strlen(text));
  return args->layout ? NULL : vt_error_no_memory();
}

static PJRT_Error *output_layouts(PJRT_Layouts_Executable_Layouts_Args *args) {
  args->count = args->executable->results.count;
  args->layouts = args->executable->results.layouts;
  return NULL;
}

static PJRT_Error *parameter_layouts(PJRT_Layouts_Executable_Layouts_Args *args) {
  args->count = args->executable->params.count;
  args->layouts = args->executable->params.layouts;
  return NULL;
}

PJRT_Layouts_Extension vt_pjrt_layouts = {
    .base = {sizeof vt_pjrt_layouts, PJRT_EXTENSION_LAYOUTS, &vt_pjrt_shardings.base},
    .layout_destroy = layout_destroy,
    .layout_serialize = layout_serialize,
    .client_default = client_default,
    .buffer_layout = buffer_layout,
    .topology_default = topology_default,
    .output_layouts = output_layouts,
    .parameter_layouts = parameter_layouts};

// Extension Shardings.
static void shardings_of(const vt_io_lists *lists, PJRT_Shardings_Executable_Args *args) {
  args->count = lists->count;
  args->shardings =
      lists->count ? lists->shardings : NULL; // clients read an empty list as one tuple sharding
  args->sizes = lists->sharding_sizes;
}

static PJRT_Error *parameter_shardings(PJRT_Shardings_Executable_Args *args) {
  shardings_of(&args->executable->params, args);
  return NULL;
}

static PJRT_Error *output_shardings(PJRT_Shardings_Executable_Args *args) {
  shardings_of(&args->executable->results, args);
  return NULL;
}

PJRT_Shardings_Extension vt_pjrt_shardings = {
    .base = {sizeof vt_pjrt_shardings, PJRT_EXTENSION_SHARDINGS, &vt_pjrt_memory_descriptions.base},
    .parameter_shardings = parameter_shardings,
    .output_shardings = output_shardings};
