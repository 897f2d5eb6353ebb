"""The tests of a session: their fixture, the verdict on their limits, the document and the summary."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pyxfer._document import codec
from pyxfer._document.sessions import Expected, Judged, Measured, Tested, TestMachine, XferSession
from pyxfer._pytest.derived import judged
from pyxfer._pytest.fixture import How, Outcome, Timing, Xfer
from pyxfer._pytest.reporting import MEASURED
from pyxfer._pytest.settings import MARKER, read_marker, shown_path
from pyxfer._report.prose import folded, terminal_width
from pyxfer._report.session import place_lines, title
from pyxfer._report.text import clean, sentence
from pyxfer.errors import UsageError
from pyxfer.native import is_host_name
from pyxfer.units import format_size, parse_size

if TYPE_CHECKING:
    from pyxfer._document.runs import Measurement
    from pyxfer._pytest.against import Compared
    from pyxfer._pytest.settings import Settings


class Gathered:
    """Collects the results of a session; of a test that ran several times the last result counts."""

    def __init__(self) -> None:
        self._began_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._places: dict[tuple[str, ...], TestMachine] = {}
        self._tests: dict[str, Tested] = {}

    def add(self, text: str) -> None:
        measured = msgspec.json.decode(text, type=Measured)
        self._places.setdefault(_key(measured.place), measured.place)
        result = msgspec.structs.replace(measured.result, place=list(self._places).index(_key(measured.place)))
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


class XferWarning(UserWarning):
    """A test measured nothing, or it is not certain whether it is within the limits of its marker."""


class Bench:
    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        marker = read_marker(item.iter_markers(MARKER))
        self._expected = Expected(marker.get("min_of_ceiling"), marker.get("max_s"))
        self._timing = None if settings.disabled else _timing(item, settings, marker)
        self.fixture = Xfer(self._timing)

    def judge(self) -> None:
        """After a test that passed so far: fail it if it is too slow, or warn."""
        if not self.fixture.enabled:
            return
        outcome = self.fixture.outcome
        if outcome is None:
            self._item.warn(XferWarning("the test uses the fixture xfer, but measured nothing"))
            return
        found = self._judged(outcome)
        text = f"{found.word}: {'; and '.join(found.reasons)}."
        if found.word == "too slow":
            pytest.fail("\n".join([f"xfer: {text}", *self._explained(outcome)]), pytrace=False)
        if found.word == "unsure":
            self._item.warn(XferWarning(text))

    def _explained(self, outcome: Outcome) -> Sequence[str]:
        """The line of the call that was measured, and what to do next."""
        called, timing = self.fixture.called, self._timing
        if called is None or timing is None or timing.place is None:
            return ()
        line = f"{shown_path(called.path, self._item.config)}:{called.line}: {called.source}"
        if outcome.gbps is None:
            return (line,)  # the reason says what is wrong with the test
        if timing.place.runtime == "host":
            return line, "Host memory was measured, so the figures are not those of a link."
        return line, next_command(outcome.measurement, called.packages, timing.how.device)

    def _judged(self, outcome: Outcome) -> Judged:
        return judged(self._expected, outcome.measurement, outcome.ceiling)

    def add_to(self, report: pytest.TestReport) -> None:
        """Add the measurement as JSON, which xdist can send between processes, and the verdict for JUnit's XML."""
        timing, found = self._timing, self.fixture.outcome
        if timing is None or timing.place is None or found is None:
            return
        verdict = self._judged(found)
        result = Tested(
            test=self._item.nodeid,
            outcome=report.outcome,
            place=0,
            measurement=found.measurement,
            ceiling=found.ceiling,
            expected=self._expected,
            judged=verdict,
            precision=timing.how.precision,
            budget_s=timing.how.budget,
        )
        setattr(report, MEASURED, codec.to_bare_json(Measured(timing.place, result)).decode())
        if verdict.word != "not asked":
            self._item.user_properties.append(("xfer_verdict", verdict.word))


def _timing(item: pytest.Item, settings: Settings, marker: dict[str, Any]) -> Timing:
    """The timing of a test. Options take precedence over the marker, because they are chosen for the machine."""
    options = {"device": settings.device, "budget": settings.budget_s}
    given = {**marker, **{name: value for name, value in options.items() if value is not None}}
    how = How(**{name: value for name, value in given.items() if name not in ("min_of_ceiling", "max_s")})
    if settings.require_gpu and is_host_name(how.device):
        raise UsageError("The marker has device='host', but --xfer-require-gpu was given: leave one of them out.")
    return Timing(item.nodeid, how)


USUAL_ROUTES = {
    "torch": {"h2d": "torch.to", "d2h": "torch.cpu"},
    "tensorflow": {"h2d": "tf.constant", "d2h": "tf.numpy"},
    "jaxlib": {"h2d": "jax.device-put", "d2h": "jax.asarray"},
    "cupy": {"h2d": "cupy.asarray", "d2h": "cupy.get"},
}
"""The usual call of a framework, by the package of its arrays and by direction."""


def next_command(found: Measurement, packages: Sequence[str], device: int | str) -> str:
    text = format_size(found.nbytes).replace(" ", "")
    options = f"--size {text if parse_size(text) == found.nbytes else found.nbytes}"
    if device != 0:
        options += f" --device {device}"
    routes = (USUAL_ROUTES.get(package, {}).get(found.direction) for package in packages)
    route = next((route for route in routes if route is not None), None)
    if route is None:
        return f"pyxfer ceiling {options} shows what pageable and page-locked memory reach on this device."
    return (
        f"pyxfer explain {route} {options} shows where the time of the framework's usual call goes, and which of its "
        "calls are faster here."
    )
