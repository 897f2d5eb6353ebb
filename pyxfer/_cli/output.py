"""Shared by several verbs: exports, the progress bar, the page with its exit code, the runtime, and JSON on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from pyxfer._cli.failures import end_as, say
from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:  # `pyxfer --help` loads neither rich nor NumPy
    from rich.progress import Progress as Bar

    from pyxfer._document.runs import Run
    from pyxfer.native import Choice


STDOUT = "-"


class Exports:
    """The files that a run is written to. A failed write is retried at the end; it does not end the run."""

    def __init__(self, json: str | None, csv: str | None, md: str | None) -> None:
        from pyxfer._document import codec, exports

        encoders: dict[str, Callable[[Run], str]] = {
            "--export-json": lambda run: codec.encode(run).decode(),
            "--export-csv": exports.run_csv,
            "--export-md": exports.run_markdown,
        }
        given = dict(zip(encoders, (json, csv, md), strict=True))
        self._targets = [(path, encoders[option]) for option, path in given.items() if path is not None]
        self._warned = False
        self._check([path for path, _ in self._targets])

    @property
    def takes_stdout(self) -> bool:
        """Whether an export goes to stdout, so that the page must go to stderr."""
        return any(path == STDOUT for path, _ in self._targets)

    def save(self, run: Run) -> None:
        """Rewrite the files with the run so far. A failure is reported once, and measuring continues."""
        try:
            self._write_files(run)
        except PyxferError as error:
            if not self._warned:
                say(f"{error}; the write is retried at the end")
            self._warned = True

    def finish(self, run: Run) -> None:
        """Write all exports. Now a failure is raised."""
        self._write_files(run)
        for path, encode in self._targets:
            if path == STDOUT:
                sys.stdout.write(encode(run))

    def _write_files(self, run: Run) -> None:
        from pyxfer._document.files import write_whole

        for path, encode in self._targets:
            if path != STDOUT:
                write_whole(path, encode(run).encode(errors="backslashreplace"))

    @staticmethod
    def _check(paths: list[str]) -> None:
        from pyxfer._document.files import check_writable

        if paths.count(STDOUT) > 1:
            raise UsageError("only one export can go to stdout (-); give the others a file name")
        files = [path for path in paths if path != STDOUT]
        places = [os.path.realpath(path) for path in files]
        for path, place in zip(files, places, strict=True):
            if places.count(place) > 1:
                raise UsageError(f"two exports name the file {path!r}; give them different names")
            check_writable(path)


_REFRESH_S = 0.1


class Progress(Protocol):
    """What the engine reports between trials."""

    @property
    def phase(self) -> str:
        """The current phase, such as `measuring`."""

    @property
    def done(self) -> float:
        """The finished share of the whole run, 0 to 1."""

    @property
    def text(self) -> str:
        """The route and size that are measured."""


class ProgressReport:
    """A progress bar that is drawn only when it is called, because a drawing thread would disturb the trials."""

    def __init__(self) -> None:
        self._phase = ""
        self._drawn_at = 0.0
        self._bar: Bar | None = None
        from pyxfer._report.layout import is_plain

        if not is_plain(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
            console = Console(file=sys.stderr)
            self._bar = Bar(
                *columns,
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> ProgressReport:
        if self._bar is not None:
            self._bar.add_task("", total=1.0)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Draw the bar, at most every 0.1 s."""
        if self._bar is None:
            self._say_phase(progress)
        elif time.monotonic() - self._drawn_at >= _REFRESH_S or progress.done >= 1:
            from pyxfer._report.text import clean

            self._drawn_at = time.monotonic()
            words = clean(f"{progress.phase} {progress.text}", longest=50)
            with suppress(OSError):
                self._bar.update(self._bar.task_ids[0], completed=progress.done, description=words)
                self._bar.refresh()

    def _say_phase(self, progress: Progress) -> None:
        if progress.phase != self._phase:
            self._phase = progress.phase
            say(progress.phase)


def deliver(run: Run, exports: Exports) -> None:
    """Save first, so that nothing that happens to the terminal can lose the run."""
    from pyxfer._report.layout import Page
    from pyxfer._report.run import print_run

    exports.save(run)
    print_run(run, Page(sys.stderr if exports.takes_stdout else sys.stdout))
    exports.finish(run)
    end_as(run)


def announce_runtime(device: int | str, require_gpu: bool = False) -> Choice:
    """Choose the runtime for a device. If it is the one over host memory, print the reason."""
    from pyxfer import native

    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    return choice


def write_json(value: object) -> None:
    """Write a value as a document's file has it."""
    from pyxfer._document.codec import to_json

    sys.stdout.write(to_json(value).decode() + "\n")
