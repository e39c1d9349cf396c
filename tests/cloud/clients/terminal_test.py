#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# terminal_test.py - login shells over WebSockets at both levels of guests, with keys and under OS Login: identity and
# privileges; they end when the session or token that opened them does (signed out, revoked, expired), and with the
# role.
import http.cookiejar
import json
import os
import subprocess
import sys
import time
import urllib.request

import harness
import raw_socket

ZONE = '--zone=us-central2-b'
TERMINAL = 'terminal.vtpu'
PROJECT = os.environ.get('VTPU_PROJECT')


def api(method, path, body=None, token=None, opener=None):
    request = urllib.request.Request(os.environ['VTPU_ENDPOINT'] + path, method=method, data=json.dumps(body or {}).encode(),
                                     headers={'Content-Type': 'application/json', 'X-Vtpu-Console': '1',
                                              **({} if opener else {'Authorization': f'Bearer {token or os.environ["VTPU_TOKEN"]}'})})
    with (opener.open if opener else urllib.request.urlopen)(request, timeout=600) as reply:
        return json.load(reply)


class Shell(raw_socket.WebSocket):
    def __init__(self, headers=None, more=''):
        url = f'{os.environ["VTPU_ENDPOINT"]}/vtpu/v1/projects/{PROJECT}/nodes/us-central2-b/lab:terminal?worker=0{more}'
        super().__init__(url, TERMINAL, headers or {'Authorization': f'Bearer {os.environ["VTPU_TOKEN"]}'}, timeout=600)
        self.text = ''

    def run(self, line, want):
        """Types a line; reads until `want` appears. Input is echoed, so `want` must not occur in the line,
        nor be a number: the prompt has the name of the host, which is random digits."""
        self.frame(2, (line + '\r').encode())
        seen = ''
        while want not in seen:
            seen += self.message()[1].decode(errors='replace')
        return seen

    def ending(self):
        """Code and reason of the close."""
        try:
            while True:
                self.message()
        except raw_socket.Closed as closed:
            return closed.args


def refused(**headers):
    try:
        Shell(headers)
    except raw_socket.Refused as status:
        return status.args[0]
    return 101


def session(body):
    """Signs in; the opener, and the headers that a WebSocket of the console sends."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    api('POST', '/vtpu/v1/session', body, opener=opener)
    return opener, {'Cookie': '; '.join(f'{c.name}={c.value}' for c in jar), 'Origin': os.environ['VTPU_ENDPOINT']}


def account(name, *roles):
    """A user of the project with a password; its token."""
    token = api('POST', '/vtpu/v1/accounts', {'email': f'{name}@example.org', 'role': 'user', 'password': 'correct horse battery'})['token']
    grant(name, *roles)
    return token


def grant(name, *roles):
    policy = api('POST', f'/v1/projects/{PROJECT}:getIamPolicy')
    for binding in policy['bindings']:
        binding['members'] = [m for m in binding['members'] if m != f'user:{name}@example.org']
    policy['bindings'] += [{'role': role, 'members': [f'user:{name}@example.org']} for role in roles]
    api('POST', f'/v1/projects/{PROJECT}:setIamPolicy', {'policy': policy})


def with_keys(level):
    s = Shell()
    assert s.run('id -un; echo do""ne', 'done').count('admin'), 'another name'
    if level == 2:
        assert 'uid=0' in s.run('sudo -n id; echo do""ne', 'done')
    s.frame(1, json.dumps({'columns': 99, 'rows': 33}).encode())
    s.run('sleep 0.3; stty size', '33 99')
    s.frame(2, b'exit 7\r')
    assert s.ending() == (1000, 'exit 7')
    other = Shell(more='&user=somebody')
    other.run('id -un; echo do""ne', 'somebody\r\ndone')
    other.frame(8, b'\x03\xe8')
    print(f'level {level}: a shell, its size and its end, another name')


def ends_with_the_session():
    cat = account('cat', 'roles/tpu.admin', 'roles/iam.serviceAccountUser')
    opener, headers = session({'email': 'cat@example.org', 'password': 'correct horse battery'})
    by_cookie, by_token, left = Shell(headers), Shell({'Authorization': f'Bearer {cat}'}), Shell()
    for s in (by_cookie, by_token, left):
        s.run('echo do""ne', 'done')
    by_cookie.frame(2, b'sleep 1000\r')
    api('DELETE', '/vtpu/v1/session', opener=opener)
    assert by_cookie.ending() == (1008, 'signed out, or not allowed here any more')
    assert refused(**headers) == 401
    by_token.run('echo do""ne', 'done')  # another credential of the same account
    urllib.request.urlopen(f'{os.environ["VTPU_ENDPOINT"]}/revoke', data=f'token={cat}'.encode(), timeout=600).close()
    assert by_token.ending()[0] == 1008
    opener, headers = session({'email': 'cat@example.org', 'password': 'correct horse battery'})
    by_cookie = Shell(headers)
    by_cookie.run('echo do""ne', 'done')
    grant('cat', 'roles/tpu.viewer')
    assert by_cookie.ending()[0] == 1008
    assert refused(**headers) == 403
    left.run('echo do""ne', 'done')
    harness.wait_for(lambda: harness.shell(f'vtpu tpu-vm ssh lab {ZONE} --command="pgrep -x -u cat sleep || echo none"'), lambda text: 'none' in text)
    print('signed out: closed; so for a revoked token and a role that was taken away')


def with_os_login(level):
    metadata = api('GET', f'/compute/v1/projects/{PROJECT}')['commonInstanceMetadata']
    items = [i for i in metadata.get('items', []) if i['key'] != 'enable-oslogin'] + [{'key': 'enable-oslogin', 'value': 'TRUE'}]
    api('POST', f'/compute/v1/projects/{PROJECT}/setCommonInstanceMetadata', {'fingerprint': metadata['fingerprint'], 'items': items})
    s = Shell()  # the owner may do everything
    s.run('id -un; echo do""ne', 'admin_vtpu_localhost\r\ndone')
    if level == 2:
        s.run('sudo -n id -u; echo do""ne', '0\r\ndone')
    s.frame(8, b'\x03\xe8')
    bob = {'Authorization': f'Bearer {account("bob", "roles/tpu.admin")}'}
    assert refused(**bob) == 403  # may change nodes, but not log in
    grant('bob', 'roles/tpu.admin', 'roles/compute.osLogin')
    assert refused(**bob) == 403  # nor run anything as the workers' service account
    grant('bob', 'roles/tpu.admin', 'roles/compute.osLogin', 'roles/iam.serviceAccountUser')
    s = Shell(bob)
    s.run('id -un; echo do""ne', 'bob_example_org\r\ndone')
    s.run('sudo -n id -u || echo do""ne', 'done')
    s.frame(8, b'\x03\xe8')
    print(f'level {level}: OS Login decides the name, who gets in and who is root')


def ends_in_time():
    """Half a day later."""
    _, headers = session({'token': os.environ['VTPU_TOKEN']})
    s, stays = Shell(headers), Shell()
    s.run('echo do""ne', 'done')
    stays.run('echo do""ne', 'done')
    api('POST', '/vtpu/v1/clock:advance', {'seconds': 12 * 3600 - 60})
    time.sleep(2)
    s.run('echo do""ne', 'done')
    api('POST', '/vtpu/v1/clock:advance', {'seconds': 61})
    assert s.ending()[0] == 1008
    stays.run('echo do""ne', 'done')
    print('expired: closed')


def again(step, *options):
    """This script in a cloud of level 1 and the rest of `options`."""
    subprocess.run(['vtpud', '--ephemeral', '--guests=1', *options, '--', sys.executable, os.path.abspath(__file__), 'inner'],
                   env={**os.environ, 'TERMINAL_STEP': step}, check=True)


def inner():
    step = os.environ.get('TERMINAL_STEP', '2')
    harness.shell(f'vtpu tpu-vm create lab {ZONE} --accelerator-type=v4-8 --version=tpu-ubuntu2204-base')
    if step == 'clock':
        ends_in_time()
        return
    with_keys(int(step))
    ends_with_the_session()
    with_os_login(int(step))
    if step == '2':
        again('1')
        again('clock', '--virtual-time')


if __name__ == '__main__':
    harness.run(inner, guests=True, needs=['sshd', 'ssh'])
