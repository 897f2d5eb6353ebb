from __future__ import annotations

from measure.fakes import Clock, Timed

from pyxfer._document.runs import Trial
from pyxfer._measure.sampler import Series


def series(*seconds: float, invalid: str | None = None) -> Series:
    made = Series(Timed("a", Clock()))
    for index, elapsed_s in enumerate(seconds):
        made.add({"h2d": Trial(index, elapsed_s, invalid=invalid)})
    return made


def test_trials_are_kept_by_side_in_order() -> None:
    made = Series(Timed("a", Clock()))
    made.add({"h2d": Trial(0, 1.0), "d2h": Trial(0, 2.0)})
    made.add({"h2d": Trial(1, 3.0), "d2h": Trial(1, 4.0)})
    assert made.valid_times("h2d") == [1.0, 3.0]
    assert made.valid_times("d2h") == [2.0, 4.0]


def test_invalid_trials_are_kept_and_do_not_count() -> None:
    made = series(1.0, 2.0, invalid="the gate timed out")
    assert len(made.trials["h2d"]) == 2
    assert made.valid_times("h2d") == []
    assert made.summaries() == []


def test_a_series_is_precise_if_all_sides_are() -> None:
    made = Series(Timed("a", Clock()))
    for index in range(10):
        made.add({"h2d": Trial(index, 1.0), "d2h": Trial(index, 1.0 + index % 2)})
    assert not made.is_precise(0.01)
    assert series(*[1.0] * 10).is_precise(0.01)


def test_fewer_trials_than_an_interval_needs_are_not_precise() -> None:
    assert not series(*[1.0] * 5).is_precise(0.01)
    assert not series().is_precise(0.01)


def test_rounds_needed_grow_with_the_precision() -> None:
    made = series(*[1.0, 1.1] * 10)
    assert made.rounds_needed(0.01) > made.rounds_needed(0.02) > 0
    assert series(*[1.0] * 10).rounds_needed(0.01) <= 0


def test_the_mean_cost_is_that_of_all_runs() -> None:
    made = series(1.0, 1.0)
    assert made.mean_cost_s == 0
    made.spent_s, made.runs = 3.0, 2
    assert made.mean_cost_s == 1.5
