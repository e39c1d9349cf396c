#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one idle TPU VM costs the host: MiB of memory, MB of disk.

Starts an ephemeral cloud in its own network namespace, creates VMs one by one, and adds up the proportional set size
of the processes that each added. In: the folder with vtpud and vtpu, the number of VMs. Out: one line of JSON.
Needs root and what level 2 needs; run as  python3 bench/cloud_guest.py build/release/bin 4
"""

import json
import os
import subprocess
import sys
import time

CREATE = ["tpu-vm", "create", "--zone=us-central2-b", "--accelerator-type=v4-8", "--version=tpu-ubuntu2204-base"]


def pss_kib(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def below(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return children + [grand for child in children for grand in below(child)]


def guests(state):
    """The processes of all guests: the launcher of each and its descendants."""
    found = []
    for name in os.listdir(f"{state}/guests"):
        with open(f"{state}/guests/{name}/launcher") as file:
            pid = int(file.read().split()[0])
        found += [pid, *below(pid)]
    return found


def find_daemon():
    """The command's parent keeps the caller's rights; the process above it answers calls."""
    pid = found = os.getppid()
    while open(f"/proc/{pid}/comm").read() == "vtpud\n":
        found = pid
        pid = int(next(line for line in open(f"/proc/{pid}/status") if line.startswith("PPid:")).split()[1])
    return found


def disk_bytes(folder):
    """Disk usage of the files below a folder on this file system, without nested file systems."""
    device, total = os.stat(folder).st_dev, 0
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if os.lstat(f"{place}/{name}").st_dev == device]
        total += sum(os.lstat(f"{place}/{name}").st_blocks * 512 for name in files)
    return total


def inside(count):
    state = os.path.dirname(os.environ["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"])
    daemon = find_daemon()
    before, seconds = pss_kib(daemon), []
    for i in range(count):
        start = time.monotonic()
        subprocess.run(["vtpu", *CREATE[:2], f"vm{i}", *CREATE[2:]], check=True, stderr=subprocess.DEVNULL)
        seconds.append(time.monotonic() - start)
    time.sleep(10)  # the agents report once and wait
    pids = guests(state)
    memory = sum(map(pss_kib, pids))
    print(json.dumps({"vms": count, "processes_per_vm": len(pids) / count, "mib_per_vm": round(memory / count / 1024, 2),
                      "daemon_mib_per_vm": round((pss_kib(daemon) - before) / count / 1024, 2),
                      "disk_mb_per_vm": round(disk_bytes(f"{state}/guests") / count / 1e6, 2),
                      "seconds_to_ready": round(min(seconds), 2)}))


def main():
    if sys.argv[1] == "inside":
        return inside(int(sys.argv[2]))
    folder, count = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "4"
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    script = "mount --make-rprivate / && ip link set lo up && exec vtpud --ephemeral --guests=2 -- python3 \"$0\" inside \"$1\""
    return subprocess.run(["unshare", "-n", "-m", "sh", "-c", script, os.path.abspath(__file__), count]).returncode


if __name__ == "__main__":
    sys.exit(main())
