# SPDX-License-Identifier: Apache-2.0
"""Where vtpu's library is, and what it can say about a slice and about programs compiled for it.

Nothing here is needed to run a program: that takes JAX_PLATFORMS and TPU_LIBRARY_PATH alone (`./dev env`).
"""

from vtpu.report import Report, Row
from vtpu.slices import library_path, slice_name

__all__ = ["Report", "Row", "library_path", "slice_name"]
