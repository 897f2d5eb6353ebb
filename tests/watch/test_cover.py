"""What lies between two times, against a count nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._watch.gathered import Cover

stretches = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
times = st.lists(st.integers(-5, 70), min_size=1, max_size=8)


def array(pairs: list[tuple[int, int]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(pairs, np.int64).reshape(-1, 2)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for begin, end in pairs for instant in range(begin, end)}


@given(stretches, times, times)
def test_it_is_the_count_of_instants_that_any_stretch_holds(
    pairs: list[tuple[int, int]], begins: list[int], lengths: list[int]
) -> None:
    count = min(len(begins), len(lengths))
    begin = np.array(begins[:count], np.int64)
    end = begin + np.abs(np.array(lengths[:count], np.int64))
    held = instants(pairs)
    expected = [len(held & set(range(int(b), int(e)))) for b, e in zip(begin, end, strict=True)]
    assert Cover(array(pairs)).within(begin, end).tolist() == expected


@given(stretches, times)
def test_a_time_is_held_from_the_beginning_of_a_stretch_to_its_end(
    pairs: list[tuple[int, int]], asked: list[int]
) -> None:
    expected = [any(b <= t <= e for b, e in pairs if e > b) for t in asked]
    assert Cover(array(pairs)).holds(np.array(asked, np.int64)).tolist() == expected


def test_of_nothing_nothing_is_covered() -> None:
    assert Cover().within(np.array([0]), np.array([10])).tolist() == [0]
    assert Cover().total_ns == 0
