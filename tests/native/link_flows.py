"""Flows for tests, which are released at the end of a `with`."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Flow, FlowStamps, Kernels

HOST = -1
DEADLINE_S = 60.0


class Flows(ExitStack):
    """Makes flows between devices and host memory, which is device -1."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self._kernels: dict[int, Kernels] = {}

    def kernels(self, device: int) -> Kernels:
        """The kernels of a device, which are loaded once."""
        if device not in self._kernels:
            self._kernels[device] = self.enter_context(closing(self.engine.Kernels(device)))
        return self._kernels[device]

    def memory(self, device: int, nbytes: int) -> int:
        """The address of new memory."""
        if device == HOST:
            return self.enter_context(closing(self.engine.HostBuffer(nbytes, "pinned"))).address
        return self.enter_context(closing(self.engine.DeviceBuffer(nbytes, device))).address

    def _allow_access(self, device: int, sides: set[int]) -> None:
        """A kernel needs access to the memory of peers."""
        for peer in sides - {HOST, device}:
            self.engine.enable_peer(device, peer)

    def copy(
        self,
        source_device: int,
        destination_device: int,
        nbytes: int,
        *,
        by: int | None = None,
        engine: Literal["ce", "sm"] = "ce",
        with_kernels: bool = True,
        **others: Any,
    ) -> Flow:
        """A flow of copies `by` a device, by default the one that it writes to."""
        device = by if by is not None else max(destination_device, HOST)
        device = source_device if device == HOST else device
        if engine == "sm":
            self._allow_access(device, {source_device, destination_device})
        made = self.engine.Flow(
            device=device,
            engine=engine,
            destination=others.pop("destination", None) or self.memory(destination_device, nbytes),
            source=others.pop("source", None) or self.memory(source_device, nbytes),
            nbytes=nbytes,
            kernels=self.kernels(device) if with_kernels else None,
            source_device=source_device,
            destination_device=destination_device,
            **others,
        )
        return self.enter_context(closing(made))

    def chase(self, device: int, memory_device: int, nbytes: int, hops: int, **others: Any) -> Flow:
        """A chase through new memory, with a pointer every 64 bytes."""
        self._allow_access(device, {memory_device})
        address = others.pop("source", None)
        if address is None:
            address = self.memory(memory_device, nbytes)
            self.engine.make_cycle(address, nbytes, 64, 1, memory_device)
        made = self.engine.Flow(
            device=device,
            engine="chase",
            destination=0,
            source=address,
            nbytes=nbytes,
            kernels=self.kernels(device),
            source_device=memory_device,
            hops=hops,
            **others,
        )
        return self.enter_context(closing(made))

    def run(self, *flows: Flow, seconds: float = 0.0, **others: Any) -> list[FlowStamps]:
        return self.engine.run_flows(flows, seconds, DEADLINE_S, **others)


def words_at(address: int, count: int) -> NDArray[np.uint64]:
    """Words of memory of the host runtime, whose devices have ordinary memory too."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))


def word_at(address: int) -> NDArray[np.uint64]:
    return words_at(address, 1)


def durations_s(stamps: FlowStamps) -> NDArray[np.float64]:
    return (stamps.end_ns - stamps.begin_ns) / 1e9
