"""The tracer of a watch: opened while steps are still skipped, at work in the window, and gone after it.

NumPy is loaded only when the records are taken: a script that is watched from its first line may still want to set what
NumPy reads when it is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyxfer.errors import PyxferError
from pyxfer.model import Fact, Tracing
from pyxfer.tracing.libraries import candidates_here

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Tracer
    from pyxfer.tracing.records import Capture

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
            from pyxfer.tracing.collector import capture_of

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
