"""The tests of a session: their fixture, the verdict on their limits, the document and the summary."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
import pytest

from pyxfer._document import codec
from pyxfer._document.sessions import Expected, Measured, Tested, TestMachine, XferSession
from pyxfer._pytest.derived import judged
from pyxfer._pytest.fixture import How, Timing, Xfer
from pyxfer._pytest.settings import MARKER, read_marker
from pyxfer._report.prose import folded, terminal_width
from pyxfer._report.session import place_lines, title
from pyxfer._report.text import clean, sentence
from pyxfer.errors import CudaUnavailableError, UsageError

if TYPE_CHECKING:
    from pyxfer._pytest.against import Compared
    from pyxfer._pytest.settings import MarkerArguments, Settings


class Gathered:
    """Collects the results of a session; of a test that ran several times the last result counts."""

    def __init__(self) -> None:
        self._began_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._places: dict[tuple[str, ...], TestMachine] = {}
        self._tests: dict[str, Tested] = {}

    def add(self, text: str) -> None:
        measured = msgspec.json.decode(text, type=Measured)
        result = msgspec.structs.replace(measured.result, place=self._number(measured.place))
        self._tests.pop(result.test, None)
        self._tests[result.test] = result

    def session(self, *, interrupted: bool) -> XferSession:
        return XferSession(
            kind="pytest",
            ended="interrupted" if interrupted else "complete",
            began_at=self._began_at,
            pytest=pytest.__version__,
            places=tuple(self._places.values()),
            tests=tuple(self._tests.values()),
        )

    def _number(self, place: TestMachine) -> int:
        self._places.setdefault(_key(place), place)
        return list(self._places).index(_key(place))


def _key(place: TestMachine) -> tuple[str, ...]:
    device = place.device
    return place.environment.host, place.runtime, device.uuid.value or f"{device.index} {device.name}"


_LONGEST_NOTE = 1000


def write_summary(
    reporter: pytest.TerminalReporter, session: XferSession, compared: Compared | None, against: str
) -> None:
    width = terminal_width()
    words = compared.words if compared else {}
    for number, place in enumerate(session.places):
        reporter.section(title(place), sep="-")
        for line, colour in place_lines(session, number, words, width):
            reporter.write_line(line, **({colour: True} if colour else {}))
    if compared is not None:
        for text in (f"Compared with {against}.", *compared.notes):
            reporter.write_line(folded(sentence(clean(text, longest=_LONGEST_NOTE)), width))


T = TypeVar("T")


class XferWarning(UserWarning):
    """A test measured nothing, or it is not certain whether it is within the limits of its marker."""


class Bench:
    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        marker = read_marker(item.iter_markers(MARKER))
        self._expected = Expected(marker.min_of_ceiling, marker.max_s)
        self._timing = None if settings.disabled else _timing(item, settings, marker)
        self.fixture = Xfer(self._timing)

    def judge(self) -> None:
        """After a test that passed so far: fail it if it is too slow, or warn."""
        if not self.fixture.enabled:
            return
        if self.fixture.outcome is None:
            self._item.warn(XferWarning("the test uses the fixture xfer, but measured nothing"))
            return
        found = judged(self._expected, self.fixture.outcome.measurement)
        text = "; ".join(found.reasons)
        if found.word == "too slow":
            pytest.fail(f"xfer: {text}", pytrace=False)
        if found.word == "unsure":
            self._item.warn(XferWarning(text))

    def measured(self, outcome: Literal["passed", "failed", "skipped"]) -> str | None:
        """The measurement as JSON, which can be sent between processes; None if nothing was measured."""
        timing, found = self._timing, self.fixture.outcome
        if timing is None or timing.place is None or found is None:
            return None
        result = Tested(
            test=self._item.nodeid,
            outcome=outcome,
            place=0,
            measurement=found.measurement,
            ceiling=found.ceiling,
            expected=self._expected,
            judged=judged(self._expected, found.measurement),
            precision=timing.how.precision,
            budget_s=timing.how.budget_s,
        )
        return codec.to_bare_json(Measured(timing.place, result)).decode()


def _timing(item: pytest.Item, settings: Settings, marker: MarkerArguments) -> Timing:
    """The timing of a test. Options take precedence over the marker, because they are chosen for the machine."""
    default = How()
    device: int | str | None = marker.device if settings.device is None else settings.device
    how = How(
        device=default.device if device is None else device,
        budget_s=_first(settings.budget_s, marker.budget, default.budget_s),
        precision=_first(marker.precision, default.precision),
    )
    try:
        if settings.require_gpu and how.device == "host":
            raise UsageError("The marker has device='host', but --xfer-require-gpu was given: leave one of them out.")
        return Timing(item.nodeid, how)
    except CudaUnavailableError as error:
        reason = f"no usable GPU: {error.name} ({error.code}). {error.hint}"
        if settings.require_gpu:
            pytest.fail(f"--xfer-require-gpu: {reason}", pytrace=False)
        pytest.skip(f"xfer: {reason}")


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
