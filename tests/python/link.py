# SPDX-License-Identifier: Apache-2.0
"""A bad link between two network namespaces: `python link.py NAMESPACE NAMESPACE DELAY_MS LOSS`. Opens a TUN device in each,
and passes packets after the delay, each way; drops that fraction of them. Says "ready"; SIGUSR1 cuts the link: from then on
nothing passes, and nobody is told. For kernels without netem."""

import collections
import ctypes
import errno
import fcntl
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
PACKET, BURST, QUEUE = 1 << 16, 64, 4096  # a queue that is full drops what comes, as a switch does


def open_tun(namespace):
    """The descriptor of a new device "far", in a namespace that `ip netns` made."""
    libc = ctypes.CDLL(None, use_errno=True)
    inside = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(inside, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(inside)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"far", IFF_TUN | IFF_NO_PI))
    return tun


class Way:
    """One direction: what comes from `source` goes into `sink` later."""

    def __init__(self, source, sink, delay, loss, seed):
        self.source, self.sink, self.delay, self.loss = source, sink, delay, loss
        self.choose, self.queue = random.Random(seed), collections.deque()

    def take(self, cut):
        for _ in range(BURST):
            try:
                packet = os.read(self.source, PACKET)
            except BlockingIOError:
                return
            if not cut and self.choose.random() >= self.loss and len(self.queue) < QUEUE:
                self.queue.append((time.monotonic() + self.delay, packet))

    def give(self, cut):
        while self.queue and (cut or self.queue[0][0] <= time.monotonic()):
            packet = self.queue.popleft()[1]
            if cut:
                continue
            try:
                os.write(self.sink, packet)
            except OSError as error:
                if error.errno != errno.EIO:  # the device there is not up yet
                    raise


class TwoHosts:
    """Two network namespaces with a link that delays packets and loses some."""

    def __init__(self, delay_ms, loss):
        self.names = [f"vtpu-{os.getpid()}-{i}" for i in range(2)]
        self.relay = None
        self.why = self.make(delay_ms, loss)

    def make(self, delay_ms, loss):
        """None, or why not."""
        if not shutil.which("ip") or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            return "no ip command (Debian: iproute2), or no rights to make TUN devices"
        if not all(self.ip("netns", "add", name) for name in self.names):
            return "this kernel, or this user, makes no network namespaces"
        words = [sys.executable, os.path.abspath(__file__), *self.names, str(delay_ms), str(loss)]
        self.relay = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.relay.stdout.readline() != "ready\n":
            return "no TUN devices in namespaces: " + self.relay.stderr.read().strip()[-200:]
        for i, name in enumerate(self.names):
            made = self.ip("-n", name, "address", "add", f"10.99.7.{i + 1}", "peer", f"10.99.7.{2 - i}", "dev", "far")
            if not (made and self.ip("-n", name, "link", "set", "far", "up") and self.ip("-n", name, "link", "set", "lo", "up")):
                return "TUN devices take no address"
        return None

    @staticmethod
    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True).returncode == 0

    def places(self):
        return [(["ip", "netns", "exec", name], f"10.99.7.{i + 1}") for i, name in enumerate(self.names)]

    def cut(self):
        """From now on nothing passes."""
        self.relay.send_signal(signal.SIGUSR1)

    def end(self):
        if self.relay:
            self.relay.kill()
            self.relay.communicate()
        for name in self.names:
            self.ip("netns", "delete", name)


def main(first, second, delay_ms, loss):
    ends = [open_tun(first), open_tun(second)]
    ways = [Way(*ends, float(delay_ms) / 1e3, float(loss), 1), Way(*ends[::-1], float(delay_ms) / 1e3, float(loss), 2)]
    cut = []
    signal.signal(signal.SIGUSR1, lambda *_: cut.append(True))
    print("ready", flush=True)
    while True:
        due = [way.queue[0][0] for way in ways if way.queue]
        ready, _, _ = select.select(ends, [], [], max(0.0, min(due) - time.monotonic()) if due else 1.0)
        for way in ways:
            if way.source in ready:
                way.take(bool(cut))
            way.give(bool(cut))


if __name__ == "__main__":
    main(*sys.argv[1:])
