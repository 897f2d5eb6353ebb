"""What the copy engines did: how many bytes really crossed the link, from which memory, and for how long."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.model import Dma, Fact, unknown
from pyxfer.tracing.intervals import clip, intervals, total_ns, union
from pyxfer.tracing.records import Capture, CopyWay, Kind, MemoryKind
from pyxfer.tracing.trials import Traced, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING_CROSSES = "nothing crosses the link"
# A framework sends a few bytes of its own beside the data, a shape or a scalar; they do not decide about anything.
BESIDE = 0.01


@dataclass(frozen=True)
class Crossed:
    """What crossed the link in one trial, for one of its transfers."""

    nbytes: float
    copies: float
    seconds: Fact[float]
    elapsed_s: float
    memories: frozenset[str]
    lost: int
    outside: float
    """The share of the copying that was no part of the trial's time."""


def crossed(trial: Traced, way: CopyWay) -> Crossed:
    """The copies in one direction until all of a trial's work was done; those at the same time count theirs once."""
    copies = copies_of(trial.capture, way)
    without = untimed(copies)
    seconds: Fact[float] = Fact(total_ns(union(intervals(copies))) / 1e9 / trial.copies)
    if without:
        seconds = unknown(f"the device gave no time for {without} of {len(copies)} copies")
    return Crossed(
        nbytes=int(copies["nbytes"].sum()) / trial.copies,
        copies=int(np.maximum(copies["copies"], 1).sum()) / trial.copies,
        seconds=seconds,
        elapsed_s=trial.elapsed_s / trial.copies,
        memories=_memories(copies, "source" if way is CopyWay.H2D else "target"),
        lost=lost(trial.capture, ("copies", "unknown")),
        outside=outside(trial, copies),
    )


def copies_of(capture: Capture, way: CopyWay) -> NDArray[Any]:
    """The records of copies in one direction, in the order of their beginning."""
    copies = capture.of(Kind.COPY)
    chosen: NDArray[Any] = copies[copies["way"] == way]
    return chosen


def asked_ns(capture: Capture, copy: Any) -> int:
    """When the call began that asked for a copy: the outer one, where a runtime's call made a driver's."""
    calls = capture.of(Kind.CALL)
    asking = calls["start_ns"][calls["correlation"] == copy["correlation"]]
    return int(asking.min()) if len(asking) else int(copy["start_ns"])


def answered_ns(capture: Capture, copy: Any) -> int:
    """When the call returned that asked for a copy; the copy's own end where no call is known."""
    calls = capture.of(Kind.CALL)
    asking = calls["end_ns"][calls["correlation"] == copy["correlation"]]
    return int(asking.max()) if len(asking) else int(copy["end_ns"])


def untimed(copies: NDArray[Any]) -> int:
    """How many of them the device gave no time for: the driver may send a small one inside a command."""
    return int(np.count_nonzero(copies["start_ns"] == 0))


def outside(trial: Traced, copies: NDArray[Any]) -> float:
    """The share of the copying outside of the trial, and of what the clocks are uncertain by."""
    whole, uncertain = union(intervals(copies)), trial.capture.clock.error_ns
    inside = total_ns(clip(whole, trial.begin_ns - uncertain, trial.end_ns + uncertain))
    return 1 - inside / total_ns(whole) if len(whole) else 0.0


def lost(capture: Capture, words: Iterable[str]) -> int:
    """How many records of these kinds found no room."""
    return sum(capture.dropped.get(word, 0) for word in words)


def dma_of(trials: Sequence[Crossed], median_s: float | None) -> Fact[Dma]:
    """What crossed in most traced trials, and for how long in the one nearest to the median of those only timed."""
    missing = sum(trial.lost for trial in trials)
    if missing:
        return unknown(f"{missing} of the device's records were lost, so what crossed the link is not known whole")
    timed = [trial for trial in trials if trial.seconds.value is not None]
    without = next((trial.seconds.reason for trial in trials if trial.seconds.reason is not None), "")
    return Fact(
        Dma(
            seconds=nearest(timed, median_s).seconds if len(timed) == len(trials) else unknown(without),
            nbytes=round(statistics.median_low(trial.nbytes for trial in trials)),
            copies=statistics.median_low(trial.copies for trial in trials),
            source="+".join(sorted(frozenset().union(*(trial.memories for trial in trials)))),
            trials=len(trials),
        )
    )


def _memories(copies: NDArray[Any], side: str) -> frozenset[str]:
    """The kinds of memory that the copies met on the host's side, but for what a few bytes beside the data met."""
    whole = int(copies["nbytes"].sum())
    kinds = np.unique(copies[side]).tolist()
    bytes_of = {kind: int(copies["nbytes"][copies[side] == kind].sum()) for kind in kinds}
    return frozenset(MemoryKind(kind).name.lower() for kind, nbytes in bytes_of.items() if nbytes > BESIDE * whole)
