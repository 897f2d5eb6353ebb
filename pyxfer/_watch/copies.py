"""The copies of a window by kind, host memory and size, compared with the ceiling of their sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pyxfer._document import watches
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import OneWay
from pyxfer._trace.records import CopyKind, Flag, MemoryKind, clip, intervals, levels, total_ns
from pyxfer._watch.ceilings import Ceilings
from pyxfer._watch.device_records import Cover, DeviceRecords, Stretches, split_stream_key, stream_keys
from pyxfer.units import format_size

Values = NDArray[np.float64]
Places = NDArray[np.intp]
Chosen = NDArray[np.bool_]

# At most this many streams are listed.
MAX_STREAMS = 64


def overlap(records: DeviceRecords, copied: CopyTable, begin_ns: int, end_ns: int) -> watches.Overlap:
    kernels_s = _level_seconds(intervals(records.kernels))
    copies_s = _level_seconds(intervals(records.copies))
    length = end_ns - begin_ns
    busy_ns = total_ns(clip(records.busy.united, begin_ns, end_ns))
    return watches.Overlap(
        busy_share=busy_ns / length if length > 0 else 0.0,
        hidden_share=copied.hidden_share(),
        kernels=len(records.kernels),
        kernels_at_once=mean_level(kernels_s, "no kernel ran"),
        kernels_share=share_from_two(kernels_s, "no kernel ran"),
        copies_at_once=len(copies_s),
        copies_share=share_from_two(copies_s, "no copy has a time"),
        kernels_s=kernels_s,
        copies_s=copies_s,
    )


def _level_seconds(of: NDArray[np.int64]) -> tuple[float, ...]:
    spans = levels(of)
    return tuple(spans.get(level, 0) / 1e9 for level in range(1, max(spans, default=0) + 1))


def mean_level(seconds: Sequence[float], reason: str) -> Fact[float]:
    time = math.fsum(seconds)
    return Fact(level_sum(seconds) / time) if time > 0 else unknown(reason)


def share_from_two(seconds: Sequence[float], reason: str) -> Fact[float]:
    time = math.fsum(seconds)
    return Fact(math.fsum(seconds[1:]) / time) if time > 0 else unknown(reason)


def level_sum(seconds: Sequence[float]) -> float:
    return math.fsum(level * span for level, span in enumerate(seconds, start=1))


def stretches(records: DeviceRecords, over: Stretches) -> tuple[watches.Stretch, ...]:
    begins, ends = over.bounds[:, 0], over.bounds[:, 1]
    copied, allocated = _copied_bytes(records, over), _allocations(records.allocations, over)
    return tuple(
        watches.Stretch(busy_s=busy_ns / 1e9, copied_bytes=copied[place], allocated=allocated[place])
        for place, busy_ns in enumerate(records.busy.within(begins, ends).tolist())
    )


def _copied_bytes(records: DeviceRecords, over: Stretches) -> list[dict[watches.CopyDirectionName, int]]:
    found: list[dict[watches.CopyDirectionName, int]] = [{} for _ in over.bounds]
    number = over.number(records.copies["start_ns"])
    for kind in np.unique(records.copies["way"]):
        own = records.copies["way"] == kind
        for place, nbytes in enumerate(over.sums(number[own], records.copies["nbytes"][own])):
            if nbytes:
                found[place][COPY_KINDS.get(int(kind), "other")] = nbytes
    return found


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


def allocated(stretches: Sequence[watches.Stretch]) -> tuple[watches.Allocated, ...]:
    """One row for each kind of memory."""
    found: dict[str, list[watches.AllocationSums]] = {}
    for stretch in stretches:
        for memory, sums in stretch.allocated.items():
            found.setdefault(memory, []).append(sums)
    names, order = watches.AllocationSums.__struct_fields__, [MEMORIES[kind] for kind in sorted(MEMORIES)]
    return tuple(
        watches.Allocated(memory, *(sum(getattr(each, name) for each in found[memory]) for name in names))
        for memory in sorted(found, key=order.index)
    )


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
_NOT_THE_LINK = "only copies between host and device have a ceiling"
NO_CEILING = "no ceiling was measured"
_UNTIMED = "the device gave no time for them"
_ISSUED = "their ceiling contains the time to issue a copy, and the device's records do not"
_TOO_SMALL = f"a copy below {format_size(watches.MIN_OF_CEILING)} goes within a command and has no ceiling"


def sizes_needed(records: DeviceRecords) -> dict[OneWay, tuple[int, ...]]:
    """For each direction of the copies the mean size of each class, at which ceilings are needed."""
    needed: dict[OneWay, tuple[int, ...]] = {}
    for kind, direction in DIRECTIONS.items():
        nbytes = _bytes_per_copy(records)[records.copies_of(kind)]
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


class CopyTable:
    """The copies as columns, with the time that each would take at the ceiling of its size."""

    def __init__(self, records: DeviceRecords, ceilings: Ceilings) -> None:
        copies = records.copies
        self.kind, self.memory = copies["way"], records.host_memory
        self.nbytes = copies["nbytes"].astype(np.float64)
        self.count = np.maximum(copies["copies"], 1)
        self.timed = copies["end_ns"] > copies["start_ns"]
        self.seconds = np.where(self.timed, copies["end_ns"] - copies["start_ns"], 0) / 1e9
        computing = Cover(records.computing)
        self.hidden_s = np.where(self.timed, computing.within(copies["start_ns"], copies["end_ns"]), 0) / 1e9
        self.ceiling_s = np.full(len(copies), np.nan)
        self.why_not: dict[int, str] = {}
        places = np.searchsorted(CLASS_BOUNDS, _bytes_per_copy(records), side="right")
        ranks = np.full(256, len(COPY_KINDS))  # of each kind in the order of the page
        ranks[list(COPY_KINDS)] = np.arange(len(COPY_KINDS))
        self._key = (ranks[self.kind] * 256 + self.memory) * 256 + places
        for kind, direction in DIRECTIONS.items():
            self._add_ceilings(kind, direction, ceilings)

    def classes(self) -> tuple[watches.CopyClass, ...]:
        """Every class that has copies: kinds between host and device first, and small sizes first."""
        order = np.argsort(self._key, kind="stable")
        found, begins = np.unique(self._key[order], return_index=True)
        members = np.split(order, begins[1:])
        return tuple(self._class(chosen, int(key) % 256) for key, chosen in zip(found, members, strict=False))

    def pageable(self, among: Chosen) -> tuple[watches.Pageable, ...]:
        rows = []
        for kind in DIRECTIONS:
            chosen = np.flatnonzero(among & (self.kind == kind) & (self.memory == MemoryKind.PAGEABLE))
            if len(chosen):
                seconds = float(self.seconds[chosen].sum())
                pinned = self._ceiling_of(chosen, kind)
                saves: Fact[float] = (
                    unknown(pinned.reason or "") if pinned.value is None else Fact(seconds - pinned.value)
                )
                count, nbytes = int(self.count[chosen].sum()), int(self.nbytes[chosen].sum())
                rows.append(watches.Pageable(COPY_KINDS[kind], count, nbytes, seconds, pinned, saves))
        return tuple(rows)

    def at_the_ceiling_s(self, kind: CopyKind, among: Chosen) -> Fact[float]:
        """Time of these copies if those of pageable memory ran at the ceiling, and the others as they did."""
        chosen, pageable = among & (self.kind == kind), self.memory == MemoryKind.PAGEABLE
        rest = float(self.seconds[chosen & ~pageable].sum())
        pinned = self._ceiling_of(np.flatnonzero(chosen & pageable), int(kind))
        return pinned if pinned.value is None else Fact(rest + pinned.value)

    def returning(self, among: Chosen) -> Returning:
        """The large copies to the device that have as many of the same size back."""
        large = among & (self.nbytes >= RETURNING_BYTES)
        up, down = (np.unique(self.nbytes[large & (self.kind == kind)], return_counts=True) for kind in DIRECTIONS)
        sizes, sent, received = np.intersect1d(up[0], down[0], assume_unique=True, return_indices=True)
        counts = np.minimum(up[1][sent], down[1][received])
        return Returning(int((sizes * counts).sum()), int(counts.sum()), len(sizes))

    def hidden_share(self) -> Fact[float]:
        seconds = float(self.seconds.sum())
        return Fact(float(self.hidden_s.sum()) / seconds) if seconds > 0 else unknown("no copy has a time")

    def _class(self, chosen: Places, place: int) -> watches.CopyClass:
        kind, memory = int(self.kind[chosen[0]]), int(self.memory[chosen[0]])
        timed = chosen[self.timed[chosen]]
        seconds, timed_bytes = float(self.seconds[timed].sum()), int(self.nbytes[timed].sum())
        least, below = (0, *CLASS_BOUNDS)[place], (*CLASS_BOUNDS, None)[place]
        share = share_of(self._ceiling_of(timed, kind), least, seconds)
        if kind not in DIRECTIONS:
            share = unknown(_NOT_THE_LINK)
        return watches.CopyClass(
            direction=COPY_KINDS.get(kind, "other"),
            memory=MEMORIES.get(memory, "unknown"),
            least_bytes=least,
            below_bytes=below,
            count=int(self.count[chosen].sum()),
            nbytes=int(self.nbytes[chosen].sum()),
            timed_bytes=timed_bytes,
            seconds=seconds,
            gbps=Fact(timed_bytes / seconds / 1e9) if seconds > 0 else unknown(_UNTIMED),
            ceiling_share=share,
            hidden_share=Fact(float(self.hidden_s[timed].sum()) / seconds) if seconds > 0 else unknown(_UNTIMED),
        )

    def _ceiling_of(self, chosen: Places, kind: int) -> Fact[float]:
        ideal = self.ceiling_s[chosen[self.timed[chosen]]]
        if np.isnan(ideal).any():
            return unknown(self.why_not.get(kind, NO_CEILING))
        return Fact(float(ideal.sum()))

    def _add_ceilings(self, kind: int, direction: OneWay, ceilings: Ceilings) -> None:
        chosen = np.flatnonzero(self.kind == kind)
        if not len(chosen):
            self.why_not[kind] = NO_CEILING
            return
        _, place = np.unique(self._key[chosen], return_inverse=True)
        nbytes, counts = (np.bincount(place, weights=of[chosen]) for of in (self.nbytes, self.count))
        answers = [ceilings.gbps(direction, mean_size(*sums)) for sums in zip(nbytes, counts, strict=True)]
        self.why_not[kind] = next((answer.reason for answer in answers if answer.reason), NO_CEILING)
        gbps = np.array([answer.value if answer.value else np.nan for answer in answers], np.float64)
        self.ceiling_s[chosen] = self.nbytes[chosen] / gbps[place] / 1e9


def share_of(ideal: Fact[float], least: int, seconds: float) -> Fact[float]:
    """The share of the ceiling of a class that begins at `least` bytes; `ideal`: its seconds at the ceiling."""
    if least < watches.MIN_OF_CEILING:
        return unknown(_TOO_SMALL)
    if seconds <= 0:
        return unknown(_UNTIMED)
    if ideal.value is None:
        return unknown(ideal.reason or "")
    return unknown(_ISSUED) if least < watches.MIN_COMPARABLE and ideal.value > seconds else Fact(ideal.value / seconds)


def mean_size(nbytes: float, count: float) -> int:
    """The size at which the copies of a class are held against the ceiling.

    The time of a copy is nearly a line over a factor of four, so the mean size takes the mean time.
    """
    return max(1, round(nbytes / count))


def _bytes_per_copy(records: DeviceRecords) -> Values:
    sizes: Values = records.copies["nbytes"] / np.maximum(records.copies["copies"], 1)
    return sizes
