#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package and the Debian packages, each in a new system that has no compiler and nothing else of ours; the
Python package without a network. Then programs in C against an installation.

  package_test.py PACKAGES BUILD     the folders of `./dev package` and of the build

Needs root, for systems of its own (debootstrap, once, kept beside the packages), and the packages' network.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGES, BUILD = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUITE = "bookworm"  # glibc 2.36, the oldest that the packages are for

PROGRAM = """
import jax, jax.numpy as jnp
print(len(jax.devices()), jax.devices()[0].platform, float(jax.jit(jnp.dot)(jnp.ones((4, 4)), jnp.ones((4, 4))).sum()))
"""
STABLEHLO = """func.func @main() -> tensor<2xf32> {
  %0 = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xf32>
  %1 = stablehlo.add %0, %0 : tensor<2xf32>
  return %1 : tensor<2xf32>
}
"""
USER_C = """#include <stdio.h>
#include <vtpu/vtpu.h>
int main(void) {
  vtpu_slice *slice;
  if (vtpu_open("v5litepod-4", &slice)) return 1;
  vtpu_slice_info info = {.struct_size = sizeof info};
  if (vtpu_slice_describe(slice, &info)) return 1;
  printf("%s %s %d\\n", vtpu_version(), info.accelerator_type, info.devices);
  vtpu_close(slice);
}
"""
USER_CMAKE = """cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(vtpu 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user vtpu::vtpu)
"""


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def package(pattern):
    (path,) = glob.glob(os.path.join(PACKAGES, pattern))
    return path


def make_root():
    root = os.path.join(PACKAGES, "root")
    if not os.path.exists(root + ".ready"):
        shutil.rmtree(root, ignore_errors=True)
        words = ["debootstrap", "--variant=minbase", "--include=python3-venv", SUITE, root]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest(f"no new Debian system can be made here: {(done.stdout + done.stderr)[-600:]}")
        write(root + ".ready", "")
    return root


def make_wheels():
    """The packages next to ours, fetched once: the new system has no network."""
    folder = os.path.join(PACKAGES, "wheels")
    with open(os.path.join(ROOT, "python/requirements.txt"), encoding="utf-8") as file:
        jax = re.search(r"^jax==.*$", file.read(), re.M)[0]
    run(os.path.join(ROOT, "build/venv/bin/python"), "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:",
        "--python-version=3.11", "-d", folder, jax)
    return folder


class System:
    """A new system, for as long as a test runs."""

    def __init__(self, test):
        if subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("no namespaces here")
        self.root = tempfile.mkdtemp(prefix="system-", dir=PACKAGES)
        test.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        run("cp", "-a", make_root() + "/.", self.root)

    def put(self, *paths):
        for path in paths:
            (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, os.path.join(self.root, "srv", os.path.basename(path)))

    def call(self, command, network=False):
        """The finished shell command inside, in its own /proc and with no network unless asked for."""
        words = ["unshare", "--mount", "--pid", "--fork"] + ([] if network else ["--net"])
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run([*words, f"--root={self.root}", "--mount-proc", "--wd=/srv", "sh", "-c", command], env=env,
                              capture_output=True, text=True, check=False)

    def says(self, command, **options):
        done = self.call(command, **options)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


class Wheel(unittest.TestCase):
    def test_without_other_packages(self):
        system = System(self)
        system.put(package("*.whl"))
        write(system.root + "/srv/add.mlir", STABLEHLO)
        self.assertNotEqual(system.call("which gcc cc clang").returncode, 0)
        system.says("python3 -m venv venv && venv/bin/pip install --no-index ./*.whl")
        version = system.says("venv/bin/vtpu --version").split()[1]
        place = "/srv/venv/lib/python3.11/site-packages/vtpu/lib/libvtpu.so"
        for command in ("venv/bin/vtpu info", "venv/bin/python -m vtpu"):
            self.assertIn(f"{version}, {place}\n", system.says(command))
        self.assertEqual(system.says("venv/bin/python -c 'import vtpu; print(vtpu.library_path())'").strip(), place)
        self.assertNotIn("not found", system.says("ldd venv/lib/python3.11/site-packages/vtpu/lib/*.so* "
                                                  "venv/lib/python3.11/site-packages/vtpu/bin/*"))
        self.assertIn("2xf32", system.says("venv/bin/vtpu exec add.mlir --report --slice v4-8"))
        self.assertEqual(system.says("venv/bin/vtpu run -t v4-8 --quiet -- sh -c 'echo $TPU_LIBRARY_PATH'").strip(), place)
        self.assertIn("OpenSSL", system.says("cat venv/lib/python3.11/site-packages/vtpu-*.dist-info/licenses/copyright"))
        refused = system.call("venv/bin/vtpu tf model --predict")
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (1, 1), refused.stderr)
        self.assertIn("vtpu tf: /srv/venv/bin/python3 has no numpy: pip install", refused.stderr)
        daemon = system.call("venv/bin/vtpud")
        self.assertEqual(daemon.returncode, 1)
        self.assertIn("Debian package", daemon.stderr)

    def test_jax_needs_no_path(self):
        system = System(self)
        system.put(package("*.whl"), make_wheels())
        write(system.root + "/srv/train.py", PROGRAM)
        system.says("python3 -m venv venv && venv/bin/pip install --no-index --find-links wheels ./*.whl jax")
        for platforms in ("JAX_PLATFORMS=tpu", "JAX_PLATFORMS=tpu,cpu", ""):
            self.assertEqual(system.says(f"{platforms} venv/bin/python train.py"), "8 tpu 64.0\n", platforms)
        self.assertEqual(system.says("JAX_PLATFORMS=cpu venv/bin/python train.py"), "1 cpu 64.0\n")
        self.assertEqual(system.says("venv/bin/vtpu run -t v5litepod-4 -- venv/bin/python train.py"), "4 tpu 64.0\n")
        # The user's own setting stands.
        self.assertIn("/nowhere", system.call("TPU_LIBRARY_PATH=/nowhere JAX_PLATFORMS=tpu venv/bin/python train.py").stderr)


class Debian(unittest.TestCase):
    def test_command_and_daemon(self):
        system = System(self)
        system.put(package("vtpu_*.deb"), package("vtpud_*.deb"))
        system.says("apt-get -q update && apt-get -q -y --no-install-recommends install ./vtpu_*.deb ./vtpud_*.deb", network=True)
        write(system.root + "/srv/add.mlir", STABLEHLO)
        self.assertIn("/usr/lib/libvtpu.so\n", system.says("vtpu info"))
        self.assertIn("2xf32", system.says("vtpu exec add.mlir --report"))
        refused = system.call("vtpu tf model --predict")
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (1, 1), refused.stderr)
        self.assertIn("python3 has no numpy: pip install", refused.stderr)
        say = "import sys; sys.path.insert(0, '/usr/share/vtpu/python'); import vtpu.slices as s; print(s.library_path(), s.program_path())"
        self.assertEqual(system.says(f'python3 -c "{say}"'), "/usr/lib/libvtpu.so /usr/bin/vtpu\n")
        self.assertNotIn("not found", system.says("ldd /usr/bin/vtpu /usr/bin/vtpud /usr/bin/vtpu-guest /usr/lib/libvtpu.so"))
        self.assertIn("usage", system.says("vtpud --help").lower())
        self.assertEqual(system.says("vtpud --ephemeral -- sh -c 'echo $VTPU_ENDPOINT'")[:4], "http")
        start = re.search(r"^ExecStart=(\S+)", system.says("cat /lib/systemd/system/vtpud.service"), re.M)[1]
        self.assertTrue(os.access(system.root + start, os.X_OK), start)
        for page in ("man1/vtpu.1", "man8/vtpud.8"):
            self.assertIn(".TH", system.says(f"cat /usr/share/man/{page}"))
        words = "COMP_WORDS=(vtpu com) COMP_CWORD=1; . /usr/share/bash-completion/completions/vtpu; complete -p vtpu"
        self.assertIn("vtpu", system.says(f"bash -c '{words}'"))
        self.assertIn("LLVM", system.says("cat /usr/share/doc/vtpu/copyright"))
        system.says("apt-get -q -y remove vtpu vtpud")
        self.assertFalse(os.path.exists(system.root + "/usr/lib/libvtpu.so"))


class Page(unittest.TestCase):
    def test_names_all_that_is_bundled(self):
        with open(os.path.join(ROOT, "package/bundled.tsv"), encoding="utf-8") as file:
            parts = [line.rstrip("\n").split("\t") for line in file]
        with open(os.path.join(ROOT, "docs/how-to/install.md"), encoding="utf-8") as file:
            rows = dict(re.findall(r"^\| ([^|]*) \| [^|]* \| ([^|]*) \|", file.read(), re.M))
        for name, _, licence, _ in parts:
            self.assertEqual(rows.get(name), licence)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="installed-", dir=PACKAGES)
        cls.addClassCleanup(shutil.rmtree, cls.work)
        run("cmake", "--install", BUILD, "--component", "vtpu", "--strip", "--prefix", cls.work + "/usr")
        write(cls.work + "/user.c", USER_C)
        write(cls.work + "/CMakeLists.txt", USER_CMAKE)
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            cls.want = re.search(r"VERSION ([\d.]+) LANG", file.read())[1] + " v5litepod-4 4\n"

    def test_pkg_config(self):
        paths = {**os.environ, "PKG_CONFIG_PATH": f"{self.work}/usr/lib/pkgconfig"}
        flags = run("pkg-config", "--cflags", "--libs", "vtpu", env=paths).split()
        run("gcc", "user.c", "-o", "by-pkg-config", *flags, cwd=self.work)
        self.assertEqual(run(f"{self.work}/by-pkg-config", env={"LD_LIBRARY_PATH": f"{self.work}/usr/lib"}), self.want)

    def test_cmake(self):
        run("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.work}/usr", cwd=self.work)
        run("cmake", "--build", "build", cwd=self.work)
        self.assertEqual(run(f"{self.work}/build/user"), self.want)

    def test_command(self):
        self.assertIn(f"{self.work}/usr/lib/libvtpu.so", run(f"{self.work}/usr/bin/vtpu", "info"))


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not glob.glob(PACKAGES + "/*.whl"):
        print("skipped: needs root, debootstrap and the packages (./dev package)")
        sys.exit(77)
    unittest.main(verbosity=2)
