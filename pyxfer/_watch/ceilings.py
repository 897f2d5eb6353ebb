"""The ceilings that the copies of a window are compared with: raw copies, measured now or in a saved run."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from pyxfer._document.machines import Device, Fact, Link, LinkState, Remark, describe
from pyxfer._document.runs import OneWay, Run
from pyxfer._document.watches import CEILING_PRECISION, MIN_COMPARABLE, CeilingSource, CopyClass, CopyDirectionName
from pyxfer._watch.options import Target
from pyxfer.errors import PyxferError
from pyxfer.native import HOST
from pyxfer.units import format_percent, format_size

FARTHEST = 4
"""A size is far from the measured ones beyond this multiple of the largest or fraction of the smallest."""
# Larger copies are not faster, and measuring them takes twice their memory.
LARGEST_BYTES = 64 << 20
# Smaller copies take as long as copies of this size.
MIN_BYTES = 4 << 10
_MEASURE_HERE = "run pyxfer ceiling on this machine and compare with that, or let pyxfer measure the ceiling"


def remarks_on_saved(
    run: Run, device: Device, link: Link, needed: Mapping[OneWay, Sequence[int]]
) -> tuple[Remark, ...]:
    """How a saved run differs from the window: in the device, the link, or the sizes of copies."""
    found = []
    then, now = _best_state(run.link), _best_state(link)
    if (run.runtime, run.device.name) != (device.runtime, device.name):
        text = f"the ceiling was measured on another device: {run.device.name}; this one is {device.name}"
        found.append(Remark("other-device", text, _MEASURE_HERE))
    elif then is not None and now is not None and then != now:
        # What the links can do, because their current state changes with the load.
        text = f"the ceiling was measured over another link: {describe(then)}; this one is {describe(now)}"
        found.append(Remark("other-link", text, _MEASURE_HERE))
    return (*found, *_size_remarks(run, needed))


def remarks_on_shares(copies: Iterable[CopyClass], source: CeilingSource | None) -> tuple[Remark, ...]:
    large = [row.ceiling_share.value for row in copies if row.least_bytes >= MIN_COMPARABLE]
    most = max((share for share in large if share is not None), default=0.0)
    if most <= 1 + CEILING_PRECISION:
        return ()
    text = (
        f"copies took {format_percent(1 - 1 / most)} less time than the ceiling of their size, so it is too low, their "
        "share of it is not given, and the gains predicted from it are too low"
    )
    fix = _MEASURE_HERE if source is not None and source.source == "saved" else "watch again with other work stopped"
    return (Remark("above-ceiling", text, fix),)


def _best_state(link: Link) -> LinkState | None:
    """The state under load if that is known, otherwise the most that both ends support."""
    if link.under_load.value is not None:
        return link.under_load.value
    ends = [end.value for end in (link.device_most, link.system_most) if end.value is not None]
    return min(ends, key=lambda end: (end.generation, end.width), default=None)


def _size_remarks(run: Run, needed: Mapping[OneWay, Sequence[int]]) -> list[Remark]:
    found = []
    for direction, sizes in needed.items():
        measured = [row.nbytes for row in run.measurements if row.direction == direction and row.rate.value is not None]
        taken = (min(max(size, MIN_BYTES), LARGEST_BYTES) for size in sizes)
        far = [size for size in taken if measured and not min(measured) / FARTHEST <= size <= max(measured) * FARTHEST]
        if far:
            sizes_run = f"{format_size(min(measured))} to {format_size(max(measured))}"
            about = " to ".join(dict.fromkeys(map(format_size, (min(far), max(far)))))
            text = (
                f"copies {direction} of about {about} are far from the sizes of the saved run, {sizes_run}; their "
                "share of the ceiling is a guess"
            )
            found.append(Remark("other-sizes", text, _MEASURE_HERE))
    return found


BUDGET_S = 1.0
# Sizes closer than this are not both measured: interpolation is as good.
_APART = 1.9

Points = tuple[tuple[int, float], ...]
"""Ascending sizes, with the seconds of one copy."""


def points_of(source: Fact[CeilingSource], direction: OneWay | None) -> Fact[Points]:
    if direction is None:
        return Fact(reason="only copies between host and device have a ceiling")
    if source.value is None:
        return Fact(reason=source.reason)
    points = source.value.points.get(direction)
    return Fact(points) if points else Fact(reason=f"no ceiling was measured for {direction} and pinned memory")


def source_of(run: Run, source: Literal["measured", "saved"] = "saved") -> Fact[CeilingSource]:
    host, taken_at = run.environment.host, run.environment.taken_at
    curves: dict[CopyDirectionName, Points] = {}
    for way in get_args(OneWay):
        best: dict[int, float] = {}
        for row in run.measurements:
            is_raw = (row.direction, row.memory) == (way, "pinned") and row.may_be_ceiling
            if is_raw and row.rate.value is not None and row.elapsed_s is not None and row.elapsed_s > 0:
                best[row.nbytes] = min(row.elapsed_s, best.get(row.nbytes, math.inf))
        if best:
            curves[way] = tuple(sorted(best.items()))
    return Fact(CeilingSource(source, run.device.name, host, taken_at, curves))


def measure_ceilings(
    needed: Mapping[OneWay, Sequence[int]], target: Target
) -> tuple[Fact[CeilingSource], tuple[Remark, ...]]:
    """Measure raw copies of pinned memory in these directions and sizes. Takes about a second."""
    if not needed:
        return Fact(reason="nothing crossed the link in this window"), ()
    from pyxfer._ceiling.session import ceiling

    try:
        run = ceiling(
            HOST if target.choice.runtime == "host" else target.device.index,
            direction=tuple(needed),
            memory=("pinned",),
            size=sizes_to_measure(needed),
            precision=CEILING_PRECISION,
            budget=BUDGET_S,
            trace=False,
        )
    except PyxferError as error:
        why = f"the ceiling could not be measured: {error}"
        return Fact(reason=why), (Remark("no-ceiling", why),)
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    return source_of(run, "measured"), ()


def sizes_to_measure(needed: Mapping[OneWay, Sequence[int]]) -> tuple[int, ...]:
    wanted = sorted({min(max(size, MIN_BYTES), LARGEST_BYTES) for sizes in needed.values() for size in sizes})
    chosen: list[int] = []
    for size in wanted:
        if not chosen or size == wanted[-1] or size >= _APART * chosen[-1]:
            chosen.append(size)
    return tuple(chosen)


def seconds_at(points: Points, nbytes: int) -> float:
    """Between two sizes in logarithms, below the smallest as long as that, and above the largest at its rate."""
    sizes = [size for size, _ in points]
    place = bisect_left(sizes, nbytes)
    if place == len(points):
        size, seconds = points[-1]
        return seconds * nbytes / size
    if place == 0 or sizes[place] == nbytes:
        return points[place][1]
    (below, least), (above, most) = points[place - 1], points[place]
    part = math.log(nbytes / below) / math.log(above / below)
    return least * math.pow(most / least, part)
