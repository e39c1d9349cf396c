# SPDX-License-Identifier: Apache-2.0
"""`python -m vtpu`: the command `vtpu`; without words, `vtpu info`, which says where the library is."""

import os
import sys

from vtpu.slices import program_path


def main():
    path = program_path()
    os.environ.setdefault("VTPU_PYTHON", sys.executable)  # that of `vtpu tf`
    os.execv(path, ["vtpu", *sys.argv[1:]])


def daemon():
    """`vtpud` of the Python package, which does not have it."""
    sys.exit(
        "vtpud: the Python package has no daemon, which needs a system's libraries (PostgreSQL's, GnuTLS, SQLite). "
        "Install vtpud's Debian package, or build it: docs/how-to/install.md"
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv.append("info")
    main()
