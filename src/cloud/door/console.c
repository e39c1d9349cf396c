// SPDX-License-Identifier: Apache-2.0
// console.c - the files of the web console, embedded in the program: no build step, no files to
// install.
#include <string.h>

#include "cloud/api/handlers.h"

static const unsigned char index_html[] = {
#include "cloud/index.html.inc"
};
static const unsigned char console_js[] = {
#include "cloud/console.js.inc"
};
static const unsigned char terminal_js[] = {
#include "cloud/terminal.js.inc"
};
static const unsigned char console_css[] = {
#include "cloud/console.css.inc"
};

static const struct file {
  const char *name, *type;
  const unsigned char *bytes;
  size_t size;
} files[] = {{"index.html", "text/html; charset=UTF-8", index_html, sizeof index_html},
             {"console.js", "text/javascript; charset=UTF-8", console_js, sizeof console_js},
             {"terminal.js", "text/javascript; charset=UTF-8", terminal_js, sizeof terminal_js},
             {"console.css", "text/css; charset=UTF-8", console_css, sizeof console_css}};

vt_status vt_console_file(vt_call *call) {
  const char *name = vt_call_param(call, "file");
  if (!*name) name = "index.html";
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    if (strcmp(files[i].name, name) != 0) continue;
    call->content_type = files[i].type;
    vt_call_reply_header(call, "Content-Security-Policy",
                         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                         "'self'; img-src 'self'; form-action 'self'; "
                         "base-uri 'none'; frame-ancestors 'none'");
    vt_call_reply_header(call, "Cache-Control", "no-cache"); // embedded in the program; has an ETag
    vt_text_put_n(&call->raw, files[i].bytes, files[i].size);
    return VT_OK;
  }
  return vt_error(VT_NOT_FOUND, "The requested URL %s was not found on this server.", call->path);
}
