"""The interval of a ratio, on simulated processes of known spread with fixed seeds."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import make_environment, make_run

from pyxfer._baseline.judge import (
    ASSUMED,
    ASSUMED_IN_MEMORY,
    ASSUMED_LOCKED,
    MIN_BETWEEN_SITTINGS,
    MIN_SPREAD,
    Error,
    Estimate,
    Pair,
    assumed_spread,
    error_of,
    estimate,
    estimates_of,
    slow_limit,
    verdict_of,
)
from pyxfer._baseline.samples import Series, leave_out, sittings_of
from pyxfer._document.intervals import quantile, tail

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
TOLERANCE = 0.03
CELLS = 12
TABLES = 250

EVEN = np.full(CELLS, 0.003)
WIDE = np.full(CELLS, 0.02)
MIXED = np.geomspace(0.0005, 0.02, CELLS)


def committed(name: str) -> Any:
    return json.loads(gzip.decompress((RESULTS / f"{name}.json.gz").read_bytes()))


def series(logs: Sequence[float] | NDArray[np.float64], error: float = 0.0) -> Series:
    medians = tuple(float(math.exp(log)) for log in logs)
    count = len(medians)
    return Series(medians, (error,) * count, tuple(range(count)), (0,) * count, 1)


def table(
    rng: np.random.Generator, processes: tuple[int, int], spread: NDArray[np.float64], log_ratio: float, together: float
) -> list[Error]:
    """Twelve cells of two sides. `together` is the spread that all cells of a process have in common."""
    sides = [
        mean + rng.standard_normal((n, CELLS)) * spread + together * rng.standard_normal((n, 1))
        for n, mean in zip(processes, (0.0, log_ratio), strict=True)
    ]
    a, b = sides
    pairs = [Pair(series(a[:, cell]), series(b[:, cell]), ASSUMED_LOCKED) for cell in range(CELLS)]
    return [error_of(pair, [other for other in pairs if other is not pair]) for pair in pairs]


def tables(
    processes: tuple[int, int], spread: NDArray[np.float64], lost: float = 0.0, together: float = 0.0
) -> list[list[Error]]:
    rng = np.random.default_rng(20251121)
    return [table(rng, processes, spread, slow_limit(lost) if lost else 0.0, together) for _ in range(TABLES)]


def verdicts_of(found: list[Error]) -> list[str]:
    estimates = estimates_of(dict(enumerate(found)), TOLERANCE, 1)
    return [verdict_of(each, TOLERANCE) for each in estimates.values()]


def shares(found: list[list[Error]]) -> dict[str, float]:
    counts = Counter(verdict for table_ in found for verdict in verdicts_of(table_))
    return {verdict: count / TABLES / CELLS for verdict, count in counts.items()}


# --- the interval of one cell ----------------------------------------------------------------------------------------


def test_a_cell_without_neighbours_has_students_interval() -> None:
    found = estimate(Pair(series([0.0, 0.01, 0.02]), series([0.01, 0.02, 0.03]), ASSUMED_LOCKED), ())
    assert found.log_ratio == pytest.approx(0.01)
    assert found.half == pytest.approx(2.77645 * 0.01 * math.sqrt(2 / 3), rel=1e-4)


def test_quiet_neighbours_do_not_reduce_the_spread_of_a_noisy_cell() -> None:
    noisy = Pair(series([0.0, 0.05, 0.1]), series([0.0, 0.05, 0.1]), ASSUMED_LOCKED)
    quiet = Pair(series([0.0, 0.001, 0.002]), series([0.0, 0.001, 0.002]), ASSUMED_LOCKED)
    assert estimate(noisy, [quiet] * 5).spread == pytest.approx(0.05)


def test_one_noisy_neighbour_does_not_increase_the_spread() -> None:
    noisy = Pair(series([0.0, 0.5, 1.0]), series([0.0, 0.5, 1.0]), ASSUMED_LOCKED)
    quiet = Pair(series([0.0, 0.001, 0.002]), series([0.0, 0.001, 0.002]), ASSUMED_LOCKED)
    assert estimate(quiet, [noisy, quiet, quiet]).spread < 0.002


@pytest.mark.parametrize(("count", "df"), [(2, 1), (3, 2)])
def test_two_degrees_of_freedom_are_borrowed_from_the_median_neighbour(count: int, df: int) -> None:
    pair = Pair(series([0.0, 0.01, 0.02]), series([0.01, 0.02, 0.03]), ASSUMED_LOCKED)
    of_one = Pair(series([0.0]), series([0.0]), ASSUMED_LOCKED)
    neighbours = [Pair(series([0.0, 0.04, 0.02][:count]), series([0.0]), ASSUMED_LOCKED), of_one]
    variance = {1: 8e-4, 2: 4e-4}[df]
    found = error_of(pair, neighbours)
    borrowed = variance / (1 - 2 / (9 * df)) ** 3
    assert found.spread**2 == pytest.approx((4 * 1e-4 + 2 * borrowed) / 6)
    assert found.df == pytest.approx(6)


def test_one_process_of_a_side_has_the_spread_of_its_neighbours() -> None:
    neighbour = Pair(series([0.0, 0.01, 0.02]), series([0.01, 0.02, 0.03]), ASSUMED_LOCKED)
    found = error_of(Pair(series([0.0]), series([0.0]), ASSUMED_LOCKED), [neighbour])
    assert not found.assumed
    assert found.df == pytest.approx(2)
    assert found.spread**2 == pytest.approx(1e-4 / (1 - 2 / 36) ** 3)


def test_equal_processes_have_the_least_spread() -> None:
    same = series([0.0, 0.0, 0.0])
    assert estimate(Pair(same, same, ASSUMED_LOCKED), ()).spread == MIN_SPREAD == 0.001


# --- processes that are left out -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logs", "out"),
    [
        ([0.0, 0.001, 0.002, 0.001, 0.2], 1),
        ([0.0, 0.001, 0.002, 0.15, 0.2], 2),
        ([0.0, 0.001, 0.002, 0.08, 0.081, 0.082], 0),
        ([0.0, 0.001] * 3 + [0.08, 0.081] * 2, 4),
        ([0.0, 0.001, 0.2], 0),
        ([0.0, 0.001, 0.002, 0.2], 0),
        ([0.0, 0.0, 0.0, 0.0, 0.011], 0),
        ([0.0, 0.0, 0.0, 0.0, 0.013], 1),
        ([0.0, 0.0, 0.0, 0.0, -0.013], 1),
        ([0.0, 0.02, -0.02, 0.01, 0.09], 0),
    ],
)
def test_fewer_than_half_of_the_processes_are_left_out(logs: list[float], out: int) -> None:
    for found in (leave_out(series(logs), series([0.0]))[0], leave_out(series([0.0]), series(logs))[1]):
        assert len(found.left_out) == out
        assert found.df == len(logs) - out - 1
        kept = [log for place, log in enumerate(logs) if place not in found.left_out]
        assert found.mean_log == pytest.approx(np.mean(kept))


@pytest.mark.parametrize(("spread", "out"), [(0.001, 1), (0.01, 0)])
def test_what_is_far_depends_on_the_spread_of_both_sides(spread: float, out: int) -> None:
    now = series([-spread, spread] * 5)
    assert len(leave_out(series([0.0, 0.0, 0.0, 0.001, 0.05]), now)[0].left_out) == out


@pytest.mark.parametrize(("step", "out"), [(0.0885, 0), (0.0895, 1)])
def test_six_standard_deviations_by_the_median_deviation_are_far(step: float, out: int) -> None:
    side = series([-0.01, -0.01, -0.01, 0.0, 0.01, 0.01, step])
    assert len(leave_out(side, series([0.0]))[0].left_out) == out


@pytest.mark.parametrize(("now", "out"), [([-0.05, 0.05], 1), ([-0.05, 0.0, 0.05], 0)])
def test_what_is_far_depends_on_sides_of_three_processes_or_more(now: list[float], out: int) -> None:
    side = series([-0.002, 0.0, 0.002, 0.004, 0.025])
    assert len(leave_out(side, series(now))[0].left_out) == out


FAST, SLOW, SLOWER = -0.9, -0.8, -0.7


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        # One process of A is at the level of B: of how many is B?
        ([FAST] * 4 + [SLOW], [SLOW] * 3, (0, 0)),
        ([FAST] * 4 + [SLOW], [SLOW] * 7, (0, 0)),
        ([FAST] * 4 + [SLOW], [SLOW] * 8, (1, 0)),
        ([FAST] * 3 + [SLOW, SLOWER], [SLOW] * 12, (0, 0)),
        ([FAST] * 3 + [SLOW, SLOWER], [SLOW] * 16, (2, 0)),
        # No process of A is.
        ([FAST] * 4 + [SLOWER], [SLOW] * 3, (1, 0)),
        # Some of B are still at the level of A.
        ([FAST] * 5, [SLOW] * 10 + [FAST] * 6, (0, 0)),
        ([FAST] * 5, [SLOW] * 12 + [FAST] * 4, (0, 4)),
        # Both are at one level.
        ([FAST] * 4 + [SLOW], [FAST], (1, 0)),
        ([FAST] * 4 + [FAST + 0.014], [FAST + 0.01], (1, 0)),
        # B is faster.
        ([SLOW] * 3 + [FAST] * 2, [FAST], (0, 0)),
    ],
)
def test_two_modes_of_a_host_are_not_left_out(a: list[float], b: list[float], out: tuple[int, int]) -> None:
    found = leave_out(series(a), series(b))
    assert tuple(len(side.left_out) for side in found) == out


# --- sittings --------------------------------------------------------------------------------------------------------


def in_sittings(*levels: float, step: float = 0.001) -> Series:
    """Three processes in each sitting."""
    logs = [level + distance for level in levels for distance in (-step, 0.0, step)]
    sittings = tuple(number for number in range(len(levels)) for _ in range(3))
    return replace(series(logs), sittings=sittings)


def test_a_sitting_at_another_level_is_not_left_out() -> None:
    assert not leave_out(in_sittings(0.0, 0.0, 0.03), series([0.0]))[0].left_out


def test_half_of_the_processes_are_not_left_out() -> None:
    side = replace(series([0.0, 0.0, 0.1, 0.0, 0.0, 0.1, 0.0, 0.1]), sittings=(0, 0, 0, 1, 1, 1, 2, 2))
    assert not leave_out(side, series([0.0] * 20))[0].left_out


@pytest.mark.parametrize(("side", "share"), [(series([0.0] * 4), 2.0), (in_sittings(0.0, 0.0, 0.0), 4 / 3)])
def test_an_interval_is_never_narrower_than_sittings_of_a_quiet_host_make_it(side: Series, share: float) -> None:
    found = estimate(Pair(side, series([0.0] * 4), ASSUMED_LOCKED), ())
    assert found.half == pytest.approx(1.95996 * MIN_BETWEEN_SITTINGS * math.sqrt(share), rel=1e-4)


def test_each_sitting_counts_once() -> None:
    uneven = replace(series([0.0, 0.0, 0.0, 0.03]), sittings=(0, 0, 0, 1))
    assert uneven.mean_log == pytest.approx(0.015)
    assert uneven.df == 2


def test_the_variance_of_a_mean_over_sittings_follows_from_their_sizes() -> None:
    uneven = replace(series([0.0] * 6, error=0.1), sittings=(0, 1, 1, 2, 2, 2))
    assert uneven.weight == pytest.approx((1 + 1 / 2 + 1 / 3) / 9)
    assert uneven.variance_inside == pytest.approx(0.1**2 * uneven.weight)


@pytest.mark.parametrize(
    ("a", "b", "error", "df"),
    [
        # The processes of a sitting are 1 % apart. So the variance between processes is 1e-4, and a part of it is in
        # the differences between the sittings.
        ((0.0, 0.0, 0.0), (0.0, 0.0), math.sqrt(1e-4 * 10 / 36 + 2 * MIN_BETWEEN_SITTINGS**2 / 5 * 5 / 6), 10),
        ((-0.01, 0.0, 0.01), (0.0, 0.01), 1 / 120, 10),
        ((-0.02, 0.0, 0.02), (0.0, 0.02), 1 / 60, 100**2 / (10**2 / 10 + 90**2 / 5)),
        ((-0.04, 0.0, 0.04), (0.0, 0.04), 1 / 30, 400**2 / (10**2 / 10 + 390**2 / 5)),
        ((0.0, 0.04), (0.0,), math.sqrt(1.2e-3), 12**2 / (0.5**2 / 6 + 11.5**2 / 3)),
    ],
)
def test_the_error_is_of_processes_and_of_sittings(
    a: tuple[float, ...], b: tuple[float, ...], error: float, df: float
) -> None:
    found = error_of(Pair(in_sittings(*a, step=0.01), in_sittings(*b, step=0.01), ASSUMED_LOCKED), ())
    assert found.error == pytest.approx(error)
    assert found.df == pytest.approx(df)
    assert found.spread == pytest.approx(0.01)
    assert found.least == pytest.approx(MIN_BETWEEN_SITTINGS * math.sqrt(1 / len(a) + 1 / len(b)))


@pytest.mark.parametrize(
    ("times", "sittings"),
    [
        (("2026-01-01T10:00:00Z", "2026-01-01T10:50:00Z", "2026-01-01T11:40:00Z"), (0, 0, 0)),
        (("2026-01-01T10:00:00Z", "2026-01-01T11:01:00Z", "2026-01-02T10:00:00+00:00"), (0, 1, 2)),
        (("2026-01-02T10:00:00Z", "2026-01-01T10:00:00Z", "2026-01-02T10:30:00"), (1, 0, 1)),
        (("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-01T12:00:00.5Z"), (0, 0, 1)),
        (("2026-01-01T10:00:00+02:00", "2026-01-01T08:00:00", "2026-01-01T10:00:00Z"), (0, 0, 1)),
    ],
)
def test_runs_within_an_hour_are_one_sitting(times: tuple[str, ...], sittings: tuple[int, ...]) -> None:
    runs = [make_run(environment=make_environment(taken_at=moment)) for moment in times]
    assert sittings_of(runs) == sittings


# --- many cells ------------------------------------------------------------------------------------------------------


def decided(lows: Sequence[float]) -> list[str]:
    """The verdicts of cells that are slower by these logarithms, each with a standard error of 1 %."""
    errors = {number: Error(log, 0.01, math.inf, 0.01, assumed=False, least=0.0) for number, log in enumerate(lows)}
    return [verdict_of(each, TOLERANCE) for each in estimates_of(errors, TOLERANCE, 1).values()]


def test_cells_that_are_slow_together_need_no_wider_interval_than_one() -> None:
    limit = slow_limit(TOLERANCE)
    assert decided([limit + 0.02] * 6) == ["SLOW"] * 6
    assert decided([limit + 0.02] * 5 + [limit]) == ["AMBIGUOUS"] * 6
    assert decided([limit + 0.023] * 5 + [limit]) == ["SLOW"] * 5 + ["AMBIGUOUS"]
    assert decided([limit + 0.026] + [limit] * 5) == ["AMBIGUOUS"] * 6
    assert decided([limit + 0.027] + [limit] * 5) == ["SLOW"] + ["AMBIGUOUS"] * 5


@pytest.mark.parametrize(
    ("lost", "is_last", "tests"),
    [(0.2, True, 1), (0.2, False, 100), (-0.2, True, 3), (0.0, True, 3), (0.0, False, 3)],
)
def test_the_interval_of_one_cell_is_widened_for_its_verdict_and_the_looks(
    lost: float, is_last: bool, tests: int
) -> None:
    error = Error(lost, 0.005, math.inf, 0.005, assumed=False, least=0.0)
    assert estimates_of({0: error}, TOLERANCE, 3, is_last=is_last) == {0: error.interval(tests)}


def test_ambiguous_cells_are_widened_for_all_cells_and_looks() -> None:
    errors = {number: Error(0.03, 0.1, math.inf, 0.1, assumed=False, least=0.0) for number in range(2)}
    assert estimates_of(errors, TOLERANCE, 3) == {number: error.interval(6) for number, error in errors.items()}


LIMIT = slow_limit(TOLERANCE)


@pytest.mark.parametrize(
    ("low", "high", "assumed", "verdict"),
    [
        (-LIMIT, LIMIT, False, "SAME"),
        (-0.01, 0.01, True, "SAME"),
        (-0.01, 0.05, False, "AMBIGUOUS"),
        (-0.05, 0.01, False, "AMBIGUOUS"),
        (-0.05, 0.05, False, "AMBIGUOUS"),
        (LIMIT, 0.05, False, "AMBIGUOUS"),
        (0.04, 0.05, False, "SLOW"),
        (0.04, 0.05, True, "AMBIGUOUS"),
        (-0.05, -LIMIT, False, "AMBIGUOUS"),
        (-0.05, -0.04, False, "FAST"),
        (-0.05, -0.04, True, "AMBIGUOUS"),
    ],
)
def test_the_verdict_is_of_the_whole_interval(low: float, high: float, assumed: bool, verdict: str) -> None:
    assert verdict_of(Estimate((low + high) / 2, low, high, 0.01, assumed), TOLERANCE) == verdict


def test_the_interval_is_not_narrower_than_those_within_the_processes() -> None:
    noisy = series([0.0, 0.0, 0.0], error=0.05)
    found = estimate(Pair(noisy, noisy, ASSUMED_LOCKED), ())
    assert found.high > 2.77 * 0.05 * math.sqrt(2 / 3)


@pytest.mark.parametrize(
    ("memory", "in_memory", "spread"),
    [("pinned", False, 0.005), ("pageable", False, 0.12), ("pinned", True, 0.2), ("pageable", True, 0.2)],
)
def test_one_process_against_one_has_the_assumed_spread(memory: str, in_memory: bool, spread: float) -> None:
    found = estimate(Pair(series([0.0]), series([0.0]), assumed_spread(memory, in_memory=in_memory)), ())
    assert found.assumed
    assert found.high == pytest.approx(1.95996 * spread * math.sqrt(2), rel=1e-4)


def test_the_interval_of_an_assumed_spread_contains_those_within_the_processes() -> None:
    noisy = series([0.0], error=0.05)
    found = error_of(Pair(noisy, noisy, ASSUMED_LOCKED), ())
    assert found.error**2 == pytest.approx(2 * ASSUMED_LOCKED**2 + 2 * 0.05**2)
    assert (found.df, found.least) == (math.inf, 0.0)


def test_the_assumed_spreads_are_not_below_the_committed_ones() -> None:
    compared = [committed(f"compare_{which}_three") for which in ("one", "two")]
    pageable = [
        float(re.findall(r"([0-9.]+) % apart", cell["why"])[0]) / 100
        for document in compared
        for cell in document["cells"]
        if cell["cell"]["memory"] == "pageable"
    ]
    fresh = [row["gbps"] for row in committed("repeats")["rows"] if row["where"] == "fresh processes"]
    pinned = [float(np.std(np.log(gbps), ddof=1)) for gbps in fresh]
    assert (len(pageable), len(pinned)) == (12, 6)
    assert max(pageable) <= ASSUMED <= ASSUMED_IN_MEMORY
    assert max(pinned) <= ASSUMED_LOCKED


# --- false alarms and power ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [(3, 1), (3, 3)])
@pytest.mark.parametrize(("spread", "together"), [(EVEN, 0.0), (WIDE, 0.0), (MIXED, 0.0), (EVEN / 3, 0.02)])
def test_equal_sides_are_slow_in_less_than_one_table_in_a_hundred(
    processes: tuple[int, int], spread: NDArray[np.float64], together: float
) -> None:
    found = tables(processes, spread, together=together)
    slow = sum("SLOW" in verdicts_of(table_) for table_ in found)
    assert slow <= TABLES / 100


@pytest.mark.parametrize("processes", [(3, 1), (3, 3)])
def test_a_loss_of_exactly_the_tolerance_is_ambiguous(processes: tuple[int, int]) -> None:
    found = shares(tables(processes, EVEN, lost=TOLERANCE))
    assert found["AMBIGUOUS"] > 0.99


def test_three_processes_against_three_find_a_loss_of_five_per_cent() -> None:
    assert shares(tables((3, 3), EVEN, lost=0.05))["SLOW"] > 0.97


def test_three_processes_against_three_find_that_equal_sides_are_the_same() -> None:
    assert shares(tables((3, 3), EVEN))["SAME"] > 0.97


# --- Student's distribution ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "df", "t"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 10, 2.22814),
        (0.975, 30, 2.04227),
        (0.95, 3, 2.35336),
        (0.995, 5, 4.03214),
        (0.9995, 2, 31.5991),
        (0.99999, 1, 31830.9885),
        (0.75, 7, 0.711142),
    ],
)
def test_quantiles_equal_the_tabulated_ones(p: float, df: float, t: float) -> None:
    assert quantile(p, df) == pytest.approx(t, rel=1e-5)


@given(st.floats(0.51, 0.9999), st.floats(1, 500))
def test_the_tail_of_a_quantile_has_its_probability(p: float, df: float) -> None:
    assert tail(quantile(p, df), df) == pytest.approx(1 - p, rel=1e-6)


@pytest.mark.parametrize("df", [1, 3.5, 100])
def test_half_of_the_distribution_is_above_zero(df: float) -> None:
    assert tail(0.0, df) == pytest.approx(0.5, rel=1e-11)
    assert quantile(0.5, df) == pytest.approx(0, abs=1e-9)
    assert tail(1e200, df) < 1e-199


@pytest.mark.parametrize("df", [1e5, 1e7, math.inf])
def test_very_many_degrees_of_freedom_are_the_normal_distribution(df: float) -> None:
    assert quantile(0.975, df) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-4)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (math.nan, 3), (0.9, 0), (0.9, -1), (0.9, math.nan)])
def test_invalid_arguments_are_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile(p, df)
