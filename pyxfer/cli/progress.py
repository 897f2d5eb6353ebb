"""How far a run has come, on stderr: a bar on a terminal, else a line a phase."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from pyxfer.report.terminal import is_plain
from pyxfer.report.text import clean

from .failures import say

_REFRESH_S = 0.1


class Progress(Protocol):
    """What the engine tells between its trials."""

    @property
    def phase(self) -> str:
        """What is being done."""

    @property
    def done(self) -> float:
        """How much of it all, from 0 to 1."""

    @property
    def text(self) -> str:
        """What it is done with."""


class ProgressReport:
    """Called with every progress; it draws only then, because a thread that draws would disturb the trials."""

    def __init__(self) -> None:
        self._phase = ""
        self._drawn_at = 0.0
        self._bar: Bar | None = None
        if not is_plain(sys.stderr):
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
        """Draw it, unless the last drawing is too fresh."""
        if self._bar is None:
            self._say_phase(progress)
        elif time.monotonic() - self._drawn_at >= _REFRESH_S or progress.done >= 1:
            self._drawn_at = time.monotonic()
            words = clean(f"{progress.phase} {progress.text}", longest=50)
            with suppress(OSError):
                self._bar.update(self._bar.task_ids[0], completed=progress.done, description=words)
                self._bar.refresh()

    def _say_phase(self, progress: Progress) -> None:
        if progress.phase != self._phase:
            self._phase = progress.phase
            say(progress.phase)
