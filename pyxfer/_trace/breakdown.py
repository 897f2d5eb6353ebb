"""The copies of a traced trial, and its breakdown: every instant belongs to exactly one part."""

from __future__ import annotations

import mmap
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import IGNORED_SHARE, PARTS, Breakdown, Dma, Part
from pyxfer._trace import records
from pyxfer._trace.collector import Traced, nearest
from pyxfer.units import format_seconds

NOTHING_CROSSES = "nothing crosses the link"


@dataclass(frozen=True)
class Crossed:
    """The copies of one traced trial in one direction. Bytes, copies and times are those of one transfer."""

    nbytes: float
    copies: float
    seconds: Fact[float]
    elapsed_s: float
    memories: frozenset[str]
    lost: int
    outside: float
    """The share of the copying that was outside of the trial's time."""


def crossed(trial: Traced, kind: records.CopyKind) -> Crossed:
    """Sum up a trial's copies in one direction. The time of simultaneous copies counts once."""
    copies = copies_of(trial.capture, kind)
    without = _count_untimed(copies)
    seconds: Fact[float] = Fact(records.total_ns(records.union(records.intervals(copies))) / 1e9 / trial.copies)
    if without:
        seconds = unknown(f"the device gave no time for {without} of {len(copies)} copies")
    side, whole = copies["source" if kind is records.CopyKind.H2D else "target"], int(copies["nbytes"].sum())
    bytes_of = {memory: int(copies["nbytes"][side == memory].sum()) for memory in np.unique(side).tolist()}
    used = (memory for memory, nbytes in bytes_of.items() if nbytes > IGNORED_SHARE * whole)
    return Crossed(
        nbytes=whole / trial.copies,
        copies=int(np.maximum(copies["copies"], 1).sum()) / trial.copies,
        seconds=seconds,
        elapsed_s=trial.elapsed_s / trial.copies,
        memories=frozenset(records.MemoryKind(memory).name.lower() for memory in used),
        lost=sum(trial.capture.dropped.get(word, 0) for word in ("copies", "unknown")),
        outside=_share_outside(trial, copies),
    )


def copies_of(capture: records.Capture, kind: records.CopyKind) -> NDArray[Any]:
    copies = capture.of(records.Kind.COPY)
    chosen: NDArray[Any] = copies[copies["way"] == kind]
    return chosen


def call_span_ns(capture: records.Capture, copy: Any) -> tuple[int, int]:
    """When the call that issued a copy began and returned (the outermost); the copy's own times if none is known."""
    calls = capture.of(records.Kind.CALL)
    own = calls[calls["correlation"] == copy["correlation"]]
    known = own if len(own) else copy
    return int(known["start_ns"].min()), int(known["end_ns"].max())


def _count_untimed(copies: NDArray[Any]) -> int:
    """The number of copies without a time. The driver may send small ones inside a command, which has no time."""
    return int(np.count_nonzero(copies["start_ns"] == 0))


def _share_outside(trial: Traced, copies: NDArray[Any]) -> float:
    """The share of the copying that was outside of the trial by more than the error of the clocks."""
    whole, error_ns = records.union(records.intervals(copies)), trial.capture.clock.error_ns
    inside = records.total_ns(records.clip(whole, trial.begin_ns - error_ns, trial.end_ns + error_ns))
    return 1 - inside / records.total_ns(whole) if len(whole) else 0.0


def dma_of(trials: Sequence[Crossed], median_s: float | None) -> Fact[Dma]:
    """Combine traced trials: median bytes and copies, and the time of the trial nearest to `median_s`."""
    missing = sum(trial.lost for trial in trials)
    if missing:
        return unknown(f"{missing} of the device's records were lost, so the bytes that crossed the link are not known")
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


# A trial with a larger share of the copying outside of it has no breakdown.
OUTSIDE = 0.02
# Nor has one in which the clocks moved against each other by more than this share.
MOVED = 0.02
APART = "the clocks of host and device disagree"
_CROSSING = "crossing"
_NEEDED = ("copies", "sets", "kernels", "calls", "unknown")


def break_down(trial: Traced, ceiling_s: float | None, nbytes: int) -> Fact[Breakdown]:
    """Break one transfer down into parts.

    `ceiling_s` is the ceiling's time for `nbytes`. The copying beyond it counts as staging; without it none does.
    """
    if missing := lost_records(trial):
        return unknown(lost_reason(missing))
    clock = trial.capture.clock
    if clock.drift_ns > MOVED * (trial.end_ns - trial.begin_ns) + 2 * clock.error_ns:
        moved = format_seconds(clock.drift_ns / 1e9)
        return unknown(f"{APART}: they moved by {moved} against each other while it was traced")
    copies = copies_of(trial.capture, trial.kind) if trial.kind is not None else trial.capture.records[:0]
    if _count_untimed(copies):
        return unknown("the device gave no time for its copies")
    if len(copies) and not len(records.intervals(copies)):
        return unknown(f"its copies took no time at all, so {APART}")
    if (share := _share_outside(trial, copies)) > OUTSIDE:
        return unknown(
            f"{share * 100:.3g} % of the copying is outside of the trial: it copies ahead or later, or {APART}"
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
    """The breakdown of the trial nearest to `median_s`; unknown if most trials have none."""
    known = [trial.value for trial in trials if trial.value is not None]
    left_out = len(trials) - len(known)
    if 2 * left_out > len(trials):
        why = next(trial.reason for trial in trials if trial.reason is not None)
        return unknown(f"{left_out} of {len(trials)} traced trials cannot be broken down: {why}" if known else why)
    return Fact(msgspec.structs.replace(nearest(known, median_s), trials=len(known), left_out=left_out))


def lost_records(trial: Traced) -> int:
    return sum(trial.capture.dropped.get(word, 0) for word in _NEEDED)


def lost_reason(missing: int) -> str:
    return f"{missing} of the device's records were lost, so where the time went is not known"


def _shares(trial: Traced, copies: NDArray[Any]) -> dict[str, int]:
    begin, end, returned = trial.begin_ns, trial.end_ns, min(trial.returned_ns, trial.end_ns)
    of, spans = trial.capture.of, records.intervals
    crossing, all_copies = records.union(spans(copies)), records.union(spans(of(records.Kind.COPY)))
    kernels = records.union(spans(of(records.Kind.KERNEL)), spans(of(records.Kind.SET)))
    issued = first = last = returned
    if len(records.clip(crossing, begin, end)):
        first = max(begin, int(crossing[0, 0]))
        last = int(records.clip(records.union(kernels, all_copies), begin, end)[-1, 1])
        issued = max(begin, min(first, call_span_ns(trial.capture, copies[0])[0]))
    claims = [
        (_CROSSING, crossing),
        ("kernels", kernels),
        ("other copies", all_copies),
        ("staging", _staged(trial, copies, (begin, issued, first), (last, returned))),
        ("preparing", _interval(begin, issued)),
        ("waiting", _interval(issued, first)),
        ("gaps", _interval(first, last)),
        ("returning", _interval(last, returned)),
        ("finishing", _interval(max(last, returned), end)),
    ]
    return {name: ns for name, ns in records.partition(begin, end, claims).items() if name}


def _staged(
    trial: Traced, copies: NDArray[Any], before: tuple[int, int, int], after: tuple[int, int]
) -> NDArray[np.int64]:
    """The intervals in which bytes are copied on the host, to or from page-locked memory, and no copy is running.

    A ring's threads fill or empty slots before the first copy to the device is issued, after the last copy to the
    host, and between copies. The driver stages pageable memory before the first copy to the device and after the last
    one to the host; its work between the copies of one call is inside their records.
    """
    begin, issued, first = before
    if not len(copies):
        return records.no_intervals()
    if trial.staged:
        ends = _interval(begin, issued) if trial.kind is records.CopyKind.H2D else _interval(*after)
        return records.union(ends, _interval(first, min(after[0], int(copies["end_ns"].max()))))
    if copies["source"][0] == records.MemoryKind.PAGEABLE:
        return _interval(issued, min(first, call_span_ns(trial.capture, copies[0])[1]))
    if copies["target"][-1] == records.MemoryKind.PAGEABLE:
        return _interval(after[0], min(after[1], call_span_ns(trial.capture, copies[-1])[1]))
    return records.no_intervals()


def _breakdown(trial: Traced, shares: dict[str, int]) -> Breakdown:
    scale = 1e-9 / trial.copies
    parts = tuple(Part(name, shares[name] * scale) for name in PARTS if shares.get(name))
    return Breakdown(
        elapsed_s=sum(part.seconds for part in parts),
        parts=parts,
        dispatch_s=trial.dispatch_s / trial.copies,
        wall_s=trial.wall_s / trial.copies,
        faults=trial.usage.faults / trial.copies,
        switches=trial.usage.switches / trial.copies,
        preemptions=trial.usage.preemptions / trial.copies,
        trials=1,
        page_bytes=mmap.PAGESIZE,
    )


def _interval(begin_ns: int, end_ns: int) -> NDArray[np.int64]:
    return np.array([[begin_ns, end_ns]], np.int64) if end_ns > begin_ns else records.no_intervals()
