# SPDX-License-Identifier: Apache-2.0
"""Processes that stay alive and answer one JSON object per line on standard input with one per line on standard output.
Everything else that they print goes to standard error."""

import json
import os
import subprocess
import sys
import time


class Failed(Exception):
    pass


class Process:
    def __init__(self, name, command, env):
        self.name = name
        self.process = subprocess.Popen(command, env=dict(env, PYTHONUNBUFFERED="1"), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, do, **arguments):
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"{self.name}: the process ended (exit code {self.process.wait()})")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error'].splitlines()[0][:200]}")
        return answer["value"]

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def serve(worker):
    """In the process: each request is a call of a method."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": getattr(worker, request.pop("do"))(**request)}
        except Exception as error:  # the row is lost, the run continues
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def timed(call, count, wait=lambda result: None):
    """Seconds of each of `count` calls by the clock, and of the processors; `wait` is for the last result."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(count):
        result = call()
    wait(result)
    return [(time.perf_counter() - wall) / count, (time.process_time() - processor) / count]


def distance(result, reference):
    """Of two arrays, relative to the second."""
    difference = (result.ravel() - reference.ravel()).astype("float64")
    return float((difference @ difference) ** 0.5 / max(1e-30, float((reference.astype("float64") ** 2).sum()) ** 0.5))
