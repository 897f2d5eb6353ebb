"""The compiled engine, chosen: `_cuda` where a GPU answers, else `_host` over ordinary memory.

Nothing is loaded and no CUDA call is made before somebody chooses.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Protocol, cast

from pyxfer.errors import CudaUnavailableError

if TYPE_CHECKING:
    from pyxfer.native import _cuda

    class Engine(Protocol):
        """What `_cuda` and `_host` both offer; `_cuda.pyi` has the signatures."""

        # ruff: noqa: D102 - the stub file says what they do

        RUNTIME: str
        RUNTIME_VERSION: int
        DeviceBuffer: type[_cuda.DeviceBuffer]
        HostBuffer: type[_cuda.HostBuffer]
        Stream: type[_cuda.Stream]
        Bracket: type[_cuda.Bracket]
        Lane: type[_cuda.Lane]
        Copier: type[_cuda.Copier]

        def device_count(self) -> int: ...
        def driver_version(self) -> int: ...
        def device_properties(self, device: int) -> _cuda.DeviceProperties: ...
        def memory_info(self, device: int) -> tuple[int, int]: ...
        def synchronize(self, device: int) -> None: ...
        def driver_has(self, symbol: str, api_version: int) -> bool: ...
        def drained_fault(self, elapsed_s: float, wall_s: float) -> str: ...
        def take_cleanup_failures(self) -> list[str]: ...
        def page_nodes(self, address: int, nbytes: int) -> dict[int, int]: ...
        def prefer_node(self, node: int | None) -> None: ...
        def fill(self, address: int, nbytes: int, seed: int) -> None: ...
        def first_unlike(self, address: int, nbytes: int, seed: int) -> int | None: ...
        def prepare_check(self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: int) -> None: ...
        def first_wrong(
            self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: int, slow_reads: bool
        ) -> int | None: ...


HOST = "host"


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
