"""What belongs to one test: its fixture, whether it has reached what it had to, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

import pytest

from pyxfer import json_text
from pyxfer.benching.fixture import Xfer
from pyxfer.benching.judging import judged
from pyxfer.benching.timing import How, Timing
from pyxfer.benching.wishes import MARKER, read_wish
from pyxfer.errors import CudaUnavailableError, UsageError
from pyxfer.model_xfer import Expected, Measured, Tested

if TYPE_CHECKING:
    from pyxfer.benching.settings import Settings
    from pyxfer.benching.wishes import Wish

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
        return json_text.to_bare_json(Measured(timing.place, result)).decode()

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
