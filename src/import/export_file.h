// SPDX-License-Identifier: Apache-2.0
// export_file.h - the file that jax.export writes (`Exported.serialize()`, a table of FlatBuffers).
#ifndef VT_IMPORT_EXPORT_FILE_H
#define VT_IMPORT_EXPORT_FILE_H

#include "import/import.h"

// The program in such a file; all of any other.
vt_bytes vt_export_program(vt_bytes file);

#endif
