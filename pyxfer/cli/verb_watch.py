"""`pyxfer watch`: where the time of an unchanged script goes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer.errors import PyxferError, UsageError

from . import options as opt
from .failures import say

if TYPE_CHECKING:
    from pyxfer.model import Run
    from pyxfer.model_watch import Watched
    from pyxfer.watching.launch import Launch
    from pyxfer.watching.place import Place

    from .watch_exports import WatchExports

Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="A script; with -m, the name of a module.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its own arguments.")]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as for python -m.")]
Skip = Annotated[
    str, typer.Option("--skip", metavar="N|TIME", help="Leave out so many steps first, or a time such as 2s.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Watch for so long, such as 5s.")]
Steps = Annotated[
    int | None, typer.Option("--steps", metavar="N", help="Watch so many steps: PyTorch's optimizer steps.")
]
Trace = Annotated[
    str | None, typer.Option("--trace", metavar="FILE", help="Everything recorded, for Perfetto; .gz packs it.")
]
BySignal = Annotated[bool, typer.Option("--signal", help="SIGUSR1 starts, and the next one stops; again and again.")]
CeilingsFrom = Annotated[
    str, typer.Option("--ceilings", metavar="RUN.json|none", help="Compare copies with those of a saved run, or none.")
]
Capacity = Annotated[str, typer.Option("--capacity", metavar="SIZE", help="Memory that the records may take.")]

ExportJson = Annotated[str | None, typer.Option("--export-json", metavar="FILE", help="The whole document.")]
ExportCsv = Annotated[str | None, typer.Option("--export-csv", metavar="FILE", help="One row a step, all figures.")]
ExportMd = Annotated[str | None, typer.Option("--export-md", metavar="FILE", help="Tables for a page.")]

_MEASURED, _NONE = "measured", "none"


def watch(
    script: Script,
    arguments: Arguments = None,
    *,
    is_module: IsModule = False,
    skip: Skip = "0",
    duration: For = None,
    steps: Steps = None,
    by_signal: BySignal = False,
    trace: Trace = None,
    ceilings: CeilingsFrom = _MEASURED,
    capacity: Capacity = "256MiB",
    device: opt.Device = "0",
    export_json: ExportJson = None,
    export_csv: ExportCsv = None,
    export_md: ExportMd = None,
) -> None:
    """Where the time of a script goes, and what crosses the link in it; the script is not changed.

    Runs it in a process of its own, and prints the report on stderr when it has ended. Without limits it is watched
    from its first use of CUDA to its end. Leaves with the script's exit code, or 128 and the number of the signal that
    ended it.
    """
    from pyxfer.watching.launch import Launch
    from pyxfer.watching.order import checked_ceilings, make_order
    from pyxfer.watching.place import find_place

    from .watch_exports import WatchExports

    exports = WatchExports(trace=trace, json=export_json, csv=export_csv, md=export_md, several=by_signal)
    if not is_module:
        exports.spare(script)
    skipped, skip_s = _skip(skip)
    if by_signal and skip_s:
        raise UsageError("--signal: the first signal says when to start, so no time can be skipped; leave --skip out")
    order = make_order(skipped, steps, _seconds(duration), device, True, capacity)
    compared = checked_ceilings(None if ceilings == _NONE else ceilings)
    place = find_place(device)
    with tempfile.TemporaryDirectory(prefix="pyxfer-watch-") as folder:
        driver = place.choice.engine.driver_version() if place.choice.runtime == "cuda" else 0
        launch = Launch(order, folder, is_module, skip_s, by_signal, driver)
        code = _run(launch, [script, *(arguments or ())], _Told(Path(folder), place, compared, exports, by_signal))
    raise SystemExit(code)


def _run(launch: Launch, program: list[str], told: _Told) -> int:
    """The script from its start to its end, and what there is to tell of it."""
    from dataclasses import replace

    from .watched_process import BlockedSignals, WatchedProcess

    with BlockedSignals() as before:
        process = WatchedProcess(replace(launch, blocked=before).pack(), program)
        if launch.by_signal:
            say(f"send SIGUSR1 to process {process.pid} to start watching, and again to stop")
        code = process.wait(told.look if launch.by_signal else _nothing)
    told.finish(code)
    return code


class _Told:
    """Tells of every window that the script's process has written."""

    def __init__(
        self, folder: Path, place: Place, ceilings: Run | str | None, exports: WatchExports, several: bool
    ) -> None:
        self._folder = folder
        self._place = place
        self._ceilings = ceilings
        self._exports = exports
        self._several = several
        self._count = 0

    def look(self) -> None:
        """Tell of new ones while the script runs; raw copies would be in its way, so none are made."""
        self._tell_new(None if self._ceilings == _MEASURED else self._ceilings)

    def finish(self, code: int) -> None:
        """The script has ended.

        Raises:
            UsageError: it could not be run at all.

        """
        refusal = self._words("refusal")
        if refusal:
            raise UsageError(refusal)
        self._tell_new(self._ceilings)
        if not self._count:
            if self._place.choice.reason:
                say(self._place.choice.reason)
            say(f"nothing was watched: {self._words('note') or _why_nothing(code)}")

    def _tell_new(self, ceilings: Run | str | None) -> None:
        from pyxfer.watching.launch import window_path

        while (path := window_path(str(self._folder), self._count + 1)).exists():
            self._count += 1
            try:
                self._tell(path, ceilings)
            except PyxferError as error:  # the script's exit code is worth more
                say(str(error))
            path.unlink()

    def _tell(self, path: Path, ceilings: Run | str | None) -> None:
        from pyxfer.watching.capacity import within_capacity
        from pyxfer.watching.stored import fetch
        from pyxfer.watching.telling import tell_of

        window = fetch(path)
        watched = tell_of(window, self._place, ceilings, unchanged=True)
        try:
            self._exports.write(self._count, within_capacity(window), watched)
        finally:
            self._show(watched)

    def _show(self, watched: Watched) -> None:
        """The page, on a stderr that the script may have filled, closed or lost."""
        from pyxfer.report.terminal import Page
        from pyxfer.report.watch_page import print_watch

        if self._several:
            say(f"watch {self._count}")
        print_watch(watched, Page(sys.stderr))
        sys.stderr.flush()

    def _words(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _skip(text: str) -> tuple[int, float]:
    """Steps, or seconds."""
    from pyxfer.units import parse_duration

    if text.isascii() and text.isdigit():
        return int(text), 0.0
    try:
        return 0, parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--skip: {error}; or a number of steps such as 10") from error


def _seconds(text: str | None) -> float | None:
    from pyxfer.units import parse_duration

    return None if text is None else parse_duration(text)


def _why_nothing(code: int) -> str:
    from .watched_process import SIGNALLED

    if code > SIGNALLED:
        return f"the script was ended by signal {code - SIGNALLED} before its window had closed"
    return "the script ended at once (os._exit, or by becoming another program) before its window had closed"


def _nothing() -> None:
    """Nothing to look at while the script runs."""
