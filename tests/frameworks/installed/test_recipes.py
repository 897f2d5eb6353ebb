"""The code that `explain` recommends, each in a fresh process on an ordinary array."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from frameworks.installed.conftest import SLOW, needs

from pyxfer._frameworks.registry import FRAMEWORKS, load_framework
from pyxfer._report.recipes import NOT_RECOMMENDED, RAW_UPLOAD, RECIPES

ROUTES = {route.name: route for name in FRAMEWORKS for route in load_framework(name).routes}
HOMES = {load_framework(name).owner: name for name in FRAMEWORKS}
# As malloc places a large array: 16 bytes after a page boundary.
ARRAY = """
import numpy as np
room = np.empty((1 << 20) + 8192, np.uint8)
x = room[16 + -room.ctypes.data % 4096 :][: 1 << 20].view(np.float32).reshape(256, 1024)
x[...] = np.random.default_rng(0).random(x.shape, np.float32)
"""
ON_GPU = {
    "torch": "import torch\ny = torch.from_numpy(x).cuda()",
    "tensorflow": 'import tensorflow as tf\nwith tf.device("/GPU:0"):\n    y = tf.constant(x)',
    "jax": "import jax\ny = jax.device_put(x)",
    "cupy": "import cupy\ny = cupy.asarray(x)",
}
RESULTS = {"h2d": "y", "d2h": "back", "ingest": "t"}
# Computing with the result shows a tensor in misaligned memory.
CHECK = """
total = {result} + {result}
found = total.get() if hasattr(total, "get") else total.cpu() if hasattr(total, "cpu") else total
assert np.array_equal(np.asarray(found), (x + x)[-len(found) :]), "{name} has the wrong contents"
"""

# What needs a GPU, and what stands for it on a machine without one.
WITHOUT_GPU = {
    "/GPU:0": "/CPU:0",
    '"cuda"': '"cpu"',
    ".cuda()": "",
    ".pin_memory()": "",
    "pin_memory=True": "pin_memory=False",
    "torch.cuda.synchronize()": "",
    'jax.devices("gpu")': 'jax.devices("cpu")',
}
# The CPU's client of JAX does not know this option.
NEEDS_GPU = {"jax.device-put-nostage"}
CODES = {**{name: recipe.code for name, recipe in RECIPES.items()}, "torch.raw": RAW_UPLOAD}


def test_every_route_has_a_recipe_or_a_reason_for_none() -> None:
    assert set(RECIPES) | set(NOT_RECOMMENDED) == set(ROUTES)
    assert not set(RECIPES) & set(NOT_RECOMMENDED)


@pytest.mark.parametrize("name", CODES)
def test_a_recipe_makes_only_public_calls_and_fits_a_terminal(name: str) -> None:
    compile(CODES[name], name, "exec")
    assert not re.search(r"\._(?!_)", CODES[name])
    assert max(map(len, CODES[name].splitlines())) <= 80


def program(name: str) -> str:
    """The recipe on an ordinary array, and a computation with its result."""
    direction = ROUTES[name].direction if name in ROUTES else "h2d"
    before = ON_GPU[HOMES[name.partition(".")[0]]] if direction == "d2h" else ""
    return "\n".join([ARRAY, before, CODES[name], CHECK.format(result=RESULTS[direction], name=name)])


def run(text: str, **variables: str) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment = {**os.environ, **quiet, **variables}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}\n{text}\n{done.stderr[-2000:]}"


def installed(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=needs(HOMES[name.partition(".")[0]])) for name in names]


@SLOW
@pytest.mark.parametrize("name", installed(name for name in CODES if name not in NEEDS_GPU))
def test_a_recipe_runs_in_a_fresh_process_without_a_gpu(name: str) -> None:
    text = program(name)
    for words, stand_in in WITHOUT_GPU.items():
        text = text.replace(words, stand_in)
    run(text, CUDA_VISIBLE_DEVICES="")


@SLOW
@pytest.mark.gpu
@pytest.mark.parametrize("name", installed(CODES))
def test_a_recipe_runs_in_a_fresh_process_on_a_gpu(name: str) -> None:
    run(program(name))
