"""A route as a subject of the sampler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from frameworks import own_routes

import pyxfer
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.messages import Marker
from pyxfer._frameworks.subjects import FEWEST_CALLS, MAX_CALLS, RouteSubject, describe_error

if TYPE_CHECKING:
    from pyxfer.native import Engine


@pytest.fixture
def marker() -> Iterator[Marker]:
    marker = Marker()
    yield marker
    marker.close()


@pytest.fixture
def make(context: RouteContext, marker: Marker, engine: Engine) -> Iterator[Any]:
    made: list[RouteSubject] = []

    def subject(kind: type[pyxfer.Transfer], **options: Any) -> tuple[RouteSubject, Any]:
        transfer = kind(context)
        made.append(RouteSubject(own_routes.make_route("mine.x", kind), transfer, context, engine, marker, **options))
        return made[-1], transfer

    yield subject
    for each in made:
        each.close()


def test_a_short_call_is_preceded_by_an_untimed_one(make: Any) -> None:
    subject, _ = make(own_routes.Counting)
    before = own_routes.Counting.calls
    trial = subject.trial(3)["ingest"]
    assert own_routes.Counting.calls - before == 2
    assert (trial.round, trial.copies) == (3, 1)
    assert trial.elapsed_s >= 0.002


def test_a_long_call_is_not_preceded_by_an_untimed_one(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    subject.trial(0)
    again = subject.trial(1)["ingest"]
    assert again.elapsed_s >= 0.02


def test_several_calls_in_a_trial_give_their_mean(make: Any) -> None:
    subject, _ = make(own_routes.Counting, repeats=True)
    subject.warm()
    before = own_routes.Counting.calls
    begun = time.perf_counter()
    trial = subject.trial(0)["ingest"]
    whole_s = time.perf_counter() - begun
    assert FEWEST_CALLS <= trial.copies <= MAX_CALLS
    assert own_routes.Counting.calls - before == trial.copies + 1
    assert 0.002 <= trial.elapsed_s <= whole_s / trial.copies


def test_a_trial_faster_than_the_link_is_invalid(make: Any) -> None:
    subject, _ = make(own_routes.Copied, least_s=10.0)
    assert subject.trial(0)["ingest"].invalid == (
        "elided: it took less time than the link needs for its bytes, so they did not all cross it, or the shown link "
        "is wrong"
    )
    subject, _ = make(own_routes.Slow, least_s=0.02)
    assert subject.trial(0)["ingest"].invalid is None


def test_the_first_call_is_timed_separately(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    assert subject.warm() >= 0.02


def test_nothing_is_marked_or_kept_between_trials(make: Any, marker: Marker) -> None:
    subject, transfer = make(own_routes.Copied)
    subject.warm()
    subject.verify(1)
    subject.trial(0)
    assert (marker.read(), transfer.result) == (None, None)


@pytest.mark.parametrize(("kind", "found"), [(own_routes.Aliased, (True, True)), (own_routes.Cached, (False, False))])
def test_verification_detects_an_alias_and_a_cache(make: Any, kind: Any, found: tuple[bool, bool]) -> None:
    subject, _ = make(kind)
    verified, aliased = subject.verify(1)
    assert (verified.value, aliased) == found
    assert (subject.anchor is None) == aliased


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n\n  three  "), "ValueError: three"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_is_described_in_one_line(error: Exception, words: str) -> None:
    assert describe_error(error) == words
