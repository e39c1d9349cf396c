#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Python package of a build: library, command and python/vtpu, and copies of the shared libraries that
libvtpu.so opens and that not every system has.

    wheel.py BUILD_FOLDER OUT_FOLDER

The copies get names of their own (libvtpu-dnnl.so.2 for libdnnl.so.2), under which libvtpu.so looks first and no other
package's library can be loaded instead. Needs strip, patchelf, readelf and pip.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GLIBC = (2, 36)  # as in pyproject.toml.in's name of the platform
# What systems of that platform have, by the rules for such packages.
HOST = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libstdc++.so.6"}
NOT_PACKED = {"demo.py"}  # it needs the source tree
LARGEST = 110_000_000  # unpacked bytes
LARGEST_WHEEL = 40_000_000


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", path))


def opened():
    """The libraries that libvtpu.so opens itself."""
    with open(os.path.join(ROOT, "src/pjrt/outside.def"), encoding="utf-8") as file:
        return re.findall(r'^LIBRARY\("(.*?)"', file.read(), re.M)


def own_name(name):
    return "libvtpu-" + name.removeprefix("lib")


def bundle(folder):
    """Copies what is opened, and what that needs, into the folder under names of its own."""
    names, todo = {}, [name for name in opened() if name not in HOST]
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names[name] = os.path.join(folder, own_name(name))
        shutil.copyfile(os.path.realpath(run("gcc", f"-print-file-name={name}").strip()), names[name])
        run("strip", names[name])
        todo += [other for other in needed(names[name]) if other not in HOST]
    for path in names.values():
        run("patchelf", "--set-soname", os.path.basename(path), path)  # one change a call: it mixes up several
        run("patchelf", "--set-rpath", "$ORIGIN", path)
        for name in set(needed(path)) & set(names):
            run("patchelf", "--replace-needed", name, own_name(name), path)
        os.chmod(path, 0o755)


def stage(build, out):
    shutil.rmtree(out, ignore_errors=True)
    package = os.path.join(out, "vtpu")
    shutil.copytree(os.path.join(ROOT, "python/vtpu"), package, ignore=shutil.ignore_patterns("__pycache__", *NOT_PACKED))
    for source, target in (("lib/libvtpu.so", "lib/libvtpu.so"), ("bin/vtpu_closed", "bin/vtpu")):
        target = os.path.join(package, target)
        os.makedirs(os.path.dirname(target))
        shutil.copy(os.path.join(build, source), target)
        run("strip", target)
        run("patchelf", "--set-rpath", "$ORIGIN:$ORIGIN/../lib", target)
    bundle(os.path.join(package, "lib"))
    shutil.copytree(os.path.join(ROOT, "include"), os.path.join(package, "include"))
    shutil.copy(os.path.join(ROOT, "README.md"), out)
    for name in ("pyproject.toml", "copyright"):
        shutil.copy(os.path.join(build, "package", name), out)


def check(folder):
    """Nothing needs a newer C library than the platform's, or a library that is neither here nor on every system."""
    files = glob.glob(os.path.join(folder, "vtpu/lib/*")) + glob.glob(os.path.join(folder, "vtpu/bin/*"))
    here = {os.path.basename(path) for path in files}
    for path in files:
        missing = set(needed(path)) - HOST - here
        assert not missing, f"{path} needs {missing}"
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", path))
        newest = max(tuple(map(int, version)) for version in versions)
        assert newest <= GLIBC, f"{path} needs glibc {newest}"
    return sorted(((os.path.getsize(path), os.path.relpath(path, folder)) for path in files), reverse=True)


def main():
    build, out = (os.path.abspath(path) for path in sys.argv[1:])
    work = os.path.join(out, "wheel")
    stage(build, work)
    sizes = check(work)
    for old in glob.glob(os.path.join(out, "*.whl")):
        os.remove(old)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", out, work], check=True)
    (wheel,) = glob.glob(os.path.join(out, "*.whl"))
    for size, name in sizes:
        print(f"{size / 1e6:8.1f} MB  {name}")
    total = sum(size for size, _ in sizes)
    print(f"{total / 1e6:8.1f} MB  unpacked (at most {LARGEST / 1e6:.0f})")
    print(f"{os.path.getsize(wheel) / 1e6:8.1f} MB  {wheel} (at most {LARGEST_WHEEL / 1e6:.0f})")
    assert total <= LARGEST and os.path.getsize(wheel) <= LARGEST_WHEEL, "the package has grown beyond its limit"


if __name__ == "__main__":
    main()
