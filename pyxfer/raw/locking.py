"""What page-locking costs, and after how many transfers it has paid."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pyxfer import stats
from pyxfer.model import STAGED, Fact, LockingCost, Measurement, Memory, unknown

if TYPE_CHECKING:
    from pyxfer.native import Engine

GIB = 1 << 30
TRIALS = 6
# Large enough that the cost a page counts and not the call; small enough for a default run.
MOST_BYTES = 64 << 20
MOST_S = 0.5


def measure_locking(
    engine: Engine, device: int, memory: Memory, largest: int, cancelled: Callable[[], bool]
) -> list[float]:
    """Seconds of each of a few page-lockings of `locking_bytes(largest)`."""
    nbytes = locking_bytes(largest)
    until = time.perf_counter() + MOST_S
    seconds: list[float] = []
    while len(seconds) < TRIALS and not cancelled() and (not seconds or time.perf_counter() < until):
        buffer = engine.HostBuffer(nbytes, memory, device)
        seconds.append(buffer.locking_s)
        buffer.close()
    return seconds


def locking_bytes(largest: int) -> int:
    """How much is page-locked at a time."""
    return min(largest, MOST_BYTES)


def locking_cost(
    memory: Memory, largest: int, seconds: Sequence[float], measurements: Sequence[Measurement]
) -> LockingCost:
    """The cost a GiB, set against what each later transfer saves."""
    nbytes = locking_bytes(largest)
    if not seconds:
        why = "no page-locking was timed before the run ended"
        return LockingCost(memory, nbytes, None, unknown(why), unknown(why))
    summary = stats.summarise(seconds)
    per_byte = summary.median_s / nbytes
    return LockingCost(memory, nbytes, summary, Fact(per_byte * GIB), _pays_after(per_byte, memory, measurements))


def _pays_after(cost_s_per_byte: float, memory: Memory, measurements: Sequence[Measurement]) -> Fact[int]:
    """At the largest size that was measured from both kinds of memory; staged copies use page-locked memory too."""
    slow = _seconds_by_size("pageable", measurements)
    quick = _seconds_by_size(memory, measurements) or _seconds_by_size("pinned", measurements)
    shared = sorted(slow.keys() & quick.keys())
    if not shared:
        aside = ", staged copies aside" if any(each.mode == STAGED for each in measurements) else ""
        both = "from pageable and from page-locked memory at one size"
        return unknown(f"unknown, for h2d was not measured {both}{aside}")
    nbytes = shared[-1]
    saved_s = slow[nbytes] - quick[nbytes]
    if saved_s <= 0:
        return unknown("no number of transfers, for those from pageable memory are as fast here")
    return Fact(max(1, math.ceil(cost_s_per_byte * nbytes / saved_s)))


def _seconds_by_size(memory: str, measurements: Sequence[Measurement]) -> dict[int, float]:
    found: dict[int, float] = {}
    for each in measurements:
        if each.direction == "h2d" and each.memory == memory and each.elapsed_s is not None and each.may_be_ceiling:
            found[each.nbytes] = min(each.elapsed_s, found.get(each.nbytes, math.inf))
    return found


LOCKED_KINDS = cast("tuple[Memory, ...]", ("pinned", "registered"))
