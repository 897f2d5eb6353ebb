"""How a ring is built: threads, chunks and slots; what they cost, and how they are made to fit."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, get_args

from pyxfer.errors import UsageError
from pyxfer.machine import numa
from pyxfer.machine.engine import is_host
from pyxfer.machine.pci import canonical_address, read_node
from pyxfer.model_machine import Fact
from pyxfer.model_tuning import RingFill, RingSetup
from pyxfer.units import format_size

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring

Fill = RingFill
DEFAULT_BUDGET_BYTES = 256 << 20

# So little the driver sends together with the command, which no slot can beat.
DIRECT_BYTES = 32 << 10

# As csrc/ring/settings.hpp has them.
MOST_THREADS = 64
LEAST_SLOTS, MOST_SLOTS = 2, 4096
LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 4 << 10, 64 << 20
MOST_SPIN_US = 10**6

# Of a ring that has to be small: with fewer slots threads wait for one, and smaller chunks cost more copies.
_FEW_SLOTS = 16
_LEAST_SHRUNK_BYTES = 16 << 10
_MOST_DEFAULT_THREADS = 8


@dataclass(frozen=True)
class RingSettings:
    """What a ring is made of: threads that share `slots` page-locked slots, each of one chunk.

    Raises:
        UsageError: no ring can be built like that; says what can.

    """

    threads: int
    chunk_bytes: int
    slots: int
    fill: Fill
    spin_us: int

    def __post_init__(self) -> None:
        _require("threads", self.threads, 1, MOST_THREADS)
        _require("slots", self.slots, LEAST_SLOTS, MOST_SLOTS)
        _require("microseconds to spin", self.spin_us, 0, MOST_SPIN_US)
        if not _is_chunk(self.chunk_bytes):
            raise UsageError(
                f"a ring has chunks of {LEAST_CHUNK_BYTES} to {MOST_CHUNK_BYTES} bytes, a power of two, and not of "
                f"{self.chunk_bytes!r:.40}"
            )
        if self.fill not in get_args(Fill):
            raise UsageError(f"a ring fills its slots plain, streaming or demoting, and not {self.fill!r:.40}")

    @property
    def pinned_bytes(self) -> int:
        """The page-locked memory that the ring holds."""
        return self.slots * self.chunk_bytes

    @property
    def least_bytes(self) -> int:
        """The smallest budget that these fit into."""
        return LEAST_SLOTS * self._least_chunk_bytes

    def within(self, budget_bytes: int) -> RingSettings:
        """These, or as near to them as that much page-locked memory allows: fewer slots, and smaller chunks.

        Threads stay as they are, because they hold no such memory.

        Raises:
            UsageError: the budget is below the least; names it.

        """
        if budget_bytes < self.least_bytes:
            raise UsageError(
                f"a budget of {format_size(budget_bytes)} is too small for any ring: give at least "
                f"{format_size(self.least_bytes)}"
            )
        few = min(self.slots, _FEW_SLOTS)
        chunk = self.chunk_bytes
        while chunk > self._least_chunk_bytes and few * chunk > budget_bytes:
            chunk //= 2
        return replace(self, chunk_bytes=chunk, slots=min(self.slots, budget_bytes // chunk))

    @property
    def _least_chunk_bytes(self) -> int:
        return min(self.chunk_bytes, _LEAST_SHRUNK_BYTES)


def usable_cpus() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0))


def default_settings() -> RingSettings:
    """What is good on most hosts, before anything was measured."""
    threads = max(1, min(_MOST_DEFAULT_THREADS, usable_cpus() - 1))
    return RingSettings(threads=threads, chunk_bytes=64 << 10, slots=512, fill="streaming", spin_us=20)


def settings_of(setup: RingSetup) -> RingSettings:
    """Those of a document.

    Raises:
        UsageError: no ring can be built like that.

    """
    return RingSettings(setup.threads, setup.chunk_bytes, setup.slots, setup.fill, setup.spin_us)


def setup_of(settings: RingSettings) -> RingSetup:
    """As a document has them."""
    return RingSetup(**asdict(settings))


def make_ring(engine: Engine, device: int, settings: RingSettings) -> Ring:
    """A ring like that, its threads and its slots near the device.

    Raises:
        CudaMemoryError: page-locked memory ran out.

    """
    with numa.bind(engine, node_of(engine, device)):  # threads inherit the CPUs of the one that starts them
        return engine.Ring(
            device,
            threads=settings.threads,
            chunk_bytes=settings.chunk_bytes,
            slots=settings.slots,
            fill=settings.fill,
            spin_us=settings.spin_us,
            direct_bytes=DIRECT_BYTES,
        )


def node_of(engine: Engine, device: int) -> Fact[int]:
    """The NUMA node that the device hangs on, as the kernel alone tells it: NVML takes long to start."""
    address = None if is_host(engine) else canonical_address(engine.device_properties(device).pci or "")
    return read_node(address) if address else Fact(reason="the device has no PCI address")


def _is_chunk(given: int) -> bool:
    return type(given) is int and LEAST_CHUNK_BYTES <= given <= MOST_CHUNK_BYTES and given & (given - 1) == 0


def _require(what: str, given: int, least: int, most: int) -> None:
    if type(given) is not int or not least <= given <= most:
        raise UsageError(f"a ring has {least} to {most} {what}, and not {given!r:.40}")
