"""What the command line of pytest asks for, read and checked before anything runs. Loads nothing heavy."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pyxfer.errors import PyxferError, UsageError
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


def _device_wish(name: str, value: object) -> int | str:
    if isinstance(value, (int, str)) and is_device(value):
        return value
    raise UsageError(f"has {name}={value!r}, which {NO_DEVICE}")


def is_device(device: int | str) -> bool:
    """Whether a device may be named so; what is mistyped must not pass for a machine without a GPU."""
    from pyxfer._machine.devices import could_be_device  # makes no CUDA call, and is not light

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
    "device": _device_wish,
}


T = TypeVar("T")

FOLDER = ".pyxfer"
ANY_NAME = ""
"""Stands for the newest of the saved ones."""
Statistic = Literal["median", "of_ceiling"]
STATISTICS: tuple[Statistic, ...] = ("median", "of_ceiling")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LIMIT_EXAMPLE = "write median:5%, median:2ms or of_ceiling:5%"


@dataclass(frozen=True)
class Limit:
    """How much worse than the saved one a test may be: by a share of it, or of its median by seconds."""

    text: str
    statistic: Statistic
    share: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Settings:
    """The options; None is one that was not given."""

    json: Path | None = None
    save: Path | None = None
    compare: tuple[Path, ...] = ()
    limits: tuple[Limit, ...] = ()
    disabled: bool = False
    require_gpu: bool = False
    device: str | None = None
    budget_s: float | None = None


def add_options(parser: pytest.Parser) -> None:
    """Every option begins with `--xfer`."""
    group = parser.getgroup("pyxfer", "pyxfer: how fast tests move bytes over the link, beside raw copies")
    add = group.addoption
    add("--xfer-json", metavar="FILE", help="write what was measured to a file")
    add("--xfer-save", metavar="NAME|FILE", help=f"keep it to compare with later: {FOLDER}/NAME.json, or a file")
    add(
        "--xfer-compare",
        metavar="NAME|FILE",
        nargs="?",
        const=ANY_NAME,
        action="append",
        default=[],
        help="compare with what was saved; without a name, with the newest; several of them count as one side",
    )
    add(
        "--xfer-compare-fail",
        metavar="LIMIT",
        action="append",
        default=[],
        help=f"fail where a test is certainly worse than the saved one by more than this: {_LIMIT_EXAMPLE}",
    )
    add("--xfer-disable", action="store_true", help="measure nothing: xfer calls each function once")
    add("--xfer-require-gpu", action="store_true", help="fail tests that use xfer where no GPU is usable")
    add("--xfer-device", metavar="DEVICE", help="index, UUID or PCI address of the GPU, or host for host memory")
    add("--xfer-budget", metavar="TIME", help="measuring time of each test, such as 500ms (default 2s)")


def read_settings(config: pytest.Config) -> Settings:
    """The options of this session.

    Raises:
        UsageError: one of them cannot be; the text says which, and gives a right example.

    """
    option = config.getoption
    saved = Saved(config.rootpath / FOLDER, config.invocation_params.dir)
    settings = Settings(
        json=_json_file(option("--xfer-json"), config.invocation_params.dir),
        save=_given("--xfer-save", saved.to_be, option("--xfer-save")),
        compare=_each("--xfer-compare", saved.existing, option("--xfer-compare")),
        limits=_each("--xfer-compare-fail", parse_limit, option("--xfer-compare-fail")),
        disabled=option("--xfer-disable"),
        require_gpu=option("--xfer-require-gpu"),
        device=_given("--xfer-device", _device, option("--xfer-device")),
        budget_s=_given("--xfer-budget", parse_budget, option("--xfer-budget")),
    )
    _check_together(settings)
    return settings


@dataclass(frozen=True)
class Saved:
    """Where names of saved sessions lead to, and paths."""

    folder: Path
    here: Path

    def to_be(self, text: str) -> Path:
        """The file to write; a name is one in the folder."""
        if _is_file(text):
            return self.here / text
        if not _NAME.fullmatch(text):
            raise UsageError(
                f"{text!r} is no name of letters, digits, dots and dashes; write a name such as main, or a path"
            )
        return self.folder / f"{text}.json"

    def existing(self, text: str) -> Path:
        """The file to read; without a name the newest."""
        path = self._newest() if text == ANY_NAME else self.to_be(text)
        if path.is_file():
            return path
        hint = f"; {text!r} was taken for a name, so write --xfer-compare= before it" if _is_test(text) else ""
        raise UsageError(f"there is no file {str(path)!r}: save one with --xfer-save={text or 'main'} first{hint}")

    def _newest(self) -> Path:
        found = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise UsageError(f"nothing is saved in {str(self.folder)!r} yet: save with --xfer-save=NAME first")
        return found[-1]


def parse_limit(text: str) -> Limit:
    """`median:5%` and the like."""
    name, colon, amount = (part.strip() for part in text.partition(":"))
    statistic = next((each for each in STATISTICS if each == name), None)
    if not colon or statistic is None:
        raise UsageError(f"{text!r} is no limit: it does not begin with {' or '.join(STATISTICS)}; {_LIMIT_EXAMPLE}")
    if amount.endswith("%"):
        return Limit(text, statistic, share=parse_ratio(amount))
    if statistic != "median" or not re.search(r"[a-z]", amount):
        raise UsageError(f"{text!r} is no limit: {amount!r} has no unit that fits; {_LIMIT_EXAMPLE}")
    return Limit(text, "median", seconds=parse_duration(amount))


def parse_budget(text: str) -> float:
    """Seconds, at most a day."""
    seconds = parse_duration(text)
    if seconds > LONGEST_S:
        raise UsageError(f"{text!r} is longer than a day; write a budget such as 500ms")
    return seconds


def _device(text: str) -> str:
    if not text.strip():
        raise UsageError("no device is named; write an index such as 0, a UUID, a PCI address, or host")
    if not is_device(text.strip()):
        raise UsageError(f"{text!r} {NO_DEVICE}")
    return text.strip()


def _json_file(text: str | None, here: Path) -> Path | None:
    if text is None:
        return None
    if not text:
        raise UsageError("--xfer-json: no file is named; write --xfer-json=xfer.json")
    return here / text


def _given(option: str, read: Callable[[str], T], text: str | None) -> T | None:
    """Read an option that was given; what is wrong with it is said under its name."""
    if text is None:
        return None
    with under(option):
        return read(text)


def _each(option: str, read: Callable[[str], T], texts: Sequence[str]) -> tuple[T, ...]:
    with under(option):
        return tuple(map(read, texts))


@contextlib.contextmanager
def under(option: str) -> Iterator[None]:
    """What goes wrong goes wrong with this option."""
    try:
        yield
    except (PyxferError, OSError) as error:
        raise UsageError(f"{option}: {error}") from error


def _check_together(settings: Settings) -> None:
    if settings.limits and not settings.compare:
        raise UsageError("--xfer-compare-fail needs --xfer-compare, which says what to compare with")
    if settings.require_gpu and settings.device == "host":
        raise UsageError("--xfer-require-gpu and --xfer-device=host exclude each other: leave one of them out")
    if settings.disabled and (settings.compare or settings.save or settings.json):
        raise UsageError(
            "with --xfer-disable nothing is measured, so there is nothing to write or to compare: leave "
            "--xfer-json, --xfer-save and --xfer-compare out"
        )


def _is_file(text: str) -> bool:
    return "/" in text or text.endswith((".json", ".json.gz"))


def _is_test(text: str) -> bool:
    return "::" in text or text.endswith((".py", "/")) or Path(text).is_dir()
