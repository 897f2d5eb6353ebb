"""The tests of a session: their fixture, the verdict on their limits, the document and the summary."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
import pytest

from pyxfer._document import codec
from pyxfer._document.sessions import Expected, Judged, Measured, Place, Tested, XferSession
from pyxfer._pytest.fixture import How, Timing, Xfer
from pyxfer._pytest.settings import MARKER, read_marker
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
    from pyxfer._pytest.settings import MarkerArguments, Settings


class Gathered:
    """Collects the results of a session; of a test that ran several times the last result counts."""

    def __init__(self) -> None:
        self._began_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._places: list[Place] = []
        self._tests: dict[str, Tested] = {}

    def add(self, text: str) -> None:
        """Add the measurement of one test, given as JSON."""
        measured = msgspec.json.decode(text, type=Measured)
        result = msgspec.structs.replace(measured.result, place=self._number(measured.place))
        self._tests.pop(result.test, None)
        self._tests[result.test] = result

    def session(self, *, interrupted: bool) -> XferSession:
        """The document of all tests so far."""
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
    """Print the tables of all places, and the comparison."""
    width = terminal_width()
    words = compared.words if compared else {}
    for number, place in enumerate(session.places):
        reporter.section(title(place), sep="-")
        for line, colour in place_lines(session, number, words, width):
            reporter.write_line(line, **({colour: True} if colour else {}))
    if compared is not None:
        for text in (f"Compared with {against}.", *compared.notes):
            reporter.write_line(folded(sentence(clean(text, longest=_LONGEST_NOTE)), width))


_TOO_FEW = "without an interval, which needs six rounds"
_MORE = "; try a longer --xfer-budget"


def judged(expected: Expected, outcome: Outcome) -> Judged:
    """The verdict on the limits of a marker; "too slow" only if a whole interval is beyond a limit."""
    checks = (_check_share(expected.min_of_ceiling, outcome), _check_time(expected.max_s, outcome))
    verdicts = [verdict for verdict in checks if verdict is not None]
    if not verdicts:
        return Judged()
    words: tuple[Judgement, ...] = ("too slow", "unsure", "fine")
    worst = next(word for word in words if word in {found for found, _ in verdicts})
    return Judged(worst, tuple(reason for word, reason in verdicts if word == worst and reason))


def _check_share(least: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if least is None:
        return None
    share, limit = outcome.share, f"limit: at least {format_percent(least)}"
    if share is None:
        # A time without a bandwidth means that the function did not move all of its bytes.
        word: Judgement = "too slow" if outcome.summary is not None and outcome.gbps is None else "unsure"
        return word, f"no share of the ceiling; {limit}: {outcome.measurement.ceiling_share.reason}"
    seen = f"{format_percent(share.value)} of the ceiling"
    if share.low is None or share.high is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {limit}"
    if share.high < least:
        return "too slow", f"{seen}, at most {format_percent(share.high)}; {limit}"
    if share.low < least:
        return "unsure", f"{format_percent(share.low)} to {format_percent(share.high)} of the ceiling; {limit}{_MORE}"
    return "fine", ""


def _check_time(most_s: float | None, outcome: Outcome) -> tuple[Judgement, str] | None:
    if most_s is None:
        return None
    summary, limit = outcome.summary, f"limit: at most {format_seconds(most_s)}"
    if summary is None:
        return "unsure", f"no time; {limit}: {outcome.reason}"
    seen = f"time {format_seconds(summary.median_s)}"
    if summary.low_s is None or summary.high_s is None:
        return "unsure", f"{seen}, {_TOO_FEW}; {limit}"
    if summary.low_s > most_s:
        return "too slow", f"{seen}, at least {format_seconds(summary.low_s)}; {limit}"
    if summary.high_s > most_s:
        between = f"{format_seconds(summary.low_s)} to {format_seconds(summary.high_s)}"
        return "unsure", f"time {between}; {limit}{_MORE}"
    return "fine", ""


T = TypeVar("T")


class XferWarning(UserWarning):
    """A test measured nothing, or it is not certain whether it is within the limits of its marker."""


class Bench:
    """The fixture of one test, its verdict and its result."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        self._settings = settings
        self._limits: MarkerArguments = read_marker(item.iter_markers(MARKER))
        self._timing = None if settings.disabled else _timing(item, settings, self._limits)
        self.fixture = Xfer(self._timing)

    def judge(self) -> None:
        """After a test that passed so far: fail it if it is too slow, or warn."""
        if not self.fixture.enabled:
            return
        if self.fixture.outcome is None:
            self._item.warn(XferWarning("the test uses the fixture xfer, but measured nothing"))
            return
        found = judged(self._expected, self.fixture.outcome)
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
            judged=judged(self._expected, found),
            precision=timing.how.precision,
            budget_s=timing.how.budget_s,
        )
        return codec.to_bare_json(Measured(timing.place, result)).decode()

    @property
    def _expected(self) -> Expected:
        return Expected(self._limits.min_of_ceiling, self._limits.max_s)


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
            raise UsageError("the marker has device='host', but --xfer-require-gpu was given")
        return Timing(item.nodeid, how)
    except CudaUnavailableError as error:
        reason = f"no usable GPU: {error.name} ({error.code}). {error.hint}"
        if settings.require_gpu:
            pytest.fail(f"--xfer-require-gpu: {reason}", pytrace=False)
        pytest.skip(f"xfer: {reason}")


def _first(*values: T | None) -> T:
    """The first value that is not None."""
    return next(value for value in values if value is not None)
