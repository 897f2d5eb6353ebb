"""A bench of rings with modelled speed, and a search over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from ring_samples import MIB, SIZES

from pyxfer._document.tunings import CopyDirection, RingFill
from pyxfer._upload.settings import RingSettings
from pyxfer._upload.tuning_search import Bench, Copy, Search
from pyxfer.errors import CudaMemoryError

# For real tunings over the host runtime.
QUICK_SIZES = (MIB // 16, MIB // 4, MIB)
LIMIT_S = 0.5

PLAIN_GBPS = 6.5
FILLS: tuple[RingFill, ...] = ("demoting", "streaming", "plain")
# The first candidate if a process may use 16 processors.
START = RingSettings(threads=15, chunk_bytes=64 << 10, slots=512, fill="demoting", spin_us=20)
BUDGET = 256 * MIB

Speed = Callable[[RingSettings], float]

_LOCK_S_PER_BYTE = 0.342 / 1024**3  # measured on an H200 host; unlocking takes as long


class ModelledBench:
    """Rings whose bandwidth is `gbps`, and `back` for downloads. Only copies and page-locking take time."""

    def __init__(self, gbps: Speed, back: Speed | None = None) -> None:
        self.now_s = 0.0
        self.open: list[RingSettings] = []
        self.most_pinned_bytes = 0
        self.refuses: Callable[[RingSettings], bool] = lambda _: False
        self.copied: list[tuple[RingSettings | None, CopyDirection, int]] = []
        self._gbps: dict[CopyDirection, Speed] = {"h2d": gbps, "d2h": back or gbps}

    @contextmanager
    def ring(self, settings: RingSettings) -> Iterator[Copy]:
        if self.refuses(settings):
            raise CudaMemoryError(2, "cudaErrorMemoryAllocation", "cudaHostAlloc", "here", "out of memory", "")
        self.now_s += settings.pinned_bytes * _LOCK_S_PER_BYTE
        self.open.append(settings)
        self.most_pinned_bytes = max(self.most_pinned_bytes, sum(ring.pinned_bytes for ring in self.open))
        yield lambda way, nbytes: self._take(settings, way, nbytes, self._gbps[way](settings))
        self.open.remove(settings)
        self.now_s += settings.pinned_bytes * _LOCK_S_PER_BYTE

    def plain(self, way: CopyDirection, nbytes: int) -> float:
        return self._take(None, way, nbytes, PLAIN_GBPS)

    def _take(self, settings: RingSettings | None, way: CopyDirection, nbytes: int, gbps: float) -> float:
        self.copied.append((settings, way, nbytes))
        seconds = nbytes / gbps / 1e9
        self.now_s += seconds
        return seconds


def run_search(
    bench: ModelledBench,
    cpus: int = 16,
    budget_bytes: int = BUDGET,
    limit_s: float = 1.0,
    fills: tuple[RingFill, ...] = FILLS,
) -> Search:
    search = Search(cast("Bench", bench), budget_bytes, SIZES, limit_s, lambda: bench.now_s)
    search.run(fills, cpus)
    return search
