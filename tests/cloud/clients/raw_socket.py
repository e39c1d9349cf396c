# SPDX-License-Identifier: Apache-2.0
# raw_socket.py - a WebSocket client in bare Python that also sends invalid frames.
import base64
import hashlib
import os
import socket
import ssl
import struct
from urllib.parse import urlsplit

TUNNEL = 'relay.tunnel.cloudproxy.app'


class Refused(Exception):
    """The server's HTTP status, when it is not 101."""


class Closed(Exception):
    """The code and reason of the server's close frame; 0 when the connection just ended."""


class WebSocket:
    def __init__(self, url, protocol, headers=None, timeout=600):
        where = urlsplit(url)
        port = where.port or (443 if where.scheme == 'https' else 80)
        self.socket = socket.create_connection((where.hostname, port), timeout=timeout)
        if where.scheme == 'https':
            self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=where.hostname)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = {'Host': where.netloc, 'Upgrade': 'websocket', 'Connection': 'keep-alive, Upgrade', 'Sec-WebSocket-Version': '13',
                 'Sec-WebSocket-Key': key, 'Sec-WebSocket-Protocol': protocol, **(headers or {})}
        path = where.path + ('?' + where.query if where.query else '')
        self.socket.sendall((f'GET {path} HTTP/1.1\r\n' + ''.join(f'{k}: {v}\r\n' for k, v in lines.items() if v) + '\r\n').encode())
        self.got = b''
        while b'\r\n\r\n' not in self.got:
            more = self.socket.recv(65536)
            if not more:
                raise Refused(0)
            self.got += more
        head, self.got = self.got.split(b'\r\n\r\n', 1)
        status = int(head.split()[1])
        if status != 101:
            raise Refused(status)
        accept = base64.b64encode(hashlib.sha1((key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
        assert b'Sec-WebSocket-Accept: ' + accept in head, head

    def need(self, size):
        while len(self.got) < size:
            more = self.socket.recv(1 << 20)
            if not more:
                raise Closed(0)
            self.got += more

    def frame(self, opcode, data, mask=True, first=0x80):
        size = len(data)
        head = bytes([first | opcode, (0x80 if mask else 0) | (size if size < 126 else 126 if size < 65536 else 127)])
        head += b'' if size < 126 else struct.pack('>H' if size < 65536 else '>Q', size)
        if mask:
            head += bytes(4)
        self.socket.sendall(head + data)

    def message(self):
        """The server's next message as (opcode, bytes); answers pings."""
        while True:
            self.need(2)
            opcode, size, at = self.got[0] & 15, self.got[1], 2
            assert not size & 0x80, 'the server masks'
            if size >= 126:
                at = 4 if size == 126 else 10
                self.need(at)
                size = int.from_bytes(self.got[2:at], 'big')
            self.need(at + size)
            data, self.got = self.got[at:at + size], self.got[at + size:]
            if opcode == 8:
                raise Closed(struct.unpack('>H', data[:2])[0] if data else 0, data[2:].decode())
            if opcode == 9:
                self.frame(10, data)
            else:
                return opcode, data

    def close_code(self):
        """Reads to the end."""
        try:
            while True:
                self.message()
        except Closed as closed:
            return closed.args[0]
        except OSError:
            return 0


class Tunnel(WebSocket):
    """The client side of a relay: `data` asks for bytes, `send` gives them."""

    def __init__(self, url, headers):
        super().__init__(url, TUNNEL, {'Origin': 'bot:iap-tunneler', **headers})
        self.count, self.kept = 0, b''
        tag, self.first = self.next()
        assert tag in (1, 2), tag

    def next(self):
        _, data = self.message()
        tag = struct.unpack('>H', data[:2])[0]
        return tag, data[6:] if tag in (1, 4) else struct.unpack('>Q', data[2:])[0]

    def data(self, size, acknowledge=True):
        while len(self.kept) < size:
            tag, data = self.next()
            if tag == 4:
                self.kept += data
                self.count += len(data)
                if acknowledge:
                    self.frame(2, struct.pack('>HQ', 7, self.count))
        out, self.kept = self.kept[:size], self.kept[size:]
        return out

    def send(self, data):
        self.frame(2, struct.pack('>HI', 4, len(data)) + data)
