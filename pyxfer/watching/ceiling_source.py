"""Where a ceiling came from, and what a reader must know before copies are compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyxfer.model import Direction, LinkState, Remark, Run
from pyxfer.model_watch import CeilingSource, CopyClass
from pyxfer.units import format_percent, format_size

if TYPE_CHECKING:
    from pyxfer.model import Device, Link

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
