"""What the marker asks of a test: `@pytest.mark.xfer(min_of_ceiling=0.8)`. Loads nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyxfer.errors import UsageError
from pyxfer.units import parse_duration, parse_ratio

if TYPE_CHECKING:
    import pytest

MARKER = "xfer"
FIXTURE = "xfer"
MARKER_LINE = (
    f"{MARKER}(min_of_ceiling=None, max_s=None, budget=None, precision=None, device=None): what the test has to reach "
    "with the fixture xfer (a share of the ceiling, seconds of a call), and how it is measured"
)
LONGEST_S = 86400.0
NO_DEVICE = "is no index, UUID or PCI address of a GPU, nor 'host'"


@dataclass(frozen=True)
class Wish:
    """What a test has to reach, and how it is to be measured; None is what is not said."""

    min_of_ceiling: float | None = None
    max_s: float | None = None
    budget: float | None = None
    precision: float | None = None
    device: int | str | None = None

    @property
    def asks(self) -> bool:
        """Whether there is something to reach."""
        return self.min_of_ceiling is not None or self.max_s is not None


def read_wish(markers: Iterable[pytest.Mark]) -> Wish:
    """All markers of a test, the closest first; what it says itself goes before what its class or module says.

    Raises:
        UsageError: says which argument cannot be, and gives a right example.

    """
    said: dict[str, Any] = {}
    for marker in markers:
        if marker.args:
            raise UsageError(f"takes its arguments by name, such as min_of_ceiling=0.8; got {marker.args!r}")
        for name, value in marker.kwargs.items():
            if name not in _READERS:
                raise UsageError(f"has no argument {name!r}; known are {', '.join(_READERS)}")
            said.setdefault(name, _READERS[name](name, value))
    return Wish(**said)


def wrong_markers(item: pytest.Item) -> str | None:
    """What is wrong with the markers of a test, with its name; None where nothing is."""
    try:
        read_wish(item.iter_markers(MARKER))
    except UsageError as error:
        return f"{item.nodeid}: the marker {MARKER} {error}"
    its_own = any(marker.name == MARKER for marker in item.own_markers)
    if its_own and FIXTURE not in getattr(item, "fixturenames", ()):
        return f"{item.nodeid}: the marker {MARKER} asks for something that nothing measures; use the fixture {FIXTURE}"
    return None


def _share(name: str, value: object) -> float:
    return _number(name, value, parse_ratio, 1.0, "0.8 or '80%'")


def _seconds(name: str, value: object) -> float:
    return _number(name, value, parse_duration, LONGEST_S, "0.002 (seconds) or '2ms'")


def _device(name: str, value: object) -> int | str:
    if isinstance(value, (int, str)) and is_device(value):
        return value
    raise UsageError(f"has {name}={value!r}, which {NO_DEVICE}")


def is_device(device: int | str) -> bool:
    """Whether a device may be named so; what is mistyped must not pass for a machine without a GPU."""
    from pyxfer.machine.devices import could_be_device  # makes no CUDA call, and is not light

    return could_be_device(device)


def _number(name: str, value: object, parse: Callable[[str], float], most: float, example: str) -> float:
    if isinstance(value, str):
        try:
            value = parse(value)
        except UsageError as error:
            raise UsageError(f"has {name}={value!r}: {error}") from error
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not 0 < number <= most:  # nan is neither
        raise UsageError(f"has {name}={value!r}, which is not above zero and at most {most:g}; write {example}")
    return number


_READERS: dict[str, Callable[[str, object], Any]] = {
    "min_of_ceiling": _share,
    "max_s": _seconds,
    "budget": _seconds,
    "precision": _share,
    "device": _device,
}
