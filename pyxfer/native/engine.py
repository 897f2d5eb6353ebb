"""The interface of the compiled modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxfer.native import _cuda


class Engine(Protocol):
    """The interface that `_cuda` and `_host` share; `_cuda.pyi` documents it."""

    RUNTIME: str
    RUNTIME_VERSION: int
    trace_kinds: tuple[str, ...]
    DeviceBuffer: type[_cuda.DeviceBuffer]
    HostBuffer: type[_cuda.HostBuffer]
    Registration: type[_cuda.Registration]
    Stream: type[_cuda.Stream]
    Bracket: type[_cuda.Bracket]
    Lane: type[_cuda.Lane]
    Copier: type[_cuda.Copier]
    Ring: type[_cuda.Ring]
    Tracer: type[_cuda.Tracer]

    def device_count(self) -> int: ...
    def driver_version(self) -> int: ...
    def device_properties(self, device: int) -> _cuda.DeviceProperties: ...
    def memory_info(self, device: int) -> tuple[int, int]: ...
    def synchronize(self, device: int) -> None: ...
    def relax_captures_in_this_thread(self) -> None: ...
    def park_threads_at_exit(self, seconds: float) -> None: ...
    def driver_has(self, symbol: str, api_version: int) -> bool: ...
    def drained_fault(self, elapsed_s: float, wall_s: float) -> str: ...
    def take_cleanup_failures(self) -> list[str]: ...
    def page_nodes(self, address: int, nbytes: int) -> dict[int, int]: ...
    def prefer_node(self, node: int | None) -> None: ...
    def fill(self, address: int, nbytes: int, seed: int) -> None: ...
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
    def prepare_check(self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: int) -> None: ...
    def first_wrong(
        self, device: int, lane: _cuda.Lane, slot: int, seed: int, scratch: int, slow_reads: bool
    ) -> int | None: ...
