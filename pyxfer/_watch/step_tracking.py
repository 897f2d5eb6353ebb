"""Counts the program's steps before, during and after the window.

A step outside of the window must cost next to nothing, so all of these share one object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_native_id
from time import perf_counter_ns
from types import TracebackType
from typing import NamedTuple

from pyxfer._document.watches import StepFinder

# A step takes about 200 bytes. This is more than a minute and a half of a thousand steps a second.
MAX_STEPS = 100_000
_LONGEST = 300


StepContext = AbstractContextManager[object]
"""Its block is one step of the program."""


class NoStep:
    """Steps outside of a window. They are not counted."""

    __slots__ = ()

    def step(self) -> StepContext:
        return self

    def found_step(
        self, finder: StepFinder, name: str, begin_ns: int | None, error: BaseException | None = None
    ) -> None:
        pass

    def begin_here(self) -> None:
        pass

    def restart(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


NO_STEP = NoStep()


class _Depth(threading.local):
    """How many steps a thread is inside of. In a list, because replacing the attribute would cost more."""

    def __init__(self) -> None:
        self.steps = [0]


class SkippedSteps(NoStep):
    """Counts the steps to skip, and calls `on_end` in the thread that ends the last of them.

    A step inside a step of the same thread is part of it.
    """

    def __init__(self, count: int, on_end: Callable[[], None]) -> None:
        self.left = self._count_all = count
        self._on_end = on_end
        self._depth = _Depth()
        self._lock = threading.Lock()

    def found_step(
        self, finder: StepFinder, name: str, begin_ns: int | None, error: BaseException | None = None
    ) -> None:
        self._count()

    def restart(self) -> None:
        """What was counted were not the steps."""
        with self._lock:
            self.left = self._count_all

    def __enter__(self) -> None:
        self._depth.steps[0] += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        depth = self._depth.steps
        if depth[0] > 1:
            depth[0] -= 1
        else:  # also a step that another thread has begun
            depth[0] = 0
            self._count()

    def _count(self) -> None:
        with self._lock:
            self.left -= 1
            is_last = self.left == 0
        if is_last:
            self._on_end()


class Step(NamedTuple):
    """One step of the program. The time between the end of the previous step and its beginning is its input."""

    from_ns: int
    """End of the previous step, or the beginning of the window."""
    begin_ns: int
    end_ns: int
    thread: int
    failed: str | None = None
    """The exception that was raised in it, as one line."""
    closed: bool = True
    """False if the window ended before the step did."""


class _ThreadState:
    __slots__ = ("ended_ns", "inside")

    def __init__(self) -> None:
        self.inside: _WatchedStep | None = None
        self.ended_ns: int | None = None


class _Local(threading.local):
    """Not a dict by thread id, because ids are reused after a thread has ended."""

    def __init__(self) -> None:
        self.state = _ThreadState()


class WatchedSteps:
    """The steps of an open window, of all threads. A step's time begins at the end of its thread's previous step."""

    def __init__(self, begin_ns: int, most: int | None, on_full: Callable[[int], None], skip: int = 0) -> None:
        """`on_full` is called with the end of the last step that was requested or that there is room for.

        `skip`: number of steps that were skipped before the window.
        """
        self._begin_ns = begin_ns
        self._most = MAX_STEPS if most is None else min(most, MAX_STEPS)
        self._on_full = on_full
        self._skip = skip
        self._left_to_skip = 0
        self._local = _Local()
        self._lock = threading.Lock()
        self._taken: list[Step] = []
        self._open: set[_WatchedStep] = set()
        self._is_over = False
        self.finder: StepFinder | None = None
        """How the steps were found. None if the program marks them."""
        self.names: set[str] = set()
        """Of the functions whose calls are the steps, or of the optimizers that made them."""
        self.is_restarted = False
        """Whether steps of the window were dropped, because others turned out to be the steps."""
        self.nested = 0
        """Number of steps that were begun inside a step of the same thread, and are part of it."""

    @property
    def count(self) -> int:
        return len(self._taken)

    def step(self) -> StepContext:
        return _WatchedStep(self)

    def found_step(
        self, finder: StepFinder, name: str, begin_ns: int | None, error: BaseException | None = None
    ) -> None:
        """Count a step that ends now. The first of a thread has no input, because what came before it is not known.

        A step that was begun before the window only marks where the next one begins; so does the first one of which
        only the end is known (`begin_ns` is None). Any other of these began at the end of the previous step.
        """
        state, now = self._local.state, perf_counter_ns()
        begin_ns = state.ended_ns if begin_ns is None else begin_ns
        if begin_ns is None or begin_ns < self._begin_ns:
            state.ended_ns = state.ended_ns or now
            return
        from_ns = begin_ns if state.ended_ns is None else state.ended_ns
        failed = None if error is None else error_line(error)
        self.finder = finder
        self.names.add(name)
        self._add(Step(from_ns, begin_ns, now, get_native_id(), failed), state)

    def begin_here(self) -> None:
        """The input of this thread's first step begins now."""
        state = self._local.state
        state.ended_ns = state.ended_ns or perf_counter_ns()

    def restart(self) -> None:
        """What was counted were not the steps: drop it, and skip as many of the others as before the window."""
        with self._lock:
            self._taken.clear()
            self.names, self._local = set(), _Local()
            self._left_to_skip = self._skip
            self.is_restarted = True

    def begin_at_step_end(self) -> None:
        """The window was opened by the end of a skipped step of this thread."""
        self._local.state.ended_ns = self._begin_ns

    def begin(self, step: _WatchedStep) -> _ThreadState | None:
        """The state of the step's thread, or None if the step is inside another one."""
        state = self._local.state
        if state.inside is not None:
            self.nested += 1
            return None
        state.inside = step
        self._open.add(step)
        return state

    def end(self, step: _WatchedStep, state: _ThreadState, end_ns: int, error: BaseException | None) -> None:
        """Keep the step, unless the window has closed. It may end in another thread than it has begun in."""
        state.inside = None
        self._open.discard(step)
        failed = None if error is None else error_line(error)
        self._add(Step(self._from_ns(state), step.begin_ns, end_ns, step.native_id, failed), state)

    def close(self, end_ns: int) -> list[Step]:
        """Stop counting. Steps that are still open end with the window."""
        with self._lock:
            self._is_over = True
        still_open, self._open = self._open, set()
        for step in list(still_open):
            state = step.state
            if state is not None and step.begin_ns < end_ns:
                self._taken.append(Step(self._from_ns(state), step.begin_ns, end_ns, step.native_id, closed=False))
        return sorted(self._taken, key=lambda taken: taken.end_ns)

    def _from_ns(self, state: _ThreadState) -> int:
        return self._begin_ns if state.ended_ns is None else state.ended_ns

    def _add(self, taken: Step, state: _ThreadState) -> None:
        with self._lock:
            if self._is_over:
                return
            state.ended_ns = taken.end_ns
            if self._left_to_skip:
                self._left_to_skip -= 1
                return
            self._taken.append(taken)
            self._is_over = len(self._taken) >= self._most
            is_full = self._is_over
        if is_full:
            self._on_full(taken.end_ns)


class _WatchedStep:
    """One step. Inside another step of its thread it does nothing."""

    __slots__ = ("_steps", "begin_ns", "native_id", "state")

    def __init__(self, steps: WatchedSteps) -> None:
        self._steps = steps
        self.state: _ThreadState | None = None
        """That of the thread that began the step, while the step is open."""
        self.native_id = self.begin_ns = 0

    def __enter__(self) -> None:
        self.native_id, self.begin_ns = get_native_id(), perf_counter_ns()
        self.state = self._steps.begin(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        state, self.state = self.state, None
        if state is not None:
            self._steps.end(self, state, perf_counter_ns(), error)


AnySteps = NoStep | SkippedSteps | WatchedSteps


def error_line(error: BaseException) -> str:
    """An exception as one line: its type, and the first line of its message."""
    kind = type(error).__name__
    try:
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    except Exception:  # noqa: BLE001 - the program's own exception, whose __str__ may fail
        message = ""
    return f"{kind}: {message}"[:_LONGEST] if message else kind
