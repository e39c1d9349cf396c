// SPDX-License-Identifier: Apache-2.0
// kernel_topk.c - a sort of which only the first few elements per line are read (top_k): one pass
// that keeps the best so far finds just those, and the rest of the results is not written. Order:
// equal keys stay in the order of their places, as in the stable sort.
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_move.h"

// A line is split into parts of about this length; a part must be longer than the list it keeps.
enum { PART = 64 << 10, BLOCK = 256, GROUP = 16, LEAST_SHARE = 8, MOST_ARRAYS = 4, FEW = 128 };

typedef struct candidate {
  int64_t key, place;
} candidate;

typedef struct topk_plan {
  vt_dtype dtype; // of the key, which is operand 0
  bool ascending;
  int64_t lines, n, k, parts, part;
  uint32_t arrays;
  int64_t bytes[MOST_ARRAYS];
} topk_plan;

#define KEYS(T, formula)                                                                           \
  do {                                                                                             \
    const T *from = (const T *)data + at;                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
      T x = from[i];                                                                               \
      keys[i] = (int64_t)(formula) ^ flip;                                                         \
    }                                                                                              \
  } while (0)

// Keys that order like the elements, largest first when `flip` is 0.
VT_ANY_CPU static void read_keys(vt_dtype dtype, const void *data, int64_t at, int64_t n,
                                 int64_t flip, int64_t *keys) {
  switch (dtype) {
  case VT_F32:
    KEYS(int32_t, x ^ (int32_t)((uint32_t)(x >> 31) >> 1));
    break;
  case VT_BF16:
  case VT_F16:
    KEYS(int16_t, x ^ (x < 0 ? 0x7fff : 0));
    break;
  case VT_F64:
    KEYS(int64_t, x ^ (int64_t)((uint64_t)(x >> 63) >> 1));
    break;
  case VT_S8:
    KEYS(int8_t, x);
    break;
  case VT_S16:
    KEYS(int16_t, x);
    break;
  case VT_S32:
    KEYS(int32_t, x);
    break;
  case VT_S64:
    KEYS(int64_t, x);
    break;
  case VT_U16:
    KEYS(uint16_t, x);
    break;
  case VT_U32:
    KEYS(uint32_t, x);
    break;
  case VT_U64:
    KEYS(uint64_t, x ^ (uint64_t)1 << 63);
    break;
  default: // U8, PRED
    KEYS(uint8_t, x);
  }
}

// The first group from `at` on with a key above, or that is not whole.
VT_ANY_CPU static int64_t next_group(int64_t at, int64_t n, const int64_t *keys, int64_t least) {
  for (; at + GROUP <= n; at += GROUP) {
    int64_t below = -1; // all bits, as long as none is above
    for (int64_t i = 0; i < GROUP; i++) below &= keys[at + i] > least ? 0 : -1;
    if (!below) break;
  }
  return at;
}

static int by_key(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? 1 : -1;
  return (x->place > y->place) - (x->place < y->place);
}

// The best so far. For small k the list is sorted; for large k it holds up to 2k, the best k first
// once it has filled up.
typedef struct keeper {
  candidate *list;
  int64_t count, k, least; // once there are k, a key must be larger than this to get in
} keeper;

static void prune(keeper *best) {
  if (best->k > FEW) qsort(best->list, (size_t)best->count, sizeof *best->list, by_key);
  if (best->count < best->k) return;
  best->count = best->k;
  best->least = best->list[best->k - 1].key;
}

static inline void offer(keeper *best, int64_t key, int64_t place) {
  if (key <= best->least && best->count >= best->k) return;
  candidate *list = best->list;
  if (best->k > FEW) {
    list[best->count++] = (candidate){key, place};
    if (best->count == 2 * best->k) prune(best);
    return;
  }
  int64_t at = best->count++;
  for (; at > 0 && list[at - 1].key < key; at--) list[at] = list[at - 1];
  list[at] = (candidate){key, place};
  if (best->count > best->k) prune(best);
  if (best->count == best->k) best->least = list[best->k - 1].key;
}

// Which ones get in is found without branches, which nothing could predict.
static void offer_group(keeper *best, int64_t n, const int64_t *keys, int64_t at) {
  int64_t in[GROUP], count = 0, least = best->least;
  bool all = best->count < best->k;
  for (int64_t i = 0; i < n; i++) {
    in[count] = i;
    count += all | (keys[i] > least);
  }
  for (int64_t i = 0; i < count; i++) offer(best, keys[in[i]], at + in[i]);
}

static void find_part(const topk_plan *plan, const void *data, int64_t line, int64_t part,
                      keeper *best) {
  int64_t end = part == plan->parts - 1 ? plan->n : (part + 1) * plan->part;
  int64_t keys[BLOCK];
  for (int64_t at = part * plan->part; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    read_keys(plan->dtype, data, line * plan->n + at, n, plan->ascending ? -1 : 0, keys);
    for (int64_t i = 0; i < n; i += GROUP) {
      if (best->count >= best->k) i = next_group(i, n, keys, best->least);
      offer_group(best, n - i < GROUP ? n - i : GROUP, keys + i, at + i);
    }
  }
  prune(best);
}

static void write_line(const topk_plan *plan, const vt_native_call *call, int64_t line,
                       const candidate *best) {
  for (uint32_t a = 0; a < plan->arrays; a++) {
    int64_t bytes = plan->bytes[a], from = line * plan->n * bytes;
    const char *in = (const char *)call->operands[a] + from;
    char *out = (char *)call->outputs[a] + from;
    for (int64_t i = 0; i < plan->k; i++, out += bytes)
      memcpy(out, in + best[i].place * bytes, (size_t)bytes);
  }
}

static void run_topk(const vt_native_call *call) {
  const topk_plan *plan = call->native->plan;
  candidate *all = call->scratch;
  int64_t tasks = plan->lines * plan->parts, *counts = (int64_t *)(all + tasks * 2 * plan->k);
#pragma omp parallel for schedule(dynamic, 1 + tasks / 64) if (plan->lines * plan->n > PART &&     \
                                                                   tasks > 1)
  for (int64_t t = 0; t < tasks; t++) {
    keeper best = {.list = all + t * 2 * plan->k, .k = plan->k, .least = INT64_MIN};
    find_part(plan, call->operands[0], t / plan->parts, t % plan->parts, &best);
    counts[t] = best.count;
    if (plan->parts == 1) write_line(plan, call, t, best.list);
  }
  for (int64_t line = 0; plan->parts > 1 && line < plan->lines; line++) {
    int64_t first = line * plan->parts;
    keeper best = {all + first * 2 * plan->k, counts[first], plan->k, INT64_MIN};
    prune(&best); // the first part has at least k
    for (int64_t p = first + 1; p < first + plan->parts; p++)
      for (int64_t i = 0; i < counts[p]; i++)
        offer(&best, all[p * 2 * plan->k + i].key, all[p * 2 * plan->k + i].place);
    prune(&best);
    write_line(plan, call, line, best.list);
  }
}

// The most that any use reads of each line of the sort's results; 0 when one reads all.
static int64_t places_read(const vt_op *op, int32_t last) {
  int64_t most = 0;
  const vt_func *f = op->func;
  for (uint32_t i = 0; i < f->return_count; i++)
    if (f->returns[i]->op == op) return 0;
  for (const vt_op *user = op->next; user; user = user->next)
    for (uint32_t i = 0; i < user->operand_count; i++) {
      if (user->operands[i]->op != op) continue;
      if (user->code != VT_OP_SLICE) return 0;
      int64_t end = vt_attr_ints(user, VT_ATTR_LIMIT_INDICES, NULL)[last];
      if (end > most) most = end;
    }
  return most;
}

// 1 for a body that says whether the first of the key's two parameters is larger, -1 for smaller.
static int direction_of(const vt_op *op) {
  const vt_func *body = op->regions[0];
  if (body->return_count != 1 || !body->first || body->first != body->last) return 0;
  const vt_op *compare = body->first;
  if (compare->code != VT_OP_COMPARE || body->returns[0] != &compare->results[0] ||
      compare->operands[0] != body->params[0] || compare->operands[1] != body->params[1])
    return 0;
  bool total =
      vt_attr_i64_or(compare, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE) == VT_CMPTYPE_TOTALORDER;
  if (vt_dtype_is_float(body->params[0]->type.dtype) && !total) return 0;
  int64_t direction = vt_attr_i64(compare, VT_ATTR_COMPARISON_DIRECTION);
  return direction == VT_CMP_GT ? 1 : direction == VT_CMP_LT ? -1 : 0;
}

static bool has_keys(vt_dtype dtype) {
  if (dtype == VT_PRED || dtype == VT_BF16 || dtype == VT_F16 || dtype == VT_F32 || dtype == VT_F64)
    return true;
  return vt_dtype_is_integer(dtype) && vt_dtype_get(dtype)->bits >= 8;
}

static bool make_plan(const vt_op *op, topk_plan *plan) {
  if (op->code != VT_OP_SORT || op->result_count > MOST_ARRAYS || op->capture_count ||
      op->operand_count != op->result_count)
    return false;
  vt_type type = op->results[0].type;
  int64_t dim = vt_attr_i64(op, VT_ATTR_DIMENSION), total = vt_type_elements(type);
  int32_t last = type.rank - 1;
  if (!total || last < 0 || (dim != last && dim != -1) || !has_keys(type.dtype)) return false;
  int direction = direction_of(op);
  int64_t k = places_read(op, last), n = type.dims[last];
  if (!direction || k < 1 || k * LEAST_SHARE > n) return false;
  *plan = (topk_plan){.dtype = type.dtype, .ascending = direction < 0, .lines = total / n, .n = n};
  plan->k = k;
  plan->part = PART > LEAST_SHARE * k ? PART : LEAST_SHARE * k;
  plan->parts = (n + plan->part - 1) / plan->part;
  // The last part may not be too short to hold k.
  if (plan->parts > 1 && n - (plan->parts - 1) * plan->part < k) plan->parts--;
  plan->arrays = op->result_count;
  for (uint32_t i = 0; i < plan->arrays; i++)
    plan->bytes[i] = (int64_t)vt_dtype_bytes(op->results[i].type.dtype);
  return true;
}

bool vt_topk_supports(const vt_op *op) {
  topk_plan plan;
  return make_plan(op, &plan);
}

const vt_native *vt_topk_create(vt_arena *arena, const vt_op *op) {
  topk_plan *plan = VT_NEW(arena, topk_plan);
  make_plan(op, plan); // checked by vt_topk_supports
  vt_native *native = VT_NEW(arena, vt_native);
  int64_t tasks = plan->lines * plan->parts;
  *native = (vt_native){.run = run_topk, .plan = plan};
  native->scratch_bytes = tasks * (2 * plan->k * (int64_t)sizeof(candidate) + 8);
  return native;
}
