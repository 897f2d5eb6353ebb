"""The document of a pytest session: the measurements of the fixture `xfer`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from pyxfer._document import machines
from pyxfer._document.checks import Problems, of_each, within
from pyxfer._document.printing import HasTable
from pyxfer._document.runs import Measurement, Parameters, Run

Outcome = Literal["passed", "failed", "skipped"]
Judgement = Literal["fine", "too slow", "unsure", "not asked"]


class Expected(msgspec.Struct, frozen=True):
    """The limits of a test; null means unlimited."""

    min_of_ceiling: float | None = None
    max_s: float | None = None


class Judged(msgspec.Struct, frozen=True):
    """Whether a test kept its limits, judged by the intervals, and the reasons if it did not or if that is unsure."""

    word: Judgement = "not asked"
    reasons: tuple[str, ...] = ()


class TestMachine(msgspec.Struct, frozen=True):
    """A device that tests have used, its link, and the environment of the first of these tests."""

    runtime: machines.Runtime
    runtime_reason: str
    device: machines.Device
    link: machines.Link
    environment: machines.Environment


class Tested(msgspec.Struct, frozen=True):
    """The measurement of one test. `ceiling`: that of raw copies of the same size in the same rounds.

    `place` is an index into the session's places. The route of the measurement is the node id of the test.
    """

    test: str
    outcome: Outcome
    place: int
    measurement: Measurement
    ceiling: machines.Fact[Measurement]
    expected: Expected
    judged: Judged
    precision: float
    budget_s: float


class XferSession(HasTable, machines.SavedDocument, frozen=True):
    """The document of a session: the tests that have measured, in the order in which they ended, and their places."""

    DERIVED_BY: ClassVar[str] = "pyxfer._pytest.derived:derive_pytest"

    kind: Literal["pytest"]
    ended: Literal["complete", "interrupted"]
    began_at: machines.Moment
    pytest: str
    places: tuple[TestMachine, ...]
    tests: tuple[Tested, ...]
    schema_version: int = 1

    def _summary(self) -> str:
        failed = sum(test.outcome == "failed" for test in self.tests)
        return f"of pytest, {self.began_at}: {self.ended}, {failed} of {len(self.tests)} tests failed"


class Measured(msgspec.Struct, frozen=True):
    """The result of one test and its place, as a worker of xdist reports them."""

    place: TestMachine
    result: Tested


_NOT_TAKEN: tuple[Any, ...] = (machines.unknown("a test runs where pytest runs it"),) * 4


def runs_of(session: XferSession) -> tuple[Run, ...]:
    """One run per place, for comparisons; its routes are the node ids of the tests."""
    return tuple(_run(session, number) for number in range(len(session.places)))


def _run(session: XferSession, number: int) -> Run:
    place = session.places[number]
    results = [result for result in session.tests if result.place == number]
    rows = [result.measurement for result in results]
    return Run(
        kind="measure",
        ended=session.ended,
        runtime=place.runtime,
        runtime_reason=place.runtime_reason,
        parameters=Parameters(
            device=str(place.device.index),
            directions=tuple(dict.fromkeys(row.direction for row in rows)),
            memories=(),
            modes=tuple(dict.fromkeys(row.mode for row in rows)),
            sizes_bytes=tuple(sorted({row.nbytes for row in rows})),
            fresh=False,
            precision=max((result.precision for result in results), default=0.0),
            budget_s=max((result.budget_s for result in results), default=0.0),
            seed=0,
            min_rounds=1,
        ),
        device=place.device,
        link=place.link,
        placement=machines.Placement(*_NOT_TAKEN),
        environment=place.environment,
        measurements=tuple(rows),
    )


def session_problems(session: XferSession) -> Problems:
    places = session.places
    yield from of_each("places", places, lambda place: within("link", machines.link_problems(place.link)))
    for i, result in enumerate(session.tests):
        if not 0 <= result.place < len(places):
            yield f"tests[{i}].place", "is none of the places"
