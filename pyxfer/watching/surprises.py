"""Calls inside steps that fetch, wait or ask for memory, by name, the user's line and the range they were made in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyxfer.model import Fact, unknown
from pyxfer.model_watch import Surprise, SurpriseKind
from pyxfer.tracing.records import CopyWay, MemoryKind
from pyxfer.watching.calls import is_allocation, is_blocking_copy, is_wait, named
from pyxfer.watching.cover import Cover
from pyxfer.watching.gathered import issued_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.watching.gathered import Gathered, Periods
    from pyxfer.watching.named_ranges import Ranges
    from pyxfer.watching.window import Window

    Column = NDArray[np.int64]

# Groups beyond these are of programs with a range name a call; the longest are what a reader wants.
MOST_GROUPS = 50
# Of what a call did, the first that holds.
KINDS: tuple[SurpriseKind, ...] = ("d2h", "blocking copy", "wait", "allocation")
# So many times as long as it usually is from look to look, a call was looked at.
_SURELY = 4
NOT_SEEN = "too short for a sample of its line"
NO_LINE = "no line of yours was seen in it"
NONE_SEEN = "no line of yours was seen in the window"


def surprises(window: Window, gathered: Gathered, periods: Periods, ranges: Ranges) -> tuple[Surprise, ...]:
    """Groups of calls inside steps, or inside the window where it has none; the longest first."""
    calls = gathered.calls
    fetched = fetched_bytes(gathered)
    kind = _kinds(gathered, fetched)
    chosen = np.flatnonzero((kind >= 0) & Cover(periods.inside).holds(calls["start_ns"]))
    calls, kind, fetched = calls[chosen], kind[chosen], fetched[chosen]
    thread = calls["thread"].astype(np.int64)
    lines, line = _lines(window, thread, calls["start_ns"], calls["end_ns"])
    around = ranges.innermost(thread, calls["start_ns"])
    alike = np.stack((kind, calls["name"].astype(np.int64), around), axis=1)
    line = _like_others(line, alike)
    keys = np.column_stack((alike[:, :2], line, around))
    found, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place, minlength=len(found))
    seconds = np.bincount(place, weights=calls["end_ns"] - calls["start_ns"], minlength=len(found)) / 1e9
    nbytes = np.bincount(place, weights=np.maximum(fetched, 0), minlength=len(found))
    looked = np.bincount(place, weights=_looked_at(window, calls["start_ns"], calls["end_ns"]), minlength=len(found))
    order = np.argsort(-seconds, kind="stable")[:MOST_GROUPS]
    return tuple(
        Surprise(
            what=KINDS[int(found[row, 0])],
            call=gathered.names[int(found[row, 1])],
            line=Fact(lines[int(found[row, 2])]) if found[row, 2] >= 0 else unknown(_why_no_line(window, looked[row])),
            range=None if found[row, 3] < 0 else ranges.names[int(found[row, 3])][0],
            count=int(counts[row]),
            seconds=float(seconds[row]),
            nbytes=int(nbytes[row]),
            per_step=float(counts[row]) / len(periods) if periods.stepped else None,
        )
        for row in order.tolist()
    )


def _like_others(line: Column, alike: Column) -> Column:
    """Calls too short to be seen are taken to be on the line of those like them, if those were all seen on one."""
    _, group = np.unique(alike, axis=0, return_inverse=True)
    group = group.reshape(-1)
    seen = line >= 0
    least = np.full(len(group), np.iinfo(np.int64).max)
    most = np.full(len(group), -1, np.int64)
    np.minimum.at(least, group[seen], line[seen])
    np.maximum.at(most, group[seen], line[seen])
    only = np.where(least == most, most, -1)[group]
    return np.where(seen, line, only)


def allocation_calls(gathered: Gathered, periods: Periods) -> int:
    """How many calls inside steps asked the driver for memory or gave it back."""
    asked = named(gathered.calls, gathered.names, is_allocation)
    return int((asked & Cover(periods.inside).holds(gathered.calls["start_ns"])).sum()) if periods.stepped else 0


def fetched_bytes(gathered: Gathered) -> NDArray[np.float64]:
    """For each call the bytes that it brought from the device; below zero where it brought none."""
    fetched = np.full(len(gathered.calls), -1.0)
    copies = gathered.copies_of(CopyWay.D2H) & (gathered.issued >= 0)
    places = gathered.issued[copies]
    if len(places):
        total = np.bincount(places, weights=gathered.copies["nbytes"][copies], minlength=len(fetched))
        fetched[np.unique(places)] = total[np.unique(places)]
    return fetched


def _kinds(gathered: Gathered, fetched: NDArray[np.float64]) -> Column:
    """The place in `KINDS` of each call, or -1. Copies from pageable memory hold the caller, whatever their name."""
    calls, names = gathered.calls, gathered.names
    tests = (
        fetched >= 0,
        named(calls, names, is_blocking_copy) | issued_by(gathered, CopyWay.H2D, MemoryKind.PAGEABLE),
        named(calls, names, is_wait),
        named(calls, names, is_allocation),
    )
    return np.select(tests, range(len(KINDS)), default=-1).astype(np.int64)


def _looked_at(window: Window, begin_ns: Column, end_ns: Column) -> NDArray[np.bool_]:
    """Whether the program was looked at during each call: all threads are looked at together, and at short intervals.

    A look that met no line of the user's in any thread has left nothing.
    """
    looks = np.unique(np.array([seen.at_ns for seen in window.seen], np.int64))
    every_ns = float(np.median(np.diff(looks))) if len(looks) > 1 else np.inf
    met = np.searchsorted(looks, end_ns, side="right") > np.searchsorted(looks, begin_ns)
    found: NDArray[np.bool_] = met | (end_ns - begin_ns > _SURELY * every_ns)
    return found


def _why_no_line(window: Window, looked_at: float) -> str:
    if not window.seen:
        return NONE_SEEN
    return NO_LINE if looked_at else NOT_SEEN


def _lines(window: Window, thread: Column, begin_ns: Column, end_ns: Column) -> tuple[list[str], Column]:
    """The lines seen, and for each call the place of its own or -1.

    A thread stays on one line while it is in a call, so the first sample inside is as good as any.
    """
    lines: dict[str, int] = {}
    columns = np.array(
        [(seen.at_ns, seen.thread, lines.setdefault(seen.line, len(lines))) for seen in window.seen], np.int64
    ).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    found = np.full(len(thread), -1, np.int64)
    for each in np.unique(thread):
        own, asked = columns[columns[:, 1] == each], np.flatnonzero(thread == each)
        first = np.searchsorted(own[:, 0], begin_ns[asked], side="left")
        known = first < len(own)
        known[known] = own[first[known], 0] <= end_ns[asked[known]]
        found[asked[known]] = own[first[known], 2]
    return list(lines), found
