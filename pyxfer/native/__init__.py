"""The compiled engine, chosen: `_cuda` where a GPU answers, else `_host` over ordinary memory.

Nothing is loaded and no CUDA call is made before somebody chooses.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, cast

from pyxfer.errors import CudaUnavailableError
from pyxfer.native.engine import Engine

__all__ = ["HOST", "Choice", "Engine", "choose", "load"]

HOST = "host"
AT_EXIT_S = 0.5


@dataclass(frozen=True)
class Choice:
    """An engine, and one line that says why it is not the GPU's (empty where it is, or was asked for)."""

    engine: Engine
    runtime: Literal["cuda", "host"]
    reason: str


def choose(device: str | int = 0, require_gpu: bool = False) -> Choice:
    """The GPU's engine if a GPU answers; else the host's, unless a GPU is required.

    Raises:
        CudaUnavailableError: a GPU is required and none is usable.

    """
    if device == HOST and not require_gpu:
        return Choice(load("host"), "host", "")
    cuda = load("cuda")
    try:
        cuda.device_count()
    except CudaUnavailableError as error:
        if require_gpu:
            raise
        return Choice(load("host"), "host", f"No usable GPU: {error.hint}")
    return Choice(cuda, "cuda", "")


def load(runtime: Literal["cuda", "host"]) -> Engine:
    """The compiled module of a runtime."""
    return cast("Engine", _module(f"_{runtime}"))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def _park_threads() -> None:
    """A thread that comes back from native code while Python shuts down would be unwound through it, and abort."""
    for runtime in ("cuda", "host"):
        module = sys.modules.get(f"{__name__}._{runtime}")
        if module is not None:
            module.park_threads_at_exit(AT_EXIT_S)


# Registered before what uses the engine registers its own: it runs when they are done.
atexit.register(_park_threads)
