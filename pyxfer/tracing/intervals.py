"""Stretches of time as an array of two columns, begin and end: united, cut, subtracted, counted.

A united array is in order and its stretches do not touch; every function that gives one takes any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def intervals(records: NDArray[Any]) -> NDArray[np.int64]:
    """The stretches of records that the device gave a time for."""
    timed = records[records["end_ns"] > records["start_ns"]]
    return np.column_stack((timed["start_ns"], timed["end_ns"])).astype(np.int64)


def nothing() -> NDArray[np.int64]:
    """No time at all."""
    return np.empty((0, 2), np.int64)


def union(*each: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where at least one of them is."""
    together = np.concatenate([nothing(), *each])
    together = together[together[:, 1] > together[:, 0]]
    if not len(together):
        return nothing()
    together = together[np.argsort(together[:, 0], kind="stable")]
    reach = np.maximum.accumulate(together[:, 1])
    first = np.concatenate(([True], together[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((together[first, 0], reach[last]))


def inverse(of: NDArray[np.int64], begin_ns: int, end_ns: int) -> NDArray[np.int64]:
    """Where it is not, between two times."""
    inside = clip(union(of), begin_ns, end_ns)
    begins = np.concatenate(([begin_ns], inside[:, 1]))
    ends = np.concatenate((inside[:, 0], [end_ns]))
    kept = ends > begins
    return np.column_stack((begins[kept], ends[kept])).astype(np.int64)


def clip(of: NDArray[np.int64], begin_ns: int, end_ns: int) -> NDArray[np.int64]:
    """What of it lies between two times."""
    cut = np.column_stack((np.maximum(of[:, 0], begin_ns), np.minimum(of[:, 1], end_ns)))
    return cut[cut[:, 1] > cut[:, 0]]


def intersection(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where both are."""
    first, second = union(one), union(other)
    if not len(first) or not len(second):
        return nothing()
    begin = int(min(first[0, 0], second[0, 0]))
    end = int(max(first[-1, 1], second[-1, 1]))
    return inverse(union(inverse(first, begin, end), inverse(second, begin, end)), begin, end)


def difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the first is and the second is not."""
    first = union(one)
    if not len(first):
        return nothing()
    return intersection(first, inverse(other, int(first[0, 0]), int(first[-1, 1])))


def total_ns(of: NDArray[np.int64]) -> int:
    """How long they are together, each counted for itself; of a united array, the time that it covers."""
    return int((of[:, 1] - of[:, 0]).sum())


def partition(begin_ns: int, end_ns: int, claims: Sequence[tuple[str, NDArray[np.int64]]]) -> dict[str, int]:
    """Give every instant to the first claim that covers it; nanoseconds by name, `""` for what nobody claims."""
    left = np.array([[begin_ns, end_ns]], np.int64)
    shares: dict[str, int] = {}
    for name, claim in claims:
        shares[name] = shares.get(name, 0) + total_ns(intersection(left, claim))
        left = difference(left, claim)
    shares[""] = total_ns(left)
    return shares


def levels(of: NDArray[np.int64]) -> dict[int, int]:
    """For how many nanoseconds how many of them were under way at once, from one on."""
    edges = np.concatenate((of[:, 0], of[:, 1]))
    steps = np.concatenate((np.ones(len(of), np.int64), -np.ones(len(of), np.int64)))
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(steps[order])[:-1]
    spans = np.bincount(depth, weights=np.diff(edges[order])) if len(depth) else np.empty(0)
    return {level: int(span) for level, span in enumerate(spans.tolist()) if level > 0 and span > 0}
