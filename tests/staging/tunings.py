"""Rings whose speed the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from ring_samples import MIB, SIZES

from pyxfer.errors import CudaMemoryError
from pyxfer.staging.settings import RingSettings
from pyxfer.staging.tuning_descent import Descent, Found
from pyxfer.staging.tuning_trials import Bench, Copy, Deadline

PLAIN_GBPS = 12.0
START = RingSettings(threads=8, chunk_bytes=64 << 10, slots=512, fill="streaming", spin_us=20)
BUDGET = 256 * MIB


class ModelledBench:
    """Rings whose bandwidth is what `gbps` says; time passes only while they copy, and lock memory."""

    def __init__(self, gbps: Callable[[RingSettings], float], lock_s_per_gib: float = 0.342) -> None:
        self.now_s = 0.0
        self.open: list[RingSettings] = []
        self.most_pinned_bytes = 0
        self.refuses: Callable[[RingSettings], bool] = lambda _: False
        self._gbps = gbps
        self._lock_s_per_byte = lock_s_per_gib / 1024**3

    @contextmanager
    def ring(self, settings: RingSettings) -> Iterator[Copy]:
        if self.refuses(settings):
            raise CudaMemoryError(2, "cudaErrorMemoryAllocation", "cudaHostAlloc", "here", "out of memory", "")
        self.now_s += settings.pinned_bytes * self._lock_s_per_byte
        self.open.append(settings)
        self.most_pinned_bytes = max(self.most_pinned_bytes, sum(each.pinned_bytes for each in self.open))
        yield lambda nbytes: self._take(nbytes / self._gbps(settings) / 1e9)
        self.open.remove(settings)
        self.now_s += settings.pinned_bytes * self._lock_s_per_byte

    def plain(self, nbytes: int) -> float:
        return self._take(nbytes / PLAIN_GBPS / 1e9)

    def _take(self, seconds: float) -> float:
        self.now_s += seconds
        return seconds


def search(
    bench: ModelledBench, cpus: int = 16, budget_bytes: int = BUDGET, limit_s: float = 1.0, start: RingSettings = START
) -> Found:
    deadline = Deadline(limit_s, lambda: bench.now_s)
    return Descent(cast("Bench", bench), start, cpus, budget_bytes, SIZES, deadline).run()
