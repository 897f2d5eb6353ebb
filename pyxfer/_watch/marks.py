"""Stretches that the user names: `with pyxfer.mark("decode")`, or as a decorator.

While no window is open a mark only remembers that it is open, for a window may open inside it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Generator
from threading import get_native_id
from time import perf_counter_ns
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, TypeVar, cast

from pyxfer.errors import UsageError

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


MOST_RANGES = 100_000
_LONGEST_NAME = 200

Function = TypeVar("Function", bound=Callable[..., Any])
Named = tuple[str, int, int, int]
"""Name, beginning, end and thread of a range."""


class _Open(list["Mark | tuple[Mark, int]"]):
    """The marks that one thread is inside of; those that began while a window was open with the time at which."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_native_id()
        _threads.add(self)

    __hash__ = object.__hash__  # type: ignore[assignment]  # it is this list and no other that the thread has
    __eq__ = object.__eq__


class _OfThread(threading.local):
    """Goes with its thread, and so do the marks that nobody has closed there."""

    def __init__(self) -> None:
        self.open = _Open()


class Ranges:
    """The ranges of one window, in bounded memory."""

    def __init__(self) -> None:
        self.begin_ns = 0
        self.dropped = 0
        self._ended: list[Named] = []

    def open(self) -> int:
        """From now on every mark of every thread is kept; the time of that."""
        global _window  # noqa: PLW0603 - there is one watch in a process, and a mark has to find it at once
        self.begin_ns = perf_counter_ns()
        _window = self
        return self.begin_ns

    def close(self, end_ns: int) -> tuple[Named, ...]:
        """All of them; those that are still open are cut to the window's end."""
        global _window  # noqa: PLW0603
        _window = None
        for thread in list(_threads):
            for entry in list(thread):
                self.add(*_begun(entry), end_ns, thread.thread)
        return tuple(self._cut(each, end_ns) for each in self._ended if each[1] < end_ns)

    def add(self, name: str, begin_ns: int, end_ns: int, thread: int) -> None:
        """Keep one, if there is room."""
        if len(self._ended) < MOST_RANGES:
            self._ended.append((name, begin_ns, end_ns, thread))
        else:
            self.dropped += 1

    def _cut(self, of: Named, end_ns: int) -> Named:
        name, begin, end, thread = of
        return name[:_LONGEST_NAME], max(begin, self.begin_ns), min(end, end_ns), thread


_window: Ranges | None = None
_threads: weakref.WeakSet[_Open] = weakref.WeakSet()
_this = _OfThread()


class Mark:
    """Name a stretch of the program: `with pyxfer.mark("decode"): ...`, or `@pyxfer.mark("decode")`.

    At any time, and one mark as often and in as many threads at once as you like. It appears in the report of a watch
    whose window is open meanwhile, and costs next to nothing otherwise.

    Raises:
        UsageError: the name is no text, or empty.

    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not name or not isinstance(name, str):
            raise UsageError(f"A mark has a name, for example pyxfer.mark('decode'); got {name!r}.")
        self.name = name

    def __enter__(self) -> Mark:
        _this.open.append(self if _window is None else (self, perf_counter_ns()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stack = _this.open
        if _window is None and stack and stack[-1] is self:
            stack.pop()
        else:
            self._end(stack)

    def _end(self, stack: _Open) -> None:
        end_ns, window = perf_counter_ns(), _window
        entry = stack.pop() if stack and _mark_of(stack[-1]) is self else _taken_out(self)
        if window is not None and entry is not None:
            window.add(*_begun(entry), end_ns, stack.thread)

    def __call__(self, function: Function) -> Function:
        """The function, marked for as long as each of its calls runs.

        Raises:
            UsageError: no function, or an asynchronous generator, whose calls have no end that could be seen.

        """
        if isinstance(function, type) or not callable(function):
            raise UsageError(
                f"A mark decorates a function: @pyxfer.mark({self.name!r}) above its def, and below @classmethod and "
                f"@property; got {function!r}. For anything else use with pyxfer.mark({self.name!r})."
            )
        if inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{function.__qualname__} is an asynchronous generator, which cannot be marked: use "
                f"with pyxfer.mark({self.name!r}) inside of it."
            )
        return cast("Function", functools.wraps(function)(self._around(function)))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def awaited(*arguments: Any, **named: Any) -> Any:
                with self:
                    return await function(*arguments, **named)

            return awaited
        if inspect.isgeneratorfunction(function):

            def generated(*arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
                with self:
                    return (yield from function(*arguments, **named))

            return generated

        def called(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return called


def _begun(entry: Mark | tuple[Mark, int]) -> tuple[str, int]:
    """Its name, and when it began; 0 for before the window."""
    return (entry.name, 0) if isinstance(entry, Mark) else (entry[0].name, entry[1])


def _mark_of(entry: Mark | tuple[Mark, int]) -> Mark:
    return entry if isinstance(entry, Mark) else entry[0]


def _taken_out(mark: Mark) -> Mark | tuple[Mark, int] | None:
    """A mark that is not the last one open, as in generators that take turns; or that another thread has opened."""
    for stack in (_this.open, *_threads):
        for index in range(len(stack) - 1, -1, -1):
            if index < len(stack) and _mark_of(stack[index]) is mark:
                return stack.pop(index)
    return None


# Not a function that makes one: the call would cost half as much again as the mark itself.
mark = Mark
