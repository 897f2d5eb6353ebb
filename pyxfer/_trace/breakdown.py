"""Where the time of a trial went: every instant of it belongs to exactly one part."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pyxfer._document.runs import PARTS, Breakdown, Dma, Fact, Part, unknown
from pyxfer._trace.collector import Traced, nearest
from pyxfer._trace.records import (
    Capture,
    CopyWay,
    Kind,
    MemoryKind,
    clip,
    intervals,
    nothing,
    partition,
    total_ns,
    union,
)
from pyxfer.units import format_seconds

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


# So much of the copying may lie outside of the trial before its times are not believed.
OUTSIDE = 0.02
# And so much of the trial may the clocks move against each other in its course.
MOVED = 0.02
APART = "the clocks of host and device disagree"
_CROSSING = "crossing"
_NEEDED = ("copies", "sets", "kernels", "calls", "unknown")


def break_down(trial: Traced, ceiling_s: float | None, nbytes: int) -> Fact[Breakdown]:
    """The parts of one transfer.

    `ceiling_s` is what the ceiling takes for `nbytes`; without it no time of the copy is told apart as staging.
    """
    if missing := lost_in(trial):
        return unknown(why_lost(missing))
    if (moved := _moved(trial)) is not None:
        return unknown(moved)
    copies = copies_of(trial.capture, trial.way) if trial.way is not None else trial.capture.records[:0]
    if untimed(copies):
        return unknown("the device gave no time for its copies")
    if len(copies) and not len(intervals(copies)):
        return unknown(f"its copies took no time at all, so {APART}")
    if (share := outside(trial, copies)) > OUTSIDE:
        return unknown(
            f"{share * 100:.3g} % of the copying lies outside of the trial: it copies ahead or later, or {APART}"
        )
    shares = _shares(trial, copies)
    covered = shares.pop(_CROSSING)
    at_ceiling = covered
    if ceiling_s is not None:
        at_ceiling = min(covered, round(int(copies["nbytes"].sum()) * ceiling_s * 1e9 / nbytes))
    shares["copying"] = at_ceiling
    shares["staging"] = shares.get("staging", 0) + covered - at_ceiling
    return Fact(_breakdown(trial, shares))


def breakdown_of(trials: Sequence[Fact[Breakdown]], median_s: float | None) -> Fact[Breakdown]:
    """That of the trial nearest to the median of those only timed; none where most of them have none."""
    known = [trial.value for trial in trials if trial.value is not None]
    left_out = len(trials) - len(known)
    if 2 * left_out > len(trials):
        why = next(trial.reason for trial in trials if trial.reason is not None)
        return unknown(f"{left_out} of {len(trials)} traced trials cannot be broken down: {why}" if known else why)
    return Fact(msgspec.structs.replace(nearest(known, median_s), trials=len(known), left_out=left_out))


def lost_in(trial: Traced) -> int:
    """How many records of a trial are missing that its parts are made of."""
    return lost(trial.capture, _NEEDED)


def why_lost(missing: int) -> str:
    """Why lost records leave no breakdown."""
    return f"{missing} of the device's records were lost, so where the time went is not known"


def _shares(trial: Traced, copies: NDArray[Any]) -> dict[str, int]:
    """Nanoseconds by part, the time of its copies as one."""
    begin, end, returned = trial.begin_ns, trial.end_ns, min(trial.returned_ns, trial.end_ns)
    crossing, kernels, others = _device_work(trial, copies)
    issued = first = last = returned
    if len(clip(crossing, begin, end)):
        first = max(begin, int(crossing[0, 0]))
        last = int(clip(union(crossing, kernels, others), begin, end)[-1, 1])
        issued = max(begin, min(first, asked_ns(trial.capture, copies[0])))
    claims = [
        (_CROSSING, crossing),
        ("kernels", kernels),
        ("other copies", others),
        ("staging", _staged(trial, copies, (begin, issued, first), (last, returned))),
        ("preparing", _stretch(begin, issued)),
        ("waiting", _stretch(issued, first)),
        ("gaps", _stretch(first, last)),
        ("returning", _stretch(last, returned)),
        ("finishing", _stretch(max(last, returned), end)),
    ]
    return {name: ns for name, ns in partition(begin, end, claims).items() if name}


def _staged(
    trial: Traced, copies: NDArray[Any], before: tuple[int, int, int], after: tuple[int, int]
) -> NDArray[np.int64]:
    """Where bytes are copied on the host for want of page-locked memory, and none of the trial's cross the link.

    By threads of a ring that is before the first copy to the device is asked for, after the last one to the host, and
    between two: a slot is filled or emptied. By the driver, in a call for pageable memory, it is before the first copy
    to the device and after the last one to the host; what lies between two copies of one call is in their records.
    """
    begin, issued, first = before
    if not len(copies):
        return nothing()
    to_device = trial.way is CopyWay.H2D
    if trial.staged:
        ends = _stretch(begin, issued) if to_device else _stretch(*after)
        return union(ends, _stretch(first, min(after[0], int(copies["end_ns"].max()))))
    if to_device and copies["source"][0] == MemoryKind.PAGEABLE:
        return _stretch(issued, min(first, answered_ns(trial.capture, copies[0])))
    if trial.way is CopyWay.D2H and copies["target"][-1] == MemoryKind.PAGEABLE:
        return _stretch(after[0], min(after[1], answered_ns(trial.capture, copies[-1])))
    return nothing()


def _device_work(trial: Traced, copies: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """Its own copies, kernels and sets, and copies in other directions."""
    capture = trial.capture
    others = capture.of(Kind.COPY)
    others = others[others["way"] != trial.way] if trial.way is not None else others
    kernels = union(intervals(capture.of(Kind.KERNEL)), intervals(capture.of(Kind.SET)))
    return union(intervals(copies)), kernels, union(intervals(others))


def _moved(trial: Traced) -> str | None:
    """Why its times are not believed: the clocks moved further than each comparison of them is uncertain by."""
    clock, elapsed_ns = trial.capture.clock, trial.end_ns - trial.begin_ns
    if clock.drift_ns <= MOVED * elapsed_ns + 2 * clock.error_ns:
        return None
    return f"{APART}: they moved by {format_seconds(clock.drift_ns / 1e9)} against each other while it was traced"


def _breakdown(trial: Traced, shares: dict[str, int]) -> Breakdown:
    each = 1e-9 / trial.copies
    parts = tuple(Part(name, shares[name] * each) for name in PARTS if shares.get(name, 0) > 0)
    return Breakdown(
        elapsed_s=sum(part.seconds for part in parts),
        parts=parts,
        dispatch_s=trial.dispatch_s / trial.copies,
        wall_s=trial.wall_s / trial.copies,
        faults=trial.usage.faults / trial.copies,
        switches=trial.usage.switches / trial.copies,
        preemptions=trial.usage.preemptions / trial.copies,
        trials=1,
    )


def _stretch(begin_ns: int, end_ns: int) -> NDArray[np.int64]:
    return np.array([[begin_ns, end_ns]], np.int64) if end_ns > begin_ns else nothing()
