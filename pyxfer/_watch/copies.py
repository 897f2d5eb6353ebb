"""The copies of a window by kind, host memory and size, compared with the ceiling of their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document import watches
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import OneWay
from pyxfer._trace.records import CopyKind, Flag, MemoryKind, intervals, levels
from pyxfer._watch.ceilings import points_of, seconds_at
from pyxfer._watch.device_records import (
    Cover,
    DeviceRecords,
    Stretches,
    device_records,
    split_stream_key,
    stream_keys,
)
from pyxfer._watch.window import Window

Values = NDArray[np.float64]
Chosen = NDArray[np.bool_]

# At most this many streams are listed.
MAX_STREAMS = 64


def overlap(records: DeviceRecords) -> watches.Overlap:
    """The concurrent work, without the shares that follow from it."""
    kernels, copies = Fact[float](reason="no kernel ran"), Fact[float](reason="no copy has a time")
    return watches.Overlap(
        busy_share=0.0,
        hidden_share=copies,
        kernels=len(records.kernels),
        kernels_at_once=kernels,
        kernels_share=kernels,
        copies_at_once=0,
        copies_share=copies,
        kernels_s=_level_seconds(intervals(records.kernels)),
        copies_s=_level_seconds(intervals(records.copies)),
    )


def _level_seconds(of: NDArray[np.int64]) -> tuple[float, ...]:
    spans = levels(of)
    return tuple(spans.get(level, 0) / 1e9 for level in range(1, max(spans, default=0) + 1))


def stretches(records: DeviceRecords, over: Stretches) -> tuple[watches.Stretch, ...]:
    begins, ends = over.bounds[:, 0], over.bounds[:, 1]
    copied: list[dict[watches.CopyDirectionName, int]] = [{} for _ in over.bounds]
    number = over.number(records.copies["start_ns"])
    for kind in np.unique(records.copies["way"]):
        own = records.copies["way"] == kind
        for place, nbytes in enumerate(over.sums(number[own], records.copies["nbytes"][own])):
            if nbytes:
                copied[place][COPY_KINDS.get(int(kind), "other")] = nbytes
    allocated = _allocations(records.allocations, over)
    return tuple(
        watches.Stretch(busy_s=busy_ns / 1e9, copied_bytes=copied[place], allocated=allocated[place])
        for place, busy_ns in enumerate(records.busy.within(begins, ends).tolist())
    )


def _allocations(allocations: NDArray[Any], over: Stretches) -> list[dict[str, watches.AllocationSums]]:
    found: list[dict[str, watches.AllocationSums]] = [{} for _ in over.bounds]
    number, released = over.number(allocations["start_ns"]), (allocations["flags"] & Flag.FREED) != 0
    for memory in np.unique(allocations["target"]):
        own = allocations["target"] == memory
        sums = [
            over.sums(number[chosen], weights[chosen])
            for chosen in (own & ~released, own & released)
            for weights in (np.ones(len(allocations)), allocations["nbytes"])
        ]
        for place, row in enumerate(zip(*sums, strict=True)):
            if any(row):
                found[place][MEMORIES.get(int(memory), "unknown")] = watches.AllocationSums(*row)
    return found


def streams(records: DeviceRecords) -> tuple[watches.StreamUse, ...]:
    """Each stream that copied or computed, the busiest first."""
    uses = {
        key: watches.StreamUse(*key, count, nbytes, seconds, 0, 0.0)
        for key, count, nbytes, seconds in _by_stream(records.copies)
    }
    for key, kernels, _, seconds in _by_stream(records.kernels):
        use = uses.get(key) or watches.StreamUse(*key, 0, 0, 0.0, 0, 0.0)
        uses[key] = msgspec.structs.replace(use, kernels=kernels, kernels_s=seconds)
    return tuple(sorted(uses.values(), key=lambda use: -(use.copies_s + use.kernels_s))[:MAX_STREAMS])


def _by_stream(records: NDArray[Any]) -> list[tuple[tuple[int, int, int], int, int, float]]:
    """For each stream (device, context, stream) the number of records, their bytes and seconds."""
    found, place = np.unique(stream_keys(records), return_inverse=True)
    lengths_ns = np.where(records["end_ns"] > records["start_ns"], records["end_ns"] - records["start_ns"], 0)
    # A batch is one record of several copies.
    counts = np.bincount(place, weights=np.maximum(records["copies"], 1), minlength=len(found))
    nbytes = np.bincount(place, weights=records["nbytes"].astype(np.float64), minlength=len(found))
    took_ns = np.bincount(place, weights=lengths_ns, minlength=len(found))
    return [
        (split_stream_key(key), int(count), int(size), float(time) / 1e9)
        for key, count, size, time in zip(found.tolist(), counts, nbytes, took_ns, strict=True)
    ]


# Powers of 4; a class begins at one and ends below the next.
CLASS_BOUNDS: tuple[int, ...] = tuple(watches.MIN_OF_CEILING * 4**step for step in range(10))
COPY_KINDS: Mapping[int, watches.CopyDirectionName] = {
    CopyKind.H2D: "h2d",
    CopyKind.D2H: "d2h",
    CopyKind.D2D: "d2d",
    CopyKind.P2P: "p2p",
    CopyKind.H2H: "h2h",
    CopyKind.OTHER: "other",
}
MEMORIES: Mapping[int, str] = {kind: kind.name.lower() for kind in MemoryKind}
DIRECTIONS: Mapping[int, OneWay] = {CopyKind.H2D: "h2d", CopyKind.D2H: "d2h"}
UNTIMED = "the device gave no time for them"


def sizes_needed(window: Window) -> dict[OneWay, tuple[int, ...]]:
    """For each direction of the copies the mean size of each class, at which ceilings are needed."""
    needed: dict[OneWay, tuple[int, ...]] = {}
    if window.capture.value is None:
        return needed
    records = device_records(window, window.capture.value)
    for kind, direction in DIRECTIONS.items():
        nbytes = bytes_per_copy(records.copies[records.copies_of(kind)])
        classes = np.searchsorted(CLASS_BOUNDS, nbytes, side="right")
        means = [float(nbytes[classes == place].mean()) for place in np.unique(classes)]
        if means:
            needed[direction] = tuple(max(1, round(mean)) for mean in means)
    return needed


RETURNING_BYTES = 1 << 20


@dataclass(frozen=True)
class Returning:
    """Copies in one direction that have an equal one in the other; `sizes`: how many different ones."""

    nbytes: int
    copies: int
    sizes: int


_COPY = np.dtype(
    [
        ("kind", np.uint8),
        ("memory", np.uint8),
        ("key", np.int64),
        ("nbytes", np.float64),
        ("count", np.int64),
        ("timed", np.bool_),
        ("seconds", np.float64),
        ("hidden_s", np.float64),
        ("ceiling_s", np.float64),
    ]
)
"""`key`: the class of a copy, in the order of the page. `ceiling_s`: its time at the ceiling; NaN without one."""


def copy_table(records: DeviceRecords, source: Fact[watches.CeilingSource]) -> CopyTable:
    copies = records.copies
    begin_ns, end_ns, rows = copies["start_ns"], copies["end_ns"], np.zeros(len(copies), _COPY)
    rows["kind"], rows["memory"], rows["nbytes"] = copies["way"], records.host_memory, copies["nbytes"]
    rows["count"], rows["timed"] = np.maximum(copies["copies"], 1), end_ns > begin_ns
    rows["seconds"] = np.where(rows["timed"], end_ns - begin_ns, 0) / 1e9
    rows["hidden_s"] = np.where(rows["timed"], Cover(records.computing).within(begin_ns, end_ns), 0) / 1e9
    ranks = np.full(256, len(COPY_KINDS))
    ranks[list(COPY_KINDS)] = np.arange(len(COPY_KINDS))
    sizes = np.searchsorted(CLASS_BOUNDS, bytes_per_copy(copies), side="right")
    rows["key"] = (ranks[rows["kind"]] * 256 + rows["memory"]) * 256 + sizes
    _, first, place = np.unique(rows["key"], return_index=True, return_inverse=True)
    sums = (np.bincount(place, weights=rows[name]).tolist() for name in ("nbytes", "count"))
    points = [points_of(source, DIRECTIONS.get(kind)).value for kind in rows["kind"][first].tolist()]
    a_byte_s = [
        np.nan if known is None else seconds_at(known, size) / size
        for known, size in zip(points, map(mean_size, *sums), strict=True)
    ]
    rows["ceiling_s"] = rows["nbytes"] * np.array(a_byte_s, np.float64)[place]
    return CopyTable(rows, source)


class CopyTable:
    def __init__(self, rows: NDArray[Any], source: Fact[watches.CeilingSource]) -> None:
        self.rows = rows
        self._source = source

    def select(self, chosen: Chosen) -> CopyTable:
        return CopyTable(self.rows[chosen], self._source)

    def of(self, kind: int) -> CopyTable:
        return self.select(self.rows["kind"] == kind)

    def of_memory(self, *, pageable: bool) -> CopyTable:
        return self.select((self.rows["memory"] == MemoryKind.PAGEABLE) == pageable)

    def total(self, column: str) -> float:
        return float(self.rows[column].sum())

    def ideal_s(self, kind: int) -> Fact[float]:
        """The time at the ceiling of copies that are all of this kind."""
        ideal = self.rows["ceiling_s"][self.rows["timed"]]
        if np.isnan(ideal).any():
            return unknown(points_of(self._source, DIRECTIONS.get(kind)).reason or "")
        return Fact(float(ideal.sum()))

    def input_s(self) -> Fact[float]:
        """Time of the copies to the device if those of pageable memory ran at the ceiling, the others as they did."""
        own = self.of(CopyKind.H2D)
        pinned = own.of_memory(pageable=True).ideal_s(CopyKind.H2D)
        return pinned if pinned.value is None else Fact(own.of_memory(pageable=False).total("seconds") + pinned.value)

    def classes(self) -> tuple[watches.CopyClass, ...]:
        """Every class that has copies: kinds between host and device first, and small sizes first."""
        return tuple(_class(self.select(self.rows["key"] == key)) for key in np.unique(self.rows["key"]).tolist())

    def pageable(self) -> tuple[watches.Pageable, ...]:
        found = []
        for kind, direction in DIRECTIONS.items():
            own = self.of(kind).of_memory(pageable=True)
            if len(own.rows):
                seconds, pinned = own.total("seconds"), own.ideal_s(kind)
                saves = pinned if pinned.value is None else Fact(seconds - pinned.value)
                count, nbytes = int(own.total("count")), int(own.total("nbytes"))
                found.append(watches.Pageable(direction, count, nbytes, seconds, pinned, saves))
        return tuple(found)

    def returning(self) -> Returning:
        """The large copies to the device that have as many of the same size back."""
        large = self.select(self.rows["nbytes"] >= RETURNING_BYTES)
        up, down = (np.unique(large.of(kind).rows["nbytes"], return_counts=True) for kind in DIRECTIONS)
        sizes, sent, received = np.intersect1d(up[0], down[0], assume_unique=True, return_indices=True)
        counts = np.minimum(up[1][sent], down[1][received])
        return Returning(int((sizes * counts).sum()), int(counts.sum()), len(sizes))


def _class(own: CopyTable) -> watches.CopyClass:
    """The sums of one class, without the figures that follow from them and the ceiling."""
    kind, memory = (int(own.rows[name][0]) for name in ("kind", "memory"))
    seconds, untimed = own.total("seconds"), Fact[float](reason=UNTIMED)
    return watches.CopyClass(
        direction=COPY_KINDS.get(kind, "other"),
        memory=MEMORIES.get(memory, "unknown"),
        least_bytes=0,
        below_bytes=None,
        count=int(own.total("count")),
        nbytes=int(own.total("nbytes")),
        timed_bytes=int(own.rows["nbytes"][own.rows["timed"]].sum()),
        seconds=seconds,
        gbps=untimed,
        ceiling_share=unknown(own.ideal_s(kind).reason or UNTIMED),
        hidden_share=Fact(own.total("hidden_s") / seconds) if seconds > 0 else untimed,
    )


def mean_size(nbytes: float, count: float) -> int:
    """The size at which the copies of a class are held against the ceiling.

    The time of a copy is nearly a line over a factor of four, so the mean size takes the mean time.
    """
    return max(1, round(nbytes / count))


def bytes_per_copy(copies: NDArray[Any]) -> Values:
    sizes: Values = copies["nbytes"] / np.maximum(copies["copies"], 1)
    return sizes
