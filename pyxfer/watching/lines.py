"""Where in its own source the program is, looked at some two hundred times a second by a thread of ours.

Looking holds Python's lock, so what a look costs decides how often it is done.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from types import CodeType, FrameType
from typing import NamedTuple

EVERY_S = 0.005
# Of the time, by the processor's clock; waking up is in it, and costs more than the look does.
MOST_SHARE = 0.003
SLOWEST_S = 0.25
# When there are so many, every other one is given up and looks become half as frequent: memory has its bound, and the
# whole window is covered evenly.
MOST_SEEN = 100_000
_DEEPEST = 200
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_END_PATIENCE_S = 1.0


class SeenAt(NamedTuple):
    """A thread, by its native id, at a moment at a line such as `train.py:31 in step`."""

    at_ns: int
    thread: int
    line: str


class Lines(threading.Thread):
    """Looks until it is told to stop; what goes wrong ends the looking and nothing else."""

    def __init__(self) -> None:
        super().__init__(name="pyxfer-watch-lines", daemon=True)
        self.seen: list[SeenAt] = []
        self.names: dict[int, str] = {}
        self.failure: str | None = None
        self.cost_s = 0.0
        """What looking has taken of the program's time, by the processor's clock."""
        self._over = threading.Lock()  # held until the end; waiting for it costs less than an event
        self._over.acquire()
        self._own = _OwnFiles()
        self._texts: dict[tuple[CodeType, int], str] = {}
        self._every_s = EVERY_S

    def run(self) -> None:
        """Until the end of the window."""
        try:
            self._look_on()
        except Exception as error:  # noqa: BLE001 - lines are a help and no more; the program must not notice
            self.failure = f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """No more looks."""
        if self._over.locked():
            self._over.release()
        if self.is_alive():
            self.join(_END_PATIENCE_S)

    def _look_on(self) -> None:
        pause_s = self._every_s
        self.cost_s = time.thread_time()
        while not self._over.acquire(timeout=pause_s):
            self._look()
            cost_s = time.thread_time() - self.cost_s
            self.cost_s += cost_s
            if len(self.seen) >= MOST_SEEN:
                del self.seen[::2]
                self._every_s *= 2
            pause_s = min(max(self._every_s, cost_s / MOST_SHARE), max(SLOWEST_S, self._every_s))

    def _look(self) -> None:
        """Once at every thread. No frame is kept, for it would keep everything that it holds."""
        threads = {each.ident: each for each in threading.enumerate()}
        now = time.perf_counter_ns()
        for ident, frame in sys._current_frames().items():
            thread = threads.get(ident)
            if thread is None or thread.native_id is None or thread is self:
                continue
            line = self._line(frame)
            if line:
                self.names[thread.native_id] = thread.name
                self.seen.append(SeenAt(now, thread.native_id, line))

    def _line(self, innermost: FrameType) -> str:
        """The innermost line that is the user's own; empty where there is none."""
        frame: FrameType | None = innermost
        for _ in range(_DEEPEST):
            if frame is None:
                return ""
            if self._own.has(frame.f_code.co_filename):
                return self._text(frame.f_code, frame.f_lineno or 0)
            frame = frame.f_back
        return ""

    def _text(self, code: CodeType, line: int) -> str:
        text = self._texts.get((code, line))
        if text is None:
            if len(self._texts) >= MOST_SEEN:
                self._texts.clear()
            text = f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"
            self._texts[code, line] = text
        return text


class _OwnFiles:
    """Tells the user's own source from Python's, from what is installed, and from ours."""

    def __init__(self) -> None:
        places = sysconfig.get_paths()
        standard = [places[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in places]
        self._others = tuple(f"{os.path.realpath(place)}{os.sep}" for place in {*standard, _OURS})
        self._known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Whether a file is the user's; `<string>` and `<frozen ...>` are nobody's."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._judge(name)
        return known

    def _judge(self, name: str) -> bool:
        if name.startswith("<") and not name.startswith("<ipython"):
            return False
        parts = name.split(os.sep)
        if "site-packages" in parts or "dist-packages" in parts:
            return False
        try:
            place = os.path.realpath(name)
        except OSError:  # a relative name, and the working folder is gone
            place = name
        return not place.startswith(self._others)


def why_no_lines() -> str | None:
    """Why lines cannot be looked at here; None where they can."""
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)
    if not is_locked():
        return "this Python runs without its lock, and another thread's frames cannot be read safely"
    return None
