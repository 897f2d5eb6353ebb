"""Stretches of time, each function against a count of every single nanosecond."""

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
    nothing,
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
def test_a_union_is_where_at_least_one_is(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    both = union(one, other)
    assert moments(both) == moments(one) | moments(other)
    assert is_united(both)
    assert total_ns(both) == len(moments(both))


@given(stretches, stretches)
def test_an_intersection_is_where_both_are(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    both = intersection(one, other)
    assert moments(both) == moments(one) & moments(other)
    assert is_united(both)


@given(stretches, stretches)
def test_a_difference_is_where_the_first_is_and_the_second_is_not(
    one: NDArray[np.int64], other: NDArray[np.int64]
) -> None:
    left = difference(one, other)
    assert moments(left) == moments(one) - moments(other)
    assert is_united(left)


@given(stretches, _moments, _moments)
def test_an_inverse_is_where_it_is_not(of: NDArray[np.int64], begin: int, end: int) -> None:
    left = inverse(of, begin, end)
    assert moments(left) == set(range(begin, end)) - moments(of)
    assert is_united(left)


@given(stretches, _moments, _moments)
def test_clipped_is_what_lies_between_two_times(of: NDArray[np.int64], begin: int, end: int) -> None:
    assert moments(clip(of, begin, end)) == moments(of) & set(range(begin, end))


@given(st.lists(stretches, max_size=5), _moments, _moments)
def test_a_partition_gives_every_instant_to_the_first_that_claims_it(
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
def test_two_claims_of_one_name_are_added(one: NDArray[np.int64], other: NDArray[np.int64]) -> None:
    assert partition(0, END, [("x", one), ("x", other)])["x"] == len(moments(one) | moments(other))


@given(stretches)
def test_levels_count_how_many_are_under_way_at_once(of: NDArray[np.int64]) -> None:
    depths: Counter[int] = Counter()
    for moment in range(END):
        depths[sum(begin <= moment < end for begin, end in of.tolist())] += 1
    assert levels(of) == {depth: ns for depth, ns in depths.items() if depth > 0}


def test_records_without_a_time_are_no_stretch() -> None:
    records = np.concatenate((kernel(1, 3), kernel(5, 5)))
    assert (intervals(records) - BEGIN_NS).tolist() == [[1000, 3000]]
    assert total_ns(intervals(records[:0])) == total_ns(nothing()) == 0
