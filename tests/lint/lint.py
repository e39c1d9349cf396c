#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that should not take a review: licence lines, sizes, names, which folder may use which, format.

In: the files tracked by git. Out: one line per finding; exit code 1 if there is any. Needs bare Python; function sizes
need ctags, format needs clang-format-19 (each is skipped with a message if missing). docs/architecture.md has the table
of which folder may use which; the build enforces it, and this compares the two.
"""

import collections
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

FILE_LINES = 1000
FUNCTION_LINES = 100
PYTHON_COLUMNS = 160
PAGE_COLUMNS = 120
COMMENT_COLUMNS = 100  # clang-format leaves comments as written
CODE = (".c", ".h", ".def", ".py", ".cmake", ".sh")
# Functions over the limit that are one switch or one table and read better in one piece: "file:function".
LONG_FUNCTIONS = set()


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *patterns], cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    return sorted(name for name in out.split("\0") if name and os.path.isfile(os.path.join(ROOT, name)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def check_licence(names):
    for name in names:
        base = os.path.basename(name)
        if name.endswith(CODE) or base in ("CMakeLists.txt", "dev", "run"):
            head = "\n".join(read(name).splitlines()[:3])
            if "SPDX-License-Identifier: Apache-2.0" not in head:
                yield f"{name}:1: no SPDX line among the first three"


def check_lines(names):
    for name in names:
        if not name.endswith(CODE):
            continue
        lines = read(name).splitlines()
        header = "\n".join(lines[:30]).lower()
        if len(lines) > FILE_LINES and "over 1,000 lines" not in header:
            yield f"{name}: {len(lines)} lines; split it, or say in its header why it stays over 1,000 lines"
        for number, line in enumerate(lines, 1):
            if len(line) > PYTHON_COLUMNS and name.endswith(".py"):  # C: what clang-format does, see check_format
                yield f"{name}:{number}: {len(line)} columns (limit {PYTHON_COLUMNS})"
            if line.rstrip() != line:
                yield f"{name}:{number}: space at the end of the line"
            if "\t" in line and not name.endswith(".tsv"):
                yield f"{name}:{number}: tab"


def check_comments(names):
    """C comments must fit, and banners be on one line; tables under "clang-format off" may be wider."""
    for name in names:
        if not name.endswith((".c", ".h")):
            continue
        table = False
        for number, line in enumerate(read(name).splitlines(), 1):
            table = "clang-format off" in line or (table and "clang-format on" not in line)
            if "//" in line and len(line) > COMMENT_COLUMNS and not table:
                yield f"{name}:{number}: {len(line)} columns with a comment (limit {COMMENT_COLUMNS})"
            if re.fullmatch(r"\s*// ?-{5,}", line):
                yield f"{name}:{number}: half a banner; \"// What follows ----\" goes on one line"


def check_unique_names(names):
    """File names are unique; only the names that every folder has may repeat."""
    seen = collections.defaultdict(list)
    for name in names:
        if name.startswith("src/") and name.endswith((".c", ".h")):
            seen[os.path.basename(name)].append(name)
    for base, places in seen.items():
        # The same family has the same file name in eval, host and chip: know one and you know all three.
        folders = [place.split("/")[1] for place in places]
        if len(places) > 1 and len(set(folders)) != len(folders):
            yield f"{base}: the name is there more than once in one stage: {' '.join(places)}"


def closed(direct, page="docs/architecture.md"):
    """{folder: set of folders}, closed over what those may use; a cycle ends the run."""
    reach = {}

    def close(folder, path=()):
        if folder in path:
            raise SystemExit(f"{page}: {' -> '.join(path + (folder,))} is a cycle")
        if folder not in reach:
            reach[folder] = set(direct.get(folder, ())).union(*(close(used, path + (folder,)) for used in direct.get(folder, ())))
        return reach[folder]

    return {folder: close(folder) for folder in direct}


def check_map(names):
    """docs/architecture.md has the folders of src/ and which may use which, as in the build, where each stage sees
    only the headers of what it uses (vtpu_stage)."""
    page, drawn, built = "docs/architecture.md", {}, {}
    for folder, uses in re.findall(r"^\| `src/(\w+)/` \|.*\| ([^|]*) \|$", read(page), re.M):
        drawn[folder] = set(re.findall(r"[\w/]+", uses)) - {"libc", "include/vtpu"}
    folders = {name.split("/")[1] for name in names if name.startswith("src/")}
    for folder in sorted(folders):
        if f"src/{folder}/README.md" not in names:
            yield f"src/{folder}/README.md: missing"
        if folder not in drawn:
            yield f"{page}: no row for src/{folder}/"
        for name, uses in re.findall(r"vtpu_(?:library|stage)\((\w+)(?:[^)]*?\bUSES ([a-z0-9_ ]+))?", read(f"src/{folder}/CMakeLists.txt")):
            built[name] = set(uses.split())
    for folder in sorted(drawn.keys() - folders):
        yield f"{page}: src/{folder}/ does not exist"
    drawn, built = closed(drawn), closed(built)
    for folder in sorted(folders & drawn.keys()):
        if drawn[folder] != built.get(folder):
            yield f"{page}: src/{folder}/ may use {sorted(drawn[folder])}; its CMakeLists.txt says {sorted(built.get(folder, ()))}"


def check_pages(names):
    """Files named in the pages exist; NAME in capitals stands for any."""
    bases = {os.path.basename(name) for name in names}
    for name in names:
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(read(name).splitlines(), 1):
            for path in re.findall(r"\bsrc/[a-z]\w*/[a-z0-9_/]+\.(?:c|h|def|txt)\b", line):
                if path not in names:
                    yield f"{name}:{number}: there is no {path}"
            for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]*)?\)", line):
                if not os.path.exists(os.path.join(ROOT, os.path.dirname(name), link)):
                    yield f"{name}:{number}: there is no {link}"
            if name.startswith("docs/cloud/") and len(line) > PAGE_COLUMNS:
                yield f"{name}:{number}: {len(line)} columns (limit {PAGE_COLUMNS})"
            for base in re.findall(r"`([a-z0-9_]{3,}\.(?:c|h|def))`", line):
                if base not in bases:
                    yield f"{name}:{number}: there is no {base}"


def check_refusals(names):
    """Each message of the verifier has a program in src/ir/refused.txt, or is listed there as unreachable."""
    page = "src/ir/refused.txt"
    heads = [line.removeprefix("unreachable: ") for line in read(page).splitlines() if line[:1] not in (" ", "#", "")]
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for name in names:
        if not re.fullmatch(r"src/ir/verify\w*\.c", name):
            continue
        code = re.sub(r"//.*|#include.*", "", read(name))
        for match in re.finditer(rf"{literal}(?:\s*(?:PRI\w+|{literal}))*", code):
            message = "".join(text or "%d" * bool(macro) for text, macro in re.findall(r'"(.*?)"|(PRI\w+)', match[0])).replace("%%d", "%d")
            if " " not in message:
                continue
            pattern = ".*".join(re.escape(part) for part in re.split(r"%(?:s|u|d)", message)).removesuffix(".*").rstrip("\\ ")
            if not any(re.search(pattern, head) for head in heads):
                line = code[:match.start()].count("\n") + 1
                yield f'{name}:{line}: no program of {page} is refused with "{message}"'


def check_rooms(names):
    """src/cloud/README.md has the rooms of the cloud and which a room may use; the includes must follow it."""
    page, rooms = "src/cloud/README.md", {}
    for room, uses in re.findall(r"^\| `(\w+)/` \| .*\| ([\w, -]+) \|$", read(page), re.M):
        rooms[room] = set(re.findall(r"\w+", uses))
    reach = closed(rooms, page)
    for name in names:
        place = re.fullmatch(r"src/cloud/(\w+)/[\w/]+\.[ch]", name)
        if not place or re.search(r"_(test|fuzz)\.c$", name):
            continue  # tests may include everything
        room = place[1]
        if room not in rooms:
            yield f"{page}: no row for {room}/"
            continue
        for used in re.findall(r'#include "cloud/([\w.]+)(?:/[\w.]+)?"', read(name)):
            if used not in reach[room] | {room} and not used.endswith(".inc"):
                yield f"{name}: {room}/ may not use {used} ({page})"


def check_sql(names):
    """SQL of the cloud is constant text with bound values, and rows are written as row.h says."""
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for name in names:
        if not re.match(r"src/cloud/.*\.c$", name) or re.search(r"_(test|fuzz)\.c$", name) or name == "src/cloud/store/row.c":
            continue
        code = re.sub(r"^\s*//.*", "", read(name), flags=re.M)
        for match in re.finditer(rf"{literal}(?:\s*{literal})*", code):
            sql, line = "".join(re.findall(r'"(.*?)"', match[0])), code[:match.start()].count("\n") + 1
            if not re.match(r"(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH RECURSIVE|WHERE) ", sql):
                continue
            if re.search(r"%[-.*0-9]*(?:ll|z)?[sdiux]", sql):
                yield f"{name}:{line}: a value is printed into SQL; bind it to a placeholder"
            if re.search(r"\? (?:>|=) \?|\? > 0\b", sql):
                yield f"{name}:{line}: a placeholder without a meaning"
            if sql.startswith("INSERT INTO") and "DO UPDATE SET" not in sql and "schema_version" not in sql:
                yield f"{name}:{line}: vt_row_insert of row.h knows the columns"


def check_used(names):
    """Each function that a header of src/ declares has a caller; tests and fuzz targets count."""
    words, pasted = collections.Counter(), set()
    for name in names:
        if name.endswith((".c", ".h", ".def", ".cc", ".cpp")):
            code = re.sub(r"//.*", "", read(name))
            words.update(re.findall(r"\bvt_\w+", code))
            pasted.update(re.findall(r"\b(vt_\w+?_)##", code))
    for name in names:
        if name.startswith("src/") and name.endswith(".h"):
            for number, line in enumerate(read(name).splitlines(), 1):
                match = re.match(r"(?:[a-z_][\w ]*[ *])(vt_\w+)\(", line)
                if match and words[match[1]] <= 2 and not line.startswith(("static", "typedef")) and not match[1].startswith(tuple(pasted)):
                    yield f"{name}:{number}: {match[1]} has no caller"


def check_functions(names):
    sources = [name for name in names if name.endswith(".c")]
    if not shutil.which("ctags"):
        print("lint: no ctags, function sizes not checked", file=sys.stderr)
        return
    out = subprocess.run(["ctags", "-L", "-", "--fields=+ne", "--c-kinds=f", "-o", "-"], input="\n".join(sources),
                         cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        if line.startswith("!"):
            continue
        fields = line.split("\t")
        places = dict(field.split(":", 1) for field in fields[3:] if ":" in field)
        if "line" not in places or "end" not in places:
            continue
        length = int(places["end"]) - int(places["line"]) + 1
        if length > FUNCTION_LINES and f"{fields[1]}:{fields[0]}" not in LONG_FUNCTIONS:
            yield f"{fields[1]}:{places['line']}: {fields[0]} has {length} lines (limit {FUNCTION_LINES})"


def check_exports(names):
    """House style for names: exported functions begin with vt_ (or PJRT_, or are main)."""
    for name in names:
        if name.startswith("src/") and name.endswith(".h"):
            for number, line in enumerate(read(name).splitlines(), 1):
                match = re.match(r"(?:[a-z_][\w ]*[ *])(\w+)\(", line)
                if match and not line.startswith(("static", "typedef", "return", "#")):
                    if not match[1].startswith(("vt_", "VT_", "PJRT_", "GetPjrtApi", "__attribute__")):
                        yield f"{name}:{number}: {match[1]} does not begin with vt_"


def check_format(names):
    tool = shutil.which("clang-format-19")
    if not tool:
        print("lint: no clang-format-19, format not checked", file=sys.stderr)
        return
    sources = [name for name in names if name.endswith((".c", ".h"))]
    bad = [name for name in sources
           if subprocess.run([tool, "--dry-run", "-Werror", name], cwd=ROOT, capture_output=True).returncode]
    for name in bad:
        yield f"{name}: not as clang-format-19 writes it"


def main():
    names = tracked()
    checks = [check_licence, check_lines, check_comments, check_unique_names, check_map, check_rooms, check_pages, check_refusals, check_sql, check_used,
              check_functions, check_exports, check_format]
    findings = [finding for check in checks for finding in check(names)]
    for finding in findings:
        print(finding)
    print(f"lint: {len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
