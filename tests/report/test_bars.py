"""Bars of a breakdown."""

from __future__ import annotations

import math

import pytest

from pyxfer._report.layout import bars


def test_bars_are_consecutive() -> None:
    assert bars([0.25, 0.5, 0.25], 8) == ["##", "  ####", "      ##"]


def test_a_small_share_has_a_bar() -> None:
    assert bars([1e-9, 0.0, 1.0], 4) == ["#", "", "####"]


@pytest.mark.parametrize("share", [1e19, 1e308, math.inf])
def test_shares_above_1_are_clipped(share: float) -> None:
    assert bars([share, share], 4) == ["####", "   #"]


@pytest.mark.parametrize("share", [-1e19, -math.inf, math.nan])
def test_shares_below_0_have_no_bar(share: float) -> None:
    assert bars([share, 0.5], 4) == ["", "##"]
