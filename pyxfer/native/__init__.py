"""Choice of the compiled engine: `_cuda` if a GPU is usable, else `_host`, which uses ordinary memory.

Importing this loads no engine and makes no CUDA call.
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
    """An engine. `reason` says why it is not the GPU's; it is empty if it is, or if the host was requested."""

    engine: Engine
    runtime: Literal["cuda", "host"]
    reason: str


def choose(device: str | int = 0, require_gpu: bool = False) -> Choice:
    """Return the GPU's engine if a GPU is usable, else the host's.

    Raises:
        CudaUnavailableError: `require_gpu` is true and no GPU is usable.

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
    return cast("Engine", _module(f"_{runtime}"))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def _park_threads() -> None:
    """Keep threads in native code: one that returned to Python during finalization would abort the process."""
    for runtime in ("cuda", "host"):
        module = sys.modules.get(f"{__name__}._{runtime}")
        if module is not None:
            module.park_threads_at_exit(AT_EXIT_S)


# Exit handlers run in reverse order, so this one runs after those of the engine's users.
atexit.register(_park_threads)
