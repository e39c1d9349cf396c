# SPDX-License-Identifier: Apache-2.0
"""The location of vtpu's library, and reports: of what this process does on the slice, of what a program would do.

    import vtpu
    vtpu.watch()        # before JAX opens the devices
    ...
    print(vtpu.report())                                          # this process so far
    print(vtpu.report(jax.jit(step).lower(x), on="v5litepod-256"))  # a program

Nothing here is needed to run a program: JAX_PLATFORMS and TPU_LIBRARY_PATH are enough for that (`./dev env`).
"""

from vtpu.table import Report, Row
from vtpu.reports import report, watch
from vtpu.slices import library_path, slice_name

__all__ = ["Report", "Row", "library_path", "report", "slice_name", "watch"]
