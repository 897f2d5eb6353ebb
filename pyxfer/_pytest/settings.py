"""The options and the marker of the plugin, checked before any test runs. Imports nothing heavy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def read_marker(markers: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The arguments of all markers of a test, the closest first: a test's own takes precedence over its class's."""
    given: dict[str, Any] = {}
    for marker in markers:
        if marker.args:
            raise UsageError(f"{marker.args!r:.80} has no name: write named arguments such as min_of_ceiling=0.8.")
        for name, value in marker.kwargs.items():
            if name not in _READERS:
                raise UsageError(f"{name!r:.80} is not an argument: choose one of {', '.join(_READERS)}.")
            given.setdefault(name, _READERS[name](value, name))
    return given


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


@dataclass(frozen=True)
class Settings:
    """The options of a session; None is an option that was not given."""

    json: Path | None = None
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
        "--xfer-compare",
        metavar="FILE",
        action="append",
        default=[],
        help="compare with a session that --xfer-json has written; several count as one side",
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
    here = config.invocation_params.dir
    settings = Settings(
        json=None if json is None else here / json,
        compare=tuple(here / path for path in option("--xfer-compare")),
        limit=None if limit is None else share_of(limit, "--xfer-compare-fail"),
        disabled=option("--xfer-disable"),
        require_gpu=option("--xfer-require-gpu"),
        device=_device(option("--xfer-device")),
        budget_s=None if budget is None else seconds_of(budget, "--xfer-budget"),
    )
    _check_together(settings)
    return settings


def _device(text: str | None) -> str | None:
    if text is None or is_device(text.strip()):
        return text and text.strip()
    raise UsageError(f"--xfer-device {text!r} {NOT_A_DEVICE}")


def shown_path(path: Path, config: pytest.Config) -> str:
    """Relative to the folder that pytest was started in, if it is below it."""
    here = config.invocation_params.dir
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


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
    if settings.disabled and (settings.compare or settings.json):
        raise UsageError("--xfer-disable measures nothing: leave out --xfer-json and --xfer-compare.")
