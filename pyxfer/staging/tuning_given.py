"""Settings that somebody gives by hand, all of them or some: as arguments, or as text in an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from pyxfer.errors import UsageError
from pyxfer.model_tuning import RingFill
from pyxfer.staging.settings import default_settings
from pyxfer.units import parse_duration, parse_size

if TYPE_CHECKING:
    from pyxfer.staging.settings import Fill, RingSettings

VARIABLE = "PYXFER_RING"
_EXAMPLE = f'write some of {VARIABLE}="threads=8,chunk=64KiB,slots=512,fill=streaming"'


# Of many threads those that demote are the faster, and of few those that stream: on the H200 host they meet between
# eight and twelve. What was tuned is right for the threads that it was tuned with.
_FEW_THREADS = 8
_FILL_OF_FEW: Fill = "streaming"
_FILL_OF_MANY: Fill = "demoting"


@dataclass(frozen=True)
class Given:
    """What is given; the rest is None."""

    threads: int | None = None
    chunk_bytes: int | None = None
    slots: int | None = None
    fill: Fill | None = None
    spin_us: int | None = None

    @property
    def _parts(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def names(self) -> str:
        """Such as `threads and slots`; nothing where nothing is given."""
        *some, last = [name.partition("_")[0] for name in self._parts] or [""]
        return f"{', '.join(some)} and {last}" if some else last

    @property
    def needs_no_tuning(self) -> bool:
        """Whether what matters is given; the way of filling alone is not worth a second."""
        return None not in (self.threads, self.chunk_bytes, self.slots)

    def over(self, other: Given) -> Given:
        """This, and of the other what is not given here."""
        return Given(**{**other._parts, **self._parts})

    def applied_to(self, settings: RingSettings) -> RingSettings:
        """The settings with what is given; where that is few threads, filled as is right for so few.

        Raises:
            UsageError: no ring can be built like that.

        """
        is_few = isinstance(self.threads, int) and self.threads <= _FEW_THREADS  # what is none the settings refuse
        fill = _FILL_OF_FEW if is_few and settings.fill == _FILL_OF_MANY else settings.fill
        return replace(settings, **{"fill": fill, **self._parts})


def given_by_environment(environ: Mapping[str, str]) -> Given:
    """What the variable says.

    Raises:
        UsageError: it is no such text; shows one that is.

    """
    text = environ.get(VARIABLE, "").strip()
    parts: dict[str, Any] = {}
    for item in text.split(",") if text else ():
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in _READ:
            _refuse(text, f"{item.strip()!r:.80} is no setting of a ring")
        field, read = _READ[name]
        if field in parts:
            _refuse(text, f"{name} is given twice")
        try:
            parts[field] = read(value)
        except ValueError as error:  # UsageErrors among them
            _refuse(text, str(error))
    found = Given(**parts)
    try:
        found.applied_to(default_settings())
    except UsageError as error:
        _refuse(text, str(error))
    return found


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{text!r:.80} is no whole number")
    return int(text)


def _microseconds(text: str) -> int:
    """Never to spin is a choice too, and no duration otherwise."""
    return 0 if _NOUGHT.fullmatch(text) else round(parse_duration(text) * 1e6)


def _fill(text: str) -> str:
    if text not in get_args(RingFill):
        raise ValueError(f"slots are filled plain, streaming or demoting, and not {text!r:.80}")
    return text


_MOST_DIGITS = 9
_NOUGHT = re.compile(r"0+\s*(us|ms|s)?")
_READ = {
    "threads": ("threads", _whole),
    "chunk": ("chunk_bytes", parse_size),
    "slots": ("slots", _whole),
    "fill": ("fill", _fill),
    "spin": ("spin_us", _microseconds),
}


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(f"{VARIABLE} is {text!r:.200}: {why}; {_EXAMPLE}") from None
