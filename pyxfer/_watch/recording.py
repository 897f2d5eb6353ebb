"""The tracer of a watch: opened while steps are still skipped, at work in the window, and gone after it.

NumPy is loaded only when the records are taken: a script that is watched from its first line may still want to set what
NumPy reads when it is loaded.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyxfer._document.runs import Fact, Remark, Tracing
from pyxfer._trace.libraries import candidates_here
from pyxfer._watch.marks import Lines, Ranges, SeenAt, why_no_lines
from pyxfer._watch.steps_taken import MOST_STEPS, WatchedSteps
from pyxfer.errors import PyxferError

if TYPE_CHECKING:
    from pyxfer._trace.records import Capture
    from pyxfer._watch.order import Order
    from pyxfer._watch.window import Window, WindowEnding
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Tracer


ReadUsed = Callable[[], Fact[int]]
"""Bytes of the device's memory that are in use."""


class Gathering:
    """One window. `on_full` is given the time at which the last step that was asked for has ended.

    Setting it up takes the program's time, and is over before the window begins.
    """

    def __init__(
        self, order: Order, recording: Recording, read_used: ReadUsed, skipped: int, on_full: Callable[[int], None]
    ) -> None:
        self._order = order
        self._recording = recording
        self._read_used = read_used
        self._skipped = skipped
        self._used_before = read_used()
        self._names = _thread_names()
        self._why_no_lines = why_no_lines() if order.lines else ""
        self._lines = Lines() if self._why_no_lines is None else None
        self._ranges = Ranges()
        self.children = Children()
        self._on_full = on_full
        self.begin_ns = 0
        recording.start()
        self._start_lines()

    def begin(self) -> WatchedSteps:
        """The window is open from now on; its steps."""
        self.begin_ns = self._ranges.open()
        self.steps = WatchedSteps(self.begin_ns, self._order.steps, self._on_full)
        if self._order.skip:
            self.steps.begin_at_boundary()
        return self.steps

    def close(self, ended: WindowEnding, end_ns: int, device: int, remarks: tuple[Remark, ...]) -> Window:
        """No more of anything. What the device was still at when the window closed is not in its records."""
        try:
            steps = self.steps.close(end_ns)
            capture = self._recording.finish()
        finally:  # an interrupt must not leave marks and looks at lines at work in the rest of the program
            try:
                ranges = self._ranges.close(end_ns)
            finally:
                seen = self._end_lines()
        used_after = self._read_used()
        from pyxfer._watch.window import Range, Seen, Step, Window

        return Window(
            begin_ns=self.begin_ns,
            end_ns=end_ns,
            ended=ended,
            capture=capture,
            tracing=self._recording.tracing,
            device=device,
            steps=tuple(Step(*taken) for taken in steps),
            skipped=self._skipped,
            ranges=tuple(Range(*each) for each in ranges),
            seen=tuple(Seen(*each) for each in seen if self.begin_ns <= each.at_ns <= end_ns),
            threads={**self._names, **(self._lines.names if self._lines else {}), **_thread_names()},
            used_before=self._used_before,
            used_after=used_after,
            remarks=(*remarks, *self._remarks(capture, end_ns), *self.children.remarks()),
        )

    def abandon(self) -> None:
        """In a forked child: all of this is its parent's."""
        self._ranges.close(0)
        self._recording.forget()

    def _start_lines(self) -> None:
        try:
            if self._lines is not None:
                self._lines.start()
        except RuntimeError as error:  # no more threads are to be had
            self._lines, self._why_no_lines = None, str(error)

    def _end_lines(self) -> list[SeenAt]:
        if self._lines is None:
            return []
        self._lines.stop()
        return list(self._lines.seen)

    def _remarks(self, capture: Fact[Capture], end_ns: int) -> list[Remark]:
        remarks = []
        if self.steps.nested:
            text = f"steps begun inside a step of the same thread belong to it, and there were {self.steps.nested}"
            remarks.append(Remark("nested", text, "close each step before the next begins"))
        if len(self.steps.optimizers) > 1:
            text = f"steps of {len(self.steps.optimizers)} optimizers are counted as steps of their own"
            advice = "where they belong to one iteration, name the steps in the script: with w.step() of pyxfer.watch()"
            remarks.append(Remark("optimizers", text, advice))
        if self.steps.count >= MOST_STEPS:
            text = f"the window closed after {MOST_STEPS} steps, which is all that there is room for"
            remarks.append(Remark("full", text, "watch fewer steps"))
        if self._ranges.dropped:
            text = f"{self._ranges.dropped} ranges found no room and are left out"
            remarks.append(Remark("ranges", text, "mark longer stretches, or watch for a shorter time"))
        failure = self._lines.failure if self._lines is not None else self._why_no_lines
        if failure:
            remarks.append(Remark("lines", f"the program's own lines are not known: {failure}"))
        return remarks


def _thread_names() -> dict[int, str]:
    return {each.native_id: each.name for each in threading.enumerate() if each.native_id is not None}


class Children:
    """Counts those that were forked, and those that multiprocessing has started another way and that still live.

    Nobody can be asked about the others, so there were at least as many.
    """

    def __init__(self) -> None:
        self._forked = 0
        self._before = _of_multiprocessing()

    def forked(self) -> None:
        """This process has forked once more."""
        self._forked += 1

    def remarks(self) -> tuple[Remark, ...]:
        """What a reader must know; nothing where there were none."""
        after = _of_multiprocessing()
        new = [method for pid, method in after.items() if pid not in self._before and method != "fork"]
        count = len(self._before) + self._forked + len(new)
        if not count:
            return ()
        those = "at least 1 child process was" if count == 1 else f"at least {count} child processes were"
        what = "it does" if count == 1 else "they do"
        text = f"{those} at work meanwhile, forked or spawned; what {what} is not in this report"
        return (Remark("children", text, "watch inside of it what a child process does on the device"),)


def _of_multiprocessing() -> dict[int | None, str]:
    """Its live children by pid, with how each was started; the module is not loaded for this."""
    module: Any = sys.modules.get("multiprocessing")
    if module is None:
        return {}
    try:
        living = module.active_children()
    except Exception:  # noqa: BLE001 - half imported, or in a forked child; a remark is not worth more
        return {}
    return {child.pid: str(getattr(child, "_start_method", "")) for child in living}


KINDS = ("copies", "sets", "kernels", "calls", "allocations", "marks", "overhead")
# NVTX looks at this when a program uses it for the first time, and hands its ranges to the library that is named there.
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"
_NOT_STARTED = "trace: unavailable: it was never started"
_NOT_READ = "trace: unavailable: it was closed before its records were read"


class Recording:
    """The records of one window, or the reason why there are none; nothing here ends the program that is watched."""

    def __init__(self, engine: Engine, capacity_bytes: int, path: Sequence[str] = ()) -> None:
        """`path`: where NumPy is looked for, if not where the program looks for it."""
        self._tracer: Tracer | None = None
        self._is_running = False
        self._named_for_nvtx: str | None = None
        self._path = path
        self._is_host = engine.RUNTIME == "host"
        self.tracing: Fact[Tracing] = Fact(reason=_NOT_STARTED)
        try:
            self._tracer = engine.Tracer(candidates_here(engine), list(KINDS), capacity_bytes)
        except (PyxferError, MemoryError) as error:
            self._give_up(error)

    def start(self) -> None:
        """Begin; where that fails, `tracing` says why."""
        if self._tracer is None:
            return
        try:
            self._tracer.start()
        except (PyxferError, MemoryError) as error:
            self._give_up(error)
            return
        self._is_running = True
        self.tracing = Fact(Tracing(self._tracer.library, self._tracer.version))
        if not self._is_host:
            self._named_for_nvtx = name_for_nvtx(self._tracer.library)

    def finish(self) -> Fact[Capture]:
        """End, and everything since the start."""
        forget_for_nvtx(self._named_for_nvtx)
        if self._tracer is not None and self._is_running:
            self._stop()
        load_numpy(self._path)
        if self._tracer is None or not self._is_running:
            self.close()
            return Fact(reason=self.tracing.reason or _NOT_READ)
        try:
            from pyxfer._trace.collector import capture_of

            return Fact(capture_of(self._tracer.take()))
        except (PyxferError, MemoryError) as error:
            return Fact(reason=_why(error))
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the library."""
        tracer, self._tracer, self._is_running = self._tracer, None, False
        if tracer is not None:
            tracer.close()

    def forget(self) -> None:
        """In a forked child: the tracer is its parent's."""
        self._tracer, self._is_running = None, False

    def _stop(self) -> None:
        try:
            if self._tracer is not None:
                self._tracer.stop()
        except (PyxferError, MemoryError) as error:
            self._give_up(error)

    def _give_up(self, error: PyxferError | MemoryError) -> None:
        self.tracing = Fact(reason=_why(error))
        self.close()


def name_for_nvtx(library: str) -> str | None:
    """Name the library to NVTX, unless somebody has named one; what was named, to be taken back."""
    if NVTX_VARIABLE in os.environ:
        return None
    os.environ[NVTX_VARIABLE] = library
    return library


def forget_for_nvtx(library: str | None) -> None:
    """Take back what was named, so that nothing of it reaches the program's children."""
    if library is not None and os.environ.get(NVTX_VARIABLE) == library:
        del os.environ[NVTX_VARIABLE]


def load_numpy(path: Sequence[str]) -> None:
    """Import it from where it lies for us: a numpy.py beside a script is the script's, and no NumPy."""
    if not path or "numpy" in sys.modules:
        return
    programs = sys.path[:]
    sys.path[:] = path
    try:
        import numpy  # noqa: F401 - whoever imports it later finds it
    finally:
        sys.path[:] = programs


def _why(error: PyxferError | MemoryError) -> str:
    if isinstance(error, PyxferError):
        return f"trace: unavailable: {error}"
    return "trace: unavailable: there was no memory for so many records; give a smaller capacity"
