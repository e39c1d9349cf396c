#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile_test.py BIN - slow and hostile clients against a daemon: it stays responsive, drops them, does not grow.

In: the folder of vtpud. Out: one line per attack. Bare Python; everything goes over loopback, attackers from
127.0.0.2 and up, the honest client from 127.0.0.1.
"""

import json
import os
import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

TIMEOUT = 6  # the daemon's timeout for a client
DESCRIPTORS = 8192  # of this process
PATIENCE = 600  # for the daemon, on a busy machine


class Daemon:
    def __init__(self, folder):
        command = [os.path.join(folder, "vtpud"), "--ephemeral", "--guests=0", f"--request-timeout={TIMEOUT}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.values = {}
        for line in self.process.stdout:
            name, value = re.match(r"export (\w+)='?([^']*)'?$", line.strip()).groups()
            self.values[name] = value
            if name == "VTPUD_PID":
                break
        self.http = self.grpc = int(self.values["VTPU_ENDPOINT"].rsplit(":", 1)[1])
        self.pid = int(self.values["VTPUD_PID"])

    def rss_mib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def healthy(self):
        """The honest client's call, in seconds."""
        start = time.monotonic()
        url = f"{self.values['VTPU_ENDPOINT']}/v2/projects/{self.values['VTPU_PROJECT']}/locations/us-central2-b/nodes"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.values['VTPU_TOKEN']}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            assert reply.status == 200 and json.load(reply) is not None
        with connect(self.grpc) as h2:  # HTTP/2 answers with its SETTINGS
            h2.sendall(PREFACE + frame(4, 0, 0))
            assert len(h2.recv(9)) == 9
        return time.monotonic() - start


def connect(port, source="127.0.0.1"):
    s = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))
    s.settimeout(PATIENCE)
    return s


def closed(s):
    """Whether the other side has ended this connection (discards remaining data)."""
    s.setblocking(False)
    try:
        while True:
            data = s.recv(65536)
            if not data:
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def feed_until_closed(sockets, piece, every=0.5):
    """Sends each a piece now and then; the daemon must close all of them soon."""
    end = time.monotonic() + TIMEOUT + PATIENCE
    left = list(sockets)
    while left and time.monotonic() < end:
        time.sleep(every)
        still = []
        for s in left:
            if closed(s):
                s.close()
                continue
            try:
                s.send(piece)
                still.append(s)
            except BlockingIOError:
                still.append(s)
            except OSError:
                s.close()
        left = still
    for s in left:
        s.close()
    assert not left, f"{len(left)} connections are still open"


# --- HTTP/1.1


def slow_headers(d):
    sockets = [connect(d.http, "127.0.0.2") for _ in range(200)]
    for s in sockets:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    d.healthy()
    feed_until_closed(sockets, b"X-A: b\r\n")


def slow_bodies(d):
    sockets = [connect(d.http, "127.0.0.2") for _ in range(100)]
    for s in sockets:
        s.sendall(b"POST /v2/projects/p/locations/z/nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
    d.healthy()
    feed_until_closed(sockets, b" ")


def never_reading(d):
    sockets = []
    before = d.descriptors()
    ask = b"GET /$discovery/rest?version=v2 HTTP/1.1\r\nHost: x\r\n\r\n" * 50
    for _ in range(20):
        s = connect(d.http, "127.0.0.2")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(ask)
        sockets.append(s)
    d.healthy()
    # The end of a connection waits behind unread data, so check for it at the daemon.
    end = time.monotonic() + TIMEOUT + PATIENCE
    while d.descriptors() > before + 5 and time.monotonic() < end:
        time.sleep(0.2)
    left = d.descriptors() - before
    for s in sockets:
        s.close()
    assert left <= 5, f"{left} clients that never read keep their connections"


def silent_connections(d):
    """Fill the slots in which a connection waits until its protocol is known."""
    sockets = [connect(d.http, f"127.0.0.{2 + n % 8}") for n in range(2400)]
    took = d.healthy()
    for s in sockets:
        s.close()
    return f"a call took {took:.2f} s"


def connect_and_begin(d, source):
    s = connect(d.http, source)
    try:
        s.sendall(b"GET / HTTP/1.1\r\n")
    except OSError:
        pass  # it has already been displaced by a later one
    return s


def thousands_of_connections(d):
    sockets = []
    for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
        sockets += [connect_and_begin(d, source) for _ in range(600)]
    greedy = [connect_and_begin(d, "127.0.0.5") for _ in range(1200)]  # one address gets 1024
    took = d.healthy()
    time.sleep(0.5)
    refused = sum(closed(s) for s in greedy)
    for s in sockets + greedy:
        s.close()
    assert refused >= 1200 - 1024, refused
    return f"{len(sockets)} open, {refused} of 1200 of one address refused, a call took {took:.2f} s"


def more_connections_than_places(d):
    """From many addresses, more than there are slots: the oldest are displaced, nothing stalls."""
    sockets = [connect_and_begin(d, f"127.0.0.{2 + n % 8}") for n in range(min(6000, DESCRIPTORS - 500))]
    took = d.healthy()
    refused = sum(closed(s) for s in sockets)
    for s in sockets:
        s.close()
    return f"{len(sockets)} begun, {refused} gave way, a call took {took:.2f} s"


def handshakes_never_finished(d):
    """The beginning of a TLS hello, which the daemon waits for, and a whole one with nothing after it."""
    hello = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    whole = hello.read()
    sockets = []
    for n in range(1500):
        s = connect(d.http, f"127.0.0.{2 + n % 8}")
        s.sendall(whole[:n % len(whole) + 1])
        sockets.append(s)
    took = d.healthy()
    for s in sockets:
        s.close()
    return f"a call took {took:.2f} s"


def keep_alive_connections(d):
    """Whole requests, then silence: idle connections give way to active ones."""
    sockets = []
    for n in range(min(5000, DESCRIPTORS - 500)):
        s = connect(d.http, f"127.0.0.{2 + n % 8}")
        s.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        sockets.append(s)
    took = d.healthy()
    for s in sockets:
        s.close()
    return f"a call took {took:.2f} s"


def read_all(s):
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except OSError:
        pass
    return data


def huge_headers(d):
    for size in (100_000, 4_000_000):
        with connect(d.http, "127.0.0.2") as s:
            try:
                s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + b"a" * size + b"\r\n\r\n")
            except OSError:
                pass
            head = read_all(s)[:12]
            assert head == b"" or head[9:12] in (b"431", b"413", b"400"), head
    with connect(d.http, "127.0.0.2") as s:
        s.sendall(b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        head = read_all(s)[:12]
        assert head == b"" or head[9:12] in (b"414", b"431", b"400"), head


def pipelined_garbage(d):
    seeds = [b"\x00\xff" * 500, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"\r\n\x01\x02garbage\r\n\r\n" * 200,
             b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
             b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
             b"GET / HTTP/9.9\r\n\r\n" * 100, b"\r\n" * 5000, PREFACE]
    for seed in seeds:
        with connect(d.http, "127.0.0.2") as s:
            s.settimeout(1)
            try:
                s.sendall(seed)
                s.recv(65536)
            except OSError:
                pass


def malformed_requests(d):
    """What libmicrohttpd answers before a request is complete: a constant text without anything from the request, and
    the end of the connection. These responses cannot have our headers; a browser's page can only cause the too long
    one."""
    evil = b"<script>alert(1)</script>"
    requests = {b"505": b"GET /" + evil + b" HTTP/9.9\r\nHost: a\r\n\r\n",
                b"400": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: " + evil + b"\r\n\r\n",
                b"414": b"GET /" + evil * 4000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
                b"431": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: %s\r\n" % (i, evil * 40) for i in range(100)) + b"\r\n"}
    for status, request in requests.items():
        with connect(d.http, "127.0.0.2") as s:
            try:
                s.sendall(request)
            except OSError:
                pass
            reply = read_all(s)  # until the daemon ends the connection
        assert reply[9:12] in (status, b""), reply[:100]
        assert b"script" not in reply and len(reply) < 1000, reply


def large_replies_never_read(d):
    """A list of a few MiB to each of hundreds of connections."""
    place = f"/v2/projects/{d.values['VTPU_PROJECT']}/locations/us-central2-b/nodes"
    body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base",
            "metadata": {"one": "x" * 250_000, "two": "x" * 250_000}}
    for n in range(20):
        assert post(d, f"{place}?nodeId=large{n}", json.dumps(body).encode()) == 200
    before, sockets = d.rss_mib(), []
    for _ in range(300):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.bind(("127.0.0.2", 0))
        s.connect(("127.0.0.1", d.http))
        s.sendall(f"GET {place} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {d.values['VTPU_TOKEN']}\r\n\r\n".encode())
        sockets.append(s)
    took = d.healthy()
    most = d.rss_mib() - before
    for s in sockets:
        s.close()
    assert most < 300, f"{most:.0f} MiB of replies"
    return f"{most:.0f} MiB of replies, a call took {took:.2f} s"


# --- HTTP/2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(stream, flags=4):
    path = b"/google.cloud.tpu.v2.Tpu/ListNodes"
    block = b"\x83\x86\x01\x01x\x04" + bytes([len(path)]) + path
    return frame(1, flags, stream, block)


def flood(d, make, batches=400):
    """Sends batches of frames without reading; ends when the daemon gives up."""
    s = connect(d.grpc, "127.0.0.2")
    sent = 0
    try:
        s.sendall(PREFACE + frame(4, 0, 0))
        for i in range(batches):
            s.sendall(make(i))
            sent += 1
        end = time.monotonic() + PATIENCE
        while not closed(s) and time.monotonic() < end:
            time.sleep(0.1)
        ended = closed(s)
    except OSError:
        ended = True
    s.close()
    assert ended, f"the daemon took {sent} batches and kept the connection"
    d.healthy()


def rapid_reset(d):
    def make(i):
        return b"".join(headers(2 * (i * 100 + n) + 1) + frame(3, 0, 2 * (i * 100 + n) + 1, struct.pack(">I", 8))
                        for n in range(100))
    flood(d, make)


def settings_flood(d):
    flood(d, lambda i: frame(4, 0, 0, struct.pack(">HI", 3, 100)) * 100)


def ping_flood(d):
    flood(d, lambda i: frame(6, 0, 0, b"12345678") * 100)


def empty_data_flood(d):
    flood(d, lambda i: (headers(1) if i == 0 else b"") + frame(0, 0, 1) * 100)


def continuation_flood(d):
    flood(d, lambda i: (headers(1, 0) if i == 0 else b"") + frame(9, 0, 1, b"\x00\x01a\x01b" * 100) * 20)


def header_bomb(d):
    block = b"\x00\x01a\x7f\x81\x7c" + b"b" * 16127  # one field of 16 KB, many times over
    flood(d, lambda i: (headers(1, 0) if i == 0 else b"") + frame(9, 0, 1, block[:16000]), batches=2000)


def streams_that_never_end(d):
    sockets = []
    for _ in range(50):
        s = connect(d.grpc, "127.0.0.2")
        s.sendall(PREFACE + frame(4, 0, 0) + b"".join(headers(2 * n + 1) for n in range(50)))
        sockets.append(s)
    d.healthy()
    feed_until_closed(sockets, frame(0, 0, 1, b"\x00"))


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def replies_never_read(d):
    """Thousands of large responses for a zero window; an occasional ping shows that the client is alive."""
    place = f"projects/{d.values['VTPU_PROJECT']}/locations/us-central2-b"
    body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base",
            "metadata": {"one": "x" * 250_000, "two": "x" * 250_000}}
    assert post(d, f"/v2/{place}/nodes?nodeId=large", json.dumps(body).encode()) == 200
    token = literal(b"authorization", b"Bearer " + d.values["VTPU_TOKEN"].encode())
    path = literal(b":path", b"/google.cloud.tpu.v2.Tpu/ListNodes")
    message = b"\x0a" + bytes([len(place)]) + place.encode()
    message = b"\0" + struct.pack(">I", len(message)) + message
    ask = b"".join(frame(1, 4, 2 * n + 1, b"\x83\x86\x01\x01x" + path + token) + frame(0, 1, 2 * n + 1, message)
                   for n in range(100))
    before, sockets = d.rss_mib(), []
    for _ in range(20):
        s = connect(d.grpc, "127.0.0.2")
        s.sendall(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + ask)
        sockets.append(s)
    took = d.healthy()
    most = 0
    for _ in range(20):
        time.sleep(0.1)
        most = max(most, d.rss_mib() - before)
    feed_until_closed(sockets, frame(6, 0, 0, b"12345678"))
    assert most < 300, f"{most:.0f} MiB of replies"
    return f"{most:.0f} MiB of replies, a call took {took:.2f} s"


def a_message_of_two_gib(d):
    """By its length prefix; the daemon answers with an error or ends the stream, and keeps nothing."""
    with connect(d.grpc, "127.0.0.2") as s:
        s.sendall(PREFACE + frame(4, 0, 0) + headers(1) + frame(0, 1, 1, b"\x00\x7f\xff\xff\xffabc"))
        s.settimeout(PATIENCE)
        assert s.recv(4096)


def idle_grpc_connections(d):
    sockets = [connect(d.grpc, "127.0.0.2") for _ in range(200)]  # one address gets 128
    for s in sockets:
        s.sendall(PREFACE)
    took = d.healthy()
    time.sleep(0.5)
    refused = sum(closed(s) for s in sockets)
    for s in sockets:
        s.close()
    assert refused >= 200 - 128, refused
    return f"{refused} of 200 refused, a call took {took:.2f} s"


# --- calls


def post(d, path, body):
    url = f"{d.values['VTPU_ENDPOINT']}{path.replace('PROJECT', d.values['VTPU_PROJECT'])}"
    request = urllib.request.Request(url, data=body, method="POST", headers={
        "Authorization": f"Bearer {d.values['VTPU_TOKEN']}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def deep_json(d):
    nodes = "/v2/projects/PROJECT/locations/us-central2-b/nodes?nodeId=deep"
    for body in (b"[" * 100_000, b'{"labels":' * 100_000, b'{"labels":' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        assert post(d, nodes, body) == 400


def many_keys(d):
    nodes = "/v2/projects/PROJECT/locations/us-central2-b/nodes?nodeId=keys"
    labels = {f"k{n}": "" for n in range(200_000)}
    body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-vm-base"}
    for what in (labels, {"a": "b" * 100}):
        status = post(d, nodes, json.dumps({**body, "labels": what}).encode())
        assert status == 400, status


def ends_when_told(d):
    """During all of this; the last attack."""
    sockets = [connect_and_begin(d, f"127.0.0.{2 + n % 8}") for n in range(min(6000, DESCRIPTORS - 500))]
    start = time.monotonic()
    d.process.terminate()
    assert d.process.wait(PATIENCE) == 0
    for s in sockets:
        s.close()
    return f"{time.monotonic() - start:.1f} s"


ATTACKS = [slow_headers, slow_bodies, never_reading, silent_connections, thousands_of_connections,
           more_connections_than_places, handshakes_never_finished, keep_alive_connections, huge_headers,
           pipelined_garbage, malformed_requests,
           rapid_reset, settings_flood, ping_flood, empty_data_flood, continuation_flood, header_bomb,
           streams_that_never_end, replies_never_read, large_replies_never_read, a_message_of_two_gib,
           idle_grpc_connections, deep_json, many_keys, ends_when_told]


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        print(f"skipped: {hard} descriptors are too few for thousands of connections")
        return 77
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    daemon = Daemon(sys.argv[1])
    failed = 0
    try:
        daemon.healthy()
        before, grown = daemon.rss_mib(), 0
        for attack in ATTACKS:
            if len(sys.argv) > 2 and attack.__name__ not in sys.argv[2:]:
                continue
            start = time.monotonic()
            try:
                note = attack(daemon) or ""
                if attack is not ends_when_told:
                    daemon.healthy()
                    grown = daemon.rss_mib() - before
                print(f"ok      {attack.__name__} ({time.monotonic() - start:.1f} s) {note}")
            except (AssertionError, OSError) as error:
                failed += 1
                print(f"FAILED  {attack.__name__}: {error!r}")
            sys.stdout.flush()
        print(f"the daemon grew by {grown:.0f} MiB")
        if grown > 300:
            failed += 1
    finally:
        daemon.process.terminate()
        daemon.process.wait(30)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
