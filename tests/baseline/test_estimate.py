"""How sure a ratio is: simulated processes of known spread, with fixed seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import MIB

from pyxfer._baseline.compare import (
    ASSUMED,
    ASSUMED_LOCKED,
    ASSUMED_SMALL,
    LEAST_SPREAD,
    Estimate,
    Pair,
    assumed_spread,
    estimate,
    slow_limit,
    verdict_of,
)
from pyxfer._baseline.samples import Series
from pyxfer._document.baselines import Spread

TOLERANCE = 0.03
CELLS = 12
TABLES = 250

EVEN = np.full(CELLS, 0.003)
WIDE = np.full(CELLS, 0.02)
MIXED = np.geomspace(0.0005, 0.02, CELLS)


def series(logs: Sequence[float] | NDArray[np.float64], half_width: float | None = None) -> Series:
    medians = tuple(float(math.exp(log)) for log in logs)
    lows, highs = (
        tuple(None if half_width is None else m * math.exp(sign * half_width) for m in medians) for sign in (-1, 1)
    )
    return Series(Spread(medians, lows, highs), tuple(range(len(medians))), 1.0)


def table(
    rng: np.random.Generator, processes: tuple[int, int], spread: NDArray[np.float64], log_ratio: float, together: float
) -> list[Estimate]:
    """Twelve cells of two sides. `together`: by how much a process is off in all of its cells at once."""
    sides = [
        mean + rng.standard_normal((n, CELLS)) * spread + together * rng.standard_normal((n, 1))
        for n, mean in zip(processes, (0.0, log_ratio), strict=True)
    ]
    a, b = sides
    pairs = [Pair(series(a[:, cell]), series(b[:, cell]), ASSUMED_LOCKED) for cell in range(CELLS)]
    return [estimate(pair, [other for other in pairs if other is not pair], CELLS) for pair in pairs]


def tables(
    processes: tuple[int, int], spread: NDArray[np.float64], lost: float = 0.0, together: float = 0.0
) -> list[list[Estimate]]:
    rng = np.random.default_rng(20251121)
    return [table(rng, processes, spread, slow_limit(lost) if lost else 0.0, together) for _ in range(TABLES)]


def shares(found: list[list[Estimate]]) -> dict[str, float]:
    counts = Counter(verdict_of(each, TOLERANCE) for table_ in found for each in table_)
    return {verdict: count / TABLES / CELLS for verdict, count in counts.items()}


# --- how often it is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [(3, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize(("spread", "together"), [(EVEN, 0.0), (WIDE, 0.0), (MIXED, 0.0), (EVEN / 3, 0.01)])
def test_the_intervals_of_a_whole_table_hold_the_truth_together(
    processes: tuple[int, int], spread: NDArray[np.float64], together: float
) -> None:
    found = tables(processes, spread, together=together)
    held = sum(all(each.low <= 0 <= each.high for each in table_) for table_ in found) / TABLES
    assert held > 0.92


@pytest.mark.parametrize("processes", [(3, 1), (3, 3)])
@pytest.mark.parametrize(("spread", "together"), [(EVEN, 0.0), (WIDE, 0.0), (MIXED, 0.0), (EVEN / 3, 0.02)])
def test_equal_sides_are_called_slow_in_less_than_one_table_in_a_hundred(
    processes: tuple[int, int], spread: NDArray[np.float64], together: float
) -> None:
    found = tables(processes, spread, together=together)
    slow = sum(any(verdict_of(each, TOLERANCE) == "SLOW" for each in table_) for table_ in found)
    assert slow <= TABLES / 100


@pytest.mark.parametrize("processes", [(3, 1), (3, 3)])
def test_a_loss_of_the_tolerance_itself_is_called_nothing_with_certainty(processes: tuple[int, int]) -> None:
    found = shares(tables(processes, EVEN, lost=TOLERANCE))
    assert found["AMBIGUOUS"] > 0.99


# --- how often it sees something -------------------------------------------------------------------------------------


def test_three_processes_against_three_see_five_per_cent() -> None:
    assert shares(tables((3, 3), EVEN, lost=0.05))["SLOW"] > 0.97


def test_three_processes_against_three_know_that_nothing_has_changed() -> None:
    assert shares(tables((3, 3), EVEN))["SAME"] > 0.97


def test_more_processes_make_it_surer() -> None:
    few, many = (shares(tables(processes, 2 * EVEN, lost=0.05))["SLOW"] for processes in ((3, 1), (6, 6)))
    assert many > few


# --- what it is made of ----------------------------------------------------------------------------------------------


def test_a_cell_without_neighbours_is_students_interval() -> None:
    found = estimate(Pair(series([0.0, 0.01, 0.02]), series([0.01, 0.02, 0.03]), ASSUMED_LOCKED), ())
    assert found.log_ratio == pytest.approx(0.01)
    assert found.high - found.log_ratio == pytest.approx(2.77645 * 0.01 * math.sqrt(2 / 3), rel=1e-4)


def test_a_longer_table_asks_for_more() -> None:
    pair = Pair(series([0.0, 0.01, 0.02]), series([0.01, 0.02, 0.03]), ASSUMED_LOCKED)
    assert estimate(pair, (), 40).high > estimate(pair, (), 1).high


def test_quiet_neighbours_never_make_a_wild_cell_surer_of_its_spread() -> None:
    wild = Pair(series([0.0, 0.05, 0.1]), series([0.0, 0.05, 0.1]), ASSUMED_LOCKED)
    quiet = Pair(series([0.0, 0.001, 0.002]), series([0.0, 0.001, 0.002]), ASSUMED_LOCKED)
    assert estimate(wild, [quiet] * 5).spread == pytest.approx(0.05)


def test_one_wild_neighbour_makes_no_cell_doubtful() -> None:
    wild = Pair(series([0.0, 0.5, 1.0]), series([0.0, 0.5, 1.0]), ASSUMED_LOCKED)
    quiet = Pair(series([0.0, 0.001, 0.002]), series([0.0, 0.001, 0.002]), ASSUMED_LOCKED)
    assert estimate(quiet, [wild, quiet, quiet]).spread < 0.002


def test_processes_that_agree_exactly_are_not_believed_to_the_last_digit() -> None:
    same = series([0.0, 0.0, 0.0])
    assert estimate(Pair(same, same, ASSUMED_LOCKED), ()).spread == LEAST_SPREAD


def test_the_intervals_within_the_processes_are_the_least_error() -> None:
    noisy = series([0.0, 0.0, 0.0], half_width=0.1)
    found = estimate(Pair(noisy, noisy, ASSUMED_LOCKED), ())
    assert found.high > 2.77 * 0.1 / 1.96 * math.sqrt(2 / 3)


@pytest.mark.parametrize(
    ("memory", "nbytes", "spread"),
    [
        ("pinned", MIB, 0.005),
        ("pinned", 4096, 0.005),
        ("pageable", MIB, ASSUMED),
        ("pageable", 4096, ASSUMED_SMALL),
    ],
)
def test_one_process_against_one_is_given_the_spread_that_was_seen_elsewhere(
    memory: str, nbytes: int, spread: float
) -> None:
    found = estimate(Pair(series([0.0]), series([0.0]), assumed_spread(memory, nbytes)), ())
    assert found.assumed
    assert found.high == pytest.approx(1.95996 * spread * math.sqrt(2), rel=1e-4)
