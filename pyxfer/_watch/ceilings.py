"""What the copies of a window are compared with: raw copies on this machine, measured now or in a saved run."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyxfer._document.runs import Direction, Fact, LinkState, Memory, Remark, Run
from pyxfer._document.watches import CeilingSource, CopyClass
from pyxfer.errors import PyxferError
from pyxfer.native import HOST
from pyxfer.units import format_percent, format_size

if TYPE_CHECKING:
    from pyxfer._document.runs import Device, Link
    from pyxfer._document.watches import CeilingSource
    from pyxfer._watch.order import Place
    from pyxfer._watch.window import Window


FARTHEST = 4
"""Times the largest size that was measured, or below the smallest: as far as its figure is taken for another's."""
# Above this a copy is as fast as at it, and twice as much memory would have to be found for a larger one.
LARGEST_BYTES = 64 << 20
# Below this a copy takes as long as at it.
LEAST_BYTES = 4 << 10
MOST_SHARE = 1.1
"""Of the ceiling; above that it is not one."""
LEAST_LARGE_BYTES = 256 << 10
"""Of smaller copies the ceiling's time holds their issuing as well, which the device's own records leave out."""
_MEASURE_HERE = "run pyxfer ceiling on this machine and compare with that, or leave the ceiling to be measured"


def source_of(run: Run, source: Literal["measured", "saved"]) -> CeilingSource:
    """What is said of it on the page."""
    return CeilingSource(source, run.device.name, run.environment.host, run.environment.taken_at)


def remarks_on_saved(
    run: Run, device: Device, link: Link, asked: Mapping[Direction, Sequence[int]]
) -> tuple[Remark, ...]:
    """What in a saved run is not as in the window: the device, the link, the sizes of what was copied."""
    found = []
    if (run.runtime, run.device.name) != (device.runtime, device.name):
        text = f"the ceiling was measured on another device: {run.device.name}; this one is {device.name}"
        found.append(Remark("other-device", text, _MEASURE_HERE))
    else:
        found += _of_links(run.link, link)
    return (*found, *_of_sizes(run, asked))


def remarks_on_shares(copies: Iterable[CopyClass]) -> tuple[Remark, ...]:
    """Copies that are faster than what they cannot be faster than."""
    large = [row.ceiling_share.value for row in copies if row.least_bytes >= LEAST_LARGE_BYTES]
    shares = [share for share in large if share is not None]
    most = max(shares, default=0.0)
    if most <= MOST_SHARE:
        return ()
    text = (
        f"copies reach {format_percent(most)} of the ceiling, so it is too low, and so are the gains predicted from it"
    )
    return (Remark("above-ceiling", text, _MEASURE_HERE),)


def _of_links(measured: Link, here: Link) -> list[Remark]:
    """By what the links can be, for what they are at the moment changes with the load."""
    then, now = _most(measured), _most(here)
    if then is None or now is None or then == now:
        return []
    text = f"the ceiling was measured over another link: {_text(then)}; this one is {_text(now)}"
    return [Remark("other-link", text, _MEASURE_HERE)]


def _most(link: Link) -> LinkState | None:
    """Under load where that is known, else as much as both ends can."""
    if link.under_load.value is not None:
        return link.under_load.value
    ends = [end.value for end in (link.device_most, link.system_most) if end.value is not None]
    return min(ends, key=lambda end: (end.generation, end.width), default=None)


def _text(state: LinkState) -> str:
    return f"PCIe {state.generation}.0 x{state.width}"


def _of_sizes(run: Run, asked: Mapping[Direction, Sequence[int]]) -> list[Remark]:
    found = []
    for direction, sizes in asked.items():
        measured = [row.nbytes for row in run.measurements if row.direction == direction and row.rate.value is not None]
        taken = (min(max(size, LEAST_BYTES), LARGEST_BYTES) for size in sizes)
        far = [size for size in taken if measured and not _near(size, measured)]
        if far:
            held = f"{format_size(min(measured))} to {format_size(max(measured))}"
            text = (
                f"copies {direction} of {_sizes_text(far)} lie far from the sizes of the saved run, {held}; their "
                "share of the ceiling is a guess"
            )
            found.append(Remark("other-sizes", text, _MEASURE_HERE))
    return found


def _near(size: int, measured: Sequence[int]) -> bool:
    return min(measured) / FARTHEST <= size <= max(measured) * FARTHEST


def _sizes_text(sizes: Sequence[int]) -> str:
    least, most = format_size(min(sizes)), format_size(max(sizes))
    return f"about {least}" if least == most else f"about {least} to {most}"


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
    from pyxfer._watch.copies import sizes_asked
    from pyxfer._watch.gathered import gather

    return sizes_asked(gather(window, window.capture.value))


def _measured(place: Place, directions: Sequence[Direction], sizes: Sequence[int]) -> Run:
    from pyxfer._ceiling.session import ceiling

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
