"""`pyxfer.watch`: the public class and function, and the analysis of a window with its ceilings."""

from __future__ import annotations

import dataclasses
import os
import signal
from types import TracebackType
from typing import TYPE_CHECKING

from pyxfer._document.machines import Fact, Remark
from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import Run
from pyxfer._document.watches import CeilingSource, Watched
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer._watch.ceilings import measure_ceilings, remarks_on_saved, source_of
from pyxfer._watch.launch import SignalSwitch, numbered, print_message
from pyxfer._watch.options import DEFAULT_CAPACITY, MEASURED, Target, WatchOptions, checked_ceilings, make_options
from pyxfer._watch.session import WANTED_ENDINGS, Session
from pyxfer._watch.step_tracking import StepContext
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._watch.window import Window


def make_document(window: Window, target: Target, ceilings: Run | str | None, *, unchanged: bool = False) -> Watched:
    """Analyse a window and compare its copies with `ceilings`: a saved run, "measured" to measure now, or None.

    `unchanged`: the program is a script that was run by `pyxfer watch`.
    """
    # These import NumPy, which the program may not use.
    from pyxfer._watch.analysis import analyse
    from pyxfer._watch.copies import sizes_needed
    from pyxfer._watch.window import within_capacity

    window, engine, device = within_capacity(window), target.choice.engine, target.device
    link, needed = read_link(engine, device), sizes_needed(window)
    source, remarks = Fact[CeilingSource](reason="no ceilings were requested"), tuple[Remark, ...]()
    if isinstance(ceilings, Run):
        source, remarks = source_of(ceilings), remarks_on_saved(ceilings, device, link, needed)
    elif ceilings is not None:
        source, remarks = measure_ceilings(needed, target)
    window = dataclasses.replace(window, remarks=(*window.remarks, *remarks))
    return analyse(window, source, target, link, read_environment(engine, device), unchanged=unchanged)


Path = str | os.PathLike[str]

_NOT_STARTED = "This watch was never started: use it in a with statement, or call its start()."


class Watch(ShortRepr):
    """A watch made by `pyxfer.watch()`. Use it in a `with` statement or with `start()` and `stop()`, also repeatedly.

    After its window has closed, `result` is the document.
    """

    def __init__(self, options: WatchOptions, ceilings: Run | str | None) -> None:
        self._session = Session(options)
        self._ceilings = ceilings
        self._result: Watched | None = None
        self._result_window: Window | None = None

    def _summary(self) -> str:
        window = self._session.window
        if self._session.is_active:
            return "watching"
        return "not started" if window is None else f"closed: {len(window.steps)} steps"

    def __enter__(self) -> Watch:
        self._session.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._session.stop()
        else:
            self._session.stop("ended" if issubclass(kind, WANTED_ENDINGS) else "failed")

    def start(self) -> None:
        """Start watching. The window opens after the steps to skip.

        Raises:
            UsageError: this or another watch is active in this process, or there is no such device.
        """
        self._session.start()

    def stop(self) -> None:
        """Close the window, if it has not closed already."""
        self._session.stop()

    def step(self) -> StepContext:
        """Return a context manager for one step of the program: `with w.step(): train(batch)`.

        The time between two steps counts as the input of the second. Call `step` for every step: its result belongs to
        the phase of the watch (skipping, watching, closed) in which it was called.
        """
        return self._session.steps.step()

    def on_signal(self, number: int = signal.SIGUSR1, *, save_to: Path | None = None) -> None:
        """Start a window at this signal and close it at the next, any number of times.

        Each report is printed to stderr with its number. With `save_to="watch.json"` the documents are saved as
        `watch-1.json`, `watch-2.json` and so on. Python runs signal handlers in its main thread, between two bytecode
        instructions: a long call into C delays them.

        Raises:
            UsageError: the program uses the signal itself, this is not its main thread, or the file cannot be written.
        """
        target = None if save_to is None else os.fspath(save_to)
        if target is not None:
            from pyxfer._document.files import check_writable

            check_writable(numbered(target, 1))
        SignalSwitch(self._session, number, lambda count, window: self._print_report(count, window, target))

    @property
    def result(self) -> Watched:
        """The document of the last window. The first access measures the ceilings, which takes about a second.

        Raises:
            UsageError: no window has closed yet.
        """
        window = self._closed_window()
        if self._result is None or self._result_window is not window:
            self._result, self._result_window = self._document(window), window
        return self._result

    def to_chrome_trace(self, path: Path) -> None:
        """Write all records as a trace for Perfetto or chrome://tracing, compressed if the path ends in .gz.

        Raises:
            UsageError: no window has closed yet, or the file cannot be written.
        """
        from pyxfer._watch.chrome import write_chrome_trace
        from pyxfer._watch.window import within_capacity

        write_chrome_trace(within_capacity(self._closed_window()), path)

    def _closed_window(self) -> Window:
        session = self._session
        if session.is_forked:
            raise UsageError("This process was forked from the watched one, and is not watched itself.")
        if session.is_active:
            raise UsageError(
                "This watch is still active: use its result after the window has closed, that is after the last of "
                "its steps, at the end of its with block, or after stop()."
            )
        if session.window is None:
            raise UsageError(_NOT_STARTED)
        return session.window

    def _print_report(self, count: int, window: Window, save_to: str | None) -> None:
        """Report this window, not `self.result`: the next window may be open already."""
        watched = self._document(window)
        print_message(f"watch {count} of process {os.getpid()}:\n{watched.text()}")
        if save_to is not None:
            watched.save(numbered(save_to, count))

    def _document(self, window: Window) -> Watched:
        target = self._session.target
        if target is None:
            raise UsageError(_NOT_STARTED)
        return make_document(window, target, self._ceilings)


def watch(
    skip: int = 0,
    steps: int | None = None,
    *,
    duration: str | float | None = None,
    device: int | str = 0,
    lines: bool = True,
    ceilings: Run | Path | None = MEASURED,
    capacity: str | int = DEFAULT_CAPACITY,
) -> Watch:
    """Make a watch, which shows what the steps of this program wait for and what crosses the link in them.

    Use it as `with pyxfer.watch(skip=10, steps=20) as w:`, with `w.step()` around each step of the program.

    Args:
        skip: The window opens after this many steps.
        steps: It closes after this many steps, at the latest when the watch is left.
        duration: It closes after this time, such as "5s".
        device: Index, UUID or PCI address of the GPU, or "host".
        lines: Sample the source line that each thread is at.
        ceilings: What copies are compared with: "measured" (raw copies, measured when the result is first used), a
            saved run or its path, or None.
        capacity: Most memory for the records, such as "256MiB". When it is full, the window closes.

    Raises:
        UsageError: an argument is invalid.
        DocumentError: the saved run cannot be read.
    """
    return Watch(make_options(skip, steps, duration, device, lines, capacity), checked_ceilings(ceilings))
