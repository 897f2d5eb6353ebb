"""Sentences about comparisons."""

from __future__ import annotations

from typing import Any

import pytest
from baseline_samples import all_slow, make_processes, make_sample

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._report.comparison import headline, signed_change

PARTLY = compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",))))


@pytest.mark.parametrize(
    ("ratio", "text"), [(2.0, "-50.0 %"), (1.0, "0.0 %"), (0.5, "+100.0 %"), (1.00001, "0.0 %"), (None, "")]
)
def test_signed_change_is_of_bandwidth(ratio: float | None, text: str) -> None:
    assert signed_change(ratio) == text


def test_a_headline_of_one_cell_is_in_the_singular() -> None:
    cell: dict[str, Any] = {"memories": ("pinned",), "directions": ("h2d",), "sizes": (2**24,)}
    one = compare_samples(make_sample("A", **cell), make_sample("B", seed=2, **cell))
    assert headline(one) == "SAME: 1 cell of B is within 3 % of A."


def test_cells_that_were_not_compared_are_counted() -> None:
    assert headline(PARTLY) == "SAME: 6 cells of B are within 3 % of A. 6 more could not be compared."


def test_a_headline_can_be_fast() -> None:
    fast = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=all_slow(0.5)))
    assert headline(fast).startswith("FAST: 12 of 12 cells of B are faster than A by more than 3 %, most of all")
