"""The tests of a session that have measured, gathered where reports arrive: in pytest itself, or xdist's controller."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from pyxfer.model_xfer import Measured, Place, Tested, XferSession


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
