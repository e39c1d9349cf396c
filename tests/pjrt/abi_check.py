#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares src/pjrt/abi.h with the header that the PyPI package xla-cpu-pjrt installs: abi_check.py CC SOURCE_DIR

Both are preprocessed, their structures listed field by field, and two programs print where a compiler puts each field.
Structures may grow at the end between versions, so the shorter list must be a prefix of the longer one, by offset and
size; in the function table the names count too. Element types and error codes are compared by name. Exit 77: the
package is not installed.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

cc, source = sys.argv[1], pathlib.Path(sys.argv[2])
headers = list(pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h"))
if not headers:
    print("skipped: xla-cpu-pjrt is not installed")
    sys.exit(77)
theirs_h, ours_h = headers[0], source / "src/pjrt/abi.h"
flags = ["-std=c17", f"-I{source / 'src'}"]


def preprocess(header):
    return subprocess.run([cc, *flags, "-E", "-P", "-x", "c", str(header)], check=True, capture_output=True, text=True).stdout


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("unbalanced braces")


def fields(body):
    """Names of the members, in order; those of an unnamed union or structure in its place."""
    names = []
    while body := body.strip():
        aggregate = re.match(r"(struct|union)\s*\w*\s*\{", body)
        if aggregate:
            end = closing(body, aggregate.end() - 1)
            stop = body.index(";", end)
            name = body[end + 1:stop].strip()
            names += [name] if name else fields(body[aggregate.end():end])
            body = body[stop + 1:]
            continue
        declaration, _, body = body.partition(";")
        pointer = re.search(r"\(\s*\*\s*(?:const\s*)?(\w+)\s*(?:\[\w*\])?\s*\)\s*\(", declaration)
        if pointer:
            names.append(pointer[1])
        elif declaration.strip():
            names += [re.sub(r"\[.*", "", part).split()[-1].lstrip("*") for part in declaration.split(",")]
    return names


def structures(text):
    found = {}
    for match in re.finditer(r"struct\s+(PJRT_\w+)\s*\{", text):
        found[match[1]] = fields(text[match.end():closing(text, match.end() - 1)])
    return found


def places(header, listed):
    """[(offset, size)] of the fields of each structure, as laid out by the compiler."""
    lines = [f'#include <stdio.h>\n#include "{header}"\nint main(void) {{']
    for name, members in listed.items():
        for member in members:
            lines.append(f'printf("{name} {member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                         f"sizeof(((struct {name} *)0)->{member}));")
    lines.append("return 0;}")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "places"
        subprocess.run([cc, *flags, "-x", "c", "-", "-o", str(program)], input="\n".join(lines), check=True, text=True)
        output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    result = {}
    for line in output.splitlines():
        name, member, offset, size = line.split()
        result.setdefault(name, []).append((int(offset), int(size), member))
    return result


def enumerators(text, name):
    body = re.search(r"typedef\s+enum\s*\{([^}]*)\}\s*" + name, text)[1]
    values, value = {}, -1
    for item in filter(None, (part.strip() for part in body.split(","))):
        key, _, given = item.partition("=")
        value = int(given, 0) if given else value + 1
        values[key.strip()] = value
    return values


def table(path, row):
    text = (source / path).read_text()
    return {m[1]: int(m[2]) for m in re.finditer(row + r"\((\w+),\s*(\d+)", text)}


ours_text, theirs_text = preprocess(ours_h), preprocess(theirs_h)
ours, theirs = places(ours_h, structures(ours_text)), places(theirs_h, structures(theirs_text))
wrong, compared = [], 0
shared = sorted(set(ours) & set(theirs) - {"PJRT_Api"})
for name in shared:
    for a, b in zip(ours[name], theirs[name]):
        compared += 1
        if a[:2] != b[:2]:
            wrong.append(f"{name}: {a[2]} lies at {a[0]} with {a[1]} bytes, {b[2]} of {theirs_h.name} at {b[0]} with {b[1]}")
            break
slots = re.findall(r"SLOT\(\w+, (\d+), (\w+),", (source / "src/pjrt/pjrt_slots.def").read_text())
api = [name for _, _, name in theirs["PJRT_Api"] if name.startswith("PJRT_")]
for (number, name), their_name in zip(slots, api):
    if "PJRT_" + name != their_name:
        wrong.append(f"slot {number} is {name}, there {their_name}")
first = [place for place in theirs["PJRT_Api"] if place[2] == api[0]][0]
if first[0] != [place for place in ours["PJRT_Api"] if place[2] == "slots"][0][0]:
    wrong.append("the function table begins elsewhere")
for ours_table, prefix, enum in ((table("src/base/codes.def", "CODE"), "PJRT_Error_Code_", "PJRT_Error_Code"),
                                 (table("src/ir/dtypes.def", "DTYPE"), "PJRT_Buffer_Type_", "PJRT_Buffer_Type")):
    for key, value in enumerators(theirs_text, enum).items():
        mine = ours_table.get(key.removeprefix(prefix))
        if mine is not None and mine != value:
            wrong.append(f"{key} is {value} there, {mine} here")
print(f"{len(shared)} structures, {compared} fields, {min(len(slots), len(api))} slots compared with {theirs_h}")
missing = sorted(name for name in theirs if name.endswith("_Args") and name not in ours and f"{name[5:-5]}" in dict(map(reversed, slots)))
wrong += [f"{name} is not in abi.h" for name in missing]
if len(shared) < 120 or compared < 500 or len(api) < 115:
    wrong.append("fewer structures were found than the header has")
print("\n".join(wrong))
sys.exit(bool(wrong))
