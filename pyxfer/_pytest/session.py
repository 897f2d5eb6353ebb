"""What belongs to one test: its fixture, whether it has reached what it had to, and what is told of it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
import pytest

from pyxfer._document import codec
from pyxfer._document.sessions import Expected, Judged, Measured, Place, Tested, XferSession
from pyxfer._pytest.fixture import How, Timing, Xfer
from pyxfer._pytest.settings import MARKER, read_wish
from pyxfer._report.prose import folded, terminal_width
from pyxfer._report.session import place_lines, title
from pyxfer._report.text import clean, sentence
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.units import format_percent, format_seconds

if TYPE_CHECKING:
    import pytest

    from pyxfer._document.sessions import Judgement, XferSession
    from pyxfer._pytest.against import Compared
    from pyxfer._pytest.fixture import Outcome
    from pyxfer._pytest.settings import Settings, Wish


class Gathered:
    """Grows test by test; a test that is run again counts as it was the last time."""

    def __init__(self) -> None:
        self._began_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._places: list[Place] = []
        self._tests: dict[str, Tested] = {}

    def add(self, told: str) -> None:
        """What a report has brought along."""
        measured = msgspec.json.decode(told, type=Measured)
        result = msgspec.structs.replace(measured.result, place=self._number(measured.place))
        self._tests.pop(result.test, None)
        self._tests[result.test] = result

    def session(self, *, interrupted: bool) -> XferSession:
        """The document so far."""
        return XferSession(
            kind="pytest",
            ended="interrupted" if interrupted else "complete",
            began_at=self._began_at,
            pytest=pytest.__version__,
            places=tuple(self._places),
            tests=tuple(self._tests.values()),
        )

    def _number(self, place: Place) -> int:
        for number, known in enumerate(self._places):
            if _key(known) == _key(place):
                return number
        self._places.append(place)
        return len(self._places) - 1


def _key(place: Place) -> tuple[str, ...]:
    device = place.device
    return place.environment.host, place.runtime, device.uuid.value or f"{device.index} {device.name}"


_LONGEST_NOTE = 1000


def write_summary(
    reporter: pytest.TerminalReporter, session: XferSession, compared: Compared | None, against: str
) -> None:
    """All places, one after the other, and what they were compared with."""
    width = terminal_width()
    words = compared.words if compared else {}
    for number, place in enumerate(session.places):
        reporter.section(title(place), sep="-")
        for line, colour in place_lines(session, number, words, width):
            reporter.write_line(line, **({colour: True} if colour else {}))
    if compared is not None:
        for text in (f"Compared with {against}.", *compared.notes):
            reporter.write_line(folded(sentence(clean(text, longest=_LONGEST_NOTE)), width))


_TOO_FEW = "by too few rounds for an interval (six or more have one)"
_MORE = ", and more time (--xfer-budget) tells"


def judged(expected: Expected, outcome: Outcome) -> Judged:
    """Too slow only where a whole interval lies beyond what is asked."""
    answers = [
        answer for answer in (_share(expected.min_of_ceiling, outcome), _time(expected.max_s, outcome)) if answer
    ]
    if not answers:
        return Judged()
    words: tuple[Judgement, ...] = ("too slow", "unsure", "fine")
    worst = next(word for word in words if word in {answer for answer, _ in answers})
    return Judged(worst, tuple(reason for answer, reason in answers if answer == worst and reason))


def _share(least: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if least is None:
        return None
    share, asked = outcome.share, f"{format_percent(least)} are asked"
    if share is None:
        # There is a time and yet no bandwidth: the function did not move what it should have moved.
        word: Judgement = "too slow" if outcome.summary is not None and outcome.gbps is None else "unsure"
        return word, f"no share of the ceiling, of which {asked}: {outcome.measurement.ceiling_share.reason}"
    seen = f"{format_percent(share.value)} of the ceiling"
    if share.low is None or share.high is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {asked}"
    if share.high < least:
        return "too slow", f"{seen}, at most {format_percent(share.high)}; {asked}"
    if share.low < least:
        return "unsure", f"{format_percent(share.low)} to {format_percent(share.high)} of the ceiling; {asked}{_MORE}"
    return "fine", ""


def _time(most_s: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if most_s is None:
        return None
    summary, asked = outcome.summary, f"at most {format_seconds(most_s)} are asked"
    if summary is None:
        return "unsure", f"no time, and {asked}: {outcome.reason}"
    seen = f"it took {format_seconds(summary.median_s)}"
    if summary.low_s is None or summary.high_s is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {asked}"
    if summary.low_s > most_s:
        return "too slow", f"{seen}, at least {format_seconds(summary.low_s)}; {asked}"
    if summary.high_s > most_s:
        between = f"{format_seconds(summary.low_s)} to {format_seconds(summary.high_s)}"
        return "unsure", f"it took {between}; {asked}{_MORE}"
    return "fine", ""


T = TypeVar("T")


class XferWarning(UserWarning):
    """A test of which it is not sure whether it reaches what its marker asks, or that has measured nothing."""


class Bench:
    """The fixture of one test, and what becomes of it."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        self._settings = settings
        self._wish: Wish = read_wish(item.iter_markers(MARKER))
        self._timing = None if settings.disabled else _timing(item, settings, self._wish)
        self.fixture = Xfer(self._timing)

    def judge(self) -> None:
        """At the end of a test that has passed so far: fail it, or warn."""
        if not self.fixture.enabled:
            return
        if self.fixture.outcome is None:
            self._item.warn(XferWarning("the test has the fixture xfer, and has measured nothing with it"))
            return
        found = judged(self._expected, self.fixture.outcome)
        text = "; ".join(found.reasons)
        if found.word == "too slow":
            pytest.fail(f"xfer: {text}", pytrace=False)
        if found.word == "unsure":
            self._item.warn(XferWarning(text))

    def told(self, outcome: Literal["passed", "failed", "skipped"]) -> str | None:
        """What was measured, as JSON, which travels between processes; None where nothing was."""
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
            judged=judged(self._expected, found),
            precision=timing.how.precision,
            budget_s=timing.how.budget_s,
        )
        return codec.to_bare_json(Measured(timing.place, result)).decode()

    @property
    def _expected(self) -> Expected:
        return Expected(self._wish.min_of_ceiling, self._wish.max_s)


def _timing(item: pytest.Item, settings: Settings, wish: Wish) -> Timing:
    """What the command line says goes before what the marker says: it knows the machine and the time that there is."""
    default = How()
    device: int | str | None = wish.device if settings.device is None else settings.device
    how = How(
        device=default.device if device is None else device,
        budget_s=_first(settings.budget_s, wish.budget, default.budget_s),
        precision=_first(wish.precision, default.precision),
    )
    try:
        if settings.require_gpu and how.device == "host":
            raise UsageError("its marker asks for host memory, and --xfer-require-gpu was given")
        return Timing(item.nodeid, how)
    except CudaUnavailableError as error:
        reason = f"no usable GPU: {error.name} ({error.code}). {error.hint}"
        if settings.require_gpu:
            pytest.fail(f"--xfer-require-gpu: {reason}", pytrace=False)
        pytest.skip(f"xfer: {reason}")


def _first(*values: T | None) -> T:
    """The first that was given."""
    return next(value for value in values if value is not None)
