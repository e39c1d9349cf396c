// SPDX-License-Identifier: Apache-2.0
// mosaic_fixture.h - the backend_config of a kernel's bytecode, for tests and fuzz targets.
#ifndef VT_MOSAIC_MOSAIC_FIXTURE_H
#define VT_MOSAIC_MOSAIC_FIXTURE_H

#include "base/file.h"
#include "base/text.h"

static void fixture_base64(vt_text *text, vt_bytes bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size; i += 3) {
    uint32_t word = (uint32_t)bytes.data[i] << 16;
    if (i + 1 < bytes.size) word |= (uint32_t)bytes.data[i + 1] << 8;
    if (i + 2 < bytes.size) word |= bytes.data[i + 2];
    char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                    i + 1 < bytes.size ? digits[word >> 6 & 63] : '=',
                    i + 2 < bytes.size ? digits[word & 63] : '='};
    vt_text_put_n(text, four, 4);
  }
}

// `before` are fields in front of the config, each with its comma.
static inline void fixture_config(vt_bytes body, const char *before, vt_text *out) {
  vt_text_printf(out, "{%s\"custom_call_config\": {\"body\": \"", before);
  fixture_base64(out, body);
  vt_text_put(out, "\", \"serialization_format\": 1, \"needs_layout_passes\": true}}");
}

#endif
