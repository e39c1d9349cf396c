# SPDX-License-Identifier: Apache-2.0
"""Runs all cells of a notebook in a kernel, as `jupyter execute` does, and prints what they print.

notebook.py FILE.ipynb
"""

import os
import sys
import tempfile

# The kernel's own files, which are no part of a user's folder.
folder = tempfile.TemporaryDirectory()
os.environ |= {"IPYTHONDIR": folder.name, "JUPYTER_RUNTIME_DIR": folder.name, "JUPYTER_CONFIG_DIR": folder.name}

import nbclient  # noqa: E402
import nbformat  # noqa: E402

notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=1200).execute()
finally:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            print(output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", ""))
