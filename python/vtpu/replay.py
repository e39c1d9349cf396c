# SPDX-License-Identifier: Apache-2.0
"""Sends the calls of a recording (`vtpud --record=FILE`) to another cloud and compares the responses.

    vtpud --ephemeral --record=traffic.jsonl -- ./what-uses-the-cloud
    vtpud --ephemeral -- python -m vtpu.replay traffic.jsonl

or in a test, with the fixture of vtpu.cloud:

    def test_traffic(vtpud):
        assert vtpu.replay.replay("traffic.jsonl", vtpud) == []

Status and body must be equal, except for what no two clouds have in common: times, addresses, ids, etags, names of
operations, keys. Those must be of the same kind, and a later request that uses one gets this cloud's value.

A client that polls until something has come true is followed by polling until it has: of repetitions of one GET without
changes in between, the last response counts. States seen on the way (CREATING, an operation that is not done) may be
further along here. Sign-in, whose credentials a recording does not have, and WebSockets are skipped.
Every call is made with one token.
"""

import http.client
import json
import os
import re
import ssl
import sys
import time
import urllib.parse

SECRET = "{secret}"
SIGN_IN = ("/token", "/revoke", "/o/oauth2/auth", "/vtpu/v1/session")

# Transient states.
MOVING = {"CREATING", "STARTING", "STOPPING", "DELETING", "RESTARTING", "REIMAGING", "REPAIRING", "ACCEPTED", "PROVISIONING",
          "WAITING_FOR_RESOURCES", "SUSPENDING"}

# What differs between two clouds, by pattern; (kind, pattern). Times are not carried over into later requests.
VARIES = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in [
    ("time", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"),
    ("operation", r"operation-\d+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"),
    ("address", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
    ("key", r"\bAAAA[A-Za-z0-9+/]{40,}=*"),
    ("etag", r"\b(?:vtpu|BwXe)[0-9a-f]{8}\b"),
    ("hex", r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b"),
    ("number", r"\b\d{9,}\b"),
]))


def _parts(text):
    """The text with its varying parts taken out, and those parts as (kind, value)."""
    found = []

    def take(match):
        found.append((match.lastgroup, match[0]))
        return f"\0{match.lastgroup}\0"

    return VARIES.sub(take, text), found


def _learn(want, got, known):
    for (kind, old), (_, new) in zip(_parts(want)[1], _parts(got)[1]):
        if kind != "time":
            known[old] = new


def compare(want, got, known, where="reply"):
    """The differences, as lines; adds corresponding names to `known`."""
    if isinstance(want, float) and isinstance(got, (int, float)):
        return []  # amounts of money and of time
    if type(want) is not type(got):
        return [f"{where} is {json.dumps(got)}, not {json.dumps(want)}"]
    if isinstance(want, dict):
        lines = [f"{where}.{name} is missing" for name in want if name not in got]
        lines += [f"{where}.{name} is new" for name in got if name not in want]
        for name in want:
            if name in got:
                lines += compare(want[name], got[name], known, f"{where}.{name}")
        return lines
    if isinstance(want, list):
        if len(want) != len(got):
            return [f"{where} has {len(got)} items, not {len(want)}"]
        return [line for i, item in enumerate(want) for line in compare(item, got[i], known, f"{where}[{i}]")]
    if isinstance(want, str) and SECRET not in want:
        if _parts(want)[0] == _parts(got)[0]:
            _learn(want, got, known)
            return []
        return [f"{where} is {got!r}, not {want!r}"]
    return [] if want == got or isinstance(want, str) else [f"{where} is {got}, not {want}"]


def _fill(text, known):
    """The text with this cloud's values in place of the other one's."""
    for old in sorted(known, key=len, reverse=True):
        text = text.replace(old, known[old])
    return text


def _rows(path):
    """The rows to send, each with its line number."""
    with open(path, encoding="utf-8") as file:
        rows = [(number, json.loads(line)) for number, line in enumerate(file, 1) if line.strip()]
    sent, later = [], set()
    for number, row in reversed(rows):
        if row["method"] != "GET":
            later = set()
        elif row["path"] in later:
            continue
        else:
            later.add(row["path"])
        if row["status"] != 101 and row["path"].split("?")[0] not in SIGN_IN:
            sent.append((number, row))
    return reversed(sent)


class _Cloud:
    def __init__(self, variables):
        url = urllib.parse.urlsplit(variables["VTPU_ENDPOINT"])
        self.token = variables["VTPU_TOKEN"]
        self.here = url.netloc
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=variables.get("VTPU_CA"))
            self.connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=60, context=context)
        else:
            self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)

    def send(self, row, known):
        """Status and body of the response; the body is None when it is not JSON."""
        host = row.get("host", "")
        headers = {"Host": host if re.search(r"[a-z]\.[a-z]", host) else self.here}
        if row.get("type"):
            headers["Content-Type"] = row["type"]
        if row.get("caller", "?"):
            headers["Authorization"] = f"Bearer {self.token}"
        self.connection.request(row["method"], _fill(row["path"], known), _fill(row.get("body", ""), known).encode(), headers)
        reply = self.connection.getresponse()
        text = reply.read()
        try:
            return reply.status, json.loads(text)
        except ValueError:
            return reply.status, None


def _moves(value):
    if isinstance(value, dict):
        return value.get("done") is False or str(value.get("state")) in MOVING or any(_moves(item) for item in value.values())
    return isinstance(value, list) and any(_moves(item) for item in value)


def _differences(row, status, body, known):
    if row["method"] == "GET" and status in (200, 404) and _moves(row.get("reply")):
        return []
    if status != row["status"]:
        return [f"status {status}, not {row['status']}: {json.dumps(body)[:300]}"]
    return compare(row["reply"], body, known) if "reply" in row else []


def replay(path, variables=None, patience=60, known=None):
    """The differences between a recording and a cloud's responses now, as lines of text; [] when there are none.

    variables: of the cloud (VTPU_ENDPOINT, VTPU_TOKEN), as from vtpu.cloud.ephemeral; by default the environment's.
    patience: seconds to repeat a GET until it answers as recorded.
    known: names that differ in this cloud, {"their-project": "demo-project"}.
    """
    known = dict(known or {})
    cloud = _Cloud(os.environ if variables is None else variables)
    out = []
    for number, row in _rows(path):
        end = time.monotonic() + patience
        while True:
            learnt = {}
            lines = _differences(row, *cloud.send(row, known), learnt)
            if not lines or row["method"] != "GET" or time.monotonic() > end:
                break
            time.sleep(0.05)
        known.update(learnt)
        out += [f"{path}:{number}: {row['method']} {row['path']}: {line}" for line in lines]
    return out


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m vtpu.replay FILE [THEIRS=OURS ...]   the cloud's address and token are VTPU_ENDPOINT, VTPU_TOKEN")
    lines = replay(sys.argv[1], known=dict(word.split("=", 1) for word in sys.argv[2:]))
    print("\n".join(lines) or "all replies are as recorded")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
