# SPDX-License-Identifier: Apache-2.0
# harness.py - shared by the tests of real clients. Each is a script, started by CTest as
#   SCRIPT BIN_DIR BUILD_DIR        BUILD_DIR has the virtual environments that ./dev creates
# It restarts itself as the command of a `vtpud --ephemeral`, and exits with 77 when this machine cannot run it.
import os
import shutil
import subprocess
import sys
import tempfile
import time

NAMESPACES = ['unshare', '--net', '--mount', '--propagation', 'private']


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


def private_mounts():
    """Whether `vtpu googleapis` can have its own /etc/hosts here: not in a chroot whose root is not a mount point."""
    return subprocess.run(['unshare', '--mount', '--propagation', 'private', 'true'], capture_output=True, check=False).returncode == 0


def run(inner, venv='venv-clients', guests=False, needs=(), options=(), googleapis=None, level=2):
    """Runs `inner` in the environment of a new cloud. `guests`: real VMs of that level, in the test's own network namespace.
    `googleapis`: an address; `inner` runs under Google's names."""
    if sys.argv[1:] == ['inner']:
        inner()
        return
    os.environ['PATH'] += ':/usr/sbin'
    bin_dir, build_dir = (os.path.abspath(a) for a in sys.argv[1:3])
    python = f'{build_dir}/{venv}/bin/python'
    script = os.path.abspath(sys.argv[0])
    if not os.path.exists(python):
        skip(f'no {venv}; `./dev test` makes it')
    if googleapis and os.geteuid() != 0:
        skip('port 443 needs root')
    if googleapis and not private_mounts():
        skip('no mount namespace with private mounts')
    for program in needs:
        if not shutil.which(program):
            skip(f'no {program}')
    if guests and sys.argv[-1] != 'namespace':
        if os.geteuid() != 0:
            skip('guests need root')
        if subprocess.run([*NAMESPACES, 'sh', '-c', 'ip link set lo up && ip link add probe type bridge'],
                          capture_output=True, check=False).returncode != 0:
            skip('no network namespace with a bridge')
        os.execvp(NAMESPACES[0], [*NAMESPACES, sys.executable, script, bin_dir, build_dir, 'namespace'])
    if guests:
        subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)
        options = [*options, f'--guests={level}', f'--python={os.path.dirname(python)}']
    else:
        options = [*options, '--guests=0']
    home = tempfile.mkdtemp(prefix='vtpu-home-')
    environment = {**os.environ, 'HOME': home, 'CLOUDSDK_CONFIG': f'{home}/gcloud', 'PATH': f'{bin_dir}:{os.environ["PATH"]}'}
    wrapper = ['vtpu', 'googleapis', '--'] if googleapis else []
    if googleapis:
        options = [*options, f'--googleapis={googleapis}']
    done = subprocess.run([f'{bin_dir}/vtpud', '--ephemeral', *options, '--', *wrapper, python, '-W', 'ignore', script, 'inner'],
                          env=environment, check=False)
    shutil.rmtree(home, ignore_errors=True)
    sys.exit(done.returncode)


def shell(command, check=True, **more):
    """Output of a shell command, standard error included; fails with it."""
    done = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f'{command}\nstatus {done.returncode}: {done.stdout}')
    return done.stdout


def wait_for(get, done, seconds=600):
    """Calls `get` until `done` accepts the result. The bound catches hangs, not a busy machine."""
    end = time.monotonic() + seconds
    while True:
        value = get()
        if done(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f'still {value}')
        time.sleep(0.02)
