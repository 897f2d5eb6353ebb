"""Covered time, compared with a count of every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._watch.device_records import Cover

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
times = st.lists(st.integers(-5, 70), min_size=1, max_size=8)


def array(pairs: list[tuple[int, int]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(pairs, np.int64).reshape(-1, 2)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for begin, end in pairs for instant in range(begin, end)}


@given(intervals, times, times)
def test_within_counts_the_instants_that_any_interval_contains(
    pairs: list[tuple[int, int]], begins: list[int], lengths: list[int]
) -> None:
    count = min(len(begins), len(lengths))
    begin = np.array(begins[:count], np.int64)
    end = begin + np.abs(np.array(lengths[:count], np.int64))
    covered = instants(pairs)
    expected = [len(covered & set(range(int(b), int(e)))) for b, e in zip(begin, end, strict=True)]
    assert Cover(array(pairs)).within(begin, end).tolist() == expected


@given(intervals, times)
def test_holds_includes_both_ends_of_an_interval(pairs: list[tuple[int, int]], at: list[int]) -> None:
    expected = [any(b <= t <= e for b, e in pairs if e > b) for t in at]
    assert Cover(array(pairs)).holds(np.array(at, np.int64)).tolist() == expected


def test_an_empty_cover_covers_nothing() -> None:
    assert Cover().within(np.array([0]), np.array([10])).tolist() == [0]
    assert Cover().total_ns == 0
