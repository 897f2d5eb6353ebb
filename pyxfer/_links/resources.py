"""What a run holds on its devices, made on first use and released together: memory, kernels, flows, peer access.

Sources of copies never change, and each flow has a landing of its own for everything that arrives.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyxfer._document.links import HOST_END, FlowPlan
from pyxfer._document.machines import Fact
from pyxfer._machine.numa import bind, verify_pages
from pyxfer._measure.run import Resource, Resources
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer._links.plan import TrafficPlan
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, DeviceBuffer, Flow, FlowStamps, HostBuffer, Kernels

POISON = 0x5EED
"""Seed of what stands in a landing before a copy is checked. No source has it."""
PIECE_BYTES = 16 << 20
MAX_CHECKED = 4
_SEEDS_APART = 1 << 20


def checked_pieces(nbytes: int, seed: int) -> list[tuple[int, int, int]]:
    """Number, offset and size of the pieces to check: all of a small copy; first, last and some of a large one."""
    found = [(i, at, min(PIECE_BYTES, nbytes - at)) for i, at in enumerate(range(0, nbytes, PIECE_BYTES))]
    if len(found) <= MAX_CHECKED:
        return found
    inner = random.Random(seed).sample(found[1:-1], MAX_CHECKED - 2)  # noqa: S311 - a choice of pieces
    return sorted([found[0], found[-1], *inner])


@dataclass
class Block:
    """A buffer and what stands in it: contents of a seed, or `places` of a cycle. `device`: HOST_END if of the host."""

    buffer: HostBuffer | DeviceBuffer
    device: int
    seed: int | None = None
    places: int | None = None

    @property
    def address(self) -> int:
        return self.buffer.address

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes


class Memory:
    """Page-locked host memory next to each GPU, and memory of the GPUs. `close` releases it."""

    def __init__(self, engine: Engine, nodes: Mapping[int, Fact[int]], seed: int) -> None:
        self._engine = engine
        self._nodes = nodes
        self._seed = seed
        self._blocks: dict[tuple[object, ...], Block] = {}

    def source(self, flow: FlowPlan, node: int | None, nbytes: int) -> Block:
        """Where a flow reads; the pieces that are checked are filled."""
        if flow.source == HOST_END:
            block = self._host(("source", flow.device, node, nbytes), flow.device, node, nbytes)
        else:
            block = self._device(("source", flow.source, nbytes), flow.source, nbytes)
        if block.seed is None:
            seed = self._seed + len(self._blocks) * _SEEDS_APART
            for number, offset, size in checked_pieces(nbytes, self._seed):
                self._fill(block, offset, size, seed + number)
            block.seed = seed
        return block

    def landing(self, flow: FlowPlan, node: int | None, nbytes: int) -> Block:
        """Where a flow writes; no other flow of a traffic writes there."""
        if flow.destination == HOST_END:
            return self._host(("landing", flow.device, node, nbytes), flow.device, node, nbytes)
        return self._device(("landing", flow.destination, flow.source, nbytes), flow.destination, nbytes)

    def poison(self, block: Block, nbytes: int) -> None:
        for _, offset, size in checked_pieces(nbytes, self._seed):
            self._fill(block, offset, size, POISON)

    def arrived(self, block: Block, nbytes: int, seed: int) -> bool:
        def wrong(offset: int, size: int, seed: int) -> int | None:
            if block.device == HOST_END:
                return self._engine.first_unlike(block.address + offset, size, seed)
            return self._engine.first_wrong_at(block.device, block.address + offset, size, seed)

        parts = checked_pieces(nbytes, self._seed)
        return all(wrong(offset, size, seed + number) is None for number, offset, size in parts)

    def _fill(self, block: Block, offset: int, nbytes: int, seed: int) -> None:
        if block.device == HOST_END:
            self._engine.fill(block.address + offset, nbytes, seed)
        else:
            self._engine.fill_device(block.device, block.address + offset, nbytes, seed)

    def chased(self, device: int, target: int, nbytes: int, node: int | None) -> Block:
        key = ("chase", device if target == HOST_END else target, target, nbytes, node)
        return self._host(key, device, node, nbytes) if target == HOST_END else self._device(key, target, nbytes)

    def small(self, device: int, nbytes: int) -> tuple[Block, Block, Block]:
        """Host and device memory for small copies, and pageable memory to check them with."""
        host = self._host(("small", device), device, None, nbytes)
        scratch = ("scratch", device)
        if scratch not in self._blocks:
            self._blocks[scratch] = Block(self._engine.HostBuffer(nbytes, "pageable", device), HOST_END)
        return host, self._device(("small-landing", device), device, nbytes), self._blocks[scratch]

    def pages(self, block: Block) -> Fact[dict[str, int]]:
        return verify_pages(self._engine, block.address, block.buffer.nbytes)

    def _host(self, key: tuple[object, ...], device: int, node: int | None, nbytes: int) -> Block:
        if key not in self._blocks:
            wanted = self._nodes[device] if node is None else Fact(node)
            with bind(self._engine, wanted):
                self._blocks[key] = Block(self._engine.HostBuffer(nbytes, "pinned", device), HOST_END)
        return self._blocks[key]

    def _device(self, key: tuple[object, ...], device: int, nbytes: int) -> Block:
        if key not in self._blocks:
            self._blocks[key] = Block(self._engine.DeviceBuffer(nbytes, device), device)
        return self._blocks[key]

    @property
    def held(self) -> list[HostBuffer | DeviceBuffer]:
        return [block.buffer for block in self._blocks.values()]

    def forget(self) -> None:
        self._blocks.clear()


# Far longer than any stretch of copies; a device that needs more has hung.
PATIENCE_S = 30.0
GATE_TIMEOUT_S = 1.0


class LinkResources(Resources):
    def __init__(self, engine: Engine, memory: Memory) -> None:
        super().__init__(engine)
        self.memory = memory
        self._kernels: dict[int, Kernels] = {}
        self._no_kernels: dict[int, str] = {}
        self._flows: list[Flow] = []
        self._copiers: dict[int, Copier] = {}
        self._enabled: set[tuple[int, int]] = set()

    def kernels(self, device: int) -> Kernels:
        """The kernels of a device. A failure is not tried again."""
        if device in self._no_kernels:
            raise MeasurementError(self._no_kernels[device])
        if device not in self._kernels:
            try:
                self._kernels[device] = self.engine.Kernels(device)
            except (CudaUnavailableError, DeviceLostError):
                raise
            except CudaError as error:
                self._no_kernels[device] = f"the copy kernels are not available: {error}"
                raise MeasurementError(self._no_kernels[device]) from error
        return self._kernels[device]

    def kernels_s(self, device: int) -> Fact[float]:
        try:
            return Fact(self.kernels(device).load_s)
        except MeasurementError as error:
            return Fact(reason=str(error))

    def gate(self, devices: Sequence[int]) -> Literal["kernel", "host"]:
        """Kernels open the gates of several devices together where all have them."""
        return "kernel" if all(self.kernels_s(device).value is not None for device in devices) else "host"

    def flow(self, plan: FlowPlan, traffic: TrafficPlan, depth: int) -> Flow:
        return self.any_flow(
            device=plan.device,
            engine=traffic.engine,
            destination=self.memory.landing(plan, traffic.node, traffic.nbytes).address,
            source=self.memory.source(plan, traffic.node, traffic.nbytes).address,
            nbytes=traffic.nbytes,
            kernels=self.known_kernels(plan.device, needed=traffic.engine == "sm"),
            depth=depth,
            source_device=plan.source,
            destination_device=plan.destination,
        )

    def known_kernels(self, device: int, *, needed: bool) -> Kernels | None:
        """The kernels of a device; without any None, or the error if they are needed."""
        if needed:
            return self.kernels(device)
        return self._kernels[device] if self.kernels_s(device).value is not None else None

    def any_flow(self, **settings: Any) -> Flow:
        self._flows.append(self.engine.Flow(**settings))
        return self._flows[-1]

    def drop(self, flow: Flow) -> None:
        self._flows.remove(flow)
        flow.close()

    def run(
        self, flows: Sequence[Flow], devices: Sequence[int], seconds: float, *, gated: bool = True
    ) -> list[FlowStamps]:
        timeout_s = GATE_TIMEOUT_S if gated else 0.0
        return self.engine.run_flows(flows, seconds, PATIENCE_S, self.gate(devices), timeout_s)

    def copier(self, device: int) -> Copier:
        if device not in self._copiers:
            self._copiers[device] = self.engine.Copier(device, 1, PATIENCE_S)
        return self._copiers[device]

    def set_access(self, flow: FlowPlan, wanted: bool) -> None:
        """Let the two GPUs of a flow access each other's memory directly, or not; before every run that depends on it.

        It asks the driver each time, because other libraries in the process change peer access too.
        """
        if HOST_END in (flow.source, flow.destination) or flow.source == flow.destination:
            return
        for pair in ((flow.source, flow.destination), (flow.destination, flow.source)):
            if wanted:
                self.engine.enable_peer(*pair)
                self._enabled.add(pair)
            else:
                self.engine.disable_peer(*pair)
                self._enabled.discard(pair)

    def _held(self) -> list[Resource]:
        access = [_PeerAccess(self.engine, pair) for pair in self._enabled]
        return [*self._flows, *self._copiers.values(), *self._kernels.values(), *access, *self.memory.held]

    def _forget(self) -> None:
        self._flows.clear()
        self._copiers.clear()
        self._kernels.clear()
        self._enabled.clear()
        self.memory.forget()


class _PeerAccess:
    def __init__(self, engine: Engine, pair: tuple[int, int]) -> None:
        self._engine = engine
        self._pair = pair

    def close(self) -> None:
        self._engine.disable_peer(*self._pair)

    def abandon(self) -> None: ...
