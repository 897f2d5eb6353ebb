"""One route as a subject of the sampler: what is inside a trial's time, and what around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from frameworks import own_routes

import pyxfer
from pyxfer._frameworks.messages import Marker
from pyxfer._frameworks.place import HostArena, Place
from pyxfer._frameworks.subjects import FEWEST_CALLS, MOST_CALLS, RouteSubject, in_words
from pyxfer.errors import MeasurementError

if TYPE_CHECKING:
    from pyxfer.native import Engine

NBYTES = 64 << 10


@pytest.fixture
def place(engine: Engine) -> Iterator[Place]:
    copier, arena = engine.Copier(0, 1, 30.0), HostArena(engine, 0, NBYTES, 0)
    yield Place(NBYTES, 0, arena, copier, engine)
    arena.close()
    copier.close()


@pytest.fixture
def marker() -> Iterator[Marker]:
    marker = Marker()
    yield marker
    marker.close()


@pytest.fixture
def make(place: Place, marker: Marker, engine: Engine) -> Iterator[Any]:
    made: list[RouteSubject] = []

    def subject(kind: type[pyxfer.Transfer], **options: Any) -> tuple[RouteSubject, Any]:
        transfer = kind(place)
        made.append(RouteSubject(own_routes.make_route("mine.x", kind), transfer, place, engine, marker, **options))
        return made[-1], transfer

    yield subject
    for each in made:
        each.close()


def test_a_short_call_is_preceded_by_one_that_nobody_looks_at(make: Any) -> None:
    subject, _ = make(own_routes.Counting)
    before = own_routes.Counting.calls
    trial = subject.trial(3)["ingest"]
    assert own_routes.Counting.calls - before == 2
    assert (trial.round, trial.copies) == (3, 1)
    assert 0.002 <= trial.elapsed_s < 0.2


def test_a_long_call_is_not(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    subject.trial(0)
    again = subject.trial(1)["ingest"]
    assert again.elapsed_s >= 0.02


def test_a_row_of_calls_gives_their_mean(make: Any) -> None:
    subject, _ = make(own_routes.Counting, repeats=True)
    subject.warm()
    before = own_routes.Counting.calls
    trial = subject.trial(0)["ingest"]
    assert FEWEST_CALLS <= trial.copies <= MOST_CALLS
    assert own_routes.Counting.calls - before == trial.copies + 1
    assert 0.002 <= trial.elapsed_s < 0.05


def test_a_trial_that_no_link_could_have_done_is_not_used(make: Any) -> None:
    subject, _ = make(own_routes.Copied, least_s=10.0)
    assert subject.trial(0)["ingest"].invalid == (
        "elided: it took less time than the link needs for its bytes, so they did not all cross it, or the shown link "
        "is wrong"
    )
    subject, _ = make(own_routes.Slow, least_s=0.02)
    assert subject.trial(0)["ingest"].invalid is None


def test_the_very_first_call_is_timed_apart(make: Any) -> None:
    subject, _ = make(own_routes.Slow)
    assert 0.02 <= subject.warm() < 1.0


def test_what_a_framework_raises_becomes_one_sentence(make: Any) -> None:
    subject, transfer = make(own_routes.Raising)
    transfer.runs = 100
    with pytest.raises(MeasurementError, match=r"^RuntimeError: CUDA out of memory\. Tried to allocate 2\.00 GiB\.$"):
        subject.trial(0)
    assert transfer.result is None


def test_the_result_is_let_go_of_after_every_trial(make: Any) -> None:
    subject, transfer = make(own_routes.Copied)
    subject.trial(0)
    assert transfer.result is None


def test_page_faults_are_counted_for_one_transfer(make: Any) -> None:
    subject, _ = make(own_routes.Copied)
    faults = subject.trial(0)["ingest"].faults
    assert faults is not None
    assert faults >= 0


def test_an_alias_is_compared_with_nothing(make: Any) -> None:
    subject, _ = make(own_routes.Aliased)
    verified, aliased = subject.verify(1)
    assert (verified.value, aliased, subject.anchor) == (True, True, None)


def test_a_cache_shows_in_the_second_pass(make: Any) -> None:
    subject, _ = make(own_routes.Cached)
    verified, aliased = subject.verify(1)
    assert (verified.value, aliased) == (False, False)


def test_nothing_is_marked_between_trials(make: Any, marker: Marker) -> None:
    subject, _ = make(own_routes.Copied)
    subject.warm()
    subject.verify(1)
    subject.trial(0)
    assert marker.read() is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n\n  three  "), "ValueError: three"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_in_words(error: Exception, words: str) -> None:
    assert in_words(error) == words
