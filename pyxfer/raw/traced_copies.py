"""Raw copies with what the device recorded of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pyxfer.model import Side
from pyxfer.tracing.dma import asked_ns, copies_of
from pyxfer.tracing.records import Capture, CopyWay, Kind
from pyxfer.tracing.trials import Traced, Usage, copy_way

if TYPE_CHECKING:
    from pyxfer.native._cuda import Sample
    from pyxfer.tracing.taking import Taking


@dataclass(frozen=True)
class Seen:
    """Copies that have been made, and everything that was recorded meanwhile."""

    samples: Sequence[Sample]
    usage: Usage
    capture: Capture


def watch(taking: Taking, run: Callable[[], Sequence[Sample]]) -> Seen:
    """Make copies and take what was recorded of them."""
    taking.begin()
    before = Usage.so_far()
    samples = run()
    usage = Usage.so_far().since(before)
    return Seen(samples, usage, taking.take())


def traced_window(seen: Seen, side: Side, nbytes: int, warmups: int) -> Traced:
    """The copies of one side that were timed, without those that were made before and after them.

    Neither a window behind a gate nor a copy in a thread of the engine's has a begin on the host's clock: the one
    begins with its first copy, the other with the call that asked for it.
    """
    way = copy_way(side)
    if way is None:
        raise ValueError(f"{side} is no direction of copies")
    sample = seen.samples[0] if len(seen.samples) == 1 or side == "h2d" else seen.samples[1]
    capture = _of_window(seen.capture, way, warmups * nbytes, sample.copies * nbytes)
    gated = sample.wall_s is None
    begin_ns = _begin_ns(capture, way, gated=gated)
    elapsed_s = sample.elapsed_s * sample.copies
    dispatch_s = sample.dispatch_s * sample.copies
    return Traced(
        way=way,
        begin_ns=begin_ns,
        returned_ns=begin_ns if gated else begin_ns + round(dispatch_s * 1e9),
        elapsed_s=elapsed_s,
        dispatch_s=dispatch_s,
        wall_s=elapsed_s if sample.wall_s is None else sample.wall_s * sample.copies,
        copies=sample.copies,
        usage=seen.usage,
        capture=capture,
    )


def _of_window(capture: Capture, way: CopyWay, before_bytes: int, own_bytes: int) -> Capture:
    """The records without the copies of this direction that came before the window, or behind it."""
    copies = copies_of(capture, way)
    begins = np.cumsum(copies["nbytes"]) - copies["nbytes"]
    own = copies[(begins >= before_bytes) & (begins < before_bytes + own_bytes)]
    records = capture.records
    rest = records[(records["kind"] != Kind.COPY) | (records["way"] != way)]
    return replace(capture, records=np.concatenate((rest, own)))


def _begin_ns(capture: Capture, way: CopyWay, *, gated: bool) -> int:
    copies = copies_of(capture, way)
    if not len(copies):
        return 0
    first = int(copies["start_ns"][0])
    return first if gated else min(first, asked_ns(capture, copies[0]))
