// SPDX-License-Identifier: Apache-2.0
// collective.h - shared by collective.c (all devices in one run), collective_part.c (one) and
// collective_devices.c (some).
#ifndef VT_EVAL_COLLECTIVE_H
#define VT_EVAL_COLLECTIVE_H

#include "eval/kernel.h"

typedef struct vt_group_list {
  int64_t count, width;
  int32_t *members; // [count][width], -1 pads a row at its end; to be freed
} vt_group_list;

// How processes divide what they give each other.
enum {
  WHOLE_BYTES = 1 << 14, // operands up to here are given whole
  SHARE_BYTES = 1 << 19, // of a share in one piece
  SHARE = 64             // elements
};

typedef struct vt_pair {
  int32_t from, to;
} vt_pair;
typedef struct vt_pair_list {
  int64_t count;
  vt_pair *pairs; // to be freed
} vt_pair_list;

// Operand `index` of the op on all devices of a row.
typedef struct vt_lane_set {
  const vt_op *op;
  vt_eval_state *state;
  const vt_eval_env *env;
  uint32_t index;
  const vt_tensor *const *in;
  vt_tensor *const *out; // NULL rows are somebody else's to make
  struct vt_fold *fold;  // of a reduction; NULL: opened for this one
} vt_lane_set;

// The fold of a reduction whose body is a usual one, which any run can use; NULL: it has none.
struct vt_fold *vt_collective_usual_fold(const vt_op *op, vt_arena *arena);

// Rows of device positions; the pairs of a permute.
vt_status vt_collective_groups(const vt_op *op, int32_t devices, vt_group_list *out) VT_CHECKED;
vt_status vt_collective_pairs(const vt_op *op, int32_t devices, vt_pair_list *out) VT_CHECKED;
// Copies the part of `from` starting at from_at to `to` at to_at along dimension d; `size` of it.
void vt_collective_copy(vt_tensor from, int64_t from_at, vt_tensor to, int64_t to_at, int64_t d,
                        int64_t size);
// Runs the op for the devices of a row.
vt_status vt_collective_row(const vt_lane_set *set, int64_t width, const int32_t *row) VT_CHECKED;
// The fold of the row's operands in the order of the row, in the operand's type. `to` is none of
// them.
vt_status vt_collective_fold(const vt_lane_set *set, int64_t width, const int32_t *row,
                             void *to) VT_CHECKED;

#endif
