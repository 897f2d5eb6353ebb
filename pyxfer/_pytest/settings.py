"""The options and the marker of the plugin, checked before any test runs. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import seconds_of, share_of

if TYPE_CHECKING:
    import pytest


MARKER = "xfer"
FIXTURE = "xfer"
MARKER_LINE = (
    f"{MARKER}(min_of_ceiling=None, max_s=None, budget=None, precision=None, device=None): limits of a test that uses "
    "the fixture xfer (share of the ceiling, seconds per call), and how it is measured"
)
NOT_A_DEVICE = "is not a device: give an index, a UUID or a PCI address of a GPU, or host."


@dataclass(frozen=True)
class MarkerArguments:
    """The limits of a test and how it is measured; None is an argument that was not given."""

    min_of_ceiling: float | None = None
    max_s: float | None = None
    budget: float | None = None
    precision: float | None = None
    device: int | str | None = None


def read_marker(markers: Iterable[pytest.Mark]) -> MarkerArguments:
    """The arguments of all markers of a test, the closest first: a test's own takes precedence over its class's."""
    given: dict[str, Any] = {}
    for marker in markers:
        if marker.args:
            raise UsageError(f"{marker.args!r:.80} has no name: write named arguments such as min_of_ceiling=0.8.")
        for name, value in marker.kwargs.items():
            if name not in _READERS:
                raise UsageError(f"{name!r:.80} is not an argument: choose one of {', '.join(_READERS)}.")
            given.setdefault(name, _READERS[name](value, name))
    return MarkerArguments(**given)


def marker_error(item: pytest.Item) -> str | None:
    """What is wrong with the markers of a test, with its name, or None."""
    try:
        read_marker(item.iter_markers(MARKER))
    except UsageError as error:
        return f"{item.nodeid}: The marker {MARKER}: {error}"
    is_marked = any(marker.name == MARKER for marker in item.own_markers)
    if is_marked and FIXTURE not in getattr(item, "fixturenames", ()):
        return f"{item.nodeid}: The marker {MARKER} has no effect without the fixture {FIXTURE}: use both, or none."
    return None


def _marker_device(value: object, name: str) -> int | str:
    if isinstance(value, (int, str)) and is_device(value):
        return value
    raise UsageError(f"{name} {value!r} {NOT_A_DEVICE}")


def is_device(device: int | str) -> bool:
    """Whether this can name a device; a typing error must not be taken for a machine without a GPU."""
    from pyxfer._machine.devices import could_be_device  # makes no CUDA call, but is slow to import

    return could_be_device(device)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "min_of_ceiling": share_of,
    "max_s": seconds_of,
    "budget": seconds_of,
    "precision": share_of,
    "device": _marker_device,
}


T = TypeVar("T")

FOLDER = ".pyxfer"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Settings:
    """The options of a session; None is an option that was not given."""

    json: Path | None = None
    save: Path | None = None
    compare: tuple[Path, ...] = ()
    limit: float | None = None
    disabled: bool = False
    require_gpu: bool = False
    device: str | None = None
    budget_s: float | None = None


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyxfer", "pyxfer: measure transfers between host and GPU in tests")
    add = group.addoption
    add("--xfer-json", metavar="FILE", help="write the results to FILE")
    add(
        "--xfer-save",
        metavar="NAME|FILE",
        help=f"save the results to {FOLDER}/NAME.json or FILE, to compare with later",
    )
    add(
        "--xfer-compare",
        metavar="NAME|FILE",
        action="append",
        default=[],
        help="compare with a saved session; several count as one side",
    )
    add(
        "--xfer-compare-fail",
        metavar="SHARE",
        help="fail if a test is certainly slower by more than SHARE, such as 5%%",
    )
    add("--xfer-disable", action="store_true", help="measure nothing; xfer calls every function once")
    add("--xfer-require-gpu", action="store_true", help="fail tests that use xfer if no GPU is usable")
    add("--xfer-device", metavar="DEVICE", help="index, UUID or PCI address of a GPU, or host (its memory)")
    add("--xfer-budget", metavar="TIME", help="measuring time per test, such as 500ms (default 2s)")


def read_settings(config: pytest.Config) -> Settings:
    option = config.getoption
    budget, json, limit = map(option, ("--xfer-budget", "--xfer-json", "--xfer-compare-fail"))
    if json == "":
        raise UsageError("--xfer-json is empty: write --xfer-json=xfer.json.")
    saved = Saved(config.rootpath / FOLDER, config.invocation_params.dir)
    settings = Settings(
        json=None if json is None else config.invocation_params.dir / json,
        save=_given("--xfer-save", saved.path_of, option("--xfer-save")),
        compare=_each("--xfer-compare", saved.existing, option("--xfer-compare")),
        limit=None if limit is None else share_of(limit, "--xfer-compare-fail"),
        disabled=option("--xfer-disable"),
        require_gpu=option("--xfer-require-gpu"),
        device=_given("--xfer-device", _device, option("--xfer-device")),
        budget_s=None if budget is None else seconds_of(budget, "--xfer-budget"),
    )
    _check_together(settings)
    return settings


@dataclass(frozen=True)
class Saved:
    folder: Path
    here: Path

    def path_of(self, text: str) -> Path:
        if "/" in text or text.endswith((".json", ".json.gz")):
            return self.here / text
        if not _NAME.fullmatch(text):
            raise UsageError(
                f"{text!r} is not a name of letters, digits, dots and dashes: write a name such as main, or a path."
            )
        return self.folder / f"{text}.json"

    def existing(self, text: str) -> Path:
        path = self.path_of(text)
        if not path.is_file():
            raise UsageError(f"{str(path)!r} is not there: save a session first with --xfer-save={text}.")
        return path


def _device(text: str) -> str:
    if not text.strip():
        raise UsageError("The device is empty: give an index such as 0, a UUID, a PCI address, or host.")
    if not is_device(text.strip()):
        raise UsageError(f"{text!r} {NOT_A_DEVICE}")
    return text.strip()


def shown_path(path: Path, config: pytest.Config) -> str:
    """Relative to the folder that pytest was started in, if it is below it."""
    here = config.invocation_params.dir
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _given(option: str, read: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else _each(option, read, [text])[0]


def _each(option: str, read: Callable[[str], T], texts: Sequence[str]) -> tuple[T, ...]:
    with naming(option):
        return tuple(map(read, texts))


@contextlib.contextmanager
def naming(option: str) -> Iterator[None]:
    try:
        yield
    except (PyxferError, OSError) as error:
        raise UsageError(f"{option}: {error}") from error


def _check_together(settings: Settings) -> None:
    if settings.limit is not None and not settings.compare:
        raise UsageError("--xfer-compare-fail has nothing to compare with: add --xfer-compare.")
    if settings.require_gpu and settings.device is not None:
        from pyxfer.native import is_host_name

        if is_host_name(settings.device):
            raise UsageError("--xfer-require-gpu and --xfer-device=host exclude each other: leave one of them out.")
    if settings.disabled and (settings.compare or settings.save or settings.json):
        raise UsageError("--xfer-disable measures nothing: leave out --xfer-json, --xfer-save and --xfer-compare.")
