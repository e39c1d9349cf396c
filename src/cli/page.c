// SPDX-License-Identifier: Apache-2.0
// page.c - what the pages of `vtpu predict`, `sweep` and `run` have in common.
#include "cli/page.h"

#include "base/file.h"
#include "cli/cli.h"

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:66rem;padding:0 1rem}\n"
    "th{text-align:left;padding-right:1.5rem;vertical-align:top;white-space:nowrap}\n"
    "td{padding-right:1.5rem;vertical-align:top;white-space:nowrap}\n"
    "td:last-child,.place,code{white-space:normal;overflow-wrap:anywhere}\n"
    "svg{width:100%;font:12px system-ui,sans-serif}\nsvg text{fill:currentColor}\n"
    ".bar{background:#8884;height:.7rem;margin:.5rem 0 0;min-width:20rem}\n"
    ".bar div{background:#1a73e8;height:100%}\n"
    "@media(prefers-color-scheme:dark){body{background:#202124;color:#e8eaed}}\n";

const char *vt_cli_bound_color(vt_bound bound) {
  static const char *const colors[VT_BOUND_COUNT] = {
      [VT_BOUND_MXU] = "#1a73e8", [VT_BOUND_VPU] = "#9334e6",    [VT_BOUND_HBM] = "#e8710a",
      [VT_BOUND_ICI] = "#12b5a6", [VT_BOUND_LAUNCH] = "#80868b",
  };
  return colors[bound];
}

void vt_cli_begin_page(vt_text *out, const char *title, const char *heading) {
  vt_text_printf(out,
                 "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n"
                 "<style>\n%s</style></head>\n<body><h1>",
                 title, style);
  vt_cli_put_escaped(out, heading);
  vt_text_put(out, "</h1>\n");
}

vt_status vt_cli_end_page(vt_text *out, const char *path) {
  vt_text_put(out, "</body></html>\n");
  vt_status st = vt_file_write(path, vt_text_string(out), out->size);
  vt_text_free(out);
  return st;
}
