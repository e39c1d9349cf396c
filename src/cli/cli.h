// SPDX-License-Identifier: Apache-2.0
// cli.h - the commands of `vtpu` and their shared functions.
#ifndef VT_CLI_CLI_H
#define VT_CLI_CLI_H

#include <limits.h>

#include "base/command.h"
#include "base/file.h"
#include "chip/chip.h"
#include "vtpu/vtpu.h"

// Each returns the exit code of the program.
int vt_cli_exec(const vt_args *args);
int vt_cli_compile(const vt_args *args);
int vt_cli_predict(const vt_args *args);
int vt_cli_compare(const vt_args *args);
int vt_cli_slices(const vt_args *args);
int vt_cli_sweep(const vt_args *args);
int vt_cli_validate(const vt_args *args);
int vt_cli_run(const vt_args *args);
int vt_cli_report(const vt_args *args);
int vt_cli_tf(const vt_args *args);
int vt_cli_info(const vt_args *args);

// The file of libvtpu.so, which holds this code.
vt_status vt_cli_library(char out_path[PATH_MAX]) VT_CHECKED;
// The Python of VTPU_PYTHON, else python3. From here on PYTHONPATH leads it to the package vtpu.
vt_status vt_cli_python(const char **out_program) VT_CHECKED;
// The slice that a name means; NULL = the default. errors NOT_FOUND, with similar names
vt_status vt_cli_slice(const char *name, vt_slice *out_slice) VT_CHECKED;
struct vt_prediction;
struct vt_padding_advice;
// A prediction as a page of HTML that refers to nothing outside (predict_page.c), and as a trace
// for Perfetto and chrome://tracing (predict_trace.c), or for XProf (likewise). errors:
// those of the file
vt_status vt_cli_write_page(const struct vt_prediction *prediction,
                            const struct vt_padding_advice *advice, const vt_slice *slice,
                            const char *program, const char *path) VT_CHECKED;
vt_status vt_cli_write_trace(const struct vt_prediction *prediction, const vt_slice *slice,
                             const char *program, const char *path) VT_CHECKED;
vt_status vt_cli_write_xspace(const struct vt_prediction *prediction, const vt_slice *slice,
                              const char *program, const char *path) VT_CHECKED;
void vt_cli_put_escaped(vt_text *out, const char *text); // for HTML

// Maps the file of a program. errors of vt_file_map, a missing one with the nearest name beside it;
// INVALID_ARGUMENT: it is empty
vt_status vt_cli_map_program(const char *path, vt_bytes *out_bytes) VT_CHECKED;
// The slice of a command with the flags --slice and --chip: of chips as the file describes them,
// in `arena`.
vt_status vt_cli_slice_with(const vt_args *args, vt_arena *arena, vt_slice *out_slice) VT_CHECKED;
// What the flags of PRICES say of the slice's price.
vt_status vt_cli_price(const vt_args *args, vt_slice *slice) VT_CHECKED;
// Prints "vtpu WORD: message", frees the error, returns the exit code 1.
int vt_cli_fail(const char *word, vtpu_error *error);
// "1.5 GiB", "3.2 GFLOP", "12.5 us": in a ring of static buffers, valid for the next few calls.
const char *vt_cli_bytes(double bytes);
const char *vt_cli_count(double value, const char *unit);
const char *vt_cli_seconds(double seconds);

#endif
