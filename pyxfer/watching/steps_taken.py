"""The steps of a watch as the program takes them: skipped, watched, or none of our business any more.

A step that is not watched must cost next to nothing, so before and after the window all steps share one object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident, get_native_id
from time import perf_counter_ns
from types import TracebackType
from typing import NamedTuple, Protocol

# Each takes some 200 bytes; at a thousand steps a second this is more than a minute and a half.
MOST_STEPS = 100_000
_LONGEST = 300


class StepContext(Protocol):
    """What `step()` gives: the body of a `with` statement is one step."""

    def __enter__(self) -> object:
        """The step begins."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The step ends; what it raised goes on."""


class NoStep:
    """A step of a watch that is not at work."""

    __slots__ = ()

    def step(self) -> StepContext:
        """Itself, always."""
        return self

    def boundary(self) -> None:
        """Nobody counts."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


NO_STEP = NoStep()


class SkippedSteps:
    """Counts so many steps and then says so, in the thread that has ended the last of them."""

    def __init__(self, count: int, on_end: Callable[[], None]) -> None:
        self.left = count
        self._on_end = on_end
        self._lock = threading.Lock()

    def step(self) -> StepContext:
        """The same object for all of them."""
        return self

    def boundary(self) -> None:
        """A step has ended whose beginning nobody saw."""
        with self._lock:
            self.left -= 1
            is_last = self.left == 0
        if is_last:
            self._on_end()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.boundary()


class Taken(NamedTuple):
    """A step that was watched; times in nanoseconds, the thread by its native id."""

    from_ns: int
    begin_ns: int
    end_ns: int
    thread: int
    failed: str | None
    closed: bool


class WatchedSteps:
    """The steps of an open window, of any thread; each begins where the one before it in its thread has ended."""

    def __init__(self, begin_ns: int, most: int | None, on_full: Callable[[int], None]) -> None:
        """`on_full` is given the end of the last step that was asked for, or for which there is room."""
        self._begin_ns = begin_ns
        self._most = min(most or MOST_STEPS, MOST_STEPS)
        self._on_full = on_full
        self._lock = threading.Lock()
        self._taken: list[Taken] = []
        self._open: dict[int, _WatchedStep] = {}
        self._ended_ns: dict[int, int] = {}
        self._is_over = False
        self.nested = 0
        """Steps that were begun inside a step of the same thread, and belong to it."""

    @property
    def count(self) -> int:
        """How many have ended."""
        return len(self._taken)

    def step(self) -> StepContext:
        """A new one."""
        return _WatchedStep(self)

    def boundary(self) -> None:
        """A step has ended whose beginning nobody saw: it began where the one before has ended.

        The first of a window that did not begin at such an end only marks where the next one begins.
        """
        ident, now = get_ident(), perf_counter_ns()
        from_ns = self._ended_ns.get(ident)
        if from_ns is None:
            self._ended_ns[ident] = now
        else:
            self._add(Taken(from_ns, from_ns, now, get_native_id(), None, True), ident)

    def begin_at_boundary(self) -> None:
        """The window itself begins where a step has ended, in this thread."""
        self._ended_ns[get_ident()] = self._begin_ns

    def begun(self, step: _WatchedStep) -> bool:
        """Whether the step counts; one inside another does not."""
        if self._open.setdefault(get_ident(), step) is step:
            return True
        self.nested += 1
        return False

    def ended(self, step: _WatchedStep, end_ns: int, error: BaseException | None) -> None:
        """Keep it, unless the window is over."""
        ident, thread = step.ident, step.thread
        if self._open.pop(ident, None) is not None:
            from_ns = self._ended_ns.get(ident, self._begin_ns)
            failed = None if error is None else in_words(error)
            self._add(Taken(from_ns, step.begin_ns, end_ns, thread, failed, True), ident)

    def close(self, end_ns: int) -> list[Taken]:
        """No more of them; what is still open ends with the window."""
        with self._lock:
            self._is_over = True
        left, self._open = self._open, {}
        for ident, step in list(left.items()):
            from_ns = self._ended_ns.get(ident, self._begin_ns)
            if step.begin_ns < end_ns:
                self._taken.append(Taken(from_ns, step.begin_ns, end_ns, step.thread, None, False))
        return sorted(self._taken, key=lambda taken: taken.end_ns)

    def _add(self, taken: Taken, ident: int) -> None:
        with self._lock:
            if self._is_over:
                return
            self._taken.append(taken)
            self._ended_ns[ident] = taken.end_ns
            self._is_over = len(self._taken) >= self._most
            is_full = self._is_over
        if is_full:
            self._on_full(taken.end_ns)


class _WatchedStep:
    """One step; where it is inside another it does nothing."""

    __slots__ = ("_counts", "_steps", "begin_ns", "ident", "thread")

    def __init__(self, steps: WatchedSteps) -> None:
        self._steps = steps
        self._counts = False
        self.ident = self.thread = self.begin_ns = 0

    def __enter__(self) -> None:
        self.ident, self.thread = get_ident(), get_native_id()
        self.begin_ns = perf_counter_ns()
        self._counts = self._steps.begun(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._counts:
            self._counts = False
            self._steps.ended(self, perf_counter_ns(), error)


def in_words(error: BaseException) -> str:
    """An exception as one line: its kind, and what it says first."""
    kind = type(error).__name__
    try:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    except Exception:  # noqa: BLE001 - the program's own exception, whose __str__ may do anything
        said = ""
    return f"{kind}: {said}"[:_LONGEST] if said else kind
