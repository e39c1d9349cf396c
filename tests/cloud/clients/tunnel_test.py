#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tunnel_test.py - workers without a route to them: OpenSSH and scp through the daemon's WebSockets at both levels of
# guests and under TLS with Google's names, bulk data both ways, connections that break and resume, clients that break
# the rules.
import hashlib
import http.cookiejar
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import harness
import raw_socket

ZONE = '--zone=us-central2-b'
THROUGH = f'{ZONE} --tunnel-through-iap'
SIZE = int(os.environ.get('TUNNEL_MIB', '128')) << 20


def api(method, path, body=None, token=None, opener=None):
    request = urllib.request.Request(os.environ['VTPU_ENDPOINT'] + path, method=method, data=json.dumps(body or {}).encode(),
                                     headers={'Content-Type': 'application/json', 'X-Vtpu-Console': '1',
                                              **({} if opener else {'Authorization': f'Bearer {token or os.environ["VTPU_TOKEN"]}'})})
    with (opener.open if opener else urllib.request.urlopen)(request, timeout=600) as reply:
        return json.load(reply)


def instance(worker=0):
    node = f'/v2alpha1/projects/{os.environ["VTPU_PROJECT"]}/locations/us-central2-b/nodes/lab'
    reply = api('POST', f'{node}:getGuestAttributes', {'workerIds': [str(worker)]})
    items = reply['guestAttributes'][0]['queryValue']['items']
    return next(item['value'] for item in items if item['namespace'] == 'guest' and item['key'] == 'hostname')


def url(port=22, name=None, project=None, zone='us-central2-b'):
    return (f'{os.environ["VTPU_ENDPOINT"]}/v4/connect?project={project or os.environ["VTPU_PROJECT"]}&zone={zone}'
            f'&instance={name or instance()}&interface=nic0&port={port}&newWebsocket=true')


def bearer(token=None):
    return {'Authorization': f'Bearer {token or os.environ["VTPU_TOKEN"]}'}


def refused(at, headers, protocol=raw_socket.TUNNEL):
    try:
        raw_socket.WebSocket(at, protocol, headers)
    except raw_socket.Refused as status:
        return status.args[0]
    return 101


def openssh(level):
    """ssh, scp and plain OpenSSH with our ProxyCommand; every worker."""
    out = harness.shell(f'vtpu tpu-vm ssh lab {THROUGH} --worker=all --command=hostname')
    assert instance(0) in out and instance(1) in out, out
    home = os.environ['HOME']
    harness.shell(f'echo over there > {home}/file; vtpu compute tpus tpu-vm scp {home}/file lab:file {THROUGH} --worker=1')
    assert harness.shell(f'vtpu alpha compute tpus tpu-vm ssh lab {THROUGH} --worker=1 --command="cat file"') == 'over there\n'
    dry = harness.shell(f'vtpu tpu-vm ssh lab {THROUGH} --dry-run')
    assert 'ProxyCommand=' in dry and f"start-iap-tunnel '{instance()}' %p" in dry, dry
    user = re.search(r'(\S+)@', dry)[1]
    proxy = f'vtpu compute start-iap-tunnel %h %p --listen-on-stdin {ZONE}'
    out = harness.shell(f'ssh -i {home}/.ssh/google_compute_engine -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null '
                        f'-o LogLevel=ERROR -o "ProxyCommand={proxy}" {user}@{instance(1)} cat file')
    assert out == 'over there\n', out
    wrong = harness.shell(f'vtpu compute start-iap-tunnel t1v-n-00000000-w-0 22 --listen-on-stdin {ZONE} < /dev/null', check=False)
    assert 'HTTP 404' in wrong and 'was not found' in wrong, wrong
    print(f'level {level}: ssh to all workers, scp, plain OpenSSH')


def much_data(level):
    """Checksums of many megabytes are right both ways; the window and the acknowledgements keep up."""
    path = f'{os.environ["HOME"]}/much'
    with open(path, 'wb') as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    with open(path, 'rb') as file:
        want = hashlib.file_digest(file, 'sha256').hexdigest()
    start = time.monotonic()
    out = harness.shell(f'vtpu tpu-vm ssh lab {THROUGH} --command="cat > much; sha256sum < much" < {path}')
    there = time.monotonic()
    assert want in out, out
    out = harness.shell(f'vtpu tpu-vm ssh lab {THROUGH} --command="cat much; rm much" | sha256sum')
    back = time.monotonic()
    assert want in out, out
    os.remove(path)
    print(f'level {level}: {SIZE >> 20} MiB there at {(SIZE >> 20) / (there - start):.0f} MiB/s, back at {(SIZE >> 20) / (back - there):.0f} MiB/s')


def other_ports(level):
    if level == 1:
        assert refused(url(80), bearer()) == 403 and refused(url(8099), bearer()) == 403
        return
    harness.shell(f'vtpu tpu-vm ssh lab {ZONE} --command="echo served > page; nohup python3 -m http.server 8099 >/dev/null 2>&1 </dev/null &"')
    tunnel = subprocess.Popen(['vtpu', 'compute', 'start-iap-tunnel', instance(), '8099', '--local-host-port=localhost:8098', ZONE])
    try:
        harness.wait_for(lambda: harness.shell('curl -s http://127.0.0.1:8098/page', check=False), lambda text: text == 'served\n')
    finally:
        tunnel.kill()
    nobody = raw_socket.WebSocket(url(8097), raw_socket.TUNNEL, bearer())
    assert nobody.close_code() == 4003
    print('a port of a worker as a local port; 4003 where nobody listens')


def ends_with_its_token():
    account = '/vtpu/v1/accounts/admin@vtpu.localhost'
    before = {t['id'] for t in api('GET', f'{account}/tokens')['tokens']}
    token = api('POST', f'{account}/tokens', {'days': 1})['token']
    new, = {t['id'] for t in api('GET', f'{account}/tokens')['tokens']} - before
    opened, other = (raw_socket.WebSocket(url(), raw_socket.TUNNEL, bearer(t)) for t in (token, os.environ['VTPU_TOKEN']))
    api('DELETE', f'{account}/tokens/{new}')
    assert opened.close_code() == 1008
    assert refused(url(), bearer(token)) == 401
    other.message()  # the name of the tunnel, as before
    print('a tunnel ends with the token that opened it')


def who_may():
    for name in ('eve', 'vera'):
        api('POST', '/vtpu/v1/accounts', {'email': f'{name}@example.org', 'role': 'user', 'password': 'correct horse battery'})
    project = os.environ['VTPU_PROJECT']
    policy = api('POST', f'/v1/projects/{project}:getIamPolicy')
    policy['bindings'].append({'role': 'roles/viewer', 'members': ['user:vera@example.org']})
    api('POST', f'/v1/projects/{project}:setIamPolicy', {'policy': policy})
    openers = {}
    for name in ('eve', 'vera', None):
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        api('POST', '/vtpu/v1/session', {'email': f'{name}@example.org', 'password': 'correct horse battery'} if name else
            {'token': os.environ['VTPU_TOKEN']}, opener=opener)
        openers[name] = '; '.join(f'{c.name}={c.value}' for c in jar)
    here = os.environ['VTPU_ENDPOINT']
    want = [({}, 401), (bearer('vta.0000'), 401), ({'Cookie': openers['eve'], 'Origin': here}, 403),
            ({'Cookie': openers['vera'], 'Origin': here}, 403), ({'Cookie': openers[None], 'Origin': here}, 101),
            # Another page's WebSocket sends the cookie, and its own origin.
            ({'Cookie': openers[None]}, 403), ({'Cookie': openers[None], 'Origin': 'https://evil.example'}, 403),
            ({'Cookie': openers[None], 'Origin': here + '.evil.example'}, 403), ({'Cookie': openers[None], 'Origin': 'null'}, 403)]
    for headers, status in want:
        got = refused(url(), headers)
        assert got == status, (headers, got, status)
    assert refused(url(name='t1v-n-00000000-w-0'), bearer()) == 404
    assert refused(url(zone='us-east5-b'), bearer()) == 404
    assert refused(url(project='nobodys'), bearer()) == 403
    assert refused(url(port=0), bearer()) == 400
    assert refused(url(), bearer(), protocol='chat') == 400
    assert refused(url(), {**bearer(), 'Sec-WebSocket-Version': '8'}) == 400
    assert refused(url(), {**bearer(), 'Sec-WebSocket-Key': 'short'}) == 400
    assert refused(url(), {**bearer(), 'Upgrade': ''}) == 400
    print('nobody without identity, role, project, or from another page')
    return openers['eve']


def broken_connections(foreign):
    """A connection that breaks without a close: the tunnel resumes where it was, for the same caller only."""
    first = raw_socket.Tunnel(url(), bearer())
    banner = first.data(4, acknowledge=False)
    assert banner == b'SSH-', banner
    first.send(b'SSH-2.0-te')
    again = f'{os.environ["VTPU_ENDPOINT"]}/v4/reconnect?sid={first.first.decode()}&zone=us-central2-b&newWebsocket=true&ack='
    other = raw_socket.WebSocket(again + '0', raw_socket.TUNNEL, {'Cookie': foreign, 'Origin': os.environ['VTPU_ENDPOINT']})
    assert other.close_code() == 4001
    assert raw_socket.WebSocket(again.replace('sid=', 'sid=x') + '0', raw_socket.TUNNEL, bearer()).close_code() == 4001
    first.send(b'st\r\n')
    # Until the daemon has noticed, and so has read everything; a plain close would discard data in flight.
    first.socket.shutdown(socket.SHUT_WR)
    while first.socket.recv(65536):
        pass
    first.socket.close()
    second = raw_socket.Tunnel(again + '0', bearer())
    assert second.first == 14, second.first  # bytes of ours that it has
    assert second.data(4) == banner
    # The old connection is still open when the client comes from another address: it loses the tunnel.
    third = raw_socket.Tunnel(again + str(second.count), bearer())
    assert third.first == 14
    assert second.close_code() == 0
    assert raw_socket.WebSocket(again + str(1 << 40), raw_socket.TUNNEL, bearer()).close_code() == 4005
    assert raw_socket.WebSocket(again + '0', raw_socket.TUNNEL, bearer()).close_code() == 4001, 'it ended with the mistake'
    print('tunnels go on after a break')


class Cutter(threading.Thread):
    """Forwards connections to the daemon. A connection that has carried much is cut without a close, with data in
    flight; the port is then closed for a moment."""

    def __init__(self, most=4 << 20):
        super().__init__(daemon=True)
        where = urllib.parse.urlsplit(os.environ['VTPU_ENDPOINT'])
        self.daemon_at, self.most, self.cuts = (where.hostname, where.port), most, 0
        self.listen(0)
        self.port = self.listener.getsockname()[1]

    def listen(self, port):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(('127.0.0.1', port))
        self.listener.listen(64)

    def run(self):
        while True:
            client, _ = self.listener.accept()
            if self.serve(client):
                self.cuts += 1
                self.listener.close()
                time.sleep(0.3)
                self.listen(self.port)

    def serve(self, client):
        """One connection at a time, as our client has. Returns whether it was cut."""
        server = socket.create_connection(self.daemon_at)
        pair, carried = {client: server, server: client}, 0
        while carried < self.most:
            for s in select.select(list(pair), [], [])[0]:
                try:
                    data = s.recv(65536)
                    pair[s].sendall(data)
                except OSError:  # one end has closed while the other was sending
                    data = b''
                carried += len(data)
                if not data:
                    client.close()
                    server.close()
                    return False
        for s in pair:  # a reset: data still in the kernel is discarded
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            s.close()
        return True


RECEIVE = '''
import hashlib, socket
with socket.create_server(("", 8096)) as listener:
    digest = hashlib.file_digest(listener.accept()[0].makefile("rb"), "sha256").hexdigest()
open("sum", "w").write(digest)
'''


def cut_connections(level):
    """Our own client reconnects by itself: every byte arrives exactly once, both ways."""
    cutter = Cutter()
    cutter.start()
    path = f'{os.environ["HOME"]}/much'
    with open(path, 'wb') as file:
        file.write(os.urandom(24 << 20))
    with open(path, 'rb') as file:
        want = hashlib.file_digest(file, 'sha256').hexdigest()
    command = ['vtpu', 'compute', 'start-iap-tunnel', instance(), '22', '--listen-on-stdin', ZONE]
    proxy = f'env VTPU_ENDPOINT=http://127.0.0.1:{cutter.port} {" ".join(command)}'
    user = re.search(r'(\S+)@', harness.shell(f'vtpu tpu-vm ssh lab {THROUGH} --dry-run'))[1]
    ssh = (f'ssh -i {os.environ["HOME"]}/.ssh/google_compute_engine -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null '
           f'-o LogLevel=ERROR -o "ProxyCommand={proxy}" {user}@{instance()}')
    start = time.monotonic()
    assert want in harness.shell(f'{ssh} "tee much | sha256sum" < {path}')
    there = cutter.cuts
    assert want in harness.shell(f'{ssh} "cat much; rm much" | sha256sum')
    assert there >= 4 and cutter.cuts - there >= 4, (there, cutter.cuts)
    took = time.monotonic() - start
    if level == 2:  # a close comes after everything sent before it
        with open(f'{os.environ["HOME"]}/receive.py', 'w', encoding='ascii') as file:
            file.write(RECEIVE)
        harness.shell(f'vtpu tpu-vm scp {os.environ["HOME"]}/receive.py lab:receive.py {ZONE}; '
                      f'vtpu tpu-vm ssh lab {ZONE} --command="nohup python3 receive.py >/dev/null 2>&1 </dev/null & sleep 1"')
        harness.shell(f'{proxy.replace(" 22 ", " 8096 ")} < {path}')
        harness.wait_for(lambda: harness.shell(f'vtpu tpu-vm ssh lab {ZONE} --command="cat sum || true"'), lambda text: want in text)
    os.remove(path)
    print(f'level {level}: {cutter.cuts} connections cut in {2 * 24} MiB, every byte arrived, {took:.0f} s')


def rule_breakers():
    sends = [('unmasked', lambda t: t.frame(2, b'x', mask=False), 1002), ('too long', lambda t: t.frame(2, bytes(20000)), 1009),
             ('text', lambda t: t.frame(1, b'hello'), 4007), ('a tag', lambda t: t.frame(2, b'\0\x09'), 4008),
             ('a length', lambda t: t.frame(2, struct.pack('>HI', 4, 9) + b'x'), 4013),
             ('thanks', lambda t: t.frame(2, struct.pack('>HQ', 7, 1 << 60)), 4005),
             ('noise', lambda t: t.socket.sendall(b'\xff' * 100), 1002), ('goodbye', lambda t: t.frame(8, b'\x03\xe8'), 1000)]
    for name, send, code in sends:
        t = raw_socket.Tunnel(url(), bearer())
        send(t)
        got = t.close_code()
        assert got == code, (name, got, code)
    held = []
    while len(held) < 100 and refused(url(), {}) == 401:
        try:
            held.append(raw_socket.WebSocket(url(), raw_socket.TUNNEL, bearer()))
        except raw_socket.Refused as status:
            assert status.args[0] == 429, status
            break
    assert 32 <= len(held) <= 64, len(held)
    api('GET', '/vtpu/v1/me')
    for t in held:  # a connection that only breaks would hold its slot for a minute
        t.frame(8, b'\x03\xe8')
        t.close_code()
    print(f'frames that break rules close; {len(held)} WebSockets of one caller')


def under_tls():
    """Google's names and TLS: a client with the system's authorities, and ours over https."""
    name, token = instance(), os.environ['VTPU_TOKEN']
    for host in ('tunnel-cloudproxy.googleapis.com', 'tunnel.cloudproxy.app'):
        program = (f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import raw_socket; "
                   f"t = raw_socket.Tunnel('https://{host}/v4/connect?project={os.environ['VTPU_PROJECT']}&zone=us-central2-b"
                   f"&instance={name}&interface=nic0&port=22', {{'Authorization': 'Bearer {token}'}}); print(t.data(4))")
        out = harness.shell(f'vtpu googleapis -- {sys.executable} -c "{program}"')
        assert "b'SSH-'" in out, out
    https = 'env VTPU_ENDPOINT=https://tpu.googleapis.com'
    out = harness.shell(f'vtpu googleapis -- {https} vtpu tpu-vm ssh lab {THROUGH} --command="head -c 20000000 /dev/zero" | wc -c')
    assert out.split()[-1] == '20000000', out
    print('TLS, with the names of the real service')


def ssh_is_ready():
    harness.shell(f'vtpu tpu-vm create lab {ZONE} --accelerator-type=v4-16 --version=tpu-ubuntu2204-base')
    harness.shell(f'vtpu tpu-vm ssh lab {ZONE} --worker=all --command=true')


def inner():
    level = int(os.environ.get('TUNNEL_LEVEL', '2'))
    ssh_is_ready()
    openssh(level)
    much_data(level)
    cut_connections(level)
    other_ports(level)
    if level == 1:
        last = url()
        harness.shell(f'vtpu tpu-vm delete lab {ZONE} --quiet')
        assert refused(last, bearer()) == 404
        return
    ends_with_its_token()
    foreign = who_may()
    broken_connections(foreign)
    rule_breakers()
    if harness.private_mounts():
        under_tls()
    open_at_the_end = raw_socket.Tunnel(url(), bearer())
    done = subprocess.run(['vtpud', '--ephemeral', '--guests=1', '--', sys.executable, os.path.abspath(__file__), 'inner'],
                          env={**os.environ, 'TUNNEL_LEVEL': '1'}, check=False)
    assert done.returncode == 0
    assert open_at_the_end.data(4) == b'SSH-'  # still open when the daemon is told to stop


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', 'curl'], options=['--googleapis=127.0.0.2'])
