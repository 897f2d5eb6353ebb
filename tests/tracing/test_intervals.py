"""The functions on intervals, compared with a count of every nanosecond."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tracing.captures import BEGIN_NS, kernel

from pyxfer._trace.records import (
    clip,
    difference,
    intersection,
    intervals,
    inverse,
    levels,
    no_intervals,
    partition,
    total_ns,
    union,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

END = 40
_moments = st.integers(0, END)
stretches = st.lists(st.tuples(_moments, _moments), max_size=8).map(
    lambda pairs: np.array([sorted(pair) for pair in pairs], np.int64).reshape(-1, 2)
)


def moments(of: NDArray[np.int64]) -> set[int]:
    return {moment for begin, end in of.tolist() for moment in range(begin, end)}


def is_united(of: NDArray[np.int64]) -> bool:
    edges: list[int] = of.reshape(-1).tolist()
    return edges == sorted(set(edges))


@given(stretches, stretches)
def test_union(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    both = union(one, other)
    assert moments(both) == moments(one) | moments(other)
    assert is_united(both)
    assert total_ns(both) == len(moments(both))


@given(stretches, stretches)
def test_intersection(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    both = intersection(one, other)
    assert moments(both) == moments(one) & moments(other)
    assert is_united(both)


@given(stretches, stretches)
def test_difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    left = difference(one, other)
    assert moments(left) == moments(one) - moments(other)
    assert is_united(left)


@given(stretches, _moments, _moments)
def test_inverse(of: NDArray[np.int64], begin: int, end: int) -> None:
    left = inverse(of, begin, end)
    assert moments(left) == set(range(begin, end)) - moments(of)
    assert is_united(left)


@given(stretches, _moments, _moments)
def test_clip(of: NDArray[np.int64], begin: int, end: int) -> None:
    assert moments(clip(of, begin, end)) == moments(of) & set(range(begin, end))


@given(st.lists(stretches, max_size=5), _moments, _moments)
def test_partition_assigns_every_instant_to_the_first_claim(
    claims: list[NDArray[np.int64]], begin: int, end: int
) -> None:
    expected: Counter[str] = Counter()
    for moment in range(begin, end):
        owners = (str(number) for number, claim in enumerate(claims) if moment in moments(claim))
        expected[next(owners, "")] += 1
    shares = partition(begin, max(begin, end), [(str(number), claim) for number, claim in enumerate(claims)])
    assert {name: ns for name, ns in shares.items() if ns} == expected
    assert sum(shares.values()) == max(0, end - begin)


@given(stretches, stretches)
def test_partition_adds_claims_of_one_name(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    assert partition(0, END, [("x", one), ("x", other)])["x"] == len(moments(one) | moments(other))


@given(stretches)
def test_levels(of: NDArray[np.int64]) -> None:
    depths: Counter[int] = Counter()
    for moment in range(END):
        depths[sum(begin <= moment < end for begin, end in of.tolist())] += 1
    assert levels(of) == {depth: ns for depth, ns in depths.items() if depth > 0}


def test_records_without_a_time_have_no_interval() -> None:
    records = np.concatenate((kernel(1, 3), kernel(5, 5)))
    assert (intervals(records) - BEGIN_NS).tolist() == [[1000, 3000]]
    assert total_ns(intervals(records[:0])) == total_ns(no_intervals()) == 0
