// SPDX-License-Identifier: Apache-2.0
// sort.c - stable sort of several arrays along one dimension.
//
// Comparators of the form key(a) < key(b), and lexicographic chains of them (k0a < k0b or k0a ==
// k0b and ...), are recognised whatever the key function computes: the keys of all elements are
// computed at once, mapped to integers of the same order, and radix-sorted, last key first. Other
// comparators run once per comparison in a merge sort.
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"
#include "ir/number.h"

enum { MOST_KEYS = 8, BUDGET = 4096, SMALL = 24 };

typedef struct sort_key {
  const vt_op *compare;
  vt_value *value; // key(a), of the parameter for a
  bool descending;
} sort_key;

// The same expression with a in place of b. `budget` bounds the walk.
static bool same_but_side(const vt_func *f, uint32_t own, const vt_value *a, const vt_value *b,
                          int *budget) {
  if (--*budget < 0) return false;
  if (!a->op || !b->op) {
    if (a->op || b->op) return false;
    if ((uint32_t)a->index >= own) return a == b;
    return a->index % 2 == 0 && b->index == a->index + 1 && f->params[a->index] == a;
  }
  if (a->op->code != b->op->code || a->index != b->index ||
      a->op->operand_count != b->op->operand_count || a->op->attr_count != b->op->attr_count ||
      a->op->region_count || b->op->region_count)
    return false;
  for (uint32_t i = 0; i < a->op->attr_count; i++) {
    const vt_attr *other = vt_op_attr(b->op, a->op->attrs[i].key);
    if (!other || !vt_attr_equal(&a->op->attrs[i], other)) return false;
  }
  for (uint32_t i = 0; i < a->op->operand_count; i++)
    if (!same_but_side(f, own, a->op->operands[i], b->op->operands[i], budget)) return false;
  return true;
}

static bool is_compare(const vt_value *v, int64_t direction) {
  return v->op && v->op->code == VT_OP_COMPARE &&
         vt_attr_i64(v->op, VT_ATTR_COMPARISON_DIRECTION) == direction;
}

static bool strict_key(const vt_func *f, uint32_t own, const vt_value *v, sort_key *out) {
  int budget = BUDGET;
  bool less = is_compare(v, VT_CMP_LT);
  if (!less && !is_compare(v, VT_CMP_GT)) return false;
  vt_value *a = v->op->operands[0], *b = v->op->operands[1];
  if (same_but_side(f, own, a, b, &budget)) {
    *out = (sort_key){v->op, a, !less};
    return true;
  }
  budget = BUDGET;
  if (!same_but_side(f, own, b, a, &budget)) return false; // b > a says a < b
  *out = (sort_key){v->op, b, less};
  return true;
}

// The keys of a comparator, most significant first; 0 when it has another form.
static uint32_t find_keys(const vt_func *f, uint32_t own, const vt_value *v, sort_key *keys,
                          uint32_t at) {
  if (at >= MOST_KEYS) return 0;
  if (strict_key(f, own, v, &keys[at])) return at + 1;
  if (!v->op || v->op->code != VT_OP_OR) return 0;
  for (int side = 0; side < 2; side++) {
    const vt_value *first = v->op->operands[side], *rest = v->op->operands[!side];
    if (!strict_key(f, own, first, &keys[at]) || !rest->op || rest->op->code != VT_OP_AND) continue;
    for (int other = 0; other < 2; other++) {
      const vt_value *equal = rest->op->operands[other];
      if (!is_compare(equal, VT_CMP_EQ)) continue;
      const vt_op *e = equal->op, *c = first->op;
      bool same = (e->operands[0] == c->operands[0] && e->operands[1] == c->operands[1]) ||
                  (e->operands[0] == c->operands[1] && e->operands[1] == c->operands[0]);
      if (same) return find_keys(f, own, rest->op->operands[!other], keys, at + 1);
    }
  }
  return 0;
}

// The bits of an f32 or f64 of `bits` bits as an integer of the same order. False for a NaN without
// a total order.
static bool float_code(uint64_t x, int bits, bool total, uint64_t *out) {
  uint64_t sign = (uint64_t)1 << (bits - 1), magnitude = x & (sign - 1);
  uint64_t inf = bits == 32 ? 0x7f800000u : 0x7ff0000000000000u;
  if (!total && magnitude > inf) return false;
  if (!total && !magnitude) x = 0;
  *out = x & sign ? ~x & (sign | (sign - 1)) : x | sign;
  return true;
}

// The codes of f32 keys; a NaN without a total order gets any.
static bool f32_codes(bool total, int64_t n, const float *data, uint64_t *codes) {
  uint32_t nan = 0, flip = 0x80000000u;
  for (int64_t i = 0; i < n; i++) {
    uint32_t x = vt_f32_bits(data[i]), magnitude = x & 0x7fffffffu;
    nan |= magnitude > 0x7f800000u;
    if (!total && !magnitude) x = 0;
    codes[i] = x ^ (x & flip ? 0xffffffffu : flip);
  }
  return total || !nan;
}

// Maps keys to integers of the same order, below 2^32 where the type has no more bits. False when a
// NaN leaves them without an order.
static bool order_codes(const sort_key *key, vt_dtype dtype, int64_t n, const void *data,
                        uint64_t *codes) {
  bool total = vt_attr_i64_or(key->compare, VT_ATTR_COMPARE_TYPE, 0) == VT_CMPTYPE_TOTALORDER;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (dtype == VT_F32) {
    if (!f32_codes(total, n, data, codes)) return false;
  } else if (dtype == VT_S32) {
    for (int64_t i = 0; i < n; i++) codes[i] = (uint32_t)((const int32_t *)data)[i] ^ 0x80000000u;
  } else {
    for (int64_t i = 0; i < n; i++) {
      if (dtype == VT_F64) {
        if (!float_code(vt_f64_bits(((const double *)data)[i]), 64, total, &codes[i])) return false;
      } else if (kind == VT_KIND_FLOAT) {
        float x; // f32 holds every smaller float exactly, in the same order; a NaN's sign survives
        vt_float_widen(dtype, 1, (const char *)data + i * (int64_t)vt_dtype_bytes(dtype), &x);
        if (!float_code(vt_f32_bits(x), 32, total, &codes[i])) return false;
      } else {
        bool wide = vt_dtype_get(dtype)->bits > 32;
        uint64_t sign = kind == VT_KIND_SIGNED ? (uint64_t)1 << (wide ? 63 : 31) : 0;
        codes[i] = (uint64_t)vt_int_load(dtype, data, i) + sign;
      }
    }
  }
  if (key->descending)
    for (int64_t i = 0; i < n; i++) codes[i] = ~codes[i];
  return true;
}

typedef struct coded {
  uint64_t code;
  int64_t index;
} coded;

// Turns counts into where each digit's elements start.
static void place_digits(uint32_t *counts) {
  uint32_t start = 0;
  for (int d = 0; d < 256; d++) {
    uint32_t count = counts[d];
    counts[d] = start;
    start += count;
  }
}

// The same where codes differ in their lower halves only: code and index share a word. More places
// than a byte names would be too many for the caches and the page tables. What all digits hold is
// counted in the first pass.
static void sort_by_half(int64_t n, const uint64_t *codes, int64_t *order, uint32_t differ,
                         uint64_t *words) {
  uint32_t counts[4][256] = {{0}};
  int low = __builtin_ctz(differ), count = (39 - __builtin_clz(differ) - low) / 8;
  uint64_t *from = words, *to = words + n;
  for (int64_t i = 0; i < n; i++) {
    uint32_t code = (uint32_t)codes[order[i]], rest = code >> low;
    from[i] = (uint64_t)code << 32 | (uint32_t)order[i];
    for (int d = 0; d < 4; d++) counts[d][rest >> 8 * d & 255]++;
  }
  for (int d = 0; d < count; d++) {
    int shift = 32 + low + 8 * d;
    place_digits(counts[d]);
    for (int64_t i = 0; i < n; i++) to[counts[d][from[i] >> shift & 255]++] = from[i];
    uint64_t *swap = from;
    from = to;
    to = swap;
  }
  for (int64_t i = 0; i < n; i++) order[i] = (int64_t)(uint32_t)from[i];
}

// Stable sort of `order` by codes[order[i]]: radix, skipping bytes that all codes share. `pairs`
// has room for 2n.
static void sort_by_code(int64_t n, const uint64_t *codes, int64_t *order, coded *pairs) {
  if (n <= SMALL) {
    for (int64_t i = 1; i < n; i++) {
      int64_t x = order[i], j = i;
      for (; j > 0 && codes[order[j - 1]] > codes[x]; j--) order[j] = order[j - 1];
      order[j] = x;
    }
    return;
  }
  coded *from = pairs, *to = pairs + n;
  uint64_t differ = 0;
  for (int64_t i = 0; i < n; i++) differ |= codes[i] ^ codes[0];
  if (!differ) return;
  if (differ <= UINT32_MAX && n <= INT32_MAX) {
    sort_by_half(n, codes, order, (uint32_t)differ, (uint64_t *)(void *)pairs);
    return;
  }
  for (int64_t i = 0; i < n; i++) from[i] = (coded){codes[order[i]], order[i]};
  for (int shift = 0; shift < 64; shift += 8) {
    if (!(differ >> shift & 0xff)) continue;
    int64_t starts[257] = {0};
    for (int64_t i = 0; i < n; i++) starts[(from[i].code >> shift & 0xff) + 1]++;
    for (int b = 0; b < 256; b++) starts[b + 1] += starts[b];
    for (int64_t i = 0; i < n; i++) to[starts[from[i].code >> shift & 0xff]++] = from[i];
    coded *swap = from;
    from = to;
    to = swap;
  }
  for (int64_t i = 0; i < n; i++) order[i] = from[i].index;
}

typedef struct sorter {
  const vt_eval_call *call;
  uint32_t inputs, key_count;
  sort_key keys[MOST_KEYS];
  char *key_data[MOST_KEYS]; // keys of all elements
  vt_region compare;
  bool compare_open;
  int64_t n, step; // line length, distance between its elements
  int64_t *order, *spare;
  coded *pairs;
  uint64_t *codes;
  char *line_keys;
} sorter;

static vt_status less(sorter *s, int64_t base, int64_t a, int64_t b, bool *out) {
  const void *args[2 * 64];
  uint8_t answer = 0;
  void *result = &answer;
  for (uint32_t i = 0; i < s->inputs; i++) {
    const char *data = s->call->in[i].data;
    int64_t bytes = (int64_t)vt_dtype_bytes(s->call->in[i].type.dtype);
    args[2 * i] = data + (base + a * s->step) * bytes;
    args[2 * i + 1] = data + (base + b * s->step) * bytes;
  }
  VT_TRY(vt_region_run(&s->compare, 1, args, &result));
  *out = answer;
  return VT_OK;
}

static vt_status merge_sort(sorter *s, int64_t base) {
  int64_t *from = s->order, *to = s->spare;
  for (int64_t run = 1; run < s->n; run *= 2) {
    for (int64_t at = 0; at < s->n; at += 2 * run) {
      int64_t mid = at + run < s->n ? at + run : s->n,
              end = at + 2 * run < s->n ? at + 2 * run : s->n;
      int64_t i = at, j = mid, k = at;
      while (i < mid && j < end) {
        bool second;
        VT_TRY(less(s, base, from[j], from[i], &second));
        to[k++] = second ? from[j++] : from[i++];
      }
      while (i < mid) to[k++] = from[i++];
      while (j < end) to[k++] = from[j++];
    }
    int64_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != s->order) memcpy(s->order, from, sizeof *from * (size_t)s->n);
  return VT_OK;
}

// Sorts one line's order by keys, or by the comparator where they do not apply.
static vt_status sort_line(sorter *s, int64_t base) {
  for (int64_t i = 0; i < s->n; i++) s->order[i] = i;
  bool done = s->key_count > 0;
  for (uint32_t k = s->key_count; k-- > 0 && done;) {
    vt_dtype dtype = s->keys[k].value->type.dtype;
    size_t bytes = vt_dtype_bytes(dtype);
    const char *line = s->key_data[k] + (size_t)base * bytes;
    if (s->step != 1) {
      vt_eval_move(bytes, 1, &s->n, line, &s->step, s->line_keys, &(int64_t){1});
      line = s->line_keys;
    }
    done = order_codes(&s->keys[k], dtype, s->n, line, s->codes);
    if (done) sort_by_code(s->n, s->codes, s->order, s->pairs);
  }
  if (done) return VT_OK;
  if (!s->compare_open) {
    VT_TRY(vt_region_open(s->call, s->call->op->regions[0], 1, &s->compare));
    s->compare_open = true;
  }
  for (int64_t i = 0; i < s->n; i++) s->order[i] = i;
  return merge_sort(s, base);
}

static vt_status compute_keys(sorter *s, int64_t total) {
  const vt_func *f = s->call->op->regions[0];
  const void *args[2 * 64];
  vt_value *values[MOST_KEYS];
  vt_region region;
  for (uint32_t i = 0; i < s->inputs; i++) args[2 * i] = args[2 * i + 1] = s->call->in[i].data;
  for (uint32_t k = 0; k < s->key_count; k++) {
    vt_dtype dtype = s->keys[k].value->type.dtype;
    if (vt_dtype_is_complex(dtype)) {
      s->key_count = 0;
      return VT_OK;
    }
    values[k] = s->keys[k].value;
  }
  vt_status st = vt_region_open_values(s->call, f, s->key_count, values, total, &region);
  if (vt_status_code(st) == VT_UNIMPLEMENTED) {
    vt_status_free(st);
    s->key_count = 0;
    return VT_OK;
  }
  if (st) return st;
  for (uint32_t k = 0; k < s->key_count && !st; k++)
    st = vt_eval_scratch(total * (int64_t)vt_dtype_bytes(values[k]->type.dtype), &s->key_data[k]);
  void *results[MOST_KEYS];
  for (uint32_t k = 0; k < s->key_count; k++) results[k] = s->key_data[k];
  if (!st) st = vt_region_run(&region, total, args, results);
  vt_region_close(&region);
  return st;
}

static void write_line(const sorter *s, int64_t base) {
  for (uint32_t i = 0; i < s->inputs; i++) {
    size_t bytes = vt_dtype_bytes(s->call->in[i].type.dtype);
    const char *from = (const char *)s->call->in[i].data + (size_t)base * bytes;
    char *to = (char *)s->call->out[i].data + (size_t)base * bytes;
    size_t step = (size_t)s->step * bytes;
    if (bytes == 4) {
      for (int64_t j = 0; j < s->n; j++)
        memcpy(to + (size_t)j * step, from + (size_t)s->order[j] * step, 4);
    } else {
      for (int64_t j = 0; j < s->n; j++)
        memcpy(to + (size_t)j * step, from + (size_t)s->order[j] * step, bytes);
    }
  }
}

vt_status vt_eval_sort(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_type type = call->out[0].type;
  int64_t d = vt_attr_i64(op, VT_ATTR_DIMENSION), total = vt_type_elements(type);
  sorter s = {.call = call, .inputs = op->result_count, .step = 1};
  if (d < 0) d += type.rank;
  if (d < 0 || d >= type.rank || s.inputs > 64) return vt_eval_invalid(op, "dimension");
  if (!total) return VT_OK;
  s.n = type.dims[d];
  for (int64_t i = d + 1; i < type.rank; i++) s.step *= type.dims[i];
  const vt_func *f = op->regions[0];
  if (f->param_count != 2 * s.inputs + op->capture_count || f->return_count != 1)
    return vt_eval_invalid(op, "comparator");
  vt_status st = VT_OK;
  s.key_count = find_keys(f, 2 * s.inputs, f->returns[0], s.keys, 0);
  if (s.key_count) VT_TRY_OUT(compute_keys(&s, total));
  VT_TRY_OUT(vt_eval_scratch(s.n * 8, &s.order));
  VT_TRY_OUT(vt_eval_scratch(s.n * 8, &s.spare));
  VT_TRY_OUT(vt_eval_scratch(s.n * 8, &s.codes));
  VT_TRY_OUT(vt_eval_scratch(2 * s.n * (int64_t)sizeof *s.pairs, &s.pairs));
  VT_TRY_OUT(vt_eval_scratch(s.n * 16, &s.line_keys));
  for (int64_t outer = 0; outer < total / (s.n * s.step); outer++)
    for (int64_t inner = 0; inner < s.step; inner++) {
      int64_t base = outer * s.n * s.step + inner;
      VT_TRY_OUT(sort_line(&s, base));
      write_line(&s, base);
    }
out:
  for (int k = 0; k < MOST_KEYS; k++) free(s.key_data[k]);
  if (s.compare_open) vt_region_close(&s.compare);
  free(s.order);
  free(s.spare);
  free(s.codes);
  free(s.pairs);
  free(s.line_keys);
  return st;
}
