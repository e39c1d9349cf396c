// SPDX-License-Identifier: Apache-2.0
// fuser.h - the state of vt_host_fuse: fuse.c grows groups and writes them out, then
// fuse_recompute.c decides which values later groups recompute instead of reading.
#ifndef VT_HOST_FUSER_H
#define VT_HOST_FUSER_H

#include "base/array.h"
#include "host/nest.h"

enum { VT_FUSE_SINGLE, VT_FUSE_VIEW, VT_FUSE_LOOP };
enum { VT_NO_GROUP = -1, VT_GONE = -2 }; // alone; its group has nothing left to write

typedef VT_ARRAY(uint32_t) vt_index_list;

typedef struct vt_fuse_op {
  vt_op *op;
  uint8_t kind; // VT_FUSE_*
  bool emitted;
  bool blocked;         // VIEW that no nest could look through: read from memory
  int32_t group;        // LOOP: the group that computes it for others, or VT_NO_GROUP, VT_GONE
  vt_index_list copies; // LOOP: further groups that compute it for themselves
  uint32_t stamp;       // == fuser.stamp: member of the candidate set
  uint32_t visit;       // == fuser.visit: seen by a search
} vt_fuse_op;

typedef struct vt_work_group {
  uint32_t count;
  uint32_t *ops; // indices, ascending; views and copies included
  bool dead;     // merged into another, split, or with nothing left to write
} vt_work_group;

typedef struct vt_fuser {
  vt_func *func;
  vt_arena scratch; // lives as long as the fuser
  vt_arena trial;   // one attempt
  uint32_t op_count;
  vt_fuse_op *ops;
  uint32_t *user_start, *users; // by value id: indices of ops
  bool *returned;               // by value id
  VT_ARRAY(vt_work_group) groups;
  // by op index i: the least index of a group that has ops before i and at i or later; i if none
  uint32_t *span_from;
  uint32_t stamp, visit;
  vt_index_list stack; // of the search for paths
  int64_t min_work;
  bool exact_limit; // the caller's min_work, nothing else, decides
  bool repeated;    // as in vt_fuse_options
} vt_fuser;

// A candidate: a set of ops that may become a group.
typedef struct vt_trial {
  int32_t home; // the group it is; VT_NO_GROUP while groups grow
  uint32_t count;
  uint32_t *ops;
  vt_op **list;
  uint32_t input_count, output_count;
  vt_value **inputs, **outputs;
  vt_nest *nest;
} vt_trial;

static inline uint32_t vt_fuse_index(const vt_op *op) {
  return (uint32_t)(uintptr_t)op->note;
}
static inline vt_fuse_op *vt_fuse_state(vt_fuser *f, const vt_op *op) {
  return &f->ops[vt_fuse_index(op)];
}

// Fills list, ports and nest of `t` from its ops; false when they are not one nest. (fuse.c)
bool vt_fuse_try(vt_fuser *f, vt_arena *arena, vt_trial *t);
void vt_fuse_sort(vt_index_list *list); // ascending (fuse.c)
// t's ops and those of an ascending list. (fuse.c)
void vt_fuse_merge_lists(vt_arena *arena, vt_trial *t, uint32_t count, const uint32_t *more);

// Call when all groups are final: values whose readers can recompute them more cheaply than write
// and read them are no longer written. (fuse_recompute.c)
void vt_fuse_recompute(vt_fuser *f);

#endif
