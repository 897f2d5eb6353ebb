"""What is recorded while a window is open: CUPTI's records, steps, ranges, lines and child processes.

NumPy is loaded only when the records are read: a watched script may still want to set the environment variables that
NumPy reads when it is loaded.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyxfer._document.machines import Fact, Remark
from pyxfer._document.runs import Tracing
from pyxfer._trace.libraries import candidates_here
from pyxfer._watch.framework_calls import framework_in_use
from pyxfer._watch.marks import LineSampler, RangeRecorder, why_no_lines
from pyxfer._watch.step_tracking import MAX_STEPS, WatchedSteps
from pyxfer.errors import PyxferError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._trace.records import Capture
    from pyxfer._watch.options import WatchOptions
    from pyxfer._watch.window import Window, WindowEnding
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Tracer


class OpenWindow:
    """A window that is being recorded. Creating it takes time, so its first instant is that of `begin`.

    `read_used` reads the bytes of device memory in use. `on_full` is called with the end of the last step to watch.
    """

    def __init__(
        self,
        options: WatchOptions,
        recording: Recording,
        read_used: Callable[[], Fact[int]],
        on_full: Callable[[int], None],
    ) -> None:
        self._options = options
        self._recording = recording
        self._read_used = read_used
        self._used_before = read_used()
        self._thread_names = _thread_names()
        self._why_no_lines = why_no_lines() if options.lines else ""
        self._lines = LineSampler() if self._why_no_lines is None else None
        self._ranges = RangeRecorder()
        self.children = ChildProcesses()
        self._on_full = on_full
        self.begin_ns = 0
        recording.start()
        try:
            if self._lines is not None:
                self._lines.start()
        except RuntimeError as error:  # no more threads can be started
            self._lines, self._why_no_lines = None, str(error)

    def begin(self) -> WatchedSteps:
        self.begin_ns = self._ranges.open()
        self.steps = WatchedSteps(self.begin_ns, self._options.steps, self._on_full, self._options.skip)
        if self._options.skip:
            self.steps.begin_at_step_end()
        return self.steps

    def close(self, ended: WindowEnding, end_ns: int, device: int, remarks: tuple[Remark, ...]) -> Window:
        """Stop recording. Work that the device had not finished at the end is not in the records."""
        try:
            steps = self.steps.close(end_ns)
            capture = self._recording.finish()
        finally:  # an interrupt must not leave marks and the line sampler running
            try:
                ranges = self._ranges.close(end_ns)
            finally:
                if self._lines is not None:
                    self._lines.stop()
        used_after = self._read_used()
        from pyxfer._watch.window import Window

        samples = [] if self._lines is None else self._lines.samples
        return Window(
            begin_ns=self.begin_ns,
            end_ns=end_ns,
            ended=ended,
            capture=capture,
            tracing=self._recording.tracing,
            device=device,
            steps=tuple(steps),
            skipped=self._options.skip,
            finder=self.steps.finder,
            functions=() if self.steps.finder == "optimizer" else tuple(sorted(self.steps.names)),
            framework=framework_in_use(self.steps.finder, bool(steps)),
            ranges=ranges,
            seen=tuple(sample for sample in samples if self.begin_ns <= sample.at_ns <= end_ns),
            places={} if self._lines is None else self._lines.places,
            threads={**self._thread_names, **(self._lines.names if self._lines else {}), **_thread_names()},
            used_before=self._used_before,
            used_after=used_after,
            remarks=(*remarks, *self._remarks(), *self.children.remarks()),
        )

    def abandon(self) -> None:
        self._ranges.close(0)
        self._recording.forget()

    def _remarks(self) -> list[Remark]:
        steps, remarks = self.steps, []
        if steps.nested:
            text = f"{steps.nested} steps were begun inside a step of the same thread, and are part of it"
            remarks.append(Remark("nested", text, "close each step before the next begins"))
        if steps.finder == "optimizer" and len(steps.names) > 1:
            text = f"the steps of {len(steps.names)} optimizers are counted separately"
            advice = "if they belong to one iteration, name the steps in the script: with w.step() of pyxfer.watch()"
            remarks.append(Remark("optimizers", text, advice))
        if steps.finder == "compiled" and len(steps.names) > 1:
            text = f"the calls of {len(steps.names)} compiled functions are counted separately"
            advice = "name the function whose calls are the steps: --step module:function"
            remarks.append(Remark("functions", text, advice))
        if steps.is_restarted:
            text = (
                "calls before the first step were counted until it came; the figures of the whole window include them"
            )
            remarks.append(Remark("restarted", text, "skip a time instead of steps, such as --skip 10s"))
        if steps.count >= MAX_STEPS:
            text = f"the window closed after {MAX_STEPS} steps, the most that a window can have"
            remarks.append(Remark("full", text, "watch fewer steps"))
        if self._ranges.dropped:
            text = f"{self._ranges.dropped} ranges are left out, because there were too many"
            remarks.append(Remark("ranges", text, "mark longer stretches, or watch for a shorter time"))
        failure = self._lines.failure if self._lines is not None else self._why_no_lines
        if failure:
            remarks.append(Remark("lines", f"the program's own lines are not known: {failure}"))
        return remarks


def _thread_names() -> dict[int, str]:
    return {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id is not None}


class ChildProcesses:
    """Counts forks, and the live children that multiprocessing has started in another way.

    Other children cannot be seen, so the count is a lower bound.
    """

    def __init__(self) -> None:
        self.forked = 0
        self._before = _multiprocessing_children()
        self._spent_s = _processor_s(self._before)

    def remarks(self) -> tuple[Remark, ...]:
        after = _multiprocessing_children()
        new = [method for pid, method in after.items() if pid not in self._before and method != "fork"]
        count = len(self._before) + self.forked + len(new)
        spent_s = max(0.0, _processor_s({**self._before, **after}) - self._spent_s)
        if not count and spent_s < _WORTH_SAYING_S:
            return ()
        children = "at least 1 child process" if count <= 1 else f"at least {count} child processes"
        spent = f" and used {format_seconds(spent_s)} of processor time" if spent_s >= _WORTH_SAYING_S else ""
        text = f"{children}, forked or spawned, ran during the window{spent}; this report does not contain their work"
        return (Remark("children", text, "watch a child process that uses the device from inside of it"),)


_WORTH_SAYING_S = 0.05


def _processor_s(living: Iterable[int | None]) -> float:
    """The processor time of all children that have ended, and of these that have not."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for pid in living:
        with suppress(OSError, ValueError, IndexError):  # it has ended, and is in the sum of those
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def _multiprocessing_children() -> dict[int | None, str]:
    """The start method of each live child by pid. Does not import multiprocessing."""
    module: Any = sys.modules.get("multiprocessing")
    if module is None:
        return {}
    try:
        living = module.active_children()
    except Exception:  # noqa: BLE001 - half imported, or in a forked child; the count is only for a remark
        return {}
    return {child.pid: str(getattr(child, "_start_method", "")) for child in living}


KINDS = ("copies", "sets", "kernels", "calls", "allocations", "marks", "overhead")
# NVTX reads this variable when a program first uses it, and passes its ranges to the library of that name.
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"
_NOT_STARTED = "trace: unavailable: it was never started"
_NOT_READ = "trace: unavailable: it was closed before its records were read"


class Recording:
    """CUPTI's records of one window, or why there are none. Its failures do not end the watched program."""

    def __init__(self, engine: Engine, capacity_bytes: int) -> None:
        self._tracer: Tracer | None = None
        self._is_running = False
        self._nvtx_library: str | None = None
        self._is_host = engine.RUNTIME == "host"
        self.tracing: Fact[Tracing] = Fact(reason=_NOT_STARTED)
        try:
            self._tracer = engine.Tracer(candidates_here(engine), list(KINDS), capacity_bytes)
        except (PyxferError, MemoryError) as error:
            self._fail(error)

    def start(self) -> None:
        if self._tracer is None:
            return
        try:
            self._tracer.start()
        except (PyxferError, MemoryError) as error:
            self._fail(error)
            return
        self._is_running = True
        self.tracing = Fact(Tracing(self._tracer.library, self._tracer.version))
        if not self._is_host:
            self._nvtx_library = set_nvtx_library(self._tracer.library)

    def finish(self) -> Fact[Capture]:
        unset_nvtx_library(self._nvtx_library)
        if self._tracer is not None and self._is_running:
            try:
                self._tracer.stop()
            except (PyxferError, MemoryError) as error:
                self._fail(error)
        if self._tracer is None or not self._is_running:
            self.close()
            return Fact(reason=self.tracing.reason or _NOT_READ)
        try:
            from pyxfer._trace.collector import capture_of

            return Fact(capture_of(self._tracer.take()))
        except (PyxferError, MemoryError) as error:
            return Fact(reason=_reason(error))
        finally:
            self.close()

    def close(self) -> None:
        """Release CUPTI. May be called again."""
        tracer, self._tracer, self._is_running = self._tracer, None, False
        if tracer is not None:
            tracer.close()

    def forget(self) -> None:
        """In a forked child: drop the tracer without closing it, because it is the parent's."""
        self._tracer, self._is_running = None, False

    def _fail(self, error: PyxferError | MemoryError) -> None:
        self.tracing = Fact(reason=_reason(error))
        self.close()


def set_nvtx_library(library: str) -> str | None:
    """Have NVTX pass its ranges to this library. None if the environment names a library already."""
    if NVTX_VARIABLE in os.environ:
        return None
    os.environ[NVTX_VARIABLE] = library
    return library


def unset_nvtx_library(library: str | None) -> None:
    """Undo `set_nvtx_library`, so that the program's children do not inherit the variable."""
    if library is not None and os.environ.get(NVTX_VARIABLE) == library:
        del os.environ[NVTX_VARIABLE]


def _reason(error: PyxferError | MemoryError) -> str:
    if isinstance(error, PyxferError):
        return f"trace: unavailable: {error}"
    return "trace: unavailable: not enough memory for the records; give a smaller capacity"
