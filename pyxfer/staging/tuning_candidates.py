"""The rings that a tuning starts from and looks at: what may be changed of one, and to what."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from pyxfer.model_tuning import RingFill
from pyxfer.staging.settings import LEAST_CHUNK_BYTES, LEAST_SLOTS, RingSettings, make_ring

if TYPE_CHECKING:
    from pyxfer.native import Engine

# A table of them all would take minutes, and neighbours differ by less than two tunings do.
_THREADS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32)
_CHUNKS = tuple(1 << power for power in range(15, 19))  # 32 to 256 KiB
_SLOTS = (128, 256, 512, 1024)
# In the order in which they are changed: fill and threads decide most.
SETTINGS = ("fill", "threads", "chunk_bytes", "slots")
_START_CHUNK_BYTES, _START_SLOTS = 64 << 10, 512


def fills_of(engine: Engine, device: int) -> tuple[RingFill, ...]:
    """The ways of filling that differ on this processor: the one that asks most of it first.

    Raises:
        CudaMemoryError: there is no page-locked memory for the least of rings.

    """
    by_kernel: dict[str, RingFill] = {}
    for fill in get_args(RingFill):
        least = RingSettings(threads=1, chunk_bytes=LEAST_CHUNK_BYTES, slots=LEAST_SLOTS, fill=fill, spin_us=0)
        with closing(make_ring(engine, device, least)) as ring:
            by_kernel.setdefault(ring.fill_kernel, fill)  # what cannot demote streams, and what cannot stream is plain
    return tuple(by_kernel.values())[::-1]


@dataclass(frozen=True)
class Candidates:
    """What rings may be made of here: by that many threads, and filled in one of those ways."""

    most_threads: int
    fills: tuple[RingFill, ...]

    @classmethod
    def here(cls, cpus: int, fills: tuple[RingFill, ...]) -> Candidates:
        """One processor is left to the program, as long as there is another."""
        return cls(max(1, min(cpus - 1, _THREADS[-1])), fills)

    def start(self, budget_bytes: int) -> RingSettings:
        """The most threads, and the fill that needs them: from fewer threads a search does not find that pair.

        Of the budget it has half, because another ring is timed beside it.

        Raises:
            UsageError: no ring fits the budget.

        """
        whole = RingSettings(self.most_threads, _START_CHUNK_BYTES, _START_SLOTS, self.fills[0], spin_us=20)
        return whole.within(max(budget_bytes // 2, min(budget_bytes, whole.least_bytes)))

    def neighbours(self, of: RingSettings, name: str) -> tuple[list[RingSettings], list[RingSettings]]:
        """Those with more of one setting, and those with less, the nearest first."""
        values: dict[str, Sequence[Any]] = {
            "fill": self.fills,
            "threads": sorted({of.threads, *(min(threads, self.most_threads) for threads in _THREADS)}),
            "chunk_bytes": sorted({*_CHUNKS, of.chunk_bytes}),
            "slots": sorted({*_SLOTS, of.slots}),
        }
        at = values[name].index(getattr(of, name))
        rings = [_changed(of, name, value) for value in values[name]]
        return rings[at + 1 :], rings[:at][::-1]


def _changed(settings: RingSettings, name: str, value: Any) -> RingSettings:
    """With other chunks the ring keeps its bytes, or it would be two settings that are changed."""
    if name == "chunk_bytes":
        return replace(settings, chunk_bytes=value, slots=max(LEAST_SLOTS, settings.pinned_bytes // value))
    return replace(settings, **{name: value})
