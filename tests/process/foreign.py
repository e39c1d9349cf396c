#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an assembler file that defines every name defined by the given shared libraries, as functions that report
which one was called and end the process. Loaded globally, it takes the place of TensorFlow's library in a process.

    foreign.py OUT.s LIBRARY ...
"""

import re
import subprocess
import sys

# Symbols that the linker adds to every library.
OWN = {"_init", "_fini", "_edata", "_end", "__bss_start"}


def names(library):
    out = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[0].split("@")[0] for line in out.splitlines() if re.match(r"[\w.$]+(@\S*)? [TWVuBDRi] ", line)} - OWN


def main():
    out, libraries = sys.argv[1], sys.argv[2:]
    wanted = sorted(set().union(*map(names, libraries)))
    with open(out, "w", encoding="ascii") as file:
        file.write('.section .note.GNU-stack,"",@progbits\n.text\n')
        for number, name in enumerate(wanted):
            file.write(f'.globl "{name}"\n.type "{name}",@function\n"{name}": leaq text{number}(%rip), %rdi\n'
                       "jmp foreign_called@PLT\n"
                       f'.section .rodata\ntext{number}: .asciz "{name}"\n.text\n')


main()
