"""How much of a window's work went on at once: copies under kernels, kernels beside each other, copy engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyxfer.model import Fact, unknown
from pyxfer.model_watch import Overlap, StreamUse
from pyxfer.tracing.intervals import clip, intervals, levels, total_ns
from pyxfer.watching.copies import Copied, hidden_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer.watching.gathered import Gathered

# A program with more streams than this has no use for a list of them all.
MOST_STREAMS = 64


def overlap(gathered: Gathered, copied: Copied, begin_ns: int, end_ns: int) -> Overlap:
    """Of the window between two times."""
    kernels = levels(intervals(gathered.kernels))
    copies = levels(intervals(gathered.copies))
    length = end_ns - begin_ns
    busy_ns = total_ns(clip(gathered.busy.united, begin_ns, end_ns))
    return Overlap(
        busy_share=busy_ns / length if length > 0 else 0.0,
        hidden_share=hidden_share(copied),
        kernels=len(gathered.kernels),
        kernels_at_once=_mean_level(kernels, "no kernel ran"),
        kernels_share=_share_from_two(kernels, "no kernel ran"),
        copies_at_once=max(copies, default=0),
        copies_share=_share_from_two(copies, "no copy has a time"),
    )


def streams(gathered: Gathered) -> tuple[StreamUse, ...]:
    """Each stream that copied or computed, the busiest first."""
    uses: dict[tuple[int, int, int], dict[str, float]] = {}
    for what, records in (("copies", gathered.copies), ("kernels", gathered.kernels)):
        for key, count, nbytes, seconds in _by_stream(records):
            use = uses.setdefault(key, dict.fromkeys(("copies", "copied_bytes", "copies_s", "kernels", "kernels_s"), 0))
            use[what], use[f"{what}_s"] = count, seconds
            use["copied_bytes"] += nbytes if what == "copies" else 0
    found = [
        StreamUse(
            *key,
            copies=int(use["copies"]),
            copied_bytes=int(use["copied_bytes"]),
            copies_s=use["copies_s"],
            kernels=int(use["kernels"]),
            kernels_s=use["kernels_s"],
        )
        for key, use in uses.items()
    ]
    return tuple(sorted(found, key=lambda use: -(use.copies_s + use.kernels_s))[:MOST_STREAMS])


def _by_stream(records: NDArray[Any]) -> list[tuple[tuple[int, int, int], int, int, float]]:
    """Device, context and stream; how many records, bytes and seconds."""
    device, context, stream = (records[name].astype(np.uint64) for name in ("device", "context", "stream"))
    keys = device << np.uint64(48) | context << np.uint64(32) | stream
    found, place = np.unique(keys, return_inverse=True)
    seconds = np.where(records["end_ns"] > records["start_ns"], records["end_ns"] - records["start_ns"], 0) / 1e9
    counts = np.bincount(place, minlength=len(found))
    nbytes = np.bincount(place, weights=records["nbytes"].astype(np.float64), minlength=len(found))
    took = np.bincount(place, weights=seconds, minlength=len(found))
    return [
        ((key >> 48, key >> 32 & 0xFFFF, key & 0xFFFFFFFF), int(count), int(size), float(time))
        for key, count, size, time in zip(found.tolist(), counts, nbytes, took, strict=True)
    ]


def _mean_level(spans: dict[int, int], why_not: str) -> Fact[float]:
    """How many at once on average while there is any."""
    time = sum(spans.values())
    return Fact(sum(level * span for level, span in spans.items()) / time) if time else unknown(why_not)


def _share_from_two(spans: dict[int, int], why_not: str) -> Fact[float]:
    """Of the time with any, that with two or more."""
    time = sum(spans.values())
    return Fact(sum(span for level, span in spans.items() if level > 1) / time) if time else unknown(why_not)
