"""Choose and load the compiled engine: `_cuda` if a GPU is usable, else `_host`, which uses ordinary memory.

Importing this module loads neither and makes no CUDA call.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from pyxfer.errors import CudaUnavailableError

if TYPE_CHECKING:
    from pyxfer.native import _cuda

__all__ = ["HOST", "Choice", "Engine", "choose", "load"]

HOST = "host"
AT_EXIT_S = 0.5


class Engine:
    """The module `_cuda` or `_host`, with what they share; `_cuda.pyi` declares and documents it."""

    if TYPE_CHECKING:
        RUNTIME: str
        RUNTIME_VERSION: int
        trace_kinds: tuple[str, ...]
        DeviceBuffer = _cuda.DeviceBuffer
        Conversion = _cuda.Conversion
        Pack = _cuda.Pack
        FileSet = _cuda.FileSet
        FileWindow = _cuda.FileWindow
        HostBuffer = _cuda.HostBuffer
        Registration = _cuda.Registration
        Stream = _cuda.Stream
        Bracket = _cuda.Bracket
        Lane = _cuda.Lane
        Copier = _cuda.Copier
        Ring = _cuda.Ring
        Tracer = _cuda.Tracer
        Kernels = _cuda.Kernels
        BlockMover = _cuda.BlockMover
        BlockPair = _cuda.BlockPair
        Flow = _cuda.Flow
        device_count = staticmethod(_cuda.device_count)
        driver_version = staticmethod(_cuda.driver_version)
        device_properties = staticmethod(_cuda.device_properties)
        memory_info = staticmethod(_cuda.memory_info)
        synchronize = staticmethod(_cuda.synchronize)
        relax_captures_in_this_thread = staticmethod(_cuda.relax_captures_in_this_thread)
        park_threads_at_exit = staticmethod(_cuda.park_threads_at_exit)
        can_access_peer = staticmethod(_cuda.can_access_peer)
        enable_peer = staticmethod(_cuda.enable_peer)
        disable_peer = staticmethod(_cuda.disable_peer)
        device_attribute = staticmethod(_cuda.device_attribute)
        driver_has = staticmethod(_cuda.driver_has)
        drained_fault = staticmethod(_cuda.drained_fault)
        take_cleanup_failures = staticmethod(_cuda.take_cleanup_failures)
        unmap_shared = staticmethod(_cuda.unmap_shared)
        page_nodes = staticmethod(_cuda.page_nodes)
        prefer_node = staticmethod(_cuda.prefer_node)
        fill = staticmethod(_cuda.fill)
        plain_arrays = staticmethod(_cuda.plain_arrays)
        to_dlpack = staticmethod(_cuda.to_dlpack)
        first_unlike = staticmethod(_cuda.first_unlike)
        prepare_check = staticmethod(_cuda.prepare_check)
        first_wrong = staticmethod(_cuda.first_wrong)
        fill_device = staticmethod(_cuda.fill_device)
        first_wrong_at = staticmethod(_cuda.first_wrong_at)
        memory_of = staticmethod(_cuda.memory_of)
        make_cycle = staticmethod(_cuda.make_cycle)
        run_flows = staticmethod(_cuda.run_flows)


class Choice(NamedTuple):
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
