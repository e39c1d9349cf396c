# SPDX-License-Identifier: Apache-2.0
"""Trains one program of models/ on a slice: what it prints must reach its figure of merit.

models.py VTPU VENVS NAME
"""

import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../models")

# figure: the words around the number; least and most that it may be; program: with its arguments, if it is no train.py
Model = collections.namedtuple("Model", "venv slice figure least most program", defaults=((),))
NOTEBOOK = os.path.join(HERE, "notebook.py")
JAX, KERAS, TORCH = ("venv", "v3-8"), ("venv-frameworks", "v3-8"), ("venv-torch-xla", "v5litepod-1")
FIGURES = {
    "speech": Model(*JAX, r"tpu: .* ([\d.]+) % of the letters wrong", 0, 5),
    "translation": Model(*KERAS, r"([\d.]+) % of the words right", 25, 100),
    "segmenter": Model(*KERAS, r"mean overlap ([\d.]+) %", 30, 100),
    "detector": Model(*TORCH, r"xla: .* score ([\d.]+) %", 35, 100),
    "notebook": Model("venv-frameworks", "v5litepod-8", r"([\d.]+) % of the images right", 70, 100, (NOTEBOOK, "notebook/clothes.ipynb")),
    "bert": Model(*TORCH, r"xla: .* ([\d.]+) % of the sayings in their collection", 50, 100),
    "gan": Model(*TORCH, r"xla: .* ([\d.]+) % of the digits read as their class", 60, 100),
}


def main():
    (vtpu, venvs), name = map(os.path.abspath, sys.argv[1:3]), sys.argv[3]
    model = FIGURES[name]
    venv = os.path.join(venvs, model.venv)
    if not os.path.exists(venv + "/.stamp"):
        print(f"skipped: no {venv} (./dev frameworks)")
        return 77
    program = model.program or (f"{name}/train.py",)
    words = [vtpu, "run", "-t", model.slice, "--", venv + "/bin/python", "-u", *program]
    done = subprocess.run(words, cwd=MODELS, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False)
    print(done.stdout[-3000:], done.stderr[-3000:])
    found = re.search(model.figure, done.stdout)
    if done.returncode != 0 or not found or "did not open the TPU" in done.stderr:
        return 1
    return 0 if model.least <= float(found[1]) <= model.most else 1


if __name__ == "__main__":
    sys.exit(main())
