"""Stretches that the user names: `with pyxfer.mark("decode")`, or as a decorator.

While no window is open a mark only remembers that it is open, for a window may open inside it.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Generator
from threading import get_native_id
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeVar, cast

from pyxfer.errors import UsageError

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
