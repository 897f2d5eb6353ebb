"""The one watch that is at work in this process: who it is, and what becomes of it at a fork and at the end.

CUPTI serves one user in a process, so a second watch would have nothing to see.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from pyxfer.errors import UsageError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class AtWork(Protocol):
    """What a watch offers while it is at work."""

    begun_at: str
    """Where in the program it was begun: `train.py:31 in main`."""
    gives_way: bool
    """Whether it ends when another one begins."""

    def stop(self) -> None:
        """Close the window."""

    def give_way(self, to: str) -> None:
        """Close the window, because a watch begins at that line of the program."""

    def forked(self) -> None:
        """The process has forked; this is the parent."""

    def orphan(self) -> None:
        """The process has forked; this is the child, in which nothing is watched."""


_lock = threading.Lock()
_current: AtWork | None = None
_is_prepared = False


def take(watch: AtWork) -> None:
    """Be the one.

    Raises:
        UsageError: another one is at work; the text says where it was begun.

    """
    current = _current
    if current is not None and current is not watch and current.gives_way:
        current.give_way(caller())
    with _lock:
        _take(watch)


def leave(watch: AtWork) -> None:
    """Be it no longer."""
    global _current  # noqa: PLW0603 - there is one in a process
    with _lock:
        if _current is watch:
            _current = None


def caller() -> str:
    """The innermost line of the program outside of pyxfer."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS + os.sep):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile: where a program ends, a second one could only cost what was watched."""
    before = _ignore_interrupts()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _ignore_interrupts() -> Callable[..., object] | int | None:
    """What becomes of Ctrl-C otherwise; None where it is not ours to change."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return None
    while True:
        with suppress(KeyboardInterrupt):  # one that came just before
            return signal.signal(signal.SIGINT, signal.SIG_IGN)


def _take(watch: AtWork) -> None:
    global _current, _is_prepared  # noqa: PLW0603
    if _current is watch:
        raise UsageError(f"This watch is at work already, since {watch.begun_at}: stop it before it is started again.")
    if _current is not None:
        raise UsageError(
            f"A watch is at work already, begun at {_current.begun_at}, and there can be one in a process: "
            "end it first, or begin this one after its window has closed."
        )
    if not _is_prepared:
        os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)
        atexit.register(_at_end)
        _is_prepared = True
    _current = watch


def _in_parent() -> None:
    if _current is not None:
        _current.forked()


def _in_child() -> None:
    global _current, _lock  # noqa: PLW0603
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _current is not None:
        _current.orphan()
        _current = None


def _at_end() -> None:
    """A watch that was never left: its window closes with the program."""
    with uninterrupted():
        if _current is not None:
            _current.stop()
