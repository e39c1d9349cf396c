// SPDX-License-Identifier: Apache-2.0
// collectives.c - which passes over the program of one device are on, and their runner.
#include "passes/collectives.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/rewrite.h"

static const struct {
  const char *name;
  vt_collective_fn *run;
} passes[VT_COLLECTIVE_COUNT] = {
#define COLLECTIVE(id, name, what) {name, vt_opt_##id},
#include "passes/collectives.def"
#undef COLLECTIVE
};

const char vt_collectives_help[] = "with --partitioned: the passes that run on it afterwards, of"
#define COLLECTIVE(id, name, what) " " name
#include "passes/collectives.def"
#undef COLLECTIVE
    ;

// What XLA's published settings say where nobody says otherwise.
static const vt_combine_limits default_limits = {30 * 1024 * 1024 + 7, 256};

vt_collective_options vt_collectives_default(void) {
  vt_collective_options options = {.all_reduce = default_limits, .others = default_limits};
  const char *skip = getenv("VTPU_SKIP_PASSES");
  for (int i = 0; skip && i < VT_COLLECTIVE_COUNT; i++)
    options.off[i] = vt_pass_listed(skip, strlen(skip), passes[i].name);
  return options;
}

static int pass_named(const char *name, size_t size) {
  for (int i = 0; i < VT_COLLECTIVE_COUNT; i++)
    if (vt_pass_listed(name, size, passes[i].name)) return i;
  return -1;
}

static vt_status unknown_pass(const char *name, size_t size) {
  vt_text all = {0};
  for (int i = 0; i < VT_COLLECTIVE_COUNT; i++)
    vt_text_printf(&all, "%s%s", i ? ", " : "", passes[i].name);
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "no pass is called '%.*s'; there are all, %s",
                          (int)(size < 80 ? size : 80), name, vt_text_string(&all));
  vt_text_free(&all);
  return st;
}

vt_status vt_collectives_only(vt_collective_options *options, const char *list) {
  bool all = !strcmp(list, "all");
  for (int i = 0; i < VT_COLLECTIVE_COUNT; i++) options->off[i] = !all;
  for (const char *at = list; !all && *at;) {
    size_t size = strcspn(at, ",");
    int pass = pass_named(at, size);
    if (pass < 0) return unknown_pass(at, size);
    options->off[pass] = false;
    at += size + (at[size] == ',');
  }
  return VT_OK;
}

// ---- flags --------------------------------------------------------------------------------------

static vt_status read_number(const char *name, const char *value, size_t size, int64_t *out) {
  char copy[32] = {0}, *end = copy;
  if (size && size < sizeof copy) *out = strtoll(memcpy(copy, value, size), &end, 10);
  if (end == copy || *end)
    return vt_error(VT_INVALID_ARGUMENT, "flag %s: '%.*s' is not a number", name,
                    (int)(size < 80 ? size : 80), value);
  return VT_OK;
}

static bool is_named(const char *flag, size_t size, const char *name) {
  return strlen(name) == size && !memcmp(flag, name, size);
}

static vt_status apply(vt_collective_options *options, const char *flag, size_t name_size,
                       const char *value, size_t size) {
  static const char bytes[] = "xla_jf_crs_combiner_threshold_in_bytes",
                    count[] = "xla_jf_crs_combiner_threshold_count";
  bool only = is_named(flag, name_size, "xla_enable_hlo_passes_only");
  if (only || is_named(flag, name_size, "xla_disable_hlo_passes"))
    for (int i = 0; i < VT_COLLECTIVE_COUNT; i++)
      if (vt_pass_listed(value, size, passes[i].name) != only) options->off[i] = true;
  if (is_named(flag, name_size, bytes))
    return read_number(bytes, value, size, &options->all_reduce.bytes);
  if (is_named(flag, name_size, count))
    return read_number(count, value, size, &options->all_reduce.count);
  return VT_OK;
}

vt_status vt_collectives_flags(vt_collective_options *options, const char *flags) {
  static const char space[] = " \t\n";
  for (const char *at = flags; at && *(at += strspn(at, space));) {
    size_t size = strcspn(at, space);
    const char *end = at + size, *name = at + strspn(at, "-");
    if (name > end) name = end;
    const char *value = memchr(name, '=', (size_t)(end - name));
    if (value)
      VT_TRY(apply(options, name, (size_t)(value - name), value + 1, (size_t)(end - value - 1)));
    at = end;
  }
  return VT_OK;
}

// ---- the runner ---------------------------------------------------------------------------------

// The others take the place of all that they drop.
static bool leaves_unused(vt_collective_fn *run) {
  return run == vt_opt_while_loop_invariant_code_motion || run == vt_opt_reduce_scatter_creator;
}

vt_status vt_collectives_run(vt_module *module, const vt_collective_options *options) {
  vt_arena scratch = {.brief = true};
  vt_status st = VT_OK;
  bool unused = false;
  for (int i = 0; i < VT_COLLECTIVE_COUNT && !st; i++) {
    bool changed = false;
    if (options->off[i]) continue;
    st = passes[i].run(module, options, &scratch, &changed);
    vt_arena_reset(&scratch);
    unused |= changed && leaves_unused(passes[i].run);
    if (!st && changed && vt_verify_wanted())
      st = vt_status_wrap(vt_module_verify(module), "after pass %s", passes[i].name);
  }
  if (!st && unused) st = vt_opt_dce(module, &(vt_pass_options){0}, &scratch, &unused);
  vt_arena_free(&scratch);
  return st;
}
