"""Loaders of the tests' own, right and wrong. The processes of `pyxfer files` import this file as a script."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors.numpy import load_file

_loads: list[str] = []


def right(paths: list[str], device: str) -> dict[str, Any]:
    assert device == "cpu"
    return {name: array for path in paths for name, array in load_file(path).items()}


def pairs(paths: list[str], device: str) -> Iterator[tuple[str, Any]]:
    yield from right(paths, device).items()


def wrong(paths: list[str], device: str) -> dict[str, Any]:
    found = right(paths, device)
    last = next(reversed(found))
    found[last] = found[last].copy()
    found[last].reshape(-1).view(np.uint8)[-1] ^= 1
    return found


def short(paths: list[str], device: str) -> dict[str, Any]:
    found = right(paths, device)
    found.popitem()
    return found


def raising(paths: list[str], device: str) -> dict[str, Any]:
    raise ValueError("no such tensor")


def killed(paths: list[str], device: str) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def stuck(paths: list[str], device: str) -> dict[str, Any]:
    time.sleep(3600)
    return {}


def second_killed(paths: list[str], device: str) -> dict[str, Any]:
    """Its first load, which is not a trial, is right."""
    if _loads:
        os.kill(os.getpid(), signal.SIGKILL)
    _loads.append(device)
    return right(paths, device)
