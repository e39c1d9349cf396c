// SPDX-License-Identifier: Apache-2.0
// mosaic_ir.c - the rows of mosaic.def and mosaic_attrs.def; queries on kernels.
#include "mosaic/mosaic_ir.h"

#include <inttypes.h>
#include <string.h>

#include "mosaic/mosaic_rules.h"

enum { B = 1 << VT_KIND_BOOL, I = 1 << VT_KIND_SIGNED, F = 1 << VT_KIND_FLOAT };

#define KEYS1(a)                    VT_MATTR_##a, VT_MATTR_NONE
#define KEYS2(a, b)                 VT_MATTR_##a, KEYS1(b)
#define KEYS3(a, b, c)              VT_MATTR_##a, KEYS2(b, c)
#define KEYS4(a, b, c, d)           VT_MATTR_##a, KEYS3(b, c, d)
#define PICK(a, b, c, d, keys, ...) keys
#define KEYS(...)                   PICK(__VA_ARGS__, KEYS4, KEYS3, KEYS2, KEYS1, )(__VA_ARGS__)

#define S false
#define U true
static const vt_mop_info infos[] = {
#define MOP(code, text, least, most, results, regions, kinds, rule, run, loop, sign, ...)          \
  [VT_MOP_##code] = {text,                                                                         \
                     least,                                                                        \
                     most,                                                                         \
                     results,                                                                      \
                     regions,                                                                      \
                     kinds,                                                                        \
                     VT_OP_##loop,                                                                 \
                     sign,                                                                         \
                     vt_mosaic_rule_##rule,                                                        \
                     (const vt_mattr_key[]){KEYS(__VA_ARGS__)}},
#define REFUSED(text, what)
#include "mosaic/mosaic.def"
#undef MOP
#undef REFUSED
};
#undef S
#undef U

const vt_mop_info *vt_mop_info_get(vt_mopcode code) {
  return &infos[code];
}

static const struct {
  const char *name;
  vt_mattr_kind kind;
  bool required;
} attrs[] = {
    [VT_MATTR_NONE] = {"?", VT_MATTR_KIND_SKIP, false},
#define MATTR(key, name, kind, required) [VT_MATTR_##key] = {name, VT_MATTR_KIND_##kind, required},
#define MWORD(word, text)
#include "mosaic/mosaic_attrs.def"
#undef MWORD
#undef MATTR
};

const char *vt_mattr_name(vt_mattr_key key) {
  return attrs[key].name;
}
vt_mattr_kind vt_mattr_kind_of(vt_mattr_key key) {
  return attrs[key].kind;
}
bool vt_mattr_required(vt_mattr_key key) {
  return attrs[key].required;
}

static const char *const words[] = {
    [VT_MWORD_NONE] = "?",
#define MATTR(...)
#define MWORD(word, text) [VT_MWORD_##word] = text,
#include "mosaic/mosaic_attrs.def"
#undef MWORD
#undef MATTR
};

vt_mword vt_mword_find(vt_string text) {
  for (int i = 1; i < VT_MWORD_COUNT; i++)
    if (strlen(words[i]) == text.size && !memcmp(words[i], text.data, text.size))
      return (vt_mword)i;
  return VT_MWORD_NONE;
}
const char *vt_mword_text(vt_mword word) {
  return words[word];
}

const char *vt_mspace_text(vt_mspace space) {
  static const char *const texts[] = {"any",  "vmem",          "smem",        "hbm",
                                      "cmem", "semaphore_mem", "vmem_shared", "host"};
  return texts[space];
}

const vt_mattr *vt_mop_attr(const vt_mop *op, vt_mattr_key key) {
  for (uint32_t i = 0; i < op->attr_count; i++)
    if (op->attrs[i].key == key) return &op->attrs[i];
  return NULL;
}

int64_t vt_mop_i64(const vt_mop *op, vt_mattr_key key, int64_t otherwise) {
  const vt_mattr *attr = vt_mop_attr(op, key);
  return attr ? attr->i64 : otherwise;
}

const int64_t *vt_mattr_list(const vt_mattr *attr, uint32_t index, uint32_t *out_count) {
  *out_count = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; attr && at < attr->count; i++) {
    uint32_t size = (uint32_t)attr->ints[at++];
    if (i == index) {
      *out_count = size;
      return attr->ints + at;
    }
    at += size;
  }
  return NULL;
}

vt_mvalue **vt_mop_group(const vt_mop *op, uint32_t group, uint32_t *out_count) {
  const vt_mattr *segments = vt_mop_attr(op, VT_MATTR_SEGMENTS);
  uint32_t at = 0;
  *out_count = 0;
  if (!segments || group >= segments->count) return NULL;
  for (uint32_t i = 0; i < group; i++) at += (uint32_t)segments->ints[i];
  *out_count = (uint32_t)segments->ints[group];
  return op->operands + at;
}

vt_mvalue *vt_mop_optional(const vt_mop *op, uint32_t group) {
  uint32_t count;
  vt_mvalue **values = vt_mop_group(op, group, &count);
  return count ? values[0] : NULL;
}

int64_t vt_mtype_elements(vt_mtype type) {
  int64_t n = 1;
  for (int32_t d = 0; d < type.rank; d++) {
    if (type.dims[d] < 0) return -1;
    n *= type.dims[d];
  }
  return n;
}

bool vt_mtype_same_dims(vt_mtype a, vt_mtype b) {
  if (a.rank != b.rank) return false;
  for (int32_t d = 0; d < a.rank; d++)
    if (a.dims[d] != b.dims[d]) return false;
  return true;
}

bool vt_mtype_equal(vt_mtype a, vt_mtype b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.semaphore == b.semaphore &&
         vt_mtype_same_dims(a, b);
}

void vt_mtype_print(vt_text *text, vt_mtype type) {
  static const char *const semaphores[] = {"", "!tpu.semaphore", "!tpu.dma_semaphore"};
  const char *element = type.semaphore         ? semaphores[type.semaphore]
                        : type.dtype == VT_S64 ? "index"
                                               : vt_dtype_get(type.dtype)->text;
  if (type.kind == VT_MSCALAR) {
    vt_text_put(text, element);
    return;
  }
  vt_text_put(text, type.kind == VT_MVECTOR ? "vector<" : "memref<");
  for (int32_t d = 0; d < type.rank; d++) {
    if (type.dims[d] < 0)
      vt_text_put(text, "?x");
    else
      vt_text_printf(text, "%" PRId64 "x", type.dims[d]);
  }
  vt_text_put(text, element);
  if (type.kind == VT_MREF)
    vt_text_printf(text, ", #tpu.memory_space<%s>", vt_mspace_text(type.space));
  vt_text_put(text, ">");
}

vt_status vt_mop_error(const vt_mop *op, vt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(code, format, args);
  va_end(args);
  const vt_loc *loc = op->loc;
  const char *text = infos[op->code].text;
  if (loc->name[0] && loc->file[0])
    return vt_status_wrap(st, "%s at %s (%s:%d)", text, loc->name, loc->file, loc->line);
  if (loc->file[0]) return vt_status_wrap(st, "%s at %s:%d", text, loc->file, loc->line);
  if (loc->name[0]) return vt_status_wrap(st, "%s at %s", text, loc->name);
  return vt_status_wrap(st, "%s", text);
}
