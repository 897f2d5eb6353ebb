"""Choose and load the compiled engine: `_cuda` if a GPU is usable, else `_host`, which uses ordinary memory.

Importing this module loads neither and makes no CUDA call.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Protocol, cast

from pyxfer.errors import CudaUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy as np

    from pyxfer.native import _cuda

__all__ = ["HOST", "Choice", "Engine", "choose", "load"]

HOST = "host"
AT_EXIT_S = 0.5


class Engine(Protocol):
    """The interface that `_cuda` and `_host` share; `_cuda.pyi` documents it."""

    RUNTIME: str
    RUNTIME_VERSION: int
    trace_kinds: tuple[str, ...]
    DeviceBuffer: type[_cuda.DeviceBuffer]
    Pack: type[_cuda.Pack]
    FileSet: type[_cuda.FileSet]
    FileWindow: type[_cuda.FileWindow]
    HostBuffer: type[_cuda.HostBuffer]
    Registration: type[_cuda.Registration]
    Stream: type[_cuda.Stream]
    Bracket: type[_cuda.Bracket]
    Lane: type[_cuda.Lane]
    Copier: type[_cuda.Copier]
    Ring: type[_cuda.Ring]
    Tracer: type[_cuda.Tracer]
    Kernels: type[_cuda.Kernels]
    Flow: type[_cuda.Flow]

    def device_count(self) -> int: ...
    def driver_version(self) -> int: ...
    def device_properties(self, device: int) -> _cuda.DeviceProperties: ...
    def memory_info(self, device: int) -> tuple[int, int]: ...
    def synchronize(self, device: int) -> None: ...
    def relax_captures_in_this_thread(self) -> None: ...
    def park_threads_at_exit(self, seconds: float) -> None: ...
    def can_access_peer(self, device: int, peer: int) -> bool: ...
    def enable_peer(self, device: int, peer: int) -> None: ...
    def disable_peer(self, device: int, peer: int) -> None: ...
    def device_attribute(self, device: int, attribute: int) -> int: ...
    def driver_has(self, symbol: str, api_version: int) -> bool: ...
    def drained_fault(self, elapsed_s: float, wall_s: float) -> str: ...
    def take_cleanup_failures(self) -> list[str]: ...
    def unmap_shared(self, address: int, nbytes: int) -> bool: ...
    def page_nodes(self, address: int, nbytes: int) -> dict[int, int]: ...
    def prefer_node(self, node: int | None) -> None: ...
    def fill(self, address: int, nbytes: int, seed: int) -> None: ...
    def plain_arrays(self, objects: list[Any]) -> tuple[list[int], list[np.dtype[Any]]]: ...
    def to_dlpack(
        self,
        address: int,
        device_type: int,
        device_index: int,
        dtype_code: int,
        dtype_bits: int,
        shape: Sequence[int],
        versioned: bool,
        owner: object,
    ) -> object: ...
    def first_unlike(self, address: int, nbytes: int, seed: int) -> int | None: ...
    def prepare_check(self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: tuple[int, int]) -> None: ...
    def first_wrong(
        self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: tuple[int, int], slow_reads: bool
    ) -> int | None: ...
    def fill_device(self, device: int, address: int, nbytes: int, seed: int) -> None: ...
    def first_wrong_at(self, device: int, address: int, nbytes: int, seed: int) -> int | None: ...
    def make_cycle(self, address: int, nbytes: int, stride: int, seed: int, device: int) -> int: ...
    def run_flows(
        self,
        flows: Sequence[_cuda.Flow],
        seconds: float,
        deadline_s: float,
        gate: Literal["kernel", "host"] = "kernel",
        gate_timeout_s: float = 1.0,
    ) -> list[_cuda.FlowStamps]: ...


@dataclass(frozen=True)
class Choice:
    """The chosen engine. `reason`: why it is the host's; empty for the GPU's, or if the caller chose the host."""

    engine: Engine
    runtime: Literal["cuda", "host"]
    reason: str


def is_host_name(device: object) -> bool:
    """Whether it names host memory: `host`, or `cpu` as frameworks call it."""
    return isinstance(device, str) and device.strip().lower() in (HOST, "cpu")


def choose(device: str | int = 0, require_gpu: bool = False) -> Choice:
    """Choose the GPU's engine if a GPU is usable, else the host's."""
    if is_host_name(device) and not require_gpu:
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
    # A thread that returns from native code while Python shuts down would be unwound through C++ and abort the process.
    for runtime in ("cuda", "host"):
        module = sys.modules.get(f"{__name__}._{runtime}")
        if module is not None:
            module.park_threads_at_exit(AT_EXIT_S)


# atexit runs functions in reverse order, so this one runs after those of the modules that use the engine.
atexit.register(_park_threads)
