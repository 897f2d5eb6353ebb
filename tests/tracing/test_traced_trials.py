"""The number of traced trials of a row, on the host runtime."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyxfer._document.runs import Fact, Tracing
from pyxfer._trace import traced_trials
from pyxfer._trace.collector import TrialRecorder
from pyxfer._trace.traced_trials import Candidate
from pyxfer.errors import CancelledError, MeasurementError
from pyxfer.native import Engine


class Row:
    """Counts its trials. From trial `near_after` on, one is near the median."""

    def __init__(self, near_after: int | None = None, *, fails_at: int | None = None) -> None:
        self.made, self.near_after, self.fails_at = 0, near_after, fails_at
        self.given_up: list[str] = []
        self.candidate = Candidate(self.trial, self.give_up, self.is_near if near_after is not None else None)

    def trial(self, _recorder: TrialRecorder, _fresh: bool) -> None:
        self.made += 1
        if self.made == self.fails_at:
            raise MeasurementError("made to fail")

    def give_up(self, why: str, _failed: bool) -> None:
        self.given_up.append(why)

    def is_near(self) -> bool:
        assert self.near_after is not None
        return self.made >= self.near_after


def traced(engine: Engine, *rows: Row, seconds: float = 30.0, cancelled: Callable[[], bool] = lambda: False) -> None:
    started: list[Fact[Tracing]] = []
    traced_trials.trace_candidates(
        engine,
        0,
        [row.candidate for row in rows],
        seconds=seconds,
        seed=1,
        cancelled=cancelled,
        on_start=started.append,
    )
    assert [fact.reason for fact in started] == [None]


@pytest.mark.parametrize("least", [1, 2])
def test_without_time_a_row_has_the_least_trials(engine: Engine, least: int) -> None:
    row = Row()
    row.candidate.least_trials = least
    traced(engine, row, seconds=-1.0)
    assert row.made == least


def test_an_explained_row_is_traced_until_a_trial_is_near_the_median(engine: Engine) -> None:
    plain, explained = Row(), Row(near_after=31)
    traced(engine, plain, explained)
    assert (plain.made, explained.made) == (traced_trials.TRIALS, 31)


def test_a_row_with_a_near_trial_is_not_traced_further(engine: Engine) -> None:
    explained = Row(near_after=1)
    traced(engine, explained)
    assert explained.made == traced_trials.TRIALS * traced_trials.EXPLAINED_TRIALS


def test_the_search_has_a_largest_number_of_trials(engine: Engine) -> None:
    explained = Row(near_after=10**9)
    traced(engine, explained)
    assert explained.made == traced_trials.MOST_EXPLAINED_TRIALS
    assert explained.given_up == []


def test_the_search_ends_when_a_trial_fails(engine: Engine) -> None:
    explained = Row(near_after=10**9, fails_at=20)
    traced(engine, explained)
    assert explained.made == 20
    assert explained.given_up == ["its traced trial failed: made to fail"]


def test_the_search_ends_when_the_run_is_cancelled(engine: Engine) -> None:
    explained = Row(near_after=10**9)
    with pytest.raises(CancelledError):
        traced(engine, explained, cancelled=lambda: explained.made >= 20)
    assert explained.made == 20
