"""Choose and load the compiled engine: `_cuda` if a GPU is usable, else `_host`, which uses ordinary memory.

Importing this module loads neither and makes no CUDA call.
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
    """The chosen engine. `reason`: why it is the host's; empty for the GPU's, or if the caller chose the host."""

    engine: Engine
    runtime: Literal["cuda", "host"]
    reason: str


def choose(device: str | int = 0, require_gpu: bool = False) -> Choice:
    """Choose the GPU's engine if a GPU is usable, else the host's.

    Raises:
        CudaUnavailableError: `require_gpu` is set and no GPU is usable.

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
    """Import the compiled module of a runtime."""
    return cast("Engine", _module(f"_{runtime}"))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def _park_threads() -> None:
    # A thread that returns from native code while Python shuts down would be unwound through C++ and abort the process.
    for runtime in ("cuda", "host"):
        module = sys.modules.get(f"{__name__}._{runtime}")
        if module is not None:
            module.park_threads_at_exit(AT_EXIT_S)


# atexit runs functions in reverse order, so this one runs after those of the modules that use the engine.
atexit.register(_park_threads)
