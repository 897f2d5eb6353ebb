"""What the copies of a window are compared with: raw copies on this machine, measured now or in a saved run."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyxfer.errors import PyxferError
from pyxfer.model import Direction, Fact, Memory, Remark, Run
from pyxfer.native import HOST
from pyxfer.watching.ceiling_source import LARGEST_BYTES, LEAST_BYTES, remarks_on_saved, source_of

if TYPE_CHECKING:
    from pyxfer.model import Device, Link
    from pyxfer.model_watch import CeilingSource
    from pyxfer.watching.place import Place
    from pyxfer.watching.window import Window

BUDGET_S = 1.0
# A share of the ceiling is read to the percent.
PRECISION = 0.02
# Within an octave the curve between two sizes is as good as a third one.
_APART = 1.9

Points = Sequence[tuple[int, float]]
"""Sizes in their order, and the seconds of one copy."""


class RunCeilings:
    """The ceilings of a run, at any size: seconds between two sizes lie on the line through both logarithms."""

    def __init__(self, run: Run, source: Literal["measured", "saved"] = "saved") -> None:
        self.source: Fact[CeilingSource] = Fact(source_of(run, source))
        self._curves: Mapping[tuple[Direction, Memory], Points] = _curves(run)

    def gbps(self, direction: Direction, memory: Memory, nbytes: int) -> Fact[float]:
        """1e9 bytes a second of the best raw copy; below the smallest size its time, above the largest its rate."""
        points = self._curves.get((direction, memory))
        if not points:
            return Fact(reason=f"no ceiling was measured for {direction} and {memory} memory")
        if nbytes <= 0:
            return Fact(reason="a copy of nothing has no speed")
        return Fact(nbytes / _seconds(points, nbytes) / 1e9)


class NoCeilings:
    """Nothing to compare with, and why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self.source: Fact[CeilingSource] = Fact(reason=reason)

    def gbps(self, direction: Direction, memory: Memory, nbytes: int) -> Fact[float]:
        """The reason."""
        return Fact(reason=self._reason)


def measure_ceilings(window: Window, place: Place) -> tuple[RunCeilings | NoCeilings, tuple[Remark, ...]]:
    """Raw copies of the directions and sizes that the window holds, from pinned memory; about a second.

    Raises:
        KeyboardInterrupt: Ctrl-C.

    """
    directions, sizes = sizes_to_measure(window)
    if not sizes:
        return NoCeilings("nothing crossed the link in this window"), ()
    try:
        run = _measured(place, directions, sizes)
    except PyxferError as error:
        why = f"the ceiling could not be measured: {error}"
        return NoCeilings(why), (Remark("no-ceiling", why),)
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    return RunCeilings(run, "measured"), ()


def saved_ceilings(run: Run, window: Window, device: Device, link: Link) -> tuple[RunCeilings, tuple[Remark, ...]]:
    """Those of a saved run, and what in it is not as in the window."""
    return RunCeilings(run), remarks_on_saved(run, device, link, _asked(window))


def sizes_to_measure(window: Window) -> tuple[tuple[Direction, ...], tuple[int, ...]]:
    """The directions that the window's copies have, and the sizes that stand for all of theirs."""
    asked = _asked(window)
    wanted = sorted({min(max(size, LEAST_BYTES), LARGEST_BYTES) for sizes in asked.values() for size in sizes})
    chosen: list[int] = []
    for size in wanted:
        if not chosen or size == wanted[-1] or size >= _APART * chosen[-1]:
            chosen.append(size)
    return tuple(asked), tuple(chosen)


def _asked(window: Window) -> Mapping[Direction, Sequence[int]]:
    if window.capture.value is None:
        return {}
    from pyxfer.watching.copies import sizes_asked
    from pyxfer.watching.gathered import gather

    return sizes_asked(gather(window, window.capture.value))


def _measured(place: Place, directions: Sequence[Direction], sizes: Sequence[int]) -> Run:
    from pyxfer.raw import ceiling

    device = HOST if place.choice.runtime == "host" else place.device.index
    return ceiling(
        device,
        directions=directions,
        memories=("pinned",),
        sizes=sizes,
        precision=PRECISION,
        budget_s=BUDGET_S,
        trace=False,
    )


def _curves(run: Run) -> dict[tuple[Direction, Memory], Points]:
    best: dict[tuple[Direction, Memory], dict[int, float]] = {}
    for row in run.measurements:
        seconds = row.elapsed_s
        one_way = row.direction in ("h2d", "d2h") and row.may_be_ceiling
        if one_way and row.rate.value is not None and seconds is not None and seconds > 0:
            sizes = best.setdefault((row.direction, row.memory), {})  # type: ignore[arg-type]  # a raw row's memory
            sizes[row.nbytes] = min(seconds, sizes.get(row.nbytes, math.inf))
    return {key: sorted(sizes.items()) for key, sizes in best.items()}


def _seconds(points: Points, nbytes: int) -> float:
    """Seconds of one copy."""
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
