"""The tracer's records as one table, and operations on sets of intervals.

The columns are those of `csrc/trace/record.hpp`. Times are nanoseconds on the clock of `time.perf_counter_ns`.
An array of intervals has a row for each, with its begin and its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


def intervals(records: NDArray[Any]) -> NDArray[np.int64]:
    timed = records[records["end_ns"] > records["start_ns"]]
    return np.column_stack((timed["start_ns"], timed["end_ns"])).astype(np.int64)


def no_intervals() -> NDArray[np.int64]:
    return np.empty((0, 2), np.int64)


def union(*arrays: NDArray[np.int64]) -> NDArray[np.int64]:
    """The time in at least one interval, as disjoint intervals in order."""
    together = np.concatenate([no_intervals(), *arrays])
    together = together[together[:, 1] > together[:, 0]]
    if not len(together):
        return no_intervals()
    together = together[np.argsort(together[:, 0], kind="stable")]
    reach = np.maximum.accumulate(together[:, 1])
    first = np.concatenate(([True], together[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((together[first, 0], reach[last]))


def clip(of: NDArray[np.int64], begin_ns: int, end_ns: int) -> NDArray[np.int64]:
    cut = np.column_stack((np.maximum(of[:, 0], begin_ns), np.minimum(of[:, 1], end_ns)))
    return cut[cut[:, 1] > cut[:, 0]]


def total_ns(of: NDArray[np.int64]) -> int:
    """The sum of the lengths. Overlaps count more than once, so `union` comes first for the covered time."""
    return int((of[:, 1] - of[:, 0]).sum())


def partition(begin_ns: int, end_ns: int, claims: Sequence[tuple[str, NDArray[np.int64]]]) -> dict[str, int]:
    """Assign every instant to the first claim that covers it: nanoseconds by name, with `""` for the rest."""
    covered, before_ns, shares = no_intervals(), 0, dict[str, int]()
    for name, claim in (*claims, ("", np.array([[begin_ns, end_ns]], np.int64))):
        covered = union(covered, clip(claim, begin_ns, end_ns))
        shares[name] = shares.get(name, 0) + total_ns(covered) - before_ns
        before_ns = total_ns(covered)
    return shares


def levels(of: NDArray[np.int64]) -> dict[int, int]:
    """Nanoseconds by the number of simultaneous intervals, from 1 on."""
    edges = np.concatenate((of[:, 0], of[:, 1]))
    steps = np.concatenate((np.ones(len(of), np.int64), -np.ones(len(of), np.int64)))
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(steps[order])[:-1]
    spans = np.bincount(depth, weights=np.diff(edges[order])) if len(depth) else np.empty(0)
    return {level: int(span) for level, span in enumerate(spans.tolist()) if level > 0 and span > 0}


class Kind(IntEnum):
    COPY = 1
    SET = 2
    KERNEL = 3
    CALL = 4
    ALLOCATION = 5
    MARK = 6
    OVERHEAD = 7


class CopyKind(IntEnum):
    OTHER = 0
    H2D = 1
    D2H = 2
    D2D = 3
    H2H = 4
    P2P = 5


class MemoryKind(IntEnum):
    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


class Flag(IntEnum):
    RUNTIME = 2
    """Of a call: it is one of the runtime (cuda...), otherwise of the driver (cu...)."""
    FREED = 4
    """Of an allocation: memory was released."""
    BEGIN = 8
    """Of a mark: a range begins. Its end has the same `correlation`."""
    END = 16


RECORD = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("nbytes", np.uint64),
        ("correlation", np.uint32),
        ("stream", np.uint32),
        ("context", np.uint32),
        ("device", np.uint32),
        ("thread", np.uint32),
        ("name", np.uint32),
        ("copies", np.uint32),
        ("result", np.int32),
        ("kind", np.uint8),
        ("way", np.uint8),
        ("source", np.uint8),
        ("target", np.uint8),
        ("flags", np.uint32),
    ]
)
"""One record. `start_ns` and `end_ns` are 0 if the device gave no time. `correlation` connects the device's work with
the call that issued it. `thread` is the calling thread's native id. `copies` counts the copies of a batch."""


@dataclass(frozen=True)
class Clock:
    error_ns: int
    """The error of one comparison of the two clocks."""
    drift_ns: int
    """How far the clocks moved against each other from the first comparison to the last; the records are corrected."""


@dataclass(frozen=True)
class Capture:
    records: NDArray[Any]
    names: tuple[str, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The number of lost records, by the word of their kind; `unknown` for those that the library dropped."""
    clock: Clock = field(default_factory=lambda: Clock(0, 0))

    def of(self, kind: Kind) -> NDArray[Any]:
        chosen: NDArray[Any] = self.records[self.records["kind"] == kind]
        order = np.argsort(chosen["start_ns"], kind="stable")
        return chosen.take(order)

    def name(self, record: Any) -> str:
        return self.names[int(record["name"])]


def no_records() -> NDArray[Any]:
    return np.empty(0, RECORD)
