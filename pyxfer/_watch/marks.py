"""`pyxfer.mark`, which names stretches of time, and the sampler of source lines."""

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
# The share of the time that sampling may take, by the processor's clock. Waking up costs more than the sample itself.
MAX_SHARE = 0.003
SLOWEST_S = 0.25
# At this number every second sample is dropped and the interval doubles. So memory is bounded, and the whole window is
# covered evenly.
MAX_SAMPLES = 100_000
_DEEPEST = 200
PYXFER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_JOIN_TIMEOUT_S = 1.0


class Seen(NamedTuple):
    """The source line that a thread was at when it was sampled."""

    at_ns: int
    thread: int
    line: str
    """The innermost line of the user's own code, for example `train.py:31 in step`."""


class Range(NamedTuple):
    name: str
    begin_ns: int
    end_ns: int
    thread: int


class LineSampler(threading.Thread):
    """Samples the source line of every thread until `stop`. An error ends the sampling, and not the program."""

    def __init__(self) -> None:
        super().__init__(name="pyxfer-watch-lines", daemon=True)
        self.samples: list[Seen] = []
        self.names: dict[int, str] = {}
        self.places: dict[str, tuple[str, int]] = {}
        """The file and the number of each line; those of two files that look alike have none."""
        self.failure: str | None = None
        self.cost_s = 0.0
        self._running = threading.Lock()  # held until the end; waiting for a lock costs less than for an event
        self._running.acquire()
        paths = sysconfig.get_paths()
        standard = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths]
        others = tuple(f"{os.path.realpath(path)}{os.sep}" for path in {*standard, PYXFER})
        self._is_users = functools.cache(functools.partial(_is_users, others))
        self._text: Callable[[CodeType, int], str] = functools.lru_cache(MAX_SAMPLES)(self._named)
        self._every_s = EVERY_S

    def run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception as error:  # noqa: BLE001 - the report can do without lines
            self.failure = f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """Stop sampling. May be called again."""
        if self._running.locked():
            self._running.release()
        if self.is_alive():
            self.join(_JOIN_TIMEOUT_S)

    def _sample_until_stopped(self) -> None:
        pause_s = self._every_s
        self.cost_s = time.thread_time()
        while not self._running.acquire(timeout=pause_s):
            self._sample()
            cost_s = time.thread_time() - self.cost_s
            self.cost_s += cost_s
            if len(self.samples) >= MAX_SAMPLES:
                del self.samples[::2]
                self._every_s *= 2
            pause_s = min(max(self._every_s, cost_s / MAX_SHARE), max(SLOWEST_S, self._every_s))

    def _sample(self) -> None:
        """Sample every thread once. Keeps no frame, because a frame keeps its local variables alive."""
        threads = {thread.ident: thread for thread in threading.enumerate()}
        now = time.perf_counter_ns()
        for ident, frame in sys._current_frames().items():
            thread = threads.get(ident)
            if thread is None or thread.native_id is None or thread is self:
                continue
            line = self._user_line(frame)
            if line:
                self.names[thread.native_id] = thread.name
                self.samples.append(Seen(now, thread.native_id, line))

    def _named(self, code: CodeType, line: int) -> str:
        text, place = f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}", (code.co_filename, line)
        if self.places.setdefault(text, place) != place:
            self.places[text] = ("", 0)
        return text

    def _user_line(self, innermost: FrameType) -> str:
        frame: FrameType | None = innermost
        for _ in range(_DEEPEST):
            if frame is None:
                return ""
            if self._is_users(frame.f_code.co_filename):
                return self._text(frame.f_code, frame.f_lineno or 0)
            frame = frame.f_back
        return ""


def _is_users(other_folders: tuple[str, ...], name: str) -> bool:
    """Whether the source file belongs to neither Python, nor an installed package, nor pyxfer."""
    if name.startswith("<") and not name.startswith("<ipython"):  # such as <string> and <frozen runpy>
        return False
    parts = name.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return False
    try:
        path = os.path.realpath(name)
    except OSError:  # a relative name, and the working folder was removed
        path = name
    return not path.startswith(other_folders)


def why_no_lines() -> str | None:
    """Why lines cannot be sampled in this Python, or None if they can."""
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return "this Python runs without its lock, and another thread's frames cannot be read safely"


MAX_RANGES = 100_000
_LONGEST_NAME = 200

Function = TypeVar("Function", bound=Callable[..., Any])


class _OpenMarks(list["tuple[Mark, int]"]):
    """The marks that one thread is inside of, the innermost last, with the time if a window was open, otherwise 0."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_native_id()
        _open_marks.add(self)

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity, for the set of all threads' lists
    __eq__ = object.__eq__


class _Local(threading.local):
    """The open marks of this thread. They are dropped with the thread."""

    def __init__(self) -> None:
        self.open = _OpenMarks()


class RangeRecorder:
    def __init__(self) -> None:
        self.begin_ns = 0
        self.dropped = 0
        self._ended: list[Range] = []

    def open(self) -> int:
        """Keep every mark of every thread from now on. Returns the time."""
        global _recorder  # noqa: PLW0603 - a process has one watch, and a mark has to find it quickly
        self.begin_ns = perf_counter_ns()
        _recorder = self
        return self.begin_ns

    def close(self, end_ns: int) -> tuple[Range, ...]:
        global _recorder  # noqa: PLW0603
        _recorder = None
        for thread in list(_open_marks):
            for entered, begin_ns in list(thread):
                self.add(entered.name, begin_ns, end_ns, thread.thread)
        return tuple(
            Range(name[:_LONGEST_NAME], max(from_ns, self.begin_ns), min(to_ns, end_ns), thread)
            for name, from_ns, to_ns, thread in self._ended
            if from_ns < end_ns
        )

    def add(self, name: str, begin_ns: int, end_ns: int, thread: int) -> None:
        if len(self._ended) < MAX_RANGES:
            self._ended.append(Range(name, begin_ns, end_ns, thread))
        else:
            self.dropped += 1


_recorder: RangeRecorder | None = None
_open_marks: weakref.WeakSet[_OpenMarks] = weakref.WeakSet()
_local = _Local()


class Mark:
    """Name a stretch of the program: `with pyxfer.mark("decode"): ...`, or `@pyxfer.mark("decode")` above a function.

    The report of a watch shows the ranges of its window. Outside of a window a mark costs less than a microsecond. A
    mark may be used any number of times, also recursively and by several threads at once.

    Raises:
        UsageError: the name is not a string, or it is empty.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not name or not isinstance(name, str):
            raise UsageError(f"A mark has a name, for example pyxfer.mark('decode'); got {name!r}.")
        self.name = name

    def __enter__(self) -> Mark:
        _local.open.append((self, 0 if _recorder is None else perf_counter_ns()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stack, recorder = _local.open, _recorder
        entry = stack.pop() if stack and stack[-1][0] is self else _remove(self)
        if recorder is not None and entry is not None:
            recorder.add(self.name, entry[1], perf_counter_ns(), stack.thread)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, a coroutine function or a generator function, so that each of its calls is marked.

        Raises:
            UsageError: it is not a function, or it is an asynchronous generator, whose end cannot be seen.
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
        return cast("Function", functools.wraps(function)(self._wrapper(function)))

    def _wrapper(self, function: Callable[..., Any]) -> Callable[..., Any]:
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


def _remove(mark: Mark) -> tuple[Mark, int] | None:
    """Remove a mark that is not the innermost one, as in interleaved generators, or that another thread has entered."""
    for stack in (_local.open, *_open_marks):
        for index in range(len(stack) - 1, -1, -1):
            if index < len(stack) and stack[index][0] is mark:
                return stack.pop(index)
    return None


# Not a function that makes a Mark: that call would cost half as much again as the mark itself.
mark = Mark
