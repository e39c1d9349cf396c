// SPDX-License-Identifier: Apache-2.0
// collective_test.c - collectives over devices: how groups are specified, what each member gets,
// who gets zeros.
#include "eval/eval_support.h"
#include "eval/loopback.h"
#include "ir/sharding.h"

enum { DEVICES = 4 };

static void set_ids(vt_op *op, vt_attr_key key, int32_t rank, const int64_t *dims,
                    const int64_t *ids) {
  vt_arena *arena = &op->func->module->arena;
  vt_literal *l = VT_NEW(arena, vt_literal);
  *l = (vt_literal){vt_type_make(arena, VT_S64, rank, dims), ids, false};
  vt_op_set_attr(op, (vt_attr){.key = key, .literal = l});
}

// A collective of one operand, with default attributes.
static vt_op *collective(bench *b, vt_opcode code, int32_t rank, const int64_t *in_dims,
                         const int64_t *out_dims, int32_t replicas) {
  double zeros[64] = {0};
  int64_t n = 1;
  for (int32_t d = 0; d < rank; d++) n *= in_dims[d];
  operand(b, VT_S32, rank, in_dims, (numbers){n, zeros});
  bool folds =
      code == VT_OP_ALL_REDUCE || code == VT_OP_REDUCE_SCATTER || code == VT_OP_COLLECTIVE_REDUCE;
  vt_op *op = make_one(b, code, VT_S32, rank, out_dims, folds);
  if (folds) op->regions[0] = binary_region(b, VT_OP_ADD, VT_S32);
  b->module->num_replicas = replicas;
  b->module->num_partitions = DEVICES / replicas;
  return op;
}

// ---- one device of several ----------------------------------------------------------------------

typedef struct part {
  pthread_t thread;
  const vt_op *op;
  vt_loopback_part loopback;
  const vt_tensor *in;
  vt_tensor *out;
  vt_status st;
} part;

static void *run_part(void *user) {
  part *p = user;
  int32_t replicas = p->op->func->module->num_replicas;
  vt_eval_env env = {.partition = p->loopback.place,
                     .partition_count = DEVICES / replicas,
                     .replica_count = replicas};
  vt_meetings meetings = {.user = &p->loopback, .meet = vt_loopback_meet};
  vt_part *kept;
  p->st = vt_part_create(p->op, DEVICES, env.partition, &kept);
  for (int run = 0; run < 2 && !p->st; run++) // what the first leaves behind is used by the second
    p->st = vt_part_run(kept, &env, p->in, p->out, &meetings);
  vt_part_destroy(kept);
  if (p->st) vt_loopback_fail(p->loopback.all);
  vt_loopback_forget(&p->loopback);
  return NULL;
}

// Each device alone, meeting the others, has the bits that all of them together have. Returns the
// bytes that they give each other.
static size_t expect_parts(const vt_op *op, const vt_tensor *const *ins, vt_tensor *const *outs,
                           const char *what) {
  vt_loopback all;
  part parts[DEVICES];
  vt_loopback_open(&all);
  for (int d = 0; d < DEVICES; d++) {
    parts[d] = (part){.op = op, .loopback = {.all = &all, .place = d}, .in = ins[d]};
    parts[d].out = calloc(op->result_count, sizeof *parts[d].out);
    for (uint32_t r = 0; r < op->result_count; r++) {
      parts[d].out[r] = (vt_tensor){outs[d][r].type, tensor_memory(outs[d][r].type)};
      memset(parts[d].out[r].data, 0x5a, (size_t)vt_type_bytes(outs[d][r].type));
    }
    assert_int_equal(pthread_create(&parts[d].thread, NULL, run_part, &parts[d]), 0);
  }
  for (int d = 0; d < DEVICES; d++) {
    pthread_join(parts[d].thread, NULL);
    expect_ok(parts[d].st);
    for (uint32_t r = 0; r < op->result_count; r++) {
      size_t bytes = (size_t)vt_type_bytes(outs[d][r].type);
      if (memcmp(parts[d].out[r].data, outs[d][r].data, bytes))
        fail_msg("%s: device %d alone has another result", what, d);
      free(parts[d].out[r].data);
    }
    free(parts[d].out);
  }
  vt_loopback_close(&all);
  return all.bytes / 2;
}

// ---- some devices of several --------------------------------------------------------------------

typedef struct process {
  pthread_t thread;
  const vt_op *op;
  const int32_t *part_of;
  vt_loopback_part loopback;
  const vt_tensor *in[DEVICES]; // NULL: in another process
  vt_tensor *out[DEVICES];
  vt_status st;
} process;

static void *run_process(void *user) {
  process *p = user;
  int32_t replicas = p->op->func->module->num_replicas;
  vt_eval_env env = {.partition_count = DEVICES / replicas, .replica_count = replicas};
  vt_meetings meetings = {.user = &p->loopback, .meet = vt_loopback_meet};
  p->st = vt_eval_collective_devices(p->op, &env, DEVICES, p->part_of, p->loopback.place, p->in,
                                     p->out, &meetings);
  if (p->st) vt_loopback_fail(p->loopback.all);
  vt_loopback_forget(&p->loopback);
  return NULL;
}

static vt_tensor *fresh_results(const vt_op *op, const vt_tensor *like) {
  vt_tensor *out = calloc(op->result_count, sizeof *out);
  for (uint32_t r = 0; r < op->result_count; r++) {
    out[r] = (vt_tensor){like[r].type, tensor_memory(like[r].type)};
    memset(out[r].data, 0x5a, (size_t)vt_type_bytes(like[r].type));
  }
  return out;
}

static void expect_processes(const vt_op *op, const vt_tensor *const *ins, vt_tensor *const *outs,
                             const int32_t *part_of, int count, const char *what) {
  vt_loopback all;
  process processes[DEVICES] = {0};
  vt_loopback_open(&all);
  for (int p = 0; p < count; p++) {
    processes[p] = (process){.op = op, .part_of = part_of, .loopback = {.all = &all, .place = p}};
    for (int d = 0; d < DEVICES; d++) {
      if (part_of[d] != p) continue;
      processes[p].in[d] = ins[d];
      processes[p].out[d] = fresh_results(op, outs[d]);
    }
    assert_int_equal(pthread_create(&processes[p].thread, NULL, run_process, &processes[p]), 0);
  }
  for (int p = 0; p < count; p++) {
    pthread_join(processes[p].thread, NULL);
    expect_ok(processes[p].st);
  }
  for (int d = 0; d < DEVICES; d++) {
    vt_tensor *got = processes[part_of[d]].out[d];
    for (uint32_t r = 0; r < op->result_count; r++) {
      if (memcmp(got[r].data, outs[d][r].data, (size_t)vt_type_bytes(outs[d][r].type)))
        fail_msg("%s: device %d of several processes has another result", what, d);
      free(got[r].data);
    }
    free(got);
  }
  vt_loopback_close(&all);
}

// However the devices are divided, they have the bits that all of them together have.
static void expect_devices(const vt_op *op, const vt_tensor *const *ins, vt_tensor *const *outs,
                           const char *what) {
  static const int32_t halves[DEVICES] = {0, 0, 1, 1}, mixed[DEVICES] = {0, 1, 1, 0},
                       three[DEVICES] = {2, 0, 2, 1}, single[DEVICES] = {0, 1, 2, 3};
  expect_processes(op, ins, outs, halves, 2, what);
  expect_processes(op, ins, outs, mixed, 2, what);
  expect_processes(op, ins, outs, three, 3, what);
  expect_processes(op, ins, outs, single, 4, what);
}

// Device d starts with first[d] + 0, 1, 2 ...; want[d] is its result. Frees the bench. Returns the
// bytes that devices which run alone give each other.
static size_t expect_all(bench *b, const double *first, int64_t out_size, const double *want,
                         const char *what) {
  vt_tensor in[DEVICES], out[DEVICES], *outs[DEVICES];
  const vt_tensor *ins[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    in[d] = (vt_tensor){b->in[0].type, tensor_memory(b->in[0].type)};
    for (int64_t i = 0; i < vt_type_elements(in[d].type); i++)
      vt_number_store(VT_S32, in[d].data, i, first[d] + (double)i);
    out[d] = (vt_tensor){b->out[0].type, tensor_memory(b->out[0].type)};
    ins[d] = &in[d];
    outs[d] = &out[d];
  }
  expect_ok(vt_eval_collective(b->op, DEVICES, ins, outs));
  size_t bytes = expect_parts(b->op, ins, outs, what);
  expect_devices(b->op, ins, outs, what);
  for (int d = 0; d < DEVICES; d++) {
    expect_numbers(out[d], (numbers){out_size, want + d * out_size}, 0, what);
    free(in[d].data);
    free(out[d].data);
  }
  bench_free(b);
  return bytes;
}

static const double digits[DEVICES] = {1, 10, 100, 1000};
static const int64_t one[] = {1}, two[] = {2}, four[] = {4};

// Rows of replica_groups: two rows, rows padded with -1, one row, no rows in every form.
static void group_forms(void **state) {
  (void)state;
  static const int64_t pairs[] = {0, 1, 2, 3}, crossed[] = {0, 3, 1, 2}, all[] = {3, 2, 1, 0},
                       padded[] = {0, 1, 3, 2, -1, -1};
  static const struct {
    const int64_t *ids;
    int32_t rank; // -1: the attribute is omitted
    int64_t dims[2];
    double want[DEVICES];
    const char *what;
  } rows[] = {
      {pairs, 2, {2, 2}, {11, 11, 1100, 1100}, "pairs"},
      {crossed, 2, {2, 2}, {1001, 110, 110, 1001}, "crossed pairs"},
      {all, 2, {1, 4}, {1111, 1111, 1111, 1111}, "one row"},
      {padded, 2, {2, 3}, {1011, 1011, 100, 1011}, "rows padded with -1"},
      {all, 2, {1, 0}, {1111, 1111, 1111, 1111}, "one empty row: all"},
      {all, 2, {0, 0}, {1111, 1111, 1111, 1111}, "no rows: all"},
      {all, 1, {0}, {1111, 1111, 1111, 1111}, "an empty list: all"},
      {all, -1, {0}, {1111, 1111, 1111, 1111}, "not given: all"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    vt_op *op = collective(&b, VT_OP_ALL_REDUCE, 1, one, one, 1);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
    if (rows[i].rank >= 0)
      set_ids(op, VT_ATTR_REPLICA_GROUPS, rows[i].rank, rows[i].dims, rows[i].ids);
    expect_all(&b, digits, 1, rows[i].want, rows[i].what);
  }
}

// Two replicas of two partitions: device = replica * 2 + partition. What the ids mean depends on
// the channel, on use_global_device_ids, and for some ops on the op itself.
static void id_meanings(void **state) {
  (void)state;
  static const int64_t both[] = {0, 1}, apart[] = {0, 1}, global[] = {0, 3, 1, 2};
  static const struct {
    vt_opcode code;
    int64_t channel, use_global;
    const int64_t *ids;
    int64_t dims[2];
    double want[DEVICES];
    const char *what;
  } rows[] = {
      {VT_OP_ALL_REDUCE, 0, 0, both, {1, 2}, {101, 1010, 101, 1010}, "replicas, per partition"},
      {VT_OP_ALL_REDUCE, 1, 0, apart, {2, 1}, {11, 11, 1100, 1100}, "replicas, all partitions"},
      {VT_OP_ALL_REDUCE, 1, 0, both, {1, 2}, {1111, 1111, 1111, 1111}, "all of all replicas"},
      {VT_OP_ALL_REDUCE, 1, 1, global, {2, 2}, {1001, 110, 110, 1001}, "global ids"},
      {VT_OP_CROSS_REPLICA_SUM, 0, 0, both, {1, 2}, {101, 1010, 101, 1010}, "sum over replicas"},
      {VT_OP_COLLECTIVE_BROADCAST, 0, 0, both, {1, 2}, {1, 10, 1, 10}, "first replica's"},
      {VT_OP_COLLECTIVE_BROADCAST, 1, 0, both, {1, 2}, {1, 1, 100, 100}, "first partition's"},
      {VT_OP_COLLECTIVE_REDUCE, 0, 0, both, {1, 2}, {101, 1010, 0.0, 0.0}, "to the first"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    vt_op *op = collective(&b, rows[i].code, 1, one, one, 2);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, rows[i].channel);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, rows[i].use_global);
    set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, rows[i].dims, rows[i].ids);
    expect_all(&b, digits, 1, rows[i].want, rows[i].what);
  }
  static const int64_t swap[] = {0, 1, 1, 0}, pairs[2] = {2, 2}, ring[] = {0, 1},
                       single[2] = {1, 2};
  for (int channel = 0; channel < 2; channel++) {
    static const double swapped[2][DEVICES] = {{100, 1000, 1, 10}, {10, 1, 1000, 100}};
    static const double moved[2][DEVICES] = {{0, 0, 1, 10}, {0, 1, 0, 100}};
    bench b = bench_new();
    vt_op *op = collective(&b, VT_OP_COLLECTIVE_PERMUTE, 1, one, one, 2);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, channel);
    set_ids(op, VT_ATTR_SOURCE_TARGET_PAIRS, 2, pairs, swap);
    expect_all(&b, digits, 1, swapped[channel], "permute between replicas, partitions");
    b = bench_new();
    op = collective(&b, VT_OP_COLLECTIVE_PERMUTE, 1, one, one, 2);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, channel);
    set_ids(op, VT_ATTR_SOURCE_TARGET_PAIRS, 2, single, ring);
    expect_all(&b, digits, 1, moved[channel], "nobody's target gets zeros");
    static const double exchanged[2][2 * DEVICES] = {{1, 100, 10, 1000, 2, 101, 11, 1001},
                                                     {1, 10, 2, 11, 100, 1000, 101, 1001}};
    b = bench_new();
    op = collective(&b, VT_OP_ALL_TO_ALL, 1, two, two, 2);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, channel);
    vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, 0);
    vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, 0);
    vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, 2);
    set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, single, ring);
    expect_all(&b, digits, 2, exchanged[channel], "all_to_all between replicas, partitions");
  }
  // No pairs: all devices get zeros.
  static const int64_t none[] = {0};
  bench b = bench_new();
  vt_op *op = collective(&b, VT_OP_COLLECTIVE_PERMUTE, 1, one, one, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  set_ids(op, VT_ATTR_SOURCE_TARGET_PAIRS, 1, none, none);
  expect_all(&b, digits, 1, (const double[]){0, 0, 0, 0}, "an empty list of pairs");
}

// Parts are sent and received in the order of the row, along the given dimensions.
static void orders_in_the_row(void **state) {
  (void)state;
  static const int64_t row[] = {2, 0, 3, 1}, dims[2] = {1, 4}, wide[2] = {1, 2}, tall[2] = {4, 2};
  static const double first[DEVICES] = {0, 10, 20, 30};
  bench b = bench_new();
  vt_op *op = collective(&b, VT_OP_ALL_GATHER, 2, wide, tall, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_set_i64(op, VT_ATTR_ALL_GATHER_DIM, 0);
  set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, dims, row);
  static const double gathered[DEVICES * 8] = {20, 21, 0,  1,  30, 31, 10, 11, 20, 21, 0,
                                               1,  30, 31, 10, 11, 20, 21, 0,  1,  30, 31,
                                               10, 11, 20, 21, 0,  1,  30, 31, 10, 11};
  expect_all(&b, first, 8, gathered, "all_gather in the order of the row");

  b = bench_new();
  op = collective(&b, VT_OP_REDUCE_SCATTER, 1, four, one, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_set_i64(op, VT_ATTR_SCATTER_DIMENSION, 0);
  set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, dims, row);
  expect_all(&b, first, 1, (const double[]){64, 72, 60, 68}, "part k goes to member k of the row");

  // [4][1] to [1][4]: split along the rows, joined along the columns.
  static const int64_t column[2] = {4, 1}, line[2] = {1, 4};
  b = bench_new();
  op = collective(&b, VT_OP_ALL_TO_ALL, 2, column, line, 1);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, 0);
  vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, 1);
  vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, 4);
  set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, dims, row);
  static const double turned[DEVICES * 4] = {21, 1, 31, 11, 23, 3, 33, 13,
                                             20, 0, 30, 10, 22, 2, 32, 12};
  expect_all(&b, first, 4, turned, "all_to_all: part k to member k, joined in sender order");
}

// Devices that run alone give each other what the others' results need, and no more.
static void only_slices_travel(void **state) {
  (void)state;
  enum { ROWS = 8, WIDTH = 16, SLICE = ROWS * WIDTH };
  static const int64_t in[2] = {ROWS, DEVICES * WIDTH}, slice[2] = {ROWS, WIDTH},
                       joined[2] = {DEVICES * ROWS, WIDTH};
  static const double first[DEVICES] = {0, 10000, 20000, 30000};
  static double sums[DEVICES * SLICE], moved[DEVICES * DEVICES * SLICE];
  for (int d = 0; d < DEVICES; d++)
    for (int i = 0; i < SLICE; i++) {
      int at = i / WIDTH * DEVICES * WIDTH + d * WIDTH + i % WIDTH;
      sums[d * SLICE + i] = 60000 + 4 * at;
      for (int j = 0; j < DEVICES; j++) moved[(d * DEVICES + j) * SLICE + i] = first[j] + at;
    }
  bench b = bench_new();
  double zeros[ROWS * DEVICES * WIDTH] = {0};
  operand(&b, VT_S32, 2, in, (numbers){ROWS * DEVICES * WIDTH, zeros});
  vt_op *op = make_one(&b, VT_OP_REDUCE_SCATTER, VT_S32, 2, slice, true);
  op->regions[0] = binary_region(&b, VT_OP_ADD, VT_S32);
  b.module->num_partitions = DEVICES;
  b.module->num_replicas = 1;
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_set_i64(op, VT_ATTR_SCATTER_DIMENSION, 1);
  assert_int_equal(expect_all(&b, first, SLICE, sums, "reduce_scatter of columns"),
                   DEVICES * (DEVICES - 1) * SLICE * 4);
  b = bench_new();
  operand(&b, VT_S32, 2, in, (numbers){ROWS * DEVICES * WIDTH, zeros});
  op = make_one(&b, VT_OP_ALL_TO_ALL, VT_S32, 2, joined, false);
  b.module->num_partitions = DEVICES;
  b.module->num_replicas = 1;
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_SPLIT_DIMENSION, 1);
  vt_op_set_i64(op, VT_ATTR_CONCAT_DIMENSION, 0);
  vt_op_set_i64(op, VT_ATTR_SPLIT_COUNT, DEVICES);
  assert_int_equal(expect_all(&b, first, DEVICES * SLICE, moved, "all_to_all of columns"),
                   DEVICES * (DEVICES - 1) * SLICE * 4);
}

static void any_computation(void **state) {
  (void)state;
  static const struct {
    vt_opcode code;
    double want;
  } rows[] = {{VT_OP_MAXIMUM, 1000},
              {VT_OP_MINIMUM, 1},
              {VT_OP_MULTIPLY, 1000000},
              {VT_OP_SUBTRACT, -1109},
              {VT_OP_XOR, 1 ^ 10 ^ 100 ^ 1000}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    vt_op *op = collective(&b, VT_OP_ALL_REDUCE, 1, one, one, 1);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
    op->regions[0] = binary_region(&b, rows[i].code, VT_S32);
    double w = rows[i].want;
    expect_all(&b, digits, 1, (const double[]){w, w, w, w}, vt_op_short_name(rows[i].code));
  }
}

// Rows of two columns. Device d sends sizes[d][p] rows of its operand, from offsets[d][p], to peer
// p's rows from to[d][p]; the operand's element i is 100 * d + i, the output starts as -1.
typedef struct ragged_case {
  const char *what;
  int64_t groups[4], group_dims[2], parts;
  int32_t offsets[DEVICES][4], sizes[DEVICES][4], to[DEVICES][4];
  double want[DEVICES][6]; // the first column of the output's rows
} ragged_case;

static vt_status run_ragged(const ragged_case *c, bool check) {
  enum { ROWS = 4, OUT_ROWS = 6 };
  static const double zeros[2 * OUT_ROWS] = {0};
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(ROWS, 2), (numbers){2 * ROWS, zeros});
  operand(&b, VT_F32, DIMS(OUT_ROWS, 2), (numbers){2 * OUT_ROWS, zeros});
  for (int k = 0; k < 4; k++) operand(&b, VT_S32, 1, &c->parts, (numbers){c->parts, zeros});
  vt_op *op = make_one(&b, VT_OP_RAGGED_ALL_TO_ALL, VT_F32, DIMS(OUT_ROWS, 2), 0);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, c->group_dims, c->groups);
  b.module->num_partitions = DEVICES;
  b.module->main = b.func;
  expect_ok(vt_module_verify(b.module));
  float from[DEVICES][2 * ROWS], before[DEVICES][2 * OUT_ROWS], after[DEVICES][2 * OUT_ROWS];
  vt_tensor in[DEVICES][6], out[DEVICES], *outs[DEVICES];
  const vt_tensor *ins[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    for (int i = 0; i < 2 * ROWS; i++) from[d][i] = (float)(100 * d + i);
    for (int i = 0; i < 2 * OUT_ROWS; i++) before[d][i] = -1;
    void *data[6] = {from[d],
                     before[d],
                     (void *)(uintptr_t)c->offsets[d],
                     (void *)(uintptr_t)c->sizes[d],
                     (void *)(uintptr_t)c->to[d],
                     (void *)(uintptr_t)c->sizes[d]};
    for (int k = 0; k < 6; k++) in[d][k] = (vt_tensor){b.in[k].type, data[k]};
    out[d] = (vt_tensor){b.out[0].type, after[d]};
    ins[d] = in[d];
    outs[d] = &out[d];
  }
  vt_status st = vt_eval_collective(op, DEVICES, ins, outs);
  for (int d = 0; d < DEVICES && check && !st; d++)
    for (int i = 0; i < OUT_ROWS; i++) {
      double want = c->want[d][i], second = want < 0 ? want : want + 1;
      if ((double)after[d][2 * i] != want || (double)after[d][2 * i + 1] != second)
        fail_msg("%s: device %d, row %d is %g", c->what, d, i, (double)after[d][2 * i]);
    }
  bench_free(&b);
  return st;
}

static void ragged(void **state) {
  (void)state;
  static const ragged_case good[] = {
      {"pairs; what nobody writes keeps its value",
       {0, 1, 3, 2},
       {2, 2},
       2,
       {{0, 1}, {3, 0}, {0, 2}, {0, 0}},
       {{1, 2}, {1, 3}, {2, 2}, {0, 1}},
       {{0, 0}, {1, 2}, {0, 4}, {9, 3}},
       {{0, 106, -1, -1, -1, -1},
        {2, 4, 100, 102, 104, -1},
        {-1, -1, -1, 300, 204, 206},
        {200, 202, -1, -1, -1, -1}}},
      {"two parts for each peer, numbered by peer; no one outside of the group is touched",
       {2, 0},
       {1, 2},
       4,
       {{0, 1, 2, 3}, {0}, {3, 2, 1, 0}, {0}},
       {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}},
       {{0, 1, 2, 3}, {0}, {2, 3, 4, 5}, {0}},
       {{-1, -1, 4, 6, 202, 200},
        {-1, -1, -1, -1, -1, -1},
        {0, 2, 206, 204, -1, -1},
        {-1, -1, -1, -1, -1, -1}}},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) expect_ok(run_ragged(&good[i], true));
  // A part outside the operand, outside the output, of negative size.
  static const int32_t bad[][3] = {{3, 2, 0}, {-1, 1, 0}, {0, 1, 6},
                                   {0, 2, 5}, {0, -1, 0}, {1, INT32_MAX, 0}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ragged_case c = {"bad", {0, 1}, {1, 2}, 2, {{bad[i][0]}}, {{bad[i][1]}}, {{bad[i][2]}}, {{0}}};
    vt_status st = run_ragged(&c, false);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    vt_status_free(st);
  }
}

// Two operands and the roots of both, for the groups {0, 1} and {2, 3}; the results are ordered by
// device.
static vt_status run_rooted(vt_opcode code, const int32_t (*roots)[2], int32_t got[DEVICES][2]) {
  static const int64_t groups[] = {0, 1, 2, 3}, dims[] = {2, 2};
  bench b = bench_new();
  for (int k = 0; k < 2; k++) operand(&b, VT_S32, SCALAR, N(0));
  operand(&b, VT_S32, DIMS(2), N(0, 0));
  vt_type scalar = {VT_S32, 0, NULL};
  vt_op *op = make_op(&b, code, 2, (vt_type[]){scalar, scalar}, code == VT_OP_COLLECTIVE_REDUCE);
  if (code == VT_OP_COLLECTIVE_REDUCE) op->regions[0] = binary_region(&b, VT_OP_ADD, VT_S32);
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_set_i64(op, VT_ATTR_HAS_DYNAMIC_ROOT, 1);
  set_ids(op, VT_ATTR_REPLICA_GROUPS, 2, dims, groups);
  b.module->num_partitions = DEVICES;
  b.module->main = b.func;
  expect_ok(vt_module_verify(b.module));
  int32_t from[DEVICES][2];
  vt_tensor in[DEVICES][3], out[DEVICES][2], *outs[DEVICES];
  const vt_tensor *ins[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    for (int k = 0; k < 2; k++) {
      from[d][k] = (k + 1) * (int32_t)digits[d];
      in[d][k] = (vt_tensor){scalar, &from[d][k]};
      out[d][k] = (vt_tensor){scalar, &got[d][k]};
    }
    in[d][2] = (vt_tensor){b.in[2].type, (void *)(uintptr_t)roots[d]};
    ins[d] = in[d];
    outs[d] = out[d];
  }
  vt_status st = vt_eval_collective(op, DEVICES, ins, outs);
  bench_free(&b);
  return st;
}

static void dynamic_roots(void **state) {
  (void)state;
  static const int32_t roots[DEVICES][2] = {{1, 0}, {1, 0}, {0, 1}, {0, 1}};
  static const int32_t sent[DEVICES][2] = {{10, 2}, {10, 2}, {100, 2000}, {100, 2000}};
  static const int32_t sums[DEVICES][2] = {{0, 22}, {11, 0}, {1100, 0}, {0, 2200}};
  int32_t got[DEVICES][2];
  expect_ok(run_rooted(VT_OP_COLLECTIVE_BROADCAST, roots, got));
  assert_memory_equal(got, sent, sizeof sent);
  expect_ok(run_rooted(VT_OP_COLLECTIVE_REDUCE, roots, got));
  assert_memory_equal(got, sums, sizeof sums);
  // Not in the group; not the same on all members.
  static const int32_t bad[][DEVICES][2] = {{{2, 0}, {2, 0}}, {{-1, 0}, {-1, 0}}, {{1, 0}, {0, 0}}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    vt_status st = run_rooted(VT_OP_COLLECTIVE_BROADCAST, bad[i], got);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    vt_status_free(st);
  }
}

// partition_id and replica_id are ui32 scalars: device = replica * partitions + partition.
static void own_ids(void **state) {
  (void)state;
  bench b = bench_new();
  vt_type scalar = {VT_U32, 0, NULL};
  vt_op *ops[2] = {
      vt_op_create(b.func, VT_OP_REPLICA_ID, &vt_loc_unknown, 0, NULL, 1, &scalar, 0),
      vt_op_create(b.func, VT_OP_PARTITION_ID, &vt_loc_unknown, 0, NULL, 1, &scalar, 0)};
  vt_value *returns[2];
  for (int i = 0; i < 2; i++) {
    vt_op_append(b.func, ops[i]);
    returns[i] = &ops[i]->results[0];
  }
  vt_func_set_returns(b.func, 2, returns);
  uint32_t got[DEVICES][2];
  vt_tensor results[DEVICES][2], *outs[DEVICES];
  const vt_tensor *ins[DEVICES] = {0};
  for (int d = 0; d < DEVICES; d++) {
    for (int i = 0; i < 2; i++) results[d][i] = (vt_tensor){scalar, &got[d][i]};
    outs[d] = results[d];
  }
  b.env.partition_count = b.env.replica_count = 2;
  expect_ok(vt_eval_lockstep(b.func, &b.env, DEVICES, ins, outs));
  for (uint32_t d = 0; d < DEVICES; d++) {
    assert_int_equal(got[d][0], d / 2);
    assert_int_equal(got[d][1], d % 2);
  }
  bench_free(&b);
}

static void refusals(void **state) {
  (void)state;
  static const int64_t outside[] = {0, 4}, dims[2] = {1, 2};
  static const struct {
    vt_opcode code;
    vt_attr_key ids;
  } rows[] = {{VT_OP_ALL_REDUCE, VT_ATTR_REPLICA_GROUPS},
              {VT_OP_COLLECTIVE_PERMUTE, VT_ATTR_SOURCE_TARGET_PAIRS}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    vt_op *op = collective(&b, rows[i].code, 1, one, one, 1);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
    set_ids(op, rows[i].ids, 2, dims, outside);
    const vt_tensor *ins[DEVICES];
    vt_tensor *outs[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
      ins[d] = b.in;
      outs[d] = b.out;
    }
    vt_status st = vt_eval_collective(op, DEVICES, ins, outs);
    assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
    vt_status_free(st);
    bench_free(&b);
  }
}

// Operands beyond what is given whole: each device folds its share, which need not divide.
static void large_reductions(void **state) {
  (void)state;
  static const vt_dtype dtypes[] = {VT_F32, VT_BF16, VT_S8, VT_C64};
  static const int64_t sizes[] = {40000, 20011, 1300003};
  uint64_t random = 1;
  for (int t = 0; t < 4 * 3; t++) {
    vt_dtype dtype = dtypes[t / 3];
    int64_t dims[] = {sizes[t % 3]};
    bench b = bench_new();
    bool complex = dtype == VT_C64;
    double *zeros = calloc((size_t)dims[0] * 2, sizeof *zeros);
    operand(&b, dtype, 1, dims, (numbers){dims[0] * (complex ? 2 : 1), zeros});
    free(zeros);
    vt_op *op = make_one(&b, VT_OP_ALL_REDUCE, dtype, 1, dims, 1);
    op->regions[0] = binary_region(&b, t % 2 && !complex ? VT_OP_MAXIMUM : VT_OP_ADD, dtype);
    b.module->num_replicas = 1;
    b.module->num_partitions = DEVICES;
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_tensor in[DEVICES], out[DEVICES], *outs[DEVICES];
    const vt_tensor *ins[DEVICES];
    vt_dtype number = complex ? VT_F32 : dtype;
    for (int d = 0; d < DEVICES; d++) {
      in[d] = (vt_tensor){b.in[0].type, tensor_memory(b.in[0].type)};
      out[d] = (vt_tensor){b.out[0].type, tensor_memory(b.out[0].type)};
      int64_t parts = dims[0] * (complex ? 2 : 1);
      for (int64_t i = 0; i < parts; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        vt_number_store(number, in[d].data, i, (double)(random >> 40) / 997 - 8000);
      }
      ins[d] = &in[d];
      outs[d] = &out[d];
    }
    expect_ok(vt_eval_collective(op, DEVICES, ins, outs));
    expect_parts(op, ins, outs, "large");
    expect_devices(op, ins, outs, "large");
    for (int d = 0; d < DEVICES; d++) free(in[d].data), free(out[d].data);
    bench_free(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(group_forms),       cmocka_unit_test(id_meanings),
      cmocka_unit_test(orders_in_the_row), cmocka_unit_test(only_slices_travel),
      cmocka_unit_test(any_computation),   cmocka_unit_test(own_ids),
      cmocka_unit_test(refusals),          cmocka_unit_test(ragged),
      cmocka_unit_test(dynamic_roots),     cmocka_unit_test(large_reductions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
