#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a PyTorch wheel that was built for CUDA importable without CUDA's libraries, which take 3 GB.

Run by the Python of the environment: for each library that torch's own need and that is not there, an empty one in torch/lib with
the symbols that are asked of it. All are functions that answer 100, which is cudaErrorNoDevice, but for those in OTHERS."""

import collections
import glob
import os
import re
import subprocess
import sysconfig
import tempfile


# What programs ask without a device: the text of that error, and whether a stream records.
OTHERS = {
    "cudaGetErrorString": 'const char *cudaGetErrorString(int e) { (void)e; return "no CUDA-capable device is detected"; }',
    "cudaGetErrorName": 'const char *cudaGetErrorName(int e) { (void)e; return "cudaErrorNoDevice"; }',
    "cudaStreamIsCapturing": "int cudaStreamIsCapturing(void *s, int *status) { (void)s; *status = 0; return 0; }",
}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))


def symbols(library):
    """(name, version, defined) of the dynamic symbols."""
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].rstrip(":").isdigit():
            name, _, version = words[7].partition("@")
            yield name, version.lstrip("@"), words[6] != "UND", words[4]


def versions_needed(library):
    """Version to the library it is a version of."""
    found, file = {}, None
    for line in run("readelf", "-VW", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and file:
            found[match[1]] = file
    return found


def main():
    folder = os.path.join(sysconfig.get_path("platlib"), "torch", "lib")
    own = glob.glob(os.path.join(folder, "*.so*"))
    present, missing = set(own), set()
    for library in own:
        for line in run("ldd", library).splitlines():
            words = line.split()
            if "not found" in line:
                missing.add(words[0])
            elif len(words) > 2 and words[2].startswith("/"):
                present.add(words[2])
    missing = {name for name in missing if not os.path.exists(os.path.join(folder, name))}
    defined = {name for library in present for name, _, is_defined, _ in symbols(library) if is_defined}
    stubs = collections.defaultdict(lambda: collections.defaultdict(set))  # library, version, names
    for library in own:
        files = versions_needed(library)
        direct = [name for name in needed(library) if name in missing]
        for version, file in files.items():
            if file in missing:
                stubs[file][version].update(())
        for name, version, is_defined, bind in symbols(library):
            version = version.split()[0] if version else ""
            if is_defined or bind == "WEAK" or not name or (name in defined and files.get(version) not in missing):
                continue
            if files.get(version) in missing:
                stubs[files[version]][version].add(name)
            elif not version and direct:
                stubs[direct[0]][""].add(name)
    for library in sorted(missing):
        code, script = [], []
        for version, names in stubs[library].items():
            code += [OTHERS.get(name, f"int {name}(void) {{ return 100; }}") for name in sorted(names)]
            if version:
                script.append(f"{version} {{ global: {' '.join(n + ';' for n in sorted(names)) or 'none;'} }};")
        with tempfile.TemporaryDirectory() as work:
            source, versions = os.path.join(work, "stub.c"), os.path.join(work, "stub.map")
            with open(source, "w", encoding="utf-8") as file:
                file.write("\n".join(code) + "\n")
            with open(versions, "w", encoding="utf-8") as file:
                file.write("\n".join(script) + "\n")
            command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", source, "-o", os.path.join(folder, library), f"-Wl,-soname,{library}"]
            subprocess.run(command + ([f"-Wl,--version-script,{versions}"] if script else []), check=True)
    print(f"{len(missing)} empty libraries in {folder}")


main()
