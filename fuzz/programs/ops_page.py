#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/ops.md from the facts that ops_table finds and from the tests that name each op.

  ops_page.py [--write] build/release/fuzz/programs/ops_table

Without --write it fails when the page says something else, or names a test that is gone. A test that the page does not
name yet is no failure: who adds one need not think of this page.
"""

import difflib
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "ops.md")
GROUPS = (
    ("ints", "i2 i4 i8 i16 i32 i64"), ("uints", "ui2 ui4 ui8 ui16 ui32 ui64"),
    ("floats", "f4E2M1FN f6E2M3FN f6E3M2FN f8E3M4 f8E4M3 f8E4M3B11FNUZ f8E4M3FN f8E4M3FNUZ f8E5M2 f8E5M2FNUZ f8E8M0FNU "
               "bf16 f16 f32 f64"),
    ("complex", "complex<f32> complex<f64>"))
ALL = {"i1"}.union(*(set(members.split()) for _, members in GROUPS))
HEAD = """# Ops

What becomes of each op of [ir/ops.def](../src/ir/ops.def). Made by [ops_page.py](../fuzz/programs/ops_page.py), not by
hand: programs of one op are tried on every element type, and the plan of the host back end says where they ran. The test
`ops_page` fails when this page is not current; `fuzz/programs/ops_page.py --write build/release/fuzz/programs/ops_table`
writes it.

- **types**: element types of operands on which the evaluator runs the op. `ints` are i2 to
  i64, `uints` ui2 to ui64, `floats` the eleven types of 4 to 8 bits, bf16, f16, f32, f64; `all` adds i1 and both complex.
- **runs as**: `code` = code generated for the program, or a compiled kernel of the host back end; `library` = oneDNN or a
  kernel of our own for matrices; `plan` = steps of the plan itself: control flow, and all devices in lockstep; `evaluator`
  = the plain kernel of `src/eval`, where that is the only word the op is evaluator only; `rewritten` = import or a pass
  makes other ops of it; `no step` = it only names bytes or marks a value. Several words: it depends on types and shapes.
- **tests**: files that name it. *random* = it is in the random programs of [fuzz/programs](../fuzz/programs), before the
  evaluator, the host back end and XLA:CPU; a reason stands where it is not. Programs of `tests/python` use ops through
  JAX and are not counted; a test younger than this page may be missing.

| op | types | runs as | tests |
|---|---|---|---|
"""
SHORT = {"generated code": "code", "matrix library": "library"}


def types_of(text):
    have = set(text.split())
    if not have:
        return ""
    if have == ALL:
        return "all"
    words = ["i1"] if "i1" in have else []
    for name, members in GROUPS:
        members = members.split()
        missing = [m for m in members if m not in have]
        if not missing:
            words.append(name)
        elif len(missing) < len(members):
            words += [m.replace("<", "&lt;").replace(">", "&gt;") for m in members if m in have]
    return " ".join(words)


def test_files():
    """{op name as in ops.def or behind its dialect: set of files}"""
    named = {}
    for folder, _, files in os.walk(ROOT):
        parts = os.path.relpath(folder, ROOT).split(os.sep)
        if parts[0] not in ("src", "tests", "fuzz"):
            continue
        for file in files:
            test = file.endswith("_test.c") or (parts[0] == "tests" and file.endswith(".c")) or \
                file.endswith(".in.mlir") or parts[-1] == "found"
            if not test:
                continue
            with open(os.path.join(folder, file), encoding="utf-8") as f:
                text = f.read()
            names = set(re.findall(r"VT_OP_([A-Z0-9_]+)", text)) | set(re.findall(r"\bROW[123]\(([A-Z0-9_]+),", text))
            names |= {n.replace("-", "_").upper() for n in re.findall(r"\b(?:stablehlo|sdy)\.([a-z0-9_-]+)", text)}
            for name in names:
                named.setdefault(name, set()).add("found/" + file if parts[-1] == "found" else file)
    return named


def page(table):
    named = test_files()
    lines = []
    for row in table.splitlines():
        text, name, types, places, reason = row.split("\t")
        short = [SHORT.get(p, p) for p in places.split(", ")]
        tests = (["*random*"] if not reason else []) + sorted(named.get(name, ()))
        said = ", ".join(tests) if tests else "-"
        if reason:
            said += f"; not random: {reason}"
        lines.append(f"| {text.replace('stablehlo.', '')} | {types_of(types)} | {', '.join(short)} | {said} |")
    return HEAD + "\n".join(lines) + "\n"


def facts(text):
    """The page's lines, rows without the files that name the op."""
    lines = []
    for line in text.splitlines(True):
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 4:
            cells[3] = "".join(cells[3].partition("; not random: ")[1:])
        lines.append(" | ".join(cells))
    return lines


def gone(old, new):
    """Tests that the old page names and the new one does not."""
    names = lambda text: {w.strip(",;") for w in text.split() if re.search(r"(_test\.c|\.mlir),?;?$", w)}
    return names(old) - names(new)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    new = page(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    if "--write" in sys.argv:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(new)
        return
    with open(PAGE, encoding="utf-8") as f:
        old = f.read()
    if facts(old) != facts(new) or gone(old, new):
        sys.stdout.writelines(difflib.unified_diff(facts(old), facts(new), "docs/ops.md", "as it is"))
        print("tests that are gone:", *gone(old, new))
        sys.exit("docs/ops.md is not current: fuzz/programs/ops_page.py --write " + arguments[0])


if __name__ == "__main__":
    main()
