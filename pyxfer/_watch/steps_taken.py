"""The steps of a watch as the program takes them: skipped, watched, or none of our business any more.

A step that is not watched must cost next to nothing, so before and after the window all steps share one object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_native_id
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

    def boundary(self, optimizer: int) -> None:
        """Nobody counts."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


NO_STEP = NoStep()


class _Depth(threading.local):
    """How many steps a thread is inside of; in a list, because to look it up costs more than to change it."""

    def __init__(self) -> None:
        self.steps = [0]


class SkippedSteps:
    """Counts so many steps and then says so, in the thread that has ended the last of them.

    A step inside a step of the same thread belongs to it.
    """

    def __init__(self, count: int, on_end: Callable[[], None]) -> None:
        self.left = count
        self._on_end = on_end
        self._depth = _Depth()
        self._lock = threading.Lock()

    def step(self) -> StepContext:
        """The same object for all of them."""
        return self

    def boundary(self, optimizer: int) -> None:
        """A step has ended whose beginning nobody saw."""
        self._ended()

    def __enter__(self) -> None:
        self._depth.steps[0] += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        depth = self._depth.steps
        if depth[0] > 1:
            depth[0] -= 1
        else:  # also one that another thread has begun
            depth[0] = 0
            self._ended()

    def _ended(self) -> None:
        with self._lock:
            self.left -= 1
            is_last = self.left == 0
        if is_last:
            self._on_end()


class Taken(NamedTuple):
    """A step that was watched; times in nanoseconds, the thread by its native id."""

    from_ns: int
    begin_ns: int
    end_ns: int
    thread: int
    failed: str | None
    closed: bool


class _Thread:
    """A thread that takes steps: the one it is inside of, and where the one before ended."""

    __slots__ = ("ended_ns", "inside")

    def __init__(self) -> None:
        self.inside: _WatchedStep | None = None
        self.ended_ns: int | None = None


class _OfThread(threading.local):
    """Goes with its thread, while the number of a thread is used again."""

    def __init__(self) -> None:
        self.thread = _Thread()


class WatchedSteps:
    """The steps of an open window, of any thread; each begins where the one before it in its thread has ended."""

    def __init__(self, begin_ns: int, most: int | None, on_full: Callable[[int], None]) -> None:
        """`on_full` is given the end of the last step that was asked for, or for which there is room."""
        self._begin_ns = begin_ns
        self._most = min(most or MOST_STEPS, MOST_STEPS)
        self._on_full = on_full
        self._lock = threading.Lock()
        self._taken: list[Taken] = []
        self._open: set[_WatchedStep] = set()
        self._this = _OfThread()
        self._is_over = False
        self.optimizers: set[int] = set()
        """Those whose steps were counted, where the program has named none itself."""
        self.nested = 0
        """Steps that were begun inside a step of the same thread, and belong to it."""

    @property
    def count(self) -> int:
        """How many have ended."""
        return len(self._taken)

    def step(self) -> StepContext:
        """A new one."""
        return _WatchedStep(self)

    def boundary(self, optimizer: int) -> None:
        """A step of this optimizer has ended whose beginning nobody saw: it began where the one before has ended.

        The first of a window that did not begin at such an end only marks where the next one begins.
        """
        thread, now = self._this.thread, perf_counter_ns()
        self.optimizers.add(optimizer)
        if thread.ended_ns is None:
            thread.ended_ns = now
        else:
            self._add(Taken(thread.ended_ns, thread.ended_ns, now, get_native_id(), None, True), thread)

    def begin_at_boundary(self) -> None:
        """The window itself begins where a step has ended, in this thread."""
        self._this.thread.ended_ns = self._begin_ns

    def begun(self, step: _WatchedStep) -> _Thread | None:
        """The thread that the step counts for; none where it is inside another."""
        thread = self._this.thread
        if thread.inside is not None:
            self.nested += 1
            return None
        thread.inside = step
        self._open.add(step)
        return thread

    def ended(self, step: _WatchedStep, of: _Thread, end_ns: int, error: BaseException | None) -> None:
        """Keep it, unless the window is over; it may end in another thread than it has begun in."""
        of.inside = None
        self._open.discard(step)
        failed = None if error is None else in_words(error)
        self._add(Taken(self._from_ns(of), step.begin_ns, end_ns, step.native, failed, True), of)

    def close(self, end_ns: int) -> list[Taken]:
        """No more of them; what is still open ends with the window."""
        with self._lock:
            self._is_over = True
        left, self._open = self._open, set()
        for step in list(left):
            of = step.of
            if of is not None and step.begin_ns < end_ns:
                self._taken.append(Taken(self._from_ns(of), step.begin_ns, end_ns, step.native, None, False))
        return sorted(self._taken, key=lambda taken: taken.end_ns)

    def _from_ns(self, of: _Thread) -> int:
        return self._begin_ns if of.ended_ns is None else of.ended_ns

    def _add(self, taken: Taken, of: _Thread) -> None:
        with self._lock:
            if self._is_over:
                return
            self._taken.append(taken)
            of.ended_ns = taken.end_ns
            self._is_over = len(self._taken) >= self._most
            is_full = self._is_over
        if is_full:
            self._on_full(taken.end_ns)


class _WatchedStep:
    """One step; where it is inside another it does nothing."""

    __slots__ = ("_steps", "begin_ns", "native", "of")

    def __init__(self, steps: WatchedSteps) -> None:
        self._steps = steps
        self.of: _Thread | None = None
        """The thread that it counts for, while it is open."""
        self.native = self.begin_ns = 0

    def __enter__(self) -> None:
        self.native, self.begin_ns = get_native_id(), perf_counter_ns()
        self.of = self._steps.begun(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        of, self.of = self.of, None
        if of is not None:
            self._steps.ended(self, of, perf_counter_ns(), error)


def in_words(error: BaseException) -> str:
    """An exception as one line: its kind, and what it says first."""
    kind = type(error).__name__
    try:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    except Exception:  # noqa: BLE001 - the program's own exception, whose __str__ may do anything
        said = ""
    return f"{kind}: {said}"[:_LONGEST] if said else kind
