"""Lanes of the trace: intervals of one lane are disjoint or nested, and there are no more lanes than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._watch.chrome import lanes

Spans = list[tuple[int, int]]


def lanes_of(spans: Spans) -> list[int]:
    columns = np.array(spans, np.int64).reshape(-1, 2)
    return [int(lane) for lane in lanes(columns[:, 0], columns[:, 1])]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(0, 10), (10, 20)], [0, 0]),
        ([(0, 10), (2, 8), (3, 5)], [0, 0, 0]),
        ([(0, 10), (5, 15)], [0, 1]),
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0]),
        ([(0, 10), (5, 15), (6, 20)], [0, 1, 2]),
    ],
)
def test_the_first_lane_with_room_is_taken(spans: Spans, expected: list[int]) -> None:
    assert lanes_of(spans) == expected


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=20))
def test_intervals_of_one_lane_are_disjoint_or_nested(given_spans: Spans) -> None:
    spans = sorted((begin, begin + length) for begin, length in given_spans)
    found = lanes_of(spans)
    for place, (begin, end) in enumerate(spans):
        for other in range(place + 1, len(spans)):
            if found[place] == found[other]:
                later, last = spans[other]
                assert later >= end or last <= end or later == begin
