// SPDX-License-Identifier: Apache-2.0
// passes.c - the runner: each pass in order, the module verified after each one in debug builds and
// when VTPU_VERIFY_PASSES is set.
#include "base/check.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "passes/rewrite.h"

static vt_status visit_all(vt_func *func, vt_func_visitor *visit, void *user) {
  vt_assert(!func->first || (!func->first->prev && !func->last->next));
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->region_count; i++) VT_TRY(visit_all(op->regions[i], visit, user));
  vt_assert(!func->last || func->last->func == func);
  return visit(func, user);
}

vt_status vt_rewrite_each_func(vt_module *module, vt_func_visitor *visit, void *user) {
  return visit_all(module->main, visit, user);
}

static const struct {
  const char *name;
  vt_pass *run;
} pipeline[] = {
#define PASS(name, what)       {#name, vt_opt_##name},
#define PASS_AGAIN(name, what) {#name, vt_opt_##name},
#include "passes/pipeline.def"
#undef PASS
};

static bool listed(const char *list, const char *name) {
  size_t size = strlen(name);
  for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (!strncmp(at, name, size) && (at[size] == ',' || !at[size])) return true;
  return false;
}

static bool verify_wanted(void) {
#ifdef NDEBUG
  return getenv("VTPU_VERIFY_PASSES") != NULL;
#else
  return true;
#endif
}

vt_status vt_passes_run(vt_module *module, const vt_pass_options *options) {
  const char *skip = options->skip ? options->skip : getenv("VTPU_SKIP_PASSES");
  bool verify = verify_wanted();
  vt_arena scratch = {0};
  vt_status st = VT_OK;
  for (size_t i = 0; i < sizeof pipeline / sizeof *pipeline; i++) {
    // Without inlining, later stages would see calls, which they do not support.
    if (listed(skip, pipeline[i].name) && strcmp(pipeline[i].name, "inline")) continue;
    bool changed = false;
    VT_TRY_OUT(pipeline[i].run(module, options, &scratch, &changed));
    vt_arena_reset(&scratch);
    if (verify && changed && (st = vt_module_verify(module))) {
      st = vt_status_wrap(st, "after pass %s", pipeline[i].name);
      goto out;
    }
  }
out:
  vt_arena_free(&scratch);
  return st;
}
