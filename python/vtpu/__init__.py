# SPDX-License-Identifier: Apache-2.0
"""The location of vtpu's library, and what it reports about a slice and about programs compiled for it.

Nothing here is needed to run a program: JAX_PLATFORMS and TPU_LIBRARY_PATH are enough for that (`./dev env`).
"""

from vtpu.report import Report, Row
from vtpu.slices import library_path, slice_name

__all__ = ["Report", "Row", "library_path", "slice_name"]
