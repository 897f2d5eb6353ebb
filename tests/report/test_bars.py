"""Bars keep to their room, whatever a document says."""

from __future__ import annotations

import math

import pytest

from pyxfer._report.layout import bars


def test_each_bar_begins_where_the_one_before_it_ends() -> None:
    assert bars([0.25, 0.5, 0.25], 8) == ["##", "  ####", "      ##"]


def test_what_is_there_at_all_is_seen() -> None:
    assert bars([1e-9, 0.0, 1.0], 4) == ["#", "", "####"]


@pytest.mark.parametrize("share", [1e19, 1e308, math.inf])
def test_more_than_the_whole_ends_with_the_room(share: float) -> None:
    assert bars([share, share], 4) == ["####", "   #"]


@pytest.mark.parametrize("share", [-1e19, -math.inf, math.nan])
def test_less_than_nothing_is_no_bar(share: float) -> None:
    assert bars([share, 0.5], 4) == ["", "##"]
