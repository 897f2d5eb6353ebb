"""Staged copies as a subject of the sampler."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ceiling.rings import CHOSEN

from pyxfer._ceiling import subjects
from pyxfer._ceiling.arena import Arena
from pyxfer._ceiling.resources import StagedCopier
from pyxfer._ceiling.subjects import StagedCopies
from pyxfer._ceiling.ways import Way
from pyxfer._document.runs import Direction, Fact
from pyxfer._measure.bracket import Bracket
from pyxfer.native import Engine

KIB, MIB = 1024, 1024**2
FOREVER_S = 1e6
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")


@dataclass
class Recorder:
    """Forwards all copies, and records their places and the host's bytes before them."""

    staged_copier: StagedCopier
    place: Callable[[int], tuple[int, int]]
    places: list[int] = field(default_factory=list)
    found: list[bytes] = field(default_factory=list)

    @property
    def made(self) -> object:
        return self.staged_copier.made

    @property
    def moved(self) -> int:
        return self.staged_copier.moved

    def move(self, direction: Direction, host: int, device: int, nbytes: int) -> Bracket:
        self.places.append(host)
        self.found.append(ctypes.string_at(host, nbytes))
        return self.staged_copier.move(direction, host, device, nbytes)

    def wakes(self, nbytes: int) -> bool:
        return self.staged_copier.wakes(nbytes)

    def time(self, lane: Any, slot: int) -> Any:
        host, _ = self.place(slot)
        self.places.append(host)
        self.found.append(ctypes.string_at(host, lane.nbytes))
        return self.staged_copier.time(lane, slot)


class Idle:
    """Reports copies that it does not make."""

    def move(self, *_: object) -> None:
        pass


@contextmanager
def bench(
    engine: Engine, way: Way, nbytes: int, record: type[Recorder] = Recorder
) -> Iterator[tuple[StagedCopies, Recorder]]:
    with (
        closing(Arena(engine, 0, ["pageable"], nbytes, 0)) as arena,
        closing(StagedCopier(engine, 0, CHOSEN, 30.0)) as ring,
    ):
        recorder = record(ring, lambda slot: arena.place(way.direction, way.memory, nbytes, slot))
        yield StagedCopies(engine, way, nbytes, arena, cast("Any", recorder), 0), recorder


def way(direction: Direction, *, fresh: bool = False) -> Way:
    return Way(direction, "pageable", "staged", "fresh" if fresh else "warm")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("nbytes", [1, 4 * KIB, 64 * KIB + 3, MIB - 1])
def test_every_byte_arrives(engine: Engine, direction: Direction, nbytes: int) -> None:
    with bench(engine, way(direction), nbytes) as (subject, _):
        assert subject.verify(11) == Fact(True)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_missing_copy_fails_verification(engine: Engine, direction: Direction) -> None:
    with closing(Arena(engine, 0, ["pageable"], 4 * KIB, 0)) as arena:
        subject = StagedCopies(engine, way(direction), 4 * KIB, arena, cast("Any", Idle()), 0)
        assert subject.verify(11) == Fact(False)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_trial_is_one_copy_with_all_times(engine: Engine, direction: Direction) -> None:
    with bench(engine, way(direction), 64 * KIB) as (subject, recorder):
        ((side, trial),) = subject.trial(4).items()
        assert len(recorder.places) == 1
    assert (side, trial.round, trial.copies) == (direction, 4, 1)
    assert trial.dispatch_s is not None
    assert trial.wall_s is not None
    assert 0 < trial.dispatch_s <= trial.wall_s


@pytest.mark.parametrize(("below_s", "copies"), [(math.inf, [2, 2, 2]), (1e-9, [2, 1, 1])], ids=["short", "long"])
def test_sleeping_threads_are_woken_before_a_short_trial(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, below_s: float, copies: list[int]
) -> None:
    monkeypatch.setattr(subjects, "WAKE_BELOW_S", below_s)
    with bench(engine, way("h2d"), MIB) as (subject, recorder):
        found = []
        for index in range(3):
            recorder.places.clear()
            assert len(subject.trial(index)) == 1
            found.append(len(recorder.places))
    assert found == copies


def test_consecutive_trials_read_different_places(engine: Engine) -> None:
    with bench(engine, way("h2d"), MIB) as (subject, recorder):
        for index in range(4):
            subject.trial(index)
        assert len(set(recorder.places)) == 2
        assert all(one != other for one, other in zip(recorder.places, recorder.places[1:], strict=False))


def test_only_the_destination_of_a_fresh_copy_is_untouched(engine: Engine) -> None:
    nbytes = 64 * KIB
    for fresh in (True, False):
        with bench(engine, way("d2h", fresh=fresh), nbytes) as (subject, recorder):
            assert subject.verify(11) == Fact(True)
            recorder.found.clear()
            for index in range(3 * subject._lane.slots):
                subject.trial(index)
            again = recorder.found[subject._lane.slots :]  # places that something has been copied to
            assert all(found == bytes(nbytes) for found in again) is fresh


def test_only_the_first_copy_includes_the_creation_of_the_ring(engine: Engine) -> None:
    class SlowlyMade(Recorder):
        made = SimpleNamespace(made_s=FOREVER_S)

    with bench(engine, way("h2d"), 4 * KIB, SlowlyMade) as (subject, _):
        assert subject.calibrate() >= FOREVER_S
        assert subject.calibrate() < FOREVER_S
