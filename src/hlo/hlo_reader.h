// SPDX-License-Identifier: Apache-2.0
// hlo_reader.h - private to what reads HLO: hlo_read.c, hlo_read_proto.c, hlo_read_text.c.
#ifndef VT_HLO_HLO_READER_H
#define VT_HLO_HLO_READER_H

#include "base/array.h"
#include "base/map.h"
#include "hlo/hlo_writers.h"
#include "ir/sharding.h"

enum { VT_HLO_MAX_DEPTH = 100 }; // of nested tuples and constants

typedef VT_ARRAY(int64_t) vt_hlo_ints;

// A computation that an instruction runs, found once all are read.
typedef struct vt_hlo_call_site {
  vt_hlo_instruction *instruction;
  uint32_t index;
  vt_string name; // in text
  int64_t id;     // in messages
} vt_hlo_call_site;

// A donation: an array of a parameter, and the array of the result that takes its memory.
typedef struct vt_hlo_donation {
  bool named;
  int64_t param;
  uint32_t param_depth, result_depth;
  const int64_t *param_path, *result_path; // through nested tuples
} vt_hlo_donation;

// Where an instruction comes from; a frame of the stack instead of a file and a line.
typedef struct vt_hlo_place {
  vt_string name, file;
  int64_t line, column, frame;
} vt_hlo_place;

typedef struct vt_hlo_reader {
  vt_hlo *hlo;
  vt_arena *arena; // of the hlo
  vt_map computations;
  VT_ARRAY(vt_hlo_call_site) calls;
  VT_ARRAY(vt_hlo_donation) donations;
  // The stack frames, each list counted from 1.
  VT_ARRAY(vt_string) files;
  VT_ARRAY(vt_hlo_place) places; // `frame` is the number of the file
  VT_ARRAY(vt_hlo_place) frames; // line: the number of the place; column: of the parent
  const vt_loc **frame_locs;
  vt_hlo_computation *last;
  int64_t budget; // numbers that short forms may still stand for
} vt_hlo_reader;

// hlo_read_proto.c, hlo_read_text.c: fill everything but what vt_hlo_finish finds.
vt_status vt_hlo_read_message(vt_hlo_reader *r, vt_bytes program) VT_CHECKED;
vt_status vt_hlo_read_text(vt_hlo_reader *r, vt_bytes program) VT_CHECKED;

// hlo_read.c.
// The program's HloModuleProto within other messages; false when there is none.
bool vt_hlo_module_in(vt_bytes program, vt_bytes *out_module, vt_bytes *out_config);
vt_hlo_computation *vt_hlo_new_computation(vt_hlo_reader *r, vt_string name);
// At the end of the computation.
vt_hlo_instruction *vt_hlo_new_instruction(vt_hlo_reader *r, vt_hlo_computation *computation);
void vt_hlo_new_call(vt_hlo_reader *r, vt_hlo_instruction *instruction, vt_string name, int64_t id);
// The attribute of that field, made if need be.
vt_hlo_attr *vt_hlo_attr_at(vt_hlo_reader *r, vt_hlo_instruction *instruction, vt_hlo_field field);
void vt_hlo_push_ints(vt_hlo_reader *r, vt_hlo_attr *attr, uint32_t count, const int64_t *ints);
// Adds rows of different lengths, filled up with -1.
typedef struct vt_hlo_row {
  uint32_t count;
  const int64_t *ints;
} vt_hlo_row;
vt_status vt_hlo_set_rows(vt_hlo_reader *r, vt_hlo_attr *attr, uint32_t count,
                          const vt_hlo_row *rows) VT_CHECKED;
// The devices 0 .. n-1 in shape `dims`, dimensions ordered by `order` (NULL = as they are).
vt_status vt_hlo_set_iota_rows(vt_hlo_reader *r, vt_hlo_attr *attr, int64_t rows, int64_t width,
                               uint32_t rank, const int64_t *dims, const int64_t *order) VT_CHECKED;
// Groups along axes of a mesh.
typedef struct vt_hlo_mesh_groups {
  VT_ARRAY(vt_mesh_axis) mesh;
  vt_hlo_ints ids;         // of the devices in the mesh's order; empty = 0 .. n-1
  vt_hlo_ints dims, order; // or, where dims is not empty, as of vt_hlo_set_iota_rows
  VT_ARRAY(vt_axis_ref) axes;
} vt_hlo_mesh_groups;
vt_status vt_hlo_set_mesh_rows(vt_hlo_reader *r, vt_hlo_attr *attr,
                               const vt_hlo_mesh_groups *groups) VT_CHECKED;
const vt_hlo_shape *vt_hlo_new_shape(vt_hlo_reader *r, vt_hlo_shape shape);
// Checks and keeps the type of an array.
vt_status vt_hlo_check_type(vt_hlo_reader *r, vt_dtype dtype, uint32_t rank, const int64_t *dims,
                            vt_type *out_type) VT_CHECKED;
// "{1,0}" of dimensions from minor to major; NULL when it is row-major. errors: no permutation
vt_status vt_hlo_check_layout(vt_hlo_reader *r, vt_type type, uint32_t count, const int64_t *order,
                              const char **out_layout) VT_CHECKED;
const vt_loc *vt_hlo_new_loc(vt_hlo_reader *r, const vt_hlo_place *place);
const char *vt_hlo_kept(vt_hlo_reader *r, vt_string string); // NUL-terminated
vt_dict_value *vt_hlo_new_dict(vt_hlo_reader *r);
void vt_hlo_push_entry(vt_hlo_reader *r, vt_dict_value *dict, vt_string name, vt_string value);
// Finds called computations and parameters, and says what is known of the entry's.
vt_status vt_hlo_finish(vt_hlo_reader *r, bool named) VT_CHECKED;
#endif
