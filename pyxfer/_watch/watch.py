"""`pyxfer.watch`: a window on the user's own program, and what it says."""

from __future__ import annotations

import dataclasses
import os
import signal
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from pyxfer._document.runs import Run
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer._watch.ceilings import NoCeilings, RunCeilings, measure_ceilings, saved_ceilings
from pyxfer._watch.launch import SignalSwitch, numbered, tell
from pyxfer._watch.order import DEFAULT_CAPACITY, MEASURED, Order, checked_ceilings, make_order
from pyxfer._watch.session import WANTED_ENDINGS, Session
from pyxfer._watch.steps_taken import StepContext
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._document.runs import Link, Remark, Run
    from pyxfer._document.watches import Watched
    from pyxfer._watch.order import Place
    from pyxfer._watch.window import Window


_NOT_ASKED = "no ceilings were asked for"


def tell_of(window: Window, place: Place, ceilings: Run | str | None, *, unchanged: bool = False) -> Watched:
    """All that a window says; `ceilings` are those of a run, measured now, or none.

    `unchanged`: the program is a script that knows nothing of being watched.
    """
    # NumPy is loaded after the window has closed: the program may do without it.
    from pyxfer._watch.analysis import Machine, analyse
    from pyxfer._watch.window import within_capacity

    window = within_capacity(window)
    choice, device = place.choice, place.device
    link = read_link(choice.engine, device)
    found, remarks = _ceilings(window, place, link, ceilings)
    machine = Machine(choice.runtime, choice.reason, device, link, read_environment(choice.engine, device))
    window = dataclasses.replace(window, remarks=(*window.remarks, *remarks))
    watched = analyse(window, found, machine, unchanged=unchanged)
    return msgspec.structs.replace(watched, ceiling_source=found.source)


def _ceilings(
    window: Window, place: Place, link: Link, ceilings: Run | str | None
) -> tuple[RunCeilings | NoCeilings, tuple[Remark, ...]]:
    if isinstance(ceilings, Run):
        return saved_ceilings(ceilings, window, place.device, link)
    return (NoCeilings(_NOT_ASKED), ()) if ceilings is None else measure_ceilings(window, place)


Path = str | os.PathLike[str]
_COLUMNS = 80
_NOT_STARTED = "This watch was never started: use it in a with statement, or call its start()."


class Watch:
    """What `pyxfer.watch()` makes: use it in a `with` statement, or with `start()` and `stop()`, as often as you like.

    When its window has closed, `result` is the document of it, and `report()` the same as text.
    """

    def __init__(self, order: Order, ceilings: Run | str | None) -> None:
        self._session = Session(order)
        self._ceilings = ceilings
        self._told_of: Window | None = None
        self._result: Watched | None = None

    def __enter__(self) -> Watch:
        self._session.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._session.stop()
        else:
            self._session.stop("ended" if issubclass(kind, WANTED_ENDINGS) else "failed")

    def start(self) -> None:
        """Begin: the window opens when the steps to skip have been taken.

        Raises:
            UsageError: this watch or another one is at work in this process, or there is no such device.

        """
        self._session.start()

    def stop(self) -> None:
        """Close the window, if it has not closed by itself."""
        self._session.stop()

    def step(self) -> StepContext:
        """One step of the program: `with w.step(): train(batch)`. What lies between two steps counts as their input.

        Call it for every step anew: what it gives belongs to the part of the watch in which it was called.
        """
        return self._session.steps.step()

    def on_signal(self, number: int = signal.SIGUSR1, *, save_to: Path | None = None) -> None:
        """Start at this signal and stop at the next, again and again; each report goes to stderr, with its number.

        `save_to` keeps the documents as well: `watch-1.json`, `watch-2.json` for `watch.json`. Python runs handlers in
        its main thread, when the call that it is in has returned.

        Raises:
            UsageError: the program uses that signal itself, this is not its main thread, or the file cannot be written.

        """
        target = None if save_to is None else os.fspath(save_to)
        if target is not None:
            from pyxfer._document.files import check_writable

            check_writable(numbered(target, 1))
        SignalSwitch(self._session, number, lambda count, window: self._tell(count, window, target))

    @property
    def result(self) -> Watched:
        """What the window says; made when it is first asked for, and the ceilings measured then, in about a second.

        Raises:
            UsageError: there is no window yet.

        """
        window = self._window()
        if self._result is None or self._told_of is not window:
            self._result, self._told_of = self._told(window), window
        return self._result

    def report(self, columns: int = _COLUMNS) -> str:
        """The result as text, for a terminal of so many columns."""
        return _as_text(self.result, columns)

    def to_json(self, path: Path | None = None) -> str:
        """The result as JSON; with a path, written there as well, whole or not at all."""
        from pyxfer._document import codec

        if path is not None:
            self.result.save(path)
        return codec.encode(self.result).decode()

    def to_csv(self, table: str = "steps") -> str:
        """One table of the result: `steps`, `copies`, `calls` or `ranges`."""
        return self.result.to_csv(table)

    def to_markdown(self) -> str:
        """The result's tables for people."""
        return self.result.to_markdown()

    def to_chrome_trace(self, path: Path) -> None:
        """Everything that was recorded, for Perfetto or chrome://tracing; packed, where the path ends in .gz.

        Raises:
            UsageError: there is no window yet, or the file cannot be written.

        """
        from pyxfer._watch.chrome import write_chrome_trace
        from pyxfer._watch.window import within_capacity

        write_chrome_trace(within_capacity(self._window()), path)

    def _window(self) -> Window:
        session = self._session
        if session.is_forked:
            raise UsageError("This process was forked from the one that is watched, and nothing is watched in it.")
        if session.is_at_work:
            raise UsageError(
                "This watch is still at work: ask when its window has closed, after the last of its steps, at the end "
                "of its with block, or after stop()."
            )
        if session.window is None:
            raise UsageError(_NOT_STARTED)
        return session.window

    def _tell(self, count: int, window: Window, target: str | None) -> None:
        """The next window may be open by now."""
        told = self._told(window)
        tell(f"watch {count} of process {os.getpid()}:\n{_as_text(told, _COLUMNS)}")
        if target is not None:
            told.save(numbered(target, count))

    def _told(self, window: Window) -> Watched:

        place = self._session.place
        if place is None:
            raise UsageError(_NOT_STARTED)
        return tell_of(window, place, self._ceilings)


def watch(
    skip: int = 0,
    steps: int | None = None,
    *,
    seconds: float | None = None,
    device: int | str = 0,
    lines: bool = True,
    ceilings: Run | Path | None = MEASURED,
    capacity: str | int = DEFAULT_CAPACITY,
) -> Watch:
    """Watch the steps of this program: what crossed the link in them, and what they waited for.

    The window opens when `skip` steps have ended, and closes after `steps` of them, after `seconds`, or when the watch
    is left. `lines`: look now and then at which line each thread is. `ceilings`: what copies are compared with,
    "measured" here when the result is asked for, a saved run, or None. `capacity`: the memory that records may take.

    Raises:
        UsageError: an argument that cannot be.
        DocumentError: the saved run cannot be read.

    """
    return Watch(make_order(skip, steps, seconds, device, lines, capacity), checked_ceilings(ceilings))


def _as_text(watched: Watched, columns: int) -> str:
    from pyxfer._report.watch import watch_text

    return watch_text(watched, columns)
