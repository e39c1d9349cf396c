// SPDX-License-Identifier: Apache-2.0
// compiled.c - one line for each compilation of this process, in the file "compiled-PID" of the
// folder that VTPU_COMPILED names: `vtpu run` tells from them what was compiled again, and why.
//
// A line is fields between tabs: nanoseconds, fingerprint, name, place of the call, and for each
// argument its name in the user's tree and its type. Tabs and other control characters in names
// are written as spaces.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime_internal.h"

enum { MOST_ARGUMENTS = 4096, MOST_CALLERS = 32, MOST_OPS = 64 };

static void put_plain(vt_text *out, const char *text) {
  for (const char *at = text; *at; at++) {
    char c = (unsigned char)*at < ' ' ? ' ' : *at;
    vt_text_put_n(out, &c, 1);
  }
}

// Where the user calls the program: of the places that called all of its operators the innermost.
// NULL: they have none in common.
static const vt_loc *call_of(const vt_func *main) {
  const vt_loc *common[MOST_CALLERS];
  int count = -1, seen = 0;
  for (const vt_op *op = main->first; op && count && seen < MOST_OPS; op = op->next) {
    const vt_loc *chain[MOST_CALLERS];
    int length = 0;
    for (const vt_loc *at = op->loc->caller; at && length < MOST_CALLERS; at = at->caller)
      chain[length++] = at;
    if (!length) continue;
    seen++;
    if (count < 0) {
      memcpy(common, chain, sizeof chain);
      count = length;
      continue;
    }
    int same = 0;
    while (same < count && same < length) {
      const vt_loc *a = common[count - 1 - same], *b = chain[length - 1 - same];
      if (a->line != b->line || strcmp(a->file, b->file) != 0) break;
      same++;
    }
    memmove(common, common + (count - same), sizeof *common * (size_t)same);
    count = same;
  }
  return count > 0 ? common[0] : NULL;
}

static void put_type(vt_text *out, vt_type type) {
  vt_text_printf(out, "%s[", vt_dtype_get(type.dtype)->text);
  for (int32_t d = 0; d < type.rank; d++)
    vt_text_printf(out, "%s%" PRId64, d ? "," : "", type.dims[d]);
  vt_text_put(out, "]");
}

static const char *folder_of(void) {
  const char *folder = getenv("VTPU_COMPILED");
  return folder && *folder ? folder : NULL;
}

const char *vt_compiled_describe(const vt_module *module, vt_arena *arena) {
  if (!folder_of()) return NULL;
  vt_text line = {0};
  const vt_func *main = module->main;
  const vt_loc *call = call_of(main);
  put_plain(&line, module->name ? module->name : "");
  vt_text_put(&line, "\t");
  if (call && call->file[0]) {
    put_plain(&line, call->file);
    vt_text_printf(&line, ":%" PRId32, call->line);
  }
  for (uint32_t i = 0; i < main->param_count && i < MOST_ARGUMENTS; i++) {
    vt_text_put(&line, "\t");
    put_plain(&line, main->param_info ? main->param_info[i].name : "");
    vt_text_put(&line, "\t");
    put_type(&line, main->params[i]->type);
  }
  const char *text = vt_arena_printf(arena, "%s", vt_text_string(&line));
  vt_text_free(&line);
  return text;
}

void vt_compiled_add(const vt_executable *executable, uint64_t ns) {
  const char *folder = folder_of();
  char path[512];
  if (!folder || !executable->described) return;
  int n = snprintf(path, sizeof path, "%s/compiled-%ld", folder, (long)getpid());
  if (n >= (int)sizeof path) return;
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  vt_text line = {0};
  vt_text_printf(&line, "%" PRIu64 "\t%" PRIx64 "\t%s\n", ns, executable->info.fingerprint,
                 executable->described);
  (void)!write(fd, line.data, line.size); // a report lacks a line, no more
  vt_text_free(&line);
  close(fd);
}
