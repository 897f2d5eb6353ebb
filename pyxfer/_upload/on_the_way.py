"""How long an upload takes that casts or reorders on the way, by what uploads without that take.

An upload of S bytes takes `overhead + max(S / fill, S / link)`: the threads of the ring fill slots while the copy
engine reads others. That is measured as a whole, as the seconds of `sending` at S. A conversion adds what does not run
beside it:

- On the device a kernel follows each piece of 2 MiB that has arrived (`converted_piece` of csrc/ring/chunk_mover.hpp).
  The kernels of all pieces but the last run while others cross. So the kernel of the last piece is added, its launch
  and its bytes, read and written, at the rate of the device's memory. If the memory is too slow for all of them, they
  take as long as it needs.
- On the host the cast is part of the fill: `overhead + max(S / cast, D / link)` for D bytes that cross. That is
  measured as a whole too, as the seconds of `casting` at S.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Literal

PIECE_BYTES = 2 << 20
# The memory of an H200 copies 2.1e12 bytes in a second, that is reads and writes 4.2e12. A kernel that casts has other
# sizes of reads and of writes.
DEVICE_BYTES_PER_S = 2.5e12
# A kernel that reorders has distant reads: NHWC->NCHW ran at 1.4e12 to 2.1e12 bytes in a second on an H200.
_REORDERING_SHARE = 0.7
LAUNCH_S = 10e-6

Order = Literal["device", "host"]
Points = tuple[tuple[int, float], ...]
"""Ascending sizes, with the seconds of one upload."""


@dataclass(frozen=True)
class Rates:
    """Measured seconds of uploads by their bytes in host memory.

    `sending`: those that convert nothing. `casting`: those that cast the same pair on the host; empty if not measured.
    `device_bytes_per_s`: what the kernels of a cast read and write; those that reorder are slower. `launch_s`: what a
    conversion costs at any size.
    """

    sending: Points
    casting: Points = ()
    device_bytes_per_s: float = DEVICE_BYTES_PER_S
    launch_s: float = LAUNCH_S


@dataclass(frozen=True)
class Predicted:
    """The faster order: where the cast is made, the bytes that cross, and the seconds."""

    order: Order
    crossing_bytes: int
    seconds: float


def predicted_on_the_way(source_bytes: int, result_bytes: int, rates: Rates, *, permutes: bool = False) -> Predicted:
    """Of an array whose result has `result_bytes`. Only a cast that shrinks it may be made on the host."""
    sent_s = _seconds_at(rates.sending, source_bytes)
    kernel_rate = rates.device_bytes_per_s * (_REORDERING_SHARE if permutes else 1.0)
    behind = partial(_behind, result_bytes=result_bytes, kernel_bytes_per_s=kernel_rate, launch_s=rates.launch_s)
    found = [Predicted("device", source_bytes, behind(sent_s, source_bytes))]
    if rates.casting and result_bytes < source_bytes:
        cast_s = _seconds_at(rates.casting, source_bytes)
        on_host_s = behind(cast_s, result_bytes) if permutes else cast_s
        found.append(Predicted("host", result_bytes, on_host_s))
    return min(found, key=lambda each: each.seconds)


def _behind(
    sent_s: float, crossing_bytes: int, *, result_bytes: int, kernel_bytes_per_s: float, launch_s: float
) -> float:
    """With kernels behind the pieces of what crosses."""
    touched = crossing_bytes + result_bytes
    last = touched * min(1.0, PIECE_BYTES / crossing_bytes) if crossing_bytes else 0.0
    return launch_s + max(sent_s + last / kernel_bytes_per_s, touched / kernel_bytes_per_s)


def _seconds_at(points: Points, nbytes: int) -> float:
    """On the line through the two nearest sizes, because a cost and a rate make a line; at least as the smallest."""
    if len(points) == 1 or nbytes <= points[0][0]:
        size, seconds = points[0]
        return seconds * max(1.0, nbytes / size)
    pairs = list(itertools.pairwise(points))
    (below, least_s), (above, most_s) = next((each for each in pairs if nbytes <= each[1][0]), pairs[-1])
    return max(least_s + (most_s - least_s) * (nbytes - below) / (above - below), points[0][1])
