# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/how-to/tensorflow.md that begin with "# runs", each in a process of its own, as on a TPU VM.

tensorflow_page.py VTPU VENVS
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "../..")


def main():
    vtpu, venv = os.path.abspath(sys.argv[1]), os.path.join(sys.argv[2], "venv-frameworks")
    if not os.path.exists(venv + "/.stamp"):
        print(f"skipped: no {venv} (./dev frameworks)")
        return 77
    with open(SOURCE + "/docs/how-to/tensorflow.md", encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n# (runs[a-z ]*)\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    before = "".join(code for kind, code in blocks if kind != "runs")
    programs = [code for kind, code in blocks if kind == "runs"]
    assert len(programs) == 6, len(programs)
    for code in programs:
        keras = "keras." in code
        if keras:  # all devices took part
            code = before + code + "\nimport jax\nassert len(jax.devices('tpu')) == 8 and jax.default_backend() == 'tpu'\n"
        words = [vtpu, "run", "--quiet", "-t", "v3-8" if keras else "v5litepod-1", "--", venv + "/bin/python", "-c", code]
        env = os.environ | {"PYTHONPATH": SOURCE + "/python", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        print(code if done.returncode else f"ran {code.count(chr(10))} lines")
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-4000:])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
