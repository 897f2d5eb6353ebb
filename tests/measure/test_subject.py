from __future__ import annotations

from measure.fakes import Clock, Timed

from pyxfer._document.runs import Trial
from pyxfer._measure.sampler import Series


def series(*seconds: float, invalid: str | None = None) -> Series:
    made = Series(Timed("a", Clock()))
    for index, each in enumerate(seconds):
        made.add({"h2d": Trial(index, each, invalid=invalid)})
    return made


def test_trials_are_kept_by_side_in_the_order_they_ran() -> None:
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


def test_it_is_precise_only_when_every_side_is() -> None:
    made = Series(Timed("a", Clock()))
    for index in range(10):
        made.add({"h2d": Trial(index, 1.0), "d2h": Trial(index, 1.0 + index % 2)})
    assert not made.within(0.01)
    assert series(*[1.0] * 10).within(0.01)


def test_few_trials_are_never_precise() -> None:
    assert not series(*[1.0] * 5).within(0.01)
    assert not series().within(0.01)


def test_the_widest_side_says_how_many_rounds_are_wanting() -> None:
    made = series(*[1.0, 1.1] * 10)
    assert made.rounds_wanting(0.01) > made.rounds_wanting(0.02) > 0
    assert series(*[1.0] * 10).rounds_wanting(0.01) <= 0


def test_a_trial_costs_what_one_took_on_average() -> None:
    made = series(1.0, 1.0)
    assert made.mean_cost_s == 0
    made.spent_s, made.runs = 3.0, 2
    assert made.mean_cost_s == 1.5
