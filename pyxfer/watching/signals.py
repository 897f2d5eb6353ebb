"""Windows that a signal opens and closes, for a program that runs for long.

A handler runs between any two instructions of the main thread, locks held and all, so it only leaves word; what it asks
for is done by a thread of ours.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:
    from pyxfer.watching.window import Window

OnWindow = Callable[[int, "Window"], None]
"""Called with every window that has closed, and its number, from 1 on."""
_END_PATIENCE_S = 30.0


class _Word(Enum):
    """What the thread is told beside the windows."""

    TURN = "turn"
    END = "end"


class Switched(Protocol):
    """What can be started and stopped."""

    on_closed: Callable[[Window], None] | None

    @property
    def is_at_work(self) -> bool:
        """Whether it is started."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it."""


class SignalSwitch:
    """Starts a watch at one signal and stops it at the next; `on_window` is called in the switch's own thread."""

    def __init__(self, watch: Switched, number: int, on_window: OnWindow) -> None:
        self._watch = watch
        self._on_window = on_window
        self._pid = os.getpid()
        self._words: queue.SimpleQueue[_Word | Window] = queue.SimpleQueue()
        self._count = 0
        self._thread = threading.Thread(target=self._serve, name="pyxfer-watch-signals", daemon=True)
        _install(number, lambda *_: self._words.put(_Word.TURN))
        watch.on_closed = self._words.put
        self._thread.start()
        atexit.register(self._end)

    def _serve(self) -> None:
        while (word := self._words.get()) is not _Word.END:
            try:
                self._obey(word)
            except PyxferError as error:
                tell(str(error))

    def _obey(self, word: _Word | Window) -> None:
        if not isinstance(word, _Word):
            self._count += 1
            self._on_window(self._count, word)
        elif self._watch.is_at_work:
            self._watch.stop()
        else:
            self._watch.start()

    def _end(self) -> None:
        """The program ends: a window that is still open is closed and told of."""
        if os.getpid() == self._pid:
            self._watch.stop()
            self._words.put(_Word.END)
            self._thread.join(_END_PATIENCE_S)


def numbered(path: str, count: int) -> str:
    """`watch-2.json` for the second `watch.json`."""
    stem, extension = os.path.splitext(path)
    if extension == ".gz":
        stem, inner = os.path.splitext(stem)
        extension = inner + extension
    return f"{stem}-{count}{extension}"


def tell(text: str) -> None:
    """On stderr, if anybody listens there."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"pyxfer: {text}\n")
        sys.stderr.flush()


def _install(number: int, handler: Callable[..., None]) -> None:
    """Take a signal that nobody else has taken.

    Raises:
        UsageError: somebody has, or it cannot be taken at all.

    """
    if number not in set(signal.Signals):
        raise UsageError(f"{number!r} is no signal: name one such as signal.SIGUSR1.")
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        name = signal.Signals(number).name
        raise UsageError(f"The program has a handler for {name} already: name another signal, such as SIGUSR2.")
    try:
        signal.signal(number, handler)
    except (ValueError, OSError) as error:  # not the main thread; SIGKILL
        raise UsageError(
            f"Signal {number} cannot be used here ({error}): call this in the main thread, with SIGUSR1 for one."
        ) from error
